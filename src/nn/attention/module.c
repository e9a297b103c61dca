/* What the attention modules share: settings and parts. */
#include "../nn.h"

#include <math.h>

/* ---- Making ---- */

void heed_attention_config_init(heed_attention_config *config, size_t size) {
  static const heed_attention_config plain = {
      .num_heads = 1, .softmax_dim = -1, .causal = true, .out_proj = true, .out_bias = true};
  heed__struct_init(config, size, &plain, sizeof plain);
}

heed_status heed__check_positive(heed_context *ctx, const char *function, const char *argument,
                                 int64_t value) {
  if (value >= 1) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is %lld; it must be at least 1", function, argument,
                    (long long)value);
}

heed_status heed__attention_config_read(heed_context *ctx, const heed__class *class, bool bounded,
                                        const heed_attention_config *theirs, heed__attention_config *own) {
  heed_status status;
  heed_attention_config *config = &own->config;
  heed_attention_config_init(config, sizeof *config);
  status =
      heed__struct_read(ctx, class->name, "config", "heed_attention_config", theirs, config, sizeof *config);
  if (status != HEED_OK) return status;
  if (config->rope != NULL) {
    status = heed__rope_config_read(ctx, class->name, "rope", config->rope, &own->rope);
    if (status != HEED_OK) return status;
    config->rope = &own->rope;
  }
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
  one.kdim = one.vdim = 0;
  one.window = (heed_window){0};
  one.softcap = 0;
  one.alibi = one.sinks = one.qk_norm = false;
  one.rope = NULL;
  return one;
}

heed_status heed__attention_module_new(heed_context *ctx, const heed__class *class, bool one_head,
                                       const heed_attention_config *config, heed_module **out) {
  heed_module *m = NULL;
  const size_t slopes = config->alibi ? heed__array_bytes((uint64_t)config->num_heads, sizeof(float)) : 0;
  heed_status status = heed__module_new(ctx, class, sizeof(heed__attention_module) + slopes, 0, &m);
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
  a->kdim = config->kdim > 0 ? config->kdim : config->d_in;
  a->vdim = config->vdim > 0 ? config->vdim : config->d_in;
  a->window = config->window;
  a->softcap = config->softcap;
  a->alibi = config->alibi;
  a->sinks = config->sinks;
  a->qk_norm = config->qk_norm;
  a->rotary = config->rope != NULL;
  if (a->rotary) a->rope = *config->rope;
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
  if (status == HEED_OK) status = heed__add_linear(m, g, "W_key", a->kdim, kv_size, bias);
  if (status == HEED_OK) status = heed__add_linear(m, g, "W_value", a->vdim, kv_size, bias);
  return status;
}

/* ---- Forward ---- */

heed_status heed__project(const heed_module *m, const heed_tensor *const from[3], heed__temporary place[3],
                          heed_tensor *projected[3]) {
  heed_status status = HEED_OK;
  int64_t shape[3];
  for (int i = 0; i < 3 && status == HEED_OK; i++) {
    const heed_module *linear = m->slots[i].module;
    const heed_tensor *x = from[i];
    if (place != NULL) {
      for (int d = 0; d < x->ndim - 1 && (i == 0 || x != from[i - 1]); d++) shape[d] = x->shape[d];
      shape[x->ndim - 1] = linear->slots[0].parameter->shape[0];
      status = heed__temporary_new(m->context, m->class->name, &place[i], x->ndim, shape, &projected[i]);
    }
    if (status == HEED_OK) status = heed__linear_apply(linear, m->class->name, x, &projected[i]);
  }
  return status;
}
