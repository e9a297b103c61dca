/* The scalar kernel for few queries on a range of keys, key by key: the reference for the faster ones. */
#include "scalar.h"

#include <float.h>

static bool decode_sees(const heed__decode_task *t, const heed__decode_row *row, int64_t j) {
  return !(row->intervals && heed__is_outside(row->intervals, row->interval_count, j)) &&
         (!row->visible || row->visible[j * t->visible_column]) &&
         (!t->padding || !t->padding[j * t->padding_stride]) &&
         (!row->bias || row->bias[j * t->bias_column] != -INFINITY);
}

enum { DECODE_PIECE = 256 }; /* elements that are widened at a time, on the stack */

static float decode_dot(const heed__decode_task *t, const heed__decode_row *row, int64_t j) {
  const size_t bytes = heed__element_bytes(t->k_dtype);
  const char *k = (const char *)t->k + (row->k + j * t->k_row) * (ptrdiff_t)bytes;
  const float scale = row->k_scale ? row->k_scale[j * t->k_scale_row] : 1.0f;
  float wide[DECODE_PIECE], sum = 0.0f;
  ptrdiff_t column = 1;
  if (t->k_dtype == HEED_FLOAT32)
    return heed__scalar_dot(row->q, 1, (const float *)(const void *)k, 1, (size_t)t->head_size);
  for (int64_t c = 0; c < t->head_size; c += DECODE_PIECE) {
    const int64_t n = t->head_size - c < DECODE_PIECE ? t->head_size - c : DECODE_PIECE;
    const float *x = heed__scalar_widen(k + c * (ptrdiff_t)bytes, t->k_dtype, scale, &column, n, wide);
    sum += heed__scalar_dot(row->q + c, 1, x, 1, (size_t)n);
  }
  return sum;
}

static void add_value(const heed__decode_task *t, const heed__decode_row *row, float *out, float weight,
                      int64_t j) {
  const size_t bytes = heed__element_bytes(t->v_dtype);
  const char *v = (const char *)t->v + (row->v + j * t->v_row) * (ptrdiff_t)bytes;
  const float scale = row->v_scale ? row->v_scale[j * t->v_scale_row] : 1.0f;
  float wide[DECODE_PIECE];
  ptrdiff_t column = 1;
  for (int64_t c = 0; c < t->value_size; c += DECODE_PIECE) {
    const int64_t n = t->value_size - c < DECODE_PIECE ? t->value_size - c : DECODE_PIECE;
    const float *x = heed__scalar_widen(v + c * (ptrdiff_t)bytes, t->v_dtype, scale, &column, n, wide);
    for (int64_t i = 0; i < n; i++) out[c + i] += weight * x[i];
  }
}

/* One step: keys from *j on, at most up to `last`. */
static void decode_keys(const heed__decode_task *t, int r, int64_t *j, int64_t last) {
  enum { STEP = 512 };
  const heed__decode_row *row = &t->row[r];
  float *out = t->out + r * t->value_size, largest = t->row_max[r], sum = t->row_sum[r];
  const int64_t end = last - *j < STEP ? last : *j + STEP;
  for (; *j < end; ++*j) {
    if (!decode_sees(t, row, *j)) continue;
    float score = decode_dot(t, row, *j) * t->scale;
    if (t->softcap > 0.0f) score = heed__attention_cap(score, t->softcap);
    if (row->bias) score += row->bias[*j * t->bias_column];
    if (row->slope != 0.0f) score -= heed__attention_distance(row->slope, row->position, *j);
    if (row->map) row->map[*j] = score;
    if (score > largest) { /* rescale the sums so far to the new maximum */
      const float smaller = heed__exp_of(largest - score);
      largest = score;
      sum *= smaller;
      for (int64_t c = 0; c < t->value_size; c++) out[c] *= smaller;
    }
    const float weight = heed__exp_of(score - largest);
    sum += weight;
    add_value(t, row, out, weight, *j);
  }
  t->row_max[r] = largest;
  t->row_sum[r] = sum;
}

/* Row by row; between steps the sums are kept in the task's results. */
bool heed__scalar_decode(const heed__decode_task *t, const heed__pace *pace, int64_t *position) {
  const int64_t keys = t->last > t->first ? t->last - t->first : 1, before = position ? *position : 0;
  for (int r = (int)(before / keys); r < t->rows; r++) {
    const heed__decode_row *row = &t->row[r];
    const int64_t first = row->first > t->first ? row->first : t->first;
    const int64_t last = row->last < t->last ? row->last : t->last;
    int64_t j = first;
    if (before > r * keys) {
      j = t->first + before % keys;
    } else {
      for (int64_t c = 0; c < t->value_size; c++) t->out[r * t->value_size + c] = 0.0f;
      t->row_max[r] = -FLT_MAX;
      t->row_sum[r] = 0.0f;
    }
    while (j < last) {
      decode_keys(t, r, &j, last);
      if ((j >= last && r + 1 == t->rows) || !heed__should_yield(pace)) continue;
      *position = j < last ? r * keys + j - t->first : (r + 1) * keys;
      return false;
    }
  }
  return true;
}
