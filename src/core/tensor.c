/* Tensors: headers on counted storages, their properties, overlap in memory, and single elements. */
#include "core.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* One allocation; the elements, unless they are a host's, follow at the offset ELEMENTS. */
typedef struct block {
  heed__storage storage;
  heed_tensor tensor;
} block;

#define ELEMENTS ((sizeof(block) + HEED__ALIGNMENT - 1) / HEED__ALIGNMENT * HEED__ALIGNMENT)

/* ---- Construction ---- */

static heed_status check_out(heed_context *ctx, const char *function, heed_tensor *const *out) {
  if (*out == NULL) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: *out is already a tensor; it must be NULL", function);
}

/* Fills in a row-major header. */
static void set_header(heed_tensor *x, heed__storage *storage, heed_dtype dtype, char *data, int ndim,
                       const int64_t *shape, int64_t numel) {
  x->storage = storage;
  x->data = data;
  x->dtype = dtype;
  x->ndim = ndim;
  x->numel = numel;
  x->parameter = x->detached = false;
  x->in_storage = storage != NULL;
  x->node = NULL;
  x->leaf = NULL;
  x->output = 0;
  for (int i = 0; i < ndim; i++) x->shape[i] = shape[i];
  heed__row_major(ndim, shape, x->stride);
}

/* A tensor over `data`, or over new elements if that is NULL. */
static heed_status new_block(heed_context *ctx, const char *function, heed_dtype dtype, int ndim,
                             const int64_t *shape, void *data, heed_tensor **out) {
  int64_t numel;
  heed_status status = check_out(ctx, function, out);
  if (status == HEED_OK) status = heed__check_shape(ctx, function, ndim, shape, dtype, &numel);
  if (status != HEED_OK) return status;
  const size_t bytes = (size_t)heed__row_bytes(dtype, numel);
  const size_t total = ELEMENTS + (data == NULL ? bytes : 0);
  block *b = heed__allocate(ctx, total);
  if (b == NULL) return heed__fail_memory(ctx, function, data == NULL && bytes > 0 ? bytes : total);
  if (data == NULL) data = (char *)b + ELEMENTS;
  b->storage = (heed__storage){.context = ctx, .references = 1, .data = data, .bytes = bytes};
  set_header(&b->tensor, &b->storage, dtype, data, ndim, shape, numel);
  *out = &b->tensor;
  return HEED_OK;
}

heed_status heed__tensor_new(heed_context *ctx, const char *function, heed_dtype dtype, int ndim,
                             const int64_t *shape, heed_tensor **out) {
  return new_block(ctx, function, dtype, ndim, shape, NULL, out);
}

heed_status heed_tensor_new(heed_context *ctx, heed_dtype dtype, int ndim, const int64_t *shape,
                            heed_tensor **out) {
  HEED__ENTER(ctx, "tensor_new", out);
  return new_block(ctx, "tensor_new", dtype, ndim, shape, NULL, out);
}

heed_status heed_tensor_from_memory(heed_context *ctx, heed_dtype dtype, int ndim, const int64_t *shape,
                                    void *data, void (*release)(void *user, void *data), void *user,
                                    heed_tensor **out) {
  HEED__ENTER(ctx, "tensor_from_memory", data, out);
  const char *function = "tensor_from_memory";
  heed_status status = heed__check_shape(ctx, function, ndim, shape, dtype, NULL);
  if (status != HEED_OK) return status;
  if ((uintptr_t)data % heed__dtype_alignment(dtype) != 0) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: data is at %p; for %s the address must be a multiple of %zu",
                      function, data, heed_dtype_name(dtype), heed__dtype_alignment(dtype));
  }
  status = new_block(ctx, function, dtype, ndim, shape, data, out);
  if (status != HEED_OK) return status;
  (*out)->storage->release = release;
  (*out)->storage->user = user;
  return HEED_OK;
}

/* Copies the header except for `parameter`, `leaf` and `node`; holds no reference. */
static void copy_header(heed_tensor *to, const heed_tensor *from) {
  to->storage = from->storage;
  to->data = from->data;
  to->dtype = from->dtype;
  to->ndim = from->ndim;
  to->numel = from->numel;
  to->in_storage = false;
  to->detached = from->detached;
  to->node = NULL;
  to->leaf = NULL;
  to->output = 0;
  memcpy(to->shape, from->shape, (size_t)from->ndim * sizeof(*to->shape));
  memcpy(to->stride, from->stride, (size_t)from->ndim * sizeof(*to->stride));
}

static heed_status new_header(heed_context *ctx, const char *function, const heed_tensor *view,
                              heed_tensor **out) {
  heed_status status = check_out(ctx, function, out);
  if (status != HEED_OK) return status;
  assert(view->storage != NULL); /* a heed__number cannot be shared */
  heed_tensor *x = heed__allocate(view->storage->context, sizeof(*x));
  if (x == NULL) return heed__fail_memory(ctx, function, sizeof(*x));
  copy_header(x, view);
  x->parameter = view->parameter;
  x->leaf = heed__leaf_retain(view->leaf);
  heed__set_node(x, view->node, view->output);
  x->storage->references++;
  *out = x;
  return HEED_OK;
}

void heed__alias_on_stack(heed_tensor *view, const heed_tensor *x) {
  copy_header(view, x);
  view->parameter = false;
}

void heed__permute_on_stack(heed_tensor *view, const heed_tensor *x, const int *order) {
  heed__alias_on_stack(view, x);
  for (int d = 0; d < x->ndim; d++) {
    view->shape[d] = x->shape[order[d]];
    view->stride[d] = x->stride[order[d]];
  }
}

void heed__narrow_on_stack(heed_tensor *view, int d, int64_t start, int64_t count) {
  if (view->shape[d] > 0) view->numel = view->numel / view->shape[d] * count;
  /* an empty view reads nothing; its address could lie outside of the storage */
  if (count > 0) view->data += heed__row_bytes(view->dtype, start * view->stride[d]);
  view->shape[d] = count;
}

void heed__header_on_stack(heed_tensor *x, heed_dtype dtype, const void *data, int ndim,
                           const int64_t *shape) {
  set_header(x, NULL, dtype, (char *)(uintptr_t)data, ndim, shape, heed__numel(ndim, shape, 1));
}

heed_status heed__tensor_from_view(heed_context *ctx, const char *function, const heed_tensor *view,
                                   heed_tensor **out) {
  return new_header(ctx, function, view, out);
}

heed_status heed_tensor_alias(heed_context *ctx, const heed_tensor *x, heed_tensor **out) {
  HEED__ENTER(ctx, "tensor_alias", out);
  HEED__ENTER_BLOCKED(ctx, "tensor_alias", x);
  return new_header(ctx, "tensor_alias", x, out);
}

void heed_tensor_free(heed_tensor *x) {
  if (x == NULL || x->storage == NULL) return; /* no storage: on the stack */
  heed__storage *storage = x->storage;
  heed__set_node(x, NULL, 0);
  if (x->leaf != NULL) heed__leaf_drop(x->leaf);
  x->leaf = NULL; /* a header in its storage's block stays */
  if (!x->in_storage) heed__release(storage->context, x);
  heed__storage_drop(storage);
}

void heed__storage_drop(heed__storage *storage) {
  if (--storage->references > 0) return;
  heed_context *ctx = storage->context;
  heed__leaves_free(storage);
  if (storage->release != NULL) storage->release(storage->user, storage->data);
  heed__release(ctx, storage);
}

/* ---- Properties ---- */

const char *heed_dtype_name(heed_dtype dtype) {
  static const char *const names[] = {
#define X(name, text, type) text,
      HEED_DTYPE_LIST(X)
#undef X
#define X(name, text, elements, bytes) text,
          HEED_BLOCK_DTYPE_LIST(X)
#undef X
  };
  return (size_t)dtype < sizeof(names) / sizeof(names[0]) ? names[dtype] : "?";
}

const char *heed__dtypes_text(char out[HEED__DTYPES_TEXT], unsigned set, const char *quote) {
  int used = 0;
  for (int i = 0; heed__is_any_dtype((heed_dtype)i); i++) {
    const unsigned after = set >> i >> 1;
    if ((set & HEED__DTYPE_BIT(i)) == 0) continue;
    const char *between = after == 0 ? "" : (after & (after - 1)) == 0 ? " or " : ", ";
    used += snprintf(out + used, (size_t)(HEED__DTYPES_TEXT - used), "%s%s%s%s", quote,
                     heed_dtype_name((heed_dtype)i), quote, between);
  }
  return out;
}

heed_dtype heed__common_dtype(heed_dtype a, heed_dtype b) {
  static const uint8_t rank[] = {[HEED_BOOL] = 0,     [HEED_INT8] = 1,    [HEED_INT64] = 2,
                                 [HEED_BFLOAT16] = 3, [HEED_FLOAT16] = 3, [HEED_FLOAT32] = 4};
  if (heed__is_blocked(a) || heed__is_blocked(b) || (a != b && rank[a] == rank[b])) return HEED_FLOAT32;
  return rank[a] > rank[b] ? a : b;
}

heed_context *heed_tensor_context(const heed_tensor *x) {
  return x != NULL ? x->storage->context : NULL;
}

heed_dtype heed_tensor_dtype(const heed_tensor *x) {
  return x != NULL ? x->dtype : HEED_BOOL;
}

int heed_tensor_ndim(const heed_tensor *x) {
  return x != NULL ? x->ndim : 0;
}

int64_t heed_tensor_numel(const heed_tensor *x) {
  return x != NULL ? x->numel : 0;
}

const int64_t *heed_tensor_shape(const heed_tensor *x) {
  return x != NULL ? x->shape : NULL;
}

const int64_t *heed_tensor_stride(const heed_tensor *x) {
  return x != NULL ? x->stride : NULL;
}

void *heed_tensor_data(const heed_tensor *x) {
  return x != NULL ? x->data : NULL;
}

bool heed_tensor_is_contiguous(const heed_tensor *x) {
  if (x == NULL) return false;
  if (x->numel == 0) return true;
  int64_t step = 1;
  for (int i = x->ndim - 1; i >= 0; i--) {
    if (x->shape[i] == 1) continue;
    if (x->stride[i] != step) return false;
    step *= x->shape[i];
  }
  return true;
}

bool heed_tensor_is_parameter(const heed_tensor *x) {
  return x != NULL ? x->parameter : false;
}

void heed_tensor_set_parameter(heed_tensor *x, bool parameter) {
  if (x != NULL) x->parameter = parameter;
}

/* ---- Overlap ---- */

/* With ascending strides, no two elements share an address if each stride exceeds the offset that the smaller
 * ones reach. The converse does not hold (sizes [2, 3] with strides [3, 2]), but no view has such strides. */
bool heed__overlaps_itself(const heed_tensor *x) {
  int order[HEED_MAX_DIMS], count = 0;
  if (x->numel == 0 || heed_tensor_is_contiguous(x)) return false;
  for (int i = 0; i < x->ndim; i++) {
    if (x->shape[i] == 1) continue;
    int at = count++;
    for (; at > 0 && x->stride[order[at - 1]] > x->stride[i]; at--) order[at] = order[at - 1];
    order[at] = i;
  }
  int64_t reached = 0; /* the furthest element so far */
  for (int i = 0; i < count; i++) {
    const int64_t stride = x->stride[order[i]];
    if (stride <= reached) return true;
    reached += (x->shape[order[i]] - 1) * stride;
  }
  return false;
}

/* The address one past x's last byte; x has elements. */
static uintptr_t end_of(const heed_tensor *x) {
  int64_t last = 0;
  for (int i = 0; i < x->ndim; i++) last += (x->shape[i] - 1) * x->stride[i];
  return (uintptr_t)x->data + (size_t)heed__row_bytes(x->dtype, last + 1);
}

bool heed__may_overlap(const heed_tensor *x, const heed_tensor *y) {
  if (x->numel == 0 || y->numel == 0) return false;
  return (uintptr_t)x->data < end_of(y) && (uintptr_t)y->data < end_of(x);
}

bool heed__same_view(const heed_tensor *x, const heed_tensor *y) {
  if (x->data != y->data || x->dtype != y->dtype) return false;
  if (!heed__same_shape(x->ndim, x->shape, y->ndim, y->shape)) return false;
  for (int i = 0; i < x->ndim; i++) {
    if (x->shape[i] > 1 && x->stride[i] != y->stride[i]) return false;
  }
  return true;
}

/* ---- Single elements ---- */

heed_scalar heed_number(double value) {
  return (heed_scalar){.dtype = HEED_FLOAT32, .as.number = value};
}

heed_scalar heed_integer(int64_t value) {
  return (heed_scalar){.dtype = HEED_INT64, .as.integer = value};
}

heed_scalar heed_boolean(bool value) {
  return (heed_scalar){.dtype = HEED_BOOL, .as.integer = value};
}

heed_scalar heed__load(heed_dtype dtype, const void *p) {
  switch (dtype) {
  case HEED_BOOL: return heed_boolean(*(const uint8_t *)p != 0);
  case HEED_INT64: return heed_integer(*(const int64_t *)p);
  case HEED_BFLOAT16: return heed_number((double)heed__float_from_bfloat16(*(const uint16_t *)p));
  case HEED_FLOAT16: return heed_number((double)heed__float_from_float16(*(const uint16_t *)p));
  case HEED_INT8: return heed_integer(*(const int8_t *)p);
  default: return heed_number((double)*(const float *)p);
  }
}

void heed__store(heed_dtype dtype, void *p, heed_scalar value) {
  const bool whole = value.dtype != HEED_FLOAT32;
  const int64_t integer = whole ? value.as.integer : heed__to_int64(value.as.number);
  const float number = whole ? (float)value.as.integer : (float)value.as.number;
  switch (dtype) {
  case HEED_BOOL: *(uint8_t *)p = whole ? value.as.integer != 0 : value.as.number != 0; break;
  case HEED_INT64: *(int64_t *)p = integer; break;
  case HEED_FLOAT32: *(float *)p = number; break;
  case HEED_BFLOAT16: *(uint16_t *)p = heed__bfloat16_from_float(number); break;
  case HEED_FLOAT16: *(uint16_t *)p = heed__float16_from_float(number); break;
  case HEED_INT8: *(int8_t *)p = heed__int8_from_int64(integer); break;
  default: assert(false);
  }
}

heed_status heed__temporary_new(heed_context *ctx, const char *function, heed__temporary *temporary, int ndim,
                                const int64_t *shape, heed_tensor **out) {
  const int64_t numel = heed__numel(ndim, shape, sizeof(float));
  if (numel < 0 || numel > HEED__TEMPORARY_FLOATS)
    return heed__tensor_new(ctx, function, HEED_FLOAT32, ndim, shape, out);
  set_header(&temporary->tensor, NULL, HEED_FLOAT32, (char *)temporary->floats, ndim, shape, numel);
  *out = &temporary->tensor;
  return HEED_OK;
}

const heed_tensor *heed__number_tensor(heed__number *number, heed_scalar value) {
  heed__store(value.dtype, &number->value, value);
  heed__header_on_stack(&number->tensor, value.dtype, &number->value, 0, NULL);
  return &number->tensor;
}
