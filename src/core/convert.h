/* Conversion of single elements between dtypes, as by heed_to. To a wider dtype it is exact; to a narrower
 * one it rounds to nearest, ties to even. Branch-free, so that loops vectorise; no intermediate result is
 * subnormal, since the host may have set the processor to flush those to 0. */
#ifndef HEED_CONVERT_H
#define HEED_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t heed__bits_of_float(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
static inline float heed__float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Without the sign, the bits of floats order as their magnitudes, with nan above inf; loops over the bits
 * vectorise where loops over floats do not. */
enum { HEED__MAGNITUDE = 0x7fffffff };

/** Whether any magnitude is above the one with these bits. */
static inline bool heed__any_above(const float *x, int64_t n, uint32_t bits) {
  uint32_t above = 0;
  for (int64_t i = 0; i < n; i++) above |= bits - (heed__bits_of_float(x[i]) & HEED__MAGNITUDE);
  return above >> 31;
}
/** The bits of the largest magnitude of n floats, `step` apart. */
static inline uint32_t heed__largest_magnitude(const float *x, ptrdiff_t step, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; i++) {
    const int32_t magnitude = (int32_t)(heed__bits_of_float(x[i * step]) & HEED__MAGNITUDE);
    largest = magnitude > largest ? magnitude : largest;
  }
  return (uint32_t)largest;
}

/* bfloat16: the upper half of a float32. */
static inline float heed__float_from_bfloat16(uint16_t x) {
  return heed__float_of_bits((uint32_t)x << 16);
}
static inline uint16_t heed__bfloat16_from_float(float x) {
  const uint32_t bits = heed__bits_of_float(x), even = bits >> 16 & 1;
  const uint32_t rounded = (bits + 0x7fff + even) >> 16, nan = bits >> 16 | 0x40;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

/* float16, IEEE 754's binary16: 5 bits of exponent (bias 15), 10 of fraction. */
static inline float heed__float_from_float16(uint16_t x) {
  const uint32_t sign = (uint32_t)(x & 0x8000) << 16, magnitude = x & 0x7fff;
  const uint32_t normal = (magnitude << 13) + ((127 - 15) << 23);
  const uint32_t infinite = magnitude << 13 | 0x7f800000; /* and nan, quieted as by processors */
  const uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;
  /* in subnormals the fraction counts steps of 2^-24, the unit in the last place of [0.5, 1) */
  const float small = heed__float_of_bits(magnitude | 0x3f000000) - 0.5f;
  const uint32_t large = magnitude >= 0x7c00 ? infinite | quiet : normal;
  return heed__float_of_bits(sign | (magnitude < 0x400 ? heed__bits_of_float(small) : large));
}
static inline uint16_t heed__float16_from_float(float x) {
  const uint32_t bits = heed__bits_of_float(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  const uint32_t rounded = (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  const uint32_t nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
  /* adding 0.5 rounds to steps of 2^-24, those of float16's subnormals (below 2^-14) */
  const float shifted = heed__float_of_bits(magnitude < 0x38800000 ? magnitude : 0) + 0.5f;
  const uint32_t small = heed__bits_of_float(shifted) - 0x3f000000;
  const uint32_t finite = magnitude < 0x38800000 ? small : rounded;
  const uint32_t bounded = magnitude >= 0x47800000 || finite > 0x7c00 ? 0x7c00 : finite; /* 2^16 is inf */
  return (uint16_t)(sign | (magnitude > 0x7f800000 ? nan : bounded));
}

/* Defined for every input: nan gives 0, values out of range the nearest bound. */
static inline int64_t heed__to_int64(double value) {
  if (value != value) return 0;
  if (value >= 0x1p63) return INT64_MAX;
  if (value < -0x1p63) return INT64_MIN;
  return (int64_t)value;
}
static inline int8_t heed__int8_from_float(float x) {
  const float bounded = x > 127.0f ? 127.0f : x < -128.0f ? -128.0f : x;
  return (int8_t)(x != x ? 0 : (int32_t)bounded);
}
static inline int8_t heed__int8_from_int64(int64_t x) {
  return (int8_t)(x > 127 ? 127 : x < -128 ? -128 : x);
}

#endif
