/* The vector primitives on AVX-512 (F, DQ, BW, VL): 16 lanes. avx2.h documents them. */
#ifndef HEED_ISA_AVX512_H
#define HEED_ISA_AVX512_H

#include <immintrin.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef V_TARGET
#define V_TARGET "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c"
#endif
#include "target_begin.h"

#ifndef V_NAME
#define V_NAME(name) name##_avx512
#endif
#define V_LANES      16
#define V_POWER_BITS 5
#define V_EXP_BITS   4
#define V_REGISTERS  32
typedef __m512 vfloat;
typedef __m512i vint;
typedef __mmask16 vmask;

static inline vfloat v_zero(void) {
  return _mm512_setzero_ps();
}
static inline vfloat v_set(float x) {
  return _mm512_set1_ps(x);
}
static inline vfloat v_load(const float *p) {
  return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, vfloat x) {
  _mm512_storeu_ps(p, x);
}

static inline vfloat v_load_bfloat16(const uint16_t *p) {
  const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
static inline vfloat v_load_float16(const uint16_t *p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline vfloat v_load_int8(const int8_t *p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
static inline vfloat v_set_float16(const void *p) {
  uint16_t half;
  memcpy(&half, p, sizeof half);
  return _mm512_cvtph_ps(_mm256_set1_epi16((short)half));
}
static inline vint v_load_bytes(const uint8_t *p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline void v_store_upper(uint16_t *p, vint bits) {
  _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
}
static inline void v_store_float16(uint16_t *p, vfloat x) {
  _mm256_storeu_si256((__m256i *)(void *)p,
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
static inline void v_store_int8(int8_t *p, vfloat x) {
  const __m512 number = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
  const __m512 bounded =
      _mm512_min_ps(_mm512_max_ps(number, _mm512_set1_ps(-128.0f)), _mm512_set1_ps(127.0f));
  _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(bounded)));
}

static inline vmask v_first(size_t n) {
  return (vmask)_cvtu32_mask16((1u << n) - 1u);
}
static inline vfloat v_load_masked(const float *p, vmask m) {
  return _mm512_maskz_loadu_ps(m, p);
}
static inline void v_store_masked(float *p, vfloat x, vmask m) {
  _mm512_mask_storeu_ps(p, m, x);
}

static inline vfloat v_add(vfloat a, vfloat b) {
  return _mm512_add_ps(a, b);
}
static inline vfloat v_sub(vfloat a, vfloat b) {
  return _mm512_sub_ps(a, b);
}
static inline vfloat v_mul(vfloat a, vfloat b) {
  return _mm512_mul_ps(a, b);
}
static inline vfloat v_div(vfloat a, vfloat b) {
  return _mm512_div_ps(a, b);
}
static inline vfloat v_fma(vfloat a, vfloat b, vfloat c) {
  return _mm512_fmadd_ps(a, b, c);
}
static inline vfloat v_fnma(vfloat a, vfloat b, vfloat c) {
  return _mm512_fnmadd_ps(a, b, c);
}
static inline vfloat v_max(vfloat a, vfloat b) {
  return _mm512_max_ps(a, b);
}
static inline vfloat v_min(vfloat a, vfloat b) {
  return _mm512_min_ps(a, b);
}
static inline vfloat v_sqrt(vfloat x) {
  return _mm512_sqrt_ps(x);
}
static inline vfloat v_abs(vfloat x) {
  return _mm512_abs_ps(x);
}
static inline vfloat v_neg(vfloat x) {
  return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f));
}
static inline vfloat v_copysign(vfloat x, vfloat sign) {
  return _mm512_or_ps(_mm512_abs_ps(x), _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}
static inline vfloat v_round(vfloat x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vmask v_lt(vfloat a, vfloat b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline vmask v_le(vfloat a, vfloat b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
static inline vmask v_eq(vfloat a, vfloat b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

static inline vmask v_ordered(vfloat a, vfloat b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_ORD_Q);
}
static inline vmask v_isnan(vfloat x) {
  return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
}
static inline vmask v_and_mask(vmask a, vmask b) {
  return (vmask)(a & b);
}
static inline vmask v_not_mask(vmask a) {
  return (vmask)~a;
}
static inline unsigned v_mask_bits(vmask m) {
  return m;
}
static inline vmask v_mask_from_bits(unsigned bits) {
  return (vmask)bits;
}
static inline unsigned v_bits_of_bytes(const uint8_t *p) {
  const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
  return _mm_test_epi8_mask(x, x);
}
static inline vfloat v_select(vmask m, vfloat a, vfloat b) {
  return _mm512_mask_blend_ps(m, b, a);
}

static inline vfloat v_clear(vmask m, vfloat x) {
  return _mm512_mask_mov_ps(x, m, _mm512_setzero_ps());
}

static inline vfloat v_ldexp(vfloat x, vfloat k) {
  return _mm512_scalef_ps(x, k);
}

/* x · 2^⌊k⌋ where `some` is set, else 0 */
static inline vfloat v_ldexp_some(vmask some, vfloat x, vfloat k) {
  return _mm512_maskz_scalef_ps(some, x, k);
}

static inline float v_sum(vfloat x) {
  return _mm512_reduce_add_ps(x);
}
static inline float v_highest(vfloat x) {
  return _mm512_reduce_max_ps(x);
}

static inline vint v_bits(vfloat x) {
  return _mm512_castps_si512(x);
}
static inline vfloat v_from_bits(vint x) {
  return _mm512_castsi512_ps(x);
}
static inline vint v_set_int(int32_t x) {
  return _mm512_set1_epi32(x);
}
static inline vint v_add_int(vint a, vint b) {
  return _mm512_add_epi32(a, b);
}
static inline vint v_sub_int(vint a, vint b) {
  return _mm512_sub_epi32(a, b);
}
static inline vint v_and_int(vint a, vint b) {
  return _mm512_and_si512(a, b);
}
static inline vint v_xor_int(vint a, vint b) {
  return _mm512_xor_si512(a, b);
}
static inline vint v_mul_halves(vint a, uint32_t b, vint *low) {
  const __m512i factor = _mm512_set1_epi32((int)b);
  const __m512i even = _mm512_mul_epu32(a, factor), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), factor);
  *low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
  return _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
}
static inline vint v_load_int(const uint32_t *p) {
  return _mm512_loadu_si512(p);
}
static inline void v_store_int(uint32_t *p, vint x) {
  _mm512_storeu_si512(p, x);
}
static inline vint v_shift_right(vint x, int count) {
  return _mm512_srai_epi32(x, (unsigned)count);
}
static inline vint v_shift_left(vint x, int count) {
  return _mm512_slli_epi32(x, (unsigned)count);
}
static inline vint v_bend_power(vint x, vint k) {
  static const int32_t bend[] __attribute__((aligned(64))) = {
      0,       -78457,  -152893, -223217, -289342, -351174, -408621, -461584, -509968, -553670, -592590,
      -626621, -655657, -679589, -698305, -711690, -719629, -722001, -718684, -709555, -694486, -673346,
      -646004, -612322, -572163, -525384, -471841, -411385, -343865, -269126, -187011, -97357};
  return _mm512_add_epi32(
      x, _mm512_permutex2var_epi32(_mm512_load_si512(bend), k, _mm512_load_si512(bend + 16)));
}

/* 2^(k / 16) for the low 4 bits of k, and its relative error *lost; both 0 where `some` is not set */
static inline vfloat v_exp_power(vmask some, vint k, vfloat *lost) {
  /* clang-format off */
  static const float power[] __attribute__((aligned(64))) = {
      0x1p0f, 0x1.0b5586p0f, 0x1.172b84p0f, 0x1.2387a6p0f, 0x1.306fep0f, 0x1.3dea64p0f,
      0x1.4bfdaep0f, 0x1.5ab07ep0f, 0x1.6a09e6p0f, 0x1.7a1148p0f, 0x1.8ace54p0f, 0x1.9c4918p0f,
      0x1.ae89fap0f, 0x1.c199bep0f, 0x1.d5818ep0f, 0x1.ea4afap0f};
  static const float rest[] __attribute__((aligned(64))) = {
      0.0f, 0x1.8d96d4p-25f, -0x1.9c0c22p-27f, 0x1.964904p-25f, 0x1.125002p-25f, 0x1.370be4p-25f,
      -0x1.0a355p-25f, -0x1.00d8acp-27f, 0x1.26055cp-26f, -0x1.05cb44p-25f, 0x1.67a1cap-28f, 0x1.a3b5e4p-28f,
      -0x1.f9c304p-27f, -0x1.6961b4p-28f, -0x1.a5217cp-28f, 0x1.61428ep-28f};
  /* clang-format on */
  *lost = _mm512_maskz_permutexvar_ps(some, k, _mm512_load_ps(rest));
  return _mm512_maskz_permutexvar_ps(some, k, _mm512_load_ps(power));
}

static inline vfloat v_to_float(vint x) {
  return _mm512_cvtepi32_ps(x);
}
static inline vint v_to_int(vfloat x) {
  return _mm512_cvtps_epi32(x);
}

static inline vfloat v_low_nibbles(vint bytes) {
  return _mm512_permutexvar_ps(bytes, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

/* Lane i % 4 of each 128-bit quarter: the sum of that quarter of r[i % 4]. */
static inline __m512 v_sums_of_4(const __m512 r[4]) {
  const __m512d a =
      _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(r[0], r[1]), _mm512_unpackhi_ps(r[0], r[1])));
  const __m512d b =
      _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(r[2], r[3]), _mm512_unpackhi_ps(r[2], r[3])));
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
}
static inline __m512 v_add_quarters(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
static inline vfloat v_sums(const vfloat r[V_LANES]) {
  return v_add_quarters(v_add_quarters(v_sums_of_4(r), v_sums_of_4(r + 4)),
                        v_add_quarters(v_sums_of_4(r + 8), v_sums_of_4(r + 12)));
}
static inline void v_sum_four(float out[4], const vfloat r[4]) {
  const __m512 a = v_sums_of_4(r);
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1)));
}

static inline void v_store_bytes(uint8_t *p, vmask m) {
  _mm_storeu_si128((__m128i *)(void *)p, _mm_maskz_set1_epi8(m, 1));
}

typedef __m512d vdouble;
static inline vdouble vd_load(const float *p) {
  return _mm512_cvtps_pd(_mm256_loadu_ps(p));
}
static inline vdouble vd_set(double x) {
  return _mm512_set1_pd(x);
}
static inline vdouble vd_add(vdouble a, vdouble b) {
  return _mm512_add_pd(a, b);
}
static inline vdouble vd_sub(vdouble a, vdouble b) {
  return _mm512_sub_pd(a, b);
}
static inline vdouble vd_fma(vdouble a, vdouble b, vdouble c) {
  return _mm512_fmadd_pd(a, b, c);
}
static inline double vd_sum(vdouble x) {
  return _mm512_reduce_add_pd(x);
}

/* Pairs, then groups of four within 128 bits, then the 128-bit quarters. */
static inline void v_transpose(vfloat r[V_LANES]) {
  __m512 t[16], u[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; j++) {
      __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
      u[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      u[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
  for (int i = 0; i < 4; i++) {
    __m512 a = _mm512_shuffle_f32x4(u[i], u[i + 4], 0x88), b = _mm512_shuffle_f32x4(u[i], u[i + 4], 0xdd);
    __m512 c = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0x88);
    __m512 d = _mm512_shuffle_f32x4(u[i + 8], u[i + 12], 0xdd);
    r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
    r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
    r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}

#endif
