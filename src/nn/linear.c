/* Linear: y = x weightᵀ + bias. */
#include "nn.h"

#include <math.h>
#include <stdio.h>

typedef struct linear {
  heed_module base;
  int64_t in_features, out_features;
} linear;

static const heed__setting linear_settings[] = {
    {"in_features", HEED__SETTING_INTEGER, offsetof(linear, in_features), NULL},
    {"out_features", HEED__SETTING_INTEGER, offsetof(linear, out_features), NULL},
    {0},
};

heed_status heed__linear_apply(const heed_module *m, const char *function, const heed_tensor *x,
                               heed_tensor **out) {
  const heed__slot *slot = heed__module_slot(m, "bias");
  const heed_tensor *weight = m->slots[0].parameter, *bias = slot != NULL ? slot->parameter : NULL;
  if (weight->dtype != HEED_INT8) return heed__linear(m->context, function, x, weight, bias, out);
  const heed_tensor *scale = heed__module_slot(m, HEED__SCALE)->parameter;
  return heed__linear_int8(m->context, function, x, weight, scale, bias, out);
}

static heed_status linear_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                  heed_tensor **out, heed_attention_taps *taps) {
  (void)options, (void)taps;
  return heed__linear_apply(m, "Linear", x, out);
}

static void describe_linear(const heed_module *m, char *text, size_t size) {
  const linear *l = (const linear *)m;
  snprintf(text, size, "in_features=%lld, out_features=%lld, bias=%s", (long long)l->in_features,
           (long long)l->out_features, heed__module_slot(m, "bias") != NULL ? "True" : "False");
}

static heed_status resize_linear(heed_module *m, const heed_tensor *weight) {
  linear *l = (linear *)m;
  const long long rows = weight->shape[0], columns = weight->shape[1];
  if (weight->shape[0] != l->out_features && heed__module_slot(m, "bias") != NULL) {
    return heed__fail(m->context, HEED_SHAPE,
                      "Linear: weight is [%lld, %lld]; its first size must be %lld, that of bias; make a new "
                      "Linear(%lld, %lld)",
                      rows, columns, (long long)l->out_features, columns, rows);
  }
  l->in_features = weight->shape[1];
  l->out_features = weight->shape[0];
  return HEED_OK;
}

static const heed__class linear_class = {.name = "Linear",
                                         .settings = linear_settings,
                                         .storable = HEED__WEIGHT,
                                         .quantizes = true,
                                         .forward = linear_forward,
                                         .resize = resize_linear,
                                         .describe = describe_linear};

bool heed__is_linear(const heed_module *m) {
  return m->class == &linear_class;
}

static heed_status new_linear(heed_context *ctx, int64_t d_in, int64_t d_out, heed_module **out) {
  const heed_status status = heed__module_new(ctx, &linear_class, sizeof(linear), 0, out);
  if (status != HEED_OK) return status;
  linear *l = (linear *)*out;
  l->in_features = d_in;
  l->out_features = d_out;
  return HEED_OK;
}

heed_status heed__linear_from(heed_context *ctx, heed_tensor *weight, heed_tensor *scale, heed_tensor *bias,
                              heed_module **out) {
  heed_module *m = NULL;
  heed_status status = new_linear(ctx, weight->shape[1], weight->shape[0], &m);
  if (status != HEED_OK) {
    heed_tensor_free(weight);
    heed_tensor_free(scale);
    heed_tensor_free(bias);
    return status;
  }
  heed__module_add_parameter(m, HEED__WEIGHT, weight);
  if (scale != NULL) heed__module_add_parameter(m, HEED__SCALE, scale);
  if (bias != NULL) heed__module_add_parameter(m, "bias", bias);
  *out = m;
  return HEED_OK;
}

heed_status heed_linear_new(heed_context *ctx, heed_generator *g, int64_t d_in, int64_t d_out, bool bias,
                            heed_module **out) {
  HEED__ENTER(ctx, "Linear", out);
  HEED__MAY_ENTER(ctx, "Linear", g);
  heed_module *m = NULL;
  const int64_t shape[] = {d_out, d_in};
  heed_status status;
  if ((status = heed__check_positive(ctx, "Linear", "d_in", d_in)) != HEED_OK) return status;
  if ((status = heed__check_positive(ctx, "Linear", "d_out", d_out)) != HEED_OK) return status;
  if ((status = heed__check_shape(ctx, "Linear", 2, shape, HEED_FLOAT32, NULL)) != HEED_OK) return status;
  if ((status = new_linear(ctx, d_in, d_out, &m)) != HEED_OK) return status;
  const double bound = 1 / sqrt((double)d_in);
  const heed__new_entry entries[] = {
      {HEED__WEIGHT, HEED__INIT_UNIFORM, bound, 2, shape},
      {bias ? "bias" : NULL, HEED__INIT_UNIFORM, bound, 1, shape},
  };
  return heed__module_finish(m, g, 2, entries, out);
}
