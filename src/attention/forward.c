/* Attention in one call: heed_scaled_dot_product_attention, heed_varlen_attention and what modules use. */
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
    inputs[HEED__ATTENTION_RECORDED_ITEM_LENGTHS] = operands->lengths;
    inputs[HEED__ATTENTION_RECORDED_ITEM_KEY_LENGTHS] = operands->key_lengths;
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
                                    heed__attend *attend, heed_tensor **out) {
  const bool draws = operands->options.dropout_p > 0;
  heed_generator *g = heed__generator(ctx, operands->options.generator), before;
  if (draws) before = *g;
  const heed_status status = attend(ctx, operands, out);
  if (draws && status) *g = before; /* so that a retry draws the same numbers */
  return status;
}

/* ---- The public calls ---- */

/* Reads the options and the choice of taps into the operands, attends, and gives the taps. */
static heed_status call_attention(heed_context *ctx, heed__attention_operands *operands,
                                  const heed_attention_options *options, heed__attend *attend,
                                  heed_tensor **out, heed_attention_taps *taps) {
  static const unsigned all = 1u << HEED__TAP_logits | 1u << HEED__TAP_capped_logits |
                              1u << HEED__TAP_biased_logits | 1u << HEED__TAP_weights |
                              1u << HEED__TAP_present_key | 1u << HEED__TAP_present_value |
                              1u << HEED__TAP_lse;
  const char *function = operands->function;
  heed_attention_taps found = {.size = sizeof found};
  heed_taps_wanted own;
  heed_status status = heed__attention_read_options(ctx, function, options, operands);
  if (taps && !status) {
    status = heed__struct_check(ctx, function, "taps", "heed_attention_taps", taps);
    operands->wanted = operands->options.wanted;
    if (!status) status = heed__wanted_read(ctx, function, &operands->wanted, &own);
    operands->taps = heed__wanted_bits(operands->wanted, all);
  }
  if (status) return status;
  operands->found = &found;
  status = heed__attention_drawing(ctx, operands, attend, out);
  operands->found = NULL;
  if (taps && !status) heed__struct_move(taps, &found, sizeof found);
  heed_attention_taps_free(&found);
  return status;
}

heed_status heed_scaled_dot_product_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                              const heed_tensor *v, const heed_attention_options *options,
                                              heed_tensor **out, heed_attention_taps *taps) {
  HEED__ENTER(ctx, "scaled_dot_product_attention", q, k, v, out);
  heed__attention_operands operands = {.function = "scaled_dot_product_attention", .q = q, .k = k, .v = v};
  return call_attention(ctx, &operands, options, heed__attention, out, taps);
}

/* ---- Packed sequences ---- */

/* Messages about views of the operands would show other shapes. */
static heed_status check_packed_operands(heed_context *ctx, const heed__attention_operands *operands) {
  const heed_tensor *const q = operands->q, *const k = operands->k, *const v = operands->v;
  const heed_tensor *const x[] = {q, k, v};
  const char *function = operands->function;
  static const char *const names[] = {"q", "k", "v"};
  char text[HEED__SHAPE_TEXT];
  heed_status status = heed__check_dtype(ctx, function, "q", q, HEED_FLOAT32);
  if (status) return status;
  for (int i = 0; i < 3; i++)
    if (x[i]->ndim != 3)
      return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s; it must be [tokens, heads, size]", function, names[i],
                        heed__shape_text(text, x[i]->ndim, x[i]->shape));
  if (q->shape[2] != k->shape[2])
    return heed__fail_pair(ctx, function, "q", q, "k", k, "their last sizes must be equal");
  if (k->shape[0] != v->shape[0] || k->shape[1] != v->shape[1])
    return heed__fail_pair(ctx, function, "k", k, "v", v,
                           "their numbers of tokens and of heads (the first sizes) must be equal");
  if (k->shape[1] > 0 ? q->shape[1] % k->shape[1] != 0 : q->shape[1] > 0)
    return heed__fail_pair(ctx, function, "q", q, "k", k,
                           "the heads of q (second size) must be a multiple of the heads of k");
  heed__lengths read;
  status = heed__read_lengths(ctx, function, "lengths", operands->lengths, INT64_MAX, &read);
  if (!status) status = heed__check_total(ctx, function, "lengths", &read, "q", q, 0);
  const char *name = operands->key_lengths ? "key_lengths" : "lengths";
  if (!status && operands->key_lengths)
    status = heed__read_lengths(ctx, function, name, operands->key_lengths, INT64_MAX, &read);
  return status ? status : heed__check_total(ctx, function, name, &read, "k", k, 0);
}

/* The heads write their columns of the result. While gradients are recorded, the views are recorded, too. */
static heed_status attend_packed(heed_context *ctx, const heed__attention_operands *operands,
                                 heed_tensor **out) {
  heed__attention_operands own = *operands;
  const heed_tensor *const x[] = {operands->q, operands->k, operands->v};
  heed__result result = {0};
  heed_tensor *view[4] = {NULL}, *recorded = NULL;
  heed_status status = check_packed_operands(ctx, operands);
  if (status) return status;
  const heed_attention_options *o = &operands->options;
  const int64_t shape[] = {x[0]->shape[0], x[0]->shape[1], x[2]->shape[2]};
  heed_tensor *none = NULL, **target = ctx->recorder ? &none : out;
  status =
      heed__result_begin(ctx, operands->function, &result, target, HEED_FLOAT32, 3, shape, false, 8,
                         (const heed_tensor *const[]){x[0], x[1], x[2], o->attn_mask, o->alibi_slopes,
                                                      o->sinks, operands->lengths, operands->key_lengths});
  if (status) return status;
  for (int i = 0; i < 3 && !status; i++) status = heed_transpose(ctx, x[i], 1, 2, &view[i]);
  if (!status) status = heed_transpose(ctx, result.tensor, 1, 2, &view[3]);
  own.q = view[0];
  own.k = view[1];
  own.v = view[2];
  if (!status) status = heed__attention(ctx, &own, &view[3]);
  status = heed__result_end(ctx, &result, status);
  if (!status && ctx->recorder) status = heed_transpose(ctx, view[3], 1, 2, &recorded);
  if (recorded && !*out) {
    *out = recorded;
    recorded = NULL;
  } else if (recorded) {
    status = heed__same_shape(3, shape, (*out)->ndim, (*out)->shape)
                 ? heed_copy(ctx, *out, recorded)
                 : heed__fail_pair(ctx, operands->function, "out", *out, "the result", recorded,
                                   "their shapes must be equal");
  }
  heed_tensor_free(recorded);
  heed_tensor_free(none);
  for (int i = 0; i < 4; i++) heed_tensor_free(view[i]);
  return status;
}

heed_status heed_varlen_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                  const heed_tensor *v, const heed_tensor *lengths,
                                  const heed_tensor *key_lengths, const heed_attention_options *options,
                                  heed_tensor **out, heed_attention_taps *taps) {
  HEED__ENTER(ctx, "varlen_attention", q, k, v, lengths, out);
  HEED__MAY_ENTER(ctx, "varlen_attention", key_lengths);
  heed__attention_operands operands = {
      .function = "varlen_attention", .q = q, .k = k, .v = v, .lengths = lengths, .key_lengths = key_lengths};
  return call_attention(ctx, &operands, options, attend_packed, out, taps);
}
