/* Elements of blocked dtypes widened in registers. scalar/blocks.c is the readable description of the
 * layouts.
 */
#ifndef HEED_VECTOR_WIDEN_BLOCKS_H
#define HEED_VECTOR_WIDEN_BLOCKS_H

#include "widen.h"

enum { BLOCKS_GROUP = 32 }; /* elements of the smallest block */

/* The low or high halves of V_LANES bytes */
V_INLINE vfloat blocks_nibbles(const uint8_t *p, bool high) {
  const vint bytes = v_load_bytes(p);
  return v_low_nibbles(high ? v_shift_right(bytes, 4) : bytes);
}

/* Some of the 32 elements with fifth bits, from element q on */
V_INLINE vfloat blocks_fives(const uint8_t *p, const uint8_t *fifth, size_t q) {
  uint32_t bits;
  memcpy(&bits, fifth, sizeof bits);
  const vmask some = v_mask_from_bits(bits >> q & ((1u << V_LANES) - 1));
  return v_add(blocks_nibbles(p + q % 16, q >= 16), v_clear(v_not_mask(some), v_set(16.0f)));
}

/* Scale and minimum of group g of a Q4_K or Q5_K block: factors of 6 bits of the block's two numbers */
V_INLINE void blocks_scale(const uint8_t *p, size_t g, vfloat *scale, vfloat *minimum) {
  const uint8_t *packed = p + 4;
  const int factor = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
  const int offset = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
  *scale = v_mul(v_set_float16(p), v_set((float)factor));
  *minimum = v_neg(v_mul(v_set_float16(p + 2), v_set((float)offset)));
}

/* V_LANES elements of a block as float32: from element q on of its group g of 32. */
V_INLINE vfloat blocks_vector(const heed_dtype dtype, const uint8_t *p, size_t g, size_t q) {
  vfloat scale, minimum;
  switch (dtype) {
  case HEED_Q4_0:
    scale = v_set_float16(p);
    return v_fma(blocks_nibbles(p + 2 + q % 16, q >= 16), scale, v_mul(scale, v_set(-8.0f)));
  case HEED_Q4_1:
    return v_fma(blocks_nibbles(p + 4 + q % 16, q >= 16), v_set_float16(p), v_set_float16(p + 2));
  case HEED_Q5_0:
    scale = v_set_float16(p);
    return v_fma(blocks_fives(p + 6, p + 2, q), scale, v_mul(scale, v_set(-16.0f)));
  case HEED_Q5_1: return v_fma(blocks_fives(p + 8, p + 4, q), v_set_float16(p), v_set_float16(p + 2));
  case HEED_Q8_0: return v_mul(v_load_int8((const int8_t *)p + 2 + q), v_set_float16(p));
  case HEED_Q4_K:
    blocks_scale(p, g, &scale, &minimum);
    return v_fma(blocks_nibbles(p + 16 + g / 2 * 32 + q, g % 2), scale, minimum);
  case HEED_Q5_K: {
    const vint fifth = v_and_int(v_shift_right(v_load_bytes(p + 16 + q), (int)g), v_set_int(1));
    blocks_scale(p, g, &scale, &minimum);
    return v_fma(v_add(blocks_nibbles(p + 48 + g / 2 * 32 + q, g % 2), v_to_float(v_shift_left(fifth, 4))),
                 scale, minimum);
  }
  default: { /* Q6_K */
    const size_t half = g / 4, quarter = g % 4;
    const vint two =
        v_and_int(v_shift_right(v_load_bytes(p + 128 + 32 * half + q), 2 * (int)quarter), v_set_int(3));
    const vfloat low = blocks_nibbles(p + 64 * half + 32 * (quarter % 2) + q, quarter >= 2);
    const vfloat value = v_add(low, v_to_float(v_sub_int(v_shift_left(two, 4), v_set_int(32))));
    scale = v_mul(v_set_float16(p + 208), v_set((float)(int8_t)p[192 + 2 * g + q / 16]));
    return v_mul(value, scale);
  }
  }
}

/* ---- Integers ---- */

typedef uint8_t blocks_bytes __attribute__((vector_size(16)));
typedef uint16_t blocks_pairs __attribute__((vector_size(16)));

/* The low or high halves of 16 bytes */
V_INLINE blocks_bytes blocks_halves(const uint8_t *p, bool high) {
  blocks_bytes x;
  memcpy(&x, p, sizeof x);
  return high ? x >> 4 : x & 15;
}

/* Bit or bits `at` of 16 bytes, in their lowest place: shifted in pairs, and masked */
V_INLINE blocks_bytes blocks_high(const uint8_t *p, int at, uint8_t mask) {
  blocks_pairs x;
  memcpy(&x, p, sizeof x);
  return (blocks_bytes)(x >> at) & mask;
}

/* 16 for each of 16 bits that is set, else 0: multiplied, a byte is repeated, and each copy keeps one bit */
V_INLINE blocks_bytes blocks_sixteens(const uint8_t *p) {
  const uint64_t low = UINT64_C(0x7f7f7f7f7f7f7f7f);
  uint64_t eight[2];
  blocks_bytes out;
  for (int i = 0; i < 2; i++) {
    const uint64_t bits = p[i] * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
    eight[i] = (((bits & low) + low) | bits) >> 3 & UINT64_C(0x1010101010101010);
  }
  memcpy(&out, eight, sizeof out);
  return out;
}

V_INLINE float blocks_float16(const uint8_t *p) {
  float x[V_LANES];
  v_store(x, v_set_float16(p));
  return x[0];
}

/* Half h of group g of a block: 16 integers with sign, as heed__scalar_unpack gives them. */
V_INLINE blocks_bytes blocks_integers(const heed_dtype dtype, const uint8_t *p, size_t g, size_t h) {
  blocks_bytes x;
  switch (dtype) {
  case HEED_Q4_0: return blocks_halves(p + 2, h) - 8;
  case HEED_Q4_1: return blocks_halves(p + 4, h);
  case HEED_Q5_0: return blocks_halves(p + 6, h) + blocks_sixteens(p + 2 + 2 * h) - 16;
  case HEED_Q5_1: return blocks_halves(p + 8, h) + blocks_sixteens(p + 4 + 2 * h);
  case HEED_Q8_0: memcpy(&x, p + 2 + 16 * h, sizeof x); return x;
  case HEED_Q4_K: return blocks_halves(p + 16 + g / 2 * 32 + 16 * h, g % 2);
  case HEED_Q5_K:
    x = blocks_high(p + 16 + 16 * h, (int)g, 1);
    return blocks_halves(p + 48 + g / 2 * 32 + 16 * h, g % 2) + (x << 4);
  default: /* Q6_K */
    x = blocks_high(p + 128 + g / 4 * 32 + 16 * h, (int)(g % 4 * 2), 3);
    return blocks_halves(p + g / 4 * 64 + g % 2 * 32 + 16 * h, g % 4 >= 2) + (x << 4) - 32;
  }
}

/* The factors of both halves of group g, and what is subtracted from its elements. */
V_INLINE void blocks_factors(const heed_dtype dtype, const uint8_t *p, size_t g, float scale[2],
                             float *minimum) {
  const float whole = blocks_float16(dtype == HEED_Q6_K ? p + 208 : p);
  scale[0] = scale[1] = whole;
  *minimum = 0;
  if (dtype == HEED_Q4_1 || dtype == HEED_Q5_1) *minimum = -blocks_float16(p + 2);
  if (dtype == HEED_Q4_K || dtype == HEED_Q5_K) {
    const uint8_t *packed = p + 4;
    const int factor = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
    const int offset = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
    scale[0] = whole * (float)factor;
    *minimum = blocks_float16(p + 2) * (float)offset;
  }
  if (dtype == HEED_Q6_K)
    for (int h = 0; h < 2; h++) scale[h] = whole * (float)(int8_t)p[192 + 2 * g + (size_t)h];
}

#endif
