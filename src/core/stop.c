/* Stopping: cancels from anywhere, deadlines, and what a call that was stopped answers. */
#include "core.h"

#include <math.h>

/* An int, which is lock-free on every processor; gcc before 13 has no such bool for RISC-V. */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler may only touch what is lock-free");

void heed_cancel(heed_context *ctx) {
  if (ctx != NULL) atomic_store_explicit(&ctx->pace.cancelled, true, memory_order_relaxed);
}

void heed_clear_cancel(heed_context *ctx) {
  if (ctx != NULL) atomic_store_explicit(&ctx->pace.cancelled, false, memory_order_relaxed);
}

void heed__set_slice(heed_context *ctx, double end) {
  if (ctx->deadline > 0 && ctx->deadline < end) end = ctx->deadline;
  if (ctx->call_end > 0 && ctx->call_end < end) end = ctx->call_end;
  ctx->pace.timed = end < INFINITY;
  ctx->pace.until = end;
}

void heed__start_call(heed_context *ctx) {
  ctx->call_end = heed_clock() + ctx->limits.seconds;
  heed__set_slice(ctx, INFINITY);
}

heed_status heed_set_deadline(heed_context *ctx, double seconds) {
  HEED__ENTER(ctx, "set_deadline", ctx);
  if (!(seconds >= 0 && isfinite(seconds)))
    return heed__fail(ctx, HEED_ARGUMENT,
                      "set_deadline: seconds is %s; it must be 0 (none) or more, and finite",
                      HEED__G(seconds));
  ctx->deadline = seconds > 0 ? heed_clock() + seconds : 0;
  ctx->deadline_seconds = seconds;
  ctx->call_end = 0; /* no script's call can be running here, but one may have been broken off */
  heed__set_slice(ctx, INFINITY);
  return HEED_OK;
}

heed_status heed__stopped(heed_context *ctx, const char *function) {
  if (atomic_exchange_explicit(&ctx->pace.cancelled, false, memory_order_relaxed))
    return heed__fail(ctx, HEED_CANCELLED, "%s: heed_cancel stopped it", function);
  const double now = heed_clock();
  if (ctx->call_end > 0 && now >= ctx->call_end)
    return heed__fail(ctx, HEED_LIMIT,
                      "%s: the time was up, %s second%s after the call began (the limit of one call)",
                      function, HEED__G(ctx->limits.seconds), HEED__S(ctx->limits.seconds));
  if (ctx->deadline > 0 && now >= ctx->deadline)
    return heed__fail(ctx, HEED_LIMIT, "%s: the time was up, %s second%s after the deadline was set",
                      function, HEED__G(ctx->deadline_seconds), HEED__S(ctx->deadline_seconds));
  return HEED_OK;
}
