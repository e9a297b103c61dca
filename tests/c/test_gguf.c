/* GGUF files from C: metadata, blocked tensors, and every allocation failing in turn. */
#define _POSIX_C_SOURCE 200809L

#include "saves.h"

#include "../../src/io/gguf.h"

/* A matrix in blocks. */
static heed_status make_blocks(heed_context *ctx, heed_tensor **out) {
  heed_tensor *x = NULL;
  heed_status status = heed_normal(ctx, NULL, 0.0, 1.0, 2, SHAPE(3, 256), &x);
  if (status == HEED_OK) status = heed_to(ctx, x, HEED_Q4_K, out);
  heed_tensor_free(x);
  return status;
}

static const unsigned char two_tokens[] = {1, 0, 0, 0, 0, 0, 0, 0, 'a', 0, 0, 0, 0, 0, 0, 0, 0};
static const unsigned char seven[] = {7, 0, 0, 0};
static const char *const three_keys[] = {"count", "tokens", "name"};
static const heed_gguf_value three_values[] = {{HEED_GGUF_UINT32, HEED_GGUF_UINT8, 1, seven},
                                               {HEED_GGUF_ARRAY, HEED_GGUF_STRING, 2, two_tokens},
                                               {HEED_GGUF_STRING, HEED_GGUF_UINT8, 2, "xy"}};

static heed_status save_blocks(heed_context *ctx, const heed_tensor *blocks) {
  return heed_save_gguf(ctx, file, 1, (const char *const[]){"w"}, (const heed_tensor *const[]){blocks}, 3,
                        three_keys, three_values);
}

static void a_file_keeps_blocks_and_typed_metadata(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *blocks = NULL, *got = NULL;
  heed_archive *archive = NULL;
  heed_gguf_value value, item;
  const char *key;
  int64_t integer = 0;
  double number = 0;
  bool flag = false;
  snprintf(file, sizeof file, "%s/x.gguf", folder);
  assert_ok(make_blocks(ctx, &blocks));
  assert_ok(save_blocks(ctx, blocks));
  assert_ok(heed_load_archive(ctx, file, &archive));
  assert_true(heed_gguf_find(archive, "count", &value) && heed_gguf_integer(&value, &integer));
  assert_true(heed_gguf_number(&value, &number) && !heed_gguf_boolean(&value, &flag));
  assert_true(integer == 7 && number == 7.0 && value.type == HEED_GGUF_UINT32);
  assert_false(heed_gguf_find(archive, "none", &value));
  assert_true(heed_gguf_pair(archive, 2, &key, &value) && !heed_gguf_integer(&value, &integer));
  assert_string_equal(key, "tokens");
  assert_true(value.type == HEED_GGUF_ARRAY && value.item == HEED_GGUF_STRING && value.count == 2);
  assert_true(heed_gguf_next(&value, &item) && item.count == 1 && *(const char *)item.data == 'a');
  assert_true(heed_gguf_next(&value, &item) && item.count == 0);
  assert_false(heed_gguf_next(&value, &item));
  assert_false(heed_gguf_pair(archive, 4, &key, &value));
  assert_ok(heed_archive_tensor(archive, 1, &got));
  heed_archive_free(archive);
  assert_int_equal(heed_tensor_dtype(got), HEED_Q4_K);
  assert_memory_equal(heed_tensor_data(got), heed_tensor_data(blocks), 3 * 144); /* keeps the file mapped */
  heed_tensor_free(got);
  heed_tensor_free(blocks);
}

static void texts_are_saved_as_strings(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_archive *archive = NULL;
  heed_gguf_value value;
  snprintf(file, sizeof file, "%s/x.gguf", folder);
  assert_ok(heed_save_archive(ctx, file, 0, NULL, NULL, 1, (const char *const[]){"general.name", "small"}));
  assert_ok(heed_load_archive(ctx, file, &archive));
  assert_true(heed_gguf_find(archive, "general.name", &value) && value.type == HEED_GGUF_STRING);
  assert_true(value.count == 5 && memcmp(value.data, "small", 5) == 0);
  heed_archive_free(archive);
}

static void invalid_metadata_is_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const char *const key[] = {"k"};
  const struct {
    heed_gguf_value value;
    const char *message;
  } cases[] = {
      {{(heed_gguf_type)13, HEED_GGUF_UINT8, 1, "x"},
       "save: the type of 'k' is 13; it must be a heed_gguf_type"},
      {{HEED_GGUF_ARRAY, (heed_gguf_type)99, 0, NULL},
       "save: the type of 'k' is 99; it must be a heed_gguf_type"},
      {{HEED_GGUF_INT8, HEED_GGUF_UINT8, 1, NULL},
       "save: the value of 'k' has 1 elements and its data is NULL; it must not be"},
      {{HEED_GGUF_STRING, HEED_GGUF_UINT8, -1, "x"},
       "save: the value of 'k' has -1 elements; it must have 0 or more"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_fails(ctx, heed_save_gguf(ctx, file, 0, NULL, NULL, 1, key, &cases[i].value), HEED_ARGUMENT,
                 cases[i].message);
  assert_fails(ctx, heed_save_gguf(ctx, file, 0, NULL, NULL, 1, key, NULL), HEED_ARGUMENT,
               "save: values is missing (NULL)");
  assert_fails(ctx, heed_save_gguf(ctx, file, 0, NULL, NULL, 1, NULL, &cases[0].value), HEED_ARGUMENT,
               "save: keys is missing (NULL)");
  assert_int_equal(count_files(false), 0);
}

/* ---- Every allocation failing ---- */

static heed_status save_scenario(heed_context *ctx) {
  heed_tensor *blocks = NULL, *row = NULL;
  heed_status status = make_blocks(ctx, &blocks);
  if (status == HEED_OK)
    status = heed_slice(ctx, blocks, 1, 1, 3, 2, &row); /* rows 1 and 3: copied to be saved */
  if (status == HEED_OK) status = save_blocks(ctx, row);
  heed_tensor_free(row);
  heed_tensor_free(blocks);
  return status;
}

static heed_status load_scenario(heed_context *ctx) {
  heed_archive *archive = NULL;
  heed_status status = heed_load_archive(ctx, "tests/golden/files/small.gguf", &archive);
  for (int64_t i = 1; status == HEED_OK && i <= heed_archive_count(archive); i++) {
    heed_tensor *x = NULL, *wide = NULL;
    status = heed_archive_tensor(archive, i, &x);
    if (status == HEED_OK) status = heed_to(ctx, x, HEED_FLOAT32, &wide);
    heed_tensor_free(wide);
    heed_tensor_free(x);
    if (status == HEED_DTYPE) status = HEED_OK; /* Q2_K */
  }
  heed_archive_free(archive);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  survives_every_failing_allocation(save_scenario);
  survives_every_failing_allocation(load_scenario);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SAVE_TEST(a_file_keeps_blocks_and_typed_metadata),
      SAVE_TEST(texts_are_saved_as_strings),
      SAVE_TEST(invalid_metadata_is_refused),
      SAVE_TEST(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
