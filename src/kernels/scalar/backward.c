/* The scalar kernels of backward passes: gradients of the rows' functions (rows.c, scalar.c). */
#include "scalar.h"

/* ---- Elementwise ---- */

/* Φ(x) + x φ(x), with φ(x) = e^(-x²/2) / √(2π) */
static inline float gelu_slope(float x) {
  const float density = 0.39894228f * heed__exp_of(-0.5f * x * x);
  return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * density;
}

/* That of ½ x (1 + tanh u), with u = √(2 / π) (x + 0.044715 x³) */
static inline float gelu_tanh_slope(float x) {
  const float square = x * x, t = heed__tanh_of(0.79788456f * (x + 0.044715f * (square * x)));
  const float inner = 0.79788456f * (1.0f + 3 * 0.044715f * square);
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

/* s (1 + x (1 - s)) for s = 1 / (1 + e^-x); s and 1 - s without cancellation */
static inline float silu_slope(float x) {
  const float e = heed__exp_of(-fabsf(x)), near = 1.0f / (1.0f + e), far = e * near;
  return x < 0.0f ? far * (1.0f + x * near) : near * (1.0f + x * far);
}

#define X(name, value)                                                                                       \
  void heed__scalar_##name(float *dx, const float *row, const float *dy, size_t n) {                         \
    HEED__INDEPENDENT                                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const float x = row[i], d = dy[i];                                                                     \
      dx[i] = value;                                                                                         \
    }                                                                                                        \
  }
HEED__UNARY_BACKWARD_KERNELS(X)
#undef X

/* ---- Softmax ---- */

void heed__scalar_softmax_scaled(float *out, const float *x, float most, float log_total, float scale,
                                 size_t n) {
  HEED__INDEPENDENT
  for (size_t i = 0; i < n; i++) out[i] = scale * heed__exp_of(x[i] - most - log_total);
}

void heed__scalar_softmax_backward(float *dx, const float *y, const float *dy, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)y[i] * (double)dy[i];
  const float all = (float)sum;
  HEED__INDEPENDENT
  for (size_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - all);
}

void heed__scalar_log_softmax_backward(float *dx, const float *y, const float *dy, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)dy[i];
  const float all = (float)sum;
  HEED__INDEPENDENT
  for (size_t i = 0; i < n; i++) dx[i] = dy[i] - heed__exp_of(y[i]) * all;
}

/* ---- Norms ---- */

static void norm_row(const heed__norm_backward_task *t, const float *x, const float *dy, float *dx) {
  const double count = (double)t->n;
  double mean = 0, squares = 0, sum = 0, product = 0;
  for (size_t i = 0; t->centred && i < t->n; i++) mean += (double)x[i];
  mean /= count;
  for (size_t i = 0; i < t->n; i++) squares += ((double)x[i] - mean) * ((double)x[i] - mean);
  const double scale = 1.0 / sqrt(squares / count + (double)t->epsilon);
  for (size_t i = 0; i < t->n; i++) {
    const double g = (double)dy[i] * (t->weight ? (double)t->weight[i] : 1.0);
    sum += g;
    product += g * ((double)x[i] - mean) * scale;
  }
  if (!t->centred) sum = 0;
  for (size_t i = 0; i < t->n; i++) {
    const float d = dy[i];
    const double g = (double)d * (t->weight ? (double)t->weight[i] : 1.0), y = ((double)x[i] - mean) * scale;
    if (dx) dx[i] = (float)(scale * (g - sum / count - y * (product / count)));
    if (t->dweight) t->dweight[i] += d * (float)y;
    if (t->dbias) t->dbias[i] += d;
  }
}

void heed__scalar_norm_backward(const heed__norm_backward_task *t) {
  for (size_t r = 0; r < t->rows; r++)
    norm_row(t, t->x + r * t->n, t->dy + r * t->n, t->dx ? t->dx + r * t->n : NULL);
}
