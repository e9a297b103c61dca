/* Archives: tensors by name, in the order of their file. */
#include "files.h"

#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

static int compare_names(const void *a, const void *b) {
  return strcmp(((const heed__name *)a)->name, ((const heed__name *)b)->name);
}

heed_status heed__sort_names(heed_context *ctx, const char *function, heed__name *names, int64_t count,
                             const char **duplicate) {
  *duplicate = NULL;
  const heed_status status = heed__sort_records(ctx, function, names, count, sizeof(*names), compare_names);
  for (int64_t i = 1; i < count && status == HEED_OK; i++) {
    if (strcmp(names[i - 1].name, names[i].name) == 0) *duplicate = names[i].name;
  }
  return status;
}

/* ---- Construction ---- */

heed_status heed__archive_new(const heed__where *where, int64_t count, int64_t pairs, size_t text,
                              heed_archive **out) {
  heed_context *ctx = where->ctx;
  heed_archive *a = heed__allocate(ctx, sizeof(*a));
  if (a == NULL) return heed__fail_memory(ctx, "load", sizeof(*a));
  const size_t n = (size_t)count;
  *a = (heed_archive){.ctx = ctx, .pairs = pairs};
  memcpy(a->where, where->text, sizeof(a->where));
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

const char *heed__archive_bytes(heed_archive *archive, const char *text, size_t length) {
  char *copy = archive->text + archive->text_used;
  memcpy(copy, text, length);
  copy[length] = '\0';
  archive->text_used += length + 1;
  return copy;
}

const char *heed__archive_text(heed_archive *archive, const char *text) {
  return heed__archive_bytes(archive, text, strlen(text));
}

heed_status heed__archive_sort(heed_archive *archive, const heed__where *where) {
  char quoted[HEED__QUOTED];
  for (int64_t i = 0; i < archive->count; i++) archive->sorted[i] = (heed__name){archive->entries[i].name, i};
  const char *duplicate;
  const heed_status status =
      heed__sort_names(archive->ctx, "load", archive->sorted, archive->count, &duplicate);
  if (status != HEED_OK || duplicate == NULL) return status;
  return heed__fail_file(where, "duplicate name %s", heed__quoted(quoted, duplicate, false));
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
    heed__release(ctx, archive->entries[i].refusal);
    heed__release(ctx, archive->entries[i].unknown);
    heed__mapped_part_release(archive->entries[i].opened);
    heed__file_map_release(archive->entries[i].map);
  }
  heed__release(ctx, archive->entries);
  heed__release(ctx, archive->sorted);
  heed__release(ctx, archive->metadata);
  heed__release(ctx, archive->text);
  heed__release(ctx, archive->strides);
  heed__release(ctx, archive->values);
  heed__release(ctx, archive->sorted_values);
  heed__file_map_release(archive->map);
  heed__release(ctx, archive);
}

/* ---- Queries ---- */

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
    return heed__fail(ctx, HEED_INDEX,
                      "archive_tensor: i is %lld; it must be from 1 to %lld, the number of tensors",
                      (long long)i, (long long)archive->count);
  if (*out != NULL)
    return heed__fail(ctx, HEED_ARGUMENT, "archive_tensor: *out is already a tensor; it must be NULL");
  return heed__entry_open(archive, &archive->entries[i - 1], out);
}

bool heed__archive_is_ready(const heed_archive *archive, int64_t i) {
  const heed__entry *entry = &archive->entries[i - 1];
  return entry->tensor != NULL || heed__entry_is_mapped(entry);
}

bool heed__archive_is_nested(const heed_archive *archive) {
  return archive->nested;
}

void heed__archive_describe(const heed_archive *archive, int64_t i, char out[HEED__ENTRY_TEXT]) {
  heed__entry_text(&archive->entries[i - 1], out, HEED__ENTRY_TEXT);
}

const char *heed__archive_lacks(const heed_archive *archive, int64_t i, const char **fix, const char **file) {
  *file = archive->where;
  return heed__entry_lacks(&archive->entries[i - 1], fix);
}

bool heed_archive_metadata(const heed_archive *archive, int64_t i, const char **key, const char **value) {
  if (archive == NULL || key == NULL || value == NULL || i < 1 || i > archive->pairs) return false;
  *key = archive->metadata[2 * i - 2];
  *value = archive->metadata[2 * i - 1];
  return true;
}

/* ---- Metadata of GGUF files ---- */

bool heed_gguf_find(const heed_archive *archive, const char *key, heed_gguf_value *out) {
  const heed__name name = {key, 0};
  if (archive == NULL || key == NULL || out == NULL || archive->value_count == 0) return false;
  const heed__name *found = bsearch(&name, archive->sorted_values, (size_t)archive->value_count,
                                    sizeof(*archive->sorted_values), compare_names);
  if (found != NULL) *out = archive->values[found->index].value;
  return found != NULL;
}

bool heed_gguf_pair(const heed_archive *archive, int64_t i, const char **key, heed_gguf_value *out) {
  if (archive == NULL || key == NULL || out == NULL || i < 1 || i > archive->value_count) return false;
  *key = archive->values[i - 1].key;
  *out = archive->values[i - 1].value;
  return true;
}
