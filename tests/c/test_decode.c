/* Few queries on many keys: the kernel of every table that runs here against a reference in double precision,
 * with operands between guard pages and hidden nan. And the operation: the same bits for any number of
 * threads, with and without taps. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"

#include <float.h>
#include <math.h>

#include "../../src/attention/attention.h"

/* ---- A task between guard pages ---- */

enum { VISIBLE = 1, PADDING = 2, BIAS = 4, BOUNDS = 8, WAYS = 16 };

typedef struct parameters {
  int rows, heads;                    /* heads: key heads that the rows belong to; 0: one */
  int64_t s, first, last, d, dv, gap; /* gap: floats between the rows of keys and values */
  int ways;                           /* bits of the enum above */
  bool alike;                         /* one mask for all rows */
  bool at_end;                        /* the guard page is after the operands, not before them */
  double visibility;                  /* share of ones in visible */
} parameters;

enum { Q, K, V, SEEN, PADDED, BIASES, OUT, ROW_MAX, ROW_SUM, SCORES, AREAS };

typedef struct fixture {
  heed__decode_task task;
  guarded area[AREAS];
} fixture;

static uint32_t seed;
static double uniform(void) {
  next_random(&seed);
  return (double)(seed >> 8) / 16777216.0;
}

static float *fill(guarded area, int64_t n) {
  float *x = area.data;
  for (int64_t i = 0; i < n; i++) x[i] = (float)(uniform() * 4 - 2);
  return x;
}

static void set_up(fixture *t, const parameters *a) {
  const int64_t heads = a->heads ? a->heads : 1, k_row = heads * a->d + a->gap,
                v_row = heads * a->dv + a->gap;
  const int64_t masks = a->alike ? 1 : a->rows, block = HEED__DECODE_BLOCK >> (a->s + a->dv) % 6;
  const int64_t sizes[AREAS] = {
      [Q] = a->rows * a->d,        [K] = a->s * k_row - a->gap,
      [V] = a->s * v_row - a->gap, [BIASES] = masks * a->s,
      [OUT] = a->rows * a->dv,     [ROW_MAX] = a->rows,
      [ROW_SUM] = a->rows,         [SCORES] = a->rows * (block + HEED__DECODE_SPARE)};
  for (int i = 0; i < AREAS; i++)
    t->area[i] = guard_bytes(sizes[i] ? (size_t)sizes[i] * sizeof(float) : (size_t)(masks * a->s), a->at_end);
  t->task = (heed__decode_task){.k = fill(t->area[K], sizes[K]),
                                .v = fill(t->area[V], sizes[V]),
                                .k_row = k_row,
                                .v_row = v_row,
                                .head_size = a->d,
                                .value_size = a->dv,
                                .k_dtype = HEED_FLOAT32,
                                .v_dtype = HEED_FLOAT32,
                                .first = a->first,
                                .last = a->last,
                                .scale = 0.5f,
                                .rows = a->rows,
                                .block = (int)block,
                                .scores = t->area[SCORES].data,
                                .out = t->area[OUT].data,
                                .row_max = t->area[ROW_MAX].data,
                                .row_sum = t->area[ROW_SUM].data};
  float *q = fill(t->area[Q], sizes[Q]), *bias = fill(t->area[BIASES], sizes[BIASES]);
  uint8_t *visible = t->area[SEEN].data, *padding = t->area[PADDED].data;
  for (int64_t i = 0; i < masks * a->s; i++) {
    visible[i] = uniform() < a->visibility;
    if (uniform() < 0.2) bias[i] = -INFINITY;
  }
  for (int64_t j = 0; j < a->s; j++) padding[j] = uniform() < 0.2;
  t->task.visible_column = t->task.bias_column = t->task.padding_stride = 1;
  if (a->ways & PADDING) t->task.padding = padding;
  for (int r = 0; r < a->rows; r++) {
    const int64_t mask = a->alike ? 0 : r * a->s;
    const int64_t head = r / (a->rows / heads);
    heed__decode_row *row = &t->task.row[r];
    *row = (heed__decode_row){.q = q + r * a->d, .last = (a->ways & BOUNDS) ? a->s - a->rows + r : a->s};
    row->k = head * a->d;
    row->v = head * a->dv;
    if (a->ways & VISIBLE) row->visible = visible + mask;
    if (a->ways & BIAS) row->bias = bias + mask;
  }
}

static void tear_down(fixture *t) {
  for (int i = 0; i < AREAS; i++) unguard(t->area[i]);
}

static bool sees(const heed__decode_task *t, const heed__decode_row *row, int64_t j) {
  return j >= row->first && j < row->last && !(row->visible && !row->visible[j]) &&
         !(t->padding && t->padding[j]) && !(row->bias && row->bias[j] == -INFINITY);
}

static double score(const heed__decode_task *t, const heed__decode_row *row, int64_t j) {
  double sum = 0;
  const float *k = (const float *)t->k + row->k + j * t->k_row;
  for (int64_t c = 0; c < t->head_size; c++) sum += (double)row->q[c] * (double)k[c];
  return sum * (double)t->scale + (row->bias ? (double)row->bias[j] : 0);
}

/* Compares the results of row r with the reference. */
static void check_row(const heed__decode_task *t, int r) {
  const heed__decode_row *row = &t->row[r];
  double most = -INFINITY, sum = 0, *out = calloc((size_t)t->value_size + 1, sizeof *out);
  assert_non_null(out);
  for (int64_t j = t->first; j < t->last; j++)
    if (sees(t, row, j)) most = fmax(most, score(t, row, j));
  for (int64_t j = t->first; j < t->last; j++) {
    if (!sees(t, row, j)) continue;
    const double weight = exp(score(t, row, j) - most);
    sum += weight;
    const float *v = (const float *)t->v + row->v + j * t->v_row;
    for (int64_t c = 0; c < t->value_size; c++) out[c] += weight * (double)v[c];
  }
  if (sum == 0) {
    assert_true(t->row_sum[r] == 0 && t->row_max[r] == -FLT_MAX);
    for (int64_t c = 0; c < t->value_size; c++) assert_true(t->out[r * t->value_size + c] == 0);
  } else {
    assert_true(fabs((double)t->row_max[r] - most) <= 2e-5);
    assert_true(fabs((double)t->row_sum[r] / sum - 1) < 3e-5);
    for (int64_t c = 0; c < t->value_size; c++)
      assert_true(fabs((double)t->out[r * t->value_size + c] / (double)t->row_sum[r] - out[c] / sum) < 2e-5);
  }
  free(out);
}

/* Runs the kernel to completion, then yielding wherever it can; the results must be the same. */
static void decode(const heed__kernels *kernels, const heed__decode_task *task) {
  const size_t rows = (size_t)task->rows, n = rows * (size_t)(task->value_size + 2);
  float *whole = malloc(n * sizeof *whole + 1);
  int64_t position = 0, before = -1;
  assert_non_null(whole);
  assert_true(kernels->decode(task, NULL, NULL));
  memcpy(whole, task->row_max, rows * sizeof *whole);
  memcpy(whole + rows, task->row_sum, rows * sizeof *whole);
  memcpy(whole + 2 * rows, task->out, (n - 2 * rows) * sizeof *whole);
  while (!kernels->decode(task, always_due(), &position)) {
    assert_true(position > before);
    before = position;
  }
  assert_memory_equal(whole, task->row_max, rows * sizeof *whole);
  assert_memory_equal(whole + rows, task->row_sum, rows * sizeof *whole);
  assert_memory_equal(whole + 2 * rows, task->out, (n - 2 * rows) * sizeof *whole);
  free(whole);
}

static void compare_with_reference(const parameters *a) {
  const heed__kernels *kernels;
  fixture t;
  set_up(&t, a);
  for (int i = 0; (kernels = table_at(i)); i++) {
    decode(kernels, &t.task);
    for (int r = 0; r < a->rows; r++) check_row(&t.task, r);
  }
  tear_down(&t);
}

/* ---- The kernel ---- */

static void every_size_agrees_with_double_precision(void **state) {
  (void)state;
  static const int64_t columns[] = {1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 80, 100, 128, 200};
  static const int64_t keys[] = {1, 2, 7, 15, 16, 17, 63, 255, 256, 257, 271, 272, 273, 530};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
    for (size_t j = 0; j < sizeof keys / sizeof *keys; j++) {
      const int n = (int)(i + j);
      parameters a = {.rows = n % 7 + 1, .s = keys[j] + n % 3, .d = columns[i], .gap = n % 4 * 3};
      a.dv = columns[(i + j) % (sizeof columns / sizeof *columns)];
      a.first = n % 3;
      a.last = a.s;
      a.at_end = n % 2 == 0;
      compare_with_reference(&a);
    }
  }
}

static void every_number_of_rows_works_with_every_mask(void **state) {
  (void)state;
  static const double visibilities[] = {0.02, 0.5, 0.98};
  for (int rows = 1; rows <= HEED__DECODE_ROWS; rows++) {
    for (int ways = 0; ways < WAYS; ways++) {
      const int n = rows + ways;
      const parameters a = {.rows = rows,
                            .s = 290 + ways,
                            .first = n % 5,
                            .last = 290 + ways - n % 3,
                            .d = 20 + n % 16,
                            .dv = 24 + n % 11,
                            .ways = ways,
                            .alike = n % 2 == 0,
                            .at_end = n % 4 < 2,
                            .visibility = visibilities[n % 3]};
      compare_with_reference(&a);
    }
  }
}

static void rows_may_belong_to_several_heads(void **state) {
  (void)state;
  for (int heads = 1; heads <= HEED__DECODE_ROWS; heads++) {
    for (int ways = 0; ways < WAYS; ways++) {
      const int n = heads + ways;
      const parameters a = {.rows = HEED__DECODE_ROWS / heads * heads,
                            .heads = heads,
                            .s = 270 + n,
                            .last = 270 + n - n % 3,
                            .d = 5 + n,
                            .dv = 30 - n % 20,
                            .gap = n % 2,
                            .ways = ways,
                            .alike = n % 4 < 2,
                            .at_end = n % 3 == 0,
                            .visibility = 0.7};
      compare_with_reference(&a);
    }
  }
}

static void hidden_nan_never_reaches_the_result_and_visible_nan_does(void **state) {
  (void)state;
  static const float poison[] = {NAN, INFINITY, -INFINITY, 3e38f};
  const heed__kernels *kernels;
  const parameters a = {
      .rows = 5, .s = 300, .last = 300, .d = 19, .dv = 21, .ways = WAYS - 1, .visibility = 0.6};
  fixture t;
  set_up(&t, &a);
  float *k = t.area[K].data, *v = t.area[V].data;
  for (size_t i = 0; i < sizeof poison / sizeof *poison; i++) {
    for (int64_t j = 0; j < a.s; j++) {
      bool seen = false;
      for (int r = 0; r < a.rows; r++) seen = seen || sees(&t.task, &t.task.row[r], j);
      for (int64_t c = 0; !seen && c < 19; c++) k[j * t.task.k_row + c] = v[j * t.task.v_row + c] = poison[i];
    }
    for (int at = 0; (kernels = table_at(at)); at++) {
      decode(kernels, &t.task);
      for (int r = 0; r < a.rows; r++) check_row(&t.task, r);
    }
  }
  /* A key that the first row sees and the second does not */
  int64_t j = 0;
  while (!sees(&t.task, &t.task.row[0], j) || sees(&t.task, &t.task.row[1], j)) j++;
  v[j * t.task.v_row] = NAN;
  for (int i = 0; (kernels = table_at(i)); i++) {
    decode(kernels, &t.task);
    assert_true(isnan(t.task.out[0]) && isfinite(t.task.out[1]) && isfinite(t.task.out[a.dv]));
  }
  k[j * t.task.k_row] = NAN;
  for (int i = 0; (kernels = table_at(i)); i++) {
    decode(kernels, &t.task);
    assert_true(isnan(t.task.row_sum[0]) && isfinite(t.task.row_sum[1]));
  }
  tear_down(&t);
}

static void huge_scores_are_handled(void **state) {
  (void)state;
  const heed__kernels *kernels;
  const parameters a = {.rows = 2, .s = 40, .last = 40, .d = 4, .dv = 4};
  fixture t;
  set_up(&t, &a);
  for (int64_t c = 0; c < 4; c++) ((float *)t.area[K].data)[7 * 4 + c] = 1e37f * ((float *)t.area[Q].data)[c];
  t.task.scale = 1e-3f;
  for (int i = 0; (kernels = table_at(i)); i++) {
    decode(kernels, &t.task);
    assert_true(t.task.row_sum[0] == 1);
    for (int64_t c = 0; c < 4; c++) assert_true(t.task.out[c] == ((const float *)t.task.v)[7 * 4 + c]);
  }
  t.task.scale = -INFINITY; /* key 8, the only one, has score -inf for the first row */
  t.task.first = 7;
  t.task.last = 8;
  for (int i = 0; (kernels = table_at(i)); i++) {
    decode(kernels, &t.task);
    assert_true(t.task.row_sum[0] == 0 && t.task.row_max[0] == -FLT_MAX);
  }
  tear_down(&t);
}

/* ---- The operation ---- */

static heed_tensor *normal(heed_context *ctx, int64_t b, int64_t h, int64_t n, int64_t d) {
  heed_tensor *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(b, h, n, d), &x));
  return x;
}

static void bits_do_not_depend_on_threads_or_taps(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const int64_t sizes[][6] = {/* b, hq, hkv, l, s, d */
                                     {1, 2, 2, 1, 5000, 16},
                                     {1, 36, 2, 1, 2100, 24},
                                     {2, 3, 1, 4, 1500, 64}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const int64_t *z = sizes[i];
    heed_tensor *q = normal(ctx, z[0], z[1], z[3], z[5]), *k = normal(ctx, z[0], z[2], z[4], z[5]);
    heed_tensor *v = normal(ctx, z[0], z[2], z[4], z[5]);
    heed_attention_taps taps = {.size = sizeof taps};
    heed_tensor *wanted = NULL;
    for (int threads = 1; threads <= 5; threads += 2) {
      heed__attention_operands call = {.function = "attention", .q = q, .k = k, .v = v, .found = &taps};
      heed_tensor *out = NULL;
      assert_ok(heed_set_num_threads(ctx, threads));
      if (threads == 3) call.taps = 1u << HEED__TAP_weights;
      assert_ok(heed__attention(ctx, &call, &out));
      if (wanted) assert_memory_equal(out->data, wanted->data, (size_t)out->numel * sizeof(float));
      if (wanted) heed_tensor_free(out);
      if (!wanted) wanted = out;
    }
    heed_attention_taps_free(&taps);
    heed_tensor *const all[] = {q, k, v, wanted};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) heed_tensor_free(all[j]);
  }
}

/* x [b, heads, n, d], stored as [b, n, heads, d] */
static heed_tensor *interleaved(heed_context *ctx, const heed_tensor *x) {
  heed_tensor *view = NULL, *copy = NULL, *out = NULL;
  assert_ok(heed_transpose(ctx, x, 2, 3, &view));
  assert_ok(heed_clone(ctx, view, &copy));
  assert_ok(heed_transpose(ctx, copy, 2, 3, &out));
  heed_tensor_free(view);
  heed_tensor_free(copy);
  return out;
}

static void bits_do_not_depend_on_the_layout_of_keys(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const int64_t sizes[][6] = {/* b, hq, hkv, l, s, d */
                                     {1, 8, 8, 1, 4100, 64}, {2, 12, 6, 1, 2500, 24}, {3, 32, 16, 1, 700, 16},
                                     {2, 4, 4, 3, 1300, 33}, {1, 8, 8, 1, 2100, 128}, {2, 6, 6, 1, 700, 100},
                                     {1, 8, 8, 1, 1100, 40}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const int64_t *z = sizes[i];
    heed_tensor *q = normal(ctx, z[0], z[1], z[3], z[5]), *wanted = NULL;
    heed_tensor *k = normal(ctx, z[0], z[2], z[4], z[5]), *v = normal(ctx, z[0], z[2], z[4], z[5]);
    heed_tensor *other_k = interleaved(ctx, k), *other_v = interleaved(ctx, v);
    assert_ok(heed_scaled_dot_product_attention(ctx, q, k, v, NULL, &wanted, NULL));
    for (int threads = 1; threads <= 3; threads++) {
      heed_tensor *out = NULL;
      assert_ok(heed_set_num_threads(ctx, threads));
      assert_ok(heed_scaled_dot_product_attention(ctx, q, other_k, other_v, NULL, &out, NULL));
      assert_memory_equal(out->data, wanted->data, (size_t)out->numel * sizeof(float));
      heed_tensor_free(out);
    }
    heed_tensor *const all[] = {q, k, v, other_k, other_v, wanted};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) heed_tensor_free(all[j]);
  }
}

static void one_short_range_allocates_only_the_result(void **state) {
  test_context *t = *state;
  heed_tensor *q = normal(t->ctx, 1, 4, 1, 64), *k = normal(t->ctx, 1, 4, 900, 64), *out = NULL;
  const int64_t calls = t->memory.calls;
  assert_ok(heed_scaled_dot_product_attention(t->ctx, q, k, k, NULL, &out, NULL));
  assert_int_equal(t->memory.calls, calls + 1);
  heed_tensor_free(q);
  heed_tensor_free(k);
  heed_tensor_free(out);
}

static heed_status attend(heed_context *ctx) {
  heed_tensor *q = NULL, *k = NULL, *out = NULL;
  heed_status status = heed_normal(ctx, NULL, 0, 1, 3, SHAPE(40, 1, 64), &q);
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 3, SHAPE(40, 2048, 64), &k);
  if (status == HEED_OK) status = heed_scaled_dot_product_attention(ctx, q, k, k, NULL, &out, NULL);
  heed_tensor_free(q);
  heed_tensor_free(k);
  heed_tensor_free(out);
  return status;
}

static void nothing_leaks_when_memory_runs_out(void **state) {
  (void)state;
  survives_every_failing_allocation(attend);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_size_agrees_with_double_precision),
      cmocka_unit_test(every_number_of_rows_works_with_every_mask),
      cmocka_unit_test(rows_may_belong_to_several_heads),
      cmocka_unit_test(hidden_nan_never_reaches_the_result_and_visible_nan_does),
      cmocka_unit_test(huge_scores_are_handled),
      TEST(bits_do_not_depend_on_threads_or_taps),
      TEST(bits_do_not_depend_on_the_layout_of_keys),
      TEST(one_short_range_allocates_only_the_result),
      cmocka_unit_test(nothing_leaks_when_memory_runs_out),
  };
  return cmocka_run_group_tests_name("decode", tests, NULL, NULL);
}
