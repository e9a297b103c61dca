/* The subset of cmocka that the tests use, for Windows, RISC-V and WebAssembly, for which Debian has no
 * cmocka: assertions that end a test by longjmp, and the loop over the tests, with cmocka's output. */
#ifndef HEED_TEST_CMOCKA_H
#define HEED_TEST_CMOCKA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct CMUnitTest {
  const char *name;
  void (*test)(void **state);
  int (*setup)(void **state), (*teardown)(void **state);
  void *initial_state;
} CMUnitTest;

#define cmocka_unit_test(function)                                                                           \
  { #function, function, NULL, NULL }
#define cmocka_unit_test_setup_teardown(function, setup, teardown)                                           \
  { #function, function, setup, teardown }

static bool shim_skipped; /* whether the running test was skipped */

#if defined(__wasm__) /* has no longjmp: the first failing assertion ends the program */
#define SHIM_BEGIN() true
#define SHIM_LEAVE() (printf("[  FAILED  ] 1 test(s)\n"), exit(1))
#else
/* __builtin_longjmp needs no unwind tables. */
static void *shim_target[5];
#define SHIM_BEGIN() (__builtin_setjmp(shim_target) == 0)
#define SHIM_LEAVE() __builtin_longjmp(shim_target, 1)
#endif

static inline void shim_check(bool holds, const char *what, const char *file, int line) {
  if (holds) return;
  printf("%s:%d: %s\n", file, line, what);
  fflush(stdout);
  SHIM_LEAVE();
}
#define SHIM_CHECK(holds, what) shim_check(holds, what, __FILE__, __LINE__)

#define assert_true(x)                   SHIM_CHECK(!!(x), #x)
#define assert_false(x)                  SHIM_CHECK(!(x), "not " #x)
#define assert_null(x)                   SHIM_CHECK((x) == NULL, #x " is NULL")
#define assert_non_null(x)               SHIM_CHECK((x) != NULL, #x " is not NULL")
#define assert_ptr_equal(a, b)           SHIM_CHECK((const void *)(a) == (const void *)(b), #a " is " #b)
#define assert_int_equal(a, b)           SHIM_CHECK((uint64_t)(a) == (uint64_t)(b), #a " is " #b)
#define assert_int_not_equal(a, b)       SHIM_CHECK((uint64_t)(a) != (uint64_t)(b), #a " is not " #b)
#define assert_string_equal(a, b)        SHIM_CHECK(strcmp(a, b) == 0, a)
#define assert_string_not_equal(a, b)    SHIM_CHECK(strcmp(a, b) != 0, a)
#define assert_memory_equal(a, b, n)     SHIM_CHECK(memcmp(a, b, n) == 0, #a " has the bytes of " #b)
#define assert_memory_not_equal(a, b, n) SHIM_CHECK(memcmp(a, b, n) != 0, #a " has not the bytes of " #b)
#define assert_in_range(x, low, high)                                                                        \
  SHIM_CHECK((uint64_t)(x) >= (uint64_t)(low) && (uint64_t)(x) <= (uint64_t)(high), #x " is in range")
#define fail_msg(...) (printf(__VA_ARGS__), SHIM_CHECK(false, ""))
/* Runs in the test's own function. */
#define skip()                                                                                               \
  do {                                                                                                       \
    shim_skipped = true;                                                                                     \
    return;                                                                                                  \
  } while (0)

static int shim_run(const CMUnitTest *tests, size_t count, int (*setup)(void **), int (*teardown)(void **)) {
  volatile size_t i, passed = 0, skipped = 0;
  void *group = NULL;
  if (setup != NULL && setup(&group) != 0) return 1;
  for (i = 0; i < count; i++) {
    void *state = group;
    shim_skipped = false;
    if (SHIM_BEGIN()) {
      if (tests[i].setup != NULL) shim_check(tests[i].setup(&state) == 0, "setup", __FILE__, __LINE__);
      tests[i].test(&state);
      if (tests[i].teardown != NULL)
        shim_check(tests[i].teardown(&state) == 0, "teardown", __FILE__, __LINE__);
      if (shim_skipped) {
        skipped++;
      } else {
        passed++;
      }
    } else {
      printf("[  FAILED  ] %s\n", tests[i].name);
    }
  }
  if (teardown != NULL) (void)teardown(&group);
  const int failed = (int)(count - passed - skipped);
  printf("[  PASSED  ] %d test(s).\n", (int)passed);
  if (failed > 0) printf("[  FAILED  ] %d test(s)\n", failed);
  fflush(stdout);
  return failed;
}
#define cmocka_run_group_tests(tests, setup, teardown)                                                       \
  shim_run(tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown)                                            \
  cmocka_run_group_tests(tests, setup, teardown)

#endif
