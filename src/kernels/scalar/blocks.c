/* Blocked dtypes: the layouts of ggml's blocks, as described at docs/files.md, taken apart into small
 * integers with a scale and a minimum for each group. Everything in a file is little-endian, and nothing is
 * aligned. */
#include "scalar.h"

static uint32_t block_bits(const uint8_t *p, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint32_t)p[i] << 8 * i;
  return value;
}

static float half_at(const uint8_t *p) {
  return heed__float_from_float16((uint16_t)block_bits(p, 2));
}

static void fill_groups(heed__block *out, int first, int count, float scale, float minimum) {
  for (int i = first; i < first + count; i++) {
    out->scale[i] = scale;
    out->minimum[i] = minimum;
  }
}

/* 32 elements of 4 bits: the low halves of 16 bytes, then the high ones. `fifth` holds a fifth bit of each.
 */
static void unpack_nibbles(const uint8_t *p, uint32_t fifth, int less, int8_t *value) {
  for (int i = 0; i < 16; i++) {
    value[i] = (int8_t)((p[i] & 15) + (int)(fifth >> i & 1) * 16 - less);
    value[i + 16] = (int8_t)((p[i] >> 4) + (int)(fifth >> (i + 16) & 1) * 16 - less);
  }
}

/* The scale and the minimum, of 6 bits each, of group i of a Q4_K or Q5_K block: those of the first four
 * groups are the low bits of bytes 0–3 and 4–7, the others are the halves of bytes 8–11 with the free high
 * bits of the first eight. */
static void unpack_scale(const uint8_t *p, int i, int *scale, int *minimum) {
  if (i < 4) {
    *scale = p[i] & 63;
    *minimum = p[i + 4] & 63;
  } else {
    *scale = (p[i + 4] & 15) | p[i - 4] >> 6 << 4;
    *minimum = p[i + 4] >> 4 | p[i] >> 6 << 4;
  }
}

/* Q4_K and Q5_K: scale and minimum, 12 bytes of scales, for Q5_K 32 bytes of fifth bits, and nibbles: of each
 * 32 bytes the low halves are one group of 32, the high halves the next. */
static void unpack_k(const uint8_t *p, bool five, heed__block *out) {
  const float scale = half_at(p), minimum = half_at(p + 2);
  const uint8_t *high = p + 16, *low = five ? p + 48 : p + 16;
  for (int g = 0; g < 8; g++) {
    int factor, offset;
    unpack_scale(p + 4, g, &factor, &offset);
    fill_groups(out, 2 * g, 2, scale * (float)factor, minimum * (float)offset);
    for (int i = 0; i < 32; i++) {
      const int nibble = g % 2 ? low[g / 2 * 32 + i] >> 4 : low[g / 2 * 32 + i] & 15;
      out->value[32 * g + i] = (int8_t)(nibble + (five ? (high[i] >> g & 1) * 16 : 0));
    }
  }
}

/* Q6_K: of each 128 elements, 64 bytes with the low 4 bits, 32 with the high 2, and 8 scales of 16 elements.
 */
static void unpack_q6_k(const uint8_t *p, heed__block *out) {
  const uint8_t *low = p, *high = p + 128, *scales = p + 192;
  const float scale = half_at(p + 208);
  for (int i = 0; i < 256; i++) {
    const int half = i / 128, quarter = i % 128 / 32, at = i % 32;
    const uint8_t byte = low[64 * half + 32 * (quarter % 2) + at];
    const int nibble = quarter < 2 ? byte & 15 : byte >> 4;
    out->value[i] = (int8_t)(nibble + (high[32 * half + at] >> 2 * quarter & 3) * 16 - 32);
  }
  for (int g = 0; g < 16; g++) fill_groups(out, g, 1, scale * (float)(int8_t)scales[g], 0.0f);
}

void heed__scalar_unpack(heed_dtype dtype, const void *block, heed__block *out) {
  const uint8_t *p = block;
  switch (dtype) {
  case HEED_Q4_0:
    fill_groups(out, 0, 2, half_at(p), 0.0f);
    unpack_nibbles(p + 2, 0, 8, out->value);
    break;
  case HEED_Q4_1:
    fill_groups(out, 0, 2, half_at(p), -half_at(p + 2));
    unpack_nibbles(p + 4, 0, 0, out->value);
    break;
  case HEED_Q5_0:
    fill_groups(out, 0, 2, half_at(p), 0.0f);
    unpack_nibbles(p + 6, block_bits(p + 2, 4), 16, out->value);
    break;
  case HEED_Q5_1:
    fill_groups(out, 0, 2, half_at(p), -half_at(p + 2));
    unpack_nibbles(p + 8, block_bits(p + 4, 4), 0, out->value);
    break;
  case HEED_Q8_0:
    fill_groups(out, 0, 2, half_at(p), 0.0f);
    memcpy(out->value, p + 2, 32);
    break;
  case HEED_Q4_K: unpack_k(p, false, out); break;
  case HEED_Q5_K: unpack_k(p, true, out); break;
  default: unpack_q6_k(p, out);
  }
}

void heed__scalar_widen_blocks(heed_dtype dtype, const void *x, int64_t n, float *out) {
  const int64_t elements = heed__block_elements(dtype);
  const char *at = x;
  for (int64_t i = 0; i < n; i += elements, at += heed__block_bytes(dtype)) {
    heed__block block;
    heed__scalar_unpack(dtype, at, &block);
    for (int64_t j = 0; j < elements; j++) {
      const int64_t group = j / HEED__BLOCK_GROUP;
      out[i + j] = (float)block.value[j] * block.scale[group] - block.minimum[group];
    }
  }
}
