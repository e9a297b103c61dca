/* The scalar kernel for products with low-precision weights, which are widened piece by piece. */
#include "scalar.h"

enum { LOWP_PIECE = 4 * HEED__LANES };
_Static_assert(HEED_INT8_BLOCK % LOWP_PIECE == 0, "a piece of int8 has one scale");

/* Elements first…first + n - 1 of row j of the weight as float32; n is at most a piece. */
static void widen(const heed__lowp_task *t, size_t j, size_t first, size_t n, float *out) {
  const ptrdiff_t start = (ptrdiff_t)j * t->w_row + (ptrdiff_t)first;
  const ptrdiff_t block = (ptrdiff_t)j * t->scale_row + (ptrdiff_t)(first / HEED_INT8_BLOCK);
  ptrdiff_t column = 1;
  (void)heed__scalar_widen((const char *)t->w + heed__row_bytes(t->dtype, start), t->dtype,
                           t->dtype == HEED_INT8 ? t->scale[block] : 1.0f, &column, (int64_t)n, out);
}

/* Summed in lanes, as in heed__scalar_dot. Each piece of the weight is widened once for ROWS rows of x; a
 * step is one row of the weight with these. */
bool heed__scalar_lowp(const heed__lowp_task *t, const heed__pace *pace, int64_t *position) {
  enum { ROWS = 8, CHECK = 1 << 15 /* multiply-adds between cancellation checks */ };
  const size_t before = position ? (size_t)*position : 0;
  const size_t piece = heed__is_blocked(t->dtype) ? HEED__LARGEST_BLOCK : LOWP_PIECE;
  float weight[HEED__LARGEST_BLOCK];
  size_t work = 0;
  for (size_t i0 = t->n ? before / t->n * ROWS : 0; i0 < t->m; i0 += ROWS) {
    const size_t rows = t->m - i0 < ROWS ? t->m - i0 : ROWS;
    for (size_t j = before > i0 / ROWS * t->n ? before % t->n : 0; j < t->n; j++) {
      float lane[ROWS][HEED__LANES] = {{0}};
      for (size_t p = 0; p < t->k; p += piece) {
        const size_t n = t->k - p < piece ? t->k - p : piece;
        widen(t, j, p, n, weight);
        for (size_t i = 0; i < rows; i++) {
          const float *x = t->x + (ptrdiff_t)(i0 + i) * t->x_row + (ptrdiff_t)p;
          size_t q = 0;
          for (; q + HEED__LANES <= n; q += HEED__LANES)
            for (size_t l = 0; l < HEED__LANES; l++) lane[i][l] += x[q + l] * weight[q + l];
          for (size_t l = 0; q + l < n; l++) lane[i][l] += x[q + l] * weight[q + l];
        }
      }
      for (size_t i = 0; i < rows; i++)
        t->c[(ptrdiff_t)(i0 + i) * t->c_row + (ptrdiff_t)j] =
            heed__scalar_join(lane[i]) + (t->bias ? t->bias[j] : 0.0f);
      work += rows * t->k;
      if (work < CHECK || (j + 1 == t->n && i0 + rows == t->m)) continue;
      if (heed__should_yield(pace)) {
        *position = (int64_t)(i0 / ROWS * t->n + j + 1);
        return false;
      }
      work = 0;
    }
  }
  return true;
}
