/* The hash of foreign strings: that it is SipHash-1-3, and that the parts of a text do not matter. */
#include "support.h"

#include <string.h>

#include "../../src/io/io.h"

static uint64_t hash_of(const uint64_t key[2], const char *text, size_t size) {
  heed__hasher h = heed__hash_begin(key);
  heed__hash_feed(&h, text, size);
  return heed__hash_value(&h);
}

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
    assert_true(hash_of(key, known[i].text, strlen(known[i].text)) == known[i].hash);
}

static void hash_takes_a_text_in_any_two_parts(void **state) {
  static const char text[] = "a text of more than sixteen bytes";
  const size_t size = sizeof(text) - 1;
  const uint64_t key[2] = {7, 8}, whole = hash_of(key, text, size);
  (void)state;
  for (size_t i = 0; i <= size; i++) {
    heed__hasher h = heed__hash_begin(key);
    heed__hash_feed(&h, text, i);
    heed__hash_feed(&h, text + i, size - i);
    assert_true(heed__hash_value(&h) == whole);
  }
}

static void hash_has_the_value_of_each_prefix_while_it_is_fed(void **state) {
  static const char text[] = "a text of more than sixteen bytes";
  const uint64_t key[2] = {7, 8};
  heed__hasher h = heed__hash_begin(key);
  (void)state;
  for (size_t i = 0; i < sizeof(text); i++) {
    assert_true(heed__hash_value(&h) == hash_of(key, text, i));
    heed__hash_feed(&h, text + i, 1);
  }
}

static void keys_of_other_material_are_other_keys(void **state) {
  uint64_t first[2], second[2];
  (void)state;
  heed__hash_make_key("material", 8, first);
  heed__hash_make_key("materiaL", 8, second);
  assert_true(first[0] != first[1] && first[0] != second[0] && first[1] != second[1]);
  assert_true(hash_of(first, "text", 4) != hash_of(second, "text", 4));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hash_gives_the_values_of_cpython),
      cmocka_unit_test(hash_takes_a_text_in_any_two_parts),
      cmocka_unit_test(hash_has_the_value_of_each_prefix_while_it_is_fed),
      cmocka_unit_test(keys_of_other_material_are_other_keys),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
