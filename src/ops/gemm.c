/* Matrix products of float32: small ones by the kernel, large ones by BLAS. The only file that knows cblas.
 */
#include "ops.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

/* Below so many multiply-adds the call costs more than it saves: measured against the scalar kernel, OpenBLAS
 * 0.3.21 with its Haswell kernels, which are the slower ones for small sizes. */
#define SMALL (8.0 * 8.0 * 8.0)

/* A piece's sizes must fit BLAS's 32-bit integers. */
#define PIECE ((int64_t)1 << 30)

/* A matrix as the kernel reads it. */
typedef struct matrix {
  const float *data;
  ptrdiff_t row, column; /* strides */
} matrix;

/* A matrix as BLAS reads it: rows `leading` apart without gaps in them, or that transposed. */
typedef struct operand {
  const float *data;
  CBLAS_TRANSPOSE transpose;
  int leading;
} operand;

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Whether rows of `columns` elements, `row` apart, with their elements `column` apart, are what BLAS takes.
 * Strides of sizes of 1 say nothing. */
static bool has_leading(int64_t rows, int64_t columns, ptrdiff_t row, ptrdiff_t column, int *leading) {
  if (columns > 1 && column != 1) return false;
  if (rows > 1 && (row < columns || row > INT_MAX)) return false;
  *leading = rows > 1 ? (int)row : (int)columns;
  return true;
}

/* Describes x [rows, columns] to BLAS; copies it to *packed (to be released) only if neither its rows nor its
 * columns lie without gaps. False if there is no memory for the copy. */
static bool as_operand(heed_context *ctx, int64_t rows, int64_t columns, matrix x, operand *out,
                       float **packed) {
  *out = (operand){x.data, CblasNoTrans, 0};
  if (has_leading(rows, columns, x.row, x.column, &out->leading)) return true;
  out->transpose = CblasTrans;
  if (has_leading(columns, rows, x.column, x.row, &out->leading)) return true;
  if ((uint64_t)columns > SIZE_MAX / sizeof(float) / (uint64_t)rows) return false;
  float *copy = heed__allocate(ctx, (size_t)rows * (size_t)columns * sizeof(float));
  if (!copy) return false;
  for (int64_t i = 0; i < rows; i++) {
    const float *from = x.data + i * x.row;
    for (int64_t j = 0; j < columns; j++) copy[i * columns + j] = from[j * x.column];
  }
  *packed = copy;
  *out = (operand){copy, CblasNoTrans, (int)columns};
  return true;
}

/* y += a · x, a [rows, columns]. */
static void matrix_vector(int64_t rows, int64_t columns, operand a, const float *x, int x_step, float *y,
                          int y_step) {
  if (a.transpose == CblasNoTrans) {
    cblas_sgemv(CblasRowMajor, CblasNoTrans, (int)rows, (int)columns, 1, a.data, a.leading, x, x_step, 1, y,
                y_step);
  } else {
    cblas_sgemv(CblasRowMajor, CblasTrans, (int)columns, (int)rows, 1, a.data, a.leading, x, x_step, 1, y,
                y_step);
  }
}

/* c += a · b through BLAS, sizes at most PIECE; false, with c untouched, if BLAS cannot take it. */
static bool blas_product(heed_context *ctx, int64_t m, int64_t n, int64_t k, matrix a, matrix b, float *c,
                         ptrdiff_t c_row) {
  float *packed_a = NULL, *packed_b = NULL;
  operand x, y;
  int leading;
  bool done = false;
  if (!has_leading(m, n, c_row, 1, &leading)) return false;
  /* One row or column: sgemv reads the matrix once, where sgemm would pack it first. */
  if (m == 1 && a.column > 0 && a.column <= INT_MAX) {
    if (!as_operand(ctx, n, k, (matrix){b.data, b.column, b.row}, &y, &packed_b)) goto done;
    matrix_vector(n, k, y, a.data, (int)a.column, c, 1);
  } else if (n == 1 && b.row > 0 && b.row <= INT_MAX) {
    if (!as_operand(ctx, m, k, a, &x, &packed_a)) goto done;
    matrix_vector(m, k, x, b.data, (int)b.row, c, leading);
  } else {
    if (!as_operand(ctx, m, k, a, &x, &packed_a) || !as_operand(ctx, k, n, b, &y, &packed_b)) goto done;
    cblas_sgemm(CblasRowMajor, x.transpose, y.transpose, (int)m, (int)n, (int)k, 1, x.data, x.leading, y.data,
                y.leading, 1, c, leading);
  }
  done = true;
done:
  heed__release(ctx, packed_a);
  heed__release(ctx, packed_b);
  return done;
}

void heed__gemm(heed_context *ctx, int64_t m, int64_t n, int64_t k, const float *a, ptrdiff_t a_row,
                ptrdiff_t a_column, const float *b, ptrdiff_t b_row, ptrdiff_t b_column, const float *bias,
                float *c, ptrdiff_t c_row) {
  const heed__kernels *kernels = heed__kernels_of(ctx);
  if (m == 0 || n == 0) return;
  if (m == 1 && n == 1) { /* dot sums in lanes, which is more exact for long rows */
    c[0] = kernels->dot(a, a_column, b, b_row, (size_t)k) + (bias ? bias[0] : 0);
    return;
  }
  if (k > PIECE || (double)m * (double)n * (double)k < SMALL) {
    kernels->gemm((size_t)m, (size_t)n, (size_t)k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row);
    return;
  }
  for (int64_t i = 0; i < m; i += PIECE) {
    for (int64_t j = 0; j < n; j += PIECE) {
      int64_t rows = smaller(m - i, PIECE), columns = smaller(n - j, PIECE);
      matrix x = {a + i * a_row, a_row, a_column}, y = {b + j * b_column, b_row, b_column};
      const float *start = bias ? bias + j : NULL;
      float *to = c + i * c_row + j;
      /* Added to, as PyTorch does; and a beta of 0 does not overwrite nan in every BLAS. */
      for (int64_t r = 0; r < rows; r++) {
        if (start)
          memcpy(to + r * c_row, start, (size_t)columns * sizeof(float));
        else
          memset(to + r * c_row, 0, (size_t)columns * sizeof(float));
      }
      if (!blas_product(ctx, rows, columns, k, x, y, to, c_row)) {
        kernels->gemm((size_t)rows, (size_t)columns, (size_t)k, x.data, a_row, a_column, y.data, b_row,
                      b_column, start, to, c_row);
      }
    }
  }
}
