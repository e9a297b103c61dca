/* Blocks of Philox4x32-10, as in core/philox.c: a lane has the counter of one thread. */
#ifndef HEED_VECTOR_PHILOX_H
#define HEED_VECTOR_PHILOX_H

#include "elementary.h"

enum { PHILOX_VECTORS = 2, PHILOX_BLOCKS = PHILOX_VECTORS * V_LANES }; /* two, to overlap their latencies */

V_INLINE void philox_rounds(vint c[4][PHILOX_VECTORS], uint32_t key0, uint32_t key1) {
  V_UNROLL
  for (int r = 0; r < HEED__PHILOX_ROUNDS; r++, key0 += HEED__PHILOX_STEP_0, key1 += HEED__PHILOX_STEP_1) {
    const vint k0 = v_set_int((int32_t)key0), k1 = v_set_int((int32_t)key1);
    V_UNROLL
    for (int i = 0; i < PHILOX_VECTORS; i++) {
      vint low0, low2;
      const vint high0 = v_mul_halves(c[0][i], HEED__PHILOX_MULTIPLIER_0, &low0);
      const vint high2 = v_mul_halves(c[2][i], HEED__PHILOX_MULTIPLIER_2, &low2);
      c[0][i] = v_xor_int(v_xor_int(high2, c[1][i]), k0);
      c[1][i] = low2;
      c[2][i] = v_xor_int(v_xor_int(high0, c[3][i]), k1);
      c[3][i] = low0;
    }
  }
}

void KERNEL(philox)(uint32_t *out, const uint32_t *key, uint64_t block, uint64_t thread, size_t n) {
  for (; n >= PHILOX_BLOCKS; n -= PHILOX_BLOCKS, thread += PHILOX_BLOCKS, out += 4 * PHILOX_BLOCKS) {
    uint32_t word[4][PHILOX_BLOCKS];
    vint c[4][PHILOX_VECTORS];
    for (size_t j = 0; j < PHILOX_BLOCKS; j++) {
      word[2][j] = (uint32_t)(thread + j);
      word[3][j] = (uint32_t)((thread + j) >> 32);
    }
    V_UNROLL
    for (int i = 0; i < PHILOX_VECTORS; i++) {
      c[0][i] = v_set_int((int32_t)(uint32_t)block);
      c[1][i] = v_set_int((int32_t)(uint32_t)(block >> 32));
      c[2][i] = v_load_int(word[2] + i * V_LANES);
      c[3][i] = v_load_int(word[3] + i * V_LANES);
    }
    philox_rounds(c, key[0], key[1]);
    V_UNROLL
    for (int w = 0; w < 4; w++) {
      V_UNROLL
      for (int i = 0; i < PHILOX_VECTORS; i++) v_store_int(word[w] + i * V_LANES, c[w][i]);
    }
    for (size_t j = 0; j < PHILOX_BLOCKS; j++) {
      out[4 * j] = word[0][j];
      out[4 * j + 1] = word[1][j];
      out[4 * j + 2] = word[2][j];
      out[4 * j + 3] = word[3][j];
    }
  }
  heed__philox_blocks(out, key, block, thread, n);
}

#endif
