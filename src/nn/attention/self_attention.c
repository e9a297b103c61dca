/* SelfAttention: one head, every token sees every token. */
#include "../nn.h"

static const heed__setting self_settings[] = {
    {"d_in", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_in)},
    {"d_out", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_out)},
    {0},
};

static const heed__class self_class = {.name = "SelfAttention",
                                       .settings = self_settings,
                                       .attends = true,
                                       .staged = true,
                                       .forward = heed__attention_forward};

heed_status heed_self_attention_new(heed_context *ctx, heed_generator *g, const heed_attention_config *config,
                                    heed_module **out) {
  HEED__ENTER(ctx, self_class.name, config, out);
  HEED__MAY_ENTER(ctx, self_class.name, g);
  heed_module *m = NULL;
  heed__attention_config own;
  heed_status status = heed__attention_config_read(ctx, &self_class, false, config, &own);
  if (status != HEED_OK) return status;
  config = &own.config;
  heed_attention_config one = heed__one_head(config);
  one.causal = false;

  g = heed__generator(ctx, g);
  const heed_generator before = *g;
  if ((status = heed__attention_module_new(ctx, &self_class, true, &one, &m)) != HEED_OK) goto done;
  status = heed__add_projections(m, g, config->qkv_bias);
done:
  return heed__module_finish(status, m, g, &before, out);
}
