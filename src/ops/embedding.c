/* embedding: rows of a table of vectors, selected by id. */
#include "ops.h"

#include <inttypes.h>

static heed_status check_table(heed_context *ctx, const char *function, const heed_tensor *ids,
                               const heed_tensor *weight) {
  char text[HEED__SHAPE_TEXT];
  heed_status status = heed__check_dtype(ctx, function, "ids", ids, HEED_INT64);
  if (status != HEED_OK) return status;
  if (weight->dtype != HEED_FLOAT32 && weight->dtype != HEED_BFLOAT16 && weight->dtype != HEED_FLOAT16 &&
      !heed__is_blocked(weight->dtype))
    return heed__fail(ctx, HEED_DTYPE, "%s: weight is %s; it must be float32, bfloat16 or float16", function,
                      heed_dtype_name(weight->dtype));
  if (weight->ndim != 2)
    return heed__fail(ctx, HEED_SHAPE, "%s: weight is %s; it must have 2 dimensions", function,
                      heed__shape_text(text, weight->ndim, weight->shape));
  if (ids->ndim < HEED_MAX_DIMS) return HEED_OK;
  return heed__fail(ctx, HEED_SHAPE,
                    "%s: ids has %d dimensions; it must have at most %d, since the result has one more",
                    function, ids->ndim, HEED_MAX_DIMS - 1);
}

static heed_status check_ids(heed_context *ctx, const char *function, const heed_tensor *ids, int64_t size) {
  heed__walk w;
  int64_t done = 0;
  for (bool more = heed__walk_begin(&w, ids->ndim, ids->shape, 1, &ids); more; more = heed__walk_next(&w)) {
    const int64_t *row = (const int64_t *)w.data[0];
    for (int64_t i = 0; i < w.count; i++, done++) {
      if (heed__is_due_at(&ctx->pace, done)) {
        const heed_status status = heed__stopped(ctx, function);
        if (status != HEED_OK) return status;
      }
      const int64_t id = row[i * w.stride[0]];
      if (id < 1 || id > size) {
        char element[HEED__SHAPE_TEXT];
        return heed__fail(
            ctx, HEED_INDEX, "%s: id %" PRId64 " is out of range; weight has rows 1 to %" PRId64 "%s%s%s%s",
            function, id, size, ids->ndim > 0 ? " (element " : "",
            ids->ndim > 0 ? heed__element_text(element, ids, done) : "", ids->ndim > 0 ? " of ids)" : "",
            id == 0 ? "; ids count from 1, as arange(1, n + 1) does" : "");
      }
    }
  }
  return HEED_OK;
}

#define CHECKED_EVERY ((int64_t)1 << 16) /* elements between cancellation checks */

heed_status heed__embedding(heed_context *ctx, const char *function, const heed_tensor *ids,
                            const heed_tensor *weight, int64_t padding_idx, heed_tensor **out) {
  heed__result result = {0};
  int64_t shape[HEED_MAX_DIMS];
  heed_status status = check_table(ctx, function, ids, weight);
  if (status == HEED_OK) status = check_ids(ctx, function, ids, weight->shape[0]);
  if (status != HEED_OK) return status;
  const int64_t d = weight->shape[1];
  for (int i = 0; i < ids->ndim; i++) shape[i] = ids->shape[i];
  shape[ids->ndim] = d;
  status = heed__result_begin_row_major(ctx, function, &result, out, HEED_FLOAT32, ids->ndim + 1, shape, 2,
                                        (const heed_tensor *const[]){ids, weight});
  if (status != HEED_OK) return status;
  const ptrdiff_t step = (ptrdiff_t)heed__row_bytes(weight->dtype, weight->stride[0]);
  const heed__kernels *kernels = heed__kernels_of(ctx);
  float *to = (float *)result.tensor->data;
  int64_t copied = 0; /* elements since the last cancellation check */
  heed__walk w;
  for (bool more = heed__walk_begin(&w, ids->ndim, ids->shape, 1, &ids); more; more = heed__walk_next(&w)) {
    const int64_t *row = (const int64_t *)w.data[0];
    for (int64_t i = 0; i < w.count && status == HEED_OK; i++, to += d) {
      heed__convert_row(kernels, HEED_FLOAT32, to, 1, weight->dtype,
                        weight->data + (row[i * w.stride[0]] - 1) * step, weight->stride[1], d);
      if ((copied += d) < CHECKED_EVERY) continue;
      copied = 0;
      if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
    }
  }
  status = heed__result_end(ctx, &result, status);
  return heed__recorded(ctx, status, HEED__OP_embedding, 2, (const heed_tensor *const[]){ids, weight},
                        &padding_idx, sizeof padding_idx, out);
}

heed_status heed_embedding(heed_context *ctx, const heed_tensor *ids, const heed_tensor *weight,
                           heed_tensor **out) {
  HEED__ENTER(ctx, "embedding", ids, out);
  HEED__ENTER_BLOCKED(ctx, "embedding", weight);
  return heed__embedding(ctx, "embedding", ids, weight, 0, out);
}
