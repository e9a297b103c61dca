/* Elementwise arithmetic: unary and binary operations, and clamp. float32 goes to the kernels; the rows of
 * int64 and bool are here. */
#include "map.h"

/* ---- Rows of integers, computed in uint64_t, which wraps ---- */

static inline int64_t wrap_add(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
}
static inline int64_t wrap_sub(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a - (uint64_t)b);
}
static inline int64_t wrap_mul(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* All bits set if x is negative. Branches on unpredictable signs would cost more. */
static inline uint64_t sign_of(int64_t x) {
  return 0 - ((uint64_t)x >> 63);
}

static inline int64_t whole_abs(int64_t x) {
  return (int64_t)(((uint64_t)x ^ sign_of(x)) - sign_of(x));
}

/* With the sign of b, which is not 0. Dividing the smallest integer by -1 would trap. */
static inline int64_t floored_remainder(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r + (int64_t)((uint64_t)b & sign_of(r ^ b) & (0 - (uint64_t)(r != 0)));
}

/* Dividing the smallest integer by -1 would trap; these wrap. b is not 0. */
static inline int64_t whole_quotient(int64_t a, int64_t b) {
  return b == -1 ? wrap_sub(0, a) : a / b;
}
static inline int64_t floored_quotient(int64_t a, int64_t b) {
  return b == -1 ? wrap_sub(0, a) : a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static inline int64_t whole_power(int64_t base, int64_t power) {
  uint64_t result = 1, square = (uint64_t)base;
  for (uint64_t left = (uint64_t)power; left != 0; left >>= 1) {
    if (left & 1) result *= square;
    square *= square;
  }
  return (int64_t)result;
}

#define UNARY_ROW(name, type, expression)                                                                    \
  static void name(const void *user, void *out, const heed__span *in, size_t n) {                            \
    (void)user;                                                                                              \
    type *to = out;                                                                                          \
    const type *from = in[0].data;                                                                           \
    const ptrdiff_t step = in[0].stride;                                                                     \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const type x = from[(ptrdiff_t)i * step];                                                              \
      to[i] = (type)(expression);                                                                            \
    }                                                                                                        \
  }

#define BINARY_ROW(name, type, expression)                                                                   \
  static void name(const void *user, void *out, const heed__span *in, size_t n) {                            \
    (void)user;                                                                                              \
    type *to = out;                                                                                          \
    const type *left = in[0].data, *right = in[1].data;                                                      \
    const ptrdiff_t left_step = in[0].stride, right_step = in[1].stride;                                     \
    for (size_t i = 0; i < n; i++) {                                                                         \
      const type a = left[(ptrdiff_t)i * left_step], b = right[(ptrdiff_t)i * right_step];                   \
      to[i] = (type)(expression);                                                                            \
    }                                                                                                        \
  }

UNARY_ROW(int64_abs, int64_t, whole_abs(x))
UNARY_ROW(int64_neg, int64_t, wrap_sub(0, x))
UNARY_ROW(int64_relu, int64_t, (uint64_t)x & ~sign_of(x))
UNARY_ROW(int64_same, int64_t, x)
UNARY_ROW(int64_sign, int64_t, (x > 0) - (x < 0))
UNARY_ROW(int64_square, int64_t, wrap_mul(x, x))
UNARY_ROW(bool_sign, uint8_t, x != 0)

BINARY_ROW(int64_add, int64_t, wrap_add(a, b))
BINARY_ROW(int64_sub, int64_t, wrap_sub(a, b))
BINARY_ROW(int64_mul, int64_t, wrap_mul(a, b))
BINARY_ROW(int64_remainder, int64_t, floored_remainder(a, b))
BINARY_ROW(int64_pow, int64_t, whole_power(a, b))
BINARY_ROW(int64_maximum, int64_t, heed__max(a, b))
BINARY_ROW(int64_minimum, int64_t, heed__min(a, b))
BINARY_ROW(int64_floor_divide, int64_t, floored_quotient(a, b))
BINARY_ROW(int64_trunc_divide, int64_t, whole_quotient(a, b))
BINARY_ROW(int64_fmod, int64_t, b == -1 ? 0 : a % b)
BINARY_ROW(bool_or, uint8_t, (a | b) != 0)
BINARY_ROW(bool_and, uint8_t, a != 0 && b != 0)

/* ---- Unary ---- */

#define UNARY_OPS(X) HEED_UNARY_LIST(X) X(gelu) X(gelu_tanh)

typedef enum unary_op {
#define X(name) UNARY_##name,
  UNARY_OPS(X)
#undef X
      UNARY_COUNT
} unary_op;

/* A kernel without an operation does not compile here. */
#define X(name, value) _Static_assert(UNARY_##name < UNARY_COUNT, #name);
HEED__UNARY_KERNELS(X)
#undef X

/* Operations that keep int64 and refuse bool, except for sign and square; all others return float32. */
static heed__row *const int64_unary[UNARY_COUNT] = {
    [UNARY_abs] = int64_abs,    [UNARY_neg] = int64_neg,       [UNARY_relu] = int64_relu,
    [UNARY_floor] = int64_same, [UNARY_ceil] = int64_same,     [UNARY_round] = int64_same,
    [UNARY_trunc] = int64_same, [UNARY_square] = int64_square, [UNARY_sign] = int64_sign,
};

static void float_unary(const void *user, void *out, const heed__span *in, size_t n) {
  heed__unary_kernel *const *kernel = user;
  (*kernel)(out, in[0].data, n);
}

static heed_status unary(heed_context *ctx, const char *function, unary_op op,
                         heed__unary_kernel *const *kernel, const heed_tensor *x, heed_tensor **out) {
  const bool whole = int64_unary[op] != NULL && x->dtype != HEED_FLOAT32;
  const bool takes_bool = op == UNARY_sign || op == UNARY_square;
  if (whole && x->dtype == HEED_BOOL && !takes_bool)
    return heed__fail(ctx, HEED_DTYPE, "%s: x is bool; it must be int64 or float32%s", function,
                      op == UNARY_neg ? " (logical_not inverts a mask)" : "");
  const bool keeps_bool = op == UNARY_sign && x->dtype == HEED_BOOL;
  const heed_dtype dtype = keeps_bool ? HEED_BOOL : whole ? HEED_INT64 : HEED_FLOAT32;
  const heed__map map = {
      .function = function,
      .result = dtype,
      .row = keeps_bool ? bool_sign
             : whole    ? int64_unary[op]
                        : float_unary,
      .user = kernel,
      .packed = !whole,
      .count = 1,
      .input = {{"x", x, dtype}},
  };
  return heed__map_run(ctx, &map, out);
}

#define X(name)                                                                                              \
  heed_status heed_##name(heed_context *ctx, const heed_tensor *x, heed_tensor **out) {                      \
    HEED__ENTER(ctx, #name, x, out);                                                                         \
    heed__kept kept;                                                                                         \
    heed_status status = heed__keep_inputs(ctx, HEED__OP_##name, &kept, x, NULL, NULL, *out);                \
    if (status == HEED_OK) status = unary(ctx, #name, UNARY_##name, &heed__kernels_of(ctx)->name, x, out);   \
    return heed__recorded_kept(ctx, status, HEED__OP_##name, 1, &kept, NULL, 0, out);                        \
  }
UNARY_OPS(X)
#undef X

/* ---- Binary ---- */

typedef enum binary_op {
#define X(name) BINARY_##name,
  HEED_BINARY_LIST(X)
#undef X
      BINARY_COUNT
} binary_op;

static heed__row *const int64_binary[BINARY_COUNT] = {
    [BINARY_add] = int64_add,         [BINARY_sub] = int64_sub,
    [BINARY_mul] = int64_mul,         [BINARY_remainder] = int64_remainder,
    [BINARY_pow] = int64_pow,         [BINARY_maximum] = int64_maximum,
    [BINARY_minimum] = int64_minimum, [BINARY_floor_divide] = int64_floor_divide,
    [BINARY_fmod] = int64_fmod,
};

static heed__row *const bool_binary[BINARY_COUNT] = {
    [BINARY_add] = bool_or,
    [BINARY_mul] = bool_and,
    [BINARY_maximum] = bool_or,
    [BINARY_minimum] = bool_and,
};

static void float_binary(const void *user, void *out, const heed__span *in, size_t n) {
  heed__binary_kernel *const *kernel = user;
  (*kernel)(out, in[0].data, in[0].stride, in[1].data, in[1].stride, n);
}

/* NULL if the operation is not defined for this dtype. */
static heed__row *row_of(binary_op op, heed_dtype dtype) {
  return dtype == HEED_FLOAT32 ? float_binary : dtype == HEED_INT64 ? int64_binary[op] : bool_binary[op];
}

static bool is_zero(int64_t x) {
  return x == 0;
}
static bool is_negative(int64_t x) {
  return x < 0;
}

/* Whether is() holds for an element of x, which is bool or int64; false if a cancellation check stops the
 * search. */
static bool has_element(const heed_tensor *x, bool (*is)(int64_t), const heed__pace *pace) {
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(x->dtype);
  int64_t done = 0;
  heed__walk w;
  for (bool more = heed__walk_begin(&w, x->ndim, x->shape, 1, &x); more; more = heed__walk_next(&w)) {
    for (int64_t i = 0; i < w.count; i++, done++) {
      if (heed__is_due_at(pace, done)) return false;
      const char *p = w.data[0] + i * w.stride[0] * bytes;
      if (is(x->dtype == HEED_BOOL ? *(const uint8_t *)p : *(const int64_t *)p)) return true;
    }
  }
  return false;
}

/* Divisors and exponents that int64 cannot have; checked before anything is written. */
static heed_status check_integers(heed_context *ctx, const char *function, binary_op op,
                                  const heed_tensor *b) {
  const bool divides = op == BINARY_remainder || op == BINARY_floor_divide || op == BINARY_fmod;
  if (divides && has_element(b, is_zero, &ctx->pace))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: b contains 0; a divisor of int64 numbers must not be 0",
                      function);
  if (op == BINARY_pow && has_element(b, is_negative, &ctx->pace))
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: b contains a negative number; an exponent of int64 numbers must be 0 or more "
                      "(use x:float())",
                      function);
  return HEED_OK;
}

static heed_status fail_of_bools(heed_context *ctx, const char *function, const char *a_name,
                                 const char *b_name) {
  return heed__fail(ctx, HEED_DTYPE, "%s: %s and %s are bool; one must be int64 or float32", function, a_name,
                    b_name);
}

/* a_name and b_name are for messages; kernel belongs to op. */
static heed_status binary(heed_context *ctx, const char *function, binary_op op,
                          heed__binary_kernel *const *kernel, const char *a_name, const heed_tensor *a,
                          const char *b_name, const heed_tensor *b, heed_tensor **out) {
  heed_status status = heed__check_arithmetic(ctx, function, a_name, a);
  if (status == HEED_OK) status = heed__check_arithmetic(ctx, function, b_name, b);
  if (status != HEED_OK) return status;
  const heed_dtype dtype = op == BINARY_div ? HEED_FLOAT32 : heed__wider(a->dtype, b->dtype);
  heed__row *const row = row_of(op, dtype);
  if (op == BINARY_sub && (a->dtype == HEED_BOOL || b->dtype == HEED_BOOL))
    return heed__fail(
        ctx, HEED_DTYPE,
        "%s: %s is bool; it must be int64 or float32 (for masks, use logical_xor or logical_not)", function,
        a->dtype == HEED_BOOL ? a_name : b_name);
  if (row == NULL) return fail_of_bools(ctx, function, a_name, b_name);
  if (dtype == HEED_INT64 && a->numel > 0) {
    status = check_integers(ctx, function, op, b);
    if (status != HEED_OK) return status;
  }
  const heed__map map = {
      .function = function,
      .result = dtype,
      .row = row,
      .user = kernel,
      .count = 2,
      .input = {{a_name, a, dtype}, {b_name, b, dtype}},
  };
  return heed__map_run(ctx, &map, out);
}

#define X(name)                                                                                              \
  heed_status heed_##name(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,                     \
                          heed_tensor **out) {                                                               \
    HEED__ENTER(ctx, #name, a, b, out);                                                                      \
    heed__kept kept;                                                                                         \
    heed_status status = heed__keep_inputs(ctx, HEED__OP_##name, &kept, a, b, NULL, *out);                   \
    if (status == HEED_OK)                                                                                   \
      status = binary(ctx, #name, BINARY_##name, &heed__kernels_of(ctx)->name, "a", a, "b", b, out);         \
    return heed__recorded_kept(ctx, status, HEED__OP_##name, 2, &kept, NULL, 0, out);                        \
  }
HEED_BINARY_LIST(X)
#undef X

heed_status heed__mul(heed_context *ctx, const char *function, const char *a_name, const heed_tensor *a,
                      const char *b_name, const heed_tensor *b, heed_tensor **out) {
  return binary(ctx, function, BINARY_mul, &heed__kernels_of(ctx)->mul, a_name, a, b_name, b, out);
}

/* ---- trunc_divide ---- */

static void float_trunc_divide(const void *user, void *out, const heed__span *in, size_t n) {
  const heed__kernels *kernels = user;
  kernels->div(out, in[0].data, in[0].stride, in[1].data, in[1].stride, n);
  kernels->trunc(out, out, n);
}

heed_status heed_trunc_divide(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,
                              heed_tensor **out) {
  HEED__ENTER(ctx, "trunc_divide", a, b, out);
  heed_status status = heed__check_arithmetic(ctx, "trunc_divide", "a", a);
  if (status == HEED_OK) status = heed__check_arithmetic(ctx, "trunc_divide", "b", b);
  if (status != HEED_OK) return status;
  const heed_dtype dtype = heed__wider(a->dtype, b->dtype);
  if (dtype == HEED_BOOL) return fail_of_bools(ctx, "trunc_divide", "a", "b");
  if (dtype == HEED_INT64 && a->numel > 0) {
    status = check_integers(ctx, "trunc_divide", BINARY_floor_divide, b);
    if (status != HEED_OK) return status;
  }
  const heed__map map = {
      .function = "trunc_divide",
      .result = dtype,
      .row = dtype == HEED_INT64 ? int64_trunc_divide : float_trunc_divide,
      .user = heed__kernels_of(ctx),
      .count = 2,
      .input = {{"a", a, dtype}, {"b", b, dtype}},
  };
  status = heed__map_run(ctx, &map, out);
  return heed__recorded2(ctx, status, HEED__OP_trunc_divide, a, b, out);
}

/* ---- Gradients of unary operations ---- */

static void unary_backward_row(const void *user, void *out, const heed__span *in, size_t n) {
  heed__backward_kernel *const *kernel = user;
  (*kernel)(out, in[0].data, in[1].data, n);
}

heed_status heed__unary_gradient(heed_context *ctx, const char *function, heed__backward_kernel *kernel,
                                 const heed_tensor *x, const heed_tensor *dy, heed_tensor **dx) {
  const heed__map map = {
      .function = function,
      .result = HEED_FLOAT32,
      .row = unary_backward_row,
      .user = &kernel,
      .packed = true,
      .count = 2,
      .input = {{"x", x, HEED_FLOAT32}, {"gradient", dy, HEED_FLOAT32}},
  };
  return heed__map_run(ctx, &map, dx);
}

/* ---- clamp ---- */

typedef struct clamp_rows {
  heed_dtype dtype;
  heed__row *raise, *lower;
  heed__binary_kernel *const *maximum, *const *minimum;
} clamp_rows;

/* In chunks through a buffer, since out may be any of the inputs. */
static void clamp_row(const void *user, void *out, const heed__span *in, size_t n) {
  const clamp_rows *rows = user;
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(rows->dtype);
  int64_t raised[HEED__CHUNK];
  const size_t capacity = sizeof raised / (size_t)bytes;
  for (size_t i = 0; i < n; i += capacity) {
    const size_t count = n - i < capacity ? n - i : capacity;
    heed__span here[3];
    for (int k = 0; k < 3; k++)
      here[k] = (heed__span){(const char *)in[k].data + (ptrdiff_t)i * in[k].stride * bytes, in[k].stride};
    rows->raise(rows->maximum, raised, here, count);
    here[1] = (heed__span){raised, 1};
    rows->lower(rows->minimum, (char *)out + (ptrdiff_t)i * bytes, here + 1, count);
  }
}

static heed_status clamp(heed_context *ctx, const heed_tensor *x, const heed_tensor *low,
                         const heed_tensor *high, heed_tensor **out) {
  const heed__kernels *kernels = heed__kernels_of(ctx);
  if (low == NULL && high == NULL)
    return heed__fail(ctx, HEED_ARGUMENT, "clamp: low and high are both NULL; at least one must be a tensor");
  if (high == NULL) return binary(ctx, "clamp", BINARY_maximum, &kernels->maximum, "x", x, "min", low, out);
  if (low == NULL) return binary(ctx, "clamp", BINARY_minimum, &kernels->minimum, "x", x, "max", high, out);
  const heed_dtype dtype = heed__wider(heed__wider(x->dtype, low->dtype), high->dtype);
  const clamp_rows rows = {
      .dtype = dtype,
      .raise = row_of(BINARY_maximum, dtype),
      .lower = row_of(BINARY_minimum, dtype),
      .maximum = &kernels->maximum,
      .minimum = &kernels->minimum,
  };
  const heed__map map = {
      .function = "clamp",
      .result = dtype,
      .row = clamp_row,
      .user = &rows,
      .count = 3,
      .input = {{"x", x, dtype}, {"min", low, dtype}, {"max", high, dtype}},
  };
  return heed__map_run(ctx, &map, out);
}

heed_status heed_clamp(heed_context *ctx, const heed_tensor *x, const heed_tensor *low,
                       const heed_tensor *high, heed_tensor **out) {
  HEED__ENTER(ctx, "clamp", x, out);
  HEED__MAY_ENTER(ctx, "clamp", low, high);
  heed__kept kept;
  heed_status status = heed__keep_inputs(ctx, HEED__OP_clamp, &kept, x, low, high, *out);
  if (status == HEED_OK) status = clamp(ctx, x, low, high, out);
  const bool has_tensors = (low != NULL && low->storage != NULL) || (high != NULL && high->storage != NULL);
  return heed__recorded_kept(ctx, status, HEED__OP_clamp, 3, &kept, &has_tensors, sizeof has_tensors, out);
}
