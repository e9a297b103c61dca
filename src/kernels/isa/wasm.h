/* The vector primitives on the SIMD instructions of WebAssembly: 4 lanes. avx2.h documents them. There is no
 * fused multiply-add: v_fma and v_fnma round twice, and v_fused and v_fused_minus, which round once, are
 * slow. Engines run this on processors with 16 registers, too. */
#ifndef HEED_ISA_WASM_H
#define HEED_ISA_WASM_H

#include <wasm_simd128.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define V_NAME(name)   name##_wasm
#define V_LANES        4
#define V_POWER_BITS   0
#define V_EXP_BITS     0
#define V_REGISTERS    16
#define V_ROUNDS_TWICE 1
typedef v128_t vfloat;
typedef v128_t vint;
typedef v128_t vmask;

static inline vfloat v_zero(void) {
  return wasm_f32x4_const_splat(0.0f);
}
static inline vfloat v_set(float x) {
  return wasm_f32x4_splat(x);
}
static inline vfloat v_load(const float *p) {
  return wasm_v128_load(p);
}
static inline void v_store(float *p, vfloat x) {
  wasm_v128_store(p, x);
}

static inline vmask v_lt(vfloat a, vfloat b) {
  return wasm_f32x4_lt(a, b);
}
static inline vmask v_le(vfloat a, vfloat b) {
  return wasm_f32x4_le(a, b);
}
static inline vmask v_eq(vfloat a, vfloat b) {
  return wasm_f32x4_eq(a, b);
}
static inline vmask v_isnan(vfloat x) {
  return wasm_f32x4_ne(x, x);
}
static inline vmask v_ordered(vfloat a, vfloat b) {
  return wasm_v128_and(wasm_f32x4_eq(a, a), wasm_f32x4_eq(b, b));
}
static inline vmask v_and_mask(vmask a, vmask b) {
  return wasm_v128_and(a, b);
}
static inline vmask v_not_mask(vmask a) {
  return wasm_v128_not(a);
}
static inline vfloat v_select(vmask m, vfloat a, vfloat b) {
  return wasm_v128_bitselect(a, b, m);
}
static inline vfloat v_clear(vmask m, vfloat x) {
  return wasm_v128_andnot(x, m);
}

/* float16 as in core/convert.h: four at a time, in the low halves of the lanes. */
static inline vfloat v_widen_float16(vint x) {
  const vint sign = wasm_i32x4_shl(wasm_v128_and(x, wasm_i32x4_const_splat(0x8000)), 16);
  const vint magnitude = wasm_v128_and(x, wasm_i32x4_const_splat(0x7fff)),
             shifted = wasm_i32x4_shl(magnitude, 13);
  const vint normal = wasm_i32x4_add(shifted, wasm_i32x4_const_splat((127 - 15) << 23));
  const vint quiet = wasm_v128_and(wasm_i32x4_gt(magnitude, wasm_i32x4_const_splat(0x7c00)),
                                   wasm_i32x4_const_splat(0x400000));
  const vint infinite = wasm_v128_or(wasm_v128_or(shifted, wasm_i32x4_const_splat(0x7f800000)), quiet);
  const vfloat small = wasm_f32x4_sub(wasm_v128_or(magnitude, wasm_i32x4_const_splat(0x3f000000)),
                                      wasm_f32x4_const_splat(0.5f));
  const vint large = v_select(wasm_i32x4_ge(magnitude, wasm_i32x4_const_splat(0x7c00)), infinite, normal);
  return wasm_v128_or(sign, v_select(wasm_i32x4_lt(magnitude, wasm_i32x4_const_splat(0x400)), small, large));
}

static inline vfloat v_load_bfloat16(const uint16_t *p) {
  return wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16);
}
static inline vfloat v_load_float16(const uint16_t *p) {
  return v_widen_float16(wasm_u32x4_load16x4(p));
}
static inline vfloat v_load_int8(const int8_t *p) {
  const v128_t words = wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(p));
  return wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(words));
}
static inline vfloat v_set_float16(const void *p) {
  uint16_t half;
  memcpy(&half, p, sizeof half);
  return v_widen_float16(wasm_i32x4_splat(half));
}
static inline vint v_load_bytes(const uint8_t *p) {
  return wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p)));
}
static inline void v_store_upper(uint16_t *p, vint bits) {
  const vint y = wasm_u32x4_shr(bits, 16);
  wasm_v128_store64_lane(p, wasm_u16x8_narrow_i32x4(y, y), 0);
}
static inline void v_store_float16(uint16_t *p, vfloat x) {
  const vint sign = wasm_v128_and(wasm_u32x4_shr(x, 16), wasm_i32x4_const_splat(0x8000));
  const vint magnitude = wasm_v128_and(x, wasm_i32x4_const_splat(0x7fffffff));
  const vint odd = wasm_v128_and(wasm_u32x4_shr(magnitude, 13), wasm_i32x4_const_splat(1));
  const vint moved = wasm_i32x4_add(magnitude, wasm_i32x4_const_splat(0xfff - ((127 - 15) << 23)));
  const vint rounded = wasm_u32x4_shr(wasm_i32x4_add(moved, odd), 13);
  const vint nan = wasm_v128_or(wasm_v128_and(wasm_u32x4_shr(magnitude, 13), wasm_i32x4_const_splat(0x3ff)),
                                wasm_i32x4_const_splat(0x7e00));
  const vmask is_small = wasm_i32x4_lt(magnitude, wasm_i32x4_const_splat(0x38800000));
  const vfloat shifted = wasm_f32x4_add(wasm_v128_and(magnitude, is_small), wasm_f32x4_const_splat(0.5f));
  const vint small = wasm_i32x4_sub(shifted, wasm_i32x4_const_splat(0x3f000000));
  const vint finite = v_select(is_small, small, rounded);
  const vmask is_large = wasm_v128_or(wasm_i32x4_ge(magnitude, wasm_i32x4_const_splat(0x47800000)),
                                      wasm_i32x4_gt(finite, wasm_i32x4_const_splat(0x7c00)));
  const vint bounded = v_select(is_large, wasm_i32x4_const_splat(0x7c00), finite);
  const vint bits = v_select(wasm_i32x4_gt(magnitude, wasm_i32x4_const_splat(0x7f800000)), nan, bounded);
  const vint y = wasm_v128_or(sign, bits);
  wasm_v128_store64_lane(p, wasm_u16x8_narrow_i32x4(y, y), 0);
}
static inline void v_store_int8(int8_t *p, vfloat x) {
  const vint whole = wasm_i32x4_trunc_sat_f32x4(x); /* nan becomes 0 */
  const v128_t words = wasm_i16x8_narrow_i32x4(whole, whole);
  wasm_v128_store32_lane(p, wasm_i8x16_narrow_i16x8(words, words), 0);
}

static inline vmask v_mask_from_bits(unsigned bits) {
  const v128_t bit = wasm_i32x4_const(1, 2, 4, 8);
  return wasm_i32x4_eq(wasm_v128_and(wasm_i32x4_splat((int32_t)bits), bit), bit);
}
static inline vmask v_first(size_t n) {
  return wasm_i32x4_gt(wasm_i32x4_splat((int32_t)n), wasm_i32x4_const(0, 1, 2, 3));
}
static inline unsigned v_mask_bits(vmask m) {
  return wasm_i32x4_bitmask(m);
}
static inline unsigned v_bits_of_bytes(const uint8_t *p) {
  return wasm_i8x16_bitmask(wasm_i8x16_ne(wasm_v128_load(p), wasm_i8x16_const_splat(0)));
}
/* There are no masked loads and stores: lane by lane. */
static inline vfloat v_load_masked(const float *p, vmask m) {
  const unsigned bits = v_mask_bits(m);
  float lane[4] = {0};
  for (unsigned i = 0; i < 4; i++)
    if (bits >> i & 1) lane[i] = p[i];
  return wasm_v128_load(lane);
}
static inline void v_store_masked(float *p, vfloat x, vmask m) {
  const unsigned bits = v_mask_bits(m);
  float lane[4];
  wasm_v128_store(lane, x);
  for (unsigned i = 0; i < 4; i++)
    if (bits >> i & 1) p[i] = lane[i];
}

static inline vfloat v_add(vfloat a, vfloat b) {
  return wasm_f32x4_add(a, b);
}
static inline vfloat v_sub(vfloat a, vfloat b) {
  return wasm_f32x4_sub(a, b);
}
static inline vfloat v_mul(vfloat a, vfloat b) {
  return wasm_f32x4_mul(a, b);
}
static inline vfloat v_div(vfloat a, vfloat b) {
  return wasm_f32x4_div(a, b);
}
static inline vfloat v_fma(vfloat a, vfloat b, vfloat c) {
  return wasm_f32x4_add(wasm_f32x4_mul(a, b), c);
}
static inline vfloat v_fnma(vfloat a, vfloat b, vfloat c) {
  return wasm_f32x4_sub(c, wasm_f32x4_mul(a, b));
}
static inline vfloat v_max(vfloat a, vfloat b) {
  return wasm_f32x4_pmax(b, a);
}
static inline vfloat v_min(vfloat a, vfloat b) {
  return wasm_f32x4_pmin(b, a);
}
static inline vfloat v_sqrt(vfloat x) {
  return wasm_f32x4_sqrt(x);
}
static inline vfloat v_abs(vfloat x) {
  return wasm_f32x4_abs(x);
}
static inline vfloat v_neg(vfloat x) {
  return wasm_f32x4_neg(x);
}
static inline vfloat v_copysign(vfloat x, vfloat sign) {
  return wasm_v128_bitselect(sign, x, wasm_i32x4_const_splat(INT32_MIN));
}
static inline vfloat v_round(vfloat x) {
  return wasm_f32x4_nearest(x);
}

static inline vint v_bits(vfloat x) {
  return x;
}
static inline vfloat v_from_bits(vint x) {
  return x;
}
static inline vint v_set_int(int32_t x) {
  return wasm_i32x4_splat(x);
}
static inline vint v_add_int(vint a, vint b) {
  return wasm_i32x4_add(a, b);
}
static inline vint v_sub_int(vint a, vint b) {
  return wasm_i32x4_sub(a, b);
}
static inline vint v_and_int(vint a, vint b) {
  return wasm_v128_and(a, b);
}
static inline vint v_xor_int(vint a, vint b) {
  return wasm_v128_xor(a, b);
}
static inline vint v_mul_halves(vint a, uint32_t b, vint *low) {
  const v128_t factor = wasm_i32x4_splat((int32_t)b);
  const v128_t first = wasm_u64x2_extmul_low_u32x4(a, factor),
               second = wasm_u64x2_extmul_high_u32x4(a, factor);
  *low = wasm_i32x4_shuffle(first, second, 0, 2, 4, 6);
  return wasm_i32x4_shuffle(first, second, 1, 3, 5, 7);
}
static inline vint v_load_int(const uint32_t *p) {
  return wasm_v128_load(p);
}
static inline void v_store_int(uint32_t *p, vint x) {
  wasm_v128_store(p, x);
}
static inline vint v_shift_right(vint x, int count) {
  return wasm_i32x4_shr(x, (uint32_t)count);
}
static inline vint v_shift_left(vint x, int count) {
  return wasm_i32x4_shl(x, (uint32_t)count);
}
/* V_POWER_BITS is 0: k is an integer, and there is nothing to correct. */
static inline vint v_bend_power(vint x, vint k) {
  (void)k;
  return x;
}

static inline vfloat v_to_float(vint x) {
  return wasm_f32x4_convert_i32x4(x);
}
static inline vfloat v_low_nibbles(vint bytes) {
  return v_to_float(v_and_int(bytes, v_set_int(15)));
}
static inline vint v_to_int(vfloat x) {
  return wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(x));
}

static inline vfloat v_ldexp(vfloat x, vfloat k) {
  const vint whole = v_to_int(k), half = wasm_i32x4_shr(whole, 1), rest = wasm_i32x4_sub(whole, half);
  const vint bias = wasm_i32x4_const_splat(127);
  x = wasm_f32x4_mul(x, wasm_i32x4_shl(wasm_i32x4_add(half, bias), 23));
  return wasm_f32x4_mul(x, wasm_i32x4_shl(wasm_i32x4_add(rest, bias), 23));
}

static inline float v_sum(vfloat x) {
  const vfloat s = wasm_f32x4_add(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(s, 0) + wasm_f32x4_extract_lane(s, 1);
}
static inline float v_highest(vfloat x) {
  const vfloat s = v_max(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(v_max(s, wasm_i32x4_shuffle(s, s, 1, 0, 3, 2)), 0);
}

static inline void v_transpose(vfloat r[V_LANES]) {
  const v128_t a = wasm_i32x4_shuffle(r[0], r[1], 0, 4, 1, 5), b = wasm_i32x4_shuffle(r[0], r[1], 2, 6, 3, 7);
  const v128_t c = wasm_i32x4_shuffle(r[2], r[3], 0, 4, 1, 5), d = wasm_i32x4_shuffle(r[2], r[3], 2, 6, 3, 7);
  r[0] = wasm_i64x2_shuffle(a, c, 0, 2);
  r[1] = wasm_i64x2_shuffle(a, c, 1, 3);
  r[2] = wasm_i64x2_shuffle(b, d, 0, 2);
  r[3] = wasm_i64x2_shuffle(b, d, 1, 3);
}

static inline vfloat v_sums(const vfloat r[V_LANES]) {
  vfloat t[V_LANES] = {r[0], r[1], r[2], r[3]};
  v_transpose(t);
  return wasm_f32x4_add(wasm_f32x4_add(t[0], t[1]), wasm_f32x4_add(t[2], t[3]));
}
static inline void v_sum_four(float out[4], const vfloat r[4]) {
  wasm_v128_store(out, v_sums(r));
}

static inline void v_store_bytes(uint8_t *p, vmask m) {
  const v128_t one = wasm_v128_and(m, wasm_i32x4_const_splat(1)), words = wasm_i16x8_narrow_i32x4(one, one);
  wasm_v128_store32_lane(p, wasm_u8x16_narrow_i16x8(words, words), 0);
}

typedef v128_t vdouble;
static inline vdouble vd_load(const float *p) {
  return wasm_f64x2_promote_low_f32x4(wasm_v128_load64_zero(p));
}
static inline vdouble vd_set(double x) {
  return wasm_f64x2_splat(x);
}
static inline vdouble vd_add(vdouble a, vdouble b) {
  return wasm_f64x2_add(a, b);
}
static inline vdouble vd_sub(vdouble a, vdouble b) {
  return wasm_f64x2_sub(a, b);
}
static inline vdouble vd_fma(vdouble a, vdouble b, vdouble c) {
  return wasm_f64x2_add(wasm_f64x2_mul(a, b), c);
}
static inline double vd_sum(vdouble x) {
  return wasm_f64x2_extract_lane(x, 0) + wasm_f64x2_extract_lane(x, 1);
}

/* Two lanes of a · b + c, rounded to odd in double and then to float: heed__fused of scalar/scalar.h. */
static inline v128_t v_fused_pair(vfloat a, vfloat b, vfloat c) {
  const v128_t product = wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(a), wasm_f64x2_promote_low_f32x4(b));
  const v128_t more = wasm_f64x2_promote_low_f32x4(c), sum = wasm_f64x2_add(product, more);
  const v128_t part = wasm_f64x2_sub(sum, product), zero = wasm_f64x2_const_splat(0.0);
  const v128_t lost =
      wasm_f64x2_add(wasm_f64x2_sub(product, wasm_f64x2_sub(sum, part)), wasm_f64x2_sub(more, part));
  const v128_t up = wasm_f64x2_gt(lost, zero), inexact = wasm_v128_or(up, wasm_f64x2_lt(lost, zero));
  const v128_t even = wasm_i64x2_eq(wasm_v128_and(sum, wasm_i64x2_const_splat(1)), wasm_i64x2_const_splat(0));
  const v128_t outwards = wasm_i64x2_eq(up, wasm_f64x2_gt(sum, zero));
  const v128_t step = wasm_v128_bitselect(wasm_i64x2_const_splat(1), wasm_i64x2_const_splat(-1), outwards);
  const v128_t moved = wasm_i64x2_add(sum, wasm_v128_and(step, wasm_v128_and(inexact, even)));
  return wasm_f32x4_demote_f64x2_zero(moved);
}
static inline vfloat v_fused(vfloat a, vfloat b, vfloat c) {
#define V_HIGH(x) wasm_i64x2_shuffle(x, x, 1, 0)
  return wasm_i64x2_shuffle(v_fused_pair(a, b, c), v_fused_pair(V_HIGH(a), V_HIGH(b), V_HIGH(c)), 0, 2);
#undef V_HIGH
}
static inline vfloat v_fused_minus(vfloat a, vfloat b, vfloat c) {
  return v_fused(wasm_f32x4_neg(a), b, c);
}

#endif
