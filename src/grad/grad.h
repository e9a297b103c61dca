/* The door of grad: how operations are recorded and go backward. The graph's nodes are in core/node.h. */
#ifndef HEED_GRAD_H
#define HEED_GRAD_H

#include "../attention/attention.h"

/* What the gradient of an input needs: bits. */
#define HEED__SAVE_INPUT(i)   (1u << (i))
#define HEED__SAVE_OUTPUT     (1u << 31)
#define HEED__SAVE_ALL_INPUTS (HEED__SAVE_OUTPUT - 1)

#define HEED__GRADIENT_INPUTS 5

typedef struct heed__backward heed__backward;

/* The gradient of one operation. */
typedef struct heed__gradient {
  const char *name;     /* as PyTorch prints it: "MulBackward0"; NULL: name_of gives it */
  const char *function; /* for messages: "mul" */
  /* For the gradient of input i; further inputs are like the last. Only inputs that want one count. */
  uint32_t needs[HEED__GRADIENT_INPUTS];
  int needs_count;
  bool is_view; /* the result shares the elements of input 0 */
  /* NULL: the results have no gradient. Stores a new tensor in b->dx[i] for each input that
   * heed__backward_wants, or leaves NULL for zero. It may be larger than the input by broadcasting: it is
   * then summed. An error leaves nothing behind but what is in dx. Runs unrecorded. */
  heed_status (*backward)(heed__backward *b);
  const char *(*name_of)(const heed__node *node);
} heed__gradient;

/** The name of a node that is not a leaf's, as PyTorch prints it. */
static inline const char *heed__gradient_name(const heed__node *node) {
  if (node->name != NULL) return node->name;
  return node->gradient->name_of != NULL ? node->gradient->name_of(node) : node->gradient->name;
}

/** Fails: `what` does not require a gradient. recording: whether it was on, so that the message says what to
 * change. */
HEED_MUST_USE
heed_status heed__fail_unrecorded(heed_context *ctx, const char *function, const char *what, bool recording);

/* A node that goes backward. */
struct heed__backward {
  heed_context *ctx;
  const char *function;
  heed__node *node;
  const heed_tensor *const *dy; /* a gradient for each result, NULL: none; float32, of any strides */
  const void *values;           /* what the operation recorded beside tensors */
  heed_tensor **dx;             /* one for each input, NULL at first */
};

static inline bool heed__backward_wants(const heed__backward *b, int i) {
  return i < b->node->inputs && b->node->input[i] != NULL;
}
/** Whether the optional input i > 0 was given: then its sizes do not lie where those of input 0 begin. */
static inline bool heed__node_has_input(const heed__node *node, int i) {
  return i < node->inputs && node->saved[i].dims != node->saved[0].dims;
}
/** Whether a tensor was row-major without gaps when it was saved. */
static inline bool heed__saved_is_row_major(const heed__saved *x) {
  int64_t expected = 1;
  for (int d = x->ndim - 1; d >= 0; d--) {
    if (x->dims[d] != 1 && x->dims[x->ndim + d] != expected) return false;
    expected *= x->dims[d];
  }
  return true;
}
/** The dimension, from 1, that a heed__view_values begins with. */
static inline int heed__backward_dim(const heed__backward *b) {
  return ((const heed__view_values *)b->values)->order[0] + 1;
}
/** Whether the elements of input i were kept: not if it is optional and was not given. */
static inline bool heed__backward_has(const heed__backward *b, int i) {
  return i < b->node->inputs && (b->node->saved[i].storage != NULL || b->node->saved[i].is_number);
}
/** The input i or the result i as it was saved, as a header on the stack, which holds no reference. If only
 * its shape was kept, its data is NULL. */
const heed_tensor *heed__backward_input(const heed__backward *b, int i, heed_tensor *header);
const heed_tensor *heed__backward_output(const heed__backward *b, int i, heed_tensor *header);

#define GRADIENT(op, ...) heed_status heed__##op##_backward(heed__backward *b);
#include "gradients.def"
#define NAMED(op, ...) const char *heed__##op##_name(const heed__node *node);
#include "gradients.def"

/** The gradient of an operation; its backward is NULL if it has none. (table.c) */
const heed__gradient *heed__gradient_of(heed__op op);

/** For the gradient of a checkpoint, inside of the pass that runs: goes through the nodes that lead to y and
 * were recorded after number `after`, and gives back what they saved. Gradients of other nodes and of leaves
 * join those of the running pass; the leaves x are taken out of it, their gradients (NULL: none) are stored
 * in dx. y[i] whose dy[i] is NULL are left out. */
HEED_MUST_USE
heed_status heed__backward_within(heed_context *ctx, const char *function, uint64_t after, int count,
                                  const heed_tensor *const *y, const heed_tensor *const *dy, int nx,
                                  heed_tensor *const *x, heed_tensor **dx);

/** Zeros in the shape of input i. (broadcast.c) */
HEED_MUST_USE
heed_status heed__backward_zeros(const heed__backward *b, int i, heed_tensor **out);
/** b->dx[i] = made; after an error it is freed instead. Returns status. (broadcast.c) */
heed_status heed__backward_give(heed__backward *b, int i, heed_status status, heed_tensor *made);
/** The saved indices among the inputs from `first` on, as headers; NULL: all of a dimension. Returns their
 * number. (index.c) */
int heed__backward_indices(const heed__backward *b, int first, heed_tensor *headers,
                           const heed_tensor **indices);

/** b->dx[i] = dy, if that gradient is wanted: for inputs that are added. */
HEED_MUST_USE
heed_status heed__backward_same(heed__backward *b, int i);

/** b->dx[i] = 0, if it is wanted: for inputs that results depend on in steps. (unary.c) */
HEED_MUST_USE
heed_status heed__backward_zero(heed__backward *b, int i);
/** b->dx[i] = row(dy, first, second), if it is wanted, as heed__map_gradient. (elementwise.c) */
HEED_MUST_USE
heed_status heed__backward_map(heed__backward *b, int i, heed__gradient_row *row, const double *numbers,
                               const heed_tensor *first, const heed_tensor *second);
/** A header on x, a result of a reduction of input 0 or its gradient, with sizes of 1 where dimensions (bits)
 * were reduced, so that it broadcasts to the input. (reductions.c) */
HEED_MUST_USE
heed_status heed__with_reduced_dims(heed__backward *b, const heed_tensor *x, uint32_t dims,
                                    heed_tensor **out);

/** *out = x summed over what broadcasting (ndim, shape) to x's shape repeats; x itself (an alias) if nothing.
 * (broadcast.c) */
HEED_MUST_USE
heed_status heed__sum_to_shape(heed_context *ctx, const char *function, const heed_tensor *x, int ndim,
                               const int64_t *shape, heed_tensor **out);

/* ---- Functions and hooks of the host (host.c) ---- */

/** Before a call of one: returns what heed__host_returned needs. */
char heed__host_begin(heed_context *ctx);
/** After it: its status, with a message if the host gave none. Errors: ARGUMENT, if it is no heed_status. */
HEED_MUST_USE
heed_status heed__host_returned(heed_context *ctx, char before, const char *function, heed_status status);
/** Replaces gradients dx that are among dy, or come twice, by aliases; after an error by NULL. Returns
 * status, or MEMORY. */
HEED_MUST_USE
heed_status heed__host_own(heed_context *ctx, int outputs, const heed_tensor *const *dy, int inputs,
                           heed_tensor **dx, heed_status status);
/** Errors: ARGUMENT, DTYPE, SHAPE, unless `given` is a tensor of ctx, float32 and of that shape. */
HEED_MUST_USE
heed_status heed__host_check(heed_context *ctx, const char *function, const char *what,
                             const heed_tensor *given, int ndim, const int64_t *shape, const char *like);

#include "fused.h"
#include "optimizers.h"

#endif
