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

/* V_LANES elements of a block as they are stored, from element q on of its group g of 32, as float32: before
 * they are multiplied by their scale. */
V_INLINE vfloat blocks_codes(const heed_dtype dtype, const uint8_t *p, size_t g, size_t q) {
  switch (dtype) {
  case HEED_Q4_0: return blocks_nibbles(p + 2 + q % 16, q >= 16);
  case HEED_Q4_1: return blocks_nibbles(p + 4 + q % 16, q >= 16);
  case HEED_Q5_0: return blocks_fives(p + 6, p + 2, q);
  case HEED_Q5_1: return blocks_fives(p + 8, p + 4, q);
  case HEED_Q8_0: return v_load_int8((const int8_t *)p + 2 + q);
  case HEED_Q4_K: return blocks_nibbles(p + 16 + g / 2 * 32 + q, g % 2);
  case HEED_Q5_K: {
    const vint fifth = v_and_int(v_shift_right(v_load_bytes(p + 16 + q), (int)g), v_set_int(1));
    return v_add(blocks_nibbles(p + 48 + g / 2 * 32 + q, g % 2), v_to_float(v_shift_left(fifth, 4)));
  }
  default: { /* Q6_K */
    const size_t half = g / 4, quarter = g % 4;
    const vint two =
        v_and_int(v_shift_right(v_load_bytes(p + 128 + 32 * half + q), 2 * (int)quarter), v_set_int(3));
    const vfloat low = blocks_nibbles(p + 64 * half + 32 * (quarter % 2) + q, quarter >= 2);
    return v_add(low, v_to_float(v_sub_int(v_shift_left(two, 4), v_set_int(32))));
  }
  }
}

/* The factors of 6 bits of a Q4_K or Q5_K block: eight for the scales of its groups, eight for their minima
 */
V_INLINE void blocks_sixes(uint8_t six[16], const uint8_t *p) {
  uint32_t x[3], out[4];
  memcpy(x, p + 4, sizeof x);
  out[0] = x[0] & 0x3f3f3f3f;
  out[1] = (x[2] & 0x0f0f0f0f) | (x[0] >> 2 & 0x30303030);
  out[2] = x[1] & 0x3f3f3f3f;
  out[3] = (x[2] >> 4 & 0x0f0f0f0f) | (x[1] >> 2 & 0x30303030);
  memcpy(six, out, sizeof out);
}

/* V_LANES elements of a block as float32: from element q on of its group g of 32. */
V_INLINE vfloat blocks_vector(const heed_dtype dtype, const uint8_t *p, size_t g, size_t q) {
  const vfloat codes = blocks_codes(dtype, p, g, q), scale = v_set_float16(dtype == HEED_Q6_K ? p + 208 : p);
  switch (dtype) {
  case HEED_Q4_0: return v_fma(codes, scale, v_mul(scale, v_set(-8.0f)));
  case HEED_Q5_0: return v_fma(codes, scale, v_mul(scale, v_set(-16.0f)));
  case HEED_Q4_1:
  case HEED_Q5_1: return v_fma(codes, scale, v_set_float16(p + 2));
  case HEED_Q8_0: return v_mul(codes, scale);
  case HEED_Q6_K: return v_mul(codes, v_mul(scale, v_set((float)(int8_t)p[192 + 2 * g + q / 16])));
  default: { /* Q4_K, Q5_K */
    uint8_t six[16];
    blocks_sixes(six, p);
    return v_fma(codes, v_mul(scale, v_set((float)six[g])),
                 v_neg(v_mul(v_set_float16(p + 2), v_set((float)six[8 + g]))));
  }
  }
}

/* ---- Scales of a row ---- */

enum { BLOCKS_KEPT = 128 }; /* groups whose scales are computed together */

/* For each group the scale and what is added to its elements; Q6_K has two scales and adds nothing. They are
 * read from memory by each product: the ports of vectors are what limits these. */
typedef struct {
  float scale[2 * BLOCKS_KEPT + V_LANES], offset[BLOCKS_KEPT + V_LANES];
} blocks_scales;

/* out = n float16 numbers, `bytes` apart; n <= BLOCKS_KEPT. A last vector is filled with zeros. */
V_INLINE void blocks_halves_to(float *out, const uint8_t *p, size_t bytes, size_t n) {
  uint16_t half[BLOCKS_KEPT + V_LANES];
  for (size_t i = 0; i < n; i++) memcpy(half + i, p + i * bytes, sizeof *half);
  for (size_t i = n; i % V_LANES; i++) half[i] = 0;
  for (size_t i = 0; i < n; i += V_LANES) v_store(out + i, v_load_float16(half + i));
}

/* The scales of `blocks` blocks: up to BLOCKS_KEPT groups */
V_INLINE void blocks_scales_of(const heed_dtype dtype, const uint8_t *p, size_t blocks, blocks_scales *out) {
  const size_t bytes = heed__block_bytes(dtype);
  switch (dtype) {
  case HEED_Q4_1:
  case HEED_Q5_1: blocks_halves_to(out->offset, p + 2, bytes, blocks); /* fall through */
  case HEED_Q4_0:
  case HEED_Q5_0:
  case HEED_Q8_0:
    blocks_halves_to(out->scale, p, bytes, blocks);
    if (dtype == HEED_Q4_0 || dtype == HEED_Q5_0)
      for (size_t i = 0; i < blocks; i += V_LANES)
        v_store(out->offset + i, v_mul(v_load(out->scale + i), v_set(dtype == HEED_Q4_0 ? -8.0f : -16.0f)));
    break;
  case HEED_Q6_K:
    for (size_t b = 0; b < blocks; b++, p += bytes) {
      for (size_t i = 0; i < 16; i += V_LANES)
        v_store(out->scale + 16 * b + i,
                v_mul(v_set_float16(p + 208), v_load_int8((const int8_t *)p + 192 + i)));
    }
    break;
  default: /* Q4_K, Q5_K */
    for (size_t b = 0; b < blocks; b++, p += bytes) {
      uint8_t six[24] = {0};
      blocks_sixes(six, p);
      for (size_t i = 0; i < 8; i += V_LANES) {
        v_store(out->scale + 8 * b + i, v_mul(v_set_float16(p), v_to_float(v_load_bytes(six + i))));
        v_store(out->offset + 8 * b + i,
                v_neg(v_mul(v_set_float16(p + 2), v_to_float(v_load_bytes(six + 8 + i)))));
      }
    }
  }
}

/* As blocks_vector, of a group that is the number `at` of those with the scales s. */
V_INLINE vfloat blocks_scaled(const heed_dtype dtype, const uint8_t *p, size_t g, size_t q,
                              const blocks_scales *s, size_t at) {
  const vfloat codes = blocks_codes(dtype, p, g, q);
  if (dtype == HEED_Q8_0) return v_mul(codes, v_set(s->scale[at]));
  if (dtype == HEED_Q6_K) return v_mul(codes, v_set(s->scale[2 * at + q / 16]));
  return v_fma(codes, v_set(s->scale[at]), v_set(s->offset[at]));
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
    uint8_t six[16];
    blocks_sixes(six, p);
    scale[0] = whole * (float)six[g];
    *minimum = blocks_float16(p + 2) * (float)six[8 + g];
  }
  if (dtype == HEED_Q6_K)
    for (int h = 0; h < 2; h++) scale[h] = whole * (float)(int8_t)p[192 + 2 * g + (size_t)h];
}

#endif
