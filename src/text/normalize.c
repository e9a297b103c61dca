/* SentencePiece's normalisation: replacements by a charsmap, spaces, the dummy prefix. */
#include <string.h>

#include "sentencepiece.h"

#define SPACE_SYMBOL "\xe2\x96\x81" /* U+2581, which stands for a space */
#define REPLACEMENT  "\xef\xbf\xbd" /* U+FFFD, for bytes that are no UTF-8 */

heed_status heed__spm_charsmap(heed__spm *spm, const char *where, const char *data, size_t size) {
  const unsigned char *head = (const unsigned char *)data;
  if (size < 5) return heed__fail(spm->ctx, HEED_FILE, "%s: the charsmap has only %zu bytes", where, size);
  const uint32_t bytes =
      (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 24;
  if (bytes > size - 5 || bytes < 1024 || bytes % 1024 != 0)
    return heed__fail(spm->ctx, HEED_FILE,
                      "%s: the trie of the charsmap has %lu bytes; it must have a multiple of 1024, within "
                      "the %zu bytes of the charsmap",
                      where, (unsigned long)bytes, size);
  if (data[size - 1] != 0)
    return heed__fail(spm->ctx, HEED_FILE, "%s: the charsmap does not end with the byte 0", where);
  uint32_t *units = heed__allocate(spm->ctx, bytes); /* copied: in files it has any alignment */
  if (units == NULL) return heed__fail_memory(spm->ctx, "load", bytes);
  for (size_t i = 0; i < bytes / 4; i++) {
    const unsigned char *unit = head + 4 + 4 * i;
    units[i] = (uint32_t)unit[0] | (uint32_t)unit[1] << 8 | (uint32_t)unit[2] << 16 | (uint32_t)unit[3] << 24;
  }
  heed__release(spm->ctx, (void *)(uintptr_t)spm->charsmap.units);
  spm->charsmap = (heed__trie){units, bytes / 4};
  spm->replacements = data + 4 + bytes;
  spm->replacements_size = size - 4 - bytes;
  return HEED_OK;
}

/* A prefix of the text and what it becomes. */
typedef struct normal_prefix {
  const char *text;
  size_t size, consumed;
} normal_prefix;

static normal_prefix normalize_prefix(const heed__spm *spm, const char *text, size_t size) {
  int32_t value = 0;
  size_t length = heed__trie_longest(&spm->symbols, text, size, &value);
  if (length > 0) return (normal_prefix){text, length, length};
  length = heed__trie_longest(&spm->charsmap, text, size, &value);
  if (length > 0 && (size_t)value < spm->replacements_size) {
    const char *replacement = spm->replacements + value;
    return (normal_prefix){replacement, strlen(replacement), length};
  }
  length = heed__utf8_length(*text);
  if (length > size || heed__text_check(text, length) != 0) return (normal_prefix){REPLACEMENT, 3, 1};
  return (normal_prefix){text, length, length};
}

static heed_status put_normal(const heed__spm *spm, const char *function, heed__bytes *out, const char *text,
                              size_t size) {
  heed_status status = heed__bytes_reserve(spm->ctx, function, out, heed__array_bytes(size, 3));
  if (status != HEED_OK) return status;
  for (size_t i = 0; i < size; i++) {
    if (text[i] == ' ' && spm->escape_whitespaces) {
      memcpy(out->data + out->size, SPACE_SYMBOL, 3);
      out->size += 3;
    } else {
      out->data[out->size++] = text[i];
    }
  }
  return HEED_OK;
}

heed_status heed__spm_normalize(const heed__spm *spm, const char *function, const char *text, size_t size,
                                heed__bytes *out) {
  const char *end = text + size;
  const size_t start = out->size;
  const bool trims = spm->remove_extra_whitespaces;
  heed_status status = HEED_OK;
  int64_t steps = 0;
  while (trims && text < end && status == HEED_OK) {
    const normal_prefix prefix = normalize_prefix(spm, text, (size_t)(end - text));
    if (prefix.size != 1 || *prefix.text != ' ') break;
    text += prefix.consumed;
    if (heed__is_due_at(&spm->ctx->pace, steps++)) status = heed__stopped(spm->ctx, function);
  }
  if (text == end || status != HEED_OK) return status;
  if (spm->add_dummy_prefix && !spm->whitespace_as_suffix) status = put_normal(spm, function, out, " ", 1);
  bool after_space = trims;
  while (text < end && status == HEED_OK) {
    normal_prefix prefix = normalize_prefix(spm, text, (size_t)(end - text));
    while (after_space && prefix.size > 0 && *prefix.text == ' ') {
      prefix.text++;
      prefix.size--;
    }
    if (prefix.size > 0) {
      status = put_normal(spm, function, out, prefix.text, prefix.size);
      after_space = prefix.text[prefix.size - 1] == ' ';
    }
    if (!trims) after_space = false;
    text += prefix.consumed;
    if (status == HEED_OK && heed__is_due_at(&spm->ctx->pace, steps++))
      status = heed__stopped(spm->ctx, function);
  }
  const char *space = spm->escape_whitespaces ? SPACE_SYMBOL : " ";
  const size_t width = strlen(space);
  while (trims && out->size - start >= width && memcmp(out->data + out->size - width, space, width) == 0)
    out->size -= width;
  if (status == HEED_OK && spm->add_dummy_prefix && spm->whitespace_as_suffix)
    status = put_normal(spm, function, out, " ", 1);
  return status;
}
