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

/* ---- Few rows (reduced_few.h) ---- */

#define V_FEW

/* The first n bytes, then zeros; nothing else is read. */
static inline vint v_load_first_bytes(const void *p, size_t n) {
  return _mm512_maskz_loadu_epi8(n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0, p);
}
/* Bytes -128…127 as 0…255, plus 128 */
static inline vint v_flip_bytes(vint x) {
  return _mm512_xor_si512(x, _mm512_set1_epi8((char)0x80));
}
/* out [16] = the sums of four bytes each */
static inline void v_sums_of_bytes(int32_t *out, const int8_t *q) {
  const __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_loadu_si512(q));
  _mm512_storeu_si512(out, sum);
}
/* 16 bytes of each */
static inline vint v_load_quarters(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d) {
  __m512i out = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)a));
  out = _mm512_inserti32x4(out, _mm_loadu_si128((const __m128i *)(const void *)b), 1);
  out = _mm512_inserti32x4(out, _mm_loadu_si128((const __m128i *)(const void *)c), 2);
  return _mm512_inserti32x4(out, _mm_loadu_si128((const __m128i *)(const void *)d), 3);
}
/* The low and high halves of bytes */
static inline vint v_byte_nibbles(vint x) {
  return _mm512_and_si512(x, _mm512_set1_epi8(15));
}
static inline vint v_high_nibbles(vint x) {
  return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}
/* 16 bits of each */
static inline uint64_t v_join_words(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d) {
  uint16_t word[4];
  memcpy(word, a, 2);
  memcpy(word + 1, b, 2);
  memcpy(word + 2, c, 2);
  memcpy(word + 3, d, 2);
  const uint64_t low = word[0] | (uint32_t)word[1] << 16, high = word[2] | (uint32_t)word[3] << 16;
  return low | high << 32;
}
/* Adds 16 to the bytes whose bit is set: 16 bits of each. */
static inline vint v_add_fifths(vint x, const uint8_t *a, const uint8_t *b, const uint8_t *c,
                                const uint8_t *d) {
  return _mm512_mask_add_epi8(x, v_join_words(a, b, c, d), x, _mm512_set1_epi8(16));
}
/* x with some bits of 32 bytes, which are used twice: rotated to the left by these counts */
static inline vint v_or_bits(vint x, const uint8_t *p, int low, int high, int bits) {
  const __m512i y = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)p));
  const __m512i count = _mm512_setr_epi64(low, low, low, low, high, high, high, high);
  return _mm512_ternarylogic_epi64(x, _mm512_rolv_epi64(y, count), _mm512_set1_epi8((char)bits), 0xf8);
}
/* The first float16 number of each, and the first two of each; other lanes are 0. */
static inline vfloat v_load_four_halves(const uint8_t *a, const uint8_t *b, const uint8_t *c,
                                        const uint8_t *d) {
  return _mm512_zextps128_ps512(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)v_join_words(a, b, c, d))));
}
static inline vfloat v_load_four_pairs(const uint8_t *a, const uint8_t *b, const uint8_t *c,
                                       const uint8_t *d) {
  int32_t pair[4];
  memcpy(pair, a, 4);
  memcpy(pair + 1, b, 4);
  memcpy(pair + 2, c, 4);
  memcpy(pair + 3, d, 4);
  return _mm512_zextps256_ps512(_mm256_cvtph_ps(_mm_setr_epi32(pair[0], pair[1], pair[2], pair[3])));
}
/* The first of two float16 numbers in the lower lanes, the second in the upper ones */
static inline vfloat v_spread_pair(const uint8_t *p) {
  return _mm512_mask_mov_ps(v_set_float16(p), 0xff00, v_set_float16(p + 2));
}
/* The first eight lanes times eight numbers; the others are 0. */
static inline vfloat v_mul_eight(vfloat x, const float *p) {
  return _mm512_zextps256_ps512(_mm256_mul_ps(_mm512_castps512_ps256(x), _mm256_loadu_ps(p)));
}
/* Lanes 0, step, 2 · step and 3 · step, four times each */
static inline vfloat v_spread_fours(vfloat x, int step) {
  const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_ps(step == 2 ? _mm512_add_epi32(lane, lane) : lane, x);
}
/* Lanes i…i + 3, four times each */
static inline vfloat v_spread_four(vfloat x, int i) {
  const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_ps(_mm512_add_epi32(lane, _mm512_set1_epi32(i)), x);
}
/* Lanes i and i + step, eight times each */
static inline vfloat v_spread_two(vfloat x, int i, int step) {
  return _mm512_permutexvar_ps(
      _mm512_mask_mov_epi32(_mm512_set1_epi32(i), 0xff00, _mm512_set1_epi32(i + step)), x);
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
