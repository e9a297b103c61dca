/* A merge sort that checks for cancellation. qsort does not, and some implementations take quadratic time for
 * input constructed for that. */
#include "files.h"

#include <string.h>

typedef struct sorter {
  const heed__pace *pace;
  size_t size;
  int (*compare)(const void *a, const void *b);
  int64_t merged; /* records, in all passes */
} sorter;

/* Merges two adjacent sorted runs, a…b and b…end, into `to`. False: cancelled. */
static bool merge_runs(sorter *s, const char *a, const char *b, const char *end, char *to) {
  const size_t size = s->size;
  for (const char *const middle = b; a < middle || b < end; to += size) {
    if ((++s->merged & 0xfff) == 0 && heed__is_due(s->pace)) return false;
    const bool first = b == end || (a < middle && s->compare(a, b) <= 0);
    memcpy(to, first ? a : b, size);
    if (first)
      a += size;
    else
      b += size;
  }
  return true;
}

heed_status heed__sort_records(heed_context *ctx, const char *function, void *records, int64_t count,
                               size_t size, int (*compare)(const void *a, const void *b)) {
  if (count < 2) return HEED_OK;
  sorter s = {.pace = &ctx->pace, .size = size, .compare = compare};
  const size_t n = (size_t)count, bytes = n * size;
  char *const scratch = heed__allocate(ctx, bytes);
  if (scratch == NULL) return heed__fail_memory(ctx, function, bytes);
  char *from = records, *to = scratch;
  bool whole = true;
  for (size_t run = 1; run < n && whole; run *= 2) {
    for (size_t i = 0; i < n && whole; i += 2 * run) {
      const size_t middle = n - i < run ? n : i + run, end = n - i < 2 * run ? n : i + 2 * run;
      whole = merge_runs(&s, from + i * size, from + middle * size, from + end * size, to + i * size);
    }
    char *const next = from;
    from = to;
    to = next;
  }
  if (whole && from != records) memcpy(records, from, bytes);
  heed__release(ctx, scratch);
  return whole ? HEED_OK : heed__stopped(ctx, function);
}
