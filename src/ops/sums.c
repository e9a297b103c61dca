/* sum, mean, var, std, any and all. */
#include <math.h>

#include "reduce.h"

/* ---- Sums of float32 ---- */

/* Across rows, PyTorch's order of addition: 2^power elements are added in order, then 2^power of these sums,
 * and so on. */
#define LEVELS   4
#define WIDE_ROW 64 /* columns; of wider rows, blocks are added one by one, to read memory in order */

typedef struct float_sum {
  const heed__kernels *kernels;
  bool mean;
  int64_t count; /* elements of each result */
  double total;  /* sum of the rows along */
  int64_t done;  /* elements added across; 0: the levels are not set */
  int power;
  float level[LEVELS][HEED__REDUCE_WIDTH];
} float_sum;

static int ceil_log2(int64_t n) {
  int bits = 0;
  while (bits < 62 && (int64_t)1 << bits < n) bits++;
  return bits;
}

static void float_sum_begin(void *state, int pass, size_t width, int64_t count) {
  float_sum *s = state;
  (void)pass, (void)width;
  s->count = count;
  s->total = 0;
  s->done = 0;
}

static void float_sum_along(void *state, const void *x, size_t n) {
  float_sum *s = state;
  s->total += (double)s->kernels->sum(x, n);
}

/* After whole blocks: moves the sums of level - 1 up, and on from there where blocks of these are whole. */
static void move_up(float_sum *s, int level, size_t n) {
  for (; level < LEVELS && (s->done & (((int64_t)1 << level * s->power) - 1)) == 0; level++) {
    for (size_t i = 0; i < n; i++) {
      s->level[level][i] += s->level[level - 1][i];
      s->level[level - 1][i] = 0;
    }
  }
}

/* Whole blocks of rows are added to level 1 at once, at most to where level 1 moves up. */
static void float_sum_across(void *state, const void *x, ptrdiff_t step, size_t rows, size_t n) {
  float_sum *s = state;
  const float *row = x;
  if (s->done == 0) {
    s->power = ceil_log2(s->count) / LEVELS;
    if (s->power < 4) s->power = 4;
    for (int l = 0; l < LEVELS; l++) {
      for (size_t i = 0; i < n; i++) s->level[l][i] = 0;
    }
  }
  const size_t block = (size_t)1 << s->power;
  while (rows > 0) {
    const size_t row_in_block = (size_t)s->done & (block - 1);
    size_t some = block - row_in_block;
    if (some > rows || row_in_block > 0) {
      if (some > rows) some = rows;
      s->kernels->sum_across(s->level[0], row, step, 1, some, n);
      s->done += (int64_t)some;
      move_up(s, 1, n);
    } else {
      const size_t before = (size_t)(s->done >> s->power) & (block - 1);
      size_t blocks = n > WIDE_ROW ? 1 : rows >> s->power;
      if (blocks > block - before) blocks = block - before;
      some = blocks << s->power;
      s->kernels->sum_across(s->level[1], row, step, block, blocks, n);
      s->done += (int64_t)some;
      move_up(s, 2, n);
    }
    row += (ptrdiff_t)some * step;
    rows -= some;
  }
}

static void float_sum_finish(void *state, size_t width, void *const *out, const ptrdiff_t *stride) {
  float_sum *s = state;
  float *to = out[0];
  for (size_t i = 0; i < width; i++) {
    float sum = (float)s->total; /* 0 unless there is a single result */
    for (int l = 0; l < LEVELS && s->done > 0; l++) sum += s->level[l][i];
    to[(ptrdiff_t)i * stride[0]] = s->mean ? sum / (float)s->count : sum;
  }
}

static void float_sum_rows(void *state, const void *x, ptrdiff_t step, size_t n, void *out, ptrdiff_t stride,
                           size_t results) {
  const float_sum *s = state;
  const float *row = x;
  float *to = out;
  for (size_t i = 0; i < results; i++, row += step, to += stride) {
    const float sum = s->kernels->sum(row, n);
    *to = s->mean ? sum / (float)n : sum;
  }
}

static const heed__reduction float_sum_reduction = {
    HEED_FLOAT32,  1, float_sum_along, float_sum_across, float_sum_begin, float_sum_finish, sizeof(float_sum),
    float_sum_rows};

/* ---- Sums of int64 and bool, which wrap ---- */

typedef struct int64_sum {
  uint64_t total[HEED__REDUCE_WIDTH];
} int64_sum;

static void int64_sum_begin(void *state, int pass, size_t width, int64_t count) {
  int64_sum *s = state;
  (void)pass, (void)count;
  for (size_t i = 0; i < width; i++) s->total[i] = 0;
}

static void int64_sum_along(void *state, const void *x, size_t n) {
  int64_sum *s = state;
  const int64_t *row = x;
  uint64_t total = s->total[0];
  for (size_t i = 0; i < n; i++) total += (uint64_t)row[i];
  s->total[0] = total;
}

static void int64_sum_across(void *state, const void *x, ptrdiff_t step, size_t rows, size_t n) {
  int64_sum *s = state;
  const int64_t *row = x;
  for (; rows > 0; rows--, row += step) {
    for (size_t i = 0; i < n; i++) s->total[i] += (uint64_t)row[i];
  }
}

static void int64_sum_finish(void *state, size_t width, void *const *out, const ptrdiff_t *stride) {
  int64_sum *s = state;
  int64_t *to = out[0];
  for (size_t i = 0; i < width; i++) to[(ptrdiff_t)i * stride[0]] = (int64_t)s->total[i];
}

static const heed__reduction int64_sum_reduction = {
    HEED_INT64,        1,   int64_sum_along, int64_sum_across, int64_sum_begin, int64_sum_finish,
    sizeof(int64_sum), NULL};

/* ---- Any and all ---- */

/* all(x) is not any(not x): one loop for both. */
typedef struct truth {
  bool all;
  uint8_t found[HEED__REDUCE_WIDTH]; /* whether an element decides: a true for any, a false for all */
} truth;

static void truth_begin(void *state, int pass, size_t width, int64_t count) {
  truth *s = state;
  (void)pass, (void)count;
  for (size_t i = 0; i < width; i++) s->found[i] = 0;
}

static void truth_along(void *state, const void *x, size_t n) {
  truth *s = state;
  const uint8_t *row = x;
  const bool sought = !s->all;
  uint8_t found = s->found[0];
  for (size_t i = 0; i < n; i++) found |= (row[i] != 0) == sought;
  s->found[0] = found;
}

static void truth_across(void *state, const void *x, ptrdiff_t step, size_t rows, size_t n) {
  truth *s = state;
  const uint8_t *row = x;
  const bool sought = !s->all;
  for (; rows > 0; rows--, row += step) {
    for (size_t i = 0; i < n; i++) s->found[i] |= (row[i] != 0) == sought;
  }
}

static void truth_finish(void *state, size_t width, void *const *out, const ptrdiff_t *stride) {
  truth *s = state;
  uint8_t *to = out[0];
  for (size_t i = 0; i < width; i++) to[(ptrdiff_t)i * stride[0]] = (s->found[i] != 0) != s->all;
}

static const heed__reduction truth_reduction = {
    HEED_BOOL, 1, truth_along, truth_across, truth_begin, truth_finish, sizeof(truth), NULL};

/* ---- Variance: the mean in a first pass, squares around it in a second, both in double ---- */

#define LANES 8

typedef struct spread {
  const heed__kernels *kernels;
  double correction;
  bool root;
  int pass;
  int64_t count;
  double mean[HEED__REDUCE_WIDTH]; /* the sum, in the first pass */
  double squares[HEED__REDUCE_WIDTH];
} spread;

static void spread_begin(void *state, int pass, size_t width, int64_t count) {
  spread *s = state;
  s->pass = pass;
  s->count = count;
  for (size_t i = 0; i < width; i++) {
    if (pass == 0)
      s->mean[i] = 0;
    else
      s->mean[i] /= (double)count;
    s->squares[i] = 0;
  }
}

/* In lanes, which the compiler vectorises. */
static double sum_in_double(const float *x, size_t n) {
  double lane[LANES] = {0}, sum = 0;
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    for (size_t l = 0; l < LANES; l++) lane[l] += (double)x[i + l];
  }
  for (; i < n; i++) sum += (double)x[i];
  for (size_t l = 0; l < LANES; l++) sum += lane[l];
  return sum;
}

static void spread_along(void *state, const void *x, size_t n) {
  spread *s = state;
  if (s->pass == 0)
    s->mean[0] += sum_in_double(x, n);
  else
    s->squares[0] += s->kernels->sum_of_squares(x, s->mean[0], n);
}

static void spread_across(void *state, const void *x, ptrdiff_t step, size_t rows, size_t n) {
  spread *s = state;
  const float *row = x;
  for (; rows > 0; rows--, row += step) {
    if (s->pass == 0) {
      for (size_t i = 0; i < n; i++) s->mean[i] += (double)row[i];
    } else {
      for (size_t i = 0; i < n; i++) {
        const double d = (double)row[i] - s->mean[i];
        s->squares[i] += d * d;
      }
    }
  }
}

static void spread_finish(void *state, size_t width, void *const *out, const ptrdiff_t *stride) {
  spread *s = state;
  float *to = out[0];
  const double freedom = (double)s->count - s->correction;
  for (size_t i = 0; i < width; i++) {
    const double variance = s->squares[i] / (freedom < 0 ? 0 : freedom);
    to[(ptrdiff_t)i * stride[0]] = (float)(s->root ? sqrt(variance) : variance);
  }
}

static const heed__reduction spread_reduction = {
    HEED_FLOAT32, 2, spread_along, spread_across, spread_begin, spread_finish, sizeof(spread), NULL};

/* ---- The functions ---- */

static heed_status sum_of_floats(heed_context *ctx, const char *function, bool mean, const heed_tensor *x,
                                 int ndims, const int *dims, bool keepdim, heed_tensor **out) {
  float_sum state;
  state.kernels = heed__kernels_of(ctx);
  state.mean = mean;
  return heed__reduce_dims(ctx, function, &float_sum_reduction, &state, x, ndims, dims, keepdim, HEED_FLOAT32,
                           out);
}

heed_status heed_sum(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                     heed_tensor **out) {
  HEED__ENTER(ctx, "sum", x, out);
  if (x->dtype == HEED_FLOAT32) {
    const heed_status status = sum_of_floats(ctx, "sum", false, x, ndims, dims, keepdim, out);
    return heed__recorded_reduction(ctx, status, HEED__OP_sum, x, ndims, dims, keepdim, 0, out);
  }
  int64_sum state;
  return heed__reduce_dims(ctx, "sum", &int64_sum_reduction, &state, x, ndims, dims, keepdim, HEED_INT64,
                           out);
}

heed_status heed_mean(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                      heed_tensor **out) {
  HEED__ENTER(ctx, "mean", x, out);
  heed_status status = heed__check_dtype(ctx, "mean", "x", x, HEED_FLOAT32);
  if (status == HEED_OK) status = sum_of_floats(ctx, "mean", true, x, ndims, dims, keepdim, out);
  return heed__recorded_reduction(ctx, status, HEED__OP_mean, x, ndims, dims, keepdim, 0, out);
}

static heed_status spread_of(heed_context *ctx, const char *function, bool root, const heed_tensor *x,
                             int ndims, const int *dims, double correction, bool keepdim, heed_tensor **out) {
  spread state;
  state.kernels = heed__kernels_of(ctx);
  state.correction = correction;
  state.root = root;
  const heed_status status = heed__check_dtype(ctx, function, "x", x, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  return heed__reduce_dims(ctx, function, &spread_reduction, &state, x, ndims, dims, keepdim, HEED_FLOAT32,
                           out);
}

heed_status heed_var(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, double correction,
                     bool keepdim, heed_tensor **out) {
  HEED__ENTER(ctx, "var", x, out);
  const heed_status status = spread_of(ctx, "var", false, x, ndims, dims, correction, keepdim, out);
  return heed__recorded_reduction(ctx, status, HEED__OP_var, x, ndims, dims, keepdim, correction, out);
}

heed_status heed_std(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, double correction,
                     bool keepdim, heed_tensor **out) {
  HEED__ENTER(ctx, "std", x, out);
  const heed_status status = spread_of(ctx, "std", true, x, ndims, dims, correction, keepdim, out);
  return heed__recorded_reduction(ctx, status, HEED__OP_std, x, ndims, dims, keepdim, correction, out);
}

static heed_status truth_of(heed_context *ctx, const char *function, bool all, const heed_tensor *x,
                            int ndims, const int *dims, bool keepdim, heed_tensor **out) {
  truth state;
  state.all = all;
  return heed__reduce_dims(ctx, function, &truth_reduction, &state, x, ndims, dims, keepdim, HEED_BOOL, out);
}

heed_status heed_any(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                     heed_tensor **out) {
  HEED__ENTER(ctx, "any", x, out);
  const heed_status status = truth_of(ctx, "any", false, x, ndims, dims, keepdim, out);
  return heed__recorded_constant(ctx, status, HEED__OP_any, out);
}

heed_status heed_all(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                     heed_tensor **out) {
  HEED__ENTER(ctx, "all", x, out);
  const heed_status status = truth_of(ctx, "all", true, x, ndims, dims, keepdim, out);
  return heed__recorded_constant(ctx, status, HEED__OP_all, out);
}
