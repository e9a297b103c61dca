/* Caches whose batch items have different lengths, from C. */
#include "support.h"

#include "../../src/nn/nn.h"

static heed_module *new_module(heed_context *ctx, int64_t window, heed_status *status) {
  static heed_rope_config rope;
  heed_attention_config c;
  heed_module *m = NULL;
  heed_attention_config_init(&c, sizeof c);
  heed_rope_config_init(&rope, sizeof rope);
  c.d_in = 6;
  c.d_out = 8;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 4;
  c.context_length = 300;
  c.rope = &rope;
  c.qk_norm = true;
  if (window > 0) c.window = (heed_window){.has_left = true, .left = window};
  *status = heed_multi_head_attention_new(ctx, NULL, &c, &m);
  return m;
}

static heed_tensor *list_of(heed_context *ctx, int64_t count, const int64_t *values) {
  heed_tensor *list = NULL;
  assert_ok(heed_full(ctx, HEED_INT64, 1, &count, heed_integer(0), &list));
  memcpy(list->data, values, (size_t)count * sizeof *values);
  return list;
}

static int64_t bits; /* of the caches that open_items makes */

typedef struct item_test {
  heed_context *ctx;
  heed_module *m;
  heed_kv_cache *cache;
  heed_tensor *x, *lengths, *order;
} item_test;

static void open_items(item_test *t, heed_context *ctx, int64_t window, heed_dtype dtype, const int64_t *past,
                       const int64_t *added) {
  heed_status status;
  heed_tensor *tokens = NULL, *before = NULL, *y = NULL;
  t->ctx = ctx;
  t->m = new_module(ctx, window, &status);
  assert_ok(status);
  const heed_kv_cache_config config = {.size = sizeof config, .batch = 2, .dtype = dtype, .bits = bits};
  t->cache = NULL;
  assert_ok(heed_kv_cache_new(t->m, &config, &t->cache));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(past[0] + past[1], 6), &tokens));
  before = list_of(ctx, 2, past);
  heed_forward_options options = {.size = sizeof options, .cache = t->cache, .lengths = before};
  assert_ok(heed_module_forward(t->m, tokens, &options, &y, NULL));
  heed_tensor_free(tokens);
  heed_tensor_free(before);
  heed_tensor_free(y);
  t->x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(added[0] + added[1], 6), &t->x));
  t->lengths = list_of(ctx, 2, added);
  t->order = list_of(ctx, 2, SHAPE(2, 1));
}

static void close_items(item_test *t) {
  heed_tensor_free(t->x);
  heed_tensor_free(t->lengths);
  heed_tensor_free(t->order);
  heed_kv_cache_free(t->cache);
  heed_module_release(t->m);
}

static heed_status pass_items(const item_test *t, heed_kv_cache *cache, heed_tensor **y) {
  const heed_forward_options options = {.size = sizeof options, .cache = cache, .lengths = t->lengths};
  return heed_module_forward(t->m, t->x, &options, y, NULL);
}

/* ---- Properties ---- */

static void items_have_lengths_of_their_own(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  item_test t;
  heed_tensor *y = NULL;
  open_items(&t, ctx, 0, HEED_FLOAT32, SHAPE(5, 2), SHAPE(0, 3));
  assert_int_equal(heed_kv_cache_length(t.cache), 5);
  assert_int_equal(heed_kv_cache_lengths(t.cache)[0], 5);
  assert_int_equal(heed_kv_cache_lengths(t.cache)[1], 2);
  assert_int_equal(heed_kv_cache_headroom(t.cache), 295);
  assert_null(heed_kv_cache_lengths(NULL));
  assert_ok(pass_items(&t, t.cache, &y));
  assert_int_equal(heed_kv_cache_lengths(t.cache)[1], 5);
  assert_ok(heed_kv_cache_truncate_items(t.cache, t.order));
  assert_int_equal(heed_kv_cache_length(t.cache), 2);
  assert_ok(heed_kv_cache_reorder(t.cache, t.order));
  assert_int_equal(heed_kv_cache_lengths(t.cache)[0], 1);
  assert_int_equal(heed_kv_cache_lengths(t.cache)[1], 2);
  assert_fails(ctx, heed_kv_cache_truncate_items(t.cache, t.order), HEED_ARGUMENT,
               "truncate: element 1 of lengths is 2; it must be from 0 to 1, the length of that item");
  assert_int_equal(heed_kv_cache_truncate_items(t.cache, t.x), HEED_DTYPE);
  heed_tensor_free(y);
  close_items(&t);
}

/* ---- Failures ---- */

static heed_status make_and_pass(heed_context *ctx) {
  heed_status status;
  heed_tensor *y = NULL, *x = NULL, *lengths = NULL;
  heed_kv_cache *cache = NULL, *clone = NULL;
  heed_module *m = new_module(ctx, 3, &status);
  const heed_kv_cache_config config = {.size = sizeof config, .batch = 2, .dtype = HEED_INT8};
  if (status == HEED_OK) status = heed_kv_cache_new(m, &config, &cache);
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 2, SHAPE(8, 6), &x);
  if (status == HEED_OK) status = heed_full(ctx, HEED_INT64, 1, SHAPE(2), heed_integer(4), &lengths);
  const heed_forward_options options = {.size = sizeof options, .cache = cache, .lengths = lengths};
  if (status == HEED_OK) status = heed_module_forward(m, x, &options, &y, NULL);
  if (status == HEED_OK) ((int64_t *)(void *)lengths->data)[1] = 2;
  if (status == HEED_OK) status = heed_kv_cache_truncate_items(cache, lengths);
  if (status == HEED_OK) status = heed_kv_cache_clone(cache, &clone);
  if (status == HEED_OK)
    status = heed_kv_cache_reorder(clone, lengths->numel == 2 ? lengths : NULL) == HEED_INDEX ? HEED_OK
                                                                                              : HEED_ARGUMENT;
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_tensor_free(lengths);
  heed_kv_cache_free(cache);
  heed_kv_cache_free(clone);
  heed_module_release(m);
  return status;
}

static void everything_survives_failing_allocations(void **state) {
  (void)state;
  survives_every_failing_allocation(make_and_pass);
}

/* A pass or a reordering that fails at each of its allocations in turn changes no item. */
static void try_items(int64_t window, heed_dtype dtype, const int64_t *past, const int64_t *added,
                      bool reorders) {
  test_memory memory = {0};
  heed_allocator allocator = test_allocator(&memory);
  heed_context *ctx = NULL;
  item_test t;
  assert_ok(heed_context_new(&allocator, &ctx));
  open_items(&t, ctx, window, dtype, past, added);
  heed_kv_cache *before = NULL;
  heed_tensor *y = NULL, *wanted = NULL;
  assert_ok(heed_kv_cache_clone(t.cache, &before));
  heed_status status = HEED_MEMORY;
  for (int64_t nth = 1; status != HEED_OK; nth++) {
    memory.calls = 0;
    memory.fail_at = nth;
    const int64_t blocks = memory.blocks;
    status = reorders ? heed_kv_cache_reorder(t.cache, t.order) : pass_items(&t, t.cache, &y);
    memory.fail_at = 0;
    if (status == HEED_OK) break;
    assert_int_equal(status, HEED_MEMORY);
    assert_null(y);
    assert_int_equal(memory.blocks, blocks);
    for (int i = 0; i < 2; i++) assert_int_equal(heed_kv_cache_lengths(t.cache)[i], past[i]);
  }
  if (reorders) {
    assert_ok(heed_kv_cache_reorder(before, t.order));
    assert_ok(pass_items(&t, t.cache, &y));
  }
  assert_ok(pass_items(&t, before, &wanted)); /* what the failures left is what was there before */
  assert_memory_equal(y->data, wanted->data, (size_t)y->numel * sizeof(float));
  heed_tensor_free(y);
  heed_tensor_free(wanted);
  heed_kv_cache_free(before);
  close_items(&t);
  heed_context_free(ctx);
  assert_int_equal(memory.blocks, 0);
}

static void a_failing_pass_changes_no_item(void **state) {
  static const heed_dtype dtypes[] = {HEED_FLOAT32, HEED_BFLOAT16, HEED_INT8, HEED_INT8}; /* the last: int4 */
  (void)state;
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    bits = i == 3 ? 4 : 0;
    try_items(0, dtypes[i], SHAPE(40, 7), SHAPE(2, 9), false);
    try_items(0, dtypes[i], SHAPE(40, 7), SHAPE(2, 9), true);
    try_items(3, dtypes[i], SHAPE(131, 7), SHAPE(2, 9), false); /* rows of the first item move */
    try_items(3, dtypes[i], SHAPE(20, 7), SHAPE(2, 200), false);
    try_items(3, dtypes[i], SHAPE(131, 7), SHAPE(1, 1), true);
  }
  bits = 0;
}

/* Token by token, with rows that move at different times, and truncations; against a cache for each item. */
static void items_agree_with_caches_of_their_own(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int64_t window = 0; window < 10; window += 5) {
    item_test t;
    open_items(&t, ctx, window, HEED_FLOAT32, SHAPE(0, 0), SHAPE(0, 0));
    heed_kv_cache *single[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) assert_ok(heed_kv_cache_new(t.m, NULL, &single[i]));
    uint32_t random = 3;
    for (int step = 0; step < 300; step++) {
      next_random(&random);
      int64_t added[2] = {(random >> 16) % 4, (random >> 20) % 3};
      for (int i = 0; i < 2; i++)
        if (window == 0) added[i] = heed__min(added[i], 300 - heed_kv_cache_lengths(t.cache)[i]);
      heed_tensor *x = NULL, *y = NULL, *lengths = list_of(ctx, 2, added);
      assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(added[0] + added[1], 6), &x));
      heed_forward_options options = {.size = sizeof options, .cache = t.cache, .lengths = lengths};
      assert_ok(heed_module_forward(t.m, x, &options, &y, NULL));
      for (int i = 0; i < 2; i++) {
        heed_tensor *part = NULL, *got = NULL, *wanted = NULL;
        bool close = false;
        if (added[i] == 0) continue;
        assert_ok(heed_narrow(ctx, x, 1, i * added[0] + 1, added[i], &part));
        assert_ok(heed_narrow(ctx, y, 1, i * added[0] + 1, added[i], &got));
        options = (heed_forward_options){.size = sizeof options, .cache = single[i]};
        assert_ok(heed_module_forward(t.m, part, &options, &wanted, NULL));
        assert_ok(heed_allclose(ctx, got, wanted, 1e-6, 1e-6, false, &close));
        assert_true(close);
        heed_tensor_free(part);
        heed_tensor_free(got);
        heed_tensor_free(wanted);
      }
      if (step % 17 == 16) {
        int64_t left[2];
        for (int i = 0; i < 2; i++) {
          left[i] = heed__max(heed_kv_cache_lengths(t.cache)[i] - (i + 1) * 3, 0);
          assert_ok(heed_kv_cache_truncate(single[i], left[i]));
        }
        heed_tensor *to = list_of(ctx, 2, left);
        assert_ok(heed_kv_cache_truncate_items(t.cache, to));
        heed_tensor_free(to);
      }
      heed_tensor_free(x);
      heed_tensor_free(y);
      heed_tensor_free(lengths);
    }
    for (int i = 0; i < 2; i++) heed_kv_cache_free(single[i]);
    close_items(&t);
  }
}

/* ---- Prefixes ---- */

/* A pass over a shared prefix, apart or, with taps, joined to each item. */
static heed_status pass_after_prefix(heed_context *ctx, bool taps, int64_t window) {
  heed_status status;
  heed_tensor *x = NULL, *y = NULL;
  heed_kv_cache *prefix = NULL, *cache = NULL, *clone = NULL;
  heed_attention_taps found = {.size = sizeof found};
  heed_module *m = new_module(ctx, window, &status);
  if (status == HEED_OK) status = heed_kv_cache_new(m, NULL, &prefix);
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 2, SHAPE(9, 6), &x);
  heed_forward_options options = {.size = sizeof options, .cache = prefix};
  if (status == HEED_OK) status = heed_module_forward(m, x, &options, &y, NULL);
  heed_tensor_free(x);
  x = NULL;
  heed_tensor_free(y);
  y = NULL;
  const heed_kv_cache_config config = {
      .size = sizeof config, .batch = 2, .dtype = HEED_FLOAT32, .prefix = prefix};
  if (status == HEED_OK) status = heed_kv_cache_new(m, &config, &cache);
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 3, 6), &x);
  options.cache = cache;
  if (status == HEED_OK) {
    status = heed_module_forward(m, x, &options, &y, taps ? &found : NULL);
    assert_int_equal(heed_kv_cache_length(cache), status == HEED_OK ? 12 : 9);
  }
  if (status == HEED_OK) status = heed_kv_cache_clone(cache, &clone);
  if (status == HEED_OK) {
    assert_int_equal(heed_kv_cache_lengths(clone)[1], 12);
    assert_ok(heed_kv_cache_truncate(prefix, 4)); /* then over the shared rows */
    heed_tensor *part = NULL;
    status = heed_narrow(ctx, x, 1, 1, 1, &part);
    options.cache = prefix;
    heed_tensor_free(y);
    y = NULL;
    if (status == HEED_OK) status = heed_module_forward(m, part, &options, &y, NULL);
    assert_int_equal(heed_kv_cache_length(prefix), status == HEED_OK ? 7 : 4);
    heed_tensor_free(part);
  }
  heed_attention_taps_free(&found);
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_kv_cache_free(prefix);
  heed_kv_cache_free(cache);
  heed_kv_cache_free(clone);
  heed_module_release(m);
  return status;
}

static heed_status pass_apart(heed_context *ctx) {
  return pass_after_prefix(ctx, false, 0);
}
static heed_status pass_joined(heed_context *ctx) {
  return pass_after_prefix(ctx, true, 0);
}
static heed_status pass_with_window(heed_context *ctx) {
  return pass_after_prefix(ctx, false, 6);
}

static void prefixes_survive_failing_allocations(void **state) {
  (void)state;
  survives_every_failing_allocation(pass_apart);
  survives_every_failing_allocation(pass_joined);
  survives_every_failing_allocation(pass_with_window);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(items_have_lengths_of_their_own),
      cmocka_unit_test(everything_survives_failing_allocations),
      cmocka_unit_test(a_failing_pass_changes_no_item),
      TEST(items_agree_with_caches_of_their_own),
      cmocka_unit_test(prefixes_survive_failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
