/* Products in fewer bits: the readable specification, and the reference of their tests. No context chooses
 * these kernels, because without instructions for narrow numbers they save nothing. */
#include "scalar.h"

size_t heed__scalar_reduced_bytes(const heed__lowp_task *whole, size_t *scratch_bytes) {
  (void)whole;
  *scratch_bytes = 0;
  return 0;
}

void heed__scalar_reduced_pack(const heed__reduced_task *task) {
  (void)task;
}

#if HEED_MINIMAL

bool heed__scalar_reduced(const heed__reduced_task *task, const heed__pace *pace, int64_t *position) {
  (void)task, (void)pace, (void)position;
  return true;
}

#else

/* Elements first…first + n - 1 of row j of the weight, widened; int8 without its scale. */
static void widen_weight(const heed__lowp_task *t, size_t j, size_t first, size_t n, float *out) {
  float x[HEED__LARGEST_BLOCK];
  if (t->w_column) {
    const float *w = (const float *)t->w + (ptrdiff_t)j + (ptrdiff_t)first * t->w_column;
    for (size_t p = 0; p < n; p++) out[p] = w[(ptrdiff_t)p * t->w_column];
    return;
  }
  const size_t skip = first % (size_t)heed__block_elements(t->dtype);
  const int64_t start = (int64_t)j * t->w_row + (int64_t)(first - skip);
  ptrdiff_t column = 1;
  const float *row = heed__scalar_widen((const char *)t->w + heed__row_bytes(t->dtype, start), t->dtype, 1.0f,
                                        &column, (int64_t)(skip + n), x);
  for (size_t p = 0; p < n; p++) out[p] = row[skip + p];
}

/* Rounds to bfloat16, in place; subnormal results are 0. */
static void round_halves(float *x, size_t n) {
  for (size_t p = 0; p < n; p++) {
    x[p] = heed__float_from_bfloat16(heed__bfloat16_from_float(x[p]));
    if (fabsf(x[p]) < FLT_MIN) x[p] = 0.0f;
  }
}

/* Rounds a block to integers, in place, and returns their scale. */
static float round_bytes(float *x, size_t n) {
  float most = 0.0f, finite = 0.0f;
  for (size_t p = 0; p < n; p++) {
    most = fabsf(x[p]) > most ? fabsf(x[p]) : most;
    finite += x[p] * 0.0f;
  }
  const float inverse = most >= 0x1p-100f && finite == 0.0f ? 127.0f / most : 0.0f;
  for (size_t p = 0; p < n; p++) x[p] = inverse == 0.0f ? 0.0f : rintf(x[p] * inverse);
  return most * (1.0f / 127.0f) + finite;
}

/* c plus the products of a block of x, rounded to integers with that scale, with elements first… of row j of
 * a blocked weight. */
static float add_groups(const heed__lowp_task *t, size_t j, size_t first, size_t n, const float *x,
                        float scale, float c) {
  const size_t elements = (size_t)heed__block_elements(t->dtype),
               group = t->dtype == HEED_Q6_K ? HEED__BLOCK_GROUP : 2 * HEED__BLOCK_GROUP;
  for (size_t p = 0; p < n; p += group) {
    const int64_t start = (int64_t)j * t->w_row + (int64_t)(first + p);
    const size_t at = (first + p) % elements;
    heed__block block;
    heed__scalar_unpack(t->dtype, (const char *)t->w + heed__row_bytes(t->dtype, start - (int64_t)at),
                        &block);
    float sum = 0.0f, total = 0.0f;
    for (size_t q = 0; q < group; q++) {
      sum += x[p + q] * (float)block.value[at + q];
      total += x[p + q];
    }
    c = heed__fused(sum * scale, block.scale[at / HEED__BLOCK_GROUP], c);
    if (t->dtype == HEED_Q4_1 || t->dtype == HEED_Q5_1 || t->dtype == HEED_Q4_K || t->dtype == HEED_Q5_K)
      c = heed__fused(total * scale, -block.minimum[at / HEED__BLOCK_GROUP], c);
  }
  return c;
}

bool heed__scalar_reduced(const heed__reduced_task *task, const heed__pace *pace, int64_t *position) {
  const heed__lowp_task *t = &task->whole;
  const bool groups = heed__is_blocked(t->dtype) && task->integers,
             integers = t->dtype == HEED_INT8 || groups;
  float x[HEED_INT8_BLOCK], w[HEED_INT8_BLOCK];
  (void)pace;
  (void)position;
  for (size_t i = task->row; i < task->row + task->rows; i++) {
    float *c = t->c + (ptrdiff_t)i * t->c_row;
    for (size_t j = task->column; j < task->column + task->columns; j++) c[j] = 0.0f;
    for (size_t p = 0; p < t->k; p += HEED_INT8_BLOCK) {
      const size_t n = heed__min_size(t->k - p, HEED_INT8_BLOCK);
      memcpy(x, t->x + (ptrdiff_t)i * t->x_row + p, n * sizeof *x);
      float scale = 1.0f;
      if (integers)
        scale = round_bytes(x, n);
      else
        round_halves(x, n);
      for (size_t j = task->column; j < task->column + task->columns; j++) {
        float sum = 0.0f; /* of integers: below 2^24, so exact */
        if (groups) {
          c[j] = add_groups(t, j, p, n, x, scale, c[j]);
          continue;
        }
        widen_weight(t, j, p, n, w);
        if (!integers) round_halves(w, n);
        for (size_t q = 0; q < n; q++) sum += x[q] * w[q];
        c[j] =
            integers
                ? heed__fused(sum * scale,
                              t->scale[(ptrdiff_t)j * t->scale_row + (ptrdiff_t)(p / HEED_INT8_BLOCK)], c[j])
                : c[j] + sum;
      }
    }
    for (size_t j = task->column; t->bias && j < task->column + task->columns; j++) c[j] += t->bias[j];
  }
  return true;
}

#endif

/* The same as attention: the reference, within the rounding errors. */
bool heed__scalar_reduced_attention(const heed__attention_task *t, const heed__pace *pace,
                                    int64_t *position) {
  return heed__scalar_attention(t, pace, position);
}

size_t heed__scalar_reduced_attention_scratch(const heed__attention_task *t) {
  (void)t;
  return 0;
}
