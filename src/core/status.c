/* Status codes and the message that goes with a failure. */
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
  char text[HEED__MESSAGE]; /* not written in place: an argument may be the previous message */
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  memcpy(ctx->message, text, sizeof(text));
  return status;
}

heed_status heed__fail_memory(heed_context *ctx, const char *function, size_t bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double amount = (double)bytes;
  int unit = 0;
  for (; amount >= 1024; amount /= 1024) unit++;
  char number[HEED__NUMBER_TEXT];
  heed__write_number(number, sizeof(number), 'f', unit > 0, amount);
  return heed__fail(ctx, HEED_MEMORY, "%s: %s %s of memory could not be had", function, number, units[unit]);
}
