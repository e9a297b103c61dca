/* The forward of the attention modules in stages, each of which is begun, run and ended: by a forward one
 * after the other; by heed_steps (steps.c) all begun at once, so that no slice of time needs memory, and run
 * slice by slice. */
#ifndef HEED_NN_STAGES_H
#define HEED_NN_STAGES_H

#include "../nn.h"

enum {
  HEED__STAGE_QUERIES, /* projections */
  HEED__STAGE_KEYS,
  HEED__STAGE_VALUES,
  HEED__STAGE_SHAPE, /* norms and positions */
  HEED__STAGE_CACHE, /* keys and values appended to those of the cache */
  HEED__STAGE_ATTENTION,
  HEED__STAGE_OUT, /* output projection */
  HEED__STAGES
};

/* Scratch buffers on the caller's stack; not for taps, which outlive the call. */
typedef struct heed__stages_scratch {
  heed__temporary projected[3], heads;
  heed__attention_scratch attention;
} heed__stages_scratch;

typedef struct heed__attention_stages {
  heed_module *m;
  heed_module *out_proj, *norm[2]; /* or NULL */
  heed_forward_options options;    /* with the generator that is drawn from */
  heed_tensor **out;               /* written by the last stage */
  heed_attention_taps *taps;       /* NULL: not wanted */
  heed__stages_scratch *scratch;   /* NULL: all is allocated, and inputs and weights are retained */
  double dropout;
  int64_t past;                          /* tokens in the cache */
  const heed_tensor *from[3];            /* tokens that queries, keys and values are made from */
  heed_tensor *projected[3], *heads;     /* [..., n, h · d]; heads: of the output, before out_proj */
  heed_tensor view[3], into, *into_view; /* the same as [..., h, n, d] */
  heed_tensor slopes;                    /* of alibi, without a storage */
  heed__attention_operands operands;
  heed__result result; /* without out_proj */
  bool spans;          /* `span` is begun */
  heed__kv_span span;
  heed_tensor cached[4], mask[2]; /* views of the span and of masks over its keys */
  heed_tensor *made[2];           /* masks that are no views */
  int retained_count;
  heed_tensor *retained[24];
  unsigned open; /* bits of the stages that have begun and not ended */
  int64_t at;    /* the next piece of SHAPE or CACHE */
  bool normed;   /* that piece has its norm already */
  heed__linear_work linear[4];
  heed__attention_plan plan;
} heed__attention_stages;

/** Checks the call. heed__attention_stages_end is due unless this fails. p, options, out and taps must stay
 * where they are until then. Errors: those of heed_module_forward. */
HEED_MUST_USE
heed_status heed__attention_stages_begin(heed__attention_stages *p, heed_module *m, const heed_tensor *x,
                                         const heed_forward_options *options, heed__stages_scratch *scratch,
                                         heed_tensor **out, heed_attention_taps *taps);
HEED_MUST_USE
heed_status heed__attention_stage_begin(heed__attention_stages *p, int stage);
/** Runs a stage that has begun until it is *done or work is due; can be called again after a failure, too.
 * Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__attention_stage_run(heed__attention_stages *p, int stage, bool *done);
/** The end of a stage that is done. Errors: CANCELLED, LIMIT (with taps). */
HEED_MUST_USE
heed_status heed__attention_stage_end(heed__attention_stages *p, int stage);
/** Commits the new tokens to the cache if status is OK; releases all that the stages hold. */
void heed__attention_stages_end(heed__attention_stages *p, heed_status status);

/** Multiply-adds of a stage, and its progress from 0 to 1. */
double heed__attention_stage_work(const heed__attention_stages *p, int stage);
double heed__attention_stage_progress(const heed__attention_stages *p, int stage);

/* ---- Parts ---- */

/** Checks x, key and value and sets p->from. Errors: ARGUMENT, DTYPE, SHAPE. (inputs.c) */
HEED_MUST_USE
heed_status heed__stages_choose_tokens(heed__attention_stages *p, const heed_tensor *x);
/** Whether the cache, if there is one, takes the tokens of x. Errors: ARGUMENT, SHAPE. (inputs.c) */
HEED_MUST_USE
heed_status heed__stages_check_cache(const heed__attention_stages *p, const heed_tensor *x);
/** Makes the masks of the operands, which are for all keys, those for the keys of the span. Errors: SHAPE,
 * MEMORY. (inputs.c) */
HEED_MUST_USE
heed_status heed__stages_skip_keys(heed__attention_stages *p);

/** Norms and positions, in place; keys and values into the span: until *done or work is due. Errors: MEMORY.
 * (pieces.c) */
HEED_MUST_USE
heed_status heed__stages_run_shape(heed__attention_stages *p, bool *done);
HEED_MUST_USE
heed_status heed__stages_run_cache(heed__attention_stages *p, bool *done);
/** Progress of either, from 0 to 1. */
double heed__stages_pieces_progress(const heed__attention_stages *p, int stage);

#endif
