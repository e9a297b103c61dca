/* Items of different lengths: those of a batch with a cache, and packed sequences, each of which attends to
 * itself or to one of other tokens. Nothing is padded. The plan has a list of them; a task begins with their
 * rows (strides.c) and is otherwise that of a batch item. */
#include "plan.h"

/* ---- Checks ---- */

/* Options that count keys of a batch. */
heed_status heed__attention_refuse_packed(const heed__attention_plan *p, const char *option) {
  return heed__fail(p->context, HEED_ARGUMENT,
                    "%s: lengths and %s are given; give only one of them, because packed sequences have no "
                    "padding and no past",
                    p->operands->function, option);
}

static heed_status check_packed(const heed__attention_plan *p, heed__lengths *lengths, heed__lengths *keys) {
  heed_context *ctx = p->context;
  const heed__attention_operands *operands = p->operands;
  const char *function = operands->function;
  const heed_tensor *q = operands->q, *k = p->k;
  if (operands->options.kv_lengths) return heed__attention_refuse_packed(p, "kv_lengths");
  if (operands->key_padding_mask) return heed__attention_refuse_packed(p, "key_padding_mask");
  if (p->batch_ndim > 0) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(ctx, HEED_SHAPE, "%s: q is %s and lengths are given; it must have no batch", function,
                      heed__shape_text(text, q->ndim, q->shape));
  }
  heed_status status = heed__read_lengths(ctx, function, "lengths", operands->lengths, INT64_MAX, lengths);
  if (!status) status = heed__check_total(ctx, function, "lengths", lengths, "q", q, q->ndim - 2);
  if (status) return status;
  *keys = *lengths;
  if (!operands->key_lengths)
    return heed__check_total(ctx, function, "lengths", lengths, "k", k, k->ndim - 2);
  status = heed__read_lengths(ctx, function, "key_lengths", operands->key_lengths, INT64_MAX, keys);
  if (!status && keys->count != lengths->count)
    return heed__fail_pair(ctx, function, "lengths", operands->lengths, "key_lengths", operands->key_lengths,
                           "their sizes must be equal");
  if (!status) status = heed__check_total(ctx, function, "key_lengths", keys, "k", k, k->ndim - 2);
  return status;
}

/* Allocates the items and their end. */
static heed_status new_items(heed__attention_plan *p, int64_t count) {
  const size_t bytes = heed__array_bytes((uint64_t)count + 1, sizeof *p->items);
  p->items = heed__allocate(p->context, bytes);
  if (!p->items) return heed__fail_memory(p->context, p->operands->function, bytes);
  p->item_count = count;
  p->items[count] = (heed__attention_item){0};
  return HEED_OK;
}

/* The items of a call whose operands its caller has made: one batch dimension, and the longest item's numbers
 * of queries and keys. */
static heed_status set_items(heed__attention_plan *p) {
  const heed__attention_operands *operands = p->operands;
  const heed_status status = new_items(p, operands->item_count);
  if (status) return status;
  p->query_length = p->key_length = 0;
  for (int64_t i = 0; i < operands->item_count; i++) {
    p->items[i] = operands->items[i];
    p->query_length = heed__max(p->query_length, operands->items[i].query_length);
    p->key_length = heed__max(p->key_length, operands->items[i].key_length);
  }
  p->most_queries = p->query_length;
  p->batch_ndim = 1;
  p->ndim = 4;
  p->shape[0] = operands->item_count;
  p->shape[1] = p->query_heads;
  p->shape[2] = p->query_length;
  p->shape[3] = p->value_size;
  return HEED_OK;
}

heed_status heed__attention_check_items(heed__attention_plan *p) {
  const heed__attention_operands *operands = p->operands;
  heed__lengths lengths, keys;
  p->most_queries = p->query_length;
  if (operands->items) return set_items(p);
  if (!operands->lengths) return HEED_OK;
  heed_status status = check_packed(p, &lengths, &keys);
  if (!status) status = new_items(p, lengths.count);
  if (status) return status;
  p->packed = true;
  heed__attention_item next = {0};
  for (int64_t i = 0; i < p->item_count; i++) {
    next.query_length = heed__int64_at(operands->lengths, i);
    next.key_length = operands->key_lengths ? heed__int64_at(operands->key_lengths, i) : next.query_length;
    p->items[i] = next;
    next.first_query += next.query_length;
    next.first_key += next.key_length;
  }
  next.query_length = next.key_length = 0;
  p->items[p->item_count] = next;
  p->key_length = keys.longest;
  p->most_queries = lengths.longest;
  return HEED_OK;
}

/* ---- Units ---- */

int64_t heed__attention_number_units(heed__attention_plan *p, int64_t rows) {
  int64_t units = 0;
  for (int64_t i = 0; i <= p->item_count; i++) {
    p->items[i].unit = units;
    units += p->query_heads * heed__parts(p->items[i].query_length, rows);
  }
  return units;
}

int64_t heed__attention_item_of(const heed__attention_plan *p, int64_t unit) {
  int64_t low = 0, high = p->item_count; /* the last item whose first unit is at most `unit` */
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (p->items[middle].unit <= unit)
      low = middle;
    else
      high = middle;
  }
  return low;
}

void heed__attention_in_all_rows(heed__attention_task *t, const heed__attention_plan *p, int64_t head) {
  const int64_t rows = p->items[heed__quotient(head, p->query_heads)].first_query;
  t->q -= (ptrdiff_t)rows * t->q_row;
  if (t->visible) t->visible -= (ptrdiff_t)rows * t->visible_row;
  if (t->bias) t->bias -= (ptrdiff_t)rows * t->bias_row;
  t->first += rows;
  t->last += rows;
  t->query_length = p->query_length;
  t->window_begin -= rows;
  t->window_end -= rows;
  t->offset -= rows;
}
