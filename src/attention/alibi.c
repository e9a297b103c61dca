/* The slopes of linear biases (ALiBi). */
#include <inttypes.h>
#include <math.h>

#include "attention.h"

/* arXiv:2108.12409, section 3: a geometric sequence that ends at 2^-8. If the number of heads is not a power
 * of two, the sequence of the next lower power is followed by every other slope of the next higher one, as in
 * the authors' code. */
bool heed__alibi_slopes(const heed__pace *pace, int64_t num_heads, float *slopes) {
  int64_t power = 1;
  while (power <= num_heads / 2) power *= 2;
  for (int64_t i = 0; i < num_heads; i++) {
    if ((i & 0xfff) == 0xfff && heed__is_due(pace)) return false;
    const double exponent =
        i < power ? (double)(i + 1) / (double)power : (double)(2 * (i - power) + 1) / (double)(2 * power);
    slopes[i] = (float)exp2(-8 * exponent);
  }
  return true;
}

heed_status heed_alibi_slopes(heed_context *ctx, int64_t num_heads, heed_tensor **out) {
  HEED__ENTER(ctx, "alibi_slopes", out);
  heed__result result = {0};
  if (num_heads < 1)
    return heed__fail(ctx, HEED_ARGUMENT, "alibi_slopes: num_heads is %" PRId64 "; it must be at least 1",
                      num_heads);
  heed_status status = heed__check_shape(ctx, "alibi_slopes", 1, &num_heads, HEED_FLOAT32, NULL);
  if (status != HEED_OK) return status;
  status =
      heed__result_begin_row_major(ctx, "alibi_slopes", &result, out, HEED_FLOAT32, 1, &num_heads, 0, NULL);
  if (status == HEED_OK && !heed__alibi_slopes(&ctx->pace, num_heads, (float *)(void *)result.tensor->data))
    status = heed__stopped(ctx, "alibi_slopes");
  return heed__result_end(ctx, &result, status);
}
