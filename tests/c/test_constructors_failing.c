/* Constructors of modules with each of their allocations failing in turn, and sizes that no memory has. */
#include "failing_fixture.h"

typedef heed_status maker(fixture *f, const heed_attention_config *c, heed_module **out);

#define MAKERS(X)                                                                                            \
  X(linear, heed_linear_new(F, NULL, 3, 4, true, out))                                                       \
  X(dropout, heed_dropout_new(F, 0.5, out))                                                                  \
  X(self, heed_self_attention_new(F, NULL, c, out))                                                          \
  X(causal, heed_causal_attention_new(F, NULL, c, out))                                                      \
  X(wrapper, heed_multi_head_attention_wrapper_new(F, NULL, c, out))                                         \
  X(multi, heed_multi_head_attention_new(F, NULL, c, out))                                                   \
  X(split, heed_module_split(f->multi, out))

#define X(name, expression)                                                                                  \
  static heed_status make_##name(fixture *f, const heed_attention_config *c, heed_module **out) {            \
    (void)c;                                                                                                 \
    return expression;                                                                                       \
  }
MAKERS(X)
#undef X

static void constructors_survive_every_failing_allocation(void **state) {
  (void)state;
#define X(name, ...) make_##name,
  static maker *const makers[] = {MAKERS(X)};
#undef X
  fixture f;
  snapshot before;
  heed_attention_config c;
  open_fixture(&f);
  take(&before, &f);
  heed_attention_config_init(&c, sizeof c);
  c.d_in = 3;
  c.d_out = 36;
  c.context_length = 5;
  c.num_heads = 12; /* more than the list's inline capacity */
  c.qkv_bias = true;
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
    const test_memory start = f.memory;
    heed_module *m = NULL;
    heed_status status = HEED_MEMORY;
    for (int64_t n = 1; status != HEED_OK; n++) {
      f.memory.calls = 0;
      f.memory.fail_at = n;
      status = makers[i](&f, &c, &m);
      f.memory.fail_at = 0;
      if (status == HEED_OK) break;
      assert_int_equal(status, HEED_MEMORY);
      assert_null(m);
      assert_int_equal(f.memory.blocks, start.blocks);
      assert_same(&before, &f); /* in particular, the random stream is unchanged */
    }
    heed_module_release(m);
    restore(&before, &f);
    assert_int_equal(f.memory.blocks, start.blocks);
  }
  drop(&before);
  close_fixture(&f);
}

/* With a 32-bit size_t, the sizes of scratch buffers slightly above 4 GiB would wrap to small ones. The
 * inputs are single elements expanded, which need no memory, and more threads are requested than start. */
static void scratch_buffers_whose_bytes_exceed_size_t_are_rejected(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const heed_limits limits = {.size = sizeof limits, .memory = (size_t)64 << 20};
  heed_tensor *one = NULL, *x = NULL, *out = NULL;
  assert_ok(heed_set_limits(ctx, &limits));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(1, 1), heed_number(1), &one));
  assert_ok(heed_expand(ctx, one, 2, SHAPE(1, (int64_t)1 << 28), &x));
  assert_int_equal(heed_rope(ctx, x, NULL, NULL, &out), HEED_MEMORY);
  assert_null(out);
  heed_tensor_free(x);
  x = NULL;
  assert_ok(heed_expand(ctx, one, 2, SHAPE(1, (int64_t)1 << 20), &x));
  assert_ok(heed_set_num_threads(ctx, HEED_MAX_THREADS));
  const bool has_threads = heed_num_threads(ctx) > 1;
  assert_int_equal(heed_softmax(ctx, x, 2, &out), has_threads ? HEED_MEMORY : HEED_OK);
  assert_int_equal(out == NULL, has_threads);
  heed_tensor_free(out);
  heed_tensor_free(x);
  heed_tensor_free(one);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(constructors_survive_every_failing_allocation),
      TEST(scratch_buffers_whose_bytes_exceed_size_t_are_rejected),
  };
  return cmocka_run_group_tests_name("constructors without memory", tests, NULL, NULL);
}
