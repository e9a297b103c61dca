/* Contexts: they own all state, and live until the owner and the last block of memory are released. */
#include "core.h"

#include <stdlib.h>

static void *plain_allocate(void *user, size_t bytes) {
  (void)user;
  return malloc(bytes);
}

static void plain_release(void *user, void *block, size_t bytes) {
  (void)user;
  (void)bytes;
  free(block);
}

/* ---- Version ---- */

const char *heed_version(void) {
  return HEED_VERSION;
}

int heed_version_number(void) {
  return HEED_VERSION_NUMBER;
}

bool heed_check_version(int header) {
  const int part = HEED_VERSION_MAJOR > 0 ? 10000 : 100;
  return header >= 0 && header / part == HEED_VERSION_NUMBER / part;
}

/* ---- Construction and release ---- */

heed_status heed_context_new_for(int header, const heed_allocator *allocator, heed_context **out) {
  return heed_check_version(header) ? (heed_context_new)(allocator, out) : HEED_MISMATCH;
}

heed_status(heed_context_new)(const heed_allocator *allocator, heed_context **out) {
  static const heed_allocator plain = {plain_allocate, plain_release, NULL};
  const bool own = allocator == NULL;
  if (own) allocator = &plain;
  if (allocator->allocate == NULL || allocator->release == NULL || out == NULL) return HEED_ARGUMENT;
  heed__cpu cpu;
  if (!heed__cpu_choose(&cpu)) return HEED_ARGUMENT;
  heed_context *ctx = allocator->allocate(allocator->user, sizeof(*ctx));
  if (ctx == NULL) return HEED_MEMORY;
  *ctx =
      (heed_context){.allocator = *allocator, .references = 1, .cpu = cpu, .threads = 1, .huge_pages = own};
  if (own) ctx->kept_limit = HEED__KEPT_MEMORY;
  ctx->generator.context = ctx;
  ctx->generator.owned_by_context = true;
  heed_generator_seed(&ctx->generator, HEED_DEFAULT_SEED);
  *out = ctx;
  return HEED_OK;
}

void heed__context_drop(heed_context *ctx) {
  if (--ctx->references > 0) {
    if (ctx->references == 1 && ctx->pool) heed__stop_threads(ctx); /* the pool's block is the last */
    return;
  }
  const heed_allocator allocator = ctx->allocator; /* outlives the context */
  allocator.release(allocator.user, ctx, sizeof(*ctx));
}

void heed_context_free(heed_context *ctx) {
  if (ctx == NULL) return;
  heed__spare_free(ctx);
  heed__stop_threads(ctx);
  heed_set_kept_memory(ctx, 0);
  ctx->threads = 1; /* tensors that are still held start no new pool */
  heed__context_drop(ctx);
}

const char *heed_message(const heed_context *ctx) {
  if (ctx == NULL) return "";
  const char *busy = heed__busy_message(ctx);
  return busy != NULL ? busy : ctx->message;
}

size_t heed_memory_in_use(const heed_context *ctx) {
  return ctx != NULL ? ctx->in_use : 0;
}

size_t heed_memory_peak(const heed_context *ctx) {
  return ctx != NULL ? ctx->peak : 0;
}

heed_status heed_set_matmul_precision(heed_context *ctx, heed_matmul_precision precision) {
  HEED__ENTER(ctx, "set_matmul_precision", ctx);
  if ((int)precision < HEED_PRECISION_HIGHEST || precision > HEED_PRECISION_MEDIUM)
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "set_matmul_precision: precision is %d; it must be HEED_PRECISION_HIGHEST, _HIGH or _MEDIUM",
        (int)precision);
  if (precision != HEED_PRECISION_HIGHEST) ctx->cpu = heed__cpu_for_narrow(ctx->cpu);
  ctx->precision = precision;
  return HEED_OK;
}

heed_matmul_precision heed_get_matmul_precision(const heed_context *ctx) {
  return ctx != NULL ? ctx->precision : HEED_PRECISION_HIGHEST;
}

void heed_reset_peak(heed_context *ctx) {
  if (ctx == NULL) return;
  heed__shrink_kept(ctx, 0);
  ctx->peak = ctx->in_use;
}
