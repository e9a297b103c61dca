/* Large pages. A page of 4 KiB costs its first touch between a quarter of a microsecond and, in a virtual
 * machine, four, which for large results is more than computing them; and again when it is given back. */
#if defined(__linux__)
#undef _GNU_SOURCE
#define _DEFAULT_SOURCE 1 /* madvise */
#endif

#include "core.h"

#if defined(__linux__)

#include <errno.h>
#include <sys/mman.h>

#define SMALL_PAGE ((uintptr_t)4096)

void heed__wish_huge_pages(void *block, size_t bytes) {
  const uintptr_t first = ((uintptr_t)block + SMALL_PAGE - 1) & ~(SMALL_PAGE - 1),
                  end = ((uintptr_t)block + bytes) & ~(SMALL_PAGE - 1);
  const int before = errno;
  if (first < end) (void)madvise((void *)first, end - first, MADV_HUGEPAGE); /* a wish: whatever it answers */
  errno = before;
}

#else

void heed__wish_huge_pages(void *block, size_t bytes) {
  (void)block;
  (void)bytes;
}

#endif

void heed_set_huge_pages(heed_context *ctx, bool wished) {
  if (ctx != NULL) ctx->huge_pages = wished;
}
