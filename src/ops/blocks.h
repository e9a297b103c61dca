/* Blocked dtypes as results: copies of rows, widening, quantizing. */
#ifndef HEED_BLOCKS_H
#define HEED_BLOCKS_H

#include "ops.h"

/** Quantizes the elements of one block, each at most 65504 in magnitude. (quantize_block.c) */
void heed__quantize_block(heed_dtype dtype, const float *x, uint8_t *out);
/** Units of work of quantizing an element. (quantize_block.c) */
double heed__quantize_units(heed_dtype dtype);
/** As heed__to, where x, dtype or both are blocked; *out must be NULL. (blocks.c) */
HEED_MUST_USE
heed_status heed__copy_blocked(heed_context *ctx, const char *function, const heed_tensor *x,
                               heed_dtype dtype, heed_tensor **out);

#endif
