/* The forward pass of the attention modules in stages, each of which is begun, run and ended: one after the
 * other by a forward (attention_forward.c); by a plan (steps.c) all begun at once, so that no slice of time
 * needs memory, and run slice by slice. */
#ifndef HEED_NN_ATTENTION_PASS_H
#define HEED_NN_ATTENTION_PASS_H

#include "../nn.h"

enum {
  HEED__PASS_QUERIES, /* projections, */
  HEED__PASS_KEYS,
  HEED__PASS_VALUES,
  HEED__PASS_SHAPE, /* norms and positions, */
  HEED__PASS_CACHE, /* keys and values behind those of the cache, */
  HEED__PASS_ATTENTION,
  HEED__PASS_OUT, /* and the projection of the output */
  HEED__PASS_STAGES
};

/* Room on the caller's stack; not for internals, which stay. */
typedef struct heed__pass_room {
  heed__temporary place[4];
  heed__attention_room attention;
} heed__pass_room;

typedef struct heed__attention_pass {
  heed_module *m;
  heed_module *out_proj, *norm[2];     /* or NULL */
  heed_forward_options options;        /* its generator is the one that is drawn from */
  heed_tensor **out;                   /* written by the last stage */
  heed_attention_internals *internals; /* NULL: not wanted */
  heed__pass_room *room;               /* NULL: all is allocated, and inputs and weights are kept */
  double dropout;
  int64_t past; /* tokens in the cache */
  const heed_tensor *from[3];
  heed_tensor *projected[3], *heads;
  heed_tensor view[3], into, *into_view, slopes;
  heed__attention_call call;
  heed__result result;
  bool spans; /* there is a span of the cache */
  heed__kv_span span;
  heed_tensor cached[4], mask[2]; /* views */
  heed_tensor *made[2];
  int kept_count;
  heed_tensor *kept[24];
  unsigned open; /* the stages that have begun and not ended */
  int64_t at;    /* the piece of SHAPE or CACHE that is next */
  bool normed;   /* it has its norm already */
  heed__linear_work linear[4];
  heed__attention_work attention;
} heed__attention_pass;

/** Checks the call. heed__attention_pass_end is due unless this fails. p, options, out and internals must
 * stay where they are until then. Errors: those of heed_module_forward. */
HEED_MUST_USE
heed_status heed__attention_pass_begin(heed__attention_pass *p, heed_module *m, const heed_tensor *x,
                                       const heed_forward_options *options, heed__pass_room *room,
                                       heed_tensor **out, heed_attention_internals *internals);
HEED_MUST_USE
heed_status heed__attention_stage_begin(heed__attention_pass *p, int stage);
/** Runs a stage that has begun until it is *done or work is due; can be run again after a failure, too.
 * Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__attention_stage_run(heed__attention_pass *p, int stage, bool *done);
/** The end of a stage that is done. Errors: CANCELLED, LIMIT (with internals). */
HEED_MUST_USE
heed_status heed__attention_stage_end(heed__attention_pass *p, int stage);
/** Hands the new tokens to the cache if status is OK; gives back all that the pass holds. */
void heed__attention_pass_end(heed__attention_pass *p, heed_status status);

/** How many multiply-adds a stage has, and how far it is, from 0 to 1. */
double heed__attention_stage_work(const heed__attention_pass *p, int stage);
double heed__attention_stage_progress(const heed__attention_pass *p, int stage);

#endif
