/* Zip archives for .npz: stored and deflated entries, one file, zip64. zlib inflates and computes checksums.
 * Source: PKWARE, "APPNOTE.TXT - .ZIP File Format Specification", 6.3.10. */
#ifndef HEED_ZIP_H
#define HEED_ZIP_H

#include "files.h"

#define HEED__ZIP_MAX_TEXT ((size_t)65535) /* bytes of a name, an extra field or a comment */

/* ---- The parts of an archive ---- */

/* For each entry a local header, its bytes and an optional descriptor with its sizes; the directory, with a
 * record for each entry; the end record and a comment. Numbers of the end record that are too large for its
 * fields are in a second end record (zip64), which precedes it together with a locator; those of an entry are
 * in its "extra" field. All numbers are little-endian. */
#define HEED__ZIP_LOCAL     "PK\3\4"
#define HEED__ZIP_RECORD    "PK\1\2"
#define HEED__ZIP_END       "PK\5\6"
#define HEED__ZIP_END_64    "PK\6\6"
#define HEED__ZIP_LOCATOR   "PK\6\7"
#define HEED__ZIP_SIGNATURE 4 /* bytes of each of these */

/* Bytes of each, without names, extra fields and comments. */
#define HEED__ZIP_LOCAL_BYTES   30
#define HEED__ZIP_RECORD_BYTES  46
#define HEED__ZIP_END_BYTES     22
#define HEED__ZIP_END_64_BYTES  56
#define HEED__ZIP_LOCATOR_BYTES 20

#define HEED__ZIP_EXTRA_64 1u /* kind of the extra field with 64-bit numbers */
#define HEED__ZIP_ELSEWHERE                                                                                  \
  0xffffffffu                      /* placeholder for a 64-bit number in an extra field or second record */
#define HEED__ZIP_MANY     0xffffu /* the same for the number of entries */
#define HEED__ZIP_IS_UTF8  0x800u  /* flag of names */
#define HEED__ZIP_STORED   0u      /* methods */
#define HEED__ZIP_DEFLATED 8u

#if HEED_ZIP
#include <zlib.h>

/* ---- Reading (zip_read.c) ---- */

typedef struct heed__zip_entry {
  const char *name; /* in the directory, without a closing zero */
  size_t name_length;
  uint64_t at, end;      /* offsets of its local header and of the next part: its bytes end before that */
  uint64_t packed, size; /* bytes in the archive, and inflated */
  uint32_t crc;
  unsigned method;
  bool encrypted;
} heed__zip_entry;

typedef struct heed__zip {
  const heed__where *where;
  heed__file file;
  uint64_t size, directory_at;
  int64_t count;
  heed__zip_entry *entries; /* in the order of the directory */
  unsigned char *directory;
} heed__zip;

/** Opens an archive and reads its directory. Allocations are bounded by the size of the file. Errors: FILE,
 * MEMORY; here and below also CANCELLED and LIMIT. */
HEED_MUST_USE
heed_status heed__zip_open(const heed__where *where, const char *path, heed__zip *out);
void heed__zip_close(heed__zip *zip);

/* Reads an entry from beginning to end. */
typedef struct heed__zip_stream {
  const heed__where *where; /* names the entry */
  const heed__zip_entry *entry;
  heed__file file;
  uint64_t at, left; /* the next offset in the file, and the bytes of the entry from there */
  uint32_t crc;      /* of the bytes read so far */
  bool ended;        /* the deflated data have ended */
  z_stream inflating;
  unsigned char input[16384];
} heed__zip_stream;

/** Errors: FILE (the entry's record is inconsistent, or the method is unknown), MEMORY. */
HEED_MUST_USE
heed_status heed__zip_begin(heed__zip_stream *s, const heed__zip *zip, const heed__zip_entry *entry,
                            const heed__where *where);
/** Reads the next `bytes` bytes. Errors: FILE (fewer are left, or they are invalid), MEMORY. */
HEED_MUST_USE
heed_status heed__zip_read(heed__zip_stream *s, void *out, size_t bytes);
/** Ends reading after the last byte or an error. If status is OK, checks that nothing follows and the
 * checksum is right. Returns the first error of both. */
HEED_MUST_USE
heed_status heed__zip_end(heed__zip_stream *s, heed_status status);

/** Whether the archive is one of torch.save. (torch.c) */
bool heed__torch_is_in(const heed__zip *zip);

/* ---- Writing (zip_write.c) ---- */

typedef struct heed__zip_written {
  uint64_t at, size;
  uint32_t crc;
} heed__zip_written;

/* Writes an archive of stored entries, one after the other. */
typedef struct heed__zip_writer {
  heed__writer *writer;
  const heed__contents *contents; /* has the entries' names, */
  const char *ending;             /* to which this is appended */
  heed__zip_limits limits;
  int64_t count;              /* finished entries */
  heed__zip_written *entries; /* the caller's, for all entries */
} heed__zip_writer;

/** Writes the next entry's header; `size` bytes must follow. */
HEED_MUST_USE
heed_status heed__zip_put_header(heed__zip_writer *z, uint64_t size);
HEED_MUST_USE
heed_status heed__zip_put(heed__zip_writer *z, const void *data, size_t bytes);
/** After the last byte of an entry. */
HEED_MUST_USE
heed_status heed__zip_finish_entry(heed__zip_writer *z);
/** After the last entry: writes the directory and the end record. */
HEED_MUST_USE
heed_status heed__zip_put_directory(heed__zip_writer *z);

#endif
#endif
