/* The hash of foreign strings: that it is SipHash-1-3, and that the parts of a text do not matter. */
#include "support.h"

#include <string.h>

#include "../../src/io/io.h"

/* What CPython 3.11, whose strings have this hash, gives for bytes with PYTHONHASHSEED=0, a key of zeros. */
static void hash_gives_the_values_of_cpython(void **state) {
  static const struct {
    const char *text;
    uint64_t hash;
  } known[] = {{"a", UINT64_C(0x407448d2b89b1813)},
               {"abcdefg", UINT64_C(0x6db12aae9070f506)},
               {"abcdefgh", UINT64_C(0x3f7b849c0b8e35ea)},
               {"the quick brown fox", UINT64_C(0x5a17575ad3449cba)}};
  const uint64_t key[2] = {0, 0};
  (void)state;
  for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
    assert_true(heed__hash(key, known[i].text, strlen(known[i].text), "", 0) == known[i].hash);
}

static void hash_takes_a_text_in_any_two_parts(void **state) {
  static const char text[] = "a text of more than sixteen bytes";
  const size_t size = sizeof(text) - 1;
  const uint64_t key[2] = {7, 8}, whole = heed__hash(key, text, size, "", 0);
  (void)state;
  for (size_t i = 0; i <= size; i++) assert_true(heed__hash(key, text, i, text + i, size - i) == whole);
}

static void keys_of_other_material_are_other_keys(void **state) {
  uint64_t first[2], second[2];
  (void)state;
  heed__hash_make_key("material", 8, first);
  heed__hash_make_key("materiaL", 8, second);
  assert_true(first[0] != first[1] && first[0] != second[0] && first[1] != second[1]);
  assert_true(heed__hash(first, "text", 4, "", 0) != heed__hash(second, "text", 4, "", 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hash_gives_the_values_of_cpython),
      cmocka_unit_test(hash_takes_a_text_in_any_two_parts),
      cmocka_unit_test(keys_of_other_material_are_other_keys),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
