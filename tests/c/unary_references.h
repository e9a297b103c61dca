/* The unary operations in double precision, one row each, for test_kernels.c and test_ops.c.
 *
 *   X(name, value for double x, ulp, relative, at inf, at -inf)
 *     ulp       how far a kernel may be off, in units of the last place
 *     relative  further error for each unit of |x|: adding 1 loses digits, or e^-x is infinite
 *
 * The last two are the exact results of the kernels. */
#ifndef UNARY_REFERENCES_H
#define UNARY_REFERENCES_H

#include <math.h>

#define UNARY_REFERENCES(X)                                                                                  \
  X(exp, exp(x), 0.8, 0, INFINITY, 0.0f)                                                                     \
  X(log, log(x), 0.9, 0, INFINITY, NAN)                                                                      \
  X(sqrt, sqrt(x), 0.5, 0, INFINITY, NAN)                                                                    \
  X(rsqrt, 1 / sqrt(x), 1.5, 0, 0.0f, NAN)                                                                   \
  X(abs, fabs(x), 0, 0, INFINITY, INFINITY)                                                                  \
  X(neg, -x, 0, 0, -INFINITY, INFINITY)                                                                      \
  X(sin, sin(x), 0.8, 0, NAN, NAN)                                                                           \
  X(cos, cos(x), 0.8, 0, NAN, NAN)                                                                           \
  X(tanh, tanh(x), 0.7, 0, 1.0f, -1.0f)                                                                      \
  X(sigmoid, 1 / (1 + exp(-x)), 2.5, 1e-38, 1.0f, 0.0f)                                                      \
  X(relu, x < 0 ? 0 : x, 0, 0, INFINITY, 0.0f)                                                               \
  X(gelu, 0.5 * x * erfc(-x * 0.70710678118654752440), 2.5, 1.5e-7, INFINITY, NAN)                           \
  X(gelu_tanh, 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))), 2.5, 2e-7,         \
    INFINITY, NAN)                                                                                           \
  X(silu, x / (1 + exp(-x)), 2.5, 1e-38, INFINITY, NAN)                                                      \
  X(floor, floor(x), 0, 0, INFINITY, -INFINITY)                                                              \
  X(ceil, ceil(x), 0, 0, INFINITY, -INFINITY)                                                                \
  X(round, rint(x), 0, 0, INFINITY, -INFINITY)                                                               \
  X(trunc, trunc(x), 0, 0, INFINITY, -INFINITY)                                                              \
  X(sign, (x > 0) - (x < 0), 0, 0, 1.0f, -1.0f)                                                              \
  X(square, x *x, 0.5, 0, INFINITY, INFINITY)                                                                \
  X(reciprocal, 1 / x, 0.5, 0, 0.0f, -0.0f)                                                                  \
  X(exp2, exp2(x), 1, 0, INFINITY, 0.0f)                                                                     \
  X(expm1, expm1(x), 1.6, 0, INFINITY, -1.0f)                                                                \
  X(log2, log2(x), 1.1, 0, INFINITY, NAN)                                                                    \
  X(log10, log10(x), 2, 0, INFINITY, NAN)                                                                    \
  X(log1p, log1p(x), 1.5, 0, INFINITY, NAN)                                                                  \
  X(erf, erf(x), 1.6, 0, 1.0f, -1.0f)

#define X(name, value, ...)                                                                                  \
  static inline double reference_##name(double x) {                                                          \
    return value;                                                                                            \
  }
UNARY_REFERENCES(X)
#undef X

#endif
