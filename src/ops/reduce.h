/* The loop of all reductions: folds dimensions of a tensor of any strides into results. */
#ifndef HEED_OPS_REDUCE_H
#define HEED_OPS_REDUCE_H

#include "ops.h"

#define HEED__REDUCE_WIDTH   1024 /* results that are computed side by side */
#define HEED__REDUCE_OUTPUTS 2

/* How elements are folded. They come in row-major order, as suits the strides: either many contiguous ones
 * for result 0 (along), or contiguous rows with one element for each of n results, `step` elements apart
 * (across). */
typedef struct heed__reduction {
  heed_dtype read_as;
  int passes; /* number of passes over the elements */
  void (*along)(void *state, const void *x, size_t n);
  void (*across)(void *state, const void *x, ptrdiff_t step, size_t rows, size_t n);
  /** Begins a pass (from 0) for results 0…width - 1, of `count` elements each. */
  void (*begin)(void *state, int pass, size_t width, int64_t count);
  /** Writes these results, `stride` elements apart in each output. */
  void (*finish)(void *state, size_t width, void *const *out, const ptrdiff_t *stride);
  size_t state_bytes;
  /** May be NULL: computes `results` results at once, `stride` apart, from contiguous rows of n elements,
   * `step` apart. */
  void (*rows)(void *state, const void *x, ptrdiff_t step, size_t n, void *out, ptrdiff_t stride,
               size_t results);
} heed__reduction;

/** The dimensions as bits; all of them if ndims is 0. Errors: INDEX, ARGUMENT (a dimension named twice). */
HEED_MUST_USE
heed_status heed__reduced_dims(heed_context *ctx, const char *function, const heed_tensor *x, int ndims,
                               const int *dims, uint32_t *reduced);
/** Each of these dimensions must have an element, like in PyTorch also if the result has none. Errors: SHAPE.
 */
HEED_MUST_USE
heed_status heed__check_reduced(heed_context *ctx, const char *function, const heed_tensor *x,
                                uint32_t reduced);
/** The shape of the result; returns the number of its dimensions. */
int heed__reduced_shape(const heed_tensor *x, uint32_t reduced, bool keepdim, int64_t *shape);
/** Folds x into the outputs, which have that shape and do not overlap x or each other. state: holds the
 * settings that the functions read; copied for each further thread. False if a cancellation check stops it.
 */
HEED_MUST_USE
bool heed__reduce(heed_context *ctx, const heed__reduction *r, void *state, const heed_tensor *x,
                  uint32_t reduced, bool keepdim, int outputs, const heed_tensor *const *out);

/** A whole operation: x, folded along these dimensions, to *out with that dtype. */
HEED_MUST_USE
heed_status heed__reduce_dims(heed_context *ctx, const char *function, const heed__reduction *r, void *state,
                              const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                              heed_dtype dtype, heed_tensor **out);

#endif
