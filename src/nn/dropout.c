/* Dropout: in training mode, elements are set to 0 with probability p and the others scaled by 1 / (1 - p).
 */
#include "nn.h"

#include <stdio.h>

typedef struct dropout {
  heed_module base;
  double p;
} dropout;

static heed_status check_p(const heed_module *m, const char *name, heed_scalar value) {
  return heed__check_probability(m->context, m->class->name, name, value.as.number);
}

static const heed__setting dropout_settings[] = {{"p", HEED__SETTING_NUMBER, offsetof(dropout, p), check_p},
                                                 {0}};

double heed__dropout_active(const heed_module *m) {
  return m->training ? ((const dropout *)m)->p : 0;
}

static heed_status dropout_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                   heed_tensor **out, heed_attention_taps *taps) {
  (void)taps;
  double p = heed__dropout_active(m);
  heed_status status = heed__check_dtype(m->context, "Dropout", "x", x, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  /* x itself, as in PyTorch; in training also p = 0 makes a copy, which the notebooks print as MulBackward0
   */
  if (!m->training && *out == NULL) return heed__tensor_from_view(m->context, m->class->name, x, out);
  return heed__drop(m->context, m->class->name, options->generator, p, x, out);
}

static void describe_dropout(const heed_module *m, char *text, size_t size) {
  char p[HEED__NUMBER_TEXT];
  snprintf(text, size, "p=%s, inplace=False", heed__python_number(p, ((const dropout *)m)->p));
}

static const heed__class dropout_class = {.name = "Dropout",
                                          .settings = dropout_settings,
                                          .forward = dropout_forward,
                                          .describe = describe_dropout};

bool heed__is_dropout(const heed_module *m) {
  return m->class == &dropout_class;
}

heed_status heed_dropout_new(heed_context *ctx, double p, heed_module **out) {
  HEED__ENTER(ctx, "Dropout", out);
  heed_module *m = NULL;
  heed_status status = heed__check_probability(ctx, "Dropout", "p", p);
  if (status != HEED_OK) return status;
  if ((status = heed__module_new(ctx, &dropout_class, sizeof(dropout), 0, &m)) != HEED_OK) return status;
  ((dropout *)m)->p = p;
  *out = m;
  return HEED_OK;
}
