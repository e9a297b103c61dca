/* What functions and hooks of the host give to a backward pass: checked, since anything may come. */
#include "grad.h"

/* Clears the message: if there is one afterwards, it is about this call. */
char heed__host_begin(heed_context *ctx) {
  const char before = ctx->message[0];
  ctx->message[0] = '\0';
  return before;
}

heed_status heed__host_returned(heed_context *ctx, char before, const char *function, heed_status status) {
  const bool has_message = ctx->message[0] != '\0';
  if (!has_message) ctx->message[0] = before;
  if (status == HEED_OK) return HEED_OK;
  if (heed_status_name(status)[0] == '?')
    return heed__fail(ctx, HEED_ARGUMENT, "%s: the host gave the status %d; it must be a heed_status",
                      function, (int)status);
  if (has_message) return status;
  return heed__fail(ctx, status, "%s: the host gave an error without a message: %s", function,
                    heed_status_text(status));
}

/* Whether dx[i] is a tensor that the host does not own, or has given before. */
static bool is_lent(int outputs, const heed_tensor *const *dy, int i, heed_tensor *const *dx) {
  for (int j = 0; j < outputs; j++)
    if (dx[i] == dy[j]) return true;
  for (int k = 0; k < i; k++)
    if (dx[i] == dx[k]) return true;
  return false;
}

heed_status heed__host_own(heed_context *ctx, int outputs, const heed_tensor *const *dy, int inputs,
                           heed_tensor **dx, heed_status status) {
  for (int i = inputs; i-- > 0;) {
    if (dx[i] == NULL || !is_lent(outputs, dy, i, dx)) continue;
    const heed_tensor *given = dx[i];
    dx[i] = NULL;
    if (status == HEED_OK) status = heed_tensor_detach(ctx, given, &dx[i]);
  }
  return status;
}

heed_status heed__host_check(heed_context *ctx, const char *function, const char *what,
                             const heed_tensor *given, int ndim, const int64_t *shape, const char *like) {
  char have[HEED__SHAPE_TEXT], want[HEED__SHAPE_TEXT];
  if (!heed__is_tensor_of(ctx, given))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is of another context; all must be of one", function, what);
  if (given->dtype == HEED_FLOAT32 && heed__same_shape(given->ndim, given->shape, ndim, shape))
    return HEED_OK;
  return heed__fail(ctx, given->dtype == HEED_FLOAT32 ? HEED_SHAPE : HEED_DTYPE,
                    "%s: %s is %s %s; it must be float32 %s, as %s", function, what,
                    heed_dtype_name(given->dtype), heed__shape_text(have, given->ndim, given->shape),
                    heed__shape_text(want, ndim, shape), like);
}
