/* Attention in one call: heed_scaled_dot_product_attention and what modules use. */
#include "plan.h"

static heed_status attend_plan(heed_context *ctx, const heed__attention_operands *operands,
                               heed_tensor **out) {
  heed__attention_plan p;
  heed__attention_scratch scratch;
  heed_status status = heed__attention_plan_begin(ctx, &p, operands, &scratch, out);
  if (status) return status;
  if (!heed__attention_plan_run(&p)) status = heed__stopped(ctx, operands->function);
  return heed__attention_plan_end(&p, status);
}

/* Also keeps what the gradients need. The output has the same bits. */
static heed_status attend_recorded(heed_context *ctx, const heed__attention_operands *operands,
                                   heed_tensor **out) {
  const heed_attention_options *o = &operands->options;
  heed_attention_taps found = {.size = sizeof found};
  heed_tensor *kept = NULL;
  heed__attention_operands own = *operands;
  const heed_tensor *inputs[HEED__ATTENTION_RECORDED] = {
      operands->q,     operands->k, operands->v,   o->attn_mask,  o->sinks,
      o->alibi_slopes, o->past_key, o->past_value, o->kv_lengths, operands->key_padding_mask};
  bool wants = false;
  for (int i = 0; i < HEED__ATTENTION_GRADIENTS; i++)
    wants = wants || (inputs[i] && heed__wants_gradient(inputs[i]));
  own.found = &found;
  if (wants) {
    if (!operands->stats) own.taps |= 1u << HEED__TAP_lse;
    own.kept = &kept;
  }
  heed_status status = attend_plan(ctx, &own, out);
  if (!status) {
    inputs[HEED__ATTENTION_RECORDED_LSE] = found.lse;
    inputs[HEED__ATTENTION_RECORDED_KEPT] = kept;
    inputs[HEED__ATTENTION_RECORDED_K_SCALE] = operands->k_scale;
    inputs[HEED__ATTENTION_RECORDED_V_SCALE] = operands->v_scale;
    if (o->mask) inputs[HEED__ATTENTION_RECORDED_MASK] = o->mask->code;
    heed__attention_values values = {.options = *o,
                                     .offset = operands->offset,
                                     .no_heads = operands->no_heads,
                                     .same_tokens = operands->same_tokens};
    values.options.attn_mask = values.options.sinks = values.options.alibi_slopes = NULL;
    values.options.past_key = values.options.past_value = values.options.kv_lengths = NULL;
    values.options.generator = NULL;
    values.options.wanted = NULL;
    values.options.mask = NULL;
    const heed__op op = operands->stats ? HEED__OP_attention_partial : HEED__OP_scaled_dot_product_attention;
    status = heed__record_results(ctx, status, op, HEED__ATTENTION_RECORDED, inputs, &values, sizeof values,
                                  operands->stats ? 2 : 1, (heed_tensor * *const[]){out, operands->stats});
  }
  heed_tensor_free(kept);
  if (!(operands->taps >> HEED__TAP_lse & 1)) {
    heed_tensor_free(found.lse);
    found.lse = NULL;
  }
#define X(name)                                                                                              \
  if (status == HEED_OK && found.name) operands->found->name = found.name;
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
  if (status) heed_attention_taps_free(&found);
  return status;
}

heed_status heed__attention(heed_context *ctx, const heed__attention_operands *operands, heed_tensor **out) {
  const bool records = ctx->recorder != NULL && !operands->maps_only;
  return (records ? attend_recorded : attend_plan)(ctx, operands, out);
}

heed_status heed__attention_read_options(heed_context *ctx, const char *function,
                                         const heed_attention_options *options,
                                         heed__attention_operands *operands) {
  heed_attention_options *o = &operands->options;
  if (!options) return HEED_OK;
  const heed_status status =
      heed__struct_read(ctx, function, "options", "heed_attention_options", options, o, sizeof *o);
  if (status) return status;
  HEED__MAY_ENTER(ctx, function, o->attn_mask, o->generator, o->kv_lengths, o->past_key, o->past_value,
                  o->alibi_slopes, o->sinks);
  HEED__MAY_ENTER(ctx, function, o->mask);
  return HEED_OK;
}

heed_status heed__attention_drawing(heed_context *ctx, const heed__attention_operands *operands,
                                    heed_tensor **out) {
  const bool draws = operands->options.dropout_p > 0;
  heed_generator *g = heed__generator(ctx, operands->options.generator), before;
  if (draws) before = *g;
  const heed_status status = heed__attention(ctx, operands, out);
  if (draws && status) *g = before; /* so that a retry draws the same numbers */
  return status;
}

heed_status heed_scaled_dot_product_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                              const heed_tensor *v, const heed_attention_options *options,
                                              heed_tensor **out, heed_attention_taps *taps) {
  HEED__ENTER(ctx, "scaled_dot_product_attention", q, k, v, out);
  static const char function[] = "scaled_dot_product_attention";
  static const unsigned all = 1u << HEED__TAP_logits | 1u << HEED__TAP_capped_logits |
                              1u << HEED__TAP_biased_logits | 1u << HEED__TAP_weights |
                              1u << HEED__TAP_present_key | 1u << HEED__TAP_present_value |
                              1u << HEED__TAP_lse;
  heed_attention_taps found = {.size = sizeof found};
  heed_taps_wanted own;
  heed__attention_operands operands = {.function = function, .q = q, .k = k, .v = v, .found = &found};
  heed_status status = heed__attention_read_options(ctx, function, options, &operands);
  if (taps && !status) {
    status = heed__struct_check(ctx, function, "taps", "heed_attention_taps", taps);
    operands.wanted = operands.options.wanted;
    if (!status) status = heed__wanted_read(ctx, function, &operands.wanted, &own);
    operands.taps = heed__wanted_bits(operands.wanted, all);
  }
  if (status) return status;
  status = heed__attention_drawing(ctx, &operands, out);
  if (!taps || status) return status;
  heed__struct_move(taps, &found, sizeof found);
  heed_attention_taps_free(&found);
  return HEED_OK;
}
