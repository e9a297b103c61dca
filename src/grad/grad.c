/* heed_grad: a backward pass to some tensors, whose gradients it gives instead of adding them to leaves. */
#include "pass.h"

/* Finds the nodes of x, and the oldest of them. */
static heed_status find_asked(heed__pass *run, int count, const heed_tensor *const *x) {
  heed_context *ctx = run->ctx;
  run->oldest = UINT64_MAX;
  for (int k = 0; k < count; k++) {
    if (!heed__wants_gradient(x[k]))
      return heed__fail(ctx, HEED_ARGUMENT,
                        "grad: input %d does not require a gradient; call requires_grad_ before it is used",
                        k + 1);
    heed__node *node = x[k]->node;
    if (node == NULL) {
      heed__leaf *leaf;
      const heed_status status = heed__leaf_make(ctx, "grad", x[k], &leaf);
      if (status) return status;
      node = leaf->node;
    }
    heed__node_retain(node);
    run->asked[run->asked_count++] = (heed__asked){node, x[k]->node != NULL ? x[k]->output : 0};
    run->oldest = node->order < run->oldest ? node->order : run->oldest;
  }
  return HEED_OK;
}

/* The gradients that were asked for, as new tensors. */
static heed_status take_asked(heed__pass *run, heed_tensor **dx) {
  for (int k = 0; k < run->asked_count; k++) {
    const heed__asked *asked = &run->asked[k];
    heed__node *node = asked->node;
    if (node->is_touched && node->gradient == NULL) {
      bool again = false; /* asked for twice: hooks run once */
      for (int j = 0; j < k; j++) again = again || run->asked[j].node == node;
      const heed_status status = again ? HEED_OK : heed__pass_call_hooks(run->ctx, node, asked->output);
      if (status) return status;
    }
    const heed_tensor *gradient = node->is_touched ? node->pending[asked->output] : NULL;
    if (gradient == NULL) continue;
    const heed_status status = heed__clone(run->ctx, "grad", gradient, &dx[k]);
    if (status) return status;
  }
  return HEED_OK;
}

static void release_asked(heed__pass *run) {
  for (int k = 0; k < run->asked_count; k++) heed__node_drop(run->asked[k].node);
  heed__release(run->ctx, run->asked);
}

heed_status heed_grad(heed_context *ctx, int ny, const heed_tensor *const *y, const heed_tensor *const *dy,
                      int nx, const heed_tensor *const *x, heed_tensor **dx,
                      const heed_backward_options *options) {
  HEED__ENTER(ctx, "grad", y, x, dx);
  heed__pass run = {.ctx = ctx, .was_recording = ctx->recorder != NULL, .given = ny};
  heed_status status = heed__pass_check_count(ctx, "grad", "ny", ny);
  if (status == HEED_OK) status = heed__pass_check_count(ctx, "grad", "nx", nx);
  if (status == HEED_OK) status = heed__check_tensors(ctx, "grad", "y", ny, y);
  if (status == HEED_OK) status = heed__check_tensors(ctx, "grad", "x", nx, x);
  for (int i = 0; i < ny && dy != NULL && status == HEED_OK; i++) {
    if (dy[i] != NULL) status = heed__check_tensors(ctx, "grad", "dy", 1, &dy[i]);
  }
  if (status == HEED_OK) status = heed__pass_options(ctx, "grad", options, &run.options);
  if (status) return status;
  if (ctx->backward != NULL)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "grad: a backward pass is running; a hook or a function must not begin another one");
  const size_t bytes = heed__array_bytes((uint64_t)nx, sizeof(*run.asked));
  run.asked = heed__allocate(ctx, bytes);
  if (run.asked == NULL) return heed__fail_memory(ctx, "grad", bytes);
  for (int k = 0; k < nx; k++) dx[k] = NULL;
  const struct heed__recorder *recorder = ctx->recorder;
  ctx->recorder = NULL;
  ctx->backward = &run;
  status = find_asked(&run, nx, x);
  if (status == HEED_OK) status = heed__pass_go(&run, "grad", ny, y, dy);
  if (status == HEED_OK) status = take_asked(&run, dx);
  ctx->backward = NULL;
  ctx->recorder = recorder;
  heed__pass_clean(&run, status == HEED_OK && !run.options.retain_graph);
  release_asked(&run);
  for (int k = 0; k < nx && status; k++) {
    heed_tensor_free(dx[k]);
    dx[k] = NULL;
  }
  return heed__name_failure(ctx, "grad", status);
}
