/* Checks of attention: masks, padding and lengths. */
#include "plan.h"

#include <math.h>

heed_status heed__widen_mask(heed_context *ctx, const char *function, const heed_tensor *mask, int64_t s,
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
  heed__narrow_on_stack(&part, last, 0, mask->shape[last]);
  return heed__copy_elements(&part, mask) ? HEED_OK : heed__stopped(ctx, function);
}

/* The mask as *view with at least two dimensions, [l or 1, s or 1]; the caller frees *made. */
static heed_status prepare_mask(heed_context *ctx, const char *function, const heed__attention_plan *p,
                                const heed_tensor *mask, heed_tensor *view, heed_tensor **made) {
  int64_t shape[HEED_MAX_DIMS];
  heed_status status;
  if (mask->dtype != HEED_BOOL && mask->dtype != HEED_FLOAT32) {
    return heed__fail(ctx, HEED_DTYPE,
                      "%s: attn_mask is %s; it must be bool (true is visible) or float32 (added)", function,
                      heed_dtype_name(mask->dtype));
  }
  for (int i = 0; i < p->ndim; i++) shape[i] = p->shape[i];
  shape[p->ndim - 1] = p->key_length;
  heed__alias_on_stack(view, mask);
  int last = mask->ndim - 1;
  const bool is_short = last >= 0 && mask->shape[last] != 1 && mask->shape[last] < p->key_length;
  if (is_short) view->shape[last] = p->key_length;
  if ((status = heed__check_expands(ctx, function, "attn_mask", view, p->ndim, shape))) return status;
  if (is_short) {
    if ((status = heed__widen_mask(ctx, function, mask, p->key_length, made))) return status;
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

static heed_status check_padding(const heed__attention_plan *p) {
  const heed__attention_operands *operands = p->operands;
  int64_t shape[HEED_MAX_DIMS + 1]; /* [batch..., s] */
  const int ndim = p->batch_ndim + 1;
  for (int i = 0; i < ndim - 1; i++) shape[i] = p->shape[i];
  shape[ndim - 1] = p->key_length;
  heed_status status = heed__check_dtype(p->context, operands->function, "key_padding_mask",
                                         operands->key_padding_mask, HEED_BOOL);
  if (status) return status;
  return heed__check_expands(p->context, operands->function, "key_padding_mask", operands->key_padding_mask,
                             ndim, shape);
}

/* Each length must be from 0 to s. Without a batch, [1] is accepted, too. */
static heed_status check_lengths(const heed__attention_plan *p) {
  heed_context *ctx = p->context;
  const char *function = p->operands->function;
  const heed_tensor *lengths = p->operands->options.kv_lengths;
  heed_status status = heed__check_dtype(ctx, function, "kv_lengths", lengths, HEED_INT64);
  if (status) return status;
  if (p->batch_ndim > 0 || lengths->ndim != 1 || lengths->shape[0] != 1) {
    status = heed__check_expands(ctx, function, "kv_lengths", lengths, p->batch_ndim, p->shape);
    if (status) return status;
  }
  heed__walk w;
  int64_t item = 0;
  for (bool more = heed__walk_begin(&w, lengths->ndim, lengths->shape, 1, &lengths); more;
       more = heed__walk_next(&w)) {
    for (int64_t i = 0; i < w.count; i++) {
      const int64_t length = ((const int64_t *)(const void *)w.data[0])[i * w.stride[0]];
      item++;
      if (length >= 0 && length <= p->key_length) continue;
      return heed__fail(
          ctx, HEED_INDEX,
          "%s: kv_lengths of batch item %lld is %lld; it must be from 0 to %lld, the number of keys",
          function, (long long)item, (long long)length, (long long)p->key_length);
    }
  }
  return HEED_OK;
}

heed_status heed__attention_check_masks(heed__attention_plan *p) {
  const heed__attention_operands *operands = p->operands;
  const heed_attention_options *o = &operands->options;
  heed_status status = HEED_OK;
  if (o->attn_mask)
    status = prepare_mask(p->context, operands->function, p, o->attn_mask, &p->mask, &p->widened_mask);
  if (!status && operands->key_padding_mask) status = check_padding(p);
  if (!status && o->kv_lengths) status = check_lengths(p);
  if (!status && o->mask) status = heed__attention_add_mask(p);
  return status;
}
