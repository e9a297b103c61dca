/* Status codes, and the messages of failures. */
#include "core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *heed_status_name(heed_status status) {
  static const char *const names[] = {
#define X(name, text) #name,
      HEED_STATUS_LIST(X)
#undef X
  };
  return (size_t)status < sizeof(names) / sizeof(names[0]) ? names[status] : "?";
}

const char *heed_status_text(heed_status status) {
  static const char *const texts[] = {
#define X(name, text) text,
      HEED_STATUS_LIST(X)
#undef X
  };
  return (size_t)status < sizeof(texts) / sizeof(texts[0]) ? texts[status] : "?";
}

heed_status heed__fail(heed_context *ctx, heed_status status, const char *format, ...) {
  if (ctx == NULL) return status;
  char text[HEED__MESSAGE]; /* a copy: an argument may be the previous message */
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  memcpy(ctx->message, text, sizeof(text));
  heed__log(ctx, HEED_LOG_FAILURE, "%s", text);
  return status;
}

/* "1.5 GiB" */
static const char *amount_text(char text[HEED__NUMBER_TEXT], size_t bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double amount = (double)bytes;
  int unit = 0;
  for (; amount >= 1024; amount /= 1024) unit++;
  const int length = heed__write_number(text, HEED__NUMBER_TEXT, 'f', unit > 0, amount);
  snprintf(text + length, (size_t)(HEED__NUMBER_TEXT - length), " %s", units[unit]);
  return text;
}

heed_status heed__fail_memory(heed_context *ctx, const char *function, size_t bytes) {
  char asked[HEED__NUMBER_TEXT], limit[HEED__NUMBER_TEXT], held[HEED__NUMBER_TEXT];
  amount_text(asked, bytes);
  if (ctx == NULL || !ctx->refused)
    return heed__fail(ctx, HEED_MEMORY, "%s: out of memory (%s requested)", function, asked);
  return heed__fail(ctx, HEED_MEMORY, "%s: memory limit exceeded: %s requested, the limit is %s, %s in use",
                    function, asked, amount_text(limit, ctx->limits.memory),
                    amount_text(held, ctx->refused_at));
}
