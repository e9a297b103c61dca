/* What the files of attention share: how a plan is made and moved from head to head. */
#ifndef HEED_ATTENTION_PLAN_H
#define HEED_ATTENTION_PLAN_H

#include "attention.h"

/** Checks the operands and fills in the plan's sizes and strides; task.out is still to come. joined and
 * widened_mask are to be freed, also on failure. Errors: SHAPE, DTYPE, ARGUMENT, INDEX, MEMORY. (check.c) */
HEED_MUST_USE
heed_status heed__attention_check(heed__attention_plan *p);
/** Its part: attn_mask in p->mask, the padding, the lengths. (masks.c) */
HEED_MUST_USE
heed_status heed__attention_check_masks(heed__attention_plan *p);

/** Fills in p->task, and the strides of the operands over heads. (strides.c) */
void heed__attention_set_strides(heed__attention_plan *p);
/** Names the tensor that receives the result. (strides.c) */
void heed__attention_set_out(heed__attention_plan *p, const heed_tensor *out);
/** Turns a copy of p->task into the task of that head. (strides.c) */
void heed__attention_move(heed__attention_task *t, const heed__attention_plan *p, int64_t head);

/** Allocates the taps that the operands ask for, except those that `joined` has; sets p->map. Errors: MEMORY.
 * (taps.c) */
HEED_MUST_USE
heed_status heed__attention_new_taps(heed__attention_plan *p);
/** Moves them to operands->found if status is OK, else frees them. (taps.c) */
void heed__attention_end_taps(heed__attention_plan *p, heed_status status);
/** Names the maps of a head in its task. (taps.c) */
void heed__attention_tap(heed__attention_task *t, const heed__attention_plan *p, int64_t head);

/** Whether the call has few queries on several keys, all with columns without gaps; without dropout such
 * calls are divided by heed__decode_divide. (decode.c) */
bool heed__attention_is_decode(const heed__attention_plan *p);
/** Fills in p->decode, except parts and scores: decode.area floats for each task (with one range: for each
 * slot), and decode.score_area for each slot, aligned to HEED__ALIGNMENT. */
void heed__decode_divide(heed__attention_plan *p, int workers);
/** For heed__work_begin: the decode.tasks tasks; when these are done, if there are several ranges, the
 * outputs of the decode.bundles bundles. */
bool heed__decode_run(void *plan, int64_t task, int slot, int64_t *position);
bool heed__decode_join(void *plan, int64_t bundle, int slot, int64_t *position);

#endif
