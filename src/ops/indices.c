/* Indexing with several tensors, as x[i, j] in PyTorch: integers that broadcast, and masks. */
#include <stdio.h>
#include <string.h>

#include "ops.h"

/* The selection of x[indices]: for each dimension of x that is indexed, a tensor of integers. */
typedef struct selection {
  int count; /* dimensions that have an entry below, which may be NULL */
  const heed_tensor *index[HEED_MAX_DIMS];
  int item[HEED_MAX_DIMS];            /* its number in the list, for messages */
  heed_tensor columns[HEED_MAX_DIMS]; /* of masks */
  heed_tensor *made[HEED_MAX_DIMS];   /* the indices where masks are true */
  int made_count;
  heed_tensor *positions; /* of the selected elements, if there are several indices */
  int broadcast_ndim;
  int64_t broadcast[HEED_MAX_DIMS];
  /* of the result: its shape, the elements at index 1 of all indexed dimensions, and the indices */
  int ndim;
  int64_t shape[HEED_MAX_DIMS];
  heed_tensor heads, indices;
  heed__lane lane;
} selection;

static void free_selection(selection *s) {
  for (int i = 0; i < s->made_count; i++) heed_tensor_free(s->made[i]);
  heed_tensor_free(s->positions);
}

static int dim_name(const heed__index_names *names, int d) {
  return names ? names->dim[d] : d;
}

/* Adds the indices where the mask, item i of the list, is true. */
static heed_status add_mask(heed_context *ctx, const char *function, const heed_tensor *x,
                            const heed_tensor *mask, int item, const heed__index_names *names, selection *s) {
  char text[HEED__SHAPE_TEXT];
  if (mask->ndim == 0)
    return heed__fail(ctx, HEED_SHAPE, "%s: indices[%d] is a mask of no dimensions; it must have at least 1",
                      function, item);
  for (int i = 0; i < mask->ndim; i++) {
    const int d = s->count + i;
    if (d < x->ndim && mask->shape[i] != x->shape[d])
      return heed__fail(ctx, HEED_SHAPE,
                        "%s: indices[%d] is a mask of shape %s; its dimension %d must have size %lld, like "
                        "dimension %d of x",
                        function, item, heed__shape_text(text, mask->ndim, mask->shape), i + 1,
                        (long long)x->shape[d], dim_name(names, d) + 1);
  }
  heed_tensor **made = &s->made[s->made_count];
  const heed_status status = heed__nonzero(ctx, function, mask, made);
  if (status != HEED_OK) return status;
  s->made_count++;
  for (int i = 0; i < mask->ndim; i++) {
    heed_tensor *column = &s->columns[s->count];
    heed__alias_on_stack(column, *made);
    column->data += i * (ptrdiff_t)sizeof(int64_t);
    column->ndim = 1;
    column->numel = column->shape[0];
    s->item[s->count] = item;
    s->index[s->count++] = column;
  }
  return HEED_OK;
}

static heed_status fail_broadcast(heed_context *ctx, const char *function, const selection *s, int at) {
  char text[HEED__SHAPE_TEXT], others[HEED__SHAPE_TEXT];
  const heed_tensor *index = s->index[at];
  return heed__fail(ctx, HEED_SHAPE,
                    "%s: indices[%d] is %s and those before it are %s; they must broadcast together",
                    function, s->item[at], heed__shape_text(text, index->ndim, index->shape),
                    heed__shape_text(others, s->broadcast_ndim, s->broadcast));
}

/* Reads the list; checks all indices. */
static heed_status read_indices(heed_context *ctx, const char *function, const heed_tensor *x, int count,
                                const heed_tensor *const *indices, const heed__index_names *names,
                                selection *s) {
  heed_status status = HEED_OK;
  for (int i = 0; i < count && status == HEED_OK; i++) {
    const heed_tensor *index = indices[i];
    const int item = names ? names->item[i] : i + 1;
    const int wanted = index && index->dtype == HEED_BOOL ? index->ndim : 1;
    char name[32] = "the index";
    if (item > 0) snprintf(name, sizeof name, "indices[%d]", item);
    if (s->count + wanted > x->ndim)
      return heed__fail(ctx, HEED_INDEX, "%s: the indices are for %d dimensions; x has %d", function,
                        s->count + wanted, x->ndim);
    if (index && index->dtype == HEED_BOOL) {
      status = add_mask(ctx, function, x, index, item, names, s);
      continue;
    }
    if (index) status = heed__check_dtype(ctx, function, name, index, HEED_INT64);
    if (index && status == HEED_OK)
      status = heed__check_indices(ctx, function, name, index, dim_name(names, s->count), x->shape[s->count]);
    s->item[s->count] = item;
    s->index[s->count++] = index;
  }
  for (int i = 0; i < s->count && status == HEED_OK; i++) {
    if (s->index[i] &&
        !heed__broadcast(&s->broadcast_ndim, s->broadcast, s->index[i]->ndim, s->index[i]->shape))
      status = fail_broadcast(ctx, function, s, i);
  }
  return status;
}

/* The positions in x, from 1, in elements, of what the indices select. */
static heed_status find_positions(heed_context *ctx, const char *function, const heed_tensor *x,
                                  selection *s) {
  bool is_first = true;
  heed_status status =
      heed__tensor_new(ctx, function, HEED_INT64, s->broadcast_ndim, s->broadcast, &s->positions);
  for (int d = 0; d < s->count && status == HEED_OK; d++) {
    if (!s->index[d]) continue;
    const heed_tensor *operands[] = {s->positions, s->index[d]};
    int64_t done = 0;
    heed__walk w;
    for (bool more = heed__walk_begin(&w, s->broadcast_ndim, s->broadcast, 2, operands); more;
         more = heed__walk_next(&w)) {
      int64_t *to = (int64_t *)(void *)w.data[0];
      const int64_t *row = (const int64_t *)(const void *)w.data[1];
      for (int64_t i = 0; i < w.count; i++, done++) {
        const int64_t before = is_first ? 1 : to[i * w.stride[0]];
        to[i * w.stride[0]] = before + heed__from_zero(row[i * w.stride[1]], x->shape[d]) * x->stride[d];
        if (!heed__is_due_at(&ctx->pace, done)) continue;
        status = heed__stopped(ctx, function);
        if (status != HEED_OK) return status;
      }
    }
    is_first = false;
  }
  return status;
}

/* Adds dimension d of x to the result. */
static void add_rest(selection *s, const heed_tensor *x, int d) {
  s->indices.shape[s->ndim] = 1;
  s->indices.stride[s->ndim] = 0;
  s->heads.shape[s->ndim] = x->shape[d];
  s->heads.stride[s->ndim] = x->stride[d];
  s->shape[s->ndim++] = x->shape[d];
}

/* Adds the dimensions of the indices, which are broadcast. */
static void add_broadcast(selection *s, const heed_tensor *positions) {
  for (int i = 0; i < s->broadcast_ndim; i++) {
    s->indices.shape[s->ndim] = positions->shape[i];
    s->indices.stride[s->ndim] = positions->stride[i];
    s->heads.shape[s->ndim] = 1;
    s->heads.stride[s->ndim] = 0;
    s->shape[s->ndim++] = s->broadcast[i];
  }
}

/* The dimensions of the indices replace those that they select from, if these are adjacent; else they come
 * first. */
static void arrange(const heed_tensor *x, const heed_tensor *positions, selection *s) {
  int first = -1, last = -1;
  bool adjacent = true;
  for (int d = 0; d < s->count; d++) {
    if (!s->index[d]) continue;
    if (first < 0) first = d;
    if (last >= 0 && last != d - 1) adjacent = false;
    last = d;
  }
  heed__alias_on_stack(&s->heads, x);
  heed__alias_on_stack(&s->indices, positions);
  if (!adjacent) add_broadcast(s, positions);
  for (int d = 0; d < x->ndim; d++) {
    if (adjacent && d == first) add_broadcast(s, positions);
    if (d >= s->count || !s->index[d]) add_rest(s, x, d);
  }
  s->heads.ndim = s->indices.ndim = s->ndim;
}

static heed_status begin_selection(heed_context *ctx, const char *function, const heed_tensor *x, int count,
                                   const heed_tensor *const *indices, const heed__index_names *names,
                                   selection *s) {
  int tensors = 0, only = 0;
  heed_status status = read_indices(ctx, function, x, count, indices, names, s);
  if (status != HEED_OK) return status;
  for (int d = 0; d < s->count; d++) {
    if (!s->index[d]) continue;
    only = d;
    tensors++;
  }
  if (tensors == 0)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: there are no indices; there must be at least 1", function);
  const int ndim = s->broadcast_ndim + x->ndim - tensors;
  if (ndim > HEED_MAX_DIMS)
    return heed__fail(ctx, HEED_SHAPE, "%s: the result has %d dimensions; it must have at most %d", function,
                      ndim, HEED_MAX_DIMS);
  if (tensors == 1) {
    s->lane = (heed__lane){x->shape[only], x->stride[only] * (ptrdiff_t)heed__element_bytes(x->dtype)};
    arrange(x, s->index[only], s);
    return HEED_OK;
  }
  status = find_positions(ctx, function, x, s);
  if (status != HEED_OK) return status;
  s->lane = (heed__lane){0, (ptrdiff_t)heed__element_bytes(x->dtype)};
  arrange(x, s->positions, s);
  return HEED_OK;
}

/* The list may contain NULL. */
static heed_status check_list_of_indices(heed_context *ctx, const char *function, int count,
                                         const heed_tensor *const *indices) {
  heed_status status = heed__check_list(ctx, function, "indices", count, indices);
  for (int i = 0; i < count && status == HEED_OK; i++) {
    if (indices[i]) status = heed__check_tensors(ctx, function, "indices", 1, &indices[i]);
  }
  return status;
}

heed_status heed__index(heed_context *ctx, const char *function, const heed_tensor *x, int count,
                        const heed_tensor *const *indices, const heed__index_names *names,
                        heed_tensor **out) {
  const heed_tensor *inputs[HEED_MAX_DIMS + 1] = {x};
  selection s = {0};
  heed__result result = {0};
  heed_status status = begin_selection(ctx, function, x, count, indices, names, &s);
  if (status != HEED_OK) goto done;
  for (int i = 0; i < count; i++) inputs[i + 1] = indices[i];
  status =
      heed__result_begin(ctx, function, &result, out, x->dtype, s.ndim, s.shape, false, count + 1, inputs);
  if (status != HEED_OK) goto done;
  if (!heed__pick(result.tensor, &s.indices, &s.heads, s.lane)) status = heed__stopped(ctx, function);
done:
  free_selection(&s);
  status = heed__result_end(ctx, &result, status);
  return heed__recorded(ctx, status, HEED__OP_index, count + 1, inputs, NULL, 0, out);
}

heed_status heed_index(heed_context *ctx, const heed_tensor *x, int count, const heed_tensor *const *indices,
                       heed_tensor **out) {
  HEED__ENTER(ctx, "index", x, out);
  const heed_status status = check_list_of_indices(ctx, "index", count, indices);
  if (status != HEED_OK) return status;
  return heed__index(ctx, "index", x, count, indices, NULL, out);
}

heed_status heed__index_put(heed_context *ctx, const char *function, heed_tensor *x, int count,
                            const heed_tensor *const *indices, const heed__index_names *names,
                            const heed_tensor *value, bool accumulate, bool any) {
  const heed_scatter_reduce reduce = accumulate ? HEED_SCATTER_ADD : HEED_SCATTER_REPLACE;
  const heed_tensor *own[HEED_MAX_DIMS];
  heed_tensor *copies[HEED_MAX_DIMS] = {0}, *value_copy = NULL;
  const heed_tensor *given = value;
  selection s = {0};
  heed_status status = heed__check_target(ctx, function, x);
  for (int i = 0; i < count && status == HEED_OK; i++) {
    own[i] = indices[i];
    if (own[i]) status = heed__copy_if_overlapping(ctx, function, x, &own[i], &copies[i]);
  }
  if (status != HEED_OK) goto done;
  status = begin_selection(ctx, function, x, count, own, names, &s);
  if (status != HEED_OK) goto done;
  status = heed__check_expands(ctx, function, "value", value, s.ndim, s.shape);
  if (status != HEED_OK) goto done;
  status = heed__prepare_placing(ctx, function, "value", x, reduce, any, &value, &value_copy);
  if (status == HEED_OK) status = heed__written(ctx, function, x);
  if (status != HEED_OK) goto done;
  if (!heed__place(s.ndim, s.shape, &s.indices, &s.heads, s.lane, value, reduce))
    status = heed__stopped(ctx, function);
done:
  free_selection(&s);
  for (int i = 0; i < count; i++) heed_tensor_free(copies[i]);
  heed_tensor_free(value_copy);
  if (ctx->recorder == NULL || status != HEED_OK) return status;
  const heed_tensor *inputs[HEED_MAX_DIMS + 2] = {x, given};
  for (int i = 0; i < count; i++) inputs[i + 2] = indices[i];
  return heed__recorded(ctx, status, HEED__OP_index_put, count + 2, inputs, &accumulate, sizeof accumulate,
                        &x);
}

heed_status heed_index_put(heed_context *ctx, heed_tensor *x, int count, const heed_tensor *const *indices,
                           const heed_tensor *value, bool accumulate) {
  HEED__ENTER(ctx, "index_put", x, value);
  const heed_status status = check_list_of_indices(ctx, "index_put", count, indices);
  if (status != HEED_OK) return status;
  return heed__index_put(ctx, "index_put", x, count, indices, NULL, value, accumulate, false);
}
