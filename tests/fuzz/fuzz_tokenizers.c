/* The target of libFuzzer: loads a tokenizer from the contents of a file; if that succeeds, encodes and
 * decodes a text. FUZZ_FOLDER: see fuzz_files.c. Built and run by `make fuzz`. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/core/core.h"

static const char sample[] =
    "Hello, world! It's 2024; they'LL see I've 12345 things.  two\n\n\tlines\r\n caf\xc3\xa9 "
    "cafe\xcc\x81 \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x8e\x89 "
    "<|begin|>user<|end|> [CLS]<s>a</s> <tool> foo bar "
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "aaaaaaaa\xe2\x96\x81\xe2\x96\x81 \xef\xac\x81 \xe3\x8b\xbf \xcd\xb8";

static void need(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "fuzz_tokenizers: %s\n", what);
  abort();
}

static bool is_expected(heed_status status) {
  return status == HEED_OK || status == HEED_MEMORY || status == HEED_LIMIT;
}

static void use_tokenizer(heed_context *ctx, heed_tokenizer *tok) {
  static const unsigned flags[] = {0, HEED_ADD_SPECIAL_TOKENS | HEED_ALLOW_SPECIAL};
  for (int i = 0; i < 2; i++) {
    const int64_t *ids = NULL;
    int64_t count = 0;
    const char *text = NULL;
    size_t bytes = 0;
    const heed_status status = heed_tokenizer_encode(tok, sample, sizeof(sample) - 1, flags[i], &ids, &count);
    need(is_expected(status), heed_message(ctx));
    if (status != HEED_OK) continue;
    int64_t *own = malloc((size_t)count * sizeof(*own) + 1);
    need(own != NULL, "no memory");
    for (int64_t k = 0; k < count; k++) {
      own[k] = ids[k];
      need(heed_tokenizer_token(tok, own[k], &bytes) != NULL, "an id has no token");
    }
    need(is_expected(heed_tokenizer_decode(tok, own, count, 0, &text, &bytes)), heed_message(ctx));
    need(is_expected(heed_tokenizer_decode(tok, own, count, HEED_SKIP_SPECIAL_TOKENS, &text, &bytes)),
         heed_message(ctx));
    free(own);
  }
}

/* Chooses the format by the first bytes, so that each seed is mutated within its format. */
static const char *ending_of(const uint8_t *text, size_t size) {
  if (size >= 1 && text[0] == '{') return "json";
  if (size >= 4 && memcmp(text, "GGUF", 4) == 0) return "gguf";
  if (size >= 1 && text[0] == '\n') return "model"; /* the tag of a piece */
  return "txt";
}

int LLVMFuzzerTestOneInput(const uint8_t *text, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *text, size_t size) {
  char path[512];
  const char *folder = getenv("FUZZ_FOLDER");
  heed_context *ctx = NULL;
  heed_tokenizer *tok = NULL;
  snprintf(path, sizeof(path), "%s/%ld.%s", folder != NULL ? folder : "/tmp", (long)getpid(),
           ending_of(text, size));
  FILE *file = fopen(path, "wb");
  need(file != NULL && fwrite(text, 1, size, file) == size && fclose(file) == 0, "cannot write files");
  need(heed_context_new(NULL, &ctx) == HEED_OK, "no context");
  const heed_status status = heed_tokenizer_load(ctx, path, &tok);
  need(status == HEED_OK || status == HEED_FILE || is_expected(status), heed_message(ctx));
  if (status == HEED_OK)
    use_tokenizer(ctx, tok);
  else
    need(strncmp(heed_message(ctx), "load: ", 6) == 0, "the message lacks its prefix");
  heed_tokenizer_free(tok);
  need(heed_memory_in_use(ctx) == 0 && ctx->externals == NULL, "memory leaked");
  heed_context_free(ctx);
  return 0;
}
