/* ModuleList: modules in order, named by their index from "0", as in PyTorch's state files. */
#include "nn.h"

#include <stdio.h>

static heed_status list_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                heed_tensor **out, heed_attention_taps *taps) {
  (void)x, (void)options, (void)out, (void)taps;
  return heed__fail(m->context, HEED_ARGUMENT, "ModuleList: it has no forward; call the modules in it");
}

static const heed__class list_class = {.name = "ModuleList", .attends = true, .forward = list_forward};

heed_status heed__module_list_new(heed_context *ctx, int64_t capacity, heed_module **out) {
  return heed__module_new(ctx, &list_class, sizeof(heed_module), capacity, out);
}

void heed__module_list_add(heed_module *list, heed_module *module) {
  char name[sizeof list->slots->name];
  snprintf(name, sizeof name, "%d", list->count);
  heed__module_add_module(list, name, module);
}
