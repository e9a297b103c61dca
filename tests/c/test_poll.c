/* heed_set_poll: the host's function runs during long calls, on the caller's thread, and changes no bit. No
 * test depends on how long a call takes: an interval of 0 polls at every cancellation check. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#define NEVER 1e6 /* seconds: longer than any test */

/* What the poll function saw. */
typedef struct polls {
  heed_context *ctx;
  pthread_t caller;
  _Atomic(int64_t) count;
  int64_t strangers; /* calls on another thread */
  int64_t cancel_at; /* the call that cancels; 0: none */
} polls;

static void count_poll(void *user) {
  polls *p = user;
  p->strangers += !pthread_equal(pthread_self(), p->caller);
  if (atomic_fetch_add(&p->count, 1) + 1 == p->cancel_at) heed_cancel(p->ctx);
}

static polls new_polls(heed_context *ctx) {
  return (polls){.ctx = ctx, .caller = pthread_self()};
}

/* ---- Long calls ---- */

typedef struct scene {
  heed_tensor *q, *square, *low;
  heed_module *attention;
} scene;

static void open_scene(scene *s, heed_context *ctx) {
  heed_attention_config config;
  *s = (scene){0};
  heed_generator_seed(heed_default_generator(ctx), 1);
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 400, 64), &s->q));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(600, 600), &s->square));
  assert_ok(heed_to(ctx, s->square, HEED_BFLOAT16, &s->low));
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = 64;
  config.num_heads = 2;
  config.context_length = 400;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &config, &s->attention));
}

static void close_scene(scene *s) {
  heed_tensor_free(s->q);
  heed_tensor_free(s->square);
  heed_tensor_free(s->low);
  heed_module_release(s->attention);
}

typedef heed_status work(heed_context *ctx, scene *s, heed_tensor **out);

static heed_status attention(heed_context *ctx, scene *s, heed_tensor **out) {
  return heed_scaled_dot_product_attention(ctx, s->q, s->q, s->q, NULL, out, NULL);
}
static heed_status linear(heed_context *ctx, scene *s, heed_tensor **out) {
  return heed_linear(ctx, s->square, s->square, NULL, out);
}
static heed_status low_precision(heed_context *ctx, scene *s, heed_tensor **out) {
  return heed_linear(ctx, s->square, s->low, NULL, out);
}
static heed_status forward(heed_context *ctx, scene *s, heed_tensor **out) {
  (void)ctx;
  return heed_module_forward(s->attention, s->q, NULL, out, NULL);
}
static heed_status in_slices(heed_context *ctx, scene *s, heed_tensor **out) {
  heed_steps *steps = NULL;
  bool done = false;
  (void)ctx;
  heed_status status = heed_steps_new(s->attention, s->q, NULL, false, &steps);
  while (status == HEED_OK && !done) status = heed_steps_advance(steps, 1e-9, &done);
  if (status == HEED_OK) status = heed_steps_result(steps, out, NULL);
  heed_steps_free(steps);
  return status;
}
static heed_status backward(heed_context *ctx, scene *s, heed_tensor **out) {
  heed_tensor *x = NULL, *y = NULL;
  heed_status status = heed_clone(ctx, s->q, &x);
  heed_set_recording(ctx, true);
  if (status == HEED_OK) status = heed_tensor_require_grad(x, true);
  if (status == HEED_OK) status = heed_scaled_dot_product_attention(ctx, x, x, x, NULL, &y, NULL);
  heed_set_recording(ctx, false);
  if (status == HEED_OK)
    status = heed_grad(ctx, 1, (const heed_tensor *const[]){y}, (const heed_tensor *const[]){s->q}, 1,
                       (const heed_tensor *const[]){x}, out, NULL);
  heed_tensor_free(y);
  heed_tensor_free(x);
  return status;
}
static heed_status softmax(heed_context *ctx, scene *s, heed_tensor **out) {
  return heed_softmax(ctx, s->square, 1, out);
}

static const struct {
  const char *name;
  work *run;
} works[] = {{"attention", attention}, {"linear", linear},    {"low precision", low_precision},
             {"forward", forward},     {"slices", in_slices}, {"backward", backward},
             {"softmax", softmax}};
enum { WORKS = sizeof works / sizeof works[0] };

static void assert_same(const heed_tensor *x, const heed_tensor *y) {
  assert_int_equal(heed_tensor_numel(x), heed_tensor_numel(y));
  assert_memory_equal(heed_tensor_data(x), heed_tensor_data(y), (size_t)heed_tensor_numel(x) * sizeof(float));
}

static void every_long_call_polls_and_keeps_its_bits(void **state) {
  test_context *t = *state;
  scene s;
  open_scene(&s, t->ctx);
  for (int64_t threads = 1; threads <= 3; threads++) {
    assert_ok(heed_set_num_threads(t->ctx, threads));
    for (int i = 0; i < WORKS; i++) {
      heed_tensor *plain = NULL, *polled = NULL;
      polls p = new_polls(t->ctx);
      assert_ok(works[i].run(t->ctx, &s, &plain));
      assert_ok(heed_set_poll(t->ctx, 0, count_poll, &p));
      assert_ok(works[i].run(t->ctx, &s, &polled));
      assert_ok(heed_set_poll(t->ctx, 0, NULL, NULL));
      if (p.count < 2) fail_msg("%s polled %lld times", works[i].name, (long long)p.count);
      assert_int_equal(p.strangers, 0);
      assert_same(polled, plain);
      heed_tensor_free(plain);
      heed_tensor_free(polled);
    }
  }
  close_scene(&s);
}

static void it_is_not_called_before_its_time_nor_when_it_is_removed(void **state) {
  test_context *t = *state;
  scene s;
  heed_tensor *y = NULL;
  polls p = new_polls(t->ctx);
  open_scene(&s, t->ctx);
  assert_ok(heed_set_poll(t->ctx, NEVER, count_poll, &p));
  assert_ok(attention(t->ctx, &s, &y));
  assert_ok(heed_set_poll(t->ctx, 0, count_poll, &p));
  assert_ok(heed_set_poll(t->ctx, 0, NULL, &p));
  assert_ok(attention(t->ctx, &s, &y));
  assert_int_equal(p.count, 0);
  heed_tensor_free(y);
  close_scene(&s);
}

/* ---- A caller that waits for its workers ---- */

typedef struct meeting {
  pthread_t caller;
  polls *polls;
  atomic_bool worked; /* another thread had a task */
} meeting;

/* A worker's task lasts until the caller has polled. */
static void wait_for_polls(void *argument, int64_t i, int worker) {
  meeting *m = argument;
  (void)i, (void)worker;
  if (pthread_equal(pthread_self(), m->caller)) return;
  const int64_t before = atomic_load(&m->polls->count);
  atomic_store(&m->worked, true);
  while (atomic_load(&m->polls->count) < before + 3) {}
}

static void a_caller_that_waits_for_its_threads_polls(void **state) {
  test_context *t = *state;
  polls p = new_polls(t->ctx);
  meeting m = {pthread_self(), &p, false};
  assert_ok(heed_set_num_threads(t->ctx, 2));
  assert_ok(heed_set_poll(t->ctx, 1e-4, count_poll, &p));
  while (!atomic_load(&m.worked)) assert_true(heed__parallel(t->ctx, 64, wait_for_polls, &m));
  assert_int_equal(p.strangers, 0);
}

/* ---- Cancelling, limits ---- */

static void the_function_may_cancel_the_call(void **state) {
  test_context *t = *state;
  scene s;
  open_scene(&s, t->ctx);
  for (int64_t threads = 1; threads <= 2; threads++) {
    assert_ok(heed_set_num_threads(t->ctx, threads));
    for (int i = 0; i < WORKS; i++) {
      heed_tensor *y = NULL;
      polls p = new_polls(t->ctx);
      p.cancel_at = 1;
      const size_t held = heed_memory_in_use(t->ctx);
      assert_ok(heed_set_poll(t->ctx, 0, count_poll, &p));
      const heed_status status = works[i].run(t->ctx, &s, &y);
      assert_ok(heed_set_poll(t->ctx, 0, NULL, NULL));
      if (status != HEED_CANCELLED) fail_msg("%s returned %d", works[i].name, (int)status);
      assert_null(y);
      assert_int_equal(heed_memory_in_use(t->ctx), held);
    }
  }
  close_scene(&s);
}

static void a_deadline_ends_a_polled_call(void **state) {
  test_context *t = *state;
  scene s;
  heed_tensor *y = NULL;
  polls p = new_polls(t->ctx);
  open_scene(&s, t->ctx);
  assert_ok(heed_set_poll(t->ctx, 0, count_poll, &p));
  assert_ok(heed_set_deadline(t->ctx, 1e-9));
  assert_int_equal(attention(t->ctx, &s, &y), HEED_LIMIT);
  assert_ok(heed_set_deadline(t->ctx, 0));
  assert_null(y);
  assert_ok(attention(t->ctx, &s, &y));
  heed_tensor_free(y);
  close_scene(&s);
}

static void functions_of_the_host_can_ask_whether_to_stop(void **state) {
  test_context *t = *state;
  assert_ok(heed_check_stop(t->ctx, "all_reduce"));
  heed_cancel(t->ctx);
  assert_fails(t->ctx, heed_check_stop(t->ctx, "all_reduce"), HEED_CANCELLED,
               "all_reduce: cancelled by heed_cancel");
  assert_ok(heed_check_stop(t->ctx, "all_reduce"));
  assert_ok(heed_set_deadline(t->ctx, 1e-9));
  while (heed_check_stop(t->ctx, "barrier") == HEED_OK) {}
  assert_string_equal(heed_message(t->ctx),
                      "barrier: time limit exceeded: 1e-09 s since the deadline was set");
}

/* ---- Invalid arguments ---- */

static void invalid_arguments_are_refused_and_change_nothing(void **state) {
  test_context *t = *state;
  scene s;
  heed_tensor *y = NULL;
  polls p = new_polls(t->ctx);
  open_scene(&s, t->ctx);
  assert_ok(heed_set_poll(t->ctx, 0, count_poll, &p));
  assert_fails(t->ctx, heed_set_poll(t->ctx, -1, count_poll, NULL), HEED_ARGUMENT,
               "set_poll: seconds is -1; it must be 0 or more, and finite");
  assert_fails(t->ctx, heed_set_poll(t->ctx, NAN, count_poll, NULL), HEED_ARGUMENT,
               "set_poll: seconds is nan; it must be 0 or more, and finite");
  assert_int_equal(heed_set_poll(NULL, 0, count_poll, NULL), HEED_ARGUMENT);
  assert_fails(t->ctx, heed_check_stop(t->ctx, NULL), HEED_ARGUMENT,
               "check_stop: function is missing (NULL)");
  assert_ok(attention(t->ctx, &s, &y));
  assert_true(p.count > 0);
  heed_tensor_free(y);
  close_scene(&s);
}

#if defined(HEED_DEBUG)
static void use_the_context(void *user) {
  polls *p = user;
  heed_tensor *y = NULL;
  atomic_fetch_add(&p->count, 1);
  assert_fails(p->ctx, heed_eye(p->ctx, HEED_FLOAT32, 3, 3, &y), HEED_BUSY,
               "eye: the context is in use by the call that polls; a poll function must not use it");
}
#endif

static void debug_builds_refuse_a_function_that_uses_the_context(void **state) {
#if defined(HEED_DEBUG)
  test_context *t = *state;
  scene s;
  heed_tensor *y = NULL;
  polls p = new_polls(t->ctx);
  open_scene(&s, t->ctx);
  assert_ok(heed_set_poll(t->ctx, 0, use_the_context, &p));
  assert_ok(attention(t->ctx, &s, &y));
  assert_true(p.count > 0);
  heed_tensor_free(y);
  close_scene(&s);
#else
  (void)state;
  skip();
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(every_long_call_polls_and_keeps_its_bits),
      TEST(it_is_not_called_before_its_time_nor_when_it_is_removed),
      TEST(a_caller_that_waits_for_its_threads_polls),
      TEST(the_function_may_cancel_the_call),
      TEST(a_deadline_ends_a_polled_call),
      TEST(functions_of_the_host_can_ask_whether_to_stop),
      TEST(invalid_arguments_are_refused_and_change_nothing),
      TEST(debug_builds_refuse_a_function_that_uses_the_context),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
