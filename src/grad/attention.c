/* The gradient of scaled_dot_product_attention, which attention modules record, too. */
#include "grad.h"

/* What was recorded as input i, in its header; NULL if it was not given. */
static const heed_tensor *recorded_input(const heed__backward *b, int i, heed_tensor *header) {
  const heed__saved *saved = &b->node->saved[i];
  return i < b->node->inputs && saved->storage != NULL ? heed__backward_input(b, i, header) : NULL;
}

heed_status heed__scaled_dot_product_attention_backward(heed__backward *b) {
  const heed__attention_values *values = b->values;
  heed_tensor header[HEED__ATTENTION_RECORDED], out;
  const heed_tensor *x[HEED__ATTENTION_RECORDED];
  unsigned wanted = 0;
  for (int i = 0; i < HEED__ATTENTION_RECORDED; i++) x[i] = recorded_input(b, i, &header[i]);
  for (int i = 0; i < HEED__ATTENTION_GRADIENTS; i++) wanted |= heed__backward_wants(b, i) ? 1u << i : 0;
  heed__attention_operands operands = {.function = b->function,
                                       .q = x[HEED__ATTENTION_q],
                                       .k = x[HEED__ATTENTION_k],
                                       .v = x[HEED__ATTENTION_v],
                                       .options = values->options,
                                       .no_heads = values->no_heads,
                                       .key_padding_mask = x[HEED__ATTENTION_RECORDED_PADDING],
                                       .offset = values->offset,
                                       .same_tokens = values->same_tokens,
                                       .k_scale = x[HEED__ATTENTION_RECORDED_K_SCALE],
                                       .v_scale = x[HEED__ATTENTION_RECORDED_V_SCALE],
                                       .lengths = x[HEED__ATTENTION_RECORDED_ITEM_LENGTHS],
                                       .key_lengths = x[HEED__ATTENTION_RECORDED_ITEM_KEY_LENGTHS]};
  operands.options.attn_mask = x[HEED__ATTENTION_attn_mask];
  operands.options.sinks = x[HEED__ATTENTION_sinks];
  operands.options.alibi_slopes = x[HEED__ATTENTION_alibi_slopes];
  operands.options.past_key = x[HEED__ATTENTION_past_key];
  operands.options.past_value = x[HEED__ATTENTION_past_value];
  operands.options.kv_lengths = x[HEED__ATTENTION_RECORDED_LENGTHS];
  const heed__attention_saved saved = {.out = heed__backward_output(b, 0, &out),
                                       .lse = x[HEED__ATTENTION_RECORDED_LSE],
                                       .kept = x[HEED__ATTENTION_RECORDED_KEPT]};
  return heed__attention_backward(b->ctx, &operands, &saved, b->dy[0], wanted, b->dx);
}
