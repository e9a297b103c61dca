/* Checks of arguments that several operations share, with their messages. */
#include "ops.h"

#include <inttypes.h>

/* dim may be 1…count or -1…-count. */
static heed_status check_dim(heed_context *ctx, const char *function, int ndim, int count, int dim,
                             int *out) {
  if (dim >= 1 && dim <= count) {
    *out = dim - 1;
  } else if (dim <= -1 && dim >= -count) {
    *out = dim + count;
  } else {
    if (count == 1)
      return heed__fail(ctx, HEED_INDEX,
                        "%s: dim is %d and the tensor has %d dimension%s; it must be 1 or -1", function, dim,
                        ndim, HEED__S(ndim));
    return heed__fail(
        ctx, HEED_INDEX,
        "%s: dim is %d and the tensor has %d dimension%s; it must be from 1 to %d, or from -1 to -%d",
        function, dim, ndim, HEED__S(ndim), count, count);
  }
  return HEED_OK;
}

heed_status heed__check_dim(heed_context *ctx, const char *function, int ndim, int dim, int *out) {
  return check_dim(ctx, function, ndim, ndim > 0 ? ndim : 1, dim, out);
}

heed_status heed__check_dims(heed_context *ctx, const char *function, int ndim, int ndims, const int *dims,
                             uint32_t *bits) {
  uint32_t found = 0;
  heed_status status = heed__check_list(ctx, function, "dims", ndims, dims);
  for (int i = 0; i < ndims && status == HEED_OK; i++) {
    int dim = 0;
    status = heed__check_dim(ctx, function, ndim, dims[i], &dim);
    if (status != HEED_OK) break;
    if (found >> dim & 1)
      return heed__fail(ctx, HEED_ARGUMENT, "%s: dim names dimension %d twice; it must name it once",
                        function, dim + 1);
    found |= (uint32_t)1 << dim;
  }
  *bits = found;
  return status;
}

heed_status heed__check_new_dim(heed_context *ctx, const char *function, int ndim, int dim, int *out) {
  if (ndim >= HEED_MAX_DIMS)
    return heed__fail(ctx, HEED_SHAPE, "%s: the tensor has %d dimensions; it must have at most %d", function,
                      ndim, HEED_MAX_DIMS - 1);
  return check_dim(ctx, function, ndim, ndim + 1, dim, out);
}

heed_status heed__check_index(heed_context *ctx, const char *function, int64_t index, int dim, int64_t size,
                              int64_t *out) {
  if (index >= 1 && index <= size) {
    *out = index - 1;
  } else if (index <= -1 && index >= -size) {
    *out = index + size;
  } else if (size == 0) {
    return heed__fail(ctx, HEED_INDEX,
                      "%s: index %" PRId64 " is out of range for dimension %d, which has no elements",
                      function, index, dim + 1);
  } else if (size == 1) {
    return heed__fail(ctx, HEED_INDEX,
                      "%s: index %" PRId64 " is out of range for dimension %d of size 1; it must be 1 or -1",
                      function, index, dim + 1);
  } else {
    return heed__fail(ctx, HEED_INDEX,
                      "%s: index %" PRId64 " is out of range for dimension %d of size %" PRId64
                      "; it must be from 1 to %" PRId64 ", or from -1 to -%" PRId64,
                      function, index, dim + 1, size, size, size);
  }
  return HEED_OK;
}

heed_status heed__check_arithmetic(heed_context *ctx, const char *function, const char *argument,
                                   const heed_tensor *x) {
  if (!heed__only_stores(x->dtype)) return HEED_OK;
  return heed__fail(ctx, HEED_DTYPE,
                    "%s: %s is %s; it must be float32, int64 or bool: convert with %s:float()", function,
                    argument, heed_dtype_name(x->dtype), argument);
}

heed_status heed__check_dtype(heed_context *ctx, const char *function, const char *argument,
                              const heed_tensor *x, heed_dtype wanted) {
  if (x->dtype == wanted) return HEED_OK;
  if (wanted == HEED_FLOAT32)
    return heed__fail(ctx, HEED_DTYPE, "%s: %s is %s; it must be float32: convert with %s:float()", function,
                      argument, heed_dtype_name(x->dtype), argument);
  if (wanted == HEED_BOOL)
    return heed__fail(ctx, HEED_DTYPE,
                      "%s: %s is %s; it must be bool: convert with %s:bool(), or compare, as x:gt(0) does",
                      function, argument, heed_dtype_name(x->dtype), argument);
  return heed__fail(ctx, HEED_DTYPE, "%s: %s is %s; it must be %s", function, argument,
                    heed_dtype_name(x->dtype), heed_dtype_name(wanted));
}

heed_status heed__check_stored(heed_context *ctx, const char *function, heed_dtype dtype) {
  if (heed__can_store(dtype)) return HEED_OK;
  return heed__fail(ctx, HEED_DTYPE, "%s: dtype is %s; it must be float32, bfloat16, float16 or int8",
                    function, heed_dtype_name(dtype));
}

heed_status heed__check_expands(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *x, int ndim, const int64_t *shape) {
  char have[HEED__SHAPE_TEXT], want[HEED__SHAPE_TEXT];
  if (x->ndim > ndim)
    return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s; it must broadcast to %s, which has fewer dimensions",
                      function, argument, heed__shape_text(have, x->ndim, x->shape),
                      heed__shape_text(want, ndim, shape));
  for (int i = 1; i <= x->ndim; i++) {
    const int64_t size = x->shape[x->ndim - i], wanted = shape[ndim - i];
    if (size != wanted && size != 1)
      return heed__fail(
          ctx, HEED_SHAPE,
          "%s: %s is %s and must broadcast to %s; its size %" PRId64 " of dimension %d must be %s%" PRId64,
          function, argument, heed__shape_text(have, x->ndim, x->shape), heed__shape_text(want, ndim, shape),
          size, x->ndim - i + 1, wanted == 1 ? "" : "1 or ", wanted);
  }
  return HEED_OK;
}

heed_status heed__check_target(heed_context *ctx, const char *function, const heed_tensor *x) {
  if (heed__is_blocked(x->dtype)) return heed__refuse_tensor(ctx, function, "x", x);
  if (heed__overlaps_itself(x))
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: the tensor that is written has elements that share memory; clone it first",
                      function);
  return ctx->recorder != NULL ? ctx->recorder->check_write(ctx, function, x) : HEED_OK;
}

heed_status heed__check_writable(heed_context *ctx, const char *function, const heed_tensor *x) {
  const heed_status status = heed__check_target(ctx, function, x);
  return status ? status : heed__written(ctx, function, x);
}

heed_status heed__check_probability(heed_context *ctx, const char *function, const char *argument, double p) {
  if (p >= 0.0 && p <= 1.0) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is %s; it must be from 0 to 1", function, argument,
                    HEED__G(p));
}

heed_status heed__fail_pair(heed_context *ctx, const char *function, const char *a_name, const heed_tensor *a,
                            const char *b_name, const heed_tensor *b, const char *needed) {
  char a_text[HEED__SHAPE_TEXT], b_text[HEED__SHAPE_TEXT];
  return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s and %s is %s; %s", function, a_name,
                    heed__shape_text(a_text, a->ndim, a->shape), b_name,
                    heed__shape_text(b_text, b->ndim, b->shape), needed);
}

const char *heed__element_text(char text[HEED__SHAPE_TEXT], const heed_tensor *x, int64_t number) {
  int64_t at[HEED_MAX_DIMS];
  for (int d = x->ndim - 1; d >= 0; d--) {
    at[d] = number % x->shape[d] + 1;
    number /= x->shape[d];
  }
  return heed__shape_text(text, x->ndim, at);
}
