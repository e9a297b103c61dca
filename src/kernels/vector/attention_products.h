/* The two products of the fused attention kernel (attention.h): q kᵀ of a strip with packed keys, and its
 * weights times values. A row of a product has the same bits wherever its tile begins. */
#ifndef HEED_VECTOR_ATTENTION_PRODUCTS_H
#define HEED_VECTOR_ATTENTION_PRODUCTS_H

#include "attention_ahead.h"

/* The end of the run of keys that contains key j; the same for all rows, whichever strip they are in. */
static int64_t run_end(int64_t j, int64_t high) {
  const int64_t end = (j / ATTEND_RUN_KEYS + 1) * ATTEND_RUN_KEYS;
  return end < high ? end : high;
}

/* scores [ATTEND_STRIP, vectors] = q [ATTEND_STRIP, d] · a tile of keys; `vectors` of V_LANES columns */
V_INLINE void score_vectors(float *scores, const float *q, const float *keys, int64_t d, const int vectors) {
  vfloat x[ATTEND_STRIP][ATTEND_TILE_VECTORS];
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) x[r][v] = v_zero();
  }
  TILE_TURNS
  for (int64_t c = 0; c < d; c++) {
    vfloat k[ATTEND_TILE_VECTORS];
    V_UNROLL
    for (int v = 0; v < vectors; v++) k[v] = v_load(keys + c * ATTEND_TILE + v * V_LANES);
    V_UNROLL
    for (int r = 0; r < ATTEND_STRIP; r++) {
      const vfloat y = v_set(q[r * d + c]);
      V_UNROLL
      for (int v = 0; v < vectors; v++) x[r][v] = v_fma(y, k[v], x[r][v]);
    }
  }
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) v_store(scores + r * ATTEND_STRIDE + v * V_LANES, x[r][v]);
  }
}

/* out [ATTEND_STRIP, vectors] = out · factor + weights [ATTEND_STRIP, n] · values [n, vectors], whose rows
 * are value_row apart */
V_INLINE void value_vectors(float *out, const float *factor, const float *weights, const float *values,
                            ptrdiff_t value_row, int64_t n, int64_t columns, const int vectors) {
  vfloat x[ATTEND_STRIP][ATTEND_TILE_VECTORS];
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) x[r][v] = v_zero();
  }
  TILE_TURNS
  for (int64_t j = 0; j < n; j++) {
    vfloat y[ATTEND_TILE_VECTORS];
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      y[v] = v_load(values + v * V_LANES);
      if (v * V_LANES % 16 == 0) __builtin_prefetch(values + ATTEND_AHEAD * value_row + v * V_LANES);
    }
    V_UNROLL
    for (int r = 0; r < ATTEND_STRIP; r++) {
      const vfloat p = v_set(weights[r * ATTEND_STRIDE + j]);
      V_UNROLL
      for (int v = 0; v < vectors; v++) x[r][v] = v_fma(p, y[v], x[r][v]);
    }
    values += value_row;
  }
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      const vfloat before = v_load(out + v * V_LANES);
      v_store(out + v * V_LANES, v_add(factor ? v_mul(before, v_set(factor[r])) : before, x[r][v]));
    }
    out += columns;
  }
}

/* One call for each number of vectors, so that it is a constant. */
#define BY_VECTORS(count, call)                                                                              \
  switch (count) {                                                                                           \
  case 1: {                                                                                                  \
    enum { vectors = 1 };                                                                                    \
    call;                                                                                                    \
  } break;                                                                                                   \
  case 2: {                                                                                                  \
    enum { vectors = 2 };                                                                                    \
    call;                                                                                                    \
  } break;                                                                                                   \
  case 3: {                                                                                                  \
    enum { vectors = ATTEND_TILE_VECTORS < 3 ? ATTEND_TILE_VECTORS : 3 };                                    \
    call;                                                                                                    \
  } break;                                                                                                   \
  default: {                                                                                                 \
    enum { vectors = ATTEND_TILE_VECTORS };                                                                  \
    call;                                                                                                    \
  }                                                                                                          \
  }

/* Not inline: the caller's variables would take registers from the loops, an eighth of the speed. */
#define NOT_INLINE __attribute__((noinline)) static

/* scores = q · keys low…high-1; low is a multiple of V_LANES */
NOT_INLINE void score_tiles(float *scores, const float *q, const float *keys, int64_t d, int64_t low,
                            int64_t high, attend_ahead *ahead) {
  for (int64_t j = low; j < high;) {
    const int64_t at = j % ATTEND_TILE;
    const int64_t count = heed__min(ATTEND_TILE - at, round_up(high - j, V_LANES));
    const float *tile = keys + (j - at) * d + at;
    prefetch_some(ahead);
    BY_VECTORS(count / V_LANES, score_vectors(scores + j, q, tile, d, vectors))
    j += count;
  }
}

/* out [ATTEND_STRIP, vectors] = out · factor + weights · values low…high-1, run by run */
V_INLINE void value_runs(float *out, const float *factor, const float *weights, const float *values,
                         ptrdiff_t value_row, int64_t low, int64_t high, int64_t columns, attend_ahead *ahead,
                         const int vectors) {
  for (int64_t j = low; j < high; factor = NULL) {
    const int64_t end = run_end(j, high);
    prefetch_some(ahead);
    value_vectors(out, factor, weights + j, values + j * value_row, value_row, end - j, columns, vectors);
    j = end;
  }
}

NOT_INLINE void value_tile(float *out, const float *factor, const float *weights, const float *values,
                           ptrdiff_t value_row, int64_t low, int64_t high, int64_t columns,
                           attend_ahead *ahead, int64_t count) {
  BY_VECTORS(count, value_runs(out, factor, weights, values, value_row, low, high, columns, ahead, vectors))
}

#endif
