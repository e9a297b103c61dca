/* The product c [m, n] = a [m, k] · b [k, n] + bias as dot products, for few rows or few columns: lanes run
 * along k, and nothing is packed. The smaller side (a) has few rows; the larger one (b) is read once, in
 * groups of rows, and the next group is prefetched: rows of a few hundred elements end before the processor
 * recognises that they are read in order. */
#ifndef HEED_VECTOR_DOTS_H
#define HEED_VECTOR_DOTS_H

#include "blocks.h"

enum {
  GEMM_DOT_FEW = V_REGISTERS >= 32 ? 6 : 4,    /* most rows of the smaller side in a tile */
  GEMM_DOT_MOST = 4,                           /* most rows of the larger side in a tile */
  GEMM_DOT_SUMS = V_REGISTERS >= 32 ? 24 : 12, /* most sums of a tile */
  GEMM_DOT_AHEAD = 256,    /* prefetch distance in a long row, in elements, to the first-level cache */
  GEMM_DOT_NEAR = 1 << 16, /* elements of the larger side that probably fit in the second-level cache */
  GEMM_CHECK = 1 << 20,    /* multiply-adds between two cancellation checks, */
  GEMM_WAIT = 8,           /* where a row that comes from memory takes as long as this many rows of them */
};

/* What all tiles share. Element [i, j] of c is at i · c_row + j · c_column. */
typedef struct gemm_dot_step {
  size_t depth;
  bool far; /* the larger side probably does not fit in the second-level cache */
  ptrdiff_t a_row, b_row, c_row, c_column, add_row, add_column;
} gemm_dot_step;

V_INLINE void gemm_dot_add(const int few, const int many, vfloat *sum, const float *a, ptrdiff_t a_row,
                           const float *b, ptrdiff_t b_row, const bool whole, vmask rest) {
  vfloat y[GEMM_DOT_MOST];
  V_UNROLL
  for (int j = 0; j < many; j++) y[j] = whole ? v_load(b + j * b_row) : v_load_masked(b + j * b_row, rest);
  V_UNROLL
  for (int i = 0; i < few; i++) {
    const vfloat x = whole ? v_load(a + i * a_row) : v_load_masked(a + i * a_row, rest);
    V_UNROLL
    for (int j = 0; j < many; j++) sum[i * many + j] = v_fma(x, y[j], sum[i * many + j]);
  }
}

/* The first `whole` elements of the rows, in full vectors. Elements of b that are `ahead` further are
 * prefetched: to the second-level cache if `far`, else to the first. */
V_INLINE void gemm_dot_vectors(const int few, const int many, vfloat *sum, const float *a, ptrdiff_t a_row,
                               const float *b, ptrdiff_t b_row, size_t whole, ptrdiff_t ahead,
                               const bool far) {
  for (; whole > 0; whole -= V_LANES, a += V_LANES, b += V_LANES) {
    V_UNROLL
    for (int j = 0; j < many; j++) {
      const float *soon = b + ahead + j * b_row;
      if (far)
        __builtin_prefetch(soon, 0, 2);
      else
        __builtin_prefetch(soon);
    }
    gemm_dot_add(few, many, sum, a, a_row, b, b_row, true, v_first(0));
  }
}

/* A tile: `few` rows of a with `many` rows of b, both contiguous. */
V_INLINE void gemm_dot_tile_of(const int few, const int many, const gemm_dot_step *s, const float *a,
                               const float *b, float *c, const float *add) {
  const ptrdiff_t a_row = s->a_row, b_row = s->b_row;
  const int fours = (few * many + 3) / 4;
  vfloat sum[GEMM_DOT_SUMS];
  float total[GEMM_DOT_SUMS];
  V_UNROLL
  for (int i = 0; i < fours; i++) sum[4 * i] = sum[4 * i + 1] = sum[4 * i + 2] = sum[4 * i + 3] = v_zero();
  const size_t whole = s->depth / V_LANES * V_LANES;
  const ptrdiff_t next = many * b_row;
  const bool is_long =
      whole > 3 * GEMM_DOT_AHEAD; /* the next rows may not fit in the first-level cache as well */
  if (s->far)
    gemm_dot_vectors(few, many, sum, a, a_row, b, b_row, whole, next, true);
  else
    gemm_dot_vectors(few, many, sum, a, a_row, b, b_row, whole, is_long ? GEMM_DOT_AHEAD : next, false);
  if (whole < s->depth)
    gemm_dot_add(few, many, sum, a + whole, a_row, b + whole, b_row, false, v_first(s->depth - whole));
  V_UNROLL
  for (int i = 0; i < fours; i++) v_sum_four(total + 4 * i, sum + 4 * i);
  for (int i = 0; add && i < few; i++) {
    V_UNROLL
    for (int j = 0; j < many; j++) total[i * many + j] += add[i * s->add_row + j * s->add_column];
  }
  for (int i = 0; i < few; i++) {
    V_UNROLL
    for (int j = 0; j < many; j++) c[i * s->c_row + j * s->c_column] = total[i * many + j];
  }
}

/* Rows of b in a tile with `few` rows of a. */
#define GEMM_DOT_GROUP(few) ((few)*GEMM_DOT_MOST <= GEMM_DOT_SUMS ? GEMM_DOT_MOST : GEMM_DOT_MOST - 1)

#define GEMM_DOT_TILE(few, many)                                                                             \
  static void V_NAME(gemm_dot_tile_##few##_##many)(const gemm_dot_step *s, const float *a, const float *b,   \
                                                   float *c, const float *add) {                             \
    gemm_dot_tile_of(few, many, s, a, b, c, add);                                                            \
  }
#define GEMM_DOT_TILE_NAME(few, many) V_NAME(gemm_dot_tile_##few##_##many),
#if V_REGISTERS >= 32
#define GEMM_DOT_TILES(X) X(1, 4) X(2, 4) X(3, 4) X(4, 4) X(5, 4) X(6, 4)
#else
#define GEMM_DOT_TILES(X) X(1, 4) X(2, 4) X(3, 4) X(4, 3)
#endif
#define GEMM_DOT_SINGLES(X) X(1, 1) X(2, 1) X(3, 1)
GEMM_DOT_TILES(GEMM_DOT_TILE)
GEMM_DOT_SINGLES(GEMM_DOT_TILE)
typedef void gemm_dot_tile(const gemm_dot_step *s, const float *a, const float *b, float *c,
                           const float *add);
static gemm_dot_tile *const gemm_dot_tiles[GEMM_DOT_FEW] = {GEMM_DOT_TILES(GEMM_DOT_TILE_NAME)};
static gemm_dot_tile *const gemm_dot_singles[] = {GEMM_DOT_SINGLES(GEMM_DOT_TILE_NAME)};

/* Rows of a in a strip. With 32 registers as many as possible (8 rows of 4096, from memory, split into 6 and
 * 2: 2.9 ms; into 4 and 4: 4.1); with 16 registers equal parts, as a short last strip would have tiles with
 * more rows of b. */
static size_t gemm_dot_strip(size_t few) {
  return GEMM_DOT_GROUP(GEMM_DOT_FEW) == GEMM_DOT_MOST ? heed__min_size(few, GEMM_DOT_FEW)
                                                       : gemm_part(few, GEMM_DOT_FEW);
}

/* Tiles are always whole: the last group of b, and each group with a shorter last strip of a, repeats rows
 * (7 rows with AVX2: a tenth of the time, for a third less code). If b has fewer rows than a tile, each is
 * done alone. few <= many. */
static bool gemm_dots_of(size_t few, size_t many, const gemm_dot_step *s, const float *a, const float *b,
                         float *c, const float *add, const heed__pace *pace, int64_t *position) {
  const bool alone = many < GEMM_DOT_MOST;
  const size_t strip = gemm_dot_strip(few), group = alone ? 1 : GEMM_DOT_GROUP(strip);
  size_t work = 0;
  for (size_t j = position ? (size_t)*position : 0; j < many; j += group) {
    for (size_t i = 0; i < few; i += strip) {
      const size_t rows = heed__min_size(few - i, strip);
      const ptrdiff_t row = (ptrdiff_t)i,
                      column = (ptrdiff_t)(alone ? j : heed__min_size(j, many - GEMM_DOT_GROUP(rows)));
      gemm_dot_tile *const tile = alone ? gemm_dot_singles[rows - 1] : gemm_dot_tiles[rows - 1];
      tile(s, a + row * s->a_row, b + column * s->b_row, c + row * s->c_row + column * s->c_column,
           add ? add + row * s->add_row + column * s->add_column : NULL);
    }
    work += (few + GEMM_WAIT) * group * s->depth;
    if (work < GEMM_CHECK || j + group >= many) continue;
    if (heed__should_yield(pace)) {
      *position = (int64_t)(j + group);
      return false;
    }
    work = 0;
  }
  return true;
}

/* a [m, k] and b [k, n], both contiguous along k. */
static bool gemm_dots(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, const float *b,
                      ptrdiff_t b_column, const float *bias, float *c, ptrdiff_t c_row,
                      const heed__pace *pace, int64_t *position) {
  if (m <= n)
    return gemm_dots_of(m, n, &(gemm_dot_step){k, n * k > GEMM_DOT_NEAR, a_row, b_column, c_row, 1, 0, 1}, a,
                        b, c, bias, pace, position);
  return gemm_dots_of(n, m, &(gemm_dot_step){k, m * k > GEMM_DOT_NEAR, b_column, a_row, 1, c_row, 1, 0}, b, a,
                      c, bias, pace, position);
}

#endif
