/* Attention: the division of a call into tasks. The arithmetic is in the kernels. Sizes are named as in
 * heed.h. */
#include "attention.h"

enum {
  ROWS = 768,      /* of a task, which packs the keys anew: 1 % of its time. Fewer, */
  LEAST_ROWS = 48, /* down to these, until there are so many tasks for each worker */
  TASKS = 4,
  SMALL_ROWS = 16, /* with fewer, and fewer multiply-adds than SMALL, the scalar kernel is the fastest */
  SMALL = 1 << 15,
  ON_STACK = 2048,  /* floats */
  DRAWN = 1 << 18,  /* floats that dropout draws at once, a row at least */
  KEPT = 1 << 19,   /* floats of queries and outputs that a task keeps, a few rows at least */
  MOST_ROWS = 2048, /* more than the rows and keys whose columns lie in a task's scratch */
};

/* Written row by row: those of modules, and those of heed_attention_taps. */
enum { SCORES, WEIGHTS, DROPPED_WEIGHTS, LOGITS, CAPPED_LOGITS, BIASED_LOGITS, TAPS };

/* What the tasks of a call share. */
typedef struct attention_division {
  const heed__attention_problem *problem;
  const heed__kernels *kernels;
  float *taps[TAPS];    /* NULL where not wanted */
  bool tapped, decoded; /* decoded: the outputs are there */
  int64_t rows, blocks; /* of a task, and how many tasks a product has */
  float *scratch;       /* `area` floats for each worker */
  size_t area;
} attention_division;

static size_t aligned(size_t floats) {
  const size_t line = HEED__ALIGNMENT / sizeof(float);
  return (floats + line - 1) / line * line;
}

static size_t scratch_of(const heed__kernels *kernels, const heed__attention_task *task) {
  return aligned((kernels->attention_scratch(task) + sizeof(float) - 1) / sizeof(float));
}

static float *tap(const attention_division *d, int which, int64_t product) {
  return d->taps[which] ? d->taps[which] + product * d->problem->l * d->problem->s : NULL;
}

/* Does rows of a product, with a copy of the problem's task. Taps are written by a pass of their own, so that
 * they change no bit of the output; `keep` as in the task. */
static void run_rows(const attention_division *d, heed__attention_task *task, int64_t product, int64_t first,
                     int64_t last, const float *keep, float *scratch) {
  heed__attention_move(task, d->problem, product);
  task->first = first;
  task->last = last;
  task->keep = keep;
  task->scratch = scratch;
  if (!d->decoded) d->kernels->attention(task);
  if (!d->tapped) return;
  heed__attention_task tapped = *task;
  tapped.out = NULL;
  tapped.scores = tap(d, SCORES, product);
  tapped.weights = tap(d, WEIGHTS, product);
  tapped.dropped_weights = tap(d, DROPPED_WEIGHTS, product);
  tapped.logits = tap(d, LOGITS, product);
  tapped.capped_logits = tap(d, CAPPED_LOGITS, product);
  tapped.biased_logits = tap(d, BIASED_LOGITS, product);
  heed__kernels_scalar.attention(&tapped);
}

/* Task i, the longest (the last rows, where it is causal) first. */
static void run_attention(void *argument, int64_t i, int worker) {
  const attention_division *d = argument;
  const heed__attention_problem *p = d->problem;
  const int64_t first = (d->blocks - 1 - i / p->products) * d->rows;
  const int64_t last = p->l - first < d->rows ? p->l : first + d->rows;
  heed__attention_task task = p->task;
  run_rows(d, &task, i % p->products, first, last, NULL, d->scratch + (size_t)worker * d->area);
}

/* With dropout: in the order in which it draws. */
static void run_in_order(const attention_division *d, heed__dropout *dropout, float *keep) {
  const heed__attention_problem *p = d->problem;
  heed__attention_task task = p->task;
  for (int64_t product = 0; product < p->products; product++) {
    for (int64_t first = 0; first < p->l; first += d->rows) {
      const int64_t last = p->l - first < d->rows ? p->l : first + d->rows, count = (last - first) * p->s;
      for (int64_t i = 0; i < count; i++) keep[i] = 1.0f;
      heed__dropout_apply(dropout, keep, keep, count);
      run_rows(d, &task, product, first, last, keep, d->scratch);
    }
  }
}

static int64_t blocks_of(const heed__attention_problem *p, int64_t rows) {
  return heed__quotient(p->l + rows - 1, rows);
}

static int64_t rows_of_task(const heed__attention_problem *p, bool drops, int64_t workers) {
  int64_t rows = ROWS;
  while (rows > 6 && rows > heed__quotient(KEPT, p->d + p->dv + 1)) rows /= 2;
  if (drops && rows > DRAWN / p->s) rows = DRAWN / p->s > 0 ? DRAWN / p->s : 1;
  while (workers > 1 && rows > LEAST_ROWS && blocks_of(p, rows) * p->products < TASKS * workers) rows /= 2;
  return rows < p->l ? rows : p->l;
}

/* What the scalar kernel does fastest: few rows, but not so few keys that the vector kernels have a way for
 * them. */
static bool is_scalar(const heed__attention_problem *p) {
  return !heed__attention_is_small(&p->task) && p->l < SMALL_ROWS &&
         (double)p->l * (double)p->s * (double)(p->d + p->dv) < SMALL;
}

static float *data_of(const heed_tensor *x) {
  return x ? (float *)(void *)x->data : NULL;
}

/* taps: of the result, NULL if they are not wanted. */
static heed_status run(heed_context *ctx, const heed__attention_call *call, const heed__attention_problem *p,
                       const heed_attention_taps *taps) {
  const heed_attention_options *o = &call->options;
  const bool scalar = is_scalar(p), drops = o->dropout_p > 0 && p->s > 0;
  const bool small = scalar || heed__attention_is_small(&p->task);
  attention_division d = {.problem = p, .kernels = scalar ? &heed__kernels_scalar : heed__kernels_of(ctx)};
  d.taps[SCORES] = data_of(call->scores);
  d.taps[WEIGHTS] = data_of(taps ? taps->weights : call->weights);
  d.taps[DROPPED_WEIGHTS] = data_of(call->dropped_weights);
  if (taps) {
    d.taps[LOGITS] = data_of(taps->logits);
    d.taps[CAPPED_LOGITS] = data_of(taps->capped_logits);
    d.taps[BIASED_LOGITS] = data_of(taps->biased_logits);
  }
  for (int i = 0; i < TAPS; i++) d.tapped = d.tapped || d.taps[i];
  if (!drops && heed__attention_is_decode(p)) {
    const heed_status status = heed__attention_decode(ctx, call->function, p);
    if (status || !d.tapped) return status;
    d.decoded = true;
  }
  const int64_t most_workers = drops || small ? 1 : heed__workers(ctx);
  d.rows = rows_of_task(p, drops, most_workers);
  d.blocks = blocks_of(p, d.rows);
  const int64_t tasks = d.blocks * p->products, workers = most_workers < tasks ? most_workers : tasks;
  heed__attention_task task = p->task;
  task.last = d.rows;
  const size_t most = PTRDIFF_MAX / sizeof(float), drawn = drops ? (size_t)(d.rows * p->s) : 0;
  bool fits =
      drawn < most && (size_t)(p->d + p->dv) < most / MOST_ROWS; /* expanded tensors may be that wide */
  if (fits) {
    d.area = scratch_of(d.kernels, &task);
    if (d.tapped && d.area < scratch_of(&heed__kernels_scalar, &task))
      d.area = scratch_of(&heed__kernels_scalar, &task);
    fits = d.area <= (workers > 1 ? (most - drawn) / (size_t)workers : most - drawn);
  }
  const size_t floats = fits ? (size_t)workers * d.area + drawn : most;
  _Alignas(HEED__ALIGNMENT) float on_stack[ON_STACK];
  float *allocated = NULL;
  if (floats > ON_STACK) {
    if (fits) allocated = heed__allocate(ctx, floats * sizeof *allocated);
    if (!allocated) return heed__fail_memory(ctx, call->function, floats * sizeof *allocated);
  }
  d.scratch = allocated ? allocated : on_stack;

  if (drops) {
    heed__dropout dropout;
    heed__dropout_begin(&dropout, ctx, o->generator, o->dropout_p);
    run_in_order(&d, &dropout, d.scratch + d.area);
  } else if (small) {
    for (int64_t i = 0; i < p->products; i++) run_rows(&d, &task, i, 0, p->l, NULL, d.scratch);
  } else {
    (void)!heed__parallel(ctx, tasks, run_attention, &d);
  }
  heed__release(ctx, allocated);
  return heed__is_due(&ctx->pace) ? heed__stopped(ctx, call->function) : HEED_OK;
}

/* ---- Taps ---- */

void heed_attention_taps_free(heed_attention_taps *taps) {
  heed_attention_taps theirs = {.size = sizeof theirs};
  if (!taps || taps->size == 0) return;
  heed__struct_move(&theirs, taps, taps->size);
#define X(name) heed_tensor_free(theirs.name);
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
}

/* A new tensor of the sizes of x, and of its elements if `filled`. */
static heed_status new_result(heed_context *ctx, const char *function, const heed_tensor *x, bool filled,
                              heed_tensor **out) {
  int64_t numel;
  heed_status status = heed__check_shape(ctx, function, x->ndim, x->shape, x->dtype, &numel);
  if (status) return status;
  status = heed_tensor_new(ctx, x->dtype, x->ndim, x->shape, out);
  if (status) return heed__fail_memory(ctx, function, (size_t)numel * heed__element_bytes(x->dtype));
  return !filled || heed__copy_elements(*out, x) ? HEED_OK : heed__stopped(ctx, function);
}

/* Keys and values together with past ones are there already; else they are copied. */
static heed_status new_taps(heed_context *ctx, const char *function, heed__attention_problem *p,
                            heed_attention_taps *taps) {
  heed_tensor like = {.dtype = HEED_FLOAT32, .ndim = p->ndim}; /* [..., hq, l, s] */
  for (int i = 0; i < p->ndim; i++) like.shape[i] = p->shape[i];
  like.shape[p->ndim - 1] = p->s;
  heed_status status = new_result(ctx, function, &like, false, &taps->logits);
  if (!status) status = new_result(ctx, function, &like, false, &taps->capped_logits);
  if (!status) status = new_result(ctx, function, &like, false, &taps->biased_logits);
  if (!status) status = new_result(ctx, function, &like, false, &taps->weights);
  if (!status && !p->joined[0]) status = new_result(ctx, function, p->k, true, &taps->present_key);
  if (!status && !p->joined[1]) status = new_result(ctx, function, p->v, true, &taps->present_value);
  return status;
}

heed_status heed__attention(heed_context *ctx, const heed__attention_call *call, heed_tensor **out) {
  heed__attention_problem p; /* heed__attention_begin fills it */
  heed__result result = {0};
  heed_attention_taps taps = {.size = sizeof taps};
  const heed_attention_options *o = &call->options;
  heed_status status = heed__attention_begin(ctx, call, &p);
  if (status) goto done;
  status = heed__result_begin(
      ctx, call->function, &result, out, HEED_FLOAT32, p.ndim, p.shape, false, 10,
      (const heed_tensor *const[]){call->q, p.k, p.v, o->attn_mask, call->key_padding_mask, o->kv_lengths,
                                   o->alibi_slopes, o->sinks, call->k_scale, call->v_scale});
  if (status) goto done;
  if (call->taps) status = new_taps(ctx, call->function, &p, &taps);
  heed__attention_set_out(&p, result.tensor);
  if (!status && p.products > 0 && p.l > 0) status = run(ctx, call, &p, call->taps ? &taps : NULL);
  status = heed__result_end(ctx, &result, status);
  if (status || !call->taps) goto done;
  if (p.joined[0]) taps.present_key = p.joined[0];
  if (p.joined[1]) taps.present_value = p.joined[1];
  p.joined[0] = p.joined[1] = NULL;
  *call->taps = taps;
  taps = (heed_attention_taps){.size = sizeof taps};
done:
  if (call->taps) heed_attention_taps_free(&taps);
  heed__attention_end(&p);
  return status;
}

heed_status heed_scaled_dot_product_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                              const heed_tensor *v, const heed_attention_options *options,
                                              heed_tensor **out, heed_attention_taps *taps) {
  static const char function[] = "scaled_dot_product_attention";
  heed_attention_taps found = {.size = sizeof found};
  heed__attention_call call = {
      .function = function, .q = q, .k = k, .v = v, .taps = taps != NULL ? &found : NULL};
  heed_status status = HEED_OK;
  if (options != NULL) {
    status = heed__struct_read(ctx, function, "options", "heed_attention_options", options, &call.options,
                               sizeof call.options);
  }
  if (taps != NULL && status == HEED_OK)
    status = heed__struct_check(ctx, function, "taps", "heed_attention_taps", taps);
  if (status != HEED_OK) return status;
  status = heed__attention(ctx, &call, out);
  if (taps == NULL || status != HEED_OK) return status;
  heed__struct_move(taps, &found, sizeof found);
  heed_attention_taps_free(&found);
  return HEED_OK;
}
