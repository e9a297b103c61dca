/* Elements and slices selected by a mask. */
#include <string.h>

#include "ops.h"

static heed_status check_mask(heed_context *ctx, const char *function, const heed_tensor *x,
                              const heed_tensor *mask) {
  const heed_status status = heed__check_dtype(ctx, function, "mask", mask, HEED_BOOL);
  if (status != HEED_OK) return status;
  if (mask->ndim > x->ndim || !heed__same_shape(mask->ndim, mask->shape, mask->ndim, x->shape))
    return heed__fail_pair(ctx, function, "mask", mask, "x", x,
                           "mask must have the first sizes of x, or all of them");
  return HEED_OK;
}

/* Elements between cancellation checks. */
enum { MASK_PIECE = 1 << 14 };

static int64_t count_in_row(const uint8_t *mask, ptrdiff_t step, int64_t n) {
  int64_t count = 0;
  if (step == 1) { /* the same loop, vectorised */
    for (int64_t i = 0; i < n; i++) count += mask[i] != 0;
  } else {
    for (int64_t i = 0; i < n; i++) count += mask[i * step] != 0;
  }
  return count;
}

/* Stops early at a cancellation check. */
static int64_t count_true(const heed_tensor *mask, const heed__pace *pace) {
  int64_t count = 0, done = 0;
  heed__walk w;
  for (bool more = heed__walk_begin(&w, mask->ndim, mask->shape, 1, &mask); more;
       more = heed__walk_next(&w)) {
    for (int64_t first = 0; first < w.count; first += MASK_PIECE) {
      const int64_t n = heed__min(w.count - first, MASK_PIECE);
      count += count_in_row((const uint8_t *)w.data[0] + first * w.stride[0], w.stride[0], n);
      done += n;
      if (done < MASK_PIECE) continue;
      if (heed__is_due(pace)) return count;
      done = 0;
    }
  }
  return count;
}

/* [count of true, the sizes of x behind those of mask]. A mask without dimensions adds a dimension. */
static heed_status masked_shape(heed_context *ctx, const char *function, const heed_tensor *x,
                                const heed_tensor *mask, int *ndim, int64_t *shape) {
  if (x->ndim - mask->ndim >= HEED_MAX_DIMS)
    return heed__fail(ctx, HEED_SHAPE, "%s: the result has %d dimensions; it must have at most %d", function,
                      x->ndim + 1, HEED_MAX_DIMS);
  const heed_status charged = heed__charge(ctx, function, (double)mask->numel);
  if (charged != HEED_OK) return charged;
  *ndim = 1;
  shape[0] = count_true(mask, &ctx->pace);
  if (heed__is_due(&ctx->pace)) {
    const heed_status status = heed__stopped(ctx, function);
    if (status != HEED_OK) return status;
  }
  for (int i = mask->ndim; i < x->ndim; i++) shape[(*ndim)++] = x->shape[i];
  return HEED_OK;
}

/* ---- Single elements: without a function call for each, and mostly without unpredictable branches ---- */

typedef struct masked_row {
  const uint8_t *mask;
  char *x;
  ptrdiff_t mask_step, x_step; /* in bytes */
  int64_t n;
} masked_row;

/* Each element is written to the next position of the list, which advances if mask is true; nothing is
 * written behind the last position. */
#define SELECT_ROW(word)                                                                                     \
  static int64_t select_##word(masked_row r, char *list, ptrdiff_t list_step, int64_t left) {                \
    int64_t taken = 0;                                                                                       \
    for (int64_t i = 0; i < r.n && taken < left; i++) {                                                      \
      memcpy(list, r.x + i * r.x_step, sizeof(word));                                                        \
      const int is_true = r.mask[i * r.mask_step] != 0;                                                      \
      list += list_step & -is_true;                                                                          \
      taken += is_true;                                                                                      \
    }                                                                                                        \
    return taken;                                                                                            \
  }

/* A list that repeats one value. Elements where mask is false are written unchanged. */
#define FILL_LOOP(word, x_step, mask_step)                                                                   \
  for (int64_t i = 0; i < r.n; i++) {                                                                        \
    word old;                                                                                                \
    memcpy(&old, r.x + i * (x_step), sizeof old);                                                            \
    old = (word)(old ^ ((old ^ value) & (word)(0 - (word)(r.mask[i * (mask_step)] != 0))));                  \
    memcpy(r.x + i * (x_step), &old, sizeof old);                                                            \
  }
#define FILL_ROW(word)                                                                                       \
  static int64_t fill_##word(masked_row r, const char *list) {                                               \
    word value;                                                                                              \
    memcpy(&value, list, sizeof value);                                                                      \
    if (r.x_step == (ptrdiff_t)sizeof(word) && r.mask_step == 1) { /* the same loop, vectorised */           \
      FILL_LOOP(word, (ptrdiff_t)sizeof(word), 1)                                                            \
    } else {                                                                                                 \
      FILL_LOOP(word, r.x_step, r.mask_step)                                                                 \
    }                                                                                                        \
    return 0; /* the list stays at its first position */                                                     \
  }

#define ASSIGN_ROW(word)                                                                                     \
  static int64_t assign_##word(masked_row r, char *list, ptrdiff_t list_step, int64_t left) {                \
    int64_t taken = 0;                                                                                       \
    if (list_step == 0) return fill_##word(r, list);                                                         \
    for (int64_t i = 0; i < r.n && taken < left; i++) {                                                      \
      if (r.mask[i * r.mask_step] == 0) continue;                                                            \
      memcpy(r.x + i * r.x_step, list + taken++ * list_step, sizeof(word));                                  \
    }                                                                                                        \
    return taken;                                                                                            \
  }

#define MASKED_ROWS(word) SELECT_ROW(word) FILL_ROW(word) ASSIGN_ROW(word)
MASKED_ROWS(uint8_t)
MASKED_ROWS(uint16_t)
MASKED_ROWS(uint32_t)
MASKED_ROWS(uint64_t)

/* Copies between a row of x and the list, which has `left` positions left; returns how many it used. */
typedef int64_t masked_copy(masked_row r, char *list, ptrdiff_t list_step, int64_t left);

static masked_copy *masked_copy_of(size_t bytes, bool into_x) {
  switch (bytes) {
  case 1: return into_x ? assign_uint8_t : select_uint8_t;
  case 2: return into_x ? assign_uint16_t : select_uint16_t;
  case 4: return into_x ? assign_uint32_t : select_uint32_t;
  default: return into_x ? assign_uint64_t : select_uint64_t;
  }
}

/* copy_masked for a mask of the shape of x and a list of its dtype. */
static bool copy_masked_elements(const heed_tensor *x, const heed_tensor *mask, const heed_tensor *list,
                                 bool into_x) {
  const size_t bytes = heed__element_bytes(x->dtype);
  const ptrdiff_t list_step = list->stride[0] * (ptrdiff_t)bytes;
  const heed_tensor *operands[] = {mask, x};
  const heed__pace *pace = &x->storage->context->pace;
  masked_copy *const copy_row = masked_copy_of(bytes, into_x);
  char *next = list->data;
  int64_t left = list->shape[0], done = 0;
  heed__walk w;
  for (bool more = heed__walk_begin(&w, mask->ndim, mask->shape, 2, operands); more && left > 0;
       more = heed__walk_next(&w)) {
    masked_row r = {(const uint8_t *)w.data[0], w.data[1], w.stride[0], w.stride[1] * (ptrdiff_t)bytes, 0};
    for (int64_t first = 0; first < w.count && left > 0; first += MASK_PIECE) {
      r.n = heed__min(w.count - first, MASK_PIECE);
      const int64_t taken = copy_row(r, next, list_step, left);
      next += taken * list_step;
      left -= taken;
      r.mask += r.n * r.mask_step;
      r.x += r.n * r.x_step;
      done += r.n;
      if (done < MASK_PIECE) continue;
      if (heed__is_due(pace)) return false;
      done = 0;
    }
  }
  return true;
}

/* ---- Slices ---- */

/* Copies between the slices of x where mask is true and those of list, [count, …], in order. False if a
 * cancellation check stops it. */
static bool copy_masked(const heed_tensor *x, const heed_tensor *mask, const heed_tensor *list, bool into_x) {
  if (mask->ndim == x->ndim && list->dtype == x->dtype) return copy_masked_elements(x, mask, list, into_x);
  heed_tensor heads, slice, entry;
  const ptrdiff_t x_bytes = (ptrdiff_t)heed__element_bytes(x->dtype);
  const ptrdiff_t list_step = list->stride[0] * (ptrdiff_t)heed__element_bytes(list->dtype);
  heed__alias_on_stack(&heads, x);
  heads.ndim = mask->ndim;
  heed__alias_on_stack(&slice, x);
  heed__alias_on_stack(&entry, list);
  slice.ndim = entry.ndim = x->ndim - mask->ndim;
  for (int i = 0; i < slice.ndim; i++) {
    slice.shape[i] = entry.shape[i] = x->shape[mask->ndim + i];
    slice.stride[i] = x->stride[mask->ndim + i];
    entry.stride[i] = list->stride[i + 1];
  }
  const heed_tensor *operands[] = {mask, &heads};
  const heed__pace *pace = &x->storage->context->pace;
  int64_t done = 0;
  heed__walk w;
  for (bool more = heed__walk_begin(&w, mask->ndim, mask->shape, 2, operands); more;
       more = heed__walk_next(&w)) {
    for (int64_t i = 0; i < w.count; i++, done++) {
      if (heed__is_due_at(pace, done)) return false;
      if (w.data[0][i * w.stride[0]] == 0) continue;
      slice.data = w.data[1] + i * w.stride[1] * x_bytes;
      const heed_tensor *to = into_x ? &slice : &entry, *from = into_x ? &entry : &slice;
      if (slice.ndim == 0)
        heed__copy_row(to->dtype, to->data, 1, from->dtype, from->data, 1, 1);
      else if (!heed__copy_elements(to, from))
        return false;
      entry.data += list_step;
    }
  }
  return true;
}

heed_status heed__masked_select(heed_context *ctx, const char *function, const heed_tensor *x,
                                const heed_tensor *mask, heed_tensor **out) {
  heed__result result = {0};
  const heed_tensor *inputs[] = {x, mask};
  int ndim = 0;
  int64_t shape[HEED_MAX_DIMS];
  heed_status status = check_mask(ctx, function, x, mask);
  if (status != HEED_OK) return status;
  status = masked_shape(ctx, function, x, mask, &ndim, shape);
  if (status != HEED_OK) return status;
  status = heed__result_begin(ctx, function, &result, out, x->dtype, ndim, shape, false, 2, inputs);
  if (status != HEED_OK) return status;
  if (!copy_masked(x, mask, result.tensor, false)) status = heed__stopped(ctx, function);
  const bool by_index = strcmp(function, "index") == 0; /* PyTorch has two operations for this */
  return heed__recorded(ctx, heed__result_end(ctx, &result, status), HEED__OP_masked_select, 2, inputs,
                        &by_index, sizeof by_index, out);
}

heed_status heed_masked_select(heed_context *ctx, const heed_tensor *x, const heed_tensor *mask,
                               heed_tensor **out) {
  HEED__ENTER(ctx, "masked_select", x, mask, out);
  return heed__masked_select(ctx, "masked_select", x, mask, out);
}

heed_status heed__masked_assign(heed_context *ctx, const char *function, heed_tensor *x,
                                const heed_tensor *mask, const heed_tensor *value) {
  const heed_tensor *const given[] = {x, mask, value};
  heed_tensor *mask_copy = NULL, *value_copy = NULL, list;
  int ndim = 0;
  int64_t shape[HEED_MAX_DIMS];
  heed_status status = check_mask(ctx, function, x, mask);
  if (status != HEED_OK) goto done;
  status = heed__check_target(ctx, function, x);
  if (status != HEED_OK) goto done;
  status = masked_shape(ctx, function, x, mask, &ndim, shape);
  if (status != HEED_OK) goto done;
  status = heed__check_expands(ctx, function, "value", value, ndim, shape);
  if (status != HEED_OK) goto done;
  status = heed__copy_if_overlapping(ctx, function, x, &mask, &mask_copy);
  if (status != HEED_OK) goto done;
  status = heed__copy_if_overlapping(ctx, function, x, &value, &value_copy);
  if (status == HEED_OK) status = heed__written(ctx, function, x);
  if (status != HEED_OK) goto done;
  heed__expand_on_stack(&list, value, ndim, shape);
  if (!copy_masked(x, mask, &list, true)) status = heed__stopped(ctx, function);
done:
  heed_tensor_free(mask_copy);
  heed_tensor_free(value_copy);
  return heed__recorded(ctx, status, HEED__OP_masked_assign, 3, given, NULL, 0, &x);
}

heed_status heed_masked_assign(heed_context *ctx, heed_tensor *x, const heed_tensor *mask,
                               const heed_tensor *value) {
  HEED__ENTER(ctx, "masked_assign", x, mask, value);
  return heed__masked_assign(ctx, "masked_assign", x, mask, value);
}

/* ---- Indices ---- */

/* Writes the indices, from 1, of the elements where mask is true, [count, dimensions]. False if a
 * cancellation check stops it. */
static bool list_true(const heed_tensor *mask, const heed_tensor *out) {
  const heed__pace *pace = &out->storage->context->pace;
  const ptrdiff_t width = (ptrdiff_t)heed__element_bytes(mask->dtype);
  int64_t *to = (int64_t *)(void *)out->data, done = 0, at[HEED_MAX_DIMS] = {0};
  const int last = mask->ndim - 1;
  if (mask->numel == 0 || out->numel == 0) return true;
  for (;;) {
    const char *row = mask->data;
    for (int d = 0; d < last; d++) row += at[d] * mask->stride[d] * width;
    for (int64_t i = 0; i < mask->shape[last]; i++) {
      if (heed__is_due_at(pace, done++)) return false;
      if (row[i * mask->stride[last]] == 0) continue;
      for (int d = 0; d < last; d++) *to++ = at[d] + 1;
      *to++ = i + 1;
    }
    int d = last - 1;
    while (d >= 0 && ++at[d] == mask->shape[d]) at[d--] = 0;
    if (d < 0) return true;
  }
}

heed_status heed__nonzero(heed_context *ctx, const char *function, const heed_tensor *x, heed_tensor **out) {
  heed__result result = {0};
  heed_tensor *truth = NULL;
  heed_status status = heed__to(ctx, function, x, HEED_BOOL, &truth);
  if (status != HEED_OK) return status;
  const int64_t shape[] = {count_true(truth, &ctx->pace), x->ndim};
  if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
  if (status == HEED_OK)
    status = heed__result_begin_row_major(ctx, function, &result, out, HEED_INT64, 2, shape, 1, &x);
  if (status == HEED_OK && !list_true(truth, result.tensor)) status = heed__stopped(ctx, function);
  heed_tensor_free(truth);
  return heed__result_end(ctx, &result, status);
}

heed_status heed_nonzero(heed_context *ctx, const heed_tensor *x, heed_tensor **out) {
  HEED__ENTER(ctx, "nonzero", x, out);
  return heed__nonzero(ctx, "nonzero", x, out);
}
