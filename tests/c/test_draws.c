/* Draws into given tensors that are not row-major are made in the order of the elements in memory. The
 * numbers themselves are tested in test_random.c and, compared with PyTorch, in tests/spec/fills_spec.lua. */
#include "support.h"

enum { ROWS = 3, COLUMNS = 4, COUNT = ROWS * COLUMNS };

/* A new tensor of zeros [ROWS, COLUMNS], and its transpose. */
static void transposed(heed_context *ctx, heed_dtype dtype, heed_tensor **base, heed_tensor **view) {
  assert_ok(heed_full(ctx, dtype, 2, SHAPE(ROWS, COLUMNS), heed_integer(0), base));
  assert_ok(heed_transpose(ctx, *base, 1, 2, view));
}

static void assert_equal_tensors(const heed_tensor *a, const heed_tensor *b) {
  assert_int_equal(a->numel, b->numel);
  assert_true(heed_tensor_is_contiguous(a) && heed_tensor_is_contiguous(b));
  assert_memory_equal(a->data, b->data, (size_t)a->numel * heed__element_bytes(a->dtype));
}

static void seed(heed_context *ctx) {
  heed_generator_seed(heed_default_generator(ctx), 5);
}

static heed_status uniform_numbers(heed_context *ctx, const int64_t *shape, heed_tensor **out) {
  return heed_uniform(ctx, NULL, -1, 2, 2, shape, out);
}
static heed_status normal_numbers(heed_context *ctx, const int64_t *shape, heed_tensor **out) {
  return heed_normal(ctx, NULL, 1, 2, 2, shape, out);
}
static heed_status integers(heed_context *ctx, const int64_t *shape, heed_tensor **out) {
  return heed_randint(ctx, NULL, 1, 100, 2, shape, out);
}

static const struct {
  heed_status (*draw)(heed_context *ctx, const int64_t *shape, heed_tensor **out);
  heed_dtype dtype;
} draws[] = {{uniform_numbers, HEED_FLOAT32}, {normal_numbers, HEED_FLOAT32}, {integers, HEED_INT64}};

static void a_transposed_tensor_is_filled_in_the_order_of_its_memory(void **state) {
  test_context *t = *state;
  for (size_t i = 0; i < sizeof draws / sizeof draws[0]; i++) {
    heed_tensor *base = NULL, *view = NULL, *wanted = NULL;
    transposed(t->ctx, draws[i].dtype, &base, &view);
    seed(t->ctx);
    assert_ok(draws[i].draw(t->ctx, SHAPE(COLUMNS, ROWS), &view));
    seed(t->ctx);
    assert_ok(draws[i].draw(t->ctx, SHAPE(ROWS, COLUMNS), &wanted));
    assert_equal_tensors(base, wanted);
    heed_tensor_free(wanted);
    heed_tensor_free(view);
    heed_tensor_free(base);
  }
}

static void a_wrong_shape_is_reported_as_given(void **state) {
  test_context *t = *state;
  heed_tensor *base = NULL, *view = NULL;
  transposed(t->ctx, HEED_FLOAT32, &base, &view);
  assert_int_equal(heed_uniform(t->ctx, NULL, 0, 1, 2, SHAPE(ROWS, COLUMNS), &view), HEED_SHAPE);
  assert_non_null(
      strstr(heed_message(t->ctx), "the result is [3, 4] and the tensor that is written is [4, 3]"));
  heed_tensor_free(view);
  heed_tensor_free(base);
}

static void bernoulli_draws_in_the_order_of_its_result(void **state) {
  test_context *t = *state;
  heed_tensor *base = NULL, *view = NULL, *chances = NULL, *transposed_chances = NULL, *wanted = NULL;
  transposed(t->ctx, HEED_FLOAT32, &base, &view);
  assert_ok(heed_uniform(t->ctx, NULL, 0, 1, 2, SHAPE(ROWS, COLUMNS), &chances));
  assert_ok(heed_transpose(t->ctx, chances, 1, 2, &transposed_chances));
  seed(t->ctx);
  assert_ok(heed_bernoulli(t->ctx, NULL, transposed_chances, &view));
  seed(t->ctx);
  assert_ok(heed_bernoulli(t->ctx, NULL, chances, &wanted));
  assert_equal_tensors(base, wanted);
  heed_tensor_free(wanted);
  heed_tensor_free(transposed_chances);
  heed_tensor_free(chances);
  heed_tensor_free(view);
  heed_tensor_free(base);
}

/* This holds for the native stream; the mkl stream is row-major. */
static void dropout_draws_in_the_order_of_its_input(void **state) {
  test_context *t = *state;
  heed_tensor *x = NULL, *view = NULL, *dropped = NULL, *wanted = NULL, *row_major = NULL, *back = NULL;
  transposed(t->ctx, HEED_FLOAT32, &x, &view);
  assert_ok(heed_fill(t->ctx, x, heed_number(1)));
  assert_ok(heed_contiguous(t->ctx, view, &row_major));
  for (int stream = HEED_DROPOUT_NATIVE; stream <= HEED_DROPOUT_MKL; stream++) {
    heed_set_dropout_stream(t->ctx, (heed_dropout_stream)stream);
    heed_tensor *out = NULL;
    assert_ok(heed_full(t->ctx, HEED_FLOAT32, 2, SHAPE(COLUMNS, ROWS), heed_integer(0), &out));
    seed(t->ctx);
    assert_ok(heed_dropout(t->ctx, NULL, 0.5, view, &out));
    seed(t->ctx);
    assert_ok(heed_dropout(t->ctx, NULL, 0.5, view, &dropped));
    assert_true(dropped->stride[0] == 1 && dropped->stride[1] == COLUMNS);
    seed(t->ctx);
    assert_ok(heed_dropout(t->ctx, NULL, 0.5, stream == HEED_DROPOUT_MKL ? row_major : x, &wanted));
    if (stream == HEED_DROPOUT_NATIVE) {
      assert_ok(heed_transpose(t->ctx, dropped, 1, 2, &back));
      assert_equal_tensors(back, wanted);
      heed_tensor_free(back);
      back = NULL;
    } else {
      assert_equal_tensors(out, wanted);
    }
    heed_tensor *same = NULL;
    assert_ok(heed_contiguous(t->ctx, dropped, &same));
    assert_equal_tensors(same, out);
    heed_tensor_free(same);
    heed_tensor_free(out);
    heed_tensor_free(wanted);
    heed_tensor_free(dropped);
    wanted = dropped = NULL;
  }
  heed_tensor_free(row_major);
  heed_tensor_free(view);
  heed_tensor_free(x);
}

/* A failure must leave the elements and the generator unchanged. */
static heed_status draws_into_views(heed_context *ctx) {
  unsigned char before[HEED_GENERATOR_STATE_BYTES], after[HEED_GENERATOR_STATE_BYTES];
  heed_tensor *base = NULL, *rows = NULL, *view = NULL, *dropped = NULL, *tossed = NULL;
  heed_status status = heed_full(ctx, HEED_FLOAT32, 2, SHAPE(5, COLUMNS), heed_number(0.5), &base);
  if (status == HEED_OK) status = heed_narrow(ctx, base, 1, 2, ROWS, &rows);
  if (status == HEED_OK) status = heed_transpose(ctx, rows, 1, 2, &view);
  if (status == HEED_OK) status = heed_slice(ctx, view, 1, 1, COLUMNS, 2, &tossed);
  if (status == HEED_OK) {
    heed_generator_get_state(heed_default_generator(ctx), before);
    status = heed_bernoulli(ctx, NULL, view, &view);
    if (status == HEED_OK) {
      heed_generator_get_state(heed_default_generator(ctx), before);
      status = heed_normal(ctx, NULL, 0, 1, 2, SHAPE(2, ROWS), &tossed);
    }
    if (status == HEED_OK) {
      heed_generator_get_state(heed_default_generator(ctx), before);
      status = heed_dropout(ctx, NULL, 0.5, tossed, &dropped);
    }
    heed_generator_get_state(heed_default_generator(ctx), after);
    if (status != HEED_OK) assert_memory_equal(before, after, sizeof before);
    assert_true((status == HEED_OK) == (dropped != NULL));
  }
  heed_tensor_free(dropped);
  heed_tensor_free(tossed);
  heed_tensor_free(view);
  heed_tensor_free(rows);
  heed_tensor_free(base);
  return status;
}

static void every_allocation_of_a_draw_may_fail(void **state) {
  (void)state;
  survives_every_failing_allocation(draws_into_views);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_transposed_tensor_is_filled_in_the_order_of_its_memory),
      TEST(a_wrong_shape_is_reported_as_given),
      TEST(bernoulli_draws_in_the_order_of_its_result),
      TEST(dropout_draws_in_the_order_of_its_input),
      cmocka_unit_test(every_allocation_of_a_draw_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
