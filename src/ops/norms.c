/* prod and norm: products, and sums of powers, in double. */
#include <math.h>

#include "reduce.h"

/* ---- Products of float32 ---- */

typedef struct double_fold {
  double value[HEED__REDUCE_WIDTH]; /* of each result */
} double_fold;

static void product_begin(void *state, int pass, size_t width, int64_t count) {
  double_fold *s = state;
  (void)pass, (void)count;
  for (size_t i = 0; i < width; i++) s->value[i] = 1;
}

/* In lanes, which the compiler vectorises. */
static void product_along(void *state, const void *x, size_t n) {
  enum { PRODUCTS = 8 };
  double_fold *s = state;
  const float *row = x;
  double lane[PRODUCTS], product = s->value[0];
  size_t i = 0;
  for (size_t l = 0; l < PRODUCTS; l++) lane[l] = 1;
  for (; i + PRODUCTS <= n; i += PRODUCTS) {
    for (size_t l = 0; l < PRODUCTS; l++) lane[l] *= (double)row[i + l];
  }
  for (; i < n; i++) product *= (double)row[i];
  for (size_t l = 0; l < PRODUCTS; l++) product *= lane[l];
  s->value[0] = product;
}

static void product_across(void *state, const void *x, ptrdiff_t step, size_t rows, size_t n) {
  double_fold *s = state;
  const float *row = x;
  for (; rows > 0; rows--, row += step) {
    for (size_t i = 0; i < n; i++) s->value[i] *= (double)row[i];
  }
}

static void product_finish(void *state, size_t width, void *const *out, const ptrdiff_t *stride) {
  const double_fold *s = state;
  float *to = out[0];
  for (size_t i = 0; i < width; i++) to[(ptrdiff_t)i * stride[0]] = (float)s->value[i];
}

static const heed__reduction float_product = {
    HEED_FLOAT32, 1, product_along, product_across, product_begin, product_finish, sizeof(double_fold), NULL};

/* ---- Products of int64 and bool, which wrap ---- */

typedef struct whole_product {
  uint64_t value[HEED__REDUCE_WIDTH];
} whole_product;

static void whole_product_begin(void *state, int pass, size_t width, int64_t count) {
  whole_product *s = state;
  (void)pass, (void)count;
  for (size_t i = 0; i < width; i++) s->value[i] = 1;
}

static void whole_product_across(void *state, const void *x, ptrdiff_t step, size_t rows, size_t n) {
  whole_product *s = state;
  const int64_t *row = x;
  for (; rows > 0; rows--, row += step) {
    for (size_t i = 0; i < n; i++) s->value[i] *= (uint64_t)row[i];
  }
}

static void whole_product_along(void *state, const void *x, size_t n) {
  whole_product_across(state, x, 1, n, 1);
}

static void whole_product_finish(void *state, size_t width, void *const *out, const ptrdiff_t *stride) {
  const whole_product *s = state;
  int64_t *to = out[0];
  for (size_t i = 0; i < width; i++) to[(ptrdiff_t)i * stride[0]] = (int64_t)s->value[i];
}

static const heed__reduction int64_product = {HEED_INT64,
                                              1,
                                              whole_product_along,
                                              whole_product_across,
                                              whole_product_begin,
                                              whole_product_finish,
                                              sizeof(whole_product),
                                              NULL};

heed_status heed_prod(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                      heed_tensor **out) {
  HEED__ENTER(ctx, "prod", x, out);
  if (x->dtype == HEED_FLOAT32) {
    double_fold state;
    const heed_status status =
        heed__reduce_dims(ctx, "prod", &float_product, &state, x, ndims, dims, keepdim, HEED_FLOAT32, out);
    return heed__recorded_reduction(ctx, status, HEED__OP_prod, x, ndims, dims, keepdim, 0, out);
  }
  whole_product state;
  return heed__reduce_dims(ctx, "prod", &int64_product, &state, x, ndims, dims, keepdim, HEED_INT64, out);
}

/* ---- Norms ---- */

#define POWERS_AT_ONCE 1024 /* elements between cancellation checks; pow takes long */

typedef struct norm_state {
  const heed__pace *pace;
  const heed__kernels *kernels;
  double p, start;
  size_t since; /* elements since the last cancellation check */
  bool stopped; /* by one, which heed__reduce reports */
  double value[HEED__REDUCE_WIDTH];
} norm_state;

static void norm_begin(void *state, int pass, size_t width, int64_t count) {
  norm_state *s = state;
  (void)pass, (void)count;
  for (size_t i = 0; i < width; i++) s->value[i] = s->start;
}

static inline double norm_step(double p, double value, double a) {
  if (p == INFINITY) return a > value || a != a ? a : value;
  if (p == -INFINITY) return a < value || a != a ? a : value;
  if (p == 0) return value + (a != 0 ? 1 : 0);
  return value + (p == 1 ? a : p == 2 ? a * a : pow(a, p));
}

static void norm_across(void *state, const void *x, ptrdiff_t step, size_t rows, size_t n) {
  norm_state *s = state;
  const float *row = x;
  const double p = s->p;
  for (; rows > 0 && !s->stopped; rows--, row += step) {
    for (size_t i = 0; i < n; i++) s->value[i] = norm_step(p, s->value[i], fabs((double)row[i]));
    s->since += n;
    if (s->since < POWERS_AT_ONCE) continue;
    s->since = 0;
    s->stopped = heed__is_due(s->pace);
  }
}

static double sum_of_magnitudes(const float *x, size_t n) {
  enum { SUMS = 8 };
  double lane[SUMS] = {0}, sum = 0;
  size_t i = 0;
  for (; i + SUMS <= n; i += SUMS) {
    for (size_t l = 0; l < SUMS; l++) lane[l] += fabs((double)x[i + l]);
  }
  for (; i < n; i++) sum += fabs((double)x[i]);
  for (size_t l = 0; l < SUMS; l++) sum += lane[l];
  return sum;
}

static void norm_along(void *state, const void *x, size_t n) {
  norm_state *s = state;
  if (s->p == 2)
    s->value[0] += s->kernels->sum_of_squares(x, 0, n);
  else if (s->p == 1)
    s->value[0] += sum_of_magnitudes(x, n);
  else
    norm_across(state, x, 1, n, 1);
}

static void norm_finish(void *state, size_t width, void *const *out, const ptrdiff_t *stride) {
  const norm_state *s = state;
  float *to = out[0];
  for (size_t i = 0; i < width; i++) {
    const double value = s->value[i];
    const bool is_root = s->p != 0 && s->p != 1 && !isinf(s->p);
    to[(ptrdiff_t)i * stride[0]] = (float)(s->p == 2 ? sqrt(value) : is_root ? pow(value, 1 / s->p) : value);
  }
}

static const heed__reduction norm_reduction = {HEED_FLOAT32, 1,           norm_along,         norm_across,
                                               norm_begin,   norm_finish, sizeof(norm_state), NULL};

heed_status heed_norm(heed_context *ctx, const heed_tensor *x, double p, int ndims, const int *dims,
                      bool keepdim, heed_tensor **out) {
  HEED__ENTER(ctx, "norm", x, out);
  uint32_t reduced;
  heed_status status = heed__check_dtype(ctx, "norm", "x", x, HEED_FLOAT32);
  if (status == HEED_OK) status = heed__reduced_dims(ctx, "norm", x, ndims, dims, &reduced);
  if (status != HEED_OK) return status;
  if (p != p) return heed__fail(ctx, HEED_ARGUMENT, "norm: p is nan; it must be a number, inf or -inf");
  if (p == INFINITY || p < 0) {
    status = heed__check_reduced(ctx, "norm", x, reduced);
    if (status != HEED_OK) return status;
  }
  norm_state state;
  state.pace = &ctx->pace;
  state.kernels = heed__kernels_of(ctx);
  state.p = p;
  state.since = 0;
  state.stopped = false;
  state.start = p == -INFINITY ? INFINITY : 0;
  status =
      heed__reduce_dims(ctx, "norm", &norm_reduction, &state, x, ndims, dims, keepdim, HEED_FLOAT32, out);
  return heed__recorded_reduction(ctx, status, HEED__OP_norm, x, ndims, dims, keepdim, p, out);
}
