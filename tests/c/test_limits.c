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
      TEST(a_cancellation_stops_the_next_call_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
