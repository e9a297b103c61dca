/* Status codes and messages. */
#include "support.h"

static void statuses_have_names(void **state) {
  (void)state;
  assert_string_equal(heed_status_name(HEED_OK), "OK");
  assert_string_equal(heed_status_name(HEED_MEMORY), "MEMORY");
  assert_string_equal(heed_status_name(HEED_FILE), "FILE");
#define X(name, text) last = HEED_##name;
  heed_status last;
  HEED_STATUS_LIST(X)
#undef X
  assert_string_equal(heed_status_name((heed_status)(last + 1)), "?");
  assert_string_equal(heed_status_text(HEED_OK), "success");
  assert_string_equal(heed_status_text((heed_status)(last + 1)), "?");
  assert_string_equal(heed_status_name((heed_status)-1), "?");
}

static void the_message_is_empty_before_the_first_failure(void **state) {
  test_context *t = *state;
  assert_string_equal(heed_message(t->ctx), "");
  assert_string_equal(heed_message(NULL), "");
}

static void a_failure_stores_its_message_and_returns_its_status(void **state) {
  test_context *t = *state;
  assert_fails(t->ctx, heed__fail(t->ctx, HEED_SHAPE, "%s: %d", "cat", 3), HEED_SHAPE, "cat: 3");
  assert_int_equal(heed__fail(NULL, HEED_INDEX, "no context"), HEED_INDEX);
}

static void a_message_can_quote_the_previous_one(void **state) {
  test_context *t = *state;
  heed__fail(t->ctx, HEED_SHAPE, "inner");
  heed__fail(t->ctx, HEED_SHAPE, "outer: %s", heed_message(t->ctx));
  assert_string_equal(heed_message(t->ctx), "outer: inner");
}

static void a_long_message_is_cut(void **state) {
  test_context *t = *state;
  heed__fail(t->ctx, HEED_SHAPE, "%2000d", 1);
  assert_int_equal(strlen(heed_message(t->ctx)), HEED__MESSAGE - 1);
}

static void amounts_of_memory_are_shown_in_readable_units(void **state) {
  test_context *t = *state;
  assert_fails(t->ctx, heed__fail_memory(t->ctx, "f", 1000), HEED_MEMORY,
               "f: out of memory (1000 bytes requested)");
  assert_fails(t->ctx, heed__fail_memory(t->ctx, "f", 1536), HEED_MEMORY,
               "f: out of memory (1.5 KiB requested)");
  assert_fails(t->ctx, heed__fail_memory(t->ctx, "f", (size_t)3 << 30), HEED_MEMORY,
               "f: out of memory (3.0 GiB requested)");
  assert_fails(t->ctx, heed__fail_memory(t->ctx, "f", SIZE_MAX), HEED_MEMORY,
               sizeof(size_t) > 4 ? "f: out of memory (16.0 EiB requested)"
                                  : "f: out of memory (4.0 GiB requested)");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(statuses_have_names),
      TEST(the_message_is_empty_before_the_first_failure),
      TEST(a_failure_stores_its_message_and_returns_its_status),
      TEST(a_message_can_quote_the_previous_one),
      TEST(a_long_message_is_cut),
      TEST(amounts_of_memory_are_shown_in_readable_units),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
