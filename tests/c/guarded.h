/* Memory between pages that may not be touched, so that a read or write beside it ends the test. */
#ifndef HEED_TEST_GUARDED_H
#define HEED_TEST_GUARDED_H

#include "support.h"

#include <sys/mman.h>
#include <unistd.h>

typedef struct guarded {
  char *map;
  size_t bytes;
  void *data;
} guarded;

/** `bytes` bytes that end where the next page may not be touched, or else begin where the page before may
 * not. */
static inline guarded guard_bytes(size_t bytes, bool at_end) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
  guarded g = {.bytes = room + 2 * page};
  g.map = mmap(NULL, g.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(g.map != MAP_FAILED);
  assert_int_equal(mprotect(g.map, page, PROT_NONE), 0);
  assert_int_equal(mprotect(g.map + page + room, page, PROT_NONE), 0);
  g.data = g.map + page + (at_end ? room - bytes : 0);
  return g;
}

static inline void unguard(guarded g) {
  munmap(g.map, g.bytes);
}

#endif
