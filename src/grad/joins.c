/* Gradients of joining tensors and of copies. */
#include "grad.h"

heed_status heed__cat_backward(heed__backward *b) {
  const heed__view_values *v = b->values;
  heed_status status = HEED_OK;
  int64_t first = 1;
  for (int i = 0; i < b->node->inputs && status == HEED_OK; i++) {
    const heed__saved *x = &b->node->saved[i];
    if (x->ndim == 1 && x->dims[0] == 0) { /* skipped */
      if (heed__backward_wants(b, i)) status = heed__backward_zeros(b, i, &b->dx[i]);
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
  const heed__view_values *v = b->values;
  heed_status status = HEED_OK;
  for (int i = 0; i < b->node->inputs && status == HEED_OK; i++) {
    if (heed__backward_wants(b, i)) status = heed_select(b->ctx, b->dy[0], v->order[0] + 1, i + 1, &b->dx[i]);
  }
  return status;
}

/* ---- Packed sequences ---- */

heed_status heed__pack_backward(heed__backward *b) {
  heed_tensor lengths;
  const heed_tensor *own = heed__backward_input(b, 1, &lengths);
  const int64_t n = b->node->saved[0].dims[1];
  if (n == 0) return heed__backward_zeros(b, 0, &b->dx[0]); /* unpack takes 0 as the largest length, also 0 */
  return heed_unpack(b->ctx, b->dy[0], own, n, &b->dx[0]);
}
heed_status heed__unpack_backward(heed__backward *b) {
  heed_tensor lengths;
  return heed_pack(b->ctx, b->dy[0], heed__backward_input(b, 1, &lengths), &b->dx[0]);
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
