/* Gradients of selecting, writing and joining elements. Elements that are selected several times get the sum.
 */
#include "grad.h"

static heed_status zeros_like_input(heed__backward *b, int i, heed_tensor **out) {
  const heed__saved *x = &b->node->saved[i];
  return heed__full(b->ctx, b->function, HEED_FLOAT32, x->ndim, x->dims, heed_number(0), out);
}

/* dx[i] = made, or nothing is left of it. */
static heed_status give_made(heed__backward *b, int i, heed_status status, heed_tensor *made) {
  if (status == HEED_OK)
    b->dx[i] = made;
  else
    heed_tensor_free(made);
  return status;
}

static int dim_of(const heed__backward *b) {
  return ((const heed__view_values *)b->values)->order[0] + 1;
}

/* ---- Selecting ---- */

heed_status heed__index_select_backward(heed__backward *b) {
  heed_tensor index, *made = NULL;
  heed_status status = zeros_like_input(b, 0, &made);
  if (status == HEED_OK)
    status = heed__index_add(b->ctx, b->function, made, dim_of(b), heed__backward_input(b, 1, &index),
                             b->dy[0], heed_integer(1));
  return give_made(b, 0, status, made);
}

/* dy to the elements at the indices, along a dimension. */
static heed_status scatter_to_indices(heed__backward *b, const heed_tensor *dy, const heed_tensor *index) {
  heed_tensor *made = NULL;
  heed_status status = zeros_like_input(b, 0, &made);
  if (status == HEED_OK)
    status = heed__scatter(b->ctx, b->function, made, dim_of(b), index, dy, HEED_SCATTER_ADD);
  return give_made(b, 0, status, made);
}

heed_status heed__gather_backward(heed__backward *b) {
  heed_tensor index;
  return scatter_to_indices(b, b->dy[0], heed__backward_input(b, 1, &index));
}

heed_status heed__masked_select_backward(heed__backward *b) {
  heed_tensor mask, *made = NULL;
  heed_status status = zeros_like_input(b, 0, &made);
  if (status == HEED_OK)
    status = heed__masked_assign(b->ctx, b->function, made, heed__backward_input(b, 1, &mask), b->dy[0]);
  return give_made(b, 0, status, made);
}

/* The indices among the inputs from `first` on; NULL: all of a dimension. */
static int indices_of(const heed__backward *b, int first, heed_tensor *headers, const heed_tensor **indices) {
  const int count = b->node->inputs - first;
  for (int i = 0; i < count; i++)
    indices[i] = heed__backward_has(b, first + i) ? heed__backward_input(b, first + i, &headers[i]) : NULL;
  return count;
}

heed_status heed__index_backward(heed__backward *b) {
  heed_tensor headers[HEED_MAX_DIMS], *made = NULL;
  const heed_tensor *indices[HEED_MAX_DIMS];
  const int count = indices_of(b, 1, headers, indices);
  heed_status status = zeros_like_input(b, 0, &made);
  if (status == HEED_OK)
    status = heed__index_put(b->ctx, b->function, made, count, indices, NULL, b->dy[0], true, false);
  return give_made(b, 0, status, made);
}

/* ---- Writing in place: what was overwritten gets 0 ---- */

heed_status heed__index_put_backward(heed__backward *b) {
  heed_tensor headers[HEED_MAX_DIMS], *made = NULL;
  const heed_tensor *indices[HEED_MAX_DIMS];
  heed__number zero;
  const int count = indices_of(b, 2, headers, indices);
  const bool accumulates = *(const bool *)b->values;
  heed_status status = HEED_OK;
  if (heed__backward_wants(b, 0) && accumulates) {
    status = heed__backward_same(b, 0);
  } else if (heed__backward_wants(b, 0)) {
    status = heed__clone(b->ctx, b->function, b->dy[0], &made);
    if (status == HEED_OK)
      status = heed__index_put(b->ctx, b->function, made, count, indices, NULL,
                               heed__number_tensor(&zero, heed_number(0)), false, false);
    status = give_made(b, 0, status, made);
  }
  if (status == HEED_OK && heed__backward_wants(b, 1))
    status = heed__index(b->ctx, b->function, b->dy[0], count, indices, NULL, &b->dx[1]);
  return status;
}

heed_status heed__masked_assign_backward(heed__backward *b) {
  heed_tensor header, wide;
  const heed_tensor *mask = heed__backward_input(b, 1, &header);
  heed_status status = HEED_OK;
  if (heed__backward_wants(b, 0)) {
    wide = *mask; /* a mask of the leading dimensions */
    for (int d = mask->ndim; d < b->dy[0]->ndim; d++) wide.shape[wide.ndim] = 1, wide.stride[wide.ndim++] = 0;
    status = heed_masked_fill(b->ctx, b->dy[0], &wide, heed_number(0), &b->dx[0]);
  }
  if (status == HEED_OK && heed__backward_wants(b, 2))
    status = heed__masked_select(b->ctx, b->function, b->dy[0], mask, &b->dx[2]);
  return status;
}

heed_status heed__scatter_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_tensor header, *made = NULL;
  heed__number zero;
  const heed_tensor *index = heed__backward_input(b, 1, &header);
  heed_status status = HEED_OK;
  if (v->first == HEED_SCATTER_MULTIPLY)
    return heed__fail(b->ctx, HEED_ARGUMENT, "scatter: no gradient is known for reduce = multiply");
  if (heed__backward_wants(b, 0) && v->first == HEED_SCATTER_ADD) {
    status = heed__backward_same(b, 0);
  } else if (heed__backward_wants(b, 0)) {
    status = heed__clone(b->ctx, b->function, b->dy[0], &made);
    if (status == HEED_OK)
      status = heed__scatter(b->ctx, b->function, made, dim_of(b), index,
                             heed__number_tensor(&zero, heed_number(0)), HEED_SCATTER_REPLACE);
    status = give_made(b, 0, status, made);
  }
  if (status || !heed__backward_wants(b, 2)) return status;
  heed_tensor *taken = NULL;
  status = heed_gather(b->ctx, b->dy[0], dim_of(b), index, &taken);
  const heed__saved *src = &b->node->saved[2];
  if (status != HEED_OK || src->ndim == 0 ||
      heed__same_shape(src->ndim, src->dims, index->ndim, index->shape))
    return give_made(b, 2, status, taken); /* a number is summed by the tape */
  /* src may be larger than index */
  heed_tensor part, *into = &part;
  status = zeros_like_input(b, 2, &made);
  if (status == HEED_OK) {
    heed__alias_on_stack(&part, made);
    for (int d = 0; d < part.ndim; d++) heed__narrow_on_stack(&part, d, 0, index->shape[d]);
    status = heed__copy(b->ctx, b->function, into, taken);
  }
  heed_tensor_free(taken);
  return give_made(b, 2, status, made);
}

/* ---- Joining and repeating ---- */

heed_status heed__cat_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_status status = HEED_OK;
  int64_t first = 1;
  for (int i = 0; i < b->node->inputs && status == HEED_OK; i++) {
    const heed__saved *x = &b->node->saved[i];
    if (x->ndim == 1 && x->dims[0] == 0) { /* skipped */
      if (heed__backward_wants(b, i)) status = zeros_like_input(b, i, &b->dx[i]);
      continue;
    }
    const int64_t size = x->dims[v->order[0]];
    if (heed__backward_wants(b, i))
      status = heed__narrow(b->ctx, b->function, b->dy[0], v->order[0] + 1, first, size, &b->dx[i]);
    first += size;
  }
  return status;
}

heed_status heed__stack_backward(heed__backward *b) {
  heed_status status = HEED_OK;
  for (int i = 0; i < b->node->inputs && status == HEED_OK; i++) {
    if (heed__backward_wants(b, i)) status = heed_select(b->ctx, b->dy[0], dim_of(b), i + 1, &b->dx[i]);
  }
  return status;
}

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
    status = heed__index_add(b->ctx, b->function, made, dim_of(b), index, b->dy[0], heed_integer(1));
  if (status == HEED_OK) status = heed__reshape(b->ctx, b->function, made, x->ndim, x->dims, &b->dx[0]);
  heed_tensor_free(numbers);
  heed_tensor_free(index);
  heed_tensor_free(made);
  return status;
}

/* ---- Copies ---- */

heed_status heed__flip_backward(heed__backward *b) {
  const uint32_t *named = b->values;
  int dims[HEED_MAX_DIMS], count = 0;
  for (int d = 0; d < b->dy[0]->ndim; d++)
    if (*named >> d & 1) dims[count++] = d + 1;
  if (count == 0) return heed__backward_same(b, 0);
  return heed_flip(b->ctx, b->dy[0], count, dims, &b->dx[0]);
}

heed_status heed__to_backward(heed__backward *b) {
  return heed__backward_same(b, 0);
}
