/* LayerNorm and RMSNorm: normalisation over the last dimensions. */
#include "nn.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

typedef struct norm_module {
  heed_module base;
  heed__sizes normalized_shape;
  double eps; /* below 0: None, PyTorch's default */
  bool affine;
} norm_module;

static const heed__setting norm_settings[] = {
    {"normalized_shape", HEED__SETTING_SIZES, offsetof(norm_module, normalized_shape), NULL},
    {"eps", HEED__SETTING_POSITIVE, offsetof(norm_module, eps), heed__setting_not_negative},
    {"elementwise_affine", HEED__SETTING_BOOLEAN, offsetof(norm_module, affine), NULL},
    {0},
};

/* ---- Forward ---- */

/* The weight or bias; NULL if the module has none. */
static const heed_tensor *parameter(const heed_module *m, const char *name) {
  const heed__slot *slot = heed__module_slot(m, name);
  return slot != NULL ? slot->parameter : NULL;
}

static heed_status check_normed(const heed_module *m, const heed_tensor *x) {
  const heed__sizes *sizes = &((const norm_module *)m)->normalized_shape;
  const int first = x->ndim - sizes->count;
  if (first >= 0 && heed__same_shape(sizes->count, x->shape + first, sizes->count, sizes->size))
    return HEED_OK;
  char have[HEED__SHAPE_TEXT], need[HEED__SHAPE_TEXT];
  return heed__fail(m->context, HEED_SHAPE, "%s: x is %s; its last sizes must be %s, the normalized_shape",
                    m->class->name, heed__shape_text(have, x->ndim, x->shape),
                    heed__shape_text(need, sizes->count, sizes->size));
}

static heed_status layer_norm(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                              heed_tensor **out, heed_attention_taps *taps) {
  (void)options, (void)taps;
  const norm_module *n = (const norm_module *)m;
  heed_status status = check_normed(m, x);
  if (status != HEED_OK) return status;
  return heed__layer_norm(m->context, m->class->name, x, n->normalized_shape.count, parameter(m, "weight"),
                          parameter(m, "bias"), n->eps, out);
}

static heed_status rms_norm(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                            heed_tensor **out, heed_attention_taps *taps) {
  (void)options, (void)taps;
  const norm_module *n = (const norm_module *)m;
  heed_status status = check_normed(m, x);
  if (status != HEED_OK) return status;
  return heed__rms_norm(m->context, m->class->name, x, n->normalized_shape.count, parameter(m, "weight"),
                        n->eps < 0 ? FLT_EPSILON : n->eps, out);
}

/* ---- Text ---- */

static void describe_rms_norm(const heed_module *m, char *text, size_t size) {
  const norm_module *n = (const norm_module *)m;
  char sizes[HEED__SHAPE_TEXT], eps[HEED__NUMBER_TEXT];
  snprintf(text, size, "%s, eps=%s, elementwise_affine=%s", heed__python_sizes(sizes, &n->normalized_shape),
           n->eps < 0 ? "None" : heed__python_number(eps, n->eps), n->affine ? "True" : "False");
}

static void describe_layer_norm(const heed_module *m, char *text, size_t size) {
  char start[HEED__SHAPE_TEXT + 2 * HEED__NUMBER_TEXT];
  describe_rms_norm(m, start, sizeof start);
  snprintf(text, size, "%s, bias=%s", start, parameter(m, "bias") != NULL ? "True" : "False");
}

/* ---- Constructors ---- */

static const heed__class layer_norm_class = {
    .name = "LayerNorm", .settings = norm_settings, .forward = layer_norm, .describe = describe_layer_norm};
static const heed__class rms_norm_class = {
    .name = "RMSNorm", .settings = norm_settings, .forward = rms_norm, .describe = describe_rms_norm};

static heed_status check_sizes(heed_context *ctx, const char *function, int ndim, const int64_t *shape,
                               double epsilon) {
  if (shape == NULL) return heed__refuse_pointer(ctx, function, "normalized_shape", NULL);
  if (ndim < 1 || ndim > HEED_MAX_DIMS) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: normalized_shape has %d sizes; it must have 1 to %d", function,
                      ndim, HEED_MAX_DIMS);
  }
  for (int i = 0; i < ndim; i++) {
    if (shape[i] >= 1) continue;
    char text[HEED__SHAPE_TEXT];
    return heed__fail(ctx, HEED_ARGUMENT, "%s: normalized_shape is %s; its sizes must be at least 1",
                      function, heed__shape_text(text, ndim, shape));
  }
  if (!isfinite(epsilon)) {
    return heed__fail(ctx, HEED_ARGUMENT, "%s: eps is %s; it must be finite", function, HEED__G(epsilon));
  }
  return HEED_OK;
}

static heed_status new_norm(heed_context *ctx, const heed__class *class, int ndim, const int64_t *shape,
                            double epsilon, bool affine, bool bias, heed_module **out) {
  heed_module *m = NULL;
  heed_status status = heed__module_new(ctx, class, sizeof(norm_module), 0, &m);
  if (status != HEED_OK) return status;
  norm_module *n = (norm_module *)m;
  n->normalized_shape.count = ndim;
  for (int i = 0; i < ndim; i++) n->normalized_shape.size[i] = shape[i];
  n->eps = epsilon;
  n->affine = affine;
  const heed__new_entry entries[] = {
      {affine ? HEED__WEIGHT : NULL, HEED__INIT_FILLED, 1, ndim, shape},
      {affine && bias ? "bias" : NULL, HEED__INIT_FILLED, 0, ndim, shape},
  };
  return heed__module_finish(m, NULL, 2, entries, out);
}

heed_status heed_layer_norm_new(heed_context *ctx, int ndim, const int64_t *shape, double epsilon,
                                bool affine, bool bias, heed_module **out) {
  HEED__ENTER(ctx, "LayerNorm", out);
  heed_status status = check_sizes(ctx, layer_norm_class.name, ndim, shape, epsilon);
  if (status != HEED_OK) return status;
  if (epsilon < 0)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: eps is %s; it must be 0 or more", layer_norm_class.name,
                      HEED__G(epsilon));
  return new_norm(ctx, &layer_norm_class, ndim, shape, epsilon, affine, bias, out);
}

heed_status heed_rms_norm_new(heed_context *ctx, int ndim, const int64_t *shape, double epsilon, bool affine,
                              heed_module **out) {
  HEED__ENTER(ctx, "RMSNorm", out);
  heed_status status = check_sizes(ctx, rms_norm_class.name, ndim, shape, epsilon);
  if (status != HEED_OK) return status;
  return new_norm(ctx, &rms_norm_class, ndim, shape, epsilon, affine, false, out);
}
