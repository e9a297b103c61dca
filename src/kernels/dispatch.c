/* The choice of the kernels for this processor. */
#include "kernels.h"

static bool always(void) {
  return true;
}

/* From best to worst; the last one runs everywhere. */
static const struct {
  const heed__kernels *kernels;
  bool (*runs_here)(void);
} tables[] = {
    {&heed__kernels_scalar, always},
};

const heed__kernels *heed__kernels_of(heed_context *ctx) {
  if (!ctx->kernels) {
    size_t i = 0;
    while (!tables[i].runs_here()) i++;
    ctx->kernels = tables[i].kernels;
  }
  return ctx->kernels;
}
