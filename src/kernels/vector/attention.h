/* The fused attention kernel. Keys and values are packed block by block; for each block every strip of six
 * query rows computes its scores and their exponentials, and rescales and extends its output so far (the
 * online softmax of arXiv:2205.14135). Only the scores of one strip with one block are ever stored.
 *
 * A hidden key has weight 0. Its value is multiplied by that 0, which would give nan for nan and inf, so a
 * partly visible block with such values takes a slower path.
 *
 * A row's result depends on its own data only: further keys with weight 0 change no bit. */
#ifndef HEED_VECTOR_ATTENTION_H
#define HEED_VECTOR_ATTENTION_H

#include "small.h"

#include "attention_masks.h"
#include "attention_products.h"

/* ---- The two products of a strip ---- */

/* Scores of a strip. Meanwhile the mask and bias rows of the next strip are prefetched, a few cache lines for
 * each tile. */
static void score_strip(const attend_work *a, const seen *e, const attend_strip *s) {
  const heed__attention_task *t = a->t;
  const int64_t next = t->first + s->row + ATTEND_STRIP, rows = heed__min(ATTEND_STRIP, t->last - next);
  const uint8_t *visible = t->visible_row != 0 && t->visible_column == 1 ? t->visible : NULL;
  const float *bias = t->bias_row != 0 && t->bias_column == 1 ? t->bias : NULL;
  int64_t j = e->low;
  for (; (visible || bias) && rows > 0 && round_up(j + 1, ATTEND_TILE) <= e->high;) {
    const int64_t end = round_up(j + 1, ATTEND_TILE), key = e->first + end - ATTEND_TILE;
    if (visible && key % HEED__ALIGNMENT == 0)
      fetch_rows(visible + next * t->visible_row + key, HEED_BOOL, t->visible_row,
                 heed__min(HEED__ALIGNMENT, t->key_length - key), 0, rows);
    if (bias) fetch_rows(bias + next * t->bias_row + key, HEED_FLOAT32, t->bias_row, ATTEND_TILE, 0, rows);
    score_tiles(a->scores, s->q, a->keys, t->head_size, j, end, a->ahead);
    j = end;
  }
  score_tiles(a->scores, s->q, a->keys, t->head_size, j, e->high, a->ahead);
}

static void weigh_strip(const attend_work *a, const seen *e, float *out, const float *factor) {
  const int64_t columns = a->columns;
  for (int64_t c = 0; c < columns; c += ATTEND_TILE)
    value_tile(out + c, factor, a->scores, e->values + c, e->value_row, e->weighed, e->high, columns,
               a->ahead, (columns - c) / V_LANES);
}

/* The same in the same order, but without the keys that a row does not see. */
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
            x = v_fma(v_set(a->scores[r * ATTEND_STRIDE + j]), v_load(e->values + j * e->value_row + c), x);
        sum = v_add(sum, x);
      }
      v_store(out + c, sum);
    }
  }
}

/* ---- Softmax ---- */

/* Caps and biases the scores of keys from…to-1 of a row, and hides them unless all are visible (`sure`). r is
 * the row in the strip, i the query. Returns their maximum with `most`, lane by lane. */
static vfloat modify_scores(const attend_work *a, const seen *e, int r, int64_t i, int64_t from, int64_t to,
                            bool sure, vfloat most) {
  const heed__attention_task *t = a->t;
  const float *bias = t->bias ? a->bias + r * ATTEND_STRIDE : NULL;
  const float cap = t->softcap, inverse = cap > 0.0f ? 1.0f / cap : 0.0f, slope = t->slope;
  const int64_t position = i + t->offset - e->first;
  float *scores = a->scores + r * ATTEND_STRIDE;
  for (int64_t j = from; j < to; j += V_LANES) {
    vfloat x = v_load(scores + j);
    if (cap > 0.0f) x = cap_score(x, cap, inverse);
    if (bias) x = v_add(x, v_load(bias + j));
    if (slope != 0.0f) x = slope_off(x, slope, position - j, 1.0f);
    if (!sure) {
      const unsigned bits = (unsigned)e->bit[r][j / ATTEND_WORD] >> j % ATTEND_WORD;
      x = v_select(v_mask_from_bits(bits & ((1u << V_LANES) - 1u)), x, v_set(-INFINITY));
    }
    v_store(scores + j, x);
    most = v_max(most, x);
  }
  return most;
}

/* Hides the scores of keys from…to-1 that a row does not see; updates the maxima `most`. */
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

/* Completes the scores of a strip and sets top[r] to the largest of each row; `row` is the strip's first,
 * counted from the task's first. */
static void finish_scores(const attend_work *a, const seen *e, int64_t row, float top[ATTEND_STRIP]) {
  const heed__attention_task *t = a->t;
  const bool plain = !t->bias && t->softcap == 0.0f && t->slope == 0.0f;
  vfloat most[ATTEND_STRIP], other[ATTEND_STRIP]; /* two chains, as each maximum depends on the one before */
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
    most[r] = modify_scores(a, e, r, i, e->low, e->sure_first, false, most[r]);
    most[r] = modify_scores(a, e, r, i, e->sure_first, e->sure_last, true, most[r]);
    most[r] = modify_scores(a, e, r, i, e->sure_last, e->high, false, most[r]);
  }
  V_UNROLL
  for (int r = 0; r < ATTEND_STRIP; r++) top[r] = v_highest(most[r]);
}

/* x, and -inf where e^x is below 2^-92, which is negligible beside the largest weight, 1. Products of such
 * weights with values would be subnormal, and each of those costs an Intel processor about 150 cycles; slopes
 * and biases cause whole runs of them. */
static inline vfloat without_tiny(vfloat x) {
  return v_select(v_lt(x, v_set(-64.0f)), v_set(-INFINITY), x);
}

/* Rows of a strip whose exponentials are computed together: enough to hide latency, and few enough for the
 * registers. */
enum { ATTEND_RAISED = V_LANES == 8 ? 3 : ATTEND_STRIP };

/* Replaces n scores of each of ATTEND_RAISED rows by e^(score - most), and sums them. Differences to the
 * maximum are exact where weights are large; with log2 e folded into the queries errors were twice PyTorch's.
 */
V_INLINE void raise_rows(float *scores, const float *most, int64_t n, float *sums, const bool clip) {
  vfloat sum[ATTEND_RAISED], x[ATTEND_RAISED];
  V_UNROLL
  for (int r = 0; r < ATTEND_RAISED; r++) sum[r] = v_zero();
  for (int64_t j = 0; j < n; j += V_LANES) {
    V_UNROLL
    for (int r = 0; r < ATTEND_RAISED; r++) {
      x[r] = v_sub(v_load(scores + r * ATTEND_STRIDE + j), v_set(most[r]));
      if (clip) x[r] = without_tiny(x[r]);
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
static void raise_clipped(float *scores, const float most[ATTEND_STRIP], int64_t n,
                          float sums[ATTEND_STRIP]) {
  for (int r = 0; r < ATTEND_STRIP; r += ATTEND_RAISED)
    raise_rows(scores + r * ATTEND_STRIDE, most + r, n, sums + r, true);
}

/* ---- The map of the weights ---- */

/* Before the first block: the scores of the rows of a strip whose keys a mask may hide, which `see` skips. */
static void begin_map(const heed__attention_task *t, int64_t row) {
  if (!t->intervals && !t->visible && !t->padding && !t->bias) return;
  for (int64_t i = t->first + row; i < t->first + row + ATTEND_STRIP && i < t->last; i++) {
    float *map = heed__attention_map_row(t, t->weights, i);
    int64_t first, last;
    heed__attention_bounds(t, i, &first, &last);
    for (; first < last; first++) map[first] = -INFINITY;
  }
}

/* Keeps the completed scores of a strip with a block in the map. */
static void keep_scores(const attend_work *a, const seen *e, int64_t row) {
  const heed__attention_task *t = a->t;
  for (int64_t r = 0, i = t->first + row; r < ATTEND_STRIP && i < t->last; r++, i++)
    memcpy(heed__attention_map_row(t, t->weights, i) + e->first + e->low,
           a->scores + r * ATTEND_STRIDE + e->low, (size_t)(e->high - e->low) * sizeof(float));
}

/* After the last block: turns the scores of query i into weights. */
static void write_weights(const heed__attention_task *t, int64_t i, float most, float sum) {
  enum { AT_ONCE = 4 };
  float *map = heed__attention_map_row(t, t->weights, i);
  const vfloat top = v_set(most), share = v_set(1.0f / sum);
  int64_t first, last;
  heed__attention_bounds(t, i, &first, &last);
  if (sum == 0.0f) first = last = 0;
  for (int64_t j = 0; j < first; j++) map[j] = 0.0f;
  for (int64_t j = last; j < t->key_length; j++) map[j] = 0.0f;
  int64_t j = first;
  for (; j + AT_ONCE * V_LANES <= last; j += AT_ONCE * V_LANES) {
    vfloat x[AT_ONCE];
    V_UNROLL
    for (int u = 0; u < AT_ONCE; u++) x[u] = v_sub(v_load(map + j + u * V_LANES), top);
    exp_flushed(x, AT_ONCE);
    V_UNROLL
    for (int u = 0; u < AT_ONCE; u++) v_store(map + j + u * V_LANES, v_mul(x[u], share));
  }
  for (; j < last; j += V_LANES) {
    const vmask part = v_first((size_t)heed__min(last - j, V_LANES));
    vfloat x = v_sub(v_load_masked(map + j, part), top);
    exp_flushed(&x, 1);
    v_store_masked(map + j, v_mul(x, share), part);
  }
}

/* Turns the strip's scores into weights. Sets factor[r], by which its output so far must be multiplied. */
static void weights_of_strip(const attend_work *a, const seen *e, const attend_strip *s, float *factor) {
  const heed__attention_task *t = a->t;
  const int64_t n = e->high - e->low, row = s->row;
  float *most = s->row_max, *sum = s->row_sum, *scores = a->scores + e->low;
  float shift[16] = {0}; /* whole vectors of ATTEND_STRIP lanes */
  float top[ATTEND_STRIP], sums[ATTEND_STRIP];
  prefetch_some(a->ahead);
  finish_scores(a, e, row, top);
  if (t->weights) keep_scores(a, e, row);
  for (int r = 0; r < ATTEND_STRIP; r++) {
    const float now = top[r] > most[r] ? top[r] : most[r];
    top[r] = now == -INFINITY ? 0.0f : now; /* no visible key so far */
    shift[r] = most[r] - top[r];
    most[r] = now;
  }
  for (int r = 0; r < 16; r += V_LANES) {
    vfloat x = without_tiny(v_load(shift + r));
    exp_flushed(&x, 1);
    v_store(factor + r, x);
  }
  (t->bias || t->slope != 0.0f ? raise_clipped : raise)(scores, top, n, sums);
  for (int r = 0; r < ATTEND_STRIP; r++) sum[r] = sum[r] * factor[r] + sums[r];
  for (int r = 0; t->dropout_mask && r < ATTEND_STRIP && t->first + row + r < t->last; r++) {
    const float *keep = t->dropout_mask + (row + r) * t->key_length + e->first + e->low;
    for (int64_t j = 0; j < n; j++) scores[r * ATTEND_STRIDE + j] *= keep[j];
  }
}

/* ---- The kernel ---- */

/* The output of query i: out [dv] = x / sum */
static void write_row(const heed__attention_task *t, int64_t i, const float *x, float sum) {
  float *out = t->out + i * t->out_row;
  int64_t c = 0;
  if (sum == 0.0f) { /* no visible key: zeros, even where 0 · nan was added */
    for (; c < t->value_size; c++) out[c * t->out_column] = 0.0f;
    return;
  }
  if (t->out_column == 1) {
    const vfloat whole = v_set(sum), part = v_set(1.0f / sum);
    for (; c + V_LANES <= t->value_size; c += V_LANES) {
      const vfloat y = v_load(x + c), near = v_mul(y, part), left = v_fused_minus(near, whole, y);
      v_store(out + c,
              v_select(v_isnan(left), near, v_fma(left, part, near))); /* rounded as a division, but faster */
    }
  }
  for (; c < t->value_size; c++) out[c * t->out_column] = x[c] / sum;
}

/* Rows that see no key give zeros even where the sink is not finite. */
static bool sees_any(const heed__attention_task *t, int64_t i) {
  int64_t first, last;
  heed__attention_bounds(t, i, &first, &last);
  while (first < last && heed__attention_hides(t, i, first)) first++;
  return first < last;
}

/* Before the first block: scales the strip's queries; the sink is the only score so far. */
static void begin_strip(const attend_work *a, const attend_strip *s, bool sink) {
  const heed__attention_task *t = a->t;
  float *q = s->q, *out = s->out;
  look_ahead_of_strip(a, s);
  for (int64_t r = 0, i = t->first + s->row; r < ATTEND_STRIP;
       r++, i++, q += t->head_size, out += a->columns) {
    if (i < t->last) {
      scale_whole_row(q, t->q + i * t->q_row, t->q_column, t->scale, t->head_size);
    } else {
      for (int64_t c = 0; c < t->head_size; c++) q[c] = 0.0f;
    }
    for (int64_t c = 0; c < a->columns; c += V_LANES) v_store(out + c, v_zero());
    s->row_max[r] = sink ? t->sink : -INFINITY;
    s->row_sum[r] = sink ? 1.0f : 0.0f;
  }
}

/* After the last block. */
static void write_strip(const attend_work *a, const attend_strip *s, bool sink) {
  const heed__attention_task *t = a->t;
  for (int64_t r = 0, i = t->first + s->row; r < ATTEND_STRIP && i < t->last; r++, i++) {
    const bool nothing = sink && !isfinite(t->sink) && !sees_any(t, i);
    write_row(t, i, s->out + r * a->columns, nothing ? 0.0f : s->row_sum[r]);
    if (t->weights) write_weights(t, i, s->row_max[r], nothing ? 0.0f : s->row_sum[r]);
    if (t->lse || t->stats) {
      /* The sink alone is no key. */
      const bool unseen = nothing || s->row_sum[r] == 0.0f || (sink && !sees_any(t, i));
      heed__attention_write_sums(t, i, s->row_max[r], s->row_sum[r], !unseen);
    }
  }
}

/* Keys from…to-1 of a block. */
typedef struct key_range {
  int64_t from, to;
} key_range;

/* Whether values from…to-1 of the block are finite. Extends the range of those that are known to be finite,
 * or begins another, so that strips one after another check a value once. */
static bool finite_between(const attend_work *a, const seen *e, key_range *known, int64_t from, int64_t to) {
  if (from >= to) return true;
  if (known->from > to || known->to < from) known->from = known->to = from;
  const int64_t columns = a->columns, below = known->from - from, above = to - known->to;
  if (below > 0 && !are_finite_rows(e->values + from * e->value_row, e->value_row, below, columns))
    return false;
  if (above > 0 && !are_finite_rows(e->values + known->to * e->value_row, e->value_row, above, columns))
    return false;
  known->from = heed__min(known->from, from);
  known->to = heed__max(known->to, to);
  return true;
}

/* Whether all values that some rows of the strip see and others do not are finite: those before the keys that
 * all rows see, and those behind, with the known range of each. */
static bool hides_finite(const attend_work *a, const seen *e, key_range known[2]) {
  return finite_between(a, e, &known[0], e->weighed, heed__min(e->sure_first, e->high)) &&
         finite_between(a, e, &known[1], heed__max(e->sure_last, e->weighed), e->high);
}

/* A step is a strip with a block of keys, block by block. A strip's rows are prepared in the first block that
 * it sees and written in the last; in between they are kept in the scratch, like the packed block. */
bool KERNEL(attention)(const heed__attention_task *t, const heed__pace *pace, int64_t *position) {
  if (heed__attention_is_small(t)) {
    attend_small(t);
    return true;
  }
  attend_work a;
  attend_ahead ahead = {.rows = {{0}}};
  lay_out(&a, t, t->scratch);
  a.ahead = &ahead;
  const bool sink = t->has_sink && t->sink != -INFINITY;
  int64_t begin, end;
  heed__attention_hull(t, t->first, t->last, &begin, &end);
  const int64_t start = begin < end ? round_down(begin, a.block) : end;
  const int64_t blocks = heed__max((end - start + a.block - 1) / a.block, 1), strips = a.rows / ATTEND_STRIP;
  const int64_t before = position ? *position : 0;
  if (before == 0) *a.packed = -1;
  int64_t at = before % strips;
  for (int64_t block = before / strips; block < blocks; block++, at = 0) {
    const int64_t first = start + block * a.block;
    seen e = {.first = first, .begin = heed__max(begin - first, 0), .count = heed__min(end - first, a.block)};
    key_range finite[2] = {{0, 0}, {0, 0}};
    if (t->intervals && skips_block(&e, t, start, a.block, blocks, &block)) continue;
    /* With more keys, reading them takes a small part of the time, and prefetched ones displace the values.
     */
    if (end - begin <= 2 * a.rows) look_ahead_of_block(&a, first + a.block, end);
    for (; at < strips; at++) {
      const attend_strip s = strip_of(&a, at * ATTEND_STRIP, start, blocks);
      if (block < s.from || block > s.to) continue;
      if (block == s.from) {
        begin_strip(&a, &s, sink);
        if (t->weights) begin_map(t, s.row);
      }
      see(&a, &e, t->first + s.row);
      if (e.high > e.low) {
        if (!e.values) pack_block(&a, &e);
        float factor[16];
        score_strip(&a, &e, &s);
        weights_of_strip(&a, &e, &s, factor);
        (hides_finite(&a, &e, finite) ? weigh_strip : weigh_seen)(&a, &e, s.out, factor);
      }
      if (block == s.to) write_strip(&a, &s, sink);
      if (heed__should_yield(pace) && (block < blocks - 1 || at < strips - 1)) {
        *position = block * strips + at + 1;
        return false;
      }
    }
  }
  return true;
}

size_t KERNEL(attention_scratch)(const heed__attention_task *t) {
  attend_work a;
  if (heed__attention_is_small(t)) return 0;
  return lay_out(&a, t, NULL) * sizeof(float);
}

#endif
