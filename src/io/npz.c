/* .npz: a zip archive of .npy files, through libzip, whose reading and writing of files is done by ours. */
#include "files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#if HEED_ZIP
#include <zip.h>

/* One byte of deflated text stands for at most 1032 of plain text; a few more are for the empty one. */
#define MOST_INFLATED 1032u

#define NAME_END    ".npy"
#define MIN_ARCHIVE 22              /* bytes of an archive without entries */
#define MAX_NAME    ((size_t)65535) /* bytes, as zip has it */

/* ---- Reading: the file as libzip sees it ---- */

typedef struct archive_file {
  const heed__place *place;
  heed__file file;
  int64_t size, at;
  zip_error_t error;
  bool failed; /* the context has the message */
} archive_file;

static zip_int64_t read_file(archive_file *f, void *data, zip_uint64_t bytes) {
  const int64_t left = f->size - f->at;
  if (left <= 0) return 0;
  if (bytes > (uint64_t)left) bytes = (uint64_t)left;
  if (heed__file_read(f->place, f->file, f->at, data, (size_t)bytes) != HEED_OK) {
    f->failed = true;
    zip_error_set(&f->error, ZIP_ER_READ, EIO);
    return -1;
  }
  f->at += (int64_t)bytes;
  return (zip_int64_t)bytes;
}

static zip_int64_t seek_file(archive_file *f, void *data, zip_uint64_t bytes) {
  const zip_int64_t at =
      zip_source_seek_compute_offset((zip_uint64_t)f->at, (zip_uint64_t)f->size, data, bytes, &f->error);
  if (at < 0) return -1;
  f->at = at;
  return 0;
}

static zip_int64_t reading(void *user, void *data, zip_uint64_t bytes, zip_source_cmd_t command) {
  archive_file *f = user;
  switch (command) {
  case ZIP_SOURCE_OPEN: f->at = 0; return 0;
  case ZIP_SOURCE_READ: return read_file(f, data, bytes);
  case ZIP_SOURCE_SEEK: return seek_file(f, data, bytes);
  case ZIP_SOURCE_TELL: return f->at;
  case ZIP_SOURCE_STAT: {
    zip_stat_t *stat = data;
    zip_stat_init(stat);
    stat->size = (zip_uint64_t)f->size;
    stat->valid = ZIP_STAT_SIZE;
    return (zip_int64_t)sizeof(*stat);
  }
  case ZIP_SOURCE_ERROR: return zip_error_to_data(&f->error, data, bytes);
  case ZIP_SOURCE_CLOSE:
  case ZIP_SOURCE_FREE: return 0;
  case ZIP_SOURCE_SUPPORTS: return ZIP_SOURCE_SUPPORTS_SEEKABLE;
  default: zip_error_set(&f->error, ZIP_ER_OPNOTSUPP, 0); return -1;
  }
}

/* ---- Reading: the entries ---- */

/* libzip says so in three ways: where it could not have memory there may be no error at all. */
static bool is_memory(const zip_error_t *error) {
  const int code = zip_error_code_zip(error), insufficient_memory = -4; /* zlib's */
  return code == ZIP_ER_MEMORY || code == ZIP_ER_OK ||
         (code == ZIP_ER_ZLIB && zip_error_code_system(error) == insufficient_memory);
}

static heed_status broken_zip(const heed__place *place, zip_error_t *error) {
  if (is_memory(error)) return heed__fail_memory(place->ctx, "load", MAX_NAME);
  return heed__broken(place, "is no zip archive that can be read: %s", zip_error_strerror(error));
}

/* What the archive says of an entry must be possible: nothing is allocated for what cannot be there. */
static heed_status check_entry(const heed__place *place, const zip_stat_t *stat, uint64_t left) {
  const zip_uint64_t needed = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
  if ((stat->valid & needed) != needed) return heed__broken(place, "has no size");
  if ((stat->valid & ZIP_STAT_ENCRYPTION_METHOD) && stat->encryption_method != ZIP_EM_NONE)
    return heed__broken(place, "is encrypted");
  if (stat->comp_method != ZIP_CM_STORE && stat->comp_method != ZIP_CM_DEFLATE)
    return heed__broken(place, "is compressed by method %d; stored and deflated ones are read",
                        stat->comp_method);
  if (stat->comp_size > left)
    return heed__broken(place, "would have %llu bytes in the archive, more than there are",
                        (unsigned long long)stat->comp_size);
  const bool stored = stat->comp_method == ZIP_CM_STORE;
  if (stat->size > INT64_MAX || (stored && stat->size != stat->comp_size) ||
      (!stored && stat->size / MOST_INFLATED > stat->comp_size))
    return heed__broken(place, "would make %llu bytes of %llu in the archive, which cannot be",
                        (unsigned long long)stat->size, (unsigned long long)stat->comp_size);
  return HEED_OK;
}

typedef struct entry_source {
  heed__npy_source source;
  zip_file_t *file;
  const archive_file *archive;
} entry_source;

/* For an answer of zip_fread: below 0, or another one that is `wrong`. */
static heed_status broken_entry(const entry_source *entry, zip_int64_t n, const char *wrong) {
  const heed__place *place = entry->source.place;
  zip_error_t *error = zip_file_get_error(entry->file);
  if (entry->archive->failed) return HEED_FILE;
  if (n < 0 && is_memory(error)) return heed__fail_memory(place->ctx, "load", MAX_NAME);
  return heed__broken(place, "cannot be read: %s", n < 0 ? zip_error_strerror(error) : wrong);
}

/* libzip compares the check sum when it comes to the end, so the last bytes tell. */
static heed_status fill_from_entry(heed__npy_source *source, void *out, size_t bytes) {
  entry_source *entry = (entry_source *)source;
  char *p = out;
  while (bytes > 0) {
    const zip_int64_t n = zip_fread(entry->file, p, bytes);
    if (n <= 0) return broken_entry(entry, n, "it is cut short");
    p += n;
    bytes -= (size_t)n;
  }
  return HEED_OK;
}

static heed_status read_to_the_end(entry_source *entry) {
  char more;
  const zip_int64_t n = zip_fread(entry->file, &more, 1);
  return n == 0 ? HEED_OK : broken_entry(entry, n, "it is longer than the archive says");
}

static heed_status load_entry(const heed__place *outer, zip_t *zip, const archive_file *file, zip_uint64_t i,
                              uint64_t *left, heed_archive *archive) {
  heed_context *ctx = outer->ctx;
  zip_stat_t stat;
  heed__place place;
  heed__entry *entry = &archive->entries[i];
  const char *name = zip_get_name(zip, i, 0);
  if (name == NULL || zip_stat_index(zip, i, 0, &stat) != 0) return broken_zip(outer, zip_get_error(zip));
  heed__place_inside(&place, outer, "entry", name);
  heed_status status = check_entry(&place, &stat, *left);
  if (status != HEED_OK) return status;
  *left -= stat.comp_size;
  entry_source source = {.source = {&place, (int64_t)stat.size, fill_from_entry}, .archive = file};
  source.file = zip_fopen_index(zip, i, 0);
  if (source.file == NULL) return file->failed ? HEED_FILE : broken_zip(&place, zip_get_error(zip));
  status = heed__npy_read(ctx, &source.source, &entry->tensor);
  if (status == HEED_OK) status = read_to_the_end(&source);
  zip_fclose(source.file);
  if (status != HEED_OK) return status;
  /* room was made for the whole name */
  char *copy = archive->text + archive->text_used;
  size_t length = strlen(name);
  if (length >= strlen(NAME_END) && strcmp(name + length - strlen(NAME_END), NAME_END) == 0)
    length -= strlen(NAME_END);
  memcpy(copy, name, length);
  copy[length] = '\0';
  archive->text_used += length + 1;
  entry->name = copy;
  return HEED_OK;
}

static heed_status load_entries(const heed__place *place, zip_t *zip, const archive_file *file,
                                heed_archive **out) {
  const zip_int64_t count = zip_get_num_entries(zip, 0);
  size_t text = 0;
  heed_archive *archive = NULL;
  for (zip_int64_t i = 0; i < count; i++) {
    const char *name = zip_get_name(zip, (zip_uint64_t)i, 0);
    if (name == NULL) return broken_zip(place, zip_get_error(zip));
    text += strlen(name) + 1;
  }
  heed_status status = heed__archive_new(place->ctx, count, 0, text, &archive);
  uint64_t left = (uint64_t)file->size;
  for (zip_int64_t i = 0; i < count && status == HEED_OK; i++)
    status = load_entry(place, zip, file, (zip_uint64_t)i, &left, archive);
  if (status == HEED_OK) status = heed__archive_sort(archive, place);
  if (status == HEED_OK)
    *out = archive;
  else
    heed_archive_free(archive);
  return status;
}

heed_status heed__npz_load(const heed__place *place, const char *path, heed_archive **out) {
  archive_file file = {.place = place};
  zip_error_t error;
  heed_status status = heed__file_open(place, path, &file.file, &file.size);
  if (status != HEED_OK) return status;
  if (file.size < MIN_ARCHIVE) { /* libzip would take no bytes for an empty archive */
    heed__file_close(file.file);
    return heed__broken(place, "is no zip archive: it has only %lld bytes", (long long)file.size);
  }
  zip_error_init(&error);
  zip_error_init(&file.error);
  zip_source_t *source = zip_source_function_create(reading, &file, &error);
  zip_t *zip = source == NULL ? NULL : zip_open_from_source(source, ZIP_RDONLY, &error);
  if (zip != NULL) {
    status = load_entries(place, zip, &file, out);
    zip_discard(zip); /* and the source */
  } else {
    status = file.failed ? HEED_FILE : broken_zip(place, &error);
    if (source != NULL) zip_source_free(source);
  }
  zip_error_fini(&file.error);
  zip_error_fini(&error);
  heed__file_close(file.file);
  return status;
}

/* ---- Writing: the tensors as libzip sees them ---- */

/* The .npy of a tensor, from which libzip takes the bytes: first the header, then the pieces. */
typedef struct tensor_source {
  const heed_tensor *x;
  char *buffer; /* of the writer, for all sources: one is read after the other */
  zip_error_t error;
  heed__pieces pieces;
  size_t used; /* bytes of the piece at hand, at first the header */
  size_t header_bytes;
  char header[HEED__NPY_HEADER];
} tensor_source;

static void open_tensor(tensor_source *s) {
  heed__pieces_begin(&s->pieces, s->x, s->buffer, HEED__WRITER_ROOM);
  s->pieces.data = s->header;
  s->pieces.bytes = s->header_bytes;
  s->used = 0;
}

static zip_int64_t read_tensor(tensor_source *s, char *out, zip_uint64_t bytes) {
  if (s->used == s->pieces.bytes) {
    if (!heed__pieces_next(&s->pieces)) return 0;
    s->used = 0;
  }
  const size_t left = s->pieces.bytes - s->used, n = bytes < left ? (size_t)bytes : left;
  memcpy(out, s->pieces.data + s->used, n);
  s->used += n;
  return (zip_int64_t)n;
}

static zip_int64_t giving(void *user, void *data, zip_uint64_t bytes, zip_source_cmd_t command) {
  tensor_source *s = user;
  switch (command) {
  case ZIP_SOURCE_OPEN: open_tensor(s); return 0;
  case ZIP_SOURCE_READ: return read_tensor(s, data, bytes);
  case ZIP_SOURCE_STAT: {
    zip_stat_t *stat = data;
    zip_stat_init(stat);
    stat->size = s->header_bytes + (uint64_t)s->x->numel * heed__element_bytes(s->x->dtype);
    stat->valid = ZIP_STAT_SIZE;
    return (zip_int64_t)sizeof(*stat);
  }
  case ZIP_SOURCE_ERROR: return zip_error_to_data(&s->error, data, bytes);
  case ZIP_SOURCE_CLOSE:
  case ZIP_SOURCE_FREE: return 0;
  case ZIP_SOURCE_SUPPORTS: return ZIP_SOURCE_SUPPORTS_READABLE;
  default: zip_error_set(&s->error, ZIP_ER_OPNOTSUPP, 0); return -1;
  }
}

/* ---- Writing: our writer as libzip sees it ---- */

typedef struct archive_target {
  heed__writer *writer;
  heed_status status; /* of the writer: the context has the message */
  zip_error_t error;
  uint64_t size;
} archive_target;

static zip_int64_t answer(archive_target *t, heed_status status, zip_int64_t result) {
  if (status == HEED_OK) return result;
  t->status = status;
  zip_error_set(&t->error, ZIP_ER_WRITE, EIO);
  return -1;
}

static zip_int64_t seek_target(archive_target *t, void *data, zip_uint64_t bytes) {
  const zip_int64_t at =
      zip_source_seek_compute_offset(heed__writer_at(t->writer), t->size, data, bytes, &t->error);
  return at < 0 ? -1 : answer(t, heed__writer_seek(t->writer, (uint64_t)at), 0);
}

static zip_int64_t write_target(archive_target *t, const void *data, zip_uint64_t bytes) {
  const heed_status status = heed__writer_put(t->writer, data, (size_t)bytes);
  if (heed__writer_at(t->writer) > t->size) t->size = heed__writer_at(t->writer);
  return answer(t, status, (zip_int64_t)bytes);
}

static zip_int64_t taking(void *user, void *data, zip_uint64_t bytes, zip_source_cmd_t command) {
  archive_target *t = user;
  switch (command) {
  case ZIP_SOURCE_WRITE: return write_target(t, data, bytes);
  case ZIP_SOURCE_SEEK_WRITE: return seek_target(t, data, bytes);
  case ZIP_SOURCE_TELL_WRITE: return (zip_int64_t)heed__writer_at(t->writer);
  case ZIP_SOURCE_ERROR: return zip_error_to_data(&t->error, data, bytes);
  case ZIP_SOURCE_STAT: /* there is no archive yet */
  case ZIP_SOURCE_OPEN: zip_error_set(&t->error, ZIP_ER_READ, ENOENT); return -1;
  case ZIP_SOURCE_BEGIN_WRITE:
  case ZIP_SOURCE_COMMIT_WRITE:
  case ZIP_SOURCE_ROLLBACK_WRITE:
  case ZIP_SOURCE_REMOVE:
  case ZIP_SOURCE_CLOSE:
  case ZIP_SOURCE_FREE: return 0;
  case ZIP_SOURCE_SUPPORTS: return ZIP_SOURCE_SUPPORTS_WRITABLE;
  default: zip_error_set(&t->error, ZIP_ER_OPNOTSUPP, 0); return -1;
  }
}

/* ---- Writing: the archive ---- */

static heed_status fail_zip(const archive_target *t, zip_error_t *error) {
  const heed__place *place = &t->writer->place;
  if (t->status != HEED_OK) return t->status;
  if (is_memory(error)) return heed__fail_memory(place->ctx, "save", MAX_NAME);
  return heed__broken(place, "cannot be written: %s", zip_error_strerror(error));
}

/* What zip, or libzip, has no place for. */
static heed_status check_entry_name(heed_context *ctx, const char *name) {
  char quoted[HEED__QUOTED];
  const size_t length = strlen(name), most = MAX_NAME - strlen(NAME_END);
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)name[i] < ' ')
      return heed__fail(ctx, HEED_ARGUMENT,
                        "save: the name %s has a control character, which .npz does not take",
                        heed__quoted(quoted, name, false));
  }
  if (length <= most) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "save: the name %s has %zu bytes; .npz has room for %zu",
                    heed__quoted(quoted, name, false), length, most);
}

/* `name` has room for the longest name with its end. */
static heed_status add_entry(zip_t *zip, const archive_target *t, const char *name, tensor_source *s,
                             char *entry_name) {
  memcpy(entry_name, name, strlen(name));
  memcpy(entry_name + strlen(name), NAME_END, sizeof(NAME_END));
  zip_source_t *source = zip_source_function(zip, giving, s);
  if (source == NULL) return fail_zip(t, zip_get_error(zip));
  const zip_int64_t i = zip_file_add(zip, entry_name, source, ZIP_FL_ENC_UTF_8);
  if (i < 0) {
    zip_source_free(source);
    return fail_zip(t, zip_get_error(zip));
  }
  /* The same tensors make the same bytes: the day is that of the oldest file in a zip, as numpy has it. */
  if (zip_set_file_compression(zip, (zip_uint64_t)i, ZIP_CM_STORE, 0) != 0 ||
      zip_file_set_dostime(zip, (zip_uint64_t)i, 0, 1 << 5 | 1, 0) != 0)
    return fail_zip(t, zip_get_error(zip));
  return HEED_OK;
}

static heed_status add_entries(zip_t *zip, const archive_target *t, const heed__contents *c,
                               tensor_source *sources, char *entry_name) {
  heed_context *ctx = t->writer->place.ctx;
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < c->count && status == HEED_OK; i++) {
    tensor_source *s = &sources[i];
    s->x = c->tensors[i];
    s->buffer = t->writer->pieces;
    zip_error_init(&s->error);
    status = heed__npy_header(ctx, s->x, s->header, &s->header_bytes);
    if (status != HEED_OK) break;
    status = check_entry_name(ctx, c->names[i]);
    if (status == HEED_OK) status = add_entry(zip, t, c->names[i], s, entry_name);
  }
  return status;
}

/* libzip would write nothing. */
static heed_status put_empty_archive(heed__writer *w) {
  static const char end[MIN_ARCHIVE] = "PK\5\6";
  return heed__writer_put(w, end, sizeof(end));
}

heed_status heed__npz_save(heed__writer *w, const heed__contents *c) {
  heed_context *ctx = w->place.ctx;
  if (c->count == 0) return put_empty_archive(w);
  archive_target target = {.writer = w};
  zip_error_t error;
  zip_t *zip = NULL;
  zip_source_t *source = NULL;
  heed_status status;
  const size_t room = (size_t)c->count * sizeof(tensor_source);
  tensor_source *sources = heed__allocate(ctx, room);
  char *entry_name = heed__allocate(ctx, MAX_NAME + 1);
  zip_error_init(&error);
  zip_error_init(&target.error);
  if (sources == NULL || entry_name == NULL) {
    status = heed__fail_memory(ctx, "save", room + MAX_NAME);
    goto done;
  }
  source = zip_source_function_create(taking, &target, &error);
  if (source != NULL) zip = zip_open_from_source(source, ZIP_CREATE | ZIP_TRUNCATE, &error);
  if (zip == NULL) {
    status = fail_zip(&target, &error);
    if (source != NULL) zip_source_free(source);
    goto done;
  }
  status = add_entries(zip, &target, c, sources, entry_name);
  if (status == HEED_OK && zip_close(zip) == 0) goto done;
  if (status == HEED_OK) status = fail_zip(&target, zip_get_error(zip));
  zip_discard(zip);
done:
  zip_error_fini(&target.error);
  zip_error_fini(&error);
  heed__release(ctx, entry_name);
  heed__release(ctx, sources);
  return status;
}

#else

static heed_status fail_without_zip(const heed__place *place) {
  return heed__broken(place, "this build of heed has no zip; compile with -DHEED_ZIP=1 and link libzip");
}

heed_status heed__npz_load(const heed__place *place, const char *path, heed_archive **out) {
  (void)path, (void)out;
  return fail_without_zip(place);
}

heed_status heed__npz_save(heed__writer *w, const heed__contents *c) {
  (void)c;
  return fail_without_zip(&w->place);
}

#endif
