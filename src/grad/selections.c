/* Gradients of operations that select elements along a dimension: max, min, sort, topk. They go back to where
 * the elements were. */
#include "grad.h"

static bool is_of_all(const heed__node *node) {
  return ((const heed__selection_values *)node->values)->dim < 0;
}
const char *heed__max_name(const heed__node *node) {
  return is_of_all(node) ? "MaxBackward1" : "MaxBackward0";
}
const char *heed__min_name(const heed__node *node) {
  return is_of_all(node) ? "MinBackward1" : "MinBackward0";
}

/* A header on x with dimension d, of size 1, added. */
static void insert_dim(heed_tensor *view, const heed_tensor *x, int d) {
  heed__alias_on_stack(view, x);
  for (int i = x->ndim; i > d; i--) {
    view->shape[i] = view->shape[i - 1];
    view->stride[i] = view->stride[i - 1];
  }
  view->shape[d] = view->stride[d] = 1;
  view->ndim++;
}

/* dx is 0 but at the indices */
static heed_status place_selected(heed__backward *b) {
  const heed__selection_values *how = b->values;
  const heed__saved *x = &b->node->saved[0];
  heed_tensor header, dy_view, index_view, *dx = NULL;
  const heed_tensor *index = heed__backward_input(b, 1, &header), *dy = b->dy[0];
  if (how->removed && x->ndim > 0) {
    insert_dim(&dy_view, dy, how->dim);
    insert_dim(&index_view, index, how->dim);
    dy = &dy_view;
    index = &index_view;
  }
  heed_status status = heed__full(b->ctx, b->function, HEED_FLOAT32, x->ndim, x->dims, heed_number(0), &dx);
  if (status == HEED_OK)
    status = heed__scatter(b->ctx, b->function, dx, how->dim + 1, index, dy, HEED_SCATTER_REPLACE);
  if (status == HEED_OK)
    b->dx[0] = dx;
  else
    heed_tensor_free(dx);
  return status;
}

/* share where x equals the extreme, or both are nan */
static void same_slope(float *dx, const float *share, const void *a, const void *c, const double *numbers,
                       size_t n) {
  const float *x = a, *extreme = c;
  (void)numbers;
  for (size_t i = 0; i < n; i++) {
    const float s = share[i], e = extreme[i], of_nan = x[i] != x[i] && e != e ? s : 0.0f;
    dx[i] = x[i] == e ? s : of_nan;
  }
}

/* The extreme element of the whole: those that equal it share dy. */
static heed_status share_extreme(heed__backward *b, bool largest) {
  heed_tensor header, *extreme = NULL, *parts = NULL, *total = NULL, *each = NULL;
  heed__number one;
  const heed_tensor *x = heed__backward_input(b, 1, &header);
  heed_status status = (largest ? heed_amax : heed_amin)(b->ctx, x, 0, NULL, false, &extreme);
  if (status == HEED_OK)
    status = heed__map_gradient(b->ctx, b->function, same_slope, NULL,
                                heed__number_tensor(&one, heed_number(1)), x, extreme, &parts);
  if (status == HEED_OK) status = heed_sum(b->ctx, parts, 0, NULL, false, &total);
  if (status == HEED_OK) status = heed_div(b->ctx, b->dy[0], total, &each);
  if (status == HEED_OK) status = heed_mul(b->ctx, parts, each, &parts);
  if (status == HEED_OK) {
    b->dx[0] = parts;
    parts = NULL;
  }
  heed_tensor_free(extreme);
  heed_tensor_free(parts);
  heed_tensor_free(total);
  heed_tensor_free(each);
  return status;
}

heed_status heed__max_backward(heed__backward *b) {
  if (!heed__backward_wants(b, 0)) return HEED_OK;
  return is_of_all(b->node) ? share_extreme(b, true) : place_selected(b);
}

heed_status heed__min_backward(heed__backward *b) {
  if (!heed__backward_wants(b, 0)) return HEED_OK;
  return is_of_all(b->node) ? share_extreme(b, false) : place_selected(b);
}

heed_status heed__sort_backward(heed__backward *b) {
  return place_selected(b);
}

heed_status heed__topk_backward(heed__backward *b) {
  return place_selected(b);
}
