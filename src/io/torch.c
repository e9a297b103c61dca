/* .pt: what torch.save writes, a pickle and the bytes of its storages: a zip archive, or, before PyTorch 1.6,
 * one after the other. Nothing in it is run; the storages are mapped. Source: torch/serialization.py. */
#include <stdio.h>
#include <string.h>

#include "torch.h"
#include "zip.h"

#define LEGACY_MAGIC "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."

/* ---- Storages ---- */

static void free_torch_file(heed__torch_file *f) {
  heed_context *ctx = f->where->ctx;
  heed__pickle_free(&f->pickle);
  heed__release(ctx, f->names);
  heed__release(ctx, f->storages);
  heed__release(ctx, f->text);
  heed__file_map_release(f->map);
}

static heed_status allocate_storages(heed__torch_file *f, int64_t count, size_t text) {
  heed_context *ctx = f->where->ctx;
  f->names = heed__allocate(ctx, heed__array_bytes((uint64_t)count, sizeof(*f->names)));
  f->storages = heed__allocate(ctx, heed__array_bytes((uint64_t)count, sizeof(*f->storages)));
  f->text = heed__allocate(ctx, text);
  if (f->names == NULL || f->storages == NULL || f->text == NULL)
    return heed__fail_memory(ctx, "load", text + (size_t)count * (sizeof(*f->names) + sizeof(*f->storages)));
  return HEED_OK;
}

/* Adds a storage with a key of `length` bytes, which is copied to *text. */
static void add_storage(heed__torch_file *f, const char *key, size_t length, heed__torch_storage storage,
                        char **text) {
  memcpy(*text, key, length);
  (*text)[length] = '\0';
  f->names[f->count] = (heed__name){*text, f->count};
  f->storages[f->count++] = storage;
  *text += length + 1;
}

static heed_status sort_storages(heed__torch_file *f) {
  char quoted[HEED__QUOTED];
  const char *duplicate;
  const heed_status status = heed__sort_names(f->where->ctx, "load", f->names, f->count, &duplicate);
  if (status != HEED_OK || duplicate == NULL) return status;
  return heed__fail_file(f->where, "duplicate storage %s", heed__quoted(quoted, duplicate, false));
}

/* ---- Before PyTorch 1.6 ---- */

/* Reads the pickle at *at, and advances. */
static heed_status next_pickle(const heed__torch_file *f, size_t *at, heed__pickle *out) {
  const heed_status status = heed__pickle_read(f->where, f->map->data + *at, f->map->size - *at, out);
  *at += out->bytes;
  return status;
}

/* Each storage of the pickle has the number of its elements in `bytes`, until it is read, as -1 - bits in
 * `at`. */
static heed_status note_widths(const heed__torch_file *f) {
  for (size_t id = 1; id < f->pickle.values.count; id++) {
    const heed__pickle_value *value = heed__pickle_at(&f->pickle, (heed__pickle_id)id), *key;
    const heed__stored *stored = NULL;
    int64_t count;
    if (value->kind != HEED__PICKLE_OUTSIDE) continue;
    const heed__pickle_value *kind =
        heed__pickle_item_at(&f->pickle, heed__pickle_at(&f->pickle, value->first), 0);
    if (kind != NULL && heed__pickle_is(kind, HEED__PICKLE_TEXT, "module")) continue;
    const heed_status status = heed__torch_read_storage(f, value, &stored, &key, &count);
    if (status != HEED_OK) return status;
    heed__torch_storage *storage = heed__torch_find_storage(f, key);
    if (storage == NULL) return heed__fail_torch(f, "a storage is missing: the file is cut short");
    storage->bytes = stored != NULL ? (size_t)stored->bits / 8 : 1;
  }
  return HEED_OK;
}

/* The storages follow in the order of a list of their keys: for each the number of elements and these,
 * little-endian on every machine. */
static heed_status read_legacy_storages(heed__torch_file *f, const heed__pickle *keys, size_t at) {
  const heed__pickle_value *list = heed__pickle_at(keys, keys->root);
  size_t text = 0;
  if (list->kind != HEED__PICKLE_LIST) return heed__fail_torch(f, "the list of its storages is missing");
  heed__pickle_id item = list->first;
  while (item != 0) {
    const heed__pickle_value *key = heed__pickle_at(keys, heed__pickle_next(keys, &item));
    if (key->kind != HEED__PICKLE_TEXT) return heed__fail_torch(f, "the key of a storage is not a text");
    text += key->length + 1;
  }
  heed_status status = allocate_storages(f, list->integer, text);
  if (status != HEED_OK) return status;
  char *end = f->text;
  for (item = list->first; item != 0;) {
    const heed__pickle_value *key = heed__pickle_at(keys, heed__pickle_next(keys, &item));
    add_storage(f, key->text, key->length, (heed__torch_storage){0, 1}, &end);
  }
  status = sort_storages(f);
  if (status == HEED_OK) status = note_widths(f);
  for (int64_t i = 0; i < f->count && status == HEED_OK; i++) {
    heed__torch_storage *storage = &f->storages[i];
    const unsigned char *p = (const unsigned char *)f->map->data + at;
    uint64_t count = 0;
    if (f->map->size - at < 8) return heed__fail_torch(f, "it is cut short: a storage is missing");
    for (int b = 0; b < 8; b++) count = count << 8 | p[7 - b];
    at += 8;
    if (count > (f->map->size - at) / storage->bytes)
      return heed__fail_torch(f, "it is cut short: a storage is incomplete");
    *storage = (heed__torch_storage){at, (size_t)count * storage->bytes};
    at += storage->bytes;
  }
  return status;
}

/* The pickles: a number, the version of the protocol, the sizes of C's types, the value, the keys of its
 * storages. */
static heed_status load_legacy(heed__torch_file *f, heed__loaded *out) {
  size_t at = sizeof(LEGACY_MAGIC) - 1;
  heed__pickle other = {0};
  heed_status status = HEED_OK;
  for (int i = 0; i < 2 && status == HEED_OK; i++) { /* torch.load ignores these, too */
    status = next_pickle(f, &at, &other);
    heed__pickle_free(&other);
  }
  if (status == HEED_OK) status = next_pickle(f, &at, &f->pickle);
  if (status == HEED_OK) {
    status = next_pickle(f, &at, &other);
    if (status == HEED_OK) status = read_legacy_storages(f, &other, at);
    heed__pickle_free(&other);
  }
  return status == HEED_OK ? heed__torch_load_values(f, out) : status;
}

/* ---- Zip archives ---- */

#if HEED_ZIP

/* Whether an entry is called `prefix` + `name`; prefix ends with a slash. */
static bool is_called(const heed__zip_entry *e, const char *prefix, size_t length, const char *name) {
  return e->name_length == length + strlen(name) && memcmp(e->name, prefix, length) == 0 &&
         memcmp(e->name + length, name, strlen(name)) == 0;
}

/* The entry FOLDER/data.pkl, or NULL. */
static const heed__zip_entry *find_pickle(const heed__zip *zip, size_t *folder) {
  static const char ending[] = "/data.pkl";
  for (int64_t i = 0; i < zip->count; i++) {
    const heed__zip_entry *e = &zip->entries[i];
    *folder = e->name_length - (sizeof(ending) - 2);
    if (e->name_length >= sizeof(ending) - 1 &&
        memcmp(e->name + *folder - 1, ending, sizeof(ending) - 1) == 0)
      return e;
  }
  return NULL;
}

bool heed__torch_is_in(const heed__zip *zip) {
  size_t folder;
  return find_pickle(zip, &folder) != NULL;
}

/* The bytes of a stored entry in the mapped file. */
static heed_status find_torch_bytes(const heed__torch_file *f, const heed__zip *zip, const heed__zip_entry *e,
                                    heed__torch_storage *out) {
  heed__zip_stream stream;
  if (e->method != HEED__ZIP_STORED)
    return heed__fail_torch(f, "it is compressed, as torch.save does not do");
  const heed_status status = heed__zip_begin(&stream, zip, e, f->where);
  if (status != HEED_OK) return status;
  *out = (heed__torch_storage){(size_t)stream.at, (size_t)e->size};
  if (stream.at > f->map->size || e->size > f->map->size - stream.at)
    return heed__fail_torch(f, "it was cut short while it was read");
  return HEED_OK;
}

/* FOLDER/data/KEY are the storages. */
static heed_status read_torch_entries(heed__torch_file *f, const heed__zip *zip, const char *folder,
                                      size_t length) {
  static const char data[] = "data/";
  const size_t before = length + sizeof(data) - 1;
  size_t text = 0;
  for (int64_t i = 0; i < zip->count; i++) text += zip->entries[i].name_length + 1;
  heed_status status = allocate_storages(f, zip->count, text);
  char *end = f->text;
  for (int64_t i = 0; i < zip->count && status == HEED_OK; i++) {
    const heed__zip_entry *e = &zip->entries[i];
    heed__torch_storage storage;
    if (is_called(e, folder, length, "byteorder")) {
      status = find_torch_bytes(f, zip, e, &storage);
      if (status == HEED_OK)
        f->big_endian = storage.bytes == 3 && memcmp(f->map->data + storage.at, "big", 3) == 0;
    }
    if (e->name_length <= before || memcmp(e->name, folder, length) != 0 ||
        memcmp(e->name + length, data, sizeof(data) - 1) != 0)
      continue;
    if (memchr(e->name, '\0', e->name_length) != NULL)
      return heed__fail_torch(f, "an entry's name has a zero byte");
    status = find_torch_bytes(f, zip, e, &storage);
    if (status == HEED_OK) add_storage(f, e->name + before, e->name_length - before, storage, &end);
    if (status == HEED_OK && heed__is_due_at(&f->where->ctx->pace, i))
      status = heed__stopped(f->where->ctx, "load");
  }
  return status == HEED_OK ? sort_storages(f) : status;
}

static heed_status load_zipped(heed__torch_file *f, const char *path, heed__loaded *out) {
  heed__zip zip;
  heed__torch_storage pickle;
  size_t length = 0;
  heed_status status = heed__zip_open(f->where, path, &zip);
  if (status != HEED_OK) return status;
  const heed__zip_entry *e = find_pickle(&zip, &length);
  if (e == NULL)
    status = heed__fail_torch(f, "is not a file of torch.save: the archive has no data.pkl");
  else
    status = find_torch_bytes(f, &zip, e, &pickle);
  if (status == HEED_OK) status = read_torch_entries(f, &zip, e->name, length);
  if (status == HEED_OK)
    status = heed__pickle_read(f->where, f->map->data + pickle.at, pickle.bytes, &f->pickle);
  if (status == HEED_OK) status = heed__torch_load_values(f, out);
  heed__zip_close(&zip);
  return status;
}

#else

static heed_status load_zipped(heed__torch_file *f, const char *path, heed__loaded *out) {
  (void)path, (void)out;
  return heed__fail_torch(f, "this build of heed has no zip; compile with -DHEED_ZIP=1 and link zlib");
}

#endif

heed_status heed__torch_load(const heed__where *where, const char *path, heed__loaded *out) {
  heed__torch_file f = {.where = where, .pickle = {.ctx = where->ctx}};
  heed_status status = heed__file_map_open(where, path, &f.map);
  if (status != HEED_OK) return status;
  const size_t magic = sizeof(LEGACY_MAGIC) - 1;
  if (f.map->size >= 2 && memcmp(f.map->data, "PK", 2) == 0)
    status = load_zipped(&f, path, out);
  else if (f.map->size >= magic && memcmp(f.map->data, LEGACY_MAGIC, magic) == 0)
    status = load_legacy(&f, out);
  else
    status =
        heed__fail_torch(&f, "is not a file of torch.save: it begins neither with PK nor with its number");
  free_torch_file(&f);
  return status;
}

const heed__format heed__format_torch = {
    .ending = ".pt",
    .metadata = true,
    .magic = {{0, sizeof(LEGACY_MAGIC) - 1, LEGACY_MAGIC}},
    .load = heed__torch_load,
};
