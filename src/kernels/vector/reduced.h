/* Products in fewer bits (kernels.h) with instructions that multiply and add the bytes or bfloat16 pairs of
 * each lane. The table's file defines V_HALVES if it has those of pairs, and REDUCED_TILES if the products of
 * tiles are in reduced_tiles.h.
 *
 * A tile multiplies some rows of the weight, a word of which is broadcast, with some vectors of x; its sums
 * are those of the transposed product, and are transposed when they are written. */
#ifndef HEED_VECTOR_REDUCED_H
#define HEED_VECTOR_REDUCED_H

#include "reduced_operands.h"

/* ---- Tiles ---- */

/* The operands of a group's rows with a panel, words from…to-1 of the depth. sum [REDUCED_GROUP,
 * REDUCED_ROWS] is added to. */
typedef struct reduced_step {
  const reduced_form *f;
  const char *x; /* the first of the panel's vectors */
  const char *w;
  const float *scale;
  float *sum;
  size_t from, to, rows; /* rows: of w */
} reduced_step;

#if !defined(REDUCED_TILES)

/* Vectors of x in a tile */
#if V_REGISTERS >= 32 && !defined(V_PAIRS)
#define REDUCED_WIDEST 4
#else
#define REDUCED_WIDEST 2
#endif

enum {
  REDUCED_PART = 64, /* words of the depth whose panel stays in the first-level cache */
  REDUCED_SUMS =
      V_REGISTERS >= 32 || V_BYTES_EXCESS > 0 ? 12 : 6, /* of a tile, of integers: beside float32 ones */
  REDUCED_HALF_SUMS = V_REGISTERS >= 32 ? 24 : 8,       /* the same of halves */
};

/* The sums of a tile, loaded or stored */
V_INLINE void reduced_sums(const reduced_step *s, size_t row, const int rows, const int vectors,
                           vfloat sum[][REDUCED_WIDEST], const bool stores) {
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      float *at = s->sum + (row + (size_t)r) * REDUCED_ROWS + v * V_LANES;
      if (stores)
        v_store(at, sum[r][v]);
      else
        sum[r][v] = v_load(at);
    }
  }
}

#if defined(V_PAIRS)
#include "reduced_pairs.h"
#else
/* part += the products of rows of w with vectors of x, `pitch` bytes apart, for so many words */
V_INLINE void reduced_add_bytes(vint part[][REDUCED_WIDEST], const int rows, const int vectors, const char *w,
                                const char *x, size_t pitch, const size_t words, const bool codes) {
  (void)codes; /* without V_CODES */
  for (size_t word = 0; word < words; word++, w += REDUCED_WORD, x += REDUCED_WIDE) {
    vint y[REDUCED_WIDEST];
    V_UNROLL
    for (int v = 0; v < vectors; v++) y[v] = v_load_words(x + (size_t)v * pitch);
    V_UNROLL
    for (int r = 0; r < rows; r++) {
      const vint a = v_set_word(w + r * REDUCED_LINE);
      V_UNROLL
      for (int v = 0; v < vectors; v++)
#if defined(V_CODES)
        part[r][v] = codes ? v_dot_codes(part[r][v], a, y[v]) : v_dot_bytes(part[r][v], a, y[v]);
#else
        part[r][v] = v_dot_bytes(part[r][v], a, y[v]);
#endif
    }
  }
}

#if defined(V_HALVES)
/* The same for a line of halves */
V_INLINE void reduced_add_halves(vfloat sum[][REDUCED_WIDEST], const int rows, const int vectors,
                                 const char *w, const char *x, size_t pitch) {
  for (size_t word = 0; word < REDUCED_WORDS; word++, w += REDUCED_WORD, x += REDUCED_WIDE) {
    vint y[REDUCED_WIDEST];
    V_UNROLL
    for (int v = 0; v < vectors; v++) y[v] = v_load_words(x + (size_t)v * pitch);
    V_UNROLL
    for (int r = 0; r < rows; r++) {
      const vint a = v_set_word(w + r * REDUCED_LINE);
      V_UNROLL
      for (int v = 0; v < vectors; v++) sum[r][v] = v_dot_halves(sum[r][v], a, y[v]);
    }
  }
}
#endif
#endif

V_INLINE void reduced_bytes_tile(const reduced_step *s, size_t row, const int rows, const int vectors,
                                 const size_t group, const bool codes) {
  const reduced_form *f = s->f;
  const float *const minimum = s->scale + REDUCED_GROUP * f->groups;
  vfloat sum[REDUCED_SUMS][REDUCED_WIDEST];
  reduced_sums(s, row, rows, vectors, sum, false);
  for (size_t first = s->from; first < s->to; first += group) {
    const size_t block = first / REDUCED_WORDS, number = first / group;
    const char *w =
                   s->w + (block * REDUCED_GROUP + row) * REDUCED_LINE + first % REDUCED_WORDS * REDUCED_WORD,
               *x = s->x + first * REDUCED_WIDE;
    const char *side = s->x + f->depth * REDUCED_WIDE, *start = side + (f->blocks + number) * REDUCED_WIDE;
    vint part[REDUCED_SUMS][REDUCED_WIDEST];
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      const vint begin = f->starts ? v_load_words(start + (size_t)v * f->vector) : v_set_int(0);
      V_UNROLL
      for (int r = 0; r < rows; r++) part[r][v] = begin;
    }
    reduced_add_bytes(part, rows, vectors, w, x, f->vector, group, codes);
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      const vfloat scale = v_from_bits(v_load_words(side + block * REDUCED_WIDE + (size_t)v * f->vector));
      V_UNROLL
      for (int r = 0; r < rows; r++)
        sum[r][v] = v_fma(v_mul(v_to_float(part[r][v]), scale),
                          v_set(s->scale[(row + (size_t)r) * f->groups + number]), sum[r][v]);
    }
    if (group != 8 || !f->minimum) continue;
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      const vfloat total =
          v_from_bits(v_load_words(start + f->starts * REDUCED_WIDE + (size_t)v * f->vector));
      V_UNROLL
      for (int r = 0; r < rows; r++)
        sum[r][v] = v_fma(total, v_set(minimum[(row + (size_t)r) * f->groups + number]), sum[r][v]);
    }
  }
  reduced_sums(s, row, rows, vectors, sum, true);
}

#if defined(V_HALVES)
V_INLINE void reduced_halves_tile(const reduced_step *s, size_t row, const int rows, const int vectors) {
  const reduced_form *f = s->f;
  const char *w = s->w + (s->from / REDUCED_WORDS * REDUCED_GROUP + row) * REDUCED_LINE;
  const char *x = s->x + s->from * REDUCED_WIDE;
  vfloat sum[REDUCED_HALF_SUMS][REDUCED_WIDEST];
  reduced_sums(s, row, rows, vectors, sum, false);
#if defined(V_PAIRS)
  reduced_turn_halves(sum, rows, vectors, false);
#endif
  for (size_t line = s->from; line < s->to; line += REDUCED_WORDS) {
    reduced_add_halves(sum, rows, vectors, w, x, f->vector);
    w += REDUCED_GROUP * REDUCED_LINE;
    x += REDUCED_WORDS * REDUCED_WIDE;
  }
#if defined(V_PAIRS)
  reduced_turn_halves(sum, rows, vectors, true);
#endif
  reduced_sums(s, row, rows, vectors, sum, true);
}
#endif

/* All rows of the group, with a tile for each number of vectors that fills the registers. */
#define REDUCED_TILE(tile, sums, width, ...)                                                                 \
  case width:                                                                                                \
    for (size_t row = 0; row < s->rows; row += (sums) / (width))                                             \
      tile(s, row, (sums) / (width), width __VA_ARGS__);                                                     \
    break;
#if REDUCED_WIDEST == 4
#define REDUCED_TILES_OF(tile, sums, ...)                                                                    \
  REDUCED_TILE(tile, sums, 1, __VA_ARGS__)                                                                   \
  REDUCED_TILE(tile, sums, 2, __VA_ARGS__)                                                                   \
  REDUCED_TILE(tile, sums, 3, __VA_ARGS__)                                                                   \
  REDUCED_TILE(tile, sums, 4, __VA_ARGS__)
#else
#define REDUCED_TILES_OF(tile, sums, ...)                                                                    \
  REDUCED_TILE(tile, sums, 1, __VA_ARGS__) REDUCED_TILE(tile, sums, 2, __VA_ARGS__)
#endif
static __attribute__((noinline)) void reduced_bytes_4(const reduced_step *s, size_t vectors) {
  switch (vectors) { REDUCED_TILES_OF(reduced_bytes_tile, REDUCED_SUMS, , 4, true) }
}
static __attribute__((noinline)) void reduced_bytes_8(const reduced_step *s, size_t vectors) {
  switch (vectors) { REDUCED_TILES_OF(reduced_bytes_tile, REDUCED_SUMS, , 8, false) }
}
#if defined(V_CODES)
static __attribute__((noinline)) void reduced_codes_8(const reduced_step *s, size_t vectors) {
  switch (vectors) { REDUCED_TILES_OF(reduced_bytes_tile, REDUCED_SUMS, , 8, true) }
}
#define REDUCED_CODES_8 reduced_codes_8
#else
#define REDUCED_CODES_8 reduced_bytes_8
#endif
static __attribute__((noinline)) void reduced_bytes_16(const reduced_step *s, size_t vectors) {
  switch (vectors) { REDUCED_TILES_OF(reduced_bytes_tile, REDUCED_SUMS, , 16, false) }
}
#if defined(V_HALVES)
static __attribute__((noinline)) void reduced_halves(const reduced_step *s, size_t vectors) {
  switch (vectors) { REDUCED_TILES_OF(reduced_halves_tile, REDUCED_HALF_SUMS, ) }
}
#endif

static void reduced_pass(const reduced_step *whole, size_t vectors) {
  reduced_step s = *whole;
  for (size_t v = 0; v < vectors; v += REDUCED_WIDEST) {
    const size_t some = heed__min_size(vectors - v, REDUCED_WIDEST);
    s.x = whole->x + v * s.f->vector;
    s.sum = whole->sum + v * V_LANES;
#if defined(V_HALVES)
    if (!s.f->bytes) {
      reduced_halves(&s, some);
      continue;
    }
#endif
    (s.f->group == 4    ? reduced_bytes_4
     : s.f->group == 16 ? reduced_bytes_16
     : s.f->codes       ? REDUCED_CODES_8
                        : reduced_bytes_8)(&s, some);
  }
}

#define REDUCED_STARTS  0
#define REDUCED_BEGIN() (void)0
#define REDUCED_END()   (void)0
#else
#include "reduced_tiles.h"
#endif

/* ---- The product ---- */

/* c [rows, columns] = sumᵀ + bias */
static void reduced_write(const heed__lowp_task *t, float *sum, size_t row, size_t rows, size_t column,
                          size_t columns) {
  for (size_t i = 0; i < rows; i += V_LANES) {
    for (size_t j = 0; j < columns; j += V_LANES) {
      const size_t height = heed__min_size(rows - i, V_LANES), width = heed__min_size(columns - j, V_LANES);
      const vmask some = v_first(width);
      const float *bias = t->bias ? t->bias + column + j : NULL;
      const vfloat offset = !bias ? v_zero() : width == V_LANES ? v_load(bias) : v_load_masked(bias, some);
      float *c = t->c + (ptrdiff_t)(row + i) * t->c_row + (ptrdiff_t)(column + j);
      vfloat r[V_LANES];
      for (size_t l = 0; l < V_LANES; l++) r[l] = v_load(sum + (j + l) * REDUCED_ROWS + i);
      v_transpose(r);
      for (size_t l = 0; l < height; l++, c += t->c_row) {
        const vfloat y = bias ? v_add(r[l], offset) : r[l];
        if (width == V_LANES)
          v_store(c, y);
        else
          v_store_masked(c, y, some);
      }
    }
  }
}

/* A step is a group of columns with a panel of rows. */
static bool reduced_multiply(const heed__reduced_task *task, const heed__pace *pace, int64_t *position) {
#if defined(V_FEW)
  if (few_goes(&task->whole)) return few_multiply(task, pace, position);
#endif
  _Alignas(HEED__ALIGNMENT) float sum[REDUCED_GROUP * REDUCED_ROWS];
  const heed__lowp_task *t = &task->whole;
  const reduced_form f = reduced_form_of(t);
  const size_t groups = (task->columns + REDUCED_GROUP - 1) / REDUCED_GROUP;
  const size_t panels = (task->rows + REDUCED_ROWS - 1) / REDUCED_ROWS;
  char *const w = task->scratch;
  REDUCED_BEGIN();
  for (size_t at = position ? (size_t)*position : 0; at < groups * panels; at++) {
    const size_t j = at / panels * REDUCED_GROUP, i = at % panels * REDUCED_ROWS;
    const size_t columns = heed__min_size(task->columns - j, REDUCED_GROUP);
    const size_t rows = heed__min_size(task->rows - i, REDUCED_ROWS);
    if (i == 0) reduced_unpack(t, &f, w, task->column + j, columns);
    reduced_step s = {.f = &f,
                      .x = (const char *)task->packed + (task->row + i) / V_LANES * f.vector,
                      .w = w,
                      .scale = (const float *)(const void *)(w + REDUCED_GROUP * f.depth * REDUCED_WORD),
                      .sum = sum,
                      .rows = columns};
    if (f.bytes || !REDUCED_STARTS) memset(sum, 0, sizeof sum);
    for (; s.from < f.depth; s.from = s.to) {
      s.to = heed__min_size(f.depth, s.from + REDUCED_PART);
      reduced_pass(&s, (rows + V_LANES - 1) / V_LANES);
    }
    reduced_write(t, sum, task->row + i, rows, task->column + j, columns);
    if (at + 1 < groups * panels && heed__should_yield(pace)) {
      *position = (int64_t)at + 1;
      REDUCED_END();
      return false;
    }
  }
  REDUCED_END();
  return true;
}

#endif
