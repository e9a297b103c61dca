/* Products and attention in fewer bits on tables without instructions for them: no context chooses these
 * kernels. */
#ifndef HEED_VECTOR_REDUCED_NONE_H
#define HEED_VECTOR_REDUCED_NONE_H

size_t KERNEL(reduced_bytes)(const heed__lowp_task *whole, size_t *scratch_bytes) {
  return heed__scalar_reduced_bytes(whole, scratch_bytes);
}
void KERNEL(reduced_pack)(const heed__reduced_task *task) {
  heed__scalar_reduced_pack(task);
}
bool KERNEL(reduced)(const heed__reduced_task *task, const heed__pace *pace, int64_t *position) {
  return heed__scalar_reduced(task, pace, position);
}
bool KERNEL(reduced_attention)(const heed__attention_task *task, const heed__pace *pace, int64_t *position) {
  return heed__scalar_reduced_attention(task, pace, position);
}
size_t KERNEL(reduced_attention_scratch)(const heed__attention_task *task) {
  return heed__scalar_reduced_attention_scratch(task);
}

#endif
