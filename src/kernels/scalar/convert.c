/* The scalar kernel for conversions between float32 and the low-precision dtypes. */
#include "scalar.h"

const float *heed__scalar_widen(const void *x, heed_dtype dtype, float scale, ptrdiff_t *column, int64_t n,
                                float *scratch) {
  const ptrdiff_t step = *column;
  const uint16_t *half = x;
  const int8_t *byte = x;
  if (dtype == HEED_FLOAT32) return x;
  *column = 1;
#if !HEED_MINIMAL
  if (heed__is_blocked(dtype)) heed__scalar_widen_blocks(dtype, x, n, scratch);
#endif
  if (dtype == HEED_BFLOAT16)
    for (int64_t i = 0; i < n; i++) scratch[i] = heed__float_from_bfloat16(half[i * step]);
  if (dtype == HEED_FLOAT16)
    for (int64_t i = 0; i < n; i++) scratch[i] = heed__float_from_float16(half[i * step]);
  if (dtype == HEED_INT8)
    for (int64_t i = 0; i < n; i++) scratch[i] = (float)byte[i * step] * scale;
  return scratch;
}

/* Through float32, which represents every number of the other dtypes. */
void heed__scalar_convert(heed_dtype to, void *out, heed_dtype from, const void *x, size_t n) {
  enum { PIECE = HEED__LARGEST_BLOCK };
  float wide[PIECE];
  for (size_t i = 0; i < n; i += PIECE) {
    const size_t some = n - i < PIECE ? n - i : PIECE;
    const char *start = (const char *)x + heed__row_bytes(from, (int64_t)i);
    ptrdiff_t column = 1;
    const float *row = heed__scalar_widen(start, from, 1.0f, &column, (int64_t)some, wide);
    switch (to) {
    case HEED_BFLOAT16:
      for (size_t j = 0; j < some; j++) ((uint16_t *)out)[i + j] = heed__bfloat16_from_float(row[j]);
      break;
    case HEED_FLOAT16:
      for (size_t j = 0; j < some; j++) ((uint16_t *)out)[i + j] = heed__float16_from_float(row[j]);
      break;
    case HEED_INT8:
      for (size_t j = 0; j < some; j++) ((int8_t *)out)[i + j] = heed__int8_from_float(row[j]);
      break;
    default: memcpy((float *)out + i, row, some * sizeof *row);
    }
  }
}
