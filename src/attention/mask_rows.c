/* The keys that each query sees by a mask value: for the kernels, as a dense mask, and counted in blocks. */
#include "attention.h"

#include <string.h>

/* The conditions of a mask, one after another. */
#define EACH_CONDITION(c, m)                                                                                 \
  for (const int64_t *c = (const int64_t *)(const void *)(m)->code->data, *c##_end = c + (m)->code->numel;   \
       c < c##_end; c += c[1] + 2)

/* ---- What a mask needs ---- */

void heed__mask_window(const heed_mask *m, int64_t *left, int64_t *right) {
  EACH_CONDITION(c, m) {
    if (c[0] == HEED__MASK_CAUSAL) *right = heed__min(*right, 0);
    if (c[0] != HEED__MASK_WINDOW) continue;
    if (c[2] >= 0) *left = heed__min(*left, c[2]);
    if (c[3] >= 0) *right = heed__min(*right, c[3]);
  }
}

int64_t heed__mask_most(const heed_mask *m) {
  int64_t most = 0;
  EACH_CONDITION(c, m) {
    int64_t own = 0;
    switch ((heed__mask_kind)c[0]) {
    case HEED__MASK_PREFIX:
    case HEED__MASK_DOCUMENTS: own = 1; break;
    case HEED__MASK_TREE: own = c[3] + 1; break; /* keys before the nodes */
    case HEED__MASK_INTERVALS: own = heed__max(c[4], 1); break;
    default: break;
    }
    if (own > 0) most = most > 0 ? most + own - 1 : own;
  }
  return most;
}

bool heed__mask_broadcast(const heed_mask *m, int *ndim, int64_t *shape) {
  EACH_CONDITION(c, m) {
    if (c[0] == HEED__MASK_INTERVALS && !heed__broadcast(ndim, shape, (int)c[2], c + 5)) return false;
  }
  return true;
}

static heed_status check_intervals(heed_context *ctx, const char *function, const int64_t *c,
                                   const heed__mask_call *call) {
  const int64_t l = call->before + call->l + call->behind, most = call->s + call->spare;
  if (c[3] != 1 && c[3] != l)
    return heed__fail(ctx, HEED_SHAPE,
                      "%s: mask.intervals is for %lld quer%s, and there %s %lld; make it for that number",
                      function, (long long)c[3], c[3] == 1 ? "y" : "ies", HEED__ARE(l), (long long)l);
  const int64_t first = c[3] > 1 ? call->before : 0, last = c[3] > 1 ? first + call->l : c[3], pairs = c[4];
  for (const int64_t *x = c + 5 + c[2]; x < c + 2 + c[1]; x += 2 * pairs * c[3])
    for (int64_t i = first * pairs; i < last * pairs; i++) {
      if (x[2 * i + 1] > most)
        return heed__fail(ctx, HEED_INDEX,
                          "%s: mask.intervals has key %lld; it must be at most %lld, the number of keys",
                          function, (long long)x[2 * i + 1], (long long)most);
      if (heed__is_due_at(&ctx->pace, (x - c) / 2 + i)) return heed__stopped(ctx, function);
    }
  return HEED_OK;
}

heed_status heed__mask_check(heed_context *ctx, const char *function, const heed_mask *m,
                             const heed__mask_call *call, bool every_query) {
  heed_status status = HEED_OK;
  if (call->s > INT32_MAX && heed__mask_most(m) > 0)
    return heed__fail(ctx, HEED_SHAPE, "%s: there are %lld keys; with such a mask there must be at most %d",
                      function, (long long)call->s, INT32_MAX);
  EACH_CONDITION(c, m) {
    if (c[0] == HEED__MASK_DOCUMENTS) {
      const int64_t sum = c[2] > 0 ? c[2 + c[2]] : 0;
      if (sum != call->s)
        status =
            heed__fail(ctx, HEED_SHAPE,
                       "%s: the lengths of mask.documents add up to %lld, and there %s %lld key%s; these "
                       "must be equal",
                       function, (long long)sum, HEED__ARE(call->s), (long long)call->s, HEED__S(call->s));
      else if (every_query && call->l > 0 && call->offset + call->l > sum)
        status = heed__fail(ctx, HEED_SHAPE,
                            "%s: the lengths of mask.documents add up to %lld, and the last query is at "
                            "position %lld; it must "
                            "be in a document",
                            function, (long long)sum, (long long)(call->offset + call->l));
    }
    if (c[0] == HEED__MASK_TREE && c[2] != call->l)
      status = heed__fail(ctx, HEED_SHAPE,
                          "%s: mask.tree has %lld node%s, and there %s %lld quer%s; these must be equal",
                          function, (long long)c[2], HEED__S(c[2]), HEED__ARE(call->l), (long long)call->l,
                          call->l == 1 ? "y" : "ies");
    if (c[0] == HEED__MASK_INTERVALS) status = check_intervals(ctx, function, c, call);
    if (status) return status;
  }
  return HEED_OK;
}

/* ---- One query ---- */

void heed__mask_set_buffers(heed__mask_buffers *b, int32_t *words, int64_t most) {
  for (int i = 0; i < 3; i++) b->list[i] = words + 2 * most * i;
}

/* Adds an interval to a list, cut to keys 0…s-1; one that touches the last is joined to it. */
static int64_t add_interval(int32_t *list, int64_t n, int64_t s, int64_t first, int64_t last) {
  first = heed__max(first, 0);
  last = heed__min(last, s);
  if (first >= last) return n;
  if (n > 0 && list[2 * n - 1] == first) {
    list[2 * n - 1] = (int32_t)last;
    return n;
  }
  list[2 * n] = (int32_t)first;
  list[2 * n + 1] = (int32_t)last;
  return n + 1;
}

/* The document of a position. */
static int64_t add_document(int32_t *list, const int64_t *ends, int64_t count, int64_t s, int64_t position) {
  int64_t low = 0, high = count; /* the first whose end is behind the position */
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (ends[middle] > position)
      high = middle;
    else
      low = middle + 1;
  }
  if (position < 0 || low == count) return 0;
  return add_interval(list, 0, s, low > 0 ? ends[low - 1] : 0, ends[low]);
}

/* The keys before the nodes, then the node's ancestors and itself; found from the last to the first. */
static int64_t add_branch(int32_t *list, const int64_t *c, const heed__mask_call *call, int64_t i) {
  const int64_t *top = c + 4, *next = top + c[2];
  int64_t count = 0, n = add_interval(list, 0, call->s, 0, call->offset);
  for (int64_t node = i; node >= 0; node = next[node]) count++;
  int32_t *x = list + 2 * (n + count);
  for (int64_t node = i; node >= 0; node = next[node]) {
    *--x = (int32_t)node + 1;
    *--x = (int32_t)top[node];
  }
  for (int64_t k = 0; k < count; k++, x += 2)
    n = add_interval(list, n, call->s, call->offset + x[0], call->offset + x[1]);
  return n;
}

/* The index in the sizes of one condition of the element that `lead` is in the broadcast sizes. */
static int64_t own_item(const int64_t *c, int ndim, const int64_t *lead) {
  int64_t item = 0;
  for (int64_t d = 0; d < c[2]; d++) {
    const int64_t size = c[5 + d];
    item = item * size + (size > 1 ? lead[ndim - c[2] + d] : 0);
  }
  return item;
}

static int64_t intersect(const int32_t *a, int64_t na, const int32_t *b, int64_t nb, int32_t *out) {
  int64_t n = 0, i = 0, j = 0;
  while (i < na && j < nb) {
    const int64_t first = heed__max(a[2 * i], b[2 * j]), last = heed__min(a[2 * i + 1], b[2 * j + 1]);
    if (first < last) {
      out[2 * n] = (int32_t)first;
      out[2 * n++ + 1] = (int32_t)last;
    }
    if (a[2 * i + 1] < b[2 * j + 1])
      i++;
    else
      j++;
  }
  return n;
}

int64_t heed__mask_row(const heed_mask *m, const heed__mask_call *call, int ndim, const int64_t *lead,
                       int64_t i, heed__mask_buffers *b, const int32_t **out) {
  const int64_t position = call->offset + i, s = call->s;
  int32_t *seen = b->list[0], *own = b->list[1], *both = b->list[2];
  int64_t n = 0;
  bool first = true;
  EACH_CONDITION(c, m) {
    int64_t count = 0;
    switch ((heed__mask_kind)c[0]) {
    case HEED__MASK_PREFIX: count = add_interval(own, 0, s, 0, heed__max(c[2], position + 1)); break;
    case HEED__MASK_DOCUMENTS: count = add_document(own, c + 3, c[2], s, position); break;
    case HEED__MASK_TREE: count = add_branch(own, c, call, i); break;
    case HEED__MASK_INTERVALS: {
      const int64_t row = own_item(c, ndim, lead) * c[3] + (c[3] > 1 ? call->before + i : 0);
      const int64_t *x = c + 5 + c[2] + row * c[4] * 2;
      for (int64_t k = 0; k < c[4]; k++) count = add_interval(own, count, s, x[2 * k], x[2 * k + 1]);
      break;
    }
    default: continue;
    }
    int32_t *const before = seen;
    if (first) {
      seen = own;
      own = before;
      n = count;
    } else {
      n = intersect(seen, n, own, count, both);
      seen = both;
      both = before;
    }
    first = false;
  }
  *out = seen;
  return n;
}

/* ---- All queries ---- */

/* Receives the keys first…last-1 of query i of item `item` of the leading sizes. */
typedef void mask_visitor(void *argument, int64_t item, int64_t i, int64_t first, int64_t last);

/* The keys of every query, with the windows of the mask. */
static heed_status visit_mask(const heed_mask *m, const char *function, const heed__mask_call *call, int ndim,
                              const int64_t *shape, mask_visitor *visit, void *argument) {
  heed_context *ctx = m->context;
  const int64_t most = heed__mask_most(m);
  int64_t left = INT64_MAX, right = INT64_MAX, items = 1, lead[HEED_MAX_DIMS] = {0};
  const size_t bytes = heed__array_bytes(heed__mask_buffer_words(heed__max(most, 1)), sizeof(int32_t));
  heed__mask_buffers buffers;
  int32_t *words = heed__allocate(ctx, bytes);
  if (words == NULL) return heed__fail_memory(ctx, function, bytes);
  heed__mask_set_buffers(&buffers, words, heed__max(most, 1));
  heed__mask_window(m, &left, &right);
  for (int d = 0; d < ndim; d++) items *= shape[d];
  heed_status status = heed__charge(ctx, function, (double)items * (double)call->l);
  for (int64_t item = 0; item < items && !status; item++) {
    int64_t rest = item;
    for (int d = ndim - 1; d >= 0; d--) {
      lead[d] = rest % shape[d];
      rest /= shape[d];
    }
    for (int64_t i = 0; i < call->l && !status; i++) {
      const int32_t all[] = {0, (int32_t)heed__min(call->s, INT32_MAX)}, *x = all;
      const int64_t n = most > 0 ? heed__mask_row(m, call, ndim, lead, i, &buffers, &x) : 1;
      const int64_t position = call->offset + i;
      const int64_t begin = left < position ? position - left : 0;
      const int64_t end = right < call->s - position ? position + right + 1 : call->s;
      for (int64_t k = 0; k < n; k++) {
        const int64_t first = heed__max(x[2 * k], begin),
                      last = heed__min(most > 0 ? x[2 * k + 1] : call->s, end);
        if (first < last) visit(argument, item, i, first, last);
      }
      if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
    }
  }
  heed__release(ctx, words);
  return status;
}

static heed_status check_mask_sizes(const heed_mask *m, const char *function, const heed__mask_call *call) {
  const int64_t given[] = {call->l, call->s, call->offset};
  static const char *const names[] = {"the number of queries", "the number of keys", "offset"};
  for (int i = 0; i < 3; i++) {
    if (given[i] >= (i < 2 ? 0 : -INT32_MAX) && given[i] <= INT32_MAX) continue;
    return heed__fail(m->context, HEED_ARGUMENT, "%s: %s is %lld; it must be from %d to %d", function,
                      names[i], (long long)given[i], i < 2 ? 0 : -INT32_MAX, INT32_MAX);
  }
  return heed__mask_check(m->context, function, m, call, true);
}

/* Begins a result [lead..., rows, columns], *lead sizes of which are those before the queries. Errors: SHAPE,
 * DTYPE, MEMORY. */
static heed_status begin_mask_map(const heed_mask *m, const char *function, heed_dtype dtype, int64_t rows,
                                  int64_t columns, heed__result *result, heed_tensor **out, int64_t *shape,
                                  int *lead) {
  *lead = 0;
  (void)heed__mask_broadcast(m, lead, shape);
  if (*lead + 2 > HEED_MAX_DIMS)
    return heed__fail(m->context, HEED_SHAPE,
                      "%s: the mask has %d leading dimensions; it must have at most %d", function, *lead,
                      HEED_MAX_DIMS - 2);
  shape[*lead] = rows;
  shape[*lead + 1] = columns;
  return heed__result_begin_row_major(m->context, function, result, out, dtype, *lead + 2, shape, 0, NULL);
}

/* ---- Dense ---- */

typedef struct dense_mask {
  uint8_t *data;
  int64_t l, s;
} dense_mask;

static void show(void *argument, int64_t item, int64_t i, int64_t first, int64_t last) {
  const dense_mask *d = argument;
  memset(d->data + (item * d->l + i) * d->s + first, 1, (size_t)(last - first));
}

heed_status heed_mask_dense(const heed_mask *m, int64_t l, int64_t s, int64_t offset, heed_tensor **out) {
  static const char function[] = "mask.dense";
  heed_context *ctx = heed_mask_context(m);
  HEED__ENTER(ctx, function, out);
  const heed__mask_call call = {.l = l, .s = s, .offset = offset};
  heed_status status = check_mask_sizes(m, function, &call);
  if (status) return status;
  int64_t shape[HEED_MAX_DIMS + 2];
  int lead;
  heed__result result = {0};
  status = begin_mask_map(m, function, HEED_BOOL, l, s, &result, out, shape, &lead);
  if (status) return status;
  dense_mask dense = {(uint8_t *)result.tensor->data, l, s};
  if (result.tensor->numel > 0) {
    status = heed__fill(ctx, function, result.tensor, heed_boolean(false));
    if (!status) status = visit_mask(m, function, &call, lead, shape, show, &dense);
  }
  return heed__result_end(ctx, &result, status);
}

/* ---- Blocks ---- */

typedef struct mask_blocks {
  int64_t *count;
  int64_t rows, columns, row_size, column_size;
} mask_blocks;

static void count_blocks(void *argument, int64_t item, int64_t i, int64_t first, int64_t last) {
  const mask_blocks *b = argument;
  int64_t *row = b->count + (item * b->rows + i / b->row_size) * b->columns;
  for (int64_t j = first / b->column_size; j * b->column_size < last; j++)
    row[j] += heed__min(last, (j + 1) * b->column_size) - heed__max(first, j * b->column_size);
}

heed_status heed_mask_blocks(const heed_mask *m, int64_t l, int64_t s, int64_t offset, int64_t block,
                             heed_tensor **out) {
  static const char function[] = "mask.blocks";
  heed_context *ctx = heed_mask_context(m);
  HEED__ENTER(ctx, function, out);
  const heed__mask_call call = {.l = l, .s = s, .offset = offset};
  heed_status status = check_mask_sizes(m, function, &call);
  if (status) return status;
  if (block < 1 || block > INT32_MAX)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: block is %lld; it must be from 1 to %d", function,
                      (long long)block, INT32_MAX);
  int64_t shape[HEED_MAX_DIMS + 2];
  int lead;
  heed__result result = {0};
  status = begin_mask_map(m, function, HEED_INT64, (l + block - 1) / block, (s + block - 1) / block, &result,
                          out, shape, &lead);
  if (status) return status;
  mask_blocks blocks = {(int64_t *)(void *)result.tensor->data, shape[lead], shape[lead + 1], block, block};
  if (result.tensor->numel > 0) {
    status = heed__fill(ctx, function, result.tensor, heed_number(0));
    if (!status) status = visit_mask(m, function, &call, lead, shape, count_blocks, &blocks);
  }
  return heed__result_end(ctx, &result, status);
}
