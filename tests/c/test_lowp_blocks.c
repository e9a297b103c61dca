/* Products with weights of blocked dtypes: the kernels of every table that runs here against the scalar
 * widening in double precision, with operands between guard pages. */
#define _DEFAULT_SOURCE /* mmap */

#include "block_weights.h"
#include "guarded.h"
#include "tables.h"

#include <math.h>

#include "../../src/kernels/scalar/scalar.h"
#include "../../src/ops/ops.h"

enum { MOST_ROWS = 55, MOST_COLUMNS = 67, MOST_DEPTH = 768 };

static void check_product(heed_context *ctx, heed_dtype dtype, size_t m, size_t n, size_t k, bool at_end) {
  static float whole[MOST_ROWS * MOST_COLUMNS];
  static float row[MOST_DEPTH];
  const size_t stride = k + (size_t)heed__block_elements(dtype); /* a block between rows */
  const size_t bytes = (size_t)heed__row_bytes(dtype, (int64_t)((n - 1) * stride + k));
  const guarded guards[] = {guard_bytes(m * k * sizeof(float), at_end), guard_bytes(bytes, at_end),
                            guard_bytes(n * sizeof(float), at_end),
                            guard_bytes(m * n * sizeof(float), at_end)};
  float *const x = guards[0].data, *const bias = guards[2].data, *const c = guards[3].data;
  uint8_t *const w = guards[1].data;
  uint32_t seed = 3;
  fill_blocks(dtype, w, bytes, 2);
  for (size_t i = 0; i < m * k; i++) x[i] = (float)((int32_t)next_random(&seed) >> 8) / 8388608.0f;
  for (size_t j = 0; j < n; j++) bias[j] = (float)j;
  heed__lowp_task t = {.m = m,
                       .n = n,
                       .k = k,
                       .x = x,
                       .w = w,
                       .dtype = dtype,
                       .x_row = (ptrdiff_t)k,
                       .w_row = (ptrdiff_t)stride,
                       .bias = m % 2 ? bias : NULL,
                       .c = c,
                       .c_row = (ptrdiff_t)n};
  assert_true(heed__kernels_of(ctx)->lowp(&t, NULL, NULL));
  memcpy(whole, c, m * n * sizeof *c);
  int64_t position = 0;
  while (!heed__kernels_of(ctx)->lowp(&t, always_due(), &position)) {}
  assert_memory_equal(whole, c, m * n * sizeof *c);
  for (size_t j = 0; j < n; j++) {
    ptrdiff_t column = 1;
    (void)heed__scalar_widen(w + heed__row_bytes(dtype, (int64_t)(j * stride)), dtype, 1.0f, &column,
                             (int64_t)k, row);
    for (size_t i = 0; i < m; i++) {
      double sum = t.bias ? (double)bias[j] : 0, size = fabs(sum);
      for (size_t p = 0; p < k; p++) {
        sum += (double)x[i * k + p] * (double)row[p];
        size += fabs((double)x[i * k + p] * (double)row[p]);
      }
      if (!(fabs((double)c[i * n + j] - sum) <= 2e-6 * (size + 1)))
        fail_msg("%s, %s: [%zu, %zu, %zu] at [%zu, %zu]: %g instead of %g", heed__kernels_of(ctx)->name,
                 heed_dtype_name(dtype), m, n, k, i, j, (double)c[i * n + j], sum);
    }
  }
  /* for few rows the bits of a row are the same alone and among others */
  for (size_t i = 0; m <= 16 && i < m; i++) {
    t.m = 1;
    t.x = x + i * k;
    t.c = c;
    assert_true(heed__kernels_of(ctx)->lowp(&t, NULL, NULL));
    assert_memory_equal(whole + i * n, c, n * sizeof *c);
  }
  for (size_t i = 0; i < sizeof guards / sizeof *guards; i++) unguard(guards[i]);
}

static void all_edges(heed_context *ctx) {
  static const size_t m[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 48, 49, MOST_ROWS},
                      n[] = {1, 3, 4, 5, 33, MOST_COLUMNS};
  for (heed_dtype dtype = HEED_Q4_0; dtype <= HEED_Q6_K; dtype++) {
    const size_t block = (size_t)heed__block_elements(dtype);
    for (size_t i = 0; i < sizeof m / sizeof *m; i++)
      for (size_t j = 0; j < sizeof n / sizeof *n; j++)
        for (size_t blocks = 1; blocks <= MOST_DEPTH / 256; blocks++)
          check_product(ctx, dtype, m[i], n[j], blocks * (block == 256 ? 256 : 96), (i + j) % 2);
  }
}
static void blocks_are_widened_in_every_table(void **state) {
  (void)state;
  with_every_table(all_edges);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(blocks_are_widened_in_every_table)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
