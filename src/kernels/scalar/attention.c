/* The scalar attention kernel, row by row: the reference for the faster ones. */
#include "scalar.h"

/* The current row: the scores, then the weights, of keys first…last-1, followed by the sink; and a buffer for
 * one widened row of keys or values. */
typedef struct row {
  const heed__attention_task *t;
  int64_t i, first, last;
  bool masked; /* by more than its bounds */
  float *x;    /* [s + 1] */
  float *wide; /* [max(d, dv)] */
} row;

static bool sees(const row *r, int64_t j) {
  return !(r->masked && heed__attention_hides(r->t, r->i, j));
}

static float dot(const row *r, int64_t j) {
  const heed__attention_task *t = r->t;
  const char *k = (const char *)t->k + j * t->k_row * (ptrdiff_t)heed__element_bytes(t->k_dtype);
  const float scale = t->k_scale ? t->k_scale[j * t->k_scale_row] : 1.0f;
  ptrdiff_t column = t->k_column;
  const float *key = heed__scalar_widen(k, t->k_dtype, scale, &column, t->head_size, r->wide);
  return heed__scalar_dot(t->q + r->i * t->q_row, t->q_column, key, column, (size_t)t->head_size);
}

/* The scores; those of hidden keys are -inf whatever the keys contain. Returns whether any key is visible. */
static bool score(const row *r) {
  const heed__attention_task *t = r->t;
  float *tap = t->scores ? heed__attention_map_row(t, t->scores, r->i) : NULL;
  bool any = false;
  for (int64_t j = 0; tap && j < t->key_length; j++) tap[j] = -INFINITY;
  for (int64_t j = r->first; j < r->last; j++) {
    r->x[j] = -INFINITY;
    if (!sees(r, j)) continue;
    const float product = dot(r, j);
    float x = product * t->scale;
    if (tap) tap[j] = product;
    if (t->softcap > 0.0f) x = heed__attention_cap(x, t->softcap);
    if (t->bias) x += t->bias[r->i * t->bias_row + j * t->bias_column];
    if (t->slope != 0.0f) x -= heed__attention_distance(t->slope, r->i + t->offset, j);
    r->x[j] = x;
    any = true;
  }
  return any;
}

/* The taps of scores; hidden keys have logits too. */
static void tap_scores(const row *r) {
  const heed__attention_task *t = r->t;
  const int64_t at = r->i * (t->key_length + t->map_spare);
  for (int64_t j = 0; j < t->key_length && (t->logits || t->capped_logits); j++) {
    const float x = dot(r, j) * t->scale;
    if (t->logits) t->logits[at + j] = x;
    if (t->capped_logits)
      t->capped_logits[at + j] = t->softcap > 0.0f ? heed__attention_cap(x, t->softcap) : x;
  }
  for (int64_t j = 0; j < t->key_length && t->biased_logits; j++)
    t->biased_logits[at + j] = j >= r->first && j < r->last ? r->x[j] : -INFINITY;
}

static void write_sums(const row *r, const float *x, size_t n) {
  const float most = heed__scalar_max(x, n);
  float sum = 0.0f;
  for (size_t j = 0; j < n; j++) sum += heed__exp_of(x[j] - most);
  heed__attention_write_sums(r->t, r->i, most, sum, most != -INFINITY);
}

/* Turns scores into weights; outside the window they are 0. Returns false, with all weights 0, if there is
 * nothing to weigh. */
static bool scores_to_weights(const row *r, bool seen) {
  const heed__attention_task *t = r->t;
  float *x = r->x + r->first;
  size_t n = (size_t)(r->last - r->first);
  const bool any = seen && (t->has_sink || heed__scalar_max(x, n) != -INFINITY);
  const bool sums = t->lse || t->stats;
  if (sums && !any) heed__attention_write_sums(t, r->i, -INFINITY, 0.0f, false);
  for (size_t j = 0; !any && j < n; j++) x[j] = 0.0f;
  if (any && t->has_sink) x[n++] = t->sink;
  if (any && sums) write_sums(r, x, n);
  if (any) heed__scalar_softmax(x, x, n);
  for (int64_t j = 0; j < r->first; j++) r->x[j] = 0.0f;
  for (int64_t j = r->last; j < t->key_length; j++) r->x[j] = 0.0f;
  return any;
}

/* out = Σ weight · value over the visible keys. Hidden values are skipped, since nan or inf times a weight of
 * 0 would be nan. */
static void weigh_values(const row *r) {
  const heed__attention_task *t = r->t;
  float *out = t->out + r->i * t->out_row;
  for (int64_t c = 0; c < t->value_size; c++) out[c * t->out_column] = 0.0f;
  for (int64_t j = r->first; j < r->last; j++) {
    if (!sees(r, j)) continue;
    const char *values = (const char *)t->v + j * t->v_row * (ptrdiff_t)heed__element_bytes(t->v_dtype);
    const float weight = r->x[j], scale = t->v_scale ? t->v_scale[j * t->v_scale_row] : 1.0f;
    ptrdiff_t column = t->v_column;
    const float *v = heed__scalar_widen(values, t->v_dtype, scale, &column, t->value_size, r->wide);
    if (t->out_column == 1 && column == 1) {
      HEED__INDEPENDENT
      for (int64_t c = 0; c < t->value_size; c++) out[c] += weight * v[c];
    } else {
      for (int64_t c = 0; c < t->value_size; c++) out[c * t->out_column] += weight * v[c * column];
    }
  }
}

/* A step is a row; the scratch holds nothing between steps. */
bool heed__scalar_attention(const heed__attention_task *t, const heed__pace *pace, int64_t *position) {
  const size_t row_bytes = (size_t)t->key_length * sizeof(float);
  row r = {.t = t, .masked = t->intervals || t->visible || t->padding || t->bias, .x = t->scratch};
  r.wide = r.x + t->key_length + 1;
  for (r.i = t->first + (position ? *position : 0); r.i < t->last; r.i++) {
    heed__attention_bounds(t, r.i, &r.first, &r.last);
    const bool seen = score(&r);
    if (t->logits || t->capped_logits || t->biased_logits) tap_scores(&r);
    const bool any = scores_to_weights(&r, seen);
    if (t->weights) memcpy(heed__attention_map_row(t, t->weights, r.i), r.x, row_bytes);
    const float *keep = t->dropout_mask ? t->dropout_mask + (r.i - t->first) * t->key_length : NULL;
    for (int64_t j = 0; keep && j < t->key_length; j++)
      r.x[j] *= keep[j]; /* keeps -0 and nan, as PyTorch does */
    if (t->dropped_weights) memcpy(heed__attention_map_row(t, t->dropped_weights, r.i), r.x, row_bytes);
    if (t->out && any) {
      weigh_values(&r);
    } else {
      for (int64_t c = 0; t->out && c < t->value_size; c++)
        t->out[r.i * t->out_row + c * t->out_column] = 0.0f;
    }
    if (r.i + 1 < t->last && heed__should_yield(pace)) {
      *position = r.i + 1 - t->first;
      return false;
    }
  }
  return true;
}

size_t heed__scalar_attention_scratch(const heed__attention_task *t) {
  const bool plain = t->k_dtype == HEED_FLOAT32 && t->v_dtype == HEED_FLOAT32;
  const int64_t wide = plain ? 0 : t->head_size > t->value_size ? t->head_size : t->value_size;
  return (size_t)(t->key_length + 1 + wide) * sizeof(float);
}
