/* The byte-level alphabet of GPT-2: printable bytes stand for themselves, the others for U+0100 and on.
 * Source: https://github.com/openai/gpt-2, bytes_to_unicode. */
#include "text.h"

#include <string.h>

static int character_of_byte(int byte) {
  if (byte <= ' ') return 0x100 + byte;
  if (byte >= 0x7f && byte <= 0xa0) return 0x121 + byte - 0x7f;
  return byte == 0xad ? 0x143 : byte;
}

/* -1: the character is not in the alphabet. */
static int byte_of_character(int c) {
  if (c >= 0x100) return c <= 0x120 ? c - 0x100 : c <= 0x142 ? c - 0x121 + 0x7f : c == 0x143 ? 0xad : -1;
  return character_of_byte(c) == c ? c : -1;
}

heed_status heed__bytes_put(heed_context *ctx, const char *function, heed__bytes *b, const void *data,
                            size_t size) {
  const heed_status status = heed__bytes_reserve(ctx, function, b, size);
  if (status != HEED_OK || size == 0) return status;
  memcpy(b->data + b->size, data, size);
  b->size += size;
  return HEED_OK;
}

heed_status heed__alphabet_write(heed_context *ctx, const char *function, const char *text, size_t size,
                                 heed__bytes *out) {
  const heed_status status = heed__bytes_reserve(ctx, function, out, heed__array_bytes(size, 2));
  for (size_t i = 0; i < size && status == HEED_OK; i++) {
    const int c = character_of_byte((unsigned char)text[i]);
    if (c >= 0x80) out->data[out->size++] = (char)(0xc0 | c >> 6);
    out->data[out->size++] = (char)(c < 0x80 ? c : 0x80 | (c & 0x3f));
  }
  return status;
}

heed_status heed__alphabet_read(heed_context *ctx, const char *function, const char *text, size_t size,
                                heed__bytes *out) {
  const size_t start = out->size;
  heed_status status = heed__bytes_reserve(ctx, function, out, size);
  for (size_t i = 0; i < size && status == HEED_OK;) {
    const unsigned char first = (unsigned char)text[i];
    int c = first;
    size_t length = 1;
    if (first >= 0xc0 && first < 0xe0 && i + 1 < size) {
      c = (first & 0x1f) << 6 | ((unsigned char)text[i + 1] & 0x3f);
      length = 2;
    } else if (first >= 0x80) {
      c = 0xad; /* not in the alphabet */
    }
    const int byte = byte_of_character(c);
    if (byte < 0) {
      out->size = start;
      return heed__bytes_put(ctx, function, out, text, size);
    }
    out->data[out->size++] = (char)byte;
    i += length;
  }
  return status;
}
