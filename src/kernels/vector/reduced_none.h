/* Products and attention in fewer bits on tables without instructions for them: no context chooses these
 * kernels, except those of few rows by bytes where the table's file defines V_FEW. */
#ifndef HEED_VECTOR_REDUCED_NONE_H
#define HEED_VECTOR_REDUCED_NONE_H

#if defined(V_FEW)
#include "reduced_few.h"
#endif

size_t KERNEL(reduced_bytes)(const heed__lowp_task *whole, size_t *scratch_bytes) {
#if defined(V_FEW)
  if (few_goes(whole)) return few_size(whole, scratch_bytes);
#endif
  return heed__scalar_reduced_bytes(whole, scratch_bytes);
}
void KERNEL(reduced_pack)(const heed__reduced_task *task) {
#if defined(V_FEW)
  few_pack(task);
#else
  heed__scalar_reduced_pack(task);
#endif
}
bool KERNEL(reduced)(const heed__reduced_task *task, const heed__pace *pace, int64_t *position) {
#if defined(V_FEW)
  return few_multiply(task, pace, position);
#else
  return heed__scalar_reduced(task, pace, position);
#endif
}
bool KERNEL(reduced_attention)(const heed__attention_task *task, const heed__pace *pace, int64_t *position) {
  return heed__scalar_reduced_attention(task, pace, position);
}
size_t KERNEL(reduced_attention_scratch)(const heed__attention_task *task) {
  return heed__scalar_reduced_attention_scratch(task);
}

#endif
