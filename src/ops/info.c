/* heed_info: what a context uses, for reports and measurements. */
#include "ops.h"

_Static_assert(sizeof((heed_information *)NULL)->processor == HEED__CPU_NAME,
               "one size of a processor's name");

heed_status heed_info(heed_context *ctx, heed_information *out) {
  HEED__ENTER(ctx, "info", out);
  heed_status status = heed__struct_check(ctx, "info", "out", "heed_information", out);
  if (status != HEED_OK) return status;
  heed_information found = {
      .version = HEED_VERSION,
      .kernels = heed__kernels_of(ctx)->name,
      .blas = heed__blas_name(ctx),
      .blas_core = heed__blas_core(ctx),
      .threads = heed_num_threads(ctx),
      .memory_in_use = ctx->in_use,
      .memory_peak = ctx->peak,
      .memory_kept = ctx->kept,
  };
  heed__cpu_name(found.processor);
  heed__struct_fill(out, &found, sizeof found);
  return HEED_OK;
}
