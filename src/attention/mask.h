/* Masks as values (mask.c), and the keys that each query sees by them (mask_rows.c). Part of attention's
 * door.
 *
 * A mask is a list of conditions, all of which must hold. They are written one after another into an int64
 * tensor: the kind, the number of further words, and these words. Causality and windows are bounds on the
 * distance of a key from the query's position; a call adds them to its own window. The other conditions leave
 * each query a few intervals of keys, which are computed for a call's sizes. */
#ifndef HEED_ATTENTION_MASK_H
#define HEED_ATTENTION_MASK_H

#include "../ops/ops.h"

struct heed_mask {
  heed_context *context;
  int64_t references;
  heed_tensor *code; /* int64, never written to after it is made */
};

/* The words that follow. Positions, keys and nodes count from 0, lasts are exclusive. */
typedef enum heed__mask_kind {
  HEED__MASK_CAUSAL,
  HEED__MASK_WINDOW,    /* left, right; -1: no bound */
  HEED__MASK_PREFIX,    /* n */
  HEED__MASK_DOCUMENTS, /* their number, then the last of each */
  HEED__MASK_TREE, /* nodes n; the most intervals of a node; the first node of the consecutive ancestors that
                      end at each node [n]; the parent of that one [n], -1: none */
  HEED__MASK_INTERVALS, /* leading dimensions, l, r; their sizes; pairs [..., l, r, 2] of firsts and lasts */
  HEED__MASK_KINDS
} heed__mask_kind;

/* Queries at positions offset, offset + 1, … and keys 0…s-1. */
typedef struct heed__mask_call {
  int64_t l, s, offset;
  int64_t before, behind; /* rows of other items before and behind these in mask.intervals */
  int64_t spare;          /* keys that it may name beyond s, for longer items */
} heed__mask_call;

/** Checks that the mask is for such a call; every_query: each must have a position in the documents. Messages
 * begin with `function`. Errors: SHAPE, INDEX, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__mask_check(heed_context *ctx, const char *function, const heed_mask *m,
                             const heed__mask_call *call, bool every_query);
/** Reduces the keys *left before and *right after a query's position to those that the mask allows. */
void heed__mask_window(const heed_mask *m, int64_t *left, int64_t *right);
/** The most intervals that a query can have; 0: the mask is a window. */
int64_t heed__mask_most(const heed_mask *m);
/** Sizes for a picture of the mask: those that it is made for, or some that show what it does. False if its
 * conditions are for different sizes, so that it fits no call. */
bool heed__mask_picture_call(const heed_mask *m, heed__mask_call *call);
/** Broadcasts the sizes before l of its intervals to shape; false if they do not fit. */
bool heed__mask_broadcast(const heed_mask *m, int *ndim, int64_t *shape);
/** Without the heads, a leading dimension, but for head i: a new mask, or the same one. Errors: MEMORY,
 * CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__mask_of_head(const heed_mask *m, const char *function, int64_t i, int64_t heads,
                               heed_mask **out);

/* Queries and keys of a call, those from first_row and first_key on, both from 0. */
typedef struct heed__mask_part {
  int64_t first_row, rows, first_key, keys;
  int64_t item; /* of the batch; -1: all */
} heed__mask_part;
/** The mask of such a part of a call: causality and windows follow the part's own offset, other conditions
 * name its keys. A new mask, or the same one. Errors: those of heed__mask_check, MEMORY. (mask_part.c) */
HEED_MUST_USE
heed_status heed__mask_cut(heed_mask *m, const char *function, const heed__mask_call *call,
                           const heed__mask_part *part, bool every_query, heed_mask **out);

/* Buffers of heed__mask_row: three lists of `most` intervals, pairs of int32_t. */
typedef struct heed__mask_buffers {
  int32_t *list[3];
} heed__mask_buffers;
static inline size_t heed__mask_buffer_words(int64_t most) {
  return (size_t)most * 6;
}
void heed__mask_set_buffers(heed__mask_buffers *b, int32_t *words, int64_t most);
/** The intervals of query i, for the indices `lead` of the leading dimensions [ndim] that
 * heed__mask_broadcast gave: pairs in order, with a key between any two. Returns their number. */
int64_t heed__mask_row(const heed_mask *m, const heed__mask_call *call, int ndim, const int64_t *lead,
                       int64_t i, heed__mask_buffers *b, const int32_t **out);

#endif
