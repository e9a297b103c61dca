/* Products with weights of blocked dtypes, whose blocks are widened in registers. An element is summed in the
 * same order for every m up to LOWP_FEW_BLOCKS. */
#ifndef HEED_VECTOR_LOWP_BLOCKS_H
#define HEED_VECTOR_LOWP_BLOCKS_H

#include "gemm.h"
#include "widen_blocks.h"

enum {
  BLOCKS_COLUMNS = 4,                      /* rows of w whose sums are joined together */
  BLOCKS_ROWS = V_REGISTERS >= 32 ? 4 : 2, /* rows of x in a tile */
  BLOCKS_CHAINS = 2,                       /* independent sums of an element */
  BLOCKS_AHEAD = 4096,                     /* prefetch distance in bytes; rows usually follow each other */
};

/* ---- Dots ---- */

/* Rows i… of x with the rows j… of w that a step joins; past the last row of w it is repeated. */
V_INLINE void blocks_tile_of(const heed_dtype dtype, const int rows, const heed__lowp_task *t, size_t i,
                             size_t j) {
  const size_t elements = (size_t)heed__block_elements(dtype), bytes = heed__block_bytes(dtype);
  vfloat sum[BLOCKS_ROWS][BLOCKS_COLUMNS];
  for (size_t c = 0; c < BLOCKS_COLUMNS; c++) {
    const size_t row = heed__min_size(j + c, t->n - 1);
    const uint8_t *w = (const uint8_t *)t->w + heed__row_bytes(dtype, (ptrdiff_t)row * t->w_row);
    const float *x = t->x + (ptrdiff_t)i * t->x_row;
    vfloat part[BLOCKS_ROWS][BLOCKS_CHAINS];
    V_UNROLL
    for (int r = 0; r < rows; r++) part[r][0] = part[r][1] = v_zero();
    for (size_t p = 0; p < t->k; p += BLOCKS_KEPT * BLOCKS_GROUP) {
      const size_t blocks = heed__min_size(t->k - p, BLOCKS_KEPT * BLOCKS_GROUP) / elements;
      blocks_scales scales;
      blocks_scales_of(dtype, w, blocks, &scales);
      for (size_t b = 0; b < blocks; b++, w += bytes, x += elements) {
        V_UNROLL
        for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(w + BLOCKS_AHEAD + line, 0, 2);
        V_UNROLL
        for (size_t g = 0; g < elements / BLOCKS_GROUP; g++) {
          V_UNROLL
          for (size_t q = 0; q < BLOCKS_GROUP; q += V_LANES) {
            const vfloat y = blocks_scaled(dtype, w, g, q, &scales, b * (elements / BLOCKS_GROUP) + g);
            V_UNROLL
            for (int r = 0; r < rows; r++) {
              vfloat *const to = &part[r][q / V_LANES % BLOCKS_CHAINS];
              *to = v_fma(v_load(x + r * t->x_row + g * BLOCKS_GROUP + q), y, *to);
            }
          }
        }
      }
    }
    V_UNROLL
    for (int r = 0; r < rows; r++) sum[r][c] = v_add(part[r][0], part[r][1]);
  }
  const size_t columns = heed__min_size(t->n - j, BLOCKS_COLUMNS);
  for (int r = 0; r < rows; r++) {
    float total[BLOCKS_COLUMNS], *to = t->c + ((ptrdiff_t)i + r) * t->c_row + j;
    v_sum_four(total, sum[r]);
    for (size_t c = 0; c < columns; c++) to[c] = t->bias ? total[c] + t->bias[j + c] : total[c];
  }
}

typedef void blocks_tile(const heed__lowp_task *t, size_t i, size_t j);
#define BLOCKS_TILE(dtype, rows)                                                                             \
  static void V_NAME(blocks_tile_##dtype##_##rows)(const heed__lowp_task *t, size_t i, size_t j) {           \
    blocks_tile_of(HEED_##dtype, rows, t, i, j);                                                             \
  }
#define BLOCKS_TILE_NAME(dtype, rows) V_NAME(blocks_tile_##dtype##_##rows),
#if V_REGISTERS >= 32
#define BLOCKS_TILES(X, dtype) X(dtype, 1) X(dtype, 2) X(dtype, 3) X(dtype, 4)
#else
#define BLOCKS_TILES(X, dtype) X(dtype, 1) X(dtype, 2)
#endif
#define X(dtype, text, elements, bytes) BLOCKS_TILES(BLOCKS_TILE, dtype)
HEED_BLOCK_DTYPE_LIST(X)
#undef X

static bool blocks_dots(const heed__lowp_task *t, const heed__pace *pace, int64_t *position) {
#define X(dtype, text, elements, bytes) {BLOCKS_TILES(BLOCKS_TILE_NAME, dtype)},
  static blocks_tile *const tiles[][BLOCKS_ROWS] = {HEED_BLOCK_DTYPE_LIST(X)};
#undef X
  blocks_tile *const *const tile = tiles[t->dtype - HEED_Q4_0];
  const size_t strip = gemm_part(t->m, BLOCKS_ROWS);
  size_t work = 0;
  for (size_t j = position ? (size_t)*position : 0; j < t->n; j += BLOCKS_COLUMNS) {
    for (size_t i = 0; i < t->m; i += strip) tile[heed__min_size(t->m - i, strip) - 1](t, i, j);
    work += (t->m + GEMM_WAIT) * BLOCKS_COLUMNS * t->k;
    if (work < GEMM_CHECK || j + BLOCKS_COLUMNS >= t->n) continue;
    if (heed__should_yield(pace)) {
      *position = (int64_t)(j + BLOCKS_COLUMNS);
      return false;
    }
    work = 0;
  }
  return true;
}

#endif
