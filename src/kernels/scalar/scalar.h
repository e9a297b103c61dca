/* What the files of the scalar table share among themselves; nobody else includes this. */
#ifndef HEED_SCALAR_H
#define HEED_SCALAR_H

#include <math.h>
#include <string.h>

#include "../kernels.h"

/* Turns of the loop below may be interleaved: out is either the same place as an input or shares none with
 * it, which the compiler cannot know and would otherwise answer with a slow loop for work in place. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* where libm is called clang cannot, which is no news */
#define HEED__INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define HEED__INDEPENDENT _Pragma("GCC ivdep")
#else
#define HEED__INDEPENDENT
#endif

/* Rows of this many elements and more are summed in as many lanes, shorter ones in order. */
#define HEED__LANES 16

/** The sum of the lanes, as a tree: each with the one half of them further. */
static inline float heed__scalar_join(float lane[HEED__LANES]) {
  for (size_t width = HEED__LANES / 2; width > 0; width /= 2)
    for (size_t l = 0; l < width; l++) lane[l] += lane[l + width];
  return lane[0];
}

/** e^x as scale · (1 + what is returned), for |x| <= 104; beyond, that of the nearer end, which as floats are
 * 0 and inf. Branch-free, so that loops over it vectorise. x = n ln 2 + r with |r| <= ln 2 / 2, scale is 2^n,
 * and e^r - 1 is Taylor's series, whose remainder is below 2^-37. */
static inline double heed__scalar_exp_parts(double x, double *scale) {
  const double to_integer =
      0x1.8p52; /* what is added to it is rounded to an integer, held in the lowest bits */
  x = fabs(x) > 104.0 ? copysign(104.0, x) : x; /* one choice: two in a row would keep gcc from vectorising */
  const double shifted = x * 1.4426950408889634 + to_integer;
  const double r = x - (shifted - to_integer) * 0.6931471805599453;
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 1023) << 52; /* n, biased, where a double has its exponent */
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

/** e^x, rounded rightly but for one case in some thousand: a softmax then has PyTorch's very bits in most
 * cases, so that sums of weights print alike ("1." or "1.0000"). */
static inline float heed__exp_of(float x) {
  double scale;
  const double part = heed__scalar_exp_parts(x, &scale);
  return (float)(scale + scale * part);
}

/** tanh x as (e^2x - 1) / (e^2x + 1); the parts keep what e^2x - 1 would lose near 0. */
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
 * stride left in *column, or a widened copy in `scratch`, with *column = 1. x: element 0; scale: factor of
 * int8. */
const float *heed__scalar_widen(const void *x, heed_dtype dtype, float scale, ptrdiff_t *column, int64_t n,
                                float *scratch);

/** Whether a mask hides key j from query i. What is out of the window is not asked: callers know it as bounds
 * on j. */
static inline bool heed__attention_hides(const heed__attention_task *t, int64_t i, int64_t j) {
  return (t->visible && !t->visible[i * t->visible_row + j * t->visible_column]) ||
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
