/* The kernel tables that this processor can run, for tests of all of them. If the environment variable
 * HEED_CPU is set, only that table is tested, so that `make test-isa` tests none twice. */
#ifndef HEED_TEST_TABLES_H
#define HEED_TEST_TABLES_H

#include "support.h"

#include "../../src/kernels/kernels.h"

enum {
#define X(name) +1
  TABLES = 0 HEED__CPU_LIST(X) /* compiled for this architecture */
#undef X
};

/** The i-th instruction set that runs here, from 0; false after the last. */
static inline bool cpu_at(int i, heed__cpu *out) {
  heed__cpu best;
  assert_true(heed__cpu_choose(&best));
  const char *forced = getenv("HEED_CPU");
  for (int cpu = 0; cpu < TABLES; cpu++) {
    const bool tested = forced && *forced ? cpu == (int)best : heed__cpu_runs((heed__cpu)cpu);
    if (!tested || i-- > 0) continue;
    *out = (heed__cpu)cpu;
    return true;
  }
  return false;
}

/** Its table, or NULL after the last. */
static inline const heed__kernels *table_at(int i) {
  heed__cpu cpu;
  return cpu_at(i, &cpu) ? heed__kernels_for(cpu) : NULL;
}

/* A pace with which kernels yield after every step. */
static inline const heed__pace *always_due(void) {
  static const heed__pace due = {.cancelled = true};
  return &due;
}

/** Runs the test with a context on each table. */
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
