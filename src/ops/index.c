/* Elements and slices selected by index. All indices are checked before anything is written. */
#include <math.h>
#include <string.h>

#include "ops.h"

static bool is_in_range(int64_t index, int64_t size) {
  return index > 0 ? index <= size : index < 0 && index >= -size;
}

/* Adds to the message of the error `status` which element of `argument` caused it. */
static heed_status fail_element(heed_context *ctx, heed_status status, const char *argument,
                                const heed_tensor *x, int64_t number) {
  char message[HEED__MESSAGE], element[HEED__SHAPE_TEXT];
  if (x->ndim == 0) return status;
  memcpy(message, ctx->message, sizeof message);
  return heed__fail(ctx, status, "%s (element %s of %s)", message, heed__element_text(element, x, number),
                    argument);
}

heed_status heed__check_indices(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *index, int dim, int64_t size) {
  heed__walk w;
  int64_t done = 0;
  const heed_status charged = heed__charge(ctx, function, (double)index->numel);
  if (charged != HEED_OK) return charged;
  for (bool more = heed__walk_begin(&w, index->ndim, index->shape, 1, &index); more;
       more = heed__walk_next(&w)) {
    const int64_t *row = (const int64_t *)w.data[0];
    for (int64_t i = 0; i < w.count; i++, done++) {
      const int64_t number = row[i * w.stride[0]];
      heed_status status = HEED_OK;
      if (!is_in_range(number, size)) { /* calling heed__check_index costs more than selecting */
        int64_t unused;
        status = heed__check_index(ctx, function, number, dim, size, &unused);
        return fail_element(ctx, status, argument, index, done);
      }
      if (heed__is_due_at(&ctx->pace, done)) status = heed__stopped(ctx, function);
      if (status != HEED_OK) return status;
    }
  }
  return HEED_OK;
}

heed_status heed__as_indices(heed_context *ctx, const char *function, const char *argument,
                             const heed_tensor *x, heed_tensor **out) {
  heed__walk w;
  int64_t done = 0;
  if (x->dtype == HEED_INT64) return heed__tensor_from_view(ctx, function, x, out);
  if (x->dtype != HEED_FLOAT32)
    return heed__fail(ctx, HEED_DTYPE, "%s: %s is %s; it must be int64, or float32 with whole values",
                      function, argument, heed_dtype_name(x->dtype));
  const heed_status charged = heed__charge(ctx, function, (double)x->numel);
  if (charged != HEED_OK) return charged;
  for (bool more = heed__walk_begin(&w, x->ndim, x->shape, 1, &x); more; more = heed__walk_next(&w)) {
    const float *row = (const float *)(const void *)w.data[0];
    for (int64_t i = 0; i < w.count; i++, done++) {
      const float number = row[i * w.stride[0]];
      if (!(fabsf(number) < 0x1p62f && truncf(number) == number)) {
        const heed_status status =
            heed__fail(ctx, HEED_DTYPE,
                       "%s: %s contains %s; it must have whole numbers: convert with x:long(), which "
                       "drops fractions",
                       function, argument, HEED__G((double)number));
        return fail_element(ctx, status, argument, x, done);
      }
      if (!heed__is_due_at(&ctx->pace, done)) continue;
      const heed_status status = heed__stopped(ctx, function);
      if (status != HEED_OK) return status;
    }
  }
  return heed__to(ctx, function, x, HEED_INT64, out);
}

/* Moves view, an alias of x whose size of dimension dim is 1, to slice i (from 0) of x. */
static void move_to(heed_tensor *view, const heed_tensor *x, int dim, int64_t i) {
  view->data = x->data + i * x->stride[dim] * (ptrdiff_t)heed__element_bytes(x->dtype);
}

static void alias_slice(heed_tensor *view, const heed_tensor *x, int dim) {
  heed__alias_on_stack(view, x);
  view->shape[dim] = 1;
}

/* bytes: of an element; plain: the row is selected from a contiguous row into one. Both are constants where
 * this is inlined: variable strides cost as much as the selecting. */
static inline __attribute__((always_inline)) void pick_row(const heed__walk *w, heed__lane lane,
                                                           int64_t first, int64_t last, const size_t bytes,
                                                           const bool plain) {
  const ptrdiff_t to = plain ? (ptrdiff_t)bytes : w->stride[0] * (ptrdiff_t)bytes;
  const ptrdiff_t from = plain ? 0 : w->stride[2] * (ptrdiff_t)bytes, next = plain ? 1 : w->stride[1];
  const ptrdiff_t step = plain ? (ptrdiff_t)bytes : lane.step;
  const int64_t *index = (const int64_t *)w->data[1], size = lane.size;
  char *out = w->data[0];
  const char *heads = w->data[2];
  for (int64_t i = first; i < last; i++)
    memcpy(out + i * to, heads + i * from + heed__from_zero(index[i * next], size) * step, bytes);
}

static inline __attribute__((always_inline)) void pick_some(const heed__walk *w, heed__lane lane,
                                                            int64_t first, int64_t last, const size_t bytes) {
  const ptrdiff_t *stride = w->stride;
  if (stride[0] == 1 && stride[1] == 1 && stride[2] == 0 && lane.step == (ptrdiff_t)bytes)
    pick_row(w, lane, first, last, bytes, true);
  else
    pick_row(w, lane, first, last, bytes, false);
}

bool heed__pick(const heed_tensor *out, const heed_tensor *indices, const heed_tensor *heads,
                heed__lane lane) {
  enum { PICK_PIECE = 1 << 14 }; /* elements between cancellation checks */
  const size_t bytes = heed__element_bytes(out->dtype);
  const heed_tensor *operands[] = {out, indices, heads};
  int64_t done = 0;
  heed__walk w;
  for (bool more = heed__walk_begin(&w, out->ndim, out->shape, 3, operands); more;
       more = heed__walk_next(&w)) {
    for (int64_t first = 0; first < w.count; first += PICK_PIECE) {
      const int64_t last = heed__min(w.count, first + PICK_PIECE);
      const int64_t at = heed__from_zero(*(const int64_t *)w.data[1], lane.size);
      if (w.stride[1] == 0) /* one index for the whole row */
        heed__copy_row(out->dtype, w.data[0] + first * w.stride[0] * (ptrdiff_t)bytes, w.stride[0],
                       out->dtype, w.data[2] + at * lane.step + first * w.stride[2] * (ptrdiff_t)bytes,
                       w.stride[2], last - first);
      else if (bytes == 8)
        pick_some(&w, lane, first, last, 8);
      else if (bytes == 4)
        pick_some(&w, lane, first, last, 4);
      else if (bytes == 2)
        pick_some(&w, lane, first, last, 2);
      else
        pick_some(&w, lane, first, last, 1);
      if ((done += last - first) < PICK_PIECE) continue;
      if (heed__is_due(&out->storage->context->pace)) return false;
      done = 0;
    }
  }
  return true;
}

void heed__lane_heads(const heed_tensor *x, int dim, int ndim, const int64_t *shape, const heed_tensor *index,
                      heed_tensor *heads, heed_tensor *indices, heed__lane *lane) {
  heed__alias_on_stack(heads, x);
  heed__alias_on_stack(indices, index);
  heads->ndim = indices->ndim = ndim;
  for (int i = 0; i < ndim; i++) {
    heads->shape[i] = i == dim ? 1 : shape[i];
    heads->stride[i] = x->ndim == 0 ? 0 : x->stride[i];
    if (index->ndim >= ndim) continue;
    indices->shape[i] = i == dim ? shape[i] : 1;
    indices->stride[i] = i == dim && index->ndim > 0 ? index->stride[0] : 0;
  }
  lane->size = x->ndim > 0 ? x->shape[dim] : 1;
  lane->step = x->ndim > 0 ? x->stride[dim] * (ptrdiff_t)heed__element_bytes(x->dtype) : 0;
}

/* out = x at the indices of dimension dim that `index` contains, element by element; see heed__lane_heads.
 * False if a cancellation check stops it. */
static bool pick_elements(const heed_tensor *out, const heed_tensor *x, int dim, const heed_tensor *index) {
  heed_tensor heads, indices;
  heed__lane lane;
  heed__lane_heads(x, dim, out->ndim, out->shape, index, &heads, &indices, &lane);
  return heed__pick(out, &indices, &heads, lane);
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
    move_to(&from, x, dim, heed__from_zero(indices[i * step], x->shape[dim]));
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
  status = heed__check_indices(ctx, function, "index", index, d, x->ndim > 0 ? x->shape[d] : 1);
  if (status != HEED_OK) return status;
  for (int i = 0; i < x->ndim; i++) shape[i] = i == d ? index->numel : x->shape[i];
  status = heed__result_begin(ctx, function, &result, out, x->dtype, x->ndim, shape, false, 2, inputs);
  if (status != HEED_OK) return status;
  const bool done =
      x->ndim > 0 ? copy_slices(result.tensor, x, d, index) : heed__copy_elements(result.tensor, x);
  status = heed__result_end(ctx, &result, done ? HEED_OK : heed__stopped(ctx, function));
  const heed__view_values v = {.order = {d}};
  return heed__recorded(ctx, status, HEED__OP_index_select, 2, inputs, &v, sizeof v, out);
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
  return heed__check_indices(ctx, "gather", "index", index, dim, x->ndim > 0 ? x->shape[dim] : 1);
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
  const heed__view_values v = {.order = {d}};
  return heed__recorded(ctx, heed__result_end(ctx, &result, status), HEED__OP_gather, 2, inputs, &v, sizeof v,
                        out);
}
