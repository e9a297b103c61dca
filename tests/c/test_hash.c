/* The hash of strings from files is SipHash-1-3, and independent of how a text is divided into parts. */
#include "support.h"

#include <string.h>

#include "../../src/io/io.h"

static uint64_t hash_of(const uint64_t key[2], const char *text, size_t size) {
  heed__hasher h = heed__hash_begin(key);
  heed__hash_feed(&h, text, size);
  return heed__hash_value(&h);
}

/* Values of CPython 3.11, which uses this hash, for bytes with PYTHONHASHSEED=0, a key of zeros. */
static void hash_values_are_those_of_cpython(void **state) {
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

static void a_text_can_be_fed_in_any_two_parts(void **state) {
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

static void after_each_byte_the_value_is_that_of_the_prefix(void **state) {
  static const char text[] = "a text of more than sixteen bytes";
  const uint64_t key[2] = {7, 8};
  heed__hasher h = heed__hash_begin(key);
  (void)state;
  for (size_t i = 0; i < sizeof(text); i++) {
    assert_true(heed__hash_value(&h) == hash_of(key, text, i));
    heed__hash_feed(&h, text + i, 1);
  }
}

static void different_material_gives_different_keys(void **state) {
  uint64_t first[2], second[2];
  (void)state;
  heed__hash_make_key("material", 8, first);
  heed__hash_make_key("materiaL", 8, second);
  assert_true(first[0] != first[1] && first[0] != second[0] && first[1] != second[1]);
  assert_true(hash_of(first, "text", 4) != hash_of(second, "text", 4));
}

/* Where zlib is missing, or its capacity too small: blocks of at most 65535 bytes, as RFC 1951 writes them.
 */
static void a_stream_without_compression_has_stored_blocks(void **state) {
  static const size_t sizes[] = {0, 9, 0xffff, 0x10000, 200000};
  static char data[200000], out[200100];
  (void)state;
  for (size_t i = 0; i < sizeof data; i++) data[i] = "Wikipedia"[i % 9];
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const size_t size = sizes[i], blocks = size / 0xffff + (size % 0xffff > 0 || size == 0);
    const size_t length = heed__zlib_compress(data, size, out, 0);
    const unsigned char *p = (const unsigned char *)out;
    assert_int_equal(length, 2 + blocks * 5 + size + 4);
    assert_true(length <= heed__zlib_bound(size));
    assert_int_equal(p[0] << 8 | p[1], 0x7801);
    p += 2;
    for (size_t b = 0, done = 0; b < blocks; b++) {
      const size_t n = (size_t)(p[1] | p[2] << 8);
      assert_int_equal(p[0], b + 1 == blocks);
      assert_int_equal(n ^ (size_t)(p[3] | p[4] << 8), 0xffff);
      assert_memory_equal(p + 5, data + done, n);
      p += 5 + n;
      done += n;
    }
    if (size == 9) assert_memory_equal(p, "\x11\xe6\x03\x98", 4); /* the Adler-32 of "Wikipedia" */
  }
  assert_int_equal(heed__zlib_bound(SIZE_MAX), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hash_values_are_those_of_cpython),
      cmocka_unit_test(a_text_can_be_fed_in_any_two_parts),
      cmocka_unit_test(after_each_byte_the_value_is_that_of_the_prefix),
      cmocka_unit_test(different_material_gives_different_keys),
      cmocka_unit_test(a_stream_without_compression_has_stored_blocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
