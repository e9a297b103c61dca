/* The matrix product on the vector primitives: c [m, n] = a [m, k] · b [k, n] + bias. Three ways, by sizes
 * and strides:
 *   panels   tiles of 6 rows × (4 or 2) vectors of columns in registers, b packed in panels of that width
 * where that pays; a is read in place whatever its strides, since a strip of 6 rows stays in the first cache;
 *   dots     lanes along k, for few rows or few columns: nothing is packed, b is read once;
 *   stream   one row times a row-major b (or that transposed): b is read once, several rows side by side.
 * An element is summed over k in an order that depends on k and the way alone, not on the other sizes. */

#ifndef HEED_BODY_GEMM_H
#define HEED_BODY_GEMM_H

#include "body_math.h" /* V_INLINE, V_UNROLL */

enum {
  GEMM_ROWS = 6,
  GEMM_VECTORS = V_REGISTERS >= 32 ? 4 : 2,
  GEMM_COLUMNS = GEMM_VECTORS * V_LANES,
  GEMM_DEPTH = 128, /* of k at a time: a panel stays in the second cache, or the first */
  GEMM_SHALLOW = 16,
  GEMM_GROUP = 64, /* columns that are packed at a time, in one panel or several */
  GEMM_DOT_ROWS = V_REGISTERS >= 32 ? 6 : 3,
  GEMM_DOT_COLUMNS = 4,
  GEMM_FEW = 48,   /* rows for which packing b does not pay */
  GEMM_TINY = 512, /* multiply-adds that are rounded twice */
  GEMM_TINY_DEPTH = 15,
  GEMM_NEAR = 1 << 16,     /* elements of b that stay in the second cache, so that packing does not pay */
  GEMM_GATHERED = 1 << 13, /* floats that are copied to the stack to take gaps out */
};

static inline size_t gemm_least(size_t a, size_t b) {
  return a < b ? a : b;
}
/* Parts of `whole` of at most `most` each, as even as can be: the size of one. */
static inline size_t gemm_part(size_t whole, size_t most) {
  const size_t parts = (whole + most - 1) / most;
  return parts ? (whole + parts - 1) / parts : most;
}

/* What all tiles of one step have in common. The sum over `depth` is added to `add` (the bias, or what c has
 * from earlier steps; NULL: nothing). */
typedef struct gemm_step {
  size_t depth;
  ptrdiff_t a_row, a_column, b_row, c_row, add_row, add_column;
} gemm_step;

/* ---- Tiles ---- */

typedef void gemm_tile(const gemm_step *s, const float *a, const float *b, float *c, const float *add,
                       vmask edge);

/* `edge` are the lanes of the last vector that there are; all of them if `whole`. Not `fused`, a product is
 * rounded before it is added. */
V_INLINE void gemm_tile_of(const int rows, const int vectors, const bool whole, const bool fused,
                           const gemm_step *s, const float *a, const float *b, float *c, const float *add,
                           vmask edge) {
  const ptrdiff_t a_row = s->a_row, a_column = s->a_column, b_row = s->b_row;
  vfloat sum[GEMM_ROWS][GEMM_VECTORS];
  V_UNROLL
  for (int i = 0; i < rows; i++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) sum[i][v] = v_zero();
  }
  for (size_t p = s->depth; p > 0; p--, a += a_column, b += b_row) {
    vfloat y[GEMM_VECTORS];
    V_UNROLL
    for (int v = 0; v < vectors; v++)
      y[v] = whole || v + 1 < vectors ? v_load(b + v * V_LANES) : v_load_masked(b + v * V_LANES, edge);
    V_UNROLL
    for (int i = 0; i < rows; i++) {
      const vfloat x = v_set(a[i * a_row]);
      V_UNROLL
      for (int v = 0; v < vectors; v++)
        sum[i][v] = fused ? v_fma(x, y[v], sum[i][v]) : v_add(sum[i][v], v_mul(x, y[v]));
    }
  }
  V_UNROLL
  for (int i = 0; i < rows; i++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      float *to = c + i * s->c_row + v * V_LANES;
      const float *from = add ? add + i * s->add_row + v * V_LANES : NULL;
      if (whole || v + 1 < vectors)
        v_store(to, from ? v_add(sum[i][v], v_load(from)) : sum[i][v]);
      else
        v_store_masked(to, from ? v_add(sum[i][v], v_load_masked(from, edge)) : sum[i][v], edge);
    }
  }
}

#define GEMM_TILE(rows, vectors, whole)                                                                      \
  static void gemm_tile_##rows##_##vectors##_##whole(const gemm_step *s, const float *a, const float *b,     \
                                                     float *c, const float *add, vmask edge) {               \
    gemm_tile_of(rows, vectors, whole, true, s, a, b, c, add, edge);                                         \
  }
#define GEMM_TILE_NAME(rows, vectors, whole) gemm_tile_##rows##_##vectors##_##whole,
#if V_REGISTERS >= 32
#define GEMM_TILES(X, rows) X(rows, 1, 0) X(rows, 2, 0) X(rows, 3, 0) X(rows, 4, 0) X(rows, 4, 1)
#else
#define GEMM_TILES(X, rows) X(rows, 1, 0) X(rows, 2, 0) X(rows, 2, 1)
#endif
#define GEMM_ALL_TILES(Y, X) Y(X, 1) Y(X, 2) Y(X, 3) Y(X, 4) Y(X, 5) Y(X, 6)
GEMM_ALL_TILES(GEMM_TILES, GEMM_TILE)
#define GEMM_TILE_ROW(X, rows) {GEMM_TILES(X, rows)},
static gemm_tile *const gemm_tiles[GEMM_ROWS][GEMM_VECTORS + 1] = {
    GEMM_ALL_TILES(GEMM_TILE_ROW, GEMM_TILE_NAME)};

/* ---- Panels ---- */

/* out [k, width] (rows GEMM_COLUMNS apart) = b [k, columns]; what is beyond columns in the last vector is 0
 * or left as it is, and never used. */
static void gemm_pack(float *out, size_t k, size_t columns, const float *b, ptrdiff_t b_row,
                      ptrdiff_t b_column) {
  if (b_column == 1) {
    const vmask edge = v_first(columns % V_LANES);
    for (size_t p = 0; p < k; p++, b += b_row, out += GEMM_COLUMNS) {
      size_t j = 0;
      for (; j + V_LANES <= columns; j += V_LANES) v_store(out + j, v_load(b + j));
      if (j < columns) v_store(out + j, v_load_masked(b + j, edge));
    }
  } else if (b_row == 1 && k * columns >= V_LANES * V_LANES / 4) {
    for (size_t j = 0; j < columns; j += V_LANES) {
      const size_t width = gemm_least(columns - j, V_LANES);
      for (size_t p = 0; p < k; p += V_LANES) {
        const float *from = b + (ptrdiff_t)j * b_column + p;
        const size_t height = gemm_least(k - p, V_LANES);
        vfloat r[V_LANES];
        if (width == V_LANES && height == V_LANES) {
          for (int i = 0; i < V_LANES; i++) r[i] = v_load(from + i * b_column);
          v_transpose(r);
          for (int i = 0; i < V_LANES; i++) v_store(out + (p + (size_t)i) * GEMM_COLUMNS + j, r[i]);
        } else {
          const vmask rows = v_first(height);
          for (size_t i = 0; i < V_LANES; i++)
            r[i] = i < width ? v_load_masked(from + (ptrdiff_t)i * b_column, rows) : v_zero();
          v_transpose(r);
          for (size_t i = 0; i < height; i++) v_store(out + (p + i) * GEMM_COLUMNS + j, r[i]);
        }
      }
    }
  } else {
    for (size_t p = 0; p < k; p++, b += b_row, out += GEMM_COLUMNS)
      for (size_t j = 0; j < columns; j++) out[j] = b[(ptrdiff_t)j * b_column];
  }
}

/* b in panels of GEMM_COLUMNS, as many as `room` floats of `packed` hold at that depth; with packed NULL b's
 * columns lie without gaps, and it is read in place. */
V_INLINE void gemm_panels(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, ptrdiff_t a_column,
                          const float *b, ptrdiff_t b_row, ptrdiff_t b_column, const float *bias, float *c,
                          ptrdiff_t c_row, float *packed, size_t most) {
  const size_t strip = gemm_part(m, GEMM_ROWS), depth = gemm_part(k, most);
  gemm_step s = {
      .a_row = a_row, .a_column = a_column, .b_row = packed ? GEMM_COLUMNS : b_row, .c_row = c_row};
  size_t p = 0;
  do {
    s.depth = gemm_least(k - p, depth);
    s.add_row = p ? c_row : 0;
    for (size_t j0 = 0; j0 < n; j0 += GEMM_GROUP) {
      const size_t j1 = gemm_least(n, j0 + GEMM_GROUP);
      const float *from = b + (ptrdiff_t)p * b_row;
      for (size_t j = j0; packed && j < j1; j += GEMM_COLUMNS)
        gemm_pack(packed + (j - j0) * s.depth, s.depth, gemm_least(j1 - j, GEMM_COLUMNS),
                  from + (ptrdiff_t)j * b_column, b_row, b_column);
      for (size_t i = 0; i < m; i += strip) {
        const size_t rows = gemm_least(m - i, strip);
        const float *x = a + (ptrdiff_t)i * a_row + (ptrdiff_t)p * a_column;
        float *to = c + (ptrdiff_t)i * c_row;
        for (size_t j = j0; j < j1; j += GEMM_COLUMNS) {
          const size_t columns = gemm_least(j1 - j, GEMM_COLUMNS), used = (columns + V_LANES - 1) / V_LANES;
          const bool whole = columns == GEMM_COLUMNS;
          gemm_tiles[rows - 1][whole ? GEMM_VECTORS : used - 1](
              &s, x, packed ? packed + (j - j0) * s.depth : from + j, to + j,
              p      ? to + j
              : bias ? bias + j
                     : NULL,
              v_first(columns - (used - 1) * V_LANES));
        }
      }
    }
    p += s.depth;
  } while (p < k);
}

/* In functions of their own, so that a small product does not pay for the room of a large one. */
static __attribute__((noinline)) void gemm_in_place(size_t m, size_t n, size_t k, const float *a,
                                                    ptrdiff_t a_row, ptrdiff_t a_column, const float *b,
                                                    ptrdiff_t b_row, const float *bias, float *c,
                                                    ptrdiff_t c_row) {
  gemm_panels(m, n, k, a, a_row, a_column, b, b_row, 1, bias, c, c_row, NULL, GEMM_DEPTH);
}
#define GEMM_PACKED(name, depth)                                                                             \
  static __attribute__((noinline)) void name(                                                                \
      size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, ptrdiff_t a_column, const float *b,     \
      ptrdiff_t b_row, ptrdiff_t b_column, const float *bias, float *c, ptrdiff_t c_row) {                   \
    _Alignas(HEED__ALIGNMENT) float packed[(depth)*GEMM_GROUP];                                              \
    gemm_panels(m, n, k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row, packed, depth);             \
  }
GEMM_PACKED(gemm_packed, GEMM_DEPTH)
GEMM_PACKED(gemm_packed_shallow, GEMM_SHALLOW)

/* The smallest products have PyTorch's very bits, which rounds each product before it adds it: sums of
 * weights then print alike ("1." or "1.0000"). */
#define GEMM_TINY_TILE(rows)                                                                                 \
  static void gemm_tiny_tile_##rows(const gemm_step *s, const float *a, const float *b, float *c,            \
                                    const float *add, vmask edge) {                                          \
    gemm_tile_of(rows, 1, false, false, s, a, b, c, add, edge);                                              \
  }
GEMM_TINY_TILE(1)
GEMM_TINY_TILE(2)
GEMM_TINY_TILE(3)
GEMM_TINY_TILE(4)
GEMM_TINY_TILE(5)
GEMM_TINY_TILE(6)
static gemm_tile *const gemm_tiny_tiles[GEMM_ROWS] = {gemm_tiny_tile_1, gemm_tiny_tile_2, gemm_tiny_tile_3,
                                                      gemm_tiny_tile_4, gemm_tiny_tile_5, gemm_tiny_tile_6};

static void gemm_rounded_twice(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row,
                               ptrdiff_t a_column, const float *b, ptrdiff_t b_row, ptrdiff_t b_column,
                               const float *bias, float *c, ptrdiff_t c_row) {
  float packed[GEMM_TINY_DEPTH * V_LANES];
  const bool in_place = b_column == 1;
  const gemm_step s = {
      .depth = k, .a_row = a_row, .a_column = a_column, .b_row = in_place ? b_row : V_LANES, .c_row = c_row};
  for (size_t j = 0; j < n; j += V_LANES) {
    const size_t columns = gemm_least(n - j, V_LANES);
    const float *from = b + (ptrdiff_t)j * b_column;
    for (size_t p = 0; !in_place && p < k; p++)
      for (size_t r = 0; r < columns; r++)
        packed[p * V_LANES + r] = from[(ptrdiff_t)p * b_row + (ptrdiff_t)r * b_column];
    for (size_t i = 0; i < m; i += GEMM_ROWS)
      gemm_tiny_tiles[gemm_least(m - i, GEMM_ROWS) - 1](
          &s, a + (ptrdiff_t)i * a_row, in_place ? from : packed, c + (ptrdiff_t)i * c_row + j,
          bias ? bias + j : NULL, v_first(columns));
  }
}

/* ---- Dots ---- */

typedef void gemm_dot_tile(const gemm_step *s, const float *a, const float *b, float *c, const float *add,
                           size_t columns);

V_INLINE void gemm_dot_add(const int rows, const int columns, vfloat sum[GEMM_DOT_ROWS][GEMM_DOT_COLUMNS],
                           const float *a, ptrdiff_t a_row, const float *b, ptrdiff_t b_column,
                           const bool whole, vmask rest) {
  vfloat x[GEMM_DOT_ROWS];
  V_UNROLL
  for (int i = 0; i < rows; i++) x[i] = whole ? v_load(a + i * a_row) : v_load_masked(a + i * a_row, rest);
  V_UNROLL
  for (int j = 0; j < columns; j++) {
    const vfloat y = whole ? v_load(b + j * b_column) : v_load_masked(b + j * b_column, rest);
    V_UNROLL
    for (int i = 0; i < rows; i++) sum[i][j] = v_fma(x[i], y, sum[i][j]);
  }
}

/* `rows` rows of a and `columns` columns of b, their elements without gaps. */
V_INLINE void gemm_dot_tile_of(const int rows, const int columns, const gemm_step *s, const float *a,
                               const float *b, float *c, const float *add) {
  const ptrdiff_t a_row = s->a_row, b_column = s->b_row;
  vfloat sum[GEMM_DOT_ROWS][GEMM_DOT_COLUMNS];
  V_UNROLL
  for (int i = 0; i < rows; i++) {
    V_UNROLL
    for (int j = 0; j < GEMM_DOT_COLUMNS; j++) sum[i][j] = v_zero();
  }
  size_t left = s->depth;
  for (; left >= V_LANES; left -= V_LANES, a += V_LANES, b += V_LANES)
    gemm_dot_add(rows, columns, sum, a, a_row, b, b_column, true, v_first(0));
  if (left) gemm_dot_add(rows, columns, sum, a, a_row, b, b_column, false, v_first(left));
  V_UNROLL
  for (int i = 0; i < rows; i++) {
    float total[GEMM_DOT_COLUMNS];
    v_sum_four(total, sum[i]);
    V_UNROLL
    for (int j = 0; j < columns; j++)
      c[i * s->c_row + j] = add ? total[j] + add[i * s->add_row + j] : total[j];
  }
}

#define GEMM_DOT_TILE(rows)                                                                                  \
  static void gemm_dot_tile_##rows(const gemm_step *s, const float *a, const float *b, float *c,             \
                                   const float *add, size_t columns) {                                       \
    switch (columns) {                                                                                       \
    case 1: gemm_dot_tile_of(rows, 1, s, a, b, c, add); break;                                               \
    case 2: gemm_dot_tile_of(rows, 2, s, a, b, c, add); break;                                               \
    case 3: gemm_dot_tile_of(rows, 3, s, a, b, c, add); break;                                               \
    default: gemm_dot_tile_of(rows, 4, s, a, b, c, add);                                                     \
    }                                                                                                        \
  }
#define GEMM_DOT_TILE_NAME(rows) gemm_dot_tile_##rows,
#if V_REGISTERS >= 32
#define GEMM_ALL_DOT_TILES(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define GEMM_ALL_DOT_TILES(X) X(1) X(2) X(3)
#endif
GEMM_ALL_DOT_TILES(GEMM_DOT_TILE)
static gemm_dot_tile *const gemm_dot_tiles[GEMM_DOT_ROWS] = {GEMM_ALL_DOT_TILES(GEMM_DOT_TILE_NAME)};

/* The outer loop is over the larger side, whose elements are then read but once. */
static void gemm_dots(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, const float *b,
                      ptrdiff_t b_column, const float *bias, float *c, ptrdiff_t c_row) {
  const gemm_step s = {.depth = k, .a_row = a_row, .b_row = b_column, .c_row = c_row};
  const size_t strip = gemm_part(m, GEMM_DOT_ROWS), rows = m > n ? strip : m,
               columns = m > n ? n : GEMM_DOT_COLUMNS;
  for (size_t i0 = 0; i0 < m; i0 += rows) {
    for (size_t j0 = 0; j0 < n; j0 += columns) {
      const size_t i1 = gemm_least(m, i0 + rows), j1 = gemm_least(n, j0 + columns);
      for (size_t i = i0; i < i1; i += strip) {
        for (size_t j = j0; j < j1; j += GEMM_DOT_COLUMNS) {
          gemm_dot_tiles[gemm_least(i1 - i, strip) - 1](
              &s, a + (ptrdiff_t)i * a_row, b + (ptrdiff_t)j * b_column, c + (ptrdiff_t)i * c_row + j,
              bias ? bias + j : NULL, gemm_least(j1 - j, GEMM_DOT_COLUMNS));
        }
      }
    }
  }
}

/* ---- Streams ---- */

/* c [n] = x [k] · b [k, n] + bias, b's columns without gaps: sums of some columns stay in the first cache
 * while eight rows of b at a time are added. */
static void gemm_stream(size_t n, size_t k, const float *x, ptrdiff_t x_step, const float *b, ptrdiff_t b_row,
                        const float *bias, ptrdiff_t bias_step, float *c, ptrdiff_t c_step) {
  enum { AT_ONCE = 8, CHUNK = 4096 };
  _Alignas(HEED__ALIGNMENT) float sum[CHUNK];
  for (size_t j0 = 0; j0 < n; j0 += CHUNK) {
    const size_t columns = gemm_least(n - j0, CHUNK), whole = columns / V_LANES * V_LANES;
    const vmask edge = v_first(columns - whole);
    const float *y = b + j0;
    for (size_t j = 0; j < columns; j += V_LANES) v_store(sum + j, v_zero());
    size_t p = 0;
    for (; p + AT_ONCE <= k; p += AT_ONCE, y += AT_ONCE * b_row) {
      vfloat factor[AT_ONCE];
      V_UNROLL
      for (int r = 0; r < AT_ONCE; r++) factor[r] = v_set(x[((ptrdiff_t)p + r) * x_step]);
      for (size_t j = 0; j < whole; j += V_LANES) {
        vfloat total = v_load(sum + j);
        V_UNROLL
        for (int r = 0; r < AT_ONCE; r++) total = v_fma(factor[r], v_load(y + r * b_row + j), total);
        v_store(sum + j, total);
      }
      if (whole < columns) {
        vfloat total = v_load(sum + whole);
        V_UNROLL
        for (int r = 0; r < AT_ONCE; r++)
          total = v_fma(factor[r], v_load_masked(y + r * b_row + whole, edge), total);
        v_store(sum + whole, total);
      }
    }
    for (; p < k; p++, y += b_row) {
      const vfloat factor = v_set(x[(ptrdiff_t)p * x_step]);
      for (size_t j = 0; j < whole; j += V_LANES)
        v_store(sum + j, v_fma(factor, v_load(y + j), v_load(sum + j)));
      if (whole < columns)
        v_store(sum + whole, v_fma(factor, v_load_masked(y + whole, edge), v_load(sum + whole)));
    }
    for (size_t j = 0; j < columns; j++)
      c[(ptrdiff_t)(j0 + j) * c_step] = sum[j] + (bias ? bias[(ptrdiff_t)(j0 + j) * bias_step] : 0.0f);
  }
}

/* ---- The choice ---- */

/* Copies `rows` rows of x, whose elements are `column` apart, so that they lie without gaps. */
static void gemm_gather(float *out, size_t rows, size_t k, const float *x, ptrdiff_t row, ptrdiff_t column) {
  for (size_t i = 0; i < rows; i++)
    for (size_t p = 0; p < k; p++) *out++ = x[(ptrdiff_t)i * row + (ptrdiff_t)p * column];
}

/* Dots where the side with few rows (or columns) has gaps. */
static __attribute__((noinline)) void gemm_gathered_dots(size_t m, size_t n, size_t k, const float *a,
                                                         ptrdiff_t a_row, ptrdiff_t a_column, const float *b,
                                                         ptrdiff_t b_row, ptrdiff_t b_column,
                                                         const float *bias, float *c, ptrdiff_t c_row) {
  _Alignas(HEED__ALIGNMENT) float few[GEMM_GATHERED];
  if (a_column == 1) {
    gemm_gather(few, n, k, b, b_column, b_row);
    gemm_dots(m, n, k, a, a_row, few, (ptrdiff_t)k, bias, c, c_row);
  } else {
    gemm_gather(few, m, k, a, a_row, a_column);
    gemm_dots(m, n, k, few, (ptrdiff_t)k, b, b_column, bias, c, c_row);
  }
}

static void k_gemm(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, ptrdiff_t a_column,
                   const float *b, ptrdiff_t b_row, ptrdiff_t b_column, const float *bias, float *c,
                   ptrdiff_t c_row) {
  const size_t few = gemm_least(m, n);
  if (m <= GEMM_TINY && n <= GEMM_TINY && k <= GEMM_TINY_DEPTH && m * n * k <= GEMM_TINY) {
    gemm_rounded_twice(m, n, k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row);
    return;
  }
  if (few <= GEMM_FEW && few <= k / 8) {
    if (a_column == 1 && b_row == 1) {
      gemm_dots(m, n, k, a, a_row, b, b_column, bias, c, c_row);
      return;
    }
    if (few * k <= GEMM_GATHERED && few <= 4 && ((a_column == 1 && few == n) || (b_row == 1 && few == m))) {
      gemm_gathered_dots(m, n, k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row);
      return;
    }
  }
  if (m == 1 && b_column == 1)
    gemm_stream(n, k, a, a_column, b, b_row, bias, 1, c, 1);
  else if (n == 1 && a_row == 1)
    gemm_stream(m, k, b, b_row, a, a_column, bias, 0, c, c_row);
  else if (b_column == 1 && (m <= GEMM_FEW || n * k <= GEMM_NEAR))
    gemm_in_place(m, n, k, a, a_row, a_column, b, b_row, bias, c, c_row);
  else if (k <= GEMM_SHALLOW)
    gemm_packed_shallow(m, n, k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row);
  else
    gemm_packed(m, n, k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row);
}

#endif
