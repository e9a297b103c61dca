/* The strides of attention's operands over heads, and the keys that a row sees by its position. */
#include "plan.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- Strides ---- */

/* Stride of dimension i; 0 if it is broadcast. */
static ptrdiff_t stride_of(const heed_tensor *x, int i) {
  return i < 0 || x->shape[i] == 1 ? 0 : (ptrdiff_t)x->stride[i];
}

static void set_strides(ptrdiff_t *row, ptrdiff_t *column, const heed_tensor *x) {
  *row = stride_of(x, x->ndim - 2);
  *column = stride_of(x, x->ndim - 1);
}

/* Sets p->outer: the sizes [batch..., hkv, group] except those of 1. */
static void set_outer(heed__attention_plan *p) {
  p->heads = 1;
  for (int i = 0; i < p->batch_ndim + 2; i++) {
    const int64_t size = i < p->batch_ndim ? p->shape[i] : i == p->batch_ndim ? p->key_heads : p->group;
    p->heads *= size;
    if (size != 1) p->outer[p->outer_ndim++] = size;
  }
  if (p->packed) p->heads *= p->item_count;
}

/* Sets the strides of x over p->outer. x is [batch..., heads, inner...] with `inner` inner dimensions, or
 * [batch..., inner...] unless has_heads. */
static void set_steps(heed__attention_plan *p, heed__attention_operand operand, const heed_tensor *x,
                      bool has_heads, int inner) {
  const bool headed = has_heads && p->head_dims > 0 && x->ndim > inner;
  const int batch_ndim = x->ndim - inner - headed;
  const int64_t heads = headed ? x->shape[batch_ndim] : 1;
  const ptrdiff_t head = heads > 1 ? (ptrdiff_t)x->stride[batch_ndim] : 0;
  const bool grouped = heads == p->key_heads && p->group > 1; /* a group shares keys and values */
  int dim = 0;
  for (int i = 0; i < p->batch_ndim; i++)
    if (p->shape[i] != 1) p->step[operand][dim++] = stride_of(x, i - p->batch_ndim + batch_ndim);
  if (p->key_heads != 1) p->step[operand][dim++] = grouped ? head : head * (ptrdiff_t)p->group;
  if (p->group != 1) p->step[operand][dim++] = grouped ? 0 : head;
}

/* ---- Positions ---- */

/* Sets the window of the rows of a head with that number of valid keys. Bounds are clamped to l and s, so
 * that nothing overflows. */
static void set_window(heed__attention_task *t, const heed__attention_plan *p, int64_t keys, int64_t offset) {
  t->valid_keys = keys;
  t->offset = offset;
  t->window_begin = p->window_left >= offset + t->query_length
                        ? -t->query_length
                        : heed__min(offset - p->window_left, t->key_length);
  t->window_end = p->window_right >= t->key_length - offset
                      ? t->key_length
                      : heed__max(offset + p->window_right + 1, -t->query_length);
}

/* Keys from the first one that the first row sees to the last one that the last row sees; with lengths or
 * items, an upper bound. */
static int64_t span_of(const heed__attention_plan *p) {
  const heed__attention_task *t = &p->task;
  if (p->query_length == 0) return 0;
  if (!p->lengths && !p->items)
    return heed__max(
        heed__min(p->key_length, p->query_length - 1 + t->window_end) - heed__max(t->window_begin, 0), 0);
  if (p->window_left >= p->key_length || p->window_right >= p->key_length) return p->key_length;
  return heed__min(p->key_length,
                   heed__min(p->window_left + 1 + p->window_right, p->key_length) + p->query_length - 1);
}

/* ---- The task ---- */

static const float *floats(const heed_tensor *x) {
  return (const float *)(const void *)x->data;
}

/* As float, clamped so that 1 / c is a normal number; above 2^120 it would not change any score. */
static float cap_of(double softcap) {
  if (softcap == 0) return 0.0f;
  return softcap < (double)FLT_MIN ? FLT_MIN : softcap > 0x1p120 ? 0x1p120f : (float)softcap;
}

static void set_mask(heed__attention_plan *p) {
  heed__attention_task *t = &p->task;
  if (p->mask.dtype == HEED_BOOL) {
    t->visible = (const uint8_t *)p->mask.data;
    set_strides(&t->visible_row, &t->visible_column, &p->mask);
  } else {
    t->bias = floats(&p->mask);
    set_strides(&t->bias_row, &t->bias_column, &p->mask);
  }
  set_steps(p, HEED__ATTENTION_MASK, &p->mask, true, 2);
}

static void set_scales(heed__attention_plan *p, const heed_tensor *k_scale, const heed_tensor *v_scale) {
  heed__attention_task *t = &p->task;
  if (k_scale && t->k_dtype == HEED_INT8) {
    t->k_scale = floats(k_scale);
    t->k_scale_row = stride_of(k_scale, k_scale->ndim - 1);
    set_steps(p, HEED__ATTENTION_K_SCALE, k_scale, true, 1);
  }
  if (v_scale && t->v_dtype == HEED_INT8) {
    t->v_scale = floats(v_scale);
    t->v_scale_row = stride_of(v_scale, v_scale->ndim - 1);
    set_steps(p, HEED__ATTENTION_V_SCALE, v_scale, true, 1);
  }
}

static const float *per_head(const heed_tensor *x, ptrdiff_t *stride) {
  if (!x) return NULL;
  *stride = stride_of(x, 0);
  return floats(x);
}

void heed__attention_set_strides(heed__attention_plan *p) {
  const heed__attention_operands *operands = p->operands;
  const heed_attention_options *o = &operands->options;
  const heed_tensor *padding = operands->key_padding_mask;
  heed__attention_task *t = &p->task;
  p->plain = !o->attn_mask && !p->intervals && !padding && !o->kv_lengths && !operands->k_scale &&
             !operands->v_scale && !o->alibi_slopes && !o->sinks;
  set_outer(p);
  if (!p->plain) memset(p->step, 0, sizeof p->step);
  t->q = floats(operands->q);
  t->k = p->k->data;
  t->v = p->v->data;
  t->k_dtype = p->k->dtype;
  t->v_dtype = p->v->dtype;
  t->query_length = t->last = p->query_length;
  t->key_length = p->key_length;
  t->head_size = p->head_size;
  t->value_size = p->value_size;
  t->scale = (float)(o->scale != 0 ? o->scale : 1 / sqrt(p->head_size > 0 ? (double)p->head_size : 1));
  t->softcap = cap_of(o->softcap);
  set_strides(&t->q_row, &t->q_column, operands->q);
  set_strides(&t->k_row, &t->k_column, p->k);
  set_strides(&t->v_row, &t->v_column, p->v);
  set_steps(p, HEED__ATTENTION_Q, operands->q, true, 2);
  set_steps(p, HEED__ATTENTION_K, p->k, true, 2);
  set_steps(p, HEED__ATTENTION_V, p->v, true, 2);
  if (o->attn_mask) set_mask(p);
  if (p->intervals) heed__attention_set_intervals(p);
  if (padding) {
    t->padding = (const uint8_t *)padding->data;
    t->padding_stride = stride_of(padding, padding->ndim - 1);
    set_steps(p, HEED__ATTENTION_PADDING, padding, false, padding->ndim > 0);
  }
  if (o->kv_lengths) {
    p->lengths = (const int64_t *)(const void *)o->kv_lengths->data;
    set_steps(p, HEED__ATTENTION_LENGTHS, o->kv_lengths, false, 0);
  }
  set_scales(p, operands->k_scale, operands->v_scale);
  p->slopes = per_head(o->alibi_slopes, &p->slope_stride);
  p->sinks = per_head(o->sinks, &p->sink_stride);
  t->has_sink = p->sinks != NULL;
  set_window(t, p, p->key_length, p->offset);
  p->span = span_of(p);
}

void heed__attention_set_intervals(heed__attention_plan *p) {
  ptrdiff_t column;
  p->task.intervals = p->intervals;
  p->task.interval_count = p->interval_count;
  set_strides(&p->task.interval_row, &column, &p->interval_header);
  set_steps(p, HEED__ATTENTION_ROWS, &p->interval_header, true, 2);
}

void heed__attention_set_out(heed__attention_plan *p, const heed_tensor *out) {
  p->task.out = (float *)(void *)out->data;
  set_strides(&p->task.out_row, &p->task.out_column, out);
  set_steps(p, HEED__ATTENTION_OUT, out, true, 2);
}

/* ---- From head to head ---- */

static ptrdiff_t bytes_of(heed_dtype dtype, ptrdiff_t elements) {
  return elements * (ptrdiff_t)heed__element_bytes(dtype);
}

/* Moves the operands that only some calls have. */
static void move_others(heed__attention_task *t, const heed__attention_plan *p, int64_t head,
                        const ptrdiff_t at[HEED__ATTENTION_STRIDED]) {
  const int64_t head_of_item = head - heed__quotient(head, p->query_heads) * p->query_heads;
  if (t->visible) t->visible = p->task.visible + at[HEED__ATTENTION_MASK];
  if (t->bias) t->bias = p->task.bias + at[HEED__ATTENTION_MASK];
  if (t->intervals) t->intervals = p->task.intervals + at[HEED__ATTENTION_ROWS];
  if (t->padding) t->padding = p->task.padding + at[HEED__ATTENTION_PADDING];
  if (t->k_scale) t->k_scale = p->task.k_scale + at[HEED__ATTENTION_K_SCALE];
  if (t->v_scale) t->v_scale = p->task.v_scale + at[HEED__ATTENTION_V_SCALE];
  if (p->slopes) t->slope = p->slopes[head_of_item * p->slope_stride];
  if (p->sinks) t->sink = p->sinks[head_of_item * p->sink_stride];
  if (p->lengths) {
    /* Clamped again, in case the host has changed the lengths since the check. */
    const int64_t keys = heed__max(heed__min(p->lengths[at[HEED__ATTENTION_LENGTHS]], p->key_length), 0);
    set_window(t, p, keys, p->offset + (p->operands->same_tokens ? 0 : keys - p->query_length));
  }
}

/* Moves the task of a head to the rows of its item. */
static void move_to_item(heed__attention_task *t, const heed__attention_plan *p,
                         const heed__attention_item *item) {
  const ptrdiff_t query = (ptrdiff_t)item->first_query, key = (ptrdiff_t)item->first_key;
  const ptrdiff_t row = p->packed ? query : 0, skipped = (ptrdiff_t)item->skipped;
  const int64_t l = item->query_length, s = item->key_length;
  t->query_length = l;
  t->key_length = s;
  t->map_spare = p->key_length - s;
  t->q += query * t->q_row;
  t->k = (const char *)t->k + bytes_of(t->k_dtype, key * t->k_row);
  t->v = (const char *)t->v + bytes_of(t->v_dtype, key * t->v_row);
  t->out += query * t->out_row;
  if (t->k_scale) t->k_scale += key * t->k_scale_row;
  if (t->v_scale) t->v_scale += key * t->v_scale_row;
  if (t->visible) t->visible += row * t->visible_row + skipped * t->visible_column;
  if (t->bias) t->bias += row * t->bias_row + skipped * t->bias_column;
  if (t->intervals) t->intervals += row * t->interval_row;
  if (t->padding) t->padding += skipped * t->padding_stride;
  set_window(t, p, s, heed__attention_offset_of(p, item));
}

void heed__attention_move(heed__attention_task *t, const heed__attention_plan *p, int64_t head) {
  const int operands = p->plain ? HEED__ATTENTION_MASK : HEED__ATTENTION_STRIDED;
  ptrdiff_t at[HEED__ATTENTION_STRIDED] = {0};
  const int64_t item = p->items ? heed__quotient(head, p->query_heads) : 0;
  int64_t left = p->packed ? head - item * p->query_heads : head;
  for (int dim = p->outer_ndim - 1; left > 0; dim--) {
    const int64_t rest = heed__quotient(left, p->outer[dim]);
    const ptrdiff_t index = (ptrdiff_t)(left - rest * p->outer[dim]);
    left = rest;
    for (int o = 0; o < HEED__ATTENTION_MASK; o++) at[o] += index * p->step[o][dim];
    for (int o = HEED__ATTENTION_MASK; o < operands; o++) at[o] += index * p->step[o][dim];
  }
  t->q = p->task.q + at[HEED__ATTENTION_Q];
  t->k = (const char *)p->task.k + bytes_of(t->k_dtype, at[HEED__ATTENTION_K]);
  t->v = (const char *)p->task.v + bytes_of(t->v_dtype, at[HEED__ATTENTION_V]);
  t->out = p->task.out + at[HEED__ATTENTION_OUT];
  const int64_t row = heed__attention_first_row(p, head);
  if (p->lse) t->lse = p->lse + row;
  if (p->stats) t->stats = p->stats + row * 2;
  if (!p->plain) move_others(t, p, head, at);
  if (p->items) move_to_item(t, p, &p->items[item]);
}
