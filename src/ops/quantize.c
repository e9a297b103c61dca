/* quantize_int8 and dequantize_int8: weights in int8 with a scale for each block of a row (heed.h). */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops.h"

heed_status heed__check_int8_weight(heed_context *ctx, const char *function, const heed_tensor *weight,
                                    const heed_tensor *scale) {
  char text[HEED__SHAPE_TEXT], weight_text[HEED__SHAPE_TEXT];
  heed_status status = heed__check_dtype(ctx, function, "weight", weight, HEED_INT8);
  if (status == HEED_OK) status = heed__check_dtype(ctx, function, "scale", scale, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  if (weight->ndim != 2)
    return heed__fail(ctx, HEED_SHAPE, "%s: weight is %s; it must have 2 dimensions", function,
                      heed__shape_text(text, weight->ndim, weight->shape));
  const int64_t rows = weight->shape[0], blocks = heed__int8_blocks(weight->shape[1]);
  if (scale->ndim != 2 || scale->shape[0] != rows || scale->shape[1] != blocks)
    return heed__fail(ctx, HEED_SHAPE,
                      "%s: scale is %s and weight is %s; scale must be [%lld, %lld], one for each %d columns",
                      function, heed__shape_text(text, scale->ndim, scale->shape),
                      heed__shape_text(weight_text, 2, weight->shape), (long long)rows, (long long)blocks,
                      HEED_INT8_BLOCK);
  return HEED_OK;
}

/* All tensors are row-major. */
typedef struct quantize_job {
  const float *x;
  int8_t *weight;
  float *scale;
  float *out; /* dequantize only */
  int64_t rows, columns, blocks;
  const heed__pace *pace;
} quantize_job;

/* Rows of a task: enough to be worth the call. */
enum { QUANTIZE_ROWS = 16 };

static int64_t tasks_of(const quantize_job *j) {
  return heed__parts(j->rows, QUANTIZE_ROWS);
}

/* x is finite. No calls in the loop, so that it vectorises: adding 1.5 · 2^52 rounds to an integer, which is
 * then in the lowest bits. */
static void quantize_block(const float *restrict x, int64_t n, int8_t *restrict weight, float *scale) {
  const double to_integer = 0x1.8p52;
  const float largest = heed__float_of_bits(heed__largest_magnitude(x, 1, n));
  /* at least the smallest normal number: a subnormal scale would have too few digits */
  *scale = largest == 0.0f ? 0.0f : largest / 127.0f > FLT_MIN ? largest / 127.0f : FLT_MIN;
  const double factor = largest == 0.0f ? 0.0 : 1.0 / (double)*scale;
  for (int64_t i = 0; i < n; i++) {
    const double shifted = (double)x[i] * factor + to_integer;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    weight[i] = (int8_t)(uint8_t)bits;
  }
}

static void quantize_rows(void *argument, int64_t task, int worker) {
  const quantize_job *j = argument;
  (void)worker;
  for (int64_t row = task * QUANTIZE_ROWS; row < j->rows && row < (task + 1) * QUANTIZE_ROWS; row++) {
    for (int64_t b = 0; b < j->blocks; b++) {
      if ((b & 255) == 255 && heed__is_due(j->pace)) return;
      const int64_t first = row * j->columns + b * HEED_INT8_BLOCK, rest = j->columns - b * HEED_INT8_BLOCK;
      quantize_block(j->x + first, heed__min(rest, HEED_INT8_BLOCK), j->weight + first,
                     j->scale + row * j->blocks + b);
    }
  }
}

static void dequantize_rows(void *argument, int64_t task, int worker) {
  const quantize_job *j = argument;
  (void)worker;
  for (int64_t row = task * QUANTIZE_ROWS; row < j->rows && row < (task + 1) * QUANTIZE_ROWS; row++) {
    const int8_t *weight = j->weight + row * j->columns;
    float *out = j->out + row * j->columns;
    for (int64_t b = 0; b < j->blocks; b++) {
      const int64_t first = b * HEED_INT8_BLOCK, rest = j->columns - first;
      const float scale = j->scale[row * j->blocks + b];
      if (heed__is_due_at(j->pace, b)) return;
      for (int64_t i = first; i < first + heed__min(rest, HEED_INT8_BLOCK); i++)
        out[i] = (float)weight[i] * scale;
    }
  }
}

static heed_status check_finite(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *x) {
  enum { FINITE_PIECE = 1 << 16 };
  const float *data = (const float *)x->data;
  for (int64_t piece = 0; piece < x->numel; piece += FINITE_PIECE) {
    const int64_t end = heed__min(x->numel, piece + FINITE_PIECE);
    if (heed__is_due(&ctx->pace)) {
      const heed_status status = heed__stopped(ctx, function);
      if (status != HEED_OK) return status;
    }
    if (!heed__any_above(data + piece, end - piece, 0x7f7fffff)) continue; /* FLT_MAX */
    int64_t i = piece;
    while (isfinite(data[i])) i++;
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %s[{%lld, %lld}] is %s; all elements must be finite", function,
                      argument, (long long)(i / x->shape[1] + 1), (long long)(i % x->shape[1] + 1),
                      isnan(data[i]) ? "nan"
                      : data[i] < 0  ? "-inf"
                                     : "inf");
  }
  return HEED_OK;
}

heed_status heed__quantize_int8(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *x, heed_tensor **weight, heed_tensor **scale) {
  char text[HEED__SHAPE_TEXT];
  heed_tensor *made = NULL;
  heed__result small = {0}, factors = {0};
  heed_status status = heed__check_dtype(ctx, function, argument, x, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  if (x->ndim != 2)
    return heed__fail(ctx, HEED_SHAPE, "%s: %s is %s; it must have 2 dimensions", function, argument,
                      heed__shape_text(text, x->ndim, x->shape));
  status = heed__as_contiguous(ctx, function, x, HEED_FLOAT32, &x, &made);
  if (status == HEED_OK) status = check_finite(ctx, function, argument, x);
  if (status != HEED_OK) goto done;
  quantize_job j = {.pace = &ctx->pace,
                    .rows = x->shape[0],
                    .columns = x->shape[1],
                    .blocks = heed__int8_blocks(x->shape[1])};
  const int64_t scale_shape[] = {j.rows, j.blocks};
  status = heed__result_begin_row_major(ctx, function, &small, weight, HEED_INT8, 2, x->shape, 1, &x);
  if (status != HEED_OK) goto done;
  status = heed__result_begin_row_major(ctx, function, &factors, scale, HEED_FLOAT32, 2, scale_shape, 1, &x);
  if (status != HEED_OK) goto done;
  j.x = (const float *)x->data;
  j.weight = (int8_t *)small.tensor->data;
  j.scale = (float *)factors.tensor->data;
  if (!heed__parallel(ctx, tasks_of(&j), quantize_rows, &j)) status = heed__stopped(ctx, function);
done:
  heed_tensor_free(made);
  status = heed__result_end(ctx, &factors, status);
  return heed__result_end(ctx, &small, status);
}

heed_status heed_quantize_int8(heed_context *ctx, const heed_tensor *x, heed_tensor **weight,
                               heed_tensor **scale) {
  HEED__ENTER(ctx, "quantize_int8", x, weight, scale);
  heed_status status = heed__check_apart(ctx, "quantize_int8", weight, scale);
  if (status == HEED_OK) status = heed__check_unrecorded(ctx, "quantize_int8", 1, &x);
  return status == HEED_OK ? heed__quantize_int8(ctx, "quantize_int8", "x", x, weight, scale) : status;
}

heed_status heed__dequantize_int8(heed_context *ctx, const char *function, const heed_tensor *weight,
                                  const heed_tensor *scale, heed_tensor **out) {
  heed_tensor *made_weight = NULL, *made_scale = NULL;
  heed__result result = {0};
  heed_status status = heed__check_int8_weight(ctx, function, weight, scale);
  if (status != HEED_OK) return status;
  status = heed__result_begin_row_major(ctx, function, &result, out, HEED_FLOAT32, 2, weight->shape, 2,
                                        (const heed_tensor *const[]){weight, scale});
  if (status != HEED_OK) return status;
  status = heed__as_contiguous(ctx, function, weight, HEED_INT8, &weight, &made_weight);
  if (status != HEED_OK) goto done;
  status = heed__as_contiguous(ctx, function, scale, HEED_FLOAT32, &scale, &made_scale);
  if (status != HEED_OK) goto done;
  quantize_job j = {.pace = &ctx->pace,
                    .weight = (int8_t *)weight->data,
                    .scale = (float *)scale->data,
                    .out = (float *)result.tensor->data,
                    .rows = weight->shape[0],
                    .columns = weight->shape[1],
                    .blocks = scale->shape[1]};
  if (!heed__parallel(ctx, tasks_of(&j), dequantize_rows, &j)) status = heed__stopped(ctx, function);
done:
  heed_tensor_free(made_weight);
  heed_tensor_free(made_scale);
  return heed__result_end(ctx, &result, status);
}

heed_status heed_dequantize_int8(heed_context *ctx, const heed_tensor *weight, const heed_tensor *scale,
                                 heed_tensor **out) {
  HEED__ENTER(ctx, "dequantize_int8", weight, scale, out);
  const heed_status status = heed__check_unrecorded(ctx, "dequantize_int8", 1, &scale);
  return status ? status : heed__dequantize_int8(ctx, "dequantize_int8", weight, scale, out);
}
