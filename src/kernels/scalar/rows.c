/* The scalar kernels on one row: sums, the maximum, softmax and the norms. */
#include "scalar.h"

/* ---- Sums ---- */

/* PyTorch's order of addition, bit for bit (up to about 2^25 elements), so that sums print alike. A stripe is
 * four rows of `lanes` adjacent elements. After every 16 stripes the sums move up a level, after every 16
 * moves another level, so no partial sum has many terms; levels and rows are added together at the end. */
enum {
  SUM_ROWS = 4,
  SUM_LANES_WIDE = 8,
  SUM_STRIPE = SUM_ROWS * SUM_LANES_WIDE,
  SUM_CASCADE = 16,
  SUM_LEVELS = 4
};

static inline void add_into(float *into, const float *x, size_t n) {
  for (size_t i = 0; i < n; i++) into[i] += x[i];
}

/* total[lane] = the sum of every lanes-th element; `lanes` divides n and is a constant wherever this is
 * inlined. */
static inline void sum_lanes(float total[SUM_STRIPE], const float *x, size_t n, size_t lanes) {
  const size_t stripe = SUM_ROWS * lanes, stripes = n / stripe;
  float level[SUM_LEVELS][SUM_STRIPE];
  memset(total, 0, stripe * sizeof *total);
  if (stripes < SUM_CASCADE) {
    for (size_t s = 0; s < stripes; s++) add_into(total, x + s * stripe, stripe);
  } else {
    memset(level, 0, sizeof level);
    for (size_t s = 1; s <= stripes; s++) {
      add_into(level[0], x + (s - 1) * stripe, stripe);
      for (size_t l = 1, period = SUM_CASCADE; l < SUM_LEVELS && s % period == 0;
           l++, period *= SUM_CASCADE) {
        add_into(level[l], level[l - 1], stripe);
        memset(level[l - 1], 0, stripe * sizeof *total);
      }
    }
    for (size_t l = 0; l < SUM_LEVELS; l++) add_into(total, level[l], stripe);
  }
  for (size_t i = stripes * stripe; i < n; i += lanes) add_into(total, x + i, lanes);
  for (size_t row = 1; row < SUM_ROWS; row++) add_into(total, total + row * lanes, lanes);
}

float heed__scalar_sum(const float *x, size_t n) {
  float lane[SUM_STRIPE], total = 0.0f;
  if (n < SUM_LANES_WIDE) {
    sum_lanes(lane, x, n, 1);
    return lane[0];
  }
  const size_t even = n - n % SUM_LANES_WIDE;
  sum_lanes(lane, x, even, SUM_LANES_WIDE);
  for (size_t i = even; i < n; i++) total += x[i];
  for (size_t l = 0; l < SUM_LANES_WIDE; l++) total += lane[l];
  return total;
}

/* Σ f(x[i]) in double, in eight lanes. */
#define SUM_IN_DOUBLE(expression)                                                                            \
  double lane[8] = {0};                                                                                      \
  size_t i = 0;                                                                                              \
  for (; i + 8 <= n; i += 8) {                                                                               \
    for (size_t l = 0; l < 8; l++) {                                                                         \
      const double v = x[i + l];                                                                             \
      lane[l] += expression;                                                                                 \
    }                                                                                                        \
  }                                                                                                          \
  for (; i < n; i++) {                                                                                       \
    const double v = x[i];                                                                                   \
    lane[0] += expression;                                                                                   \
  }                                                                                                          \
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));

static double sum_wide(const float *x, size_t n) {
  SUM_IN_DOUBLE(v)
}

double heed__scalar_sum_of_squares(const float *x, double mean, size_t n) {
  SUM_IN_DOUBLE((v - mean) * (v - mean))
}

void heed__scalar_sum_across(float *sum, const float *x, ptrdiff_t step, size_t rows, size_t groups,
                             size_t n) {
  enum { COLUMNS = 64 };
  float part[COLUMNS];
  for (size_t first = 0; first < n; first += COLUMNS) {
    const size_t count = n - first < COLUMNS ? n - first : COLUMNS;
    const float *row = x + first;
    for (size_t g = 0; g < groups; g++) {
      memset(part, 0, sizeof part);
      for (size_t r = 0; r < rows; r++, row += step) add_into(part, row, count);
      add_into(sum + first, part, count);
    }
  }
}

/* ---- Maximum ---- */

/* The larger of both; nan if either is nan. */
static inline float larger(float so_far, float x) {
  return ((x > so_far) | (x != x)) ? x : so_far;
}

float heed__scalar_max(const float *x, size_t n) {
  float most = -INFINITY;
  size_t i = 0;
  if (n >= HEED__LANES) {
    float lane[HEED__LANES];
    memcpy(lane, x, sizeof lane);
    for (i = HEED__LANES; i + HEED__LANES <= n; i += HEED__LANES)
      for (size_t l = 0; l < HEED__LANES; l++) lane[l] = larger(lane[l], x[i + l]);
    for (size_t l = 0; l < HEED__LANES; l++) most = larger(most, lane[l]);
  }
  for (; i < n; i++) most = larger(most, x[i]);
  return most;
}

/* ---- Softmax ---- */

/* The sum of a row's exponentials, short rows in order, long ones in lanes that are added as a tree:
 * PyTorch's order in softmax, which differs from that of its sum. */
static float sum_exponentials(const float *x, size_t n) {
  float total = 0.0f;
  if (n < HEED__LANES) {
    for (size_t i = 0; i < n; i++) total += x[i];
    return total;
  }
  float lane[HEED__LANES] = {0};
  size_t i = 0;
  for (; i + HEED__LANES <= n; i += HEED__LANES) add_into(lane, x + i, HEED__LANES);
  add_into(lane, x + i, n - i);
  return heed__scalar_join(lane);
}

/* A row of -inf alone gives nan: -inf - -inf. */
void heed__scalar_softmax(float *out, const float *x, size_t n) {
  const float most = heed__scalar_max(x, n);
  HEED__INDEPENDENT
  for (size_t i = 0; i < n; i++) out[i] = heed__exp_of(x[i] - most);
  const float scale = 1.0f / sum_exponentials(out, n); /* not a division for each: PyTorch's bits */
  HEED__INDEPENDENT
  for (size_t i = 0; i < n; i++) out[i] *= scale;
}

float heed__scalar_log_sum_exp(const float *x, size_t n, float *most_out) {
  enum { CHUNK = 256 };
  float e[CHUNK];
  const float most = heed__scalar_max(x, n);
  float total = 0.0f;
  for (size_t start = 0; start < n; start += CHUNK) {
    const size_t count = n - start < CHUNK ? n - start : CHUNK;
    for (size_t i = 0; i < count; i++) e[i] = heed__exp_of(x[start + i] - most);
    total += sum_exponentials(e, count);
  }
  *most_out = most;
  return logf(total);
}

void heed__scalar_log_softmax(float *out, const float *x, size_t n) {
  float most;
  const float log_total = heed__scalar_log_sum_exp(x, n, &most);
  HEED__INDEPENDENT
  for (size_t i = 0; i < n; i++) out[i] = x[i] - most - log_total;
}

/* ---- Norms ---- */

void heed__scalar_layer_norm(float *out, const float *x, const float *weight, const float *bias,
                             float epsilon, size_t n) {
  const double mean = sum_wide(x, n) / (double)n;
  const double variance = heed__scalar_sum_of_squares(x, mean, n) / (double)n;
  const double scale = 1.0 / sqrt(variance + (double)epsilon);
  HEED__INDEPENDENT
  for (size_t i = 0; i < n; i++) out[i] = (float)(((double)x[i] - mean) * scale);
  if (weight) {
    for (size_t i = 0; i < n; i++) out[i] *= weight[i];
  }
  if (bias) {
    for (size_t i = 0; i < n; i++) out[i] += bias[i];
  }
}

void heed__scalar_rms_norm(float *out, const float *x, const float *weight, float epsilon, size_t n) {
  const double mean_square = heed__scalar_sum_of_squares(x, 0.0, n) / (double)n;
  const float scale = (float)(1.0 / sqrt(mean_square + (double)epsilon));
  HEED__INDEPENDENT
  for (size_t i = 0; i < n; i++) out[i] = x[i] * scale;
  if (weight) {
    for (size_t i = 0; i < n; i++) out[i] *= weight[i];
  }
}
