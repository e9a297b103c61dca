/* Elementwise operations, reductions, operations along rows, sorting, selecting and joining, compared with
 * naive references in double precision at sizes below, at and above the widths of vectors and buffers; on
 * tensors with gaps, in place, and with failing allocations. */
#include "support.h"
#include "unary_references.h"

#include <math.h>

static const int64_t SIZES[] = {0, 1, 7, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000};
#define SIZE_COUNT (sizeof SIZES / sizeof SIZES[0])

/* n numbers from low to high, in row-major order; with `gaps`, every second element of a larger tensor. */
static heed_tensor *numbers(heed_context *ctx, int64_t n, bool gaps, double low, double high) {
  heed_tensor *x = NULL, *view = NULL;
  assert_ok(heed_uniform(ctx, NULL, low, high, 2, SHAPE(n, gaps ? 2 : 1), &x));
  assert_ok(heed_select(ctx, x, 2, 1, &view));
  heed_tensor_free(x);
  return view;
}

static double at(const heed_tensor *x, int64_t i) {
  return (double)((const float *)x->data)[i * x->stride[0]];
}

static void assert_near(double got, double wanted, double bound) {
  if (isnan(wanted) ? !isnan(got) : !(got == wanted || fabs(got - wanted) <= bound * (1 + fabs(wanted))))
    fail_msg("%.9g is not near %.9g", got, wanted);
}

/* ---- Elementwise ---- */

typedef heed_status unary_function(heed_context *ctx, const heed_tensor *x, heed_tensor **out);
typedef heed_status binary_function(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,
                                    heed_tensor **out);

static void functions_of_one_tensor_agree_with_their_references(void **state) {
  test_context *t = *state;
  static const struct {
    unary_function *function;
    double (*twin)(double);
  } rows[] = {
#define X(name) {heed_##name, reference_##name},
      HEED_UNARY_LIST(X) X(gelu) X(gelu_tanh)
#undef X
  };
  for (size_t f = 0; f < sizeof rows / sizeof rows[0]; f++) {
    for (size_t s = 0; s < 2 * SIZE_COUNT; s++) {
      heed_tensor *x = numbers(t->ctx, SIZES[s / 2], s % 2 != 0, 0.1, 4), *y = NULL;
      assert_ok(rows[f].function(t->ctx, x, &y));
      for (int64_t i = 0; i < x->numel; i++) assert_near(at(y, i), rows[f].twin(at(x, i)), 1e-6);
      assert_ok(rows[f].function(t->ctx, x, &x));
      for (int64_t i = 0; i < x->numel; i++) assert_true(at(x, i) == at(y, i));
      heed_tensor_free(x);
      heed_tensor_free(y);
    }
  }
}

static double reference_add(double a, double b) {
  return a + b;
}
static double reference_sub(double a, double b) {
  return a - b;
}
static double reference_mul(double a, double b) {
  return a * b;
}
static double reference_div(double a, double b) {
  return a / b;
}
static double reference_remainder(double a, double b) {
  return a - b * floor(a / b);
}
static double reference_floor_divide(double a, double b) {
  return floor(a / b);
}
#define reference_fmod    fmod
#define reference_pow     pow
#define reference_maximum fmax
#define reference_minimum fmin

static void functions_of_two_tensors_agree_with_their_references(void **state) {
  test_context *t = *state;
  static const struct {
    binary_function *function;
    double (*twin)(double, double);
  } rows[] = {
#define X(name) {heed_##name, reference_##name},
      HEED_BINARY_LIST(X)
#undef X
  };
  for (size_t f = 0; f < sizeof rows / sizeof rows[0]; f++) {
    for (size_t s = 0; s < 4 * SIZE_COUNT; s++) {
      const int64_t n = SIZES[s / 4];
      heed_tensor *a = numbers(t->ctx, n, s % 2 != 0, 4, 5), *b = numbers(t->ctx, n, s % 4 >= 2, 1, 3);
      heed_tensor *whole = NULL, *y = NULL, *z = NULL;
      assert_ok(heed_to(t->ctx, b, HEED_INT64, &whole));
      assert_ok(rows[f].function(t->ctx, a, b, &y));
      assert_ok(rows[f].function(t->ctx, whole, a, &z));
      for (int64_t i = 0; i < n; i++) {
        assert_near(at(y, i), rows[f].twin(at(a, i), at(b, i)), 2e-6);
        assert_near(at(z, i), rows[f].twin(floor(at(b, i)), at(a, i)), 2e-6);
      }
      assert_ok(rows[f].function(t->ctx, a, b, &b));
      for (int64_t i = 0; i < n; i++) assert_true(at(b, i) == at(y, i));
      heed_tensor_free(a);
      heed_tensor_free(b);
      heed_tensor_free(whole);
      heed_tensor_free(y);
      heed_tensor_free(z);
    }
  }
}

static void integers_wrap_and_never_trap(void **state) {
  test_context *t = *state;
  heed__number lowest, minus_one, two;
  const heed_tensor *x = heed__number_tensor(&lowest, heed_integer(INT64_MIN));
  const heed_tensor *m = heed__number_tensor(&minus_one, heed_integer(-1));
  heed_tensor *y = NULL;
#define GIVES(call, value)                                                                                   \
  assert_ok(call);                                                                                           \
  assert_true(*(int64_t *)heed_tensor_data(y) == (value));                                                   \
  heed_tensor_free(y);                                                                                       \
  y = NULL
  GIVES(heed_add(t->ctx, x, m, &y), INT64_MAX);
  GIVES(heed_mul(t->ctx, x, m, &y), INT64_MIN);
  GIVES(heed_remainder(t->ctx, x, m, &y), 0);
  GIVES(heed_floor_divide(t->ctx, x, m, &y), INT64_MIN);
  GIVES(heed_trunc_divide(t->ctx, x, m, &y), INT64_MIN);
  GIVES(heed_fmod(t->ctx, x, m, &y), 0);
  GIVES(heed_square(t->ctx, x, &y), 0);
  GIVES(heed_neg(t->ctx, x, &y), INT64_MIN);
  GIVES(heed_abs(t->ctx, x, &y), INT64_MIN);
  GIVES(heed_pow(t->ctx, x, heed__number_tensor(&two, heed_integer(2)), &y), 0);
#undef GIVES
  assert_fails(t->ctx, heed_remainder(t->ctx, m, heed__number_tensor(&two, heed_integer(0)), &y),
               HEED_ARGUMENT, "remainder: b contains 0; a divisor of int64 numbers must not be 0");
  assert_int_equal(heed_pow(t->ctx, x, m, &y), HEED_ARGUMENT);
  assert_null(y);
}

static void a_result_that_overlaps_its_input_is_computed_as_from_a_copy(void **state) {
  test_context *t = *state;
  heed_tensor *x = NULL, *front = NULL, *back = NULL;
  assert_ok(heed_range(t->ctx, HEED_INT64, heed_integer(1), heed_integer(600), heed_integer(1), &x));
  assert_ok(heed_narrow(t->ctx, x, 1, 1, 599, &front));
  assert_ok(heed_narrow(t->ctx, x, 1, 2, 599, &back));
  assert_ok(heed_add(t->ctx, front, front, &back)); /* x[i + 1] = 2 x[i] */
  const int64_t *data = heed_tensor_data(x);
  assert_int_equal(data[0], 1);
  for (int64_t i = 1; i < 600; i++) assert_int_equal(data[i], 2 * i);
  heed_tensor_free(x);
  heed_tensor_free(front);
  heed_tensor_free(back);
}

static void clamp_agrees_with_its_reference_for_every_result_tensor(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (size_t s = 0; s < SIZE_COUNT; s++) {
    for (int target = 0; target < 8; target++) { /* a new tensor, or x, low or high; with gaps or without */
      heed_tensor *part[3], *kept[3] = {NULL}, *out = NULL;
      for (int i = 0; i < 3; i++) {
        part[i] = numbers(ctx, SIZES[s], target >= 4, -2, 2);
        assert_ok(heed_clone(ctx, part[i], &kept[i]));
      }
      if (target % 4 > 0) out = part[target % 4 - 1];
      assert_ok(heed_clamp(ctx, part[0], part[1], part[2], &out));
      for (int64_t i = 0; i < SIZES[s]; i++)
        assert_near(at(out, i), fmin(fmax(at(kept[0], i), at(kept[1], i)), at(kept[2], i)), 0);
      if (target % 4 == 0) heed_tensor_free(out);
      for (int i = 0; i < 3; i++) {
        heed_tensor_free(part[i]);
        heed_tensor_free(kept[i]);
      }
    }
  }
}

static void the_operand_that_does_not_broadcast_is_named(void **state) {
  test_context *t = *state;
  heed_tensor *a = NULL, *b = NULL, *y = NULL;
  assert_ok(heed_full(t->ctx, HEED_FLOAT32, 2, SHAPE(2, 3), heed_number(1), &a));
  assert_ok(heed_full(t->ctx, HEED_FLOAT32, 1, SHAPE(4), heed_number(1), &b));
  assert_fails(t->ctx, heed_add(t->ctx, a, b, &y), HEED_SHAPE,
               "add: a is [2, 3] and b is [4]; to broadcast, sizes counted from the last must be equal or 1");
  heed_tensor_free(a);
  heed_tensor_free(b);
}

/* ---- Reductions and rows ---- */

static void check_sums(heed_context *ctx, const heed_tensor *x, int dim) {
  heed_tensor *sum = NULL, *var = NULL, *max = NULL, *target = NULL;
  const int d = dim - 1, other = 1 - d;
  const int64_t n = x->shape[d];
  assert_ok(heed_sum(ctx, x, 1, &dim, false, &sum));
  assert_ok(heed_var(ctx, x, 1, &dim, 1, false, &var));
  if (n > 0) assert_ok(heed_max(ctx, x, dim, false, &max, &target));
  for (int64_t r = 0; r < x->shape[other]; r++) {
    const float *lane = (const float *)x->data + r * x->stride[other];
    double total = 0, squares = 0;
    int64_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
      total += (double)lane[i * x->stride[d]];
      if (lane[i * x->stride[d]] > lane[largest * x->stride[d]]) largest = i;
    }
    for (int64_t i = 0; i < n; i++) squares += pow((double)lane[i * x->stride[d]] - total / (double)n, 2);
    assert_near(at(sum, r), total, 1e-6);
    assert_near(at(var, r), n > 1 ? squares / (double)(n - 1) : NAN, 1e-6);
    if (n > 0) assert_int_equal(((const int64_t *)target->data)[r], largest + 1);
  }
  heed_tensor_free(sum);
  heed_tensor_free(var);
  heed_tensor_free(max);
  heed_tensor_free(target);
}

static void check_softmax(heed_context *ctx, const heed_tensor *x, int dim) {
  heed_tensor *y = NULL;
  const int d = dim - 1, other = 1 - d;
  assert_ok(heed_softmax(ctx, x, dim, &y));
  for (int64_t r = 0; r < x->shape[other]; r++) {
    const float *lane = (const float *)x->data + r * x->stride[other];
    const float *got = (const float *)y->data + r * y->stride[other];
    double total = 0;
    for (int64_t i = 0; i < x->shape[d]; i++) total += exp((double)lane[i * x->stride[d]]);
    for (int64_t i = 0; i < x->shape[d]; i++)
      assert_near((double)got[i * y->stride[d]], exp((double)lane[i * x->stride[d]]) / total, 1e-6);
  }
  heed_tensor_free(y);
}

static void sums_extremes_and_softmax_agree_with_their_references_in_both_directions(void **state) {
  test_context *t = *state;
  for (size_t s = 0; s < SIZE_COUNT; s++) {
    heed_tensor *x = NULL, *turned = NULL;
    assert_ok(heed_uniform(t->ctx, NULL, -1, 1, 2, SHAPE(SIZES[s], 5), &x));
    assert_ok(heed_transpose(t->ctx, x, 1, 2, &turned));
    for (int dim = 1; dim <= 2; dim++) {
      check_sums(t->ctx, x, dim);
      check_sums(t->ctx, turned, dim);
      check_softmax(t->ctx, x, dim);
      check_softmax(t->ctx, turned, dim);
    }
    heed_tensor_free(x);
    heed_tensor_free(turned);
  }
}

static void reductions_of_nothing_are_neutral(void **state) {
  test_context *t = *state;
  heed_tensor *x = NULL, *sum = NULL, *mean = NULL, *any = NULL, *all = NULL, *max = NULL;
  assert_ok(heed_tensor_new(t->ctx, HEED_FLOAT32, 1, SHAPE(0), &x));
  assert_ok(heed_sum(t->ctx, x, 0, NULL, false, &sum));
  assert_ok(heed_mean(t->ctx, x, 0, NULL, false, &mean));
  assert_ok(heed_any(t->ctx, x, 0, NULL, false, &any));
  assert_ok(heed_all(t->ctx, x, 0, NULL, false, &all));
  assert_true(*(float *)heed_tensor_data(sum) == 0);
  assert_true(isnan(*(float *)heed_tensor_data(mean)));
  assert_int_equal(*(uint8_t *)heed_tensor_data(any), 0);
  assert_int_equal(*(uint8_t *)heed_tensor_data(all), 1);
  assert_fails(t->ctx, heed_max(t->ctx, x, 0, false, &max, NULL), HEED_SHAPE,
               "max: x is [0]; dimension 1 must have at least 1 element");
  heed_tensor_free(x);
  heed_tensor_free(sum);
  heed_tensor_free(mean);
  heed_tensor_free(any);
  heed_tensor_free(all);
}

/* ---- Sorting ---- */

static void sorting_is_stable_and_topk_is_its_beginning(void **state) {
  test_context *t = *state;
  for (size_t s = 0; s < 2 * SIZE_COUNT; s++) {
    const int64_t n = SIZES[s / 2], k = n / 3;
    const bool descending = s % 2 != 0;
    heed_tensor *x = NULL, *values = NULL, *indices = NULL, *best = NULL, *best_indices = NULL;
    assert_ok(heed_randint(t->ctx, NULL, 1, 9, 1, SHAPE(n), &x));
    assert_ok(heed_sort(t->ctx, x, 1, descending, &values, &indices));
    assert_ok(heed_topk(t->ctx, x, k, 1, descending, &best, &best_indices));
    const int64_t *from = heed_tensor_data(x), *value = heed_tensor_data(values),
                  *target = heed_tensor_data(indices);
    for (int64_t i = 0; i < n; i++) {
      assert_int_equal(value[i], from[target[i] - 1]);
      if (i == 0) continue;
      assert_true(value[i] == value[i - 1] ? target[i] > target[i - 1]
                                           : (value[i] < value[i - 1]) == descending);
    }
    if (k > 0) assert_memory_equal(heed_tensor_data(best_indices), target, (size_t)k * sizeof *target);
    heed_tensor_free(x);
    heed_tensor_free(values);
    heed_tensor_free(indices);
    heed_tensor_free(best);
    heed_tensor_free(best_indices);
  }
}

static void topk_of_floats_is_the_beginning_of_sort_with_nan_inf_and_ties(void **state) {
  test_context *t = *state;
  const float values[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1.5f, -1.5f, 2.0f, -2.0f, 1e-40f};
  const int64_t lanes[] = {1, 2, 100, 4096, 4200, 9000};
  for (int turn = 0; turn < 24; turn++) {
    const int64_t n = lanes[turn / 4], k = n < 7 ? n : 7;
    const bool descending = turn % 2 != 0, common = turn % 4 < 2; /* nan is rare if most numbers are equal */
    heed_tensor *x = NULL, *whole = NULL, *best = NULL, *all = NULL, *indices = NULL, *part = NULL;
    assert_ok(heed_uniform(t->ctx, NULL, -2, 2, 2, SHAPE(n, 3), &x));
    float *data = heed_tensor_data(x);
    for (int64_t i = 0; i < 3 * n; i++)
      if (!common || i % 97 == 0) data[i] = values[(uint64_t)i * 2654435761u % 1009 % 10];
    assert_ok(heed_sort(t->ctx, x, 1, descending, &whole, &all));
    assert_ok(heed_topk(t->ctx, x, k, 1, descending, &best, &indices));
    assert_ok(heed_narrow(t->ctx, all, 1, 1, k, &part));
    bool same = false;
    assert_ok(heed_equal(t->ctx, part, indices, &same));
    assert_true(same);
    heed_tensor *const made[] = {x, whole, best, all, indices, part};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) heed_tensor_free(made[i]);
  }
}

/* ---- Without memory ---- */

static heed_status everything_at_once(heed_context *ctx) {
  heed_tensor *x = NULL, *turned = NULL, *mask = NULL, *index = NULL, *result = NULL, *indices = NULL;
  heed__number zero;
  const heed_tensor *pair[2];
  heed_status status = heed_uniform(ctx, NULL, -1, 1, 2, SHAPE(3, 1100), &x);
  if (status != HEED_OK) goto done;
  status = heed_transpose(ctx, x, 1, 2, &turned);
  if (status != HEED_OK) goto done;
  status = heed_full(ctx, HEED_INT64, 1, SHAPE(4), heed_integer(-1), &index);
  if (status != HEED_OK) goto done;
  status = heed_gt(ctx, x, heed__number_tensor(&zero, heed_number(0)), &mask);
  if (status != HEED_OK) goto done;
  pair[0] = pair[1] = x;
#define STEP(call)                                                                                           \
  status = (call);                                                                                           \
  heed_tensor_free(result);                                                                                  \
  heed_tensor_free(indices);                                                                                 \
  result = indices = NULL;                                                                                   \
  if (status != HEED_OK) goto done
  STEP(heed_exp(ctx, turned, &result));
  STEP(heed_clamp(ctx, x, x, x, &result));
  STEP(heed_masked_fill(ctx, x, mask, heed_number(1), &result));
  STEP(heed_sum(ctx, x, 0, NULL, true, &result));
  STEP(heed_max(ctx, x, 1, false, &result, &indices));
  STEP(heed_min(ctx, x, 1, false, &result, NULL));
  STEP(heed_softmax(ctx, turned, 1, &result));
  STEP(heed_sort(ctx, x, 2, true, &result, &indices));
  STEP(heed_topk(ctx, x, 100, 2, true, &result, NULL));
  STEP(heed_index_select(ctx, x, 1, index, &result));
  STEP(heed_masked_select(ctx, x, mask, &result));
  STEP(heed_masked_assign(ctx, mask, mask, &zero.tensor));
  STEP(heed_repeat_interleave(ctx, turned, 2, 0, &result));
  STEP(heed_cat(ctx, 2, pair, 1, &result));
  STEP(heed_stack(ctx, 2, pair, 1, &result));
  STEP(heed_add(ctx, turned, turned, &turned));
#undef STEP
done:
  heed_tensor_free(x);
  heed_tensor_free(turned);
  heed_tensor_free(mask);
  heed_tensor_free(index);
  return status;
}

static void linspace_counts_from_ends_that_are_floats(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  volatile float ends[] = {-1.3f, 7.7f}, step = 7.7f - -1.3f;
  step = step / 1000;
  heed_tensor *x = NULL;
  assert_ok(heed_linspace(ctx, HEED_FLOAT32, -1.3, 7.7, 1001, &x));
  const float *found = heed_tensor_data(x);
  for (int i = 0; i < 500; i++) {
    assert_true(found[i] == (float)(ends[0] + (double)step * i));
    assert_true(found[1000 - i] == (float)(ends[1] - (double)step * i));
  }
  heed_tensor_free(x);
}

static void every_operation_survives_every_failing_allocation(void **state) {
  (void)state;
  survives_every_failing_allocation(everything_at_once);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(functions_of_one_tensor_agree_with_their_references),
      TEST(functions_of_two_tensors_agree_with_their_references),
      TEST(integers_wrap_and_never_trap),
      TEST(a_result_that_overlaps_its_input_is_computed_as_from_a_copy),
      TEST(clamp_agrees_with_its_reference_for_every_result_tensor),
      TEST(the_operand_that_does_not_broadcast_is_named),
      TEST(sums_extremes_and_softmax_agree_with_their_references_in_both_directions),
      TEST(reductions_of_nothing_are_neutral),
      TEST(sorting_is_stable_and_topk_is_its_beginning),
      TEST(topk_of_floats_is_the_beginning_of_sort_with_nan_inf_and_ties),
      TEST(linspace_counts_from_ends_that_are_floats),
      TEST(every_operation_survives_every_failing_allocation),
  };
  return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
