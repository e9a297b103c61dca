/* Writing GGUF files, version 3. */
#include "gguf.h"

#include <string.h>

enum { LONGEST_NAME = 63, MOST_DIMS = 4 }; /* of ggml, which refuses other files */

static heed_status put_gguf_number(heed__writer *w, uint64_t number, size_t bytes) {
  char text[8];
  for (size_t i = 0; i < bytes; i++) text[i] = (char)(unsigned char)(number >> 8 * i & 0xff);
  return heed__writer_put(w, text, bytes);
}

static heed_status put_gguf_string(heed__writer *w, const char *text, size_t length) {
  const heed_status status = put_gguf_number(w, length, 8);
  return status == HEED_OK ? heed__writer_put(w, text, length) : status;
}

/* Zeros up to the next multiple of the alignment. */
static heed_status put_gguf_padding(heed__writer *w, uint64_t alignment) {
  static const char zeros[64] = {0};
  uint64_t left = (0 - heed__writer_position(w)) & (alignment - 1);
  heed_status status = HEED_OK;
  for (; left > 0 && status == HEED_OK; left -= heed__min_size(left, sizeof zeros))
    status = heed__writer_put(w, zeros, heed__min_size(left, sizeof zeros));
  return status;
}

/* ---- Metadata ---- */

/* Pair i. A text is a string. */
static heed_gguf_value gguf_pair_of(const heed__contents *c, int64_t i, const char **key) {
  if (c->values != NULL) {
    *key = c->keys[i];
    return c->values[i];
  }
  const char *text = c->metadata[2 * i + 1];
  *key = c->metadata[2 * i];
  return (heed_gguf_value){.type = HEED_GGUF_STRING, .count = (int64_t)strlen(text), .data = text};
}

static heed_status check_gguf_pair(heed_context *ctx, const char *key, const heed_gguf_value *value) {
  char quoted[HEED__QUOTED];
  const bool is_list = value->type == HEED_GGUF_ARRAY, is_any = is_list || value->type == HEED_GGUF_STRING;
  const int64_t count = is_any ? value->count : 1;
  if (*key == '\0')
    return heed__fail(ctx, HEED_ARGUMENT, "save: a key of the metadata is empty; it must not be");
  heed__quoted(quoted, key, false);
  if ((unsigned)value->type >= HEED__GGUF_TYPES || (is_list && (unsigned)value->item >= HEED__GGUF_TYPES))
    return heed__fail(ctx, HEED_ARGUMENT, "save: the type of %s is %d; it must be a heed_gguf_type", quoted,
                      (int)(is_list ? value->item : value->type));
  if (count < 0)
    return heed__fail(ctx, HEED_ARGUMENT, "save: the value of %s has %lld elements; it must have 0 or more",
                      quoted, (long long)count);
  if (count > 0 && value->data == NULL)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "save: the value of %s has %lld elements and its data is NULL; it must not be", quoted,
                      (long long)count);
  if (strcmp(key, "general.alignment") == 0 && heed__gguf_alignment(value) == 0)
    return heed__fail(ctx, HEED_ARGUMENT, "save: general.alignment must be a power of two up to 2^20");
  return HEED_OK;
}

static heed_status put_pairs(heed__writer *w, const heed__contents *c, uint64_t *alignment) {
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < c->pairs && status == HEED_OK; i++) {
    const char *key;
    const heed_gguf_value value = gguf_pair_of(c, i, &key);
    status = check_gguf_pair(w->where.ctx, key, &value);
    if (status != HEED_OK) return status;
    if (strcmp(key, "general.alignment") == 0) *alignment = heed__gguf_alignment(&value);
    status = put_gguf_string(w, key, strlen(key));
    if (status == HEED_OK) status = put_gguf_number(w, value.type, 4);
    if (status == HEED_OK && value.type == HEED_GGUF_ARRAY) status = put_gguf_number(w, value.item, 4);
    if (status == HEED_OK && (value.type == HEED_GGUF_ARRAY || value.type == HEED_GGUF_STRING))
      status = put_gguf_number(w, (uint64_t)value.count, 8);
    if (status == HEED_OK && heed__gguf_end(&value) != value.data)
      status = heed__writer_put(w, value.data, (size_t)(heed__gguf_end(&value) - (const char *)value.data));
  }
  return status;
}

/* ---- Tensors ---- */

static heed_status check_gguf_tensor(heed_context *ctx, const char *name, const heed_tensor *x) {
  char quoted[HEED__QUOTED];
  const size_t length = strlen(name);
  heed__quoted(quoted, name, false);
  if (length == 0 || length > LONGEST_NAME)
    return heed__fail(ctx, HEED_ARGUMENT, "save: the name %s has %zu bytes; it must have 1 to %d in .gguf",
                      quoted, length, LONGEST_NAME);
  if (x->ndim > MOST_DIMS)
    return heed__fail(ctx, HEED_SHAPE, "save: %s has %d dimensions; it must have at most %d in .gguf", quoted,
                      x->ndim, MOST_DIMS);
  if (heed__stored_name(HEED__IN_GGUF, x->dtype) != NULL) return HEED_OK;
  return heed__fail(ctx, HEED_DTYPE, "save: %s is %s, which .gguf lacks; use x:to \"int8\"", quoted,
                    heed_dtype_name(x->dtype));
}

static uint64_t stored_bytes(const heed_tensor *x) {
  return (uint64_t)heed__row_bytes(x->dtype, x->numel);
}

/* The description of a tensor whose elements begin at *offset, which moves to those of the next. */
static heed_status put_description(heed__writer *w, const char *name, const heed_tensor *x,
                                   uint64_t alignment, uint64_t *offset) {
  heed_status status = check_gguf_tensor(w->where.ctx, name, x);
  if (status == HEED_OK) status = put_gguf_string(w, name, strlen(name));
  if (status == HEED_OK) status = put_gguf_number(w, (uint64_t)x->ndim, 4);
  for (int d = x->ndim - 1; d >= 0 && status == HEED_OK; d--)
    status = put_gguf_number(w, (uint64_t)x->shape[d], 8);
  if (status == HEED_OK) status = put_gguf_number(w, heed__ggml_number(x->dtype), 4);
  if (status == HEED_OK) status = put_gguf_number(w, *offset, 8);
  *offset += (stored_bytes(x) + alignment - 1) & ~(alignment - 1);
  return status;
}

heed_status heed__gguf_save(heed__writer *w, const heed__contents *c) {
  uint64_t alignment = HEED__GGUF_ALIGNMENT, offset = 0;
  heed_status status = heed__writer_put(w, "GGUF\3\0\0\0", 8);
  if (status == HEED_OK) status = put_gguf_number(w, (uint64_t)c->count, 8);
  if (status == HEED_OK) status = put_gguf_number(w, (uint64_t)c->pairs, 8);
  if (status == HEED_OK) status = put_pairs(w, c, &alignment);
  for (int64_t i = 0; i < c->count && status == HEED_OK; i++)
    status = put_description(w, c->names[i], c->tensors[i], alignment, &offset);
  if (status == HEED_OK) status = heed__writer_check_space(w, (double)offset);
  for (int64_t i = 0; i < c->count && status == HEED_OK; i++) {
    status = put_gguf_padding(w, alignment);
    if (status == HEED_OK) status = heed__writer_put_tensor(w, c->tensors[i]);
  }
  return status == HEED_OK ? put_gguf_padding(w, alignment) : status; /* ggml reads the last one, too */
}
