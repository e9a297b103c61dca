/* Attention of a few query rows on a long range of keys, written on the vector primitives: bound by the speed
 * of memory, so keys and values are read once, in place, row after row.
 *
 * Keys go by blocks. Of a block the runs of keys that a row sees are listed; rows with the same list (all of
 * them, mostly) go through it together, up to four at a time. Scores: columns in lanes, V_LANES dot products
 * at a time (of one row with V_LANES keys, or of more rows with as many fewer), summed across lanes together.
 * Then the softmax of the block, and the values of the runs, weighted and added to the row's output, which is
 * rescaled when the row's maximum grows. So what a row does not see is never added to it, not even times 0.
 * Keys and values that are stored small are widened as they are loaded; the scales of int8 go to the scores
 * and the weights.
 *
 * Measured on keys beyond the caches (Zen 4, of 33 GB/s): looking each key up in a list cost a quarter of the
 * speed, and instructions that prefetch a third; what counts is to read row after row. */
#include <float.h>

#include "body_widen.h"

enum {
  DECODE_BLOCK = 256,                       /* keys, and up to V_LANES more in the last */
  DECODE_ROOM = DECODE_BLOCK + 2 * V_LANES, /* for a block's scores, rounded up to whole registers */
  DECODE_STRETCH = 1024,                    /* floats read before other columns or rows come to them */
  DECODE_TILE = 64 / V_LANES,               /* registers that hold 64 columns */
  DECODE_QUERY = V_LANES == 8 ? 8 : 4,      /* registers for columns of queries, of 16 or 32 */
  DECODE_SUMS = V_LANES == 8 ? 8 : 16       /* registers for sums of values */
};

/* Loads before this come before those after it. The processor foresees rows that are read in order; where the
 * compiler had shuffled the loads of 16 rows, a third of the speed was lost. */
#define DECODE_IN_ORDER __asm__ volatile("" ::: "memory")

typedef struct decode_run {
  int32_t first, last; /* keys first…last-1, counted from the first of the block */
} decode_run;

/* What rows do with a block. */
typedef struct decode_work {
  const heed__decode_task *task;
  int64_t first;         /* the first key that is seen, */
  int64_t keys;          /* how many there are from that to the last one seen, */
  const void *k, *v;     /* and its place */
  const decode_run *run; /* of keys seen, counted from the first */
  int64_t runs;
  float *p; /* [rows, DECODE_ROOM]: of all these keys the scores, then the weights */
} decode_work;

/* V_LANES elements from `at` on; with `tail` the first `left` of them. */
V_INLINE vfloat decode_load(const void *x, const heed_dtype type, int64_t at, const vmask *tail,
                            int64_t left) {
  const void *p = element_at(x, type, at);
  if (!tail) return load_stored(p, type);
  return type == HEED_FLOAT32 ? v_load_masked(p, *tail) : load_stored_first(p, type, (size_t)left);
}

/* How many rows of n floats make a stretch. */
static int64_t stretch_of(int64_t n) {
  return n < DECODE_STRETCH / 8 ? DECODE_STRETCH / (n > 0 ? n : 1) : 8;
}

/* How many of the rows from r on go together: 4, 2 or 1 that share their keys. (Of small dtypes not 2, nor
 * all widths below: less code.) */
static int at_once(const heed__decode_task *t, heed_dtype type, int r, int last_row) {
  int rows = last_row - r >= 4 ? 4 : last_row - r >= 2 ? 2 : 1;
  while (rows > 1 && (t->row[r + rows - 1].k != t->row[r].k || t->row[r + rows - 1].v != t->row[r].v))
    rows /= 2;
  return rows == 2 && type != HEED_FLOAT32 ? 1 : rows;
}

/* ---- Scores ---- */

/* Products of `width` registers of columns from c on, the last one masked if `tail` is set. */
V_INLINE void add_products(vfloat sum[V_LANES], int rows, int width, const float *const *q, const void *k,
                           const heed_dtype type, ptrdiff_t k_row, int64_t c, const vmask *tail,
                           int64_t left) {
  const int keys = V_LANES / rows;
  vfloat x[DECODE_QUERY];
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    V_UNROLL
    for (int i = 0; i < width; i++) {
      const float *p = q[r] + c + i * V_LANES;
      x[r * width + i] = tail ? v_load_masked(p, *tail) : v_load(p);
    }
  }
  V_UNROLL
  for (int j = 0; j < keys; j++) {
    V_UNROLL
    for (int i = 0; i < width; i++) {
      const vfloat y = decode_load(k, type, j * k_row + c + i * V_LANES, tail, left);
      V_UNROLL
      for (int r = 0; r < rows; r++) sum[r * keys + j] = v_fma(x[r * width + i], y, sum[r * keys + j]);
    }
    DECODE_IN_ORDER;
  }
}

/* The scores of `rows` rows (1, 2 or 4) with V_LANES / rows keys from `at` on, `k_row` apart. */
V_INLINE void score_keys(const decode_work *w, const heed_dtype type, int rows, int first_row, int64_t at,
                         ptrdiff_t k_row) {
  const heed__decode_task *t = w->task;
  const int keys = V_LANES / rows, width = DECODE_QUERY / rows;
  const float *q[4];
  const void *k = element_at(w->k, type, t->row[first_row].k + at * t->k_row);
  vfloat sum[V_LANES];
  V_UNROLL
  for (int r = 0; r < rows; r++) q[r] = t->row[first_row + r].q;
  V_UNROLL
  for (int i = 0; i < V_LANES; i++) sum[i] = v_zero();
  int64_t c = 0;
  for (; c + width * V_LANES <= t->d; c += width * V_LANES)
    add_products(sum, rows, width, q, k, type, k_row, c, NULL, 0);
  for (; c + V_LANES <= t->d; c += V_LANES) add_products(sum, rows, 1, q, k, type, k_row, c, NULL, 0);
  if (c < t->d) {
    const vmask tail = v_first((size_t)(t->d - c));
    add_products(sum, rows, 1, q, k, type, k_row, c, &tail, t->d - c);
  }
  float score[V_LANES];
  v_store(score, v_mul(v_sums(sum), v_set(t->scale)));
  V_UNROLL
  for (int r = 0; r < rows; r++)
    memcpy(w->p + (first_row + r) * DECODE_ROOM + at, score + r * keys, (size_t)keys * sizeof *score);
}

/* Those with the keys first…last-1. The last ones go with some from before them, a few alone by themselves.
 */
V_INLINE void score_stretch(const decode_work *w, const heed_dtype type, int rows, int first_row,
                            int64_t first, int64_t last) {
  const int64_t keys = V_LANES / rows;
  const bool alone = w->keys < keys;
  const int64_t step = alone ? 1 : keys, latest = w->keys - step;
  for (int64_t at = first; at < last; at += step)
    score_keys(w, type, rows, first_row, at < latest ? at : latest, alone ? 0 : w->task->k_row);
}

V_INLINE void score_block(const decode_work *w, const heed_dtype type, int first_row, int last_row) {
  const int64_t stretch = (stretch_of(w->task->d) + V_LANES - 1) / V_LANES * V_LANES;
  for (int64_t first = 0; first < w->keys; first += stretch) {
    const int64_t last = first + stretch < w->keys ? first + stretch : w->keys;
    for (int r = first_row, rows; r < last_row; r += rows) {
      rows = at_once(w->task, type, r, last_row);
      if (rows == 4)
        score_stretch(w, type, 4, r, first, last);
      else if (rows == 2 && type == HEED_FLOAT32)
        score_stretch(w, type, 2, r, first, last);
      else
        score_stretch(w, type, 1, r, first, last);
    }
  }
}

/* ---- Weights ---- */

/* p[j] *= scale[j · step] */
static void scale_each(float *p, const float *scale, ptrdiff_t step, int64_t n) {
  for (int64_t j = 0; j < n; j++) p[j] *= scale[j * step];
}

/* The scaled products of a row, whole registers, become scores. */
static void bias_block(const decode_work *w, int r, float *p) {
  const heed__decode_task *t = w->task;
  const heed__decode_row *row = &t->row[r];
  const float *bias = row->bias ? row->bias + w->first * t->bias_column : NULL;
  if (row->k_scale) scale_each(p, row->k_scale + w->first * t->k_scale_row, t->k_scale_row, w->keys);
  const float inverse = 1.0f / t->softcap; /* used where there is a cap */
  if (t->softcap > 0.0f)
    for (int64_t j = 0; j < w->keys; j += V_LANES)
      v_store(p + j, cap_score(v_load(p + j), t->softcap, inverse));
  for (int64_t j = 0; bias && j < w->keys; j++) p[j] += bias[j * t->bias_column];
  if (row->slope != 0.0f)
    for (int64_t j = 0; j < w->keys; j += V_LANES)
      v_store(p + j, slope_off(v_load(p + j), row->slope, row->place - w->first - j, 1.0f));
}

/* The scaled products of a row become weights; its earlier output is made to fit. */
static void weigh_block(const decode_work *w, int r) {
  const heed__decode_task *t = w->task;
  const heed__decode_row *row = &t->row[r];
  float *p = w->p + r * DECODE_ROOM, *out = t->out + r * t->dv;
  vfloat most = v_set(t->largest[r]), sum = v_zero();
  bias_block(w, r, p);
  for (int64_t i = 0; i < w->runs; i++) { /* what is hidden behind a run */
    const int64_t next = i + 1 < w->runs ? w->run[i + 1].first : w->keys + V_LANES - 1;
    for (int64_t j = w->run[i].last; j < next; j++) p[j] = -INFINITY;
  }
  for (int64_t j = 0; j < w->keys; j += V_LANES)
    most = v_max(v_load(p + j), most); /* drops nan: the sum will have it */
  const float largest = v_highest(most);
  for (int64_t j = 0; j < w->keys; j += V_LANES) {
    const vfloat weight = v_exp(v_sub(v_load(p + j), v_set(largest)));
    v_store(p + j, weight);
    sum = v_add(sum, weight);
  }
  if (largest > t->largest[r]) {
    float smaller[V_LANES];
    v_store(smaller, v_exp(v_set(t->largest[r] - largest)));
    for (int64_t c = 0; c < t->dv; c++) out[c] *= *smaller;
    t->sum[r] *= *smaller;
    t->largest[r] = largest;
  }
  t->sum[r] += v_sum(sum);
  if (row->v_scale) scale_each(p, row->v_scale + w->first * t->v_scale_row, t->v_scale_row, w->keys);
}

/* ---- Values ---- */

/* out [rows, columns from c on] += p · v over the keys first…last-1 of a run: `width` registers of
 * columns, the last one masked if `tail` is set. `depth` keys are added side by side, so as not to wait for
 * each sum. */
V_INLINE void add_values(const decode_work *w, const heed_dtype type, int rows, int width, int first_row,
                         int64_t first, int64_t last, int64_t c, const vmask *tail) {
  const heed__decode_task *t = w->task;
  const int sums = rows * width, depth = DECODE_SUMS / 2 > sums ? DECODE_SUMS / 2 / sums : 1;
  const float *p = w->p + first_row * DECODE_ROOM;
  const void *v = element_at(w->v, type, t->row[first_row].v + c);
  float *out = t->out + first_row * t->dv + c;
  vfloat sum[DECODE_SUMS];
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    V_UNROLL
    for (int i = 0; i < width; i++) {
      const float *from = out + r * t->dv + i * V_LANES;
      sum[r * width + i] = tail ? v_load_masked(from, *tail) : v_load(from);
    }
  }
  V_UNROLL
  for (int i = sums; i < depth * sums; i++) sum[i] = v_zero();
  int64_t j = first;
#define ADD(at)                                                                                              \
  {                                                                                                          \
    const int64_t from = (j + (at)) * t->v_row;                                                              \
    vfloat x[DECODE_SUMS];                                                                                   \
    V_UNROLL                                                                                                 \
    for (int i = 0; i < width; i++) x[i] = decode_load(v, type, from + i * V_LANES, tail, t->dv - c);        \
    DECODE_IN_ORDER;                                                                                         \
    V_UNROLL                                                                                                 \
    for (int r = 0; r < rows; r++) {                                                                         \
      const vfloat weight = v_set(p[r * DECODE_ROOM + j + (at)]);                                            \
      V_UNROLL                                                                                               \
      for (int i = 0; i < width; i++) {                                                                      \
        vfloat *to = &sum[(at)*sums + r * width + i];                                                        \
        *to = v_fma(weight, x[i], *to);                                                                      \
      }                                                                                                      \
    }                                                                                                        \
  }
  for (; j + depth <= last; j += depth) {
    V_UNROLL
    for (int k = 0; k < depth; k++) ADD(k)
  }
  for (; j < last; j++) ADD(0)
#undef ADD
  V_UNROLL
  for (int i = sums; i < depth * sums; i++) sum[i % sums] = v_add(sum[i % sums], sum[i]);
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    V_UNROLL
    for (int i = 0; i < width; i++) {
      float *to = out + r * t->dv + i * V_LANES;
      if (tail) {
        v_store_masked(to, sum[r * width + i], *tail);
      } else {
        v_store(to, sum[r * width + i]);
      }
    }
  }
}

/* All columns: tiles as wide as registers allow, then ever narrower ones. */
V_INLINE void add_columns(const decode_work *w, const heed_dtype type, int rows, int first_row, int64_t first,
                          int64_t last) {
  const int64_t dv = w->task->dv;
  int64_t c = 0;
#define TILES(width)                                                                                         \
  if ((width) <= DECODE_TILE && (width)*rows <= DECODE_SUMS &&                                               \
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

V_INLINE void add_block(const decode_work *w, const heed_dtype type, int first_row, int last_row) {
  const int64_t stretch = stretch_of(w->task->dv);
  for (int64_t i = 0; i < w->runs; i++) {
    for (int64_t first = w->run[i].first, last; first < w->run[i].last; first = last) {
      last = first + stretch < w->run[i].last ? first + stretch : w->run[i].last;
      for (int r = first_row, rows; r < last_row; r += rows) {
        rows = at_once(w->task, type, r, last_row);
        if (rows == 4)
          add_columns(w, type, 4, r, first, last);
        else if (rows == 2 && type == HEED_FLOAT32)
          add_columns(w, type, 2, r, first, last);
        else
          add_columns(w, type, 1, r, first, last);
      }
    }
  }
}

/* ---- Blocks ---- */

static bool sees(const heed__decode_task *t, const heed__decode_row *row, int64_t j) {
  return (!row->visible || row->visible[j * t->visible_column]) &&
         (!t->padding || !t->padding[j * t->padding_stride]) &&
         (!row->bias || row->bias[j * t->bias_column] != -INFINITY);
}

/* Lists the runs of the keys first…last-1 that a row sees, counted from `first`; returns how many. */
static int64_t find_runs(const heed__decode_task *t, int r, int64_t first, int64_t last, decode_run *run) {
  const heed__decode_row *row = &t->row[r];
  const int64_t from = row->first > first ? row->first : first, to = row->last < last ? row->last : last;
  int64_t runs = 0;
  if (!row->visible && !t->padding && !row->bias) {
    *run = (decode_run){(int32_t)(from - first), (int32_t)(to - first)};
    return to > from;
  }
  for (int64_t j = from; j < to; j++) {
    if (!sees(t, row, j)) continue;
    run[runs].first = (int32_t)(j - first);
    while (j < to && sees(t, row, j)) j++;
    run[runs++].last = (int32_t)(j - first);
  }
  return runs;
}

/* Whether nothing can make two rows see other keys of first…last-1. */
static bool see_alike(const heed__decode_row *a, const heed__decode_row *b, int64_t first, int64_t last) {
  return a->visible == b->visible && a->bias == b->bias &&
         (a->first == b->first || (a->first <= first && b->first <= first)) &&
         (a->last == b->last || (a->last >= last && b->last >= last));
}

/* Each dtype as a constant, in a function of its own: compilers take several times as long for all of them in
 * one. */
static __attribute__((noinline)) void decode_score_float32(const decode_work *w, int first_row,
                                                           int last_row) {
  score_block(w, HEED_FLOAT32, first_row, last_row);
}
static __attribute__((noinline)) void decode_score_bfloat16(const decode_work *w, int first_row,
                                                            int last_row) {
  score_block(w, HEED_BFLOAT16, first_row, last_row);
}
static __attribute__((noinline)) void decode_score_float16(const decode_work *w, int first_row,
                                                           int last_row) {
  score_block(w, HEED_FLOAT16, first_row, last_row);
}
static __attribute__((noinline)) void decode_score_int8(const decode_work *w, int first_row, int last_row) {
  score_block(w, HEED_INT8, first_row, last_row);
}
static __attribute__((noinline)) void decode_add_float32(const decode_work *w, int first_row, int last_row) {
  add_block(w, HEED_FLOAT32, first_row, last_row);
}
static __attribute__((noinline)) void decode_add_bfloat16(const decode_work *w, int first_row, int last_row) {
  add_block(w, HEED_BFLOAT16, first_row, last_row);
}
static __attribute__((noinline)) void decode_add_float16(const decode_work *w, int first_row, int last_row) {
  add_block(w, HEED_FLOAT16, first_row, last_row);
}
static __attribute__((noinline)) void decode_add_int8(const decode_work *w, int first_row, int last_row) {
  add_block(w, HEED_INT8, first_row, last_row);
}

static void decode_score(const decode_work *w, int first_row, int last_row) {
  switch (w->task->k_dtype) {
  case HEED_BFLOAT16: decode_score_bfloat16(w, first_row, last_row); break;
  case HEED_FLOAT16: decode_score_float16(w, first_row, last_row); break;
  case HEED_INT8: decode_score_int8(w, first_row, last_row); break;
  default: decode_score_float32(w, first_row, last_row);
  }
}

static void decode_add(const decode_work *w, int first_row, int last_row) {
  switch (w->task->v_dtype) {
  case HEED_BFLOAT16: decode_add_bfloat16(w, first_row, last_row); break;
  case HEED_FLOAT16: decode_add_float16(w, first_row, last_row); break;
  case HEED_INT8: decode_add_int8(w, first_row, last_row); break;
  default: decode_add_float32(w, first_row, last_row);
  }
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
  decode_score(w, first_row, last_row);
  for (int r = first_row; r < last_row; r++) weigh_block(w, r);
  decode_add(w, first_row, last_row);
}

/* A step is a block of keys; the sums so far are in the task's results. */
static bool k_decode(const heed__decode_task *t, const heed__pace *pace, int64_t *position) {
#if V_LANES == 16
  /* One row a head waits for memory alone, which comes faster by halves of lines: 30 GB/s, against 22. */
  if (t->rows == 1 || t->row[1].k != t->row[0].k) return heed__kernels_avx2.decode(t, pace, position);
#endif
  float p[HEED__DECODE_ROWS * DECODE_ROOM];
  decode_run runs[2][DECODE_ROOM / 2];
  decode_work w = {.task = t, .p = p};
  const int64_t before = position ? *position : 0;
  for (int r = 0; !before && r < t->rows; r++) {
    t->largest[r] = -FLT_MAX;
    t->sum[r] = 0.0f;
  }
  for (int64_t i = 0; !before && i < t->rows * t->dv; i++) t->out[i] = 0.0f;
  for (int64_t first = t->first + before, last; first < t->last; first = last) {
    last = t->last - first > DECODE_BLOCK + V_LANES ? first + DECODE_BLOCK : t->last;
    for (int r = 0, next; r < t->rows; r = next) {
      w.runs = find_runs(t, r, first, last, runs[0]);
      for (next = r + 1; next < t->rows; next++) {
        if (see_alike(&t->row[r], &t->row[next], first, last)) continue;
        const int64_t count = find_runs(t, next, first, last, runs[1]);
        if (count != w.runs || memcmp(runs[0], runs[1], (size_t)count * sizeof *runs[0]) != 0) break;
      }
      if (w.runs > 0) do_block(&w, first, r, next, runs[0]);
    }
    if (last < t->last && heed__leaves(pace)) {
      *position = last - t->first;
      return false;
    }
  }
  return true;
}
