/* Gradients of views and of what moves elements. */
#include "grad.h"

/* ---- The same elements in other shapes ---- */

static heed_status in_shape_of_input(heed__backward *b) {
  const heed__saved *x = &b->node->saved[0];
  return heed__reshape(b->ctx, b->function, b->dy[0], x->ndim, x->dims, &b->dx[0]);
}

/* values: whether the elements were copied */
static const char *reshape_name(const heed__node *node) {
  const heed__view_values *v = node->values;
  const heed__saved *x = &node->saved[0];
  if (v->size) return "UnsafeViewBackward0";
  return heed__saved_is_row_major(x) ? "ViewBackward0" : "ReshapeAliasBackward0";
}
const char *heed__reshape_name(const heed__node *node) {
  return reshape_name(node);
}
const char *heed__flatten_name(const heed__node *node) {
  return reshape_name(node);
}

/* values: the number of dimensions that were given */
const char *heed__squeeze_name(const heed__node *node) {
  static const char *const names[] = {"SqueezeBackward0", "SqueezeBackward1", "SqueezeBackward2"};
  return names[heed__min(((const heed__view_values *)node->values)->size, 2)];
}

const char *heed__part_name(const heed__node *node) {
  return ((const heed__part *)node->values)->name;
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

heed_status heed__t_backward(heed__backward *b) {
  return heed__t(b->ctx, b->function, b->dy[0], &b->dx[0]);
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

heed_status heed__part_backward(heed__backward *b) {
  heed_tensor *zeros = NULL, view;
  heed_status status = heed__backward_zeros(b, 0, &zeros);
  if (status == HEED_OK) {
    heed__part_on_stack(&view, zeros, b->values);
    status = heed__copy(b->ctx, b->function, &view, b->dy[0]);
  }
  return heed__backward_give(b, 0, status, zeros);
}

heed_status heed__select_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_tensor *zeros = NULL, *view = NULL;
  heed_status status = heed__backward_zeros(b, 0, &zeros);
  if (status == HEED_OK) status = heed_select(b->ctx, zeros, v->order[0] + 1, v->first + 1, &view);
  return place_in(b, status, zeros, view);
}

static heed_status place_slice(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_tensor *zeros = NULL, *view = NULL;
  heed_status status = heed__backward_zeros(b, 0, &zeros);
  const int64_t last = v->first + (v->size - 1) * v->step + 1;
  if (status == HEED_OK && v->size > 0)
    status = heed_slice(b->ctx, zeros, v->order[0] + 1, v->first + 1, last, v->step, &view);
  if (status == HEED_OK && v->size == 0) { /* nothing was taken */
    b->dx[0] = zeros;
    return HEED_OK;
  }
  return place_in(b, status, zeros, view);
}

heed_status heed__narrow_backward(heed__backward *b) {
  return place_slice(b);
}
heed_status heed__slice_backward(heed__backward *b) {
  return place_slice(b);
}

heed_status heed__diagonal_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_tensor *zeros = NULL, *view = NULL;
  heed_status status = heed__backward_zeros(b, 0, &zeros);
  if (status == HEED_OK)
    status = heed_diagonal(b->ctx, zeros, v->first, v->order[0] + 1, v->order[1] + 1, &view);
  return place_in(b, status, zeros, view);
}

/* Windows may overlap: they are added one after the other. */
heed_status heed__unfold_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_tensor *zeros = NULL;
  heed_status status = heed__backward_zeros(b, 0, &zeros);
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
