/* Which tensors want gradients, the gradients that they have, and hooks on them. */
#include "grad.h"

bool heed_tensor_requires_grad(const heed_tensor *x) {
  return x != NULL && heed__wants_gradient(x);
}

bool heed_tensor_is_leaf(const heed_tensor *x) {
  return x != NULL && x->node == NULL;
}

const char *heed_tensor_grad_fn(const heed_tensor *x) {
  return x != NULL && x->node != NULL ? heed__gradient_name(x->node) : NULL;
}

heed_status heed__fail_unrecorded(heed_context *ctx, const char *function, const char *what, bool recording) {
  if (!recording)
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "%s: %s does not require a gradient, and recording is off; turn it on (set_grad_enabled) "
        "before %s is computed",
        function, what, what);
  return heed__fail(ctx, HEED_ARGUMENT,
                    "%s: %s does not require a gradient; it must be computed, while recording is on, from a "
                    "tensor with requires_grad",
                    function, what);
}

heed_status heed_tensor_require_grad(heed_tensor *x, bool on) {
  heed_context *ctx = heed_tensor_context(x);
  HEED__ENTER(ctx, "requires_grad", ctx);
  HEED__ENTER_BLOCKED(ctx, "requires_grad", x);
  if (x->node != NULL && on) return HEED_OK;
  if (x->node != NULL)
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "requires_grad: x is the result of a recorded operation (%s); it must be a leaf to require "
        "no gradient; use x:detach()",
        heed__gradient_name(x->node));
  if (!on && !x->leaf && !x->parameter) return HEED_OK;
  if (on && x->dtype != HEED_FLOAT32)
    return heed__fail(ctx, HEED_DTYPE, "requires_grad: x is %s; it must be float32 to have a gradient",
                      heed_dtype_name(x->dtype));
  heed__leaf *leaf;
  const heed_status status = heed__leaf_begin(ctx, "requires_grad", x, &leaf);
  if (status == HEED_OK) leaf->wants = on;
  return status;
}

static const heed__node *node_of(const heed_tensor *x) {
  if (x == NULL) return NULL;
  if (x->node != NULL) return x->node;
  const heed__leaf *leaf = heed__leaf_of(x);
  return leaf != NULL ? leaf->node : NULL;
}

const heed_tensor *heed_tensor_grad(const heed_tensor *x) {
  const heed__node *node = node_of(x);
  return node != NULL ? node->grad[x->output] : NULL;
}

heed_status heed_tensor_set_grad(heed_tensor *x, const heed_tensor *grad) {
  heed_context *ctx = heed_tensor_context(x);
  HEED__ENTER(ctx, "grad", x);
  HEED__MAY_ENTER(ctx, "grad", grad);
  if (x->node != NULL)
    return heed__fail(ctx, HEED_ARGUMENT, "grad: x was computed; only the gradient of a leaf can be set");
  if (grad == NULL && heed__leaf_of(x) == NULL) return HEED_OK;
  if (grad != NULL && grad->dtype != HEED_FLOAT32)
    return heed__fail(ctx, HEED_DTYPE, "grad: the gradient is %s; it must be float32",
                      heed_dtype_name(grad->dtype));
  if (grad != NULL && x->dtype != HEED_FLOAT32)
    return heed__fail(ctx, HEED_DTYPE, "grad: x is %s; only float32 tensors have gradients",
                      heed_dtype_name(x->dtype));
  if (grad != NULL && !heed__same_shape(x->ndim, x->shape, grad->ndim, grad->shape))
    return heed__fail_pair(ctx, "grad", "x", x, "the gradient", grad, "the shapes must be equal");
  heed_tensor *kept = NULL;
  heed__leaf *leaf;
  heed_status status = HEED_OK;
  /* copied if its storage could lead back to x, which would keep both alive */
  if (grad != NULL && (grad->storage == x->storage || grad->storage->leaves != NULL))
    status = heed__clone(ctx, "grad", grad, &kept);
  else if (grad != NULL)
    status = heed_tensor_detach(ctx, grad, &kept);
  /* a tensor that wants no gradient can be given one, too */
  if (status == HEED_OK) status = heed__leaf_begin(ctx, "grad", x, &leaf);
  if (status) {
    heed_tensor_free(kept);
    return status;
  }
  heed_tensor *old = leaf->node->grad[0];
  leaf->node->grad[0] = kept;
  heed_tensor_free(old);
  return HEED_OK;
}

heed_status heed_tensor_retain_grad(heed_tensor *x) {
  heed_context *ctx = heed_tensor_context(x);
  HEED__ENTER(ctx, "retain_grad", x);
  if (!heed__wants_gradient(x)) return heed__fail_unrecorded(ctx, "retain_grad", "x", ctx->recorder != NULL);
  if (x->node != NULL) heed__node_set_keeps(x->node, x->output, true);
  return HEED_OK;
}

/* ---- Hooks ---- */

heed_status heed_tensor_add_hook(heed_tensor *x, heed_gradient_hook *hook, void (*release)(void *user),
                                 void *user, int64_t *id) {
  heed_context *ctx = heed_tensor_context(x);
  HEED__ENTER(ctx, "register_hook", x, hook, id);
  if (!heed__wants_gradient(x))
    return heed__fail_unrecorded(ctx, "register_hook", "x", ctx->recorder != NULL);
  heed__node *node = x->node;
  if (node == NULL) {
    heed__leaf *leaf;
    const heed_status status = heed__leaf_make(ctx, "register_hook", x, &leaf);
    if (status) return status;
    node = leaf->node;
  }
  heed__tensor_hook *added = heed__allocate(ctx, sizeof(*added));
  if (added == NULL) return heed__fail_memory(ctx, "register_hook", sizeof(*added));
  heed__tensor_hook **last = &node->hooks;
  while (*last != NULL) {
    heed__tensor_hook *each = *last;
    if (each->call != NULL || ctx->backward != NULL) {
      last = &each->next;
    } else { /* it was removed in a pass */
      *last = each->next;
      heed__release(ctx, each);
    }
  }
  *added = (heed__tensor_hook){
      .output = x->output, .id = ++ctx->hooks, .call = hook, .release = release, .user = user};
  *last = added;
  *id = added->id;
  return HEED_OK;
}

void heed_tensor_remove_hook(heed_tensor *x, int64_t id) {
  heed__node *node = (heed__node *)(uintptr_t)node_of(x);
  if (node == NULL) return;
  for (heed__tensor_hook **at = &node->hooks; *at != NULL; at = &(*at)->next) {
    heed__tensor_hook *hook = *at;
    if (hook->call == NULL || hook->id != id || hook->output != x->output) continue;
    void (*release)(void *) = hook->release;
    void *user = hook->user;
    if (node->context->backward != NULL) { /* it may be the one that runs: freed later */
      hook->call = NULL;
      hook->release = NULL;
    } else {
      *at = hook->next;
      heed__release(node->context, hook);
    }
    if (release != NULL) release(user);
    return;
  }
}
