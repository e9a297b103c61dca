/* Messages to the host's log function. */
#include "core.h"

#include <stdarg.h>
#include <stdio.h>

heed_status heed_set_log(heed_context *ctx, heed_log_function *log, void *user) {
  HEED__ENTER(ctx, "set_log", ctx);
  ctx->log = log;
  ctx->log_user = user;
  return HEED_OK;
}

void heed__log(heed_context *ctx, heed_log_level level, const char *format, ...) {
  if (ctx->log == NULL) return;
  char text[HEED__MESSAGE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  ctx->log(ctx->log_user, level, text);
}
