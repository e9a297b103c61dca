/* Gradients of selecting elements. Those that are selected several times get the sum. */
#include "grad.h"

int heed__backward_indices(const heed__backward *b, int first, heed_tensor *headers,
                           const heed_tensor **indices) {
  const int count = b->node->inputs - first;
  for (int i = 0; i < count; i++)
    indices[i] = heed__backward_has(b, first + i) ? heed__backward_input(b, first + i, &headers[i]) : NULL;
  return count;
}

/* ---- Selecting ---- */

heed_status heed__index_select_backward(heed__backward *b) {
  heed_tensor index, *made = NULL;
  heed_status status = heed__backward_zeros(b, 0, &made);
  if (status == HEED_OK)
    status = heed__index_add(b->ctx, b->function, made, heed__backward_dim(b),
                             heed__backward_input(b, 1, &index), b->dy[0], heed_integer(1));
  return heed__backward_give(b, 0, status, made);
}

/* dy to the elements at the indices, along a dimension. */
static heed_status scatter_to_indices(heed__backward *b, const heed_tensor *dy, const heed_tensor *index) {
  heed_tensor *made = NULL;
  heed_status status = heed__backward_zeros(b, 0, &made);
  if (status == HEED_OK)
    status = heed__scatter(b->ctx, b->function, made, heed__backward_dim(b), index, dy, HEED_SCATTER_ADD);
  return heed__backward_give(b, 0, status, made);
}

heed_status heed__gather_backward(heed__backward *b) {
  heed_tensor index;
  return scatter_to_indices(b, b->dy[0], heed__backward_input(b, 1, &index));
}

/* values: whether it was written x[mask] */
const char *heed__masked_select_name(const heed__node *node) {
  return *(const bool *)node->values ? "IndexBackward0" : "MaskedSelectBackward0";
}

heed_status heed__masked_select_backward(heed__backward *b) {
  heed_tensor mask, *made = NULL;
  heed_status status = heed__backward_zeros(b, 0, &made);
  if (status == HEED_OK)
    status = heed__masked_assign(b->ctx, b->function, made, heed__backward_input(b, 1, &mask), b->dy[0]);
  return heed__backward_give(b, 0, status, made);
}

heed_status heed__index_backward(heed__backward *b) {
  heed_tensor headers[HEED_MAX_DIMS], *made = NULL;
  const heed_tensor *indices[HEED_MAX_DIMS];
  const int count = heed__backward_indices(b, 1, headers, indices);
  heed_status status = heed__backward_zeros(b, 0, &made);
  if (status == HEED_OK)
    status = heed__index_put(b->ctx, b->function, made, count, indices, NULL, b->dy[0], true, false);
  return heed__backward_give(b, 0, status, made);
}

/* ---- Repeating ---- */

/* Sums the repeats, which follow each other. */
heed_status heed__repeat_interleave_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  const heed__saved *x = &b->node->saved[0];
  int64_t shape[HEED_MAX_DIMS + 1];
  int ndim = 0;
  const bool flat = v->first != 0;
  int64_t numel = heed__numel(x->ndim, x->dims, 1);
  for (int d = 0; d < (flat ? 1 : x->ndim); d++) {
    shape[ndim++] = flat ? numel : x->dims[d];
    if (d == v->order[0]) shape[ndim++] = v->size;
  }
  if (ndim > HEED_MAX_DIMS)
    return heed__fail(b->ctx, HEED_SHAPE, "repeat_interleave: x has too many dimensions for a gradient");
  heed_tensor *divided = NULL, *sum = NULL;
  const int dim = v->order[0] + 2;
  heed_status status = heed__reshape(b->ctx, b->function, b->dy[0], ndim, shape, &divided);
  if (status == HEED_OK) status = heed_sum(b->ctx, divided, 1, &dim, false, &sum);
  if (status == HEED_OK) status = heed__reshape(b->ctx, b->function, sum, x->ndim, x->dims, &b->dx[0]);
  heed_tensor_free(divided);
  heed_tensor_free(sum);
  return status;
}

heed_status heed__repeat_interleave_each_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  const heed__saved *x = &b->node->saved[0];
  heed_tensor header, *numbers = NULL, *index = NULL, *made = NULL;
  const heed_tensor *repeats = heed__backward_input(b, 1, &header);
  const int64_t size = v->first ? heed__numel(x->ndim, x->dims, 1) : x->dims[v->order[0]];
  heed_status status =
      heed_range(b->ctx, HEED_INT64, heed_integer(1), heed_integer(size), heed_integer(1), &numbers);
  if (status == HEED_OK) status = heed_repeat_interleave_each(b->ctx, numbers, repeats, 1, &index);
  const int64_t *shape = v->first ? &size : x->dims;
  if (status == HEED_OK)
    status =
        heed__full(b->ctx, b->function, HEED_FLOAT32, v->first ? 1 : x->ndim, shape, heed_number(0), &made);
  if (status == HEED_OK)
    status =
        heed__index_add(b->ctx, b->function, made, heed__backward_dim(b), index, b->dy[0], heed_integer(1));
  if (status == HEED_OK) status = heed__reshape(b->ctx, b->function, made, x->ndim, x->dims, &b->dx[0]);
  heed_tensor_free(numbers);
  heed_tensor_free(index);
  heed_tensor_free(made);
  return status;
}
