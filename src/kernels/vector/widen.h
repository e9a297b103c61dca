/* Low-precision elements widened to float32: keys and values (attention.h, decode.h, small.h) and weights
 * (lowp.h). Also the changes that a cap and a slope make to scores. */
#ifndef HEED_VECTOR_WIDEN_H
#define HEED_VECTOR_WIDEN_H

#include "elementary.h"

/* The address of element i of an array of that dtype. */
static inline const void *element_at(const void *x, heed_dtype dtype, int64_t i) {
  return (const char *)x + i * (int64_t)heed__element_bytes(dtype);
}

/* V_LANES contiguous elements. Where dtype is a constant, the switch costs nothing. */
V_INLINE vfloat load_stored(const void *x, const heed_dtype dtype) {
  switch (dtype) {
  case HEED_BFLOAT16: return v_load_bfloat16(x);
  case HEED_FLOAT16: return v_load_float16(x);
  case HEED_INT8: return v_load_int8(x);
  default: return v_load(x);
  }
}

/* The first n < V_LANES elements of a low-precision dtype, then zeros; nothing else is read. */
static __attribute__((noinline, unused)) vfloat load_stored_first(const void *x, heed_dtype dtype, size_t n) {
  float some[V_LANES] = {0};
  memcpy(some, x, n * heed__element_bytes(dtype));
  return load_stored(some, dtype);
}

/* One call for each dtype that can be stored, in which `type` is that dtype as a constant. */
#define BY_DTYPE(dtype, call)                                                                                \
  switch (dtype) {                                                                                           \
  case HEED_BFLOAT16: {                                                                                      \
    const heed_dtype type = HEED_BFLOAT16;                                                                   \
    call;                                                                                                    \
  } break;                                                                                                   \
  case HEED_FLOAT16: {                                                                                       \
    const heed_dtype type = HEED_FLOAT16;                                                                    \
    call;                                                                                                    \
  } break;                                                                                                   \
  case HEED_INT8: {                                                                                          \
    const heed_dtype type = HEED_INT8;                                                                       \
    call;                                                                                                    \
  } break;                                                                                                   \
  default: {                                                                                                 \
    const heed_dtype type = HEED_FLOAT32;                                                                    \
    call;                                                                                                    \
  }                                                                                                          \
  }

V_INLINE void widen_vectors(float *out, const void *x, const heed_dtype dtype, float scale, int64_t n) {
  for (int64_t i = 0; i < n; i += V_LANES) {
    const int64_t from = i < n - V_LANES ? i : n - V_LANES; /* the last vector overlaps the one before */
    const vfloat y = load_stored(element_at(x, dtype, from), dtype);
    v_store(out + from, dtype == HEED_INT8 ? v_mul(y, v_set(scale)) : y);
  }
}

/* out = n elements, `column` apart; scale: factor of int8 */
static inline void widen_row(float *out, const void *x, heed_dtype dtype, ptrdiff_t column, float scale,
                             int64_t n) {
  if (column != 1 || n < V_LANES) {
    const float *row = heed__scalar_widen(x, dtype, scale, &column, n, out);
    for (int64_t i = 0; row != out && i < n; i++) out[i] = row[i * column];
    return;
  }
  BY_DTYPE(dtype, widen_vectors(out, x, type, scale, n))
}

/* ---- Scores ---- */

/* c · tanh(score / c); inverse = 1 / c, a normal number (attention/strides.c clamps c). Few scores come near
 * the cap; a vector of scores that are all far from it takes the cheap part of tanh alone. */
static inline vfloat cap_score(vfloat score, float c, float inverse) {
  const vfloat x = v_mul(score, v_set(inverse));
  const bool near = v_mask_bits(v_not_mask(v_lt(v_abs(x), v_set(TANH_NEAR)))) == 0;
  return v_mul(v_set(c), near ? tanh_near(x) : v_tanh(x));
}

/* Subtracts a slope's part from the scores of one query with keys j, j + 1…, where distance is the query's
 * position - j; or, with sign -1, of queries at consecutive positions with one key, where distance is that of
 * the first. */
static inline vfloat slope_off(vfloat score, float slope, int64_t distance, float sign) {
  static const float lane[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const vfloat far = v_fnma(v_set(sign), v_load(lane), v_set((float)distance));
  return v_fnma(v_set(slope), v_abs(far), score);
}

#endif
