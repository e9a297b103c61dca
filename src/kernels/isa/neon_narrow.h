/* Primitives on 8 and 16 bits for the tables beyond NEON (vector/reduced.h): products of the bytes in each of
 * 4 lanes. With V_PAIRS, vectors hold two rows of 8 bytes or 4 halves, and all products of two rows with two.
 */
#ifndef HEED_ISA_NEON_NARROW_H
#define HEED_ISA_NEON_NARROW_H

#include "neon.h"
#include "target_begin.h"

/* Four bytes or a pair of halves in all lanes */
static inline vint v_set_word(const void *p) {
  int32_t word;
  memcpy(&word, p, sizeof word);
  return vdupq_n_s32(word);
}
static inline vint v_load_words(const void *p) {
  return vreinterpretq_s32_u8(vld1q_u8(p));
}
static inline void v_store_words(void *p, vint x) {
  vst1q_u8(p, vreinterpretq_u8_s32(x));
}
/* The 16 integers nearest to x, which are within ±127 */
static inline vint v_round_bytes(const vfloat x[4]) {
  const int16x8_t low = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x[0])), vmovn_s32(vcvtnq_s32_f32(x[1])));
  const int16x8_t high = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x[2])), vmovn_s32(vcvtnq_s32_f32(x[3])));
  return vreinterpretq_s32_s8(vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
/* sum + Σ a · b of the four bytes of each lane, both with sign */
#define V_BYTES_EXCESS 0
static inline vint v_dot_bytes(vint sum, vint a, vint b) {
  return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
}

#if defined(V_PAIRS)
/* 8 bytes at p and at q */
static inline vint v_set_rows(const void *p, const void *q) {
  return vreinterpretq_s32_u8(vcombine_u8(vld1_u8(p), vld1_u8(q)));
}
/* sum + a · b: sums (a₀b₀, a₀b₁, a₁b₀, a₁b₁) of rows of 8 bytes, or of 4 halves */
static inline vint v_dot_byte_rows(vint sum, vint a, vint b) {
  return vmmlaq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
}
static inline vfloat v_dot_half_rows(vfloat sum, vint a, vint b) {
  return vbfmmlaq_f32(sum, vreinterpretq_bf16_s32(a), vreinterpretq_bf16_s32(b));
}
/* (a₀, b₀, a₁, b₁) and (a₂, b₂, a₃, b₃), and back */
static inline void v_mix(vint *a, vint *b) {
  const vint low = vzip1q_s32(*a, *b);
  *b = vzip2q_s32(*a, *b);
  *a = low;
}
static inline void v_unmix(vint *a, vint *b) {
  const vint even = vuzp1q_s32(*a, *b);
  *b = vuzp2q_s32(*a, *b);
  *a = even;
}
/* Both rounded to bfloat16, in the halves of each lane */
static inline vint v_pair_halves(vfloat low, vfloat high) {
  return vreinterpretq_s32_u16(vzip1q_u16(vreinterpretq_u16_bf16(vcvtq_low_bf16_f32(low)),
                                          vreinterpretq_u16_bf16(vcvtq_low_bf16_f32(high))));
}
/* 8 floats rounded to bfloat16 */
static inline vint v_round_halves(vfloat low, vfloat high) {
  return vreinterpretq_s32_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high));
}
#endif

#endif
