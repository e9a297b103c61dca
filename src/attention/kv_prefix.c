/* Beginnings that the items of a batch share: the rows of another cache, which are not copied. */
#include <string.h>

#include "kv_cache.h"

/* The first `rows` rows of a cache of batch 1, on the same memory. */
static heed_status share_prefix_rows(heed_kv_cache *c, const char *function, const heed_kv_cache *other,
                                     int64_t rows) {
  heed_status status = HEED_OK;
  for (int i = 0; i < HEED__KV_PARTS && status == HEED_OK; i++) {
    heed_tensor view;
    if (other->part[i] == NULL) continue;
    heed__alias_on_stack(&view, other->part[i]);
    heed__narrow_on_stack(&view, 2, 0, rows);
    status = heed__tensor_from_view(c->context, function, &view, &c->prefix_part[i]);
  }
  return status;
}

/* A copy of those rows, preceded by the prefix that `other` has itself. */
static heed_status join_rows_of(heed_kv_cache *c, const char *function, const heed_kv_cache *other) {
  heed_kv_cache like = *other;
  heed_tensor *const *own = other->part;
  like.batch = 1;
  heed_status status = heed__kv_charge_rows(other, function, (double)other->length);
  if (status == HEED_OK) status = heed__kv_new_parts(&like, function, other->length, false, c->prefix_part);
  if (status != HEED_OK) return status;
  const heed__pace *pace = &c->context->pace;
  const bool whole =
      heed__kv_copy_rows(pace, c->prefix_part, 0, 0, other->prefix_part, 0, 0, other->prefix) &&
      heed__kv_copy_rows(pace, c->prefix_part, other->prefix, 0, own, 0, 0, other->length - other->prefix);
  return whole ? HEED_OK : heed__stopped(c->context, function);
}

/* With a window few rows are kept, and each item has a copy. */
static heed_status copy_window(heed_kv_cache *c, const char *function, const heed_kv_cache *other) {
  const int64_t dropped = other->dropped[0], held = other->length - dropped;
  const int64_t skipped = heed__max(held - c->rows, 0); /* a lower capacity has fewer rows */
  const heed_status status = heed__kv_charge_rows(c, function, (double)c->batch * (double)(held - skipped));
  if (status != HEED_OK) return status;
  for (int64_t i = 0; i < c->batch; i++) {
    if (!heed__kv_copy_rows(&c->context->pace, c->part, 0, i, other->part, skipped, 0, held - skipped))
      return heed__stopped(c->context, function);
    c->lengths[i] = other->length;
    c->dropped[i] = dropped + skipped;
  }
  c->length = other->length;
  return HEED_OK;
}

heed_status heed__kv_cache_set_prefix(heed_kv_cache *c, const char *function, heed_kv_cache *other) {
  heed_status status = HEED_OK;
  c->origin = other->origin;
  if (c->window_left >= 0) return copy_window(c, function, other);
  if (other->length == 0) return HEED_OK;
  if (other->prefix > 0)
    status = join_rows_of(c, function, other);
  else
    status = share_prefix_rows(c, function, other, other->length);
  if (status != HEED_OK) return status;
  if (other->prefix == 0) other->shared_rows = heed__max(other->shared_rows, other->length);
  c->prefix = c->length = other->length;
  for (int64_t i = 0; i < c->batch; i++) c->lengths[i] = c->dropped[i] = c->prefix;
  return HEED_OK;
}

heed_status heed__kv_cache_flatten(const heed_kv_cache *cache, const char *function, heed_kv_cache **out) {
  heed_kv_cache like = *cache;
  heed_kv_cache *made = NULL;
  double rows = 0;
  for (int64_t i = 0; i < cache->batch; i++) rows += (double)cache->lengths[i];
  like.rows = cache->length;
  like.prefix = 0;
  memset(like.prefix_part, 0, sizeof like.prefix_part);
  heed_status status = heed__kv_charge_rows(cache, function, rows);
  if (status == HEED_OK) status = heed__kv_cache_new_like(&like, function, &made);
  for (int64_t i = 0; i < cache->batch && status == HEED_OK; i++) {
    if (!heed__kv_copy_all(&cache->context->pace, made->part, cache, i))
      status = heed__stopped(cache->context, function);
    if (status == HEED_OK) made->lengths[i] = cache->lengths[i];
  }
  if (status == HEED_OK) {
    made->length = cache->length;
    *out = made;
  } else {
    heed_kv_cache_free(made);
  }
  return status;
}

bool heed__kv_copy_all(const heed__pace *pace, heed_tensor *const to[HEED__KV_PARTS],
                       const heed_kv_cache *cache, int64_t item) {
  return heed__kv_copy_rows(pace, to, 0, item, cache->prefix_part, 0, 0, cache->prefix) &&
         heed__kv_copy_rows(pace, to, cache->prefix, item, cache->part, 0, item,
                            cache->lengths[item] - cache->dropped[item]);
}
