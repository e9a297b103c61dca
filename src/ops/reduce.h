/* The one loop behind all reductions: dimensions of a tensor of any strides are folded into a result each. */
#ifndef HEED_OPS_REDUCE_H
#define HEED_OPS_REDUCE_H

#include "ops.h"

#define HEED__REDUCE_WIDTH   1024 /* results that are worked on side by side */
#define HEED__REDUCE_OUTPUTS 2

/* How elements are folded. They come in row-major order: either many for one result (along), which has the
 * number 0, without gaps; or rows of one for each of n results (across), which have no gaps and begin `step`
 * elements apart; as it suits the strides. */
typedef struct heed__reduction {
  heed_dtype read_as;
  int passes; /* over the elements */
  void (*along)(void *state, const void *x, size_t n);
  void (*across)(void *state, const void *x, ptrdiff_t step, size_t rows, size_t n);
  /** Starts a pass (from 0) for the results 0…width - 1, each of `count` elements. */
  void (*begin)(void *state, int pass, size_t width, int64_t count);
  /** Writes those results, which lie `stride` elements apart in each output. */
  void (*finish)(void *state, size_t width, void *const *out, const ptrdiff_t *stride);
  size_t state_bytes;
  /** May be NULL: `results` at once, which lie `stride` apart, of n elements each, which lie without gaps and
   * begin `step` apart. */
  void (*rows)(void *state, const void *x, ptrdiff_t step, size_t n, void *out, ptrdiff_t stride,
               size_t results);
} heed__reduction;

/** The dimensions as bits; all of them if ndims is 0. Errors: INDEX, ARGUMENT (one that is named twice). */
HEED_MUST_USE
heed_status heed__reduced_dims(heed_context *ctx, const char *function, const heed_tensor *x, int ndims,
                               const int *dims, uint32_t *reduced);
/** The shape that is left of x; returns its dimensions. */
int heed__reduced_shape(const heed_tensor *x, uint32_t reduced, bool keepdim, int64_t *shape);
/** Folds x into the outputs, which have that shape and overlap nothing. The state comes with the settings
 * that the functions read, and is copied for each further thread. False if the work is due before all is
 * done. */
HEED_MUST_USE
bool heed__reduce(heed_context *ctx, const heed__reduction *r, void *state, const heed_tensor *x,
                  uint32_t reduced, bool keepdim, int outputs, const heed_tensor *const *out);

#endif
