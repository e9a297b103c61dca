/* System calls that fail, are interrupted, do less than they were asked for, or during which the process is
 * killed; and files that change while they are in use. Linux alone, where a test can replace system calls. */
#define _GNU_SOURCE /* syscall, truncate */

#include "saves.h"

#if defined(__linux__)
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- Replaced system calls ---- */

/* These definitions replace the C library's, in heed as well, under the names with 64 where it has them. The
 * call number `at`, from 1, gets the fault;
 * 0: none. */
enum { FAIL, INTERRUPT, SIGNAL };
static struct {
  int kind;
  int at, calls, error, signal;
  bool interrupts;     /* every other call fails with EINTR, */
  size_t most;         /* and the others read or write this much at most; 0: all */
  void (*after)(void); /* called after the first read, once */
} faults;

static void set_fault(int kind, int at, int detail) {
  memset(&faults, 0, sizeof faults);
  faults.kind = kind;
  faults.at = at;
  faults.error = faults.signal = detail;
}

static int clear_faults(void **state) {
  memset(&faults, 0, sizeof faults);
  return close_folder(state);
}

/* Whether a call fails now, with errno. Some calls are never interrupted. */
static bool fails(bool interruptible) {
  faults.calls++;
  if (faults.interrupts && interruptible && faults.calls % 2 == 1) {
    errno = EINTR;
    return true;
  }
  if (faults.calls != faults.at) return false;
  if (faults.kind == SIGNAL) raise(faults.signal);
  errno = faults.kind == FAIL ? faults.error : EINTR;
  return faults.kind == FAIL || (faults.kind == INTERRUPT && interruptible);
}

static size_t at_most(size_t bytes) {
  return faults.most > 0 && bytes > faults.most ? faults.most : bytes;
}

static ssize_t read_at(int fd, void *to, size_t bytes, int64_t offset) {
  if (fails(true)) return -1;
  const ssize_t n = (ssize_t)syscall(SYS_pread64, fd, to, at_most(bytes), offset);
  void (*after)(void) = faults.after;
  faults.after = NULL;
  if (after != NULL) after();
  return n;
}

static ssize_t write_at(int fd, const void *from, size_t bytes, int64_t offset) {
  return fails(true) ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, from, at_most(bytes), offset);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset) {
  return read_at(fd, to, bytes, offset);
}
ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset) {
  return write_at(fd, from, bytes, offset);
}

static int open_at(const char *path, int flags, int mode) {
  return fails(true) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int open(const char *path, int flags, ...) {
  return open_at(path, flags, 0666);
}

int fsync(int fd) { /* a killed process loses no pages, only a machine does */
  (void)fd;
  return fails(true) ? -1 : 0;
}

int rename(const char *from, const char *to) {
  return fails(false) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static void *map_at(void *at, size_t size, int protection, int flags, int fd, int64_t offset) {
  return fd >= 0 && fails(false) ? MAP_FAILED
                                 : (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
  return map_at(at, size, protection, flags, fd, offset);
}

static int threads_left = -1; /* pthread_create succeeds that many times; -1: always */

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *argument) {
  int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  void *found = dlsym(RTLD_NEXT, "pthread_create");
  memcpy(&create, &found, sizeof create);
  if (threads_left == 0) return EAGAIN;
  threads_left -= threads_left > 0;
  return create(thread, attributes, run, argument);
}

/* ---- Files of every format ---- */

static const char *const endings[] = {"npy", "npz", "safetensors", "gguf"};
enum { FORMATS = sizeof endings / sizeof *endings, NUMBERS = 50000 };

/* Saves a vector filled with `number` in that format. */
static heed_status save_as(heed_context *ctx, int format, double number) {
  heed_tensor *x = NULL;
  const char *name = "x";
  const int64_t shape[] = {NUMBERS};
  snprintf(file, sizeof file, "%s/x.%s", folder, endings[format]);
  heed_status status = heed_full(ctx, HEED_FLOAT32, 1, shape, heed_number(number), &x);
  const heed_tensor *const list[] = {x};
  if (status == HEED_OK)
    status =
        format == 0 ? heed_save_npy(ctx, file, x) : heed_save_archive(ctx, file, 1, &name, list, 0, NULL);
  heed_tensor_free(x);
  return status;
}

static heed_status load_as(heed_context *ctx, int format, heed_tensor **out) {
  heed_archive *archive = NULL;
  if (format == 0) return heed_load_npy(ctx, file, out);
  heed_status status = heed_load_archive(ctx, file, &archive);
  if (status == HEED_OK) status = heed_archive_tensor(archive, 1, out);
  heed_archive_free(archive);
  return status;
}

static bool is_full_of(const heed_tensor *x, float number) {
  const float *p = heed_tensor_data(x);
  if (heed_tensor_numel(x) != NUMBERS) return false;
  for (int64_t i = 0; i < NUMBERS; i++)
    if (p[i] != number) return false;
  return true;
}

/* The number that the file is filled with; it must be whole. */
static float number_in(heed_context *ctx, int format) {
  heed_tensor *x = NULL;
  assert_ok(load_as(ctx, format, &x));
  const float number = *(const float *)heed_tensor_data(x);
  assert_true(is_full_of(x, number));
  heed_tensor_free(x);
  return number;
}

/* ---- Failing calls ---- */

static void a_save_whose_nth_system_call_fails_leaves_the_old_file_or_the_new_one(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const int errors[] = {EIO, ENOSPC, EDQUOT, EACCES};
  int failures = 0;
  for (int format = 0; format < FORMATS; format++)
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
      assert_ok(save_as(ctx, format, 1));
      heed_status status = HEED_FILE;
      for (int n = 1;; n++) {
        set_fault(FAIL, n, errors[e]);
        status = save_as(ctx, format, 2);
        const bool passed = faults.calls < n;
        set_fault(FAIL, 0, 0);
        if (passed) break;
        failures++;
        const float number = number_in(ctx, format);
        assert_true(status == HEED_OK ? number == 2 : status == HEED_FILE && number == 1);
        if (status != HEED_OK) assert_non_null(strstr(heed_message(ctx), strerror(errors[e])));
        assert_ok(save_as(ctx, format, 1));
        assert_int_equal(count_files(false), format + 1);
      }
      assert_ok(status);
      assert_true(number_in(ctx, format) == 2);
    }
  print_message("%d failing system calls of saves\n", failures);
}

static void a_load_whose_nth_system_call_fails_says_why_and_the_next_one_succeeds(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  int failures = 0;
  for (int format = 0; format < FORMATS; format++)
    for (int copies = 0; copies < 2; copies++) {
      const heed_limits limits = {.size = sizeof limits, .map = copies ? HEED_MAP_NEVER : HEED_MAP_ALWAYS};
      assert_ok(heed_set_limits(ctx, &limits));
      assert_ok(save_as(ctx, format, 1));
      for (int n = 1;; n++) {
        heed_tensor *x = NULL;
        set_fault(FAIL, n, EIO);
        const heed_status status = load_as(ctx, format, &x);
        const bool passed = faults.calls < n;
        set_fault(FAIL, 0, 0);
        heed_tensor_free(x);
        if (passed) {
          assert_ok(status);
          break;
        }
        failures++;
        assert_int_equal(status, HEED_FILE);
        assert_non_null(strstr(heed_message(ctx), strerror(EIO)));
        assert_true(number_in(ctx, format) == 1);
      }
    }
  print_message("%d failing system calls of loads\n", failures);
}

static void short_and_interrupted_calls_are_continued(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const heed_limits limits = {.size = sizeof limits, .map = HEED_MAP_NEVER};
  assert_ok(heed_set_limits(ctx, &limits));
  for (int format = 0; format < FORMATS; format++) {
    set_fault(FAIL, 0, 0);
    faults.interrupts = true;
    faults.most = 4099;
    assert_ok(save_as(ctx, format, 3));
    assert_true(faults.calls > 2 * NUMBERS * 4 / 4099);
    assert_true(number_in(ctx, format) == 3);
  }
}

static void threads_that_the_system_refuses_are_done_without(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = NULL, *want = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(600, 600), heed_number(2), &x));
  assert_ok(heed_matmul(ctx, x, x, &want));
  for (int refused = 3; refused >= 0; refused--) {
    heed_tensor *y = NULL;
    assert_ok(heed_set_num_threads(ctx, 4));
    threads_left = 3 - refused;
    const heed_status status = heed_matmul(ctx, x, x, &y);
    threads_left = -1;
    assert_ok(status);
    assert_int_equal(heed_num_threads(ctx), 4 - refused);
    assert_memory_equal(heed_tensor_data(y), heed_tensor_data(want), 600 * 600 * sizeof(float));
    assert_ok(heed_set_num_threads(ctx, 1));
    heed_tensor_free(y);
  }
  heed_tensor_free(x);
  heed_tensor_free(want);
}

/* ---- Signals and kills ---- */

static void on_signal(int number) {
  (void)number;
}

/* A handler without SA_RESTART runs, and the call that it interrupted fails. */
static void a_signal_at_any_system_call_does_not_disturb_a_save(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const int signals[] = {SIGALRM, SIGINT, SIGTERM, SIGCHLD};
  for (size_t s = 0; s < sizeof signals / sizeof *signals; s++) {
    const struct sigaction own = {.sa_handler = on_signal};
    struct sigaction before;
    assert_int_equal(sigaction(signals[s], &own, &before), 0);
    for (int format = 0; format < FORMATS; format++)
      for (int n = 1;; n++) {
        set_fault(SIGNAL, n, signals[s]);
        assert_ok(save_as(ctx, format, n));
        const bool passed = faults.calls < n;
        set_fault(INTERRUPT, n, 0);
        assert_ok(save_as(ctx, format, n));
        set_fault(FAIL, 0, 0);
        assert_true(number_in(ctx, format) == (float)n);
        if (passed) break;
      }
    assert_int_equal(sigaction(signals[s], &before, NULL), 0);
  }
}

/* What a process does that ends at its nth system call: 0 if it ended by itself. */
static int end_while_saving(int format, int n, int signal) {
  int how;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    heed_context *own = NULL;
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    (void)sigaction(signal, &usual, NULL);
    if (heed_context_new(NULL, &own) != HEED_OK) _exit(1);
    set_fault(SIGNAL, n, signal);
    _exit(save_as(own, format, 2) == HEED_OK ? 0 : 2);
  }
  assert_int_equal(waitpid(child, &how, 0), child);
  if (WIFSIGNALED(how)) return WTERMSIG(how);
  assert_int_equal(how, 0);
  return 0;
}

static void a_process_killed_at_any_system_call_of_a_save_leaves_the_old_file_or_the_new_one(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const int signals[] = {SIGKILL, SIGTERM, SIGINT};
  int kills = 0;
  for (int format = 0; format < FORMATS; format++)
    for (size_t s = 0; s < sizeof signals / sizeof *signals; s++) {
      bool replaced = false;
      for (int n = 1;; n++) {
        assert_ok(save_as(ctx, format, 1));
        const int signal = end_while_saving(format, n, signals[s]);
        const float number = number_in(ctx, format);
        assert_true(number == 2 || (number == 1 && signal != 0 && !replaced));
        replaced = number == 2;
        if (signal == 0) break;
        assert_int_equal(signal, signals[s]);
        kills++;
      }
      assert_ok(save_as(ctx, format, 1));
      assert_int_equal(count_files(false), format + 1); /* nothing of the killed ones is left */
    }
  print_message("%d killed saves\n", kills);
}

/* ---- Files that change while they are in use ---- */

static int changed_files; /* of the tests below */

typedef struct mode {
  heed_mapping map;
  bool final, maps;
} mode;
static const mode modes[] = {{HEED_MAP_UNLESS_FINAL, false, true},
                             {HEED_MAP_UNLESS_FINAL, true, false},
                             {HEED_MAP_ALWAYS, true, true},
                             {HEED_MAP_NEVER, false, false}};
enum { MODES = sizeof modes / sizeof *modes };

static void set_mode(heed_context *ctx, const mode *m) {
  const heed_limits limits = {.size = sizeof limits, .map = m->map, .final = m->final};
  assert_ok(heed_set_limits(ctx, &limits));
}

/* A mapped file's lost pages end the process, a copied file's do not exist. */
static void a_file_that_is_cut_ends_the_process_only_if_it_is_mapped(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const long page = sysconf(_SC_PAGESIZE),
             half = NUMBERS * 2 / page * page;     /* the rest of a page would be zeros */
  for (int format = 2; format < FORMATS; format++) /* those whose tensors stay in the file */
    for (int i = 0; i < MODES; i++) {
      int how;
      assert_ok(save_as(ctx, format, 5));
      const pid_t child = fork();
      assert_true(child >= 0);
      if (child == 0) {
        heed_tensor *x = NULL;
        const struct sigaction usual = {.sa_handler = SIG_DFL}; /* not that of a sanitizer */
        (void)sigaction(SIGBUS, &usual, NULL);
        set_mode(ctx, &modes[i]);
        if (load_as(ctx, format, &x) != HEED_OK || truncate(file, half) != 0) _exit(1);
        _exit(is_full_of(x, 5) ? 0 : 2);
      }
      assert_int_equal(waitpid(child, &how, 0), child);
      if (modes[i].maps) {
        assert_true(WIFSIGNALED(how));
        assert_int_equal(WTERMSIG(how), SIGBUS);
      } else {
        assert_int_equal(how, 0);
      }
      changed_files++;
    }
}

static void a_file_that_is_replaced_keeps_its_values_where_it_is_in_use(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int format = 0; format < FORMATS; format++)
    for (int i = 0; i < MODES; i++) {
      heed_tensor *x = NULL;
      assert_ok(save_as(ctx, format, 5));
      set_mode(ctx, &modes[i]);
      assert_ok(load_as(ctx, format, &x));
      assert_ok(save_as(ctx, format, 6));
      assert_true(is_full_of(x, 5));
      heed_tensor_free(x);
      assert_true(number_in(ctx, format) == 6);
      changed_files++;
    }
}

static void cut_file(void) {
  assert_int_equal(truncate(file, 1000), 0);
}

static void a_file_that_is_cut_while_it_is_read_is_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  set_mode(ctx, &modes[3]);
  for (int format = 0; format < FORMATS; format++) {
    heed_tensor *x = NULL;
    assert_ok(save_as(ctx, format, 5));
    set_fault(FAIL, 0, 0);
    faults.most = 4096;
    faults.after = cut_file;
    assert_int_equal(load_as(ctx, format, &x), HEED_FILE);
    assert_non_null(strstr(heed_message(ctx), "was cut short to "));
    assert_non_null(strstr(heed_message(ctx), " bytes while it was read"));
    assert_null(x);
    changed_files++;
  }
  print_message("%d files that changed while they were in use\n", changed_files);
}

static void a_copied_file_counts_as_memory_and_a_mapped_one_does_not(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int i = 0; i < MODES; i++) {
    heed_tensor *x = NULL;
    set_mode(ctx, &modes[i]);
    assert_ok(save_as(ctx, 2, 5));
    const size_t before = heed_memory_in_use(ctx);
    assert_ok(load_as(ctx, 2, &x));
    assert_int_equal(heed_memory_in_use(ctx) - before >= NUMBERS * sizeof(float), !modes[i].maps);
    heed_tensor_free(x);
    assert_int_equal(heed_memory_in_use(ctx), before);
    heed_limits limits = {.size = sizeof limits,
                          .map = modes[i].map,
                          .final = modes[i].final,
                          .memory = before + NUMBERS * sizeof(float)};
    x = NULL;
    assert_ok(heed_set_limits(ctx, &limits));
    assert_int_equal(load_as(ctx, 2, &x), modes[i].maps ? HEED_OK : HEED_MEMORY);
    heed_tensor_free(x);
  }
}

#define FAULT_TEST(function) cmocka_unit_test_setup_teardown(function, open_folder, clear_faults)
#endif

int main(void) {
#if defined(__linux__)
  const struct CMUnitTest tests[] = {
      FAULT_TEST(a_save_whose_nth_system_call_fails_leaves_the_old_file_or_the_new_one),
      FAULT_TEST(a_load_whose_nth_system_call_fails_says_why_and_the_next_one_succeeds),
      FAULT_TEST(short_and_interrupted_calls_are_continued),
      FAULT_TEST(threads_that_the_system_refuses_are_done_without),
      FAULT_TEST(a_signal_at_any_system_call_does_not_disturb_a_save),
      FAULT_TEST(a_process_killed_at_any_system_call_of_a_save_leaves_the_old_file_or_the_new_one),
      FAULT_TEST(a_file_that_is_cut_ends_the_process_only_if_it_is_mapped),
      FAULT_TEST(a_file_that_is_replaced_keeps_its_values_where_it_is_in_use),
      FAULT_TEST(a_file_that_is_cut_while_it_is_read_is_refused),
      FAULT_TEST(a_copied_file_counts_as_memory_and_a_mapped_one_does_not),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
#else
  return 0;
#endif
}
