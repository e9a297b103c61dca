/* Products in fewer bits (kernels.h) with instructions that multiply and add the bytes or bfloat16 pairs of
 * each lane. The table's file defines V_HALVES if it has those of pairs, and REDUCED_TILES if the products of
 * tiles are in reduced_tiles.h.
 *
 * x is packed in vectors of 16 rows: lane i of word p of a vector has 4 bytes or 2 halves of row i. The
 * weight is unpacked, REDUCED_GROUP rows at a time, line by line: a line of each row, then the next. A tile
 * multiplies some rows of the weight, a word of which is broadcast, with up to 4 vectors of x; its sums are
 * those of the transposed product, and are transposed when they are written. */
#ifndef HEED_VECTOR_REDUCED_H
#define HEED_VECTOR_REDUCED_H

#include "reduced_few.h"

enum {
  REDUCED_LANES = V_LANES, /* rows of x in a vector */
  REDUCED_VECTORS = 4,     /* of x in a panel */
  REDUCED_GROUP = 96,      /* rows of the weight that are unpacked together */
  REDUCED_WORD = 4,        /* bytes */
  REDUCED_LINE = 64,       /* bytes of a vector */
  REDUCED_AHEAD = 4096,    /* prefetch distance in a weight in bytes; rows usually follow each other */
  REDUCED_ROWS = HEED__REDUCED_ROWS,
};
_Static_assert(REDUCED_LANES *REDUCED_VECTORS == REDUCED_ROWS && REDUCED_LANES == 16, "16 lanes");

/* The packed form of a product. Bytes have the elements of a block in one line of a row. A group is the words
 * that share a scale of the weight. */
typedef struct reduced_form {
  bool bytes, minimum; /* minimum: the weight's groups have one, too */
  size_t depth;        /* k in words, whole lines */
  size_t blocks;       /* scales of a row of x; 0 with halves */
  size_t group;        /* words of a group */
  size_t groups;       /* of a row; 0 with halves */
  size_t vector; /* bytes of a packed vector of x: words, then of 16 rows [blocks] scales, [groups] starts
                    and, with minimum, [groups] scaled sums */
} reduced_form;

/* Whether a weight of a blocked dtype is multiplied by integers: AMX is as fast with halves. */
V_INLINE bool reduced_by_groups(heed_dtype dtype) {
#if defined(REDUCED_TILES)
  return (void)dtype, false;
#else
  return heed__is_blocked(dtype);
#endif
}

static reduced_form reduced_form_of(const heed__lowp_task *t) {
  const heed_dtype dtype = t->dtype;
  const bool bytes = dtype == HEED_INT8 || reduced_by_groups(dtype);
  const bool minimum =
      bytes && (dtype == HEED_Q4_1 || dtype == HEED_Q5_1 || dtype == HEED_Q4_K || dtype == HEED_Q5_K);
  const size_t in_line = bytes ? 64 : 32, lines = (t->k + in_line - 1) / in_line;
  const size_t blocks = bytes ? lines : 0, group = dtype == HEED_INT8 ? 16 : dtype == HEED_Q6_K ? 4 : 8;
  const size_t groups = blocks * (REDUCED_LANES / group), sides = blocks + (minimum ? 2 : 1) * groups;
  return (reduced_form){bytes,
                        minimum,
                        lines * REDUCED_LANES,
                        blocks,
                        group,
                        groups,
                        (lines * REDUCED_LANES + sides) * REDUCED_LINE};
}

/* Scratch: the unpacked rows, then [REDUCED_GROUP, groups] scales and, with minimum, negative minima. */
static size_t reduced_size(const heed__lowp_task *t, size_t *scratch_bytes) {
  if (few_goes(t)) return few_size(t, scratch_bytes);
  const reduced_form f = reduced_form_of(t);
  *scratch_bytes = REDUCED_GROUP * (f.depth * REDUCED_WORD + (f.minimum ? 2 : 1) * f.groups * sizeof(float));
#if !defined(V_HALVES)
  if (!f.bytes) return 0;
#endif
  if (t->m < FEW_BELOW || t->k < REDUCED_LINE) return 0;
  return (t->m + REDUCED_LANES - 1) / REDUCED_LANES * f.vector;
}

/* ---- Packing ---- */

/* What follows the words of a line: 16 rows with these scales. */
static void reduced_pack_side(const reduced_form *f, char *side, size_t line,
                              const vfloat words[REDUCED_LANES], vfloat scale) {
  v_store_words(side + line * REDUCED_LINE, v_bits(scale));
  for (size_t i = 0; i < REDUCED_LANES; i += f->group) {
    char *at = side + (f->blocks + (line * REDUCED_LANES + i) / f->group) * REDUCED_LINE;
    vint sum = v_set_int(0);
    for (size_t k = i; k < i + f->group; k++) sum = v_dot_bytes(sum, v_set_int(0x01010101), v_bits(words[k]));
    v_store_words(at, v_sub_int(v_set_int(0), v_shift_left(sum, 7)));
    if (f->minimum) v_store_words(at + f->groups * REDUCED_LINE, v_bits(v_mul(v_to_float(sum), scale)));
  }
}

static void reduced_pack_vector(const heed__lowp_task *t, const reduced_form *f, char *out, size_t row,
                                size_t rows) {
  char *const side = out + f->depth * REDUCED_LINE;
  const size_t in_line = f->bytes ? 64 : 32;
  for (size_t line = 0; line * in_line < t->k; line++) {
    const size_t p = line * in_line, n = heed__min_size(t->k - p, in_line);
    float scale[REDUCED_LANES] = {0};
    vfloat r[REDUCED_LANES];
    for (size_t i = 0; i < REDUCED_LANES; i++) {
      const float *x = t->x + (ptrdiff_t)(row + i) * t->x_row + p;
      if (i >= rows) {
        r[i] = v_zero();
      } else if (f->bytes) {
        r[i] = reduced_round_bytes(x, n, &scale[i]);
      } else {
#if defined(V_HALVES)
        vfloat y[2];
        reduced_load(y, 2, x, n);
        r[i] = v_from_bits(v_round_halves(y[0], y[1]));
#endif
      }
    }
    v_transpose(r);
    for (size_t i = 0; i < REDUCED_LANES; i++)
      v_store_words(out + (line * REDUCED_LANES + i) * REDUCED_LINE, v_bits(r[i]));
    if (f->bytes) reduced_pack_side(f, side, line, r, v_load(scale));
  }
}

static void reduced_pack_rows(const heed__reduced_task *task) {
  if (few_goes(&task->whole)) {
    few_pack(task);
    return;
  }
  const reduced_form f = reduced_form_of(&task->whole);
  for (size_t i = task->row; i < task->row + task->rows; i += REDUCED_LANES)
    reduced_pack_vector(&task->whole, &f, (char *)task->packed + i / REDUCED_LANES * f.vector, i,
                        heed__min_size(task->row + task->rows - i, REDUCED_LANES));
}

/* ---- Unpacking the weight ---- */

/* A line of row j, from element p on, of which n exist. */
V_INLINE vint reduced_line(const heed_dtype dtype, const char *row, size_t p, size_t n) {
  const size_t bytes = heed__element_bytes(dtype);
  if (dtype == HEED_INT8) return v_flip_bytes(v_load_first_bytes(row + p, n));
  if (dtype == HEED_BFLOAT16) return v_load_first_bytes(row + p * bytes, n * bytes);
#if defined(V_HALVES)
  vfloat x[2];
  if (heed__is_blocked(dtype)) { /* whole lines, of a group each */
    const size_t elements = (size_t)heed__block_elements(dtype);
    const uint8_t *block = (const uint8_t *)row + p / elements * heed__block_bytes(dtype);
    for (size_t v = 0; v < 2; v++)
      x[v] = blocks_vector(dtype, block, p % elements / BLOCKS_GROUP, v * V_LANES);
  } else if (dtype == HEED_FLOAT32) {
    reduced_load(x, 2, (const float *)(const void *)row + p, n);
  } else {
    for (size_t v = 0; v < 2; v++) {
      const size_t first = v * V_LANES, rest = n > first ? n - first : 0;
      const char *at = row + (p + first) * bytes;
      x[v] = rest >= V_LANES ? load_stored(at, dtype)
             : rest > 0      ? load_stored_first(at, dtype, rest)
                             : v_zero();
    }
  }
  return v_round_halves(x[0], x[1]);
#else
  return v_set_int(0);
#endif
}

#if !defined(REDUCED_TILES)
/* Row j of a blocked weight as bytes with scales and minima of its groups. */
V_INLINE void reduced_unpack_groups(const heed_dtype dtype, const heed__lowp_task *t, const reduced_form *f,
                                    char *out, size_t column, size_t j) {
  const size_t elements = (size_t)heed__block_elements(dtype), in_group = dtype == HEED_Q6_K ? 16 : 32;
  float *scale = (float *)(void *)(out + REDUCED_GROUP * f->depth * REDUCED_WORD) + j * f->groups;
  float *const minimum = scale + REDUCED_GROUP * f->groups;
  const uint8_t *row = (const uint8_t *)t->w + heed__row_bytes(dtype, (ptrdiff_t)(column + j) * t->w_row);
  for (size_t p = 0; p < f->depth * REDUCED_WORD; p += BLOCKS_GROUP) {
    char *to = out + (p / 64 * REDUCED_GROUP + j) * REDUCED_LINE + p % 64;
    const uint8_t *block = row + p / elements * heed__block_bytes(dtype);
    const size_t g = p % elements / BLOCKS_GROUP;
    float factor[2] = {0, 0}, least = 0;
    if (p < t->k) blocks_factors(dtype, block, g, factor, &least);
    for (size_t h = 0; h < 2; h++) {
      blocks_bytes value = {0};
      if (p < t->k) value = blocks_integers(dtype, block, g, h);
      value ^= 0x80;
      memcpy(to + 16 * h, &value, sizeof value);
    }
    for (size_t i = 0; i < BLOCKS_GROUP / in_group; i++) scale[p / in_group + i] = factor[i];
    if (f->minimum) minimum[p / in_group] = -least;
  }
}
#endif

V_INLINE void reduced_unpack_of(const heed_dtype dtype, const heed__lowp_task *t, const reduced_form *f,
                                char *out, size_t column, size_t columns) {
  float *const scale = (float *)(void *)(out + REDUCED_GROUP * f->depth * REDUCED_WORD);
  const size_t in_line = dtype == HEED_INT8 ? 64 : 32;
  for (size_t j = 0; j < columns; j++) {
    const char *row = (const char *)t->w + heed__row_bytes(dtype, (ptrdiff_t)(column + j) * t->w_row);
    char *to = out + j * REDUCED_LINE;
    size_t p = 0;
#if !defined(REDUCED_TILES)
    if (heed__is_blocked(dtype)) {
      reduced_unpack_groups(dtype, t, f, out, column, j);
      continue;
    }
#endif
    for (; p + in_line <= t->k; p += in_line, to += REDUCED_GROUP * REDUCED_LINE) {
      __builtin_prefetch(row + heed__row_bytes(dtype, (int64_t)p) + REDUCED_AHEAD);
      v_store_words(to, reduced_line(dtype, row, p, in_line));
    }
    if (p < t->k) v_store_words(to, reduced_line(dtype, row, p, t->k - p));
    if (f->groups > 0)
      memcpy(scale + j * f->groups, t->scale + (ptrdiff_t)(column + j) * t->scale_row,
             f->groups * sizeof *scale);
  }
}

/* Rows that do not exist are zeros, with scale 0. */
static void reduced_unpack(const heed__lowp_task *t, const reduced_form *f, char *out, size_t column,
                           size_t columns) {
  const size_t row = f->depth * REDUCED_WORD, rest = REDUCED_GROUP - columns;
#define X(name, ...)                                                                                         \
  case HEED_##name: reduced_unpack_of(HEED_##name, t, f, out, column, columns); break;
  switch (t->dtype) {
    X(INT8)
    X(BFLOAT16)
#if defined(V_HALVES)
    X(FLOAT16)
    X(FLOAT32)
#endif
    HEED_BLOCK_DTYPE_LIST(X)
  default: break;
  }
#undef X
  for (size_t line = 0; rest > 0 && line < f->depth / REDUCED_LANES; line++)
    memset(out + (line * REDUCED_GROUP + columns) * REDUCED_LINE, 0, rest * REDUCED_LINE);
  for (size_t side = 0; side < (f->groups > 0) + (size_t)f->minimum; side++)
    memset(out + REDUCED_GROUP * row + (side * REDUCED_GROUP + columns) * f->groups * sizeof(float), 0,
           rest * f->groups * sizeof(float));
}

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

enum { REDUCED_PART = 64 }; /* words of the depth whose panel stays in the first-level cache */

V_INLINE void reduced_bytes_tile(const reduced_step *s, size_t row, const int rows, const int vectors,
                                 const size_t group) {
  const reduced_form *f = s->f;
  const float *const minimum = s->scale + REDUCED_GROUP * f->groups;
  vfloat sum[12][REDUCED_VECTORS];
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++)
      sum[r][v] = v_load(s->sum + (row + (size_t)r) * REDUCED_ROWS + v * REDUCED_LANES);
  }
  for (size_t first = s->from; first < s->to; first += group) {
    const size_t block = first / REDUCED_LANES, number = first / group;
    const char *w =
                   s->w + (block * REDUCED_GROUP + row) * REDUCED_LINE + first % REDUCED_LANES * REDUCED_WORD,
               *x = s->x + first * REDUCED_LINE;
    const char *side = s->x + f->depth * REDUCED_LINE, *start = side + (f->blocks + number) * REDUCED_LINE;
    vint part[12][REDUCED_VECTORS];
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      const vint begin = v_load_words(start + (size_t)v * f->vector);
      V_UNROLL
      for (int r = 0; r < rows; r++) part[r][v] = begin;
    }
    for (size_t word = 0; word < group; word++) {
      vint y[REDUCED_VECTORS];
      V_UNROLL
      for (int v = 0; v < vectors; v++) y[v] = v_load_words(x + (size_t)v * f->vector + word * REDUCED_LINE);
      V_UNROLL
      for (int r = 0; r < rows; r++) {
        const vint a = v_set_word(w + (size_t)r * REDUCED_LINE + word * REDUCED_WORD);
        V_UNROLL
        for (int v = 0; v < vectors; v++) part[r][v] = v_dot_bytes(part[r][v], a, y[v]);
      }
    }
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      const vfloat scale = v_from_bits(v_load_words(side + block * REDUCED_LINE + (size_t)v * f->vector));
      V_UNROLL
      for (int r = 0; r < rows; r++)
        sum[r][v] = v_fma(v_mul(v_to_float(part[r][v]), scale),
                          v_set(s->scale[(row + (size_t)r) * f->groups + number]), sum[r][v]);
    }
    if (group != 8 || !f->minimum) continue;
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      const vfloat total =
          v_from_bits(v_load_words(start + f->groups * REDUCED_LINE + (size_t)v * f->vector));
      V_UNROLL
      for (int r = 0; r < rows; r++)
        sum[r][v] = v_fma(total, v_set(minimum[(row + (size_t)r) * f->groups + number]), sum[r][v]);
    }
  }
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++)
      v_store(s->sum + (row + (size_t)r) * REDUCED_ROWS + v * REDUCED_LANES, sum[r][v]);
  }
}

#if defined(V_HALVES)
V_INLINE void reduced_halves_tile(const reduced_step *s, size_t row, const int rows, const int vectors) {
  const reduced_form *f = s->f;
  const char *w = s->w + (s->from / REDUCED_LANES * REDUCED_GROUP + row) * REDUCED_LINE;
  const char *x = s->x + s->from * REDUCED_LINE;
  vfloat sum[24][REDUCED_VECTORS];
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++)
      sum[r][v] = v_load(s->sum + (row + (size_t)r) * REDUCED_ROWS + v * REDUCED_LANES);
  }
  for (size_t line = s->from; line < s->to; line += REDUCED_LANES, w += REDUCED_GROUP * REDUCED_LINE) {
    for (size_t word = 0; word < REDUCED_LANES; word++, x += REDUCED_LINE) {
      vint y[REDUCED_VECTORS];
      V_UNROLL
      for (int v = 0; v < vectors; v++) y[v] = v_load_words(x + (size_t)v * f->vector);
      V_UNROLL
      for (int r = 0; r < rows; r++) {
        const vint a = v_set_word(w + (size_t)r * REDUCED_LINE + word * REDUCED_WORD);
        V_UNROLL
        for (int v = 0; v < vectors; v++) sum[r][v] = v_dot_halves(sum[r][v], a, y[v]);
      }
    }
  }
  V_UNROLL
  for (int r = 0; r < rows; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++)
      v_store(s->sum + (row + (size_t)r) * REDUCED_ROWS + v * REDUCED_LANES, sum[r][v]);
  }
}
#endif

/* All rows of the group, with a tile for each number of vectors that fills the registers. */
#define REDUCED_ROWS_BY(tile, height, width, ...)                                                            \
  case width:                                                                                                \
    for (size_t row = 0; row < s->rows; row += (height)) tile(s, row, height, width __VA_ARGS__);            \
    break;
#define REDUCED_BYTES_BY(words)                                                                              \
  switch (vectors) {                                                                                         \
    REDUCED_ROWS_BY(reduced_bytes_tile, 12, 1, , words)                                                      \
    REDUCED_ROWS_BY(reduced_bytes_tile, 6, 2, , words)                                                       \
    REDUCED_ROWS_BY(reduced_bytes_tile, 4, 3, , words)                                                       \
    REDUCED_ROWS_BY(reduced_bytes_tile, 3, 4, , words)                                                       \
  }
static __attribute__((noinline)) void reduced_bytes_4(const reduced_step *s, size_t vectors) {
  REDUCED_BYTES_BY(4)
}
static __attribute__((noinline)) void reduced_bytes_8(const reduced_step *s, size_t vectors) {
  REDUCED_BYTES_BY(8)
}
static __attribute__((noinline)) void reduced_bytes_16(const reduced_step *s, size_t vectors) {
  REDUCED_BYTES_BY(16)
}
#if defined(V_HALVES)
static __attribute__((noinline)) void reduced_halves(const reduced_step *s, size_t vectors) {
  switch (vectors) {
    REDUCED_ROWS_BY(reduced_halves_tile, 24, 1, )
    REDUCED_ROWS_BY(reduced_halves_tile, 12, 2, )
    REDUCED_ROWS_BY(reduced_halves_tile, 8, 3, )
    REDUCED_ROWS_BY(reduced_halves_tile, 6, 4, )
  }
}
#endif

static void reduced_pass(const reduced_step *s, size_t vectors) {
#if defined(V_HALVES)
  if (!s->f->bytes) {
    reduced_halves(s, vectors);
    return;
  }
#endif
  (s->f->group == 4 ? reduced_bytes_4 : s->f->group == 8 ? reduced_bytes_8 : reduced_bytes_16)(s, vectors);
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
  for (size_t i = 0; i < rows; i += REDUCED_LANES) {
    for (size_t j = 0; j < columns; j += V_LANES) {
      const size_t height = heed__min_size(rows - i, REDUCED_LANES);
      const vmask some = v_first(heed__min_size(columns - j, V_LANES));
      const vfloat bias = t->bias ? v_load_masked(t->bias + column + j, some) : v_zero();
      float *c = t->c + (ptrdiff_t)(row + i) * t->c_row + (ptrdiff_t)(column + j);
      vfloat r[V_LANES];
      for (size_t l = 0; l < V_LANES; l++) r[l] = v_load(sum + (j + l) * REDUCED_ROWS + i);
      v_transpose(r);
      for (size_t l = 0; l < height; l++)
        v_store_masked(c + (ptrdiff_t)l * t->c_row, t->bias ? v_add(r[l], bias) : r[l], some);
    }
  }
}

/* A step is a group of columns with a panel of rows. */
static bool reduced_multiply(const heed__reduced_task *task, const heed__pace *pace, int64_t *position) {
  if (few_goes(&task->whole)) return few_multiply(task, pace, position);
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
                      .x = (const char *)task->packed + (task->row + i) / REDUCED_LANES * f.vector,
                      .w = w,
                      .scale = (const float *)(const void *)(w + REDUCED_GROUP * f.depth * REDUCED_WORD),
                      .sum = sum,
                      .rows = columns};
    if (f.bytes || !REDUCED_STARTS) memset(sum, 0, sizeof sum);
    for (; s.from < f.depth; s.from = s.to) {
      s.to = heed__min_size(f.depth, s.from + REDUCED_PART);
      reduced_pass(&s, (rows + REDUCED_LANES - 1) / REDUCED_LANES);
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
