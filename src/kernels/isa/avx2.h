/* The vector primitives on AVX2 with FMA: 8 lanes. avx512.h, neon.h and wasm.h define the same names; the
 * kernels of vector/ are written once on them, and each file of isa/ includes one of the four.
 *
 * Comparisons other than v_isnan are false where a value is nan. v_max(a, b) and v_min(a, b) return b where
 * either is nan. */
#ifndef HEED_ISA_AVX2_H
#define HEED_ISA_AVX2_H

#include <immintrin.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef V_TARGET /* a table that inherits from this one adds features */
#define V_TARGET "avx2,fma,f16c"
#endif
#include "target_begin.h"

/* Names that ## composes must differ in each table, because the amalgamation has all of them in one file. */
#ifndef V_NAME
#define V_NAME(name) name##_avx2
#endif
#define V_LANES      8
#define V_POWER_BITS 3
#define V_EXP_BITS   3
#define V_REGISTERS  16 /* vector registers */
typedef __m256 vfloat;
typedef __m256i vint; /* 32-bit lanes */
typedef __m256 vmask; /* all bits of a lane, or none */

static inline vfloat v_zero(void) {
  return _mm256_setzero_ps();
}
static inline vfloat v_set(float x) {
  return _mm256_set1_ps(x);
}
static inline vfloat v_load(const float *p) {
  return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, vfloat x) {
  _mm256_storeu_ps(p, x);
}

/* V_LANES low-precision elements, widened; nothing else is read. */
static inline vfloat v_load_bfloat16(const uint16_t *p) {
  const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
static inline vfloat v_load_float16(const uint16_t *p) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline vfloat v_load_int8(const int8_t *p) {
  const __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)p);
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x));
}
/* One float16 of any address in all lanes. */
static inline vfloat v_set_float16(const void *p) {
  uint16_t half;
  memcpy(&half, p, sizeof half);
  return _mm256_cvtph_ps(_mm_set1_epi16((short)half));
}
/* V_LANES bytes, 0 to 255. */
static inline vint v_load_bytes(const uint8_t *p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
/* The reverse, rounded as in core/convert.h. bfloat16 is rounded in vector/convert.h and stored as the upper
 * halves of `bits`. */
static inline void v_store_upper(uint16_t *p, vint bits) {
  const __m256i y = _mm256_srli_epi32(bits, 16);
  _mm_storeu_si128((__m128i *)(void *)p,
                   _mm_packus_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1)));
}
static inline void v_store_float16(uint16_t *p, vfloat x) {
  _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline void v_store_int8(int8_t *p, vfloat x) {
  const __m256 number = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
  const __m256 bounded =
      _mm256_min_ps(_mm256_max_ps(number, _mm256_set1_ps(-128.0f)), _mm256_set1_ps(127.0f));
  const __m256i whole = _mm256_cvttps_epi32(bounded);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(words, words));
}

/* The first n lanes, 0 <= n <= V_LANES. A masked load reads only the lanes of the mask; the others are 0. */
static inline vmask v_first(size_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane));
}
static inline vfloat v_load_masked(const float *p, vmask m) {
  return _mm256_maskload_ps(p, _mm256_castps_si256(m));
}
static inline void v_store_masked(float *p, vfloat x, vmask m) {
  _mm256_maskstore_ps(p, _mm256_castps_si256(m), x);
}

static inline vfloat v_add(vfloat a, vfloat b) {
  return _mm256_add_ps(a, b);
}
static inline vfloat v_sub(vfloat a, vfloat b) {
  return _mm256_sub_ps(a, b);
}
static inline vfloat v_mul(vfloat a, vfloat b) {
  return _mm256_mul_ps(a, b);
}
static inline vfloat v_div(vfloat a, vfloat b) {
  return _mm256_div_ps(a, b);
}
/* a · b + c and c - a · b, rounded once */
static inline vfloat v_fma(vfloat a, vfloat b, vfloat c) {
  return _mm256_fmadd_ps(a, b, c);
}
static inline vfloat v_fnma(vfloat a, vfloat b, vfloat c) {
  return _mm256_fnmadd_ps(a, b, c);
}
static inline vfloat v_max(vfloat a, vfloat b) {
  return _mm256_max_ps(a, b);
}
static inline vfloat v_min(vfloat a, vfloat b) {
  return _mm256_min_ps(a, b);
}
static inline vfloat v_sqrt(vfloat x) {
  return _mm256_sqrt_ps(x);
}
static inline vfloat v_abs(vfloat x) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}
static inline vfloat v_neg(vfloat x) {
  return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
}
static inline vfloat v_copysign(vfloat x, vfloat sign) {
  return _mm256_or_ps(v_abs(x), _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}
/* to the nearest integer, ties to even */
static inline vfloat v_round(vfloat x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vmask v_lt(vfloat a, vfloat b) {
  return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
static inline vmask v_le(vfloat a, vfloat b) {
  return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}
static inline vmask v_eq(vfloat a, vfloat b) {
  return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
/* set where neither is nan */
static inline vmask v_ordered(vfloat a, vfloat b) {
  return _mm256_cmp_ps(a, b, _CMP_ORD_Q);
}
static inline vmask v_isnan(vfloat x) {
  return _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
}
static inline vmask v_and_mask(vmask a, vmask b) {
  return _mm256_and_ps(a, b);
}
static inline vmask v_not_mask(vmask a) {
  return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1)));
}
/* one bit per lane, the first lane lowest */
static inline unsigned v_mask_bits(vmask m) {
  return (unsigned)_mm256_movemask_ps(m);
}
static inline vmask v_mask_from_bits(unsigned bits) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), bit), bit));
}
/* one bit for each of 16 bytes, set where the byte is not 0, the first lowest */
static inline unsigned v_bits_of_bytes(const uint8_t *p) {
  const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
  return ~(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_setzero_si128())) & 0xffffu;
}
/* a where m is set, else b */
static inline vfloat v_select(vmask m, vfloat a, vfloat b) {
  return _mm256_blendv_ps(b, a, m);
}
/* 0 where m is set, else x */
static inline vfloat v_clear(vmask m, vfloat x) {
  return _mm256_andnot_ps(m, x);
}

static inline vint v_bits(vfloat x) {
  return _mm256_castps_si256(x);
}
static inline vfloat v_from_bits(vint x) {
  return _mm256_castsi256_ps(x);
}
static inline vint v_set_int(int32_t x) {
  return _mm256_set1_epi32(x);
}
static inline vint v_add_int(vint a, vint b) {
  return _mm256_add_epi32(a, b);
}
static inline vint v_sub_int(vint a, vint b) {
  return _mm256_sub_epi32(a, b);
}
static inline vint v_and_int(vint a, vint b) {
  return _mm256_and_si256(a, b);
}
static inline vint v_xor_int(vint a, vint b) {
  return _mm256_xor_si256(a, b);
}
/* The upper halves of the products of unsigned lanes; *low receives the lower halves. */
static inline vint v_mul_halves(vint a, uint32_t b, vint *low) {
  const __m256i factor = _mm256_set1_epi32((int)b);
  const __m256i even = _mm256_mul_epu32(a, factor), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), factor);
  *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}
static inline vint v_load_int(const uint32_t *p) {
  return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
static inline void v_store_int(uint32_t *p, vint x) {
  _mm256_storeu_si256((__m256i *)(void *)p, x);
}
static inline vint v_shift_right(vint x, int count) {
  return _mm256_srai_epi32(x, count);
}
static inline vint v_shift_left(vint x, int count) {
  return _mm256_slli_epi32(x, count);
}
/* x holds k, in steps of 2^-V_POWER_BITS, shifted to the exponent, so its bits interpolate 2^k linearly. Adds
 * the correction to the float nearest to 2^k: the bits of 2^(j / 2^V_POWER_BITS) minus those of
 * 1 + j / 2^V_POWER_BITS, for the low V_POWER_BITS bits j of k. */
static inline vint v_bend_power(vint x, vint k) {
  static const int32_t bend[]
      __attribute__((aligned(32))) = {0, -289342, -509968, -655657, -719629, -694486, -572163, -343865};
  return _mm256_add_epi32(
      x, _mm256_permutevar8x32_epi32(_mm256_load_si256((const __m256i *)(const void *)bend), k));
}

/* The relative error of 2^(k / 8) as a float, for the low 3 bits of k. */
static inline vfloat v_power_lost(vint k) {
  /* clang-format off */
  static const float lost[] __attribute__((aligned(32))) = {
      0.0f, -0x1.9c0c22p-27f, 0x1.125002p-25f, -0x1.0a355p-25f, 0x1.26055cp-26f, 0x1.67a1cap-28f,
      -0x1.f9c304p-27f, -0x1.a5217cp-28f};
  /* clang-format on */
  return _mm256_permutevar8x32_ps(_mm256_load_ps(lost), k);
}

static inline vfloat v_to_float(vint x) {
  return _mm256_cvtepi32_ps(x);
}
/* The low four bits of each lane, 0 to 15, as numbers. */
static inline vfloat v_low_nibbles(vint bytes) {
  return v_to_float(v_and_int(bytes, v_set_int(15)));
}
/* to the nearest integer */
static inline vint v_to_int(vfloat x) {
  return _mm256_cvtps_epi32(x);
}

/* x · 2^k for integers k from -252 to 254, in two steps so that results below the smallest normal number are
 * rounded */
static inline vfloat v_ldexp(vfloat x, vfloat k) {
  const __m256i whole = _mm256_cvtps_epi32(k), half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half), bias = _mm256_set1_epi32(127);
  x = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
  return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

/* Summed as a tree: each lane is added to the one V_LANES / 2 further, and so on. */
static inline float v_sum(vfloat x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline float v_highest(vfloat x) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* The sums of V_LANES registers: lane i is the sum of r[i]. */
static inline vfloat v_sums(const vfloat r[V_LANES]) {
  const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(r[0], r[1]), _mm256_hadd_ps(r[2], r[3]));
  const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(r[4], r[5]), _mm256_hadd_ps(r[6], r[7]));
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
/* The same for four registers, to out */
static inline void v_sum_four(float out[4], const vfloat r[4]) {
  const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(r[0], r[1]), _mm256_hadd_ps(r[2], r[3]));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)));
}

/* V_LANES contiguous bytes: 1 where the mask is set, else 0 */
static inline void v_store_bytes(uint8_t *p, vmask m) {
  const __m256i lanes = _mm256_castps_si256(m);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  const __m128i bytes = _mm_and_si128(_mm_packs_epi16(words, words), _mm_set1_epi8(1));
  _mm_storel_epi64((__m128i *)(void *)p, bytes);
}

/* Half as many lanes of double; a load converts floats. */
typedef __m256d vdouble;
static inline vdouble vd_load(const float *p) {
  return _mm256_cvtps_pd(_mm_loadu_ps(p));
}
static inline vdouble vd_set(double x) {
  return _mm256_set1_pd(x);
}
static inline vdouble vd_add(vdouble a, vdouble b) {
  return _mm256_add_pd(a, b);
}
static inline vdouble vd_sub(vdouble a, vdouble b) {
  return _mm256_sub_pd(a, b);
}
static inline vdouble vd_fma(vdouble a, vdouble b, vdouble c) {
  return _mm256_fmadd_pd(a, b, c);
}
static inline double vd_sum(vdouble x) {
  const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
  return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

/* Transposes V_LANES registers, the rows of a square, in place. */
static inline void v_transpose(vfloat r[V_LANES]) {
  __m256 t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; j++) {
      u[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
      u[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
    }
  }
  for (int i = 0; i < 4; i++) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

#endif
