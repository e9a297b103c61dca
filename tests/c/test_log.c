/* Messages to the host's log. */
#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* setrlimit */
#endif
#include "support.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

typedef struct logged {
  int count;
  heed_log_level level;
  char text[HEED__MESSAGE];
} logged;

static void tell(void *user, heed_log_level level, const char *message) {
  logged *t = user;
  t->count++;
  t->level = level;
  snprintf(t->text, sizeof t->text, "%s", message);
}

static void failures_are_logged(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  logged t = {0};
  assert_ok(heed_set_log(ctx, tell, &t));
  assert_int_equal(t.count, 0);
  assert_int_equal(heed_set_num_threads(ctx, 0), HEED_ARGUMENT);
  assert_int_equal(t.count, 1);
  assert_int_equal(t.level, HEED_LOG_FAILURE);
  assert_string_equal(t.text, heed_message(ctx));
  assert_ok(heed_set_num_threads(ctx, 1));
  assert_int_equal(t.count, 1);
}

static void without_a_log_function_nothing_is_logged(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  logged t = {0};
  assert_ok(heed_set_log(ctx, tell, &t));
  assert_ok(heed_set_log(ctx, NULL, &t));
  assert_int_equal(heed_set_num_threads(ctx, 0), HEED_ARGUMENT);
  assert_int_equal(t.count, 0);
}

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void nothing(void *argument, int64_t i, int worker) {
  (void)argument, (void)i, (void)worker;
}

/* Without address space for their stacks the system refuses most of 64 threads. */
static void threads_that_the_system_refuses_are_logged(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  struct rlimit before;
  unsigned long pages = 0;
  logged t = {0};
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%lu", &pages), 1);
  fclose(file);
  assert_ok(heed_set_log(ctx, tell, &t));
  assert_ok(heed_set_num_threads(ctx, 64));
  assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
  struct rlimit tight = {.rlim_cur = pages * 4096 + ((rlim_t)16 << 20), .rlim_max = before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
  void *block = mmap(NULL, (size_t)64 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block != MAP_FAILED) { /* an emulator ignores the limit */
    munmap(block, (size_t)64 << 20);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    skip();
  }
  const bool done = heed__parallel(ctx, 1000, nothing, NULL);
  assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
  assert_true(done); /* the started ones do all the work */
  assert_int_equal(t.count, 1);
  assert_int_equal(t.level, HEED_LOG_WARNING);
  assert_non_null(strstr(t.text, " worker threads of the 63 requested"));
  int started = -1;
  assert_int_equal(sscanf(t.text, "the system started %d", &started), 1);
  assert_in_range(started, 0, 62);
  assert_int_equal(heed_num_threads(ctx), started + 1);
  assert_int_equal(heed__workers(ctx), started + 1);
  assert_ok(heed_set_num_threads(ctx, 64)); /* set again, it tries again */
  assert_true(heed__parallel(ctx, 1000, nothing, NULL));
  assert_int_equal(heed_num_threads(ctx), 64);
  assert_int_equal(t.count, 1);
}
#else
static void threads_that_the_system_refuses_are_logged(void **state) {
  (void)state;
  skip();
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(failures_are_logged, open_context, close_context),
      cmocka_unit_test_setup_teardown(without_a_log_function_nothing_is_logged, open_context, close_context),
      cmocka_unit_test_setup_teardown(threads_that_the_system_refuses_are_logged, open_context,
                                      close_context),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
