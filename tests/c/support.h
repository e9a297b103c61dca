/* Shared by the C tests: cmocka with the headers it requires, an allocator that counts and can fail, and the
 * loop that makes every allocation of a scenario fail in turn. */
#ifndef HEED_TESTS_SUPPORT_H
#define HEED_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "../../src/core/core.h"

#define SHAPE(...)                                                                                           \
  (const int64_t[]) {                                                                                        \
    __VA_ARGS__                                                                                              \
  }

#define assert_ok(call) assert_int_equal((call), HEED_OK)

/** The call must fail on ctx with status `wanted`, and the message must be exactly `text`. */
#define assert_fails(ctx, call, wanted, text)                                                                \
  do {                                                                                                       \
    assert_int_equal((call), (wanted));                                                                      \
    assert_string_equal(heed_message(ctx), (text));                                                          \
  } while (0)

/* ---- Numbers ---- */

/* A portable random number generator; the upper bits are the most random. */
static inline uint32_t next_random(uint32_t *state) {
  return *state = *state * 1664525u + 1013904223u;
}

/* ---- How much to try ---- */

/** `more` in `make nightly`, which sets HEED_NIGHTLY; else `less`. */
static inline int nightly(int more, int less) {
  return getenv("HEED_NIGHTLY") ? more : less;
}

/* ---- An allocator that counts ---- */

typedef struct test_memory {
  int64_t blocks; /* in use */
  size_t bytes;   /* in use */
  int64_t calls;
  int64_t fail_at; /* the call that fails, counted from 1; 0: none */
} test_memory;

static inline void *test_allocate(void *user, size_t bytes) {
  test_memory *memory = user;
  if (++memory->calls == memory->fail_at) return NULL;
  char *block = malloc(bytes);
  if (block == NULL) return NULL;
  memset(block, 0xa5, bytes); /* detects code that relies on zeros */
  memory->blocks++;
  memory->bytes += bytes;
  return block;
}

static inline void test_release(void *user, void *block, size_t bytes) {
  test_memory *memory = user;
  assert_non_null(block);
  memory->blocks--;
  memory->bytes -= bytes;
  free(block);
}

static inline heed_allocator test_allocator(test_memory *memory) {
  return (heed_allocator){test_allocate, test_release, memory};
}

/* ---- Aligned memory ---- */

/** `bytes` bytes aligned to HEED__ALIGNMENT; Windows lacks aligned_alloc. */
static inline void *aligned_new(size_t bytes) {
  char *start = malloc(bytes + 2 * HEED__ALIGNMENT);
  assert_non_null(start);
  char *data = start + HEED__ALIGNMENT + (-(uintptr_t)start & (HEED__ALIGNMENT - 1));
  memcpy(data - sizeof(start), &start, sizeof(start));
  return data;
}

static inline void aligned_free(void *data) {
  char *start;
  memcpy(&start, (char *)data - sizeof(start), sizeof(start));
  free(start);
}

/* ---- A context for a test ---- */

typedef struct test_context {
  test_memory memory;
  heed_context *ctx;
} test_context;

/** Setup and teardown: *state is a test_context; the teardown detects leaks. */
static inline int open_context(void **state) {
  test_context *t = calloc(1, sizeof(*t));
  assert_non_null(t);
  heed_allocator allocator = test_allocator(&t->memory);
  assert_ok(heed_context_new(&allocator, &t->ctx));
  *state = t;
  return 0;
}

static inline int close_context(void **state) {
  test_context *t = *state;
  heed_context_free(t->ctx);
  const int64_t blocks = t->memory.blocks;
  const size_t bytes = t->memory.bytes;
  free(t);
  assert_int_equal(blocks, 0);
  assert_int_equal(bytes, 0);
  return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_context, close_context)

/* ---- Failing in turn ---- */

/** Uses ctx and frees everything, whether it succeeds or fails. */
typedef heed_status test_scenario(heed_context *ctx);

/** Runs the scenario on new contexts whose n-th allocation fails, for n = 1, 2, …, until no allocation fails.
 * Each time it must succeed, or fail with MEMORY and a message, and must not leak. */
static inline void survives_every_failing_allocation(test_scenario *scenario) {
  test_memory memory = {0};
  do {
    memory = (test_memory){.fail_at = memory.fail_at + 1};
    heed_allocator allocator = test_allocator(&memory);
    heed_context *ctx = NULL;
    heed_status status = heed_context_new(&allocator, &ctx);
    if (status == HEED_OK) {
      status = scenario(ctx);
      if (status != HEED_OK) assert_string_not_equal(heed_message(ctx), "");
      heed_context_free(ctx);
    }
    if (status != HEED_OK) assert_int_equal(status, HEED_MEMORY);
    assert_int_equal(memory.blocks, 0);
    assert_int_equal(memory.bytes, 0);
  } while (memory.calls >= memory.fail_at);
}

#endif
