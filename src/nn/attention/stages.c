/* The forward pass of attention modules with a softmax over the keys, in stages: projections, norms and
 * rotation, a cache, attention, output projection. */
#include "stages.h"

#include <assert.h>
#include <string.h>

/* The taps that share what projections made. */
#define INPUT_TAPS (1u << HEED__TAP_queries | 1u << HEED__TAP_keys | 1u << HEED__TAP_values)

/* ---- Beginning ---- */

/* Replaces an input or a weight by an alias of it for heed_steps, whose slices read it later. */
static heed_status retain(heed__attention_stages *p, const heed_tensor **x) {
  if (p->scratch != NULL || *x == NULL) return HEED_OK;
  assert(p->retained_count < (int)(sizeof p->retained / sizeof *p->retained));
  heed_tensor *alias = NULL;
  heed_status status = heed__tensor_from_view(p->m->context, p->m->class->name, *x, &alias);
  if (status == HEED_OK) *x = p->retained[p->retained_count++] = alias;
  return status;
}

/* Retains the parts in use, since the module's may be replaced between two slices. */
static void retain_parts(heed__attention_stages *p) {
  for (int i = 0; i < 3; i++) heed_module_retain(p->part[i]);
  heed_module_retain(p->out_proj);
  for (int i = 0; i < 2; i++) heed_module_retain(p->norm[i]);
}

static void release_parts(heed__attention_stages *p) {
  for (int i = 0; i < 3; i++) heed_module_release(p->part[i]);
  heed_module_release(p->out_proj);
  for (int i = 0; i < 2; i++) heed_module_release(p->norm[i]);
}

static heed_status retain_inputs(heed__attention_stages *p) {
  const heed_tensor **inputs[] = {&p->options.attn_mask, &p->options.key_padding_mask, &p->options.kv_lengths,
                                  &p->options.lengths,   &p->options.key_lengths,      &p->from[0]};
  heed_status status = HEED_OK;
  p->mask_reference = heed_mask_retain((heed_mask *)(uintptr_t)p->options.mask);
  for (int i = 0; i < 6 && status == HEED_OK; i++) status = retain(p, inputs[i]);
  for (int i = 1; i < 3 && status == HEED_OK; i++) {
    if (p->options.key == NULL)
      p->from[i] = p->from[0];
    else
      status = retain(p, &p->from[i]);
  }
  return status;
}

/* The ALiBi slopes as a tensor without storage; NULL if the module has none. */
static const heed_tensor *slopes_of(const heed__attention_module *a, heed_tensor *header) {
  if (!a->alibi) return NULL;
  heed__header_on_stack(header, HEED_FLOAT32, a->slopes, 1, &a->num_heads);
  return header;
}

/* The settings are those of the beginning: they may change between slices, and while parts of one's own run.
 */
static void set_operands(heed__attention_stages *p) {
  const heed__attention_module *a = (const heed__attention_module *)p->m;
  p->operands = (heed__attention_operands){
      .function = p->m->class->name,
      .q = &p->view[0],
      .k = &p->view[1],
      .v = &p->view[2],
      .options = {.size = sizeof p->operands.options,
                  .attn_mask = p->options.attn_mask,
                  .mask = p->options.mask,
                  .is_causal = a->causal,
                  .window = a->window,
                  .scale = a->scale,
                  .softcap = a->softcap,
                  .dropout_p = p->dropout,
                  .generator = p->options.generator,
                  .kv_lengths = p->options.kv_lengths,
                  .alibi_slopes = slopes_of(a, &p->slopes)},
      .no_heads = a->one_head,
      .same_tokens = p->options.key == NULL,
      .key_padding_mask = p->options.key_padding_mask,
      .lengths = p->options.cache == NULL ? p->options.lengths : NULL, /* with a cache: p->added */
      .key_lengths = p->options.key_lengths,
      .found = p->taps,
  };
  if (p->taps != NULL) {
    p->operands.wanted = p->options.wanted;
    p->operands.taps =
        p->wanted & (1u << HEED__TAP_scores | 1u << HEED__TAP_weights | 1u << HEED__TAP_lse |
                     1u << HEED__TAP_biased_logits | (p->dropout > 0 ? 1u << HEED__TAP_dropped_weights : 0));
  }
  if (a->sinks) p->operands.options.sinks = heed__module_slot(p->m, "sinks")->parameter;
}

heed_status heed__attention_stages_begin(heed__attention_stages *p, heed_module *m, const heed_tensor *x,
                                         const heed_forward_options *options, heed__stages_scratch *scratch,
                                         heed_tensor **out, heed_attention_taps *taps) {
  heed_status status;
  p->m = m;
  p->options = *options;
  p->added = NULL;
  p->taps = taps;
  if ((status = heed__stages_choose_tokens(p, x)) != HEED_OK) return status;
  if (options->lengths != NULL && options->cache != NULL)
    if ((status = heed__stages_read_lengths(p)) != HEED_OK) return status;
  if ((status = heed__stages_check_cache(p, x)) != HEED_OK) {
    heed__release(m->context, p->added);
    return status;
  }
  const heed_module *dropout = heed__module_part(m, "dropout");
  p->out_proj = heed__module_part(m, "out_proj");
  p->options.generator = heed__generator(m->context, options->generator);
  p->out = out;
  p->wanted = taps != NULL ? heed__wanted_bits(options->wanted, ~0u) : 0;
  if (options->wanted == NULL) p->wanted &= ~(1u << HEED__TAP_biased_logits);
  p->scratch = scratch;
  p->rotary = ((const heed__attention_module *)m)->rotary;
  if (p->rotary) p->rope = ((const heed__attention_module *)m)->rope;
  p->dropout = dropout != NULL && !heed__is_own(dropout, true) ? heed__dropout_active(dropout) : 0;
  p->past = options->cache != NULL ? heed_kv_cache_length(options->cache) : 0;
  p->ragged = options->cache != NULL && (p->added != NULL || !heed__kv_cache_is_even(options->cache));
  for (int i = 0; i < 3; i++) {
    p->part[i] = m->slots[i].module;
    p->projected[i] = NULL;
  }
  p->norm[0] = heed__module_part(m, "q_norm");
  p->norm[1] = heed__module_part(m, "k_norm");
  p->made[0] = p->made[1] = p->heads = p->turned = p->positions[0] = p->positions[1] = NULL;
  p->turned_rows = 0;
  p->into_view = &p->into;
  p->result = (heed__result){0};
  p->spans = p->normed = p->apart = false;
  p->retained_count = 0;
  p->mask_reference = NULL;
  p->open = 0;
  p->piece = 0;
  if (scratch != NULL) {
    set_operands(p);
    status = heed__stages_make_positions(p);
    if (status != HEED_OK) heed__attention_stages_end(p, status);
    return status;
  }
  retain_parts(p);
  if ((status = retain_inputs(p)) == HEED_OK) {
    set_operands(p);
    status = retain(p, &p->operands.options.sinks);
  }
  if (status == HEED_OK) status = heed__stages_make_positions(p);
  if (status != HEED_OK) heed__attention_stages_end(p, status);
  return status;
}

heed_status heed__attention_check_forward(heed_module *m, const heed_tensor *x,
                                          const heed_forward_options *options) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  heed__attention_stages p = {.m = m, .options = *options};
  const bool no_heads = a->one_head && m->class != &heed__wrapper_class.base;
  const heed_status status = heed__stages_choose_tokens(&p, x);
  if (status != HEED_OK) return status;
  for (int i = 0; i < 3; i++) { /* [b, h, n, d], [h, n, d] or, without heads, [b, n, d] or [n, d] */
    const heed_tensor *from = p.from[i];
    int64_t shape[4];
    int ndim = 0;
    if (from->ndim == 3) shape[ndim++] = from->shape[0];
    if (!no_heads) shape[ndim++] = i == 0 ? a->num_heads : a->num_kv_heads;
    shape[ndim++] = from->shape[from->ndim - 2];
    shape[ndim++] = a->head_dim;
    heed__header_on_stack(&p.view[i], HEED_FLOAT32, NULL, ndim, shape);
  }
  set_operands(&p);
  p.operands.no_heads = no_heads;
  return heed__attention_check_operands(m->context, &p.operands);
}

/* ---- Projections ---- */

/* A row-major float32 tensor for one call, in *scratch if it is given and large enough. */
static heed_status new_buffer(const heed__attention_stages *p, heed__temporary *scratch, int ndim,
                              const int64_t *shape, heed_tensor **out) {
  heed_context *ctx = p->m->context;
  const char *name = p->m->class->name;
  if (scratch != NULL) return heed__temporary_new(ctx, name, scratch, ndim, shape, out);
  return heed__tensor_new(ctx, name, HEED_FLOAT32, ndim, shape, out);
}

static heed_status begin_linear(heed__attention_stages *p, int i, const heed_module *linear,
                                const heed_tensor *x, heed_tensor **out) {
  const heed__slot *bias_slot = heed__module_slot(linear, "bias"), *scale_slot = NULL;
  const heed_tensor *weight = linear->slots[0].parameter;
  if (weight->dtype == HEED_INT8) scale_slot = heed__module_slot(linear, HEED__SCALE);
  const heed_tensor *bias = bias_slot != NULL ? bias_slot->parameter : NULL;
  const heed_tensor *scale = scale_slot != NULL ? scale_slot->parameter : NULL;
  heed_status status = retain(p, &weight);
  if (status == HEED_OK) status = retain(p, &scale);
  if (status == HEED_OK) status = retain(p, &bias);
  if (status != HEED_OK) return status;
  return heed__linear_begin(p->m->context, &p->linear[i], p->m->class->name, x, weight, scale, bias, out);
}

void heed__stages_view_heads(heed_tensor *view, const heed_tensor *x, const heed__attention_module *a) {
  heed__alias_on_stack(view, x);
  if (a->one_head) return;
  int last = view->ndim++;
  int64_t step = x->stride[last - 1];
  view->shape[last] = a->head_dim;
  view->stride[last] = step;
  view->shape[last - 1] = x->shape[last - 2];
  view->stride[last - 1] = x->stride[last - 2];
  view->shape[last - 2] = heed__quotient(x->shape[last - 1], a->head_dim);
  view->stride[last - 2] = step * a->head_dim;
}

static heed_status begin_projection(heed__attention_stages *p, int i) {
  const heed_module *linear = p->part[i];
  const heed_tensor *x = p->from[i];
  const bool on_stack = p->scratch != NULL && (p->wanted & INPUT_TAPS) == 0; /* taps outlive the call */
  int64_t shape[3];
  for (int d = 0; d < x->ndim - 1; d++) shape[d] = x->shape[d];
  shape[x->ndim - 1] = linear->slots[0].parameter->shape[0];
  heed_status status =
      new_buffer(p, on_stack ? &p->scratch->projected[i] : NULL, x->ndim, shape, &p->projected[i]);
  if (status == HEED_OK) status = begin_linear(p, i, linear, x, &p->projected[i]);
  if (status != HEED_OK) return status;
  heed__stages_view_heads(&p->view[i], p->projected[i], (const heed__attention_module *)p->m);
  return HEED_OK;
}

heed_status heed__stages_copy(const heed__attention_stages *p, const heed_tensor *x, heed_tensor **out) {
  heed_tensor *copy = NULL;
  heed_status status = new_buffer(p, NULL, x->ndim, x->shape, &copy);
  if (status == HEED_OK) status = heed__copy(p->m->context, p->m->class->name, copy, x);
  if (status == HEED_OK)
    *out = copy;
  else
    heed_tensor_free(copy);
  return status;
}

heed_status heed__stages_put(heed__attention_stages *p, int stage, const heed_tensor *y) {
  if (stage == HEED__STAGE_OUT) return heed__stages_copy(p, y, p->out);
  const heed_status status = heed__stages_copy(p, y, &p->projected[stage]);
  if (status == HEED_OK)
    heed__stages_view_heads(&p->view[stage], p->projected[stage], (const heed__attention_module *)p->m);
  return status;
}

/* ---- The cache ---- */

/* Replaces keys and values by a span: those of the cache, followed by the new ones. */
static heed_status begin_cache(heed__attention_stages *p) {
  heed__attention_operands *operands = &p->operands;
  const bool batched = p->view[1].ndim == 4;
  heed__kv_span *span = &p->span;
  p->apart = heed__stages_keep_apart(p);
  heed_status status = heed__kv_span_begin(p->options.cache, p->m->class->name,
                                           p->view[1].shape[p->view[1].ndim - 2], p->added, p->apart, span);
  if (status != HEED_OK) return status;
  p->spans = true;
  if (p->past == 0) heed__module_cache_origin(p->m, &p->options.cache->origin); /* its first tokens */
  if (p->options.cache->int4) {
    if ((status = heed__stages_begin_turned(p)) != HEED_OK) return status;
    heed__stages_view_heads(&p->packed[0], p->turned, (const heed__attention_module *)p->m);
    operands->q = &p->packed[0];
  }
  operands->k = heed__kv_span_view(span, HEED__KV_KEYS, batched, &p->cached[0]);
  operands->v = heed__kv_span_view(span, HEED__KV_VALUES, batched, &p->cached[1]);
  if (operands->k->dtype == HEED_INT8) {
    operands->k_scale = heed__kv_span_view(span, HEED__KV_KEY_SCALES, batched, &p->cached[2]);
    operands->v_scale = heed__kv_span_view(span, HEED__KV_VALUE_SCALES, batched, &p->cached[3]);
  }
  if (p->ragged || p->apart) return heed__stages_begin_items(p);
  operands->offset = span->past - span->skipped;
  return heed__stages_skip_keys(p);
}

/* ---- Taps ---- */

/* The taps queries, keys and values. Those of a span are copied by read_span, once it is complete. */
static heed_status new_taps(const heed__attention_stages *p) {
  heed_context *ctx = p->m->context;
  const char *name = p->m->class->name;
  int64_t shape[4];
  heed_status status = HEED_OK;
  if (p->wanted >> HEED__TAP_queries & 1)
    status = heed__tensor_from_view(ctx, name, &p->view[0], &p->taps->queries);
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    if (!(p->wanted >> (HEED__TAP_keys + i) & 1)) continue;
    heed_tensor **out = i == 0 ? &p->taps->keys : &p->taps->values;
    const heed_tensor *view = &p->view[1 + i];
    if (!p->spans) {
      status = heed__tensor_from_view(ctx, name, view, out);
      continue;
    }
    memcpy(shape, view->shape, (size_t)view->ndim * sizeof *shape);
    shape[view->ndim - 2] = p->span.length;
    status = heed__tensor_new(ctx, name, HEED_FLOAT32, view->ndim, shape, out);
  }
  return status;
}

/* Without cancellation checks, since the stage is complete. */
static void read_span(heed__attention_stages *p) {
  heed__pace *pace = &p->m->context->pace;
  const bool held = pace->held;
  pace->held = true;
  if (p->taps->keys != NULL) (void)!heed__kv_span_read(&p->span, HEED__KV_KEYS, p->taps->keys);
  if (p->taps->values != NULL) (void)!heed__kv_span_read(&p->span, HEED__KV_VALUES, p->taps->values);
  pace->held = held;
}

heed_status heed__stages_tap_inputs(heed__attention_stages *p) {
  const heed_status status = new_taps(p);
  if (status == HEED_OK && p->spans) read_span(p);
  return status;
}

void heed__stages_leave_dropout(heed__attention_stages *p) {
  p->dropout = p->operands.options.dropout_p = 0;
  p->operands.taps &= ~(1u << HEED__TAP_dropped_weights);
}

/* ---- Attention ---- */

/* The heads write their columns of [..., n, h · d]: the result, or the input of out_proj. */
static heed_status begin_attention(heed__attention_stages *p) {
  heed_context *ctx = p->m->context;
  const heed__attention_operands *operands = &p->operands;
  const heed_tensor *like = p->projected[0];
  heed_status status = HEED_OK;
  if (p->taps != NULL && (status = new_taps(p)) != HEED_OK) return status;
  if (p->out_proj != NULL) {
    status =
        new_buffer(p, p->scratch != NULL ? &p->scratch->heads : NULL, like->ndim, like->shape, &p->heads);
  } else {
    const heed_tensor *inputs[] = {p->options.attn_mask,  p->options.key_padding_mask,
                                   p->options.kv_lengths, operands->options.sinks,
                                   p->options.lengths,    p->options.key_lengths};
    status = p->ragged || p->apart || p->turned != NULL
                 ? heed__result_begin_row_major(ctx, operands->function, &p->result, p->out, HEED_FLOAT32,
                                                like->ndim, like->shape, 6, inputs)
                 : heed__result_begin(ctx, operands->function, &p->result, p->out, HEED_FLOAT32, like->ndim,
                                      like->shape, false, 6, inputs);
  }
  if (status != HEED_OK) return status;
  heed__stages_view_heads(&p->into, p->out_proj != NULL ? p->heads : p->result.tensor,
                          (const heed__attention_module *)p->m);
  if (p->ragged || p->apart) heed__stages_pack_into(p);
  if (p->apart) return heed__stages_prefix_begin(p);
  return heed__attention_plan_begin(ctx, &p->plan, operands,
                                    p->scratch != NULL ? &p->scratch->attention : NULL, &p->into_view);
}

/* ---- Stages ---- */

heed_status heed__attention_stage_begin(heed__attention_stages *p, int stage) {
  heed_status status = HEED_OK;
  switch (stage) {
  case HEED__STAGE_QUERIES:
  case HEED__STAGE_KEYS:
  case HEED__STAGE_VALUES: status = begin_projection(p, stage); break;
  case HEED__STAGE_CACHE:
    if (p->options.cache != NULL) status = begin_cache(p);
    break;
  case HEED__STAGE_ATTENTION: status = begin_attention(p); break;
  case HEED__STAGE_OUT:
    if (p->out_proj != NULL) status = begin_linear(p, 3, p->out_proj, p->heads, p->out);
    break;
  default: break;
  }
  if (status == HEED_OK) p->open |= 1u << stage;
  return status;
}

static heed__linear_work *linear_of_stage(heed__attention_stages *p, int stage) {
  if (stage <= HEED__STAGE_VALUES) return &p->linear[stage];
  return stage == HEED__STAGE_OUT && p->out_proj != NULL ? &p->linear[3] : NULL;
}

static heed_status run_attention(heed__attention_stages *p, bool *done) {
  if (p->apart) return heed__stages_prefix_run(p, done);
  *done = heed__attention_plan_run(&p->plan);
  if (*done && p->turned != NULL && !p->operands.maps_only) heed__stages_turn_output(p, done);
  return HEED_OK;
}

heed_status heed__attention_stage_run(heed__attention_stages *p, int stage, bool *done) {
  heed__linear_work *linear = linear_of_stage(p, stage);
  *done = true;
  if (linear != NULL)
    *done = heed__linear_run(p->m->context, linear);
  else if (stage == HEED__STAGE_ATTENTION)
    return run_attention(p, done);
  else if (stage == HEED__STAGE_SHAPE && heed__stages_has_shaping(p))
    return heed__stages_run_shape(p, done);
  else if (stage == HEED__STAGE_CACHE && p->spans)
    return heed__stages_run_cache(p, done);
  return HEED_OK;
}

static heed_status end_stage(heed__attention_stages *p, int stage, heed_status status) {
  heed_context *ctx = p->m->context;
  heed__linear_work *linear = linear_of_stage(p, stage);
  p->open &= ~(1u << stage);
  p->piece = p->turned_rows = 0;
  if (linear != NULL) return heed__linear_end(ctx, linear, status);
  if (stage != HEED__STAGE_ATTENTION) return status;
  if (status == HEED_OK && p->spans && p->taps != NULL) read_span(p);
  if (p->apart)
    heed__stages_prefix_end(p);
  else
    status = heed__attention_plan_end(&p->plan, status);
  return p->out_proj == NULL ? heed__result_end(ctx, &p->result, status) : status;
}

heed_status heed__attention_stage_end(heed__attention_stages *p, int stage) {
  return end_stage(p, stage, HEED_OK);
}

void heed__attention_stages_end(heed__attention_stages *p, heed_status status) {
  for (int stage = 0; stage < HEED__STAGES; stage++) {
    if (p->open >> stage & 1) (void)!end_stage(p, stage, HEED_CANCELLED);
  }
  if (p->result.tensor != NULL) (void)!heed__result_end(p->m->context, &p->result, HEED_CANCELLED);
  if (p->spans) {
    if (status == HEED_OK) heed__kv_span_commit(&p->span);
    heed__kv_span_end(&p->span);
  }
  for (int i = 0; i < 2; i++) heed_tensor_free(p->made[i]);
  for (int i = 0; i < 2; i++) heed_tensor_free(p->positions[i]);
  for (int i = 0; i < 3; i++) heed_tensor_free(p->projected[i]);
  heed_tensor_free(p->heads);
  heed_tensor_free(p->turned);
  heed__release(p->m->context, p->added);
  for (int i = 0; i < p->retained_count; i++) heed_tensor_free(p->retained[i]);
  heed_mask_release(p->mask_reference);
  if (p->scratch == NULL) release_parts(p);
}

/* ---- All stages at once ---- */

static heed_status run_stages(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                              heed_tensor **out, heed_attention_taps *taps) {
  heed__attention_stages p;
  heed__stages_scratch scratch;
  heed_generator before;
  heed_status status = heed__attention_stages_begin(&p, m, x, options, &scratch, out, taps);
  if (status != HEED_OK) return status;
  if (p.dropout > 0) before = *p.options.generator;
  for (int stage = 0; stage < HEED__STAGES && status == HEED_OK; stage++) {
    bool done = false;
    status = heed__attention_stage_begin(&p, stage);
    while (status == HEED_OK && !done) {
      status = heed__attention_stage_run(&p, stage, &done);
      if (status == HEED_OK && !done) status = heed__stopped(m->context, m->class->name);
    }
    if (status == HEED_OK) status = heed__attention_stage_end(&p, stage);
  }
  if (status != HEED_OK && p.dropout > 0)
    *p.options.generator = before; /* so that a retry draws the same numbers */
  heed__attention_stages_end(&p, status);
  return status;
}

heed_status heed__attention_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                    heed_tensor **out, heed_attention_taps *taps) {
  heed__small_pass pass;
  const heed__attention_module *a = (const heed__attention_module *)m;
  if (m->context->recorder != NULL && heed__records(m, x, options))
    return heed__recorded_forward(m, x, options, out, taps);
  if (a->own_parts > 0 || a->hook.callback != NULL) return heed__own_pass_forward(m, x, options, out, taps);
  if (taps == NULL && heed__small_pass_takes(m, x, options, &pass))
    return heed__small_pass_run(m, x, &pass, out);
  return run_stages(m, x, options, out, taps);
}
