/* Cross entropy of logits. */
#include "ops.h"

#define LOSS_PART ((int64_t)1 << 14) /* logits of a task */

typedef struct loss_job {
  const heed__class_losses *losses;
  const float *logits; /* [rows, classes] */
  float *loss;         /* [rows] */
  float *statistics;   /* [rows, 2], or NULL */
  int64_t part;        /* rows of a task */
} loss_job;

static void loss_part(void *argument, int64_t task, int worker) {
  const loss_job *j = argument;
  const heed__class_losses *l = j->losses;
  (void)worker;
  for (int64_t row = task * j->part; row < heed__min((task + 1) * j->part, l->rows); row++) {
    const float *x = j->logits + row * l->classes;
    float most;
    const float log_total = l->kernels->log_sum_exp(x, (size_t)l->classes, &most);
    j->loss[row] = heed__class_loss(l, row, x, most, log_total);
    if (j->statistics == NULL) continue;
    j->statistics[2 * row] = most;
    j->statistics[2 * row + 1] = log_total;
  }
}

static heed_status check_logits(heed_context *ctx, const heed_tensor *logits) {
  const heed_status status = heed__check_dtype(ctx, "cross_entropy", "input", logits, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  if (logits->ndim == 0)
    return heed__fail(ctx, HEED_SHAPE,
                      "cross_entropy: input has no dimensions; it must be [c], [n, c] or [n, c, …], with c "
                      "classes");
  const int dim = logits->ndim == 1 ? 0 : 1;
  if (logits->shape[dim] > 0) return HEED_OK;
  return heed__fail(ctx, HEED_SHAPE, "cross_entropy: input has no classes; dimension %d must not be 0",
                    dim + 1);
}

static heed_status cross_entropy(heed_context *ctx, const heed_tensor *logits, const heed_tensor *target,
                                 const heed_cross_entropy_options *options, heed_tensor **statistics,
                                 heed_tensor **out) {
  static const char function[] = "cross_entropy";
  const int dim = logits->ndim == 1 ? 0 : 1;
  heed__class_losses l;
  heed__result result = {0};
  heed_tensor turned, *made = NULL, *each = NULL;
  const heed_tensor *packed = NULL;
  heed__dim_to_end(&turned, logits, dim);
  const bool reduced = options->reduction != HEED_REDUCTION_NONE;
  heed_status status =
      heed__class_losses_begin(ctx, &l, function, "input", logits->ndim, logits->shape, dim, target, options);
  if (status == HEED_OK) status = heed__as_contiguous(ctx, function, &turned, HEED_FLOAT32, &packed, &made);
  if (status == HEED_OK && reduced) status = heed__tensor_new(ctx, function, HEED_FLOAT32, 1, &l.rows, &each);
  if (status == HEED_OK && statistics)
    status = heed__tensor_new(ctx, function, HEED_FLOAT32, 2, (const int64_t[]){l.rows, 2}, statistics);
  if (status == HEED_OK)
    status = heed__result_begin_row_major(ctx, function, &result, out, HEED_FLOAT32,
                                          reduced ? 0 : logits->ndim - 1, turned.shape, 3,
                                          (const heed_tensor *const[]){logits, target, options->weight});
  if (status == HEED_OK) {
    float *to = (float *)(void *)result.tensor->data;
    loss_job job = {.losses = &l,
                    .logits = (const float *)(const void *)packed->data,
                    .loss = reduced ? (float *)(void *)each->data : to,
                    .statistics = statistics ? (float *)(void *)(*statistics)->data : NULL,
                    .part = heed__max(1, LOSS_PART / l.classes)};
    if (!heed__parallel(ctx, heed__parts(l.rows, job.part), loss_part, &job))
      status = heed__stopped(ctx, function);
    if (status == HEED_OK && reduced) *to = heed__class_reduced(&l, job.loss);
  }
  heed_tensor_free(made);
  heed_tensor_free(each);
  heed__class_losses_end(&l);
  return heed__result_end(ctx, &result, status);
}

heed_status heed_cross_entropy(heed_context *ctx, const heed_tensor *logits, const heed_tensor *target,
                               const heed_cross_entropy_options *options, heed_tensor **out) {
  HEED__ENTER(ctx, "cross_entropy", logits, target, out);
  heed_cross_entropy_options own, *const o = &own;
  heed_tensor *statistics = NULL;
  heed_status status = heed__cross_entropy_options_read(ctx, "cross_entropy", options, &own);
  if (status == HEED_OK) status = check_logits(ctx, logits);
  if (status != HEED_OK) return status;
  HEED__MAY_ENTER(ctx, "cross_entropy", o->weight);
  const bool recorded =
      ctx->recorder != NULL && (heed__wants_gradient(logits) || heed__wants_gradient(target));
  status = cross_entropy(ctx, logits, target, &own, recorded ? &statistics : NULL, out);
  const heed__cross_entropy_values values = {logits->ndim == 1 ? 0 : 1, own.ignore_index, own.reduction,
                                             own.label_smoothing};
  status = heed__recorded(ctx, status, HEED__OP_cross_entropy, 4,
                          (const heed_tensor *const[]){logits, target, own.weight, statistics}, &values,
                          sizeof values, out);
  heed_tensor_free(statistics);
  return status;
}
