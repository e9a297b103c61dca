/* The large matrix product, blocked: c [m, n] = a [m, k] · b [k, n] + bias. A block of b, BLOCK_DEPTH ×
 * BLOCK_WIDE, is packed in panels and stays in the second-level cache, while strips of a pass over it from
 * the first-level cache; they are packed as well, since rows a power of 2 apart compete for the same cache
 * lines. The tile of c stays in registers. Design: doi:10.1145/1356052.1356053.
 *
 * An element is the sum of the parts of BLOCK_DEPTH products, each added in order, onto the bias; so it does
 * not depend on m, n or the other elements. MKL has the same depth on AVX2 and on all AMD processors: at most
 * sizes its order is the same, and so are PyTorch's bits. With AVX-512 on Intel MKL's depth is 384, and its
 * errors are larger by two fifths. */
#ifndef HEED_VECTOR_BLOCKS_H
#define HEED_VECTOR_BLOCKS_H

#include "elementary.h" /* V_INLINE, V_UNROLL */

enum {
  GEMM_SHALLOW = 16,

  /* The tile fills the registers: 24 vectors of 32, or 12 of 16. On Intel, which reads the second-level cache
   * at half of AMD's rate, 12 × 2 is faster than 6 × 4, since less of b is read. */
  BLOCK_ROWS = V_LANES == 16 ? 12 : 6,
  BLOCK_VECTORS = V_LANES == 4 ? 4 : 2,
  BLOCK_COLUMNS = BLOCK_VECTORS * V_LANES,
  BLOCK_STRIP = (BLOCK_ROWS + V_LANES - 1) / V_LANES * V_LANES, /* floats of a strip per column of a */
  BLOCK_DEPTH = 192,
  BLOCK_PACKS = 4, /* steps that pack a block, whose first use faults up to 190 pages in */
  BLOCK_WIDE = V_LANES == 16 ? 1024 : 512, /* second-level caches: 1 MiB with AVX-512, half of it without */
  BLOCK_FROM_SIDE = 192,                   /* fewest rows and columns */
  BLOCK_FROM_WORK = 1 << 25,               /* and multiply-adds at which blocks are faster */
  BLOCK_AHEAD = 16 * BLOCK_COLUMNS,        /* prefetch distance in a panel, in floats */
};

/* The size of a part when `whole` is divided into as few, as equal parts of at most `most` as possible. */
static inline size_t gemm_part(size_t whole, size_t most) {
  const size_t parts = (whole + most - 1) / most;
  return parts ? (whole + parts - 1) / parts : most;
}

/* ---- Packing ---- */

/* out [k, columns] = b [k, columns]. Rows of out are `stride` apart and whole vectors; elements beyond
 * `columns` are unspecified. */
V_INLINE void gemm_pack_panel(float *out, const size_t stride, size_t k, size_t columns, const float *b,
                              ptrdiff_t b_row, ptrdiff_t b_column) {
  if (b_column == 1) {
    const size_t whole = columns / V_LANES * V_LANES;
    const vmask edge = v_first(columns - whole);
    for (size_t p = 0; p < k; p++, b += b_row, out += stride) {
      size_t j = 0;
      for (; j < whole; j += V_LANES) v_store(out + j, v_load(b + j));
      if (j < columns) v_store(out + j, v_load_masked(b + j, edge));
    }
  } else if (b_row == 1 && k * columns >= V_LANES * V_LANES / 4) {
    for (size_t j = 0; j < columns; j += V_LANES, out += V_LANES) {
      const float *from[V_LANES];
      float *to = out;
      for (size_t i = 0; i < V_LANES; i++)
        from[i] = b + (ptrdiff_t)heed__min_size(j + i, columns - 1) * b_column;
      size_t p = 0;
      for (; p + V_LANES <= k; p += V_LANES) {
        vfloat r[V_LANES];
        V_UNROLL
        for (int i = 0; i < V_LANES; i++) r[i] = v_load(from[i] + p);
        v_transpose(r);
        V_UNROLL
        for (int i = 0; i < V_LANES; i++, to += stride) v_store(to, r[i]);
      }
      if (p < k) {
        const vmask rest = v_first(k - p);
        vfloat r[V_LANES];
        V_UNROLL
        for (int i = 0; i < V_LANES; i++) r[i] = v_load_masked(from[i] + p, rest);
        v_transpose(r);
        for (size_t i = 0; p + i < k; i++, to += stride) v_store(to, r[i]);
      }
    }
  } else {
    for (size_t p = 0; p < k; p++, b += b_row, out += stride)
      for (size_t j = 0; j < columns; j++) out[j] = b[(ptrdiff_t)j * b_column];
  }
}

static void block_pack_strip(float *out, size_t k, size_t rows, const float *a, ptrdiff_t a_row,
                             ptrdiff_t a_column) {
  gemm_pack_panel(out, BLOCK_STRIP, k, rows, a, a_column, a_row);
}
/* Packs one of BLOCK_PACKS parts of a block: a range of panels; for a row-major b a range of rows in all
 * whole panels, so that memory is read in long runs, and with the last part the panel that is not whole. */
static void block_pack(float *out, size_t k, size_t columns, const float *b, ptrdiff_t b_row,
                       ptrdiff_t b_column, size_t part) {
  const size_t panels = (columns + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
  const size_t whole = b_column == 1 ? columns / BLOCK_COLUMNS * BLOCK_COLUMNS : 0;
  const size_t begin = !whole                    ? panels * part / BLOCK_PACKS * BLOCK_COLUMNS
                       : part == BLOCK_PACKS - 1 ? whole
                                                 : columns;
  const size_t end = whole ? columns : panels * (part + 1) / BLOCK_PACKS * BLOCK_COLUMNS;
  for (size_t p = k * part / BLOCK_PACKS; whole && p < k * (part + 1) / BLOCK_PACKS; p++) {
    const float *from = b + (ptrdiff_t)p * b_row;
    float *to = out + p * BLOCK_COLUMNS;
    for (size_t j = 0; j < whole; j += BLOCK_COLUMNS, from += BLOCK_COLUMNS, to += k * BLOCK_COLUMNS) {
      V_UNROLL
      for (int v = 0; v < BLOCK_VECTORS; v++) v_store(to + v * V_LANES, v_load(from + v * V_LANES));
    }
  }
  for (size_t j = begin; j < heed__min_size(end, columns); j += BLOCK_COLUMNS)
    gemm_pack_panel(out + j * k, BLOCK_COLUMNS, k, heed__min_size(columns - j, BLOCK_COLUMNS),
                    b + (ptrdiff_t)j * b_column, b_row, b_column);
}

/* ---- Tiles ---- */

/* What all tiles of a block share. The sum over `depth` is added to `add`: the bias, the earlier blocks' sum
 * in c, or nothing (NULL). */
typedef struct block_step {
  size_t depth;
  ptrdiff_t c_row, add_row;
} block_step;

/* A tile of `rows` rows, of which the first `there` exist. */
V_INLINE void block_tile_of(const int rows, size_t there, const block_step *s, const float *a, const float *b,
                            float *c, const float *add, size_t columns) {
  vfloat sum[BLOCK_ROWS][BLOCK_VECTORS];
  V_UNROLL
  for (int i = 0; i < rows; i++) {
    V_UNROLL
    for (int v = 0; v < BLOCK_VECTORS; v++) sum[i][v] = v_zero();
  }
  TILE_TURNS
  for (size_t p = s->depth; p > 0; p--, a += BLOCK_STRIP, b += BLOCK_COLUMNS) {
    vfloat y[BLOCK_VECTORS];
    V_UNROLL
    for (int v = 0; v < BLOCK_VECTORS; v++) {
      y[v] = v_load(b + v * V_LANES);
      if (v * V_LANES % 16 == 0) __builtin_prefetch(b + BLOCK_AHEAD + v * V_LANES); /* once per cache line */
    }
    V_UNROLL
    for (int i = 0; i < rows; i++) {
      const vfloat x = v_set(a[i]);
      V_UNROLL
      for (int v = 0; v < BLOCK_VECTORS; v++) sum[i][v] = v_fma(x, y[v], sum[i][v]);
    }
  }
  if ((int)there == rows && columns == BLOCK_COLUMNS) {
    if (add) {
      V_UNROLL
      for (int i = 0; i < rows; i++) {
        V_UNROLL
        for (int v = 0; v < BLOCK_VECTORS; v++)
          sum[i][v] = v_add(sum[i][v], v_load(add + i * s->add_row + v * V_LANES));
      }
    }
    V_UNROLL
    for (int i = 0; i < rows; i++) {
      V_UNROLL
      for (int v = 0; v < BLOCK_VECTORS; v++) v_store(c + i * s->c_row + v * V_LANES, sum[i][v]);
    }
    return;
  }
  float tile[BLOCK_ROWS * BLOCK_COLUMNS];
  V_UNROLL
  for (int i = 0; i < rows; i++) {
    V_UNROLL
    for (int v = 0; v < BLOCK_VECTORS; v++) v_store(tile + i * BLOCK_COLUMNS + v * V_LANES, sum[i][v]);
  }
  for (ptrdiff_t i = 0; i < (ptrdiff_t)there; i++)
    for (ptrdiff_t j = 0; j < (ptrdiff_t)columns; j++) {
      const float x = tile[i * BLOCK_COLUMNS + j];
      c[i * s->c_row + j] = add ? x + add[i * s->add_row + j] : x;
    }
}

static void block_tile(size_t rows, const block_step *s, const float *a, const float *b, float *c,
                       const float *add, size_t columns) {
  if (rows > BLOCK_ROWS / 2)
    block_tile_of(BLOCK_ROWS, rows, s, a, b, c, add, columns);
  else
    block_tile_of(BLOCK_ROWS / 2, rows, s, a, b, c, add, columns);
}

/* ---- Blocks ---- */

static size_t block_whole_panels(size_t columns) {
  return (columns + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS * BLOCK_COLUMNS;
}

/* The product of strip i of a with the packed block. */
static void block_multiply(size_t m, size_t n, size_t i, const block_step *s, const float *a, ptrdiff_t a_row,
                           ptrdiff_t a_column, float *strip, const float *block, float *c, const float *add) {
  const size_t rows = heed__min_size(m - i * BLOCK_ROWS, BLOCK_ROWS);
  const ptrdiff_t first = (ptrdiff_t)(i * BLOCK_ROWS);
  c += first * s->c_row;
  if (add) add += first * s->add_row;
  block_pack_strip(strip, s->depth, rows, a + first * a_row, a_row, a_column);
  for (size_t j = 0; j < n; j += BLOCK_COLUMNS)
    block_tile(rows, s, strip, block + j * s->depth, c + j, add ? add + j : NULL,
               heed__min_size(n - j, BLOCK_COLUMNS));
}

/* The scratch holds a strip and a block of b, which must survive while the product is interrupted. The first
 * BLOCK_PACKS steps of a block pack it, each further step multiplies a strip. */
static bool gemm_in_blocks(size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, ptrdiff_t a_column,
                           const float *b, ptrdiff_t b_row, ptrdiff_t b_column, const float *bias, float *c,
                           ptrdiff_t c_row, float *scratch, const heed__pace *pace, int64_t *position) {
  const size_t most = block_whole_panels(gemm_part(n, BLOCK_WIDE)),
               depths = (k + BLOCK_DEPTH - 1) / BLOCK_DEPTH;
  const size_t steps = BLOCK_PACKS + (m + BLOCK_ROWS - 1) / BLOCK_ROWS,
               end = (n + most - 1) / most * depths * steps;
  float *strip = scratch, *block = scratch + BLOCK_STRIP * heed__min_size(k, BLOCK_DEPTH);
  for (size_t at = position ? (size_t)*position : 0; at < end;) {
    const size_t step = at % steps, j = at / steps / depths * most, p = at / steps % depths * BLOCK_DEPTH;
    const size_t columns = heed__min_size(n - j, most);
    const block_step s = {heed__min_size(k - p, BLOCK_DEPTH), c_row, p ? c_row : 0};
    if (step < BLOCK_PACKS)
      block_pack(block, s.depth, columns, b + (ptrdiff_t)p * b_row + (ptrdiff_t)j * b_column, b_row, b_column,
                 step);
    else
      block_multiply(m, columns, step - BLOCK_PACKS, &s, a + (ptrdiff_t)p * a_column, a_row, a_column, strip,
                     block, c + j,
                     p      ? c + j
                     : bias ? bias + j
                            : NULL);
    if (++at < end && heed__should_yield(pace)) {
      *position = (int64_t)at;
      return false;
    }
  }
  return true;
}

/* With few rows packing b costs more than it saves, with a small k packing a. Sized so that it suffices for a
 * part of the columns too, whose blocks may be wider than those of all columns. */
size_t KERNEL(gemm_scratch)(size_t m, size_t n, size_t k) {
  const double work = (double)m * (double)n * (double)k;
  if (heed__min_size(m, n) < BLOCK_FROM_SIDE || k <= GEMM_SHALLOW || work < BLOCK_FROM_WORK) return 0;
  return heed__min_size(k, BLOCK_DEPTH) * (BLOCK_STRIP + heed__min_size(block_whole_panels(n), BLOCK_WIDE));
}

#endif
