/* The kernels of backward passes, in every table that runs here, against plain code in double precision.
 * Arrays have exactly as many elements as a kernel may touch, so that sanitizers see more. */
#include "tables.h"

#include <float.h>
#include <math.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Around the widths of vectors, and longer than what is summed in float32. */
static const size_t sizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200, 768, 9001};

static uint32_t seed;

static float uniform(float low, float high) {
  next_random(&seed);
  return low + (high - low) * ((float)(seed >> 8) * 0x1p-24f);
}

static float *values(size_t n, float low, float high) {
  float *x = malloc((n > 0 ? n : 1) * sizeof *x);
  assert_non_null(x);
  for (size_t i = 0; i < n; i++) x[i] = uniform(low, high);
  return x;
}

/* The largest difference must be at most `most` of the largest wanted value, or of `scale`. */
static void assert_close(const char *what, const float *got, const double *wanted, size_t n, double most,
                         double scale) {
  double largest = scale, off = 0;
  for (size_t i = 0; i < n; i++) {
    largest = fmax(largest, fabs(wanted[i]));
    off = fmax(off, fabs((double)got[i] - wanted[i]));
    if (isnan(got[i])) fail_msg("%s: nan", what);
  }
  if (off > most * largest + 1e-30) fail_msg("%s of %zu: off by %g of %g", what, n, off, largest);
}

/* ---- Elementwise ---- */

static double normal_share(double x) {
  return 0.5 * erfc(-x * sqrt(0.5));
}
static double slope_gelu_backward(double x) {
  return normal_share(x) + x * exp(-0.5 * x * x) / sqrt(2 * acos(-1.0));
}
static double slope_gelu_tanh_backward(double x) {
  const double root = sqrt(2 / acos(-1.0)), t = tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}
static double slope_silu_backward(double x) {
  return (1 + x / (1 + exp(x))) / (1 + exp(-x));
}
static double slope_sigmoid_backward(double y) {
  return y * (1 - y);
}
static double slope_tanh_backward(double y) {
  return 1 - y * y;
}

static void check_slopes(const char *name, heed__backward_kernel *kernel, double (*slope)(double), size_t n,
                         float low, float high) {
  float *x = values(n, low, high), *dy = values(n, 0.5f, 2.0f), *dx = values(n, 0, 1);
  kernel(dx, x, dy, n);
  for (size_t i = 0; i < n; i++) {
    const double wanted = slope((double)x[i]) * (double)dy[i];
    if (!(fabs((double)dx[i] - wanted) <= 1e-6 * (double)dy[i]))
      fail_msg("%s at %a: %a, wanted %a", name, (double)x[i], (double)dx[i], wanted);
    float alone;
    kernel(&alone, x + i, dy + i, 1);
    assert_memory_equal(&alone, &dx[i], sizeof alone);
  }
  kernel(dy, x, dy, n);
  assert_memory_equal(dy, dx, n * sizeof *dx);
  free(x), free(dy), free(dx);
}

static void slopes_are_near_double(const heed__kernels *k) {
  for (size_t s = 0; s < COUNT(sizes); s++) {
    for (int wide = 0; wide < 2; wide++) {
      const float most = wide ? 60.0f : 5.0f;
#define X(name, value)                                                                                       \
  check_slopes(#name, k->name, slope_##name, sizes[s],                                                       \
               strcmp(#name, "sigmoid_backward") == 0 ? 0.0f                                                 \
               : strcmp(#name, "tanh_backward") == 0  ? -1.0f                                                \
                                                      : -most,                                                \
               strncmp(#name, "sigmoid", 7) == 0 || strncmp(#name, "tanh", 4) == 0 ? 1.0f : most);
      HEED__UNARY_BACKWARD_KERNELS(X)
#undef X
    }
  }
}

static void slopes_keep_nan(const heed__kernels *k) {
  const float x[] = {NAN, 1.0f, 0.5f}, dy[] = {1.0f, NAN, 0.0f};
  float dx[3];
#define X(name, value)                                                                                       \
  k->name(dx, x, dy, 3);                                                                                     \
  assert_true(isnan(dx[0]) && isnan(dx[1]) && dx[2] == 0.0f);
  HEED__UNARY_BACKWARD_KERNELS(X)
#undef X
}

static void slopes_far_from_zero_are_0_or_1(const heed__kernels *k) {
  const float x[] = {-1e15f, -200.0f, 200.0f, 1e15f}, dy[] = {1, 1, 1, 1};
  heed__backward_kernel *const kernels[] = {k->gelu_backward, k->gelu_tanh_backward, k->silu_backward};
  float dx[4];
  for (size_t i = 0; i < COUNT(kernels); i++) {
    kernels[i](dx, x, dy, 4);
    for (int j = 0; j < 4; j++) assert_true(dx[j] == (j < 2 ? 0.0f : 1.0f));
  }
}

/* ---- Softmax ---- */

static void softmax_gradients_are_near_double(const heed__kernels *k) {
  for (size_t s = 0; s < COUNT(sizes); s++) {
    const size_t n = sizes[s];
    float *x = values(n, -4, 4), *dy = values(n, -1, 3), *y = values(n, 0, 1), *dx = values(n, 0, 1);
    double *wanted = malloc(n * sizeof *wanted), sum = 0, product = 0, total = 0, all = 0;
    assert_non_null(wanted);
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i]);
    for (size_t i = 0; i < n; i++) {
      product += exp((double)x[i]) / sum * (double)dy[i];
      all += (double)dy[i];
    }
    k->softmax(y, x, n);
    k->softmax_backward(dx, y, dy, n);
    for (size_t i = 0; i < n; i++) wanted[i] = exp((double)x[i]) / sum * ((double)dy[i] - product);
    if (n > 1) assert_close("softmax_backward", dx, wanted, n, 2e-6, 0.1);
    k->log_softmax(y, x, n);
    k->log_softmax_backward(dx, y, dy, n);
    for (size_t i = 0; i < n; i++) wanted[i] = (double)dy[i] - exp((double)x[i]) / sum * all;
    if (n > 1) assert_close("log_softmax_backward", dx, wanted, n, 2e-6, 0.1);
    float most;
    const float log_total = k->log_sum_exp(x, n, &most);
    for (size_t i = 0; i < n; i++) total = fmax(total, (double)x[i]);
    assert_true(fabs((double)most + (double)log_total - log(sum)) < 2e-6);
    k->softmax_scaled(dx, x, most, log_total, 3.0f, n);
    for (size_t i = 0; i < n; i++) wanted[i] = 3 * exp((double)x[i]) / sum;
    assert_close("softmax_scaled", dx, wanted, n, 2e-6, 0.1);
    k->softmax_scaled(x, x, most, log_total, 3.0f, n);
    assert_memory_equal(x, dx, n * sizeof *x);
    free(x), free(dy), free(y), free(dx), free(wanted);
  }
}

/* ---- Norms ---- */

typedef struct twin {
  double *dx, *dweight, *dbias;
} twin;

static twin twin_of(const heed__norm_backward_task *t) {
  const double count = (double)t->n;
  twin w = {calloc(t->rows * t->n, sizeof(double)), calloc(t->n, sizeof(double)),
            calloc(t->n, sizeof(double))};
  for (size_t r = 0; r < t->rows; r++) {
    const float *x = t->x + r * t->n, *dy = t->dy + r * t->n;
    double mean = 0, variance = 0, sum = 0, product = 0;
    for (size_t i = 0; t->centred && i < t->n; i++) mean += (double)x[i] / count;
    for (size_t i = 0; i < t->n; i++) variance += ((double)x[i] - mean) * ((double)x[i] - mean) / count;
    const double scale = 1 / sqrt(variance + (double)t->epsilon);
    for (size_t i = 0; i < t->n; i++) {
      const double g = (double)dy[i] * (t->weight ? (double)t->weight[i] : 1);
      if (t->centred) sum += g / count;
      product += g * ((double)x[i] - mean) * scale / count;
    }
    for (size_t i = 0; i < t->n; i++) {
      const double y = ((double)x[i] - mean) * scale;
      const double g = (double)dy[i] * (t->weight ? (double)t->weight[i] : 1);
      w.dx[r * t->n + i] = scale * (g - sum - y * product);
      w.dweight[i] += (double)dy[i] * y;
      w.dbias[i] += (double)dy[i];
    }
  }
  return w;
}

static void check_norm(const heed__kernels *k, size_t n, bool centred, int parts, float centre) {
  enum { ROWS = 5 };
  float *x = values(ROWS * n, centre - 2, centre + 2), *dy = values(ROWS * n, -1, 1.5f);
  float *weight = values(n, 0.5f, 1.5f), *dx = values(ROWS * n, 0, 1);
  float *dweight = calloc(n, sizeof(float)), *dbias = calloc(n, sizeof(float));
  heed__norm_backward_task t = {.x = x,
                                .dy = dy,
                                .weight = parts & 1 ? weight : NULL,
                                .dx = parts & 2 ? dx : NULL,
                                .dweight = parts & 4 ? dweight : NULL,
                                .dbias = parts & 8 ? dbias : NULL,
                                .rows = ROWS,
                                .n = n,
                                .epsilon = 1e-5f,
                                .centred = centred};
  const twin w = twin_of(&t);
  k->norm_backward(&t);
  /* far from 0, x itself has only so many digits */
  const double most = centre > 10 ? 2e-5 : 2e-6;
  if (t.dx && n > 3) assert_close("dx", dx, w.dx, ROWS * n, most, 0);
  if (t.dweight && n > 1) assert_close("dweight", dweight, w.dweight, n, most, 0);
  /* a sum of few numbers near 1 may cancel */
  if (t.dbias) assert_close("dbias", dbias, w.dbias, n, 2e-6, 0.1);
  if (t.dx) { /* in place of dy, and row after row, the same bits */
    float *dweight_again = calloc(n, sizeof(float)), *dbias_again = calloc(n, sizeof(float));
    for (size_t r = 0; r < ROWS; r++) {
      heed__norm_backward_task one = t;
      one.x += r * n, one.dy += r * n, one.dx = dy + r * n, one.rows = 1;
      if (t.dweight) one.dweight = dweight_again;
      if (t.dbias) one.dbias = dbias_again;
      k->norm_backward(&one);
    }
    assert_memory_equal(dy, dx, ROWS * n * sizeof *dx);
    assert_memory_equal(dweight, dweight_again, n * sizeof *dweight);
    assert_memory_equal(dbias, dbias_again, n * sizeof *dbias);
    free(dweight_again), free(dbias_again);
  }
  free(x), free(dy), free(weight), free(dx), free(dweight), free(dbias);
  free(w.dx), free(w.dweight), free(w.dbias);
}

static void norm_gradients_are_near_double(const heed__kernels *k) {
  for (size_t s = 0; s < COUNT(sizes); s++)
    for (int centred = 0; centred < 2; centred++)
      for (int parts = 0; parts < 16; parts++) check_norm(k, sizes[s], centred, parts, 0.25f);
  check_norm(k, 768, true, 15, 1000.0f);
}

/* ---- Every test with every table ---- */

#define TABLE_TESTS(X)                                                                                       \
  X(slopes_are_near_double)                                                                                  \
  X(slopes_keep_nan)                                                                                         \
  X(slopes_far_from_zero_are_0_or_1)                                                                         \
  X(softmax_gradients_are_near_double)                                                                       \
  X(norm_gradients_are_near_double)

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
#define X(test) {#test, test##_in_all_tables, NULL, NULL, NULL},
      TABLE_TESTS(X)
#undef X
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
