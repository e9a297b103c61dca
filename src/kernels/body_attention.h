/* The fused attention kernel, on the vector primitives. Keys and values are packed by blocks; for each block
 * every strip of six query rows gets its scores, their exponentials, and its output so far rescaled and added
 * to (the online softmax of arXiv:2205.14135). No more than a strip's scores of one block are ever there.
 *
 * All masks of a strip become one bit a place, so that a block is skipped, whole or partial for it. A place
 * that is not seen has weight 0, and its value is multiplied by that 0, which nan and inf would survive: a
 * partial block with such values goes a slow way.
 *
 * Numbers of a row depend on its own data only, as a place more or less with weight 0 changes no bit. */
#ifndef HEED_BODY_ATTENTION_H
#define HEED_BODY_ATTENTION_H

#include "body_math.h"
#include "body_small.h"

enum {
  ATTEND_STRIP = 6, /* rows; with ATTEND_TILE keys, or values' columns, they fill the registers */
  ATTEND_TILE_VECTORS = V_LANES == 8 ? 2 : 4,
  ATTEND_TILE = ATTEND_TILE_VECTORS * V_LANES,
  ATTEND_BLOCK =
      512, /* keys, unless they are longer than ATTEND_BLOCK_DIMS: a strip's scores fit in the first cache */
  ATTEND_BLOCK_DIMS = 256, /* and packed keys and values in the second */
  ATTEND_STRIDE =
      ATTEND_BLOCK + 16, /* of rows of scores, whose addresses would otherwise be alike in the low bits */
  ATTEND_RUN_KEYS =
      128,          /* summed on their own, from a block's first key on: errors grow with a sum's length */
  ATTEND_WORD = 16, /* places in a word of bits */
  ATTEND_WORDS = ATTEND_BLOCK / ATTEND_WORD,
};

_Static_assert(ATTEND_WORD % V_LANES == 0 && ATTEND_BLOCK % ATTEND_TILE == 0,
               "words hold whole vectors, blocks whole tiles");

static const float log2_e = 1.44269504f;

/* What a task keeps from block to block, and its scratch. A row beyond the task's last, which fills the last
 * strip up, is all zeros and sees what the last row sees. */
typedef struct attention {
  const heed__attention_task *t;
  int64_t rows;    /* whole strips */
  int64_t columns; /* of values, in whole vectors */
  int64_t block;   /* keys, whole tiles */
  float *q;        /* [rows, d], scaled */
  float *out;      /* [rows, columns], before the division by the sum */
  float *most;     /* [rows] highest score so far */
  float *sum;      /* [rows] of e^(score - most) */
  float *keys;     /* [block / ATTEND_TILE, d, ATTEND_TILE] */
  float *values;   /* [block, columns] */
  float *scores;   /* [ATTEND_STRIP, ATTEND_STRIDE], then the weights */
  float *bias;     /* [ATTEND_STRIP, ATTEND_STRIDE] */
} attention;

/* The block at hand, and what a strip sees of it: keys from `low` to before `high`, counted from the block's
 * first. All rows see those before `sure`; from there on `bit` tells which. low and sure are multiples of
 * ATTEND_WORD. */
typedef struct seen {
  int64_t first, count; /* keys of the block */
  int64_t low, sure, high;
  uint16_t bit[ATTEND_STRIP][ATTEND_WORDS];
} seen;

static int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

/* ---- Scratch ---- */

/* Lays the areas out from `base` on; the floats that they take together. */
static size_t lay_out(attention *a, const heed__attention_task *t, float *base) {
  *a = (attention){
      .t = t, .rows = round_up(t->last - t->first, ATTEND_STRIP), .columns = round_up(t->dv, V_LANES)};
  const int64_t longest = t->d > a->columns ? t->d : a->columns, keys = round_up(t->s, ATTEND_TILE);
  a->block = ATTEND_BLOCK;
  while (a->block > ATTEND_TILE && a->block / 2 * longest >= (int64_t)ATTEND_BLOCK * ATTEND_BLOCK_DIMS / 2)
    a->block /= 2;
  if (a->block > keys) a->block = keys;
  size_t floats = 0;
#define AREA(name, size)                                                                                     \
  a->name = base ? base + floats : NULL;                                                                     \
  floats += (size_t)round_up(size, HEED__ALIGNMENT / (int64_t)sizeof(float));
  AREA(q, a->rows * t->d)
  AREA(out, a->rows * a->columns)
  AREA(most, a->rows)
  AREA(sum, a->rows)
  AREA(keys, a->block * t->d)
  AREA(values, a->block * a->columns)
  AREA(scores, ATTEND_STRIP * ATTEND_STRIDE)
  AREA(bias, t->bias ? ATTEND_STRIP * ATTEND_STRIDE : 0)
#undef AREA
  return floats;
}

/* ---- Packing ---- */

/* out[i] = x[i · stride] · factor */
static void scale_row(float *out, const float *x, ptrdiff_t stride, float factor, int64_t n) {
  int64_t i = 0;
  if (stride == 1)
    for (; i + V_LANES <= n; i += V_LANES) v_store(out + i, v_mul(v_load(x + i), v_set(factor)));
  for (; i < n; i++) out[i] = x[i * stride] * factor;
}

/* V_LANES keys, the first `keys` of them there and zeros in the place of the others, as `dims` rows of a
 * tile.
 */
V_INLINE void pack_square(float *tile, const float *k, ptrdiff_t row, int64_t keys, int64_t dims) {
  vfloat r[V_LANES];
  for (int i = 0; i < V_LANES; i++) {
    if (i >= keys) {
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

/* Keys of a block in tiles, dimension by dimension; the last tile is filled up with zeros. */
static void pack_keys(const attention *a, int64_t first, int64_t count) {
  const heed__attention_task *t = a->t;
  for (int64_t j = 0; j < round_up(count, ATTEND_TILE); j += V_LANES) {
    const float *k = t->k + (first + (j < count ? j : 0)) * t->k_row;
    float *to = a->keys + j / ATTEND_TILE * ATTEND_TILE * t->d + j % ATTEND_TILE;
    const int64_t keys = count - j < V_LANES ? count - j : V_LANES; /* none, or fewer, at the end */
    int64_t c = 0;
    if (t->k_column == 1) {
      if (keys == V_LANES)
        for (; c + V_LANES <= t->d; c += V_LANES)
          pack_square(to + c * ATTEND_TILE, k + c, t->k_row, V_LANES, V_LANES);
      for (; c < t->d; c += V_LANES)
        pack_square(to + c * ATTEND_TILE, k + c, t->k_row, keys, t->d - c < V_LANES ? t->d - c : V_LANES);
    }
    for (; c < t->d; c++)
      for (int64_t i = 0; i < V_LANES; i++)
        to[c * ATTEND_TILE + i] = i < keys ? k[i * t->k_row + c * t->k_column] : 0.0f;
  }
}

/* Values of a block, their rows filled up with zeros to whole vectors. Returns whether all are finite. */
static bool pack_values(const attention *a, int64_t first, int64_t count) {
  const heed__attention_task *t = a->t;
  const int64_t tail = t->dv % V_LANES;
  vfloat zero = v_zero(); /* stays so as long as they are */
  for (int64_t j = 0; j < count; j++) {
    const float *x = t->v + (first + j) * t->v_row;
    float *to = a->values + j * a->columns;
    int64_t c = 0;
    if (t->v_column == 1) {
      for (; c + V_LANES <= t->dv; c += V_LANES) {
        const vfloat value = v_load(x + c);
        zero = v_fma(value, v_zero(), zero);
        v_store(to + c, value);
      }
      if (tail) {
        const vfloat value = v_load_masked(x + c, v_first((size_t)tail));
        zero = v_fma(value, v_zero(), zero);
        v_store(to + c, value);
      }
    } else {
      for (; c < a->columns; c += V_LANES) {
        for (int64_t i = c; i < c + V_LANES; i++) to[i] = i < t->dv ? x[i * t->v_column] : 0.0f;
        zero = v_fma(v_load(to + c), v_zero(), zero);
      }
    }
  }
  return v_mask_bits(v_isnan(zero)) == 0;
}

/* ---- Masks ---- */

static unsigned first_bits(int64_t n) {
  return n >= ATTEND_WORD ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u;
}

/* A bit for each of the first n bytes (as many as a word has, at most) that is not 0. */
static unsigned bits_of_bytes(const uint8_t *x, ptrdiff_t stride, int64_t n) {
  if (stride == 1 && n >= ATTEND_WORD) return v_bits_of_bytes(x);
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

/* n values of a row of the bias, in order. */
static void copy_bias(float *out, const float *x, ptrdiff_t stride, int64_t n) {
  if (stride == 1) {
    memcpy(out, x, (size_t)n * sizeof *x);
  } else {
    for (int64_t j = 0; j < n; j++) out[j] = x[j * stride];
  }
  for (int64_t j = n; j % ATTEND_WORD != 0; j++) out[j] = 0.0f;
}

/* The words of query i from place `from` on; r is its row in the strip. */
static void see_row(const attention *a, seen *e, int64_t i, int r, int64_t from) {
  const heed__attention_task *t = a->t;
  const int64_t end = t->causal && i + 1 - e->first < e->count ? i + 1 - e->first : e->count;
  for (int64_t j = from; j < e->high; j += ATTEND_WORD) {
    unsigned bits = first_bits(end - j);
    if (t->visible && bits) {
      const ptrdiff_t step = t->visible_column;
      bits &= bits_of_bytes(t->visible + i * t->visible_row + (e->first + j) * step, step, end - j);
    }
    if (t->padding && bits) {
      const ptrdiff_t step = t->padding_stride;
      bits &= ~bits_of_bytes(t->padding + (e->first + j) * step, step, end - j);
    }
    if (t->bias) bits &= bits_above_minus_infinity(a->bias + r * ATTEND_STRIDE + j);
    e->bit[r][j / ATTEND_WORD] = (uint16_t)bits;
  }
}

/* What the strip from row i0 on (of the task's l) sees of block e; nothing, where high is not above low. */
static void see(const attention *a, seen *e, int64_t i0) {
  const heed__attention_task *t = a->t;
  const int64_t last = (i0 + ATTEND_STRIP < t->last ? i0 + ATTEND_STRIP : t->last) - 1;
  e->low = 0;
  e->high = e->count;
  int64_t from = t->visible || t->padding || t->bias ? 0 : e->count;
  if (t->causal) {
    if (last + 1 - e->first < e->high) e->high = last + 1 - e->first;
    if (i0 + 1 - e->first < from) from = i0 + 1 - e->first;
  }
  if (e->high <= 0) return;
  from = from > 0 ? from / ATTEND_WORD * ATTEND_WORD : 0;
  e->sure = from;
  if (from >= e->high) return;
  for (int r = 0; r < ATTEND_STRIP; r++) {
    const int64_t i = i0 + r < t->last ? i0 + r : t->last - 1;
    if (t->bias) {
      copy_bias(a->bias + r * ATTEND_STRIDE, t->bias + i * t->bias_row + e->first * t->bias_column,
                t->bias_column, e->high);
    }
    see_row(a, e, i, r, from);
  }
  int64_t low = from > 0 ? 0 : e->high, high = from;
  for (int64_t j = from; j < e->high; j += ATTEND_WORD) {
    unsigned any = 0, all = 0xffffu;
    for (int r = 0; r < ATTEND_STRIP; r++) {
      any |= e->bit[r][j / ATTEND_WORD];
      all &= e->bit[r][j / ATTEND_WORD];
    }
    if (!any) continue;
    if (low > j) low = e->sure = j;
    high = j + ATTEND_WORD;
    if (all == 0xffffu && e->sure == j) e->sure = high;
  }
  e->low = low;
  if (high < e->high) e->high = high;
}

/* ---- The two products ---- */

/* Where the run of keys that has key j ends; the same for all rows, wherever their strip starts. */
static int64_t run_end(int64_t j, int64_t high) {
  const int64_t end = (j / ATTEND_RUN_KEYS + 1) * ATTEND_RUN_KEYS;
  return end < high ? end : high;
}

/* scores [ATTEND_STRIP, vectors] = q [ATTEND_STRIP, d] · a tile of keys */
V_INLINE void score_tile(float *scores, const float *q, const float *keys, int64_t d, const int vectors) {
  vfloat x[ATTEND_STRIP][ATTEND_TILE_VECTORS];
  for (int r = 0; r < ATTEND_STRIP; r++)
    for (int v = 0; v < vectors; v++) x[r][v] = v_zero();
  for (int64_t c = 0; c < d; c++) {
    vfloat k[ATTEND_TILE_VECTORS];
    for (int v = 0; v < vectors; v++) k[v] = v_load(keys + c * ATTEND_TILE + v * V_LANES);
    for (int r = 0; r < ATTEND_STRIP; r++) {
      const vfloat y = v_set(q[r * d + c]);
      for (int v = 0; v < vectors; v++) x[r][v] = v_fma(y, k[v], x[r][v]);
    }
  }
  for (int r = 0; r < ATTEND_STRIP; r++)
    for (int v = 0; v < vectors; v++) v_store(scores + r * ATTEND_STRIDE + v * V_LANES, x[r][v]);
}

/* out [ATTEND_STRIP, vectors] = out · factor + weights [ATTEND_STRIP, low … high] · values [low … high,
 * vectors] */
V_INLINE void value_tile(float *out, const float *factor, const float *weights, const float *values,
                         int64_t low, int64_t high, int64_t columns, const int vectors) {
  static const float same[ATTEND_STRIP] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
  values += low * columns;
  weights += low;
  while (low < high) {
    const int64_t n = run_end(low, high) - low;
    vfloat x[ATTEND_STRIP][ATTEND_TILE_VECTORS];
    for (int r = 0; r < ATTEND_STRIP; r++)
      for (int v = 0; v < vectors; v++) x[r][v] = v_zero();
    for (int64_t j = 0; j < n; j++) {
      vfloat y[ATTEND_TILE_VECTORS];
      for (int v = 0; v < vectors; v++) y[v] = v_load(values + v * V_LANES);
      for (int r = 0; r < ATTEND_STRIP; r++) {
        const vfloat p = v_set(weights[r * ATTEND_STRIDE + j]);
        for (int v = 0; v < vectors; v++) x[r][v] = v_fma(p, y[v], x[r][v]);
      }
      values += columns;
    }
    for (int r = 0; r < ATTEND_STRIP; r++) {
      for (int v = 0; v < vectors; v++) {
        float *to = out + r * columns + v * V_LANES;
        v_store(to, v_add(v_mul(v_load(to), v_set(factor[r])), x[r][v]));
      }
    }
    factor = same;
    weights += n;
    low += n;
  }
}

/* One call for each number of vectors, so that each is a constant. */
#define BY_VECTORS(count, call)                                                                              \
  switch (count) {                                                                                           \
  case 1: {                                                                                                  \
    enum { vectors = 1 };                                                                                    \
    call;                                                                                                    \
  } break;                                                                                                   \
  case 2: {                                                                                                  \
    enum { vectors = 2 };                                                                                    \
    call;                                                                                                    \
  } break;                                                                                                   \
  case 3: {                                                                                                  \
    enum { vectors = ATTEND_TILE_VECTORS < 3 ? ATTEND_TILE_VECTORS : 3 };                                    \
    call;                                                                                                    \
  } break;                                                                                                   \
  default: {                                                                                                 \
    enum { vectors = ATTEND_TILE_VECTORS };                                                                  \
    call;                                                                                                    \
  }                                                                                                          \
  }

static void score_strip(const attention *a, const seen *e, const float *q) {
  const int64_t d = a->t->d;
  for (int64_t j = e->low / ATTEND_TILE * ATTEND_TILE; j < e->high; j += ATTEND_TILE) {
    const float *keys = a->keys + j * d;
    BY_VECTORS((e->high - j + V_LANES - 1) / V_LANES, score_tile(a->scores + j, q, keys, d, vectors))
  }
}

static void weigh_strip(const attention *a, const seen *e, float *out, const float *factor) {
  const int64_t columns = a->columns;
  for (int64_t c = 0; c < columns; c += ATTEND_TILE) {
    BY_VECTORS((columns - c) / V_LANES,
               value_tile(out + c, factor, a->scores, a->values + c, e->low, e->high, columns, vectors))
  }
}

/* The same in the same order, but what a row does not see is left out. */
static void weigh_seen(const attention *a, const seen *e, float *out, const float *factor) {
  const int64_t columns = a->columns;
  for (int r = 0; r < ATTEND_STRIP; r++, out += columns) {
    for (int64_t c = 0; c < columns; c += V_LANES) {
      vfloat sum = v_mul(v_load(out + c), v_set(factor[r]));
      for (int64_t j = e->low; j < e->high;) {
        const int64_t end = run_end(j, e->high);
        vfloat x = v_zero();
        for (; j < end; j++)
          if (j < e->sure || (e->bit[r][j / ATTEND_WORD] >> j % ATTEND_WORD & 1))
            x = v_fma(v_set(a->scores[r * ATTEND_STRIDE + j]), v_load(a->values + j * columns + c), x);
        sum = v_add(sum, x);
      }
      v_store(out + c, sum);
    }
  }
}

/* ---- Softmax ---- */

/* The highest of a row's scores, lane by lane, once they are biased and those not seen hidden. */
static vfloat highest(const attention *a, const seen *e, int r) {
  float *scores = a->scores + r * ATTEND_STRIDE;
  const float *bias = a->t->bias ? a->bias + r * ATTEND_STRIDE : NULL;
  vfloat most[4];
  for (int v = 0; v < 4; v++) most[v] = v_set(-INFINITY);
  int64_t j = e->low;
  for (; !bias && j + 4 * V_LANES <= e->sure; j += 4 * V_LANES)
    for (int v = 0; v < 4; v++) most[v] = v_max(most[v], v_load(scores + j + v * V_LANES));
  for (; j < e->high; j += V_LANES) {
    vfloat x = v_load(scores + j);
    if (bias) x = v_add(x, v_load(bias + j));
    if (j >= e->sure) {
      const unsigned bits = (unsigned)e->bit[r][j / ATTEND_WORD] >> j % ATTEND_WORD;
      x = v_select(v_mask_from_bits(bits & ((1u << V_LANES) - 1u)), x, v_set(-INFINITY));
    }
    v_store(scores + j, x);
    most[0] = v_max(most[0], x);
  }
  return v_max(v_max(most[0], most[1]), v_max(most[2], most[3]));
}

/* Scores to powers of e, times `keep` where it is given; their sum, taken before. The difference to the
 * highest is exact where weights are large: with log2 e in the queries errors were twice PyTorch's. */
static float raise(float *scores, float most, const float *keep, int64_t n) {
  vfloat sum = v_zero();
  for (int64_t j = 0; j < n; j += V_LANES) {
    vfloat p = v_exp2_flushed(v_mul(v_sub(v_load(scores + j), v_set(most)), v_set(log2_e)));
    sum = v_add(sum, p);
    if (keep) {
      const vmask there = v_first((size_t)(n - j < V_LANES ? n - j : V_LANES));
      p = v_mul(p, v_load_masked(keep + j, there));
    }
    v_store(scores + j, p);
  }
  return v_sum(sum);
}

/* The strip's scores to weights; `row` is its first, from the task's first. factor: what its sums and outputs
 * so far are to be multiplied by. */
static void soften(const attention *a, const seen *e, int64_t row, float *factor) {
  const heed__attention_task *t = a->t;
  float *most = a->most + row, *sum = a->sum + row;
  float shift[16] = {0}; /* whole vectors of ATTEND_STRIP lanes */
  for (int r = 0; r < ATTEND_STRIP; r++) {
    const float top = v_highest(highest(a, e, r));
    const float now = top > most[r] ? top : most[r];
    shift[r] = most[r] - (now == -INFINITY ? 0.0f : now);
    most[r] = now;
  }
  for (int r = 0; r < 16; r += V_LANES)
    v_store(factor + r, v_exp2_flushed(v_mul(v_load(shift + r), v_set(log2_e))));
  for (int r = 0; r < ATTEND_STRIP; r++) {
    const float *keep =
        t->keep && t->first + row + r < t->last ? t->keep + (row + r) * t->s + e->first + e->low : NULL;
    const float finite = most[r] == -INFINITY ? 0.0f : most[r]; /* where nothing has been seen yet */
    sum[r] =
        sum[r] * factor[r] + raise(a->scores + r * ATTEND_STRIDE + e->low, finite, keep, e->high - e->low);
  }
}

/* ---- The kernel ---- */

static void write_row(const attention *a, int64_t row) {
  const heed__attention_task *t = a->t;
  const float sum = a->sum[row], *x = a->out + row * a->columns;
  float *out = t->out + (t->first + row) * t->out_row;
  int64_t c = 0;
  if (sum == 0.0f) { /* nothing is seen: zeros, whatever was multiplied by 0 */
    for (; c < t->dv; c++) out[c * t->out_column] = 0.0f;
    return;
  }
  if (t->out_column == 1)
    for (; c + V_LANES <= t->dv; c += V_LANES) v_store(out + c, v_div(v_load(x + c), v_set(sum)));
  for (; c < t->dv; c++) out[c * t->out_column] = x[c] / sum;
}

static void k_attention(const heed__attention_task *t) {
  if (heed__attention_is_small(t)) {
    attend_small(t);
    return;
  }
  attention a;
  lay_out(&a, t, t->scratch);
  const int64_t rows = t->last - t->first, reach = t->causal && t->last < t->s ? t->last : t->s;
  for (int64_t i = 0; i < rows; i++)
    scale_row(a.q + i * t->d, t->q + (t->first + i) * t->q_row, t->q_column, t->scale, t->d);
  for (int64_t i = rows * t->d; i < a.rows * t->d; i++) a.q[i] = 0.0f;
  for (int64_t i = 0; i < a.rows * a.columns; i++) a.out[i] = 0.0f;
  for (int64_t i = 0; i < a.rows; i++) {
    a.most[i] = -INFINITY;
    a.sum[i] = 0.0f;
  }
  for (int64_t first = 0; first < reach; first += a.block) {
    seen e = {.first = first, .count = reach - first < a.block ? reach - first : a.block};
    bool packed = false, finite = true;
    for (int64_t row = 0; row < a.rows; row += ATTEND_STRIP) {
      see(&a, &e, t->first + row);
      if (e.high <= e.low) continue;
      if (!packed) {
        pack_keys(&a, first, e.count);
        finite = pack_values(&a, first, e.count);
        packed = true;
      }
      float factor[16];
      score_strip(&a, &e, a.q + row * t->d);
      soften(&a, &e, row, factor);
      (finite || e.sure >= e.high ? weigh_strip : weigh_seen)(&a, &e, a.out + row * a.columns, factor);
    }
  }
  for (int64_t i = 0; i < rows; i++) write_row(&a, i);
}

static size_t k_attention_scratch(const heed__attention_task *t) {
  attention a;
  if (heed__attention_is_small(t)) return 0;
  return lay_out(&a, t, NULL) * sizeof(float);
}

#endif
