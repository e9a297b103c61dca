/* Memory: alignment, counting, the host's allocator, and how long a context lives. */
#define _DEFAULT_SOURCE 1 /* madvise */

#include "support.h"

#include <stdio.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

static void blocks_are_aligned_whatever_the_allocator_gives(void **state) {
  test_context *t = *state;
  void *block[40];
  for (size_t i = 0; i < 40; i++) {
    block[i] = heed__allocate(t->ctx, i * 7);
    assert_non_null(block[i]);
    assert_int_equal((uintptr_t)block[i] % HEED__ALIGNMENT, 0);
    memset(block[i], 1, i * 7);
  }
  for (size_t i = 0; i < 40; i++) heed__release(t->ctx, block[i]);
}

static void a_block_of_no_bytes_is_a_block(void **state) {
  test_context *t = *state;
  void *block = heed__allocate(t->ctx, 0);
  assert_non_null(block);
  heed__release(t->ctx, block);
}

static void releasing_null_does_nothing(void **state) {
  test_context *t = *state;
  heed__release(t->ctx, NULL);
  assert_int_equal(t->memory.blocks, 1);
}

static void what_is_in_use_and_the_peak_are_counted(void **state) {
  test_context *t = *state;
  assert_int_equal(heed_memory_in_use(t->ctx), 0);
  void *a = heed__allocate(t->ctx, 1000), *b = heed__allocate(t->ctx, 5000);
  assert_int_equal(heed_memory_in_use(t->ctx) + sizeof(heed_context), t->memory.bytes);
  const size_t both = heed_memory_in_use(t->ctx);
  assert_true(both >= 6000);
  heed__release(t->ctx, b);
  assert_in_range(heed_memory_in_use(t->ctx), 1000, 1200);
  assert_int_equal(heed_memory_peak(t->ctx), both);
  heed_reset_peak(t->ctx);
  assert_int_equal(heed_memory_peak(t->ctx), heed_memory_in_use(t->ctx));
  heed__release(t->ctx, a);
  assert_int_equal(heed_memory_in_use(t->ctx), 0);
}

static void sizes_beyond_the_address_space_are_refused_without_asking(void **state) {
  test_context *t = *state;
  const int64_t calls = t->memory.calls;
  assert_null(heed__allocate(t->ctx, SIZE_MAX));
  assert_null(heed__allocate(t->ctx, SIZE_MAX - 64));
  assert_null(heed__allocate(t->ctx, PTRDIFF_MAX));
  assert_int_equal(t->memory.calls, calls);
  assert_int_equal(heed_memory_in_use(t->ctx), 0);
}

static void arrays_of_more_bytes_than_can_be_addressed_are_refused(void **state) {
  test_context *t = *state;
  assert_int_equal(heed__array_bytes(3, 8), 24);
  assert_int_equal(heed__array_bytes(UINT64_MAX, 0), 0);
  assert_int_equal(heed__array_bytes(PTRDIFF_MAX / 8, 8), PTRDIFF_MAX / 8 * 8);
  const uint64_t wraps = (uint64_t)SIZE_MAX / 8 + 17;
  const uint64_t counts[] = {PTRDIFF_MAX / 8 + 1, wraps, UINT64_MAX / 8, UINT64_MAX};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    const size_t bytes = heed__array_bytes(counts[i], 8);
    assert_null(heed__allocate(t->ctx, bytes));
    assert_null(heed__allocate(t->ctx, bytes + bytes));
    assert_null(heed__allocate(t->ctx, heed__array_bytes(2, bytes)));
  }
}

static void a_context_freed_early_stays_until_its_last_block_is_released(void **state) {
  (void)state;
  test_memory memory = {0};
  heed_allocator allocator = test_allocator(&memory);
  heed_context *ctx = NULL;
  assert_ok(heed_context_new(&allocator, &ctx));
  void *a = heed__allocate(ctx, 10), *b = heed__allocate(ctx, 10);
  heed_context_free(ctx);
  heed__release(ctx, a);
  assert_int_equal(memory.blocks, 2); /* b and the context */
  heed__release(ctx, b);
  assert_int_equal(memory.blocks, 0);
}

static void a_context_that_cannot_be_had_is_memory(void **state) {
  (void)state;
  test_memory memory = {.fail_at = 1};
  heed_allocator allocator = test_allocator(&memory);
  heed_context *ctx = NULL;
  assert_int_equal(heed_context_new(&allocator, &ctx), HEED_MEMORY);
  assert_null(ctx);
}

static void an_allocator_without_functions_is_refused(void **state) {
  (void)state;
  heed_allocator allocator = {0};
  heed_context *ctx = NULL;
  assert_int_equal(heed_context_new(&allocator, &ctx), HEED_ARGUMENT);
  assert_null(ctx);
}

static void a_context_without_an_allocator_uses_malloc(void **state) {
  (void)state;
  heed_context *ctx = NULL;
  assert_ok(heed_context_new(NULL, &ctx));
  heed__release(ctx, heed__allocate(ctx, 100));
  heed_context_free(ctx);
  heed_context_free(NULL);
}

#if defined(__linux__)

/* Whether the kernel is asked for huge pages (VmFlags hg) where `place` lies. */
static bool huge_pages_are_wished_at(const void *place) {
  FILE *file = fopen("/proc/self/smaps", "r");
  char line[512];
  bool here = false, wished = false;
  if (file == NULL) return false;
  while (fgets(line, sizeof line, file) != NULL) {
    unsigned long long first, end;
    if (sscanf(line, "%llx-%llx ", &first, &end) == 2)
      here = first <= (uintptr_t)place && (uintptr_t)place < end;
    if (here && strncmp(line, "VmFlags:", 8) == 0) wished = strstr(line, " hg") != NULL;
  }
  fclose(file);
  return wished;
}

/* Some kernels and emulators take no such wish, or do not tell of it. */
static bool wishes_are_taken(void) {
  const size_t bytes = (size_t)4 << 20;
  char *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return false;
  const bool taken = madvise(place, bytes, MADV_HUGEPAGE) == 0 && huge_pages_are_wished_at(place + bytes / 2);
  munmap(place, bytes);
  return taken;
}

static void *new_large_block(heed_context *ctx) {
  char *block = heed__allocate(ctx, (size_t)9 << 20);
  assert_non_null(block);
  block[0] = block[((size_t)9 << 20) - 1] = 1;
  return block;
}

static void large_blocks_ask_for_huge_pages_unless_the_host_says_or_has_its_own_allocator(void **state) {
  test_context *t = *state;
  heed_context *ctx = NULL;
  if (!wishes_are_taken()) skip();
  assert_ok(heed_context_new(NULL, &ctx));
  char *wished = new_large_block(ctx), *hosts = new_large_block(t->ctx);
  heed_set_huge_pages(ctx, false);
  char *without = new_large_block(ctx);
  heed_set_huge_pages(t->ctx, true);
  char *with = new_large_block(t->ctx);
  const size_t middle = (size_t)4 << 20;
  assert_true(huge_pages_are_wished_at(wished + middle));
  assert_false(huge_pages_are_wished_at(hosts + middle));
  assert_false(huge_pages_are_wished_at(without + middle));
  assert_true(huge_pages_are_wished_at(with + middle));
  heed__release(ctx, wished);
  heed__release(ctx, without);
  heed__release(t->ctx, hosts);
  heed__release(t->ctx, with);
  heed_set_huge_pages(NULL, true);
  heed_context_free(ctx);
}

#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(blocks_are_aligned_whatever_the_allocator_gives),
    TEST(a_block_of_no_bytes_is_a_block),
    TEST(releasing_null_does_nothing),
    TEST(what_is_in_use_and_the_peak_are_counted),
    TEST(sizes_beyond_the_address_space_are_refused_without_asking),
    TEST(arrays_of_more_bytes_than_can_be_addressed_are_refused),
    cmocka_unit_test(a_context_freed_early_stays_until_its_last_block_is_released),
    cmocka_unit_test(a_context_that_cannot_be_had_is_memory),
    cmocka_unit_test(an_allocator_without_functions_is_refused),
    cmocka_unit_test(a_context_without_an_allocator_uses_malloc),
#if defined(__linux__)
    TEST(large_blocks_ask_for_huge_pages_unless_the_host_says_or_has_its_own_allocator),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
