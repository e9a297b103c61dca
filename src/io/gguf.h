/* GGUF files: the values of their metadata, which lie unaligned and little-endian in the mapped file. */
#ifndef HEED_GGUF_H
#define HEED_GGUF_H

#include "files.h"

/* ---- Reading bytes in order (gguf_values.c) ---- */

typedef struct heed__gguf_cursor {
  const heed__where *where;
  const char *start, *at, *end;
} heed__gguf_cursor;

/** A little-endian unsigned number of 1, 2, 4 or 8 bytes. */
uint64_t heed__gguf_bits(const char *p, size_t bytes);
/** The next number, `what` in messages. Errors: FILE (cut short). */
HEED_MUST_USE
heed_status heed__gguf_take(heed__gguf_cursor *c, const char *what, size_t bytes, uint64_t *out);
/** The next string: a length in 8 bytes, then that many bytes without a closing zero. Errors: FILE. */
HEED_MUST_USE
heed_status heed__gguf_take_string(heed__gguf_cursor *c, const char *what, const char **text, size_t *length);
/** The next value with its type, checked to its end; arrays may be nested HEED__GGUF_DEPTH deep. Errors:
 * FILE, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__gguf_take_value(heed__gguf_cursor *c, heed_gguf_value *out);

/** The byte after a value. */
const char *heed__gguf_end(const heed_gguf_value *value);

enum { HEED__GGUF_DEPTH = 4, HEED__GGUF_TYPES = HEED_GGUF_FLOAT64 + 1, HEED__GGUF_ALIGNMENT = 32 };
/** The alignment that a value of general.alignment asks for; 0: it must not be one. */
uint64_t heed__gguf_alignment(const heed_gguf_value *value);

/** The number of a dtype among ggml's types, which has that dtype. (gguf.c) */
uint32_t heed__ggml_number(heed_dtype dtype);

/* ---- Writing (gguf_write.c) ---- */

HEED_MUST_USE
heed_status heed__gguf_save(heed__writer *w, const heed__contents *contents);

#endif
