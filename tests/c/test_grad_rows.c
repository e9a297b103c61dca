/* Fused backward passes over tensors: against plain code in double precision, in every table, on views, for
 * any number of threads, with failing allocators, and cancelled. */
#include "tables.h"

#include <math.h>

#include "../../src/grad/grad.h"

enum { OUTPUTS = 3 };

static uint32_t seed;

static heed_tensor *random_tensor(heed_context *ctx, int ndim, const int64_t *shape) {
  heed_tensor *x = NULL;
  if (heed_tensor_new(ctx, HEED_FLOAT32, ndim, shape, &x) != HEED_OK) return NULL;
  float *data = heed_tensor_data(x);
  for (int64_t i = 0; i < x->numel; i++) {
    next_random(&seed);
    data[i] = (float)(seed >> 8) * 0x1p-22f - 2.0f;
  }
  return x;
}

static heed_tensor *random_ids(heed_context *ctx, int64_t n, int64_t rows) {
  heed_tensor *x = NULL;
  if (heed_tensor_new(ctx, HEED_INT64, 1, SHAPE(n), &x) != HEED_OK) return NULL;
  int64_t *data = heed_tensor_data(x);
  for (int64_t i = 0; i < n; i++) data[i] = 1 + (int64_t)((next_random(&seed) >> 8) % (uint32_t)rows);
  return x;
}

/* Element i of x in row-major order. */
static double at(const heed_tensor *x, int64_t i) {
  ptrdiff_t offset = 0;
  for (int d = x->ndim - 1; d >= 0; d--) {
    offset += (ptrdiff_t)(i % x->shape[d] * x->stride[d]);
    i /= x->shape[d];
  }
  return (double)((const float *)(const void *)x->data)[offset];
}

static void assert_near(const heed_tensor *got, const double *wanted) {
  double largest = 0, off = 0;
  for (int64_t i = 0; i < got->numel; i++) {
    largest = fmax(largest, fabs(wanted[i]));
    off = fmax(off, fabs(at(got, i) - wanted[i]));
  }
  if (!(off <= 2e-6 * largest)) fail_msg("off by %g of %g", off, largest);
}

/* ---- Scenarios: up to three results each ---- */

typedef heed_status scenario(heed_context *ctx, heed_tensor *out[OUTPUTS]);

static heed_status free_all(heed_status status, int count, heed_tensor *const *x) {
  for (int i = 0; i < count; i++) heed_tensor_free(x[i]);
  return status;
}

/* Whether all inputs could be made. */
static heed_status have(int count, heed_tensor *const *x) {
  for (int i = 0; i < count; i++) {
    if (x[i] == NULL) return HEED_MEMORY;
  }
  return HEED_OK;
}

static heed_status norm(heed_context *ctx, bool centred, heed_tensor *out[OUTPUTS]) {
  heed_tensor *x[] = {random_tensor(ctx, 4, SHAPE(9, 31, 4, 15)), random_tensor(ctx, 4, SHAPE(9, 31, 4, 15)),
                      random_tensor(ctx, 2, SHAPE(4, 15))};
  heed_status status = have(3, x);
  if (status == HEED_OK)
    status = heed__norm_gradient(ctx, "norm", centred, x[0], 2, x[2], 1e-5, x[1], &out[0], &out[1],
                                 centred ? &out[2] : NULL);
  return free_all(status, 3, x);
}
static heed_status layer_norm(heed_context *ctx, heed_tensor *out[OUTPUTS]) {
  return norm(ctx, true, out);
}
static heed_status rms_norm(heed_context *ctx, heed_tensor *out[OUTPUTS]) {
  return norm(ctx, false, out);
}

static heed_status softmax_of_dim_1(heed_context *ctx, heed_tensor *out[OUTPUTS]) {
  heed_tensor *x[] = {random_tensor(ctx, 3, SHAPE(40, 30, 20)), random_tensor(ctx, 3, SHAPE(40, 30, 20)),
                      NULL};
  heed_status status = have(2, x);
  if (status == HEED_OK) status = heed_softmax(ctx, x[0], 1, &x[2]);
  if (status == HEED_OK) status = heed__softmax_gradient(ctx, "softmax", false, x[2], 0, x[1], &out[0]);
  return free_all(status, 3, x);
}

static heed_status embedding(heed_context *ctx, heed_tensor *out[OUTPUTS]) {
  heed_tensor *x[] = {random_ids(ctx, 3000, 700), random_tensor(ctx, 2, SHAPE(3000, 200))};
  heed_status status = have(2, x);
  if (status == HEED_OK) status = heed__embedding_gradient(ctx, "embedding", x[0], 700, 3, x[1], &out[0]);
  return free_all(status, 2, x);
}

static heed_status rope(heed_context *ctx, heed_tensor *out[OUTPUTS]) {
  heed_tensor *x[] = {random_tensor(ctx, 3, SHAPE(4, 50, 16))};
  heed_rope_config config;
  heed_rope_config_init(&config, sizeof config);
  heed_status status = have(1, x);
  if (status == HEED_OK) status = heed__rope_gradient(ctx, "rope", x[0], NULL, 7, &config, &out[0]);
  return free_all(status, 1, x);
}

static heed_status gelu(heed_context *ctx, heed_tensor *out[OUTPUTS]) {
  heed_tensor *x[] = {random_tensor(ctx, 2, SHAPE(600, 700)), random_tensor(ctx, 2, SHAPE(700, 600)), NULL};
  heed_status status = have(2, x);
  if (status == HEED_OK) status = heed_transpose(ctx, x[1], 1, 2, &x[2]);
  if (status == HEED_OK)
    status = heed__unary_gradient(ctx, "gelu", heed__kernels_of(ctx)->gelu_backward, x[0], x[2], &out[0]);
  return free_all(status, 3, x);
}

static scenario *const scenarios[] = {layer_norm, rms_norm, softmax_of_dim_1, embedding, rope, gelu};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

static heed_status run(heed_context *ctx, scenario *s, heed_tensor *out[OUTPUTS]) {
  seed = 5;
  for (int i = 0; i < OUTPUTS; i++) out[i] = NULL;
  return s(ctx, out);
}

static void assert_same_results(heed_tensor *const *a, heed_tensor *const *b) {
  for (int i = 0; i < OUTPUTS; i++) {
    assert_int_equal(a[i] == NULL, b[i] == NULL);
    if (a[i]) assert_memory_equal(a[i]->data, b[i]->data, (size_t)a[i]->numel * sizeof(float));
  }
}

static void threads_change_no_bit(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int i = 0; i < SCENARIOS; i++) {
    heed_tensor *alone[OUTPUTS], *together[OUTPUTS];
    assert_ok(heed_set_num_threads(ctx, 1));
    assert_ok(run(ctx, scenarios[i], alone));
    assert_ok(heed_set_num_threads(ctx, 3));
    assert_ok(run(ctx, scenarios[i], together));
    assert_same_results(alone, together);
    free_all(HEED_OK, OUTPUTS, alone);
    free_all(HEED_OK, OUTPUTS, together);
  }
}

static void a_cancelled_call_leaves_nothing_behind(void **state) {
  test_context *t = *state;
  for (int i = 0; i < SCENARIOS; i++) {
    heed_tensor *out[OUTPUTS];
    const int64_t before = t->memory.blocks;
    heed_cancel(t->ctx);
    assert_int_equal(run(t->ctx, scenarios[i], out), HEED_CANCELLED);
    for (int k = 0; k < OUTPUTS; k++) assert_null(out[k]);
    assert_int_equal(t->memory.blocks, before);
  }
}

#define FAILING(name)                                                                                        \
  static heed_status failing_##name(heed_context *ctx) {                                                     \
    heed_tensor *out[OUTPUTS];                                                                               \
    const heed_status status = run(ctx, name, out);                                                          \
    if (status != HEED_OK) {                                                                                 \
      for (int i = 0; i < OUTPUTS; i++) assert_null(out[i]);                                                 \
    }                                                                                                        \
    return free_all(status, OUTPUTS, out);                                                                   \
  }                                                                                                          \
  static void name##_survives_every_failing_allocation(void **state) {                                       \
    (void)state;                                                                                             \
    survives_every_failing_allocation(failing_##name);                                                       \
  }
FAILING(layer_norm)
FAILING(rms_norm)
FAILING(softmax_of_dim_1)
FAILING(embedding)
FAILING(rope)
FAILING(gelu)

/* ---- Values ---- */

static void check_norm(heed_context *ctx, bool centred, int64_t rows, int64_t n) {
  heed_tensor *x = random_tensor(ctx, 2, SHAPE(rows, n)), *dy = random_tensor(ctx, 2, SHAPE(n, rows));
  heed_tensor *weight = random_tensor(ctx, 1, &n), *turned = NULL, *dx = NULL, *dweight = NULL, *dbias = NULL;
  double *wanted = calloc((size_t)(rows * n), sizeof *wanted), *weights = calloc((size_t)n, sizeof *weights);
  double *biases = calloc((size_t)n, sizeof *biases);
  assert_ok(heed_transpose(ctx, dy, 1, 2, &turned));
  for (int64_t r = 0; r < rows; r++) {
    double mean = 0, variance = 0, sum = 0, product = 0;
    for (int64_t i = 0; centred && i < n; i++) mean += at(x, r * n + i) / (double)n;
    for (int64_t i = 0; i < n; i++) variance += pow(at(x, r * n + i) - mean, 2) / (double)n;
    const double scale = 1 / sqrt(variance + 1e-5);
    for (int64_t i = 0; i < n; i++) {
      const double d = at(turned, r * n + i), y = (at(x, r * n + i) - mean) * scale, g = d * at(weight, i);
      if (centred) sum += g / (double)n;
      product += g * y / (double)n;
      weights[i] += d * y;
      biases[i] += d;
    }
    for (int64_t i = 0; i < n; i++) {
      const double y = (at(x, r * n + i) - mean) * scale, g = at(turned, r * n + i) * at(weight, i);
      wanted[r * n + i] = scale * (g - sum - y * product);
    }
  }
  assert_ok(heed__norm_gradient(ctx, "norm", centred, x, 1, weight, 1e-5, turned, &dx, &dweight,
                                centred ? &dbias : NULL));
  assert_near(dx, wanted);
  assert_near(dweight, weights);
  if (centred) assert_near(dbias, biases);
  free_all(HEED_OK, 7, (heed_tensor *[]){x, dy, weight, turned, dx, dweight, dbias});
  free(wanted), free(weights), free(biases);
}

static void check_norms(heed_context *ctx) {
  for (int centred = 0; centred < 2; centred++) {
    check_norm(ctx, centred, 1, 40);
    check_norm(ctx, centred, 64, 5);
    check_norm(ctx, centred, 70, 33);
    check_norm(ctx, centred, 20000, 8);
  }
}

static void norms_are_near_double(void **state) {
  (void)state;
  with_every_table(check_norms);
}

static void norms_accept_no_weight_no_rows_and_unwanted_results(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = random_tensor(ctx, 2, SHAPE(3, 4)), *none = random_tensor(ctx, 2, SHAPE(0, 4));
  heed_tensor *empty = random_tensor(ctx, 2, SHAPE(3, 0)), *weight = random_tensor(ctx, 1, SHAPE(4));
  heed_tensor *dx = NULL, *dweight = NULL, *dbias = NULL;
  assert_ok(heed__norm_gradient(ctx, "norm", true, x, 1, NULL, 1e-5, x, &dx, NULL, NULL));
  free_all(HEED_OK, 1, &dx);
  dx = NULL;
  assert_ok(heed__norm_gradient(ctx, "norm", true, x, 1, weight, 1e-5, x, NULL, &dweight, NULL));
  free_all(HEED_OK, 1, &dweight);
  dweight = NULL;
  assert_ok(heed__norm_gradient(ctx, "norm", true, none, 1, weight, 1e-5, none, &dx, &dweight, &dbias));
  for (int64_t i = 0; i < 4; i++) assert_true(at(dweight, i) == 0 && at(dbias, i) == 0);
  free_all(HEED_OK, 3, (heed_tensor *[]){dx, dweight, dbias});
  dx = NULL;
  assert_ok(heed__norm_gradient(ctx, "norm", false, empty, 1, NULL, 1e-5, empty, &dx, NULL, NULL));
  assert_int_equal(heed_tensor_numel(dx), 0);
  free_all(HEED_OK, 5, (heed_tensor *[]){x, none, empty, weight, dx});
}

static void check_softmaxes(heed_context *ctx) {
  enum { A = 3, B = 5, C = 7 };
  static const int64_t size[] = {A, B, C}, apart[] = {B * C, C, 1};
  for (int logs = 0; logs < 2; logs++) {
    for (int dim = 0; dim < 3; dim++) {
      heed_tensor *x = random_tensor(ctx, 3, size), *dy = random_tensor(ctx, 3, size), *y = NULL, *dx = NULL;
      double wanted[A * B * C];
      assert_ok((logs ? heed_log_softmax : heed_softmax)(ctx, x, dim + 1, &y));
      for (int64_t i = 0; i < A * B * C; i++) {
        const int64_t first = i - i / apart[dim] % size[dim] * apart[dim];
        double sum = 0, total = 0, all = 0;
        for (int64_t j = 0; j < size[dim]; j++) sum += exp(at(x, first + j * apart[dim]));
        for (int64_t j = 0; j < size[dim]; j++) {
          const double d = at(dy, first + j * apart[dim]);
          total += exp(at(x, first + j * apart[dim])) / sum * d;
          all += d;
        }
        const double p = exp(at(x, i)) / sum;
        wanted[i] = logs ? at(dy, i) - p * all : p * (at(dy, i) - total);
      }
      assert_ok(heed__softmax_gradient(ctx, "softmax", logs, y, dim, dy, &dx));
      assert_near(dx, wanted);
      free_all(HEED_OK, 4, (heed_tensor *[]){x, dy, y, dx});
    }
  }
}

static void softmax_is_near_double_along_each_dimension(void **state) {
  (void)state;
  with_every_table(check_softmaxes);
}

static void check_embedding(heed_context *ctx, int64_t count, int64_t rows, int64_t d, int64_t padding) {
  heed_tensor *ids = random_ids(ctx, count, rows), *dy = random_tensor(ctx, 2, SHAPE(count, d));
  heed_tensor *dweight = NULL;
  double *wanted = calloc((size_t)(rows * d), sizeof *wanted);
  const int64_t *id = heed_tensor_data(ids);
  for (int64_t i = 0; i < count; i++)
    for (int64_t c = 0; c < d && id[i] != padding; c++) wanted[(id[i] - 1) * d + c] += at(dy, i * d + c);
  assert_ok(heed__embedding_gradient(ctx, "embedding", ids, rows, padding, dy, &dweight));
  assert_near(dweight, wanted);
  for (int64_t c = 0; c < d && padding > 0; c++) assert_true(at(dweight, (padding - 1) * d + c) == 0);
  free_all(HEED_OK, 3, (heed_tensor *[]){ids, dy, dweight});
  free(wanted);
}

static void check_embeddings(heed_context *ctx) {
  check_embedding(ctx, 0, 5, 4, 0);
  check_embedding(ctx, 1, 1, 1, 0);
  check_embedding(ctx, 7, 3, 129, 2);
  check_embedding(ctx, 5000, 2, 9, 0);
  check_embedding(ctx, 300, 4000, 20, 1);
  check_embedding(ctx, 100000, 1, 2, 0);
}

static void embeddings_are_near_double(void **state) {
  (void)state;
  with_every_table(check_embeddings);
}

/* <R x, y> is <x, Rᵀ y> for every x and y. */
static void rope_turns_back(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int way = 0; way < 12; way++) {
    heed_rope_config c;
    heed_rope_config_init(&c, sizeof c);
    c.interleaved = way & 1;
    if (way & 2) c.dims = 6;
    if (way & 4) c.scaling = HEED_ROPE_YARN, c.factor = 4, c.original_context_length = 32;
    if (way & 8) {
      c.scaling = HEED_ROPE_FACTORS;
      for (int i = 0; i < (way & 2 ? 3 : 4); i++) c.factors[i] = 1 + (float)i;
    }
    heed_tensor *x = random_tensor(ctx, 3, SHAPE(2, 5, 8)), *dy = random_tensor(ctx, 3, SHAPE(2, 5, 8));
    heed_tensor *positions = random_ids(ctx, 5, 300), *y = NULL, *dx = NULL;
    double there = 0, back = 0;
    assert_ok(heed_rope(ctx, x, positions, &c, &y));
    assert_ok(heed__rope_gradient(ctx, "rope", dy, positions, 0, &c, &dx));
    for (int64_t i = 0; i < 80; i++) there += at(y, i) * at(dy, i), back += at(x, i) * at(dx, i);
    assert_true(fabs(there - back) < 1e-5);
    free_all(HEED_OK, 5, (heed_tensor *[]){x, dy, positions, y, dx});
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(threads_change_no_bit),
      TEST(a_cancelled_call_leaves_nothing_behind),
      TEST(norms_are_near_double),
      TEST(norms_accept_no_weight_no_rows_and_unwanted_results),
      TEST(softmax_is_near_double_along_each_dimension),
      TEST(embeddings_are_near_double),
      TEST(rope_turns_back),
      cmocka_unit_test(layer_norm_survives_every_failing_allocation),
      cmocka_unit_test(rms_norm_survives_every_failing_allocation),
      cmocka_unit_test(softmax_of_dim_1_survives_every_failing_allocation),
      cmocka_unit_test(embedding_survives_every_failing_allocation),
      cmocka_unit_test(rope_survives_every_failing_allocation),
      cmocka_unit_test(gelu_survives_every_failing_allocation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
