/* Gradients of writing in place: what was overwritten gets 0, what was written the gradient of its place. */
#include "grad.h"

/* Writes 0 to the elements of view, or to those at its indices. */
static heed_status clear(heed__backward *b, heed_tensor *view, int count, const heed_tensor *const *indices) {
  heed__number zero;
  if (count == 0) return heed__fill(b->ctx, b->function, view, heed_number(0));
  return heed__index_put(b->ctx, b->function, view, count, indices, NULL,
                         heed__number_tensor(&zero, heed_number(0)), false, false);
}

/* ---- At indices of a part ---- */

const char *heed__assign_name(const heed__node *node) {
  return ((const heed__part *)node->values)->name;
}

heed_status heed__assign_backward(heed__backward *b) {
  const heed__part *part = b->values;
  heed_tensor headers[HEED_MAX_DIMS], view, *made = NULL;
  const heed_tensor *indices[HEED_MAX_DIMS];
  const int count = heed__backward_indices(b, 2, headers, indices);
  heed_status status = HEED_OK;
  if (heed__backward_wants(b, 0)) {
    status = heed__clone(b->ctx, b->function, b->dy[0], &made);
    if (status == HEED_OK) {
      heed__part_on_stack(&view, made, part);
      status = clear(b, &view, count, indices);
    }
    status = heed__backward_give(b, 0, status, made);
  }
  if (status || !heed__backward_wants(b, 1)) return status;
  heed__part_on_stack(&view, b->dy[0], part);
  if (count == 0) return heed__tensor_from_view(b->ctx, b->function, &view, &b->dx[1]);
  return heed__index(b->ctx, b->function, &view, count, indices, NULL, &b->dx[1]);
}

heed_status heed__index_put_backward(heed__backward *b) {
  heed_tensor headers[HEED_MAX_DIMS], *made = NULL;
  const heed_tensor *indices[HEED_MAX_DIMS];
  const int count = heed__backward_indices(b, 2, headers, indices);
  const bool accumulates = *(const bool *)b->values;
  heed_status status = HEED_OK;
  if (accumulates) {
    status = heed__backward_same(b, 0);
  } else if (heed__backward_wants(b, 0)) {
    status = heed__clone(b->ctx, b->function, b->dy[0], &made);
    if (status == HEED_OK) status = clear(b, made, count, indices);
    status = heed__backward_give(b, 0, status, made);
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

/* ---- At the indices of one dimension ---- */

const char *heed__scatter_name(const heed__node *node) {
  const heed__view_values *v = node->values;
  if (v->first == HEED_SCATTER_ADD) return "ScatterAddBackward0";
  return node->saved[2].ndim > 0 ? "ScatterBackward0" : "ScatterBackward1";
}

heed_status heed__scatter_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_tensor header, *made = NULL;
  heed__number zero;
  const heed_tensor *index = heed__backward_input(b, 1, &header);
  heed_status status = HEED_OK;
  if (v->first == HEED_SCATTER_ADD) {
    status = heed__backward_same(b, 0);
  } else if (heed__backward_wants(b, 0)) {
    status = heed__clone(b->ctx, b->function, b->dy[0], &made);
    if (status == HEED_OK)
      status = heed__scatter(b->ctx, b->function, made, heed__backward_dim(b), index,
                             heed__number_tensor(&zero, heed_number(0)), HEED_SCATTER_REPLACE);
    status = heed__backward_give(b, 0, status, made);
  }
  if (status || !heed__backward_wants(b, 2)) return status;
  heed_tensor *taken = NULL;
  status = heed_gather(b->ctx, b->dy[0], heed__backward_dim(b), index, &taken);
  const heed__saved *src = &b->node->saved[2];
  if (status != HEED_OK || src->ndim == 0 ||
      heed__same_shape(src->ndim, src->dims, index->ndim, index->shape))
    return heed__backward_give(b, 2, status, taken); /* a number is summed by the tape */
  /* src may be larger than index */
  heed_tensor part, *dsrc = NULL;
  status = heed__backward_zeros(b, 2, &dsrc);
  if (status == HEED_OK) {
    heed__alias_on_stack(&part, dsrc);
    for (int d = 0; d < part.ndim; d++) heed__narrow_on_stack(&part, d, 0, index->shape[d]);
    status = heed__copy(b->ctx, b->function, &part, taken);
  }
  heed_tensor_free(taken);
  return heed__backward_give(b, 2, status, dsrc);
}

/* dx = dy, and 0 in the slices that were overwritten. */
static heed_status without_slices(heed__backward *b, const heed_tensor *index) {
  heed_tensor *made = NULL;
  if (!heed__backward_wants(b, 0)) return HEED_OK;
  heed_status status = heed__clone(b->ctx, b->function, b->dy[0], &made);
  if (status == HEED_OK)
    status = heed__index_fill(b->ctx, b->function, made, heed__backward_dim(b), index, heed_number(0), NULL);
  return heed__backward_give(b, 0, status, made);
}

/* dx[2] = the slices of dy at the indices, in the shape of the source. */
static heed_status slices_of_source(heed__backward *b, const heed_tensor *index, heed_tensor **out) {
  const heed__saved *source = &b->node->saved[2];
  heed_tensor *taken = NULL;
  heed_status status =
      heed__index_select(b->ctx, b->function, b->dy[0], heed__backward_dim(b), index, &taken);
  if (status == HEED_OK) status = heed__reshape(b->ctx, b->function, taken, source->ndim, source->dims, out);
  heed_tensor_free(taken);
  return status;
}

heed_status heed__index_add_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_tensor header, *taken = NULL;
  heed__number alpha;
  const heed_tensor *index = heed__backward_input(b, 1, &header);
  heed_status status = heed__backward_same(b, 0);
  if (status || !heed__backward_wants(b, 2)) return status;
  if (v->number == 1) return slices_of_source(b, index, &b->dx[2]);
  status = slices_of_source(b, index, &taken);
  if (status == HEED_OK)
    status = heed_mul(b->ctx, taken, heed__number_tensor(&alpha, heed_number(v->number)), &b->dx[2]);
  heed_tensor_free(taken);
  return status;
}

heed_status heed__index_copy_backward(heed__backward *b) {
  heed_tensor header;
  const heed_tensor *index = heed__backward_input(b, 1, &header);
  const heed_status status = without_slices(b, index);
  if (status || !heed__backward_wants(b, 2)) return status;
  return slices_of_source(b, index, &b->dx[2]);
}

const char *heed__index_fill_name(const heed__node *node) {
  return heed__node_has_input(node, 2) ? "IndexFillBackward1" : "IndexFillBackward0";
}

/* The value gets dy at every element that was written, once where an index occurs several times: the tape
 * sums. */
heed_status heed__index_fill_backward(heed__backward *b) {
  heed_tensor header, *kept = NULL;
  const heed_tensor *index = heed__backward_input(b, 1, &header), *dy = b->dy[0];
  heed_status status = without_slices(b, index);
  if (status || !heed__backward_wants(b, 2)) return status;
  status = heed__full(b->ctx, b->function, HEED_BOOL, dy->ndim, dy->shape, heed_integer(1), &kept);
  if (status == HEED_OK)
    status = heed__index_fill(b->ctx, b->function, kept, heed__backward_dim(b), index, heed_integer(0), NULL);
  if (status == HEED_OK) status = heed_masked_fill(b->ctx, dy, kept, heed_number(0), &b->dx[2]);
  heed_tensor_free(kept);
  return status;
}

/* ---- Everywhere ---- */

/* The source broadcasts: the tape sums. */
heed_status heed__copy_backward(heed__backward *b) {
  return heed__backward_same(b, 0);
}
