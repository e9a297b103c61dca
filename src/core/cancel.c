/* Cancellation: heed_cancel, deadlines, and the errors of cancelled calls; the host's poll function, which
 * cancellation checks call. */
#include "core.h"

#include <math.h>

/* An int, since before version 13 gcc has no lock-free bool for RISC-V. */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "signal handlers may only access lock-free atomics");

void heed_cancel(heed_context *ctx) {
  if (ctx != NULL) atomic_store_explicit(&ctx->pace.cancelled, true, memory_order_relaxed);
}

void heed_clear_cancel(heed_context *ctx) {
  if (ctx != NULL) atomic_store_explicit(&ctx->pace.cancelled, false, memory_order_relaxed);
}

void heed__set_slice(heed_context *ctx, double end) {
  if (ctx->deadline > 0 && ctx->deadline < end) end = ctx->deadline;
  if (ctx->call_end > 0 && ctx->call_end < end) end = ctx->call_end;
  if (ctx->overspent) end = 0; /* every check is due */
  ctx->pace.timed = end < INFINITY;
  ctx->pace.until = end;
}

void heed__start_call(heed_context *ctx) {
  ctx->call_end = heed_clock() + ctx->limits.call_seconds;
  heed__set_slice(ctx, INFINITY);
}

void heed__end_call(heed_context *ctx) {
  if (ctx->call_end == 0) return;
  ctx->call_end = 0;
  heed__set_slice(ctx, INFINITY);
}

heed_status heed__charge_limited(heed_context *ctx, const char *function, double units) {
  const double left = (double)heed__max(ctx->limits.work, 0);
  ctx->limits.work = units < left ? ctx->limits.work - (int64_t)units : HEED_NO_WORK;
  if (units <= left) return HEED_OK;
  ctx->overspent = true;
  ctx->work_needed = units;
  ctx->work_left = left;
  heed__set_slice(ctx, INFINITY);
  return ctx->pace.held ? HEED_OK : heed__stopped(ctx, function);
}

heed_status heed_set_deadline(heed_context *ctx, double seconds) {
  HEED__ENTER(ctx, "set_deadline", ctx);
  if (!(seconds >= 0 && isfinite(seconds)))
    return heed__fail(ctx, HEED_ARGUMENT,
                      "set_deadline: seconds is %s; it must be 0 (no deadline) or more, and finite",
                      HEED__G(seconds));
  ctx->deadline = seconds > 0 ? heed_clock() + seconds : 0;
  ctx->deadline_seconds = seconds;
  ctx->call_end = 0; /* of a script's call that an error may have ended */
  heed__set_slice(ctx, INFINITY);
  return HEED_OK;
}

static const char *whole(char text[HEED__NUMBER_TEXT], double units) {
  heed__write_number(text, HEED__NUMBER_TEXT, 'g', 16, units);
  return text;
}

heed_status heed__stopped(heed_context *ctx, const char *function) {
  char needed[HEED__NUMBER_TEXT], were_left[HEED__NUMBER_TEXT];
  if (ctx->overspent && !atomic_load_explicit(&ctx->pace.cancelled, memory_order_relaxed))
    return heed__fail(ctx, HEED_LIMIT, "%s: work limit exceeded: %s units were needed and %s were left",
                      function, whole(needed, ctx->work_needed), whole(were_left, ctx->work_left));
  return heed__out_of_time(ctx, function);
}

heed_status heed__out_of_time(heed_context *ctx, const char *function) {
  if (atomic_exchange_explicit(&ctx->pace.cancelled, false, memory_order_relaxed))
    return heed__fail(ctx, HEED_CANCELLED, "%s: cancelled by heed_cancel", function);
  const double now = heed_clock();
  if (ctx->call_end > 0 && now >= ctx->call_end)
    return heed__fail(ctx, HEED_LIMIT, "%s: time limit exceeded: %s s since the call began", function,
                      HEED__G(ctx->limits.call_seconds));
  if (ctx->deadline > 0 && now >= ctx->deadline)
    return heed__fail(ctx, HEED_LIMIT, "%s: time limit exceeded: %s s since the deadline was set", function,
                      HEED__G(ctx->deadline_seconds));
  return HEED_OK;
}

heed_status heed_check_stop(heed_context *ctx, const char *function) {
  HEED__ENTER(ctx, "check_stop", function);
  return heed__is_due(&ctx->pace) ? heed__stopped(ctx, function) : HEED_OK;
}

heed_status heed_set_poll(heed_context *ctx, double seconds, void (*poll)(void *user), void *user) {
  HEED__ENTER(ctx, "set_poll", ctx);
  if (poll != NULL && !(seconds >= 0 && isfinite(seconds)))
    return heed__fail(ctx, HEED_ARGUMENT, "set_poll: seconds is %s; it must be 0 or more, and finite",
                      HEED__G(seconds));
  ctx->poll = (heed__poll_state){.context = ctx, .function = poll, .user = user, .seconds = seconds};
  if (poll != NULL) ctx->poll.next = heed_clock() + seconds;
  ctx->pace.poll = poll != NULL ? &ctx->poll : NULL;
  return HEED_OK;
}
