/* The vector primitives on NEON (AArch64): 4 lanes. avx2.h documents them. */
#ifndef HEED_ISA_NEON_H
#define HEED_ISA_NEON_H

#include <arm_neon.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define V_NAME(name) name##_neon
#define V_LANES      4
#define V_POWER_BITS 0
#define V_EXP_BITS   0
#define V_REGISTERS  32
typedef float32x4_t vfloat;
typedef int32x4_t vint;
typedef uint32x4_t vmask;

static inline vfloat v_zero(void) {
  return vdupq_n_f32(0.0f);
}
static inline vfloat v_set(float x) {
  return vdupq_n_f32(x);
}
static inline vfloat v_load(const float *p) {
  return vld1q_f32(p);
}
static inline void v_store(float *p, vfloat x) {
  vst1q_f32(p, x);
}

static inline vfloat v_load_bfloat16(const uint16_t *p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline vfloat v_load_float16(const uint16_t *p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline vfloat v_load_int8(const int8_t *p) {
  const int8_t byte[8] = {p[0], p[1], p[2], p[3]};
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(byte)))));
}
static inline vfloat v_set_float16(const void *p) {
  uint16_t half;
  memcpy(&half, p, sizeof half);
  return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
}
static inline vint v_load_bytes(const uint8_t *p) {
  const uint8_t byte[8] = {p[0], p[1], p[2], p[3]};
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vld1_u8(byte)))));
}
static inline void v_store_upper(uint16_t *p, vint bits) {
  vst1_u16(p, vshrn_n_u32(vreinterpretq_u32_s32(bits), 16));
}
static inline void v_store_float16(uint16_t *p, vfloat x) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}
static inline void v_store_int8(int8_t *p, vfloat x) {
  const int16x4_t words = vqmovn_s32(vcvtq_s32_f32(x)); /* truncates and saturates; nan becomes 0 */
  const int8x8_t y = vqmovn_s16(vcombine_s16(words, words));
  int8_t bytes[8];
  vst1_s8(bytes, y);
  memcpy(p, bytes, V_LANES);
}

static inline vmask v_mask_from_bits(unsigned bits) {
  const uint32x4_t bit = {1, 2, 4, 8};
  return vtstq_u32(vdupq_n_u32(bits), bit);
}
static inline vmask v_first(size_t n) {
  return v_mask_from_bits((1u << n) - 1u);
}
static inline unsigned v_mask_bits(vmask m) {
  const uint32x4_t bit = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32(m, bit));
}
/* NEON has no masked loads and stores: lane by lane. */
static inline vfloat v_load_masked(const float *p, vmask m) {
  const unsigned bits = v_mask_bits(m);
  float lane[4] = {0};
  for (unsigned i = 0; i < 4; i++)
    if (bits >> i & 1) lane[i] = p[i];
  return vld1q_f32(lane);
}
static inline void v_store_masked(float *p, vfloat x, vmask m) {
  const unsigned bits = v_mask_bits(m);
  float lane[4];
  vst1q_f32(lane, x);
  for (unsigned i = 0; i < 4; i++)
    if (bits >> i & 1) p[i] = lane[i];
}

static inline vfloat v_add(vfloat a, vfloat b) {
  return vaddq_f32(a, b);
}
static inline vfloat v_sub(vfloat a, vfloat b) {
  return vsubq_f32(a, b);
}
static inline vfloat v_mul(vfloat a, vfloat b) {
  return vmulq_f32(a, b);
}
static inline vfloat v_div(vfloat a, vfloat b) {
  return vdivq_f32(a, b);
}
static inline vfloat v_fma(vfloat a, vfloat b, vfloat c) {
  return vfmaq_f32(c, a, b);
}
static inline vfloat v_fnma(vfloat a, vfloat b, vfloat c) {
  return vfmsq_f32(c, a, b);
}
static inline unsigned v_bits_of_bytes(const uint8_t *p) {
  const uint8x16_t bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t x = vld1q_u8(p), set = vandq_u8(vtstq_u8(x, x), bit);
  return (unsigned)vaddv_u8(vget_low_u8(set)) | (unsigned)vaddv_u8(vget_high_u8(set)) << 8;
}
static inline vfloat v_select(vmask m, vfloat a, vfloat b) {
  return vbslq_f32(m, a, b);
}

static inline vfloat v_clear(vmask m, vfloat x) {
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), m));
}
static inline vfloat v_max(vfloat a, vfloat b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
static inline vfloat v_min(vfloat a, vfloat b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}
static inline vfloat v_sqrt(vfloat x) {
  return vsqrtq_f32(x);
}
static inline vfloat v_abs(vfloat x) {
  return vabsq_f32(x);
}
static inline vfloat v_neg(vfloat x) {
  return vnegq_f32(x);
}
static inline vfloat v_copysign(vfloat x, vfloat sign) {
  return vbslq_f32(vdupq_n_u32(0x80000000u), sign, x);
}
static inline vfloat v_round(vfloat x) {
  return vrndnq_f32(x);
}

static inline vmask v_lt(vfloat a, vfloat b) {
  return vcltq_f32(a, b);
}
static inline vmask v_le(vfloat a, vfloat b) {
  return vcleq_f32(a, b);
}
static inline vmask v_eq(vfloat a, vfloat b) {
  return vceqq_f32(a, b);
}

static inline vmask v_ordered(vfloat a, vfloat b) {
  return vandq_u32(vceqq_f32(a, a), vceqq_f32(b, b));
}
static inline vmask v_isnan(vfloat x) {
  return vmvnq_u32(vceqq_f32(x, x));
}
static inline vmask v_and_mask(vmask a, vmask b) {
  return vandq_u32(a, b);
}
static inline vmask v_not_mask(vmask a) {
  return vmvnq_u32(a);
}

static inline vint v_bits(vfloat x) {
  return vreinterpretq_s32_f32(x);
}
static inline vfloat v_from_bits(vint x) {
  return vreinterpretq_f32_s32(x);
}
static inline vint v_set_int(int32_t x) {
  return vdupq_n_s32(x);
}
static inline vint v_add_int(vint a, vint b) {
  return vaddq_s32(a, b);
}
static inline vint v_sub_int(vint a, vint b) {
  return vsubq_s32(a, b);
}
static inline vint v_and_int(vint a, vint b) {
  return vandq_s32(a, b);
}
static inline vint v_xor_int(vint a, vint b) {
  return veorq_s32(a, b);
}
static inline vint v_mul_halves(vint a, uint32_t b, vint *low) {
  const uint32x4_t x = vreinterpretq_u32_s32(a);
  const uint32x2_t factor = vdup_n_u32(b);
  const uint32x4_t first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(x), factor));
  const uint32x4_t second = vreinterpretq_u32_u64(vmull_u32(vget_high_u32(x), factor));
  *low = vreinterpretq_s32_u32(vuzp1q_u32(first, second));
  return vreinterpretq_s32_u32(vuzp2q_u32(first, second));
}
static inline vint v_load_int(const uint32_t *p) {
  return vreinterpretq_s32_u32(vld1q_u32(p));
}
static inline void v_store_int(uint32_t *p, vint x) {
  vst1q_u32(p, vreinterpretq_u32_s32(x));
}
static inline vint v_shift_right(vint x, int count) {
  return vshlq_s32(x, vdupq_n_s32(-count));
}
static inline vint v_shift_left(vint x, int count) {
  return vshlq_s32(x, vdupq_n_s32(count));
}
/* V_POWER_BITS is 0: k is an integer, and there is nothing to correct. */
static inline vint v_bend_power(vint x, vint k) {
  (void)k;
  return x;
}

static inline vfloat v_to_float(vint x) {
  return vcvtq_f32_s32(x);
}
static inline vfloat v_low_nibbles(vint bytes) {
  return v_to_float(v_and_int(bytes, v_set_int(15)));
}
static inline vint v_to_int(vfloat x) {
  return vcvtnq_s32_f32(x);
}

static inline vfloat v_ldexp(vfloat x, vfloat k) {
  const int32x4_t whole = vcvtnq_s32_f32(k), half = vshrq_n_s32(whole, 1);
  const int32x4_t rest = vsubq_s32(whole, half), bias = vdupq_n_s32(127);
  x = vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
  return vmulq_f32(x, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23)));
}

static inline float v_sum(vfloat x) {
  const float32x2_t s = vadd_f32(vget_low_f32(x), vget_high_f32(x));
  return vget_lane_f32(s, 0) + vget_lane_f32(s, 1);
}
static inline float v_highest(vfloat x) {
  return vmaxvq_f32(x);
}

static inline vfloat v_sums(const vfloat r[V_LANES]) {
  return vpaddq_f32(vpaddq_f32(r[0], r[1]), vpaddq_f32(r[2], r[3]));
}
static inline void v_sum_four(float out[4], const vfloat r[4]) {
  vst1q_f32(out, v_sums(r));
}

static inline void v_store_bytes(uint8_t *p, vmask m) {
  const uint16x4_t words = vmovn_u32(vandq_u32(m, vdupq_n_u32(1)));
  uint8_t bytes[8];
  vst1_u8(bytes, vmovn_u16(vcombine_u16(words, words)));
  for (int i = 0; i < 4; i++) p[i] = bytes[i];
}

typedef float64x2_t vdouble;
static inline vdouble vd_load(const float *p) {
  return vcvt_f64_f32(vld1_f32(p));
}
static inline vdouble vd_set(double x) {
  return vdupq_n_f64(x);
}
static inline vdouble vd_add(vdouble a, vdouble b) {
  return vaddq_f64(a, b);
}
static inline vdouble vd_sub(vdouble a, vdouble b) {
  return vsubq_f64(a, b);
}
static inline vdouble vd_fma(vdouble a, vdouble b, vdouble c) {
  return vfmaq_f64(c, a, b);
}
static inline double vd_sum(vdouble x) {
  return vaddvq_f64(x);
}

static inline void v_transpose(vfloat r[V_LANES]) {
  const float32x4_t a = vtrn1q_f32(r[0], r[1]), b = vtrn2q_f32(r[0], r[1]);
  const float32x4_t c = vtrn1q_f32(r[2], r[3]), d = vtrn2q_f32(r[2], r[3]);
  r[0] = vcombine_f32(vget_low_f32(a), vget_low_f32(c));
  r[1] = vcombine_f32(vget_low_f32(b), vget_low_f32(d));
  r[2] = vcombine_f32(vget_high_f32(a), vget_high_f32(c));
  r[3] = vcombine_f32(vget_high_f32(b), vget_high_f32(d));
}

#endif
