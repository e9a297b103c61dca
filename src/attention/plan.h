/* Shared by the files of attention: the steps that make a plan. */
#ifndef HEED_ATTENTION_PLAN_H
#define HEED_ATTENTION_PLAN_H

#include "attention.h"

/** Checks the operands and sets the plan's sizes and strides, except those of the output. The caller frees
 * them with heed__attention_free_operands, also on failure. Errors: SHAPE, DTYPE, ARGUMENT, INDEX, MEMORY.
 * (check.c) */
HEED_MUST_USE
heed_status heed__attention_check(heed__attention_plan *p);
/** Frees what the checks allocated, also after a failure. */
static inline void heed__attention_free_operands(heed__attention_plan *p) {
  heed_tensor_free(p->widened_mask);
  heed_tensor_free(p->joined[0]);
  heed_tensor_free(p->joined[1]);
  heed__release(p->context, p->items);
  heed__release(p->context, p->intervals);
}
/** Part of it: checks padding and lengths, and sets p->mask. (masks.c) */
HEED_MUST_USE
heed_status heed__attention_check_masks(heed__attention_plan *p);

/** Part of it: computes the intervals of options.mask. Errors: SHAPE, INDEX, MEMORY. (intervals.c) */
HEED_MUST_USE
heed_status heed__attention_add_mask(heed__attention_plan *p);
/** Begins to find intervals in a boolean mask, if there is one; the task then has both. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__attention_scan_begin(heed__attention_plan *p, int workers);
/** True when they are found; then the task has no boolean mask if the intervals are the same. */
HEED_MUST_USE
bool heed__attention_scan_run(heed__attention_plan *p);
void heed__attention_scan_end(heed__attention_plan *p);
/** Reads the host's options, of any version. Errors: ARGUMENT. (forward.c) */
HEED_MUST_USE
heed_status heed__attention_read_options(heed_context *ctx, const char *function,
                                         const heed_attention_options *options,
                                         heed__attention_operands *operands);
/** attend, a function as heed__attention; after an error the generator is as before. (forward.c) */
typedef heed_status heed__attend(heed_context *ctx, const heed__attention_operands *operands,
                                 heed_tensor **out);
HEED_MUST_USE
heed_status heed__attention_drawing(heed_context *ctx, const heed__attention_operands *operands,
                                    heed__attend *attend, heed_tensor **out);
/** Part of it: sets the items, and the sizes that depend on them. (varlen.c) */
HEED_MUST_USE
heed_status heed__attention_check_items(heed__attention_plan *p);
/** The error for an option that packed sequences do not take. (varlen.c) */
HEED_MUST_USE
heed_status heed__attention_refuse_packed(const heed__attention_plan *p, const char *option);
/** Numbers the units of the items, of at most `rows` rows each; returns their number. (varlen.c) */
int64_t heed__attention_number_units(heed__attention_plan *p, int64_t rows);
/** The item that contains a unit. (varlen.c) */
int64_t heed__attention_item_of(const heed__attention_plan *p, int64_t unit);
/** Turns the task of a head of a packed sequence into the same task in the rows of all of q. (varlen.c) */
void heed__attention_in_all_rows(heed__attention_task *t, const heed__attention_plan *p, int64_t head);
/** The first row of a head in arrays [heads, l]. */
static inline int64_t heed__attention_first_row(const heed__attention_plan *p, int64_t head) {
  if (!p->packed) return head * p->query_length;
  const int64_t item = heed__quotient(head, p->query_heads);
  return (head - item * p->query_heads) * p->query_length + p->items[item].first_query;
}
/** The position of an item's first query among its keys. */
static inline int64_t heed__attention_offset_of(const heed__attention_plan *p,
                                                const heed__attention_item *item) {
  return p->offset + item->key_length - item->query_length;
}
/** The rows of all heads. */
static inline int64_t heed__attention_all_rows(const heed__attention_plan *p) {
  return (p->packed ? p->query_heads : p->heads) * p->query_length;
}

/** The multiplications of the plan's scores and output: of all pairs of a query and a key that the sizes and
 * the window admit, also where another mask hides the key. (plan.c) */
double heed__attention_products(const heed__attention_plan *p);

/** Sets p->task, and the strides of the operands over heads. (strides.c) */
void heed__attention_set_strides(heed__attention_plan *p);
/** Sets the intervals. (strides.c) */
void heed__attention_set_intervals(heed__attention_plan *p);
/** Sets the output. (strides.c) */
void heed__attention_set_out(heed__attention_plan *p, const heed_tensor *out);
/** Turns a copy of p->task into the task of that head. (strides.c) */
void heed__attention_move(heed__attention_task *t, const heed__attention_plan *p, int64_t head);

/** Makes the requested taps, except those in `joined`, and sets p->map and p->lse. `shares`: the inputs
 * themselves may be taps. Errors: INDEX, ARGUMENT, MEMORY. (taps.c) */
HEED_MUST_USE
heed_status heed__attention_new_taps(heed__attention_plan *p, bool shares);
/** Moves the taps to operands->found if status is OK, otherwise frees them. (taps.c) */
void heed__attention_end_taps(heed__attention_plan *p, heed_status status);
/** Sets the maps of a head in its task; false if they have no rows of it. (taps.c) */
bool heed__attention_tap(heed__attention_task *t, const heed__attention_plan *p, int64_t head);

/** Writes the maps that the task names, as the scalar attention kernel does, for its rows first…last-1. Row r
 * of the maps is that of query queries[r], from 0, for `count` of them, or of query r if queries is NULL.
 * False if it stopped at a yield point. (maps.c) */
HEED_MUST_USE
bool heed__attention_maps(const heed__kernels *kernels, const heed__attention_task *t, const int64_t *queries,
                          int64_t count, const heed__pace *pace, int64_t *position);
/** The floats of its scratch. */
size_t heed__attention_maps_scratch(const heed__attention_task *t);

/* Positions of a task from here on are in the drawing of its dropout_mask. */
#define HEED__DRAWING ((int64_t)1 << 39)
/** Allocates p->kept, if it is wanted. Errors: MEMORY. (dropout.c) */
HEED_MUST_USE
heed_status heed__attention_new_kept(heed__attention_plan *p);
/** Checks that the generator can draw the weights. Errors: SHAPE. */
HEED_MUST_USE
heed_status heed__attention_check_dropout(const heed__attention_plan *p);
/** Begins to draw; changes the generator. Once, before the first task. */
void heed__attention_begin_dropout(heed__attention_plan *p);
/** Draws the dropout_mask [last - first, s] of a task of a head, at its beginning, and sets the bits of these
 * rows in p->kept. False if it stopped at a yield point. */
HEED_MUST_USE
bool heed__attention_draw(heed__attention_plan *p, const heed__attention_task *t, int64_t head,
                          float *dropout_mask, const heed__pace *pace, int64_t *position);

/** Whether heed__decode_divide suits the call: few queries on several keys, all with contiguous columns. It
 * must have no dropout. (decode.c) */
bool heed__attention_is_decode(const heed__attention_plan *p);
/** Whether the kernels that compute the output can write the maps: only those of the weights are wanted, each
 * query once. (decode.c) */
bool heed__wants_weights_only(const heed__attention_plan *p);
/** Sets p->decode, except parts and scores, which the caller allocates, aligned to HEED__ALIGNMENT:
 * decode.area floats for each task (with one range: for each slot), and decode.score_area for each slot. */
void heed__decode_divide(heed__attention_plan *p, int workers);
/** The tasks for heed__work_begin: decode.tasks tasks; afterwards, if there are several ranges, the merging
 * of decode.bundles bundles. */
bool heed__decode_run(void *plan, int64_t task, int slot, int64_t *position);
bool heed__decode_join(void *plan, int64_t bundle, int slot, int64_t *position);

#endif
