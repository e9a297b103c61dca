/* The data of the kernel for few queries on many keys (decode.h), and its first step: the scores of a block's
 * keys, which are read in memory order. */
#ifndef HEED_VECTOR_DECODE_SCORES_H
#define HEED_VECTOR_DECODE_SCORES_H

#include "widen.h"

enum {
  DECODE_PREDICTED = 256,              /* bytes of a row that the processor prefetches itself */
  DECODE_STRETCH = 1024,               /* floats of keys that all rows use before the next ones */
  DECODE_TILE = 64 / V_LANES,          /* registers that hold 64 columns */
  DECODE_QUERY = V_LANES == 8 ? 8 : 4, /* registers for columns of queries, out of 16 or 32 */
  DECODE_SUMS = V_LANES == 8 ? 8 : 16  /* registers for sums of values */
};

_Static_assert(2 * V_LANES <= HEED__DECODE_SPARE, "the longest last block, in whole registers, fits");

/* A compiler barrier: the processor prefetches rows that are read in order, and where the compiler reordered
 * the loads of 16 rows, a third of the speed was lost. */
#define DECODE_IN_ORDER __asm__ volatile("" ::: "memory")

typedef struct decode_run {
  int32_t first, last; /* keys first…last-1, counted from the first of the block */
} decode_run;

/* The current block. */
typedef struct decode_work {
  const heed__decode_task *task;
  int64_t first;         /* the first visible key */
  int64_t keys;          /* from the first to the last visible key */
  const void *k, *v;     /* of the first visible key */
  const decode_run *run; /* runs of visible keys, counted from the first */
  int64_t runs;
  float *p;                              /* [rows, stride]: the scores of all these keys, then the weights */
  int64_t stride;                        /* at least a block's keys, in whole registers */
  int64_t weighed;                       /* number of scores that are weights already */
  float sum[HEED__DECODE_ROWS][V_LANES]; /* of these weights */
} decode_work;

/* V_LANES elements from `at` on; with `tail` only the first `left`, the lanes of the mask. */
V_INLINE vfloat decode_load(const void *x, const heed_dtype type, int64_t at, const vmask *tail,
                            int64_t left) {
  const void *p = element_at(x, type, at);
  if (!tail) return load_stored(p, type);
  return type == HEED_FLOAT32 ? v_load_masked(p, *tail) : load_stored_first(p, type, (size_t)left);
}

/* DECODE_DTYPES defines a function for each dtype, which is a constant in `body` (one function for all takes
 * several times as long to compile); DECODE_CALL calls the one for `type`. */
#define DECODE_DTYPE(name, body, dtype, type, parameters, ...)                                               \
  static __attribute__((noinline)) void V_NAME(name##_##dtype) parameters {                                  \
    body(w, type, __VA_ARGS__);                                                                              \
  }
#define DECODE_DTYPES(name, body, parameters, ...)                                                           \
  DECODE_DTYPE(name, body, float32, HEED_FLOAT32, parameters, __VA_ARGS__)                                   \
  DECODE_DTYPE(name, body, bfloat16, HEED_BFLOAT16, parameters, __VA_ARGS__)                                 \
  DECODE_DTYPE(name, body, float16, HEED_FLOAT16, parameters, __VA_ARGS__)                                   \
  DECODE_DTYPE(name, body, int8, HEED_INT8, parameters, __VA_ARGS__)
#define DECODE_CALL(name, type, ...)                                                                         \
  switch (type) {                                                                                            \
  case HEED_BFLOAT16: V_NAME(name##_bfloat16)(__VA_ARGS__); break;                                           \
  case HEED_FLOAT16: V_NAME(name##_float16)(__VA_ARGS__); break;                                             \
  case HEED_INT8: V_NAME(name##_int8)(__VA_ARGS__); break;                                                   \
  default: V_NAME(name##_float32)(__VA_ARGS__);                                                              \
  }

/* Rows of n floats in a stretch. */
static int64_t stretch_of(int64_t n) {
  return n < DECODE_STRETCH / 8 ? DECODE_STRETCH / (n > 0 ? n : 1) : 8;
}

/* How many rows from r on are done together: 4, 2 or 1 that share their keys. (Low-precision dtypes have no
 * code for 2, nor for all widths below, to limit code size.) */
static int at_once(const heed__decode_task *t, heed_dtype type, int r, int last_row) {
  int rows = last_row - r >= 4 ? 4 : last_row - r >= 2 ? 2 : 1;
  while (rows > 1 && (t->row[r + rows - 1].k != t->row[r].k || t->row[r + rows - 1].v != t->row[r].v))
    rows /= 2;
  return rows == 2 && type != HEED_FLOAT32 ? 1 : rows;
}

/* Whether rows first_row…last_row-1 are several that share their keys. */
static bool shares_keys(const heed__decode_task *t, int first_row, int last_row) {
  return last_row - first_row > 1 && t->row[last_row - 1].k == t->row[first_row].k;
}

/* Prefetches the keys or values of the stretch after the next one; the current one begins at key `first`,
 * keys end before `end`. Used where several rows share keys: they read wide keys in pieces, which the
 * processor does not predict (4 rows of 128 columns, from memory: 2.7 instead of 3.8 ms), unlike short ones.
 */
V_INLINE void prefetch_ahead(const void *x, const heed_dtype type, ptrdiff_t row, int64_t columns,
                             int64_t first, int64_t stretch, int64_t end) {
  const int64_t line = 64, last = first + 3 * stretch < end ? first + 3 * stretch : end;
  if (columns * (int64_t)heed__element_bytes(type) <= DECODE_PREDICTED) return;
  for (int64_t j = first + 2 * stretch; j < last; j++) {
    const char *p = element_at(x, type, j * row), *after = element_at(p, type, columns);
    for (; p < after; p += line) __builtin_prefetch(p, 0, 2);
  }
}

/* ---- Scores ---- */

/* Adds the products of `width` registers of columns from c on, the last one masked by `tail` (NULL: whole).
 */
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
      const vfloat y = decode_load(k, type, c + i * V_LANES, tail, left);
      V_UNROLL
      for (int r = 0; r < rows; r++) sum[r * keys + j] = v_fma(x[r * width + i], y, sum[r * keys + j]);
    }
    k = element_at(k, type, k_row);
    DECODE_IN_ORDER;
  }
}

/* The product of a query and a key, as V_LANES partial sums. */
V_INLINE vfloat multiply_row(const float *q, const void *k, const heed_dtype type, int64_t d) {
  vfloat even = v_zero(), odd = v_zero();
  int64_t c = 0;
#define ADD(sum, at) sum = v_fma(v_load(q + (at)), decode_load(k, type, at, NULL, 0), sum);
  for (; c + DECODE_TILE * V_LANES <= d; c += DECODE_TILE * V_LANES) {
    V_UNROLL
    for (int i = 0; i < DECODE_TILE; i += 2) {
      ADD(even, c + i * V_LANES)
      ADD(odd, c + (i + 1) * V_LANES)
    }
  }
  for (; c + V_LANES <= d; c += V_LANES) ADD(even, c)
#undef ADD
  if (c < d) {
    const vmask tail = v_first((size_t)(d - c));
    odd = v_fma(v_load_masked(q + c, tail), decode_load(k, type, c, &tail, d - c), odd);
  }
  return v_add(even, odd);
}

/* The products of a query and V_LANES keys, key by key in memory order. */
V_INLINE void multiply_rows(vfloat sum[V_LANES], const float *q, const void *k, const heed_dtype type,
                            ptrdiff_t k_row, int64_t d) {
  V_UNROLL
  for (int i = 0; i < V_LANES; i++) {
    sum[i] = multiply_row(q, k, type, d);
    k = element_at(k, type, k_row);
    DECODE_IN_ORDER;
  }
}

/* The products of `rows` queries and V_LANES / rows keys, with as many columns at a time as registers allow.
 */
V_INLINE void add_all_products(vfloat sum[V_LANES], int rows, const float *const *q, const void *k,
                               const heed_dtype type, ptrdiff_t k_row, int64_t d) {
  const int width = DECODE_QUERY / rows;
  int64_t c = 0;
  V_UNROLL
  for (int i = 0; i < V_LANES; i++) sum[i] = v_zero();
  for (; c + width * V_LANES <= d; c += width * V_LANES)
    add_products(sum, rows, width, q, k, type, k_row, c, NULL, 0);
  for (; c + V_LANES <= d; c += V_LANES) add_products(sum, rows, 1, q, k, type, k_row, c, NULL, 0);
  if (c < d) {
    const vmask tail = v_first((size_t)(d - c));
    add_products(sum, rows, 1, q, k, type, k_row, c, &tail, d - c);
  }
}

/* The scores of `rows` rows (1, 2 or 4) with keys first…last-1, V_LANES / rows keys at a time. The last group
 * overlaps the one before; if the block has fewer keys, each is done alone. wide: one row with more columns
 * than a tile (4 % faster for 128 columns). */
V_INLINE void score_stretch(const decode_work *w, const heed_dtype type, int rows, const bool wide,
                            int first_row, int64_t first, int64_t last) {
  const heed__decode_task *t = w->task;
  const int keys = V_LANES / rows;
  const bool alone = w->keys < keys;
  const int64_t step = alone ? 1 : keys, latest = w->keys - step, d = t->head_size;
  const ptrdiff_t k_row = t->k_row, next_key = alone ? 0 : k_row;
  const vfloat scale = v_set(t->scale);
  const void *block = element_at(w->k, type, t->row[first_row].k);
  float *p = w->p + first_row * w->stride;
  const float *q[4];
  V_UNROLL
  for (int r = 0; r < rows; r++) q[r] = t->row[first_row + r].q;
  for (int64_t next = first; next < last; next += step) {
    const int64_t at = next < latest ? next : latest;
    const void *k = element_at(block, type, at * k_row);
    vfloat sum[V_LANES];
    if (wide)
      multiply_rows(sum, q[0], k, type, next_key, d);
    else
      add_all_products(sum, rows, q, k, type, next_key, d);
    const vfloat scores = v_mul(v_sums(sum), scale);
    if (rows == 1) {
      v_store(p + at, scores);
    } else {
      float score[V_LANES];
      v_store(score, scores);
      V_UNROLL
      for (int r = 0; r < rows; r++)
        memcpy(p + r * w->stride + at, score + r * keys, (size_t)keys * sizeof *score);
    }
  }
}

V_INLINE void score_block_of(decode_work *w, const heed_dtype type, int first_row, int last_row) {
  const heed__decode_task *t = w->task;
  const void *keys = element_at(w->k, type, t->row[first_row].k);
  const bool shared = shares_keys(t, first_row, last_row);
  const int64_t registers = (stretch_of(t->head_size) + V_LANES - 1) / V_LANES;
  const int64_t stretch = last_row - first_row > 1 ? registers * V_LANES : w->keys;
  for (int64_t first = 0; first < w->keys; first += stretch) {
    const int64_t last = first + stretch < w->keys ? first + stretch : w->keys;
    if (shared) prefetch_ahead(keys, type, t->k_row, t->head_size, first, stretch, t->last - w->first);
    for (int r = first_row, rows; r < last_row; r += rows) {
      rows = at_once(t, type, r, last_row);
      if (rows == 4)
        score_stretch(w, type, 4, false, r, first, last);
      else if (rows == 2 && type == HEED_FLOAT32)
        score_stretch(w, type, 2, false, r, first, last);
      else if (t->head_size > DECODE_TILE * V_LANES)
        score_stretch(w, type, 1, true, r, first, last);
      else
        score_stretch(w, type, 1, false, r, first, last);
    }
  }
}

DECODE_DTYPES(decode_scores, score_block_of, (decode_work * w, int first_row, int last_row), first_row,
              last_row)
static void score_block(decode_work *w, int first_row, int last_row) {
  DECODE_CALL(decode_scores, w->task->k_dtype, w, first_row, last_row)
}

#endif
