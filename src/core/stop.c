/* Stopping: cancels from anywhere, deadlines, and what a call that was stopped answers. */
#include "core.h"

#include <math.h>

_Static_assert(ATOMIC_BOOL_LOCK_FREE == 2, "a signal handler may only touch what is lock-free");

void heed_cancel(heed_context *ctx) {
  if (ctx != NULL) atomic_store_explicit(&ctx->pace.cancelled, true, memory_order_relaxed);
}

void heed_clear_cancel(heed_context *ctx) {
  if (ctx != NULL) atomic_store_explicit(&ctx->pace.cancelled, false, memory_order_relaxed);
}

void heed__set_slice(heed_context *ctx, double end) {
  const bool has_deadline = ctx->deadline > 0;
  ctx->pace.timed = has_deadline || end < INFINITY;
  ctx->pace.until = has_deadline && ctx->deadline < end ? ctx->deadline : end;
}

heed_status heed_set_deadline(heed_context *ctx, double seconds) {
  HEED__ENTER(ctx, "set_deadline", ctx);
  if (!(seconds >= 0 && isfinite(seconds)))
    return heed__fail(ctx, HEED_ARGUMENT,
                      "set_deadline: seconds is %g; it must be 0 (none) or more, and finite", seconds);
  ctx->deadline = seconds > 0 ? heed_clock() + seconds : 0;
  ctx->deadline_seconds = seconds;
  heed__set_slice(ctx, INFINITY);
  return HEED_OK;
}

heed_status heed__stopped(heed_context *ctx, const char *function) {
  if (atomic_exchange_explicit(&ctx->pace.cancelled, false, memory_order_relaxed))
    return heed__fail(ctx, HEED_CANCELLED, "%s: heed_cancel stopped it", function);
  if (ctx->deadline > 0 && heed_clock() >= ctx->deadline)
    return heed__fail(ctx, HEED_LIMIT, "%s: the time was up, %g seconds after the deadline was set", function,
                      ctx->deadline_seconds);
  return HEED_OK;
}
