/* Functions of float32 vectors that the vector kernels share. Every input is defined (nan, ±inf, subnormal
 * numbers). Errors are the largest measured over all floats, in units in the last place (ulp). */
#ifndef HEED_VECTOR_ELEMENTARY_H
#define HEED_VECTOR_ELEMENTARY_H

#include <math.h>

/* Short loops over arrays of registers must be unrolled (V_UNROLL) in functions where the counts are
 * constants; otherwise the arrays are in memory. V_TURNS(n) unrolls a loop of any length n times. */
#define V_INLINE       static inline __attribute__((always_inline))
#define V_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define V_UNROLL   V_PRAGMA(clang loop unroll(full))
#define V_TURNS(n) V_PRAGMA(clang loop unroll_count(n))
#else
#define V_UNROLL   V_PRAGMA(GCC unroll 16)
#define V_TURNS(n) V_PRAGMA(GCC unroll n)
#endif

/* Unrolling of the loops of products: loop overhead takes issue slots from the 24 or 12 multiply-adds of an
 * iteration. On ARM it does not, and clang would run out of registers. */
#if V_LANES == 16
#define TILE_TURNS V_TURNS(2)
#elif V_LANES == 8 || defined(V_ROUNDS_TWICE)
#define TILE_TURNS V_TURNS(4)
#else
#define TILE_TURNS
#endif

/* a · b + c and c - a · b, rounded once also where v_fma and v_fnma round twice (isa/wasm.h), for results
 * that depend on it: slow there. */
#if !defined(V_ROUNDS_TWICE)
#define v_fused       v_fma
#define v_fused_minus v_fnma
#endif

/* ---- Powers ---- */

/* (e^r - 1 - r) / r² for |r| <= ln 2 / 2; minimax, error 2^-28 of e^r. */
static inline vfloat exp_tail(vfloat r) {
  vfloat q = v_fma(v_set(0x1.6db42ap-10f), r, v_set(0x1.123b56p-7f));
  q = v_fma(q, r, v_set(0x1.55545ep-5f));
  q = v_fma(q, r, v_set(0x1.55548ep-3f));
  return v_fma(q, r, v_set(0.5f));
}

/* e^x = 2^k (sum + rest), with x = k ln 2 + r. ln 2 is subtracted in two parts, where the product with the
 * first is exact; sum is 1 + r rounded, and its error is in rest. */
static inline vfloat exp_parts(vfloat x, vfloat *rest, vfloat *k) {
  const vfloat one = v_set(1.0f), low = v_set(0x1.7f7d1cp-20f);
  x = v_max(v_set(-104.0f), v_min(v_set(89.0f), x)); /* beyond, results are 0 and inf */
  *k = v_round(v_mul(x, v_set(0x1.715476p0f)));
  const vfloat high = v_fnma(*k, v_set(0x1.62e4p-1f), x), r = v_fnma(*k, low, high), sum = v_add(one, high);
  const vfloat lost = v_fnma(*k, low, v_sub(high, v_sub(sum, one)));
  *rest = v_fma(v_mul(r, r), exp_tail(r), lost);
  return sum;
}

/* e^x, 0.8 ulp. Results that become 0 are cleared before scaling: in v_ldexp each subnormal result costs an
 * Intel processor about 150 cycles, and masked scores are -inf. */
static inline vfloat exp_by_parts(vfloat x) {
  vfloat rest, k;
  const vfloat sum = exp_parts(x, &rest, &k);
  return v_ldexp(v_clear(v_lt(x, v_set(-104.0f)), v_add(sum, rest)), k);
}

/* v_exp(x) is e^x; with a table it is nearly always correctly rounded, so a softmax prints as PyTorch's does
 * ("1." or "1.0000"). x = k ln 2 + r with k in steps of 2^-V_EXP_BITS, 2^k = power (1 + lost), and
 * e^r = 1 + r + r² q with an error of 2^-29. */
#if V_EXP_BITS == 0
static inline vfloat v_exp(vfloat x) {
  return exp_by_parts(x);
}
#else

/* Returns r. The low bits of *sum hold k + 127, in steps of 2^-V_EXP_BITS. */
static inline vfloat exp_rest(vfloat x, vfloat *sum, vfloat *k) {
  const vfloat shift = v_set((0x1.8p23f + 127.0f * (1 << V_EXP_BITS)) / (1 << V_EXP_BITS));
  *sum = v_fma(x, v_set(0x1.715476p0f), shift);
  *k = v_sub(*sum, shift);
  return v_fnma(*k, v_set(0x1.7f7d1cp-20f), v_fnma(*k, v_set(0x1.62e4p-1f), x));
}

#if V_EXP_BITS == 4
/* 0.6 ulp; 0.8 for subnormal results, which the scaling rounds again. */
static inline vfloat v_exp(vfloat x) {
  const vmask some = v_not_mask(v_lt(x, v_set(-104.0f))); /* others give 0, as in exp_by_parts */
  vfloat sum, k, lost;
  const vfloat r = exp_rest(v_min(v_set(89.0f), x), &sum, &k); /* nan passes */
  const vfloat q = v_fma(v_set(0x1.555822p-3f), r, v_set(0x1.0001b4p-1f));
  const vfloat power = v_exp_power(some, v_bits(sum), &lost);
  return v_ldexp_some(some, v_fma(power, v_fma(v_mul(r, r), q, v_add(r, lost)), power), k);
}
#else
static __attribute__((noinline)) vfloat exp_far(vmask far, vfloat x, vfloat y) {
  return v_select(far, exp_by_parts(x), y);
}

/* 0.6 ulp; 0.8 where 2^k may not be a normal number, which exp_by_parts computes. Elsewhere the low bits of
 * sum are shifted to the exponent. */
static inline vfloat v_exp(vfloat x) {
  const vmask gone = v_lt(x, v_set(-104.0f));
  const vmask far = v_and_mask(v_lt(v_set(87.0f), v_abs(x)), v_le(v_set(-104.0f), x));
  vfloat sum, k;
  const vfloat r = exp_rest(v_max(v_set(-104.0f), x), &sum, &k); /* nan passes */
  const vfloat q = v_fma(v_fma(v_set(0x1.555556p-5f), r, v_set(0x1.555556p-3f)), r, v_set(0.5f));
  const vint bits = v_bits(sum);
  const vfloat power = v_from_bits(v_bend_power(v_shift_left(bits, 23 - V_EXP_BITS), bits));
  const vfloat e = v_fma(v_mul(r, r), q, v_add(r, v_power_lost(bits)));
  const vfloat y = v_clear(gone, v_fma(power, e, power));
  return __builtin_expect(v_mask_bits(far) != 0, 0) ? exp_far(far, x, y) : y;
}
#endif
#endif

/* (2^r - 1) / r for |r| <= ½ */
static inline vfloat exp2_slope(vfloat r) {
  vfloat p = v_fma(v_set(0x1.448fcp-13f), r, v_set(0x1.5f47bp-10f));
  p = v_fma(p, r, v_set(0x1.3b29aap-7f));
  p = v_fma(p, r, v_set(0x1.c6aedp-5f));
  p = v_fma(p, r, v_set(0x1.ebfbep-3f));
  return v_fma(p, r, v_set(0x1.62e43p-1f));
}

/* (e^r - 1) / r for |r| <= ln 2 / 2^(V_POWER_BITS + 1), the highest power first; minimax, errors 2^-28, 2^-25
 * and 2^-24 of e^r. */
#if V_POWER_BITS == 0
#define POWER_TERMS 0x1.6ae72p-10f, 0x1.126794p-7f, 0x1.555822p-5f, 0x1.55541ap-3f, 0x1.fffffcp-2f, 1.0f
#elif V_POWER_BITS == 3
#define POWER_TERMS 0x1.5548eap-3f, 0x1.00087ep-1f, 1.0f
#else
#define POWER_TERMS 0x1.000002p-1f, 0x1.0000f6p0f
#endif

/* x[i] = e^x[i] for x[i] <= 88, 0 where that is below 2^-127: x = k ln 2 + r, k in steps of
 * 2^-V_POWER_BITS; 2.4 ulp for x >= -16, 5.6 for x >= -88 (without a table 1.3 and 4.5). Each step is done
 * for all x[i], as the steps of one depend on each other. Adding a large number leaves k in the low bits of
 * the sum, which are shifted to the exponent; v_bend_power corrects the fraction of 2^k with a table. */
V_INLINE void exp_flushed(vfloat *x, const int count) {
  static const float term[] = {POWER_TERMS};
  const vfloat shift = v_set((0x1.8p23f + 127.0f * (1 << V_POWER_BITS)) / (1 << V_POWER_BITS));
  vfloat sum[8], power[8], q[8];
#define EACH V_UNROLL for (int i = 0; i < count; i++)
  EACH x[i] = v_max(v_set(-0x1.601e68p6f), x[i]); /* 2^-127, whose bits are 0; nan passes */
  EACH sum[i] = v_fma(x[i], v_set(0x1.715476p0f), shift);
#if defined(V_ROUNDS_TWICE) /* the product with the first part is exact */
  EACH x[i] = v_fnma(v_sub(sum[i], shift), v_set(0x1.62e4p-1f), x[i]);
  EACH x[i] = v_fnma(v_sub(sum[i], shift), v_set(0x1.7f7d1cp-20f), x[i]);
#else
  EACH x[i] = v_fnma(v_sub(sum[i], shift), v_set(0x1.62e43p-1f), x[i]);
#endif
  EACH power[i] = v_from_bits(v_bend_power(v_shift_left(v_bits(sum[i]), 23 - V_POWER_BITS), v_bits(sum[i])));
  EACH q[i] = v_fma(v_set(term[0]), x[i], v_set(term[1]));
  V_UNROLL
  for (int c = 2; c < (int)(sizeof term / sizeof *term); c++) {
    EACH q[i] = v_fma(q[i], x[i], v_set(term[c]));
  }
  EACH x[i] = v_fma(v_mul(x[i], power[i]), q[i], power[i]);
#undef EACH
}

/* 2^x / 2 for x <= 127, 1 ulp, 0 where that is below 2^-126. Adding a large number leaves x + 126, rounded,
 * in the low bits of the sum, which are shifted to the exponent. */
static inline vfloat v_half_exp2_flushed(vfloat x) {
  const vfloat shift = v_set(0x1.8p23f + 126.0f);
  x = v_max(v_set(-126.0f), x); /* nan passes */
  const vfloat sum = v_add(x, shift), r = v_sub(x, v_sub(sum, shift));
  return v_mul(v_fma(exp2_slope(r), r, v_set(1.0f)), v_from_bits(v_shift_left(v_bits(sum), 23)));
}

/* 2^x, 1 ulp; exact for integers. */
static inline vfloat v_exp2(vfloat x) {
  x = v_max(v_set(-151.0f), v_min(v_set(128.0f), x)); /* beyond, results are 0 and inf; nan passes */
  const vfloat k = v_round(x), r = v_sub(x, k);
  return v_ldexp(v_fused(exp2_slope(r), r, v_set(1.0f)), k);
}

/* e^x - 1, 1.5 ulp: 2^k (e^r - 1) + (2^k - 1) unless k is so large that 1 is below an ulp. */
static inline vfloat v_expm1(vfloat x) {
  const vfloat one = v_set(1.0f);
  vfloat rest, k;
  const vfloat sum = exp_parts(x, &rest, &k), near_k = v_max(v_set(-30.0f), v_min(v_set(26.0f), k));
  const vfloat less = v_add(v_sub(sum, one), rest); /* e^r - 1 */
  const vfloat near = v_add(v_ldexp(less, near_k), v_sub(v_ldexp(one, near_k), one));
  const vfloat y = v_select(v_lt(k, v_set(26.0f)), near, v_ldexp(v_add(sum, rest), k));
  return v_select(v_eq(x, v_zero()), x, v_select(v_isnan(x), x, y));
}

/* ---- Rounding ---- */

/* The largest integer <= x; keeps -0. */
static inline vfloat v_floor(vfloat x) {
  const vfloat nearest = v_round(x);
  return v_copysign(v_select(v_lt(x, nearest), v_sub(nearest, v_set(1.0f)), nearest), x);
}

/* ---- Logarithms ---- */

/* x = m 2^k with m in [√½, √2), and ln m = f - f²/2 + f³ P(f) for f = m - 1. Returns f³ P(f). */
static inline vfloat log_cube(vfloat x, vfloat *k, vfloat *f) {
  const vmask tiny = v_lt(x, v_set(0x1p-126f)); /* subnormal */
  const vfloat normal = v_select(tiny, v_mul(x, v_set(0x1p23f)), x);
  const vint root = v_set_int(0x3f3504f3); /* the bits of √½ */
  const vint above = v_sub_int(v_bits(normal), root);
  const vfloat m = v_from_bits(v_add_int(v_and_int(above, v_set_int(0x7fffff)), root));
  *k = v_add(v_to_float(v_shift_right(above, 23)), v_select(tiny, v_set(-23.0f), v_zero()));
  *f = v_sub(m, v_set(1.0f));
  vfloat p = v_fma(v_set(-0x1.38c19cp-4f), *f, v_set(0x1.056496p-3f));
  p = v_fma(p, *f, v_set(-0x1.0d875cp-3f));
  p = v_fma(p, *f, v_set(0x1.22d90ap-3f));
  p = v_fma(p, *f, v_set(-0x1.5471f6p-3f));
  p = v_fma(p, *f, v_set(0x1.99a012p-3f));
  p = v_fma(p, *f, v_set(-0x1.000228p-2f));
  p = v_fma(p, *f, v_set(0x1.555554p-2f));
  return v_mul(v_mul(v_mul(*f, *f), *f), p);
}

/* The logarithm y of x, with its values for 0, negative numbers, inf and nan. */
static inline vfloat log_or_limit(vfloat x, vfloat y) {
  y = v_select(v_eq(x, v_zero()), v_set(-INFINITY), y);
  y = v_select(v_lt(x, v_zero()), v_set(NAN), y);
  return v_select(v_lt(x, v_set(INFINITY)), y,
                  v_add(x, v_set(INFINITY))); /* inf and nan; -inf is nan already */
}

/* ln x, 0.8 ulp. */
static inline vfloat v_log(vfloat x) {
  vfloat k, f;
  const vfloat cube = log_cube(x, &k, &f), small = v_fma(k, v_set(0x1.7f7d1cp-20f), cube);
  const vfloat tail = v_fnma(v_set(0.5f), v_mul(f, f), small);
  return log_or_limit(x, v_fma(k, v_set(0x1.62e4p-1f), v_add(f, tail)));
}

/* k · (high + low) + scale · ln m, keeping rounding errors; k · high is exact. scale_low: what scale lacks.
 */
static inline vfloat scaled_log(vfloat x, float high, float low, float scale, float scale_low) {
  const vfloat factor = v_set(scale);
  vfloat k, f;
  const vfloat cube = log_cube(x, &k, &f), tail = v_fnma(v_set(0.5f), v_mul(f, f), cube);
  const vfloat whole = v_mul(k, v_set(high)), part = v_mul(f, factor), sum = v_add(whole, part);
  const vfloat lost = v_add(v_sub(whole, sum), part);
  const vfloat rest = v_fma(f, v_set(scale_low), v_fused(f, factor, v_neg(part)));
  return log_or_limit(x, v_add(sum, v_add(lost, v_fma(tail, factor, v_fma(k, v_set(low), rest)))));
}

/* 1 ulp; exact for powers of 2, or 10. */
static inline vfloat v_log2(vfloat x) {
  return scaled_log(x, 1.0f, 0.0f, 0x1.715476p0f, 0x1.4ae0cp-26f);
}
static inline vfloat v_log10(vfloat x) {
  return scaled_log(x, 0x1.344p-2f, 0x1.3509f8p-18f, 0x1.bcb7b2p-2f, -0x1.5b235ep-27f);
}

/* ln (1 + x): what rounding 1 + x loses is added, divided by it. */
static inline vfloat v_log1p(vfloat x) {
  const vfloat one = v_set(1.0f), sum = v_add(one, x);
  const vfloat lost = v_div(v_sub(x, v_sub(sum, one)), sum), y = v_log(sum);
  const vmask inside = v_and_mask(v_lt(v_set(-1.0f), x), v_lt(x, v_set(INFINITY)));
  return v_select(v_eq(x, v_zero()), x, v_select(inside, v_add(y, lost), y));
}

/* ---- Curves from -1 to 1 ---- */

#define TANH_NEAR 0.4f

/* tanh x for |x| < TANH_NEAR, 0.7 ulp, but -0 becomes 0: x + x³ P(x²) */
static inline vfloat tanh_near(vfloat x) {
  const vfloat z = v_mul(x, x);
  vfloat p = v_fma(v_set(0x1.331a4ap-6f), z, v_set(-0x1.b6c786p-5f));
  p = v_fma(p, z, v_set(0x1.1105f4p-3f));
  p = v_fma(p, z, v_set(-0x1.55553ep-2f));
  return v_fma(v_mul(z, x), p, x);
}

/* tanh x, 0.7 ulp: where |x| >= TANH_NEAR, 1 - 2 / (e^2|x| + 1), keeping the rounding error of each step. */
static inline vfloat v_tanh(vfloat x) {
  const vfloat one = v_set(1.0f), a = v_abs(x);
  vfloat rest, k;
  const vfloat part = exp_parts(v_min(v_set(20.0f), v_add(a, a)), &rest, &k), sum = v_add(part, rest);
  const vfloat e = v_ldexp(sum, k), d = v_add(e, one);
  const vfloat d_low = v_add(v_sub(one, v_sub(d, e)), v_ldexp(v_sub(rest, v_sub(sum, part)), k));
  const vfloat q = v_div(v_set(2.0f), d);
  const vfloat left = v_fnma(q, d_low, v_fused_minus(q, d, v_set(2.0f))); /* 2 - q (d + d_low) */
  const vfloat far = v_sub(one, q), lost = v_sub(v_sub(one, far), q);
  const vfloat y = v_add(far, v_fnma(v_mul(v_set(0.5f), q), left, lost));
  return v_copysign(v_select(v_lt(a, v_set(TANH_NEAR)), tanh_near(x), y), x); /* for -0, too */
}

/* log2 of the probability that a normal number is further from 0 than x >= 0; error of the power 2^-26. Pairs
 * of terms are independent of each other. */
static inline vfloat log2_outside(vfloat x) {
  const vfloat x2 = v_mul(x, x), x4 = v_mul(x2, x2);
  const vfloat p0 = v_fma(v_set(-0x1.26aedep0f), x, v_set(0x1.75f2c2p-26f));
  const vfloat p2 = v_fma(v_set(-0x1.ae1f4ep-5f), x, v_set(-0x1.d639cep-2f));
  const vfloat p4 = v_fma(v_set(-0x1.32622p-13f), x, v_set(0x1.cfb6c2p-8f));
  const vfloat p6 = v_fma(v_set(0x1.43bd52p-15f), x, v_set(-0x1.7e9868p-13f));
  const vfloat high = v_fma(v_fma(v_set(-0x1.73b06ap-19f), x2, p6), x2, p4);
  return v_fma(high, x4, v_fma(p2, x2, p0));
}

/* erf x, 1.5 ulp: x + x P(x²) near 0, elsewhere 1 - 2 Φ(-√2 |x|). */
static inline vfloat v_erf(vfloat x) {
  const vfloat a = v_min(v_set(12.0f), v_abs(x)), z = v_mul(a, a); /* nan passes */
  const vfloat outside = v_half_exp2_flushed(log2_outside(v_mul(v_set(0x1.6a09e6p0f), a)));
  vfloat p = v_fma(v_set(-0x1.449784p-17f), z, v_set(0x1.d89ff4p-14f));
  p = v_fma(p, z, v_set(-0x1.bcd3a4p-11f));
  p = v_fma(p, z, v_set(0x1.562abep-8f));
  p = v_fma(p, z, v_set(-0x1.b829dp-6f));
  p = v_fma(p, z, v_set(0x1.ce2f0ap-4f));
  p = v_fma(p, z, v_set(-0x1.812746p-2f));
  p = v_fma(p, z, v_set(0x1.06eba8p-3f));
  const vfloat far = v_fnma(v_set(2.0f), outside, v_set(1.0f));
  return v_copysign(v_select(v_lt(a, v_set(1.0f)), v_fma(a, p, a), far), x);
}

/* ---- Sine and cosine ---- */

#define CIRCLE_LIMIT 1e5f /* largest |x| for which the reduction of x is exact */

/* sin(x + turn π/2) for |x| <= CIRCLE_LIMIT, 0.8 ulp: x = k π/2 + r + r_low, subtracting π/2 in three parts.
 */
static inline vfloat circle(vfloat x, int turn) {
  const vfloat one = v_set(1.0f), second = v_set(-0x1.777a5cp-25f);
  const vfloat k = v_round(v_mul(x, v_set(0x1.45f306p-1f)));
  const vfloat exact = v_fused_minus(k, v_set(0x1.921fb6p0f), x), p = v_mul(k, second), r = v_sub(exact, p);
  const vfloat p_low = v_fnma(k, v_set(-0x1.ee59dap-50f), v_fused_minus(k, second, p));
  const vfloat r_low = v_add(v_sub(v_sub(exact, r), p), p_low);
  const vfloat z = v_mul(r, r), half = v_mul(v_set(0.5f), z), c0 = v_sub(one, half);
  vfloat s = v_fma(v_set(0x1.6cd5ecp-19f), z, v_set(-0x1.a00f94p-13f));
  s = v_fma(s, z, v_set(0x1.111108p-7f));
  s = v_fma(s, z, v_set(-0x1.555556p-3f));
  s = v_add(r, v_fma(v_mul(z, r), s, v_mul(r_low, c0)));
  vfloat c = v_fma(v_set(0x1.99ff4p-16f), z, v_set(-0x1.6c0c82p-10f));
  c = v_fma(c, z, v_set(0x1.55554ap-5f));
  const vfloat lost = v_fnma(r, r_low, v_sub(v_sub(one, c0), half));
  c = v_add(c0, v_fma(v_mul(z, z), c, lost));
  const vint quarter = v_add_int(v_to_int(k), v_set_int(turn));
  const vmask even = v_eq(v_to_float(v_and_int(quarter, v_set_int(1))), v_zero());
  const vint minus = v_shift_left(v_and_int(quarter, v_set_int(2)), 30);
  return v_mul(v_select(even, s, c), v_from_bits(v_add_int(v_set_int(0x3f800000), minus))); /* · 1 or -1 */
}

static inline vfloat v_sin(vfloat x) {
  return v_select(v_eq(x, v_zero()), x, circle(x, 0)); /* for -0 */
}

static inline vfloat v_cos(vfloat x) {
  return circle(x, 1);
}

#endif
