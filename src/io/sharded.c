/* .safetensors.index.json: a map from tensors to the .safetensors files in the same folder that hold them. */
#include "files.h"

#include <stdio.h>
#include <string.h>

/* A list of the files opened so far, newest first. */
typedef struct shard {
  struct shard *next;
  const char *name;
  heed_archive *archive;
} shard;

static void free_shards(heed_context *ctx, shard *first) {
  while (first != NULL) {
    shard *next = first->next;
    heed_archive_free(first->archive);
    heed__release(ctx, first);
    first = next;
  }
}

/* The path of a file in the index's folder; others are refused. */
static heed_status shard_path(const heed__where *where, const char *index, const char *name,
                              char path[HEED__PATH]) {
  char quoted[HEED__QUOTED];
  const int folder = (int)heed__folder_length(index);
  if (name[0] == '\0' || heed__folder_length(name) > 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
    return heed__fail_file(where, "weight_map: the file is %s; it must be a name in the folder of the index",
                           heed__quoted(quoted, name, false));
  const int length = snprintf(path, HEED__PATH, "%.*s%s", folder, index, name);
  if (length < 0 || length >= HEED__PATH)
    return heed__fail_file(where, "weight_map: the path of %s is too long",
                           heed__quoted(quoted, name, false));
  return HEED_OK;
}

static heed_status open_shard(const heed__where *where, const char *index, const char *name, shard **first) {
  heed_context *ctx = where->ctx;
  char path[HEED__PATH];
  heed__where inside;
  for (const shard *s = *first; s != NULL; s = s->next) {
    if (strcmp(s->name, name) == 0) return HEED_OK;
  }
  heed_status status = shard_path(where, index, name, path);
  if (status != HEED_OK) return status;
  shard *s = heed__allocate(ctx, sizeof(*s));
  if (s == NULL) return heed__fail_memory(ctx, "load", sizeof(*s));
  *s = (shard){.next = *first, .name = name};
  *first = s;
  heed__where_init(&inside, ctx, "load", path);
  return heed__safetensors_load(&inside, path, &s->archive);
}

static const heed_archive *archive_of(const shard *first, const char *name) {
  while (strcmp(first->name, name) != 0) first = first->next;
  return first->archive;
}

/* Finds weight_map, an object of strings, and counts its members and the bytes of their names. */
static heed_status find_weight_map(const heed__where *where, const heed__json *root, const heed__json **map,
                                   int64_t *count, size_t *text) {
  char quoted[HEED__QUOTED];
  *map = NULL;
  if (heed__json_kind_of(root) != HEED__JSON_OBJECT)
    return heed__fail_file(where, "must be an object with weight_map");
  for (const heed__json *v = heed__json_first(root); v != NULL; v = heed__json_next(v)) {
    if (strcmp(heed__json_key(v), "weight_map") != 0) continue;
    if (*map != NULL) return heed__fail_file(where, "duplicate weight_map");
    *map = v;
  }
  if (*map == NULL || heed__json_kind_of(*map) != HEED__JSON_OBJECT)
    return heed__fail_file(where, *map == NULL ? "weight_map is missing" : "weight_map must be an object");
  for (const heed__json *v = heed__json_first(*map); v != NULL; v = heed__json_next(v)) {
    if (heed__json_kind_of(v) != HEED__JSON_STRING)
      return heed__fail_file(where, "weight_map: the file of %s must be a string",
                             heed__quoted(quoted, heed__json_key(v), false));
    ++*count;
    *text += strlen(heed__json_key(v)) + 1;
  }
  return HEED_OK;
}

/* Takes each tensor from the file that weight_map names. */
static heed_status fill_shards(const heed__where *where, const heed__json *map, const shard *shards,
                               heed_archive *archive) {
  int64_t i = 0;
  char tensor[HEED__QUOTED], file[HEED__QUOTED];
  for (const heed__json *v = heed__json_first(map); v != NULL; v = heed__json_next(v), i++) {
    const char *name = heed__json_key(v);
    if (heed__is_due(&archive->ctx->pace)) {
      const heed_status status = heed__stopped(archive->ctx, "load");
      if (status != HEED_OK) return status;
    }
    const heed__entry *found = heed__archive_find(archive_of(shards, heed__json_text(v)), name);
    if (found == NULL)
      return heed__fail_file(where, "weight_map: the tensor %s is missing from %s",
                             heed__quoted(tensor, name, false),
                             heed__quoted(file, heed__json_text(v), false));
    heed__entry *entry = &archive->entries[i];
    *entry = *found;
    entry->map->references++;
    entry->name = heed__archive_text(archive, name);
  }
  return heed__archive_sort(archive, where);
}

static heed_status load_sharded(const heed__where *where, const char *path, heed__loaded *out) {
  heed_context *ctx = where->ctx;
  const heed__json *map;
  int64_t count = 0, pairs;
  size_t text = 0;
  heed__json_tree *tree = NULL;
  heed_archive *archive = NULL;
  shard *shards = NULL;
  heed_status status = heed__json_load(ctx, path, &tree);
  if (status == HEED_OK) status = find_weight_map(where, heed__json_root(tree), &map, &count, &text);
  if (status != HEED_OK) goto done;
  for (const heed__json *v = heed__json_first(map); v != NULL && status == HEED_OK; v = heed__json_next(v)) {
    status = open_shard(where, path, heed__json_text(v), &shards);
    if (status == HEED_OK && heed__is_due(&ctx->pace)) status = heed__stopped(ctx, "load");
  }
  if (status != HEED_OK) goto done;
  /* the files of one model have the same metadata: {"format": "pt"} */
  const heed_archive *first = shards != NULL ? shards->archive : NULL;
  pairs = first != NULL ? first->pairs : 0;
  for (int64_t i = 0; i < 2 * pairs; i++) text += strlen(first->metadata[i]) + 1;
  status = heed__archive_new(where, count, pairs, text, &archive);
  if (status != HEED_OK) goto done;
  for (int64_t i = 0; i < 2 * pairs; i++)
    archive->metadata[i] = heed__archive_text(archive, first->metadata[i]);
  status = fill_shards(where, map, shards, archive);
  if (status != HEED_OK) goto done;
  out->archive = archive;
  archive = NULL;
done:
  heed_archive_free(archive);
  free_shards(ctx, shards);
  heed__json_free(tree);
  return status;
}

const heed__format heed__format_safetensors_index = {
    .ending = ".safetensors.index.json",
    .metadata = true,
    .load = load_sharded,
};
