/* Memory: alignment, counting, the host's allocator, and the lifetime of contexts. */
#define _DEFAULT_SOURCE 1 /* madvise */

#include "support.h"

#include <stdio.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

static void blocks_are_aligned_even_if_the_allocator_does_not_align(void **state) {
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

static void an_empty_block_is_not_null(void **state) {
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

static void memory_in_use_and_its_peak_are_counted(void **state) {
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

static void sizes_beyond_the_address_space_are_refused_without_calling_the_allocator(void **state) {
  test_context *t = *state;
  const int64_t calls = t->memory.calls;
  assert_null(heed__allocate(t->ctx, SIZE_MAX));
  assert_null(heed__allocate(t->ctx, SIZE_MAX - 64));
  assert_null(heed__allocate(t->ctx, PTRDIFF_MAX));
  assert_int_equal(t->memory.calls, calls);
  assert_int_equal(heed_memory_in_use(t->ctx), 0);
}

static void arrays_beyond_the_address_space_are_refused(void **state) {
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

static void a_context_without_memory_fails_with_memory(void **state) {
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

/* ---- Kept memory ---- */

#define LARGE ((size_t)1 << 20)

static void released_blocks_serve_blocks_of_the_same_size(void **state) {
  test_context *t = *state;
  heed_set_kept_memory(t->ctx, 4 * LARGE);
  void *a = heed__allocate(t->ctx, LARGE);
  heed__release(t->ctx, a);
  assert_int_equal(heed_memory_in_use(t->ctx), 0);
  assert_int_equal(t->memory.blocks, 2); /* the context's own, and the kept one */
  const int64_t calls = t->memory.calls;
  void *b = heed__allocate(t->ctx, LARGE);
  assert_ptr_equal(a, b);
  assert_int_equal(t->memory.calls, calls);
  heed__release(t->ctx, b);
  void *other = heed__allocate(t->ctx, LARGE / 2);
  assert_true(t->memory.calls > calls);
  heed__release(t->ctx, other);
  heed_set_kept_memory(t->ctx, 0);
  assert_int_equal(t->memory.blocks, 1);
}

static void a_hosts_allocator_keeps_nothing_until_the_host_asks_for_it(void **state) {
  test_context *t = *state;
  heed__release(t->ctx, heed__allocate(t->ctx, LARGE));
  assert_int_equal(t->memory.blocks, 1);
  heed_set_kept_memory(NULL, LARGE);
}

static size_t memory_kept(heed_context *ctx) {
  heed_information i = {.size = sizeof i};
  assert_ok(heed_info(ctx, &i));
  return i.memory_kept;
}

static void kept_memory_and_memory_in_use_never_exceed_the_peak(void **state) {
  test_context *t = *state;
  heed_set_kept_memory(t->ctx, 100 * LARGE);
  void *a[3];
  for (size_t i = 0; i < 3; i++) a[i] = heed__allocate(t->ctx, LARGE + (i << 12));
  for (size_t i = 0; i < 3; i++) heed__release(t->ctx, a[i]);
  const size_t peak = heed_memory_peak(t->ctx);
  assert_int_equal(memory_kept(t->ctx), peak);
  void *b = heed__allocate(t->ctx, 2 * LARGE); /* of another size: the two oldest are returned */
  assert_true(t->memory.bytes <= peak + sizeof(heed_context));
  assert_in_range(memory_kept(t->ctx), LARGE, LARGE + (1 << 14));
  assert_int_equal(heed_memory_peak(t->ctx), peak);
  heed__release(t->ctx, b);
  heed_reset_peak(t->ctx);
  assert_int_equal(memory_kept(t->ctx), 0);
  assert_int_equal(t->memory.blocks, 1);
}

static void kept_memory_stays_within_its_own_bound_and_the_memory_limit(void **state) {
  test_context *t = *state;
  heed_set_kept_memory(t->ctx, 2 * LARGE);
  void *a[4];
  for (size_t i = 0; i < 4; i++) a[i] = heed__allocate(t->ctx, LARGE);
  for (size_t i = 0; i < 4; i++) heed__release(t->ctx, a[i]);
  assert_in_range(memory_kept(t->ctx), LARGE, 2 * LARGE);
  heed__release(t->ctx, heed__allocate(t->ctx, 3 * LARGE)); /* more than is kept */
  heed_limits limits = {.size = sizeof limits, .memory = 3 * LARGE};
  assert_ok(heed_set_limits(t->ctx, &limits));
  assert_int_equal(memory_kept(t->ctx), 0);
  void *b = heed__allocate(t->ctx, LARGE);
  heed__release(t->ctx, b);
  void *c = heed__allocate(t->ctx, 2 * LARGE + (1 << 16));
  assert_non_null(c);
  assert_true(t->memory.bytes <= limits.memory + sizeof(heed_context));
  heed__release(t->ctx, c);
}

static void a_limit_stays_the_reason_of_a_failure_while_other_allocations_succeed(void **state) {
  test_context *t = *state;
  heed_limits limits = {.size = sizeof limits, .memory = 3 * LARGE};
  assert_ok(heed_set_limits(t->ctx, &limits));
  assert_null(heed__allocate(t->ctx, 4 * LARGE));
  void *small = heed__allocate(t->ctx, 8);
  assert_non_null(small);
  assert_int_equal(heed__fail_memory(t->ctx, "f", 4 * LARGE), HEED_MEMORY);
  assert_non_null(strstr(heed_message(t->ctx), "f: memory limit exceeded: "));
  heed__release(t->ctx, small);
}

static void kept_memory_is_returned_before_an_allocation_fails(void **state) {
  test_context *t = *state;
  heed_set_kept_memory(t->ctx, 8 * LARGE);
  void *a[6];
  for (size_t i = 0; i < 6; i++) a[i] = heed__allocate(t->ctx, LARGE);
  for (size_t i = 0; i < 6; i++) heed__release(t->ctx, a[i]);
  t->memory.fail_at = t->memory.calls + 1;
  void *b = heed__allocate(t->ctx, LARGE / 2); /* the first attempt fails */
  assert_non_null(b);
  assert_int_equal(t->memory.calls, t->memory.fail_at + 1);
  assert_int_equal(memory_kept(t->ctx), 0);
  heed__release(t->ctx, b);
}

static void a_freed_context_keeps_no_memory_for_its_last_tensors(void **state) {
  (void)state;
  test_memory memory = {0};
  heed_allocator allocator = test_allocator(&memory);
  heed_context *ctx = NULL;
  assert_ok(heed_context_new(&allocator, &ctx));
  heed_set_kept_memory(ctx, 8 * LARGE);
  void *a = heed__allocate(ctx, LARGE);
  heed__release(ctx, heed__allocate(ctx, LARGE));
  heed_context_free(ctx);
  assert_int_equal(memory.blocks, 2);
  heed__release(ctx, a);
  assert_int_equal(memory.blocks, 0);
}

#if defined(__linux__)

/* Whether the kernel was advised to use huge pages (VmFlags hg) at an address. */
static bool huge_pages_are_advised_at(const void *address) {
  FILE *file = fopen("/proc/self/smaps", "r");
  char line[512];
  bool here = false, advised = false;
  if (file == NULL) return false;
  while (fgets(line, sizeof line, file) != NULL) {
    unsigned long long first, end;
    if (sscanf(line, "%llx-%llx ", &first, &end) == 2)
      here = first <= (uintptr_t)address && (uintptr_t)address < end;
    if (here && strncmp(line, "VmFlags:", 8) == 0) advised = strstr(line, " hg") != NULL;
  }
  fclose(file);
  return advised;
}

/* Some kernels and emulators ignore the advice, or do not report it. */
static bool advice_is_reported(void) {
  const size_t bytes = (size_t)4 << 20;
  char *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return false;
  const bool reported =
      madvise(block, bytes, MADV_HUGEPAGE) == 0 && huge_pages_are_advised_at(block + bytes / 2);
  munmap(block, bytes);
  return reported;
}

static void *new_large_block(heed_context *ctx) {
  char *block = heed__allocate(ctx, (size_t)9 << 20);
  assert_non_null(block);
  block[0] = block[((size_t)9 << 20) - 1] = 1;
  return block;
}

static void large_blocks_use_huge_pages_unless_the_host_disables_them_or_has_its_own_allocator(void **state) {
  test_context *t = *state;
  heed_context *ctx = NULL;
  if (!advice_is_reported()) skip();
  assert_ok(heed_context_new(NULL, &ctx));
  char *default_block = new_large_block(ctx), *hosts = new_large_block(t->ctx);
  heed_set_huge_pages(ctx, false);
  char *without = new_large_block(ctx);
  heed_set_huge_pages(t->ctx, true);
  char *with = new_large_block(t->ctx);
  const size_t middle = (size_t)4 << 20;
  assert_true(huge_pages_are_advised_at(default_block + middle));
  assert_false(huge_pages_are_advised_at(hosts + middle));
  assert_false(huge_pages_are_advised_at(without + middle));
  assert_true(huge_pages_are_advised_at(with + middle));
  heed__release(ctx, default_block);
  heed__release(ctx, without);
  heed__release(t->ctx, hosts);
  heed__release(t->ctx, with);
  heed_set_huge_pages(NULL, true);
  heed_context_free(ctx);
}

#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    TEST(blocks_are_aligned_even_if_the_allocator_does_not_align),
    TEST(an_empty_block_is_not_null),
    TEST(releasing_null_does_nothing),
    TEST(memory_in_use_and_its_peak_are_counted),
    TEST(a_limit_stays_the_reason_of_a_failure_while_other_allocations_succeed),
    TEST(sizes_beyond_the_address_space_are_refused_without_calling_the_allocator),
    TEST(arrays_beyond_the_address_space_are_refused),
    cmocka_unit_test(a_context_freed_early_stays_until_its_last_block_is_released),
    cmocka_unit_test(a_context_without_memory_fails_with_memory),
    cmocka_unit_test(an_allocator_without_functions_is_refused),
    cmocka_unit_test(a_context_without_an_allocator_uses_malloc),
    TEST(released_blocks_serve_blocks_of_the_same_size),
    TEST(a_hosts_allocator_keeps_nothing_until_the_host_asks_for_it),
    TEST(kept_memory_and_memory_in_use_never_exceed_the_peak),
    TEST(kept_memory_stays_within_its_own_bound_and_the_memory_limit),
    TEST(kept_memory_is_returned_before_an_allocation_fails),
    cmocka_unit_test(a_freed_context_keeps_no_memory_for_its_last_tensors),
#if defined(__linux__)
    TEST(large_blocks_use_huge_pages_unless_the_host_disables_them_or_has_its_own_allocator),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
