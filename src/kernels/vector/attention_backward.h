/* The gradients of attention (scalar/attention_backward.c has the formulas). For each block of keys, and each block of
 * queries that sees it, strips of six queries compute their scores and dp = dout vᵀ; these become the weights
 * p f and ds, and extend dq. When the strips of a block are done, strips of six keys extend dv and dk, the
 * products with the transposed weights, whose depth is the queries of the block. Only the weights of one
 * block by another are ever stored.
 *
 * A hidden key has weight 0, times a query, key or value that may be nan: where a block has any, its products
 * leave weights of 0 out. */
#ifndef HEED_VECTOR_ATTENTION_BACKWARD_H
#define HEED_VECTOR_ATTENTION_BACKWARD_H

#include "attention_blocks.h"
#include "attention.h"

enum {
  BACK_ROWS = 96, /* queries of a block */
  BACK_STRIPS = BACK_ROWS / ATTEND_STRIP,
  BACK_KEYS = HEED__BACKWARD_KEYS, /* keys of a block, */
  BACK_LONG_KEYS = 64,             /* or this many, if rows are longer than BACK_LONG */
  BACK_LONG = 256,
  BACK_STRIDE = BACK_KEYS + 16, /* of rows of weights */
  BACK_GROUP = 48,              /* keys that a step of the transposed products extends */
  BACK_AT_ONCE = V_LANES == 8 ? 3 : 4, /* vectors of weights at a time */
};
_Static_assert(BACK_KEYS % ATTEND_TILE == 0 && BACK_LONG_KEYS % ATTEND_TILE == 0 &&
                   BACK_KEYS % BACK_LONG_KEYS == 0 && (int)BACK_KEYS <= (int)ATTEND_BLOCK,
               "blocks consist of whole tiles");
_Static_assert(BACK_GROUP % ATTEND_STRIP == 0, "groups consist of whole strips");

/* What is known of the blocks, kept in the scratch when the kernel yields. */
typedef struct back_state {
  bool keys_finite, rows_finite;
  int64_t low[BACK_STRIPS], high[BACK_STRIPS]; /* keys that the strips of the block of queries see */
  float lse[BACK_ROWS], delta[BACK_ROWS];      /* of its rows; lse inf: without gradients */
  float dbias[BACK_KEYS];                      /* sums over its rows, if the bias has one row */
} back_state;

typedef struct back_work {
  const heed__attention_backward_task *g;
  heed__attention_task t, exchanged; /* forward, and with keys and values exchanged */
  attend_work a, b;                  /* a packs panels of keys; b panels of values, and rows of keys */
  int64_t block, width, q_columns, v_columns; /* width: keys of a block in whole strips */
  float *q, *dout;  /* [BACK_ROWS, q_columns], scaled, and [BACK_ROWS, v_columns] */
  float *p, *ds;    /* [BACK_ROWS, BACK_STRIDE]: scores, then weights; dp, then ds and dr */
  float *dk, *dv;   /* [width, q_columns], [width, v_columns] */
  float *raw;       /* [BACK_STRIDE]: ds of a row, before the cap's derivative */
  back_state *state;
} back_work;

static size_t back_lay_out(back_work *w, const heed__attention_backward_task *g, float *base) {
  const heed__attention_task *f = &g->forward;
  w->g = g;
  w->t = *f;
  w->t.first = 0;
  w->t.last = f->query_length;
  w->exchanged = w->t;
  w->exchanged.k = f->v;
  w->exchanged.v = f->k;
  w->exchanged.k_dtype = f->v_dtype;
  w->exchanged.v_dtype = f->k_dtype;
  w->exchanged.k_scale = f->v_scale;
  w->exchanged.v_scale = f->k_scale;
  w->exchanged.k_scale_row = f->v_scale_row;
  w->exchanged.v_scale_row = f->k_scale_row;
  w->exchanged.k_row = f->v_row;
  w->exchanged.v_row = f->k_row;
  w->exchanged.k_column = f->v_column;
  w->exchanged.v_column = f->k_column;
  w->exchanged.head_size = f->value_size;
  w->exchanged.value_size = f->head_size;
  w->q_columns = round_up(f->head_size, V_LANES);
  w->v_columns = round_up(f->value_size, V_LANES);
  const int64_t longest = heed__max(w->q_columns, w->v_columns);
  w->block = longest > BACK_LONG ? BACK_LONG_KEYS : BACK_KEYS;
  w->width = round_up(w->block, ATTEND_STRIP);
  w->a = (attend_work){.t = &w->t, .columns = w->v_columns, .block = w->block};
  w->b = (attend_work){.t = &w->exchanged, .columns = w->q_columns, .block = w->block};
  size_t floats = 0;
#define BACK_AREA(name, size)                                                                                \
  name = base ? base + floats : NULL;                                                                        \
  floats += (size_t)round_up(size, HEED__ALIGNMENT / (int64_t)sizeof(float));
  BACK_AREA(w->q, BACK_ROWS * w->q_columns)
  BACK_AREA(w->dout, BACK_ROWS * w->v_columns)
  BACK_AREA(w->p, BACK_ROWS * BACK_STRIDE)
  BACK_AREA(w->ds, BACK_ROWS * BACK_STRIDE)
  BACK_AREA(w->raw, BACK_STRIDE)
  BACK_AREA(w->dk, w->width * w->q_columns)
  BACK_AREA(w->dv, w->width * w->v_columns)
  BACK_AREA(w->a.keys, w->block * f->head_size)
  BACK_AREA(w->b.keys, w->block * f->value_size)
  BACK_AREA(w->b.values, w->block * w->q_columns)
  BACK_AREA(w->a.bias, f->bias ? ATTEND_STRIP * ATTEND_STRIDE : 0)
  BACK_AREA(w->a.wide, f->k_dtype == HEED_FLOAT32 ? 0 : V_LANES * f->head_size)
  BACK_AREA(w->b.wide, f->v_dtype == HEED_FLOAT32 ? 0 : V_LANES * f->value_size)
#undef BACK_AREA
  w->state = base ? (back_state *)(void *)(base + floats) : NULL;
  floats += (sizeof *w->state + HEED__ALIGNMENT - 1) / HEED__ALIGNMENT * (HEED__ALIGNMENT / sizeof(float));
  return floats;
}

/* ---- Products ---- */

/* x [ATTEND_STRIP, vectors] = a [ATTEND_STRIP, depth] · b [depth, vectors] */
V_INLINE void back_product(vfloat x[ATTEND_STRIP][ATTEND_TILE_VECTORS], const float *a, ptrdiff_t a_row,
                           ptrdiff_t a_column, const float *b, ptrdiff_t b_row, int64_t depth,
                           const int vectors, const bool fetches) {
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) x[r][v] = v_zero();
  }
  TILE_TURNS
  for (int64_t p = 0; p < depth; p++, a += a_column, b += b_row) {
    vfloat y[ATTEND_TILE_VECTORS];
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      y[v] = v_load(b + v * V_LANES);
      if (fetches && v * V_LANES % 16 == 0) __builtin_prefetch(b + ATTEND_AHEAD * b_row + v * V_LANES);
    }
    V_UNROLL
    for (int r = 0; r < ATTEND_STRIP; r++) {
      const vfloat z = v_set(a[r * a_row]);
      V_UNROLL
      for (int v = 0; v < vectors; v++) x[r][v] = v_fma(z, y[v], x[r][v]);
    }
  }
}

/* Weights of a strip with `vectors` of a panel: out = rows · panel. */
V_INLINE void back_score(float *out, const float *rows, int64_t columns, const float *panel, int64_t depth,
                         const int vectors) {
  vfloat x[ATTEND_STRIP][ATTEND_TILE_VECTORS];
  back_product(x, rows, columns, 1, panel, ATTEND_TILE, depth, vectors, true);
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) v_store(out + r * BACK_STRIDE + v * V_LANES, x[r][v]);
  }
}

/* out = rows [ATTEND_STRIP, columns] · panels, for keys low…high-1; low is a multiple of V_LANES */
NOT_INLINE void back_scores(float *out, const float *rows, int64_t columns, const float *panels,
                            int64_t depth, int64_t low, int64_t high) {
  for (int64_t j = low; j < high;) {
    const int64_t at = j % ATTEND_TILE;
    const int64_t count = heed__min(ATTEND_TILE - at, round_up(high - j, V_LANES));
    const float *panel = panels + (j - at) * depth + at;
    BY_VECTORS(count / V_LANES, back_score(out + j, rows, columns, panel, depth, vectors))
    j += count;
  }
}

/* out [rows, columns of edge] += x · scale; `edge`: the lanes of the last vector that exist */
V_INLINE void back_extend_dq(float *out, ptrdiff_t out_row, int64_t rows, const float *weights,
                             const float *keys, int64_t columns, int64_t n, float scale, vmask edge,
                             const int vectors) {
  vfloat x[ATTEND_STRIP][ATTEND_TILE_VECTORS];
  back_product(x, weights, BACK_STRIDE, 1, keys, columns, n, vectors, true);
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    if (r >= rows) break;
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      float *to = out + r * out_row + v * V_LANES;
      if (v + 1 < vectors)
        v_store(to, v_fma(x[r][v], v_set(scale), v_load(to)));
      else
        v_store_masked(to, v_fma(x[r][v], v_set(scale), v_load_masked(to, edge)), edge);
    }
  }
}

NOT_INLINE void back_dq_tile(float *out, ptrdiff_t out_row, int64_t rows, const float *weights,
                             const float *keys, int64_t columns, int64_t n, float scale, vmask edge,
                             int64_t count) {
  BY_VECTORS(count, back_extend_dq(out, out_row, rows, weights, keys, columns, n, scale, edge, vectors))
}

/* out [ATTEND_STRIP keys, columns] += weightsᵀ · rows [n, columns] */
V_INLINE void back_extend_keys(float *out, const float *weights, const float *rows, int64_t columns,
                               int64_t n, const int vectors) {
  vfloat x[ATTEND_STRIP][ATTEND_TILE_VECTORS];
  back_product(x, weights, 1, BACK_STRIDE, rows, columns, n, vectors, false);
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) {
    V_UNROLL
    for (int v = 0; v < vectors; v++) {
      float *to = out + r * columns + v * V_LANES;
      v_store(to, v_add(v_load(to), x[r][v]));
    }
  }
}

NOT_INLINE void back_keys_tile(float *out, const float *weights, const float *rows, int64_t columns,
                               int64_t n, int64_t count) {
  BY_VECTORS(count, back_extend_keys(out, weights, rows, columns, n, vectors))
}

/* The same two without weights of 0, whatever they are multiplied by. */
static void back_dq_seen(float *out, const float *weights, const float *keys, int64_t columns, int64_t d,
                         int64_t n, float scale) {
  for (int64_t c = 0; c < d; c++) {
    float x = 0.0f;
    for (int64_t j = 0; j < n; j++)
      if (weights[j] != 0.0f) x += weights[j] * keys[j * columns + c];
    out[c] += x * scale;
  }
}
static void back_keys_seen(float *out, const float *weights, const float *rows, int64_t columns, int64_t n) {
  for (int64_t c = 0; c < columns; c++) {
    float x = 0.0f;
    for (int64_t i = 0; i < n; i++)
      if (weights[i * BACK_STRIDE] != 0.0f) x += weights[i * BACK_STRIDE] * rows[i * columns + c];
    out[c] += x;
  }
}

/* ---- Packing ---- */

static void back_pack_keys(const back_work *w, const seen *e) {
  const heed__attention_backward_task *g = w->g;
  pack_keys(&w->a, e);
  pack_keys(&w->b, e);
  if (values_of_block(&w->b, e) == w->b.values) pack_values(&w->b, e);
  const float *rows = values_of_block(&w->b, e) + e->begin * w->q_columns;
  w->state->keys_finite = are_finite(rows, (e->count - e->begin) * w->q_columns);
  if (g->dk) memset(w->dk, 0, (size_t)(w->width * w->q_columns) * sizeof(float));
  if (g->dv) memset(w->dv, 0, (size_t)(w->width * w->v_columns) * sizeof(float));
}

/* out = x · factor, padded with zeros to whole vectors */
static void back_pack_row(float *out, const float *x, ptrdiff_t column, float factor, int64_t n) {
  scale_whole_row(out, x, column, factor, n);
  for (int64_t c = n; c % V_LANES != 0; c++) out[c] = 0.0f;
}

/* Packs the queries of a block from row i0 on, and dout. */
static void back_pack_rows(const back_work *w, int64_t i0) {
  const heed__attention_backward_task *g = w->g;
  const heed__attention_task *t = &w->t;
  back_state *state = w->state;
  const int64_t rows = heed__min(BACK_ROWS, t->query_length - i0), padded = round_up(rows, ATTEND_STRIP);
  for (int64_t r = 0; r < padded; r++) {
    float *q = w->q + r * w->q_columns, *dout = w->dout + r * w->v_columns;
    const int64_t i = i0 + r;
    state->lse[r] = r < rows && t->lse[i] != -INFINITY ? t->lse[i] : INFINITY;
    state->delta[r] = 0.0f;
    if (state->lse[r] == INFINITY) {
      memset(q, 0, (size_t)w->q_columns * sizeof(float));
      memset(dout, 0, (size_t)w->v_columns * sizeof(float));
      continue;
    }
    back_pack_row(q, t->q + i * t->q_row, t->q_column, t->scale, t->head_size);
    back_pack_row(dout, g->dout + i * g->dout_row, g->dout_column, 1.0f, t->value_size);
    state->delta[r] = g->delta[i];
  }
  state->rows_finite = are_finite(w->q, padded * w->q_columns) && are_finite(w->dout, padded * w->v_columns);
  if (g->dbias && g->dbias_row == 0) memset(state->dbias, 0, sizeof state->dbias);
}

/* ---- Weights ---- */

/* What the weights of a row need: its number in the strip, its query, δ and the rest. */
typedef struct back_row {
  const back_work *w;
  const seen *e;
  int r;
  int64_t i;
  float *p, *ds;
  const uint16_t *kept; /* of the block's first key; NULL: no dropout */
  float lse, delta;
  vfloat slope_sum;
} back_row;

static vmask back_bits(const uint16_t *words, int64_t j) {
  const unsigned bits = (unsigned)words[j / ATTEND_WORD] >> j % ATTEND_WORD;
  return v_mask_from_bits(bits & ((1u << V_LANES) - 1u));
}

/* Turns `count` vectors of scores and dp, from key j on, into weights and dr. plain: without cap, bias, slope
 * and dropout, and no gradient of a bias or slope is wanted. sure: all keys are seen. */
V_INLINE void back_weigh(back_row *row, int64_t j, const int count, const bool sure, const bool plain) {
  const back_work *w = row->w;
  const heed__attention_task *t = &w->t;
  const float cap = plain ? 0.0f : t->softcap, inverse = cap > 0.0f ? 1.0f / cap : 0.0f;
  const float slope = plain ? 0.0f : t->slope;
  const int64_t position = row->i + t->offset - row->e->first;
  vfloat x[BACK_AT_ONCE], bend[BACK_AT_ONCE], y[BACK_AT_ONCE];
#define BACK_EACH V_UNROLL for (int v = 0; v < count; v++)
  BACK_EACH x[v] = v_load(row->p + j + v * V_LANES);
  if (cap > 0.0f) {
    BACK_EACH {
      x[v] = cap_score(x[v], cap, inverse);
      const vfloat part = v_mul(x[v], v_set(inverse));
      bend[v] = v_fnma(part, part, v_set(1.0f));
    }
  }
  if (!plain && t->bias) {
    BACK_EACH x[v] = v_add(x[v], v_load(w->a.bias + row->r * ATTEND_STRIDE + j + v * V_LANES));
  }
  if (slope != 0.0f) {
    BACK_EACH x[v] = slope_off(x[v], slope, position - j - v * V_LANES, 1.0f);
  }
  BACK_EACH x[v] = without_tiny(v_sub(x[v], v_set(row->lse)));
  exp_flushed(x, count);
  if (!sure) {
    BACK_EACH x[v] = v_select(back_bits(row->e->bit[row->r], j + v * V_LANES), x[v], v_zero());
  }
  BACK_EACH y[v] = v_load(row->ds + j + v * V_LANES);
  if (!plain && row->kept) {
    const vfloat factor = v_set(w->g->kept_scale);
    BACK_EACH {
      const vmask kept = back_bits(row->kept, j + v * V_LANES);
      v_store(row->p + j + v * V_LANES, v_select(kept, v_mul(x[v], factor), v_zero()));
      y[v] = v_select(kept, v_mul(y[v], factor), v_zero());
    }
  } else {
    BACK_EACH v_store(row->p + j + v * V_LANES, x[v]);
  }
  BACK_EACH y[v] = v_mul(x[v], v_sub(y[v], v_set(row->delta)));
  if (!sure) {
    BACK_EACH y[v] = v_select(back_bits(row->e->bit[row->r], j + v * V_LANES), y[v], v_zero());
  }
  if (!plain && w->g->dbias) {
    BACK_EACH v_store(w->raw + j + v * V_LANES, y[v]);
  }
  if (!plain && w->g->dslope) {
    BACK_EACH {
      const vfloat distance = slope_off(v_zero(), 1.0f, position - j - v * V_LANES, 1.0f); /* negative */
      row->slope_sum = v_fma(y[v], distance, row->slope_sum);
    }
  }
  if (cap > 0.0f) {
    BACK_EACH y[v] = v_mul(y[v], bend[v]);
  }
  BACK_EACH v_store(row->ds + j + v * V_LANES, y[v]);
#undef BACK_EACH
}

V_INLINE void back_weigh_between(back_row *row, int64_t from, int64_t to, const bool sure, const bool plain) {
  int64_t j = from;
  for (; j + BACK_AT_ONCE * V_LANES <= to; j += BACK_AT_ONCE * V_LANES)
    back_weigh(row, j, BACK_AT_ONCE, sure, plain);
  for (; j < to; j += V_LANES) back_weigh(row, j, 1, sure, plain);
}

V_INLINE void back_weigh_row(back_row *row, const bool plain) {
  const seen *e = row->e;
  back_weigh_between(row, e->low, e->sure_first, false, plain);
  back_weigh_between(row, e->sure_first, e->sure_last, true, plain);
  back_weigh_between(row, e->sure_last, e->high, false, plain);
}
NOT_INLINE void back_weigh_plain(back_row *row) {
  back_weigh_row(row, true);
}
NOT_INLINE void back_weigh_any(back_row *row) {
  back_weigh_row(row, false);
}

/* Adds ds of a row, in w->raw, to the gradient of the bias. */
static void back_add_bias(const back_work *w, const seen *e, int64_t i) {
  const heed__attention_backward_task *g = w->g;
  const ptrdiff_t column = g->dbias_column;
  float *sum = w->state->dbias, *to = g->dbias + i * g->dbias_row + e->first * column;
  int64_t j = e->low;
  if (g->dbias_row == 0) {
    for (; j < e->high; j++) sum[j] += w->raw[j];
  } else if (column == 0) {
    float x = 0.0f;
    for (; j < e->high; j++) x += w->raw[j];
    *to += x;
  } else if (column == 1) {
    for (; j + V_LANES <= e->high; j += V_LANES) v_store(to + j, v_add(v_load(to + j), v_load(w->raw + j)));
    for (; j < e->high; j++) to[j] += w->raw[j];
  } else {
    for (; j < e->high; j++) to[j * column] += w->raw[j];
  }
}

/* After a block of queries: adds the sums over its rows to a bias with one row. */
static void back_flush_bias(const back_work *w, const seen *e) {
  const heed__attention_backward_task *g = w->g;
  float *to = g->dbias + e->first * g->dbias_column, x = 0.0f;
  for (int64_t j = heed__max(e->begin, 0); j < e->count; j++) {
    if (g->dbias_column != 0)
      to[j * g->dbias_column] += w->state->dbias[j];
    else
      x += w->state->dbias[j];
  }
  if (g->dbias_column == 0) *to += x;
}

/* ---- Steps ---- */

static void back_clear(float *x, int64_t from, int64_t to) {
  for (int64_t j = from; j < to; j++) x[j] = 0.0f;
}

/* The strip of queries from row i0 on, number `strip` of its block: weights and dq. */
static void back_strip(const back_work *w, seen *e, int64_t i0, int64_t strip) {
  const heed__attention_backward_task *g = w->g;
  const heed__attention_task *t = &w->t;
  const int64_t rows = heed__min(ATTEND_STRIP, t->query_length - i0), at = strip * ATTEND_STRIP;
  float *p = w->p + at * BACK_STRIDE, *ds = w->ds + at * BACK_STRIDE;
  const bool plain = !t->bias && t->softcap == 0.0f && t->slope == 0.0f && !g->kept && !g->dbias && !g->dslope;
  if (rows > 0) see(&w->a, e, i0);
  if (rows <= 0 || e->high <= e->low) e->low = e->high = 0;
  const int64_t low = e->low, high = e->high, end = round_up(high, V_LANES);
  w->state->low[strip] = low;
  w->state->high[strip] = high;
  for (int r = 0; r < ATTEND_STRIP; r++) {
    const bool dead = high == low || w->state->lse[at + r] == INFINITY;
    back_clear(p + r * BACK_STRIDE, 0, dead ? w->width : low);
    back_clear(ds + r * BACK_STRIDE, 0, dead ? w->width : low);
    back_clear(p + r * BACK_STRIDE, end, w->width);
    back_clear(ds + r * BACK_STRIDE, end, w->width);
  }
  if (high == low) return;
  back_scores(p, w->q + at * w->q_columns, w->q_columns, w->a.keys, t->head_size, low, high);
  back_scores(ds, w->dout + at * w->v_columns, w->v_columns, w->b.keys, t->value_size, low, high);
  for (int r = 0; r < ATTEND_STRIP; r++) {
    back_row row = {.w = w,
                    .e = e,
                    .r = r,
                    .i = i0 + r,
                    .p = p + r * BACK_STRIDE,
                    .ds = ds + r * BACK_STRIDE,
                    .lse = w->state->lse[at + r],
                    .delta = w->state->delta[at + r],
                    .slope_sum = v_zero()};
    if (row.lse == INFINITY) {
      back_clear(row.p, low, end);
      back_clear(row.ds, low, end);
      continue;
    }
    if (g->kept) row.kept = g->kept + row.i * g->kept_row + e->first / ATTEND_WORD;
    (plain ? back_weigh_plain : back_weigh_any)(&row);
    if (g->dbias) back_add_bias(w, e, row.i);
    if (g->dslope) *g->dslope += (double)v_sum(row.slope_sum);
  }
  if (!g->dq) return;
  const float *keys = e->values + low * w->q_columns;
  float *dq = g->dq + i0 * g->dq_row;
  for (int r = 0; !w->state->keys_finite && r < rows; r++)
    back_dq_seen(dq + r * g->dq_row, ds + r * BACK_STRIDE + low, keys, w->q_columns, t->head_size, high - low,
                 t->scale);
  for (int64_t c = 0; w->state->keys_finite && c < w->q_columns; c += ATTEND_TILE) {
    const int64_t columns = heed__min(t->head_size - c, ATTEND_TILE), count = (columns + V_LANES - 1) / V_LANES;
    back_dq_tile(dq + c, g->dq_row, rows, ds + low, keys + c, w->q_columns, high - low, t->scale,
                 v_first((size_t)(columns - (count - 1) * V_LANES)), count);
  }
}

/* Extends out [block, columns], dk or dv, for the keys k…k+ATTEND_STRIP-1 by strips first…last of queries. */
static void back_extend(const back_work *w, float *out, const float *weights, const float *rows,
                        int64_t columns, int64_t k, int64_t first, int64_t last) {
  const int64_t i = first * ATTEND_STRIP, n = (last - first + 1) * ATTEND_STRIP;
  weights += i * BACK_STRIDE + k;
  rows += i * columns;
  out += k * columns;
  if (!w->state->rows_finite) {
    for (int r = 0; r < ATTEND_STRIP; r++)
      back_keys_seen(out + r * columns, weights + r, rows, columns, n);
    return;
  }
  for (int64_t c = 0; c < columns; c += ATTEND_TILE)
    back_keys_tile(out + c, weights, rows + c, columns, n, (columns - c) / V_LANES);
}

/* Extends dv and dk of the keys from k on, BACK_GROUP of them. */
static void back_transposed(const back_work *w, const seen *e, int64_t k) {
  const back_state *state = w->state;
  const int64_t end = heed__min(k + BACK_GROUP, e->count);
  for (; k < end; k += ATTEND_STRIP) {
    int64_t first = 0, last = BACK_STRIPS - 1;
    while (first <= last && (state->low[first] >= k + ATTEND_STRIP || state->high[first] <= k)) first++;
    while (last >= first && (state->low[last] >= k + ATTEND_STRIP || state->high[last] <= k)) last--;
    if (first > last) continue;
    if (w->g->dv) back_extend(w, w->dv, w->p, w->dout, w->v_columns, k, first, last);
    if (w->g->dk) back_extend(w, w->dk, w->ds, w->q, w->q_columns, k, first, last);
  }
}

/* Adds rows begin…count-1 of x [block, columns] to rows of out, of n elements each. */
static void back_add_rows(float *out, ptrdiff_t out_row, const float *x, int64_t columns, const seen *e,
                          int64_t n) {
  for (int64_t j = e->begin; j < e->count; j++) {
    const float *from = x + j * columns;
    float *to = out + (e->first + j) * out_row;
    int64_t c = 0;
    for (; c + V_LANES <= n; c += V_LANES) v_store(to + c, v_add(v_load(to + c), v_load(from + c)));
    for (; c < n; c++) to[c] += from[c];
  }
}

/* A step is a strip of queries, then a group of keys, of a block by a block. */
bool KERNEL(attention_backward)(const heed__attention_backward_task *g, const heed__pace *pace,
                                int64_t *position) {
  back_work w;
  back_lay_out(&w, g, g->scratch);
  const heed__attention_task *t = &w.t;
  const int64_t l = t->query_length, steps = BACK_STRIPS + (w.block + BACK_GROUP - 1) / BACK_GROUP;
  const int64_t across = (l + BACK_ROWS - 1) / BACK_ROWS;
  if (l == 0) return true;
  int64_t begin, end, unused;
  heed__attention_window(t, 0, &begin, &unused);
  heed__attention_window(t, l - 1, &unused, &end);
  end = heed__min(end, g->last);
  const int64_t before = position ? *position : 0;
  int64_t block = before / (across * steps), rows = before / steps % across, step = before % steps;
  bool goes_on = before > 0;
  for (;; block++) {
    seen e = {.first = g->first + block * w.block};
    if (e.first >= end) return true;
    e.begin = heed__max(begin - e.first, 0);
    e.count = heed__min(end - e.first, w.block);
    if (e.begin >= e.count) continue;
    e.values = values_of_block(&w.b, &e);
    /* the rows whose windows meet these keys */
    const int64_t first = heed__max(e.first + 1 - t->window_end, 0) / BACK_ROWS;
    const int64_t last = heed__min(e.first + e.count - t->window_begin, l);
    const int64_t stop = last > 0 ? (last + BACK_ROWS - 1) / BACK_ROWS : 0;
    if (!goes_on) {
      rows = first;
      step = 0;
      if (rows < stop) back_pack_keys(&w, &e);
    }
    goes_on = false;
    if (rows >= stop) continue;
    for (; rows < stop; rows++, step = 0) {
      for (; step < steps; step++) {
        if (step == 0) back_pack_rows(&w, rows * BACK_ROWS);
        if (step < BACK_STRIPS)
          back_strip(&w, &e, rows * BACK_ROWS + step * ATTEND_STRIP, step);
        else
          back_transposed(&w, &e, (step - BACK_STRIPS) * BACK_GROUP);
        if (step == steps - 1 && g->dbias && g->dbias_row == 0) back_flush_bias(&w, &e);
        if (step == steps - 1 && rows == stop - 1) continue;
        if (heed__should_yield(pace)) {
          *position = (block * across + rows) * steps + step + 1;
          return false;
        }
      }
    }
    if (g->dk) back_add_rows(g->dk, g->dk_row, w.dk, w.q_columns, &e, t->head_size);
    if (g->dv) back_add_rows(g->dv, g->dv_row, w.dv, w.v_columns, &e, t->value_size);
  }
}

size_t KERNEL(attention_backward_scratch)(const heed__attention_backward_task *g) {
  back_work w;
  return back_lay_out(&w, g, NULL) * sizeof(float);
}

#endif
