/* multinomial: indices drawn with given weights, as PyTorch draws them. */
#include <float.h>
#include <math.h>

#include "ops.h"

/* The smallest and largest weight, the sum of each row and, without replacement, enough positive weights are
 * checked before anything is drawn. */
static heed_status check_weights(heed_context *ctx, const float *weights, int64_t rows, int64_t n,
                                 int64_t needed) {
  int64_t done = 0;
  for (int64_t row = 0; row < rows; row++) {
    int64_t positive = 0;
    for (int64_t i = 0; i < n; i++, done++) {
      const float p = weights[row * n + i];
      if (!(p >= 0 && p <= FLT_MAX))
        return heed__fail(ctx, HEED_ARGUMENT,
                          "multinomial: weights contain %s (element %lld%s%lld); they must be finite and not "
                          "negative",
                          HEED__G((double)p), (long long)(rows > 1 ? row + 1 : i + 1),
                          rows > 1 ? ", " : " of ", (long long)(rows > 1 ? i + 1 : n));
      positive += p > 0;
      if (!heed__is_due_at(&ctx->pace, done)) continue;
      const heed_status status = heed__stopped(ctx, "multinomial");
      if (status != HEED_OK) return status;
    }
    if (positive < needed)
      return heed__fail(ctx, HEED_ARGUMENT,
                        "multinomial: row %lld of weights has %lld positive weight%s; it must have at least "
                        "%lld%s",
                        (long long)row + 1, (long long)positive, HEED__S(positive), (long long)needed,
                        needed > 1 ? ", the number of samples without replacement" : "");
  }
  return HEED_OK;
}

/* With replacement: each sample is the first index whose running sum of weights reaches a uniform number. */
static bool draw_repeated(const heed_context *ctx, heed_generator *g, const float *weights, int64_t rows,
                          int64_t n, int64_t samples, float *sums, int64_t *out) {
  int64_t done = 0;
  for (int64_t row = 0; row < rows; row++) {
    float sum = 0;
    for (int64_t i = 0; i < n; i++) {
      sum += weights[row * n + i];
      sums[i] = sum;
      if (heed__is_due_at(&ctx->pace, done++)) return false;
    }
    for (int64_t i = 0; i < n; i++) sums[i] /= sum;
    sums[n - 1] = 1;
    for (int64_t s = 0; s < samples; s++) {
      const double drawn = heed__draw_double(g);
      int64_t left = 0, right = n;
      while (left < right) {
        const int64_t middle = left + (right - left) / 2;
        if ((double)sums[middle] < drawn)
          left = middle + 1;
        else
          right = middle;
      }
      out[row * samples + s] = left + 1;
      if (heed__is_due_at(&ctx->pace, done++)) return false;
    }
  }
  return true;
}

/* Without: weights divided by exponential numbers; the largest are the samples. In the memory order of
 * weights, like PyTorch. */
static heed_status rank_weights(heed_context *ctx, heed_generator *g, const heed_tensor *weights,
                                heed_tensor **ranks) {
  heed_status status = heed__new_like(ctx, "multinomial", weights, HEED_FLOAT32, ranks);
  if (status != HEED_OK) return status;
  float *x = (float *)(void *)(*ranks)->data;
  for (int64_t i = 0; i < weights->numel; i++) {
    x[i] = (float)-log1p(-heed__draw_double(g));
    if (heed__is_due_at(&ctx->pace, i) && (status = heed__stopped(ctx, "multinomial")) != HEED_OK)
      return status;
  }
  const heed_tensor *operands[] = {*ranks, weights};
  heed__walk w;
  int64_t done = 0;
  for (bool more = heed__walk_begin(&w, weights->ndim, weights->shape, 2, operands); more;
       more = heed__walk_next(&w)) {
    float *rank = (float *)(void *)w.data[0];
    const float *weight = (const float *)(const void *)w.data[1];
    for (int64_t i = 0; i < w.count; i++, done++) {
      rank[i * w.stride[0]] = weight[i * w.stride[1]] / rank[i * w.stride[0]];
      if (heed__is_due_at(&ctx->pace, done) && (status = heed__stopped(ctx, "multinomial")) != HEED_OK)
        return status;
    }
  }
  return HEED_OK;
}

static heed_status check_multinomial(heed_context *ctx, const heed_tensor *weights, int64_t samples,
                                     bool replacement) {
  char text[HEED__SHAPE_TEXT];
  const heed_status status = heed__check_dtype(ctx, "multinomial", "weights", weights, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  if (weights->ndim < 1 || weights->ndim > 2)
    return heed__fail(ctx, HEED_SHAPE, "multinomial: weights is %s; it must have 1 or 2 dimensions",
                      heed__shape_text(text, weights->ndim, weights->shape));
  const int64_t n = weights->shape[weights->ndim - 1];
  if (n == 0)
    return heed__fail(ctx, HEED_SHAPE, "multinomial: weights is %s; there must be at least 1 weight",
                      heed__shape_text(text, weights->ndim, weights->shape));
  if (samples < 1)
    return heed__fail(ctx, HEED_ARGUMENT, "multinomial: num_samples is %lld; it must be at least 1",
                      (long long)samples);
  if (!replacement && samples > n)
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "multinomial: num_samples is %lld and there are %lld weights; without replacement it must "
        "be at most their number: set replacement = true",
        (long long)samples, (long long)n);
  return HEED_OK;
}

heed_status heed_multinomial(heed_context *ctx, heed_generator *g, const heed_tensor *weights,
                             int64_t num_samples, bool replacement, heed_tensor **out) {
  HEED__ENTER(ctx, "multinomial", weights, out);
  HEED__MAY_ENTER(ctx, "multinomial", g);
  heed__result result = {0};
  heed_generator before;
  heed_tensor *made = NULL, *ranks = NULL, *values = NULL, *indices = NULL, *sums = NULL;
  const heed_tensor *plain;
  heed_status status = check_multinomial(ctx, weights, num_samples, replacement);
  if (status == HEED_OK) status = heed__check_no_part(ctx, "multinomial", heed__generator(ctx, g));
  if (status != HEED_OK) return status;
  const int64_t n = weights->shape[weights->ndim - 1], rows = weights->numel / n;
  const int64_t shape[] = {weights->ndim == 1 ? num_samples : rows, num_samples};
  g = heed__generator(ctx, g);
  before = *g;
  status = heed__result_begin_row_major(ctx, "multinomial", &result, out, HEED_INT64, weights->ndim, shape, 1,
                                        &weights);
  if (status == HEED_OK)
    status = heed__as_contiguous(ctx, "multinomial", weights, HEED_FLOAT32, &plain, &made);
  if (status != HEED_OK) goto done;
  const float *p = (const float *)(const void *)plain->data;
  status = check_weights(ctx, p, rows, n, replacement ? 1 : num_samples);
  if (status != HEED_OK) goto done;
  if (replacement && num_samples > 1) {
    status = heed__tensor_new(ctx, "multinomial", HEED_FLOAT32, 1, &n, &sums);
    if (status == HEED_OK && !draw_repeated(ctx, g, p, rows, n, num_samples, (float *)(void *)sums->data,
                                            (int64_t *)(void *)result.tensor->data))
      status = heed__stopped(ctx, "multinomial");
    goto done;
  }
  status = rank_weights(ctx, g, weights, &ranks);
  if (status == HEED_OK)
    status = heed__topk(ctx, "multinomial", ranks, num_samples, -1, true, &values, &indices);
  if (status == HEED_OK && !heed__copy_elements(result.tensor, indices))
    status = heed__stopped(ctx, "multinomial");
done:
  heed_tensor_free(made);
  heed_tensor_free(ranks);
  heed_tensor_free(values);
  heed_tensor_free(indices);
  heed_tensor_free(sums);
  status = heed__result_end(ctx, &result, status);
  if (status != HEED_OK) *g = before;
  return status;
}
