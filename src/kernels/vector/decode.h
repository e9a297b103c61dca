/* Attention of a few query rows on a long range of keys. It is bound by memory bandwidth, so keys and values
 * are read once, in place, in memory order.
 *
 * Keys are processed in blocks. For each block the runs of keys that a row sees are listed; rows with the
 * same list (mostly all) share the block, up to four rows at a time. Scores: lanes hold columns, and V_LANES
 * dot products (of one row with V_LANES keys, or of several rows with accordingly fewer) are summed across
 * lanes together. Then the row's maximum is updated and its output rescaled, and the weighted values of the
 * runs are added to it; weights are computed in between. A hidden value is never added, not even times 0.
 * Low-precision keys and values are widened when they are loaded; the scales of int8 multiply scores and
 * weights.
 *
 * Measured with keys larger than the caches (Zen 4, 33 GB/s): a list of single keys instead of runs cost a
 * quarter of the speed, prefetch instructions for one row a third. Sequential reads matter most. */
#include <float.h>

#include "decode_scores.h"

/* ---- Weights ---- */

/* p[j] *= scale[j · step]. Inline, as gcc 12 for Windows fails with an internal error otherwise. */
V_INLINE void scale_each(float *p, const float *scale, ptrdiff_t step, int64_t n) {
  for (int64_t j = 0; j < n; j++) p[j] *= scale[j * step];
}

/* Sets the elements of hidden keys after each run, and those that pad the last register. */
static void fill_hidden(const decode_work *w, float *p, float value) {
  for (int64_t i = 0; i < w->runs; i++) {
    const int64_t next = i + 1 < w->runs ? w->run[i + 1].first : w->keys + V_LANES - 1;
    for (int64_t j = w->run[i].last; j < next; j++) p[j] = value;
  }
}

/* Turns the scaled products of a row, in whole registers, into scores. */
static void bias_block(const decode_work *w, int r, float *p) {
  const heed__decode_task *t = w->task;
  const heed__decode_row *row = &t->row[r];
  const float *bias = row->bias ? row->bias + w->first * t->bias_column : NULL;
  if (row->k_scale) scale_each(p, row->k_scale + w->first * t->k_scale_row, t->k_scale_row, w->keys);
  const float inverse = 1.0f / t->softcap; /* unused without a cap */
  if (t->softcap > 0.0f) {
    fill_hidden(w, p, 0.0f); /* far from the cap, which is faster */
    for (int64_t j = 0; j < w->keys; j += V_LANES)
      v_store(p + j, cap_score(v_load(p + j), t->softcap, inverse));
  }
  for (int64_t j = 0; bias && j < w->keys; j++) p[j] += bias[j * t->bias_column];
  if (row->slope != 0.0f)
    for (int64_t j = 0; j < w->keys; j += V_LANES)
      v_store(p + j, slope_off(v_load(p + j), row->slope, row->position - w->first - j, 1.0f));
}

/* Turns the scaled products of a row into scores, -inf where hidden, updates its maximum, and rescales its
 * output so far. */
static void settle_block(const decode_work *w, int r) {
  const heed__decode_task *t = w->task;
  float *p = w->p + r * w->stride, *out = t->out + r * t->value_size;
  vfloat most = v_set(t->row_max[r]);
  bias_block(w, r, p);
  fill_hidden(w, p, -INFINITY);
  if (t->row[r].map) memcpy(t->row[r].map + w->first, p, (size_t)w->keys * sizeof *p);
  for (int64_t j = 0; j < w->keys; j += V_LANES)
    most = v_max(v_load(p + j), most); /* ignores nan, which reaches the sum */
  const float largest = v_highest(most);
  if (largest > t->row_max[r]) {
    float smaller[V_LANES];
    v_store(smaller, v_exp(v_set(t->row_max[r] - largest)));
    for (int64_t c = 0; c < t->value_size; c++) out[c] *= *smaller;
    t->row_sum[r] *= *smaller;
    t->row_max[r] = largest;
  }
}

/* Turns a row's scores up to key `until`, rounded up to whole registers, into weights; returns how many are
 * weights now. */
V_INLINE int64_t weigh_keys(decode_work *w, int r, int64_t until) {
  const vfloat largest = v_set(w->task->row_max[r]);
  float *p = w->p + r * w->stride;
  vfloat sum = v_load(w->sum[r]);
  int64_t j = w->weighed;
  for (; j < until; j += V_LANES) {
    const vfloat weight = v_exp(v_sub(v_load(p + j), largest));
    v_store(p + j, weight);
    sum = v_add(sum, weight);
  }
  v_store(w->sum[r], sum);
  return j;
}

static void weigh_rows(decode_work *w, int first_row, int last_row, int64_t until) {
  int64_t weighed = w->weighed;
  for (int r = first_row; r < last_row; r++) weighed = weigh_keys(w, r, until);
  w->weighed = weighed;
}

/* For int8 values: computes all weights of the block and multiplies them by the values' scales. */
static void weigh_scaled(decode_work *w, int first_row, int last_row) {
  const heed__decode_task *t = w->task;
  if (!t->row[first_row].v_scale) return;
  weigh_rows(w, first_row, last_row, w->keys);
  for (int r = first_row; r < last_row; r++)
    scale_each(w->p + r * w->stride, t->row[r].v_scale + w->first * t->v_scale_row, t->v_scale_row, w->keys);
}

/* ---- Values ---- */

/* Computes the weights of the keys that one row adds next, at most 16 from j on, and returns their end. Done
 * while values are being loaded, so that memory does not wait for exponentials. */
V_INLINE int64_t weigh_some(decode_work *w, int r, int64_t j, int64_t last) {
  const int64_t stop = last - j > 16 ? j + 16 : last;
  w->weighed = weigh_keys(w, r, stop);
  return stop;
}

/* out [rows, columns from c on] += p · v over the keys first…last-1 of a run: `width` registers of columns,
 * the last one masked by `tail` (NULL: whole). For one row two keys are added to each other before the sum,
 * whose latency would otherwise exceed that of memory (from the third-level cache: 85 instead of 64 GB/s),
 * and a whole tile computes its weights. */
V_INLINE void add_values(decode_work *w, const heed_dtype type, int rows, int width, int first_row,
                         int64_t first, int64_t last, int64_t c, const vmask *tail) {
  const heed__decode_task *t = w->task;
  const float *p = w->p + first_row * w->stride;
  const ptrdiff_t v_row = t->v_row;
  const int64_t left = t->value_size - c, stride = w->stride;
  const void *v = element_at(w->v, type, t->row[first_row].v + c);
  float *out = t->out + first_row * t->value_size + c;
  vfloat sum[DECODE_SUMS];
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    V_UNROLL
    for (int i = 0; i < width; i++) {
      const float *from = out + r * t->value_size + i * V_LANES;
      sum[r * width + i] = tail ? v_load_masked(from, *tail) : v_load(from);
    }
  }
  int64_t j = first;
  while (rows == 1 && !tail && j < last) {
    const int64_t stop = width == DECODE_TILE ? weigh_some(w, first_row, j, last) : last;
    for (; j + 2 <= stop; j += 2) {
      const vfloat weight = v_set(p[j]), next_weight = v_set(p[j + 1]);
      const void *value = element_at(v, type, j * v_row), *next_value = element_at(value, type, v_row);
      V_UNROLL
      for (int i = 0; i < width; i++) {
        const vfloat x = decode_load(value, type, i * V_LANES, NULL, 0);
        const vfloat y = decode_load(next_value, type, i * V_LANES, NULL, 0);
        sum[i] = v_add(sum[i], v_fma(next_weight, y, v_mul(weight, x)));
        DECODE_IN_ORDER;
      }
    }
    if (j < stop) break; /* a single last key */
  }
  for (; j < last; j++) {
    vfloat x[DECODE_SUMS];
    V_UNROLL
    for (int i = 0; i < width; i++) x[i] = decode_load(v, type, j * v_row + i * V_LANES, tail, left);
    DECODE_IN_ORDER;
    V_UNROLL
    for (int r = 0; r < rows; r++) {
      const vfloat weight = v_set(p[r * stride + j]);
      V_UNROLL
      for (int i = 0; i < width; i++) sum[r * width + i] = v_fma(weight, x[i], sum[r * width + i]);
    }
  }
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    V_UNROLL
    for (int i = 0; i < width; i++) {
      float *to = out + r * t->value_size + i * V_LANES;
      if (tail) {
        v_store_masked(to, sum[r * width + i], *tail);
      } else {
        v_store(to, sum[r * width + i]);
      }
    }
  }
}

/* All columns: tiles as wide as registers allow, then smaller ones. For one row less than a whole tile, which
 * would compute the weights that the caller has computed. */
V_INLINE void add_columns(decode_work *w, const heed_dtype type, int rows, int first_row, int64_t first,
                          int64_t last) {
  const int64_t dv = w->task->value_size;
  int64_t c = 0;
#define TILES(width)                                                                                         \
  if ((width) <= DECODE_TILE - (rows == 1) && (width)*rows <= DECODE_SUMS &&                                 \
      (type == HEED_FLOAT32 || (width)*rows == DECODE_SUMS || (width) == DECODE_TILE || (width) == 1))       \
    for (; c + (width)*V_LANES <= dv; c += (width)*V_LANES)                                                  \
      add_values(w, type, rows, width, first_row, first, last, c, NULL);
  TILES(16)
  TILES(8)
  TILES(4)
  TILES(2)
  TILES(1)
#undef TILES
  if (c < dv) {
    const vmask tail = v_first((size_t)(dv - c));
    add_values(w, type, rows, 1, first_row, first, last, c, &tail);
  }
}

/* One row with more columns than a tile: key by key in memory order, with the sums in the first-level cache
 * (128 columns, from memory: 1.4 ms; in tiles 1.9). */
V_INLINE void add_wide(decode_work *w, const heed_dtype type, int r, int64_t first, int64_t last) {
  const heed__decode_task *t = w->task;
  const float *p = w->p + r * w->stride;
  const ptrdiff_t v_row = t->v_row;
  const int64_t dv = t->value_size;
  const void *v = element_at(w->v, type, t->row[r].v + first * v_row);
  float *out = t->out + r * dv;
  for (int64_t j = first; j < last;) {
    const int64_t stop = weigh_some(w, r, j, last);
    for (; j < stop; j++, v = element_at(v, type, v_row)) {
      const vfloat weight = v_set(p[j]);
      int64_t c = 0;
      for (; c + DECODE_TILE * V_LANES <= dv; c += DECODE_TILE * V_LANES) {
        V_UNROLL
        for (int i = 0; i < DECODE_TILE; i++) {
          float *to = out + c + i * V_LANES;
          v_store(to, v_fma(weight, decode_load(v, type, c + i * V_LANES, NULL, 0), v_load(to)));
        }
      }
      for (; c + V_LANES <= dv; c += V_LANES)
        v_store(out + c, v_fma(weight, decode_load(v, type, c, NULL, 0), v_load(out + c)));
      if (c < dv) {
        const vmask tail = v_first((size_t)(dv - c));
        const vfloat x = decode_load(v, type, c, &tail, dv - c);
        v_store_masked(out + c, v_fma(weight, x, v_load_masked(out + c, tail)), tail);
      }
    }
  }
}

/* Adds the values of keys first…last-1 of a run to one row. */
V_INLINE void add_alone_of(decode_work *w, const heed_dtype type, int r, int64_t first, int64_t last) {
  const int64_t dv = w->task->value_size, tile = DECODE_TILE * V_LANES, stretch = stretch_of(dv);
  if (dv > tile) {
    add_wide(w, type, r, first, last);
    return;
  }
  if (dv == tile) {
    add_values(w, type, 1, DECODE_TILE, r, first, last, 0, NULL);
    return;
  }
  for (int64_t j = first, next; j < last; j = next) {
    next = j + stretch < last ? j + stretch : last;
    w->weighed = weigh_keys(w, r, next);
    add_columns(w, type, 1, r, j, next);
  }
}

DECODE_DTYPES(decode_row, add_alone_of, (decode_work * w, int r, int64_t first, int64_t last), r, first, last)
static void add_alone(decode_work *w, int r, int64_t first,
                      int64_t last){DECODE_CALL(decode_row, w->task->v_dtype, w, r, first, last)}

V_INLINE void add_block_of(decode_work *w, const heed_dtype type, int first_row, int last_row) {
  const heed__decode_task *t = w->task;
  const void *values = element_at(w->v, type, t->row[first_row].v);
  const bool shared = shares_keys(t, first_row, last_row);
  const int64_t stretch = stretch_of(t->value_size);
  if (last_row - first_row == 1) {
    for (int64_t i = 0; i < w->runs; i++) add_alone(w, first_row, w->run[i].first, w->run[i].last);
    return;
  }
  for (int64_t i = 0; i < w->runs; i++) {
    for (int64_t first = w->run[i].first, last; first < w->run[i].last; first = last) {
      last = first + stretch < w->run[i].last ? first + stretch : w->run[i].last;
      if (shared) prefetch_ahead(values, type, t->v_row, t->value_size, first, stretch, t->last - w->first);
      weigh_rows(w, first_row, last_row, last);
      for (int r = first_row, rows; r < last_row; r += rows) {
        rows = at_once(w->task, type, r, last_row);
        if (rows == 4)
          add_columns(w, type, 4, r, first, last);
        else if (rows == 2 && type == HEED_FLOAT32)
          add_columns(w, type, 2, r, first, last);
        else
          add_alone(w, r, first, last);
      }
    }
  }
}

DECODE_DTYPES(decode_values, add_block_of, (decode_work * w, int first_row, int last_row), first_row,
              last_row)
static void add_block(decode_work *w, int first_row, int last_row) {
  DECODE_CALL(decode_values, w->task->v_dtype, w, first_row, last_row)
}

/* ---- Blocks ---- */

static bool sees(const heed__decode_task *t, const heed__decode_row *row, int64_t j) {
  return !(row->intervals && heed__is_outside(row->intervals, row->interval_count, j)) &&
         (!row->visible || row->visible[j * t->visible_column]) &&
         (!t->padding || !t->padding[j * t->padding_stride]) &&
         (!row->bias || row->bias[j * t->bias_column] != -INFINITY);
}

/* Lists the runs of keys that a row sees among first…last-1, counted from `first`; returns their number. */
static int64_t find_runs(const heed__decode_task *t, int r, int64_t first, int64_t last, decode_run *run) {
  const heed__decode_row *row = &t->row[r];
  const int64_t from = row->first > first ? row->first : first, to = row->last < last ? row->last : last;
  int64_t runs = 0;
  const bool masked = row->visible || t->padding || row->bias;
  if (!masked && !row->intervals) {
    *run = (decode_run){(int32_t)(from - first), (int32_t)(to - first)};
    return to > from;
  }
  for (int64_t n = 0; !masked && n < row->interval_count; n++) {
    const int64_t begin = row->intervals[2 * n], end = row->intervals[2 * n + 1];
    if (end <= from || begin >= to || begin == end) continue;
    run[runs].first = (int32_t)((begin > from ? begin : from) - first);
    run[runs++].last = (int32_t)((end < to ? end : to) - first);
  }
  if (!masked) return runs;
  for (int64_t j = from; j < to; j++) {
    if (!sees(t, row, j)) continue;
    run[runs].first = (int32_t)(j - first);
    while (j < to && sees(t, row, j)) j++;
    run[runs++].last = (int32_t)(j - first);
  }
  return runs;
}

/* Whether two rows see the same keys of first…last-1, by their bounds and masks alone. */
static bool see_alike(const heed__decode_row *a, const heed__decode_row *b, int64_t first, int64_t last) {
  return a->visible == b->visible && a->bias == b->bias && a->intervals == b->intervals &&
         (a->first == b->first || (a->first <= first && b->first <= first)) &&
         (a->last == b->last || (a->last >= last && b->last >= last));
}

static void do_block(decode_work *w, int64_t first, int first_row, int last_row, decode_run *run) {
  const heed__decode_task *t = w->task;
  const int32_t start = run[0].first;
  w->first = first + start;
  w->keys = run[w->runs - 1].last - start;
  w->k = element_at(t->k, t->k_dtype, w->first * t->k_row);
  w->v = element_at(t->v, t->v_dtype, w->first * t->v_row);
  w->run = run;
  for (int64_t i = 0; i < w->runs; i++) {
    run[i].first -= start;
    run[i].last -= start;
  }
  score_block(w, first_row, last_row);
  for (int r = first_row; r < last_row; r++) settle_block(w, r);
  w->weighed = 0;
  memset(w->sum[first_row], 0, (size_t)(last_row - first_row) * sizeof w->sum[0]);
  weigh_scaled(w, first_row, last_row);
  add_block(w, first_row, last_row);
  for (int r = first_row; r < last_row; r++) t->row_sum[r] += v_sum(v_load(w->sum[r]));
}

/* A step is a block of keys; between steps the sums are in the task's results. */
bool KERNEL(decode)(const heed__decode_task *t, const heed__pace *pace, int64_t *position) {
#if V_LANES == 16
  /* With one row per head the kernel is bound by memory, which is read faster by half cache lines: 30 GB/s
   * instead of 22. */
  if (t->rows == 1 || t->row[1].k != t->row[0].k) return heed__kernels_avx2.decode(t, pace, position);
#endif
  decode_run runs[2][(HEED__DECODE_BLOCK + HEED__DECODE_SPARE) / 2];
  decode_work w = {.task = t, .p = t->scores, .stride = t->block + HEED__DECODE_SPARE};
  const int64_t before = position ? *position : 0;
  for (int r = 0; !before && r < t->rows; r++) {
    t->row_max[r] = -FLT_MAX;
    t->row_sum[r] = 0.0f;
  }
  for (int64_t i = 0; !before && i < t->rows * t->value_size; i++) t->out[i] = 0.0f;
  for (int64_t first = t->first + before, last; first < t->last; first = last) {
    last = t->last - first > t->block + V_LANES ? first + t->block : t->last;
    for (int r = 0, next; r < t->rows; r = next) {
      w.runs = find_runs(t, r, first, last, runs[0]);
      for (next = r + 1; next < t->rows; next++) {
        if (see_alike(&t->row[r], &t->row[next], first, last)) continue;
        const int64_t count = find_runs(t, next, first, last, runs[1]);
        if (count != w.runs || memcmp(runs[0], runs[1], (size_t)count * sizeof *runs[0]) != 0) break;
      }
      if (w.runs > 0) do_block(&w, first, r, next, runs[0]);
    }
    if (last < t->last && heed__should_yield(pace)) {
      *position = last - t->first;
      return false;
    }
  }
  return true;
}
