/* The table of each instruction set; heed_context_new chose the set (core/cpu.c). */
#include "kernels.h"

const heed__kernels *heed__kernels_for(heed__cpu cpu) {
  static const heed__kernels *const tables[] = {
#define X(name) [HEED__CPU_##name] = &heed__kernels_##name,
      HEED__CPU_LIST(X)
#undef X
  };
  return tables[cpu];
}
