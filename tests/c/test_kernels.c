/* The row kernels of every table that runs here: against the scalar ones where the results must be the same,
 * else against double precision. Inputs and outputs end, or begin, at guard pages. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"
#include "tables.h"
#include "unary_references.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MOST         20000 /* elements of a row */

/* Around the widths of vectors, and of the stripes and cascades of sums. */
static const size_t sizes[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,   15,  16,  17,  31,
                               32, 33, 47, 63, 64, 65, 95, 96, 511, 512, 513, 1000};

/* ---- Memory between guard pages ---- */

typedef struct fence {
  char *start; /* of the usable bytes */
  size_t bytes;
} fence;

static fence fence_new(size_t bytes) {
  const size_t page = page_bytes();
  fence f = {NULL, (bytes + page - 1) / page * page};
  f.start = guarded_pages(f.bytes + 2 * page) + page;
  return f;
}

static void fence_free(fence f) {
  const size_t page = page_bytes();
  free_pages(f.start - page, f.bytes + 2 * page);
}

enum { FENCES = 4, SIDES = 2 };
static fence fences[FENCES];

static int open_fences(void **state) {
  (void)state;
  for (int i = 0; i < FENCES; i++) fences[i] = fence_new(MOST * sizeof(float));
  return 0;
}

static int close_fences(void **state) {
  (void)state;
  for (int i = 0; i < FENCES; i++) fence_free(fences[i]);
  return 0;
}

/* n elements of a fence: at its end (side 0) or at its beginning (side 1). */
static void *elements(int i, int side, size_t n, size_t element) {
  return fences[i].start + (side == 0 ? fences[i].bytes - n * element : 0);
}

static float *floats(int i, int side, size_t n) {
  return elements(i, side, n, sizeof(float));
}

/* ---- Values ---- */

static uint32_t seed;

static float uniform(float low, float high) {
  next_random(&seed);
  return low + (high - low) * ((float)(seed >> 8) * 0x1p-24f);
}

/* Random bits: numbers of all magnitudes, and many subnormal ones. */
static float any_float(void) {
  float x;
  next_random(&seed);
  uint32_t bits = seed ^ seed >> 15;
  if ((bits & 7) == 0) bits &= 0x807fffff;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static const float specials[] = {0.0f,     -0.0f,    1.0f,  -1.0f,  INFINITY, -INFINITY, NAN,
                                 FLT_MAX,  -FLT_MAX, 1e5f,  -1e5f,  3e5f,     FLT_MIN,   -FLT_MIN,
                                 1e-45f,   -1e-45f,  88.7f, 88.8f,  -87.3f,   -103.9f,   -104.1f,
                                 1.57079f, 0.4f,     0.39f, 9.01f,  -9.1f,    20.0f,     5.9f,
                                 -5.9f,    -13.0f,   1e10f, -1e10f, 0.70711f, 2.0f,      0.5f};

static void fill(float *x, size_t n, bool with_specials) {
  for (size_t i = 0; i < n; i++) {
    x[i] = i % 5 == 0 ? any_float() : uniform(-12.0f, 12.0f);
    if (!with_specials && (!isfinite(x[i]) || fabsf(x[i]) > 1e15f)) x[i] = uniform(-1.0f, 1.0f);
  }
  for (size_t i = 0; with_specials && i < n; i += 3) x[i] = specials[(i / 3) % COUNT(specials)];
}

static bool same(float a, float b) {
  return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0;
}

static void assert_same(const char *kernel, const float *got, const float *wanted, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!same(got[i], wanted[i]))
      fail_msg("%s: element %zu of %zu is %a, wanted %a", kernel, i, n, (double)got[i], (double)wanted[i]);
}

/* The distance between floats at y, one ulp. */
static double ulp_at(double y) {
  int exponent;
  frexp(y, &exponent);
  return ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

/* Whether got is within ulp · the distance between floats, plus slack, of wanted. */
static bool near(float got, double wanted, double ulp, double slack) {
  if (isnan(wanted)) return isnan(got);
  if (isinf((float)wanted) || isinf(got)) return got == (float)wanted;
  return fabs((double)got - wanted) <= ulp * ulp_at(wanted) + slack;
}

/* ---- Unary ---- */

static const struct {
  const char *name;
  size_t offset;
  double (*reference)(double);
  double ulp, relative;
  float at_infinity[2]; /* inf, -inf */
} unaries[] = {
#define X(name, value, ulp, relative, high, low)                                                             \
  {#name, offsetof(heed__kernels, name), reference_##name, ulp, relative, {high, low}},
    UNARY_REFERENCES(X)
#undef X
};

#define X(name, ...) +1
_Static_assert(COUNT(unaries) == 0 HEED__UNARY_KERNELS(X), "every unary kernel has a row");
#undef X

static heed__unary_kernel *unary_of(const heed__kernels *k, size_t row) {
  return *(heed__unary_kernel *const *)(const void *)((const char *)k + unaries[row].offset);
}

static void check_unary(const heed__kernels *k, size_t row, size_t n, int side) {
  heed__unary_kernel *kernel = unary_of(k, row);
  float *x = floats(0, side, n), *out = floats(1, side, n), alone;
  fill(x, n, true);
  kernel(out, x, n);
  for (size_t i = 0; i < n; i++) {
    const double slack = isfinite(x[i]) ? unaries[row].relative * (fabs((double)x[i]) + 1) : 0;
    const double wanted = unaries[row].reference((double)x[i]);
    /* at ±inf some functions give nan, as in PyTorch; tested below */
    if (!near(out[i], wanted, unaries[row].ulp, slack) && !isinf(x[i]))
      fail_msg("%s %s(%a) is %a, wanted %a", k->name, unaries[row].name, (double)x[i], (double)out[i],
               wanted);
    kernel(&alone, x + i, 1);
    assert_same(unaries[row].name, &alone, out + i, 1);
  }
  kernel(x, x, n);
  assert_same(unaries[row].name, x, out, n);
}

static void unary_kernels_are_near_double(const heed__kernels *k) {
  for (size_t row = 0; row < COUNT(unaries); row++)
    for (size_t s = 0; s < COUNT(sizes); s++)
      for (int side = 0; side < SIDES; side++) check_unary(k, row, sizes[s], side);
}

static void unary_kernels_are_right_at_inf_nan_and_zero(const heed__kernels *k) {
  float x[] = {INFINITY, -INFINITY, NAN}, y[3];
  for (size_t row = 0; row < COUNT(unaries); row++) {
    const float at_nan = (float)unaries[row].reference((double)NAN);
    unary_of(k, row)(y, x, 3);
    assert_same(unaries[row].name, y, unaries[row].at_infinity, 2);
    assert_same(unaries[row].name, y + 2, &at_nan, 1);
  }
  const float zeros[] = {0.0f, -0.0f};
  static const char keep_zero[] = " sin tanh floor ceil round trunc expm1 log1p erf ";
  for (size_t row = 0; row < COUNT(unaries); row++) {
    char name[16];
    snprintf(name, sizeof name, " %s ", unaries[row].name);
    if (strstr(keep_zero, name) == NULL) continue;
    unary_of(k, row)(y, zeros, 2);
    assert_same(unaries[row].name, y, zeros, 2);
  }
}

/* ---- Binary ---- */

static const ptrdiff_t strides[][2] = {{1, 1}, {1, 0}, {0, 1}, {0, 0}, {2, 1}, {1, 3}, {3, 2}};

static size_t span(size_t n, ptrdiff_t stride) {
  return n == 0 ? 0 : (n - 1) * (size_t)stride + 1;
}

static void check_binary(const char *name, heed__binary_kernel *kernel, heed__binary_kernel *oracle, size_t n,
                         ptrdiff_t sa, ptrdiff_t sb, int side) {
  float *a = floats(0, side, span(n, sa)), *b = floats(1, side, span(n, sb)), *out = floats(2, side, n);
  float *wanted = floats(3, side, n);
  fill(a, span(n, sa), true);
  fill(b, span(n, sb), true);
  for (size_t i = 0; i < span(n, sb); i += 4) b[i] = uniform(-3.0f, 3.0f);
  oracle(wanted, a, sa, b, sb, n);
  kernel(out, a, sa, b, sb, n);
  assert_same(name, out, wanted, n);
  if (sa == 1) {
    memcpy(out, a, n * sizeof *a);
    kernel(out, out, 1, b, sb, n);
    assert_same(name, out, wanted, n);
  }
  if (sb == 1) {
    memcpy(out, b, n * sizeof *b);
    kernel(out, a, sa, out, 1, n);
    assert_same(name, out, wanted, n);
  }
}

static void check_compare(const char *name, heed__compare_kernel *kernel, heed__compare_kernel *oracle,
                          size_t n, ptrdiff_t sa, ptrdiff_t sb, int side) {
  float *a = floats(0, side, span(n, sa)), *b = floats(1, side, span(n, sb));
  uint8_t *out = elements(2, side, n, 1), *wanted = elements(3, side, n, 1);
  fill(a, span(n, sa), true);
  fill(b, span(n, sb), true);
  for (size_t i = 0; i < span(n, sb) && i < span(n, sa); i += 2) b[i] = a[i];
  oracle(wanted, a, sa, b, sb, n);
  kernel(out, a, sa, b, sb, n);
  if (n > 0) assert_memory_equal(out, wanted, n);
  (void)name;
}

static void binary_kernels_have_the_bits_of_the_scalar_ones(const heed__kernels *k) {
  for (size_t w = 0; w < COUNT(strides); w++) {
    for (size_t s = 0; s < COUNT(sizes); s++) {
      for (int side = 0; side < SIDES; side++) {
#define X(name)                                                                                              \
  check_binary(#name, k->name, heed__kernels_scalar.name, sizes[s], strides[w][0], strides[w][1], side);
        HEED__BINARY_KERNELS(X)
#undef X
#define X(name)                                                                                              \
  check_compare(#name, k->name, heed__kernels_scalar.name, sizes[s], strides[w][0], strides[w][1], side);
        HEED__COMPARE_KERNELS(X)
#undef X
      }
    }
  }
}

static void maximum_and_minimum_give_nan_if_either_is_nan(const heed__kernels *k) {
  enum { N = 40 };
  float a[N], b[N], out[N];
  for (size_t i = 0; i < N; i++) a[i] = i % 3 == 0 ? NAN : 1.0f, b[i] = i % 3 == 1 ? NAN : 2.0f;
  k->maximum(out, a, 1, b, 1, N);
  for (size_t i = 0; i < N; i++) assert_true(same(out[i], i % 3 == 2 ? 2.0f : NAN));
  k->minimum(out, a, 1, b, 1, N);
  for (size_t i = 0; i < N; i++) assert_true(same(out[i], i % 3 == 2 ? 1.0f : NAN));
}

/* Remainders are exact, and whole quotients follow from them. Numbers of all magnitudes, many of which divide
 * evenly. */
static void remainders_have_the_bits_of_the_scalar_ones(const heed__kernels *k) {
  enum { N = 1000 };
  float a[N], b[N], out[N], wanted[N];
  for (int turn = 0; turn < 200; turn++) {
    for (size_t i = 0; i < N; i++) {
      const int far = turn % 40 - 20;
      b[i] = turn % 2 ? uniform(-9.0f, 9.0f) : (float)(int)uniform(-9.0f, 9.0f);
      a[i] = i % 3 == 0 ? b[i] * (float)(int)uniform(-99.0f, 99.0f) : ldexpf(uniform(-1.0f, 1.0f), far);
      if (i % 5 == 0) a[i] = nextafterf(a[i], b[i]);
      if (i % 7 == 0) a[i] *= 0x1p-130f, b[i] *= 0x1p-130f;
    }
    heed__kernels_scalar.remainder(wanted, a, 1, b, 1, N);
    k->remainder(out, a, 1, b, 1, N);
    assert_same("remainder", out, wanted, N);
    heed__kernels_scalar.fmod(wanted, a, 1, b, 1, N);
    k->fmod(out, a, 1, b, 1, N);
    assert_same("fmod", out, wanted, N);
    heed__kernels_scalar.floor_divide(wanted, a, 1, b, 1, N);
    k->floor_divide(out, a, 1, b, 1, N);
    assert_same("floor_divide", out, wanted, N);
  }
}

/* ---- Sums and the maximum ---- */

static void sums_have_the_bits_of_the_scalar_ones(const heed__kernels *k) {
  static const size_t long_ones[] = {4096, 8191, 8192, 8223, MOST};
  for (size_t s = 0; s < COUNT(sizes) + COUNT(long_ones); s++) {
    const size_t n = s < COUNT(sizes) ? sizes[s] : long_ones[s - COUNT(sizes)];
    for (int side = 0; side < SIDES; side++) {
      float *x = floats(0, side, n);
      for (size_t i = 0; i < n; i++) x[i] = uniform(-1.0f, 1.1f);
      assert_true(same(k->sum(x, n), heed__kernels_scalar.sum(x, n)));
      double squares = 0;
      for (size_t i = 0; i < n; i++) squares += ((double)x[i] - 0.25) * ((double)x[i] - 0.25);
      assert_true(fabs(k->sum_of_squares(x, 0.25, n) - squares) <= 1e-12 * squares);
    }
  }
  for (size_t n = 1; n < 40; n++) {
    float x[40];
    for (size_t i = 0; i < n; i++) x[i] = i == n / 2 ? INFINITY : 1.0f;
    assert_true(k->sum(x, n) == INFINITY);
    x[n - 1] = NAN;
    assert_true(isnan(k->sum(x, n)));
  }
}

static void the_maximum_includes_every_element(const heed__kernels *k) {
  for (size_t s = 1; s < COUNT(sizes); s++) {
    const size_t n = sizes[s];
    for (int side = 0; side < SIDES; side++) {
      float *x = floats(0, side, n);
      for (size_t at = 0; at < n; at++) {
        for (size_t i = 0; i < n; i++) x[i] = at % 2 == 0 ? -INFINITY : uniform(-9.0f, -8.0f);
        x[at] = -7.0f;
        assert_true(k->max(x, n) == -7.0f);
        x[at] = NAN;
        assert_true(isnan(k->max(x, n)));
      }
    }
  }
  assert_true(k->max((const float[]){-INFINITY}, 1) == -INFINITY);
}

static void dot_products_are_near_double(const heed__kernels *k) {
  for (size_t w = 0; w < COUNT(strides); w++) {
    const ptrdiff_t sa = strides[w][0], sb = strides[w][1];
    for (size_t s = 0; s < COUNT(sizes); s++) {
      const size_t n = sizes[s];
      for (int side = 0; side < SIDES; side++) {
        float *a = floats(0, side, span(n, sa)), *b = floats(1, side, span(n, sb));
        double wanted = 0, size = 0;
        for (size_t i = 0; i < span(n, sa); i++) a[i] = uniform(-1.0f, 1.0f);
        for (size_t i = 0; i < span(n, sb); i++) b[i] = uniform(-1.0f, 1.0f);
        for (size_t i = 0; i < n; i++) {
          const double product = (double)a[(ptrdiff_t)i * sa] * (double)b[(ptrdiff_t)i * sb];
          wanted += product;
          size += fabs(product);
        }
        assert_true(fabs((double)k->dot(a, sa, b, sb, n) - wanted) <= (double)n * FLT_EPSILON * size);
      }
    }
  }
}

/* ---- Softmax and the norms ---- */

static void softmax_is_near_double(const heed__kernels *k) {
  for (size_t s = 1; s < COUNT(sizes); s++) {
    const size_t n = sizes[s];
    for (int side = 0; side < SIDES; side++) {
      float *x = floats(0, side, n), *out = floats(1, side, n), *log_out = floats(2, side, n);
      double most = -INFINITY, sum = 0;
      for (size_t i = 0; i < n; i++) {
        x[i] = i % 7 == 3 ? -INFINITY : uniform(-8.0f, 8.0f);
        most = fmax(most, (double)x[i]);
      }
      for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - most);
      k->softmax(out, x, n);
      k->log_softmax(log_out, x, n);
      for (size_t i = 0; i < n; i++) {
        const double y = (double)x[i] - most - log(sum);
        assert_true(near(out[i], exp(y), 12, 0));
        assert_true(near(log_out[i], y, 2, 2e-7));
      }
      float *again = floats(3, side, n);
      memcpy(again, x, n * sizeof *x);
      k->softmax(again, again, n);
      assert_same("softmax", again, out, n);
      k->log_softmax(x, x, n);
      assert_same("log_softmax", x, log_out, n);
    }
  }
}

static void softmax_of_minus_inf_alone_nan_or_inf_is_nan(const heed__kernels *k) {
  float x[33], y[33];
  for (size_t n = 1; n <= 33; n++) {
    for (int what = 0; what < 3; what++) {
      for (size_t i = 0; i < n; i++) x[i] = what == 0 ? -INFINITY : 1.0f;
      if (what > 0) x[n / 2] = what == 1 ? NAN : INFINITY;
      k->softmax(y, x, n);
      for (size_t i = 0; i < n; i++) assert_true(isnan(y[i]));
      k->log_softmax(y, x, n);
      for (size_t i = 0; i < n; i++) assert_true(isnan(y[i]));
    }
  }
}

static void check_norms(const heed__kernels *k, size_t n, int side, float centre, bool weighted,
                        bool biased) {
  const double epsilon = 1e-5f;
  float *x = floats(0, side, n), *weight = floats(1, side, n), *bias = floats(2, side, n);
  float *out = floats(3, side, n);
  double mean = 0, square = 0, variance = 0;
  for (size_t i = 0; i < n; i++) {
    x[i] = centre + uniform(-2.0f, 2.0f);
    weight[i] = uniform(0.5f, 1.5f);
    bias[i] = uniform(-1.0f, 1.0f);
    mean += (double)x[i] / (double)n;
    square += (double)x[i] * (double)x[i] / (double)n;
  }
  for (size_t i = 0; i < n; i++) variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
  k->layer_norm(out, x, weighted ? weight : NULL, biased ? bias : NULL, (float)epsilon, n);
  for (size_t i = 0; i < n; i++) {
    const double y = ((double)x[i] - mean) / sqrt(variance + epsilon) * (weighted ? (double)weight[i] : 1);
    assert_true(near(out[i], y + (biased ? (double)bias[i] : 0), 2, 3e-7 * fabs(y) + 1e-9));
  }
  k->rms_norm(out, x, weighted ? weight : NULL, (float)epsilon, n);
  for (size_t i = 0; i < n; i++) {
    const double y = (double)x[i] / sqrt(square + epsilon) * (weighted ? (double)weight[i] : 1);
    assert_true(near(out[i], y, 3, 0));
  }
  k->rms_norm(x, x, weighted ? weight : NULL, (float)epsilon, n);
  assert_same("rms_norm", x, out, n);
}

static void norms_are_near_double(const heed__kernels *k) {
  const float centres[] = {0.0f, 1000.0f, 1e6f};
  for (size_t s = 1; s < COUNT(sizes); s++)
    for (size_t c = 0; c < COUNT(centres); c++)
      for (int way = 0; way < 4; way++)
        check_norms(k, sizes[s], way & 1, centres[c], (way & 2) != 0, (way & 3) != 0);
}

static void layer_norm_works_in_place(const heed__kernels *k) {
  for (size_t s = 1; s < COUNT(sizes); s++) {
    const size_t n = sizes[s];
    float *x = floats(0, 0, n), *out = floats(1, 0, n), *parameter = floats(2, 0, n);
    fill(x, n, false);
    fill(parameter, n, false);
    k->layer_norm(out, x, parameter, parameter, 1e-5f, n);
    k->layer_norm(x, x, parameter, parameter, 1e-5f, n);
    assert_same("layer_norm", x, out, n);
  }
}

/* ---- Transpose ---- */

static void check_transpose(const heed__kernels *k, size_t rows, size_t columns, size_t gap, int side) {
  const size_t x_row = columns + gap, out_row = rows + gap;
  const size_t n = rows * columns == 0 ? 0 : (rows - 1) * x_row + columns;
  const size_t m = rows * columns == 0 ? 0 : (columns - 1) * out_row + rows;
  uint32_t *x = elements(0, side, n, sizeof(float)), *out = elements(1, side, m, sizeof(float));
  for (size_t i = 0; i < n; i++)
    x[i] = 0x7f800000u + (uint32_t)i; /* all kinds of nan, whose bits must be kept */
  memset(out, 0xee, m * sizeof *out);
  k->transpose((float *)(void *)out, (ptrdiff_t)out_row, (const float *)(const void *)x, (ptrdiff_t)x_row,
               rows, columns);
  for (size_t i = 0; i < m; i++) {
    const size_t column = i / out_row, row = i % out_row;
    assert_int_equal(out[i], row < rows ? x[row * x_row + column] : 0xeeeeeeeeu);
  }
}

static void transposes_copy_the_bits(const heed__kernels *k) {
  static const size_t sides[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 64, 65};
  for (size_t r = 0; r < COUNT(sides); r++)
    for (size_t c = 0; c < COUNT(sides); c++)
      for (int way = 0; way < 4; way++) check_transpose(k, sides[r], sides[c], way & 2 ? 3 : 0, way & 1);
}

/* ---- Every test with every table ---- */

#define TABLE_TESTS(X)                                                                                       \
  X(unary_kernels_are_near_double)                                                                           \
  X(unary_kernels_are_right_at_inf_nan_and_zero)                                                             \
  X(binary_kernels_have_the_bits_of_the_scalar_ones)                                                         \
  X(maximum_and_minimum_give_nan_if_either_is_nan)                                                           \
  X(remainders_have_the_bits_of_the_scalar_ones)                                                             \
  X(sums_have_the_bits_of_the_scalar_ones)                                                                   \
  X(the_maximum_includes_every_element)                                                                      \
  X(dot_products_are_near_double)                                                                            \
  X(softmax_is_near_double)                                                                                  \
  X(softmax_of_minus_inf_alone_nan_or_inf_is_nan)                                                            \
  X(norms_are_near_double)                                                                                   \
  X(layer_norm_works_in_place)                                                                               \
  X(transposes_copy_the_bits)

#define X(test)                                                                                              \
  static void test##_in_all_tables(void **state) {                                                           \
    (void)state;                                                                                             \
    const heed__kernels *k;                                                                                  \
    for (int i = 0; (k = table_at(i)); i++) {                                                                \
      seed = 1; /* the same numbers for each table */                                                        \
      test(k);                                                                                               \
    }                                                                                                        \
  }
TABLE_TESTS(X)
#undef X

int main(void) {
  const struct CMUnitTest tests[] = {
#define X(test) {#test, test##_in_all_tables, open_fences, close_fences, NULL},
      TABLE_TESTS(X)
#undef X
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
