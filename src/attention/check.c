/* Checks of attention: shapes, past keys and values, options. */
#include "plan.h"

#include <float.h>
#include <math.h>
#include <string.h>

static int batch_dims_of(const heed__attention_plan *p, const heed_tensor *x) {
  int n = x->ndim - 2 - p->head_dims;
  return n > 0 ? n : 0;
}

static bool has_heads(const heed__attention_plan *p, const heed_tensor *x) {
  return p->head_dims > 0 && x->ndim > 2;
}

static int64_t heads_of(const heed__attention_plan *p, const heed_tensor *x) {
  return has_heads(p, x) ? x->shape[x->ndim - 3] : 1;
}

static int64_t rows_of(const heed_tensor *x) {
  return x->shape[x->ndim - 2];
}
static int64_t columns_of(const heed_tensor *x) {
  return x->shape[x->ndim - 1];
}

/* ---- Shapes ---- */

static heed_status check_operand(heed_context *ctx, const char *function, const char *argument,
                                 const heed_tensor *x) {
  if (x->ndim >= 2) return HEED_OK;
  char text[HEED__SHAPE_TEXT];
  return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s; it must have at least 2 dimensions", function, argument,
                    heed__shape_text(text, x->ndim, x->shape));
}

/* Keys and values may have lower precision; int8 only with scales, which modules supply. */
static heed_status check_stored(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *x, const heed_tensor *scale) {
  heed_status status = check_operand(ctx, function, argument, x);
  if (status) return status;
  if (x->dtype == HEED_BFLOAT16 || x->dtype == HEED_FLOAT16 || (x->dtype == HEED_INT8 && scale))
    return HEED_OK;
  return heed__check_dtype(ctx, function, argument, x, HEED_FLOAT32);
}

static heed_status check_shapes(heed__attention_plan *p) {
  heed_context *ctx = p->context;
  const heed__attention_operands *operands = p->operands;
  const char *function = operands->function;
  const heed_tensor *q = operands->q, *k = operands->k, *v = operands->v;
  heed_status status;
  if ((status = check_operand(ctx, function, "q", q))) return status;
  if ((status = heed__check_dtype(ctx, function, "q", q, HEED_FLOAT32))) return status;
  if ((status = check_stored(ctx, function, "k", k, operands->k_scale))) return status;
  if ((status = check_stored(ctx, function, "v", v, operands->v_scale))) return status;
  p->query_length = rows_of(q);
  p->key_length = rows_of(k);
  p->head_size = columns_of(q);
  p->value_size = columns_of(v);
  p->head_dims = operands->no_heads ? 0 : 1;
  p->query_heads = heads_of(p, q);
  p->key_heads = heads_of(p, k);
  if (columns_of(k) != p->head_size) {
    return heed__fail_pair(ctx, function, "q", q, "k", k, "their last sizes must be equal");
  }
  if (rows_of(v) != p->key_length) {
    return heed__fail_pair(ctx, function, "k", k, "v", v, "their second to last sizes must be equal");
  }
  if (heads_of(p, v) != p->key_heads) {
    return heed__fail_pair(ctx, function, "k", k, "v", v,
                           "their numbers of heads (third to last) must be equal");
  }
  p->group = p->key_heads > 0 ? heed__quotient(p->query_heads, p->key_heads) : 0;
  if (p->query_heads != p->group * p->key_heads) {
    return heed__fail_pair(ctx, function, "q", q, "k", k,
                           "the heads of q (third to last size) must be a multiple of the heads of k");
  }
  int ndim = 0;
  if (!heed__broadcast(&ndim, p->shape, batch_dims_of(p, q), q->shape) ||
      !heed__broadcast(&ndim, p->shape, batch_dims_of(p, k), k->shape)) {
    return heed__fail_pair(ctx, function, "q", q, "k", k, "the sizes of the batch must broadcast");
  }
  if (!heed__broadcast(&ndim, p->shape, batch_dims_of(p, v), v->shape)) {
    return heed__fail_pair(ctx, function, "q", q, "v", v, "the sizes of the batch must broadcast");
  }
  p->batch_ndim = ndim;
  if (has_heads(p, q) || has_heads(p, k) || has_heads(p, v)) p->shape[ndim++] = p->query_heads;
  p->shape[ndim++] = p->query_length;
  p->shape[ndim++] = p->value_size;
  p->ndim = ndim;
  return HEED_OK;
}

/* ---- Past keys and values ---- */

/* past and x joined along their second to last dimension; their other sizes are equal. */
static heed_status join(heed_context *ctx, const char *function, const heed_tensor *past,
                        const heed_tensor *x, heed_tensor **out) {
  const int rows = x->ndim - 2;
  int64_t shape[HEED_MAX_DIMS];
  for (int i = 0; i < x->ndim; i++) shape[i] = x->shape[i];
  shape[rows] =
      past->shape[rows] > INT64_MAX - x->shape[rows] ? INT64_MAX : past->shape[rows] + x->shape[rows];
  heed_status status = heed__tensor_new(ctx, function, x->dtype, x->ndim, shape, out);
  if (status) return status;
  heed_tensor part;
  heed__alias_on_stack(&part, *out);
  heed__narrow_on_stack(&part, rows, 0, past->shape[rows]);
  bool whole = heed__copy_elements(&part, past);
  heed__alias_on_stack(&part, *out);
  heed__narrow_on_stack(&part, rows, past->shape[rows], x->shape[rows]);
  whole = whole && heed__copy_elements(&part, x);
  return whole ? HEED_OK : heed__stopped(ctx, function);
}

static heed_status check_past(heed_context *ctx, const char *function, const char *past_name,
                              const heed_tensor *past, const char *name, const heed_tensor *x) {
  bool same = past->ndim == x->ndim;
  for (int i = 0; same && i < x->ndim; i++) same = i == x->ndim - 2 || past->shape[i] == x->shape[i];
  if (!same) {
    return heed__fail_pair(ctx, function, past_name, past, name, x,
                           "all sizes but the second to last must be equal");
  }
  if (past->dtype == x->dtype) return HEED_OK;
  return heed__fail(ctx, HEED_DTYPE, "%s: %s is %s and %s is %s; they must be of one dtype", function,
                    past_name, heed_dtype_name(past->dtype), name, heed_dtype_name(x->dtype));
}

/* Puts past keys and values before p->k and p->v, and adjusts p->key_length and p->offset. */
static heed_status add_past(heed__attention_plan *p) {
  heed_context *ctx = p->context;
  const heed__attention_operands *operands = p->operands;
  const heed_tensor *past_key = operands->options.past_key, *past_value = operands->options.past_value;
  const char *function = operands->function;
  heed_status status;
  if (!past_key != !past_value) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is given without %s; give both or none", function,
                      past_key ? "past_key" : "past_value", past_key ? "past_value" : "past_key");
  }
  if (operands->options.kv_lengths) {
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: kv_lengths and past_key are given; give only one of them, because lengths count "
                      "the keys of k alone",
                      function);
  }
  if ((status = check_past(ctx, function, "past_key", past_key, "k", operands->k))) return status;
  if ((status = check_past(ctx, function, "past_value", past_value, "v", operands->v))) return status;
  if (rows_of(past_key) != rows_of(past_value)) {
    return heed__fail_pair(ctx, function, "past_key", past_key, "past_value", past_value,
                           "their second to last sizes must be equal");
  }
  p->past = rows_of(past_key);
  if (p->past == 0) return HEED_OK;
  if ((status = join(ctx, function, past_key, operands->k, &p->joined[0]))) return status;
  if ((status = join(ctx, function, past_value, operands->v, &p->joined[1]))) return status;
  p->k = p->joined[0];
  p->v = p->joined[1];
  p->key_length = rows_of(p->k);
  p->offset += p->past;
  return HEED_OK;
}

/* ---- Options ---- */

/* alibi_slopes or sinks: a number for each head of q. */
static heed_status check_heads(heed_context *ctx, const char *function, const heed__attention_plan *p,
                               const char *name, const heed_tensor *x) {
  char text[HEED__SHAPE_TEXT];
  if (!x) return HEED_OK;
  heed_status status = heed__check_dtype(ctx, function, name, x, HEED_FLOAT32);
  if (status) return status;
  if (x->ndim == 1 && x->shape[0] == p->query_heads) return HEED_OK;
  return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s; it must be [%lld], a number for each head of q", function,
                    name, heed__shape_text(text, x->ndim, x->shape), (long long)p->query_heads);
}

heed_status heed__check_window(heed_context *ctx, const char *function, const heed_window *w) {
  if (w->has_left && w->left < 0) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: the window's left is %lld; it must be at least 0", function,
                      (long long)w->left);
  }
  if (w->has_right && w->right < 0) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: the window's right is %lld; it must be at least 0", function,
                      (long long)w->right);
  }
  return HEED_OK;
}

heed_status heed__check_softcap(heed_context *ctx, const char *function, double softcap) {
  if (softcap >= 0 && isfinite(softcap)) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: softcap is %s; it must be above 0, or 0 for none", function,
                    HEED__G(softcap));
}

static heed_status check_options(heed__attention_plan *p) {
  heed_context *ctx = p->context;
  const heed_attention_options *o = &p->operands->options;
  const char *function = p->operands->function;
  heed_status status;
  if (!isfinite(o->scale)) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: scale is %s; it must be finite", function, HEED__G(o->scale));
  }
  if ((status = heed__check_softcap(ctx, function, o->softcap))) return status;
  if ((status = heed__check_window(ctx, function, &o->window))) return status;
  p->window_left = o->window.has_left ? o->window.left : INT64_MAX;
  p->window_right = o->is_causal ? 0 : o->window.has_right ? o->window.right : INT64_MAX;
  if (o->mask) heed__mask_window(o->mask, &p->window_left, &p->window_right);
  if ((status = check_heads(ctx, function, p, "alibi_slopes", o->alibi_slopes))) return status;
  if ((status = check_heads(ctx, function, p, "sinks", o->sinks))) return status;
  return heed__check_probability(ctx, function, "dropout_p", o->dropout_p);
}

heed_status heed__attention_check(heed__attention_plan *p) {
  const heed__attention_operands *operands = p->operands;
  heed_status status;
  p->k = operands->k;
  p->v = operands->v;
  p->offset = operands->offset;
  if ((status = check_shapes(p))) return status;
  if ((status = check_options(p))) return status;
  if (operands->options.past_key || operands->options.past_value) {
    if (operands->lengths) return heed__attention_refuse_packed(p, "past_key");
    if ((status = add_past(p))) return status;
  }
  if ((status = heed__attention_check_items(p))) return status;
  if ((status = heed__attention_check_masks(p))) return status;
  heed__attention_set_strides(p);
  return HEED_OK;
}
