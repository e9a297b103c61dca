/* Converting rows of elements between dtypes, for copies and elementwise operations. */
#include <string.h>

#include "ops.h"

/* An element is first read as int32_t, int64_t or float, whichever represents all numbers of its dtype. */
#define READ_BOOL(x)     (int32_t)((x) != 0)
#define READ_INT8(x)     (int32_t)(x)
#define READ_INT64(x)    (x)
#define READ_FLOAT32(x)  (x)
#define READ_BFLOAT16(x) heed__float_from_bfloat16(x)
#define READ_FLOAT16(x)  heed__float_from_float16(x)

/* 0 if and only if x is 0, in 32 bits: the baseline instruction set has no vector comparison of 64 bits */
#define TRUTH_BOOL(x)     (x)
#define TRUTH_INT8(x)     (x)
#define TRUTH_INT64(x)    (uint32_t)((uint64_t)(x) | (uint64_t)(x) >> 32)
#define TRUTH_FLOAT32(x)  (x)
#define TRUTH_BFLOAT16(x) ((x)&0x7fff)
#define TRUTH_FLOAT16(x)  ((x)&0x7fff)

#define BOOL_OF(x)       (uint8_t)((x) != 0)
#define FLOAT32_OF(x)    (float)(x)
#define BFLOAT16_OF(x)   heed__bfloat16_from_float((float)(x))
#define FLOAT16_OF(x)    heed__float16_from_float((float)(x))
#define INT64_OF_INT(x)  (int64_t)(x)
#define INT8_OF_INT(x)   heed__int8_from_int64((int64_t)(x))
#define INT8_OF_FLOAT(x) heed__int8_from_float(x)

/* The first two loops are the third with strides of 1, which the compiler vectorises, and for one element
 * that fills a row. */
#define CONVERT(to, from, to_type, from_type, converted)                                                     \
  static void to##_from_##from(void *dst, ptrdiff_t dst_stride, const void *src, ptrdiff_t src_stride,       \
                               int64_t n) {                                                                  \
    to_type *restrict out = dst;                                                                             \
    const from_type *restrict row = src;                                                                     \
    if (dst_stride == 1 && src_stride == 1) {                                                                \
      for (int64_t i = 0; i < n; i++) {                                                                      \
        const from_type x = row[i];                                                                          \
        out[i] = converted;                                                                                  \
      }                                                                                                      \
    } else if (dst_stride == 1 && src_stride == 0 && n > 0) {                                                \
      const from_type x = row[0];                                                                            \
      const to_type value = converted;                                                                       \
      for (int64_t i = 0; i < n; i++) out[i] = value;                                                        \
    } else {                                                                                                 \
      for (int64_t i = 0; i < n; i++) {                                                                      \
        const from_type x = row[i * src_stride];                                                             \
        out[i * dst_stride] = converted;                                                                     \
      }                                                                                                      \
    }                                                                                                        \
  }

#define FROM_INTEGERS(from, from_type)                                                                       \
  CONVERT(BOOL, from, uint8_t, from_type, BOOL_OF(TRUTH_##from(x)))                                          \
  CONVERT(FLOAT32, from, float, from_type, FLOAT32_OF(READ_##from(x)))                                       \
  CONVERT(BFLOAT16, from, uint16_t, from_type, BFLOAT16_OF(READ_##from(x)))                                  \
  CONVERT(FLOAT16, from, uint16_t, from_type, FLOAT16_OF(READ_##from(x)))                                    \
  CONVERT(INT64, from, int64_t, from_type, INT64_OF_INT(READ_##from(x)))                                     \
  CONVERT(INT8, from, int8_t, from_type, INT8_OF_INT(READ_##from(x)))
FROM_INTEGERS(BOOL, uint8_t)
FROM_INTEGERS(INT8, int8_t)
FROM_INTEGERS(INT64, int64_t)

#define FROM_FLOATS(from, from_type)                                                                         \
  CONVERT(BOOL, from, uint8_t, from_type, BOOL_OF(TRUTH_##from(x)))                                          \
  CONVERT(INT8, from, int8_t, from_type, INT8_OF_FLOAT(READ_##from(x)))
FROM_FLOATS(FLOAT32, float)
FROM_FLOATS(BFLOAT16, uint16_t)
FROM_FLOATS(FLOAT16, uint16_t)
CONVERT(FLOAT32, FLOAT32, float, float, x)
CONVERT(FLOAT32, BFLOAT16, float, uint16_t, READ_BFLOAT16(x))
CONVERT(FLOAT32, FLOAT16, float, uint16_t, READ_FLOAT16(x))
CONVERT(BFLOAT16, FLOAT32, uint16_t, float, BFLOAT16_OF(x))
CONVERT(BFLOAT16, FLOAT16, uint16_t, uint16_t, BFLOAT16_OF(READ_FLOAT16(x)))
CONVERT(FLOAT16, FLOAT32, uint16_t, float, FLOAT16_OF(x))
CONVERT(FLOAT16, BFLOAT16, uint16_t, uint16_t, FLOAT16_OF(READ_BFLOAT16(x)))
/* unchanged: a signalling nan must not become a quiet one */
CONVERT(BFLOAT16, BFLOAT16, uint16_t, uint16_t, x)
#define FLOAT16_from_FLOAT16 BFLOAT16_from_BFLOAT16

enum { FLOATS_AT_ONCE = 128 };

/* The processor's conversion is right for magnitudes below 2^63; used where all elements of the chunk are. */
static void int64_of_floats(int64_t *restrict out, ptrdiff_t stride, const float *restrict x, int64_t n) {
  if (heed__any_above(x, n, 0x5effffff))
    for (int64_t i = 0; i < n; i++) out[i * stride] = heed__to_int64((double)x[i]);
  else if (stride == 1)
    for (int64_t i = 0; i < n; i++) out[i] = (int64_t)x[i];
  else
    for (int64_t i = 0; i < n; i++) out[i * stride] = (int64_t)x[i];
}

#define INT64_FROM_FLOATS(from, from_type)                                                                   \
  static void INT64_from_##from(void *dst, ptrdiff_t dst_stride, const void *src, ptrdiff_t src_stride,      \
                                int64_t n) {                                                                 \
    float x[FLOATS_AT_ONCE];                                                                                 \
    for (int64_t i = 0; i < n; i += FLOATS_AT_ONCE) {                                                        \
      const int64_t some = heed__min(n - i, FLOATS_AT_ONCE);                                                 \
      FLOAT32_from_##from(x, 1, (const from_type *)src + i * src_stride, src_stride, some);                  \
      int64_of_floats((int64_t *)dst + i * dst_stride, dst_stride, x, some);                                 \
    }                                                                                                        \
  }
INT64_FROM_FLOATS(FLOAT32, float)
INT64_FROM_FLOATS(BFLOAT16, uint16_t)
INT64_FROM_FLOATS(FLOAT16, uint16_t)

#define DTYPES (HEED_INT8 + 1)
typedef void converter(void *dst, ptrdiff_t dst_stride, const void *src, ptrdiff_t src_stride, int64_t n);

void heed__copy_row(heed_dtype to, void *dst, ptrdiff_t dst_stride, heed_dtype from, const void *src,
                    ptrdiff_t src_stride, int64_t n) {
#define TO(to)                                                                                               \
  [HEED_##to] = {                                                                                            \
    [HEED_BOOL] = to##_from_BOOL,                                                                            \
    [HEED_INT64] = to##_from_INT64,                                                                          \
    [HEED_FLOAT32] = to##_from_FLOAT32,                                                                      \
    [HEED_BFLOAT16] = to##_from_BFLOAT16,                                                                    \
    [HEED_FLOAT16] = to##_from_FLOAT16,                                                                      \
    [HEED_INT8] = to##_from_INT8                                                                             \
  }
  static converter *const convert[DTYPES][DTYPES] = {TO(BOOL),     TO(INT64),   TO(FLOAT32),
                                                     TO(BFLOAT16), TO(FLOAT16), TO(INT8)};
  if (to == from && dst_stride == 1 && src_stride == 1) {
    if (n > 0) memcpy(dst, src, (size_t)n * heed__element_bytes(to));
  } else {
    convert[to][from](dst, dst_stride, src, src_stride, n);
  }
}

void heed__convert_row(const heed__kernels *kernels, heed_dtype to, void *dst, ptrdiff_t dst_stride,
                       heed_dtype from, const void *src, ptrdiff_t src_stride, int64_t n) {
  static const float zero = 0.0f;
  const bool gapless = dst_stride == 1 && src_stride == 1 && to != from;
  if (gapless && heed__can_store(to) && (heed__can_store(from) || heed__is_blocked(from)))
    kernels->convert(to, dst, from, src, (size_t)n);
  else if (gapless && to == HEED_BOOL && from == HEED_FLOAT32)
    kernels->ne(dst, src, 1, &zero, 0, (size_t)n);
  else
    heed__copy_row(to, dst, dst_stride, from, src, src_stride, n);
}
