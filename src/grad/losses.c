/* The gradients of cross entropy. */
#include "grad.h"

#define LOSS_GRADIENT_PART ((int64_t)1 << 14) /* logits of a task */

typedef struct loss_gradient {
  const heed__class_losses *losses;
  const float *logits, *statistics, *dy; /* [rows, classes]; [rows, 2]; one, or [rows] */
  float *dx, *dtarget;                   /* NULL: not wanted */
  int64_t part;                          /* rows of a task */
} loss_gradient;

static void loss_gradient_part(void *argument, int64_t task, int worker) {
  const loss_gradient *j = argument;
  const heed__class_losses *l = j->losses;
  (void)worker;
  for (int64_t row = task * j->part; row < heed__min((task + 1) * j->part, l->rows); row++) {
    const int64_t at = row * l->classes;
    const float most = j->statistics[2 * row], log_total = j->statistics[2 * row + 1];
    const double factor = heed__class_factor(l, row, j->dy);
    if (j->dx) heed__class_gradient(l, row, j->logits + at, most, log_total, factor, j->dx + at);
    if (j->dtarget) heed__class_target_gradient(l, j->logits + at, most, log_total, factor, j->dtarget + at);
  }
}

/* The reverse of heed__dim_to_end. */
static void dim_from_end(heed_tensor *x, int d) {
  const int64_t shape = x->shape[x->ndim - 1], stride = x->stride[x->ndim - 1];
  for (int i = x->ndim - 1; i > d; i--) {
    x->shape[i] = x->shape[i - 1];
    x->stride[i] = x->stride[i - 1];
  }
  x->shape[d] = shape;
  x->stride[d] = stride;
}

static heed_cross_entropy_options options_of(const heed__cross_entropy_values *values,
                                             const heed_tensor *weight) {
  return (heed_cross_entropy_options){.size = sizeof(heed_cross_entropy_options),
                                      .weight = weight,
                                      .ignore_index = values->ignore_index,
                                      .reduction = values->reduction,
                                      .label_smoothing = values->label_smoothing};
}

/* PyTorch makes the loss of several operations; this is the last of them. */
const char *heed__cross_entropy_name(const heed__node *node) {
  const heed__cross_entropy_values *values = node->values;
  const int ndim = node->saved[0].ndim;
  const bool is_whole = values->reduction != HEED_REDUCTION_NONE;
  if (node->saved[1].dtype == HEED_FLOAT32)
    return values->reduction == HEED_REDUCTION_MEAN ? "DivBackward1" : "NegBackward0";
  if (values->label_smoothing > 0) return "AddBackward0";
  if (ndim < 3) return "NllLossBackward0";
  return is_whole || ndim == 4 ? "NllLoss2DBackward0" : "ViewBackward0";
}

heed_status heed__cross_entropy_backward(heed__backward *b) {
  enum { LOGITS, TARGET, WEIGHT, STATISTICS };
  const heed__cross_entropy_values *values = b->values;
  heed_tensor input[4], turned, *made[2] = {NULL}, *copy = NULL, *dy_copy = NULL;
  const heed_tensor *logits = heed__backward_input(b, LOGITS, &input[LOGITS]), *packed = NULL, *dy = NULL;
  const heed_tensor *target = heed__backward_input(b, TARGET, &input[TARGET]);
  const heed_tensor *weight =
      heed__backward_has(b, WEIGHT) ? heed__backward_input(b, WEIGHT, &input[WEIGHT]) : NULL;
  const heed_tensor *statistics = heed__backward_input(b, STATISTICS, &input[STATISTICS]);
  const heed_cross_entropy_options options = options_of(values, weight);
  heed__class_losses l;
  heed__dim_to_end(&turned, logits, values->dim);
  heed_status status = heed__class_losses_begin(b->ctx, &l, b->function, "input", logits->ndim, logits->shape,
                                                values->dim, target, &options);
  if (status == HEED_OK)
    status = heed__as_contiguous(b->ctx, b->function, &turned, HEED_FLOAT32, &packed, &copy);
  if (status == HEED_OK)
    status = heed__as_contiguous(b->ctx, b->function, b->dy[0], HEED_FLOAT32, &dy, &dy_copy);
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    if (heed__backward_wants(b, i))
      status = heed__tensor_new(b->ctx, b->function, HEED_FLOAT32, turned.ndim, turned.shape, &made[i]);
  }
  if (status == HEED_OK) {
    loss_gradient job = {.losses = &l,
                         .logits = (const float *)(const void *)packed->data,
                         .statistics = (const float *)(const void *)statistics->data,
                         .dy = (const float *)(const void *)dy->data,
                         .dx = made[0] ? (float *)(void *)made[0]->data : NULL,
                         .dtarget = made[1] ? (float *)(void *)made[1]->data : NULL,
                         .part = heed__max(1, LOSS_GRADIENT_PART / l.classes)};
    if (!heed__parallel(b->ctx, heed__parts(l.rows, job.part), loss_gradient_part, &job))
      status = heed__stopped(b->ctx, b->function);
  }
  for (int i = 0; i < 2; i++) {
    if (made[i] == NULL) continue;
    if (status == HEED_OK) {
      dim_from_end(made[i], values->dim);
      b->dx[i] = made[i];
    } else {
      heed_tensor_free(made[i]);
    }
  }
  heed_tensor_free(copy);
  heed_tensor_free(dy_copy);
  heed__class_losses_end(&l);
  return status;
}

/* ---- linear_cross_entropy ---- */

enum { LINEAR_X, LINEAR_WEIGHT, LINEAR_BIAS, LINEAR_TARGET, LINEAR_CLASS_WEIGHT, LINEAR_GRADIENTS };

/* The gradients that the forward pass computed, times dy; 1 is frequent. */
static heed_status scaled_gradients(heed__backward *b) {
  const bool is_one = *(const float *)(const void *)b->dy[0]->data == 1.0f;
  heed_status status = HEED_OK;
  for (int i = 0; i < 3 && status == HEED_OK; i++) {
    heed_tensor gradient;
    if (!heed__backward_wants(b, i)) continue;
    heed__backward_input(b, LINEAR_GRADIENTS + i, &gradient);
    status = is_one ? heed_tensor_alias(b->ctx, &gradient, &b->dx[i])
                    : heed_mul(b->ctx, &gradient, b->dy[0], &b->dx[i]);
  }
  return status;
}

heed_status heed__linear_cross_entropy_backward(heed__backward *b) {
  const heed__cross_entropy_values *values = b->values;
  if (values->reduction != HEED_REDUCTION_NONE) return scaled_gradients(b);
  heed_tensor header[LINEAR_GRADIENTS], *copies[4] = {NULL}, *made[3] = {NULL};
  const heed_tensor *input[LINEAR_GRADIENTS] = {NULL}, *packed[4] = {NULL};
  for (int i = 0; i < LINEAR_GRADIENTS; i++) {
    if (heed__backward_has(b, i)) input[i] = heed__backward_input(b, i, &header[i]);
  }
  const heed_tensor *x = input[LINEAR_X];
  const heed_cross_entropy_options options = options_of(values, input[LINEAR_CLASS_WEIGHT]);
  heed__class_losses l;
  int64_t shape[HEED_MAX_DIMS];
  for (int i = 0; i < x->ndim; i++) shape[i] = i + 1 < x->ndim ? x->shape[i] : input[LINEAR_WEIGHT]->shape[0];
  heed_status status = heed__class_losses_begin(b->ctx, &l, b->function, "x · weightᵀ", x->ndim, shape,
                                                values->dim, input[LINEAR_TARGET], &options);
  const heed_tensor *operand[4] = {x, input[LINEAR_WEIGHT], input[LINEAR_BIAS], b->dy[0]};
  for (int i = 0; i < 4 && status == HEED_OK; i++) {
    if (operand[i])
      status = heed__as_contiguous(b->ctx, b->function, operand[i], HEED_FLOAT32, &packed[i], &copies[i]);
  }
  for (int i = 0; i < 3 && status == HEED_OK; i++) {
    if (heed__backward_wants(b, i))
      status = heed__tensor_new(b->ctx, b->function, HEED_FLOAT32, input[i]->ndim, input[i]->shape, &made[i]);
  }
  if (status == HEED_OK) {
    const heed__linear_class_gradients g = {made[0], made[1], made[2]};
    status = heed__linear_class_losses(b->ctx, b->function, &l, packed[0], packed[1], packed[2],
                                       (const float *)(const void *)packed[3]->data, NULL, &g);
  }
  for (int i = 0; i < 3; i++) {
    if (status == HEED_OK)
      b->dx[i] = made[i];
    else
      heed_tensor_free(made[i]);
  }
  for (int i = 0; i < 4; i++) heed_tensor_free(copies[i]);
  heed__class_losses_end(&l);
  return status;
}
