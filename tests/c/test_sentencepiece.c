/* SentencePiece models, made here byte by byte: unigram and byte-pair segmentation, and broken files. */
#include "support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../src/text/sentencepiece.h"

typedef struct model_bytes {
  unsigned char data[4096];
  size_t size;
} model_bytes;

static void put_byte(model_bytes *m, int byte) {
  assert_true(m->size < sizeof(m->data));
  m->data[m->size++] = (unsigned char)byte;
}

static void put_piece(model_bytes *m, const char *text, float score, int type) {
  const size_t size = strlen(text);
  uint32_t bits;
  memcpy(&bits, &score, sizeof(bits));
  put_byte(m, 0x0a);
  put_byte(m, (int)size + 9);
  put_byte(m, 0x0a);
  put_byte(m, (int)size);
  for (size_t i = 0; i < size; i++) put_byte(m, text[i]);
  put_byte(m, 0x15);
  for (int i = 0; i < 4; i++) put_byte(m, (int)(bits >> 8 * i & 0xff));
  put_byte(m, 0x18);
  put_byte(m, type);
}

/* A model of kind 1 (unigram) or 2 (byte pairs). */
static model_bytes small_model(int kind) {
  model_bytes m = {.size = 0};
  put_piece(&m, "<unk>", 0, HEED__PIECE_UNKNOWN);
  put_piece(&m, "<s>", 0, HEED__PIECE_CONTROL);
  put_piece(&m, "\xe2\x96\x81", -3, HEED__PIECE_NORMAL);
  put_piece(&m, "a", -2, HEED__PIECE_NORMAL);
  put_piece(&m, "b", -2.5f, HEED__PIECE_NORMAL);
  put_piece(&m, "ab", -1, HEED__PIECE_NORMAL);
  put_piece(&m,
            "\xe2\x96\x81"
            "a",
            -1.5f, HEED__PIECE_NORMAL);
  put_piece(&m, "<sep>", 0, HEED__PIECE_USER);
  const int trainer[] = {0x12, 2, 0x18, kind};
  for (int i = 0; i < 4; i++) put_byte(&m, trainer[i]);
  return m;
}

static heed_status load_bytes(heed_context *ctx, const model_bytes *m, heed__spm **out) {
  char path[64];
  snprintf(path, sizeof(path), "/tmp/heed-%ld.model", (long)getpid());
  FILE *file = fopen(path, "wb");
  assert_true(file != NULL && fwrite(m->data, 1, m->size, file) == m->size && fclose(file) == 0);
  const heed_status status = heed__spm_load(ctx, path, out);
  assert_int_equal(remove(path), 0);
  return status;
}

static void check_ids(const heed__spm *spm, const char *text, int count, const int32_t *expected) {
  heed__bytes ids = {0};
  assert_int_equal(heed__spm_encode(spm, "encode", text, strlen(text), &ids), HEED_OK);
  assert_int_equal(ids.size, (size_t)count * sizeof(int32_t));
  assert_memory_equal(ids.data, expected, ids.size);
  heed__release(spm->ctx, ids.data);
}

static void texts_are_segmented_by_either_model(void **state) {
  (void)state;
  for (int kind = 1; kind <= 2; kind++) {
    heed_context *ctx = NULL;
    heed__spm *spm = NULL;
    const model_bytes m = small_model(kind);
    assert_int_equal(heed_context_new(NULL, &ctx), HEED_OK);
    assert_int_equal(load_bytes(ctx, &m, &spm), HEED_OK);
    check_ids(spm, "", 0, NULL);
    check_ids(spm, "  ", 0, NULL);
    check_ids(spm, "bab", 3, (const int32_t[]){2, 4, 5});
    check_ids(spm, "<sep>ab", 3, (const int32_t[]){2, 7, 5});
    check_ids(spm, "b??b", 4, (const int32_t[]){2, 4, 0, 4}); /* unknown characters are fused */
    check_ids(spm,
              "b\xff"
              "b",
              4, (const int32_t[]){2, 4, 0, 4});
    heed__bytes text = {0};
    const int64_t ids[] = {1, 2, 4, 5, 2, 3};
    assert_int_equal(heed__spm_decode(spm, "decode", ids, 6, &text), HEED_OK);
    assert_int_equal(text.size, 5);
    assert_memory_equal(text.data, "bab a", 5);
    heed__release(ctx, text.data);
    const int64_t outside = 8;
    text = (heed__bytes){0};
    assert_int_equal(heed__spm_decode(spm, "decode", &outside, 1, &text), HEED_INDEX);
    heed__spm_free(spm);
    heed_context_free(ctx);
  }
}

static void every_truncated_or_altered_file_is_refused_or_usable(void **state) {
  (void)state;
  heed_context *ctx = NULL;
  const model_bytes whole = small_model(1);
  assert_int_equal(heed_context_new(NULL, &ctx), HEED_OK);
  for (size_t i = 1; i < 2 * whole.size; i++) {
    model_bytes m = whole;
    heed__spm *spm = NULL;
    if (i < whole.size) {
      m.size = i;
    } else {
      m.data[i - whole.size] ^= 0x55;
    }
    if (load_bytes(ctx, &m, &spm) != HEED_OK) {
      assert_non_null(strstr(heed_message(ctx), "load: '"));
      continue;
    }
    heed__bytes ids = {0};
    assert_int_equal(heed__spm_encode(spm, "encode", "abba <sep>?", 11, &ids), HEED_OK);
    heed__release(ctx, ids.data);
    heed__spm_free(spm);
  }
  heed_context_free(ctx);
}

static void a_trie_finds_its_longest_keys(void **state) {
  (void)state;
  heed_context *ctx = NULL;
  heed__trie trie = {0};
  heed__trie_key keys[] = {{"abc", 3, 1}, {"a", 1, 2}, {"\xff", 1, 3}, {"abcd", 4, 4}};
  int32_t value = -1;
  assert_int_equal(heed_context_new(NULL, &ctx), HEED_OK);
  assert_int_equal(heed__trie_build(ctx, "build", keys, 4, &trie), HEED_OK);
  assert_int_equal(heed__trie_longest(&trie, "abx", 3, &value), 1);
  assert_int_equal(value, 2);
  assert_int_equal(heed__trie_longest(&trie, "abcde", 5, &value), 4);
  assert_int_equal(value, 4);
  assert_int_equal(heed__trie_longest(&trie, "bc", 2, &value), 0);
  assert_int_equal(heed__trie_longest(&trie, "a\0", 2, &value), 1);
  assert_int_equal(heed__trie_longest(&trie, "\xff", 1, &value), 1);
  heed__release(ctx, (void *)(uintptr_t)trie.units);
  heed_context_free(ctx);
}

static void a_cancelled_encoding_stops(void **state) {
  (void)state;
  heed_context *ctx = NULL;
  heed__spm *spm = NULL;
  static char text[1 << 20];
  memset(text, 'a', sizeof(text));
  for (int kind = 1; kind <= 2; kind++) {
    const model_bytes m = small_model(kind);
    heed__bytes ids = {0};
    assert_int_equal(heed_context_new(NULL, &ctx), HEED_OK);
    assert_int_equal(load_bytes(ctx, &m, &spm), HEED_OK);
    heed_cancel(ctx);
    assert_int_equal(heed__spm_encode(spm, "encode", text, sizeof(text), &ids), HEED_CANCELLED);
    assert_int_equal(heed__spm_encode(spm, "encode", text, sizeof(text), &ids), HEED_OK);
    heed__release(ctx, ids.data);
    heed__spm_free(spm);
    heed_context_free(ctx);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts_are_segmented_by_either_model),
      cmocka_unit_test(every_truncated_or_altered_file_is_refused_or_usable),
      cmocka_unit_test(a_trie_finds_its_longest_keys),
      cmocka_unit_test(a_cancelled_encoding_stops),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
