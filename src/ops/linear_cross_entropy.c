/* Cross entropy of a linear map, in chunks of rows: the logits of a chunk become their gradient, from which
 * those of x, weight and bias follow, and are then overwritten by the next chunk. */
#include <string.h>

#include "ops.h"

#define CHUNK_LOGITS  ((int64_t)1 << 23) /* 32 MiB */
#define ADDED_FLOATS  ((int64_t)1 << 20) /* of the product that is added to dweight at a time */
#define ADDED_AT_ONCE ((int64_t)1 << 14) /* floats of a task */
#define BIAS_ROWS     32                 /* rows of a group whose sum is added to dbias */

/* ---- A chunk of rows ---- */

typedef struct chunk_job {
  const heed__class_losses *losses;
  const float *dy;
  float *logits, *loss; /* loss: NULL if not wanted */
  bool gradient;        /* the logits become their gradient */
  int64_t first;        /* the row of the first logits */
} chunk_job;

static void chunk_row(void *argument, int64_t i, int worker) {
  const chunk_job *j = argument;
  const heed__class_losses *l = j->losses;
  const int64_t row = j->first + i;
  float *x = j->logits + i * l->classes, most;
  (void)worker;
  const float log_total = l->kernels->log_sum_exp(x, (size_t)l->classes, &most);
  if (j->loss) j->loss[row] = heed__class_loss(l, row, x, most, log_total);
  if (j->gradient) {
    const float one = 1;
    const double factor = j->dy                                 ? heed__class_factor(l, row, j->dy)
                          : l->reduction == HEED_REDUCTION_NONE ? 1
                                                                : heed__class_factor(l, row, &one);
    heed__class_gradient(l, row, x, most, log_total, factor, x);
  }
}

typedef struct add_job {
  const heed__kernels *kernels;
  float *to;
  const float *from;
  int64_t count;
} add_job;

static void add_part(void *argument, int64_t task, int worker) {
  const add_job *j = argument;
  const int64_t first = task * ADDED_AT_ONCE, n = heed__min(ADDED_AT_ONCE, j->count - first);
  (void)worker;
  j->kernels->add(j->to + first, j->to + first, 1, j->from + first, 1, (size_t)n);
}

typedef struct chunks {
  heed_context *ctx;
  const heed__class_losses *losses;
  const float *x, *weight, *bias;
  float *dx, *dweight, *dbias; /* NULL: not wanted */
  int64_t d, rows;             /* rows of a chunk */
  float *logits, *product;     /* [rows, classes], and ADDED_FLOATS or a row of dweight */
} chunks;

/* dweight (+)= dlogitsᵀ x, some of its rows at a time. */
static bool add_weight_gradient(const chunks *c, int64_t first, int64_t count) {
  const int64_t classes = c->losses->classes, step = heed__max(1, ADDED_FLOATS / heed__max(1, c->d));
  for (int64_t row = 0; row < classes; row += step) {
    const int64_t some = heed__min(step, classes - row);
    float *to = c->dweight + row * c->d;
    if (!heed__gemm(c->ctx, some, c->d, count, c->logits + row, 1, classes, c->x + first * c->d, c->d, 1,
                    NULL, first == 0 ? to : c->product, c->d))
      return false;
    add_job job = {c->losses->kernels, to, c->product, some * c->d};
    if (first > 0 && !heed__parallel(c->ctx, heed__parts(job.count, ADDED_AT_ONCE), add_part, &job))
      return false;
  }
  return true;
}

/* False if a cancellation check stops it. */
static bool run_chunk(const chunks *c, int64_t first, const float *dy, float *loss) {
  const heed__class_losses *l = c->losses;
  const int64_t count = heed__min(c->rows, l->rows - first), classes = l->classes;
  const bool gradient = c->dx || c->dweight || c->dbias;
  if (!heed__gemm(c->ctx, count, classes, c->d, c->x + first * c->d, c->d, 1, c->weight, 1, c->d, c->bias,
                  c->logits, classes))
    return false;
  chunk_job job = {l, dy, c->logits, loss, gradient, first};
  if (!heed__parallel(c->ctx, count, chunk_row, &job)) return false;
  if (c->dx && !heed__gemm(c->ctx, count, c->d, classes, c->logits, classes, 1, c->weight, c->d, 1, NULL,
                           c->dx + first * c->d, c->d))
    return false;
  for (int64_t row = 0; c->dbias && row < count; row += BIAS_ROWS)
    l->kernels->sum_across(c->dbias, c->logits + row * classes, (ptrdiff_t)classes,
                           (size_t)heed__min(BIAS_ROWS, count - row), 1, (size_t)classes);
  return !c->dweight || add_weight_gradient(c, first, count);
}

static const float *floats_of(const heed_tensor *x) {
  return x ? (const float *)(const void *)x->data : NULL;
}
static float *results_of(heed_tensor *x) {
  return x ? (float *)(void *)x->data : NULL;
}

heed_status heed__linear_class_losses(heed_context *ctx, const char *function, const heed__class_losses *l,
                                      const heed_tensor *x, const heed_tensor *weight,
                                      const heed_tensor *bias, const float *dy, float *loss,
                                      const heed__linear_class_gradients *g) {
  chunks c = {.ctx = ctx,
              .losses = l,
              .x = floats_of(x),
              .weight = floats_of(weight),
              .bias = floats_of(bias),
              .dx = results_of(g->dx),
              .dweight = results_of(g->dweight),
              .dbias = results_of(g->dbias),
              .d = weight->shape[1],
              .rows = heed__max(1, heed__min(l->rows, CHUNK_LOGITS / l->classes))};
  const int gradients = (c.dx != NULL) + (c.dweight != NULL);
  heed_status status = heed__charge(ctx, function,
                                    (double)l->rows * (double)l->classes *
                                        ((double)c.d * (1 + gradients) + (c.dbias != NULL)));
  if (status) return status;
  const int64_t added = c.dweight ? heed__min(l->classes * c.d, heed__max(c.d, ADDED_FLOATS)) : 0;
  const size_t bytes =
      heed__array_bytes((uint64_t)c.rows, heed__array_bytes((uint64_t)l->classes, sizeof(float))) +
      heed__array_bytes((uint64_t)added, sizeof(float));
  if (c.dbias) memset(c.dbias, 0, (size_t)l->classes * sizeof *c.dbias);
  if (c.dweight && l->rows == 0) memset(c.dweight, 0, (size_t)g->dweight->numel * sizeof *c.dweight);
  c.logits = heed__allocate(ctx, bytes);
  if (c.logits == NULL) return heed__fail_memory(ctx, function, bytes);
  c.product = c.logits + c.rows * l->classes;
  for (int64_t first = 0; first < l->rows && status == HEED_OK; first += c.rows) {
    if (!run_chunk(&c, first, dy, loss)) status = heed__stopped(ctx, function);
  }
  heed__release(ctx, c.logits);
  return status;
}

/* ---- The operation ---- */

static heed_status check_operands(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                                  const heed_tensor *bias) {
  static const char function[] = "linear_cross_entropy";
  char text[HEED__SHAPE_TEXT], x_text[HEED__SHAPE_TEXT];
  heed_status status = heed__check_dtype(ctx, function, "x", x, HEED_FLOAT32);
  if (status == HEED_OK) status = heed__check_dtype(ctx, function, "weight", weight, HEED_FLOAT32);
  if (status == HEED_OK && bias) status = heed__check_dtype(ctx, function, "bias", bias, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  if (weight->ndim != 2 || weight->shape[0] == 0)
    return heed__fail(ctx, HEED_SHAPE, "%s: weight is %s; it must be [c, d], with a row for each class",
                      function, heed__shape_text(text, weight->ndim, weight->shape));
  if (x->ndim == 0 || x->shape[x->ndim - 1] != weight->shape[1])
    return heed__fail(ctx, HEED_SHAPE, "%s: x is %s and weight is %s; the last sizes must be equal", function,
                      heed__shape_text(x_text, x->ndim, x->shape),
                      heed__shape_text(text, weight->ndim, weight->shape));
  if (bias == NULL || heed__same_shape(bias->ndim, bias->shape, 1, weight->shape)) return HEED_OK;
  return heed__fail(ctx, HEED_SHAPE, "%s: bias is %s and weight is %s; bias must be the first size of weight",
                    function, heed__shape_text(x_text, bias->ndim, bias->shape),
                    heed__shape_text(text, weight->ndim, weight->shape));
}

/* The gradients that are wanted, as new tensors. */
static heed_status new_gradients(heed_context *ctx, const char *function, const heed_tensor *const *input,
                                 heed_tensor **made) {
  heed_status status = HEED_OK;
  for (int i = 0; i < 3 && status == HEED_OK; i++) {
    if (input[i] && heed__wants_gradient(input[i]))
      status = heed__tensor_new(ctx, function, HEED_FLOAT32, input[i]->ndim, input[i]->shape, &made[i]);
  }
  return status;
}

heed_status heed_linear_cross_entropy(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                                      const heed_tensor *bias, const heed_tensor *target,
                                      const heed_cross_entropy_options *options, heed_tensor **out) {
  static const char function[] = "linear_cross_entropy";
  enum { X, WEIGHT, BIAS, OPERANDS };
  HEED__ENTER(ctx, "linear_cross_entropy", x, weight, target, out);
  HEED__MAY_ENTER(ctx, "linear_cross_entropy", bias);
  heed_cross_entropy_options own, *const o = &own;
  heed_status status = heed__cross_entropy_options_read(ctx, function, options, &own);
  if (status == HEED_OK) status = check_operands(ctx, x, weight, bias);
  if (status != HEED_OK) return status;
  HEED__MAY_ENTER(ctx, "linear_cross_entropy", o->weight);
  const heed_tensor *input[OPERANDS] = {x, weight, bias}, *packed[OPERANDS] = {NULL};
  heed_tensor *copies[OPERANDS] = {NULL}, *gradient[OPERANDS] = {NULL}, *each = NULL;
  heed__class_losses l = {0};
  heed__result result = {0};
  int64_t shape[HEED_MAX_DIMS];
  const bool reduced = own.reduction != HEED_REDUCTION_NONE;
  for (int i = 0; i < x->ndim; i++) shape[i] = i + 1 < x->ndim ? x->shape[i] : weight->shape[0];
  status =
      heed__class_losses_begin(ctx, &l, function, "x · weightᵀ", x->ndim, shape, x->ndim - 1, target, &own);
  for (int i = 0; i < OPERANDS && status == HEED_OK; i++) {
    if (input[i]) status = heed__as_contiguous(ctx, function, input[i], HEED_FLOAT32, &packed[i], &copies[i]);
  }
  if (status == HEED_OK && ctx->recorder != NULL && reduced)
    status = new_gradients(ctx, function, input, gradient);
  if (status == HEED_OK && reduced) status = heed__tensor_new(ctx, function, HEED_FLOAT32, 1, &l.rows, &each);
  if (status == HEED_OK)
    status = heed__result_begin_row_major(ctx, function, &result, out, HEED_FLOAT32,
                                          reduced ? 0 : x->ndim - 1, shape, 5,
                                          (const heed_tensor *const[]){x, weight, bias, target, own.weight});
  if (status == HEED_OK) {
    float *to = (float *)(void *)result.tensor->data, *loss = reduced ? (float *)(void *)each->data : to;
    const heed__linear_class_gradients g = {gradient[X], gradient[WEIGHT], gradient[BIAS]};
    status =
        heed__linear_class_losses(ctx, function, &l, packed[X], packed[WEIGHT], packed[BIAS], NULL, loss, &g);
    if (status == HEED_OK && reduced) *to = heed__class_reduced(&l, loss);
  }
  heed__class_losses_end(&l);
  status = heed__result_end(ctx, &result, status);
  const heed__cross_entropy_values values = {x->ndim - 1, own.ignore_index, own.reduction,
                                             own.label_smoothing};
  status = heed__recorded(ctx, status, HEED__OP_linear_cross_entropy, 8,
                          (const heed_tensor *const[]){x, weight, bias, target, own.weight, gradient[X],
                                                       gradient[WEIGHT], gradient[BIAS]},
                          &values, sizeof values, out);
  for (int i = 0; i < OPERANDS; i++) {
    heed_tensor_free(copies[i]);
    heed_tensor_free(gradient[i]);
  }
  heed_tensor_free(each);
  return status;
}
