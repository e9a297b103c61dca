/* Random calls of attention, for tests of everything that must agree with them: its options, sizes, strides
 * and dtypes. */
#ifndef HEED_TESTS_RANDOM_ATTENTION_H
#define HEED_TESTS_RANDOM_ATTENTION_H

#include <math.h>
#include <stdio.h>

#include "../../src/attention/attention.h"
#include "support.h"

/* ---- Random calls ---- */

#define CALLS nightly(250, 100)

typedef struct random_call {
  heed_tensor *q, *k, *v, *mask, *padding, *lengths, *slopes, *sinks, *k_scale, *v_scale;
  int64_t b, hq, hkv, l, s, d, dv;
  heed_attention_options options;
  heed_generator generator;
} random_call;

static int64_t pick(uint32_t *state, int64_t from, int64_t to) {
  return from + (int64_t)((next_random(state) >> 8) % (uint32_t)(to - from + 1));
}

static bool one_in(uint32_t *state, int n) {
  return pick(state, 1, n) == 1;
}

/* Normally distributed, contiguous or a view of [b, n, h, d]. */
static heed_tensor *random_heads(heed_context *ctx, uint32_t *state, int64_t b, int64_t h, int64_t n,
                                 int64_t d) {
  heed_tensor *x = NULL, *view = NULL;
  if (one_in(state, 2)) {
    assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(b, h, n, d), &view));
    return view;
  }
  assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(b, n, h, d), &x));
  assert_ok(heed_transpose(ctx, x, 2, 3, &view));
  heed_tensor_free(x);
  return view;
}

/* false with probability 1 / n. */
static heed_tensor *random_bits(heed_context *ctx, uint32_t *state, int n, int ndim, const int64_t *shape) {
  heed_tensor *x = NULL;
  assert_ok(heed_tensor_new(ctx, HEED_BOOL, ndim, shape, &x));
  for (int64_t i = 0; i < x->numel; i++) x->data[i] = !one_in(state, n);
  return x;
}

static heed_tensor *random_mask(heed_context *ctx, uint32_t *state, const random_call *c) {
  const int64_t h = one_in(state, 2) ? c->hq : 1;
  heed_tensor *bits = random_bits(ctx, state, 3, 4, SHAPE(c->b, h, c->l, c->s)), *bias = NULL;
  if (one_in(state, 2)) return bits;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(c->b, h, c->l, c->s), &bias));
  for (int64_t i = 0; i < bias->numel; i++)
    if (!bits->data[i]) ((float *)(void *)bias->data)[i] = -INFINITY;
  heed_tensor_free(bits);
  return bias;
}

static void convert(heed_context *ctx, heed_tensor **x, heed_dtype dtype) {
  heed_tensor *y = NULL;
  assert_ok(heed_to(ctx, *x, dtype, &y));
  heed_tensor_free(*x);
  *x = y;
}

/* Turns keys or values into int8 with a scale for each row. */
static heed_tensor *quantize(heed_context *ctx, heed_tensor **x) {
  heed_tensor *contiguous = NULL, *y = NULL, *scale = NULL;
  const int64_t *shape = (*x)->shape, d = shape[3];
  assert_ok(heed_contiguous(ctx, *x, &contiguous));
  assert_ok(heed_tensor_new(ctx, HEED_INT8, 4, shape, &y));
  assert_ok(heed_tensor_new(ctx, HEED_FLOAT32, 3, shape, &scale));
  const float *from = (const float *)(const void *)contiguous->data;
  for (int64_t row = 0; row < scale->numel; row++) {
    ((float *)(void *)scale->data)[row] = 4.0f / 127;
    for (int64_t i = 0; i < d; i++)
      ((int8_t *)y->data)[row * d + i] = (int8_t)fmaxf(-127, fminf(127, roundf(from[row * d + i] * 127 / 4)));
  }
  heed_tensor_free(contiguous);
  heed_tensor_free(*x);
  *x = y;
  return scale;
}

static void set_sizes(random_call *c, uint32_t *state) {
  static const int64_t lengths[] = {1, 2, 5, 8, 17, 48, 200}, sizes[] = {1, 3, 8, 16, 40, 64};
  c->b = pick(state, 1, 2);
  c->hkv = pick(state, 1, 3);
  c->hq = c->hkv * pick(state, 1, 2);
  c->l = lengths[pick(state, 0, 6)];
  c->s = one_in(state, 2) ? c->l : c->l + pick(state, 0, one_in(state, 8) ? 3000 : 90);
  c->d = sizes[pick(state, 0, 5)];
  c->dv = sizes[pick(state, 0, 5)];
}

static void set_options(heed_context *ctx, random_call *c, uint32_t *state) {
  heed_attention_options *o = &c->options;
  o->is_causal = one_in(state, 2);
  if (one_in(state, 3)) o->window.has_left = true, o->window.left = pick(state, 0, c->s);
  if (one_in(state, 4)) o->window.has_right = true, o->window.right = pick(state, 0, c->s);
  if (one_in(state, 3)) o->softcap = (double)pick(state, 1, 5);
  if (one_in(state, 4)) o->dropout_p = 0.3;
  if (one_in(state, 3)) o->attn_mask = c->mask = random_mask(ctx, state, c);
  if (one_in(state, 4)) {
    c->padding = random_bits(ctx, state, 2, 2, SHAPE(c->b, c->s));
  }
  if (one_in(state, 4)) {
    assert_ok(heed_tensor_new(ctx, HEED_INT64, 1, &c->b, &c->lengths));
    for (int64_t i = 0; i < c->b; i++) ((int64_t *)(void *)c->lengths->data)[i] = pick(state, 0, c->s);
    o->kv_lengths = c->lengths;
  }
  if (one_in(state, 4)) assert_ok(heed_uniform(ctx, NULL, 0, 1, 1, &c->hq, &c->slopes));
  if (one_in(state, 4)) assert_ok(heed_normal(ctx, NULL, 0, 1, 1, &c->hq, &c->sinks));
  o->alibi_slopes = c->slopes;
  o->sinks = c->sinks;
  const int64_t kind = pick(state, 0, 5);
  if (kind == 3) convert(ctx, &c->k, HEED_BFLOAT16), convert(ctx, &c->v, HEED_BFLOAT16);
  if (kind == 4) convert(ctx, &c->k, HEED_FLOAT16), convert(ctx, &c->v, HEED_FLOAT16);
  if (kind == 5) c->k_scale = quantize(ctx, &c->k), c->v_scale = quantize(ctx, &c->v);
}

static void make_call(heed_context *ctx, random_call *c, uint32_t *state) {
  memset(c, 0, sizeof *c);
  c->options.size = sizeof c->options;
  set_sizes(c, state);
  c->q = random_heads(ctx, state, c->b, c->hq, c->l, c->d);
  c->k = random_heads(ctx, state, c->b, c->hkv, c->s, c->d);
  c->v = random_heads(ctx, state, c->b, c->hkv, c->s, c->dv);
  set_options(ctx, c, state);
  c->generator = *heed__generator(ctx, NULL);
}

static void free_call(random_call *c) {
  heed_tensor *const all[] = {c->q,       c->k,      c->v,     c->mask,    c->padding,
                              c->lengths, c->slopes, c->sinks, c->k_scale, c->v_scale};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
}

/* Runs it with the kernels of `cpu`; names: bits of the taps; stats may be NULL. */
static heed_tensor *run_call(heed_context *ctx, const random_call *c, heed__cpu cpu, unsigned names,
                             const heed_taps_wanted *wanted, heed_attention_taps *taps, heed_tensor **stats) {
  const heed__cpu before = ctx->cpu;
  heed_generator own = c->generator; /* every run draws the same dropout */
  heed_tensor *out = NULL;
  heed__attention_operands operands = {.function = "taps",
                                       .q = c->q,
                                       .k = c->k,
                                       .v = c->v,
                                       .options = c->options,
                                       .key_padding_mask = c->padding,
                                       .k_scale = c->k_scale,
                                       .v_scale = c->v_scale,
                                       .taps = names,
                                       .wanted = wanted,
                                       .found = taps,
                                       .stats = stats};
  operands.options.generator = &own;
  ctx->cpu = cpu;
  assert_ok(heed__attention(ctx, &operands, &out));
  ctx->cpu = before;
  return out;
}

/* ---- Comparing ---- */

static float at(const heed_tensor *x, int64_t i) {
  return ((const float *)(const void *)x->data)[i];
}

static bool close_to(float a, float b, float tolerance) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  if (isinf(a) || isinf(b)) return a == b;
  return fabsf(a - b) <= tolerance * (1 + fabsf(b));
}

static void assert_close(const heed_tensor *a, const heed_tensor *b, float tolerance) {
  assert_int_equal(a->numel, b->numel);
  for (int64_t i = 0; i < a->numel; i++) {
    if (close_to(at(a, i), at(b, i), tolerance)) continue;
    fail_msg("element %lld is %.9g; it must be %.9g", (long long)i, (double)at(a, i), (double)at(b, i));
  }
}

static void assert_same_bits(const heed_tensor *a, const heed_tensor *b) {
  assert_int_equal(a->numel, b->numel);
  assert_memory_equal(a->data, b->data, (size_t)a->numel * sizeof(float));
}

/* log Σ e^score of a row of scores and perhaps a sink, in double precision; *most is the largest of them. */
static double lse_of(const heed_tensor *scores, int64_t row, int64_t s, const heed_tensor *sink, int64_t h,
                     double *largest) {
  double most = -INFINITY, sum = 0;
  for (int64_t j = 0; j < s; j++) most = fmax(most, (double)at(scores, row * s + j));
  *largest = most;
  if (most == -INFINITY) return most;
  if (sink) most = fmax(most, (double)at(sink, h));
  *largest = most;
  for (int64_t j = 0; j < s; j++) sum += exp((double)at(scores, row * s + j) - most);
  if (sink) sum += exp((double)at(sink, h) - most);
  return most + log(sum);
}

#endif
