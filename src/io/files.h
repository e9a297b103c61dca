/* Shared by the files of io: error contexts, reading and writing files, archives, formats. */
#ifndef HEED_FILES_H
#define HEED_FILES_H

#include "io.h"

/* ---- Error contexts (file.c) ---- */

/* The beginning of a message: a function and a file, or a part of one: "load: 'models/a.npz', entry
 * 'weight'".
 */
#define HEED__WHERE 320
typedef struct heed__where {
  heed_context *ctx;
  char text[HEED__WHERE];
} heed__where;

void heed__where_init(heed__where *where, heed_context *ctx, const char *function, const char *path);
/** Appends a part of the file: ", entry 'weight'", where `part` is "entry". */
void heed__where_inside(heed__where *where, const heed__where *outer, const char *part, const char *name);
/** "load: 'a.npz', entry 'weight': …". Returns FILE. */
heed_status heed__fail_file(const heed__where *where, const char *format, ...) HEED__PRINTF(2);
/** The same with the text of an errno value: "load: 'a.npz': cannot be opened: No such file or directory". */
heed_status heed__fail_system(const heed__where *where, const char *what, int error);

/** A name from a file or a caller, quoted for a message. Of a long path the end is shown, of another long
 * name the start; bytes that are not printable become \x1b. Returns out. */
#define HEED__QUOTED 136
const char *heed__quoted(char out[HEED__QUOTED], const char *name, bool path);

/* ---- Reading files (file.c) ---- */

/* Bytes that are read or written between two checks for cancellation: 0.1 ms from the page cache. */
#define HEED__IO_CHUNK ((size_t)1 << 20)

/** Opens a regular file for reading; pipes and devices are refused. Errors: FILE, LIMIT. */
HEED_MUST_USE
heed_status heed__file_open(const heed__where *where, const char *path, heed__file *out, int64_t *size);
/** Reads exactly `bytes` bytes at `offset`. Errors: FILE, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__file_read(const heed__where *where, heed__file file, int64_t offset, void *out,
                            size_t bytes);

/** Checks that the result of a loading function is NULL so far. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_load(heed_context *ctx, const void *result);
/** heed_load_archive; messages begin with `function`. (formats.c) */
HEED_MUST_USE
heed_status heed__load_archive(heed_context *ctx, const char *function, const char *path, heed_archive **out);

/* A file mapped into memory: pages are read when they are first used, changes stay in memory. Where
 * the limits do not allow mapping, a copy of the file. Counted: the archive and each tensor on it hold a
 * reference. */
typedef struct heed__file_map {
  heed__external external;
  heed_context *ctx;
  int64_t references;
  char *data;
  size_t size;
  bool copied;
} heed__file_map;
/** Errors: FILE (an empty file, too), MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__file_map_open(const heed__where *where, const char *path, heed__file_map **out);
void heed__file_map_release(heed__file_map *map); /* NULL is allowed */

/* ---- Writing files, completely or not at all (writer.c) ---- */

#define HEED__WRITER_BUFFER ((size_t)1 << 20)
#define HEED__TEMPORARIES   1000 /* temporary files of one path, numbered from 0 */
typedef struct heed__writer {
  heed__where where;
  heed__file file;
  size_t used;       /* bytes in the buffer */
  uint64_t position; /* in the file, of the buffer's first byte */
  char *buffer;
  char *pieces;                                 /* HEED__WRITER_BUFFER bytes for the pieces of tensors */
  char path[HEED__PATH], temporary[HEED__PATH]; /* the file to be replaced, and the new one beside it */
} heed__writer;

/** Creates a temporary file beside `path`, after removing those that killed saves left behind. Links are
 * followed. Errors: FILE (no such folder; path is not a file, or not writable; all temporary names are
 * taken), MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__writer_begin(heed__writer *w, heed_context *ctx, const char *path);
HEED_MUST_USE
heed_status heed__writer_put(heed__writer *w, const void *data, size_t bytes);
/** Overwrites bytes at `offset` that were put before. */
HEED_MUST_USE
heed_status heed__writer_patch(heed__writer *w, uint64_t offset, const void *data, size_t bytes);
/** The number of bytes put so far. */
uint64_t heed__writer_position(const heed__writer *w);
/** Fails if the disk has less than `bytes` free bytes. An expanded tensor may take more than any disk has:
 * better to fail before writing. */
HEED_MUST_USE
heed_status heed__writer_check_space(heed__writer *w, double bytes);
/** Writes the elements of x, row-major and little-endian. */
HEED_MUST_USE
heed_status heed__writer_put_tensor(heed__writer *w, const heed_tensor *x);
/** If status is OK, the temporary file replaces the old one, else it is removed. Returns the first error of
 * both. */
HEED_MUST_USE
heed_status heed__writer_end(heed__writer *w, heed_status status);

/* Iterates over the elements of a tensor in file order: row-major, little-endian, bools 0 or 1. */
typedef struct heed__pieces {
  const char *data; /* the current piece */
  size_t bytes;
  heed_tensor x;
  void *buffer;
  bool more, whole; /* whole: the tensor's own memory is the only piece */
  int dim;          /* the dimension that is divided; those after it are copied whole */
  int64_t step, at[HEED_MAX_DIMS];
} heed__pieces;
/** `buffer`, of `capacity` ≥ 8 bytes, aligned for any number, is used until the last piece. */
void heed__pieces_begin(heed__pieces *p, const heed_tensor *x, void *buffer, size_t capacity);
/** Advances to the next piece; false after the last. */
bool heed__pieces_next(heed__pieces *p);

/** Whether this machine stores numbers as files do. */
static inline bool heed__is_little_endian(void) {
  const uint16_t one = 1;
  return *(const unsigned char *)&one == 1;
}
/** Reverses the bytes of each of `count` numbers. */
void heed__reverse_bytes(void *data, int64_t count, size_t width);

/* ---- JSON under limits (json.c) ---- */

typedef struct heed__json_limits {
  size_t bytes;
  int64_t values; /* each takes about 80 bytes */
  int depth;      /* at most 64 */
  bool integers;  /* refuses numbers with a fraction or an exponent */
} heed__json_limits;

/* Bytes of the longest string in the text, with quotes and escapes: cJSON reads it in 26 ms. */
#define HEED__LONGEST_STRING ((size_t)16 << 20)

/** Parses a text strictly: UTF-8 without NUL. cJSON's memory comes from malloc, not from the context. Errors:
 * FILE (with the byte from 1), MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__json_parse(const heed__where *where, const char *text, size_t length,
                             const heed__json_limits *limits, heed__json_tree **out);

/* ---- Dtypes of files (convert.c) ---- */

typedef enum heed__conversion {
  HEED__AS_IS,
  HEED__FROM_FLAG, /* a bool: any byte but 0 is true */
  HEED__FROM_DOUBLE,
  HEED__FROM_SIGNED,
  HEED__FROM_UNSIGNED,
  HEED__REFUSED
} heed__conversion;

/* The names of dtypes differ between formats. */
typedef enum heed__naming {
  HEED__IN_SAFETENSORS,
  HEED__IN_NPY,     /* without the byte order */
  HEED__IN_TORCH,   /* float32 */
  HEED__IN_STORAGE, /* the class of a storage: FloatStorage */
  HEED__IN_GGUF,    /* ggml's, in capitals */
  HEED__NAMINGS
} heed__naming;

typedef struct heed__stored {
  const char *names[HEED__NAMINGS]; /* NULL: the format lacks it */
  int bits;                         /* of an element in the file */
  heed_dtype dtype;                 /* that it is loaded as */
  heed__conversion conversion;
} heed__stored;

/** NULL: there is none of that name. */
const heed__stored *heed__stored_named(heed__naming naming, const char *name);
/** The name of a dtype of heed; NULL: the format lacks it. */
const char *heed__stored_name(heed__naming naming, heed_dtype dtype);
/** Converts n elements that lie `step` bytes apart, aligned or not. Returns false if a number does not fit.
 */
bool heed__stored_convert(const heed__stored *f, bool reversed, const char *p, int64_t step, int64_t n,
                          void *out);

/* ---- Archives (archive.c) ---- */

/* A pair of a GGUF file's metadata. */
typedef struct heed__gguf_entry {
  const char *key;
  heed_gguf_value value;
} heed__gguf_entry;

/* The part of a mapped file that an entry's tensors have as their elements. */
typedef struct heed__mapped_part {
  heed__file_map *map; /* one reference */
  char *data;
  size_t bytes;
  bool apart;
  int64_t references, tensors; /* of the entry and the tensors; of the tensors alone */
} heed__mapped_part;
/** NULL is allowed. (convert.c) */
void heed__mapped_part_release(heed__mapped_part *part);

/* A loaded tensor, elements in a mapped file, of which heed__entry_open makes a tensor, or a reason why there
 * is none. */
typedef struct heed__entry {
  const char *name;
  heed_tensor *tensor; /* owned; NULL: the fields below */
  char *refusal;       /* owned: the message for whoever uses the entry; NULL: the fields below */
  char *unknown;       /* owned: the name of a dtype whose size is not known; NULL: the fields below */
  const heed__stored *stored;
  bool reversed; /* the other byte order */
  int ndim;
  int64_t shape[HEED_MAX_DIMS];
  const int64_t *stride; /* in elements; NULL: contiguous */
  heed__file_map *map;   /* one reference */
  char *data;
  bool apart;                /* no other entry has these bytes */
  heed__mapped_part *opened; /* one reference; NULL: no tensor was made of it yet */
} heed__entry;

typedef struct heed__name {
  const char *name;
  int64_t index;
} heed__name;

struct heed_archive {
  heed_context *ctx;
  char where[HEED__WHERE]; /* for messages about entries */
  int64_t count, pairs;
  heed__entry *entries;
  heed__name *sorted;    /* the entries by name */
  const char **metadata; /* keys and values in turn */
  char *text;            /* holds all names and metadata */
  size_t text_used;
  int64_t *strides; /* of the entries that have some; NULL: none */
  bool nested;      /* dots in names separate the keys of nested dicts */
  /* of GGUF files alone: */
  int64_t value_count;
  heed__gguf_entry *values;
  heed__name *sorted_values; /* by key */
  heed__file_map *map;       /* that holds the values; one reference */
};

/** An archive of `count` empty entries, with a capacity of `pairs` pairs of metadata and `text` bytes for all
 * texts with their closing zeros. Errors: MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__archive_new(const heed__where *where, int64_t count, int64_t pairs, size_t text,
                              heed_archive **out);
/** Copies a text into the archive. */
const char *heed__archive_text(heed_archive *archive, const char *text);
/** The same for bytes without a closing zero. */
const char *heed__archive_bytes(heed_archive *archive, const char *text, size_t length);
/** Sorts the names after all entries have theirs. Errors: FILE (a duplicate name), MEMORY, LIMIT, CANCELLED.
 */
HEED_MUST_USE
heed_status heed__archive_sort(heed_archive *archive, const heed__where *where);
/** The entry of that name, or NULL. */
const heed__entry *heed__archive_find(const heed_archive *archive, const char *name);

/** Whether an entry is used where it lies in the mapped file, without a copy. (convert.c) */
bool heed__entry_is_mapped(const heed__entry *entry);
/** A new tensor of an entry. Errors: DTYPE (heed lacks the entry's), FILE (a number does not fit), MEMORY,
 * LIMIT, CANCELLED. (convert.c) */
HEED_MUST_USE
heed_status heed__entry_open(const heed_archive *archive, heed__entry *entry, heed_tensor **out);
/** The name of an entry's dtype if heed lacks that, and in *fix what to do about it, or ""; else NULL.
 * (convert.c) */
const char *heed__entry_lacks(const heed__entry *entry, const char **fix);
/** "a tensor of shape [2] and dtype float64 in the file". (convert.c) */
void heed__entry_text(const heed__entry *entry, char *out, size_t capacity);

/** Sorts `count` names; *duplicate is one that occurs twice, or NULL. Errors: MEMORY, LIMIT, CANCELLED. */
HEED_MUST_USE
heed_status heed__sort_names(heed_context *ctx, const char *function, heed__name *names, int64_t count,
                             const char **duplicate);

/* ---- Formats (formats.c) ---- */

/* The contents to save: tensors by name, or one tensor alone, whose format does not read the names. */
typedef struct heed__contents {
  int64_t count;
  const char *const *names;
  const heed_tensor *const *tensors;
  int64_t pairs;
  const char *const *metadata; /* keys and texts in turn */
  const char *const *keys;     /* of `values`, the metadata instead, if it is not NULL */
  const heed_gguf_value *values;
} heed__contents;

/* The loaded contents: one of both. */
typedef struct heed__loaded {
  heed_archive *archive;
  heed_tensor *tensor;
} heed__loaded;

#define HEED__MAGIC 16 /* the first bytes of a file that are read to recognise its format */

/* A file format. Each is described at the end of its own file and listed in formats.c. */
typedef struct heed__format {
  const char *ending; /* of paths: ".npz" */
  bool alone;         /* holds one tensor without a name; else tensors by name */
  bool metadata;      /* can hold metadata */
  bool blocks;        /* can hold tensors of blocked dtypes */
  struct {
    size_t offset, length;
    const char *bytes;
  } magic[2]; /* files of the format have one of these; {0}: none */
  heed_status (*load)(const heed__where *where, const char *path, heed__loaded *out);
  heed_status (*save)(heed__writer *w, const heed__contents *contents); /* NULL: the format is only read */
} heed__format;

/* ---- For other formats: safetensors.c, npy.c, npz.c ---- */

HEED_MUST_USE
heed_status heed__safetensors_load(const heed__where *where, const char *path, heed_archive **out);

/** Loads what torch.save wrote. (torch.c) */
HEED_MUST_USE
heed_status heed__torch_load(const heed__where *where, const char *path, heed__loaded *out);

/* A source of .npy text: a file, or an entry of a zip archive. fill reads exactly `bytes` bytes. */
typedef struct heed__npy_source {
  const heed__where *where;
  int64_t left; /* bytes not yet read */
  bool refused; /* heed__npy_read failed, because heed lacks the dtype */
  heed_status (*fill)(struct heed__npy_source *source, void *out, size_t bytes);
} heed__npy_source;

#define HEED__NPY_HEADER 512 /* bytes of the longest header that is written */
HEED_MUST_USE
heed_status heed__npy_read(heed_context *ctx, heed__npy_source *source, heed_tensor **out);
/** Errors: DTYPE (bfloat16, which numpy lacks). */
HEED_MUST_USE
heed_status heed__npy_header(heed_context *ctx, const heed_tensor *x, char out[HEED__NPY_HEADER],
                             size_t *bytes);

/* The smallest sizes, offsets and numbers of entries that need zip64; tests use lower ones. */
typedef struct heed__zip_limits {
  uint64_t bytes, entries;
} heed__zip_limits;
#define HEED__ZIP_LIMITS ((heed__zip_limits){.bytes = UINT32_MAX, .entries = UINT16_MAX})
HEED_MUST_USE
heed_status heed__npz_save(heed__writer *w, const heed__contents *contents, heed__zip_limits limits);

#endif
