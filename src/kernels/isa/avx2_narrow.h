/* Primitives on 8 bits for AVX2 (vector/reduced.h): dot products of the bytes in each of 8 lanes. */
#ifndef HEED_ISA_AVX2_NARROW_H
#define HEED_ISA_AVX2_NARROW_H

#include "avx2.h"

/* Four bytes in all lanes */
static inline vint v_set_word(const void *p) {
  int32_t word;
  memcpy(&word, p, sizeof word);
  return _mm256_set1_epi32(word);
}
static inline vint v_load_words(const void *p) {
  return _mm256_loadu_si256(p);
}
static inline void v_store_words(void *p, vint x) {
  _mm256_storeu_si256(p, x);
}
/* The 32 integers nearest to x, which are within ±127 */
static inline vint v_round_bytes(const vfloat x[4]) {
  const __m256i low = _mm256_packs_epi32(_mm256_cvtps_epi32(x[0]), _mm256_cvtps_epi32(x[1]));
  const __m256i high = _mm256_packs_epi32(_mm256_cvtps_epi32(x[2]), _mm256_cvtps_epi32(x[3]));
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

#if defined(V_UNSIGNED_BYTES)
/* sum + Σ a · b of the four bytes of each lane; a is without sign, b with: a has 128 too much */
#define V_BYTES_EXCESS 128
static inline vint v_dot_bytes(vint sum, vint a, vint b) {
  return _mm256_dpbusd_avx_epi32(sum, a, b);
}
#else
/* The same, both with sign. Pairs are added in 16 bits, which 2 · 128 · 127 does not leave: b is within ±127.
 */
#define V_BYTES_EXCESS 0
static inline vint v_dot_bytes(vint sum, vint a, vint b) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
/* The same of a from 0 to 127, for which it is faster */
#define V_CODES
static inline vint v_dot_codes(vint sum, vint a, vint b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)));
}
#endif

#include "avx2_few.h"

#endif
