/* The operands of products in fewer bits (kernels.h), in the form that the tiles of reduced.h read: integers
 * or bfloat16 pairs, of which a lane has a word, 4 bytes.
 *
 * x is packed in vectors of V_LANES rows: lane i of word p of a vector has 4 bytes or 2 halves of row i; with
 * V_PAIRS, which has two words of two rows in a vector, words 2p and 2p + 1 are mixed. The weight is
 * unpacked, REDUCED_GROUP rows at a time, line by line: a line of each row, then the next. */
#ifndef HEED_VECTOR_REDUCED_OPERANDS_H
#define HEED_VECTOR_REDUCED_OPERANDS_H

#include "reduced_round.h"
#if defined(V_FEW)
#include "reduced_few.h"
#endif

enum {
  REDUCED_ROWS = HEED__REDUCED_ROWS,        /* of x in a panel */
  REDUCED_VECTORS = REDUCED_ROWS / V_LANES, /* of these rows */
  REDUCED_GROUP = 96,                       /* rows of the weight that are unpacked together */
  REDUCED_WORDS = REDUCED_LINE / REDUCED_WORD,
  REDUCED_AHEAD = 4096, /* prefetch distance in a weight in bytes; rows usually follow each other */
};

/* The packed form of a product. A group is the words that share a scale of the weight. */
typedef struct reduced_form {
  bool bytes, minimum; /* integers; the weight's groups have a minimum, too */
  size_t depth;        /* k in words, whole lines */
  size_t blocks;       /* scales of a row of x; 0 with halves */
  size_t group;        /* words of a group */
  size_t groups;       /* of a row; 0 with halves */
  bool codes;          /* the weight's integers plus excess are from 0 to 127 */
  int excess;
  size_t starts, sums; /* numbers of these */
  size_t vector; /* bytes of a packed vector of x: words, then of its rows [blocks] scales, [starts] sums of a
                    group's integers times -excess, and [sums] scaled sums */
} reduced_form;

/* Whether a weight of a blocked dtype is multiplied by integers: AMX is as fast with halves. */
V_INLINE bool reduced_by_groups(heed_dtype dtype) {
#if defined(REDUCED_TILES)
  return (void)dtype, false;
#else
  return heed__is_blocked(dtype);
#endif
}

/* Whether a weight's integers, in blocks of fewer than 8 bits, are multiplied as codes from 0 on */
V_INLINE bool reduced_by_codes(heed_dtype dtype) {
#if defined(V_CODES)
  return heed__is_blocked(dtype) && dtype != HEED_Q8_0;
#else
  return (void)dtype, false;
#endif
}

/* What is added to them */
V_INLINE int reduced_excess(heed_dtype dtype) {
  if (!reduced_by_codes(dtype)) return V_BYTES_EXCESS;
  return dtype == HEED_Q4_0 ? 8 : dtype == HEED_Q5_0 ? 16 : dtype == HEED_Q6_K ? 32 : 0;
}

static reduced_form reduced_form_of(const heed__lowp_task *t) {
  const heed_dtype dtype = t->dtype;
  const bool bytes = dtype == HEED_INT8 || reduced_by_groups(dtype);
  const bool minimum =
      bytes && (dtype == HEED_Q4_1 || dtype == HEED_Q5_1 || dtype == HEED_Q4_K || dtype == HEED_Q5_K);
  const size_t in_line = bytes ? 64 : 32, lines = (t->k + in_line - 1) / in_line;
  const size_t blocks = bytes ? lines : 0, group = dtype == HEED_INT8 ? 16 : dtype == HEED_Q6_K ? 4 : 8;
  const size_t groups = blocks * (REDUCED_WORDS / group);
  const int excess = reduced_excess(dtype);
  const size_t starts = excess ? groups : 0, sums = minimum ? groups : 0;
  return (reduced_form){.bytes = bytes,
                        .minimum = minimum,
                        .codes = reduced_by_codes(dtype),
                        .excess = excess,
                        .depth = lines * REDUCED_WORDS,
                        .blocks = blocks,
                        .group = group,
                        .groups = groups,
                        .starts = starts,
                        .sums = sums,
                        .vector = (lines * REDUCED_WORDS + blocks + starts + sums) * REDUCED_WIDE};
}

/* Scratch: the unpacked rows, then [REDUCED_GROUP, groups] scales and, with minimum, negative minima. */
static size_t reduced_size(const heed__lowp_task *t, size_t *scratch_bytes) {
#if defined(V_FEW)
  if (few_goes(t)) return few_size(t, scratch_bytes);
#endif
  const reduced_form f = reduced_form_of(t);
  *scratch_bytes = REDUCED_GROUP * (f.depth * REDUCED_WORD + (f.minimum ? 2 : 1) * f.groups * sizeof(float));
#if !defined(V_HALVES)
  if (!f.bytes) return 0;
#endif
  if (t->m < REDUCED_FEW || t->k < REDUCED_LINE) return 0;
  return (t->m + V_LANES - 1) / V_LANES * f.vector;
}

/* ---- Packing ---- */

/* What follows the words of a line: rows with these scales. */
static void reduced_pack_side(const reduced_form *f, char *side, size_t line, const char *words,
                              vfloat scale) {
  v_store_words(side + line * REDUCED_WIDE, v_bits(scale));
  if (f->starts + f->sums == 0) return;
  for (size_t i = 0; i < REDUCED_WORDS; i += f->group) {
    char *at = side + (f->blocks + (line * REDUCED_WORDS + i) / f->group) * REDUCED_WIDE;
    vint sum = v_set_int(0);
    for (size_t k = i; k < i + f->group; k++)
      sum = v_dot_bytes(sum, v_set_int(0x01010101), v_load_words(words + k * REDUCED_WIDE));
    if (f->starts) v_store_words(at, v_to_int(v_mul(v_to_float(sum), v_set((float)-f->excess))));
    if (f->sums) v_store_words(at + f->starts * REDUCED_WIDE, v_bits(v_mul(v_to_float(sum), scale)));
  }
}

static void reduced_pack_vector(const heed__lowp_task *t, const reduced_form *f, char *out, size_t row,
                                size_t rows) {
  char *const side = out + f->depth * REDUCED_WIDE;
  const size_t in_line = f->bytes ? 64 : 32;
  for (size_t line = 0; line * in_line < t->k; line++, out += REDUCED_WORDS * REDUCED_WIDE) {
    const size_t p = line * in_line, n = heed__min_size(t->k - p, in_line);
    float scale[V_LANES] = {0};
    vfloat r[REDUCED_PARTS][V_LANES];
    for (size_t i = 0; i < V_LANES; i++) {
      const float *x = t->x + (ptrdiff_t)(row + i) * t->x_row + p;
      vint part[REDUCED_PARTS];
      for (int v = 0; v < REDUCED_PARTS; v++) part[v] = v_set_int(0);
      if (i < rows && f->bytes) reduced_round_bytes(part, x, n, &scale[i]);
#if defined(V_HALVES)
      if (i < rows && !f->bytes) {
        vfloat y[2 * REDUCED_PARTS];
        reduced_load(y, 2 * REDUCED_PARTS, x, n);
        for (int v = 0; v < REDUCED_PARTS; v++) part[v] = v_round_halves(y[2 * v], y[2 * v + 1]);
      }
#endif
      for (int v = 0; v < REDUCED_PARTS; v++) r[v][i] = v_from_bits(part[v]);
    }
    for (size_t v = 0; v < REDUCED_PARTS; v++) {
      v_transpose(r[v]);
      for (size_t i = 0; i < V_LANES; i++)
        v_store_words(out + (v * V_LANES + i) * REDUCED_WIDE, v_bits(r[v][i]));
    }
    if (f->bytes) reduced_pack_side(f, side, line, out, v_load(scale));
#if defined(V_PAIRS)
    for (size_t word = 0; word < REDUCED_WORDS; word += 2) {
      char *at = out + word * REDUCED_WIDE;
      vint a = v_load_words(at), b = v_load_words(at + REDUCED_WIDE);
      v_mix(&a, &b);
      v_store_words(at, a);
      v_store_words(at + REDUCED_WIDE, b);
    }
#endif
  }
}

static void reduced_pack_rows(const heed__reduced_task *task) {
#if defined(V_FEW)
  if (few_goes(&task->whole)) {
    few_pack(task);
    return;
  }
#endif
  const reduced_form f = reduced_form_of(&task->whole);
  for (size_t i = task->row; i < task->row + task->rows; i += V_LANES)
    reduced_pack_vector(&task->whole, &f, (char *)task->packed + i / V_LANES * f.vector, i,
                        heed__min_size(task->row + task->rows - i, V_LANES));
}

/* ---- Unpacking the weight ---- */

/* A line of a row, from element p on, of which n exist. */
V_INLINE void reduced_line(const heed_dtype dtype, char *to, const char *row, size_t p, size_t n) {
  const size_t bytes = heed__element_bytes(dtype), in_line = dtype == HEED_INT8 ? 64 : 32;
  char some[32 * sizeof(float)] = {0};
  const char *from = row + p * bytes;
  if (n < in_line) from = memcpy(some, from, n * bytes);
  V_UNROLL
  for (size_t v = 0; v < REDUCED_PARTS; v++, to += REDUCED_WIDE) {
    if (dtype == HEED_INT8) {
      const vint x = v_load_words(from + v * REDUCED_WIDE);
      v_store_words(to, V_BYTES_EXCESS ? v_xor_int(x, v_set_int((int32_t)0x80808080)) : x);
    } else if (dtype == HEED_BFLOAT16) {
      v_store_words(to, v_load_words(from + v * REDUCED_WIDE));
    } else {
#if defined(V_HALVES)
      vfloat x[2];
      for (size_t h = 0; h < 2; h++) {
        const size_t q = (2 * v + h) * V_LANES;
        if (heed__is_blocked(dtype)) { /* whole lines, of a group each */
          const size_t elements = (size_t)heed__block_elements(dtype);
          const uint8_t *block = (const uint8_t *)row + p / elements * heed__block_bytes(dtype);
          x[h] = blocks_vector(dtype, block, p % elements / BLOCKS_GROUP, q);
        } else {
          x[h] = load_stored(from + q * bytes, dtype);
        }
      }
      v_store_words(to, v_round_halves(x[0], x[1]));
#endif
    }
  }
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
      value += (uint8_t)f->excess;
      memcpy(to + 16 * h, &value, sizeof value);
    }
    for (size_t i = 0; i < BLOCKS_GROUP / in_group; i++) scale[p / in_group + i] = factor[i];
    if (f->minimum) minimum[p / in_group] = -least;
  }
}
#endif

#if defined(V_HALVES)
/* Element p of rows that are contiguous, of which n exist; 0 from k on */
V_INLINE vfloat reduced_column(const heed__lowp_task *t, size_t p, size_t row, size_t n) {
  const float *at = (const float *)t->w + (ptrdiff_t)p * t->w_column + (ptrdiff_t)row;
  if (p >= t->k) return v_zero();
  return n >= V_LANES ? v_load(at) : v_load_masked(at, v_first(n));
}

/* A float32 weight whose rows are contiguous */
static void reduced_unpack_columns(const heed__lowp_task *t, const reduced_form *f, char *out, size_t column,
                                   size_t columns) {
  for (size_t word = 0; word < f->depth; word += V_LANES)
    for (size_t j = 0; j < columns; j += V_LANES) {
      const size_t n = heed__min_size(columns - j, V_LANES);
      char *to = out + (word / REDUCED_WORDS * REDUCED_GROUP + j) * REDUCED_LINE +
                 word % REDUCED_WORDS * REDUCED_WORD;
      vfloat r[V_LANES];
      for (size_t i = 0; i < V_LANES; i++)
        r[i] = v_from_bits(v_pair_halves(reduced_column(t, 2 * (word + i), column + j, n),
                                         reduced_column(t, 2 * (word + i) + 1, column + j, n)));
      v_transpose(r);
      for (size_t i = 0; i < n; i++) v_store_words(to + i * REDUCED_LINE, v_bits(r[i]));
    }
}
#endif

V_INLINE void reduced_unpack_of(const heed_dtype dtype, const heed__lowp_task *t, const reduced_form *f,
                                char *out, size_t column, size_t columns) {
  float *const scale = (float *)(void *)(out + REDUCED_GROUP * f->depth * REDUCED_WORD);
#if defined(V_HALVES)
  if (dtype == HEED_FLOAT32 && t->w_column) {
    reduced_unpack_columns(t, f, out, column, columns);
    return;
  }
#endif
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
      reduced_line(dtype, to, row, p, in_line);
    }
    if (p < t->k) reduced_line(dtype, to, row, p, t->k - p);
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
  for (size_t line = 0; rest > 0 && line < f->depth / REDUCED_WORDS; line++)
    memset(out + (line * REDUCED_GROUP + columns) * REDUCED_LINE, 0, rest * REDUCED_LINE);
  for (size_t side = 0; side < (f->groups > 0) + (size_t)f->minimum; side++)
    memset(out + REDUCED_GROUP * row + (side * REDUCED_GROUP + columns) * f->groups * sizeof(float), 0,
           rest * f->groups * sizeof(float));
}

#endif
