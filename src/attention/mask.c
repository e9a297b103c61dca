/* Masks as values: causal, window, prefix, documents, tree, intervals, and their conjunctions. */
#include "attention.h"

#include <stdio.h>
#include <string.h>

/* ---- Making ---- */

/* A mask of one condition with `words` further words, which the caller sets in *at. The second factor of
 * their number may be large. */
static heed_status new_mask(heed_context *ctx, const char *function, heed__mask_kind kind, int64_t words,
                            heed_mask **out, int64_t **at) {
  const heed_status charged = heed__charge(ctx, function, (double)words);
  if (charged) return charged;
  heed_mask *m = heed__allocate(ctx, sizeof *m);
  if (m == NULL) return heed__fail_memory(ctx, function, sizeof *m);
  const int64_t all = words + 2;
  *m = (heed_mask){.context = ctx, .references = 1};
  const heed_status status = heed__tensor_new(ctx, function, HEED_INT64, 1, &all, &m->code);
  if (status) {
    heed__release(ctx, m);
    return status;
  }
  int64_t *code = (int64_t *)(void *)m->code->data;
  code[0] = kind;
  code[1] = words;
  *at = code + 2;
  *out = m;
  return HEED_OK;
}

static heed_status check_unset(heed_context *ctx, const char *function, heed_mask *const *out) {
  if (*out == NULL) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: *out is not NULL; a mask is always new", function);
}

heed_mask *heed_mask_retain(heed_mask *m) {
  if (m != NULL) m->references++;
  return m;
}

void heed_mask_release(heed_mask *m) {
  if (m == NULL || --m->references > 0) return;
  heed_tensor_free(m->code);
  heed__release(m->context, m);
}

heed_context *heed_mask_context(const heed_mask *m) {
  return m != NULL ? m->context : NULL;
}

heed_status heed_mask_causal(heed_context *ctx, heed_mask **out) {
  static const char function[] = "mask.causal";
  HEED__ENTER(ctx, function, out);
  int64_t *at = NULL;
  const heed_status status = check_unset(ctx, function, out);
  return status ? status : new_mask(ctx, function, HEED__MASK_CAUSAL, 0, out, &at);
}

heed_status heed_mask_window(heed_context *ctx, const heed_window *window, heed_mask **out) {
  static const char function[] = "mask.window";
  HEED__ENTER(ctx, function, window, out);
  int64_t *at = NULL;
  heed_mask *m = NULL;
  heed_status status = check_unset(ctx, function, out);
  if (!status) status = heed__check_window(ctx, function, window);
  if (!status) status = new_mask(ctx, function, HEED__MASK_WINDOW, 2, &m, &at);
  if (status) return status;
  at[0] = window->has_left ? window->left : -1;
  at[1] = window->has_right ? window->right : -1;
  *out = m;
  return HEED_OK;
}

heed_status heed_mask_prefix(heed_context *ctx, int64_t n, heed_mask **out) {
  static const char function[] = "mask.prefix";
  HEED__ENTER(ctx, function, out);
  int64_t *at = NULL;
  heed_mask *m = NULL;
  heed_status status = check_unset(ctx, function, out);
  if (!status && n < 0)
    status = heed__fail(ctx, HEED_ARGUMENT, "%s: n is %lld; it must be at least 0", function, (long long)n);
  if (!status) status = new_mask(ctx, function, HEED__MASK_PREFIX, 1, &m, &at);
  if (status) return status;
  at[0] = n;
  *out = m;
  return HEED_OK;
}

heed_status heed_mask_documents(heed_context *ctx, const heed_tensor *lengths, heed_mask **out) {
  static const char function[] = "mask.documents";
  HEED__ENTER(ctx, function, lengths, out);
  int64_t *at = NULL, sum = 0;
  heed_mask *m = NULL;
  heed__lengths read;
  heed_status status = check_unset(ctx, function, out);
  if (!status) status = heed__read_lengths(ctx, function, "lengths", lengths, INT64_MAX, &read);
  if (!status && read.total > INT32_MAX)
    status = heed__fail(ctx, HEED_ARGUMENT,
                        "%s: the lengths add up to more than %d; they must be at most that many tokens",
                        function, INT32_MAX);
  const int64_t count = status ? 0 : read.count;
  if (!status) status = new_mask(ctx, function, HEED__MASK_DOCUMENTS, count + 1, &m, &at);
  if (status) return status;
  *at++ = count;
  for (int64_t i = 0; i < count && !status; i++) {
    at[i] = sum += heed__int64_at(lengths, i);
    if (heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, function);
  }
  if (status)
    heed_mask_release(m);
  else
    *out = m;
  return status;
}

heed_status heed_mask_tree(heed_context *ctx, const heed_tensor *parents, heed_mask **out) {
  static const char function[] = "mask.tree";
  HEED__ENTER(ctx, function, parents, out);
  char text[HEED__SHAPE_TEXT];
  int64_t *at = NULL;
  heed_mask *m = NULL;
  heed_status status = check_unset(ctx, function, out);
  if (!status) status = heed__check_dtype(ctx, function, "parents", parents, HEED_INT64);
  if (!status && parents->ndim != 1)
    status = heed__fail(ctx, HEED_SHAPE, "%s: parents is %s; it must have one dimension", function,
                        heed__shape_text(text, parents->ndim, parents->shape));
  const int64_t n = status ? 0 : parents->shape[0];
  if (!status && n > INT32_MAX / 4)
    status = heed__fail(ctx, HEED_ARGUMENT, "%s: there are %lld nodes; there must be at most %d", function,
                        (long long)n, INT32_MAX / 4);
  for (int64_t i = 0; !status && i < n; i++) {
    const int64_t parent = heed__int64_at(parents, i);
    if (parent < 0 || parent > i)
      status = heed__fail(ctx, HEED_INDEX, "%s: the parent of node %lld is %lld; it must be %s", function,
                          (long long)i + 1, (long long)parent,
                          i == 0 ? "0, as the first node is a root" : "an earlier node, or 0 for a root");
    else if (heed__is_due_at(&ctx->pace, i))
      status = heed__stopped(ctx, function);
  }
  if (!status) status = new_mask(ctx, function, HEED__MASK_TREE, 2 + 2 * n, &m, &at);
  if (status) return status;
  /* counts[i], the intervals of node i, stand where `next` does until that is known. */
  int64_t *top = at + 2, *next = top + n, most = 0;
  for (int64_t i = 0; i < n && !status; i++) {
    const int64_t parent = heed__int64_at(parents, i) - 1;
    const bool follows = i > 0 && parent == i - 1;
    top[i] = follows ? top[parent] : i;
    next[i] = parent < 0 ? 1 : next[parent] + !follows;
    most = heed__max(most, next[i]);
    if (heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, function);
  }
  for (int64_t i = 0; i < n && !status; i++) {
    next[i] = heed__int64_at(parents, top[i]) - 1;
    if (heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, function);
  }
  at[0] = n;
  at[1] = most;
  if (status)
    heed_mask_release(m);
  else
    *out = m;
  return status;
}

/* ---- Intervals ---- */

/* Reads the pairs of one query, counted from 1 with both ends, and checks that they are in order. */
static heed_status read_intervals(heed_context *ctx, const char *function, const heed_tensor *t,
                                  const int64_t *x, int64_t query, int64_t *to) {
  const int64_t r = t->shape[t->ndim - 2];
  const int64_t pair = t->stride[t->ndim - 2], step = t->stride[t->ndim - 1];
  int64_t end = 0;
  for (int64_t k = 0; k < r; k++) {
    const int64_t first = x[k * pair], last = x[k * pair + step];
    if (last < first && last != first - 1)
      return heed__fail(
          ctx, HEED_ARGUMENT,
          "%s: interval %lld of query %lld is from %lld to %lld; its last key must not be before "
          "its first (write {1, 0} for an empty one)",
          function, (long long)k + 1, (long long)query + 1, (long long)first, (long long)last);
    if (last >= first && (first < 1 || last > INT32_MAX))
      return heed__fail(
          ctx, HEED_INDEX,
          "%s: interval %lld of query %lld is from %lld to %lld; keys count from 1 to at most %d", function,
          (long long)k + 1, (long long)query + 1, (long long)first, (long long)last, INT32_MAX);
    if (last >= first && first <= end)
      return heed__fail(ctx, HEED_ARGUMENT,
                        "%s: interval %lld of query %lld begins at key %lld, and one before it ends at key "
                        "%lld; intervals must be in order and must not overlap",
                        function, (long long)k + 1, (long long)query + 1, (long long)first, (long long)end);
    if (heed__is_due_at(&ctx->pace, k)) return heed__stopped(ctx, function);
    if (last < first) continue;
    *to++ = first - 1;
    *to++ = end = last;
  }
  return HEED_OK;
}

static heed_status copy_intervals(heed_context *ctx, const char *function, const heed_tensor *t,
                                  int64_t *pairs) {
  const int lead = t->ndim - 3;
  const int64_t l = t->shape[lead], r = t->shape[lead + 1];
  int64_t items = 1;
  for (int d = 0; d < lead; d++) items *= t->shape[d];
  for (int64_t item = 0; item < items; item++) {
    const int64_t *x = (const int64_t *)(const void *)t->data;
    int64_t left = item;
    for (int d = lead - 1; d >= 0; d--) {
      x += left % t->shape[d] * t->stride[d];
      left /= t->shape[d];
    }
    for (int64_t i = 0; i < l; i++, pairs += 2 * r) {
      if (heed__is_due(&ctx->pace)) return heed__stopped(ctx, function);
      memset(pairs, 0, (size_t)(2 * r) * sizeof *pairs);
      const heed_status status = read_intervals(ctx, function, t, x + i * t->stride[lead], i, pairs);
      if (status) return status;
    }
  }
  return HEED_OK;
}

heed_status heed_mask_intervals(heed_context *ctx, const heed_tensor *t, heed_mask **out) {
  static const char function[] = "mask.intervals";
  HEED__ENTER(ctx, function, t, out);
  char text[HEED__SHAPE_TEXT];
  int64_t *at = NULL;
  heed_mask *m = NULL;
  heed_status status = check_unset(ctx, function, out);
  if (!status) status = heed__check_dtype(ctx, function, "t", t, HEED_INT64);
  if (!status && (t->ndim < 3 || t->shape[t->ndim - 1] != 2))
    status =
        heed__fail(ctx, HEED_SHAPE,
                   "%s: t is %s; it must be [..., queries, intervals, 2], the first and last key of each "
                   "interval",
                   function, heed__shape_text(text, t->ndim, t->shape));
  if (status) return status;
  const int lead = t->ndim - 3;
  status = new_mask(ctx, function, HEED__MASK_INTERVALS, 3 + lead + t->numel, &m, &at);
  if (status) return status;
  *at++ = lead;
  *at++ = t->shape[lead];
  *at++ = t->shape[lead + 1];
  for (int d = 0; d < lead; d++) *at++ = t->shape[d];
  status = copy_intervals(ctx, function, t, at);
  if (status)
    heed_mask_release(m);
  else
    *out = m;
  return status;
}

/* ---- Both, and one head's ---- */

/* Appends `count` words. Errors: CANCELLED, LIMIT. */
static heed_status append_words(heed_context *ctx, const char *function, int64_t **to, const int64_t *from,
                                int64_t count) {
  enum { PIECE_WORDS = 1 << 14 };
  for (int64_t i = 0; i < count; i += PIECE_WORDS) {
    const int64_t n = heed__min(count - i, PIECE_WORDS);
    if (heed__is_due(&ctx->pace)) return heed__stopped(ctx, function);
    memcpy(*to, from + i, (size_t)n * sizeof *from);
    *to += n;
  }
  return HEED_OK;
}

heed_status heed_mask_both(const heed_mask *a, const heed_mask *b, heed_mask **out) {
  static const char function[] = "mask.both";
  heed_context *ctx = heed_mask_context(a);
  HEED__ENTER(ctx, function, b, out);
  heed_status status = check_unset(ctx, function, out);
  if (status) return status;
  int ndim = 0;
  int64_t shape[HEED_MAX_DIMS], *at = NULL;
  if (!heed__mask_broadcast(a, &ndim, shape) || !heed__mask_broadcast(b, &ndim, shape))
    return heed__fail(ctx, HEED_SHAPE,
                      "%s: the leading sizes of the two masks' intervals differ; they must broadcast",
                      function);
  heed_mask *m = NULL;
  status = new_mask(ctx, function, HEED__MASK_CAUSAL, a->code->numel + b->code->numel - 2, &m, &at);
  if (status) return status;
  at -= 2;
  status = append_words(ctx, function, &at, (const int64_t *)(const void *)a->code->data, a->code->numel);
  if (!status)
    status = append_words(ctx, function, &at, (const int64_t *)(const void *)b->code->data, b->code->numel);
  if (status)
    heed_mask_release(m);
  else
    *out = m;
  return status;
}

heed_status heed__mask_of_head(const heed_mask *m, const char *function, int64_t i, int64_t heads,
                               heed_mask **out) {
  int ndim = 0;
  int64_t shape[HEED_MAX_DIMS], words = -2, *at = NULL;
  (void)heed__mask_broadcast(m, &ndim, shape);
  *out = NULL;
  if (ndim == 0) {
    *out = heed_mask_retain((heed_mask *)(uintptr_t)m);
    return HEED_OK;
  }
  if (shape[ndim - 1] != 1 && shape[ndim - 1] != heads)
    return heed__fail(m->context, HEED_SHAPE,
                      "%s: the intervals of attn_mask are for %lld heads; they must be for %s%lld", function,
                      (long long)shape[ndim - 1], heads == 1 ? "" : "1 or ", (long long)heads);
  const int64_t *code = (const int64_t *)(const void *)m->code->data, *end = code + m->code->numel;
  for (const int64_t *c = code; c < end; c += c[1] + 2) words += c[1] + 2;
  heed_mask *own = NULL;
  heed_status status = new_mask(m->context, function, HEED__MASK_CAUSAL, words, &own, &at);
  if (status) return status;
  int64_t *to = at - 2, *const begin = to;
  for (const int64_t *c = code; c < end && !status; c += c[1] + 2) {
    if (c[0] != HEED__MASK_INTERVALS || c[2] == 0) {
      status = append_words(m->context, function, &to, c, c[1] + 2);
      continue;
    }
    const int64_t lead = c[2], of_all = c[4 + lead], row = c[3] * c[4] * 2, *x = c + 5 + lead;
    const int64_t items = heed__quotient(c[1] - 3 - lead, heed__max(row * of_all, 1));
    *to++ = HEED__MASK_INTERVALS;
    *to++ = 3 + lead - 1 + items * row;
    *to++ = lead - 1;
    *to++ = c[3];
    *to++ = c[4];
    for (int64_t d = 0; d < lead - 1; d++) *to++ = c[5 + d];
    for (int64_t item = 0; item < items && !status; item++)
      status = append_words(m->context, function, &to, x + (item * of_all + (of_all > 1 ? i : 0)) * row, row);
  }
  own->code->shape[0] = own->code->numel = to - begin;
  if (status)
    heed_mask_release(own);
  else
    *out = own;
  return status;
}

/* ---- Sizes and text ---- */

enum { PICTURED = 1 << 16 }; /* widest window or prefix that a picture shows in full */

void heed_mask_sizes(const heed_mask *m, int64_t *l, int64_t *s) {
  int64_t queries = -1, fewest = -1, keys = -1; /* fewest: where no condition has one row for each query */
  if (m != NULL) {
    const int64_t *code = (const int64_t *)(const void *)m->code->data, *end = code + m->code->numel;
    for (const int64_t *c = code; c < end; c += c[1] + 2) {
      if (c[0] == HEED__MASK_DOCUMENTS) {
        const int64_t sum = c[2] > 0 ? c[2 + c[2]] : 0;
        fewest = keys = heed__max(keys, sum);
      }
      if (c[0] == HEED__MASK_TREE) {
        queries = c[2];
        keys = heed__max(keys, queries);
      }
      if (c[0] != HEED__MASK_INTERVALS) continue;
      if (c[3] != 1) queries = c[3];
      fewest = heed__max(fewest, 1);
      for (const int64_t *x = c + 5 + c[2]; x < c + 2 + c[1]; x += 2) keys = heed__max(keys, x[1]);
    }
  }
  if (l != NULL) *l = queries >= 0 ? queries : fewest;
  if (s != NULL) *s = keys;
}

bool heed__mask_picture_call(const heed_mask *m, heed__mask_call *call) {
  int64_t n = 16;
  *call = (heed__mask_call){0};
  heed_mask_sizes(m, &call->l, &call->s);
  const int64_t *code = (const int64_t *)(const void *)m->code->data, *end = code + m->code->numel;
  for (const int64_t *c = code; c < end; c += c[1] + 2) {
    if (c[0] == HEED__MASK_PREFIX) n = heed__max(n, 2 * heed__min(c[2], PICTURED));
    for (int i = 2; c[0] == HEED__MASK_WINDOW && i < 4; i++) n = heed__max(n, 4 * heed__min(c[i], PICTURED));
  }
  if (call->l < 0) call->l = call->s > 0 ? call->s : n;
  if (call->s < 0) call->s = call->l;
  call->offset = heed__max(call->s - call->l, 0); /* as if the keys before were in a cache */
  for (const int64_t *c = code; c < end; c += c[1] + 2) {
    if (c[0] == HEED__MASK_DOCUMENTS && ((c[2] > 0 ? c[2 + c[2]] : 0) != call->s || call->l > call->s))
      return false;
    if (c[0] == HEED__MASK_TREE && c[2] != call->l) return false;
    if (c[0] == HEED__MASK_INTERVALS && c[3] != 1 && c[3] != call->l) return false;
  }
  return true;
}

static void describe_condition(const int64_t *c, char *text, size_t size) {
  int n = 0;
  switch ((heed__mask_kind)c[0]) {
  case HEED__MASK_CAUSAL: snprintf(text, size, "causal()"); break;
  case HEED__MASK_WINDOW:
    n = c[2] >= 0 ? snprintf(text, size, "window(%lld", (long long)c[2]) : snprintf(text, size, "window(nil");
    if (n < 0 || (size_t)n >= size) break;
    if (c[3] >= 0)
      snprintf(text + n, size - (size_t)n, ", %lld)", (long long)c[3]);
    else
      snprintf(text + n, size - (size_t)n, ")");
    break;
  case HEED__MASK_PREFIX: snprintf(text, size, "prefix(%lld)", (long long)c[2]); break;
  case HEED__MASK_DOCUMENTS: snprintf(text, size, "documents(%lld)", (long long)c[2]); break;
  case HEED__MASK_TREE: snprintf(text, size, "tree(%lld)", (long long)c[2]); break;
  case HEED__MASK_INTERVALS:
    snprintf(text, size, "intervals(%lld x %lld)", (long long)c[3], (long long)c[4]);
    break;
  case HEED__MASK_KINDS: break;
  }
}

void heed_mask_describe(const heed_mask *m, char *text, size_t size) {
  if (text == NULL || size == 0) return;
  text[0] = '\0';
  if (m == NULL) return;
  const int64_t *code = (const int64_t *)(const void *)m->code->data, *end = code + m->code->numel;
  for (const int64_t *c = code; c < end; c += c[1] + 2) {
    char one[80];
    describe_condition(c, one, sizeof one);
    const size_t length = strlen(text);
    snprintf(text + length, size - length, "%s%s", c == code ? "" : " & ", one);
  }
}
