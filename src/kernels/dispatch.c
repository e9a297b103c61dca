/* The choice of the kernels: each instruction set has a table; heed_context_new chose the set. */
#include "kernels.h"

const heed__kernels *heed__kernels_of(heed_context *ctx) {
  static const heed__kernels *const tables[] = {
    [HEED__CPU_scalar] = &heed__kernels_scalar,
#if defined(__x86_64__)
    [HEED__CPU_avx2] = &heed__kernels_avx2,
    [HEED__CPU_avx512] = &heed__kernels_avx512,
#elif defined(__aarch64__)
    [HEED__CPU_neon] = &heed__kernels_neon,
#endif
  };
  if (!ctx->kernels) ctx->kernels = tables[ctx->cpu];
  return ctx->kernels;
}
