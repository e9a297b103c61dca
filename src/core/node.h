/* What hangs on tensors for gradients. Part of core's door; the gradients themselves and the backward pass
 * are in grad.
 *
 * A node stands for one recorded operation. A tensor that it computed holds a reference to it, and the node
 * holds references to the nodes and leaves of its inputs and to the tensors that its gradient needs. What no
 * tensor reaches is thus freed by itself. A leaf is a tensor that was not computed and gets a gradient. It
 * belongs to the tensors that asked for it and their aliases; that of a parameter belongs to the storage, so
 * that it is shared by all headers that modules make of the parameter, before it exists as well. */
#ifndef HEED_NODE_H
#define HEED_NODE_H

typedef struct heed__node heed__node;

/* A tensor that was kept by a node, without the 16 dimensions of a header. */
typedef struct heed__saved {
  heed__storage *storage; /* counted; NULL: only the shape was kept, or the element of a number */
  char *data;
  uint32_t version; /* of the storage when it was kept */
  bool is_number;   /* dims[0] holds the element */
  uint8_t dtype, ndim;
  int64_t *dims; /* ndim sizes, then ndim strides; in the node's block */
} heed__saved;

/* What a host added to one result of a node, or to a leaf: called with its gradient in a backward pass. */
typedef struct heed__tensor_hook {
  struct heed__tensor_hook *next;
  uint32_t output;
  int64_t id;
  heed_gradient_hook *call;
  void (*release)(void *user);
  void *user;
} heed__tensor_hook;

/* The variable parts follow in the same block. */
struct heed__node {
  heed_context *context;
  int64_t references;
  uint64_t order;                        /* later nodes have larger numbers; a leaf: 0 */
  uint64_t kept;                         /* bits: results whose gradient is kept (heed_tensor_retain_grad) */
  const struct heed__gradient *gradient; /* NULL: a leaf */
  const char
      *name; /* of what the operation is the last part of, a string constant; NULL: the gradient's own */
  int inputs, outputs, saved_count;
  bool spent;             /* a backward pass has given back what was saved */
  bool is_touched;        /* by the backward pass that runs */
  heed__node **input;     /* counted; NULL: this input wants nothing */
  uint32_t *input_output; /* which result of that node it is */
  heed__saved *saved;
  void *values; /* what else the gradient needs; its type is the gradient's */
  void (*release_values)(void *values);
  heed_tensor **pending; /* outputs gradients of the backward pass that runs; NULL: none yet */
  heed_tensor **grad;    /* outputs gradients that were kept; NULL: none */
  heed__tensor_hook *hooks;
  heed__node *next; /* of a list of the backward pass, or of those to be freed */
};

/* A leaf; a parameter's is on its storage's list, where address, sizes and strides identify it. */
typedef struct heed__leaf {
  struct heed__leaf *next;
  int64_t references;
  bool wants;       /* requires_grad */
  heed__node *node; /* counted; of one output and no gradient */
  char *data;
  int ndim;
  int64_t dims[]; /* ndim sizes, then ndim strides */
} heed__leaf;

/* A call of an operation, as its gradient wants to know it. */
typedef struct heed__call {
  int op; /* a heed__op (ops.h) */
  int inputs, outputs;
  const heed_tensor *const *input; /* NULL: an optional one that was not given */
  heed_tensor **const *output;     /* where the results are stored */
  const void *values;              /* what the gradient needs beside tensors: copied */
  size_t values_bytes;
} heed__call;

/* How operations are recorded (grad); a context has one while recording is on. */
typedef struct heed__recorder {
  heed_status (*record)(heed_context *ctx, const heed__call *call);
  heed_status (*check_write)(heed_context *ctx, const char *function, const heed_tensor *x);
  heed_status (*keep)(heed_context *ctx, int op, int inputs, const heed_tensor *out,
                      const heed_tensor **input, heed_tensor **copy);
} heed__recorder;

/** Stops recording for work that makes its results in other ways than by recorded operations; returns what
 * heed__resume_recording needs. */
static inline const heed__recorder *heed__pause_recording(heed_context *ctx) {
  const heed__recorder *recorder = ctx->recorder;
  ctx->recorder = NULL;
  return recorder;
}
static inline void heed__resume_recording(heed_context *ctx, const heed__recorder *recorder) {
  ctx->recorder = recorder;
}

/** Whether the gradient of a result is kept; always that of leaves. Beyond the first 63 it is kept if that of
 * one of these is. */
static inline bool heed__node_keeps(const heed__node *node, uint32_t output) {
  return node->kept >> heed__min(output, 63) & 1;
}
static inline void heed__node_set_keeps(heed__node *node, uint32_t output, bool keeps) {
  const uint64_t bit = UINT64_C(1) << heed__min(output, 63);
  node->kept = keeps ? node->kept | bit : node->kept & ~bit;
}

/** Makes x hold that node (or none), counted, as its result `output`. */
void heed__set_node(heed_tensor *x, heed__node *node, uint32_t output);
void heed__node_retain(heed__node *node);
/** Without recursion, however long the chain of nodes is. NULL is allowed. */
void heed__node_drop(heed__node *node);
/** Gives back what a node saved, and keeps its edges. */
void heed__node_spend(heed__node *node);
/** A node in one block: NULL if out of memory. All fields but the sizes are zero. */
heed__node *heed__node_new(heed_context *ctx, int inputs, int outputs, int saved, int dims, size_t values);

/** Makes sure that the node of an operation, and the leaf of one input, can be made after it has changed a
 * tensor in place, when nothing may fail any more; and gives that memory back. */
HEED_MUST_USE
heed_status heed__spare_make(heed_context *ctx, const char *function);
void heed__spare_free(heed_context *ctx);

/** The leaf of x, if it has one: NULL for tensors that were computed, and for parameters that were not used
 * yet. */
heed__leaf *heed__leaf_of(const heed_tensor *x);
/** The same for a leaf or a parameter, and makes that of a parameter if there is none. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__leaf_make(heed_context *ctx, const char *function, const heed_tensor *x, heed__leaf **out);
/** The same for x that may be neither a leaf nor a parameter yet. */
HEED_MUST_USE
heed_status heed__leaf_begin(heed_context *ctx, const char *function, heed_tensor *x, heed__leaf **out);
/** NULL is allowed. */
static inline heed__leaf *heed__leaf_retain(heed__leaf *leaf) {
  if (leaf != NULL) leaf->references++;
  return leaf;
}
/** NULL is allowed. */
void heed__leaf_drop(heed__leaf *leaf);
void heed__leaves_free(heed__storage *storage);
void heed__storage_drop(heed__storage *storage);

/** Whether a gradient of x would be wanted; leaves that want one are float32. */
static inline bool heed__wants_gradient(const heed_tensor *x) {
  if (x->node != NULL) return true;
  if (x->leaf != NULL) return x->leaf->wants;
  if (!x->parameter) return false;
  const heed__leaf *leaf = heed__leaf_of(x);
  return leaf != NULL ? leaf->wants : x->dtype == HEED_FLOAT32;
}

/** Counts a write in place to x's storage by `function`, before it happens. Errors, while operations are
 * recorded: ARGUMENT (x is a leaf that wants a gradient, or a view of a recorded tensor). */
HEED_MUST_USE
heed_status heed__written(heed_context *ctx, const char *function, const heed_tensor *x);

#endif
