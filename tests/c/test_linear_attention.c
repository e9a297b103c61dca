/* heed_linear_attention and heed_causal_conv as hosts call them: results in given tensors, also in those of
 * the inputs, failing allocations, cancellation, recording. */
#include "support.h"

static heed_tensor *numbers(heed_context *ctx, int ndim, const int64_t *shape, double low, double high) {
  heed_tensor *x = NULL;
  return heed_uniform(ctx, NULL, low, high, ndim, shape, &x) ? NULL : x;
}

typedef struct inputs {
  heed_tensor *q, *k, *v, *decay, *beta, *past;
} inputs;

enum { B = 2, HQ = 4, HKV = 2, N = 70, D = 6, DV = 5 };

static inputs new_inputs(heed_context *ctx) {
  return (inputs){.q = numbers(ctx, 4, SHAPE(B, HQ, N, D), -1, 1),
                  .k = numbers(ctx, 4, SHAPE(B, HKV, N, D), -0.5, 0.5),
                  .v = numbers(ctx, 4, SHAPE(B, HKV, N, DV), -1, 1),
                  .decay = numbers(ctx, 4, SHAPE(B, HKV, N, D), -1, 0),
                  .beta = numbers(ctx, 3, SHAPE(B, 1, N), 0, 1),
                  .past = numbers(ctx, 4, SHAPE(B, HKV, D, DV), -1, 1)};
}

static void free_inputs(inputs *x) {
  heed_tensor *const all[] = {x->q, x->k, x->v, x->decay, x->beta, x->past};
  for (int i = 0; i < 6; i++) heed_tensor_free(all[i]);
}

static heed_linear_attention_options options_of(const inputs *x) {
  return (heed_linear_attention_options){.size = sizeof(heed_linear_attention_options),
                                         .decay = x->decay,
                                         .beta = x->beta,
                                         .past_state = x->past};
}

static void assert_same(heed_context *ctx, const heed_tensor *a, const heed_tensor *b) {
  bool same = false;
  assert_ok(heed_equal(ctx, a, b, &same));
  assert_true(same);
}

/* A tensor of that shape whose last two dimensions are swapped in memory. */
static heed_tensor *turned(heed_context *ctx, int64_t a, int64_t b, int64_t c, int64_t d) {
  heed_tensor *x = NULL, *y = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 4, SHAPE(a, b, d, c), heed_number(7), &x));
  assert_ok(heed_transpose(ctx, x, 3, 4, &y));
  heed_tensor_free(x);
  return y;
}

static void given_results_of_any_strides_receive_the_same_bits(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  inputs x = new_inputs(ctx);
  const heed_linear_attention_options o = options_of(&x);
  heed_tensor *out = NULL, *last = NULL, *alone = NULL, *past = NULL;
  assert_ok(heed_linear_attention(ctx, x.q, x.k, x.v, &o, &out, &last));
  assert_ok(heed_linear_attention(ctx, x.q, x.k, x.v, &o, &alone, NULL));
  assert_same(ctx, out, alone);
  heed_tensor *given = turned(ctx, B, HQ, N, DV), *given_state = turned(ctx, B, HKV, D, DV);
  assert_ok(heed_linear_attention(ctx, x.q, x.k, x.v, &o, &given, &given_state));
  assert_same(ctx, out, given);
  assert_same(ctx, last, given_state);
  /* the state takes the place of the past one */
  assert_ok(heed_clone(ctx, x.past, &past));
  heed_tensor *in_place = x.past;
  assert_ok(heed_linear_attention(ctx, x.q, x.k, x.v, &o, &given, &in_place));
  assert_ptr_equal(in_place, x.past);
  assert_same(ctx, out, given);
  assert_same(ctx, last, x.past);
  assert_ok(heed_copy(ctx, x.past, past));
  /* one that is too small, and two on the same elements */
  heed_tensor *wrong = x.q;
  assert_fails(
      ctx, heed_linear_attention(ctx, x.q, x.k, x.v, &o, &wrong, NULL), HEED_SHAPE,
      "linear_attention: the result is [2, 4, 70, 5] and the tensor that is written is [2, 4, 70, 6]; "
      "the shapes must be equal");
  heed_tensor *rows = NULL, *both = NULL, *part = NULL;
  assert_ok(heed_narrow(ctx, given, 3, 1, D, &rows));
  assert_ok(heed_narrow(ctx, rows, 2, 1, HKV, &part));
  both = given;
  assert_fails(ctx, heed_linear_attention(ctx, x.q, x.k, x.v, &o, &both, &part), HEED_ARGUMENT,
               "linear_attention: out and state share memory; they must be separate tensors");
  heed_tensor *const all[] = {out, last, alone, past, given, given_state, rows, part};
  for (int i = 0; i < 8; i++) heed_tensor_free(all[i]);
  free_inputs(&x);
}

static void a_convolution_fills_given_results(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = numbers(ctx, 3, SHAPE(2, 5, 40), -1, 1), *weight = numbers(ctx, 2, SHAPE(5, 4), -1, 1);
  heed_tensor *past = numbers(ctx, 3, SHAPE(2, 5, 3), -1, 1);
  const heed_causal_conv_options o = {.size = sizeof o, .past_state = past, .silu = true};
  heed_tensor *out = NULL, *last = NULL, *flat = NULL, *given = NULL, *in_place = past, *same = x;
  assert_ok(heed_causal_conv(ctx, x, weight, &o, &out, &last));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 3, SHAPE(2, 40, 5), heed_number(7), &flat));
  assert_ok(heed_transpose(ctx, flat, 2, 3, &given));
  assert_ok(heed_causal_conv(ctx, x, weight, &o, &given, &in_place));
  assert_same(ctx, out, given);
  assert_same(ctx, last, past);
  assert_ok(heed_causal_conv(ctx, x, weight, NULL, &given, NULL));
  assert_ok(heed_causal_conv(ctx, x, weight, NULL, &same, NULL));
  assert_same(ctx, given, x);
  heed_tensor *const all[] = {x, weight, past, out, last, flat, given};
  for (int i = 0; i < 7; i++) heed_tensor_free(all[i]);
}

static void a_cancelled_call_changes_nothing(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  inputs x = new_inputs(ctx);
  const heed_linear_attention_options o = options_of(&x);
  heed_tensor *out = NULL, *past = NULL, *in_place = x.past;
  assert_ok(heed_clone(ctx, x.past, &past));
  heed_cancel(ctx);
  assert_int_equal(heed_linear_attention(ctx, x.q, x.k, x.v, &o, &out, &in_place), HEED_CANCELLED);
  assert_null(out);
  assert_same(ctx, past, x.past);
  heed_tensor_free(past);
  free_inputs(&x);
}

/* ---- Recording ---- */

static heed_status go_backward(heed_context *ctx) {
  inputs x = new_inputs(ctx);
  heed_tensor *out = NULL, *last = NULL, *sums[2] = {NULL}, *loss = NULL;
  heed_tensor *const leaves[] = {x.q, x.k, x.v, x.decay, x.beta, x.past};
  heed_status status = HEED_OK;
  for (int i = 0; i < 6 && !status; i++)
    status = leaves[i] ? heed_tensor_require_grad(leaves[i], true) : HEED_MEMORY;
  (void)heed_set_recording(ctx, true);
  if (!status) {
    const heed_linear_attention_options o = options_of(&x);
    status = heed_linear_attention(ctx, x.q, x.k, x.v, &o, &out, &last);
  }
  if (!status) status = heed_sum(ctx, out, 0, NULL, false, &sums[0]);
  if (!status) status = heed_sum(ctx, last, 0, NULL, false, &sums[1]);
  if (!status) status = heed_add(ctx, sums[0], sums[1], &loss);
  if (!status) status = heed_backward(ctx, 1, (const heed_tensor *const[]){loss}, NULL, NULL);
  if (status) assert_true(!out == !last);
  heed_tensor *const all[] = {out, last, sums[0], sums[1], loss};
  for (int i = 0; i < 5; i++) heed_tensor_free(all[i]);
  free_inputs(&x);
  return status;
}

static heed_status convolve_backward(heed_context *ctx) {
  heed_tensor *x = numbers(ctx, 3, SHAPE(2, 3, 9), -1, 1), *weight = numbers(ctx, 2, SHAPE(3, 4), -1, 1);
  heed_tensor *past = numbers(ctx, 3, SHAPE(2, 3, 3), -1, 1), *bias = numbers(ctx, 1, SHAPE(3), -1, 1);
  heed_tensor *out = NULL, *last = NULL, *loss = NULL;
  heed_tensor *const leaves[] = {x, weight, past, bias};
  heed_status status = HEED_OK;
  for (int i = 0; i < 4 && !status; i++)
    status = leaves[i] ? heed_tensor_require_grad(leaves[i], true) : HEED_MEMORY;
  (void)heed_set_recording(ctx, true);
  const heed_causal_conv_options o = {.size = sizeof o, .bias = bias, .past_state = past, .silu = true};
  if (!status) status = heed_causal_conv(ctx, x, weight, &o, &out, &last);
  if (!status) status = heed_sum(ctx, out, 0, NULL, false, &loss);
  if (!status) status = heed_backward(ctx, 1, (const heed_tensor *const[]){loss}, NULL, NULL);
  if (status) assert_true(!out == !last);
  heed_tensor *const all[] = {x, weight, past, bias, out, last, loss};
  for (int i = 0; i < 7; i++) heed_tensor_free(all[i]);
  return status;
}

static void forward_and_backward_survive_every_failing_allocation(void **state) {
  (void)state;
  survives_every_failing_allocation(go_backward);
  survives_every_failing_allocation(convolve_backward);
}

static void a_state_must_be_new_while_recording(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  inputs x = new_inputs(ctx);
  const heed_linear_attention_options o = options_of(&x);
  heed_tensor *out = NULL, *in_place = x.past;
  (void)heed_set_recording(ctx, true);
  assert_fails(ctx, heed_linear_attention(ctx, x.q, x.k, x.v, &o, &out, &in_place), HEED_ARGUMENT,
               "linear_attention: state is a tensor to write to; it must be new (NULL) while gradients are "
               "recorded");
  assert_null(out);
  free_inputs(&x);
}

/* Expanded tensors of any size fail before memory is touched. */
static void sizes_beyond_memory_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *one = NULL, *wide = NULL, *out = NULL, *last = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 4, SHAPE(1, 1, 1, 1), heed_number(1), &one));
  const int64_t size = INT64_C(1) << (sizeof(size_t) == 4 ? 13 : 25);
  assert_ok(heed_expand(ctx, one, 4, SHAPE(1, 1, 1, size), &wide));
  assert_int_equal(heed_linear_attention(ctx, wide, wide, wide, NULL, &out, &last), HEED_MEMORY);
  assert_null(out);
  assert_null(last);
  heed_tensor_free(one);
  heed_tensor_free(wide);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(given_results_of_any_strides_receive_the_same_bits),
      TEST(a_convolution_fills_given_results),
      TEST(a_cancelled_call_changes_nothing),
      TEST(forward_and_backward_survive_every_failing_allocation),
      TEST(a_state_must_be_new_while_recording),
      TEST(sizes_beyond_memory_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
