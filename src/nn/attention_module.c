/* What the attention modules share: settings, projections, and the forward pass through the fused kernel. */
#include "nn.h"

#include <math.h>

/* ---- Making ---- */

void heed_attention_config_init(heed_attention_config *config) {
  *config = (heed_attention_config){
      .num_heads = 1, .softmax_dim = -1, .causal = true, .out_proj = true, .out_bias = true};
}

heed_status heed__check_positive(heed_context *ctx, const char *function, const char *argument,
                                 int64_t value) {
  if (value >= 1) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is %lld; it must be at least 1", function, argument,
                    (long long)value);
}

heed_status heed__attention_check(heed_context *ctx, const heed__class *class, bool bounded,
                                  const heed_attention_config *config) {
  heed_status status;
  if (config == NULL) return heed__fail(ctx, HEED_ARGUMENT, "%s: config is missing (NULL)", class->name);
  if ((status = heed__check_positive(ctx, class->name, "d_in", config->d_in)) != HEED_OK) return status;
  if ((status = heed__check_positive(ctx, class->name, "d_out", config->d_out)) != HEED_OK) return status;
  if (bounded || config->context_length < 0) {
    status = heed__check_positive(ctx, class->name, "context_length", config->context_length);
    if (status != HEED_OK) return status;
  }
  return heed__check_probability(ctx, class->name, "dropout", config->dropout);
}

heed_attention_config heed__one_head(const heed_attention_config *config) {
  heed_attention_config one = *config;
  one.num_heads = one.num_kv_heads = 1;
  one.head_dim = one.d_out;
  one.scale = 1 / sqrt((double)one.d_out);
  return one;
}

heed_status heed__attention_module_new(heed_context *ctx, const heed__class *class, bool one_head,
                                       const heed_attention_config *config, heed_module **out) {
  heed_module *m = NULL;
  heed_status status = heed__module_new(ctx, class, sizeof(heed__attention_module), 0, &m);
  if (status != HEED_OK) return status;
  heed__attention_module *a = (heed__attention_module *)m;
  a->d_in = config->d_in;
  a->d_out = config->d_out;
  a->context_length = config->context_length;
  a->num_heads = config->num_heads;
  a->num_kv_heads = config->num_kv_heads;
  a->head_dim = config->head_dim;
  a->softmax_dim = config->softmax_dim;
  a->scale = config->scale;
  a->causal = config->causal;
  a->one_head = one_head;
  *out = m;
  return HEED_OK;
}

heed_status heed__add_linear(heed_module *m, heed_generator *g, const char *name, int64_t d_in, int64_t d_out,
                             bool bias) {
  heed_module *linear = NULL;
  heed_status status = heed_linear_new(m->context, g, d_in, d_out, bias, &linear);
  if (status == HEED_OK) heed__module_add_module(m, name, linear);
  return status;
}

heed_status heed__add_dropout(heed_module *m, double p) {
  heed_module *dropout = NULL;
  heed_status status = heed_dropout_new(m->context, p, &dropout);
  if (status == HEED_OK) heed__module_add_module(m, "dropout", dropout);
  return status;
}

heed_status heed__add_projections(heed_module *m, heed_generator *g, bool bias) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  int64_t q_size = a->num_heads * a->head_dim, kv_size = a->num_kv_heads * a->head_dim;
  heed_status status = heed__add_linear(m, g, "W_query", a->d_in, q_size, bias);
  if (status == HEED_OK) status = heed__add_linear(m, g, "W_key", a->d_in, kv_size, bias);
  if (status == HEED_OK) status = heed__add_linear(m, g, "W_value", a->d_in, kv_size, bias);
  return status;
}

/* ---- Forward ---- */

heed_status heed__attention_check_input(const heed_module *m, const heed_tensor *x) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  const char *name = m->class->name;
  heed_status status = heed__check_dtype(m->context, name, "x", x, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  if ((x->ndim != 2 && x->ndim != 3) || x->shape[x->ndim - 1] != a->d_in) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(m->context, HEED_SHAPE,
                      "%s: x is %s; it must be [n, %lld] or [b, n, %lld], for d_in is %lld", name,
                      heed__shape_text(text, x->ndim, x->shape), (long long)a->d_in, (long long)a->d_in,
                      (long long)a->d_in);
  }
  int64_t n = x->shape[x->ndim - 2];
  if (a->context_length > 0 && n > a->context_length) {
    return heed__fail(m->context, HEED_SHAPE, "%s: x has %lld tokens and context_length is %lld", name,
                      (long long)n, (long long)a->context_length);
  }
  return HEED_OK;
}

heed_status heed__project(const heed_module *m, const heed_tensor *x, heed__temporary place[3],
                          heed_tensor *projected[3]) {
  heed_status status = HEED_OK;
  int64_t shape[HEED_MAX_DIMS];
  for (int i = 0; i < x->ndim; i++) shape[i] = x->shape[i];
  for (int i = 0; i < 3 && status == HEED_OK; i++) {
    const heed_module *linear = m->slots[i].module;
    if (place != NULL) {
      shape[x->ndim - 1] = linear->slots[0].parameter->shape[0];
      status = heed__temporary_new(m->context, m->class->name, &place[i], x->ndim, shape, &projected[i]);
    }
    if (status == HEED_OK) status = heed__linear_apply(linear, m->class->name, x, &projected[i]);
  }
  return status;
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

/* Room for the internals that the kernel fills: [b, h, n, n], b and h where there are such. */
static heed_status new_taps(const heed__attention_module *a, const heed_tensor *x, bool drops,
                            heed_attention_internals *internals) {
  heed_context *ctx = a->base.context;
  int64_t shape[4];
  int ndim = 0;
  if (x->ndim == 3) shape[ndim++] = x->shape[0];
  if (!a->one_head) shape[ndim++] = a->num_heads;
  shape[ndim] = shape[ndim + 1] = x->shape[x->ndim - 2];
  ndim += 2;
  heed_status status = heed_tensor_new(ctx, HEED_FLOAT32, ndim, shape, &internals->scores);
  if (status == HEED_OK) status = heed_tensor_new(ctx, HEED_FLOAT32, ndim, shape, &internals->weights);
  if (status == HEED_OK && drops) {
    status = heed_tensor_new(ctx, HEED_FLOAT32, ndim, shape, &internals->dropped_weights);
  }
  return status;
}

heed_status heed__attention_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                    heed_tensor **out, heed_attention_internals *internals) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  const heed_module *out_proj = heed__module_part(m, "out_proj"), *dropout = heed__module_part(m, "dropout");
  const double p = dropout != NULL ? heed__dropout_active(dropout) : 0;
  heed_context *ctx = m->context;
  heed_generator *g = heed__generator(ctx, options->generator), before;
  heed_tensor *projected[3] = {NULL}, *heads = NULL, view[3], into, *into_view = &into;
  heed__temporary place[4]; /* not for internals, which stay */
  heed__result result = {0};
  heed_status status;
  if ((status = heed__attention_check_input(m, x)) != HEED_OK) return status;
  if ((status = heed__project(m, x, internals != NULL ? NULL : place, projected)) != HEED_OK) goto done;
  for (int i = 0; i < 3; i++) {
    if (a->one_head) {
      heed__alias_on_stack(&view[i], projected[i]);
    } else {
      view_heads(&view[i], projected[i], a->head_dim);
    }
  }
  if (internals != NULL) {
    if ((status = new_taps(a, x, p > 0, internals)) != HEED_OK) goto done;
    if ((status = heed__tensor_from_view(ctx, &view[0], &internals->queries)) != HEED_OK) goto done;
    if ((status = heed__tensor_from_view(ctx, &view[1], &internals->keys)) != HEED_OK) goto done;
    if ((status = heed__tensor_from_view(ctx, &view[2], &internals->values)) != HEED_OK) goto done;
  }

  /* The heads write side by side, [..., n, h · d]: into the result, or into what out_proj reads. */
  if (out_proj != NULL) {
    status =
        heed__temporary_new(ctx, m->class->name, &place[3], projected[0]->ndim, projected[0]->shape, &heads);
  } else {
    status = heed__result_begin(ctx, m->class->name, &result, out, HEED_FLOAT32, projected[0]->ndim,
                                projected[0]->shape, false, 2,
                                (const heed_tensor *const[]){options->attn_mask, options->key_padding_mask});
  }
  if (status != HEED_OK) goto done;
  const heed_tensor *target = out_proj != NULL ? heads : result.tensor;
  if (a->one_head) {
    heed__alias_on_stack(&into, target);
  } else {
    view_heads(&into, target, a->head_dim);
  }
  const heed__attention_call call = {
      .function = m->class->name,
      .q = &view[0],
      .k = &view[1],
      .v = &view[2],
      .options = {options->attn_mask, a->causal, a->scale, p, g},
      .no_heads = a->one_head,
      .key_padding_mask = options->key_padding_mask,
      .scores = internals != NULL ? internals->scores : NULL,
      .weights = internals != NULL ? internals->weights : NULL,
      .dropped_weights = internals != NULL ? internals->dropped_weights : NULL,
  };
  if (p > 0) before = *g;
  status = heed__attention(ctx, &call, &into_view);
  if (out_proj == NULL) {
    status = heed__result_end(ctx, &result, status);
  } else if (status == HEED_OK) {
    status = heed__linear_apply(out_proj, m->class->name, heads, out);
  }
  if (status != HEED_OK && p > 0) *g = before; /* so that another try draws the same */
done:
  for (int i = 0; i < 3; i++) heed_tensor_free(projected[i]);
  heed_tensor_free(heads);
  return status;
}
