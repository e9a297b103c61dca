/* Values of GGUF metadata: reading and checking them, and numbers of any type. */
#include "gguf.h"

#include <string.h>

/* Bytes of a value of each type; 0: strings and arrays. */
static const uint8_t value_bytes[HEED__GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

uint64_t heed__gguf_bits(const char *p, size_t bytes) {
  uint64_t bits = 0;
  for (size_t i = bytes; i-- > 0;) bits = bits << 8 | (unsigned char)p[i];
  return bits;
}

/* ---- Taking ---- */

static heed_status fail_short(const heed__gguf_cursor *c, const char *what) {
  return heed__fail_file(c->where, "ends in %s, which begins at byte %lld: the file is cut short or damaged",
                         what, (long long)(c->at - c->start));
}

heed_status heed__gguf_take(heed__gguf_cursor *c, const char *what, size_t bytes, uint64_t *out) {
  if ((size_t)(c->end - c->at) < bytes) return fail_short(c, what);
  *out = heed__gguf_bits(c->at, bytes);
  c->at += bytes;
  return HEED_OK;
}

heed_status heed__gguf_take_string(heed__gguf_cursor *c, const char *what, const char **text,
                                   size_t *length) {
  uint64_t n = 0;
  const heed_status status = heed__gguf_take(c, what, 8, &n);
  if (status != HEED_OK) return status;
  if (n > (uint64_t)(c->end - c->at))
    return heed__fail_file(c->where, "the length of %s at byte %lld is %llu; only %llu bytes follow", what,
                           (long long)(c->at - 8 - c->start), (unsigned long long)n,
                           (unsigned long long)(c->end - c->at));
  *text = c->at;
  *length = (size_t)n;
  c->at += n;
  return HEED_OK;
}

static heed_status take_type(heed__gguf_cursor *c, heed_gguf_type *out) {
  uint64_t type = 0;
  const heed_status status = heed__gguf_take(c, "the type of a value", 4, &type);
  if (status != HEED_OK) return status;
  if (type >= HEED__GGUF_TYPES)
    return heed__fail_file(c->where, "the type of a value is %llu; it must be 0 to %d",
                           (unsigned long long)type, HEED__GGUF_TYPES - 1);
  *out = (heed_gguf_type)type;
  return HEED_OK;
}

static heed_status take_of_type(heed__gguf_cursor *c, int depth, heed_gguf_value *out);

/* Elements of an array take at least a byte each, so that absurd counts fail before they cost time. */
static heed_status take_array(heed__gguf_cursor *c, int depth, heed_gguf_value *out) {
  uint64_t count = 0;
  heed_context *ctx = c->where->ctx;
  heed_status status = HEED_OK;
  if (depth >= HEED__GGUF_DEPTH)
    return heed__fail_file(c->where, "arrays are nested deeper than %d", HEED__GGUF_DEPTH);
  status = take_type(c, &out->item);
  if (status == HEED_OK) status = heed__gguf_take(c, "the count of an array", 8, &count);
  if (status != HEED_OK) return status;
  const size_t each = value_bytes[out->item];
  if (count > (uint64_t)(c->end - c->at) / (each > 0 ? each : 8))
    return heed__fail_file(c->where, "an array has %llu elements at byte %lld; only %llu bytes follow",
                           (unsigned long long)count, (long long)(c->at - c->start),
                           (unsigned long long)(c->end - c->at));
  out->count = (int64_t)count;
  out->data = c->at;
  if (each > 0) {
    c->at += count * each;
    return HEED_OK;
  }
  heed_gguf_value item = {.type = out->item};
  for (int64_t i = 0; i < out->count && status == HEED_OK; i++) {
    status = take_of_type(c, depth + 1, &item);
    if (status == HEED_OK && heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, "load");
  }
  return status;
}

/* The value of out->type. */
static heed_status take_of_type(heed__gguf_cursor *c, int depth, heed_gguf_value *out) {
  const size_t bytes = value_bytes[out->type];
  size_t length = 0;
  if (out->type == HEED_GGUF_ARRAY) return take_array(c, depth, out);
  if (out->type == HEED_GGUF_STRING) {
    const char *text = NULL;
    const heed_status status = heed__gguf_take_string(c, "a string", &text, &length);
    out->data = text;
    out->count = (int64_t)length;
    return status;
  }
  if ((size_t)(c->end - c->at) < bytes) return fail_short(c, "a value");
  out->count = 1;
  out->data = c->at;
  c->at += bytes;
  return HEED_OK;
}

heed_status heed__gguf_take_value(heed__gguf_cursor *c, heed_gguf_value *out) {
  *out = (heed_gguf_value){0};
  const heed_status status = take_type(c, &out->type);
  return status == HEED_OK ? take_of_type(c, 0, out) : status;
}

heed_status heed__gguf_read_value(heed_context *ctx, const char *text, size_t bytes, heed_gguf_value *out) {
  heed__where where;
  heed__where_init(&where, ctx, "save", "metadata");
  heed__gguf_cursor c = {&where, text, text, text + bytes};
  return heed__gguf_take_value(&c, out);
}

/* ---- Using ---- */

size_t heed__gguf_width(heed_gguf_type type) {
  return value_bytes[type];
}

const char *heed__gguf_end(const heed_gguf_value *value) {
  const char *data = value->data;
  if (value->type == HEED_GGUF_STRING) return data + value->count;
  if (value->type != HEED_GGUF_ARRAY) return data + value_bytes[value->type];
  heed_gguf_value rest = *value, item;
  if (value_bytes[value->item] > 0) return data + (size_t)value->count * value_bytes[value->item];
  while (heed_gguf_next(&rest, &item)) continue; /* at most HEED__GGUF_DEPTH deep */
  return rest.data;
}

bool heed_gguf_next(heed_gguf_value *array, heed_gguf_value *item) {
  if (array == NULL || item == NULL || array->type != HEED_GGUF_ARRAY || array->count == 0) return false;
  const char *data = array->data;
  *item = (heed_gguf_value){.type = array->item, .count = 1, .data = data};
  if (item->type == HEED_GGUF_STRING) {
    item->count = (int64_t)heed__gguf_bits(data, 8);
    item->data = data + 8;
  } else if (item->type == HEED_GGUF_ARRAY) {
    item->item = (heed_gguf_type)heed__gguf_bits(data, 4);
    item->count = (int64_t)heed__gguf_bits(data + 4, 8);
    item->data = data + 12;
  }
  array->data = heed__gguf_end(item);
  array->count--;
  return true;
}

/* A number: an integer in *integer (true), or a double in *number (false). */
static bool is_integer(const heed_gguf_value *value, int64_t *integer, double *number) {
  const uint64_t bits = heed__gguf_bits(value->data, value_bytes[value->type]);
  const uint32_t low = (uint32_t)bits;
  float single;
  switch (value->type) {
  case HEED_GGUF_INT8: *integer = (int64_t)(bits ^ 0x80) - 0x80; return true;
  case HEED_GGUF_INT16: *integer = (int64_t)(bits ^ 0x8000) - 0x8000; return true;
  case HEED_GGUF_INT32: *integer = (int64_t)(bits ^ 0x80000000) - 0x80000000; return true;
  case HEED_GGUF_INT64: memcpy(integer, &bits, sizeof bits); return true;
  case HEED_GGUF_FLOAT32:
    memcpy(&single, &low, sizeof single);
    *number = (double)single;
    return false;
  case HEED_GGUF_FLOAT64: memcpy(number, &bits, sizeof bits); return false;
  default: break;
  }
  *number = (double)bits;
  if (bits > INT64_MAX) return false;
  *integer = (int64_t)bits;
  return true;
}

static bool is_number(const heed_gguf_value *value) {
  return value != NULL && value->data != NULL && value->type != HEED_GGUF_BOOL &&
         value_bytes[value->type] > 0;
}

bool heed_gguf_integer(const heed_gguf_value *value, int64_t *out) {
  double number = 0;
  int64_t integer = 0;
  if (out == NULL || !is_number(value)) return false;
  if (!is_integer(value, &integer, &number)) {
    if (!(number > -0x1p53 && number < 0x1p53) || number != (double)(int64_t)number) return false;
    integer = (int64_t)number;
  }
  *out = integer;
  return true;
}

bool heed_gguf_number(const heed_gguf_value *value, double *out) {
  double number = 0;
  int64_t integer = 0;
  if (out == NULL || !is_number(value)) return false;
  *out = is_integer(value, &integer, &number) ? (double)integer : number;
  return true;
}

bool heed_gguf_boolean(const heed_gguf_value *value, bool *out) {
  if (out == NULL || value == NULL || value->data == NULL || value->type != HEED_GGUF_BOOL) return false;
  *out = *(const char *)value->data != 0;
  return true;
}

uint64_t heed__gguf_alignment(const heed_gguf_value *value) {
  int64_t n = 0;
  if (!heed_gguf_integer(value, &n) || n < 1 || n > 1 << 20 || (n & (n - 1)) != 0) return 0;
  return (uint64_t)n;
}
