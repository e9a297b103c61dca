/* Writing to elements and slices selected by index. All indices are checked before anything is written. */
#include <string.h>

#include "ops.h"

/* ---- Rows ---- */

/* The first loop is the second for a whole row at one index, which the compiler vectorises. */
#define PLACE_ROW(name, type, combined)                                                                      \
  static void place_##name(const heed__walk *w, heed__lane lane, int64_t first, int64_t last) {              \
    const int64_t *index = (const int64_t *)w->data[1];                                                      \
    const type *from = (const type *)(const void *)w->data[2];                                               \
    if (w->stride[0] == 1 && w->stride[1] == 0 && w->stride[2] == 1) {                                       \
      type *to = (type *)(void *)(w->data[0] + heed__from_zero(*index, lane.size) * lane.step);              \
      for (int64_t i = first; i < last; i++) {                                                               \
        const type old = to[i], new = from[i];                                                               \
        to[i] = (type)(combined);                                                                            \
      }                                                                                                      \
      return;                                                                                                \
    }                                                                                                        \
    for (int64_t i = first; i < last; i++) {                                                                 \
      type *to = (type *)(void *)(w->data[0] + i * w->stride[0] * (ptrdiff_t)sizeof(type) +                  \
                                  heed__from_zero(index[i * w->stride[1]], lane.size) * lane.step);          \
      const type old = *to, new = from[i * w->stride[2]];                                                    \
      *to = (type)(combined);                                                                                \
    }                                                                                                        \
  }
#define REPLACE_ROW(word)                                                                                    \
  static void place_##word(const heed__walk *w, heed__lane lane, int64_t first, int64_t last) {              \
    const int64_t *index = (const int64_t *)w->data[1];                                                      \
    for (int64_t i = first; i < last; i++)                                                                   \
      memcpy(w->data[0] + i * w->stride[0] * (ptrdiff_t)sizeof(word) +                                       \
                 heed__from_zero(index[i * w->stride[1]], lane.size) * lane.step,                            \
             w->data[2] + i * w->stride[2] * (ptrdiff_t)sizeof(word), sizeof(word));                         \
  }
REPLACE_ROW(uint8_t)
REPLACE_ROW(uint16_t)
REPLACE_ROW(uint32_t)
REPLACE_ROW(uint64_t)
PLACE_ROW(sum_of_floats, float, old + new)
PLACE_ROW(product_of_floats, float, old *new)
PLACE_ROW(sum_of_integers, uint64_t, old + new) /* signed ones would be undefined on overflow */
PLACE_ROW(product_of_integers, uint64_t, old *new)
PLACE_ROW(sum_of_booleans, uint8_t, (old | new) != 0)
PLACE_ROW(product_of_booleans, uint8_t, old != 0 && new != 0)

typedef void place_some(const heed__walk *w, heed__lane lane, int64_t first, int64_t last);

static place_some *placing_of(heed_dtype dtype, heed_scatter_reduce reduce) {
  if (reduce != HEED_SCATTER_REPLACE) {
    const bool adds = reduce == HEED_SCATTER_ADD;
    switch (dtype) {
    case HEED_BOOL: return adds ? place_sum_of_booleans : place_product_of_booleans;
    case HEED_INT64: return adds ? place_sum_of_integers : place_product_of_integers;
    default: return adds ? place_sum_of_floats : place_product_of_floats;
    }
  }
  switch (heed__element_bytes(dtype)) {
  case 1: return place_uint8_t;
  case 2: return place_uint16_t;
  case 4: return place_uint32_t;
  default: return place_uint64_t;
  }
}

static void replace_row(const heed__walk *w, heed__lane lane, heed_dtype dtype, int64_t first, int64_t last) {
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(dtype);
  char *to = w->data[0] + heed__from_zero(*(const int64_t *)w->data[1], lane.size) * lane.step;
  heed__copy_row(dtype, to + first * w->stride[0] * bytes, w->stride[0], dtype,
                 w->data[2] + first * w->stride[2] * bytes, w->stride[2], last - first);
}

bool heed__place(int ndim, const int64_t *shape, const heed_tensor *indices, const heed_tensor *heads,
                 heed__lane lane, const heed_tensor *from, heed_scatter_reduce reduce) {
  enum { PLACE_PIECE = 1 << 14 }; /* elements between cancellation checks */
  place_some *const place = placing_of(heads->dtype, reduce);
  const heed_tensor *operands[] = {heads, indices, from};
  int64_t done = 0;
  heed__walk w;
  for (bool more = heed__walk_begin(&w, ndim, shape, 3, operands); more; more = heed__walk_next(&w)) {
    for (int64_t first = 0; first < w.count; first += PLACE_PIECE) {
      const int64_t last = heed__min(w.count, first + PLACE_PIECE);
      if (reduce == HEED_SCATTER_REPLACE && w.stride[1] == 0) /* one index for the whole row */
        replace_row(&w, lane, heads->dtype, first, last);
      else
        place(&w, lane, first, last);
      if ((done += last - first) < PLACE_PIECE) continue;
      if (heed__is_due(&heads->storage->context->pace)) return false;
      done = 0;
    }
  }
  return true;
}

heed_status heed__prepare_placing(heed_context *ctx, const char *function, const char *argument,
                                  const heed_tensor *x, heed_scatter_reduce reduce, bool any,
                                  const heed_tensor **value, heed_tensor **made) {
  const heed_dtype from = (*value)->dtype;
  if (reduce != HEED_SCATTER_REPLACE) {
    const heed_status status = heed__check_arithmetic(ctx, function, "x", x);
    if (status != HEED_OK) return status;
  }
  if (from == x->dtype) return heed__copy_if_overlapping(ctx, function, x, value, made);
  if (!any && heed__common_dtype(from, x->dtype) != x->dtype)
    return heed__fail(ctx, HEED_DTYPE, "%s: %s is %s and x is %s, which cannot hold it; convert one of them",
                      function, argument, heed_dtype_name(from), heed_dtype_name(x->dtype));
  const heed_status status = heed__to(ctx, function, *value, x->dtype, made);
  if (status == HEED_OK) *value = *made;
  return status;
}

/* ---- Elements: scatter ---- */

static heed_status check_scatter(heed_context *ctx, const char *function, const heed_tensor *x, int dim,
                                 const heed_tensor *index, const heed_tensor *src) {
  char x_text[HEED__SHAPE_TEXT], text[HEED__SHAPE_TEXT];
  heed_status status = heed__check_dtype(ctx, function, "index", index, HEED_INT64);
  if (status != HEED_OK) return status;
  if ((index->ndim > 0 ? index->ndim : 1) != (x->ndim > 0 ? x->ndim : 1))
    return heed__fail_pair(ctx, function, "index", index, "x", x,
                           "they must have the same number of dimensions");
  if (src->ndim > 0 && src->ndim != (index->ndim > 0 ? index->ndim : 1))
    return heed__fail_pair(ctx, function, "src", src, "index", index,
                           "they must have the same number of dimensions");
  for (int i = 0; i < index->ndim; i++) {
    if (i != dim && index->shape[i] > x->shape[i])
      return heed__fail(
          ctx, HEED_SHAPE,
          "%s: index is %s and x is %s; except for dimension %d, index must not be larger than x", function,
          heed__shape_text(text, index->ndim, index->shape), heed__shape_text(x_text, x->ndim, x->shape),
          dim + 1);
    if (src->ndim > 0 && index->shape[i] > src->shape[i])
      return heed__fail_pair(ctx, function, "index", index, "src", src, "index must not be larger than src");
  }
  if (src->ndim > 0 && index->ndim == 0 && src->numel == 0)
    return heed__fail_pair(ctx, function, "index", index, "src", src, "index must not be larger than src");
  status = heed__check_target(ctx, function, x);
  if (status != HEED_OK) return status;
  return heed__check_indices(ctx, function, "index", index, dim, x->ndim > 0 ? x->shape[dim] : 1);
}

heed_status heed__scatter(heed_context *ctx, const char *function, heed_tensor *x, int dim,
                          const heed_tensor *index, const heed_tensor *src, heed_scatter_reduce reduce) {
  heed_tensor *index_copy = NULL, *src_copy = NULL, heads, indices, from;
  const heed_tensor *const given[] = {x, index, src};
  heed__lane lane;
  int d = 0;
  heed_status status = heed__check_dim(ctx, function, x->ndim, dim, &d);
  if (status != HEED_OK) goto done;
  status = check_scatter(ctx, function, x, d, index, src);
  if (status != HEED_OK) goto done;
  status = heed__copy_if_overlapping(ctx, function, x, &index, &index_copy);
  if (status != HEED_OK) goto done;
  status = heed__prepare_placing(ctx, function, "src", x, reduce, src->ndim == 0, &src, &src_copy);
  if (status == HEED_OK && reduce == HEED_SCATTER_MULTIPLY)
    status = heed__check_unrecorded(ctx, function, 3, given);
  if (status == HEED_OK) status = heed__charge(ctx, function, 2 * (double)index->numel + 1);
  if (status == HEED_OK) status = heed__written(ctx, function, x);
  if (status != HEED_OK) goto done;
  heed__alias_on_stack(&from, src);
  if (index->ndim == 0) from.ndim = 0; /* its first element */
  for (int i = 0; i < from.ndim; i++) from.shape[i] = index->shape[i];
  heed__lane_heads(x, d, index->ndim, index->shape, index, &heads, &indices, &lane);
  if (!heed__place(index->ndim, index->shape, &indices, &heads, lane, &from, reduce))
    status = heed__stopped(ctx, function);
done:
  heed_tensor_free(index_copy);
  heed_tensor_free(src_copy);
  const heed__view_values v = {.order = {d}, .first = reduce};
  return heed__recorded(ctx, status, HEED__OP_scatter, 3, given, &v, sizeof v, &x);
}

static heed_status check_reduce(heed_context *ctx, const char *function, heed_scatter_reduce reduce) {
  if ((unsigned)reduce <= HEED_SCATTER_MULTIPLY) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: reduce is %d, which is not a heed_scatter_reduce", function,
                    (int)reduce);
}

heed_status heed_scatter(heed_context *ctx, heed_tensor *x, int dim, const heed_tensor *index,
                         const heed_tensor *src, heed_scatter_reduce reduce) {
  HEED__ENTER(ctx, "scatter", x, index, src);
  const heed_status status = check_reduce(ctx, "scatter", reduce);
  if (status != HEED_OK) return status;
  return heed__scatter(ctx, "scatter", x, dim, index, src, reduce);
}

/* ---- Slices: index_add, index_copy, index_fill ---- */

static heed_status check_slices(heed_context *ctx, const char *function, const heed_tensor *x, int dim,
                                const heed_tensor *index, const heed_tensor *source) {
  char text[HEED__SHAPE_TEXT], have[HEED__SHAPE_TEXT], want[HEED__SHAPE_TEXT];
  int64_t shape[HEED_MAX_DIMS];
  heed_status status = heed__check_dtype(ctx, function, "index", index, HEED_INT64);
  if (status != HEED_OK) return status;
  if (index->ndim > 1 || (x->ndim == 0 && index->numel != 1))
    return heed__fail(ctx, HEED_SHAPE, "%s: index is %s; it must have %s", function,
                      heed__shape_text(text, index->ndim, index->shape),
                      index->ndim > 1 ? "1 dimension" : "1 element, like x");
  for (int i = 0; i < x->ndim; i++) shape[i] = i == dim ? index->numel : x->shape[i];
  if (source != NULL && !heed__same_shape(source->ndim, source->shape, x->ndim, shape) &&
      !(x->ndim == 0 && source->ndim == 1 && source->numel == 1))
    return heed__fail(ctx, HEED_SHAPE,
                      "%s: source is %s; it must be %s, for x %s and %lld %s of dimension %d", function,
                      heed__shape_text(have, source->ndim, source->shape),
                      heed__shape_text(want, x->ndim, shape), heed__shape_text(text, x->ndim, x->shape),
                      (long long)index->numel, index->numel == 1 ? "index" : "indices", dim + 1);
  status = heed__check_target(ctx, function, x);
  if (status != HEED_OK) return status;
  return heed__check_indices(ctx, function, "index", index, dim, x->ndim > 0 ? x->shape[dim] : 1);
}

/* Writes the slices of source, or a value of no dimensions, which any tensor can have. *dim becomes one from
 * 0. */
static heed_status put_slices(heed_context *ctx, const char *function, heed_tensor *x, int *dim,
                              const heed_tensor *index, const heed_tensor *source, bool is_value,
                              heed_scatter_reduce reduce) {
  heed_tensor *index_copy = NULL, *source_copy = NULL, heads, indices, from;
  heed__lane lane;
  int64_t shape[HEED_MAX_DIMS];
  int d;
  heed_status status = heed__check_dim(ctx, function, x->ndim, *dim, &d);
  if (status != HEED_OK) goto done;
  *dim = d;
  status = check_slices(ctx, function, x, d, index, is_value ? NULL : source);
  if (status != HEED_OK) goto done;
  status = heed__copy_if_overlapping(ctx, function, x, &index, &index_copy);
  if (status != HEED_OK) goto done;
  status = heed__prepare_placing(ctx, function, "source", x, reduce, is_value, &source, &source_copy);
  double elements = (double)index->numel;
  for (int i = 0; i < x->ndim; i++) elements *= i == d ? 1 : (double)x->shape[i];
  if (status == HEED_OK) status = heed__charge(ctx, function, 2 * elements + 1);
  if (status == HEED_OK) status = heed__written(ctx, function, x);
  if (status != HEED_OK) goto done;
  for (int i = 0; i < x->ndim; i++) shape[i] = i == d ? index->numel : x->shape[i];
  heed__alias_on_stack(&from, source);
  if (x->ndim == 0) from.ndim = 0;
  heed__lane_heads(x, d, x->ndim, shape, index, &heads, &indices, &lane);
  if (!heed__place(x->ndim, shape, &indices, &heads, lane, &from, reduce))
    status = heed__stopped(ctx, function);
done:
  heed_tensor_free(index_copy);
  heed_tensor_free(source_copy);
  return status;
}

/* dim: from 0 */
static heed_status record_slices(heed_context *ctx, heed_status status, heed__op op, heed_tensor *x, int dim,
                                 const heed_tensor *index, const heed_tensor *source, double factor) {
  const heed_tensor *const inputs[] = {x, index, source};
  const heed__view_values values = {.order = {dim}, .number = factor};
  return heed__recorded(ctx, status, op, 3, inputs, &values, sizeof values, &x);
}

heed_status heed__index_add(heed_context *ctx, const char *function, heed_tensor *x, int dim,
                            const heed_tensor *index, const heed_tensor *source, heed_scalar alpha) {
  heed_tensor *scaled = NULL;
  heed__number number;
  const bool is_one = alpha.dtype == HEED_FLOAT32 ? alpha.as.number == 1 : alpha.as.integer == 1;
  heed_status status = HEED_OK;
  if (!is_one)
    status =
        heed__mul(ctx, function, "source", source, "alpha", heed__number_tensor(&number, alpha), &scaled);
  if (status == HEED_OK)
    status = put_slices(ctx, function, x, &dim, index, is_one ? source : scaled, false, HEED_SCATTER_ADD);
  heed_tensor_free(scaled);
  const double factor = alpha.dtype == HEED_FLOAT32 ? alpha.as.number : (double)alpha.as.integer;
  return record_slices(ctx, status, HEED__OP_index_add, x, dim, index, source, factor);
}

heed_status heed_index_add(heed_context *ctx, heed_tensor *x, int dim, const heed_tensor *index,
                           const heed_tensor *source, heed_scalar alpha) {
  HEED__ENTER(ctx, "index_add", x, index, source, alpha);
  return heed__index_add(ctx, "index_add", x, dim, index, source, alpha);
}

heed_status heed__index_copy(heed_context *ctx, const char *function, heed_tensor *x, int dim,
                             const heed_tensor *index, const heed_tensor *source) {
  const heed_status status = put_slices(ctx, function, x, &dim, index, source, false, HEED_SCATTER_REPLACE);
  return record_slices(ctx, status, HEED__OP_index_copy, x, dim, index, source, 1);
}

heed_status heed_index_copy(heed_context *ctx, heed_tensor *x, int dim, const heed_tensor *index,
                            const heed_tensor *source) {
  HEED__ENTER(ctx, "index_copy", x, index, source);
  return heed__index_copy(ctx, "index_copy", x, dim, index, source);
}

heed_status heed__index_fill(heed_context *ctx, const char *function, heed_tensor *x, int dim,
                             const heed_tensor *index, heed_scalar value, const heed_tensor *source) {
  heed__number number;
  const heed_status status = put_slices(ctx, function, x, &dim, index, heed__number_tensor(&number, value),
                                        true, HEED_SCATTER_REPLACE);
  return record_slices(ctx, status, HEED__OP_index_fill, x, dim, index, source, 1);
}

heed_status heed_index_fill(heed_context *ctx, heed_tensor *x, int dim, const heed_tensor *index,
                            heed_scalar value) {
  HEED__ENTER(ctx, "index_fill", x, index, value);
  return heed__index_fill(ctx, "index_fill", x, dim, index, value, NULL);
}
