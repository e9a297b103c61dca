/* Attention that is recorded and goes backward: the same bits as the unrecorded forward pass, and for any
 * number of threads; sums over what heads share; layouts; failing allocations. The numbers themselves are
 * checked in test_attention_backward_kernels.c and in tests/spec. */
#include "tables.h"

#include <math.h>

/* ---- A call with every option ---- */

enum { INPUTS = 8 };

typedef struct call {
  heed_tensor *x[INPUTS]; /* q, k, v, mask, sinks, slopes, past key, past value; NULL: not given */
  heed_tensor *dy, *lengths;
  heed_attention_options options;
  heed_tensor *y;
  heed_tensor *dx[INPUTS];
} call;

static heed_status normal(heed_context *ctx, int ndim, const int64_t *shape, heed_tensor **out) {
  return heed_normal(ctx, NULL, 0, 1, ndim, shape, out);
}

/* Grouped heads, a mask that is shared by the batch and the heads, and all else that has a gradient. */
static heed_status new_call(heed_context *ctx, call *c, int64_t l, int64_t s, bool past, double dropout) {
  *c = (call){.options = {.size = sizeof c->options}};
  heed_status status = normal(ctx, 4, SHAPE(2, 4, l, 20), &c->x[0]);
  if (!status) status = normal(ctx, 4, SHAPE(2, 2, s, 20), &c->x[1]);
  if (!status) status = normal(ctx, 4, SHAPE(2, 2, s, 12), &c->x[2]);
  if (!status) status = normal(ctx, 2, SHAPE(l, s + (past ? 3 : 0)), &c->x[3]);
  if (!status) status = normal(ctx, 1, SHAPE(4), &c->x[4]);
  if (!status) status = heed_uniform(ctx, NULL, 0.01, 0.1, 1, SHAPE(4), &c->x[5]);
  if (!status && past) status = normal(ctx, 4, SHAPE(2, 2, 3, 20), &c->x[6]);
  if (!status && past) status = normal(ctx, 4, SHAPE(2, 2, 3, 12), &c->x[7]);
  if (!status) status = normal(ctx, 4, SHAPE(2, 4, l, 12), &c->dy);
  c->options.attn_mask = c->x[3];
  c->options.sinks = c->x[4];
  c->options.alibi_slopes = c->x[5];
  c->options.past_key = c->x[6];
  c->options.past_value = c->x[7];
  c->options.softcap = 4;
  c->options.dropout_p = dropout;
  c->options.window = (heed_window){.has_left = true, .left = 150};
  return status;
}

static heed_status run_forward(heed_context *ctx, call *c) {
  return heed_scaled_dot_product_attention(ctx, c->x[0], c->x[1], c->x[2], &c->options, &c->y, NULL);
}

/* Forward and backward; the gradients are new tensors in c->dx. */
static heed_status differentiate(heed_context *ctx, call *c) {
  const heed_tensor *x[INPUTS], *y;
  heed_tensor *dx[INPUTS] = {NULL};
  int count = 0;
  heed_status status = HEED_OK;
  heed_set_recording(ctx, true);
  for (int i = 0; i < INPUTS && !status; i++) {
    if (!c->x[i]) continue;
    status = heed_tensor_require_grad(c->x[i], true);
    x[count++] = c->x[i];
  }
  if (!status) status = run_forward(ctx, c);
  heed_set_recording(ctx, false);
  y = c->y;
  if (!status)
    status = heed_grad(ctx, 1, &y, (const heed_tensor *const[]){c->dy}, count, x, dx,
                       &(heed_backward_options){.size = sizeof(heed_backward_options), .retain_graph = true});
  for (int i = 0, at = 0; i < INPUTS; i++)
    if (c->x[i] && !status) c->dx[i] = dx[at++];
  return status;
}

static void free_call(call *c) {
  for (int i = 0; i < INPUTS; i++) {
    heed_tensor_free(c->x[i]);
    heed_tensor_free(c->dx[i]);
  }
  heed_tensor_free(c->dy);
  heed_tensor_free(c->y);
}

static void assert_same(const heed_tensor *x, const heed_tensor *y) {
  assert_true(heed_tensor_is_contiguous(x) && heed_tensor_is_contiguous(y));
  assert_int_equal(x->numel, y->numel);
  assert_memory_equal(x->data, y->data, (size_t)x->numel * sizeof(float));
}

/* ---- Bits ---- */

static void check_threads(heed_context *ctx) {
  for (int dropout = 0; dropout < 2; dropout++) {
    call one, more;
    heed_generator_seed(heed_default_generator(ctx), 5);
    assert_ok(new_call(ctx, &one, 70, 700, true, dropout ? 0.3 : 0));
    assert_ok(heed_set_num_threads(ctx, 1));
    assert_ok(differentiate(ctx, &one));
    for (int threads = 2; threads < 5; threads++) {
      heed_generator_seed(heed_default_generator(ctx), 5);
      assert_ok(new_call(ctx, &more, 70, 700, true, dropout ? 0.3 : 0));
      assert_ok(heed_set_num_threads(ctx, threads));
      assert_ok(differentiate(ctx, &more));
      for (int i = 0; i < INPUTS; i++) assert_same(one.dx[i], more.dx[i]);
      free_call(&more);
    }
    free_call(&one);
  }
  assert_ok(heed_set_num_threads(ctx, 1));
}

static void the_bits_do_not_depend_on_the_number_of_threads(void **state) {
  (void)state;
  with_every_table(check_threads);
}

static void check_recorded(heed_context *ctx) {
  static const int64_t sizes[][2] = {{5, 7}, {40, 50}, {130, 200}, {20, 600}, {1, 900}, {3, 2}};
  for (int stream = 0; stream < 2; stream++) {
    heed_set_dropout_stream(ctx, stream ? HEED_DROPOUT_MKL : HEED_DROPOUT_NATIVE);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      for (int dropout = 0; dropout < 3; dropout++) {
        unsigned char states[2][HEED_GENERATOR_STATE_BYTES];
        call c;
        assert_ok(new_call(ctx, &c, sizes[i][0], sizes[i][1], false, dropout * 0.5));
        heed_generator_seed(heed_default_generator(ctx), 9);
        assert_ok(run_forward(ctx, &c));
        heed_generator_get_state(heed_default_generator(ctx), states[0]);
        heed_tensor *plain = c.y;
        c.y = NULL;
        heed_generator_seed(heed_default_generator(ctx), 9);
        assert_ok(differentiate(ctx, &c));
        heed_generator_get_state(heed_default_generator(ctx), states[1]);
        assert_same(plain, c.y);
        assert_memory_equal(states[0], states[1], sizeof states[0]);
        heed_tensor_free(plain);
        free_call(&c);
      }
    }
  }
  heed_set_dropout_stream(ctx, HEED_DROPOUT_NATIVE);
}

static void recording_changes_no_bit_of_the_output(void **state) {
  (void)state;
  with_every_table(check_recorded);
}

/* ---- What heads share ---- */

/* Keys and a mask that the batch shares have the sum of the gradients that each item's own copy has. */
static void gradients_are_summed_over_what_broadcasts(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  call c, whole;
  assert_ok(new_call(ctx, &c, 30, 40, false, 0));
  heed_tensor_free(c.x[1]);
  c.x[1] = NULL;
  assert_ok(normal(ctx, 4, SHAPE(1, 2, 40, 20), &c.x[1]));
  assert_ok(differentiate(ctx, &c));
  whole = c;
  memset(whole.dx, 0, sizeof whole.dx);
  whole.y = NULL;
  for (int i = 1; i < 4; i += 2) {
    heed_tensor *view = NULL;
    const int64_t sizes[2][4] = {{2, 2, 40, 20}, {2, 4, 30, 40}};
    assert_ok(heed_tensor_detach(ctx, c.x[i], &view));
    whole.x[i] = NULL;
    heed_tensor *expanded = NULL;
    assert_ok(heed_expand(ctx, view, 4, sizes[i / 2], &expanded));
    assert_ok(heed_clone(ctx, expanded, &whole.x[i]));
    heed_tensor_free(view);
    heed_tensor_free(expanded);
  }
  whole.options.attn_mask = whole.x[3];
  assert_ok(differentiate(ctx, &whole));
  assert_int_equal(c.dx[1]->shape[0], 1);
  assert_int_equal(c.dx[3]->ndim, 2);
  for (int i = 1; i < 4; i += 2) {
    heed_tensor *sum = NULL;
    const int dims[] = {1, 2};
    assert_ok(heed_sum(ctx, whole.dx[i], i == 1 ? 1 : 2, dims, false, &sum));
    for (int64_t j = 0; j < sum->numel; j++) {
      const float a = ((float *)(void *)sum->data)[j], b = ((float *)(void *)c.dx[i]->data)[j];
      assert_true(fabsf(a - b) <= 1e-6f * (1 + fabsf(a)));
    }
    heed_tensor_free(sum);
    heed_tensor_free(whole.x[i]);
    heed_tensor_free(whole.dx[i]);
  }
  for (int i = 0; i < INPUTS; i++)
    if (i != 1 && i != 3) heed_tensor_free(whole.dx[i]);
  heed_tensor_free(whole.y);
  free_call(&c);
}

/* Heads as a module has them: views [b, h, n, d] of [b, n, h · d]. */
static void gradients_of_turned_heads_are_those_of_contiguous_ones(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  call c, turned;
  assert_ok(new_call(ctx, &c, 70, 90, false, 0));
  turned = c;
  for (int i = 0; i < 3; i++) {
    heed_tensor *view = NULL, *rows = NULL;
    assert_ok(heed_transpose(ctx, c.x[i], 2, 3, &view));
    assert_ok(heed_clone(ctx, view, &rows));
    turned.x[i] = NULL;
    assert_ok(heed_transpose(ctx, rows, 2, 3, &turned.x[i]));
    heed_tensor_free(view);
    heed_tensor_free(rows);
  }
  assert_ok(differentiate(ctx, &c));
  assert_ok(differentiate(ctx, &turned));
  for (int i = 0; i < 3; i++) {
    heed_tensor *dx = NULL;
    assert_ok(heed_contiguous(ctx, turned.dx[i], &dx));
    assert_same(c.dx[i], dx);
    heed_tensor_free(dx);
    heed_tensor_free(turned.x[i]);
  }
  for (int i = 0; i < INPUTS; i++) heed_tensor_free(turned.dx[i]);
  heed_tensor_free(turned.y);
  free_call(&c);
}

static void rows_that_see_nothing_and_empty_sizes_have_gradients_of_zero(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const int64_t sizes[][2] = {{5, 7}, {5, 0}, {0, 7}, {0, 0}};
  for (int i = 0; i < 4; i++) {
    call c;
    assert_ok(new_call(ctx, &c, sizes[i][0], sizes[i][1], false, 0));
    for (int64_t j = 0; j < c.x[3]->numel; j++) ((float *)(void *)c.x[3]->data)[j] = -INFINITY;
    assert_ok(differentiate(ctx, &c));
    for (int n = 0; n < 6; n++)
      for (int64_t j = 0; j < c.dx[n]->numel; j++) assert_true(((float *)(void *)c.dx[n]->data)[j] == 0);
    free_call(&c);
  }
}

/* ---- Memory ---- */

static heed_status attend_and_go_back(heed_context *ctx) {
  call c;
  heed_status status = new_call(ctx, &c, 20, 400, true, 0.2);
  if (!status) status = differentiate(ctx, &c);
  if (status) {
    for (int i = 0; i < INPUTS; i++) assert_null(c.dx[i]);
  }
  free_call(&c);
  return status;
}

static void failing_allocations_leave_nothing_behind(void **state) {
  (void)state;
  survives_every_failing_allocation(attend_and_go_back);
}

/* Keys of few heads are divided into ranges, with memory that grows with the length. */
static heed_status one_long_head(heed_context *ctx) {
  call c = {.options = {.size = sizeof c.options}};
  heed_status status = normal(ctx, 2, SHAPE(8, 8), &c.x[0]);
  if (!status) status = normal(ctx, 2, SHAPE(1600, 8), &c.x[1]);
  if (!status) status = normal(ctx, 2, SHAPE(1600, 8), &c.x[2]);
  if (!status) status = normal(ctx, 2, SHAPE(8, 8), &c.dy);
  if (!status) status = differentiate(ctx, &c);
  free_call(&c);
  return status;
}

static void failing_allocations_of_ranges_leave_nothing_behind(void **state) {
  (void)state;
  survives_every_failing_allocation(one_long_head);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_bits_do_not_depend_on_the_number_of_threads),
      cmocka_unit_test(recording_changes_no_bit_of_the_output),
      TEST(gradients_are_summed_over_what_broadcasts),
      TEST(gradients_of_turned_heads_are_those_of_contiguous_ones),
      TEST(rows_that_see_nothing_and_empty_sizes_have_gradients_of_zero),
      cmocka_unit_test(failing_allocations_leave_nothing_behind),
      cmocka_unit_test(failing_allocations_of_ranges_leave_nothing_behind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
