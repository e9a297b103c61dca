/* max and min: the largest and the smallest element, and its position. */
#include "reduce.h"

#include <math.h>
#include <string.h>

typedef struct extreme {
  const heed__kernels *kernels;
  heed_dtype dtype;
  int64_t done; /* elements of each result so far */
  _Alignas(HEED__ALIGNMENT) int64_t position[HEED__REDUCE_WIDTH];
  union {
    uint8_t of_bool[HEED__REDUCE_WIDTH];
    int64_t of_int64[HEED__REDUCE_WIDTH];
    float of_float[HEED__REDUCE_WIDTH];
  } best;
} extreme;

static void extreme_begin(void *state, int pass, size_t width, int64_t count) {
  extreme *s = state;
  (void)pass, (void)width, (void)count;
  s->done = 0;
}

static void extreme_finish(void *state, size_t width, void *const *out, const ptrdiff_t *stride) {
  extreme *s = state;
  int64_t *positions = out[1];
  heed__copy_row(s->dtype, out[0], stride[0], s->dtype, &s->best, 1, (int64_t)width);
  for (size_t i = 0; i < width; i++) positions[(ptrdiff_t)i * stride[1]] = s->position[i] + 1;
}

/* Most blocks of a long row contain no better element; a vectorised loop skips them. */
#define BLOCK 64

/* better: whether x replaces best. The first of equal elements, or of several nan, stays. */
#define ALONG(name, type, field, better)                                                                     \
  static void name##_along(void *state, const void *elements, size_t n) {                                    \
    extreme *s = state;                                                                                      \
    const type *row = elements;                                                                              \
    type best = s->done == 0 ? row[0] : s->best.field[0];                                                    \
    int64_t position = s->done == 0 ? 0 : s->position[0];                                                    \
    for (size_t first = 0; first < n; first += BLOCK) {                                                      \
      const size_t end = n - first < BLOCK ? n : first + BLOCK;                                              \
      int any = 0;                                                                                           \
      for (size_t i = first; i < end; i++) {                                                                 \
        const type x = row[i];                                                                               \
        any |= (better);                                                                                     \
      }                                                                                                      \
      for (size_t i = first; any && i < end; i++) {                                                          \
        const type x = row[i];                                                                               \
        if (better) best = x, position = s->done + (int64_t)i;                                               \
      }                                                                                                      \
    }                                                                                                        \
    s->best.field[0] = best;                                                                                 \
    s->position[0] = position;                                                                               \
    s->done += (int64_t)n;                                                                                   \
  }

#define ACROSS(name, type, field, better)                                                                    \
  static void name##_across(void *state, const void *elements, ptrdiff_t step, size_t rows, size_t n) {      \
    extreme *s = state;                                                                                      \
    const type *row = elements;                                                                              \
    if (s->done == 0 && rows > 0) {                                                                          \
      memcpy(s->best.field, row, n * sizeof(type));                                                          \
      memset(s->position, 0, n * sizeof(s->position[0]));                                                    \
      s->done = 1, rows--, row += step;                                                                      \
    }                                                                                                        \
    for (; rows > 0; rows--, row += step) {                                                                  \
      for (size_t i = 0; i < n; i++) {                                                                       \
        const type x = row[i], best = s->best.field[i];                                                      \
        const bool take = better;                                                                            \
        s->best.field[i] = take ? x : best;                                                                  \
        s->position[i] = take ? s->done : s->position[i];                                                    \
      }                                                                                                      \
      s->done++;                                                                                             \
    }                                                                                                        \
  }

#define EXTREME(...) ALONG(__VA_ARGS__) ACROSS(__VA_ARGS__)
EXTREME(bool_max, uint8_t, of_bool, x > best)
EXTREME(bool_min, uint8_t, of_bool, x < best)
EXTREME(int64_max, int64_t, of_int64, x > best)
EXTREME(int64_min, int64_t, of_int64, x < best)

/* float32: the kernels find the value of a row, then its first position. */
#define PIECE 256 /* elements of a buffer */

/* sign: 1 for the largest, -1 for the smallest. */
static inline bool is_better(float x, float best, float sign) {
  return !(x * sign <= best * sign) & (best == best); /* & instead of &&, to vectorise */
}

/* The best of n elements; nan if one of them is. */
static float best_value(const heed__kernels *k, const float *row, size_t n, float sign) {
  float negative[PIECE], most = -INFINITY;
  if (sign > 0) return k->max(row, n);
  for (size_t first = 0; first < n && most == most; first += PIECE) {
    const size_t count = n - first < PIECE ? n - first : PIECE;
    k->neg(negative, row + first, count);
    const float found = k->max(negative, count);
    most = found <= most ? most : found;
  }
  return -most;
}

static size_t first_position(const heed__kernels *k, const float *row, size_t n, float value) {
  uint8_t is[PIECE];
  for (size_t first = 0; first < n; first += PIECE) {
    const size_t count = n - first < PIECE ? n - first : PIECE;
    if (value == value)
      k->eq(is, row + first, 1, &value, 0, count);
    else
      k->ne(is, row + first, 1, row + first, 1, count);
    const uint8_t *found = memchr(is, 1, count);
    if (found != NULL) return first + (size_t)(found - is);
  }
  return 0; /* not reached: value is one of the elements */
}

ALONG(short_largest, float, of_float, is_better(x, best, 1))
ALONG(short_least, float, of_float, is_better(x, best, -1))

static void float_along(extreme *s, const float *row, size_t n, float sign) {
  float best = s->done == 0 ? row[0] : s->best.of_float[0];
  int64_t position = s->done == 0 ? 0 : s->position[0];
  const float value = best_value(s->kernels, row, n, sign);
  if (s->done == 0 || is_better(value, best, sign)) {
    const size_t first = first_position(s->kernels, row, n, value);
    best = row[first];
    position = s->done + (int64_t)first;
  }
  s->best.of_float[0] = best;
  s->position[0] = position;
  s->done += (int64_t)n;
}

static void largest_along(void *state, const void *row, size_t n) {
  if (n < HEED__SHORT_ROW)
    short_largest_along(state, row, n);
  else
    float_along(state, row, n, 1);
}
static void least_along(void *state, const void *row, size_t n) {
  if (n < HEED__SHORT_ROW)
    short_least_along(state, row, n);
  else
    float_along(state, row, n, -1);
}
ACROSS(largest, float, of_float, is_better(x, best, 1))
ACROSS(least, float, of_float, is_better(x, best, -1))

#define EXTREME_ROW(dtype, along, across)                                                                    \
  { dtype, 1, along, across, extreme_begin, extreme_finish, sizeof(extreme), NULL }
static const heed__reduction maximum[] = {
    [HEED_BOOL] = EXTREME_ROW(HEED_BOOL, bool_max_along, bool_max_across),
    [HEED_INT64] = EXTREME_ROW(HEED_INT64, int64_max_along, int64_max_across),
    [HEED_FLOAT32] = EXTREME_ROW(HEED_FLOAT32, largest_along, largest_across),
};
static const heed__reduction minimum[] = {
    [HEED_BOOL] = EXTREME_ROW(HEED_BOOL, bool_min_along, bool_min_across),
    [HEED_INT64] = EXTREME_ROW(HEED_INT64, int64_min_along, int64_min_across),
    [HEED_FLOAT32] = EXTREME_ROW(HEED_FLOAT32, least_along, least_across),
};

static heed_status choose(heed_context *ctx, const char *function, const heed__reduction *table,
                          const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                          heed_tensor **values, heed_tensor **indices) {
  heed__indexed_result result;
  uint32_t reduced;
  int64_t shape[HEED_MAX_DIMS];
  extreme state;
  heed_status status = heed__check_apart(ctx, function, values, indices);
  if (status == HEED_OK) status = heed__reduced_dims(ctx, function, x, ndims, dims, &reduced);
  if (status != HEED_OK) return status;
  status = heed__check_reduced(ctx, function, x, reduced);
  if (status != HEED_OK) return status;
  const int ndim = heed__reduced_shape(x, reduced, keepdim, shape);
  status = heed__indexed_result_begin(ctx, function, &result, values, indices, ndim, shape, x);
  if (status != HEED_OK) goto done;
  state.kernels = heed__kernels_of(ctx);
  state.dtype = x->dtype;
  const heed_tensor *results[] = {result.values.tensor, result.indices.tensor};
  if (!heed__reduce(ctx, &table[x->dtype], &state, x, reduced, keepdim, 2, results))
    status = heed__stopped(ctx, function);
done:
  return heed__indexed_result_end(ctx, &result, status);
}

/* dim 0: the whole of x */
static heed_status choose_one(heed_context *ctx, const char *function, heed__op op,
                              const heed__reduction *table, const heed_tensor *x, int dim, bool keepdim,
                              heed_tensor **values, heed_tensor **indices) {
  heed_tensor *unwanted = NULL;
  if (indices == NULL && ctx->recorder != NULL) indices = &unwanted; /* the gradient wants them */
  const bool is_new = indices != NULL && *indices == NULL;
  heed_status status = choose(ctx, function, table, x, dim == 0 ? 0 : 1, &dim, keepdim, values, indices);
  const int from_0 = dim > 0 ? dim - 1 : dim < 0 ? dim + (x->ndim > 0 ? x->ndim : 1) : -1;
  status = heed__recorded_selection(ctx, status, op, x, (heed__selection_values){from_0, !keepdim}, is_new,
                                    values, indices);
  heed_tensor_free(unwanted);
  return status;
}

heed_status heed_max(heed_context *ctx, const heed_tensor *x, int dim, bool keepdim, heed_tensor **values,
                     heed_tensor **indices) {
  HEED__ENTER(ctx, "max", x, values);
  HEED__MAY_ENTER(ctx, "max", indices);
  return choose_one(ctx, "max", HEED__OP_max, maximum, x, dim, keepdim, values, indices);
}

heed_status heed_min(heed_context *ctx, const heed_tensor *x, int dim, bool keepdim, heed_tensor **values,
                     heed_tensor **indices) {
  HEED__ENTER(ctx, "min", x, values);
  HEED__MAY_ENTER(ctx, "min", indices);
  return choose_one(ctx, "min", HEED__OP_min, minimum, x, dim, keepdim, values, indices);
}

heed_status heed_amax(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                      heed_tensor **out) {
  HEED__ENTER(ctx, "amax", x, out);
  const heed_status status = choose(ctx, "amax", maximum, x, ndims, dims, keepdim, out, NULL);
  return heed__recorded_reduction(ctx, status, HEED__OP_amax, x, ndims, dims, keepdim, 0, out);
}

heed_status heed_amin(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                      heed_tensor **out) {
  HEED__ENTER(ctx, "amin", x, out);
  const heed_status status = choose(ctx, "amin", minimum, x, ndims, dims, keepdim, out, NULL);
  return heed__recorded_reduction(ctx, status, HEED__OP_amin, x, ndims, dims, keepdim, 0, out);
}
