/* Backward passes in slices, through C: the gradients of heed_backward, other passes in between, failing
 * allocators, cancellation, hooks, and functions of the host. */
#include "support.h"

#include <math.h>
#include <string.h>

enum { SIZE = 6 };

static heed_tensor *leaf_of(heed_context *ctx, float first) {
  heed_tensor *x = NULL;
  if (heed_tensor_new(ctx, HEED_FLOAT32, 1, SHAPE(SIZE), &x) != HEED_OK) return NULL;
  float *data = heed_tensor_data(x);
  for (int i = 0; i < SIZE; i++) data[i] = first + 0.25f * (float)i;
  if (heed_tensor_require_grad(x, true) == HEED_OK) return x;
  heed_tensor_free(x);
  return NULL;
}

/* *loss = the sum of ((x · x) + x) · exp(x). */
static heed_status compute(heed_context *ctx, const heed_tensor *x, heed_tensor **loss) {
  heed_tensor *square = NULL, *sum = NULL, *power = NULL, *product = NULL;
  const bool before = heed_set_recording(ctx, true);
  heed_status status = heed_mul(ctx, x, x, &square);
  if (status == HEED_OK) status = heed_add(ctx, square, x, &sum);
  if (status == HEED_OK) status = heed_exp(ctx, x, &power);
  if (status == HEED_OK) status = heed_mul(ctx, sum, power, &product);
  if (status == HEED_OK) status = heed_sum(ctx, product, 0, NULL, false, loss);
  heed_set_recording(ctx, before);
  heed_tensor_free(square);
  heed_tensor_free(sum);
  heed_tensor_free(power);
  heed_tensor_free(product);
  return status;
}

static const float *gradient(const heed_tensor *x) {
  return heed_tensor_data(heed_tensor_grad(x));
}

static void slices_give_the_same_bits(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = leaf_of(ctx, -1), *loss = NULL;
  const heed_backward_options options = {.size = sizeof options, .retain_graph = true};
  assert_ok(compute(ctx, x, &loss));
  const heed_tensor *y = loss;
  assert_ok(heed_backward(ctx, 1, &y, NULL, &options));
  float expected[SIZE];
  memcpy(expected, gradient(x), sizeof expected);
  for (int i = 0; i < SIZE; i++) {
    const double v = -1 + 0.25 * i, wanted = (2 * v + 1 + v * v + v) * exp(v);
    assert_true(fabs(wanted - (double)expected[i]) <= 2e-6 * 20);
  }
  assert_ok(heed_tensor_set_grad(x, NULL));
  heed_backward_steps *steps = NULL;
  assert_ok(heed_backward_steps_new(ctx, 1, &y, NULL, &options, &steps));
  int64_t done = -1, total = 0;
  heed_backward_steps_progress(steps, &done, &total);
  assert_int_equal(done, 0);
  assert_int_equal(total, 6); /* sum, mul, exp, add, mul, and the end */
  bool is_done = false;
  for (int64_t i = 1; !is_done; i++) {
    assert_null(heed_tensor_grad(x));
    assert_ok(heed_backward_steps_advance(steps, 0, &is_done));
    heed_backward_steps_progress(steps, &done, NULL);
    assert_int_equal(done, i);
  }
  assert_int_equal(done, total);
  assert_memory_equal(expected, gradient(x), sizeof expected);
  assert_ok(heed_backward_steps_advance(steps, 0, &is_done)); /* nothing is left */
  assert_true(is_done);
  heed_backward_steps_free(steps);
  heed_tensor_free(loss);
  heed_tensor_free(x);
}

static void other_passes_come_between(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = leaf_of(ctx, 1), *loss = NULL;
  const heed_backward_options options = {.size = sizeof options, .retain_graph = true};
  assert_ok(compute(ctx, x, &loss));
  const heed_tensor *y = loss;
  heed_backward_steps *steps = NULL, *left = NULL;
  bool done = false;
  assert_ok(heed_backward_steps_new(ctx, 1, &y, NULL, &options, &steps));
  assert_ok(heed_backward_steps_new(ctx, 1, &y, NULL, &options, &left));
  assert_ok(heed_backward_steps_advance(steps, 0, &done));
  assert_ok(heed_backward_steps_advance(left, 0, &done));
  assert_ok(heed_backward_steps_advance(left, 0, &done));
  assert_ok(heed_backward(ctx, 1, &y, NULL, &options));
  float once[SIZE];
  memcpy(once, gradient(x), sizeof once);
  heed_backward_steps_free(left); /* in the middle */
  assert_memory_equal(once, gradient(x), sizeof once);
  assert_ok(heed_backward_steps_advance(steps, 1e9, &done));
  assert_true(done);
  for (int i = 0; i < SIZE; i++) assert_true(gradient(x)[i] == 2 * once[i]);
  heed_backward_steps_free(steps);
  /* a pass that gives back what was saved ends another one, with an error and without any change */
  assert_ok(heed_backward_steps_new(ctx, 1, &y, NULL, NULL, &steps));
  assert_ok(heed_backward_steps_advance(steps, 0, &done));
  assert_ok(heed_tensor_set_grad(x, NULL));
  assert_ok(heed_backward(ctx, 1, &y, NULL, NULL));
  assert_int_equal(heed_backward_steps_advance(steps, 1e9, &done), HEED_ARGUMENT);
  assert_non_null(strstr(heed_message(ctx), "freed by an earlier backward pass"));
  assert_memory_equal(once, gradient(x), sizeof once);
  assert_int_equal(heed_backward_steps_advance(steps, 1e9, &done), HEED_ARGUMENT);
  assert_non_null(strstr(heed_message(ctx), "an earlier slice has failed"));
  heed_backward_steps_free(steps);
  heed_backward_steps_free(NULL);
  heed_tensor_free(loss);
  heed_tensor_free(x);
}

static void mistakes_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = leaf_of(ctx, 1), *loss = NULL;
  heed_backward_steps *steps = NULL;
  bool done = false;
  assert_ok(compute(ctx, x, &loss));
  const heed_tensor *y = x;
  assert_int_equal(heed_backward_steps_new(ctx, 1, &y, NULL, NULL, &steps), HEED_SHAPE);
  assert_null(steps);
  assert_int_equal(heed_backward_steps_new(ctx, 1, NULL, NULL, NULL, &steps), HEED_ARGUMENT);
  y = loss;
  assert_ok(heed_backward_steps_new(ctx, 1, &y, NULL, NULL, &steps));
  assert_int_equal(heed_backward_steps_advance(steps, (double)NAN, &done), HEED_ARGUMENT);
  assert_int_equal(heed_backward_steps_advance(NULL, 1, &done), HEED_ARGUMENT);
  heed_tensor_free(loss); /* the pass holds what it needs */
  assert_ok(heed_backward_steps_advance(steps, 1e9, &done));
  assert_true(done);
  heed_backward_steps_free(steps);
  heed_tensor_free(x);
}

static void cancelled_in_the_middle(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = leaf_of(ctx, 1), *loss = NULL;
  const heed_backward_options options = {.size = sizeof options, .retain_graph = true};
  assert_ok(compute(ctx, x, &loss));
  const heed_tensor *y = loss;
  heed_backward_steps *steps = NULL;
  bool done = false;
  assert_ok(heed_backward_steps_new(ctx, 1, &y, NULL, &options, &steps));
  assert_ok(heed_backward_steps_advance(steps, 0, &done));
  heed_cancel(ctx);
  assert_int_equal(heed_backward_steps_advance(steps, 1e9, &done), HEED_CANCELLED);
  heed_clear_cancel(ctx);
  assert_null(heed_tensor_grad(x));
  heed_backward_steps_free(steps);
  assert_ok(heed_backward(ctx, 1, &y, NULL, NULL));
  assert_non_null(heed_tensor_grad(x));
  heed_tensor_free(loss);
  heed_tensor_free(x);
}

/* A hook that removes itself and the next one. */
typedef struct removing {
  heed_tensor *x;
  int64_t id[2];
  int calls, released;
} removing;

static heed_status remove_both(void *user, const heed_tensor *dx, heed_tensor **out) {
  (void)dx;
  (void)out;
  removing *r = user;
  r->calls++;
  for (int i = 0; i < 2; i++) heed_tensor_remove_hook(r->x, r->id[i]);
  return HEED_OK;
}

static void count_release(void *user) {
  removing *r = user;
  r->released++;
}

static void hooks_may_be_removed_in_a_pass(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = leaf_of(ctx, 1), *loss = NULL;
  removing r = {.x = x};
  for (int i = 0; i < 2; i++) assert_ok(heed_tensor_add_hook(x, remove_both, count_release, &r, &r.id[i]));
  for (int i = 0; i < 2; i++) {
    assert_ok(compute(ctx, x, &loss));
    const heed_tensor *y = loss;
    assert_ok(heed_backward(ctx, 1, &y, NULL, NULL));
    heed_tensor_free(loss);
    loss = NULL;
  }
  assert_int_equal(r.calls, 1);
  assert_int_equal(r.released, 2);
  heed_tensor_free(x);
  assert_int_equal(r.released, 2);
}

/* A hook that removes itself leaves nothing on a leaf that lives long. */
static void removed_hooks_take_no_memory(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = leaf_of(ctx, 1);
  removing r = {.x = x};
  size_t bytes = 0;
  for (int i = 0; i < 40; i++) {
    heed_tensor *loss = NULL;
    assert_ok(heed_tensor_add_hook(x, remove_both, count_release, &r, &r.id[i % 2]));
    assert_ok(compute(ctx, x, &loss));
    const heed_tensor *y = loss;
    assert_ok(heed_backward(ctx, 1, &y, NULL, NULL));
    heed_tensor_free(loss);
    assert_int_equal(r.calls, i + 1);
    if (i == 10) bytes = heed_memory_in_use(ctx);
    if (i > 10) assert_int_equal(heed_memory_in_use(ctx), bytes);
  }
  assert_true(r.id[1] == 40);
  heed_tensor_free(x);
}

static heed_status slices_with_little_memory(heed_context *ctx) {
  heed_tensor *x = leaf_of(ctx, 1), *loss = NULL;
  heed_backward_steps *steps = NULL;
  bool done = false;
  heed_status status = x != NULL ? compute(ctx, x, &loss) : HEED_MEMORY;
  const heed_tensor *y = loss;
  if (status == HEED_OK) status = heed_backward_steps_new(ctx, 1, &y, NULL, NULL, &steps);
  while (status == HEED_OK && !done) {
    status = heed_backward_steps_advance(steps, 0, &done);
    assert_true(done == (heed_tensor_grad(x) != NULL));
  }
  heed_backward_steps_free(steps);
  if (status == HEED_MEMORY && loss != NULL) assert_ok(heed_backward(ctx, 1, &y, NULL, NULL)); /* again */
  heed_tensor_free(loss);
  heed_tensor_free(x);
  return status;
}

static void slices_survive_failing_allocations(void **state) {
  (void)state;
  survives_every_failing_allocation(slices_with_little_memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(slices_give_the_same_bits),
      TEST(other_passes_come_between),
      TEST(mistakes_are_refused),
      TEST(cancelled_in_the_middle),
      TEST(hooks_may_be_removed_in_a_pass),
      TEST(removed_hooks_take_no_memory),
      cmocka_unit_test(slices_survive_failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
