/* WordPiece: a word is divided, from the left, into the longest pieces in the vocabulary. Source:
 * arXiv:1609.08144, section 4.1. */
#include "text.h"

#include <string.h>

#define LONGEST_PIECE 1024 /* bytes */

static heed_status put_id(heed_tokenizer *tok, const char *function, int64_t id, heed__bytes *ids) {
  return id < 0 ? HEED_OK : heed__bytes_put(tok->ctx, function, ids, &id, sizeof(id));
}

heed_status heed__wordpiece_word(heed_tokenizer *tok, const char *function, const char *text, size_t size,
                                 heed__bytes *ids) {
  char piece[LONGEST_PIECE];
  const size_t before = ids->size, prefix = tok->prefix != NULL ? strlen(tok->prefix) : 0;
  int64_t characters = 0;
  for (size_t i = 0; i < size && characters <= tok->longest_word; i++)
    characters += ((unsigned char)text[i] & 0xc0) != 0x80;
  if (characters > tok->longest_word || size + prefix > sizeof(piece))
    return put_id(tok, function, tok->unknown, ids);
  if (prefix > 0) memcpy(piece, tok->prefix, prefix);
  for (size_t at = 0, end; at < size; at = end) {
    int32_t id = -1;
    const size_t head = at > 0 ? prefix : 0;
    memcpy(piece + head, text + at, size - at);
    for (end = size; end > at; end--) {
      if (end < size && ((unsigned char)text[end] & 0xc0) == 0x80) continue;
      id = heed__vocabulary_find(&tok->vocabulary, piece, head + end - at);
      if (id >= 0) break;
    }
    if (id < 0) {
      ids->size = before;
      return put_id(tok, function, tok->unknown, ids);
    }
    const heed_status status = put_id(tok, function, id, ids);
    if (status != HEED_OK) return status;
    if (at == 0 && prefix > 0) memcpy(piece, tok->prefix, prefix);
  }
  return HEED_OK;
}
