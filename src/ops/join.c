/* cat, stack, and repeat_interleave. */
#include "ops.h"

/* Like PyTorch, cat skips a tensor [0] whatever the dimensions of the others. */
static bool is_nothing(const heed_tensor *x) {
  return x->ndim == 1 && x->shape[0] == 0;
}

static heed_status check_joined(heed_context *ctx, const char *function, int count,
                                const heed_tensor *const *tensors) {
  if (count > 0) return heed__check_tensors(ctx, function, "tensors", count, tensors);
  return heed__fail(ctx, HEED_ARGUMENT, "%s: tensors is empty; it must have at least 1 tensor", function);
}

static heed_dtype common(int count, const heed_tensor *const *tensors) {
  heed_dtype dtype = tensors[0]->dtype;
  for (int i = 1; i < count; i++) dtype = heed__common_dtype(dtype, tensors[i]->dtype);
  return dtype;
}

/* Tensor i (from 0) does not fit the first one. */
static heed_status fail_sizes(heed_context *ctx, const char *function, const heed_tensor *first, int i,
                              const heed_tensor *x, const char *rule) {
  char first_text[HEED__SHAPE_TEXT], text[HEED__SHAPE_TEXT];
  return heed__fail(ctx, HEED_SHAPE, "%s: tensor %d is %s and the first is %s; %s", function, i + 1,
                    heed__shape_text(text, x->ndim, x->shape),
                    heed__shape_text(first_text, first->ndim, first->shape), rule);
}

/* The shape of tensors joined along dim; first: the first of them that is not skipped. */
static heed_status cat_shape(heed_context *ctx, int count, const heed_tensor *const *tensors,
                             const heed_tensor *first, int dim, int64_t *shape) {
  uint64_t total = 0;
  for (int i = 0; i < count; i++) {
    const heed_tensor *x = tensors[i];
    if (is_nothing(x) && !is_nothing(first)) continue;
    bool fits = x->ndim == first->ndim;
    for (int d = 0; d < x->ndim && fits; d++) fits = d == dim || x->shape[d] == first->shape[d];
    if (!fits)
      return fail_sizes(ctx, "cat", first, i, x, "all sizes but that of the dimension to join must be equal");
    total += (uint64_t)x->shape[dim];
    if (total > INT64_MAX)
      return heed__fail(ctx, HEED_SHAPE, "cat: the sizes of dimension %d add up to more than 2^63 - 1",
                        dim + 1);
  }
  for (int d = 0; d < first->ndim; d++) shape[d] = d == dim ? (int64_t)total : first->shape[d];
  return HEED_OK;
}

heed_status heed_cat(heed_context *ctx, int count, const heed_tensor *const *tensors, int dim,
                     heed_tensor **out) {
  HEED__ENTER(ctx, "cat", out);
  heed__result result = {0};
  int64_t shape[HEED_MAX_DIMS];
  int d;
  heed_status status = check_joined(ctx, "cat", count, tensors);
  if (status != HEED_OK) return status;
  const heed_tensor *first = tensors[0];
  for (int i = 0; i < count; i++) {
    if (tensors[i]->ndim == 0)
      return heed__fail(ctx, HEED_SHAPE,
                        "cat: tensor %d has no dimensions; it must have at least 1 (use stack)", i + 1);
    if (is_nothing(first)) first = tensors[i];
  }
  status = heed__check_dim(ctx, "cat", first->ndim, dim, &d);
  if (status != HEED_OK) return status;
  status = cat_shape(ctx, count, tensors, first, d, shape);
  if (status != HEED_OK) return status;
  status = heed__result_begin(ctx, "cat", &result, out, common(count, tensors), first->ndim, shape, false,
                              count, tensors);
  if (status != HEED_OK) return status;
  heed_tensor part; /* of the result, for the next tensor */
  heed__alias_on_stack(&part, result.tensor);
  for (int i = 0; i < count && status == HEED_OK; i++) {
    if (heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, "cat");
    if (tensors[i]->numel == 0) continue;
    part.shape[d] = tensors[i]->shape[d];
    if (!heed__copy_elements(&part, tensors[i])) status = heed__stopped(ctx, "cat");
    part.data += part.shape[d] * part.stride[d] * (ptrdiff_t)heed__element_bytes(part.dtype);
  }
  const heed__view_values values = {.order = {d}};
  return heed__recorded(ctx, heed__result_end(ctx, &result, status), HEED__OP_cat, count, tensors, &values,
                        sizeof values, out);
}

heed_status heed_stack(heed_context *ctx, int count, const heed_tensor *const *tensors, int dim,
                       heed_tensor **out) {
  HEED__ENTER(ctx, "stack", out);
  heed__result result = {0};
  int64_t shape[HEED_MAX_DIMS];
  int d;
  heed_status status = check_joined(ctx, "stack", count, tensors);
  if (status != HEED_OK) return status;
  const heed_tensor *first = tensors[0];
  status = heed__check_new_dim(ctx, "stack", first->ndim, dim, &d);
  if (status != HEED_OK) return status;
  for (int i = 1; i < count; i++) {
    if (!heed__same_shape(first->ndim, first->shape, tensors[i]->ndim, tensors[i]->shape))
      return fail_sizes(ctx, "stack", first, i, tensors[i], "all sizes must be equal");
  }
  for (int i = 0; i <= first->ndim; i++) shape[i] = i == d ? count : first->shape[i - (i > d)];
  status = heed__result_begin(ctx, "stack", &result, out, common(count, tensors), first->ndim + 1, shape,
                              false, count, tensors);
  if (status != HEED_OK) return status;
  heed_tensor part; /* of the result, without dimension d, for the next tensor */
  heed__alias_on_stack(&part, result.tensor);
  const ptrdiff_t step = part.stride[d] * (ptrdiff_t)heed__element_bytes(part.dtype);
  for (int i = d; i < first->ndim; i++) {
    part.shape[i] = part.shape[i + 1];
    part.stride[i] = part.stride[i + 1];
  }
  part.ndim--;
  for (int i = 0; i < count && status == HEED_OK; i++, part.data += step) {
    if (!heed__copy_elements(&part, tensors[i])) status = heed__stopped(ctx, "stack");
  }
  const heed__view_values values = {.order = {d}};
  return heed__recorded(ctx, heed__result_end(ctx, &result, status), HEED__OP_stack, count, tensors, &values,
                        sizeof values, out);
}

/* Along dim (from 0) of a tensor that has dimensions. */
static heed_status repeat_along(heed_context *ctx, const heed_tensor *x, int64_t repeats, int dim,
                                heed_tensor **out) {
  heed__result result = {0};
  int64_t shape[HEED_MAX_DIMS];
  for (int i = 0; i < x->ndim; i++) shape[i] = x->shape[i];
  if (repeats > 0 && shape[dim] > INT64_MAX / repeats)
    return heed__fail(ctx, HEED_SHAPE,
                      "repeat_interleave: %lld times the size %lld of dimension %d is more than 2^63 - 1",
                      (long long)repeats, (long long)shape[dim], dim + 1);
  shape[dim] *= repeats;
  heed_status status =
      heed__result_begin(ctx, "repeat_interleave", &result, out, x->dtype, x->ndim, shape, false, 1, &x);
  if (status != HEED_OK) return status;
  heed_tensor part; /* of the result: one repetition after the other */
  heed__alias_on_stack(&part, result.tensor);
  const ptrdiff_t step = part.stride[dim] * (ptrdiff_t)heed__element_bytes(part.dtype);
  part.shape[dim] = x->shape[dim];
  part.stride[dim] *= repeats;
  for (int64_t i = 0; i < repeats && x->numel > 0 && status == HEED_OK; i++, part.data += step) {
    if (!heed__copy_elements(&part, x)) status = heed__stopped(ctx, "repeat_interleave");
  }
  return heed__result_end(ctx, &result, status);
}

heed_status heed_repeat_interleave(heed_context *ctx, const heed_tensor *x, int64_t repeats, int dim,
                                   heed_tensor **out) {
  HEED__ENTER(ctx, "repeat_interleave", x, out);
  heed_tensor *flat = NULL;
  int d = 0;
  heed_status status = HEED_OK;
  if (repeats < 0)
    return heed__fail(ctx, HEED_ARGUMENT, "repeat_interleave: repeats is %lld; it must be 0 or more",
                      (long long)repeats);
  if (dim != 0) status = heed__check_dim(ctx, "repeat_interleave", x->ndim, dim, &d);
  if (status == HEED_OK && (dim == 0 || x->ndim == 0))
    status = heed__reshape(ctx, "repeat_interleave", x, 1, (const int64_t[]){x->numel}, &flat);
  if (status == HEED_OK) status = repeat_along(ctx, flat != NULL ? flat : x, repeats, d, out);
  heed_tensor_free(flat);
  const heed__view_values values = {.order = {d}, .first = flat != NULL, .size = repeats};
  return heed__recorded1(ctx, status, HEED__OP_repeat_interleave, x, &values, sizeof values, out);
}

/* ---- A number of repeats for each slice ---- */

static heed_status fail_repeats(heed_context *ctx, int64_t i, int64_t repeats, const char *needed) {
  return heed__fail(ctx, HEED_ARGUMENT, "repeat_interleave: repeats[%lld] is %lld; %s", (long long)i + 1,
                    (long long)repeats, needed);
}

/* counts, one for each slice of a dimension of that size; *total: their sum. */
static heed_status sum_repeats(heed_context *ctx, const heed_tensor *counts, int64_t size, int64_t *total) {
  *total = 0;
  for (int64_t i = 0; i < size; i++) {
    const int64_t count = ((const int64_t *)(const void *)counts->data)[i * counts->stride[0]];
    if (count < 0) return fail_repeats(ctx, i, count, "it must be 0 or more");
    if (*total > INT64_MAX - count) return fail_repeats(ctx, i, count, "the sum must be less than 2^63");
    *total += count;
    if (heed__is_due_at(&ctx->pace, i)) {
      const heed_status status = heed__stopped(ctx, "repeat_interleave");
      if (status != HEED_OK) return status;
    }
  }
  return HEED_OK;
}

/* Along dim (from 0) of a tensor that has dimensions. */
static heed_status repeat_each(heed_context *ctx, const heed_tensor *x, const heed_tensor *repeats, int dim,
                               heed_tensor **out) {
  heed__result result = {0};
  heed_tensor counts, part, slice;
  int64_t shape[HEED_MAX_DIMS];
  const int64_t size = x->shape[dim];
  if (repeats->ndim > 1 || (repeats->numel != 1 && repeats->numel != size)) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(
        ctx, HEED_SHAPE,
        "repeat_interleave: repeats is %s; it must have one number for each of the %lld elements of "
        "dimension %d, or one for all",
        heed__shape_text(text, repeats->ndim, repeats->shape), (long long)size, dim + 1);
  }
  heed__expand_on_stack(&counts, repeats, 1, &size);
  for (int i = 0; i < x->ndim; i++) shape[i] = x->shape[i];
  heed_status status = sum_repeats(ctx, &counts, size, &shape[dim]);
  if (status != HEED_OK) return status;
  status = heed__result_begin(ctx, "repeat_interleave", &result, out, x->dtype, x->ndim, shape, false, 2,
                              (const heed_tensor *const[]){x, repeats});
  if (status != HEED_OK) return status;
  heed__alias_on_stack(&part, result.tensor);
  heed__alias_on_stack(&slice, x);
  slice.shape[dim] = 1;
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(x->dtype);
  for (int64_t i = 0; i < size && result.tensor->numel > 0 && status == HEED_OK; i++) {
    part.shape[dim] = ((const int64_t *)(const void *)counts.data)[i * counts.stride[0]];
    if (heed__is_due_at(&ctx->pace, i) || !heed__copy_elements(&part, &slice))
      status = heed__stopped(ctx, "repeat_interleave");
    part.data += part.shape[dim] * part.stride[dim] * (ptrdiff_t)heed__element_bytes(part.dtype);
    slice.data += slice.stride[dim] * bytes;
  }
  return heed__result_end(ctx, &result, status);
}

heed_status heed_repeat_interleave_each(heed_context *ctx, const heed_tensor *x, const heed_tensor *repeats,
                                        int dim, heed_tensor **out) {
  HEED__ENTER(ctx, "repeat_interleave", x, repeats, out);
  heed_tensor *flat = NULL;
  int d = 0;
  heed_status status = heed__check_dtype(ctx, "repeat_interleave", "repeats", repeats, HEED_INT64);
  if (status == HEED_OK && dim != 0) status = heed__check_dim(ctx, "repeat_interleave", x->ndim, dim, &d);
  if (status == HEED_OK && (dim == 0 || x->ndim == 0))
    status = heed__reshape(ctx, "repeat_interleave", x, 1, (const int64_t[]){x->numel}, &flat);
  if (status == HEED_OK) status = repeat_each(ctx, flat != NULL ? flat : x, repeats, d, out);
  heed_tensor_free(flat);
  const heed__view_values values = {.order = {d}, .first = flat != NULL};
  return heed__recorded(ctx, status, HEED__OP_repeat_interleave_each, 2,
                        (const heed_tensor *const[]){x, repeats}, &values, sizeof values, out);
}
