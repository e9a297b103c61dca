/* The dtypes of files: those that heed has are used as they are; others are converted when a tensor is used,
 * or refused then. */
#include "files.h"

#include <stdio.h>
#include <string.h>

/* ---- The table ---- */

#define AS_IS(bits, dtype)       bits, dtype, HEED__AS_IS
#define TO_FLOAT(bits)           bits, HEED_FLOAT32, HEED__FROM_DOUBLE
#define TO_INT(bits, conversion) bits, HEED_INT64, conversion
#define REFUSED(bits)            bits, HEED_FLOAT32, HEED__REFUSED

/* The names: .safetensors, numpy's descr without the byte order, PyTorch's dtype, the class of its storages,
 * ggml's. */
static const heed__stored stored_table[] = {
    {{"F32", "f4", "float32", "FloatStorage", "F32"}, AS_IS(32, HEED_FLOAT32)},
    {{"F16", "f2", "float16", "HalfStorage", "F16"}, AS_IS(16, HEED_FLOAT16)},
    {{"BF16", NULL, "bfloat16", "BFloat16Storage", "BF16"}, AS_IS(16, HEED_BFLOAT16)},
    {{"I64", "i8", "int64", "LongStorage", "I64"}, AS_IS(64, HEED_INT64)},
    {{"I8", "i1", "int8", "CharStorage", "I8"}, AS_IS(8, HEED_INT8)},
    {{"BOOL", "b1", "bool", "BoolStorage"}, 8, HEED_BOOL, HEED__FROM_FLAG},
    {{"F64", "f8", "float64", "DoubleStorage", "F64"}, TO_FLOAT(64)},
    {{"I32", "i4", "int32", "IntStorage", "I32"}, TO_INT(32, HEED__FROM_SIGNED)},
    {{"I16", "i2", "int16", "ShortStorage", "I16"}, TO_INT(16, HEED__FROM_SIGNED)},
    {{"U8", "u1", "uint8", "ByteStorage"}, TO_INT(8, HEED__FROM_UNSIGNED)},
    {{"U16", "u2", "uint16", NULL}, TO_INT(16, HEED__FROM_UNSIGNED)},
    {{"U32", "u4", "uint32", NULL}, TO_INT(32, HEED__FROM_UNSIGNED)},
    {{"U64", "u8", "uint64", NULL}, TO_INT(64, HEED__FROM_UNSIGNED)},
    {{"C64", "c8", "complex64", "ComplexFloatStorage"}, REFUSED(64)},
    {{NULL, "c16", "complex128", "ComplexDoubleStorage"}, REFUSED(128)},
    {{"F8_E4M3", NULL, "float8_e4m3fn", NULL}, REFUSED(8)},
    {{"F8_E5M2", NULL, "float8_e5m2", NULL}, REFUSED(8)},
    {{"F8_E4M3FNUZ", NULL, "float8_e4m3fnuz", NULL}, REFUSED(8)},
    {{"F8_E5M2FNUZ", NULL, "float8_e5m2fnuz", NULL}, REFUSED(8)},
    {{"F8_E8M0", NULL, "float8_e8m0fnu", NULL}, REFUSED(8)},
    {{"F6_E2M3", NULL, NULL, NULL}, REFUSED(6)},
    {{"F6_E3M2", NULL, NULL, NULL}, REFUSED(6)},
    {{"F4", NULL, NULL, NULL}, REFUSED(4)},
    {{NULL, NULL, "float4_e2m1fn_x2", NULL}, REFUSED(8)}, /* two in a byte */
    {{NULL, NULL, "complex32", NULL}, REFUSED(32)},
    {{NULL, NULL, NULL, NULL, "Q4_0"}, AS_IS(0, HEED_Q4_0)},
    {{NULL, NULL, NULL, NULL, "Q4_1"}, AS_IS(0, HEED_Q4_1)},
    {{NULL, NULL, NULL, NULL, "Q5_0"}, AS_IS(0, HEED_Q5_0)},
    {{NULL, NULL, NULL, NULL, "Q5_1"}, AS_IS(0, HEED_Q5_1)},
    {{NULL, NULL, NULL, NULL, "Q8_0"}, AS_IS(0, HEED_Q8_0)},
    {{NULL, NULL, NULL, NULL, "Q4_K"}, AS_IS(0, HEED_Q4_K)},
    {{NULL, NULL, NULL, NULL, "Q5_K"}, AS_IS(0, HEED_Q5_K)},
    {{NULL, NULL, NULL, NULL, "Q6_K"}, AS_IS(0, HEED_Q6_K)},
    {{NULL, NULL, NULL, NULL, "Q8_1"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "Q2_K"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "Q3_K"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "Q8_K"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "IQ2_XXS"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "IQ2_XS"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "IQ3_XXS"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "IQ1_S"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "IQ4_NL"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "IQ3_S"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "IQ2_S"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "IQ4_XS"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "IQ1_M"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "TQ1_0"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "TQ2_0"}, REFUSED(0)},
    {{NULL, NULL, NULL, NULL, "MXFP4"}, REFUSED(0)},
};
#define STORED_DTYPES ((int)(sizeof(stored_table) / sizeof(stored_table[0])))

const heed__stored *heed__stored_named(heed__naming naming, const char *name) {
  for (int i = 0; i < STORED_DTYPES; i++) {
    const char *each = stored_table[i].names[naming];
    if (each != NULL && strcmp(each, name) == 0) return &stored_table[i];
  }
  return NULL;
}

const char *heed__stored_name(heed__naming naming, heed_dtype dtype) {
  int i = 0; /* the first row of a dtype is that which keeps it */
  while (stored_table[i].dtype != dtype) i++;
  return stored_table[i].names[naming];
}

/* ---- Elements ---- */

/* Converts n elements `step` bytes apart, each of type `from`; `value` is the element. */
#define CONVERT_EACH(from, to, expression)                                                                   \
  for (int64_t i = 0; i < n; i++, p += step) {                                                               \
    from value;                                                                                              \
    memcpy(&value, p, sizeof(value));                                                                        \
    if (reversed) heed__reverse_bytes(&value, 1, sizeof(value));                                             \
    ((to *)out)[i] = (expression);                                                                           \
  }
#define CONVERT_INTEGERS(from) CONVERT_EACH(from, int64_t, (int64_t)value)

bool heed__stored_convert(const heed__stored *f, bool reversed, const char *p, int64_t step, int64_t n,
                          void *out) {
  const int width = f->bits / 8;
  uint64_t all = 0;
  switch (f->conversion) {
  case HEED__AS_IS:
    if (step == width && !reversed)
      memcpy(out, p, (size_t)n * (size_t)width);
    else if (width == 1)
      CONVERT_EACH(uint8_t, uint8_t, value)
    else if (width == 2)
      CONVERT_EACH(uint16_t, uint16_t, value)
    else if (width == 4)
      CONVERT_EACH(uint32_t, uint32_t, value)
    else
      CONVERT_EACH(uint64_t, uint64_t, value)
    break;
  case HEED__FROM_FLAG: CONVERT_EACH(uint8_t, uint8_t, value != 0) break;
  case HEED__FROM_DOUBLE: CONVERT_EACH(double, float, (float)value) break;
  case HEED__FROM_SIGNED:
    if (width == 2)
      CONVERT_INTEGERS(int16_t)
    else
      CONVERT_INTEGERS(int32_t)
    break;
  case HEED__FROM_UNSIGNED:
    if (width == 1)
      CONVERT_INTEGERS(uint8_t)
    else if (width == 2)
      CONVERT_INTEGERS(uint16_t)
    else if (width == 4)
      CONVERT_INTEGERS(uint32_t)
    else
      CONVERT_EACH(uint64_t, int64_t, (all |= value, (int64_t)(value & INT64_MAX)))
    break;
  case HEED__REFUSED: break;
  }
  return all <= INT64_MAX;
}

/* ---- Tensors of a mapped file ---- */

/* bytes of a part whose pages are given back with its last tensor */
#define FORGOTTEN_FROM ((size_t)1 << 16)

static void release_map(void *user, void *data) {
  (void)data;
  heed__file_map_release(user);
}

void heed__mapped_part_release(heed__mapped_part *part) {
  if (part == NULL || --part->references > 0) return;
  heed_context *ctx = part->map->ctx;
  heed__file_map_release(part->map);
  heed__release(ctx, part);
}

/* A model's small tensors keep the whole file mapped after its weights were converted; the pages of these
 * would count as the process's memory until the system takes them. */
static void release_part(void *user, void *data) {
  heed__mapped_part *part = user;
  (void)data;
  if (--part->tensors == 0 && part->apart && !part->map->copied && part->bytes >= FORGOTTEN_FROM)
    heed__system_forget(part->data, part->bytes);
  heed__mapped_part_release(part);
}

static heed_status open_part(heed_context *ctx, heed__entry *entry, int64_t numel) {
  if (entry->opened != NULL) return HEED_OK;
  heed__mapped_part *part = heed__allocate(ctx, sizeof(*part));
  if (part == NULL) return heed__fail_memory(ctx, "load", sizeof(*part));
  *part = (heed__mapped_part){.map = entry->map,
                              .data = entry->data,
                              .bytes = (size_t)heed__row_bytes(entry->stored->dtype, numel),
                              .apart = entry->apart,
                              .references = 1};
  entry->map->references++;
  entry->opened = part;
  return HEED_OK;
}

void heed__tensor_forget(const heed_tensor *x) {
  const heed__storage *storage = x->storage;
  if (storage->release == release_part && storage->version == 0 &&
      !((const heed__mapped_part *)storage->user)->map->copied)
    heed__system_forget(storage->data, storage->bytes);
}

#define COPIED_CHUNK ((int64_t)1 << 17) /* elements between two cancellation checks */

static bool lies_contiguous(const heed__entry *entry) {
  int64_t expected = 1;
  for (int d = entry->ndim - 1; entry->stride != NULL && d >= 0; d--) {
    if (entry->shape[d] != 1 && entry->stride[d] != expected) return false;
    expected *= entry->shape[d];
  }
  return true;
}

bool heed__entry_is_mapped(const heed__entry *entry) {
  const heed__stored *f = entry->stored;
  if (f == NULL || f->conversion != HEED__AS_IS || !lies_contiguous(entry)) return false;
  if (heed__is_blocked(f->dtype)) return true; /* little-endian everywhere */
  const size_t width = heed__element_bytes(f->dtype);
  return (width == 1 || !entry->reversed) && (uintptr_t)entry->data % width == 0;
}

static heed_status fail_entry(const heed_archive *archive, const heed__entry *entry, heed_status status,
                              const char *problem) {
  char quoted[HEED__QUOTED];
  return heed__fail(archive->ctx, status, "%s, tensor %s: %s", archive->where,
                    heed__quoted(quoted, entry->name, false), problem);
}

/* Copies all elements, row by row, into x. */
static heed_status copy_entry_elements(const heed_archive *archive, const heed__entry *entry,
                                       heed_tensor *x) {
  heed_context *ctx = archive->ctx;
  const int64_t width = entry->stored->bits / 8;
  const bool whole = lies_contiguous(entry);
  const int last = entry->ndim - 1;
  const int64_t row = whole ? x->numel : entry->shape[last],
                step = whole ? width : entry->stride[last] * width;
  int64_t at[HEED_MAX_DIMS] = {0}, since = 0;
  for (int64_t done = 0; done < x->numel; done += row) {
    const char *p = entry->data;
    for (int d = 0; d < last && !whole; d++) p += at[d] * entry->stride[d] * width;
    for (int64_t i = 0; i < row; i += COPIED_CHUNK) {
      const int64_t n = row - i < COPIED_CHUNK ? row - i : COPIED_CHUNK;
      char *to = x->data + (size_t)(done + i) * heed__element_bytes(x->dtype);
      if (!heed__stored_convert(entry->stored, entry->reversed, p + i * step, step, n, to))
        return fail_entry(archive, entry, HEED_FILE,
                          "it has a number above 2^63 - 1 (uint64); heed's largest dtype is int64");
      since += n;
      if (since < COPIED_CHUNK) continue;
      since = 0;
      const heed_status status = heed__is_due(&ctx->pace) ? heed__stopped(ctx, "load") : HEED_OK;
      if (status != HEED_OK) return status;
    }
    for (int d = last - 1; d >= 0 && ++at[d] == entry->shape[d]; d--) at[d] = 0;
  }
  return HEED_OK;
}

static const char *stored_text(const heed__stored *f) {
  static const heed__naming order[] = {HEED__IN_TORCH, HEED__IN_SAFETENSORS, HEED__IN_GGUF};
  int i = 0;
  while (f->names[order[i]] == NULL) i++;
  return f->names[order[i]];
}

void heed__entry_text(const heed__entry *entry, char *out, size_t capacity) {
  char shape[HEED__SHAPE_TEXT];
  if (entry->stored == NULL) {
    snprintf(out, capacity, "a tensor of a dtype that heed lacks");
    return;
  }
  snprintf(out, capacity, "a tensor of shape %s and dtype %s in the file",
           heed__shape_text(shape, entry->ndim, entry->shape), stored_text(entry->stored));
}

const char *heed__entry_lacks(const heed__entry *entry, const char **fix) {
  const heed__stored *f = entry->stored;
  *fix = "";
  if (entry->tensor != NULL || entry->refusal != NULL) return NULL;
  if (entry->unknown != NULL) return entry->unknown;
  if (f->conversion != HEED__REFUSED) return NULL;
  *fix = f->names[HEED__IN_GGUF] != NULL ? "quantize the model to Q8_0 or Q4_K_M with llama-quantize"
                                         : "convert it to float32 in Python";
  return stored_text(f);
}

heed_status heed__entry_open(const heed_archive *archive, heed__entry *entry, heed_tensor **out) {
  heed_context *ctx = archive->ctx;
  const heed__stored *f = entry->stored;
  char problem[160];
  heed_status status;
  if (entry->tensor != NULL) return heed__tensor_from_view(ctx, "load", entry->tensor, out);
  if (entry->refusal != NULL) return heed__fail(ctx, HEED_DTYPE, "%s", entry->refusal);
  const char *fix, *lacked = heed__entry_lacks(entry, &fix);
  if (lacked != NULL) {
    snprintf(problem, sizeof problem, "its dtype is %s, which heed lacks%s%s", lacked, *fix ? "; " : "", fix);
    return fail_entry(archive, entry, HEED_DTYPE, problem);
  }
  /* an element of a block takes less than 2 bytes */
  const size_t each = heed__is_blocked(f->dtype) ? 2 : heed__element_bytes(f->dtype);
  const int64_t numel = heed__numel(entry->ndim, entry->shape, each);
  if (numel < 0) return fail_entry(archive, entry, HEED_FILE, "it is larger than the address space");
  if (numel > 0 && heed__entry_is_mapped(entry)) {
    status = open_part(ctx, entry, numel);
    if (status == HEED_OK)
      status = heed_tensor_from_memory(ctx, f->dtype, entry->ndim, entry->shape, entry->data, release_part,
                                       entry->opened, out);
    if (status == HEED_OK) {
      entry->opened->references++;
      entry->opened->tensors++;
    }
  } else {
    status = heed__tensor_new(ctx, "load", f->dtype, entry->ndim, entry->shape, out);
    if (status == HEED_OK) status = heed__charge(ctx, "load", (double)numel);
    if (status == HEED_OK && numel > 0) status = copy_entry_elements(archive, entry, *out);
    if (status != HEED_OK) {
      heed_tensor_free(*out);
      *out = NULL;
    }
  }
  const size_t bytes = (size_t)heed__row_bytes(f->dtype, numel);
  return status == HEED_MEMORY ? heed__fail_memory(ctx, "load", bytes) : status;
}

heed_status heed__map_bytes(heed_context *ctx, const char *path, heed_tensor **out) {
  heed__where where;
  heed__file_map *map = NULL;
  heed__where_init(&where, ctx, "load", path);
  heed_status status = heed__file_map_open(&where, path, &map);
  if (status != HEED_OK) return status;
  const int64_t size = (int64_t)map->size;
  status = heed_tensor_from_memory(ctx, HEED_INT8, 1, &size, map->data, release_map, map, out);
  if (status != HEED_OK) heed__file_map_release(map);
  return status;
}
