/* GELU, SiLU and ReLU: modules without parameters, each a single elementwise operation. */
#include "nn.h"

#include <stdio.h>

#define ACTIVATION(name)                                                                                     \
  static heed_status name(heed_module *m, const heed_tensor *x, const heed_forward_options *options,         \
                          heed_tensor **out, heed_attention_taps *taps) {                                    \
    (void)options, (void)taps;                                                                               \
    return heed_##name(m->context, x, out);                                                                  \
  }
ACTIVATION(gelu)
ACTIVATION(gelu_tanh)
ACTIVATION(silu)
ACTIVATION(relu)

static void describe_gelu(const heed_module *m, char *text, size_t size) {
  snprintf(text, size, "approximate='%s'", m->class->forward == gelu_tanh ? "tanh" : "none");
}

static const heed__class gelu_class = {.name = "GELU", .forward = gelu, .describe = describe_gelu};
static const heed__class gelu_tanh_class = {.name = "GELU", .forward = gelu_tanh, .describe = describe_gelu};
static const heed__class silu_class = {.name = "SiLU", .forward = silu};
static const heed__class relu_class = {.name = "ReLU", .forward = relu};

heed_status heed_gelu_new(heed_context *ctx, bool approximate, heed_module **out) {
  HEED__ENTER(ctx, "GELU", out);
  return heed__module_new(ctx, approximate ? &gelu_tanh_class : &gelu_class, sizeof(heed_module), 0, out);
}

heed_status heed_silu_new(heed_context *ctx, heed_module **out) {
  HEED__ENTER(ctx, "SiLU", out);
  return heed__module_new(ctx, &silu_class, sizeof(heed_module), 0, out);
}

heed_status heed_relu_new(heed_context *ctx, heed_module **out) {
  HEED__ENTER(ctx, "ReLU", out);
  return heed__module_new(ctx, &relu_class, sizeof(heed_module), 0, out);
}
