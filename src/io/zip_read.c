/* Reading zip archives: the end, the directory, and entries, stored or deflated. */
#include "zip.h"

#if HEED_ZIP

#include <string.h>

#define MOST_INFLATED 1032u /* bytes that one deflated byte can become */

#define ZIP_CHUNK ((size_t)1 << 16) /* bytes between two cancellation checks: less than 100 µs */

#define MOST_RECORD (HEED__ZIP_RECORD_BYTES + 3 * HEED__ZIP_MAX_TEXT) /* name, extra and comment */

#define FLAG_ENCRYPTED                                                                                       \
  (1u | 1u << 6 | 1u << 13) /* by the old cipher, by a stronger one, with the directory */

/* ---- Numbers ---- */

static uint64_t zip_number(const unsigned char *p, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; i--) value = value << 8 | p[i];
  return value;
}

/* Reads the number at *p and advances p. */
static uint64_t zip_next(const unsigned char **p, int bytes) {
  const uint64_t value = zip_number(*p, bytes);
  *p += bytes;
  return value;
}

static bool has_signature(const unsigned char *p, const char *signature) {
  return memcmp(p, signature, HEED__ZIP_SIGNATURE) == 0;
}

/* ---- The end ---- */

#define NO_ARCHIVE "is not a readable zip archive: "

/* The numbers of the end records. end_at is the offset of the end record, or of zip64's if there is one: the
 * directory must end there. */
typedef struct zip_end {
  uint64_t end_at;
  uint64_t disk, directory_disk, here, count, bytes, at;
} zip_end;

static heed_status read_zip(const heed__zip *zip, uint64_t at, void *out, size_t bytes) {
  return heed__file_read(zip->where, zip->file, (int64_t)at, out, bytes);
}

/* Finds the last end record whose comment ends with the file. */
static heed_status find_end(const heed__zip *zip, zip_end *end) {
  const size_t most = HEED__ZIP_END_BYTES + HEED__ZIP_MAX_TEXT;
  const size_t length = zip->size < most ? (size_t)zip->size : most;
  unsigned char *tail = heed__allocate(zip->where->ctx, length);
  if (tail == NULL) return heed__fail_memory(zip->where->ctx, "load", length);
  heed_status status = read_zip(zip, zip->size - length, tail, length);
  if (status != HEED_OK) goto done;
  for (size_t i = length - HEED__ZIP_END_BYTES + 1; i-- > 0;) {
    const unsigned char *p = tail + i;
    if (!has_signature(p, HEED__ZIP_END) ||
        i + HEED__ZIP_END_BYTES + zip_number(p + HEED__ZIP_END_BYTES - 2, 2) != length)
      continue;
    p += HEED__ZIP_SIGNATURE;
    end->end_at = zip->size - length + i;
    end->disk = zip_next(&p, 2);
    end->directory_disk = zip_next(&p, 2);
    end->here = zip_next(&p, 2);
    end->count = zip_next(&p, 2);
    end->bytes = zip_next(&p, 4);
    end->at = zip_next(&p, 4);
    goto done;
  }
  status = heed__fail_file(zip->where, NO_ARCHIVE "it has no end record, or bytes after it");
done:
  heed__release(zip->where->ctx, tail);
  return status;
}

/* Replaces a number of the end record by that of zip64's. False if they contradict each other: the first must
 * be the placeholder `elsewhere` or the same. */
static bool take_larger(uint64_t *number, uint64_t elsewhere, uint64_t larger) {
  const bool fits = *number == elsewhere || *number == larger;
  *number = larger;
  return fits;
}

/* Reads zip64's end record if there is a locator. */
static heed_status read_end_64(const heed__zip *zip, zip_end *end) {
  const heed__where *where = zip->where;
  unsigned char text[HEED__ZIP_END_64_BYTES];
  if (end->end_at < HEED__ZIP_END_64_BYTES + HEED__ZIP_LOCATOR_BYTES) return HEED_OK;
  const uint64_t locator_at = end->end_at - HEED__ZIP_LOCATOR_BYTES;
  heed_status status = read_zip(zip, locator_at, text, HEED__ZIP_LOCATOR_BYTES);
  if (status != HEED_OK || !has_signature(text, HEED__ZIP_LOCATOR)) return status;
  const uint64_t at = zip_number(text + 8, 8);
  if (at > locator_at - HEED__ZIP_END_64_BYTES)
    return heed__fail_file(where, NO_ARCHIVE "its locator points to byte %llu, where no end record can be",
                           (unsigned long long)at);
  status = read_zip(zip, at, text, HEED__ZIP_END_64_BYTES);
  if (status != HEED_OK) return status;
  /* its length excludes the signature and the length itself */
  if (!has_signature(text, HEED__ZIP_END_64) || zip_number(text + 4, 8) != locator_at - at - 12)
    return heed__fail_file(where,
                           NO_ARCHIVE "its locator points to byte %llu, where no end record of zip64 is",
                           (unsigned long long)at);
  const unsigned char *p = text + 16;
  bool same = take_larger(&end->disk, HEED__ZIP_MANY, zip_next(&p, 4));
  same = take_larger(&end->directory_disk, HEED__ZIP_MANY, zip_next(&p, 4)) && same;
  same = take_larger(&end->here, HEED__ZIP_MANY, zip_next(&p, 8)) && same;
  same = take_larger(&end->count, HEED__ZIP_MANY, zip_next(&p, 8)) && same;
  same = take_larger(&end->bytes, HEED__ZIP_ELSEWHERE, zip_next(&p, 8)) && same;
  same = take_larger(&end->at, HEED__ZIP_ELSEWHERE, zip_next(&p, 8)) && same;
  if (!same) return heed__fail_file(where, NO_ARCHIVE "its two end records differ");
  end->end_at = at;
  return HEED_OK;
}

/* Finds the directory, and checks all numbers before they are used. */
static heed_status read_end(const heed__zip *zip, zip_end *end) {
  const heed__where *where = zip->where;
  heed_status status = find_end(zip, end);
  if (status != HEED_OK) return status;
  const bool elsewhere = end->here == HEED__ZIP_MANY || end->count == HEED__ZIP_MANY ||
                         end->bytes == HEED__ZIP_ELSEWHERE || end->at == HEED__ZIP_ELSEWHERE;
  if (elsewhere || end->at + end->bytes != end->end_at) status = read_end_64(zip, end);
  if (status != HEED_OK) return status;
  if (end->disk != 0 || end->directory_disk != 0 || end->here != end->count)
    return heed__fail_file(where, NO_ARCHIVE "it is part of an archive of several files");
  if (end->at > end->end_at || end->bytes > end->end_at - end->at)
    return heed__fail_file(where,
                           NO_ARCHIVE "its directory would have %llu byte%s from byte %llu on, and there are "
                                      "only %llu: it is cut short",
                           (unsigned long long)end->bytes, HEED__S(end->bytes), (unsigned long long)end->at,
                           (unsigned long long)end->end_at);
  if (end->bytes < end->end_at - end->at)
    return heed__fail_file(where,
                           NO_ARCHIVE
                           "its directory ends %llu byte%s too early: there are other bytes before the "
                           "archive or inside it",
                           (unsigned long long)(end->end_at - end->at - end->bytes),
                           HEED__S(end->end_at - end->at - end->bytes));
  if (end->bytes > PTRDIFF_MAX / 8) /* its records become at most four times as large */
    return heed__fail_file(where, NO_ARCHIVE "its directory has %llu bytes, more than the address space",
                           (unsigned long long)end->bytes);
  if (end->count > end->bytes / HEED__ZIP_RECORD_BYTES || end->bytes / MOST_RECORD > end->count)
    return heed__fail_file(where, NO_ARCHIVE "it says that it has %llu %s, in a directory of %llu byte%s",
                           (unsigned long long)end->count, end->count == 1 ? "entry" : "entries",
                           (unsigned long long)end->bytes, HEED__S(end->bytes));
  return HEED_OK;
}

/* ---- The directory ---- */

/* Reads the 64-bit numbers of a record, in this order; only those with a placeholder are present. */
static bool read_extra(const unsigned char *p, size_t length, heed__zip_entry *e) {
  uint64_t *const numbers[] = {&e->size, &e->packed, &e->at};
  const unsigned char *const end = p + length;
  while (end - p >= 4) {
    const uint64_t kind = zip_next(&p, 2), bytes = zip_next(&p, 2);
    if (bytes > (uint64_t)(end - p)) return false;
    const unsigned char *const next = p + bytes;
    for (int i = 0; kind == HEED__ZIP_EXTRA_64 && i < 3; i++) {
      if (*numbers[i] != HEED__ZIP_ELSEWHERE) continue;
      if (next - p < 8) return false;
      *numbers[i] = zip_next(&p, 8);
    }
    if (kind == HEED__ZIP_EXTRA_64) return true;
    p = next;
  }
  return true;
}

/* Reads the record at p, of at most `left` bytes; returns its length, 0 if it is broken. */
static size_t read_record(const unsigned char *p, size_t left, heed__zip_entry *e) {
  if (left < HEED__ZIP_RECORD_BYTES || !has_signature(p, HEED__ZIP_RECORD)) return 0;
  p += 8; /* the signature and two versions */
  e->encrypted = (zip_next(&p, 2) & FLAG_ENCRYPTED) != 0;
  e->method = (unsigned)zip_next(&p, 2);
  p += 4; /* time and date */
  e->crc = (uint32_t)zip_next(&p, 4);
  e->packed = zip_next(&p, 4);
  e->size = zip_next(&p, 4);
  e->name_length = (size_t)zip_next(&p, 2);
  const size_t extra = (size_t)zip_next(&p, 2), comment = (size_t)zip_next(&p, 2);
  p += 8; /* the disk and the file's attributes */
  e->at = zip_next(&p, 4);
  e->name = (const char *)p;
  const size_t bytes = HEED__ZIP_RECORD_BYTES + e->name_length + extra + comment;
  return bytes <= left && read_extra(p + e->name_length, extra, e) ? bytes : 0;
}

typedef struct zip_start {
  uint64_t at;
  int64_t index;
} zip_start;

static int compare_starts(const void *a, const void *b) {
  const zip_start *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

/* Each entry must end before the next one in the file, or the directory, begins. */
static heed_status find_ends(const heed__zip *zip) {
  heed_context *ctx = zip->where->ctx;
  const size_t bytes = (size_t)zip->count * sizeof(zip_start);
  zip_start *starts = heed__allocate(ctx, bytes);
  if (starts == NULL) return heed__fail_memory(ctx, "load", bytes);
  for (int64_t i = 0; i < zip->count; i++) starts[i] = (zip_start){zip->entries[i].at, i};
  const heed_status status =
      heed__sort_records(ctx, "load", starts, zip->count, sizeof(*starts), compare_starts);
  for (int64_t i = 0; i < zip->count && status == HEED_OK; i++)
    zip->entries[starts[i].index].end = i + 1 < zip->count ? starts[i + 1].at : zip->directory_at;
  heed__release(ctx, starts);
  return status;
}

static heed_status read_directory(heed__zip *zip) {
  heed_context *ctx = zip->where->ctx;
  zip_end end = {0};
  heed_status status = read_end(zip, &end);
  if (status != HEED_OK) return status;
  const size_t bytes = (size_t)end.bytes, entries = (size_t)end.count * sizeof(*zip->entries);
  zip->directory_at = end.at;
  zip->count = (int64_t)end.count;
  zip->directory = heed__allocate(ctx, bytes);
  zip->entries = heed__allocate(ctx, entries);
  if (zip->directory == NULL || zip->entries == NULL) return heed__fail_memory(ctx, "load", bytes + entries);
  status = read_zip(zip, end.at, zip->directory, bytes);
  size_t used = 0;
  for (int64_t i = 0; i < zip->count && status == HEED_OK; i++) {
    const size_t record = read_record(zip->directory + used, bytes - used, &zip->entries[i]);
    if (record == 0)
      return heed__fail_file(zip->where, NO_ARCHIVE "entry %lld of its directory is broken or cut short",
                             (long long)i + 1);
    used += record;
    if (heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, "load");
  }
  if (status != HEED_OK) return status;
  if (used < bytes)
    return heed__fail_file(zip->where, NO_ARCHIVE "its directory has %lld %s, and %zu more byte%s",
                           (long long)zip->count, zip->count == 1 ? "entry" : "entries", bytes - used,
                           HEED__S(bytes - used));
  return find_ends(zip);
}

heed_status heed__zip_open(const heed__where *where, const char *path, heed__zip *out) {
  int64_t size;
  *out = (heed__zip){.where = where};
  heed_status status = heed__file_open(where, path, &out->file, &size);
  if (status != HEED_OK) return status;
  out->size = (uint64_t)size;
  if (size < HEED__ZIP_END_BYTES)
    status = heed__fail_file(where, "is not a zip archive: it has only %lld byte%s", (long long)size,
                             HEED__S(size));
  if (status == HEED_OK) status = read_directory(out);
  if (status != HEED_OK) heed__zip_close(out);
  return status;
}

void heed__zip_close(heed__zip *zip) {
  heed__release(zip->where->ctx, zip->directory);
  heed__release(zip->where->ctx, zip->entries);
  heed__system_close(zip->file);
}

/* ---- An entry ---- */

/* The record must be possible for the size of the archive, before anything is allocated for it. */
static heed_status check_entry(const heed__where *where, const heed__zip *zip, const heed__zip_entry *e) {
  const uint64_t inside = zip->directory_at;
  if (e->encrypted) return heed__fail_file(where, "is encrypted");
  if (e->method != HEED__ZIP_STORED && e->method != HEED__ZIP_DEFLATED)
    return heed__fail_file(where, "its compression method is %u; it must be 0 (stored) or 8 (deflated)",
                           e->method);
  if (e->packed > inside)
    return heed__fail_file(where, "would have %llu byte%s in the archive, more than there are",
                           (unsigned long long)e->packed, HEED__S(e->packed));
  if (e->at > inside || HEED__ZIP_LOCAL_BYTES + e->packed > inside - e->at)
    return heed__fail_file(where,
                           "would have %llu byte%s from byte %llu of the archive on, and there are only %llu",
                           (unsigned long long)e->packed, HEED__S(e->packed), (unsigned long long)e->at,
                           (unsigned long long)inside);
  const bool stored = e->method == HEED__ZIP_STORED;
  if (e->size > INT64_MAX || (stored && e->size != e->packed) ||
      (!stored && e->size / MOST_INFLATED > e->packed))
    return heed__fail_file(where, "would make %llu byte%s of %llu in the archive, which is impossible",
                           (unsigned long long)e->size, HEED__S(e->size), (unsigned long long)e->packed);
  return HEED_OK;
}

static heed_status broken_entry(const heed__zip_stream *s, const char *what) {
  return heed__fail_file(s->where, "cannot be read: %s", what);
}

/* Whether the name in the local header, of the right length, is that of the record. */
static heed_status compare_name(heed__zip_stream *s, bool *same) {
  const heed__zip_entry *e = s->entry;
  *same = true;
  for (size_t done = 0; done < e->name_length && *same;) {
    const size_t left = e->name_length - done, n = left < sizeof(s->input) ? left : sizeof(s->input);
    const heed_status status = heed__file_read(s->where, s->file, (int64_t)s->at, s->input, n);
    if (status != HEED_OK) return status;
    *same = memcmp(s->input, e->name + done, n) == 0;
    s->at += n;
    done += n;
  }
  return HEED_OK;
}

/* The local header must not contradict the directory. Its sizes may be 0 and are not read. */
static heed_status read_local_header(heed__zip_stream *s) {
  const heed__zip_entry *e = s->entry;
  unsigned char text[HEED__ZIP_LOCAL_BYTES];
  bool same;
  heed_status status = heed__file_read(s->where, s->file, (int64_t)e->at, text, sizeof(text));
  if (status != HEED_OK) return status;
  if (!has_signature(text, HEED__ZIP_LOCAL)) return broken_entry(s, "it does not begin with a header");
  const unsigned char *p = text + 6;
  if ((zip_next(&p, 2) & FLAG_ENCRYPTED) != 0)
    return broken_entry(s, "its header says, unlike the directory, that it is encrypted");
  if (zip_next(&p, 2) != e->method)
    return broken_entry(s, "its header has another method than the directory");
  const size_t name_length = (size_t)zip_number(text + 26, 2), extra = (size_t)zip_number(text + 28, 2);
  s->at = e->at + HEED__ZIP_LOCAL_BYTES;
  if (s->at + name_length + extra + e->packed > e->end)
    return broken_entry(s, "its bytes would reach into the next entry, or the directory");
  same = name_length == e->name_length;
  if (same) status = compare_name(s, &same);
  if (status == HEED_OK && !same) status = broken_entry(s, "its header has another name than the directory");
  s->at += extra;
  s->left = e->packed;
  return status;
}

static voidpf allocate_for_zlib(voidpf ctx, uInt count, uInt bytes) {
  return heed__allocate(ctx, (size_t)count * bytes);
}
static void release_for_zlib(voidpf ctx, voidpf memory) {
  heed__release(ctx, memory);
}

heed_status heed__zip_begin(heed__zip_stream *s, const heed__zip *zip, const heed__zip_entry *entry,
                            const heed__where *where) {
  s->where = where;
  s->entry = entry;
  s->file = zip->file;
  s->crc = 0;
  s->ended = false;
  heed_status status = check_entry(where, zip, entry);
  if (status == HEED_OK) status = read_local_header(s);
  if (status != HEED_OK || entry->method == HEED__ZIP_STORED) return status;
  s->inflating = (z_stream){.zalloc = allocate_for_zlib, .zfree = release_for_zlib, .opaque = where->ctx};
  /* negative: without the header and checksum of zlib's own format */
  if (inflateInit2(&s->inflating, -MAX_WBITS) == Z_OK) return HEED_OK;
  return heed__fail_memory(where->ctx, "load", (size_t)1 << MAX_WBITS);
}

/* ---- An entry's bytes ---- */

static heed_status read_packed(heed__zip_stream *s, void *out, size_t bytes) {
  const heed_status status = heed__file_read(s->where, s->file, (int64_t)s->at, out, bytes);
  s->at += bytes;
  s->left -= bytes;
  return status;
}

/* Inflates `capacity` bytes, or fewer at the end. */
static heed_status inflate_some(heed__zip_stream *s, void *out, size_t capacity, size_t *got) {
  z_stream *z = &s->inflating;
  z->next_out = out;
  z->avail_out = (uInt)capacity;
  while (z->avail_out > 0 && !s->ended) {
    if (z->avail_in == 0) {
      const size_t n = s->left < sizeof(s->input) ? (size_t)s->left : sizeof(s->input);
      const heed_status status = read_packed(s, s->input, n);
      if (status != HEED_OK) return status;
      z->next_in = s->input;
      z->avail_in = (uInt)n;
    }
    const int answer = inflate(z, Z_NO_FLUSH);
    s->ended = answer == Z_STREAM_END;
    if (answer == Z_BUF_ERROR) return broken_entry(s, "it is cut short");
    if (answer == Z_MEM_ERROR) return heed__fail_memory(s->where->ctx, "load", (size_t)1 << MAX_WBITS);
    if (answer != Z_OK && answer != Z_STREAM_END) return broken_entry(s, "its deflated data are invalid");
  }
  *got = capacity - z->avail_out;
  return HEED_OK;
}

heed_status heed__zip_read(heed__zip_stream *s, void *out, size_t bytes) {
  heed_context *ctx = s->where->ctx;
  char *p = out;
  while (bytes > 0) {
    size_t n = bytes < ZIP_CHUNK ? bytes : ZIP_CHUNK;
    heed_status status = heed__is_due(&ctx->pace) ? heed__stopped(ctx, "load") : HEED_OK;
    if (status == HEED_OK && s->entry->method == HEED__ZIP_DEFLATED) {
      status = inflate_some(s, p, n, &n);
    } else if (status == HEED_OK) {
      status = n <= s->left ? read_packed(s, p, n) : broken_entry(s, "it is cut short");
    }
    if (status != HEED_OK) return status;
    if (n == 0) return broken_entry(s, "it is cut short");
    s->crc = (uint32_t)crc32(s->crc, (const Bytef *)p, (uInt)n);
    p += n;
    bytes -= n;
  }
  return HEED_OK;
}

heed_status heed__zip_end(heed__zip_stream *s, heed_status status) {
  const bool deflated = s->entry->method == HEED__ZIP_DEFLATED;
  char more;
  size_t n = 0;
  if (deflated && status == HEED_OK) status = inflate_some(s, &more, 1, &n);
  if (status == HEED_OK && (n > 0 || s->left > 0 || (deflated && s->inflating.avail_in > 0)))
    status = broken_entry(s, "it is longer than the archive says");
  if (deflated) inflateEnd(&s->inflating);
  if (status == HEED_OK && s->crc != s->entry->crc) status = broken_entry(s, "CRC error");
  return status;
}

#endif
