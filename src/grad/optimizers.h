/* The steps of optimisers, and work on many tensors at once. Part of grad's door. */
#ifndef HEED_OPTIMIZERS_H
#define HEED_OPTIMIZERS_H

/* ---- Blocks of many tensors (blocks.c) ---- */

/* Work on all elements of a list of tensors, which the threads share: each tensor is cut into blocks of
 * HEED__BLOCK_ELEMENTS, the last one shorter, in row-major order. */
enum { HEED__BLOCK_ELEMENTS = 16384, HEED__MOVED_ELEMENTS = 256 };

typedef struct heed__blocks {
  int64_t count;  /* of tensors */
  int64_t *first; /* the number of the first block of each, and of all blocks: count + 1 */
} heed__blocks;
/** Work on elements first…first + n - 1 of tensor i. */
typedef void heed__block_work(void *user, int64_t block, int64_t i, int64_t first, int64_t n);
typedef struct heed__block_task {
  const heed__blocks *blocks;
  const heed_tensor *const *x;
  heed__block_work *work;
  void *user;
} heed__block_task;

/** Divides the tensors; first has a capacity of count + 1. */
void heed__blocks_divide(heed__blocks *blocks, int64_t count, const heed_tensor *const *x, int64_t *first);
/** Runs the work on all blocks, in order on one thread or on several. False if it was stopped. */
HEED_MUST_USE
bool heed__blocks_run(heed_context *ctx, heed__block_task *task, bool in_order);
/** Copies elements first…first + n - 1 of x, float32 of any strides, to buffer; or with `back` from there. */
void heed__move_elements(const heed_tensor *x, int64_t first, int64_t n, float *buffer, bool back);
/** The elements first…first + n - 1 of x, which may be at most HEED__MOVED_ELEMENTS unless x is contiguous:
 * where they are, or a copy in buffer. */
static inline float *heed__elements(const heed_tensor *x, int64_t first, int64_t n, float *buffer) {
  if (heed_tensor_is_contiguous(x)) return (float *)(void *)x->data + first;
  heed__move_elements(x, first, n, buffer, false);
  return buffer;
}

/* ---- Optimisers (optimizers.c, updates.c) ---- */

enum { HEED__UPDATE_STATES = 3 };

typedef enum heed__optimizer_kind { HEED__SGD, HEED__ADAM, HEED__RMSPROP } heed__optimizer_kind;
/* An optimiser's options, for a group of parameters. */
typedef struct heed__optimizer {
  heed__optimizer_kind kind;
  heed_sgd_options sgd;
  heed_adam_options adam;
  heed_rmsprop_options rmsprop;
} heed__optimizer;
typedef union heed__update_rule {
  heed__sgd_rule sgd;
  heed__adam_rule adam;
  heed__rmsprop_rule rmsprop;
} heed__update_rule;
/* A parameter and what a step changes with it. */
typedef struct heed__update {
  heed_tensor *x;
  const heed_tensor *gradient;
  heed_tensor *state[HEED__UPDATE_STATES]; /* NULL: not used with these options */
  const heed__optimizer *optimizer;
  int64_t steps;  /* made so far */
  int64_t number; /* of the parameter, for messages, from 1 */
  heed__update_rule rule;
} heed__update;

/** Checks the options. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__optimizer_check(heed_context *ctx, const char *function, const heed__optimizer *o);
/** The states that it uses with these options: bits. */
unsigned heed__optimizer_states(const heed__optimizer *o);
/** Sets u->rule, from the previous update's where that has the same options and number of steps. */
void heed__update_set_rule(heed__update *u, const heed__update *previous);
/** One step of all of them; whether their options are valid is checked before. */
HEED_MUST_USE
heed_status heed__updates_run(heed_context *ctx, const char *function, int64_t count, heed__update *updates);
/** heed_total_norm, heed_clip_grad_norm and heed_clip_grad_value with the caller's name in messages. (clip.c)
 */
HEED_MUST_USE
heed_status heed__total_norm(heed_context *ctx, const char *function, int64_t count,
                             const heed_tensor *const *x, double p, double *norm);
HEED_MUST_USE
heed_status heed__clip_grad_norm(heed_context *ctx, const char *function, int64_t count,
                                 heed_tensor *const *x, double max_norm, double p, double *norm);
HEED_MUST_USE
heed_status heed__clip_grad_value(heed_context *ctx, const char *function, int64_t count,
                                  heed_tensor *const *x, double value);
/** Checks that no tensor is in the list twice; *first and *second are the numbers, from 1, of two that are
 * the same, or 0. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__find_twice(heed_context *ctx, const char *function, int64_t count,
                             const heed_tensor *const *x, int64_t *first, int64_t *second);

#endif
