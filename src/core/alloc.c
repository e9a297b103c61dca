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

void *heed__allocate(heed_context *ctx, size_t bytes) {
  const size_t extra = sizeof(prefix) + HEED__ALIGNMENT - 1;
  if (bytes > PTRDIFF_MAX - extra) return NULL;
  bytes += extra;
  char *start = ctx->allocator.allocate(ctx->allocator.user, bytes);
  if (start == NULL) return NULL;
  char *block = start + sizeof(prefix);
  block += -(uintptr_t)block & (HEED__ALIGNMENT - 1);
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

void heed__context_destroy(heed_context *ctx) {
  while (ctx->blocks != NULL) heed__release(ctx, ctx->blocks + 1);
  heed_context_free(ctx);
}
