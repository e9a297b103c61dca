/* Memory: aligned blocks on top of an allocator that need not align, counted on their context; and external
 * resources, which a context releases with itself. */
#include "core.h"

/* Directly precedes each block. */
typedef struct heed__prefix {
  void *start;                          /* as returned by the allocator */
  size_t bytes;                         /* as requested from it */
  struct heed__prefix *next, *previous; /* the list of the context's blocks, or of its kept ones */
} prefix;

_Static_assert(HEED__ALIGNMENT % _Alignof(prefix) == 0 && sizeof(prefix) % _Alignof(prefix) == 0,
               "a prefix that precedes an aligned block must be aligned itself");

/* All large blocks begin at the same offset in a page. If a copy writes a cache line or two beyond the offset
 * at which it reads, the processor takes the reads to depend on the writes (4K aliasing), and the copy is
 * slower by a quarter. */
#define LARGE_BLOCK ((size_t)1 << 16)
#define PAGE        ((size_t)4096)
#define HUGE_BLOCK  ((size_t)1 << 22)

/* ---- Kept memory ---- */

/* Large blocks that were released stay with the context for later blocks of the same size: their pages are
 * mapped already. Without them a training step of a small GPT took 1.3 times as long, and two results of 4 MB
 * in turn 7 times. Together with the blocks in use they never exceed the peak, nor the memory limit. */

#define KEPT_SEARCH 64 /* blocks that are compared at most */

static void insert(prefix **first, prefix *p) {
  p->next = *first;
  p->previous = NULL;
  if (p->next != NULL) p->next->previous = p;
  *first = p;
}

static void take_out(prefix **first, const prefix *p) {
  *(p->previous != NULL ? &p->previous->next : first) = p->next;
  if (p->next != NULL) p->next->previous = p->previous;
}

static void take_kept(heed_context *ctx, const prefix *p) {
  if (ctx->kept_oldest == p) ctx->kept_oldest = p->previous;
  take_out(&ctx->kept_newest, p);
  ctx->kept -= p->bytes;
}

void heed__shrink_kept(heed_context *ctx, size_t bytes) {
  while (ctx->kept > bytes) {
    const prefix p = *ctx->kept_oldest;
    take_kept(ctx, ctx->kept_oldest);
    ctx->allocator.release(ctx->allocator.user, p.start, p.bytes);
  }
}

/* Shrinks to what may be kept beside `in_use` bytes. */
static void limit_kept(heed_context *ctx, size_t in_use) {
  const size_t limit = ctx->limits.memory, whole = limit > 0 && limit < ctx->peak ? limit : ctx->peak,
               beside = whole > in_use ? whole - in_use : 0;
  heed__shrink_kept(ctx, beside < ctx->kept_limit ? beside : ctx->kept_limit);
}

static prefix *find_kept(heed_context *ctx, size_t bytes) {
  prefix *p = ctx->kept_newest;
  for (int i = 0; p != NULL && p->bytes != bytes; p = p->next)
    if (++i == KEPT_SEARCH) return NULL;
  if (p != NULL) take_kept(ctx, p);
  return p;
}

static prefix *new_prefix(heed_context *ctx, size_t bytes, size_t alignment) {
  limit_kept(ctx, ctx->in_use + bytes);
  char *start = ctx->allocator.allocate(ctx->allocator.user, bytes);
  if (start == NULL && ctx->kept > 0) {
    heed__shrink_kept(ctx, 0);
    start = ctx->allocator.allocate(ctx->allocator.user, bytes);
  }
  if (start == NULL) return NULL;
  if (bytes >= HUGE_BLOCK && ctx->huge_pages) heed__system_advise_huge_pages(start, bytes);
  char *block = start + sizeof(prefix);
  block += -(uintptr_t)block & (alignment - 1);
  prefix *p = (prefix *)(void *)block - 1;
  *p = (prefix){.start = start, .bytes = bytes};
  return p;
}

void heed_set_kept_memory(heed_context *ctx, size_t bytes) {
  if (ctx == NULL) return;
  ctx->kept_limit = bytes;
  heed__shrink_kept(ctx, bytes);
}

/* ---- Blocks ---- */

void *heed__allocate(heed_context *ctx, size_t bytes) {
  const size_t alignment = bytes < LARGE_BLOCK ? HEED__ALIGNMENT : PAGE,
               extra = sizeof(prefix) + alignment - 1;
  const size_t limit = ctx->limits.memory;
  const bool possible = bytes <= PTRDIFF_MAX - extra;
  if (possible) bytes += extra;
  const bool refused = limit > 0 && (bytes > limit || ctx->in_use > limit - bytes);
  prefix *p = possible && !refused && alignment == PAGE ? find_kept(ctx, bytes) : NULL;
  if (p == NULL && possible && !refused) p = new_prefix(ctx, bytes, alignment);
  if (p == NULL) {
    ctx->refused = refused;
    ctx->refused_at = ctx->in_use;
    return NULL;
  }
  insert(&ctx->blocks, p);
  ctx->references++;
  ctx->in_use += bytes;
  if (ctx->in_use > ctx->peak) ctx->peak = ctx->in_use;
  return p + 1;
}

void heed__release(heed_context *ctx, void *block) {
  if (block == NULL) return;
  prefix *p = (prefix *)block - 1;
  take_out(&ctx->blocks, p);
  ctx->in_use -= p->bytes;
  if (p->bytes >= LARGE_BLOCK + PAGE && p->bytes <= ctx->kept_limit) {
    insert(&ctx->kept_newest, p);
    if (p->next == NULL) ctx->kept_oldest = p;
    ctx->kept += p->bytes;
    limit_kept(ctx, ctx->in_use);
  } else {
    ctx->allocator.release(ctx->allocator.user, p->start, p->bytes);
  }
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
