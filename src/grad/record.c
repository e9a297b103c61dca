/* Recording: nodes from the calls of operations, and what is written in place meanwhile. */
#include "grad.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- What is kept ---- */

static void keep_shape(heed__saved *saved, const heed_tensor *x) {
  saved->dtype = (uint8_t)x->dtype;
  saved->ndim = (uint8_t)x->ndim;
  memcpy(saved->dims, x->shape, (size_t)x->ndim * sizeof(*x->shape));
  memcpy(saved->dims + x->ndim, x->stride, (size_t)x->ndim * sizeof(*x->stride));
}

static void keep_tensor(heed__saved *saved, const heed_tensor *x, bool is_overwritten) {
  keep_shape(saved, x);
  if (x->storage == NULL) { /* a number, on the caller's stack */
    assert(x->ndim == 0);
    saved->is_number = true;
    memcpy(saved->dims, x->data, heed__element_bytes(x->dtype));
    return;
  }
  saved->storage = x->storage;
  saved->storage->references++;
  saved->data = x->data;
  saved->version = x->storage->version - is_overwritten;
}

static const heed_tensor *unpack(const heed__saved *saved, heed_tensor *x) {
  if (saved->is_number) {
    heed__header_on_stack(x, (heed_dtype)saved->dtype, saved->dims, 0, NULL);
    return x;
  }
  heed__header_on_stack(x, (heed_dtype)saved->dtype, saved->data, saved->ndim, saved->dims);
  memcpy(x->stride, saved->dims + saved->ndim, (size_t)saved->ndim * sizeof(*x->stride));
  x->storage = saved->storage;
  x->in_storage = false;
  return x;
}

const heed_tensor *heed__backward_input(const heed__backward *b, int i, heed_tensor *header) {
  return unpack(&b->node->saved[i], header);
}

const heed_tensor *heed__backward_output(const heed__backward *b, int i, heed_tensor *header) {
  return unpack(&b->node->saved[b->node->inputs + i], header);
}

/* ---- Recording ---- */

static bool shares(const heed_tensor *x, const heed_tensor *y) {
  return x->storage != NULL && x->storage == y->storage;
}

/* A tensor that shares its elements with one that a recorded operation has changed since. */
static heed_status check_history(heed_context *ctx, const char *function, const heed_tensor *x) {
  const heed__storage *storage = x->storage;
  if (storage == NULL || storage->recorded == 0 || x->detached) return HEED_OK;
  if (x->node != NULL && x->node->order >= storage->recorded) return HEED_OK;
  char shape[HEED__SHAPE_TEXT];
  return heed__fail(
      ctx, HEED_ARGUMENT,
      "%s: the elements of a tensor %s were changed through another one that shares them, by %s, "
      "and their gradient would be lost; use that tensor, or x:detach()",
      function, heed__shape_text(shape, x->ndim, x->shape), storage->written_by);
}

static heed_status edge_to(heed_context *ctx, const char *function, const heed_tensor *x, heed__node **node,
                           uint32_t *output) {
  *output = x->node != NULL ? x->output : 0;
  *node = x->node;
  if (x->node == NULL) {
    heed__leaf *leaf;
    const heed_status status = heed__leaf_make(ctx, function, x, &leaf);
    if (status) return status;
    *node = leaf->node;
  }
  heed__node_retain(*node);
  return HEED_OK;
}

/* Whether the call has written x through one of its results. */
static bool overwrote(const heed__call *call, const heed_tensor *x) {
  for (int i = 0; i < call->outputs; i++) {
    const heed_tensor *y = *call->output[i];
    if (y->storage->version > 0 && shares(x, y)) return true;
  }
  return false;
}

static uint32_t needs_of(const heed__gradient *gradient, int i) {
  return gradient->needs[heed__min(i, gradient->needs_count - 1)];
}

/* A node for the call, none of whose results has it yet. */
static heed_status make_node(heed_context *ctx, const heed__gradient *gradient, const heed__call *call,
                             heed__node **out) {
  uint32_t needs = 0;
  int dims = 0;
  for (int i = 0; i < call->inputs; i++) {
    if (call->input[i] == NULL) continue;
    dims += 2 * call->input[i]->ndim + 1;
    if (heed__wants_gradient(call->input[i])) needs |= needs_of(gradient, i);
  }
  const bool keeps_output = needs & HEED__SAVE_OUTPUT;
  for (int i = 0; i < call->outputs && keeps_output; i++) dims += 2 * (*call->output[i])->ndim;
  heed__node *node =
      heed__node_new(ctx, call->inputs, call->outputs, call->inputs + (keeps_output ? call->outputs : 0),
                     dims, call->values_bytes);
  if (node == NULL) return heed__fail_memory(ctx, gradient->function, sizeof(*node));
  node->gradient = gradient;
  heed_status status = HEED_OK;
  int64_t *at = node->saved_count > 0 ? node->saved[0].dims : NULL;
  for (int i = 0; i < call->inputs && status == HEED_OK; i++) {
    const heed_tensor *x = call->input[i];
    if (x == NULL) continue;
    node->saved[i].dims = at;
    at += 2 * x->ndim + 1; /* one for a number */
    if (x->storage == NULL || (i < 31 && (needs & HEED__SAVE_INPUT(i)))) {
      keep_tensor(&node->saved[i], x, !gradient->is_view && overwrote(call, x));
    } else {
      keep_shape(&node->saved[i], x);
    }
    if (heed__wants_gradient(x))
      status = edge_to(ctx, gradient->function, x, &node->input[i], &node->input_output[i]);
  }
  for (int i = 0; i < call->outputs && keeps_output; i++) {
    heed__saved *saved = &node->saved[call->inputs + i];
    saved->dims = at;
    at += 2 * (*call->output[i])->ndim;
    keep_tensor(saved, *call->output[i], false);
  }
  if (call->values_bytes > 0) memcpy(node->values, call->values, call->values_bytes);
  if (status) {
    heed__node_drop(node);
    return status;
  }
  *out = node;
  return HEED_OK;
}

static heed_status nothing_backward(heed__backward *b) {
  (void)b;
  return HEED_OK;
}

/* What overwrote a recorded tensor and wants nothing itself. */
static const heed__gradient overwritten = {
    .name = "ZeroBackward0", .function = "fill_", .needs_count = 1, .backward = nothing_backward};

/* x was written by what wants nothing. Other tensors that share its elements must not be used as if they
 * still had theirs: a node without inputs makes them older. */
static heed_status forget(heed_context *ctx, heed_tensor *x) {
  if (x->storage->references == 1) {
    heed__set_node(x, NULL, 0);
    x->storage->recorded = 0;
    return HEED_OK;
  }
  heed__node *node = heed__node_new(ctx, 0, 1, 0, 0, 0);
  if (node == NULL) return heed__fail_memory(ctx, overwritten.function, sizeof *node);
  node->gradient = &overwritten;
  node->order = x->storage->recorded = ++ctx->recorded;
  heed__set_node(x, node, 0);
  heed__node_drop(node);
  return HEED_OK;
}

/* x, which keeps its gradient, has been written in place: the gradient of what it is now is kept, as in
 * PyTorch. */
static void keep_gradient_of_new(const heed_tensor *x, heed__node *node) {
  heed__node *old = x->node;
  if (old == NULL || !heed__node_keeps(old, x->output)) return;
  heed__node_set_keeps(node, 0, true);
  node->grad[0] = old->grad[x->output];
  old->grad[x->output] = NULL;
  heed__node_set_keeps(old, x->output, false);
}

static heed_status record(heed_context *ctx, const heed__call *call) {
  const heed__gradient *gradient = heed__gradient_of((heed__op)call->op);
  heed_tensor *first = *call->output[0];
  const bool in_place = first->storage->version > 0 && !gradient->is_view;
  heed_status status = HEED_OK;
  bool wants = false;
  for (int i = 0; i < call->inputs; i++) {
    const heed_tensor *x = call->input[i];
    if (x == NULL) continue;
    if (x->node == NULL && !x->leaf && !x->parameter && (x->storage == NULL || x->storage->recorded == 0))
      continue;
    if (!(in_place && x == first)) status = check_history(ctx, gradient->function, x); /* else: check_write */
    if (status) goto done;
    wants = wants || heed__wants_gradient(x);
  }
  if (!wants || !heed__is_differentiable(first->dtype)) {
    return first->node != NULL ? forget(ctx, first) : HEED_OK;
  }
  if (gradient->backward == NULL) {
    status = heed__fail(ctx, HEED_ARGUMENT,
                        "%s: no gradient is known for it; use it under no_grad, or on x:detach()",
                        gradient->function);
    goto done;
  }
  heed__node *node = NULL;
  status = make_node(ctx, gradient, call, &node);
  if (status) goto done;
  node->order = ++ctx->recorded;
  if (in_place && call->outputs == 1) keep_gradient_of_new(first, node);
  for (int i = 0; i < call->outputs; i++) heed__set_node(*call->output[i], node, (uint32_t)i);
  heed__node_drop(node);
  for (int i = 0; i < call->outputs && !gradient->is_view; i++) {
    heed__storage *storage = (*call->output[i])->storage;
    if (storage->version > 0) storage->recorded = node->order;
  }
done:
  /* A new result goes; one that was given stays, changed. */
  for (int i = 0; status && i < call->outputs; i++) {
    if ((*call->output[i])->storage->version > 0 && !gradient->is_view) continue;
    heed_tensor_free(*call->output[i]);
    *call->output[i] = NULL;
  }
  return status;
}

/* ---- Writes in place ---- */

/* Whether what the node computed shares the elements of its input: reshape and flatten may have copied. */
static bool is_view_node(const heed__node *node) {
  const heed__gradient *gradient = node->gradient;
  if (gradient != heed__gradient_of(HEED__OP_reshape) && gradient != heed__gradient_of(HEED__OP_flatten))
    return gradient->is_view;
  return ((const heed__view_values *)node->values)->size == 0;
}

static heed_status check_write(heed_context *ctx, const char *function, const heed_tensor *x) {
  const heed_status status = check_history(ctx, function, x);
  if (status) return status;
  if (x->node == NULL && heed__wants_gradient(x))
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "%s: the tensor that is written is a leaf that requires a gradient; write to it under no_grad",
        function);
  if (x->node != NULL && is_view_node(x->node))
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: the tensor that is written is a view of a recorded tensor; write to that tensor "
                      "(x[i] = value), or to a clone",
                      function);
  return heed__spare_make(ctx, function);
}

/* ---- Operations in place ---- */

/* Replaces inputs that writing to out would change by copies of the same history, if the gradient of the
 * operation needs their elements. Allocates all that recording it will need, beside its node. */
static heed_status keep(heed_context *ctx, int op, int inputs, const heed_tensor *out,
                        const heed_tensor **input, heed_tensor **copy) {
  const heed__gradient *gradient = heed__gradient_of((heed__op)op);
  uint32_t needs = 0;
  for (int i = 0; i < inputs; i++) {
    heed__leaf *leaf;
    if (input[i] == NULL || gradient->needs_count == 0 || !heed__wants_gradient(input[i])) continue;
    needs |= needs_of(gradient, i);
    if (input[i]->node != NULL) continue;
    const heed_status status = heed__leaf_make(ctx, gradient->function, input[i], &leaf);
    if (status != HEED_OK) return status;
  }
  for (int i = 0; i < inputs; i++) {
    const heed_tensor *x = input[i];
    if (x == NULL || !(needs & HEED__SAVE_INPUT(i)) || !heed__may_overlap(x, out)) continue;
    heed_status status = check_history(ctx, gradient->function, x);
    if (status == HEED_OK) status = heed__clone(ctx, gradient->function, x, &copy[i]);
    if (status != HEED_OK) return status;
    heed__set_node(copy[i], x->node, x->output);
    if (x->node == NULL) copy[i]->leaf = heed__leaf_retain(heed__leaf_of(x));
    input[i] = copy[i];
  }
  return HEED_OK;
}

static const heed__recorder recorder = {record, check_write, keep};

bool heed_set_recording(heed_context *ctx, bool on) {
  if (ctx == NULL) return false;
  const bool was = ctx->recorder != NULL;
  ctx->recorder = on ? &recorder : NULL;
  if (!on) heed__spare_free(ctx);
  return was;
}

bool heed_is_recording(const heed_context *ctx) {
  return ctx != NULL && ctx->recorder != NULL;
}

/* ---- Functions of the host's ---- */

typedef struct own_function {
  heed__gradient gradient; /* first: its node points to it */
  heed_function function;
  char name[64];
} own_function;

static heed_status own_backward(heed__backward *b) {
  const own_function *own = b->values;
  const int inputs = b->node->inputs, outputs = b->node->outputs;
  const char before = heed__host_begin(b->ctx);
  heed_status status = own->function.backward(own->function.user, outputs, b->dy, inputs, b->dx);
  status = heed__host_returned(b->ctx, before, b->function, status);
  status = heed__host_own(b->ctx, outputs, b->dy, inputs, b->dx, status);
  for (int i = 0; i < inputs && status == HEED_OK; i++) {
    char what[32], like[32];
    if (b->dx[i] == NULL) continue;
    snprintf(what, sizeof what, "dx[%d]", i);
    snprintf(like, sizeof like, "x[%d]", i);
    status = heed__host_check(b->ctx, b->function, what, b->dx[i], b->node->saved[i].ndim,
                              b->node->saved[i].dims, like);
  }
  return status;
}

static void own_release(void *values) {
  own_function *own = values;
  if (own->function.release != NULL) own->function.release(own->function.user);
}

heed_status heed_record(heed_context *ctx, const heed_function *f, int inputs, const heed_tensor *const *x,
                        int outputs, heed_tensor *const *y, bool *recorded) {
  HEED__ENTER(ctx, "record", f, recorded);
  heed_status status = heed__struct_check(ctx, "record", "f", "heed_function", f);
  own_function own = {.function = {.size = sizeof(own.function)}};
  if (status == HEED_OK)
    status = heed__struct_read(ctx, "record", "f", "heed_function", f, &own.function, sizeof(own.function));
  if (status == HEED_OK) status = heed__check_tensors(ctx, "record", "x", inputs, x);
  if (status == HEED_OK)
    status = heed__check_tensors(ctx, "record", "y", outputs, (const heed_tensor *const *)y);
  if (status) return status;
  if (own.function.name == NULL || own.function.backward == NULL)
    return heed__fail(ctx, HEED_ARGUMENT, "record: f has no %s",
                      own.function.name == NULL ? "name" : "backward");
  if (inputs < 0) return heed__fail(ctx, HEED_ARGUMENT, "record: inputs is %d; it must be 0 or more", inputs);
  if (outputs < 1)
    return heed__fail(ctx, HEED_ARGUMENT, "record: outputs is %d; it must be 1 or more", outputs);
  for (int i = 0; i < outputs; i++) {
    if (!heed__is_differentiable(y[i]->dtype))
      return heed__fail(ctx, HEED_DTYPE, "record: y[%d] is %s; it must be float32, bfloat16 or float16", i,
                        heed_dtype_name(y[i]->dtype));
  }
  *recorded = false;
  bool wants = false;
  for (int i = 0; i < inputs && ctx->recorder != NULL; i++) {
    status = check_history(ctx, own.function.name, x[i]);
    if (status) return status;
    wants = wants || heed__wants_gradient(x[i]);
  }
  if (!wants) return HEED_OK;
  for (int i = 0; i < outputs; i++) {
    if (y[i]->node != NULL || heed__wants_gradient(y[i]))
      return heed__fail(ctx, HEED_ARGUMENT, "record: y[%d] already has a gradient; give a new tensor", i);
    for (int k = 0; k < i; k++) {
      if (y[k] == y[i])
        return heed__fail(ctx, HEED_ARGUMENT, "record: y[%d] and y[%d] are the same tensor; give an alias", k,
                          i);
    }
  }
  int dims = 0;
  for (int i = 0; i < inputs; i++) dims += 2 * x[i]->ndim;
  heed__node *node = heed__node_new(ctx, inputs, outputs, inputs, dims, sizeof(own));
  if (node == NULL) return heed__fail_memory(ctx, "record", sizeof(*node));
  own_function *kept = node->values;
  *kept = own;
  snprintf(kept->name, sizeof(kept->name), "%s", own.function.name);
  kept->function.name = kept->name;
  kept->gradient = (heed__gradient){.name = kept->name, .function = kept->name, .backward = own_backward};
  node->gradient = &kept->gradient;
  int64_t *at = inputs > 0 ? node->saved[0].dims : NULL;
  for (int i = 0; i < inputs && status == HEED_OK; i++) {
    node->saved[i].dims = at;
    at += 2 * x[i]->ndim;
    keep_shape(&node->saved[i], x[i]);
    if (heed__wants_gradient(x[i]))
      status = edge_to(ctx, "record", x[i], &node->input[i], &node->input_output[i]);
  }
  if (status == HEED_OK) {
    node->release_values = own_release;
    node->order = ++ctx->recorded;
    for (int i = 0; i < outputs; i++) heed__set_node(y[i], node, (uint32_t)i);
    *recorded = true;
  }
  heed__node_drop(node);
  return status;
}
