/* What all modules share: reference counts, training mode, and the checks before a forward pass. */
#include "nn.h"

#include <limits.h>
#include <string.h>

/* ---- Creation and reference counts ---- */

#define CLEARED_BYTES ((size_t)1 << 18) /* between cancellation checks */

heed_status heed__module_new(heed_context *ctx, const heed__class *class, size_t bytes, int64_t capacity,
                             heed_module **out) {
  const bool fits = capacity <= HEED__MAX_ENTRIES;
  const size_t slot_bytes = fits ? 0 : heed__array_bytes((uint64_t)capacity, sizeof(heed__slot));
  if (capacity > INT_MAX) return heed__fail_memory(ctx, class->name, SIZE_MAX);
  heed_module *m = heed__allocate(ctx, bytes);
  if (m == NULL) return heed__fail_memory(ctx, class->name, bytes);
  for (size_t i = 0; i < bytes; i += CLEARED_BYTES) { /* large with the ALiBi slopes of many heads */
    memset((char *)m + i, 0, bytes - i < CLEARED_BYTES ? bytes - i : CLEARED_BYTES);
    const heed_status status = i > 0 && heed__is_due(&ctx->pace) ? heed__stopped(ctx, class->name) : HEED_OK;
    if (status != HEED_OK) {
      heed__release(ctx, m);
      return status;
    }
  }
  m->context = ctx;
  m->bytes = bytes;
  m->class = class;
  m->references = 1;
  m->training = true;
  m->capacity = fits ? HEED__MAX_ENTRIES : (int)capacity;
  m->slots = fits ? m->inside : heed__allocate(ctx, slot_bytes);
  if (m->slots == NULL) {
    heed__release(ctx, m);
    return heed__fail_memory(ctx, class->name, slot_bytes);
  }
  *out = m;
  return HEED_OK;
}

heed_module *heed_module_retain(heed_module *m) {
  if (m != NULL) m->references++;
  return m;
}

/* The depth of nesting is fixed by the classes, so the recursion here and below is bounded. */
void heed_module_release(heed_module *m) {
  if (m == NULL || --m->references > 0) return;
  heed__module_watch(m, -m->watched);
  if (m->class->release != NULL) m->class->release(m);
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

/* ---- Text ---- */

void heed_module_describe(const heed_module *m, char *text, size_t size) {
  if (text == NULL || size == 0) return;
  text[0] = '\0';
  if (m != NULL && m->class->describe != NULL) m->class->describe(m, text, size);
}

/* ---- Forward ---- */

static heed_status refuse(const heed_module *m, const char *option) {
  return heed__fail(m->context, HEED_ARGUMENT, "%s: %s is given; only attention modules take it",
                    m->class->name, option);
}

static heed_status refuse_keys(const heed_module *m, const heed_forward_options *options) {
  const char *option = options->key != NULL ? "key" : options->value != NULL ? "value" : "cache";
  return heed__fail(m->context, HEED_ARGUMENT, "%s: %s is given; only MultiHeadAttention takes it",
                    m->class->name, option);
}

/* options is of this library's version of the struct. */
static heed_status check_forward_options(const heed_module *m, const heed_forward_options *options,
                                         bool wants_taps) {
  HEED__MAY_ENTER(m->context, m->class->name, options->attn_mask, options->key_padding_mask,
                  options->generator, options->kv_lengths, options->key, options->value, options->cache);
  HEED__MAY_ENTER(m->context, m->class->name, options->mask, options->lengths, options->key_lengths);
  if (!m->class->attends) {
    if (options->attn_mask != NULL || options->mask != NULL) return refuse(m, "attn_mask");
    if (options->key_padding_mask != NULL) return refuse(m, "key_padding_mask");
    if (options->kv_lengths != NULL) return refuse(m, "kv_lengths");
    if (options->lengths != NULL) return refuse(m, "lengths");
    if (options->key_lengths != NULL) return refuse(m, "key_lengths");
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

/* Not in heed_module_forward, whose small calls would pay for the space on the stack. */
static __attribute__((noinline)) heed_status forward_with_taps(heed_module *m, const heed_tensor *x,
                                                               const heed_forward_options *options,
                                                               heed_tensor **out, heed_attention_taps *taps) {
  heed_context *ctx = m->context;
  heed_attention_taps found = {.size = sizeof found};
  heed_taps_wanted wanted;
  heed_forward_options read = *options;
  heed_status status = heed__struct_check(ctx, m->class->name, "taps", "heed_attention_taps", taps);
  if (status == HEED_OK) status = heed__wanted_read(ctx, m->class->name, &read.wanted, &wanted);
  if (status == HEED_OK) status = m->class->forward(m, x, &read, out, &found);
  if (status == HEED_OK) heed__struct_move(taps, &found, sizeof found);
  heed_attention_taps_free(&found);
  return status;
}

heed_status heed_module_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                heed_tensor **out, heed_attention_taps *taps) {
  heed_forward_options own;
  heed_context *ctx = heed_module_context(m);
  HEED__ENTER(ctx, m->class->name, x, out);
  heed_status status = heed__module_read_options(m, &options, &own, taps != NULL);
  if (status != HEED_OK) return status;
  if (taps != NULL) return forward_with_taps(m, x, options, out, taps);
  return m->class->forward(m, x, options, out, NULL);
}
