/* What attention over the parts of a sequence on several machines needs of C: masks cut to a part, and what a
 * part contributes to gradients. (As a whole: tests/mpi.) */
#include "support.h"

#include <math.h>

#include "../../src/attention/attention.h"

enum { N = 20, S = 24, CUT = 9, D = 8 };

static heed_status normal(heed_context *ctx, int64_t rows, heed_tensor **out) {
  return heed_normal(ctx, NULL, 0, 1, 4, SHAPE(1, 2, rows, D), out);
}

/* generator NULL: without dropout. */
static heed_attention_options options_of(const heed_mask *mask, heed_generator *generator) {
  return (heed_attention_options){.size = sizeof(heed_attention_options),
                                  .mask = mask,
                                  .softcap = 3,
                                  .dropout_p = generator != NULL ? 0.5 : 0,
                                  .generator = generator};
}

/* The logarithms of the sums of e^score, of statistics [..., 2]. */
static heed_status lse_of(heed_context *ctx, const heed_tensor *stats, heed_tensor **out) {
  const int64_t n = heed_tensor_numel(stats) / 2;
  const heed_status status = heed_full(ctx, HEED_FLOAT32, heed_tensor_ndim(stats) - 1,
                                       heed_tensor_shape(stats), heed_number(0), out);
  if (status != HEED_OK) return status;
  const float *x = heed_tensor_data((heed_tensor *)(uintptr_t)stats);
  float *lse = heed_tensor_data(*out);
  for (int64_t i = 0; i < n; i++) lse[i] = x[2 * i] + logf(x[2 * i + 1]);
  return HEED_OK;
}

/* Adds up the gradients of q, and those of k, of the two parts of the keys. */
static heed_status go_back_in_parts(heed_context *ctx, const heed_tensor *const x[3], heed_mask *mask,
                                    const heed_tensor *dout, heed_tensor *dx[2][HEED__ATTENTION_GRADIENTS],
                                    heed_generator *generator) {
  heed_tensor *out = NULL, *stats = NULL, *lse = NULL, *k = NULL, *v = NULL;
  heed_mask *part = NULL;
  heed_attention_options options = options_of(mask, generator);
  heed_generator *again = NULL;
  heed_status status = HEED_OK;
  if (generator != NULL) status = heed_generator_clone(generator, &again);
  if (status == HEED_OK) status = heed_attention_partial(ctx, x[0], x[1], x[2], &options, 0, &out, &stats);
  if (status == HEED_OK) status = lse_of(ctx, stats, &lse);
  const heed__attention_saved saved = {.out = out, .lse = lse};
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    const int64_t first = i ? CUT : 0, count = i ? S - CUT : CUT;
    const heed__mask_call call = {.l = N, .s = S};
    const heed__mask_part rect = {0, N, first, count, -1};
    status = heed__mask_cut(mask, "test", &call, &rect, true, &part);
    if (status == HEED_OK) status = heed_narrow(ctx, x[1], 3, first + 1, count, &k);
    if (status == HEED_OK) status = heed_narrow(ctx, x[2], 3, first + 1, count, &v);
    heed_generator *own = NULL;
    if (status == HEED_OK && again != NULL) status = heed_generator_clone(again, &own);
    if (status == HEED_OK && own != NULL)
      status = heed_generator_set_part(own, 4, SHAPE(1, 2, N, S), SHAPE(1, 1, 1, first + 1));
    options = options_of(part, own);
    if (status == HEED_OK)
      status = heed__attention_part_backward(ctx, x[0], k, v, &options, -first, &saved, dout, 7u, dx[i]);
    heed_generator_free(own);
    heed_mask_release(part);
    heed_tensor_free(k);
    heed_tensor_free(v);
    part = NULL;
    k = v = NULL;
  }
  heed_generator_free(again);
  heed_tensor *const made[] = {out, stats, lse};
  for (int i = 0; i < 3; i++) heed_tensor_free(made[i]);
  return status;
}

static void free_gradients(heed_tensor *dx[2][HEED__ATTENTION_GRADIENTS]) {
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < HEED__ATTENTION_GRADIENTS; j++) heed_tensor_free(dx[i][j]);
}

static void parts_add_up_to_the_gradients(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int dropout = 0; dropout < 2; dropout++) {
    heed_tensor *x[3] = {NULL}, *dout = NULL, *y = NULL, *lengths = NULL, *wanted[3] = {NULL};
    heed_tensor *dx[2][HEED__ATTENTION_GRADIENTS] = {{NULL}};
    heed_mask *documents = NULL, *causal = NULL, *mask = NULL;
    heed_generator *generator = NULL, *same = NULL;
    for (int i = 0; i < 3; i++) assert_ok(normal(ctx, i ? S : N, &x[i]));
    assert_ok(normal(ctx, N, &dout));
    assert_ok(heed_full(ctx, HEED_INT64, 1, SHAPE(2), heed_integer(S / 2), &lengths));
    assert_ok(heed_mask_documents(ctx, lengths, &documents));
    assert_ok(heed_mask_causal(ctx, &causal));
    assert_ok(heed_mask_both(documents, causal, &mask));
    if (dropout) {
      assert_ok(heed_generator_new(ctx, 3, &generator));
      heed_generator_reset(generator, HEED_PHILOX, 3);
      assert_ok(heed_generator_clone(generator, &same));
    }
    assert_ok(go_back_in_parts(ctx, (const heed_tensor *const *)x, mask, dout, dx, generator));
    const bool before = heed_set_recording(ctx, true);
    for (int i = 0; i < 3; i++) assert_ok(heed_tensor_require_grad(x[i], true));
    const heed_attention_options options = options_of(mask, same);
    assert_ok(heed_scaled_dot_product_attention(ctx, x[0], x[1], x[2], &options, &y, NULL));
    assert_ok(heed_grad(ctx, 1, (const heed_tensor *const[]){y}, (const heed_tensor *const[]){dout}, 3,
                        (const heed_tensor *const *)x, wanted, NULL));
    (void)heed_set_recording(ctx, before);
    const float *dq = heed_tensor_data(wanted[0]), *dk = heed_tensor_data(wanted[1]);
    const float *a = heed_tensor_data(dx[0][0]), *b = heed_tensor_data(dx[1][0]);
    for (int i = 0; i < 2 * N * D; i++) assert_true(fabsf(a[i] + b[i] - dq[i]) < 1e-5f);
    a = heed_tensor_data(dx[1][1]);
    for (int i = 0; i < (S - CUT) * D; i++) assert_true(fabsf(a[i] - dk[CUT * D + i]) < 1e-5f);
    free_gradients(dx);
    heed_tensor *const all[] = {x[0], x[1], x[2], dout, y, lengths, wanted[0], wanted[1], wanted[2]};
    for (int i = 0; i < 9; i++) heed_tensor_free(all[i]);
    heed_mask *const masks[] = {documents, causal, mask};
    for (int i = 0; i < 3; i++) heed_mask_release(masks[i]);
    heed_generator_free(generator);
    heed_generator_free(same);
  }
}

static void tensors_of_another_call_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x[3] = {NULL}, *out = NULL, *lse = NULL, *other = NULL, *dx[HEED__ATTENTION_GRADIENTS];
  for (int i = 0; i < 3; i++) assert_ok(normal(ctx, i ? S : N, &x[i]));
  assert_ok(normal(ctx, N, &out));
  assert_ok(normal(ctx, N - 1, &other));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 3, SHAPE(1, 2, N), heed_number(0), &lse));
  const heed_attention_options options = options_of(NULL, NULL);
  const heed__attention_saved good = {.out = out, .lse = lse}, bad = {.out = out, .lse = out};
  assert_fails(
      ctx, heed__attention_part_backward(ctx, x[0], x[1], x[2], &options, 0, &good, other, 7u, dx),
      HEED_SHAPE,
      "attention_partial: dout is float32 [1, 2, 19, 8]; it must be float32 [1, 2, 20, 8], contiguous");
  assert_fails(ctx, heed__attention_part_backward(ctx, x[0], x[1], x[2], &options, 0, &bad, out, 7u, dx),
               HEED_SHAPE,
               "attention_partial: lse is float32 [1, 2, 20, 8]; it must be float32 [1, 2, 20], contiguous");
  heed_tensor *const all[] = {x[0], x[1], x[2], out, lse, other};
  for (int i = 0; i < 6; i++) heed_tensor_free(all[i]);
}

static heed_status in_parts(heed_context *ctx) {
  heed_tensor *x[3] = {NULL}, *dout = NULL, *lengths = NULL, *dx[2][HEED__ATTENTION_GRADIENTS] = {{NULL}};
  heed_mask *mask = NULL;
  heed_generator *generator = NULL;
  heed_status status = normal(ctx, N, &dout);
  for (int i = 0; i < 3 && status == HEED_OK; i++) status = normal(ctx, i ? S : N, &x[i]);
  if (status == HEED_OK) status = heed_full(ctx, HEED_INT64, 1, SHAPE(2), heed_integer(S / 2), &lengths);
  if (status == HEED_OK) status = heed_mask_documents(ctx, lengths, &mask);
  if (status == HEED_OK) status = heed_generator_new(ctx, 3, &generator);
  if (status == HEED_OK) {
    heed_generator_reset(generator, HEED_PHILOX, 3);
    status = go_back_in_parts(ctx, (const heed_tensor *const *)x, mask, dout, dx, generator);
  }
  free_gradients(dx);
  heed_tensor *const all[] = {x[0], x[1], x[2], dout, lengths};
  for (int i = 0; i < 5; i++) heed_tensor_free(all[i]);
  heed_mask_release(mask);
  heed_generator_free(generator);
  return status;
}

static void memory_may_run_out_anywhere(void **state) {
  (void)state;
  survives_every_failing_allocation(in_parts);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(parts_add_up_to_the_gradients),
      TEST(tensors_of_another_call_are_refused),
      cmocka_unit_test(memory_may_run_out_anywhere),
  };
  return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
