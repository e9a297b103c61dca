/* Memory: alignment, counting, the host's allocator, and how long a context lives. */
#include "support.h"

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

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(blocks_are_aligned_whatever_the_allocator_gives),
      TEST(a_block_of_no_bytes_is_a_block),
      TEST(releasing_null_does_nothing),
      TEST(what_is_in_use_and_the_peak_are_counted),
      TEST(sizes_beyond_the_address_space_are_refused_without_asking),
      cmocka_unit_test(a_context_freed_early_stays_until_its_last_block_is_released),
      cmocka_unit_test(a_context_that_cannot_be_had_is_memory),
      cmocka_unit_test(an_allocator_without_functions_is_refused),
      cmocka_unit_test(a_context_without_an_allocator_uses_malloc),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
