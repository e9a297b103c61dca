/* Recording of operations, for gradients: part of ops' door, included by ops.h (record.c, part.c). Every
 * operation that has results of float32 ends with one of these functions. The gradients, by operation, are in
 * grad/gradients.def. */
#ifndef HEED_OPS_RECORD_H
#define HEED_OPS_RECORD_H

typedef enum heed__op {
#define OP(name, inputs, lua) HEED__OP_##name,
#include "ops.def"
  /* parts of heed.h's operations, or what the binding does beside them */
  HEED__OP_t,      /* transpose of a matrix */
  HEED__OP_part,   /* x[{…}] */
  HEED__OP_assign, /* x[{…}] = value */
  HEED__OPS
} heed__op;

/** The status of an operation that is done and stored its result in *out: status itself, or the error of
 * recording it; a new result is then freed. values (may be NULL) is copied for the gradient. */
HEED_MUST_USE
heed_status heed__record_call(heed_context *ctx, heed_status status, heed__op op, int inputs,
                              const heed_tensor *const *input, const void *values, size_t values_bytes,
                              heed_tensor **out);
/** The same for several results, which the operation stored in *out[0], *out[1], …. */
HEED_MUST_USE
heed_status heed__record_results(heed_context *ctx, heed_status status, heed__op op, int inputs,
                                 const heed_tensor *const *input, const void *values, size_t values_bytes,
                                 int outputs, heed_tensor **const *out);
/** heed__record_call; while nothing is recorded, which is most of the time, it costs a comparison. */
HEED_MUST_USE
static inline heed_status heed__recorded(heed_context *ctx, heed_status status, heed__op op, int inputs,
                                         const heed_tensor *const *input, const void *values,
                                         size_t values_bytes, heed_tensor **out) {
  if (ctx->recorder == NULL) return status;
  return heed__record_call(ctx, status, op, inputs, input, values, values_bytes, out);
}
/** For what has no gradient: while operations are recorded, no input must want one. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_unrecorded(heed_context *ctx, const char *function, int inputs,
                                   const heed_tensor *const *input);
HEED_MUST_USE
static inline heed_status heed__recorded1(heed_context *ctx, heed_status status, heed__op op,
                                          const heed_tensor *x, const void *values, size_t values_bytes,
                                          heed_tensor **out) {
  if (ctx->recorder == NULL) return status;
  return heed__record_call(ctx, status, op, 1, &x, values, values_bytes, out);
}
/** The same for an operation with a second result, the state that it leaves: *state, or NULL if that is not
 * wanted. (record.c) */
HEED_MUST_USE
heed_status heed__record_state(heed_context *ctx, heed_status status, heed__op op, int inputs,
                               const heed_tensor *const *input, const void *values, size_t values_bytes,
                               heed_tensor **out, heed_tensor **state);
/** Before such an operation. Errors: ARGUMENT, if the results are the same, or a state is given while
 * gradients are recorded. */
HEED_MUST_USE
heed_status heed__check_state(heed_context *ctx, const char *function, heed_tensor **out,
                              heed_tensor **state);
/* What causal_conv reads, in the order in which it is recorded. */
enum { HEED__CONV_X, HEED__CONV_WEIGHT, HEED__CONV_BIAS, HEED__CONV_PAST, HEED__CONV_INPUTS };
/* What a view tells its gradient: dimensions, from 0, and where it begins in them, from 0. */
typedef struct heed__view_values {
  int order[HEED_MAX_DIMS];
  int64_t first, step, size;
  double number; /* of the operation: the alpha of index_add */
} heed__view_values;
/* What x[{…}] selects: for each dimension of x, one element of it, which is dropped, or some; and new
 * dimensions of size 1. */
typedef enum heed__part_kind { HEED__PART_DROPPED, HEED__PART_KEPT, HEED__PART_NEW } heed__part_kind;
typedef struct heed__part {
  const char *name; /* of the gradient: what PyTorch calls the last step */
  int items;
  struct heed__part_item {
    heed__part_kind kind;
    int64_t first, step, count; /* from 0 */
  } item[2 * HEED_MAX_DIMS];
} heed__part;
static inline size_t heed__part_bytes(const heed__part *part) {
  return offsetof(heed__part, item) + (size_t)part->items * sizeof *part->item;
}
/** All of no dimension; then heed__part_add for each, in order. part NULL: nothing is noted. (part.c) */
void heed__part_begin(heed__part *part);
void heed__part_add(heed__part *part, heed__part_kind kind, int64_t first, int64_t step, int64_t count);
/** The part of x, as a header on the stack. */
void heed__part_on_stack(heed_tensor *view, const heed_tensor *x, const heed__part *part);
/** A counted copy of `view`, that part of x; recorded. part: NULL while nothing is recorded. */
HEED_MUST_USE
heed_status heed__give_part(heed_context *ctx, const char *function, const heed_tensor *x,
                            const heed_tensor *view, const heed__part *part, heed_tensor **out);
/** Records that `value` was written to that part of x, or to its elements at the indices (NULL: all of a
 * dimension). */
HEED_MUST_USE
heed_status heed__record_assign(heed_context *ctx, heed_tensor *x, const heed__part *part,
                                const heed_tensor *value, int count, const heed_tensor *const *indices);

/* The inputs of an operation as they are recorded: those that it changes in place are copies, if the gradient
 * needs them. */
typedef struct heed__kept {
  const heed_tensor *input[3];
  heed_tensor *copy[3];
} heed__kept;
HEED_MUST_USE
heed_status heed__keep_copies(heed_context *ctx, heed__op op, heed__kept *kept, const heed_tensor *a,
                              const heed_tensor *b, const heed_tensor *c, const heed_tensor *out);
HEED_MUST_USE
heed_status heed__record_kept(heed_context *ctx, heed_status status, heed__op op, int inputs,
                              heed__kept *kept, const void *values, size_t values_bytes, heed_tensor **out);
/** Before the operation. out: where the result is written; NULL: a new one. Inputs may be NULL. */
HEED_MUST_USE
static inline heed_status heed__keep_inputs(heed_context *ctx, heed__op op, heed__kept *kept,
                                            const heed_tensor *a, const heed_tensor *b, const heed_tensor *c,
                                            const heed_tensor *out) {
  if (ctx->recorder == NULL) return HEED_OK;
  return heed__keep_copies(ctx, op, kept, a, b, c, out);
}
/** After it, also if heed__keep_inputs failed: heed__recorded with these inputs. */
HEED_MUST_USE
static inline heed_status heed__recorded_kept(heed_context *ctx, heed_status status, heed__op op, int inputs,
                                              heed__kept *kept, const void *values, size_t values_bytes,
                                              heed_tensor **out) {
  if (ctx->recorder == NULL) return status;
  return heed__record_kept(ctx, status, op, inputs, kept, values, values_bytes, out);
}

/* What a reduction over `dims` tells its gradient. */
typedef struct heed__reduction_values {
  uint32_t dims;     /* bits, from 0: those that were reduced */
  bool keepdim, all; /* all: no dimensions were given */
  double number;     /* of the operation: the correction of var, the p of norm */
} heed__reduction_values;
/** dims as given to the operation. */
HEED_MUST_USE
heed_status heed__recorded_reduction(heed_context *ctx, heed_status status, heed__op op, const heed_tensor *x,
                                     int ndims, const int *dims, bool keepdim, double number,
                                     heed_tensor **out);
/** Of an operation whose result does not depend on its inputs continuously. Nothing is recorded; if it was
 * written over a tensor that was recorded, that one is forgotten. */
HEED_MUST_USE
static inline heed_status heed__recorded_constant(heed_context *ctx, heed_status status, heed__op op,
                                                  heed_tensor **out) {
  if (ctx->recorder == NULL) return status;
  return heed__record_call(ctx, status, op, 0, NULL, NULL, 0, out);
}
/* What an operation that selects elements along a dimension tells its gradient, beside their indices. */
typedef struct heed__selection_values {
  int dim;      /* from 0; -1: all dimensions, and there are no indices */
  bool removed; /* the dimension is missing in the result */
} heed__selection_values;
/** For results *values, selected from x along dim at *indices, which the operation made (is_new) or was
 * given. */
HEED_MUST_USE
heed_status heed__recorded_selection(heed_context *ctx, heed_status status, heed__op op, const heed_tensor *x,
                                     heed__selection_values how, bool is_new, heed_tensor **values,
                                     heed_tensor **indices);
HEED_MUST_USE
static inline heed_status heed__recorded2(heed_context *ctx, heed_status status, heed__op op,
                                          const heed_tensor *a, const heed_tensor *b, heed_tensor **out) {
  if (ctx->recorder == NULL) return status;
  return heed__record_call(ctx, status, op, 2, (const heed_tensor *const[]){a, b}, NULL, 0, out);
}

#endif
