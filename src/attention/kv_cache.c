/* Storage of a key/value cache: the rows of keys and values of the tokens seen so far. With a window to the
 * left only the rows that can still be seen are kept; when the free rows at the end run out, the kept rows
 * are moved to the front, so that the keys of a head are always contiguous. */
#include "attention.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- Rows ---- */

/* Allocates all parts with that number of rows. */
static heed_status new_parts(const heed_kv_cache *c, const char *function, int64_t rows,
                             heed_tensor *part[HEED__KV_PARTS]) {
  const int64_t shape[] = {c->batch, c->num_kv_heads, rows, c->head_dim};
  heed_status status = HEED_OK;
  for (int i = 0; i < HEED__KV_PARTS && status == HEED_OK; i++) {
    if (i < HEED__KV_KEY_SCALES) {
      status = heed__tensor_new(c->context, function, c->dtype, 4, shape, &part[i]);
    } else if (c->dtype == HEED_INT8) {
      status = heed__tensor_new(c->context, function, HEED_FLOAT32, 3, shape, &part[i]);
    }
  }
  if (status == HEED_OK) return status;
  for (int i = 0; i < HEED__KV_PARTS; i++) {
    heed_tensor_free(part[i]);
    part[i] = NULL;
  }
  return status;
}

static size_t row_bytes(const heed_tensor *part) {
  return (size_t)part->stride[2] * heed__element_bytes(part->dtype);
}

#define COPIED_ROWS ((int64_t)256) /* between cancellation checks */

/* Copies `count` rows of all heads from row `first` to row `to_first`. False if stopped at a cancellation
 * check; pace NULL: never. */
static bool copy_rows(const heed__pace *pace, heed_tensor *const to[HEED__KV_PARTS], int64_t to_first,
                      heed_tensor *const from[HEED__KV_PARTS], int64_t first, int64_t count) {
  for (int i = 0; i < HEED__KV_PARTS && count > 0; i++) {
    if (to[i] == NULL) continue;
    const size_t bytes = row_bytes(to[i]);
    for (int64_t head = 0; head < to[i]->shape[0] * to[i]->shape[1]; head++) {
      for (int64_t row = 0; row < count; row += COPIED_ROWS) {
        const int64_t rows = count - row < COPIED_ROWS ? count - row : COPIED_ROWS;
        if (pace != NULL && heed__is_due(pace)) return false;
        memcpy(to[i]->data + (size_t)(head * to[i]->shape[2] + to_first + row) * bytes,
               from[i]->data + (size_t)(head * from[i]->shape[2] + first + row) * bytes,
               (size_t)rows * bytes);
      }
    }
  }
  return true;
}

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

/* ---- Making ---- */

/* With a window, tokens kept besides those that can be seen, so that truncate can take a few back, and as
 * many free rows at the end. Moving the kept rows is then a small part of the time of reading them. */
static int64_t reserve_of(int64_t window_left) {
  return window_left / 8 > 64 ? window_left / 8 : 64;
}

void heed_kv_cache_config_init(heed_kv_cache_config *config, size_t size) {
  static const heed_kv_cache_config plain = {.dtype = HEED_FLOAT32};
  heed__struct_init(config, size, &plain, sizeof plain);
}

static heed_status new_cache_like(const heed_kv_cache *c, const char *function, heed_kv_cache **out) {
  heed_kv_cache *made = heed__allocate(c->context, sizeof *made);
  if (made == NULL) return heed__fail_memory(c->context, function, sizeof *made);
  *made = *c;
  made->references = 1;
  made->changes = 0;
  memset(made->part, 0, sizeof made->part);
  heed_status status = new_parts(made, function, made->rows, made->part);
  if (status == HEED_OK) {
    *out = made;
  } else {
    heed__release(c->context, made);
  }
  return status;
}

heed_status heed__kv_cache_new(heed_context *ctx, const char *function, const heed_kv_cache_config *config,
                               int64_t num_kv_heads, int64_t head_dim, int64_t window_left,
                               heed_kv_cache **out) {
  heed_kv_cache made = {.context = ctx,
                        .batch = config->batch,
                        .num_kv_heads = num_kv_heads,
                        .head_dim = head_dim,
                        .capacity = config->capacity,
                        .window_left = window_left,
                        .rows = config->capacity,
                        .dtype = config->dtype};
  if (window_left >= 0) {
    const int64_t reserve = reserve_of(window_left);
    made.rows = window_left < INT64_MAX - 2 * reserve ? window_left + 2 * reserve : INT64_MAX;
    if (made.capacity > 0 && made.capacity < made.rows) made.rows = made.capacity;
  }
  return new_cache_like(&made, function, out);
}

heed_kv_cache *heed__kv_cache_retain(heed_kv_cache *cache) {
  cache->references++;
  return cache;
}

void heed_kv_cache_free(heed_kv_cache *cache) {
  if (cache == NULL || --cache->references > 0) return;
  heed_context *ctx = cache->context;
  for (int i = 0; i < HEED__KV_PARTS; i++) heed_tensor_free(cache->part[i]);
  heed__release(ctx, cache);
}

heed_status heed_kv_cache_clone(const heed_kv_cache *cache, heed_kv_cache **out) {
  HEED__ENTER(heed_kv_cache_context(cache), "clone", out);
  heed_kv_cache *made = NULL;
  heed_status status = new_cache_like(cache, "clone", &made);
  if (status != HEED_OK) return status;
  if (!copy_rows(&cache->context->pace, made->part, 0, cache->part, 0, cache->length - cache->dropped))
    status = heed__stopped(cache->context, "clone");
  if (status == HEED_OK) {
    *out = made;
  } else {
    heed_kv_cache_free(made);
  }
  return status;
}

/* ---- Properties ---- */

heed_context *heed_kv_cache_context(const heed_kv_cache *cache) {
  return cache != NULL ? cache->context : NULL;
}
int64_t heed_kv_cache_length(const heed_kv_cache *cache) {
  return cache != NULL ? cache->length : 0;
}
int64_t heed_kv_cache_capacity(const heed_kv_cache *cache) {
  return cache != NULL ? cache->capacity : 0;
}
int64_t heed_kv_cache_batch(const heed_kv_cache *cache) {
  return cache != NULL ? cache->batch : 0;
}
heed_dtype heed_kv_cache_dtype(const heed_kv_cache *cache) {
  return cache != NULL ? cache->dtype : HEED_BOOL;
}

int64_t heed_kv_cache_headroom(const heed_kv_cache *cache) {
  if (cache == NULL) return 0;
  const int64_t free_rows = cache->rows - (cache->length - cache->dropped);
  const int64_t left = cache->capacity > 0 ? cache->capacity - cache->length : free_rows;
  return left < free_rows ? left : free_rows;
}

/* ---- Truncating and reordering ---- */

heed_status heed_kv_cache_truncate(heed_kv_cache *cache, int64_t n) {
  HEED__ENTER(heed_kv_cache_context(cache), "truncate", cache);
  if (n < 0 || n > cache->length) {
    return heed__fail(cache->context, HEED_ARGUMENT,
                      "truncate: n is %lld; it must be from 0 to %lld, the length", (long long)n,
                      (long long)cache->length);
  }
  if (n == 0) {
    cache->dropped = 0;
  } else if (cache->dropped > 0 && n - cache->window_left < cache->dropped) {
    return heed__fail(cache->context, HEED_ARGUMENT,
                      "truncate: n is %lld; it must be at least %lld, or 0: the window would see tokens that "
                      "the cache has dropped",
                      (long long)n, (long long)(cache->dropped + cache->window_left));
  }
  cache->length = n;
  cache->changes++;
  return HEED_OK;
}

/* The item, from 0, that item i becomes a copy of. */
static int64_t source_of(const heed_tensor *indices, int64_t i) {
  return ((const int64_t *)(const void *)indices->data)[i * indices->stride[0]] - 1;
}

static heed_status check_batch_indices(const heed_kv_cache *cache, const heed_tensor *indices) {
  heed_context *ctx = cache->context;
  heed_status status = heed__check_dtype(ctx, "reorder", "indices", indices, HEED_INT64);
  if (status != HEED_OK) return status;
  if (indices->ndim != 1 || indices->shape[0] != cache->batch) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(ctx, HEED_SHAPE, "reorder: indices is %s; it must be [%lld], one for each batch item",
                      heed__shape_text(text, indices->ndim, indices->shape), (long long)cache->batch);
  }
  for (int64_t i = 0; i < cache->batch; i++) {
    const int64_t source = source_of(indices, i);
    if (source >= 0 && source < cache->batch) continue;
    return heed__fail(ctx, HEED_INDEX,
                      "reorder: element %lld of indices is %lld; it must be from 1 to %lld, the batch size",
                      (long long)(i + 1), (long long)(source + 1), (long long)cache->batch);
  }
  return HEED_OK;
}

/* Head by head, so that the temporary copy is small. */
heed_status heed_kv_cache_reorder(heed_kv_cache *cache, const heed_tensor *indices) {
  HEED__ENTER(heed_kv_cache_context(cache), "reorder", indices);
  heed_status status = check_batch_indices(cache, indices);
  if (status != HEED_OK) return status;
  const size_t rows = (size_t)(cache->length - cache->dropped);
  size_t moved = 0;
  for (int64_t i = 0; i < cache->batch; i++) moved += source_of(indices, i) != i;
  const size_t row =
      row_bytes(cache->part[HEED__KV_KEYS]); /* a scale may be larger than a short row in int8 */
  const size_t bytes = moved * rows * (row > sizeof(float) ? row : sizeof(float));
  if (bytes == 0) return HEED_OK;
  char *copy = heed__allocate(cache->context, bytes);
  if (copy == NULL) return heed__fail_memory(cache->context, "reorder", bytes);
  for (int which = 0; which < HEED__KV_PARTS; which++) {
    const heed_tensor *part = cache->part[which];
    if (part == NULL) continue;
    const size_t used = rows * row_bytes(part), element = heed__element_bytes(part->dtype);
    const size_t item = (size_t)part->stride[0] * element, head = (size_t)part->stride[1] * element;
    for (int64_t h = 0; h < cache->num_kv_heads; h++) {
      char *data = part->data + (size_t)h * head, *at = copy;
      for (int64_t i = 0; i < cache->batch; i++) {
        const int64_t source = source_of(indices, i);
        if (source != i) memcpy(at, data + (size_t)source * item, used), at += used;
      }
      at = copy;
      for (int64_t i = 0; i < cache->batch; i++) {
        if (source_of(indices, i) != i) memcpy(data + (size_t)i * item, at, used), at += used;
      }
    }
  }
  heed__release(cache->context, copy);
  cache->changes++;
  return HEED_OK;
}

/* ---- Spans ---- */

heed_status heed__kv_span_begin(heed_kv_cache *cache, const char *function, int64_t added,
                                heed__kv_span *span) {
  const int64_t past = cache->length, held = past - cache->dropped;
  heed_tensor *const *part = cache->part;
  int64_t first = cache->dropped; /* token of row 0, from 0 */
  span->cache = cache;
  span->change = ++cache->changes; /* invalidates any other span, which would write the same free rows */
  span->past = past;
  span->added = added;
  span->skipped = cache->window_left >= 0 && past > cache->window_left ? past - cache->window_left : 0;
  memset(span->made, 0, sizeof span->made);
  if (added > heed_kv_cache_headroom(cache)) { /* only with a window: without one the call was refused */
    const int64_t most = cache->window_left + reserve_of(cache->window_left),
                  kept = held < most ? held : most;
    heed_status status = new_parts(cache, function, kept + added, span->made);
    if (status != HEED_OK) return status;
    copy_rows(NULL, span->made, 0, part, held - kept, kept);
    part = span->made;
    first = past - kept;
  }
  for (int i = 0; i < HEED__KV_PARTS; i++) {
    if (part[i] != NULL)
      view_rows(&span->part[i], part[i], span->skipped - first, past - span->skipped + added);
  }
  return HEED_OK;
}

void heed__kv_span_commit(heed__kv_span *span) {
  heed_kv_cache *cache = span->cache;
  const int64_t length = span->past + span->added;
  if (span->made[HEED__KV_KEYS] != NULL) {
    const int64_t rows = span->made[HEED__KV_KEYS]->shape[2],
                  most = cache->window_left + reserve_of(cache->window_left);
    const int64_t kept = rows < most ? rows : most;
    copy_rows(NULL, cache->part, 0, span->made, rows - kept, kept);
    cache->dropped = length - kept;
  }
  cache->length = length;
}

void heed__kv_span_end(heed__kv_span *span) {
  for (int i = 0; i < HEED__KV_PARTS; i++) heed_tensor_free(span->made[i]);
}

/* Offset of the first element of a row. */
static ptrdiff_t offset_of(const heed_tensor *x, int64_t item, int64_t head, int64_t row) {
  return (ptrdiff_t)(item * x->stride[0] + head * x->stride[1] + row * x->stride[2]);
}

/* d elements, `step` apart, as int8 with a scale: the largest magnitude / 127. A row with nan or inf becomes
 * all nan. Adding 1.5 · 2^23 rounds a float to an integer, held in its lowest bits. */
static inline void quantise(const float *restrict x, const ptrdiff_t step, int64_t d, int8_t *restrict to,
                            float *scale) {
  const float to_integer = 0x1.8p23f, largest = heed__float_of_bits(heed__largest_magnitude(x, step, d));
  const bool finite = largest <= FLT_MAX;
  const float unit = largest / 127;
  *scale = finite ? unit : NAN;
  if (!finite || !(unit > 0)) {
    memset(to, 0, (size_t)d);
    return;
  }
  for (int64_t i = 0; i < d; i++) {
    const float number = x[i * step] / unit;
    const float below = number > 127 ? 127 : number, bounded = below < -127 ? -127 : below;
    to[i] = (int8_t)(uint8_t)heed__bits_of_float(bounded + to_integer);
  }
}

enum { POLLED = 64 }; /* int8 rows between cancellation checks */

bool heed__kv_span_write(const heed__kv_span *span, heed__kv_part part, const heed_tensor *x,
                         int64_t item_first, int64_t first) {
  const heed__pace *pace = &span->cache->context->pace;
  heed_tensor from, to, scales;
  view_batched(&from, x);
  const int64_t row_first = span->past - span->skipped + first;
  view_items(&to, &span->part[part], item_first, from.shape[0], row_first, from.shape[2]);
  if (to.dtype != HEED_INT8) {
    return heed__copy_elements(&to, &from);
  }
  view_items(&scales, &span->part[HEED__KV_KEY_SCALES + part], item_first, from.shape[0], row_first,
             from.shape[2]);
  for (int64_t item = 0; item < to.shape[0]; item++) {
    for (int64_t head = 0; head < to.shape[1]; head++) {
      for (int64_t row = 0; row < to.shape[2]; row++) {
        if (row % POLLED == 0 && heed__is_due(pace)) return false;
        const float *wide = (const float *)(const void *)from.data + offset_of(&from, item, head, row);
        int8_t *stored = (int8_t *)(void *)to.data + offset_of(&to, item, head, row);
        float *scale = (float *)(void *)scales.data + offset_of(&scales, item, head, row);
        if (from.stride[3] == 1)
          quantise(wide, 1, from.shape[3], stored, scale);
        else
          quantise(wide, (ptrdiff_t)from.stride[3], from.shape[3], stored, scale);
      }
    }
  }
  return true;
}

bool heed__kv_span_read(const heed__kv_span *span, heed__kv_part part, const heed_tensor *dst) {
  const heed__pace *pace = &span->cache->context->pace;
  const heed_tensor *from = &span->part[part], *scales = &span->part[HEED__KV_KEY_SCALES + part];
  heed_tensor to;
  view_batched(&to, dst);
  if (from->dtype != HEED_INT8) {
    return heed__copy_elements(&to, from);
  }
  for (int64_t item = 0; item < to.shape[0]; item++) {
    for (int64_t head = 0; head < to.shape[1]; head++) {
      for (int64_t row = 0; row < to.shape[2]; row++) {
        if (row % POLLED == 0 && heed__is_due(pace)) return false;
        const int8_t *stored = (const int8_t *)(const void *)from->data + offset_of(from, item, head, row);
        const float scale = *((const float *)(const void *)scales->data + offset_of(scales, item, head, row));
        float *wide = (float *)(void *)to.data + offset_of(&to, item, head, row);
        for (int64_t i = 0; i < to.shape[3]; i++) wide[i * to.stride[3]] = scale * (float)stored[i];
      }
    }
  }
  return true;
}

const heed_tensor *heed__kv_span_view(const heed__kv_span *span, heed__kv_part part, bool batched,
                                      heed_tensor *view) {
  heed__alias_on_stack(view, &span->part[part]);
  if (batched) return view;
  view->ndim--;
  memmove(view->shape, view->shape + 1, (size_t)view->ndim * sizeof *view->shape);
  memmove(view->stride, view->stride + 1, (size_t)view->ndim * sizeof *view->stride);
  return view;
}
