/* Checks of an attention module's inputs: tokens, cross attention, a cache and the masks over its keys. */
#include "stages.h"

/* ---- Tokens ---- */

/* Packed sequences x [total, d]. */
static heed_status check_packed_tokens(const heed_module *m, const char *argument, const heed_tensor *x,
                                       const char *lengths_argument, const heed_tensor *lengths) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  const char *name = m->class->name;
  heed__lengths read;
  if (x->ndim != 2) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(m->context, HEED_SHAPE, "%s: %s is %s and %s are given; it must be [total, %lld]", name,
                      argument, heed__shape_text(text, x->ndim, x->shape), lengths_argument,
                      (long long)x->shape[x->ndim - 1]);
  }
  heed_status status = heed__read_lengths(m->context, name, lengths_argument, lengths, INT64_MAX, &read);
  if (status == HEED_OK)
    status = heed__check_total(m->context, name, lengths_argument, &read, argument, x, 0);
  if (status == HEED_OK && a->context_length > 0 && read.longest > a->context_length) {
    return heed__fail(m->context, HEED_SHAPE,
                      "%s: a sequence of %s has %lld tokens; it must have at most %lld, the context_length",
                      name, argument, (long long)read.longest, (long long)a->context_length);
  }
  return status;
}

/* lengths: NULL unless sequences are packed. */
static heed_status check_tokens(const heed_module *m, const char *argument, const char *setting, int64_t d,
                                const heed_tensor *x, const char *lengths_argument,
                                const heed_tensor *lengths) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  const char *name = m->class->name;
  heed_status status = heed__check_dtype(m->context, name, argument, x, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  if ((x->ndim != 2 && x->ndim != 3) || x->shape[x->ndim - 1] != d) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(m->context, HEED_SHAPE,
                      "%s: %s is %s; it must be [n, %lld] or [b, n, %lld], since %s is %lld", name, argument,
                      heed__shape_text(text, x->ndim, x->shape), (long long)d, (long long)d, setting,
                      (long long)d);
  }
  const int64_t n = x->shape[x->ndim - 2];
  if (lengths != NULL) return check_packed_tokens(m, argument, x, lengths_argument, lengths);
  if (a->context_length > 0 && n > a->context_length) {
    return heed__fail(m->context, HEED_SHAPE,
                      "%s: %s has %lld tokens; it must have at most %lld, the context_length", name, argument,
                      (long long)n, (long long)a->context_length);
  }
  return HEED_OK;
}

heed_status heed__attention_check_input(const heed_module *m, const heed_tensor *x,
                                        const heed_forward_options *options) {
  return check_tokens(m, "x", "d_in", ((const heed__attention_module *)m)->d_in, x, "lengths",
                      options->lengths);
}

/* The options that lengths exclude or need. */
static heed_status check_packed_options(const heed_module *m, const heed_forward_options *o) {
  const char *name = m->class->name;
  if (o->lengths == NULL && o->key_lengths != NULL)
    return heed__fail(m->context, HEED_ARGUMENT, "%s: key_lengths are given without lengths; give both",
                      name);
  if (o->lengths == NULL) return HEED_OK;
  if ((o->key != NULL) != (o->key_lengths != NULL))
    return heed__fail(m->context, HEED_ARGUMENT, "%s: lengths and %s are given without %s; give both", name,
                      o->key != NULL ? "key" : "key_lengths", o->key != NULL ? "key_lengths" : "key");
  const char *other = o->kv_lengths != NULL         ? "kv_lengths"
                      : o->key_padding_mask != NULL ? "key_padding_mask"
                                                    : NULL;
  if (other == NULL) return HEED_OK;
  return heed__fail(m->context, HEED_ARGUMENT,
                    "%s: lengths and %s are given; give only one of them, because packed sequences have no "
                    "padding",
                    name, other);
}

static heed_status check_without_key(const heed__attention_stages *p) {
  const heed__attention_module *a = (const heed__attention_module *)p->m;
  const char *name = p->m->class->name;
  if (p->options.value != NULL)
    return heed__fail(p->m->context, HEED_ARGUMENT, "%s: value is given without key; give key as well", name);
  if (a->kdim == a->d_in && a->vdim == a->d_in) return HEED_OK;
  return heed__fail(p->m->context, HEED_ARGUMENT,
                    "%s: key is missing; it must be given, since d_in is %lld, kdim %lld and vdim %lld", name,
                    (long long)a->d_in, (long long)a->kdim, (long long)a->vdim);
}

heed_status heed__stages_choose_tokens(heed__attention_stages *p, const heed_tensor *x) {
  const heed_module *m = p->m;
  const heed__attention_module *a = (const heed__attention_module *)m;
  const char *name = m->class->name;
  const heed_tensor *key = p->options.key, *value = p->options.value;
  heed_status status = check_packed_options(m, &p->options);
  if (status == HEED_OK) status = heed__attention_check_input(m, x, &p->options);
  if (status != HEED_OK) return status;
  p->from[0] = p->from[1] = p->from[2] = x;
  if (key == NULL) return check_without_key(p);
  if (p->options.cache != NULL)
    return heed__fail(
        m->context, HEED_ARGUMENT,
        "%s: key and cache are given; give only one of them, because a cache holds the keys of x", name);
  if (value == NULL && a->vdim != a->kdim) {
    return heed__fail(m->context, HEED_ARGUMENT,
                      "%s: value is missing; it must be given, since kdim is %lld and vdim %lld", name,
                      (long long)a->kdim, (long long)a->vdim);
  }
  p->from[1] = key;
  p->from[2] = value = value != NULL ? value : key;
  status = check_tokens(m, "key", "kdim", a->kdim, key, "key_lengths", p->options.key_lengths);
  if (status != HEED_OK) return status;
  if (x->ndim != key->ndim || (x->ndim == 3 && x->shape[0] != key->shape[0]))
    return heed__fail_pair(m->context, name, "x", x, "key", key, "their sizes of the batch must be equal");
  status = check_tokens(m, "value", "vdim", a->vdim, value, "key_lengths", p->options.key_lengths);
  if (status != HEED_OK) return status;
  if (!heed__same_shape(key->ndim - 1, key->shape, value->ndim - 1, value->shape))
    return heed__fail_pair(m->context, name, "key", key, "value", value,
                           "their sizes but the last must be equal");
  return HEED_OK;
}

/* ---- Positions ---- */

static heed_status new_positions(heed_context *ctx, const char *function, const heed_tensor *lengths,
                                 int64_t total, heed_tensor **out) {
  const heed_status status = heed__tensor_new(ctx, function, HEED_INT64, 1, &total, out);
  if (status != HEED_OK) return status;
  int64_t *next = (int64_t *)(void *)(*out)->data;
  for (int64_t i = 0; i < lengths->shape[0]; i++)
    for (int64_t n = 1; n <= heed__int64_at(lengths, i); n++) *next++ = n;
  return HEED_OK;
}

heed_status heed__stages_make_positions(heed__attention_stages *p) {
  const heed_tensor *lengths[] = {p->options.lengths, p->options.key != NULL ? p->options.key_lengths : NULL};
  heed_status status = HEED_OK;
  if (p->options.cache != NULL || !p->rotary) return HEED_OK;
  for (int i = 0; i < 2 && status == HEED_OK; i++)
    if (lengths[i] != NULL)
      status =
          new_positions(p->m->context, p->m->class->name, lengths[i], p->from[i]->shape[0], &p->positions[i]);
  return status;
}

const heed_tensor *heed__stages_positions(const heed__attention_stages *p, int which) {
  return p->positions[which == 1 && p->options.key == NULL ? 0 : which];
}

/* ---- With a cache ---- */

heed_status heed__stages_check_cache(const heed__attention_stages *p, const heed_tensor *x) {
  if (p->options.cache == NULL) return HEED_OK;
  if (p->options.kv_lengths != NULL) {
    return heed__fail(p->m->context, HEED_ARGUMENT,
                      "%s: kv_lengths and cache are given; with a cache, use key_padding_mask to hide keys",
                      p->m->class->name);
  }
  const int64_t batch = x->ndim == 3 ? x->shape[0] : 1;
  return heed__module_check_cache(p->m, p->options.cache, p->added != NULL ? p->options.cache->batch : batch,
                                  x->shape[x->ndim - 2], p->added);
}

/* Replaces a mask [..., keys] by its part from key `skipped` on, in *view or *made, which the caller frees.
 * `shorter`: the mask may have fewer keys, and hides the rest. A last size of 1 applies to all keys. */
static heed_status skip_keys(const heed_module *m, const char *argument, bool shorter, int64_t skipped,
                             int64_t keys, const heed_tensor **mask, heed_tensor *view, heed_tensor **made) {
  const heed_tensor *whole = *mask;
  const int last = whole != NULL ? whole->ndim - 1 : -1;
  if (last < 0 || whole->shape[last] == 1) return HEED_OK;
  const int64_t size = whole->shape[last];
  if (shorter ? size > keys : size != keys) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(m->context, HEED_SHAPE,
                      "%s: %s is %s; its last size must be %s%lld, the number of keys in the cache and x",
                      m->class->name, argument, heed__shape_text(text, whole->ndim, whole->shape),
                      shorter ? "at most " : "", (long long)keys);
  }
  heed__alias_on_stack(view, whole);
  const int64_t seen = heed__max(size - skipped, 0);
  heed__narrow_on_stack(view, last, skipped, seen);
  *mask = view;
  if (seen == keys - skipped) return HEED_OK;

  /* Widened, because a mask cut to a single column would apply to all keys. */
  heed_status status = heed__widen_mask(m->context, m->class->name, view, keys - skipped, made);
  if (status == HEED_OK) *mask = *made;
  return status;
}

heed_status heed__stages_skip_keys(heed__attention_stages *p) {
  const int64_t skipped = p->ragged ? 0 : p->span.skipped, keys = p->span.past + p->span.added;
  p->operands.skipped_keys = skipped;
  if (p->span.length == keys || p->apart) return HEED_OK;
  const heed_tensor **masks[] = {&p->operands.options.attn_mask, &p->operands.key_padding_mask};
  heed_status status = skip_keys(p->m, "attn_mask", true, skipped, keys, masks[0], &p->mask[0], &p->made[0]);
  if (status == HEED_OK)
    status = skip_keys(p->m, "key_padding_mask", false, skipped, keys, masks[1], &p->mask[1], &p->made[1]);
  if (status != HEED_OK || !p->ragged) return status;
  for (int i = 0; i < 2; i++) { /* each item skips columns of its own */
    const heed_tensor *mask = *masks[i];
    if (mask == NULL || mask->ndim == 0 || mask->shape[mask->ndim - 1] == 1) continue;
    if (mask != &p->mask[i]) heed__alias_on_stack(&p->mask[i], mask);
    heed__narrow_on_stack(&p->mask[i], mask->ndim - 1, 0, p->span.length);
    *masks[i] = &p->mask[i];
  }
  return HEED_OK;
}
