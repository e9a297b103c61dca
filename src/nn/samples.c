/* Samples of parameters, by which a file recognises the model whose cache it holds. */
#include <math.h>
#include <string.h>

#include "nn.h"

/* Element `index`, in row-major order; `scale` [rows, blocks of columns] is that of int8, or NULL. */
static float element_of(const heed_tensor *x, const heed_tensor *scale, int64_t index) {
  const int64_t block = heed__block_elements(x->dtype), columns = x->numel / x->shape[0];
  const int64_t row = index / columns, scale_column = index % columns / HEED_INT8_BLOCK;
  float wide[HEED__LARGEST_BLOCK];
  int64_t offset = 0;
  for (int d = x->ndim - 1; d >= 0; index /= x->shape[d--]) offset += index % x->shape[d] * x->stride[d];
  const int64_t inside = offset % block;
  const char *from = x->data + heed__row_bytes(x->dtype, offset - inside);
  if (x->dtype == HEED_FLOAT32) return *(const float *)(const void *)from;
  heed__kernels_of(x->storage->context)->convert(HEED_FLOAT32, wide, x->dtype, from, (size_t)block);
  if (scale == NULL) return wide[inside];
  const float *factors = (const float *)(const void *)scale->data;
  return wide[inside] * factors[row * scale->stride[0] + scale_column * scale->stride[1]];
}

void heed__sample_parameter(const heed_tensor *x, const heed_tensor *scale, float sample[HEED__SAMPLE]) {
  const bool floating = x->dtype == HEED_FLOAT32 || x->dtype > HEED_INT64;
  memset(sample, 0, HEED__SAMPLE * sizeof *sample);
  sample[0] = (float)x->dtype;
  if (!floating || x->numel == 0 || x->ndim == 0 || heed__is_placeholder(x)) return;
  for (uint32_t i = 1; i < HEED__SAMPLE; i++) { /* multiples of the golden ratio spread evenly */
    const double fraction = (double)(uint32_t)(i * UINT32_C(2654435769)) / 4294967296.0;
    sample[i] = element_of(x, scale, (int64_t)(fraction * (double)x->numel));
  }
}

/* In another dtype most elements are within its error; of other weights every sixth is. */
static bool is_same_sample(const float *a, const float *b) {
  double squares = 0;
  int near = 0;
  if (a[0] == b[0]) return memcmp(a, b, HEED__SAMPLE * sizeof *a) == 0;
  for (int i = 1; i < HEED__SAMPLE; i++) squares += (double)a[i] * a[i];
  const double error = 0.3 * sqrt(squares / (HEED__SAMPLE - 1));
  for (int i = 1; i < HEED__SAMPLE; i++) near += fabs((double)a[i] - b[i]) <= error;
  return near > (HEED__SAMPLE - 1) / 2;
}

int64_t heed__differing_samples(const float *a, const float *b, int64_t count) {
  int64_t differing = 0;
  for (int64_t i = 0; i < count; i++)
    differing += !is_same_sample(a + i * HEED__SAMPLE, b + i * HEED__SAMPLE);
  return differing;
}
