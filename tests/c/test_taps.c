/* Taps against the maps of the scalar attention kernel, for random options; the choice of names, heads and
 * queries; the log-sum-exp. */
#include <math.h>
#include <stdio.h>

#include "../../src/attention/attention.h"
#include "support.h"

/* ---- Random calls ---- */

enum { CALLS = 250 };

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

/* Runs it with the kernels of `cpu`; names: bits of the taps. */
static heed_tensor *run_call(heed_context *ctx, const random_call *c, heed__cpu cpu, unsigned names,
                             const heed_taps_wanted *wanted, heed_attention_taps *taps) {
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
                                       .found = taps};
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

/* ---- Tests ---- */

static const unsigned maps = 1u << HEED__TAP_scores | 1u << HEED__TAP_weights | 1u << HEED__TAP_logits |
                             1u << HEED__TAP_capped_logits | 1u << HEED__TAP_biased_logits;

static void maps_agree_with_the_scalar_kernel(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  uint32_t random = 1;
  for (int i = 0; i < CALLS; i++) {
    random_call c;
    make_call(ctx, &c, &random);
    const unsigned all = maps | (c.options.dropout_p > 0 ? 1u << HEED__TAP_dropped_weights : 0);
    heed_attention_taps none = {.size = sizeof none}, wanted = none, found = none, few = none;
    heed_tensor *plain = run_call(ctx, &c, ctx->cpu, 0, NULL, &none);
    heed_tensor *scalar = run_call(ctx, &c, HEED__CPU_scalar, all, NULL, &wanted);
    heed_tensor *vector = run_call(ctx, &c, ctx->cpu, all | 1u << HEED__TAP_lse, NULL, &found);
    assert_same_bits(plain, vector);
#define X(name)                                                                                              \
  if ((int)HEED__TAP_##name < (int)HEED__TAP_MAPS && wanted.name)                                            \
    assert_close(found.name, wanted.name, 3e-5f);
    HEED_ATTENTION_TAPS_LIST(X)
#undef X
    /* Each alone, as other maps share its computation. */
    for (int tap = 0; tap < HEED__TAP_MAPS; tap++) {
      if (!(all >> tap & 1)) continue;
      heed_tensor *again = run_call(ctx, &c, ctx->cpu, 1u << tap, NULL, &few);
      assert_same_bits(plain, again);
#define X(name)                                                                                              \
  if ((int)HEED__TAP_##name == tap) assert_close(few.name, wanted.name, 3e-5f);
      HEED_ATTENTION_TAPS_LIST(X)
#undef X
      heed_attention_taps_free(&few);
      heed_tensor_free(again);
    }
    heed_tensor_free(plain);
    heed_tensor_free(scalar);
    heed_tensor_free(vector);
    heed_attention_taps_free(&wanted);
    heed_attention_taps_free(&found);
    free_call(&c);
  }
}

/* log Σ e^score of a row of scores and perhaps a sink, in double precision. */
static double lse_of(const heed_tensor *scores, int64_t row, int64_t s, const heed_tensor *sink, int64_t h) {
  double most = -INFINITY, sum = 0;
  for (int64_t j = 0; j < s; j++) most = fmax(most, (double)at(scores, row * s + j));
  if (most == -INFINITY) return most;
  if (sink) most = fmax(most, (double)at(sink, h));
  for (int64_t j = 0; j < s; j++) sum += exp((double)at(scores, row * s + j) - most);
  if (sink) sum += exp((double)at(sink, h) - most);
  return most + log(sum);
}

static void lse_is_that_of_the_scores(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  uint32_t random = 2;
  for (int i = 0; i < CALLS; i++) {
    random_call c;
    make_call(ctx, &c, &random);
    heed_attention_taps none = {.size = sizeof none}, scores = none, found = none;
    heed_tensor *plain = run_call(ctx, &c, ctx->cpu, 0, NULL, &none);
    heed_tensor *scalar = run_call(ctx, &c, HEED__CPU_scalar, 1u << HEED__TAP_biased_logits, NULL, &scores);
    heed_tensor *out = run_call(ctx, &c, ctx->cpu, 1u << HEED__TAP_lse, NULL, &found);
    assert_same_bits(plain, out);
    assert_int_equal(found.lse->ndim, 3);
    for (int64_t row = 0; row < found.lse->numel; row++) {
      const float wanted = (float)lse_of(scores.biased_logits, row, c.s, c.sinks, row / c.l % c.hq);
      if (!close_to(at(found.lse, row), wanted, 2e-5f))
        fail_msg("call %d: lse of row %lld is %.9g; it must be %.9g", i, (long long)row,
                 (double)at(found.lse, row), (double)wanted);
    }
    heed_tensor_free(plain);
    heed_tensor_free(scalar);
    heed_tensor_free(out);
    heed_attention_taps_free(&scores);
    heed_attention_taps_free(&found);
    free_call(&c);
  }
}

static void choices_are_parts_of_the_complete_maps(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  uint32_t random = 3;
  for (int i = 0; i < CALLS; i++) {
    random_call c;
    make_call(ctx, &c, &random);
    int64_t heads[] = {c.hq, 1}, queries[] = {-1, 1, c.l / 2 + 1};
    heed_taps_wanted choice = {.size = sizeof choice, .query_list = queries, .query_count = 3};
    choice.query_range = one_in(&random, 2);
    if (choice.query_range) queries[0] = c.l / 2 + 1, queries[1] = -1;
    if (one_in(&random, 2)) choice.head_list = heads, choice.head_count = c.hq > 1 ? 2 : 1;
    const unsigned names = one_in(&random, 2) ? 1u << HEED__TAP_weights : maps;
    heed_attention_taps none = {.size = sizeof none}, all = none, few = none;
    heed_tensor *plain = run_call(ctx, &c, ctx->cpu, names, NULL, &all);
    heed_tensor *out = run_call(ctx, &c, ctx->cpu, names, &choice, &few);
    assert_same_bits(plain, out);
#define X(name) choice.name = names >> HEED__TAP_##name & 1;
    HEED_ATTENTION_TAPS_LIST(X)
#undef X
    assert_ok(heed__wanted_select(ctx, "taps", &choice, false, &all));
#define X(name)                                                                                              \
  if (all.name)                                                                                              \
    assert_true(heed__same_shape(few.name->ndim, few.name->shape, all.name->ndim, all.name->shape));         \
  if (all.name) assert_close(few.name, all.name, 3e-5f);
    HEED_ATTENTION_TAPS_LIST(X)
#undef X
    heed_tensor_free(plain);
    heed_tensor_free(out);
    heed_attention_taps_free(&all);
    heed_attention_taps_free(&few);
    free_call(&c);
  }
}

/* ---- The public functions ---- */

static void impossible_choices_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = NULL, *out = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 5, 4), &x));
  heed_taps_wanted wanted = {.size = sizeof wanted, .weights = true};
  heed_attention_options options = {.size = sizeof options, .wanted = &wanted};
  heed_attention_taps taps = {.size = sizeof taps};
#define REFUSES(status, text)                                                                                \
  assert_fails(ctx, heed_scaled_dot_product_attention(ctx, x, x, x, &options, &out, &taps), status,          \
               "scaled_dot_product_attention: " text);                                                       \
  assert_null(out);                                                                                          \
  assert_null(taps.weights);
  wanted.head_list = SHAPE(3);
  wanted.head_count = 1;
  REFUSES(HEED_INDEX, "need_weights asks for one of the heads, 3; it must be from 1 to 2, or from -2 to -1")
  wanted.head_list = SHAPE(1, -2);
  wanted.head_count = 2;
  REFUSES(HEED_ARGUMENT, "need_weights asks for head 1 twice")
  wanted.head_list = NULL;
  wanted.query_list = SHAPE(0);
  wanted.query_count = 1;
  REFUSES(HEED_INDEX, "need_weights asks for one of the queries, 0; it must be from 1 to 5, or from -5 to -1")
  wanted.query_list = SHAPE(4, 2);
  wanted.query_range = true;
  REFUSES(HEED_ARGUMENT, "need_weights asks for queries from 4 to 2; the first must not be after the last")
  wanted.query_list = NULL;
  wanted.size = 0;
  REFUSES(HEED_ARGUMENT, "wanted.size is 0; it must be sizeof(heed_taps_wanted)")
#undef REFUSES
  heed_tensor_free(x);
}

static heed_status attend_with_choice(heed_context *ctx) {
  heed_tensor *x = NULL, *out = NULL;
  heed_attention_taps taps = {.size = sizeof taps};
  const heed_taps_wanted wanted = {.size = sizeof wanted,
                                   .weights = true,
                                   .scores = true,
                                   .lse = true,
                                   .keys = true,
                                   .head_list = SHAPE(2),
                                   .head_count = 1,
                                   .query_list = SHAPE(-2, -1),
                                   .query_count = 2,
                                   .query_range = true};
  const heed_forward_options options = {.size = sizeof options, .wanted = &wanted};
  heed_attention_config config;
  heed_module *m = NULL;
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = 4;
  config.context_length = 60;
  config.num_heads = 2;
  heed_status status = heed_normal(ctx, NULL, 0, 1, 3, SHAPE(1, 50, 4), &x);
  if (status == HEED_OK) status = heed_multi_head_attention_new(ctx, NULL, &config, &m);
  if (status == HEED_OK) status = heed_module_forward(m, x, &options, &out, &taps);
  if (status == HEED_OK) {
    assert_memory_equal(taps.weights->shape, SHAPE(1, 1, 2, 50), 4 * sizeof(int64_t));
    assert_memory_equal(taps.lse->shape, SHAPE(1, 2, 50), 3 * sizeof(int64_t));
    assert_non_null(taps.keys);
    assert_null(taps.values);
  } else {
    assert_null(out);
    assert_null(taps.weights);
  }
  heed_attention_taps_free(&taps);
  heed_module_release(m);
  heed_tensor_free(x);
  heed_tensor_free(out);
  return status;
}

static void a_choice_leaks_nothing_when_memory_runs_out(void **state) {
  (void)state;
  survives_every_failing_allocation(attend_with_choice);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(maps_agree_with_the_scalar_kernel),
      TEST(lse_is_that_of_the_scores),
      TEST(choices_are_parts_of_the_complete_maps),
      TEST(impossible_choices_are_refused),
      cmocka_unit_test(a_choice_leaks_nothing_when_memory_runs_out),
  };
  return cmocka_run_group_tests_name("taps", tests, NULL, NULL);
}
