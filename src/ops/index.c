/* Elements and slices selected by index. All indices are checked before anything is written. */
#include <string.h>

#include "ops.h"

/* A checked index as one from 0. */
static int64_t from_zero(int64_t index, int64_t size) {
  return index > 0 ? index - 1 : index + size;
}

static bool is_in_range(int64_t index, int64_t size) {
  return index > 0 ? index <= size : index < 0 && index >= -size;
}

/* All elements of index (int64) must be valid indices of dimension dim, whose size is `size`. */
static heed_status check_indices(heed_context *ctx, const char *function, const heed_tensor *index, int dim,
                                 int64_t size) {
  heed__walk w;
  int64_t done = 0;
  for (bool more = heed__walk_begin(&w, index->ndim, index->shape, 1, &index); more;
       more = heed__walk_next(&w)) {
    const int64_t *row = (const int64_t *)w.data[0];
    for (int64_t i = 0; i < w.count; i++, done++) {
      const int64_t number = row[i * w.stride[0]];
      heed_status status = HEED_OK;
      if (!is_in_range(number, size)) { /* calling heed__check_index costs more than selecting */
        int64_t unused;
        status = heed__check_index(ctx, function, number, dim, size, &unused);
      }
      if (heed__is_due_at(&ctx->pace, done)) status = heed__stopped(ctx, function);
      if (status != HEED_OK) return status;
    }
  }
  return HEED_OK;
}

/* Moves view, an alias of x whose size of dimension dim is 1, to slice i (from 0) of x. */
static void move_to(heed_tensor *view, const heed_tensor *x, int dim, int64_t i) {
  view->data = x->data + i * x->stride[dim] * (ptrdiff_t)heed__element_bytes(x->dtype);
}

static void alias_slice(heed_tensor *view, const heed_tensor *x, int dim) {
  heed__alias_on_stack(view, x);
  view->shape[dim] = 1;
}

typedef struct picking {
  heed__walk w;   /* out, index, and x at index 0 of dim */
  int64_t size;   /* of dim */
  ptrdiff_t step; /* bytes between indices of dim */
} picking;

/* bytes: of an element; plain: the row is selected from a contiguous row into one. Both are constants where
 * this is inlined: variable strides cost as much as the selecting. */
static inline __attribute__((always_inline)) void pick_row(const picking *p, int64_t first, int64_t last,
                                                           const size_t bytes, const bool plain) {
  const ptrdiff_t to = plain ? (ptrdiff_t)bytes : p->w.stride[0] * (ptrdiff_t)bytes;
  const ptrdiff_t from = plain ? 0 : p->w.stride[2] * (ptrdiff_t)bytes, next = plain ? 1 : p->w.stride[1];
  const ptrdiff_t step = plain ? (ptrdiff_t)bytes : p->step;
  const int64_t *index = (const int64_t *)p->w.data[1], size = p->size;
  char *out = p->w.data[0];
  const char *heads = p->w.data[2];
  for (int64_t i = first; i < last; i++)
    memcpy(out + i * to, heads + i * from + from_zero(index[i * next], size) * step, bytes);
}

static inline __attribute__((always_inline)) void pick_some(const picking *p, int64_t first, int64_t last,
                                                            const size_t bytes) {
  const ptrdiff_t *stride = p->w.stride;
  if (stride[0] == 1 && stride[1] == 1 && stride[2] == 0 && p->step == (ptrdiff_t)bytes)
    pick_row(p, first, last, bytes, true);
  else
    pick_row(p, first, last, bytes, false);
}

/* out = x at the indices of dimension dim that `index` contains, element by element. index has the shape of
 * out, or at most one dimension and is then the same for all other dimensions. False if a cancellation check
 * stops it. */
static bool pick_elements(const heed_tensor *out, const heed_tensor *x, int dim, const heed_tensor *index) {
  enum { PICK_PIECE = 1 << 14 }; /* elements between cancellation checks */
  const size_t bytes = heed__element_bytes(x->dtype);
  heed_tensor heads, indices;
  heed__alias_on_stack(&heads, x);
  heed__alias_on_stack(&indices, index);
  heads.ndim = indices.ndim = out->ndim;
  for (int i = 0; i < out->ndim; i++) {
    heads.shape[i] = indices.shape[i] = out->shape[i];
    heads.stride[i] = i == dim || x->ndim == 0 ? 0 : x->stride[i];
    if (index->ndim < out->ndim) indices.stride[i] = i == dim && index->ndim > 0 ? index->stride[0] : 0;
  }
  picking p = {.size = x->ndim > 0 ? x->shape[dim] : 1};
  p.step = x->ndim > 0 ? x->stride[dim] * (ptrdiff_t)bytes : 0;
  const heed_tensor *operands[] = {out, &indices, &heads};
  for (bool more = heed__walk_begin(&p.w, out->ndim, out->shape, 3, operands); more;
       more = heed__walk_next(&p.w)) {
    for (int64_t first = 0; first < p.w.count; first += PICK_PIECE) {
      const int64_t last = heed__min(p.w.count, first + PICK_PIECE);
      switch (bytes) {
      case 8: pick_some(&p, first, last, 8); break;
      case 4: pick_some(&p, first, last, 4); break;
      case 2: pick_some(&p, first, last, 2); break;
      default: pick_some(&p, first, last, 1);
      }
      if (heed__is_due(&out->storage->context->pace)) return false;
    }
  }
  return true;
}

/* out[…, i, …] = x[…, index[i], …]; x and out have dimensions. False if a cancellation check stops it. */
static bool copy_slices(const heed_tensor *out, const heed_tensor *x, int dim, const heed_tensor *index) {
  enum { PICKED = 4 }; /* slices of fewer elements are faster element by element, if dim is wide */
  const int64_t *indices = (const int64_t *)index->data;
  const int64_t step = index->ndim > 0 ? index->stride[0] : 0;
  int64_t behind = 1;
  heed_tensor to, from;
  if (out->numel == 0) return true;
  for (int i = dim + 1; i < x->ndim; i++) behind *= x->shape[i];
  if (behind < PICKED && x->shape[dim] >= HEED__SHORT_ROW) return pick_elements(out, x, dim, index);
  alias_slice(&to, out, dim);
  alias_slice(&from, x, dim);
  for (int64_t i = 0; i < out->shape[dim]; i++) {
    move_to(&to, out, dim, i);
    move_to(&from, x, dim, from_zero(indices[i * step], x->shape[dim]));
    if (!heed__copy_elements(&to, &from)) return false;
  }
  return true;
}

heed_status heed__index_select(heed_context *ctx, const char *function, const heed_tensor *x, int dim,
                               const heed_tensor *index, heed_tensor **out) {
  heed__result result = {0};
  const heed_tensor *inputs[] = {x, index};
  int64_t shape[HEED_MAX_DIMS];
  int d;
  heed_status status = heed__check_dim(ctx, function, x->ndim, dim, &d);
  if (status != HEED_OK) return status;
  status = heed__check_dtype(ctx, function, "index", index, HEED_INT64);
  if (status != HEED_OK) return status;
  if (index->ndim > 1 || (x->ndim == 0 && index->numel != 1)) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(ctx, HEED_SHAPE, "%s: index is %s; it must have %s", function,
                      heed__shape_text(text, index->ndim, index->shape),
                      index->ndim > 1 ? "1 dimension" : "1 element, like x");
  }
  status = check_indices(ctx, function, index, d, x->ndim > 0 ? x->shape[d] : 1);
  if (status != HEED_OK) return status;
  for (int i = 0; i < x->ndim; i++) shape[i] = i == d ? index->numel : x->shape[i];
  status = heed__result_begin(ctx, function, &result, out, x->dtype, x->ndim, shape, false, 2, inputs);
  if (status != HEED_OK) return status;
  const bool done =
      x->ndim > 0 ? copy_slices(result.tensor, x, d, index) : heed__copy_elements(result.tensor, x);
  return heed__result_end(ctx, &result, done ? HEED_OK : heed__stopped(ctx, function));
}

heed_status heed_index_select(heed_context *ctx, const heed_tensor *x, int dim, const heed_tensor *index,
                              heed_tensor **out) {
  HEED__ENTER(ctx, "index_select", x, index, out);
  return heed__index_select(ctx, "index_select", x, dim, index, out);
}

static heed_status check_gather(heed_context *ctx, const heed_tensor *x, int dim, const heed_tensor *index) {
  char x_text[HEED__SHAPE_TEXT], text[HEED__SHAPE_TEXT];
  heed_status status = heed__check_dtype(ctx, "gather", "index", index, HEED_INT64);
  if (status != HEED_OK) return status;
  if ((index->ndim > 0 ? index->ndim : 1) != (x->ndim > 0 ? x->ndim : 1))
    return heed__fail_pair(ctx, "gather", "index", index, "x", x,
                           "they must have the same number of dimensions");
  for (int i = 0; i < index->ndim && x->ndim > 0; i++) {
    if (i != dim && index->shape[i] > x->shape[i])
      return heed__fail(
          ctx, HEED_SHAPE,
          "gather: index is %s and x is %s; except for dimension %d, index must not be larger than x",
          heed__shape_text(text, index->ndim, index->shape), heed__shape_text(x_text, x->ndim, x->shape),
          dim + 1);
  }
  return check_indices(ctx, "gather", index, dim, x->ndim > 0 ? x->shape[dim] : 1);
}

heed_status heed_gather(heed_context *ctx, const heed_tensor *x, int dim, const heed_tensor *index,
                        heed_tensor **out) {
  HEED__ENTER(ctx, "gather", x, index, out);
  heed__result result = {0};
  const heed_tensor *inputs[] = {x, index};
  int d;
  heed_status status = heed__check_dim(ctx, "gather", x->ndim, dim, &d);
  if (status != HEED_OK) return status;
  status = check_gather(ctx, x, d, index);
  if (status != HEED_OK) return status;
  status =
      heed__result_begin(ctx, "gather", &result, out, x->dtype, index->ndim, index->shape, false, 2, inputs);
  if (status != HEED_OK) return status;
  if (!pick_elements(result.tensor, x, d, index)) status = heed__stopped(ctx, "gather");
  return heed__result_end(ctx, &result, status);
}

/* Writes the slices of list, [shape of index, shape of x without its first], into the slices of x that index
 * selects. False if a cancellation check stops it. */
static bool assign_slices(const heed_tensor *x, const heed_tensor *index, const heed_tensor *list) {
  heed_tensor slice, entries, entry;
  const ptrdiff_t x_step = x->stride[0] * (ptrdiff_t)heed__element_bytes(x->dtype);
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(list->dtype);
  heed__alias_on_stack(&slice, x);
  heed__alias_on_stack(&entries, list);
  heed__alias_on_stack(&entry, list);
  entries.ndim = index->ndim;
  slice.ndim = entry.ndim = x->ndim - 1;
  for (int i = 0; i < slice.ndim; i++) {
    slice.shape[i] = entry.shape[i] = x->shape[i + 1];
    slice.stride[i] = x->stride[i + 1];
    entry.stride[i] = list->stride[index->ndim + i];
  }
  const heed_tensor *operands[] = {index, &entries};
  heed__walk w;
  for (bool more = heed__walk_begin(&w, index->ndim, index->shape, 2, operands); more;
       more = heed__walk_next(&w)) {
    const int64_t *row = (const int64_t *)w.data[0];
    for (int64_t i = 0; i < w.count; i++) {
      slice.data = x->data + from_zero(row[i * w.stride[0]], x->shape[0]) * x_step;
      entry.data = w.data[1] + i * w.stride[1] * bytes;
      if (!heed__copy_elements(&slice, &entry)) return false;
    }
  }
  return true;
}

/* The shape to be written: that of index, then that of x without its first size. */
static heed_status check_assign(heed_context *ctx, const char *function, const heed_tensor *x,
                                const heed_tensor *index, int *ndim, int64_t *shape) {
  heed_status status = heed__check_dtype(ctx, function, "index", index, HEED_INT64);
  if (status != HEED_OK) return status;
  if (x->ndim == 0)
    return heed__fail(ctx, HEED_SHAPE, "%s: x has no dimensions; it must have at least 1", function);
  if (index->ndim + x->ndim - 1 > HEED_MAX_DIMS)
    return heed__fail(ctx, HEED_SHAPE, "%s: the selection has %d dimensions; it must have at most %d",
                      function, index->ndim + x->ndim - 1, HEED_MAX_DIMS);
  status = heed__check_writable(ctx, function, x);
  if (status != HEED_OK) return status;
  *ndim = 0;
  for (int i = 0; i < index->ndim; i++) shape[(*ndim)++] = index->shape[i];
  for (int i = 1; i < x->ndim; i++) shape[(*ndim)++] = x->shape[i];
  return check_indices(ctx, function, index, 0, x->shape[0]);
}

heed_status heed__index_assign(heed_context *ctx, const char *function, heed_tensor *x,
                               const heed_tensor *index, const heed_tensor *value) {
  heed_tensor *index_copy = NULL, *value_copy = NULL, list;
  int ndim = 0;
  int64_t shape[HEED_MAX_DIMS];
  heed_status status = check_assign(ctx, function, x, index, &ndim, shape);
  if (status != HEED_OK) goto done;
  status = heed__check_expands(ctx, function, "value", value, ndim, shape);
  if (status != HEED_OK) goto done;
  status = heed__copy_if_overlapping(ctx, function, x, &index, &index_copy);
  if (status != HEED_OK) goto done;
  status = heed__copy_if_overlapping(ctx, function, x, &value, &value_copy);
  if (status != HEED_OK) goto done;
  heed__expand_on_stack(&list, value, ndim, shape);
  if (!assign_slices(x, index, &list)) status = heed__stopped(ctx, function);
done:
  heed_tensor_free(index_copy);
  heed_tensor_free(value_copy);
  return status;
}

heed_status heed_index_assign(heed_context *ctx, heed_tensor *x, const heed_tensor *index,
                              const heed_tensor *value) {
  HEED__ENTER(ctx, "index_assign", x, index, value);
  return heed__index_assign(ctx, "index_assign", x, index, value);
}
