/* Dropout: in training, each element is zeroed with probability p and the rest scaled up. */
#include "nn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct dropout {
  heed_module base;
  double p;
} dropout;

static const heed__setting settings[] = {{"p", HEED__SETTING_NUMBER, offsetof(dropout, p)}, {0}};

double heed__dropout_active(const heed_module *m) {
  return m->training ? ((const dropout *)m)->p : 0;
}

static heed_status forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                           heed_tensor **out, heed_attention_internals *internals) {
  (void)internals;
  double p = heed__dropout_active(m);
  heed_status status = heed__check_dtype(m->context, "Dropout", "x", x, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  return heed_dropout(m->context, options->generator, p, x, out);
}

/* A number from 0 to 1 as Python prints it: the fewest digits that give it back, with a point or an exponent.
 */
static void python_text(char text[40], double value) {
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, 32, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  for (char *c = text; *c; c++) {
    if (*c == ',') *c = '.'; /* of the host's locale */
  }
  if (strpbrk(text, ".e") == NULL) strcat(text, ".0");
}

static void describe(const heed_module *m, char *text, size_t size) {
  char p[40];
  python_text(p, ((const dropout *)m)->p);
  snprintf(text, size, "p=%s, inplace=False", p);
}

static const heed__class class = {
    .name = "Dropout", .settings = settings, .forward = forward, .describe = describe};

heed_status heed_dropout_new(heed_context *ctx, double p, heed_module **out) {
  heed_module *m = NULL;
  heed_status status = heed__check_probability(ctx, "Dropout", "p", p);
  if (status != HEED_OK) return status;
  if ((status = heed__module_new(ctx, &class, sizeof(dropout), 0, &m)) != HEED_OK) return status;
  ((dropout *)m)->p = p;
  *out = m;
  return HEED_OK;
}
