/* Linear: y = x weightᵀ + bias. */
#include "nn.h"

#include <math.h>
#include <stdio.h>

typedef struct linear {
  heed_module base;
  int64_t in_features, out_features;
} linear;

static const heed__setting settings[] = {
    {"in_features", HEED__SETTING_INTEGER, offsetof(linear, in_features)},
    {"out_features", HEED__SETTING_INTEGER, offsetof(linear, out_features)},
    {0},
};

heed_status heed__linear_apply(const heed_module *m, const char *function, const heed_tensor *x,
                               heed_tensor **out) {
  const heed__slot *bias = heed__module_slot(m, "bias");
  return heed__linear(m->context, function, x, m->slots[0].parameter, bias != NULL ? bias->parameter : NULL,
                      out);
}

static heed_status forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                           heed_tensor **out, heed_attention_internals *internals) {
  (void)options, (void)internals;
  return heed__linear_apply(m, "Linear", x, out);
}

static void describe(const heed_module *m, char *text, size_t size) {
  const linear *l = (const linear *)m;
  snprintf(text, size, "in_features=%lld, out_features=%lld, bias=%s", (long long)l->in_features,
           (long long)l->out_features, heed__module_slot(m, "bias") != NULL ? "True" : "False");
}

static const heed__class class = {
    .name = "Linear", .settings = settings, .forward = forward, .describe = describe};

heed_status heed__linear_from(heed_context *ctx, heed_tensor *weight, heed_tensor *bias, heed_module **out) {
  heed_module *m = NULL;
  heed_status status = heed__module_new(ctx, &class, sizeof(linear), 0, &m);
  if (status != HEED_OK) {
    heed_tensor_free(weight);
    heed_tensor_free(bias);
    return status;
  }
  linear *l = (linear *)m;
  l->out_features = weight->shape[0];
  l->in_features = weight->shape[1];
  heed__module_add_parameter(m, "weight", weight);
  if (bias != NULL) heed__module_add_parameter(m, "bias", bias);
  *out = m;
  return HEED_OK;
}

/* Uniform in ±bound. */
static heed_status draw(heed_context *ctx, heed_generator *g, double bound, int ndim, const int64_t *shape,
                        heed_tensor **out) {
  return heed__uniform(ctx, "Linear", g, -bound, bound, ndim, shape, out);
}

heed_status heed_linear_new(heed_context *ctx, heed_generator *g, int64_t d_in, int64_t d_out, bool bias,
                            heed_module **out) {
  heed_tensor *weight = NULL, *offset = NULL;
  heed_module *m = NULL;
  const int64_t shape[] = {d_out, d_in};
  heed_status status;
  if ((status = heed__check_positive(ctx, "Linear", "d_in", d_in)) != HEED_OK) return status;
  if ((status = heed__check_positive(ctx, "Linear", "d_out", d_out)) != HEED_OK) return status;
  if ((status = heed__check_shape(ctx, "Linear", 2, shape, HEED_FLOAT32, NULL)) != HEED_OK) return status;

  g = heed__generator(ctx, g);
  const heed_generator before = *g;
  const double bound = 1 / sqrt((double)d_in);
  if ((status = draw(ctx, g, bound, 2, shape, &weight)) != HEED_OK) goto done;
  if (bias && (status = draw(ctx, g, bound, 1, &d_out, &offset)) != HEED_OK) goto done;
  status = heed__linear_from(ctx, weight, offset, &m);
  weight = offset = NULL;
done:
  heed_tensor_free(weight);
  heed_tensor_free(offset);
  return heed__module_finish(status, m, g, &before, out);
}
