/* Products with low-precision weights: c [m, n] = x [m, k] · wᵀ + bias, w [n, k] widened in registers. Few
 * rows use dot products with four rows of w at a time or one by one; an element is summed in the same order
 * for every m. Many rows use the tiles of gemm.h on panels that are widened when they are packed. */

#ifndef HEED_VECTOR_LOWP_H
#define HEED_VECTOR_LOWP_H

#include "gemm.h"
#include "lowp_blocks.h"
#include "widen.h"

enum {
  LOWP_COLUMNS = 4,                           /* rows of w in a tile */
  LOWP_ROWS = V_REGISTERS >= 32 ? 4 : 2,      /* rows of x in a tile, whose sums stay in registers */
  LOWP_BYTE_ROWS = V_REGISTERS >= 32 ? 3 : 1, /* the same for int8, which needs registers for scales */
  LOWP_BLOCK = 64,                        /* products that are summed before they are added to the total */
  LOWP_LINE = 64,                         /* bytes */
  LOWP_GROUP = 32,                        /* rows of w in a step, one by one */
  LOWP_KEPT = 4096,                       /* elements of x that stay in the first-level cache */
  LOWP_AHEAD = 2048,                      /* prefetch distance, in elements of w */
  LOWP_FEW = V_REGISTERS >= 32 ? 48 : 16, /* up to this many rows packing costs more than it saves */
  LOWP_FEW_BLOCKS = V_REGISTERS >= 32 ? 28 : 16, /* the same for blocks, whose widening costs more (Q4_1) */
};
_Static_assert(LOWP_BLOCK == HEED_INT8_BLOCK, "int8 values have a scale for each block");
_Static_assert(LOWP_BLOCK % V_LANES == 0 && GEMM_DEPTH % LOWP_BLOCK == 0,
               "vectors and panels do not split blocks");

/* ---- Elements ---- */

V_INLINE const char *lowp_row(const heed_dtype dtype, const heed__lowp_task *t, size_t j) {
  return element_at(t->w, dtype, (ptrdiff_t)j * t->w_row);
}

/* ---- Dots ---- */

/* Prefetches the cache line at `bytes` of each of the next rows to the second-level cache; the first could
 * not hold that many long rows. The processor itself prefetches only within a page. AMD: 23 instead of 18
 * GB/s, with int8 24 instead of 17 (no gain with the first-level cache); Intel: 11.5 instead of 10 with the
 * first-level cache, the second was not measured. */
V_INLINE void lowp_fetch(const char *const *next, size_t bytes) {
  V_UNROLL
  for (int j = 0; j < LOWP_COLUMNS; j++) __builtin_prefetch(next[j] + bytes, 0, 2);
}

/* sum += x · w for one vector of each row; unless `whole`, for its first `rest` lanes */
V_INLINE void lowp_add(const heed_dtype dtype, const int rows, const int columns,
                       vfloat sum[LOWP_ROWS][LOWP_COLUMNS], const float *x, ptrdiff_t x_row,
                       const char *const *w, size_t p, const bool whole, size_t rest) {
  vfloat y[LOWP_COLUMNS];
  V_UNROLL
  for (int j = 0; j < columns; j++) {
    const char *at = w[j] + p * heed__element_bytes(dtype);
    y[j] = whole ? load_stored(at, dtype) : load_stored_first(at, dtype, rest);
  }
  V_UNROLL
  for (int i = 0; i < rows; i++) {
    const float *at = x + i * x_row + p;
    const vfloat factor = whole ? v_load(at) : v_load_masked(at, v_first(rest));
    V_UNROLL
    for (int j = 0; j < columns; j++) sum[i][j] = v_fma(factor, y[j], sum[i][j]);
  }
}

/* sum += x · w for the block of each row that begins at `first`; unless `whole`, it has n elements */
V_INLINE void lowp_add_block(const heed_dtype dtype, const int rows, const int columns,
                             vfloat sum[LOWP_ROWS][LOWP_COLUMNS], const float *x, ptrdiff_t x_row,
                             const char *const *w, const float *const *scale, size_t first, const bool whole,
                             size_t n) {
  vfloat part[LOWP_ROWS][LOWP_COLUMNS];
  V_UNROLL
  for (int i = 0; i < rows; i++) {
    V_UNROLL
    for (int j = 0; j < columns; j++) part[i][j] = v_zero();
  }
  if (whole) {
    V_UNROLL
    for (size_t p = 0; p < LOWP_BLOCK; p += V_LANES)
      lowp_add(dtype, rows, columns, part, x, x_row, w, first + p, true, 0);
  } else {
    size_t p = 0;
    for (; p + V_LANES <= n; p += V_LANES)
      lowp_add(dtype, rows, columns, part, x, x_row, w, first + p, true, 0);
    if (p < n) lowp_add(dtype, rows, columns, part, x, x_row, w, first + p, false, n - p);
  }
  V_UNROLL
  for (int j = 0; j < columns; j++) {
    const vfloat factor = dtype == HEED_INT8 ? v_set(scale[j][first / LOWP_BLOCK]) : v_zero();
    V_UNROLL
    for (int i = 0; i < rows; i++)
      sum[i][j] = dtype == HEED_INT8 ? v_fma(part[i][j], factor, sum[i][j]) : v_add(part[i][j], sum[i][j]);
  }
}

/* Stores up to LOWP_COLUMNS sums in row i of c, from column j on. */
V_INLINE void lowp_store(const heed__lowp_task *t, size_t i, size_t j, const vfloat *sum) {
  const size_t columns = heed__min_size(t->n - j, LOWP_COLUMNS);
  float total[LOWP_COLUMNS], *to = t->c + (ptrdiff_t)i * t->c_row + j;
  v_sum_four(total, sum);
  for (size_t c = 0; c < columns; c++) to[c] = t->bias ? total[c] + t->bias[j + c] : total[c];
}

/* A tile: rows i… of x with rows j… of w. If w has fewer than LOWP_COLUMNS left, the last row is repeated. */
V_INLINE void lowp_tile_of(const heed_dtype dtype, const int rows, const heed__lowp_task *t, size_t i,
                           size_t j) {
  const size_t k = t->k, bytes = heed__element_bytes(dtype);
  /* Rows of int8 are prefetched as far ahead as those of 2048 elements: AMD, 49152 × 576 1.5 times, 768 × 768
   * 1.2 times as fast; Intel, unchanged. */
  const size_t ahead = LOWP_COLUMNS * (1 + (dtype == HEED_INT8 ? LOWP_AHEAD / (k + 1) : 0));
  const float *x = t->x + (ptrdiff_t)i * t->x_row;
  const char *w[LOWP_COLUMNS], *next[LOWP_COLUMNS];
  const float *scale[LOWP_COLUMNS] = {0};
  vfloat sum[LOWP_ROWS][LOWP_COLUMNS];
  V_UNROLL
  for (int c = 0; c < LOWP_COLUMNS; c++) {
    const size_t row = heed__min_size(j + (size_t)c, t->n - 1);
    w[c] = lowp_row(dtype, t, row);
    next[c] = lowp_row(dtype, t, heed__min_size(row + ahead, t->n - 1));
    if (dtype == HEED_INT8) scale[c] = t->scale + (ptrdiff_t)row * t->scale_row;
    V_UNROLL
    for (int r = 0; r < rows; r++) sum[r][c] = v_zero();
  }
  size_t p = 0;
  for (; p + LOWP_BLOCK <= k; p += LOWP_BLOCK) {
    V_UNROLL
    for (size_t line = 0; line < LOWP_BLOCK * bytes; line += LOWP_LINE) lowp_fetch(next, p * bytes + line);
    lowp_add_block(dtype, rows, LOWP_COLUMNS, sum, x, t->x_row, w, scale, p, true, 0);
  }
  if (p < k) lowp_add_block(dtype, rows, LOWP_COLUMNS, sum, x, t->x_row, w, scale, p, false, k - p);
  V_UNROLL
  for (int r = 0; r < rows; r++) lowp_store(t, i + (size_t)r, j, sum[r]);
}

#define LOWP_TILE(dtype, rows)                                                                               \
  static void V_NAME(lowp_tile_##dtype##_##rows)(const heed__lowp_task *t, size_t i, size_t j) {             \
    lowp_tile_of(HEED_##dtype, rows, t, i, j);                                                               \
  }
#define LOWP_TILE_NAME(dtype, rows) V_NAME(lowp_tile_##dtype##_##rows),
#if V_REGISTERS >= 32
#define LOWP_HALF_TILES(X, dtype) X(dtype, 1) X(dtype, 2) X(dtype, 3) X(dtype, 4)
#define LOWP_BYTE_TILES(X, dtype) X(dtype, 1) X(dtype, 2) X(dtype, 3)
#else
#define LOWP_HALF_TILES(X, dtype) X(dtype, 1) X(dtype, 2)
#define LOWP_BYTE_TILES(X, dtype) X(dtype, 1)
#endif
LOWP_HALF_TILES(LOWP_TILE, BFLOAT16)
LOWP_HALF_TILES(LOWP_TILE, FLOAT16)
LOWP_BYTE_TILES(LOWP_TILE, INT8)
typedef void lowp_tile(const heed__lowp_task *t, size_t i, size_t j);

/* One row of x with rows j…last-1 of w, one by one, bit-identical to the tiles. Prefetches what follows in
 * memory, usually the next rows: Intel, 576 × 576 to 49152 × 576 cold, 11.6 instead of 9.1 GB/s of 12. */
V_INLINE void lowp_rows_of(const heed_dtype dtype, const heed__lowp_task *t, size_t j, size_t last) {
  const size_t k = t->k, bytes = heed__element_bytes(dtype);
  while (j < last) {
    vfloat sums[LOWP_COLUMNS];
    V_UNROLL
    for (int c = 0; c < LOWP_COLUMNS; c++) sums[c] = v_zero();
    const size_t first = j;
    for (; j < last && j < first + LOWP_COLUMNS; j++) {
      const char *const w = lowp_row(dtype, t, j);
      vfloat sum[LOWP_ROWS][LOWP_COLUMNS];
      sum[0][0] = v_zero();
      size_t p = 0;
      for (; p + LOWP_BLOCK <= k; p += LOWP_BLOCK) {
        for (size_t line = 0; line < LOWP_BLOCK * bytes; line += LOWP_LINE)
          __builtin_prefetch(w + (p + LOWP_AHEAD) * bytes + line, 0, 2);
        lowp_add_block(dtype, 1, 1, sum, t->x, 0, &w, NULL, p, true, 0);
      }
      if (p < k) lowp_add_block(dtype, 1, 1, sum, t->x, 0, &w, NULL, p, false, k - p);
      sums[j - first] = sum[0][0];
    }
    lowp_store(t, 0, first, sums);
  }
}
static __attribute__((noinline)) void lowp_rows_bfloat16(const heed__lowp_task *t, size_t j, size_t last) {
  lowp_rows_of(HEED_BFLOAT16, t, j, last);
}
static __attribute__((noinline)) void lowp_rows_float16(const heed__lowp_task *t, size_t j, size_t last) {
  lowp_rows_of(HEED_FLOAT16, t, j, last);
}

/* Whether rows of w are read one by one, which is the fastest way to read memory (AMD, 4096 × 4096 of 16
 * bits: 1.2 to 1.4 instead of 1.6 ms; from the third-level cache a tenth slower). Tiles are up to twice as
 * fast where x does not fit in the first-level cache or scales are read too. */
static bool lowp_goes_by_rows(const heed__lowp_task *t) {
  return t->m == 1 && t->dtype != HEED_INT8 && t->k <= LOWP_KEPT && t->far;
}

static bool lowp_dots(const heed__lowp_task *t, const heed__pace *pace, int64_t *position) {
  static lowp_tile *const bfloat16_tiles[] = {LOWP_HALF_TILES(LOWP_TILE_NAME, BFLOAT16)};
  static lowp_tile *const float16_tiles[] = {LOWP_HALF_TILES(LOWP_TILE_NAME, FLOAT16)};
  static lowp_tile *const int8_tiles[] = {LOWP_BYTE_TILES(LOWP_TILE_NAME, INT8)};
  lowp_tile *const *const tiles = t->dtype == HEED_BFLOAT16  ? bfloat16_tiles
                                  : t->dtype == HEED_FLOAT16 ? float16_tiles
                                                             : int8_tiles;
  const bool by_rows = lowp_goes_by_rows(t);
  const size_t strip = gemm_part(t->m, t->dtype == HEED_INT8 ? LOWP_BYTE_ROWS : LOWP_ROWS);
  const size_t group = by_rows ? LOWP_GROUP : LOWP_COLUMNS;
  size_t work = 0;
  for (size_t j = position ? (size_t)*position : 0; j < t->n; j += group) {
    if (!by_rows)
      for (size_t i = 0; i < t->m; i += strip) tiles[heed__min_size(t->m - i, strip) - 1](t, i, j);
    else if (t->dtype == HEED_BFLOAT16)
      lowp_rows_bfloat16(t, j, heed__min_size(t->n, j + group));
    else
      lowp_rows_float16(t, j, heed__min_size(t->n, j + group));
    work += (t->m + GEMM_WAIT) * group * t->k;
    if (work < GEMM_CHECK || j + group >= t->n) continue;
    if (heed__should_yield(pace)) {
      *position = (int64_t)(j + group);
      return false;
    }
    work = 0;
  }
  return true;
}

/* ---- Panels ---- */

/* Elements p…p + n - 1 of row j, which are in one block, then zeros; n <= V_LANES. */
V_INLINE vfloat lowp_vector(const heed_dtype dtype, const heed__lowp_task *t, size_t j, size_t p, size_t n) {
  if (heed__is_blocked(dtype)) { /* n is V_LANES */
    const size_t elements = (size_t)heed__block_elements(dtype);
    const ptrdiff_t first = (ptrdiff_t)j * t->w_row + (ptrdiff_t)(p / elements * elements);
    return blocks_vector(dtype, (const uint8_t *)t->w + heed__row_bytes(dtype, first),
                         p % elements / BLOCKS_GROUP, p % BLOCKS_GROUP);
  }
  const char *at = lowp_row(dtype, t, j) + p * heed__element_bytes(dtype);
  const vfloat x = n == V_LANES ? load_stored(at, dtype) : load_stored_first(at, dtype, n);
  if (dtype != HEED_INT8) return x;
  return v_mul(x, v_set(t->scale[(ptrdiff_t)j * t->scale_row + (ptrdiff_t)(p / HEED_INT8_BLOCK)]));
}

/* out [depth, columns], rows GEMM_COLUMNS apart: columns p… of rows j…j + columns - 1 of w, transposed. The
 * last vector of each row is padded with zeros. */
V_INLINE void lowp_pack(const heed_dtype dtype, const heed__lowp_task *t, float *out, size_t depth,
                        size_t columns, size_t j, size_t p) {
  for (size_t c = 0; c < columns; c += V_LANES) {
    const size_t width = heed__min_size(columns - c, V_LANES);
    for (size_t q = 0; q < depth; q += V_LANES) {
      const size_t height = heed__min_size(depth - q, V_LANES);
      vfloat r[V_LANES];
      for (size_t i = 0; i < V_LANES; i++)
        r[i] = i < width ? lowp_vector(dtype, t, j + c + i, p + q, height) : v_zero();
      v_transpose(r);
      for (size_t i = 0; i < height; i++) v_store(out + (q + i) * GEMM_COLUMNS + c, r[i]);
    }
  }
}

/* A step is a group of columns at one depth. */
V_INLINE bool lowp_panels_of(const heed_dtype dtype, const heed__lowp_task *t, const heed__pace *pace,
                             int64_t *position) {
  _Alignas(HEED__ALIGNMENT) float packed[GEMM_DEPTH * GEMM_GROUP];
  const size_t strip = gemm_part(t->m, GEMM_ROWS), groups = (t->n + GEMM_GROUP - 1) / GEMM_GROUP;
  const size_t from = position ? (size_t)*position : 0;
  gemm_step s = {.a_row = t->x_row, .a_column = 1, .b_row = GEMM_COLUMNS, .c_row = t->c_row};
  size_t p = from / groups * GEMM_DEPTH, j0 = from % groups * GEMM_GROUP;
  do {
    s.depth = heed__min_size(t->k - p, GEMM_DEPTH);
    s.add_row = p ? t->c_row : 0;
    for (; j0 < t->n; j0 += GEMM_GROUP) {
      const size_t j1 = heed__min_size(t->n, j0 + GEMM_GROUP);
      for (size_t j = j0; j < j1; j += GEMM_COLUMNS)
        lowp_pack(dtype, t, packed + (j - j0) * s.depth, s.depth, heed__min_size(j1 - j, GEMM_COLUMNS), j, p);
      for (size_t i = 0; i < t->m; i += strip) {
        const size_t rows = heed__min_size(t->m - i, strip);
        const float *x = t->x + (ptrdiff_t)i * t->x_row + p;
        float *c = t->c + (ptrdiff_t)i * t->c_row;
        for (size_t j = j0; j < j1; j += GEMM_COLUMNS) {
          const size_t columns = heed__min_size(j1 - j, GEMM_COLUMNS),
                       used = (columns + V_LANES - 1) / V_LANES;
          gemm_tiles[rows - 1][columns == GEMM_COLUMNS ? GEMM_VECTORS : used - 1](
              &s, x, packed + (j - j0) * s.depth, c + j,
              p         ? c + j
              : t->bias ? t->bias + j
                        : NULL,
              v_first(columns - (used - 1) * V_LANES));
        }
      }
      if (heed__should_yield(pace) && (j1 < t->n || p + s.depth < t->k)) {
        *position = (int64_t)(p / GEMM_DEPTH * groups + j0 / GEMM_GROUP + 1);
        return false;
      }
    }
    j0 = 0;
    p += s.depth;
  } while (p < t->k);
  return true;
}

typedef bool lowp_panels(const heed__lowp_task *t, const heed__pace *pace, int64_t *position);
#define LOWP_PANELS(dtype)                                                                                   \
  static __attribute__((noinline)) bool V_NAME(lowp_panels_##dtype)(                                         \
      const heed__lowp_task *t, const heed__pace *pace, int64_t *position) {                                 \
    return lowp_panels_of(HEED_##dtype, t, pace, position);                                                  \
  }
LOWP_PANELS(BFLOAT16)
LOWP_PANELS(FLOAT16)
LOWP_PANELS(INT8)
#define X(dtype, text, elements, bytes) LOWP_PANELS(dtype)
HEED__BLOCK_KERNELS(X)
#undef X

bool KERNEL(lowp)(const heed__lowp_task *t, const heed__pace *pace, int64_t *position) {
#define X(dtype, text, elements, bytes) [HEED_##dtype] = V_NAME(lowp_panels_##dtype),
  static lowp_panels *const panels[] = {[HEED_BFLOAT16] = V_NAME(lowp_panels_BFLOAT16),
                                        [HEED_FLOAT16] = V_NAME(lowp_panels_FLOAT16),
                                        [HEED_INT8] = V_NAME(lowp_panels_INT8),
                                        HEED__BLOCK_KERNELS(X)};
#undef X
  if (t->m > (heed__is_blocked(t->dtype) ? LOWP_FEW_BLOCKS : LOWP_FEW))
    return panels[t->dtype](t, pace, position);
  return heed__is_blocked(t->dtype) ? blocks_dots(t, pace, position) : lowp_dots(t, pace, position);
}

#endif
