/* The scalar kernel for normal numbers: the Box-Muller transform, bit-identical to PyTorch on x86. */
#include "normal.h"
#include "scalar.h"

/* ln x for 0 < x <= 1: x = 2^k (1 + f) with 1 + f in [√½, √2) */
static float log_of(float x) {
  const uint32_t bits = heed__bits_of_float(x);
  const float half = heed__float_of_bits((bits & 0x7fffff) | 0x3f000000);
  const bool low = half < NORMAL_ROOT;
  const float k = (float)((int)(bits >> 23) - 0x7e - low), f = (low ? half + half : half) - 1.0f, z = f * f;
  float p = heed__normal_log_terms[0];
  for (int i = 1; i < NORMAL_LOG_TERMS; i++) p = heed__fused(p, f, heed__normal_log_terms[i]);
  p = heed__fused(p * f, z, k * NORMAL_LN2_LOW);
  p = heed__fused(-z, 0.5f, p);
  return heed__fused(k, NORMAL_LN2_HIGH, f + p);
}

/* The cosine and the sine of x, 0 <= x <= 2π: reduced by j eighths of the circle, j even. */
static void circle_of(float x, float *cosine, float *sine) {
  const int j = ((int)(x * NORMAL_4_BY_PI) + 1) & ~1;
  for (int i = 0; i < 3; i++) x = heed__fused((float)-j, heed__normal_eighth[i], x);
  const float z = x * x;
  float c = heed__normal_cosine_terms[0], s = heed__normal_sine_terms[0];
  for (int i = 1; i < 3; i++) {
    c = heed__fused(c, z, heed__normal_cosine_terms[i]);
    s = heed__fused(s, z, heed__normal_sine_terms[i]);
  }
  c = heed__fused(c * z, z, -(z * 0.5f)) + 1.0f;
  s = heed__fused(s * z, x, x);
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
      x[j] = heed__fused(radius * cosine, std, mean);
      x[j + HALF] = heed__fused(radius * sine, std, mean);
    }
  }
}

void heed__scalar_normal_sine(float *out, const float *u, const float *v, size_t n, float std, float mean) {
  for (size_t i = 0; i < n; i++) {
    float cosine, sine;
    circle_of(v[i], &cosine, &sine);
    out[i] = heed__fused(sqrtf(-2.0f * log_of(u[i])) * sine, std, mean);
  }
}
