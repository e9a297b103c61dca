/* .safetensors: 8 bytes with the length of the header, the header in JSON, and the elements, which cover the
 * rest without gaps or overlaps. Source: README of github.com/huggingface/safetensors. */
#include "files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_HEADER ((size_t)100000000) /* as in the Rust library */
#define MAX_VALUES  ((int64_t)1 << 21)  /* in the header: 200,000 tensors */
#define ALIGNMENT   64                  /* of the first element in files that are saved: a cache line */

static const char metadata_name[] = "__metadata__";

/* ---- The header's entries ---- */

/* The elements of a tensor, in bytes from the start of the data. */
typedef struct extent {
  int64_t begin, end;
  int64_t index; /* of the entry */
} extent;

/* A value for messages: a number's text, else "not a number". */
static const char *number_text(char text[32], const heed__json *value) {
  if (heed__json_kind_of(value) != HEED__JSON_NUMBER) return "not a number";
  heed__write_number(text, 32, 'g', 17, heed__json_number(value));
  return text;
}

static heed_status read_stored_dtype(const heed__where *where, const heed__json *value, heed__entry *entry) {
  char quoted[HEED__QUOTED];
  if (heed__json_kind_of(value) != HEED__JSON_STRING) return heed__fail_file(where, "dtype must be a string");
  entry->stored = heed__stored_named(HEED__IN_SAFETENSORS, heed__json_text(value));
  if (entry->stored != NULL) return HEED_OK;
  return heed__fail_file(
      where,
      "dtype is %s; it must be F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8 or "
      "BOOL",
      heed__quoted(quoted, heed__json_text(value), false));
}

static heed_status read_shape(const heed__where *where, const heed__json *value, heed__entry *entry) {
  char text[32];
  if (heed__json_kind_of(value) != HEED__JSON_LIST) return heed__fail_file(where, "shape must be a list");
  entry->ndim = 0;
  for (const heed__json *v = heed__json_first(value); v != NULL; v = heed__json_next(v)) {
    if (entry->ndim == HEED_MAX_DIMS)
      return heed__fail_file(where, "shape has more than %d dimensions", HEED_MAX_DIMS);
    int64_t size;
    if (!heed__json_integer(v, &size) || size < 0)
      return heed__fail_file(where, "shape: size %d is %s; it must be an integer from 0 to 2^53",
                             entry->ndim + 1, number_text(text, v));
    entry->shape[entry->ndim++] = size;
  }
  return HEED_OK;
}

static heed_status read_offsets(const heed__where *where, const heed__json *value, extent *x) {
  char text[32];
  int64_t *const ends[] = {&x->begin, &x->end};
  int count = 0;
  const bool list = heed__json_kind_of(value) == HEED__JSON_LIST;
  for (const heed__json *v = list ? heed__json_first(value) : NULL; v != NULL; v = heed__json_next(v)) {
    if (count == 2) return heed__fail_file(where, "data_offsets has more than two numbers");
    if (!heed__json_integer(v, ends[count]) || *ends[count] < 0)
      return heed__fail_file(where, "data_offsets: number %d is %s; it must be an integer from 0 to 2^53",
                             count + 1, number_text(text, v));
    count++;
  }
  if (count < 2) return heed__fail_file(where, "data_offsets must be a list of two numbers");
  return HEED_OK;
}

/* Shape, dtype and offsets must agree with each other and with the `bytes` bytes of data. */
static heed_status check_extent(const heed__where *where, const heed__entry *entry, const extent *x,
                                size_t bytes) {
  char text[HEED__SHAPE_TEXT];
  const char *name = entry->stored->names[HEED__IN_SAFETENSORS];
  const int64_t bits = entry->stored->bits;
  const int64_t numel = heed__numel(entry->ndim, entry->shape, bits < 8 ? 1 : (size_t)bits / 8);
  heed__shape_text(text, entry->ndim, entry->shape);
  if (numel < 0) return heed__fail_file(where, "%s elements of %s are more than a file can hold", text, name);
  if (bits < 8 && numel % 8 * bits % 8 != 0)
    return heed__fail_file(where, "%s of %s does not end with a byte", text, name);
  const int64_t taken = bits < 8 ? numel / 8 * bits + numel % 8 * bits / 8 : numel * (bits / 8);
  if (x->begin > x->end || x->end - x->begin != taken)
    return heed__fail_file(where, "data_offsets are [%lld, %lld]; %s of %s takes %lld byte%s",
                           (long long)x->begin, (long long)x->end, text, name, (long long)taken,
                           HEED__S(taken));
  if ((uint64_t)x->end > bytes)
    return heed__fail_file(where,
                           "ends at byte %lld of the data, and there are only %zu: the file is cut short",
                           (long long)x->end, bytes);
  return HEED_OK;
}

static heed_status read_entry(const heed__where *outer, const heed__json *value, size_t bytes,
                              heed__entry *entry, extent *x) {
  static const char *const names[] = {"dtype", "shape", "data_offsets"};
  heed__where where;
  const heed__json *found[3] = {NULL, NULL, NULL};
  heed__where_inside(&where, outer, "tensor", heed__json_key(value));
  if (heed__json_kind_of(value) != HEED__JSON_OBJECT)
    return heed__fail_file(&where, "must be an object with dtype, shape and data_offsets");
  for (const heed__json *v = heed__json_first(value); v != NULL; v = heed__json_next(v)) {
    for (int i = 0; i < 3; i++) {
      if (strcmp(heed__json_key(v), names[i]) != 0) continue;
      if (found[i] != NULL) return heed__fail_file(&where, "duplicate %s", names[i]);
      found[i] = v;
    }
  }
  for (int i = 0; i < 3; i++) {
    if (found[i] == NULL) return heed__fail_file(&where, "%s is missing", names[i]);
  }
  heed_status status = read_stored_dtype(&where, found[0], entry);
  if (status == HEED_OK) status = read_shape(&where, found[1], entry);
  if (status == HEED_OK) status = read_offsets(&where, found[2], x);
  return status == HEED_OK ? check_extent(&where, entry, x, bytes) : status;
}

/* ---- The whole header ---- */

static int compare_extents(const void *a, const void *b) {
  const extent *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

/* Sorts the extents and checks that together they cover each byte of the data once. */
static heed_status check_cover(const heed__where *outer, const heed_archive *archive, extent *extents,
                               size_t bytes) {
  int64_t reached = 0;
  heed__where where;
  const heed_status status =
      heed__sort_records(archive->ctx, "load", extents, archive->count, sizeof(*extents), compare_extents);
  if (status != HEED_OK) return status;
  for (int64_t i = 0; i < archive->count; i++) {
    const extent *x = &extents[i];
    if (x->begin != reached) {
      heed__where_inside(&where, outer, "tensor", archive->entries[x->index].name);
      if (x->begin > reached)
        return heed__fail_file(&where,
                               "begins at byte %lld of the data; bytes %lld and on belong to no tensor",
                               (long long)x->begin, (long long)reached);
      char quoted[HEED__QUOTED];
      return heed__fail_file(&where, "begins at byte %lld of the data, inside %s", (long long)x->begin,
                             heed__quoted(quoted, archive->entries[extents[i - 1].index].name, false));
    }
    reached = x->end;
  }
  if ((uint64_t)reached < bytes)
    return heed__fail_file(outer, "the last %llu byte%s to no tensor",
                           (unsigned long long)(bytes - (uint64_t)reached),
                           bytes - (uint64_t)reached == 1 ? " belongs" : "s belong");
  return HEED_OK;
}

static bool is_metadata(const heed__json *value) {
  return strcmp(heed__json_key(value), metadata_name) == 0;
}

/* Counts tensors, pairs of metadata and bytes of text. */
static heed_status measure(const heed__where *where, const heed__json *root, int64_t *count, int64_t *pairs,
                           size_t *text) {
  const heed__json *metadata = NULL;
  for (const heed__json *v = heed__json_first(root); v != NULL; v = heed__json_next(v)) {
    if (!is_metadata(v)) {
      ++*count;
      *text += strlen(heed__json_key(v)) + 1;
      continue;
    }
    if (metadata != NULL) return heed__fail_file(where, "duplicate %s", metadata_name);
    metadata = v;
  }
  if (metadata == NULL) return HEED_OK;
  if (heed__json_kind_of(metadata) != HEED__JSON_OBJECT)
    return heed__fail_file(where, "%s must be an object", metadata_name);
  for (const heed__json *v = heed__json_first(metadata); v != NULL; v = heed__json_next(v)) {
    char quoted[HEED__QUOTED];
    if (heed__json_kind_of(v) != HEED__JSON_STRING)
      return heed__fail_file(where, "%s: %s must be a string", metadata_name,
                             heed__quoted(quoted, heed__json_key(v), false));
    ++*pairs;
    *text += strlen(heed__json_key(v)) + strlen(heed__json_text(v)) + 2;
  }
  return HEED_OK;
}

static heed_status fill_metadata(const heed__where *where, const heed__json *object, heed_archive *archive) {
  int64_t i = 0;
  heed_context *ctx = archive->ctx;
  const size_t bytes = (size_t)archive->pairs * sizeof(heed__name);
  heed__name *names = heed__allocate(ctx, bytes);
  if (names == NULL) return heed__fail_memory(ctx, "load", bytes);
  heed_status status = HEED_OK;
  for (const heed__json *v = heed__json_first(object); v != NULL && status == HEED_OK;
       v = heed__json_next(v), i++) {
    archive->metadata[2 * i] = heed__archive_text(archive, heed__json_key(v));
    archive->metadata[2 * i + 1] = heed__archive_text(archive, heed__json_text(v));
    names[i] = (heed__name){archive->metadata[2 * i], i};
    if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, "load"); /* each may be megabytes long */
  }
  char quoted[HEED__QUOTED];
  const char *duplicate = NULL;
  if (status == HEED_OK) status = heed__sort_names(ctx, "load", names, archive->pairs, &duplicate);
  if (status == HEED_OK && duplicate != NULL)
    status =
        heed__fail_file(where, "%s: duplicate key %s", metadata_name, heed__quoted(quoted, duplicate, false));
  heed__release(ctx, names);
  return status;
}

/* `first`: the offset of the data in the file. */
static heed_status fill_archive(const heed__where *where, const heed__json *root, heed__file_map *map,
                                size_t first, heed_archive *archive) {
  heed_context *ctx = archive->ctx;
  const size_t bytes = map->size - first, scratch = (size_t)archive->count * sizeof(extent);
  heed_status status = HEED_OK;
  int64_t i = 0;
  extent *extents = heed__allocate(ctx, scratch);
  if (extents == NULL) return heed__fail_memory(ctx, "load", scratch);
  for (const heed__json *v = heed__json_first(root); v != NULL && status == HEED_OK; v = heed__json_next(v)) {
    if (is_metadata(v)) {
      status = fill_metadata(where, v, archive);
      continue;
    }
    heed__entry *entry = &archive->entries[i];
    entry->name = heed__archive_text(archive, heed__json_key(v));
    extents[i].index = i;
    status = read_entry(where, v, bytes, entry, &extents[i]);
    if (status == HEED_OK && heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, "load");
    if (status != HEED_OK) break;
    entry->data = map->data + first + extents[i].begin;
    entry->reversed = !heed__is_little_endian();
    entry->map = map;
    entry->apart = true; /* their extents are checked to follow each other */
    map->references++;
    i++;
  }
  if (status == HEED_OK) status = heed__archive_sort(archive, where);
  if (status == HEED_OK) status = check_cover(where, archive, extents, bytes);
  heed__release(ctx, extents);
  return status;
}

/* Reads and checks the length of the header. */
static heed_status read_length(const heed__where *where, const heed__file_map *map, size_t *length) {
  uint64_t n = 0;
  if (map->size < 8)
    return heed__fail_file(where,
                           "has %zu byte%s; the first 8 of a .safetensors file give its header's length",
                           map->size, HEED__S(map->size));
  for (int i = 7; i >= 0; i--) n = n << 8 | (unsigned char)map->data[i];
  if (n > MOST_HEADER)
    return heed__fail_file(where,
                           "the header has %llu bytes, by the first 8 of the file; it must have at most %zu",
                           (unsigned long long)n, MOST_HEADER);
  if (n > map->size - 8)
    return heed__fail_file(where, "the header has %llu bytes, and only %zu follow: the file is cut short",
                           (unsigned long long)n, map->size - 8);
  if (n == 0 || map->data[8] != '{') return heed__fail_file(where, "the header does not begin with {");
  *length = (size_t)n;
  return HEED_OK;
}

heed_status heed__safetensors_load(const heed__where *where, const char *path, heed_archive **out) {
  static const heed__json_limits limits = {
      .bytes = MOST_HEADER, .values = MAX_VALUES, .depth = 8, .integers = true};
  size_t length = 0, text = 0;
  int64_t count = 0, pairs = 0;
  heed__file_map *map = NULL;
  heed__json_tree *tree = NULL;
  heed_archive *archive = NULL;
  heed__where header = {.ctx = where->ctx};
  snprintf(header.text, sizeof(header.text), HEED_CJSON ? "%.160s, the header" : "%.160s", where->text);
  heed_status status = heed__file_map_open(where, path, &map);
  if (status == HEED_OK) status = read_length(where, map, &length);
  if (status == HEED_OK) status = heed__json_parse(&header, map->data + 8, length, &limits, &tree);
  if (status != HEED_OK) goto done;
  const heed__json *root = heed__json_root(tree);
  status = measure(where, root, &count, &pairs, &text);
  if (status == HEED_OK) status = heed__archive_new(where, count, pairs, text, &archive);
  if (status == HEED_OK) status = fill_archive(where, root, map, 8 + length, archive);
  if (status != HEED_OK) goto done;
  *out = archive;
  archive = NULL;
done:
  heed_archive_free(archive);
  heed__json_free(tree);
  heed__file_map_release(map);
  return status;
}

/* ---- Writing ---- */

#define EMITTED_CHUNK ((size_t)1 << 16) /* bytes between two cancellation checks */

/* Writes the header, or, without a writer, counts its bytes. */
typedef struct emitter {
  heed_context *ctx;
  heed__writer *writer;
  size_t length, next_check;
  heed_status status;
} emitter;

static void emit(emitter *e, const char *text, size_t length) {
  if (e->status != HEED_OK) return;
  e->length += length;
  if (e->writer != NULL) e->status = heed__writer_put(e->writer, text, length);
  if (e->length < e->next_check || e->status != HEED_OK) return;
  e->next_check = e->length + EMITTED_CHUNK;
  if (heed__is_due(&e->ctx->pace)) e->status = heed__stopped(e->ctx, "save");
}

static void emit_text(emitter *e, const char *text) {
  emit(e, text, strlen(text));
}

static void emit_integer(emitter *e, int64_t value) {
  char text[32];
  emit(e, text, (size_t)snprintf(text, sizeof(text), "%lld", (long long)value));
}

static void emit_string(emitter *e, const char *text) {
  const size_t start = e->length;
  emit(e, "\"", 1);
  for (const char *p = text; *p != '\0' && e->status == HEED_OK;) {
    size_t plain = 0;
    while (plain < EMITTED_CHUNK && (unsigned char)p[plain] >= ' ' && p[plain] != '"' && p[plain] != '\\')
      plain++;
    emit(e, p, plain);
    p += plain;
    if (*p == '\0' || plain == EMITTED_CHUNK) continue;
    char escape[8];
    emit(e, escape, (size_t)snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)(unsigned char)*p++));
  }
  emit(e, "\"", 1);
  if (e->status == HEED_OK && e->length - start > HEED__LONGEST_STRING)
    e->status = heed__fail(e->ctx, HEED_ARGUMENT,
                           "save: a name or a text of the metadata takes %zu bytes; it must take at most %zu",
                           e->length - start, HEED__LONGEST_STRING);
}

static void emit_header(emitter *e, const heed__contents *c, const int64_t *begin) {
  emit_text(e, "{");
  if (c->pairs > 0) {
    emit_string(e, metadata_name);
    for (int64_t i = 0; i < c->pairs; i++) {
      if (e->status != HEED_OK) return;
      emit_text(e, i == 0 ? ":{" : ",");
      emit_string(e, c->metadata[2 * i]);
      emit_text(e, ":");
      emit_string(e, c->metadata[2 * i + 1]);
    }
    emit_text(e, c->count > 0 ? "}," : "}");
  }
  for (int64_t i = 0; i < c->count; i++) {
    const heed_tensor *x = c->tensors[i];
    if (e->status != HEED_OK) return;
    if (i > 0) emit_text(e, ",");
    emit_string(e, c->names[i]);
    emit_text(e, ":{\"dtype\":\"");
    emit_text(e, heed__stored_name(HEED__IN_SAFETENSORS, x->dtype));
    emit_text(e, "\",\"shape\":[");
    for (int d = 0; d < x->ndim; d++) {
      if (d > 0) emit_text(e, ",");
      emit_integer(e, x->shape[d]);
    }
    emit_text(e, "],\"data_offsets\":[");
    emit_integer(e, begin[i]);
    emit_text(e, ",");
    emit_integer(e, begin[i] + x->numel * (int64_t)heed__element_bytes(x->dtype));
    emit_text(e, "]}");
  }
  emit_text(e, "}");
}

/* In files, the widest elements come first, so that all lie at multiples of their size. */
static const size_t widths[] = {8, 4, 2, 1};

/* Assigns each tensor its offset; false if they are more than the format can hold. */
static bool lay_out(const heed__contents *c, int64_t *begin) {
  int64_t at = 0;
  for (int k = 0; k < 4; k++) {
    for (int64_t i = 0; i < c->count; i++) {
      const heed_tensor *x = c->tensors[i];
      if (heed__element_bytes(x->dtype) != widths[k]) continue;
      const int64_t bytes = x->numel * (int64_t)widths[k];
      if (bytes >= ((int64_t)1 << 53) - at) return false;
      begin[i] = at;
      at += bytes;
    }
  }
  return true;
}

static heed_status put_header(heed__writer *w, const heed__contents *c, const int64_t *begin) {
  heed_context *ctx = w->where.ctx;
  emitter counting = {.ctx = ctx}, writing = {.ctx = ctx, .writer = w};
  emit_header(&counting, c, begin);
  if (counting.status != HEED_OK) return counting.status;
  const size_t padding = -(8 + counting.length) & (ALIGNMENT - 1), length = counting.length + padding;
  if (length > MOST_HEADER)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "save: the names, shapes and metadata take %zu bytes; they must take at most %zu",
                      length, MOST_HEADER);
  char bytes[8], spaces[ALIGNMENT];
  for (int i = 0; i < 8; i++) bytes[i] = (char)(unsigned char)((uint64_t)length >> (8 * i) & 0xff);
  memset(spaces, ' ', sizeof(spaces));
  emit(&writing, bytes, 8);
  emit_header(&writing, c, begin);
  emit(&writing, spaces, padding);
  return writing.status;
}

static heed_status save_safetensors(heed__writer *w, const heed__contents *contents) {
  heed_context *ctx = w->where.ctx;
  for (int64_t i = 0; i < contents->count; i++) {
    if (strcmp(contents->names[i], metadata_name) == 0)
      return heed__fail(ctx, HEED_ARGUMENT, "save: a name is %s, which .safetensors reserves for metadata",
                        metadata_name);
  }
  const size_t bytes = heed__array_bytes((uint64_t)contents->count, sizeof(int64_t));
  int64_t *begin = heed__allocate(ctx, bytes);
  if (begin == NULL) return heed__fail_memory(ctx, "save", bytes);
  heed_status status = HEED_OK;
  if (!lay_out(contents, begin))
    status = heed__fail(ctx, HEED_ARGUMENT, "save: the tensors are more than a file can hold");
  if (status == HEED_OK) status = put_header(w, contents, begin);
  for (int k = 0; k < 4; k++) {
    for (int64_t i = 0; i < contents->count && status == HEED_OK; i++) {
      const heed_tensor *x = contents->tensors[i];
      if (heed__element_bytes(x->dtype) == widths[k]) status = heed__writer_put_tensor(w, x);
    }
  }
  heed__release(ctx, begin);
  return status;
}

static heed_status load_safetensors(const heed__where *where, const char *path, heed__loaded *out) {
  return heed__safetensors_load(where, path, &out->archive);
}

const heed__format heed__format_safetensors = {
    .ending = ".safetensors",
    .metadata = true,
    .magic = {{4, 5, "\0\0\0\0{"}}, /* a header of less than 4 GiB */
    .load = load_safetensors,
    .save = save_safetensors,
};
