/* where, masked_fill, nan_to_num, tril and triu. */
#include <math.h>
#include <string.h>

#include "map.h"

/* Selects by masking bits of `word`: branches would be unpredictable. */
#define CHOOSE(word, step, a_step, b_step)                                                                   \
  for (size_t i = 0; i < n; i++) {                                                                           \
    word yes, no;                                                                                            \
    memcpy(&yes, a + (ptrdiff_t)i * (a_step), sizeof yes);                                                   \
    memcpy(&no, b + (ptrdiff_t)i * (b_step), sizeof no);                                                     \
    const word all = (word)(0 - (word)(condition[(ptrdiff_t)i * (step)] != 0));                              \
    no = (word)(no ^ ((yes ^ no) & all));                                                                    \
    memcpy(to + i, &no, sizeof no);                                                                          \
  }

/* out = in[1] where in[0] (bool), else in[2]. Loops with constant strides are vectorised. */
#define CHOOSE_ROW(name, type, word)                                                                         \
  static void name(const void *user, void *out, const heed__span *in, size_t n) {                            \
    (void)user;                                                                                              \
    type *to = out;                                                                                          \
    const uint8_t *condition = in[0].data;                                                                   \
    const type *a = in[1].data, *b = in[2].data;                                                             \
    const ptrdiff_t step = in[0].stride, a_step = in[1].stride, b_step = in[2].stride;                       \
    if (step == 1 && a_step == 1 && b_step == 1) {                                                           \
      CHOOSE(word, 1, 1, 1)                                                                                  \
    } else if (step == 1 && a_step == 1 && b_step == 0) {                                                    \
      CHOOSE(word, 1, 1, 0)                                                                                  \
    } else if (step == 1 && a_step == 0 && b_step == 1) {                                                    \
      CHOOSE(word, 1, 0, 1)                                                                                  \
    } else if (step == 1 && a_step == 0 && b_step == 0) {                                                    \
      CHOOSE(word, 1, 0, 0)                                                                                  \
    } else if (step == 0 && a_step == 1 && b_step == 1) {                                                    \
      CHOOSE(word, 0, 1, 1)                                                                                  \
    } else {                                                                                                 \
      CHOOSE(word, step, a_step, b_step)                                                                     \
    }                                                                                                        \
  }

CHOOSE_ROW(bool_choose, uint8_t, uint8_t)
CHOOSE_ROW(int64_choose, int64_t, uint64_t)
CHOOSE_ROW(float_choose, float, uint32_t)

static heed__row *const choose_rows[] = {
    [HEED_BOOL] = bool_choose,
    [HEED_INT64] = int64_choose,
    [HEED_FLOAT32] = float_choose,
};

heed_status heed_where(heed_context *ctx, const heed_tensor *condition, const heed_tensor *a,
                       const heed_tensor *b, heed_tensor **out) {
  HEED__ENTER(ctx, "where", condition, a, b, out);
  heed_status status = heed__check_dtype(ctx, "where", "condition", condition, HEED_BOOL);
  if (status == HEED_OK) status = heed__check_arithmetic(ctx, "where", "a", a);
  if (status == HEED_OK) status = heed__check_arithmetic(ctx, "where", "b", b);
  if (status != HEED_OK) return status;
  const heed_dtype dtype = heed__wider(a->dtype, b->dtype);
  const heed__map map = {
      .function = "where",
      .result = dtype,
      .row = choose_rows[dtype],
      .count = 3,
      .input = {{"condition", condition, HEED_BOOL}, {"a", a, dtype}, {"b", b, dtype}},
  };
  status = heed__map_run(ctx, &map, out);
  return heed__recorded(ctx, status, HEED__OP_where, 3, (const heed_tensor *const[]){condition, a, b}, NULL,
                        0, out);
}

heed_status heed__masked_fill(heed_context *ctx, const heed_tensor *x, const heed_tensor *mask,
                              heed_scalar value, const heed_tensor *source, heed_tensor **out) {
  heed__number number;
  heed_status status = heed__check_dtype(ctx, "masked_fill", "mask", mask, HEED_BOOL);
  if (status == HEED_OK) status = heed__check_arithmetic(ctx, "masked_fill", "x", x);
  if (status != HEED_OK) return status;
  const heed__map map = {
      .function = "masked_fill",
      .result = x->dtype,
      .row = choose_rows[x->dtype],
      .count = 3,
      .input = {{"mask", mask, HEED_BOOL},
                {"value", heed__number_tensor(&number, value), x->dtype},
                {"x", x, x->dtype}},
  };
  if (x->dtype == HEED_INT64 && value.dtype == HEED_FLOAT32) {
    const double v = value.as.number;
    if (!(v >= -0x1p63 && v < 0x1p63) || v != floor(v))
      return heed__fail(ctx, HEED_DTYPE,
                        "masked_fill: value is %s and x is int64; it must be an integer that int64 can hold",
                        HEED__G(v));
    number.tensor.dtype = HEED_INT64; /* float32 would round it */
    heed__store(HEED_INT64, number.tensor.data, value);
  }
  status = heed__map_run(ctx, &map, out);
  return heed__recorded(ctx, status, HEED__OP_masked_fill, 3, (const heed_tensor *const[]){x, mask, source},
                        NULL, 0, out);
}

heed_status heed_masked_fill(heed_context *ctx, const heed_tensor *x, const heed_tensor *mask,
                             heed_scalar value, heed_tensor **out) {
  HEED__ENTER(ctx, "masked_fill", x, mask, value, out);
  return heed__masked_fill(ctx, x, mask, value, NULL, out);
}

/* ---- nan_to_num ---- */

typedef struct replacements {
  size_t bytes; /* of an element */
  float nan, high, low;
} replacements;

static void float_replace(const void *user, void *out, const heed__span *in, size_t n) {
  const replacements r = *(const replacements *)user;
  float *to = out;
  const float *from = in[0].data;
  for (size_t i = 0; i < n; i++) {
    const float x = from[i], number = x != x ? r.nan : x;
    to[i] = x == INFINITY ? r.high : x == -INFINITY ? r.low : number;
  }
}

static void keep_row(const void *user, void *out, const heed__span *in, size_t n) {
  const replacements *r = user;
  if (out != in[0].data) memcpy(out, in[0].data, n * r->bytes);
}

heed_status heed_nan_to_num(heed_context *ctx, const heed_tensor *x, double nan, double posinf, double neginf,
                            heed_tensor **out) {
  HEED__ENTER(ctx, "nan_to_num", x, out);
  heed_status status = heed__check_arithmetic(ctx, "nan_to_num", "x", x);
  if (status != HEED_OK) return status;
  const replacements r = {heed__element_bytes(x->dtype), (float)nan, (float)posinf, (float)neginf};
  const heed__map map = {
      .function = "nan_to_num",
      .result = x->dtype,
      .row = x->dtype == HEED_FLOAT32 ? float_replace : keep_row,
      .user = &r,
      .packed = true,
      .count = 1,
      .input = {{"x", x, x->dtype}},
  };
  heed__kept kept;
  status = heed__keep_inputs(ctx, HEED__OP_nan_to_num, &kept, x, NULL, NULL, *out);
  if (status == HEED_OK) status = heed__map_run(ctx, &map, out);
  return heed__recorded_kept(ctx, status, HEED__OP_nan_to_num, 1, &kept, NULL, 0, out);
}

/* ---- Triangles ---- */

/* Sets n elements to 0. */
static void clear_row(heed_dtype dtype, char *to, ptrdiff_t stride, int64_t n) {
  static const int64_t zero = 0;
  if (n == 0) return;
  if (stride == 1)
    memset(to, 0, (size_t)n * heed__element_bytes(dtype));
  else
    heed__copy_row(dtype, to, stride, dtype, &zero, 0, n);
}

/* Copies elements first…last - 1 of a lane from x; sets the others to 0. */
static void keep_part(const heed__walk *w, heed_dtype dtype, int64_t first, int64_t last) {
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(dtype);
  const ptrdiff_t out = w->stride[0], x = w->stride[1];
  char *to = w->data[0];
  const char *from = w->data[1];
  clear_row(dtype, to, out, first);
  if (to != from && first < last)
    heed__copy_row(dtype, to + first * out * bytes, out, dtype, from + first * x * bytes, x, last - first);
  clear_row(dtype, to + last * out * bytes, out, w->count - last);
}

static heed_status triangle(heed_context *ctx, const char *function, bool lower, const heed_tensor *x,
                            int64_t diagonal, heed_tensor **out) {
  heed__result result = {0};
  heed_status status = heed__check_arithmetic(ctx, function, "x", x);
  if (status != HEED_OK) return status;
  if (x->ndim < 2)
    return heed__fail(ctx, HEED_SHAPE, "%s: x has %d dimension%s; it must have at least 2", function, x->ndim,
                      HEED__S(x->ndim));
  status = heed__result_begin(ctx, function, &result, out, x->dtype, x->ndim, x->shape, true, 1, &x);
  if (status != HEED_OK) return status;
  const int64_t rows = x->shape[x->ndim - 2], columns = x->shape[x->ndim - 1];
  diagonal = heed__max(-rows, heed__min(diagonal, columns));
  heed__walk w;
  int64_t row = 0; /* of the matrix; the walk is in row-major order */
  const heed_tensor *operands[] = {result.tensor, x};
  for (bool more = heed__walk_lanes_begin(&w, x->ndim, x->shape, x->ndim - 1, 2, operands);
       more && status == HEED_OK; more = heed__walk_next(&w)) {
    /* the first element that is cleared (lower) or kept */
    const int64_t edge = heed__max(0, heed__min(row + diagonal + (lower ? 1 : 0), columns));
    keep_part(&w, x->dtype, lower ? 0 : edge, lower ? edge : columns);
    row = row + 1 == rows ? 0 : row + 1;
    if (heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
  }
  return heed__result_end(ctx, &result, status);
}

heed_status heed_tril(heed_context *ctx, const heed_tensor *x, int64_t diagonal, heed_tensor **out) {
  HEED__ENTER(ctx, "tril", x, out);
  const heed_status status = triangle(ctx, "tril", true, x, diagonal, out);
  return heed__recorded1(ctx, status, HEED__OP_tril, x, &diagonal, sizeof diagonal, out);
}

heed_status heed_triu(heed_context *ctx, const heed_tensor *x, int64_t diagonal, heed_tensor **out) {
  HEED__ENTER(ctx, "triu", x, out);
  const heed_status status = triangle(ctx, "triu", false, x, diagonal, out);
  return heed__recorded1(ctx, status, HEED__OP_triu, x, &diagonal, sizeof diagonal, out);
}
