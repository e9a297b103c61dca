/* The matrix product of every table that runs here, against double precision: sizes around every edge of the
 * tiles, strides of all kinds, operands between guard pages, any number of threads. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"

#include <math.h>
#include <stdlib.h>

#include "../../src/ops/ops.h"

static void fill(float *x, size_t n, uint32_t seed) {
  for (size_t i = 0; i < n; i++) {
    next_random(&seed);
    x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

/* ---- One product ---- */

enum { ROWS, COLUMNS, GAPS, SPARSE, REPEATED, LAYOUTS };

typedef struct layout {
  ptrdiff_t row, column;
  size_t extent; /* floats from the first element to the last */
} layout;

static layout lay_out(int kind, size_t rows, size_t columns) {
  const ptrdiff_t r = (ptrdiff_t)rows, c = (ptrdiff_t)columns;
  layout l = {0};
  switch (kind) {
  case ROWS: l = (layout){.row = c, .column = 1}; break;
  case COLUMNS: l = (layout){.row = 1, .column = r}; break;
  case GAPS: l = (layout){.row = c + 3, .column = 1}; break;
  case SPARSE: l = (layout){.row = 2 * c + 1, .column = 2}; break;
  default: l = (layout){.row = 0, .column = 1}; /* one row for all */
  }
  if (rows && columns) l.extent = (size_t)((r - 1) * l.row + (c - 1) * l.column) + 1;
  return l;
}

typedef struct sizes {
  size_t m, n, k;
} sizes;

/* What is tested: the kernel, the kernel with scratch for blocks, or heed__gemm, which divides the work. */
typedef enum callee { WITHOUT_SCRATCH, BLOCKS, DIVIDED } callee;

/* Runs the kernel to completion, then yielding wherever it can; the results must be the same. */
static void multiply(const heed__kernels *kernels, sizes z, const float *a, layout la, const float *b,
                     layout lb, const float *bias, float *c, ptrdiff_t c_row, float *scratch) {
  const size_t bytes = z.n * sizeof *c;
  float *whole = malloc(z.m * bytes + 1);
  int64_t position = 0, before = -1;
  assert_non_null(whole);
  assert_true(kernels->gemm(z.m, z.n, z.k, a, la.row, la.column, b, lb.row, lb.column, bias, c, c_row,
                            scratch, NULL, NULL));
  for (size_t i = 0; i < z.m; i++) memcpy(whole + i * z.n, c + (ptrdiff_t)i * c_row, bytes);
  while (!kernels->gemm(z.m, z.n, z.k, a, la.row, la.column, b, lb.row, lb.column, bias, c, c_row, scratch,
                        always_due(), &position)) {
    assert_true(position > before);
    before = position;
  }
  for (size_t i = 0; i < z.m; i++) assert_memory_equal(whole + i * z.n, c + (ptrdiff_t)i * c_row, bytes);
  free(whole);
}

/* Compares with sums in double (every 13th element of large products), within the error of k roundings.
 * Elements between the rows of c must keep their nan; the operands and the scratch are between guard pages.
 */
static void check_product(heed_context *ctx, callee call, sizes z, int a_kind, int b_kind, bool with_bias,
                          bool at_end) {
  const layout la = lay_out(a_kind, z.m, z.k), lb = lay_out(b_kind, z.k, z.n);
  const size_t c_row = z.n + (at_end ? 0 : 2), c_extent = (z.m - 1) * c_row + z.n;
  const guarded guards[] = {
      guard_bytes(la.extent * sizeof(float), at_end),
      guard_bytes(lb.extent * sizeof(float), at_end),
      guard_bytes(c_extent * sizeof(float), at_end),
      guard_bytes(z.n * sizeof(float), at_end),
  };
  float *const a = guards[0].data, *const b = guards[1].data, *const c = guards[2].data,
               *const bias = guards[3].data;
  fill(a, la.extent, 1);
  fill(b, lb.extent, 2);
  fill(bias, z.n, 3);
  for (size_t i = 0; i < c_extent; i++) c[i] = NAN;
  const float *add = with_bias ? bias : NULL;
  const heed__kernels *kernels = heed__kernels_of(ctx);
  const guarded scratch =
      guard_bytes(call == BLOCKS ? kernels->gemm_scratch(z.m, z.n, z.k) * sizeof(float) : 0, at_end);
  if (call == DIVIDED)
    assert_true(heed__gemm(ctx, (int64_t)z.m, (int64_t)z.n, (int64_t)z.k, a, la.row, la.column, b, lb.row,
                           lb.column, add, c, (ptrdiff_t)c_row));
  else
    multiply(kernels, z, a, la, b, lb, add, c, (ptrdiff_t)c_row, call == BLOCKS ? scratch.data : NULL);
  unguard(scratch);
  const size_t step = (double)z.m * (double)z.n * (double)z.k > 1e7 ? 13 : 1;
  for (size_t i = 0; i < z.m; i++) {
    for (size_t j = i % step; j < z.n; j += step) {
      double sum = with_bias ? (double)bias[j] : 0, size = fabs(sum);
      for (size_t p = 0; p < z.k; p++) {
        const double x = (double)a[(ptrdiff_t)i * la.row + (ptrdiff_t)p * la.column] *
                         (double)b[(ptrdiff_t)p * lb.row + (ptrdiff_t)j * lb.column];
        sum += x;
        size += fabs(x);
      }
      const double error = fabs((double)c[i * c_row + j] - sum), allowed = 1e-6 * (size + 1);
      if (!(error <= allowed)) {
        fail_msg("%s: [%zu, %zu, %zu], layouts %d and %d, at [%zu, %zu]: %g instead of %g",
                 heed__kernels_of(ctx)->name, z.m, z.n, z.k, a_kind, b_kind, i, j, (double)c[i * c_row + j],
                 sum);
      }
    }
    for (size_t j = z.n; i + 1 < z.m && j < c_row; j++) assert_true(isnan(c[i * c_row + j]));
  }
  for (size_t i = 0; i < sizeof guards / sizeof *guards; i++) unguard(guards[i]);
}

/* ---- Tests ---- */

static void all_edges(heed_context *ctx) {
  static const size_t m[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 49},
                      n[] = {1, 3, 4, 8, 15, 16, 17, 33, 48, 63, 64, 65, 130};
  static const size_t k[] = {0, 1, 2, 7, 8, 9, 16, 17, 31, 33, 129};
  const int step = nightly(1, 2);
  size_t way = 0;
  for (size_t i = 0; i < sizeof m / sizeof *m; i++)
    for (size_t j = 0; j < sizeof n / sizeof *n; j++)
      for (size_t p = 0; p < sizeof k / sizeof *k; p++)
        for (int kind = (int)(i + j + p) % step; kind < 4; kind += step, way++)
          check_product(ctx, WITHOUT_SCRATCH, (sizes){m[i], n[j], k[p]}, kind & 1, kind >> 1, way % 3 == 0,
                        way % 2);
}
static void tiles_stay_inside_the_matrices(void **state) {
  (void)state;
  with_every_table(all_edges);
}

static void all_layouts(heed_context *ctx) {
  static const sizes tried[] = {{1, 1, 40},   {1, 70, 50},  {70, 1, 50},   {2, 3, 300},
                                {3, 2, 300},  {9, 70, 20},  {60, 70, 9},   {50, 66, 3},
                                {4, 40, 270}, {1, 9, 9000}, {9, 1, 9000},  {1, 4100, 11},
                                {7, 5, 520},  {4100, 1, 9}, {55, 2, 5000}, {60, 70, 520}};
  for (size_t t = 0; t < sizeof tried / sizeof *tried; t++)
    for (int way = 0; way < LAYOUTS * LAYOUTS * 2; way++)
      check_product(ctx, WITHOUT_SCRATCH, tried[t], way / 2 % LAYOUTS, way / 2 / LAYOUTS,
                    (way + (int)t) % 3 == 0, way % 2);
}
static void any_strides_work(void **state) {
  (void)state;
  with_every_table(all_layouts);
}

/* Few rows, or columns, and a matrix larger than the second-level cache, which is prefetched. */
static void all_far(heed_context *ctx) {
  static const sizes tried[] = {
      {1, 2100, 1031}, {2100, 1, 1031}, {7, 2100, 1031}, {1, 303, 717}, {303, 5, 717}};
  for (size_t t = 0; t < sizeof tried / sizeof *tried; t++)
    for (int way = 0; way < 4; way++)
      check_product(ctx, WITHOUT_SCRATCH, tried[t], way & 1, way >> 1, way % 3 == 0, way % 2);
}
static void prefetches_may_pass_the_end(void **state) {
  (void)state;
  with_every_table(all_far);
}

/* Sizes that are divided by columns, by rows, and by both, with partial last slices. */
static void all_slices(heed_context *ctx) {
  static const sizes tried[] = {{65, 600, 70},  {3000, 17, 50},  {1000, 131, 100},
                                {2, 3000, 800}, {7, 2100, 1031}, {900, 70, 80}};
  for (size_t t = 0; t < sizeof tried / sizeof *tried; t++)
    for (int way = 0; way < 8; way++)
      check_product(ctx, DIVIDED, tried[t], way & 1, way >> 1 & 1, way >> 2, way % 3 == 0);
}
static void slices_make_the_whole_product(void **state) {
  (void)state;
  with_every_table(all_slices);
}

/* Sizes around the edges of blocks, in all three dimensions. */
static void all_blocks(heed_context *ctx) {
  static const sizes tried[] = {{192, 192, 911}, {205, 513, 385}, {1213, 197, 160}, {230, 1031, 384}};
  for (size_t t = 0; t < sizeof tried / sizeof *tried; t++) {
    if (heed__kernels_of(ctx)->gemm_scratch(tried[t].m, tried[t].n, tried[t].k) == 0) continue;
    for (int way = 0; way < 4; way++)
      check_product(ctx, BLOCKS, tried[t], way & 1, way >> 1, way % 3 == 0, way % 2);
  }
}
static void blocks_stay_inside_the_matrices(void **state) {
  (void)state;
  with_every_table(all_blocks);
}

/* With scratch, an element is the same in a product of only some rows and columns. */
static void same_in_parts(heed_context *ctx) {
  enum { M = 500, N = 600, K = 400 };
  static float a[M * K], b[K * N], bias[N], whole[M * N], part[M * N];
  const heed__kernels *kernels = heed__kernels_of(ctx);
  const size_t floats = kernels->gemm_scratch(M, N, K);
  if (floats == 0) return;
  float *scratch = aligned_new(floats * sizeof(float));
  fill(a, M * K, 4);
  fill(b, K * N, 5);
  fill(bias, N, 6);
  assert_true(kernels->gemm(M, N, K, a, K, 1, b, N, 1, bias, whole, N, scratch, NULL, NULL));
  static const sizes from[] = {{0, 0, 0}, {17, 64, 0}, {499, 599, 0}, {250, 7, 0}},
                     size[] = {{3, 600, K}, {400, 301, K}, {1, 1, K}, {250, 593, K}};
  for (size_t t = 0; t < sizeof from / sizeof *from; t++) {
    const size_t i = from[t].m, j = from[t].n;
    assert_true(kernels->gemm(size[t].m, size[t].n, K, a + i * K, K, 1, b + j, N, 1, bias + j, part, N,
                              scratch, NULL, NULL));
    for (size_t row = 0; row < size[t].m; row++)
      assert_memory_equal(part + row * N, whole + (i + row) * N + j, size[t].n * sizeof(float));
  }
  aligned_free(scratch);
}
static void parts_of_a_product_have_its_bits(void **state) {
  (void)state;
  with_every_table(same_in_parts);
}

static void same_bits(heed_context *ctx) {
  enum { M = 450, N = 410, K = 190 };
  static float a[M * K], b[K * N], bias[N], one[M * N], many[M * N];
  fill(a, M * K, 4);
  fill(b, K * N, 5);
  fill(bias, N, 6);
  for (int way = 0; way < 4; way++) {
    const ptrdiff_t a_row = way & 1 ? 1 : K, a_column = way & 1 ? M : 1;
    const ptrdiff_t b_row = way & 2 ? 1 : N, b_column = way & 2 ? K : 1;
    assert_ok(heed_set_num_threads(ctx, 1));
    assert_true(heed__gemm(ctx, M, N, K, a, a_row, a_column, b, b_row, b_column, bias, one, N));
    for (int threads = 2; threads <= 5; threads++) {
      assert_ok(heed_set_num_threads(ctx, threads));
      memset(many, 0xff, sizeof many);
      assert_true(heed__gemm(ctx, M, N, K, a, a_row, a_column, b, b_row, b_column, bias, many, N));
      assert_memory_equal(many, one, sizeof one);
    }
  }
}
static void the_number_of_threads_changes_no_bit(void **state) {
  (void)state;
  with_every_table(same_bits);
}

/* Large enough for BLAS with the scalar table, for blocks with the others, and for slices of both; the third
 * product keeps BLAS's number of threads. */
static void large(heed_context *ctx) {
  enum { M = 1300, N = 1100, K = 50 };
  static float a[M * K], b[K * N], bias[N], c[3][M * N];
  fill(a, M * K, 7);
  fill(b, K * N, 8);
  fill(bias, N, 9);
  for (int i = 0; i < 3; i++) {
    assert_ok(heed_set_num_threads(ctx, i == 1 ? 2 : 1));
    heed_keep_blas_threads(ctx, i == 2);
    assert_true(heed__gemm(ctx, M, N, K, a, K, 1, b, 1, K, bias, c[i], N));
  }
  assert_memory_equal(c[0], c[1], sizeof c[0]);
  for (int i = 0; i < 3; i += 2) {
    for (size_t at = 0; at < M * N; at += 997) {
      double sum = (double)bias[at % N];
      for (size_t p = 0; p < K; p++) sum += (double)a[at / N * K + p] * (double)b[at % N * K + p];
      assert_true(fabs((double)c[i][at] - sum) < 1e-5);
    }
  }
}
static void large_products_agree_with_and_without_blas_threads(void **state) {
  (void)state;
  with_every_table(large);
}

/* Without memory for blocks another method is used. */
static void products_work_without_memory_for_blocks(void **state) {
  test_context *t = *state;
  enum { M = 400, N = 410, K = 300 };
  static float a[M * K], b[K * N], with[M * N], without[M * N];
  fill(a, M * K, 1);
  fill(b, K * N, 2);
  assert_true(heed__gemm(t->ctx, M, N, K, a, K, 1, b, N, 1, NULL, with, N));
  t->memory.fail_at = t->memory.calls + 1;
  assert_true(heed__gemm(t->ctx, M, N, K, a, K, 1, b, N, 1, NULL, without, N));
  for (size_t i = 0; i < M * N; i++) assert_true(fabsf(with[i] - without[i]) < 1e-4f);
}

/* 0 · nan and 0 · inf are nan in their own row and column, and nowhere else. */
static void special(heed_context *ctx) {
  enum { MOST = 70 };
  static const sizes tried[] = {{2, 3, 3},   {6, 64, 64}, {7, 70, 40}, {1, 70, 70},
                                {70, 1, 70}, {3, 5, 70},  {70, 70, 20}};
  static float a[MOST * MOST], b[MOST * MOST], c[MOST * MOST];
  for (size_t t = 0; t < sizeof tried / sizeof *tried; t++) {
    const sizes z = tried[t];
    for (int way = 0; way < 2; way++) {
      memset(a, 0, sizeof a);
      for (size_t i = 0; i < z.k * z.n; i++) b[i] = 1;
      a[(z.m - 1) * z.k + z.k / 2] = NAN;
      const size_t column = z.n / 2;
      b[way ? column * z.k + z.k - 1 : (z.k - 1) * z.n + column] = INFINITY;
      assert_true(heed__kernels_of(ctx)->gemm(z.m, z.n, z.k, a, (ptrdiff_t)z.k, 1, b,
                                              way ? 1 : (ptrdiff_t)z.n, way ? (ptrdiff_t)z.k : 1, NULL, c,
                                              (ptrdiff_t)z.n, NULL, NULL, NULL));
      for (size_t i = 0; i < z.m; i++)
        for (size_t j = 0; j < z.n; j++)
          assert_int_equal(isnan(c[i * z.n + j]) != 0, i + 1 == z.m || j == column);
    }
  }
}
static void nan_and_inf_stay_in_their_row_and_column(void **state) {
  (void)state;
  with_every_table(special);
}

static void small_products_allocate_nothing(void **state) {
  test_context *t = *state;
  static float a[100 * 200], b[200 * 90], c[100 * 90];
  fill(a, 100 * 200, 1);
  fill(b, 200 * 90, 2);
  const int64_t calls = t->memory.calls;
  assert_true(heed__gemm(t->ctx, 100, 90, 100, a, 200, 2, b, 90, 1, NULL, c, 90));
  assert_true(heed__gemm(t->ctx, 100, 90, 200, a, 200, 1, b, 1, 200, NULL, c, 90));
  assert_int_equal(t->memory.calls, calls);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tiles_stay_inside_the_matrices),
      cmocka_unit_test(any_strides_work),
      cmocka_unit_test(prefetches_may_pass_the_end),
      cmocka_unit_test(slices_make_the_whole_product),
      cmocka_unit_test(blocks_stay_inside_the_matrices),
      cmocka_unit_test(parts_of_a_product_have_its_bits),
      cmocka_unit_test(the_number_of_threads_changes_no_bit),
      cmocka_unit_test(large_products_agree_with_and_without_blas_threads),
      TEST(products_work_without_memory_for_blocks),
      cmocka_unit_test(nan_and_inf_stay_in_their_row_and_column),
      TEST(small_products_allocate_nothing),
  };
  return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
