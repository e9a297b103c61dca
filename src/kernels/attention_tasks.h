/* What the kernels of attention receive: softmax attention and its gradients, decode, and attention with a
 * state. Part of kernels.h, whose rules for yield points, strides and shapes hold. */
#ifndef HEED_KERNELS_ATTENTION_TASKS_H
#define HEED_KERNELS_ATTENTION_TASKS_H

#include <math.h>

#include "../core/types.h"

/* ---- Attention ---- */

/* One head of one batch item: out = softmax(scores) v for rows first…last-1 of l, counted from 0. q [l, d],
 * k [s, d], v [s, dv], out [l, dv], each with the strides of its rows and columns. A score is scale · q·k,
 * capped, plus the bias, minus the slope's part; a hidden one is -inf. */
typedef struct heed__attention_task {
  const float *q;
  const void *k, *v;              /* elements of k_dtype and v_dtype: float32, bfloat16, float16 or int8 */
  const float *k_scale, *v_scale; /* int8: the factor of each row's elements, [s]; else NULL */
  float *out;
  heed_dtype k_dtype, v_dtype;
  ptrdiff_t q_row, q_column, k_row, k_column, v_row, v_column, out_row, out_column;
  ptrdiff_t k_scale_row, v_scale_row;
  int64_t query_length, key_length, head_size, value_size; /* l, s, d, dv */
  int64_t first, last;                                     /* the rows to compute */
  float scale;
  float softcap; /* c: scores become c · tanh(score / c); 0: none */
  /* By position, row i sees keys i + window_begin … i + window_end - 1 among the first valid_keys of the s
   * keys. The bounds are from -l to s; -l and s where there is no limit. */
  int64_t window_begin, window_end, valid_keys;
  float slope; /* slope · |i + offset - j| is subtracted from the scores; 0: none */
  int64_t offset;
  bool has_sink; /* the sink joins the maximum and the sum, and has no value */
  float sink;
  const uint8_t *visible; /* 1: the key takes part; [l, s] with these strides; NULL: all do */
  ptrdiff_t visible_row, visible_column;
  /* Of the keys that it sees by position, row i sees only those of interval_count intervals: pairs of the
   * first key and the one after the last, in order and with a key between any two. Empty ones, if any, are
   * the last and begin where the one before ends. Row i's begin at intervals + i · interval_row; NULL, count
   * 0: all. */
  const int32_t *intervals;
  ptrdiff_t interval_row;
  int64_t interval_count;
  const uint8_t *padding; /* 1: no row sees this key; [s]; NULL: none */
  ptrdiff_t padding_stride;
  const float *bias; /* added to the capped scores, -inf hides; [l, s] with these strides; NULL: none */
  ptrdiff_t bias_row, bias_column;
  const float *dropout_mask; /* factors of the weights of rows first…last-1, row-major [last - first, s];
                                NULL: none */
  void *scratch; /* attention_scratch bytes, aligned to HEED__ALIGNMENT; its contents matter only between the
                    calls of a task that yields */
  /* The maps: row-major [l, s], written where not NULL: q·k with hidden keys -inf, the weights after softmax,
   * and after dropout; the scores of all keys scaled, then capped, then biased with hidden keys -inf. Each
   * row is followed by map_spare floats, which are left alone. */
  int64_t map_spare;
  float *scores, *weights, *dropped_weights, *logits, *capped_logits, *biased_logits;
  float *lse; /* log Σ e^score of each row, with the sink; -inf for rows without visible keys; [l]; or NULL */
  /* The largest score of each row and the sum of e^(score - largest), both with the sink, which counts even
   * in rows without visible keys; -inf and 0 without any; [l, 2]; or NULL */
  float *stats;
  const struct heed__attention_task *soon; /* the next task, with its rows; may be prefetched; or NULL */
} heed__attention_task;

/** Row i of one of the maps. */
static inline float *heed__attention_map_row(const heed__attention_task *t, float *map, int64_t i) {
  return map + i * (t->key_length + t->map_spare);
}

/** The keys *first … *last - 1 that row i sees by position; *first is at most *last. */
static inline void heed__attention_window(const heed__attention_task *t, int64_t i, int64_t *first,
                                          int64_t *last) {
  const int64_t from = i + t->window_begin, to = i + t->window_end;
  *last = to > t->valid_keys ? t->valid_keys : to > 0 ? to : 0;
  *first = from < 0 ? 0 : from < *last ? from : *last;
}

static inline const int32_t *heed__attention_intervals(const heed__attention_task *t, int64_t i) {
  return t->intervals + i * t->interval_row;
}

/** The keys *first … *last - 1 that row i sees by position, from the beginning of its intervals to their end;
 * *first is at most *last. */
static inline void heed__attention_bounds(const heed__attention_task *t, int64_t i, int64_t *first,
                                          int64_t *last) {
  heed__attention_window(t, i, first, last);
  if (t->intervals == NULL) return;
  const int32_t *x = heed__attention_intervals(t, i);
  if (x[0] > *first) *first = x[0];
  if (x[2 * t->interval_count - 1] < *last) *last = x[2 * t->interval_count - 1];
  if (*last < *first) *last = *first;
}

/** The bounds of rows from…to-1 together; both 0 if no row sees a key. */
static inline void heed__attention_hull(const heed__attention_task *t, int64_t from, int64_t to,
                                        int64_t *first, int64_t *last) {
  int64_t unused;
  if (t->intervals == NULL) { /* windows begin and end in the order of the rows */
    heed__attention_window(t, from, first, &unused);
    heed__attention_window(t, to - 1, &unused, last);
    return;
  }
  *first = t->key_length;
  *last = 0;
  for (int64_t i = from; i < to; i++) {
    int64_t begin, end;
    heed__attention_bounds(t, i, &begin, &end);
    if (begin == end) continue;
    if (begin < *first) *first = begin;
    if (end > *last) *last = end;
  }
  if (*last == 0) *first = 0;
}

/** Whether key j is in none of `count` intervals. */
static inline bool heed__is_outside(const int32_t *intervals, int64_t count, int64_t j) {
  int64_t n = 0;
  while (n < count && j >= intervals[2 * n + 1]) n++;
  return n == count || j < intervals[2 * n];
}

/** Writes lse and stats of row i, where they are wanted. sees: the row has a visible key, and row_max is not
 * -inf. */
static inline void heed__attention_write_sums(const heed__attention_task *t, int64_t i, float row_max,
                                              float row_sum, bool sees) {
  const bool sink = t->has_sink && t->sink != -INFINITY;
  if (t->lse) t->lse[i] = sees ? row_max + logf(row_sum) : -INFINITY;
  if (!t->stats) return;
  t->stats[2 * i] = sees ? row_max : sink ? t->sink : -INFINITY;
  t->stats[2 * i + 1] = sees ? row_sum : sink ? 1.0f : 0.0f;
}

/* The gradients of one head of one batch item, from its keys first…last-1 of s; `first` is a multiple of
 * HEED__BACKWARD_KEYS. The kernel adds to dq [l, d], dk [s, d], dv [s, dv], dbias and dslope, each of which
 * may be NULL; the columns of dq, dk and dv are contiguous. Rows whose lse is -inf have no gradients, and
 * hidden keys contribute nothing, whatever they contain. */
enum { HEED__BACKWARD_KEYS = 192 };
typedef struct heed__attention_backward_task {
  heed__attention_task forward; /* with lse; its out, rows, dropout_mask, scratch and maps are not read */
  const float *delta;           /* Σ dout · out of each row, [l] */
  const float *dout;            /* [l, dv] */
  ptrdiff_t dout_row, dout_column;
  /* Dropout: bit j % 16 of word j / 16 of a row is 1 where the weight was kept, times kept_scale; row i of l
   * begins at kept + i · kept_row; NULL: no dropout. */
  const uint16_t *kept;
  ptrdiff_t kept_row;
  float kept_scale;
  float *dq, *dk, *dv;
  ptrdiff_t dq_row, dk_row, dv_row;
  float *dbias; /* [l, s] with these strides, 0 where it is summed */
  ptrdiff_t dbias_row, dbias_column;
  double *dslope;
  int64_t first, last;
  void *scratch; /* attention_backward_scratch bytes, as above */
} heed__attention_backward_task;

/* Up to these sizes the vector kernels need no scratch (vector/small.h). */
enum { HEED__SMALL_QUERIES = 16, HEED__SMALL_KEYS = 32, HEED__SMALL_HEAD = 64 };
static inline bool heed__attention_is_small(const heed__attention_task *t) {
  return t->query_length <= HEED__SMALL_QUERIES && t->key_length <= HEED__SMALL_KEYS &&
         t->head_size <= HEED__SMALL_HEAD && t->value_size <= HEED__SMALL_HEAD;
}

/* A few query rows on keys first…last-1 of one batch item (none where last <= first): the parts of
 * softmax(scores) v that the caller merges over several ranges of keys. The columns of q, k and v are
 * contiguous; dtypes, scores and masks as above. Rows of one key head are adjacent, and every head has the
 * same number of rows. */
#define HEED__DECODE_ROWS  16
#define HEED__DECODE_BLOCK 1024 /* most keys of a block */
#define HEED__DECODE_SPARE 32   /* most further keys of the last block, and padding to whole registers */
typedef struct heed__decode_row {
  const float *q;                 /* [d] */
  ptrdiff_t k, v;                 /* offsets of its head's keys and values from those of the task */
  const float *k_scale, *v_scale; /* of its head, key 0 */
  int64_t first, last;            /* sees keys first…last-1 of s */
  const int32_t *intervals;       /* of these, as in heed__attention_task; NULL: all */
  int64_t interval_count;
  const uint8_t *visible; /* [s]; NULL: all */
  const float *bias;      /* [s]; NULL: none */
  float slope;            /* slope · |position - j| is subtracted from the scores; 0: none */
  int64_t position;
  float *map; /* receives the scores of the keys that it sees, and perhaps -inf for some that it does not;
                 [s]; NULL: not wanted */
} heed__decode_row;
typedef struct heed__decode_task {
  const void *k, *v; /* key 0 */
  heed_dtype k_dtype, v_dtype;
  ptrdiff_t k_row, v_row, k_scale_row, v_scale_row, visible_column, bias_column, padding_stride;
  const uint8_t *padding;
  int64_t head_size, value_size, first, last; /* d, dv */
  float scale, softcap;
  int rows;      /* 1…HEED__DECODE_ROWS */
  int block;     /* keys processed at a time, 1…HEED__DECODE_BLOCK */
  float *scores; /* scratch: rows · (block + HEED__DECODE_SPARE) floats */
  heed__decode_row row[HEED__DECODE_ROWS];
  /* Results of each row: the largest score that it sees (-FLT_MAX if there is none above), the sum of
   * e^(score - row_max), and the sum of e^(score - row_max) · value, [dv]. */
  float *row_max, *row_sum, *out;
} heed__decode_task;

/* ---- Linear attention ---- */

/* One key head of one batch item, with the `group` query heads that read its state S [d, dv]. For each token
 * t, in order:
 *   S = e^decay[t] · S               (a factor for each row of S where `decays_each`)
 *   u = beta[t] · (v[t] - Sᵀ k[t]),   or v[t] without beta
 *   S = S + k[t] uᵀ
 *   out[t] = scale · Sᵀ q[t]
 * q [group, n, d], k [n, d], v [n, dv], out [group, n, dv], decay [n, d] or [n], beta [n]; columns are
 * contiguous. Results are the same within rounding however the tokens are divided into calls. */
enum { HEED__LINEAR_CHUNK = 64 }; /* tokens that the vector kernels process together */
typedef struct heed__linear_attention_task {
  const float *q, *k, *v, *decay, *beta; /* decay and beta may be NULL */
  float *out;                            /* overlaps no input */
  float *state;                          /* S, row-major: before the first token, then after the last */
  ptrdiff_t q_head, q_row, k_row, v_row, decay_row, beta_row, out_head, out_row;
  int64_t tokens, group, head_size, value_size; /* n, group, d, dv */
  float scale;
  bool decays_each;
  void *scratch; /* linear_attention_scratch bytes; contents as in heed__attention_task */
} heed__linear_attention_task;

/* The gradients of such a task. Its out, out_head and out_row are those of the gradient of `out`, which is
 * read; its state is S before the first token, and read only. dstate is the gradient of S after the last
 * token, then that of S before the first. The others are written, without gaps, where not NULL: dq [group, n,
 * d], dk [n, d], dv [n, dv], ddecay [n, d] or [n], dbeta [n]. */
typedef struct heed__linear_attention_backward_task {
  heed__linear_attention_task forward; /* its scratch is not used */
  float *dstate, *dq, *dk, *dv, *ddecay, *dbeta;
  void *scratch; /* linear_attention_backward_scratch bytes */
} heed__linear_attention_backward_task;

/* Each channel of x [channels, n] filtered by its own taps: out[c, t] = bias[c] + Σ_j weight[c, j] · p[c, t +
 * j], where p [channels, taps - 1 + n] is past [channels, taps - 1] (NULL: zeros) followed by x; then silu of
 * it, where `silu`. Only the tokens first…last-1 are computed. Elements have the strides of the name. */
typedef struct heed__causal_conv_task {
  const float *x, *past, *weight, *bias; /* weight [channels, taps], bias [channels] or NULL */
  float *out;                            /* [channels, n], overlaps no input */
  ptrdiff_t x_channel, x_step, past_channel, past_step, out_channel, out_step;
  int64_t channels, taps, first, last;
  bool silu;
} heed__causal_conv_task;

#endif
