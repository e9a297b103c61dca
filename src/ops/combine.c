/* Elementwise operations with a factor: a + alpha · b, addcmul, addcdiv, lerp. */
#include <math.h>

#include "map.h"

/* a · b + c rounded once, up to rounding twice in rare ties: the product is exact in double. PyTorch uses the
 * processor's fused multiply-add, which portable code would emulate slowly. */
static inline float product_and_sum(float a, float b, float c) {
  return (float)((double)a * (double)b + (double)c);
}

typedef struct factor {
  float number;
  uint64_t whole; /* for int64, which wraps */
} factor;

/* Loops over rows without gaps are vectorised. */
#define COMBINE_ROW(name, type, value)                                                                       \
  static void name(const void *user, void *out, const heed__span *in, size_t n) {                            \
    const factor f = *(const factor *)user;                                                                  \
    type *to = out;                                                                                          \
    const type *first = in[0].data, *second = in[1].data, *third = in[2].data;                               \
    const ptrdiff_t step = in[0].stride, second_step = in[1].stride, third_step = in[2].stride;              \
    (void)f;                                                                                                 \
    if (step == 1 && second_step == 1 && third_step == 1) {                                                  \
      for (size_t i = 0; i < n; i++) {                                                                       \
        const type x = first[i], a = second[i], b = third[i];                                                \
        to[i] = (value);                                                                                     \
      }                                                                                                      \
      return;                                                                                                \
    }                                                                                                        \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const type x = first[(ptrdiff_t)i * step], a = second[(ptrdiff_t)i * second_step];                     \
      const type b = third[(ptrdiff_t)i * third_step];                                                       \
      to[i] = (value);                                                                                       \
    }                                                                                                        \
  }

COMBINE_ROW(float_addcmul, float, product_and_sum(f.number *a, b, x))
COMBINE_ROW(int64_addcmul, int64_t, (int64_t)((uint64_t)x + f.whole * (uint64_t)a * (uint64_t)b))
COMBINE_ROW(bool_addcmul, uint8_t, (x | (f.whole & a & b)) != 0)
COMBINE_ROW(float_addcdiv, float, x + f.number * a / b)
/* From the nearer end, like PyTorch; a: the other end, b: the weight. */
COMBINE_ROW(float_lerp, float,
            fabsf(b) < 0.5f ? product_and_sum(b, a - x, x) : product_and_sum(b - 1.0f, a - x, a))

static double number_of(heed_scalar value) {
  return value.dtype == HEED_FLOAT32 ? value.as.number : (double)value.as.integer;
}

/* Converts a factor for that dtype. Errors: DTYPE. */
static heed_status read_factor(heed_context *ctx, const char *function, const char *name, heed_scalar value,
                               heed_dtype dtype, factor *out) {
  const double number = number_of(value);
  const bool real = value.dtype == HEED_FLOAT32;
  *out = (factor){.number = (float)number};
  if (dtype == HEED_FLOAT32) return HEED_OK;
  if (real && (!(number >= -0x1p63 && number < 0x1p63) || number != floor(number)))
    return heed__fail(ctx, HEED_DTYPE, "%s: %s is %s and the tensors are %s; it must be an integer", function,
                      name, HEED__G(number), heed_dtype_name(dtype));
  out->whole = real ? (uint64_t)(int64_t)number : (uint64_t)value.as.integer;
  if (dtype == HEED_BOOL) out->whole = out->whole != 0;
  return HEED_OK;
}

static heed_status check_three(heed_context *ctx, const char *function, const heed__map *map) {
  for (int i = 0; i < map->count; i++) {
    const heed_status status =
        heed__check_arithmetic(ctx, function, map->input[i].name, map->input[i].tensor);
    if (status != HEED_OK) return status;
  }
  return HEED_OK;
}

/* Runs and records a map whose first `inputs` inputs are those of the operation. */
static heed_status run_recorded(heed_context *ctx, heed__op op, int inputs, const heed__map *map,
                                double number, heed_tensor **out) {
  heed__kept kept;
  heed_status status = heed__keep_inputs(ctx, op, &kept, map->input[0].tensor, map->input[1].tensor,
                                         map->input[2].tensor, *out);
  if (status == HEED_OK) status = heed__map_run(ctx, map, out);
  return heed__recorded_kept(ctx, status, op, inputs, &kept, &number, sizeof number, out);
}

/* x + f · a · b */
static heed_status add_product(heed_context *ctx, heed__op op, int inputs, const heed__map *names,
                               const char *factor_name, heed_scalar value, heed_dtype dtype,
                               heed_tensor **out) {
  heed__map map = *names;
  factor f;
  const heed_status status = read_factor(ctx, map.function, factor_name, value, dtype, &f);
  if (status != HEED_OK) return status;
  map.result = dtype;
  map.row = dtype == HEED_FLOAT32 ? float_addcmul : dtype == HEED_INT64 ? int64_addcmul : bool_addcmul;
  map.user = &f;
  for (int i = 0; i < map.count; i++) map.input[i].read_as = dtype;
  return run_recorded(ctx, op, inputs, &map, number_of(value), out);
}

heed_status heed_add_scaled(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, heed_scalar alpha,
                            heed_tensor **out) {
  HEED__ENTER(ctx, "add", a, b, out);
  heed__number one;
  const heed_tensor *unit = heed__number_tensor(&one, heed_boolean(true));
  const heed__map map = {
      .function = "add", .count = 3, .input = {{.name = "a", .tensor = a}, {"b", b, 0}, {"1", unit, 0}}};
  const heed_status status = check_three(ctx, "add", &map);
  if (status != HEED_OK) return status;
  return add_product(ctx, HEED__OP_add_scaled, 2, &map, "alpha", alpha, heed__wider(a->dtype, b->dtype), out);
}

heed_status heed_addcmul(heed_context *ctx, const heed_tensor *x, const heed_tensor *a, const heed_tensor *b,
                         heed_scalar value, heed_tensor **out) {
  HEED__ENTER(ctx, "addcmul", x, a, b, out);
  const heed__map map = {.function = "addcmul", .count = 3, .input = {{"x", x, 0}, {"a", a, 0}, {"b", b, 0}}};
  const heed_status status = check_three(ctx, "addcmul", &map);
  if (status != HEED_OK) return status;
  const heed_dtype dtype = heed__wider(heed__wider(x->dtype, a->dtype), b->dtype);
  if (dtype == HEED_BOOL)
    return heed__fail(ctx, HEED_DTYPE, "addcmul: x, a and b are bool; one must be int64 or float32");
  return add_product(ctx, HEED__OP_addcmul, 3, &map, "value", value, dtype, out);
}

heed_status heed_addcdiv(heed_context *ctx, const heed_tensor *x, const heed_tensor *a, const heed_tensor *b,
                         double value, heed_tensor **out) {
  HEED__ENTER(ctx, "addcdiv", x, a, b, out);
  const factor f = {.number = (float)value};
  const heed__map map = {
      .function = "addcdiv",
      .result = HEED_FLOAT32,
      .row = float_addcdiv,
      .user = &f,
      .count = 3,
      .input = {{"x", x, HEED_FLOAT32}, {"a", a, HEED_FLOAT32}, {"b", b, HEED_FLOAT32}},
  };
  return run_recorded(ctx, HEED__OP_addcdiv, 3, &map, value, out);
}

heed_status heed_lerp(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,
                      const heed_tensor *weight, heed_tensor **out) {
  HEED__ENTER(ctx, "lerp", a, b, weight, out);
  heed_status status = heed__check_dtype(ctx, "lerp", "a", a, HEED_FLOAT32);
  if (status == HEED_OK) status = heed__check_dtype(ctx, "lerp", "b", b, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  const factor none = {0};
  const heed__map map = {
      .function = "lerp",
      .result = HEED_FLOAT32,
      .row = float_lerp,
      .user = &none,
      .count = 3,
      .input = {{"a", a, HEED_FLOAT32}, {"b", b, HEED_FLOAT32}, {"weight", weight, HEED_FLOAT32}},
  };
  return run_recorded(ctx, HEED__OP_lerp, 3, &map, 0, out);
}
