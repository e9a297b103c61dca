/* What all modules share: counting, entries, settings, training mode, and the way into forward. */
#include "nn.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

/* ---- Life ---- */

#define CLEARED_BYTES ((size_t)1 << 18) /* between cancellation checks */

heed_status heed__module_new(heed_context *ctx, const heed__class *class, size_t bytes, int64_t capacity,
                             heed_module **out) {
  size_t room = capacity <= HEED__MAX_ENTRIES ? 0 : heed__array_bytes((uint64_t)capacity, sizeof(heed__slot));
  if (capacity > INT_MAX) return heed__fail_memory(ctx, class->name, SIZE_MAX);
  heed_module *m = heed__allocate(ctx, bytes);
  if (m == NULL) return heed__fail_memory(ctx, class->name, bytes);
  for (size_t i = 0; i < bytes; i += CLEARED_BYTES) { /* slopes of many heads are many */
    memset((char *)m + i, 0, bytes - i < CLEARED_BYTES ? bytes - i : CLEARED_BYTES);
    const heed_status status = i > 0 && heed__is_due(&ctx->pace) ? heed__stopped(ctx, class->name) : HEED_OK;
    if (status != HEED_OK) {
      heed__release(ctx, m);
      return status;
    }
  }
  m->context = ctx;
  m->class = class;
  m->references = 1;
  m->training = true;
  m->capacity = room > 0 ? (int)capacity : HEED__MAX_ENTRIES;
  m->slots = room > 0 ? heed__allocate(ctx, room) : m->inside;
  if (m->slots == NULL) {
    heed__release(ctx, m);
    return heed__fail_memory(ctx, class->name, room);
  }
  *out = m;
  return HEED_OK;
}

heed_status heed__module_finish(heed_status status, heed_module *m, heed_generator *g,
                                const heed_generator *before, heed_module **out) {
  if (status == HEED_OK) {
    *out = m;
  } else {
    *g = *before;
    heed_module_release(m);
  }
  return status;
}

heed_module *heed_module_retain(heed_module *m) {
  if (m != NULL) m->references++;
  return m;
}

/* Modules nest no deeper than the classes do, so that the recursion here and below is bounded. */
void heed_module_release(heed_module *m) {
  if (m == NULL || --m->references > 0) return;
  for (int i = 0; i < m->count; i++) {
    heed_tensor_free(m->slots[i].parameter);
    heed_module_release(m->slots[i].module);
  }
  heed_context *ctx = m->context;
  if (m->slots != m->inside) heed__release(ctx, m->slots);
  heed__release(ctx, m);
}

heed_context *heed_module_context(const heed_module *m) {
  return m != NULL ? m->context : NULL;
}
const char *heed_module_class(const heed_module *m) {
  return m != NULL ? m->class->name : "";
}
bool heed_module_training(const heed_module *m) {
  return m != NULL && m->training;
}

void heed_module_train(heed_module *m, bool training) {
  if (m == NULL) return;
  m->training = training;
  for (int i = 0; i < m->count; i++) {
    if (m->slots[i].module != NULL) heed_module_train(m->slots[i].module, training);
  }
}

/* ---- Entries ---- */

static heed__slot *add_slot(heed_module *m, const char *name, heed_entry_kind kind) {
  assert(m->count < m->capacity && strlen(name) < sizeof m->slots->name);
  heed__slot *slot = &m->slots[m->count++];
  *slot = (heed__slot){.kind = kind};
  memcpy(slot->name, name, strlen(name) + 1);
  return slot;
}

void heed__module_add_parameter(heed_module *m, const char *name, heed_tensor *parameter) {
  heed_tensor_set_parameter(parameter, true);
  add_slot(m, name, HEED_ENTRY_PARAMETER)->parameter = parameter;
}

void heed__module_insert_parameter(heed_module *m, const char *after, const char *name,
                                   heed_tensor *parameter) {
  heed__module_add_parameter(m, name, parameter);
  heed__slot *place = heed__module_slot(m, after) + 1, *last = &m->slots[m->count - 1], added = *last;
  for (; last > place; last--) last[0] = last[-1];
  *place = added;
}

void heed__module_take_parameter(heed_module *m, const char *name, heed_tensor **value) {
  heed__slot *slot = heed__module_slot(m, name), *end = &m->slots[--m->count];
  *value = slot->parameter;
  for (; slot < end; slot++) slot[0] = slot[1];
}

void heed__module_add_module(heed_module *m, const char *name, heed_module *module) {
  add_slot(m, name, HEED_ENTRY_MODULE)->module = module;
}

/* The entry of a list whose name is its number; NULL if there is none. */
static heed__slot *numbered_slot(const heed_module *m, const char *name) {
  int64_t i = 0;
  const char *p = name;
  for (; *p >= '0' && *p <= '9' && i < m->count; p++) i = 10 * i + (*p - '0');
  return p > name && i < m->count && strcmp(m->slots[i].name, name) == 0 ? &m->slots[i] : NULL;
}

heed__slot *heed__module_slot(const heed_module *m, const char *name) {
  heed__slot *numbered = numbered_slot(m, name); /* lists may be long */
  if (numbered != NULL) return numbered;
  for (int i = 0; i < m->count; i++) {
    const heed__slot *slot = &m->slots[i];
    if (slot->name[0] == name[0] && strcmp(slot->name, name) == 0) return &m->slots[i];
  }
  return NULL;
}

heed_module *heed__module_part(const heed_module *m, const char *name) {
  const heed__slot *slot = heed__module_slot(m, name);
  return slot != NULL ? slot->module : NULL;
}

int heed_module_entry_count(const heed_module *m) {
  return m != NULL ? m->count : 0;
}

bool heed_module_entry(const heed_module *m, int i, heed_entry *out) {
  if (m == NULL || out == NULL || i < 1 || i > m->count) return false;
  const heed__slot *slot = &m->slots[i - 1];
  *out = (heed_entry){slot->name, slot->kind, slot->parameter, slot->module};
  return true;
}

static heed_status find_slot(const heed_module *m, const char *name, heed_entry_kind kind, const void *value,
                             heed__slot **out) {
  const char *what = kind == HEED_ENTRY_PARAMETER ? "parameter" : "module";
  heed__slot *slot = name != NULL ? heed__module_slot(m, name) : NULL;
  if (slot == NULL || slot->kind != kind) {
    return heed__fail(m->context, HEED_ARGUMENT, "%s: it has no %s named '%s'", m->class->name, what,
                      name != NULL ? name : "NULL");
  }
  if (value == NULL) {
    return heed__fail(m->context, HEED_ARGUMENT, "%s: the %s for %s is missing (NULL)", m->class->name, what,
                      name);
  }
  *out = slot;
  return HEED_OK;
}

/* Whether the module works with a parameter of that dtype. One that is int8 stays so, as long as there are
 * scales for it. */
static bool takes_dtype(const heed_module *m, const char *name, heed_dtype dtype) {
  if (heed__module_slot(m, name)->parameter->dtype == HEED_INT8) return dtype == HEED_INT8;
  if (dtype != HEED_BFLOAT16 && dtype != HEED_FLOAT16) return dtype == HEED_FLOAT32;
  return m->class->storable != NULL && strcmp(m->class->storable, name) == 0;
}

heed_status heed__module_check_parameter(const heed_module *m, const char *name, const heed_tensor *value) {
  heed__slot *slot = NULL;
  heed_status status = find_slot(m, name, HEED_ENTRY_PARAMETER, value, &slot);
  if (status != HEED_OK) return status;
  if (!takes_dtype(m, name, value->dtype)) {
    if (slot->parameter->dtype == HEED_INT8)
      return heed__fail(m->context, HEED_DTYPE, "%s: %s is %s; it must be int8, as it has scales",
                        m->class->name, name, heed_dtype_name(value->dtype));
    if (!takes_dtype(m, name, HEED_BFLOAT16))
      return heed__check_dtype(m->context, m->class->name, name, value, HEED_FLOAT32);
    return heed__fail(m->context, HEED_DTYPE, "%s: %s is %s; it must be float32, bfloat16 or float16",
                      m->class->name, name, heed_dtype_name(value->dtype));
  }
  const heed_tensor *old = slot->parameter;
  if (value->ndim != old->ndim ||
      memcmp(value->shape, old->shape, (size_t)old->ndim * sizeof *old->shape) != 0) {
    char is[HEED__SHAPE_TEXT], must[HEED__SHAPE_TEXT];
    return heed__fail(m->context, HEED_SHAPE, "%s: %s is %s; it must be %s", m->class->name, name,
                      heed__shape_text(is, value->ndim, value->shape),
                      heed__shape_text(must, old->ndim, old->shape));
  }
  return HEED_OK;
}

void heed__module_swap_parameter(heed_module *m, const char *name, heed_tensor **value) {
  heed__slot *slot = heed__module_slot(m, name);
  heed_tensor *old = slot->parameter;
  slot->parameter = *value;
  heed_tensor_set_parameter(slot->parameter, true);
  *value = old;
}

heed_status heed_module_set_parameter(heed_module *m, const char *name, const heed_tensor *value) {
  HEED__ENTER(heed_module_context(m), m->class->name, name, value);
  heed_tensor *shared = NULL;
  heed_status status = heed__module_check_parameter(m, name, value);
  if (status == HEED_OK) status = heed__tensor_from_view(m->context, m->class->name, value, &shared);
  if (status != HEED_OK) return status;
  heed__module_swap_parameter(m, name, &shared);
  heed_tensor_free(shared);
  return HEED_OK;
}

static int64_t setting_integer(const heed_module *m, const heed__setting *setting) {
  int64_t value;
  memcpy(&value, (const char *)m + setting->offset, sizeof value);
  return value;
}

static const heed__sizes *sizes_at(const heed_module *m, const heed__setting *setting) {
  return (const heed__sizes *)(const void *)((const char *)m + setting->offset);
}

static heed_status check_same_sizes(const char *function, const char *name, const heed_module *m,
                                    const heed_module *old, const heed__setting *s) {
  const heed__sizes *have = sizes_at(m, s), *need = sizes_at(old, s);
  char have_text[HEED__SHAPE_TEXT], need_text[HEED__SHAPE_TEXT];
  if (heed__same_shape(have->count, have->size, need->count, need->size)) return HEED_OK;
  return heed__fail(old->context, HEED_ARGUMENT, "%s: %s has %s = %s; it must be %s", function, name, s->name,
                    heed__shape_text(have_text, have->count, have->size),
                    heed__shape_text(need_text, need->count, need->size));
}

/* Modules that are entries have either parameters or modules for their own. */
static int count_parts(const heed_module *m) {
  return m->count > 0 && m->slots[0].module != NULL ? m->count : 0;
}

/* Whether m can stand where old does: the same class with the same sizes, and so all the way down. `name` is
 * m's in its parent, for messages that begin with `function`. */
static heed_status check_like(const char *function, const char *name, const heed_module *m,
                              const heed_module *old) {
  heed_context *ctx = old->context;
  if (m->class != old->class) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is a module of class %s; it must be a %s", function, name,
                      m->class->name, old->class->name);
  }
  for (const heed__setting *s = m->class->settings; s != NULL && s->name != NULL; s++) {
    if (s->kind == HEED__SETTING_SIZES) {
      heed_status status = check_same_sizes(function, name, m, old, s);
      if (status != HEED_OK) return status;
    }
    if (s->kind != HEED__SETTING_INTEGER || setting_integer(m, s) == setting_integer(old, s)) continue;
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %s has %s = %lld; it must be %lld", function, name, s->name,
                      (long long)setting_integer(m, s), (long long)setting_integer(old, s));
  }
  const int parts = count_parts(m), wanted = count_parts(old);
  if (parts != wanted) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %s has %d %s; it must have %d", function, name, parts,
                      parts == 1 ? "entry" : "entries", wanted);
  }
  for (int i = 0; i < wanted; i++) {
    heed_status status = check_like(function, old->slots[i].name, m->slots[i].module, old->slots[i].module);
    if (status != HEED_OK) return status;
  }
  return HEED_OK;
}

heed_status heed_module_set_module(heed_module *m, const char *name, heed_module *value) {
  HEED__ENTER(heed_module_context(m), m->class->name, name, value);
  heed__slot *slot = NULL;
  heed_status status = find_slot(m, name, HEED_ENTRY_MODULE, value, &slot);
  if (status != HEED_OK) return status;
  if ((status = check_like(m->class->name, name, value, slot->module)) != HEED_OK) return status;
  heed_module *old = slot->module;
  slot->module = heed_module_retain(value);
  heed_module_release(old);
  return HEED_OK;
}

/* ---- Asking ---- */

static bool read_setting(const heed_module *m, const heed__setting *s, heed_scalar *out) {
  const char *place = (const char *)m + s->offset;
  double number = 0;
  bool boolean = false;
  switch (s->kind) {
  case HEED__SETTING_INTEGER:
  case HEED__SETTING_INDEX: *out = heed_integer(setting_integer(m, s)); break;
  case HEED__SETTING_NUMBER:
  case HEED__SETTING_POSITIVE: memcpy(&number, place, sizeof number), *out = heed_number(number); break;
  case HEED__SETTING_BOOLEAN: memcpy(&boolean, place, sizeof boolean), *out = heed_boolean(boolean); break;
  case HEED__SETTING_SIZES: return false; /* heed__module_sizes */
  }
  return (s->kind != HEED__SETTING_INDEX || out->as.integer > 0) &&
         (s->kind != HEED__SETTING_POSITIVE || number >= 0);
}

bool heed_module_setting(const heed_module *m, const char *name, heed_scalar *out) {
  if (m == NULL || name == NULL || out == NULL) return false;
  for (const heed__setting *s = m->class->settings; s != NULL && s->name != NULL; s++) {
    if (strcmp(s->name, name) == 0) return read_setting(m, s, out);
  }
  return false;
}

const heed__sizes *heed__module_sizes(const heed_module *m, const char *name) {
  for (const heed__setting *s = m->class->settings; s != NULL && s->name != NULL; s++) {
    if (s->kind == HEED__SETTING_SIZES && strcmp(s->name, name) == 0) return sizes_at(m, s);
  }
  return NULL;
}

void heed_module_describe(const heed_module *m, char *text, size_t size) {
  if (text == NULL || size == 0) return;
  text[0] = '\0';
  if (m != NULL && m->class->describe != NULL) m->class->describe(m, text, size);
}

/* ---- Forward ---- */

static heed_status refuse(const heed_module *m, const char *option) {
  return heed__fail(m->context, HEED_ARGUMENT, "%s: it takes no %s, which is for attention modules",
                    m->class->name, option);
}

static heed_status refuse_keys(const heed_module *m, const heed_forward_options *options) {
  const char *option = options->key != NULL ? "key" : options->value != NULL ? "value" : "cache";
  return heed__fail(m->context, HEED_ARGUMENT, "%s: it takes no %s, which is for MultiHeadAttention",
                    m->class->name, option);
}

/* In full. */
static heed_status check_forward_options(const heed_module *m, const heed_forward_options *options,
                                         bool wants_taps) {
  HEED__MAY_ENTER(m->context, m->class->name, options->attn_mask, options->key_padding_mask,
                  options->generator, options->kv_lengths, options->key, options->value, options->cache);
  if (!m->class->attends) {
    if (options->attn_mask != NULL) return refuse(m, "attn_mask");
    if (options->key_padding_mask != NULL) return refuse(m, "key_padding_mask");
    if (options->kv_lengths != NULL) return refuse(m, "kv_lengths");
    if (wants_taps) return refuse(m, "need_weights");
  }
  if (!m->class->takes_keys && (options->key != NULL || options->value != NULL || options->cache != NULL))
    return refuse_keys(m, options);
  return HEED_OK;
}

heed_status heed__module_read_options(const heed_module *m, const heed_forward_options **options,
                                      heed_forward_options *own, bool wants_taps) {
  static const heed_forward_options none = {.size = sizeof none};
  const heed_forward_options *given = *options != NULL ? *options : &none;
  if (given->size != sizeof *own) {
    *own = none;
    heed_status status = heed__struct_read(m->context, m->class->name, "options", "heed_forward_options",
                                           given, own, sizeof *own);
    if (status != HEED_OK) return status;
    given = own;
  }
  return check_forward_options(m, *options = given, wants_taps);
}

heed_status heed_module_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                heed_tensor **out, heed_attention_taps *taps) {
  heed_forward_options own;
  heed_context *ctx = heed_module_context(m);
  HEED__ENTER(ctx, m->class->name, x, out);
  heed_status status = heed__module_read_options(m, &options, &own, taps != NULL);
  if (status != HEED_OK) return status;
  if (taps == NULL) return m->class->forward(m, x, options, out, NULL);
  status = heed__struct_check(ctx, m->class->name, "taps", "heed_attention_taps", taps);
  if (status != HEED_OK) return status;
  heed_attention_taps found = {.size = sizeof found};
  status = m->class->forward(m, x, options, out, &found);
  if (status == HEED_OK) heed__struct_move(taps, &found, sizeof found);
  heed_attention_taps_free(&found);
  return status;
}
