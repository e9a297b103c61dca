/* The backward pass: gradients flow from the youngest node to the oldest. They gather in the nodes; the
 * leaves get theirs at the end, when nothing can fail any more, and until then a node keeps what it saved. So
 * a pass that fails has changed nothing and can be repeated. */
#include "pass.h"

#include <stdio.h>
#include <string.h>

typedef heed__pass backward_run;

/* ---- The heap of nodes ---- */

static void heap_push(backward_run *run, heed__node *node) {
  size_t i = run->count++;
  for (; i > 0 && run->heap[(i - 1) / 2]->order < node->order; i = (i - 1) / 2)
    run->heap[i] = run->heap[(i - 1) / 2];
  run->heap[i] = node;
}

heed__node *heed__pass_next(backward_run *run) {
  heed__node *first = run->heap[0], *last = run->heap[--run->count];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < run->count; i = child) {
    if (child + 1 < run->count && run->heap[child + 1]->order > run->heap[child]->order) child++;
    if (run->heap[child]->order <= last->order) break;
    run->heap[i] = run->heap[child];
  }
  run->heap[i] = last;
  return first;
}

static heed_status heap_reserve(backward_run *run) {
  if (run->count < run->capacity) return HEED_OK;
  const size_t wanted = run->capacity > 0 ? 2 * run->capacity : 64;
  heed__node **more = heed__allocate(run->ctx, heed__array_bytes(wanted, sizeof(heed__node *)));
  if (more == NULL) return heed__fail_memory(run->ctx, "backward", wanted * sizeof(heed__node *));
  if (run->count > 0) memcpy(more, run->heap, run->count * sizeof(heed__node *));
  heed__release(run->ctx, run->heap);
  run->heap = more;
  run->capacity = wanted;
  return HEED_OK;
}

heed_status heed__pass_push(backward_run *run, heed__node *node) {
  const heed_status status = heap_reserve(run);
  if (status == HEED_OK) heap_push(run, node);
  return status;
}

/* ---- Sums of gradients ---- */

/* Whether no other tensor shares the elements of x, so that they can be changed. */
static bool is_alone(const heed_tensor *x) {
  return x->storage->references == 1 && !heed__overlaps_itself(x);
}

/* *sum += x, without changing elements that others share; takes x over, also after an error. */
static heed_status add_to(heed_context *ctx, heed_tensor **sum, heed_tensor *x) {
  if (*sum == NULL) {
    *sum = x;
    return HEED_OK;
  }
  heed_status status;
  if (is_alone(*sum)) {
    status = heed_add(ctx, *sum, x, sum);
  } else if (is_alone(x)) {
    status = heed_add(ctx, *sum, x, &x);
    if (status == HEED_OK) {
      heed_tensor *old = *sum;
      *sum = x;
      x = old;
    }
  } else {
    heed_tensor *made = NULL;
    status = heed_add(ctx, *sum, x, &made);
    if (status == HEED_OK) {
      heed_tensor_free(*sum);
      *sum = made;
    }
  }
  heed_tensor_free(x);
  return status;
}

/* Adds the gradient dx, taken over, to those that result `output` of the node waits with. */
static heed_status pend(backward_run *run, heed__node *node, uint32_t output, heed_tensor *dx) {
  if (node->order < run->oldest && node->gradient != NULL) {
    heed_tensor_free(dx);
    return HEED_OK;
  }
  heed_status status = heap_reserve(run);
  if (status) {
    heed_tensor_free(dx);
    return status;
  }
  if (!node->is_touched) {
    heed__node_retain(node);
    node->is_touched = true;
    node->next = run->touched;
    run->touched = node;
    if (node->gradient != NULL) heap_push(run, node);
  }
  return add_to(run->ctx, &node->pending[output], dx);
}

/* ---- One node ---- */

heed_status heed__pass_call_hooks(heed_context *ctx, heed__node *node, uint32_t output) {
  heed_status status = HEED_OK;
  for (heed__tensor_hook *hook = node->hooks; hook != NULL && status == HEED_OK; hook = hook->next) {
    heed_tensor *gradient = node->pending[output], *changed = NULL;
    if (hook->call == NULL || hook->output != output || gradient == NULL) continue;
    const char before = heed__host_begin(ctx);
    status = hook->call(hook->user, gradient, &changed);
    status = heed__host_returned(ctx, before, "register_hook", status);
    if (changed == gradient) changed = NULL; /* unchanged */
    if (status == HEED_OK && changed != NULL)
      status = heed__host_check(ctx, "register_hook", "the result of the hook", changed, gradient->ndim,
                                gradient->shape, "the gradient");
    if (status == HEED_OK && changed != NULL) {
      heed_tensor_free(gradient);
      node->pending[output] = changed;
    } else {
      heed_tensor_free(changed);
    }
  }
  return status;
}

static heed_status check_saved(heed_context *ctx, const heed__node *node) {
  const char *function = node->gradient->function;
  if (node->spent)
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "backward: the tensors that %s saved were freed by an earlier backward pass; call that one "
        "with retain_graph = true",
        function);
  for (int i = 0; i < node->saved_count; i++) {
    const heed__saved *saved = &node->saved[i];
    if (saved->storage == NULL || saved->version == saved->storage->version) continue;
    char shape[HEED__SHAPE_TEXT], which[32];
    snprintf(which, sizeof which, i < node->inputs ? "input %d" : "result %d",
             i < node->inputs ? i + 1 : i - node->inputs + 1);
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "backward: %s, %s of %s, was changed in place by %s, and its gradient needs the old elements; "
        "use the operation that makes a new tensor, or change a clone",
        which, heed__shape_text(shape, saved->ndim, saved->dims), function, saved->storage->written_by);
  }
  return HEED_OK;
}

static heed_status check_nan(heed_context *ctx, const heed__node *node, int i, const heed_tensor *dx) {
  heed_tensor *nan = NULL, *any = NULL;
  bool found = false;
  heed_status status = heed_isnan(ctx, dx, &nan);
  if (status == HEED_OK) status = heed_any(ctx, nan, 0, NULL, false, &any);
  if (status == HEED_OK) found = *(const uint8_t *)any->data != 0;
  heed_tensor_free(nan);
  heed_tensor_free(any);
  if (status || !found) return status;
  return heed__fail(ctx, HEED_ARGUMENT, "backward: the gradient of input %d of %s (%s) contains nan", i + 1,
                    node->gradient->function, heed__gradient_name(node));
}

/* Gives the gradient of input i, taken over, to what computed it. */
static heed_status pass_on(backward_run *run, heed__node *node, int i, heed_tensor *dx) {
  heed_context *ctx = run->ctx;
  const char *function = node->gradient->function;
  const heed__saved *saved = &node->saved[i];
  heed_status status = HEED_OK;
  if (!heed__same_shape(dx->ndim, dx->shape, saved->ndim, saved->dims)) {
    heed_tensor *sum = NULL;
    status = heed__sum_to_shape(ctx, function, dx, saved->ndim, saved->dims, &sum);
    heed_tensor_free(dx);
    if (status) return status;
    dx = sum;
  }
  if (run->options.detect_anomaly) status = check_nan(ctx, node, i, dx);
  if (status) {
    heed_tensor_free(dx);
    return status;
  }
  return pend(run, node->input[i], node->input_output[i], dx);
}

#define FEW_INPUTS 8

/* The elements that the gradient of a node reads. Products and attention charge their multiplications
 * besides.
 */
static double node_elements(const heed__node *node) {
  double units = 1;
  for (int i = 0; i < node->outputs; i++) {
    if (node->pending[i] != NULL) units += (double)node->pending[i]->numel;
  }
  for (int i = 0; i < node->saved_count; i++) {
    const heed__saved *x = &node->saved[i];
    double elements = x->storage != NULL;
    for (int d = 0; d < x->ndim; d++) elements *= (double)x->dims[d];
    units += elements;
  }
  return units;
}

heed_status heed__pass_through(backward_run *run, heed__node *node) {
  heed_context *ctx = run->ctx;
  heed_status status = HEED_OK;
  bool any = false;
  for (int i = 0; i < node->outputs && status == HEED_OK; i++) {
    status = heed__pass_call_hooks(ctx, node, (uint32_t)i);
    any = any || node->pending[i] != NULL;
  }
  if (status || !any) return status;
  status = check_saved(ctx, node);
  if (status == HEED_OK) status = heed__charge(ctx, "backward", node_elements(node));
  if (status) return status;
  heed_tensor *few[FEW_INPUTS] = {NULL}, **dx = few;
  if (node->inputs > FEW_INPUTS) {
    const size_t bytes = heed__array_bytes((uint64_t)node->inputs, sizeof(heed_tensor *));
    dx = heed__allocate(ctx, bytes);
    if (dx == NULL) return heed__fail_memory(ctx, "backward", bytes);
    memset(dx, 0, bytes);
  }
  heed__backward b = {
      .ctx = ctx,
      .function = node->gradient->function,
      .node = node,
      .dy = (const heed_tensor *const *)node->pending,
      .values = node->values,
      .dx = dx,
  };
  status = node->gradient->backward(&b);
  /* the gradients of the results are needed no more, unless they were asked for */
  for (int i = 0; i < node->outputs && status == HEED_OK; i++) {
    bool asked = heed__node_keeps(node, (uint32_t)i);
    for (int k = 0; k < run->asked_count; k++)
      asked = asked || (run->asked[k].node == node && (int)run->asked[k].output == i);
    if (asked) continue;
    heed_tensor_free(node->pending[i]);
    node->pending[i] = NULL;
  }
  for (int i = 0; i < node->inputs; i++) {
    heed_tensor *gradient = dx[i];
    if (gradient == NULL) continue;
    if (status == HEED_OK && node->input[i] != NULL) {
      status = pass_on(run, node, i, gradient);
    } else {
      heed_tensor_free(gradient);
    }
  }
  if (dx != few) heed__release(ctx, dx);
  return status;
}

/* ---- The end of a pass ---- */

/* Makes *gradient row-major, with elements that no other tensor shares. */
static heed_status own_elements(heed_context *ctx, heed_tensor **gradient) {
  if (is_alone(*gradient) && heed_tensor_is_contiguous(*gradient)) return HEED_OK;
  heed_tensor *copy = NULL;
  const heed_status status = heed__clone(ctx, "backward", *gradient, &copy);
  if (status) return status;
  heed_tensor_free(*gradient);
  *gradient = copy;
  return HEED_OK;
}

/* Prepares what will replace the gradients that nodes keep. */
static heed_status add_kept(backward_run *run) {
  heed_status status = HEED_OK;
  for (heed__node *node = run->touched; node != NULL && status == HEED_OK; node = node->next) {
    if (node->kept == 0) continue;
    for (int i = 0; i < node->outputs && status == HEED_OK; i++) {
      if (node->gradient == NULL) status = heed__pass_call_hooks(run->ctx, node, (uint32_t)i);
      if (status || node->pending[i] == NULL || !heed__node_keeps(node, (uint32_t)i)) continue;
      status = own_elements(run->ctx, &node->pending[i]);
      if (status == HEED_OK && node->grad[i] != NULL)
        status = heed_add(run->ctx, node->pending[i], node->grad[i], &node->pending[i]);
    }
  }
  return status;
}

/* Cannot fail. */
static void commit_gradients(backward_run *run) {
  for (heed__node *node = run->touched; node != NULL; node = node->next) {
    if (node->kept != 0) {
      for (int i = 0; i < node->outputs; i++) {
        if (node->pending[i] == NULL || !heed__node_keeps(node, (uint32_t)i)) continue;
        heed_tensor_free(node->grad[i]);
        node->grad[i] = node->pending[i];
        node->pending[i] = NULL;
      }
    }
  }
}

heed_status heed__pass_end(backward_run *run) {
  const heed_status status = add_kept(run);
  if (status == HEED_OK) commit_gradients(run);
  return status;
}

void heed__pass_clean(backward_run *run, bool spend) {
  for (heed__node *node = run->touched, *next; node != NULL; node = next) {
    next = node->next;
    for (int i = 0; i < node->outputs; i++) {
      heed_tensor_free(node->pending[i]);
      node->pending[i] = NULL;
    }
    node->is_touched = false;
    if (spend && node->gradient != NULL) heed__node_spend(node);
    heed__node_drop(node);
  }
  run->touched = NULL;
  heed__release(run->ctx, run->heap);
}

/* ---- The pass ---- */

heed_status heed__pass_start(backward_run *run, const char *function, int i, const heed_tensor *y,
                             const heed_tensor *dy) {
  heed_context *ctx = run->ctx;
  char have[HEED__SHAPE_TEXT], want[HEED__SHAPE_TEXT], what[32];
  if (run->given == 1)
    snprintf(what, sizeof what, "the tensor");
  else
    snprintf(what, sizeof what, "tensor %d", i + 1);
  if (!heed__wants_gradient(y)) return heed__fail_unrecorded(ctx, function, what, run->was_recording);
  heed_tensor *gradient = NULL;
  heed_status status;
  if (dy == NULL && y->numel != 1)
    return heed__fail(
        ctx, HEED_SHAPE,
        "%s: %s is %s; without a gradient it must have one element: take its sum or mean, or give "
        "a gradient",
        function, what, heed__shape_text(have, y->ndim, y->shape));
  if (dy != NULL && dy->dtype != HEED_FLOAT32)
    return heed__fail(ctx, HEED_DTYPE, "%s: the gradient is %s; it must be float32", function,
                      heed_dtype_name(dy->dtype));
  if (dy != NULL && !heed__same_shape(y->ndim, y->shape, dy->ndim, dy->shape))
    return heed__fail(ctx, HEED_SHAPE,
                      "%s: the gradient is %s and the tensor is %s; the shapes must be equal", function,
                      heed__shape_text(have, dy->ndim, dy->shape), heed__shape_text(want, y->ndim, y->shape));
  if (dy == NULL) {
    status = heed__full(ctx, function, HEED_FLOAT32, y->ndim, y->shape, heed_number(1), &gradient);
  } else {
    status = heed_tensor_detach(ctx, dy, &gradient);
  }
  if (status) return status;
  heed__node *node = y->node;
  if (node == NULL) {
    heed__leaf *leaf;
    status = heed__leaf_make(ctx, function, y, &leaf);
    if (status) {
      heed_tensor_free(gradient);
      return status;
    }
    node = leaf->node;
  }
  return pend(run, node, y->output, gradient);
}

/* Puts the name of the called function before the message of the operation that failed; in place of that of
 * the pass, which messages of all functions begin with. */
heed_status heed__name_failure(heed_context *ctx, const char *function, heed_status status) {
  char text[HEED__MESSAGE];
  const size_t length = strlen(function);
  if (status == HEED_OK || (strncmp(ctx->message, function, length) == 0 && ctx->message[length] == ':'))
    return status;
  static const char pass[] = "backward: ";
  const size_t skipped = strncmp(ctx->message, pass, sizeof pass - 1) == 0 ? sizeof pass - 1 : 0;
  snprintf(text, sizeof text, "%s", ctx->message + skipped);
  return heed__fail(ctx, status, "%s: %s", function, text);
}

heed_status heed__pass_go(heed__pass *run, const char *function, int count, const heed_tensor *const *y,
                          const heed_tensor *const *dy) {
  heed_context *ctx = run->ctx;
  heed_status status = HEED_OK;
  for (int i = 0; i < count && status == HEED_OK; i++)
    status = heed__pass_start(run, function, i, y[i], dy != NULL ? dy[i] : NULL);
  while (status == HEED_OK && run->count > 0) {
    if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
    if (status == HEED_OK) status = heed__pass_through(run, heed__pass_next(run));
  }
  return status;
}

heed_status heed__pass_check_count(heed_context *ctx, const char *function, const char *argument, int count) {
  if (count > 0) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is %d; it must be 1 or more", function, argument, count);
}

heed_status heed__pass_options(heed_context *ctx, const char *function, const heed_backward_options *given,
                               heed_backward_options *out) {
  *out = (heed_backward_options){.size = sizeof(*out)};
  if (given == NULL) return HEED_OK;
  heed_status status = heed__struct_check(ctx, function, "options", "heed_backward_options", given);
  if (status == HEED_OK)
    status = heed__struct_read(ctx, function, "options", "heed_backward_options", given, out, sizeof(*out));
  return status;
}

heed_status heed_backward(heed_context *ctx, int count, const heed_tensor *const *y,
                          const heed_tensor *const *dy, const heed_backward_options *options) {
  HEED__ENTER(ctx, "backward", y);
  backward_run run = {.ctx = ctx, .was_recording = ctx->recorder != NULL, .given = count};
  heed_status status = heed__pass_check_count(ctx, "backward", "count", count);
  if (status == HEED_OK) status = heed__check_tensors(ctx, "backward", "y", count, y);
  for (int i = 0; i < count && dy != NULL && status == HEED_OK; i++) {
    if (dy[i] != NULL) status = heed__check_tensors(ctx, "backward", "dy", 1, &dy[i]);
  }
  if (status == HEED_OK) status = heed__pass_options(ctx, "backward", options, &run.options);
  if (status) return status;
  if (ctx->backward != NULL)
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "backward: a backward pass is running; a hook or a function must not begin another one");
  const struct heed__recorder *recorder = ctx->recorder;
  ctx->recorder = NULL;
  ctx->backward = &run;
  status = heed__pass_go(&run, "backward", count, y, dy);
  if (status == HEED_OK) status = heed__pass_end(&run);
  ctx->backward = NULL;
  ctx->recorder = recorder;
  heed__pass_clean(&run, status == HEED_OK && !run.options.retain_graph);
  return heed__name_failure(ctx, "backward", status);
}

heed_status heed__backward_within(heed_context *ctx, const char *function, uint64_t after, int count,
                                  const heed_tensor *const *y, const heed_tensor *const *dy, int nx,
                                  heed_tensor *const *x, heed_tensor **dx) {
  backward_run *run = ctx->backward;
  if (run == NULL) return heed__fail(ctx, HEED_ARGUMENT, "%s: no backward pass is running", function);
  const struct heed__recorder *recorder = ctx->recorder;
  ctx->recorder = NULL;
  heed_status status = HEED_OK;
  for (int i = 0; i < count && status == HEED_OK; i++)
    if (dy[i] != NULL) status = heed__pass_start(run, function, i, y[i], dy[i]);
  while (status == HEED_OK && run->count > 0 && run->heap[0]->order > after) {
    if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
    heed__node *node = heed__pass_next(run);
    if (status == HEED_OK) status = heed__pass_through(run, node);
    if (status == HEED_OK) heed__node_spend(node); /* nothing else leads to it */
  }
  ctx->recorder = recorder;
  for (int k = 0; k < nx && status == HEED_OK; k++) {
    const heed__leaf *leaf = heed__leaf_of(x[k]);
    if (leaf == NULL) continue;
    dx[k] = leaf->node->pending[0];
    leaf->node->pending[0] = NULL;
  }
  return status;
}
