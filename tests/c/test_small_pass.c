/* The fast path through small attention modules against the general one, which calls that ask for taps
 * use: the same bits with every kernel table, with input, weights and result between guard pages. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"

#include <math.h>

#include "../../src/nn/nn.h"

static uint32_t seed;
static int64_t below(int64_t n) {
  next_random(&seed);
  return (int64_t)(seed >> 8) % n;
}

static heed_tensor *on_guarded(heed_context *ctx, const guarded *area, int ndim, const int64_t *shape) {
  heed_tensor *x = NULL;
  assert_ok(heed_tensor_from_memory(ctx, HEED_FLOAT32, ndim, shape, area->data, NULL, NULL, &x));
  return x;
}

/* A copy of x between guard pages. */
static heed_tensor *guarded_copy(heed_context *ctx, const heed_tensor *x, bool at_end, guarded *area) {
  *area = guard_bytes((size_t)heed_tensor_numel(x) * sizeof(float), at_end);
  heed_tensor *copy = on_guarded(ctx, area, heed_tensor_ndim(x), heed_tensor_shape(x));
  assert_ok(heed_copy(ctx, copy, x));
  return copy;
}

/* Moves the parameters of m and its parts between guard pages; returns their number. */
static int guard_parameters(heed_context *ctx, heed_module *m, bool at_end, guarded *area) {
  int used = 0;
  heed_entry entry;
  for (int i = 1; heed_module_entry(m, i, &entry); i++) {
    if (entry.kind == HEED_ENTRY_MODULE) {
      used += guard_parameters(ctx, entry.module, at_end, area + used);
      continue;
    }
    heed_tensor *copy = guarded_copy(ctx, entry.parameter, at_end, &area[used++]);
    assert_ok(heed_module_set_parameter(m, entry.name, copy));
    heed_tensor_free(copy);
  }
  return used;
}

static void spoil(heed_tensor *x) {
  static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-40f, -0.0f};
  float *data = heed_tensor_data(x);
  data[below(heed_tensor_numel(x))] = odd[below(7)];
}

static bool same_bits(const heed_tensor *a, const heed_tensor *b) {
  const uint32_t *x = heed_tensor_data(a), *y = heed_tensor_data(b);
  for (int64_t i = 0; i < heed_tensor_numel(a); i++) {
    const bool both_nan = isnan(((const float *)x)[i]) && isnan(((const float *)y)[i]);
    if (x[i] != y[i] && !both_nan) return false;
  }
  return true;
}

static heed_module *some_module(heed_context *ctx, int kind) {
  heed_attention_config config;
  heed_attention_config_init(&config, sizeof config);
  heed_module *m = NULL;
  config.d_in = 1 + below(15);
  config.num_heads = 1 + below(4);
  config.head_dim = 1 + below(15 / config.num_heads);
  config.d_out = config.num_heads * config.head_dim;
  config.context_length = 16;
  config.qkv_bias = below(2);
  if (kind == 0) {
    config.num_kv_heads = config.num_heads % 2 == 0 && below(2) ? config.num_heads / 2 : 0;
    config.causal = below(4) > 0;
    config.out_proj = below(3) > 0;
    config.out_bias = below(2);
    if (config.out_proj) config.d_out = config.num_heads * (1 + below(6));
    if (config.out_proj && config.d_out != config.num_heads * config.head_dim) config.head_dim = 0;
    if (below(3) == 0) config.scale = 0.75;
    assert_ok(heed_multi_head_attention_new(ctx, NULL, &config, &m));
  } else {
    assert_ok((kind == 1 ? heed_causal_attention_new : heed_self_attention_new)(ctx, NULL, &config, &m));
  }
  heed_module_train(m, false);
  return m;
}

static void compare_paths(heed_context *ctx) {
  int taken = 0;
  for (int i = 0; i < 600; i++) {
    heed_module *m = some_module(ctx, i % 3);
    heed_scalar d_in;
    assert_true(heed_module_setting(m, "d_in", &d_in));
    const int64_t shape[] = {1 + below(3), 1 + below(16), d_in.as.integer};
    const bool flat = below(4) == 0;
    guarded area[12];
    heed_tensor *x = NULL, *at = NULL, *wanted = NULL, *into = NULL, *fresh = NULL;
    assert_ok(heed_normal(ctx, NULL, 0, 1, flat ? 2 : 3, flat ? shape + 1 : shape, &x));
    at = guarded_copy(ctx, x, i % 2, &area[0]);
    const int parameters = guard_parameters(ctx, m, i % 2, area + 2);
    if (i % 5 == 0) spoil(at);

    const heed_forward_options none = {.size = sizeof none};
    heed__small_pass pass;
    taken += heed__small_pass_takes(m, at, &none, &pass);
    heed_attention_taps taps = {.size = sizeof taps};
    assert_ok(heed_module_forward(m, at, NULL, &wanted, &taps));
    heed_attention_taps_free(&taps);
    into = guarded_copy(ctx, wanted, i % 2, &area[1]);
    assert_ok(heed_fill(ctx, into, heed_number(-7)));
    assert_ok(heed_module_forward(m, at, NULL, &into, NULL));
    assert_true(same_bits(wanted, into));
    assert_ok(heed_module_forward(m, at, NULL, &fresh, NULL));
    assert_true(same_bits(wanted, fresh));

    heed_tensor *all[] = {x, at, wanted, into, fresh};
    for (int k = 0; k < 5; k++) heed_tensor_free(all[k]);
    heed_module_release(m);
    for (int k = 0; k < parameters + 2; k++) unguard(area[k]);
  }
  assert_true(taken > 100 && taken < 600);
}
static void the_fast_path_gives_the_bits_of_the_general_one(void **state) {
  (void)state;
  seed = 1;
  with_every_table(compare_paths);
}

/* ---- Results written to operands ---- */

static heed_module *square_module(heed_context *ctx) {
  heed_attention_config config;
  heed_attention_config_init(&config, sizeof config);
  heed_module *m = NULL;
  config.d_in = config.d_out = config.context_length = 4;
  config.num_heads = 2;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &config, &m));
  return m;
}

static void the_result_may_be_the_input(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_module *m = square_module(ctx);
  heed_tensor *x = NULL, *wanted = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 4, 4), &x));
  assert_ok(heed_module_forward(m, x, NULL, &wanted, NULL));
  assert_ok(heed_module_forward(m, x, NULL, &x, NULL));
  assert_true(same_bits(wanted, x));
  heed_tensor_free(x);
  heed_tensor_free(wanted);
  heed_module_release(m);
}

static void the_result_may_be_a_weight(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_module *m = square_module(ctx);
  heed_tensor *x = NULL, *wanted = NULL, *weight = NULL;
  heed_entry part, entry;
  assert_true(heed_module_entry(m, 4, &part) && heed_module_entry(part.module, 1, &entry));
  assert_ok(heed_tensor_alias(ctx, entry.parameter, &weight));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(4, 4), &x));
  assert_ok(heed_module_forward(m, x, NULL, &wanted, NULL));
  assert_ok(heed_module_forward(m, x, NULL, &weight, NULL));
  assert_true(same_bits(wanted, weight));
  heed_tensor_free(x);
  heed_tensor_free(wanted);
  heed_tensor_free(weight);
  heed_module_release(m);
}

static void a_failing_allocation_changes_nothing(void **state) {
  test_context *t = *state;
  heed_module *m = square_module(t->ctx);
  heed_tensor *x = NULL, *out = NULL;
  assert_ok(heed_normal(t->ctx, NULL, 0, 1, 2, SHAPE(4, 4), &x));
  t->memory.fail_at = t->memory.calls + 1;
  assert_fails(t->ctx, heed_module_forward(m, x, NULL, &out, NULL), HEED_MEMORY,
               "MultiHeadAttention: out of memory (64 bytes requested)");
  assert_null(out);
  t->memory.fail_at = 0;
  const int64_t calls = t->memory.calls;
  assert_ok(heed_module_forward(m, x, NULL, &out, NULL));
  assert_int_equal(t->memory.calls - calls, 1); /* the output, and nothing else */
  heed_tensor_free(x);
  heed_tensor_free(out);
  heed_module_release(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_fast_path_gives_the_bits_of_the_general_one),
      cmocka_unit_test_setup_teardown(the_result_may_be_the_input, open_context, close_context),
      cmocka_unit_test_setup_teardown(the_result_may_be_a_weight, open_context, close_context),
      cmocka_unit_test_setup_teardown(a_failing_allocation_changes_nothing, open_context, close_context),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
