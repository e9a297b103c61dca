/* What the scalar kernels share with each other and with the vector kernels. */
#ifndef HEED_SCALAR_H
#define HEED_SCALAR_H

#include <math.h>
#include <string.h>

#include "../kernels.h"

/* Iterations of the next loop are independent: out equals an input or does not overlap it. The compiler
 * cannot know that and would use a slow loop for in-place work. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* loops that call libm are not vectorised */
#define HEED__INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define HEED__INDEPENDENT _Pragma("GCC ivdep")
#else
#define HEED__INDEPENDENT
#endif

/* Rows of at least this many elements are summed in as many lanes, shorter ones in order. */
#define HEED__LANES 16

/** The sum of the lanes, as a tree: the second half is added to the first, and so on. */
static inline float heed__scalar_join(float lane[HEED__LANES]) {
  for (size_t width = HEED__LANES / 2; width > 0; width /= 2)
    for (size_t l = 0; l < width; l++) lane[l] += lane[l + width];
  return lane[0];
}

/** a · b + c, rounded once, which fmaf is not on some systems: an inexact sum in double is rounded to odd
 * before the second rounding. Source: S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums"
 * (IEEE Transactions on Computers 57, 2008). */
static inline float heed__fused(float a, float b, float c) {
  const double product = (double)a * (double)b, sum = product + (double)c, part = sum - product;
  const double lost = (product - (sum - part)) + ((double)c - part);
  uint64_t bits;
  memcpy(&bits, &sum, sizeof bits);
  if ((lost < 0 || lost > 0) && bits % 2 == 0) /* false where lost is nan: the sum is not finite */
    bits = (lost > 0) == (sum > 0) ? bits + 1 : bits - 1;
  double odd;
  memcpy(&odd, &bits, sizeof odd);
  return (float)odd;
}

/** Returns e^r - 1 and sets *scale = 2^n, so that e^x = *scale · (1 + the result), with x = n ln 2 + r and
 * |r| <= ln 2 / 2. x is clamped to ±104, where e^x as a float is 0 or inf. Taylor's series, with a remainder
 * below 2^-37; branch-free, so that loops over it vectorise. */
static inline double heed__scalar_exp_parts(double x, double *scale) {
  const double to_integer = 0x1.8p52; /* adding it rounds to an integer, which is in the lowest bits */
  x = fabs(x) > 104.0 ? copysign(104.0, x) : x; /* one condition: with two in a row gcc does not vectorise */
  const double shifted = x * 1.4426950408889634 + to_integer;
  const double r = x - (shifted - to_integer) * 0.6931471805599453;
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 1023) << 52; /* n, biased, in the exponent field */
  memcpy(scale, &bits, sizeof bits);
  double e = 1.0 / 362880;
  e = e * r + 1.0 / 40320;
  e = e * r + 1.0 / 5040;
  e = e * r + 1.0 / 720;
  e = e * r + 1.0 / 120;
  e = e * r + 1.0 / 24;
  e = e * r + 1.0 / 6;
  e = e * r + 1.0 / 2;
  e = e * r + 1.0;
  return e * r;
}

/** e^x, correctly rounded except in about one case in a thousand, so a softmax mostly matches PyTorch bit for
 * bit, and sums of weights print alike ("1." or "1.0000"). */
static inline float heed__exp_of(float x) {
  double scale;
  const double part = heed__scalar_exp_parts(x, &scale);
  return (float)(scale + scale * part);
}

/** tanh x as (e^2x - 1) / (e^2x + 1), computed from the two parts of e^2x to avoid cancellation near 0. */
static inline float heed__tanh_of(float x) {
  double scale;
  const double part = heed__scalar_exp_parts(2.0 * (double)x, &scale);
  const double tanh_x = (scale * part + (scale - 1.0)) / (scale * part + (scale + 1.0));
  return copysignf((float)tanh_x, x); /* for -0 */
}

#define KERNEL(name) heed__scalar_##name
HEED__DECLARE_KERNELS
#undef KERNEL
heed__binary_kernel heed__scalar_pow_any;

/** n elements of a row of keys, values or weights as float32: the row itself if it is float32, with its
 * stride left in *column, or a widened copy in `scratch`, with *column = 1. x: element 0, of a blocked dtype
 * the beginning of a block; scale: factor of int8. */
const float *heed__scalar_widen(const void *x, heed_dtype dtype, float scale, ptrdiff_t *column, int64_t n,
                                float *scratch);

/* A block taken apart: element j is value[j] · scale[j / HEED__BLOCK_GROUP] - minimum[j / HEED__BLOCK_GROUP].
 */
#define HEED__BLOCK_GROUP 16
typedef struct heed__block {
  int8_t value[HEED__LARGEST_BLOCK];
  float scale[HEED__LARGEST_BLOCK / HEED__BLOCK_GROUP], minimum[HEED__LARGEST_BLOCK / HEED__BLOCK_GROUP];
} heed__block;
void heed__scalar_unpack(heed_dtype dtype, const void *block, heed__block *out);
/** n elements of a blocked dtype, whole blocks, as float32. */
void heed__scalar_widen_blocks(heed_dtype dtype, const void *x, int64_t n, float *out);

/** Whether a mask hides key j from query i; the window is not checked, callers use it as bounds on j. */
static inline bool heed__attention_hides(const heed__attention_task *t, int64_t i, int64_t j) {
  return (t->intervals && heed__is_outside(heed__attention_intervals(t, i), t->interval_count, j)) ||
         (t->visible && !t->visible[i * t->visible_row + j * t->visible_column]) ||
         (t->padding && t->padding[j * t->padding_stride]) ||
         (t->bias && t->bias[i * t->bias_row + j * t->bias_column] == -INFINITY);
}

/** What a slope subtracts from the score of key j for a query at `position`. */
static inline float heed__attention_distance(float slope, int64_t position, int64_t j) {
  return slope * fabsf((float)(position - j));
}

/** A capped score; c > 0. */
static inline float heed__attention_cap(float score, float c) {
  return c * heed__tanh_of(score / c);
}

#endif
