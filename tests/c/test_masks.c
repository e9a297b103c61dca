/* Operations that select elements by masks, in guarded memory, against references that copy one element after
 * another: all bits must be equal. */
#define _DEFAULT_SOURCE /* mmap */
#include "guarded.h"

static const int64_t SIZES[] = {0, 1, 3, 7, 15, 16, 17, 31, 33, 64, 100, 333};
#define SIZE_COUNT (sizeof SIZES / sizeof SIZES[0])
static const heed_dtype DTYPES[] = {HEED_BOOL, HEED_INT64, HEED_FLOAT32, HEED_BFLOAT16};
static const size_t BYTES[] = {1, 8, 4, 2};
enum { OF_TENSORS = 3, OF_MASKED = 4 }; /* where does not take storage dtypes */

static uint32_t state_of_bits = 1;

static uint8_t any_byte(void) {
  next_random(&state_of_bits);
  return (uint8_t)(state_of_bits >> 24);
}

/* n elements, `step` apart (0: one for all), in guarded memory: the first lies where that begins, or the last
 * one where it ends. */
typedef struct row {
  guarded area;
  heed_tensor *tensor;
  char *first;
  size_t step; /* in bytes */
} row;

static row any_row(heed_context *ctx, int dtype, int64_t n, int64_t step, bool at_end) {
  const int64_t elements = step == 0 ? 1 : n, gap = step == 0 ? 1 : step;
  const size_t bytes = BYTES[dtype], bytes_in_all = (size_t)(elements * gap) * bytes;
  row r = {.area = guard_bytes(bytes_in_all, at_end), .step = (size_t)step * bytes};
  heed_tensor *all = NULL;
  for (size_t i = 0; i < bytes_in_all; i++) ((uint8_t *)r.area.data)[i] = any_byte() & (dtype == 0 ? 1 : 255);
  assert_ok(
      heed_tensor_from_memory(ctx, DTYPES[dtype], 2, SHAPE(elements, gap), r.area.data, NULL, NULL, &all));
  assert_ok(heed_select(ctx, all, 2, at_end ? gap : 1, &r.tensor));
  heed_tensor_free(all);
  r.first = (char *)r.area.data + (at_end ? (size_t)(gap - 1) * bytes : 0);
  return r;
}

/* Half of it false; true is any byte but 0. */
static row any_mask(heed_context *ctx, int64_t n, int64_t step, bool at_end) {
  const row r = any_row(ctx, 0, n, step, at_end);
  const int64_t elements = step == 0 ? 1 : n;
  for (int64_t i = 0; i < elements; i++)
    r.first[(size_t)i * r.step] = any_byte() & 1 ? 0 : (char)(any_byte() | 1 << i % 8);
  return r;
}

static void row_free(row r) {
  heed_tensor_free(r.tensor);
  unguard(r.area);
}

static char *element(const row *r, int64_t i) {
  return r->first + (size_t)i * r->step;
}

static void where_copies_every_bit_and_reads_only_its_inputs(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (size_t s = 0; s < SIZE_COUNT; s++) {
    for (int variant = 0; variant < OF_TENSORS * 27 * 2 * 3; variant++) {
      const int64_t n = SIZES[s];
      const int dtype = variant % OF_TENSORS, steps = variant / OF_TENSORS % 27;
      const bool at_end = variant / (OF_TENSORS * 27) % 2;
      const int target = variant / (OF_TENSORS * 27 * 2); /* 0: a new one, 1: over a, 2: over b */
      const size_t bytes = BYTES[dtype];
      const row mask = any_mask(ctx, n, steps % 3, at_end);
      const row a = any_row(ctx, dtype, n, steps / 3 % 3, at_end);
      const row b = any_row(ctx, dtype, n, steps / 9, at_end);
      if ((target == 1 && a.step == 0) || (target == 2 && b.step == 0) ||
          (mask.step == 0 && a.step == 0 && b.step == 0)) {
        row_free(mask), row_free(a), row_free(b);
        continue;
      }
      char wanted[333 * 8];
      for (int64_t i = 0; i < n; i++)
        memcpy(wanted + (size_t)i * bytes, *element(&mask, i) ? element(&a, i) : element(&b, i), bytes);
      heed_tensor *out = target == 1 ? a.tensor : target == 2 ? b.tensor : NULL;
      assert_ok(heed_where(ctx, mask.tensor, a.tensor, b.tensor, &out));
      const char *found = target == 1 ? a.first : target == 2 ? b.first : heed_tensor_data(out);
      const size_t step = target == 1 ? a.step : target == 2 ? b.step : bytes;
      for (int64_t i = 0; i < n; i++)
        assert_memory_equal(found + (size_t)i * step, wanted + (size_t)i * bytes, bytes);
      if (target == 0) heed_tensor_free(out);
      row_free(mask), row_free(a), row_free(b);
    }
  }
}

static void masked_select_copies_every_bit_and_writes_only_its_result(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (size_t s = 0; s < SIZE_COUNT; s++) {
    for (int variant = 0; variant < OF_MASKED * 8 * 2; variant++) {
      const int64_t n = SIZES[s];
      const int dtype = variant % OF_MASKED, steps = variant / OF_MASKED % 8;
      const bool at_end = variant / (OF_MASKED * 8);
      const row mask = any_mask(ctx, n, 1 + steps % 2, at_end),
                x = any_row(ctx, dtype, n, 1 + steps / 2 % 2, at_end);
      int64_t count = 0;
      for (int64_t i = 0; i < n; i++) count += *element(&mask, i) != 0;
      const row list = any_row(ctx, dtype, count, 1 + steps / 4, at_end);
      heed_tensor *out = list.tensor;
      assert_ok(heed_masked_select(ctx, x.tensor, mask.tensor, &out));
      int64_t next = 0;
      for (int64_t i = 0; i < n; i++)
        if (*element(&mask, i)) assert_memory_equal(element(&list, next++), element(&x, i), BYTES[dtype]);
      row_free(mask), row_free(x), row_free(list);
    }
  }
}

static void masked_assign_changes_no_other_element(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (size_t s = 0; s < SIZE_COUNT; s++) {
    for (int variant = 0; variant < OF_MASKED * 12 * 2; variant++) {
      const int64_t n = SIZES[s];
      const int dtype = variant % OF_MASKED, steps = variant / OF_MASKED % 12;
      const bool at_end = variant / (OF_MASKED * 12);
      const size_t bytes = BYTES[dtype];
      const row mask = any_mask(ctx, n, 1 + steps % 2, at_end),
                x = any_row(ctx, dtype, n, 1 + steps / 2 % 2, at_end);
      int64_t count = 0, next = 0;
      for (int64_t i = 0; i < n; i++) count += *element(&mask, i) != 0;
      const row list = any_row(ctx, dtype, count, steps / 4, at_end);
      char wanted[333 * 8 * 2];
      const size_t bytes_in_all = (size_t)n * x.step;
      memcpy(wanted, x.area.data, bytes_in_all);
      for (int64_t i = 0; i < n; i++)
        if (*element(&mask, i))
          memcpy(wanted + (element(&x, i) - (char *)x.area.data), element(&list, next++), bytes);
      assert_ok(heed_masked_assign(ctx, x.tensor, mask.tensor, list.tensor));
      assert_memory_equal(x.area.data, wanted, bytes_in_all);
      row_free(mask), row_free(x), row_free(list);
    }
  }
}

static void an_integer_is_true_if_any_bit_is_set(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  int64_t number[64 + 1] = {0};
  heed_tensor *x = NULL, *truth = NULL;
  for (int i = 0; i < 64; i++) number[i] = (int64_t)((uint64_t)1 << i);
  assert_ok(heed_tensor_from_memory(ctx, HEED_INT64, 1, SHAPE(65), number, NULL, NULL, &x));
  assert_ok(heed_to(ctx, x, HEED_BOOL, &truth));
  const uint8_t *found = heed_tensor_data(truth);
  for (int i = 0; i < 65; i++) assert_int_equal(found[i], i < 64);
  heed_tensor_free(truth);
  heed_tensor_free(x);
}

static void signs_of_integers_agree_with_a_branching_reference(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static int64_t a[] = {0, 1, -1, 7, -7, 8, -8, INT64_MAX, INT64_MIN, INT64_MIN + 1};
  static int64_t b[] = {1, -1, 2, -2, 3, -3, 7, -7, INT64_MAX, INT64_MIN};
  heed_tensor *x = NULL, *column = NULL, *y = NULL, *out = NULL;
  assert_ok(heed_tensor_from_memory(ctx, HEED_INT64, 1, SHAPE(10), a, NULL, NULL, &x));
  assert_ok(heed_tensor_from_memory(ctx, HEED_INT64, 2, SHAPE(10, 1), b, NULL, NULL, &column));
  assert_ok(heed_abs(ctx, x, &out));
  for (int i = 0; i < 10; i++)
    assert_true(((int64_t *)heed_tensor_data(out))[i] == (a[i] < 0 && a[i] != INT64_MIN ? -a[i] : a[i]));
  assert_ok(heed_relu(ctx, x, &out));
  for (int i = 0; i < 10; i++) assert_true(((int64_t *)heed_tensor_data(out))[i] == (a[i] < 0 ? 0 : a[i]));
  assert_ok(heed_remainder(ctx, x, column, &y));
  for (int i = 0; i < 100; i++) {
    const int64_t by = b[i / 10], rest = by == -1 ? 0 : a[i % 10] % by;
    const int64_t wanted = rest != 0 && (rest < 0) != (by < 0) ? rest + by : rest;
    assert_true(((int64_t *)heed_tensor_data(y))[i] == wanted);
  }
  heed_tensor_free(x);
  heed_tensor_free(column);
  heed_tensor_free(y);
  heed_tensor_free(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(where_copies_every_bit_and_reads_only_its_inputs),
      TEST(masked_select_copies_every_bit_and_writes_only_its_result),
      TEST(masked_assign_changes_no_other_element),
      TEST(an_integer_is_true_if_any_bit_is_set),
      TEST(signs_of_integers_agree_with_a_branching_reference),
  };
  return cmocka_run_group_tests_name("masks", tests, NULL, NULL);
}
