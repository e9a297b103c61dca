/* Products in fewer bits: the kernels of every table that has them against the scalar specification, at sizes
 * around every edge, with operands between guard pages; then linear with set_matmul_precision. */
#define _DEFAULT_SOURCE /* mmap */

#include "block_weights.h"
#include "guarded.h"
#include "tables.h"

#include <math.h>

#include "../../src/kernels/scalar/scalar.h"
#include "../../src/ops/ops.h"

#define X(name, ...) HEED_##name,
static const heed_dtype dtypes[] = {HEED_INT8, HEED_BFLOAT16, HEED_FLOAT16, HEED_FLOAT32,
                                    HEED_BLOCK_DTYPE_LIST(X)};
#undef X
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

typedef struct sizes {
  size_t m, n, k;
} sizes;

static float next(uint32_t *seed) {
  next_random(seed);
  return (float)(*seed >> 8) / 8388608.0f - 1.0f;
}

static void fill(float *x, size_t n, uint32_t seed) {
  for (size_t i = 0; i < n; i++) x[i] = next(&seed);
}

static void fill_weight(heed_dtype dtype, void *w, size_t n, uint32_t seed) {
  if (heed__is_blocked(dtype)) {
    fill_blocks(dtype, w, (size_t)heed__row_bytes(dtype, (int64_t)n), seed);
    return;
  }
  for (size_t i = 0; i < n; i++) {
    const float x = next(&seed) * (dtype == HEED_INT8 ? 127.4f : 1.0f);
    heed__store(dtype, (char *)w + i * heed__element_bytes(dtype), heed_number((double)x));
  }
}

/* Packs and multiplies with the context's table, whole or yielding wherever it can; false if the table has
 * no such product. */
static bool multiply(heed_context *ctx, heed__reduced_task *task, bool yields) {
  const heed__kernels *kernels = heed__kernels_of(ctx);
  size_t scratch;
  const size_t bytes = kernels->reduced_bytes(&task->whole, &scratch), row = task->row, rows = task->rows;
  int64_t position = 0, before = -1;
  if (bytes == 0) return false;
  task->packed = heed__allocate(ctx, bytes);
  task->scratch = heed__allocate(ctx, scratch);
  assert_true(task->packed && task->scratch);
  for (task->row = 0; task->row < task->whole.m; task->row += task->rows) {
    task->rows = heed__min_size(task->whole.m - task->row, 16);
    kernels->reduced_pack(task);
  }
  task->row = row;
  task->rows = rows;
  if (!yields) assert_true(kernels->reduced(task, NULL, NULL));
  while (yields && !kernels->reduced(task, always_due(), &position)) {
    assert_true(position > before);
    before = position;
  }
  heed__release(ctx, task->packed);
  heed__release(ctx, task->scratch);
  return true;
}

/* The largest element of a blocked weight. */
static float largest(const heed__lowp_task *t) {
  float row[2304], most = 0;
  for (size_t j = 0; j < t->n; j++) {
    const int64_t start = (int64_t)j * t->w_row;
    heed__scalar_widen_blocks(t->dtype, (const char *)t->w + heed__row_bytes(t->dtype, start), (int64_t)t->k,
                              row);
    for (size_t p = 0; p < t->k; p++) most = fmaxf(most, fabsf(row[p]));
  }
  return most;
}

enum { FEW = 8 }; /* fewer rows than these are multiplied by bytes of a weight in the order of memory */

/* Integers must agree exactly, but the sums of groups of few rows are added in another order. So are sums of
 * bfloat16 products: k steps of half an ulp; and an element of a block that is widened with a fused
 * multiply-add may be rounded to the other neighbour. */
static double allowed_error(const heed__lowp_task *t, bool integers) {
  const double most = heed__is_blocked(t->dtype) ? (double)largest(t) : t->dtype == HEED_INT8 ? 127 : 1;
  if (integers) return t->m < FEW ? most * (double)(t->k + 64) * 0x1p-23 : 0;
  return most * ((double)(t->k + 1) * 0x1p-24 * (double)t->k + (heed__is_blocked(t->dtype) ? 0x1p-7 : 0));
}

/* A float32 weight also as columns. */
static void check_product(heed_context *ctx, heed_dtype dtype, sizes z, int way) {
  const size_t block = (size_t)heed__block_elements(dtype), extra = way & 1 ? 3 : 0;
  z.k = (z.k + block - 1) / block * block;
  const size_t blocks = (size_t)heed__int8_blocks((int64_t)z.k);
  const bool at_end = way & 2;
  const bool columns = dtype == HEED_FLOAT32 && z.m % 2 == 0;
  const size_t x_row = z.k + extra, w_row = (columns ? z.n : z.k) + extra * block, s_row = blocks + extra,
               c_row = z.n + extra;
  const size_t x_size = (z.m - 1) * x_row + z.k,
               w_size = columns ? (z.k - 1) * w_row + z.n : (z.n - 1) * w_row + z.k;
  const size_t s_size = (z.n - 1) * s_row + blocks, c_size = (z.m - 1) * c_row + z.n;
  const guarded guards[] = {
      guard_bytes(x_size * sizeof(float), at_end),
      guard_bytes((size_t)heed__row_bytes(dtype, (int64_t)w_size), at_end),
      guard_bytes(s_size * sizeof(float), at_end),
      guard_bytes(z.n * sizeof(float), at_end),
      guard_bytes(c_size * sizeof(float), at_end),
  };
  float *c = guards[4].data, *wanted = malloc(c_size * sizeof *wanted + 1);
  assert_non_null(wanted);
  fill(guards[0].data, x_size, 1);
  fill_weight(dtype, guards[1].data, w_size, 2);
  fill(guards[2].data, s_size, 3);
  fill(guards[3].data, z.n, 4);
  for (size_t i = 0; i < c_size; i++) c[i] = wanted[i] = NAN;
  heed__reduced_task task = {.whole = {.m = z.m,
                                       .n = z.n,
                                       .k = z.k,
                                       .x = guards[0].data,
                                       .w = guards[1].data,
                                       .scale = dtype == HEED_INT8 ? guards[2].data : NULL,
                                       .dtype = dtype,
                                       .x_row = (ptrdiff_t)x_row,
                                       .w_row = columns ? 1 : (ptrdiff_t)w_row,
                                       .w_column = columns ? (ptrdiff_t)w_row : 0,
                                       .scale_row = (ptrdiff_t)s_row,
                                       .bias = way & 4 ? guards[3].data : NULL,
                                       .c = c,
                                       .c_row = (ptrdiff_t)c_row},
                             .rows = z.m,
                             .columns = z.n};
  if (multiply(ctx, &task, way & 8)) {
    task.whole.c = wanted;
    task.integers = heed__is_blocked(dtype) && (z.m < FEW || strcmp(heed__kernels_of(ctx)->name, "amx") != 0);
    assert_true(heed__scalar_reduced(&task, NULL, NULL));
    const double allowed = allowed_error(&task.whole, task.integers || dtype == HEED_INT8);
    for (size_t i = 0; i < c_size; i++) {
      const double got = (double)c[i], want = (double)wanted[i];
      if (isnan(got) != isnan(want) || fabs(got - want) > allowed)
        fail_msg("%s, %s: [%zu, %zu, %zu] at %zu: %.9g instead of %.9g", heed__kernels_of(ctx)->name,
                 heed_dtype_name(dtype), z.m, z.n, z.k, i, got, want);
    }
  }
  free(wanted);
  for (size_t i = 0; i < sizeof guards / sizeof *guards; i++) unguard(guards[i]);
}

static void all_edges(heed_context *ctx) {
  static const size_t m[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 48, 63, 65, 130},
                      n[] = {1, 15, 17, 96, 97, 200};
  static const size_t k[] = {64, 65, 96, 127, 128, 130, 257};
  const int step = nightly(1, 3);
  int way = 0;
  for (size_t i = 0; i < sizeof m / sizeof *m;
       i++) /* each pair of sizes occurs, with most dtypes or a third */
    for (size_t j = 0; j < sizeof n / sizeof *n; j++, way++)
      for (int d = way % step; d < DTYPES; d += step)
        check_product(ctx, dtypes[d], (sizes){m[i], n[j], k[(size_t)(way + d) % (sizeof k / sizeof *k)]},
                      way * 7 + d);
  for (int d = 0; d < DTYPES; d++) check_product(ctx, dtypes[d], (sizes){70, 20, 2100}, d); /* deep */
  for (int d = 0; d < DTYPES; d++) check_product(ctx, dtypes[d], (sizes){1, 20, 2100}, d);
}
static void products_agree_with_the_specification(void **state) {
  (void)state;
  with_every_table(all_edges);
}

/* A whole product with contiguous operands and no bias. */
static heed__reduced_task close_task(heed_dtype dtype, sizes z, const float *x, const void *w,
                                     const float *scale, float *c) {
  return (heed__reduced_task){.whole = {.m = z.m,
                                        .n = z.n,
                                        .k = z.k,
                                        .x = x,
                                        .w = w,
                                        .scale = scale,
                                        .dtype = dtype,
                                        .x_row = (ptrdiff_t)z.k,
                                        .w_row = (ptrdiff_t)z.k,
                                        .scale_row = heed__int8_blocks((int64_t)z.k),
                                        .c = c,
                                        .c_row = (ptrdiff_t)z.n},
                              .rows = z.m,
                              .columns = z.n};
}

/* Sums of few rows are exact: with x and scales of which each product and sum is a float32 number, the order
 * of the sums does not matter. */
static void exact(heed_context *ctx) {
  enum { N = 9, K = 256 };
  static float x[FEW * K], scale[N * (K / HEED_INT8_BLOCK)], c[FEW * N], wanted[FEW * N];
  static uint8_t w[N * K * 2];
  uint32_t seed = 11;
  for (size_t p = 0; p < FEW * K; p++) x[p] = p % HEED_INT8_BLOCK == 7 ? 127.0f : rintf(3.0f * next(&seed));
  for (size_t j = 0; j < N * (K / HEED_INT8_BLOCK); j++) scale[j] = j % 3 ? 0.5f : -2.0f;
  for (int d = 0; d < DTYPES; d++) {
    const heed_dtype dtype = dtypes[d];
    if (dtype != HEED_INT8 && !heed__is_blocked(dtype)) continue;
    fill_weight(dtype, w, N * K, 12);
    for (size_t i = 0; heed__is_blocked(dtype) && i < sizeof w; i += heed__block_bytes(dtype)) {
      uint8_t *const number = w + i + (dtype == HEED_Q6_K ? 208 : 0); /* scales and minima of 2^-7 */
      number[0] = 0;
      number[1] &= 0xfc;
      if (dtype == HEED_Q4_1 || dtype == HEED_Q5_1 || dtype == HEED_Q4_K || dtype == HEED_Q5_K) {
        number[2] = 0;
        number[3] &= 0xfc;
      }
    }
    for (size_t m = 1; m < FEW; m++) {
      heed__reduced_task task = close_task(dtype, (sizes){m, N, K}, x, w, scale, c);
      task.integers = true;
      if (!multiply(ctx, &task, false)) continue;
      task.whole.c = wanted;
      assert_true(heed__scalar_reduced(&task, NULL, NULL));
      assert_memory_equal(c, wanted, m * N * sizeof *c);
    }
  }
}
static void few_rows_are_summed_exactly(void **state) {
  (void)state;
  with_every_table(exact);
}

/* A row of few has the same bits alone and among others. */
static void alone(heed_context *ctx) {
  enum { N = 70, K = 320 };
  static float x[FEW * K], scale[N * 5], whole[FEW * N], row[N];
  static char w[N * K * 2];
  fill(x, FEW * K, 13);
  fill(scale, N * 5, 14);
  for (int d = 0; d < DTYPES; d++) {
    const size_t k = heed__block_elements(dtypes[d]) == 256 ? 256 : K;
    fill_weight(dtypes[d], w, N * k, 15);
    for (size_t m = 2; m < FEW; m++) {
      heed__reduced_task task = close_task(dtypes[d], (sizes){m, N, k}, x, w, scale, whole);
      if (!multiply(ctx, &task, false)) continue;
      for (size_t i = 0; i < m; i++) {
        task = close_task(dtypes[d], (sizes){1, N, k}, x + i * k, w, scale, row);
        assert_true(multiply(ctx, &task, true));
        assert_memory_equal(row, whole + i * N, sizeof row);
      }
    }
  }
}
static void a_row_has_the_same_bits_among_few(void **state) {
  (void)state;
  with_every_table(alone);
}

/* A part of the rows and columns has the bits of the whole. */
static void parts(heed_context *ctx) {
  enum { M = 130, N = 200, K = 256 };
  static float x[M * K], scale[N * 4], whole[M * N], part[M * N];
  static char w[N * K * 4];
  fill(x, M * K, 5);
  fill(scale, N * 4, 6);
  for (int d = 0; d < DTYPES; d++) {
    fill_weight(dtypes[d], w, N * K, 7);
    heed__reduced_task task = close_task(dtypes[d], (sizes){M, N, K}, x, w, scale, whole);
    if (!multiply(ctx, &task, false)) continue;
    task.whole.c = part;
    memset(part, 0, sizeof part);
    for (task.row = 0; task.row < (size_t)M; task.row += 64)
      for (task.column = 0; task.column < N; task.column += 70) {
        task.rows = heed__min_size(64, M - task.row);
        task.columns = heed__min_size(70, N - task.column);
        assert_true(multiply(ctx, &task, true));
      }
    assert_memory_equal(part, whole, sizeof whole);
  }
}
static void parts_have_the_bits_of_the_whole(void **state) {
  (void)state;
  with_every_table(parts);
}

/* With integers, nan and inf in x make their row nan; bfloat16 keeps them as float32 does. */
static void not_finite(heed_context *ctx) {
  enum { M = 16, N = 20, K = 128 };
  static float x[M * K], scale[N * 2], c[M * N];
  static char w[N * K * 2];
  fill(x, M * K, 8);
  fill(scale, N * 2, 9);
  x[3 * K + 70] = NAN;
  x[5 * K + 1] = INFINITY;
  for (size_t p = 0; p < K; p++) {
    x[6 * K + p] = 0.0f;
    x[7 * K + p] = 1e-40f;
    x[8 * K + p] = p % 2 ? -FLT_MAX : FLT_MAX;
  }
  for (int d = 0; d < 2; d++) {
    fill_weight(dtypes[d], w, N * K, 10);
    heed__reduced_task task = close_task(dtypes[d], (sizes){M, N, K}, x, w, scale, c);
    if (!multiply(ctx, &task, false)) continue;
    for (size_t i = 0; i < M * N; i++) {
      const size_t row = i / N;
      if (row == 3 || (row == 5 && d == 0))
        assert_true(isnan(c[i]));
      else if (row == 5)
        assert_true(!isfinite(c[i]));
      else if (row == 6 || row == 7)
        assert_true(c[i] == 0.0f);
      else if (row != 8)
        assert_true(isfinite(c[i]));
    }
  }
}
static void nan_and_inf_stay_in_their_row(void **state) {
  (void)state;
  with_every_table(not_finite);
}

/* ---- linear ---- */

static void same_bits_of(heed_context *ctx, int64_t rows, int64_t columns) {
  enum { K = 256 };
  heed_tensor *wide = NULL, *bias = NULL, *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(columns, K), &wide));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 1, SHAPE(columns), &bias));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(rows, K), &x));
  const heed__cpu cpu = ctx->cpu;
  for (int d = 0; d < DTYPES; d++) {
    heed_tensor *weight = NULL, *scale = NULL, *out[5] = {NULL};
    if (dtypes[d] == HEED_INT8)
      assert_ok(heed_quantize_int8(ctx, wide, &weight, &scale));
    else
      assert_ok(heed_to(ctx, wide, dtypes[d], &weight));
    for (int i = 0; i < 5; i++) { /* in float32; then on 1 to 4 threads */
      assert_ok(heed_set_num_threads(ctx, i < 1 ? 1 : i));
      assert_ok(heed_set_matmul_precision(ctx, i ? HEED_PRECISION_MEDIUM : HEED_PRECISION_HIGHEST));
      ctx->cpu = cpu;
      assert_ok(scale ? heed_linear_int8(ctx, x, weight, scale, bias, &out[i])
                      : heed_linear(ctx, x, weight, bias, &out[i]));
    }
    const float *exact = (const float *)out[0]->data, *one = (const float *)out[1]->data;
    double error = 0, size = 0;
    for (int64_t i = 0; i < rows * columns; i++) {
      error += ((double)one[i] - (double)exact[i]) * ((double)one[i] - (double)exact[i]);
      size += (double)exact[i] * (double)exact[i];
    }
    assert_true(sqrt(error / size) < (dtypes[d] == HEED_INT8 || heed__is_blocked(dtypes[d]) ? 8e-3 : 3e-3));
    for (int i = 2; i < 5; i++)
      assert_memory_equal(one, out[i]->data, (size_t)(rows * columns) * sizeof(float));
    for (int i = 0; i < 5; i++) heed_tensor_free(out[i]);
    heed_tensor_free(weight);
    heed_tensor_free(scale);
  }
  heed_tensor_free(wide);
  heed_tensor_free(bias);
  heed_tensor_free(x);
}
static void same_bits(heed_context *ctx) {
  same_bits_of(ctx, 150, 700);
  same_bits_of(ctx, 1, 3000);
  same_bits_of(ctx, 5, 3000);
}
static void the_number_of_threads_changes_no_bit(void **state) {
  (void)state;
  with_every_table(same_bits);
}

/* linear, and matmul with operands that must be copied first */
static heed_status products(heed_context *ctx) {
  enum { M = 64, N = 300, K = 128 };
  heed_tensor *x = NULL, *columns = NULL, *turned = NULL, *weight = NULL, *out = NULL, *product = NULL;
  heed__cpu cpu;
  for (int i = 0; cpu_at(i, &cpu); i++) ctx->cpu = cpu; /* the last has the most products */
  heed_status status = heed_set_matmul_precision(ctx, HEED_PRECISION_MEDIUM);
  if (!status) status = heed_full(ctx, HEED_FLOAT32, 2, SHAPE(M, K), heed_number(1), &x);
  if (!status) status = heed_full(ctx, HEED_FLOAT32, 2, SHAPE(K, M), heed_number(1), &columns);
  if (!status) status = heed_transpose(ctx, columns, 1, 2, &turned);
  if (!status) status = heed_full(ctx, HEED_FLOAT32, 2, SHAPE(N, K), heed_number(0.5), &weight);
  if (!status) status = heed_linear(ctx, x, weight, NULL, &out);
  for (int64_t i = 0; !status && i < M * N; i++) assert_true(((const float *)out->data)[i] == K / 2);
  heed_tensor_free(weight);
  weight = NULL;
  if (!status) status = heed_full(ctx, HEED_FLOAT32, 2, SHAPE(K, N), heed_number(0.5), &weight);
  if (!status) status = heed_matmul(ctx, turned, weight, &product);
  for (int64_t i = 0; !status && i < M * N; i++) assert_true(((const float *)product->data)[i] == K / 2);
  heed_tensor *const all[] = {x, columns, turned, weight, out, product};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
  return status;
}
static void products_survive_every_failing_allocation(void **state) {
  (void)state;
  survives_every_failing_allocation(products);
}

static void unknown_precisions_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  assert_int_equal(heed_get_matmul_precision(ctx), HEED_PRECISION_HIGHEST);
  assert_fails(ctx, heed_set_matmul_precision(ctx, (heed_matmul_precision)3), HEED_ARGUMENT,
               "set_matmul_precision: precision is 3; it must be HEED_PRECISION_HIGHEST, _HIGH or _MEDIUM");
  assert_int_equal(heed_get_matmul_precision(ctx), HEED_PRECISION_HIGHEST);
  assert_ok(heed_set_matmul_precision(ctx, HEED_PRECISION_HIGH));
  assert_int_equal(heed_get_matmul_precision(ctx), HEED_PRECISION_HIGH);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_agree_with_the_specification),
      cmocka_unit_test(few_rows_are_summed_exactly),
      cmocka_unit_test(a_row_has_the_same_bits_among_few),
      cmocka_unit_test(parts_have_the_bits_of_the_whole),
      cmocka_unit_test(nan_and_inf_stay_in_their_row),
      cmocka_unit_test(the_number_of_threads_changes_no_bit),
      cmocka_unit_test(products_survive_every_failing_allocation),
      TEST(unknown_precisions_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
