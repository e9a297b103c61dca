/* Fused backward passes: the gradients of operations as functions over tensors, for the nodes of the tape.
 * Each result is new (*out is NULL before) or, where a pointer is NULL, not computed; a failing call leaves
 * nothing behind. `function` is the name in messages. Results have the same bits for any number of threads.
 * Included by grad.h. */
#ifndef HEED_GRAD_FUSED_H
#define HEED_GRAD_FUSED_H

#include "../attention/attention.h"

/* Of gelu, silu, sigmoid and tanh: heed__unary_gradient of ops. Of rope: heed__rope_gradient of attention. */

/** From y = softmax(x), or with `logs` log_softmax(x), along dim (from 0). (rows.c) */
HEED_MUST_USE
heed_status heed__softmax_gradient(heed_context *ctx, const char *function, bool logs, const heed_tensor *y,
                                   int dim, const heed_tensor *dy, heed_tensor **dx);

/** Of layer norm (centred), or RMS norm, over the last ndims dimensions of x; weight may be NULL. dweight and
 * dbias have these dimensions. Sums over rows are accurate to about the rounding of each term. (norms.c) */
HEED_MUST_USE
heed_status heed__norm_gradient(heed_context *ctx, const char *function, bool centred, const heed_tensor *x,
                                int ndims, const heed_tensor *weight, double epsilon, const heed_tensor *dy,
                                heed_tensor **dx, heed_tensor **dweight, heed_tensor **dbias);

/** Of an embedding of ids (int64, checked) in `rows` rows: dweight [rows, d], in which the gradients dy [...,
 * d] of an id are summed. The row padding_idx (from 1; 0: none) stays 0. (embedding.c) */
HEED_MUST_USE
heed_status heed__embedding_gradient(heed_context *ctx, const char *function, const heed_tensor *ids,
                                     int64_t rows, int64_t padding_idx, const heed_tensor *dy,
                                     heed_tensor **dweight);

#endif
