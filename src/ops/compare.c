/* Comparisons and tests, elementwise to bool, and of two whole tensors. */
#include <math.h>

#include "map.h"

/* ---- Rows ---- */

#define TEST_ROW(name, type, expression)                                                                     \
  static void name(const void *user, void *out, const heed__span *in, size_t n) {                            \
    (void)user;                                                                                              \
    uint8_t *to = out;                                                                                       \
    const type *from = in[0].data;                                                                           \
    const ptrdiff_t step = in[0].stride;                                                                     \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const type x = from[(ptrdiff_t)i * step];                                                              \
      to[i] = (uint8_t)((expression) ? 1 : 0);                                                               \
    }                                                                                                        \
  }

#define COMPARE_ROW(name, type, expression)                                                                  \
  static void name(const void *user, void *out, const heed__span *in, size_t n) {                            \
    (void)user;                                                                                              \
    uint8_t *to = out;                                                                                       \
    const type *left = in[0].data, *right = in[1].data;                                                      \
    const ptrdiff_t left_step = in[0].stride, right_step = in[1].stride;                                     \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const type a = left[(ptrdiff_t)i * left_step], b = right[(ptrdiff_t)i * right_step];                   \
      to[i] = (uint8_t)((expression) ? 1 : 0);                                                               \
    }                                                                                                        \
  }

TEST_ROW(row_logical_not, uint8_t, x == 0)
TEST_ROW(row_isnan, float, isnan(x))
TEST_ROW(row_isinf, float, isinf(x))
COMPARE_ROW(row_logical_and, uint8_t, a != 0 && b != 0)
COMPARE_ROW(row_logical_or, uint8_t, (a | b) != 0)
COMPARE_ROW(row_logical_xor, uint8_t, (a != 0) != (b != 0))

#define INTEGER_ROWS(name, operator)                                                                         \
  COMPARE_ROW(bool_##name, uint8_t, a operator b)                                                            \
  COMPARE_ROW(int64_##name, int64_t, a operator b)
INTEGER_ROWS(eq, ==)
INTEGER_ROWS(ne, !=)
INTEGER_ROWS(lt, <)
INTEGER_ROWS(le, <=)
INTEGER_ROWS(gt, >)
INTEGER_ROWS(ge, >=)

static void float_compare(const void *user, void *out, const heed__span *in, size_t n) {
  heed__compare_kernel *const *kernel = user;
  (*kernel)(out, in[0].data, in[0].stride, in[1].data, in[1].stride, n);
}

/* ---- Elementwise ---- */

static heed__map map_of_one(const char *function, heed__row *row, heed_dtype read_as, const heed_tensor *x) {
  return (heed__map){
      .function = function,
      .result = HEED_BOOL,
      .row = row,
      .count = 1,
      .input = {{"x", x, read_as}},
  };
}

static heed__map map_of_two(const char *function, heed__row *row, const void *user, heed_dtype read_as,
                            const heed_tensor *a, const heed_tensor *b) {
  return (heed__map){
      .function = function,
      .result = HEED_BOOL,
      .row = row,
      .user = user,
      .count = 2,
      .input = {{"a", a, read_as}, {"b", b, read_as}},
  };
}

/* In the wider dtype of a and b. */
static heed__map compare_map(const char *function, heed__row *of_bool, heed__row *of_int64,
                             heed__compare_kernel *const *kernel, const heed_tensor *a,
                             const heed_tensor *b) {
  const heed_dtype dtype = heed__wider(a->dtype, b->dtype);
  heed__row *const row = dtype == HEED_BOOL ? of_bool : dtype == HEED_INT64 ? of_int64 : float_compare;
  return map_of_two(function, row, kernel, dtype, a, b);
}

#define X(name)                                                                                              \
  heed_status heed_##name(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,                     \
                          heed_tensor **out) {                                                               \
    HEED__ENTER(ctx, #name, a, b, out);                                                                      \
    const heed__map map = compare_map(#name, bool_##name, int64_##name, &heed__kernels_of(ctx)->name, a, b); \
    return heed__recorded_constant(ctx, heed__map_run(ctx, &map, out), HEED__OP_##name, out);                \
  }
HEED_COMPARE_LIST(X)
#undef X

#define X(name)                                                                                              \
  heed_status heed_##name(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,                     \
                          heed_tensor **out) {                                                               \
    HEED__ENTER(ctx, #name, a, b, out);                                                                      \
    const heed__map map = map_of_two(#name, row_##name, NULL, HEED_BOOL, a, b);                              \
    return heed__recorded_constant(ctx, heed__map_run(ctx, &map, out), HEED__OP_##name, out);                \
  }
HEED_LOGICAL_LIST(X)
#undef X

#define READ_AS_logical_not HEED_BOOL
#define READ_AS_isnan       HEED_FLOAT32 /* no integer becomes nan or infinite as a float32 */
#define READ_AS_isinf       HEED_FLOAT32
#define X(name)                                                                                              \
  heed_status heed_##name(heed_context *ctx, const heed_tensor *x, heed_tensor **out) {                      \
    HEED__ENTER(ctx, #name, x, out);                                                                         \
    const heed__map map = map_of_one(#name, row_##name, READ_AS_##name, x);                                  \
    return heed__recorded_constant(ctx, heed__map_run(ctx, &map, out), HEED__OP_##name, out);                \
  }
HEED_TEST_LIST(X)
X(logical_not)
#undef X

/* ---- Two whole tensors ---- */

heed_status heed_equal(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, bool *out) {
  HEED__ENTER(ctx, "equal", a, b, out);
  if (!heed__same_shape(a->ndim, a->shape, b->ndim, b->shape)) {
    *out = false;
    return HEED_OK;
  }
  const heed__map map = compare_map("equal", bool_eq, int64_eq, &heed__kernels_of(ctx)->eq, a, b);
  return heed__map_all(ctx, &map, out);
}

typedef struct tolerance {
  float relative, absolute;
  bool equal_nan;
} tolerance;

static bool is_close(const tolerance *t, float difference, float b) {
  return isfinite(difference) && fabsf(difference) <= t->absolute + fabsf(t->relative * b);
}

static void float_close(const void *user, void *out, const heed__span *in, size_t n) {
  const tolerance *t = user;
  uint8_t *to = out;
  for (size_t i = 0; i < n; i++) {
    const float a = ((const float *)in[0].data)[(ptrdiff_t)i * in[0].stride];
    const float b = ((const float *)in[1].data)[(ptrdiff_t)i * in[1].stride];
    to[i] = a == b || is_close(t, a - b, b) || (t->equal_nan && isnan(a) && isnan(b));
  }
}

static void int64_close(const void *user, void *out, const heed__span *in, size_t n) {
  uint8_t *to = out;
  for (size_t i = 0; i < n; i++) {
    const int64_t a = ((const int64_t *)in[0].data)[(ptrdiff_t)i * in[0].stride];
    const int64_t b = ((const int64_t *)in[1].data)[(ptrdiff_t)i * in[1].stride];
    const uint64_t difference = a < b ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b;
    to[i] = a == b || is_close(user, (float)difference, (float)b);
  }
}

static heed_status close_map(heed_context *ctx, const char *function, const heed_tensor *a,
                             const heed_tensor *b, double relative, double absolute, const tolerance *t,
                             heed__map *map) {
  if (!(relative >= 0) || !(absolute >= 0))
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "%s: the relative tolerance is %s and the absolute one %s; neither may be negative or nan", function,
        HEED__G(relative), HEED__G(absolute));
  const bool real = heed__wider(a->dtype, b->dtype) == HEED_FLOAT32;
  *map = map_of_two(function, real ? float_close : int64_close, t, real ? HEED_FLOAT32 : HEED_INT64, a, b);
  return HEED_OK;
}

heed_status heed_isclose(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, double relative,
                         double absolute, bool equal_nan, heed_tensor **out) {
  HEED__ENTER(ctx, "isclose", a, b, out);
  const tolerance t = {(float)relative, (float)absolute, equal_nan};
  heed__map map;
  heed_status status = close_map(ctx, "isclose", a, b, relative, absolute, &t, &map);
  if (status == HEED_OK) status = heed__map_run(ctx, &map, out);
  return heed__recorded_constant(ctx, status, HEED__OP_isclose, out);
}

heed_status heed_allclose(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, double relative,
                          double absolute, bool equal_nan, bool *out) {
  HEED__ENTER(ctx, "allclose", a, b, out);
  const tolerance t = {(float)relative, (float)absolute, equal_nan};
  heed__map map;
  const heed_status status = close_map(ctx, "allclose", a, b, relative, absolute, &t, &map);
  return status == HEED_OK ? heed__map_all(ctx, &map, out) : status;
}
