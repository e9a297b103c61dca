/* .npz: a zip archive of .npy files. Stored and deflated entries are read; stored ones are written, as by
 * numpy.savez. */
#include "zip.h"

#include <string.h>

#if HEED_ZIP

#define NPZ_ENDING ".npy" /* of the entries' names */

/* ---- Loading ---- */

typedef struct entry_source {
  heed__npy_source source;
  heed__zip_stream stream;
} entry_source;

static heed_status fill_from_entry(heed__npy_source *source, void *out, size_t bytes) {
  return heed__zip_read(&((entry_source *)source)->stream, out, bytes);
}

/* Copies the entry's name into the archive's text. */
static heed_status copy_entry_name(const heed__where *where, const heed__zip_entry *e, heed_archive *archive,
                                   char **out) {
  char quoted[HEED__QUOTED];
  char *name = archive->text + archive->text_used;
  if (e->name_length > 0) memcpy(name, e->name, e->name_length);
  name[e->name_length] = '\0';
  archive->text_used += e->name_length + 1;
  *out = name;
  if (strlen(name) < e->name_length)
    return heed__fail_file(where, "the name %s contains the character 0", heed__quoted(quoted, name, false));
  if (heed__text_check(name, e->name_length) > 0)
    return heed__fail_file(where, "the name %s is not UTF-8", heed__quoted(quoted, name, false));
  return HEED_OK;
}

/* Removes ".npy", as numpy does. */
static void remove_ending(char *name) {
  const size_t length = strlen(name), ending = strlen(NPZ_ENDING);
  if (length >= ending && strcmp(name + length - ending, NPZ_ENDING) == 0) name[length - ending] = '\0';
}

/* The other entries can be used: the message is for those who use this one. */
static heed_status keep_refusal(heed_context *ctx, heed__entry *out) {
  const char *message = heed_message(ctx);
  const size_t size = strlen(message) + 1;
  out->refusal = heed__allocate(ctx, size);
  if (out->refusal == NULL) return heed__fail_memory(ctx, "load", size);
  memcpy(out->refusal, message, size);
  return HEED_OK;
}

static heed_status load_entry(const heed__zip *zip, const heed__zip_entry *e, heed_archive *archive,
                              heed__entry *out) {
  heed__where where;
  entry_source entry;
  char *name = NULL;
  heed_status status = copy_entry_name(zip->where, e, archive, &name);
  if (status != HEED_OK) return status;
  heed__where_inside(&where, zip->where, "entry", name);
  status = heed__zip_begin(&entry.stream, zip, e, &where);
  if (status != HEED_OK) return status;
  entry.source = (heed__npy_source){.where = &where, .left = (int64_t)e->size, .fill = fill_from_entry};
  status = heed__npy_read(where.ctx, &entry.source, &out->tensor);
  status = heed__zip_end(&entry.stream, status);
  if (status == HEED_FILE && entry.source.refused) status = keep_refusal(where.ctx, out);
  remove_ending(name);
  out->name = name;
  return status;
}

static heed_status load_npz(const heed__where *where, const char *path, heed__loaded *out) {
  heed__zip zip;
  size_t text = 0;
  heed_archive *archive = NULL;
  heed_status status = heed__zip_open(where, path, &zip);
  if (status != HEED_OK) return status;
#if !HEED_MINIMAL
  if (heed__torch_is_in(&zip)) {
    heed__zip_close(&zip);
    return heed__torch_load(where, path, out);
  }
#endif
  for (int64_t i = 0; i < zip.count; i++) text += zip.entries[i].name_length + 1;
  status = heed__archive_new(where, zip.count, 0, text, &archive);
  for (int64_t i = 0; i < zip.count && status == HEED_OK; i++)
    status = load_entry(&zip, &zip.entries[i], archive, &archive->entries[i]);
  if (status == HEED_OK) status = heed__archive_sort(archive, where);
  heed__zip_close(&zip);
  if (status == HEED_OK) {
    out->archive = archive;
  } else {
    heed_archive_free(archive);
  }
  return status;
}

/* ---- Saving ---- */

/* Names that zip cannot hold, or that would garble a terminal. */
static heed_status check_entry_name(heed_context *ctx, const char *name) {
  char quoted[HEED__QUOTED];
  const size_t length = strlen(name), most = HEED__ZIP_MAX_TEXT - strlen(NPZ_ENDING);
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)name[i] < ' ')
      return heed__fail(ctx, HEED_ARGUMENT,
                        "save: the name %s contains a control character; in .npz it must not",
                        heed__quoted(quoted, name, false));
  }
  if (length <= most) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "save: the name %s has %zu bytes; in .npz it must have at most %zu",
                    heed__quoted(quoted, name, false), length, most);
}

/* Checks everything before the first byte is written. */
static heed_status check_npz_contents(heed__writer *w, const heed__contents *c) {
  heed_context *ctx = w->where.ctx;
  double bytes = 0;
  for (int64_t i = 0; i < c->count; i++) {
    const heed_tensor *x = c->tensors[i];
    char header[HEED__NPY_HEADER];
    size_t header_bytes;
    heed_status status = heed__npy_header(ctx, x, header, &header_bytes);
    if (status == HEED_OK) status = check_entry_name(ctx, c->names[i]);
    if (status == HEED_OK && (i & 0xfff) == 0xfff && heed__is_due(&ctx->pace))
      status = heed__stopped(ctx, "save");
    if (status != HEED_OK) return status;
    bytes += (double)header_bytes + (double)x->numel * (double)heed__element_bytes(x->dtype);
  }
  return heed__writer_check_space(w, bytes);
}

static heed_status put_npy_entry(heed__zip_writer *z, const heed_tensor *x) {
  heed__pieces pieces;
  char header[HEED__NPY_HEADER];
  size_t bytes;
  heed_status status = heed__npy_header(z->writer->where.ctx, x, header, &bytes);
  if (status != HEED_OK) return status;
  status = heed__zip_put_header(z, bytes + (uint64_t)x->numel * heed__element_bytes(x->dtype));
  if (status == HEED_OK) status = heed__zip_put(z, header, bytes);
  heed__pieces_begin(&pieces, x, z->writer->pieces, HEED__WRITER_BUFFER);
  while (status == HEED_OK && heed__pieces_next(&pieces))
    status = heed__zip_put(z, pieces.data, pieces.bytes);
  return status == HEED_OK ? heed__zip_finish_entry(z) : status;
}

heed_status heed__npz_save(heed__writer *w, const heed__contents *c, heed__zip_limits limits) {
  heed_context *ctx = w->where.ctx;
  heed_status status = check_npz_contents(w, c);
  if (status != HEED_OK) return status;
  const size_t bytes = heed__array_bytes((uint64_t)c->count, sizeof(heed__zip_written));
  heed__zip_writer z = {.writer = w, .contents = c, .ending = NPZ_ENDING, .limits = limits};
  z.entries = heed__allocate(ctx, bytes);
  if (z.entries == NULL) return heed__fail_memory(ctx, "save", bytes);
  for (int64_t i = 0; i < c->count && status == HEED_OK; i++) status = put_npy_entry(&z, c->tensors[i]);
  if (status == HEED_OK) status = heed__zip_put_directory(&z);
  heed__release(ctx, z.entries);
  return status;
}

#else

static heed_status fail_without_zip(const heed__where *where) {
  return heed__fail_file(where, "this build of heed has no zip; compile with -DHEED_ZIP=1 and link zlib");
}

static heed_status load_npz(const heed__where *where, const char *path, heed__loaded *out) {
  (void)path, (void)out;
  return fail_without_zip(where);
}

heed_status heed__npz_save(heed__writer *w, const heed__contents *c, heed__zip_limits limits) {
  (void)c, (void)limits;
  return fail_without_zip(&w->where);
}

#endif

static heed_status save_npz(heed__writer *w, const heed__contents *contents) {
  return heed__npz_save(w, contents, HEED__ZIP_LIMITS);
}

const heed__format heed__format_npz = {
    .ending = ".npz",
    .magic = {{0, 4, "PK\3\4"}, {0, 4, "PK\5\6"}},
    .load = load_npz,
    .save = save_npz,
};
