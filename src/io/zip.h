/* Zip archives, as far as .npz needs them: entries that are stored or deflated, in one file, with zip64.
 * Source: PKWARE, "APPNOTE.TXT - .ZIP File Format Specification", 6.3.10. zlib inflates and computes check
 * sums. */
#ifndef HEED_ZIP_H
#define HEED_ZIP_H

#include "files.h"

/* Names, extra fields and comments: their lengths have 16 bits. */
#define HEED__ZIP_MAX_TEXT ((size_t)65535)

/* ---- What an archive consists of ---- */

/* Each entry's local header and bytes, and perhaps a descriptor with its sizes; the directory with a record
 * of each entry; the end record, and a comment. Where a number of the end record has not enough bits, a
 * second end record (zip64) and its locator stand before it; where one of an entry has not, a field of the
 * entry's "extra". All numbers are little-endian. */
#define HEED__ZIP_LOCAL     "PK\3\4"
#define HEED__ZIP_RECORD    "PK\1\2"
#define HEED__ZIP_END       "PK\5\6"
#define HEED__ZIP_END_64    "PK\6\6"
#define HEED__ZIP_LOCATOR   "PK\6\7"
#define HEED__ZIP_SIGNATURE 4 /* bytes of each of these */

/* Bytes of each without its texts. */
#define HEED__ZIP_LOCAL_BYTES   30
#define HEED__ZIP_RECORD_BYTES  46
#define HEED__ZIP_END_BYTES     22
#define HEED__ZIP_END_64_BYTES  56
#define HEED__ZIP_LOCATOR_BYTES 20

#define HEED__ZIP_EXTRA_64  1u          /* the field of an extra that has the numbers of 64 bits */
#define HEED__ZIP_ELSEWHERE 0xffffffffu /* a number that is there */
#define HEED__ZIP_MANY      0xffffu     /* the count of entries that is in the second end record */
#define HEED__ZIP_IS_UTF8   0x800u      /* a flag: the name is */
#define HEED__ZIP_STORED    0u          /* methods */
#define HEED__ZIP_DEFLATED  8u

#if HEED_ZIP
#include <zlib.h>

/* ---- Reading (zip_read.c) ---- */

typedef struct heed__zip_entry {
  const char *name; /* in the directory, without a closing zero */
  size_t name_length;
  uint64_t at, end;      /* of its local header, and where something else begins: its bytes end before that */
  uint64_t packed, size; /* bytes in the archive, and what they become */
  uint32_t crc;
  unsigned method;
  bool encrypted;
} heed__zip_entry;

typedef struct heed__zip {
  const heed__place *place;
  heed__file file;
  uint64_t size, directory_at;
  int64_t count;
  heed__zip_entry *entries; /* in the order of the directory */
  unsigned char *directory;
} heed__zip;

/** Opens an archive and reads its directory. Nothing is allocated that the file has not the bytes for.
 * Errors: FILE, MEMORY; here and below CANCELLED and LIMIT, too. */
HEED_MUST_USE
heed_status heed__zip_open(const heed__place *place, const char *path, heed__zip *out);
void heed__zip_close(heed__zip *zip);

/* An entry that is read from its beginning to its end. */
typedef struct heed__zip_stream {
  const heed__place *place; /* of the entry */
  const heed__zip_entry *entry;
  heed__file file;
  uint64_t at, left; /* in the file: of what comes next, and how much */
  uint32_t crc;      /* of what was given so far */
  bool ended;        /* all was inflated */
  z_stream inflating;
  unsigned char input[16384];
} heed__zip_stream;

/** Errors: FILE (what the archive says of the entry cannot be, or is not what heed reads), MEMORY. */
HEED_MUST_USE
heed_status heed__zip_begin(heed__zip_stream *s, const heed__zip *zip, const heed__zip_entry *entry,
                            const heed__place *place);
/** The next `bytes` bytes. Errors: FILE (there are not as many, or they are broken), MEMORY. */
HEED_MUST_USE
heed_status heed__zip_read(heed__zip_stream *s, void *out, size_t bytes);
/** After the last byte, or where a status says that reading failed: gives back what was begun. If status is
 * OK nothing more may follow, and the check sum must be right. Returns the status of both. */
HEED_MUST_USE
heed_status heed__zip_end(heed__zip_stream *s, heed_status status);

/* ---- Writing (zip_write.c) ---- */

typedef struct heed__zip_written {
  uint64_t at, size;
  uint32_t crc;
} heed__zip_written;

/* An archive that is written, its entries stored, one after the other. */
typedef struct heed__zip_writer {
  heed__writer *writer;
  const heed__contents *contents; /* whose names the entries have, */
  const char *ending;             /* with this behind each */
  heed__zip_limits limits;
  int64_t count;              /* of what is written */
  heed__zip_written *entries; /* room for all, the caller's */
} heed__zip_writer;

/** The next entry's header; `size` bytes are to follow. */
HEED_MUST_USE
heed_status heed__zip_put_header(heed__zip_writer *z, uint64_t size);
HEED_MUST_USE
heed_status heed__zip_put(heed__zip_writer *z, const void *data, size_t bytes);
/** When all of an entry's bytes are put. */
HEED_MUST_USE
heed_status heed__zip_finish_entry(heed__zip_writer *z);
/** When all entries are finished: the directory and the end. */
HEED_MUST_USE
heed_status heed__zip_put_directory(heed__zip_writer *z);

#endif
#endif
