/* What a build without gradients (HEED_MINIMAL) answers to the questions that heed itself asks about them. */
#include "grad.h"

#if HEED_MINIMAL

static heed_status fail_minimal(heed_context *ctx, const char *function) {
  return heed__fail(ctx, HEED_ARGUMENT,
                    "%s: this build of heed has no gradients; it must be compiled without HEED_MINIMAL",
                    function);
}

bool heed_set_recording(heed_context *ctx, bool on) {
  (void)ctx, (void)on;
  return false;
}
bool heed_is_recording(const heed_context *ctx) {
  (void)ctx;
  return false;
}

bool heed_tensor_requires_grad(const heed_tensor *x) {
  (void)x;
  return false;
}
heed_status heed_tensor_require_grad(heed_tensor *x, bool on) {
  heed_context *ctx = heed_tensor_context(x);
  HEED__ENTER(ctx, "requires_grad", ctx);
  HEED__ENTER_BLOCKED(ctx, "requires_grad", x);
  return on && !x->parameter ? fail_minimal(ctx, "requires_grad") : HEED_OK;
}
bool heed_tensor_is_leaf(const heed_tensor *x) {
  return x != NULL;
}
const char *heed_tensor_grad_fn(const heed_tensor *x) {
  (void)x;
  return NULL;
}
const heed_tensor *heed_tensor_grad(const heed_tensor *x) {
  (void)x;
  return NULL;
}
heed_status heed_tensor_set_grad(heed_tensor *x, const heed_tensor *grad) {
  heed_context *ctx = heed_tensor_context(x);
  HEED__ENTER(ctx, "grad", x);
  return grad != NULL ? fail_minimal(ctx, "grad") : HEED_OK;
}
heed_status heed_tensor_retain_grad(heed_tensor *x) {
  heed_context *ctx = heed_tensor_context(x);
  HEED__ENTER(ctx, "retain_grad", x);
  return fail_minimal(ctx, "retain_grad");
}

#else
typedef int heed__with_gradients; /* a file must not be empty */
#endif
