/* Two threads in one context: debug builds (DEBUG=1) return BUSY to the second one, and the first continues.
 * Other builds do not check this, and skip these tests. */
#include "support.h"

#if defined(HEED_DEBUG)

#include <pthread.h>
#include <stdatomic.h>

/* ---- A call that blocks in an allocation ---- */

typedef struct gate {
  test_memory memory;
  atomic_bool closed, waiting;
} gate;

static void *allocate_at_gate(void *user, size_t bytes) {
  gate *g = user;
  if (atomic_load(&g->closed)) {
    atomic_store(&g->waiting, true);
    while (atomic_load(&g->closed)) {}
  }
  return test_allocate(&g->memory, bytes);
}

static void release_at_gate(void *user, void *block, size_t bytes) {
  test_release(&((gate *)user)->memory, block, bytes);
}

typedef struct job {
  heed_context *ctx;
  const heed_tensor *x;
  heed_tensor *y;
  heed_status status;
} job;

static void *multiply(void *argument) {
  job *j = argument;
  j->status = heed_matmul(j->ctx, j->x, j->x, &j->y);
  return NULL;
}

static void a_second_thread_is_rejected_while_the_first_continues(void **state) {
  (void)state;
  gate g = {.memory = {0}};
  const heed_allocator allocator = {allocate_at_gate, release_at_gate, &g};
  heed_context *ctx = NULL;
  heed_tensor *x = NULL, *y = NULL;
  pthread_t thread;
  assert_ok(heed_context_new(&allocator, &ctx));
  assert_ok(heed_eye(ctx, HEED_FLOAT32, 3, 3, &x));
  atomic_store(&g.closed, true);
  job first = {.ctx = ctx, .x = x};
  assert_int_equal(pthread_create(&thread, NULL, multiply, &first), 0);
  while (!atomic_load(&g.waiting)) {}
  assert_fails(ctx, heed_add(ctx, x, x, &y), HEED_BUSY, "add: the context is in use by another thread");
  assert_null(y);
  assert_int_equal(heed_set_num_threads(ctx, 2), HEED_BUSY);
  atomic_store(&g.closed, false);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_ok(first.status);
  assert_ok(heed_add(ctx, x, x, &y)); /* the context is free again */
  assert_string_equal(heed_message(ctx), "");
  heed_tensor_free(first.y);
  heed_tensor_free(y);
  heed_tensor_free(x);
  heed_context_free(ctx);
  assert_int_equal(g.memory.blocks, 0);
}

static void threads_may_alternate_and_a_failure_leaves_the_context_free(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = NULL;
  pthread_t thread;
  assert_ok(heed_eye(ctx, HEED_FLOAT32, 3, 2, &x)); /* cannot be multiplied by itself */
  job j = {.ctx = ctx, .x = x};
  multiply(&j);
  assert_int_equal(j.status, HEED_SHAPE);
  assert_int_equal(pthread_create(&thread, NULL, multiply, &j), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(j.status, HEED_SHAPE);
  multiply(&j);
  assert_int_equal(j.status, HEED_SHAPE);
  heed_tensor_free(x);
}

static void nested_calls_and_the_thread_pool_are_not_rejected(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_attention_config config;
  heed_module *m = NULL;
  heed_tensor *x = NULL, *y = NULL;
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = 64;
  config.context_length = 512;
  config.num_heads = 4;
  assert_ok(heed_set_num_threads(ctx, 3));
  assert_ok(heed_multi_head_attention_wrapper_new(ctx, NULL, &config, &m));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 512, 64), &x));
  assert_ok(heed_module_forward(m, x, NULL, &y, NULL));
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_module_release(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_second_thread_is_rejected_while_the_first_continues),
      TEST(threads_may_alternate_and_a_failure_leaves_the_context_free),
      TEST(nested_calls_and_the_thread_pool_are_not_rejected),
  };
  return cmocka_run_group_tests_name("two threads in one context", tests, NULL, NULL);
}

#else

static void release_builds_do_not_check(void **state) {
  (void)state;
  skip();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(release_builds_do_not_check)};
  return cmocka_run_group_tests_name("two threads in one context (DEBUG=1)", tests, NULL, NULL);
}

#endif
