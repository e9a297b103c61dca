/* Errors of the checks at the entry of public functions; in debug builds also of a second thread in a
 * context. */
#include "core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

heed_status heed__refuse_pointer(heed_context *ctx, const char *function, const char *argument,
                                 const void *x) {
  const char *arrow = strrchr(argument, '>'); /* options->attn_mask is called attn_mask */
  if (arrow != NULL) argument = arrow + 1;
  if (x == NULL) return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is missing (NULL)", function, argument);
  return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is of another context; all must be of one", function,
                    argument);
}

heed_status heed__refuse_tensor(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *x) {
  const char *arrow = strrchr(argument, '>');
  if (!heed__is_tensor_of(ctx, x)) return heed__refuse_pointer(ctx, function, argument, x);
  if (arrow != NULL) argument = arrow + 1;
  return heed__fail(ctx, HEED_DTYPE, "%s: %s is %s; it must not be quantized in blocks; use x:float()",
                    function, argument, heed_dtype_name(x->dtype));
}

heed_status heed__refuse_dtype(heed_context *ctx, const char *function, const char *argument,
                               heed_dtype dtype) {
  if (heed__is_any_dtype(dtype))
    return heed__fail(ctx, HEED_DTYPE, "%s: %s is %s; it must not be a blocked dtype", function, argument,
                      heed_dtype_name(dtype));
  return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is %d; it must be a heed_dtype", function, argument,
                    (int)dtype);
}

heed_status heed__refuse_scalar(heed_context *ctx, const char *function, const char *argument,
                                heed_scalar value) {
  return heed__fail(ctx, HEED_ARGUMENT,
                    "%s: the dtype of %s is %d; it must be that of heed_number, heed_integer or heed_boolean",
                    function, argument, (int)value.dtype);
}

heed_status heed__check_list(heed_context *ctx, const char *function, const char *argument, int64_t n,
                             const void *list) {
  if (n < 0 || n > HEED_MAX_DIMS)
    return heed__fail(ctx, HEED_SHAPE, "%s: %s has %" PRId64 " dimensions; it must have 0 to %d", function,
                      argument, n, HEED_MAX_DIMS);
  if (n == 0 || list != NULL) return HEED_OK;
  return heed__refuse_pointer(ctx, function, argument, NULL);
}

heed_status heed__check_any_tensors(heed_context *ctx, const char *function, const char *argument,
                                    int64_t count, const heed_tensor *const *tensors) {
  if (count > 0 && tensors == NULL) return heed__refuse_pointer(ctx, function, argument, NULL);
  for (int64_t i = 0; i < count; i++) {
    if (heed__is_tensor_of(ctx, tensors[i])) continue;
    return heed__fail(ctx, HEED_ARGUMENT, "%s: number %" PRId64 " of %s is %s", function, i + 1, argument,
                      tensors[i] == NULL ? "missing (NULL)" : "of another context; all must be of one");
  }
  return HEED_OK;
}

heed_status heed__check_tensors(heed_context *ctx, const char *function, const char *argument, int64_t count,
                                const heed_tensor *const *tensors) {
  const heed_status status = heed__check_any_tensors(ctx, function, argument, count, tensors);
  if (status != HEED_OK) return status;
  for (int64_t i = 0; i < count; i++) {
    if (!heed__is_blocked(tensors[i]->dtype)) continue;
    return heed__fail(ctx, HEED_DTYPE,
                      "%s: number %" PRId64 " of %s is %s; it must not be quantized in blocks; use x:float()",
                      function, i + 1, argument, heed_dtype_name(tensors[i]->dtype));
  }
  return HEED_OK;
}

heed_status heed__check_apart(heed_context *ctx, const char *function, heed_tensor **a, heed_tensor **b) {
  if (a != b && (b == NULL || *a == NULL || *a != *b)) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: two results have the same address; each must have its own",
                    function);
}

#if defined(HEED_DEBUG)
/* The owner of a context is identified by the address of a thread-local variable. */
static _Thread_local char thread_mark;
static _Thread_local const heed_context *thread_refused;
static _Thread_local char thread_message[128];

bool heed__try_enter(heed_context *ctx, const char *function, heed_context **entered) {
  uintptr_t no_owner = 0;
  if (atomic_load(&ctx->inside) == (uintptr_t)&thread_mark && ctx->poll.runs) {
    snprintf(thread_message, sizeof thread_message,
             "%s: the context is in use by the call that polls; a poll function must not use it", function);
    thread_refused = ctx;
    return false;
  }
  if (atomic_load(&ctx->inside) != (uintptr_t)&thread_mark &&
      !atomic_compare_exchange_strong(&ctx->inside, &no_owner, (uintptr_t)&thread_mark)) {
    snprintf(thread_message, sizeof thread_message, "%s: the context is in use by another thread", function);
    thread_refused = ctx;
    return false;
  }
  ctx->depth++;
  thread_refused = NULL;
  *entered = ctx;
  return true;
}

void heed__leave(heed_context **entered) {
  heed_context *ctx = *entered;
  if (ctx != NULL && --ctx->depth == 0) atomic_store(&ctx->inside, 0);
}

const char *heed__busy_message(const heed_context *ctx) {
  return thread_refused == ctx ? thread_message : NULL;
}
#endif
