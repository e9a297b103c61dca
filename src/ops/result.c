/* Results: what heed.h says of *out. */
#include "ops.h"

/* Checks a given *out. */
static heed_status check_result(heed_context *ctx, const char *function, const heed_tensor *out,
                                heed_dtype dtype, int ndim, const int64_t *shape) {
  if (!heed__same_shape(out->ndim, out->shape, ndim, shape)) {
    char have[HEED__SHAPE_TEXT], want[HEED__SHAPE_TEXT];
    return heed__fail(ctx, HEED_SHAPE,
                      "%s: the result is %s and the tensor that is written is %s; the shapes must be equal",
                      function, heed__shape_text(want, ndim, shape),
                      heed__shape_text(have, out->ndim, out->shape));
  }
  if (heed__common_dtype(dtype, out->dtype) != out->dtype)
    return heed__fail(ctx, HEED_DTYPE,
                      "%s: the result is %s and the tensor that is written is %s, which cannot hold it",
                      function, heed_dtype_name(dtype), heed_dtype_name(out->dtype));
  return heed__check_target(ctx, function, out);
}

/* Whether writing to out may change elements of inputs before they are read. */
static bool disturbs(const heed_tensor *out, bool elementwise, int ninputs,
                     const heed_tensor *const *inputs) {
  for (int i = 0; i < ninputs; i++) {
    if (inputs[i] && heed__may_overlap(out, inputs[i]) && !(elementwise && heed__same_view(out, inputs[i])))
      return true;
  }
  return false;
}

/* The work of an operation whose time is that of its elements: those of the result and of the inputs, and one
 * for the call. Products and attention charge their multiplications before. */
static heed_status charge_elements(heed_context *ctx, const char *function, int ndim, const int64_t *shape,
                                   int ninputs, const heed_tensor *const *inputs) {
  if (ctx->limits.work == 0) return HEED_OK;
  double units = 1, elements = 1;
  for (int d = 0; d < ndim; d++) elements *= (double)shape[d];
  units += elements;
  for (int i = 0; i < ninputs; i++) {
    if (inputs[i] != NULL) units += (double)inputs[i]->numel;
  }
  return heed__charge(ctx, function, units);
}

static heed_status begin(heed_context *ctx, const char *function, heed__result *result, heed_tensor **out,
                         heed_dtype dtype, int ndim, const int64_t *shape, bool elementwise, bool row_major,
                         int ninputs, const heed_tensor *const *inputs) {
  heed_status status;
  *result = (heed__result){.out = out, .function = function};
  if (heed__is_blocked(dtype)) return heed__refuse_dtype(ctx, function, "dtype", dtype);
  status = charge_elements(ctx, function, ndim, shape, ninputs, inputs);
  if (status) return status;
  if (heed__is_due(&ctx->pace)) {
    status = heed__stopped(ctx, function);
    if (status) return status;
  }
  if (*out) {
    status = check_result(ctx, function, *out, dtype, ndim, shape);
    if (status) return status;
    if ((*out)->dtype == dtype && (!row_major || heed_tensor_is_contiguous(*out)) &&
        !disturbs(*out, elementwise, ninputs, inputs)) {
      result->tensor = *out;
    }
  }
  status = HEED_OK;
  if (result->tensor == NULL) status = heed__tensor_new(ctx, function, dtype, ndim, shape, &result->tensor);
  if (status == HEED_OK && *out) status = heed__written(ctx, function, *out); /* nothing has failed */
  if (status && result->tensor != *out) heed_tensor_free(result->tensor);
  if (status) result->tensor = NULL;
  return status;
}

heed_status heed__result_begin(heed_context *ctx, const char *function, heed__result *result,
                               heed_tensor **out, heed_dtype dtype, int ndim, const int64_t *shape,
                               bool elementwise, int ninputs, const heed_tensor *const *inputs) {
  return begin(ctx, function, result, out, dtype, ndim, shape, elementwise, false, ninputs, inputs);
}

heed_status heed__result_begin_row_major(heed_context *ctx, const char *function, heed__result *result,
                                         heed_tensor **out, heed_dtype dtype, int ndim, const int64_t *shape,
                                         int ninputs, const heed_tensor *const *inputs) {
  return begin(ctx, function, result, out, dtype, ndim, shape, false, true, ninputs, inputs);
}

heed_status heed__result_end(heed_context *ctx, heed__result *result, heed_status status) {
  heed_tensor *made = result->tensor;
  if (made && made != *result->out) {
    if (status == HEED_OK && !*result->out) {
      *result->out = made;
    } else {
      if (status == HEED_OK && !heed__copy_elements(*result->out, made))
        status = heed__stopped(ctx, result->function);
      heed_tensor_free(made);
    }
  }
  result->tensor = NULL;
  return status;
}

heed_status heed__indexed_result_begin(heed_context *ctx, const char *function, heed__indexed_result *result,
                                       heed_tensor **values, heed_tensor **indices, int ndim,
                                       const int64_t *shape, const heed_tensor *x) {
  *result = (heed__indexed_result){.unwanted = NULL};
  const heed_status status =
      heed__result_begin(ctx, function, &result->values, values, x->dtype, ndim, shape, false, 1, &x);
  if (status) return status;
  if (indices == NULL) indices = &result->unwanted;
  return heed__result_begin(ctx, function, &result->indices, indices, HEED_INT64, ndim, shape, false, 1, &x);
}

heed_status heed__indexed_result_end(heed_context *ctx, heed__indexed_result *result, heed_status status) {
  status = heed__result_end(ctx, &result->indices, status);
  status = heed__result_end(ctx, &result->values, status);
  heed_tensor_free(result->unwanted);
  return status;
}

heed_status heed__new_like(heed_context *ctx, const char *function, const heed_tensor *x, heed_dtype dtype,
                           heed_tensor **out) {
  heed_tensor *made = NULL;
  if (heed__is_blocked(dtype)) return heed__refuse_dtype(ctx, function, "dtype", dtype);
  const heed_status status = heed__tensor_new(ctx, function, dtype, x->ndim, x->shape, &made);
  if (status) return status;
  heed__strides_like(x, made->stride);
  *out = made;
  return HEED_OK;
}
