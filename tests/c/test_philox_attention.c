/* Dropout of attention from PHILOX generators: the same on any number of threads, in parts and in slices. */
#include "support.h"

#include <math.h>

static heed_generator *new_philox(heed_context *ctx, uint64_t seed) {
  heed_generator *g = NULL;
  assert_ok(heed_generator_new(ctx, 1, &g));
  heed_generator_reset(g, HEED_PHILOX, seed);
  return g;
}

enum { B = 2, HQ = 4, HKV = 2, L = 150, S = 170, D = 24 };

typedef struct scene {
  heed_tensor *q, *k, *v, *lengths, *packed_q, *packed_k;
} scene;

static void open_scene(scene *s, heed_context *ctx) {
  heed_generator *g = heed_default_generator(ctx);
  *s = (scene){0};
  heed_generator_seed(g, 3);
  assert_ok(heed_normal(ctx, g, 0, 1, 4, SHAPE(B, HQ, L, D), &s->q));
  assert_ok(heed_normal(ctx, g, 0, 1, 4, SHAPE(B, HKV, S, D), &s->k));
  assert_ok(heed_normal(ctx, g, 0, 1, 4, SHAPE(B, HKV, S, D), &s->v));
  assert_ok(heed_normal(ctx, g, 0, 1, 3, SHAPE(90 + 61, HQ, D), &s->packed_q));
  assert_ok(heed_normal(ctx, g, 0, 1, 3, SHAPE(90 + 61, HKV, D), &s->packed_k));
  assert_ok(heed_arange(ctx, HEED_INT64, heed_integer(61), heed_integer(91), heed_integer(29), &s->lengths));
}

static void close_scene(scene *s) {
  heed_tensor *const tensors[] = {s->q, s->k, s->v, s->lengths, s->packed_q, s->packed_k};
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) heed_tensor_free(tensors[i]);
}

static heed_attention_options dropping(heed_generator *g) {
  return (heed_attention_options){
      .size = sizeof(heed_attention_options), .is_causal = true, .dropout_p = 0.4, .generator = g};
}

static heed_tensor *narrow(heed_context *ctx, const heed_tensor *x, int dim, int64_t first, int64_t n) {
  heed_tensor *view = NULL;
  assert_ok(heed_narrow(ctx, x, dim, first, n, &view));
  return view;
}

static void assert_same(heed_context *ctx, const heed_tensor *x, const heed_tensor *y) {
  heed_tensor *a = NULL, *b = NULL;
  assert_int_equal(heed_tensor_numel(x), heed_tensor_numel(y));
  assert_ok(heed_contiguous(ctx, x, &a));
  assert_ok(heed_contiguous(ctx, y, &b));
  assert_memory_equal(heed_tensor_data(a), heed_tensor_data(b), (size_t)heed_tensor_numel(a) * sizeof(float));
  heed_tensor_free(a);
  heed_tensor_free(b);
}

static void assert_close(heed_context *ctx, const heed_tensor *x, const heed_tensor *y) {
  heed_tensor *a = NULL, *b = NULL;
  assert_ok(heed_contiguous(ctx, x, &a));
  assert_ok(heed_contiguous(ctx, y, &b));
  const float *p = heed_tensor_data(a), *r = heed_tensor_data(b);
  for (int64_t i = 0; i < heed_tensor_numel(a); i++)
    if (fabsf(p[i] - r[i]) > 2e-6f)
      fail_msg("element %d is %.9g; it must be %.9g", (int)i + 1, (double)p[i], (double)r[i]);
  heed_tensor_free(a);
  heed_tensor_free(b);
}

static heed_tensor *attend(heed_context *ctx, const scene *s, heed_generator *g) {
  const heed_attention_options options = dropping(g);
  heed_tensor *y = NULL;
  assert_ok(heed_scaled_dot_product_attention(ctx, s->q, s->k, s->v, &options, &y, NULL));
  return y;
}

static void threads_do_not_change_what_is_drawn(void **state) {
  test_context *t = *state;
  scene s;
  heed_tensor *expected = NULL, *packed = NULL;
  open_scene(&s, t->ctx);
  for (int64_t threads = 1; threads <= 4; threads++) {
    heed_generator *g = new_philox(t->ctx, 9);
    assert_ok(heed_set_num_threads(t->ctx, threads));
    heed_tensor *y = attend(t->ctx, &s, g), *z = NULL;
    const heed_attention_options options = dropping(g);
    assert_int_equal(heed_generator_offset(g), 4);
    assert_ok(heed_varlen_attention(t->ctx, s.packed_q, s.packed_k, s.packed_k, s.lengths, NULL, &options, &z,
                                    NULL));
    if (expected == NULL) {
      expected = y;
      packed = z;
    } else {
      assert_same(t->ctx, y, expected);
      assert_same(t->ctx, z, packed);
      heed_tensor_free(y);
      heed_tensor_free(z);
    }
    heed_generator_free(g);
  }
  heed_tensor_free(expected);
  heed_tensor_free(packed);
  close_scene(&s);
}

/* The weights, dropped by heed_dropout, times the values. */
static void it_draws_what_dropout_of_the_weights_would(void **state) {
  test_context *t = *state;
  scene s;
  open_scene(&s, t->ctx);
  heed_generator *g = new_philox(t->ctx, 9), *again = new_philox(t->ctx, 9);
  heed_attention_options plain = dropping(NULL);
  heed_attention_taps taps = {.size = sizeof taps};
  heed_tensor *y = attend(t->ctx, &s, g), *unused = NULL, *dropped = NULL, *v = NULL, *z = NULL;
  plain.dropout_p = 0;
  assert_ok(heed_scaled_dot_product_attention(t->ctx, s.q, s.k, s.v, &plain, &unused, &taps));
  assert_ok(heed_dropout(t->ctx, again, 0.4, taps.weights, &dropped));
  assert_ok(heed_repeat_interleave(t->ctx, s.v, HQ / HKV, 2, &v));
  assert_ok(heed_matmul(t->ctx, dropped, v, &z));
  assert_close(t->ctx, y, z);
  heed_tensor *const tensors[] = {y, unused, dropped, v, z};
  for (int i = 0; i < 5; i++) heed_tensor_free(tensors[i]);
  heed_attention_taps_free(&taps);
  heed_generator_free(g);
  heed_generator_free(again);
  close_scene(&s);
}

/* Heads, rows of queries and blocks of keys, each drawn by a generator with that part. */
static void parts_draw_what_the_whole_would(void **state) {
  test_context *t = *state;
  heed_context *ctx = t->ctx;
  scene s;
  open_scene(&s, ctx);
  heed_generator *g = new_philox(ctx, 9), *part = new_philox(ctx, 9);
  heed_tensor *y = attend(ctx, &s, g);
  for (int64_t h = 1; h <= HKV; h++) { /* a key head with its query heads */
    heed_tensor *q = narrow(ctx, s.q, 2, 2 * h - 1, 2), *k = narrow(ctx, s.k, 2, h, 1),
                *v = narrow(ctx, s.v, 2, h, 1), *wanted = narrow(ctx, y, 2, 2 * h - 1, 2), *z = NULL;
    const heed_attention_options options = dropping(part);
    assert_ok(heed_generator_set_offset(part, 0));
    assert_ok(heed_generator_set_part(part, 4, SHAPE(B, HQ, L, S), SHAPE(1, 2 * h - 1, 1, 1)));
    assert_ok(heed_scaled_dot_product_attention(ctx, q, k, v, &options, &z, NULL));
    assert_same(ctx, z, wanted);
    heed_tensor *const tensors[] = {q, k, v, wanted, z};
    for (int i = 0; i < 5; i++) heed_tensor_free(tensors[i]);
  }
  static const int64_t rows[] = {1, 38, 101, L + 1}, keys[] = {1, 60, 67, S + 1};
  for (int r = 0; r < 3; r++) {
    heed_tensor *q = narrow(ctx, s.q, 3, rows[r], rows[r + 1] - rows[r]), *outs[3] = {NULL},
                *stats[3] = {NULL};
    heed_tensor *wanted = narrow(ctx, y, 3, rows[r], rows[r + 1] - rows[r]);
    heed_tensor *z = NULL, *z_stats = NULL;
    for (int c = 0; c < 3; c++) {
      heed_tensor *k = narrow(ctx, s.k, 3, keys[c], keys[c + 1] - keys[c]),
                  *v = narrow(ctx, s.v, 3, keys[c], keys[c + 1] - keys[c]);
      const heed_attention_options options = dropping(part);
      assert_ok(heed_generator_set_offset(part, 0));
      assert_ok(heed_generator_set_part(part, 4, SHAPE(B, HQ, L, S), SHAPE(1, 1, rows[r], keys[c])));
      assert_ok(heed_attention_partial(ctx, q, k, v, &options, rows[r] - keys[c], &outs[c], &stats[c]));
      heed_tensor_free(k);
      heed_tensor_free(v);
    }
    assert_ok(heed_attention_merge(ctx, 3, (const heed_tensor *const *)outs,
                                   (const heed_tensor *const *)stats, &z, &z_stats));
    assert_close(ctx, z, wanted);
    for (int c = 0; c < 3; c++) {
      heed_tensor_free(outs[c]);
      heed_tensor_free(stats[c]);
    }
    heed_tensor_free(q);
    heed_tensor_free(wanted);
    heed_tensor_free(z);
    heed_tensor_free(z_stats);
  }
  heed_tensor_free(y);
  heed_generator_free(g);
  heed_generator_free(part);
  close_scene(&s);
}

/* Packed sequences draw what they would as padded items. */
static void a_packed_sequence_draws_what_it_would_in_a_padded_batch(void **state) {
  test_context *t = *state;
  heed_context *ctx = t->ctx;
  scene s;
  open_scene(&s, ctx);
  heed_generator *g = new_philox(ctx, 9), *part = new_philox(ctx, 9);
  const heed_attention_options options = dropping(g), one = dropping(part);
  heed_tensor *y = NULL;
  assert_ok(
      heed_varlen_attention(ctx, s.packed_q, s.packed_k, s.packed_k, s.lengths, NULL, &options, &y, NULL));
  static const int64_t first[] = {1, 62}, n[] = {61, 90};
  for (int i = 0; i < 2; i++) {
    heed_tensor *q = narrow(ctx, s.packed_q, 1, first[i], n[i]),
                *k = narrow(ctx, s.packed_k, 1, first[i], n[i]);
    heed_tensor *wanted = narrow(ctx, y, 1, first[i], n[i]), *qh = NULL, *kh = NULL, *z = NULL, *zh = NULL;
    assert_ok(heed_transpose(ctx, q, 1, 2, &qh));
    assert_ok(heed_transpose(ctx, k, 1, 2, &kh));
    heed_tensor *q4 = NULL, *k4 = NULL;
    assert_ok(heed_unsqueeze(ctx, qh, 1, &q4));
    assert_ok(heed_unsqueeze(ctx, kh, 1, &k4));
    assert_ok(heed_generator_set_offset(part, 0));
    assert_ok(heed_generator_set_part(part, 4, SHAPE(2, HQ, 90, 90), SHAPE(i + 1, 1, 1, 1)));
    assert_ok(heed_scaled_dot_product_attention(ctx, q4, k4, k4, &one, &z, NULL));
    assert_ok(heed_transpose(ctx, z, 2, 3, &zh));
    assert_same(ctx, zh, wanted);
    heed_tensor *const tensors[] = {q, k, wanted, qh, kh, q4, k4, z, zh};
    for (int j = 0; j < 9; j++) heed_tensor_free(tensors[j]);
  }
  heed_tensor_free(y);
  heed_generator_free(g);
  heed_generator_free(part);
  close_scene(&s);
}

static heed_status gradient(heed_context *ctx, const scene *s, heed_generator *g, heed_tensor **dx) {
  const heed_attention_options options = dropping(g);
  heed_tensor *x = NULL, *y = NULL;
  heed_status status = heed_clone(ctx, s->q, &x);
  heed_set_recording(ctx, true);
  if (status == HEED_OK) status = heed_tensor_require_grad(x, true);
  if (status == HEED_OK) status = heed_scaled_dot_product_attention(ctx, x, s->k, s->v, &options, &y, NULL);
  heed_set_recording(ctx, false);
  if (status == HEED_OK)
    status = heed_grad(ctx, 1, (const heed_tensor *const[]){y}, (const heed_tensor *const[]){s->q}, 1,
                       (const heed_tensor *const[]){x}, dx, NULL);
  heed_tensor_free(y);
  heed_tensor_free(x);
  return status;
}

/* dq of a part of the heads is that part of dq. */
static void gradients_are_of_the_same_weights(void **state) {
  test_context *t = *state;
  heed_context *ctx = t->ctx;
  scene s, half;
  open_scene(&s, ctx);
  heed_generator *g = new_philox(ctx, 9);
  heed_tensor *whole = NULL, *dx = NULL;
  assert_ok(gradient(ctx, &s, g, &whole));
  assert_ok(heed_set_num_threads(ctx, 3));
  assert_ok(heed_generator_set_offset(g, 0));
  assert_ok(gradient(ctx, &s, g, &dx));
  assert_same(ctx, dx, whole);
  heed_tensor_free(dx);
  dx = NULL;
  half =
      (scene){.q = narrow(ctx, s.q, 2, 3, 2), .k = narrow(ctx, s.k, 2, 2, 1), .v = narrow(ctx, s.v, 2, 2, 1)};
  heed_tensor *wanted = narrow(ctx, whole, 2, 3, 2);
  assert_ok(heed_generator_set_offset(g, 0));
  assert_ok(heed_generator_set_part(g, 4, SHAPE(B, HQ, L, S), SHAPE(1, 3, 1, 1)));
  assert_ok(gradient(ctx, &half, g, &dx));
  assert_same(ctx, dx, wanted);
  heed_tensor_free(dx);
  heed_tensor_free(wanted);
  heed_tensor_free(whole);
  close_scene(&half);
  close_scene(&s);
  heed_generator_free(g);
}

/* ---- Modules, slices, stops ---- */

static heed_module *new_module(heed_context *ctx) {
  heed_attention_config config;
  heed_module *m = NULL;
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = 64;
  config.num_heads = 4;
  config.context_length = 300;
  config.dropout = 0.3;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, &config, &m));
  return m;
}

static void slices_draw_what_one_call_draws(void **state) {
  test_context *t = *state;
  heed_context *ctx = t->ctx;
  heed_module *m = new_module(ctx);
  heed_tensor *x = NULL, *y = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 300, 64), &x));
  heed_generator *g = new_philox(ctx, 5);
  heed_forward_options options = {.size = sizeof options, .generator = g};
  assert_ok(heed_module_forward(m, x, &options, &y, NULL));
  assert_int_equal(heed_generator_offset(g), 4);
  for (int64_t threads = 1; threads <= 2; threads++) {
    heed_steps *steps = NULL;
    heed_tensor *z = NULL;
    bool done = false;
    assert_ok(heed_set_num_threads(ctx, threads));
    assert_ok(heed_generator_set_offset(g, 0));
    assert_ok(heed_steps_new(m, x, &options, false, &steps));
    while (!done) {
      assert_int_equal(heed_generator_offset(g), 0);
      assert_ok(heed_steps_advance(steps, 0, &done));
    }
    assert_int_equal(heed_generator_offset(g), 4);
    assert_ok(heed_steps_result(steps, &z, NULL));
    assert_same(ctx, z, y);
    heed_tensor_free(z);
    heed_steps_free(steps);
  }
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_generator_free(g);
  heed_module_release(m);
}

static void cancel(void *ctx) {
  heed_cancel(ctx);
}

/* Stopped at the first check, a call leaves the generator as it was. */
static void a_stopped_call_draws_nothing(void **state) {
  test_context *t = *state;
  heed_context *ctx = t->ctx;
  scene s;
  open_scene(&s, ctx);
  heed_generator *g = new_philox(ctx, 9);
  const heed_attention_options options = dropping(g);
  heed_tensor *large = NULL, *y = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 1, SHAPE(300000), &large));
  for (int64_t threads = 1; threads <= 2; threads++) {
    assert_ok(heed_set_num_threads(ctx, threads));
    assert_ok(heed_set_poll(ctx, 0, cancel, ctx));
    assert_int_equal(heed_scaled_dot_product_attention(ctx, s.q, s.k, s.v, &options, &y, NULL),
                     HEED_CANCELLED);
    assert_int_equal(heed_dropout(ctx, g, 0.5, large, &y), HEED_CANCELLED);
    assert_int_equal(heed_uniform(ctx, g, 0, 1, 1, SHAPE(300000), &y), HEED_CANCELLED);
    assert_int_equal(heed_normal(ctx, g, 0, 1, 1, SHAPE(300000), &y), HEED_CANCELLED);
    assert_int_equal(heed_randint(ctx, g, 1, 9, 1, SHAPE(300000), &y), HEED_CANCELLED);
    assert_ok(heed_set_poll(ctx, 0, NULL, NULL));
    assert_null(y);
    assert_int_equal(heed_generator_offset(g), 0);
  }
  heed_tensor_free(large);
  heed_generator_free(g);
  close_scene(&s);
}

static heed_status failing_attention(heed_context *ctx) {
  heed_generator *g = NULL, *copy = NULL;
  heed_tensor *x = NULL, *y = NULL;
  heed_status status = heed_generator_new(ctx, 1, &g);
  if (status == HEED_OK) {
    heed_generator_reset(g, HEED_PHILOX, 4);
    const heed_attention_options options = dropping(g);
    status = heed_set_num_threads(ctx, 2);
    if (status == HEED_OK) status = heed_normal(ctx, g, 0, 1, 3, SHAPE(2, 130, 70), &x);
    if (status == HEED_OK) status = heed_generator_clone(g, &copy);
    if (status == HEED_OK) {
      status = heed_scaled_dot_product_attention(ctx, x, x, x, &options, &y, NULL);
      assert_int_equal(heed_generator_offset(g), status == HEED_OK ? 8 : 4);
    }
  }
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_generator_free(g);
  heed_generator_free(copy);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  survives_every_failing_allocation(failing_attention);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(threads_do_not_change_what_is_drawn),
      TEST(it_draws_what_dropout_of_the_weights_would),
      TEST(parts_draw_what_the_whole_would),
      TEST(a_packed_sequence_draws_what_it_would_in_a_padded_batch),
      TEST(gradients_are_of_the_same_weights),
      TEST(slices_draw_what_one_call_draws),
      TEST(a_stopped_call_draws_nothing),
      cmocka_unit_test(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
