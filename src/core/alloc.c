/* Memory: aligned blocks on top of an allocator that need not align, counted on their context; and external
 * resources, which a context releases with itself. */
#include "core.h"

/* Directly precedes each block. */
typedef struct heed__prefix {
  void *start;                          /* as returned by the allocator */
  size_t bytes;                         /* as requested from it */
  struct heed__prefix *next, *previous; /* the list of the context's blocks */
} prefix;

_Static_assert(HEED__ALIGNMENT % _Alignof(prefix) == 0 && sizeof(prefix) % _Alignof(prefix) == 0,
               "a prefix that precedes an aligned block must be aligned itself");

/* All large blocks begin at the same offset in a page. If a copy writes a cache line or two beyond the offset
 * at which it reads, the processor takes the reads to depend on the writes (4K aliasing), and the copy is
 * slower by a quarter. */
#define LARGE_BLOCK ((size_t)1 << 16)
#define PAGE        ((size_t)4096)
#define HUGE_BLOCK  ((size_t)1 << 22)

void *heed__allocate(heed_context *ctx, size_t bytes) {
  const size_t alignment = bytes < LARGE_BLOCK ? HEED__ALIGNMENT : PAGE,
               extra = sizeof(prefix) + alignment - 1;
  if (bytes > PTRDIFF_MAX - extra) return NULL;
  bytes += extra;
  const size_t limit = ctx->limits.memory;
  ctx->refused = limit > 0 && (bytes > limit || ctx->in_use > limit - bytes);
  if (ctx->refused) {
    ctx->refused_at = ctx->in_use;
    return NULL;
  }
  char *start = ctx->allocator.allocate(ctx->allocator.user, bytes);
  if (start == NULL) return NULL;
  if (bytes >= HUGE_BLOCK && ctx->huge_pages) heed__system_advise_huge_pages(start, bytes);
  char *block = start + sizeof(prefix);
  block += -(uintptr_t)block & (alignment - 1);
  prefix *p = (prefix *)(void *)block - 1;
  *p = (prefix){start, bytes, ctx->blocks, NULL};
  if (p->next != NULL) p->next->previous = p;
  ctx->blocks = p;
  ctx->references++;
  ctx->in_use += bytes;
  if (ctx->in_use > ctx->peak) ctx->peak = ctx->in_use;
  return block;
}

void heed__release(heed_context *ctx, void *block) {
  if (block == NULL) return;
  const prefix removed = ((prefix *)block)[-1];
  *(removed.previous != NULL ? &removed.previous->next : &ctx->blocks) = removed.next;
  if (removed.next != NULL) removed.next->previous = removed.previous;
  ctx->in_use -= removed.bytes;
  ctx->allocator.release(ctx->allocator.user, removed.start, removed.bytes);
  heed__context_drop(ctx);
}

void heed_set_huge_pages(heed_context *ctx, bool wished) {
  if (ctx != NULL) ctx->huge_pages = wished;
}

void heed__external_add(heed_context *ctx, heed__external *resource,
                        void (*release)(heed__external *resource)) {
  *resource = (heed__external){ctx->externals, NULL, release};
  if (resource->next != NULL) resource->next->previous = resource;
  ctx->externals = resource;
}

void heed__external_remove(heed_context *ctx, heed__external *resource) {
  *(resource->previous != NULL ? &resource->previous->next : &ctx->externals) = resource->next;
  if (resource->next != NULL) resource->next->previous = resource->previous;
  resource->release(resource);
}

void heed__context_destroy(heed_context *ctx) {
  heed__stop_threads(ctx); /* before its block goes */
  heed__spare_free(ctx);
  while (ctx->externals != NULL) heed__external_remove(ctx, ctx->externals);
  while (ctx->blocks != NULL) heed__release(ctx, ctx->blocks + 1);
  heed_context_free(ctx);
}
