/* Archives: tensors by name, in the order of a file; and which format a path means. */
#include "files.h"

#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

static int compare_names(const void *a, const void *b) {
  return strcmp(((const heed__name *)a)->name, ((const heed__name *)b)->name);
}

heed_status heed__sort_names(heed_context *ctx, const char *function, heed__name *names, int64_t count,
                             const char **twice) {
  *twice = NULL;
  const heed_status status = heed__sort_records(ctx, function, names, count, sizeof(*names), compare_names);
  for (int64_t i = 1; i < count && status == HEED_OK; i++) {
    if (strcmp(names[i - 1].name, names[i].name) == 0) *twice = names[i].name;
  }
  return status;
}

/* ---- Making ---- */

heed_status heed__archive_new(heed_context *ctx, int64_t count, int64_t pairs, size_t text,
                              heed_archive **out) {
  heed_archive *a = heed__allocate(ctx, sizeof(*a));
  if (a == NULL) return heed__fail_memory(ctx, "load", sizeof(*a));
  const size_t n = (size_t)count;
  *a = (heed_archive){.ctx = ctx, .pairs = pairs};
  a->entries = heed__allocate(ctx, n * sizeof(*a->entries));
  a->sorted = heed__allocate(ctx, n * sizeof(*a->sorted));
  a->metadata = heed__allocate(ctx, 2 * (size_t)pairs * sizeof(*a->metadata));
  a->text = heed__allocate(ctx, text);
  if (a->entries == NULL || a->sorted == NULL || a->metadata == NULL || a->text == NULL) {
    heed_archive_free(a);
    return heed__fail_memory(ctx, "load", n * (sizeof(*a->entries) + sizeof(*a->sorted)) + text);
  }
  while (a->count < count) {
    a->entries[a->count++] = (heed__entry){.name = ""};
    const heed_status status = heed__is_due_at(&ctx->pace, a->count) ? heed__stopped(ctx, "load") : HEED_OK;
    if (status == HEED_OK) continue;
    heed_archive_free(a);
    return status;
  }
  *out = a;
  return HEED_OK;
}

const char *heed__archive_text(heed_archive *archive, const char *text) {
  const size_t size = strlen(text) + 1;
  char *copy = archive->text + archive->text_used;
  memcpy(copy, text, size);
  archive->text_used += size;
  return copy;
}

heed_status heed__archive_sort(heed_archive *archive, const heed__place *place) {
  char quoted[HEED__QUOTED];
  for (int64_t i = 0; i < archive->count; i++) archive->sorted[i] = (heed__name){archive->entries[i].name, i};
  const char *twice;
  const heed_status status = heed__sort_names(archive->ctx, "load", archive->sorted, archive->count, &twice);
  if (status != HEED_OK || twice == NULL) return status;
  return heed__broken(place, "the name %s is there twice", heed__quoted(quoted, twice, false));
}

const heed__entry *heed__archive_find(const heed_archive *archive, const char *name) {
  const heed__name key = {name, 0};
  if (archive->count == 0) return NULL;
  const heed__name *found =
      bsearch(&key, archive->sorted, (size_t)archive->count, sizeof(*archive->sorted), compare_names);
  return found == NULL ? NULL : &archive->entries[found->index];
}

void heed_archive_free(heed_archive *archive) {
  if (archive == NULL) return;
  heed_context *ctx = archive->ctx;
  for (int64_t i = 0; i < archive->count; i++) {
    heed_tensor_free(archive->entries[i].tensor);
    heed__file_map_release(archive->entries[i].map);
  }
  heed__release(ctx, archive->entries);
  heed__release(ctx, archive->sorted);
  heed__release(ctx, archive->metadata);
  heed__release(ctx, archive->text);
  heed__release(ctx, archive);
}

/* ---- Asking ---- */

int64_t heed_archive_count(const heed_archive *archive) {
  return archive != NULL ? archive->count : 0;
}

const char *heed_archive_name(const heed_archive *archive, int64_t i) {
  return archive != NULL && i >= 1 && i <= archive->count ? archive->entries[i - 1].name : NULL;
}

heed_status heed_archive_tensor(const heed_archive *archive, int64_t i, heed_tensor **out) {
  heed_context *ctx = archive != NULL ? archive->ctx : NULL;
  HEED__ENTER(ctx, "archive_tensor", out);
  if (i < 1 || i > archive->count)
    return heed__fail(ctx, HEED_INDEX, "archive_tensor: i is %lld and the archive has %lld tensor%s",
                      (long long)i, (long long)archive->count, HEED__S(archive->count));
  if (*out != NULL)
    return heed__fail(ctx, HEED_ARGUMENT, "archive_tensor: *out is a tensor already; it must be NULL");
  const heed__entry *entry = &archive->entries[i - 1];
  if (entry->tensor != NULL) return heed__tensor_from_view(ctx, "load", entry->tensor, out);
  return heed__safetensors_tensor(ctx, entry, out);
}

bool heed_archive_metadata(const heed_archive *archive, int64_t i, const char **key, const char **value) {
  if (archive == NULL || key == NULL || value == NULL || i < 1 || i > archive->pairs) return false;
  *key = archive->metadata[2 * i - 2];
  *value = archive->metadata[2 * i - 1];
  return true;
}

/* ---- Which format ---- */

static bool ends_with(const char *path, const char *end) {
  const size_t length = strlen(path), end_length = strlen(end);
  return length > end_length && strcmp(path + length - end_length, end) == 0;
}

heed__format heed__format_of_path(const char *path) {
  return ends_with(path, ".safetensors")              ? HEED__SAFETENSORS
         : ends_with(path, ".safetensors.index.json") ? HEED__SAFETENSORS_INDEX
         : ends_with(path, ".npy")                    ? HEED__NPY
         : ends_with(path, ".npz")                    ? HEED__NPZ
                                                      : HEED__UNKNOWN;
}

/* What a file of another name begins with. */
static heed_status format_of_file(const heed__place *place, const char *path, heed__format *out) {
  heed__file file;
  int64_t size;
  unsigned char start[9] = {0};
  heed_status status = heed__file_open(place, path, &file, &size);
  if (status != HEED_OK) return status;
  status = heed__file_read(place, file, 0, start, size < 9 ? (size_t)size : 9);
  heed__system_close(file);
  if (status != HEED_OK) return status;
  *out = memcmp(start, "\x93NUMPY", 6) == 0                         ? HEED__NPY
         : memcmp(start, "PK\3\4", 4) == 0                          ? HEED__NPZ
         : memcmp(start, "PK\5\6", 4) == 0                          ? HEED__NPZ
         : start[8] == '{' && memcmp(start + 4, "\0\0\0\0", 4) == 0 ? HEED__SAFETENSORS
                                                                    : HEED__UNKNOWN;
  if (*out != HEED__UNKNOWN) return status;
  return heed__broken(place, "is of no known kind; known are .safetensors, .safetensors.index.json, .npz and "
                             ".npy, by the name or by the first bytes");
}

/* ---- Loading ---- */

heed_status heed__check_load(heed_context *ctx, bool out_is_free) {
  if (out_is_free) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "load: *out is there already; it must be NULL");
}

static heed_status load_archive(const heed__place *place, const char *path, heed__format format,
                                heed_archive **out) {
  switch (format) {
  case HEED__SAFETENSORS: return heed__safetensors_load(place, path, out);
  case HEED__SAFETENSORS_INDEX: return heed__sharded_load(place, path, out);
  case HEED__NPZ: return heed__npz_load(place, path, out);
  default: return heed__broken(place, "is an .npy file, which holds one tensor without a name");
  }
}

heed_status heed_load_archive(heed_context *ctx, const char *path, heed_archive **out) {
  HEED__ENTER(ctx, "load", path, out);
  heed__place place;
  heed_status status = heed__check_load(ctx, *out == NULL);
  if (status != HEED_OK) return status;
  heed__place_init(&place, ctx, "load", path);
  heed__format format = heed__format_of_path(path);
  if (format == HEED__UNKNOWN) status = format_of_file(&place, path, &format);
  return status == HEED_OK ? load_archive(&place, path, format, out) : status;
}

heed_status heed__load_file(heed_context *ctx, const char *path, heed_archive **archive,
                            heed_tensor **tensor) {
  heed__place place;
  heed__place_init(&place, ctx, "load", path);
  heed__format format = heed__format_of_path(path);
  heed_status status = HEED_OK;
  if (format == HEED__UNKNOWN) status = format_of_file(&place, path, &format);
  if (status != HEED_OK) return status;
  if (format == HEED__NPY) return heed_load_npy(ctx, path, tensor);
  return load_archive(&place, path, format, archive);
}

/* ---- Saving ---- */

static heed_status check_save(heed_context *ctx, const heed__contents *c) {
  char quoted[HEED__QUOTED];
  size_t invalid = 0;
  if (c->count < 0 || c->pairs < 0)
    return heed__fail(ctx, HEED_ARGUMENT, "save: %s is %lld; it must be 0 or more",
                      c->count < 0 ? "count" : "pairs", (long long)(c->count < 0 ? c->count : c->pairs));
  if (c->count > 0 && c->names == NULL) return heed__refuse_pointer(ctx, "save", "names", NULL);
  if (c->pairs > 0 && c->metadata == NULL) return heed__refuse_pointer(ctx, "save", "metadata", NULL);
  heed_status status = heed__check_tensors(ctx, "save", "tensors", c->count, c->tensors);
  if (status != HEED_OK) return status;
  for (int64_t i = 0; i < c->count; i++) {
    const char *name = c->names[i];
    if (name == NULL)
      return heed__fail(ctx, HEED_ARGUMENT, "save: number %lld of names is missing (NULL)", (long long)i + 1);
    status = heed__text_check_in_steps(ctx, "save", name, strlen(name), &invalid);
    if (status != HEED_OK) return status;
    if (invalid > 0)
      return heed__fail(ctx, HEED_ARGUMENT, "save: the name %s is not UTF-8",
                        heed__quoted(quoted, name, false));
  }
  for (int64_t i = 0; i < 2 * c->pairs; i++) {
    const char *text = c->metadata[i];
    if (text != NULL) status = heed__text_check_in_steps(ctx, "save", text, strlen(text), &invalid);
    if (status != HEED_OK) return status;
    if (text == NULL || invalid > 0)
      return heed__fail(ctx, HEED_ARGUMENT, "save: metadata: %s is not UTF-8",
                        text == NULL ? "NULL" : heed__quoted(quoted, text, false));
  }
  return HEED_OK;
}

/* `step` 2: only the keys of metadata. */
static heed_status check_distinct(heed_context *ctx, const char *what, int64_t count, int64_t step,
                                  const char *const *texts) {
  char quoted[HEED__QUOTED];
  const size_t bytes = heed__array_bytes((uint64_t)count, sizeof(heed__name));
  heed__name *names = heed__allocate(ctx, bytes);
  if (names == NULL) return heed__fail_memory(ctx, "save", bytes);
  for (int64_t i = 0; i < count; i++) names[i] = (heed__name){texts[i * step], i};
  const char *twice;
  const heed_status status = heed__sort_names(ctx, "save", names, count, &twice);
  heed__release(ctx, names);
  if (status != HEED_OK || twice == NULL) return status;
  return heed__fail(ctx, HEED_ARGUMENT, "save: the %s %s is given twice", what,
                    heed__quoted(quoted, twice, false));
}

heed_status heed_save_archive(heed_context *ctx, const char *path, int64_t count, const char *const *names,
                              const heed_tensor *const *tensors, int64_t pairs, const char *const *metadata) {
  HEED__ENTER(ctx, "save", path);
  const heed__contents contents = {count, names, tensors, pairs, metadata};
  char quoted[HEED__QUOTED];
  heed__writer w;
  heed_status status = check_save(ctx, &contents);
  if (status == HEED_OK) status = check_distinct(ctx, "name", count, 1, names);
  if (status == HEED_OK) status = check_distinct(ctx, "metadata key", pairs, 2, metadata);
  if (status != HEED_OK) return status;
  const heed__format format = heed__format_of_path(path);
  if (format != HEED__SAFETENSORS && format != HEED__NPZ)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "save: %s: tensors by name are saved as .safetensors or .npz, by the end of the name",
                      heed__quoted(quoted, path, true));
  if (format == HEED__NPZ && pairs > 0)
    return heed__fail(ctx, HEED_ARGUMENT, "save: %s: metadata is for .safetensors; .npz has no place for it",
                      heed__quoted(quoted, path, true));
  status = heed__writer_begin(&w, ctx, path);
  if (status != HEED_OK) return status;
  status = format == HEED__NPZ ? heed__npz_save(&w, &contents, HEED__ZIP_LIMITS)
                               : heed__safetensors_save(&w, &contents);
  return heed__writer_end(&w, status);
}
