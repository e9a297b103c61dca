/* Masks for parts of the queries and keys of a call, as attention over parts needs them. */
#include "attention.h"

#include <string.h>

/* The sizes of the leading dimensions; those before the heads are 1 if an item of the batch is chosen. */
static int leading_shape(const heed_mask *m, int64_t item, int64_t *shape) {
  int ndim = 0;
  (void)heed__mask_broadcast(m, &ndim, shape);
  for (int d = 0; item >= 0 && d < ndim - 1; d++) shape[d] = 1;
  return ndim;
}

/* Writes the keys of one query, cut to the part, as pairs that count from 1. */
static void write_row(const int32_t *seen, int64_t count, int64_t most, const heed__mask_part *part,
                      int64_t *to) {
  int64_t n = 0;
  for (int64_t k = 0; k < count; k++) {
    const int64_t first = heed__max(seen[2 * k] - part->first_key, 0),
                  last = heed__min(seen[2 * k + 1] - part->first_key, part->keys);
    if (first >= last) continue;
    to[2 * n] = first + 1;
    to[2 * n++ + 1] = last;
  }
  for (; n < most; n++) to[2 * n] = 1, to[2 * n + 1] = 0;
}

/* The intervals of the part's queries, int64 [..., rows, most, 2]. */
static heed_status find_intervals(const heed_mask *m, const char *function, const heed__mask_call *call,
                                  const heed__mask_part *part, heed_tensor **out) {
  heed_context *ctx = m->context;
  const int64_t most = heed__mask_most(m);
  int64_t shape[HEED_MAX_DIMS + 3], items = 1, lead[HEED_MAX_DIMS] = {0};
  const int ndim = leading_shape(m, part->item, shape);
  if (ndim + 3 > HEED_MAX_DIMS)
    return heed__fail(ctx, HEED_SHAPE, "%s: the mask has %d leading dimensions; it must have at most %d",
                      function, ndim, HEED_MAX_DIMS - 3);
  shape[ndim] = part->rows;
  shape[ndim + 1] = most;
  shape[ndim + 2] = 2;
  heed_tensor *made = NULL;
  heed_status status = heed__tensor_new(ctx, function, HEED_INT64, ndim + 3, shape, &made);
  if (status) return status;
  const size_t bytes = heed__array_bytes(heed__mask_buffer_words(most), sizeof(int32_t));
  int32_t *words = heed__allocate(ctx, bytes);
  if (words == NULL) status = heed__fail_memory(ctx, function, bytes);
  heed__mask_buffers buffers;
  if (words != NULL) heed__mask_set_buffers(&buffers, words, most);
  for (int d = 0; d < ndim; d++) items *= shape[d];
  int64_t *to = (int64_t *)(void *)made->data;
  for (int64_t i = 0; i < items && !status; i++) {
    int64_t rest = i;
    for (int d = ndim - 1; d >= 0; d--) {
      lead[d] = rest % shape[d];
      rest /= shape[d];
    }
    if (part->item >= 0 && ndim > 1) lead[ndim - 2] = part->item;
    for (int64_t row = 0; row < part->rows && !status; row++, to += 2 * most) {
      const int32_t *seen;
      const int64_t count = heed__mask_row(m, call, ndim, lead, part->first_row + row, &buffers, &seen);
      write_row(seen, count, most, part, to);
      if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
    }
  }
  heed__release(ctx, words);
  if (status)
    heed_tensor_free(made);
  else
    *out = made;
  return status;
}

/* Whether `count` from `first` on are within `all`, of which there are at most INT32_MAX. */
static bool is_within(int64_t first, int64_t count, int64_t all) {
  return first >= 0 && count >= 0 && all >= 0 && all <= INT32_MAX && first <= all && count <= all - first;
}

static heed_status check_mask_part(const heed_mask *m, const char *function, const heed__mask_call *call,
                                   const heed__mask_part *part) {
  int64_t shape[HEED_MAX_DIMS];
  int ndim = 0;
  (void)heed__mask_broadcast(m, &ndim, shape);
  if (is_within(part->first_row, part->rows, call->l) && is_within(part->first_key, part->keys, call->s) &&
      call->offset >= -INT32_MAX && call->offset <= INT32_MAX &&
      (ndim < 2 || shape[ndim - 2] == 1 || part->item < shape[ndim - 2]))
    return HEED_OK;
  return heed__fail(m->context, HEED_INDEX, "%s: the part of the mask is not within its call", function);
}

/* The mask's causality and windows, which follow a call's offset; *out stays NULL without any. */
static heed_status bounds_of(const heed_mask *m, heed_mask **out) {
  int64_t left = INT64_MAX, right = INT64_MAX;
  heed__mask_window(m, &left, &right);
  const heed_window window = {.has_left = left < INT64_MAX, .has_right = right < INT64_MAX, left, right};
  if (!window.has_left && !window.has_right) return HEED_OK;
  return heed_mask_window(m->context, &window, out);
}

heed_status heed__mask_cut(heed_mask *m, const char *function, const heed__mask_call *call,
                           const heed__mask_part *part, bool every_query, heed_mask **out) {
  heed_tensor *pairs = NULL;
  heed_mask *seen = NULL, *bounds = NULL;
  heed_status status = check_mask_part(m, function, call, part);
  if (!status) status = heed__mask_check(m->context, function, m, call, every_query);
  if (status) return status;
  if (heed__mask_most(m) == 0) {
    *out = heed_mask_retain(m);
    return HEED_OK;
  }
  status = find_intervals(m, function, call, part, &pairs);
  if (!status) status = heed_mask_intervals(m->context, pairs, &seen);
  if (!status) status = bounds_of(m, &bounds);
  if (!status && bounds != NULL) status = heed_mask_both(bounds, seen, out);
  if (!status && bounds == NULL) *out = heed_mask_retain(seen);
  heed_mask_release(bounds);
  heed_mask_release(seen);
  heed_tensor_free(pairs);
  return status;
}
