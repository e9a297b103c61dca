/* Packed sequences: attention against a double-precision twin, on every kernel table, with every option; the
 * bits for any number of threads, in slices and with taps; gradients against those of the sequences alone;
 * pack and unpack; bad lengths; failing allocations. */
#include "tables.h"

#include "../../src/attention/attention.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { SEQUENCES = 7, HEADS = 4, KEY_HEADS = 2, SIZE = 20, VALUES = 12, INPUTS = 6 };

/* Empty sequences, single tokens, small and large kernels, several tasks. */
static const int64_t *query_lengths = (const int64_t[SEQUENCES]){3, 0, 17, 1, 40, 800, 5};
static const int64_t *key_lengths = (const int64_t[SEQUENCES]){4, 2, 17, 9, 0, 650, 33};
/* The same with fewer tokens, for calls that are repeated many times. */
static const int64_t few_queries[SEQUENCES] = {3, 0, 17, 1, 20, 60, 5};
static const int64_t few_keys[SEQUENCES] = {4, 2, 17, 9, 0, 70, 33};

static int64_t sum_of(const int64_t *x) {
  int64_t sum = 0;
  for (int i = 0; i < SEQUENCES; i++) sum += x[i];
  return sum;
}

typedef struct packed_call {
  heed_tensor *x[INPUTS]; /* q, k, v, mask, sinks, slopes; NULL: not given */
  heed_tensor *lengths, *key_lengths, *dy;
  heed_attention_options options;
  heed_tensor *y, *dx[INPUTS];
  heed_attention_taps taps;
} packed_call;

/* Bits of the options of a call. */
enum {
  CAUSAL = 1,
  WINDOW = 2,
  CAP = 4,
  BOOLS = 8,
  BIAS = 16,
  SINKS = 32,
  SLOPES = 64,
  DROPS = 128,
  ALL = 256
};

static heed_status lengths_of(heed_context *ctx, const int64_t *x, heed_tensor **out) {
  const heed_status status = heed_tensor_new(ctx, HEED_INT64, 1, SHAPE(SEQUENCES), out);
  if (!status) memcpy((*out)->data, x, SEQUENCES * sizeof *x);
  return status;
}

static heed_status normal(heed_context *ctx, int ndim, const int64_t *shape, heed_tensor **out) {
  return heed_normal(ctx, NULL, 0, 1, ndim, shape, out);
}

static heed_status new_packed(heed_context *ctx, packed_call *c, unsigned how) {
  const int64_t total = sum_of(query_lengths), keys = sum_of(key_lengths);
  heed_tensor *mask = NULL;
  *c = (packed_call){.options = {.size = sizeof c->options}, .taps = {.size = sizeof c->taps}};
  heed_status status = normal(ctx, 3, SHAPE(total, HEADS, SIZE), &c->x[0]);
  if (!status) status = normal(ctx, 3, SHAPE(keys, KEY_HEADS, SIZE), &c->x[1]);
  if (!status) status = normal(ctx, 3, SHAPE(keys, KEY_HEADS, VALUES), &c->x[2]);
  if (!status && how & (BIAS | BOOLS)) status = normal(ctx, 3, SHAPE(HEADS, total, key_lengths[5]), &c->x[3]);
  if (!status && how & BOOLS)
    status = heed_gt(ctx, c->x[3], heed__number_tensor(&(heed__number){0}, heed_number(-0.5)), &mask);
  if (mask) {
    heed_tensor_free(c->x[3]);
    c->x[3] = mask;
  }
  if (!status && how & SINKS) status = normal(ctx, 1, SHAPE(HEADS), &c->x[4]);
  if (!status && how & SLOPES) status = heed_uniform(ctx, NULL, 0.01, 0.1, 1, SHAPE(HEADS), &c->x[5]);
  if (!status) status = lengths_of(ctx, query_lengths, &c->lengths);
  if (!status) status = lengths_of(ctx, key_lengths, &c->key_lengths);
  if (!status) status = normal(ctx, 3, SHAPE(total, HEADS, VALUES), &c->dy);
  c->options.attn_mask = c->x[3];
  c->options.sinks = c->x[4];
  c->options.alibi_slopes = c->x[5];
  c->options.is_causal = how & CAUSAL;
  if (how & WINDOW) c->options.window = (heed_window){true, true, 30, 5};
  if (how & CAP) c->options.softcap = 2;
  if (how & DROPS) c->options.dropout_p = 0.4;
  return status;
}

static void free_packed(packed_call *c) {
  for (int i = 0; i < INPUTS; i++) {
    heed_tensor_free(c->x[i]);
    heed_tensor_free(c->dx[i]);
  }
  heed_tensor *const others[] = {c->lengths, c->key_lengths, c->dy, c->y};
  for (int i = 0; i < 4; i++) heed_tensor_free(others[i]);
  heed_attention_taps_free(&c->taps);
}

static heed_status attend_packed(heed_context *ctx, packed_call *c, bool taps) {
  return heed_varlen_attention(ctx, c->x[0], c->x[1], c->x[2], c->lengths, c->key_lengths, &c->options, &c->y,
                               taps ? &c->taps : NULL);
}

/* ---- The twin ---- */

static float at3(const heed_tensor *x, int64_t i, int64_t j, int64_t k) {
  return ((const float *)(const void *)x->data)[i * x->stride[0] + j * x->stride[1] + k * x->stride[2]];
}
static float at1(const heed_tensor *x, int64_t i) {
  return ((const float *)(const void *)x->data)[i];
}

/* The row of query i of sequence n and head h: its output, weights [650] and log-sum. */
static void twin(const packed_call *c, int n, int64_t i, int64_t h, double *out, double *weights,
                 double *lse) {
  const int64_t l = query_lengths[n], s = key_lengths[n];
  int64_t row = i, key = 0;
  for (int k = 0; k < n; k++) row += query_lengths[k], key += key_lengths[k];
  double most = -INFINITY, sum = 0;
  bool any = false;
  for (int64_t j = 0; j < s; j++) {
    double x = 0;
    const int64_t position = i + s - l;
    for (int64_t d = 0; d < SIZE; d++)
      x += (double)at3(c->x[0], row, h, d) * (double)at3(c->x[1], key + j, h / 2, d);
    x /= sqrt(SIZE);
    if (c->options.softcap > 0) x = c->options.softcap * tanh(x / c->options.softcap);
    if (c->x[5]) x -= (double)at1(c->x[5], h) * fabs((double)(position - j));
    bool visible = !c->options.is_causal || j <= position;
    if (c->options.window.has_left) visible = visible && j >= position - c->options.window.left;
    if (c->options.window.has_right) visible = visible && j <= position + c->options.window.right;
    if (c->x[3] && c->x[3]->dtype == HEED_BOOL)
      visible = visible && c->x[3]->data[h * c->x[3]->stride[0] + row * c->x[3]->stride[1] + j];
    else if (c->x[3])
      x += (double)at3(c->x[3], h, row, j);
    weights[j] = visible ? x : -INFINITY;
    any = any || visible;
    if (visible && x > most) most = x;
  }
  if (any && c->x[4] && (double)at1(c->x[4], h) > most) most = (double)at1(c->x[4], h);
  for (int64_t j = 0; j < s; j++) sum += weights[j] = any ? exp(weights[j] - most) : 0;
  if (any && c->x[4]) sum += exp((double)at1(c->x[4], h) - most);
  *lse = any ? most + log(sum) : -INFINITY;
  for (int64_t j = 0; j < 650; j++) weights[j] = any && j < s ? weights[j] / sum : 0;
  for (int64_t d = 0; d < VALUES; d++) {
    out[d] = 0;
    for (int64_t j = 0; j < s; j++) out[d] += weights[j] * (double)at3(c->x[2], key + j, h / 2, d);
  }
}

static void compare_with_twin(const packed_call *c) {
  static double weights[650];
  double out[VALUES], lse;
  int64_t row = 0;
  for (int n = 0; n < SEQUENCES; n++) {
    const int64_t step = query_lengths[n] > 100 ? 37 : 1; /* a part of the rows of the long one */
    for (int64_t i = 0; i < query_lengths[n]; i += step) {
      for (int64_t h = 0; h < HEADS; h++) {
        twin(c, n, i, h, out, weights, &lse);
        for (int64_t d = 0; d < VALUES; d++)
          assert_true(fabs(out[d] - (double)at3(c->y, row + i, h, d)) <= 3e-6);
        for (int64_t j = 0; j < 650; j++)
          assert_true(fabs(weights[j] - (double)at3(c->taps.weights, h, row + i, j)) <= 2e-6);
        const double found = (double)at1(c->taps.lse, h * c->taps.lse->stride[0] + row + i);
        assert_true(lse == found || fabs(lse - found) <= 5e-6);
      }
    }
    row += query_lengths[n];
  }
}

static void check_twin(heed_context *ctx) {
  static const unsigned how[] = {
      0, CAUSAL, WINDOW, CAP, BOOLS, BIAS, SINKS, CAUSAL | SLOPES, CAUSAL | BOOLS | SINKS | CAP | WINDOW};
  static const heed_taps_wanted wanted = {.size = sizeof wanted, .weights = true, .lse = true};
  for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
    packed_call c;
    assert_ok(new_packed(ctx, &c, how[i]));
    c.options.wanted = &wanted;
    assert_ok(attend_packed(ctx, &c, true));
    compare_with_twin(&c);
    free_packed(&c);
  }
}

static void matches_the_twin_with_every_option(void **state) {
  (void)state;
  with_every_table(check_twin);
}

/* ---- Bits ---- */

static void assert_same(const heed_tensor *x, const heed_tensor *y) {
  assert_int_equal(x->numel, y->numel);
  assert_memory_equal(x->data, y->data, (size_t)x->numel * sizeof(float));
}

static heed_status differentiate_packed(heed_context *ctx, packed_call *c) {
  const heed_tensor *x[INPUTS], *y;
  heed_tensor *dx[INPUTS] = {NULL};
  int count = 0;
  heed_status status = HEED_OK;
  heed_set_recording(ctx, true);
  for (int i = 0; i < INPUTS && !status; i++) {
    if (!c->x[i] || c->x[i]->dtype != HEED_FLOAT32) continue;
    status = heed_tensor_require_grad(c->x[i], true);
    x[count++] = c->x[i];
  }
  if (!status) status = attend_packed(ctx, c, false);
  heed_set_recording(ctx, false);
  y = c->y;
  if (!status) status = heed_grad(ctx, 1, &y, (const heed_tensor *const[]){c->dy}, count, x, dx, NULL);
  for (int i = 0, at = 0; i < INPUTS && !status; i++)
    if (c->x[i] && c->x[i]->dtype == HEED_FLOAT32) c->dx[i] = dx[at++];
  return status;
}

static void check_bits(heed_context *ctx) {
  static const unsigned how[] = {0, CAUSAL | BIAS | SINKS | SLOPES | CAP, DROPS | WINDOW};
  for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
    packed_call one;
    heed_generator_seed(heed_default_generator(ctx), 5);
    assert_ok(heed_set_num_threads(ctx, 1));
    assert_ok(new_packed(ctx, &one, how[i]));
    assert_ok(attend_packed(ctx, &one, false));
    heed_tensor *plain = one.y;
    one.y = NULL;
    free_packed(&one);
    heed_generator_seed(heed_default_generator(ctx), 5);
    assert_ok(new_packed(ctx, &one, how[i]));
    assert_ok(differentiate_packed(ctx, &one));
    assert_same(plain, one.y);
    heed_tensor_free(plain);
    for (int threads = 2; threads < 4; threads++) {
      packed_call more;
      heed_generator_seed(heed_default_generator(ctx), 5);
      assert_ok(heed_set_num_threads(ctx, threads));
      assert_ok(new_packed(ctx, &more, how[i]));
      assert_ok(differentiate_packed(ctx, &more));
      assert_same(one.y, more.y);
      for (int k = 0; k < INPUTS; k++)
        if (one.dx[k]) assert_same(one.dx[k], more.dx[k]);
      free_packed(&more);
    }
    free_packed(&one);
  }
  assert_ok(heed_set_num_threads(ctx, 1));
}

static void bits_depend_neither_on_threads_nor_on_recording(void **state) {
  (void)state;
  with_every_table(check_bits);
}

static void the_result_may_be_an_existing_tensor_or_an_input(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  packed_call c;
  heed_tensor *wide = NULL, *q = NULL;
  assert_ok(new_packed(ctx, &c, CAUSAL));
  assert_ok(attend_packed(ctx, &c, false));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 3, c.y->shape, heed_number(7), &wide));
  heed_tensor *made = c.y;
  c.y = wide;
  assert_ok(attend_packed(ctx, &c, false));
  assert_ptr_equal(c.y, wide);
  assert_same(made, wide);
  const int64_t *n = c.x[0]->shape;
  heed_tensor *same[2] = {NULL};
  const heed_attention_options causal = {.size = sizeof causal, .is_causal = true};
  assert_ok(heed_clone(ctx, c.x[0], &q));
  assert_int_equal(n[2], SIZE);
  assert_ok(heed_varlen_attention(ctx, q, q, q, c.lengths, NULL, &causal, &same[0], NULL));
  assert_ok(heed_varlen_attention(ctx, q, q, q, c.lengths, NULL, &causal, &q, NULL));
  assert_same(same[0], q);
  heed_tensor_free(same[0]);
  heed_tensor_free(made);
  heed_tensor_free(q);
  free_packed(&c);
}

/* ---- Stopping, and memory ---- */

static void a_cancelled_call_leaves_nothing_and_can_be_repeated(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  packed_call c;
  assert_ok(new_packed(ctx, &c, DROPS));
  unsigned char before[HEED_GENERATOR_STATE_BYTES], after[HEED_GENERATOR_STATE_BYTES];
  heed_generator_get_state(heed_default_generator(ctx), before);
  heed_cancel(ctx);
  assert_int_equal(attend_packed(ctx, &c, true), HEED_CANCELLED);
  assert_null(c.y);
  assert_null(c.taps.weights);
  heed_clear_cancel(ctx);
  heed_generator_get_state(heed_default_generator(ctx), after);
  assert_memory_equal(before, after, sizeof before);
  assert_ok(attend_packed(ctx, &c, true));
  free_packed(&c);
}

static heed_status attend_and_return(heed_context *ctx) {
  packed_call c;
  heed_tensor *padded = NULL, *rows = NULL;
  heed_status status = new_packed(ctx, &c, CAUSAL | BIAS | SINKS | SLOPES | DROPS);
  if (!status) status = differentiate_packed(ctx, &c);
  if (!status) status = heed_unpack(ctx, c.x[0], c.lengths, 0, &padded);
  if (!status) status = heed_pack(ctx, padded, c.lengths, &rows);
  if (!status) assert_same(c.x[0], rows);
  heed_tensor_free(c.y);
  c.y = NULL;
  if (!status) status = attend_packed(ctx, &c, true);
  heed_attention_taps_free(&c.taps);
  heed_tensor_free(c.y);
  c.y = NULL;
  heed_set_recording(ctx, true);
  if (!status) status = attend_packed(ctx, &c, true);
  heed_set_recording(ctx, false);
  heed_tensor_free(padded);
  heed_tensor_free(rows);
  free_packed(&c);
  return status;
}

static void failing_allocations_leave_nothing_behind(void **state) {
  const int64_t *const all[] = {query_lengths, key_lengths};
  (void)state;
  query_lengths = few_queries;
  key_lengths = few_keys;
  survives_every_failing_allocation(attend_and_return);
  query_lengths = all[0];
  key_lengths = all[1];
}

/* ---- Modules ---- */

static heed_status forward_packed(heed_context *ctx) {
  heed_rope_config rope;
  heed_attention_config config;
  heed_rope_config_init(&rope, sizeof rope);
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = 8;
  config.num_heads = 2;
  config.context_length = 800;
  config.rope = &rope;
  heed_module *m = NULL;
  heed_steps *steps = NULL;
  heed_tensor *x = NULL, *lengths = NULL, *y = NULL, *z = NULL, *recorded = NULL;
  heed_status status = heed_multi_head_attention_new(ctx, NULL, &config, &m);
  if (!status) status = normal(ctx, 2, SHAPE(sum_of(query_lengths), 8), &x);
  if (!status) status = lengths_of(ctx, query_lengths, &lengths);
  const heed_forward_options options = {.size = sizeof options, .lengths = lengths};
  if (!status) status = heed_module_forward(m, x, &options, &y, NULL);
  if (!status) status = heed_steps_new(m, x, &options, false, &steps);
  for (bool done = false; !status && !done;) status = heed_steps_advance(steps, 0, &done);
  if (!status) status = heed_steps_result(steps, &z, NULL);
  if (!status) assert_same(y, z);
  heed_set_recording(ctx, true);
  if (!status) status = heed_module_forward(m, x, &options, &recorded, NULL);
  heed_set_recording(ctx, false);
  if (!status) assert_same(y, recorded);
  int64_t row = 0;
  for (int i = 0; i < SEQUENCES && !status; i++) {
    heed_tensor *part = NULL, *alone = NULL;
    const int64_t n = query_lengths[i];
    if (n > 0) status = heed_narrow(ctx, x, 1, row + 1, n, &part);
    if (n > 0 && !status) status = heed_module_forward(m, part, NULL, &alone, NULL);
    for (int64_t k = 0; n > 0 && !status && k < n * 8; k++)
      assert_true(fabsf(at1(alone, k) - at1(y, row * 8 + k)) <= 2e-6f);
    heed_tensor_free(part);
    heed_tensor_free(alone);
    row += n;
  }
  heed_steps_free(steps);
  heed_tensor *const made[] = {x, lengths, y, z, recorded};
  for (int i = 0; i < 5; i++) heed_tensor_free(made[i]);
  heed_module_release(m);
  return status;
}

static void modules_give_each_sequence_its_own_result_in_slices_too(void **state) {
  (void)state;
  survives_every_failing_allocation(forward_packed);
}

/* ---- Bad input ---- */

static void wrong_lengths_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = NULL, *t = NULL, *y = NULL, *grid = NULL;
  assert_ok(normal(ctx, 3, SHAPE(5, 2, 4), &x));
  assert_ok(heed_tensor_new(ctx, HEED_INT64, 1, SHAPE(2), &t));
  int64_t *lengths = (int64_t *)(void *)t->data;
  heed_attention_options o = {.size = sizeof o};
#define ATTEND(status, text)                                                                                 \
  assert_fails(ctx, heed_varlen_attention(ctx, x, x, x, t, NULL, &o, &y, NULL), status,                      \
               "varlen_attention: " text)
  lengths[0] = 2, lengths[1] = 2;
  ATTEND(HEED_SHAPE, "lengths add up to 4 and q is [5, 2, 4]; they must add up to 5, its tokens");
  lengths[1] = -2;
  ATTEND(HEED_INDEX, "element 2 of lengths is -2; it must be at least 0");
  lengths[0] = lengths[1] = INT64_MAX;
  ATTEND(HEED_SHAPE,
         "lengths add up to 9223372036854775807 and q is [5, 2, 4]; they must add up to 5, its tokens");
  lengths[0] = 5, lengths[1] = 0;
  o.kv_lengths = t;
  ATTEND(HEED_ARGUMENT, "lengths and kv_lengths are given; give only one of them, because packed sequences "
                        "have no padding and no past");
  o.kv_lengths = NULL;
  o.past_key = o.past_value = x;
  ATTEND(HEED_ARGUMENT,
         "lengths and past_key are given; give only one of them, because packed sequences have "
         "no padding and no past");
  assert_fails(ctx, heed_varlen_attention(ctx, x, x, x, x, NULL, NULL, &y, NULL), HEED_DTYPE,
               "varlen_attention: lengths is float32; it must be int64");
  assert_ok(heed_reshape(ctx, t, 2, SHAPE(1, 2), &grid));
  assert_fails(ctx, heed_pack(ctx, x, grid, &y), HEED_SHAPE,
               "pack: lengths is [1, 2]; it must be [b], one for each sequence");
  assert_fails(ctx, heed_pack(ctx, x, t, &y), HEED_INDEX,
               "pack: element 1 of lengths is 5; it must be at most 2");
  assert_fails(ctx, heed_unpack(ctx, x, t, 4, &y), HEED_INDEX,
               "unpack: element 1 of lengths is 5; it must be at most 4");
  assert_fails(ctx, heed_unpack(ctx, x, t, -1, &y), HEED_ARGUMENT, "unpack: n is -1; it must be at least 0");
  assert_null(y);
  heed_tensor *const made[] = {x, t, grid};
  for (int i = 0; i < 3; i++) heed_tensor_free(made[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(matches_the_twin_with_every_option),
      TEST(bits_depend_neither_on_threads_nor_on_recording),
      TEST(the_result_may_be_an_existing_tensor_or_an_input),
      TEST(a_cancelled_call_leaves_nothing_and_can_be_repeated),
      TEST(failing_allocations_leave_nothing_behind),
      TEST(modules_give_each_sequence_its_own_result_in_slices_too),
      TEST(wrong_lengths_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
