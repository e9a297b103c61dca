/* Sorting, and the k largest or smallest. */
#include <string.h>

#include "ops.h"

/* An element as an integer key that sorts like it, and its position in the lane. Items are compared by both,
 * so that no two are equal and every sort is stable. */
typedef struct item {
  int64_t key, position;
} item;

#define ITEMS_ON_STACK 128  /* items */
#define SHORT          12   /* items sorted by insertion */
#define SORT_PIECE     4096 /* items or elements between cancellation checks */

static bool before(item a, item b) {
  return a.key < b.key || (a.key == b.key && a.position < b.position);
}

/* nan is the largest, and 0 equals -0. The bits of positive floats sort like them, those of negative ones in
 * reverse. */
static int64_t float_key(float x) {
  int32_t bits;
  if (x != x) return INT32_MAX;
  if (x == 0) return 0;
  memcpy(&bits, &x, sizeof bits);
  return bits < 0 ? bits ^ INT32_MAX : bits;
}

static item item_at(const heed_tensor *x, const char *lane, ptrdiff_t step, int64_t i, bool descending) {
  const char *p = lane + i * step;
  const int64_t key = x->dtype == HEED_FLOAT32 ? float_key(*(const float *)p)
                      : x->dtype == HEED_INT64 ? *(const int64_t *)p
                                               : *(const uint8_t *)p;
  return (item){descending ? ~key : key, i};
}

/* ---- Sorting items ---- */

static void insertion_sort(item *items, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    const item x = items[i];
    int64_t j = i;
    for (; j > 0 && before(x, items[j - 1]); j--) items[j] = items[j - 1];
    items[j] = x;
  }
}

/* False if a cancellation check stops it. */
static bool merge(item *out, const item *a, const item *a_end, const item *b, const item *b_end,
                  const heed__pace *pace) {
  while (a < a_end && b < b_end) {
    for (int i = 0; i < SORT_PIECE && a < a_end && b < b_end; i++) *out++ = before(*b, *a) ? *b++ : *a++;
    if (heed__is_due(pace)) return false;
  }
  for (int64_t i = 0; a < a_end; i++) {
    *out++ = *a++;
    if (heed__is_due_at(pace, i)) return false;
  }
  for (int64_t i = 0; b < b_end; i++) {
    *out++ = *b++;
    if (heed__is_due_at(pace, i)) return false;
  }
  return true;
}

/* The length of sorted runs doubles with each pass. Returns where the result is, items or spare; NULL if a
 * cancellation check stops it. */
static item *merge_sort(item *items, item *spare, int64_t n, const heed__pace *pace) {
  for (int64_t i = 0; i < n; i += SHORT) {
    insertion_sort(items + i, heed__min(SHORT, n - i));
    if (i % (SHORT << 8) == 0 && heed__is_due(pace)) return NULL;
  }
  for (int64_t run = SHORT; run < n; run *= 2) {
    for (int64_t i = 0; i < n; i += 2 * run) {
      const item *middle = items + heed__min(i + run, n), *end = items + heed__min(i + 2 * run, n);
      if (!merge(spare + i, items + i, middle, middle, end, pace)) return NULL;
    }
    item *sorted = spare;
    spare = items;
    items = sorted;
  }
  return items;
}

/* ---- The first k ---- */

/* Sinks the item at `root` of a heap whose top is the last item in order. */
static void sink(item *heap, int64_t n, int64_t root) {
  const item x = heap[root];
  for (int64_t child = 2 * root + 1; child < n; child = 2 * root + 1) {
    if (child + 1 < n && before(heap[child], heap[child + 1])) child++;
    if (!before(x, heap[child])) break;
    heap[root] = heap[child];
    root = child;
  }
  heap[root] = x;
}

/* The index of the first element from i on that may come before `last` of the same lane, or end. Comparing
 * floats skips most of a long lane. */
static int64_t next_rival(const heed_tensor *x, const char *lane, ptrdiff_t step, int64_t i, int64_t end,
                          item last, bool descending) {
  if (x->dtype != HEED_FLOAT32) return i;
  const float limit = *(const float *)(lane + last.position * step);
  if (descending) {
    while (i < end && *(const float *)(lane + i * step) <= limit) i++;
  } else {
    while (i < end && *(const float *)(lane + i * step) >= limit) i++;
  }
  return i;
}

/* The first k of the n elements of a lane, in order. items: scratch for 2 k items. Returns where in it the
 * result is; NULL if a cancellation check stops it. */
static const item *first_items(const heed_tensor *x, const char *lane, ptrdiff_t step, int64_t n, int64_t k,
                               bool descending, item *items, const heed__pace *pace) {
  for (int64_t i = 0; i < k; i++) {
    items[i] = item_at(x, lane, step, i, descending);
    if (heed__is_due_at(pace, i)) return NULL;
  }
  if (k < n) {
    for (int64_t i = k / 2; i-- > 0;) {
      sink(items, k, i);
      if (heed__is_due_at(pace, i)) return NULL;
    }
    for (int64_t start = k; start < n; start += SORT_PIECE) {
      const int64_t end = heed__min(n, start + SORT_PIECE);
      for (int64_t i = start; i < end; i++) {
        i = next_rival(x, lane, step, i, end, items[0], descending);
        if (i == end) break;
        const item next = item_at(x, lane, step, i, descending);
        if (!before(next, items[0])) continue;
        items[0] = next;
        sink(items, k, 0);
      }
      if (heed__is_due(pace)) return NULL;
    }
  }
  return merge_sort(items, items + k, k, pace);
}

/* ---- Tensors ---- */

/* The first elements of all lanes: x with size 1 in dimension dim. */
static void lane_heads(heed_tensor *view, const heed_tensor *x, int dim) {
  heed__alias_on_stack(view, x);
  if (x->ndim > 0) view->shape[dim] = 1;
}

/* False if a cancellation check stops it. */
static bool sort_lanes(const heed_tensor *x, int dim, int64_t n, int64_t k, bool descending, item *items,
                       const heed_tensor *values, const heed_tensor *positions, const heed__pace *pace) {
  heed_tensor heads[3];
  const heed_tensor *operands[] = {&heads[0], &heads[1], &heads[2]};
  lane_heads(&heads[0], x, dim);
  lane_heads(&heads[1], values, dim);
  lane_heads(&heads[2], positions, dim);
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(x->dtype);
  const ptrdiff_t x_step = x->ndim > 0 ? x->stride[dim] * bytes : 0;
  const ptrdiff_t value_step = x->ndim > 0 ? values->stride[dim] * bytes : 0;
  const ptrdiff_t position_step = x->ndim > 0 ? positions->stride[dim] : 0;
  heed__walk w;
  for (bool more = heed__walk_begin(&w, heads[0].ndim, heads[0].shape, 3, operands); more;
       more = heed__walk_next(&w)) {
    for (int64_t lane = 0; lane < w.count; lane++) {
      const char *from = w.data[0] + lane * w.stride[0] * bytes;
      char *value = w.data[1] + lane * w.stride[1] * bytes;
      int64_t *position = (int64_t *)w.data[2] + lane * w.stride[2];
      const item *sorted = first_items(x, from, x_step, n, k, descending, items, pace);
      if (sorted == NULL) return false;
      for (int64_t i = 0; i < k; i++) { /* along an outer dimension, each element may touch a new page */
        if ((i & 63) == 63 && heed__is_due(pace)) return false;
        memcpy(value + i * value_step, from + sorted[i].position * x_step, (size_t)bytes);
        position[i * position_step] = sorted[i].position + 1;
      }
    }
  }
  return true;
}

/* The first k along dim (from 0) in ascending or descending order. */
static heed_status sorted(heed_context *ctx, const char *function, heed__op op, const heed_tensor *x, int dim,
                          int64_t k, bool descending, heed_tensor **values, heed_tensor **indices) {
  heed__indexed_result result;
  heed_tensor *unwanted = NULL;
  void *block = NULL;
  item on_stack[ITEMS_ON_STACK], *items = on_stack;
  int64_t shape[HEED_MAX_DIMS];
  heed_status status = heed__check_apart(ctx, function, values, indices);
  if (status != HEED_OK) return status;
  if (indices == NULL && ctx->recorder != NULL) indices = &unwanted; /* the gradient wants them */
  const bool is_new = indices != NULL && *indices == NULL;
  const int64_t n = x->ndim > 0 ? x->shape[dim] : 1;
  for (int i = 0; i < x->ndim; i++) shape[i] = i == dim ? k : x->shape[i];
  status = heed__indexed_result_begin(ctx, function, &result, values, indices, x->ndim, shape, x);
  if (status != HEED_OK || k == 0) goto done;
  if (k > ITEMS_ON_STACK / 2) {
    const size_t bytes = heed__array_bytes((uint64_t)k, 2 * sizeof(item));
    block = heed__allocate(ctx, bytes);
    if (block == NULL) {
      status = heed__fail_memory(ctx, function, bytes);
      goto done;
    }
    items = block;
  }
  if (!sort_lanes(x, dim, n, k, descending, items, result.values.tensor, result.indices.tensor, &ctx->pace))
    status = heed__stopped(ctx, function);
done:
  heed__release(ctx, block);
  status = heed__indexed_result_end(ctx, &result, status);
  status = heed__recorded_selection(ctx, status, op, x, (heed__selection_values){dim, false}, is_new, values,
                                    indices);
  heed_tensor_free(unwanted);
  return status;
}

heed_status heed_sort(heed_context *ctx, const heed_tensor *x, int dim, bool descending, heed_tensor **values,
                      heed_tensor **indices) {
  HEED__ENTER(ctx, "sort", x, values);
  HEED__MAY_ENTER(ctx, "sort", indices);
  int d;
  heed_status status = heed__check_arithmetic(ctx, "sort", "x", x);
  if (status != HEED_OK) return status;
  status = heed__check_dim(ctx, "sort", x->ndim, dim, &d);
  if (status != HEED_OK) return status;
  return sorted(ctx, "sort", HEED__OP_sort, x, d, x->ndim > 0 ? x->shape[d] : 1, descending, values, indices);
}

heed_status heed__topk(heed_context *ctx, const char *function, const heed_tensor *x, int64_t k, int dim,
                       bool largest, heed_tensor **values, heed_tensor **indices) {
  int d;
  heed_status status = heed__check_arithmetic(ctx, function, "x", x);
  if (status != HEED_OK) return status;
  status = heed__check_dim(ctx, function, x->ndim, dim, &d);
  if (status != HEED_OK) return status;
  if (x->ndim == 0 && k != 1)
    return heed__fail(ctx, HEED_INDEX, "%s: k is %lld and x has no dimensions; k must be 1", function,
                      (long long)k);
  if (x->ndim > 0 && (k < 0 || k > x->shape[d]))
    return heed__fail(ctx, HEED_INDEX,
                      "%s: k is %lld; dimension %d has size %lld, so it must be from 0 to %lld", function,
                      (long long)k, d + 1, (long long)x->shape[d], (long long)x->shape[d]);
  return sorted(ctx, function, HEED__OP_topk, x, d, k, largest, values, indices);
}

heed_status heed_topk(heed_context *ctx, const heed_tensor *x, int64_t k, int dim, bool largest,
                      heed_tensor **values, heed_tensor **indices) {
  HEED__ENTER(ctx, "topk", x, values);
  HEED__MAY_ENTER(ctx, "topk", indices);
  return heed__topk(ctx, "topk", x, k, dim, largest, values, indices);
}
