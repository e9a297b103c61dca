/* The forward pass of a small attention module. Each lane holds one token from the first projection to the
 * last, and all intermediate results are on the stack. */
#ifndef HEED_VECTOR_PASS_H
#define HEED_VECTOR_PASS_H

#include "small.h"

enum { PASS_TOKENS = HEED__SMALL_QUERIES, PASS_WIDE = HEED__TINY_DEPTH };

_Static_assert(PASS_TOKENS % V_LANES == 0, "tokens fill whole vectors");

/* The columns of a matrix [tokens, channels], each a row of PASS_TOKENS. */
typedef float pass_columns[PASS_WIDE][PASS_TOKENS];

/* Channel c of a projection for the V_LANES tokens from i on. Products are rounded before they are added, in
 * order, as gemm does for such sizes. */
V_INLINE vfloat pass_channel(const heed__small_pass *p, const int which, const pass_columns in, int64_t depth,
                             int64_t c, int64_t i) {
  const float *weight = p->weight[which] + c * depth, *bias = p->bias[which];
  vfloat sum = v_zero();
  for (int64_t k = 0; k < depth; k++) sum = v_add(sum, v_mul(v_load(in[k] + i), v_set(weight[k])));
  return bias ? v_add(sum, v_set(bias[c])) : sum;
}

static void pass_project(const heed__small_pass *p, const int which, const pass_columns in, int64_t depth,
                         int64_t channels, pass_columns out) {
  for (int64_t i = 0; i < p->n; i += V_LANES)
    for (int64_t c = 0; c < channels; c++) v_store(out[c] + i, pass_channel(p, which, in, depth, c, i));
}

void KERNEL(small_pass)(const heed__small_pass *p) {
#if V_LANES == 16
  if (SMALL_LEFT_TO_AVX2(p->n)) {
    heed__kernels_avx2.small_pass(p);
    return;
  }
#endif
  const int64_t wide = p->heads * p->head_size, kv_wide = p->kv_heads * p->head_size,
                group = p->heads / p->kv_heads;
  const int64_t last = (p->n - 1) / V_LANES * V_LANES; /* start of the last vector */
  pass_columns x, q, k, v, heads;
  for (int64_t c = 0; c < p->d_in; c++) {
    v_store(x[c] + last, v_zero()); /* for lanes without a token */
    for (int64_t i = 0; i < p->n; i++) x[c][i] = p->x[i * p->d_in + c];
  }
  for (int64_t c = 0; c < wide; c++) v_store(heads[c] + last, v_zero());
  pass_project(p, 0, x, p->d_in, wide, q);
  pass_project(p, 1, x, p->d_in, kv_wide, k);
  pass_project(p, 2, x, p->d_in, kv_wide, v);
  heed__attention_task task = heed__small_pass_task(p);
  task.q_row = task.k_row = task.v_row = task.out_row = 1;
  task.q_column = task.k_column = task.v_column = task.out_column = PASS_TOKENS;
  for (int64_t h = 0; h < p->heads; h++) {
    task.q = q[h * p->head_size];
    task.k = k[h / group * p->head_size];
    task.v = v[h / group * p->head_size];
    task.out = heads[h * p->head_size];
    for (int64_t i = 0; i < p->n; i += V_LANES)
      small_rows_plain(&task, i, p->n - i < V_LANES ? p->n - i : V_LANES);
  }
  for (int64_t i = 0; i < p->n; i += V_LANES) {
    const int64_t rows = p->n - i < V_LANES ? p->n - i : V_LANES;
    for (int64_t c = 0; c < p->d_out; c++) {
      const vfloat y = p->weight[3] ? pass_channel(p, 3, heads, wide, c, i) : v_load(heads[c] + i);
      small_scatter(p->out + i * p->d_out + c, p->d_out, rows, y);
    }
  }
}

#endif
