/* Attention: checks of shapes and masks, and one kernel task for each head of each batch item. The arithmetic
 * is in the kernel. Sizes are named as in heed.h. */
#include "ops.h"

#include <math.h>

/* What the shapes of a call come to. */
typedef struct problem {
  int ndim; /* of the result [batch..., hq, l, dv]; 2 without heads */
  int64_t shape[HEED_MAX_DIMS];
  int head_dims;  /* 1, or 0 if the leading dimensions are all batch */
  int outer_ndim; /* [batch..., hkv, hq / hkv]: one product each */
  int64_t outer[HEED_MAX_DIMS];
  int64_t hq, hkv, l, s, d, dv;
} problem;

static int batch_dims_of(const problem *p, const heed_tensor *x) {
  int n = x->ndim - 2 - p->head_dims;
  return n > 0 ? n : 0;
}

static bool has_heads(const problem *p, const heed_tensor *x) {
  return p->head_dims > 0 && x->ndim > 2;
}

static int64_t heads_of(const problem *p, const heed_tensor *x) {
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

static heed_status check_shapes(heed_context *ctx, const heed__attention_call *call, problem *p) {
  const char *function = call->function;
  const heed_tensor *q = call->q, *k = call->k, *v = call->v;
  heed_status status;
  if ((status = check_operand(ctx, function, "q", q))) return status;
  if ((status = check_operand(ctx, function, "k", k))) return status;
  if ((status = check_operand(ctx, function, "v", v))) return status;
  *p = (problem){.l = rows_of(q), .s = rows_of(k), .d = columns_of(q), .dv = columns_of(v)};
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
  if (p->hkv == 0 ? p->hq != 0 : p->hq % p->hkv != 0) {
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
  for (int i = 0; i < ndim; i++) p->outer[i] = p->shape[i];
  p->outer_ndim = ndim + 2;
  p->outer[ndim] = p->hkv;
  p->outer[ndim + 1] = p->hkv > 0 ? p->hq / p->hkv : 0;
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
static heed_status prepare_mask(heed_context *ctx, const char *function, const problem *p,
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

static heed_status check_padding(heed_context *ctx, const heed__attention_call *call, const problem *p) {
  int64_t shape[HEED_MAX_DIMS]; /* [batch..., s] */
  int ndim = p->outer_ndim - 1;
  for (int i = 0; i < ndim - 1; i++) shape[i] = p->outer[i];
  shape[ndim - 1] = p->s;
  heed_status status =
      heed__check_dtype(ctx, call->function, "key_padding_mask", call->key_padding_mask, HEED_BOOL);
  if (status) return status;
  return heed__check_expands(ctx, call->function, "key_padding_mask", call->key_padding_mask, ndim, shape);
}

/* ---- Division into tasks ---- */

/* The dimensions of x [batch..., heads, rows, columns] that choose a product, as
 * [batch..., hkv, heads / hkv]. */
static void outer_of(heed_tensor *view, const heed_tensor *x, const problem *p) {
  heed__alias_on_stack(view, x);
  int n = batch_dims_of(p, x);
  int64_t heads = heads_of(p, x), stride = has_heads(p, x) ? x->stride[n] : 0;
  view->shape[n] = heads == 1 ? 1 : p->hkv;
  view->shape[n + 1] = heads / view->shape[n];
  view->stride[n] = stride * view->shape[n + 1];
  view->stride[n + 1] = stride;
  view->ndim = n + 2;
}

/* The same of padding [batch..., s]. */
static void outer_of_padding(heed_tensor *view, const heed_tensor *x) {
  heed__alias_on_stack(view, x);
  int n = x->ndim > 0 ? x->ndim - 1 : 0;
  view->shape[n] = view->shape[n + 1] = 1;
  view->stride[n] = view->stride[n + 1] = 0;
  view->ndim = n + 2;
}

/* Of dimension i; 0 where it has one element for all. */
static ptrdiff_t stride_of(const heed_tensor *x, int i) {
  return i < 0 || x->shape[i] == 1 ? 0 : (ptrdiff_t)x->stride[i];
}

static void set_strides(ptrdiff_t *row, ptrdiff_t *column, const heed_tensor *x) {
  *row = stride_of(x, x->ndim - 2);
  *column = stride_of(x, x->ndim - 1);
}

enum { Q, K, V, OUT, MASK, PADDING, OPERANDS };

/* Runs `task`, which has all that the products share, on each of them in row-major order. */
static void run(heed_context *ctx, const problem *p, const heed_tensor *const operand[OPERANDS],
                heed__attention_task *task) {
  const heed__kernels *kernels = heed__kernels_of(ctx);
  heed_tensor outer[OPERANDS];
  const heed_tensor *walked[OPERANDS];
  heed__walk w;
  for (int i = 0; i < OPERANDS; i++) {
    /* What is not there is walked like q, and not used. */
    const heed_tensor *x = operand[i] ? operand[i] : operand[Q];
    if (i == PADDING && operand[i]) {
      outer_of_padding(&outer[i], x);
    } else {
      outer_of(&outer[i], x, p);
    }
    walked[i] = &outer[i];
  }
  bool additive = operand[MASK] && operand[MASK]->dtype == HEED_FLOAT32;
  for (bool more = heed__walk_begin(&w, p->outer_ndim, p->outer, OPERANDS, walked); more;
       more = heed__walk_next(&w)) {
    for (int64_t i = 0; i < w.count; i++) {
      task->q = (const float *)(const void *)w.data[Q] + i * w.stride[Q];
      task->k = (const float *)(const void *)w.data[K] + i * w.stride[K];
      task->v = (const float *)(const void *)w.data[V] + i * w.stride[V];
      task->out = (float *)(void *)w.data[OUT] + i * w.stride[OUT];
      if (additive) {
        task->bias = (const float *)(const void *)w.data[MASK] + i * w.stride[MASK];
      } else if (operand[MASK]) {
        task->visible = (const uint8_t *)w.data[MASK] + i * w.stride[MASK];
      }
      if (operand[PADDING]) task->padding = (const uint8_t *)w.data[PADDING] + i * w.stride[PADDING];
      kernels->attention(task);
      if (task->scores) task->scores += p->l * p->s;
      if (task->weights) task->weights += p->l * p->s;
      if (task->dropped_weights) task->dropped_weights += p->l * p->s;
    }
  }
}

static float *data_of(const heed_tensor *x) {
  return x ? (float *)(void *)x->data : NULL;
}

heed_status heed__attention(heed_context *ctx, const heed__attention_call *call, heed_tensor **out) {
  const heed_tensor *q = call->q, *k = call->k, *v = call->v;
  const heed_attention_options *o = &call->options;
  heed_tensor mask, *made = NULL;
  heed__result result = {0};
  heed__dropout dropout;
  float on_stack[2048], *row = on_stack, *allocated = NULL;
  problem p;
  heed_status status;
  if ((status = check_shapes(ctx, call, &p))) return status;
  if ((status = check_options(ctx, call))) return status;
  if (o->attn_mask && (status = prepare_mask(ctx, call->function, &p, o->attn_mask, &mask, &made))) goto done;
  if (call->key_padding_mask && (status = check_padding(ctx, call, &p))) goto done;
  status = heed__result_begin(ctx, call->function, &result, out, HEED_FLOAT32, p.ndim, p.shape, false, 5,
                              (const heed_tensor *const[]){q, k, v, o->attn_mask, call->key_padding_mask});
  if (status) goto done;
  if (p.s > (int64_t)(sizeof on_stack / sizeof *on_stack)) {
    row = allocated = heed__allocate(ctx, (size_t)p.s * sizeof *row);
    if (!row) {
      status = heed__fail_memory(ctx, call->function, (size_t)p.s * sizeof *row);
      goto end;
    }
  }

  if (heed__numel(p.outer_ndim, p.outer, 1) == 0 || p.l == 0) goto end;
  bool drops = o->dropout_p > 0 && p.s > 0;
  if (drops) heed__dropout_begin(&dropout, ctx, o->generator, o->dropout_p);
  const heed_tensor *to = result.tensor, *padding = call->key_padding_mask;
  const heed_tensor *seen = o->attn_mask ? &mask : NULL;
  heed__attention_task task = {
      .l = p.l,
      .s = p.s,
      .d = p.d,
      .dv = p.dv,
      .last = p.l,
      .scale = (float)(o->scale != 0 ? o->scale : 1 / sqrt(p.d > 0 ? (double)p.d : 1)),
      .causal = o->is_causal,
      .dropout = drops ? &dropout : NULL,
      .row = row,
      .scores = data_of(call->scores),
      .weights = data_of(call->weights),
      .dropped_weights = data_of(call->dropped_weights),
  };
  set_strides(&task.q_row, &task.q_column, q);
  set_strides(&task.k_row, &task.k_column, k);
  set_strides(&task.v_row, &task.v_column, v);
  set_strides(&task.out_row, &task.out_column, to);
  if (seen && seen->dtype == HEED_BOOL) set_strides(&task.visible_row, &task.visible_column, seen);
  if (seen && seen->dtype == HEED_FLOAT32) set_strides(&task.bias_row, &task.bias_column, seen);
  if (padding) task.padding_stride = stride_of(padding, padding->ndim - 1);
  run(ctx, &p, (const heed_tensor *const[OPERANDS]){q, k, v, to, seen, padding}, &task);
end:
  status = heed__result_end(ctx, &result, status);
done:
  heed__release(ctx, allocated);
  heed_tensor_free(made);
  return status;
}

heed_status heed_scaled_dot_product_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                              const heed_tensor *v, const heed_attention_options *options,
                                              heed_tensor **out) {
  heed__attention_call call = {.function = "scaled_dot_product_attention", .q = q, .k = k, .v = v};
  if (options) call.options = *options;
  return heed__attention(ctx, &call, out);
}
