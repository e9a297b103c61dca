/* The gradients of attention (scalar/attention_backward.c has the formulas). For each block of keys, and each
 * block of queries that sees it, strips of six queries compute their scores and dp = dout vᵀ; these become
 * the weights p f and ds, and extend dq. When the strips of a block are done, strips of six keys extend dv
 * and dk, the products with the transposed weights, whose depth is the queries of the block. Only the weights
 * of one block by another are ever stored.
 *
 * A hidden key has weight 0, times a query, key or value that may be nan: where a block has any, its products
 * leave weights of 0 out. */
#ifndef HEED_VECTOR_ATTENTION_BACKWARD_H
#define HEED_VECTOR_ATTENTION_BACKWARD_H

#include "attention_backward_blocks.h"

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

/* Clears whole vectors; a row has capacity for the last one. */
static void back_clear(float *x, int64_t from, int64_t to) {
  for (int64_t j = from; j < to; j += V_LANES) v_store(x + j, v_zero());
}

/* The strip of queries from row i0 on, number `strip` of its block: weights and dq. */
static void back_strip(const back_work *w, seen *e, int64_t i0, int64_t strip) {
  const heed__attention_backward_task *g = w->g;
  const heed__attention_task *t = &w->t;
  const int64_t rows = heed__min(ATTEND_STRIP, t->query_length - i0), at = strip * ATTEND_STRIP;
  float *p = w->p + at * BACK_STRIDE, *ds = w->ds + at * BACK_STRIDE;
  const bool plain =
      !t->bias && t->softcap == 0.0f && t->slope == 0.0f && !g->kept && !g->dbias && !g->dslope;
  if (rows > 0) see(&w->a, e, i0);
  if (rows <= 0 || e->high <= e->low) e->low = e->high = 0;
  const int64_t low = e->low, high = e->high, end = round_up(high, V_LANES);
  const int64_t width = round_up(e->count, ATTEND_STRIP);
  w->state->low[strip] = low;
  w->state->high[strip] = high;
  for (int r = 0; r < ATTEND_STRIP; r++) {
    const bool dead = high == low || w->state->lse[at + r] == INFINITY;
    back_clear(p + r * BACK_STRIDE, 0, dead ? width : low);
    back_clear(ds + r * BACK_STRIDE, 0, dead ? width : low);
    back_clear(p + r * BACK_STRIDE, end, width);
    back_clear(ds + r * BACK_STRIDE, end, width);
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
    const int64_t columns = heed__min(t->head_size - c, ATTEND_TILE),
                  count = (columns + V_LANES - 1) / V_LANES;
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
    for (int r = 0; r < ATTEND_STRIP; r++) back_keys_seen(out + r * columns, weights + r, rows, columns, n);
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

/* At the beginning: sets the hulls. */
static void back_find_hulls(const back_work *w) {
  const heed__attention_task *t = &w->t;
  int32_t *hull = (int32_t *)(void *)w->hulls;
  for (int64_t i = 0; i < t->query_length; i += BACK_ROWS, hull += 2) {
    int64_t first, last;
    heed__attention_hull(t, i, heed__min(i + BACK_ROWS, t->query_length), &first, &last);
    hull[0] = (int32_t)first;
    hull[1] = (int32_t)last;
  }
}

/* Whether a row of block `rows` of queries sees keys of block e, by position and intervals. */
static bool back_meets(const back_work *w, const seen *e, int64_t rows) {
  const heed__attention_task *t = &w->t;
  const int64_t begin = e->first + e->begin, end = e->first + e->count;
  if (!t->intervals) return true;
  const int32_t *hull = (const int32_t *)(const void *)w->hulls + 2 * rows;
  if (hull[0] >= end || hull[1] <= begin) return false;
  for (int64_t i = rows * BACK_ROWS; i < heed__min((rows + 1) * BACK_ROWS, t->query_length); i++) {
    int64_t from, to;
    (void)part_of_row(t, i, begin, end, &from, &to);
    if (from < to) return true;
  }
  return false;
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
  int64_t begin, end;
  heed__attention_hull(t, 0, l, &begin, &end);
  end = heed__min(end, g->last);
  const int64_t before = position ? *position : 0;
  int64_t block = before / (across * steps), rows = before / steps % across, step = before % steps;
  bool goes_on = before > 0;
  if (t->intervals && !goes_on) back_find_hulls(&w);
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
      if (step == 0 && !back_meets(&w, &e, rows)) continue;
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
