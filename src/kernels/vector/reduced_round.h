/* Rounding x for products in fewer bits (kernels.h). */
#ifndef HEED_VECTOR_REDUCED_ROUND_H
#define HEED_VECTOR_REDUCED_ROUND_H

#include "widen_blocks.h"

enum {
  REDUCED_WORD = 4,                            /* bytes */
  REDUCED_WIDE = V_LANES * REDUCED_WORD,       /* bytes of a vector */
  REDUCED_LINE = 64,                           /* bytes of a line: 64 integers or 32 halves */
  REDUCED_PARTS = REDUCED_LINE / REDUCED_WIDE, /* vectors of a line */
  REDUCED_FEW = 8, /* below this many rows of x the time is that of reading the weight */
};
_Static_assert(HEED_INT8_BLOCK == REDUCED_LINE, "a line has the elements of a block");

/* The first n elements of a row as vectors, then zeros. */
V_INLINE void reduced_load(vfloat *out, const int vectors, const float *row, size_t n) {
  V_UNROLL
  for (int v = 0; v < vectors; v++) {
    const size_t first = (size_t)v * V_LANES;
    out[v] = first + V_LANES <= n ? v_load(row + first)
             : first < n          ? v_load_masked(row + first, v_first(n - first))
                                  : v_zero();
  }
}

/* Rounds a block of a row to 64 bytes; *scale is its scale. */
V_INLINE void reduced_round_bytes(vint out[REDUCED_PARTS], const float *row, size_t n, float *scale) {
  vfloat x[4 * REDUCED_PARTS];
  reduced_load(x, 4 * REDUCED_PARTS, row, n);
  vfloat most = v_abs(x[0]), zero = v_mul(x[0], v_zero());
  V_UNROLL
  for (int v = 1; v < 4 * REDUCED_PARTS; v++) {
    most = v_max(most, v_abs(x[v]));
    zero = v_fma(x[v], v_zero(), zero);
  }
  const bool finite = v_mask_bits(v_isnan(zero)) == 0;
  const float a = v_highest(most), inverse = finite && a >= 0x1p-100f ? 127.0f / a : 0.0f;
  *scale = finite ? a * (1.0f / 127.0f) : NAN;
  V_UNROLL
  for (int v = 0; v < 4 * REDUCED_PARTS; v++) x[v] = inverse == 0.0f ? v_zero() : v_mul(x[v], v_set(inverse));
  V_UNROLL
  for (int v = 0; v < REDUCED_PARTS; v++) out[v] = v_round_bytes(x + 4 * v);
}

#endif
