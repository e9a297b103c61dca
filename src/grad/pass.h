/* A backward pass in progress, for backward.c, backward_steps.c and grad.c. */
#ifndef HEED_GRAD_PASS_H
#define HEED_GRAD_PASS_H

#include "grad.h"

/* A tensor whose gradient heed_grad gives: hooks may change what its header holds. */
typedef struct heed__asked {
  heed__node *node; /* counted */
  uint32_t output;
} heed__asked;

/* One pass. */
typedef struct heed__pass {
  heed_context *ctx;
  heed_backward_options options;
  bool was_recording;  /* when the pass was begun; while it runs, nothing is recorded */
  int given;           /* how many tensors it begins at, for messages */
  heed__node *touched; /* a list: all nodes and leaves that have or had pending gradients */
  heed__node **heap;   /* nodes to go through, the youngest first */
  size_t count, capacity;
  uint64_t oldest; /* nodes before it lead to nothing that is wanted */
  /* heed_grad: what is asked for, instead of leaves' gradients */
  int asked_count;
  heed__asked *asked;
} heed__pass;

/** A number of tensors, which must be 1 or more. */
HEED_MUST_USE
heed_status heed__pass_check_count(heed_context *ctx, const char *function, const char *argument, int count);
HEED_MUST_USE
heed_status heed__pass_options(heed_context *ctx, const char *function, const heed_backward_options *given,
                               heed_backward_options *out);
/** Begins at y (tensor i, for messages) with the gradient dy; NULL: 1. */
HEED_MUST_USE
heed_status heed__pass_start(heed__pass *pass, const char *function, int i, const heed_tensor *y,
                             const heed_tensor *dy);
/** Makes the node wait, once more if it does already. */
HEED_MUST_USE
heed_status heed__pass_push(heed__pass *pass, heed__node *node);
/** The youngest node that waits; pass->count must not be 0. */
heed__node *heed__pass_next(heed__pass *pass);
/** Begins at all of y, and goes through the nodes until none waits. */
HEED_MUST_USE
heed_status heed__pass_go(heed__pass *pass, const char *function, int count, const heed_tensor *const *y,
                          const heed_tensor *const *dy);
/** Calls the hooks of result `output`, in the order in which they were added. */
HEED_MUST_USE
heed_status heed__pass_call_hooks(heed_context *ctx, heed__node *node, uint32_t output);
/** Goes through one node: its hooks, its gradient, and on to its inputs. */
HEED_MUST_USE
heed_status heed__pass_through(heed__pass *pass, heed__node *node);
/** Adds the gradients to those that leaves have; after an error these are as before. */
HEED_MUST_USE
heed_status heed__pass_end(heed__pass *pass);
/** Puts the name of the called function before the message of the operation that failed; returns status. */
HEED_MUST_USE
heed_status heed__name_failure(heed_context *ctx, const char *function, heed_status status);
/** Frees all that the pass has. spend: what its nodes saved, too. */
void heed__pass_clean(heed__pass *pass, bool spend);

#endif
