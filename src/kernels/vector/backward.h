/* The kernels of backward passes on rows: gradients of activations, softmax and the norms. */
#ifndef HEED_VECTOR_BACKWARD_H
#define HEED_VECTOR_BACKWARD_H

#include "rows.h"

/* ---- Elementwise ---- */

/* Φ(x) + x φ(x): Φ(-|x|) as in gelu_of, φ(x) = 2^(-x² / 2 ln 2 + log2 √(2 / π)) / 2. */
static inline vfloat gelu_slope(vfloat x) {
  const vfloat a = v_abs(x), near = v_min(v_set(20.0f), a); /* nan passes */
  const vfloat outside = v_half_exp2_flushed(log2_outside(near));
  const vfloat inside = v_select(v_lt(v_zero(), x), v_sub(v_set(1.0f), outside), outside);
  const vfloat power = v_fma(v_mul(x, v_set(-0.72134752f)), x, v_set(-0.32574806f));
  return v_fma(x, v_half_exp2_flushed(power), inside);
}

/* 1 / (1 + e^-|u|) and 1 minus that, which loses no digits */
static inline vfloat logistic_sides(vfloat u, vfloat *rest) {
  const vfloat e = v_exp(v_neg(v_abs(u))), near = one_over(v_add(v_set(1.0f), e));
  *rest = v_mul(e, near);
  return near;
}

/* s + x s (1 - s) 2u' for s = 1 / (1 + e^-2u): ½ (1 + tanh u) is s, and 1 - tanh² u is 4 s (1 - s). */
static inline vfloat gelu_tanh_slope(vfloat x) {
  const vfloat root = v_set(2 * 0.79788456f), square = v_mul(x, x), cubic = v_set(0.044715f);
  const vfloat twice = v_mul(root, v_mul(x, v_fma(cubic, square, v_set(1.0f))));
  const vfloat inner = v_mul(root, v_fma(v_set(3 * 0.044715f), square, v_set(1.0f)));
  vfloat far;
  const vfloat near = logistic_sides(twice, &far), s = v_select(v_lt(twice, v_zero()), far, near);
  return v_fma(v_mul(x, v_mul(near, far)), inner, s);
}

static inline vfloat silu_slope(vfloat x) {
  vfloat far;
  const vfloat near = logistic_sides(x, &far);
  const vmask below = v_lt(x, v_zero());
  const vfloat s = v_select(below, far, near), other = v_select(below, near, far);
  return v_mul(s, v_fma(x, other, v_set(1.0f)));
}

#define BACKWARD(name, value)                                                                                \
  void KERNEL(name)(float *dx, const float *row, const float *dy, size_t n) {                                \
    EACH_UNROLLED(n, const vfloat x = LOAD(row), d = LOAD(dy); STORE(dx, v_mul(d, value)););                 \
  }

BACKWARD(gelu_backward, gelu_slope(x))
BACKWARD(gelu_tanh_backward, gelu_tanh_slope(x))
BACKWARD(silu_backward, silu_slope(x))
BACKWARD(sigmoid_backward, v_mul(x, v_sub(v_set(1.0f), x)))
BACKWARD(tanh_backward, v_fnma(x, x, v_set(1.0f)))

/* ---- Softmax ---- */

void KERNEL(softmax_scaled)(float *out, const float *x, float most, float log_total, float scale, size_t n) {
  const vfloat peak = v_set(most), log_sum = v_set(log_total), factor = v_set(scale);
  EACH_UNROLLED(n, STORE(out, v_mul(factor, v_exp(v_sub(v_sub(LOAD(x), peak), log_sum)))););
}

enum { LONG_SUM = 4096 }; /* elements that are summed in float32, before the sums are added in double */

/* Σ a b, or Σ a where b is NULL */
V_INLINE double sum_of_products(const float *a, const float *b, size_t n) {
  enum { SUMS = 4 };
  double total = 0;
  for (size_t start = 0; start < n; start += LONG_SUM, a += LONG_SUM, b = b ? b + LONG_SUM : NULL) {
    const size_t count = n - start < LONG_SUM ? n - start : LONG_SUM;
    vfloat sum[SUMS];
    V_UNROLL for (size_t s = 0; s < SUMS; s++) sum[s] = v_zero();
    size_t first = 0;
    for (; count - first >= SUMS * V_LANES; first += SUMS * V_LANES) {
      V_UNROLL for (size_t s = 0; s < SUMS; s++) {
        const size_t at = first + s * V_LANES;
        sum[s] = b ? v_fma(v_load(a + at), v_load(b + at), sum[s]) : v_add(v_load(a + at), sum[s]);
      }
    }
    const float *a_rest = a + first, *b_rest = b ? b + first : NULL;
    EACH(count - first,
         sum[0] = b ? v_fma(LOAD(a_rest), LOAD(b_rest), sum[0]) : v_add(LOAD(a_rest), sum[0]););
    total += (double)v_sum(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
  }
  return total;
}

void KERNEL(softmax_backward)(float *dx, const float *y, const float *dy, size_t n) {
  const vfloat all = v_set((float)sum_of_products(y, dy, n));
  EACH_UNROLLED(n, STORE(dx, v_mul(LOAD(y), v_sub(LOAD(dy), all))););
}

void KERNEL(log_softmax_backward)(float *dx, const float *y, const float *dy, size_t n) {
  const vfloat all = v_set((float)sum_of_products(dy, NULL, n));
  EACH_UNROLLED(n, STORE(dx, v_fnma(v_exp(LOAD(y)), all, LOAD(dy))););
}

/* ---- Norms ---- */

/* What a row is normalised with: y = (x - high - low) · scale; RMS norm has no mean. */
typedef struct row_statistics {
  vfloat high, low, scale;
} row_statistics;

/* As in the kernels layer_norm and rms_norm. */
V_INLINE row_statistics statistics_of(const float *x, float epsilon, size_t n, const bool centred) {
  double sum = 0, mean = 0;
  const double squares = sums_wide(x, 0.0, n, false, centred ? &sum : NULL);
  double variance = squares / (double)n;
  if (centred) {
    mean = sum / (double)n;
    variance -= mean * mean;
    if (!(variance > 0x1p-20 * mean * mean)) variance = KERNEL(sum_of_squares)(x, mean, n) / (double)n;
  }
  return (row_statistics){.high = v_set((float)mean),
                          .low = v_set((float)(mean - (double)(float)mean)),
                          .scale = v_set((float)(1.0 / sqrt(variance + (double)epsilon)))};
}

V_INLINE vfloat normalised(vfloat x, const row_statistics *s, const bool centred) {
  return v_mul(centred ? v_sub(v_sub(x, s->high), s->low) : x, s->scale);
}

/* The means of g and of g · y, with g = dy · weight. */
V_INLINE void gradient_means(const row_statistics *s, const float *x, const float *dy, const float *weight,
                             size_t n, const bool centred, float *mean, float *product_mean) {
  double total = 0, product_total = 0;
  for (size_t start = 0; start < n; start += LONG_SUM) {
    const size_t count = n - start < LONG_SUM ? n - start : LONG_SUM;
    const float *x_part = x + start, *dy_part = dy + start, *weight_part = weight ? weight + start : NULL;
    vfloat sum[2] = {v_zero(), v_zero()}, product[2] = {v_zero(), v_zero()};
    size_t first = 0;
    for (; count - first >= 2 * V_LANES; first += 2 * V_LANES) {
      V_UNROLL for (size_t p = 0; p < 2; p++) {
        const size_t at = first + p * V_LANES;
        vfloat g = v_load(dy_part + at);
        if (weight) g = v_mul(g, v_load(weight_part + at));
        if (centred) sum[p] = v_add(sum[p], g);
        product[p] = v_fma(g, normalised(v_load(x_part + at), s, centred), product[p]);
      }
    }
    x_part += first, dy_part += first, weight_part = weight ? weight_part + first : NULL;
    EACH(count - first, vfloat g = LOAD(dy_part); if (weight) g = v_mul(g, LOAD(weight_part));
         sum[0] = v_add(sum[0], g);
         product[0] = v_fma(g, v_clear(v_not_mask(some), normalised(LOAD(x_part), s, centred)), product[0]););
    total += (double)v_sum(v_add(sum[0], sum[1]));
    product_total += (double)v_sum(v_add(product[0], product[1]));
  }
  *mean = centred ? (float)(total / (double)n) : 0.0f;
  *product_mean = (float)(product_total / (double)n);
}

/* One row; weight, dx, dweight and dbias may be NULL. */
V_INLINE void norm_row_backward(const float *x, const float *dy, const float *weight, float *dx,
                                float *dweight, float *dbias, float epsilon, size_t n, const bool centred) {
  const row_statistics s = statistics_of(x, epsilon, n, centred);
  float mean = 0, product_mean = 0;
  if (dx) gradient_means(&s, x, dy, weight, n, centred, &mean, &product_mean);
  const vfloat m = v_set(mean), pm = v_set(product_mean);
  EACH(
      n, const vfloat d = LOAD(dy), y = normalised(LOAD(x), &s, centred); if (dx) {
        vfloat g = weight ? v_mul(d, LOAD(weight)) : d;
        if (centred) g = v_sub(g, m);
        STORE(dx, v_mul(s.scale, v_fnma(y, pm, g)));
      } if (dweight) STORE(dweight, v_fma(d, y, LOAD(dweight)));
      if (dbias) STORE(dbias, v_add(LOAD(dbias), d)););
}

/* The frequent case, in which no pointer is NULL, has its own loops. */
V_INLINE void norm_rows_backward(const heed__norm_backward_task *t, const bool centred) {
  const bool whole = t->weight && t->dx && t->dweight && (t->dbias != NULL) == centred;
  for (size_t r = 0; r < t->rows; r++) {
    const float *x = t->x + r * t->n, *dy = t->dy + r * t->n;
    float *dx = t->dx ? t->dx + r * t->n : NULL;
    if (whole && centred)
      norm_row_backward(x, dy, t->weight, dx, t->dweight, t->dbias, t->epsilon, t->n, centred);
    else if (whole)
      norm_row_backward(x, dy, t->weight, dx, t->dweight, NULL, t->epsilon, t->n, centred);
    else
      norm_row_backward(x, dy, t->weight, dx, t->dweight, t->dbias, t->epsilon, t->n, centred);
  }
}

void KERNEL(norm_backward)(const heed__norm_backward_task *task) {
  if (task->centred)
    norm_rows_backward(task, true);
  else
    norm_rows_backward(task, false);
}

#endif
