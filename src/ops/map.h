/* The one loop behind all elementwise operations: a function of rows applied to tensors that broadcast, of
 * any strides and dtypes. */
#ifndef HEED_OPS_MAP_H
#define HEED_OPS_MAP_H

#include "ops.h"

#define HEED__MAP_INPUTS 3

/* Elements of a buffer on the stack, through which rows go that lie otherwise than a function wants them. */
#define HEED__CHUNK 256

/* Elements of one row of an input: `stride` elements apart, 0 where one stands for all. */
typedef struct heed__span {
  const void *data;
  ptrdiff_t stride;
} heed__span;

/** out[i] = f(in[0][i], …) for n elements, out without gaps; out may be the same place as an input. */
typedef void heed__row(const void *user, void *out, const heed__span *in, size_t n);

typedef struct heed__map {
  const char *function; /* for messages, as are the names of the inputs */
  heed_dtype result;
  heed__row *row;
  const void *user;
  bool packed; /* the row function wants its inputs without gaps, too */
  int count;   /* of inputs */
  struct {
    const char *name;
    const heed_tensor *tensor;
    heed_dtype read_as;
  } input[HEED__MAP_INPUTS];
} heed__map;

/** Errors: SHAPE, DTYPE, ARGUMENT (of *out), MEMORY. */
HEED_MUST_USE
heed_status heed__map_run(heed_context *ctx, const heed__map *map, heed_tensor **out);
/** For a map to BOOL: whether it gives true everywhere. Errors: SHAPE, DTYPE. */
HEED_MUST_USE
heed_status heed__map_all(heed_context *ctx, const heed__map *map, bool *out);

/** n elements of a row as another dtype (and without gaps if `packed`): the row itself if it is so already,
 * else what buffer, of HEED__CHUNK elements of any dtype, then holds. */
heed__span heed__fetch(heed_dtype as, bool packed, heed_dtype dtype, const char *data, ptrdiff_t stride,
                       int64_t n, void *buffer);

/** Of two dtypes for arithmetic, the one to work in. */
static inline heed_dtype heed__wider(heed_dtype a, heed_dtype b) {
  return a > b ? a : b;
}

#endif
