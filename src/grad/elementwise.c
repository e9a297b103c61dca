/* Gradients of elementwise arithmetic on several tensors. Where inputs broadcast, the tape sums. */
#include <math.h>

#include "grad.h"

heed_status heed__backward_same(heed__backward *b, int i) {
  if (!heed__backward_wants(b, i)) return HEED_OK;
  return heed_tensor_alias(b->ctx, b->dy[0], &b->dx[i]);
}

heed_status heed__backward_map(heed__backward *b, int i, heed__gradient_row *row, const double *numbers,
                               const heed_tensor *first, const heed_tensor *second) {
  if (!heed__backward_wants(b, i)) return HEED_OK;
  return heed__map_gradient(b->ctx, b->function, row, numbers, b->dy[0], first, second, &b->dx[i]);
}

/* ---- Names that depend on which operand is a number ---- */

#define IS_NUMBER(node, i) ((node)->saved[i].is_number)

const char *heed__sub_name(const heed__node *node) {
  return IS_NUMBER(node, 0) ? "RsubBackward1" : "SubBackward0";
}
/* a number by a tensor is its reciprocal times the number */
const char *heed__div_name(const heed__node *node) {
  return IS_NUMBER(node, 0) ? "MulBackward0" : "DivBackward0";
}
const char *heed__pow_name(const heed__node *node) {
  return IS_NUMBER(node, 1) ? "PowBackward0" : IS_NUMBER(node, 0) ? "PowBackward2" : "PowBackward1";
}
const char *heed__remainder_name(const heed__node *node) {
  return IS_NUMBER(node, 1) ? "RemainderBackward0" : "RemainderBackward1";
}
const char *heed__fmod_name(const heed__node *node) {
  return IS_NUMBER(node, 1) ? "FmodBackward0" : "FmodBackward1";
}
const char *heed__lerp_name(const heed__node *node) {
  return IS_NUMBER(node, 2) ? "LerpBackward0" : "LerpBackward1";
}

/* ---- Rows: dx from d, the gradient of the result, and from the elements u and v ---- */

#define ROW(name, value)                                                                                     \
  static void name(float *dx, const float *dy, const void *a, const void *b, const double *numbers,          \
                   size_t n) {                                                                               \
    const float *first = a, *second = b;                                                                     \
    const float number = numbers ? (float)*numbers : 0.0f;                                                   \
    (void)second, (void)number;                                                                              \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const float d = dy[i], u = first[i], v = second ? second[i] : 0.0f;                                    \
      (void)v;                                                                                               \
      dx[i] = (value);                                                                                       \
    }                                                                                                        \
  }

ROW(quotient_slope, d / u)
ROW(divisor_slope, -d *((u / v) / v))
ROW(squared_slope, d *(2.0f * u))
ROW(base_slope, u == 0.0f ? 0.0f : d * (u * v))
ROW(product_slope, d *(number *u))
ROW(scaled_quotient_slope, d *(number / u))
ROW(scaled_divisor_slope, -d *(number *u / (v * v)))
ROW(rest_slope, d *(1.0f - u))
ROW(difference_slope, d *(v - u))

#undef ROW

/* ---- Sums, products, quotients ---- */

heed_status heed__add_backward(heed__backward *b) {
  const heed_status status = heed__backward_same(b, 0);
  return status ? status : heed__backward_same(b, 1);
}

heed_status heed__sub_backward(heed__backward *b) {
  const heed_status status = heed__backward_same(b, 0);
  if (status || !heed__backward_wants(b, 1)) return status;
  return heed_neg(b->ctx, b->dy[0], &b->dx[1]);
}

heed_status heed__add_scaled_backward(heed__backward *b) {
  heed__number alpha;
  const heed_status status = heed__backward_same(b, 0);
  if (status || !heed__backward_wants(b, 1)) return status;
  const heed_tensor *factor = heed__number_tensor(&alpha, heed_number(*(const double *)b->values));
  return heed_mul(b->ctx, b->dy[0], factor, &b->dx[1]);
}

heed_status heed__mul_backward(heed__backward *b) {
  heed_tensor x;
  heed_status status = HEED_OK;
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    if (heed__backward_wants(b, i))
      status = heed_mul(b->ctx, b->dy[0], heed__backward_input(b, 1 - i, &x), &b->dx[i]);
  }
  return status;
}

heed_status heed__div_backward(heed__backward *b) {
  heed_tensor x, y;
  const heed_tensor *a = heed__backward_input(b, 0, &x), *by = heed__backward_input(b, 1, &y);
  const heed_status status = heed__backward_map(b, 0, quotient_slope, NULL, by, NULL);
  return status ? status : heed__backward_map(b, 1, divisor_slope, NULL, a, by);
}

heed_status heed__addcmul_backward(heed__backward *b) {
  heed_tensor x, y;
  const heed_tensor *a = heed__backward_input(b, 1, &x), *c = heed__backward_input(b, 2, &y);
  heed_status status = heed__backward_same(b, 0);
  if (status == HEED_OK) status = heed__backward_map(b, 1, product_slope, b->values, c, NULL);
  return status ? status : heed__backward_map(b, 2, product_slope, b->values, a, NULL);
}

heed_status heed__addcdiv_backward(heed__backward *b) {
  heed_tensor x, y;
  const heed_tensor *a = heed__backward_input(b, 1, &x), *c = heed__backward_input(b, 2, &y);
  heed_status status = heed__backward_same(b, 0);
  if (status == HEED_OK) status = heed__backward_map(b, 1, scaled_quotient_slope, b->values, c, NULL);
  return status ? status : heed__backward_map(b, 2, scaled_divisor_slope, b->values, a, c);
}

heed_status heed__lerp_backward(heed__backward *b) {
  static const double one = 1;
  heed_tensor x, y, w;
  const heed_tensor *a = heed__backward_input(b, 0, &x), *c = heed__backward_input(b, 1, &y),
                    *weight = heed__backward_input(b, 2, &w);
  heed_status status = heed__backward_map(b, 0, rest_slope, NULL, weight, NULL);
  if (status == HEED_OK) status = heed__backward_map(b, 1, product_slope, &one, weight, NULL);
  return status ? status : heed__backward_map(b, 2, difference_slope, NULL, a, c);
}

/* ---- Powers ---- */

static bool is_two(const heed__backward *b, const heed_tensor *x) {
  if (!b->node->saved[1].is_number) return false;
  return x->dtype == HEED_FLOAT32 ? *(const float *)(const void *)x->data == 2.0f
                                  : x->dtype == HEED_INT64 && *(const int64_t *)(const void *)x->data == 2;
}

/* exponent · base^(exponent - 1), and 0 where the exponent is 0 */
static heed_status base_gradient(heed__backward *b, const heed_tensor *x, const heed_tensor *exponent) {
  heed__number one;
  heed_tensor *less = NULL, *power = NULL;
  const heed_tensor *minus_one =
      heed__number_tensor(&one, heed_number(-1)); /* added: an exponent may be bool */
  if (!heed__backward_wants(b, 0)) return HEED_OK;
  if (is_two(b, exponent)) return heed__backward_map(b, 0, squared_slope, NULL, x, NULL);
  heed_status status = heed_add(b->ctx, exponent, minus_one, &less);
  if (status == HEED_OK) status = heed_pow(b->ctx, x, less, &power);
  if (status == HEED_OK) status = heed__backward_map(b, 0, base_slope, NULL, exponent, power);
  heed_tensor_free(less);
  heed_tensor_free(power);
  return status;
}

/* d · ln: u and v are y and the base, which is 0 only where the exponent is negative */
static void exponent_slope(float *dx, const float *dy, const void *a, const void *b, const double *numbers,
                           size_t n) {
  const float *y = a, *x = b;
  (void)numbers;
  for (size_t i = 0; i < n; i++) dx[i] = dy[i] * (y[i] * logf(x[i]));
}

/* y · log(base), and 0 where the base is 0 and the exponent is not negative */
static heed_status exponent_gradient(heed__backward *b, const heed_tensor *x, const heed_tensor *exponent) {
  heed__number zero;
  heed_tensor y, *at_zero = NULL, *positive = NULL;
  const heed_tensor *nothing = heed__number_tensor(&zero, heed_number(0));
  if (!heed__backward_wants(b, 1)) return HEED_OK;
  heed_status status = heed__backward_map(b, 1, exponent_slope, NULL, heed__backward_output(b, 0, &y), x);
  if (status == HEED_OK) status = heed_eq(b->ctx, x, nothing, &at_zero);
  if (status == HEED_OK) status = heed_ge(b->ctx, exponent, nothing, &positive);
  if (status == HEED_OK) {
    heed_tensor *both = NULL;
    status = heed_logical_and(b->ctx, at_zero, positive, &both);
    if (status == HEED_OK) status = heed_masked_fill(b->ctx, b->dx[1], both, heed_number(0), &b->dx[1]);
    heed_tensor_free(both);
  }
  heed_tensor_free(at_zero);
  heed_tensor_free(positive);
  return status;
}

heed_status heed__pow_backward(heed__backward *b) {
  heed_tensor x, y;
  const heed_tensor *a = heed__backward_input(b, 0, &x), *exponent = heed__backward_input(b, 1, &y);
  const heed_status status = base_gradient(b, a, exponent);
  return status ? status : exponent_gradient(b, a, exponent);
}

/* ---- Remainders and rounded quotients ---- */

/* The divisor's gradient is -d times the rounded quotient. */
static heed_status remainder_gradient(heed__backward *b,
                                      heed_status (*rounded)(heed_context *, const heed_tensor *,
                                                             const heed_tensor *, heed_tensor **)) {
  heed_tensor x, y, *quotients = NULL;
  heed_status status = heed__backward_same(b, 0);
  if (status || !heed__backward_wants(b, 1)) return status;
  status = rounded(b->ctx, heed__backward_input(b, 0, &x), heed__backward_input(b, 1, &y), &quotients);
  if (status == HEED_OK) status = heed_neg(b->ctx, quotients, &quotients);
  if (status == HEED_OK) status = heed_mul(b->ctx, b->dy[0], quotients, &b->dx[1]);
  heed_tensor_free(quotients);
  return status;
}

heed_status heed__remainder_backward(heed__backward *b) {
  return remainder_gradient(b, heed_floor_divide);
}

heed_status heed__fmod_backward(heed__backward *b) {
  return remainder_gradient(b, heed_trunc_divide);
}

heed_status heed__floor_divide_backward(heed__backward *b) {
  const heed_status status = heed__backward_zero(b, 0);
  return status ? status : heed__backward_zero(b, 1);
}

heed_status heed__trunc_divide_backward(heed__backward *b) {
  return heed__floor_divide_backward(b);
}

#undef IS_NUMBER
