/* Attention of few queries, on many keys above all: divided over the heads of keys, then over ranges of keys,
 * whose parts are put together in order. The division depends on the sizes alone, and so do the bits of the
 * result. */
#include "plan.h"

#include <float.h>
#include <math.h>

enum {
  DECODE_TASKS = 64,    /* wanted, as long as the ranges are not too short */
  RANGE = 1024,         /* keys, at the least: at 64 columns some 25 µs of memory's time */
  LONG_RANGE = 1 << 19, /* floats of keys and values, which no range has more of: 200 µs of that */
  GRAIN = 256,          /* keys: the kernel's block at the least */
  LONG_BLOCK = 1 << 17, /* floats of keys and values, which only the least has more of */
  FEW_QUERIES = 8,      /* more are quicker with packed keys */
  MANY_KEYS = 32,
  SOME_KEYS = 6,
  LEAST_WORK = 512 /* multiply-adds of a query with some keys */
};

typedef heed__decode_division decode_division;

static int64_t least_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Few keys are quicker with the queries across the lanes (vector/small.h), but not where they are so many and
 * so wide that each query has some work with them. */
bool heed__attention_is_decode(const heed__attention_problem *p) {
  const heed__attention_task *t = &p->task;
  const double work = (double)p->span * ((double)p->d + (double)p->dv);
  const bool many = p->span >= MANY_KEYS || (p->span >= SOME_KEYS && work >= LEAST_WORK * (double)p->l);
  return p->l <= FEW_QUERIES && many && (t->q_column == 1 || p->d == 1) && (t->k_column == 1 || p->d == 1) &&
         (t->v_column == 1 || p->dv == 1);
}

/* How many heads go together: one, but where a row of the keys has those of several heads (as in keys
 * [b, n, heads, d] that are seen as [b, heads, n, d]), as many as leave two tasks for each worker. One head's
 * keys alone, with gaps in between, came at half of the memory's speed. */
static int64_t heads_together(const heed__attention_problem *p, int64_t rows, int64_t tasks,
                              int64_t workers) {
  if (p->hkv < 2) return 1;
  heed__attention_task next = p->task;
  heed__attention_move(&next, p, p->group);
  const ptrdiff_t apart = (const char *)next.k - (const char *)p->task.k;
  const ptrdiff_t row = p->task.k_row * (ptrdiff_t)heed__element_bytes(p->task.k_dtype);
  if (apart <= 0 || apart >= row) return 1;
  int64_t heads = 1;
  while (p->hkv % (2 * heads) == 0 && 2 * heads * rows <= HEED__DECODE_ROWS &&
         tasks / (2 * heads) >= 2 * workers)
    heads *= 2;
  return heads;
}

/* Keys that are gone through at once: memory waits for each block to begin (3 % of the time if they have 256
 * keys instead of 1024), the caller for one to end. */
static int64_t block_of(const heed__attention_problem *p) {
  int64_t keys = GRAIN;
  while (keys < HEED__DECODE_BLOCK && 2 * keys <= LONG_BLOCK / (p->d + p->dv + 1)) keys *= 2;
  return keys;
}

void heed__decode_divide(decode_division *d, const heed__attention_problem *p, const heed__kernels *kernels,
                         int workers) {
  const int64_t rows = p->group * p->l, units = heed__parts(rows, HEED__DECODE_ROWS);
  const int64_t all_units = p->products / p->group * units, most = p->span / RANGE;
  const int64_t ranges = least_of(heed__parts(DECODE_TASKS, all_units), most > 0 ? most : 1);
  const int64_t longest = heed__larger(LONG_RANGE / (p->d + p->dv + 1), RANGE);
  d->problem = p;
  d->kernels = kernels;
  d->range = heed__parts(least_of(heed__parts(p->span, ranges), longest), GRAIN) * GRAIN;
  d->ranges = heed__parts(p->span, d->range);
  d->heads = heads_together(p, rows, all_units * d->ranges, workers);
  d->count = p->products / p->group / d->heads;
  d->rows = d->heads * rows;
  d->units = heed__parts(d->rows, HEED__DECODE_ROWS);
  d->tasks = d->count * d->units * d->ranges;
  d->area_rows = least_of(d->rows, HEED__DECODE_ROWS);
  const int64_t line = HEED__ALIGNMENT / (int64_t)sizeof(float);
  d->block = least_of(block_of(p), d->range);
  d->area = heed__parts(d->area_rows * (p->dv + 2), line) * line; /* whole lines: no two tasks write to one */
  d->score_room = heed__parts(d->area_rows * (d->block + HEED__DECODE_SPARE), line) * line;
}

/* The product and the query that a row is; `some` counts the heads that are done together. */
static heed__attention_task product_of(const decode_division *d, int64_t some, int64_t row) {
  heed__attention_task task = d->problem->task;
  heed__attention_move(&task, d->problem, some * d->heads * d->problem->group + row / d->problem->l);
  return task;
}

/* The part of a task, its rows as in the area, which is a slot's where there is but one range. */
static void part_of(const decode_division *d, int64_t area, float **out, float **largest, float **sum) {
  *out = d->parts + area * d->area;
  *largest = *out + d->area_rows * d->problem->dv;
  *sum = *largest + d->area_rows;
}

static ptrdiff_t apart(const void *a, const void *b, heed_dtype dtype) {
  return ((const char *)a - (const char *)b) / (ptrdiff_t)heed__element_bytes(dtype);
}

/* The output of query i of a product: its parts put together, each weighted by e^(its largest score - the
 * largest); r is its row in them, which lie in the areas from first_area on. */
static void join_row(const decode_division *d, int64_t first_area, int64_t r,
                     const heed__attention_task *product, int64_t i) {
  const int64_t dv = product->dv;
  const ptrdiff_t column = product->out_column;
  float *out = product->out + i * product->out_row;
  float *part, *largest, *sum, most = -FLT_MAX, total = 0.0f;
  bool sees = false;
  for (int64_t n = 0; n < d->ranges; n++) {
    part_of(d, first_area + n, &part, &largest, &sum);
    if (largest[r] > most) most = largest[r];
    sees = sees || sum[r] != 0.0f; /* nan does */
  }
  if (product->has_sink && product->sink > most) most = product->sink;
  for (int64_t c = 0; c < dv; c++) out[c * column] = 0.0f;
  for (int64_t n = 0; n < d->ranges; n++) {
    part_of(d, first_area + n, &part, &largest, &sum);
    const float weight = expf(largest[r] - most);
    total += weight * sum[r];
    for (int64_t c = 0; c < dv; c++) out[c * column] += weight * part[r * dv + c];
  }
  if (product->has_sink) total += expf(product->sink - most);
  for (int64_t c = 0; c < dv; c++) out[c * column] = sees ? out[c * column] / total : 0.0f;
}

/* The outputs of a unit of some heads, from that row on; their parts lie in the areas from `area` on. */
static void join_rows(const decode_division *d, int64_t some, int64_t first_row, int64_t area) {
  const int64_t l = d->problem->l, rows = least_of(d->rows - first_row, HEED__DECODE_ROWS);
  heed__attention_task product = product_of(d, some, first_row);
  for (int64_t r = 0; r < rows; r++) {
    const int64_t query = (first_row + r) % l;
    if (r > 0 && query == 0) product = product_of(d, some, first_row + r);
    join_row(d, area, r, &product, query);
  }
}

/* Tasks go by heads, in these by units, in these by ranges. */
bool heed__decode_run(void *argument, int64_t i, int slot, int64_t *position) {
  const decode_division *d = argument;
  const heed__attention_problem *p = d->problem;
  const int64_t unit = i / d->ranges, some = unit / d->units, range = i % d->ranges;
  const int64_t first_row = unit % d->units * HEED__DECODE_ROWS;
  heed__decode_task task = {
      .d = p->d,
      .dv = p->dv,
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
      .rows = (int)least_of(d->rows - first_row, HEED__DECODE_ROWS),
      .block = (int)d->block,
      .scores = d->scores + slot * d->score_room,
  };
  heed__attention_task product = product_of(d, some, first_row);
  int64_t first, unused, last;
  heed__attention_reach(&product, 0, &first, &unused);
  heed__attention_reach(&product, p->l - 1, &unused, &last);
  task.first = first + range * d->range;
  task.last = least_of(task.first + d->range, last);
  task.k = product.k;
  task.v = product.v;
  task.padding = product.padding;
  for (int r = 0; r < task.rows; r++) {
    const int64_t query = (first_row + r) % p->l;
    if (r > 0 && query == 0) product = product_of(d, some, first_row + r);
    task.row[r] = (heed__decode_row){
        .q = product.q + query * product.q_row,
        .k = apart(product.k, task.k, task.k_dtype),
        .v = apart(product.v, task.v, task.v_dtype),
        .k_scale = product.k_scale,
        .v_scale = product.v_scale,
        .visible = product.visible ? product.visible + query * product.visible_row : NULL,
        .bias = product.bias ? product.bias + query * product.bias_row : NULL,
        .slope = product.slope,
        .place = query + product.offset,
    };
    heed__attention_reach(&product, query, &task.row[r].first, &task.row[r].last);
  }
  const int64_t area = d->ranges > 1 ? i : slot;
  part_of(d, area, &task.out, &task.largest, &task.sum);
  if (!d->kernels->decode(&task, d->pace, position)) return false;
  if (d->ranges == 1) join_rows(d, some, first_row, area);
  return true;
}

/* All rows of some heads, of several ranges. */
bool heed__decode_join(void *argument, int64_t some, int slot, int64_t *position) {
  const decode_division *d = argument;
  (void)slot, (void)position;
  for (int64_t unit = 0; unit < d->units; unit++)
    join_rows(d, some, unit * HEED__DECODE_ROWS, (some * d->units + unit) * d->ranges);
  return true;
}
