/* Storage of a key/value cache: the rows of keys and values of the tokens seen so far. With a window to the
 * left only the rows that can still be seen are kept; when the free rows at the end run out, the kept rows
 * are moved to the front, so that the keys of a head are always contiguous. */
#include "kv_cache.h"

#include <stdio.h>
#include <string.h>

/* ---- Rows ---- */

heed_status heed__kv_new_parts(const heed_kv_cache *c, const char *function, int64_t rows, bool unpacked,
                               heed_tensor *part[HEED__KV_PARTS]) {
  const int64_t columns = c->int4 && !unpacked ? heed__kv_int4_bytes(c->head_dim) : c->head_dim;
  const int64_t shape[] = {c->batch, c->num_kv_heads, rows, columns};
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

bool heed__kv_copy_rows(const heed__pace *pace, heed_tensor *const to[HEED__KV_PARTS], int64_t to_first,
                        int64_t to_item, heed_tensor *const from[HEED__KV_PARTS], int64_t first,
                        int64_t from_item, int64_t count) {
  for (int i = 0; i < HEED__KV_PARTS && count > 0; i++) {
    if (to[i] == NULL) continue;
    const size_t bytes = row_bytes(to[i]);
    for (int64_t head = 0; head < to[i]->shape[1]; head++) {
      for (int64_t row = 0; row < count; row += COPIED_ROWS) {
        const int64_t rows = count - row < COPIED_ROWS ? count - row : COPIED_ROWS;
        if (pace != NULL && heed__is_due(pace)) return false;
        memcpy(heed__kv_row_at(to[i], to_item, head, to_first + row),
               heed__kv_row_at(from[i], from_item, head, first + row), (size_t)rows * bytes);
      }
    }
  }
  return true;
}

static int64_t held_rows(const heed_kv_cache *cache, int64_t item) {
  return cache->lengths[item] - cache->dropped[item];
}

/* The rows of all items, without a prefix. */
static double rows_of_all(const heed_kv_cache *cache) {
  double rows = 0;
  for (int64_t i = 0; i < cache->batch; i++) rows += (double)held_rows(cache, i);
  return rows;
}

/* The elements of a row of all heads, in all parts. */
static double row_elements(const heed_kv_cache *c) {
  const double columns = c->int4 ? (double)heed__kv_int4_bytes(c->head_dim) : (double)c->head_dim;
  return 2 * (double)c->num_kv_heads * (columns + (c->dtype == HEED_INT8)); /* with the scales */
}

heed_status heed__kv_charge_rows(const heed_kv_cache *c, const char *function, double rows) {
  return heed__charge(c->context, function, 2 * rows * row_elements(c) + 1);
}

/* ---- Making ---- */

void heed_kv_cache_config_init(heed_kv_cache_config *config, size_t size) {
  static const heed_kv_cache_config plain = {.dtype = HEED_FLOAT32};
  heed__struct_init(config, size, &plain, sizeof plain);
}

/* Allocates the lists of the items, all empty, in one block that begins with `items`. */
static heed_status new_lists(heed_kv_cache *c, const char *function) {
  const size_t each = sizeof *c->items + sizeof *c->lengths + sizeof *c->dropped;
  const size_t bytes = heed__array_bytes((uint64_t)c->batch, each);
  c->items = heed__allocate(c->context, bytes);
  if (c->items == NULL) return heed__fail_memory(c->context, function, bytes);
  memset(c->items, 0, bytes);
  c->lengths = (int64_t *)(c->items + c->batch);
  c->dropped = c->lengths + c->batch;
  return HEED_OK;
}

heed_status heed__kv_cache_new_like(const heed_kv_cache *c, const char *function, heed_kv_cache **out) {
  heed_kv_cache *made = heed__allocate(c->context, sizeof *made);
  if (made == NULL) return heed__fail_memory(c->context, function, sizeof *made);
  *made = *c;
  made->references = 1;
  made->changes = made->length = 0;
  made->items = NULL;
  made->shared_rows = 0;
  memset(made->part, 0, sizeof made->part);
  memset(made->prefix_part, 0, sizeof made->prefix_part);
  heed_status status = heed__kv_new_parts(made, function, made->rows, false, made->part);
  for (int i = 0; i < HEED__KV_PARTS && status == HEED_OK; i++)
    if (c->prefix_part[i] != NULL)
      status = heed__tensor_from_view(c->context, function, c->prefix_part[i], &made->prefix_part[i]);
  if (status == HEED_OK) status = new_lists(made, function);
  if (status == HEED_OK) {
    *out = made;
  } else {
    heed_kv_cache_free(made);
  }
  return status;
}

static heed_kv_cache sizes_of(heed_context *ctx, const heed_kv_cache_config *config, int64_t num_kv_heads,
                              int64_t head_dim, int64_t window_left) {
  heed_kv_cache made = {.context = ctx,
                        .batch = config->batch,
                        .num_kv_heads = num_kv_heads,
                        .head_dim = head_dim,
                        .capacity = config->capacity,
                        .window_left = window_left,
                        .rows = config->capacity,
                        .dtype = config->dtype,
                        .int4 = config->bits == 4};
  if (window_left >= 0) {
    const int64_t reserve = heed__kv_reserve(window_left);
    made.rows = window_left < INT64_MAX - 2 * reserve ? window_left + 2 * reserve : INT64_MAX;
    if (made.capacity > 0 && made.capacity < made.rows) made.rows = made.capacity;
  }
  return made;
}

heed_status heed__kv_cache_new(heed_context *ctx, const char *function, const heed_kv_cache_config *config,
                               int64_t num_kv_heads, int64_t head_dim, int64_t window_left,
                               heed_kv_cache **out) {
  heed_kv_cache made = sizes_of(ctx, config, num_kv_heads, head_dim, window_left);
  if (config->prefix != NULL && window_left < 0) made.rows -= config->prefix->length;
  const heed_status status =
      heed__charge(ctx, function, (double)made.batch * (double)made.rows * row_elements(&made) + 1);
  if (status != HEED_OK) return status;
  return heed__kv_cache_new_like(&made, function, out);
}

heed_status heed__kv_cache_new_loaded(heed_context *ctx, const char *function,
                                      const heed_kv_cache_config *config, int64_t num_kv_heads,
                                      int64_t head_dim, int64_t window_left,
                                      heed_tensor *part[HEED__KV_PARTS], const int64_t *lengths,
                                      const int64_t *dropped, heed_kv_cache **out) {
  heed_kv_cache *made = heed__allocate(ctx, sizeof *made);
  if (made == NULL) return heed__fail_memory(ctx, function, sizeof *made);
  *made = sizes_of(ctx, config, num_kv_heads, head_dim, window_left);
  made->references = 1;
  const heed_status status = new_lists(made, function);
  if (status != HEED_OK) {
    heed_kv_cache_free(made);
    return status;
  }
  for (int64_t i = 0; i < made->batch; i++) {
    made->lengths[i] = lengths[i];
    made->dropped[i] = dropped[i];
    made->length = heed__max(made->length, lengths[i]);
  }
  for (int i = 0; i < HEED__KV_PARTS; i++) {
    made->part[i] = part[i];
    part[i] = NULL;
  }
  *out = made;
  return HEED_OK;
}

heed_status heed__kv_cache_grow(heed_kv_cache *cache, const char *function) {
  heed_tensor *part[HEED__KV_PARTS] = {NULL};
  heed_status status = heed__kv_charge_rows(cache, function, rows_of_all(cache));
  if (status == HEED_OK) status = heed__kv_new_parts(cache, function, cache->rows, false, part);
  for (int64_t i = 0; i < cache->batch && status == HEED_OK; i++) {
    if (!heed__kv_copy_rows(&cache->context->pace, part, 0, i, cache->part, 0, i, held_rows(cache, i)))
      status = heed__stopped(cache->context, function);
  }
  for (int i = 0; i < HEED__KV_PARTS; i++) {
    heed_tensor_free(status == HEED_OK ? cache->part[i] : part[i]);
    if (status == HEED_OK) cache->part[i] = part[i];
  }
  if (status == HEED_OK) cache->shared_rows = 0;
  return status;
}

void heed__kv_cache_clear_tails(heed_kv_cache *cache) {
  int64_t longest = 0;
  for (int64_t i = 0; i < cache->batch; i++) longest = heed__max(longest, held_rows(cache, i));
  for (int64_t i = 0; i < cache->batch; i++)
    if (held_rows(cache, i) < longest) cache->changes++; /* a span may have written there */
  for (int i = 0; i < HEED__KV_PARTS; i++) {
    const heed_tensor *part = cache->part[i];
    for (int64_t head = 0; part != NULL && head < part->shape[0] * part->shape[1]; head++) {
      const int64_t held = held_rows(cache, head / part->shape[1]);
      const size_t bytes = row_bytes(part);
      memset(part->data + (size_t)(head * part->shape[2] + held) * bytes, 0,
             (size_t)(longest - held) * bytes);
    }
  }
}

heed_kv_cache *heed__kv_cache_retain(heed_kv_cache *cache) {
  cache->references++;
  return cache;
}

void heed_kv_cache_free(heed_kv_cache *cache) {
  if (cache == NULL || --cache->references > 0) return;
  heed_context *ctx = cache->context;
  for (int i = 0; i < HEED__KV_PARTS; i++) {
    heed_tensor_free(cache->part[i]);
    heed_tensor_free(cache->prefix_part[i]);
  }
  heed__release(ctx, cache->items);
  heed__release(ctx, cache);
}

heed_status heed_kv_cache_clone(const heed_kv_cache *cache, heed_kv_cache **out) {
  HEED__ENTER(heed_kv_cache_context(cache), "clone", out);
  heed_kv_cache *made = NULL;
  double elements = 1;
  for (int i = 0; i < HEED__KV_PARTS; i++)
    elements += cache->part[i] != NULL ? (double)cache->part[i]->numel : 0;
  heed_status status = heed__charge(cache->context, "clone", elements);
  if (status == HEED_OK) status = heed__kv_cache_new_like(cache, "clone", &made);
  if (status != HEED_OK) return status;
  for (int64_t i = 0; i < cache->batch && status == HEED_OK; i++) {
    if (!heed__kv_copy_rows(&cache->context->pace, made->part, 0, i, cache->part, 0, i, held_rows(cache, i)))
      status = heed__stopped(cache->context, "clone");
    made->lengths[i] = cache->lengths[i];
    made->dropped[i] = cache->dropped[i];
  }
  made->length = cache->length;
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

const int64_t *heed_kv_cache_lengths(const heed_kv_cache *cache) {
  return cache != NULL ? cache->lengths : NULL;
}

bool heed__kv_cache_is_even(const heed_kv_cache *cache) {
  for (int64_t i = 1; i < cache->batch; i++)
    if (cache->lengths[i] != cache->lengths[0] || cache->dropped[i] != cache->dropped[0]) return false;
  return true;
}

int64_t heed__kv_cache_headroom_of(const heed_kv_cache *cache, int64_t item) {
  const int64_t length = cache->lengths[item], free_rows = cache->rows - (length - cache->dropped[item]);
  const int64_t left = cache->capacity > 0 ? cache->capacity - length : free_rows;
  return left < free_rows ? left : free_rows;
}

int heed_kv_cache_bits(const heed_kv_cache *cache) {
  return cache == NULL ? 0 : cache->int4 ? 4 : 8 * (int)heed__element_bytes(cache->dtype);
}

int64_t heed_kv_cache_headroom(const heed_kv_cache *cache) {
  int64_t least = cache != NULL ? heed__kv_cache_headroom_of(cache, 0) : 0;
  for (int64_t i = 1; cache != NULL && i < cache->batch; i++)
    least = heed__min(least, heed__kv_cache_headroom_of(cache, i));
  return least;
}

/* ---- Lists of the items ---- */

heed_status heed__kv_check_items(const heed_kv_cache *cache, const char *function, const char *argument,
                                 const heed_tensor *list) {
  heed_context *ctx = cache->context;
  char text[HEED__SHAPE_TEXT];
  heed_status status = heed__check_dtype(ctx, function, argument, list, HEED_INT64);
  if (status != HEED_OK || (list->ndim == 1 && list->shape[0] == cache->batch)) return status;
  return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s; it must be [%lld], one for each batch item", function,
                    argument, heed__shape_text(text, list->ndim, list->shape), (long long)cache->batch);
}

/* ---- Truncating and reordering ---- */

/* Whether item i can be cut to n tokens, which are at most its length. */
static bool keeps_window(const heed_kv_cache *cache, int64_t i, int64_t n) {
  if (cache->prefix > 0) return n >= cache->prefix;
  return n == 0 || n == cache->lengths[i] || cache->dropped[i] == 0 ||
         n - cache->window_left >= cache->dropped[i];
}

static heed_status fail_cut(const heed_kv_cache *cache, int64_t i, const char *what, int64_t n) {
  if (cache->prefix > 0)
    return heed__fail(cache->context, HEED_ARGUMENT,
                      "truncate: %s is %lld; it must be at least %lld, the tokens of the shared prefix", what,
                      (long long)n, (long long)cache->prefix);
  return heed__fail(cache->context, HEED_ARGUMENT,
                    "truncate: %s is %lld; it must be at least %lld, or 0: the window would see tokens that "
                    "the cache has dropped",
                    what, (long long)n, (long long)(cache->dropped[i] + cache->window_left));
}

static void cut(heed_kv_cache *cache, int64_t i, int64_t n) {
  if (n == 0) cache->dropped[i] = 0; /* there is no prefix then */
  cache->lengths[i] = n;
}

static void end_cutting(heed_kv_cache *cache) {
  cache->length = 0;
  for (int64_t i = 0; i < cache->batch; i++) cache->length = heed__max(cache->length, cache->lengths[i]);
  cache->changes++;
}

static heed_status check_cut(const heed_kv_cache *cache, int64_t i, int64_t n) {
  if (n < 0 || n > cache->lengths[i]) {
    return heed__fail(cache->context, HEED_ARGUMENT,
                      "truncate: element %lld of lengths is %lld; it must be from 0 to %lld, the length of "
                      "that item",
                      (long long)i + 1, (long long)n, (long long)cache->lengths[i]);
  }
  if (keeps_window(cache, i, n)) return HEED_OK;
  char what[64];
  snprintf(what, sizeof what, "element %lld of lengths", (long long)i + 1);
  return fail_cut(cache, i, what, n);
}

heed_status heed__kv_cache_check_cut(const heed_kv_cache *cache, int64_t n, const heed_tensor *lengths) {
  if (lengths != NULL) {
    heed_status status = heed__kv_check_items(cache, "truncate", "lengths", lengths);
    for (int64_t i = 0; i < cache->batch && status == HEED_OK; i++)
      status = check_cut(cache, i, heed__int64_at(lengths, i));
    return status;
  }
  if (n < 0 || n > cache->length) {
    return heed__fail(cache->context, HEED_ARGUMENT,
                      "truncate: n is %lld; it must be from 0 to %lld, the length", (long long)n,
                      (long long)cache->length);
  }
  for (int64_t i = 0; i < cache->batch; i++) {
    if (n >= cache->lengths[i] || keeps_window(cache, i, n)) continue;
    return fail_cut(cache, i, "n", n);
  }
  return HEED_OK;
}

heed_status heed_kv_cache_truncate(heed_kv_cache *cache, int64_t n) {
  HEED__ENTER(heed_kv_cache_context(cache), "truncate", cache);
  const heed_status status = heed__kv_cache_check_cut(cache, n, NULL);
  if (status != HEED_OK) return status;
  for (int64_t i = 0; i < cache->batch; i++) cut(cache, i, heed__min(n, cache->lengths[i]));
  end_cutting(cache);
  return HEED_OK;
}

heed_status heed_kv_cache_truncate_items(heed_kv_cache *cache, const heed_tensor *lengths) {
  HEED__ENTER(heed_kv_cache_context(cache), "truncate", cache, lengths);
  const heed_status status = heed__kv_cache_check_cut(cache, 0, lengths);
  if (status != HEED_OK) return status;
  for (int64_t i = 0; i < cache->batch; i++) cut(cache, i, heed__int64_at(lengths, i));
  end_cutting(cache);
  return HEED_OK;
}

/* The item, from 0, that item i becomes a copy of. */
static int64_t source_of(const heed_tensor *indices, int64_t i) {
  return heed__int64_at(indices, i) - 1;
}

static heed_status check_batch_indices(const heed_kv_cache *cache, const heed_tensor *indices) {
  heed_status status = heed__kv_check_items(cache, "reorder", "indices", indices);
  if (status != HEED_OK) return status;
  for (int64_t i = 0; i < cache->batch; i++) {
    const int64_t source = source_of(indices, i);
    if (source >= 0 && source < cache->batch) continue;
    return heed__fail(cache->context, HEED_INDEX,
                      "reorder: element %lld of indices is %lld; it must be from 1 to %lld, the batch size",
                      (long long)(i + 1), (long long)(source + 1), (long long)cache->batch);
  }
  return HEED_OK;
}

/* Copies the elements of a list [batch] in the new order; the copy needs `batch` elements. */
static void reorder_list(int64_t *list, int64_t batch, const heed_tensor *indices, int64_t *copy) {
  memcpy(copy, list, (size_t)batch * sizeof *copy);
  for (int64_t i = 0; i < batch; i++) list[i] = copy[source_of(indices, i)];
}

/* Head by head, so that the temporary copy is small. */
heed_status heed_kv_cache_reorder(heed_kv_cache *cache, const heed_tensor *indices) {
  HEED__ENTER(heed_kv_cache_context(cache), "reorder", indices);
  heed_status status = check_batch_indices(cache, indices);
  if (status != HEED_OK) return status;
  size_t moved = 0;
  for (int64_t i = 0; i < cache->batch; i++)
    if (source_of(indices, i) != i) moved += (size_t)held_rows(cache, source_of(indices, i));
  status = heed__charge(cache->context, "reorder",
                        2 * ((double)cache->batch + (double)moved * row_elements(cache)) + 1);
  if (status != HEED_OK) return status;
  const size_t row =
      row_bytes(cache->part[HEED__KV_KEYS]); /* a scale may be larger than a short row in int8 */
  const size_t bytes =
      moved * (row > sizeof(float) ? row : sizeof(float)) + (size_t)cache->batch * sizeof(int64_t);
  char *copy = heed__allocate(cache->context, bytes);
  if (copy == NULL) return heed__fail_memory(cache->context, "reorder", bytes);
  for (int which = 0; which < HEED__KV_PARTS; which++) {
    const heed_tensor *part = cache->part[which];
    if (part == NULL) continue;
    const size_t element = heed__element_bytes(part->dtype), of_row = row_bytes(part);
    const size_t item = (size_t)part->stride[0] * element, head = (size_t)part->stride[1] * element;
    for (int64_t h = 0; h < cache->num_kv_heads; h++) {
      char *data = part->data + (size_t)h * head, *at = copy;
      for (int64_t i = 0; i < cache->batch; i++) {
        const int64_t source = source_of(indices, i);
        const size_t used = (size_t)held_rows(cache, source) * of_row;
        if (source != i && used > 0) memcpy(at, data + (size_t)source * item, used), at += used;
      }
      at = copy;
      for (int64_t i = 0; i < cache->batch; i++) {
        const int64_t source = source_of(indices, i);
        const size_t used = (size_t)held_rows(cache, source) * of_row;
        if (source != i && used > 0) memcpy(data + (size_t)i * item, at, used), at += used;
      }
    }
  }
  reorder_list(cache->lengths, cache->batch, indices, (int64_t *)(void *)copy);
  reorder_list(cache->dropped, cache->batch, indices, (int64_t *)(void *)copy);
  heed__release(cache->context, copy);
  end_cutting(cache);
  return HEED_OK;
}
