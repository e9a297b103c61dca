/* The door of io: files of tensors, JSON, text. Loading and saving archives is declared in heed.h. */
#ifndef HEED_IO_H
#define HEED_IO_H

#include "../ops/ops.h"

/* ---- Files of any format (formats.c) ---- */

/** Loads a file in the format of its ending, or, if the ending is unknown, of its first bytes: sets one of
 * both results. Errors: FILE, MEMORY, LIMIT, CANCELLED. */
HEED_MUST_USE
heed_status heed__load_file(heed_context *ctx, const char *path, heed_archive **archive,
                            heed_tensor **tensor);

/** The ending that stands for the format of a file, such as ".gguf": by the ending of its path in any case,
 * or, if that is unknown, by its first bytes. NULL: neither is known, or the file cannot be read. */
const char *heed__path_format(heed_context *ctx, const char *path);
/** The same by the path alone. */
const char *heed__path_ending(const char *path);

/* Of an archive's entry i, from 1: (archive.c) */

/** Whether heed_archive_tensor neither converts nor copies it, and does not refuse it. */
bool heed__archive_is_ready(const heed_archive *archive, int64_t i);
/** Whether the dots in its names separate the keys of nested dicts, as in files of torch.save. */
bool heed__archive_is_nested(const heed_archive *archive);
#define HEED__ENTRY_TEXT 512
/** "a tensor of shape [2] and dtype float64 in the file", for messages. */
void heed__archive_describe(const heed_archive *archive, int64_t i, char out[HEED__ENTRY_TEXT]);
/** The name of the dtype of entry i, from 1, if heed lacks that: then also what to do about it, or "", and
 * the file as errors name it; else NULL. */
const char *heed__archive_lacks(const heed_archive *archive, int64_t i, const char **fix, const char **file);
/** Frees the memory of a tensor's pages if they are of a mapped file and unchanged; they are read again when
 * the tensor is next used. */
void heed__tensor_forget(const heed_tensor *x);

/** Saves one tensor without a name in the format of the path's ending. Errors: as heed_save_npy. */
HEED_MUST_USE
heed_status heed__save_tensor(heed_context *ctx, const char *path, const heed_tensor *x);

/** The bytes of a file as an int8 tensor [size]. Errors: FILE, MEMORY, LIMIT, CANCELLED. (file.c) */
HEED_MUST_USE
heed_status heed__load_bytes(heed_context *ctx, const char *path, heed_tensor **out);
/** The same, mapped: pages are read when they are first used. An empty file is a FILE error. (convert.c) */
HEED_MUST_USE
heed_status heed__map_bytes(heed_context *ctx, const char *path, heed_tensor **out);
/** Writes a file completely or not at all. Errors: FILE, MEMORY, LIMIT, CANCELLED. (compress.c) */
HEED_MUST_USE
heed_status heed__save_bytes(heed_context *ctx, const char *path, const char *data, size_t bytes);

/* ---- Caches of models in Lua (kv_cache_file.c) ---- */

/** As heed_kv_caches_save, with samples of all parameters of the model, float32 [n, HEED__SAMPLE], or NULL.
 */
HEED_MUST_USE
heed_status heed__kv_caches_save(heed_context *ctx, const char *path, int64_t count,
                                 heed_kv_cache *const *caches, const heed_tensor *samples);
/** As heed_kv_caches_load; where the file has samples of a model, they must be these. Errors: FILE. */
HEED_MUST_USE
heed_status heed__kv_caches_load(heed_context *ctx, const char *path, int64_t count,
                                 heed_module *const *modules, const heed_tensor *samples,
                                 heed_kv_cache **out);

/* ---- Compression, for pictures (compress.c) ---- */

/** Capacity that heed__zlib_compress needs for `bytes` bytes; 0 if size_t is too small. */
size_t heed__zlib_bound(size_t bytes);
/** Writes the data as a zlib stream and returns its length. Without zlib the data are stored uncompressed. */
size_t heed__zlib_compress(const char *data, size_t bytes, char *out, size_t capacity);
/** CRC-32 of zip, gzip and PNG. */
uint32_t heed__crc32(const char *data, size_t bytes);

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

/** Loads a file of at most 16 MiB, such as a model's config.json. Errors: FILE, MEMORY, LIMIT, CANCELLED. */
HEED_MUST_USE
heed_status heed__json_load(heed_context *ctx, const char *path, heed__json_tree **out);
/** The same of a text in the file at `path`. */
HEED_MUST_USE
heed_status heed__json_read(heed_context *ctx, const char *path, const char *text, size_t length,
                            heed__json_tree **out);
void heed__json_free(heed__json_tree *tree); /* NULL is allowed */

const heed__json *heed__json_root(const heed__json_tree *tree);
heed__json_kind heed__json_kind_of(const heed__json *value);
const heed__json *heed__json_first(const heed__json *value); /* of a list or an object; NULL if it is empty */
const heed__json *heed__json_next(const heed__json *value);
const char *heed__json_key(const heed__json *value);  /* of a value in an object */
const char *heed__json_text(const heed__json *value); /* of a string */
bool heed__json_boolean(const heed__json *value);
double heed__json_number(const heed__json *value);
/** Whether a value is an integer below 2^53 in magnitude, which doubles hold exactly. */
bool heed__json_integer(const heed__json *value, int64_t *out);

/* ---- Metadata of GGUF files (gguf_values.c) ---- */

/** Bytes of a value of each type; 0: strings and arrays. */
size_t heed__gguf_width(heed_gguf_type type);
/** The value in `bytes` bytes of a script: its type in 4, then its bytes as in files. Errors: FILE. */
HEED_MUST_USE
heed_status heed__gguf_read_value(heed_context *ctx, const char *text, size_t bytes, heed_gguf_value *out);

/* ---- Sorting (sort.c) ---- */

/** Sorts `count` records of `size` bytes: stable, in O(n log n). Errors: MEMORY, LIMIT, CANCELLED. */
HEED_MUST_USE
heed_status heed__sort_records(heed_context *ctx, const char *function, void *records, int64_t count,
                               size_t size, int (*compare)(const void *a, const void *b));

/* ---- Hashes of text (hash.c) ---- */

/* The state of a hash over a text fed in parts; copies can continue with different parts. */
typedef struct heed__hasher {
  uint64_t v0, v1, v2, v3;
  uint64_t word; /* the last bytes, fewer than 8, lowest first */
  size_t size;   /* bytes fed so far */
} heed__hasher;
heed__hasher heed__hash_begin(const uint64_t key[2]);
void heed__hash_feed(heed__hasher *h, const char *text, size_t size);
/** The hash of everything fed so far; more can be fed. */
uint64_t heed__hash_value(const heed__hasher *h);
/** A key from bytes that the author of a file cannot guess: addresses, a clock. */
void heed__hash_make_key(const void *material, size_t size, uint64_t key[2]);

/* ---- Text in UTF-8 (text.c) ---- */

/** The first byte, from 1, that does not begin a valid UTF-8 character (truncated, overlong, a surrogate or
 * beyond U+10FFFF); 0 if the text is valid, which the functions below require. */
size_t heed__text_check(const char *text, size_t size);

/** Decodes the first character; returns its length in bytes, 0 if it is not valid. */
size_t heed__text_character(const char *text, size_t size, int32_t *character);

/** The same for texts of any length; the result is *invalid. Errors: CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__text_check_in_steps(heed_context *ctx, const char *function, const char *text, size_t size,
                                      size_t *invalid);

/** Bytes that one step over a long text takes, at most 64 KiB: a step ends between two characters if the text
 * is valid. */
size_t heed__text_step(const char *text, size_t size);

/* The rest needs HEED_UTF8PROC: without it some are missing, and the others do nothing. */

/* Unicode's general categories, in utf8proc's order. */
#define HEED__CATEGORIES 30
typedef int heed__category;
/** The category of the first character; returns its length in bytes. */
size_t heed__text_category(const char *text, size_t size, heed__category *category);
heed__category heed__category_of(int32_t character);
/** "Lu", "Ll"…, for 0 to HEED__CATEGORIES - 1. */
const char *heed__category_name(heed__category category);

/** Bytes of the first extended grapheme cluster. */
size_t heed__text_grapheme(const char *text, size_t size);

/** Converts to lower case, character by character (σ also at the end of words); out has a capacity of 2 ·
 * size bytes. Returns the number of bytes written. */
size_t heed__text_lower(const char *text, size_t size, char *out);
/** The canonical decomposition (NFD), at most 3 · size bytes; `marks` is scratch for 2 · size code points.
 * Errors: CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__text_nfd(heed_context *ctx, const char *function, const char *text, size_t size,
                           int32_t *marks, char *out, size_t *written);
/** The same, and if `compatible` the compatibility decomposition (NFKD), at most 11 · size bytes; `marks` is
 * then for 12 · size code points. */
HEED_MUST_USE
heed_status heed__text_decompose(heed_context *ctx, const char *function, const char *text, size_t size,
                                 bool compatible, int32_t *marks, char *out, size_t *written);
/** Composes a decomposed text in place (NFC, NFKC); returns its new size. scratch: `size` code points. */
size_t heed__text_compose(char *text, size_t size, int32_t *scratch);

#endif
