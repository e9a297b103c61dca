/* The kernel tables that this processor has, for tests that go through all of them. The environment's
 * HEED_CPU, if set, leaves that one alone, so that `make test-isa` tries none twice. */
#ifndef HEED_TEST_TABLES_H
#define HEED_TEST_TABLES_H

#include "support.h"

#include "../../src/kernels/kernels.h"

static inline const heed__kernels *table_of(heed__cpu cpu) {
  heed_context ctx = {.cpu = cpu};
  return heed__kernels_of(&ctx);
}

/** The i-th instruction set that runs here, from 0; false after the last. */
static inline bool cpu_at(int i, heed__cpu *out) {
  heed__cpu best;
  assert_true(heed__cpu_choose(&best));
  const char *forced = getenv("HEED_CPU");
  for (heed__cpu cpu = forced && *forced ? best : HEED__CPU_scalar; cpu <= best; cpu++) {
    if (!table_of(cpu) || i-- > 0) continue;
    *out = cpu;
    return true;
  }
  return false;
}

/* A pace with which kernels leave after every piece. */
static inline const heed__pace *always_due(void) {
  static const heed__pace due = {.cancelled = true};
  return &due;
}

/** Its table, or NULL after the last. */
static inline const heed__kernels *table_at(int i) {
  heed__cpu cpu;
  return cpu_at(i, &cpu) ? table_of(cpu) : NULL;
}

/** Runs the test with a context on each of them. */
static inline void with_every_table(void (*test)(heed_context *ctx)) {
  heed__cpu cpu;
  for (int i = 0; cpu_at(i, &cpu); i++) {
    heed_context *ctx = NULL;
    assert_ok(heed_context_new(NULL, &ctx));
    ctx->cpu = cpu;
    test(ctx);
    heed_context_free(ctx);
  }
}

#endif
