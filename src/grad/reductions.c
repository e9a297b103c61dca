/* Gradients of reductions. */
#include "grad.h"

/* dy with the reduced dimensions as sizes of 1, so that it broadcasts to x. */
static heed_status with_reduced_dims(heed__backward *b, heed_tensor **out) {
  const heed__reduction_values *values = b->values;
  const heed__saved *x = &b->node->saved[0];
  int64_t shape[HEED_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) shape[d] = values->dims >> d & 1 ? 1 : x->dims[d];
  return heed__reshape(b->ctx, b->function, b->dy[0], x->ndim, shape, out);
}

heed_status heed__sum_backward(heed__backward *b) {
  heed_tensor *dy = NULL, view;
  heed_status status = with_reduced_dims(b, &dy);
  if (status) return status;
  heed__expand_on_stack(&view, dy, b->node->saved[0].ndim, b->node->saved[0].dims);
  status = heed__tensor_from_view(b->ctx, b->function, &view, &b->dx[0]);
  heed_tensor_free(dy);
  return status;
}

heed_status heed__mean_backward(heed__backward *b) {
  const heed__saved *x = &b->node->saved[0];
  const heed__reduction_values *values = b->values;
  double count = 1;
  for (int d = 0; d < x->ndim; d++) count *= values->dims >> d & 1 ? (double)x->dims[d] : 1;
  heed_tensor *dy = NULL, *sum = NULL, view;
  heed__number share;
  heed_status status = with_reduced_dims(b, &dy);
  if (status == HEED_OK) status = heed_div(b->ctx, dy, heed__number_tensor(&share, heed_number(count)), &sum);
  if (status == HEED_OK) {
    heed__expand_on_stack(&view, sum, x->ndim, x->dims);
    status = heed__tensor_from_view(b->ctx, b->function, &view, &b->dx[0]);
  }
  heed_tensor_free(dy);
  heed_tensor_free(sum);
  return status;
}
