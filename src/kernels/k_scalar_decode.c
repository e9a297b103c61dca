/* The scalar kernel for few queries on a range of keys: key after key, what every faster one must give. */
#include "k_scalar.h"

#include <float.h>

static bool sees(const heed__decode_task *t, const heed__decode_row *row, int64_t j) {
  return (!row->visible || row->visible[j * t->visible_column]) &&
         (!t->padding || !t->padding[j * t->padding_stride]) &&
         (!row->bias || row->bias[j * t->bias_column] != -INFINITY);
}

void heed__scalar_decode(const heed__decode_task *t) {
  for (int r = 0; r < t->rows; r++) {
    const heed__decode_row *row = &t->row[r];
    const int64_t last = row->reach < t->last ? row->reach : t->last;
    float *out = t->out + r * t->dv, largest = -FLT_MAX, sum = 0.0f;
    for (int64_t c = 0; c < t->dv; c++) out[c] = 0.0f;
    for (int64_t j = t->first; j < last; j++) {
      if (!sees(t, row, j)) continue;
      float score = heed__scalar_dot(row->q, 1, t->k + row->k + j * t->k_row, 1, (size_t)t->d) * t->scale;
      if (row->bias) score += row->bias[j * t->bias_column];
      if (score > largest) { /* what is there was weighted too high */
        const float smaller = heed__exp_of(largest - score);
        largest = score;
        sum *= smaller;
        for (int64_t c = 0; c < t->dv; c++) out[c] *= smaller;
      }
      const float weight = heed__exp_of(score - largest), *v = t->v + row->v + j * t->v_row;
      sum += weight;
      for (int64_t c = 0; c < t->dv; c++) out[c] += weight * v[c];
    }
    t->largest[r] = largest;
    t->sum[r] = sum;
  }
}
