/* Gradients of elementwise operations. Where inputs broadcast, the tape sums. */
#include "grad.h"

heed_status heed__backward_same(heed__backward *b, int i) {
  if (!heed__backward_wants(b, i)) return HEED_OK;
  return heed_tensor_alias(b->ctx, b->dy[0], &b->dx[i]);
}

heed_status heed__add_backward(heed__backward *b) {
  const heed_status status = heed__backward_same(b, 0);
  return status ? status : heed__backward_same(b, 1);
}

heed_status heed__sub_backward(heed__backward *b) {
  const heed_status status = heed__backward_same(b, 0);
  if (status || !heed__backward_wants(b, 1)) return status;
  return heed_neg(b->ctx, b->dy[0], &b->dx[1]);
}

heed_status heed__mul_backward(heed__backward *b) {
  heed_tensor x;
  heed_status status = HEED_OK;
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    if (heed__backward_wants(b, i))
      status = heed_mul(b->ctx, b->dy[0], heed__backward_input(b, 1 - i, &x), &b->dx[i]);
  }
  return status;
}

heed_status heed__exp_backward(heed__backward *b) {
  heed_tensor y;
  return heed_mul(b->ctx, b->dy[0], heed__backward_output(b, 0, &y), &b->dx[0]);
}
