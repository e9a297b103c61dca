/* Attention: the division of a call into tasks. The arithmetic is in the kernels. Sizes are named as in
 * heed.h. */
#include "attention.h"

enum {
  ROWS = 768,      /* of a task, which packs the keys anew: 1 % of its time. Fewer, */
  LEAST_ROWS = 48, /* down to these, until there are so many tasks for each worker */
  TASKS = 4,
  SCALAR_SCORES = 24, /* up to which the scalar kernel is the fastest */
  DRAWN = 1 << 18,    /* floats that dropout draws for a task, a row at least, */
  KEPT = 1 << 19,     /* floats of queries and outputs that a task keeps, a few rows at least */
  MOST_ROWS = 2048,   /* more than the rows and keys whose columns lie in a task's scratch */
  WAKING = 1 << 17,   /* multiply-adds that one thread does before another is awake */
};

/* Positions of tasks from here on are those of the pass that writes taps. */
#define TAPPED ((int64_t)1 << 62)

static size_t aligned(size_t floats) {
  const size_t line = HEED__ALIGNMENT / sizeof(float);
  return (floats + line - 1) / line * line;
}

static size_t scratch_of(const heed__kernels *kernels, const heed__attention_task *task) {
  return aligned((kernels->attention_scratch(task) + sizeof(float) - 1) / sizeof(float));
}

static float *tap(const heed__attention_work *w, int which, int64_t product) {
  return w->taps[which] ? w->taps[which] + product * w->problem.l * w->problem.s : NULL;
}

/* Does rows of a product, with a copy of the problem's task: whether they are done, as kernels say it. Taps
 * are written by a pass of their own, so that they change no bit of the output; `keep` as in the task. */
static bool run_rows(const heed__attention_work *w, heed__attention_task *task, int64_t product,
                     int64_t first, int64_t last, const float *keep, float *scratch, const heed__pace *pace,
                     int64_t *position) {
  heed__attention_move(task, &w->problem, product);
  task->first = first;
  task->last = last;
  task->keep = keep;
  task->scratch = scratch;
  if (*position < TAPPED) {
    if (!w->decoded && !w->kernels->attention(task, pace, position)) return false;
    if (!w->tapped) return true;
    *position = TAPPED;
  }
  heed__attention_task tapped = *task;
  tapped.out = NULL;
  tapped.scores = tap(w, HEED__TAP_SCORES, product);
  tapped.weights = tap(w, HEED__TAP_WEIGHTS, product);
  tapped.dropped_weights = tap(w, HEED__TAP_DROPPED_WEIGHTS, product);
  tapped.logits = tap(w, HEED__TAP_LOGITS, product);
  tapped.capped_logits = tap(w, HEED__TAP_CAPPED_LOGITS, product);
  tapped.biased_logits = tap(w, HEED__TAP_BIASED_LOGITS, product);
  int64_t at = *position - TAPPED;
  const bool done = heed__kernels_scalar.attention(&tapped, pace, &at);
  *position = TAPPED + at;
  return done;
}

/* Task i: the longest (the last rows, where it is causal) first, so that workers end together; one worker
 * stays with a product, whose keys and values then are near. */
static bool run_attention(void *argument, int64_t i, int slot, int64_t *position) {
  const heed__attention_work *w = argument;
  const heed__attention_problem *p = &w->problem;
  const bool alone = w->work.slots == 1;
  const int64_t product = alone ? i / w->blocks : i % p->products;
  const int64_t first = (w->blocks - 1 - (alone ? i % w->blocks : i / p->products)) * w->rows;
  const int64_t last = p->l - first < w->rows ? p->l : first + w->rows;
  heed__attention_task task = p->task;
  return run_rows(w, &task, product, first, last, NULL, w->scratch + (size_t)slot * w->area, w->work.pace,
                  position);
}

/* What dropout multiplies the weights of the task by. */
static bool draw(heed__attention_work *w, float *keep, int64_t count, const heed__pace *pace) {
  if (!w->drawing) {
    const heed_attention_options *o = &w->call->options;
    heed__dropout_begin(&w->dropout, w->context, o->generator, o->dropout_p);
    w->drawing = true;
  }
  while (w->drawn < count) {
    const int64_t left = count - w->drawn, n = left < HEED__DRAWN_WHOLE ? left : HEED__DRAWN_WHOLE;
    float *const next = keep + w->drawn;
    for (int64_t i = 0; i < n; i++) next[i] = 1.0f;
    (void)!heed__dropout_apply(&w->dropout, next, next, n); /* all of so few are drawn */
    w->drawn += n;
    if (n < left && heed__leaves(pace)) return false;
  }
  return true;
}

/* Products one after the other, with dropout in the order in which it draws. */
static bool run_in_order(heed__attention_work *w, const heed__pace *pace) {
  const heed__attention_problem *p = &w->problem;
  const int64_t tasks = w->blocks * p->products;
  heed__attention_task task = p->task;
  float *keep = w->drops ? w->scratch + w->area : NULL;
  while (w->at < tasks) {
    const int64_t product = heed__quotient(w->at, w->blocks), first = (w->at - product * w->blocks) * w->rows;
    const int64_t last = p->l - first < w->rows ? p->l : first + w->rows;
    if (w->drops && !draw(w, keep, (last - first) * p->s, pace)) return false;
    if (!run_rows(w, &task, product, first, last, keep, w->scratch, pace, &w->left_at)) return false;
    w->left_at = w->drawn = 0;
    if (++w->at < tasks && heed__leaves(pace)) return false;
  }
  return true;
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

/* What the scalar kernel does fastest: few scores, but of heads wider than those that the vector kernels have
 * a way for. */
static bool is_scalar(const heed__attention_problem *p) {
  return !heed__attention_is_small(&p->task) && (double)p->l * (double)p->s <= SCALAR_SCORES;
}

/* One worker, where with so many keys for each query all is done before another is awake. */
static int workers_for(const heed__attention_work *w, double keys) {
  const heed__attention_problem *p = &w->problem;
  const double work = (double)p->products * (double)p->l * keys * (double)(p->d + p->dv);
  return work < WAKING ? 1 : heed__workers(w->context);
}

static float *data_of(const heed_tensor *x) {
  return x ? (float *)(void *)x->data : NULL;
}

/* The scratch of all slots, and what dropout keeps: on the caller's stack where there is room. */
static heed_status new_scratch(heed__attention_work *w, int slots, heed__attention_room *room) {
  const heed__attention_problem *p = &w->problem;
  const size_t most = PTRDIFF_MAX / sizeof(float), drawn = w->drops ? (size_t)(w->rows * p->s) : 0;
  heed__attention_task task = p->task;
  task.last = w->rows;
  bool fits =
      drawn < most && (size_t)(p->d + p->dv) < most / MOST_ROWS; /* expanded tensors may be that wide */
  if (fits) {
    w->area = scratch_of(w->kernels, &task);
    if (w->tapped && w->area < scratch_of(&heed__kernels_scalar, &task))
      w->area = scratch_of(&heed__kernels_scalar, &task);
    fits = w->area <= (slots > 1 ? (most - drawn) / (size_t)slots : most - drawn);
  }
  const size_t floats = fits ? (size_t)slots * w->area + drawn : most;
  if (room && !w->decoded && floats <= HEED__ATTENTION_ROOM) {
    w->scratch = room->floats;
    return HEED_OK;
  }
  if (fits) w->allocated[0] = heed__allocate(w->context, floats * sizeof(float));
  w->scratch = w->allocated[0];
  return w->scratch ? HEED_OK : heed__fail_memory(w->context, w->call->function, floats * sizeof(float));
}

static heed_status begin_decode(heed__attention_work *w, heed__attention_room *room) {
  heed__decode_division *d = &w->decode;
  const int workers = workers_for(w, (double)w->problem.span);
  heed__decode_divide(d, &w->problem, heed__kernels_of(w->context), workers);
  const int64_t slots = d->tasks < workers ? d->tasks : workers, areas = d->ranges > 1 ? d->tasks : slots;
  const double wanted = (double)areas * (double)d->area + (double)slots * (double)d->score_room;
  if (wanted > (double)(PTRDIFF_MAX / sizeof(float)))
    return heed__fail_memory(w->context, w->call->function, PTRDIFF_MAX);
  const size_t parts = (size_t)(areas * d->area), floats = parts + (size_t)(slots * d->score_room);
  if (room && floats <= HEED__ATTENTION_ROOM) {
    d->parts = room->floats;
  } else {
    d->parts = w->allocated[1] = heed__allocate(w->context, floats * sizeof(float));
    if (!d->parts) return heed__fail_memory(w->context, w->call->function, floats * sizeof(float));
  }
  d->scores = d->parts + parts;
  d->pace = &w->context->pace;
  heed__work_begin(w->context, &w->decode_work, workers, d->tasks, heed__decode_run, d);
  heed__work_begin(w->context, &w->join_work, workers_for(w, (double)d->ranges), d->ranges > 1 ? d->count : 0,
                   heed__decode_join, d);
  w->decoded = true;
  return HEED_OK;
}

/* The division; the problem's output is known. */
static heed_status begin_tasks(heed__attention_work *w, heed__attention_room *room) {
  const heed__attention_call *call = w->call;
  const heed__attention_problem *p = &w->problem;
  const heed_attention_taps *taps = call->taps ? &w->made : NULL;
  const bool scalar = is_scalar(p), small = scalar || heed__attention_is_small(&p->task);
  w->kernels = scalar ? &heed__kernels_scalar : heed__kernels_of(w->context);
  w->drops = call->options.dropout_p > 0 && p->s > 0;
  w->in_order = w->drops || small;
  w->taps[HEED__TAP_SCORES] = data_of(call->scores);
  w->taps[HEED__TAP_WEIGHTS] = data_of(taps ? taps->weights : call->weights);
  w->taps[HEED__TAP_DROPPED_WEIGHTS] = data_of(call->dropped_weights);
  w->taps[HEED__TAP_LOGITS] = taps ? data_of(taps->logits) : NULL;
  w->taps[HEED__TAP_CAPPED_LOGITS] = taps ? data_of(taps->capped_logits) : NULL;
  w->taps[HEED__TAP_BIASED_LOGITS] = taps ? data_of(taps->biased_logits) : NULL;
  w->tapped = false;
  for (int i = 0; i < HEED__TAPS; i++) w->tapped = w->tapped || w->taps[i];
  if (!w->drops && heed__attention_is_decode(p)) {
    const heed_status status = begin_decode(w, room);
    if (status || !w->tapped) return status;
  }
  const int most_workers = w->in_order ? 1 : workers_for(w, (double)p->span);
  w->rows = rows_of_task(p, w->drops, most_workers);
  w->blocks = blocks_of(p, w->rows);
  w->at = w->left_at = w->drawn = 0;
  w->drawing = false;
  if (w->in_order) return new_scratch(w, 1, room);
  heed__work_begin(w->context, &w->work, most_workers, w->blocks * p->products, run_attention, w);
  w->begun = true;
  return new_scratch(w, w->work.slots, room);
}

bool heed__attention_work_run(heed_context *ctx, heed__attention_work *w) {
  if (w->empty) return true;
  if (w->decoded) {
    if (!heed__work_run(ctx, &w->decode_work) || !heed__work_run(ctx, &w->join_work)) return false;
    if (!w->tapped) return true;
  }
  return w->in_order ? run_in_order(w, &ctx->pace) : heed__work_run(ctx, &w->work);
}

double heed__attention_work_progress(const heed__attention_work *w) {
  if (w->empty) return 0;
  if (w->decoded) return heed__work_progress(&w->decode_work);
  if (!w->in_order) return heed__work_progress(&w->work);
  return (double)w->at / (double)heed__larger(w->blocks * w->problem.products, 1);
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
  const heed_status status = heed__tensor_new(ctx, function, x->dtype, x->ndim, x->shape, out);
  if (status) return status;
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

/* ---- The call ---- */

static void end_works(heed__attention_work *w) {
  heed_context *ctx = w->context;
  if (!w->empty && w->decoded) {
    heed__work_end(ctx, &w->decode_work);
    heed__work_end(ctx, &w->join_work);
  }
  if (!w->empty && w->begun) heed__work_end(ctx, &w->work);
  heed__release(ctx, w->allocated[0]);
  heed__release(ctx, w->allocated[1]);
}

heed_status heed__attention_work_begin(heed_context *ctx, heed__attention_work *w,
                                       const heed__attention_call *call, heed__attention_room *room,
                                       heed_tensor **out) {
  heed__attention_problem *p = &w->problem; /* heed__attention_begin fills it */
  const heed_attention_options *o = &call->options;
  w->context = ctx;
  w->call = call;
  w->result = (heed__result){0};
  w->decoded = w->begun = false;
  w->empty = true;
  w->allocated[0] = w->allocated[1] = NULL;
  if (call->taps) w->made = (heed_attention_taps){.size = sizeof w->made};
  heed_status status = heed__attention_begin(ctx, call, p);
  if (status) goto failed;
  status = heed__result_begin(
      ctx, call->function, &w->result, out, HEED_FLOAT32, p->ndim, p->shape, false, 10,
      (const heed_tensor *const[]){call->q, p->k, p->v, o->attn_mask, call->key_padding_mask, o->kv_lengths,
                                   o->alibi_slopes, o->sinks, call->k_scale, call->v_scale});
  if (status) goto failed;
  if (call->taps) status = new_taps(ctx, call->function, p, &w->made);
  heed__attention_set_out(p, w->result.tensor);
  const bool shows = call->taps || call->scores || call->weights || call->dropped_weights;
  w->empty = p->products == 0 || p->l == 0 || (p->dv == 0 && !shows && o->dropout_p <= 0);
  if (!status && !w->empty) status = begin_tasks(w, room);
  if (!status) return HEED_OK;
failed:
  return heed__attention_work_end(ctx, w, status);
}

heed_status heed__attention_work_end(heed_context *ctx, heed__attention_work *w, heed_status status) {
  heed__attention_problem *p = &w->problem;
  const heed__attention_call *call = w->call;
  end_works(w);
  status = heed__result_end(ctx, &w->result, status);
  if (call->taps && status == HEED_OK) {
    if (p->joined[0]) w->made.present_key = p->joined[0];
    if (p->joined[1]) w->made.present_value = p->joined[1];
    p->joined[0] = p->joined[1] = NULL;
    *call->taps = w->made;
  } else if (call->taps) {
    heed_attention_taps_free(&w->made);
  }
  heed__attention_end(p);
  return status;
}

heed_status heed__attention(heed_context *ctx, const heed__attention_call *call, heed_tensor **out) {
  heed__attention_work w;
  heed__attention_room room;
  heed_status status = heed__attention_work_begin(ctx, &w, call, &room, out);
  if (status) return status;
  if (!heed__attention_work_run(ctx, &w)) status = heed__stopped(ctx, call->function);
  return heed__attention_work_end(ctx, &w, status);
}

heed_status heed_scaled_dot_product_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                              const heed_tensor *v, const heed_attention_options *options,
                                              heed_tensor **out, heed_attention_taps *taps) {
  HEED__ENTER(ctx, "scaled_dot_product_attention", q, k, v, out);
  static const char function[] = "scaled_dot_product_attention";
  heed_attention_taps found = {.size = sizeof found};
  heed__attention_call call = {
      .function = function, .q = q, .k = k, .v = v, .taps = taps != NULL ? &found : NULL};
  heed_status status = HEED_OK;
  if (options != NULL) {
    status = heed__struct_read(ctx, function, "options", "heed_attention_options", options, &call.options,
                               sizeof call.options);
    if (status != HEED_OK) return status;
    const heed_attention_options *o = &call.options;
    HEED__MAY_ENTER(ctx, function, o->attn_mask, o->generator, o->kv_lengths, o->past_key, o->past_value,
                    o->alibi_slopes, o->sinks);
  }
  if (taps != NULL && status == HEED_OK)
    status = heed__struct_check(ctx, function, "taps", "heed_attention_taps", taps);
  if (status != HEED_OK) return status;
  const bool draws = call.options.dropout_p > 0;
  heed_generator *g = heed__generator(ctx, call.options.generator), before;
  if (draws) before = *g;
  status = heed__attention(ctx, &call, out);
  if (draws && status != HEED_OK) *g = before; /* so that another try draws the same */
  if (taps == NULL || status != HEED_OK) return status;
  heed__struct_move(taps, &found, sizeof found);
  heed_attention_taps_free(&found);
  return HEED_OK;
}
