/* Taps against the maps of the scalar attention kernel, for random options; the choice of names, heads and
 * queries; the log-sum-exp. */
#include "random_attention.h"

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
    heed_tensor *plain = run_call(ctx, &c, ctx->cpu, 0, NULL, &none, NULL);
    heed_tensor *scalar = run_call(ctx, &c, HEED__CPU_scalar, all, NULL, &wanted, NULL);
    heed_tensor *vector = run_call(ctx, &c, ctx->cpu, all | 1u << HEED__TAP_lse, NULL, &found, NULL);
    assert_same_bits(plain, vector);
#define X(name)                                                                                              \
  if ((int)HEED__TAP_##name < (int)HEED__TAP_MAPS && wanted.name)                                            \
    assert_close(found.name, wanted.name, 3e-5f);
    HEED_ATTENTION_TAPS_LIST(X)
#undef X
    /* Each alone, as other maps share its computation. */
    for (int tap = 0; tap < HEED__TAP_MAPS; tap++) {
      if (!(all >> tap & 1)) continue;
      heed_tensor *again = run_call(ctx, &c, ctx->cpu, 1u << tap, NULL, &few, NULL);
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

static void lse_is_that_of_the_scores(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  uint32_t random = 2;
  for (int i = 0; i < CALLS; i++) {
    random_call c;
    make_call(ctx, &c, &random);
    heed_attention_taps none = {.size = sizeof none}, scores = none, found = none;
    heed_tensor *plain = run_call(ctx, &c, ctx->cpu, 0, NULL, &none, NULL);
    heed_tensor *scalar =
        run_call(ctx, &c, HEED__CPU_scalar, 1u << HEED__TAP_biased_logits, NULL, &scores, NULL);
    heed_tensor *out = run_call(ctx, &c, ctx->cpu, 1u << HEED__TAP_lse, NULL, &found, NULL);
    assert_same_bits(plain, out);
    assert_int_equal(found.lse->ndim, 3);
    for (int64_t row = 0; row < found.lse->numel; row++) {
      double unused;
      const float wanted = (float)lse_of(scores.biased_logits, row, c.s, c.sinks, row / c.l % c.hq, &unused);
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
    heed_tensor *plain = run_call(ctx, &c, ctx->cpu, names, NULL, &all, NULL);
    heed_tensor *out = run_call(ctx, &c, ctx->cpu, names, &choice, &few, NULL);
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
