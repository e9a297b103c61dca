/* The one constructor of the attention modules: config, settings, entries. */
#include "../nn.h"

#include <math.h>
#include <string.h>

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

/* ---- Configs ---- */

/* The host's config in *config and *rope, with the checks that all classes share. */
static heed_status read_attention_config(heed_context *ctx, const heed__attention_class *class,
                                         const heed_attention_config *theirs, heed_attention_config *config,
                                         heed_rope_config *rope) {
  const char *name = class->base.name;
  heed_attention_config_init(config, sizeof *config);
  heed_status status =
      heed__struct_read(ctx, name, "config", "heed_attention_config", theirs, config, sizeof *config);
  if (status != HEED_OK) return status;
  if (config->rope != NULL) {
    status = heed__rope_config_read(ctx, name, "rope", config->rope, rope);
    if (status != HEED_OK) return status;
    config->rope = rope;
  }
  if ((status = heed__check_positive(ctx, name, "d_in", config->d_in)) != HEED_OK) return status;
  if ((status = heed__check_positive(ctx, name, "d_out", config->d_out)) != HEED_OK) return status;
  if (!class->any_length || config->context_length < 0) {
    status = heed__check_positive(ctx, name, "context_length", config->context_length);
    if (status != HEED_OK) return status;
  }
  return heed__check_probability(ctx, name, "dropout", config->dropout);
}

heed_status heed__check_softmax_dim(heed_context *ctx, const char *function, int dim) {
  if (dim != 0 && dim >= -3 && dim <= 3) return HEED_OK;
  return heed__fail(ctx, HEED_INDEX, "%s: softmax_dim is %d; it must be from 1 to 3, or from -3 to -1",
                    function, dim);
}

double heed__default_scale(int64_t head_dim) {
  return 1 / sqrt((double)head_dim);
}

heed_status heed__check_finite_scale(heed_context *ctx, const char *function, double scale) {
  if (isfinite(scale)) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: scale is %s; it must be finite", function, HEED__G(scale));
}

heed_status heed__check_scale(const heed_module *m, const char *name, heed_scalar value) {
  (void)name;
  return heed__check_finite_scale(m->context, m->class->name, value.as.number);
}

heed_status heed__check_context_length(const heed_module *m, const char *name, heed_scalar value) {
  return heed__check_positive(m->context, m->class->name, name, value.as.integer);
}

void heed__one_head(heed_attention_config *config, bool causal) {
  config->num_heads = config->num_kv_heads = 1;
  config->head_dim = config->d_out;
  config->scale = heed__default_scale(config->d_out);
  config->causal = causal;
  config->kdim = config->vdim = 0;
  config->window = (heed_window){0};
  config->softcap = 0;
  config->out_proj = config->alibi = config->sinks = config->qk_norm = false;
  config->rope = NULL;
}

/* ---- Modules ---- */

static heed_status new_attention_module(heed_context *ctx, const heed__attention_class *class,
                                        const heed_attention_config *config, heed_module **out) {
  const size_t slopes = config->alibi ? heed__array_bytes((uint64_t)config->num_heads, sizeof(float)) : 0;
  heed_status status = heed__module_new(ctx, &class->base, sizeof(heed__attention_module) + slopes, 0, out);
  if (status != HEED_OK) return status;
  heed__attention_module *a = (heed__attention_module *)*out;
  a->d_in = config->d_in;
  a->d_out = config->d_out;
  a->context_length = config->context_length;
  a->num_heads = config->num_heads;
  a->num_kv_heads = config->num_kv_heads;
  a->head_dim = config->head_dim;
  a->softmax_dim = config->softmax_dim;
  a->scale = config->scale;
  a->causal = config->causal;
  a->one_head = class->one_head;
  a->kdim = config->kdim > 0 ? config->kdim : config->d_in;
  a->vdim = config->vdim > 0 ? config->vdim : config->d_in;
  a->window = config->window;
  a->softcap = config->softcap;
  a->alibi = config->alibi;
  a->sinks = config->sinks;
  a->qk_norm = config->qk_norm;
  a->rotary = config->rope != NULL;
  if (a->rotary) a->rope = *config->rope;
  if (!a->alibi) return HEED_OK;
  status = heed__charge(ctx, class->base.name, (double)a->num_heads);
  if (status == HEED_OK && heed__alibi_slopes(&ctx->pace, a->num_heads, a->slopes)) return HEED_OK;
  heed_module_release(*out);
  return status != HEED_OK ? status : heed__stopped(ctx, class->base.name);
}

heed_status heed__attention_make(heed_context *ctx, heed_generator *g, const heed__attention_class *class,
                                 const heed_attention_config *c, heed_module **out) {
  heed_module *m = NULL;
  const heed_status status = new_attention_module(ctx, class, c, &m);
  if (status != HEED_OK) return status;
  if (class->add_entries != NULL) return class->add_entries(m, g, c, out);
  const heed__attention_module *a = (const heed__attention_module *)m;
  const int64_t q_size = c->num_heads * c->head_dim, kv_size = c->num_kv_heads * c->head_dim;
  const int64_t query[] = {q_size, a->d_in}, key[] = {kv_size, a->kdim}, value[] = {kv_size, a->vdim};
  const int64_t out_proj[] = {c->d_out, q_size};
  const double epsilon = c->qk_norm_eps > 0 ? c->qk_norm_eps : 1e-6;
  const heed__new_entry entries[] = {
      {"W_query", HEED__INIT_LINEAR, c->qkv_bias, 2, query},
      {"W_key", HEED__INIT_LINEAR, c->qkv_bias, 2, key},
      {"W_value", HEED__INIT_LINEAR, c->qkv_bias, 2, value},
      {c->out_proj ? "out_proj" : NULL, HEED__INIT_LINEAR, c->out_bias, 2, out_proj},
      {class->drops ? "dropout" : NULL, HEED__INIT_DROPOUT, c->dropout, 0, NULL},
      {c->qk_norm ? "q_norm" : NULL, HEED__INIT_RMS_NORM, epsilon, 1, &c->head_dim},
      {c->qk_norm ? "k_norm" : NULL, HEED__INIT_RMS_NORM, epsilon, 1, &c->head_dim},
      {c->sinks ? "sinks" : NULL, HEED__INIT_FILLED, 0, 1, &c->num_heads},
  };
  return heed__module_finish(m, g, sizeof entries / sizeof *entries, entries, out);
}

heed_status heed__attention_check_part(const heed_module *m, const char *name, const heed_module *value) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  const int64_t q_size = a->num_heads * a->head_dim, kv_size = a->num_kv_heads * a->head_dim;
  const bool is_out = strcmp(name, "out_proj") == 0, is_query = strcmp(name, "W_query") == 0;
  const int64_t in = is_out ? q_size : is_query ? a->d_in : strcmp(name, "W_key") == 0 ? a->kdim : a->vdim;
  const struct {
    const char *setting;
    int64_t size;
  } needed[] = {{"in_features", in}, {"out_features", is_out ? a->d_out : is_query ? q_size : kv_size}};
  const bool drops = strcmp(name, "dropout") == 0;
  if (drops ? heed__is_linear(value) : heed__is_dropout(value)) { /* most likely a mistake */
    return heed__fail(m->context, HEED_ARGUMENT, "%s: %s is a module of class %s; it must be a %s",
                      m->class->name, name, value->class->name, drops ? "Dropout" : "Linear");
  }
  if (!heed__is_linear(value)) return HEED_OK;
  for (int i = 0; i < 2; i++) {
    heed_scalar is;
    heed_module_setting(value, needed[i].setting, &is);
    if (is.as.integer == needed[i].size) continue;
    return heed__fail(m->context, HEED_ARGUMENT, "%s: %s has %s = %lld; it must be %lld", m->class->name,
                      name, needed[i].setting, (long long)is.as.integer, (long long)needed[i].size);
  }
  return HEED_OK;
}

heed_status heed__attention_new(heed_context *ctx, heed_generator *g, const heed__attention_class *class,
                                const heed_attention_config *config, heed_module **out) {
  HEED__ENTER(ctx, class->base.name, config, out);
  HEED__MAY_ENTER(ctx, class->base.name, g);
  heed_attention_config own;
  heed_rope_config rope;
  heed_status status = read_attention_config(ctx, class, config, &own, &rope);
  if (status == HEED_OK) status = class->complete(ctx, &own);
  return status == HEED_OK ? heed__attention_make(ctx, g, class, &own, out) : status;
}
