/* The choice of taps: names, heads and queries. */
#include <string.h>

#include "attention.h"

heed_status heed__wanted_read(heed_context *ctx, const char *function, const heed_taps_wanted **wanted,
                              heed_taps_wanted *own) {
  if (!*wanted) return HEED_OK;
  memset(own, 0, sizeof *own);
  const heed_status status =
      heed__struct_read(ctx, function, "wanted", "heed_taps_wanted", *wanted, own, sizeof *own);
  if (status == HEED_OK) *wanted = own;
  return status;
}

unsigned heed__wanted_bits(const heed_taps_wanted *wanted, unsigned all) {
  if (!wanted) return all & ~(1u << HEED__TAP_lse);
  unsigned bits = 0;
#define X(name) bits |= wanted->name ? 1u << HEED__TAP_##name : 0;
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
  return bits & all;
}

/* Index i of `size`, from 0; -1 if there is none. */
static int64_t wanted_index(int64_t i, int64_t size) {
  if (i == 0 || i > size || i < -size) return -1;
  return i > 0 ? i - 1 : i + size;
}

static heed_status refuse_wanted(heed_context *ctx, const char *function, const char *what, int64_t i,
                                 int64_t size) {
  if (size == 0)
    return heed__fail(ctx, HEED_INDEX, "%s: need_weights asks for one of the %s, %lld; there are none",
                      function, what, (long long)i);
  return heed__fail(ctx, HEED_INDEX,
                    "%s: need_weights asks for one of the %s, %lld; it must be from 1 to %lld, or from "
                    "-%lld to -1",
                    function, what, (long long)i, (long long)size, (long long)size);
}

/* Allocates n indices. */
static heed_status new_wanted(heed_context *ctx, const char *function, int64_t n, int64_t **out) {
  const size_t bytes = heed__array_bytes((uint64_t)heed__max(n, 1), sizeof **out);
  *out = heed__allocate(ctx, bytes);
  return *out ? HEED_OK : heed__fail_memory(ctx, function, bytes);
}

static heed_status wanted_indices(heed_context *ctx, const char *function, const char *what,
                                  const int64_t *list, int64_t n, int64_t size, int64_t **out) {
  const heed_status status = new_wanted(ctx, function, n, out);
  if (status) return status;
  for (int64_t i = 0; i < n; i++) {
    (*out)[i] = wanted_index(list[i], size);
    if ((*out)[i] < 0) return refuse_wanted(ctx, function, what, list[i], size);
  }
  return HEED_OK;
}

static heed_status free_wanted(heed_context *ctx, int64_t **out, heed_status status) {
  if (status == HEED_OK) return HEED_OK;
  heed__release(ctx, *out);
  *out = NULL;
  return status;
}

heed_status heed__wanted_heads(heed_context *ctx, const char *function, const heed_taps_wanted *wanted,
                               int64_t heads, int64_t **out, int64_t *count) {
  *out = NULL;
  *count = heads;
  if (!wanted || !wanted->head_list) return HEED_OK;
  heed_status status = HEED_OK;
  *count = wanted->head_count;
  if (*count > heads)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: need_weights asks for %lld heads; there %s %lld", function,
                      (long long)*count, heads == 1 ? "is" : "are", (long long)heads);
  status = wanted_indices(ctx, function, "heads", wanted->head_list, *count, heads, out);
  for (int64_t i = 0; status == HEED_OK && i < *count; i++)
    for (int64_t j = 0; status == HEED_OK && j < i; j++)
      if ((*out)[i] == (*out)[j])
        status = heed__fail(ctx, HEED_ARGUMENT, "%s: need_weights asks for head %lld twice", function,
                            (long long)(*out)[i] + 1);
  return free_wanted(ctx, out, status);
}

heed_status heed__wanted_queries(heed_context *ctx, const char *function, const heed_taps_wanted *wanted,
                                 int64_t l, int64_t **out, int64_t *count) {
  static const char what[] = "queries";
  *out = NULL;
  *count = l;
  if (!wanted || !wanted->query_list) return HEED_OK;
  if (!wanted->query_range) {
    *count = wanted->query_count;
    return free_wanted(ctx, out, wanted_indices(ctx, function, what, wanted->query_list, *count, l, out));
  }
  int64_t bound[2];
  for (int i = 0; i < 2; i++) {
    bound[i] = wanted_index(wanted->query_list[i], l);
    if (bound[i] < 0) return refuse_wanted(ctx, function, what, wanted->query_list[i], l);
  }
  if (bound[1] < bound[0])
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: need_weights asks for queries from %lld to %lld; the first must not be after the "
                      "last",
                      function, (long long)bound[0] + 1, (long long)bound[1] + 1);
  *count = bound[1] - bound[0] + 1;
  const heed_status status = new_wanted(ctx, function, *count, out);
  for (int64_t i = 0; status == HEED_OK && i < *count; i++) (*out)[i] = bound[0] + i;
  return status;
}

/* Replaces *x by its slices at these indices of dimension dim. */
static heed_status select_slices(heed_context *ctx, const char *function, heed_tensor **x, int dim,
                                 const int64_t *indices, int64_t count) {
  heed_tensor *index = NULL, *slices = NULL;
  heed_status status = heed__tensor_new(ctx, function, HEED_INT64, 1, &count, &index);
  if (status) return status;
  for (int64_t i = 0; i < count; i++) ((int64_t *)(void *)index->data)[i] = indices[i] + 1;
  status = heed_index_select(ctx, *x, dim, index, &slices);
  heed_tensor_free(index);
  if (status) return status;
  heed_tensor_free(*x);
  *x = slices;
  return HEED_OK;
}

heed_status heed__wanted_select(heed_context *ctx, const char *function, const heed_taps_wanted *wanted,
                                bool one_head, heed_attention_taps *taps) {
  if (!wanted) return HEED_OK;
  int tap = 0;
#define X(name) &taps->name,
  heed_tensor **const each[] = {HEED_ATTENTION_TAPS_LIST(X)};
#undef X
#define X(name)                                                                                              \
  if (!wanted->name) {                                                                                       \
    heed_tensor_free(taps->name);                                                                            \
    taps->name = NULL;                                                                                       \
  }
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
  heed_status status = HEED_OK;
  for (; tap < HEED__TAP_MAPS && status == HEED_OK; tap++) {
    heed_tensor **x = each[tap];
    int64_t *heads = NULL, *queries = NULL, head_count = 1, query_count = 0;
    if (!*x) continue;
    const int last = (*x)->ndim;
    status =
        heed__wanted_heads(ctx, function, wanted, one_head ? 1 : (*x)->shape[last - 3], &heads, &head_count);
    if (!status)
      status = heed__wanted_queries(ctx, function, wanted, (*x)->shape[last - 2], &queries, &query_count);
    if (!status && heads && !one_head) status = select_slices(ctx, function, x, last - 2, heads, head_count);
    if (!status && queries) status = select_slices(ctx, function, x, last - 1, queries, query_count);
    heed__release(ctx, heads);
    heed__release(ctx, queries);
  }
  return status;
}

heed_status heed__wanted_copy(heed_context *ctx, const char *function, const heed_taps_wanted *wanted,
                              heed_taps_wanted **out) {
  *out = NULL;
  if (!wanted) return HEED_OK;
  const int64_t queries = wanted->query_range ? 2 : wanted->query_count;
  const int64_t lists[] = {wanted->head_list ? wanted->head_count : 0, wanted->query_list ? queries : 0};
  const size_t bytes = heed__array_bytes((uint64_t)(lists[0] + lists[1]), sizeof(int64_t));
  if (bytes > PTRDIFF_MAX - sizeof **out) return heed__fail_memory(ctx, function, bytes);
  heed_taps_wanted *copy = heed__allocate(ctx, sizeof *copy + bytes);
  if (!copy) return heed__fail_memory(ctx, function, sizeof *copy + bytes);
  int64_t *next = (int64_t *)(void *)(copy + 1);
  *copy = *wanted;
  if (wanted->head_list) copy->head_list = memcpy(next, wanted->head_list, (size_t)lists[0] * sizeof *next);
  next += lists[0];
  if (wanted->query_list)
    copy->query_list = memcpy(next, wanted->query_list, (size_t)lists[1] * sizeof *next);
  *out = copy;
  return HEED_OK;
}
