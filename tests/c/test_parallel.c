/* Threads: every task runs once, on the requested number of threads, whatever else the process does. */
#define _DEFAULT_SOURCE /* fork, the number of processors */

#include "support.h"

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN
#elif defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN
#elif defined(__has_feature) /* clang */
#if __has_feature(thread_sanitizer)
#define WITH_TSAN
#elif __has_feature(address_sanitizer)
#define WITH_ASAN
#endif
#endif

static heed_context *context_of(void **state) {
  return ((test_context *)*state)->ctx;
}

/* ---- A job that records which worker ran which task ---- */

#define MOST_TASKS   3000
#define MOST_WORKERS 64

typedef struct notes {
  heed_context *ctx;
  int64_t result[MOST_TASKS];  /* not atomic: each is written by one task and read after the job */
  atomic_int at[MOST_WORKERS]; /* running tasks of a worker */
  atomic_int wrong;
  atomic_int met; /* started tasks, where each waits for the others */
  int workers;
} notes;

static void note(void *argument, int64_t i, int worker) {
  notes *n = argument;
  if (worker < 0 || worker >= n->workers || atomic_fetch_add(&n->at[worker], 1) != 0)
    atomic_fetch_add(&n->wrong, 1);
  n->result[i] += i + 1;
  atomic_fetch_sub(&n->at[worker], 1);
}

static bool runs_each_once(heed_context *ctx, int64_t count) {
  notes *n = calloc(1, sizeof *n);
  assert_non_null(n);
  n->workers = count < heed__workers(ctx) ? (int)count : heed__workers(ctx); /* as in core.h */
  assert_true(heed__parallel(ctx, count, note, n));
  bool right = atomic_load(&n->wrong) == 0;
  for (int64_t i = 0; i < MOST_TASKS; i++) right = right && n->result[i] == (i < count ? i + 1 : 0);
  free(n);
  return right;
}

static void pause_for(long microseconds) {
  nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
}

/* Waits until every worker runs such a task. */
static void meet(void *argument, int64_t i, int worker) {
  notes *n = argument;
  (void)i;
  atomic_fetch_add(&n->met, 1);
  for (int tries = 0; atomic_load(&n->met) < n->workers && tries < 50000; tries++) pause_for(100);
  n->result[worker]++;
}

static bool all_workers_meet(heed_context *ctx) {
  notes *n = calloc(1, sizeof *n);
  assert_non_null(n);
  n->workers = heed__workers(ctx);
  assert_true(heed__parallel(ctx, n->workers, meet, n));
  bool right = true;
  for (int w = 0; w < n->workers; w++) right = right && n->result[w] == 1;
  free(n);
  return right;
}

/* ---- Tests ---- */

static void a_context_starts_with_one_thread(void **state) {
  heed_context *ctx = context_of(state);
  assert_int_equal(heed_num_threads(ctx), 1);
  assert_int_equal(heed__workers(ctx), 1);
  assert_true(runs_each_once(ctx, 100));
  assert_null(ctx->pool);
}

static void numbers_of_threads_out_of_range_are_refused(void **state) {
  heed_context *ctx = context_of(state);
  assert_fails(ctx, heed_set_num_threads(ctx, 0), HEED_ARGUMENT,
               "set_num_threads: n is 0; it must be from 1 to 1024");
  assert_fails(ctx, heed_set_num_threads(ctx, -1), HEED_ARGUMENT,
               "set_num_threads: n is -1; it must be from 1 to 1024");
  assert_fails(ctx, heed_set_num_threads(ctx, INT64_MAX), HEED_ARGUMENT,
               "set_num_threads: n is 9223372036854775807; it must be from 1 to 1024");
  assert_int_equal(heed_num_threads(ctx), 1);
}

static void the_pool_starts_at_first_use(void **state) {
  heed_context *ctx = context_of(state);
  assert_ok(heed_set_num_threads(ctx, 3));
  assert_int_equal(heed_num_threads(ctx), 3);
  assert_null(ctx->pool);
  assert_true(runs_each_once(ctx, 0));
  assert_true(runs_each_once(ctx, 1));
  assert_null(ctx->pool);
  assert_true(runs_each_once(ctx, 2));
  assert_non_null(ctx->pool);
  heed__stop_threads(ctx);
  assert_null(ctx->pool);
  assert_true(runs_each_once(ctx, 2));
}

static void each_task_runs_once(void **state) {
  heed_context *ctx = context_of(state);
  static const int64_t counts[] = {2, 3, 7, 8, 9, 100, MOST_TASKS};
  for (int threads = 1; threads <= 9; threads += 2) {
    assert_ok(heed_set_num_threads(ctx, threads));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
      for (int round = 0; round < 8; round++) assert_true(runs_each_once(ctx, counts[c]));
    }
  }
}

static void jobs_after_a_pause_find_the_workers_asleep(void **state) {
  heed_context *ctx = context_of(state);
  assert_ok(heed_set_num_threads(ctx, 4));
  for (int round = 0; round < 100; round++) {
    pause_for(round * 2);
    assert_true(runs_each_once(ctx, 2 + round % 7));
  }
}

static void all_requested_threads_work(void **state) {
  heed_context *ctx = context_of(state);
  static const int threads[] = {2, 5, 3, 8, 1, 2};
  for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
    assert_ok(heed_set_num_threads(ctx, threads[i]));
    assert_int_equal(heed__workers(ctx), threads[i]);
    for (int round = 0; round < 5; round++) assert_true(all_workers_meet(ctx));
  }
}

/* ---- Nesting ---- */

static void note_workers_inside(void *argument, int64_t i, int worker) {
  notes *n = argument;
  (void)i;
  if (worker != 0 || heed__workers(n->ctx) != 1) atomic_fetch_add(&n->wrong, 1);
}

static void nest(void *argument, int64_t i, int worker) {
  notes *n = argument;
  (void)worker;
  n->result[i]++;
  assert_true(heed__parallel(n->ctx, 5, note_workers_inside, n));
}

static void a_nested_job_runs_on_the_thread_of_its_task(void **state) {
  heed_context *ctx = context_of(state);
  notes *n = calloc(1, sizeof *n);
  assert_non_null(n);
  n->ctx = ctx;
  assert_ok(heed_set_num_threads(ctx, 4));
  assert_true(heed__parallel(ctx, 100, nest, n));
  assert_int_equal(atomic_load(&n->wrong), 0);
  for (int i = 0; i < 100; i++) assert_int_equal(n->result[i], 1);
  free(n);
  assert_int_equal(heed__workers(ctx), 4);
}

/* ---- The state of threads ---- */

static void note_rounding(void *argument, int64_t i, int worker) {
  int *mode = argument;
  (void)i;
  mode[worker] = fegetround();
  pause_for(1000);
}

static void tasks_use_the_caller_s_rounding_mode(void **state) {
  heed_context *ctx = context_of(state);
  assert_ok(heed_set_num_threads(ctx, 2));
  assert_true(all_workers_meet(ctx));
  static const int modes[] = {FE_UPWARD, FE_TONEAREST};
  for (size_t m = 0; m < 2; m++) {
    int seen[2] = {modes[m], modes[m]};
    fesetround(modes[m]);
    assert_true(heed__parallel(ctx, 20, note_rounding, seen));
    fesetround(FE_TONEAREST);
    for (size_t w = 0; w < 2; w++) assert_int_equal(seen[w], modes[m]);
  }
}

typedef struct signals {
  pthread_t caller;
  atomic_int blocked;
} signals;

static void note_signals(void *argument, int64_t i, int worker) {
  signals *s = argument;
  sigset_t set;
  (void)i;
  (void)worker;
  pthread_sigmask(SIG_BLOCK, NULL, &set);
  const bool caller = pthread_equal(pthread_self(), s->caller);
  if (!caller && sigismember(&set, SIGINT) && sigismember(&set, SIGPROF)) atomic_fetch_add(&s->blocked, 1);
  if (caller && sigismember(&set, SIGINT)) atomic_fetch_add(&s->blocked, 100);
  pause_for(20000);
}

static void workers_leave_signals_to_the_host(void **state) {
  heed_context *ctx = context_of(state);
  signals s = {.caller = pthread_self()};
  assert_ok(heed_set_num_threads(ctx, 2));
  assert_true(all_workers_meet(ctx));
  assert_true(heed__parallel(ctx, 2, note_signals, &s));
  assert_int_equal(atomic_load(&s.blocked), 1);
}

static void idle_workers_sleep(void **state) {
  heed_context *ctx = context_of(state);
  struct rusage before, after;
  assert_ok(heed_set_num_threads(ctx, 4));
  assert_true(all_workers_meet(ctx));
  pause_for(5000);
  getrusage(RUSAGE_SELF, &before);
  for (int i = 0; i < 10; i++) pause_for(10000);
  getrusage(RUSAGE_SELF, &after);
  const int64_t used = (int64_t)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 +
                       (after.ru_utime.tv_usec - before.ru_utime.tv_usec);
  assert_in_range(used, 0, 20000); /* µs; awake, three threads would use 100 ms each */
}

/* ---- Contexts ---- */

static void a_context_that_is_freed_first_leaves_its_tensors_usable(void **state) {
  (void)state;
  test_memory memory = {0};
  heed_allocator allocator = test_allocator(&memory);
  heed_context *ctx = NULL;
  heed_tensor *x = NULL;
  assert_ok(heed_context_new(&allocator, &ctx));
  assert_ok(heed_set_num_threads(ctx, 3));
  assert_ok(heed_tensor_new(ctx, HEED_FLOAT32, 1, SHAPE(4), &x));
  assert_true(runs_each_once(ctx, 10));
  heed_context_free(ctx);
  assert_null(ctx->pool);
  assert_int_equal(heed_num_threads(ctx), 1);
  assert_true(runs_each_once(ctx, 10));
  assert_null(ctx->pool);
  assert_ok(heed_set_num_threads(ctx, 2)); /* restarts the pool, which ends with the last tensor */
  assert_true(runs_each_once(ctx, 10));
  assert_non_null(ctx->pool);
  heed_tensor_free(x);
  assert_int_equal(memory.blocks, 0);
}

static void without_memory_for_a_pool_the_caller_does_all_the_work(void **state) {
  (void)state;
  test_memory memory = {.fail_at = 2};
  heed_allocator allocator = test_allocator(&memory);
  heed_context *ctx = NULL;
  assert_ok(heed_context_new(&allocator, &ctx));
  assert_ok(heed_set_num_threads(ctx, 3));
  assert_true(runs_each_once(ctx, 10));
  assert_null(ctx->pool);
  assert_true(runs_each_once(ctx, 10));
  assert_non_null(ctx->pool);
  heed_context_free(ctx);
  assert_int_equal(memory.blocks, 0);
}

#define HOSTS 4

static void *use_a_context(void *argument) {
  const int threads = 1 + *(const int *)argument % 4;
  bool right = true;
  for (int round = 0; round < 5; round++) {
    heed_context *ctx = NULL;
    right = right && heed_context_new(NULL, &ctx) == HEED_OK && heed_set_num_threads(ctx, threads) == HEED_OK;
    for (int i = 0; right && i < 50; i++) right = runs_each_once(ctx, 1 + i);
    heed_context_free(ctx);
  }
  return right ? argument : NULL;
}

static void many_contexts_work_on_many_threads_of_the_host(void **state) {
  (void)state;
  pthread_t host[HOSTS];
  int number[HOSTS];
  for (int i = 0; i < HOSTS; i++) {
    number[i] = i;
    assert_int_equal(pthread_create(&host[i], NULL, use_a_context, &number[i]), 0);
  }
  for (int i = 0; i < HOSTS; i++) {
    void *right = NULL;
    assert_int_equal(pthread_join(host[i], &right), 0);
    assert_ptr_equal(right, &number[i]);
  }
}

#define OPERATIONS 5

/* The concatenated results of operations that are large enough to be divided; NULL if one failed. */
static heed_tensor *operate(heed_context *ctx) {
  heed_tensor *x = NULL, *turned = NULL, *r[OPERATIONS] = {NULL}, *flat[OPERATIONS] = {NULL}, *all = NULL;
  heed_generator_seed(heed_default_generator(ctx), 3);
  bool right = heed_normal(ctx, NULL, 0, 1, 3, SHAPE(16, 130, 128), &x) == HEED_OK &&
               heed_transpose(ctx, x, 2, 3, &turned) == HEED_OK &&
               heed_matmul(ctx, turned, x, &r[4]) == HEED_OK && heed_exp(ctx, x, &r[0]) == HEED_OK &&
               heed_softmax(ctx, x, 2, &r[1]) == HEED_OK &&
               heed_sum(ctx, x, 1, (const int[]){1}, false, &r[2]) == HEED_OK &&
               heed_scaled_dot_product_attention(ctx, x, x, x, NULL, &r[3], NULL) == HEED_OK;
  for (int i = 0; i < OPERATIONS; i++)
    right = right && heed_reshape(ctx, r[i], 1, SHAPE(-1), &flat[i]) == HEED_OK;
  right = right && heed_cat(ctx, OPERATIONS, (const heed_tensor *const *)flat, 1, &all) == HEED_OK;
  for (int i = 0; i < OPERATIONS; i++) heed_tensor_free(r[i]), heed_tensor_free(flat[i]);
  heed_tensor_free(turned);
  heed_tensor_free(x);
  return right ? all : NULL;
}

static void *operate_on_a_context(void *argument) {
  heed_context *ctx = NULL;
  bool same = heed_context_new(NULL, &ctx) == HEED_OK;
  for (int threads = 1; threads <= 3; threads += 2) {
    heed_tensor *all = NULL;
    same = same && heed_set_num_threads(ctx, threads) == HEED_OK && (all = operate(ctx)) != NULL &&
           memcmp(heed_tensor_data(all), argument, (size_t)heed_tensor_numel(all) * sizeof(float)) == 0;
    heed_tensor_free(all);
  }
  heed_context_free(ctx);
  return same ? argument : NULL;
}

static void operations_give_the_same_bits_on_any_number_of_threads(void **state) {
  heed_tensor *wanted = operate(context_of(state));
  assert_non_null(wanted);
  pthread_t host[HOSTS];
  for (int i = 0; i < HOSTS; i++)
    assert_int_equal(pthread_create(&host[i], NULL, operate_on_a_context, heed_tensor_data(wanted)), 0);
  for (int i = 0; i < HOSTS; i++) {
    void *right = NULL;
    assert_int_equal(pthread_join(host[i], &right), 0);
    assert_non_null(right);
  }
  heed_tensor_free(wanted);
}

/* ---- Child processes (not with the thread sanitizer) ---- */

#ifndef WITH_TSAN

/* Whether `run` returns true in a child process within a minute. */
static bool in_a_child(bool (*run)(heed_context *ctx), heed_context *ctx) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    alarm(60);
    _exit(run(ctx) ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool child_starts_over(heed_context *ctx) {
  bool right = heed_num_threads(ctx) == 1 && heed__workers(ctx) == 1 && runs_each_once(ctx, 100);
  right = right && heed_set_num_threads(ctx, 3) == HEED_OK && heed__workers(ctx) == 3;
  right = right && all_workers_meet(ctx) && runs_each_once(ctx, 100);
  heed_context_free(ctx);
  return right;
}

static bool child_frees_at_once(heed_context *ctx) {
  heed_context_free(ctx);
  return true;
}

static bool grandchild_starts_over(heed_context *ctx) {
  return in_a_child(child_starts_over, ctx) && child_starts_over(ctx);
}

static void after_fork_a_child_has_one_thread_until_it_sets_more(void **state) {
  heed_context *ctx = context_of(state);
  assert_ok(heed_set_num_threads(ctx, 3));
  assert_true(in_a_child(child_starts_over, ctx)); /* without a pool */
  assert_true(all_workers_meet(ctx));
  assert_true(in_a_child(child_starts_over, ctx));
  assert_true(in_a_child(child_frees_at_once, ctx));
  assert_true(in_a_child(grandchild_starts_over, ctx));
  assert_int_equal(heed_num_threads(ctx), 3);
  assert_true(all_workers_meet(ctx));
}

#ifndef WITH_ASAN /* needs more address space than any limit */
static bool child_cannot_start_threads(heed_context *ctx) {
  const struct rlimit limit = {1 << 16,
                               1 << 16}; /* of address space: only stacks of ended threads can be reused */
  if (heed_set_num_threads(ctx, 1000) != HEED_OK) return false;
  notes *n = calloc(1, sizeof *n);
  void *pool_memory = malloc(100000); /* is reused for the pool */
  free(pool_memory);
  if (!n || !pool_memory || setrlimit(RLIMIT_AS, &limit) != 0) return false;
  n->workers = MOST_WORKERS; /* a higher number of a worker is an error */
  assert_true(heed__parallel(ctx, 100, note, n));
  bool right = ctx->pool && atomic_load(&n->wrong) == 0 && heed_num_threads(ctx) < 1000;
  for (int64_t i = 0; i < 100; i++) right = right && n->result[i] == i + 1;
  return right;
}

static void if_threads_cannot_be_started_the_others_do_their_work(void **state) {
  assert_true(in_a_child(child_cannot_start_threads, context_of(state)));
}
#endif
#endif

/* With the scalar kernels they use BLAS, which must be loaded before several threads use it (make tsan). */
static void threads_share_the_products_of_a_batch(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  enum { BATCH = 600, SIDE = 40 };
  heed_tensor *x = NULL, *y = NULL, *product = NULL;
  ctx->cpu = HEED__CPU_scalar;
  assert_ok(heed_set_num_threads(ctx, 3));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 3, SHAPE(BATCH, SIDE, SIDE), heed_number(2), &x));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 3, SHAPE(BATCH, SIDE, SIDE), heed_number(3), &y));
  assert_ok(heed_matmul(ctx, x, y, &product));
  const float *c = heed_tensor_data(product);
  for (int i = 0; i < BATCH * SIDE * SIDE; i++) assert_true(c[i] == 2.0f * 3.0f * SIDE);
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_tensor_free(product);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_context_starts_with_one_thread),
      TEST(numbers_of_threads_out_of_range_are_refused),
      TEST(the_pool_starts_at_first_use),
      TEST(each_task_runs_once),
      TEST(jobs_after_a_pause_find_the_workers_asleep),
      TEST(all_requested_threads_work),
      TEST(a_nested_job_runs_on_the_thread_of_its_task),
      TEST(tasks_use_the_caller_s_rounding_mode),
      TEST(workers_leave_signals_to_the_host),
      TEST(idle_workers_sleep),
      cmocka_unit_test(a_context_that_is_freed_first_leaves_its_tensors_usable),
      cmocka_unit_test(without_memory_for_a_pool_the_caller_does_all_the_work),
      cmocka_unit_test(many_contexts_work_on_many_threads_of_the_host),
      TEST(operations_give_the_same_bits_on_any_number_of_threads),
      TEST(threads_share_the_products_of_a_batch),
#ifndef WITH_TSAN
      TEST(after_fork_a_child_has_one_thread_until_it_sets_more),
#ifndef WITH_ASAN
      TEST(if_threads_cannot_be_started_the_others_do_their_work),
#endif
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
