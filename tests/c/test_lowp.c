/* Weights in bfloat16, float16 and int8: the kernels of every table that runs here against double precision,
 * at sizes around every edge, with operands between guard pages; then linear, quantising and modules. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"

#include <math.h>

#include "../../src/ops/ops.h"

static const heed_dtype dtypes[] = {HEED_BFLOAT16, HEED_FLOAT16, HEED_INT8};
enum { DTYPES = 3 };

static float next(uint32_t *seed) {
  next_random(seed);
  return (float)(*seed >> 8) / 8388608.0f - 1.0f;
}

static void fill(float *x, size_t n, uint32_t seed) {
  for (size_t i = 0; i < n; i++) x[i] = next(&seed);
}

/* Random numbers of the dtype in ±1 (int8: ±127). */
static void fill_lowp(heed_dtype dtype, void *w, size_t n, uint32_t seed) {
  const size_t bytes = heed__element_bytes(dtype);
  for (size_t i = 0; i < n; i++) {
    const float x = next(&seed) * (dtype == HEED_INT8 ? 127.0f : 1.0f);
    heed__store(dtype, (char *)w + i * bytes, heed_number((double)x));
  }
}

static double element(heed_dtype dtype, const void *w, size_t i) {
  const heed_scalar x = heed__load(dtype, (const char *)w + i * heed__element_bytes(dtype));
  return x.dtype == HEED_FLOAT32 ? x.as.number : (double)x.as.integer;
}

/* ---- The kernel ---- */

#define MOST_DEPTH 256 /* of the products that are checked */

typedef struct sizes {
  size_t m, n, k;
} sizes;

/* Runs the kernel to completion, then yielding wherever it can; the results must be the same. */
static void multiply(heed_context *ctx, const heed__lowp_task *task) {
  const size_t bytes = task->n * sizeof(float);
  float *whole = malloc(task->m * bytes + 1);
  int64_t position = 0, before = -1;
  assert_non_null(whole);
  assert_true(heed__kernels_of(ctx)->lowp(task, NULL, NULL));
  for (size_t i = 0; i < task->m; i++)
    memcpy(whole + i * task->n, task->c + (ptrdiff_t)i * task->c_row, bytes);
  while (!heed__kernels_of(ctx)->lowp(task, always_due(), &position)) {
    assert_true(position > before);
    before = position;
  }
  for (size_t i = 0; i < task->m; i++)
    assert_memory_equal(whole + i * task->n, task->c + (ptrdiff_t)i * task->c_row, bytes);
  free(whole);
}

/* Elements between the rows of c must keep their nan. gaps: the rows of all operands are padded. */
static void check_product(heed_context *ctx, heed_dtype dtype, sizes z, bool with_bias, bool at_end,
                          bool gaps, bool far) {
  const size_t blocks = (size_t)heed__int8_blocks((int64_t)z.k), extra = gaps ? 3 : 0;
  const size_t x_row = z.k + extra, w_row = z.k + extra, s_row = blocks + extra, c_row = z.n + 2 * extra;
  const size_t x_size = (z.m - 1) * x_row + z.k, w_size = (z.n - 1) * w_row + z.k;
  const size_t s_size = (z.n - 1) * s_row + blocks, c_size = (z.m - 1) * c_row + z.n;
  const guarded guards[] = {
      guard_bytes(x_size * sizeof(float), at_end), guard_bytes(w_size * heed__element_bytes(dtype), at_end),
      guard_bytes(s_size * sizeof(float), at_end), guard_bytes(z.n * sizeof(float), at_end),
      guard_bytes(c_size * sizeof(float), at_end),
  };
  float *const x = guards[0].data, *const scale = guards[2].data, *const bias = guards[3].data,
               *const c = guards[4].data;
  void *const w = guards[1].data;
  const bool scaled = dtype == HEED_INT8;
  fill(x, x_size, 1);
  fill_lowp(dtype, w, w_size, 2);
  fill(scale, s_size, 3);
  fill(bias, z.n, 4);
  for (size_t i = 0; i < c_size; i++) c[i] = NAN;
  const heed__lowp_task task = {.m = z.m,
                                .n = z.n,
                                .k = z.k,
                                .x = x,
                                .w = w,
                                .scale = scaled ? scale : NULL,
                                .dtype = dtype,
                                .x_row = (ptrdiff_t)x_row,
                                .w_row = (ptrdiff_t)w_row,
                                .scale_row = (ptrdiff_t)s_row,
                                .bias = with_bias ? bias : NULL,
                                .c = c,
                                .c_row = (ptrdiff_t)c_row,
                                .far = far};
  multiply(ctx, &task);
  double row[MOST_DEPTH];
  assert_true(z.k <= MOST_DEPTH);
  for (size_t j = 0; j < z.n; j++) {
    for (size_t p = 0; p < z.k; p++) {
      const double factor = scaled ? (double)scale[j * s_row + p / HEED_INT8_BLOCK] : 1.0;
      row[p] = element(dtype, w, j * w_row + p) * factor;
    }
    for (size_t i = 0; i < z.m; i++) {
      double sum = with_bias ? (double)bias[j] : 0, size = fabs(sum);
      for (size_t p = 0; p < z.k; p++) {
        const double product = (double)x[i * x_row + p] * row[p];
        sum += product;
        size += fabs(product);
      }
      const double got = (double)c[i * c_row + j];
      if (!(fabs(got - sum) <= 1e-6 * (size + 1)))
        fail_msg("%s, %s: [%zu, %zu, %zu] at [%zu, %zu]: %g instead of %g", heed__kernels_of(ctx)->name,
                 heed_dtype_name(dtype), z.m, z.n, z.k, i, j, got, sum);
    }
  }
  for (size_t i = 0; i + 1 < z.m; i++)
    for (size_t j = z.n; j < c_row; j++) assert_true(isnan(c[i * c_row + j]));
  for (size_t i = 0; i < sizeof guards / sizeof *guards; i++) unguard(guards[i]);
}

static void all_edges(heed_context *ctx) {
  static const size_t m[] = {1, 2, 3, 4, 5, 7, 16, 17, 48, 49, 55}, n[] = {1, 3, 4, 5, 16, 33, 64, 67, 129};
  static const size_t k[] = {0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 96, 127, 129, 200};
  size_t way = 0;
  for (size_t i = 0; i < sizeof m / sizeof *m; i++)
    for (size_t j = 0; j < sizeof n / sizeof *n; j++)
      for (size_t p = 0; p < sizeof k / sizeof *k; p++)
        for (int d = 0; d < DTYPES; d++, way++)
          check_product(ctx, dtypes[d], (sizes){m[i], n[j], k[p]}, way % 2, way / 2 % 2, way % 5 == 0,
                        way % 7 < 4);
}
static void products_stay_inside_the_operands(void **state) {
  (void)state;
  with_every_table(all_edges);
}

/* For few rows the bits of a row are the same alone and among others, for both values of `far`. */
static void alone_and_together(heed_context *ctx) {
  enum { M = 16, N = 37, K = 333 };
  static float x[M * K], scale[N * 6], alone[M * N], together[M * N];
  static char w[N * K * 2];
  fill(x, M * K, 5);
  fill(scale, N * 6, 6);
  for (int d = 0; d < DTYPES; d++) {
    fill_lowp(dtypes[d], w, N * K, 7);
    heed__lowp_task t = {.m = M,
                         .n = N,
                         .k = K,
                         .x = x,
                         .w = w,
                         .scale = scale,
                         .dtype = dtypes[d],
                         .x_row = K,
                         .w_row = K,
                         .scale_row = 6,
                         .c = together,
                         .c_row = N};
    multiply(ctx, &t);
    t.m = 1;
    t.c = alone;
    for (int i = 0; i < M; i++, t.x += K, t.c += N) {
      t.far = i % 2;
      multiply(ctx, &t);
    }
    assert_memory_equal(alone, together, sizeof alone);
  }
}
static void few_rows_do_not_depend_on_each_other(void **state) {
  (void)state;
  with_every_table(alone_and_together);
}

static void one_nan(heed_context *ctx) {
  enum { M = 60, N = 21, K = 70 };
  static float x[M * K], c[M * N];
  static uint16_t w[N * K];
  fill(x, M * K, 8);
  for (size_t m = 1; m <= M; m += 59) {
    fill_lowp(HEED_FLOAT16, w, N * K, 9);
    w[5 * K + 69] = 0x7e00; /* nan */
    w[7 * K + 3] = 0x7c00;  /* inf */
    const heed__lowp_task t = {.m = m,
                               .n = N,
                               .k = K,
                               .x = x,
                               .w = w,
                               .dtype = HEED_FLOAT16,
                               .x_row = K,
                               .w_row = K,
                               .c = c,
                               .c_row = N};
    multiply(ctx, &t);
    for (size_t i = 0; i < m * N; i++) {
      if (i % N == 5)
        assert_true(isnan(c[i]));
      else
        assert_true(i % N == 7 ? isinf(c[i]) : isfinite(c[i]));
    }
  }
}
static void nan_and_inf_stay_in_their_column(void **state) {
  (void)state;
  with_every_table(one_nan);
}

/* ---- linear ---- */

/* The weight in the dtype, and its scale if it has one. */
static void convert_weight(heed_context *ctx, const heed_tensor *wide, heed_dtype dtype, heed_tensor **weight,
                           heed_tensor **scale) {
  *weight = *scale = NULL;
  if (dtype == HEED_INT8)
    assert_ok(heed_quantize_int8(ctx, wide, weight, scale));
  else
    assert_ok(heed_to(ctx, wide, dtype, weight));
}

static heed_status apply(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                         const heed_tensor *scale, const heed_tensor *bias, heed_tensor **out) {
  return scale ? heed_linear_int8(ctx, x, weight, scale, bias, out) : heed_linear(ctx, x, weight, bias, out);
}

/* Divided into columns (few rows), into more columns (100), and into rows and columns (400): ops/linear.c. */
static void same_bits(heed_context *ctx) {
  static const int64_t m_n[][2] = {{1, 1200}, {3, 1200}, {100, 1200}, {400, 130}};
  enum { K = 260 };
  for (int i = 0; i < 4 * DTYPES; i++) {
    const int64_t m = m_n[i / DTYPES][0], n = m_n[i / DTYPES][1];
    heed_tensor *wide = NULL, *bias = NULL, *x = NULL, *weight, *scale, *one = NULL;
    assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(n, K), &wide));
    assert_ok(heed_normal(ctx, NULL, 0, 1, 1, SHAPE(n), &bias));
    assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(m, K), &x));
    convert_weight(ctx, wide, dtypes[i % DTYPES], &weight, &scale);
    assert_ok(heed_set_num_threads(ctx, 1));
    assert_ok(apply(ctx, x, weight, scale, bias, &one));
    for (int threads = 2; threads <= 4; threads++) {
      heed_tensor *many = NULL;
      assert_ok(heed_set_num_threads(ctx, threads));
      assert_ok(apply(ctx, x, weight, scale, bias, &many));
      assert_memory_equal(one->data, many->data, (size_t)one->numel * sizeof(float));
      heed_tensor_free(many);
    }
    heed_tensor *const all[] = {wide, bias, x, weight, scale, one};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) heed_tensor_free(all[j]);
  }
}
static void the_number_of_threads_changes_no_bit(void **state) {
  (void)state;
  with_every_table(same_bits);
}

/* Transposed, sliced and expanded weights, scales and inputs give the same results as their copies. */
static void any_strides_work(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *wide = NULL, *x = NULL, *turned_x = NULL, *sliced_x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(70, 140), &wide));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(140, 5), &x));
  assert_ok(heed_transpose(ctx, x, 1, 2, &turned_x)); /* [5, 140], columns 5 apart */
  assert_ok(heed_slice(ctx, turned_x, 2, 1, 139, 2, &sliced_x));
  for (int d = 0; d < DTYPES; d++) {
    heed_tensor *weight, *scale, *turned = NULL, *copy = NULL, *view = NULL, *out = NULL, *wanted = NULL;
    convert_weight(ctx, wide, dtypes[d], &weight, &scale);
    assert_ok(heed_transpose(ctx, weight, 1, 2, &turned));
    assert_ok(heed_clone(ctx, turned, &copy));
    assert_ok(heed_transpose(ctx, copy, 1, 2, &view)); /* weight again, transposed in memory */
    assert_ok(apply(ctx, turned_x, weight, scale, NULL, &wanted));
    assert_ok(apply(ctx, turned_x, view, scale, NULL, &out));
    assert_memory_equal(out->data, wanted->data, (size_t)out->numel * sizeof(float));
    heed_tensor *const all[] = {weight, scale, turned, copy, view, out, wanted};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);

    heed_tensor *row = NULL, *rows = NULL; /* one row for all of w */
    heed_tensor *lowp = NULL, *lowp_scale = NULL;
    assert_ok(heed_narrow(ctx, wide, 1, 3, 1, &row));
    out = wanted = NULL;
    convert_weight(ctx, row, dtypes[d], &lowp, &lowp_scale);
    assert_ok(heed_expand(ctx, lowp, 2, SHAPE(9, 140), &rows));
    if (lowp_scale) {
      heed_tensor *scales = NULL;
      assert_ok(heed_expand(ctx, lowp_scale, 2, SHAPE(9, 3), &scales));
      heed_tensor_free(lowp_scale);
      lowp_scale = scales;
    }
    assert_ok(apply(ctx, turned_x, rows, lowp_scale, NULL, &out));
    const float *y = (const float *)out->data;
    for (int64_t i = 0; i < out->numel; i++) assert_true(y[i] == y[i / 9 * 9]);
    heed_tensor *const others[] = {row, rows, lowp, lowp_scale, out};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) heed_tensor_free(others[i]);
  }
  heed_tensor *const all[] = {wide, x, turned_x, sliced_x};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
}

/* ---- Quantising ---- */

static void quantised_elements_are_within_half_a_scale(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  enum { ROWS = 40, COLUMNS = 150, BLOCKS = 3 };
  heed_tensor *x = NULL, *weight = NULL, *scale = NULL, *back = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(ROWS, COLUMNS), &x));
  float *from = (float *)x->data;
  for (int i = 0; i < COLUMNS; i++) {
    from[i] *= 1e-38f;                 /* subnormal */
    from[COLUMNS + i] = 0.0f;          /* all zeros */
    from[2 * COLUMNS + i] *= 1e37f;    /* near the largest */
    from[3 * COLUMNS + i] = 0x1p-149f; /* the smallest */
  }
  assert_ok(heed_quantize_int8(ctx, x, &weight, &scale));
  assert_memory_equal(scale->shape, SHAPE(ROWS, BLOCKS), 2 * sizeof(int64_t));
  assert_ok(heed_dequantize_int8(ctx, weight, scale, &back));
  const float *to = (const float *)back->data, *scales = (const float *)scale->data;
  const int8_t *small = (const int8_t *)weight->data;
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    const double step = (double)scales[i / COLUMNS * BLOCKS + i % COLUMNS / HEED_INT8_BLOCK];
    assert_true(small[i] >= -127);
    assert_true(fabs((double)to[i] - (double)from[i]) <= step * (0.5 + 1e-5));
    assert_true(i / COLUMNS != 1 || (to[i] == 0 && step == 0));
  }
  heed_tensor_free(x);
  heed_tensor_free(weight);
  heed_tensor_free(scale);
  heed_tensor_free(back);
}

/* ---- Errors ---- */

static void wrong_arguments_are_reported(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = NULL, *wide = NULL, *half = NULL, *weight = NULL, *scale = NULL, *out = NULL, *ids = NULL;
  heed_tensor *short_scale = NULL, *made = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(2, 70), &x));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(3, 70), &wide));
  assert_ok(heed_to(ctx, wide, HEED_FLOAT16, &half));
  assert_ok(heed_quantize_int8(ctx, wide, &weight, &scale));
  assert_ok(heed_narrow(ctx, scale, 2, 1, 1, &short_scale));
  assert_ok(heed_randint(ctx, NULL, 1, 3, 1, SHAPE(4), &ids));
  assert_fails(ctx, heed_linear(ctx, x, weight, NULL, &out), HEED_DTYPE,
               "linear: weight is int8; it must be float32, bfloat16 or float16 (linear_int8 takes int8 with "
               "its scales)");
  assert_fails(ctx, heed_linear(ctx, half, half, NULL, &out), HEED_DTYPE,
               "linear: x is float16; it must be float32: convert with x:float()");
  assert_fails(ctx, heed_linear_int8(ctx, x, half, scale, NULL, &out), HEED_DTYPE,
               "linear_int8: weight is float16; it must be int8");
  assert_fails(ctx, heed_linear_int8(ctx, x, weight, NULL, NULL, &out), HEED_ARGUMENT,
               "linear_int8: scale is missing (NULL)");
  assert_fails(
      ctx, heed_linear_int8(ctx, x, weight, short_scale, NULL, &out), HEED_SHAPE,
      "linear_int8: scale is [3, 1] and weight is [3, 70]; scale must be [3, 2], one for each 64 columns");
  assert_fails(ctx, heed_dequantize_int8(ctx, weight, half, &out), HEED_DTYPE,
               "dequantize_int8: scale is float16; it must be float32: convert with scale:float()");
  assert_fails(ctx, heed_embedding(ctx, ids, weight, &out), HEED_DTYPE,
               "embedding: weight is int8; it must be float32, bfloat16 or float16");
  assert_fails(ctx, heed_embedding(ctx, wide, half, &out), HEED_DTYPE,
               "embedding: ids is float32; it must be int64");
  ((int64_t *)ids->data)[2] = 4;
  assert_fails(ctx, heed_embedding(ctx, ids, half, &out), HEED_INDEX,
               "embedding: id 4 is out of range; weight has rows 1 to 3 (element [3] of ids)");
  ((int64_t *)ids->data)[1] = 0;
  assert_fails(ctx, heed_embedding(ctx, ids, half, &out), HEED_INDEX,
               "embedding: id 0 is out of range; weight has rows 1 to 3 (element [2] of ids); "
               "ids count from 1, as arange(1, n + 1) does");
  ((float *)wide->data)[75] = -INFINITY;
  assert_fails(ctx, heed_quantize_int8(ctx, wide, &out, &made), HEED_ARGUMENT,
               "quantize_int8: x[{2, 6}] is -inf; all elements must be finite");
  assert_null(out);
  assert_null(made);
  heed_tensor *const all[] = {x, wide, half, weight, scale, short_scale, ids};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
}

/* ---- Modules ---- */

/* Converts a MultiHeadAttention to one dtype after another; if a conversion fails, all weights must keep
 * their dtype. */
static heed_status change_dtypes(heed_context *ctx) {
  static const heed_dtype order[] = {HEED_BFLOAT16, HEED_INT8, HEED_FLOAT16, HEED_INT8, HEED_FLOAT32};
  heed_attention_config c;
  heed_attention_config_init(&c, sizeof c);
  c.d_in = c.d_out = 70;
  c.context_length = 4;
  c.num_heads = 2;
  heed_module *m = NULL;
  heed_dtype now = HEED_FLOAT32;
  heed_status status = heed_multi_head_attention_new(ctx, NULL, &c, &m);
  for (size_t i = 0; i < sizeof order / sizeof *order && status == HEED_OK; i++) {
    status = heed_module_to(m, order[i]);
    if (status == HEED_OK) now = order[i];
  }
  heed_entry part, entry;
  for (int i = 1; m != NULL && heed_module_entry(m, i, &part); i++) {
    if (strcmp(heed_module_class(part.module), "Linear") != 0) continue;
    assert_true(heed_module_entry(part.module, 1, &entry));
    assert_string_equal(entry.name, "weight");
    assert_int_equal(heed_tensor_dtype(entry.parameter), now);
    assert_true(heed_tensor_is_parameter(entry.parameter));
    const bool scaled = heed_module_entry(part.module, 2, &entry) && strcmp(entry.name, "weight_scale") == 0;
    assert_int_equal(scaled, now == HEED_INT8);
  }
  heed_module_release(m);
  return status;
}

static void module_to_converts_all_weights_or_none(void **state) {
  (void)state;
  survives_every_failing_allocation(change_dtypes);
}

static heed_status use_all(heed_context *ctx) {
  heed_tensor *x = NULL, *wide = NULL, *weight = NULL, *scale = NULL, *turned = NULL, *ids = NULL,
              *half = NULL;
  heed_tensor *y[4] = {NULL};
  heed_status status = heed_normal(ctx, NULL, 0, 1, 2, SHAPE(70, 3), &x);
  if (status == HEED_OK) status = heed_transpose(ctx, x, 1, 2, &turned);
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 2, SHAPE(5, 70), &wide);
  if (status == HEED_OK) status = heed_randint(ctx, NULL, 1, 5, 1, SHAPE(4), &ids);
  if (status == HEED_OK) status = heed_to(ctx, wide, HEED_BFLOAT16, &half);
  if (status == HEED_OK) status = heed_quantize_int8(ctx, wide, &weight, &scale);
  if (status == HEED_OK) status = heed_linear_int8(ctx, turned, weight, scale, NULL, &y[0]);
  if (status == HEED_OK) status = heed_linear(ctx, turned, half, NULL, &y[1]);
  if (status == HEED_OK) status = heed_dequantize_int8(ctx, weight, scale, &y[2]);
  if (status == HEED_OK) status = heed_embedding(ctx, ids, half, &y[3]);
  heed_tensor *const all[] = {x, wide, weight, scale, turned, ids, half, y[0], y[1], y[2], y[3]};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
  return status;
}

static void operations_survive_failing_allocations(void **state) {
  (void)state;
  survives_every_failing_allocation(use_all);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(products_stay_inside_the_operands),
      TEST(few_rows_do_not_depend_on_each_other),
      TEST(nan_and_inf_stay_in_their_column),
      TEST(the_number_of_threads_changes_no_bit),
      TEST(any_strides_work),
      TEST(quantised_elements_are_within_half_a_scale),
      TEST(wrong_arguments_are_reported),
      TEST(module_to_converts_all_weights_or_none),
      TEST(operations_survive_failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
