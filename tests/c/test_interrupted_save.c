/* The temporary files of killed saves: the next save of the path removes them, but never those of saves that
 * still run, in this process or another. WASI, which has no locks, keeps them. */
#define _DEFAULT_SOURCE /* kill */

#include "saves.h"

#if !defined(_WIN32) && !defined(__wasi__)
#define HAS_PROCESSES 1
#include <signal.h>
#include <sys/wait.h>
#endif

static void a_save_that_fails_leaves_the_old_file_alone(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static heed__writer w;
  save(ctx, file, 1);
  begin(ctx, &w, file, 2);
  assert_int_equal(count_files(false), 2);
  assert_int_equal(heed__writer_end(&w, HEED_CANCELLED), HEED_CANCELLED);
  assert_int_equal(count_files(false), 1);
  expect(ctx, file, 1);
}

#if !defined(__wasi__)
static void the_next_save_of_the_path_removes_the_files_of_killed_ones(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static heed__writer w;
  char another[80];
  snprintf(another, sizeof another, "%s/y.npy", folder);
  for (int i = 0; i < 3; i++) {
    begin(ctx, &w, another, 7);
    abandon(&w);
    assert_int_equal(count_files(false), 1); /* each removed the one before it */
  }
  save(ctx, file, 1);
  assert_int_equal(count_files(false), 2); /* files of other paths are kept */
  save(ctx, another, 2);
  assert_int_equal(count_files(false), 2);
  expect(ctx, file, 1);
  expect(ctx, another, 2);
}

static void a_save_that_fails_removes_the_files_of_killed_ones(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static heed__writer w;
  save(ctx, file, 1);
  begin(ctx, &w, file, 2);
  abandon(&w);
  begin(ctx, &w, file, 3);
  assert_int_equal(heed__writer_end(&w, HEED_CANCELLED), HEED_CANCELLED);
  assert_int_equal(count_files(false), 1);
  expect(ctx, file, 1);
}

/* 20 saves, of which 3 still run, 6 were cancelled and 11 killed: the numbers of their files have a gap. */
static void the_files_of_several_killed_saves_are_removed_and_those_of_running_ones_kept(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  enum { RUNNING = 3, CANCELLED = 6, KILLED = 11, COUNT = RUNNING + CANCELLED + KILLED };
  static heed__writer w[COUNT];
  for (int i = 0; i < COUNT; i++) begin(ctx, &w[i], file, i);
  for (int i = RUNNING; i < RUNNING + CANCELLED; i++)
    assert_int_equal(heed__writer_end(&w[i], HEED_CANCELLED), HEED_CANCELLED);
  for (int i = RUNNING + CANCELLED; i < COUNT; i++) abandon(&w[i]);
  assert_int_equal(count_files(false), RUNNING + KILLED);
  save(ctx, file, 50);
  assert_int_equal(count_files(false), RUNNING + 1);
  expect(ctx, file, 50);
  for (int i = 0; i < RUNNING; i++) assert_ok(end(ctx, &w[i], i));
  assert_int_equal(count_files(false), 1);
}

static void saves_of_a_path_at_the_same_time_all_succeed(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static heed__writer w[3];
  begin(ctx, &w[0], file, 1);
  begin(ctx, &w[1], file, 2);
  begin(ctx, &w[2], file, 3);
  abandon(&w[1]);
  assert_int_equal(count_files(false), 3);
  save(ctx, file, 4);
  assert_int_equal(count_files(false), 3); /* the new one, and those that still run */
  expect(ctx, file, 4);
  assert_ok(end(ctx, &w[2], 3));
  expect(ctx, file, 3);
  assert_ok(end(ctx, &w[0], 1));
  expect(ctx, file, 1);
  assert_int_equal(count_files(false), 1);
}
#endif

#if defined(HAS_PROCESSES)
/* ---- Other processes ---- */

typedef struct process {
  pid_t id;
  int go; /* its save ends when this is closed */
} process;

/* Starts a process and returns when it is half-way through a save of `file`. */
static process begin_in_a_process(double number) {
  int begun[2], go[2];
  char byte;
  assert_int_equal(pipe(begun), 0);
  assert_int_equal(pipe(go), 0);
  process p = {.id = fork(), .go = go[1]};
  assert_true(p.id >= 0);
  if (p.id == 0) {
    static heed__writer w;
    heed_context *ctx = NULL;
    close(go[1]);
    if (heed_context_new(NULL, &ctx) != HEED_OK) _exit(1);
    begin(ctx, &w, file, number);
    if (write(begun[1], "x", 1) != 1 || read(go[0], &byte, 1) != 0) _exit(2);
    const heed_status status = end(ctx, &w, number);
    heed_context_free(ctx);
    _exit(status == HEED_OK ? 0 : 3);
  }
  close(begun[1]);
  close(go[0]);
  assert_int_equal(read(begun[0], &byte, 1), 1);
  close(begun[0]);
  return p;
}

static int end_of(process p) {
  int how;
  close(p.go);
  assert_int_equal(waitpid(p.id, &how, 0), p.id);
  return how;
}

static void no_temporary_file_is_left_after_the_save_that_follows_a_kill(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int i = 0; i < 5; i++) {
    const process p = begin_in_a_process(1);
    assert_int_equal(kill(p.id, SIGKILL), 0);
    assert_true(WIFSIGNALED(end_of(p)));
    assert_int_equal(count_files(false), i == 0 ? 1 : 2);
    save(ctx, file, i);
    assert_int_equal(count_files(false), 1);
    expect(ctx, file, i);
  }
}

static void the_file_of_another_process_that_is_saving_is_kept(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const process first = begin_in_a_process(1);
  const process second = begin_in_a_process(2);
  assert_int_equal(count_files(false), 2);
  save(ctx, file, 3);
  assert_int_equal(count_files(false), 3);
  expect(ctx, file, 3);
  assert_int_equal(end_of(second), 0);
  expect(ctx, file, 2);
  assert_int_equal(end_of(first), 0);
  expect(ctx, file, 1);
  assert_int_equal(count_files(false), 1);
}

/* None fails, and the file is from one of them. */
static void processes_that_save_a_path_again_and_again_do_not_disturb_each_other(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  enum { PROCESSES = 4, SAVES = 50 };
  pid_t ids[PROCESSES];
  heed_tensor *loaded = NULL;
  for (int i = 0; i < PROCESSES; i++) {
    ids[i] = fork();
    assert_true(ids[i] >= 0);
    if (ids[i] > 0) continue;
    heed_context *own = NULL;
    heed_tensor *x = NULL;
    bool failed = heed_context_new(NULL, &own) != HEED_OK ||
                  heed_full(own, HEED_FLOAT32, 1, SHAPE(1000), heed_number(i), &x) != HEED_OK;
    for (int k = 0; k < SAVES && !failed; k++) failed = heed_save_npy(own, file, x) != HEED_OK;
    if (failed) fprintf(stderr, "%s\n", own ? heed_message(own) : "no context");
    heed_tensor_free(x);
    heed_context_free(own);
    _exit(failed);
  }
  for (int i = 0; i < PROCESSES; i++) {
    int how;
    assert_int_equal(waitpid(ids[i], &how, 0), ids[i]);
    assert_int_equal(how, 0);
  }
  assert_int_equal(count_files(false), 1);
  assert_ok(heed_load_npy(ctx, file, &loaded));
  expect(ctx, file, (double)((const float *)heed_tensor_data(loaded))[0]);
  heed_tensor_free(loaded);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    SAVE_TEST(a_save_that_fails_leaves_the_old_file_alone),
#if !defined(__wasi__)
    SAVE_TEST(the_next_save_of_the_path_removes_the_files_of_killed_ones),
    SAVE_TEST(a_save_that_fails_removes_the_files_of_killed_ones),
    SAVE_TEST(the_files_of_several_killed_saves_are_removed_and_those_of_running_ones_kept),
    SAVE_TEST(saves_of_a_path_at_the_same_time_all_succeed),
#endif
#if defined(HAS_PROCESSES)
    SAVE_TEST(no_temporary_file_is_left_after_the_save_that_follows_a_kill),
    SAVE_TEST(the_file_of_another_process_that_is_saving_is_kept),
    SAVE_TEST(processes_that_save_a_path_again_and_again_do_not_disturb_each_other),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
