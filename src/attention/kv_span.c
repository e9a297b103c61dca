/* Spans of a key/value cache: the rows that one forward pass reads, with those that it adds. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kv_cache.h"

/* A view of `count` rows of a part, from `first` on. */
static void view_rows(heed_tensor *view, const heed_tensor *part, int64_t first, int64_t count) {
  heed__alias_on_stack(view, part);
  heed__narrow_on_stack(view, 2, first, count);
}

/* The same for `items` batch items from item_first on. */
static void view_items(heed_tensor *view, const heed_tensor *part, int64_t item_first, int64_t items,
                       int64_t first, int64_t count) {
  view_rows(view, part, first, count);
  heed__narrow_on_stack(view, 0, item_first, items);
}

/* A view of x [h, n, d] as [1, h, n, d]; with a batch unchanged. */
static void view_batched(heed_tensor *view, const heed_tensor *x) {
  heed__alias_on_stack(view, x);
  if (x->ndim == 4) return;
  view->ndim = 4;
  view->shape[0] = 1;
  view->stride[0] = 0;
  memcpy(view->shape + 1, x->shape, 3 * sizeof *x->shape);
  memcpy(view->stride + 1, x->stride, 3 * sizeof *x->stride);
}

/* The rows of all items of a part as [hkv, rows…], or scales as [hkv, rows]: an item's begin with its
 * first_key. */
static void view_all(heed_tensor *view, const heed_tensor *part) {
  const int64_t others = (part->shape[0] - 1) * part->shape[1];
  heed__alias_on_stack(view, part);
  view->ndim--;
  memmove(view->shape, view->shape + 1, (size_t)view->ndim * sizeof *view->shape);
  memmove(view->stride, view->stride + 1, (size_t)view->ndim * sizeof *view->stride);
  view->shape[1] += others * view->shape[1];
}

/* The tokens that are kept of an item whose rows must move: those that can be seen, and a reserve. */
static int64_t kept_of(const heed_kv_cache *cache, int64_t held) {
  return heed__min(held, cache->window_left + heed__kv_reserve(cache->window_left));
}

/* The token of row 0 of an item in `made`, from 0. */
static int64_t made_first(const heed__kv_span *span, int64_t i) {
  const heed_kv_cache *cache = span->cache;
  const int64_t past = cache->lengths[i];
  if (cache->prefix > 0) return 0;
  if (span->moves) return past - kept_of(cache, past - cache->dropped[i]);
  return cache->window_left >= 0 ? heed__max(past - cache->window_left, 0) : 0;
}

/* Copies rows of an item, from token `token` on: of the prefix or of the cache. */
static bool make_item(heed__kv_span *span, heed_tensor *const from[HEED__KV_PARTS], int64_t first,
                      int64_t count, int64_t token, int64_t i, int64_t from_item) {
  const heed_kv_cache *cache = span->cache;
  const heed__pace *pace = &cache->context->pace;
  const int64_t to = token - made_first(span, i);
  if (count <= 0) return true;
  if (cache->int4) return heed__kv_recode_rows(pace, false, span->made, to, i, from, first, from_item, count);
  return heed__kv_copy_rows(pace, span->made, to, i, from, first, from_item, count);
}

/* Copies the rows that the span needs of all items to new ones. Their way back (heed__kv_span_commit) is
 * charged as well. */
static heed_status make_rows(heed__kv_span *span, const char *function) {
  heed_kv_cache *cache = span->cache;
  int64_t rows = 0;
  double copied = 0;
  for (int64_t i = 0; i < cache->batch; i++) {
    const int64_t past = cache->lengths[i] - made_first(span, i), added = cache->items[i].query_length;
    rows = heed__max(rows, past + added);
    copied += (double)past + (double)(span->moves ? kept_of(cache, past + added) : added);
  }
  heed_status status = heed__kv_charge_rows(cache, function, copied);
  if (status == HEED_OK) status = heed__kv_new_parts(cache, function, rows, true, span->made);
  for (int64_t i = 0; i < cache->batch && status == HEED_OK; i++) {
    const int64_t own =
        heed__max(made_first(span, i), cache->dropped[i]); /* the first token that is not shared */
    if (!make_item(span, cache->prefix_part, 0, cache->prefix, 0, i, 0) ||
        !make_item(span, cache->part, own - cache->dropped[i], cache->lengths[i] - own, own, i, i))
      status = heed__stopped(cache->context, function);
  }
  if (status != HEED_OK) heed__kv_span_end(span);
  return status;
}

heed_status heed__kv_span_begin(heed_kv_cache *cache, const char *function, int64_t added,
                                const int64_t *added_each, bool apart, heed__kv_span *span) {
  *span = (heed__kv_span){.cache = cache, .added = added_each != NULL ? 0 : added, .skipped = INT64_MAX};
  span->even = added_each == NULL && !apart && heed__kv_cache_is_even(cache);
  span->change = ++cache->changes; /* invalidates any other span, which would write the same free rows */
  bool grows = false;
  int64_t query = 0;
  const int64_t stored = cache->part[HEED__KV_KEYS]->shape[2];
  for (int64_t i = 0; i < cache->batch; i++) {
    heed__attention_item *item = &cache->items[i];
    item->query_length = added_each != NULL ? added_each[i] : added;
    item->first_query = query;
    query += item->query_length;
    span->moves = span->moves || item->query_length > heed__kv_cache_headroom_of(cache, i);
    grows = grows ||
            (stored < cache->rows && item->query_length > stored - (cache->lengths[i] - cache->dropped[i]));
  }
  if (grows || (query > 0 && cache->lengths[0] - cache->dropped[0] < cache->shared_rows)) {
    const heed_status status = heed__kv_cache_grow(cache, function);
    if (status != HEED_OK) return status;
  }
  const bool makes = span->moves || cache->int4 || (!apart && cache->prefix > 0);
  if (makes) {
    const heed_status status = make_rows(span, function);
    if (status != HEED_OK) return status;
  }
  heed_tensor *const *part = makes ? span->made : cache->part;
  const int64_t item_rows = cache->num_kv_heads * part[HEED__KV_KEYS]->shape[2];
  for (int64_t i = 0; i < cache->batch; i++) {
    heed__attention_item *item = &cache->items[i];
    const int64_t past = cache->lengths[i], first = makes ? made_first(span, i) : cache->dropped[i];
    item->skipped = cache->window_left >= 0 && past > cache->window_left ? past - cache->window_left : 0;
    if (apart) item->skipped = cache->prefix;
    item->first_key = i * item_rows + item->skipped - first;
    item->key_length = past - item->skipped + item->query_length;
    span->past = heed__max(span->past, past);
    span->added = heed__max(span->added, item->query_length);
    span->length = heed__max(span->length, item->key_length);
    span->skipped = heed__min(span->skipped, item->skipped);
  }
  for (int i = 0; i < HEED__KV_PARTS; i++) {
    if (part[i] == NULL) continue;
    if (span->even)
      view_rows(&span->part[i], part[i], cache->items[0].first_key, span->length);
    else
      view_all(&span->part[i], part[i]);
  }
  return HEED_OK;
}

/* Stores `count` rows of an item from row `first` of `made` on. */
static void store_made(heed__kv_span *span, int64_t to_first, int64_t first, int64_t count, int64_t i) {
  heed_kv_cache *cache = span->cache;
  if (cache->int4)
    (void)heed__kv_recode_rows(NULL, true, cache->part, to_first, i, span->made, first, i, count);
  else
    (void)heed__kv_copy_rows(NULL, cache->part, to_first, i, span->made, first, i, count);
}

void heed__kv_span_commit(heed__kv_span *span) {
  heed_kv_cache *cache = span->cache;
  for (int64_t i = 0; i < cache->batch; i++) {
    const int64_t past = cache->lengths[i], added = cache->items[i].query_length;
    const int64_t rows = past + added - made_first(span, i); /* in `made` */
    if (span->made[HEED__KV_KEYS] != NULL && !span->moves)
      store_made(span, past - cache->dropped[i], rows - added, added, i);
    if (span->moves) {
      const int64_t kept = kept_of(cache, rows);
      store_made(span, 0, rows - kept, kept, i);
      cache->dropped[i] = past + added - kept;
    }
    cache->lengths[i] = past + added;
    cache->length = heed__max(cache->length, cache->lengths[i]);
  }
}

void heed__kv_span_end(heed__kv_span *span) {
  for (int i = 0; i < HEED__KV_PARTS; i++) {
    heed_tensor_free(span->made[i]);
    span->made[i] = NULL;
  }
}

/* A view of `count` of the rows of an item, or of all `items` from `item` on in an even span, from `first` of
 * the span's on. */
static void view_span(heed_tensor *view, const heed__kv_span *span, int which, int64_t item, int64_t items,
                      int64_t first, int64_t count) {
  const heed_kv_cache *cache = span->cache;
  const heed_tensor *part = span->made[which] != NULL ? span->made[which] : cache->part[which];
  const int64_t item_rows = cache->num_kv_heads * part->shape[2];
  view_items(view, part, item, items, cache->items[item].first_key - item * item_rows + first, count);
}

/* Offset of the first element of a row. */
static ptrdiff_t offset_of(const heed_tensor *x, int64_t item, int64_t head, int64_t row) {
  return (ptrdiff_t)(item * x->stride[0] + head * x->stride[1] + row * x->stride[2]);
}

/* d elements, `step` apart, as integers up to `most` with a scale: the largest magnitude / most. A row with
 * nan or inf becomes all nan. Adding 1.5 · 2^23 rounds a float to an integer, held in its lowest bits. */
static inline void quantise(const float *restrict x, const ptrdiff_t step, int64_t d, const float most,
                            int8_t *restrict to, float *scale) {
  const float to_integer = 0x1.8p23f, largest = heed__float_of_bits(heed__largest_magnitude(x, step, d));
  const bool finite = largest <= FLT_MAX;
  const float unit = largest / most;
  *scale = finite ? unit : NAN;
  if (!finite || !(unit > 0)) {
    memset(to, 0, (size_t)d);
    return;
  }
  for (int64_t i = 0; i < d; i++) {
    const float number = x[i * step] / unit;
    const float below = number > most ? most : number, bounded = below < -most ? -most : below;
    to[i] = (int8_t)(uint8_t)heed__bits_of_float(bounded + to_integer);
  }
}

enum { POLLED = 64 }; /* int8 rows between cancellation checks */

bool heed__kv_span_write(const heed__kv_span *span, heed__kv_part part, const heed_tensor *x,
                         int64_t item_first, int64_t first) {
  const heed__pace *pace = &span->cache->context->pace;
  const float most = span->cache->int4 ? 7 : 127;
  heed_tensor from, to, scales;
  view_batched(&from, x);
  const heed__attention_item *first_item = &span->cache->items[item_first];
  const int64_t row_first = first_item->key_length - first_item->query_length + first;
  view_span(&to, span, (int)part, item_first, from.shape[0], row_first, from.shape[2]);
  if (to.dtype != HEED_INT8) {
    return heed__copy_elements(&to, &from);
  }
  view_span(&scales, span, HEED__KV_KEY_SCALES + (int)part, item_first, from.shape[0], row_first,
            from.shape[2]);
  for (int64_t item = 0; item < to.shape[0]; item++) {
    for (int64_t head = 0; head < to.shape[1]; head++) {
      for (int64_t row = 0; row < to.shape[2]; row++) {
        if (row % POLLED == 0 && heed__is_due(pace)) return false;
        const float *wide = (const float *)(const void *)from.data + offset_of(&from, item, head, row);
        int8_t *stored = (int8_t *)(void *)to.data + offset_of(&to, item, head, row);
        float *scale = (float *)(void *)scales.data + offset_of(&scales, item, head, row);
        if (from.stride[3] == 1)
          quantise(wide, 1, from.shape[3], most, stored, scale);
        else
          quantise(wide, (ptrdiff_t)from.stride[3], from.shape[3], most, stored, scale);
      }
    }
  }
  return true;
}

/* Reads rows of int8 elements. False if stopped at a cancellation check. */
static bool read_scaled(const heed__pace *pace, const heed_tensor *to, const heed_tensor *from,
                        const heed_tensor *scales, bool turned) {
  for (int64_t item = 0; item < to->shape[0]; item++) {
    for (int64_t head = 0; head < to->shape[1]; head++) {
      for (int64_t row = 0; row < to->shape[2]; row++) {
        if (row % POLLED == 0 && heed__is_due(pace)) return false;
        const int8_t *stored = (const int8_t *)(const void *)from->data + offset_of(from, item, head, row);
        const float scale = *((const float *)(const void *)scales->data + offset_of(scales, item, head, row));
        float *wide = (float *)(void *)to->data + offset_of(to, item, head, row);
        for (int64_t i = 0; i < to->shape[3]; i++) wide[i * to->stride[3]] = scale * (float)stored[i];
        if (turned) heed__kv_turn(wide, to->shape[3]); /* contiguous: dst is a new tensor */
      }
    }
  }
  return true;
}

/* Reads all rows of one item, or of all items of an even span. */
static bool read_items(const heed__kv_span *span, heed__kv_part part, heed_tensor *to, int64_t item) {
  const int64_t rows = span->cache->items[item].key_length;
  heed_tensor from, scales;
  heed__narrow_on_stack(to, 2, 0, rows);
  view_span(&from, span, (int)part, item, to->shape[0], 0, rows);
  if (from.dtype != HEED_INT8) return heed__copy_elements(to, &from);
  view_span(&scales, span, HEED__KV_KEY_SCALES + (int)part, item, to->shape[0], 0, rows);
  return read_scaled(&span->cache->context->pace, to, &from, &scales, span->cache->int4);
}

bool heed__kv_span_read(const heed__kv_span *span, heed__kv_part part, const heed_tensor *dst) {
  heed_tensor all, to;
  view_batched(&all, dst);
  if (span->even) return read_items(span, part, &all, 0);
  memset(dst->data, 0, (size_t)dst->numel * sizeof(float));
  for (int64_t i = 0; i < span->cache->batch; i++) {
    heed__alias_on_stack(&to, &all);
    heed__narrow_on_stack(&to, 0, i, 1);
    if (!read_items(span, part, &to, i)) return false;
  }
  return true;
}

const heed_tensor *heed__kv_span_view(const heed__kv_span *span, heed__kv_part part, bool batched,
                                      heed_tensor *view) {
  heed__alias_on_stack(view, &span->part[part]);
  if (batched || !span->even) return view;
  view->ndim--;
  memmove(view->shape, view->shape + 1, (size_t)view->ndim * sizeof *view->shape);
  memmove(view->stride, view->stride + 1, (size_t)view->ndim * sizeof *view->stride);
  return view;
}
