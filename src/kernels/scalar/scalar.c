/* The elementwise scalar kernels, and the scalar table: plain loops that a compiler vectorises. */
#include "scalar.h"

/* ---- Unary ---- */

/* Source: arXiv:1606.08415, exact and with the tanh approximation. */
static inline float gelu_of(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678f)); /* 1 / √2 */
}

static inline float gelu_tanh_of(float x) {
  const float inner = 0.79788456f * (x + 0.044715f * (x * x * x)); /* √(2 / π) */
  return 0.5f * x * (1.0f + heed__tanh_of(inner));
}

#define X(name, value)                                                                                       \
  void heed__scalar_##name(float *out, const float *row, size_t n) {                                         \
    HEED__INDEPENDENT                                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const float x = row[i];                                                                                \
      out[i] = value;                                                                                        \
    }                                                                                                        \
  }
HEED__UNARY_KERNELS(X)
#undef X

/* ---- Binary ---- */

/* With the sign of b, as in Lua and PyTorch. */
static inline float remainder_of(float a, float b) {
  const float r = fmodf(a, b);
  return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}

/* The quotient rounded down, exactly: a minus its remainder is a multiple of b. */
static inline float floor_divide_of(float a, float b) {
  const float r = fmodf(a, b), quotient = (a - r) / b - (r != 0.0f && (r < 0.0f) != (b < 0.0f) ? 1.0f : 0.0f);
  if (b == 0.0f) return a / b;
  return quotient == 0.0f ? copysignf(0.0f, a / b) : rintf(quotient);
}

/* nan if either is nan */
static inline float maximum_of(float a, float b) {
  return ((a > b) | (a != a)) ? a : b;
}
static inline float minimum_of(float a, float b) {
  return ((a < b) | (a != a)) ? a : b;
}

/* The most frequent strides have separate loops, in which they are constants. */
#define SCALAR_LOOPS(value)                                                                                  \
  if (sa == 1 && sb == 1) {                                                                                  \
    HEED__INDEPENDENT                                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const float x = a[i], y = b[i];                                                                        \
      out[i] = value;                                                                                        \
    }                                                                                                        \
  } else if (sa == 1 && sb == 0) {                                                                           \
    const float y = n > 0 ? *b : 0.0f;                                                                       \
    HEED__INDEPENDENT                                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const float x = a[i];                                                                                  \
      out[i] = value;                                                                                        \
    }                                                                                                        \
  } else if (sa == 0 && sb == 1) {                                                                           \
    const float x = n > 0 ? *a : 0.0f;                                                                       \
    HEED__INDEPENDENT                                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const float y = b[i];                                                                                  \
      out[i] = value;                                                                                        \
    }                                                                                                        \
  } else {                                                                                                   \
    for (size_t i = 0; i < n; i++, a += sa, b += sb) {                                                       \
      const float x = *a, y = *b;                                                                            \
      out[i] = value;                                                                                        \
    }                                                                                                        \
  }

#define SCALAR_BINARY(name, expression)                                                                      \
  void heed__scalar_##name(float *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb,           \
                           size_t n) {                                                                       \
    SCALAR_LOOPS(expression)                                                                                 \
  }

SCALAR_BINARY(add, x + y)
SCALAR_BINARY(sub, x - y)
SCALAR_BINARY(mul, x *y)
SCALAR_BINARY(div, x / y)
SCALAR_BINARY(remainder, remainder_of(x, y))
SCALAR_BINARY(pow_any, powf(x, y))
SCALAR_BINARY(maximum, maximum_of(x, y))
SCALAR_BINARY(minimum, minimum_of(x, y))
SCALAR_BINARY(floor_divide, floor_divide_of(x, y))
SCALAR_BINARY(fmod, fmodf(x, y))

/* PyTorch treats these exponents specially where the exponent is a single number, which is visible at
 * -inf ^ 0.5 and in the last bits. */
void heed__scalar_pow(float *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n) {
  const float exponent = n == 1 || (n > 1 && sb == 0) ? *b : 1.0f;
#define RAISED(number, expression)                                                                           \
  if (exponent == number) {                                                                                  \
    HEED__INDEPENDENT                                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const float x = a[(ptrdiff_t)i * sa];                                                                  \
      out[i] = expression;                                                                                   \
    }                                                                                                        \
    return;                                                                                                  \
  }
  RAISED(2.0f, x * x)
  RAISED(3.0f, x * x * x)
  RAISED(0.5f, sqrtf(x))
  RAISED(-0.5f, 1.0f / sqrtf(x))
  RAISED(-1.0f, 1.0f / x)
  RAISED(-2.0f, 1.0f / (x * x))
#undef RAISED
  heed__scalar_pow_any(out, a, sa, b, sb, n);
}

#define SCALAR_COMPARE(name, operator)                                                                       \
  void heed__scalar_##name(uint8_t *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb,         \
                           size_t n) {                                                                       \
    SCALAR_LOOPS(x operator y)                                                                               \
  }

SCALAR_COMPARE(eq, ==)
SCALAR_COMPARE(ne, !=)
SCALAR_COMPARE(lt, <)
SCALAR_COMPARE(le, <=)
SCALAR_COMPARE(gt, >)
SCALAR_COMPARE(ge, >=)

/* ---- The table ---- */

#define KERNEL(name) heed__scalar_##name
const heed__kernels heed__kernels_scalar = {.name = "scalar", HEED__TABLE_KERNELS};
#undef KERNEL
