/* A module's key/value cache: what its settings say about the storage, and whether a given cache fits it. */
#include "../nn.h"

#include <stdio.h>
#include <string.h>

#define FUNCTION "new_cache"

/* Keys before its own that a query sees; -1: all, as with a window that is as wide as the context. */
static int64_t window_left_of(const heed__attention_module *a) {
  return a->window.has_left && a->window.left < a->context_length ? a->window.left : -1;
}

static heed_status check_prefix(const heed__attention_module *a, const heed_kv_cache_config *c,
                                int64_t window_left) {
  const heed_kv_cache *prefix = c->prefix;
  heed_context *ctx = a->base.context;
  HEED__MAY_ENTER(ctx, FUNCTION, prefix);
  if (prefix->num_kv_heads != a->num_kv_heads || prefix->head_dim != a->head_dim)
    return heed__fail(ctx, HEED_ARGUMENT,
                      FUNCTION ": prefix has num_kv_heads %lld and head_dim %lld; they must be %lld and %lld",
                      (long long)prefix->num_kv_heads, (long long)prefix->head_dim,
                      (long long)a->num_kv_heads, (long long)a->head_dim);
  if (prefix->window_left != window_left)
    return heed__fail(ctx, HEED_ARGUMENT,
                      FUNCTION ": prefix is for a window with left %lld; it must be that of the module, %lld "
                               "(-1: none)",
                      (long long)prefix->window_left, (long long)window_left);
  if (prefix->batch != 1)
    return heed__fail(ctx, HEED_SHAPE, FUNCTION ": prefix has a batch of %lld; it must be 1",
                      (long long)prefix->batch);
  if (prefix->dtype != c->dtype || prefix->int4 != (c->bits == 4))
    return heed__fail(ctx, HEED_DTYPE, FUNCTION ": prefix is %s; it must be %s, the dtype of the cache",
                      prefix->int4 ? "int4" : heed_dtype_name(prefix->dtype),
                      c->bits == 4 ? "int4" : heed_dtype_name(c->dtype));
  if (c->capacity > 0 && prefix->length > c->capacity)
    return heed__fail(ctx, HEED_SHAPE,
                      FUNCTION ": prefix has %lld tokens; it must have at most %lld, the capacity",
                      (long long)prefix->length, (long long)c->capacity);
  return HEED_OK;
}

heed_status heed_kv_cache_new(heed_module *m, const heed_kv_cache_config *config, heed_kv_cache **out) {
  heed_kv_cache_config c;
  heed_status status;
  heed_context *ctx = heed_module_context(m);
  HEED__ENTER(ctx, FUNCTION, out);
  heed_kv_cache_config_init(&c, sizeof c);
  if (config != NULL) {
    status = heed__struct_read(ctx, FUNCTION, "config", "heed_kv_cache_config", config, &c, sizeof c);
    if (status != HEED_OK) return status;
  }
  if (!m->class->takes_keys) {
    return heed__fail(ctx, HEED_ARGUMENT, FUNCTION ": the module is a %s; it must be a MultiHeadAttention",
                      m->class->name);
  }
  const heed__attention_module *a = (const heed__attention_module *)m;
  if (c.batch == 0) c.batch = 1;
  if ((status = heed__check_positive(ctx, FUNCTION, "batch", c.batch)) != HEED_OK) return status;
  if (c.capacity != 0 && (status = heed__check_positive(ctx, FUNCTION, "capacity", c.capacity)) != HEED_OK)
    return status;
  if ((status = heed__check_stored(ctx, FUNCTION, c.dtype)) != HEED_OK) return status;
  if (c.bits != 0 && (c.bits != 4 || c.dtype != HEED_INT8))
    return heed__fail(ctx, HEED_ARGUMENT, FUNCTION ": bits is %lld with %s; it must be 0, or 4 with int8",
                      (long long)c.bits, heed_dtype_name(c.dtype));
  const int64_t window_left = window_left_of(a);
  if (window_left < 0 && c.capacity == 0) c.capacity = a->context_length;
  if (c.prefix != NULL && (status = check_prefix(a, &c, window_left)) != HEED_OK) return status;
  heed_kv_cache *made = NULL;
  status = heed__kv_cache_new(ctx, FUNCTION, &c, a->num_kv_heads, a->head_dim, window_left, &made);
  if (status == HEED_OK && c.prefix != NULL) status = heed__kv_cache_set_prefix(made, FUNCTION, c.prefix);
  if (status == HEED_OK)
    *out = made;
  else
    heed_kv_cache_free(made);
  return status;
}

static heed_status fail_window(const heed_module *m, int64_t cached, int64_t left) {
  return heed__fail(
      m->context, HEED_ARGUMENT,
      "%s: the cache is for a window with left %lld; it must be that of the module, %lld (-1: none)",
      m->class->name, (long long)cached, (long long)left);
}

/* item: -1, if all have the same length. */
static heed_status fail_full(const heed_module *m, const heed_kv_cache *cache, int64_t item, int64_t added,
                             int64_t most, const char *limit) {
  char which[48] = "the cache", whose[48] = "";
  const int64_t length = cache->lengths[heed__max(item, 0)];
  if (item >= 0) {
    snprintf(which, sizeof which, "item %lld of the cache", (long long)item + 1);
    snprintf(whose, sizeof whose, " for it");
  }
  return heed__fail(m->context, HEED_SHAPE,
                    "%s: %s has %lld token%s and x has %lld%s; together they must be at most %lld, the %s",
                    m->class->name, which, (long long)length, HEED__S(length), (long long)added, whose,
                    (long long)most, limit);
}

heed_status heed__module_check_cache(const heed_module *m, const heed_kv_cache *cache, int64_t batch,
                                     int64_t added, const int64_t *added_each) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  const char *name = m->class->name;
  const int64_t window_left = window_left_of(a);
  if (cache->num_kv_heads != a->num_kv_heads || cache->head_dim != a->head_dim) {
    return heed__fail(m->context, HEED_ARGUMENT,
                      "%s: the cache has num_kv_heads %lld and head_dim %lld; they must be %lld and %lld",
                      name, (long long)cache->num_kv_heads, (long long)cache->head_dim,
                      (long long)a->num_kv_heads, (long long)a->head_dim);
  }
  if (cache->window_left != window_left) return fail_window(m, cache->window_left, window_left);
  if (cache->batch != batch) {
    return heed__fail(m->context, HEED_SHAPE, "%s: the cache has a batch of %lld; it must be %lld, that of x",
                      name, (long long)cache->batch, (long long)batch);
  }
  const bool even = added_each == NULL && heed__kv_cache_is_even(cache);
  for (int64_t i = 0; i < (even ? 1 : batch); i++) {
    const int64_t length = cache->lengths[i], item = even ? -1 : i;
    if (added_each != NULL) added = added_each[i];
    if (cache->capacity > 0 && added > cache->capacity - length)
      return fail_full(m, cache, item, added, cache->capacity, "capacity");
    if (window_left < 0 && added > a->context_length - length)
      return fail_full(m, cache, item, added, a->context_length, "context_length");
  }
  return HEED_OK;
}

/* ---- What keys and values depend on ---- */

int64_t heed__module_cache_window(const heed_module *m) {
  return window_left_of((const heed__attention_module *)m);
}

static void describe_positions(const heed__attention_module *a, char *text, size_t size) {
  const heed_rope_config *r = &a->rope;
  if (!a->rotary) {
    snprintf(text, size, "%s", a->alibi ? "alibi" : "none");
    return;
  }
  const long long dims = r->dims > 0 ? r->dims : a->head_dim;
  if (r->scaling == HEED_ROPE_FACTORS) {
    double sum = 0, weighted = 0; /* tell lists apart */
    for (int i = 0; i < HEED_ROPE_PAIRS; i++) sum += r->factors[i], weighted += (double)r->factors[i] * i;
    snprintf(text, size, "rope base=%s interleaved=%d dims=%lld factors=%s,%s attention_factor=%s",
             HEED__G(r->base), (int)r->interleaved, dims, HEED__G(sum), HEED__G(weighted),
             HEED__G(r->attention_factor));
    return;
  }
  snprintf(text, size,
           "rope base=%s interleaved=%d dims=%lld scaling=%d factor=%s original=%lld beta=%s,%s "
           "attention_factor=%s freq_factors=%s,%s",
           HEED__G(r->base), (int)r->interleaved, dims, (int)r->scaling, HEED__G(r->factor),
           (long long)r->original_context_length, HEED__G(r->beta_fast), HEED__G(r->beta_slow),
           HEED__G(r->attention_factor), HEED__G(r->low_freq_factor), HEED__G(r->high_freq_factor));
}

void heed__module_cache_origin(const heed_module *m, heed__kv_origin *origin) {
  static const char *const parts[] = {"W_key", "W_value", "k_norm"};
  memset(origin, 0, sizeof *origin);
  describe_positions((const heed__attention_module *)m, origin->positions, sizeof origin->positions);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const heed_module *part = heed__module_part(m, parts[i]);
    const heed__slot *scale = part != NULL ? heed__module_slot(part, HEED__SCALE) : NULL;
    for (int k = 0; part != NULL && k < part->count && origin->samples < HEED__KV_SAMPLES; k++) {
      const heed_tensor *x = part->slots[k].parameter;
      if (x == NULL || &part->slots[k] == scale) continue;
      heed__sample_parameter(x, x->dtype == HEED_INT8 && scale != NULL ? scale->parameter : NULL,
                             origin->sample[origin->samples++]);
    }
  }
}
