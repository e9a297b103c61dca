/* Cancellation, time slices and deadlines: which tasks run, and what calls return. */
#include "support.h"

#include "../../src/attention/attention.h"

#include <math.h>

/* ---- Tasks ---- */

enum { TASKS = 2000 };

typedef struct notes {
  heed_context *ctx;
  int64_t cancel_at; /* the task that cancels */
  _Atomic(int) begun, ended;
} notes;

static void note(void *argument, int64_t i, int worker) {
  notes *n = argument;
  (void)worker;
  n->begun++;
  if (i == n->cancel_at) heed_cancel(n->ctx);
  n->ended++;
}

static void a_cancellation_skips_tasks_and_waits_for_running_ones(void **state) {
  test_context *t = *state;
  for (int64_t threads = 1; threads <= 3; threads++) {
    assert_ok(heed_set_num_threads(t->ctx, threads));
    notes n = {.ctx = t->ctx, .cancel_at = 20};
    assert_false(heed__parallel(t->ctx, TASKS, note, &n));
    assert_int_equal(n.begun, n.ended);
    assert_in_range(n.begun, 21, TASKS - 1);
    assert_fails(t->ctx, heed__stopped(t->ctx, "f"), HEED_CANCELLED, "f: cancelled by heed_cancel");

    n = (notes){.ctx = t->ctx, .cancel_at = TASKS};
    assert_true(heed__parallel(t->ctx, TASKS, note, &n));
    assert_int_equal(n.ended, TASKS);
  }
}

static void a_time_slice_ends_without_an_error(void **state) {
  test_context *t = *state;
  notes n = {.ctx = t->ctx, .cancel_at = TASKS};
  heed__set_slice(t->ctx, heed_clock());
  assert_false(heed__parallel(t->ctx, TASKS, note, &n));
  assert_int_equal(n.begun, 0);
  assert_ok(heed__stopped(t->ctx, "f"));
  heed__set_slice(t->ctx, INFINITY);
  assert_true(heed__parallel(t->ctx, TASKS, note, &n));
}

static void held_work_runs_to_its_end(void **state) {
  test_context *t = *state;
  notes n = {.ctx = t->ctx, .cancel_at = 0};
  t->ctx->pace.held = true;
  assert_true(heed__parallel(t->ctx, TASKS, note, &n));
  assert_int_equal(n.ended, TASKS);
  t->ctx->pace.held = false;
  assert_false(heed__parallel(t->ctx, TASKS, note, &n));
  heed_clear_cancel(t->ctx);
  n.cancel_at = TASKS;
  assert_true(heed__parallel(t->ctx, 1, note, &n));
}

/* ---- Deadlines ---- */

static void a_deadline_stops_all_calls_until_it_is_set_again(void **state) {
  test_context *t = *state;
  heed_tensor *x = NULL;
  const heed_scalar one = heed_number(1);
  assert_ok(heed_set_deadline(t->ctx, 1e-9));
  for (int i = 0; i < 3; i++) {
    assert_fails(t->ctx, heed_full(t->ctx, HEED_FLOAT32, 1, SHAPE(3), one, &x), HEED_LIMIT,
                 "full: time limit exceeded: 1e-09 s since the deadline was set");
    assert_null(x);
  }
  assert_ok(heed_set_deadline(t->ctx, 1000));
  assert_ok(heed_full(t->ctx, HEED_FLOAT32, 1, SHAPE(3), one, &x));
  assert_ok(heed_set_deadline(t->ctx, 0));
  assert_ok(heed_full(t->ctx, HEED_FLOAT32, 1, SHAPE(3), one, &x));
  heed_tensor_free(x);
}

static void a_deadline_must_be_finite_and_not_negative(void **state) {
  test_context *t = *state;
  assert_fails(t->ctx, heed_set_deadline(t->ctx, -1), HEED_ARGUMENT,
               "set_deadline: seconds is -1; it must be 0 (no deadline) or more, and finite");
  assert_int_equal(heed_set_deadline(t->ctx, NAN), HEED_ARGUMENT);
  assert_int_equal(heed_set_deadline(t->ctx, INFINITY), HEED_ARGUMENT);
  assert_int_equal(heed_set_deadline(NULL, 1), HEED_ARGUMENT);
}

/* ---- Work ---- */

static heed_limits limits_of(heed_context *ctx) {
  heed_limits limits = {.size = sizeof limits};
  assert_ok(heed_get_limits(ctx, &limits));
  return limits;
}

static void a_budget_of_work_is_used_up_by_all_calls_together(void **state) {
  test_context *t = *state;
  heed_tensor *x = NULL, *y = NULL;
  heed_limits limits = {.size = sizeof limits, .work = 101 + 201};
  assert_ok(heed_set_limits(t->ctx, &limits));
  assert_ok(heed_full(t->ctx, HEED_FLOAT32, 2, SHAPE(10, 10), heed_number(1), &x));
  assert_int_equal(limits_of(t->ctx).work, 201);
  assert_ok(heed_exp(t->ctx, x, &y));
  assert_int_equal(limits_of(t->ctx).work, HEED_NO_WORK);
  for (int i = 0; i < 2; i++)
    assert_fails(t->ctx, heed_exp(t->ctx, x, &y), HEED_LIMIT,
                 "exp: work limit exceeded: 201 units were needed and 0 were left");
  const heed_limits left = limits_of(t->ctx); /* what was read can be set: it is no refill */
  assert_ok(heed_set_limits(t->ctx, &left));
  assert_int_equal(heed_exp(t->ctx, x, &y), HEED_LIMIT);
  assert_int_equal(heed_check_stop(t->ctx, "wait"), HEED_LIMIT);
  assert_ok(heed_set_limits(t->ctx, &limits));
  assert_ok(heed_exp(t->ctx, x, &y));
  limits.work = 0;
  assert_ok(heed_set_limits(t->ctx, &limits));
  assert_ok(heed_exp(t->ctx, x, &y));
  limits.work = -2;
  assert_int_equal(heed_set_limits(t->ctx, &limits), HEED_ARGUMENT);
  limits.work = ((int64_t)1 << 53) + 1;
  assert_int_equal(heed_set_limits(t->ctx, &limits), HEED_ARGUMENT);
  limits.work = 0;
  limits.map = (heed_mapping)3;
  assert_fails(t->ctx, heed_set_limits(t->ctx, &limits), HEED_ARGUMENT,
               "set_limits: map is 3; it must be HEED_MAP_UNLESS_FINAL, _ALWAYS or _NEVER");
  heed_tensor_free(x);
  heed_tensor_free(y);
}

static void work_that_must_not_be_interrupted_ends_and_the_next_call_does_not(void **state) {
  test_context *t = *state;
  heed_tensor *x = NULL;
  const heed_limits limits = {.size = sizeof limits, .work = 1};
  assert_ok(heed_set_limits(t->ctx, &limits));
  t->ctx->pace.held = true;
  assert_ok(heed_full(t->ctx, HEED_FLOAT32, 1, SHAPE(10), heed_number(1), &x));
  t->ctx->pace.held = false;
  assert_int_equal(heed_full(t->ctx, HEED_FLOAT32, 1, SHAPE(10), heed_number(1), &x), HEED_LIMIT);
  heed_tensor_free(x);
}

/* ---- Cancellation ---- */

static void a_cancellation_stops_the_next_call_once(void **state) {
  test_context *t = *state;
  heed_tensor *x = NULL, *y = NULL;
  assert_ok(heed_full(t->ctx, HEED_FLOAT32, 1, SHAPE(3), heed_number(1), &x));
  heed_cancel(t->ctx);
  assert_fails(t->ctx, heed_exp(t->ctx, x, &y), HEED_CANCELLED, "exp: cancelled by heed_cancel");
  assert_null(y);
  assert_ok(heed_exp(t->ctx, x, &y));
  heed_cancel(t->ctx);
  heed_clear_cancel(t->ctx);
  assert_ok(heed_exp(t->ctx, x, &y));
  heed_cancel(NULL);
  heed_clear_cancel(NULL);
  heed_tensor_free(x);
  heed_tensor_free(y);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_cancellation_skips_tasks_and_waits_for_running_ones),
      TEST(a_time_slice_ends_without_an_error),
      TEST(held_work_runs_to_its_end),
      TEST(a_deadline_stops_all_calls_until_it_is_set_again),
      TEST(a_deadline_must_be_finite_and_not_negative),
      TEST(a_budget_of_work_is_used_up_by_all_calls_together),
      TEST(work_that_must_not_be_interrupted_ends_and_the_next_call_does_not),
      TEST(a_cancellation_stops_the_next_call_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
