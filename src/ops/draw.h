/* Random tensors, for draw.c: those that a PHILOX generator draws. (draw_counted.c) */
#ifndef HEED_OPS_DRAW_H
#define HEED_OPS_DRAW_H

#include "ops.h"

/* Fill x, which is row-major. Errors: SHAPE (x is not inside the generator's whole), CANCELLED, LIMIT; the
 * caller then restores the generator. */

/** Uniform in [from, to). */
HEED_MUST_USE
heed_status heed__counted_uniform(heed_context *ctx, const char *function, heed_generator *g, double from,
                                  double to, const heed_tensor *x);
HEED_MUST_USE
heed_status heed__counted_normal(heed_context *ctx, const char *function, heed_generator *g, double mean,
                                 double std, const heed_tensor *x);
/** From `low` on, `range` of them. */
HEED_MUST_USE
heed_status heed__counted_integers(heed_context *ctx, const char *function, heed_generator *g, int64_t low,
                                   uint64_t range, const heed_tensor *x);
/** Uniform in (0, 1], as bernoulli compares them: 1 where they are at most p. */
HEED_MUST_USE
heed_status heed__counted_chances(heed_context *ctx, const char *function, heed_generator *g,
                                  const heed_tensor *x);
/** Dropout in place; x has elements. False if a cancellation check stopped it. */
HEED_MUST_USE
bool heed__counted_drop(heed_context *ctx, const heed__dropout *d, const heed_tensor *x);

#endif
