/* Tensors: headers and storages, host memory, overlap, single elements. */
#include "support.h"

#include <math.h>

/* ---- Lifetime ---- */

static void a_tensor_is_one_block_with_row_major_elements(void **state) {
  test_context *t = *state;
  heed_tensor *x = NULL;
  assert_ok(heed_tensor_new(t->ctx, HEED_FLOAT32, 3, SHAPE(2, 6, 3), &x));
  assert_int_equal(t->memory.blocks, 2); /* including the context */
  assert_ptr_equal(heed_tensor_context(x), t->ctx);
  assert_int_equal(heed_tensor_dtype(x), HEED_FLOAT32);
  assert_int_equal(heed_tensor_ndim(x), 3);
  assert_int_equal(heed_tensor_numel(x), 36);
  assert_memory_equal(heed_tensor_shape(x), SHAPE(2, 6, 3), 24);
  assert_memory_equal(heed_tensor_stride(x), SHAPE(18, 3, 1), 24);
  assert_true(heed_tensor_is_contiguous(x));
  assert_false(heed_tensor_is_parameter(x));
  assert_int_equal((uintptr_t)heed_tensor_data(x) % HEED__ALIGNMENT, 0);
  memset(heed_tensor_data(x), 0, 36 * sizeof(float));
  heed_tensor_free(x);
}

static void tensors_may_have_no_dimension_or_no_element(void **state) {
  test_context *t = *state;
  heed_tensor *number = NULL, *none = NULL;
  assert_ok(heed_tensor_new(t->ctx, HEED_INT64, 0, NULL, &number));
  assert_int_equal(number->numel, 1);
  assert_ok(heed_tensor_new(t->ctx, HEED_BOOL, 2, SHAPE(2, 0), &none));
  assert_int_equal(none->numel, 0);
  assert_non_null(heed_tensor_data(none));
  assert_true(heed_tensor_is_contiguous(none));
  heed_tensor_free(number);
  heed_tensor_free(none);
  heed_tensor_free(NULL);
}

static void elements_live_as_long_as_the_last_tensor_on_them(void **state) {
  test_context *t = *state;
  heed_tensor *x = NULL, *y = NULL, *z = NULL;
  assert_ok(heed_tensor_new(t->ctx, HEED_FLOAT32, 1, SHAPE(5), &x));
  heed_tensor_set_parameter(x, true);
  assert_ok(heed_tensor_alias(t->ctx, x, &y));
  assert_true(heed_tensor_is_parameter(y));
  heed_tensor view;
  heed__alias_on_stack(&view, y);
  assert_false(view.parameter);
  view.data += 2 * sizeof(float);
  view.shape[0] = view.numel = 3;
  assert_ok(heed__tensor_from_view(t->ctx, "view", &view, &z));
  float *data = heed_tensor_data(x);
  for (int i = 0; i < 5; i++) data[i] = (float)i;
  heed_tensor_free(x);
  heed_tensor_free(y);
  assert_int_equal(((float *)heed_tensor_data(z))[2], 4);
  assert_int_equal(t->memory.blocks, 3); /* the context, the elements, the header of z */
  heed_tensor_free(z);
  assert_int_equal(t->memory.blocks, 1);
}

static void a_tensor_outlives_its_context(void **state) {
  (void)state;
  test_memory memory = {0};
  heed_allocator allocator = test_allocator(&memory);
  heed_context *ctx = NULL;
  heed_tensor *x = NULL, *y = NULL;
  assert_ok(heed_context_new(&allocator, &ctx));
  assert_ok(heed_tensor_new(ctx, HEED_FLOAT32, 1, SHAPE(5), &x));
  heed_context_free(ctx);
  assert_ok(heed_tensor_alias(heed_tensor_context(x), x, &y));
  heed_tensor_free(x);
  heed_tensor_free(y);
  assert_int_equal(memory.blocks, 0);
}

static void invalid_arguments_are_rejected_and_out_is_unchanged(void **state) {
  test_context *t = *state;
  heed_context *ctx = t->ctx;
  heed_tensor *x = NULL;
  assert_fails(ctx, heed_tensor_new(ctx, HEED_FLOAT32, 1, SHAPE(-1), &x), HEED_SHAPE,
               "tensor_new: the shape is [-1]; its sizes must not be negative");
  assert_fails(ctx, heed_tensor_new(ctx, HEED_FLOAT32, 1, SHAPE(1), NULL), HEED_ARGUMENT,
               "tensor_new: out is missing (NULL)");
  assert_int_equal(heed_tensor_new(NULL, HEED_FLOAT32, 1, SHAPE(1), &x), HEED_ARGUMENT);
  assert_fails(ctx, heed_tensor_alias(ctx, NULL, &x), HEED_ARGUMENT, "tensor_alias: x is missing (NULL)");
  assert_null(x);
  assert_ok(heed_tensor_new(ctx, HEED_FLOAT32, 1, SHAPE(1), &x));
  heed_tensor *before = x;
  assert_fails(ctx, heed_tensor_new(ctx, HEED_FLOAT32, 1, SHAPE(1), &x), HEED_ARGUMENT,
               "tensor_new: *out is already a tensor; it must be NULL");
  assert_ptr_equal(x, before);
  heed_tensor_free(x);
}

static void insufficient_memory_is_reported(void **state) {
  test_context *t = *state;
  heed_tensor *x = NULL;
  assert_int_equal(heed_tensor_new(t->ctx, HEED_BOOL, 1, SHAPE(PTRDIFF_MAX), &x), HEED_MEMORY);
  assert_string_equal(heed_message(t->ctx), sizeof(size_t) > 4
                                                ? "tensor_new: out of memory (8.0 EiB requested)"
                                                : "tensor_new: out of memory (2.0 GiB requested)");
  assert_null(x);
}

/* With a 32-bit size_t: 2^30 + 16 floats, whose size would wrap to 64 bytes. */
static void a_tensor_whose_bytes_exceed_size_t_is_rejected(void **state) {
  test_context *t = *state;
  const int64_t wrapped = (int64_t)(SIZE_MAX / sizeof(float)) + 17;
  heed_tensor *x = NULL;
  assert_int_equal(heed_tensor_new(t->ctx, HEED_FLOAT32, 1, SHAPE(wrapped), &x), HEED_SHAPE);
  assert_int_equal(heed_tensor_new(t->ctx, HEED_FLOAT32, 2, SHAPE(2, wrapped / 2), &x), HEED_SHAPE);
  assert_null(x);
}

/* ---- Host memory ---- */

static void count_release(void *user, void *data) {
  int *count = user;
  ++*count;
  *(float *)data = -1;
}

static void host_memory_is_released_with_the_last_tensor(void **state) {
  test_context *t = *state;
  float data[6] = {1, 2, 3, 4, 5, 6};
  int released = 0;
  heed_tensor *x = NULL, *y = NULL;
  assert_ok(
      heed_tensor_from_memory(t->ctx, HEED_FLOAT32, 2, SHAPE(2, 3), data, count_release, &released, &x));
  assert_ptr_equal(heed_tensor_data(x), data);
  assert_ok(heed_tensor_alias(t->ctx, x, &y));
  heed_tensor_free(x);
  assert_int_equal(released, 0);
  heed_tensor_free(y);
  assert_int_equal(released, 1);
  assert_true(data[0] == -1);
}

static void host_memory_must_be_given_and_aligned(void **state) {
  test_context *t = *state;
  int64_t data[2] = {0};
  int released = 0;
  heed_tensor *x = NULL;
  assert_fails(t->ctx,
               heed_tensor_from_memory(t->ctx, HEED_INT64, 1, SHAPE(1), NULL, count_release, &released, &x),
               HEED_ARGUMENT, "tensor_from_memory: data is missing (NULL)");
  assert_int_equal(heed_tensor_from_memory(t->ctx, HEED_INT64, 1, SHAPE(1), (char *)data + 4, count_release,
                                           &released, &x),
                   HEED_ARGUMENT);
  assert_int_equal(
      heed_tensor_from_memory(t->ctx, HEED_INT64, 1, SHAPE(-1), data, count_release, &released, &x),
      HEED_SHAPE);
  assert_int_equal(released, 0);
  assert_ok(heed_tensor_from_memory(t->ctx, HEED_INT64, 1, SHAPE(2), data, NULL, NULL, &x));
  heed_tensor_free(x);
}

static heed_status tensors_come_and_go(heed_context *ctx) {
  float data[4] = {0};
  int released = 0;
  heed_tensor *x = NULL, *y = NULL, *z = NULL;
  heed_status status = heed_tensor_new(ctx, HEED_FLOAT32, 2, SHAPE(3, 4), &x);
  if (status == HEED_OK) status = heed_tensor_alias(ctx, x, &y);
  if (status == HEED_OK) {
    status = heed_tensor_from_memory(ctx, HEED_FLOAT32, 1, SHAPE(4), data, count_release, &released, &z);
    assert_true(status == HEED_OK || z == NULL);
  }
  heed_tensor_free(x);
  heed_tensor_free(z);
  heed_tensor_free(y);
  assert_int_equal(released, status == HEED_OK);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  survives_every_failing_allocation(tensors_come_and_go);
}

/* ---- Layout and overlap ---- */

/* A header for `data`, without ownership. */
static heed_tensor header(void *data, int ndim, const int64_t *shape, const int64_t *stride) {
  heed_tensor x = {.data = data, .dtype = HEED_BOOL, .ndim = ndim, .numel = heed__numel(ndim, shape, 1)};
  for (int i = 0; i < ndim; i++) {
    x.shape[i] = shape[i];
    x.stride[i] = stride[i];
  }
  return x;
}

static void contiguous_is_row_major_without_gaps(void **state) {
  (void)state;
  char data[1];
  heed_tensor rows =
      header(data, 3, SHAPE(2, 1, 3), SHAPE(3, 99, 1)); /* strides of sizes of 1 do not matter */
  assert_true(heed_tensor_is_contiguous(&rows));
  heed_tensor transposed = header(data, 2, SHAPE(3, 2), SHAPE(1, 3));
  assert_false(heed_tensor_is_contiguous(&transposed));
  heed_tensor gaps = header(data, 2, SHAPE(2, 3), SHAPE(4, 1));
  assert_false(heed_tensor_is_contiguous(&gaps));
  heed_tensor none = header(data, 2, SHAPE(0, 3), SHAPE(77, 5));
  assert_true(heed_tensor_is_contiguous(&none));
}

/* Whether two elements of the small tensor x have the same address, by comparing all pairs. */
static bool shares_memory(const heed_tensor *x) {
  bool taken[256] = {false};
  for (int64_t n = 0; n < x->numel; n++) {
    int64_t rest = n, at = 0;
    for (int i = x->ndim - 1; i >= 0; i--) {
      at += rest % x->shape[i] * x->stride[i];
      rest /= x->shape[i];
    }
    if (taken[at]) return true;
    taken[at] = true;
  }
  return false;
}

static void overlap_with_itself_is_always_detected(void **state) {
  (void)state;
  char data[1];
  for (int64_t n = 0; n < 4 * 4 * 4 * 9 * 9 * 9; n++) {
    int64_t shape[3], stride[3], rest = n;
    for (int i = 0; i < 3; i++) {
      shape[i] = rest % 4;
      stride[i] = rest / 4 % 9;
      rest /= 36;
    }
    heed_tensor x = header(data, 3, shape, stride);
    if (shares_memory(&x)) assert_true(heed__overlaps_itself(&x));
  }
}

static void permuted_and_sliced_tensors_do_not_overlap_themselves(void **state) {
  (void)state;
  char data[1];
  heed_tensor permuted = header(data, 3, SHAPE(4, 2, 3), SHAPE(1, 12, 4));
  assert_false(heed__overlaps_itself(&permuted));
  heed_tensor sliced = header(data, 3, SHAPE(2, 2, 1), SHAPE(24, 2, 0));
  assert_false(heed__overlaps_itself(&sliced));
  heed_tensor none = header(data, 2, SHAPE(0, 3), SHAPE(0, 0));
  assert_false(heed__overlaps_itself(&none));
  heed_tensor expanded = header(data, 2, SHAPE(2, 3), SHAPE(0, 1));
  assert_true(heed__overlaps_itself(&expanded));
}

static void tensors_may_overlap_if_their_bytes_do(void **state) {
  (void)state;
  char data[100];
  heed_tensor x = header(data, 2, SHAPE(2, 3), SHAPE(10, 1)); /* bytes 0 to 12 */
  heed_tensor inside = header(data + 5, 1, SHAPE(1), SHAPE(1)),
              last = header(data + 12, 1, SHAPE(4), SHAPE(1)),
              behind = header(data + 13, 1, SHAPE(4), SHAPE(1)), none = header(data, 1, SHAPE(0), SHAPE(1));
  assert_true(heed__may_overlap(&x, &x));
  assert_true(heed__may_overlap(&x, &inside));
  assert_true(heed__may_overlap(&x, &last));
  assert_true(heed__may_overlap(&last, &x));
  assert_false(heed__may_overlap(&x, &behind));
  assert_false(heed__may_overlap(&behind, &x));
  assert_false(heed__may_overlap(&x, &none));
}

static void the_same_view_is_the_same_elements_in_the_same_order(void **state) {
  (void)state;
  char data[10];
  heed_tensor x = header(data, 2, SHAPE(1, 3), SHAPE(3, 1)), y = header(data, 2, SHAPE(1, 3), SHAPE(77, 1)),
              other = header(data, 2, SHAPE(1, 3), SHAPE(3, 2)), flat = header(data, 1, SHAPE(3), SHAPE(1)),
              moved = header(data + 1, 2, SHAPE(1, 3), SHAPE(3, 1));
  assert_true(heed__same_view(&x, &y));
  assert_false(heed__same_view(&x, &other));
  assert_false(heed__same_view(&x, &flat));
  assert_false(heed__same_view(&x, &moved));
}

/* ---- Single elements ---- */

static void dtypes_have_names_and_sizes(void **state) {
  (void)state;
  assert_string_equal(heed_dtype_name(HEED_FLOAT32), "float32");
  assert_string_equal(heed_dtype_name((heed_dtype)(HEED_Q6_K + 1)), "?");
  assert_int_equal(heed__element_bytes(HEED_BOOL), 1);
  assert_int_equal(heed__element_bytes(HEED_INT64), 8);
  assert_int_equal(heed__element_bytes(HEED_FLOAT32), 4);
}

static void every_number_converts_to_int64(void **state) {
  (void)state;
  assert_int_equal(heed__to_int64(2.9), 2);
  assert_int_equal(heed__to_int64(-2.9), -2);
  assert_int_equal(heed__to_int64((double)NAN), 0);
  assert_int_equal(heed__to_int64((double)INFINITY), INT64_MAX);
  assert_int_equal(heed__to_int64((double)-INFINITY), INT64_MIN);
  assert_int_equal(heed__to_int64(0x1p63), INT64_MAX);
  assert_int_equal(heed__to_int64(-0x1p63), INT64_MIN);
  assert_int_equal(heed__to_int64(0x1.fffffffffffffp62), INT64_MAX - 1023);
}

static void elements_are_converted_when_stored(void **state) {
  (void)state;
  uint8_t b;
  int64_t i;
  float f;
  heed__store(HEED_BOOL, &b, heed_number(0.5));
  assert_int_equal(b, 1);
  heed__store(HEED_BOOL, &b, heed_number((double)NAN));
  assert_int_equal(b, 1);
  heed__store(HEED_BOOL, &b, heed_integer(0));
  assert_int_equal(b, 0);
  heed__store(HEED_INT64, &i, heed_number(-7.9));
  assert_int_equal(i, -7);
  heed__store(HEED_INT64, &i, heed_integer(INT64_MAX)); /* not converted through a double */
  assert_int_equal(i, INT64_MAX);
  heed__store(HEED_FLOAT32, &f, heed_integer(3));
  assert_true(f == 3);
  heed__store(HEED_FLOAT32, &f, heed_number(1e300));
  assert_true(f == INFINITY);
  heed__store(HEED_FLOAT32, &f, heed_boolean(true));
  assert_true(f == 1);
}

static void elements_are_loaded_with_their_dtype(void **state) {
  (void)state;
  const uint8_t odd = 2; /* host memory may contain such a bool */
  const int64_t i = INT64_MIN;
  const float f = 0.1f;
  heed_scalar value = heed__load(HEED_BOOL, &odd);
  assert_true(value.dtype == HEED_BOOL && value.as.integer == 1);
  value = heed__load(HEED_INT64, &i);
  assert_true(value.dtype == HEED_INT64 && value.as.integer == INT64_MIN);
  value = heed__load(HEED_FLOAT32, &f);
  assert_true(value.dtype == HEED_FLOAT32 && value.as.number == (double)0.1f);
}

static void a_number_is_a_tensor_of_no_dimension(void **state) {
  (void)state;
  heed__number number;
  const heed_tensor *x = heed__number_tensor(&number, heed_number(2.5));
  assert_int_equal(x->ndim, 0);
  assert_int_equal(x->numel, 1);
  assert_true(heed__load(x->dtype, x->data).as.number == 2.5);
  x = heed__number_tensor(&number, heed_integer(7));
  assert_true(heed__load(x->dtype, x->data).as.integer == 7);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_tensor_is_one_block_with_row_major_elements),
      TEST(tensors_may_have_no_dimension_or_no_element),
      TEST(elements_live_as_long_as_the_last_tensor_on_them),
      cmocka_unit_test(a_tensor_outlives_its_context),
      TEST(invalid_arguments_are_rejected_and_out_is_unchanged),
      TEST(insufficient_memory_is_reported),
      TEST(a_tensor_whose_bytes_exceed_size_t_is_rejected),
      TEST(host_memory_is_released_with_the_last_tensor),
      TEST(host_memory_must_be_given_and_aligned),
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(contiguous_is_row_major_without_gaps),
      cmocka_unit_test(overlap_with_itself_is_always_detected),
      cmocka_unit_test(permuted_and_sliced_tensors_do_not_overlap_themselves),
      cmocka_unit_test(tensors_may_overlap_if_their_bytes_do),
      cmocka_unit_test(the_same_view_is_the_same_elements_in_the_same_order),
      cmocka_unit_test(dtypes_have_names_and_sizes),
      cmocka_unit_test(every_number_converts_to_int64),
      cmocka_unit_test(elements_are_converted_when_stored),
      cmocka_unit_test(elements_are_loaded_with_their_dtype),
      cmocka_unit_test(a_number_is_a_tensor_of_no_dimension),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
