/* The forward pass of the attention modules that softmax over the keys: projections, heads, and, where the
 * module or the call has them, norms, positions and a cache, through the fused kernel. */
#include "attention_pass.h"

#include <assert.h>
#include <string.h>

/* The tokens that queries, keys and values are made from. */
static heed_status choose_tokens(const heed_module *m, const heed_tensor *x,
                                 const heed_forward_options *options, const heed_tensor *from[3]) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  const char *name = m->class->name;
  heed_context *ctx = m->context;
  const heed_tensor *key = options->key, *value = options->value;
  heed_status status = heed__attention_check_input(m, x);
  if (status != HEED_OK) return status;
  from[0] = from[1] = from[2] = x;
  if (key == NULL) {
    if (value != NULL)
      return heed__fail(ctx, HEED_ARGUMENT, "%s: value is given without key, which it belongs to", name);
    if (a->kdim == a->d_in && a->vdim == a->d_in) return HEED_OK;
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: key is missing; x cannot stand for it, for d_in is %lld, kdim %lld and vdim %lld",
                      name, (long long)a->d_in, (long long)a->kdim, (long long)a->vdim);
  }
  if (options->cache != NULL)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: key and cache are given; a cache is for the keys of x", name);
  if (value == NULL && a->vdim != a->kdim) {
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: value is missing; key cannot stand for it, for kdim is %lld and vdim %lld", name,
                      (long long)a->kdim, (long long)a->vdim);
  }
  from[1] = key;
  from[2] = value != NULL ? value : key;
  for (int i = 1; i < 3; i++) {
    const char *argument = i == 1 ? "key" : "value";
    status = i == 1 ? heed__attention_check_tokens(m, argument, "kdim", a->kdim, from[i])
                    : heed__attention_check_tokens(m, argument, "vdim", a->vdim, from[i]);
    if (status != HEED_OK) return status;
    const heed_tensor *with = i == 1 ? x : key;
    const bool same_batch =
        with->ndim == from[i]->ndim && (x->ndim == 2 || with->shape[0] == from[i]->shape[0]);
    if (same_batch && (i == 1 || with->shape[x->ndim - 2] == from[i]->shape[x->ndim - 2])) continue;
    char one[HEED__SHAPE_TEXT], other[HEED__SHAPE_TEXT];
    return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s and %s is %s; their sizes%s must be equal", name,
                      i == 1 ? "x" : "key", heed__shape_text(one, with->ndim, with->shape), argument,
                      heed__shape_text(other, from[i]->ndim, from[i]->shape),
                      i == 1 ? " of the batch" : " but the last");
  }
  return HEED_OK;
}

/* x [..., n, h · d] as [..., h, n, d], on the same elements. */
static void view_heads(heed_tensor *view, const heed_tensor *x, int64_t d) {
  heed__alias_on_stack(view, x);
  int last = view->ndim++;
  int64_t step = x->stride[last - 1];
  view->shape[last] = d;
  view->stride[last] = step;
  view->shape[last - 1] = x->shape[last - 2];
  view->stride[last - 1] = x->stride[last - 2];
  view->shape[last - 2] = heed__quotient(x->shape[last - 1], d);
  view->stride[last - 2] = step * d;
}

/* ---- Masks over keys of which the first are not there any more ---- */

/* What a mask [..., keys] says of the keys from `skipped` on; `shorter`: a smaller one hides the rest. *made
 * is to be freed. A mask of 1 is for all keys. */
static heed_status skip_keys(const heed_module *m, const char *argument, bool shorter, int64_t skipped,
                             int64_t keys, const heed_tensor **mask, heed_tensor *view, heed_tensor **made) {
  const heed_tensor *whole = *mask;
  const int last = whole != NULL ? whole->ndim - 1 : -1;
  if (last < 0 || whole->shape[last] == 1) return HEED_OK;
  const int64_t size = whole->shape[last];
  if (shorter ? size > keys : size != keys) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(
        m->context, HEED_SHAPE,
        "%s: %s is %s and there are %lld keys, those of the cache and of x; its last size must be "
        "%s%lld",
        m->class->name, argument, heed__shape_text(text, whole->ndim, whole->shape), (long long)keys,
        shorter ? "at most " : "", (long long)keys);
  }
  heed__alias_on_stack(view, whole);
  const int64_t seen = size > skipped ? size - skipped : 0;
  if (seen > 0) view->data += skipped * view->stride[last] * (int64_t)heed__element_bytes(view->dtype);
  view->shape[last] = seen;
  view->numel = heed__numel(view->ndim, view->shape, 1);
  *mask = view;
  if (seen == keys - skipped) return HEED_OK;

  /* In full width, for one column alone would be for all keys. */
  heed_status status = heed__widen_mask(m->context, m->class->name, view, keys - skipped, made);
  if (status == HEED_OK) *mask = *made;
  return status;
}

/* ---- Internals ---- */

/* Room for what the kernel fills, [b, h, n, s] without b or h where there are none; and the queries, keys and
 * values as it gets them. */
static heed_status new_internals(const heed__attention_module *a, const heed_tensor view[3], int64_t s,
                                 bool drops, bool spans, heed_attention_internals *internals) {
  heed_context *ctx = a->base.context;
  int64_t shape[4];
  const int ndim = view[0].ndim;
  memcpy(shape, view[0].shape, (size_t)ndim * sizeof *shape);
  shape[ndim - 1] = s;
  heed_status status =
      heed__tensor_new(ctx, a->base.class->name, HEED_FLOAT32, ndim, shape, &internals->scores);
  if (status == HEED_OK)
    status = heed__tensor_new(ctx, a->base.class->name, HEED_FLOAT32, ndim, shape, &internals->weights);
  if (status == HEED_OK && drops)
    status =
        heed__tensor_new(ctx, a->base.class->name, HEED_FLOAT32, ndim, shape, &internals->dropped_weights);
  if (status == HEED_OK)
    status = heed__tensor_from_view(ctx, a->base.class->name, &view[0], &internals->queries);
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    heed_tensor **out = i == 0 ? &internals->keys : &internals->values;
    if (!spans) {
      status = heed__tensor_from_view(ctx, a->base.class->name, &view[1 + i], out);
      continue;
    }
    memcpy(shape, view[1].shape, (size_t)ndim * sizeof *shape);
    shape[ndim - 2] = s;
    status = heed__tensor_new(ctx, a->base.class->name, HEED_FLOAT32, ndim, shape, out);
  }
  return status;
}

/* ---- Heads ---- */

/* The slopes as a tensor without a storage. */
static const heed_tensor *slopes_of(const heed__attention_module *a, heed_tensor *header) {
  if (!a->alibi) return NULL;
  header->storage = NULL;
  header->data = (char *)(uintptr_t)a->slopes;
  header->dtype = HEED_FLOAT32;
  header->ndim = 1;
  header->numel = header->shape[0] = a->num_heads;
  header->stride[0] = 1;
  header->parameter = header->in_storage = false;
  return header;
}

/* ---- Pieces of tokens ---- */

enum {
  PASS_PIECE = 1 << 18, /* elements of a piece, 100 µs: as many as are divided among threads */
  LEAST_TOKENS = 128,   /* from so many on heed__rope's angles are sums, in pieces as in the whole */
};

/* Tokens and items of the batch in a piece of heads [b, h, n, d], or [h, n, d]: some tokens of one item, or
 * all of some items. */
typedef struct pieces {
  int64_t items, tokens, parts, count; /* parts: of the tokens */
} pieces;

static pieces pieces_of(const heed_tensor *heads) {
  const int64_t batch = heads->ndim == 4 ? heads->shape[0] : 1, n = heads->shape[heads->ndim - 2];
  if (heads->numel == 0) return (pieces){0};
  const int64_t item = heads->numel / batch, token = item / n,
                wanted = heed__larger(LEAST_TOKENS, PASS_PIECE / token);
  pieces c = {.items = heed__larger(1, PASS_PIECE / item), .tokens = n};
  if (c.items == 1) c.tokens = heed__parts(n, heed__larger(1, n / wanted));
  c.parts = heed__parts(n, c.tokens);
  c.count = heed__parts(batch, c.items) * c.parts;
  return c;
}

static int64_t narrow(heed_tensor *view, int dim, int64_t first, int64_t most) {
  const int64_t left = view->shape[dim] - first;
  view->data += first * view->stride[dim] * (int64_t)heed__element_bytes(view->dtype);
  view->shape[dim] = left < most ? left : most;
  return view->shape[dim];
}

/* Piece i of heads in *view; its first token from 0. */
static int64_t piece_of(const heed_tensor *heads, const pieces *c, int64_t i, heed_tensor *view) {
  const int64_t first = i % c->parts * c->tokens;
  heed__alias_on_stack(view, heads);
  if (view->ndim == 4) narrow(view, 0, i / c->parts * c->items, c->items);
  narrow(view, view->ndim - 2, first, c->tokens);
  view->numel = heed__numel(view->ndim, view->shape, 1);
  return first;
}

/* Norms and positions of a piece of queries (0) or keys (1), in place. */
static heed_status shape_piece(heed__attention_pass *p, int which, const pieces *c, int64_t i) {
  static const heed_forward_options none = {.size = sizeof none};
  const heed__attention_module *a = (const heed__attention_module *)p->m;
  heed_tensor view, *place = &view;
  const int64_t first = piece_of(&p->view[which], c, i, &view);
  heed_module *norm = p->norm[which];
  heed_status status = HEED_OK;
  if (norm != NULL && !p->normed) status = norm->class->forward(norm, &view, &none, &place, NULL);
  if (status != HEED_OK) return status;
  p->normed = true; /* should there be no memory for the angles, and another try */
  if (a->rotary)
    status = heed__rope(p->m->context, p->m->class->name, &view, p->past + first, &a->rope, &place);
  if (status == HEED_OK) p->normed = false;
  return status;
}

/* A piece of keys (0) or values (1) into the span. */
static heed_status cache_piece(heed__attention_pass *p, int which, const pieces *c, int64_t i) {
  heed_tensor view;
  const int64_t first = piece_of(&p->view[1 + which], c, i, &view);
  const bool whole = heed__kv_span_write(&p->span, which, &view, i / c->parts * c->items, first);
  return whole ? HEED_OK : heed__stopped(p->m->context, p->m->class->name);
}

/* Piece after piece, of two tensors in turn. A piece that was begun is done to its end. */
static heed_status
run_pieces(heed__attention_pass *p, const heed_tensor views[2],
           heed_status (*piece)(heed__attention_pass *p, int which, const pieces *c, int64_t i), bool *done) {
  heed__pace *pace = &p->m->context->pace;
  const pieces of[2] = {pieces_of(&views[0]), pieces_of(&views[1])};
  while (p->at < of[0].count + of[1].count) {
    const int which = p->at >= of[0].count;
    const bool held = pace->held;
    pace->held = true;
    const heed_status status = piece(p, which, &of[which], which == 0 ? p->at : p->at - of[0].count);
    pace->held = held;
    if (status != HEED_OK) return status;
    p->at++;
    if (heed__is_due(pace)) break;
  }
  *done = p->at >= of[0].count + of[1].count;
  return HEED_OK;
}

/* ---- With a cache ---- */

static heed_status check_cache(const heed_module *m, const heed_tensor *x,
                               const heed_forward_options *options) {
  if (options->kv_lengths != NULL) {
    return heed__fail(m->context, HEED_ARGUMENT,
                      "%s: kv_lengths and cache are given; with a cache, key_padding_mask hides keys",
                      m->class->name);
  }
  return heed__kv_cache_check(m, options->cache, x->ndim == 3 ? x->shape[0] : 1, x->shape[x->ndim - 2]);
}

/* The span behind the cache's tokens, which the call attends to. */
static heed_status begin_cache(heed__attention_pass *p) {
  heed__attention_call *call = &p->call;
  const bool batched = p->view[1].ndim == 4;
  heed__kv_span *span = &p->span;
  heed_status status =
      heed__kv_span_begin(p->options.cache, p->m->class->name, p->view[1].shape[p->view[1].ndim - 2], span);
  if (status != HEED_OK) return status;
  p->spans = true;
  call->k = heed__kv_span_view(span, 0, batched, &p->cached[0]);
  call->v = heed__kv_span_view(span, 1, batched, &p->cached[1]);
  if (call->k->dtype == HEED_INT8) {
    call->k_scale = heed__kv_span_view(span, 2, batched, &p->cached[2]);
    call->v_scale = heed__kv_span_view(span, 3, batched, &p->cached[3]);
  }
  call->offset = span->past - span->skipped;
  if (span->skipped == 0) return HEED_OK;
  const int64_t keys = span->past + span->added;
  status = skip_keys(p->m, "attn_mask", true, span->skipped, keys, &call->options.attn_mask, &p->mask[0],
                     &p->made[0]);
  if (status != HEED_OK) return status;
  return skip_keys(p->m, "key_padding_mask", false, span->skipped, keys, &call->key_padding_mask, &p->mask[1],
                   &p->made[1]);
}

/* ---- The pass ---- */

/* Has a plan hold what it reads. */
static heed_status keep(heed__attention_pass *p, const heed_tensor **x) {
  if (p->room != NULL || *x == NULL) return HEED_OK;
  assert(p->kept_count < (int)(sizeof p->kept / sizeof *p->kept));
  heed_tensor *alias = NULL;
  heed_status status = heed__tensor_from_view(p->m->context, p->m->class->name, *x, &alias);
  if (status == HEED_OK) *x = p->kept[p->kept_count++] = alias;
  return status;
}

/* And the parts that it runs: the module may be given others between two slices. */
static void keep_parts(heed__attention_pass *p) {
  heed_module_retain(p->out_proj);
  for (int i = 0; i < 2; i++) heed_module_retain(p->norm[i]);
}

static void drop_parts(heed__attention_pass *p) {
  heed_module_release(p->out_proj);
  for (int i = 0; i < 2; i++) heed_module_release(p->norm[i]);
}

static heed_status keep_inputs(heed__attention_pass *p) {
  const heed_tensor **inputs[] = {&p->options.attn_mask, &p->options.key_padding_mask, &p->options.kv_lengths,
                                  &p->from[0]};
  heed_status status = HEED_OK;
  for (int i = 0; i < 4 && status == HEED_OK; i++) status = keep(p, inputs[i]);
  for (int i = 1; i < 3 && status == HEED_OK; i++) {
    if (p->options.key == NULL)
      p->from[i] = p->from[0];
    else
      status = keep(p, &p->from[i]);
  }
  return status;
}

heed_status heed__attention_pass_begin(heed__attention_pass *p, heed_module *m, const heed_tensor *x,
                                       const heed_forward_options *options, heed__pass_room *room,
                                       heed_tensor **out, heed_attention_internals *internals) {
  heed_status status;
  if ((status = choose_tokens(m, x, options, p->from)) != HEED_OK) return status;
  if (options->cache != NULL && (status = check_cache(m, x, options)) != HEED_OK) return status;
  const heed_module *dropout = heed__module_part(m, "dropout");
  p->m = m;
  p->out_proj = heed__module_part(m, "out_proj");
  p->options = *options;
  p->options.generator = heed__generator(m->context, options->generator);
  p->out = out;
  p->internals = internals;
  p->room = room;
  p->dropout = dropout != NULL ? heed__dropout_active(dropout) : 0;
  p->past = options->cache != NULL ? heed_kv_cache_length(options->cache) : 0;
  for (int i = 0; i < 3; i++) p->projected[i] = NULL;
  for (int i = 0; i < 2; i++)
    p->norm[i] = heed__module_part(m, i == 0 ? "q_norm" : "k_norm"), p->made[i] = NULL;
  p->heads = NULL;
  p->into_view = &p->into;
  p->result = (heed__result){0};
  p->spans = p->normed = false;
  p->kept_count = 0;
  p->open = 0;
  p->at = 0;
  if (room != NULL) return HEED_OK;
  keep_parts(p);
  if ((status = keep_inputs(p)) != HEED_OK) heed__attention_pass_end(p, status);
  return status;
}

static heed_status new_place(heed__attention_pass *p, int i, int ndim, const int64_t *shape,
                             heed_tensor **out) {
  heed_context *ctx = p->m->context;
  const char *name = p->m->class->name;
  if (p->room != NULL && (i == 3 || p->internals == NULL))
    return heed__temporary_new(ctx, name, &p->room->place[i], ndim, shape, out);
  return heed__tensor_new(ctx, name, HEED_FLOAT32, ndim, shape, out);
}

static heed_status begin_linear(heed__attention_pass *p, int i, const heed_module *linear,
                                const heed_tensor *x, heed_tensor **out) {
  const heed__slot *bias_slot = heed__module_slot(linear, "bias"), *scale_slot = NULL;
  const heed_tensor *weight = linear->slots[0].parameter;
  if (weight->dtype == HEED_INT8) scale_slot = heed__module_slot(linear, HEED__SCALE);
  const heed_tensor *bias = bias_slot != NULL ? bias_slot->parameter : NULL;
  const heed_tensor *scale = scale_slot != NULL ? scale_slot->parameter : NULL;
  heed_status status = keep(p, &weight);
  if (status == HEED_OK) status = keep(p, &scale);
  if (status == HEED_OK) status = keep(p, &bias);
  if (status != HEED_OK) return status;
  return heed__linear_begin(p->m->context, &p->linear[i], p->m->class->name, x, weight, scale, bias, out);
}

static heed_status begin_projection(heed__attention_pass *p, int i) {
  const heed__attention_module *a = (const heed__attention_module *)p->m;
  const heed_module *linear = p->m->slots[i].module;
  const heed_tensor *x = p->from[i];
  int64_t shape[3];
  for (int d = 0; d < x->ndim - 1; d++) shape[d] = x->shape[d];
  shape[x->ndim - 1] = linear->slots[0].parameter->shape[0];
  heed_status status = new_place(p, i, x->ndim, shape, &p->projected[i]);
  if (status == HEED_OK) status = begin_linear(p, i, linear, x, &p->projected[i]);
  if (status != HEED_OK) return status;
  if (a->one_head)
    heed__alias_on_stack(&p->view[i], p->projected[i]);
  else
    view_heads(&p->view[i], p->projected[i], a->head_dim);
  return HEED_OK;
}

/* What is asked of attention; made when there are queries, keys and values to name. */
static heed_status make_call(heed__attention_pass *p) {
  const heed__attention_module *a = (const heed__attention_module *)p->m;
  p->call = (heed__attention_call){
      .function = p->m->class->name,
      .q = &p->view[0],
      .k = &p->view[1],
      .v = &p->view[2],
      .options = {.size = sizeof p->call.options,
                  .attn_mask = p->options.attn_mask,
                  .is_causal = a->causal,
                  .window = a->window,
                  .scale = a->scale,
                  .softcap = a->softcap,
                  .dropout_p = p->dropout,
                  .generator = p->options.generator,
                  .kv_lengths = p->options.kv_lengths,
                  .alibi_slopes = slopes_of(a, &p->slopes)},
      .no_heads = a->one_head,
      .key_padding_mask = p->options.key_padding_mask,
  };
  if (!a->sinks) return HEED_OK;
  p->call.options.sinks = heed__module_slot(p->m, "sinks")->parameter;
  return keep(p, &p->call.options.sinks);
}

/* The heads write side by side, [..., n, h · d]: into the result, or into what out_proj reads. */
static heed_status begin_attention(heed__attention_pass *p) {
  const heed__attention_module *a = (const heed__attention_module *)p->m;
  heed_context *ctx = p->m->context;
  heed__attention_call *call = &p->call;
  const heed_tensor *like = p->projected[0];
  heed_status status = HEED_OK;
  if (p->internals != NULL) {
    status =
        new_internals(a, p->view, call->k->shape[call->k->ndim - 2], p->dropout > 0, p->spans, p->internals);
    if (status != HEED_OK) return status;
    call->scores = p->internals->scores;
    call->weights = p->internals->weights;
    call->dropped_weights = p->internals->dropped_weights;
  }
  if (p->out_proj != NULL) {
    status = new_place(p, 3, like->ndim, like->shape, &p->heads);
  } else {
    const heed_tensor *inputs[] = {p->options.attn_mask, p->options.key_padding_mask, p->options.kv_lengths,
                                   call->options.sinks};
    status = heed__result_begin(ctx, call->function, &p->result, p->out, HEED_FLOAT32, like->ndim,
                                like->shape, false, 4, inputs);
  }
  if (status != HEED_OK) return status;
  const heed_tensor *target = p->out_proj != NULL ? p->heads : p->result.tensor;
  if (a->one_head)
    heed__alias_on_stack(&p->into, target);
  else
    view_heads(&p->into, target, a->head_dim);
  return heed__attention_work_begin(ctx, &p->attention, call, p->room != NULL ? &p->room->attention : NULL,
                                    &p->into_view);
}

heed_status heed__attention_stage_begin(heed__attention_pass *p, int stage) {
  heed_status status = HEED_OK;
  switch (stage) {
  case HEED__PASS_QUERIES:
  case HEED__PASS_KEYS:
  case HEED__PASS_VALUES: status = begin_projection(p, stage); break;
  case HEED__PASS_CACHE:
    status = make_call(p);
    if (status == HEED_OK && p->options.cache != NULL) status = begin_cache(p);
    break;
  case HEED__PASS_ATTENTION: status = begin_attention(p); break;
  case HEED__PASS_OUT:
    if (p->out_proj != NULL) status = begin_linear(p, 3, p->out_proj, p->heads, p->out);
    break;
  default: break;
  }
  if (status == HEED_OK) p->open |= 1u << stage;
  return status;
}

static heed__linear_work *linear_of_stage(heed__attention_pass *p, int stage) {
  if (stage <= HEED__PASS_VALUES) return &p->linear[stage];
  return stage == HEED__PASS_OUT && p->out_proj != NULL ? &p->linear[3] : NULL;
}

heed_status heed__attention_stage_run(heed__attention_pass *p, int stage, bool *done) {
  const heed__attention_module *a = (const heed__attention_module *)p->m;
  heed__linear_work *linear = linear_of_stage(p, stage);
  *done = true;
  if (linear != NULL)
    *done = heed__linear_run(p->m->context, linear);
  else if (stage == HEED__PASS_ATTENTION)
    *done = heed__attention_work_run(p->m->context, &p->attention);
  else if (stage == HEED__PASS_SHAPE && (a->qk_norm || a->rotary))
    return run_pieces(p, p->view, shape_piece, done);
  else if (stage == HEED__PASS_CACHE && p->spans)
    return run_pieces(p, &p->view[1], cache_piece, done);
  return HEED_OK;
}

/* The keys and values that the internals have not yet: those of the span, all at once. */
static void read_span(heed__attention_pass *p) {
  heed__pace *pace = &p->m->context->pace;
  const bool held = pace->held;
  pace->held = true;
  (void)!heed__kv_span_read(&p->span, 0, p->internals->keys);
  (void)!heed__kv_span_read(&p->span, 1, p->internals->values);
  pace->held = held;
}

static heed_status end_stage(heed__attention_pass *p, int stage, heed_status status) {
  heed_context *ctx = p->m->context;
  heed__linear_work *linear = linear_of_stage(p, stage);
  p->open &= ~(1u << stage);
  p->at = 0;
  if (linear != NULL) return heed__linear_end(ctx, linear, status);
  if (stage != HEED__PASS_ATTENTION) return status;
  if (status == HEED_OK && p->spans && p->internals != NULL) read_span(p);
  status = heed__attention_work_end(ctx, &p->attention, status);
  return p->out_proj == NULL ? heed__result_end(ctx, &p->result, status) : status;
}

heed_status heed__attention_stage_end(heed__attention_pass *p, int stage) {
  return end_stage(p, stage, HEED_OK);
}

void heed__attention_pass_end(heed__attention_pass *p, heed_status status) {
  for (int stage = 0; stage < HEED__PASS_STAGES; stage++) {
    if (p->open >> stage & 1) (void)!end_stage(p, stage, HEED_CANCELLED);
  }
  if (p->result.tensor != NULL) (void)!heed__result_end(p->m->context, &p->result, HEED_CANCELLED);
  if (p->spans) {
    if (status == HEED_OK) heed__kv_span_commit(&p->span);
    heed__kv_span_end(&p->span);
  }
  for (int i = 0; i < 2; i++) heed_tensor_free(p->made[i]);
  for (int i = 0; i < 3; i++) heed_tensor_free(p->projected[i]);
  heed_tensor_free(p->heads);
  for (int i = 0; i < p->kept_count; i++) heed_tensor_free(p->kept[i]);
  if (p->room == NULL) drop_parts(p);
}

/* ---- How far it is ---- */

double heed__attention_stage_work(const heed__attention_pass *p, int stage) {
  const heed__attention_module *a = (const heed__attention_module *)p->m;
  switch (stage) {
  case HEED__PASS_SHAPE:
    return a->qk_norm || a->rotary ? 16 * (double)(p->view[0].numel + p->view[1].numel) : 0;
  case HEED__PASS_CACHE: return p->spans ? 16 * (double)(p->view[1].numel + p->view[2].numel) : 0;
  case HEED__PASS_ATTENTION: /* half as many where it is causal, but they take longer than those of products
                              */
    return 2 * (double)p->view[0].numel * (double)p->call.k->shape[p->call.k->ndim - 2];
  case HEED__PASS_OUT:
    return p->out_proj == NULL ? 0
                               : (double)p->heads->numel * (double)p->out_proj->slots[0].parameter->shape[0];
  default:
    return (double)p->projected[stage]->numel * (double)p->from[stage]->shape[p->from[stage]->ndim - 1];
  }
}

double heed__attention_stage_progress(const heed__attention_pass *p, int stage) {
  if (stage == HEED__PASS_ATTENTION) return heed__attention_work_progress(&p->attention);
  if (stage == HEED__PASS_OUT) return p->out_proj != NULL ? heed__linear_progress(&p->linear[3]) : 0;
  if (stage <= HEED__PASS_VALUES) return heed__linear_progress(&p->linear[stage]);
  const heed_tensor *first = &p->view[stage == HEED__PASS_CACHE];
  const int64_t count = pieces_of(first).count + pieces_of(first + 1).count;
  return (double)p->at / (double)heed__larger(count, 1);
}

/* ---- In one go ---- */

static heed_status long_way(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                            heed_tensor **out, heed_attention_internals *internals) {
  heed__attention_pass p;
  heed__pass_room room;
  heed_generator before;
  heed_status status = heed__attention_pass_begin(&p, m, x, options, &room, out, internals);
  if (status != HEED_OK) return status;
  if (p.dropout > 0) before = *p.options.generator;
  for (int stage = 0; stage < HEED__PASS_STAGES && status == HEED_OK; stage++) {
    bool done = false;
    status = heed__attention_stage_begin(&p, stage);
    while (status == HEED_OK && !done) {
      status = heed__attention_stage_run(&p, stage, &done);
      if (status == HEED_OK && !done) status = heed__stopped(m->context, m->class->name);
    }
    if (status == HEED_OK) status = heed__attention_stage_end(&p, stage);
  }
  if (status != HEED_OK && p.dropout > 0)
    *p.options.generator = before; /* so that another try draws the same */
  heed__attention_pass_end(&p, status);
  return status;
}

heed_status heed__attention_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                    heed_tensor **out, heed_attention_internals *internals) {
  heed__small_pass pass;
  if (internals == NULL && heed__small_pass_takes(m, x, options, &pass))
    return heed__small_pass_run(m, x, &pass, out);
  return long_way(m, x, options, out, internals);
}
