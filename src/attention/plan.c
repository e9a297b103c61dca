/* The plan of a call: dividing it into tasks and running them. The kernels do the arithmetic. */
#include "plan.h"

#include <string.h>

enum {
  ROWS = 768,        /* of a task; each task packs the keys again, 1 % of its time */
  NARROW_ROWS = 192, /* where rows see up to NARROW keys by intervals: neighbouring heads stay cached */
  NARROW = 512,
  LEAST_ROWS = 48, /* reduced to this at most, until there are TASKS tasks for each worker */
  TASKS = 4,
  SCALAR_SCORES = 24, /* up to this number of scores the scalar kernel is the fastest */
  DRAWN = 1 << 18,    /* maximum floats of a task's dropout_mask, unless it has one row */
  KEPT = 1 << 19,     /* maximum floats of queries and outputs in a task's scratch, unless it has few rows */
  MOST_ROWS = 2048,   /* upper bound of the rows and keys in a task's scratch */
  UNITS_WORK = 1 << 25, /* multiply-adds of a task of several units */
  MOST_UNITS = 1 << 22, /* upper bound of these, so that its positions fit */
  WAKING = 1 << 17,     /* multiply-adds of one thread in the time that another takes to wake up */
};

/* Positions from here on are in the pass that writes taps. Below HEED__DRAWING. */
#define TAPPED ((int64_t)1 << 38)

/* Positions of a task of units: its unit, then the position in it. */
#define UNIT_SHIFT 40

/* ---- Running ---- */

/* Computes rows of a head in *task, which was moved to it; false if it stopped at a yield point. A separate
 * pass writes the maps, so that they do not change the bits of the output. */
static bool run_rows(const heed__attention_plan *p, heed__attention_task *task, int64_t head, int64_t first,
                     int64_t last, const float *dropout_mask, float *scratch, const heed__pace *pace,
                     int64_t *position) {
  task->first = first;
  task->last = last;
  task->dropout_mask = dropout_mask;
  task->scratch = scratch;
  if (p->fuses_weights && !heed__attention_tap(task, p, head)) task->weights = NULL;
  if (*position < TAPPED) {
    const bool attends = !p->decoded && !p->operands->maps_only;
    if (attends &&
        !(p->reduced ? p->kernels->reduced_attention : p->kernels->attention)(task, pace, position))
      return false;
    if (!p->tapped) return true;
    *position = TAPPED;
  }
  heed__attention_task tapped = *task;
  tapped.out = tapped.lse = tapped.stats = NULL;
  if (!heed__attention_tap(&tapped, p, head)) return true;
  if (p->packed && p->map_queries) heed__attention_in_all_rows(&tapped, p, head);
  int64_t at = *position - TAPPED;
  const bool done =
      p->kernels == &heed__kernels_scalar && !p->map_queries
          ? heed__kernels_scalar.attention(&tapped, pace, &at)
          : heed__attention_maps(p->kernels, &tapped, p->map_queries, p->map_query_count, pace, &at);
  *position = TAPPED + at;
  return done;
}

/* A unit of items, or a task of a call, with its head's task. */
typedef struct attention_step {
  int64_t item, head, first, last;
  heed__attention_task task;
} attention_step;

/* Sets the step's task from its head and rows. */
static void move_to_rows(attention_step *s, const heed__attention_plan *p) {
  heed__attention_move(&s->task, p, s->head);
  s->task.first = s->first;
  s->task.last = s->last;
}

/* Moves to a unit or task in order; `item` is its item or an earlier one. */
static void move_step(attention_step *s, const heed__attention_plan *p, int64_t number, int64_t item) {
  if (p->items) {
    while (number >= p->items[item + 1].unit) item++;
    const heed__attention_item *own = &p->items[item];
    const int64_t blocks = heed__parts(own->query_length, p->rows), of_item = number - own->unit;
    const int64_t head = heed__quotient(of_item, blocks);
    s->head = item * p->query_heads + head;
    s->first = (of_item - head * blocks) * p->rows;
    s->last = heed__min(own->query_length, s->first + p->rows);
  } else {
    s->head = heed__quotient(number, p->blocks);
    s->first = (number - s->head * p->blocks) * p->rows;
    s->last = p->query_length - s->first < p->rows ? p->query_length : s->first + p->rows;
  }
  s->item = item;
  move_to_rows(s, p);
}

/* Makes step b, at `number`, the one that follows step a, if there is one. */
static void follow_step(attention_step *a, attention_step *b, const heed__attention_plan *p, int64_t number,
                        int64_t end) {
  a->task.soon = NULL;
  if (number >= end) return;
  move_step(b, p, number, a->item);
  a->task.soon = &b->task;
}

/* The rows of a step in the scratch of a slot. */
static bool run_step(heed__attention_plan *p, attention_step *s, int slot, const heed__pace *pace,
                     int64_t *position) {
  float *scratch = p->scratch + (size_t)slot * p->slot_area;
  float *dropout_mask = p->drops ? scratch + p->area : NULL;
  return (!p->drops || heed__attention_draw(p, &s->task, s->head, dropout_mask, pace, position)) &&
         run_rows(p, &s->task, s->head, s->first, s->last, dropout_mask, scratch, pace, position);
}

/* The longest tasks (the last rows, if causal) come first, so that all workers end at about the same time.
 * The heads of the same rows follow each other: where tokens are the outer dimension, they share pages. */
static void move_to_task(attention_step *s, const heed__attention_plan *p, int64_t i) {
  const int64_t block = heed__quotient(i, p->heads);
  s->head = i - block * p->heads;
  s->first = (p->blocks - 1 - block) * p->rows;
  s->last = heed__min(p->query_length, s->first + p->rows);
  move_to_rows(s, p);
}

/* The task that a worker gets next is most likely as many tasks later as there are workers. */
static bool run_task(void *argument, int64_t i, int slot, int64_t *position) {
  heed__attention_plan *p = argument;
  const int64_t soon = i + p->work.slots;
  attention_step s = {.task = p->task}, next = {.task = p->task};
  move_to_task(&s, p, i);
  if (soon < p->blocks * p->heads) {
    move_to_task(&next, p, soon);
    s.task.soon = &next.task;
  }
  return run_step(p, &s, slot, p->work.pace, position);
}

/* Items: units_of_task units. */
static bool run_units(void *argument, int64_t i, int slot, int64_t *position) {
  heed__attention_plan *p = argument;
  const int64_t begin = i * p->units_of_task, end = heed__min(begin + p->units_of_task, p->units);
  int64_t unit = begin + (*position >> UNIT_SHIFT), at = *position & (((int64_t)1 << UNIT_SHIFT) - 1);
  attention_step steps[2] = {{.task = p->task}, {.task = p->task}};
  move_step(&steps[0], p, unit, heed__attention_item_of(p, unit));
  for (int turn = 0; unit < end; unit++, at = 0, turn ^= 1) {
    attention_step *s = &steps[turn];
    follow_step(s, &steps[turn ^ 1], p, unit + 1, end);
    const bool done = run_step(p, s, slot, p->work.pace, &at);
    *position = done ? (unit + 1 - begin) << UNIT_SHIFT : (unit - begin) << UNIT_SHIFT | at;
    if (!done || (unit + 1 < end && heed__should_yield(p->work.pace))) return false;
  }
  return true;
}

/* Head by head, in the order of dropout's draws. */
static bool run_in_order(heed__attention_plan *p) {
  const heed__pace *pace = &p->context->pace;
  const int64_t tasks = p->items ? p->units : p->blocks * p->heads;
  attention_step steps[2] = {{.task = p->task}, {.task = p->task}};
  if (p->current < tasks) move_step(&steps[0], p, p->current, p->current_item);
  for (int turn = 0; p->current < tasks; turn ^= 1) {
    attention_step *s = &steps[turn];
    follow_step(s, &steps[turn ^ 1], p, p->current + 1, tasks);
    p->current_item = s->item;
    if (!run_step(p, s, 0, pace, &p->position)) return false;
    p->position = 0;
    if (++p->current < tasks && heed__should_yield(pace)) return false;
  }
  return true;
}

bool heed__attention_plan_run(heed__attention_plan *p) {
  heed_context *ctx = p->context;
  if (p->empty) return true;
  if (p->drops && !p->drawing) heed__attention_begin_dropout(p);
  if (!heed__attention_scan_run(p)) return false;
  if (p->decoded) {
    if (!heed__work_run(ctx, &p->decode_work) || !heed__work_run(ctx, &p->join_work)) return false;
    if (!p->tapped) return true;
  }
  return p->in_order ? run_in_order(p) : heed__work_run(ctx, &p->work);
}

double heed__attention_plan_progress(const heed__attention_plan *p) {
  if (p->empty) return 0;
  if (p->decoded) return heed__work_progress(&p->decode_work);
  if (!p->in_order) return heed__work_progress(&p->work);
  return (double)p->current / (double)heed__max(p->items ? p->units : p->blocks * p->heads, 1);
}

/* ---- Dividing ---- */

static size_t aligned(size_t floats) {
  const size_t line = HEED__ALIGNMENT / sizeof(float);
  return (floats + line - 1) / line * line;
}

static size_t scratch_of(const heed__attention_plan *p, const heed__attention_task *task) {
  const heed__kernels *k = p->kernels;
  const size_t bytes = (p->reduced ? k->reduced_attention_scratch : k->attention_scratch)(task);
  return aligned((bytes + sizeof(float) - 1) / sizeof(float));
}

/* Whether the context's precision, the dtypes of keys and values and the kernels ask for bfloat16. What
 * gradients and taps need is computed in float32. */
static bool is_reduced(const heed__attention_plan *p) {
  const heed_matmul_precision precision = p->context->precision;
  const heed_dtype k = p->task.k_dtype, v = p->task.v_dtype;
  const bool stored = (k == HEED_BFLOAT16 || k == HEED_INT8) && (v == HEED_BFLOAT16 || v == HEED_INT8);
  if (precision == HEED_PRECISION_HIGHEST || (precision == HEED_PRECISION_HIGH && !stored)) return false;
  if (p->operands->taps || p->operands->kept || p->operands->stats || p->drops || p->slopes || p->scans)
    return false;
  return p->kernels->reduced_attention_scratch(&p->task) > 0;
}

static int64_t blocks_of(const heed__attention_plan *p, int64_t rows) {
  return heed__quotient(p->query_length + rows - 1, rows);
}

/* The tasks, or the units of items, with that number of rows. */
static int64_t count_tasks(heed__attention_plan *p, int64_t rows) {
  return p->items ? heed__attention_number_units(p, rows) : blocks_of(p, rows) * p->heads;
}

/* Whether rows see few keys from the beginning of their intervals to the end: the mean of some of them. */
static bool is_narrow(const heed__attention_plan *p) {
  const heed__attention_task *t = &p->task;
  const int64_t step = p->query_length / 64 + 1;
  int64_t keys = 0, rows = 0;
  if (!t->intervals || p->scans) return false;
  for (int64_t i = 0; i < p->query_length; i += step, rows++) {
    const int32_t *x = heed__attention_intervals(t, i);
    keys += x[2 * t->interval_count - 1] - x[0];
  }
  return keys <= rows * NARROW;
}

static int64_t rows_of_task(heed__attention_plan *p, int64_t workers) {
  int64_t rows = is_narrow(p) ? NARROW_ROWS : ROWS;
  while (rows > 6 && rows > heed__quotient(KEPT, p->head_size + p->value_size + 1)) rows /= 2;
  if (p->drops && rows > DRAWN / p->key_length) rows = DRAWN / p->key_length > 0 ? DRAWN / p->key_length : 1;
  while (workers > 1 && rows > LEAST_ROWS && count_tasks(p, rows) < TASKS * workers) rows /= 2;
  return rows < p->query_length ? rows : p->query_length;
}

/* Few scores, of heads that are too wide for the vector kernels' path for small heads. */
static bool is_scalar(const heed__attention_plan *p) {
  return !heed__attention_is_small(&p->task) &&
         (double)p->query_length * (double)p->key_length <= SCALAR_SCORES;
}

/* The number of workers, for that number of keys for each query: one if it is done before another wakes up.
 */
static int workers_for(const heed__attention_plan *p, double keys) {
  const double work = (double)heed__attention_all_rows(p) * keys * (double)(p->head_size + p->value_size);
  return work < WAKING ? 1 : heed__workers(p->context);
}

/* The scratch of all slots, each with a dropout_mask, in the caller's buffer if it fits. */
static heed_status new_scratch(heed__attention_plan *p, int slots, heed__attention_scratch *scratch) {
  const size_t most = PTRDIFF_MAX / sizeof(float), drawn = p->drops ? (size_t)(p->rows * p->key_length) : 0;
  heed__attention_task task = p->task;
  task.last = p->rows;
  bool fits = drawn < most && (size_t)(p->head_size + p->value_size) <
                                  most / MOST_ROWS; /* expanded tensors may be that wide */
  if (fits) {
    p->area = scratch_of(p, &task);
    const size_t maps = p->tapped ? aligned(heed__attention_maps_scratch(&task)) : 0;
    if (p->area < maps) p->area = maps;
    fits = p->area <= most - drawn && p->area + drawn <= (most - HEED__ALIGNMENT) / (size_t)slots;
  }
  p->slot_area = fits ? slots > 1 ? aligned(p->area + drawn) : p->area + drawn : most;
  const size_t floats = fits ? (size_t)slots * p->slot_area : most;
  if (scratch && !p->decoded && floats <= HEED__ATTENTION_SCRATCH) {
    p->scratch = scratch->floats;
    return HEED_OK;
  }
  if (fits) p->allocated[0] = heed__allocate(p->context, floats * sizeof(float));
  p->scratch = p->allocated[0];
  return p->scratch ? HEED_OK : heed__fail_memory(p->context, p->operands->function, floats * sizeof(float));
}

static heed_status begin_decode(heed__attention_plan *p, heed__attention_scratch *scratch) {
  heed__decode_division *d = &p->decode;
  const int workers = workers_for(p, (double)p->span);
  heed__decode_divide(p, workers);
  p->kernels = heed__kernels_of(p->context);
  const int64_t slots = d->tasks < workers ? d->tasks : workers, areas = d->ranges > 1 ? d->tasks : slots;
  const double wanted = (double)areas * (double)d->area + (double)slots * (double)d->score_area;
  if (wanted > (double)(PTRDIFF_MAX / sizeof(float)))
    return heed__fail_memory(p->context, p->operands->function, PTRDIFF_MAX);
  const size_t parts = (size_t)(areas * d->area), floats = parts + (size_t)(slots * d->score_area);
  if (scratch && floats <= HEED__ATTENTION_SCRATCH) {
    d->parts = scratch->floats;
  } else {
    d->parts = p->allocated[1] = heed__allocate(p->context, floats * sizeof(float));
    if (!d->parts) return heed__fail_memory(p->context, p->operands->function, floats * sizeof(float));
  }
  d->scores = d->parts + parts;
  heed__work_begin(p->context, &p->decode_work, workers, d->tasks, heed__decode_run, p);
  heed__work_begin(p->context, &p->join_work, workers_for(p, (double)d->ranges),
                   d->ranges > 1 ? d->bundles : 0, heed__decode_join, p);
  p->decoded = true;
  return HEED_OK;
}

/* The keys that a query with `keys` keys sees through the window. */
static double keys_in_window(const heed__attention_plan *p, int64_t keys) {
  if (p->window_left == INT64_MAX || p->window_right == INT64_MAX) return (double)keys;
  const double width = (double)p->window_left + (double)p->window_right + 1;
  return width < (double)keys ? width : (double)keys;
}

double heed__attention_products(const heed__attention_plan *p) {
  double pairs = (double)heed__attention_all_rows(p) * keys_in_window(p, p->span);
  if (p->items != NULL) {
    pairs = 0;
    for (int64_t i = 0; i < p->item_count; i++)
      pairs += (double)p->items[i].query_length * keys_in_window(p, p->items[i].key_length);
    pairs *= (double)p->query_heads;
  }
  return pairs * (double)(p->head_size + p->value_size);
}

/* Enough units of items to make the cost of a task small, but TASKS tasks for each worker. */
static int64_t units_of_task(const heed__attention_plan *p, int64_t workers) {
  double work = 0;
  for (int64_t i = 0; i < p->item_count; i++)
    work += (double)p->items[i].query_length * (double)(p->items[i].key_length + 1);
  work *= (double)p->query_heads * (double)(p->head_size + p->value_size + 1);
  const double least = workers > 1 ? (double)(TASKS * workers) : 1, tasks = work / UNITS_WORK;
  const int64_t units = (int64_t)((double)p->units / (tasks > least ? tasks : least));
  return heed__max(heed__min(units, MOST_UNITS), 1);
}

/* Chooses kernels and tasks; the output and the taps are allocated. */
static heed_status divide(heed__attention_plan *p, heed__attention_scratch *scratch) {
  const bool scalar = !p->items && is_scalar(p);
  const bool small = !p->items && (scalar || heed__attention_is_small(&p->task));
  p->kernels = scalar ? &heed__kernels_scalar : heed__kernels_of(p->context);
  const heed_generator *g = heed__generator(p->context, p->operands->options.generator);
  p->drops = p->operands->options.dropout_p > 0 && p->key_length > 0;
  p->in_order = (p->drops && g->kind == HEED_MT19937) || small;
  for (int i = 0; i < HEED__TAP_MAPS; i++) p->tapped = p->tapped || p->map[i];
  if (!p->drops && !p->operands->maps_only && heed__attention_is_decode(p)) {
    if (heed__wants_weights_only(p) && !(p->packed && p->map_queries)) {
      p->decodes_weights = true;
      p->tapped = false;
    }
    const heed_status status = begin_decode(p, scratch);
    if (status || !p->tapped) return status;
  }
  if (p->tapped && !p->operands->maps_only && p->kernels != &heed__kernels_scalar && !p->map_queries &&
      heed__wants_weights_only(p)) {
    p->fuses_weights = true;
    p->tapped = false;
  }
  const int most_workers = p->in_order ? 1 : workers_for(p, (double)p->span);
  if (!small && !p->decoded) {
    const heed_status status = heed__attention_scan_begin(p, most_workers);
    if (status) return status;
  }
  p->reduced = !small && !p->decoded && is_reduced(p);
  p->rows = rows_of_task(p, most_workers);
  p->blocks = blocks_of(p, p->rows);
  if (p->items) p->units = heed__attention_number_units(p, p->rows);
  if (p->in_order) return new_scratch(p, 1, scratch);
  if (p->items) p->units_of_task = units_of_task(p, most_workers);
  const int64_t tasks = p->items ? heed__parts(p->units, p->units_of_task) : p->blocks * p->heads;
  heed__work_begin(p->context, &p->work, most_workers, tasks, p->items ? run_units : run_task, p);
  p->divided = true;
  return new_scratch(p, p->work.slots, scratch);
}

/* ---- Beginning and end ---- */

static heed_status new_stats(heed__attention_plan *p) {
  const heed_attention_options *o = &p->operands->options;
  int64_t shape[HEED_MAX_DIMS];
  if (!p->operands->stats) return HEED_OK;
  for (int i = 0; i < p->ndim; i++) shape[i] = p->shape[i];
  shape[p->ndim - 1] = 2;
  const heed_status status = heed__result_begin_row_major(
      p->context, p->operands->function, &p->stats_result, p->operands->stats, HEED_FLOAT32, p->ndim, shape,
      9,
      (const heed_tensor *const[]){p->operands->q, p->k, p->v, o->attn_mask, p->operands->key_padding_mask,
                                   o->kv_lengths, o->alibi_slopes, o->sinks, p->result.tensor});
  if (status) return status;
  p->stats = (float *)(void *)p->stats_result.tensor->data;
  return HEED_OK;
}

heed_status heed__attention_check_operands(heed_context *ctx, const heed__attention_operands *operands) {
  heed__attention_plan p = {.context = ctx, .operands = operands, .empty = true};
  const heed_status status = heed__attention_check(&p);
  heed__attention_free_operands(&p);
  return status;
}

heed_status heed__attention_plan_begin(heed_context *ctx, heed__attention_plan *p,
                                       const heed__attention_operands *operands,
                                       heed__attention_scratch *scratch, heed_tensor **out) {
  const heed_attention_options *o = &operands->options;
  memset(p, 0, offsetof(heed__attention_plan, dropout));
  p->context = ctx;
  const bool shares = *out == NULL;
  p->operands = operands;
  p->empty = true;
  heed_status status = heed__attention_check(p);
  if (status) goto failed;
  status = heed__charge(ctx, operands->function, heed__attention_products(p));
  if (status) goto failed;
  const int64_t packed[] = {p->query_heads, operands->q->shape[operands->q->ndim - 2], p->value_size};
  status = heed__result_begin(
      ctx, operands->function, &p->result, out, HEED_FLOAT32, operands->items ? 3 : p->ndim,
      operands->items ? packed : p->shape, false, 12,
      (const heed_tensor *const[]){operands->q, p->k, p->v, o->attn_mask, operands->key_padding_mask,
                                   o->kv_lengths, o->alibi_slopes, o->sinks, operands->k_scale,
                                   operands->v_scale, operands->lengths, operands->key_lengths});
  if (status) goto failed;
  if (operands->taps && (status = heed__attention_new_taps(p, shares))) goto failed;
  if ((status = heed__attention_new_kept(p)) || (status = new_stats(p))) goto failed;
  heed__attention_set_out(p, p->result.tensor);
  p->empty = p->heads == 0 || p->query_length == 0 ||
             (p->value_size == 0 && !operands->taps && !operands->stats && o->dropout_p <= 0);
  if (!p->empty && (status = heed__attention_check_dropout(p))) goto failed;
  if (!p->empty && (status = divide(p, scratch))) goto failed;
  return HEED_OK;
failed:
  return heed__attention_plan_end(p, status);
}

heed_status heed__attention_plan_end(heed__attention_plan *p, heed_status status) {
  heed_context *ctx = p->context;
  if (p->decoded) {
    heed__work_end(ctx, &p->decode_work);
    heed__work_end(ctx, &p->join_work);
  }
  if (p->divided) heed__work_end(ctx, &p->work);
  heed__attention_scan_end(p);
  heed__release(ctx, p->allocated[0]);
  heed__release(ctx, p->allocated[1]);
  if (p->operands->stats) status = heed__result_end(ctx, &p->stats_result, status);
  status = heed__result_end(ctx, &p->result, status);
  if (p->operands->taps) heed__attention_end_taps(p, status);
  if (status == HEED_OK && p->operands->kept)
    *p->operands->kept = p->kept;
  else
    heed_tensor_free(p->kept);
  heed__attention_free_operands(p);
  return status;
}
