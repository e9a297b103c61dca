/* Gradients of elementwise operations on one tensor. PyTorch's at kinks: abs 0 at 0, relu 0 at 0, and 0 for
 * those that are constant in steps. */
#include "grad.h"

#include <math.h>

/* d: the gradient of the result; x: the input, or y: the result, whichever is saved. */
#define FROM(name, saved, value)                                                                             \
  static void name##_loop(float *restrict dx, const float *restrict from, const float *restrict dy,          \
                          size_t n) {                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const float saved = from[i], d = dy[i];                                                                \
      dx[i] = (value);                                                                                       \
    }                                                                                                        \
  }
#define FROM_INPUT(name, value)                                                                              \
  FROM(name, x, value)                                                                                       \
  heed_status heed__##name##_backward(heed__backward *b) {                                                   \
    heed_tensor x;                                                                                           \
    return heed__unary_gradient(b->ctx, b->function, name##_loop, heed__backward_input(b, 0, &x), b->dy[0],  \
                                &b->dx[0]);                                                                  \
  }
#define FROM_RESULT(name, value)                                                                             \
  FROM(name, y, value)                                                                                       \
  heed_status heed__##name##_backward(heed__backward *b) {                                                   \
    heed_tensor y;                                                                                           \
    return heed__unary_gradient(b->ctx, b->function, name##_loop, heed__backward_output(b, 0, &y), b->dy[0], \
                                &b->dx[0]);                                                                  \
  }

#define LN2  0.693147180559945309f
#define LN10 2.30258509299404568f

FROM_RESULT(exp, d *y)
FROM_RESULT(exp2, d *y *LN2)
FROM_RESULT(expm1, d *(y + 1.0f))
FROM_RESULT(sqrt, d / (2.0f * y))
FROM_RESULT(rsqrt, -0.5f * d * (y * y * y))
FROM_RESULT(reciprocal, -d *(y *y))
FROM_RESULT(tanh, d *(1.0f - y * y))
FROM_RESULT(sigmoid, d *((1.0f - y) * y))
FROM_RESULT(relu, y > 0.0f || y != y ? d : 0.0f)

FROM_INPUT(abs, d *(x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? 0.0f : x))
FROM_INPUT(log, d / x)
FROM_INPUT(log2, d / (x * LN2))
FROM_INPUT(log10, d / (x * LN10))
FROM_INPUT(log1p, d / (x + 1.0f))
FROM_INPUT(sin, d *cosf(x))
FROM_INPUT(cos, d * -sinf(x))
FROM_INPUT(square, d *(2.0f * x))
FROM_INPUT(erf, d *(1.12837916709551257f * expf(-(x * x)))) /* 2 / √π */

heed_status heed__neg_backward(heed__backward *b) {
  return heed_neg(b->ctx, b->dy[0], &b->dx[0]);
}

static heed_status give_zeros(heed__backward *b) {
  const heed__saved *x = &b->node->saved[0];
  return heed__full(b->ctx, b->function, HEED_FLOAT32, x->ndim, x->dims, heed_number(0), &b->dx[0]);
}

heed_status heed__sign_backward(heed__backward *b) {
  return give_zeros(b);
}
heed_status heed__floor_backward(heed__backward *b) {
  return give_zeros(b);
}
heed_status heed__ceil_backward(heed__backward *b) {
  return give_zeros(b);
}
heed_status heed__round_backward(heed__backward *b) {
  return give_zeros(b);
}
heed_status heed__trunc_backward(heed__backward *b) {
  return give_zeros(b);
}
