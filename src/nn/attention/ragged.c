/* Passes whose batch items differ in length: in the tokens of the cache, in the new ones, or in both. Queries
 * and outputs are then rows of all items, and attention receives a list of the items (attention.h). */
#include "stages.h"

/* ---- The new tokens of each item ---- */

static heed_status fail_with(const heed__attention_stages *p, const char *what) {
  return heed__fail(
      p->m->context, HEED_ARGUMENT,
      "%s: lengths, cache and %s are given; leave one of them out, or call the module once for each item",
      p->m->class->name, what);
}

heed_status heed__stages_read_lengths(heed__attention_stages *p) {
  heed_context *ctx = p->m->context;
  const char *name = p->m->class->name;
  const heed_tensor *lengths = p->options.lengths;
  const heed_kv_cache *cache = p->options.cache;
  if (p->options.attn_mask != NULL) return fail_with(p, "attn_mask");
  if (p->taps != NULL) return fail_with(p, "need_weights, or a hook on scores or weights,");
  const heed_status status = heed__kv_check_items(cache, name, "lengths", lengths);
  if (status != HEED_OK) return status;
  const size_t bytes = heed__array_bytes((uint64_t)cache->batch, sizeof *p->added);
  p->added = heed__allocate(ctx, bytes);
  if (p->added == NULL) return heed__fail_memory(ctx, name, bytes);
  for (int64_t i = 0; i < cache->batch; i++) p->added[i] = heed__int64_at(lengths, i);
  return HEED_OK;
}

/* ---- Packed operands ---- */

/* A view of row-major x [..., h · d] as [h, total, d]. */
static void pack_heads(heed_tensor *view, const heed_tensor *x, const heed__attention_module *a) {
  const int64_t width = x->shape[x->ndim - 1];
  heed__alias_on_stack(view, x);
  view->ndim = 3;
  view->shape[0] = heed__quotient(width, a->head_dim);
  view->shape[1] = width > 0 ? heed__quotient(x->numel, width) : 0;
  view->shape[2] = a->head_dim;
  view->stride[0] = a->head_dim;
  view->stride[1] = width;
  view->stride[2] = 1;
}

heed_status heed__stages_begin_items(heed__attention_stages *p) {
  pack_heads(&p->packed[0], p->turned != NULL ? p->turned : p->projected[0],
             (const heed__attention_module *)p->m);
  p->operands.q = &p->packed[0];
  p->operands.items = p->options.cache->items;
  p->operands.item_count = p->options.cache->batch;
  p->operands.offset = 0;
  return heed__stages_skip_keys(p);
}

void heed__stages_pack_into(heed__attention_stages *p) {
  pack_heads(&p->packed[1], p->out_proj != NULL ? p->heads : p->result.tensor,
             (const heed__attention_module *)p->m);
  p->into_view = &p->packed[1];
}
