/* What the files of attention share: attention_check.c makes the problem, attention.c and decode.c divide it
 * into tasks. Sizes are named as in heed.h. */
#ifndef HEED_OPS_ATTENTION_H
#define HEED_OPS_ATTENTION_H

#include "ops.h"

typedef enum heed__attention_operand {
  HEED__ATTENTION_Q,
  HEED__ATTENTION_K,
  HEED__ATTENTION_V,
  HEED__ATTENTION_OUT,
  HEED__ATTENTION_MASK,
  HEED__ATTENTION_PADDING,
  HEED__ATTENTION_OPERANDS
} heed__attention_operand;

/* A call once it has been checked. A product is one head of queries of one batch item, counted from 0 in the
 * order of [batch..., hq]; `group` of them in a row, from a multiple of group on, share keys and values. */
typedef struct heed__attention_problem {
  int ndim; /* of the result [batch..., hq, l, dv]; 2 without heads */
  int64_t shape[HEED_MAX_DIMS];
  int head_dims; /* 1, or 0 if the leading dimensions are all batch */
  int batch_ndim;
  int64_t hq, hkv, l, s, d, dv;
  int64_t products, group; /* batch · hq, hq / hkv */

  /* [batch..., hkv, group] without sizes of 1, and the strides of the operands over it, in elements. */
  int outer_ndim;
  int64_t outer[HEED_MAX_DIMS + 1];
  ptrdiff_t step[HEED__ATTENTION_OPERANDS][HEED_MAX_DIMS + 1];
  heed__attention_task task; /* of product 0; all but the pointers is every product's */

  heed_tensor mask, *made; /* attn_mask in full width, and what it took to make it so */
} heed__attention_problem;

/** Checks the shapes and masks of a call; of the problem, `task.out` and its strides are still to come.
 * `made` is to be freed, also on failure. Errors: SHAPE, DTYPE, ARGUMENT, MEMORY. (attention_check.c) */
HEED_MUST_USE
heed_status heed__attention_begin(heed_context *ctx, const heed__attention_call *call,
                                  heed__attention_problem *p);

/** Names the tensor that the result goes to. (attention_check.c) */
void heed__attention_set_out(heed__attention_problem *p, const heed_tensor *out);

/** Moves the pointers of a task, a copy of p->task, to product i. (attention_check.c) */
void heed__attention_move(heed__attention_task *t, const heed__attention_problem *p, int64_t i);

/** Whether there are few queries on many keys, all without gaps in their columns; and the outputs of all
 * products then, without dropout. Errors: MEMORY. (decode.c) */
bool heed__attention_is_decode(const heed__attention_problem *p);
HEED_MUST_USE
heed_status heed__attention_decode(heed_context *ctx, const char *function, const heed__attention_problem *p);

#endif
