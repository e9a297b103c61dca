/* Copies of modules that share their entries; lua/heed/nn/clone.lua replaces these by copies, too. */
#include <string.h>

#include "nn.h"

heed_status heed__module_shallow_copy(const heed_module *m, const char *function, heed_module **out) {
  heed_module *copy = NULL;
  if (m->class->release != NULL) {
    return heed__fail(m->context, HEED_ARGUMENT,
                      "%s: the module is a %s; it must not be one that the host implements", function,
                      m->class->name);
  }
  heed_status status = heed__module_new(m->context, m->class, m->bytes, m->count, &copy);
  if (status != HEED_OK) return status;
  memcpy((char *)copy + sizeof *m, (const char *)m + sizeof *m,
         m->bytes - sizeof *m); /* the class's fields */
  if (m->class->staged) ((heed__attention_module *)copy)->hook = (heed__attention_hook){0};
  copy->training = m->training;
  for (int i = 0; i < m->count && status == HEED_OK; i++) {
    const heed__slot *slot = &m->slots[i];
    heed_tensor *parameter = NULL;
    if (slot->kind == HEED_ENTRY_PARAMETER)
      status = heed__tensor_from_view(m->context, function, slot->parameter, &parameter);
    if (parameter != NULL) heed__module_add_parameter(copy, slot->name, parameter);
    if (slot->module != NULL) heed__module_add_module(copy, slot->name, heed_module_retain(slot->module));
  }
  if (status == HEED_OK)
    *out = copy;
  else
    heed_module_release(copy);
  return status;
}
