/* What the files of io share: places in messages, reading, writing, archives. */
#ifndef HEED_FILES_H
#define HEED_FILES_H

#include "io.h"

/* ---- Where something is wrong (file.c) ---- */

/* A file, or a part of one, as messages name it: "load: 'models/a.npz', entry 'weight'". */
#define HEED__PLACE 320
typedef struct heed__place {
  heed_context *ctx;
  char text[HEED__PLACE];
} heed__place;

void heed__place_init(heed__place *place, heed_context *ctx, const char *function, const char *path);
/** The same with ", entry 'weight'" behind it. */
void heed__place_inside(heed__place *place, const heed__place *outer, const char *what, const char *name);
/** "load: 'a.npz', entry 'weight': …". Returns FILE. */
heed_status heed__broken(const heed__place *place, const char *format, ...) HEED__PRINTF(2);
/** The same for what the system answered: "load: 'a.npz': cannot be opened: No such file or directory". */
heed_status heed__broken_by(const heed__place *place, const char *what, int error);

/** A name from a file or a caller, in quotes, for a message: its end if it is a long `path`, else its start,
 * and what is not printable as \x1b. Returns out. */
#define HEED__QUOTED 136
const char *heed__quoted(char out[HEED__QUOTED], const char *name, bool path);

/* Bytes that are read or written between two checks for cancellation: a tenth of a millisecond from the
 * system's memory. */
#define HEED__AT_ONCE ((size_t)1 << 20)

/* ---- Reading files (file.c) ---- */

/** Opens a regular file for reading, and nothing else: no pipe that would wait, no device. Errors: FILE. */
HEED_MUST_USE
heed_status heed__file_open(const heed__place *place, const char *path, heed__file *out, int64_t *size);
/** Exactly `bytes` bytes from `offset` on. Errors: FILE, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__file_read(const heed__place *place, heed__file file, int64_t offset, void *out,
                            size_t bytes);

/* A whole file in memory, not read before it is looked at; what is written there stays in memory. Counted:
 * the archive and each tensor on it hold it. */
typedef struct heed__file_map {
  heed__outside outside;
  heed_context *ctx;
  int64_t references;
  char *data;
  size_t size;
} heed__file_map;
/** Errors: FILE (empty files too), MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__file_map_open(const heed__place *place, const char *path, heed__file_map **out);
void heed__file_map_release(heed__file_map *map); /* NULL is allowed */

/* ---- Writing files, whole or not at all (writer.c) ---- */

#define HEED__WRITER_ROOM ((size_t)1 << 20)
#define HEED__TEMPORARIES 1000 /* temporary files of one path, numbered from 0 */
typedef struct heed__writer {
  heed__place place;
  heed__file file;
  size_t used; /* of the buffer */
  uint64_t at; /* where the buffer goes */
  char *buffer;
  char *pieces;                                 /* HEED__WRITER_ROOM bytes for the pieces of tensors */
  char path[HEED__PATH], temporary[HEED__PATH]; /* what is replaced in the end, and the file beside it */
} heed__writer;

/** Starts a file beside `path`, after removing those that killed saves of it left behind. Where path is a
 * link, what it points to is meant. Errors: FILE (there is no such folder; path is something else than a
 * file, or may not be written; all temporary names are taken), MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__writer_begin(heed__writer *w, heed_context *ctx, const char *path);
HEED_MUST_USE
heed_status heed__writer_put(heed__writer *w, const void *data, size_t bytes);
/** Writes over bytes that were put before, from `offset` on. */
HEED_MUST_USE
heed_status heed__writer_patch(heed__writer *w, uint64_t offset, const void *data, size_t bytes);
/** How many bytes were put. */
uint64_t heed__writer_at(const heed__writer *w);
/** What is going to be put may be larger than any disk, as an expanded tensor is: better told at once than
 * when the disk is full. */
HEED_MUST_USE
heed_status heed__writer_check_room(heed__writer *w, double bytes);
/** The elements of x, row-major and little-endian. */
HEED_MUST_USE
heed_status heed__writer_put_tensor(heed__writer *w, const heed_tensor *x);
/** If status is OK, the file takes its place, else it goes; returns the status of both. */
HEED_MUST_USE
heed_status heed__writer_end(heed__writer *w, heed_status status);

/* The elements of a tensor as they stand in a file: row-major, little-endian, bools 0 or 1; a piece after
 * another. */
typedef struct heed__pieces {
  const char *data; /* the piece at hand */
  size_t bytes;
  heed_tensor x;
  void *buffer;
  bool more, whole; /* whole: one piece, where the tensor has it */
  int dim;          /* the dimension that is divided; those behind it are not */
  int64_t step, at[HEED_MAX_DIMS];
} heed__pieces;
/** The buffer, of `room` ≥ 8 bytes, aligned for any number, may be written to until the last piece is used.
 */
void heed__pieces_begin(heed__pieces *p, const heed_tensor *x, void *buffer, size_t room);
/** The next piece; false after the last. */
bool heed__pieces_next(heed__pieces *p);

/** Whether numbers lie in memory as they do in files. */
static inline bool heed__is_little_endian(void) {
  const uint16_t one = 1;
  return *(const unsigned char *)&one == 1;
}
/** Turns the bytes of each number round. */
void heed__reverse_bytes(void *data, int64_t count, size_t width);

/* ---- JSON under limits (json.c) ---- */

typedef struct heed__json_limits {
  size_t bytes;
  int64_t values; /* each takes some 80 bytes */
  int depth;      /* at most 64 */
  bool integers;  /* numbers with a fraction or an exponent are refused */
} heed__json_limits;

/* Bytes that the longest string takes in the text, with quotes and escapes: cJSON reads them in 26 ms. */
#define HEED__LONGEST_STRING ((size_t)16 << 20)

/** Reads a text strictly: only UTF-8, no character 0 in strings. What cJSON makes of it is not in the
 * context's memory but in malloc's. Errors: FILE (with the byte from 1), MEMORY. */
HEED_MUST_USE
heed_status heed__json_parse(const heed__place *place, const char *text, size_t length,
                             const heed__json_limits *limits, heed__json_tree **out);
/* ---- Archives (archive.c) ---- */

/* Elements as they lie in a mapped file, or a tensor. */
typedef struct heed__entry {
  const char *name;
  int format; /* of safetensors.c's table */
  int ndim;
  int64_t shape[HEED_MAX_DIMS];
  heed__file_map *map; /* held */
  char *data;
  heed_tensor *tensor; /* owned; NULL: the elements are at data */
} heed__entry;

typedef struct heed__name {
  const char *name;
  int64_t index;
} heed__name;

struct heed_archive {
  heed_context *ctx;
  int64_t count, pairs;
  heed__entry *entries;
  heed__name *sorted;    /* the entries by name */
  const char **metadata; /* keys and values in turn */
  char *text;            /* where all names and metadata lie */
  size_t text_used;
};

/** An archive with room for `count` entries, `pairs` of metadata, and their texts of `text` bytes with the
 * closing zeros; all entries empty. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__archive_new(heed_context *ctx, int64_t count, int64_t pairs, size_t text,
                              heed_archive **out);
/** A copy of the text in the archive. */
const char *heed__archive_text(heed_archive *archive, const char *text);
/** Sorts the names, when all are there. Errors: FILE (a name that is there twice). */
HEED_MUST_USE
heed_status heed__archive_sort(heed_archive *archive, const heed__place *place);
/** The entry of that name; NULL if there is none. */
const heed__entry *heed__archive_find(const heed_archive *archive, const char *name);

/** Sorts names[0…count-1], filled by the caller; *twice is one that is there twice, or NULL. Errors: MEMORY,
 * LIMIT, CANCELLED. */
HEED_MUST_USE
heed_status heed__sort_names(heed_context *ctx, const char *function, heed__name *names, int64_t count,
                             const char **twice);
/** Sorts `count` records of `size` bytes, equal ones as they come, in time n log n. Errors: as above.
 * (sort.c) */
HEED_MUST_USE
heed_status heed__sort_records(heed_context *ctx, const char *function, void *records, int64_t count,
                               size_t size, int (*compare)(const void *a, const void *b));

/** What is given to a function that loads: a path, and a place for the result, in which there is none yet.
 * Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_load(heed_context *ctx, bool out_is_free);

/* ---- The formats: each reads and writes its own ---- */

/* What heed_save_archive was given, checked. */
typedef struct heed__contents {
  int64_t count;
  const char *const *names;
  const heed_tensor *const *tensors;
  int64_t pairs;
  const char *const *metadata;
} heed__contents;

/* safetensors.c */
HEED_MUST_USE
heed_status heed__safetensors_load(const heed__place *place, const char *path, heed_archive **out);
HEED_MUST_USE
heed_status heed__safetensors_save(heed__writer *w, const heed__contents *contents);
/** The tensor of an entry in a mapped file. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__safetensors_tensor(heed_context *ctx, const heed__entry *entry, heed_tensor **out);
/* sharded.c */
HEED_MUST_USE
heed_status heed__sharded_load(const heed__place *place, const char *path, heed_archive **out);

/* Where an .npy text comes from: a file, or an entry of an archive. fill gives exactly `bytes` bytes. */
typedef struct heed__npy_source {
  const heed__place *place;
  int64_t left; /* bytes that are still to come */
  heed_status (*fill)(struct heed__npy_source *source, void *out, size_t bytes);
} heed__npy_source;

/* npy.c */
#define HEED__NPY_HEADER 512 /* bytes that the longest header of a tensor takes */
HEED_MUST_USE
heed_status heed__npy_read(heed_context *ctx, heed__npy_source *source, heed_tensor **out);
/** Errors: DTYPE (bfloat16, which numpy has not). */
HEED_MUST_USE
heed_status heed__npy_header(heed_context *ctx, const heed_tensor *x, char out[HEED__NPY_HEADER],
                             size_t *bytes);
/* npz.c */

/* The least sizes, offsets and counts of entries that zip64 is needed for; tests have lower ones. */
typedef struct heed__zip_limits {
  uint64_t bytes, entries;
} heed__zip_limits;
#define HEED__ZIP_LIMITS ((heed__zip_limits){.bytes = UINT32_MAX, .entries = UINT16_MAX})
HEED_MUST_USE
heed_status heed__npz_load(const heed__place *place, const char *path, heed_archive **out);
HEED_MUST_USE
heed_status heed__npz_save(heed__writer *w, const heed__contents *contents, heed__zip_limits limits);

#endif
