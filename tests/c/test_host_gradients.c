/* Gradients that functions and hooks of a host give: only those that fit are accepted, and after an error
 * every gradient is as before. */
#include "support.h"

#include <string.h>

enum { ROWS = 2, COLUMNS = 3 };

/* What a function gives as the gradient of its input. */
typedef struct given {
  heed_context *ctx, *other;
  heed_dtype dtype;
  int ndim;
  const int64_t *shape;
  heed_status status;
  int released;
} given;

static heed_status give_gradient(void *user, int outputs, const heed_tensor *const *dy, int inputs,
                                 heed_tensor **dx) {
  const given *g = user;
  (void)outputs, (void)dy, (void)inputs;
  if (g->status != HEED_OK) return g->status;
  return heed_full(g->other != NULL ? g->other : g->ctx, g->dtype, g->ndim, g->shape, heed_integer(3),
                   &dx[0]);
}

static void count_release(void *user) {
  ((given *)user)->released++;
}

/* A leaf [ROWS, COLUMNS] with the gradient 1, and *y, which a function of g's computed from it. */
static heed_tensor *leaf_with_function(heed_context *ctx, given *g, heed_dtype dtype, heed_tensor **y) {
  heed_tensor *x = NULL, *ones = NULL;
  const heed_tensor *input[1];
  const heed_function f = {
      .size = sizeof f, .name = "Triple", .backward = give_gradient, .release = count_release, .user = g};
  bool recorded = false;
  const bool before = heed_set_recording(ctx, true);
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(ROWS, COLUMNS), heed_number(2), &x));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(ROWS, COLUMNS), heed_number(1), &ones));
  assert_ok(heed_tensor_require_grad(x, true));
  assert_ok(heed_tensor_set_grad(x, ones));
  heed_tensor_free(ones);
  assert_ok(heed_full(ctx, dtype, 2, SHAPE(ROWS, COLUMNS), heed_number(6), y));
  input[0] = x;
  assert_ok(heed_record(ctx, &f, 1, input, 1, y, &recorded));
  assert_true(recorded);
  heed_set_recording(ctx, before);
  return x;
}

static heed_status go_backward(heed_context *ctx, const heed_tensor *y) {
  heed_tensor *dy = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(ROWS, COLUMNS), heed_number(1), &dy));
  const heed_tensor *const given_dy[] = {dy};
  const heed_status status = heed_backward(ctx, 1, &y, given_dy, NULL);
  heed_tensor_free(dy);
  return status;
}

static float first_of_gradient(const heed_tensor *x) {
  return *(const float *)heed_tensor_data(heed_tensor_grad(x));
}

/* The pass fails with `wanted` in its message, and passes once g gives what fits. */
static void fails_then_passes(heed_context *ctx, given g, const char *wanted) {
  heed_tensor *y = NULL, *x = leaf_with_function(ctx, &g, HEED_FLOAT32, &y);
  assert_int_not_equal(go_backward(ctx, y), HEED_OK);
  if (strstr(heed_message(ctx), wanted) == NULL) fail_msg("%s", heed_message(ctx));
  assert_true(first_of_gradient(x) == 1);
  g = (given){.ctx = ctx, .dtype = HEED_FLOAT32, .ndim = 2, .shape = SHAPE(ROWS, COLUMNS)};
  assert_ok(go_backward(ctx, y));
  assert_true(first_of_gradient(x) == 4);
  assert_int_equal(g.released, 1);
  heed_tensor_free(y);
  heed_tensor_free(x);
  assert_int_equal(g.released, 1);
}

static void gradients_of_functions_must_fit(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  fails_then_passes(ctx, (given){.ctx = ctx, .dtype = HEED_INT64, .ndim = 2, .shape = SHAPE(ROWS, COLUMNS)},
                    "Triple: gradient 0 is int64 [2, 3]; it must be float32 [2, 3], the shape of x[0]");
  fails_then_passes(ctx, (given){.ctx = ctx, .dtype = HEED_FLOAT32, .ndim = 1, .shape = SHAPE(6)},
                    "Triple: gradient 0 is float32 [6]");
  fails_then_passes(ctx, (given){.ctx = ctx, .dtype = HEED_FLOAT32, .ndim = 2, .shape = SHAPE(COLUMNS, ROWS)},
                    "Triple: gradient 0 is float32 [3, 2]");
  fails_then_passes(ctx,
                    (given){.ctx = ctx, .dtype = HEED_FLOAT32, .ndim = 3, .shape = SHAPE(4, ROWS, COLUMNS)},
                    "Triple: gradient 0 is float32 [4, 2, 3]");
}

static heed_status change_gradient(void *user, const heed_tensor *gradient, heed_tensor **out) {
  const given *g = user;
  (void)gradient;
  if (g->status != HEED_OK) return g->status;
  return heed_full(g->other != NULL ? g->other : g->ctx, g->dtype, g->ndim, g->shape, heed_integer(5), out);
}

static void gradients_of_other_contexts_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  given g = {.ctx = ctx, .dtype = HEED_FLOAT32, .ndim = 2, .shape = SHAPE(ROWS, COLUMNS)};
  heed_context *other = NULL;
  int64_t id;
  assert_ok(heed_context_new(NULL, &other));
  g.other = other;
  fails_then_passes(ctx, g, "Triple: gradient 0 is of another context");
  heed_tensor *x = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(ROWS, COLUMNS), heed_number(2), &x));
  assert_ok(heed_tensor_require_grad(x, true));
  assert_ok(heed_tensor_add_hook(x, change_gradient, NULL, &g, &id));
  assert_int_equal(go_backward(ctx, x), HEED_ARGUMENT);
  assert_non_null(strstr(heed_message(ctx), "the hook gave a tensor of another context"));
  heed_tensor_free(x);
  heed_context_free(other);
}

static void failing_functions_are_named(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *bad = NULL;
  assert_int_not_equal(heed_full(ctx, HEED_FLOAT32, -1, NULL, heed_number(0), &bad), HEED_OK);
  fails_then_passes(ctx, (given){.ctx = ctx, .status = HEED_ARGUMENT},
                    "Triple: the gradient failed without a message");
}

static void gradients_of_hooks_must_fit(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  given g = {.ctx = ctx, .dtype = HEED_FLOAT32, .ndim = 1, .shape = SHAPE(6)};
  heed_tensor *x = NULL;
  int64_t id;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(ROWS, COLUMNS), heed_number(2), &x));
  assert_ok(heed_tensor_require_grad(x, true));
  assert_ok(heed_tensor_add_hook(x, change_gradient, count_release, &g, &id));
  assert_int_equal(go_backward(ctx, x), HEED_SHAPE);
  assert_null(heed_tensor_grad(x));
  g.status = HEED_ARGUMENT;
  assert_int_equal(go_backward(ctx, x), HEED_ARGUMENT);
  assert_non_null(strstr(heed_message(ctx), "the hook failed without a message"));
  g = (given){.ctx = ctx, .dtype = HEED_FLOAT32, .ndim = 2, .shape = SHAPE(ROWS, COLUMNS)};
  assert_ok(go_backward(ctx, x));
  assert_true(first_of_gradient(x) == 5);
  heed_tensor_free(x);
  assert_int_equal(g.released, 1);
}

static void functions_give_low_precision(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  given g = {.ctx = ctx, .dtype = HEED_FLOAT32, .ndim = 2, .shape = SHAPE(ROWS, COLUMNS)};
  heed_tensor *y = NULL, *x = leaf_with_function(ctx, &g, HEED_BFLOAT16, &y);
  assert_ok(go_backward(ctx, y));
  assert_true(first_of_gradient(x) == 4);
  heed_tensor_free(y);
  heed_tensor_free(x);
}

static void ids_that_the_host_has_changed_are_checked(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  int64_t ids[] = {1, 3, 2};
  heed_tensor *weight = NULL, *index = NULL, *y = NULL, *sum = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(3, COLUMNS), heed_number(2), &weight));
  assert_ok(heed_tensor_require_grad(weight, true));
  assert_ok(heed_tensor_from_memory(ctx, HEED_INT64, 1, SHAPE(3), ids, NULL, NULL, &index));
  heed_set_recording(ctx, true);
  assert_ok(heed_embedding(ctx, index, weight, &y));
  assert_ok(heed_sum(ctx, y, 0, NULL, false, &sum));
  heed_set_recording(ctx, false);
  const heed_tensor *const loss[] = {sum};
  const int64_t wrong[] = {0, 4, -1, INT64_MAX};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ids[1] = wrong[i];
    assert_int_equal(heed_backward(ctx, 1, loss, NULL, NULL), HEED_INDEX);
    assert_null(heed_tensor_grad(weight));
  }
  ids[1] = 1;
  assert_ok(heed_backward(ctx, 1, loss, NULL, NULL));
  assert_true(first_of_gradient(weight) == 2);
  heed_tensor *const all[] = {weight, index, y, sum};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
}

static void a_pass_in_slices_needs_a_tensor(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_backward_steps *steps = NULL;
  const heed_tensor *none = NULL;
  assert_int_equal(heed_backward_steps_new(ctx, 0, &none, NULL, NULL, &steps), HEED_ARGUMENT);
  assert_string_equal(heed_message(ctx), "backward_steps: count is 0; it must be 1 or more");
  assert_int_equal(heed_backward_steps_new(ctx, -1, &none, NULL, NULL, &steps), HEED_ARGUMENT);
  assert_null(steps);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(gradients_of_functions_must_fit),
      TEST(gradients_of_other_contexts_are_refused),
      TEST(failing_functions_are_named),
      TEST(gradients_of_hooks_must_fit),
      TEST(functions_give_low_precision),
      TEST(a_pass_in_slices_needs_a_tensor),
      TEST(ids_that_the_host_has_changed_are_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
