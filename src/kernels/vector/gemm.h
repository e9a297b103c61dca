/* The matrix product c [m, n] = a [m, k] · b [k, n] + bias. Apart from the blocked product, which needs
 * scratch (blocks.h), there are three methods, chosen by sizes and strides:
 *   panels   tiles of 6 rows × (4 or 2) vectors of columns in registers; b is packed in panels of that width
 *            where that is faster, a is read in place, since a strip of 6 rows stays in the first-level cache
 *   dot      lanes along k, for few rows or few columns: nothing is packed, b is read once (dots.h)
 *   stream   one row times a row-major b (or the transpose), or few rows times a large one: b is read once,
 *            several rows at a time
 * The order in which an element is summed over k depends on k and the method alone, not on the other sizes.
 */

#ifndef HEED_VECTOR_GEMM_H
#define HEED_VECTOR_GEMM_H

#include "blocks.h"
#include "dots.h"

enum {
  GEMM_ROWS = 6,
  GEMM_VECTORS = V_REGISTERS >= 32 ? 4 : 2,
  GEMM_COLUMNS = GEMM_VECTORS * V_LANES,
  GEMM_DEPTH = 128, /* most of k in a panel, which stays in the first- or second-level cache */
  GEMM_GROUP = 64,  /* columns that are packed at a time, in one panel or several */
  GEMM_FEW = V_REGISTERS >= 32 ? 64 : 48, /* up to this many rows packing b costs more than it saves */
  GEMM_STREAMED = 8,                      /* up to this many rows a row-major b of at least */
  GEMM_FAR = 1 << 21,                     /* this many elements, too large for caches, is streamed */
  GEMM_STREAM_ROWS = V_REGISTERS >= 32 ? 4 : 2,
  GEMM_STREAM_AT_ONCE = 4,     /* rows of b at a time for several rows of a, */
  GEMM_STREAM_ALONE = 8,       /* and for one */
  GEMM_TINY = HEED__TINY_WORK, /* up to this many multiply-adds are rounded twice */
  GEMM_TINY_DEPTH = HEED__TINY_DEPTH,
  GEMM_NEAR = 1 << 16,     /* elements of b that stay in the second-level cache without packing */
  GEMM_GATHERED = 1 << 13, /* most floats that are copied to the stack to make them contiguous */
};

/* What all tiles of one step share. The sum over `depth` is added to `add`: the bias, the earlier steps' sum
 * in c, or nothing (NULL). */
typedef struct gemm_step {
  size_t depth;
  ptrdiff_t a_row, a_column, b_row, c_row, add_row;
} gemm_step;

/* ---- Tiles ---- */

typedef void gemm_tile(const gemm_step *s, const float *a, const float *b, float *c, const float *add,
                       vmask edge);

/* edge: the lanes of the last vector that exist; not used if `whole`. Unless `fused`, products are rounded
 * before they are added. */
V_INLINE void gemm_tile_add(const int rows, const int vectors, const bool whole, const bool fused,
                            vfloat sum[GEMM_ROWS][GEMM_VECTORS], const float *a, ptrdiff_t a_row,
                            const float *b, vmask edge) {
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
  if (whole) {
    TILE_TURNS
    for (size_t p = s->depth; p > 0; p--, a += a_column, b += b_row)
      gemm_tile_add(rows, vectors, whole, fused, sum, a, a_row, b, edge);
  } else {
    for (size_t p = s->depth; p > 0; p--, a += a_column, b += b_row)
      gemm_tile_add(rows, vectors, whole, fused, sum, a, a_row, b, edge);
  }
  if (add) {
    V_UNROLL
    for (int i = 0; i < rows; i++) {
      V_UNROLL
      for (int v = 0; v < vectors; v++) {
        const float *from = add + i * s->add_row + v * V_LANES;
        sum[i][v] = v_add(sum[i][v], whole || v + 1 < vectors ? v_load(from) : v_load_masked(from, edge));
      }
    }
  }
  V_UNROLL
  for (int i = 0; i < rows; i++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      float *to = c + i * s->c_row + v * V_LANES;
      if (whole || v + 1 < vectors)
        v_store(to, sum[i][v]);
      else
        v_store_masked(to, sum[i][v], edge);
    }
  }
}

#define GEMM_TILE(rows, vectors, whole)                                                                      \
  static void V_NAME(gemm_tile_##rows##_##vectors##_##whole)(                                                \
      const gemm_step *s, const float *a, const float *b, float *c, const float *add, vmask edge) {          \
    gemm_tile_of(rows, vectors, whole, true, s, a, b, c, add, edge);                                         \
  }
#define GEMM_TILE_NAME(rows, vectors, whole) V_NAME(gemm_tile_##rows##_##vectors##_##whole),
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

/* b is packed to `packed` in panels of GEMM_COLUMNS, GEMM_GROUP columns at a time, at most `most` deep; with
 * packed NULL it is read in place, and its columns must be contiguous. A step is a group of columns at one
 * depth. */
static __attribute__((noinline)) bool gemm_panels(size_t m, size_t n, size_t k, const float *a,
                                                  ptrdiff_t a_row, ptrdiff_t a_column, const float *b,
                                                  ptrdiff_t b_row, ptrdiff_t b_column, const float *bias,
                                                  float *c, ptrdiff_t c_row, float *packed, size_t most,
                                                  const heed__pace *pace, int64_t *position) {
  const size_t strip = gemm_part(m, GEMM_ROWS), depth = gemm_part(k, most);
  const size_t groups = (n + GEMM_GROUP - 1) / GEMM_GROUP, from_step = position ? (size_t)*position : 0;
  gemm_step s = {
      .a_row = a_row, .a_column = a_column, .b_row = packed ? GEMM_COLUMNS : b_row, .c_row = c_row};
  size_t p = from_step ? from_step / groups * depth : 0, j0 = from_step ? from_step % groups * GEMM_GROUP : 0;
  do {
    s.depth = heed__min_size(k - p, depth);
    s.add_row = p ? c_row : 0;
    for (; j0 < n; j0 += GEMM_GROUP) {
      const size_t j1 = heed__min_size(n, j0 + GEMM_GROUP);
      const float *from = b + (ptrdiff_t)p * b_row;
      for (size_t j = j0; packed && j < j1; j += GEMM_COLUMNS)
        gemm_pack_panel(packed + (j - j0) * s.depth, GEMM_COLUMNS, s.depth,
                        heed__min_size(j1 - j, GEMM_COLUMNS), from + (ptrdiff_t)j * b_column, b_row,
                        b_column);
      for (size_t i = 0; i < m; i += strip) {
        const size_t rows = heed__min_size(m - i, strip);
        const float *x = a + (ptrdiff_t)i * a_row + (ptrdiff_t)p * a_column;
        float *to = c + (ptrdiff_t)i * c_row;
        for (size_t j = j0; j < j1; j += GEMM_COLUMNS) {
          const size_t columns = heed__min_size(j1 - j, GEMM_COLUMNS),
                       used = (columns + V_LANES - 1) / V_LANES;
          const bool whole = columns == GEMM_COLUMNS;
          gemm_tiles[rows - 1][whole ? GEMM_VECTORS : used - 1](
              &s, x, packed ? packed + (j - j0) * s.depth : from + j, to + j,
              p      ? to + j
              : bias ? bias + j
                     : NULL,
              v_first(columns - (used - 1) * V_LANES));
        }
      }
      if (heed__should_yield(pace) && (j1 < n || p + s.depth < k)) {
        *position = (int64_t)(p / depth * groups + j0 / GEMM_GROUP + 1);
        return false;
      }
    }
    j0 = 0;
    p += s.depth;
  } while (p < k);
  return true;
}

/* Separate functions, so that a small product does not need the stack of a large one. */
#define GEMM_PACKED(name, depth)                                                                             \
  static __attribute__((noinline)) bool name(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row,  \
                                             ptrdiff_t a_column, const float *b, ptrdiff_t b_row,            \
                                             ptrdiff_t b_column, const float *bias, float *c,                \
                                             ptrdiff_t c_row, const heed__pace *pace, int64_t *position) {   \
    _Alignas(HEED__ALIGNMENT) float packed[(depth)*GEMM_GROUP];                                              \
    return gemm_panels(m, n, k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row, packed, depth, pace, \
                       position);                                                                            \
  }
GEMM_PACKED(V_NAME(gemm_packed), GEMM_DEPTH)
GEMM_PACKED(V_NAME(gemm_packed_shallow), GEMM_SHALLOW)

/* The smallest products match PyTorch bit for bit, which rounds each product before adding it, so sums of
 * weights print alike ("1." or "1.0000"). */
#define GEMM_TINY_TILE(rows)                                                                                 \
  static void V_NAME(gemm_tiny_tile_##rows)(const gemm_step *s, const float *a, const float *b, float *c,    \
                                            const float *add, vmask edge) {                                  \
    gemm_tile_of(rows, 1, false, false, s, a, b, c, add, edge);                                              \
  }
GEMM_TINY_TILE(1)
GEMM_TINY_TILE(2)
GEMM_TINY_TILE(3)
GEMM_TINY_TILE(4)
GEMM_TINY_TILE(5)
GEMM_TINY_TILE(6)
static gemm_tile *const gemm_tiny_tiles[GEMM_ROWS] = {V_NAME(gemm_tiny_tile_1), V_NAME(gemm_tiny_tile_2),
                                                      V_NAME(gemm_tiny_tile_3), V_NAME(gemm_tiny_tile_4),
                                                      V_NAME(gemm_tiny_tile_5), V_NAME(gemm_tiny_tile_6)};

static void gemm_rounded_twice(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row,
                               ptrdiff_t a_column, const float *b, ptrdiff_t b_row, ptrdiff_t b_column,
                               const float *bias, float *c, ptrdiff_t c_row) {
  float packed[GEMM_TINY_DEPTH * V_LANES];
  const bool in_place = b_column == 1;
  const gemm_step s = {
      .depth = k, .a_row = a_row, .a_column = a_column, .b_row = in_place ? b_row : V_LANES, .c_row = c_row};
  for (size_t j = 0; j < n; j += V_LANES) {
    const size_t columns = heed__min_size(n - j, V_LANES);
    const float *from = b + (ptrdiff_t)j * b_column;
    for (size_t p = 0; !in_place && p < k; p++)
      for (size_t r = 0; r < columns; r++)
        packed[p * V_LANES + r] = from[(ptrdiff_t)p * b_row + (ptrdiff_t)r * b_column];
    for (size_t i = 0; i < m; i += GEMM_ROWS)
      gemm_tiny_tiles[heed__min_size(m - i, GEMM_ROWS) - 1](
          &s, a + (ptrdiff_t)i * a_row, in_place ? from : packed, c + (ptrdiff_t)i * c_row + j,
          bias ? bias + j : NULL, v_first(columns));
  }
}

/* ---- Streams ---- */

/* sum [n] += factor · y, where y has GEMM_STREAM_ALONE rows, `row` apart, and n is a multiple of V_LANES.
 * With `fetch` the next rows are prefetched to the second-level cache. */
V_INLINE void gemm_stream_one(const bool fetch, float *sum, size_t n, const vfloat factor[GEMM_STREAM_ALONE],
                              const float *y, ptrdiff_t row) {
  for (size_t j = 0; j < n; j += V_LANES) {
    vfloat total = v_load(sum + j);
    V_UNROLL
    for (int r = 0; r < GEMM_STREAM_ALONE; r++) {
      if (fetch) __builtin_prefetch(y + (GEMM_STREAM_ALONE + r) * row + j, 0, 2);
      total = v_fma(factor[r], v_load(y + r * row + j), total);
    }
    v_store(sum + j, total);
  }
}

/* c [n] = x [k] · b [k, n] + bias, the columns of b contiguous: the sums of CHUNK columns stay in the
 * first-level cache while eight rows of b at a time are added. A step is CHECK rows of b; between steps the
 * sums are in c. */
static __attribute__((noinline)) bool gemm_stream(size_t n, size_t k, const float *x, ptrdiff_t x_step,
                                                  const float *b, ptrdiff_t b_row, const float *bias,
                                                  ptrdiff_t bias_step, float *c, ptrdiff_t c_step,
                                                  const heed__pace *pace, int64_t *position) {
  enum { AT_ONCE = GEMM_STREAM_ALONE, CHUNK = 4096, CHECK = 64, FETCHED = 1 << 20 };
  _Alignas(HEED__ALIGNMENT) float sum[CHUNK];
  const size_t steps = k / CHECK + 1, from = position ? (size_t)*position : 0;
  size_t p = from % steps * CHECK;
  for (size_t j0 = from / steps * CHUNK; j0 < n; j0 += CHUNK, p = 0) {
    const size_t columns = heed__min_size(n - j0, CHUNK), whole = columns / V_LANES * V_LANES;
    const vmask edge = v_first(columns - whole);
    const float *y = b + j0 + (ptrdiff_t)p * b_row;
    if (p == 0) {
      for (size_t j = 0; j < columns; j += V_LANES) v_store(sum + j, v_zero());
    } else {
      for (size_t j = 0; j < columns; j++) sum[j] = c[(ptrdiff_t)(j0 + j) * c_step];
    }
    for (const size_t begun = p; p + AT_ONCE <= k; p += AT_ONCE, y += AT_ONCE * b_row) {
      if (p % CHECK == 0 && p > begun && heed__should_yield(pace)) {
        for (size_t j = 0; j < columns; j++) c[(ptrdiff_t)(j0 + j) * c_step] = sum[j];
        *position = (int64_t)(j0 / CHUNK * steps + p / CHECK);
        return false;
      }
      vfloat factor[AT_ONCE];
      V_UNROLL
      for (int r = 0; r < AT_ONCE; r++) factor[r] = v_set(x[((ptrdiff_t)p + r) * x_step]);
      if (n * k > FETCHED) /* larger than the second-level cache */
        gemm_stream_one(true, sum, whole, factor, y, b_row);
      else
        gemm_stream_one(false, sum, whole, factor, y, b_row);
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
    if (j0 + columns < n && heed__should_yield(pace)) {
      *position = (int64_t)((j0 / CHUNK + 1) * steps);
      return false;
    }
  }
  return true;
}

/* sum [rows, columns] += x [rows, at_once] · y [at_once, columns], the columns of y contiguous. With `fetch`
 * the next rows of y are prefetched. */
V_INLINE void gemm_stream_add(const int rows, const int at_once, const bool fetch, float *sum, size_t sum_row,
                              size_t columns, const float *x, ptrdiff_t x_row, ptrdiff_t x_step,
                              const float *y, ptrdiff_t y_row) {
  vfloat factor[GEMM_STREAM_ROWS][GEMM_STREAM_AT_ONCE];
  V_UNROLL
  for (int i = 0; i < rows; i++) {
    V_UNROLL
    for (int r = 0; r < at_once; r++) factor[i][r] = v_set(x[i * x_row + r * x_step]);
  }
  for (size_t j = 0; j < columns; j += V_LANES) {
    const bool whole = j + V_LANES <= columns;
    vfloat value[GEMM_STREAM_AT_ONCE];
    V_UNROLL
    for (int r = 0; r < at_once; r++) {
      if (fetch) __builtin_prefetch(y + (at_once + r) * y_row + j, 0, 2);
      value[r] = whole ? v_load(y + r * y_row + j) : v_load_masked(y + r * y_row + j, v_first(columns - j));
    }
    V_UNROLL
    for (int i = 0; i < rows; i++) {
      float *at = sum + (size_t)i * sum_row + j;
      vfloat total = v_load(at);
      V_UNROLL
      for (int r = 0; r < at_once; r++) total = v_fma(factor[i][r], value[r], total);
      v_store(at, total);
    }
  }
}

#define GEMM_STREAM(rows)                                                                                    \
  static void V_NAME(gemm_stream_##rows)(size_t at_once, bool fetch, float *sum, size_t sum_row,             \
                                         size_t columns, const float *x, ptrdiff_t x_row, ptrdiff_t x_step,  \
                                         const float *y, ptrdiff_t y_row) {                                  \
    if (at_once == 1)                                                                                        \
      gemm_stream_add(rows, 1, false, sum, sum_row, columns, x, x_row, x_step, y, y_row);                    \
    else if (fetch)                                                                                          \
      gemm_stream_add(rows, GEMM_STREAM_AT_ONCE, true, sum, sum_row, columns, x, x_row, x_step, y, y_row);   \
    else                                                                                                     \
      gemm_stream_add(rows, GEMM_STREAM_AT_ONCE, false, sum, sum_row, columns, x, x_row, x_step, y, y_row);  \
  }
typedef void gemm_stream_rows(size_t at_once, bool fetch, float *sum, size_t sum_row, size_t columns,
                              const float *x, ptrdiff_t x_row, ptrdiff_t x_step, const float *y,
                              ptrdiff_t y_row);
GEMM_STREAM(1)
GEMM_STREAM(2)
#if V_REGISTERS >= 32
GEMM_STREAM(3)
GEMM_STREAM(4)
static gemm_stream_rows *const gemm_streams_of[] = {V_NAME(gemm_stream_1), V_NAME(gemm_stream_2),
                                                    V_NAME(gemm_stream_3), V_NAME(gemm_stream_4)};
#else
static gemm_stream_rows *const gemm_streams_of[] = {V_NAME(gemm_stream_1), V_NAME(gemm_stream_2)};
#endif

/* gemm_stream for several rows of x: c [m, n] = x [m, k] · b [k, n] + bias. Sums over k are divided into
 * parts of BLOCK_DEPTH, which is more accurate. A step is such a part. */
static __attribute__((noinline)) bool gemm_streams(size_t m, size_t n, size_t k, const float *x,
                                                   ptrdiff_t x_row, ptrdiff_t x_step, const float *b,
                                                   ptrdiff_t b_row, const float *bias, float *c,
                                                   ptrdiff_t c_row, const heed__pace *pace,
                                                   int64_t *position) {
  enum { SUMS = 8192 };
  _Alignas(HEED__ALIGNMENT) float sum[SUMS];
  const size_t chunk = SUMS / m / V_LANES * V_LANES, strip = gemm_part(m, GEMM_STREAM_ROWS);
  const size_t steps = (k + BLOCK_DEPTH - 1) / BLOCK_DEPTH, from = position ? (size_t)*position : 0;
  size_t p = from % steps * BLOCK_DEPTH;
  for (size_t j0 = from / steps * chunk; j0 < n; j0 += chunk, p = 0) {
    const size_t columns = heed__min_size(n - j0, chunk);
    for (size_t at_once; p < k; p += at_once) {
      at_once = k - p < GEMM_STREAM_AT_ONCE ? 1 : GEMM_STREAM_AT_ONCE;
      for (size_t i = 0; i < m * chunk && p % BLOCK_DEPTH == 0; i += V_LANES) v_store(sum + i, v_zero());
      for (size_t i = 0; i < m; i += strip)
        gemm_streams_of[heed__min_size(m - i, strip) - 1](at_once, i == 0, sum + i * chunk, chunk, columns,
                                                          x + (ptrdiff_t)i * x_row + (ptrdiff_t)p * x_step,
                                                          x_row, x_step, b + (ptrdiff_t)p * b_row + j0,
                                                          b_row);
      if ((p + at_once) % BLOCK_DEPTH != 0 && p + at_once < k) continue;
      const bool first = p < BLOCK_DEPTH;
      for (size_t i = 0; i < m; i++) {
        float *to = c + (ptrdiff_t)i * c_row + j0;
        for (size_t j = 0; j < columns; j++)
          to[j] = sum[i * chunk + j] + (!first ? to[j] : bias ? bias[j0 + j] : 0.0f);
      }
      const size_t done = j0 / chunk * steps + p / BLOCK_DEPTH + 1;
      if ((j0 + columns < n || p + at_once < k) && heed__should_yield(pace)) {
        *position = (int64_t)done;
        return false;
      }
    }
  }
  return true;
}

/* ---- The choice of the method ---- */

/* Copies `rows` rows of x, whose elements are `column` apart, to contiguous rows. */
static void gemm_gather(float *out, size_t rows, size_t k, const float *x, ptrdiff_t row, ptrdiff_t column) {
  for (size_t i = 0; i < rows; i++)
    for (size_t p = 0; p < k; p++) *out++ = x[(ptrdiff_t)i * row + (ptrdiff_t)p * column];
}

/* Dot products where the side with few rows (or columns) is not contiguous along k. */
static __attribute__((noinline)) bool gemm_gathered_dots(size_t m, size_t n, size_t k, const float *a,
                                                         ptrdiff_t a_row, ptrdiff_t a_column, const float *b,
                                                         ptrdiff_t b_row, ptrdiff_t b_column,
                                                         const float *bias, float *c, ptrdiff_t c_row,
                                                         const heed__pace *pace, int64_t *position) {
  _Alignas(HEED__ALIGNMENT) float few[GEMM_GATHERED];
  if (a_column == 1) {
    gemm_gather(few, n, k, b, b_column, b_row);
    return gemm_dots(m, n, k, a, a_row, few, (ptrdiff_t)k, bias, c, c_row, pace, position);
  }
  gemm_gather(few, m, k, a, a_row, a_column);
  return gemm_dots(m, n, k, few, (ptrdiff_t)k, b, b_column, bias, c, c_row, pace, position);
}

bool KERNEL(gemm)(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, ptrdiff_t a_column,
                  const float *b, ptrdiff_t b_row, ptrdiff_t b_column, const float *bias, float *c,
                  ptrdiff_t c_row, float *scratch, const heed__pace *pace, int64_t *position) {
  const size_t few = heed__min_size(m, n);
  if (scratch)
    return gemm_in_blocks(m, n, k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row, scratch, pace,
                          position);
  if (m <= GEMM_TINY && n <= GEMM_TINY && k <= GEMM_TINY_DEPTH && m * n * k <= GEMM_TINY) {
    gemm_rounded_twice(m, n, k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row);
    return true;
  }
  if (few <= GEMM_FEW && few <= k / 8) {
    if (a_column == 1 && b_row == 1)
      return gemm_dots(m, n, k, a, a_row, b, b_column, bias, c, c_row, pace, position);
    if (few * k <= GEMM_GATHERED && few <= 4 && ((a_column == 1 && few == n) || (b_row == 1 && few == m)))
      return gemm_gathered_dots(m, n, k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row, pace,
                                position);
  }
  if (m == 1 && b_column == 1) return gemm_stream(n, k, a, a_column, b, b_row, bias, 1, c, 1, pace, position);
  if (n == 1 && a_row == 1)
    return gemm_stream(m, k, b, b_row, a, a_column, bias, 0, c, c_row, pace, position);
  if (b_column == 1 && m <= GEMM_STREAMED && n * k >= GEMM_FAR)
    return gemm_streams(m, n, k, a, a_row, a_column, b, b_row, bias, c, c_row, pace, position);
  if (b_column == 1 && (m <= GEMM_FEW || n * k <= GEMM_NEAR))
    return gemm_panels(m, n, k, a, a_row, a_column, b, b_row, 1, bias, c, c_row, NULL, GEMM_DEPTH, pace,
                       position);
  return (k <= GEMM_SHALLOW ? V_NAME(gemm_packed_shallow) : V_NAME(gemm_packed))(
      m, n, k, a, a_row, a_column, b, b_row, b_column, bias, c, c_row, pace, position);
}

#endif
