/* Memory: blocks aligned for vectors, on an allocator that need not align, counted on their context. */
#include "core.h"

/* Lies right before a block. */
typedef struct prefix {
  void *start;  /* what the allocator gave */
  size_t bytes; /* and was asked for */
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
  ((prefix *)(void *)block)[-1] = (prefix){start, bytes};
  ctx->references++;
  ctx->in_use += bytes;
  if (ctx->in_use > ctx->peak) ctx->peak = ctx->in_use;
  return block;
}

void heed__release(heed_context *ctx, void *block) {
  if (block == NULL) return;
  prefix taken = ((prefix *)block)[-1];
  ctx->in_use -= taken.bytes;
  ctx->allocator.release(ctx->allocator.user, taken.start, taken.bytes);
  heed__context_drop(ctx);
}
