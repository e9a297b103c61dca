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

/* ---- Few rows (reduced_few.h): 64 bytes, and 16 sums of four products each ---- */

#define V_FEW
typedef __m512i vbytes;
typedef __m512i vdots;
typedef __m512 vparts;

static inline vbytes vb_load(const void *p) {
  return _mm512_loadu_si512(p);
}
/* The first n bytes, then zeros; nothing else is read. */
static inline vbytes vb_load_first(const void *p, size_t n) {
  return _mm512_maskz_loadu_epi8(n < 64 ? ((uint64_t)1 << n) - 1 : ~(uint64_t)0, p);
}
/* 16 bytes of each */
static inline vbytes vb_load_four(const uint8_t *const *p, size_t at) {
  __m512i out = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)(p[0] + at)));
  out = _mm512_inserti32x4(out, _mm_loadu_si128((const __m128i *)(const void *)(p[1] + at)), 1);
  out = _mm512_inserti32x4(out, _mm_loadu_si128((const __m128i *)(const void *)(p[2] + at)), 2);
  return _mm512_inserti32x4(out, _mm_loadu_si128((const __m128i *)(const void *)(p[3] + at)), 3);
}
/* The low and high halves of bytes */
static inline vbytes vb_low(vbytes x) {
  return _mm512_and_si512(x, _mm512_set1_epi8(15));
}
static inline vbytes vb_high(vbytes x) {
  return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}
/* 16 bits of each */
static inline uint64_t v_join_words(const uint8_t *const *p, size_t at) {
  uint16_t word[4];
  for (int i = 0; i < 4; i++) memcpy(word + i, p[i] + at, 2);
  const uint64_t low = word[0] | (uint32_t)word[1] << 16, high = word[2] | (uint32_t)word[3] << 16;
  return low | high << 32;
}
/* Adds 16 to the bytes whose bit is set: 16 bits of each. */
static inline vbytes vb_add_fifths(vbytes x, const uint8_t *const *p, size_t at) {
  return _mm512_mask_add_epi8(x, v_join_words(p, at), x, _mm512_set1_epi8(16));
}
/* x with some bits of 32 bytes, which are used twice: shifted to the left by `low` and `high`, or to the
 * right where these are negative */
static inline vbytes vb_or_bits(vbytes x, const uint8_t *p, int low, int high, int bits) {
  const __m512i y = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)p));
  const __m512i count = _mm512_setr_epi64(low, low, low, low, high, high, high, high);
  return _mm512_ternarylogic_epi64(x, _mm512_rolv_epi64(y, count), _mm512_set1_epi8((char)bits), 0xf8);
}
/* Bytes with sign as v_dot_signed takes them: here 128 is added */
static inline vbytes vb_signed(vbytes x) {
  return _mm512_xor_si512(x, _mm512_set1_epi8((char)0x80));
}

static inline vdots v_no_dots(void) {
  return _mm512_setzero_si512();
}
static inline vdots v_load_dots(const void *p) {
  return _mm512_loadu_si512(p);
}
static inline void v_store_dots(int32_t *p, vdots x) {
  _mm512_storeu_si512(p, x);
}
/* sum + Σ x · q of four bytes each; x is below 64, or with v_dot_signed what vb_signed returns */
static inline vdots v_dot(vdots sum, vbytes x, const void *q) {
  return v_dot_bytes(sum, x, _mm512_loadu_si512(q));
}
static inline vdots v_dot_signed(vdots sum, vbytes x, const void *q) {
  return v_dot_bytes(sum, x, _mm512_loadu_si512(q));
}
static inline vdots v_sum_bytes(const void *q) {
  return v_dot(v_no_dots(), _mm512_set1_epi8(1), q);
}

static inline vparts vp_zero(void) {
  return _mm512_setzero_ps();
}
/* sum + dots · factor */
static inline vparts vp_fma(vdots dots, vparts factor, vparts sum) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), factor, sum);
}
/* sum + dots · a · b */
static inline vparts vp_fma_two(vdots dots, float a, float b, vparts sum) {
  return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(dots), _mm512_set1_ps(a)), _mm512_set1_ps(b), sum);
}
/* The first float16 number of each in lanes 0 to 3, or the first two of each in lanes 0 to 7; then zeros */
static inline vparts vp_load_four(const uint8_t *const *p) {
  return _mm512_zextps128_ps512(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)v_join_words(p, 0))));
}
static inline vparts vp_load_pairs(const uint8_t *const *p) {
  int32_t pair[4];
  for (int i = 0; i < 4; i++) memcpy(pair + i, p[i], 4);
  return _mm512_zextps256_ps512(_mm256_cvtph_ps(_mm_setr_epi32(pair[0], pair[1], pair[2], pair[3])));
}
/* The first of two float16 numbers times 8 bytes, the second times the next 8 */
static inline vparts vp_scale_bytes(const uint8_t *p, const uint8_t *bytes) {
  const __m512 scale = _mm512_mask_mov_ps(v_set_float16(p), 0xff00, v_set_float16(p + 2));
  return _mm512_mul_ps(scale, _mm512_cvtepi32_ps(v_load_bytes(bytes)));
}
/* A float16 number times 16 bytes with sign */
static inline vparts vp_scale_signed(const uint8_t *p, const uint8_t *bytes) {
  return _mm512_mul_ps(v_set_float16(p), v_load_int8((const int8_t *)bytes));
}
static inline vparts vp_mul(vparts x, const float *p) {
  return _mm512_mul_ps(x, _mm512_loadu_ps(p));
}
/* The first eight lanes times eight numbers; the others are 0. */
static inline vparts vp_mul_eight(vparts x, const float *p) {
  return _mm512_zextps256_ps512(_mm256_mul_ps(_mm512_castps512_ps256(x), _mm256_loadu_ps(p)));
}
/* Lanes 0, step, 2 · step and 3 · step of the first eight, four times each */
static inline vparts vp_fours(vparts x, int step) {
  const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_ps(step == 2 ? _mm512_add_epi32(lane, lane) : lane, x);
}
/* Lanes 4 · i…4 · i + 3, four times each */
static inline vparts vp_fours_from(vparts x, int i) {
  const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_ps(_mm512_add_epi32(lane, _mm512_set1_epi32(4 * i)), x);
}
/* Lanes i and i + 2 of the first eight, eight times each */
static inline vparts vp_eights(vparts x, int i) {
  return _mm512_permutexvar_ps(_mm512_mask_mov_epi32(_mm512_set1_epi32(i), 0xff00, _mm512_set1_epi32(i + 2)),
                               x);
}
/* sum + x; of the first eight lanes, and of the others, only these need to be added */
static inline vparts vp_add_first(vparts sum, vparts x) {
  return _mm512_add_ps(sum, x);
}
static inline vparts vp_add_last(vparts sum, vparts x) {
  return _mm512_add_ps(sum, x);
}
/* The sum of the lanes is that of x; and of the odd ones of the first eight lanes of y; and minus that of the
 * last eight of y. */
static inline vfloat vp_join(vparts x) {
  return x;
}
static inline vfloat vp_join_odd(vparts x, vparts y) {
  return _mm512_mask_add_ps(x, 0xaa, x, y);
}
static inline vfloat vp_join_last(vparts x, vparts y) {
  return _mm512_mask_sub_ps(x, 0xff00, x, y);
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
