/* The door of text: tokenizers. A tokenizer is a description of a pipeline (added tokens, normalisation,
 * splitting, model, template, decoding), filled by readers of files and run by one engine. Ids count from 0,
 * as in the files. */
#ifndef HEED_TEXT_H
#define HEED_TEXT_H

#include "sentencepiece.h"

/* ---- Vocabularies (vocabulary.c) ---- */

typedef struct heed__text_span {
  size_t begin, end;
} heed__text_span;

typedef struct heed__token_slot {
  uint32_t tag;   /* bits of the hash */
  uint32_t entry; /* id + 1, or 0 */
} heed__token_slot;

typedef struct heed__vocabulary {
  heed_context *ctx;
  heed__text_span *tokens; /* by id, in `text`; begin > end: no token has the id */
  int32_t count, used;
  char *text;
  size_t text_used, text_capacity;
  heed__token_slot *slots; /* a hash table */
  uint32_t mask;
  uint64_t key[2];
} heed__vocabulary;

/** Prepares for ids below `count` and `bytes` bytes of text. Errors: MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__vocabulary_begin(heed__vocabulary *v, heed_context *ctx, int32_t count, size_t bytes);
/** Adds a token; false if it, or its id, is there already, or outside of what was announced. */
HEED_MUST_USE
bool heed__vocabulary_add(heed__vocabulary *v, int32_t id, const char *text, size_t size);
/** The id of a token, -1 if there is none. */
int32_t heed__vocabulary_find(const heed__vocabulary *v, const char *text, size_t size);
/** The same, faster if the id is `guess`. */
int32_t heed__vocabulary_find_near(const heed__vocabulary *v, int32_t guess, const char *text, size_t size);
/** The text of an id; NULL if there is none. */
const char *heed__vocabulary_text(const heed__vocabulary *v, int64_t id, size_t *size);
void heed__vocabulary_free(heed__vocabulary *v);

/** A hash that is fast on short texts; the key is secret. */
uint64_t heed__quick_hash(const uint64_t key[2], const char *text, size_t size);
/** Sets a key that the author of a file cannot guess. */
void heed__quick_key(const void *object, uint64_t key[2]);

/* ---- Unicode of Hugging Face's tokenizers (older_unicode.c) ---- */

/** The category that normalizers and splits by punctuation use, as in tables of Unicode 8 and 9. */
heed__category heed__older_category(int32_t c);
/** Whether NFC, NFD, NFKC and NFKD have the character in their tables, if it is in any. */
bool heed__is_normalised(int32_t c);
/** Unicode's White_Space. (regex_match.c) */
bool heed__is_white(int32_t c);
/** Whether \w matches: letters, marks, decimal digits, connectors, joiners. (regex_match.c) */
bool heed__is_word_character(int32_t c);

/* ---- Byte-level alphabet (alphabet.c) ---- */

/* GPT-2's: each byte is written as a printable character of at most 2 bytes in UTF-8. */

/** Appends the characters of bytes. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__alphabet_write(heed_context *ctx, const char *function, const char *text, size_t size,
                                 heed__bytes *out);
/** Appends the bytes of a text in the alphabet, or the text itself if it contains another character. Errors:
 * MEMORY. */
HEED_MUST_USE
heed_status heed__alphabet_read(heed_context *ctx, const char *function, const char *text, size_t size,
                                heed__bytes *out);
/** Appends a copy of the text. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__bytes_put(heed_context *ctx, const char *function, heed__bytes *b, const void *data,
                            size_t size);

/* ---- JSON of large files (tree.c) ---- */

typedef struct heed__node_of_json {
  const char *key; /* in an object, else NULL */
  union {
    const char *text; /* STRING, `size` bytes */
    double number;    /* NUMBER; 0 or 1 of a BOOLEAN */
    uint32_t first;   /* LIST, OBJECT: index of the first of `size` nodes; 0: none */
  } u;
  uint32_t key_size, size;
  uint32_t next; /* 0: none */
  heed__json_kind kind;
} heed__json_node;

/* Strings lie in the file or in `text`. */
typedef struct heed__json_file {
  heed_context *ctx;
  heed_tensor *file;      /* NULL: the caller's text */
  heed__json_node *nodes; /* nodes[0] is the root's predecessor; nodes[1] the root */
  uint32_t count;
  size_t capacity;
  char *text;
} heed__json_file;

/** Parses a file of at most 1 GiB strictly, in linear time. Errors: FILE, MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__json_file_load(heed_context *ctx, const char *where, const char *path,
                                 heed__json_file *out);
void heed__json_file_free(heed__json_file *f);
/** The value of a key; NULL if object is NULL, no object, or has no such key. */
const heed__json_node *heed__json_get(const heed__json_file *f, const heed__json_node *object,
                                      const char *key);
/** The value of a key if it is of that kind, else NULL. */
const heed__json_node *heed__json_kind_get(const heed__json_file *f, const heed__json_node *object,
                                           const char *key, heed__json_kind kind);
/** A boolean by key, or `otherwise`. */
bool heed__json_flag(const heed__json_file *f, const heed__json_node *object, const char *key,
                     bool otherwise);
static inline const heed__json_node *heed__json_at(const heed__json_file *f, uint32_t index) {
  return index == 0 ? NULL : &f->nodes[index];
}
/** The first node of a list or object; NULL if there is none, or the node is something else. */
const heed__json_node *heed__json_child(const heed__json_file *f, const heed__json_node *node);
/** Whether a string is that text. */
bool heed__json_is(const heed__json_node *node, const char *text);

/* ---- Regular expressions (regex.c, regex_match.c) ---- */

typedef struct heed__regex heed__regex;
/** Compiles a pattern as tokenizer.json files hold them: alternatives, classes by Unicode category, \s \d \w,
 * ranges, groups, (?i:…), quantifiers (greedy, lazy, possessive), lookahead. Errors: FILE (names what is not
 * supported), MEMORY. */
HEED_MUST_USE
heed_status heed__regex_compile(heed_context *ctx, const char *where, const char *pattern, size_t size,
                                heed__regex **out);
/** The pattern that matches a text itself. */
HEED_MUST_USE
heed_status heed__regex_literal(heed_context *ctx, const char *where, const char *text, size_t size,
                                heed__regex **out);
void heed__regex_free(heed__regex *r);
/** The first match at or after byte `from` of valid UTF-8: *found. Errors: MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__regex_find(heed__regex *r, const char *function, const char *text, size_t size, size_t from,
                             bool *found, heed__text_span *match);

/* ---- The pipeline ---- */

typedef enum heed__behavior {
  HEED__ISOLATED,
  HEED__REMOVED,
  HEED__MERGED_WITH_PREVIOUS,
  HEED__MERGED_WITH_NEXT,
  HEED__CONTIGUOUS
} heed__behavior;

typedef enum heed__step_kind {
  /* normalizers */
  HEED__NFD,
  HEED__NFC,
  HEED__NFKD,
  HEED__NFKC,
  HEED__LOWERCASE,
  HEED__STRIP_ACCENTS,
  HEED__STRIP,       /* left, right */
  HEED__PREPEND,     /* text */
  HEED__REPLACE,     /* regex, text; also a decoder */
  HEED__CLEAN,       /* of BERT: control characters, other spaces */
  HEED__CHINESE,     /* spaces around Chinese characters */
  HEED__PRECOMPILED, /* charsmap */
  /* splits */
  HEED__SPLIT,             /* regex, behavior, invert */
  HEED__SPLIT_DIGITS,      /* behavior */
  HEED__SPLIT_PUNCTUATION, /* behavior */
  HEED__SPLIT_SPACE,
  HEED__SPLIT_BYTES,     /* the byte-level alphabet follows; `left`: add a space in front */
  HEED__SPLIT_METASPACE, /* text, first, left: split */
  /* decoders */
  HEED__DECODE_BYTES,
  HEED__DECODE_WORDPIECE, /* text, left: clean up */
  HEED__DECODE_METASPACE, /* text, first */
  HEED__DECODE_FALLBACK,  /* <0x41> */
  HEED__DECODE_FUSE,
  HEED__DECODE_STRIP, /* text: a character; first, last: how many */
  HEED__DECODE_SUFFIX /* text: the end of a word */
} heed__step_kind;

typedef struct heed__step {
  heed__step_kind kind;
  heed__regex *regex;
  heed__spm *charsmap; /* its charsmap alone is used, which is in `text` */
  heed__behavior behavior;
  bool invert, left, right;
  int first, last; /* of METASPACE: 0 never, 1 first, 2 always */
  char *text;      /* owned */
  size_t size;
} heed__step;

#define HEED__STEPS 24
typedef struct heed__steps {
  heed__step step[HEED__STEPS];
  int count;
} heed__step_list;

typedef struct heed__added {
  const char *text; /* in added_text */
  size_t size;
  int32_t id;
  bool special, single_word, lstrip, rstrip, normalized;
} heed__added;

typedef enum heed__model_kind { HEED__BPE, HEED__WORDPIECE, HEED__UNIGRAM, HEED__WORDLEVEL } heed__model_kind;

/* A word of the cache of byte-pair encoding. */
#define HEED__CACHED_BYTES 24
#define HEED__CACHED_IDS   8
typedef struct heed__cached {
  uint8_t size, count; /* size 0: empty */
  char text[HEED__CACHED_BYTES];
  int32_t ids[HEED__CACHED_IDS];
} heed__cached;

struct heed_tokenizer {
  heed_context *ctx;
  heed__spm *spm;        /* a SentencePiece model, which runs its own pipeline; NULL: the rest */
  heed__spm *unigram;    /* of UNIGRAM: pieces, scores and their trie alone */
  heed_archive *archive; /* the mapped file that the pieces of spm are in; NULL: none */

  heed__vocabulary vocabulary; /* with the added tokens */
  heed__added *added;
  int32_t added_count;
  size_t added_longest;   /* bytes of the longest */
  uint8_t *is_added;      /* by id: 1 added, 2 also special; NULL: none */
  char *added_text;       /* of the normalised ones, in normalised form */
  heed__trie raw, normal; /* indices of added tokens by text: before and after normalisation */
  heed__step_list normalizers, splits, decoders;

  heed__model_kind model;
  bool byte_level; /* words are bytes; tokens are written in the byte-level alphabet */
  bool ignore_merges, byte_fallback, fuse_unk;
  int32_t unknown;       /* -1: none */
  char *prefix, *suffix; /* of pieces within a word, and of the last piece; NULL: none */
  int64_t longest_word;  /* WordPiece: in characters */
  int32_t initial[256];  /* ids of the bytes; -1: none */
  struct heed__pair_merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank; /* UINT32_MAX: the slot is free */
    int32_t id;
  } * merges; /* a hash table */
  uint32_t merges_mask;
  int32_t last_merged; /* while merges are added: the token of the last one */
  uint64_t merges_key;
  heed__cached *cache;

  int64_t before[8], after[8]; /* ids of the template */
  int before_count, after_count;
  int32_t bos, eos, pad; /* as far as the file names them; -1: none */
  char *chat_template;   /* of a GGUF file, owned; NULL: none */

  uint64_t calls; /* of encode and decode: a result in memory of the tokenizer is that of the last one */
  heed__bytes ids, text, other, work, words, words_other; /* scratch, kept between calls */
};

void heed__steps_free(heed_context *ctx, heed__step_list *list);
/** A new step at the end of a list; NULL if it is full. */
heed__step *heed__step_add(heed__step_list *list, heed__step_kind kind);
/** Copies a text to an owned string with a closing 0. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__text_copy(heed_context *ctx, const char *text, size_t size, char **out);

/** Makes the tables of an empty tokenizer. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__tokenizer_new(heed_context *ctx, heed_tokenizer **out);
/** Reads tokenizer.json. (tokenizer_json.c) Errors: FILE, MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__tokenizer_read_json(heed_tokenizer *tok, const char *where, const char *path);
/** The steps of a normalizer, a pre_tokenizer and a decoder, as tokenizer.json has them. (tokenizer_steps.c)
 */
HEED_MUST_USE
heed_status heed__read_normalizer(heed_tokenizer *tok, const char *where, const heed__json_file *f,
                                  const heed__json_node *node);
HEED_MUST_USE
heed_status heed__read_splits(heed_tokenizer *tok, const char *where, const heed__json_file *f,
                              const heed__json_node *node);
HEED_MUST_USE
heed_status heed__read_decoder(heed_tokenizer *tok, const char *where, const heed__json_file *f,
                               const heed__json_node *node);

/** Reads the vocabulary and the scores of a Unigram model. (tokenizer_unigram.c) */
HEED_MUST_USE
heed_status heed__read_unigram(heed_tokenizer *tok, const char *where, const heed__json_file *f,
                               const heed__json_node *model);
/** Reads the tokenizer in the metadata of a GGUF file. (tokenizer_gguf.c) */
HEED_MUST_USE
heed_status heed__tokenizer_read_gguf(heed_tokenizer *tok, const char *where, const char *path);
typedef struct heed__bert_rules {
  bool lower, strip_accents, chinese; /* chinese: each Chinese character is a word */
} heed__bert_rules;
/** The steps, the special tokens and the template of a BERT, whose vocabulary is there. (vocab_files.c) */
HEED_MUST_USE
heed_status heed__tokenizer_set_bert(heed_tokenizer *tok, const char *where, heed__bert_rules rules);
/** Adds a splitting step of this pattern. (patterns.c) */
HEED_MUST_USE
heed_status heed__add_pattern(heed_tokenizer *tok, const char *where, heed__step_kind kind,
                              const char *pattern);
/** Adds the steps of byte-level BPE that llama.cpp names so (tokenizer.ggml.pre): false if it is unknown. */
HEED_MUST_USE
heed_status heed__add_named_splits(heed_tokenizer *tok, const char *where, const char *name, size_t size,
                                   bool *known);
/** The pattern of GPT-2. */
extern const char heed__gpt2_pattern[];

/** Completes a tokenizer whose tables are filled: the search for added tokens. Errors: MEMORY, CANCELLED,
 * LIMIT. (added.c) */
HEED_MUST_USE
heed_status heed__added_prepare(heed_tokenizer *tok);
/** The first added token at or after byte `from`: *found, its index, and the bytes that it takes with the
 * spaces that it strips (lstrip, rstrip), none before `least`. `special`: special ones count, too. Errors:
 * CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__added_find(const heed_tokenizer *tok, bool normalized, bool special, const char *text,
                             size_t size, size_t *from, size_t least, int32_t *found, heed__text_span *span);

/** Reads vocab.json with merges.txt beside it, as GPT-2 has them, and vocab.txt of BERT. (vocab_files.c) */
HEED_MUST_USE
heed_status heed__tokenizer_read_pairs(heed_tokenizer *tok, const char *where, const char *vocab,
                                       const char *merges);
HEED_MUST_USE
heed_status heed__tokenizer_read_lines(heed_tokenizer *tok, const char *where, const char *path);

/** Prepares the table of `count` merges. Errors: MEMORY. (bpe.c) */
HEED_MUST_USE
heed_status heed__merges_begin(heed_tokenizer *tok, size_t count);
/** Adds merge number `rank`, from 0, of two tokens; false if they or their union are not in the vocabulary.
 */
HEED_MUST_USE
bool heed__merges_add(heed_tokenizer *tok, uint32_t rank, const char *left, size_t left_size,
                      const char *right, size_t right_size);
/** After the vocabulary: the ids of single bytes. */
HEED_MUST_USE
heed_status heed__bpe_prepare(heed_tokenizer *tok);

/** Append the ids (int64_t) of a word. Errors: MEMORY, CANCELLED, LIMIT. (bpe.c, wordpiece.c) */
HEED_MUST_USE
heed_status heed__bpe_word(heed_tokenizer *tok, const char *function, const char *text, size_t size,
                           heed__bytes *ids);
HEED_MUST_USE
heed_status heed__wordpiece_word(heed_tokenizer *tok, const char *function, const char *text, size_t size,
                                 heed__bytes *ids);

/** Appends the text as the charsmap of a step rewrites it. (precompiled.c) */
HEED_MUST_USE
heed_status heed__rewrite_precompiled(heed_tokenizer *tok, const char *function, const heed__step *step,
                                      const heed__bytes *text, heed__bytes *out);
/** Reads a charsmap in base64 into a step. (precompiled.c) */
HEED_MUST_USE
heed_status heed__read_precompiled(heed_context *ctx, const char *where, const char *text, size_t size,
                                   heed__step *step);
/** Replaces the text, in place, by its normalised form. (text_steps.c) */
HEED_MUST_USE
heed_status heed__normalize(heed_tokenizer *tok, const char *function, heed__bytes *text);
/** Divides the text, which steps may change, into words: heed__text_span in tok->words. (splits.c) */
HEED_MUST_USE
heed_status heed__split_words(heed_tokenizer *tok, const char *function, heed__bytes *text, bool at_start);
/** Appends the decoded text of ids. (decode.c) */
HEED_MUST_USE
heed_status heed__decode(heed_tokenizer *tok, const char *function, const int64_t *ids, int64_t count,
                         bool skip_special, heed__bytes *out);

#endif
