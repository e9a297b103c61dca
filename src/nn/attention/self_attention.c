/* SelfAttention: one head, every token sees every token. */
#include "../nn.h"

static const heed__setting self_settings[] = {
    {"d_in", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_in), NULL},
    {"d_out", HEED__SETTING_INTEGER, offsetof(heed__attention_module, d_out), NULL},
    {"scale", HEED__SETTING_SCALE, offsetof(heed__attention_module, scale), heed__check_scale},
    {0},
};

static heed_status complete_self(heed_context *ctx, heed_attention_config *config) {
  (void)ctx;
  heed__one_head(config, false);
  return HEED_OK;
}

static const heed__attention_class self_class = {.base = {.name = "SelfAttention",
                                                          .settings = self_settings,
                                                          .attends = true,
                                                          .staged = true,
                                                          .forward = heed__attention_forward,
                                                          .describe = heed__describe_one_head},
                                                 .one_head = true,
                                                 .any_length = true,
                                                 .complete = complete_self};

heed_status heed_self_attention_new(heed_context *ctx, heed_generator *g, const heed_attention_config *config,
                                    heed_module **out) {
  return heed__attention_new(ctx, g, &self_class, config, out);
}
