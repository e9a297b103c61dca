/* Writing zip archives of stored entries. The same entries give the same bytes: all have the same date. */
#include "zip.h"

#if HEED_ZIP

#include <string.h>

#define VERSION    20u /* of zip, required to read an entry */
#define VERSION_64 45u
#define UNIX       (3u << 8)        /* the system that RIGHTS are of */
#define RIGHTS     (0100644u << 16) /* a file readable by all */
#define FIRST_DAY  (1u << 5 | 1u)   /* 1980-01-01, zip's earliest date; numpy uses it, too */

#define CRC_OFFSET 14 /* in a local header */

#define CHECKED_CHUNK (HEED__IO_CHUNK / 4) /* bytes between two cancellation checks */

/* ---- Records ---- */

/* A record being composed. The longest is one of the directory with three 64-bit numbers. */
typedef struct zip_record {
  size_t used;
  unsigned char bytes[80];
} zip_record;

static void add_number(zip_record *r, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) r->bytes[r->used++] = (unsigned char)(value >> (8 * i) & 0xff);
}

static zip_record begin_record(const char *signature) {
  zip_record r = {.used = HEED__ZIP_SIGNATURE};
  memcpy(r.bytes, signature, HEED__ZIP_SIGNATURE);
  return r;
}

static heed_status put_record(heed__zip_writer *z, const zip_record *r) {
  return heed__writer_put(z->writer, r->bytes, r->used);
}

/* Whether a size or an offset is written with 64 bits. */
static bool is_large(const heed__zip_writer *z, uint64_t number) {
  return number >= z->limits.bytes;
}

static uint64_t small_or_elsewhere(const heed__zip_writer *z, uint64_t number) {
  return is_large(z, number) ? HEED__ZIP_ELSEWHERE : number;
}

/* The fields that a local header and a record of the directory share, up to the length of the extra field. */
static void add_common(const heed__zip_writer *z, zip_record *r, const heed__zip_written *e, bool large,
                       size_t name_length, size_t extra) {
  const uint64_t size = small_or_elsewhere(z, e->size);
  add_number(r, large ? VERSION_64 : VERSION, 2);
  add_number(r, HEED__ZIP_IS_UTF8, 2);
  add_number(r, HEED__ZIP_STORED, 2);
  add_number(r, 0, 2); /* midnight */
  add_number(r, FIRST_DAY, 2);
  add_number(r, e->crc, 4);
  add_number(r, size, 4); /* packed */
  add_number(r, size, 4); /* unpacked */
  add_number(r, name_length, 2);
  add_number(r, extra, 2);
}

static heed_status put_name(heed__zip_writer *z, const char *name) {
  const heed_status status = heed__writer_put(z->writer, name, strlen(name));
  return status == HEED_OK ? heed__writer_put(z->writer, z->ending, strlen(z->ending)) : status;
}

/* ---- Entries ---- */

heed_status heed__zip_put_header(heed__zip_writer *z, uint64_t size) {
  const char *name = z->contents->names[z->count];
  heed__zip_written *e = &z->entries[z->count];
  const bool large = is_large(z, size);
  zip_record header = begin_record(HEED__ZIP_LOCAL), extra = {0};
  *e = (heed__zip_written){.at = heed__writer_position(z->writer), .size = size};
  if (large) {
    add_number(&extra, HEED__ZIP_EXTRA_64, 2);
    add_number(&extra, 16, 2);
    add_number(&extra, size, 8);
    add_number(&extra, size, 8);
  }
  add_common(z, &header, e, large, strlen(name) + strlen(z->ending), extra.used);
  heed_status status = put_record(z, &header);
  if (status == HEED_OK) status = put_name(z, name);
  return status == HEED_OK ? put_record(z, &extra) : status;
}

heed_status heed__zip_put(heed__zip_writer *z, const void *data, size_t bytes) {
  heed_context *ctx = z->writer->where.ctx;
  heed__zip_written *e = &z->entries[z->count];
  const char *p = data;
  heed_status status = HEED_OK;
  while (bytes > 0 && status == HEED_OK) {
    const size_t n = bytes < CHECKED_CHUNK ? bytes : CHECKED_CHUNK;
    if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, "save");
    if (status != HEED_OK) break;
    e->crc = (uint32_t)crc32(e->crc, (const Bytef *)p, (uInt)n);
    status = heed__writer_put(z->writer, p, n);
    p += n;
    bytes -= n;
  }
  return status;
}

heed_status heed__zip_finish_entry(heed__zip_writer *z) {
  const heed__zip_written *e = &z->entries[z->count++];
  zip_record crc = {0};
  add_number(&crc, e->crc, 4);
  return heed__writer_patch(z->writer, e->at + CRC_OFFSET, crc.bytes, crc.used);
}

/* ---- The directory ---- */

static heed_status put_directory_record(heed__zip_writer *z, int64_t i) {
  const char *name = z->contents->names[i];
  const heed__zip_written *e = &z->entries[i];
  const bool large = is_large(z, e->size), far = is_large(z, e->at);
  const size_t numbers = (large ? 16u : 0) + (far ? 8u : 0);
  zip_record r = begin_record(HEED__ZIP_RECORD), extra = {0};
  if (numbers > 0) {
    add_number(&extra, HEED__ZIP_EXTRA_64, 2);
    add_number(&extra, numbers, 2);
  }
  for (int twice = 0; large && twice < 2; twice++) add_number(&extra, e->size, 8);
  if (far) add_number(&extra, e->at, 8);
  add_number(&r, UNIX | (numbers > 0 ? VERSION_64 : VERSION), 2);
  add_common(z, &r, e, numbers > 0, strlen(name) + strlen(z->ending), extra.used);
  add_number(&r, 0, 2); /* comment */
  add_number(&r, 0, 2); /* disk */
  add_number(&r, 0, 2); /* attributes of the content: not text */
  add_number(&r, RIGHTS, 4);
  add_number(&r, small_or_elsewhere(z, e->at), 4);
  heed_status status = put_record(z, &r);
  if (status == HEED_OK) status = put_name(z, name);
  return status == HEED_OK ? put_record(z, &extra) : status;
}

/* Zip64's end record and its locator. */
static heed_status put_end_64(heed__zip_writer *z, uint64_t directory_at) {
  const uint64_t at = heed__writer_position(z->writer);
  zip_record end = begin_record(HEED__ZIP_END_64), locator = begin_record(HEED__ZIP_LOCATOR);
  add_number(&end, HEED__ZIP_END_64_BYTES - 12, 8); /* excludes the signature and the length itself */
  add_number(&end, UNIX | VERSION_64, 2);
  add_number(&end, VERSION_64, 2);
  add_number(&end, 0, 4); /* disk */
  add_number(&end, 0, 4); /* disk of the directory */
  add_number(&end, (uint64_t)z->count, 8);
  add_number(&end, (uint64_t)z->count, 8);
  add_number(&end, at - directory_at, 8);
  add_number(&end, directory_at, 8);
  add_number(&locator, 0, 4);
  add_number(&locator, at, 8);
  add_number(&locator, 1, 4); /* disks */
  const heed_status status = put_record(z, &end);
  return status == HEED_OK ? put_record(z, &locator) : status;
}

heed_status heed__zip_put_directory(heed__zip_writer *z) {
  const uint64_t at = heed__writer_position(z->writer), count = (uint64_t)z->count;
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < z->count && status == HEED_OK; i++) status = put_directory_record(z, i);
  const uint64_t bytes = heed__writer_position(z->writer) - at;
  const bool many = count >= z->limits.entries;
  if (status == HEED_OK && (many || is_large(z, bytes) || is_large(z, at))) status = put_end_64(z, at);
  if (status != HEED_OK) return status;
  zip_record end = begin_record(HEED__ZIP_END);
  add_number(&end, 0, 2); /* disk */
  add_number(&end, 0, 2); /* disk of the directory */
  add_number(&end, many ? HEED__ZIP_MANY : count, 2);
  add_number(&end, many ? HEED__ZIP_MANY : count, 2);
  add_number(&end, small_or_elsewhere(z, bytes), 4);
  add_number(&end, small_or_elsewhere(z, at), 4);
  add_number(&end, 0, 2); /* comment */
  return put_record(z, &end);
}

#endif
