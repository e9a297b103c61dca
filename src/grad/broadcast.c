/* The gradient of broadcasting, a sum over what was repeated; and what other gradients share. */
#include "grad.h"

heed_status heed__sum_to_shape(heed_context *ctx, const char *function, const heed_tensor *x, int ndim,
                               const int64_t *shape, heed_tensor **out) {
  if (heed__same_shape(x->ndim, x->shape, ndim, shape)) {
    heed_tensor view;
    heed__alias_on_stack(&view, x);
    return heed__tensor_from_view(ctx, function, &view, out);
  }
  int dims[HEED_MAX_DIMS], count = 0;
  const int added = x->ndim - ndim;
  for (int d = 0; d < x->ndim; d++) {
    if (d < added || (shape[d - added] == 1 && x->shape[d] != 1)) dims[count++] = d + 1;
  }
  heed_tensor *sum = NULL;
  const heed_tensor *from = x;
  heed_status status = HEED_OK;
  if (count > 0) {
    status = heed_sum(ctx, x, count, dims, true, &sum);
    from = sum;
  }
  /* the sizes of 1 that broadcasting added in front go */
  if (status == HEED_OK) status = heed__reshape(ctx, function, from, ndim, shape, out);
  heed_tensor_free(sum);
  return status;
}

heed_status heed__backward_zeros(const heed__backward *b, int i, heed_tensor **out) {
  const heed__saved *x = &b->node->saved[i];
  return heed__full(b->ctx, b->function, HEED_FLOAT32, x->ndim, x->dims, heed_number(0), out);
}

heed_status heed__backward_give(heed__backward *b, int i, heed_status status, heed_tensor *made) {
  if (status == HEED_OK)
    b->dx[i] = made;
  else
    heed_tensor_free(made);
  return status;
}
