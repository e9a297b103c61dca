/* Matrix products by heed's kernel and by BLAS: all kinds of strides, sizes below and above the threshold,
 * and results with previous contents. */
#include "support.h"

#include <math.h>

#include "../../src/ops/ops.h"

/* Small integers, so that sums are exact in any order. */
static void fill(float *x, int64_t n, uint32_t seed) {
  for (int64_t i = 0; i < n; i++) {
    next_random(&seed);
    x[i] = (float)(seed >> 24) - 128;
  }
}

/* Strides for a matrix [rows, columns]: row-major, transposed, with gaps, with gaps in both dimensions, one
 * row expanded. */
enum { ROWS, COLUMNS, GAPS, SPARSE, REPEATED, LAYOUTS };

static void lay_out(int layout, int64_t rows, int64_t columns, ptrdiff_t *row, ptrdiff_t *column) {
  *row = layout == ROWS     ? columns
         : layout == GAPS   ? columns + 3
         : layout == SPARSE ? 2 * columns + 1
                            : layout == COLUMNS;
  *column = layout == COLUMNS ? rows : layout == SPARSE ? 2 : 1;
}

static void products_are_exact_for_all_strides(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const int64_t tried[][3] = {{1, 1, 1}, {1, 1, 700}, {2, 3, 4},    {1, 40, 50}, {40, 1, 50},
                                     {7, 9, 8}, {33, 20, 1}, {33, 17, 65}, {4, 100, 3}, {3, 2, 0}};
  static float a[20000], b[20000], c[20000], bias[128];
  fill(a, 20000, 1);
  fill(b, 20000, 2);
  fill(bias, 128, 3);
  for (size_t t = 0; t < sizeof tried / sizeof *tried; t++) {
    const int64_t m = tried[t][0], n = tried[t][1], k = tried[t][2], gap = n + 2;
    for (int way = 0; way < LAYOUTS * LAYOUTS * 2; way++) {
      ptrdiff_t a_row, a_column, b_row, b_column;
      lay_out(way / 2 % LAYOUTS, m, k, &a_row, &a_column);
      lay_out(way / 2 / LAYOUTS, k, n, &b_row, &b_column);
      for (int64_t i = 0; i < m * gap; i++) c[i] = NAN;
      assert_true(
          heed__gemm(ctx, m, n, k, a, a_row, a_column, b, b_row, b_column, way % 2 ? bias : NULL, c, gap));
      for (int64_t p = 0; p < m * n; p++) {
        const int64_t i = p / n, j = p % n;
        double sum = way % 2 ? (double)bias[j] : 0;
        for (int64_t s = 0; s < k; s++) {
          sum += (double)a[i * a_row + s * a_column] * (double)b[s * b_row + j * b_column];
        }
        assert_true((double)c[i * gap + j] == sum);
      }
      for (int64_t i = 0; i < m; i++) assert_true(isnan(c[i * gap + n]) && isnan(c[i * gap + n + 1]));
    }
  }
}

static heed_tensor *whole(heed_context *ctx, heed_dtype dtype, int ndim, const int64_t *shape) {
  heed_tensor *x = NULL, *y = NULL;
  assert_ok(heed_randint(ctx, NULL, -9, 9, ndim, shape, &x));
  assert_ok(heed_to(ctx, x, dtype, &y));
  heed_tensor_free(x);
  return y;
}

/* Compares the product in float32 with that in int64, which is computed by different code, for views that are
 * expanded, permuted and sliced. */
static void views_multiply_like_their_copies(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *out[2] = {NULL}, *copied[2] = {NULL};
  for (int i = 0; i < 2; i++) {
    const heed_dtype dtype = i ? HEED_INT64 : HEED_FLOAT32;
    heed_generator_seed(heed_default_generator(ctx), 3);
    heed_tensor *a = whole(ctx, dtype, 4, SHAPE(6, 1, 5, 12)), *b = whole(ctx, dtype, 3, SHAPE(10, 3, 6));
    heed_tensor *p = NULL, *e = NULL, *s = NULL, *r = NULL, *pc = NULL, *rc = NULL;
    assert_ok(heed_permute(ctx, a, 4, (const int[]){2, 3, 1, 4}, &p)); /* [1, 5, 6, 12] */
    assert_ok(heed_slice(ctx, p, 4, 1, 12, 3, &s));                    /* [1, 5, 6, 4] */
    assert_ok(heed_expand(ctx, s, 4, SHAPE(2, 5, 6, 4), &e));
    assert_ok(heed_permute(ctx, b, 3, (const int[]){2, 3, 1}, &r)); /* [3, 6, 10] */
    heed_tensor *left = NULL, *right = NULL;
    assert_ok(heed_narrow(ctx, r, 2, 2, 4, &left)); /* [3, 4, 10] */
    assert_ok(heed_select(ctx, left, 1, 2, &right));
    assert_ok(heed_clone(ctx, e, &pc));
    assert_ok(heed_clone(ctx, right, &rc));
    assert_ok(heed_matmul(ctx, e, right, &out[i]));
    assert_memory_equal(out[i]->shape, SHAPE(2, 5, 6, 10), 4 * sizeof(int64_t));
    assert_ok(heed_matmul(ctx, pc, rc, &copied[i]));
    bool equal = false;
    assert_ok(heed_equal(ctx, out[i], copied[i], &equal));
    assert_true(equal);
    heed_tensor *const all[] = {a, b, p, e, s, r, pc, rc, left, right};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) heed_tensor_free(all[j]);
  }
  bool equal = false;
  assert_ok(heed_allclose(ctx, out[0], out[1], 0, 0, false, &equal));
  assert_true(equal);
  for (int i = 0; i < 2; i++) {
    heed_tensor_free(out[i]);
    heed_tensor_free(copied[i]);
  }
}

static void a_result_may_be_one_of_the_factors(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *a = whole(ctx, HEED_FLOAT32, 2, SHAPE(20, 20)), *b = NULL, *wanted = NULL, *product = a;
  assert_ok(heed_transpose(ctx, a, 1, 2, &b));
  assert_ok(heed_matmul(ctx, a, b, &wanted));
  assert_ok(heed_matmul(ctx, a, b, &product));
  assert_ptr_equal(product, a);
  assert_memory_equal(a->data, wanted->data, 400 * sizeof(float));
  heed_tensor_free(a);
  heed_tensor_free(b);
  heed_tensor_free(wanted);
}

static void mistakes_are_reported(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *a = whole(ctx, HEED_FLOAT32, 2, SHAPE(6, 3)), *b = whole(ctx, HEED_FLOAT32, 2, SHAPE(2, 3));
  heed_tensor *many = whole(ctx, HEED_FLOAT32, 3, SHAPE(2, 4, 3)),
              *three = whole(ctx, HEED_FLOAT32, 3, SHAPE(3, 3, 4));
  heed_tensor *row = whole(ctx, HEED_FLOAT32, 1, SHAPE(4)), *one = whole(ctx, HEED_FLOAT32, 0, NULL);
  heed_tensor *flags = whole(ctx, HEED_BOOL, 2, SHAPE(3, 3)), *out = NULL;
  assert_fails(
      ctx, heed_matmul(ctx, a, b, &out), HEED_SHAPE,
      "matmul: a is [6, 3] and b is [2, 3]; the last size of a (3) must equal the first size of b (2)");
  assert_fails(
      ctx, heed_matmul(ctx, a, many, &out), HEED_SHAPE,
      "matmul: a is [6, 3] and b is [2, 4, 3]; the last size of a (3) must equal the second to last size of "
      "b (4)");
  assert_fails(ctx, heed_matmul(ctx, many, three, &out), HEED_SHAPE,
               "matmul: a is [2, 4, 3] and b is [3, 3, 4]; the sizes before the last two must broadcast");
  assert_fails(ctx, heed_matmul(ctx, one, a, &out), HEED_SHAPE,
               "matmul: a has no dimensions; it must have at least 1");
  assert_fails(ctx, heed_matmul(ctx, a, flags, &out), HEED_DTYPE,
               "matmul: b is bool; it must be float32 or int64");
  assert_fails(ctx, heed_dot(ctx, a, row, &out), HEED_SHAPE,
               "dot: a is [6, 3] and b is [4]; both must have 1 dimension");
  assert_fails(
      ctx, heed_linear(ctx, row, b, NULL, &out), HEED_SHAPE,
      "linear: x is [4] and weight is [2, 3]; the last size of x (4) must equal the last size of weight (3)");
  assert_fails(ctx, heed_linear(ctx, a, b, row, &out), HEED_SHAPE,
               "linear: bias is [4] and weight is [2, 3]; bias must be [2]");
  assert_fails(ctx, heed_linear(ctx, a, row, NULL, &out), HEED_SHAPE,
               "linear: weight is [4]; it must have 2 dimensions");
  assert_null(out);
  heed_tensor *const all[] = {a, b, many, three, row, one, flags};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
}

static heed_status multiply(heed_context *ctx) {
  heed_tensor *x = NULL, *y = NULL, *w = NULL, *swapped = NULL, *product = NULL, *mapped = NULL;
  heed_status status = heed_randint(ctx, NULL, -9, 9, 3, SHAPE(3, 20, 30), &x);
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 2, SHAPE(30, 20), &y);
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 2, SHAPE(25, 20), &w);
  if (status == HEED_OK) status = heed_matmul(ctx, x, y, &product);
  if (status == HEED_OK) status = heed_transpose(ctx, product, 1, 2, &swapped);
  if (status == HEED_OK) status = heed_linear(ctx, swapped, w, NULL, &mapped);
  heed_tensor *const all[] = {x, y, w, swapped, product, mapped};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
  return status;
}

static void nothing_leaks_when_memory_runs_out(void **state) {
  (void)state;
  survives_every_failing_allocation(multiply);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(products_are_exact_for_all_strides),
      TEST(views_multiply_like_their_copies),
      TEST(a_result_may_be_one_of_the_factors),
      TEST(mistakes_are_reported),
      cmocka_unit_test(nothing_leaks_when_memory_runs_out),
  };
  return cmocka_run_group_tests_name("products", tests, NULL, NULL);
}
