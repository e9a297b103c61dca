/* The attention kernel of every table that runs here, against the scalar one: sizes around every edge of
 * strips, tiles and blocks, strides, masks of all kinds, operands between guard pages. And the division into
 * tasks: the same bits for any range of rows and number of threads, and little memory. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"

#include <math.h>

#include "../../src/attention/attention.h"

/* ---- A task between guard pages ---- */

enum { CAUSAL = 1, VISIBLE = 2, PADDING = 4, BIAS = 8, DROPOUT = 16, INTERVALS = 32, ALL_WAYS = 64 };
enum { DENSE, GAPS, SPARSE, TURNED, REPEATED, LAYOUTS };

typedef struct parameters {
  int64_t l, s, d, dv;
  int ways;          /* bits of the first enum */
  int layout;        /* of q, k, v and out */
  int mask_layout;   /* of visible and bias */
  bool at_end;       /* the guard page is after the operands, not before them */
  double visibility; /* share of ones in visible */
  int hiding;        /* index of the share of -inf in bias */
} parameters;

static const double hidden_shares[] = {0.2, 0, 0.0005, 1};
enum { HIDDEN_SHARES = sizeof hidden_shares / sizeof *hidden_shares };

enum { Q, K, V, OUT, SEEN, PADDED, BIASES, DROPOUT_MASK, RANGES, AREAS };

typedef struct fixture {
  heed__attention_task task;
  guarded area[AREAS];
} fixture;

static uint32_t seed;
static double uniform(void) {
  next_random(&seed);
  return (double)(seed >> 8) / 16777216.0;
}

/* Memory for [rows, columns] in that layout, with its strides in *row and *column. */
static guarded lay_out(const parameters *a, int layout, int64_t rows, int64_t columns, size_t element,
                       ptrdiff_t *row, ptrdiff_t *column) {
  const int64_t dense = columns > 0 ? columns : 1;
  *column = layout == SPARSE ? 2 : layout == TURNED ? (rows > 0 ? rows : 1) : 1;
  *row = layout == SPARSE   ? 2 * dense + 1
         : layout == TURNED ? 1
         : layout == GAPS   ? dense + 3
         : layout == DENSE  ? dense
                            : 0;
  const int64_t last = (rows - 1) * *row + (columns - 1) * *column;
  return guard_bytes(rows > 0 && columns > 0 ? (size_t)(last + 1) * element : 0, a->at_end);
}

static void fill(guarded g, size_t n, double low, double high) {
  float *x = g.data;
  for (size_t i = 0; i < n; i++) x[i] = (float)(low + (high - low) * uniform());
}

static size_t extent(int64_t rows, int64_t columns, ptrdiff_t row, ptrdiff_t column) {
  return rows > 0 && columns > 0 ? (size_t)((rows - 1) * row + (columns - 1) * column) + 1 : 0;
}

enum { MOST_INTERVALS = 3 };

/* Up to MOST_INTERVALS intervals for each row, of 1 key to all; in some rows none. */
static void set_intervals(const parameters *a, fixture *s) {
  heed__attention_task *t = &s->task;
  if (!(a->ways & INTERVALS)) {
    s->area[RANGES] = guard_bytes(0, a->at_end);
    return;
  }
  t->interval_count = 1 + a->l % MOST_INTERVALS;
  t->interval_row = a->mask_layout == REPEATED ? 0 : 2 * t->interval_count + (a->mask_layout == GAPS);
  const int64_t numbers = (a->l > 0 ? a->l - 1 : 0) * t->interval_row + 2 * t->interval_count;
  s->area[RANGES] = guard_bytes((size_t)numbers * sizeof(int32_t), a->at_end);
  int32_t *x = s->area[RANGES].data;
  for (int64_t i = 0; i < (t->interval_row == 0 ? 1 : a->l); i++) {
    int64_t end = 0, k = 0;
    for (; k < t->interval_count && uniform() > 0.1; k++) {
      const int64_t first = end + (k > 0) + (int64_t)((double)(a->s - end) * uniform() * 0.4);
      const int64_t last = first + 1 + (int64_t)((double)(a->s - first) * uniform());
      if (last > a->s) break;
      x[i * t->interval_row + 2 * k] = (int32_t)first;
      x[i * t->interval_row + 2 * k + 1] = (int32_t)(end = last);
    }
    for (; k < t->interval_count; k++)
      x[i * t->interval_row + 2 * k] = x[i * t->interval_row + 2 * k + 1] = (int32_t)end;
  }
  t->intervals = x;
}

static fixture set_up(const parameters *a) {
  fixture s = {
      .task = {
          .query_length = a->l, .key_length = a->s, .head_size = a->d, .value_size = a->dv, .last = a->l}};
  s.task.k_dtype = s.task.v_dtype = HEED_FLOAT32;
  s.task.window_begin = -a->l;
  s.task.window_end = a->ways & CAUSAL ? 1 : a->s;
  s.task.valid_keys = a->s;
  heed__attention_task *t = &s.task;
  seed = (uint32_t)(a->l * 7919 + a->s * 104729 + a->d * 31 + a->dv);
  const int out_layout = a->layout == REPEATED ? DENSE : a->layout;
  s.area[Q] = lay_out(a, a->layout, a->l, a->d, sizeof(float), &t->q_row, &t->q_column);
  s.area[K] = lay_out(a, a->layout, a->s, a->d, sizeof(float), &t->k_row, &t->k_column);
  s.area[V] = lay_out(a, a->layout, a->s, a->dv, sizeof(float), &t->v_row, &t->v_column);
  s.area[OUT] = lay_out(a, out_layout, a->l, a->dv, sizeof(float), &t->out_row, &t->out_column);
  s.area[SEEN] = lay_out(a, a->mask_layout, a->l, a->s, 1, &t->visible_row, &t->visible_column);
  s.area[BIASES] = lay_out(a, a->mask_layout, a->l, a->s, sizeof(float), &t->bias_row, &t->bias_column);
  s.area[PADDED] = guard_bytes((size_t)a->s, a->at_end);
  s.area[DROPOUT_MASK] = guard_bytes((size_t)(a->l * a->s) * sizeof(float), a->at_end);
  fill(s.area[Q], extent(a->l, a->d, t->q_row, t->q_column), -2, 2);
  fill(s.area[K], extent(a->s, a->d, t->k_row, t->k_column), -2, 2);
  fill(s.area[V], extent(a->s, a->dv, t->v_row, t->v_column), -1, 1);
  fill(s.area[DROPOUT_MASK], (size_t)(a->l * a->s), 0, 1);
  float *bias = s.area[BIASES].data, *dropout_mask = s.area[DROPOUT_MASK].data;
  for (size_t i = 0; i < extent(a->l, a->s, t->bias_row, t->bias_column); i++)
    bias[i] = uniform() < hidden_shares[a->hiding] ? -INFINITY : (float)uniform();
  for (int64_t i = 0; i < a->l * a->s; i++) dropout_mask[i] = dropout_mask[i] < 0.3f ? 0.0f : 1.0f / 0.7f;
  uint8_t *seen = s.area[SEEN].data, *padded = s.area[PADDED].data;
  for (size_t i = 0; i < extent(a->l, a->s, t->visible_row, t->visible_column); i++)
    seen[i] = uniform() < a->visibility ? (uint8_t)(1 + 127 * (i & 1)) : 0;
  for (int64_t j = 0; j < a->s; j++) padded[j] = uniform() < 0.2;
  t->q = s.area[Q].data;
  t->k = s.area[K].data;
  t->v = s.area[V].data;
  t->out = s.area[OUT].data;
  t->scale = a->d > 0 ? 1.0f / sqrtf((float)a->d) : 1.0f;
  if (a->ways & VISIBLE) t->visible = seen;
  if (a->ways & PADDING) {
    t->padding = padded;
    t->padding_stride = 1;
  }
  if (a->ways & BIAS) t->bias = bias;
  if (a->ways & DROPOUT) t->dropout_mask = dropout_mask;
  set_intervals(a, &s);
  return s;
}

static void tear_down(const fixture *s) {
  for (int i = 0; i < AREAS; i++) unguard(s->area[i]);
}

/* Runs rows first…last-1 with a table; out [last - first, dv] is contiguous. Also checks that the results are
 * the same if the kernel yields wherever it can. */
static void run(const heed__kernels *table, const fixture *s, int64_t first, int64_t last, float *out) {
  heed__attention_task t = s->task;
  t.first = first;
  t.last = last;
  if (t.dropout_mask) t.dropout_mask += first * t.key_length;
  const size_t bytes = table->attention_scratch(&t);
  void *scratch = aligned_new(bytes);
  memset(scratch, 0xff, bytes); /* nan */
  t.scratch = scratch;
  assert_true(table->attention(&t, NULL, NULL));
  float *x = out;
  for (int64_t i = first; i < last; i++)
    for (int64_t c = 0; c < t.value_size; c++) *x++ = t.out[i * t.out_row + c * t.out_column];

  memset(scratch, 0xff, bytes);
  int64_t position = 0, before = -1;
  while (!table->attention(&t, always_due(), &position)) {
    assert_true(position > before);
    before = position;
  }
  aligned_free(scratch);
  for (int64_t i = first; i < last; i++)
    for (int64_t c = 0; c < t.value_size; c++)
      assert_memory_equal(out++, &t.out[i * t.out_row + c * t.out_column], sizeof *out);
}

static float *results(const fixture *s) {
  float *x = calloc((size_t)(s->task.query_length * s->task.value_size) + 1, sizeof *x);
  assert_non_null(x);
  return x;
}

/* nan and inf must be where the scalar kernel has them. */
static void assert_close(const float *x, const float *wanted, int64_t n, float error) {
  for (int64_t i = 0; i < n; i++) {
    const bool same = isfinite(wanted[i]) ? fabsf(x[i] - wanted[i]) < error
                      : isnan(wanted[i])  ? isnan(x[i])
                                          : x[i] == wanted[i];
    assert_true(same);
  }
}

static void compare(const parameters *a) {
  const fixture s = set_up(a);
  float *wanted = results(&s), *out = results(&s);
  const float error = 4e-6f + (a->layout == REPEATED ? (float)a->s * 3e-8f
                                                     : 0.0f); /* equal numbers are all rounded the same way */
  run(&heed__kernels_scalar, &s, 0, a->l, wanted);
  for (int i = 0; table_at(i); i++) {
    if (table_at(i) == &heed__kernels_scalar) continue;
    run(table_at(i), &s, 0, a->l, out);
    assert_close(out, wanted, a->l * a->dv, error);
  }
  free(wanted);
  free(out);
  tear_down(&s);
}

/* ---- Numbers ---- */

static const int64_t sizes[][4] = {
    /* l, s, d, dv */
    {1, 1, 1, 1},      {6, 16, 16, 16},   {5, 15, 15, 17},    {7, 17, 17, 15},  {12, 64, 64, 64},
    {13, 65, 63, 65},  {18, 63, 5, 129},  {3, 512, 8, 8},     {40, 513, 7, 33}, {9, 1030, 32, 40},
    {530, 530, 4, 20}, {20, 100, 300, 3}, {7, 300, 600, 700}, {1, 40, 64, 64},  {100, 3, 2, 2},
    {16, 32, 64, 64},  {11, 31, 33, 47},  {15, 13, 16, 40},   {2, 30, 63, 64},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static parameters of_size(int i) {
  return (parameters){
      .l = sizes[i][0], .s = sizes[i][1], .d = sizes[i][2], .dv = sizes[i][3], .visibility = 0.6};
}

static void every_size_and_mask_agrees_with_the_scalar_kernel(void **state) {
  (void)state;
  for (int i = 0; i < SIZES; i++) {
    const int step = nightly(1, 3);
    for (int ways = i % step; ways < ALL_WAYS; ways += step) {
      parameters a = of_size(i);
      a.ways = ways;
      a.at_end = (ways + i) % 2;
      a.mask_layout = (ways + i) % LAYOUTS;
      a.hiding = (ways + i) % HIDDEN_SHARES;
      compare(&a);
    }
  }
}

static void every_stride_agrees_with_the_scalar_kernel(void **state) {
  (void)state;
  for (int i = 0; i < SIZES; i++) {
    for (int layout = 0; layout < LAYOUTS; layout++) {
      for (int at_end = 0; at_end < 2; at_end++) {
        parameters a = of_size(i);
        a.layout = layout;
        a.ways = layout & 1 ? CAUSAL : 0;
        a.at_end = at_end;
        compare(&a);
      }
    }
  }
}

/* Documents of `length` keys, whose rows see earlier keys, too; `gap` hides some of the first keys. */
static void intervals_over_many_blocks_agree_with_the_scalar_kernel(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 5, 16, 40, 128, 600, 1500};
  for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
    for (int count = 1; count <= 2; count++) {
      const parameters a = {.l = 1500, .s = 1500, .d = 8, .dv = 16, .ways = n % 2 ? CAUSAL : 0};
      fixture s = set_up(&a);
      int32_t *x = calloc(1500 * 4, sizeof *x);
      assert_non_null(x);
      for (int64_t i = 0; i < 1500; i++) {
        const int64_t first = i / lengths[n] * lengths[n], last = first + lengths[n];
        int32_t *row = x + i * 2 * count;
        if (count == 2) {
          row[0] = 0;
          row[1] = (int32_t)(first > 4 ? 3 : 0);
          row += 2;
        }
        row[0] = (int32_t)(first > 4 || count == 1 ? first : 0);
        row[1] = (int32_t)(last < 1500 ? last : 1500);
        if (count == 2 && row[-1] == 0) { /* empty ones are the last */
          row[-1] = row[1];
          row[0] = row[1];
        }
      }
      s.task.intervals = x;
      s.task.interval_count = count;
      s.task.interval_row = 2 * count;
      float *wanted = results(&s), *out = results(&s);
      run(&heed__kernels_scalar, &s, 0, a.l, wanted);
      for (int i = 0; table_at(i); i++) {
        if (table_at(i) != &heed__kernels_scalar) {
          run(table_at(i), &s, 0, a.l, out);
          assert_close(out, wanted, a.l * a.dv, 4e-6f);
        }
        run(table_at(i), &s, 700, 1400, out);
        assert_close(out, wanted + 700 * a.dv, 700 * a.dv, 4e-6f);
      }
      free(wanted);
      free(out);
      free(x);
      tear_down(&s);
    }
  }
}

static void sparse_and_full_masks_agree_with_the_scalar_kernel(void **state) {
  (void)state;
  static const double visibility[] = {0, 0.002, 0.05, 0.999, 1};
  for (size_t i = 0; i < sizeof visibility / sizeof *visibility; i++) {
    parameters a = {.l = 50, .s = 1100, .d = 24, .dv = 24, .ways = VISIBLE, .visibility = visibility[i]};
    compare(&a);
    a.ways |= CAUSAL | PADDING;
    compare(&a);
  }
}

static void empty_operands_give_zeros_or_empty_results(void **state) {
  (void)state;
  static const int64_t none[][4] = {{3, 0, 4, 5}, {0, 3, 4, 5},  {3, 3, 0, 5},  {3, 3, 4, 0},
                                    {0, 0, 0, 0}, {20, 0, 4, 5}, {3, 0, 70, 70}};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    parameters a = {.l = none[i][0], .s = none[i][1], .d = none[i][2], .dv = none[i][3], .visibility = 1};
    for (a.ways = 0; a.ways < ALL_WAYS; a.ways++) compare(&a);
  }
}

/* ---- Hidden and visible nan and inf ---- */

static const float poisons[] = {NAN, INFINITY, -INFINITY, 3e38f};

static void hidden_keys_change_no_bit(void **state) {
  (void)state;
  for (size_t p = 0; p < sizeof poisons / sizeof *poisons; p++) {
    for (int ways = CAUSAL; ways < DROPOUT; ways++) {
      const parameters a = {.l = 31, .s = 600, .d = 16, .dv = 20, .ways = ways, .visibility = 0.5};
      fixture s = set_up(&a);
      heed__attention_task *t = &s.task;
      /* no row sees keys 33 and 550 */
      ((uint8_t *)s.area[PADDED].data)[33] = ((uint8_t *)s.area[PADDED].data)[550] = 1;
      for (int64_t i = 0; i < a.l; i++) {
        for (int64_t j = 33; j < 600; j += 517) {
          ((uint8_t *)s.area[SEEN].data)[i * t->visible_row + j] = 0;
          ((float *)s.area[BIASES].data)[i * t->bias_row + j] = -INFINITY;
        }
      }
      float *clean = results(&s), *out = results(&s);
      for (int table = 0; table_at(table); table++) {
        run(table_at(table), &s, 0, a.l, clean);
        for (int64_t j = 33; j < 600; j += 517) {
          for (int64_t c = 0; c < a.d; c++) ((float *)s.area[K].data)[j * t->k_row + c] = poisons[p];
          for (int64_t c = 0; c < a.dv; c++) ((float *)s.area[V].data)[j * t->v_row + c] = poisons[p];
        }
        run(table_at(table), &s, 0, a.l, out);
        assert_memory_equal(out, clean, (size_t)(a.l * a.dv) * sizeof *out);
        for (int64_t j = 33; j < 600; j += 517) {
          for (int64_t c = 0; c < a.d; c++) ((float *)s.area[K].data)[j * t->k_row + c] = 0.5f;
          for (int64_t c = 0; c < a.dv; c++) ((float *)s.area[V].data)[j * t->v_row + c] = 0.5f;
        }
      }
      free(clean);
      free(out);
      tear_down(&s);
    }
  }
}

/* In causal attention queries from 20 on see key 20. */
static void visible_nan_and_inf_reach_the_result(void **state) {
  (void)state;
  for (size_t p = 0; p + 1 < sizeof poisons / sizeof *poisons; p++) {
    for (int in_keys = 0; in_keys < 2; in_keys++) {
      const parameters a = {.l = 40, .s = 40, .d = 16, .dv = 20, .ways = CAUSAL};
      const fixture s = set_up(&a);
      float *wanted = results(&s), *out = results(&s);
      ((float *)s.area[in_keys ? K : V].data)[20 * (in_keys ? s.task.k_row : s.task.v_row) + 3] = poisons[p];
      run(&heed__kernels_scalar, &s, 0, a.l, wanted);
      for (int table = 0; table_at(table); table++) {
        run(table_at(table), &s, 0, a.l, out);
        assert_close(out, wanted, a.l * a.dv, 4e-6f);
        assert_true(isfinite(out[19 * a.dv + 3]));
      }
      free(wanted);
      free(out);
      tear_down(&s);
    }
  }
}

/* ---- Division ---- */

static void the_bits_of_a_row_do_not_depend_on_the_other_rows(void **state) {
  (void)state;
  for (int ways = 0; ways < ALL_WAYS; ways += 3) {
    const parameters a = {.l = 101,
                          .s = 1100,
                          .d = 20,
                          .dv = 24,
                          .ways = ways,
                          .visibility = 0.3,
                          .hiding = ways / 3 % HIDDEN_SHARES};
    const fixture s = set_up(&a);
    float *whole = results(&s), *parts = results(&s);
    for (int table = 0; table_at(table); table++) {
      run(table_at(table), &s, 0, a.l, whole);
      for (int64_t first = 0, step = 1; first < a.l; first += step, step = step % 23 + 5) {
        const int64_t last = first + step < a.l ? first + step : a.l;
        run(table_at(table), &s, first, last, parts + first * a.dv);
      }
      assert_memory_equal(whole, parts, (size_t)(a.l * a.dv) * sizeof *whole);
    }
    free(whole);
    free(parts);
    tear_down(&s);
  }
}

/* A window narrower than a block, so that most strips see one block and some see two. Keys and values that
 * only rows before the first see are nan. */
static void rows_with_a_window_do_not_depend_on_the_other_rows(void **state) {
  (void)state;
  static const int64_t widths[] = {1, 20, 128, 500};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    const parameters a = {.l = 1100, .s = 1100, .d = 16, .dv = 16, .ways = CAUSAL, .at_end = i % 2};
    fixture s = set_up(&a);
    s.task.window_begin = 1 - widths[i];
    float *wanted = results(&s), *whole = results(&s), *parts = results(&s);
    run(&heed__kernels_scalar, &s, 0, a.l, wanted);
    for (int table = 0; table_at(table); table++) {
      run(table_at(table), &s, 0, a.l, whole);
      assert_close(whole, wanted, a.l * a.dv, 4e-6f);
      for (int64_t first = 0, last = 7; first < a.l; first = last, last = first + 2 * (first % 150) + 5) {
        if (last > a.l) last = a.l;
        run(table_at(table), &s, first, last, parts + first * a.dv);
      }
      assert_memory_equal(whole, parts, (size_t)(a.l * a.dv) * sizeof *whole);
    }
    enum { FIRST = 700 };
    for (int64_t j = 0; j < FIRST + 1 - widths[i]; j++) {
      ((float *)s.area[K].data)[j * s.task.k_row + 3] = NAN;
      ((float *)s.area[V].data)[j * s.task.v_row + 5] = NAN;
    }
    for (int table = 0; table_at(table); table++) {
      run(table_at(table), &s, 0, a.l, whole);
      run(table_at(table), &s, FIRST, a.l, parts);
      assert_memory_equal(whole + FIRST * a.dv, parts, (size_t)((a.l - FIRST) * a.dv) * sizeof *whole);
      assert_close(parts, wanted + FIRST * a.dv, (a.l - FIRST) * a.dv, 4e-6f);
    }
    free(wanted);
    free(whole);
    free(parts);
    tear_down(&s);
  }
}

static heed_tensor *normal(heed_context *ctx, int ndim, const int64_t *shape) {
  heed_tensor *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, ndim, shape, &x));
  return x;
}

static void the_number_of_threads_changes_no_bit(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *q = normal(ctx, 4, SHAPE(2, 4, 300, 16)), *k = normal(ctx, 4, SHAPE(2, 2, 300, 16));
  heed_tensor *one = NULL;
  const heed_attention_options options = {.size = sizeof options, .is_causal = true};
  assert_ok(heed_scaled_dot_product_attention(ctx, q, k, k, &options, &one, NULL));
  for (int threads = 2; threads <= 8; threads *= 2) {
    heed_tensor *many = NULL;
    assert_ok(heed_set_num_threads(ctx, threads));
    assert_ok(heed_scaled_dot_product_attention(ctx, q, k, k, &options, &many, NULL));
    assert_memory_equal(one->data, many->data, (size_t)one->numel * sizeof(float));
    heed_tensor_free(many);
  }
  heed_tensor_free(q);
  heed_tensor_free(k);
  heed_tensor_free(one);
}

/* Any two of the threads may take the two tasks, each with its own scratch. */
static void there_may_be_more_threads_than_tasks(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *q = normal(ctx, 3, SHAPE(2, 40, 16)), *one = NULL;
  assert_ok(heed_scaled_dot_product_attention(ctx, q, q, q, NULL, &one, NULL));
  assert_ok(heed_set_num_threads(ctx, 8));
  for (int turn = 0; turn < 100; turn++) {
    heed_tensor *many = NULL;
    assert_ok(heed_scaled_dot_product_attention(ctx, q, q, q, NULL, &many, NULL));
    assert_memory_equal(one->data, many->data, (size_t)one->numel * sizeof(float));
    heed_tensor_free(many);
  }
  heed_tensor_free(q);
  heed_tensor_free(one);
}

static void long_sequences_need_little_memory(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *q = normal(ctx, 3, SHAPE(8, 32768, 4)), *out = NULL;
  heed_attention_options options = {.size = sizeof options};
  for (int way = 0; way < 3; way++) {
    /* 20 queries on all keys, without and with dropout; then all queries on 20 keys, causal */
    const int64_t rows = way == 2 ? 32768 : 20;
    heed_tensor *queries = NULL, *keys = NULL;
    assert_ok(heed_narrow(ctx, q, 2, 1, rows, &queries));
    assert_ok(heed_narrow(ctx, q, 2, 1, way == 2 ? 20 : 32768, &keys));
    options.dropout_p = way == 1 ? 0.5 : 0;
    options.is_causal = way == 2;
    heed_reset_peak(ctx);
    const size_t before = heed_memory_in_use(ctx), result = (size_t)(8 * rows * 4) * sizeof(float);
    assert_ok(heed_scaled_dot_product_attention(ctx, queries, keys, keys, &options, &out, NULL));
    assert_true(heed_memory_peak(ctx) - before <= result + ((size_t)64 << 20));
    heed_tensor_free(queries);
    heed_tensor_free(keys);
    heed_tensor_free(out);
    out = NULL;
  }
  heed_tensor_free(q);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size_and_mask_agrees_with_the_scalar_kernel),
      cmocka_unit_test(every_stride_agrees_with_the_scalar_kernel),
      cmocka_unit_test(intervals_over_many_blocks_agree_with_the_scalar_kernel),
      cmocka_unit_test(sparse_and_full_masks_agree_with_the_scalar_kernel),
      cmocka_unit_test(empty_operands_give_zeros_or_empty_results),
      cmocka_unit_test(hidden_keys_change_no_bit),
      cmocka_unit_test(visible_nan_and_inf_reach_the_result),
      cmocka_unit_test(the_bits_of_a_row_do_not_depend_on_the_other_rows),
      cmocka_unit_test(rows_with_a_window_do_not_depend_on_the_other_rows),
      TEST(the_number_of_threads_changes_no_bit),
      TEST(there_may_be_more_threads_than_tasks),
      TEST(long_sequences_need_little_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
