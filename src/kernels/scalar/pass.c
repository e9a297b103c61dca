/* The forward pass of a small attention module, composed of the scalar kernels gemm and attention. */
#include "scalar.h"

enum { TOKENS = HEED__SMALL_QUERIES, WIDE = HEED__TINY_DEPTH };

/* out [n, columns] = x [n, depth] · weightᵀ + bias */
static void project(const heed__small_pass *p, int which, const float *x, int64_t depth, int64_t columns,
                    float *out) {
  (void)heed__scalar_gemm((size_t)p->n, (size_t)columns, (size_t)depth, x, depth, 1, p->weight[which], 1,
                          depth, p->bias[which], out, columns, NULL, NULL, NULL);
}

void heed__scalar_small_pass(const heed__small_pass *p) {
  const int64_t wide = p->heads * p->head_size, kv_wide = p->kv_heads * p->head_size,
                group = p->heads / p->kv_heads;
  float q[TOKENS * WIDE], k[TOKENS * WIDE], v[TOKENS * WIDE], joined[TOKENS * WIDE], scratch[TOKENS + 1];
  float *heads = p->weight[3] ? joined : p->out;
  project(p, 0, p->x, p->d_in, wide, q);
  project(p, 1, p->x, p->d_in, kv_wide, k);
  project(p, 2, p->x, p->d_in, kv_wide, v);
  heed__attention_task task = heed__small_pass_task(p);
  task.q_row = task.out_row = wide;
  task.k_row = task.v_row = kv_wide;
  task.q_column = task.k_column = task.v_column = task.out_column = 1;
  task.scratch = scratch;
  for (int64_t h = 0; h < p->heads; h++) {
    task.q = q + h * p->head_size;
    task.k = k + h / group * p->head_size;
    task.v = v + h / group * p->head_size;
    task.out = heads + h * p->head_size;
    (void)heed__scalar_attention(&task, NULL, NULL);
  }
  if (p->weight[3]) project(p, 3, joined, wide, p->d_out, p->out);
}
