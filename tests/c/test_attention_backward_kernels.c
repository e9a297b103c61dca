/* The kernel of attention's gradients of every table, against naive code in double precision: sizes around
 * every edge of strips, tiles and blocks, strides, every option, operands between guard pages. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"

#include <math.h>

typedef heed__attention_backward_task backward_task;

/* ---- A task between guard pages ---- */

enum {
  CAUSAL = 1,
  VISIBLE = 2,
  PADDING = 4,
  BIAS = 8,
  DROPOUT = 16,
  CAP = 32,
  SLOPE = 64,
  SINK = 128,
  WINDOW = 256,
  LENGTHS = 512,
  INTERVALS = 1024,
  ALL_WAYS = 2048
};
enum { DENSE, GAPS, SPARSE, LAYOUTS };

typedef struct parameters {
  int64_t l, s, d, dv;
  int ways, layout;
  bool at_end;                   /* the guard page is after the operands, not before them */
  bool one_bias_row, one_column; /* the gradient of the bias is summed over rows or columns */
  float scale;                   /* 0: 1 / √d */
} parameters;

enum { Q, K, V, OUT, DOUT, SEEN, PADDED, BIASES, KEPT, LSE, DQ, DK, DV, DBIAS, RANGES, AREAS };

typedef struct fixture {
  backward_task task;
  guarded area[AREAS];
  /* what is expected, dense: dq, dk, dv, dbias [l, s] before it is summed, and dslope */
  double *expected[4], dslope;
  float *delta;
  double size, slope_size; /* of what cancels where a gradient is small: of dq and dk, and of dslope */
} fixture;

static uint32_t seed;
static double uniform(void) {
  next_random(&seed);
  return (double)(seed >> 8) / 16777216.0;
}

static guarded lay_out(const parameters *a, int layout, int64_t rows, int64_t columns, size_t element,
                       ptrdiff_t *row, ptrdiff_t *column) {
  const int64_t dense = columns > 0 ? columns : 1;
  *column = layout == SPARSE ? 2 : 1;
  *row = layout == SPARSE ? 2 * dense + 1 : layout == GAPS ? dense + 3 : dense;
  const bool any = rows > 0 && columns > 0;
  return guard_bytes(any ? (size_t)((rows - 1) * *row + (columns - 1) * *column + 1) * element : 0,
                     a->at_end);
}

static void fill(guarded g, int64_t rows, int64_t columns, ptrdiff_t row, ptrdiff_t column, double low,
                 double high) {
  float *x = g.data;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) x[i * row + j * column] = (float)(low + (high - low) * uniform());
}

static bool is_hidden(const heed__attention_task *t, int64_t i, int64_t j) {
  int64_t first, last;
  heed__attention_window(t, i, &first, &last);
  if (t->intervals) {
    const int32_t *x = t->intervals + i * t->interval_row;
    bool inside = false;
    for (int64_t k = 0; k < t->interval_count; k++) inside = inside || (j >= x[2 * k] && j < x[2 * k + 1]);
    if (!inside) return true;
  }
  return j < first || j >= last || (t->visible && !t->visible[i * t->visible_row + j * t->visible_column]) ||
         (t->padding && t->padding[j * t->padding_stride]) ||
         (t->bias && t->bias[i * t->bias_row + j * t->bias_column] == -INFINITY);
}

/* Element (i, c) of a matrix in float32. */
static double at(const void *x, ptrdiff_t row, ptrdiff_t column, int64_t i, int64_t c) {
  return (double)((const float *)x)[i * row + c * column];
}

/* Sets out and lse, and what is expected, from the textbook's formulas. */
static void compute(fixture *f) {
  backward_task *g = &f->task;
  heed__attention_task *t = &g->forward;
  const int64_t l = t->query_length, s = t->key_length, d = t->head_size, dv = t->value_size;
  const int64_t sizes[] = {l * d, s * d, s * dv, l * s};
  for (int i = 0; i < 4; i++) f->expected[i] = calloc((size_t)sizes[i] + 1, sizeof(double));
  double *p = calloc((size_t)s + 1, sizeof *p), *bend = calloc((size_t)s + 1, sizeof *bend);
  double *out = calloc((size_t)dv + 1, sizeof *out);
  f->delta = calloc((size_t)l + 1, sizeof *f->delta);
  g->delta = f->delta;
  f->dslope = f->slope_size = f->size = 0;
  for (int64_t i = 0; i < l; i++) {
    double most = t->has_sink ? (double)t->sink : -INFINITY, sum = 0;
    bool any = false;
    for (int64_t j = 0; j < s; j++) {
      p[j] = -INFINITY;
      if (is_hidden(t, i, j)) continue;
      double x = 0;
      for (int64_t c = 0; c < d; c++)
        x += at(t->q, t->q_row, t->q_column, i, c) * at(t->k, t->k_row, t->k_column, j, c);
      x *= (double)t->scale;
      bend[j] = 1;
      if (t->softcap > 0) {
        const double cap = (double)t->softcap;
        x = cap * tanh(x / cap);
        bend[j] = 1 - x / cap * (x / cap);
      }
      if (t->bias) x += at(t->bias, t->bias_row, t->bias_column, i, j);
      x -= (double)t->slope * fabs((double)(i + t->offset - j));
      p[j] = x;
      any = true;
      most = x > most ? x : most;
    }
    for (int64_t j = 0; j < s; j++) {
      p[j] = any && p[j] > -INFINITY ? exp(p[j] - most) : 0;
      sum += p[j];
    }
    if (any && t->has_sink) sum += exp((double)t->sink - most);
    t->lse[i] = any ? (float)(most + log(sum)) : -INFINITY;
    for (int64_t c = 0; c < dv; c++) out[c] = 0;
    double delta = 0;
    for (int64_t j = 0; any && j < s; j++) {
      p[j] /= sum;
      const bool kept = !g->kept || (g->kept[i * g->kept_row + j / 16] >> j % 16 & 1);
      if (kept && p[j] != 0)
        for (int64_t c = 0; c < dv; c++)
          out[c] += p[j] * (g->kept ? (double)g->kept_scale : 1) * at(t->v, t->v_row, t->v_column, j, c);
    }
    for (int64_t c = 0; c < dv; c++) {
      t->out[i * t->out_row + c * t->out_column] = (float)out[c];
      if (any) delta += out[c] * at(g->dout, g->dout_row, g->dout_column, i, c);
    }
    f->delta[i] = (float)delta;
    double size = 0;
    for (int64_t j = 0; any && j < s; j++) {
      if (is_hidden(t, i, j)) continue;
      const bool kept = !g->kept || (g->kept[i * g->kept_row + j / 16] >> j % 16 & 1);
      const double factor = !kept ? 0 : g->kept ? (double)g->kept_scale : 1;
      double dp = 0;
      for (int64_t c = 0; kept && c < dv; c++) {
        const double y = at(g->dout, g->dout_row, g->dout_column, i, c);
        dp += y * at(t->v, t->v_row, t->v_column, j, c) * factor;
        f->expected[2][j * dv + c] += p[j] * factor * y;
      }
      const double ds = p[j] * (dp - delta), dr = ds * bend[j] * (double)t->scale;
      f->expected[3][i * s + j] = ds;
      f->dslope -= ds * fabs((double)(i + t->offset - j));
      f->slope_size += p[j] * (fabs(dp) + fabs(delta)) * fabs((double)(i + t->offset - j));
      size += p[j] * (fabs(dp) + fabs(delta)) * fmax(2 * (double)t->scale, 1);
      for (int64_t c = 0; c < d; c++) {
        f->expected[0][i * d + c] += dr * at(t->k, t->k_row, t->k_column, j, c);
        f->expected[1][j * d + c] += dr * at(t->q, t->q_row, t->q_column, i, c);
      }
    }
    f->size = size > f->size ? size : f->size;
  }
  free(p);
  free(bend);
  free(out);
}

static fixture set_up(const parameters *a) {
  fixture f = {0};
  backward_task *g = &f.task;
  heed__attention_task *t = &g->forward;
  ptrdiff_t unused;
  seed = (uint32_t)(a->l * 7919 + a->s * 104729 + a->d * 31 + a->dv + a->ways);
  *t = (heed__attention_task){.query_length = a->l,
                              .key_length = a->s,
                              .head_size = a->d,
                              .value_size = a->dv,
                              .k_dtype = HEED_FLOAT32,
                              .v_dtype = HEED_FLOAT32,
                              .window_begin = a->ways & WINDOW ? -5 : -a->l,
                              .window_end = a->ways & CAUSAL   ? 1
                                            : a->ways & WINDOW ? 9
                                                               : a->s,
                              .valid_keys = a->ways & LENGTHS ? a->s - a->s / 3 : a->s,
                              .offset = 3,
                              .has_sink = a->ways & SINK,
                              .sink = 0.7f,
                              .softcap = a->ways & CAP ? 1.5f : 0.0f,
                              .slope = a->ways & SLOPE ? 0.03f : 0.0f,
                              .padding_stride = 1};
  if (t->window_end > a->s) t->window_end = a->s;
  if (t->window_begin < -a->l) t->window_begin = -a->l;
  t->scale = a->scale > 0 ? a->scale : a->d > 0 ? 1.0f / sqrtf((float)a->d) : 1.0f;
  f.area[Q] = lay_out(a, a->layout, a->l, a->d, sizeof(float), &t->q_row, &t->q_column);
  f.area[K] = lay_out(a, a->layout, a->s, a->d, sizeof(float), &t->k_row, &t->k_column);
  f.area[V] = lay_out(a, a->layout, a->s, a->dv, sizeof(float), &t->v_row, &t->v_column);
  f.area[OUT] = lay_out(a, a->layout, a->l, a->dv, sizeof(float), &t->out_row, &t->out_column);
  f.area[DOUT] = lay_out(a, a->layout, a->l, a->dv, sizeof(float), &g->dout_row, &g->dout_column);
  f.area[SEEN] = lay_out(a, a->layout, a->l, a->s, 1, &t->visible_row, &t->visible_column);
  f.area[BIASES] = lay_out(a, a->layout, a->l, a->s, sizeof(float), &t->bias_row, &t->bias_column);
  f.area[PADDED] = guard_bytes((size_t)a->s, a->at_end);
  g->kept_row = (a->s + 15) / 16;
  f.area[KEPT] = guard_bytes((size_t)(a->l * g->kept_row) * sizeof(uint16_t), a->at_end);
  f.area[LSE] = guard_bytes((size_t)a->l * sizeof(float), a->at_end);
  const int rows = a->layout == GAPS ? GAPS : DENSE; /* gradients have contiguous columns */
  f.area[DQ] = lay_out(a, rows, a->l, a->d, sizeof(float), &g->dq_row, &unused);
  f.area[DK] = lay_out(a, rows, a->s, a->d, sizeof(float), &g->dk_row, &unused);
  f.area[DV] = lay_out(a, rows, a->s, a->dv, sizeof(float), &g->dv_row, &unused);
  f.area[DBIAS] = lay_out(a, a->layout, a->one_bias_row ? 1 : a->l, a->one_column ? 1 : a->s, sizeof(float),
                          &g->dbias_row, &g->dbias_column);
  if (a->one_bias_row) g->dbias_row = 0;
  if (a->one_column) g->dbias_column = 0;
  fill(f.area[Q], a->l, a->d, t->q_row, t->q_column, -2, 2);
  fill(f.area[K], a->s, a->d, t->k_row, t->k_column, -2, 2);
  fill(f.area[V], a->s, a->dv, t->v_row, t->v_column, -1, 1);
  fill(f.area[DOUT], a->l, a->dv, g->dout_row, g->dout_column, -1, 1);
  fill(f.area[BIASES], a->l, a->s, t->bias_row, t->bias_column, -1, 1);
  for (int64_t i = 0; i < a->l; i++) {
    for (int64_t j = 0; j < a->s; j++) {
      if (uniform() < 0.2) ((float *)f.area[BIASES].data)[i * t->bias_row + j * t->bias_column] = -INFINITY;
      ((uint8_t *)f.area[SEEN].data)[i * t->visible_row + j * t->visible_column] = uniform() < 0.6;
    }
  }
  for (int64_t i = 0; i < a->l * g->kept_row; i++)
    ((uint16_t *)f.area[KEPT].data)[i] = (uint16_t)(uniform() * 65536);
  for (int64_t j = 0; j < a->s; j++) ((uint8_t *)f.area[PADDED].data)[j] = uniform() < 0.2;
  t->q = f.area[Q].data;
  t->k = f.area[K].data;
  t->v = f.area[V].data;
  t->out = f.area[OUT].data;
  t->lse = f.area[LSE].data;
  g->dout = f.area[DOUT].data;
  g->dq = f.area[DQ].data;
  g->dk = f.area[DK].data;
  g->dv = f.area[DV].data;
  g->kept_scale = 1.0f / 0.7f;
  if (a->ways & VISIBLE) t->visible = f.area[SEEN].data;
  if (a->ways & PADDING) t->padding = f.area[PADDED].data;
  if (a->ways & BIAS) {
    t->bias = f.area[BIASES].data;
    g->dbias = f.area[DBIAS].data;
  }
  if (a->ways & DROPOUT) g->kept = f.area[KEPT].data;
  /* an interval around the row's share of the keys, and the first key; every seventh row has none */
  t->interval_row = 4;
  f.area[RANGES] = guard_bytes((size_t)(4 * a->l) * sizeof(int32_t), a->at_end);
  for (int64_t i = 0; i < a->l; i++) {
    int32_t *x = (int32_t *)f.area[RANGES].data + 4 * i;
    const int64_t middle = i * a->s / a->l, first = middle > 20 ? middle - 20 : 0;
    const int64_t last = middle + 11 < a->s ? middle + 11 : a->s;
    if (i % 7 == 3) {
      x[0] = x[1] = x[2] = x[3] = 0;
    } else if (first > 1) {
      x[0] = 0, x[1] = 1, x[2] = (int32_t)first, x[3] = (int32_t)last;
    } else {
      x[0] = (int32_t)first, x[1] = x[2] = x[3] = (int32_t)last;
    }
  }
  if (a->ways & INTERVALS) {
    t->intervals = f.area[RANGES].data;
    t->interval_count = 2;
  }
  g->last = a->s;
  compute(&f);
  return f;
}

static void tear_down(const fixture *f) {
  for (int i = 0; i < AREAS; i++) unguard(f->area[i]);
  for (int i = 0; i < 4; i++) free(f->expected[i]);
  free(f->delta);
}

/* ---- Runs ---- */

typedef struct results {
  float *x[4]; /* dense, as `expected`; dbias as it is */
  double dslope;
} results;

static int64_t bias_count(const backward_task *g) {
  return (g->dbias_row ? g->forward.query_length : 1) * (g->dbias_column ? g->forward.key_length : 1);
}

static void clear(const fixture *f) {
  for (int i = DQ; i <= DBIAS; i++) {
    const guarded g = f->area[i];
    memset(g.data, 0, g.bytes - page_bytes() - (size_t)((char *)g.data - g.map));
  }
}

static results collect(const fixture *f, double dslope) {
  const backward_task *g = &f->task;
  const heed__attention_task *t = &g->forward;
  const int64_t rows[] = {t->query_length, t->key_length, t->key_length, g->dbias_row ? t->query_length : 1};
  const int64_t columns[] = {t->head_size, t->head_size, t->value_size, g->dbias_column ? t->key_length : 1};
  const ptrdiff_t row[] = {g->dq_row, g->dk_row, g->dv_row, g->dbias_row}, column = g->dbias_column;
  results y = {.dslope = dslope};
  for (int n = 0; n < 4; n++) {
    float *to = y.x[n] = calloc((size_t)(rows[n] * columns[n]) + 1, sizeof(float));
    const float *from = f->area[DQ + n].data;
    for (int64_t i = 0; i < rows[n] && (n < 3 || g->dbias); i++)
      for (int64_t j = 0; j < columns[n]; j++) *to++ = from[i * row[n] + j * (n < 3 ? 1 : column)];
  }
  return y;
}

static void free_results(const results *y) {
  for (int i = 0; i < 4; i++) free(y->x[i]);
}

/* Runs in ranges of keys of that many; with `yields` the kernel stops wherever it can. */
static results run(const heed__kernels *table, const fixture *f, bool yields, int64_t range) {
  backward_task g = f->task;
  double dslope = 0;
  clear(f);
  if (g.forward.slope != 0.0f) g.dslope = &dslope;
  for (g.first = 0; g.first < f->task.last || g.first == 0; g.first += range) {
    g.last = g.first + range < f->task.last ? g.first + range : f->task.last;
    const size_t bytes = table->attention_backward_scratch(&g);
    g.scratch = aligned_new(bytes);
    memset(g.scratch, 0xff, bytes); /* nan */
    int64_t position = 0, before = -1;
    while (!table->attention_backward(&g, yields ? always_due() : NULL, yields ? &position : NULL)) {
      assert_true(position > before);
      before = position;
    }
    aligned_free(g.scratch);
  }
  return collect(f, dslope);
}

static void assert_same_bits(const fixture *f, const results *x, const results *y) {
  const heed__attention_task *t = &f->task.forward;
  const int64_t count[] = {t->query_length * t->head_size, t->key_length * t->head_size,
                           t->key_length * t->value_size, f->task.dbias ? bias_count(&f->task) : 0};
  for (int i = 0; i < 4; i++) assert_memory_equal(x->x[i], y->x[i], (size_t)count[i] * sizeof(float));
  assert_memory_equal(&x->dslope, &y->dslope, sizeof x->dslope);
}

/* Within `error` of the largest expected one, or of `most`. */
static void assert_near(const float *x, const double *wanted, int64_t n, double most, double error) {
  for (int64_t i = 0; i < n; i++)
    if (fabs(wanted[i]) > most) most = fabs(wanted[i]);
  for (int64_t i = 0; i < n; i++) {
    if (fabs((double)x[i] - wanted[i]) <= error * most) continue;
    fail_msg("element %lld of %lld is %.9g, not %.9g (the largest is %g)", (long long)i, (long long)n,
             (double)x[i], wanted[i], most);
  }
}

static void assert_expected(const fixture *f, const results *y, double error) {
  const backward_task *g = &f->task;
  const heed__attention_task *t = &g->forward;
  assert_near(y->x[0], f->expected[0], t->query_length * t->head_size, f->size, error);
  assert_near(y->x[1], f->expected[1], t->key_length * t->head_size, f->size, error);
  assert_near(y->x[2], f->expected[2], t->key_length * t->value_size, 0.1, error);
  if (g->dbias) {
    double *sums = calloc((size_t)bias_count(g) + 1, sizeof *sums);
    const int64_t columns = g->dbias_column ? t->key_length : 1;
    for (int64_t i = 0; i < t->query_length; i++) {
      for (int64_t j = 0; j < t->key_length; j++) {
        sums[(g->dbias_row ? i * columns : 0) + (g->dbias_column ? j : 0)] +=
            f->expected[3][i * t->key_length + j];
      }
    }
    assert_near(y->x[3], sums, bias_count(g), f->size, error);
    free(sums);
  }
  if (t->slope != 0.0f) assert_true(fabs(y->dslope - f->dslope) <= 2e-6 * f->slope_size + 1e-6);
}

static void compare(const parameters *a, double error) {
  const fixture f = set_up(a);
  for (int i = 0; table_at(i); i++) {
    const results whole = run(table_at(i), &f, false, a->s + 1),
                  slices = run(table_at(i), &f, true, a->s + 1);
    assert_expected(&f, &whole, error);
    assert_same_bits(&f, &whole, &slices);
    const results ranges = run(table_at(i), &f, false, HEED__BACKWARD_KEYS);
    assert_expected(&f, &ranges, error);
    free_results(&whole);
    free_results(&slices);
    free_results(&ranges);
  }
  tear_down(&f);
}

/* ---- Tests ---- */

static const int64_t sizes[][4] = {
    /* l, s, d, dv */
    {1, 1, 1, 1},      {6, 16, 16, 16},  {5, 15, 15, 17},   {7, 17, 17, 15},   {12, 64, 64, 64},
    {13, 65, 63, 65},  {18, 63, 5, 129}, {40, 193, 7, 33},  {97, 200, 8, 8},   {100, 3, 2, 2},
    {200, 400, 4, 20}, {7, 100, 300, 3}, {5, 70, 260, 270}, {31, 192, 64, 16}, {96, 47, 33, 1},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static parameters of_size(int i) {
  return (parameters){.l = sizes[i][0], .s = sizes[i][1], .d = sizes[i][2], .dv = sizes[i][3]};
}

static void every_size_and_option_agrees_with_double_precision(void **state) {
  (void)state;
  for (int i = 0; i < SIZES; i++) {
    for (int ways = i % 3; ways < ALL_WAYS; ways += ways < 16 ? 1 : nightly(13, 29)) {
      parameters a = of_size(i);
      a.ways = ways;
      a.at_end = (ways + i) % 2;
      a.layout = (ways + i) % LAYOUTS;
      compare(&a, a.d > 128 ? 4e-6 : 2e-6); /* scores are sums of d products, as in the forward pass */
    }
  }
}

static void gradients_of_a_bias_are_summed_over_what_it_repeats(void **state) {
  (void)state;
  for (int i = 0; i < SIZES; i++) {
    for (int way = 1; way < 4; way++) {
      parameters a = of_size(i);
      a.ways = BIAS | (way & 1 ? CAUSAL : WINDOW);
      a.one_bias_row = way & 1;
      a.one_column = way & 2;
      a.layout = i % LAYOUTS;
      compare(&a, a.d > 128 ? 4e-6 : 2e-6);
    }
  }
}

static void large_scores_stay_accurate(void **state) {
  (void)state;
  const parameters a = {.l = 60, .s = 250, .d = 32, .dv = 32, .scale = 2.0f};
  compare(&a, 6e-6);
}

static void long_sums_stay_accurate(void **state) {
  (void)state;
  const parameters a = {.l = 1500, .s = 700, .d = 8, .dv = 8, .ways = CAUSAL};
  compare(&a, 2e-6);
}

static void empty_operands_give_zeros_or_empty_results(void **state) {
  (void)state;
  static const int64_t none[][4] = {{3, 0, 4, 5}, {0, 3, 4, 5}, {3, 3, 0, 5}, {3, 3, 4, 0}, {0, 0, 0, 0}};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    parameters a = {.l = none[i][0], .s = none[i][1], .d = none[i][2], .dv = none[i][3]};
    for (a.ways = 0; a.ways < ALL_WAYS; a.ways += nightly(7, 31)) compare(&a, 2e-6);
  }
}

/* Key 5 is hidden from all rows, and row 4 sees nothing: neither changes a bit, whatever it contains. */
static void what_is_hidden_changes_no_bit(void **state) {
  (void)state;
  static const float poisons[] = {NAN, INFINITY, -INFINITY, 3e38f};
  for (int p = 0; p < 4; p++) {
    for (int ways = 0; ways < 2; ways++) {
      const parameters a = {.l = 31, .s = 300, .d = 20, .dv = 24, .ways = ways ? BIAS | CAUSAL : VISIBLE};
      const fixture f = set_up(&a);
      const heed__attention_task *t = &f.task.forward;
      for (int64_t i = 0; i < a.l; i++) {
        for (int64_t j = 0; j < a.s; j++) {
          if (j != 5 && i != 4) continue;
          ((uint8_t *)f.area[SEEN].data)[i * t->visible_row + j] = 0;
          ((float *)f.area[BIASES].data)[i * t->bias_row + j] = -INFINITY;
        }
      }
      for (int table = 0; table_at(table); table++) {
        fixture again = f;
        compute(&again);
        const results clean = run(table_at(table), &again, false, a.s);
        assert_expected(&again, &clean, 2e-6);
        float row[64], dout[64], key[64], value[64];
        float *q = (float *)f.area[Q].data + 4 * t->q_row, *k = (float *)f.area[K].data + 5 * t->k_row;
        float *v = (float *)f.area[V].data + 5 * t->v_row;
        float *dy = (float *)f.area[DOUT].data + 4 * f.task.dout_row;
        memcpy(row, q, sizeof(float) * 20);
        memcpy(key, k, sizeof(float) * 20);
        memcpy(value, v, sizeof(float) * 24);
        memcpy(dout, dy, sizeof(float) * 24);
        for (int c = 0; c < 20; c++) q[c] = k[c] = poisons[p];
        for (int c = 0; c < 24; c++) v[c] = dy[c] = poisons[p];
        const results poisoned = run(table_at(table), &again, false, a.s);
        assert_expected(&again, &poisoned, 2e-6);
        memcpy(q, row, sizeof(float) * 20);
        memcpy(k, key, sizeof(float) * 20);
        memcpy(v, value, sizeof(float) * 24);
        memcpy(dy, dout, sizeof(float) * 24);
        free_results(&clean);
        free_results(&poisoned);
        for (int i = 0; i < 4; i++) free(again.expected[i]);
        free(again.delta);
      }
      tear_down(&f);
    }
  }
}

static void a_visible_nan_reaches_the_gradients_of_what_it_meets(void **state) {
  (void)state;
  const parameters a = {.l = 40, .s = 40, .d = 16, .dv = 20, .ways = CAUSAL};
  const fixture f = set_up(&a);
  ((float *)f.area[DOUT].data)[20 * f.task.dout_row + 3] = NAN;
  for (int i = 0; table_at(i); i++) {
    const results y = run(table_at(i), &f, false, a.s);
    assert_true(isfinite(y.x[0][19 * a.d]) && isnan(y.x[0][20 * a.d]) && isfinite(y.x[0][21 * a.d]));
    assert_true(isnan(y.x[1][20 * a.d]) && isfinite(y.x[1][21 * a.d]));
    assert_true(isfinite(y.x[2][20 * a.dv]) && isnan(y.x[2][20 * a.dv + 3]) &&
                isfinite(y.x[2][21 * a.dv + 3]));
    free_results(&y);
  }
  tear_down(&f);
}

static void only_wanted_gradients_are_written(void **state) {
  (void)state;
  const parameters a = {.l = 40, .s = 60, .d = 16, .dv = 20, .ways = BIAS | SLOPE};
  fixture f = set_up(&a);
  const backward_task all = f.task;
  for (int i = 0; table_at(i); i++) {
    const results whole = run(table_at(i), &f, false, a.s);
    for (int one = 0; one < 4; one++) {
      f.task.dq = one == 0 ? all.dq : NULL;
      f.task.dk = one == 1 ? all.dk : NULL;
      f.task.dv = one == 2 ? all.dv : NULL;
      f.task.dbias = one == 3 ? all.dbias : NULL;
      const results y = run(table_at(i), &f, false, a.s);
      const int64_t count[] = {a.l * a.d, a.s * a.d, a.s * a.dv, a.l * a.s};
      for (int j = 0; j < 4; j++) {
        for (int64_t n = 0; j != one && n < count[j]; n++) assert_true(y.x[j][n] == 0);
        if (j == one) assert_memory_equal(y.x[j], whole.x[j], (size_t)count[j] * sizeof(float));
      }
      free_results(&y);
    }
    f.task = all;
    free_results(&whole);
  }
  tear_down(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size_and_option_agrees_with_double_precision),
      cmocka_unit_test(gradients_of_a_bias_are_summed_over_what_it_repeats),
      cmocka_unit_test(large_scores_stay_accurate),
      cmocka_unit_test(long_sums_stay_accurate),
      cmocka_unit_test(empty_operands_give_zeros_or_empty_results),
      cmocka_unit_test(what_is_hidden_changes_no_bit),
      cmocka_unit_test(a_visible_nan_reaches_the_gradients_of_what_it_meets),
      cmocka_unit_test(only_wanted_gradients_are_written),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
