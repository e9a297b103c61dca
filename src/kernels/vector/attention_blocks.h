/* The data of the fused attention kernel (attention.h): the rows of a task in its scratch, packed blocks of
 * keys and values, and the keys of a block that a strip of rows sees. All masks become one bit per row and
 * key, so for each strip a block is skipped, fully visible, or partly visible. */
#ifndef HEED_VECTOR_ATTENTION_BLOCKS_H
#define HEED_VECTOR_ATTENTION_BLOCKS_H

#include "widen.h"

enum {
  ATTEND_STRIP = 6, /* rows; with ATTEND_TILE keys, or columns of values, they fill the registers */
  ATTEND_TILE_VECTORS = V_LANES == 8 ? 2 : 4,
  ATTEND_TILE = ATTEND_TILE_VECTORS * V_LANES,
  ATTEND_BLOCK = 512, /* keys, fewer if rows are longer than ATTEND_BLOCK_DIMS: a strip's scores fit in the */
  ATTEND_BLOCK_DIMS = 256,           /* first-level cache, packed keys and values in the second */
  ATTEND_STRIDE = ATTEND_BLOCK + 16, /* of rows of scores; with a power of 2 they would share cache lines */
  ATTEND_RUN_KEYS = 128,             /* keys of a block that are summed on their own: shorter sums err less */
  ATTEND_AHEAD = 16,                 /* prefetch distance in values, in rows, */
  ATTEND_KEYS_AHEAD = 32,            /* and in keys that are packed */
  ATTEND_WORD = 16,                  /* keys in a word of bits */
  ATTEND_WORDS = ATTEND_BLOCK / ATTEND_WORD,
};

_Static_assert(ATTEND_WORD % V_LANES == 0 && ATTEND_BLOCK % ATTEND_TILE == 0,
               "words consist of whole vectors, blocks of whole tiles");

/* The scratch of a task. Rows that pad the last strip are zeros and see the keys that the last row sees. */
typedef struct attend_work {
  const heed__attention_task *t;
  int64_t rows;    /* whole strips */
  int64_t held;    /* rows in the scratch: a strip that begins and ends in a block, then those that wait */
  int64_t columns; /* of values, in whole vectors */
  int64_t block;   /* keys, whole tiles */
  float *q;        /* [held, d], scaled */
  float *out;      /* [held, columns], before the division by the sum */
  float *row_max;  /* [held], the largest score so far */
  float *row_sum;  /* [held], of e^(score - row_max) so far */
  float *keys;     /* [block / ATTEND_TILE, d, ATTEND_TILE] */
  float *values;   /* [block, columns] */
  float *scores;   /* [ATTEND_STRIP, ATTEND_STRIDE], later the weights */
  float *bias;     /* [ATTEND_STRIP, ATTEND_STRIDE] */
  float *wide;     /* [V_LANES, d]: low-precision keys, widened */
  int64_t *packed; /* the first key of the packed block; -1: none is packed */
} attend_work;

/* A strip's rows in the scratch. All strips whose keys are in one block share the same memory, which stays in
 * the first-level cache. */
typedef struct attend_strip {
  int64_t row;              /* its first, counted from the task's first */
  int64_t from, to;         /* the first and the last block with keys that it may see, of the task's */
  float *q, *out;           /* [ATTEND_STRIP, d] and [ATTEND_STRIP, columns] */
  float *row_max, *row_sum; /* [ATTEND_STRIP] */
} attend_strip;

/* The current block, and the keys low…high-1 of it that a strip sees, counted from the block's first. All
 * rows see keys sure_first…sure_last-1; for the others `bit` has a bit per row and key. All these bounds
 * except high are multiples of ATTEND_WORD. Only keys begin…count-1 are packed; no row of the task sees
 * others. */
typedef struct seen {
  int64_t first, begin, count;
  int64_t low, sure_first, sure_last, high;
  const float *values; /* [count, columns], rows value_row apart; only rows from `begin` on are set */
  ptrdiff_t value_row;
  uint16_t bit[ATTEND_STRIP][ATTEND_WORDS];
} seen;

static int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}
static int64_t round_down(int64_t n, int64_t to) {
  return n / to * to;
}
/* ---- Scratch ---- */

/* Sets the pointers of the scratch, which begins at `base` (NULL: only sizes); returns its length in floats.
 */
static size_t lay_out(attend_work *a, const heed__attention_task *t, float *base) {
  *a = (attend_work){.t = t,
                     .rows = round_up(t->last - t->first, ATTEND_STRIP),
                     .columns = round_up(t->value_size, V_LANES)};
  const int64_t longest = t->head_size > a->columns ? t->head_size : a->columns,
                keys = round_up(heed__max(t->key_length, 1), ATTEND_TILE);
  a->block = ATTEND_BLOCK;
  while (a->block > ATTEND_TILE && a->block / 2 * longest >= (int64_t)ATTEND_BLOCK * ATTEND_BLOCK_DIMS / 2)
    a->block /= 2;
  if (a->block > keys) a->block = keys;
  a->held = ATTEND_STRIP + (t->key_length <= a->block ? 0 : a->rows);
  size_t floats = 0;
#define AREA(name, size)                                                                                     \
  a->name = base ? base + floats : NULL;                                                                     \
  floats += (size_t)round_up(size, HEED__ALIGNMENT / (int64_t)sizeof(float));
  AREA(q, a->held * t->head_size)
  AREA(out, a->held * a->columns)
  AREA(row_max, a->held)
  AREA(row_sum, a->held)
  AREA(keys, a->block * t->head_size)
  AREA(values, a->block * a->columns)
  AREA(scores, ATTEND_STRIP * ATTEND_STRIDE)
  AREA(bias, t->bias ? ATTEND_STRIP * ATTEND_STRIDE : 0)
  AREA(wide, t->k_dtype == HEED_FLOAT32 ? 0 : V_LANES * t->head_size)
#undef AREA
  a->packed = base ? (int64_t *)(void *)(base + floats) : NULL;
  floats += HEED__ALIGNMENT / sizeof(float);
  return floats;
}

/* The strip from `row` on, of a task with that number of blocks, from key `start` on. */
static attend_strip strip_of(const attend_work *a, int64_t row, int64_t start, int64_t blocks) {
  const heed__attention_task *t = a->t;
  int64_t from = 0, to = 0;
  if (blocks > 1 && t->intervals) { /* blocks between intervals may be skipped, but not the first and last */
    to = blocks - 1;
  } else if (blocks > 1) {
    int64_t first, last;
    heed__attention_hull(t, t->first + row, heed__min(t->first + row + ATTEND_STRIP, t->last), &first, &last);
    from = first < last ? (first - start) / a->block : 0;
    to = first < last ? (last - 1 - start) / a->block : 0;
  }
  const int64_t at = from == to ? 0 : ATTEND_STRIP + row;
  return (attend_strip){
      row, from, to, a->q + at * t->head_size, a->out + at * a->columns, a->row_max + at, a->row_sum + at};
}

/* ---- Packing ---- */

/* out[i] = x[i · stride] · factor */
static void scale_whole_row(float *out, const float *x, ptrdiff_t stride, float factor, int64_t n) {
  int64_t i = 0;
  if (stride == 1)
    for (; i + V_LANES <= n; i += V_LANES) v_store(out + i, v_mul(v_load(x + i), v_set(factor)));
  for (; i < n; i++) out[i] = x[i * stride] * factor;
}

/* Packs V_LANES keys as `dims` rows of a tile. Only keys from…to-1 exist; the others become zeros. */
V_INLINE void pack_square(float *tile, const float *k, ptrdiff_t row, int64_t from, int64_t to,
                          int64_t dims) {
  vfloat r[V_LANES];
  for (int i = 0; i < V_LANES; i++) {
    if (i < from || i >= to) {
      r[i] = v_zero();
    } else if (dims == V_LANES) {
      r[i] = v_load(k + i * row);
    } else {
      r[i] = v_load_masked(k + i * row, v_first((size_t)dims));
    }
  }
  v_transpose(r);
  for (int i = 0; i < dims; i++) v_store(tile + i * ATTEND_TILE, r[i]);
}

/* The same for all d dimensions, with any strides. */
static void pack_lanes(float *tile, const float *k, ptrdiff_t row, ptrdiff_t column, int64_t from, int64_t to,
                       int64_t d) {
  int64_t c = 0;
  if (column == 1) {
    if (from == 0 && to == V_LANES)
      for (; c + V_LANES <= d; c += V_LANES)
        pack_square(tile + c * ATTEND_TILE, k + c, row, 0, V_LANES, V_LANES);
    for (; c < d; c += V_LANES)
      pack_square(tile + c * ATTEND_TILE, k + c, row, from, to, heed__min(d - c, V_LANES));
  }
  for (; c < d; c++)
    for (int64_t i = 0; i < V_LANES; i++)
      tile[c * ATTEND_TILE + i] = i >= from && i < to ? k[i * row + c * column] : 0.0f;
}

/* Prefetches rows from…to-1, of n elements each, to the first-level cache. */
static void fetch_rows(const void *x, heed_dtype dtype, ptrdiff_t row, int64_t n, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; i++) {
    const char *end = element_at(x, dtype, i * row + n);
    for (const char *p = element_at(x, dtype, i * row); p < end; p += HEED__ALIGNMENT) __builtin_prefetch(p);
  }
}

/* Prefetches the queries and outputs of the strip after s. */
static void fetch_next(const heed__attention_task *t, const attend_strip *s) {
  const int64_t next = t->first + s->row + ATTEND_STRIP, last = heed__min(next + ATTEND_STRIP, t->last);
  if (t->q_column == 1) fetch_rows(t->q, HEED_FLOAT32, t->q_row, t->head_size, next, last);
  for (int64_t i = next; i < last && t->out_column == 1; i++)
    for (int64_t c = 0; c < t->value_size; c += 16) __builtin_prefetch(t->out + i * t->out_row + c, 1);
}

/* Packs the keys of a block in tiles, dimension by dimension; keys that do not exist become zeros. */
static void pack_keys(const attend_work *a, const seen *e) {
  const heed__attention_task *t = a->t;
  const bool stored = t->k_dtype != HEED_FLOAT32;
  for (int64_t j = round_down(e->begin, V_LANES); j < e->count; j += V_LANES) {
    const int64_t from = heed__max(e->begin - j, 0), to = heed__min(e->count - j, V_LANES);
    if (t->k_column == 1) {
      const int64_t soon = j + ATTEND_KEYS_AHEAD;
      fetch_rows(t->k, t->k_dtype, t->k_row, t->head_size, e->first + heed__max(soon, e->begin),
                 e->first + heed__min(soon + V_LANES, e->count));
    }
    float *tile = a->keys + j / ATTEND_TILE * ATTEND_TILE * t->head_size + j % ATTEND_TILE;
    for (int64_t i = from; stored && i < to; i++) {
      const int64_t key = e->first + j + i;
      widen_row(a->wide + i * t->head_size, element_at(t->k, t->k_dtype, key * t->k_row), t->k_dtype,
                t->k_column, t->k_scale ? t->k_scale[key * t->k_scale_row] : 1.0f, t->head_size);
    }
    if (stored) {
      pack_lanes(tile, a->wide, t->head_size, 1, from, to, t->head_size);
    } else {
      const float *k = (const float *)t->k + (from < to ? (e->first + j) * t->k_row : 0);
      pack_lanes(tile, k, t->k_row, t->k_column, from, to, t->head_size);
    }
  }
}

/* Whether rows of values can be read where they are. */
static bool are_values_aligned(const heed__attention_task *t, const seen *e, const void *first) {
  const ptrdiff_t line = HEED__ALIGNMENT / sizeof(float);
  return t->v_dtype == HEED_FLOAT32 && t->v_column == 1 && t->v_row % line == 0 &&
         t->value_size % V_LANES == 0 && e->begin % ATTEND_WORD == 0 &&
         (uintptr_t)first % HEED__ALIGNMENT == 0;
}

/* The values of a block in the layout that the kernel needs: where they are, or the scratch if they must be
 * packed. */
static const float *values_of_block(const attend_work *a, const seen *e) {
  const heed__attention_task *t = a->t;
  const void *first = element_at(t->v, t->v_dtype, e->first * t->v_row);
  const bool in_place = t->v_row == a->columns && are_values_aligned(t, e, first);
  return in_place ? first : a->values;
}

/* Packs the values of a block: rows are padded with zeros to whole vectors, and rows of zeros precede the
 * first one, back to a multiple of ATTEND_WORD. */
static void pack_values(const attend_work *a, const seen *e) {
  const heed__attention_task *t = a->t;
  const void *first = element_at(t->v, t->v_dtype, e->first * t->v_row);
  const int64_t tail = t->value_size % V_LANES;
  for (int64_t i = round_down(e->begin, ATTEND_WORD) * a->columns; i < e->begin * a->columns; i++)
    a->values[i] = 0.0f;
  for (int64_t j = e->begin; j < e->count; j++) {
    float *to = a->values + j * a->columns;
    int64_t c = 0;
    if (t->v_column == 1 && j + 8 < e->count)
      fetch_rows(first, t->v_dtype, t->v_row, t->value_size, j + 8, j + 9);
    if (t->v_dtype != HEED_FLOAT32) {
      const float scale = t->v_scale ? t->v_scale[(e->first + j) * t->v_scale_row] : 1.0f;
      widen_row(to, element_at(first, t->v_dtype, j * t->v_row), t->v_dtype, t->v_column, scale,
                t->value_size);
      for (c = t->value_size; c < a->columns; c++) to[c] = 0.0f;
      continue;
    }
    const float *from = (const float *)first + j * t->v_row;
    if (t->v_column == 1) {
      for (; c + V_LANES <= t->value_size; c += V_LANES) v_store(to + c, v_load(from + c));
      if (tail) v_store(to + c, v_load_masked(from + c, v_first((size_t)tail)));
    } else {
      for (; c < a->columns; c++) to[c] = c < t->value_size ? from[c * t->v_column] : 0.0f;
    }
  }
}

/* Packs the keys and values of the block unless they are packed. */
static void pack_block(const attend_work *a, seen *e) {
  const heed__attention_task *t = a->t;
  const void *first = element_at(t->v, t->v_dtype, e->first * t->v_row);
  const bool in_place = are_values_aligned(t, e, first);
  e->values = in_place ? first : a->values;
  e->value_row = in_place ? t->v_row : (ptrdiff_t)a->columns;
  if (*a->packed == e->first) return;
  pack_keys(a, e);
  if (!in_place) pack_values(a, e);
  *a->packed = e->first;
}

/* Whether n floats are finite; n is a multiple of V_LANES. */
static bool are_finite(const float *x, int64_t n) {
  vfloat zero[4]; /* Σ x · 0: 0 or nan */
  for (int i = 0; i < 4; i++) zero[i] = v_zero();
  for (int64_t i = 0; i < n; i += 4 * V_LANES)
    for (int k = 0; k < 4 && i + k * V_LANES < n; k++)
      zero[k] = v_fma(v_load(x + i + k * V_LANES), v_zero(), zero[k]);
  return v_mask_bits(v_isnan(v_add(v_add(zero[0], zero[1]), v_add(zero[2], zero[3])))) == 0;
}

static bool are_finite_rows(const float *x, ptrdiff_t row, int64_t rows, int64_t columns) {
  if (row == columns) return are_finite(x, rows * columns);
  for (int64_t i = 0; i < rows; i++)
    if (!are_finite(x + i * row, columns)) return false;
  return true;
}

/* ---- Masks ---- */

static unsigned first_bits(int64_t n) {
  return (1u << heed__min(heed__max(n, 0), ATTEND_WORD)) -
         1u; /* branch-free, as a branch would be mispredicted */
}

/* One bit for each of the first n bytes, at most ATTEND_WORD, set where the byte is not 0. */
static unsigned bits_of_bytes(const uint8_t *x, ptrdiff_t stride, int64_t n) {
  unsigned bits = 0;
  for (int64_t i = 0; i < n && i < ATTEND_WORD; i++) bits |= (unsigned)(x[i * stride] != 0) << i;
  return bits;
}

static unsigned bits_above_minus_infinity(const float *x) {
  unsigned bits = 0;
  for (int i = 0; i < ATTEND_WORD; i += V_LANES)
    bits |= v_mask_bits(v_not_mask(v_eq(v_load(x + i), v_set(-INFINITY)))) << i;
  return bits;
}

/* Copies values low…high-1 of a row of the bias and pads them with zeros to a multiple of ATTEND_WORD; low is
 * one. Returns whether any is -inf. */
static bool copy_bias(float *out, const float *x, ptrdiff_t stride, int64_t low, int64_t high) {
  vfloat least = v_zero();
  int64_t j = low;
  if (stride == 1) {
    for (; j + V_LANES <= high; j += V_LANES) {
      const vfloat y = v_load(x + j);
      v_store(out + j, y);
      least = v_min(y, least); /* ignores nan */
    }
  }
  float lowest = -v_highest(v_neg(least));
  for (; j < high; j++) {
    out[j] = x[j * stride];
    lowest = out[j] < lowest ? out[j] : lowest;
  }
  for (; j % ATTEND_WORD != 0; j++) out[j] = 0.0f;
  return lowest == -INFINITY;
}

/* A word with bits start…end-1 set. */
static unsigned bits_between(int64_t start, int64_t end) {
  return first_bits(end) & ~first_bits(start);
}

/* Clears the bits of n words where the byte is 0, or, with `flip` of all bits, where it is not. x has `end`
 * bytes. */
static void clear_bits(uint16_t *words, int64_t n, const uint8_t *x, ptrdiff_t stride, int64_t end,
                       unsigned flip) {
  for (int64_t w = 0; w < n; w++) {
    const int64_t at = w * ATTEND_WORD, there = end - at;
    const uint8_t *byte = x + at * stride;
    const unsigned bits =
        stride == 1 && there >= ATTEND_WORD ? v_bits_of_bytes(byte) : bits_of_bytes(byte, stride, there);
    words[w] &= (uint16_t)(bits ^ flip);
  }
}

/* Clears the bits of n words from key `first` on that are between intervals. */
static void clear_outside(uint16_t *words, int64_t n, const int32_t *intervals, int64_t count,
                          int64_t first) {
  const int64_t last = first + n * ATTEND_WORD;
  for (int64_t k = 0; k + 1 < count; k++) {
    const int64_t from = heed__max(intervals[2 * k + 1], first) - first,
                  to = heed__min(intervals[2 * k + 2], last) - first;
    for (int64_t w = from / ATTEND_WORD; w * ATTEND_WORD < to; w++)
      words[w] &= (uint16_t)~bits_between(from - w * ATTEND_WORD, to - w * ATTEND_WORD);
    if (intervals[2 * k + 2] >= last) break;
  }
}

/* Sets the words of keys from…to-1 for query i, row r of the strip. */
V_INLINE void see_row(const attend_work *a, seen *e, int64_t i, int r, int64_t from, int64_t to,
                      const bool masked) {
  const heed__attention_task *t = a->t;
  const int64_t n = (to - from + ATTEND_WORD - 1) / ATTEND_WORD, first = e->first + from;
  uint16_t *words = e->bit[r] + from / ATTEND_WORD;
  int64_t start, end;
  heed__attention_bounds(t, i, &start, &end);
  start -= first;
  end = heed__min(end, e->first + e->count) - first;
  words[0] = (uint16_t)bits_between(start, end);
  if (n > 1) words[1] = (uint16_t)bits_between(start - ATTEND_WORD, end - ATTEND_WORD);
  for (int64_t w = 2; w < n; w++)
    words[w] = (uint16_t)bits_between(start - w * ATTEND_WORD, end - w * ATTEND_WORD);
  if (t->interval_count > 1)
    clear_outside(words, n, heed__attention_intervals(t, i), t->interval_count, first);
  if (!masked) return;
  if (t->visible)
    clear_bits(words, n, t->visible + i * t->visible_row + first * t->visible_column, t->visible_column, end,
               0);
  if (t->padding)
    clear_bits(words, n, t->padding + first * t->padding_stride, t->padding_stride, end, 0xffffu);
  for (int64_t w = 0; t->bias && w < n; w++)
    words[w] &= (uint16_t)bits_above_minus_infinity(a->bias + r * ATTEND_STRIDE + from + w * ATTEND_WORD);
}

/* The same for all rows of the strip from query i0 on. */
V_INLINE void see_rows(const attend_work *a, seen *e, int64_t i0, int64_t from, int64_t to,
                       const bool masked) {
  for (int r = 0; from < to && r < ATTEND_STRIP; r++)
    see_row(a, e, heed__min(i0 + r, a->t->last - 1), r, from, to, masked);
}
static void see_window(const attend_work *a, seen *e, int64_t i0, int64_t from, int64_t to) {
  see_rows(a, e, i0, from, to, false);
}
static void see_masked(const attend_work *a, seen *e, int64_t i0, int64_t from, int64_t to) {
  see_rows(a, e, i0, from, to, true);
}

/* Tightens the bounds by the bits: low and high exclude the leading and trailing words that no row sees, and
 * the words after low that all rows see become sure. */
static void trim(seen *e) {
  const int64_t first = e->low / ATTEND_WORD, last = (e->high + ATTEND_WORD - 1) / ATTEND_WORD;
  int64_t low = last, high = first, sure = first;
  uint16_t any[ATTEND_WORDS], all[ATTEND_WORDS];
  _Static_assert(ATTEND_STRIP == 6, "six rows");
  for (int64_t w = first; w < last; w++) {
    any[w] = e->bit[0][w] | e->bit[1][w] | e->bit[2][w] | e->bit[3][w] | e->bit[4][w] | e->bit[5][w];
    all[w] = e->bit[0][w] & e->bit[1][w] & e->bit[2][w] & e->bit[3][w] & e->bit[4][w] & e->bit[5][w];
  }
  for (int64_t w = first; w < last; w++) {
    if (any[w] == 0) continue;
    if (low > w) low = sure = w;
    high = w + 1;
    if (all[w] == 0xffffu && sure == w) sure = high;
  }
  e->low = e->sure_first = low * ATTEND_WORD;
  e->sure_last = sure * ATTEND_WORD;
  e->high = heed__min(e->high, high * ATTEND_WORD);
}

/* Rows that pad the last strip see the keys that the last row sees. */
static int64_t row_of(const heed__attention_task *t, int64_t i) {
  return i < t->last ? i : t->last - 1;
}

/* The keys *from … *to - 1 among begin…end-1 between which are all that row i sees by position and intervals.
 * Returns whether it sees them all. */
static bool part_of_row(const heed__attention_task *t, int64_t i, int64_t begin, int64_t end, int64_t *from,
                        int64_t *to) {
  heed__attention_bounds(t, i, from, to);
  *from = heed__max(*from, begin);
  *to = heed__min(*to, end);
  if (t->interval_count == 1) return true;
  const int32_t *x = heed__attention_intervals(t, i), *behind = x + 2 * t->interval_count;
  while (x < behind && x[1] <= *from) x += 2;
  if (x == behind || x[0] >= *to) {
    *to = *from;
    return true;
  }
  *from = heed__max(*from, x[0]);
  int64_t last = x[1];
  bool whole = true;
  for (x += 2; x < behind && x[0] < *to && x[0] < x[1]; x += 2) {
    last = x[1];
    whole = false;
  }
  *to = heed__min(*to, last);
  return whole;
}

/* Narrows the block to the keys between those that the task's rows see by position and intervals; begin stays
 * a multiple of ATTEND_WORD. Returns the first key from the block's on that a row sees, perhaps behind it; or
 * the number of keys. */
static int64_t narrow_block(seen *e, const heed__attention_task *t) {
  const int64_t begin = e->first + e->begin, end = e->first + e->count;
  int64_t next = t->key_length, high = begin;
  for (int64_t i = t->first; i < t->last && (next > begin || high < end); i++) {
    int64_t from, to;
    (void)part_of_row(t, i, begin, t->key_length, &from, &to);
    if (from >= to) continue;
    next = heed__min(next, from);
    if (from >= end) continue;
    if (to > end) (void)part_of_row(t, i, begin, end, &from, &to);
    high = heed__max(high, to);
  }
  e->begin = heed__max(e->begin, round_down(heed__min(next, end) - e->first, ATTEND_WORD));
  e->count = high - e->first;
  return next;
}

/* The same for block *block of `blocks` of `size` keys from `start` on. If it is empty, and neither the first
 * nor the last, *block becomes the last of those that are, before the next that is not. */
static bool skips_block(seen *e, const heed__attention_task *t, int64_t start, int64_t size, int64_t blocks,
                        int64_t *block) {
  const int64_t next = (narrow_block(e, t) - start) / size;
  if (e->begin < e->count || *block == 0 || *block == blocks - 1) return false;
  *block = heed__max(*block, heed__min(next, blocks - 1) - 1);
  return true;
}

/* The same bounds as those of two windows in `see`, of rows i0…last with intervals. Returns whether a row has
 * several intervals in the block. */
static bool see_intervals(const heed__attention_task *t, const seen *e, int64_t i0, int64_t last,
                          int64_t *from, int64_t *sure_from, int64_t *sure_to, int64_t *to) {
  const int64_t begin = e->first + e->begin, end = e->first + e->count;
  bool several = false;
  *from = *sure_to = end;
  *to = *sure_from = begin;
  for (int64_t i = i0; i <= last; i++) {
    int64_t low, high;
    several |= !part_of_row(t, i, begin, end, &low, &high);
    *sure_from = heed__max(*sure_from, low);
    *sure_to = heed__min(*sure_to, high);
    if (low >= high) continue;
    *from = heed__min(*from, low);
    *to = heed__max(*to, high);
  }
  return several;
}

/* Sets the keys of block e that the strip from row i0 on (of l) sees; none if high <= low. */
static void see(const attend_work *a, seen *e, int64_t i0) {
  const heed__attention_task *t = a->t;
  const int64_t last = heed__min(i0 + ATTEND_STRIP, t->last) - 1;
  bool masked = t->visible || t->padding;
  int64_t from, sure_to, sure_from, to;
  if (t->intervals) {
    masked |= see_intervals(t, e, i0, last, &from, &sure_from, &sure_to, &to);
  } else {
    heed__attention_window(t, i0, &from, &sure_to); /* the first row's window begins and ends first */
    heed__attention_window(t, last, &sure_from, &to);
  }
  e->low = round_down(heed__max(from - e->first, e->begin), ATTEND_WORD);
  e->high = heed__min(to - e->first, e->count);
  if (e->high <= e->low) return;
  e->sure_first = round_up(heed__max(sure_from - e->first, e->begin), ATTEND_WORD);
  e->sure_last = round_down(heed__min(sure_to - e->first, e->count), ATTEND_WORD);
  for (int r = 0; t->bias && r < ATTEND_STRIP; r++)
    masked |= copy_bias(a->bias + r * ATTEND_STRIDE,
                        t->bias + row_of(t, i0 + r) * t->bias_row + e->first * t->bias_column, t->bias_column,
                        e->low, e->high);
  if (masked || e->sure_first >= e->sure_last) e->sure_first = e->sure_last = e->low;
  if (e->sure_first <= e->low && e->sure_last >= e->high) return;
  const bool shown = !t->visible && !t->padding && !t->bias;
  (shown ? see_window : see_masked)(a, e, i0, e->low, e->sure_first);
  (shown ? see_window : see_masked)(a, e, i0, e->sure_last, e->high);
  if (masked) trim(e);
}

#endif
