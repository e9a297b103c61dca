/* The scalar kernel for normal numbers: the Box-Muller transform, bit-identical to PyTorch on x86. */
#include "normal.h"
#include "scalar.h"

/* a · b + c, rounded once, which fmaf is not on some systems: an inexact sum in double is rounded to odd
 * before the second rounding. Source: S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums"
 * (IEEE Transactions on Computers 57, 2008). */
static inline float fused(float a, float b, float c) {
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

/* ln x for 0 < x <= 1: x = 2^k (1 + f) with 1 + f in [√½, √2) */
static float log_of(float x) {
  const uint32_t bits = heed__bits_of_float(x);
  const float half = heed__float_of_bits((bits & 0x7fffff) | 0x3f000000);
  const bool low = half < NORMAL_ROOT;
  const float k = (float)((int)(bits >> 23) - 0x7e - low), f = (low ? half + half : half) - 1.0f, z = f * f;
  float p = heed__normal_log_terms[0];
  for (int i = 1; i < NORMAL_LOG_TERMS; i++) p = fused(p, f, heed__normal_log_terms[i]);
  p = fused(p * f, z, k * NORMAL_LN2_LOW);
  p = fused(-z, 0.5f, p);
  return fused(k, NORMAL_LN2_HIGH, f + p);
}

/* The cosine and the sine of x, 0 <= x <= 2π: reduced by j eighths of the circle, j even. */
static void circle_of(float x, float *cosine, float *sine) {
  const int j = ((int)(x * NORMAL_4_BY_PI) + 1) & ~1;
  for (int i = 0; i < 3; i++) x = fused((float)-j, heed__normal_eighth[i], x);
  const float z = x * x;
  float c = heed__normal_cosine_terms[0], s = heed__normal_sine_terms[0];
  for (int i = 1; i < 3; i++) {
    c = fused(c, z, heed__normal_cosine_terms[i]);
    s = fused(s, z, heed__normal_sine_terms[i]);
  }
  c = fused(c * z, z, -(z * 0.5f)) + 1.0f;
  s = fused(s * z, x, x);
  const bool straight = (j & 2) == 0, minus_sine = (j & 4) != 0, minus_cosine = ((1 - j) & 4) != 0;
  const float near_cosine = straight ? c : s, near_sine = straight ? s : c;
  *cosine = minus_cosine ? -near_cosine : near_cosine;
  *sine = minus_sine ? -near_sine : near_sine;
}

void heed__scalar_normal(float *x, size_t n, float std, float mean) {
  enum { HALF = HEED__NORMAL_BLOCK / 2 };
  for (size_t i = 0; i < n; i += HEED__NORMAL_BLOCK) {
    for (size_t j = i; j < i + HALF; j++) {
      const float radius = sqrtf(-2.0f * log_of(1.0f - x[j]));
      float cosine, sine;
      circle_of(NORMAL_2_PI * x[j + HALF], &cosine, &sine);
      x[j] = fused(radius * cosine, std, mean);
      x[j + HALF] = fused(radius * sine, std, mean);
    }
  }
}

void heed__scalar_normal_sine(float *out, const float *u, const float *v, size_t n, float std, float mean) {
  for (size_t i = 0; i < n; i++) {
    float cosine, sine;
    circle_of(v[i], &cosine, &sine);
    out[i] = fused(sqrtf(-2.0f * log_of(u[i])) * sine, std, mean);
  }
}
