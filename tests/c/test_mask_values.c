/* Masks as values in C: what they show, attention and modules with them, and every failing allocation. What
 * each shows in detail: tests/spec/mask_spec.lua. */
#include "support.h"

#include <math.h>
#include <string.h>

static heed_tensor *integers(heed_context *ctx, int64_t n, const int64_t *x) {
  heed_tensor *out = NULL;
  assert_ok(heed_full(ctx, HEED_INT64, 1, &n, heed_integer(0), &out));
  memcpy(heed_tensor_data(out), x, (size_t)n * sizeof *x);
  return out;
}

#define INTEGERS(ctx, ...)                                                                                   \
  integers(ctx, (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

/* The rows of a dense mask as text, "110 011". */
static void assert_shows(const heed_mask *m, int64_t l, int64_t s, int64_t offset, const char *wanted) {
  heed_tensor *dense = NULL;
  char text[256] = {0};
  size_t at = 0;
  assert_ok(heed_mask_dense(m, l, s, offset, &dense));
  const uint8_t *x = heed_tensor_data(dense);
  for (int64_t i = 0; i < l * s; i++) {
    if (i > 0 && i % s == 0) text[at++] = ' ';
    text[at++] = x[i] ? '1' : '0';
  }
  assert_string_equal(text, wanted);
  heed_tensor_free(dense);
}

static void masks_show_what_they_say(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_mask *causal = NULL, *window = NULL, *documents = NULL, *prefix = NULL, *tree = NULL, *both = NULL;
  heed_tensor *lengths = INTEGERS(ctx, 2, 0, 1), *parents = INTEGERS(ctx, 0, 1, 1, 3);
  assert_ok(heed_mask_causal(ctx, &causal));
  assert_ok(heed_mask_window(ctx, &(heed_window){.has_left = true, .left = 1}, &window));
  assert_ok(heed_mask_documents(ctx, lengths, &documents));
  assert_ok(heed_mask_prefix(ctx, 2, &prefix));
  assert_ok(heed_mask_tree(ctx, parents, &tree));
  assert_ok(heed_mask_both(documents, causal, &both));
  assert_shows(causal, 2, 4, 1, "1100 1110");
  assert_shows(window, 3, 3, 0, "111 111 011");
  assert_shows(documents, 3, 3, 0, "110 110 001");
  assert_shows(prefix, 3, 3, 0, "110 110 111");
  assert_shows(tree, 4, 5, 1, "11000 11100 11010 11011");
  assert_shows(both, 3, 3, 0, "100 110 001");
  int64_t l, s;
  char text[64];
  heed_mask_sizes(both, &l, &s);
  assert_int_equal(l, 3);
  assert_int_equal(s, 3);
  heed_mask_sizes(causal, &l, NULL);
  assert_int_equal(l, -1);
  heed_mask_describe(both, text, sizeof text);
  assert_string_equal(text, "documents(3) & causal()");
  heed_mask_describe(both, text, 10);
  assert_string_equal(text, "documents");
  heed_mask_describe(NULL, text, sizeof text);
  assert_string_equal(text, "");
  heed_tensor *counts = NULL;
  assert_ok(heed_mask_blocks(both, 3, 3, 0, 2, &counts));
  const int64_t wanted[] = {3, 0, 0, 1};
  assert_memory_equal(heed_tensor_data(counts), wanted, sizeof wanted);
  heed_tensor_free(counts);
  assert_fails(ctx, heed_mask_causal(ctx, &causal), HEED_ARGUMENT,
               "mask.causal: *out is not NULL; a mask is always new");
  heed_mask *const all[] = {causal, window, documents, prefix, tree, both};
  for (int i = 0; i < 6; i++) heed_mask_release(all[i]);
  heed_tensor_free(lengths);
  heed_tensor_free(parents);
}

/* n queries and keys of `heads` heads. */
static heed_status attend_with(heed_context *ctx, const heed_mask *mask, int64_t heads, int64_t n,
                               heed_tensor **out) {
  heed_tensor *q = NULL;
  const heed_attention_options options = {.size = sizeof options, .mask = mask};
  heed_status status = heed_normal(ctx, NULL, 0, 1, 3, SHAPE(heads, n, 16), &q);
  if (status == HEED_OK) status = heed_scaled_dot_product_attention(ctx, q, q, q, &options, out, NULL);
  heed_tensor_free(q);
  return status;
}

static void a_mask_lives_as_long_as_something_refers_to_it(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_mask *m = NULL;
  heed_tensor *out = NULL, *lengths = INTEGERS(ctx, 30, 34);
  assert_ok(heed_mask_documents(ctx, lengths, &m));
  ((int64_t *)heed_tensor_data(lengths))[0] = 5; /* was copied */
  assert_ptr_equal(heed_mask_retain(m), m);
  heed_mask_release(m);
  assert_ok(attend_with(ctx, m, 2, 64, &out));
  heed_mask_release(m);
  heed_mask_release(NULL);
  assert_null(heed_mask_retain(NULL));
  heed_tensor_free(out);
  heed_tensor_free(lengths);
}

/* Memory is proportional to the queries: a dense mask would have 1 GiB. */
static void long_documents_need_little_memory(void **state) {
  test_context *t = *state;
  enum { N = 1 << 15, LENGTH = 16 };
  int64_t *lengths = calloc(N / LENGTH, sizeof *lengths);
  assert_non_null(lengths);
  for (int i = 0; i < N / LENGTH; i++) lengths[i] = LENGTH;
  heed_tensor *list = integers(t->ctx, N / LENGTH, lengths), *out = NULL;
  heed_mask *m = NULL;
  free(lengths);
  assert_ok(heed_mask_documents(t->ctx, list, &m));
  assert_ok(heed_set_limits(t->ctx, &(heed_limits){.size = sizeof(heed_limits), .memory = (size_t)32 << 20}));
  assert_ok(attend_with(t->ctx, m, 2, N, &out));
  heed_tensor_free(out);
  heed_tensor_free(list);
  heed_mask_release(m);
}

/* Rows are independent of how the work is divided. */
static void the_number_of_threads_changes_no_bit(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *parents = NULL, *q = NULL, *out[2] = {NULL, NULL}, *dense = NULL, *ones = NULL;
  heed_mask *m = NULL;
  assert_ok(heed_range(ctx, HEED_INT64, heed_integer(0), heed_integer(699), heed_integer(1), &parents));
  int64_t *parent = heed_tensor_data(parents);
  for (int64_t i = 0; i < 700; i++) parent[i] = parent[i] > i % 5 ? parent[i] - i % 5 : 0;
  assert_ok(heed_mask_tree(ctx, parents, &m));
  assert_ok(heed_mask_dense(m, 700, 700, 0, &dense));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(3, 700, 32), &q));
  for (int bools = 0; bools < 2; bools++) {
    const heed_attention_options options = {
        .size = sizeof options, .mask = bools ? NULL : m, .attn_mask = bools ? dense : NULL};
    for (int i = 0; i < 2; i++) {
      assert_ok(heed_set_num_threads(ctx, i == 0 ? 1 : 3));
      assert_ok(heed_scaled_dot_product_attention(ctx, q, q, q, &options, &out[i], NULL));
    }
    assert_memory_equal(heed_tensor_data(out[0]), heed_tensor_data(out[1]), 3 * 700 * 32 * sizeof(float));
  }
  heed_tensor *const all[] = {parents, q, out[0], out[1], dense, ones};
  for (int i = 0; i < 6; i++) heed_tensor_free(all[i]);
  heed_mask_release(m);
}

static void lengths_and_other_options_compose(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *lengths = INTEGERS(ctx, 30, 10), *kv = INTEGERS(ctx, 40, 25), *q = NULL, *k = NULL;
  heed_tensor *part[2] = {NULL, NULL}, *dense = NULL, *out[2] = {NULL, NULL};
  heed_mask *m = NULL;
  assert_ok(heed_mask_documents(ctx, lengths, &m));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(2, 2, 20, 16), &q));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(2, 2, 40, 16), &k));
  assert_ok(heed_mask_dense(m, 20, 40, 20, &part[0]));
  assert_ok(heed_mask_dense(m, 20, 40, 5, &part[1]));
  assert_ok(heed_stack(ctx, 2, (const heed_tensor *const *)part, 1, &dense));
  heed_tensor *view = NULL;
  assert_ok(heed_unsqueeze(ctx, dense, 2, &view));
  for (int i = 0; i < 2; i++) {
    const heed_attention_options options = {.size = sizeof options,
                                            .kv_lengths = kv,
                                            .is_causal = true,
                                            .mask = i ? NULL : m,
                                            .attn_mask = i ? view : NULL};
    assert_ok(heed_scaled_dot_product_attention(ctx, q, k, k, &options, &out[i], NULL));
  }
  const float *a = heed_tensor_data(out[0]), *b = heed_tensor_data(out[1]);
  for (int i = 0; i < 2 * 2 * 20 * 16; i++) assert_true(fabsf(a[i] - b[i]) < 1e-6f);
  heed_tensor *const all[] = {lengths, kv, q, k, part[0], part[1], dense, view, out[0], out[1]};
  for (int i = 0; i < 10; i++) heed_tensor_free(all[i]);
  heed_mask_release(m);
}

/* ---- Failing ---- */

static heed_status make_and_attend(heed_context *ctx) {
  heed_tensor *lengths = NULL, *ranges = NULL, *out = NULL, *dense = NULL, *counts = NULL;
  heed_mask *documents = NULL, *intervals = NULL, *both = NULL;
  heed_status status = heed_full(ctx, HEED_INT64, 1, SHAPE(4), heed_integer(25), &lengths);
  if (status == HEED_OK)
    status = heed_full(ctx, HEED_INT64, 4, SHAPE(2, 100, 1, 2), heed_integer(30), &ranges);
  if (status == HEED_OK) status = heed_mask_documents(ctx, lengths, &documents);
  if (status == HEED_OK) status = heed_mask_intervals(ctx, ranges, &intervals);
  if (status == HEED_OK) status = heed_mask_both(documents, intervals, &both);
  if (status == HEED_OK) status = attend_with(ctx, both, 2, 100, &out);
  if (status == HEED_OK) status = heed_mask_dense(both, 100, 100, 0, &dense);
  if (status == HEED_OK) status = heed_mask_blocks(both, 100, 100, 0, 16, &counts);
  heed_tensor *const all[] = {lengths, ranges, out, dense, counts};
  for (int i = 0; i < 5; i++) heed_tensor_free(all[i]);
  heed_mask_release(documents);
  heed_mask_release(intervals);
  heed_mask_release(both);
  return status;
}

/* Also with a boolean mask, whose intervals are found. */
static heed_status go_back(heed_context *ctx) {
  heed_tensor *x = NULL, *y = NULL, *dense = NULL, *lengths = NULL;
  heed_mask *m = NULL;
  const bool before = heed_set_recording(ctx, true);
  heed_status status = heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 70, 8), &x);
  if (status == HEED_OK) status = heed_tensor_require_grad(x, true);
  if (status == HEED_OK) status = heed_full(ctx, HEED_INT64, 1, SHAPE(2), heed_integer(35), &lengths);
  if (status == HEED_OK) status = heed_mask_documents(ctx, lengths, &m);
  if (status == HEED_OK) status = heed_mask_dense(m, 70, 70, 0, &dense);
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    const heed_attention_options options = {
        .size = sizeof options, .mask = i ? NULL : m, .attn_mask = i ? dense : NULL};
    status = heed_scaled_dot_product_attention(ctx, x, x, x, &options, &y, NULL);
    heed_mask_release(m); /* the recorded call keeps what it needs */
    m = NULL;
    heed_tensor *dx = NULL;
    const heed_tensor *const ys[] = {y}, *const xs[] = {x};
    if (status == HEED_OK) status = heed_grad(ctx, 1, ys, ys, 1, xs, &dx, NULL);
    heed_tensor_free(dx);
    heed_tensor_free(y);
    y = NULL;
  }
  (void)heed_set_recording(ctx, before);
  heed_tensor *const all[] = {x, y, dense, lengths};
  for (int i = 0; i < 4; i++) heed_tensor_free(all[i]);
  heed_mask_release(m);
  return status;
}

/* A wrapper divides a mask among its heads; a pass in slices keeps it. */
static heed_status in_modules(heed_context *ctx) {
  heed_attention_config config;
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = 8;
  config.context_length = 40;
  config.num_heads = 2;
  heed_tensor *x = NULL, *ranges = NULL, *y = NULL;
  heed_mask *m = NULL;
  heed_module *wrapper = NULL, *mha = NULL;
  heed_steps *steps = NULL;
  bool done = false;
  heed_status status = heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 40, 8), &x);
  if (status == HEED_OK) status = heed_full(ctx, HEED_INT64, 4, SHAPE(2, 40, 1, 2), heed_integer(3), &ranges);
  if (status == HEED_OK) status = heed_mask_intervals(ctx, ranges, &m);
  if (status == HEED_OK) status = heed_multi_head_attention_wrapper_new(ctx, NULL, &config, &wrapper);
  if (status == HEED_OK) status = heed_multi_head_attention_new(ctx, NULL, &config, &mha);
  const heed_forward_options options = {.size = sizeof options, .mask = m};
  if (status == HEED_OK) status = heed_module_forward(wrapper, x, &options, &y, NULL);
  if (status == HEED_OK) status = heed_steps_new(mha, x, &options, false, &steps);
  heed_mask_release(m);
  while (status == HEED_OK && !done) status = heed_steps_advance(steps, 0, &done);
  heed_steps_free(steps);
  heed_tensor_free(x);
  heed_tensor_free(ranges);
  heed_tensor_free(y);
  heed_module_release(wrapper);
  heed_module_release(mha);
  return status;
}

static void nothing_leaks_when_memory_runs_out(void **state) {
  (void)state;
  survives_every_failing_allocation(make_and_attend);
  survives_every_failing_allocation(go_back);
  survives_every_failing_allocation(in_modules);
}

static void cancelled_calls_stop(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *lengths = INTEGERS(ctx, 3000, 3000), *out = NULL, *ranges = NULL, *dense = NULL;
  heed_mask *m = NULL, *none = NULL;
  assert_ok(heed_mask_documents(ctx, lengths, &m));
  assert_ok(heed_full(ctx, HEED_INT64, 3, SHAPE(20000, 1, 2), heed_integer(1), &ranges));
  assert_ok(heed_mask_dense(m, 6000, 6000, 0, &dense));
  heed_cancel(ctx);
  assert_int_equal(heed_mask_dense(m, 6000, 6000, 0, &out), HEED_CANCELLED);
  heed_cancel(ctx);
  assert_int_equal(heed_mask_blocks(m, 6000, 6000, 0, 100, &out), HEED_CANCELLED);
  heed_cancel(ctx);
  assert_int_equal(heed_mask_intervals(ctx, ranges, &none), HEED_CANCELLED);
  heed_cancel(ctx);
  assert_int_equal(heed_mask_both(m, m, &none), HEED_CANCELLED);
  heed_tensor *q = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(1, 6000, 8), &q));
  for (int bools = 0; bools < 2; bools++) {
    const heed_attention_options options = {
        .size = sizeof options, .mask = bools ? NULL : m, .attn_mask = bools ? dense : NULL};
    heed_cancel(ctx);
    assert_int_equal(heed_scaled_dot_product_attention(ctx, q, q, q, &options, &out, NULL), HEED_CANCELLED);
  }
  assert_null(out);
  assert_null(none);
  heed_tensor *const all[] = {lengths, ranges, dense, q};
  for (int i = 0; i < 4; i++) heed_tensor_free(all[i]);
  heed_mask_release(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(masks_show_what_they_say),
      TEST(a_mask_lives_as_long_as_something_refers_to_it),
      TEST(long_documents_need_little_memory),
      TEST(the_number_of_threads_changes_no_bit),
      TEST(lengths_and_other_options_compose),
      cmocka_unit_test(nothing_leaks_when_memory_runs_out),
      TEST(cancelled_calls_stop),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
