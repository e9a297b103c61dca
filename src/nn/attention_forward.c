/* The forward pass of the attention modules that softmax over the keys: projections, heads, and, where the
 * module or the call has them, norms, positions and a cache, through the fused kernel. */
#include "nn.h"

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

/* The norm `part` ("q_norm") of each head, in place. */
static heed_status norm_heads(const heed_module *m, const char *part, heed_tensor *heads) {
  static const heed_forward_options none = {.size = sizeof none};
  heed_module *norm = heed__module_part(m, part);
  return norm->class->forward(norm, heads, &none, &heads, NULL);
}

/* Turns heads by the positions of their tokens, of which the first is `offset` + 1, in place. */
static heed_status turn_heads(const heed_module *m, heed_tensor *heads, int64_t offset) {
  return heed__rope(m->context, m->class->name, heads, offset, &((const heed__attention_module *)m)->rope,
                    &heads);
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
                                 bool drops, const heed__kv_span *span, heed_attention_internals *internals) {
  heed_context *ctx = a->base.context;
  int64_t shape[4];
  const int ndim = view[0].ndim;
  memcpy(shape, view[0].shape, (size_t)ndim * sizeof *shape);
  shape[ndim - 1] = s;
  heed_status status = heed_tensor_new(ctx, HEED_FLOAT32, ndim, shape, &internals->scores);
  if (status == HEED_OK) status = heed_tensor_new(ctx, HEED_FLOAT32, ndim, shape, &internals->weights);
  if (status == HEED_OK && drops)
    status = heed_tensor_new(ctx, HEED_FLOAT32, ndim, shape, &internals->dropped_weights);
  if (status == HEED_OK) status = heed__tensor_from_view(ctx, &view[0], &internals->queries);
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    heed_tensor **out = i == 0 ? &internals->keys : &internals->values;
    if (span == NULL) {
      status = heed__tensor_from_view(ctx, &view[1 + i], out);
      continue;
    }
    memcpy(shape, view[1].shape, (size_t)ndim * sizeof *shape);
    shape[ndim - 2] = s;
    status = heed_tensor_new(ctx, HEED_FLOAT32, ndim, shape, out);
    if (status == HEED_OK && !heed__kv_span_read(span, i, *out))
      status = heed__stopped(ctx, a->base.class->name);
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

/* Norms and positions; the first new token is `past` + 1. */
static heed_status shape_heads(const heed_module *m, heed_tensor view[3], int64_t past) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  heed_status status = HEED_OK;
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    if (a->qk_norm) status = norm_heads(m, i == 0 ? "q_norm" : "k_norm", &view[i]);
    if (a->rotary && status == HEED_OK) status = turn_heads(m, &view[i], past);
  }
  return status;
}

/* ---- With a cache ---- */

/* The cache in one pass. */
typedef struct memory {
  bool begun;
  heed__kv_span span;
  heed_tensor kept[4], mask[2]; /* views */
  heed_tensor *made[2];
} memory;

static heed_status check_cache(const heed_module *m, const heed_tensor *x,
                               const heed_forward_options *options) {
  if (options->kv_lengths != NULL) {
    return heed__fail(m->context, HEED_ARGUMENT,
                      "%s: kv_lengths and cache are given; with a cache, key_padding_mask hides keys",
                      m->class->name);
  }
  return heed__kv_cache_check(m, options->cache, x->ndim == 3 ? x->shape[0] : 1, x->shape[x->ndim - 2]);
}

/* Puts the call's keys and values behind those of the cache, and has it attend to all that can be seen. */
static heed_status use_cache(const heed_module *m, heed_kv_cache *cache, heed__attention_call *call,
                             memory *with) {
  const heed_tensor *k = call->k, *v = call->v;
  const bool batched = k->ndim == 4;
  heed__kv_span *span = &with->span;
  heed_status status = heed__kv_span_begin(cache, m->class->name, k->shape[k->ndim - 2], span);
  if (status != HEED_OK) return status;
  with->begun = true;
  with->made[0] = with->made[1] = NULL;
  if (!heed__kv_span_write(span, 0, k) || !heed__kv_span_write(span, 1, v))
    return heed__stopped(m->context, m->class->name);
  call->k = heed__kv_span_view(span, 0, batched, &with->kept[0]);
  call->v = heed__kv_span_view(span, 1, batched, &with->kept[1]);
  if (call->k->dtype == HEED_INT8) {
    call->k_scale = heed__kv_span_view(span, 2, batched, &with->kept[2]);
    call->v_scale = heed__kv_span_view(span, 3, batched, &with->kept[3]);
  }
  call->offset = span->past - span->skipped;
  if (span->skipped == 0) return HEED_OK;
  const int64_t keys = span->past + span->added;
  status = skip_keys(m, "attn_mask", true, span->skipped, keys, &call->options.attn_mask, &with->mask[0],
                     &with->made[0]);
  if (status != HEED_OK) return status;
  return skip_keys(m, "key_padding_mask", false, span->skipped, keys, &call->key_padding_mask, &with->mask[1],
                   &with->made[1]);
}

/* Remembers the new tokens if the pass went well; returns status. */
static heed_status finish_cache(memory *with, heed_status status) {
  if (!with->begun) return status;
  if (status == HEED_OK) heed__kv_span_commit(&with->span);
  heed__kv_span_end(&with->span);
  for (int i = 0; i < 2; i++) heed_tensor_free(with->made[i]);
  return status;
}

/* ---- The pass ---- */

static heed_status long_way(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                            heed_tensor **out, heed_attention_internals *internals) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  const heed_module *out_proj = heed__module_part(m, "out_proj"), *dropout = heed__module_part(m, "dropout");
  const double p = dropout != NULL ? heed__dropout_active(dropout) : 0;
  const char *name = m->class->name;
  heed_context *ctx = m->context;
  heed_generator *g = heed__generator(ctx, options->generator), before;
  const heed_tensor *from[3];
  heed_tensor *projected[3] = {NULL}, *heads = NULL, view[3], into, *into_view = &into;
  heed_tensor slopes;
  heed__temporary place[4]; /* not for internals, which stay */
  memory with;
  with.begun = false;
  heed__result result = {0};
  heed_status status;
  if ((status = choose_tokens(m, x, options, from)) != HEED_OK) return status;
  if (options->cache != NULL && (status = check_cache(m, x, options)) != HEED_OK) return status;
  if ((status = heed__project(m, from, internals != NULL ? NULL : place, projected)) != HEED_OK) goto done;
  for (int i = 0; i < 3; i++) {
    if (a->one_head) {
      heed__alias_on_stack(&view[i], projected[i]);
    } else {
      view_heads(&view[i], projected[i], a->head_dim);
    }
  }
  const int64_t past = options->cache != NULL ? heed_kv_cache_length(options->cache) : 0;
  if ((a->qk_norm || a->rotary) && (status = shape_heads(m, view, past)) != HEED_OK) goto done;
  heed__attention_call call = {
      .function = name,
      .q = &view[0],
      .k = &view[1],
      .v = &view[2],
      .options = {.attn_mask = options->attn_mask,
                  .is_causal = a->causal,
                  .window = a->window,
                  .scale = a->scale,
                  .softcap = a->softcap,
                  .dropout_p = p,
                  .generator = g,
                  .kv_lengths = options->kv_lengths,
                  .alibi_slopes = slopes_of(a, &slopes)},
      .no_heads = a->one_head,
      .key_padding_mask = options->key_padding_mask,
  };
  if (a->sinks) call.options.sinks = heed__module_slot(m, "sinks")->parameter;
  if (options->cache != NULL && (status = use_cache(m, options->cache, &call, &with)) != HEED_OK) goto done;
  if (internals != NULL) {
    status = new_internals(a, view, call.k->shape[call.k->ndim - 2], p > 0, with.begun ? &with.span : NULL,
                           internals);
    if (status != HEED_OK) goto done;
    call.scores = internals->scores;
    call.weights = internals->weights;
    call.dropped_weights = internals->dropped_weights;
  }

  /* The heads write side by side, [..., n, h · d]: into the result, or into what out_proj reads. */
  if (out_proj != NULL) {
    status = heed__temporary_new(ctx, name, &place[3], projected[0]->ndim, projected[0]->shape, &heads);
  } else {
    const heed_tensor *inputs[] = {options->attn_mask, options->key_padding_mask, options->kv_lengths,
                                   call.options.sinks};
    status = heed__result_begin(ctx, name, &result, out, HEED_FLOAT32, projected[0]->ndim,
                                projected[0]->shape, false, 4, inputs);
  }
  if (status != HEED_OK) goto done;
  const heed_tensor *target = out_proj != NULL ? heads : result.tensor;
  if (a->one_head) {
    heed__alias_on_stack(&into, target);
  } else {
    view_heads(&into, target, a->head_dim);
  }
  if (p > 0) before = *g;
  status = heed__attention(ctx, &call, &into_view);
  if (out_proj == NULL) {
    status = heed__result_end(ctx, &result, status);
  } else if (status == HEED_OK) {
    status = heed__linear_apply(out_proj, name, heads, out);
  }
  if (status != HEED_OK && p > 0) *g = before; /* so that another try draws the same */
done:
  status = finish_cache(&with, status);
  for (int i = 0; i < 3; i++) heed_tensor_free(projected[i]);
  heed_tensor_free(heads);
  return status;
}

heed_status heed__attention_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                    heed_tensor **out, heed_attention_internals *internals) {
  heed__small_pass pass;
  if (internals == NULL && heed__small_pass_takes(m, x, options, &pass))
    return heed__small_pass_run(m, x, &pass, out);
  return long_way(m, x, options, out, internals);
}
