/* Shapes: text, number of elements, row-major strides, views, broadcasting. */
#include "support.h"

#define COUNT(...) ((int)(sizeof(SHAPE(__VA_ARGS__)) / sizeof(int64_t)))
#define SIZES(...) COUNT(__VA_ARGS__), SHAPE(__VA_ARGS__)

static void shapes_are_formatted_as_lists(void **state) {
  (void)state;
  char text[HEED__SHAPE_TEXT];
  assert_string_equal(heed__shape_text(text, 0, NULL), "[]");
  assert_string_equal(heed__shape_text(text, SIZES(5)), "[5]");
  assert_string_equal(heed__shape_text(text, SIZES(2, 6, 3)), "[2, 6, 3]");
}

static void the_longest_shape_fits_and_longer_ones_are_shortened(void **state) {
  (void)state;
  char text[HEED__SHAPE_TEXT];
  int64_t shape[HEED_MAX_DIMS + 1];
  for (int i = 0; i <= HEED_MAX_DIMS; i++) shape[i] = INT64_MIN;
  heed__shape_text(text, HEED_MAX_DIMS, shape);
  assert_int_equal(text[strlen(text) - 1], ']');
  heed__shape_text(text, HEED_MAX_DIMS + 1, shape);
  assert_string_equal(text + strlen(text) - 6, ", ...]");
}

static void elements_are_counted(void **state) {
  (void)state;
  assert_int_equal(heed__numel(0, NULL, 4), 1);
  assert_int_equal(heed__numel(SIZES(2, 3, 4), 4), 24);
  assert_int_equal(heed__numel(SIZES(2, 0, 4), 4), 0);
}

static void an_overflowing_product_is_reported_even_with_a_size_of_0(void **state) {
  (void)state;
  assert_int_equal(heed__numel(SIZES(INT64_MAX, 2), 1), -1);
  assert_int_equal(heed__numel(SIZES((int64_t)1 << 32, (int64_t)1 << 32), 1), -1);
  assert_int_equal(heed__numel(SIZES((int64_t)1 << 32, 0, (int64_t)1 << 32), 1), -1);
}

/* Larger numbers are rejected, and so are those whose bytes do not fit a size_t. */
static void tensors_are_limited_by_the_address_space(void **state) {
  (void)state;
  for (int64_t bytes = 1; bytes <= 8; bytes *= 2) {
    const int64_t most = PTRDIFF_MAX / bytes, half = most / 2;
    assert_int_equal(heed__numel(SIZES(most), (size_t)bytes), most);
    assert_int_equal(heed__numel(SIZES(half, 2), (size_t)bytes), 2 * half);
    assert_int_equal(heed__numel(SIZES(half + 1, 2), (size_t)bytes), -1);
    assert_int_equal(heed__numel(SIZES(2, most / 2 + 17), (size_t)bytes), -1);
    assert_int_equal(heed__numel(SIZES(4, most / 2 + 17), (size_t)bytes), -1);
  }
}

static void invalid_shapes_are_rejected(void **state) {
  test_context *t = *state;
  heed_context *ctx = t->ctx;
  int64_t ones[HEED_MAX_DIMS + 1];
  for (int i = 0; i <= HEED_MAX_DIMS; i++) ones[i] = 1;
  assert_ok(heed__check_shape(ctx, "zeros", HEED_MAX_DIMS, ones, HEED_BOOL, NULL));
  assert_fails(ctx, heed__check_shape(ctx, "zeros", HEED_MAX_DIMS + 1, ones, HEED_BOOL, NULL), HEED_SHAPE,
               "zeros: the shape has 17 dimensions; it must have 0 to 16");
  assert_fails(ctx, heed__check_shape(ctx, "zeros", -1, ones, HEED_BOOL, NULL), HEED_SHAPE,
               "zeros: the shape has -1 dimensions; it must have 0 to 16");
  assert_fails(ctx, heed__check_shape(ctx, "zeros", 2, NULL, HEED_BOOL, NULL), HEED_ARGUMENT,
               "zeros: the shape is missing (NULL)");
  assert_fails(ctx, heed__check_shape(ctx, "zeros", SIZES(2, -3), HEED_BOOL, NULL), HEED_SHAPE,
               "zeros: the shape is [2, -3]; its sizes must not be negative");
  assert_fails(
      ctx, heed__check_shape(ctx, "zeros", SIZES(INT64_MAX), HEED_FLOAT32, NULL), HEED_SHAPE,
      "zeros: the shape is [9223372036854775807]; its float32 elements must fit in the address space");
  assert_fails(ctx, heed__check_shape(ctx, "zeros", SIZES(1), (heed_dtype)14, NULL), HEED_ARGUMENT,
               "zeros: dtype is 14; it must be a heed_dtype");
}

static void row_major_strides_count_from_the_last_dimension(void **state) {
  (void)state;
  int64_t stride[4];
  heed__row_major(SIZES(2, 3, 4), stride);
  assert_memory_equal(stride, SHAPE(12, 4, 1), 24);
  heed__row_major(SIZES(2, 0, 1, 3), stride); /* a size of 0 counts as 1, as in PyTorch */
  assert_memory_equal(stride, SHAPE(3, 3, 3, 1), 32);
}

/* A header without elements, with this shape and these strides. */
static heed_tensor header(int ndim, const int64_t *shape, const int64_t *stride) {
  heed_tensor x = {.ndim = ndim, .numel = heed__numel(ndim, shape, 1), .dtype = HEED_FLOAT32};
  for (int i = 0; i < ndim; i++) {
    x.shape[i] = shape[i];
    x.stride[i] = stride[i];
  }
  return x;
}

static void a_view_splits_and_joins_evenly_spaced_dimensions(void **state) {
  (void)state;
  int64_t stride[4];
  heed_tensor x = header(SIZES(4, 6), SHAPE(6, 1));
  assert_true(heed__view_strides(&x, SIZES(24), stride));
  assert_memory_equal(stride, SHAPE(1), 8);
  assert_true(heed__view_strides(&x, SIZES(2, 2, 3, 2), stride));
  assert_memory_equal(stride, SHAPE(12, 6, 2, 1), 32);
  assert_true(heed__view_strides(&x, SIZES(8, 3), stride));
  assert_memory_equal(stride, SHAPE(3, 1), 16);
}

static void a_view_of_a_transposed_tensor_may_split_but_not_join(void **state) {
  (void)state;
  int64_t stride[4];
  heed_tensor x = header(SIZES(6, 4), SHAPE(1, 6));
  assert_false(heed__view_strides(&x, SIZES(24), stride));
  assert_false(heed__view_strides(&x, SIZES(4, 6), stride));
  assert_true(heed__view_strides(&x, SIZES(2, 3, 1, 4), stride));
  assert_memory_equal(stride, SHAPE(3, 1, 24, 6), 32);
}

static void a_view_of_every_second_row_keeps_the_rows_apart(void **state) {
  (void)state;
  int64_t stride[4];
  heed_tensor x = header(SIZES(4, 6), SHAPE(12, 1));
  assert_true(heed__view_strides(&x, SIZES(2, 2, 6), stride));
  assert_memory_equal(stride, SHAPE(24, 12, 1), 24);
  assert_false(heed__view_strides(&x, SIZES(24), stride));
}

static void an_expanded_tensor_can_be_split_without_a_copy(void **state) {
  (void)state;
  int64_t stride[4];
  heed_tensor x = header(SIZES(6, 2), SHAPE(0, 1));
  assert_true(heed__view_strides(&x, SIZES(2, 3, 2), stride));
  assert_memory_equal(stride, SHAPE(0, 0, 1), 24);
  assert_false(heed__view_strides(&x, SIZES(12), stride));
}

static void tensors_with_at_most_one_element_can_always_be_viewed(void **state) {
  (void)state;
  int64_t stride[4];
  heed_tensor number = header(0, NULL, NULL), none = header(SIZES(3, 0), SHAPE(1, 7));
  assert_true(heed__view_strides(&number, SIZES(1, 1), stride));
  assert_memory_equal(stride, SHAPE(1, 1), 16);
  heed_tensor one = header(SIZES(1, 1), SHAPE(1, 1));
  assert_true(heed__view_strides(&one, 0, NULL, stride));
  assert_true(heed__view_strides(&none, SIZES(0, 5), stride));
  assert_memory_equal(stride, SHAPE(5, 1), 16);
  assert_true(heed__view_strides(&none, SIZES(3, 0), stride));
  assert_memory_equal(stride, SHAPE(1, 7), 16);
}

static void shapes_broadcast_from_the_last_dimension(void **state) {
  (void)state;
  int64_t shape[HEED_MAX_DIMS];
  int ndim = 0;
  assert_true(heed__broadcast(&ndim, shape, SIZES(3, 1)));
  assert_true(heed__broadcast(&ndim, shape, SIZES(2, 1, 4)));
  assert_true(heed__broadcast(&ndim, shape, SIZES(1)));
  assert_true(heed__broadcast(&ndim, shape, 0, NULL));
  assert_int_equal(ndim, 3);
  assert_memory_equal(shape, SHAPE(2, 3, 4), 24);
}

static void a_size_of_0_broadcasts_only_with_1(void **state) {
  (void)state;
  int64_t shape[HEED_MAX_DIMS];
  int ndim = 0;
  assert_true(heed__broadcast(&ndim, shape, SIZES(1, 2)));
  assert_true(heed__broadcast(&ndim, shape, SIZES(0, 2)));
  assert_false(heed__broadcast(&ndim, shape, SIZES(3, 2)));
  assert_int_equal(shape[0], 0);
}

static void a_failed_broadcast_changes_nothing(void **state) {
  (void)state;
  int64_t shape[HEED_MAX_DIMS];
  int ndim = 0;
  assert_true(heed__broadcast(&ndim, shape, SIZES(3, 1)));
  assert_false(heed__broadcast(&ndim, shape, SIZES(7, 2, 5)));
  assert_int_equal(ndim, 2);
  assert_memory_equal(shape, SHAPE(3, 1), 16);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes_are_formatted_as_lists),
      cmocka_unit_test(the_longest_shape_fits_and_longer_ones_are_shortened),
      cmocka_unit_test(elements_are_counted),
      cmocka_unit_test(an_overflowing_product_is_reported_even_with_a_size_of_0),
      cmocka_unit_test(tensors_are_limited_by_the_address_space),
      TEST(invalid_shapes_are_rejected),
      cmocka_unit_test(row_major_strides_count_from_the_last_dimension),
      cmocka_unit_test(a_view_splits_and_joins_evenly_spaced_dimensions),
      cmocka_unit_test(a_view_of_a_transposed_tensor_may_split_but_not_join),
      cmocka_unit_test(a_view_of_every_second_row_keeps_the_rows_apart),
      cmocka_unit_test(an_expanded_tensor_can_be_split_without_a_copy),
      cmocka_unit_test(tensors_with_at_most_one_element_can_always_be_viewed),
      cmocka_unit_test(shapes_broadcast_from_the_last_dimension),
      cmocka_unit_test(a_size_of_0_broadcasts_only_with_1),
      cmocka_unit_test(a_failed_broadcast_changes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
