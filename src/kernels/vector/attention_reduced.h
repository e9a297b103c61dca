/* Attention in fewer bits (kernels.h): both products by instructions for pairs of bfloat16 numbers, softmax
 * in float32. Everything is transposed: the scores of a strip of queries with a block of keys are [keys,
 * queries], so that a lane of a vector is a query and softmax needs no sums across lanes, and the weights are
 * rounded where they are to the pairs of keys that the product with the values reads. The online softmax is
 * that of attention.h.
 *
 * A tile has 16 rows of 64 bytes: 32 elements of a key, or of a column of the values. The vectors of the
 * other side have 16 queries, a word of two elements for each.
 *
 * Blocks begin at multiples of FEWER_KEYS, so that a row's bits do not depend on the other rows of its task.
 */
#ifndef HEED_VECTOR_ATTENTION_REDUCED_H
#define HEED_VECTOR_ATTENTION_REDUCED_H

#include "reduced.h"

enum {
  FEWER_KEYS = 128,  /* of a block */
  FEWER_ROWS = 32,   /* queries of a strip: two vectors */
  FEWER_STEP = 32,   /* keys or elements of a line of a tile */
  FEWER_TILE = 1024, /* bytes of a tile, or of 16 words of a vector */
  FEWER_ONCE = 8,    /* exponentials that are computed together */
};

typedef struct fewer_work {
  const heed__attention_task *t;
  int64_t strips, lines,
      columns;              /* lines of a key, columns of values: with padding, multiples of FEWER_STEP */
  char *q;                  /* [strips, 2 vectors, lines] of 16 words */
  float *out;               /* [strips, columns, FEWER_ROWS], so far */
  float *row_max, *row_sum; /* [strips, FEWER_ROWS] */
  char *keys;               /* the packed block: [FEWER_KEYS / 16, lines] tiles */
  char *values;             /* [columns / 16, FEWER_KEYS / FEWER_STEP] tiles, transposed */
  float *k_scale, *v_scale; /* [FEWER_KEYS], of int8 */
  float *scores;            /* [FEWER_KEYS, FEWER_ROWS] */
  char *weights;            /* [2 vectors, FEWER_KEYS / 2 words] */
  int64_t *packed;          /* the first key of the packed block, -1: none; then whether it is spoiled: some
                               values are not finite, and packed as 0 */
} fewer_work;

/* A block's keys from `first` on, of which a strip sees some of low…high-1: multiples of FEWER_STEP. */
typedef struct fewer_part {
  int64_t first, low, high;
  int64_t row; /* the strip's first query */
} fewer_part;

static int64_t fewer_whole(int64_t n) {
  return (n + FEWER_STEP - 1) / FEWER_STEP * FEWER_STEP;
}

/* Lays out the scratch at base, or NULL; returns its bytes. */
static size_t fewer_lay_out(fewer_work *w, const heed__attention_task *t, char *base) {
  size_t bytes = 0;
  w->t = t;
  w->strips = (t->last - t->first + FEWER_ROWS - 1) / FEWER_ROWS;
  w->lines = fewer_whole(t->head_size) / FEWER_STEP;
  w->columns = fewer_whole(t->value_size);
#define AREA(name, type, count)                                                                              \
  w->name = base ? (type *)(void *)(base + bytes) : NULL;                                                    \
  bytes += ((size_t)(count) * sizeof(type) + HEED__ALIGNMENT - 1) / HEED__ALIGNMENT * HEED__ALIGNMENT;
  AREA(q, char, w->strips * 2 * w->lines * FEWER_TILE)
  AREA(out, float, w->strips * w->columns * FEWER_ROWS)
  AREA(row_max, float, w->strips *FEWER_ROWS)
  AREA(row_sum, float, w->strips *FEWER_ROWS)
  AREA(keys, char, FEWER_KEYS / 16 * w->lines * FEWER_TILE)
  AREA(values, char, w->columns / 16 * (FEWER_KEYS / FEWER_STEP) * FEWER_TILE)
  AREA(k_scale, float, FEWER_KEYS)
  AREA(v_scale, float, FEWER_KEYS)
  AREA(scores, float, FEWER_KEYS *FEWER_ROWS)
  AREA(weights, char, 2 * (FEWER_KEYS / 2) * 64)
  AREA(packed, int64_t, 2)
#undef AREA
  return bytes;
}

static bool fewer_close(ptrdiff_t column, int64_t n) {
  return column == 1 || n <= 1;
}

static size_t fewer_scratch(const heed__attention_task *t) {
  fewer_work w;
  const bool close = fewer_close(t->q_column, t->head_size) && fewer_close(t->k_column, t->head_size) &&
                     fewer_close(t->v_column, t->value_size) && fewer_close(t->out_column, t->value_size);
  const bool masked = t->visible || t->padding || t->bias || t->intervals || t->slope != 0.0f;
  const bool mapped = t->scores || t->weights || t->dropped_weights || t->logits || t->capped_logits ||
                      t->biased_logits || t->lse || t->stats;
  return close && !masked && !mapped && !t->dropout_mask ? fewer_lay_out(&w, t, NULL) : 0;
}

/* ---- Products ---- */

/* sum [32, FEWER_ROWS] = (or, unless it starts, +=) two tiles by two vectors of `lines` lines; the second
 * tile is a_down bytes behind the first, the second vector b_across. */
static __attribute__((noinline)) void fewer_square(float *sum, const char *a, size_t a_down, const char *b,
                                                   size_t b_across, int64_t lines, bool starts) {
#if defined(REDUCED_TILES)
  enum { FEWER_PITCH = FEWER_ROWS * sizeof(float), FEWER_BELOW = 16 * FEWER_ROWS }; /* bytes, floats */
  if (starts) {
    V_TILE_ZERO(0);
    V_TILE_ZERO(1);
    V_TILE_ZERO(2);
    V_TILE_ZERO(3);
  } else {
    V_TILE_LOAD(0, sum, FEWER_PITCH);
    V_TILE_LOAD(1, sum + 16, FEWER_PITCH);
    V_TILE_LOAD(2, sum + FEWER_BELOW, FEWER_PITCH);
    V_TILE_LOAD(3, sum + FEWER_BELOW + 16, FEWER_PITCH);
  }
  for (int64_t l = 0; l < lines; l++, a += FEWER_TILE, b += FEWER_TILE) {
    V_TILE_LOAD(4, a, 64);
    V_TILE_LOAD(6, b, 64);
    V_TILE_LOAD(7, b + b_across, 64);
    V_TILE_HALVES(0, 4, 6);
    V_TILE_HALVES(1, 4, 7);
    V_TILE_LOAD(5, a + a_down, 64);
    V_TILE_HALVES(2, 5, 6);
    V_TILE_HALVES(3, 5, 7);
  }
  V_TILE_STORE(0, sum, FEWER_PITCH);
  V_TILE_STORE(1, sum + 16, FEWER_PITCH);
  V_TILE_STORE(2, sum + FEWER_BELOW, FEWER_PITCH);
  V_TILE_STORE(3, sum + FEWER_BELOW + 16, FEWER_PITCH);
#else
  enum { FEWER_TURN = 8 };
  for (size_t row = 0; row < 32; row += FEWER_TURN) {
    const char *x = a + row / 16 * a_down + row % 16 * 64, *y = b;
    float *to = sum + row * FEWER_ROWS;
    vfloat part[FEWER_TURN][2];
    V_UNROLL
    for (int r = 0; r < FEWER_TURN; r++) {
      V_UNROLL
      for (int v = 0; v < 2; v++) part[r][v] = starts ? v_zero() : v_load(to + r * FEWER_ROWS + v * 16);
    }
    for (int64_t l = 0; l < lines; l++, x += FEWER_TILE) {
      for (int word = 0; word < 16; word++, y += 64) {
        const vint first = v_load_words(y), second = v_load_words(y + b_across);
        V_UNROLL
        for (int r = 0; r < FEWER_TURN; r++) {
          const vint pair = v_set_word(x + r * 64 + word * 4);
          part[r][0] = v_dot_halves(part[r][0], pair, first);
          part[r][1] = v_dot_halves(part[r][1], pair, second);
        }
      }
    }
    V_UNROLL
    for (int r = 0; r < FEWER_TURN; r++) {
      V_UNROLL
      for (int v = 0; v < 2; v++) v_store(to + r * FEWER_ROWS + v * 16, part[r][v]);
    }
  }
#endif
}

/* ---- Packing ---- */

/* V_LANES elements of a row from element c on, then zeros; nothing beyond n is read. */
V_INLINE vfloat fewer_load(const void *row, const heed_dtype dtype, int64_t c, int64_t n) {
  if (c + V_LANES <= n) return load_stored(element_at(row, dtype, c), dtype);
  if (c >= n) return v_zero();
  if (dtype == HEED_FLOAT32) return v_load_masked((const float *)row + c, v_first((size_t)(n - c)));
  return load_stored_first(element_at(row, dtype, c), dtype, (size_t)(n - c));
}

/* The queries from `row` on, times the scale, in vectors. */
static void fewer_pack_queries(const heed__attention_task *t, char *out, int64_t lines, int64_t row) {
  const vfloat scale = v_set(t->scale);
  for (int64_t l = 0; l < lines; l++) {
    vfloat r[V_LANES];
    for (int64_t i = 0; i < V_LANES; i++) {
      const float *q = t->q + (row + i < t->last ? row + i : t->last - 1) * t->q_row;
      const int64_t c = l * FEWER_STEP;
      r[i] =
          v_from_bits(v_round_halves(v_mul(fewer_load(q, HEED_FLOAT32, c, t->head_size), scale),
                                     v_mul(fewer_load(q, HEED_FLOAT32, c + V_LANES, t->head_size), scale)));
    }
    v_transpose(r);
    for (int64_t i = 0; i < V_LANES; i++, out += 64) v_store_words(out, v_bits(r[i]));
  }
}

/* Keys from…to-1 of the block that begins with key `first`; the others are left alone. */
V_INLINE void fewer_pack_keys(const fewer_work *w, const heed_dtype dtype, int64_t first, int64_t from,
                              int64_t to) {
  const heed__attention_task *t = w->t;
  for (int64_t j = from; j < to; j++) {
    const void *key = element_at(t->k, dtype, (first + j) * t->k_row);
    char *out = w->keys + j / 16 * w->lines * FEWER_TILE + j % 16 * 64;
    for (int64_t l = 0; l < w->lines; l++, out += FEWER_TILE) {
      const vfloat low = fewer_load(key, dtype, l * FEWER_STEP, t->head_size),
                   high = fewer_load(key, dtype, l * FEWER_STEP + V_LANES, t->head_size);
      v_store_words(out, v_round_halves(low, high));
    }
  }
}

/* The values of keys from…to-1, the others as 0; returns whether some of them are spoiled. */
V_INLINE bool fewer_pack_values(const fewer_work *w, const heed_dtype dtype, int64_t first, int64_t from,
                                int64_t to) {
  const heed__attention_task *t = w->t;
  const vfloat most = v_set(0x1.fep127f); /* larger ones become inf */
  unsigned spoiled = 0;
  for (int64_t g = from / FEWER_STEP; g * FEWER_STEP < to; g++)
    for (int64_t c = 0; c < w->columns; c += V_LANES) {
      vfloat r[V_LANES];
      for (int64_t i = 0; i < FEWER_STEP; i += 2) {
        vfloat x[2];
        for (int64_t k = 0; k < 2; k++) {
          const int64_t j = g * FEWER_STEP + i + k;
          if (j < from || j >= to) {
            x[k] = v_zero();
            continue;
          }
          const void *row = element_at(t->v, dtype, (first + j) * t->v_row);
          x[k] = fewer_load(row, dtype, c, t->value_size);
          const vmask sound = v_le(v_abs(x[k]), most);
          spoiled |= v_mask_bits(v_not_mask(sound));
          x[k] = v_clear(v_not_mask(sound), x[k]);
        }
        r[i / 2] = v_from_bits(v_pair_halves(x[0], x[1]));
      }
      v_transpose(r);
      char *out = w->values + (c / 16 * (FEWER_KEYS / FEWER_STEP) + g) * FEWER_TILE;
      for (int64_t i = 0; i < V_LANES; i++) v_store_words(out + i * 64, v_bits(r[i]));
    }
  return spoiled != 0;
}

/* Packs keys begin…end-1 as far as they are in the block that begins with key `first`. */
static void fewer_pack(const fewer_work *w, int64_t first, int64_t begin, int64_t end) {
  const heed__attention_task *t = w->t;
  const int64_t from = heed__max(begin - first, 0), to = heed__min(end - first, FEWER_KEYS);
  bool spoiled = false;
  if (w->packed[0] == first) return;
  BY_DTYPE(t->k_dtype, fewer_pack_keys(w, type, first, from, to))
  BY_DTYPE(t->v_dtype, spoiled = fewer_pack_values(w, type, first, from, to))
  for (int64_t j = 0; j < FEWER_KEYS; j++) {
    const bool there = j >= from && j < to;
    w->k_scale[j] = there && t->k_scale ? t->k_scale[(first + j) * t->k_scale_row] : 1.0f;
    w->v_scale[j] = there && t->v_scale ? t->v_scale[(first + j) * t->v_scale_row] : 1.0f;
  }
  w->packed[0] = first;
  w->packed[1] = spoiled;
}

/* ---- Softmax ---- */

/* The lanes of the queries from `row` on that see that key. */
static unsigned fewer_seeing(const heed__attention_task *t, int64_t row, int64_t key) {
  const int64_t from = heed__max(key - t->window_end + 1 - row, 0),
                to = heed__min(key - t->window_begin + 1 - row, V_LANES);
  if (key >= t->valid_keys || from >= to) return 0;
  return ((1u << to) - 1) & ~((1u << from) - 1);
}

/* Completes the scores of keys from…to-1 with a vector of queries, hidden ones as -inf unless `sure`, and
 * returns the largest of each query, with `most`. */
V_INLINE vfloat fewer_modify(const fewer_work *w, const fewer_part *p, int64_t row, float *scores,
                             int64_t from, int64_t to, const bool sure, vfloat most) {
  const heed__attention_task *t = w->t;
  const float cap = t->softcap, inverse = cap > 0.0f ? 1.0f / cap : 0.0f;
  for (int64_t j = from; j < to; j++) {
    vfloat x = v_load(scores + j * FEWER_ROWS);
    if (t->k_scale) x = v_mul(x, v_set(w->k_scale[j]));
    if (cap > 0.0f) x = cap_score(x, cap, inverse);
    if (!sure) x = v_select(v_mask_from_bits(fewer_seeing(t, row, p->first + j)), x, v_set(-INFINITY));
    if (!sure || t->k_scale || cap > 0.0f) v_store(scores + j * FEWER_ROWS, x);
    most = v_max(most, x);
  }
  return most;
}

/* The largest score of each query with the keys of the part, which it sees. */
static vfloat fewer_finish_scores(const fewer_work *w, const fewer_part *p, int64_t row, float *scores) {
  const heed__attention_task *t = w->t;
  int64_t first, last, unused;
  heed__attention_window(t, row + V_LANES - 1, &first, &unused);
  heed__attention_window(t, row, &unused, &last);
  const int64_t from = heed__min(heed__max(first - p->first, p->low), p->high),
                to = heed__max(heed__min(last - p->first, p->high), from);
  vfloat most = v_set(-INFINITY);
  most = fewer_modify(w, p, row, scores, p->low, from, false, most);
  most = fewer_modify(w, p, row, scores, from, to, true, most);
  return fewer_modify(w, p, row, scores, to, p->high, false, most);
}

/* Rounds e^(score - top) of the part's keys to the words of `weights`; returns their sums in float32. */
V_INLINE vfloat fewer_raise(const fewer_work *w, const fewer_part *p, const float *scores, char *weights,
                            vfloat top, const bool scaled) {
  vfloat sum[FEWER_ONCE];
  V_UNROLL
  for (int k = 0; k < FEWER_ONCE; k++) sum[k] = v_zero();
  for (int64_t j = p->low; j < p->high; j += FEWER_ONCE) {
    vfloat x[FEWER_ONCE];
    V_UNROLL
    for (int k = 0; k < FEWER_ONCE; k++) x[k] = v_sub(v_load(scores + (j + k) * FEWER_ROWS), top);
    exp_flushed(x, FEWER_ONCE);
    V_UNROLL
    for (int k = 0; k < FEWER_ONCE; k++) {
      sum[k] = v_add(sum[k], x[k]);
      if (scaled) x[k] = v_mul(x[k], v_set(w->v_scale[j + k]));
    }
    V_UNROLL
    for (int k = 0; k < FEWER_ONCE; k += 2)
      v_store_words(weights + (j + k) / 2 * 64, v_pair_halves(x[k], x[k + 1]));
  }
  V_UNROLL
  for (int width = FEWER_ONCE / 2; width > 0; width /= 2) {
    V_UNROLL
    for (int k = 0; k < width; k++) sum[k] = v_add(sum[k], sum[k + width]);
  }
  return sum[0];
}
static __attribute__((noinline)) vfloat fewer_raise_plain(const fewer_work *w, const fewer_part *p,
                                                          const float *scores, char *weights, vfloat top) {
  return fewer_raise(w, p, scores, weights, top, false);
}
static __attribute__((noinline)) vfloat fewer_raise_scaled(const fewer_work *w, const fewer_part *p,
                                                           const float *scores, char *weights, vfloat top) {
  return fewer_raise(w, p, scores, weights, top, true);
}

/* Turns the scores of vector v of the strip into weights, and rescales the output so far. */
static void fewer_weigh(const fewer_work *w, const fewer_part *p, int64_t strip, int64_t v) {
  const int64_t row = p->row + v * V_LANES;
  float *const scores = w->scores + v * V_LANES, *const out = w->out + strip * w->columns * FEWER_ROWS;
  float *const row_max = w->row_max + strip * FEWER_ROWS + v * V_LANES, *const row_sum = w->row_sum +
                                                                                         strip * FEWER_ROWS +
                                                                                         v * V_LANES;
  const vfloat before = v_load(row_max), now = v_max(before, fewer_finish_scores(w, p, row, scores));
  const vfloat top = v_clear(v_eq(now, v_set(-INFINITY)), now);
  vfloat factor = v_sub(before, top);
  exp_flushed(&factor, 1);
  const vfloat sum = (w->t->v_scale ? fewer_raise_scaled : fewer_raise_plain)(
      w, p, scores, w->weights + v * (FEWER_KEYS / 2) * 64, top);
  v_store(row_max, now);
  v_store(row_sum, v_fma(v_load(row_sum), factor, sum));
  if (v_mask_bits(v_not_mask(v_eq(factor, v_set(1.0f)))) == 0) return;
  for (int64_t c = 0; c < w->columns; c++) {
    float *x = out + c * FEWER_ROWS + v * V_LANES;
    v_store(x, v_mul(v_load(x), factor));
  }
}

/* Adds the products of values that were packed as 0 because they are not finite, for queries that see them.
 */
static void fewer_add_spoiled(const fewer_work *w, const fewer_part *p, int64_t strip) {
  const heed__attention_task *t = w->t;
  const int64_t end = heed__min(p->high, t->valid_keys - p->first);
  for (int64_t j = p->low; j < end; j++) {
    const void *row = element_at(t->v, t->v_dtype, (p->first + j) * t->v_row);
    unsigned seeing[2];
    for (int64_t v = 0; v < 2; v++) seeing[v] = fewer_seeing(t, p->row + v * V_LANES, p->first + j);
    for (int64_t c = 0; (seeing[0] | seeing[1]) && c < t->value_size; c++) {
      float value;
      ptrdiff_t column = 1;
      const float *x =
          heed__scalar_widen(element_at(row, t->v_dtype, c), t->v_dtype, 1.0f, &column, 1, &value);
      if (fabsf(*x) <= 0x1.fep127f) continue;
      for (int64_t v = 0; v < 2; v++) {
        float *out = w->out + (strip * w->columns + c) * FEWER_ROWS + v * V_LANES;
        const vint pair = v_load_words(w->weights + (v * (FEWER_KEYS / 2) + j / 2) * 64);
        const vfloat weight =
            v_from_bits(j % 2 ? v_sub_int(pair, v_and_int(pair, v_set_int(0xffff))) : v_shift_left(pair, 16));
        const vfloat sum = v_fma(weight, v_set(*x), v_load(out));
        v_store(out, v_select(v_mask_from_bits(seeing[v]), sum, v_load(out)));
      }
    }
  }
}

/* ---- The kernel ---- */

static void fewer_begin_strip(const fewer_work *w, int64_t strip, int64_t row) {
  const heed__attention_task *t = w->t;
  const bool sink = t->has_sink && t->sink != -INFINITY;
  for (int64_t v = 0; v < 2; v++) {
    const int64_t at = strip * FEWER_ROWS + v * V_LANES;
    fewer_pack_queries(t, w->q + (strip * 2 + v) * w->lines * FEWER_TILE, w->lines, row + v * V_LANES);
    v_store(w->row_max + at, v_set(sink ? t->sink : -INFINITY));
    v_store(w->row_sum + at, v_set(sink ? 1.0f : 0.0f));
  }
  memset(w->out + strip * w->columns * FEWER_ROWS, 0, (size_t)(w->columns * FEWER_ROWS) * sizeof(float));
}

static void fewer_attend(const fewer_work *w, const fewer_part *p, int64_t strip) {
  enum { GROUPS = FEWER_KEYS / FEWER_STEP };
  const size_t q_vector = (size_t)w->lines * FEWER_TILE;
  const char *q = w->q + (size_t)strip * 2 * q_vector;
  for (int64_t j = p->low; j < p->high; j += FEWER_STEP)
    fewer_square(w->scores + j * FEWER_ROWS, w->keys + j / 16 * w->lines * FEWER_TILE, q_vector, q, q_vector,
                 w->lines, true);
  for (int64_t v = 0; v < 2; v++) fewer_weigh(w, p, strip, v);
  for (int64_t c = 0; c < w->columns; c += 32)
    fewer_square(w->out + (strip * w->columns + c) * FEWER_ROWS,
                 w->values + (c / 16 * GROUPS + p->low / FEWER_STEP) * FEWER_TILE, GROUPS * FEWER_TILE,
                 w->weights + p->low / FEWER_STEP * FEWER_TILE, FEWER_KEYS / 2 * 64,
                 (p->high - p->low) / FEWER_STEP, false);
  if (w->packed[1]) fewer_add_spoiled(w, p, strip);
}

static void fewer_write_strip(const fewer_work *w, int64_t strip, int64_t row) {
  const heed__attention_task *t = w->t;
  for (int64_t v = 0; v < 2; v++) {
    float share[V_LANES];
    const int64_t at = strip * FEWER_ROWS + v * V_LANES, there = t->last - row - v * V_LANES;
    v_store(share, v_div(v_set(1.0f), v_load(w->row_sum + at)));
    for (int64_t c = 0; c < t->value_size; c += V_LANES) {
      const vmask some = v_first((size_t)heed__min(t->value_size - c, V_LANES));
      vfloat r[V_LANES];
      for (int64_t i = 0; i < V_LANES; i++)
        r[i] = v_load(w->out + (strip * w->columns + c + i) * FEWER_ROWS + v * V_LANES);
      v_transpose(r);
      for (int64_t i = 0; i < heed__min(there, V_LANES); i++) {
        const int64_t query = row + v * V_LANES + i;
        int64_t first, last;
        heed__attention_window(t, query, &first, &last);
        const bool nothing = first >= last || w->row_sum[at + i] == 0.0f;
        v_store_masked(t->out + query * t->out_row + c, nothing ? v_zero() : v_mul(r[i], v_set(share[i])),
                       some);
      }
    }
  }
}

/* The keys *first … *last - 1 that a strip sees. */
static void fewer_hull(const heed__attention_task *t, int64_t row, int64_t *first, int64_t *last) {
  heed__attention_hull(t, row, heed__min(row + FEWER_ROWS, t->last), first, last);
}

/* A step is a strip with a block. */
static bool fewer_run(const heed__attention_task *t, const heed__pace *pace, int64_t *position) {
  fewer_work w;
  fewer_lay_out(&w, t, t->scratch);
  int64_t begin, end;
  heed__attention_hull(t, t->first, t->last, &begin, &end);
  const int64_t start = begin / FEWER_KEYS,
                blocks = heed__max((end + FEWER_KEYS - 1) / FEWER_KEYS - start, 1);
  const int64_t before = position ? *position : 0;
  if (before == 0) w.packed[0] = -1;
  for (int64_t at = before; at < blocks * w.strips; at++) {
    const int64_t strip = at % w.strips, block = start + at / w.strips;
    fewer_part p = {.first = block * FEWER_KEYS, .row = t->first + strip * FEWER_ROWS};
    int64_t first, last;
    fewer_hull(t, p.row, &first, &last);
    const bool sees = first < last;
    const int64_t from = sees ? first / FEWER_KEYS : start, to = sees ? (last - 1) / FEWER_KEYS : start;
    if (block < from || block > to) continue;
    if (block == from) fewer_begin_strip(&w, strip, p.row);
    if (sees) {
      p.low = heed__max(first - p.first, 0) / FEWER_STEP * FEWER_STEP;
      p.high = fewer_whole(heed__min(last - p.first, FEWER_KEYS));
      fewer_pack(&w, p.first, begin, end);
      fewer_attend(&w, &p, strip);
    }
    if (block == to) fewer_write_strip(&w, strip, p.row);
    if (at + 1 < blocks * w.strips && heed__should_yield(pace)) {
      *position = at + 1;
      return false;
    }
  }
  return true;
}

static bool fewer_attention(const heed__attention_task *t, const heed__pace *pace, int64_t *position) {
  REDUCED_BEGIN();
  const bool done = fewer_run(t, pace, position);
  REDUCED_END();
  return done;
}

#endif
