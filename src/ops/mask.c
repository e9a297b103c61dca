/* Elements and slices picked by a mask. */
#include "ops.h"

static heed_status check_mask(heed_context *ctx, const char *function, const heed_tensor *x,
                              const heed_tensor *mask) {
  char x_text[HEED__SHAPE_TEXT], text[HEED__SHAPE_TEXT];
  const heed_status status = heed__check_dtype(ctx, function, "mask", mask, HEED_BOOL);
  if (status != HEED_OK) return status;
  if (mask->ndim > x->ndim || !heed__same_shape(mask->ndim, mask->shape, mask->ndim, x->shape))
    return heed__fail(ctx, HEED_SHAPE,
                      "%s: mask is %s and x is %s; mask must have the first sizes of x, or all of them",
                      function, heed__shape_text(text, mask->ndim, mask->shape),
                      heed__shape_text(x_text, x->ndim, x->shape));
  return HEED_OK;
}

/* Leaves off where the work is due. */
static int64_t count_true(const heed_tensor *mask, const heed__pace *pace) {
  int64_t count = 0, done = 0;
  heed__walk w;
  for (bool more = heed__walk_begin(&w, mask->ndim, mask->shape, 1, &mask); more;
       more = heed__walk_next(&w)) {
    const uint8_t *row = (const uint8_t *)w.data[0];
    for (int64_t i = 0; i < w.count; i++, done++) {
      count += row[i * w.stride[0]] != 0;
      if (heed__is_due_at(pace, done)) return count;
    }
  }
  return count;
}

/* [count, the sizes of x that mask has not]; the number of them. A mask of no dimensions adds one. */
static heed_status masked_shape(heed_context *ctx, const char *function, const heed_tensor *x,
                                const heed_tensor *mask, int *ndim, int64_t *shape) {
  if (x->ndim - mask->ndim >= HEED_MAX_DIMS)
    return heed__fail(ctx, HEED_SHAPE, "%s: the result would have %d dimensions; there can be %d", function,
                      x->ndim + 1, HEED_MAX_DIMS);
  *ndim = 1;
  shape[0] = count_true(mask, &ctx->pace);
  if (heed__is_due(&ctx->pace)) {
    const heed_status status = heed__stopped(ctx, function);
    if (status != HEED_OK) return status;
  }
  for (int i = mask->ndim; i < x->ndim; i++) shape[(*ndim)++] = x->shape[i];
  return HEED_OK;
}

/* Copies between the slices of x where mask is true and those of `list`, [count, …], one after another. False
 * if the work is due before all is done. */
static bool copy_masked(const heed_tensor *x, const heed_tensor *mask, const heed_tensor *list, bool into_x) {
  heed_tensor heads, slice, entry;
  const ptrdiff_t x_bytes = (ptrdiff_t)heed__element_bytes(x->dtype);
  const ptrdiff_t list_step = list->stride[0] * (ptrdiff_t)heed__element_bytes(list->dtype);
  heed__alias_on_stack(&heads, x);
  heads.ndim = mask->ndim;
  heed__alias_on_stack(&slice, x);
  heed__alias_on_stack(&entry, list);
  slice.ndim = entry.ndim = x->ndim - mask->ndim;
  for (int i = 0; i < slice.ndim; i++) {
    slice.shape[i] = entry.shape[i] = x->shape[mask->ndim + i];
    slice.stride[i] = x->stride[mask->ndim + i];
    entry.stride[i] = list->stride[i + 1];
  }
  const heed_tensor *operands[] = {mask, &heads};
  const heed__pace *pace = &x->storage->context->pace;
  int64_t done = 0;
  heed__walk w;
  for (bool more = heed__walk_begin(&w, mask->ndim, mask->shape, 2, operands); more;
       more = heed__walk_next(&w)) {
    for (int64_t i = 0; i < w.count; i++, done++) {
      if (heed__is_due_at(pace, done)) return false;
      if (w.data[0][i * w.stride[0]] == 0) continue;
      slice.data = w.data[1] + i * w.stride[1] * x_bytes;
      const heed_tensor *to = into_x ? &slice : &entry, *from = into_x ? &entry : &slice;
      if (slice.ndim == 0)
        heed__copy_row(to->dtype, to->data, 1, from->dtype, from->data, 1, 1);
      else if (!heed__copy_elements(to, from))
        return false;
      entry.data += list_step;
    }
  }
  return true;
}

heed_status heed__masked_select(heed_context *ctx, const char *function, const heed_tensor *x,
                                const heed_tensor *mask, heed_tensor **out) {
  heed__result result = {0};
  const heed_tensor *inputs[] = {x, mask};
  int ndim = 0;
  int64_t shape[HEED_MAX_DIMS];
  heed_status status = check_mask(ctx, function, x, mask);
  if (status != HEED_OK) return status;
  status = masked_shape(ctx, function, x, mask, &ndim, shape);
  if (status != HEED_OK) return status;
  status = heed__result_begin(ctx, function, &result, out, x->dtype, ndim, shape, false, 2, inputs);
  if (status != HEED_OK) return status;
  if (!copy_masked(x, mask, result.tensor, false)) status = heed__stopped(ctx, function);
  return heed__result_end(ctx, &result, status);
}

heed_status heed_masked_select(heed_context *ctx, const heed_tensor *x, const heed_tensor *mask,
                               heed_tensor **out) {
  HEED__ENTER(ctx, "masked_select", x, mask, out);
  return heed__masked_select(ctx, "masked_select", x, mask, out);
}

heed_status heed__masked_assign(heed_context *ctx, const char *function, heed_tensor *x,
                                const heed_tensor *mask, const heed_tensor *value) {
  heed_tensor *mask_copy = NULL, *value_copy = NULL, list;
  int ndim = 0;
  int64_t shape[HEED_MAX_DIMS];
  heed_status status = check_mask(ctx, function, x, mask);
  if (status != HEED_OK) goto done;
  status = heed__check_writable(ctx, function, x);
  if (status != HEED_OK) goto done;
  status = masked_shape(ctx, function, x, mask, &ndim, shape);
  if (status != HEED_OK) goto done;
  status = heed__check_expands(ctx, function, "value", value, ndim, shape);
  if (status != HEED_OK) goto done;
  status = heed__copy_if_overlapping(ctx, function, x, &mask, &mask_copy);
  if (status != HEED_OK) goto done;
  status = heed__copy_if_overlapping(ctx, function, x, &value, &value_copy);
  if (status != HEED_OK) goto done;
  heed__expand_on_stack(&list, value, ndim, shape);
  if (!copy_masked(x, mask, &list, true)) status = heed__stopped(ctx, function);
done:
  heed_tensor_free(mask_copy);
  heed_tensor_free(value_copy);
  return status;
}

heed_status heed_masked_assign(heed_context *ctx, heed_tensor *x, const heed_tensor *mask,
                               const heed_tensor *value) {
  HEED__ENTER(ctx, "masked_assign", x, mask, value);
  return heed__masked_assign(ctx, "masked_assign", x, mask, value);
}
