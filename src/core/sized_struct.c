/* Structs of heed.h that may grow in later versions: each begins with its size, so that programs compiled
 * with an older or a newer heed.h work with this library. */
#include "core.h"

#include <string.h>

/* Larger than any struct of heed.h: larger sizes mean an uninitialised struct. */
#define MOST_BYTES 4096

static size_t struct_size(const void *theirs) {
  size_t size;
  memcpy(&size, theirs, sizeof size);
  return size;
}

heed_status heed__struct_check(heed_context *ctx, const char *function, const char *argument,
                               const char *type, const void *theirs) {
  const size_t size = struct_size(theirs);
  if (size >= sizeof size && size <= MOST_BYTES) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: %s.size is %zu; it must be sizeof(%s)", function, argument, size,
                    type);
}

heed_status heed__struct_read(heed_context *ctx, const char *function, const char *argument, const char *type,
                              const void *theirs, void *ours, size_t known) {
  heed_status status = heed__struct_check(ctx, function, argument, type, theirs);
  if (status != HEED_OK) return status;
  const size_t size = struct_size(theirs);
  for (size_t i = known; i < size; i++) {
    if (((const unsigned char *)theirs)[i] == 0) continue;
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "%s: %s.size is %zu, and fields beyond the %zu bytes of %s in this library (%s) are set; "
        "they must be 0",
        function, argument, size, known, type, HEED_VERSION);
  }
  memcpy(ours, theirs, heed__min_size(size, known));
  memcpy(ours, &known, sizeof known);
  return HEED_OK;
}

void heed__struct_init(void *theirs, size_t size, const void *ours, size_t known) {
  if (theirs == NULL || size < sizeof size || size > MOST_BYTES) return;
  memcpy(theirs, &size, sizeof size);
  heed__struct_fill(theirs, ours, known);
}

void heed__struct_fill(void *theirs, const void *ours, size_t known) {
  const size_t size = struct_size(theirs), both = heed__min_size(size, known), first = sizeof size;
  if (both > first) memcpy((char *)theirs + first, (const char *)ours + first, both - first);
  if (size > both) memset((char *)theirs + both, 0, size - both);
}

void heed__struct_move(void *theirs, void *ours, size_t known) {
  const size_t both = heed__min_size(struct_size(theirs), known), first = sizeof both;
  heed__struct_fill(theirs, ours, known);
  if (both > first) memset((char *)ours + first, 0, both - first);
}
