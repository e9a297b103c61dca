/* The gradients of activations, softmax and log_softmax, and of rope. */
#include "grad.h"

#define ROWS_PART ((int64_t)1 << 14) /* elements of a task */

typedef struct softmax_job {
  heed__backward_kernel *kernel;
  const heed__pace *pace;
  float *dx;
  const float *y, *dy;
  int64_t rows, n, part; /* part: rows of a task */
} softmax_job;

static void softmax_part(void *argument, int64_t task, int worker) {
  const softmax_job *j = argument;
  const int64_t first = task * j->part, last = heed__min(first + j->part, j->rows);
  (void)worker;
  for (int64_t r = first; r < last; r++) {
    if (j->n >= ROWS_PART && heed__is_due(j->pace)) return; /* which heed__parallel reports */
    j->kernel(j->dx + r * j->n, j->y + r * j->n, j->dy + r * j->n, (size_t)j->n);
  }
}

/* Exchanges dimension d and the last one of a header. */
static void exchange_last(heed_tensor *x, int d) {
  if (x->ndim == 0) return;
  const int64_t shape = x->shape[d], stride = x->stride[d];
  x->shape[d] = x->shape[x->ndim - 1];
  x->stride[d] = x->stride[x->ndim - 1];
  x->shape[x->ndim - 1] = shape;
  x->stride[x->ndim - 1] = stride;
}

/* Other dimensions than the last one are moved there, in copies. */
heed_status heed__softmax_gradient(heed_context *ctx, const char *function, bool logs, const heed_tensor *y,
                                   int dim, const heed_tensor *dy, heed_tensor **dx) {
  const heed__kernels *kernels = heed__kernels_of(ctx);
  heed_tensor turned_y, turned_dy, *made_y = NULL, *made_dy = NULL, *made = NULL;
  const heed_tensor *packed_y, *packed_dy;
  heed__alias_on_stack(&turned_y, y);
  heed__alias_on_stack(&turned_dy, dy);
  exchange_last(&turned_y, dim);
  exchange_last(&turned_dy, dim);
  heed_status status = heed__as_contiguous(ctx, function, &turned_y, HEED_FLOAT32, &packed_y, &made_y);
  if (status == HEED_OK)
    status = heed__as_contiguous(ctx, function, &turned_dy, HEED_FLOAT32, &packed_dy, &made_dy);
  if (status == HEED_OK)
    status = heed__tensor_new(ctx, function, HEED_FLOAT32, turned_y.ndim, turned_y.shape, &made);
  if (status == HEED_OK && made->numel > 0) {
    const int64_t n = y->ndim > 0 ? y->shape[dim] : 1;
    softmax_job job = {.kernel = logs ? kernels->log_softmax_backward : kernels->softmax_backward,
                       .pace = &ctx->pace,
                       .dx = (float *)(void *)made->data,
                       .y = (const float *)(const void *)packed_y->data,
                       .dy = (const float *)(const void *)packed_dy->data,
                       .rows = made->numel / n,
                       .n = n,
                       .part = heed__max(1, ROWS_PART / n)};
    if (!heed__parallel(ctx, heed__parts(job.rows, job.part), softmax_part, &job))
      status = heed__stopped(ctx, function);
  }
  if (status == HEED_OK) {
    exchange_last(made, dim);
    *dx = made;
    made = NULL;
  }
  heed_tensor_free(made);
  heed_tensor_free(made_y);
  heed_tensor_free(made_dy);
  return status;
}

/* ---- Nodes ---- */

static heed_status activation_backward(heed__backward *b, heed__backward_kernel *kernel) {
  heed_tensor x;
  return heed__unary_gradient(b->ctx, b->function, kernel, heed__backward_input(b, 0, &x), b->dy[0],
                              &b->dx[0]);
}

heed_status heed__gelu_backward(heed__backward *b) {
  return activation_backward(b, heed__kernels_of(b->ctx)->gelu_backward);
}

heed_status heed__gelu_tanh_backward(heed__backward *b) {
  return activation_backward(b, heed__kernels_of(b->ctx)->gelu_tanh_backward);
}

heed_status heed__silu_backward(heed__backward *b) {
  return activation_backward(b, heed__kernels_of(b->ctx)->silu_backward);
}

static heed_status softmax_node(heed__backward *b, bool logs) {
  const int *dim = b->values;
  heed_tensor y;
  return heed__softmax_gradient(b->ctx, b->function, logs, heed__backward_output(b, 0, &y), *dim, b->dy[0],
                                &b->dx[0]);
}

heed_status heed__softmax_backward(heed__backward *b) {
  return softmax_node(b, false);
}

heed_status heed__log_softmax_backward(heed__backward *b) {
  return softmax_node(b, true);
}

heed_status heed__rope_backward(heed__backward *b) {
  const heed_rope_config *config = b->values;
  heed_tensor positions;
  const heed_tensor *given = heed__backward_has(b, 1) ? heed__backward_input(b, 1, &positions) : NULL;
  return heed__rope_gradient(b->ctx, b->function, b->dy[0], given, 0, config, &b->dx[0]);
}
