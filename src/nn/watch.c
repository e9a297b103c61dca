/* Watched modules: those with listeners that the binding calls during a forward pass, such as hooks in Lua.
 * The context counts them, so that a forward pays one branch while there are none. */
#include "nn.h"

void heed__module_watch(heed_module *m, int delta) {
  const bool before = m->watched > 0;
  m->watched = delta < 0 && m->watched < -delta ? 0 : m->watched + delta;
  m->context->watched += (m->watched > 0) - before;
}

/* The depth of nesting is that of heed_module_release. */
bool heed__search_watched(const heed_module *m) {
  if (m->watched > 0) return true;
  for (int i = 0; i < m->count; i++) {
    if (m->slots[i].module != NULL && heed__search_watched(m->slots[i].module)) return true;
  }
  return false;
}
