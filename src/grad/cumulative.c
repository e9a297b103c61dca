/* Gradients of products, cumulative sums and cumulative products, in double like the operations. Without
 * divisions, so that zeros and what overflows need no care. */
#include <string.h>

#include "grad.h"

const char *heed__prod_name(const heed__node *node) {
  return ((const heed__reduction_values *)node->values)->all ? "ProdBackward0" : "ProdBackward1";
}

/* ---- Cumulative ---- */

/* The lanes of the gradient, along dimension d. x may be NULL; scratch: a double for each element of a lane.
 */
typedef bool lane_gradient(const heed__walk *w, double *scratch, const heed__pace *pace);

/* dx_k = Σ dy_i from i = k on */
static bool cumsum_lane(const heed__walk *w, double *scratch, const heed__pace *pace) {
  float *dx = (float *)(void *)w->data[0];
  const float *dy = (const float *)(const void *)w->data[1];
  double sum = 0;
  (void)scratch;
  for (int64_t k = w->count - 1; k >= 0; k--) {
    if (heed__is_due_at(pace, k)) return false;
    sum += (double)dy[k * w->stride[1]];
    dx[k * w->stride[0]] = (float)sum;
  }
  return true;
}

/* dx_k = p_k t_k: p_k is the product of what comes before k, and t_k = Σ dy_i Π x_j, i from k on and j from
 * k + 1 to i, so that t_k = dy_k + x_(k+1) t_(k+1) */
static bool cumprod_lane(const heed__walk *w, double *scratch, const heed__pace *pace) {
  float *dx = (float *)(void *)w->data[0];
  const float *dy = (const float *)(const void *)w->data[1], *x = (const float *)(const void *)w->data[2];
  double product = 1, sum = 0;
  for (int64_t k = 0; k < w->count; k++) {
    if (heed__is_due_at(pace, k)) return false;
    scratch[k] = product;
    product *= (double)x[k * w->stride[2]];
  }
  for (int64_t k = w->count - 1; k >= 0; k--) {
    if (heed__is_due_at(pace, k)) return false;
    sum = (double)dy[k * w->stride[1]] + (k + 1 < w->count ? (double)x[(k + 1) * w->stride[2]] * sum : 0);
    dx[k * w->stride[0]] = (float)(scratch[k] * sum);
  }
  return true;
}

static heed_status cumulative_gradient(heed__backward *b, lane_gradient *lane, const heed_tensor *x) {
  const heed__saved *input = &b->node->saved[0];
  const int d = *(const int *)b->values;
  const int64_t length = input->ndim > 0 ? input->dims[d] : 1;
  heed_tensor *made = NULL;
  double *scratch = NULL;
  heed_status status = heed__tensor_new(b->ctx, b->function, HEED_FLOAT32, input->ndim, input->dims, &made);
  if (status != HEED_OK) return status;
  if (x != NULL) {
    const size_t bytes = heed__array_bytes((uint64_t)heed__max(length, 1), sizeof(double));
    scratch = heed__allocate(b->ctx, bytes);
    if (scratch == NULL) status = heed__fail_memory(b->ctx, b->function, bytes);
  }
  heed__walk w;
  const heed_tensor *operands[] = {made, b->dy[0], x};
  for (bool more = status == HEED_OK &&
                   heed__walk_lanes_begin(&w, made->ndim, made->shape, d, x != NULL ? 3 : 2, operands);
       more && status == HEED_OK; more = heed__walk_next(&w)) {
    if (!lane(&w, scratch, &b->ctx->pace) || heed__is_due(&b->ctx->pace))
      status = heed__stopped(b->ctx, b->function);
  }
  heed__release(b->ctx, scratch);
  if (status == HEED_OK)
    b->dx[0] = made;
  else
    heed_tensor_free(made);
  return status;
}

heed_status heed__cumsum_backward(heed__backward *b) {
  return cumulative_gradient(b, cumsum_lane, NULL);
}

heed_status heed__cumprod_backward(heed__backward *b) {
  heed_tensor x;
  return cumulative_gradient(b, cumprod_lane, heed__backward_input(b, 0, &x));
}

/* ---- prod ---- */

/* dx_i = dy times the product of all other elements of the row; before: scratch of n elements. False if a
 * cancellation check stops it. */
static bool product_row(float *dx, const float *x, float dy, int64_t n, double *before,
                        const heed__pace *pace) {
  double product = 1;
  for (int64_t i = 0; i < n; i++) {
    if (heed__is_due_at(pace, i)) return false;
    before[i] = product;
    product *= (double)x[i];
  }
  product = 1;
  for (int64_t i = n - 1; i >= 0; i--) {
    if (heed__is_due_at(pace, i)) return false;
    dx[i] = (float)((double)dy * (before[i] * product));
    product *= (double)x[i];
  }
  return true;
}

/* The dimensions that stay, then those that are reduced. */
static void order_reduced_last(int ndim, uint32_t dims, int *order) {
  int count = 0;
  for (int d = 0; d < ndim; d++) {
    if (!(dims >> d & 1)) order[count++] = d;
  }
  for (int d = 0; d < ndim; d++) {
    if (dims >> d & 1) order[count++] = d;
  }
}

/* Makes dimension i of x dimension order[i]. */
static void put_in_order(heed_tensor *x, const int *order) {
  int64_t shape[HEED_MAX_DIMS], stride[HEED_MAX_DIMS];
  memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
  memcpy(stride, x->stride, (size_t)x->ndim * sizeof *stride);
  for (int i = 0; i < x->ndim; i++) {
    x->shape[order[i]] = shape[i];
    x->stride[order[i]] = stride[i];
  }
}

heed_status heed__prod_backward(heed__backward *b) {
  const uint32_t dims = ((const heed__reduction_values *)b->values)->dims;
  heed_context *ctx = b->ctx;
  heed_tensor header, ordered, *made_x = NULL, *made_dy = NULL, *dx = NULL;
  const heed_tensor *x = heed__backward_input(b, 0, &header), *packed = NULL, *dy = NULL;
  double *before = NULL;
  int order[HEED_MAX_DIMS];
  int64_t n = 1;
  for (int d = 0; d < x->ndim; d++) n *= dims >> d & 1 ? x->shape[d] : 1;
  order_reduced_last(x->ndim, dims, order);
  heed__permute_on_stack(&ordered, x, order);
  heed_status status = heed__as_contiguous(ctx, b->function, &ordered, HEED_FLOAT32, &packed, &made_x);
  if (status == HEED_OK)
    status = heed__as_contiguous(ctx, b->function, b->dy[0], HEED_FLOAT32, &dy, &made_dy);
  if (status == HEED_OK)
    status = heed__tensor_new(ctx, b->function, HEED_FLOAT32, x->ndim, ordered.shape, &dx);
  if (status == HEED_OK && dx->numel > 0) {
    const size_t bytes = heed__array_bytes((uint64_t)n, sizeof *before);
    before = heed__allocate(ctx, bytes);
    if (before == NULL) status = heed__fail_memory(ctx, b->function, bytes);
  }
  for (int64_t row = 0; status == HEED_OK && row * n < dx->numel; row++) {
    float *to = (float *)(void *)dx->data + row * n;
    const float *from = (const float *)(const void *)packed->data + row * n;
    const float scale = ((const float *)(const void *)dy->data)[row];
    if (!product_row(to, from, scale, n, before, &ctx->pace) || heed__is_due(&ctx->pace))
      status = heed__stopped(ctx, b->function);
  }
  heed__release(ctx, before);
  heed_tensor_free(made_x);
  heed_tensor_free(made_dy);
  if (status == HEED_OK) {
    put_in_order(dx, order);
    b->dx[0] = dx;
  } else {
    heed_tensor_free(dx);
  }
  return status;
}
