/* Shapes and strides: their text, their sizes, views and broadcasting. */
#include "core.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *heed__shape_text(char text[HEED__SHAPE_TEXT], int ndim, const int64_t *shape) {
  const int shown = ndim < HEED_MAX_DIMS ? ndim : HEED_MAX_DIMS;
  size_t used = 0;
  text[used++] = '[';
  for (int i = 0; i < shown; i++) {
    used += (size_t)snprintf(text + used, HEED__SHAPE_TEXT - used, "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
  }
  snprintf(text + used, HEED__SHAPE_TEXT - used, "%s]", shown < ndim ? ", ..." : "");
  return text;
}

#define LARGEST_ELEMENT ((int64_t)sizeof(int64_t))

int64_t heed__numel(int ndim, const int64_t *shape, size_t element) {
  const int64_t bytes = (int64_t)element;
  int64_t product = 1; /* of the sizes that are not 0: empty tensors have strides, too */
  bool empty = false;
  assert(bytes > 0 && bytes <= LARGEST_ELEMENT);
  for (int i = 0; i < ndim; i++) {
    assert(shape[i] >= 0);
    if (shape[i] == 0) {
      empty = true;
    } else {
      /* divisions take longer than everything else, and most shapes need none */
      if ((product | shape[i]) > INT32_MAX && product > PTRDIFF_MAX / bytes / shape[i]) return -1;
      product *= shape[i];
      if (product > PTRDIFF_MAX / LARGEST_ELEMENT && product > PTRDIFF_MAX / bytes) return -1;
    }
  }
  return empty ? 0 : product;
}

heed_status heed__check_shape(heed_context *ctx, const char *function, int ndim, const int64_t *shape,
                              heed_dtype dtype, int64_t *numel) {
  char text[HEED__SHAPE_TEXT];
  if (!heed__is_any_dtype(dtype)) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: dtype is %d; it must be a heed_dtype", function, (int)dtype);
  }
  if (ndim < 0 || ndim > HEED_MAX_DIMS) {
    return heed__fail(ctx, HEED_SHAPE, "%s: the shape has %d dimensions; it must have 0 to %d", function,
                      ndim, HEED_MAX_DIMS);
  }
  if (ndim > 0 && shape == NULL) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: the shape is missing (NULL)", function);
  }
  for (int i = 0; i < ndim; i++) {
    if (shape[i] < 0) {
      return heed__fail(ctx, HEED_SHAPE, "%s: the shape is %s; its sizes must not be negative", function,
                        heed__shape_text(text, ndim, shape));
    }
  }
  const int64_t block = heed__block_elements(dtype);
  if (block > 1 && (ndim == 0 || shape[ndim - 1] % block != 0)) {
    return heed__fail(ctx, HEED_SHAPE, "%s: the shape is %s; the last size of %s must be a multiple of %d",
                      function, heed__shape_text(text, ndim, shape), heed_dtype_name(dtype), (int)block);
  }
  /* an element of a block takes less than 2 bytes */
  const int64_t count = heed__numel(ndim, shape, block > 1 ? 2 : heed__element_bytes(dtype));
  if (count < 0) {
    return heed__fail(ctx, HEED_SHAPE, "%s: the shape is %s; its %s elements must fit in the address space",
                      function, heed__shape_text(text, ndim, shape), heed_dtype_name(dtype));
  }
  if (numel != NULL) *numel = count;
  return HEED_OK;
}

bool heed__same_shape(int ndim, const int64_t *shape, int with_ndim, const int64_t *with_shape) {
  if (ndim != with_ndim) return false;
  for (int i = 0; i < ndim; i++) {
    if (shape[i] != with_shape[i]) return false;
  }
  return true;
}

void heed__row_major(int ndim, const int64_t *shape, int64_t *stride) {
  int64_t step = 1;
  for (int i = ndim - 1; i >= 0; i--) {
    stride[i] = step;
    if (shape[i] > 1) step *= shape[i];
  }
}

/* 1 if dimension a of x is outside dimension b in memory, -1 if it is inside, 0 if unknown, as with a stride
 * of 0.
 */
static int compare_strides(const heed_tensor *x, int a, int b) {
  if (x->stride[a] == 0 || x->stride[b] == 0) return 0;
  if (x->stride[a] != x->stride[b]) return x->stride[a] > x->stride[b] ? 1 : -1;
  return x->shape[a] > x->shape[b] ? 1 : 0;
}

/* PyTorch's insertion sort, starting from the innermost dimension. With strides of 0 the result depends on
 * the order of its comparisons, so another sort would give other strides than PyTorch's. */
void heed__memory_order(const heed_tensor *x, int *order) {
  const int last = x->ndim - 1;
  for (int i = 0; i <= last; i++) order[i] = i;
  for (int i = last - 1; i >= 0; i--) {
    int at = i;
    for (int inner = i + 1; inner <= last; inner++) {
      const int compared = compare_strides(x, order[inner], order[at]);
      if (compared < 0) break;
      if (compared == 0) continue;
      const int moved = order[inner];
      order[inner] = order[at];
      order[at] = moved;
      at = inner;
    }
  }
}

void heed__strides_like(const heed_tensor *x, int64_t *stride) {
  int order[HEED_MAX_DIMS];
  bool dense = true;
  int64_t step = 1;
  heed__memory_order(x, order);
  for (int i = x->ndim - 1; i >= 0; i--) {
    const int d = order[i];
    stride[d] = step;
    if (x->shape[d] == 1) continue;
    dense = dense && x->stride[d] == step;
    step *= x->shape[d] > 0 ? x->shape[d] : 1;
  }
  for (int d = 0; d < x->ndim && (dense || x->numel == 0); d++) stride[d] = x->stride[d];
}

/* Adjacent dimensions of x that have one common step form a run. A dimension of the view cannot span two
 * runs, so each run, from the last to the first, must be the product of whole dimensions. */
bool heed__view_strides(const heed_tensor *x, int ndim, const int64_t *shape, int64_t *stride) {
  if (x->numel == 0 || x->ndim == 0) {
    const bool same = heed__same_shape(ndim, shape, x->ndim, x->shape);
    heed__row_major(ndim, shape, stride);
    for (int i = 0; same && i < ndim; i++) stride[i] = x->stride[i];
    return true;
  }
  int assigned = ndim; /* dimensions of the view from here on have their strides */
  for (int d = x->ndim - 1; d >= 0;) {
    const int64_t step = x->stride[d];
    int64_t run = x->shape[d--];
    for (; d >= 0 && (x->shape[d] == 1 || x->stride[d] == run * step); d--) run *= x->shape[d];
    int64_t used = 1;
    while (assigned > 0 && (used < run || shape[assigned - 1] == 1)) {
      assigned--;
      stride[assigned] = used * step;
      used *= shape[assigned];
    }
    if (used != run) return false;
  }
  return assigned == 0;
}

bool heed__broadcast(int *ndim, int64_t *shape, int with_ndim, const int64_t *with_shape) {
  const int shared = *ndim < with_ndim ? *ndim : with_ndim;
  for (int i = 1; i <= shared; i++) {
    const int64_t have = shape[*ndim - i], with = with_shape[with_ndim - i];
    if (have != with && have != 1 && with != 1) return false;
  }
  if (with_ndim > *ndim) {
    const int added = with_ndim - *ndim;
    memmove(shape + added, shape, (size_t)*ndim * sizeof(*shape));
    memcpy(shape, with_shape, (size_t)added * sizeof(*shape));
    *ndim = with_ndim;
  }
  for (int i = 1; i <= shared; i++) {
    if (shape[*ndim - i] == 1) shape[*ndim - i] = with_shape[with_ndim - i];
  }
  return true;
}
