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

#endif
