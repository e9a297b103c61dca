/* The entries of a module: parameters and parts by name, and replacing them. */
#include "nn.h"

#include <assert.h>
#include <string.h>

/* ---- Adding and finding ---- */

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
  heed__slot *slot = heed__module_slot(m, after) + 1, *last = &m->slots[m->count - 1], added = *last;
  for (; last > slot; last--) last[0] = last[-1];
  *slot = added;
}

void heed__module_take_parameter(heed_module *m, const char *name, heed_tensor **value) {
  heed__slot *slot = heed__module_slot(m, name), *end = &m->slots[--m->count];
  *value = slot->parameter;
  for (; slot < end; slot++) slot[0] = slot[1];
}

void heed__module_add_module(heed_module *m, const char *name, heed_module *module) {
  add_slot(m, name, HEED_ENTRY_MODULE)->module = module;
  module->is_part = true;
}

/* The entry of a list by its number; NULL if there is none. Lists may be long, so this avoids a search. */
static heed__slot *numbered_slot(const heed_module *m, const char *name) {
  int64_t i = 0;
  const char *p = name;
  for (; *p >= '0' && *p <= '9' && i < m->count; p++) i = 10 * i + (*p - '0');
  return p > name && i < m->count && strcmp(m->slots[i].name, name) == 0 ? &m->slots[i] : NULL;
}

heed__slot *heed__module_slot(const heed_module *m, const char *name) {
  heed__slot *numbered = numbered_slot(m, name);
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

/* ---- Replacing ---- */

static heed_status find_slot(const heed_module *m, const char *name, heed_entry_kind kind, const void *value,
                             heed__slot **out) {
  const char *what = kind == HEED_ENTRY_PARAMETER ? "parameter" : "module";
  heed__slot *slot = name != NULL ? heed__module_slot(m, name) : NULL;
  if (slot == NULL || slot->kind != kind) {
    return heed__fail(m->context, HEED_ARGUMENT,
                      "%s: name is \'%s\'; it must be the name of a %s of the module", m->class->name,
                      name != NULL ? name : "NULL", what);
  }
  if (value == NULL) {
    return heed__fail(m->context, HEED_ARGUMENT, "%s: the %s for %s is missing (NULL)", m->class->name, what,
                      name);
  }
  *out = slot;
  return HEED_OK;
}

/* Whether the parameter may have that dtype. An int8 weight must stay int8 while it has scales. */
static bool takes_dtype(const heed_module *m, const char *name, heed_dtype dtype) {
  if (heed__module_slot(m, name)->parameter->dtype == HEED_INT8) return dtype == HEED_INT8;
  if (dtype != HEED_BFLOAT16 && dtype != HEED_FLOAT16 && !heed__is_blocked(dtype))
    return dtype == HEED_FLOAT32;
  return m->class->storable != NULL && strcmp(m->class->storable, name) == 0;
}

static heed_status check_parameter_dtype(const heed_module *m, const char *name, const heed_tensor *value) {
  heed__slot *slot = NULL;
  heed_status status = find_slot(m, name, HEED_ENTRY_PARAMETER, value, &slot);
  if (status != HEED_OK || takes_dtype(m, name, value->dtype)) return status;
  if (slot->parameter->dtype == HEED_INT8)
    return heed__fail(m->context, HEED_DTYPE, "%s: %s is %s; it must be int8, as it has scales",
                      m->class->name, name, heed_dtype_name(value->dtype));
  if (!takes_dtype(m, name, HEED_BFLOAT16))
    return heed__check_dtype(m->context, m->class->name, name, value, HEED_FLOAT32);
  return heed__fail(m->context, HEED_DTYPE, "%s: %s is %s; it must be float32, bfloat16 or float16",
                    m->class->name, name, heed_dtype_name(value->dtype));
}

static heed_status check_parameter_shape(const heed_module *m, const char *name, const heed_tensor *value) {
  const heed_tensor *old = heed__module_slot(m, name)->parameter;
  char is[HEED__SHAPE_TEXT], must[HEED__SHAPE_TEXT];
  if (heed__same_shape(value->ndim, value->shape, old->ndim, old->shape)) return HEED_OK;
  return heed__fail(
      m->context, HEED_SHAPE, "%s: %s is %s; it must be %s%s", m->class->name, name,
      heed__shape_text(is, value->ndim, value->shape), heed__shape_text(must, old->ndim, old->shape),
      m->class->resize != NULL && m->is_part ? ", since the module is a part of a built-in one" : "");
}

heed_status heed__module_check_parameter(const heed_module *m, const char *name, const heed_tensor *value) {
  const heed_status status = check_parameter_dtype(m, name, value);
  return status == HEED_OK ? check_parameter_shape(m, name, value) : status;
}

/* Whether the module may take that value's sizes. */
static bool is_resized(const heed_module *m, const char *name, const heed_tensor *value) {
  const heed_tensor *old = heed__module_slot(m, name)->parameter;
  return m->class->resize != NULL && !m->is_part && strcmp(name, HEED__WEIGHT) == 0 &&
         value->dtype != HEED_INT8 && value->ndim == 2 && value->shape[0] > 0 && value->shape[1] > 0 &&
         !heed__same_shape(value->ndim, value->shape, old->ndim, old->shape);
}

void heed__module_swap_parameter(heed_module *m, const char *name, heed_tensor **value) {
  heed__slot *slot = heed__module_slot(m, name);
  heed_tensor *old = slot->parameter;
  slot->parameter = *value;
  heed_tensor_set_parameter(slot->parameter, true);
  *value = old;
}

heed_status heed_module_set_parameter(heed_module *m, const char *name, const heed_tensor *value) {
  HEED__ENTER(heed_module_context(m), m->class->name, name);
  HEED__ENTER_BLOCKED(m->context, m->class->name, value);
  heed_tensor *shared = NULL;
  heed_status status = check_parameter_dtype(m, name, value);
  if (status == HEED_OK) status = heed__tensor_from_view(m->context, m->class->name, value, &shared);
  if (status != HEED_OK) return status;
  status = is_resized(m, name, value) ? m->class->resize(m, value) : check_parameter_shape(m, name, value);
  if (status != HEED_OK) {
    heed_tensor_free(shared);
    return status;
  }
  heed__module_swap_parameter(m, name, &shared);
  heed_tensor_free(shared);
  return HEED_OK;
}

static heed_status check_same_sizes(const char *function, const char *name, const heed_module *m,
                                    const heed_module *old, const heed__setting *s) {
  const heed__sizes *have = heed__setting_sizes(m, s), *need = heed__setting_sizes(old, s);
  char have_text[HEED__SHAPE_TEXT], need_text[HEED__SHAPE_TEXT];
  if (heed__same_shape(have->count, have->size, need->count, need->size)) return HEED_OK;
  return heed__fail(old->context, HEED_ARGUMENT, "%s: %s has %s = %s; it must be %s", function, name, s->name,
                    heed__shape_text(have_text, have->count, have->size),
                    heed__shape_text(need_text, need->count, need->size));
}

/* A part has either parameters or parts of its own, not both. */
static int count_parts(const heed_module *m) {
  return m->count > 0 && m->slots[0].module != NULL ? m->count : 0;
}

/* Whether m can replace old: the same class and sizes, and likewise all their parts. `name` is the entry's
 * name, for messages that begin with `function`. */
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
    if (s->kind != HEED__SETTING_INTEGER || heed__setting_integer(m, s) == heed__setting_integer(old, s))
      continue;
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %s has %s = %lld; it must be %lld", function, name, s->name,
                      (long long)heed__setting_integer(m, s), (long long)heed__setting_integer(old, s));
  }
  if (m->class->staged)
    return HEED_OK; /* its settings determine the sizes of its parts, which may be of any class */
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

/* Own parts have no parts in C, so that the depth of nesting stays fixed. */
static heed_status check_own(const heed_module *m, const char *name, const heed_module *value) {
  if (count_parts(value) == 0) return heed__attention_check_part(m, name, value);
  return heed__fail(
      m->context, HEED_ARGUMENT,
      "%s: %s is a module of class %s, which has parts; it must be a module without: wrap it in a "
      "module of your own, such as nn.Sequential",
      m->class->name, name, value->class->name);
}

heed_status heed_module_set_module(heed_module *m, const char *name, heed_module *value) {
  HEED__ENTER(heed_module_context(m), m->class->name, name, value);
  heed__slot *slot = NULL;
  heed_status status = find_slot(m, name, HEED_ENTRY_MODULE, value, &slot);
  if (status != HEED_OK) return status;
  const bool any = heed__takes_own(m, name);
  status = any ? check_own(m, name, value) : check_like(m->class->name, name, value, slot->module);
  if (status != HEED_OK) return status;
  heed_module *old = slot->module;
  slot->module = heed_module_retain(value);
  value->is_part = true;
  if (any) heed__count_own(m);
  heed_module_release(old);
  return HEED_OK;
}
