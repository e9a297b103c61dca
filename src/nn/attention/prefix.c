/* Attention to a beginning that all batch items share: its keys are read once for the queries of the whole
 * batch, in a pass of its own, and its output is merged with that of each item's other keys by the log-sums
 * of both (arXiv:2402.05099). */
#include <math.h>

#include "stages.h"

bool heed__stages_keep_apart(const heed__attention_stages *p) {
  const heed__attention_module *a = (const heed__attention_module *)p->m;
  return p->options.cache->prefix > 0 && !p->options.cache->int4 && p->options.attn_mask == NULL &&
         p->options.mask == NULL && p->options.key_padding_mask == NULL && p->taps == NULL &&
         p->dropout == 0 && !a->alibi;
}

/* A view of a part of the prefix without its batch dimension. */
static const heed_tensor *view_prefix(const heed__attention_stages *p, heed__kv_part part,
                                      heed_tensor *view) {
  const heed_tensor *x = p->options.cache->prefix_part[part];
  if (x == NULL) return NULL;
  heed__alias_on_stack(view, x);
  view->ndim--;
  for (int i = 0; i < view->ndim; i++) {
    view->shape[i] = x->shape[i + 1];
    view->stride[i] = x->stride[i + 1];
  }
  return view;
}

heed_status heed__stages_prefix_begin(heed__attention_stages *p) {
  heed__attention_operands *own = &p->operands;
  heed__stages_prefix *x = &p->prefix;
  *x = (heed__stages_prefix){.operands = {.function = own->function, .q = own->q, .found = &x->found}};
  x->operands.options = (heed_attention_options){
      .size = sizeof x->operands.options, .scale = own->options.scale, .softcap = own->options.softcap};
  x->operands.k = view_prefix(p, HEED__KV_KEYS, &x->view[0]);
  x->operands.v = view_prefix(p, HEED__KV_VALUES, &x->view[1]);
  x->operands.k_scale = view_prefix(p, HEED__KV_KEY_SCALES, &x->view[2]);
  x->operands.v_scale = view_prefix(p, HEED__KV_VALUE_SCALES, &x->view[3]);
  x->operands.taps = own->taps = 1u << HEED__TAP_lse;
  x->found.size = x->own_found.size = sizeof x->found;
  own->found = &x->own_found;
  heed_status status = heed__attention_plan_begin(
      p->m->context, &p->plan, own, p->scratch != NULL ? &p->scratch->attention : NULL, &p->into_view);
  if (status != HEED_OK) return status;
  status = heed__attention_plan_begin(p->m->context, &x->plan, &x->operands, NULL, &x->out);
  return status == HEED_OK ? HEED_OK : heed__attention_plan_end(&p->plan, status);
}

/* ---- Merging ---- */

/* Rows of one head of one item: out = (out · e^lse + other · e^other_lse) / (e^lse + e^other_lse). */
static void merge_head(const heed__attention_stages *p, int64_t item, int64_t head) {
  const heed__stages_prefix *x = &p->prefix;
  const heed__attention_item *rows = &p->operands.items[item];
  const heed_tensor *out = &p->packed[1], *other = x->out;
  const heed_tensor *own_lse = x->own_found.lse, *other_lse = x->found.lse;
  const int64_t d = out->shape[2], total = out->shape[1], heads = out->shape[0];
  const float *lse =
      (const float *)(const void *)own_lse->data + (item * heads + head) * own_lse->shape[own_lse->ndim - 1];
  const float *lse_of_other = (const float *)(const void *)other_lse->data + head * total + rows->first_query;
  for (int64_t r = 0; r < rows->query_length; r++) {
    const int64_t row = rows->first_query + r;
    float *to = (float *)(void *)out->data + head * out->stride[0] + row * out->stride[1];
    const float *from =
        (const float *)(const void *)other->data + head * other->stride[0] + row * other->stride[1];
    const float most = fmaxf(lse[r], lse_of_other[r]);
    const float a = expf(lse[r] - most), b = expf(lse_of_other[r] - most), sum = a + b;
    for (int64_t c = 0; c < d; c++) to[c] = (a * to[c] + b * from[c * other->stride[2]]) / sum;
  }
}

static bool run_merge(heed__attention_stages *p) {
  const int64_t heads = p->packed[1].shape[0];
  while (p->prefix.merged < p->operands.item_count * heads) {
    merge_head(p, heed__quotient(p->prefix.merged, heads), p->prefix.merged % heads);
    if (++p->prefix.merged < p->operands.item_count * heads && heed__is_due(&p->m->context->pace))
      return false;
  }
  return true;
}

heed_status heed__stages_prefix_run(heed__attention_stages *p, bool *done) {
  heed__stages_prefix *x = &p->prefix;
  *done = false;
  if (x->phase == 0) {
    if (!heed__attention_plan_run(&p->plan) || !heed__attention_plan_run(&x->plan)) return HEED_OK;
    const heed_status status = heed__attention_plan_end(&p->plan, HEED_OK);
    x->phase = 1;
    if (status != HEED_OK) return status;
  }
  if (x->phase == 1) {
    x->phase = 2;
    const heed_status status = heed__attention_plan_end(&x->plan, HEED_OK);
    if (status != HEED_OK) return status;
  }
  *done = run_merge(p);
  return HEED_OK;
}

void heed__stages_prefix_end(heed__attention_stages *p) {
  heed__stages_prefix *x = &p->prefix;
  if (x->phase < 1) (void)!heed__attention_plan_end(&p->plan, HEED_CANCELLED);
  if (x->phase < 2) (void)!heed__attention_plan_end(&x->plan, HEED_CANCELLED);
  heed_attention_taps_free(&x->found);
  heed_attention_taps_free(&x->own_found);
  heed_tensor_free(x->out);
  x->out = NULL;
}
