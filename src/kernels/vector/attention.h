/* The fused attention kernel, on the vector primitives. Keys and values are packed by blocks; for each block
 * every strip of six query rows gets its scores, their exponentials, and its output so far rescaled and added
 * to (the online softmax of arXiv:2205.14135). No more than a strip's scores of one block are ever there.
 *
 * A place that is not seen has weight 0, and its value is multiplied by that 0, which nan and inf would
 * survive: a partial block with such values goes a slow way.
 *
 * Numbers of a row depend on its own data only, as a place more or less with weight 0 changes no bit. */
#ifndef HEED_BODY_ATTENTION_H
#define HEED_BODY_ATTENTION_H

#include "small.h"

#include "attention_blocks.h"

/* ---- The two products ---- */

/* Where the run of keys that has key j ends; the same for all rows, wherever their strip starts. */
static int64_t run_end(int64_t j, int64_t high) {
  const int64_t end = (j / ATTEND_RUN_KEYS + 1) * ATTEND_RUN_KEYS;
  return end < high ? end : high;
}

/* scores [ATTEND_STRIP, vectors] = q [ATTEND_STRIP, d] · a tile of keys */
V_INLINE void score_vectors(float *scores, const float *q, const float *keys, int64_t d, const int vectors) {
  vfloat x[ATTEND_STRIP][ATTEND_TILE_VECTORS];
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) x[r][v] = v_zero();
  }
  TILE_TURNS
  for (int64_t c = 0; c < d; c++) {
    vfloat k[ATTEND_TILE_VECTORS];
    V_UNROLL
    for (int v = 0; v < vectors; v++) k[v] = v_load(keys + c * ATTEND_TILE + v * V_LANES);
    V_UNROLL
    for (int r = 0; r < ATTEND_STRIP; r++) {
      const vfloat y = v_set(q[r * d + c]);
      V_UNROLL
      for (int v = 0; v < vectors; v++) x[r][v] = v_fma(y, k[v], x[r][v]);
    }
  }
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) v_store(scores + r * ATTEND_STRIDE + v * V_LANES, x[r][v]);
  }
}

/* out [ATTEND_STRIP, vectors] = out · factor + weights [ATTEND_STRIP, n] · values [n, vectors] */
V_INLINE void value_vectors(float *out, const float *factor, const float *weights, const float *values,
                            int64_t n, int64_t columns, const int vectors) {
  vfloat x[ATTEND_STRIP][ATTEND_TILE_VECTORS];
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) x[r][v] = v_zero();
  }
  TILE_TURNS
  for (int64_t j = 0; j < n; j++) {
    vfloat y[ATTEND_TILE_VECTORS];
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      y[v] = v_load(values + v * V_LANES);
      if (v * V_LANES % 16 == 0) __builtin_prefetch(values + ATTEND_AHEAD * columns + v * V_LANES);
    }
    V_UNROLL
    for (int r = 0; r < ATTEND_STRIP; r++) {
      const vfloat p = v_set(weights[r * ATTEND_STRIDE + j]);
      V_UNROLL
      for (int v = 0; v < vectors; v++) x[r][v] = v_fma(p, y[v], x[r][v]);
    }
    values += columns;
  }
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      const vfloat before = v_load(out + v * V_LANES);
      v_store(out + v * V_LANES, v_add(factor ? v_mul(before, v_set(factor[r])) : before, x[r][v]));
    }
    out += columns;
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

/* Not inline: what lives around the loops would take registers from them, an eighth of the speed. */
#define NOT_INLINE __attribute__((noinline)) static

/* scores = q · keys low … high; low is a multiple of ATTEND_TILE */
NOT_INLINE void score_tiles(float *scores, const float *q, const float *keys, int64_t d, int64_t low,
                            int64_t high) {
  int64_t j = low;
  for (; j + ATTEND_TILE - V_LANES < high; j += ATTEND_TILE)
    score_vectors(scores + j, q, keys + j * d, d, ATTEND_TILE_VECTORS);
  if (j < high)
    BY_VECTORS((high - j + V_LANES - 1) / V_LANES, score_vectors(scores + j, q, keys + j * d, d, vectors))
}

/* out [ATTEND_STRIP, vectors] = out · factor + weights · values low … high */
V_INLINE void value_runs(float *out, const float *factor, const float *weights, const float *values,
                         int64_t low, int64_t high, int64_t columns, const int vectors) {
  for (int64_t j = low; j < high; factor = NULL) {
    const int64_t end = run_end(j, high);
    value_vectors(out, factor, weights + j, values + j * columns, end - j, columns, vectors);
    j = end;
  }
}

NOT_INLINE void value_tile(float *out, const float *factor, const float *weights, const float *values,
                           int64_t low, int64_t high, int64_t columns, int64_t count) {
  BY_VECTORS(count, value_runs(out, factor, weights, values, low, high, columns, vectors))
}

/* While a strip is scored, what the masks say to the next one is on its way, some lines for each tile. */
static void score_strip(const attend_work *a, const seen *e, const attend_strip *s) {
  const heed__attention_task *t = a->t;
  const int64_t next = t->first + s->row + ATTEND_STRIP, rows = lesser(ATTEND_STRIP, t->last - next);
  const uint8_t *visible = t->visible_row != 0 && t->visible_column == 1 ? t->visible : NULL;
  const float *bias = t->bias_row != 0 && t->bias_column == 1 ? t->bias : NULL;
  int64_t j = round_down(e->low, ATTEND_TILE);
  for (; (visible || bias) && rows > 0 && j + ATTEND_TILE <= e->high; j += ATTEND_TILE) {
    const int64_t key = e->first + j;
    if (visible && key % HEED__ALIGNMENT == 0)
      fetch_rows(visible + next * t->visible_row + key, HEED_BOOL, t->visible_row,
                 lesser(HEED__ALIGNMENT, t->key_length - key), 0, rows);
    if (bias) fetch_rows(bias + next * t->bias_row + key, HEED_FLOAT32, t->bias_row, ATTEND_TILE, 0, rows);
    score_tiles(a->scores, s->q, a->keys, t->head_size, j, j + ATTEND_TILE);
  }
  score_tiles(a->scores, s->q, a->keys, t->head_size, j, e->high);
}

static void weigh_strip(const attend_work *a, const seen *e, float *out, const float *factor) {
  const int64_t columns = a->columns;
  for (int64_t c = 0; c < columns; c += ATTEND_TILE)
    value_tile(out + c, factor, a->scores, e->values + c, e->low, e->high, columns, (columns - c) / V_LANES);
}

/* The same in the same order, but what a row does not see is left out. */
static void weigh_seen(const attend_work *a, const seen *e, float *out, const float *factor) {
  const int64_t columns = a->columns;
  for (int r = 0; r < ATTEND_STRIP; r++, out += columns) {
    for (int64_t c = 0; c < columns; c += V_LANES) {
      vfloat sum = v_mul(v_load(out + c), v_set(factor[r]));
      for (int64_t j = e->low; j < e->high;) {
        const int64_t end = run_end(j, e->high);
        vfloat x = v_zero();
        for (; j < end; j++)
          if ((j >= e->sure_first && j < e->sure_last) || (e->bit[r][j / ATTEND_WORD] >> j % ATTEND_WORD & 1))
            x = v_fma(v_set(a->scores[r * ATTEND_STRIDE + j]), v_load(e->values + j * columns + c), x);
        sum = v_add(sum, x);
      }
      v_store(out + c, sum);
    }
  }
}

/* ---- Softmax ---- */

/* The scores of a row from `from` to before `to`, capped, biased and, unless all are sure, hidden; r is the
 * row in the strip, i the query. Their highest, lane by lane, and `most`. */
static vfloat change(const attend_work *a, const seen *e, int r, int64_t i, int64_t from, int64_t to,
                     bool sure, vfloat most) {
  const heed__attention_task *t = a->t;
  const float *bias = t->bias ? a->bias + r * ATTEND_STRIDE : NULL;
  const float cap = t->softcap, inverse = cap > 0.0f ? 1.0f / cap : 0.0f, slope = t->slope;
  const int64_t place = i + t->offset - e->first;
  float *scores = a->scores + r * ATTEND_STRIDE;
  for (int64_t j = from; j < to; j += V_LANES) {
    vfloat x = v_load(scores + j);
    if (cap > 0.0f) x = cap_score(x, cap, inverse);
    if (bias) x = v_add(x, v_load(bias + j));
    if (slope != 0.0f) x = slope_off(x, slope, place - j, 1.0f);
    if (!sure) {
      const unsigned bits = (unsigned)e->bit[r][j / ATTEND_WORD] >> j % ATTEND_WORD;
      x = v_select(v_mask_from_bits(bits & ((1u << V_LANES) - 1u)), x, v_set(-INFINITY));
    }
    v_store(scores + j, x);
    most = v_max(most, x);
  }
  return most;
}

/* Plain scores from `from` to before `to`, hidden where a row does not see; their highest with `most`. */
V_INLINE void hide(const attend_work *a, const seen *e, int64_t from, int64_t to, vfloat most[ATTEND_STRIP]) {
  for (int64_t j = from; j < to; j += V_LANES) {
    V_UNROLL
    for (int r = 0; r < ATTEND_STRIP; r++) {
      const unsigned bits = (unsigned)e->bit[r][j / ATTEND_WORD] >> j % ATTEND_WORD & ((1u << V_LANES) - 1u);
      float *scores = a->scores + r * ATTEND_STRIDE + j;
      const vfloat x = v_select(v_mask_from_bits(bits), v_load(scores), v_set(-INFINITY));
      v_store(scores, x);
      most[r] = v_max(most[r], x);
    }
  }
}

/* The highest of each row's scores, once they are what they shall be; `row` is the strip's first, from the
 * task's first. */
static void highest(const attend_work *a, const seen *e, int64_t row, float top[ATTEND_STRIP]) {
  const heed__attention_task *t = a->t;
  const bool plain = !t->bias && t->softcap == 0.0f && t->slope == 0.0f;
  vfloat most[ATTEND_STRIP], other[ATTEND_STRIP]; /* two, as a maximum waits for the one before */
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) most[r] = other[r] = v_set(-INFINITY);
  if (plain) {
    int64_t j = e->sure_first;
    for (; j + 2 * V_LANES <= e->sure_last; j += 2 * V_LANES) {
      V_UNROLL
      for (int r = 0; r < ATTEND_STRIP; r++) {
        most[r] = v_max(most[r], v_load(a->scores + r * ATTEND_STRIDE + j));
        other[r] = v_max(other[r], v_load(a->scores + r * ATTEND_STRIDE + j + V_LANES));
      }
    }
    V_UNROLL
    for (int r = 0; r < ATTEND_STRIP; r++) {
      if (j < e->sure_last) other[r] = v_max(other[r], v_load(a->scores + r * ATTEND_STRIDE + j));
      most[r] = v_max(most[r], other[r]);
    }
    hide(a, e, e->low, e->sure_first, most);
    hide(a, e, e->sure_last, e->high, most);
  }
  for (int r = 0; !plain && r < ATTEND_STRIP; r++) {
    const int64_t i = t->first + row + r;
    most[r] = change(a, e, r, i, e->low, e->sure_first, false, most[r]);
    most[r] = change(a, e, r, i, e->sure_first, e->sure_last, true, most[r]);
    most[r] = change(a, e, r, i, e->sure_last, e->high, false, most[r]);
  }
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) top[r] = v_highest(most[r]);
}

/* Where e^x is below 2^-92: nothing beside the highest, whose e^x is 1. Left as it is, it would make numbers
 * below the smallest normal one of products with values, each of which costs an Intel processor some 150
 * cycles; slopes and biases bring whole runs of them. */
static inline vfloat without_specks(vfloat x) {
  return v_select(v_lt(x, v_set(-64.0f)), v_set(-INFINITY), x);
}

/* Rows of a strip whose powers are taken together: enough of them that no step waits, and no more than the
 * registers hold. */
enum { ATTEND_RAISED = V_LANES == 8 ? 3 : ATTEND_STRIP };

/* n scores of each of ATTEND_RAISED rows to powers of e, and their sums. The difference to the highest is
 * exact where weights are large: with log2 e in the queries errors were twice PyTorch's. */
V_INLINE void raise_rows(float *scores, const float *most, int64_t n, float *sums, const bool specks) {
  vfloat sum[ATTEND_RAISED], x[ATTEND_RAISED];
  V_UNROLL
  for (int r = 0; r < ATTEND_RAISED; r++) sum[r] = v_zero();
  for (int64_t j = 0; j < n; j += V_LANES) {
    V_UNROLL
    for (int r = 0; r < ATTEND_RAISED; r++) {
      x[r] = v_sub(v_load(scores + r * ATTEND_STRIDE + j), v_set(most[r]));
      if (specks) x[r] = without_specks(x[r]);
    }
    exp_flushed(x, ATTEND_RAISED);
    V_UNROLL
    for (int r = 0; r < ATTEND_RAISED; r++) {
      sum[r] = v_add(sum[r], x[r]);
      v_store(scores + r * ATTEND_STRIDE + j, x[r]);
    }
  }
  V_UNROLL
  for (int r = 0; r < ATTEND_RAISED; r++) sums[r] = v_sum(sum[r]);
}

static void raise(float *scores, const float most[ATTEND_STRIP], int64_t n, float sums[ATTEND_STRIP]) {
  for (int r = 0; r < ATTEND_STRIP; r += ATTEND_RAISED)
    raise_rows(scores + r * ATTEND_STRIDE, most + r, n, sums + r, false);
}
static void raise_specked(float *scores, const float most[ATTEND_STRIP], int64_t n,
                          float sums[ATTEND_STRIP]) {
  for (int r = 0; r < ATTEND_STRIP; r += ATTEND_RAISED)
    raise_rows(scores + r * ATTEND_STRIDE, most + r, n, sums + r, true);
}

/* The strip's scores to weights. factor: what its sums and outputs so far are to be multiplied by. */
static void soften(const attend_work *a, const seen *e, const attend_strip *s, float *factor) {
  const heed__attention_task *t = a->t;
  const int64_t n = e->high - e->low, row = s->row;
  float *most = s->most, *sum = s->sum, *scores = a->scores + e->low;
  float shift[16] = {0}; /* whole vectors of ATTEND_STRIP lanes */
  float top[ATTEND_STRIP], sums[ATTEND_STRIP];
  highest(a, e, row, top);
  for (int r = 0; r < ATTEND_STRIP; r++) {
    const float now = top[r] > most[r] ? top[r] : most[r];
    top[r] = now == -INFINITY ? 0.0f : now; /* where nothing has been seen yet */
    shift[r] = most[r] - top[r];
    most[r] = now;
  }
  for (int r = 0; r < 16; r += V_LANES) {
    vfloat x = without_specks(v_load(shift + r));
    exp_flushed(&x, 1);
    v_store(factor + r, x);
  }
  (t->bias || t->slope != 0.0f ? raise_specked : raise)(scores, top, n, sums);
  for (int r = 0; r < ATTEND_STRIP; r++) sum[r] = sum[r] * factor[r] + sums[r];
  for (int r = 0; t->dropout_mask && r < ATTEND_STRIP && t->first + row + r < t->last; r++) {
    const float *keep = t->dropout_mask + (row + r) * t->key_length + e->first + e->low;
    for (int64_t j = 0; j < n; j++) scores[r * ATTEND_STRIDE + j] *= keep[j];
  }
}

/* ---- The kernel ---- */

/* Query i's output [dv] = x / sum */
static void write_row(const heed__attention_task *t, int64_t i, const float *x, float sum) {
  float *out = t->out + i * t->out_row;
  int64_t c = 0;
  if (sum == 0.0f) { /* nothing is seen: zeros, whatever was multiplied by 0 */
    for (; c < t->value_size; c++) out[c * t->out_column] = 0.0f;
    return;
  }
  if (t->out_column == 1) {
    const vfloat whole = v_set(sum), part = v_set(1.0f / sum);
    for (; c + V_LANES <= t->value_size; c += V_LANES) {
      const vfloat y = v_load(x + c), near = v_mul(y, part), left = v_fnma(near, whole, y);
      v_store(out + c, v_select(v_isnan(left), near, v_fma(left, part, near))); /* as divided, but quicker */
    }
  }
  for (; c < t->value_size; c++) out[c * t->out_column] = x[c] / sum;
}

/* Where a sink is not finite, rows that see nothing still give zeros. */
static bool sees_any(const heed__attention_task *t, int64_t i) {
  int64_t first, last;
  heed__attention_window(t, i, &first, &last);
  while (first < last && heed__attention_hides(t, i, first)) first++;
  return first < last;
}

/* Before the first block: the strip's queries scaled, nothing seen but the sink. */
static void begin_strip(const attend_work *a, const attend_strip *s, bool sink) {
  const heed__attention_task *t = a->t;
  float *q = s->q, *out = s->out;
  for (int64_t r = 0, i = t->first + s->row; r < ATTEND_STRIP;
       r++, i++, q += t->head_size, out += a->columns) {
    if (i < t->last) {
      scale_whole_row(q, t->q + i * t->q_row, t->q_column, t->scale, t->head_size);
    } else {
      for (int64_t c = 0; c < t->head_size; c++) q[c] = 0.0f;
    }
    for (int64_t c = 0; c < a->columns; c += V_LANES) v_store(out + c, v_zero());
    s->most[r] = sink ? t->sink : -INFINITY;
    s->sum[r] = sink ? 1.0f : 0.0f;
  }
}

/* After the last block. */
static void write_strip(const attend_work *a, const attend_strip *s, bool sink) {
  const heed__attention_task *t = a->t;
  for (int64_t r = 0, i = t->first + s->row; r < ATTEND_STRIP && i < t->last; r++, i++) {
    const bool nothing = sink && !isfinite(t->sink) && !sees_any(t, i);
    write_row(t, i, s->out + r * a->columns, nothing ? 0.0f : s->sum[r]);
  }
}

/* Whether 0 times a value is 0, where a row of the strip does not see all that others see: looked at in the
 * strip's own places while they are few, else in the whole block, once (block: -1 before). */
static bool hides_finite(const attend_work *a, const seen *e, int *block) {
  const int64_t columns = a->columns, before = e->sure_first - e->low, behind = e->high - e->sure_last;
  if (*block < 0 && before + behind <= 2 * ATTEND_WORD + ATTEND_STRIP)
    return are_finite(e->values + e->low * columns, before * columns) &&
           are_finite(e->values + e->sure_last * columns, behind * columns);
  if (*block < 0) *block = are_finite(e->values + e->begin * columns, (e->count - e->begin) * columns);
  return *block;
}

/* A step is a strip on a block of keys, block after block. In the first the strip's rows begin, in the last
 * they are written; between them they stay in the scratch, with the packed block. */
static bool k_attention(const heed__attention_task *t, const heed__pace *pace, int64_t *position) {
  if (heed__attention_is_small(t)) {
    attend_small(t);
    return true;
  }
  attend_work a;
  lay_out(&a, t, t->scratch);
  const bool sink = t->has_sink && t->sink != -INFINITY;
  int64_t begin, end, unused;
  heed__attention_window(t, t->first, &begin, &unused);
  heed__attention_window(t, t->last - 1, &unused, &end);
  const int64_t start = begin < end ? round_down(begin, a.block) : end;
  const int64_t blocks = greater((end - start + a.block - 1) / a.block, 1), strips = a.rows / ATTEND_STRIP;
  const int64_t before = position ? *position : 0;
  if (before == 0) *a.packed = -1;
  int64_t at = before % strips;
  for (int64_t block = before / strips; block < blocks; block++, at = 0) {
    const int64_t first = start + block * a.block;
    seen e = {.first = first, .begin = greater(begin - first, 0), .count = lesser(end - first, a.block)};
    int finite = -1;
    for (; at < strips; at++) {
      const attend_strip s = strip_of(&a, at * ATTEND_STRIP, blocks > 1);
      if (block == 0) begin_strip(&a, &s, sink);
      see(&a, &e, t->first + s.row);
      if (e.high > e.low) {
        if (!e.values) pack_block(&a, &e);
        float factor[16];
        score_strip(&a, &e, &s);
        soften(&a, &e, &s, factor);
        const bool whole = e.sure_first <= e.low && e.sure_last >= e.high;
        (whole || hides_finite(&a, &e, &finite) ? weigh_strip : weigh_seen)(&a, &e, s.out, factor);
      }
      if (block == blocks - 1) write_strip(&a, &s, sink);
      if (heed__leaves(pace) && (block < blocks - 1 || at < strips - 1)) {
        *position = block * strips + at + 1;
        return false;
      }
    }
  }
  return true;
}

static size_t k_attention_scratch(const heed__attention_task *t) {
  attend_work a;
  if (heed__attention_is_small(t)) return 0;
  return lay_out(&a, t, NULL) * sizeof(float);
}

#endif
