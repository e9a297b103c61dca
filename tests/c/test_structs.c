/* The extensible structs of heed.h, as used by programs compiled with an older or a newer header, and version
 * numbers. */
#include "support.h"

#include <stdio.h>

/* ---- Structs of older and newer versions of heed.h ---- */

typedef struct newer_forward_options {
  heed_forward_options known;
  const heed_tensor *bias;
  int64_t order;
} newer_forward_options;

/* A version without window and the fields after it. */
typedef struct older_attention_options {
  size_t size;
  const heed_tensor *attn_mask;
  bool is_causal;
} older_attention_options;
_Static_assert(sizeof(older_attention_options) <= offsetof(heed_attention_options, window), "a beginning");

typedef struct older_taps {
  size_t size;
  heed_tensor *scores, *weights;
} older_taps;
_Static_assert(sizeof(older_taps) == offsetof(heed_attention_taps, dropped_weights), "a beginning");

typedef struct newer_taps {
  heed_attention_taps known;
  heed_tensor *more;
} newer_taps;

/* ---- On what ---- */

typedef struct fixture {
  heed_context *ctx;
  heed_tensor *x, *y;
  heed_module *m;
} fixture;

static fixture open_fixture(void **state) {
  fixture f = {.ctx = ((test_context *)*state)->ctx};
  heed_attention_config c;
  heed_attention_config_init(&c, sizeof c);
  c.d_in = c.d_out = c.context_length = 4;
  assert_ok(heed_normal(f.ctx, NULL, 0, 1, 2, SHAPE(4, 4), &f.x));
  assert_ok(heed_multi_head_attention_new(f.ctx, NULL, &c, &f.m));
  return f;
}

static void close_fixture(fixture *f) {
  heed_tensor_free(f->x);
  heed_tensor_free(f->y);
  heed_module_release(f->m);
}

static void assert_same(heed_context *ctx, const heed_tensor *a, const heed_tensor *b) {
  bool same = false;
  assert_ok(heed_equal(ctx, a, b, &same));
  assert_true(same);
}

/* ---- Structs that are read ---- */

static void a_size_of_0_says_what_to_write(void **state) {
  fixture f = open_fixture(state);
  heed_attention_config c;
  heed_module *m = NULL;
  heed_kv_cache *cache = NULL;
  heed_attention_config_init(&c, sizeof c);
  c.size = 0;
  assert_fails(f.ctx, heed_multi_head_attention_new(f.ctx, NULL, &c, &m), HEED_ARGUMENT,
               "MultiHeadAttention: config.size is 0; it must be sizeof(heed_attention_config)");
  assert_null(m);
  assert_fails(f.ctx, heed_module_forward(f.m, f.x, &(heed_forward_options){.size = 0}, &f.y, NULL),
               HEED_ARGUMENT,
               "MultiHeadAttention: options.size is 0; it must be sizeof(heed_forward_options)");
  assert_fails(f.ctx, heed_module_forward(f.m, f.x, NULL, &f.y, &(heed_attention_taps){.size = 0}),
               HEED_ARGUMENT, "MultiHeadAttention: taps.size is 0; it must be sizeof(heed_attention_taps)");
  assert_fails(f.ctx, heed_kv_cache_new(f.m, &(heed_kv_cache_config){.batch = 2}, &cache), HEED_ARGUMENT,
               "new_cache: config.size is 0; it must be sizeof(heed_kv_cache_config)");
  assert_fails(f.ctx, heed_rope(f.ctx, f.x, NULL, &(heed_rope_config){.base = 10}, &f.y), HEED_ARGUMENT,
               "rope: config.size is 0; it must be sizeof(heed_rope_config)");
  assert_fails(
      f.ctx,
      heed_scaled_dot_product_attention(f.ctx, f.x, f.x, f.x, NULL, &f.y, &(heed_attention_taps){.size = 0}),
      HEED_ARGUMENT, "scaled_dot_product_attention: taps.size is 0; it must be sizeof(heed_attention_taps)");
  assert_fails(f.ctx, heed_info(f.ctx, &(heed_information){.size = 0}), HEED_ARGUMENT,
               "info: out.size is 0; it must be sizeof(heed_information)");
  assert_null(f.y);
  close_fixture(&f);
}

static void fields_that_an_older_header_lacks_count_as_unset(void **state) {
  fixture f = open_fixture(state);
  heed_tensor *now = NULL;
  const heed_attention_options options = {.size = sizeof options, .is_causal = true};
  /* the memory after it does not belong to the struct */
  struct {
    older_attention_options old;
    char behind[sizeof(heed_attention_options)];
  } older = {.old = {.size = sizeof older.old, .is_causal = true}};
  memset(older.behind, 0xff, sizeof older.behind);
  assert_ok(heed_scaled_dot_product_attention(f.ctx, f.x, f.x, f.x, &options, &now, NULL));
  assert_ok(heed_scaled_dot_product_attention(
      f.ctx, f.x, f.x, f.x, (const heed_attention_options *)(const void *)&older, &f.y, NULL));
  assert_same(f.ctx, now, f.y);
  heed_tensor_free(now);
  close_fixture(&f);
}

static void an_older_config_gets_the_defaults_of_newer_fields(void **state) {
  fixture f = open_fixture(state);
  heed_attention_config c;
  heed_module *m = NULL;
  heed_scalar causal;
  heed_attention_config_init(&c, sizeof c);
  c.d_in = c.d_out = c.context_length = 4;
  c.causal = false;
  c.size = offsetof(heed_attention_config, causal);
  assert_ok(heed_multi_head_attention_new(f.ctx, NULL, &c, &m));
  assert_true(heed_module_setting(m, "causal", &causal));
  assert_int_equal(causal.as.integer, 1);
  heed_module_release(m);
  close_fixture(&f);
}

static void fields_that_only_a_newer_header_has_must_be_zero(void **state) {
  fixture f = open_fixture(state);
  newer_forward_options options = {.known = {.size = sizeof options}};
  assert_ok(heed_module_forward(f.m, f.x, &options.known, &f.y, NULL));
  options.order = 1;
  char text[256];
  snprintf(
      text, sizeof text,
      "MultiHeadAttention: options.size is %zu, and fields beyond the %zu bytes of heed_forward_options in "
      "this library (%s) are set; they must be 0",
      sizeof options, sizeof options.known, HEED_VERSION);
  assert_fails(f.ctx, heed_module_forward(f.m, f.x, &options.known, &f.y, NULL), HEED_ARGUMENT, text);
  close_fixture(&f);
}

static void a_size_of_zero_is_refused(void **state) {
  fixture f = open_fixture(state);
  const heed_forward_options options = {.size = SIZE_MAX / 2};
  assert_int_equal(heed_module_forward(f.m, f.x, &options, &f.y, NULL), HEED_ARGUMENT);
  assert_int_equal(heed_module_forward(f.m, f.x, &(heed_forward_options){.size = 3}, &f.y, NULL),
                   HEED_ARGUMENT);
  close_fixture(&f);
}

static void init_writes_no_more_than_the_size(void **state) {
  (void)state;
  struct {
    heed_attention_config config;
    double more, behind;
  } newer = {.more = 1, .behind = 2};
  heed_attention_config_init(&newer.config, offsetof(heed_attention_config, causal));
  assert_int_equal(newer.config.num_heads, 1);
  assert_false(newer.config.causal);
  heed_attention_config_init(&newer.config, offsetof(__typeof__(newer), behind));
  assert_true(newer.config.causal);
  assert_int_equal(newer.config.size, offsetof(__typeof__(newer), behind));
  assert_true(newer.more == 0 && newer.behind == 2);
  heed_attention_config_init(NULL, sizeof newer.config);
  heed_attention_config_init(&newer.config, 0);
  assert_true(newer.config.causal);
}

/* ---- Structs that are filled ---- */

static void an_older_struct_receives_the_fields_that_it_has(void **state) {
  fixture f = open_fixture(state);
  struct {
    older_taps old;
    heed_tensor *behind[8];
  } older = {.old = {.size = sizeof older.old}};
  heed_attention_taps now = {.size = sizeof now};
  memset(older.behind, 0xff, sizeof older.behind);
  heed_attention_taps *given = (heed_attention_taps *)(void *)&older;
  assert_ok(heed_module_forward(f.m, f.x, NULL, &f.y, &now));
  assert_ok(heed_module_forward(f.m, f.x, NULL, &f.y, given)); /* the others are freed: close_context sees */
  assert_same(f.ctx, older.old.scores, now.scores);
  assert_same(f.ctx, older.old.weights, now.weights);
  assert_ptr_equal(older.behind[0], (void *)UINTPTR_MAX);
  heed_attention_taps_free(given);
  assert_null(older.old.scores);
  assert_int_equal(older.old.size, sizeof older.old);
  assert_ptr_equal(older.behind[0], (void *)UINTPTR_MAX);
  heed_attention_taps_free(&now);
  close_fixture(&f);
}

static void unknown_fields_of_a_newer_struct_are_not_written(void **state) {
  fixture f = open_fixture(state);
  newer_taps newer = {.known = {.size = sizeof newer}, .more = f.x};
  assert_ok(heed_module_forward(f.m, f.x, NULL, &f.y, &newer.known));
  assert_non_null(newer.known.values);
  assert_null(newer.more);
  heed_attention_taps_free(&newer.known);
  assert_null(newer.known.values);
  close_fixture(&f);
}

static void taps_are_stored_and_freed_together(void **state) {
  fixture f = open_fixture(state);
  heed_attention_taps taps = {.size = sizeof taps};
  assert_ok(heed_scaled_dot_product_attention(f.ctx, f.x, f.x, f.x, NULL, &f.y, &taps));
  heed_tensor *const found[] = {taps.weights,       taps.logits,      taps.capped_logits,
                                taps.biased_logits, taps.present_key, taps.present_value};
  heed_tensor *const others[] = {taps.scores, taps.dropped_weights, taps.queries, taps.keys, taps.values};
  for (size_t i = 0; i < sizeof found / sizeof *found; i++) assert_non_null(found[i]);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_null(others[i]);
  heed_attention_taps_free(&taps);
#define X(name) assert_null(taps.name);
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
  heed_attention_taps_free(&taps);
  heed_attention_taps_free(NULL);
  close_fixture(&f);
}

static void information_is_not_written_beyond_the_size(void **state) {
  const test_context *t = *state;
  heed_information all = {.size = sizeof all}, some = {.size = offsetof(heed_information, blas), .blas = "?"};
  assert_ok(heed_info(t->ctx, &all));
  assert_ok(heed_info(t->ctx, &some));
  assert_string_equal(some.kernels, all.kernels);
  assert_string_equal(some.blas, "?");
  assert_int_equal(some.size, offsetof(heed_information, blas));
}

/* ---- Versions ---- */

static void below_1_0_versions_of_one_minor_version_are_compatible(void **state) {
  (void)state;
  heed_context *ctx = NULL;
  const int minor = HEED_VERSION_NUMBER / 100 * 100;
  assert_string_equal(heed_version(), HEED_VERSION);
  assert_int_equal(heed_version_number(), HEED_VERSION_NUMBER);
  assert_true(heed_check_version(HEED_VERSION_NUMBER));
  assert_true(heed_check_version(minor + 99));
  assert_false(heed_check_version(minor + 100));
  assert_false(heed_check_version(minor - 1));
  assert_false(heed_check_version(HEED_VERSION_NUMBER + 10000));
  assert_false(heed_check_version(-1));
  assert_int_equal(heed_context_new_for(minor + 100, NULL, &ctx), HEED_MISMATCH);
  assert_null(ctx);
  assert_ok(heed_context_new_for(minor + 99, NULL, &ctx));
  heed_context_free(ctx);
  ctx = NULL;
  assert_ok((heed_context_new)(NULL, &ctx)); /* as callers without a header do */
  heed_context_free(ctx);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_size_of_0_says_what_to_write),
      TEST(fields_that_an_older_header_lacks_count_as_unset),
      TEST(an_older_config_gets_the_defaults_of_newer_fields),
      TEST(fields_that_only_a_newer_header_has_must_be_zero),
      TEST(a_size_of_zero_is_refused),
      cmocka_unit_test(init_writes_no_more_than_the_size),
      TEST(an_older_struct_receives_the_fields_that_it_has),
      TEST(unknown_fields_of_a_newer_struct_are_not_written),
      TEST(taps_are_stored_and_freed_together),
      TEST(information_is_not_written_beyond_the_size),
      cmocka_unit_test(below_1_0_versions_of_one_minor_version_are_compatible),
  };
  return cmocka_run_group_tests_name("structs that may grow", tests, NULL, NULL);
}
