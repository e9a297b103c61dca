/* New tensors: filled, the identity matrix, and evenly spaced values. */
#include <inttypes.h>
#include <math.h>

#include "ops.h"

heed_status heed__full(heed_context *ctx, const char *function, heed_dtype dtype, int ndim,
                       const int64_t *shape, heed_scalar value, heed_tensor **out) {
  heed__result result;
  heed_status status = heed__check_shape(ctx, function, ndim, shape, dtype, NULL);
  if (status) return status;
  status = heed__result_begin(ctx, function, &result, out, dtype, ndim, shape, true, 0, NULL);
  if (status == HEED_OK) status = heed__fill(ctx, function, result.tensor, value);
  return heed__result_end(ctx, &result, status);
}

heed_status heed_full(heed_context *ctx, heed_dtype dtype, int ndim, const int64_t *shape, heed_scalar value,
                      heed_tensor **out) {
  HEED__ENTER(ctx, "full", dtype, value, out);
  return heed__full(ctx, "full", dtype, ndim, shape, value, out);
}

heed_status heed_eye(heed_context *ctx, heed_dtype dtype, int64_t rows, int64_t columns, heed_tensor **out) {
  HEED__ENTER(ctx, "eye", dtype, out);
  const int64_t shape[] = {rows, columns};
  heed__result result;
  heed_status status = heed__check_shape(ctx, "eye", 2, shape, dtype, NULL);
  if (status) return status;
  status = heed__result_begin(ctx, "eye", &result, out, dtype, 2, shape, true, 0, NULL);
  if (status == HEED_OK) status = heed__fill(ctx, "eye", result.tensor, heed_boolean(false));
  if (status == HEED_OK) {
    heed_tensor diagonal;
    heed__alias_on_stack(&diagonal, result.tensor);
    diagonal.ndim = 1;
    diagonal.shape[0] = diagonal.numel = heed__min(rows, columns);
    diagonal.stride[0] = result.tensor->stride[0] + result.tensor->stride[1];
    status = heed__fill(ctx, "eye", &diagonal, heed_boolean(true));
  }
  return heed__result_end(ctx, &result, status);
}

/* ---- Evenly spaced values ---- */

/* value(i) for i = 0…count-1 as a tensor of one dimension. */
typedef heed_scalar value_at(const void *user, int64_t i);

static heed_status list(heed_context *ctx, const char *function, heed_dtype dtype, int64_t count,
                        value_at *value, const void *user, heed_tensor **out) {
  heed__result result;
  heed_status status = heed__check_shape(ctx, function, 1, &count, dtype, NULL);
  if (status) return status;
  if (dtype == HEED_BOOL)
    return heed__fail(ctx, HEED_DTYPE, "%s: dtype is bool; it must be float32 or int64", function);
  status = heed__result_begin(ctx, function, &result, out, dtype, 1, &count, true, 0, NULL);
  if (status == HEED_OK) {
    const heed_tensor *x = result.tensor;
    const ptrdiff_t step = (ptrdiff_t)x->stride[0] * (ptrdiff_t)heed__element_bytes(x->dtype);
    for (int64_t i = 0; i < count && status == HEED_OK; i++) {
      heed__store(x->dtype, x->data + i * step, value(user, i));
      if (heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, function);
    }
  }
  return heed__result_end(ctx, &result, status);
}

static double as_double(heed_scalar x) {
  return x.dtype == HEED_FLOAT32 ? x.as.number : (double)x.as.integer;
}

/* The values of heed_range, if all arguments are integers, and otherwise. */
typedef struct integers {
  int64_t first, step;
} integers;
typedef struct doubles {
  double first, step;
} doubles;

static heed_scalar integer_at(const void *user, int64_t i) {
  const integers *r = user;
  return heed_integer(
      (int64_t)((uint64_t)r->first + (uint64_t)r->step * (uint64_t)i)); /* never beyond last */
}

static heed_scalar double_at(const void *user, int64_t i) {
  const doubles *r = user;
  return heed_number(r->first + r->step * (double)i);
}

/* Through a volatile, since gcc 12 leaves the rounding out where it makes one vector of two of these. */
static double rounded(double x) {
  const volatile float y = (float)x;
  return (double)y;
}

static heed_status fail_long(heed_context *ctx, const char *function, const char *ends) {
  return heed__fail(ctx, HEED_SHAPE,
                    "%s: %s by step is more elements than memory can address; step must be larger", function,
                    ends);
}

static heed_status check_ends(heed_context *ctx, const char *function, const char *first_name, double first,
                              const char *last_name, double last, double step) {
  if (step == 0) return heed__fail(ctx, HEED_ARGUMENT, "%s: step is 0; it must not be 0", function);
  if (isfinite(first) && isfinite(last) && isfinite(step)) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is %s, %s %s and step %s; they must be finite", function,
                    first_name, HEED__G(first), last_name, HEED__G(last), HEED__G(step));
}

static bool are_integers(heed_scalar a, heed_scalar b, heed_scalar c) {
  return a.dtype != HEED_FLOAT32 && b.dtype != HEED_FLOAT32 && c.dtype != HEED_FLOAT32;
}

heed_status heed_range(heed_context *ctx, heed_dtype dtype, heed_scalar first, heed_scalar last,
                       heed_scalar step, heed_tensor **out) {
  HEED__ENTER(ctx, "range", dtype, first, last, step, out);
  const heed_status status =
      check_ends(ctx, "range", "first", as_double(first), "last", as_double(last), as_double(step));
  if (status) return status;
  if (are_integers(first, last, step)) {
    const integers r = {first.as.integer, step.as.integer};
    const uint64_t from = (uint64_t)r.first, to = (uint64_t)last.as.integer, by = (uint64_t)r.step;
    const bool empty = r.step > 0 ? last.as.integer < r.first : last.as.integer > r.first;
    const uint64_t steps = r.step > 0 ? (to - from) / by : (from - to) / (0 - by);
    if (!empty && steps >= INT64_MAX) return fail_long(ctx, "range", "first to last");
    return list(ctx, "range", dtype, empty ? 0 : (int64_t)steps + 1, integer_at, &r, out);
  }
  const doubles r = {as_double(first), as_double(step)};
  const double steps = (as_double(last) - r.first) / r.step;
  if (!(steps < 0x1p62)) return fail_long(ctx, "range", "first to last");
  /* some units in the last place more, so that rounding does not lose the last value (0 to 0.3 by 0.1) */
  const double count = floor(steps + fabs(steps) * 0x1p-50) + 1;
  return list(ctx, "range", dtype, count > 0 ? (int64_t)count : 0, double_at, &r, out);
}

typedef struct arange_blocks {
  double start, step;
  int64_t end; /* of the blocks; the elements behind them are computed one by one */
} arange_blocks;

/* Like PyTorch's loop for 256-bit vectors: the first of 8 elements is rounded to float32, and the others are
 * computed from it. */
static heed_scalar arange_at(const void *user, int64_t i) {
  const arange_blocks *b = user;
  const int64_t first = i < b->end ? i - i % 8 : i;
  const double value = b->start + b->step * (double)first;
  return heed_number(i < b->end ? rounded(value) + b->step * (double)(i - first) : value);
}

/* end lies before start, in the direction of step. */
static heed_status fail_direction(heed_context *ctx, double start, double end, double step) {
  return heed__fail(
      ctx, HEED_ARGUMENT,
      "arange: start is %s, end %s and step %s; end must not be %s than start, or step must be %s",
      HEED__G(start), HEED__G(end), HEED__G(step), step > 0 ? "less" : "greater",
      step > 0 ? "negative" : "positive");
}

heed_status heed_arange(heed_context *ctx, heed_dtype dtype, heed_scalar start, heed_scalar end,
                        heed_scalar step, heed_tensor **out) {
  HEED__ENTER(ctx, "arange", dtype, start, end, step, out);
  const doubles r = {as_double(start), as_double(step)};
  const heed_status status = check_ends(ctx, "arange", "start", r.first, "end", as_double(end), r.step);
  if (status) return status;
  if (are_integers(start, end, step)) {
    const integers whole = {start.as.integer, step.as.integer};
    const uint64_t from = (uint64_t)whole.first, to = (uint64_t)end.as.integer, by = (uint64_t)whole.step;
    if (whole.step > 0 ? end.as.integer < whole.first : end.as.integer > whole.first)
      return fail_direction(ctx, r.first, as_double(end), r.step);
    const uint64_t distance = whole.step > 0 ? to - from : from - to, size = whole.step > 0 ? by : 0 - by;
    const uint64_t count = distance / size + (distance % size != 0);
    if (count > INT64_MAX) return fail_long(ctx, "arange", "start to end");
    return list(ctx, "arange", dtype, (int64_t)count, integer_at, &whole, out);
  }
  const double count = ceil((as_double(end) - r.first) / r.step);
  if (count < 0) return fail_direction(ctx, r.first, as_double(end), r.step);
  if (!(count < 0x1p62)) return fail_long(ctx, "arange", "start to end");
  const arange_blocks b = {r.first, r.step, (int64_t)count - (int64_t)count % 16};
  return list(ctx, "arange", dtype, (int64_t)count, dtype == HEED_FLOAT32 ? arange_at : double_at,
              dtype == HEED_FLOAT32 ? (const void *)&b : &r, out);
}

typedef struct line {
  double first, last, step;
  int64_t count;
} line;

/* From the nearer end, so that the values are symmetric and both ends exact. */
static heed_scalar line_at(const void *user, int64_t i) {
  const line *l = user;
  if (i < l->count / 2 || l->count == 1) return heed_number(l->first + l->step * (double)i);
  return heed_number(l->last - l->step * (double)(l->count - 1 - i));
}

heed_status heed_linspace(heed_context *ctx, heed_dtype dtype, double first, double last, int64_t count,
                          heed_tensor **out) {
  HEED__ENTER(ctx, "linspace", dtype, out);
  if (count < 0)
    return heed__fail(ctx, HEED_ARGUMENT, "linspace: count is %" PRId64 "; it must be 0 or more", count);
  line l = {first, last, 0, count};
  if (dtype == HEED_INT64 || dtype == HEED_INT8) { /* like PyTorch: both ends and all values truncated */
    l.first = trunc(first);
    l.last = trunc(last);
    if (count > 1) l.step = (l.last - l.first) / (double)(count - 1);
  } else { /* like PyTorch: in float, with the single rounding of a fused multiply-add */
    l.first = rounded(first);
    l.last = rounded(last);
    if (count > 1) l.step = (double)(((float)last - (float)first) / (float)(count - 1));
  }
  return list(ctx, "linspace", dtype, count, line_at, &l, out);
}
