/* Random combinations of all options of attention: the kernels for whole sequences and for few queries, in
 * every kernel table that this processor supports, against a naive reference in double precision. Operands
 * lie between guard pages; keys and values that no row sees by its position do not exist. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"

#include <float.h>
#include <math.h>

#include "../../src/core/convert.h"

/* ---- Random numbers ---- */

static uint32_t seed;
static double uniform(void) {
  next_random(&seed);
  return (double)(seed >> 8) / 16777216.0;
}
static double between(double low, double high) {
  return low + (high - low) * uniform();
}
static bool chance(double p) {
  return uniform() < p;
}
static int64_t pick(int64_t low, int64_t high) {
  return low + (int64_t)((double)(high - low + 1) * uniform());
}
#define ONE_OF(list) list[pick(0, (int64_t)(sizeof list / sizeof *list) - 1)]

/* ---- A matrix of any dtype, of which only some rows exist ---- */

typedef struct matrix {
  guarded area, scales;
  heed_dtype dtype;
  ptrdiff_t row, column;
  int64_t first, rows, columns; /* the rows that exist, and the number of all */
  const void *start;            /* of row 0 */
  const float *scale;           /* int8: of row 0 */
} matrix;

static matrix make(int64_t rows, int64_t columns, int64_t first, int64_t last, heed_dtype dtype, bool gaps,
                   bool at_end) {
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(dtype);
  matrix m = {.dtype = dtype, .first = first, .rows = rows, .columns = columns, .column = gaps ? 2 : 1};
  m.row = columns * m.column + (gaps ? 1 : pick(0, 1) * 3);
  const int64_t there =
      last > first && columns > 0 ? (last - first - 1) * m.row + (columns - 1) * m.column + 1 : 0;
  m.area = guard_bytes((size_t)(there * bytes), at_end);
  m.start = (char *)m.area.data - first * m.row * bytes;
  if (dtype == HEED_INT8) {
    m.scales = guard_bytes((size_t)(last > first ? last - first : 0) * sizeof(float), at_end);
    for (int64_t i = 0; i < last - first; i++) ((float *)m.scales.data)[i] = (float)between(0.01, 0.02);
    m.scale = (float *)m.scales.data - first;
  }
  for (int64_t i = 0; i < there; i++) {
    const float x = (float)between(-2, 2);
    switch (dtype) {
    case HEED_BFLOAT16: ((uint16_t *)m.area.data)[i] = heed__bfloat16_from_float(x); break;
    case HEED_FLOAT16: ((uint16_t *)m.area.data)[i] = heed__float16_from_float(x); break;
    case HEED_INT8: ((int8_t *)m.area.data)[i] = (int8_t)pick(-127, 127); break;
    default: ((float *)m.area.data)[i] = x;
    }
  }
  return m;
}

static void drop(const matrix *m) {
  unguard(m->area);
  if (m->dtype == HEED_INT8) unguard(m->scales);
}

static double at(const matrix *m, int64_t i, int64_t j) {
  const ptrdiff_t index = i * m->row + j * m->column;
  switch (m->dtype) {
  case HEED_BFLOAT16: return (double)heed__float_from_bfloat16(((const uint16_t *)m->start)[index]);
  case HEED_FLOAT16: return (double)heed__float_from_float16(((const uint16_t *)m->start)[index]);
  case HEED_INT8: return (double)((const int8_t *)m->start)[index] * (double)m->scale[i];
  default: return (double)((const float *)m->start)[index];
  }
}

/* Fills a row with nan or inf; for int8 its scale. */
static void poison(const matrix *m, int64_t i, float with) {
  for (int64_t j = 0; j < m->columns; j++) {
    const ptrdiff_t index = (i - m->first) * m->row + j * m->column;
    switch (m->dtype) {
    case HEED_BFLOAT16: ((uint16_t *)m->area.data)[index] = heed__bfloat16_from_float(with); break;
    case HEED_FLOAT16: ((uint16_t *)m->area.data)[index] = heed__float16_from_float(with); break;
    case HEED_INT8: ((float *)m->scales.data)[i - m->first] = with; break;
    default: ((float *)m->area.data)[index] = with;
    }
  }
}

static guarded floats(int64_t n, double low, double high, bool at_end) {
  const guarded g = guard_bytes((size_t)n * sizeof(float), at_end);
  for (int64_t i = 0; i < n; i++) ((float *)g.data)[i] = (float)between(low, high);
  return g;
}

static guarded coins(int64_t n, double p, bool at_end) {
  const guarded g = guard_bytes((size_t)n, at_end);
  for (int64_t i = 0; i < n; i++) ((uint8_t *)g.data)[i] = chance(p) ? (uint8_t)pick(1, 255) : 0;
  return g;
}

/* ---- The reference ---- */

/* A query of either kernel. */
typedef struct query {
  const float *q;
  ptrdiff_t column;
  const uint8_t *visible, *padding;
  const float *bias, *keep;
  double scale, softcap, slope, sink;
  bool has_sink;
  int64_t position, first, last, d;
} query;

static bool sees(const query *a, int64_t j) {
  return j >= a->first && j < a->last && !(a->visible && !a->visible[j]) && !(a->padding && a->padding[j]) &&
         !(a->bias && a->bias[j] == -INFINITY);
}

static double score(const query *a, const matrix *k, int64_t j) {
  double x = 0;
  for (int64_t c = 0; c < a->d; c++) x += (double)a->q[c * a->column] * at(k, j, c);
  x *= a->scale;
  if (a->softcap > 0) x = a->softcap * tanh(x / a->softcap);
  if (a->bias) x += (double)a->bias[j];
  return x - a->slope * fabs((double)(a->position - j));
}

/* The largest score of first…last-1, the sum of e^(score - largest), and Σ of these times values in out. */
static void attend(const query *a, const matrix *k, const matrix *v, int64_t first, int64_t last,
                   double *largest, double *sum, double *out) {
  *largest = -INFINITY;
  *sum = 0;
  for (int64_t c = 0; c < v->columns; c++) out[c] = 0;
  for (int64_t j = first; j < last; j++) {
    const double x = sees(a, j) ? score(a, k, j) : -INFINITY;
    if (x > *largest || isnan(x)) *largest = x;
    if (isnan(x)) break;
  }
  if (a->has_sink && a->sink > *largest) *largest = a->sink;
  for (int64_t j = first; j < last; j++) {
    if (!sees(a, j) || *largest == -INFINITY) continue;
    const double weight = exp(score(a, k, j) - *largest), keep = a->keep ? (double)a->keep[j] : 1;
    *sum += weight;
    for (int64_t c = 0; c < v->columns; c++) out[c] += weight * keep * at(v, j, c);
  }
  if (a->has_sink) *sum += exp(a->sink - *largest);
}

static void assert_near(double x, double wanted, double error) {
  if (isnan(wanted)) assert_true(isnan(x));
  if (!isnan(wanted)) assert_true(fabs(x - wanted) <= error);
}

/* ---- Whole sequences ---- */

typedef struct setting {
  heed__attention_task task;
  matrix q, k, v;
  guarded out, seen, padded, biases, kept;
} setting;

static const int64_t few[] = {1, 2, 3, 5, 6, 7, 12, 13, 16, 17, 33},
                     sizes[] = {1, 3, 8, 15, 16, 20, 33, 64, 65};
static const int64_t many[] = {1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 130, 511, 513, 600, 1100};
static const heed_dtype stored[] = {HEED_FLOAT32, HEED_FLOAT32, HEED_BFLOAT16, HEED_FLOAT16, HEED_INT8};
static const float poisons[] = {NAN, INFINITY, -INFINITY};

/* A random window of the task. */
static void choose_window(heed__attention_task *t) {
  const int64_t none = chance(0.5) ? 0 : pick(0, t->key_length);
  t->valid_keys = chance(0.3) ? pick(0, t->key_length) : t->key_length;
  t->offset = chance(0.3) ? t->valid_keys - t->query_length : none;
  t->window_begin = -t->query_length;
  t->window_end = t->key_length;
  if (chance(0.5)) t->window_begin = t->offset - pick(0, chance(0.5) ? 20 : t->key_length);
  if (chance(0.5)) t->window_end = t->offset + 1 + (chance(0.5) ? 0 : pick(0, 30));
  if (t->window_begin < -t->query_length) t->window_begin = -t->query_length;
  if (t->window_begin > t->key_length) t->window_begin = t->key_length;
  if (t->window_end < -t->query_length) t->window_end = -t->query_length;
  if (t->window_end > t->key_length) t->window_end = t->key_length;
}

static void union_of_rows(const heed__attention_task *t, int64_t *first, int64_t *last) {
  *first = t->key_length;
  *last = 0;
  for (int64_t i = 0; i < t->query_length; i++) {
    int64_t from, to;
    heed__attention_window(t, i, &from, &to);
    if (from >= to) continue;
    if (from < *first) *first = from;
    if (to > *last) *last = to;
  }
  if (*first > *last) *first = *last;
}

static setting set_up(uint32_t number) {
  setting s = {.task = {.query_length = 0}};
  heed__attention_task *t = &s.task;
  int64_t first, last;
  seed = number * 2654435761u;
  for (int i = 0; i < 8; i++) uniform();
  const bool at_end = chance(0.5), gaps = chance(0.2);
  t->query_length = ONE_OF(few);
  t->key_length = ONE_OF(many);
  t->head_size = ONE_OF(sizes);
  t->value_size = ONE_OF(sizes);
  choose_window(t);
  union_of_rows(t, &first, &last);
  s.q = make(t->query_length, t->head_size, 0, t->query_length, HEED_FLOAT32, gaps, at_end);
  s.k = make(t->key_length, t->head_size, first, last, ONE_OF(stored), gaps, at_end);
  s.v = make(t->key_length, t->value_size, first, last, ONE_OF(stored), gaps && chance(0.5), at_end);
  s.out = floats(t->query_length * t->value_size, 0, 1, at_end);
  s.seen = coins(t->query_length * t->key_length, ONE_OF(((const double[]){0.02, 0.5, 0.98})), at_end);
  s.padded = coins(t->key_length, 0.2, at_end);
  s.biases = floats(t->query_length * t->key_length, -1, 1, at_end);
  s.kept = floats(t->query_length * t->key_length, 0, 1, at_end);
  for (int64_t i = 0; i < t->query_length * t->key_length; i++) {
    float *bias = (float *)s.biases.data + i, *keep = (float *)s.kept.data + i;
    if (*bias < -0.8f) *bias = -INFINITY;
    *keep = *keep < 0.3f ? 0.0f : 1.0f / 0.7f;
  }
  t->q = s.q.start;
  t->k = s.k.start;
  t->v = s.v.start;
  t->out = s.out.data;
  t->k_dtype = s.k.dtype;
  t->v_dtype = s.v.dtype;
  t->k_scale = s.k.scale;
  t->v_scale = s.v.scale;
  t->k_scale_row = t->v_scale_row = 1;
  t->q_row = s.q.row, t->q_column = s.q.column;
  t->k_row = s.k.row, t->k_column = s.k.column;
  t->v_row = s.v.row, t->v_column = s.v.column;
  t->out_row = t->value_size, t->out_column = 1;
  t->last = t->query_length;
  t->scale = 1 / sqrtf((float)t->head_size);
  if (chance(0.35)) t->softcap = (float)between(0.2, chance(0.5) ? 5 : 50);
  if (chance(0.35)) t->slope = (float)between(0, 0.5);
  t->has_sink = chance(0.35);
  if (t->has_sink) t->sink = (float)between(-4, 4);
  if (chance(0.35)) t->visible = s.seen.data;
  if (chance(0.35)) t->padding = s.padded.data;
  if (chance(0.35)) t->bias = s.biases.data;
  if (chance(0.35)) t->dropout_mask = s.kept.data;
  t->visible_row = t->bias_row = t->key_length;
  t->visible_column = t->bias_column = t->padding_stride = 1;
  return s;
}

static void tear_down(const setting *s) {
  drop(&s->q);
  drop(&s->k);
  drop(&s->v);
  unguard(s->out);
  unguard(s->seen);
  unguard(s->padded);
  unguard(s->biases);
  unguard(s->kept);
}

static query query_of(const setting *s, int64_t i) {
  const heed__attention_task *t = &s->task;
  query a = {.q = t->q + i * t->q_row, .column = t->q_column, .padding = t->padding, .d = t->head_size};
  if (t->visible) a.visible = t->visible + i * t->key_length;
  if (t->bias) a.bias = t->bias + i * t->key_length;
  if (t->dropout_mask) a.keep = t->dropout_mask + i * t->key_length;
  a.scale = (double)t->scale;
  a.softcap = (double)t->softcap;
  a.slope = (double)t->slope;
  a.has_sink = t->has_sink;
  a.sink = (double)t->sink;
  a.position = i + t->offset;
  heed__attention_window(t, i, &a.first, &a.last);
  return a;
}

/* Fills keys that no row sees with nan or inf; with `seen`, a visible one, too. */
static void poison_some(const setting *s, bool seen) {
  const heed__attention_task *t = &s->task;
  for (int64_t j = s->k.first; j < t->key_length; j++) {
    bool any = false;
    int64_t first, last;
    union_of_rows(t, &first, &last);
    if (j >= last) break;
    for (int64_t i = 0; i < t->query_length && !any; i++) {
      const query a = query_of(s, i);
      any = sees(&a, j);
    }
    if (any && !(seen && chance(0.01))) continue;
    poison(&s->k, j, any ? ONE_OF(poisons) : ONE_OF(poisons));
    if (!any || chance(0.5)) poison(&s->v, j, NAN);
  }
}

static void run(const heed__kernels *table, const setting *s, int64_t first, int64_t last) {
  heed__attention_task t = s->task;
  t.first = first;
  t.last = last;
  if (t.dropout_mask) t.dropout_mask += first * t.key_length;
  const size_t bytes = table->attention_scratch(&t);
  t.scratch = aligned_new(bytes);
  memset(t.scratch, 0xff, bytes); /* nan */
  assert_true(table->attention(&t, NULL, NULL));
  aligned_free(t.scratch);
}

static void check(const setting *s) {
  const heed__attention_task *t = &s->task;
  double largest, sum, *out = calloc((size_t)t->value_size + 1, sizeof *out);
  assert_non_null(out);
  for (int64_t i = 0; i < t->query_length; i++) {
    const query a = query_of(s, i);
    bool any = false;
    for (int64_t j = a.first; j < a.last; j++) any = any || sees(&a, j);
    attend(&a, &s->k, &s->v, 0, t->key_length, &largest, &sum, out);
    const double far = t->slope == 0.0f ? 0 : (double)t->slope * (double)(t->key_length + t->query_length);
    for (int64_t c = 0; c < t->value_size; c++) {
      const double wanted = any && sum != 0 ? out[c] / sum : 0;
      assert_near((double)t->out[i * t->out_row + c], wanted, 8e-6 + 4e-7 * far);
    }
  }
  free(out);
}

#define CASES ((uint32_t)nightly(600, 300))

static void whole_sequences_agree_with_the_reference(void **state) {
  (void)state;
  for (uint32_t number = 1; number <= CASES; number++) {
    const setting s = set_up(number);
    if (number % 3 > 0) poison_some(&s, number % 3 > 1);
    for (int i = 0; table_at(i); i++) {
      memset(s.task.out, 0x7f, (size_t)(s.task.query_length * s.task.value_size) * sizeof(float));
      run(table_at(i), &s, 0, s.task.query_length);
      check(&s);
    }
    tear_down(&s);
  }
}

static void a_row_has_the_same_bits_whichever_rows_are_computed_with_it(void **state) {
  (void)state;
  for (uint32_t number = 1; number <= CASES / 3; number++) {
    const setting s = set_up(number);
    const size_t bytes = (size_t)(s.task.query_length * s.task.value_size) * sizeof(float);
    float *whole = malloc(bytes);
    assert_non_null(whole);
    for (int i = 0; table_at(i); i++) {
      run(table_at(i), &s, 0, s.task.query_length);
      memcpy(whole, s.task.out, bytes);
      for (int64_t first = 0, step = 1; first < s.task.query_length; first += step, step = step % 11 + 3)
        run(table_at(i), &s, first, first + step < s.task.query_length ? first + step : s.task.query_length);
      assert_memory_equal(whole, s.task.out, bytes);
    }
    free(whole);
    tear_down(&s);
  }
}

/* ---- Infinite sinks ---- */

static void infinite_sinks_leave_zeros_where_no_key_is_visible(void **state) {
  (void)state;
  static const float sinks[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
  for (uint32_t number = 1; number <= 60; number++) {
    setting s = set_up(number);
    s.task.has_sink = true;
    s.task.sink = sinks[number % 5];
    for (int i = 0; table_at(i); i++) {
      run(table_at(i), &s, 0, s.task.query_length);
      check(&s);
    }
    tear_down(&s);
  }
}

/* ---- Few queries ---- */

typedef struct few_queries {
  heed__decode_task task;
  matrix q, k, v;
  query row[HEED__DECODE_ROWS];
  guarded out, largest, sum, scores, seen, padded, biases;
} few_queries;

static void set_up_few(few_queries *s, uint32_t number) {
  static const int rows[] = {1, 1, 2, 3, 4, 5, 7, 8, 16};
  heed__decode_task *t = &s->task;
  *s = (few_queries){.task = {.scale = 0.4f}};
  seed = number * 2654435761u;
  for (int i = 0; i < 8; i++) uniform();
  const bool at_end = chance(0.5);
  const int64_t keys = ONE_OF(many), offset = pick(-3, keys), left = chance(0.5) ? pick(0, 40) : keys + 20;
  int64_t first = keys, last = 0;
  t->rows = ONE_OF(rows);
  t->head_size = ONE_OF(sizes);
  t->value_size = ONE_OF(sizes);
  t->first = chance(0.3) ? pick(0, keys - 1) : 0;
  t->last = chance(0.3) ? pick(t->first, keys) : keys;
  if (chance(0.35)) t->softcap = (float)between(0.2, chance(0.5) ? 5 : 50);
  s->seen = coins(t->rows * keys, ONE_OF(((const double[]){0.02, 0.5, 0.98})), at_end);
  s->padded = coins(keys, 0.2, at_end);
  s->biases = floats(t->rows * keys, -1, 1, at_end);
  for (int64_t i = 0; i < t->rows * keys; i++) {
    float *bias = (float *)s->biases.data + i;
    if (*bias < -0.8f) *bias = -INFINITY;
  }
  const bool causal = chance(0.5), masked = chance(0.35), biased = chance(0.35), sloped = chance(0.35);
  const bool alike = chance(0.5);
  if (chance(0.35)) t->padding = s->padded.data;
  s->q = make(t->rows, t->head_size, 0, t->rows, HEED_FLOAT32, false, at_end);
  for (int r = 0; r < t->rows; r++) {
    heed__decode_row *row = &t->row[r];
    const int64_t position = offset + r % 3, mask = alike ? 0 : r * keys;
    row->q = (const float *)s->q.start + r * s->q.row;
    row->position = position;
    row->last = !causal ? keys : position + 1 < 0 ? 0 : position + 1 < keys ? position + 1 : keys;
    row->first = position - left < 0 ? 0 : position - left < row->last ? position - left : row->last;
    if (masked) row->visible = (const uint8_t *)s->seen.data + mask;
    if (biased) row->bias = (const float *)s->biases.data + mask;
    if (sloped) row->slope = (float)between(0, 0.5);
    s->row[r] = (query){.q = row->q, .column = 1, .visible = row->visible, .padding = t->padding};
    s->row[r].bias = row->bias;
    s->row[r].scale = (double)t->scale;
    s->row[r].softcap = (double)t->softcap;
    s->row[r].slope = (double)row->slope;
    s->row[r].position = position;
    s->row[r].first = row->first;
    s->row[r].last = row->last;
    s->row[r].d = t->head_size;
    const int64_t from = row->first > t->first ? row->first : t->first;
    const int64_t to = row->last < t->last ? row->last : t->last;
    if (from >= to) continue;
    if (from < first) first = from;
    if (to > last) last = to;
  }
  if (first > last) first = last;
  s->k = make(keys, t->head_size, first, last, ONE_OF(stored), false, at_end);
  s->v = make(keys, t->value_size, first, last, ONE_OF(stored), false, at_end);
  s->out = floats(t->rows * t->value_size, 0, 1, at_end);
  s->largest = floats(t->rows, 0, 1, at_end);
  s->sum = floats(t->rows, 0, 1, at_end);
  t->block = (int)ONE_OF(((const int64_t[]){32, 100, 256, HEED__DECODE_BLOCK}));
  s->scores = floats(t->rows * (t->block + HEED__DECODE_SPARE), 0, 1, at_end);
  t->scores = s->scores.data;
  for (int64_t j = first; j < last && chance(0.7); j++) {
    bool any = false;
    for (int r = 0; r < t->rows; r++) any = any || sees(&s->row[r], j);
    if (any && !chance(0.002)) continue;
    poison(&s->k, j, any ? NAN : ONE_OF(poisons));
    poison(&s->v, j, NAN);
  }
  t->k = s->k.start;
  t->v = s->v.start;
  t->k_dtype = s->k.dtype;
  t->v_dtype = s->v.dtype;
  for (int r = 0; r < t->rows; r++) {
    t->row[r].k_scale = s->k.scale;
    t->row[r].v_scale = s->v.scale;
  }
  t->k_row = s->k.row;
  t->v_row = s->v.row;
  t->k_scale_row = t->v_scale_row = t->visible_column = t->bias_column = t->padding_stride = 1;
  t->out = s->out.data;
  t->row_max = s->largest.data;
  t->row_sum = s->sum.data;
}

static void check_few(const few_queries *s) {
  const heed__decode_task *t = &s->task;
  double largest, sum, *out = calloc((size_t)t->value_size + 1, sizeof *out);
  assert_non_null(out);
  for (int r = 0; r < t->rows; r++) {
    attend(&s->row[r], &s->k, &s->v, t->first, t->last, &largest, &sum, out);
    const double error = 8e-6 + 4e-7 * (double)t->row[r].slope * 1200;
    if (isnan(sum)) assert_true(isnan(t->row_sum[r]));
    if (sum == 0) assert_true(t->row_sum[r] == 0.0f && t->row_max[r] == -FLT_MAX);
    if (sum > 0) {
      assert_near((double)t->row_max[r], largest, 3e-5 + error);
      assert_near((double)t->row_sum[r] / sum, 1, 5e-5 + error);
    }
    for (int64_t c = 0; c < t->value_size; c++) {
      const double x = (double)t->out[r * t->value_size + c];
      if (sum == 0) assert_true(x == 0);
      if (sum > 0) assert_near(x / (double)t->row_sum[r], out[c] / sum, 2e-5 + error);
    }
  }
  free(out);
}

static void few_queries_agree_with_the_reference(void **state) {
  (void)state;
  for (uint32_t number = 1; number <= 3 * CASES; number++) {
    few_queries s;
    set_up_few(&s, number);
    for (int i = 0; table_at(i); i++) {
      memset(s.task.out, 0x7f, (size_t)(s.task.rows * s.task.value_size) * sizeof(float));
      assert_true(table_at(i)->decode(&s.task, NULL, NULL));
      check_few(&s);
    }
    drop(&s.q);
    drop(&s.k);
    drop(&s.v);
    const guarded areas[] = {s.out, s.largest, s.sum, s.scores, s.seen, s.padded, s.biases};
    for (size_t i = 0; i < sizeof areas / sizeof *areas; i++) unguard(areas[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_sequences_agree_with_the_reference),
      cmocka_unit_test(a_row_has_the_same_bits_whichever_rows_are_computed_with_it),
      cmocka_unit_test(infinite_sinks_leave_zeros_where_no_key_is_visible),
      cmocka_unit_test(few_queries_agree_with_the_reference),
  };
  return cmocka_run_group_tests_name("attention_options", tests, NULL, NULL);
}
