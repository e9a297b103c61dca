/* linear: x · weightᵀ + bias, the weight in float32 or in a dtype that only stores. */
#include "ops.h"

/* ---- Checks ---- */

static heed_status check_weight(heed_context *ctx, const char *function, const heed_tensor *weight,
                                const heed_tensor *scale) {
  char text[HEED__SHAPE_TEXT];
  if (scale != NULL) return heed__check_int8_weight(ctx, function, weight, scale);
  if (weight->dtype == HEED_INT8)
    return heed__fail(ctx, HEED_DTYPE,
                      "%s: weight is int8 and comes without its scales; linear_int8 takes both", function);
  if (weight->dtype != HEED_BFLOAT16 && weight->dtype != HEED_FLOAT16) {
    const heed_status status = heed__check_dtype(ctx, function, "weight", weight, HEED_FLOAT32);
    if (status != HEED_OK) return status;
  }
  if (weight->ndim == 2) return HEED_OK;
  return heed__fail(ctx, HEED_SHAPE, "%s: weight is %s; it must have 2 dimensions", function,
                    heed__shape_text(text, weight->ndim, weight->shape));
}

static heed_status check_linear(heed_context *ctx, const char *function, const heed_tensor *x,
                                const heed_tensor *weight, const heed_tensor *scale,
                                const heed_tensor *bias) {
  char text[HEED__SHAPE_TEXT], weight_text[HEED__SHAPE_TEXT];
  heed_status status;
  if ((status = heed__check_dtype(ctx, function, "x", x, HEED_FLOAT32))) return status;
  if ((status = check_weight(ctx, function, weight, scale))) return status;
  if (bias && (status = heed__check_dtype(ctx, function, "bias", bias, HEED_FLOAT32))) return status;
  if (x->ndim == 0) {
    return heed__fail(ctx, HEED_SHAPE, "%s: x has no dimensions; it must have at least 1", function);
  }
  const int64_t k = x->shape[x->ndim - 1];
  if (k != weight->shape[1]) {
    return heed__fail(
        ctx, HEED_SHAPE,
        "%s: x is %s and weight is %s; the last size of x (%lld) must equal the last size of weight (%lld)",
        function, heed__shape_text(text, x->ndim, x->shape), heed__shape_text(weight_text, 2, weight->shape),
        (long long)k, (long long)weight->shape[1]);
  }
  if (bias && (bias->ndim != 1 || bias->shape[0] != weight->shape[0])) {
    return heed__fail(ctx, HEED_SHAPE, "%s: bias is %s and weight is %s; bias must be [%lld]", function,
                      heed__shape_text(text, bias->ndim, bias->shape),
                      heed__shape_text(weight_text, 2, weight->shape), (long long)weight->shape[0]);
  }
  return HEED_OK;
}

/* ---- Weights that are widened ---- */

/* Multiply-adds of a slice; below, waking another thread costs more than it saves. The division depends on
 * the sizes alone, so that results do not depend on the number of threads. Few rows take as long as MEMORY
 * ones: the weight comes from there. */
#define NARROW_SLICE ((int64_t)1 << 21)
#define MEMORY       8

typedef struct narrow_division {
  const heed__kernels *kernels;
  heed__narrow_task whole;
  int64_t rows, columns; /* of a slice */
  int64_t across;        /* slices side by side */
} narrow_division;

static void multiply_narrow_part(void *argument, int64_t i, int worker) {
  const narrow_division *d = argument;
  const int64_t row = i / d->across * d->rows, column = i % d->across * d->columns;
  heed__narrow_task t = d->whole;
  (void)worker;
  const int64_t m = (int64_t)t.m - row, n = (int64_t)t.n - column;
  t.m = (size_t)(m < d->rows ? m : d->rows);
  t.n = (size_t)(n < d->columns ? n : d->columns);
  t.x += row * t.x_row;
  t.w = (const char *)t.w + column * t.w_row * (ptrdiff_t)heed__element_bytes(t.dtype);
  if (t.scale) t.scale += column * t.scale_row;
  if (t.bias) t.bias += column;
  t.c += row * t.c_row + column;
  d->kernels->narrow(&t);
}

/* False if the work is due before all is done. */
static bool multiply_narrow(heed_context *ctx, const heed__narrow_task *t) {
  const int64_t m = (int64_t)t->m, n = (int64_t)t->n, k = heed__larger((int64_t)t->k, 1);
  narrow_division d = {.kernels = heed__kernels_of(ctx), .whole = *t, .rows = m, .columns = n};
  const double columns = (double)NARROW_SLICE / ((double)heed__larger(m, MEMORY) * (double)k);
  if (columns < (double)n) d.columns = heed__part_of(n, heed__larger(64, (int64_t)columns), 64);
  const double rows = (double)NARROW_SLICE / ((double)d.columns * (double)k);
  if (rows < (double)m) d.rows = heed__part_of(m, heed__larger(384, (int64_t)rows), 12);
  d.across = heed__parts(n, d.columns);
  return heed__parallel(ctx, d.across * heed__parts(m, d.rows), multiply_narrow_part, &d);
}

/* *x itself if its rows lie without gaps, else a copy, to be freed as *made. */
static heed_status close_rows(heed_context *ctx, const char *function, const heed_tensor **x,
                              heed_tensor **made) {
  if ((*x)->shape[1] <= 1 || (*x)->stride[1] == 1) return HEED_OK;
  return heed__as_contiguous(ctx, function, *x, (*x)->dtype, x, made);
}

/* ---- linear ---- */

/* scale: of an int8 weight, else NULL */
static heed_status linear_of(heed_context *ctx, const char *function, const heed_tensor *x,
                             const heed_tensor *weight, const heed_tensor *scale, const heed_tensor *bias,
                             heed_tensor **out) {
  heed_tensor *made_x = NULL, *made_bias = NULL, *made_weight = NULL, *made_scale = NULL;
  heed__result result = {0};
  heed_status status = check_linear(ctx, function, x, weight, scale, bias);
  if (status) return status;
  const bool narrow = weight->dtype != HEED_FLOAT32;
  int64_t k = weight->shape[1], n = weight->shape[0], shape[HEED_MAX_DIMS];
  for (int i = 0; i < x->ndim; i++) shape[i] = x->shape[i];
  shape[x->ndim - 1] = n;
  status = heed__result_begin_row_major(ctx, function, &result, out, HEED_FLOAT32, x->ndim, shape, 4,
                                        (const heed_tensor *const[]){x, weight, bias, scale});
  if (status) return status;
  if (result.tensor->numel == 0) goto done;

  int64_t m = heed__quotient(result.tensor->numel, n), stride[2] = {k, 1};
  if (x->numel > 0 &&
      (!heed__view_strides(x, 2, (const int64_t[]){m, k}, stride) || (narrow && k > 1 && stride[1] != 1))) {
    if ((status = heed__as_contiguous(ctx, function, x, HEED_FLOAT32, &x, &made_x))) goto done;
    stride[0] = k;
    stride[1] = 1;
  }
  if (bias && (status = heed__as_contiguous(ctx, function, bias, HEED_FLOAT32, &bias, &made_bias))) goto done;
  bool whole;
  const float *offset = bias ? (const float *)bias->data : NULL;
  if (narrow) {
    if ((status = close_rows(ctx, function, &weight, &made_weight))) goto done;
    if (scale && (status = close_rows(ctx, function, &scale, &made_scale))) goto done;
    const heed__narrow_task task = {.m = (size_t)m,
                                    .n = (size_t)n,
                                    .k = (size_t)k,
                                    .x = (const float *)x->data,
                                    .w = weight->data,
                                    .scale = scale ? (const float *)scale->data : NULL,
                                    .dtype = weight->dtype,
                                    .x_row = stride[0],
                                    .w_row = weight->stride[0],
                                    .scale_row = scale ? scale->stride[0] : 0,
                                    .bias = offset,
                                    .c = (float *)result.tensor->data,
                                    .c_row = n};
    whole = multiply_narrow(ctx, &task);
  } else {
    whole =
        heed__gemm(ctx, m, n, k, (const float *)x->data, stride[0], stride[1], (const float *)weight->data,
                   weight->stride[1], weight->stride[0], offset, (float *)result.tensor->data, n);
  }
  if (!whole) status = heed__stopped(ctx, function);
done:
  heed_tensor_free(made_x);
  heed_tensor_free(made_bias);
  heed_tensor_free(made_weight);
  heed_tensor_free(made_scale);
  return heed__result_end(ctx, &result, status);
}

heed_status heed__linear(heed_context *ctx, const char *function, const heed_tensor *x,
                         const heed_tensor *weight, const heed_tensor *bias, heed_tensor **out) {
  return linear_of(ctx, function, x, weight, NULL, bias, out);
}

heed_status heed_linear(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                        const heed_tensor *bias, heed_tensor **out) {
  return linear_of(ctx, "linear", x, weight, NULL, bias, out);
}

heed_status heed__linear_int8(heed_context *ctx, const char *function, const heed_tensor *x,
                              const heed_tensor *weight, const heed_tensor *scale, const heed_tensor *bias,
                              heed_tensor **out) {
  if (scale == NULL) return heed__fail(ctx, HEED_ARGUMENT, "%s: scale is missing (NULL)", function);
  return linear_of(ctx, function, x, weight, scale, bias, out);
}

heed_status heed_linear_int8(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                             const heed_tensor *scale, const heed_tensor *bias, heed_tensor **out) {
  return heed__linear_int8(ctx, "linear_int8", x, weight, scale, bias, out);
}
