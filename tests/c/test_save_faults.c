/* Saves on systems that cannot replace, lock or sync a file, and saves that are disturbed between two system
 * calls, which need Linux, where a test can replace system calls. */
#define _GNU_SOURCE /* syscall */

#include "saves.h"

#if defined(__linux__)
#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#endif

/* A folder cannot be replaced; Windows waits for it as for an open file. */
static void a_cancel_ends_the_wait_for_a_file_that_cannot_be_replaced(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static heed__writer w;
  for (int cancelled = 0; cancelled < 2; cancelled++) {
    assert_ok(
        heed__writer_begin(&w, ctx, file)); /* writes nothing: a write would check for cancellation first */
    assert_true(make_folder(file));
    if (cancelled) heed_cancel(ctx);
    assert_int_equal(heed__writer_end(&w, HEED_OK), cancelled ? HEED_CANCELLED : HEED_FILE);
    assert_int_equal(count_files(false), 1);
    assert_int_equal(rmdir(file), 0);
  }
}

#if defined(__linux__) || defined(__wasi__)
/* ---- File systems without locks ---- */

#if defined(__linux__)
/* These definitions of flock, fsync, close and opendir replace the C library's, in heed as well. */
static struct {
  bool no_locks, local_locks; /* local: every lock succeeds, as for saves on other machines */
  bool no_fsync, full_at_close;
  int listings;
  void (*before_lock)(void), (*after_close)(void); /* called once */
} faults;

static int remove_faults(void **state) {
  memset(&faults, 0, sizeof faults);
  return close_folder(state);
}

static void call_once(void (**hook)(void)) {
  void (*call)(void) = *hook;
  *hook = NULL;
  if (call != NULL) call();
}

int flock(int fd, int operation) {
  call_once(&faults.before_lock);
  if (faults.local_locks) return 0;
  errno = ENOLCK;
  return faults.no_locks ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int fsync(int fd) {
  errno = EINVAL;
  return faults.no_fsync ? -1 : (int)syscall(SYS_fsync, fd);
}

int close(int fd) {
  const int failed = (int)syscall(SYS_close, fd);
  call_once(&faults.after_close);
  if (!faults.full_at_close) return failed;
  errno = EDQUOT;
  return -1;
}

DIR *opendir(const char *path) {
  faults.listings++;
  return fdopendir(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static void begin_without_locks(void) {
  faults.no_locks = true;
}
#else
static int remove_faults(void **state) {
  return close_folder(state);
}

static void begin_without_locks(void) {}
#endif

static void without_locks_no_file_is_taken_for_abandoned(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static heed__writer killed, running;
  begin_without_locks();
  begin(ctx, &killed, file, 1);
  abandon(&killed);
  begin(ctx, &running, file, 2);
  save(ctx, file, 3);
  assert_int_equal(count_files(false), 3);
  expect(ctx, file, 3);
  assert_ok(end(ctx, &running, 2));
  assert_int_equal(count_files(false), 2);
  expect(ctx, file, 2);
}

/* Creates the files directly, after the names of a first one: faster than by saves. */
static void without_locks_a_save_fails_when_all_temporary_names_are_taken(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static heed__writer w;
  char message[80];
  snprintf(message, sizeof message, "cannot be written: its folder already has %d temporary files",
           HEED__TEMPORARIES);
  begin_without_locks();
  save(ctx, file, 1);
  begin(ctx, &w, file, 2);
  abandon(&w);
  char *number = w.temporary + strlen(w.temporary) - strlen("0.tmp");
  assert_string_equal(number, "0.tmp");
  for (int i = 1; i < HEED__TEMPORARIES; i++) {
    snprintf(number, sizeof w.temporary - (size_t)(number - w.temporary), "%d.tmp", i);
    FILE *made = fopen(w.temporary, "wb");
    assert_non_null(made);
    fclose(made);
  }
  assert_int_equal(heed__writer_begin(&w, ctx, file), HEED_FILE);
  assert_non_null(strstr(heed_message(ctx), message));
  assert_int_equal(count_files(false), HEED__TEMPORARIES + 1);
  expect(ctx, file, 1);
  assert_int_equal(remove(w.temporary), 0); /* the last name */
  save(ctx, file, 3);
  expect(ctx, file, 3);
}
#endif

#if defined(__linux__)
/* ---- Between two system calls of a save ---- */

static heed_context *shared;
static heed__writer own, other, third;

static void begin_other(void) {
  begin(shared, &other, file, 2);
}

static void a_new_file_that_another_save_removes_before_its_lock_is_created_again(void **state) {
  shared = ((test_context *)*state)->ctx;
  faults.before_lock = begin_other;
  begin(shared, &own, file, 1);
  assert_string_not_equal(own.temporary, other.temporary);
  assert_int_equal(count_files(false), 2);
  assert_ok(end(shared, &own, 1));
  expect(shared, file, 1);
  assert_ok(end(shared, &other, 2));
  expect(shared, file, 2);
  assert_int_equal(count_files(false), 1);
}

static void end_own_and_begin_other(void) {
  assert_ok(end(shared, &own, 1));
  begin_other();
}

static void locking_a_name_that_another_save_took_meanwhile_leaves_its_file_alone(void **state) {
  shared = ((test_context *)*state)->ctx;
  begin(shared, &own, file, 1);
  faults.before_lock = end_own_and_begin_other;
  begin(shared, &third, file, 3);
  assert_string_equal(other.temporary, own.temporary);
  assert_string_not_equal(third.temporary, other.temporary);
  assert_ok(end(shared, &other, 2));
  expect(shared, file, 2);
  assert_ok(end(shared, &third, 3));
  expect(shared, file, 3);
  assert_int_equal(count_files(false), 1);
}

static void a_save_whose_name_was_taken_in_spite_of_its_lock_fails_and_the_other_succeeds(void **state) {
  shared = ((test_context *)*state)->ctx;
  save(shared, file, 0);
  faults.local_locks = true;
  begin(shared, &own, file, 1);
  begin(shared, &other, file, 2);
  assert_string_equal(own.temporary, other.temporary);
  assert_int_equal(end(shared, &own, 1), HEED_FILE);
  expect(shared, file, 0);
  assert_ok(end(shared, &other, 2));
  expect(shared, file, 2);
  assert_int_equal(count_files(false), 1);
}

static void a_save_that_fails_removes_its_file_before_another_save_can_take_the_name(void **state) {
  shared = ((test_context *)*state)->ctx;
  begin(shared, &own, file, 1);
  faults.after_close = begin_other;
  assert_int_equal(heed__writer_end(&own, HEED_CANCELLED), HEED_CANCELLED);
  assert_string_equal(own.temporary, other.temporary);
  assert_ok(end(shared, &other, 2));
  expect(shared, file, 2);
  assert_int_equal(count_files(false), 1);
}

static void a_save_does_not_list_the_folder(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const int before = faults.listings;
  save(ctx, file, 1);
  assert_int_equal(faults.listings, before);
}

static void without_fsync_a_write_error_at_close_leaves_the_old_file(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  save(ctx, file, 1);
  faults.no_fsync = true;
  save(ctx, file, 2);
  expect(ctx, file, 2);
  begin(ctx, &own, file, 3);
  faults.full_at_close = true;
  const heed_status status = end(ctx, &own, 3);
  faults.full_at_close = false;
  assert_int_equal(status, HEED_FILE);
  assert_non_null(strstr(heed_message(ctx), strerror(EDQUOT)));
  expect(ctx, file, 2);
  assert_int_equal(count_files(false), 1);
}

/* Between the copy's close and the rename the file must still be locked. */
static void without_fsync_the_file_stays_locked_until_it_is_renamed(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  faults.no_fsync = true;
  begin(ctx, &own, file, 1);
  assert_int_equal(heed__system_sync(own.file), 0);
  save(ctx, file, 2);
  assert_int_equal(count_files(false), 2);
  assert_ok(end(ctx, &own, 1));
  expect(ctx, file, 1);
}
#endif

#define FAULT_TEST(function) cmocka_unit_test_setup_teardown(function, open_folder, remove_faults)

int main(void) {
  const struct CMUnitTest tests[] = {
    SAVE_TEST(a_cancel_ends_the_wait_for_a_file_that_cannot_be_replaced),
#if defined(__linux__) || defined(__wasi__)
    FAULT_TEST(without_locks_no_file_is_taken_for_abandoned),
    FAULT_TEST(without_locks_a_save_fails_when_all_temporary_names_are_taken),
#endif
#if defined(__linux__)
    FAULT_TEST(a_new_file_that_another_save_removes_before_its_lock_is_created_again),
    FAULT_TEST(locking_a_name_that_another_save_took_meanwhile_leaves_its_file_alone),
    FAULT_TEST(a_save_whose_name_was_taken_in_spite_of_its_lock_fails_and_the_other_succeeds),
    FAULT_TEST(a_save_that_fails_removes_its_file_before_another_save_can_take_the_name),
    FAULT_TEST(a_save_does_not_list_the_folder),
    FAULT_TEST(without_fsync_a_write_error_at_close_leaves_the_old_file),
    FAULT_TEST(without_fsync_the_file_stays_locked_until_it_is_renamed),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
