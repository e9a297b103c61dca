/* Float32 to a block of a blocked dtype: the inverse of src/kernels/scalar/blocks.c, which describes the
 * layouts. Blocks of 32 are those of ggml bit for bit; those of 256 come from a search of its kind.
 *
 * All input is finite and at most 65504 in magnitude, so that every scale and minimum is a float16. */
#include <math.h>
#include <string.h>

#include "blocks.h"

enum { BLOCK_LANES = 8 };

static void put_half(uint8_t *p, uint16_t half) {
  p[0] = (uint8_t)(half & 0xff);
  p[1] = (uint8_t)(half >> 8);
}

/* Stores x as a float16 and returns the number that it is read back as. */
static float put_rounded(uint8_t *p, float x) {
  const uint16_t half = heed__float16_from_float(x);
  put_half(p, half);
  return heed__float_from_float16(half);
}

/* 1 / x; 0 where x is 0 or so small that as a float16 it is 0. */
static float inverse_of(float x) {
  return fabsf(x) < 0x1p-64f ? 0.0f : 1.0f / x;
}

/* Rounds to nearest, ties to even, without a call, so that loops vectorise; |x| is below 2^22. */
static inline float round_small(float x) {
  return x + 0x1.8p23f - 0x1.8p23f;
}

static inline float clamp_float(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

static float sum_of_lanes(const float lane[BLOCK_LANES]) {
  float sum = 0.0f;
  for (int l = 0; l < BLOCK_LANES; l++) sum += lane[l];
  return sum;
}

/* ---- Blocks of 32 ---- */

/* The element of the largest magnitude, with its sign. */
static float extreme_of(const float *x, int n) {
  float extreme = 0.0f;
  for (int i = 0; i < n; i++) extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
  return extreme;
}

/* Stores 32 numbers of 5 bits: 4 bytes of the fifth bits, 16 with the halves; of 4 bits without `fifth`. */
static void put_nibbles(const uint8_t number[32], uint8_t *fifth, uint8_t *low) {
  uint32_t bits = 0;
  for (int i = 0; i < 16; i++) low[i] = (uint8_t)((number[i] & 15) | (number[i + 16] & 15) << 4);
  if (fifth == NULL) return;
  for (int i = 0; i < 32; i++) bits |= (uint32_t)(number[i] >> 4) << i;
  for (int i = 0; i < 4; i++) fifth[i] = (uint8_t)(bits >> 8 * i & 0xff);
}

/* Q4_0, Q5_0: the extreme becomes -half, so that it is represented exactly. ggml's rounding depends on
 * whether its compiler fuses multiply and add; this is the fused one. */
static void quantize_symmetric(const float *x, int half, uint8_t number[32], uint8_t *scale) {
  const float step = extreme_of(x, 32) / (float)-half;
  const double inverse = (double)inverse_of(step);
  put_rounded(scale, step);
  for (int i = 0; i < 32; i++) {
    const int rounded = (int)((double)x[i] * inverse + (half + 0.5));
    number[i] = (uint8_t)(rounded < 2 * half ? rounded : 2 * half - 1);
  }
}

/* Q4_1, Q5_1: from the least element to the greatest. */
static void quantize_range(const float *x, int top, uint8_t number[32], uint8_t *scale, uint8_t *minimum) {
  float low = x[0], high = x[0];
  for (int i = 1; i < 32; i++) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const float step = (high - low) / (float)top, inverse = inverse_of(step);
  put_rounded(scale, step);
  put_rounded(minimum, low);
  for (int i = 0; i < 32; i++) {
    const int rounded = (int)((x[i] - low) * inverse + 0.5f);
    number[i] = (uint8_t)(rounded < top ? rounded : top);
  }
}

static void quantize_q8_0(const float *x, uint8_t *out) {
  const float step = heed__float_of_bits(heed__largest_magnitude(x, 1, 32)) / 127.0f;
  const float inverse = inverse_of(step);
  put_rounded(out, step);
  for (int i = 0; i < 32; i++) out[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

/* ---- Q4_K, Q5_K: groups of 32 with a scale and a minimum ---- */

/* x ≈ scale · q - minimum, q in 0…top; scale and minimum are not negative. */
typedef struct affine {
  float scale, minimum;
} affine;

typedef struct affine_sums {
  float q, qq, x, qx, weight; /* sums of weight · q and so on */
} affine_sums;

/* The integers of x for an inverse scale and a minimum, and their sums. */
static affine_sums round_affine(const float *x, const float *weight, float top, float inverse, float minimum,
                                float number[32]) {
  float q[BLOCK_LANES] = {0}, qq[BLOCK_LANES] = {0}, qx[BLOCK_LANES] = {0};
  for (int i = 0; i < 32; i += BLOCK_LANES) {
    for (int l = 0; l < BLOCK_LANES; l++) {
      const float n = clamp_float(round_small((x[i + l] + minimum) * inverse), 0.0f, top);
      const float weighted = weight[i + l] * n;
      number[i + l] = n;
      q[l] += weighted;
      qq[l] += weighted * n;
      qx[l] += weighted * x[i + l];
    }
  }
  return (affine_sums){.q = sum_of_lanes(q), .qq = sum_of_lanes(qq), .qx = sum_of_lanes(qx)};
}

static float affine_error(const float *x, const float *weight, const float number[32], affine a) {
  float lane[BLOCK_LANES] = {0};
  for (int i = 0; i < 32; i += BLOCK_LANES) {
    for (int l = 0; l < BLOCK_LANES; l++) {
      const float error = a.scale * number[i + l] - a.minimum - x[i + l];
      lane[l] += weight[i + l] * error * error;
    }
  }
  return sum_of_lanes(lane);
}

/* The scale and minimum with the least weighted squared error for given integers, which are not all 0. If
 * they are all equal the determinant is a rounding error, below 1e-6 of its terms; else it is above 3e-5 of
 * them. */
static affine solve_affine(const affine_sums *s) {
  const float determinant = s->weight * s->qq - s->q * s->q;
  const affine a = {(s->weight * s->qx - s->x * s->q) / determinant,
                    (s->q * s->qx - s->qq * s->x) / determinant};
  if (determinant > 1e-5f * s->weight * s->qq && a.minimum >= 0.0f) return a;
  return (affine){s->qx / s->qq, 0.0f};
}

/* Tries inverse scales around top / (greatest - least): rounds x by each, solves for scale and minimum, and
 * keeps the best. Large elements count more: their weight is their magnitude and the group's root mean
 * square. Source: the k-quants of llama.cpp, pull request 1684. */
static affine fit_affine(const float *x, int top) {
  enum { STEPS = 10 }; /* each way, of a tenth of an integer */
  float weight[32], number[32], low = 0.0f, high = x[0], squares = 0.0f;
  affine_sums all = {0};
  for (int i = 0; i < 32; i++) {
    squares += x[i] * x[i];
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const float root = sqrtf(squares / 32.0f);
  for (int i = 0; i < 32; i++) {
    weight[i] = root + fabsf(x[i]);
    all.weight += weight[i];
    all.x += weight[i] * x[i];
  }
  affine best = {0.0f, -low};
  if (inverse_of(high - low) == 0.0f) return best;
  float least = INFINITY;
  for (int i = -STEPS; i <= STEPS; i++) {
    const float inverse = ((float)top + 0.1f * (float)i) / (high - low);
    affine_sums s = round_affine(x, weight, (float)top, inverse, -low, number);
    s.weight = all.weight;
    s.x = all.x;
    const affine a = solve_affine(&s);
    if (!(a.scale > 0.0f)) continue;
    const float error = affine_error(x, weight, number, a);
    if (!(error < least)) continue;
    least = error;
    best = a;
  }
  return best;
}

/* Stores scale and minimum, of 6 bits each, of the 8 groups in 12 bytes. */
static void put_scales(const uint8_t scale[8], const uint8_t minimum[8], uint8_t out[12]) {
  for (int g = 0; g < 4; g++) {
    out[g] = (uint8_t)(scale[g] | scale[g + 4] >> 4 << 6);
    out[g + 4] = (uint8_t)(minimum[g] | minimum[g + 4] >> 4 << 6);
    out[g + 8] = (uint8_t)((scale[g + 4] & 15) | (minimum[g + 4] & 15) << 4);
  }
}

static uint8_t to_six_bits(float x) {
  return (uint8_t)clamp_float(round_small(x), 0.0f, 63.0f);
}

static void quantize_affine(const float *x, bool five, uint8_t *out) {
  const int top = five ? 31 : 15;
  uint8_t scale[8], minimum[8], *fifth = out + 16, *low = five ? out + 48 : out + 16;
  affine group[8];
  float greatest = 0.0f, deepest = 0.0f;
  for (int g = 0; g < 8; g++) {
    group[g] = fit_affine(x + 32 * g, top);
    greatest = fmaxf(greatest, group[g].scale);
    deepest = fmaxf(deepest, group[g].minimum);
  }
  const float step = put_rounded(out, greatest / 63.0f), depth = put_rounded(out + 2, deepest / 63.0f);
  const float by_step = inverse_of(greatest / 63.0f), by_depth = inverse_of(deepest / 63.0f);
  if (five) memset(fifth, 0, 32);
  memset(low, 0, 128);
  for (int g = 0; g < 8; g++) {
    scale[g] = to_six_bits(group[g].scale * by_step);
    minimum[g] = to_six_bits(group[g].minimum * by_depth);
    const float inverse = inverse_of(step * (float)scale[g]), offset = depth * (float)minimum[g];
    for (int i = 0; i < 32; i++) {
      const int n = (int)clamp_float((x[32 * g + i] + offset) * inverse + 0.5f, 0.0f, (float)top);
      low[g / 2 * 32 + i] |= (uint8_t)((n & 15) << 4 * (g % 2));
      if (five) fifth[i] |= (uint8_t)(n >> 4 << g);
    }
  }
  put_scales(scale, minimum, out + 4);
}

/* ---- Q6_K: groups of 16 with a scale ---- */

/* The scale of x ≈ scale · q, q in -32…31, with the least error weighted by x²: tries scales around those
 * that make the extreme element -32. Of given integers the best scale is Σ w q x / Σ w q q, and its error is
 * least where (Σ w q x)² / Σ w q q is greatest. */
static float fit_scale(const float *x) {
  enum { STEPS = 9 }; /* each way, of a tenth of an integer */
  const float extreme = extreme_of(x, 16);
  float best = 0.0f, gain = 0.0f;
  if (inverse_of(extreme) == 0.0f) return 0.0f;
  for (int step = -STEPS; step <= STEPS; step++) {
    const float inverse = -(32.0f + 0.1f * (float)step) / extreme;
    float qx[BLOCK_LANES] = {0}, qq[BLOCK_LANES] = {0};
    for (int i = 0; i < 16; i += BLOCK_LANES) {
      for (int l = 0; l < BLOCK_LANES; l++) {
        const float v = x[i + l], n = clamp_float(round_small(v * inverse), -32.0f, 31.0f);
        qx[l] += v * v * n * v;
        qq[l] += v * v * n * n;
      }
    }
    const float product = sum_of_lanes(qx), squares = sum_of_lanes(qq);
    if (!(squares > 0.0f) || !(product * product > gain * squares)) continue;
    best = product / squares;
    gain = best * product;
  }
  return best;
}

static void quantize_q6_k(const float *x, uint8_t *out) {
  uint8_t *low = out, *high = out + 128, *scales = out + 192;
  float scale[16];
  for (int g = 0; g < 16; g++) scale[g] = fit_scale(x + 16 * g);
  const float whole = extreme_of(scale, 16) / -128.0f, inverse = inverse_of(whole);
  const float step = put_rounded(out + 208, whole);
  memset(out, 0, 192);
  for (int i = 0; i < 256; i++) {
    const int g = i / 16, half = i / 128, quarter = i % 128 / 32, at = i % 32;
    const float factor = clamp_float(round_small(scale[g] * inverse), -128.0f, 127.0f);
    const int n = 32 + (int)clamp_float(round_small(x[i] * inverse_of(step * factor)), -32.0f, 31.0f);
    scales[g] = (uint8_t)(int8_t)factor;
    low[64 * half + 32 * (quarter % 2) + at] |= (uint8_t)((n & 15) << (quarter < 2 ? 0 : 4));
    high[32 * half + at] |= (uint8_t)(n >> 4 << 2 * quarter);
  }
}

/* Measured times of an element, with reading and checking it: searches of scales take 20 times as long. */
double heed__quantize_units(heed_dtype dtype) {
  switch (dtype) {
  case HEED_Q4_1:
  case HEED_Q5_1: return 3;
  case HEED_Q8_0: return 4;
  case HEED_Q4_0:
  case HEED_Q5_0: return 6;
  default: return 64;
  }
}

void heed__quantize_block(heed_dtype dtype, const float *x, uint8_t *out) {
  uint8_t number[32];
  switch (dtype) {
  case HEED_Q4_0:
    quantize_symmetric(x, 8, number, out);
    put_nibbles(number, NULL, out + 2);
    break;
  case HEED_Q4_1:
    quantize_range(x, 15, number, out, out + 2);
    put_nibbles(number, NULL, out + 4);
    break;
  case HEED_Q5_0:
    quantize_symmetric(x, 16, number, out);
    put_nibbles(number, out + 2, out + 6);
    break;
  case HEED_Q5_1:
    quantize_range(x, 31, number, out, out + 2);
    put_nibbles(number, out + 4, out + 8);
    break;
  case HEED_Q8_0: quantize_q8_0(x, out); break;
  case HEED_Q4_K: quantize_affine(x, false, out); break;
  case HEED_Q5_K: quantize_affine(x, true, out); break;
  default: quantize_q6_k(x, out);
  }
}
