/* Memory between inaccessible pages, so that accesses out of bounds crash the test. WebAssembly lacks page
 * protection. */
#ifndef HEED_TEST_GUARDED_H
#define HEED_TEST_GUARDED_H

#include "support.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>
#undef IN /* macros that clash with names in tests */
#undef OUT
#undef near
#undef far
#elif !defined(__wasm__)
#include <sys/mman.h>
#include <unistd.h>
#endif

typedef struct guarded {
  char *map;
  size_t bytes;
  void *data;
} guarded;

/* ---- Pages of the operating system ---- */

static inline size_t page_bytes(void) {
#if defined(_WIN32)
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
#elif defined(__wasm__)
  return 4096;
#else
  return (size_t)sysconf(_SC_PAGESIZE);
#endif
}

/** `bytes` bytes of pages, of which the first and the last are inaccessible. */
static inline char *guarded_pages(size_t bytes) {
  const size_t page = page_bytes();
#if defined(_WIN32)
  DWORD before;
  char *map = VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  assert_non_null(map);
  assert_true(VirtualProtect(map, page, PAGE_NOACCESS, &before));
  assert_true(VirtualProtect(map + bytes - page, page, PAGE_NOACCESS, &before));
#elif defined(__wasm__)
  char *map = aligned_new(bytes);
  (void)page;
#else
  char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(map != MAP_FAILED);
  assert_int_equal(mprotect(map, page, PROT_NONE), 0);
  assert_int_equal(mprotect(map + bytes - page, page, PROT_NONE), 0);
#endif
  return map;
}

static inline void free_pages(char *map, size_t bytes) {
#if defined(_WIN32)
  (void)bytes;
  VirtualFree(map, 0, MEM_RELEASE);
#elif defined(__wasm__)
  (void)bytes;
  aligned_free(map);
#else
  munmap(map, bytes);
#endif
}

/* ---- Guarded memory ---- */

/** `bytes` bytes that end at an inaccessible page (at_end), or begin after one. */
static inline guarded guard_bytes(size_t bytes, bool at_end) {
  const size_t page = page_bytes(), whole = (bytes + page - 1) / page * page;
  guarded g = {.bytes = whole + 2 * page};
  g.map = guarded_pages(g.bytes);
  g.data = g.map + page + (at_end ? whole - bytes : 0);
  return g;
}

static inline void unguard(guarded g) {
  free_pages(g.map, g.bytes);
}

#endif
