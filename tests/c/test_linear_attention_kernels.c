/* The kernels of linear attention and the causal convolution of every table, against the recurrences in
 * double precision: sizes around every edge of chunks, parts and tiles, strides, operands between guard
 * pages, interrupted at every step. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"

#include <math.h>

typedef heed__linear_attention_task linear_task;
typedef heed__linear_attention_backward_task linear_backward_task;

static uint32_t seed;
static double uniform(double low, double high) {
  next_random(&seed);
  return low + (high - low) * (double)(seed >> 8) / 16777216.0;
}

enum { GATED = 1, EACH = 2, DELTA = 4 };
typedef struct parameters {
  int64_t n, d, dv, group;
  int ways;
  ptrdiff_t gap;   /* floats between rows */
  double strength; /* decays are from -strength to 0; 0: -0.3 */
  bool at_end;
} parameters;

enum { Q, K, V, DECAY, BETA, DOUT, INPUTS };
/* Gradients, in the order of the inputs; then those of the states */
enum { DQ, DK, DV, DDECAY, DBETA, DSTATE, GRADIENTS };

typedef struct fixture {
  linear_task task;
  guarded area[INPUTS];
  float *past, *dlast; /* [d, dv] */
  double *out, *state, *gradient[GRADIENTS];
  double most[GRADIENTS]; /* the largest magnitude of a sum that a gradient is a part of */
  int64_t count[GRADIENTS];
} fixture;

static float *filled(fixture *f, const parameters *a, int i, int64_t rows, int64_t columns, ptrdiff_t *row,
                     double low, double high) {
  *row = (ptrdiff_t)columns + a->gap;
  const bool any = rows > 0 && columns > 0;
  f->area[i] = guard_bytes(any ? (size_t)((rows - 1) * *row + columns) * sizeof(float) : 0, a->at_end);
  float *x = f->area[i].data;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) x[r * *row + c] = (float)uniform(low, high);
  return x;
}

static double decay_of(const linear_task *t, int64_t i, int64_t c) {
  return t->decay ? exp((double)t->decay[i * t->decay_row + (t->decays_each ? c : 0)]) : 1;
}

/* Forward, with the state before each token in states [n + 1, d, dv], u and error [n, dv]. */
static void recur(fixture *f, double *states, double *u, double *error) {
  const linear_task *t = &f->task;
  const int64_t n = t->tokens, d = t->head_size, dv = t->value_size;
  for (int64_t x = 0; x < d * dv; x++) states[x] = (double)f->past[x];
  for (int64_t i = 0; i < n; i++) {
    const double *s = states + i * d * dv;
    double *next = states + (i + 1) * d * dv;
    for (int64_t m = 0; m < dv; m++) {
      double sum = 0;
      for (int64_t c = 0; c < d; c++)
        sum += decay_of(t, i, c) * s[c * dv + m] * (double)t->k[i * t->k_row + c];
      error[i * dv + m] = (double)t->v[i * t->v_row + m] - (t->beta ? sum : 0);
      u[i * dv + m] = error[i * dv + m] * (t->beta ? (double)t->beta[i * t->beta_row] : 1);
      for (int64_t c = 0; c < d; c++)
        next[c * dv + m] = decay_of(t, i, c) * s[c * dv + m] + (double)t->k[i * t->k_row + c] * u[i * dv + m];
      for (int64_t h = 0; h < t->group; h++) {
        double y = 0;
        for (int64_t c = 0; c < d; c++)
          y += (double)t->q[h * t->q_head + i * t->q_row + c] * next[c * dv + m];
        f->out[(h * n + i) * dv + m] = y * (double)t->scale;
      }
    }
  }
  for (int64_t x = 0; x < d * dv; x++) f->state[x] = states[n * d * dv + x];
}

static void go_back(fixture *f, const double *states, const double *u, const double *error) {
  const linear_task *t = &f->task;
  const int64_t n = t->tokens, d = t->head_size, dv = t->value_size, width = t->decays_each ? d : 1;
  double *ds = f->gradient[DSTATE], *du = calloc((size_t)dv + 1, sizeof *du);
  for (int64_t x = 0; x < d * dv; x++) ds[x] = (double)f->dlast[x];
  for (int64_t i = n; i-- > 0;) {
    const double *s = states + i * d * dv, *next = s + d * dv;
    const double beta = t->beta ? (double)t->beta[i * t->beta_row] : 1;
    double read = 0;
    for (int64_t m = 0; m < dv; m++) du[m] = 0;
    for (int64_t c = 0; c < d; c++) {
      for (int64_t h = 0; h < t->group; h++) {
        const float *dout = (const float *)f->area[DOUT].data + h * t->out_head + i * t->out_row;
        double dq = 0;
        for (int64_t m = 0; m < dv; m++) {
          dq += (double)t->scale * (double)dout[m] * next[c * dv + m];
          ds[c * dv + m] +=
              (double)t->scale * (double)dout[m] * (double)t->q[h * t->q_head + i * t->q_row + c];
        }
        f->gradient[DQ][(h * n + i) * d + c] = dq;
        read += fabs(dq * (double)t->q[h * t->q_head + i * t->q_row + c]);
      }
      for (int64_t m = 0; m < dv; m++) {
        du[m] += ds[c * dv + m] * (double)t->k[i * t->k_row + c];
        f->gradient[DK][i * d + c] += ds[c * dv + m] * u[i * dv + m];
      }
    }
    f->most[DDECAY] = fmax(f->most[DDECAY], read);
    for (int64_t m = 0; m < dv; m++) {
      f->gradient[DBETA][i] += du[m] * error[i * dv + m];
      f->gradient[DV][i * dv + m] = du[m] *= beta;
    }
    for (int64_t c = 0; c < d; c++) {
      double *ddecay = &f->gradient[DDECAY][i * width + (t->decays_each ? c : 0)];
      for (int64_t m = 0; m < dv; m++) {
        const double decayed = decay_of(t, i, c) * s[c * dv + m];
        if (t->beta) {
          f->gradient[DK][i * d + c] -= decayed * du[m];
          ds[c * dv + m] -= (double)t->k[i * t->k_row + c] * du[m];
        }
        *ddecay += decayed * ds[c * dv + m];
        f->most[DDECAY] = fmax(f->most[DDECAY], fabs(decayed * ds[c * dv + m]));
        ds[c * dv + m] *= decay_of(t, i, c);
      }
    }
  }
  free(du);
}

static fixture set_up(const parameters *a) {
  fixture f = {0};
  linear_task *t = &f.task;
  const double strong = a->strength > 0 ? a->strength : 0.3;
  const int64_t width = a->ways & EACH ? a->d : 1;
  ptrdiff_t row;
  seed = (uint32_t)(a->n * 7919 + a->d * 31 + a->dv + a->ways);
  *t = (linear_task){.tokens = a->n,
                     .group = a->group,
                     .head_size = a->d,
                     .value_size = a->dv,
                     .decays_each = a->ways & EACH,
                     .scale = 1.0f / sqrtf((float)(a->d > 0 ? a->d : 1))};
  /* about unit length: keys that are longer let the delta rule grow */
  const double size = a->d > 3 ? sqrt(3.0 / (double)a->d) : 1;
  t->q = filled(&f, a, Q, a->group * a->n, a->d, &t->q_row, -2, 2);
  t->q_head = t->q_row * a->n;
  t->k = filled(&f, a, K, a->n, a->d, &t->k_row, -size, size);
  t->v = filled(&f, a, V, a->n, a->dv, &t->v_row, -1, 1);
  const float *decay = filled(&f, a, DECAY, a->n, width, &t->decay_row, -strong, 0);
  const float *beta = filled(&f, a, BETA, a->n, 1, &t->beta_row, 0, 1);
  if (a->ways & (GATED | EACH)) t->decay = decay;
  if (a->ways & DELTA) t->beta = beta;
  (void)filled(&f, a, DOUT, a->group * a->n, a->dv, &row, -1, 1);
  t->out_row = row;
  t->out_head = row * a->n;
  const int64_t sizes[] = {a->group * a->n * a->d, a->n * a->d, a->n * a->dv,
                           a->n * width,           a->n,        a->d * a->dv};
  for (int i = 0; i < GRADIENTS; i++) {
    f.count[i] = sizes[i];
    f.gradient[i] = calloc((size_t)sizes[i] + 1, sizeof(double));
  }
  f.past = calloc((size_t)sizes[DSTATE] + 1, sizeof(float));
  f.dlast = calloc((size_t)sizes[DSTATE] + 1, sizeof(float));
  f.state = calloc((size_t)sizes[DSTATE] + 1, sizeof(double));
  f.out = calloc((size_t)(a->group * a->n * a->dv) + 1, sizeof(double));
  for (int64_t x = 0; x < sizes[DSTATE]; x++) {
    f.past[x] = (float)uniform(-1, 1);
    f.dlast[x] = (float)uniform(-1, 1);
  }
  double *states = calloc((size_t)((a->n + 1) * sizes[DSTATE]) + 1, sizeof(double));
  double *u = calloc((size_t)(a->n * a->dv) + 1, sizeof(double));
  double *error = calloc((size_t)(a->n * a->dv) + 1, sizeof(double));
  recur(&f, states, u, error);
  go_back(&f, states, u, error);
  free(states);
  free(u);
  free(error);
  return f;
}

static void tear_down(const fixture *f) {
  for (int i = 0; i < INPUTS; i++) unguard(f->area[i]);
  for (int i = 0; i < GRADIENTS; i++) free(f->gradient[i]);
  free(f->past);
  free(f->dlast);
  free(f->state);
  free(f->out);
}

/* Within `error` of the largest expected one, or of `most`. */
static void assert_near(const char *what, const float *x, const double *wanted, int64_t n, double most,
                        double error) {
  for (int64_t i = 0; i < n; i++)
    if (fabs(wanted[i]) > most) most = fabs(wanted[i]);
  for (int64_t i = 0; i < n; i++) {
    if (fabs((double)x[i] - wanted[i]) <= error * most) continue;
    fail_msg("%s: element %lld of %lld is %.9g, not %.9g (the largest is %g)", what, (long long)i,
             (long long)n, (double)x[i], wanted[i], most);
  }
}

/* ---- Runs ---- */

typedef struct results {
  float *out, *state; /* dense */
} results;

static void *scratch_of(size_t bytes) {
  void *scratch = aligned_new(bytes);
  memset(scratch, 0xff, bytes); /* nan */
  return scratch;
}

/* In calls of at most `piece` tokens; with `yields` the kernel stops wherever it can. */
static results run(const heed__kernels *table, const fixture *f, bool yields, int64_t piece) {
  const linear_task *t = &f->task;
  const int64_t n = t->tokens, dv = t->value_size, size = t->head_size * dv;
  results y = {calloc((size_t)(t->group * n * dv) + 1, sizeof(float)),
               calloc((size_t)size + 1, sizeof(float))};
  memcpy(y.state, f->past, (size_t)size * sizeof(float));
  for (int64_t first = 0; first < n || first == 0; first += piece) {
    linear_task now = *t;
    now.q += first * t->q_row;
    now.k += first * t->k_row;
    now.v += first * t->v_row;
    if (now.decay) now.decay += first * t->decay_row;
    if (now.beta) now.beta += first * t->beta_row;
    now.tokens = n - first < piece ? n - first : piece;
    now.out = y.out + first * dv;
    now.out_head = n * dv;
    now.out_row = dv;
    now.state = y.state;
    now.scratch = scratch_of(table->linear_attention_scratch(&now));
    int64_t position = 0, before = -1;
    while (!table->linear_attention(&now, yields ? always_due() : NULL, yields ? &position : NULL)) {
      assert_true(position > before);
      before = position;
    }
    aligned_free(now.scratch);
  }
  return y;
}

static void free_results(results y) {
  free(y.out);
  free(y.state);
}

static void check(const fixture *f, results y, double error) {
  const linear_task *t = &f->task;
  assert_near("out", y.out, f->out, t->group * t->tokens * t->value_size, 0.1, error);
  assert_near("state", y.state, f->state, t->head_size * t->value_size, 0.1, error);
}

static void compare(const parameters *a, double error) {
  const fixture f = set_up(a);
  const size_t bytes = (size_t)(a->group * a->n * a->dv) * sizeof(float);
  for (int i = 0; table_at(i); i++) {
    const results whole = run(table_at(i), &f, false, a->n + 1),
                  slices = run(table_at(i), &f, true, a->n + 1);
    check(&f, whole, error);
    assert_memory_equal(whole.out, slices.out, bytes);
    assert_memory_equal(whole.state, slices.state, (size_t)(a->d * a->dv) * sizeof(float));
    free_results(whole);
    free_results(slices);
    for (int64_t piece = 1; piece < a->n; piece += 30) {
      const results pieces = run(table_at(i), &f, false, piece);
      check(&f, pieces, error);
      free_results(pieces);
    }
  }
  tear_down(&f);
}

/* `some`: bits of the gradients that are wanted. */
static void run_backward(const heed__kernels *table, const fixture *f, bool yields, unsigned some,
                         float *y[GRADIENTS]) {
  linear_backward_task g = {.forward = f->task};
  for (int i = 0; i < GRADIENTS; i++) {
    y[i] = some >> i & 1 || i == DSTATE ? calloc((size_t)f->count[i] + 1, sizeof(float)) : NULL;
    for (int64_t j = 0; y[i] && j < f->count[i]; j++) y[i][j] = NAN;
  }
  memcpy(y[DSTATE], f->dlast, (size_t)f->count[DSTATE] * sizeof(float));
  g.forward.out = f->area[DOUT].data;
  g.forward.state = f->past;
  g.dstate = y[DSTATE];
  g.dq = y[DQ];
  g.dk = y[DK];
  g.dv = y[DV];
  g.ddecay = g.forward.decay ? y[DDECAY] : NULL;
  g.dbeta = g.forward.beta ? y[DBETA] : NULL;
  g.scratch = scratch_of(table->linear_attention_backward_scratch(&g));
  int64_t position = 0, before = -1;
  while (!table->linear_attention_backward(&g, yields ? always_due() : NULL, yields ? &position : NULL)) {
    assert_true(position > before);
    before = position;
  }
  aligned_free(g.scratch);
}

static void compare_backward(const parameters *a, double error) {
  static const char *const names[] = {"dq", "dk", "dv", "ddecay", "dbeta", "dstate"};
  const fixture f = set_up(a);
  for (int i = 0; table_at(i); i++) {
    float *whole[GRADIENTS], *slices[GRADIENTS], *some[GRADIENTS];
    run_backward(table_at(i), &f, false, 63, whole);
    run_backward(table_at(i), &f, true, 63, slices);
    run_backward(table_at(i), &f, false, (unsigned)(a->n % 32), some);
    for (int j = 0; j < GRADIENTS; j++) {
      if ((j == DDECAY && !f.task.decay) || (j == DBETA && !f.task.beta)) continue;
      assert_near(names[j], whole[j], f.gradient[j], f.count[j], f.most[j] > 0.1 ? f.most[j] : 0.1, error);
      assert_memory_equal(whole[j], slices[j], (size_t)f.count[j] * sizeof(float));
      if (some[j]) assert_memory_equal(whole[j], some[j], (size_t)f.count[j] * sizeof(float));
    }
    for (int j = 0; j < GRADIENTS; j++) {
      free(whole[j]);
      free(slices[j]);
      free(some[j]);
    }
  }
  tear_down(&f);
}

/* ---- Tests ---- */

static const int64_t sizes[][3] = {
    /* n, d, dv */
    {0, 3, 4},    {1, 1, 1},     {1, 64, 64},  {8, 5, 130},  {9, 4, 4},     {16, 16, 16},
    {17, 15, 33}, {33, 1, 3},    {63, 33, 17}, {64, 64, 64}, {65, 7, 65},   {100, 32, 15},
    {128, 3, 5},  {200, 130, 9}, {70, 0, 4},   {70, 4, 0},   {129, 24, 40}, {66, 8, 200},
};
enum { SIZES = sizeof sizes / sizeof *sizes, WAYS = 8 };

static parameters of_size(int i, int ways) {
  return (parameters){.n = sizes[i][0],
                      .d = sizes[i][1],
                      .dv = sizes[i][2],
                      .group = 1 + (i + ways) % 3,
                      .ways = ways,
                      .gap = (i + ways) % 4 == 0 ? 0 : (i + ways) % 4 + 1,
                      .at_end = (i + ways) % 2};
}

static void every_size_and_rule_agrees_with_double_precision(void **state) {
  (void)state;
  for (int i = 0; i < SIZES; i++) {
    for (int ways = 0; ways < WAYS; ways++) {
      const parameters a = of_size(i, ways);
      compare(&a, 3e-6);
    }
  }
}

static void gradients_of_every_size_and_rule_agree_with_double_precision(void **state) {
  (void)state;
  for (int i = 0; i < SIZES; i++) {
    for (int ways = 0; ways < WAYS; ways++) {
      const parameters a = of_size(i, ways);
      compare_backward(&a, 5e-6);
    }
  }
}

static void decays_of_any_size_stay_accurate(void **state) {
  static const double strengths[] = {1e-4, 3, 30, 1000, 1e30};
  (void)state;
  for (int i = 0; i < 5; i++) {
    for (int ways = GATED; ways < WAYS; ways++) {
      if (ways == DELTA) continue;
      parameters a = {.n = 150, .d = 20, .dv = 24, .group = 2, .ways = ways, .strength = strengths[i]};
      compare(&a, 3e-6);
      compare_backward(&a, 5e-6);
    }
  }
}

/* A decay of -inf forgets all that was before. */
static void a_decay_of_minus_infinity_forgets_the_past(void **state) {
  (void)state;
  for (int ways = GATED; ways < WAYS; ways++) {
    if (ways == DELTA) continue;
    const parameters a = {.n = 100, .d = 8, .dv = 12, .group = 1, .ways = ways};
    fixture f = set_up(&a);
    const int64_t width = f.task.decays_each ? a.d : 1;
    float *decay = f.area[DECAY].data;
    for (int64_t c = 0; c < width; c++) decay[70 * f.task.decay_row + c] = -INFINITY;
    double *states = calloc((size_t)(101 * a.d * a.dv), sizeof(double));
    double *u = calloc((size_t)(a.n * a.dv), sizeof(double)),
           *error = calloc((size_t)(a.n * a.dv), sizeof *u);
    recur(&f, states, u, error);
    for (int i = 0; table_at(i); i++) {
      const results y = run(table_at(i), &f, false, a.n);
      check(&f, y, 3e-6);
      free_results(y);
    }
    free(states);
    free(u);
    free(error);
    tear_down(&f);
  }
}

/* ---- Causal convolution ---- */

static void convolutions_agree_with_double_precision(void **state) {
  static const int64_t shapes[][3] = {{1, 1, 1},  {3, 0, 4},   {5, 1, 4},   {16, 7, 4}, {17, 40, 3},
                                      {33, 5, 9}, {2, 100, 1}, {4, 20, 40}, {1, 50, 2}, {64, 33, 2}};
  (void)state;
  seed = 7;
  for (int i = 0; i < 10; i++) {
    for (int ways = 0; ways < 32; ways++) {
      const int64_t channels = shapes[i][0], n = shapes[i][1], taps = shapes[i][2], last = taps - 1;
      const bool across = ways & 1, spread = ways & 16;
      const ptrdiff_t step = spread ? 2 : 1;
      heed__causal_conv_task t = {.channels = channels, .taps = taps, .last = n, .silu = ways & 2};
      t.x_channel = t.out_channel = across ? step : n * step;
      t.x_step = t.out_step = across ? channels * step : step;
      t.past_channel = across ? 1 : last;
      t.past_step = across ? channels : 1;
      const guarded x = guard_bytes((size_t)(n * channels * step) * sizeof(float), ways & 4);
      const guarded weight = guard_bytes((size_t)(taps * channels) * sizeof(float), ways & 4);
      float *past = calloc((size_t)(last * channels) + 1, sizeof *past);
      float *bias = calloc((size_t)channels, sizeof *bias);
      float *out = calloc((size_t)(n * channels * step) + 1, sizeof *out);
      for (int64_t j = 0; j < n * channels * step; j++) ((float *)x.data)[j] = (float)uniform(-3, 3);
      for (int64_t j = 0; j < taps * channels; j++) ((float *)weight.data)[j] = (float)uniform(-1, 1);
      for (int64_t j = 0; j < last * channels; j++) past[j] = (float)uniform(-3, 3);
      for (int64_t j = 0; j < channels; j++) bias[j] = (float)uniform(-1, 1);
      t.x = x.data;
      t.weight = weight.data;
      t.out = out;
      if (ways & 8) {
        t.past = past;
        t.bias = bias;
      }
      for (int table = 0; table_at(table); table++) {
        heed__causal_conv_task part = t; /* in two parts */
        part.last = n / 2;
        table_at(table)->causal_conv(&part);
        part.first = n / 2;
        part.last = n;
        table_at(table)->causal_conv(&part);
        for (int64_t c = 0; c < channels; c++) {
          for (int64_t at = 0; at < n; at++) {
            double sum = t.bias ? (double)bias[c] : 0;
            for (int64_t j = 0; j < taps; j++) {
              const int64_t from = at + j - last;
              const float value = from >= 0 ? t.x[c * t.x_channel + from * t.x_step]
                                  : t.past  ? past[c * t.past_channel + (from + last) * t.past_step]
                                            : 0.0f;
              sum += (double)t.weight[c * taps + j] * (double)value;
            }
            const double wanted = t.silu ? sum / (1 + exp(-sum)) : sum;
            const float got = out[c * t.out_channel + at * t.out_step];
            if (fabs((double)got - wanted) > 2e-6 * (double)taps)
              fail_msg("channel %d, token %d: %.9g, not %.9g", (int)c, (int)at, (double)got, wanted);
          }
        }
      }
      unguard(x);
      unguard(weight);
      free(past);
      free(bias);
      free(out);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size_and_rule_agrees_with_double_precision),
      cmocka_unit_test(gradients_of_every_size_and_rule_agree_with_double_precision),
      cmocka_unit_test(decays_of_any_size_stay_accurate),
      cmocka_unit_test(a_decay_of_minus_infinity_forgets_the_past),
      cmocka_unit_test(convolutions_agree_with_double_precision),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
