/* Gradients of views and of what moves elements. */
#include "grad.h"

heed_status heed__view_backward(heed__backward *b) {
  const heed__saved *x = &b->node->saved[0];
  return heed__reshape(b->ctx, b->function, b->dy[0], x->ndim, x->dims, &b->dx[0]);
}
