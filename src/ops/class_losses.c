/* Cross entropy: targets, options, and the loss and the gradients of a row. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ops.h"

/* ---- Options and targets ---- */

void heed_cross_entropy_options_init(heed_cross_entropy_options *options, size_t size) {
  static const heed_cross_entropy_options plain = {.ignore_index = -100};
  heed__struct_init(options, size, &plain, sizeof plain);
}

heed_status heed__cross_entropy_options_read(heed_context *ctx, const char *function,
                                             const heed_cross_entropy_options *theirs,
                                             heed_cross_entropy_options *out) {
  heed_cross_entropy_options_init(out, sizeof *out);
  if (theirs == NULL) return HEED_OK;
  const heed_status status =
      heed__struct_read(ctx, function, "options", "heed_cross_entropy_options", theirs, out, sizeof *out);
  if (status != HEED_OK) return status;
  if ((unsigned)out->reduction > HEED_REDUCTION_NONE)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: reduction is %d; it must be one of heed_reduction", function,
                      (int)out->reduction);
  return heed__check_probability(ctx, function, "label_smoothing", out->label_smoothing);
}

static heed_status take_weight(heed_context *ctx, heed__class_losses *l, const char *function,
                               const heed_tensor *weight) {
  char text[HEED__SHAPE_TEXT];
  const heed_tensor *packed;
  l->weight_sum = (double)l->classes;
  if (weight == NULL) return HEED_OK;
  heed_status status = heed__check_dtype(ctx, function, "weight", weight, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  if (weight->ndim != 1 || weight->shape[0] != l->classes)
    return heed__fail(ctx, HEED_SHAPE, "%s: weight is %s; it must be [%" PRId64 "], one for each class",
                      function, heed__shape_text(text, weight->ndim, weight->shape), l->classes);
  if (ctx->recorder != NULL && heed__wants_gradient(weight))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: weight requires a gradient, and has none; use weight:detach()",
                      function);
  status = heed__as_contiguous(ctx, function, weight, HEED_FLOAT32, &packed, &l->made[1]);
  if (status != HEED_OK) return status;
  l->weight = (const float *)(const void *)packed->data;
  l->weight_sum = 0;
  for (int64_t i = 0; i < l->classes; i++) l->weight_sum += (double)l->weight[i];
  return HEED_OK;
}

static double target_weight(const heed__class_losses *l, int64_t row) {
  const int64_t class = l->target[row];
  if (class == l->ignore_index) return 0;
  return l->weight ? (double)l->weight[class - 1] : 1;
}

/* Checks the classes, and sums their weights. */
static heed_status check_classes(heed_context *ctx, heed__class_losses *l, const char *function,
                                 const char *logits) {
  double weights = 0;
  for (int64_t i = 0; i < l->rows; i++) {
    const int64_t class = l->target[i];
    if (heed__is_due_at(&ctx->pace, i)) {
      const heed_status status = heed__stopped(ctx, function);
      if (status != HEED_OK) return status;
    }
    if ((class < 1 || class > l->classes) && class != l->ignore_index)
      return heed__fail(ctx, HEED_INDEX,
                        "%s: target has the class %" PRId64 "; classes must be from 1 to %" PRId64
                        ", the size of %s's class dimension%s",
                        function, class, l->classes, logits,
                        class == 0 ? "; for classes that count from 0, use target + 1" : "");
    weights += target_weight(l, i);
  }
  if (l->reduction == HEED_REDUCTION_MEAN) l->divisor = weights;
  return HEED_OK;
}

void heed__dim_to_end(heed_tensor *view, const heed_tensor *x, int d) {
  heed__alias_on_stack(view, x);
  for (int i = d; i + 1 < x->ndim; i++) {
    view->shape[i] = x->shape[i + 1];
    view->stride[i] = x->stride[i + 1];
  }
  view->shape[x->ndim - 1] = x->shape[d];
  view->stride[x->ndim - 1] = x->stride[d];
}

heed_status heed__class_losses_begin(heed_context *ctx, heed__class_losses *l, const char *function,
                                     const char *logits, int ndim, const int64_t *shape, int dim,
                                     const heed_tensor *target, const heed_cross_entropy_options *options) {
  char text[HEED__SHAPE_TEXT], target_text[HEED__SHAPE_TEXT];
  int64_t rest[HEED_MAX_DIMS];
  const heed_tensor *packed;
  *l = (heed__class_losses){.kernels = heed__kernels_of(ctx),
                            .rows = 1,
                            .classes = shape[dim],
                            .ignore_index = options->ignore_index,
                            .smoothing = options->label_smoothing,
                            .reduction = options->reduction,
                            .divisor = 1};
  for (int i = 0, j = 0; i < ndim; i++) {
    if (i == dim) continue;
    rest[j++] = shape[i];
    l->rows *= shape[i];
  }
  heed_status status = take_weight(ctx, l, function, options->weight);
  if (status != HEED_OK) return status;
  if (heed__same_shape(target->ndim, target->shape, ndim, shape) && target->dtype != HEED_INT64) {
    heed_tensor turned;
    if (target->dtype != HEED_FLOAT32)
      return heed__fail(
          ctx, HEED_DTYPE,
          "%s: target is %s; it must be float32, as it has the shape of %s: probabilities of the "
          "classes",
          function, heed_dtype_name(target->dtype), logits);
    heed__dim_to_end(&turned, target, dim);
    status = heed__as_contiguous(ctx, function, &turned, HEED_FLOAT32, &packed, &l->made[0]);
    if (status != HEED_OK) return status;
    l->share = (const float *)(const void *)packed->data;
    if (l->reduction == HEED_REDUCTION_MEAN) l->divisor = (double)l->rows;
    return HEED_OK;
  }
  status = heed__check_dtype(ctx, function, "target", target, HEED_INT64);
  if (status != HEED_OK) return status;
  if (!heed__same_shape(target->ndim, target->shape, ndim - 1, rest))
    return heed__fail(
        ctx, HEED_SHAPE,
        "%s: %s is %s and target is %s; target must have the shape of %s without dimension %d, the "
        "classes%s",
        function, logits, heed__shape_text(text, ndim, shape),
        heed__shape_text(target_text, target->ndim, target->shape), logits, dim + 1,
        ndim == 3 && dim == 1 && heed__same_shape(target->ndim, target->shape, ndim - 1, shape)
            ? "; if the classes are last, use input:flatten(1, 2) and target:flatten()"
            : "");
  status = heed__as_contiguous(ctx, function, target, HEED_INT64, &packed, &l->made[0]);
  if (status != HEED_OK) return status;
  l->target = (const int64_t *)(const void *)packed->data;
  return check_classes(ctx, l, function, logits);
}

void heed__class_losses_end(heed__class_losses *l) {
  heed_tensor_free(l->made[0]);
  heed_tensor_free(l->made[1]);
}

/* ---- Rows ---- */

/* Σ w_j x_j */
static double weighted_sum(const heed__class_losses *l, const float *x) {
  const size_t n = (size_t)l->classes;
  return l->weight ? (double)l->kernels->dot(l->weight, 1, x, 1, n) : (double)l->kernels->sum(x, n);
}

/* The target of class j. */
static inline double share_of(const heed__class_losses *l, const float *share, int64_t j) {
  return (double)share[j] * (1 - l->smoothing) + l->smoothing / (double)l->classes;
}

float heed__class_loss(const heed__class_losses *l, int64_t row, const float *x, float most,
                       float log_total) {
  double loss = 0;
  if (l->share) {
    const float *share = l->share + row * l->classes;
    for (int64_t j = 0; j < l->classes; j++) {
      const double weight = l->weight ? (double)l->weight[j] : 1;
      loss -= weight * share_of(l, share, j) * (double)(x[j] - most - log_total);
    }
    return (float)loss;
  }
  if (l->target[row] == l->ignore_index) return 0;
  loss = -target_weight(l, row) * (double)(x[l->target[row] - 1] - most - log_total);
  if (l->smoothing > 0) {
    const double spread = ((double)most + (double)log_total) * l->weight_sum - weighted_sum(l, x);
    loss = (1 - l->smoothing) * loss + l->smoothing / (double)l->classes * spread;
  }
  return (float)loss;
}

void heed__class_gradient(const heed__class_losses *l, int64_t row, const float *x, float most,
                          float log_total, double factor, float *dx) {
  const size_t n = (size_t)l->classes;
  const double spread = l->smoothing / (double)l->classes;
  if (l->share) {
    const float *share = l->share + row * l->classes;
    double total = 0;
    for (int64_t j = 0; j < l->classes; j++)
      total += (l->weight ? (double)l->weight[j] : 1) * share_of(l, share, j);
    l->kernels->softmax_scaled(dx, x, most, log_total, (float)(factor * total), n);
    for (int64_t j = 0; j < l->classes; j++)
      dx[j] -= (float)(factor * (l->weight ? (double)l->weight[j] : 1) * share_of(l, share, j));
    return;
  }
  if (l->target[row] == l->ignore_index) {
    memset(dx, 0, n * sizeof *dx);
    return;
  }
  const double own = (1 - l->smoothing) * target_weight(l, row);
  l->kernels->softmax_scaled(dx, x, most, log_total, (float)(factor * (own + spread * l->weight_sum)), n);
  dx[l->target[row] - 1] -= (float)(factor * own);
  if (l->smoothing == 0) return;
  const float each = (float)(factor * spread);
  if (l->weight) {
    for (size_t j = 0; j < n; j++) dx[j] -= each * l->weight[j];
  } else {
    l->kernels->sub(dx, dx, 1, &each, 0, n);
  }
}

void heed__class_target_gradient(const heed__class_losses *l, const float *x, float most, float log_total,
                                 double factor, float *dtarget) {
  for (int64_t j = 0; j < l->classes; j++) {
    const double weight = l->weight ? (double)l->weight[j] : 1;
    dtarget[j] = (float)(-factor * (1 - l->smoothing) * weight * (double)(x[j] - most - log_total));
  }
}

float heed__class_reduced(const heed__class_losses *l, const float *loss) {
  double sum = 0;
  for (int64_t i = 0; i < l->rows; i++) sum += (double)loss[i];
  return (float)(sum / l->divisor);
}
