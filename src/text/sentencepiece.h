/* SentencePiece models: vocabularies with scores, their normalisation, unigram and byte-pair segmentation.
 * Ids count from 0, as in the files. */
#ifndef HEED_SENTENCEPIECE_H
#define HEED_SENTENCEPIECE_H

#include "../io/io.h"

/* ---- Tries (trie.c) ---- */

/* A double array in the format of darts-clone, which the files of SentencePiece contain, too. A unit is the
 * label of its edge (bits 0 to 7), whether a value hangs on it (bit 8), whether the offset to its children
 * counts blocks of 256 (bit 9), and this offset (bits 10 to 30); or, with bit 31, a value. */
typedef struct heed__trie {
  const uint32_t *units; /* little-endian in files, so little-endian machines can use them in place */
  size_t count;          /* 0: an empty trie */
} heed__trie;

static inline size_t heed__trie_children(uint32_t unit) {
  return (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
}

/** Follows the edge of a byte from *node, which begins as 0; false if there is none. */
static inline bool heed__trie_step(const heed__trie *trie, size_t *node, unsigned char byte) {
  const size_t next = *node ^ heed__trie_children(trie->units[*node]) ^ byte;
  if (byte == 0 || next >= trie->count || (trie->units[next] & 0x800000ff) != byte) return false;
  *node = next;
  return true;
}

/** The value at a node, -1 if there is none. */
static inline int32_t heed__trie_value(const heed__trie *trie, size_t node) {
  const uint32_t unit = trie->units[node];
  const size_t leaf = node ^ heed__trie_children(unit);
  if (!(unit & 0x100) || leaf >= trie->count) return -1;
  return (int32_t)(trie->units[leaf] & 0x7fffffff);
}

/** Length in bytes of the longest key that `text` begins with; 0 if none does. *value is the key's. */
size_t heed__trie_longest(const heed__trie *trie, const char *text, size_t size, int32_t *value);

typedef struct heed__trie_key {
  const char *text; /* without the byte 0 */
  uint32_t size;
  int32_t value; /* at least 0 */
} heed__trie_key;

/** Builds a trie of distinct keys, which are sorted in place. The units, *units, are to be released by
 * heed__release. Errors: MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__trie_build(heed_context *ctx, const char *function, heed__trie_key *keys, size_t count,
                             heed__trie *out);

/* ---- Models (sentencepiece.c) ---- */

typedef enum heed__piece_type { /* as in SentencePiece's files */
                                HEED__PIECE_NORMAL = 1,
                                HEED__PIECE_UNKNOWN = 2,
                                HEED__PIECE_CONTROL = 3,
                                HEED__PIECE_USER = 4,
                                HEED__PIECE_UNUSED = 5,
                                HEED__PIECE_BYTE = 6
} heed__piece_type;

typedef struct heed__piece {
  const char *text;
  uint32_t size;
  double score; /* of files of SentencePiece: a float */
  uint8_t type;
} heed__piece;

typedef enum heed__spm_kind { HEED__SPM_UNIGRAM = 1, HEED__SPM_BPE = 2 } heed__spm_kind;

typedef struct heed__spm {
  heed_context *ctx;
  heed__spm_kind kind;
  heed__piece *pieces; /* their texts are in `file`, or kept by the caller */
  int32_t count;
  int32_t unknown, bos, eos, pad; /* ids; -1: none */
  bool byte_fallback;
  int32_t bytes[256]; /* ids of the byte pieces */

  heed__trie charsmap; /* what begins with its keys is replaced by the text at an offset of replacements */
  const char *replacements;
  size_t replacements_size; /* the last byte is 0 */
  bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, whitespace_as_suffix;
  const char *unknown_surface; /* decoded text of unknown ids */
  size_t unknown_surface_size;

  heed_tensor *file;  /* the mapped file */
  uint32_t *table;    /* of hashes: ids + 1 of the pieces that text can become; capacity a power of two */
  uint32_t *hashes;   /* of each id */
  uint32_t mask;      /* capacity - 1 */
  uint32_t *reserved; /* the same of control, unknown and byte pieces */
  uint32_t reserved_mask;
  uint64_t key[2];
  heed__trie symbols; /* user-defined symbols */
  heed__trie trie;    /* unigram: the pieces */
  double min_score, max_score;
  bool any_unused;
  bool plain; /* a model of tokenizer.json: `unknown` is set, all pieces are normal, scores are doubles */
} heed__spm;

/** Loads a .model file. Errors: FILE, MEMORY, LIMIT, CANCELLED. (model_file.c) */
HEED_MUST_USE
heed_status heed__spm_load(heed_context *ctx, const char *path, heed__spm **out);
/** Completes a model whose pieces, kind and normalisation are set: checks it and makes its tables. `where`
 * begins messages: "load: 'a.model'". Errors: FILE, MEMORY, LIMIT, CANCELLED. */
HEED_MUST_USE
heed_status heed__spm_prepare(heed__spm *spm, const char *where);
/** Reads a precompiled charsmap: the bytes of a trie, the trie, replacements. Errors: FILE. (normalize.c) */
HEED_MUST_USE
heed_status heed__spm_charsmap(heed__spm *spm, const char *where, const char *data, size_t size);
void heed__spm_free(heed__spm *spm); /* NULL is allowed */

/** The id of a piece, of control pieces first; the unknown id (-1 without one) if there is none. */
int32_t heed__spm_id(const heed__spm *spm, const char *text, size_t size);
/** The id of a piece that text can become: normal, user-defined, unused; -1 if there is none. */
int32_t heed__spm_find(const heed__spm *spm, const char *text, size_t size);

/* A growing array; zero at first, released by heed__release(ctx, data). */
typedef struct heed__bytes {
  char *data;
  size_t size, capacity;
} heed__bytes;
/** Makes the capacity suffice for `more` bytes after `size`. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__bytes_reserve(heed_context *ctx, const char *function, heed__bytes *b, size_t more);

/** Appends the normalised text. Errors: MEMORY, CANCELLED, LIMIT. (normalize.c) */
HEED_MUST_USE
heed_status heed__spm_normalize(const heed__spm *spm, const char *function, const char *text, size_t size,
                                heed__bytes *out);
/** Appends the ids of a text as int32_t, without bos and eos. Errors: MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__spm_encode(const heed__spm *spm, const char *function, const char *text, size_t size,
                             heed__bytes *ids);
/** Appends the text of ids. Errors: INDEX (an id outside of the vocabulary), MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__spm_decode(const heed__spm *spm, const char *function, const int64_t *ids, int64_t count,
                             heed__bytes *out);

/* Segmentation of normalised text, for heed__spm_encode; unknown characters are `piece`d one by one.
 * (unigram.c, merges.c) */

/** Appends one piece of the result: fuses unknown ones, or divides them into bytes. */
HEED_MUST_USE
heed_status heed__spm_emit(const heed__spm *spm, const char *function, int32_t id, const char *text,
                           size_t size, bool *after_unknown, heed__bytes *ids);
HEED_MUST_USE
heed_status heed__unigram_segment(const heed__spm *spm, const char *function, const char *text, size_t size,
                                  heed__bytes *ids);
HEED_MUST_USE
heed_status heed__merges_segment(const heed__spm *spm, const char *function, const char *text, size_t size,
                                 heed__bytes *ids);

/** Bytes of the UTF-8 character that begins with this byte, whatever follows. */
static inline size_t heed__utf8_length(char first) {
  return (size_t) "\1\1\1\1\1\1\1\1\1\1\1\1\2\2\3\4"[(unsigned char)first >> 4];
}

#endif
