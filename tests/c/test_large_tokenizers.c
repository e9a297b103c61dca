/* Tokenizers of tens of thousands of tokens, of every kind of file: loading, encoding and decoding end with
 * an error, and without leaks, when they are cancelled at a check or an allocation fails. */
#define _DEFAULT_SOURCE /* mkdtemp */

#include "support.h"

#include <stdio.h>
#include <unistd.h>

/* The tokens are the letters U+4E00… and all pairs of them, which are merged from two letters. */
enum { LETTERS = 130, TOKENS = LETTERS + LETTERS * LETTERS, SPECIAL = 4, LONGEST = 8 };
static const char *const special[SPECIAL] = {"[UNK]", "[CLS]", "[SEP]", "\xe2\x96\x81"};

static size_t put_letter(char *out, int letter) {
  const int c = 0x4e00 + letter;
  out[0] = (char)(0xe0 | c >> 12);
  out[1] = (char)(0x80 | (c >> 6 & 0x3f));
  out[2] = (char)(0x80 | (c & 0x3f));
  return 3;
}

/* Token id (from 0), with its closing zero. */
static size_t token_text(int id, char out[LONGEST]) {
  size_t size = 0;
  if (id < SPECIAL) {
    size = strlen(special[id]);
    memcpy(out, special[id], size);
  } else if (id < SPECIAL + LETTERS) {
    size = put_letter(out, id - SPECIAL);
  } else {
    size = put_letter(out, (id - SPECIAL - LETTERS) / LETTERS);
    size += put_letter(out + size, (id - SPECIAL - LETTERS) % LETTERS);
  }
  out[size] = '\0';
  return size;
}

static char folder[] = "/tmp/heed_large_XXXXXX";
static const char *in_folder(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static FILE *open_file(const char *name) {
  FILE *file = fopen(in_folder(name), "wb");
  assert_non_null(file);
  return file;
}

/* ---- The files ---- */

static void write_vocabulary(FILE *file) {
  char text[LONGEST];
  for (int id = 0; id < SPECIAL + TOKENS; id++) {
    token_text(id, text);
    fprintf(file, "%s\"%s\": %d", id > 0 ? ",\n" : "{", text, id);
  }
  fprintf(file, "}");
}

static void write_merges(FILE *file, const char *before, const char *after, const char *between) {
  char left[LONGEST], right[LONGEST];
  for (int i = 0; i < LETTERS * LETTERS; i++) {
    token_text(SPECIAL + i / LETTERS, left);
    token_text(SPECIAL + i % LETTERS, right);
    fprintf(file, "%s%s%s %s%s", i > 0 ? between : "", before, left, right, after);
  }
}

static void write_json(const char *name, const char *type, const char *parts) {
  FILE *file = open_file(name);
  fprintf(file, "{%s, \"model\": {\"type\": \"%s\", \"unk_token\": \"[UNK]\", \"vocab\": ", parts, type);
  write_vocabulary(file);
  if (strcmp(type, "BPE") == 0) {
    fprintf(file, ", \"fuse_unk\": true, \"merges\": [");
    write_merges(file, "\"", "\"", ", ");
    fprintf(file, "]");
  }
  fprintf(file, "}}");
  assert_int_equal(fclose(file), 0);
}

static void write_unigram(const char *name) {
  FILE *file = open_file(name);
  char text[LONGEST];
  fprintf(file, "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\"}, "
                "\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\"}, "
                "\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": ");
  for (int id = 0; id < SPECIAL + TOKENS; id++) {
    token_text(id, text);
    fprintf(file, "%s[\"%s\", -%d.5]", id > 0 ? ",\n" : "[", text, id % 7);
  }
  fprintf(file, "]}}");
  assert_int_equal(fclose(file), 0);
}

static void write_model(const char *name, int kind) {
  FILE *file = open_file(name);
  char text[LONGEST];
  for (int id = 0; id < SPECIAL + TOKENS; id++) {
    const size_t size = token_text(id, text);
    const float score = id < SPECIAL + LETTERS ? -9.0f : -1.0f - (float)(id % 7);
    const int type = id == 0                                 ? 2
                     : id < 3                                ? 3
                     : id % 5 == 4 && id > SPECIAL + LETTERS ? 5
                                                             : 1; /* some are unused */
    fprintf(file, "\n%c\n%c%s\x15", (int)size + 9, (int)size, text);
    fwrite(&score, sizeof score, 1, file);
    fprintf(file, "\x18%c", type);
  }
  fprintf(file, "\x12\x02\x18%c", kind);
  assert_int_equal(fclose(file), 0);
}

static void write_pairs(void) {
  FILE *file = open_file("pairs/vocab.json");
  write_vocabulary(file);
  assert_int_equal(fclose(file), 0);
  file = open_file("pairs/merges.txt");
  write_merges(file, "", "", "\n");
  assert_int_equal(fclose(file), 0);
}

static void write_lines(void) {
  FILE *file = open_file("vocab.txt");
  char text[LONGEST];
  for (int id = 0; id < SPECIAL + TOKENS; id++) {
    token_text(id, text);
    fprintf(file, "%s\n", text);
  }
  assert_int_equal(fclose(file), 0);
}

/* Adds a string after its length in 8 bytes. */
static void put_string(char **at, const char *text, size_t size) {
  const uint64_t length = size;
  memcpy(*at, &length, sizeof length);
  memcpy(*at + sizeof length, text, size);
  *at += sizeof length + size;
}

static void write_gguf(heed_context *ctx, const char *name, const char *model) {
  static char tokens[(SPECIAL + TOKENS) * (8 + LONGEST)], merges[LETTERS * LETTERS * (8 + 2 * LONGEST)];
  static float scores[SPECIAL + TOKENS];
  static int32_t types[SPECIAL + TOKENS];
  static const char *const keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.tokens",
                                     "tokenizer.ggml.token_type", "tokenizer.ggml.scores",
                                     "tokenizer.ggml.merges"};
  char *at = tokens, text[2 * LONGEST];
  for (int id = 0; id < SPECIAL + TOKENS; id++) {
    put_string(&at, text, token_text(id, text));
    scores[id] = -1.0f - (float)(id % 7);
    types[id] = id == 0 ? 2 : id < 3 ? 3 : id % 1000 == 999 ? 4 : 1;
  }
  at = merges;
  for (int i = 0; i < LETTERS * LETTERS; i++) {
    size_t size = token_text(SPECIAL + i / LETTERS, text);
    text[size++] = ' ';
    size += token_text(SPECIAL + i % LETTERS, text + size);
    put_string(&at, text, size);
  }
  const int64_t count = SPECIAL + TOKENS;
  const heed_gguf_value values[] = {
      {.type = HEED_GGUF_STRING, .count = (int64_t)strlen(model), .data = model},
      {.type = HEED_GGUF_ARRAY, .item = HEED_GGUF_STRING, .count = count, .data = tokens},
      {.type = HEED_GGUF_ARRAY, .item = HEED_GGUF_INT32, .count = count, .data = types},
      {.type = HEED_GGUF_ARRAY, .item = HEED_GGUF_FLOAT32, .count = count, .data = scores},
      {.type = HEED_GGUF_ARRAY, .item = HEED_GGUF_STRING, .count = LETTERS * LETTERS, .data = merges},
  };
  assert_ok(heed_save_gguf(ctx, in_folder(name), 0, NULL, NULL, 5, keys, values));
}

static const char *const files[] = {"bpe.json",      "wordpiece.json", "words.json", "unigram.json",
                                    "unigram.model", "bpe.model",      "pairs",      "vocab.txt",
                                    "gpt2.gguf",     "t5.gguf",        "bert.gguf"};
#define FILES (sizeof files / sizeof *files)

static int write_files(void **state) {
  heed_context *ctx = NULL;
  (void)state;
  if (mkdtemp(folder) == NULL || heed_context_new(NULL, &ctx) != HEED_OK) return -1;
  char path[128];
  snprintf(path, sizeof path, "mkdir %s", in_folder("pairs"));
  if (system(path) != 0) return -1;
  write_json(
      "bpe.json", "BPE",
      "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": "
      "\"Lowercase\"}, "
      "{\"type\": \"Replace\", \"pattern\": {\"String\": \"x\"}, \"content\": \"y\"}, {\"type\": \"Strip\"}, "
      "{\"type\": \"Prepend\", \"prepend\": \"z\"}, {\"type\": \"StripAccents\"}]}, "
      "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, "
      "{\"type\": \"Digits\"}, {\"type\": \"Punctuation\"}]}, "
      "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"Regex\": "
      "\"x\"}, \"content\": \"y\"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}");
  write_json(
      "wordpiece.json", "WordPiece",
      "\"normalizer\": {\"type\": \"BertNormalizer\"}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, "
      "\"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\"}");
  write_json("words.json", "WordLevel", "\"pre_tokenizer\": {\"type\": \"Whitespace\"}");
  write_unigram("unigram.json");
  write_model("unigram.model", 1);
  write_model("bpe.model", 2);
  write_pairs();
  write_lines();
  write_gguf(ctx, "gpt2.gguf", "gpt2");
  write_gguf(ctx, "t5.gguf", "t5");
  write_gguf(ctx, "bert.gguf", "bert");
  heed_context_free(ctx);
  return 0;
}

static int remove_files(void **state) {
  char command[128];
  (void)state;
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) == 0 ? 0 : -1;
}

/* ---- The tests ---- */

#define WORDS 6000
static char text[WORDS * 16];
static size_t text_size;

static void make_text(void) {
  uint32_t random = 1;
  text_size = 0;
  for (int i = 0; i < WORDS; i++) {
    for (int k = 0; k < 3; k++)
      text_size += put_letter(text + text_size, (int)(next_random(&random) >> 20) % LETTERS);
    text_size += (size_t)snprintf(text + text_size, 8, i % 3 ? " " : i % 2 ? "1, " : "  x\xc3\xa9 ");
  }
}

/* Loads the tokenizer, encodes and decodes the text. */
static heed_status use_tokenizer(heed_context *ctx, const char *name) {
  static int64_t own[sizeof text];
  heed_tokenizer *tok = NULL;
  const int64_t *ids = NULL;
  const char *decoded = NULL;
  int64_t count = 0;
  size_t bytes = 0;
  heed_status status = heed_tokenizer_load(ctx, in_folder(name), &tok);
  if (status == HEED_OK)
    status = heed_tokenizer_encode(tok, text, text_size, HEED_ADD_SPECIAL_TOKENS | HEED_ALLOW_SPECIAL, &ids,
                                   &count);
  if (status == HEED_OK) {
    assert_true(count <= (int64_t)(sizeof own / sizeof *own));
    if (count > 0) memcpy(own, ids, (size_t)count * sizeof *ids);
    status = heed_tokenizer_decode(tok, own, count, 0, &decoded, &bytes);
  }
  heed_tokenizer_free(tok);
  return status;
}

typedef struct check_counter {
  heed_context *ctx;
  int64_t checks, cancel_at;
} check_counter;

static void count_check(void *user) {
  check_counter *counter = user;
  if (++counter->checks == counter->cancel_at) heed_cancel(counter->ctx);
}

/* The first 8 checks or allocations, and then ever fewer of them. */
static int64_t next_failure(int64_t n) {
  return n + 1 + (n > 8 ? n / nightly(20, 2) : 0);
}

static void can_be_cancelled_at_any_check(void **state) {
  test_context *t = *state;
  make_text();
  for (size_t i = 0; i < FILES; i++) {
    const test_memory start = t->memory;
    heed_status status = HEED_CANCELLED;
    for (int64_t n = 1; status != HEED_OK; n = next_failure(n)) {
      check_counter counter = {.ctx = t->ctx, .cancel_at = n};
      assert_ok(heed_set_poll(t->ctx, 0, count_check, &counter));
      status = use_tokenizer(t->ctx, files[i]);
      assert_ok(heed_set_poll(t->ctx, 0, NULL, NULL));
      heed_clear_cancel(t->ctx);
      if (status != HEED_OK && status != HEED_CANCELLED) fail_msg("%s: %s", files[i], heed_message(t->ctx));
      assert_int_equal(t->memory.blocks, start.blocks);
    }
  }
}

static void survive_failing_allocations(void **state) {
  test_context *t = *state;
  make_text();
  for (size_t i = 0; i < FILES; i++) {
    const test_memory start = t->memory;
    heed_status status = HEED_MEMORY;
    for (int64_t n = 1; status != HEED_OK; n = next_failure(n)) {
      t->memory.calls = 0;
      t->memory.fail_at = n;
      status = use_tokenizer(t->ctx, files[i]);
      t->memory.fail_at = 0;
      if (status != HEED_OK && status != HEED_MEMORY) fail_msg("%s: %s", files[i], heed_message(t->ctx));
      assert_int_equal(t->memory.blocks, start.blocks);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {TEST(can_be_cancelled_at_any_check), TEST(survive_failing_allocations)};
  return cmocka_run_group_tests_name("large tokenizers", tests, write_files, remove_files);
}
