/* What the files of attention share: attention_check.c, attention_mask.c and attention_place.c make the
 * problem, attention.c and decode.c divide it into tasks. Sizes are named as in heed.h; s counts past keys,
 * too. */
#ifndef HEED_OPS_ATTENTION_H
#define HEED_OPS_ATTENTION_H

#include "ops.h"

/* Those before the mask every call has. */
typedef enum heed__attention_operand {
  HEED__ATTENTION_Q,
  HEED__ATTENTION_K,
  HEED__ATTENTION_V,
  HEED__ATTENTION_OUT,
  HEED__ATTENTION_MASK,
  HEED__ATTENTION_PADDING,
  HEED__ATTENTION_LENGTHS,
  HEED__ATTENTION_K_SCALE,
  HEED__ATTENTION_V_SCALE,
  HEED__ATTENTION_OPERANDS
} heed__attention_operand;

/* A call once it has been checked. A product is one head of queries of one batch item, counted from 0 in the
 * order of [batch..., hq]; `group` of them in a row, from a multiple of group on, share keys and values. */
typedef struct heed__attention_problem {
  int ndim;      /* of the result [batch..., hq, l, dv]; 2 without heads */
  int head_dims; /* 1, or 0 if the leading dimensions are all batch */
  int batch_ndim;
  int64_t hq, hkv, l, s, d, dv;
  int64_t products, group; /* batch · hq, hq / hkv */
  int64_t past;            /* keys of them; 0: none */
  int64_t span;   /* the most keys that the rows of a product can see by their places, from the first to the
                     last; given by sizes and options alone */
  int64_t offset; /* of the queries, but for what lengths add */
  int64_t left, right;         /* of the window and causality; INT64_MAX: no bound */
  const int64_t *lengths;      /* of product 0; NULL: none */
  const float *slopes, *sinks; /* of product 0; NULL: none */
  ptrdiff_t slope_stride, sink_stride;
  const heed_tensor *k, *v; /* the call's, or past ones and these together, which are `joined` */
  heed_tensor *joined[2];
  heed_tensor *made;         /* the mask in full width, if it had to be made */
  heed__attention_task task; /* of product 0; all but pointers, and what depends on lengths and heads, is
                                every product's */

  /* [batch..., hkv, group] without sizes of 1, and the strides of the operands over it, in elements. */
  int outer_ndim;
  bool plain; /* there are no operands from the mask on, and nothing that differs from head to head */

  int64_t shape[HEED_MAX_DIMS]; /* [batch..., hq, l, dv] */
  int64_t outer[HEED_MAX_DIMS + 1];
  ptrdiff_t step[HEED__ATTENTION_OPERANDS][HEED_MAX_DIMS + 1];
  heed_tensor mask; /* attn_mask in full width */
} heed__attention_problem;

/** Checks a call; of the problem, `task.out` and its strides are still to come. heed__attention_end is due,
 * also on failure. Errors: SHAPE, DTYPE, ARGUMENT, INDEX, MEMORY. (attention_check.c) */
HEED_MUST_USE
heed_status heed__attention_begin(heed_context *ctx, const heed__attention_call *call,
                                  heed__attention_problem *p);
void heed__attention_end(heed__attention_problem *p);

/* Its parts: the mask of a call in full width, in p->mask; the padding; the lengths; the window. Errors: as
 * above. (attention_mask.c) */
HEED_MUST_USE
heed_status heed__attention_check_masks(heed_context *ctx, const heed__attention_call *call,
                                        heed__attention_problem *p);

/** Fills in where the operands lie: the task and the strides over products. (attention_place.c) */
void heed__attention_place(heed__attention_problem *p, const heed__attention_call *call);

/** Names the tensor that the result goes to. (attention_place.c) */
void heed__attention_set_out(heed__attention_problem *p, const heed_tensor *out);

/** Makes a task, a copy of p->task, that of product i. (attention_place.c) */
void heed__attention_move(heed__attention_task *t, const heed__attention_problem *p, int64_t i);

/** Whether there are few queries on many keys, all without gaps in their columns; and the outputs of all
 * products then, without dropout. Errors: MEMORY. (decode.c) */
bool heed__attention_is_decode(const heed__attention_problem *p);
HEED_MUST_USE
heed_status heed__attention_decode(heed_context *ctx, const char *function, const heed__attention_problem *p);

#endif
