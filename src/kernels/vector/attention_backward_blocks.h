/* The data of the kernel of attention's gradients (attention_backward.h): its scratch, its products, and the
 * packing of blocks. */
#ifndef HEED_VECTOR_ATTENTION_BACKWARD_BLOCKS_H
#define HEED_VECTOR_ATTENTION_BACKWARD_BLOCKS_H

#include "attention.h"
#include "attention_blocks.h"
#include "attention_masks.h"

enum {
  BACK_ROWS = 96, /* queries of a block */
  BACK_STRIPS = BACK_ROWS / ATTEND_STRIP,
  BACK_KEYS = HEED__BACKWARD_KEYS, /* keys of a block, */
  BACK_LONG_KEYS = 64,             /* or this many, if rows are longer than BACK_LONG */
  BACK_LONG = 256,
  BACK_STRIDE = BACK_KEYS + 16,        /* of rows of weights */
  BACK_GROUP = 48,                     /* keys that a step of the transposed products extends */
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
  float *q, *dout;                            /* [BACK_ROWS, q_columns], scaled, and [BACK_ROWS, v_columns] */
  float *p, *ds;  /* [BACK_ROWS, BACK_STRIDE]: scores, then weights; dp, then ds and dr */
  float *dk, *dv; /* [width, q_columns], [width, v_columns] */
  float *raw;     /* [BACK_STRIDE]: ds of a row, before the cap's derivative */
  float *hulls;   /* with intervals: the bounds of each block of queries together, pairs of int32_t */
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
  BACK_AREA(w->hulls, f->intervals ? 2 * ((f->query_length + BACK_ROWS - 1) / BACK_ROWS) : 0)
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
                             int64_t count){
    BY_VECTORS(count, back_extend_dq(out, out_row, rows, weights, keys, columns, n, scale, edge, vectors))}

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

/* The values of a block where rows from a multiple of ATTEND_WORD on can be read, without gaps: where they
 * are, or the scratch if they must be packed. */
static const float *values_of_block(const attend_work *a, const seen *e) {
  const heed__attention_task *t = a->t;
  const void *first = element_at(t->v, t->v_dtype, e->first * t->v_row);
  const bool in_place = t->v_row == a->columns && e->begin % ATTEND_WORD == 0 && are_values_aligned(t, first);
  return in_place ? first : a->values;
}

/* Sets to 0 the rows of packed values that precede the first, back to a multiple of ATTEND_WORD. */
static void pack_no_values(const attend_work *a, const seen *e) {
  for (int64_t i = round_down(e->begin, ATTEND_WORD) * a->columns; i < e->begin * a->columns; i++)
    a->values[i] = 0.0f;
}

static void back_pack_keys(const back_work *w, const seen *e) {
  const heed__attention_backward_task *g = w->g;
  pack_keys(&w->a, e);
  pack_keys(&w->b, e);
  if (values_of_block(&w->b, e) == w->b.values) {
    pack_no_values(&w->b, e);
    pack_values(&w->b, e);
  }
  const float *rows = values_of_block(&w->b, e) + e->begin * w->q_columns;
  w->state->keys_finite = are_finite(rows, (e->count - e->begin) * w->q_columns);
  const size_t keys = (size_t)round_up(e->count, ATTEND_STRIP);
  if (g->dk) memset(w->dk, 0, keys * (size_t)w->q_columns * sizeof(float));
  if (g->dv) memset(w->dv, 0, keys * (size_t)w->v_columns * sizeof(float));
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

#endif
