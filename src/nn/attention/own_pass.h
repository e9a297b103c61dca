/* The state of a forward pass that stops (own_pass.c), for what happens at its points (own_points.c). */
#ifndef HEED_NN_OWN_PASS_H
#define HEED_NN_OWN_PASS_H

#include "stages.h"

/* What a pass does, in order. A step that nothing asks for is passed over. */
enum {
  STEP_QUERIES, /* the part or the stage */
  STEP_Q,       /* the point */
  STEP_KEYS,
  STEP_K,
  STEP_VALUES,
  STEP_V,
  STEP_Q_NORM,
  STEP_K_NORM,
  STEP_SHAPE,
  STEP_ROT_Q,
  STEP_ROT_K,
  STEP_CACHE,
  STEP_ATTENTION, /* or, if a listener may change them, the maps alone */
  STEP_SCORES,
  STEP_PATTERN,
  STEP_DROPOUT,
  STEP_WEIGHTED, /* weights that were changed, or the stage if it was put off */
  STEP_Z,
  STEP_RESULT,
  STEP_OUT,
  OWN_STEPS
};

struct heed__own_pass {
  heed_context *context;
  heed_module *module, *dropout; /* references; dropout: NULL unless the pass stops there */
  heed_kv_cache *cache;          /* a reference, or NULL */
  int64_t change;                /* of the cache at the beginning */
  int step;
  /* Bits of points: those with listeners, whose listeners may change them, where the caller waits. */
  unsigned listened, edited, waits;
  heed__attention_hook hook;
  bool waiting;           /* for the result of a part or point at `step` */
  bool took;              /* it has taken one over, and nothing has run since */
  bool begun;             /* the stage of the current step */
  bool pending, finished; /* the stages have begun but not ended; all is done */
  bool wants_taps;
  double slice_end; /* heed__own_pass_run returns then; INFINITY: at stops alone */
  bool unfused;     /* the maps come first; the fused stage, if no listener changes them */
  bool selects;     /* the taps are complete; the choice is made at the end */
  bool changed;     /* the weights: they are no longer those of the stages */
  heed_tensor *y;
  heed_tensor *point; /* the tensor of the current point */
  bool drawn;         /* by the dropout of the weights; the generator's states around it: */
  heed_generator before, after;
  heed_generator *source, own; /* in slices: the generator, and the copy that draws; or NULL */
  heed_attention_taps taps;
  heed_taps_wanted stage_wanted; /* taps of the stages */
  heed_taps_wanted *wanted;      /* the caller's choice, a copy; NULL: all but lse */
  heed__attention_operands map_operands;
  heed_tensor *unused;
  heed__attention_stages stages;
};

/** The stage that a step runs, or -1. */
int heed__own_stage(int step);
/** The tensor of the point of the current step, with four dimensions, in pass->point. */
HEED_MUST_USE
heed_status heed__own_point_make(heed__own_pass *pass);
/** Replaces it by y, whose shape was checked. */
HEED_MUST_USE
heed_status heed__own_point_put(heed__own_pass *pass, const heed_tensor *y);
/** The maps alone, before the fused stage: begins, runs, ends them. */
HEED_MUST_USE
heed_status heed__own_maps_begin(heed__own_pass *pass);
HEED_MUST_USE
heed_status heed__own_maps_end(heed__own_pass *pass, heed_status status);
/** Replaces queries (0) or keys (1) by y [..., h, n, d], or without heads. */
HEED_MUST_USE
heed_status heed__own_put_heads(heed__own_pass *pass, int which, const heed_tensor *y);
/** The output of the heads from the weights in pass->taps, after the module's own dropout. */
HEED_MUST_USE
heed_status heed__own_weigh(heed__own_pass *pass);

#endif
