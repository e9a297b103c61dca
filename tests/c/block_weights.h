/* Weights of blocked dtypes for tests. */
#ifndef HEED_TEST_BLOCK_WEIGHTS_H
#define HEED_TEST_BLOCK_WEIGHTS_H

#include "support.h"

#include "../../src/core/core.h"

/* Random bytes, of which those at the float16 numbers of the blocks are numbers around 0.01. */
static inline void fill_blocks(heed_dtype dtype, uint8_t *w, size_t bytes, uint32_t seed) {
  const size_t block = heed__block_bytes(dtype);
  const bool two = dtype == HEED_Q4_1 || dtype == HEED_Q5_1 || dtype == HEED_Q4_K || dtype == HEED_Q5_K;
  for (size_t i = 0; i < bytes; i++) w[i] = (uint8_t)(next_random(&seed) >> 24);
  for (size_t i = 0; i < bytes; i += block) {
    uint8_t *const number = w + i + (dtype == HEED_Q6_K ? 208 : 0);
    number[1] = (uint8_t)(0x20 | (number[1] & 0x83)); /* ±2^-7 … */
    if (two) number[3] = (uint8_t)(0x20 | (number[3] & 0x83));
  }
}

#endif
