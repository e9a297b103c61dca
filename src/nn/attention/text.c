/* The line of settings in the text of attention modules: heads, context and what differs from the defaults.
 */
#include "../nn.h"

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct settings_text {
  char *text;
  size_t size, length;
} settings_text;

/* Appends text, after ", " unless it is the first. */
static void add_setting_text(settings_text *t, const char *format, ...) {
  va_list arguments;
  if (t->length > 0 && t->length + 2 < t->size) t->length += (size_t)snprintf(t->text + t->length, 3, ", ");
  va_start(arguments, format);
  const int count = vsnprintf(t->text + t->length, t->size - t->length, format, arguments);
  va_end(arguments);
  t->length = heed__min_size(t->length + (size_t)count, t->size - 1);
}

static void add_number_text(settings_text *t, const char *name, double value) {
  char number[HEED__NUMBER_TEXT];
  add_setting_text(t, "%s=%s", name, heed__python_number(number, value));
}

/* The smallest normal number stands for 0, which in configs selects the default. */
static void add_scale_text(settings_text *t, const heed__attention_module *a) {
  if (a->scale != heed__default_scale(a->head_dim))
    add_number_text(t, "scale", a->scale == DBL_MIN ? 0 : a->scale);
}

static void add_window_text(settings_text *t, const heed_window *w) {
  if (w->has_left && w->has_right)
    add_setting_text(t, "window=(left=%lld, right=%lld)", (long long)w->left, (long long)w->right);
  else if (w->has_left)
    add_setting_text(t, "window=(left=%lld)", (long long)w->left);
  else if (w->has_right)
    add_setting_text(t, "window=(right=%lld)", (long long)w->right);
}

static void add_rope_text(settings_text *t, const heed_rope_config *rope) {
  static const char *const scalings[] = {
      "", ", scaling=linear", ", scaling=ntk", ", scaling=yarn", ", scaling=llama3", ", scaling=factors"};
  char base[HEED__NUMBER_TEXT], dims[32] = "";
  if (rope->dims > 0) snprintf(dims, sizeof dims, ", dims=%lld", (long long)rope->dims);
  add_setting_text(t, "rope=(base=%s%s%s%s)", heed__python_number(base, rope->base),
                   rope->interleaved ? ", style=interleaved" : "", dims, scalings[rope->scaling]);
}

void heed__describe_heads(const heed_module *m, char *text, size_t size) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  settings_text t = {.text = text, .size = size};
  add_setting_text(&t, "num_heads=%lld", (long long)a->num_heads);
  if (a->num_kv_heads != a->num_heads) add_setting_text(&t, "num_kv_heads=%lld", (long long)a->num_kv_heads);
  if (a->head_dim * a->num_heads != a->d_out) add_setting_text(&t, "head_dim=%lld", (long long)a->head_dim);
  add_setting_text(&t, "context_length=%lld", (long long)a->context_length);
  if (!a->causal) add_setting_text(&t, "causal=False");
  add_scale_text(&t, a);
  add_window_text(&t, &a->window);
  if (a->softcap > 0) add_number_text(&t, "softcap", a->softcap);
  if (a->rotary) add_rope_text(&t, &a->rope);
  if (a->alibi) add_setting_text(&t, "alibi=True");
  if (a->sinks) add_setting_text(&t, "sinks=True");
}

void heed__describe_one_head(const heed_module *m, char *text, size_t size) {
  const heed__attention_module *a = (const heed__attention_module *)m;
  settings_text t = {.text = text, .size = size};
  add_scale_text(&t, a);
  if (m->class == &heed__causal_class.base && a->softmax_dim != -1)
    add_setting_text(&t, "softmax_dim=%lld", (long long)a->softmax_dim);
}
