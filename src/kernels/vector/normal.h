/* The Box-Muller transform, with the same steps as scalar/normal.c. */
#ifndef HEED_VECTOR_NORMAL_H
#define HEED_VECTOR_NORMAL_H

#include "../scalar/normal.h"
#include "elementary.h"

#if V_LANES == 16 /* half a block is 8 numbers */

void KERNEL(normal)(float *x, size_t n, float std, float mean) {
  heed__kernels_avx2.normal(x, n, std, mean);
}

void KERNEL(normal_sine)(float *out, const float *u, const float *v, size_t n, float std, float mean) {
  heed__kernels_avx2.normal_sine(out, u, v, n, std, mean);
}

#else

V_INLINE vfloat normal_log(vfloat x) {
  const vint bits = v_bits(x);
  const vfloat half = v_from_bits(v_add_int(v_and_int(bits, v_set_int(0x7fffff)), v_set_int(0x3f000000)));
  const vfloat above = v_to_float(v_sub_int(v_shift_right(bits, 23), v_set_int(0x7e)));
  const vmask low = v_lt(half, v_set(NORMAL_ROOT));
  const vfloat k = v_sub(above, v_select(low, v_set(1.0f), v_zero()));
  const vfloat f = v_sub(v_select(low, v_add(half, half), half), v_set(1.0f)), z = v_mul(f, f);
  vfloat p = v_set(heed__normal_log_terms[0]);
  V_UNROLL
  for (int i = 1; i < NORMAL_LOG_TERMS; i++) p = v_fused(p, f, v_set(heed__normal_log_terms[i]));
  p = v_fused(v_mul(p, f), z, v_mul(k, v_set(NORMAL_LN2_LOW)));
  p = v_fused_minus(z, v_set(0.5f), p);
  return v_fused(k, v_set(NORMAL_LN2_HIGH), v_add(f, p));
}

/* The cosine and the sine of x, 0 <= x <= 2π. */
V_INLINE void normal_circle(vfloat x, vfloat *cosine, vfloat *sine) {
  const vfloat eighths = v_mul(x, v_set(NORMAL_4_BY_PI)), near = v_round(eighths);
  const vfloat floor = v_sub(near, v_select(v_lt(eighths, near), v_set(1.0f), v_zero()));
  const vint j = v_and_int(v_add_int(v_to_int(floor), v_set_int(1)), v_set_int(~1));
  const vfloat turns = v_to_float(j);
  V_UNROLL
  for (int i = 0; i < 3; i++) x = v_fused_minus(turns, v_set(heed__normal_eighth[i]), x);
  const vfloat z = v_mul(x, x);
  vfloat c = v_set(heed__normal_cosine_terms[0]), s = v_set(heed__normal_sine_terms[0]);
  V_UNROLL
  for (int i = 1; i < 3; i++) {
    c = v_fused(c, z, v_set(heed__normal_cosine_terms[i]));
    s = v_fused(s, z, v_set(heed__normal_sine_terms[i]));
  }
  c = v_add(v_fused(v_mul(c, z), z, v_neg(v_mul(z, v_set(0.5f)))), v_set(1.0f));
  s = v_fused(v_mul(s, z), x, x);
  const vmask straight = v_eq(v_to_float(v_and_int(j, v_set_int(2))), v_zero());
  const vint four = v_set_int(4);
  const vint minus_sine = v_shift_left(v_and_int(j, four), 29);
  const vint minus_cosine = v_shift_left(v_and_int(v_sub_int(v_set_int(1), j), four), 29);
  *cosine = v_from_bits(v_add_int(v_bits(v_select(straight, c, s)), minus_cosine));
  *sine = v_from_bits(v_add_int(v_bits(v_select(straight, s, c)), minus_sine));
}

void KERNEL(normal)(float *x, size_t n, float std, float mean) {
  enum { HALF = HEED__NORMAL_BLOCK / 2 };
  for (size_t i = 0; i < n; i += HEED__NORMAL_BLOCK) {
    V_UNROLL
    for (size_t j = i; j < i + HALF; j += V_LANES) {
      const vfloat log = normal_log(v_sub(v_set(1.0f), v_load(x + j)));
      const vfloat radius = v_sqrt(v_mul(v_set(-2.0f), log));
      vfloat cosine, sine;
      normal_circle(v_mul(v_set(NORMAL_2_PI), v_load(x + j + HALF)), &cosine, &sine);
      v_store(x + j, v_fused(v_mul(radius, cosine), v_set(std), v_set(mean)));
      v_store(x + j + HALF, v_fused(v_mul(radius, sine), v_set(std), v_set(mean)));
    }
  }
}

V_INLINE vfloat normal_of_pair(vfloat u, vfloat v, float std, float mean) {
  vfloat cosine, sine;
  normal_circle(v, &cosine, &sine);
  return v_fused(v_mul(v_sqrt(v_mul(v_set(-2.0f), normal_log(u))), sine), v_set(std), v_set(mean));
}

void KERNEL(normal_sine)(float *out, const float *u, const float *v, size_t n, float std, float mean) {
  size_t i = 0;
  for (; n - i >= V_LANES; i += V_LANES)
    v_store(out + i, normal_of_pair(v_load(u + i), v_load(v + i), std, mean));
  if (i == n) return;
  float last_u[V_LANES] = {0}, last_v[V_LANES] = {0};
  for (size_t j = i; j < n; j++) {
    last_u[j - i] = u[j];
    last_v[j - i] = v[j];
  }
  v_store(last_u, normal_of_pair(v_load(last_u), v_load(last_v), std, mean));
  for (size_t j = i; j < n; j++) out[j] = last_u[j - i];
}

#endif

#endif
