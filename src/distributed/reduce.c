/* Sums and other reductions over ranks, in the order of the ranks. */
#include <string.h>

#include "distributed.h"

heed_status dist_check_op(dist *d, const char *call, dist_op op, heed_dtype dtype) {
  if (dtype == HEED_FLOAT32 || (dtype == HEED_INT64 && op != DIST_AVG) ||
      (dtype == HEED_BOOL && (op == DIST_MIN || op == DIST_MAX)))
    return HEED_OK;
  const char *needed = op == DIST_AVG                     ? "float32; use x:float()"
                       : op == DIST_MIN || op == DIST_MAX ? "float32, int64 or bool; use x:float()"
                                                          : "float32 or int64; use x:float()";
  return dist_fail(d, HEED_DTYPE, "%s: x is %s; for the op %s it must be %s", call, heed_dtype_name(dtype),
                   dist_op_names[op], needed);
}

/* As in PyTorch, the result is nan if one of the two is. */
static inline float smaller(float a, float b) {
  return a < b || a != a ? a : b;
}
static inline float larger(float a, float b) {
  return a > b || a != a ? a : b;
}

/* Blocks of this many elements stay in the first cache while all ranks are added. */
enum { BLOCK = 2048 };

#define EACH(expression)                                                                                     \
  for (int64_t i = 0; i < n; i++) {                                                                          \
    a[i] = (expression);                                                                                     \
  }

static void combine_float32(dist_op op, float *restrict a, const float *restrict b, int64_t n) {
  switch (op) {
  case DIST_SUM:
  case DIST_AVG: EACH(a[i] + b[i]); break;
  case DIST_PROD: EACH(a[i] * b[i]); break;
  case DIST_MIN: EACH(smaller(a[i], b[i])); break;
  case DIST_MAX: EACH(larger(a[i], b[i])); break;
  }
}

/* Sums and products wrap around, as elsewhere in heed. */
static void combine_int64(dist_op op, int64_t *restrict a, const int64_t *restrict b, int64_t n) {
  switch (op) {
  case DIST_SUM:
  case DIST_AVG: EACH((int64_t)((uint64_t)a[i] + (uint64_t)b[i])); break;
  case DIST_PROD: EACH((int64_t)((uint64_t)a[i] * (uint64_t)b[i])); break;
  case DIST_MIN: EACH(a[i] < b[i] ? a[i] : b[i]); break;
  case DIST_MAX: EACH(a[i] > b[i] ? a[i] : b[i]); break;
  }
}

static void combine_bool(dist_op op, uint8_t *restrict a, const uint8_t *restrict b, int64_t n) {
  if (op == DIST_MIN)
    EACH(a[i] & b[i])
  else
    EACH(a[i] | b[i])
}

void dist_reduce(heed_dtype dtype, dist_op op, const void *all, int ranks, int64_t n, void *out) {
  const int64_t size = dist_element_bytes(dtype);
  for (int64_t at = 0; at < n; at += BLOCK) {
    const int64_t count = n - at < BLOCK ? n - at : BLOCK;
    char *to = (char *)out + at * size;
    memcpy(to, (const char *)all + at * size, (size_t)(count * size));
    for (int r = 1; r < ranks; r++) {
      const void *from = (const char *)all + (r * n + at) * size;
      if (dtype == HEED_FLOAT32)
        combine_float32(op, (float *)to, from, count);
      else if (dtype == HEED_INT64)
        combine_int64(op, (int64_t *)to, from, count);
      else
        combine_bool(op, (uint8_t *)to, from, count);
    }
    if (op == DIST_AVG)
      for (int64_t i = 0; i < count; i++) ((float *)to)[i] /= (float)ranks;
  }
}
