/* Attention in fewer bits: the kernels of every table that has them against the scalar kernel on rounded
 * operands, at sizes around every edge, with operands between guard pages; then with threads. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"

#include <math.h>

#include "../../src/kernels/scalar/scalar.h"
#include "../../src/ops/ops.h"

static const heed_dtype dtypes[] = {HEED_BFLOAT16, HEED_INT8, HEED_FLOAT16, HEED_FLOAT32};
enum { DTYPES = 4 };

static float next(uint32_t *seed) {
  next_random(seed);
  return (float)(*seed >> 8) / 8388608.0f - 1.0f;
}

static float rounded(float x) {
  return heed__float_from_bfloat16(heed__bfloat16_from_float(x));
}

/* A head's operands, between guard pages, and the same rounded and widened. */
typedef struct operands {
  heed__attention_task task, wide;
  guarded guards[6];
  float *k, *v, *q, *out;
} operands;

static float *widened(heed_dtype dtype, const guarded *x, const float *scale, int64_t rows, int64_t n) {
  float *out = malloc((size_t)(rows * n + 1) * sizeof *out);
  assert_non_null(out);
  for (int64_t i = 0; i < rows * n; i++) {
    float value;
    ptrdiff_t column = 1;
    const char *at = (const char *)x->data + i * (int64_t)heed__element_bytes(dtype);
    out[i] = *heed__scalar_widen(at, dtype, 1.0f, &column, 1, &value);
    out[i] = dtype == HEED_INT8 ? out[i] * scale[i / n] : rounded(out[i]);
  }
  return out;
}

static void fill_rows(heed_dtype dtype, guarded *x, int64_t n, uint32_t *seed) {
  for (int64_t i = 0; i < n; i++)
    heed__store(dtype, (char *)x->data + i * (int64_t)heed__element_bytes(dtype),
                heed_number((double)next(seed) * (dtype == HEED_INT8 ? 127.4 : 1.0)));
}

static void begin(operands *o, int64_t l, int64_t s, int64_t d, int64_t dv, heed_dtype k, heed_dtype v,
                  uint32_t *seed) {
  const int64_t sizes[] = {l * d * 4,
                           s * d * (int64_t)heed__element_bytes(k),
                           s * dv * (int64_t)heed__element_bytes(v),
                           s * 4,
                           s * 4,
                           l * dv * 4};
  for (int i = 0; i < 6; i++) o->guards[i] = guard_bytes((size_t)sizes[i], (l + s + d) % 2);
  fill_rows(HEED_FLOAT32, &o->guards[0], l * d, seed);
  fill_rows(k, &o->guards[1], s * d, seed);
  fill_rows(v, &o->guards[2], s * dv, seed);
  float *const k_scale = o->guards[3].data, *const v_scale = o->guards[4].data;
  for (int64_t j = 0; j < s; j++) {
    k_scale[j] = (2 + next(seed)) / 256;
    v_scale[j] = (2 + next(seed)) / 256;
  }
  o->task = (heed__attention_task){.q = o->guards[0].data,
                                   .k = o->guards[1].data,
                                   .v = o->guards[2].data,
                                   .k_scale = k == HEED_INT8 ? k_scale : NULL,
                                   .v_scale = v == HEED_INT8 ? v_scale : NULL,
                                   .out = o->guards[5].data,
                                   .k_dtype = k,
                                   .v_dtype = v,
                                   .q_row = d,
                                   .q_column = 1,
                                   .k_row = d,
                                   .k_column = 1,
                                   .v_row = dv,
                                   .v_column = 1,
                                   .out_row = dv,
                                   .out_column = 1,
                                   .k_scale_row = 1,
                                   .v_scale_row = 1,
                                   .query_length = l,
                                   .key_length = s,
                                   .head_size = d,
                                   .value_size = dv,
                                   .last = l,
                                   .scale = 0.5f,
                                   .window_begin = -l,
                                   .window_end = s,
                                   .valid_keys = s};
}

static void end(operands *o) {
  for (int i = 0; i < 6; i++) unguard(o->guards[i]);
}

/* Rows first…last-1, whole or yielding wherever it can; false if the table has no such kernel. */
static bool attend(heed_context *ctx, heed__attention_task *t, bool yields) {
  const heed__kernels *kernels = heed__kernels_of(ctx);
  const size_t bytes = kernels->reduced_attention_scratch(t);
  int64_t position = 0, before = 0;
  if (bytes == 0) return false;
  t->scratch = heed__allocate(ctx, bytes);
  assert_non_null(t->scratch);
  if (!yields) assert_true(kernels->reduced_attention(t, NULL, NULL));
  while (yields && !kernels->reduced_attention(t, always_due(), &position)) {
    assert_true(position > before);
    before = position;
  }
  heed__release(ctx, t->scratch);
  return true;
}

/* What the scalar kernel gives for the rounded operands; free it. */
static float *reference(const operands *o) {
  heed__attention_task t = o->task;
  const int64_t l = t.query_length, s = t.key_length, d = t.head_size, dv = t.value_size;
  float *q = malloc((size_t)(l * d + 1) * sizeof *q), *out = malloc((size_t)(l * dv + 1) * sizeof *out);
  float *k = widened(t.k_dtype, &o->guards[1], t.k_scale, s, d);
  float *v = widened(t.v_dtype, &o->guards[2], t.v_scale, s, dv);
  assert_true(q && out);
  for (int64_t i = 0; i < l * d; i++) q[i] = rounded(t.q[i] * t.scale);
  t.scale = 1;
  t.q = q;
  t.k = k;
  t.v = v;
  t.k_dtype = t.v_dtype = HEED_FLOAT32;
  t.k_scale = t.v_scale = NULL;
  t.out = out;
  t.scratch = malloc(heed__scalar_attention_scratch(&t));
  assert_non_null(t.scratch);
  assert_true(heed__scalar_attention(&t, NULL, NULL));
  free(t.scratch);
  free(q);
  free(k);
  free(v);
  return out;
}

/* Weights are rounded by up to 2^-9 each; values are below 1.5. */
static void check(heed_context *ctx, operands *o, bool yields) {
  const int64_t n = o->task.query_length * o->task.value_size;
  for (int64_t i = 0; i < n; i++) o->task.out[i] = -7;
  if (!attend(ctx, &o->task, yields)) return;
  float *want = reference(o);
  for (int64_t i = 0; i < n; i++) {
    const double a = (double)o->task.out[i], b = (double)want[i];
    if (isnan(a) != isnan(b) || fabs(a - b) > 1.5 * 0x1p-9 + 1e-5)
      fail_msg("%s, %s and %s: [%lld, %lld, %lld, %lld] at %lld: %g instead of %g",
               heed__kernels_of(ctx)->name, heed_dtype_name(o->task.k_dtype),
               heed_dtype_name(o->task.v_dtype), (long long)o->task.query_length,
               (long long)o->task.key_length, (long long)o->task.head_size, (long long)o->task.value_size,
               (long long)i, a, b);
  }
  free(want);
}

static void all_edges(heed_context *ctx) {
  static const int64_t l[] = {1, 15, 16, 17, 32, 33, 70}, s[] = {1, 31, 32, 33, 127, 128, 129, 300},
                       d[] = {1, 15, 16, 31, 32, 33, 64, 100};
  uint32_t seed = 5;
  for (int i = 0; i < 7; i++)
    for (int j = 0; j < 8; j++) {
      const int way = i * 8 + j;
      const int64_t offset = s[j] - l[i];
      operands o;
      begin(&o, l[i], s[j], d[way % 7], d[(way * 3 + i) % 8], dtypes[way % DTYPES], dtypes[way / 3 % DTYPES],
            &seed);
      check(ctx, &o, way % 2);
      o.task.window_end = heed__max(offset + 1, -l[i]); /* causal, the last query at the last key */
      check(ctx, &o, way % 3 == 0);
      o.task.window_begin = heed__max(offset - 20, -l[i]);
      o.task.softcap = way % 2 ? 2.0f : 0.0f;
      check(ctx, &o, way % 3 == 1);
      o.task.has_sink = true;
      o.task.sink = 0.5f;
      o.task.valid_keys = s[j] * 2 / 3;
      check(ctx, &o, false);
      end(&o);
    }
}
static void attention_agrees_with_the_specification(void **state) {
  (void)state;
  with_every_table(all_edges);
}

/* A row has the same bits with any other rows. */
static void rows_alone(heed_context *ctx) {
  enum { L = 150, S = 333, D = 40, DV = 50 };
  static float whole[L * DV];
  uint32_t seed = 6;
  operands o;
  begin(&o, L, S, D, DV, HEED_BFLOAT16, HEED_FLOAT32, &seed);
  o.task.window_begin = S - L - 100;
  o.task.window_end = S - L + 1;
  if (attend(ctx, &o.task, false)) {
    memcpy(whole, o.task.out, sizeof whole);
    static const int64_t parts[] = {0, 1, 7, 40, 88, 89, 120, L};
    for (int i = 0; i + 1 < 8; i++) {
      o.task.first = parts[i];
      o.task.last = parts[i + 1];
      assert_true(attend(ctx, &o.task, i % 2));
    }
    assert_memory_equal(whole, o.task.out, sizeof whole);
  }
  end(&o);
}
static void a_row_does_not_depend_on_the_others(void **state) {
  (void)state;
  with_every_table(rows_alone);
}

/* nan and inf in keys and values change only the rows that see them, and numbers too large for bfloat16 keep
 * their sign. */
static void not_finite(heed_context *ctx) {
  enum { L = 64, S = 64, D = 32, DV = 20 };
  uint32_t seed = 7;
  operands o;
  begin(&o, L, S, D, DV, HEED_FLOAT32, HEED_FLOAT32, &seed);
  float *const k = o.guards[1].data, *const v = o.guards[2].data;
  o.task.window_end = 1;
  k[50 * D] = NAN;
  v[20 * DV + 3] = NAN;
  v[33 * DV + 5] = -INFINITY;
  v[40 * DV + 6] = FLT_MAX;
  if (attend(ctx, &o.task, false))
    for (int i = 0; i < L; i++)
      for (int c = 0; c < DV; c++) {
        const float x = o.task.out[i * DV + c];
        if (i >= 50 || (c == 3 && i >= 20))
          assert_true(isnan(x));
        else if (c == 5 && i >= 33)
          assert_true(x == -INFINITY);
        else if (c == 6 && i >= 40)
          assert_true(x > 1e30f);
        else
          assert_true(fabsf(x) < 2);
      }
  end(&o);
}
static void nan_and_inf_stay_in_the_rows_that_see_them(void **state) {
  (void)state;
  with_every_table(not_finite);
}

static void with_threads(heed_context *ctx) {
  heed_tensor *q = NULL, *k = NULL, *v = NULL, *low_k = NULL, *low_v = NULL, *out[5] = {NULL};
  const heed_attention_options options = {.size = sizeof options, .is_causal = true};
  const heed__cpu cpu = ctx->cpu;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(2, 6, 200, 48), &q));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(2, 3, 200, 48), &k));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(2, 3, 200, 48), &v));
  assert_ok(heed_to(ctx, k, HEED_BFLOAT16, &low_k));
  assert_ok(heed_to(ctx, v, HEED_BFLOAT16, &low_v));
  for (int i = 0; i < 5; i++) {
    assert_ok(heed_set_num_threads(ctx, i < 1 ? 1 : i));
    assert_ok(heed_set_matmul_precision(ctx, i ? HEED_PRECISION_HIGH : HEED_PRECISION_HIGHEST));
    ctx->cpu = cpu;
    assert_ok(heed_scaled_dot_product_attention(ctx, q, low_k, low_v, &options, &out[i], NULL));
  }
  for (int i = 2; i < 5; i++)
    assert_memory_equal(out[1]->data, out[i]->data, (size_t)out[1]->numel * sizeof(float));
  heed_tensor *const all[] = {q, k, v, low_k, low_v, out[0], out[1], out[2], out[3], out[4]};
  for (int i = 0; i < 10; i++) heed_tensor_free(all[i]);
}
static void the_number_of_threads_changes_no_bit(void **state) {
  (void)state;
  with_every_table(with_threads);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_agrees_with_the_specification),
      cmocka_unit_test(a_row_does_not_depend_on_the_others),
      cmocka_unit_test(nan_and_inf_stay_in_the_rows_that_see_them),
      cmocka_unit_test(the_number_of_threads_changes_no_bit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
