/* Operations across rows: sums of many rows at once, and softmax along columns. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"

#include <math.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static uint32_t seed = 1;

static float number(void) {
  next_random(&seed);
  return (float)(seed >> 8) / (1 << 24) * 2.1f - 1.0f;
}

/* ---- The kernel ---- */

/* Rows and their sums end (at_end), or begin, at an inaccessible page. */
static void check_columns(const heed__kernels *k, size_t rows, size_t groups, size_t n, size_t gap,
                          bool at_end) {
  const size_t all = rows * groups * n > 0 ? (rows * groups - 1) * (n + gap) + n : 0;
  const guarded from = guard_bytes(all * sizeof(float), at_end);
  const guarded to = guard_bytes(n * sizeof(float), at_end);
  float *x = from.data, *sum = to.data, wanted[300];
  for (size_t i = 0; i < all; i++) x[i] = number();
  for (size_t i = 0; i < n; i++) wanted[i] = sum[i] = number();
  k->sum_across(sum, x, (ptrdiff_t)(n + gap), rows, groups, n);
  heed__kernels_scalar.sum_across(wanted, x, (ptrdiff_t)(n + gap), rows, groups, n);
  assert_memory_equal(sum, wanted, n * sizeof(float));
  unguard(from);
  unguard(to);
}

static void sums_across_rows_are_bit_identical_to_scalar_ones(void **state) {
  static const size_t widths[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 33, 48, 63, 64, 65, 113, 300};
  static const size_t sizes[][2] = {{1, 0}, {0, 2}, {1, 1}, {1, 7}, {3, 2}, {16, 1}, {16, 5}};
  const heed__kernels *k;
  (void)state;
  for (int table = 0; (k = table_at(table)); table++)
    for (size_t w = 0; w < COUNT(widths); w++)
      for (size_t s = 0; s < COUNT(sizes); s++)
        for (int way = 0; way < 4; way++)
          check_columns(k, sizes[s][0], sizes[s][1], widths[w], way & 2 ? 5 : 0, way & 1);
}

static void a_group_of_rows_is_added_up_before_it_is_added(void **state) {
  const float x[] = {1e8f, 1.0f, -1e8f, 1.0f, 1.0f, 1.0f};
  const heed__kernels *k;
  (void)state;
  for (int table = 0; (k = table_at(table)); table++) {
    float one_group = 1.0f, groups_of_one = 1.0f;
    k->sum_across(&one_group, x, 1, 6, 1, 1);
    assert_true(one_group == 4.0f); /* numbers added to 1e8 are lost */
    k->sum_across(&groups_of_one, x, 1, 1, 6, 1);
    assert_true(groups_of_one == 3.0f);
  }
}

/* ---- Sums ---- */

/* The sum of `count` elements with the stride `step`, as specified in heed.h: PyTorch's cascade of four
 * levels. */
static float cascade(const float *x, int64_t step, int64_t count) {
  enum { LEVELS = 4 };
  float level[LEVELS] = {0}, sum = 0;
  int bits = 0;
  while ((int64_t)1 << bits < count) bits++;
  const int power = bits / LEVELS < 4 ? 4 : bits / LEVELS;
  for (int64_t i = 0; i < count; i++) {
    level[0] += x[i * step];
    for (int l = 1; l < LEVELS && (i + 1) % ((int64_t)1 << l * power) == 0; l++) {
      level[l] += level[l - 1];
      level[l - 1] = 0;
    }
  }
  for (int l = 0; l < LEVELS; l++) sum += level[l];
  return sum;
}

static heed_tensor *random_tensor(heed_context *ctx, int ndim, const int64_t *shape) {
  heed_tensor *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, ndim, shape, &x));
  return x;
}

static void sums_across_rows_are_a_cascade_of_each_column(heed_context *ctx) {
  static const int64_t rows[] = {2, 15, 16, 17, 31, 255, 256, 257, 4095, 4097, 70000};
  static const int64_t columns[] = {2, 3, 4, 9, 16, 65, 1030};
  for (size_t r = 0; r < COUNT(rows); r++) {
    for (size_t c = 0; c < COUNT(columns) && rows[r] * columns[c] < 1000000; c++) {
      heed_tensor *x = random_tensor(ctx, 2, SHAPE(rows[r], columns[c])), *sum = NULL;
      const float *data = heed_tensor_data(x);
      assert_ok(heed_sum(ctx, x, 1, (const int[]){1}, false, &sum));
      for (int64_t i = 0; i < columns[c]; i++)
        assert_true(((float *)heed_tensor_data(sum))[i] == cascade(data + i, columns[c], rows[r]));
      heed_tensor_free(x);
      heed_tensor_free(sum);
    }
  }
}

/* Seven rows at a time, so that blocks of 16 begin at every offset. */
static void rows_added_in_pieces_give_the_same_sums(heed_context *ctx) {
  heed_tensor *x = random_tensor(ctx, 3, SHAPE(700, 9, 6)), *pieces = NULL, *whole = NULL, *sum = NULL,
              *wanted = NULL;
  assert_ok(heed_slice(ctx, x, 2, 2, 8, 1, &pieces));
  assert_ok(heed_clone(ctx, pieces, &whole));
  assert_ok(heed_sum(ctx, pieces, 2, (const int[]){1, 2}, false, &sum));
  assert_ok(heed_sum(ctx, whole, 2, (const int[]){1, 2}, false, &wanted));
  assert_memory_equal(heed_tensor_data(sum), heed_tensor_data(wanted), 6 * sizeof(float));
  assert_true(*(float *)heed_tensor_data(sum) == cascade(heed_tensor_data(whole), 6, 4900));
  heed_tensor_free(x);
  heed_tensor_free(pieces);
  heed_tensor_free(whole);
  heed_tensor_free(sum);
  heed_tensor_free(wanted);
}

static void nan_stays_in_its_column(heed_context *ctx) {
  heed_tensor *x = random_tensor(ctx, 2, SHAPE(40, 5)), *sum = NULL;
  ((float *)heed_tensor_data(x))[18 * 5 + 3] = NAN;
  assert_ok(heed_sum(ctx, x, 1, (const int[]){1}, false, &sum));
  for (int i = 0; i < 5; i++) assert_true(isnan(((float *)heed_tensor_data(sum))[i]) == (i == 3));
  heed_tensor_free(x);
  heed_tensor_free(sum);
}

static void the_sum_of_no_rows_is_zero(heed_context *ctx) {
  heed_tensor *x = NULL, *sum = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(0, 5), heed_number(0), &x));
  assert_ok(heed_sum(ctx, x, 1, (const int[]){1}, false, &sum));
  for (int i = 0; i < 5; i++) assert_true(((float *)heed_tensor_data(sum))[i] == 0.0f);
  heed_tensor_free(x);
  heed_tensor_free(sum);
}

/* ---- Softmax ---- */

/* Long columns are grouped by cache lines, or into smaller groups so that every thread gets some. */
static void softmax_along_columns_equals_that_of_rows_with_any_number_of_threads(heed_context *ctx) {
  static const int64_t columns[] = {1, 3, 16, 17, 40};
  for (size_t c = 0; c < COUNT(columns); c++) {
    heed_tensor *x = random_tensor(ctx, 2, SHAPE(20011, columns[c])), *turned = NULL, *rows = NULL;
    assert_ok(heed_set_num_threads(ctx, 1));
    assert_ok(heed_transpose(ctx, x, 1, 2, &turned));
    assert_ok(heed_contiguous(ctx, turned, &rows));
    heed_tensor *wanted = NULL;
    assert_ok(heed_softmax(ctx, rows, 2, &wanted));
    for (int64_t threads = 1; threads <= 5; threads++) {
      heed_tensor *y = NULL, *back = NULL, *got = NULL;
      assert_ok(heed_set_num_threads(ctx, threads));
      assert_ok(heed_softmax(ctx, x, 1, &y));
      assert_ok(heed_transpose(ctx, y, 1, 2, &back));
      assert_ok(heed_contiguous(ctx, back, &got));
      assert_memory_equal(heed_tensor_data(got), heed_tensor_data(wanted),
                          (size_t)heed_tensor_numel(x) * sizeof(float));
      heed_tensor_free(y);
      heed_tensor_free(back);
      heed_tensor_free(got);
    }
    heed_tensor_free(x);
    heed_tensor_free(turned);
    heed_tensor_free(rows);
    heed_tensor_free(wanted);
  }
}

static void columns_stop_at_a_deadline(heed_context *ctx) {
  heed_tensor *x = random_tensor(ctx, 2, SHAPE(200000, 4)), *out = NULL;
  for (int64_t threads = 1; threads <= 2; threads++) {
    assert_ok(heed_set_num_threads(ctx, threads));
    assert_ok(heed_set_deadline(ctx, 1e-9));
    assert_int_equal(heed_softmax(ctx, x, 1, &out), HEED_LIMIT);
    assert_int_equal(heed_sum(ctx, x, 1, (const int[]){1}, false, &out), HEED_LIMIT);
    assert_null(out);
    assert_ok(heed_set_deadline(ctx, 0));
    assert_ok(heed_sum(ctx, x, 1, (const int[]){1}, false, &out));
    heed_tensor_free(out);
    out = NULL;
  }
  heed_tensor_free(x);
}

/* ---- With every kernel table ---- */

#define CONTEXT_TESTS(X)                                                                                     \
  X(sums_across_rows_are_a_cascade_of_each_column)                                                           \
  X(rows_added_in_pieces_give_the_same_sums)                                                                 \
  X(nan_stays_in_its_column)                                                                                 \
  X(the_sum_of_no_rows_is_zero)                                                                              \
  X(softmax_along_columns_equals_that_of_rows_with_any_number_of_threads)                                    \
  X(columns_stop_at_a_deadline)

#define X(test)                                                                                              \
  static void test##_in_all_tables(void **state) {                                                           \
    (void)state;                                                                                             \
    with_every_table(test);                                                                                  \
  }
CONTEXT_TESTS(X)
#undef X

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(sums_across_rows_are_bit_identical_to_scalar_ones),
                                     cmocka_unit_test(a_group_of_rows_is_added_up_before_it_is_added),
#define X(test) {#test, test##_in_all_tables, NULL, NULL, NULL},
                                     CONTEXT_TESTS(X)
#undef X
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
