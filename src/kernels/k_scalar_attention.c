/* The scalar attention kernel: row by row, what every faster one must give. */
#include "k_scalar.h"

#include <float.h>

/* row = the scaled scores of query i with its first `reach` keys, hidden ones -inf whatever they hold; and
 * the tap. */
static void score_row(const heed__attention_task *t, float *row, int64_t i, int64_t reach, bool masked) {
  const float *q = t->q + i * t->q_row;
  float *tap = t->scores ? t->scores + i * t->s : NULL;
  for (int64_t j = 0; j < reach; j++) {
    if (masked && heed__attention_hides(t, i, j)) {
      row[j] = -INFINITY;
      if (tap) tap[j] = -INFINITY;
      continue;
    }
    const float score = heed__scalar_dot(q, t->q_column, t->k + j * t->k_row, t->k_column, (size_t)t->d);
    if (tap) tap[j] = score;
    row[j] = t->bias ? score * t->scale + t->bias[i * t->bias_row + j * t->bias_column] : score * t->scale;
  }
  for (int64_t j = reach; tap && j < t->s; j++) tap[j] = -INFINITY;
}

/* out = Σ weight · value over the keys that query i sees. Those that it does not see are left out, and not
 * multiplied by 0, which nan and inf would survive. */
static void weigh_values(const heed__attention_task *t, const float *row, int64_t i, int64_t reach,
                         bool masked) {
  float *out = t->out + i * t->out_row;
  for (int64_t c = 0; c < t->dv; c++) out[c * t->out_column] = 0.0f;
  for (int64_t j = 0; j < reach; j++) {
    if (masked && heed__attention_hides(t, i, j)) continue;
    const float weight = row[j];
    const float *v = t->v + j * t->v_row;
    if (t->out_column == 1 && t->v_column == 1) {
      HEED__INDEPENDENT
      for (int64_t c = 0; c < t->dv; c++) out[c] += weight * v[c];
    } else {
      for (int64_t c = 0; c < t->dv; c++) out[c * t->out_column] += weight * v[c * t->v_column];
    }
  }
}

void heed__scalar_attention(const heed__attention_task *t) {
  const bool masked = t->visible || t->padding || t->bias;
  const size_t row_bytes = (size_t)t->s * sizeof(float);
  float *row = t->scratch;
  for (int64_t i = t->first; i < t->last; i++) {
    int64_t reach = t->causal && i + 1 < t->s ? i + 1 : t->s;
    score_row(t, row, i, reach, masked);
    if (heed__scalar_max(row, (size_t)reach) == -INFINITY) {
      reach = 0; /* nothing is seen: zeros */
    } else {
      heed__scalar_softmax(row, row, (size_t)reach);
    }
    for (int64_t j = reach; j < t->s; j++) row[j] = 0.0f;
    if (t->weights) memcpy(t->weights + i * t->s, row, row_bytes);
    const float *keep = t->keep ? t->keep + (i - t->first) * t->s : NULL;
    for (int64_t j = 0; keep && j < t->s; j++) row[j] *= keep[j]; /* which keeps PyTorch's -0 and nan */
    if (t->dropped_weights) memcpy(t->dropped_weights + i * t->s, row, row_bytes);
    if (t->out) weigh_values(t, row, i, reach, masked);
  }
}

size_t heed__scalar_attention_scratch(const heed__attention_task *t) {
  return (size_t)t->s * sizeof(float); /* a row of scores */
}
