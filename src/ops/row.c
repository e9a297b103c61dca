/* Rows of elements, converted between dtypes: what copies and all elementwise work are made from. */
#include <string.h>

#include "ops.h"

static inline uint8_t bool_from_bool(uint8_t x) {
  return x != 0;
}
static inline uint8_t bool_from_int64(int64_t x) {
  return x != 0;
}
static inline uint8_t bool_from_float32(float x) {
  return x != 0.0f;
}
static inline int64_t int64_from_bool(uint8_t x) {
  return x != 0;
}
static inline int64_t int64_from_int64(int64_t x) {
  return x;
}
static inline int64_t int64_from_float32(float x) {
  return heed__to_int64((double)x);
}
static inline float float32_from_bool(uint8_t x) {
  return x != 0 ? 1.0f : 0.0f;
}
static inline float float32_from_int64(int64_t x) {
  return (float)x;
}
static inline float float32_from_float32(float x) {
  return x;
}

/* The first loop is the second with strides of 1, which the compiler vectorises. */
#define CONVERT(to, to_type, from, from_type)                                                                \
  static void to##_row_from_##from(void *dst, ptrdiff_t dst_stride, const void *src, ptrdiff_t src_stride,   \
                                   int64_t n) {                                                              \
    to_type *restrict out = dst;                                                                             \
    const from_type *restrict x = src;                                                                       \
    if (dst_stride == 1 && src_stride == 1) {                                                                \
      for (int64_t i = 0; i < n; i++) out[i] = to##_from_##from(x[i]);                                       \
    } else {                                                                                                 \
      for (int64_t i = 0; i < n; i++) out[i * dst_stride] = to##_from_##from(x[i * src_stride]);             \
    }                                                                                                        \
  }

CONVERT(bool, uint8_t, bool, uint8_t)
CONVERT(bool, uint8_t, int64, int64_t)
CONVERT(bool, uint8_t, float32, float)
CONVERT(int64, int64_t, bool, uint8_t)
CONVERT(int64, int64_t, int64, int64_t)
CONVERT(int64, int64_t, float32, float)
CONVERT(float32, float, bool, uint8_t)
CONVERT(float32, float, int64, int64_t)
CONVERT(float32, float, float32, float)

void heed__copy_row(heed_dtype to, void *dst, ptrdiff_t dst_stride, heed_dtype from, const void *src,
                    ptrdiff_t src_stride, int64_t n) {
  static void (*const convert[3][3])(void *, ptrdiff_t, const void *, ptrdiff_t, int64_t) = {
      [HEED_BOOL] = {bool_row_from_bool, bool_row_from_int64, bool_row_from_float32},
      [HEED_INT64] = {int64_row_from_bool, int64_row_from_int64, int64_row_from_float32},
      [HEED_FLOAT32] = {float32_row_from_bool, float32_row_from_int64, float32_row_from_float32},
  };
  if (to == from && dst_stride == 1 && src_stride == 1) {
    if (n > 0) memcpy(dst, src, (size_t)n * heed__element_bytes(to));
  } else {
    convert[to][from](dst, dst_stride, src, src_stride, n);
  }
}
