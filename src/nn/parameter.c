/* Parameters: making them, or, where weights come from a file, what stands for them until then. */
#include "nn.h"

bool heed_skip_init(heed_context *ctx, bool skip) {
  if (ctx == NULL) return false;
  if (ctx == NULL) return false;
  const bool before = ctx->skip_init;
  ctx->skip_init = skip;
  return before;
}

bool heed__is_placeholder(const heed_tensor *x) {
  return x->storage != NULL && x->storage->placeholder;
}

heed_status heed__placeholder(heed_context *ctx, const char *function, heed_dtype dtype, int ndim,
                              const int64_t *shape, heed_tensor **out) {
  int64_t numel;
  heed_tensor *x = NULL;
  heed_status status = heed__check_shape(ctx, function, ndim, shape, dtype, &numel);
  if (status == HEED_OK) status = heed__full(ctx, function, dtype, 0, NULL, heed_number(0), &x);
  if (status != HEED_OK) return status;
  x->storage->placeholder = true;
  x->ndim = ndim;
  x->numel = numel;
  for (int i = 0; i < ndim; i++) {
    x->shape[i] = shape[i];
    x->stride[i] = 0;
  }
  *out = x;
  return HEED_OK;
}

heed_status heed__filled_parameter(heed_context *ctx, const char *function, double value, int ndim,
                                   const int64_t *shape, heed_tensor **out) {
  if (ctx->skip_init) return heed__placeholder(ctx, function, HEED_FLOAT32, ndim, shape, out);
  return heed__full(ctx, function, HEED_FLOAT32, ndim, shape, heed_number(value), out);
}

heed_status heed__uniform_parameter(heed_context *ctx, const char *function, heed_generator *g, double bound,
                                    int ndim, const int64_t *shape, heed_tensor **out) {
  if (ctx->skip_init) return heed__placeholder(ctx, function, HEED_FLOAT32, ndim, shape, out);
  return heed__uniform(ctx, function, g, -bound, bound, ndim, shape, out);
}

heed_status heed__normal_parameter(heed_context *ctx, const char *function, heed_generator *g, int ndim,
                                   const int64_t *shape, heed_tensor **out) {
  if (ctx->skip_init) return heed__placeholder(ctx, function, HEED_FLOAT32, ndim, shape, out);
  return heed__normal(ctx, function, g, 0, 1, ndim, shape, out);
}
