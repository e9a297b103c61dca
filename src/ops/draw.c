/* Random tensors, from the streams in core, which are PyTorch's. PyTorch fills a tensor in the order of its
 * elements in memory, so numbers are drawn into row-major memory whose dimensions are in that order. */
#include <float.h>
#include <inttypes.h>

#include "draw.h"

/* Numbers drawn into *out, or into a new row-major tensor if that is NULL. */
typedef struct drawing {
  heed__result result; /* its tensor is row-major, with the dimensions in the order of the draws */
  bool scattered;      /* *out is not contiguous */
  int order[HEED_MAX_DIMS];
  heed_tensor ordered, *to; /* *out with the dimensions in that order */
  heed_generator *generator, before;
} drawing;

/* Not begun yet, as end_drawing accepts it. The whole would be 3 KB to clear. */
static void clear_drawing(drawing *d) {
  d->result.tensor = NULL;
  d->generator = NULL;
}

/* Begins to draw a tensor of this shape in the memory order of `by`: *out, where PyTorch fills in place, or
 * an input of the same shape whose layout PyTorch's result has; NULL: row-major. inputs: the tensors that are
 * read meanwhile. */
static heed_status begin_drawing(heed_context *ctx, const char *function, drawing *d, heed_tensor **out,
                                 heed_dtype dtype, int ndim, const int64_t *shape, const heed_tensor *by,
                                 int ninputs, const heed_tensor *const *inputs) {
  const heed_status status = heed__check_shape(ctx, function, ndim, shape, dtype, NULL);
  if (status) return status;
  d->scattered = *out && !heed_tensor_is_contiguous(*out);
  for (int i = 0; i < ndim; i++) d->order[i] = i;
  /* a wrong shape of *out fails below, before its dimensions are permuted */
  if (*out && heed__same_shape((*out)->ndim, (*out)->shape, ndim, shape)) {
    if (by && !heed_tensor_is_contiguous(by)) heed__memory_order(by, d->order);
    heed__permute_on_stack(&d->ordered, *out, d->order);
    d->to = &d->ordered;
    return heed__result_begin_row_major(ctx, function, &d->result, &d->to, dtype, ndim, d->ordered.shape,
                                        ninputs, inputs);
  }
  return heed__result_begin_row_major(ctx, function, &d->result, out, dtype, ndim, shape, ninputs, inputs);
}

static bool is_counted(const heed_context *ctx, const heed_generator *g) {
  return (g ? g : &ctx->generator)->kind == HEED_PHILOX;
}

/* The layout of the draws: that of x; parts of a whole are row-major. */
static const heed_tensor *layout(const heed_context *ctx, const heed_generator *g, const heed_tensor *x) {
  return (g ? g : &ctx->generator)->part_ndim > 0 ? NULL : x;
}

/* Keeps a copy of the generator, which end_drawing restores after a failure. It takes 60 ns. */
static heed_generator *keep_generator(drawing *d, heed_context *ctx, heed_generator *g) {
  d->generator = heed__generator(ctx, g);
  d->before = *d->generator;
  return d->generator;
}

/* heed__result_end; after a failure the generator is restored. */
static heed_status end_drawing(heed_context *ctx, drawing *d, heed_status status) {
  status = heed__result_end(ctx, &d->result, status);
  if (status != HEED_OK && d->generator != NULL) *d->generator = d->before;
  return status;
}

static float *drawn_floats(const drawing *d) {
  return (float *)(void *)d->result.tensor->data;
}
static int64_t *drawn_integers(const drawing *d) {
  return (int64_t *)(void *)d->result.tensor->data;
}

heed_status heed__uniform(heed_context *ctx, const char *function, heed_generator *g, double from, double to,
                          int ndim, const int64_t *shape, heed_tensor **out) {
  drawing d;
  clear_drawing(&d);
  heed_status status = HEED_OK;
  if (!(from <= to && to - from <= FLT_MAX)) {
    status = heed__fail(ctx, HEED_ARGUMENT,
                        "%s: from is %s and to is %s; both must be finite, and from at most to", function,
                        HEED__G(from), HEED__G(to));
    goto done;
  }
  status = begin_drawing(ctx, function, &d, out, HEED_FLOAT32, ndim, shape, layout(ctx, g, *out), 0, NULL);
  if (status) goto done;
  if (is_counted(ctx, g)) {
    status = heed__counted_uniform(ctx, function, keep_generator(&d, ctx, g), from, to, d.result.tensor);
    goto done;
  }
  float *x = drawn_floats(&d);
  if (!heed__draw_floats(keep_generator(&d, ctx, g), x, d.result.tensor->numel)) {
    status = heed__stopped(ctx, function);
    goto done;
  }
  /* like PyTorch: the ends in float, the product in double */
  const float low = (float)from, span = (float)to - low;
  if (low == 0 && span == 1) goto done;
  for (int64_t i = 0; i < d.result.tensor->numel; i++) {
    x[i] = (float)((double)x[i] * (double)span + (double)low);
    if (!heed__is_due_at(&ctx->pace, i)) continue;
    status = heed__stopped(ctx, function);
    goto done;
  }
done:
  return heed__recorded_constant(ctx, end_drawing(ctx, &d, status), HEED__OP_uniform, out);
}

heed_status heed_uniform(heed_context *ctx, heed_generator *g, double from, double to, int ndim,
                         const int64_t *shape, heed_tensor **out) {
  HEED__ENTER(ctx, "uniform", out);
  HEED__MAY_ENTER(ctx, "uniform", g);
  return heed__uniform(ctx, "uniform", g, from, to, ndim, shape, out);
}

heed_status heed__normal(heed_context *ctx, const char *function, heed_generator *g, double mean, double std,
                         int ndim, const int64_t *shape, heed_tensor **out) {
  drawing d;
  clear_drawing(&d);
  heed_status status = HEED_OK;
  if (!(std >= 0)) {
    status = heed__fail(ctx, HEED_ARGUMENT, "%s: std is %s; it must be 0 or more", function, HEED__G(std));
    goto done;
  }
  status = begin_drawing(ctx, function, &d, out, HEED_FLOAT32, ndim, shape, layout(ctx, g, *out), 0, NULL);
  if (status) goto done;
  if (is_counted(ctx, g))
    status = heed__counted_normal(ctx, function, keep_generator(&d, ctx, g), mean, std, d.result.tensor);
  else if (!heed__draw_normal(keep_generator(&d, ctx, g), d.scattered ? NULL : heed__kernels_of(ctx)->normal,
                              mean, std, drawn_floats(&d), d.result.tensor->numel))
    status = heed__stopped(ctx, function);
done:
  return heed__recorded_constant(ctx, end_drawing(ctx, &d, status), HEED__OP_normal, out);
}

heed_status heed_normal(heed_context *ctx, heed_generator *g, double mean, double std, int ndim,
                        const int64_t *shape, heed_tensor **out) {
  HEED__ENTER(ctx, "normal", out);
  HEED__MAY_ENTER(ctx, "normal", g);
  return heed__normal(ctx, "normal", g, mean, std, ndim, shape, out);
}

heed_status heed__randint(heed_context *ctx, const char *function, heed_generator *g, int64_t low,
                          int64_t high, int ndim, const int64_t *shape, heed_tensor **out) {
  drawing d;
  clear_drawing(&d);
  heed_status status = HEED_OK;
  const uint64_t range = (uint64_t)high - (uint64_t)low + 1;
  if (high < low) {
    status = heed__fail(ctx, HEED_ARGUMENT,
                        "%s: high is %" PRId64 " and low is %" PRId64 "; high must be at least low", function,
                        high, low);
    goto done;
  }
  if (range - 1 >= UINT64_C(1) << 63) {
    status = heed__fail(ctx, HEED_ARGUMENT,
                        "%s: low is %" PRId64 " and high is %" PRId64
                        "; there must be at most 2^63 numbers between them",
                        function, low, high);
    goto done;
  }
  status = begin_drawing(ctx, function, &d, out, HEED_INT64, ndim, shape, layout(ctx, g, *out), 0, NULL);
  if (status) goto done;
  if (is_counted(ctx, g)) {
    status = heed__counted_integers(ctx, function, keep_generator(&d, ctx, g), low, range, d.result.tensor);
    goto done;
  }
  g = keep_generator(&d, ctx, g);
  int64_t *x = drawn_integers(&d);
  for (int64_t i = 0; i < d.result.tensor->numel && status == HEED_OK; i++) {
    const uint64_t drawn = range < UINT64_C(1) << 28 ? heed__draw32(g) : heed__draw64(g);
    x[i] = (int64_t)((uint64_t)low + drawn % range);
    if (heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, function);
  }
done:
  return end_drawing(ctx, &d, status);
}

heed_status heed_randint(heed_context *ctx, heed_generator *g, int64_t low, int64_t high, int ndim,
                         const int64_t *shape, heed_tensor **out) {
  HEED__ENTER(ctx, "randint", out);
  HEED__MAY_ENTER(ctx, "randint", g);
  return heed__randint(ctx, "randint", g, low, high, ndim, shape, out);
}

heed_status heed_randperm(heed_context *ctx, heed_generator *g, int64_t n, heed_tensor **out) {
  HEED__ENTER(ctx, "randperm", out);
  HEED__MAY_ENTER(ctx, "randperm", g);
  drawing d;
  clear_drawing(&d);
  clear_drawing(&d);
  heed_status status = heed__check_no_part(ctx, "randperm", heed__generator(ctx, g));
  if (status) goto done;
  status = begin_drawing(ctx, "randperm", &d, out, HEED_INT64, 1, &n, NULL, 0, NULL);
  if (status) goto done;
  g = keep_generator(&d, ctx, g);
  int64_t *x = drawn_integers(&d);
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
  return end_drawing(ctx, &d, status);
}

heed_status heed_bernoulli(heed_context *ctx, heed_generator *g, const heed_tensor *p, heed_tensor **out) {
  HEED__ENTER(ctx, "bernoulli", p, out);
  HEED__MAY_ENTER(ctx, "bernoulli", g);
  drawing d;
  clear_drawing(&d);
  const heed_tensor *chances;
  heed_tensor ordered, *made = NULL, *made_ordered = NULL;
  heed_status status = heed__check_dtype(ctx, "bernoulli", "p", p, HEED_FLOAT32);
  if (status) goto done;
  status = heed__as_contiguous(ctx, "bernoulli", p, HEED_FLOAT32, &chances, &made);
  if (status) goto done;
  const float *chance = (const float *)(const void *)chances->data;
  for (int64_t i = 0; i < p->numel && status == HEED_OK; i++) {
    if (!(chance[i] >= 0.0f && chance[i] <= 1.0f))
      status =
          heed__fail(ctx, HEED_ARGUMENT, "bernoulli: element %" PRId64 " of p is %s; it must be from 0 to 1",
                     i + 1, HEED__G((double)chance[i]));
    else if (heed__is_due_at(&ctx->pace, i))
      status = heed__stopped(ctx, "bernoulli");
  }
  if (status) goto done;
  status = begin_drawing(ctx, "bernoulli", &d, out, HEED_FLOAT32, p->ndim, p->shape, layout(ctx, g, *out), 1,
                         &chances);
  if (status) goto done;
  heed__permute_on_stack(&ordered, chances, d.order);
  status = heed__as_contiguous(ctx, "bernoulli", &ordered, HEED_FLOAT32, &chances, &made_ordered);
  if (status) goto done;
  chance = (const float *)(const void *)chances->data;
  float *x = drawn_floats(&d);
  const bool counted = is_counted(ctx, g);
  g = keep_generator(&d, ctx, g);
  bool finished = counted || heed__draw_floats(g, x, p->numel);
  if (counted) status = heed__counted_chances(ctx, "bernoulli", g, d.result.tensor);
  if (status) goto done;
  for (int64_t i = 0; i < p->numel && finished; i++) {
    x[i] = (counted ? x[i] <= chance[i] : x[i] < chance[i]) ? 1.0f : 0.0f;
    finished = !heed__is_due_at(&ctx->pace, i);
  }
  if (!finished) status = heed__stopped(ctx, "bernoulli");
done:
  heed_tensor_free(made);
  heed_tensor_free(made_ordered);
  return heed__recorded_constant(ctx, end_drawing(ctx, &d, status), HEED__OP_bernoulli, out);
}

static heed_status drop(heed_context *ctx, const char *function, heed_generator *g, double p,
                        const heed_tensor *x, heed_tensor **out) {
  drawing d;
  clear_drawing(&d);
  heed_tensor ordered, *made = NULL;
  heed_status status = heed__check_probability(ctx, function, "p", p);
  if (status) goto done;
  status = heed__check_dtype(ctx, function, "x", x, HEED_FLOAT32);
  if (status) goto done;
  const bool counted = is_counted(ctx, g);
  if (counted) status = heed__check_part(ctx, function, "x", heed__generator(ctx, g), x->ndim, x->shape);
  if (!status && !*out) status = heed__new_like(ctx, function, x, HEED_FLOAT32, &made);
  if (status) goto done;
  heed_tensor *to = made ? made : *out;
  /* PyTorch lets MKL draw into row-major memory of its own */
  const heed_tensor *by = !counted && ctx->dropout_stream == HEED_DROPOUT_MKL ? NULL : layout(ctx, g, x);
  status = begin_drawing(ctx, function, &d, &to, HEED_FLOAT32, x->ndim, x->shape, by, 1, &x);
  if (status) goto done;
  heed__permute_on_stack(&ordered, x, d.order);
  if (!heed__copy_elements(d.result.tensor, &ordered)) {
    status = heed__stopped(ctx, function);
    goto done;
  }
  if (p > 0 && x->numel > 0) { /* otherwise not even a seed is drawn */
    heed__dropout stream;
    heed__dropout_begin(&stream, ctx, keep_generator(&d, ctx, g), p, x->ndim, d.result.tensor->shape);
    if (counted) stream.words.kernel = heed__kernels_of(ctx)->philox;
    if (!(counted ? heed__counted_drop(ctx, &stream, d.result.tensor)
                  : heed__dropout_apply(&stream, drawn_floats(&d), drawn_floats(&d), x->numel)))
      status = heed__stopped(ctx, function);
  }
done:
  status = end_drawing(ctx, &d, status);
  if (made) made->storage->version = 0; /* it is new, not changed in place */
  if (status == HEED_OK && made)
    *out = made;
  else
    heed_tensor_free(made);
  return status;
}

/* The factors that drop would multiply x by: 0 or 1 / (1 - p); and where they are not 0. */
static heed_status draw_factors(heed_context *ctx, const char *function, heed_generator *g, double p,
                                const heed_tensor *x, heed_tensor **factors, heed_tensor **kept) {
  heed_tensor *ones = NULL;
  heed__number zero;
  heed_status status = heed__new_like(ctx, function, x, HEED_FLOAT32, &ones);
  if (status == HEED_OK) status = heed__fill(ctx, function, ones, heed_number(1));
  if (status == HEED_OK) status = drop(ctx, function, g, p, ones, factors);
  if (status == HEED_OK) status = heed_ne(ctx, *factors, heed__number_tensor(&zero, heed_number(0)), kept);
  heed_tensor_free(ones);
  return status;
}

/* The same result with what the gradient needs: where x was kept, a byte an element. */
static heed_status drop_recorded(heed_context *ctx, const char *function, heed_generator *g, double p,
                                 const heed_tensor *x, heed_tensor **out) {
  heed_tensor *factors = NULL, *kept = NULL, *made = NULL;
  heed_generator *const drawn = heed__generator(ctx, g), before = *drawn;
  const double scale = p < 1 ? (double)(1.0f / (float)(1 - p)) : 0;
  const struct heed__recorder *recorder = heed__pause_recording(ctx);
  heed_status status = HEED_OK;
  if (!*out) status = heed__new_like(ctx, function, x, HEED_FLOAT32, &made);
  heed_tensor **to = made ? &made : out;
  if (status == HEED_OK) status = draw_factors(ctx, function, g, p, x, &factors, &kept);
  if (status == HEED_OK) status = heed__mul(ctx, function, "x", x, "the factors", factors, to);
  heed__resume_recording(ctx, recorder);
  if (made) made->storage->version = 0; /* it is new, not changed in place */
  status = heed__recorded(ctx, status, HEED__OP_dropout, 2, (const heed_tensor *const[]){x, kept}, &scale,
                          sizeof scale, to);
  if (status == HEED_OK)
    *out = *to;
  else
    *drawn = before;
  if (status != HEED_OK) heed_tensor_free(made);
  heed_tensor_free(factors);
  heed_tensor_free(kept);
  return status;
}

heed_status heed__drop(heed_context *ctx, const char *function, heed_generator *g, double p,
                       const heed_tensor *x, heed_tensor **out) {
  if (ctx->recorder == NULL) return drop(ctx, function, g, p, x, out);
  if (p > 0 && p <= 1 && x->numel > 0 && heed__wants_gradient(x))
    return drop_recorded(ctx, function, g, p, x, out);
  const double same = 1;
  const heed_status status = drop(ctx, function, g, p, x, out);
  return heed__recorded(ctx, status, HEED__OP_dropout, 2, (const heed_tensor *const[]){x, NULL}, &same,
                        sizeof same, out);
}

heed_status heed_dropout(heed_context *ctx, heed_generator *g, double p, const heed_tensor *x,
                         heed_tensor **out) {
  HEED__ENTER(ctx, "dropout", x, out);
  HEED__MAY_ENTER(ctx, "dropout", g);
  return heed__drop(ctx, "dropout", g, p, x, out);
}
