/* The kernels on rows: elementwise, sums, softmax and the norms. The end of a row that is not a whole vector
 * uses masked loads and stores. */
#ifndef HEED_VECTOR_ROWS_H
#define HEED_VECTOR_ROWS_H

#include <float.h>

#include "elementary.h"

/* Runs the statements for each vector of a row of n elements, i being its first one; LOAD and STORE ignore
 * lanes beyond the row. */
#define EACH(n, ...) EACH_OF(, n, __VA_ARGS__)

/* The same, unrolled four times, a tenth faster for up to about twenty instructions: rows of a few hundred
 * elements then have so few iterations that the processor predicts the last one. */
#define EACH_UNROLLED(n, ...) EACH_OF(V_TURNS(4), n, __VA_ARGS__)

#define EACH_OF(unroll, n, ...)                                                                              \
  do {                                                                                                       \
    const size_t end = (n) / V_LANES * V_LANES;                                                              \
    size_t i = 0;                                                                                            \
    unroll for (; i < end; i += V_LANES) {                                                                   \
      enum { whole = 1 };                                                                                    \
      const vmask some = v_first(V_LANES);                                                                   \
      (void)some;                                                                                            \
      __VA_ARGS__                                                                                            \
    }                                                                                                        \
    if (i < (n)) {                                                                                           \
      enum { whole = 0 };                                                                                    \
      const vmask some = v_first((n)-i);                                                                     \
      __VA_ARGS__                                                                                            \
    }                                                                                                        \
  } while (0)
#define LOAD(p) (whole ? v_load((p) + i) : v_load_masked((p) + i, some))
#define STORE(p, value)                                                                                      \
  do {                                                                                                       \
    const vfloat stored = value;                                                                             \
    if (whole)                                                                                               \
      v_store((p) + i, stored);                                                                              \
    else                                                                                                     \
      v_store_masked((p) + i, stored, some);                                                                 \
  } while (0)

/* ---- Unary ---- */

static inline vfloat one_over(vfloat x) {
  return v_div(v_set(1.0f), x);
}

/* 1 + e^-x */
static inline vfloat logistic_divisor(vfloat x) {
  return v_add(v_set(1.0f), v_exp(v_neg(x)));
}

/* x Φ(x) as max(x, 0) - |x| Φ(-|x|). Φ(-|x|) is computed as a power of 2, which is accurate where it is
 * small. x is limited, as inf · 0 would be nan; -inf gives nan, as in PyTorch. Source: arXiv:1606.08415. */
static inline vfloat gelu_of(vfloat x) {
  const vfloat a = v_abs(v_min(v_set(20.0f), x)); /* nan passes */
  return v_fnma(a, v_half_exp2_flushed(log2_outside(a)), v_max(v_zero(), x));
}

/* The tanh approximation, from the same source. */
static inline vfloat gelu_tanh_of(vfloat x) {
  const vfloat cube = v_mul(v_mul(x, x), x);
  const vfloat inner = v_mul(v_set(0.79788456f), v_fma(v_set(0.044715f), cube, x)); /* √(2 / π) */
  return v_mul(v_mul(v_set(0.5f), x), v_add(v_set(1.0f), v_tanh(inner)));
}

/* 0 for nan */
static inline vfloat sign_of(vfloat x) {
  const vfloat above = v_select(v_lt(v_zero(), x), v_set(1.0f), v_zero());
  return v_select(v_lt(x, v_zero()), v_set(-1.0f), above);
}

#define UNARY(name, each, value)                                                                             \
  void KERNEL(name)(float *out, const float *row, size_t n) {                                                \
    each(n, const vfloat x = LOAD(row); STORE(out, value););                                                 \
  }

UNARY(exp, EACH_UNROLLED, v_exp(x))
UNARY(log, EACH, v_log(x))
UNARY(sqrt, EACH_UNROLLED, v_sqrt(x))
UNARY(rsqrt, EACH_UNROLLED, one_over(v_sqrt(x)))
UNARY(abs, EACH_UNROLLED, v_abs(x))
UNARY(neg, EACH_UNROLLED, v_neg(x))
UNARY(tanh, EACH, v_tanh(x))
UNARY(sigmoid, EACH_UNROLLED, one_over(logistic_divisor(x)))
UNARY(relu, EACH_UNROLLED, v_max(v_zero(), x)) /* keeps nan and -0 */
UNARY(gelu, EACH_UNROLLED, gelu_of(x))
UNARY(gelu_tanh, EACH, gelu_tanh_of(x))
UNARY(silu, EACH_UNROLLED, v_div(x, logistic_divisor(x)))
UNARY(floor, EACH_UNROLLED, v_floor(x))
UNARY(ceil, EACH_UNROLLED, v_neg(v_floor(v_neg(x))))
UNARY(round, EACH_UNROLLED, v_round(x))
UNARY(trunc, EACH_UNROLLED, v_copysign(v_floor(v_abs(x)), x))
UNARY(sign, EACH_UNROLLED, sign_of(x))
UNARY(square, EACH_UNROLLED, v_mul(x, x))
UNARY(reciprocal, EACH_UNROLLED, one_over(x))
UNARY(exp2, EACH_UNROLLED, v_exp2(x))
UNARY(expm1, EACH, v_expm1(x))
UNARY(log2, EACH, v_log2(x))
UNARY(log10, EACH, v_log10(x))
UNARY(log1p, EACH, v_log1p(x))
UNARY(erf, EACH, v_erf(x))

/* Lanes with large angles use the scalar kernel. */
#define CIRCULAR(name)                                                                                       \
  void KERNEL(name)(float *out, const float *row, size_t n) {                                                \
    float angle[V_LANES];                                                                                    \
    EACH(                                                                                                    \
        n, const vfloat x = LOAD(row); unsigned large = v_mask_bits(v_lt(v_set(CIRCLE_LIMIT), v_abs(x)));    \
        if (large != 0) v_store(angle, x); STORE(out, v_##name(x));                                          \
        for (size_t l = 0; large != 0; l++, large >>= 1) {                                                   \
          if (large & 1) heed__scalar_##name(out + i + l, angle + l, 1);                                     \
        });                                                                                                  \
  }

CIRCULAR(sin)
CIRCULAR(cos)

/* ---- Binary ---- */

/* nan if either is nan */
static inline vfloat maximum_of(vfloat x, vfloat y) {
  return v_select(v_isnan(x), x, v_max(x, y));
}
static inline vfloat minimum_of(vfloat x, vfloat y) {
  return v_select(v_isnan(x), x, v_min(x, y));
}

/* Strides other than 1, or 1 and 0, use the scalar kernel. */
#define BINARY_LOOPS(name, each, ...)                                                                        \
  if (n > 0 && sa == 1 && sb == 1) {                                                                         \
    each(n, const vfloat x = LOAD(a), y = LOAD(b); __VA_ARGS__;);                                            \
  } else if (n > 0 && sa == 1 && sb == 0) {                                                                  \
    const vfloat y = v_set(*b);                                                                              \
    each(n, const vfloat x = LOAD(a); __VA_ARGS__;);                                                         \
  } else if (n > 0 && sa == 0 && sb == 1) {                                                                  \
    const vfloat x = v_set(*a);                                                                              \
    each(n, const vfloat y = LOAD(b); __VA_ARGS__;);                                                         \
  } else {                                                                                                   \
    heed__scalar_##name(out, a, sa, b, sb, n);                                                               \
  }

/* Uses the AVX2 table where vectors of half the length are faster. */
#if V_LANES == 16
#define BY_AVX2_IF(condition, ...)                                                                           \
  if (condition) {                                                                                           \
    heed__kernels_avx2.__VA_ARGS__;                                                                          \
    return;                                                                                                  \
  }
#else
#define BY_AVX2_IF(condition, ...)
#endif

/* Long rows are bound by memory, which is read faster by half cache lines (Zen 4: by 7 %). */
#define BINARY(name, value)                                                                                  \
  void KERNEL(name)(float *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n) {      \
    BY_AVX2_IF(n >= 512, name(out, a, sa, b, sb, n))                                                         \
    BINARY_LOOPS(name, EACH_UNROLLED, STORE(out, value))                                                     \
  }

BINARY(add, v_add(x, y))
BINARY(sub, v_sub(x, y))
BINARY(mul, v_mul(x, y))
BINARY(div, v_div(x, y))
BINARY(maximum, maximum_of(x, y))
BINARY(minimum, minimum_of(x, y))

/* x minus the nearest multiple of y, which is exact, then moved to the sign of y. */
static inline vfloat remainder_of(vfloat x, vfloat y, vfloat quotient) {
  const vfloat rest = v_fused_minus(v_round(quotient), y, x);
  const vfloat moved = v_select(v_eq(rest, v_copysign(rest, y)), rest, v_add(rest, y));
  return v_select(v_eq(rest, v_zero()), v_copysign(rest, x), moved);
}

/* The same, moved to the sign of x, which is exact. */
static inline vfloat fmod_of(vfloat x, vfloat y, vfloat quotient) {
  const vfloat rest = v_fused_minus(v_round(quotient), y, x), moved = v_add(rest, v_copysign(y, x));
  return v_copysign(v_select(v_eq(rest, v_copysign(rest, x)), rest, moved), x);
}

/* As in the scalar kernel, with the same remainder. */
static inline vfloat floor_divide_of(vfloat x, vfloat y, vfloat quotient) {
  const vfloat r = fmod_of(x, y, quotient), one = v_set(1.0f);
  const vmask whole = v_eq(r, v_zero()), same_sign = v_eq(v_copysign(one, r), v_copysign(one, y));
  const vfloat exact = v_div(v_sub(x, r), y);
  const vfloat down = v_select(whole, exact, v_select(same_sign, exact, v_sub(exact, one)));
  return v_select(v_eq(down, v_zero()), v_copysign(v_zero(), quotient), v_round(down));
}

/* Lanes with large quotients, nan or inf, which are rare, use the scalar kernel. */
#define DIVIDING(name)                                                                                       \
  void KERNEL(name)(float *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n) {      \
    const vfloat limit = v_set(0x1p22f), largest = v_set(FLT_MAX);                                           \
    float over[V_LANES], under[V_LANES];                                                                     \
    BINARY_LOOPS(                                                                                            \
        name, EACH, const vfloat quotient = v_div(x, y);                                                     \
        const vmask easy = v_and_mask(v_lt(v_abs(quotient), limit), v_le(v_abs(y), largest));                \
        unsigned hard = v_mask_bits(v_and_mask(some, v_not_mask(easy))); if (hard != 0) {                    \
          v_store(over, x);                                                                                  \
          v_store(under, y);                                                                                 \
        } STORE(out, name##_of(x, y, quotient));                                                             \
        for (size_t l = 0; hard != 0; l++, hard >>= 1) {                                                     \
          if (hard & 1) heed__scalar_##name(out + i + l, over + l, 1, under + l, 1, 1);                      \
        })                                                                                                   \
  }

DIVIDING(remainder)
DIVIDING(fmod)
DIVIDING(floor_divide)

/* No vector code: the scalar kernel calls libm. */
void KERNEL(pow)(float *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n) {
  heed__scalar_pow(out, a, sa, b, sb, n);
}

static inline void store_some_bytes(uint8_t *p, vmask m, size_t n) {
  const unsigned bits = v_mask_bits(m);
  for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(bits >> i & 1);
}

#define COMPARE(name, holds)                                                                                 \
  void KERNEL(name)(uint8_t * out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n) {   \
    BINARY_LOOPS(name, EACH, if (whole) v_store_bytes(out + i, holds);                                       \
                 else store_some_bytes(out + i, holds, n - i))                                               \
  }

COMPARE(eq, v_eq(x, y))
COMPARE(ne, v_not_mask(v_eq(x, y)))
COMPARE(lt, v_lt(x, y))
COMPARE(le, v_le(x, y))

void KERNEL(gt)(uint8_t *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n) {
  KERNEL(lt)(out, b, sb, a, sa, n);
}
void KERNEL(ge)(uint8_t *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n) {
  KERNEL(le)(out, b, sb, a, sa, n);
}

/* ---- Sums ---- */

/* The order of heed__scalar_sum, bit for bit. */
enum { SUM_LANES = 8, STRIPE = 4 * SUM_LANES, CASCADE = 16, IN_STRIPE = STRIPE / V_LANES };

typedef struct stripe {
  vfloat part[IN_STRIPE];
} stripe;

static inline stripe zero_stripe(void) {
  stripe zero;
  for (size_t v = 0; v < IN_STRIPE; v++) zero.part[v] = v_zero();
  return zero;
}

static inline stripe add_stripes(stripe a, stripe b) {
  for (size_t v = 0; v < IN_STRIPE; v++) a.part[v] = v_add(a.part[v], b.part[v]);
  return a;
}

static inline stripe sum_of_stripes(const float *x, size_t stripes) {
  stripe sum = zero_stripe();
  for (; stripes > 0; stripes--, x += STRIPE) {
    for (size_t v = 0; v < IN_STRIPE; v++) sum.part[v] = v_add(sum.part[v], v_load(x + v * V_LANES));
  }
  return sum;
}

float KERNEL(sum)(const float *x, size_t n) {
  if (n < SUM_LANES) return heed__scalar_sum(x, n);
  const size_t stripes = n / STRIPE;
  stripe first = zero_stripe(), second = first, third = first; /* levels */
  float lane[STRIPE], total = 0.0f;
  size_t s = 0;
  while (stripes - s >= CASCADE) {
    first = add_stripes(first, sum_of_stripes(x + s * STRIPE, CASCADE));
    s += CASCADE;
    if (s % (CASCADE * CASCADE) != 0) continue;
    second = add_stripes(second, first);
    first = zero_stripe();
    if (s % (CASCADE * CASCADE * CASCADE) != 0) continue;
    third = add_stripes(third, second);
    second = zero_stripe();
  }
  stripe all = sum_of_stripes(x + s * STRIPE, stripes - s);
  all = add_stripes(add_stripes(add_stripes(all, first), second), third);
  for (size_t v = 0; v < IN_STRIPE; v++) v_store(lane + v * V_LANES, all.part[v]);
  size_t i = stripes * STRIPE;
  for (; n - i >= SUM_LANES; i += SUM_LANES)
    for (size_t l = 0; l < SUM_LANES; l++) lane[l] += x[i + l];
  for (size_t row = SUM_LANES; row < STRIPE; row += SUM_LANES)
    for (size_t l = 0; l < SUM_LANES; l++) lane[l] += lane[row + l];
  for (; i < n; i++) total += x[i];
  for (size_t l = 0; l < SUM_LANES; l++) total += lane[l];
  return total;
}

/* Σ (x - middle)² in double, or Σ x² unless `centred`; and Σ x in *sum, where sum is not NULL. */
V_INLINE double sums_wide(const float *x, double middle, size_t n, const bool centred, double *sum) {
  enum { SUMS = 4, WIDE = V_LANES / 2 };
  const vdouble off = vd_set(middle);
  vdouble squares[SUMS], sums[SUMS];
  double rest_of_squares = 0.0, rest = 0.0;
  size_t i = 0;
  V_UNROLL for (size_t s = 0; s < SUMS; s++) squares[s] = sums[s] = vd_set(0.0);
#define ADD_VECTOR(s)                                                                                        \
  do {                                                                                                       \
    const vdouble v = vd_load(x + i + (s)*WIDE), d = centred ? vd_sub(v, off) : v;                           \
    squares[s] = vd_fma(d, d, squares[s]);                                                                   \
    if (sum) sums[s] = vd_add(sums[s], v);                                                                   \
  } while (0)
  for (; n - i >= SUMS * WIDE; i += SUMS * WIDE) {
    V_UNROLL for (size_t s = 0; s < SUMS; s++) ADD_VECTOR(s);
  }
  for (; n - i >= WIDE; i += WIDE) ADD_VECTOR(0);
#undef ADD_VECTOR
  for (; i < n; i++) {
    const double v = (double)x[i], d = centred ? v - middle : v;
    rest_of_squares += d * d;
    rest += v;
  }
  if (sum) *sum = vd_sum(vd_add(vd_add(sums[0], sums[1]), vd_add(sums[2], sums[3]))) + rest;
  return vd_sum(vd_add(vd_add(squares[0], squares[1]), vd_add(squares[2], squares[3]))) + rest_of_squares;
}

double KERNEL(sum_of_squares)(const float *x, double mean, size_t n) {
  return sums_wide(x, mean, n, true, NULL);
}

/* sum_across for up to `vectors` vectors of columns; unless `whole`, only the lanes `some` of each. `vectors`
 * and `whole` are constants wherever this is inlined. */
V_INLINE void sum_some_columns(float *sum, const float *x, ptrdiff_t step, size_t rows, size_t groups,
                               const size_t vectors, const bool whole, vmask some) {
  enum { MOST_VECTORS = 4 };
  vfloat total[MOST_VECTORS], part[MOST_VECTORS];
  V_UNROLL for (size_t v = 0; v < vectors; v++) total[v] =
      whole ? v_load(sum + v * V_LANES) : v_load_masked(sum + v * V_LANES, some);
  for (; groups > 0; groups--) {
    V_UNROLL for (size_t v = 0; v < vectors; v++) part[v] = v_zero();
    V_TURNS(4) for (size_t r = 0; r < rows; r++, x += step) {
      V_UNROLL for (size_t v = 0; v < vectors; v++) part[v] =
          v_add(part[v], whole ? v_load(x + v * V_LANES) : v_load_masked(x + v * V_LANES, some));
    }
    V_UNROLL for (size_t v = 0; v < vectors; v++) total[v] = v_add(total[v], part[v]);
  }
  V_UNROLL for (size_t v = 0; v < vectors; v++) {
    if (whole)
      v_store(sum + v * V_LANES, total[v]);
    else
      v_store_masked(sum + v * V_LANES, total[v], some);
  }
}

/* Groups are independent, so the processor overlaps them, although each adds its rows in order. Loads longer
 * than a row cross cache lines more often (Zen 4, 8 columns: two thirds slower). */
void KERNEL(sum_across)(float *sum, const float *x, ptrdiff_t step, size_t rows, size_t groups, size_t n) {
  const vmask all = v_first(V_LANES);
  size_t i = 0;
  BY_AVX2_IF(n <= V_LANES / 2, sum_across(sum, x, step, rows, groups, n))
  for (; n - i >= 4 * V_LANES; i += 4 * V_LANES)
    sum_some_columns(sum + i, x + i, step, rows, groups, 4, true, all);
  for (; n - i >= 2 * V_LANES; i += 2 * V_LANES)
    sum_some_columns(sum + i, x + i, step, rows, groups, 2, true, all);
  for (; n - i >= V_LANES; i += V_LANES) sum_some_columns(sum + i, x + i, step, rows, groups, 1, true, all);
  if (i < n) sum_some_columns(sum + i, x + i, step, rows, groups, 1, false, v_first(n - i));
}

float KERNEL(dot)(const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n) {
  enum { SUMS = 4 };
  if (sa != 1 || sb != 1 || n < HEED__LANES) return heed__scalar_dot(a, sa, b, sb, n);
  vfloat sum[SUMS];
  for (size_t s = 0; s < SUMS; s++) sum[s] = v_zero();
  size_t first = 0;
  for (; n - first >= SUMS * V_LANES; first += SUMS * V_LANES) {
    for (size_t s = 0; s < SUMS; s++) {
      const size_t at = first + s * V_LANES;
      sum[s] = v_fma(v_load(a + at), v_load(b + at), sum[s]);
    }
  }
  a += first, b += first;
  EACH(n - first, sum[0] = v_fma(LOAD(a), LOAD(b), sum[0]););
  return v_sum(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
}

/* ---- Softmax ---- */

/* In two independent chains, as each maximum depends on the one before. */
float KERNEL(max)(const float *x, size_t n) {
  const vfloat lowest = v_set(-INFINITY);
  vfloat most = lowest, other = lowest;
  vmask ordered = v_first(V_LANES);
  size_t i = 0;
  for (; n - i >= 2 * V_LANES; i += 2 * V_LANES) {
    const vfloat v = v_load(x + i), w = v_load(x + i + V_LANES);
    ordered = v_and_mask(ordered, v_ordered(v, w));
    most = v_max(most, v);
    other = v_max(other, w);
  }
  for (; i < n; i += V_LANES) {
    const vmask some = v_first(n - i < V_LANES ? n - i : V_LANES);
    const vfloat v = v_select(some, v_load_masked(x + i, some), lowest);
    ordered = v_and_mask(ordered, v_ordered(v, v));
    most = v_max(most, v);
  }
  most = v_max(most, other);
  return v_mask_bits(ordered) == v_mask_bits(v_first(V_LANES)) ? v_highest(most) : NAN;
}

/* e^d for d <= 0; less accurate where only the sum is needed. */
V_INLINE vfloat exponential(vfloat d, const bool stored) {
  if (stored) return v_exp(d);
  exp_flushed(&d, 1);
  return d;
}

/* Σ e^(x - most), in the order of the scalar softmax. If `stored`, the terms go to out, which may be x. */
V_INLINE float exponentials(float *out, const float *x, float most, size_t n, const bool stored) {
  enum { PARTS = HEED__LANES / V_LANES };
  const vfloat peak = v_set(most);
  vfloat sum[PARTS];
  float rest[HEED__LANES] = {0};
  V_UNROLL for (size_t p = 0; p < PARTS; p++) sum[p] = v_zero();
  size_t i = 0;
  for (; n - i >= HEED__LANES; i += HEED__LANES) {
    V_UNROLL for (size_t p = 0; p < PARTS; p++) {
      const size_t at = i + p * V_LANES;
      const vfloat e = exponential(v_sub(v_load(x + at), peak), stored);
      if (stored) v_store(out + at, e);
      sum[p] = v_add(sum[p], e);
    }
  }
  for (size_t at = i; at < n; at += V_LANES) {
    const vmask some = v_first(n - at < V_LANES ? n - at : V_LANES);
    const vfloat e = exponential(v_sub(v_load_masked(x + at, some), peak), stored);
    if (stored) v_store_masked(out + at, e, some);
    v_store_masked(rest + (at - i), e, some);
  }
  if (n < HEED__LANES) {
    float total = 0.0f;
    for (size_t l = 0; l < n; l++) total += rest[l];
    return total;
  }
  for (size_t p = 0; i < n && p < PARTS; p++) sum[p] = v_add(sum[p], v_load(rest + p * V_LANES));
  for (size_t width = PARTS / 2; width > 0; width /= 2)
    for (size_t p = 0; p < width; p++) sum[p] = v_add(sum[p], sum[p + width]);
  return v_sum(sum[0]);
}

void KERNEL(softmax)(float *out, const float *x, size_t n) {
  const vfloat scale = v_set(1.0f / exponentials(out, x, KERNEL(max)(x, n), n, true));
  EACH_UNROLLED(n, STORE(out, v_mul(LOAD(out), scale)););
}

float KERNEL(log_sum_exp)(const float *x, size_t n, float *most_out) {
  enum { CHUNK = 256 }; /* as in the scalar kernel */
  const float most = KERNEL(max)(x, n);
  float total = 0.0f;
  for (size_t start = 0; start < n; start += CHUNK)
    total += exponentials(NULL, x + start, most, n - start < CHUNK ? n - start : CHUNK, false);
  *most_out = most;
  return logf(total);
}

void KERNEL(log_softmax)(float *out, const float *x, size_t n) {
  float most;
  const vfloat log_total = v_set(KERNEL(log_sum_exp)(x, n, &most)), peak = v_set(most);
  EACH_UNROLLED(n, STORE(out, v_sub(v_sub(LOAD(x), peak), log_total)););
}

/* ---- Norms ---- */

/* One pass computes both sums. Where the mean is so large that the difference would lose more than 20 of a
 * double's 53 bits, a second pass computes the variance. For the same reason the mean is subtracted in two
 * parts. */
void KERNEL(layer_norm)(float *out, const float *x, const float *weight, const float *bias, float epsilon,
                        size_t n) {
  double sum;
  const double squares = sums_wide(x, 0.0, n, false, &sum), mean = sum / (double)n;
  double variance = squares / (double)n - mean * mean;
  if (!(variance > 0x1p-20 * mean * mean)) variance = KERNEL(sum_of_squares)(x, mean, n) / (double)n;
  const vfloat scale = v_set((float)(1.0 / sqrt(variance + (double)epsilon)));
  const vfloat high = v_set((float)mean), low = v_set((float)(mean - (double)(float)mean));
  EACH_UNROLLED(n, vfloat y = v_mul(v_sub(v_sub(LOAD(x), high), low), scale);
                if (weight) y = v_mul(y, LOAD(weight)); if (bias) y = v_add(y, LOAD(bias)); STORE(out, y););
}

void KERNEL(rms_norm)(float *out, const float *x, const float *weight, float epsilon, size_t n) {
  const double mean_square = sums_wide(x, 0.0, n, false, NULL) / (double)n;
  const vfloat scale = v_set((float)(1.0 / sqrt(mean_square + (double)epsilon)));
  EACH_UNROLLED(n, vfloat y = v_mul(LOAD(x), scale); if (weight) y = v_mul(y, LOAD(weight)); STORE(out, y););
}

/* ---- Transpose ---- */

/* Transposes a square of up to V_LANES rows and columns; missing ones are zeros and are not stored. */
static inline void transpose_square(float *out, ptrdiff_t out_row, const float *x, ptrdiff_t x_row,
                                    size_t rows, size_t columns) {
  vfloat square[V_LANES];
  if (rows >= V_LANES && columns >= V_LANES) {
    for (size_t i = 0; i < V_LANES; i++) square[i] = v_load(x + (ptrdiff_t)i * x_row);
    v_transpose(square);
    for (size_t i = 0; i < V_LANES; i++) v_store(out + (ptrdiff_t)i * out_row, square[i]);
  } else {
    const vmask loaded = v_first(columns < V_LANES ? columns : V_LANES);
    const vmask stored = v_first(rows < V_LANES ? rows : V_LANES);
    for (size_t i = 0; i < V_LANES; i++)
      square[i] = i < rows ? v_load_masked(x + (ptrdiff_t)i * x_row, loaded) : v_zero();
    v_transpose(square);
    for (size_t i = 0; i < columns && i < V_LANES; i++)
      v_store_masked(out + (ptrdiff_t)i * out_row, square[i], stored);
  }
}

/* Rows that are a power of 2 apart share a few cache lines, so lines should be read and written whole: where
 * a register is shorter than a line, squares of lines go through the stack. */
void KERNEL(transpose)(float *out, ptrdiff_t out_row, const float *x, ptrdiff_t x_row, size_t rows,
                       size_t columns) {
  enum { LINE = 16 };
  float tile[LINE * LINE];
  for (size_t r = 0; r < rows; r += LINE) {
    for (size_t c = 0; c < columns; c += LINE) {
      const bool through = V_LANES < LINE && rows - r >= LINE && columns - c >= LINE;
      const float *from = x + (ptrdiff_t)r * x_row + (ptrdiff_t)c;
      float *to = out + (ptrdiff_t)c * out_row + (ptrdiff_t)r;
      float *square_to = through ? tile : to;
      const ptrdiff_t square_row = through ? LINE : out_row;
      for (size_t i = 0; i < LINE && r + i < rows; i += V_LANES) {
        for (size_t j = 0; j < LINE && c + j < columns; j += V_LANES)
          transpose_square(square_to + (ptrdiff_t)j * square_row + (ptrdiff_t)i, square_row,
                           from + (ptrdiff_t)i * x_row + (ptrdiff_t)j, x_row, rows - r - i, columns - c - j);
      }
      for (size_t i = 0; through && i < LINE; i++) {
        for (size_t l = 0; l < LINE; l += V_LANES)
          v_store(to + (ptrdiff_t)i * out_row + l, v_load(tile + i * LINE + l));
      }
    }
  }
}

#endif
