/* The loop of all elementwise operations: applies a function of rows to tensors that broadcast, of any
 * strides and dtypes. */
#ifndef HEED_OPS_MAP_H
#define HEED_OPS_MAP_H

#include "ops.h"

#define HEED__MAP_INPUTS 3

/* Elements of the buffers on the stack in which rows are converted or made contiguous. */
#define HEED__CHUNK 256

/* A row of an input: elements `stride` apart; 0: one element for the whole row. */
typedef struct heed__span {
  const void *data;
  ptrdiff_t stride;
} heed__span;

/** out[i] = f(in[0][i], …) for n elements; out is contiguous and may be one of the inputs. */
typedef void heed__row(const void *user, void *out, const heed__span *in, size_t n);

typedef struct heed__map {
  const char *function; /* for messages, like the names of the inputs */
  heed_dtype result;
  heed__row *row;
  const void *user;
  bool packed; /* the row function needs contiguous inputs */
  int count;   /* number of inputs */
  struct {
    const char *name;
    const heed_tensor *tensor;
    heed_dtype read_as;
  } input[HEED__MAP_INPUTS];
} heed__map;

/** Errors: SHAPE, DTYPE, ARGUMENT (of *out), MEMORY. */
HEED_MUST_USE
heed_status heed__map_run(heed_context *ctx, const heed__map *map, heed_tensor **out);
/** For a map to BOOL: whether all results are true. Errors: SHAPE, DTYPE. */
HEED_MUST_USE
heed_status heed__map_all(heed_context *ctx, const heed__map *map, bool *out);

/** n elements of a row as dtype `as` (contiguous if `packed`): the row itself if possible, else converted
 * into buffer, which fits HEED__CHUNK elements of any dtype. */
heed__span heed__fetch(heed_dtype as, bool packed, heed_dtype dtype, const char *data, ptrdiff_t stride,
                       int64_t n, void *buffer);

/** The dtype in which an operation on two dtypes for arithmetic works. */
static inline heed_dtype heed__wider(heed_dtype a, heed_dtype b) {
  return a > b ? a : b;
}

#endif
