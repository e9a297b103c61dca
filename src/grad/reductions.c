/* Gradients of reductions. */
#include "grad.h"

#include <math.h>

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

/* ---- Products ---- */

/* prod / x where no factor is 0; where one is, it alone gets the product of the others. */
heed_status heed__prod_backward(heed__backward *b) {
  const heed__reduction_values *values = b->values;
  heed_tensor header, *dy = NULL;
  const heed_tensor *x = heed__backward_input(b, 0, &header);
  heed__number number[3];
  const heed_tensor *zero = heed__number_tensor(&number[0], heed_number(0));
  const heed_tensor *one = heed__number_tensor(&number[1], heed_number(1));
  heed_tensor *is_zero = NULL, *zeros = NULL, *others = NULL, *product = NULL, *count = NULL, *single = NULL,
              *none = NULL, *ratio = NULL, *part = NULL, *chosen = NULL, *lone = NULL;
  int dims[HEED_MAX_DIMS], ndims = 0;
  for (int d = 0; d < x->ndim; d++)
    if (values->dims >> d & 1) dims[ndims++] = d + 1;
  heed_context *ctx = b->ctx;
  heed_status status = with_reduced_dims(b, &dy);
  if (status == HEED_OK) status = heed_eq(ctx, x, zero, &is_zero);
  if (status == HEED_OK) status = heed__to(ctx, b->function, is_zero, HEED_FLOAT32, &zeros);
  if (status == HEED_OK) status = heed_where(ctx, is_zero, one, x, &others);
  if (status == HEED_OK) status = heed_prod(ctx, others, ndims, dims, true, &product);
  if (status == HEED_OK) status = heed_sum(ctx, zeros, ndims, dims, true, &count);
  if (status == HEED_OK) status = heed_eq(ctx, count, one, &single);
  if (status == HEED_OK) status = heed_eq(ctx, count, zero, &none);
  if (status == HEED_OK) status = heed_mul(ctx, dy, product, &part);
  if (status == HEED_OK) status = heed_div(ctx, part, others, &ratio);
  if (status == HEED_OK) status = heed_where(ctx, none, ratio, zero, &chosen);
  if (status == HEED_OK) status = heed_where(ctx, single, part, zero, &lone);
  if (status == HEED_OK) status = heed_where(ctx, is_zero, lone, chosen, &b->dx[0]);
  heed_tensor *made[] = {dy, is_zero, zeros, others, product, count, single, none, ratio, part, chosen, lone};
  for (size_t i = 0; i < sizeof made / sizeof *made; i++) heed_tensor_free(made[i]);
  return status;
}

/* ---- Norms ---- */

/* sign(x) |x|^(p - 1) dy / norm^(p - 1), 0 where the norm is 0. */
heed_status heed__norm_backward(heed__backward *b) {
  const heed__reduction_values *values = b->values;
  const double p = values->number;
  heed_context *ctx = b->ctx;
  heed_tensor header, result, *dy = NULL, *norm = NULL, *made[8] = {NULL}, *last = NULL;
  const heed_tensor *x = heed__backward_input(b, 0, &header), *y = heed__backward_output(b, 0, &result);
  heed__number number[2];
  const heed_tensor *zero = heed__number_tensor(&number[0], heed_number(0));
  int64_t shape[HEED_MAX_DIMS];
  int dims[HEED_MAX_DIMS], ndims = 0;
  for (int d = 0; d < x->ndim; d++) {
    shape[d] = values->dims >> d & 1 ? 1 : x->shape[d];
    if (values->dims >> d & 1) dims[ndims++] = d + 1;
  }
  if (p == 0) return heed__full(ctx, b->function, HEED_FLOAT32, x->ndim, x->shape, heed_number(0), &b->dx[0]);
  heed_status status = with_reduced_dims(b, &dy);
  if (status == HEED_OK) status = heed__reshape(ctx, b->function, y, x->ndim, shape, &norm);
  if (isinf(p)) { /* shared by all that are largest (smallest) */
    if (status == HEED_OK) status = heed_abs(ctx, x, &made[0]);
    if (status == HEED_OK) status = heed_eq(ctx, made[0], norm, &made[1]);
    if (status == HEED_OK) status = heed__to(ctx, b->function, made[1], HEED_FLOAT32, &made[2]);
    if (status == HEED_OK) status = heed_sum(ctx, made[2], ndims, dims, true, &made[3]);
    if (status == HEED_OK) status = heed_div(ctx, dy, made[3], &made[4]);
    if (status == HEED_OK) status = heed_sign(ctx, x, &made[5]);
    if (status == HEED_OK) status = heed_mul(ctx, made[5], made[2], &made[6]);
    if (status == HEED_OK) status = heed_mul(ctx, made[6], made[4], &b->dx[0]);
  } else if (p == 2) {
    if (status == HEED_OK) status = heed_div(ctx, dy, norm, &made[0]);
    if (status == HEED_OK) status = heed_mul(ctx, x, made[0], &made[1]);
    if (status == HEED_OK) status = heed_eq(ctx, norm, zero, &made[2]);
    if (status == HEED_OK) status = heed_masked_fill(ctx, made[1], made[2], heed_number(0), &b->dx[0]);
  } else {
    const heed_tensor *less = heed__number_tensor(&number[1], heed_number(p - 1));
    if (status == HEED_OK) status = heed_abs(ctx, x, &made[0]);
    if (status == HEED_OK) status = heed_div(ctx, made[0], norm, &made[1]);
    if (status == HEED_OK) status = heed_pow(ctx, made[1], less, &made[2]);
    if (status == HEED_OK) status = heed_sign(ctx, x, &made[3]);
    if (status == HEED_OK) status = heed_mul(ctx, made[2], made[3], &made[4]);
    if (status == HEED_OK) status = heed_mul(ctx, made[4], dy, &made[5]);
    if (status == HEED_OK) status = heed_eq(ctx, x, zero, &made[6]);
    if (status == HEED_OK) status = heed_masked_fill(ctx, made[5], made[6], heed_number(0), &last);
    b->dx[0] = last;
  }
  heed_tensor_free(dy);
  heed_tensor_free(norm);
  for (int i = 0; i < 8; i++) heed_tensor_free(made[i]);
  return status;
}

/* ---- Variance ---- */

/* 2 / (n - correction) · dy · (x - mean); of the standard deviation that over 2 std, 0 where it is 0. */
static heed_status spread_backward(heed__backward *b, bool root) {
  const heed__reduction_values *values = b->values;
  heed_context *ctx = b->ctx;
  heed_tensor header, result, *dy = NULL, *std = NULL, *made[5] = {NULL};
  const heed_tensor *x = heed__backward_input(b, 0, &header);
  heed__number number[2];
  double count = 1;
  int64_t shape[HEED_MAX_DIMS];
  int dims[HEED_MAX_DIMS], ndims = 0;
  for (int d = 0; d < x->ndim; d++) {
    shape[d] = values->dims >> d & 1 ? 1 : x->shape[d];
    if (!(values->dims >> d & 1)) continue;
    dims[ndims++] = d + 1;
    count *= (double)x->shape[d];
  }
  const double rest = count - values->number > 0 ? count - values->number : 0;
  const heed_tensor *factor = heed__number_tensor(&number[0], heed_number((root ? 1.0 : 2.0) / rest));
  heed_status status = with_reduced_dims(b, &dy);
  if (status == HEED_OK) status = heed_mean(ctx, x, ndims, dims, true, &made[0]);
  if (status == HEED_OK) status = heed_sub(ctx, x, made[0], &made[1]);
  if (status == HEED_OK) status = heed_mul(ctx, dy, factor, &made[2]);
  if (status == HEED_OK && root) {
    status = heed__reshape(ctx, b->function, heed__backward_output(b, 0, &result), x->ndim, shape, &std);
    if (status == HEED_OK) status = heed_div(ctx, made[2], std, &made[3]);
    if (status == HEED_OK)
      status = heed_eq(ctx, std, heed__number_tensor(&number[1], heed_number(0)), &made[4]);
    if (status == HEED_OK) status = heed_masked_fill(ctx, made[3], made[4], heed_number(0), &made[3]);
  }
  if (status == HEED_OK) status = heed_mul(ctx, made[1], root ? made[3] : made[2], &b->dx[0]);
  heed_tensor_free(dy);
  heed_tensor_free(std);
  for (int i = 0; i < 5; i++) heed_tensor_free(made[i]);
  return status;
}

heed_status heed__var_backward(heed__backward *b) {
  return spread_backward(b, false);
}
heed_status heed__std_backward(heed__backward *b) {
  return spread_backward(b, true);
}

/* ---- Extremes ---- */

/* dy, in the shape with sizes of 1, shared by all elements that are equal to the result. */
static heed_status share_among_equal(heed__backward *b, uint32_t bits, heed_tensor *dy) {
  heed_context *ctx = b->ctx;
  heed_tensor header, result, *y = NULL, *made[4] = {NULL};
  const heed_tensor *x = heed__backward_input(b, 0, &header);
  int64_t shape[HEED_MAX_DIMS];
  int dims[HEED_MAX_DIMS], ndims = 0;
  for (int d = 0; d < x->ndim; d++) {
    shape[d] = bits >> d & 1 ? 1 : x->shape[d];
    if (bits >> d & 1) dims[ndims++] = d + 1;
  }
  heed_status status =
      heed__reshape(ctx, b->function, heed__backward_output(b, 0, &result), x->ndim, shape, &y);
  if (status == HEED_OK) status = heed_eq(ctx, x, y, &made[0]);
  if (status == HEED_OK) status = heed__to(ctx, b->function, made[0], HEED_FLOAT32, &made[1]);
  if (status == HEED_OK) status = heed_sum(ctx, made[1], ndims, dims, true, &made[2]);
  if (status == HEED_OK) status = heed_div(ctx, dy, made[2], &made[3]);
  if (status == HEED_OK) status = heed_mul(ctx, made[1], made[3], &b->dx[0]);
  heed_tensor_free(y);
  for (int i = 0; i < 4; i++) heed_tensor_free(made[i]);
  return status;
}

static heed_status extremes_backward(heed__backward *b) {
  heed_tensor *dy = NULL;
  heed_status status = with_reduced_dims(b, &dy);
  if (status == HEED_OK) status = share_among_equal(b, ((const heed__reduction_values *)b->values)->dims, dy);
  heed_tensor_free(dy);
  return status;
}

heed_status heed__amax_backward(heed__backward *b) {
  return extremes_backward(b);
}
heed_status heed__amin_backward(heed__backward *b) {
  return extremes_backward(b);
}

/* Along a dimension the element at the index gets dy; of the flattened tensor, all that are equal share it.
 */
static heed_status extreme_along(heed__backward *b) {
  const heed__view_values *v = b->values;
  const heed__saved *x = &b->node->saved[0];
  heed_tensor *dy = NULL, *index = NULL, *made = NULL, header;
  int64_t shape[HEED_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) shape[d] = v->first || d == v->order[0] ? 1 : x->dims[d];
  heed_status status = heed__reshape(b->ctx, b->function, b->dy[0], x->ndim, shape, &dy);
  if (status == HEED_OK && v->first) {
    status = share_among_equal(b, x->ndim == 0 ? 0 : (1u << x->ndim) - 1, dy);
  } else if (status == HEED_OK) {
    status = heed__reshape(b->ctx, b->function, heed__backward_input(b, 1, &header), x->ndim, shape, &index);
    if (status == HEED_OK)
      status = heed__full(b->ctx, b->function, HEED_FLOAT32, x->ndim, x->dims, heed_number(0), &made);
    if (status == HEED_OK)
      status = heed__scatter(b->ctx, b->function, made, v->order[0] + 1, index, dy, HEED_SCATTER_ADD);
    if (status == HEED_OK) {
      b->dx[0] = made;
      made = NULL;
    }
  }
  heed_tensor_free(dy);
  heed_tensor_free(index);
  heed_tensor_free(made);
  return status;
}

heed_status heed__max_backward(heed__backward *b) {
  return extreme_along(b);
}
heed_status heed__min_backward(heed__backward *b) {
  return extreme_along(b);
}

/* ---- Cumulative sums ---- */

heed_status heed__cumsum_backward(heed__backward *b) {
  const int dim = ((const heed__view_values *)b->values)->order[0] + 1;
  if (b->dy[0]->ndim == 0) return heed__backward_same(b, 0);
  heed_tensor *back = NULL, *sum = NULL;
  heed_status status = heed_flip(b->ctx, b->dy[0], 1, &dim, &back);
  if (status == HEED_OK) status = heed_cumsum(b->ctx, back, dim, &sum);
  if (status == HEED_OK) status = heed_flip(b->ctx, sum, 1, &dim, &b->dx[0]);
  heed_tensor_free(back);
  heed_tensor_free(sum);
  return status;
}
