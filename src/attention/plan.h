/* What the files of attention share: attention_check.c, attention_mask.c and attention_place.c make the
 * problem, attention.c and decode.c divide it into tasks. Sizes are named as in heed.h; s counts past keys,
 * too. */
#ifndef HEED_OPS_ATTENTION_H
#define HEED_OPS_ATTENTION_H

#include "attention.h"

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

/** Whether there are few queries on some keys or many, all without gaps in their columns; without dropout
 * these are decode's. (decode.c) */
bool heed__attention_is_decode(const heed__attention_problem *p);
/** Divides them. Of d, `parts` and `scores` are still to come: d->area floats for each task, or, with one
 * range, for each slot, and for each slot d->score_room, aligned to HEED__ALIGNMENT. */
void heed__decode_divide(heed__decode_division *d, const heed__attention_problem *p,
                         const heed__kernels *kernels, int workers);
/** For heed__work_begin with d: the d->tasks tasks, and, when all are done, if there are several ranges, the
 * d->count parts of the output. */
bool heed__decode_run(void *d, int64_t task, int slot, int64_t *position);
bool heed__decode_join(void *d, int64_t some, int slot, int64_t *position);

#endif
