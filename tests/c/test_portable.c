/* Parts that depend on the system: threads, the clock, files. */
#include "support.h"

#include <stdio.h>

#include "../../src/io/files.h"

/* In the current folder, with characters beyond ASCII. */
#define FILE_NAME "heed_test_\xc3\xa9\xe2\x82\xac.npy"

#if defined(__wasm__) && !defined(_REENTRANT)
enum { HAS_THREADS = false };
#else
enum { HAS_THREADS = true };
#endif

static heed_tensor *normal(heed_context *ctx, int64_t n) {
  heed_tensor *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(n, n), &x));
  return x;
}

static void results_have_the_same_bits_with_threads(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = normal(ctx, 300), *alone = NULL, *together = NULL;
  assert_ok(heed_matmul(ctx, x, x, &alone));
  for (int64_t threads = 2; threads <= 5; threads++) {
    assert_ok(heed_set_num_threads(ctx, threads));
    assert_int_equal(heed_num_threads(ctx), HAS_THREADS ? threads : 1);
    for (int i = 0; i < 2; i++) {
      assert_ok(heed_matmul(ctx, x, x, &together));
      assert_memory_equal(alone->data, together->data, 300 * 300 * sizeof(float));
    }
  }
  heed_tensor_free(x);
  heed_tensor_free(alone);
  heed_tensor_free(together);
}

static void the_clock_is_monotonic(void **state) {
  (void)state;
  const double start = heed_clock();
  double last = start;
  for (int i = 0; i < 1000; i++) {
    const double now = heed_clock();
    assert_true(now >= last);
    last = now;
  }
  while (heed_clock() - start < 0.02) {} /* it counts seconds */
  assert_true(heed_clock() - start < 5);
}

static void an_existing_file_is_replaced_and_loaded(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int64_t n = 3; n < 5; n++) {
    heed_tensor *x = normal(ctx, n), *loaded = NULL;
    assert_ok(heed_save_npy(ctx, FILE_NAME, x));
    assert_ok(heed_load_npy(ctx, FILE_NAME, &loaded));
    assert_int_equal(loaded->shape[0], n);
    assert_memory_equal(loaded->data, x->data, (size_t)(n * n) * sizeof(float));
    heed_tensor_free(x);
    heed_tensor_free(loaded);
  }
}

static int remove_file(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed__system_remove(FILE_NAME);
  assert_int_equal(heed__path_kind_of(FILE_NAME), HEED__NOTHING);
  (void)ctx;
  return close_context(state);
}

static void missing_files_and_folders_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = NULL;
  assert_int_equal(heed_load_npy(ctx, "no_such_folder/x.npy", &x), HEED_FILE);
  assert_non_null(strstr(heed_message(ctx), "cannot be opened: No such file or directory"));
  assert_fails(ctx, heed_load_npy(ctx, ".", &x), HEED_FILE, "load: '.': is a folder; it must be a file");
  x = normal(ctx, 2);
  assert_fails(ctx, heed_save_npy(ctx, ".", x), HEED_FILE, "save: '.': is a folder; it must be a file");
  heed_tensor_free(x);
}

static void writing_to_a_mapped_tensor_does_not_change_the_file(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed__where place;
  heed__file_map *map = NULL;
  heed_tensor *x = normal(ctx, 4);
  assert_ok(heed_save_npy(ctx, FILE_NAME, x));
  heed__where_init(&place, ctx, "load", FILE_NAME);
  for (int i = 0; i < 2; i++) {
    assert_ok(heed__file_map_open(&place, FILE_NAME, &map));
    assert_int_equal(map->size, 128 + 64);
    assert_memory_equal(map->data, "\x93NUMPY", 6);
    map->data[0] = 'x';
    heed__file_map_release(map);
    map = NULL;
  }
  heed_tensor_free(x);
}

/* For features that the build leaves out, the message says how to include them. */
static void the_message_names_the_library_that_a_file_needs(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = normal(ctx, 2);
  heed_archive *archive = NULL;
  const char *name = "x";
  const heed_tensor *tensors[] = {x};
  const heed_status status = heed_save_archive(ctx, "heed_test.npz", 1, &name, tensors, 0, NULL);
#if HEED_ZIP
  assert_int_equal(status, HEED_OK);
#else
  assert_int_equal(status, HEED_FILE);
  assert_string_equal(heed_message(ctx), "save: 'heed_test.npz': this build of heed has no zip; compile with "
                                         "-DHEED_ZIP=1 and link zlib");
  assert_int_equal(heed__path_kind_of("heed_test.npz"), HEED__NOTHING);
#endif
  heed__system_remove("heed_test.npz");
  assert_ok(heed_save_archive(ctx, "heed_test.safetensors", 1, &name, tensors, 0, NULL));
#if HEED_CJSON
  assert_ok(heed_load_archive(ctx, "heed_test.safetensors", &archive));
#else
  assert_fails(
      ctx, heed_load_archive(ctx, "heed_test.safetensors", &archive), HEED_FILE,
      "load: 'heed_test.safetensors': this build of heed has no JSON; compile with -DHEED_CJSON=1 and "
      "link cJSON");
#endif
  heed_archive_free(archive);
  heed__system_remove("heed_test.safetensors");
  heed_tensor_free(x);
}

/* Every character, and invalid encodings. */
static void knows_utf8(void **state) {
  static const char *const wrong[] = {"\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80",
                                      "\xc3",
                                      "\xe2\x82",
                                      "\xf0\x9f\x98",
                                      "\xc3("};
  (void)state;
  for (uint32_t c = 1; c <= 0x10ffff; c++) {
    char text[4] = {(char)c};
    size_t size = 1;
    if (c >= 0x10000) {
      size = 4;
      text[0] = (char)(0xf0 | c >> 18);
    } else if (c >= 0x800) {
      size = 3;
      text[0] = (char)(0xe0 | c >> 12);
    } else if (c >= 0x80) {
      size = 2;
      text[0] = (char)(0xc0 | c >> 6);
    }
    for (size_t i = 1; i < size; i++) text[i] = (char)(0x80 | (c >> 6 * (size - 1 - i) & 0x3f));
    const bool surrogate = c >= 0xd800 && c <= 0xdfff;
    assert_int_equal(heed__text_check(text, size), surrogate ? 1 : 0);
  }
  for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
    char text[8];
    const size_t size = (size_t)snprintf(text, sizeof(text), "ab%s", wrong[i]);
    assert_int_equal(heed__text_check(text, size), 3);
  }
}

#define FILE_TEST(function) cmocka_unit_test_setup_teardown(function, open_context, remove_file)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(results_have_the_same_bits_with_threads),
      TEST(the_clock_is_monotonic),
      FILE_TEST(an_existing_file_is_replaced_and_loaded),
      TEST(missing_files_and_folders_are_refused),
      FILE_TEST(writing_to_a_mapped_tensor_does_not_change_the_file),
      TEST(the_message_names_the_library_that_a_file_needs),
      TEST(knows_utf8),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
