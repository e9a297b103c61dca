/* The scalar kernels on matrices: dot products, the general product and the transpose. */
#include "scalar.h"

float heed__scalar_dot(const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n) {
  float total = 0.0f;
  size_t i = 0;
  if (sa == 1 && sb == 1 && n >= HEED__LANES) {
    float lane[HEED__LANES] = {0};
    for (; i + HEED__LANES <= n; i += HEED__LANES)
      for (size_t l = 0; l < HEED__LANES; l++) lane[l] += a[i + l] * b[i + l];
    total = heed__scalar_join(lane);
  }
  for (; i < n; i++) total += a[(ptrdiff_t)i * sa] * b[(ptrdiff_t)i * sb];
  return total;
}

/* ---- Product ---- */

/* Rows (or columns) of b that all rows of a use before the next ones: about the size of the second-level
 * cache. */
enum { BLOCK = 64 };

/* c += Σ a[p] · row p of b for p in [first, last), in order, four products for each load and store of c. */
static void add_rows(float *c, size_t n, const float *a, ptrdiff_t a_column, const float *b, ptrdiff_t b_row,
                     size_t first, size_t last) {
  size_t p = first;
  for (; p + 4 <= last; p += 4) {
    const float *x = a + (ptrdiff_t)p * a_column, *y = b + (ptrdiff_t)p * b_row;
    const float x0 = x[0], x1 = x[a_column], x2 = x[2 * a_column], x3 = x[3 * a_column];
    const float *y0 = y, *y1 = y + b_row, *y2 = y + 2 * b_row, *y3 = y + 3 * b_row;
    HEED__INDEPENDENT
    for (size_t j = 0; j < n; j++) c[j] = c[j] + x0 * y0[j] + x1 * y1[j] + x2 * y2[j] + x3 * y3[j];
  }
  for (; p < last; p++) {
    const float x = a[(ptrdiff_t)p * a_column], *y = b + (ptrdiff_t)p * b_row;
    HEED__INDEPENDENT
    for (size_t j = 0; j < n; j++) c[j] += x * y[j];
  }
}

/* Where the columns of b are contiguous its rows are accumulated; else (a transposed weight) each element of
 * c is a dot product. A step is one row of a with a block of b. The bias is added last, as with BLAS, in the
 * row's last step. */
bool heed__scalar_gemm(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, ptrdiff_t a_column,
                       const float *b, ptrdiff_t b_row, ptrdiff_t b_column, const float *bias, float *c,
                       ptrdiff_t c_row, float *scratch, const heed__pace *pace, int64_t *position) {
  enum { CHECK = 1 << 17 }; /* multiply-adds between cancellation checks */
  const bool by_rows = b_column == 1;
  const size_t whole = by_rows ? k : n, blocks = whole > BLOCK ? (whole + BLOCK - 1) / BLOCK : 1;
  const size_t steps = blocks * m;
  size_t work = 0;
  (void)scratch;
  for (size_t at = position ? (size_t)*position : 0; at < steps; at++) {
    const size_t i = at % m, first = at / m * BLOCK, last = whole - first < BLOCK ? whole : first + BLOCK;
    const float *x = a + (ptrdiff_t)i * a_row;
    float *to = c + (ptrdiff_t)i * c_row;
    if (by_rows) {
      for (size_t j = 0; first == 0 && j < n; j++) to[j] = 0.0f;
      add_rows(to, n, x, a_column, b, b_row, first, last);
    } else {
      for (size_t j = first; j < last; j++)
        to[j] = heed__scalar_dot(x, a_column, b + (ptrdiff_t)j * b_column, b_row, k);
    }
    for (size_t j = 0; bias && at / m + 1 == blocks && j < n; j++) to[j] += bias[j];
    work += (last - first) * (by_rows ? n : k);
    if (work < CHECK || at + 1 == steps) continue;
    if (heed__should_yield(pace)) {
      *position = (int64_t)at + 1;
      return false;
    }
    work = 0;
  }
  return true;
}

size_t heed__scalar_gemm_scratch(size_t m, size_t n, size_t k) {
  (void)m, (void)n, (void)k;
  return 0;
}

/* ---- Transpose ---- */

/* In blocks whose rows stay in the first-level cache. Elements are copied as bits, of any 4-byte type. */
void heed__scalar_transpose(float *out, ptrdiff_t out_row, const float *x, ptrdiff_t x_row, size_t rows,
                            size_t columns) {
  enum { SIDE = 16 };
  for (size_t r0 = 0; r0 < rows; r0 += SIDE) {
    const size_t r1 = rows - r0 < SIDE ? rows : r0 + SIDE;
    for (size_t c0 = 0; c0 < columns; c0 += SIDE) {
      const size_t c1 = columns - c0 < SIDE ? columns : c0 + SIDE;
      for (size_t c = c0; c < c1; c++)
        for (size_t r = r0; r < r1; r++)
          memcpy(out + (ptrdiff_t)c * out_row + (ptrdiff_t)r, x + (ptrdiff_t)r * x_row + (ptrdiff_t)c,
                 sizeof *out);
    }
  }
}
