/* Memory: blocks aligned for vectors, on an allocator that need not align, counted on their context. */
#include "core.h"

/* Lies right before a block. */
typedef struct heed__prefix {
  void *start;                          /* what the allocator gave */
  size_t bytes;                         /* and was asked for */
  struct heed__prefix *next, *previous; /* all blocks of the context */
} prefix;

_Static_assert(HEED__ALIGNMENT % _Alignof(prefix) == 0 && sizeof(prefix) % _Alignof(prefix) == 0,
               "a prefix right before an aligned block must be aligned itself");

/* Large blocks all lie at the same place of a page: where one is read and another is written a line or two
 * further on in its page, the processor takes the reads for ones of what was just written, and a copy is
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
  const prefix taken = ((prefix *)block)[-1];
  *(taken.previous != NULL ? &taken.previous->next : &ctx->blocks) = taken.next;
  if (taken.next != NULL) taken.next->previous = taken.previous;
  ctx->in_use -= taken.bytes;
  ctx->allocator.release(ctx->allocator.user, taken.start, taken.bytes);
  heed__context_drop(ctx);
}

void heed_set_huge_pages(heed_context *ctx, bool wished) {
  if (ctx != NULL) ctx->huge_pages = wished;
}

void heed__external_add(heed_context *ctx, heed__external *thing, void (*give_back)(heed__external *thing)) {
  *thing = (heed__external){ctx->outside, NULL, give_back};
  if (thing->next != NULL) thing->next->previous = thing;
  ctx->outside = thing;
}

void heed__external_remove(heed_context *ctx, heed__external *thing) {
  *(thing->previous != NULL ? &thing->previous->next : &ctx->outside) = thing->next;
  if (thing->next != NULL) thing->next->previous = thing->previous;
  thing->give_back(thing);
}

void heed__context_destroy(heed_context *ctx) {
  heed__stop_threads(ctx); /* the pool is a block, too */
  while (ctx->outside != NULL) heed__external_remove(ctx, ctx->outside);
  while (ctx->blocks != NULL) heed__release(ctx, ctx->blocks + 1);
  heed_context_free(ctx);
}
