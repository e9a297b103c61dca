/* Cancellation at random moments, from another thread and from a signal handler: a call either returns the
 * right bits or CANCELLED, leaks nothing, and the next one is right. */
#define _GNU_SOURCE
#include "support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "../../src/io/io.h"

/* For each way of cancelling, with one thread and with two: about 800 of them are cancelled. */
#define ROUNDS nightly(2000, 500)

/* A busy machine may delay a thread by this much; on an idle one it is 2 ms (scripts/bench/stop.c). */
#define MOST_SECONDS 2.0

/* ---- The cancelled calls ---- */

typedef struct scene {
  heed_context *ctx;
  heed_tensor *x, *square, *columns, *whole, *mask, *ids;
  heed_module *attention;
  heed_kv_cache *cache;
  char path[64], archive_path[64];
} scene;

typedef heed_status work(scene *s, heed_tensor **out);

static heed_status forward(scene *s, heed_tensor **out) {
  return heed_module_forward(s->attention, s->x, NULL, out, NULL);
}
static heed_status decode(scene *s, heed_tensor **out) {
  const heed_forward_options options = {.size = sizeof options, .cache = s->cache};
  const heed_status status = heed_module_forward(s->attention, s->x, &options, out, NULL);
  assert_int_equal(heed_kv_cache_length(s->cache), status == HEED_OK ? 200 : 0);
  assert_ok(heed_kv_cache_truncate(s->cache, 0));
  return status;
}
static heed_status dropping(scene *s, heed_tensor **out) {
  const heed_attention_options options = {.size = sizeof options, .dropout_p = 0.5};
  return heed_scaled_dot_product_attention(s->ctx, s->x, s->x, s->x, &options, out, NULL);
}
static heed_status attention_gradient(scene *s, heed_tensor **out) {
  heed_tensor *x = NULL, *y = NULL;
  heed_status status = heed_clone(s->ctx, s->x, &x);
  heed_set_recording(s->ctx, true);
  if (status == HEED_OK) status = heed_tensor_require_grad(x, true);
  if (status == HEED_OK) status = heed_scaled_dot_product_attention(s->ctx, x, x, x, NULL, &y, NULL);
  heed_set_recording(s->ctx, false);
  if (status == HEED_OK)
    status = heed_grad(s->ctx, 1, (const heed_tensor *const[]){y}, (const heed_tensor *const[]){s->x}, 1,
                       (const heed_tensor *const[]){x}, out, NULL);
  heed_tensor_free(y);
  heed_tensor_free(x);
  return status;
}
static heed_status product(scene *s, heed_tensor **out) {
  return heed_matmul(s->ctx, s->square, s->square, out);
}
static heed_status whole_product(scene *s, heed_tensor **out) {
  return heed_matmul(s->ctx, s->whole, s->whole, out);
}
static heed_status draw(scene *s, heed_tensor **out) {
  return heed_normal(s->ctx, NULL, 0, 1, 1, SHAPE(300000), out);
}
static heed_status shuffle(scene *s, heed_tensor **out) {
  return heed_randperm(s->ctx, NULL, 300000, out);
}
static heed_status sort(scene *s, heed_tensor **out) {
  return heed_sort(s->ctx, s->square, 1, false, out, NULL);
}
static heed_status running_sum(scene *s, heed_tensor **out) {
  return heed_cumsum(s->ctx, s->square, 1, out);
}
static heed_status sum(scene *s, heed_tensor **out) {
  return heed_sum(s->ctx, s->square, 1, (const int[]){1}, false, out);
}
static heed_status softmax(scene *s, heed_tensor **out) {
  return heed_softmax(s->ctx, s->square, 1, out);
}
static heed_status sum_across(scene *s, heed_tensor **out) {
  return heed_sum(s->ctx, s->columns, 1, (const int[]){1}, false, out);
}
static heed_status softmax_across(scene *s, heed_tensor **out) {
  return heed_softmax(s->ctx, s->columns, 1, out);
}
static heed_status exponential(scene *s, heed_tensor **out) {
  return heed_exp(s->ctx, s->square, out);
}
static heed_status join(scene *s, heed_tensor **out) {
  return heed_cat(s->ctx, 2, (const heed_tensor *const[]){s->square, s->square}, 1, out);
}
static heed_status pick(scene *s, heed_tensor **out) {
  return heed_index_select(s->ctx, s->square, 1, s->ids, out);
}
static heed_status choose(scene *s, heed_tensor **out) {
  return heed_masked_select(s->ctx, s->square, s->mask, out);
}
static heed_status load(scene *s, heed_tensor **out) {
  return heed_load_npy(s->ctx, s->path, out);
}
static heed_status load_archive(scene *s, heed_tensor **out) {
  heed_archive *archive = NULL;
  heed_status status = heed_load_archive(s->ctx, s->archive_path, &archive);
  if (status == HEED_OK) status = heed_archive_tensor(archive, 1, out);
  heed_archive_free(archive);
  return status;
}

static const struct {
  const char *name;
  work *run;
} works[] = {{"forward", forward},
             {"decode", decode},
             {"dropout", dropping},
             {"attention's gradient", attention_gradient},
             {"matmul", product},
             {"int64", whole_product},
             {"normal", draw},
             {"randperm", shuffle},
             {"sort", sort},
             {"cumsum", running_sum},
             {"sum", sum},
             {"softmax", softmax},
             {"sum of few columns", sum_across},
             {"softmax of few columns", softmax_across},
             {"exp", exponential},
             {"cat", join},
             {"index_select", pick},
             {"masked_select", choose},
             {"load", load},
             {"load an archive", load_archive}};
enum { WORKS = sizeof works / sizeof works[0] };

static void open_scene(scene *s, heed_context *ctx) {
  heed_attention_config config;
  *s = (scene){.ctx = ctx};
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(200, 96), &s->x));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(400, 400), &s->square));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(70000, 4), &s->columns));
  assert_ok(heed_randint(ctx, NULL, -9, 9, 2, SHAPE(90, 90), &s->whole));
  assert_ok(heed_randint(ctx, NULL, 1, 400, 1, SHAPE(400), &s->ids));
  heed_tensor *zero = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 0, NULL, heed_number(0), &zero));
  assert_ok(heed_gt(ctx, s->square, zero, &s->mask));
  heed_tensor_free(zero);
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = 96;
  config.num_heads = 4;
  config.context_length = 200;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &config, &s->attention));
  heed_kv_cache_config kept;
  heed_kv_cache_config_init(&kept, sizeof kept);
  kept.batch = 1;
  kept.capacity = 200;
  assert_ok(heed_kv_cache_new(s->attention, &kept, &s->cache));
  snprintf(s->path, sizeof s->path, "/tmp/heed-test-cancel-%ld.npy", (long)getpid());
  assert_ok(heed_save_npy(ctx, s->path, s->square));
  snprintf(s->archive_path, sizeof s->archive_path, "/tmp/heed-test-cancel-%ld.npz", (long)getpid());
  assert_ok(heed_save_archive(ctx, s->archive_path, 1, (const char *const[]){"square"},
                              (const heed_tensor *const[]){s->square}, 0, NULL));
}

static void close_scene(scene *s) {
  remove(s->path);
  remove(s->archive_path);
  heed_kv_cache_free(s->cache);
  heed_module_release(s->attention);
  heed_tensor_free(s->x);
  heed_tensor_free(s->square);
  heed_tensor_free(s->columns);
  heed_tensor_free(s->whole);
  heed_tensor_free(s->mask);
  heed_tensor_free(s->ids);
}

/* ---- Rounds ---- */

static _Atomic(double) cancelled_at; /* heed_clock() of the last cancellation */

typedef struct tally {
  int64_t whole, stopped;
  double worst; /* seconds from a cancellation to the return of the cancelled call */
} tally;

static void check_round(scene *s, int which, const heed_tensor *expected, tally *t) {
  unsigned char before[HEED_GENERATOR_STATE_BYTES], after[HEED_GENERATOR_STATE_BYTES];
  heed_generator *g = heed_default_generator(s->ctx);
  heed_generator_seed(g, 11);
  heed_generator_get_state(g, before);
  const size_t held = heed_memory_in_use(s->ctx);
  heed_tensor *out = NULL;
  const heed_status status = works[which].run(s, &out);
  const double now = heed_clock();
  if (status == HEED_OK) {
    t->whole++;
    assert_int_equal(heed_tensor_numel(out), heed_tensor_numel(expected));
    const size_t bytes = (size_t)heed_tensor_numel(out) *
                         (heed_tensor_dtype(out) == HEED_INT64 ? sizeof(int64_t) : sizeof(float));
    assert_memory_equal(heed_tensor_data(out), heed_tensor_data(expected), bytes);
    heed_tensor_free(out);
  } else {
    t->stopped++;
    assert_int_equal(status, HEED_CANCELLED);
    assert_non_null(strstr(heed_message(s->ctx), ": cancelled by heed_cancel"));
    assert_null(out);
    heed_generator_get_state(g, after);
    assert_memory_equal(before, after, sizeof before);
    const double took = now - atomic_load(&cancelled_at);
    if (took > t->worst) t->worst = took;
  }
  assert_int_equal(heed_memory_in_use(s->ctx), held);
}

static void expect(scene *s, heed_tensor **expected) {
  for (int i = 0; i < WORKS; i++) {
    heed_generator_seed(heed_default_generator(s->ctx), 11);
    expected[i] = NULL;
    assert_ok(works[i].run(s, &expected[i]));
  }
}

/* Rounds with `begin` before and `end` after them, on that many threads. */
static void run_rounds(heed_context *ctx, int64_t threads, void (*begin)(heed_context *), void (*end)(void)) {
  scene s;
  heed_tensor *expected[WORKS];
  tally t = {0};
  uint32_t seed = 5;
  open_scene(&s, ctx);
  assert_ok(heed_set_num_threads(ctx, threads));
  expect(&s, expected); /* also starts the pool */
  begin(ctx);
  for (int i = 0; i < ROUNDS; i++) {
    const int which = (int)((next_random(&seed) >> 8) % WORKS);
    check_round(&s, which, expected[which], &t);
  }
  end();
  heed_clear_cancel(ctx);
  for (int i = 0; i < WORKS; i++) check_round(&s, i, expected[i], &t);
  print_message("%lld threads: %lld whole, %lld cancelled, the slowest after %.2f ms\n", (long long)threads,
                (long long)t.whole, (long long)t.stopped, 1e3 * t.worst);
  assert_true(t.stopped > 0);
  assert_true(t.worst < MOST_SECONDS);
  for (int i = 0; i < WORKS; i++) heed_tensor_free(expected[i]);
  close_scene(&s);
}

/* ---- From another thread ---- */

static pthread_t thread;
static atomic_bool ending;

static void *cancel_often(void *ctx) {
  uint32_t seed = 99;
  while (!atomic_load(&ending)) {
    const struct timespec pause = {.tv_nsec = (next_random(&seed) >> 8) % 2000000};
    nanosleep(&pause, NULL);
    atomic_store(&cancelled_at, heed_clock());
    heed_cancel(ctx);
  }
  return NULL;
}

static void begin_thread(heed_context *ctx) {
  atomic_store(&ending, false);
  assert_int_equal(pthread_create(&thread, NULL, cancel_often, ctx), 0);
}

static void end_thread(void) {
  atomic_store(&ending, true);
  pthread_join(thread, NULL);
}

static void another_thread_may_cancel_at_any_moment(void **state) {
  test_context *t = *state;
  for (int64_t threads = 1; threads <= 2; threads++) run_rounds(t->ctx, threads, begin_thread, end_thread);
}

/* ---- From a signal handler ---- */

static heed_context *_Atomic signalled; /* atomic: the handler may run on another thread */

static void cancel_on_signal(int number) {
  (void)number;
  atomic_store(&cancelled_at, heed_clock());
  heed_cancel(signalled);
}

static void begin_signals(heed_context *ctx) {
  struct sigaction action = {.sa_handler = cancel_on_signal, .sa_flags = SA_RESTART};
  const struct itimerval every = {.it_interval = {.tv_usec = 1313}, .it_value = {.tv_usec = 1313}};
  signalled = ctx;
  assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
  assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
}

static void end_signals(void) {
  const struct itimerval never = {{0, 0}, {0, 0}};
  assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
  signal(SIGALRM, SIG_IGN);
}

static void a_signal_handler_may_cancel_at_any_moment(void **state) {
  test_context *t = *state;
  for (int64_t threads = 1; threads <= 2; threads++) run_rounds(t->ctx, threads, begin_signals, end_signals);
}

/* ---- Deadlines ---- */

static void a_deadline_stops_every_kind_of_work(void **state) {
  test_context *t = *state;
  scene s;
  heed_tensor *expected[WORKS];
  open_scene(&s, t->ctx);
  expect(&s, expected);
  for (int i = 0; i < WORKS; i++) {
    for (double seconds = 1e-5; seconds < 0.02; seconds *= 1.5) {
      heed_tensor *out = NULL;
      const size_t held = heed_memory_in_use(t->ctx);
      heed_generator_seed(heed_default_generator(t->ctx), 11);
      assert_ok(heed_set_deadline(t->ctx, seconds));
      const heed_status status = works[i].run(&s, &out);
      assert_ok(heed_set_deadline(t->ctx, 0));
      if (status != HEED_OK) assert_int_equal(status, HEED_LIMIT);
      assert_int_equal(status == HEED_OK, out != NULL);
      heed_tensor_free(out);
      assert_int_equal(heed_memory_in_use(t->ctx), held);
    }
  }
  for (int i = 0; i < WORKS; i++) heed_tensor_free(expected[i]);
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(another_thread_may_cancel_at_any_moment),
      TEST(a_signal_handler_may_cancel_at_any_moment),
      TEST(a_deadline_stops_every_kind_of_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
