/* The gradients of layer norm and RMS norm. */
#include "grad.h"

#define NORM_BLOCK   64                 /* rows whose parts of dweight and dbias are summed in float32 */
#define NORM_PART    ((int64_t)1 << 14) /* elements of a task */
#define NORM_CALL    ((int64_t)1 << 16) /* elements between cancellation checks */
#define NORM_COLUMNS 256                /* that a task of the last step sums */

typedef struct norm_job {
  const heed__kernels *kernels;
  const heed__pace *pace;
  heed__norm_backward_task whole; /* all rows; dweight and dbias are the results */
  float *weight_sums, *bias_sums; /* [blocks, n], or NULL */
  int64_t rows, n, blocks, part;  /* part: blocks of a task */
} norm_job;

static void norm_block_rows(const norm_job *j, int64_t block) {
  const int64_t last = heed__min((block + 1) * NORM_BLOCK, j->rows), step = heed__max(1, NORM_CALL / j->n);
  heed__norm_backward_task t = j->whole;
  t.dweight = j->weight_sums ? j->weight_sums + block * j->n : NULL;
  t.dbias = j->bias_sums ? j->bias_sums + block * j->n : NULL;
  for (int64_t i = 0; i < j->n; i++) {
    if (t.dweight) t.dweight[i] = 0;
    if (t.dbias) t.dbias[i] = 0;
  }
  for (int64_t first = block * NORM_BLOCK; first < last && !heed__is_due(j->pace); first += step) {
    const ptrdiff_t at = (ptrdiff_t)(first * j->n);
    t.x = j->whole.x + at;
    t.dy = j->whole.dy + at;
    t.dx = j->whole.dx ? j->whole.dx + at : NULL;
    t.rows = (size_t)heed__min(step, last - first);
    j->kernels->norm_backward(&t);
  }
}

static void norm_part(void *argument, int64_t task, int worker) {
  const norm_job *j = argument;
  (void)worker;
  for (int64_t b = task * j->part; b < heed__min((task + 1) * j->part, j->blocks); b++) norm_block_rows(j, b);
}

static void add_blocks(const norm_job *j, float *out, const float *sums, int64_t first, int64_t count) {
  double total[NORM_COLUMNS] = {0};
  for (int64_t b = 0; b < j->blocks && !heed__is_due_at(j->pace, b); b++) {
    const float *row = sums + b * j->n + first;
    for (int64_t i = 0; i < count; i++) total[i] += (double)row[i];
  }
  for (int64_t i = 0; i < count; i++) out[first + i] = (float)total[i];
}

static void sums_part(void *argument, int64_t task, int worker) {
  const norm_job *j = argument;
  const int64_t first = task * NORM_COLUMNS, count = heed__min(NORM_COLUMNS, j->n - first);
  (void)worker;
  if (j->weight_sums) add_blocks(j, j->whole.dweight, j->weight_sums, first, count);
  if (j->bias_sums) add_blocks(j, j->whole.dbias, j->bias_sums, first, count);
}

/* *block: the sums of the blocks of rows, which the caller releases. */
static heed_status run_norm(heed_context *ctx, const char *function, norm_job *j, void **block) {
  const int sums = (j->whole.dweight != NULL) + (j->whole.dbias != NULL);
  if (sums > 0) {
    const size_t bytes =
        heed__array_bytes((uint64_t)j->blocks, heed__array_bytes((uint64_t)(sums * j->n), 4));
    float *at = *block = heed__allocate(ctx, bytes);
    if (at == NULL) return heed__fail_memory(ctx, function, bytes);
    if (j->whole.dweight) {
      j->weight_sums = at;
      at += j->blocks * j->n;
    }
    if (j->whole.dbias) j->bias_sums = at;
  }
  if (!heed__parallel(ctx, heed__parts(j->blocks, j->part), norm_part, j) ||
      (sums > 0 && !heed__parallel(ctx, heed__parts(j->n, NORM_COLUMNS), sums_part, j)))
    return heed__stopped(ctx, function);
  return HEED_OK;
}

heed_status heed__norm_gradient(heed_context *ctx, const char *function, bool centred, const heed_tensor *x,
                                int ndims, const heed_tensor *weight, double epsilon, const heed_tensor *dy,
                                heed_tensor **dx, heed_tensor **dweight, heed_tensor **dbias) {
  enum { X, DY, WEIGHT, INPUTS, DX = 0, DWEIGHT, DBIAS, OUTPUTS };
  const heed_tensor *given[INPUTS] = {x, dy, weight}, *packed[INPUTS] = {NULL};
  heed_tensor **wanted[OUTPUTS] = {dx, dweight, dbias}, *copies[INPUTS] = {NULL}, *made[OUTPUTS] = {NULL};
  const int64_t *sizes = x->shape + x->ndim - ndims;
  float *out[OUTPUTS] = {NULL};
  void *block = NULL;
  heed_status status = HEED_OK;
  for (int i = 0; i < INPUTS && status == HEED_OK; i++) {
    if (given[i]) status = heed__as_contiguous(ctx, function, given[i], HEED_FLOAT32, &packed[i], &copies[i]);
  }
  for (int i = 0; i < OUTPUTS && status == HEED_OK; i++) {
    if (wanted[i] == NULL) continue;
    status = i == DX ? heed__tensor_new(ctx, function, HEED_FLOAT32, x->ndim, x->shape, &made[i])
                     : heed__tensor_new(ctx, function, HEED_FLOAT32, ndims, sizes, &made[i]);
    if (status == HEED_OK) out[i] = (float *)(void *)made[i]->data;
  }
  if (status == HEED_OK) {
    int64_t n = 1;
    for (int i = 0; i < ndims; i++) n *= sizes[i];
    const int64_t rows = n > 0 ? x->numel / n : 0;
    norm_job job = {.kernels = heed__kernels_of(ctx),
                    .pace = &ctx->pace,
                    .whole = {.x = (const float *)(const void *)packed[X]->data,
                              .dy = (const float *)(const void *)packed[DY]->data,
                              .weight = weight ? (const float *)(const void *)packed[WEIGHT]->data : NULL,
                              .dx = out[DX],
                              .dweight = out[DWEIGHT],
                              .dbias = out[DBIAS],
                              .n = (size_t)n,
                              .epsilon = (float)epsilon,
                              .centred = centred},
                    .rows = rows,
                    .n = n,
                    .blocks = heed__parts(rows, NORM_BLOCK),
                    .part = n > 0 ? heed__max(1, NORM_PART / (NORM_BLOCK * n)) : 1};
    if (n > 0) status = run_norm(ctx, function, &job, &block);
  }
  for (int i = 0; i < OUTPUTS && status == HEED_OK; i++) {
    if (wanted[i] == NULL) continue;
    *wanted[i] = made[i];
    made[i] = NULL;
  }
  heed__release(ctx, block);
  for (int i = 0; i < INPUTS; i++) heed_tensor_free(copies[i]);
  for (int i = 0; i < OUTPUTS; i++) heed_tensor_free(made[i]);
  return status;
}

/* ---- Nodes ---- */

static heed_status norm_node(heed__backward *b, bool centred) {
  const heed__norm_values *values = b->values;
  heed_tensor x, weight;
  heed_tensor **wanted[3];
  for (int i = 0; i < 3; i++) wanted[i] = heed__backward_wants(b, i) ? &b->dx[i] : NULL;
  if (!wanted[0] && !wanted[1]) return heed__backward_same(b, 2); /* x was not kept */
  return heed__norm_gradient(b->ctx, b->function, centred, heed__backward_input(b, 0, &x), values->ndims,
                             heed__backward_has(b, 1) ? heed__backward_input(b, 1, &weight) : NULL,
                             values->epsilon, b->dy[0], wanted[0], wanted[1], wanted[2]);
}

heed_status heed__layer_norm_backward(heed__backward *b) {
  return norm_node(b, true);
}

heed_status heed__rms_norm_backward(heed__backward *b) {
  return norm_node(b, false);
}
