/* Conversion between float32 and the low-precision dtypes. */
#ifndef HEED_VECTOR_CONVERT_H
#define HEED_VECTOR_CONVERT_H

#include "widen_blocks.h"

/* x rounded to the nearest bfloat16, ties to even, as in core/convert.h; x + x makes nan quiet. */
V_INLINE void store_bfloat16(uint16_t *p, vfloat x) {
  const vmask nan = v_isnan(x);
  const vint bits = v_bits(v_select(nan, v_add(x, x), x));
  const vint odd = v_and_int(v_shift_right(bits, 16), v_set_int(1));
  const vint half = v_add_int(odd, v_set_int(0x7fff));
  v_store_upper(p, v_add_int(bits, v_bits(v_select(nan, v_zero(), v_from_bits(half)))));
}

V_INLINE void store_stored(void *out, const heed_dtype dtype, vfloat x) {
  switch (dtype) {
  case HEED_BFLOAT16: store_bfloat16(out, x); break;
  case HEED_FLOAT16: v_store_float16(out, x); break;
  case HEED_INT8: v_store_int8(out, x); break;
  default: v_store(out, x);
  }
}

V_INLINE void convert_vectors(const heed_dtype to, void *out, const heed_dtype from, const void *x,
                              size_t n) {
  for (size_t i = 0; i < n; i += V_LANES) {
    const size_t at = i < n - V_LANES ? i : n - V_LANES; /* the last vector overlaps the one before */
    store_stored((char *)out + at * heed__element_bytes(to), to,
                 load_stored(element_at(x, from, (int64_t)at), from));
  }
}

V_INLINE void convert_to(const heed_dtype to, void *out, heed_dtype from, const void *x,
                         size_t n){BY_DTYPE(from, convert_vectors(to, out, type, x, n))}

V_INLINE void convert_blocks(const heed_dtype from, float *out, const uint8_t *x, size_t n) {
  const size_t elements = (size_t)heed__block_elements(from);
  for (size_t i = 0; i < n; i += elements, x += heed__block_bytes(from)) {
    for (size_t p = 0; p < elements; p += V_LANES)
      v_store(out + i + p, blocks_vector(from, x, p / BLOCKS_GROUP, p % BLOCKS_GROUP));
  }
}

void KERNEL(convert)(heed_dtype to, void *out, heed_dtype from, const void *x, size_t n) {
  if (to == HEED_FLOAT32 && heed__is_blocked(from)) {
#define X(dtype, ...)                                                                                        \
  case HEED_##dtype: convert_blocks(HEED_##dtype, out, x, n); break;
    switch (from) {
      HEED_BLOCK_DTYPE_LIST(X)
    default: break;
    }
#undef X
    return;
  }
  if (n < V_LANES || heed__is_blocked(from)) {
    heed__scalar_convert(to, out, from, x, n);
    return;
  }
  BY_DTYPE(to, convert_to(type, out, from, x, n))
}

#endif
