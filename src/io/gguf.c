/* GGUF, versions 2 and 3, little-endian: mapped, tensors in the blocks of ggml. Source: docs/gguf.md of ggml.
 *
 * A header (magic, version, counts of tensors and pairs), the pairs of the metadata, a description of each
 * tensor, and from a multiple of general.alignment on the elements, each tensor at such a multiple. */
#include "gguf.h"

#include <stdio.h>
#include <string.h>

enum {
  HEADER = 24,
  LEAST_PAIR = 8 + 4 + 1,       /* bytes of the shortest pair */
  LEAST_TENSOR = 8 + 4 + 4 + 8, /* and tensor description */
};

/* The types of ggml by their number: name, elements and bytes of a block. Numbers that are missing were
 * removed from ggml. */
static const struct ggml_type {
  const char *name;
  uint16_t elements, bytes;
} ggml_types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},
};
#define GGML_TYPES (sizeof ggml_types / sizeof *ggml_types)

uint32_t heed__ggml_number(heed_dtype dtype) {
  const char *name = heed__stored_name(HEED__IN_GGUF, dtype);
  uint32_t i = 0;
  while (ggml_types[i].name == NULL || strcmp(ggml_types[i].name, name) != 0) i++;
  return i;
}

typedef struct gguf_reader {
  heed__gguf_cursor c;
  heed__file_map *map;
  uint64_t tensors, pairs, alignment;
  heed_archive *archive;
} gguf_reader;

/* A tensor's elements, from the first byte of all elements on. */
typedef struct span {
  uint64_t begin, end;
  int64_t index;
} span;

/* ---- Header ---- */

static heed_status read_gguf_header(gguf_reader *r) {
  const heed__where *where = r->c.where;
  uint64_t magic, version = 0;
  if (r->map->size < HEADER || memcmp(r->map->data, "GGUF", 4) != 0)
    return heed__fail_file(where, r->map->size < HEADER ? "is shorter than a GGUF file's header of 24 bytes"
                                                        : "does not begin with GGUF");
  heed_status status = heed__gguf_take(&r->c, "the header", 4, &magic);
  if (status == HEED_OK) status = heed__gguf_take(&r->c, "the header", 4, &version);
  if (status == HEED_OK) status = heed__gguf_take(&r->c, "the header", 8, &r->tensors);
  if (status == HEED_OK) status = heed__gguf_take(&r->c, "the header", 8, &r->pairs);
  if (status != HEED_OK) return status;
  if ((version & 0xffff) == 0 && version != 0)
    return heed__fail_file(where, "is big-endian; it must be little-endian");
  if (version != 2 && version != 3)
    return heed__fail_file(where, "is GGUF version %llu; it must be 2 or 3", (unsigned long long)version);
  const uint64_t rest = r->map->size - HEADER;
  if (r->pairs > rest / LEAST_PAIR || r->tensors > rest / LEAST_TENSOR)
    return heed__fail_file(where, "has %llu tensors and %llu pairs of metadata in %zu bytes",
                           (unsigned long long)r->tensors, (unsigned long long)r->pairs, r->map->size);
  return HEED_OK;
}

/* ---- Names ---- */

static heed_status take_gguf_name(gguf_reader *r, const char *what, const char **text, size_t *length) {
  const long long at = (long long)(r->c.at - r->c.start);
  const heed_status status = heed__gguf_take_string(&r->c, what, text, length);
  if (status != HEED_OK) return status;
  if (*length == 0 || memchr(*text, 0, *length) != NULL)
    return heed__fail_file(r->c.where, "%s at byte %lld %s", what, at,
                           *length == 0 ? "is empty" : "has a zero byte");
  size_t invalid = 0;
  const heed_status checked = heed__text_check_in_steps(r->c.where->ctx, "load", *text, *length, &invalid);
  if (checked != HEED_OK || invalid == 0) return checked;
  return heed__fail_file(r->c.where, "%s at byte %lld is not UTF-8; it must be", what, at);
}

/* Passes over a tensor's description after its name. */
static heed_status skip_tensor(gguf_reader *r) {
  uint64_t dims = 0;
  heed_status status = heed__gguf_take(&r->c, "a tensor's description", 4, &dims);
  if (status != HEED_OK) return status;
  if (dims > HEED_MAX_DIMS)
    return heed__fail_file(r->c.where, "a tensor has %llu dimensions; it must have at most %d",
                           (unsigned long long)dims, HEED_MAX_DIMS);
  uint64_t unused;
  for (uint64_t i = 0; i < dims && status == HEED_OK; i++)
    status = heed__gguf_take(&r->c, "a tensor's description", 8, &unused);
  if (status == HEED_OK) status = heed__gguf_take(&r->c, "a tensor's description", 4, &unused);
  if (status == HEED_OK) status = heed__gguf_take(&r->c, "a tensor's description", 8, &unused);
  return status;
}

/* Checks all that comes before the elements, and counts the bytes of names; the cursor returns. */
static heed_status measure_header(gguf_reader *r, size_t *text) {
  const char *begin = r->c.at, *name;
  heed_context *ctx = r->c.where->ctx;
  size_t length = 0;
  heed_gguf_value value;
  heed_status status = HEED_OK;
  for (uint64_t i = 0; i < r->pairs + r->tensors && status == HEED_OK; i++) {
    const bool pair = i < r->pairs;
    status = take_gguf_name(r, pair ? "a key of the metadata" : "a tensor's name", &name, &length);
    if (status == HEED_OK) status = pair ? heed__gguf_take_value(&r->c, &value) : skip_tensor(r);
    *text += length + 1;
    if (status == HEED_OK && heed__is_due_at(&ctx->pace, (int64_t)i)) status = heed__stopped(ctx, "load");
  }
  r->c.at = begin;
  return status;
}

/* ---- Metadata ---- */

static heed_status fill_values(gguf_reader *r) {
  heed_archive *a = r->archive;
  const size_t n = (size_t)r->pairs, bytes = n * (sizeof *a->values + sizeof *a->sorted_values);
  char quoted[HEED__QUOTED];
  const char *text, *duplicate;
  size_t length;
  a->values = heed__allocate(a->ctx, n * sizeof *a->values);
  a->sorted_values = heed__allocate(a->ctx, n * sizeof *a->sorted_values);
  if (a->values == NULL || a->sorted_values == NULL) return heed__fail_memory(a->ctx, "load", bytes);
  for (size_t i = 0; i < n; i++) {
    heed__gguf_entry *entry = &a->values[i];
    heed_status status = take_gguf_name(r, "a key of the metadata", &text, &length);
    if (status == HEED_OK) status = heed__gguf_take_value(&r->c, &entry->value);
    if (status != HEED_OK) return status;
    entry->key = heed__archive_bytes(a, text, length);
    a->sorted_values[i] = (heed__name){entry->key, (int64_t)i};
  }
  const heed_status status = heed__sort_names(a->ctx, "load", a->sorted_values, (int64_t)n, &duplicate);
  if (status != HEED_OK) return status;
  if (duplicate != NULL)
    return heed__fail_file(r->c.where, "duplicate key %s", heed__quoted(quoted, duplicate, false));
  a->value_count = (int64_t)n;
  return HEED_OK;
}

static heed_status read_alignment(gguf_reader *r) {
  heed_gguf_value value;
  r->alignment = HEED__GGUF_ALIGNMENT;
  if (heed_gguf_find(r->archive, "general.alignment", &value)) r->alignment = heed__gguf_alignment(&value);
  if (r->alignment > 0) return HEED_OK;
  return heed__fail_file(r->c.where, "general.alignment must be a power of two up to 2^20");
}

/* ---- Tensors ---- */

/* Reads the shape of the entry: the file has the last dimension first. Counts its elements. */
static heed_status read_gguf_dims(gguf_reader *r, const heed__where *where, heed__entry *entry,
                                  uint64_t *numel) {
  uint64_t dims = 0, size = 0;
  heed_status status = heed__gguf_take(&r->c, "a tensor's description", 4, &dims);
  bool empty = false;
  *numel = 1; /* of the sizes that are not 0 */
  entry->ndim = (int)dims;
  for (int d = entry->ndim - 1; d >= 0 && status == HEED_OK; d--) {
    status = heed__gguf_take(&r->c, "a tensor's description", 8, &size);
    if (status != HEED_OK) break;
    empty = empty || size == 0;
    if (size > INT64_MAX || (size > 0 && *numel > (uint64_t)PTRDIFF_MAX / size))
      return heed__fail_file(where, "its sizes are more than the address space");
    if (size > 0) *numel *= size;
    entry->shape[d] = (int64_t)size;
  }
  if (empty) *numel = 0;
  return status;
}

/* Names a type that ggml got later. */
static heed_status name_unknown_type(heed_context *ctx, uint64_t type, heed__entry *entry) {
  char text[48];
  const int length = snprintf(text, sizeof text, "number %llu of ggml", (unsigned long long)type);
  const size_t size = (size_t)length + 1;
  entry->unknown = heed__allocate(ctx, size);
  if (entry->unknown == NULL) return heed__fail_memory(ctx, "load", size);
  memcpy(entry->unknown, text, size);
  return HEED_OK;
}

static heed_status read_tensor(gguf_reader *r, heed__entry *entry, span *s) {
  heed__where where;
  const char *text;
  size_t length;
  uint64_t numel = 0, type = 0, offset = 0;
  heed_status status = take_gguf_name(r, "a tensor's name", &text, &length);
  if (status != HEED_OK) return status;
  entry->name = heed__archive_bytes(r->archive, text, length);
  heed__where_inside(&where, r->c.where, "tensor", entry->name);
  status = read_gguf_dims(r, &where, entry, &numel);
  if (status == HEED_OK) status = heed__gguf_take(&r->c, "a tensor's description", 4, &type);
  if (status == HEED_OK) status = heed__gguf_take(&r->c, "a tensor's description", 8, &offset);
  if (status != HEED_OK) return status;
  if (offset % r->alignment != 0)
    return heed__fail_file(&where, "begins at byte %llu of the data; it must be a multiple of %llu",
                           (unsigned long long)offset, (unsigned long long)r->alignment);
  s->begin = s->end = offset;
  if (type >= GGML_TYPES || ggml_types[type].name == NULL) return name_unknown_type(where.ctx, type, entry);
  const struct ggml_type *t = &ggml_types[type];
  const uint64_t last = entry->ndim > 0 ? (uint64_t)entry->shape[entry->ndim - 1] : 1;
  if (last % t->elements != 0)
    return heed__fail_file(&where, "its rows have %llu elements of %s; they must be a multiple of %d",
                           (unsigned long long)last, t->name, t->elements);
  const uint64_t blocks = numel / t->elements;
  if (blocks > (uint64_t)PTRDIFF_MAX / t->bytes || offset > UINT64_MAX - blocks * t->bytes)
    return heed__fail_file(&where, "its sizes are more than the address space");
  s->end = offset + blocks * t->bytes;
  entry->stored = heed__stored_named(HEED__IN_GGUF, t->name);
  return entry->stored != NULL ? HEED_OK : name_unknown_type(where.ctx, type, entry);
}

static int compare_spans(const void *a, const void *b) {
  const span *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

/* Checks that the elements lie in the file, `bytes` of them, and apart from each other. */
static heed_status check_spans(const gguf_reader *r, span *spans, uint64_t bytes) {
  const heed_archive *a = r->archive;
  heed__where where;
  uint64_t reached = 0;
  int64_t before = 0;
  const heed_status status =
      heed__sort_records(a->ctx, "load", spans, a->count, sizeof *spans, compare_spans);
  if (status != HEED_OK) return status;
  for (int64_t i = 0; i < a->count; i++) {
    const span *s = &spans[i];
    heed__where_inside(&where, r->c.where, "tensor", a->entries[s->index].name);
    if (s->end > bytes)
      return heed__fail_file(&where,
                             "takes bytes %llu to %llu of the data, of which there are %llu: the file is cut "
                             "short",
                             (unsigned long long)s->begin, (unsigned long long)s->end,
                             (unsigned long long)bytes);
    char quoted[HEED__QUOTED];
    if (s->begin < reached && s->end > s->begin)
      return heed__fail_file(&where, "begins at byte %llu of the data, inside %s",
                             (unsigned long long)s->begin,
                             heed__quoted(quoted, a->entries[before].name, false));
    if (s->end <= s->begin) continue;
    reached = s->end;
    before = s->index;
  }
  return HEED_OK;
}

static heed_status fill_tensors(gguf_reader *r) {
  heed_archive *a = r->archive;
  heed_context *ctx = a->ctx;
  const size_t scratch = (size_t)a->count * sizeof(span);
  heed_status status = HEED_OK;
  span *spans = heed__allocate(ctx, scratch);
  if (spans == NULL) return heed__fail_memory(ctx, "load", scratch);
  for (int64_t i = 0; i < a->count && status == HEED_OK; i++) {
    spans[i].index = i;
    status = read_tensor(r, &a->entries[i], &spans[i]);
    if (status == HEED_OK && heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, "load");
  }
  if (status == HEED_OK) status = heed__archive_sort(a, r->c.where);
  const uint64_t header = (uint64_t)(r->c.at - r->c.start), size = r->map->size;
  const uint64_t first = (header + r->alignment - 1) & ~(r->alignment - 1);
  if (status == HEED_OK) status = check_spans(r, spans, first < size ? size - first : 0);
  for (int64_t i = 0; i < a->count && status == HEED_OK; i++) {
    heed__entry *entry = &a->entries[spans[i].index];
    if (spans[i].end <= spans[i].begin) continue; /* empty, or refused: no element is read */
    entry->data = r->map->data + first + spans[i].begin;
    entry->reversed = !heed__is_little_endian();
    entry->map = r->map;
    entry->apart = true; /* check_spans refuses overlaps */
    r->map->references++;
  }
  heed__release(ctx, spans);
  return status;
}

static heed_status load_gguf(const heed__where *where, const char *path, heed__loaded *out) {
  gguf_reader r = {.c = {.where = where}};
  size_t text = 0;
  heed_status status = heed__file_map_open(where, path, &r.map);
  if (status != HEED_OK) return status;
  r.c.start = r.c.at = r.map->data;
  r.c.end = r.map->data + r.map->size;
  status = read_gguf_header(&r);
  if (status == HEED_OK) status = measure_header(&r, &text);
  if (status == HEED_OK) status = heed__archive_new(where, (int64_t)r.tensors, 0, text, &r.archive);
  if (status == HEED_OK) {
    r.archive->map = r.map;
    r.map->references++;
    status = fill_values(&r);
  }
  if (status == HEED_OK) status = read_alignment(&r);
  if (status == HEED_OK) status = fill_tensors(&r);
  if (status == HEED_OK)
    out->archive = r.archive;
  else
    heed_archive_free(r.archive);
  heed__file_map_release(r.map);
  return status;
}

const heed__format heed__format_gguf = {
    .ending = ".gguf",
    .metadata = true,
    .blocks = true,
    .magic = {{0, 4, "GGUF"}},
    .load = load_gguf,
    .save = heed__gguf_save,
};
