/* Settings of modules: reading them by name, and changing those that a constructor could have set otherwise.
 * A change applies to forward passes that begin later; passes in slices keep what they began with. */
#include "nn.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- Reading ---- */

static bool read_setting(const heed_module *m, const heed__setting *s, heed_scalar *out) {
  const char *field = (const char *)m + s->offset;
  double number = 0;
  bool boolean = false;
  switch (s->kind) {
  case HEED__SETTING_INTEGER:
  case HEED__SETTING_INDEX: *out = heed_integer(heed__setting_integer(m, s)); break;
  case HEED__SETTING_NUMBER:
  case HEED__SETTING_SCALE:
  case HEED__SETTING_POSITIVE: memcpy(&number, field, sizeof number), *out = heed_number(number); break;
  case HEED__SETTING_BOOLEAN: memcpy(&boolean, field, sizeof boolean), *out = heed_boolean(boolean); break;
  case HEED__SETTING_SIZES: return false; /* heed__module_sizes */
  }
  return (s->kind != HEED__SETTING_INDEX || out->as.integer > 0) &&
         (s->kind != HEED__SETTING_POSITIVE || number >= 0);
}

static const heed__setting *find_setting(const heed_module *m, const char *name) {
  for (const heed__setting *s = m->class->settings; s != NULL && s->name != NULL; s++) {
    if (strcmp(s->name, name) == 0) return s;
  }
  return NULL;
}

bool heed_module_setting(const heed_module *m, const char *name, heed_scalar *out) {
  const heed__setting *s = m != NULL && name != NULL && out != NULL ? find_setting(m, name) : NULL;
  return s != NULL && read_setting(m, s, out);
}

const heed__sizes *heed__module_sizes(const heed_module *m, const char *name) {
  const heed__setting *s = find_setting(m, name);
  return s != NULL && s->kind == HEED__SETTING_SIZES ? heed__setting_sizes(m, s) : NULL;
}

/* ---- Checks ---- */

heed_status heed__setting_any(const heed_module *m, const char *name, heed_scalar value) {
  (void)m, (void)name, (void)value;
  return HEED_OK;
}

heed_status heed__setting_not_negative(const heed_module *m, const char *name, heed_scalar value) {
  const double number = value.as.number;
  if (number >= 0 && isfinite(number)) return HEED_OK;
  return heed__fail(m->context, HEED_ARGUMENT, "%s: %s is %s; it must be at least 0, and finite",
                    m->class->name, name, HEED__G(number));
}

static heed_status fail_setting_kind(const heed_module *m, const char *name, heed_scalar value,
                                     const char *needed) {
  static const char *const kinds[] = {"a number", "an integer", "a boolean"};
  const int kind = value.dtype == HEED_BOOL ? 2 : value.dtype == HEED_INT64 ? 1 : 0;
  return heed__fail(m->context, HEED_ARGUMENT, "%s: %s is %s; it must be %s", m->class->name, name,
                    kinds[kind], needed);
}

/* ---- Changing ---- */

static void write_setting(heed_module *m, const heed__setting *s, heed_scalar value) {
  char *field = (char *)m + s->offset;
  const bool boolean = value.as.integer != 0;
  if (s->kind == HEED__SETTING_SCALE && value.as.number == 0)
    value = heed_number(heed__default_scale(((const heed__attention_module *)m)->head_dim));
  if (s->kind == HEED__SETTING_BOOLEAN)
    memcpy(field, &boolean, sizeof boolean);
  else if (s->kind == HEED__SETTING_INTEGER)
    memcpy(field, &value.as.integer, sizeof value.as.integer);
  else
    memcpy(field, &value.as.number, sizeof value.as.number);
}

heed_status heed_module_set_setting(heed_module *m, const char *name, heed_scalar value) {
  HEED__ENTER(heed_module_context(m), m->class->name, name, value);
  const heed__setting *s = find_setting(m, name);
  if (s == NULL || s->check == NULL)
    return heed__fail(m->context, HEED_ARGUMENT,
                      "%s: name is '%s'; it must be the name of a setting that can be changed",
                      m->class->name, name);
  const bool boolean = s->kind == HEED__SETTING_BOOLEAN, integer = s->kind == HEED__SETTING_INTEGER;
  if (boolean != (value.dtype == HEED_BOOL))
    return fail_setting_kind(m, name, value, boolean ? "a boolean" : integer ? "an integer" : "a number");
  if (integer && value.dtype != HEED_INT64) return fail_setting_kind(m, name, value, "an integer");
  if (!integer && value.dtype == HEED_INT64) value = heed_number((double)value.as.integer);
  const heed_status status = s->check(m, name, value);
  if (status == HEED_OK) write_setting(m, s, value);
  return status;
}

static heed_status check_takes_keys(const heed_module *m, const char *name) {
  if (m->class->takes_keys) return HEED_OK;
  return heed__fail(m->context, HEED_ARGUMENT, "%s: %s is given; only MultiHeadAttention takes it",
                    m->class->name, name);
}

heed_status heed_module_set_window(heed_module *m, const heed_window *window) {
  HEED__ENTER(heed_module_context(m), m->class->name, m);
  static const heed_window none = {0};
  if (window == NULL) window = &none;
  heed_status status = check_takes_keys(m, "window");
  if (status == HEED_OK) status = heed__check_window(m->context, m->class->name, window);
  if (status == HEED_OK) ((heed__attention_module *)m)->window = *window;
  return status;
}

heed_status heed_module_set_rope(heed_module *m, const heed_rope_config *rope) {
  HEED__ENTER(heed_module_context(m), m->class->name, m);
  heed__attention_module *a = (heed__attention_module *)m;
  heed_rope_config config;
  heed_status status = check_takes_keys(m, "rope");
  if (status == HEED_OK && rope != NULL) {
    status = heed__rope_config_read(m->context, m->class->name, "rope", rope, &config);
    if (status == HEED_OK) status = heed__check_rope(m->context, m->class->name, &config, a->head_dim);
  }
  if (status != HEED_OK) return status;
  a->rotary = rope != NULL;
  if (a->rotary) a->rope = config;
  return HEED_OK;
}
