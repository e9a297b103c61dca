/* The maps of a call, with the kernels for products and rows: a block of q kᵀ is written to one of the
 * requested maps, and the others are computed from it row by row. The scalar attention kernel, which writes
 * the same maps, is the reference. */
#include "plan.h"

#include <math.h>
#include <string.h>

enum {
  MAP_ROWS = 192,       /* maximum rows of a block */
  MAP_SCORES = 1 << 16, /* maximum scores of a block, unless it has one row: they stay in the cache */
  MAP_WORK = 1 << 22,   /* maximum multiply-adds of a product, unless it is one row by MAP_KEYS keys */
  MAP_KEYS = 64,        /* minimum keys of a product, unless there are fewer */
  MAP_WIDENED = 1 << 16 /* maximum floats of widened keys, unless they are MAP_KEYS keys */
};

typedef heed__attention_task map_task;

static int64_t map_rows_of(const map_task *t) {
  const int64_t rows = MAP_SCORES / heed__max(t->key_length, 1);
  return heed__max(heed__min(rows, MAP_ROWS), 1);
}

/* The number of keys of a product. */
static int64_t map_keys_of(const map_task *t) {
  const int64_t d = heed__max(t->head_size, 1);
  int64_t keys = MAP_WORK / heed__min(d, MAP_WORK) / map_rows_of(t);
  if (t->k_dtype != HEED_FLOAT32) keys = heed__min(keys, MAP_WIDENED / heed__min(d, MAP_WIDENED));
  return heed__min(heed__max(keys, MAP_KEYS), heed__max(t->key_length, 1)); /* widened keys fit in memory */
}

/* A row of scores with the sink behind it. */
static size_t map_row_floats(const map_task *t) {
  const size_t line = HEED__ALIGNMENT / sizeof(float);
  return ((size_t)t->key_length + line) / line * line;
}

size_t heed__attention_maps_scratch(const heed__attention_task *t) {
  const int64_t keys = t->k_dtype == HEED_FLOAT32 ? 0 : map_keys_of(t);
  return map_row_floats(t) + (size_t)(keys * t->head_size);
}

/* ---- Products ---- */

/* Widens keys first…last-1 to rows of d floats. */
static void widen_keys(const heed__kernels *kernels, const map_task *t, int64_t first, int64_t last,
                       float *out) {
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(t->k_dtype);
  const int64_t d = t->head_size;
  for (int64_t j = first; j < last; j++, out += d) {
    const char *key = (const char *)t->k + j * t->k_row * bytes;
    if (t->k_column == 1)
      kernels->convert(HEED_FLOAT32, out, t->k_dtype, key, (size_t)d);
    else
      for (int64_t c = 0; c < d; c++)
        kernels->convert(HEED_FLOAT32, out + c, t->k_dtype, key + c * t->k_column * bytes, 1);
    if (t->k_scale) kernels->mul(out, out, 1, t->k_scale + j * t->k_scale_row, 0, (size_t)d);
  }
}

/* out [rows, s] = q kᵀ for `rows` queries from `query` on and keys first…last-1. */
static void multiply_keys(const heed__kernels *kernels, const map_task *t, int64_t query, int64_t rows,
                          int64_t first, int64_t last, float *widened, float *out) {
  const float *k = (const float *)t->k + (t->k_dtype == HEED_FLOAT32 ? first * t->k_row : 0);
  ptrdiff_t row = t->k_row, column = t->k_column;
  if (t->k_dtype != HEED_FLOAT32) {
    widen_keys(kernels, t, first, last, widened);
    k = widened;
    row = (ptrdiff_t)t->head_size;
    column = 1;
  }
  for (int64_t r = 0; t->head_size == 0 && r < rows; r++)
    for (int64_t j = first; j < last; j++) heed__attention_map_row(t, out, r)[j] = 0.0f;
  if (t->head_size == 0) return;
  (void)!kernels->gemm((size_t)rows, (size_t)(last - first), (size_t)t->head_size, t->q + query * t->q_row,
                       t->q_row, t->q_column, k, column, row, NULL, out + first,
                       (ptrdiff_t)(t->key_length + t->map_spare), NULL, NULL,
                       NULL); /* never stops without a pace */
}

/* ---- Rows ---- */

static void fill_keys(float *x, float value, int64_t first, int64_t last) {
  for (int64_t j = first; j < last; j++) x[j] = value;
}

static bool map_hides(const map_task *t, int64_t i, int64_t j) {
  return (t->intervals && heed__is_outside(heed__attention_intervals(t, i), t->interval_count, j)) ||
         (t->visible && !t->visible[i * t->visible_row + j * t->visible_column]) ||
         (t->padding && t->padding[j * t->padding_stride]) ||
         (t->bias && t->bias[i * t->bias_row + j * t->bias_column] == -INFINITY);
}

/* Sets x[j] to -inf where key j of first…last-1 is hidden from query i by a mask. Returns whether any key is
 * visible. */
static bool hide_masked(const map_task *t, int64_t i, int64_t first, int64_t last, float *x) {
  bool any = false;
  if (!t->intervals && !t->visible && !t->padding && !t->bias) return last > first;
  for (int64_t j = first; j < last; j++) {
    if (map_hides(t, i, j))
      x[j] = -INFINITY;
    else
      any = true;
  }
  return any;
}

static void cap_keys(const heed__kernels *kernels, float c, float *x, int64_t n) {
  kernels->div(x, x, 1, &c, 0, (size_t)n);
  kernels->tanh(x, x, (size_t)n);
  kernels->mul(x, x, 1, &c, 0, (size_t)n);
}

/* Turns the products of query i with keys first…last-1 into its row of all maps. `from` is the row of one of
 * them: the order makes sure that it is read before it is written. x has one element more than the row. */
static void map_row(const heed__kernels *kernels, const map_task *t, int64_t i, const float *from, float *x,
                    float *const map[HEED__TAP_MAPS], const float *keep) {
  const int64_t s = t->key_length;
  int64_t first, last;
  heed__attention_bounds(t, i, &first, &last);
  const int64_t n = last - first;
  float *scores = map[HEED__TAP_scores], *logits = map[HEED__TAP_logits];
  float *capped = map[HEED__TAP_capped_logits], *biased = map[HEED__TAP_biased_logits];
  kernels->mul(x + first, from + first, 1, &t->scale, 0, (size_t)n);
  if (t->softcap > 0.0f) cap_keys(kernels, t->softcap, x + first, n);
  if (t->bias)
    kernels->add(x + first, x + first, 1, t->bias + i * t->bias_row + first * t->bias_column, t->bias_column,
                 (size_t)n);
  for (int64_t j = first; t->slope != 0.0f && j < last; j++)
    x[j] -= t->slope * fabsf((float)(i + t->offset - j));
  const bool seen = hide_masked(t, i, first, last, x);
  if (capped) {
    kernels->mul(capped, from, 1, &t->scale, 0, (size_t)s);
    if (t->softcap > 0.0f) cap_keys(kernels, t->softcap, capped, s);
  }
  if (logits) kernels->mul(logits, from, 1, &t->scale, 0, (size_t)s);
  if (scores) {
    if (scores != from) memcpy(scores + first, from + first, (size_t)n * sizeof *x);
    (void)hide_masked(t, i, first, last, scores);
    fill_keys(scores, -INFINITY, 0, first);
    fill_keys(scores, -INFINITY, last, s);
  }
  if (biased) {
    memcpy(biased + first, x + first, (size_t)n * sizeof *x);
    fill_keys(biased, -INFINITY, 0, first);
    fill_keys(biased, -INFINITY, last, s);
  }
  float *weights = map[HEED__TAP_weights], *dropped = map[HEED__TAP_dropped_weights];
  if (!weights && !dropped) return;
  const bool any = seen && (t->has_sink || kernels->max(x + first, (size_t)n) != -INFINITY);
  if (!any) fill_keys(x, 0.0f, first, last);
  if (t->has_sink) x[last] = t->sink;
  if (any && !t->has_sink && weights) { /* without a copy */
    kernels->softmax(weights + first, x + first, (size_t)n);
    fill_keys(weights, 0.0f, 0, first);
    fill_keys(weights, 0.0f, last, s);
    x = weights;
  } else {
    if (any) kernels->softmax(x + first, x + first, (size_t)(n + t->has_sink));
    fill_keys(x, 0.0f, 0, first);
    fill_keys(x, 0.0f, last, s);
    if (weights) memcpy(weights, x, (size_t)s * sizeof *x);
  }
  if (dropped && keep)
    kernels->mul(dropped, x, 1, keep, 1, (size_t)s);
  else if (dropped)
    memcpy(dropped, x, (size_t)s * sizeof *x);
}

/* ---- Blocks ---- */

/* The map that first receives the products: the one that map_row writes last. */
static int products_of(float *const map[HEED__TAP_MAPS]) {
  static const int order[] = {HEED__TAP_dropped_weights, HEED__TAP_weights, HEED__TAP_biased_logits,
                              HEED__TAP_scores, HEED__TAP_logits};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++)
    if (map[order[i]]) return order[i];
  return HEED__TAP_capped_logits;
}

/* The number of rows of the maps from r on that are one block: of consecutive queries of the task. */
static int64_t block_rows(const map_task *t, const int64_t *queries, int64_t count, int64_t r) {
  const int64_t first = queries ? queries[r] : r, most = heed__min(map_rows_of(t), t->last - first);
  int64_t rows = 1;
  while (rows < most && r + rows < count && (!queries || queries[r + rows] == first + rows)) rows++;
  return rows;
}

/* A step is a product, or the rows of a block after its last product. The products of a block are kept in one
 * of the maps between its steps. The position counts the steps that all rows before would have. */
bool heed__attention_maps(const heed__kernels *kernels, const heed__attention_task *t, const int64_t *queries,
                          int64_t count, const heed__pace *pace, int64_t *position) {
  float *const map[HEED__TAP_MAPS] = {
      [HEED__TAP_scores] = t->scores,
      [HEED__TAP_weights] = t->weights,
      [HEED__TAP_dropped_weights] = t->dropped_weights,
      [HEED__TAP_logits] = t->logits,
      [HEED__TAP_capped_logits] = t->capped_logits,
      [HEED__TAP_biased_logits] = t->biased_logits,
  };
  const int products = products_of(map);
  const bool all = t->logits || t->capped_logits;
  const int64_t s = t->key_length, width = s + t->map_spare, keys = map_keys_of(t),
                steps = (s + keys - 1) / keys + 1;
  float *x = t->scratch, *widened = x + map_row_floats(t);
  int64_t r = *position / steps, step = *position % steps;
  if (!queries && r < t->first) r = t->first;
  while (r < count && (queries || r < t->last)) {
    const int64_t query = queries ? queries[r] : r;
    if (query < t->first || query >= t->last) {
      r++;
      continue;
    }
    const int64_t rows = block_rows(t, queries, count, r);
    int64_t first = 0, last = s;
    if (!all) heed__attention_hull(t, query, query + rows, &first, &last);
    if (step < steps - 1) {
      first = heed__max(first, step * keys);
      last = heed__min(last, ++step * keys);
      if (first >= last) continue;
      multiply_keys(kernels, t, query, rows, first, last, widened, map[products] + r * width);
    } else {
      for (int64_t i = 0; i < rows; i++) {
        float *row[HEED__TAP_MAPS];
        for (int m = 0; m < HEED__TAP_MAPS; m++) row[m] = map[m] ? map[m] + (r + i) * width : NULL;
        map_row(kernels, t, query + i, row[products], x, row,
                t->dropout_mask ? t->dropout_mask + (query + i - t->first) * s : NULL);
      }
      r += rows;
      step = 0;
    }
    if (heed__should_yield(pace)) {
      *position = r * steps + step;
      return false;
    }
  }
  return true;
}
