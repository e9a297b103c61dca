/* Attention of few queries, usually on many keys: divided over key heads and ranges of keys, whose partial
 * results are merged in order. The division depends only on the sizes, so the number of threads does not
 * affect the bits of the result. */
#include "plan.h"

#include <float.h>
#include <math.h>

enum {
  DECODE_TASKS = 64,    /* the aim, unless ranges become too short */
  RANGE = 1024,         /* minimum keys of a range: with 64 columns 25 µs of memory bandwidth */
  LONG_RANGE = 1 << 19, /* maximum floats of keys and values of a range: 200 µs of bandwidth */
  GRAIN = 256,          /* minimum keys of the kernel's block */
  LONG_BLOCK = 1 << 17, /* maximum floats of keys and values of a block of more than GRAIN keys */
  FEW_QUERIES = 8,      /* for more, packing the keys is faster */
  MANY_KEYS = 32,       /* enough for any number of columns */
  SOME_KEYS = 6,        /* enough for LEAST_WORK multiply-adds of a query */
  LEAST_WORK = 512
};

typedef heed__decode_division decode_division;

/* For few keys the kernel with queries across the lanes (vector/small.h) is faster, unless each query has
 * enough work of its own. */
bool heed__attention_is_decode(const heed__attention_plan *p) {
  const heed__attention_task *t = &p->task;
  const double work = (double)p->span * ((double)p->head_size + (double)p->value_size);
  const bool many =
      p->span >= MANY_KEYS || (p->span >= SOME_KEYS && work >= LEAST_WORK * (double)p->most_queries);
  return p->most_queries <= FEW_QUERIES && many && (t->q_column == 1 || p->head_size == 1) &&
         (t->k_column == 1 || p->head_size == 1) && (t->v_column == 1 || p->value_size == 1);
}

/* The number of key heads in a bundle: one, unless a row in memory holds several heads (keys [b, n, heads, d]
 * viewed as [b, heads, n, d]); then as many as leave two tasks for each worker. Reading one head alone, with
 * gaps between its keys, used half of the memory bandwidth. */
static int64_t heads_of_bundle(const heed__attention_plan *p, int64_t rows, int64_t tasks, int64_t workers) {
  if (p->key_heads < 2) return 1;
  heed__attention_task next = p->task;
  heed__attention_move(&next, p, p->group);
  const ptrdiff_t apart = (const char *)next.k - (const char *)p->task.k;
  const ptrdiff_t row = p->task.k_row * (ptrdiff_t)heed__element_bytes(p->task.k_dtype);
  if (apart <= 0 || apart >= row) return 1;
  int64_t heads = 1;
  while (p->key_heads % (2 * heads) == 0 && 2 * heads * rows <= HEED__DECODE_ROWS &&
         tasks / (2 * heads) >= 2 * workers)
    heads *= 2;
  return heads;
}

/* Memory idles at the beginning of each block (3 % of the time with 256 keys instead of 1024), but cancelling
 * waits for the end of one. */
static int64_t block_of(const heed__attention_plan *p) {
  int64_t keys = GRAIN;
  while (keys < HEED__DECODE_BLOCK && 2 * keys <= LONG_BLOCK / (p->head_size + p->value_size + 1)) keys *= 2;
  return keys;
}

void heed__decode_divide(heed__attention_plan *p, int workers) {
  decode_division *d = &p->decode;
  const int64_t rows = p->group * p->most_queries, units = heed__parts(rows, HEED__DECODE_ROWS);
  const int64_t all_units = p->heads / p->group * units, most = p->span / RANGE;
  const int64_t ranges = heed__min(heed__parts(DECODE_TASKS, all_units), most > 0 ? most : 1);
  const int64_t longest = heed__max(LONG_RANGE / (p->head_size + p->value_size + 1), RANGE);
  d->range = heed__parts(heed__min(heed__parts(p->span, ranges), longest), GRAIN) * GRAIN;
  d->ranges = heed__parts(p->span, d->range);
  d->heads = heads_of_bundle(p, rows, all_units * d->ranges, workers);
  d->bundles = p->heads / p->group / d->heads;
  d->rows = d->heads * rows;
  d->units = heed__parts(d->rows, HEED__DECODE_ROWS);
  d->tasks = d->bundles * d->units * d->ranges;
  d->area_rows = heed__min(d->rows, HEED__DECODE_ROWS);
  const int64_t line = HEED__ALIGNMENT / (int64_t)sizeof(float);
  d->block = heed__min(block_of(p), d->range);
  d->area =
      heed__parts(d->area_rows * (p->value_size + 2), line) * line; /* no two tasks write to one cache line */
  d->score_area = heed__parts(d->area_rows * (d->block + HEED__DECODE_SPARE), line) * line;
}

/* The task of the query head that a row of a bundle belongs to. */
static heed__attention_task head_of(const heed__attention_plan *p, int64_t bundle, int64_t row) {
  heed__attention_task task = p->task;
  heed__attention_move(&task, p, bundle * p->decode.heads * p->group + row / p->most_queries);
  return task;
}

/* The partial results in an area. */
static void part_of(const heed__attention_plan *p, int64_t area, float **out, float **row_max,
                    float **row_sum) {
  *out = p->decode.parts + area * p->decode.area;
  *row_max = *out + p->decode.area_rows * p->value_size;
  *row_sum = *row_max + p->decode.area_rows;
}

/* ---- Weights ---- */

bool heed__wants_weights_only(const heed__attention_plan *p) {
  for (int i = 0; i < HEED__TAP_MAPS; i++)
    if ((p->map[i] != NULL) != (i == HEED__TAP_weights)) return false;
  if (p->map_query_count > p->query_length) return false;
  for (int64_t i = 0; p->map_queries && i < p->map_query_count; i++)
    for (int64_t j = 0; j < i; j++)
      if (p->map_queries[i] == p->map_queries[j]) return false;
  return true;
}

/* The row of the weights [s] of a query, if they are wanted. */
static float *weights_of(const heed__attention_plan *p, int64_t head, int64_t query) {
  if (!p->decodes_weights) return NULL;
  heed__attention_task of_head = {.key_length = p->key_length};
  int64_t i = query;
  if (!heed__attention_tap(&of_head, p, head)) return NULL;
  if (p->map_queries)
    for (i = 0; i < p->map_query_count && p->map_queries[i] != query;) i++;
  return i < p->map_query_count ? of_head.weights + i * p->key_length : NULL;
}

/* Turns the scores of query i, which the decode kernel has written, into weights. */
static void end_weights(const heed__attention_plan *p, const heed__attention_task *head, int64_t i,
                        float *weights, float most, float total, bool sees) {
  const heed__kernels *kernels = p->kernels;
  const float share = 1.0f / total;
  int64_t first, last;
  heed__attention_bounds(head, i, &first, &last);
  if (!sees) first = last = 0;
  float *x = weights + first;
  const size_t n = (size_t)(last - first);
  kernels->sub(x, x, 1, &most, 0, n);
  kernels->exp(x, x, n);
  kernels->mul(x, x, 1, &share, 0, n);
  for (int64_t j = 0; j < first; j++) weights[j] = 0.0f;
  for (int64_t j = last; j < p->key_length; j++) weights[j] = 0.0f;
}

/* ---- Merging ---- */

/* Merges the partial results of query i of a head, each weighted by e^(its row_max - the largest row_max).
 * They are row r of `ranges` areas from first_area on. */
static void join_row(const heed__attention_plan *p, int64_t first_area, int64_t r,
                     const heed__attention_task *head, int64_t i, float *weights) {
  const int64_t dv = head->value_size, ranges = p->decode.ranges;
  const ptrdiff_t column = head->out_column;
  float *out = head->out + i * head->out_row;
  float *part, *row_max, *row_sum, most = -FLT_MAX, total = 0.0f;
  bool sees = false;
  for (int64_t n = 0; n < ranges; n++) {
    part_of(p, first_area + n, &part, &row_max, &row_sum);
    if (row_max[r] > most) most = row_max[r];
    sees = sees || row_sum[r] != 0.0f; /* true for nan */
  }
  if (head->has_sink && head->sink > most) most = head->sink;
  for (int64_t c = 0; c < dv; c++) out[c * column] = 0.0f;
  for (int64_t n = 0; n < ranges; n++) {
    part_of(p, first_area + n, &part, &row_max, &row_sum);
    const float weight = expf(row_max[r] - most);
    total += weight * row_sum[r];
    for (int64_t c = 0; c < dv; c++) out[c * column] += weight * part[r * dv + c];
  }
  if (head->has_sink) total += expf(head->sink - most);
  for (int64_t c = 0; c < dv; c++) out[c * column] = sees ? out[c * column] / total : 0.0f;
  if (weights) end_weights(p, head, i, weights, most, total, sees);
  heed__attention_write_sums(head, i, most, total, sees);
}

/* The outputs of the unit that begins with first_row of a bundle; its areas begin with `area`. */
static void join_rows(const heed__attention_plan *p, int64_t bundle, int64_t first_row, int64_t area) {
  const int64_t rows = heed__min(p->decode.rows - first_row, HEED__DECODE_ROWS);
  heed__attention_task head = head_of(p, bundle, first_row);
  for (int64_t r = 0; r < rows; r++) {
    const int64_t query = (first_row + r) % p->most_queries;
    if (r > 0 && query == 0) head = head_of(p, bundle, first_row + r);
    if (query >= head.query_length) continue; /* an item may have fewer */
    const int64_t of_all = bundle * p->decode.heads * p->group * p->most_queries + first_row + r;
    join_row(p, area, r, &head, query, weights_of(p, heed__quotient(of_all, p->most_queries), query));
  }
}

static ptrdiff_t elements_between(const void *a, const void *b, heed_dtype dtype) {
  return ((const char *)a - (const char *)b) / (ptrdiff_t)heed__element_bytes(dtype);
}

/* Tasks are ordered by bundle, then by unit, then by range. */
bool heed__decode_run(void *plan, int64_t i, int slot, int64_t *position) {
  const heed__attention_plan *p = plan;
  const decode_division *d = &p->decode;
  const int64_t unit = i / d->ranges, bundle = unit / d->units, range = i % d->ranges;
  const int64_t first_row = unit % d->units * HEED__DECODE_ROWS;
  heed__decode_task task = {
      .head_size = p->head_size,
      .value_size = p->value_size,
      .k_dtype = p->task.k_dtype,
      .v_dtype = p->task.v_dtype,
      .k_row = p->task.k_row,
      .v_row = p->task.v_row,
      .k_scale_row = p->task.k_scale_row,
      .v_scale_row = p->task.v_scale_row,
      .visible_column = p->task.visible_column,
      .bias_column = p->task.bias_column,
      .padding_stride = p->task.padding_stride,
      .scale = p->task.scale,
      .softcap = p->task.softcap,
      .rows = (int)heed__min(d->rows - first_row, HEED__DECODE_ROWS),
      .block = (int)d->block,
      .scores = d->scores + slot * d->score_area,
  };
  heed__attention_task head = head_of(p, bundle, first_row);
  int64_t first, unused, last;
  heed__attention_window(&head, 0, &first, &unused);
  heed__attention_window(&head, heed__max(head.query_length - 1, 0), &unused, &last);
  task.first = first + range * d->range;
  task.last = heed__min(task.first + d->range, last);
  task.k = head.k;
  task.v = head.v;
  task.padding = head.padding;
  for (int r = 0; r < task.rows; r++) {
    const int64_t query = (first_row + r) % p->most_queries;
    if (r > 0 && query == 0) head = head_of(p, bundle, first_row + r);
    if (query >= head.query_length) { /* an item may have fewer */
      task.row[r] = (heed__decode_row){0};
      continue;
    }
    task.row[r] = (heed__decode_row){
        .q = head.q + query * head.q_row,
        .k = elements_between(head.k, task.k, task.k_dtype),
        .v = elements_between(head.v, task.v, task.v_dtype),
        .k_scale = head.k_scale,
        .v_scale = head.v_scale,
        .intervals = head.intervals ? heed__attention_intervals(&head, query) : NULL,
        .interval_count = head.interval_count,
        .visible = head.visible ? head.visible + query * head.visible_row : NULL,
        .bias = head.bias ? head.bias + query * head.bias_row : NULL,
        .slope = head.slope,
        .position = query + head.offset,
        .map = weights_of(p, bundle * d->heads * p->group + (first_row + r) / p->most_queries, query),
    };
    float *map = *position == 0 ? task.row[r].map : NULL;
    for (int64_t j = task.first; map && j < task.last; j++) map[j] = -INFINITY;
    heed__attention_bounds(&head, query, &task.row[r].first, &task.row[r].last);
  }
  const int64_t area = d->ranges > 1 ? i : slot;
  part_of(p, area, &task.out, &task.row_max, &task.row_sum);
  if (!p->kernels->decode(&task, &p->context->pace, position)) return false;
  if (d->ranges == 1) join_rows(p, bundle, first_row, area);
  return true;
}

/* Merges all rows of a bundle of several ranges. */
bool heed__decode_join(void *plan, int64_t bundle, int slot, int64_t *position) {
  const heed__attention_plan *p = plan;
  const decode_division *d = &p->decode;
  (void)slot, (void)position;
  for (int64_t unit = 0; unit < d->units; unit++)
    join_rows(p, bundle, unit * HEED__DECODE_ROWS, (bundle * d->units + unit) * d->ranges);
  return true;
}
