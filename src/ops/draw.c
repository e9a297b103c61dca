/* Random tensors. All draw one element after another in row-major order, whatever the layout of the result,
 * so they draw into a row-major tensor first. The streams are PyTorch's; core has them, here is what is made
 * of them. */
#include <float.h>
#include <inttypes.h>

#include "ops.h"

/* A row-major result that reads nothing. */
static heed_status begin_draw(heed_context *ctx, const char *function, heed__result *result,
                              heed_tensor **out, heed_dtype dtype, int ndim, const int64_t *shape) {
  const heed_status status = heed__check_shape(ctx, function, ndim, shape, dtype, NULL);
  if (status) return status;
  return heed__result_begin_row_major(ctx, function, result, out, dtype, ndim, shape, 0, NULL);
}

/* What a stopped call puts back. A copy takes 60 ns, which only those notice that draw little. */
typedef struct kept_generator {
  heed_generator *generator, before;
} kept_generator;

static heed_generator *keep_generator(kept_generator *k, heed_context *ctx, heed_generator *g) {
  k->generator = heed__generator(ctx, g);
  k->before = *k->generator;
  return k->generator;
}

/* As heed__result_end, with the generator as it was where the call failed. */
static heed_status end_drawing(heed_context *ctx, heed__result *result, heed_status status,
                               const kept_generator *k) {
  status = heed__result_end(ctx, result, status);
  if (status != HEED_OK && k->generator != NULL) *k->generator = k->before;
  return status;
}

static float *drawn_floats(const heed__result *result) {
  return (float *)(void *)result->tensor->data;
}
static int64_t *drawn_integers(const heed__result *result) {
  return (int64_t *)(void *)result->tensor->data;
}

heed_status heed__uniform(heed_context *ctx, const char *function, heed_generator *g, double from, double to,
                          int ndim, const int64_t *shape, heed_tensor **out) {
  heed__result result = {0};
  kept_generator k;
  k.generator = NULL;
  heed_status status = HEED_OK;
  if (!(from <= to && to - from <= FLT_MAX)) {
    status = heed__fail(ctx, HEED_ARGUMENT,
                        "%s: from is %s and to is %s; both must be finite, and from not above to", function,
                        HEED__G(from), HEED__G(to));
    goto done;
  }
  status = begin_draw(ctx, function, &result, out, HEED_FLOAT32, ndim, shape);
  if (status) goto done;
  float *x = drawn_floats(&result);
  if (!heed__draw_floats(keep_generator(&k, ctx, g), x, result.tensor->numel)) {
    status = heed__stopped(ctx, function);
    goto done;
  }
  /* PyTorch has the ends in float and multiplies in double */
  const float low = (float)from, span = (float)to - low;
  if (low == 0 && span == 1) goto done;
  for (int64_t i = 0; i < result.tensor->numel; i++) {
    x[i] = (float)((double)x[i] * (double)span + (double)low);
    if (!heed__is_due_at(&ctx->pace, i)) continue;
    status = heed__stopped(ctx, function);
    goto done;
  }
done:
  return end_drawing(ctx, &result, status, &k);
}

heed_status heed_uniform(heed_context *ctx, heed_generator *g, double from, double to, int ndim,
                         const int64_t *shape, heed_tensor **out) {
  HEED__ENTER(ctx, "uniform", out);
  HEED__MAY_ENTER(ctx, "uniform", g);
  return heed__uniform(ctx, "uniform", g, from, to, ndim, shape, out);
}

heed_status heed__normal(heed_context *ctx, const char *function, heed_generator *g, double mean, double std,
                         int ndim, const int64_t *shape, heed_tensor **out) {
  heed__result result = {0};
  kept_generator k;
  k.generator = NULL;
  heed_status status = HEED_OK;
  if (!(std >= 0)) {
    status = heed__fail(ctx, HEED_ARGUMENT, "%s: std is %s; it must be 0 or more", function, HEED__G(std));
    goto done;
  }
  status = begin_draw(ctx, function, &result, out, HEED_FLOAT32, ndim, shape);
  if (status) goto done;
  if (!heed__draw_normal(keep_generator(&k, ctx, g), heed__kernels_of(ctx)->normal, mean, std,
                         drawn_floats(&result), result.tensor->numel))
    status = heed__stopped(ctx, function);
done:
  return end_drawing(ctx, &result, status, &k);
}

heed_status heed_normal(heed_context *ctx, heed_generator *g, double mean, double std, int ndim,
                        const int64_t *shape, heed_tensor **out) {
  HEED__ENTER(ctx, "normal", out);
  HEED__MAY_ENTER(ctx, "normal", g);
  return heed__normal(ctx, "normal", g, mean, std, ndim, shape, out);
}

heed_status heed_randint(heed_context *ctx, heed_generator *g, int64_t low, int64_t high, int ndim,
                         const int64_t *shape, heed_tensor **out) {
  HEED__ENTER(ctx, "randint", out);
  HEED__MAY_ENTER(ctx, "randint", g);
  heed__result result = {0};
  kept_generator k;
  k.generator = NULL;
  heed_status status = HEED_OK;
  const uint64_t range = (uint64_t)high - (uint64_t)low + 1;
  if (high < low) {
    status =
        heed__fail(ctx, HEED_ARGUMENT,
                   "randint: high is %" PRId64 " and low is %" PRId64 "; high must not be less", high, low);
    goto done;
  }
  if (range - 1 >= UINT64_C(1) << 63) {
    status =
        heed__fail(ctx, HEED_ARGUMENT,
                   "randint: from %" PRId64 " to %" PRId64 " there are more than 2^63 numbers", low, high);
    goto done;
  }
  status = begin_draw(ctx, "randint", &result, out, HEED_INT64, ndim, shape);
  if (status) goto done;
  g = keep_generator(&k, ctx, g);
  int64_t *x = drawn_integers(&result);
  for (int64_t i = 0; i < result.tensor->numel && status == HEED_OK; i++) {
    const uint64_t drawn = range < UINT64_C(1) << 28 ? heed__draw32(g) : heed__draw64(g);
    x[i] = (int64_t)((uint64_t)low + drawn % range);
    if (heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, "randint");
  }
done:
  return end_drawing(ctx, &result, status, &k);
}

heed_status heed_randperm(heed_context *ctx, heed_generator *g, int64_t n, heed_tensor **out) {
  HEED__ENTER(ctx, "randperm", out);
  HEED__MAY_ENTER(ctx, "randperm", g);
  heed__result result = {0};
  kept_generator k;
  k.generator = NULL;
  heed_status status = begin_draw(ctx, "randperm", &result, out, HEED_INT64, 1, &n);
  if (status) goto done;
  g = keep_generator(&k, ctx, g);
  int64_t *x = drawn_integers(&result);
  for (int64_t i = 0; i < n && status == HEED_OK; i++) {
    x[i] = i + 1;
    if (heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, "randperm");
  }
  for (int64_t i = 0; i < n - 1 && status == HEED_OK; i++) {
    if ((i & 0xfff) == 0xfff && heed__is_due(&ctx->pace)) status = heed__stopped(ctx, "randperm");
    int64_t *other = x + i + (int64_t)(heed__draw32(g) % (uint64_t)(n - i));
    const int64_t moved = x[i];
    x[i] = *other;
    *other = moved;
  }
done:
  return end_drawing(ctx, &result, status, &k);
}

heed_status heed_bernoulli(heed_context *ctx, heed_generator *g, const heed_tensor *p, heed_tensor **out) {
  HEED__ENTER(ctx, "bernoulli", p, out);
  HEED__MAY_ENTER(ctx, "bernoulli", g);
  heed__result result = {0};
  kept_generator k;
  k.generator = NULL;
  heed_tensor *made = NULL;
  heed_status status = heed__check_dtype(ctx, "bernoulli", "p", p, HEED_FLOAT32);
  if (status) goto done;
  status = heed__as_contiguous(ctx, "bernoulli", p, HEED_FLOAT32, &p, &made);
  if (status) goto done;
  const float *chance = (const float *)(const void *)p->data;
  for (int64_t i = 0; i < p->numel; i++) {
    if (heed__is_due_at(&ctx->pace, i)) {
      status = heed__stopped(ctx, "bernoulli");
      if (status) goto done;
    }
    if (!(chance[i] >= 0.0f && chance[i] <= 1.0f)) {
      status =
          heed__fail(ctx, HEED_ARGUMENT, "bernoulli: element %" PRId64 " of p is %s; it must be from 0 to 1",
                     i + 1, HEED__G((double)chance[i]));
      goto done;
    }
  }
  status =
      heed__result_begin_row_major(ctx, "bernoulli", &result, out, HEED_FLOAT32, p->ndim, p->shape, 1, &p);
  if (status) goto done;
  float *x = drawn_floats(&result);
  bool whole = heed__draw_floats(keep_generator(&k, ctx, g), x, p->numel);
  for (int64_t i = 0; i < p->numel && whole; i++) {
    x[i] = x[i] < chance[i] ? 1.0f : 0.0f;
    whole = !heed__is_due_at(&ctx->pace, i);
  }
  if (!whole) status = heed__stopped(ctx, "bernoulli");
done:
  heed_tensor_free(made);
  return end_drawing(ctx, &result, status, &k);
}

heed_status heed_dropout(heed_context *ctx, heed_generator *g, double p, const heed_tensor *x,
                         heed_tensor **out) {
  HEED__ENTER(ctx, "dropout", x, out);
  HEED__MAY_ENTER(ctx, "dropout", g);
  heed__result result = {0};
  kept_generator k;
  k.generator = NULL;
  heed_status status = heed__check_probability(ctx, "dropout", "p", p);
  if (status) goto done;
  status = heed__check_dtype(ctx, "dropout", "x", x, HEED_FLOAT32);
  if (status) goto done;
  status = heed__result_begin_row_major(ctx, "dropout", &result, out, HEED_FLOAT32, x->ndim, x->shape, 1, &x);
  if (status) goto done;
  if (!heed__copy_elements(result.tensor, x)) {
    status = heed__stopped(ctx, "dropout");
    goto done;
  }
  if (p > 0 && x->numel > 0) { /* nothing is drawn otherwise, not even a seed */
    heed__dropout stream;
    heed__dropout_begin(&stream, ctx, keep_generator(&k, ctx, g), p);
    if (!heed__dropout_apply(&stream, drawn_floats(&result), drawn_floats(&result), x->numel))
      status = heed__stopped(ctx, "dropout");
  }
done:
  return end_drawing(ctx, &result, status, &k);
}
