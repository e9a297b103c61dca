/* Conversions between dtypes: the kernel, against the definition of the formats in double, and heed_to, which
 * uses it where it can. */
#define _DEFAULT_SOURCE /* mmap */

#include "block_weights.h"
#include "guarded.h"
#include "tables.h"

#include <math.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { EVERY_HALF = 1 << 16 };

static const heed_dtype dtypes[] = {HEED_FLOAT32, HEED_BFLOAT16, HEED_FLOAT16, HEED_INT8};

/* ---- The formats ---- */

typedef struct format {
  heed_dtype dtype;
  int digits, smallest; /* of the fraction; the exponent of the smallest normal number */
  double largest;
} format;
static const format formats[] = {{HEED_BFLOAT16, 7, -126, 0x1.fep127}, {HEED_FLOAT16, 10, -14, 65504.0}};

/* The distance between the format's numbers around x. */
static double step_at(const format *f, double x) {
  int exponent;
  frexp(x, &exponent);
  return ldexp(1.0, (x == 0.0 || exponent <= f->smallest ? f->smallest : exponent - 1) - f->digits);
}

/* To the nearest number, ties to even; inf from half a step beyond the largest one. */
static double rounded(const format *f, double x) {
  if (isnan(x) || isinf(x) || x == 0.0) return x;
  const double step = step_at(f, x), y = nearbyint(x / step) * step;
  return fabs(y) > f->largest ? copysign(INFINITY, x) : y;
}

static double whole_byte(double x) {
  return isnan(x) ? 0.0 : trunc(fmin(fmax(x, -128.0), 127.0));
}

static void same_number(double x, double got, double wanted) {
  if (isnan(wanted) ? isnan(got) : got == wanted && signbit(got) == signbit(wanted)) return;
  fail_msg("%a became %a; it should be %a", x, got, wanted);
}

/* Converts x to the format and back with the same table, and compares with `rounded`. */
static void check_rounding(const heed__kernels *k, const format *f, const float *x, size_t n) {
  static uint16_t half[4 * EVERY_HALF];
  static float wide[4 * EVERY_HALF];
  assert_true(n <= COUNT(half));
  k->convert(f->dtype, half, HEED_FLOAT32, x, n);
  k->convert(HEED_FLOAT32, wide, f->dtype, half, n);
  for (size_t i = 0; i < n; i++) same_number((double)x[i], (double)wide[i], rounded(f, (double)x[i]));
}

static float next_to(float x, int32_t steps) {
  return heed__float_of_bits((uint32_t)((int32_t)heed__bits_of_float(x) + steps));
}

static const uint16_t *every_half(void) {
  static uint16_t all[EVERY_HALF];
  for (size_t i = 0; i < EVERY_HALF; i++) all[i] = (uint16_t)i;
  return all;
}

/* Every number of the format, the midpoint to its neighbour, and the floats next to the midpoint. */
static void numbers_are_rounded_to_the_nearest_ties_to_even(void **state) {
  static float number[EVERY_HALF], near[4 * EVERY_HALF];
  const heed__kernels *k;
  (void)state;
  for (int table = 0; (k = table_at(table)); table++) {
    for (size_t f = 0; f < COUNT(formats); f++) {
      k->convert(HEED_FLOAT32, number, formats[f].dtype, every_half(), EVERY_HALF);
      size_t n = 0;
      for (size_t i = 0; i < EVERY_HALF; i++) {
        const double x = (double)number[i];
        const float middle = (float)(x + step_at(&formats[f], x) / 2);
        near[n++] = number[i];
        near[n++] = middle;
        near[n++] = next_to(middle, 1);
        near[n++] = next_to(middle, -1);
      }
      check_rounding(k, &formats[f], near, n);
    }
  }
}

static void every_half_survives_a_round_trip(void **state) {
  static uint16_t back[EVERY_HALF];
  static float wide[EVERY_HALF];
  const uint16_t *all = every_half();
  const heed__kernels *k;
  (void)state;
  for (int table = 0; (k = table_at(table)); table++) {
    for (size_t f = 0; f < COUNT(formats); f++) {
      k->convert(HEED_FLOAT32, wide, formats[f].dtype, all, EVERY_HALF);
      k->convert(formats[f].dtype, back, HEED_FLOAT32, wide, EVERY_HALF);
      for (size_t i = 0; i < EVERY_HALF; i++) {
        const uint16_t quiet = isnan(wide[i]) ? formats[f].dtype == HEED_FLOAT16 ? 0x200 : 0x40 : 0;
        assert_int_equal(back[i], all[i] | quiet);
      }
    }
  }
}

static void int8_truncates_and_saturates(void **state) {
  static const float edges[] = {0.0f,   -0.0f,   0.99f,   -0.99f,   126.99f, 127.0f,    127.5f,   128.0f,
                                1e10f,  -127.5f, -128.0f, -128.99f, -129.0f, -3e38f,    INFINITY, -INFINITY,
                                1e-40f, 2.5f,    -2.5f,   -1e-40f,  0x1p31f, -0x1.8p31f};
  const heed__kernels *k;
  (void)state;
  for (int table = 0; (k = table_at(table)); table++) {
    float x[COUNT(edges) + 1];
    int8_t byte[COUNT(x)];
    memcpy(x, edges, sizeof edges);
    x[COUNT(edges)] = NAN;
    k->convert(HEED_INT8, byte, HEED_FLOAT32, x, COUNT(x));
    for (size_t i = 0; i < COUNT(x); i++) assert_int_equal(byte[i], (int)whole_byte((double)x[i]));
  }
}

/* ---- Every pair, in every size ---- */

/* Both arrays end (at_end), or begin, at a guard page. */
static void check_pair(const heed__kernels *k, heed_dtype to, heed_dtype from, size_t n, bool at_end) {
  const size_t bytes = heed__element_bytes(to);
  const guarded in = guard_bytes(n * heed__element_bytes(from), at_end), out = guard_bytes(n * bytes, at_end);
  uint32_t seed = (uint32_t)n + 1;
  float wanted[100]; /* large enough for any dtype */
  for (size_t i = 0; i < n * heed__element_bytes(from); i++)
    ((uint8_t *)in.data)[i] = (uint8_t)(next_random(&seed) >> 16);
  k->convert(to, out.data, from, in.data, n);
  heed__kernels_scalar.convert(to, wanted, from, in.data, n);
  assert_memory_equal(out.data, wanted, n * bytes);
  unguard(in);
  unguard(out);
}

/* Products of a block's small integers and its scales are exact, so that every table rounds once. */
static void blocks_are_widened_to_the_numbers_of_the_scalar_table(void **state) {
  enum { N = 768 };
  const heed__kernels *k;
  (void)state;
  for (int table = 0; (k = table_at(table)); table++)
    for (heed_dtype from = HEED_Q4_0; from <= HEED_Q6_K; from++)
      for (int at_end = 0; at_end < 2; at_end++) {
        const size_t bytes = (size_t)heed__row_bytes(from, N);
        const guarded in = guard_bytes(bytes, at_end), out = guard_bytes(N * sizeof(float), at_end);
        float wanted[N];
        fill_blocks(from, in.data, bytes, 5);
        k->convert(HEED_FLOAT32, out.data, from, in.data, N);
        heed__kernels_scalar.convert(HEED_FLOAT32, wanted, from, in.data, N);
        for (size_t i = 0; i < N; i++) assert_true(((const float *)out.data)[i] == wanted[i]);
        unguard(in);
        unguard(out);
      }
}

static void every_pair_has_the_bits_of_the_scalar_table(void **state) {
  const heed__kernels *k;
  (void)state;
  for (int table = 0; (k = table_at(table)); table++)
    for (size_t to = 0; to < COUNT(dtypes); to++)
      for (size_t from = 0; from < COUNT(dtypes); from++)
        for (size_t n = 1; n < 100 && to != from; n++)
          for (int at_end = 0; at_end < 2; at_end++) check_pair(k, dtypes[to], dtypes[from], n, at_end);
}

/* ---- Tensors ---- */

/* Converts x, and its transpose, which the kernel does not convert. */
static void check_layouts(heed_context *ctx, const heed_tensor *x, heed_dtype dtype) {
  heed_tensor *there = NULL, *across = NULL, *view = NULL, *back = NULL;
  assert_ok(heed_to(ctx, x, dtype, &there));
  assert_ok(heed_transpose(ctx, x, 1, 2, &view));
  assert_ok(heed_to(ctx, view, dtype, &across));
  heed_tensor_free(view);
  view = NULL;
  assert_ok(heed_transpose(ctx, across, 1, 2, &view));
  assert_ok(heed_contiguous(ctx, view, &back));
  assert_memory_equal(back->data, there->data, (size_t)back->numel * heed__element_bytes(dtype));
  heed_tensor_free(there);
  heed_tensor_free(across);
  heed_tensor_free(view);
  heed_tensor_free(back);
}

static void layouts_do_not_change_conversions(heed_context *ctx) {
  static const heed_dtype all[] = {HEED_FLOAT32, HEED_BFLOAT16, HEED_FLOAT16,
                                   HEED_INT8,    HEED_INT64,    HEED_BOOL};
  heed_tensor *x = NULL;
  assert_ok(heed_tensor_new(ctx, HEED_FLOAT32, 2, (const int64_t[]){19, 37}, &x));
  float *data = heed_tensor_data(x);
  for (int64_t i = 0; i < x->numel; i++) data[i] = (float)(i - 300) * 0.61f;
  data[5] = NAN;
  data[300] = 0x1p63f;
  data[301] = -0x1p63f;
  data[302] = INFINITY;
  for (size_t from = 0; from < COUNT(all); from++) {
    heed_tensor *as = NULL;
    assert_ok(heed_to(ctx, x, all[from], &as));
    for (size_t to = 0; to < COUNT(all); to++) check_layouts(ctx, as, all[to]);
    heed_tensor_free(as);
  }
  heed_tensor_free(x);
}

/* As heed.h documents: truncated; nan gives 0, numbers out of range the nearest limit. */
static void int64_truncates_and_saturates(heed_context *ctx) {
  static const struct {
    float x;
    int64_t y;
  } cases[] = {{0.99f, 0},
               {-0.99f, 0},
               {-2.5f, -2},
               {16777217.0f, 16777216},
               {0x1.fffffep62f, 0x7fffff8000000000},
               {-0x1.fffffep62f, -0x7fffff8000000000},
               {0x1p63f, INT64_MAX},
               {-0x1p63f, INT64_MIN},
               {3e38f, INT64_MAX},
               {-INFINITY, INT64_MIN},
               {NAN, 0}};
  enum { LENGTH = 200 }; /* so that only some pieces contain numbers out of range */
  for (int64_t at = 0; at < LENGTH; at += 67) {
    for (size_t c = 0; c < COUNT(cases); c++) {
      heed_tensor *x = NULL, *y = NULL;
      assert_ok(heed_tensor_new(ctx, HEED_FLOAT32, 1, (const int64_t[]){LENGTH}, &x));
      for (int64_t i = 0; i < LENGTH; i++) ((float *)heed_tensor_data(x))[i] = (float)-i;
      ((float *)heed_tensor_data(x))[at] = cases[c].x;
      assert_ok(heed_to(ctx, x, HEED_INT64, &y));
      for (int64_t i = 0; i < LENGTH; i++)
        assert_true(((int64_t *)heed_tensor_data(y))[i] == (i == at ? cases[c].y : -i));
      heed_tensor_free(x);
      heed_tensor_free(y);
    }
  }
}

/* ---- All of them ---- */

static void layouts_do_not_change_conversions_in_all_tables(void **state) {
  (void)state;
  with_every_table(layouts_do_not_change_conversions);
}

static void int64_truncates_and_saturates_in_all_tables(void **state) {
  (void)state;
  with_every_table(int64_truncates_and_saturates);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_are_rounded_to_the_nearest_ties_to_even),
      cmocka_unit_test(every_half_survives_a_round_trip),
      cmocka_unit_test(int8_truncates_and_saturates),
      cmocka_unit_test(every_pair_has_the_bits_of_the_scalar_table),
      cmocka_unit_test(blocks_are_widened_to_the_numbers_of_the_scalar_table),
      cmocka_unit_test(layouts_do_not_change_conversions_in_all_tables),
      cmocka_unit_test(int64_truncates_and_saturates_in_all_tables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
