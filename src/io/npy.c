/* .npy: magic bytes, a version, the length of a header, the header (a Python literal: a dict with descr,
 * fortran_order and shape), and the elements. Source: numpy.org, "NEP 1". */
#include "files.h"

#include <stdio.h>
#include <string.h>

#define MAGIC           "\x93NUMPY"
#define MOST_NPY_HEADER ((size_t)1 << 16)

/* ---- Reading the header ---- */

typedef struct header {
  char descr[32]; /* "<f4" */
  bool fortran_order;
  int ndim;
  int64_t shape[HEED_MAX_DIMS];
} header;

/* A strict parser of the literal. */
typedef struct reader {
  const heed__where *where;
  const char *start, *p, *end;
  bool records; /* descr is a list */
} reader;

static heed_status invalid_npy(const reader *r, const char *what) {
  return heed__fail_file(r->where, "the header is not valid at byte %lld: %s",
                         (long long)(r->p - r->start) + 1, what);
}

static void skip_npy_spaces(reader *r) {
  while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r')) r->p++;
}

static bool skip_npy(reader *r, char character) {
  skip_npy_spaces(r);
  if (r->p == r->end || *r->p != character) return false;
  r->p++;
  return true;
}

static bool skip_npy_word(reader *r, const char *word) {
  const size_t length = strlen(word);
  skip_npy_spaces(r);
  if ((size_t)(r->end - r->p) < length || memcmp(r->p, word, length) != 0) return false;
  r->p += length;
  return true;
}

/* 'text' or "text", without escapes. */
static heed_status read_string(reader *r, char *out, size_t capacity) {
  skip_npy_spaces(r);
  const char quote = r->p < r->end ? *r->p : '\0';
  if (quote != '\'' && quote != '"') return invalid_npy(r, "a string in quotes is expected");
  const char *start = r->p + 1, *end = start;
  while (end < r->end && *end != quote && *end >= ' ' && *end <= '~' && *end != '\\') end++;
  const size_t length = (size_t)(end - start);
  if (end == r->end || *end != quote || length >= capacity) return invalid_npy(r, "the string is unknown");
  memcpy(out, start, length);
  out[length] = '\0';
  r->p = end + 1;
  return HEED_OK;
}

/* Digits, and the L that Python 2 appends. */
static heed_status read_size(reader *r, int64_t *out) {
  int64_t value = 0;
  skip_npy_spaces(r);
  const char *start = r->p;
  for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) {
    const int digit = *r->p - '0';
    if (value > (INT64_MAX - digit) / 10) return invalid_npy(r, "the size is too large");
    value = value * 10 + digit;
  }
  if (r->p == start) return invalid_npy(r, "a size of the shape is expected, an integer from 0 up");
  if (r->p < r->end && *r->p == 'L') r->p++;
  *out = value;
  return HEED_OK;
}

static heed_status read_npy_shape(reader *r, header *h) {
  if (!skip_npy(r, '(')) return invalid_npy(r, "the shape must be a tuple");
  h->ndim = 0;
  bool comma = false;
  while (!skip_npy(r, ')')) {
    if (h->ndim > 0 && !comma) return invalid_npy(r, "a comma or ) is expected");
    if (h->ndim == HEED_MAX_DIMS) return invalid_npy(r, "the shape has more than 16 dimensions");
    const heed_status status = read_size(r, &h->shape[h->ndim]);
    if (status != HEED_OK) return status;
    h->ndim++;
    comma = skip_npy(r, ',');
  }
  return h->ndim == 1 && !comma ? invalid_npy(r, "the shape must be a tuple, (3,)") : HEED_OK;
}

static heed_status read_value(reader *r, int key, header *h) {
  skip_npy_spaces(r);
  if (key == 0) {
    r->records = r->p < r->end && *r->p == '[';
    if (r->records)
      return heed__fail_file(r->where, "its elements are records (descr is a list); they must be numbers");
    return read_string(r, h->descr, sizeof(h->descr));
  }
  if (key == 2) return read_npy_shape(r, h);
  h->fortran_order = skip_npy_word(r, "True");
  return h->fortran_order || skip_npy_word(r, "False") ? HEED_OK
                                                       : invalid_npy(r, "True or False is expected");
}

static heed_status read_dict(reader *r, header *h) {
  static const char *const keys[] = {"descr", "fortran_order", "shape"};
  bool found[3] = {false, false, false}, comma = true;
  if (!skip_npy(r, '{')) return invalid_npy(r, "{ is expected");
  while (!skip_npy(r, '}')) {
    char key[16];
    if (!comma) return invalid_npy(r, "a comma or } is expected");
    heed_status status = read_string(r, key, sizeof(key));
    if (status != HEED_OK) return status;
    int k = 0;
    while (k < 3 && strcmp(key, keys[k]) != 0) k++;
    if (k == 3) return invalid_npy(r, "the key must be descr, fortran_order or shape");
    if (found[k]) return invalid_npy(r, "duplicate key");
    found[k] = true;
    if (!skip_npy(r, ':')) return invalid_npy(r, "a colon is expected");
    status = read_value(r, k, h);
    if (status != HEED_OK) return status;
    comma = skip_npy(r, ',');
  }
  for (int k = 0; k < 3; k++) {
    if (!found[k]) return heed__fail_file(r->where, "the header lacks %s", keys[k]);
  }
  skip_npy_spaces(r);
  return r->p == r->end ? HEED_OK : invalid_npy(r, "unexpected text after }");
}

static size_t little_endian(const unsigned char *bytes, int count) {
  size_t value = 0;
  for (int i = count - 1; i >= 0; i--) value = value << 8 | bytes[i];
  return value;
}

static heed_status fill_from_source(heed__npy_source *source, void *out, size_t bytes) {
  if ((uint64_t)source->left < bytes) return heed__fail_file(source->where, "the header is cut short");
  const heed_status status = source->fill(source, out, bytes);
  source->left -= (int64_t)bytes;
  return status;
}

static heed_status read_header(heed_context *ctx, heed__npy_source *source, header *h) {
  const heed__where *where = source->where;
  unsigned char start[8], length_bytes[4];
  if (source->left < 8)
    return heed__fail_file(where, "is not an .npy file: it has only %lld byte%s", (long long)source->left,
                           HEED__S(source->left));
  heed_status status = fill_from_source(source, start, 8);
  if (status != HEED_OK) return status;
  if (memcmp(start, MAGIC, 6) != 0)
    return heed__fail_file(where, "is not an .npy file: it does not begin with \\x93NUMPY");
  if (start[6] < 1 || start[6] > 3 || start[7] != 0)
    return heed__fail_file(where, "its version is %d.%d; it must be 1.0, 2.0 or 3.0", start[6], start[7]);
  const int length_size = start[6] == 1 ? 2 : 4;
  status = fill_from_source(source, length_bytes, (size_t)length_size);
  if (status != HEED_OK) return status;
  const size_t length = little_endian(length_bytes, length_size);
  if (length > MOST_NPY_HEADER)
    return heed__fail_file(where, "its header has %zu bytes; it must have at most %zu", length,
                           MOST_NPY_HEADER);
  char *text = heed__allocate(ctx, length);
  if (text == NULL) return heed__fail_memory(ctx, "load", length);
  status = fill_from_source(source, text, length);
  reader r = {.where = where, .start = text, .p = text, .end = text + length};
  if (status == HEED_OK) status = read_dict(&r, h);
  source->refused = r.records;
  heed__release(ctx, text);
  return status;
}

/* ---- The elements ---- */

static heed_status find_npy_dtype(heed__npy_source *source, const char *descr, const heed__stored **out,
                                  bool *reversed) {
  char quoted[HEED__QUOTED];
  const char order = descr[0];
  if (order != '\0' && strchr("<>=|", order) != NULL) {
    const heed__stored *f = heed__stored_named(HEED__IN_NPY, descr + 1);
    if (f != NULL && f->conversion != HEED__REFUSED && (order != '|' || f->bits == 8)) {
      *out = f;
      *reversed = f->bits > 8 && order != '=' && (order == '<') != heed__is_little_endian();
      return HEED_OK;
    }
  }
  source->refused = true;
  return heed__fail_file(
      source->where,
      "its dtype is %s; it must be f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8 or b1, of either "
      "byte order",
      heed__quoted(quoted, descr, false));
}

static heed_status read_elements(heed__npy_source *source, const heed__stored *f, bool reversed,
                                 heed_tensor *x) {
  const size_t width = heed__element_bytes(x->dtype), bytes = (size_t)f->bits / 8;
  heed_status status = HEED_OK;
  const bool same = f->conversion == HEED__AS_IS && !reversed;
  const heed__pace *pace = &source->where->ctx->pace;
  char chunk[8192];
  const int64_t most = (int64_t)((same ? HEED__IO_CHUNK / 4 : sizeof(chunk)) / bytes);
  for (int64_t done = 0; done < x->numel && status == HEED_OK; done += most) {
    const int64_t n = x->numel - done < most ? x->numel - done : most;
    char *to = x->data + (size_t)done * width, *from = same ? to : chunk;
    status = heed__is_due(pace) ? heed__stopped(source->where->ctx, "load") : HEED_OK;
    if (status == HEED_OK) status = fill_from_source(source, from, (size_t)n * bytes);
    if (status == HEED_OK && !same && !heed__stored_convert(f, reversed, chunk, (int64_t)bytes, n, to))
      status = heed__fail_file(source->where,
                               "has a number above 2^63 - 1 (uint64); heed's largest dtype is int64");
  }
  return status;
}

/* A row-major copy of x with its dimensions reversed. */
static heed_status copy_reversed(heed_context *ctx, const heed_tensor *x, heed_tensor **out) {
  heed_tensor view;
  heed__alias_on_stack(&view, x);
  for (int d = 0; d < x->ndim; d++) {
    view.shape[d] = x->shape[x->ndim - 1 - d];
    view.stride[d] = x->stride[x->ndim - 1 - d];
  }
  return heed__clone(ctx, "load", &view, out);
}

heed_status heed__npy_read(heed_context *ctx, heed__npy_source *source, heed_tensor **out) {
  header h;
  const heed__stored *f = NULL;
  bool reversed = false;
  char text[HEED__SHAPE_TEXT];
  heed_tensor *x = NULL;
  heed_status status = read_header(ctx, source, &h);
  if (status == HEED_OK) status = find_npy_dtype(source, h.descr, &f, &reversed);
  if (status != HEED_OK) return status;
  const size_t stored = (size_t)f->bits / 8, loaded = heed__element_bytes(f->dtype);
  const size_t width = loaded > stored ? loaded : stored;
  const int64_t numel = heed__numel(h.ndim, h.shape, width);
  heed__shape_text(text, h.ndim, h.shape);
  if (numel < 0) return heed__fail_file(source->where, "its shape is %s, more than the address space", text);
  const int64_t bytes = numel * (int64_t)stored;
  if (source->left != bytes)
    return heed__fail_file(source->where, "has %lld byte%s after the header; %s of %s takes %lld%s",
                           (long long)source->left, HEED__S(source->left), text, h.descr, (long long)bytes,
                           source->left < bytes ? ": it is cut short" : "");
  if (h.fortran_order) {
    for (int d = 0; d < h.ndim / 2; d++) {
      const int64_t size = h.shape[d];
      h.shape[d] = h.shape[h.ndim - 1 - d];
      h.shape[h.ndim - 1 - d] = size;
    }
  }
  status = heed__tensor_new(ctx, "load", f->dtype, h.ndim, h.shape, &x);
  if (status == HEED_OK) status = read_elements(source, f, reversed, x);
  if (status != HEED_OK) goto done;
  if (h.fortran_order && h.ndim > 1) {
    status = copy_reversed(ctx, x, out);
  } else {
    *out = x;
    x = NULL;
  }
done:
  heed_tensor_free(x);
  return status == HEED_MEMORY ? heed__fail_memory(ctx, "load", (size_t)numel * width) : status;
}

/* ---- Files ---- */

typedef struct file_source {
  heed__npy_source source;
  heed__file file;
  int64_t offset;
} file_source;

static heed_status fill_from_file(heed__npy_source *source, void *out, size_t bytes) {
  file_source *file = (file_source *)source;
  const heed_status status = heed__file_read(source->where, file->file, file->offset, out, bytes);
  file->offset += (int64_t)bytes;
  return status;
}

static heed_status load_npy(const heed__where *where, const char *path, heed__loaded *out) {
  file_source file = {.source = {.where = where, .fill = fill_from_file}};
  heed_status status = heed__file_open(where, path, &file.file, &file.source.left);
  if (status != HEED_OK) return status;
  status = heed__npy_read(where->ctx, &file.source, &out->tensor);
  heed__system_close(file.file);
  return status;
}

heed_status heed_load_npy(heed_context *ctx, const char *path, heed_tensor **out) {
  HEED__ENTER(ctx, "load", path, out);
  heed__where where;
  heed__loaded loaded = {0};
  heed_status status = heed__check_load(ctx, *out);
  if (status != HEED_OK) return status;
  heed__where_init(&where, ctx, "load", path);
  status = load_npy(&where, path, &loaded);
  if (status == HEED_OK) *out = loaded.tensor;
  return status;
}

/* ---- Writing ---- */

static const char *descr_of(heed_dtype dtype) {
  switch (dtype) {
  case HEED_FLOAT32: return "<f4";
  case HEED_FLOAT16: return "<f2";
  case HEED_INT64: return "<i8";
  case HEED_INT8: return "|i1";
  case HEED_BOOL: return "|b1";
  default: return NULL;
  }
}

heed_status heed__npy_header(heed_context *ctx, const heed_tensor *x, char out[HEED__NPY_HEADER],
                             size_t *bytes) {
  char shape[HEED_MAX_DIMS * 22 + 4] = "";
  const char *descr = descr_of(x->dtype);
  size_t used = 0;
  if (descr == NULL)
    return heed__fail(
        ctx, HEED_DTYPE,
        "save: the dtype is %s, which numpy lacks; convert the tensor to float32, or save it as "
        ".safetensors",
        heed_dtype_name(x->dtype));
  for (int d = 0; d < x->ndim; d++)
    used += (size_t)snprintf(shape + used, sizeof(shape) - used, d == 0 ? "%lld" : ", %lld",
                             (long long)x->shape[d]);
  if (x->ndim == 1) memcpy(shape + used, ",", 2);
  /* 10 bytes of magic, version 1.0 and length; then the text, padded to a multiple of 64 as numpy does */
  const int length = snprintf(out + 10, HEED__NPY_HEADER - 10,
                              "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape);
  const size_t end = 10 + (size_t)length, total = (end + 1 + 63) / 64 * 64;
  memset(out + end, ' ', total - 1 - end);
  out[total - 1] = '\n';
  memcpy(out, MAGIC "\1", 8); /* the closing zero is the minor version */
  out[8] = (char)(unsigned char)((total - 10) & 0xff);
  out[9] = (char)(unsigned char)((total - 10) >> 8);
  *bytes = total;
  return HEED_OK;
}

static heed_status save_npy(heed__writer *w, const heed__contents *contents) {
  char text[HEED__NPY_HEADER];
  size_t bytes;
  heed_status status = heed__npy_header(w->where.ctx, contents->tensors[0], text, &bytes);
  if (status == HEED_OK) status = heed__writer_put(w, text, bytes);
  return status == HEED_OK ? heed__writer_put_tensor(w, contents->tensors[0]) : status;
}

heed_status heed_save_npy(heed_context *ctx, const char *path, const heed_tensor *x) {
  HEED__ENTER(ctx, "save", path, x);
  const heed__contents contents = {.count = 1, .tensors = &x};
  heed__writer w;
  const heed_status status = heed__writer_begin(&w, ctx, path);
  return status == HEED_OK ? heed__writer_end(&w, save_npy(&w, &contents)) : status;
}

const heed__format heed__format_npy = {
    .ending = ".npy",
    .alone = true,
    .magic = {{0, 6, MAGIC}},
    .load = load_npy,
    .save = save_npy,
};
