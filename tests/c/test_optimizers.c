/* Steps of optimisers, and norms and limits of gradients. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"

#include <math.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define READ_ONLY(x) ((const heed_tensor *const *)(x))

static uint32_t seed = 1;

static float number(void) {
  next_random(&seed);
  return (float)(seed >> 8) / (1 << 24) * 2.1f - 1.0f;
}

/* ---- Kernels ---- */

/* Five rows: the parameter, the gradient, and up to three states, none negative. */
enum { ROWS = 5 };

static void step_with(const heed__kernels *k, int rule, float *const row[ROWS], size_t n) {
  if (rule < 6) {
    const heed__sgd_rule sgd = {.rate = -0.1f,
                                .decay = rule == 1 ? 0.05f : 0,
                                .momentum = rule >= 2 ? 0.9f : 0,
                                .damped = 0.7f,
                                .maximize = rule == 3,
                                .nesterov = rule == 4,
                                .first = rule == 5};
    k->sgd_step(row[0], row[1], rule >= 2 ? row[2] : NULL, n, &sgd);
  } else if (rule < 10) {
    const heed__adam_rule adam = {.rate = -0.3f,
                                  .decay = rule == 7 ? 0.05f : 0,
                                  .shrink = rule == 8 ? 0.99f : 1,
                                  .beta1 = rule == 9 ? 0.3f : 0.9f,
                                  .rest1 = rule == 9 ? 0.7f : 0.1f,
                                  .beta2 = 0.999f,
                                  .rest2 = 0.001f,
                                  .root = 0.2f,
                                  .eps = 1e-8f,
                                  .maximize = rule == 7,
                                  .amsgrad = rule >= 8};
    k->adam_step(row[0], row[1], row[2], row[3], rule >= 8 ? row[4] : NULL, n, &adam);
  } else {
    const heed__rmsprop_rule rmsprop = {.rate = -0.1f,
                                        .decay = rule == 11 ? 0.05f : 0,
                                        .momentum = rule >= 12 ? 0.9f : 0,
                                        .alpha = rule == 13 ? 0.4f : 0.99f,
                                        .rest = rule == 13 ? 0.6f : 0.01f,
                                        .eps = 1e-8f,
                                        .maximize = rule == 11,
                                        .centered = rule == 11 || rule == 13};
    k->rmsprop_step(row[0], row[1], row[2], row[3], row[4], n, &rmsprop);
  }
}

enum { RULES = 14 };

static void check_kernel(const heed__kernels *k, int rule, size_t n, bool at_end) {
  guarded memory[ROWS];
  float *got[ROWS], wanted_rows[ROWS][80], *wanted[ROWS];
  for (int r = 0; r < ROWS; r++) {
    memory[r] = guard_bytes(n * sizeof(float), at_end);
    got[r] = memory[r].data;
    wanted[r] = wanted_rows[r];
    for (size_t i = 0; i < n; i++)
      got[r][i] = wanted[r][i] = r > 1 ? fabsf(number()) + (r == 2 && rule >= 10 ? 1.0f : 0.0f) : number();
  }
  if (n > 3) got[1][2] = wanted[1][2] = NAN;
  step_with(k, rule, got, n);
  step_with(&heed__kernels_scalar, rule, wanted, n);
  for (int r = 0; r < ROWS; r++) {
    for (size_t i = 0; i < n; i++) {
      if (isnan(wanted[r][i]))
        assert_true(isnan(got[r][i]));
      else
        assert_memory_equal(&got[r][i], &wanted[r][i], sizeof(float));
    }
    unguard(memory[r]);
  }
}

static void steps_are_bit_identical_to_scalar_ones(void **state) {
  static const size_t sizes[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 33, 64, 71};
  const heed__kernels *k;
  (void)state;
  for (int table = 0; (k = table_at(table)); table++)
    for (int rule = 0; rule < RULES; rule++)
      for (size_t s = 0; s < COUNT(sizes); s++)
        for (int at_end = 0; at_end < 2; at_end++) check_kernel(k, rule, sizes[s], at_end);
}

/* ---- Tensors ---- */

static heed_tensor *filled(heed_context *ctx, float value, int64_t n) {
  heed_tensor *x = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 1, SHAPE(n), heed_number(value), &x));
  return x;
}

static heed_tensor *drawn(heed_context *ctx, int64_t n) {
  heed_tensor *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 1, SHAPE(n), &x));
  return x;
}

static float element(const heed_tensor *x, int64_t i) {
  return ((const float *)heed_tensor_data((heed_tensor *)(uintptr_t)x))[i];
}

/* AdamW in double precision. */
static void adamw_follows_its_formula(heed_context *ctx) {
  enum { N = 300 };
  heed_tensor *x = drawn(ctx, N), *g = drawn(ctx, N), *m = filled(ctx, 0, N), *v = filled(ctx, 0, N);
  double wanted[N], mean[N] = {0}, square[N] = {0};
  int64_t steps = 0;
  heed_adam_options options;
  heed_adam_options_init(&options, sizeof options);
  assert_true(options.beta2 == 0.999 && options.size == sizeof options);
  options.lr = 0.01;
  options.weight_decay = 0.1;
  options.decoupled = true;
  for (int i = 0; i < N; i++) wanted[i] = element(x, i);
  for (int t = 1; t <= 5; t++) {
    assert_ok(heed_adam_step(ctx, 1, &x, READ_ONLY(&g), &m, &v, NULL, &steps, &options));
    assert_int_equal(steps, t);
    for (int i = 0; i < N; i++) {
      const double d = element(g, i);
      mean[i] = 0.9 * mean[i] + 0.1 * d;
      square[i] = 0.999 * square[i] + 0.001 * d * d;
      wanted[i] -= 0.01 * 0.1 * wanted[i];
      wanted[i] -= 0.01 * (mean[i] / (1 - pow(0.9, t))) / (sqrt(square[i] / (1 - pow(0.999, t))) + 1e-8);
      assert_true(fabs(element(x, i) - wanted[i]) < 2e-6);
    }
  }
  heed_tensor_free(x);
  heed_tensor_free(g);
  heed_tensor_free(m);
  heed_tensor_free(v);
}

static void defaults_are_those_of_null(heed_context *ctx) {
  heed_tensor *x = filled(ctx, 1, 2), *g = filled(ctx, 1, 2);
  int64_t steps = 0;
  assert_ok(heed_sgd_step(ctx, 1, &x, READ_ONLY(&g), NULL, &steps, NULL));
  assert_true(fabsf(element(x, 1) - 0.999f) < 1e-6f);
  heed_tensor_free(x);
  heed_tensor_free(g);
}

/* The gradients of the tensors themselves, where there are any. */
static void steps_take_the_gradients_of_tensors(heed_context *ctx) {
  heed_tensor *x[2] = {filled(ctx, 1, 3), filled(ctx, 2, 3)}, *g = filled(ctx, 1, 3), *none[2] = {NULL, NULL};
  int64_t steps[2] = {0, 0};
  heed_tensor_set_parameter(x[0], true);
  heed_tensor_set_parameter(x[1], true);
  assert_ok(heed_tensor_set_grad(x[1], g));
  heed_sgd_options options;
  heed_sgd_options_init(&options, sizeof options);
  options.lr = 0.5;
  heed_set_recording(ctx, true);
  assert_ok(heed_sgd_step(ctx, 2, x, NULL, none, steps, &options));
  assert_true(heed_tensor_is_leaf(x[1]));
  heed_set_recording(ctx, false);
  assert_true(element(x[0], 0) == 1 && element(x[1], 2) == 1.5f);
  assert_true(steps[0] == 0 && steps[1] == 1);
  heed_tensor_free(x[0]);
  heed_tensor_free(x[1]);
  heed_tensor_free(g);
}

/* Parameters of which one lies on another's gradient: still the order of one thread. */
static void overlapping_tensors_give_the_same_bits_with_threads(heed_context *ctx) {
  enum { N = 40000 };
  heed_tensor *first = NULL;
  for (int threads = 1; threads <= 3; threads++) {
    assert_ok(heed_set_num_threads(ctx, threads));
    heed_tensor *base = NULL, *part[2] = {NULL, NULL};
    assert_ok(heed_arange(ctx, HEED_FLOAT32, heed_number(0), heed_number(2 * N), heed_number(1), &base));
    assert_ok(heed_slice(ctx, base, 1, 1, N, 1, &part[0]));
    assert_ok(heed_slice(ctx, base, 1, N / 2, N / 2 + N - 1, 1, &part[1]));
    const heed_tensor *g[2] = {part[1], part[0]};
    int64_t steps[2] = {0, 0};
    assert_ok(heed_sgd_step(ctx, 2, part, g, NULL, steps, NULL));
    if (first == NULL)
      first = base;
    else {
      assert_memory_equal(heed_tensor_data(first), heed_tensor_data(base), 2 * N * sizeof(float));
      heed_tensor_free(base);
    }
    heed_tensor_free(part[0]);
    heed_tensor_free(part[1]);
  }
  heed_tensor_free(first);
  assert_ok(heed_set_num_threads(ctx, 1));
}

static void a_stopped_step_changes_nothing(heed_context *ctx) {
  heed_tensor *x = filled(ctx, 1, 50000), *g = filled(ctx, 1, 50000);
  int64_t steps = 0;
  double norm = -1;
  for (int threads = 1; threads <= 2; threads++) {
    assert_ok(heed_set_num_threads(ctx, threads));
    heed_cancel(ctx);
    assert_int_equal(heed_sgd_step(ctx, 1, &x, READ_ONLY(&g), NULL, &steps, NULL), HEED_CANCELLED);
    assert_ok(heed_set_deadline(ctx, 1e-9));
    assert_int_equal(heed_sgd_step(ctx, 1, &x, READ_ONLY(&g), NULL, &steps, NULL), HEED_LIMIT);
    assert_int_equal(heed_total_norm(ctx, 1, READ_ONLY(&g), 2, &norm), HEED_LIMIT);
    assert_ok(heed_set_deadline(ctx, 0));
    assert_true(element(x, 0) == 1 && element(x, 49999) == 1 && steps == 0 && norm == -1);
  }
  assert_ok(heed_set_num_threads(ctx, 1));
  heed_tensor_free(x);
  heed_tensor_free(g);
}

/* ---- Errors ---- */

static void wrong_arguments_of_steps_are_refused(heed_context *ctx) {
  heed_tensor *x = filled(ctx, 1, 2), *g = filled(ctx, 1, 2), *three = filled(ctx, 1, 3),
              *m = filled(ctx, 0, 2);
  heed_tensor *twice[] = {x, x}, *both[] = {x, three}, *ids = NULL, *expanded = NULL;
  const heed_tensor *gradients[] = {g, g}, *none = NULL;
  int64_t steps[] = {0, 0};
  heed_sgd_options o;
  heed_sgd_options_init(&o, sizeof o);
  assert_ok(heed_full(ctx, HEED_INT64, 1, SHAPE(2), heed_integer(1), &ids));
  assert_ok(heed_expand(ctx, three, 2, SHAPE(2, 3), &expanded));
#define SGD_FAILS(status, text, ...)                                                                         \
  assert_fails(ctx, heed_sgd_step(ctx, __VA_ARGS__), status, "sgd_step: " text)
  SGD_FAILS(HEED_ARGUMENT, "count is -1; it must be at least 0", -1, &x, gradients, NULL, steps, &o);
  SGD_FAILS(HEED_ARGUMENT, "x is missing (NULL)", 1, NULL, gradients, NULL, steps, &o);
  SGD_FAILS(HEED_ARGUMENT, "steps is missing (NULL)", 1, &x, gradients, NULL, NULL, &o);
  SGD_FAILS(HEED_ARGUMENT, "parameter 1 is missing (NULL)", 1, (heed_tensor *[]){NULL}, gradients, NULL,
            steps, &o);
  SGD_FAILS(HEED_ARGUMENT, "parameters 1 and 2 are the same tensor; each must be listed once", 2, twice,
            gradients, NULL, steps, &o);
  SGD_FAILS(HEED_SHAPE, "the gradient of parameter 2 is [2]; it must be [3], the parameter's shape", 2, both,
            gradients, NULL, steps, &o);
  SGD_FAILS(HEED_DTYPE, "parameter 1 is int64; it must be float32", 1, &ids, gradients, NULL, steps, &o);
  SGD_FAILS(HEED_DTYPE, "the gradient of parameter 1 is int64; it must be float32", 1, &x, READ_ONLY(&ids),
            NULL, steps, &o);
  SGD_FAILS(HEED_ARGUMENT, "parameter 1 has elements that share memory; clone it first", 1, &expanded,
            READ_ONLY(&expanded), NULL, steps, &o);
  o.momentum = 0.9;
  SGD_FAILS(HEED_ARGUMENT, "momentum is missing (NULL)", 1, &x, gradients, NULL, steps, &o);
  SGD_FAILS(HEED_ARGUMENT, "number 1 of momentum is missing (NULL)", 1, &x, gradients,
            (heed_tensor *[]){NULL}, steps, &o);
  SGD_FAILS(HEED_SHAPE, "the state of parameter 1 is [3]; it must be [2], the parameter's shape", 1, &x,
            gradients, &three, steps, &o);
  o.lr = NAN;
  SGD_FAILS(HEED_ARGUMENT, "lr is nan; it must be a finite number, at least 0", 1, &x, gradients, &m, steps,
            &o);
  o.lr = 1;
  o.nesterov = true;
  o.dampening = 1;
  SGD_FAILS(HEED_ARGUMENT,
            "nesterov is set with momentum 0.9 and dampening 1; it needs a momentum above 0 and no dampening",
            1, &x, gradients, &m, steps, &o);
  o.size = 3;
  SGD_FAILS(HEED_ARGUMENT, "options.size is 3; it must be sizeof(heed_sgd_options)", 1, &x, gradients, &m,
            steps, &o);
  heed_adam_options adam;
  heed_adam_options_init(&adam, sizeof adam);
  adam.beta2 = 1;
  assert_fails(ctx, heed_adam_step(ctx, 1, &x, gradients, &m, &m, NULL, steps, &adam), HEED_ARGUMENT,
               "adam_step: beta2 is 1; it must be from 0 to less than 1");
  adam.beta2 = 0.9;
  adam.amsgrad = true;
  assert_fails(ctx, heed_adam_step(ctx, 1, &x, gradients, &m, &m, NULL, steps, &adam), HEED_ARGUMENT,
               "adam_step: highest is missing (NULL)");
  heed_rmsprop_options rmsprop;
  heed_rmsprop_options_init(&rmsprop, sizeof rmsprop);
  rmsprop.eps = -1;
  assert_fails(ctx, heed_rmsprop_step(ctx, 1, &x, gradients, &m, NULL, NULL, steps, &rmsprop), HEED_ARGUMENT,
               "rmsprop_step: eps is -1; it must be a finite number, at least 0");
  assert_ok(heed_sgd_step(ctx, 1, &x, &none, NULL, steps, NULL)); /* without a gradient: nothing to do */
  assert_ok(heed_sgd_step(ctx, 0, NULL, NULL, NULL, NULL, NULL));
  assert_true(element(x, 0) == 1 && element(m, 0) == 0 && steps[0] == 0);
  heed_tensor_free(x);
  heed_tensor_free(g);
  heed_tensor_free(m);
  heed_tensor_free(three);
  heed_tensor_free(ids);
  heed_tensor_free(expanded);
}

/* ---- Norms and limits ---- */

static void norms_are_those_of_all_elements(heed_context *ctx) {
  heed_tensor *a = filled(ctx, 3, 1), *b = filled(ctx, -4, 1);
  const heed_tensor *x[] = {a, NULL, b};
  double norm = 0;
  assert_ok(heed_total_norm(ctx, 3, x, 2, &norm));
  assert_true(norm == 5);
  assert_ok(heed_total_norm(ctx, 3, x, 1, &norm));
  assert_true(norm == 7);
  assert_ok(heed_total_norm(ctx, 3, x, INFINITY, &norm));
  assert_true(norm == 4);
  assert_ok(heed_total_norm(ctx, 3, x, 3, &norm));
  assert_true(fabs(norm - cbrt(91)) < 1e-12);
  assert_ok(heed_total_norm(ctx, 0, NULL, 2, &norm));
  assert_true(norm == 0);
  assert_fails(ctx, heed_total_norm(ctx, 3, x, 0, &norm), HEED_ARGUMENT,
               "total_norm: the order of the norm is 0; it must be above 0");
  assert_fails(ctx, heed_total_norm(ctx, 3, x, 2, NULL), HEED_ARGUMENT, "total_norm: norm is missing (NULL)");
  heed_tensor_free(a);
  heed_tensor_free(b);
}

static void gradients_are_limited_in_place(heed_context *ctx) {
  heed_tensor *x = filled(ctx, 0, 2), *g = filled(ctx, 3, 2);
  double norm = 0;
  assert_ok(heed_tensor_set_grad(x, g));
  assert_ok(heed_clip_grad_norm(ctx, 1, &x, 1, 2, &norm));
  assert_true(fabs(norm - sqrt(18)) < 1e-12);
  assert_true(fabsf(element(g, 0) - (float)sqrt(0.5)) < 1e-6f);
  assert_ok(heed_clip_grad_value(ctx, 1, &x, 0.25));
  assert_true(element(heed_tensor_grad(x), 1) == 0.25f);
  assert_fails(ctx, heed_clip_grad_norm(ctx, 1, &x, -1, 2, NULL), HEED_ARGUMENT,
               "clip_grad_norm: max_norm is -1; it must be at least 0");
  assert_fails(ctx, heed_clip_grad_value(ctx, 1, &x, NAN), HEED_ARGUMENT,
               "clip_grad_value: clip_value is nan; it must be at least 0");
  heed_tensor_free(x);
  heed_tensor_free(g);
}

#define CONTEXT_TESTS(X)                                                                                     \
  X(adamw_follows_its_formula)                                                                               \
  X(defaults_are_those_of_null)                                                                              \
  X(steps_take_the_gradients_of_tensors)                                                                     \
  X(overlapping_tensors_give_the_same_bits_with_threads)                                                     \
  X(a_stopped_step_changes_nothing)                                                                          \
  X(wrong_arguments_of_steps_are_refused)                                                                    \
  X(norms_are_those_of_all_elements)                                                                         \
  X(gradients_are_limited_in_place)

#define X(test)                                                                                              \
  static void test##_in_all_tables(void **state) {                                                           \
    (void)state;                                                                                             \
    with_every_table(test);                                                                                  \
  }
CONTEXT_TESTS(X)
#undef X

/* ---- Memory that runs out ---- */

static heed_status train(heed_context *ctx) {
  heed_tensor *x = NULL, *g = NULL, *m = NULL, *v = NULL;
  int64_t steps = 0;
  heed_status status = heed_full(ctx, HEED_FLOAT32, 1, SHAPE(3), heed_number(1), &x);
  if (status == HEED_OK) status = heed_full(ctx, HEED_FLOAT32, 1, SHAPE(3), heed_number(2), &g);
  if (status == HEED_OK) status = heed_full(ctx, HEED_FLOAT32, 1, SHAPE(3), heed_number(0), &m);
  if (status == HEED_OK) status = heed_full(ctx, HEED_FLOAT32, 1, SHAPE(3), heed_number(0), &v);
  if (status == HEED_OK) {
    status = heed_adam_step(ctx, 1, &x, READ_ONLY(&g), &m, &v, NULL, &steps, NULL);
    if (status != HEED_OK) assert_true(element(x, 0) == 1 && element(m, 0) == 0 && steps == 0);
  }
  if (status == HEED_OK) status = heed_tensor_set_grad(x, g);
  if (status == HEED_OK) {
    status = heed_clip_grad_norm(ctx, 1, &x, 1, 2, NULL);
    if (status != HEED_OK) assert_true(element(g, 0) == 2);
  }
  heed_tensor_free(x);
  heed_tensor_free(g);
  heed_tensor_free(m);
  heed_tensor_free(v);
  return status;
}

static void steps_survive_every_failing_allocation(void **state) {
  (void)state;
  survives_every_failing_allocation(train);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps_are_bit_identical_to_scalar_ones),
                                     cmocka_unit_test(steps_survive_every_failing_allocation),
#define X(test) {#test, test##_in_all_tables, NULL, NULL, NULL},
                                     CONTEXT_TESTS(X)
#undef X
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
