/* Attention of few queries on few keys. Each lane holds one query, so sums and maxima need no operations
 * across lanes, and everything stays in registers and on the stack: the scores of up to V_LANES queries with
 * a key are one register.
 *
 * As in scalar/attention.c, a hidden key contributes nothing, whatever it contains; a visible one contributes
 * even with a weight of 0. */
#ifndef HEED_VECTOR_SMALL_H
#define HEED_VECTOR_SMALL_H

#include "widen.h"

enum { SMALL_AT_ONCE = 4 }; /* keys, then columns of values, whose sums are independent of each other */
_Static_assert(HEED__SMALL_KEYS % SMALL_AT_ONCE == 0, "the last group fits in the arrays");
_Static_assert(V_LANES % SMALL_AT_ONCE == 0, "columns that are stored together are whole groups");

/* n elements `row` apart, a column of a matrix, in the first lanes. */
static inline vfloat small_gather(const float *x, ptrdiff_t row, int64_t n) {
  if (row == 1) return v_load_masked(x, v_first((size_t)n));
  float lane[V_LANES] = {0};
  for (int64_t i = 0; i < n; i++) lane[i] = x[i * row];
  return v_load(lane);
}

static inline void small_scatter(float *out, ptrdiff_t row, int64_t n, vfloat x) {
  if (row == 1) {
    v_store_masked(out, x, v_first((size_t)n));
    return;
  }
  float lane[V_LANES];
  v_store(lane, x);
  for (int64_t i = 0; i < n; i++) out[i * row] = lane[i];
}

/* V_LANES contiguous columns of a matrix of n rows, in as many registers. */
V_INLINE void small_gather_square(vfloat x[V_LANES], const float *from, ptrdiff_t row, int64_t n) {
  for (int64_t i = 0; i < V_LANES; i++) x[i] = i < n ? v_load(from + i * row) : v_zero();
  v_transpose(x);
}

V_INLINE void small_scatter_square(float *out, ptrdiff_t row, int64_t n, vfloat x[V_LANES]) {
  v_transpose(x);
  for (int64_t i = 0; i < n; i++) v_store(out + i * row, x[i]);
}

/* One bit for each of n queries from i0 on, set where it sees key j. Key j is in the window of at least one.
 */
V_INLINE unsigned small_visible(const heed__attention_task *t, int64_t i0, int64_t n, int64_t j,
                                const bool masked) {
  /* by position, rows j - window_end + 1 … j - window_begin see it */
  const int64_t from = j + 1 - t->window_end - i0, to = j + 1 - t->window_begin - i0;
  unsigned bits = (1u << (to < n ? to : n)) - 1u;
  if (from > 0) bits &= ~0u << from;
  if (!masked) return bits;
  if (t->padding && t->padding[j * t->padding_stride]) return 0;
  for (int64_t i = 0; i < n; i++) {
    const bool hidden =
        (t->intervals && heed__is_outside(heed__attention_intervals(t, i0 + i), t->interval_count, j)) ||
        (t->visible && !t->visible[(i0 + i) * t->visible_row + j * t->visible_column]) ||
        (t->bias && t->bias[(i0 + i) * t->bias_row + j * t->bias_column] == -INFINITY);
    if (hidden) bits &= ~(1u << i);
  }
  return bits;
}

/* Row j of keys or values, with the stride of its columns in *column: the row itself, or widened to `wide`.
 */
V_INLINE const float *small_row(const void *x, heed_dtype dtype, ptrdiff_t row, const float *scale,
                                ptrdiff_t scale_row, int64_t j, int64_t n, ptrdiff_t *column, float *wide) {
  if (dtype == HEED_FLOAT32) return (const float *)x + j * row;
  return heed__scalar_widen(element_at(x, dtype, j * row), dtype, scale ? scale[j * scale_row] : 1.0f, column,
                            n, wide);
}

/* Not inline: few calls want it. */
static __attribute__((noinline)) void small_write_sums(const heed__attention_task *t, int64_t i0, int64_t n,
                                                       vfloat most, vfloat sum) {
  float top[V_LANES], total[V_LANES];
  v_store(top, most);
  v_store(total, sum);
  for (int64_t r = 0; r < n; r++) {
    int64_t first, last;
    heed__attention_bounds(t, i0 + r, &first, &last);
    while (first < last && heed__attention_hides(t, i0 + r, first)) first++;
    heed__attention_write_sums(t, i0 + r, top[r], total[r], first < last && total[r] != 0.0f);
  }
}

/* The weights of rows i0 … i0 + n - 1 with `keys` keys from `first` on; 0 for rows in `none`. */
static __attribute__((noinline)) void small_write_weights(const heed__attention_task *t, int64_t i0,
                                                          int64_t n, int64_t first, int64_t keys,
                                                          const vfloat *weight, vmask none) {
  const int64_t width = t->key_length + t->map_spare;
  float *map = t->weights + i0 * width;
  for (int64_t r = 0; r < n; r++) {
    for (int64_t j = 0; j < first; j++) map[r * width + j] = 0.0f;
    for (int64_t j = first + keys; j < t->key_length; j++) map[r * width + j] = 0.0f;
  }
  for (int64_t j = 0; j < keys; j++)
    small_scatter(map + first + j, width, n, v_select(none, v_zero(), weight[j]));
}

/* Rows i0 … i0 + n - 1, n <= V_LANES. plain: keys and values are float32, and there is no mask, cap, slope,
 * sink or dropout, and neither sums nor weights are wanted. */
V_INLINE void small_rows(const heed__attention_task *t, int64_t i0, int64_t n, const bool plain) {
  const heed_dtype k_dtype = plain ? HEED_FLOAT32 : t->k_dtype, v_dtype = plain ? HEED_FLOAT32 : t->v_dtype;
  const bool masked = !plain && (t->intervals || t->visible || t->padding || t->bias);
  vfloat q[HEED__SMALL_HEAD], weight[HEED__SMALL_KEYS], sum = v_zero();
  vmask seen[HEED__SMALL_KEYS];
  vfloat most = v_set(!plain && t->has_sink ? t->sink : -INFINITY);
  const vfloat scale = v_set(t->scale);
  int64_t first, last; /* keys in the window of any of the rows */
  heed__attention_hull(t, i0, i0 + n, &first, &last);
  const int64_t keys = last > first ? last - first : 0;
  const float *query = t->q + i0 * t->q_row;
  int64_t at = 0;
  if (t->q_column == 1)
    for (; at + V_LANES <= t->head_size; at += V_LANES) small_gather_square(q + at, query + at, t->q_row, n);
  for (; at < t->head_size; at++) q[at] = small_gather(query + at * t->q_column, t->q_row, n);

  for (int64_t j = 0; j < keys; j += SMALL_AT_ONCE) {
    float wide[SMALL_AT_ONCE][HEED__SMALL_HEAD];
    const float *k[SMALL_AT_ONCE];
    vfloat score[SMALL_AT_ONCE];
    ptrdiff_t column = t->k_column;
    for (int u = 0; u < SMALL_AT_ONCE; u++) {
      const int64_t key = first + (j + u < keys ? j + u : keys - 1);
      column = t->k_column;
      k[u] =
          small_row(t->k, k_dtype, t->k_row, t->k_scale, t->k_scale_row, key, t->head_size, &column, wide[u]);
      score[u] = v_zero();
    }
    for (int64_t c = 0; c < t->head_size; c++) {
      V_UNROLL
      for (int u = 0; u < SMALL_AT_ONCE; u++) score[u] = v_fma(q[c], v_set(k[u][c * column]), score[u]);
    }
    V_UNROLL
    for (int u = 0; u < SMALL_AT_ONCE; u++) weight[j + u] = v_mul(score[u], scale);
  }
  for (int64_t j = 0; j < keys; j++) {
    vfloat score = weight[j];
    if (!plain && t->softcap > 0.0f) score = cap_score(score, t->softcap, 1.0f / t->softcap);
    if (!plain && t->bias) {
      const float *bias = t->bias + i0 * t->bias_row + (first + j) * t->bias_column;
      score = v_add(score, small_gather(bias, t->bias_row, n));
    }
    if (!plain && t->slope != 0.0f) score = slope_off(score, t->slope, i0 + t->offset - first - j, -1.0f);
    seen[j] = v_mask_from_bits(small_visible(t, i0, n, first + j, masked));
    weight[j] = v_select(seen[j], score, v_set(-INFINITY));
    most = v_max(weight[j], most); /* ignores nan, which the exponential restores */
  }

  most = v_select(v_eq(most, v_set(-INFINITY)), v_zero(), most);
  for (int64_t j = 0; j < keys; j++) {
    weight[j] = v_exp(v_sub(weight[j], most));
    sum = v_add(sum, weight[j]);
  }
  if (!plain && t->has_sink) sum = v_add(sum, v_exp(v_sub(v_set(t->sink), most)));
  const vmask none = v_eq(sum, v_zero()); /* no visible key, or only scores of -inf: zeros */
  if (!plain && (t->lse || t->stats)) small_write_sums(t, i0, n, most, sum);
  const vfloat share = v_div(v_set(1.0f), sum);
  for (int64_t j = 0; j < keys; j++) {
    weight[j] = v_mul(weight[j], share);
  }
  if (!plain && t->weights) small_write_weights(t, i0, n, first, keys, weight, none);
  for (int64_t j = 0; !plain && j < keys; j++) {
    if (t->dropout_mask)
      weight[j] = v_mul(weight[j], small_gather(t->dropout_mask + (i0 - t->first) * t->key_length + first + j,
                                                t->key_length, n));
  }

  float wide[HEED__SMALL_KEYS][HEED__SMALL_HEAD];
  const float *value = (const float *)t->v + first * t->v_row;
  ptrdiff_t row = t->v_row, column = t->v_column;
  for (int64_t j = 0; v_dtype != HEED_FLOAT32 && j < keys; j++) {
    column = t->v_column;
    small_row(t->v, v_dtype, t->v_row, t->v_scale, t->v_scale_row, first + j, t->value_size, &column,
              wide[j]);
    value = wide[0];
    row = HEED__SMALL_HEAD;
  }
  float *to = t->out + i0 * t->out_row;
  const int64_t whole = t->out_column == 1 ? t->value_size / V_LANES * V_LANES : 0;
  vfloat out[V_LANES];
  for (int64_t c = 0; c < t->value_size; c += SMALL_AT_ONCE) {
    vfloat x[SMALL_AT_ONCE];
    ptrdiff_t offset[SMALL_AT_ONCE];
    for (int u = 0; u < SMALL_AT_ONCE; u++) {
      offset[u] = (c + u < t->value_size ? c + u : t->value_size - 1) * column;
      x[u] = v_zero();
    }
    for (int64_t j = 0; c + 1 < t->value_size && j < keys; j++) {
      V_UNROLL
      for (int u = 0; u < SMALL_AT_ONCE; u++)
        x[u] = v_select(seen[j], v_fma(weight[j], v_set(value[j * row + offset[u]]), x[u]), x[u]);
    }
    for (int64_t j = 0; c + 1 == t->value_size && j < keys; j++) /* a single last column */
      x[0] = v_select(seen[j], v_fma(weight[j], v_set(value[j * row + offset[0]]), x[0]), x[0]);
    for (int u = 0; u < SMALL_AT_ONCE && c + u < t->value_size; u++) {
      x[u] = v_select(none, v_zero(), x[u]);
      if (c < whole)
        out[(c + u) % V_LANES] = x[u];
      else
        small_scatter(to + (c + u) * t->out_column, t->out_row, n, x[u]);
    }
    if (c < whole && (c + SMALL_AT_ONCE) % V_LANES == 0)
      small_scatter_square(to + c + SMALL_AT_ONCE - V_LANES, t->out_row, n, out);
  }
}

static void small_rows_plain(const heed__attention_task *t, int64_t i0, int64_t n) {
  small_rows(t, i0, n, true);
}
static void small_rows_any(const heed__attention_task *t, int64_t i0, int64_t n) {
  small_rows(t, i0, n, false);
}

/* Up to 8 tokens, the lanes of AVX2, its kernels are faster than AVX-512's, as shorter vectors have a lower
 * latency: by a sixth of the time of a small module (Cascade Lake). */
#define SMALL_LEFT_TO_AVX2(tokens) (V_LANES == 16 && (tokens) <= 8)

static void small_fetch_rows(const void *x, heed_dtype dtype, ptrdiff_t row, int64_t rows, int64_t n) {
  for (int64_t i = 0; i < rows; i++) {
    const char *end = element_at(x, dtype, i * row + n);
    for (const char *p = element_at(x, dtype, i * row); p < end; p += HEED__ALIGNMENT) __builtin_prefetch(p);
  }
}

static __attribute__((noinline)) void small_fetch(const heed__attention_task *t) {
  if (!heed__attention_is_small(t)) return;
  small_fetch_rows(t->q, HEED_FLOAT32, t->q_row, t->query_length, t->head_size);
  small_fetch_rows(t->k, t->k_dtype, t->k_row, t->key_length, t->head_size);
  small_fetch_rows(t->v, t->v_dtype, t->v_row, t->key_length, t->value_size);
  for (int64_t i = 0; i < t->query_length && t->out_column == 1; i++)
    for (int64_t c = 0; c < t->value_size; c += 16) __builtin_prefetch(t->out + i * t->out_row + c, 1);
}

/* The whole task, for which heed__attention_is_small holds. */
static void attend_small(const heed__attention_task *t) {
#if V_LANES == 16
  if (SMALL_LEFT_TO_AVX2(t->query_length)) {
    (void)heed__kernels_avx2.attention(t, NULL, NULL);
    return;
  }
#endif
  const bool plain = t->k_dtype == HEED_FLOAT32 && t->v_dtype == HEED_FLOAT32 && t->softcap == 0.0f &&
                     t->slope == 0.0f && !t->has_sink && !t->intervals && !t->visible && !t->padding &&
                     !t->bias && !t->dropout_mask && !t->lse && !t->stats && !t->weights;
  if (t->soon) small_fetch(t->soon);
  for (int64_t i = t->first; i < t->last; i += V_LANES)
    (plain ? small_rows_plain : small_rows_any)(t, i, t->last - i < V_LANES ? t->last - i : V_LANES);
}

#endif
