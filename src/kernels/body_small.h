/* Attention of few queries on few keys. The queries lie across the lanes: no sum or maximum goes from lane to
 * lane, and everything stays in registers and on the stack. Scores of up to V_LANES queries are one register
 * a key.
 *
 * Rules as in k_scalar_attention.c: what is hidden has no part in anything, whatever it holds; what is seen
 * has, even with a weight of 0. */
#ifndef HEED_BODY_SMALL_H
#define HEED_BODY_SMALL_H

#include "body_math.h"

/* A column of a matrix with rows `row` apart, for n rows, in the first lanes. */
static inline vfloat small_gather(const float *x, ptrdiff_t row, int64_t n) {
  float lane[V_LANES] = {0};
  for (int64_t i = 0; i < n; i++) lane[i] = x[i * row];
  return v_load(lane);
}

static inline void small_scatter(float *out, ptrdiff_t row, int64_t n, vfloat x) {
  float lane[V_LANES];
  v_store(lane, x);
  for (int64_t i = 0; i < n; i++) out[i * row] = lane[i];
}

/* One bit for each of n queries from i0 on that sees key j. */
static inline unsigned small_visible(const heed__attention_task *t, int64_t i0, int64_t n, int64_t j) {
  unsigned bits = (1u << n) - 1u;
  if (t->causal && j > i0) bits = j - i0 < n ? bits & ~((1u << (j - i0)) - 1u) : 0;
  if (!t->padding && !t->visible && !t->bias) return bits;
  if (t->padding && t->padding[j * t->padding_stride]) return 0;
  if (t->visible || t->bias) {
    for (int64_t i = 0; i < n; i++) {
      const bool hidden = (t->visible && !t->visible[(i0 + i) * t->visible_row + j * t->visible_column]) ||
                          (t->bias && t->bias[(i0 + i) * t->bias_row + j * t->bias_column] == -INFINITY);
      if (hidden) bits &= ~(1u << i);
    }
  }
  return bits;
}

/* Rows i0 … i0 + n - 1, n <= V_LANES. */
static void small_rows(const heed__attention_task *t, int64_t i0, int64_t n) {
  vfloat q[HEED__SMALL_HEAD], weight[HEED__SMALL_KEYS], most = v_set(-INFINITY), sum = v_zero();
  int64_t key[HEED__SMALL_KEYS], keys = 0; /* those that any of the rows sees */
  unsigned seen[HEED__SMALL_KEYS];
  const vfloat scale = v_set(t->scale);
  for (int64_t c = 0; c < t->d; c++) q[c] = small_gather(t->q + i0 * t->q_row + c * t->q_column, t->q_row, n);

  for (int64_t j = 0; j < t->s; j++) {
    const unsigned bits = small_visible(t, i0, n, j);
    if (!bits) continue;
    const float *k = t->k + j * t->k_row;
    vfloat score = v_zero();
    for (int64_t c = 0; c < t->d; c++) score = v_fma(q[c], v_set(k[c * t->k_column]), score);
    score = v_mul(score, scale);
    if (t->bias) {
      const float *bias = t->bias + i0 * t->bias_row + j * t->bias_column;
      score = v_add(score, small_gather(bias, t->bias_row, n));
    }
    score = v_select(v_mask_from_bits(bits), score, v_set(-INFINITY));
    most = v_max(score, most); /* without nan, which comes back with the exponential */
    weight[keys] = score;
    seen[keys] = bits;
    key[keys++] = j;
  }

  most = v_select(v_eq(most, v_set(-INFINITY)), v_zero(), most);
  for (int64_t j = 0; j < keys; j++) {
    weight[j] = v_exp(v_sub(weight[j], most));
    sum = v_add(sum, weight[j]);
  }
  const vmask none = v_eq(sum, v_zero()); /* nothing is seen, or scores of -inf only: zeros */
  const vfloat share = v_select(none, v_zero(), v_div(v_set(1.0f), sum));
  const unsigned some = ~v_mask_bits(none);
  for (int64_t j = 0; j < keys; j++) {
    seen[j] &= some;
    weight[j] = v_mul(weight[j], share);
    if (t->keep)
      weight[j] = v_mul(weight[j], small_gather(t->keep + (i0 - t->first) * t->s + key[j], t->s, n));
  }

  for (int64_t c = 0; c < t->dv; c++) {
    vfloat out = v_zero();
    for (int64_t j = 0; j < keys; j++) {
      const vfloat value = v_set(t->v[key[j] * t->v_row + c * t->v_column]);
      out = v_select(v_mask_from_bits(seen[j]), v_fma(weight[j], value, out), out);
    }
    small_scatter(t->out + i0 * t->out_row + c * t->out_column, t->out_row, n, out);
  }
}

/* The rows of a task that heed__attention_is_small. */
static void attend_small(const heed__attention_task *t) {
  for (int64_t i = t->first; i < t->last; i += V_LANES) {
    small_rows(t, i, t->last - i < V_LANES ? t->last - i : V_LANES);
  }
}

#endif
