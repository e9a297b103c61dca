/* Gradients of views and of what moves elements. */
#include "grad.h"

/* ---- The same elements in other shapes ---- */

static heed_status in_shape_of_input(heed__backward *b) {
  const heed__saved *x = &b->node->saved[0];
  return heed__reshape(b->ctx, b->function, b->dy[0], x->ndim, x->dims, &b->dx[0]);
}

heed_status heed__view_backward(heed__backward *b) {
  return in_shape_of_input(b);
}
heed_status heed__reshape_backward(heed__backward *b) {
  return in_shape_of_input(b);
}
heed_status heed__flatten_backward(heed__backward *b) {
  return in_shape_of_input(b);
}
heed_status heed__unsqueeze_backward(heed__backward *b) {
  return in_shape_of_input(b);
}
heed_status heed__squeeze_backward(heed__backward *b) {
  return in_shape_of_input(b);
}

/* What broadcasting repeats is summed by the tape. */
heed_status heed__expand_backward(heed__backward *b) {
  return heed__backward_same(b, 0);
}
heed_status heed__clone_backward(heed__backward *b) {
  return heed__backward_same(b, 0);
}
heed_status heed__contiguous_backward(heed__backward *b) {
  return heed__backward_same(b, 0);
}

/* ---- Other orders ---- */

heed_status heed__transpose_backward(heed__backward *b) {
  const heed__view_values *values = b->values;
  return heed__transpose(b->ctx, b->function, b->dy[0], values->order[0] + 1, values->order[1] + 1,
                         &b->dx[0]);
}

heed_status heed__permute_backward(heed__backward *b) {
  const heed__view_values *values = b->values;
  const int ndim = b->node->saved[0].ndim;
  int back[HEED_MAX_DIMS] = {0};
  for (int d = 0; d < ndim; d++) back[values->order[d]] = d;
  heed_tensor view;
  heed__permute_on_stack(&view, b->dy[0], back);
  return heed__tensor_from_view(b->ctx, b->function, &view, &b->dx[0]);
}

/* ---- Some of the elements: the others get 0 ---- */

/* Zeros in the shape of the input. */
static heed_status zeros_of_input(heed__backward *b, heed_tensor **out) {
  const heed__saved *x = &b->node->saved[0];
  return heed__full(b->ctx, b->function, HEED_FLOAT32, x->ndim, x->dims, heed_number(0), out);
}

/* dx = zeros, and dy in the part that `view` makes of them; takes the view over. */
static heed_status place_in(heed__backward *b, heed_status status, heed_tensor *zeros, heed_tensor *view) {
  if (status == HEED_OK) status = heed__copy(b->ctx, b->function, view, b->dy[0]);
  heed_tensor_free(view);
  if (status == HEED_OK)
    b->dx[0] = zeros;
  else
    heed_tensor_free(zeros);
  return status;
}

heed_status heed__select_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_tensor *zeros = NULL, *view = NULL;
  heed_status status = zeros_of_input(b, &zeros);
  if (status == HEED_OK) status = heed_select(b->ctx, zeros, v->order[0] + 1, v->first + 1, &view);
  return place_in(b, status, zeros, view);
}

static heed_status place_slice(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_tensor *zeros = NULL, *view = NULL;
  heed_status status = zeros_of_input(b, &zeros);
  const int64_t last = v->first + (v->size - 1) * v->step + 1;
  if (status == HEED_OK && v->size > 0)
    status = heed_slice(b->ctx, zeros, v->order[0] + 1, v->first + 1, last, v->step, &view);
  if (status == HEED_OK && v->size == 0) { /* nothing was taken */
    b->dx[0] = zeros;
    return HEED_OK;
  }
  return place_in(b, status, zeros, view);
}

/* ---- Elements of any strides ---- */

/* Memory that is laid out like x, of zeros: *out with the strides of x. Some elements between those of x may
 * be unused. x of which elements share memory is read as if each had its own: *out is then NULL. */
static heed_status zeros_laid_out(heed__backward *b, heed_tensor **out) {
  const heed__saved *x = &b->node->saved[0];
  heed_tensor header, view, *buffer = NULL;
  int64_t extent = 1;
  heed__header_on_stack(&header, HEED_FLOAT32, NULL, x->ndim, x->dims);
  for (int d = 0; d < x->ndim; d++) header.stride[d] = x->dims[x->ndim + d];
  if (header.numel == 0 || heed__overlaps_itself(&header)) return zeros_of_input(b, out);
  for (int d = 0; d < x->ndim; d++) extent += (x->dims[d] - 1) * header.stride[d];
  heed_status status = heed__full(b->ctx, b->function, HEED_FLOAT32, 1, &extent, heed_number(0), &buffer);
  if (status != HEED_OK) return status;
  heed__alias_on_stack(&view, buffer);
  view.ndim = x->ndim;
  view.numel = header.numel;
  for (int d = 0; d < x->ndim; d++) view.shape[d] = header.shape[d], view.stride[d] = header.stride[d];
  status = heed__tensor_from_view(b->ctx, b->function, &view, out);
  heed_tensor_free(buffer);
  return status;
}

/* The part of x, laid out like the input, that the view has. */
static void view_part(heed_tensor *view, const heed_tensor *x, const heed__strided_values *v) {
  heed__alias_on_stack(view, x);
  view->ndim = v->ndim;
  for (int d = 0; d < v->ndim; d++) view->shape[d] = v->shape[d], view->stride[d] = v->stride[d];
  view->numel = heed__numel(v->ndim, v->shape, 1);
  if (view->numel > 0) view->data += v->offset * (ptrdiff_t)sizeof(float);
}

static heed_status strided_backward(heed__backward *b) {
  heed_tensor *dx = NULL, view;
  heed_status status = zeros_laid_out(b, &dx);
  if (status == HEED_OK) {
    view_part(&view, dx, b->values);
    status = heed__copy(b->ctx, b->function, &view, b->dy[0]);
  }
  if (status == HEED_OK) {
    b->dx[0] = dx;
    dx = NULL;
  }
  heed_tensor_free(dx);
  return status;
}

/* Of x[…] = value: what was overwritten gets 0, and value what its elements get. */
static heed_status assignment_backward(heed__backward *b) {
  const heed__strided_values *v = b->values;
  heed_tensor *dx = NULL, view;
  heed_status status = zeros_laid_out(b, &dx);
  if (status == HEED_OK) status = heed__copy(b->ctx, b->function, dx, b->dy[0]);
  if (status == HEED_OK) view_part(&view, dx, v);
  if (status == HEED_OK && heed__backward_wants(b, 1)) {
    const heed__saved *value = &b->node->saved[1];
    heed_tensor *taken = NULL, *sum = NULL;
    int skipped = 0; /* leading sizes of 1, which assigning ignores */
    while (value->ndim - skipped > v->ndim) skipped++;
    status = heed__clone(b->ctx, b->function, &view, &taken);
    if (status == HEED_OK)
      status =
          heed__sum_to_shape(b->ctx, b->function, taken, value->ndim - skipped, value->dims + skipped, &sum);
    if (status == HEED_OK)
      status = heed__reshape(b->ctx, b->function, sum, value->ndim, value->dims, &b->dx[1]);
    heed_tensor_free(taken);
    heed_tensor_free(sum);
  }
  if (status == HEED_OK && heed__backward_wants(b, 0)) {
    status = heed__fill(b->ctx, b->function, &view, heed_number(0));
    if (status == HEED_OK) {
      b->dx[0] = dx;
      dx = NULL;
    }
  }
  heed_tensor_free(dx);
  return status;
}

/* The source of copy_ broadcasts: the tape sums. */
heed_status heed__copy_backward(heed__backward *b) {
  return b->node->inputs == 2 ? assignment_backward(b) : heed__backward_same(b, 0);
}

heed_status heed__narrow_backward(heed__backward *b) {
  return place_slice(b);
}
heed_status heed__slice_backward(heed__backward *b) {
  return ((const heed__view_values *)b->values)->order[0] == HEED__STRIDED ? strided_backward(b)
                                                                           : place_slice(b);
}

heed_status heed__diagonal_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_tensor *zeros = NULL, *view = NULL;
  heed_status status = zeros_of_input(b, &zeros);
  if (status == HEED_OK)
    status = heed_diagonal(b->ctx, zeros, v->first, v->order[0] + 1, v->order[1] + 1, &view);
  return place_in(b, status, zeros, view);
}

/* Windows may overlap: they are added one after the other. */
heed_status heed__unfold_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_tensor *zeros = NULL;
  heed_status status = zeros_of_input(b, &zeros);
  const int d = v->order[0] + 1, last = b->dy[0]->ndim;
  for (int64_t i = 0; status == HEED_OK && i < b->dy[0]->shape[d - 1]; i++) {
    heed_tensor *part = NULL, *window = NULL, *moved = NULL;
    status = heed_narrow(b->ctx, zeros, d, i * v->step + 1, v->size, &part);
    if (status == HEED_OK) status = heed_select(b->ctx, b->dy[0], d, i + 1, &window); /* the window is last */
    if (status == HEED_OK) {
      heed_tensor view;
      int order[HEED_MAX_DIMS], n = 0;
      for (int k = 0; k < last - 1; k++) order[k] = k == d - 1 ? last - 2 : n++;
      heed__permute_on_stack(&view, window, order);
      status = heed__tensor_from_view(b->ctx, b->function, &view, &moved);
    }
    if (status == HEED_OK) status = heed_add(b->ctx, part, moved, &part);
    heed_tensor_free(part);
    heed_tensor_free(window);
    heed_tensor_free(moved);
  }
  if (status == HEED_OK)
    b->dx[0] = zeros;
  else
    heed_tensor_free(zeros);
  return status;
}
