/* Gradients of elementwise operations on one tensor: from x, its input, or y, its result, in one pass. */
#include "grad.h"

/* PyTorch's formulas, with its values at kinks and poles. v: x or y, d: the gradient of y. */
#define SLOPE(name, value)                                                                                   \
  static void slope_of_##name(float *dx, const float *from, const float *dy, size_t n) {                     \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const float v = from[i], d = dy[i];                                                                    \
      dx[i] = (value);                                                                                       \
    }                                                                                                        \
  }

#define OF_INPUT(name, value)                                                                                \
  SLOPE(name, value)                                                                                         \
  heed_status heed__##name##_backward(heed__backward *b) {                                                   \
    heed_tensor x;                                                                                           \
    return heed__unary_gradient(b->ctx, b->function, slope_of_##name, heed__backward_input(b, 0, &x),        \
                                b->dy[0], &b->dx[0]);                                                        \
  }

#define OF_RESULT(name, value)                                                                               \
  SLOPE(name, value)                                                                                         \
  heed_status heed__##name##_backward(heed__backward *b) {                                                   \
    heed_tensor y;                                                                                           \
    return heed__unary_gradient(b->ctx, b->function, slope_of_##name, heed__backward_output(b, 0, &y),       \
                                b->dy[0], &b->dx[0]);                                                        \
  }

OF_RESULT(exp, d *v)
OF_INPUT(log, d / v)
OF_RESULT(sqrt, d / (2.0f * v))
OF_RESULT(rsqrt, -0.5f * d * (v * v * v))
OF_INPUT(abs, d *(float)((v > 0.0f) - (v < 0.0f)))
OF_RESULT(relu, v <= 0.0f ? 0.0f : d)
OF_INPUT(square, d *(2.0f * v))
OF_RESULT(reciprocal, -d *(v *v))
OF_RESULT(exp2, d *(v * 0.69314718f))
OF_RESULT(expm1, d *(v + 1.0f))
OF_INPUT(log2, d / (v * 0.69314718f))
OF_INPUT(log10, d / (v * 2.30258509f))
OF_INPUT(log1p, d / (v + 1.0f))
OF_INPUT(nan_to_num, d *(v - v == 0.0f ? 1.0f : 0.0f))

heed_status heed__tanh_backward(heed__backward *b) {
  heed_tensor y;
  return heed__unary_gradient(b->ctx, b->function, heed__kernels_of(b->ctx)->tanh_backward,
                              heed__backward_output(b, 0, &y), b->dy[0], &b->dx[0]);
}

heed_status heed__sigmoid_backward(heed__backward *b) {
  heed_tensor y;
  return heed__unary_gradient(b->ctx, b->function, heed__kernels_of(b->ctx)->sigmoid_backward,
                              heed__backward_output(b, 0, &y), b->dy[0], &b->dx[0]);
}

heed_status heed__neg_backward(heed__backward *b) {
  return heed_neg(b->ctx, b->dy[0], &b->dx[0]);
}

/* 2 / √π · e^(-x²) */
heed_status heed__erf_backward(heed__backward *b) {
  heed_tensor x, *slope = NULL;
  heed__number root;
  const heed_tensor *factor = heed__number_tensor(&root, heed_number(1.1283791670955126));
  heed_status status = heed_square(b->ctx, heed__backward_input(b, 0, &x), &slope);
  if (status == HEED_OK) status = heed_neg(b->ctx, slope, &slope);
  if (status == HEED_OK) status = heed_exp(b->ctx, slope, &slope);
  if (status == HEED_OK) status = heed_mul(b->ctx, slope, factor, &slope);
  if (status == HEED_OK) status = heed_mul(b->ctx, b->dy[0], slope, &b->dx[0]);
  heed_tensor_free(slope);
  return status;
}

heed_status heed__sin_backward(heed__backward *b) {
  heed_tensor x, *slope = NULL;
  heed_status status = heed_cos(b->ctx, heed__backward_input(b, 0, &x), &slope);
  if (status == HEED_OK) status = heed_mul(b->ctx, b->dy[0], slope, &b->dx[0]);
  heed_tensor_free(slope);
  return status;
}

heed_status heed__cos_backward(heed__backward *b) {
  heed_tensor x, *slope = NULL;
  heed_status status = heed_sin(b->ctx, heed__backward_input(b, 0, &x), &slope);
  if (status == HEED_OK) status = heed_neg(b->ctx, slope, &slope);
  if (status == HEED_OK) status = heed_mul(b->ctx, b->dy[0], slope, &b->dx[0]);
  heed_tensor_free(slope);
  return status;
}

/* ---- Steps: the gradient is 0 ---- */

heed_status heed__backward_zero(heed__backward *b, int i) {
  const heed__saved *x = &b->node->saved[i];
  if (!heed__backward_wants(b, i)) return HEED_OK;
  return heed__full(b->ctx, b->function, HEED_FLOAT32, x->ndim, x->dims, heed_number(0), &b->dx[i]);
}

#define STEP(name)                                                                                           \
  heed_status heed__##name##_backward(heed__backward *b) {                                                   \
    return heed__backward_zero(b, 0);                                                                        \
  }
STEP(floor)
STEP(ceil)
STEP(round)
STEP(trunc)
STEP(sign)

#undef SLOPE
#undef OF_INPUT
#undef OF_RESULT
#undef STEP
