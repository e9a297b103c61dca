/* The forward pass of the attention modules in stages, each of which is begun, run and ended. A plain forward
 * pass completes one stage after the other. heed_steps (steps.c) begins all of them at once, so that no slice
 * of time allocates memory, and runs them slice by slice. */
#ifndef HEED_NN_STAGES_H
#define HEED_NN_STAGES_H

#include "../nn.h"

enum {
  HEED__STAGE_QUERIES, /* projections */
  HEED__STAGE_KEYS,
  HEED__STAGE_VALUES,
  HEED__STAGE_SHAPE, /* norms and rotation */
  HEED__STAGE_CACHE, /* appending keys and values to those of the cache */
  HEED__STAGE_ATTENTION,
  HEED__STAGE_OUT, /* output projection */
  HEED__STAGES
};

/* Scratch buffers on the stack of a plain forward pass. */
typedef struct heed__stages_scratch {
  heed__temporary projected[3], heads;
  heed__attention_scratch attention;
} heed__stages_scratch;

/* Attention to the prefix of a cache (prefix.c). */
typedef struct heed__stages_prefix {
  heed__attention_operands operands;
  heed_tensor view[4], *out;            /* keys, values and their scales; [h, total, d] */
  heed_attention_taps found, own_found; /* the log-sums of the prefix, and of the other keys */
  int phase;                            /* the plans that have ended */
  int64_t merged;                       /* heads of items */
  heed__attention_plan plan;
} heed__stages_prefix;

typedef struct heed__attention_stages {
  heed_module *m;
  heed_module *part[3];            /* W_query, W_key, W_value */
  heed_module *out_proj, *norm[2]; /* or NULL */
  heed_forward_options options;    /* with a generator, not NULL */
  heed_tensor **out;               /* written by the last stage */
  heed_attention_taps *taps;       /* NULL: not requested */
  unsigned wanted;                 /* bits of the requested taps */
  heed__stages_scratch *scratch;   /* NULL: all memory is allocated, and inputs and weights are retained */
  double dropout;
  bool rotary; /* the module's rotation, which may change between slices */
  heed_rope_config rope;
  int64_t past;                      /* tokens in the cache */
  heed_tensor *turned;               /* with a cache in int4: the queries, turned, as projected[0]; or NULL */
  int64_t turned_rows;               /* rows of heads that have been turned in the current stage */
  bool ragged;                       /* the batch items differ in these, or in the number of new ones */
  bool apart;                        /* the prefix of the cache is computed for the whole batch: `prefix` */
  int64_t *added;                    /* the new tokens of each item, of x [total, d_in]; NULL: n of each */
  heed_tensor packed[2];             /* if ragged, view[0] and into as [h, total, d] of all items */
  const heed_tensor *from[3];        /* the tokens that are projected to queries, keys and values */
  heed_tensor *projected[3], *heads; /* [..., n, h · d]; heads: the input of out_proj */
  heed_tensor view[3], into, *into_view; /* the same as [..., h, n, d]; into: of heads or the result */
  heed_tensor slopes;                    /* ALiBi's, without storage */
  heed_tensor *positions[2]; /* int64 [n] of the rotation of packed queries and keys; NULL: 1, 2, … */
  heed__attention_operands operands;
  heed__result result; /* without out_proj */
  bool spans;          /* `span` has begun */
  heed__kv_span span;
  heed_tensor cached[4], mask[2]; /* views of the span, and of masks over its keys */
  heed_tensor *made[2];           /* copied masks */
  int retained_count;
  heed_tensor *retained[26];
  heed_mask *mask_reference;
  unsigned open; /* bits of the stages that have begun but not ended */
  int64_t piece; /* the next one of SHAPE or CACHE */
  bool normed;   /* the norm of that piece is done */
  heed__linear_work linear[4];
  heed__attention_plan plan;
  heed__stages_prefix prefix;
} heed__attention_stages;

/** Checks the call. Unless this fails, heed__attention_stages_end must be called; until then p, options, out
 * and taps must not move. scratch NULL: for heed_steps. Errors: those of heed_module_forward. */
HEED_MUST_USE
heed_status heed__attention_stages_begin(heed__attention_stages *p, heed_module *m, const heed_tensor *x,
                                         const heed_forward_options *options, heed__stages_scratch *scratch,
                                         heed_tensor **out, heed_attention_taps *taps);
HEED_MUST_USE
heed_status heed__attention_stage_begin(heed__attention_stages *p, int stage);
/** Runs a stage that has begun until it is *done or stops at a yield point. Can be repeated after a failure.
 * Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__attention_stage_run(heed__attention_stages *p, int stage, bool *done);
/** Ends a stage that is done. Errors: CANCELLED, LIMIT (with taps). */
HEED_MUST_USE
heed_status heed__attention_stage_end(heed__attention_stages *p, int stage);
/** Adds the new tokens to the cache if status is OK, and releases what the stages hold. */
void heed__attention_stages_end(heed__attention_stages *p, heed_status status);

/** Takes the place of a stage of a projection, from QUERIES to VALUES, or of OUT: its result is a copy of y,
 * whose shape was checked. Only without scratch. Errors: MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__stages_put(heed__attention_stages *p, int stage, const heed_tensor *y);
/** Leaves dropout of the weights to the caller. */
void heed__stages_leave_dropout(heed__attention_stages *p);
/** The taps queries, keys and values, for callers that pass over the stage ATTENTION. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__stages_tap_inputs(heed__attention_stages *p);
/** A row-major float32 copy. Errors: as above. */
HEED_MUST_USE
heed_status heed__stages_copy(const heed__attention_stages *p, const heed_tensor *x, heed_tensor **out);
/** A view of x [..., n, h · d] as [..., h, n, d]; for modules of one head unchanged. */
void heed__stages_view_heads(heed_tensor *view, const heed_tensor *x, const heed__attention_module *a);

/** Whether the stage SHAPE has anything to do. */
static inline bool heed__stages_has_shaping(const heed__attention_stages *p) {
  return p->norm[0] != NULL || p->norm[1] != NULL || p->rotary;
}
/** The multiply-adds of a stage, and its progress from 0 to 1. (progress.c) */
double heed__attention_stage_work(const heed__attention_stages *p, int stage);
double heed__attention_stage_progress(const heed__attention_stages *p, int stage);

/* ---- Gradients (recorded.c) ---- */

/** Whether a call of m is recorded: x, another input or a parameter wants a gradient. */
bool heed__records(const heed_module *m, const heed_tensor *x, const heed_forward_options *options);
/** The forward pass of such a call. The taps but queries, keys and values have no gradients. Errors: ARGUMENT
 * (with a cache); those of heed_module_forward. */
HEED_MUST_USE
heed_status heed__recorded_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                   heed_tensor **out, heed_attention_taps *taps);

/* ---- Parts ---- */

/** Checks x, key and value and sets p->from. Errors: ARGUMENT, DTYPE, SHAPE. (inputs.c) */
HEED_MUST_USE
heed_status heed__stages_choose_tokens(heed__attention_stages *p, const heed_tensor *x);
/** Checks that the tokens of x fit the cache, if there is one. Errors: ARGUMENT, SHAPE. (inputs.c) */
HEED_MUST_USE
heed_status heed__stages_check_cache(const heed__attention_stages *p, const heed_tensor *x);
/** Turns queries, keys and masks of the operands into those of items that differ. Errors: SHAPE, MEMORY.
 * (ragged.c) */
HEED_MUST_USE
heed_status heed__stages_begin_items(heed__attention_stages *p);
/** Copies options.lengths, which were checked and whose cache was given, to p->added. Errors: ARGUMENT,
 * SHAPE, MEMORY. (ragged.c) */
HEED_MUST_USE
heed_status heed__stages_read_lengths(heed__attention_stages *p);
/** Sets p->packed[1] from p->into. (ragged.c) */
void heed__stages_pack_into(heed__attention_stages *p);
/** With a cache in int4: makes p->turned, turns queries to it, and turns the output back, until *done or
 * stopped. Errors: MEMORY. (turned.c) */
HEED_MUST_USE
heed_status heed__stages_begin_turned(heed__attention_stages *p);
void heed__stages_turn_queries(heed__attention_stages *p, bool *done);
void heed__stages_turn_output(heed__attention_stages *p, bool *done);
/** Whether the prefix of the cache is computed apart: without masks, taps, dropout and ALiBi. Otherwise its
 * keys are copied to each item. (prefix.c) */
bool heed__stages_keep_apart(const heed__attention_stages *p);
/** The stage ATTENTION with the prefix apart: begins it; runs it until *done or stopped; releases what it
 * holds, whether it is done or not. Errors: MEMORY. (prefix.c) */
HEED_MUST_USE
heed_status heed__stages_prefix_begin(heed__attention_stages *p);
HEED_MUST_USE
heed_status heed__stages_prefix_run(heed__attention_stages *p, bool *done);
void heed__stages_prefix_end(heed__attention_stages *p);
/** Makes the positions of packed sequences, if they are rotated. Errors: MEMORY. (inputs.c) */
HEED_MUST_USE
heed_status heed__stages_make_positions(heed__attention_stages *p);
/** Those of queries (0) or keys (1); NULL: 1, 2, … (inputs.c) */
const heed_tensor *heed__stages_positions(const heed__attention_stages *p, int which);
/** Restricts the masks of the operands from all keys to those of the span. Errors: SHAPE, MEMORY. (inputs.c)
 */
HEED_MUST_USE
heed_status heed__stages_skip_keys(heed__attention_stages *p);

/** Run the stage SHAPE or CACHE until *done or stopped at a yield point. Errors: MEMORY. (pieces.c) */
HEED_MUST_USE
heed_status heed__stages_run_shape(heed__attention_stages *p, bool *done);
HEED_MUST_USE
heed_status heed__stages_run_cache(heed__attention_stages *p, bool *done);
/** The progress of either, from 0 to 1. */
double heed__stages_pieces_progress(const heed__attention_stages *p, int stage);

#endif
