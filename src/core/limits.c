/* Limits on the memory, time, work, threads and files of a context, set by a host or by a script for itself.
 */
#include "core.h"

#include <inttypes.h>
#include <math.h>

#define MOST_WORK ((int64_t)1 << 53) /* is exact as a double */

heed_status heed_set_limits(heed_context *ctx, const heed_limits *limits) {
  HEED__ENTER(ctx, "set_limits", limits);
  heed_limits l = {0};
  const heed_status status =
      heed__struct_read(ctx, "set_limits", "limits", "heed_limits", limits, &l, sizeof l);
  if (status != HEED_OK) return status;
  if (!(l.call_seconds >= 0 && isfinite(l.call_seconds)))
    return heed__fail(ctx, HEED_ARGUMENT,
                      "set_limits: call_seconds is %s; it must be 0 (no limit) or more, and finite",
                      HEED__G(l.call_seconds));
  if (l.threads < 0 || l.threads > HEED_MAX_THREADS)
    return heed__fail(ctx, HEED_ARGUMENT, "set_limits: threads is %d; it must be from 0 (no limit) to %d",
                      l.threads, HEED_MAX_THREADS);
  if (l.work < HEED_NO_WORK || l.work > MOST_WORK)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "set_limits: work is %" PRId64
                      "; it must be from -1 (nothing is left) or 0 (no limit) to 2^53",
                      l.work);
  if ((unsigned)l.map > HEED_MAP_NEVER)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "set_limits: map is %d; it must be HEED_MAP_UNLESS_FINAL, _ALWAYS or _NEVER",
                      (int)l.map);
  if (l.threads > 0 && l.threads < heed_num_threads(ctx)) {
    const heed_status fewer = heed_set_num_threads(ctx, l.threads);
    if (fewer != HEED_OK) return fewer;
  }
  if (l.memory != ctx->limits.memory) heed__shrink_kept(ctx, 0);
  ctx->limits = l;
  ctx->overspent = ctx->overspent && l.work == HEED_NO_WORK;
  if (l.call_seconds == 0) ctx->call_end = 0;
  heed__set_slice(ctx, INFINITY);
  return HEED_OK;
}

heed_status heed_get_limits(heed_context *ctx, heed_limits *out) {
  HEED__ENTER(ctx, "get_limits", out);
  const heed_status status = heed__struct_check(ctx, "get_limits", "out", "heed_limits", out);
  if (status != HEED_OK) return status;
  heed__struct_fill(out, &ctx->limits, sizeof ctx->limits);
  return HEED_OK;
}

bool heed__maps_files(const heed_limits *limits) {
  return limits->map == HEED_MAP_ALWAYS || (limits->map == HEED_MAP_UNLESS_FINAL && !limits->final);
}

heed_status heed__check_files(heed_context *ctx, const char *where) {
  if (!ctx->limits.no_files) return HEED_OK;
  return heed__fail(ctx, HEED_LIMIT, "%s: the limits do not allow files", where);
}
