/* Caches and the options of MultiHeadAttention from C. A call that fails leaves the cache, the result and the
 * generator unchanged. */
#include "support.h"

#include <math.h>

#include "../../src/nn/nn.h"

static const heed_dtype dtypes[] = {HEED_FLOAT32, HEED_BFLOAT16, HEED_FLOAT16, HEED_INT8};
#define DTYPES (sizeof dtypes / sizeof *dtypes)

static heed_attention_config config_of(int64_t context_length) {
  heed_attention_config c;
  heed_attention_config_init(&c, sizeof c);
  c.d_in = 6;
  c.d_out = 8;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 4;
  c.context_length = context_length;
  return c;
}

static const heed_rope_config *plain_rope(void) {
  static heed_rope_config rope;
  heed_rope_config_init(&rope, sizeof rope);
  return &rope;
}

/* All options combined. */
static heed_attention_config full_config(int64_t context_length) {
  heed_attention_config c = config_of(context_length);
  c.window = (heed_window){.has_left = true, .left = 3};
  c.softcap = 2;
  c.alibi = c.sinks = c.qk_norm = true;
  c.rope = plain_rope();
  c.qkv_bias = true;
  return c;
}

static heed_tensor *normal(heed_context *ctx, int ndim, const int64_t *shape) {
  heed_tensor *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, ndim, shape, &x));
  return x;
}

static heed_kv_cache *new_cache(heed_module *m, heed_dtype dtype, int64_t batch) {
  heed_kv_cache *cache = NULL;
  const heed_kv_cache_config config = {.size = sizeof config, .batch = batch, .dtype = dtype};
  assert_ok(heed_kv_cache_new(m, &config, &cache));
  return cache;
}

static heed_tensor *pass(heed_module *m, const heed_tensor *x, heed_kv_cache *cache) {
  heed_tensor *y = NULL;
  const heed_forward_options options = {.size = sizeof options, .cache = cache};
  assert_ok(heed_module_forward(m, x, &options, &y, NULL));
  return y;
}

/* The same pass through both gives the same bits. Takes both caches. */
static void assert_same_caches(heed_module *m, const heed_tensor *x, heed_kv_cache *a, heed_kv_cache *b) {
  assert_int_equal(heed_kv_cache_length(a), heed_kv_cache_length(b));
  heed_tensor *y = pass(m, x, a), *z = pass(m, x, b);
  assert_memory_equal(y->data, z->data, (size_t)y->numel * sizeof(float));
  heed_tensor_free(y);
  heed_tensor_free(z);
  heed_kv_cache_free(a);
  heed_kv_cache_free(b);
}

/* ---- Properties ---- */

static void a_cache_reports_its_sizes(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_attention_config c = config_of(12);
  heed_module *m = NULL;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
  heed_kv_cache *cache = NULL;
  assert_ok(heed_kv_cache_new(m, NULL, &cache));
  assert_ptr_equal(heed_kv_cache_context(cache), ctx);
  assert_int_equal(heed_kv_cache_batch(cache), 1);
  assert_int_equal(heed_kv_cache_capacity(cache), 12);
  assert_int_equal(heed_kv_cache_length(cache), 0);
  assert_int_equal(heed_kv_cache_dtype(cache), HEED_FLOAT32);
  heed_kv_cache_free(cache);
  heed_kv_cache_free(NULL);
  heed_module_release(m);

  c.window = (heed_window){.has_left = true, .left = 3};
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
  cache = new_cache(m, HEED_INT8, 3);
  assert_int_equal(heed_kv_cache_capacity(cache), 0);
  assert_int_equal(heed_kv_cache_batch(cache), 3);
  assert_int_equal(heed_kv_cache_dtype(cache), HEED_INT8);
  heed_kv_cache_free(cache);
  heed_module_release(m);
}

static void pass_tokens(heed_module *m, heed_kv_cache *cache, int64_t count) {
  heed_tensor *x = normal(m->context, 2, SHAPE(count, 6));
  heed_tensor_free(pass(m, x, cache));
  heed_tensor_free(x);
}

static void headroom_is_the_number_of_tokens_that_truncate_can_remove(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_attention_config c = config_of(12);
  heed_module *m = NULL;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
  heed_kv_cache *cache = new_cache(m, HEED_FLOAT32, 1);
  assert_int_equal(heed_kv_cache_headroom(cache), 12);
  pass_tokens(m, cache, 5);
  assert_int_equal(heed_kv_cache_headroom(cache), 7); /* as many as the capacity allows */
  heed_kv_cache_free(cache);
  heed_module_release(m);
  assert_int_equal(heed_kv_cache_headroom(NULL), 0);

  c.context_length = 1000;
  c.window = (heed_window){.has_left = true, .left = 3};
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
  cache = new_cache(m, HEED_FLOAT32, 1);
  for (int64_t begun = 1; begun < 300; begun += 37) {
    pass_tokens(m, cache, begun - heed_kv_cache_length(cache));
    const int64_t headroom = heed_kv_cache_headroom(cache);
    assert_in_range(headroom, 1, 500);
    for (int64_t i = 0; i < headroom; i++) pass_tokens(m, cache, 1);
    assert_int_equal(heed_kv_cache_headroom(cache), 0);
    assert_ok(heed_kv_cache_truncate(cache, begun));
    assert_int_equal(heed_kv_cache_headroom(cache), headroom);
  }
  const int64_t more = heed_kv_cache_headroom(cache) + 200; /* in one pass; the first tokens are dropped */
  pass_tokens(m, cache, more);
  assert_int_equal(heed_kv_cache_truncate(cache, 300), HEED_ARGUMENT);
  heed_kv_cache_free(cache);

  heed_kv_cache_config bounded;
  heed_kv_cache_config_init(&bounded, sizeof bounded);
  bounded.capacity = 200;
  assert_ok(heed_kv_cache_new(m, &bounded, &cache));
  pass_tokens(m, cache, 190);
  assert_int_equal(heed_kv_cache_headroom(cache), 10);
  heed_kv_cache_free(cache);
  heed_module_release(m);
}

static void new_cache_refuses_invalid_configs(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_attention_config c = config_of(12);
  heed_module *m = NULL, *linear = NULL;
  heed_kv_cache *cache = NULL;
  heed_kv_cache_config config = {.size = sizeof config};
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
  assert_ok(heed_linear_new(ctx, NULL, 3, 2, true, &linear));
  assert_int_equal(heed_kv_cache_new(NULL, NULL, &cache), HEED_ARGUMENT);
  assert_fails(ctx, heed_kv_cache_new(m, NULL, NULL), HEED_ARGUMENT, "new_cache: out is missing (NULL)");
  assert_fails(ctx, heed_kv_cache_new(linear, NULL, &cache), HEED_ARGUMENT,
               "new_cache: the module is a Linear; it must be a MultiHeadAttention");
  heed_kv_cache_config_init(&config, sizeof config);
  config.batch = -1;
  assert_fails(ctx, heed_kv_cache_new(m, &config, &cache), HEED_ARGUMENT,
               "new_cache: batch is -1; it must be at least 1");
  config.batch = INT64_MAX;
  assert_int_equal(heed_kv_cache_new(m, &config, &cache), HEED_SHAPE);
  config.batch = 1;
  config.capacity = -2;
  assert_fails(ctx, heed_kv_cache_new(m, &config, &cache), HEED_ARGUMENT,
               "new_cache: capacity is -2; it must be at least 1");
  config.capacity = INT64_MAX;
  assert_int_equal(heed_kv_cache_new(m, &config, &cache), HEED_SHAPE);
  config.capacity = PTRDIFF_MAX / 8; /* two heads of 4 bytes each */
  config.dtype = HEED_INT8;
  assert_int_equal(heed_kv_cache_new(m, &config, &cache), HEED_MEMORY);
  config.capacity = 0;
  config.dtype = HEED_BOOL;
  assert_fails(ctx, heed_kv_cache_new(m, &config, &cache), HEED_DTYPE,
               "new_cache: dtype is bool; it must be float32, bfloat16, float16 or int8");
  config.dtype = HEED_FLOAT32;
  config.bits = 4;
  assert_fails(ctx, heed_kv_cache_new(m, &config, &cache), HEED_ARGUMENT,
               "new_cache: bits is 4 with float32; it must be 0, or 4 with int8");
  assert_null(cache);
  heed_module_release(m);
  heed_module_release(linear);

  c.context_length = INT64_MAX;
  c.window = (heed_window){.has_left = true, .left = INT64_MAX - 1};
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
  assert_int_equal(heed_kv_cache_new(m, NULL, &cache), HEED_SHAPE);
  heed_module_release(m);
}

static void a_cache_works_only_in_its_context(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx, *other = NULL;
  const heed_attention_config c = config_of(12);
  heed_module *m = NULL, *theirs = NULL;
  assert_ok(heed_context_new(NULL, &other));
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
  assert_ok(heed_multi_head_attention_new(other, NULL, &c, &theirs));
  heed_kv_cache *cache = new_cache(theirs, HEED_FLOAT32, 1);
  heed_module_release(theirs);
  heed_context_free(other); /* the cache keeps it alive */
  heed_tensor *x = normal(ctx, 2, SHAPE(2, 6)), *y = NULL;
  assert_fails(
      ctx,
      heed_module_forward(m, x, &(heed_forward_options){.size = sizeof(heed_forward_options), .cache = cache},
                          &y, NULL),
      HEED_ARGUMENT, "MultiHeadAttention: cache is of another context; all must be of one");
  assert_null(y);
  heed_kv_cache_free(cache);
  heed_tensor_free(x);
  heed_module_release(m);
}

static void modules_report_settings_and_parts(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_attention_config c = full_config(12);
  heed_module *m = NULL;
  heed_scalar value;
  c.kdim = 5;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
  assert_true(heed_module_setting(m, "kdim", &value) && value.as.integer == 5);
  assert_true(heed_module_setting(m, "vdim", &value) && value.as.integer == 6);
  assert_true(heed_module_setting(m, "softcap", &value) && value.as.number == 2);
  assert_true(heed_module_setting(m, "alibi", &value) && value.as.integer == 1);
  assert_true(heed_module_setting(m, "qk_norm", &value) && value.as.integer == 1);
  assert_non_null(heed__module_part(m, "q_norm"));
  assert_non_null(heed__module_part(m, "k_norm"));
  assert_int_equal(heed__module_slot(m, "sinks")->parameter->shape[0], 4);
  heed_tensor *query = NULL, *key = NULL, *of_value = NULL;
  assert_ok(heed_module_head(m, 4, &query, &key, &of_value));
  assert_int_equal(key->shape[0], 5);
  assert_int_equal(of_value->shape[0], 6);
  heed_tensor_free(query);
  heed_tensor_free(key);
  heed_tensor_free(of_value);
  heed_module_release(m);
}

static void weights_may_be_set_after_construction(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const heed_attention_config c = full_config(12);
  heed_module *m = NULL;
  heed_tensor *x = normal(ctx, 3, SHAPE(2, 5, 6)), *y = NULL;
  assert_false(heed_skip_init(ctx, true));
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
  assert_true(heed_skip_init(ctx, false));
  assert_ok(heed_module_forward(m, x, NULL, &y, NULL)); /* all zeros so far */
  for (int64_t i = 0; i < y->numel; i++) assert_true(((float *)(void *)y->data)[i] == 0);
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_module_release(m);
}

static void contradicting_options_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_module *m = NULL;
#define REFUSED(text, ...)                                                                                   \
  do {                                                                                                       \
    heed_attention_config c = config_of(12);                                                                 \
    __VA_ARGS__;                                                                                             \
    assert_fails(ctx, heed_multi_head_attention_new(ctx, NULL, &c, &m), HEED_ARGUMENT,                       \
                 "MultiHeadAttention: " text);                                                               \
    assert_null(m);                                                                                          \
  } while (0)
  REFUSED("kdim is -1; it must be at least 1", c.kdim = -1);
  REFUSED("vdim is -1; it must be at least 1", c.vdim = -1);
  REFUSED("the window's left is -1; it must be at least 0", c.window.has_left = true, c.window.left = -1);
  REFUSED("the window's right is -9; it must be at least 0", c.window.has_right = true, c.window.right = -9);
  REFUSED("softcap is -0.5; it must be above 0, or 0 for none", c.softcap = -0.5);
  REFUSED("softcap is inf; it must be above 0, or 0 for none", c.softcap = INFINITY);
  REFUSED("qk_norm's eps is -1; it must be at least 0, and finite", c.qk_norm = true, c.qk_norm_eps = -1);
#undef REFUSED
  heed_attention_config c = config_of(12);
  c.rope = plain_rope();
  c.head_dim = 3;
  assert_int_equal(heed_multi_head_attention_new(ctx, NULL, &c, &m), HEED_ARGUMENT);
  assert_null(m);
}

/* ---- Failures ---- */

static heed_status make_a_module_and_a_cache(heed_context *ctx) {
  const heed_attention_config c = full_config(12);
  heed_module *m = NULL;
  heed_kv_cache *cache = NULL, *clone = NULL;
  const heed_generator before = *heed_default_generator(ctx);
  heed_status status = heed_multi_head_attention_new(ctx, NULL, &c, &m);
  if (status != HEED_OK) assert_memory_equal(heed_default_generator(ctx), &before, sizeof before);
  const heed_kv_cache_config config = {.size = sizeof config, .batch = 2, .dtype = HEED_INT8};
  if (status == HEED_OK) status = heed_kv_cache_new(m, &config, &cache);
  if (status == HEED_OK) status = heed_kv_cache_clone(cache, &clone);
  heed_kv_cache_free(cache);
  heed_kv_cache_free(clone);
  heed_module_release(m);
  return status;
}

static void constructors_survive_failing_allocations(void **state) {
  (void)state;
  survives_every_failing_allocation(make_a_module_and_a_cache);
}

/* Lets every allocation of one pass or one reordering fail in turn. */
typedef struct trial {
  heed_dtype dtype;
  bool taps, masked, dropout, reorder;
  int64_t context_length, past, added; /* past tokens are added one at a time */
} trial;

static heed_status attempt(const trial *t, heed_module *m, const heed_tensor *x, const heed_tensor *mask,
                           const heed_tensor *padding, const heed_tensor *order, heed_kv_cache *cache,
                           heed_tensor **y) {
  heed_attention_taps taps = {.size = sizeof taps};
  if (t->reorder) return heed_kv_cache_reorder(cache, order);
  const heed_forward_options options = {
      .size = sizeof options, .attn_mask = mask, .key_padding_mask = padding, .cache = cache};
  heed_status status = heed_module_forward(m, x, &options, y, t->taps ? &taps : NULL);
  heed_attention_taps_free(&taps);
  return status;
}

static void try_it(const trial *t) {
  test_memory memory = {0};
  heed_allocator allocator = test_allocator(&memory);
  heed_context *ctx = NULL;
  assert_ok(heed_context_new(&allocator, &ctx));
  heed_attention_config c = full_config(t->context_length);
  if (t->dropout) c.dropout = 0.5;
  heed_module *m = NULL;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
  heed_kv_cache *cache = new_cache(m, t->dtype, 2);
  heed_tensor *x = normal(ctx, 3, SHAPE(2, t->added, 6)), *token = normal(ctx, 3, SHAPE(2, 1, 6));
  heed_tensor *mask = NULL, *padding = NULL, *order = NULL;
  if (t->masked) {
    mask = normal(ctx, 2, SHAPE(t->added, t->past)); /* hides x's own keys */
    assert_ok(heed_full(ctx, HEED_BOOL, 2, SHAPE(2, t->past + t->added), heed_boolean(false), &padding));
  }
  assert_ok(heed_range(ctx, HEED_INT64, heed_integer(2), heed_integer(1), heed_integer(-1), &order));
  for (int64_t i = 0; i < t->past; i++) heed_tensor_free(pass(m, token, cache));

  heed_status status = HEED_MEMORY;
  for (int64_t nth = 1; status != HEED_OK; nth++) {
    heed_tensor *y = NULL;
    heed_kv_cache *before = NULL, *after = NULL;
    assert_ok(heed_kv_cache_clone(cache, &before));
    const heed_generator drawn = *heed_default_generator(ctx);
    memory.calls = 0;
    memory.fail_at = nth;
    const int64_t blocks = memory.blocks;
    status = attempt(t, m, x, mask, padding, order, cache, &y);
    memory.fail_at = 0;
    if (status == HEED_OK) {
      if (!t->reorder) assert_int_equal(heed_kv_cache_length(cache), t->past + t->added);
      heed_tensor_free(y);
      heed_kv_cache_free(before);
      break;
    }
    assert_int_equal(status, HEED_MEMORY);
    assert_null(y);
    assert_int_equal(memory.blocks, blocks);
    assert_memory_equal(heed_default_generator(ctx), &drawn, sizeof drawn);
    assert_int_equal(heed_kv_cache_length(cache), t->past);
    assert_ok(heed_kv_cache_clone(cache, &after));
    heed_module_train(m, false);
    assert_same_caches(m, token, before, after);
    heed_module_train(m, true);
  }
  heed_tensor_free(x);
  heed_tensor_free(token);
  heed_tensor_free(mask);
  heed_tensor_free(padding);
  heed_tensor_free(order);
  heed_kv_cache_free(cache);
  heed_module_release(m);
  heed_context_free(ctx);
  assert_int_equal(memory.blocks, 0);
}

static void a_failing_pass_leaves_the_cache_unchanged(void **state) {
  (void)state;
  for (size_t i = 0; i < DTYPES; i++) {
    for (int way = 0; way < 8; way++) {
      try_it(&(trial){dtypes[i], way & 1, way & 2, way & 4, false, 300, 5, 4});
      try_it(&(trial){dtypes[i], way & 1, way & 2, way & 4, false, 300, 130, 4}); /* rows are moved */
    }
    try_it(&(trial){dtypes[i], true, true, true, false, 300, 2, 200}); /* more than the cache has free rows */
    try_it(&(trial){dtypes[i], false, false, false, true, 300, 140, 1});
  }
}

/* ---- Rows ---- */

/* Token by token, beyond the allocated rows, with truncations in between; against one pass. */
static void passes_of_all_sizes_agree(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const double bounds[] = {2e-6, 0.03, 0.004, 0.05};
  for (size_t i = 0; i < DTYPES; i++) {
    const heed_attention_config c = full_config(1000);
    heed_module *m = NULL;
    assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
    heed_tensor *x = normal(ctx, 3, SHAPE(2, 600, 6)), *whole = NULL;
    assert_ok(heed_module_forward(m, x, NULL, &whole, NULL));
    heed_kv_cache *cache = new_cache(m, dtypes[i], 2);
    uint32_t random = 5;
    for (int64_t at = 0; at < 600;) {
      next_random(&random);
      int64_t count = (random >> 16) % 5 == 0 ? (random >> 20) % 150 : 1 + (random >> 20) % 3;
      if (count > 600 - at) count = 600 - at;
      heed_tensor *part = NULL, *wanted = NULL;
      assert_ok(heed_narrow(ctx, x, 2, at + 1, count, &part));
      assert_ok(heed_narrow(ctx, whole, 2, at + 1, count, &wanted));
      heed_tensor *y = pass(m, part, cache);
      bool close = false;
      assert_ok(heed_allclose(ctx, y, wanted, bounds[i], bounds[i], false, &close));
      assert_true(close);
      heed_tensor_free(part);
      heed_tensor_free(wanted);
      heed_tensor_free(y);
      at += count;
      assert_int_equal(heed_kv_cache_length(cache), at);
      if ((random >> 10) % 4 == 0 && at > 64) {
        at -= (random >> 12) % 64;
        assert_ok(heed_kv_cache_truncate(cache, at));
      }
    }
    heed_kv_cache_free(cache);
    heed_tensor_free(x);
    heed_tensor_free(whole);
    heed_module_release(m);
  }
}

/* The error of an int8 element is at most half a scale. */
static void int8_is_off_by_half_a_scale(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const heed_attention_config c = config_of(40);
  heed_module *m = NULL;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &c, &m));
  static const float factors[] = {1, 1e-20f, 1e-30f, 1e30f, 0};
  for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
    heed_tensor *x = normal(ctx, 3, SHAPE(1, 30, 6));
    for (int64_t i = 0; i < x->numel; i++) ((float *)(void *)x->data)[i] *= factors[f];
    heed_kv_cache *in_int8 = new_cache(m, HEED_INT8, 1), *in_float32 = new_cache(m, HEED_FLOAT32, 1);
    heed_attention_taps a = {.size = sizeof a}, b = {.size = sizeof b};
    heed_tensor *y = NULL, *z = NULL;
    assert_ok(heed_module_forward(
        m, x, &(heed_forward_options){.size = sizeof(heed_forward_options), .cache = in_int8}, &y, &a));
    assert_ok(heed_module_forward(
        m, x, &(heed_forward_options){.size = sizeof(heed_forward_options), .cache = in_float32}, &z, &b));
    for (int part = 0; part < 2; part++) {
      const heed_tensor *got = part == 0 ? a.keys : a.values, *wanted = part == 0 ? b.keys : b.values;
      const float *p = (const float *)(const void *)got->data, *q = (const float *)(const void *)wanted->data;
      for (int64_t row = 0; row < wanted->numel / 4; row++, p += 4, q += 4) {
        float largest = 0;
        for (int i = 0; i < 4; i++) largest = fmaxf(largest, fabsf(q[i]));
        for (int i = 0; i < 4; i++) assert_true(fabsf(p[i] - q[i]) <= largest / 253.9f);
      }
    }
    heed_attention_taps_free(&a);
    heed_attention_taps_free(&b);
    heed_tensor_free(x);
    heed_tensor_free(y);
    heed_tensor_free(z);
    heed_kv_cache_free(in_int8);
    heed_kv_cache_free(in_float32);
  }
  heed_module_release(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_cache_reports_its_sizes),
      TEST(headroom_is_the_number_of_tokens_that_truncate_can_remove),
      TEST(new_cache_refuses_invalid_configs),
      TEST(a_cache_works_only_in_its_context),
      TEST(modules_report_settings_and_parts),
      TEST(weights_may_be_set_after_construction),
      TEST(contradicting_options_are_refused),
      cmocka_unit_test(constructors_survive_failing_allocations),
      cmocka_unit_test(a_failing_pass_leaves_the_cache_unchanged),
      TEST(passes_of_all_sizes_agree),
      TEST(int8_is_off_by_half_a_scale),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
