/* Reading zip archives: the end, the directory, and entries, stored or deflated. */
#include "zip.h"

#if HEED_ZIP

#include <string.h>

/* One byte of deflated text stands for at most 1032 of plain text; a few more are for the empty one. */
#define MOST_INFLATED 1032u

/* What is checked or inflated before it is asked whether to go on: less than 100 µs. */
#define ZIP_AT_ONCE ((size_t)1 << 16)

#define MOST_RECORD (HEED__ZIP_RECORD_BYTES + 3 * HEED__ZIP_MAX_TEXT) /* name, extra and comment */

#define FLAG_ENCRYPTED (1u | 1u << 6 | 1u << 13) /* the entry; by a stronger cipher; the directory, too */

/* ---- Numbers ---- */

static uint64_t zip_number(const unsigned char *p, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; i--) value = value << 8 | p[i];
  return value;
}

/* The number at *p, which moves behind it. */
static uint64_t zip_next(const unsigned char **p, int bytes) {
  const uint64_t value = zip_number(*p, bytes);
  *p += bytes;
  return value;
}

static bool has_signature(const unsigned char *p, const char *signature) {
  return memcmp(p, signature, HEED__ZIP_SIGNATURE) == 0;
}

/* ---- The end ---- */

#define NO_ARCHIVE "is no zip archive that can be read: "

/* What the records of the end say; at first `end_at` is where the end record lies, then, if there is one of
 * zip64, where that does: up to there the directory goes. */
typedef struct zip_end {
  uint64_t end_at;
  uint64_t disk, directory_disk, here, count, bytes, at;
} zip_end;

static heed_status read_zip(const heed__zip *zip, uint64_t at, void *out, size_t bytes) {
  return heed__file_read(zip->place, zip->file, (int64_t)at, out, bytes);
}

/* The end record is the last thing in the file that looks like one and whose comment ends with the file. */
static heed_status find_end(const heed__zip *zip, zip_end *end) {
  const size_t most = HEED__ZIP_END_BYTES + HEED__ZIP_MAX_TEXT;
  const size_t room = zip->size < most ? (size_t)zip->size : most;
  unsigned char *tail = heed__allocate(zip->place->ctx, room);
  if (tail == NULL) return heed__fail_memory(zip->place->ctx, "load", room);
  heed_status status = read_zip(zip, zip->size - room, tail, room);
  if (status != HEED_OK) goto done;
  for (size_t i = room - HEED__ZIP_END_BYTES + 1; i-- > 0;) {
    const unsigned char *p = tail + i;
    if (!has_signature(p, HEED__ZIP_END) ||
        i + HEED__ZIP_END_BYTES + zip_number(p + HEED__ZIP_END_BYTES - 2, 2) != room)
      continue;
    p += HEED__ZIP_SIGNATURE;
    end->end_at = zip->size - room + i;
    end->disk = zip_next(&p, 2);
    end->directory_disk = zip_next(&p, 2);
    end->here = zip_next(&p, 2);
    end->count = zip_next(&p, 2);
    end->bytes = zip_next(&p, 4);
    end->at = zip_next(&p, 4);
    goto done;
  }
  status = heed__broken(zip->place, NO_ARCHIVE "it has no end record, or bytes stand behind that");
done:
  heed__release(zip->place->ctx, tail);
  return status;
}

/* A number of the end record, for which `elsewhere` says that it is in the one of zip64. False: they differ.
 */
static bool take_larger(uint64_t *number, uint64_t elsewhere, uint64_t larger) {
  const bool fits = *number == elsewhere || *number == larger;
  *number = larger;
  return fits;
}

/* The second end record, if there is a locator. */
static heed_status read_end_64(const heed__zip *zip, zip_end *end) {
  const heed__place *place = zip->place;
  unsigned char text[HEED__ZIP_END_64_BYTES];
  if (end->end_at < HEED__ZIP_END_64_BYTES + HEED__ZIP_LOCATOR_BYTES) return HEED_OK;
  const uint64_t locator_at = end->end_at - HEED__ZIP_LOCATOR_BYTES;
  heed_status status = read_zip(zip, locator_at, text, HEED__ZIP_LOCATOR_BYTES);
  if (status != HEED_OK || !has_signature(text, HEED__ZIP_LOCATOR)) return status;
  const uint64_t at = zip_number(text + 8, 8);
  if (at > locator_at - HEED__ZIP_END_64_BYTES)
    return heed__broken(place, NO_ARCHIVE "its locator points to byte %llu, where no end record can be",
                        (unsigned long long)at);
  status = read_zip(zip, at, text, HEED__ZIP_END_64_BYTES);
  if (status != HEED_OK) return status;
  /* its length does not count the signature and itself */
  if (!has_signature(text, HEED__ZIP_END_64) || zip_number(text + 4, 8) != locator_at - at - 12)
    return heed__broken(place, NO_ARCHIVE "its locator points to byte %llu, where no end record of zip64 is",
                        (unsigned long long)at);
  const unsigned char *p = text + 16;
  bool same = take_larger(&end->disk, HEED__ZIP_MANY, zip_next(&p, 4));
  same = take_larger(&end->directory_disk, HEED__ZIP_MANY, zip_next(&p, 4)) && same;
  same = take_larger(&end->here, HEED__ZIP_MANY, zip_next(&p, 8)) && same;
  same = take_larger(&end->count, HEED__ZIP_MANY, zip_next(&p, 8)) && same;
  same = take_larger(&end->bytes, HEED__ZIP_ELSEWHERE, zip_next(&p, 8)) && same;
  same = take_larger(&end->at, HEED__ZIP_ELSEWHERE, zip_next(&p, 8)) && same;
  if (!same) return heed__broken(place, NO_ARCHIVE "its two end records differ");
  end->end_at = at;
  return HEED_OK;
}

/* Where the directory lies; the numbers that are wrong say so before anything is made of them. */
static heed_status read_end(const heed__zip *zip, zip_end *end) {
  const heed__place *place = zip->place;
  heed_status status = find_end(zip, end);
  if (status != HEED_OK) return status;
  const bool elsewhere = end->here == HEED__ZIP_MANY || end->count == HEED__ZIP_MANY ||
                         end->bytes == HEED__ZIP_ELSEWHERE || end->at == HEED__ZIP_ELSEWHERE;
  if (elsewhere || end->at + end->bytes != end->end_at) status = read_end_64(zip, end);
  if (status != HEED_OK) return status;
  if (end->disk != 0 || end->directory_disk != 0 || end->here != end->count)
    return heed__broken(place, NO_ARCHIVE "it is a part of an archive of several files");
  if (end->at > end->end_at || end->bytes > end->end_at - end->at)
    return heed__broken(place,
                        NO_ARCHIVE "its directory would have %llu byte%s from byte %llu on, and there are "
                                   "only %llu: it is cut short",
                        (unsigned long long)end->bytes, HEED__S(end->bytes), (unsigned long long)end->at,
                        (unsigned long long)end->end_at);
  if (end->bytes < end->end_at - end->at)
    return heed__broken(place,
                        NO_ARCHIVE
                        "its directory ends %llu byte%s too early: so many stand before the archive, or "
                        "in it where nothing should be",
                        (unsigned long long)(end->end_at - end->at - end->bytes),
                        HEED__S(end->end_at - end->at - end->bytes));
  if (end->bytes > PTRDIFF_MAX / 8) /* what is made of it is larger, four times at most */
    return heed__broken(place,
                        NO_ARCHIVE "its directory has %llu bytes, too many for this machine's addresses",
                        (unsigned long long)end->bytes);
  if (end->count > end->bytes / HEED__ZIP_RECORD_BYTES || end->bytes / MOST_RECORD > end->count)
    return heed__broken(place, NO_ARCHIVE "it says that it has %llu %s, in a directory of %llu byte%s",
                        (unsigned long long)end->count, end->count == 1 ? "entry" : "entries",
                        (unsigned long long)end->bytes, HEED__S(end->bytes));
  return HEED_OK;
}

/* ---- The directory ---- */

/* The numbers that stand in the extra field of zip64, in this order, as far as they are there. */
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

/* The record at p, of which at least `left` bytes are there; the bytes that it takes, or 0: it is broken. */
static size_t read_record(const unsigned char *p, size_t left, heed__zip_entry *e) {
  if (left < HEED__ZIP_RECORD_BYTES || !has_signature(p, HEED__ZIP_RECORD)) return 0;
  p += 8; /* behind the versions of who made it and who can read it */
  e->encrypted = (zip_next(&p, 2) & FLAG_ENCRYPTED) != 0;
  e->method = (unsigned)zip_next(&p, 2);
  p += 4; /* time and day */
  e->crc = (uint32_t)zip_next(&p, 4);
  e->packed = zip_next(&p, 4);
  e->size = zip_next(&p, 4);
  e->name_length = (size_t)zip_next(&p, 2);
  const size_t extra = (size_t)zip_next(&p, 2), comment = (size_t)zip_next(&p, 2);
  p += 8; /* the disk, and what the file was on that */
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

/* Each entry ends where the next one in the file begins, the last where the directory does. */
static heed_status find_ends(const heed__zip *zip) {
  heed_context *ctx = zip->place->ctx;
  const size_t room = (size_t)zip->count * sizeof(zip_start);
  zip_start *starts = heed__allocate(ctx, room);
  if (starts == NULL) return heed__fail_memory(ctx, "load", room);
  for (int64_t i = 0; i < zip->count; i++) starts[i] = (zip_start){zip->entries[i].at, i};
  const heed_status status =
      heed__sort_records(ctx, "load", starts, zip->count, sizeof(*starts), compare_starts);
  for (int64_t i = 0; i < zip->count && status == HEED_OK; i++)
    zip->entries[starts[i].index].end = i + 1 < zip->count ? starts[i + 1].at : zip->directory_at;
  heed__release(ctx, starts);
  return status;
}

static heed_status read_directory(heed__zip *zip) {
  heed_context *ctx = zip->place->ctx;
  zip_end end = {0};
  heed_status status = read_end(zip, &end);
  if (status != HEED_OK) return status;
  const size_t bytes = (size_t)end.bytes, room = (size_t)end.count * sizeof(*zip->entries);
  zip->directory_at = end.at;
  zip->count = (int64_t)end.count;
  zip->directory = heed__allocate(ctx, bytes);
  zip->entries = heed__allocate(ctx, room);
  if (zip->directory == NULL || zip->entries == NULL) return heed__fail_memory(ctx, "load", bytes + room);
  status = read_zip(zip, end.at, zip->directory, bytes);
  size_t used = 0;
  for (int64_t i = 0; i < zip->count && status == HEED_OK; i++) {
    const size_t record = read_record(zip->directory + used, bytes - used, &zip->entries[i]);
    if (record == 0)
      return heed__broken(zip->place, NO_ARCHIVE "entry %lld of its directory is broken or cut short",
                          (long long)i + 1);
    used += record;
    if (heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, "load");
  }
  if (status != HEED_OK) return status;
  if (used < bytes)
    return heed__broken(zip->place, NO_ARCHIVE "its directory has %lld %s, and %zu byte%s behind them",
                        (long long)zip->count, zip->count == 1 ? "entry" : "entries", bytes - used,
                        HEED__S(bytes - used));
  return find_ends(zip);
}

heed_status heed__zip_open(const heed__place *place, const char *path, heed__zip *out) {
  int64_t size;
  *out = (heed__zip){.place = place};
  heed_status status = heed__file_open(place, path, &out->file, &size);
  if (status != HEED_OK) return status;
  out->size = (uint64_t)size;
  if (size < HEED__ZIP_END_BYTES)
    status =
        heed__broken(place, "is no zip archive: it has only %lld byte%s", (long long)size, HEED__S(size));
  if (status == HEED_OK) status = read_directory(out);
  if (status != HEED_OK) heed__zip_close(out);
  return status;
}

void heed__zip_close(heed__zip *zip) {
  heed__release(zip->place->ctx, zip->directory);
  heed__release(zip->place->ctx, zip->entries);
  heed__system_close(zip->file);
}

/* ---- An entry ---- */

/* What the archive says of it must be possible: nothing is allocated for what cannot be there. */
static heed_status check_entry(const heed__place *place, const heed__zip *zip, const heed__zip_entry *e) {
  const uint64_t inside = zip->directory_at;
  if (e->encrypted) return heed__broken(place, "is encrypted");
  if (e->method != HEED__ZIP_STORED && e->method != HEED__ZIP_DEFLATED)
    return heed__broken(place, "is compressed by method %u; stored and deflated ones are read", e->method);
  if (e->packed > inside)
    return heed__broken(place, "would have %llu byte%s in the archive, more than there are",
                        (unsigned long long)e->packed, HEED__S(e->packed));
  if (e->at > inside || HEED__ZIP_LOCAL_BYTES + e->packed > inside - e->at)
    return heed__broken(place,
                        "would have %llu byte%s from byte %llu of the archive on, and there are only %llu",
                        (unsigned long long)e->packed, HEED__S(e->packed), (unsigned long long)e->at,
                        (unsigned long long)inside);
  const bool stored = e->method == HEED__ZIP_STORED;
  if (e->size > INT64_MAX || (stored && e->size != e->packed) ||
      (!stored && e->size / MOST_INFLATED > e->packed))
    return heed__broken(place, "would make %llu byte%s of %llu in the archive, which cannot be",
                        (unsigned long long)e->size, HEED__S(e->size), (unsigned long long)e->packed);
  return HEED_OK;
}

static heed_status broken_entry(const heed__zip_stream *s, const char *what) {
  return heed__broken(s->place, "cannot be read: %s", what);
}

/* Whether the name that stands there, of the right length, is the entry's. */
static heed_status compare_name(heed__zip_stream *s, bool *same) {
  const heed__zip_entry *e = s->entry;
  *same = true;
  for (size_t done = 0; done < e->name_length && *same;) {
    const size_t left = e->name_length - done, n = left < sizeof(s->input) ? left : sizeof(s->input);
    const heed_status status = heed__file_read(s->place, s->file, (int64_t)s->at, s->input, n);
    if (status != HEED_OK) return status;
    *same = memcmp(s->input, e->name + done, n) == 0;
    s->at += n;
    done += n;
  }
  return HEED_OK;
}

/* The local header, which must not contradict the directory; its sizes may be 0 and are not looked at. */
static heed_status read_local_header(heed__zip_stream *s) {
  const heed__zip_entry *e = s->entry;
  unsigned char text[HEED__ZIP_LOCAL_BYTES];
  bool same;
  heed_status status = heed__file_read(s->place, s->file, (int64_t)e->at, text, sizeof(text));
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
                            const heed__place *place) {
  s->place = place;
  s->entry = entry;
  s->file = zip->file;
  s->crc = 0;
  s->ended = false;
  heed_status status = check_entry(place, zip, entry);
  if (status == HEED_OK) status = read_local_header(s);
  if (status != HEED_OK || entry->method == HEED__ZIP_STORED) return status;
  s->inflating = (z_stream){.zalloc = allocate_for_zlib, .zfree = release_for_zlib, .opaque = place->ctx};
  /* without the header and the check sum of zlib's own format */
  if (inflateInit2(&s->inflating, -MAX_WBITS) == Z_OK) return HEED_OK;
  return heed__fail_memory(place->ctx, "load", (size_t)1 << MAX_WBITS);
}

/* ---- An entry's bytes ---- */

static heed_status read_packed(heed__zip_stream *s, void *out, size_t bytes) {
  const heed_status status = heed__file_read(s->place, s->file, (int64_t)s->at, out, bytes);
  s->at += bytes;
  s->left -= bytes;
  return status;
}

/* As many bytes as there is room for, or all that come. */
static heed_status inflate_some(heed__zip_stream *s, void *out, size_t room, size_t *got) {
  z_stream *z = &s->inflating;
  z->next_out = out;
  z->avail_out = (uInt)room;
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
    if (answer == Z_MEM_ERROR) return heed__fail_memory(s->place->ctx, "load", (size_t)1 << MAX_WBITS);
    if (answer != Z_OK && answer != Z_STREAM_END) return broken_entry(s, "what is deflated is broken");
  }
  *got = room - z->avail_out;
  return HEED_OK;
}

heed_status heed__zip_read(heed__zip_stream *s, void *out, size_t bytes) {
  heed_context *ctx = s->place->ctx;
  char *p = out;
  while (bytes > 0) {
    size_t n = bytes < ZIP_AT_ONCE ? bytes : ZIP_AT_ONCE;
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
