/* Primitives on 8 and 16 bits for the tables beyond AVX-512 (reduced.h): dot products of the bytes or pairs
 * in each of 16 lanes. */
#ifndef HEED_ISA_AVX512_NARROW_H
#define HEED_ISA_AVX512_NARROW_H

#include "avx512.h"

/* Four bytes or a pair of halves in all lanes */
static inline vint v_set_word(const void *p) {
  int32_t word;
  memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}
static inline vint v_load_words(const void *p) {
  return _mm512_loadu_si512(p);
}
static inline void v_store_words(void *p, vint x) {
  _mm512_storeu_si512(p, x);
}
/* The 64 integers nearest to x, within ±127 */
static inline vint v_round_bytes(const vfloat x[4]) {
  __m512i out = _mm512_castsi128_si512(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x[0])));
  out = _mm512_inserti32x4(out, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x[1])), 1);
  out = _mm512_inserti32x4(out, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x[2])), 2);
  return _mm512_inserti32x4(out, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x[3])), 3);
}
/* sum + Σ a · b of the four bytes of each lane; a is without sign, b with: a has 128 too much */
#define V_BYTES_EXCESS 128
static inline vint v_dot_bytes(vint sum, vint a, vint b) {
  return _mm512_dpbusd_epi32(sum, a, b);
}

#if defined(V_HALVES)
/* 32 floats rounded to bfloat16 */
static inline vint v_round_halves(vfloat low, vfloat high) {
  return (vint)_mm512_cvtne2ps_pbh(high, low);
}
/* Both rounded to bfloat16, in the halves of each lane */
static inline vint v_pair_halves(vfloat low, vfloat high) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, v_round_halves(low, high));
}
/* sum + a · b of the two halves of each lane */
static inline vfloat v_dot_halves(vfloat sum, vint a, vint b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
#endif

#endif
