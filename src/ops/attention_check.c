/* Attention: checks of shapes and masks, and where each product's operands lie. Sizes are named as in heed.h.
 */
#include "attention.h"

#include <math.h>

static int batch_dims_of(const heed__attention_problem *p, const heed_tensor *x) {
  int n = x->ndim - 2 - p->head_dims;
  return n > 0 ? n : 0;
}

static bool has_heads(const heed__attention_problem *p, const heed_tensor *x) {
  return p->head_dims > 0 && x->ndim > 2;
}

static int64_t heads_of(const heed__attention_problem *p, const heed_tensor *x) {
  return has_heads(p, x) ? x->shape[x->ndim - 3] : 1;
}

static int64_t rows_of(const heed_tensor *x) {
  return x->shape[x->ndim - 2];
}
static int64_t columns_of(const heed_tensor *x) {
  return x->shape[x->ndim - 1];
}

/* ---- Checks ---- */

static heed_status check_operand(heed_context *ctx, const char *function, const char *argument,
                                 const heed_tensor *x) {
  if (x->ndim < 2) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s; it must have at least 2 dimensions", function, argument,
                      heed__shape_text(text, x->ndim, x->shape));
  }
  return heed__check_dtype(ctx, function, argument, x, HEED_FLOAT32);
}

static heed_status fail_pair(heed_context *ctx, const char *function, const char *a_name,
                             const heed_tensor *a, const char *b_name, const heed_tensor *b,
                             const char *needed) {
  char a_text[HEED__SHAPE_TEXT], b_text[HEED__SHAPE_TEXT];
  return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s and %s is %s; %s", function, a_name,
                    heed__shape_text(a_text, a->ndim, a->shape), b_name,
                    heed__shape_text(b_text, b->ndim, b->shape), needed);
}

static heed_status check_shapes(heed_context *ctx, const heed__attention_call *call,
                                heed__attention_problem *p) {
  const char *function = call->function;
  const heed_tensor *q = call->q, *k = call->k, *v = call->v;
  heed_status status;
  if ((status = check_operand(ctx, function, "q", q))) return status;
  if ((status = check_operand(ctx, function, "k", k))) return status;
  if ((status = check_operand(ctx, function, "v", v))) return status;
  *p = (heed__attention_problem){.l = rows_of(q), .s = rows_of(k), .d = columns_of(q), .dv = columns_of(v)};
  p->head_dims = call->no_heads ? 0 : 1;
  p->hq = heads_of(p, q);
  p->hkv = heads_of(p, k);
  if (columns_of(k) != p->d) {
    return fail_pair(ctx, function, "q", q, "k", k, "their last sizes must be equal");
  }
  if (rows_of(v) != p->s) {
    return fail_pair(ctx, function, "k", k, "v", v, "their second to last sizes must be equal");
  }
  if (heads_of(p, v) != p->hkv) {
    return fail_pair(ctx, function, "k", k, "v", v, "their numbers of heads (third to last) must be equal");
  }
  p->group = p->hkv > 0 ? heed__quotient(p->hq, p->hkv) : 0;
  if (p->hq != p->group * p->hkv) {
    return fail_pair(ctx, function, "q", q, "k", k,
                     "the heads of q (third to last size) must be a multiple of the heads of k");
  }
  int ndim = 0;
  if (!heed__broadcast(&ndim, p->shape, batch_dims_of(p, q), q->shape) ||
      !heed__broadcast(&ndim, p->shape, batch_dims_of(p, k), k->shape)) {
    return fail_pair(ctx, function, "q", q, "k", k, "the sizes of the batch must broadcast");
  }
  if (!heed__broadcast(&ndim, p->shape, batch_dims_of(p, v), v->shape)) {
    return fail_pair(ctx, function, "q", q, "v", v, "the sizes of the batch must broadcast");
  }
  p->batch_ndim = ndim;
  if (has_heads(p, q) || has_heads(p, k) || has_heads(p, v)) p->shape[ndim++] = p->hq;
  p->shape[ndim++] = p->l;
  p->shape[ndim++] = p->dv;
  p->ndim = ndim;
  return HEED_OK;
}

static heed_status check_options(heed_context *ctx, const heed__attention_call *call) {
  const heed_attention_options *o = &call->options;
  if (!isfinite(o->scale)) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: scale is %g; it must be finite", call->function, o->scale);
  }
  return heed__check_probability(ctx, call->function, "dropout_p", o->dropout_p);
}

/* ---- Masks ---- */

/* A mask with fewer keys than there are, in full width: the keys beyond it are hidden. */
static heed_status widen(heed_context *ctx, const char *function, const heed_tensor *mask, int64_t s,
                         heed_tensor **out) {
  int64_t shape[HEED_MAX_DIMS];
  int last = mask->ndim - 1;
  for (int i = 0; i < last; i++) shape[i] = mask->shape[i];
  shape[last] = s;
  heed_scalar hidden = mask->dtype == HEED_BOOL ? heed_boolean(false) : heed_number(-INFINITY);
  heed_status status = heed__full(ctx, function, mask->dtype, mask->ndim, shape, hidden, out);
  if (status) return status;
  heed_tensor part;
  heed__alias_on_stack(&part, *out);
  part.shape[last] = mask->shape[last];
  part.numel = mask->numel;
  heed__copy_elements(&part, mask);
  return HEED_OK;
}

/* Brings the mask to at least two dimensions [l or 1, s or 1], in *view; *made is to be freed. */
static heed_status prepare_mask(heed_context *ctx, const char *function, const heed__attention_problem *p,
                                const heed_tensor *mask, heed_tensor *view, heed_tensor **made) {
  int64_t shape[HEED_MAX_DIMS];
  heed_status status;
  if (mask->dtype == HEED_INT64) {
    return heed__fail(ctx, HEED_DTYPE,
                      "%s: attn_mask is int64; it must be bool (true takes part) or float32 (added)",
                      function);
  }
  for (int i = 0; i < p->ndim; i++) shape[i] = p->shape[i];
  shape[p->ndim - 1] = p->s;
  heed__alias_on_stack(view, mask);
  int last = mask->ndim - 1;
  bool narrow = last >= 0 && mask->shape[last] != 1 && mask->shape[last] < p->s;
  if (narrow) view->shape[last] = p->s;
  if ((status = heed__check_expands(ctx, function, "attn_mask", view, p->ndim, shape))) return status;
  if (narrow) {
    if ((status = widen(ctx, function, mask, p->s, made))) return status;
    heed__alias_on_stack(view, *made);
  }
  while (view->ndim < 2) {
    view->shape[view->ndim] = view->ndim > 0 ? view->shape[0] : 1;
    view->stride[view->ndim] = view->ndim > 0 ? view->stride[0] : 0;
    view->shape[0] = 1;
    view->stride[0] = 0;
    view->ndim++;
  }
  return HEED_OK;
}

static heed_status check_padding(heed_context *ctx, const heed__attention_call *call,
                                 const heed__attention_problem *p) {
  int64_t shape[HEED_MAX_DIMS]; /* [batch..., s] */
  const int ndim = p->batch_ndim + 1;
  for (int i = 0; i < ndim - 1; i++) shape[i] = p->shape[i];
  shape[ndim - 1] = p->s;
  heed_status status =
      heed__check_dtype(ctx, call->function, "key_padding_mask", call->key_padding_mask, HEED_BOOL);
  if (status) return status;
  return heed__check_expands(ctx, call->function, "key_padding_mask", call->key_padding_mask, ndim, shape);
}

/* ---- Where the products lie ---- */

/* Of dimension i; 0 where it has one element for all. */
static ptrdiff_t stride_of(const heed_tensor *x, int i) {
  return i < 0 || x->shape[i] == 1 ? 0 : (ptrdiff_t)x->stride[i];
}

static void set_strides(ptrdiff_t *row, ptrdiff_t *column, const heed_tensor *x) {
  *row = stride_of(x, x->ndim - 2);
  *column = stride_of(x, x->ndim - 1);
}

/* The sizes [batch..., hkv, group], those of 1 left out. */
static void set_outer(heed__attention_problem *p) {
  p->products = 1;
  for (int i = 0; i < p->batch_ndim + 2; i++) {
    const int64_t size = i < p->batch_ndim ? p->shape[i] : i == p->batch_ndim ? p->hkv : p->group;
    p->products *= size;
    if (size != 1) p->outer[p->outer_ndim++] = size;
  }
}

/* The strides of x [batch..., heads, rows, columns] over those sizes; padding has no heads. */
static void set_steps(heed__attention_problem *p, heed__attention_operand operand, const heed_tensor *x) {
  const bool padding = operand == HEED__ATTENTION_PADDING;
  const int batch_ndim = !padding ? batch_dims_of(p, x) : x->ndim > 0 ? x->ndim - 1 : 0;
  const int64_t heads = padding ? 1 : heads_of(p, x);
  const ptrdiff_t head = heads > 1 ? (ptrdiff_t)x->stride[batch_ndim] : 0;
  const bool grouped = heads == p->hkv && p->group > 1; /* keys and values, which a group shares */
  int dim = 0;
  for (int i = 0; i < p->batch_ndim; i++)
    if (p->shape[i] != 1) p->step[operand][dim++] = stride_of(x, i - p->batch_ndim + batch_ndim);
  if (p->hkv != 1) p->step[operand][dim++] = grouped ? head : head * (ptrdiff_t)p->group;
  if (p->group != 1) p->step[operand][dim++] = grouped ? 0 : head;
}

static const float *floats(const heed_tensor *x) {
  return (const float *)(const void *)x->data;
}

/* Fills in what the products share and the pointers of the first. */
static void set_task(heed__attention_problem *p, const heed__attention_call *call) {
  const heed_attention_options *o = &call->options;
  const heed_tensor *q = call->q, *k = call->k, *v = call->v, *padding = call->key_padding_mask;
  heed__attention_task *t = &p->task;
  *t =
      (heed__attention_task){.q = floats(q), .k = floats(k), .v = floats(v), .l = p->l, .s = p->s, .d = p->d};
  t->dv = p->dv;
  t->last = p->l;
  t->scale = (float)(o->scale != 0 ? o->scale : 1 / sqrt(p->d > 0 ? (double)p->d : 1));
  t->causal = o->is_causal;
  set_strides(&t->q_row, &t->q_column, q);
  set_strides(&t->k_row, &t->k_column, k);
  set_strides(&t->v_row, &t->v_column, v);
  set_steps(p, HEED__ATTENTION_Q, q);
  set_steps(p, HEED__ATTENTION_K, k);
  set_steps(p, HEED__ATTENTION_V, v);
  if (o->attn_mask) {
    if (p->mask.dtype == HEED_BOOL) {
      t->visible = (const uint8_t *)p->mask.data;
      set_strides(&t->visible_row, &t->visible_column, &p->mask);
    } else {
      t->bias = floats(&p->mask);
      set_strides(&t->bias_row, &t->bias_column, &p->mask);
    }
    set_steps(p, HEED__ATTENTION_MASK, &p->mask);
  }
  if (padding) {
    t->padding = (const uint8_t *)padding->data;
    t->padding_stride = stride_of(padding, padding->ndim - 1);
    set_steps(p, HEED__ATTENTION_PADDING, padding);
  }
}

void heed__attention_set_out(heed__attention_problem *p, const heed_tensor *out) {
  p->task.out = (float *)(void *)out->data;
  set_strides(&p->task.out_row, &p->task.out_column, out);
  set_steps(p, HEED__ATTENTION_OUT, out);
}

heed_status heed__attention_begin(heed_context *ctx, const heed__attention_call *call,
                                  heed__attention_problem *p) {
  heed_status status;
  if ((status = check_shapes(ctx, call, p))) return status;
  if ((status = check_options(ctx, call))) return status;
  if (call->options.attn_mask) {
    status = prepare_mask(ctx, call->function, p, call->options.attn_mask, &p->mask, &p->made);
    if (status) return status;
  }
  if (call->key_padding_mask && (status = check_padding(ctx, call, p))) return status;
  set_outer(p);
  set_task(p, call);
  return HEED_OK;
}

void heed__attention_move(heed__attention_task *t, const heed__attention_problem *p, int64_t i) {
  ptrdiff_t at[HEED__ATTENTION_OPERANDS] = {0};
  for (int dim = p->outer_ndim - 1; i > 0; dim--) {
    const int64_t rest = heed__quotient(i, p->outer[dim]);
    const ptrdiff_t index = (ptrdiff_t)(i - rest * p->outer[dim]);
    i = rest;
    for (int o = 0; o < HEED__ATTENTION_OPERANDS; o++) at[o] += index * p->step[o][dim];
  }
  t->q = p->task.q + at[HEED__ATTENTION_Q];
  t->k = p->task.k + at[HEED__ATTENTION_K];
  t->v = p->task.v + at[HEED__ATTENTION_V];
  t->out = p->task.out + at[HEED__ATTENTION_OUT];
  if (t->visible) t->visible = p->task.visible + at[HEED__ATTENTION_MASK];
  if (t->bias) t->bias = p->task.bias + at[HEED__ATTENTION_MASK];
  if (t->padding) t->padding = p->task.padding + at[HEED__ATTENTION_PADDING];
}
