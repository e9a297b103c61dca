/* Tokenizers for C hosts: loading, ids, text, and what is refused. */
#include "support.h"

#include <string.h>

static const char gpt2[] = "tests/golden/tokenizers/gpt2.json";

static void encodes_and_decodes(void **state) {
  const test_context *t = *state;
  heed_context *ctx = t->ctx;
  heed_tokenizer *tok = NULL;
  const int64_t *ids = NULL;
  int64_t own[64], count = 0;
  const char *text = NULL;
  size_t bytes = 0;
  assert_ok(heed_tokenizer_load(ctx, gpt2, &tok));
  assert_ok(heed_tokenizer_encode(tok, "Hello, <|end|>", 14, HEED_ALLOW_SPECIAL, &ids, &count));
  assert_true(count > 1 && count < 64);
  assert_int_equal(ids[count - 1], heed_tokenizer_id(tok, "<|end|>", 7));
  memcpy(own, ids, (size_t)count * sizeof(*ids));
  assert_ok(heed_tokenizer_decode(tok, own, count, 0, &text, &bytes));
  assert_string_equal("Hello, <|end|>", text);
  assert_ok(heed_tokenizer_decode(tok, own, count, HEED_SKIP_SPECIAL_TOKENS, &text, &bytes));
  assert_string_equal("Hello, ", text);
  assert_int_equal(7, bytes);
  assert_int_equal(0, memcmp(heed_tokenizer_token(tok, own[count - 1], &bytes), "<|end|>", 7));
  assert_int_equal(7, bytes);
  assert_ok(heed_tokenizer_encode(tok, "", 0, 0, &ids, &count));
  assert_int_equal(0, count);
  heed_tokenizer_free(tok);
}

static void refuses_mistakes(void **state) {
  const test_context *t = *state;
  heed_context *ctx = t->ctx;
  heed_tokenizer *tok = NULL;
  const int64_t *ids = NULL, wrong[] = {0, 1 << 20};
  int64_t count = 0;
  const char *text = NULL;
  size_t bytes = 0;
  assert_int_equal(HEED_ARGUMENT, heed_tokenizer_load(NULL, gpt2, &tok));
  assert_int_equal(HEED_ARGUMENT, heed_tokenizer_load(ctx, NULL, &tok));
  assert_int_equal(HEED_ARGUMENT, heed_tokenizer_load(ctx, gpt2, NULL));
  assert_int_equal(HEED_FILE, heed_tokenizer_load(ctx, "no/such/file.json", &tok));
  assert_null(tok);
  assert_ok(heed_tokenizer_load(ctx, gpt2, &tok));
  assert_int_equal(HEED_ARGUMENT, heed_tokenizer_load(ctx, gpt2, &tok)); /* *out is not NULL */
  assert_int_equal(HEED_ARGUMENT, heed_tokenizer_encode(NULL, "a", 1, 0, &ids, &count));
  assert_int_equal(HEED_ARGUMENT, heed_tokenizer_encode(tok, NULL, 1, 0, &ids, &count));
  assert_int_equal(HEED_ARGUMENT, heed_tokenizer_encode(tok, "a", 1, 0, NULL, &count));
  assert_int_equal(HEED_ARGUMENT, heed_tokenizer_encode(tok, "\xff", 1, 0, &ids, &count));
  assert_int_equal(HEED_INDEX, heed_tokenizer_decode(tok, wrong, 2, 0, &text, &bytes));
  assert_int_equal(HEED_ARGUMENT, heed_tokenizer_decode(tok, wrong, -1, 0, &text, &bytes));
  assert_null(heed_tokenizer_token(tok, -1, &bytes));
  assert_int_equal(-1, heed_tokenizer_id(tok, "no such token", 13));
  assert_int_equal(0, heed_tokenizer_size(NULL));
  heed_tokenizer_free(tok);
  heed_tokenizer_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(encodes_and_decodes), TEST(refuses_mistakes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
