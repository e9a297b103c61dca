/* The data of the fused attention kernel (attention.h): the rows of a task in its scratch, and packed blocks
 * of keys and values. */
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
  struct attend_ahead *ahead; /* attention_ahead.h */
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
 * except high are multiples of ATTEND_WORD. No row sees keys low…weighed-1. Only keys begin…count-1 are
 * packed; no row of the task sees others. */
typedef struct seen {
  int64_t first, begin, count;
  int64_t low, weighed, sure_first, sure_last, high;
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
static bool are_values_aligned(const heed__attention_task *t, const void *first) {
  const ptrdiff_t line = HEED__ALIGNMENT / sizeof(float);
  return t->v_dtype == HEED_FLOAT32 && t->v_column == 1 && t->v_row % line == 0 &&
         t->value_size % V_LANES == 0 && (uintptr_t)first % HEED__ALIGNMENT == 0;
}

/* Packs the values of a block: rows are padded with zeros to whole vectors. */
static void pack_values(const attend_work *a, const seen *e) {
  const heed__attention_task *t = a->t;
  const void *first = element_at(t->v, t->v_dtype, e->first * t->v_row);
  const int64_t tail = t->value_size % V_LANES;
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
  const bool in_place = are_values_aligned(t, first);
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

#endif
