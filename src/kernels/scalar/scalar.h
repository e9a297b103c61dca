/* What the files of the scalar table share among themselves; nobody else includes this. */
#ifndef HEED_K_SCALAR_H
#define HEED_K_SCALAR_H

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

/* scalar.c */
#define X(name, value) heed__unary_kernel heed__scalar_##name;
HEED__UNARY_KERNELS(X)
#undef X
#define X(name) heed__binary_kernel heed__scalar_##name;
HEED__BINARY_KERNELS(X)
X(pow_any)
#undef X
#define X(name) heed__compare_kernel heed__scalar_##name;
HEED__COMPARE_KERNELS(X)
#undef X

/* rows.c */
float heed__scalar_sum(const float *x, size_t n);
double heed__scalar_sum_of_squares(const float *x, double mean, size_t n);
void heed__scalar_sum_across(float *sum, const float *x, ptrdiff_t step, size_t rows, size_t groups,
                             size_t n);
float heed__scalar_max(const float *x, size_t n);
void heed__scalar_softmax(float *out, const float *x, size_t n);
void heed__scalar_log_softmax(float *out, const float *x, size_t n);
void heed__scalar_layer_norm(float *out, const float *x, const float *weight, const float *bias,
                             float epsilon, size_t n);
void heed__scalar_rms_norm(float *out, const float *x, const float *weight, float epsilon, size_t n);

/* convert.c */
void heed__scalar_convert(heed_dtype to, void *out, heed_dtype from, const void *x, size_t n);
/** n elements of a row of keys, values or weights as float32: the row itself, its stride in *column, or a
 * widened copy in `room`. x: element 0; scale: of int8. */
const float *heed__scalar_widen(const void *x, heed_dtype dtype, float scale, ptrdiff_t *column, int64_t n,
                                float *room);

/* normal.c */
heed__normal_transform heed__scalar_normal;

/* matrix.c */
float heed__scalar_dot(const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n);
bool heed__scalar_gemm(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, ptrdiff_t a_column,
                       const float *b, ptrdiff_t b_row, ptrdiff_t b_column, const float *bias, float *c,
                       ptrdiff_t c_row, float *room, const heed__pace *pace, int64_t *position);
size_t heed__scalar_gemm_room(size_t m, size_t n, size_t k);
void heed__scalar_transpose(float *out, ptrdiff_t out_row, const float *x, ptrdiff_t x_row, size_t rows,
                            size_t columns);

/* lowp.c */
bool heed__scalar_narrow(const heed__narrow_task *task, const heed__pace *pace, int64_t *position);

/* attention.c */
bool heed__scalar_attention(const heed__attention_task *task, const heed__pace *pace, int64_t *position);
size_t heed__scalar_attention_scratch(const heed__attention_task *task);

/** Whether a mask hides key j from query i; what its place hides is kept apart, as bounds on j. */
static inline bool heed__attention_hides(const heed__attention_task *t, int64_t i, int64_t j) {
  return (t->visible && !t->visible[i * t->visible_row + j * t->visible_column]) ||
         (t->padding && t->padding[j * t->padding_stride]) ||
         (t->bias && t->bias[i * t->bias_row + j * t->bias_column] == -INFINITY);
}

/** What a slope takes off of the score of key j for a query at `place`. */
static inline float heed__attention_distance(float slope, int64_t place, int64_t j) {
  return slope * fabsf((float)(place - j));
}

/** A capped score; c is above 0. */
static inline float heed__attention_cap(float score, float c) {
  return c * heed__tanh_of(score / c);
}

/* decode.c */
bool heed__scalar_decode(const heed__decode_task *task, const heed__pace *pace, int64_t *position);

/* pass.c */
void heed__scalar_small_pass(const heed__small_pass *pass);

#endif
