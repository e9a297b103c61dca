/* Modules that the host implements, and which modules are one's own part of an attention module: any but the
 * Linear or Dropout that its constructor makes. */
#include "nn.h"

#include <string.h>

typedef struct own_module {
  heed_module base;
  heed__class class;
  heed_own_config config;
  char name[]; /* of the class */
} own_module;

static heed_status own_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                               heed_tensor **out, heed_attention_taps *taps) {
  (void)options, (void)taps;
  const heed_own_config *config = &((const own_module *)m)->config;
  heed_context *ctx = m->context;
  heed_tensor *y = NULL;
  heed_module_retain(m);
  heed_status status = config->forward(config->user, m, x, &y);
  if (status == HEED_OK && !heed__is_tensor_of(ctx, y))
    status =
        heed__fail(ctx, HEED_ARGUMENT, "%s: forward gave %s; it must give a tensor of the module's context",
                   m->class->name, y == NULL ? "no tensor" : "a tensor of another context");
  if (status == HEED_OK && *out != NULL) {
    status = heed__to(ctx, m->class->name, y, y->dtype, out);
  } else if (status == HEED_OK) {
    *out = y;
    y = NULL;
  }
  heed_tensor_free(y);
  heed_module_release(m);
  return status;
}

static void release_own(heed_module *m) {
  const heed_own_config *config = &((const own_module *)m)->config;
  if (config->release != NULL) config->release(config->user);
}

void *heed__own_user(const heed_module *m) {
  return m != NULL && m->class->forward == own_forward ? ((const own_module *)m)->config.user : NULL;
}

heed_status heed_own_module_new(heed_context *ctx, const heed_own_config *config, heed_module **out) {
  static const char function[] = "own_module";
  HEED__ENTER(ctx, function, config, out);
  heed_own_config read = {.size = sizeof read};
  heed_module *m = NULL;
  heed_status status =
      heed__struct_read(ctx, function, "config", "heed_own_config", config, &read, sizeof read);
  if (status != HEED_OK) return status;
  if (read.forward == NULL) return heed__refuse_pointer(ctx, function, "config->forward", NULL);
  if (read.name == NULL) return heed__refuse_pointer(ctx, function, "config->name", NULL);
  const size_t length = strlen(read.name);
  static const heed__class unnamed = {.name = "own_module"};
  if ((status = heed__module_new(ctx, &unnamed, sizeof(own_module) + length + 1, 0, &m)) != HEED_OK)
    return status;
  own_module *own = (own_module *)m;
  memcpy(own->name, read.name, length + 1);
  own->config = read;
  own->config.name = own->name;
  own->class = (heed__class){.name = own->name, .forward = own_forward, .release = release_own};
  m->class = &own->class;
  *out = m;
  return HEED_OK;
}

/* ---- Parts of attention modules ---- */

bool heed__takes_own(const heed_module *m, const char *name) {
  static const char *const names[] = {"W_query", "W_key", "W_value", "out_proj", "dropout"};
  if (!m->class->staged) return false;
  for (int i = 0; i < 5; i++) {
    if (strcmp(name, names[i]) == 0) return true;
  }
  return false;
}

bool heed__is_own(const heed_module *part, bool dropout) {
  return !(dropout ? heed__is_dropout(part) : heed__is_linear(part));
}

void heed__count_own(heed_module *m) {
  heed__attention_module *a = (heed__attention_module *)m;
  a->own_parts = 0;
  for (int i = 0; i < m->count; i++) {
    if (heed__takes_own(m, m->slots[i].name) &&
        heed__is_own(m->slots[i].module, strcmp(m->slots[i].name, "dropout") == 0))
      a->own_parts++;
  }
}

const heed__slot *heed__own_slot(const heed_module *m) {
  if (!m->class->staged || ((const heed__attention_module *)m)->own_parts == 0) return NULL;
  for (int i = 0; i < m->count; i++) {
    const heed__slot *slot = &m->slots[i];
    if (heed__takes_own(m, slot->name) && heed__is_own(slot->module, strcmp(slot->name, "dropout") == 0))
      return slot;
  }
  return NULL;
}

/* The depth of nesting is that of heed_module_release. */
bool heed__holds_own(const heed_module *m) {
  if (m->class->staged) return ((const heed__attention_module *)m)->own_parts > 0; /* other parts have none */
  for (int i = 0; i < m->count; i++) {
    if (m->slots[i].module != NULL && heed__holds_own(m->slots[i].module)) return true;
  }
  return false;
}

heed_status heed__refuse_own(const heed_module *m, const char *function) {
  const heed__slot *slot = heed__own_slot(m);
  if (slot == NULL) return HEED_OK;
  return heed__fail(
      m->context, HEED_ARGUMENT,
      "%s: %s is a module of class %s; it must be a %s, since %s does not call modules of other classes",
      function, slot->name, slot->module->class->name,
      strcmp(slot->name, "dropout") == 0 ? "Dropout" : "Linear", function);
}
