/* MultiHeadAttention: one projection each for queries, keys and values, split into heads; then an output
 * projection. */
#include "../nn.h"

#include <math.h>

static heed_status check_cap(const heed_module *m, const char *name, heed_scalar value) {
  (void)name;
  return heed__check_softcap(m->context, m->class->name, value.as.number);
}

static const heed__setting heads_settings[] = {
    {"d_in", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_in), NULL},
    {"d_out", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_out), NULL},
    {"context_length", HEED__SETTING_INTEGER, offsetof(heed__attention_module, context_length),
     heed__check_context_length},
    {"num_heads", HEED__SETTING_INTEGER, offsetof(heed__attention_module, num_heads), NULL},
    {"num_kv_heads", HEED__SETTING_INTEGER, offsetof(heed__attention_module, num_kv_heads), NULL},
    {"head_dim", HEED__SETTING_INTEGER, offsetof(heed__attention_module, head_dim), NULL},
    {"scale", HEED__SETTING_SCALE, offsetof(heed__attention_module, scale), heed__check_scale},
    {"causal", HEED__SETTING_BOOLEAN, offsetof(heed__attention_module, causal), heed__setting_any},
    {"kdim", HEED__SETTING_INTEGER, offsetof(heed__attention_module, kdim), NULL},
    {"vdim", HEED__SETTING_INTEGER, offsetof(heed__attention_module, vdim), NULL},
    {"softcap", HEED__SETTING_NUMBER, offsetof(heed__attention_module, softcap), check_cap},
    {"alibi", HEED__SETTING_BOOLEAN, offsetof(heed__attention_module, alibi), NULL},
    {"qk_norm", HEED__SETTING_BOOLEAN, offsetof(heed__attention_module, qk_norm), NULL},
    {0},
};

/* ---- Constructor ---- */

static const char heads_name[] = "MultiHeadAttention";

/* Sizes of the tokens of keys and values, and what is applied to queries, keys and scores. */
static heed_status check_variant(heed_context *ctx, heed_attention_config *c) {
  heed_status status;
  if (c->kdim == 0) c->kdim = c->d_in;
  if (c->vdim == 0) c->vdim = c->d_in;
  if ((status = heed__check_positive(ctx, heads_name, "kdim", c->kdim)) != HEED_OK) return status;
  if ((status = heed__check_positive(ctx, heads_name, "vdim", c->vdim)) != HEED_OK) return status;
  if ((status = heed__check_window(ctx, heads_name, &c->window)) != HEED_OK) return status;
  if ((status = heed__check_softcap(ctx, heads_name, c->softcap)) != HEED_OK) return status;
  if (c->qk_norm && (!(c->qk_norm_eps >= 0) || !isfinite(c->qk_norm_eps))) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: qk_norm's eps is %s; it must be at least 0, and finite",
                      heads_name, HEED__G(c->qk_norm_eps));
  }
  return c->rope != NULL ? heed__check_rope(ctx, heads_name, c->rope, c->head_dim) : HEED_OK;
}

static heed_status complete_heads(heed_context *ctx, heed_attention_config *c) {
  heed_status status;
  if ((status = heed__check_positive(ctx, heads_name, "num_heads", c->num_heads)) != HEED_OK) return status;
  if (c->num_kv_heads == 0) c->num_kv_heads = c->num_heads;
  if ((status = heed__check_positive(ctx, heads_name, "num_kv_heads", c->num_kv_heads)) != HEED_OK)
    return status;
  if (c->num_heads % c->num_kv_heads != 0) {
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: num_heads is %lld and num_kv_heads is %lld; num_kv_heads must divide num_heads",
                      heads_name, (long long)c->num_heads, (long long)c->num_kv_heads);
  }
  if (c->head_dim == 0) {
    if (c->d_out % c->num_heads != 0) {
      return heed__fail(ctx, HEED_ARGUMENT,
                        "%s: d_out is %lld and num_heads is %lld; num_heads must divide d_out", heads_name,
                        (long long)c->d_out, (long long)c->num_heads);
    }
    c->head_dim = c->d_out / c->num_heads;
  }
  if ((status = heed__check_positive(ctx, heads_name, "head_dim", c->head_dim)) != HEED_OK) return status;
  if ((status = heed__check_finite_scale(ctx, heads_name, c->scale)) != HEED_OK) return status;
  if (c->scale == 0) c->scale = heed__default_scale(c->head_dim);
  const int64_t inner[] = {c->num_heads, c->head_dim};
  if ((status = heed__check_shape(ctx, heads_name, 2, inner, HEED_FLOAT32, NULL)) != HEED_OK) return status;
  return check_variant(ctx, c);
}

const heed__attention_class heed__heads_class = {.base = {.name = heads_name,
                                                          .settings = heads_settings,
                                                          .attends = true,
                                                          .takes_keys = true,
                                                          .staged = true,
                                                          .forward = heed__attention_forward,
                                                          .describe = heed__describe_heads},
                                                 .drops = true,
                                                 .complete = complete_heads};

heed_status heed_multi_head_attention_new(heed_context *ctx, heed_generator *g,
                                          const heed_attention_config *config, heed_module **out) {
  return heed__attention_new(ctx, g, &heed__heads_class, config, out);
}
