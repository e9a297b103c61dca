/* Tokenizers for C hosts: loading, ids, text, and what is refused. */
#include "../../src/text/text.h"
#include "support.h"

#include <stdio.h>
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

/* Loads a tokenizer, encodes and decodes a text. */
static heed_status use_tokenizer(heed_context *ctx, const char *path) {
  static const char text[] = "Hello <s> caf\xc3\xa9 <|end|> \xe6\x97\xa5 12345 [CLS] aaaaaaaa";
  heed_tokenizer *tok = NULL;
  const int64_t *ids = NULL;
  int64_t own[256], count = 0;
  const char *decoded = NULL;
  size_t bytes = 0;
  heed_status status = heed_tokenizer_load(ctx, path, &tok);
  if (status == HEED_OK)
    status = heed_tokenizer_encode(tok, text, sizeof text - 1, HEED_ADD_SPECIAL_TOKENS, &ids, &count);
  if (status == HEED_OK) {
    assert_true(count > 0 && count < 256);
    memcpy(own, ids, (size_t)count * sizeof *ids);
    status = heed_tokenizer_decode(tok, own, count, 0, &decoded, &bytes);
  }
  heed_tokenizer_free(tok);
  return status;
}

static const char *const files[] = {
    "gpt2.json", "bert.json",     "fallback.json", "llama3.json", "unigram.json",
    "bpe.model", "unigram.model", "smollm.gguf",   "bpe.gguf",    "../tiny_bert",
};
#define FILES (sizeof files / sizeof *files)

static void survives_each_failing_allocation(void **state) {
  (void)state;
  for (size_t i = 0; i < FILES; i++) {
    test_memory memory = {0};
    heed_allocator allocator = test_allocator(&memory);
    heed_context *ctx = NULL;
    char path[128];
    heed_status status = HEED_MEMORY;
    snprintf(path, sizeof path, "tests/golden/tokenizers/%s", files[i]);
    assert_ok(heed_context_new(&allocator, &ctx));
    const int64_t blocks = memory.blocks;
    for (int64_t n = 1; status != HEED_OK; n++) {
      memory.calls = 0;
      memory.fail_at = n;
      status = use_tokenizer(ctx, path);
      if (status != HEED_OK) assert_int_equal(HEED_MEMORY, status);
      assert_int_equal(blocks, memory.blocks);
    }
    assert_true(memory.calls > 8);
    heed_context_free(ctx);
    assert_int_equal(0, memory.blocks);
  }
}

/* Cancels at check number `cancel_at`, counted from 1. */
typedef struct check_counter {
  heed_context *ctx;
  int64_t checks, cancel_at;
} check_counter;

static void count_check(void *user) {
  check_counter *counter = user;
  if (++counter->checks == counter->cancel_at) heed_cancel(counter->ctx);
}

/* A long text, so that every loop gets as far as its check, of words and of one long word. */
static void can_be_cancelled_at_every_check(void **state) {
  static const char part[] = "Hello <s> caf\xc3\xa9 <|end|> \xe6\x97\xa5 12345 [CLS]\n  ";
  enum { PARTS = 900, WORD = 20000 };
  static char text[PARTS * (sizeof part - 1) + WORD];
  static int64_t own[sizeof text];
  const test_context *t = *state;
  for (size_t i = 0; i < PARTS; i++) memcpy(text + i * (sizeof part - 1), part, sizeof part - 1);
  memset(text + sizeof text - WORD, 'a', WORD);
  for (size_t i = 0; i < FILES; i++) {
    heed_tokenizer *tok = NULL;
    char path[128];
    snprintf(path, sizeof path, "tests/golden/tokenizers/%s", files[i]);
    assert_ok(heed_tokenizer_load(t->ctx, path, &tok));
    heed_status status = HEED_CANCELLED;
    for (int64_t n = 1; status != HEED_OK; n += 1 + n / 8) {
      check_counter counter = {.ctx = t->ctx, .cancel_at = n};
      const int64_t *ids = NULL;
      const char *decoded = NULL;
      int64_t count = 0;
      size_t bytes = 0;
      assert_ok(heed_set_poll(t->ctx, 0, count_check, &counter));
      status = heed_tokenizer_encode(tok, text, sizeof text, HEED_ADD_SPECIAL_TOKENS | HEED_ALLOW_SPECIAL,
                                     &ids, &count);
      if (status == HEED_OK) {
        assert_true(count > PARTS && count <= (int64_t)(sizeof own / sizeof *own));
        memcpy(own, ids, (size_t)count * sizeof *ids);
        status = heed_tokenizer_decode(tok, own, count, 0, &decoded, &bytes);
      }
      assert_ok(heed_set_poll(t->ctx, 0, NULL, NULL));
      heed_clear_cancel(t->ctx);
      if (status != HEED_OK) assert_int_equal(HEED_CANCELLED, status);
    }
    heed_tokenizer_free(tok);
  }
}

static void a_search_for_added_tokens_can_be_cancelled(void **state) {
  static char text[1 << 16];
  const test_context *t = *state;
  heed_tokenizer *tok = NULL;
  heed__text_span span;
  int32_t found;
  size_t from = 0;
  memset(text, 'a', sizeof text);
  assert_ok(heed_tokenizer_load(t->ctx, gpt2, &tok));
  assert_ok(heed__added_find(tok, false, true, text, sizeof text, &from, 0, &found, &span));
  assert_int_equal(-1, found);
  heed_cancel(t->ctx);
  from = 0;
  assert_int_equal(HEED_CANCELLED,
                   heed__added_find(tok, false, true, text, sizeof text, &from, 0, &found, &span));
  from = sizeof text - 16;
  assert_ok(heed__added_find(tok, false, true, text, sizeof text, &from, 0, &found, &span));
  heed_clear_cancel(t->ctx);
  heed_tokenizer_free(tok);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(encodes_and_decodes), TEST(refuses_mistakes), TEST(survives_each_failing_allocation),
      TEST(can_be_cancelled_at_every_check), TEST(a_search_for_added_tokens_can_be_cancelled)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
