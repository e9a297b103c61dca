/* Resumable forward passes: what may happen between two slices and during one. */
#include "support.h"

#include <math.h>

enum { D = 128, N = 300 };

static heed_attention_config config(double dropout) {
  heed_attention_config c;
  heed_attention_config_init(&c, sizeof c);
  c.d_in = c.d_out = D;
  c.context_length = N;
  c.num_heads = 4;
  c.dropout = dropout;
  return c;
}

static heed_module *module_of(heed_context *ctx, const heed_attention_config *c) {
  heed_module *m = NULL;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, c, &m));
  return m;
}

static heed_module *module(heed_context *ctx, double dropout) {
  const heed_attention_config c = config(dropout);
  return module_of(ctx, &c);
}

static heed_module *normed_module(heed_context *ctx) {
  heed_attention_config c = config(0);
  c.qk_norm = true;
  return module_of(ctx, &c);
}

static heed_tensor *tokens(heed_context *ctx) {
  heed_tensor *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, (const int64_t[]){N, D}, &x));
  return x;
}

static void assert_same(const heed_tensor *a, const heed_tensor *b) {
  assert_int_equal(heed_tensor_numel(a), heed_tensor_numel(b));
  assert_memory_equal(heed_tensor_data(a), heed_tensor_data(b), (size_t)heed_tensor_numel(a) * sizeof(float));
}

/* Runs the pass to its end, compares its result, and frees both. */
static void finish(heed_steps *s, heed_tensor *whole) {
  heed_tensor *y = NULL;
  bool done = false;
  assert_ok(heed_steps_advance(s, INFINITY, &done));
  assert_true(done);
  assert_ok(heed_steps_result(s, &y, NULL));
  assert_same(whole, y);
  heed_steps_free(s);
  heed_tensor_free(y);
  heed_tensor_free(whole);
}

static void slices_of_zero_seconds_make_progress(void **state) {
  test_context *t = *state;
  for (int64_t threads = 1; threads <= 3; threads++) {
    assert_ok(heed_set_num_threads(t->ctx, threads));
    heed_module *m = module(t->ctx, 0);
    heed_tensor *x = tokens(t->ctx), *whole = NULL, *y = NULL;
    heed_steps *s = NULL;
    bool done = false;
    int64_t last = -1, now, total, slices = 0;
    assert_ok(heed_module_forward(m, x, NULL, &whole, NULL));
    assert_ok(heed_steps_new(m, x, NULL, false, &s));
    assert_fails(t->ctx, heed_steps_result(s, &y, NULL), HEED_ARGUMENT,
                 "steps: the forward pass is not done; advance it to its end first");
    const int64_t calls = t->memory.calls;
    for (; !done; slices++) {
      assert_ok(heed_steps_advance(s, 0, &done));
      heed_steps_progress(s, &now, &total);
      assert_true(now > last && (now == total) == done);
      last = now;
    }
    assert_true(threads > 1 ||
                t->memory.calls == calls); /* only the thread pool may allocate during a slice */
    assert_true(slices > 20);
    assert_ok(heed_steps_advance(s, 0, &done));
    assert_true(done);
    assert_ok(heed_steps_result(s, &y, NULL));
    assert_same(whole, y);
    heed_steps_free(s);
    heed_tensor_free(x);
    heed_tensor_free(y);
    heed_tensor_free(whole);
    heed_module_release(m);
  }
}

static void a_cancelled_slice_can_be_continued(void **state) {
  test_context *t = *state;
  heed_module *m = module(t->ctx, 0.5);
  heed_tensor *x = tokens(t->ctx), *whole = NULL, *y = NULL;
  heed_steps *s = NULL;
  heed_generator *g = NULL, *same = NULL;
  bool done = false;
  assert_ok(heed_generator_new(t->ctx, 3, &g));
  assert_ok(heed_generator_new(t->ctx, 3, &same));
  heed_forward_options o = {.size = sizeof o, .generator = g};
  assert_ok(heed_steps_new(m, x, &o, false, &s));
  o.generator = same;
  assert_ok(heed_module_forward(m, x, &o, &whole, NULL));
  for (int i = 0; !done; i++) {
    if (i % 3 == 1) {
      heed_cancel(t->ctx);
      const heed_status status = heed_steps_advance(s, INFINITY, &done);
      if (status == HEED_OK) break; /* it ended before it could be stopped */
      assert_int_equal(status, HEED_CANCELLED);
      assert_false(done);
    } else {
      assert_ok(heed_steps_advance(s, 0, &done));
    }
  }
  heed_clear_cancel(t->ctx);
  assert_ok(heed_steps_result(s, &y, NULL));
  assert_same(whole, y);
  heed_steps_free(s);
  heed_generator_free(g);
  heed_generator_free(same);
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_tensor_free(whole);
  heed_module_release(m);
}

static void after_a_deadline_is_removed_the_pass_continues(void **state) {
  test_context *t = *state;
  heed_module *m = module(t->ctx, 0);
  heed_tensor *x = tokens(t->ctx), *y = NULL;
  heed_steps *s = NULL;
  bool done = false;
  assert_ok(heed_steps_new(m, x, NULL, false, &s));
  assert_ok(heed_set_deadline(t->ctx, 1e-9));
  assert_int_equal(heed_steps_advance(s, INFINITY, &done), HEED_LIMIT);
  assert_ok(heed_set_deadline(t->ctx, 0));
  assert_ok(heed_steps_advance(s, INFINITY, &done));
  assert_true(done);
  assert_ok(heed_steps_result(s, &y, NULL));
  heed_steps_free(s);
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_module_release(m);
}

static void invalid_arguments_are_refused_with_a_message(void **state) {
  test_context *t = *state;
  heed_module *m = module(t->ctx, 0), *norm = NULL;
  heed_tensor *x = tokens(t->ctx), *y = NULL;
  heed_steps *s = NULL;
  bool done = false;
  heed_attention_taps taps = {.size = sizeof taps};
  assert_int_equal(heed_steps_new(NULL, x, NULL, false, &s), HEED_ARGUMENT);
  assert_fails(t->ctx, heed_steps_new(m, NULL, NULL, false, &s), HEED_ARGUMENT, "steps: x is missing (NULL)");
  assert_fails(t->ctx, heed_steps_new(m, x, NULL, false, NULL), HEED_ARGUMENT,
               "steps: out is missing (NULL)");
  assert_ok(heed_layer_norm_new(t->ctx, 1, (const int64_t[]){D}, 1e-5, true, false, &norm));
  assert_fails(t->ctx, heed_steps_new(norm, x, NULL, false, &s), HEED_ARGUMENT,
               "steps: the module is a LayerNorm; it must be a MultiHeadAttention, a SelfAttention, a "
               "CausalAttention or a Linear");
  assert_null(s);
  assert_int_equal(heed_steps_advance(NULL, 0, &done), HEED_ARGUMENT);
  assert_int_equal(heed_steps_result(NULL, &y, NULL), HEED_ARGUMENT);
  heed_steps_free(NULL);
  assert_ok(heed_steps_new(m, x, NULL, false, &s));
  assert_fails(t->ctx, heed_steps_advance(s, -1, &done), HEED_ARGUMENT,
               "steps: seconds is -1; it must be 0 or more");
  assert_int_equal(heed_steps_advance(s, NAN, &done), HEED_ARGUMENT);
  assert_fails(t->ctx, heed_steps_advance(s, 0, NULL), HEED_ARGUMENT, "steps: done is missing (NULL)");
  assert_ok(heed_steps_advance(s, INFINITY, &done));
  assert_fails(t->ctx, heed_steps_result(s, NULL, NULL), HEED_ARGUMENT, "steps: out is missing (NULL)");
  assert_fails(t->ctx, heed_steps_result(s, &y, &taps), HEED_ARGUMENT,
               "steps: taps are requested, but need_weights was false");
  assert_null(y);
  heed_steps_free(s);
  heed_tensor_free(x);
  heed_module_release(m);
  heed_module_release(norm);
}

static void a_pass_outlives_its_context_as_tensors_do(void **state) {
  (void)state;
  test_memory memory = {0};
  heed_allocator allocator = test_allocator(&memory);
  heed_context *ctx = NULL;
  heed_steps *s = NULL;
  heed_tensor *y = NULL;
  bool done = false;
  assert_ok(heed_context_new(&allocator, &ctx));
  heed_module *m = module(ctx, 0);
  heed_tensor *x = tokens(ctx);
  assert_ok(heed_steps_new(m, x, NULL, true, &s));
  assert_ok(heed_steps_advance(s, 0, &done));
  heed_tensor_free(x);
  heed_module_release(m);
  heed_context_free(ctx);
  while (!done) assert_ok(heed_steps_advance(s, 1e-4, &done));
  assert_ok(heed_steps_result(s, &y, NULL));
  heed_steps_free(s);
  assert_int_equal(heed_tensor_numel(y), N * D);
  heed_tensor_free(y);
  assert_int_equal(memory.blocks, 0);
}

/* With all options; advanced half of the way and freed, or to the end. */
static heed_status use(heed_context *ctx, bool to_the_end) {
  heed_attention_config c;
  heed_module *m = NULL;
  heed_tensor *x = NULL, *y = NULL;
  heed_kv_cache *cache = NULL;
  heed_steps *s = NULL;
  bool done = false;
  heed_attention_taps taps = {.size = sizeof taps};
  heed_attention_config_init(&c, sizeof c);
  c.d_in = c.d_out = 32;
  c.context_length = 64;
  c.num_heads = 4;
  heed_rope_config rope;
  heed_rope_config_init(&rope, sizeof rope);
  c.rope = &rope;
  c.qk_norm = c.sinks = c.qkv_bias = true;
  heed_status status = heed_multi_head_attention_new(ctx, NULL, &c, &m);
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 2, (const int64_t[]){40, 32}, &x);
  if (status == HEED_OK) status = heed_kv_cache_new(m, NULL, &cache);
  const heed_forward_options o = {.size = sizeof o, .cache = cache};
  if (status == HEED_OK) status = heed_steps_new(m, x, &o, true, &s);
  if (status == HEED_OK) status = heed_steps_advance(s, to_the_end ? INFINITY : 0, &done);
  if (status == HEED_OK && done) status = heed_steps_result(s, &y, &taps);
  if (cache != NULL) assert_int_equal(heed_kv_cache_length(cache), done ? 40 : 0);
  heed_attention_taps_free(&taps);
  heed_steps_free(s);
  heed_kv_cache_free(cache);
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_module_release(m);
  return status;
}

static heed_status use_in_part(heed_context *ctx) {
  return use(ctx, false);
}
static heed_status use_all(heed_context *ctx) {
  return use(ctx, true);
}

/* A product of x, whose rows are not contiguous, with a weight of this dtype. */
static heed_status use_product(heed_context *ctx, heed_dtype dtype, bool to_the_end) {
  heed_module *m = NULL;
  heed_tensor *x = NULL, *rows = NULL, *y = NULL;
  heed_steps *s = NULL;
  bool done = false;
  heed_status status = heed_linear_new(ctx, NULL, 256, 640, true, &m);
  if (status == HEED_OK) status = heed_module_to(m, dtype);
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 2, (const int64_t[]){256, N}, &x);
  if (status == HEED_OK) status = heed_transpose(ctx, x, 1, 2, &rows);
  if (status == HEED_OK) status = heed_steps_new(m, rows, NULL, false, &s);
  while (status == HEED_OK && !done) {
    status = heed_steps_advance(s, 0, &done);
    if (!to_the_end) break;
  }
  if (status == HEED_OK && done) status = heed_steps_result(s, &y, NULL);
  heed_steps_free(s);
  heed_tensor_free(x);
  heed_tensor_free(rows);
  heed_tensor_free(y);
  heed_module_release(m);
  return status;
}

#define PRODUCT(dtype)                                                                                       \
  static heed_status product_in_##dtype(heed_context *ctx) {                                                 \
    const heed_status status = use_product(ctx, HEED_##dtype, false);                                        \
    return status == HEED_OK ? use_product(ctx, HEED_##dtype, true) : status;                                \
  }
PRODUCT(FLOAT32)
PRODUCT(BFLOAT16)
PRODUCT(INT8)
PRODUCT(Q8_0)
#undef PRODUCT

static void products_survive_failing_allocations(void **state) {
  (void)state;
  survives_every_failing_allocation(product_in_FLOAT32);
  survives_every_failing_allocation(product_in_BFLOAT16);
  survives_every_failing_allocation(product_in_INT8);
  survives_every_failing_allocation(product_in_Q8_0);
}

static void a_cancelled_product_can_be_continued(void **state) {
  test_context *t = *state;
  heed_module *m = NULL;
  heed_tensor *x = tokens(t->ctx), *whole = NULL;
  heed_steps *s = NULL;
  bool done = false;
  int64_t before, now, total;
  assert_ok(heed_linear_new(t->ctx, NULL, D, 2048, true, &m));
  assert_ok(heed_module_forward(m, x, NULL, &whole, NULL));
  assert_ok(heed_steps_new(m, x, NULL, false, &s));
  heed_cancel(t->ctx);
  assert_fails(t->ctx, heed_steps_advance(s, INFINITY, &done), HEED_CANCELLED,
               "steps: cancelled by heed_cancel");
  heed_steps_progress(s, &before, &total);
  assert_ok(heed_steps_advance(s, 0, &done));
  heed_steps_progress(s, &now, &total);
  assert_true(!done && now > before && now < total);
  finish(s, whole);
  heed_tensor_free(x);
  heed_module_release(m);
}

static void passes_survive_failing_allocations(void **state) {
  (void)state;
  survives_every_failing_allocation(use_in_part);
  survives_every_failing_allocation(use_all);
}

static heed_module *part(const heed_module *m, const char *name) {
  heed_entry entry;
  for (int i = 1; heed_module_entry(m, i, &entry); i++)
    if (strcmp(entry.name, name) == 0) return entry.module;
  return NULL;
}

static void a_pass_keeps_the_parts_that_it_began_with(void **state) {
  static const char *const names[] = {"W_query", "W_key", "W_value", "q_norm", "k_norm", "out_proj"};
  test_context *t = *state;
  heed_module *m = normed_module(t->ctx), *other = normed_module(t->ctx);
  heed_tensor *x = tokens(t->ctx), *whole = NULL;
  heed_steps *s = NULL;
  bool done = false;
  assert_ok(heed_module_forward(m, x, NULL, &whole, NULL));
  assert_ok(heed_steps_new(m, x, NULL, false, &s));
  assert_ok(heed_steps_advance(s, 0, &done));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    assert_ok(heed_module_set_module(m, names[i], part(other, names[i])));
  finish(s, whole);
  heed_tensor_free(x);
  heed_module_release(other);
  heed_module_release(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(slices_of_zero_seconds_make_progress),
      TEST(a_cancelled_slice_can_be_continued),
      TEST(after_a_deadline_is_removed_the_pass_continues),
      TEST(invalid_arguments_are_refused_with_a_message),
      TEST(a_pass_keeps_the_parts_that_it_began_with),
      cmocka_unit_test(a_pass_outlives_its_context_as_tensors_do),
      TEST(a_cancelled_product_can_be_continued),
      cmocka_unit_test(passes_survive_failing_allocations),
      cmocka_unit_test(products_survive_failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
