/* Products and attention in fewer bits on tables without instructions for them: no context chooses these
 * kernels. Tables whose primitives have dot products of bytes compute products of integers.
 */
#ifndef HEED_VECTOR_REDUCED_NONE_H
#define HEED_VECTOR_REDUCED_NONE_H

#if defined(V_BYTES_EXCESS)
#include "reduced.h"
#define REDUCED_SIZE     reduced_size
#define REDUCED_PACK     reduced_pack_rows
#define REDUCED_MULTIPLY reduced_multiply
#else
#define REDUCED_SIZE     heed__scalar_reduced_bytes
#define REDUCED_PACK     heed__scalar_reduced_pack
#define REDUCED_MULTIPLY heed__scalar_reduced
#endif

size_t KERNEL(reduced_bytes)(const heed__lowp_task *whole, size_t *scratch_bytes) {
  return REDUCED_SIZE(whole, scratch_bytes);
}
void KERNEL(reduced_pack)(const heed__reduced_task *task) {
  REDUCED_PACK(task);
}
bool KERNEL(reduced)(const heed__reduced_task *task, const heed__pace *pace, int64_t *position) {
  return REDUCED_MULTIPLY(task, pace, position);
}
bool KERNEL(reduced_attention)(const heed__attention_task *task, const heed__pace *pace, int64_t *position) {
  return heed__scalar_reduced_attention(task, pace, position);
}
size_t KERNEL(reduced_attention_scratch)(const heed__attention_task *task) {
  return heed__scalar_reduced_attention_scratch(task);
}

#endif
