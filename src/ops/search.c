/* searchsorted: where values belong in sorted rows. */
#include "ops.h"

/* The first index, from 0, whose element is not below the value; right: above it. nan comes last. */
#define SEARCH_ROW(name, type)                                                                               \
  static int64_t search_##name(const char *row, int64_t n, const char *value, bool right) {                  \
    const type *sorted = (const type *)(const void *)row, wanted = *(const type *)(const void *)value;       \
    int64_t low = 0, high = n;                                                                               \
    while (low < high) {                                                                                     \
      const int64_t middle = low + (high - low) / 2;                                                         \
      const bool enough = right ? sorted[middle] > wanted : sorted[middle] >= wanted;                        \
      if (enough)                                                                                            \
        high = middle;                                                                                       \
      else                                                                                                   \
        low = middle + 1;                                                                                    \
    }                                                                                                        \
    return low;                                                                                              \
  }
SEARCH_ROW(floats, float)
SEARCH_ROW(integers, int64_t)

static heed_status check_search(heed_context *ctx, const char *function, const heed_tensor *sorted,
                                const heed_tensor *values) {
  heed_status status = heed__check_arithmetic(ctx, function, "sorted", sorted);
  if (status == HEED_OK) status = heed__check_arithmetic(ctx, function, "values", values);
  if (status != HEED_OK) return status;
  const int last = sorted->ndim - 1;
  if (last < 0)
    return heed__fail(ctx, HEED_SHAPE, "%s: sorted has no dimensions; it must have at least 1", function);
  if (last > 0 &&
      (values->ndim != sorted->ndim || !heed__same_shape(last, sorted->shape, last, values->shape)))
    return heed__fail_pair(ctx, function, "sorted", sorted, "values", values,
                           "sorted must have 1 dimension, or the sizes of values except for the last one");
  return HEED_OK;
}

/* Both are row-major and of one dtype. False if a cancellation check stops it. */
static bool search_all(const heed__pace *pace, const heed_tensor *sorted, const heed_tensor *values,
                       bool right, int64_t *out) {
  const bool floats = sorted->dtype == HEED_FLOAT32;
  const size_t bytes = heed__element_bytes(sorted->dtype);
  const int64_t n = sorted->shape[sorted->ndim - 1];
  /* values for each row of sorted */
  const int64_t count = sorted->ndim == 1 ? values->numel : values->shape[values->ndim - 1];
  const char *row = sorted->data, *value = values->data;
  for (int64_t i = 0, of_row = 0; i < values->numel; i++, value += bytes) {
    out[i] = (floats ? search_floats : search_integers)(row, n, value, right) + 1;
    if (heed__is_due_at(pace, i)) return false;
    if (++of_row < count) continue;
    of_row = 0;
    row += (size_t)n * bytes;
  }
  return true;
}

heed_status heed__searchsorted(heed_context *ctx, const char *function, const heed_tensor *sorted,
                               const heed_tensor *values, bool right, heed_tensor **out) {
  heed__result result = {0};
  heed_tensor *made_sorted = NULL, *made_values = NULL;
  heed_status status = check_search(ctx, function, sorted, values);
  if (status != HEED_OK) return status;
  const heed_dtype common = heed__common_dtype(sorted->dtype, values->dtype);
  const heed_dtype dtype = common == HEED_BOOL ? HEED_INT64 : common;
  const heed_tensor *inputs[] = {sorted, values};
  status = heed__result_begin_row_major(ctx, function, &result, out, HEED_INT64, values->ndim, values->shape,
                                        2, inputs);
  if (status == HEED_OK) status = heed__as_contiguous(ctx, function, sorted, dtype, &sorted, &made_sorted);
  if (status == HEED_OK) status = heed__as_contiguous(ctx, function, values, dtype, &values, &made_values);
  if (status == HEED_OK &&
      !search_all(&ctx->pace, sorted, values, right, (int64_t *)(void *)result.tensor->data))
    status = heed__stopped(ctx, function);
  heed_tensor_free(made_sorted);
  heed_tensor_free(made_values);
  return heed__result_end(ctx, &result, status);
}

heed_status heed_searchsorted(heed_context *ctx, const heed_tensor *sorted, const heed_tensor *values,
                              bool right, heed_tensor **out) {
  HEED__ENTER(ctx, "searchsorted", sorted, values, out);
  return heed__searchsorted(ctx, "searchsorted", sorted, values, right, out);
}
