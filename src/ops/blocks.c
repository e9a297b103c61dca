/* Tensors of blocked dtypes: copies of their rows, widening, and quantizing other tensors. */
#include <string.h>

#include "blocks.h"

#define BLOCKS_CHUNK ((int64_t)1 << 16) /* elements between two cancellation checks */

/* Copies rows of blocks, or widens them; dst is row-major. Returns false if it stopped at a cancellation
 * check. */
static bool copy_blocks(heed_context *ctx, const heed_tensor *dst, const heed_tensor *src) {
  const int64_t n = src->numel > 0 ? src->shape[src->ndim - 1] : 0, bytes = heed__row_bytes(src->dtype, n),
                step = heed__row_bytes(dst->dtype, n);
  const heed__kernels *kernels = heed__kernels_of(ctx);
  int64_t at[HEED_MAX_DIMS] = {0}, since = 0;
  char *to = dst->data;
  for (int64_t done = 0; done < src->numel; done += n, to += step) {
    int64_t offset = 0;
    for (int d = 0; d < src->ndim - 1; d++) offset += at[d] * src->stride[d];
    const char *from = src->data + heed__row_bytes(src->dtype, offset);
    if (dst->dtype == src->dtype)
      memcpy(to, from, (size_t)bytes);
    else
      kernels->convert(dst->dtype, to, src->dtype, from, (size_t)n);
    for (int d = src->ndim - 2; d >= 0 && ++at[d] == src->shape[d]; d--) at[d] = 0;
    if ((since += n) < BLOCKS_CHUNK) continue;
    since = 0;
    if (heed__is_due(&ctx->pace)) return false;
  }
  return true;
}

/* ---- Quantizing ---- */

enum {
  QUANTIZE_PIECE = 2048 /* elements of a task: 100 µs of the slowest search */
};

typedef struct block_job {
  const float *x;
  uint8_t *out;
  heed_dtype dtype;
  int64_t numel;
} block_job;

static void quantize_piece(void *argument, int64_t task, int worker) {
  const block_job *j = argument;
  const int64_t n = heed__block_elements(j->dtype), end = heed__min(j->numel, (task + 1) * QUANTIZE_PIECE);
  (void)worker;
  for (int64_t i = task * QUANTIZE_PIECE; i < end; i += n)
    heed__quantize_block(j->dtype, j->x + i, j->out + heed__row_bytes(j->dtype, i));
}

/* Scales are float16, so the elements must be, too. */
static heed_status check_range(heed_context *ctx, const char *function, const heed_tensor *x,
                               heed_dtype dtype) {
  const float *data = (const float *)(const void *)x->data;
  for (int64_t i = 0; i < x->numel; i += BLOCKS_CHUNK) {
    if (heed__any_above(data + i, heed__min(x->numel - i, BLOCKS_CHUNK), 0x477fe000))
      return heed__fail(ctx, HEED_ARGUMENT,
                        "%s: x contains nan, inf or numbers above 65504 in magnitude, which %s cannot hold",
                        function, heed_dtype_name(dtype));
    if (!heed__is_due(&ctx->pace)) continue;
    const heed_status status = heed__stopped(ctx, function);
    if (status != HEED_OK) return status;
  }
  return HEED_OK;
}

/* `made` is row-major. */
static heed_status quantize(heed_context *ctx, const char *function, const heed_tensor *x,
                            const heed_tensor *made) {
  heed_tensor *widened = NULL;
  heed_status status = heed__charge(ctx, function, heed__quantize_units(made->dtype) * (double)x->numel + 1);
  if (status == HEED_OK) status = heed__as_contiguous(ctx, function, x, HEED_FLOAT32, &x, &widened);
  if (status == HEED_OK) status = check_range(ctx, function, x, made->dtype);
  if (status == HEED_OK) {
    block_job j = {(const float *)(const void *)x->data, (uint8_t *)made->data, made->dtype, x->numel};
    if (!heed__parallel(ctx, heed__parts(j.numel, QUANTIZE_PIECE), quantize_piece, &j))
      status = heed__stopped(ctx, function);
  }
  heed_tensor_free(widened);
  return status;
}

heed_status heed__copy_blocked(heed_context *ctx, const char *function, const heed_tensor *x,
                               heed_dtype dtype, heed_tensor **out) {
  const bool quantizes = dtype != x->dtype && heed__is_blocked(dtype);
  heed_tensor *made = NULL;
  if (*out != NULL)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: *out is already a tensor; for %s it must be NULL", function,
                      heed_dtype_name(heed__is_blocked(dtype) ? dtype : x->dtype));
  if (dtype != x->dtype && !quantizes && dtype != HEED_FLOAT32 && dtype != HEED_BFLOAT16 &&
      dtype != HEED_FLOAT16)
    return heed__fail(ctx, HEED_DTYPE,
                      "%s: dtype is %s; from %s it must be float32, bfloat16, float16 or a blocked dtype",
                      function, heed_dtype_name(dtype), heed_dtype_name(x->dtype));
  heed_status status = heed__tensor_new(ctx, function, dtype, x->ndim, x->shape, &made);
  if (status == HEED_OK && quantizes) status = quantize(ctx, function, x, made);
  if (status == HEED_OK && !quantizes && !copy_blocks(ctx, made, x)) status = heed__stopped(ctx, function);
  if (status == HEED_OK)
    *out = made;
  else
    heed_tensor_free(made);
  return status;
}
