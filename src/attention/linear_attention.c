/* Linear attention with a state, and its gradients. A task is a key head of a batch item, with the query
 * heads that read its state; the division does not depend on the number of threads. */
#include "attention.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { LINEAR_WAKING = 1 << 18 }; /* multiply-adds that one thread does alone */

static const char *const linear_names[HEED__LINEAR_INPUTS] = {"q", "k", "v", "decay", "beta", "past_state"};

/* A call, forward or backward. Pointers of a task differ between heads by these strides. */
typedef struct linear_run {
  heed_context *ctx;
  const char *function;
  const heed__kernels *kernels;
  const heed_tensor *x[HEED__LINEAR_INPUTS]; /* NULL: not given; columns are contiguous */
  heed_tensor *made[HEED__LINEAR_INPUTS];    /* copies that were necessary for that */
  int64_t batch, key_heads, group;
  heed__linear_attention_task task;     /* of the first head; without pointers */
  const heed_tensor *out;               /* or its gradient */
  const heed_tensor *state;             /* row-major [b, hkv, d, dv]; the gradient's, when going backward */
  heed_tensor *dx[HEED__LINEAR_INPUTS]; /* row-major; NULL: not wanted. that of past_state is not used */
  bool backward;
  float *scratch;
  size_t area; /* floats for each slot */
  heed__work work;
} linear_run;

/* ---- Checks ---- */

/* x must be [b, heads, n, …] with these sizes; `needed` describes them. */
static heed_status check_linear_sizes(const linear_run *run, int i, int ndim, const int64_t *shape,
                                      const char *needed) {
  const heed_tensor *x = run->x[i];
  bool same = x->ndim == ndim;
  for (int d = 0; same && d < ndim; d++) same = shape[d] < 0 || x->shape[d] == shape[d];
  if (same) return HEED_OK;
  return heed__fail_pair(
      run->ctx, run->function, linear_names[i], x, i == HEED__LINEAR_K || i == HEED__LINEAR_BETA ? "q" : "k",
      run->x[i == HEED__LINEAR_K || i == HEED__LINEAR_BETA ? HEED__LINEAR_Q : HEED__LINEAR_K], needed);
}

static heed_status check_linear_inputs(linear_run *run) {
  heed_context *ctx = run->ctx;
  const char *function = run->function;
  heed_status status = HEED_OK;
  char text[HEED__SHAPE_TEXT];
  for (int i = 0; i < HEED__LINEAR_INPUTS && !status; i++)
    if (run->x[i]) status = heed__check_dtype(ctx, function, linear_names[i], run->x[i], HEED_FLOAT32);
  for (int i = HEED__LINEAR_Q; i <= HEED__LINEAR_V && !status; i++)
    if (run->x[i]->ndim != 4)
      status = heed__fail(ctx, HEED_SHAPE, "%s: %s is %s; it must be [b, heads, n, %s]", function,
                          linear_names[i], heed__shape_text(text, run->x[i]->ndim, run->x[i]->shape),
                          i == HEED__LINEAR_V ? "dv" : "d");
  if (status) return status;
  const int64_t *q = run->x[HEED__LINEAR_Q]->shape, *k = run->x[HEED__LINEAR_K]->shape,
                *v = run->x[HEED__LINEAR_V]->shape;
  status = check_linear_sizes(run, HEED__LINEAR_K, 4, (int64_t[]){q[0], -1, q[2], q[3]},
                              "their batch, tokens and head size must be equal");
  if (status) return status;
  if (k[1] == 0 ? q[1] != 0 : q[1] % k[1] != 0)
    return heed__fail_pair(ctx, function, "q", run->x[HEED__LINEAR_Q], "k", run->x[HEED__LINEAR_K],
                           "the number of heads of q must be a multiple of that of k");
  status = check_linear_sizes(run, HEED__LINEAR_V, 4, (int64_t[]){k[0], k[1], k[2], -1},
                              "their batch, heads and tokens must be equal");
  if (!status && run->x[HEED__LINEAR_DECAY])
    status = run->x[HEED__LINEAR_DECAY]->ndim == 4
                 ? check_linear_sizes(run, HEED__LINEAR_DECAY, 4, (int64_t[]){k[0], k[1], k[2], k[3]},
                                      "decay must be [b, heads of k, n] or have the shape of k")
                 : check_linear_sizes(run, HEED__LINEAR_DECAY, 3, (int64_t[]){k[0], k[1], k[2]},
                                      "decay must be [b, heads of k, n] or have the shape of k");
  if (!status && run->x[HEED__LINEAR_BETA]) {
    const heed_tensor *beta = run->x[HEED__LINEAR_BETA];
    const bool shared = beta->ndim == 3 && beta->shape[1] == 1;
    if (beta->ndim != 3 || beta->shape[0] != k[0] || (!shared && beta->shape[1] != k[1]) ||
        beta->shape[2] != k[2])
      status = heed__fail_pair(ctx, function, "beta", beta, "k", run->x[HEED__LINEAR_K],
                               "beta must be [b, heads of k, n] or [b, 1, n]");
  }
  if (!status && run->x[HEED__LINEAR_PAST])
    status = heed__same_shape(run->x[HEED__LINEAR_PAST]->ndim, run->x[HEED__LINEAR_PAST]->shape, 4,
                              (int64_t[]){k[0], k[1], k[3], v[3]})
                 ? HEED_OK
                 : heed__fail(ctx, HEED_SHAPE,
                              "%s: past_state is %s; it must be [b, heads of k, d, dv], here [%" PRId64
                              ", %" PRId64 ", %" PRId64 ", %" PRId64 "]",
                              function,
                              heed__shape_text(text, run->x[HEED__LINEAR_PAST]->ndim,
                                               run->x[HEED__LINEAR_PAST]->shape),
                              k[0], k[1], k[3], v[3]);
  return status;
}

/* Checks the inputs and describes the tasks. */
static heed_status begin_linear_run(linear_run *run, double scale) {
  heed_status status = check_linear_inputs(run);
  if (!status && !isfinite(scale))
    status = heed__fail(run->ctx, HEED_ARGUMENT, "%s: scale is %s; it must be finite", run->function,
                        HEED__G(scale));
  for (int i = HEED__LINEAR_Q; i <= HEED__LINEAR_DECAY && !status; i++) {
    const heed_tensor *x = run->x[i];
    if (!x || x->ndim < 4 || x->shape[3] <= 1 || x->stride[3] == 1) continue;
    status = heed__as_contiguous(run->ctx, run->function, x, HEED_FLOAT32, &run->x[i], &run->made[i]);
  }
  if (status) return status;
  const heed_tensor *q = run->x[HEED__LINEAR_Q], *k = run->x[HEED__LINEAR_K], *v = run->x[HEED__LINEAR_V],
                    *decay = run->x[HEED__LINEAR_DECAY];
  const double wide = q->shape[3] > 0 ? 1 / sqrt((double)q->shape[3]) : 1;
  run->kernels = heed__kernels_of(run->ctx);
  run->batch = k->shape[0];
  run->key_heads = k->shape[1];
  run->group = k->shape[1] > 0 ? q->shape[1] / k->shape[1] : 0;
  run->task = (heed__linear_attention_task){.tokens = k->shape[2],
                                            .group = run->group,
                                            .head_size = k->shape[3],
                                            .value_size = v->shape[3],
                                            .q_head = (ptrdiff_t)q->stride[1],
                                            .q_row = (ptrdiff_t)q->stride[2],
                                            .k_row = (ptrdiff_t)k->stride[2],
                                            .v_row = (ptrdiff_t)v->stride[2],
                                            .scale = (float)(scale != 0 ? scale : wide)};
  if (decay) {
    run->task.decay_row = (ptrdiff_t)decay->stride[2];
    run->task.decays_each = decay->ndim == 4;
  }
  if (run->x[HEED__LINEAR_BETA]) run->task.beta_row = (ptrdiff_t)run->x[HEED__LINEAR_BETA]->stride[2];
  return HEED_OK;
}

static void end_linear_run(linear_run *run) {
  heed__release(run->ctx, run->scratch);
  for (int i = 0; i < HEED__LINEAR_INPUTS; i++) heed_tensor_free(run->made[i]);
}

/* ---- Tasks ---- */

static float *linear_head(const heed_tensor *x, int64_t item, int64_t head) {
  if (!x) return NULL;
  return (float *)(void *)x->data + item * x->stride[0] + (x->shape[1] > 1 ? head * x->stride[1] : 0);
}

/* Head i of the row-major tensor x, of `each` elements; NULL if there is none. */
static float *linear_part(const heed_tensor *x, int64_t i, int64_t each) {
  return x ? (float *)(void *)x->data + i * each : NULL;
}

/* Copies the past state of a head, or zeros, while the processor's caches can keep it for the kernel. */
static void begin_linear_state(const linear_run *run, float *state, int64_t item, int64_t head) {
  const heed_tensor *past = run->x[HEED__LINEAR_PAST];
  const int64_t d = run->task.head_size, dv = run->task.value_size;
  if (!past) {
    memset(state, 0, (size_t)(d * dv) * sizeof *state);
    return;
  }
  const float *from = linear_head(past, item, head);
  for (int64_t c = 0; c < d; c++)
    heed__copy_row(HEED_FLOAT32, state + c * dv, 1, HEED_FLOAT32, from + c * past->stride[2],
                   (ptrdiff_t)past->stride[3], dv);
}

static bool run_linear_head(void *argument, int64_t i, int slot, int64_t *position) {
  const linear_run *run = argument;
  const int64_t item = heed__quotient(i, run->key_heads), head = i - item * run->key_heads;
  float *scratch = run->scratch + (size_t)slot * run->area;
  heed__linear_attention_task task = run->task;
  const int64_t size = task.head_size * task.value_size;
  task.q = linear_head(run->x[HEED__LINEAR_Q], item, head * run->group);
  task.k = linear_head(run->x[HEED__LINEAR_K], item, head);
  task.v = linear_head(run->x[HEED__LINEAR_V], item, head);
  task.decay = linear_head(run->x[HEED__LINEAR_DECAY], item, head);
  task.beta = linear_head(run->x[HEED__LINEAR_BETA], item, head);
  task.out = linear_head(run->out, item, head * run->group);
  task.out_head = (ptrdiff_t)run->out->stride[1];
  task.out_row = (ptrdiff_t)run->out->stride[2];
  task.scratch = scratch;
  if (!run->backward) {
    task.state = linear_part(run->state, i, size);
    if (*position == 0) begin_linear_state(run, task.state, item, head);
    return run->kernels->linear_attention(&task, run->work.pace, position);
  }
#if HEED_MINIMAL
  return true;
#else
  const int64_t keys = task.tokens * task.head_size;
  task.state = linear_part(run->x[HEED__LINEAR_PAST], i, size);
  const heed__linear_attention_backward_task g = {
      .forward = task,
      .dstate = linear_part(run->state, i, size),
      .dq = linear_part(run->dx[HEED__LINEAR_Q], i, run->group * keys),
      .dk = linear_part(run->dx[HEED__LINEAR_K], i, keys),
      .dv = linear_part(run->dx[HEED__LINEAR_V], i, task.tokens * task.value_size),
      .ddecay = linear_part(run->dx[HEED__LINEAR_DECAY], i, task.decays_each ? keys : task.tokens),
      .dbeta = linear_part(run->dx[HEED__LINEAR_BETA], i, task.tokens),
      .scratch = scratch};
  return run->kernels->linear_attention_backward(&g, run->work.pace, position);
#endif
}

static size_t linear_scratch(const linear_run *run, const heed__linear_attention_task *task) {
#if !HEED_MINIMAL
  const heed__linear_attention_backward_task backward = {.forward = *task};
  if (run->backward) return run->kernels->linear_attention_backward_scratch(&backward);
#endif
  return run->kernels->linear_attention_scratch(task);
}

static heed_status run_linear(linear_run *run) {
  heed__linear_attention_task task = run->task;
  const double n = (double)task.tokens, size = (double)task.head_size * (double)task.value_size;
  const int64_t tasks = run->batch * run->key_heads;
  if (tasks == 0) return HEED_OK;
  /* the kernels' own sizes are sums of products of these; tensors that are expanded may have any */
  const double wide = (double)(task.head_size + task.value_size + 64);
  const size_t most = PTRDIFF_MAX / sizeof(float), line = HEED__ALIGNMENT / sizeof(float);
  const double wanted = 4096 * wide + (run->backward ? (n / 64 + 80) * size : 0);
  if (wanted > (double)most / 16) return heed__fail_memory(run->ctx, run->function, PTRDIFF_MAX);
  task.decay =
      run->x[HEED__LINEAR_DECAY] ? (const float *)(const void *)run->x[HEED__LINEAR_DECAY]->data : NULL;
  const size_t bytes = linear_scratch(run, &task);
  const double work = (double)tasks * n * size * (double)(run->group + 2);
  const int workers = work < LINEAR_WAKING ? 1 : heed__workers(run->ctx);
  run->area = (bytes / sizeof(float) + line) / line * line;
  const size_t all = heed__array_bytes((uint64_t)heed__min(tasks, workers) * run->area, sizeof(float));
  run->scratch = heed__allocate(run->ctx, all);
  if (!run->scratch) return heed__fail_memory(run->ctx, run->function, all);
  heed__work_begin(run->ctx, &run->work, workers, tasks, run_linear_head, run);
  const bool done = heed__work_run(run->ctx, &run->work);
  heed__work_end(run->ctx, &run->work);
  return done ? HEED_OK : heed__stopped(run->ctx, run->function);
}

/* ---- Forward ---- */

/* The strides of a new result [b, hq, n, dv]: its dimensions lie in memory in the order of those of q, if the
 * columns are innermost there. */
static void order_as_query(heed_tensor *out, const heed_tensor *q) {
  int order[HEED_MAX_DIMS];
  int64_t stride = out->shape[3];
  heed__memory_order(q, order);
  if (order[3] != 3) return;
  for (int i = 2; i >= 0; i--) {
    out->stride[order[i]] = stride;
    stride *= heed__max(out->shape[order[i]], 1);
  }
}

/* Each token and query head updates or reads the state [dk, dv]. */
static double state_products(const linear_run *run) {
  const int64_t *q = run->x[HEED__LINEAR_Q]->shape;
  return 2.0 * (double)q[0] * (double)q[1] * (double)q[2] * (double)q[3] *
         (double)run->x[HEED__LINEAR_V]->shape[3];
}

static heed_status attend_linear(linear_run *run, double scale, heed_tensor **out, heed_tensor **state) {
  heed_context *ctx = run->ctx;
  heed__result y = {0}, last = {0};
  heed_status status = begin_linear_run(run, scale);
  if (status) return status;
  const int64_t *q = run->x[HEED__LINEAR_Q]->shape, *k = run->x[HEED__LINEAR_K]->shape,
                dv = run->x[HEED__LINEAR_V]->shape[3];
  const int64_t shape[] = {q[0], q[1], q[2], dv}, sizes[] = {k[0], k[1], k[3], dv};
  status = heed__charge(ctx, run->function, state_products(run));
  if (status) return status;
  status = heed__result_begin(ctx, run->function, &y, out, HEED_FLOAT32, 4, shape, false, HEED__LINEAR_INPUTS,
                              run->x);
  if (!status)
    status = heed__result_begin_row_major(ctx, run->function, &last, state, HEED_FLOAT32, 4, sizes,
                                          HEED__LINEAR_INPUTS, run->x);
  if (!status) {
    if (y.tensor != *out) order_as_query(y.tensor, run->x[HEED__LINEAR_Q]);
    heed_tensor *own = NULL; /* the kernel needs contiguous columns */
    if (dv > 1 && y.tensor->stride[3] != 1)
      status = heed__tensor_new(ctx, run->function, HEED_FLOAT32, 4, shape, &own);
    run->out = own ? own : y.tensor;
    run->state = last.tensor;
    if (!status) status = run_linear(run);
    if (!status && own && !heed__copy_elements(y.tensor, own)) status = heed__stopped(ctx, run->function);
    heed_tensor_free(own);
  }
  return heed__state_result_end(ctx, status, &y, &last);
}

heed_status heed_linear_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                  const heed_tensor *v, const heed_linear_attention_options *options,
                                  heed_tensor **out, heed_tensor **state) {
  static const char function[] = "linear_attention";
  HEED__ENTER(ctx, function, q, k, v, out);
  HEED__MAY_ENTER(ctx, function, state);
  heed_linear_attention_options own = {.size = sizeof own};
  heed_status status = HEED_OK;
  if (options)
    status = heed__struct_read(ctx, function, "options", "heed_linear_attention_options", options, &own,
                               sizeof own);
  if (status) return status;
  HEED__MAY_ENTER(ctx, function, own.decay, own.beta, own.past_state);
  status = heed__check_state(ctx, function, out, state);
  if (status) return status;
  heed_tensor *unwanted = NULL;
  const heed_tensor *const inputs[] = {q, k, v, own.decay, own.beta, own.past_state};
  linear_run run = {.ctx = ctx, .function = function};
  memcpy(run.x, inputs, sizeof inputs);
  status = attend_linear(&run, own.scale, out, state ? state : &unwanted);
  end_linear_run(&run);
  heed_tensor_free(unwanted);
  return heed__record_state(ctx, status, HEED__OP_linear_attention, HEED__LINEAR_INPUTS, inputs, &own.scale,
                            sizeof own.scale, out, state);
}

/* ---- Backward ---- */

#if !HEED_MINIMAL

/* *out = x, or zeros of that shape, row-major and its own. */
static heed_status linear_copy_or_zeros(const linear_run *run, const heed_tensor *x, const int64_t *shape,
                                        heed_tensor **out) {
  heed_status status = x ? heed__tensor_new(run->ctx, run->function, HEED_FLOAT32, 4, shape, out)
                         : heed__full(run->ctx, run->function, HEED_FLOAT32, 4, shape, heed_number(0), out);
  if (!status && x && !heed__copy_elements(*out, x)) status = heed__stopped(run->ctx, run->function);
  return status;
}

heed_status heed__linear_attention_gradient(heed_context *ctx, const char *function,
                                            const heed_tensor *const x[HEED__LINEAR_INPUTS], double scale,
                                            const heed_tensor *dout, const heed_tensor *dstate,
                                            unsigned wanted, heed_tensor *dx[HEED__LINEAR_INPUTS]) {
  linear_run run = {.ctx = ctx, .function = function, .backward = true};
  heed_tensor *state = NULL, *zeros = NULL, *past = NULL, *made = NULL;
  memcpy(run.x, x, sizeof run.x);
  heed_status status = begin_linear_run(&run, scale);
  if (status) goto done;
  const int64_t *k = run.x[HEED__LINEAR_K]->shape, dv = run.x[HEED__LINEAR_V]->shape[3],
                sizes[] = {k[0], k[1], k[3], dv};
  const int64_t *q = run.x[HEED__LINEAR_Q]->shape, shape[] = {q[0], q[1], q[2], dv};
  status = linear_copy_or_zeros(&run, dstate, sizes, &state);
  if (!status && (!run.x[HEED__LINEAR_PAST] || !heed_tensor_is_contiguous(run.x[HEED__LINEAR_PAST]))) {
    status = linear_copy_or_zeros(&run, run.x[HEED__LINEAR_PAST], sizes, &past);
    run.x[HEED__LINEAR_PAST] = past;
  }
  if (!status && !dout) {
    status = linear_copy_or_zeros(&run, NULL, shape, &zeros);
    dout = zeros;
  }
  if (!status && dv > 1 && dout->stride[3] != 1)
    status = heed__as_contiguous(ctx, function, dout, HEED_FLOAT32, &dout, &made);
  run.out = dout;
  run.state = state;
  for (int i = HEED__LINEAR_Q; i < HEED__LINEAR_PAST && !status; i++) {
    if (!run.x[i] || !(wanted >> i & 1)) continue;
    int64_t own[HEED_MAX_DIMS];
    memcpy(own, run.x[i]->shape, (size_t)run.x[i]->ndim * sizeof *own);
    if (i == HEED__LINEAR_BETA) own[1] = k[1]; /* summed over heads later, where these share it */
    status = heed__tensor_new(ctx, function, HEED_FLOAT32, run.x[i]->ndim, own, &run.dx[i]);
  }
  if (!status) status = run_linear(&run);
done:
  if (!status) {
    for (int i = HEED__LINEAR_Q; i < HEED__LINEAR_PAST; i++) {
      dx[i] = run.dx[i];
      run.dx[i] = NULL;
    }
    if (wanted >> HEED__LINEAR_PAST & 1) {
      dx[HEED__LINEAR_PAST] = state;
      state = NULL;
    }
  }
  for (int i = HEED__LINEAR_Q; i < HEED__LINEAR_PAST; i++) heed_tensor_free(run.dx[i]);
  heed_tensor_free(state);
  heed_tensor_free(past);
  heed_tensor_free(zeros);
  heed_tensor_free(made);
  end_linear_run(&run);
  return status;
}

#endif
