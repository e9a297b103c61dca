/* Included by avx2_narrow.h: primitives of reduced_few.h on AVX2: 64 bytes, and 16 sums of four products
 * each, in two vectors. avx512_narrow.h documents them. */
#ifndef HEED_ISA_AVX2_FEW_H
#define HEED_ISA_AVX2_FEW_H

#define V_FEW
typedef struct vbytes {
  __m256i a, b;
} vbytes;
typedef vbytes vdots;
typedef struct vparts {
  __m256 a, b;
} vparts;

static inline __m256i v_load_32(const void *p) {
  return _mm256_loadu_si256((const __m256i *)p);
}
static inline vbytes vb_load(const void *p) {
  return (vbytes){v_load_32(p), v_load_32((const char *)p + 32)};
}
static inline vbytes vb_load_first(const void *p, size_t n) {
  uint8_t some[64] = {0};
  memcpy(some, p, n);
  return vb_load(some);
}
static inline __m256i v_load_sixteens(const uint8_t *p, const uint8_t *q) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)p)),
                                 _mm_loadu_si128((const __m128i *)(const void *)q), 1);
}
static inline vbytes vb_load_four(const uint8_t *const *p, size_t at) {
  return (vbytes){v_load_sixteens(p[0] + at, p[1] + at), v_load_sixteens(p[2] + at, p[3] + at)};
}
static inline vbytes vb_low(vbytes x) {
  const __m256i mask = _mm256_set1_epi8(15);
  return (vbytes){_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
}
static inline vbytes vb_high(vbytes x) {
  return vb_low((vbytes){_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)});
}
/* 16 for each of 16 + 16 bits */
static inline __m256i v_sixteens(const uint8_t *p, const uint8_t *q) {
  const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
  const __m256i byte = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2,
                                        2, 3, 3, 3, 3, 3, 3, 3, 3);
  uint16_t low, high;
  memcpy(&low, p, 2);
  memcpy(&high, q, 2);
  const __m256i bits = _mm256_shuffle_epi8(_mm256_set1_epi32((int)(low | (uint32_t)high << 16)), byte);
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bits, bit), bit), _mm256_set1_epi8(16));
}
static inline vbytes vb_add_fifths(vbytes x, const uint8_t *const *p, size_t at) {
  return (vbytes){_mm256_or_si256(x.a, v_sixteens(p[0] + at, p[1] + at)),
                  _mm256_or_si256(x.b, v_sixteens(p[2] + at, p[3] + at))};
}
static inline __m256i v_moved_bits(__m256i x, int left, int bits) {
  const __m256i y = left >= 0 ? _mm256_slli_epi16(x, left) : _mm256_srli_epi16(x, -left);
  return _mm256_and_si256(y, _mm256_set1_epi8((char)bits));
}
static inline vbytes vb_or_bits(vbytes x, const uint8_t *p, int low, int high, int bits) {
  const __m256i y = v_load_32(p);
  return (vbytes){_mm256_or_si256(x.a, v_moved_bits(y, low, bits)),
                  _mm256_or_si256(x.b, v_moved_bits(y, high, bits))};
}
static inline vbytes vb_signed(vbytes x) {
  return x;
}

static inline vdots v_no_dots(void) {
  return (vdots){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
static inline vdots v_load_dots(const void *p) {
  return vb_load(p);
}
static inline void v_store_dots(int32_t *p, vdots x) {
  _mm256_storeu_si256((__m256i *)(void *)p, x.a);
  _mm256_storeu_si256((__m256i *)(void *)(p + 8), x.b);
}
/* Products of bytes without sign, below 128, with bytes with sign; or of -128…127 with ±127 */
static inline __m256i v_dot_32(__m256i sum, __m256i x, __m256i q) {
#if defined(V_CODES)
  return v_dot_codes(sum, x, q);
#else
  return v_dot_bytes(sum, x, q);
#endif
}
static inline __m256i v_dot_32_signed(__m256i sum, __m256i x, __m256i q) {
#if defined(V_CODES)
  return v_dot_bytes(sum, x, q);
#else
  return v_dot_bytes(sum, _mm256_xor_si256(x, _mm256_set1_epi8((char)0x80)), q);
#endif
}
static inline vdots v_dot(vdots sum, vbytes x, const void *q) {
  const vbytes y = vb_load(q);
  return (vdots){v_dot_32(sum.a, x.a, y.a), v_dot_32(sum.b, x.b, y.b)};
}
static inline vdots v_dot_signed(vdots sum, vbytes x, const void *q) {
  const vbytes y = vb_load(q);
  return (vdots){v_dot_32_signed(sum.a, x.a, y.a), v_dot_32_signed(sum.b, x.b, y.b)};
}
static inline vdots v_sum_bytes(const void *q) {
  const __m256i one = _mm256_set1_epi8(1);
  return v_dot(v_no_dots(), (vbytes){one, one}, q);
}

static inline vparts vp_zero(void) {
  return (vparts){v_zero(), v_zero()};
}
static inline vparts vp_fma(vdots dots, vparts factor, vparts sum) {
  return (vparts){v_fma(v_to_float(dots.a), factor.a, sum.a), v_fma(v_to_float(dots.b), factor.b, sum.b)};
}
static inline vparts vp_fma_two(vdots dots, float a, float b, vparts sum) {
  return (vparts){v_fma(v_mul(v_to_float(dots.a), v_set(a)), v_set(b), sum.a),
                  v_fma(v_mul(v_to_float(dots.b), v_set(a)), v_set(b), sum.b)};
}
static inline vparts vp_load_four(const uint8_t *const *p) {
  int16_t half[4];
  for (int i = 0; i < 4; i++) memcpy(half + i, p[i], 2);
  return (vparts){_mm256_cvtph_ps(_mm_setr_epi16(half[0], half[1], half[2], half[3], 0, 0, 0, 0)), v_zero()};
}
static inline vparts vp_load_pairs(const uint8_t *const *p) {
  int32_t pair[4];
  for (int i = 0; i < 4; i++) memcpy(pair + i, p[i], 4);
  return (vparts){_mm256_cvtph_ps(_mm_setr_epi32(pair[0], pair[1], pair[2], pair[3])), v_zero()};
}
static inline vparts vp_scale_bytes(const uint8_t *p, const uint8_t *bytes) {
  return (vparts){v_mul(v_set_float16(p), v_to_float(v_load_bytes(bytes))),
                  v_mul(v_set_float16(p + 2), v_to_float(v_load_bytes(bytes + 8)))};
}
static inline vparts vp_scale_signed(const uint8_t *p, const uint8_t *bytes) {
  return (vparts){v_mul(v_set_float16(p), v_load_int8((const int8_t *)bytes)),
                  v_mul(v_set_float16(p), v_load_int8((const int8_t *)bytes + 8))};
}
static inline vparts vp_mul(vparts x, const float *p) {
  return (vparts){v_mul(x.a, v_load(p)), v_mul(x.b, v_load(p + 8))};
}
static inline vparts vp_mul_eight(vparts x, const float *p) {
  return (vparts){v_mul(x.a, v_load(p)), v_zero()};
}
/* Lanes i and j, four times each */
static inline vfloat v_two_fours(vfloat x, int i, int j) {
  return _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(i, i, i, i, j, j, j, j));
}
static inline vparts vp_fours(vparts x, int step) {
  return (vparts){v_two_fours(x.a, 0, step), v_two_fours(x.a, 2 * step, 3 * step)};
}
static inline vparts vp_fours_from(vparts x, int i) {
  const vfloat y = i < 2 ? x.a : x.b;
  const int first = i % 2 * 4;
  return (vparts){v_two_fours(y, first, first + 1), v_two_fours(y, first + 2, first + 3)};
}
static inline vparts vp_eights(vparts x, int i) {
  return (vparts){v_two_fours(x.a, i, i), v_two_fours(x.a, i + 2, i + 2)};
}
static inline vparts vp_add_first(vparts sum, vparts x) {
  return (vparts){v_add(sum.a, x.a), sum.b};
}
static inline vparts vp_add_last(vparts sum, vparts x) {
  return (vparts){sum.a, v_add(sum.b, x.b)};
}
static inline vfloat vp_join(vparts x) {
  return v_add(x.a, x.b);
}
static inline vfloat vp_join_odd(vparts x, vparts y) {
  return v_add(vp_join(x), v_clear(v_mask_from_bits(0x55), y.a));
}
static inline vfloat vp_join_last(vparts x, vparts y) {
  return v_sub(vp_join(x), y.b);
}

#endif
