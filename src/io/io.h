/* The door of io: files of tensors, and JSON. All opening of files is behind it, and cJSON and zlib are
 * known nowhere else. Loading and saving are heed.h's. */
#ifndef HEED_IO_H
#define HEED_IO_H

#include "../ops/ops.h"

/* ---- Files ---- */

/** heed_load_archive or heed_load_npy, by the end of path, or, if that says nothing, by the first bytes:
 * one of both results. Errors: FILE, MEMORY. */
HEED_MUST_USE
heed_status heed__load_file(heed_context *ctx, const char *path, heed_archive **archive,
                            heed_tensor **tensor);

/* What the end of a path says. */
typedef enum heed__format {
  HEED__UNKNOWN,
  HEED__SAFETENSORS,
  HEED__SAFETENSORS_INDEX,
  HEED__NPY,
  HEED__NPZ
} heed__format;
heed__format heed__format_of_path(const char *path);

/** The bytes of a file as an int8 tensor [size]. Errors: FILE, MEMORY, LIMIT, CANCELLED. (file.c) */
HEED_MUST_USE
heed_status heed__load_bytes(heed_context *ctx, const char *path, heed_tensor **out);

/* ---- JSON (json.c) ---- */

typedef struct heed__json_tree heed__json_tree;
typedef struct heed__json heed__json; /* a value in a tree */
typedef enum heed__json_kind {
  HEED__JSON_NULL,
  HEED__JSON_BOOLEAN,
  HEED__JSON_NUMBER,
  HEED__JSON_STRING,
  HEED__JSON_LIST,
  HEED__JSON_OBJECT
} heed__json_kind;

/** A file of at most 16 MiB, such as a model's config.json. */
HEED_MUST_USE
heed_status heed__json_load(heed_context *ctx, const char *path, heed__json_tree **out);
void heed__json_free(heed__json_tree *tree); /* NULL is allowed */

const heed__json *heed__json_root(const heed__json_tree *tree);
heed__json_kind heed__json_kind_of(const heed__json *value);
const heed__json *heed__json_first(const heed__json *value); /* in a list or an object; NULL: it is empty */
const heed__json *heed__json_next(const heed__json *value);
const char *heed__json_key(const heed__json *value);  /* of a value in an object */
const char *heed__json_text(const heed__json *value); /* of a string */
bool heed__json_boolean(const heed__json *value);
double heed__json_number(const heed__json *value);
/** Whether a number is whole and exact (below 2^53 in size). */
bool heed__json_integer(const heed__json *value, int64_t *out);

/* ---- Hashes of text (hash.c) ---- */

/* The hash of a text that is fed in parts; a copy can be fed with other parts. */
typedef struct heed__hasher {
  uint64_t v0, v1, v2, v3;
  uint64_t word; /* the last bytes, fewer than 8, lowest first */
  size_t size;   /* of all bytes */
} heed__hasher;
heed__hasher heed__hash_begin(const uint64_t key[2]);
void heed__hash_feed(heed__hasher *h, const char *text, size_t size);
/** The hash of what was fed so far; h can be fed on. */
uint64_t heed__hash_value(const heed__hasher *h);
/** A key from bytes that a file's author cannot guess: addresses, a clock. */
void heed__hash_make_key(const void *material, size_t size, uint64_t key[2]);

/* ---- Text in UTF-8 (text.c) ---- */

/** The first byte, from 1, at which no character stands in valid UTF-8 (cut short, overlong, a surrogate or
 * beyond U+10FFFF); 0 if all of it is valid, which the functions below want. */
size_t heed__text_check(const char *text, size_t size);

/** The same for texts of any length, as *invalid. Errors: CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__text_check_in_steps(heed_context *ctx, const char *function, const char *text, size_t size,
                                      size_t *invalid);

/** How many of the bytes at `text`, at most 64 KiB, a step of a long walk takes: it ends between two
 * characters, if the text is valid. */
size_t heed__text_step(const char *text, size_t size);

/* The rest is there where HEED_UTF8PROC is 1. */

/* Unicode's general categories, in the order of utf8proc. */
#define HEED__CATEGORIES 30
typedef int heed__category;
/** That of the first character, whose length in bytes is returned. */
size_t heed__text_category(const char *text, size_t size, heed__category *category);
/** "Lu", "Ll"…, from 0 to below HEED__CATEGORIES. */
const char *heed__category_name(heed__category category);

/** In lower case, character by character (a sigma is σ at the end of words, too); out has room for 2 · size
 * bytes. Returns how many were written. */
size_t heed__text_lower(const char *text, size_t size, char *out);
/** The canonical decomposition (NFD), at most 3 · size bytes at out; scratch memory for 2 · size marks.
 * Errors: CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__text_nfd(heed_context *ctx, const char *function, const char *text, size_t size,
                           int32_t *marks, char *out, size_t *written);

#endif
