/* The normalizer Precompiled of tokenizer.json: a charsmap of SentencePiece, used as tokenizers does. Source:
 * https://github.com/huggingface/spm_precompiled. */
#include "text.h"

#include <string.h>

#define SHORT_CLUSTER 6 /* bytes; shorter grapheme clusters are looked up as a whole */

/* The value of the shortest key that the text begins with: tokenizers replaces all of the text by it. */
static const char *replacement_of(const heed__spm *map, const char *text, size_t size) {
  size_t node = 0;
  for (size_t i = 0; i < size && heed__trie_step(&map->charsmap, &node, (unsigned char)text[i]); i++) {
    const int32_t at = heed__trie_value(&map->charsmap, node);
    if (at >= 0) return (size_t)at < map->replacements_size ? map->replacements + at : NULL;
  }
  return NULL;
}

heed_status heed__rewrite_precompiled(heed_tokenizer *tok, const char *function, const heed__step *step,
                                      const heed__bytes *text, heed__bytes *out) {
  heed_status status = HEED_OK;
  int64_t steps = 0;
  for (size_t at = 0, cluster; at < text->size && status == HEED_OK; at += cluster) {
    const char *const p = text->data + at;
    cluster = heed__text_grapheme(p, text->size - at);
    const bool whole = cluster < SHORT_CLUSTER && replacement_of(step->charsmap, p, cluster) != NULL;
    for (size_t i = 0, length; i < cluster && status == HEED_OK; i += length) {
      length = whole ? cluster : heed__utf8_length(p[i]);
      const char *to = replacement_of(step->charsmap, p + i, length);
      status =
          heed__bytes_put(tok->ctx, function, out, to != NULL ? to : p + i, to != NULL ? strlen(to) : length);
      if (heed__is_due_at(&tok->ctx->pace, steps++)) status = heed__stopped(tok->ctx, function);
    }
  }
  return status;
}

static int base64_value(char c) {
  return c >= 'A' && c <= 'Z'   ? c - 'A'
         : c >= 'a' && c <= 'z' ? c - 'a' + 26
         : c >= '0' && c <= '9' ? c - '0' + 52
         : c == '+'             ? 62
         : c == '/'             ? 63
                                : -1;
}

heed_status heed__read_precompiled(heed_context *ctx, const char *where, const char *text, size_t size,
                                   heed__step *step) {
  uint32_t bits = 0;
  int count = 0;
  while (size > 0 && text[size - 1] == '=') size--;
  step->charsmap = heed__allocate(ctx, sizeof(*step->charsmap));
  step->text = heed__allocate(ctx, size + 1);
  if (step->charsmap != NULL) *step->charsmap = (heed__spm){.ctx = ctx};
  if (step->charsmap == NULL || step->text == NULL)
    return heed__fail_memory(ctx, "load", size + sizeof(*step->charsmap));
  for (size_t i = 0; i < size; i++) {
    const int value = base64_value(text[i]);
    if (value < 0) return heed__fail(ctx, HEED_FILE, "%s: precompiled_charsmap is not base64", where);
    bits = bits << 6 | (uint32_t)value;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    step->text[step->size++] = (char)(bits >> count & 0xff);
  }
  return heed__spm_charsmap(step->charsmap, where, step->text, step->size);
}
