/* The gradients of attention. A second plan, whose operands are the gradients instead of their inputs,
 * gives their strides over heads. Heads that share elements of a gradient (of a group, of broadcast batches,
 * of a broadcast mask) form a set, whose heads are computed one after another; a task is a set with a range
 * of keys. Each range but the first adds to its own copy of dq, and these are summed in order at the end. The
 * division depends on sizes and strides alone, and so do the bits. */
#include "plan.h"

#include <math.h>
#include <string.h>

enum {
  BACKWARD_TASKS = 8,        /* ranges are divided until there are this many tasks */
  BACKWARD_RANGE = 2,        /* fewest blocks of keys of a range */
  BACKWARD_WAKING = 1 << 16, /* multiply-adds of one product that one thread does alone */
  BACKWARD_PIECE = 1 << 16,  /* floats that are summed at a time */
  BACKWARD_ROWS = 1 << 8,    /* rows that are summed between two yield points */
};

/* Positions of a task: head of the set, then the kernel's position. */
#define HEAD_SHIFT 40

typedef struct heed__attention_gradient_run {
  heed_context *ctx;
  heed__attention_plan forward, backward; /* of the operands, and of the gradients */
  const heed_tensor *dout;
  const uint16_t *kept;
  const float *dlse;                 /* [heads, l]; or NULL */
  unsigned wanted;                   /* bits */
  heed_tensor *dq, *dk, *dv, *dmask; /* dk, dv with past ones; dmask with s keys */
  heed_tensor **parts;               /* dq of the ranges from the second on */
  float *delta;                      /* Σ dout · out, [heads, l] */
  double *slopes, *sinks;            /* [ranges, heads] and [heads]; or NULL */
  float *scratch;
  size_t area;
  bool shared[HEED_MAX_DIMS + 1];       /* dimensions of forward.outer over which a set extends */
  bool shares_items;                    /* it also extends over all packed sequences */
  int64_t sets, members, ranges, range; /* range: keys */
  heed__work work;
} gradient_run;

static bool is_wanted_gradient(const gradient_run *run, heed__attention_input input) {
  return run->wanted >> input & 1;
}

/* ---- Tensors ---- */

/* Dimensions of size 1, whose stride does not matter, come first. */
static int64_t stride_in_order(const heed_tensor *x, int dim) {
  return x->shape[dim] == 1 ? INT64_MAX : x->stride[dim];
}

/* Zeros with the sizes of x, and its order of dimensions in memory if the columns are innermost. */
static heed_status zeros_in_layout(heed_context *ctx, const char *function, const heed_tensor *x,
                                   heed_tensor **out) {
  int order[HEED_MAX_DIMS];
  const heed_status status = heed__full(ctx, function, HEED_FLOAT32, x->ndim, x->shape, heed_number(0), out);
  if (status) return status;
  for (int i = 0; i < x->ndim; i++) {
    int at = i;
    for (; at > 0 && stride_in_order(x, order[at - 1]) < stride_in_order(x, i); at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
  const int last = x->ndim - 1;
  for (int i = 0; i < x->ndim; i++)
    if (x->shape[i] > 1 && x->stride[i] == 0) return HEED_OK;
  if (x->shape[last] > 1 && order[last] != last) return HEED_OK;
  int64_t stride = x->shape[last];
  for (int i = last; i >= 0; i--) {
    if (order[i] == last) continue;
    (*out)->stride[order[i]] = stride;
    stride *= heed__max(x->shape[order[i]], 1);
  }
  return HEED_OK;
}

/* ---- Division ---- */

/* Whether the heads along a dimension share elements of a wanted gradient. */
static bool shares_gradient(const gradient_run *run, int dim) {
  static const heed__attention_operand operand[] = {HEED__ATTENTION_Q, HEED__ATTENTION_K, HEED__ATTENTION_V,
                                                    HEED__ATTENTION_MASK};
  const heed_tensor *gradient[] = {run->dq, run->dk, run->dv, run->dmask};
  for (int i = 0; i < 4; i++)
    if (gradient[i] && run->backward.step[operand[i]][dim] == 0) return true;
  return false;
}

static void divide_gradients(gradient_run *run) {
  const heed__attention_plan *p = &run->forward;
  run->sets = run->members = run->ranges = 1;
  for (int dim = 0; dim < p->outer_ndim; dim++) {
    run->shared[dim] = shares_gradient(run, dim);
    *(run->shared[dim] ? &run->members : &run->sets) *= p->outer[dim];
  }
  run->shares_items = run->dmask && run->backward.task.bias_row == 0;
  if (p->items) *(run->shares_items ? &run->members : &run->sets) *= p->item_count;
  const int64_t blocks = (p->key_length + HEED__BACKWARD_KEYS - 1) / HEED__BACKWARD_KEYS;
  const bool one_column = run->dmask && run->backward.task.bias_column == 0;
  if (!one_column && run->sets > 0)
    run->ranges = heed__max(heed__min(BACKWARD_TASKS / run->sets, blocks / BACKWARD_RANGE), 1);
  run->range = heed__max((blocks + run->ranges - 1) / run->ranges, 1) * HEED__BACKWARD_KEYS;
  run->ranges = heed__max((p->key_length + run->range - 1) / run->range, 1);
}

/* The head that is number `member` of a set. */
static int64_t head_of_set(const gradient_run *run, int64_t set, int64_t member) {
  const heed__attention_plan *p = &run->forward;
  int64_t head = 0, size = 1;
  for (int dim = p->outer_ndim - 1; dim >= 0; dim--) {
    int64_t *left = run->shared[dim] ? &member : &set;
    const int64_t rest = heed__quotient(*left, p->outer[dim]);
    head += (*left - rest * p->outer[dim]) * size;
    *left = rest;
    size *= p->outer[dim];
  }
  if (p->items) head += (run->shares_items ? member : set) * size;
  return head;
}

/* ---- Tasks ---- */

static void set_task(const gradient_run *run, heed__attention_backward_task *g, int64_t head, int64_t range) {
  const heed__attention_plan *p = &run->forward;
  heed__attention_task *t = &g->forward, d = run->backward.task;
  *t = p->task;
  heed__attention_move(t, p, head);
  heed__attention_move(&d, &run->backward, head);
  const int64_t row = heed__attention_first_row(p, head);
  g->delta = run->delta + row;
  g->dout = d.out;
  g->dout_row = d.out_row;
  g->dout_column = d.out_column;
  g->kept_row = heed__attention_kept_words(p->key_length);
  g->kept = run->kept ? run->kept + row * g->kept_row : NULL;
  g->kept_scale =
      p->operands->options.dropout_p < 1 ? 1.0f / (float)(1 - p->operands->options.dropout_p) : 0.0f;
  /* the operands of this plan are ours to write */
  g->dq = run->dq ? (float *)(uintptr_t)d.q : NULL;
  if (run->dq && range > 0)
    g->dq = (float *)(void *)run->parts[range - 1]->data + (g->dq - (float *)(void *)run->dq->data);
  g->dk = run->dk ? (float *)(uintptr_t)d.k : NULL;
  g->dv = run->dv ? (float *)(uintptr_t)d.v : NULL;
  g->dbias = run->dmask ? (float *)(uintptr_t)d.bias : NULL;
  g->dq_row = d.q_row;
  g->dk_row = d.k_row;
  g->dv_row = d.v_row;
  g->dbias_row = d.bias_row;
  g->dbias_column = d.bias_column;
  g->dslope = run->slopes ? &run->slopes[range * p->heads + head] : NULL;
  g->first = range * run->range;
  g->last = heed__min(g->first + run->range, t->key_length);
}

static bool run_gradients(void *argument, int64_t i, int slot, int64_t *position) {
  const gradient_run *run = argument;
  const int64_t range = heed__quotient(i, run->sets), set = i - range * run->sets;
  for (int64_t member = *position >> HEAD_SHIFT; member < run->members; member++) {
    heed__attention_backward_task g = {.scratch = run->scratch + (size_t)slot * run->area};
    int64_t at = *position & (((int64_t)1 << HEAD_SHIFT) - 1);
    set_task(run, &g, head_of_set(run, set, member), range);
    const bool done = run->forward.kernels->attention_backward(&g, run->work.pace, &at);
    *position = done ? (member + 1) << HEAD_SHIFT : member << HEAD_SHIFT | at;
    if (!done || (member + 1 < run->members && heed__is_due(run->work.pace))) return false;
  }
  return true;
}

/* Adds the parts of dq, BACKWARD_PIECE floats of all of them. */
static bool add_parts(void *argument, int64_t i, int slot, int64_t *position) {
  const gradient_run *run = argument;
  const int64_t first = i * BACKWARD_PIECE, n = heed__min(run->dq->numel - first, BACKWARD_PIECE);
  float *sum = (float *)(void *)run->dq->data + first;
  (void)slot, (void)position;
  for (int64_t part = 0; part + 1 < run->ranges; part++)
    run->forward.kernels->add(sum, sum, 1, (const float *)(void *)run->parts[part]->data + first, 1,
                              (size_t)n);
  return true;
}

/* δ of a head, less the gradient of lse, which has the weights as its own gradient; and the gradient of its
 * sink: -Σ e^(sink - lse) δ, as the sink takes weight from all values. */
static bool sum_rows(void *argument, int64_t head, int slot, int64_t *position) {
  gradient_run *run = argument;
  const heed__attention_plan *p = &run->forward;
  heed__attention_backward_task g = {0};
  set_task(run, &g, head, 0);
  const heed__attention_task *t = &g.forward;
  float *delta = run->delta + heed__attention_first_row(p, head);
  (void)slot;
  for (int64_t i = *position; i < t->query_length; i++) {
    delta[i] = p->kernels->dot(g.dout + i * g.dout_row, g.dout_column, t->out + i * t->out_row, t->out_column,
                               (size_t)p->value_size);
    if (run->dlse) delta[i] -= run->dlse[heed__attention_first_row(p, head) + i];
    if (run->sinks && t->lse[i] != -INFINITY && t->sink != -INFINITY)
      run->sinks[head] -= exp((double)t->sink - (double)t->lse[i]) * (double)delta[i];
    if (i % BACKWARD_ROWS == BACKWARD_ROWS - 1 && i + 1 < t->query_length && heed__is_due(run->work.pace)) {
      *position = i + 1;
      return false;
    }
  }
  return true;
}

static heed_status run_work(gradient_run *run, int workers, int64_t count,
                            bool (*task)(void *argument, int64_t task, int slot, int64_t *position)) {
  heed__work_begin(run->ctx, &run->work, workers, count, task, run);
  const bool done = heed__work_run(run->ctx, &run->work);
  heed__work_end(run->ctx, &run->work);
  return done ? HEED_OK : heed__stopped(run->ctx, run->forward.operands->function);
}

static heed_status run_kernels(gradient_run *run) {
  heed_context *ctx = run->ctx;
  const heed__attention_plan *p = &run->forward;
  const char *function = p->operands->function;
  const double work =
      (double)heed__attention_all_rows(p) * (double)p->span * (double)(p->head_size + p->value_size);
  const int workers = work < BACKWARD_WAKING ? 1 : heed__workers(ctx);
  heed_status status =
      heed__charge(ctx, function, 3 * heed__attention_products(p)); /* 2 or 3 for each forward */
  if (status) return status;
  status = heed__attention_scan_begin(&run->forward, workers);
  if (status) return status;
  if (!heed__attention_scan_run(&run->forward)) return heed__stopped(ctx, function);
  if (run->dq && run->ranges > 1) {
    const size_t bytes = (size_t)(run->ranges - 1) * sizeof *run->parts;
    run->parts = heed__allocate(ctx, bytes);
    if (!run->parts) return heed__fail_memory(ctx, function, bytes);
    memset(run->parts, 0, bytes);
    for (int64_t i = 0; i + 1 < run->ranges && !status; i++)
      status = zeros_in_layout(ctx, function, run->dq, &run->parts[i]);
  }
  heed__attention_backward_task first = {.forward = p->task};
  const size_t line = HEED__ALIGNMENT / sizeof(float), most = PTRDIFF_MAX / sizeof(float);
  const int64_t tasks = run->sets * run->ranges, slots = heed__min(tasks, workers);
  if (!status && (size_t)(p->head_size + p->value_size) < most / 4096) {
    run->area = (p->kernels->attention_backward_scratch(&first) / sizeof(float) + line) / line * line;
    run->scratch = heed__allocate(ctx, heed__array_bytes((uint64_t)slots * run->area, sizeof(float)));
  }
  if (!status && !run->scratch)
    status = heed__fail_memory(ctx, function, heed__array_bytes((uint64_t)slots * run->area, sizeof(float)));
  if (!status) {
    const size_t bytes = heed__array_bytes((uint64_t)heed__attention_all_rows(p), sizeof *run->delta);
    run->delta = heed__allocate(ctx, bytes);
    status =
        run->delta ? run_work(run, workers, p->heads, sum_rows) : heed__fail_memory(ctx, function, bytes);
  }
  if (!status && (run->dq || run->dk || run->dv || run->dmask || run->slopes))
    status = run_work(run, workers, tasks, run_gradients);
  if (!status && run->parts)
    status = run_work(run, workers, (run->dq->numel + BACKWARD_PIECE - 1) / BACKWARD_PIECE, add_parts);
  return status;
}

/* ---- Beginning ---- */

static heed_status new_sums(const gradient_run *run, int64_t n, double **out) {
  const size_t bytes = heed__array_bytes((uint64_t)n, sizeof **out);
  *out = heed__allocate(run->ctx, bytes);
  if (!*out) return heed__fail_memory(run->ctx, run->forward.operands->function, bytes);
  memset(*out, 0, bytes);
  return HEED_OK;
}

/* Makes what the kernels add to, and the plan of its strides in *own. */
static heed_status begin_gradients(gradient_run *run, heed__attention_operands *own) {
  heed_context *ctx = run->ctx;
  const heed__attention_plan *p = &run->forward;
  const heed__attention_operands *operands = p->operands;
  const char *function = operands->function;
  const bool keys =
      is_wanted_gradient(run, HEED__ATTENTION_k) || is_wanted_gradient(run, HEED__ATTENTION_past_key);
  const bool values =
      is_wanted_gradient(run, HEED__ATTENTION_v) || is_wanted_gradient(run, HEED__ATTENTION_past_value);
  heed_status status = HEED_OK;
  if (is_wanted_gradient(run, HEED__ATTENTION_q))
    status = zeros_in_layout(ctx, function, operands->q, &run->dq);
  if (!status && keys) status = zeros_in_layout(ctx, function, p->k, &run->dk);
  if (!status && values) status = zeros_in_layout(ctx, function, p->v, &run->dv);
  if (!status && is_wanted_gradient(run, HEED__ATTENTION_attn_mask) && p->task.bias)
    status =
        heed__full(ctx, function, HEED_FLOAT32, p->mask.ndim, p->mask.shape, heed_number(0), &run->dmask);
  if (status) return status;
  *own = (heed__attention_operands){.function = function,
                                    .q = run->dq ? run->dq : operands->q,
                                    .k = run->dk ? run->dk : p->k,
                                    .v = run->dv ? run->dv : p->v,
                                    .options = {.attn_mask = run->dmask},
                                    .no_heads = operands->no_heads,
                                    .k_scale = operands->k_scale,
                                    .v_scale = operands->v_scale,
                                    .lengths = operands->lengths,
                                    .key_lengths = operands->key_lengths};
  run->backward.context = ctx;
  run->backward.operands = own;
  status = heed__attention_check(&run->backward);
  if (status) return status;
  heed__attention_set_out(&run->backward, run->dout);
  run->backward.plain = false;
  divide_gradients(run);
  if (is_wanted_gradient(run, HEED__ATTENTION_alibi_slopes) && p->slopes)
    status = new_sums(run, heed__max(p->heads * run->ranges, 1), &run->slopes);
  if (!status && is_wanted_gradient(run, HEED__ATTENTION_sinks) && p->sinks)
    status = new_sums(run, heed__max(p->heads, 1), &run->sinks);
  return status;
}

/* ---- Results ---- */

/* The gradient of a number for each head of q: the sum of `count` numbers for each head. */
static heed_status sum_heads(const gradient_run *run, const double *x, int64_t count, heed_tensor **out) {
  const heed__attention_plan *p = &run->forward;
  const heed_status status =
      heed__tensor_new(run->ctx, p->operands->function, HEED_FLOAT32, 1, &p->query_heads, out);
  if (status) return status;
  for (int64_t h = 0; h < p->query_heads; h++) {
    double sum = 0;
    for (int64_t i = h; i < count * p->heads; i += p->query_heads) sum += x[i];
    ((float *)(void *)(*out)->data)[h] = (float)sum;
  }
  return HEED_OK;
}

/* The rows first…first+n-1 of *x; itself, taken over, if these are all. */
static heed_status take_rows(const gradient_run *run, heed_tensor **x, int dim, int64_t first, int64_t n,
                             heed_tensor **out) {
  heed_tensor part;
  if ((*x)->shape[dim] == n) {
    *out = *x;
    *x = NULL;
    return HEED_OK;
  }
  heed__alias_on_stack(&part, *x);
  heed__narrow_on_stack(&part, dim, first, n);
  return heed__tensor_from_view(run->ctx, run->forward.operands->function, &part, out);
}

/* Divides dk or dv into the gradients of past and new rows. */
static heed_status take_keys(const gradient_run *run, heed_tensor **x, heed__attention_input past,
                             heed__attention_input own, heed_tensor **dx) {
  const int64_t rows = run->forward.past;
  heed_status status = HEED_OK;
  if (!*x) return HEED_OK;
  const int dim = (*x)->ndim - 2;
  if (is_wanted_gradient(run, own)) status = take_rows(run, x, dim, rows, (*x)->shape[dim] - rows, &dx[own]);
  if (!status && *x && is_wanted_gradient(run, past)) status = take_rows(run, x, dim, 0, rows, &dx[past]);
  return status;
}

static heed_status take_mask(const gradient_run *run, heed_tensor **out) {
  const heed_tensor *mask = run->forward.operands->options.attn_mask;
  heed_tensor part, *rows = NULL;
  heed__alias_on_stack(&part, run->dmask);
  if (mask->ndim > 0) heed__narrow_on_stack(&part, part.ndim - 1, 0, mask->shape[mask->ndim - 1]);
  heed_status status = heed__tensor_from_view(run->ctx, run->forward.operands->function, &part, &rows);
  if (!status)
    status = heed__reshape(run->ctx, run->forward.operands->function, rows, mask->ndim, mask->shape, out);
  heed_tensor_free(rows);
  return status;
}

static heed_status take_gradients(gradient_run *run, heed_tensor **dx) {
  dx[HEED__ATTENTION_q] = run->dq;
  run->dq = NULL;
  heed_status status = take_keys(run, &run->dk, HEED__ATTENTION_past_key, HEED__ATTENTION_k, dx);
  if (!status) status = take_keys(run, &run->dv, HEED__ATTENTION_past_value, HEED__ATTENTION_v, dx);
  if (!status && run->dmask) status = take_mask(run, &dx[HEED__ATTENTION_attn_mask]);
  if (!status && run->sinks) status = sum_heads(run, run->sinks, 1, &dx[HEED__ATTENTION_sinks]);
  if (!status && run->slopes)
    status = sum_heads(run, run->slopes, run->ranges, &dx[HEED__ATTENTION_alibi_slopes]);
  return status;
}

static void free_run(gradient_run *run) {
  heed_tensor *const tensors[] = {run->dq, run->dk, run->dv, run->dmask};
  for (int i = 0; i < 4; i++) heed_tensor_free(tensors[i]);
  for (int64_t i = 0; run->parts && i + 1 < run->ranges; i++) heed_tensor_free(run->parts[i]);
  void *const blocks[] = {run->parts, run->scratch, run->delta, run->slopes, run->sinks};
  for (int i = 0; i < 5; i++) heed__release(run->ctx, blocks[i]);
  heed__attention_plan *const plans[] = {&run->forward, &run->backward};
  for (int i = 0; i < 2; i++) {
    heed__attention_scan_end(plans[i]);
    if (plans[i]->context) heed__attention_free_operands(plans[i]);
  }
}

heed_status heed__attention_backward(heed_context *ctx, const heed__attention_operands *operands,
                                     const heed__attention_saved *saved, const heed_tensor *dout,
                                     unsigned wanted, heed_tensor *dx[HEED__ATTENTION_GRADIENTS]) {
  gradient_run run;
  heed__attention_operands own;
  memset(&run, 0, sizeof run);
  for (int i = 0; i < HEED__ATTENTION_GRADIENTS; i++) dx[i] = NULL;
  run.ctx = run.forward.context = ctx;
  run.forward.operands = operands;
  run.dout = dout;
  run.wanted = wanted;
  heed_status status = heed__attention_check(&run.forward);
  if (!status) {
    heed__attention_set_out(&run.forward, saved->out);
    run.forward.lse = (float *)(void *)saved->lse->data;
    run.forward.kernels = heed__kernels_of(ctx);
    if (saved->dlse) run.dlse = (const float *)(const void *)saved->dlse->data;
    if (saved->kept) run.kept = (const uint16_t *)(const void *)saved->kept->data;
    status = begin_gradients(&run, &own);
  }
  if (!status && run.forward.heads > 0 && run.forward.query_length > 0) status = run_kernels(&run);
  if (!status) status = take_gradients(&run, dx);
  for (int i = 0; status && i < HEED__ATTENTION_GRADIENTS; i++) {
    heed_tensor_free(dx[i]);
    dx[i] = NULL;
  }
  free_run(&run);
  return status;
}
