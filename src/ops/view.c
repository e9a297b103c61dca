/* Views: other headers on the same elements. Each function fills in a header on the stack and returns a
 * counted copy of it. Messages count dimensions from 1. */
#include "ops.h"

#include <inttypes.h>

/* The counted copy of a view of x, recorded as op. */
static heed_status give_as(heed_context *ctx, const char *function, heed__op op, const heed_tensor *x,
                           const heed_tensor *view, const heed__view_values *values, heed_tensor **out) {
  const int last = view->ndim - 1;
  if (heed__is_blocked(x->dtype) &&
      (last < 0 || view->stride[last] != 1 || view->shape[last] != x->shape[x->ndim - 1]))
    return heed__refuse_tensor(ctx, function, "x", x); /* blocks lie along the last dimension */
  const heed_status status = heed__tensor_from_view(ctx, function, view, out);
  return heed__recorded1(ctx, status, op, x, values, values != NULL ? sizeof *values : 0, out);
}

static void remove_dim(heed_tensor *view, int dim) {
  view->ndim--;
  for (int d = dim; d < view->ndim; d++) {
    view->shape[d] = view->shape[d + 1];
    view->stride[d] = view->stride[d + 1];
  }
}

/* ---- Other shapes for the same elements ---- */

/* `shape` with the value of its -1, if it has one, in `sizes`. */
static heed_status infer_size(heed_context *ctx, const char *function, const heed_tensor *x, int ndim,
                              const int64_t *shape, int64_t sizes[HEED_MAX_DIMS]) {
  char have[HEED__SHAPE_TEXT], want[HEED__SHAPE_TEXT];
  int open = -1;
  heed_status status = heed__check_list(ctx, function, "shape", ndim, shape);
  if (status) return status;
  for (int d = 0; d < ndim; d++) {
    sizes[d] = shape[d];
    if (shape[d] != -1) continue;
    if (open >= 0)
      return heed__fail(ctx, HEED_SHAPE, "%s: shape is %s; it must have at most one size of -1", function,
                        heed__shape_text(want, ndim, shape));
    open = d;
    sizes[d] = 1;
  }
  int64_t numel;
  status = heed__check_shape(ctx, function, ndim, sizes, x->dtype, &numel);
  if (status) return status;
  if (open >= 0 && numel == 0)
    return heed__fail(ctx, HEED_SHAPE, "%s: shape is %s; it must not have both -1 and a size of 0", function,
                      heed__shape_text(want, ndim, shape));
  if (open >= 0 && x->numel % numel == 0) {
    sizes[open] = x->numel / numel;
  } else if (open >= 0) {
    return heed__fail(ctx, HEED_SHAPE,
                      "%s: x is %s with %" PRId64
                      " element%s; for the shape %s their number must be a multiple of %" PRId64,
                      function, heed__shape_text(have, x->ndim, x->shape), x->numel, HEED__S(x->numel),
                      heed__shape_text(want, ndim, shape), numel);
  } else if (numel != x->numel) {
    return heed__fail(ctx, HEED_SHAPE,
                      "%s: x is %s with %" PRId64 " element%s and the shape %s has %" PRId64
                      "; the numbers must be equal",
                      function, heed__shape_text(have, x->ndim, x->shape), x->numel, HEED__S(x->numel),
                      heed__shape_text(want, ndim, shape), numel);
  }
  return HEED_OK;
}

/* x as `shape`, which has the same number of elements; false if the strides of x do not allow it. */
static bool reshaped(heed_tensor *view, const heed_tensor *x, int ndim, const int64_t *shape) {
  heed__alias_on_stack(view, x);
  view->ndim = ndim;
  for (int d = 0; d < ndim; d++) view->shape[d] = shape[d];
  return heed__view_strides(x, ndim, shape, view->stride);
}

heed_status heed_view(heed_context *ctx, const heed_tensor *x, int ndim, const int64_t *shape,
                      heed_tensor **out) {
  HEED__ENTER(ctx, "view", x, out);
  heed_tensor view;
  int64_t sizes[HEED_MAX_DIMS];
  const heed_status status = infer_size(ctx, "view", x, ndim, shape, sizes);
  if (status) return status;
  if (!reshaped(&view, x, ndim, sizes)) {
    char have[HEED__SHAPE_TEXT], stride[HEED__SHAPE_TEXT], want[HEED__SHAPE_TEXT];
    return heed__fail(
        ctx, HEED_SHAPE,
        "%s: x is %s with strides %s, which cannot be read as %s without a copy; use reshape, which copies",
        "view", heed__shape_text(have, x->ndim, x->shape), heed__shape_text(stride, x->ndim, x->stride),
        heed__shape_text(want, ndim, sizes));
  }
  return give_as(ctx, "view", HEED__OP_view, x, &view, NULL, out);
}

/* A view of x with these sizes, or of a copy if its strides do not allow that. */
static heed_status reshape(heed_context *ctx, const char *function, heed__op op, const heed_tensor *x,
                           int ndim, const int64_t *shape, heed_tensor **out) {
  heed_tensor view, *made = NULL;
  heed_status status = HEED_OK;
  if (!reshaped(&view, x, ndim, shape)) {
    const heed__recorder *recorder = heed__pause_recording(ctx); /* the copy is a part of this operation */
    status = heed__clone(ctx, function, x, &made);
    heed__resume_recording(ctx, recorder);
    if (status) goto done;
    reshaped(&view, made, ndim, shape);
  }
  const heed__view_values values = {.size = made != NULL};
  status = give_as(ctx, function, op, x, &view, &values, out);
done:
  heed_tensor_free(made);
  return status;
}

heed_status heed__reshape(heed_context *ctx, const char *function, const heed_tensor *x, int ndim,
                          const int64_t *shape, heed_tensor **out) {
  int64_t sizes[HEED_MAX_DIMS];
  const heed_status status = infer_size(ctx, function, x, ndim, shape, sizes);
  if (status) return status;
  return reshape(ctx, function, HEED__OP_reshape, x, ndim, sizes, out);
}

heed_status heed_reshape(heed_context *ctx, const heed_tensor *x, int ndim, const int64_t *shape,
                         heed_tensor **out) {
  HEED__ENTER(ctx, "reshape", x, out);
  return heed__reshape(ctx, "reshape", x, ndim, shape, out);
}

heed_status heed_flatten(heed_context *ctx, const heed_tensor *x, int first, int last, heed_tensor **out) {
  HEED__ENTER(ctx, "flatten", x, out);
  int from, to, ndim = 0;
  int64_t sizes[HEED_MAX_DIMS];
  heed_status status = heed__check_dim(ctx, "flatten", x->ndim, first, &from);
  if (status == HEED_OK) status = heed__check_dim(ctx, "flatten", x->ndim, last, &to);
  if (status) return status;
  if (from > to)
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "flatten: the first dimension is %d and the last is %d; the first must not be behind the last",
        from + 1, to + 1);
  if (from == to && x->ndim > 0 && *out == NULL) /* x itself, as in PyTorch: nothing is recorded */
    return heed__tensor_from_view(ctx, "flatten", x, out);
  sizes[ndim++] = 1; /* the result for a tensor without dimensions */
  for (int d = 0; d < x->ndim; d++) {
    if (d > from && d <= to) {
      sizes[ndim - 1] *= x->shape[d];
    } else {
      if (d > 0) ndim++;
      sizes[ndim - 1] = x->shape[d];
    }
  }
  return reshape(ctx, "flatten", HEED__OP_flatten, x, ndim, sizes, out);
}

heed_status heed_unsqueeze(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out) {
  HEED__ENTER(ctx, "unsqueeze", x, out);
  heed_tensor view;
  int at;
  const heed_status status = heed__check_new_dim(ctx, "unsqueeze", x->ndim, dim, &at);
  if (status) return status;
  heed__alias_on_stack(&view, x);
  for (int d = view.ndim++; d > at; d--) {
    view.shape[d] = view.shape[d - 1];
    view.stride[d] = view.stride[d - 1];
  }
  view.stride[at] = at + 1 < view.ndim ? view.shape[at + 1] * view.stride[at + 1] : 1;
  view.shape[at] = 1;
  return give_as(ctx, "unsqueeze", HEED__OP_unsqueeze, x, &view, NULL, out);
}

heed_status heed_squeeze(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims,
                         heed_tensor **out) {
  HEED__ENTER(ctx, "squeeze", x, out);
  heed_tensor view;
  uint32_t named;
  const heed_status status = heed__check_dims(ctx, "squeeze", x->ndim, ndims, dims, &named);
  if (status) return status;
  heed__alias_on_stack(&view, x);
  for (int d = view.ndim - 1; d >= 0; d--) {
    if (view.shape[d] == 1 && (ndims == 0 || named >> d & 1)) remove_dim(&view, d);
  }
  const heed__view_values values = {.size = ndims};
  return give_as(ctx, "squeeze", HEED__OP_squeeze, x, &view, &values, out);
}

/* ---- Other orders ---- */

heed_status heed__transpose(heed_context *ctx, const char *function, const heed_tensor *x, int dim1, int dim2,
                            heed_tensor **out) {
  heed_tensor view;
  int a, b;
  heed_status status = heed__check_dim(ctx, function, x->ndim, dim1, &a);
  if (status == HEED_OK) status = heed__check_dim(ctx, function, x->ndim, dim2, &b);
  if (status) return status;
  heed__alias_on_stack(&view, x);
  if (x->ndim > 0) {
    view.shape[a] = x->shape[b];
    view.stride[a] = x->stride[b];
    view.shape[b] = x->shape[a];
    view.stride[b] = x->stride[a];
  }
  const heed__view_values values = {.order = {a, b}};
  return give_as(ctx, function, HEED__OP_transpose, x, &view, &values, out);
}

heed_status heed__t(heed_context *ctx, const char *function, const heed_tensor *x, heed_tensor **out) {
  heed_tensor view;
  if (x->ndim < 2) return heed__tensor_from_view(ctx, function, x, out);
  heed__permute_on_stack(&view, x, (const int[]){1, 0});
  return give_as(ctx, function, HEED__OP_t, x, &view, NULL, out);
}

heed_status heed_transpose(heed_context *ctx, const heed_tensor *x, int dim1, int dim2, heed_tensor **out) {
  HEED__ENTER(ctx, "transpose", x, out);
  return heed__transpose(ctx, "transpose", x, dim1, dim2, out);
}

heed_status heed__permute(heed_context *ctx, const char *function, const heed_tensor *x, int ndim,
                          const int *dims, heed_tensor **out) {
  heed_tensor view;
  bool named[HEED_MAX_DIMS] = {false};
  heed__view_values values = {.order = {0}};
  heed_status status = heed__check_list(ctx, function, "dims", ndim, dims);
  if (status) return status;
  if (ndim != x->ndim)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: %d dim%s given and x has %d dimension%s; each must be named once", function, ndim,
                      ndim == 1 ? " is" : "s are", x->ndim, HEED__S(x->ndim));
  heed__alias_on_stack(&view, x);
  for (int d = 0; d < ndim; d++) {
    int from;
    status = heed__check_dim(ctx, function, ndim, dims[d], &from);
    if (status) return status;
    if (named[from])
      return heed__fail(ctx, HEED_ARGUMENT, "%s: dimension %d is named twice; each must be named once",
                        function, from + 1);
    named[from] = true;
    values.order[d] = from;
    view.shape[d] = x->shape[from];
    view.stride[d] = x->stride[from];
  }
  return give_as(ctx, function, HEED__OP_permute, x, &view, &values, out);
}

heed_status heed_permute(heed_context *ctx, const heed_tensor *x, int ndim, const int *dims,
                         heed_tensor **out) {
  HEED__ENTER(ctx, "permute", x, out);
  return heed__permute(ctx, "permute", x, ndim, dims, out);
}

/* ---- More and fewer elements ---- */

heed_status heed_expand(heed_context *ctx, const heed_tensor *x, int ndim, const int64_t *shape,
                        heed_tensor **out) {
  HEED__ENTER(ctx, "expand", x, out);
  heed_tensor view;
  int64_t sizes[HEED_MAX_DIMS];
  heed_status status = heed__check_list(ctx, "expand", "shape", ndim, shape);
  if (status) return status;
  const int added = ndim - x->ndim;
  for (int d = 0; d < ndim; d++)
    sizes[d] = shape[d] == -1 && d >= added && added >= 0 ? x->shape[d - added] : shape[d];
  status = heed__check_shape(ctx, "expand", ndim, sizes, x->dtype, NULL);
  if (status == HEED_OK) status = heed__check_expands(ctx, "expand", "x", x, ndim, sizes);
  if (status) return status;
  heed__expand_on_stack(&view, x, ndim, sizes);
  return give_as(ctx, "expand", HEED__OP_expand, x, &view, NULL, out);
}

/* Reduces dimension d of the view to `count` elements, `step` apart, from `start` (from 0) on. */
static void restrict_to(heed_tensor *view, int d, int64_t start, int64_t count, int64_t step) {
  heed__narrow_on_stack(view, d, start, count);
  if (count > 1) view->stride[d] *= step;
}

/* A dimension of x, which must have dimensions. */
static heed_status check_own_dim(heed_context *ctx, const char *function, const heed_tensor *x, int dim,
                                 int *out) {
  if (x->ndim == 0)
    return heed__fail(ctx, HEED_SHAPE, "%s: x has no dimensions; it must have at least 1", function);
  const heed_status status = heed__check_dim(ctx, function, x->ndim, dim, out);
  if (status != HEED_OK || !heed__is_blocked(x->dtype) || *out < x->ndim - 1) return status;
  return heed__fail(ctx, HEED_DTYPE,
                    "%s: dim is %d and x is %s; its last dimension cannot be divided: convert with x:float()",
                    function, *out + 1, heed_dtype_name(x->dtype));
}

heed_status heed_select(heed_context *ctx, const heed_tensor *x, int dim, int64_t index, heed_tensor **out) {
  HEED__ENTER(ctx, "select", out);
  HEED__ENTER_BLOCKED(ctx, "select", x);
  heed_tensor view;
  int d;
  int64_t at;
  heed_status status = check_own_dim(ctx, "select", x, dim, &d);
  if (status == HEED_OK) status = heed__check_index(ctx, "select", index, d, x->shape[d], &at);
  if (status) return status;
  heed__alias_on_stack(&view, x);
  restrict_to(&view, d, at, 1, 1);
  remove_dim(&view, d);
  const heed__view_values values = {.order = {d}, .first = at, .step = 1, .size = 1};
  return give_as(ctx, "select", HEED__OP_select, x, &view, &values, out);
}

heed_status heed__narrow(heed_context *ctx, const char *function, const heed_tensor *x, int dim,
                         int64_t start, int64_t length, heed_tensor **out) {
  heed_tensor view;
  int d;
  const heed_status status = check_own_dim(ctx, function, x, dim, &d);
  if (status) return status;
  const int64_t size = x->shape[d], from = start < 0 && start >= -size ? start + size
                                           : start > 0                 ? start - 1
                                                                       : -1;
  if (from < 0 || from > size || length < 0 || length > size - from)
    return heed__fail(ctx, HEED_INDEX,
                      "%s: start %" PRId64 " and length %" PRId64 " do not fit dimension %d of size %" PRId64
                      "; there must be length elements from start (from 1) on",
                      function, start, length, d + 1, size);
  heed__alias_on_stack(&view, x);
  restrict_to(&view, d, from, length, 1);
  const heed__view_values values = {.order = {d}, .first = from, .step = 1, .size = length};
  return give_as(ctx, function, HEED__OP_narrow, x, &view, &values, out);
}

heed_status heed_narrow(heed_context *ctx, const heed_tensor *x, int dim, int64_t start, int64_t length,
                        heed_tensor **out) {
  HEED__ENTER(ctx, "narrow", out);
  HEED__ENTER_BLOCKED(ctx, "narrow", x);
  return heed__narrow(ctx, "narrow", x, dim, start, length, out);
}

heed_status heed__check_slice(heed_context *ctx, const char *function, int64_t first, int64_t last,
                              int64_t step, int dim, int64_t size, int64_t *start, int64_t *count) {
  if (step < 1)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: the step of a slice is %" PRId64 "; it must be 1 or more",
                      function, step);
  const int64_t from = first < 0 && first >= -size ? first + size + 1 : first;
  const int64_t to = last < 0 && last >= -size ? last + size + 1 : last;
  if (from < 1 || to > size || to < from - 1)
    return heed__fail(ctx, HEED_INDEX,
                      "%s: the slice {%" PRId64 ", %" PRId64 "} does not fit dimension %d of size %" PRId64
                      "; it must be within the dimension (both ends are included; {i, i - 1} is empty)",
                      function, first, last, dim + 1, size);
  *start = from - 1;
  *count = to < from ? 0 : (to - from) / step + 1;
  return HEED_OK;
}

heed_status heed_slice(heed_context *ctx, const heed_tensor *x, int dim, int64_t first, int64_t last,
                       int64_t step, heed_tensor **out) {
  HEED__ENTER(ctx, "slice", out);
  HEED__ENTER_BLOCKED(ctx, "slice", x);
  heed_tensor view;
  int d;
  int64_t start = 0, count = 0;
  heed_status status = check_own_dim(ctx, "slice", x, dim, &d);
  if (status == HEED_OK)
    status = heed__check_slice(ctx, "slice", first, last, step, d, x->shape[d], &start, &count);
  if (status) return status;
  heed__alias_on_stack(&view, x);
  restrict_to(&view, d, start, count, step);
  const heed__view_values values = {.order = {d}, .first = start, .step = step, .size = count};
  return give_as(ctx, "slice", HEED__OP_slice, x, &view, &values, out);
}

heed_status heed_diagonal(heed_context *ctx, const heed_tensor *x, int64_t offset, int dim1, int dim2,
                          heed_tensor **out) {
  HEED__ENTER(ctx, "diagonal", x, out);
  heed_tensor view;
  int a, b;
  if (x->ndim < 2) {
    char have[HEED__SHAPE_TEXT];
    return heed__fail(ctx, HEED_SHAPE, "diagonal: x is %s; it must have at least 2 dimensions",
                      heed__shape_text(have, x->ndim, x->shape));
  }
  heed_status status = heed__check_dim(ctx, "diagonal", x->ndim, dim1, &a);
  if (status == HEED_OK) status = heed__check_dim(ctx, "diagonal", x->ndim, dim2, &b);
  if (status) return status;
  if (a == b)
    return heed__fail(ctx, HEED_ARGUMENT, "diagonal: dim1 and dim2 are both %d; they must differ", a + 1);
  const int64_t rows = x->shape[a], columns = x->shape[b], stride = x->stride[a] + x->stride[b];
  const int64_t right = offset > 0 ? heed__min(offset, columns) : 0; /* where the diagonal begins */
  const int64_t down = offset < 0 ? (offset > -rows ? -offset : rows) : 0;
  const int64_t count = heed__min(rows - down, columns - right);
  heed__alias_on_stack(&view, x);
  heed__narrow_on_stack(&view, a, down, count);
  heed__narrow_on_stack(&view, b, right, count);
  remove_dim(&view, a > b ? a : b);
  remove_dim(&view, a > b ? b : a);
  view.shape[view.ndim] = count;
  view.stride[view.ndim++] = stride;
  view.numel = heed__numel(view.ndim, view.shape, 1);
  const heed__view_values values = {.order = {a, b}, .first = offset};
  return give_as(ctx, "diagonal", HEED__OP_diagonal, x, &view, &values, out);
}

heed_status heed_unfold(heed_context *ctx, const heed_tensor *x, int dim, int64_t size, int64_t step,
                        heed_tensor **out) {
  HEED__ENTER(ctx, "unfold", x, out);
  heed_tensor view;
  int d;
  heed_status status = check_own_dim(ctx, "unfold", x, dim, &d);
  if (status) return status;
  if (size < 0 || size > x->shape[d])
    return heed__fail(ctx, HEED_ARGUMENT,
                      "unfold: size is %" PRId64 "; it must be from 0 to %" PRId64
                      ", the size of dimension %d",
                      size, x->shape[d], d + 1);
  if (step < 1)
    return heed__fail(ctx, HEED_ARGUMENT, "unfold: step is %" PRId64 "; it must be at least 1", step);
  if (x->ndim == HEED_MAX_DIMS)
    return heed__fail(ctx, HEED_SHAPE, "unfold: x has %d dimensions; it must have at most %d", x->ndim,
                      HEED_MAX_DIMS - 1);
  heed__alias_on_stack(&view, x);
  view.shape[view.ndim] = size;
  view.stride[view.ndim++] = x->stride[d];
  view.shape[d] = (x->shape[d] - size) / step + 1;
  if (view.shape[d] > 1) view.stride[d] *= step;
  status = heed__check_shape(ctx, "unfold", view.ndim, view.shape, x->dtype, &view.numel);
  if (status) return status;
  const heed__view_values values = {.order = {d}, .step = step, .size = size};
  return give_as(ctx, "unfold", HEED__OP_unfold, x, &view, &values, out);
}

heed_status heed_tensor_detach(heed_context *ctx, const heed_tensor *x, heed_tensor **out) {
  HEED__ENTER(ctx, "detach", out);
  HEED__ENTER_BLOCKED(ctx, "detach", x);
  heed_tensor view;
  heed__alias_on_stack(&view, x);
  view.detached = true;
  return heed__tensor_from_view(ctx, "detach", &view, out);
}
