/* Primitives on AMX: tiles of 16 rows of 64 bytes, by number. */
#ifndef HEED_ISA_AMX_H
#define HEED_ISA_AMX_H

#include "avx512_narrow.h"

#define V_TILE_LOAD(tile, p, stride)  _tile_loadd(tile, p, (ptrdiff_t)(stride))
#define V_TILE_STORE(tile, p, stride) _tile_stored(tile, p, (ptrdiff_t)(stride))
#define V_TILE_ZERO(tile)             _tile_zero(tile)
/* sum [16, 16] += a [16, 16 words] · b [16 words, 16]: bytes without sign times bytes with, and bfloat16 */
#define V_TILE_BYTES(sum, a, b)       _tile_dpbusd(sum, a, b)
#define V_TILE_HALVES(sum, a, b)      _tile_dpbf16ps(sum, a, b)

/* Tiles belong to a thread; while they are in use, the system must save them too. */
static inline void v_tiles_begin(void) {
  uint8_t config[64] __attribute__((aligned(64))) = {1}; /* palette 1 */
  for (int i = 0; i < 8; i++) {
    config[16 + 2 * i] = 64; /* bytes of a row */
    config[48 + i] = 16;     /* rows */
  }
  _tile_loadconfig(config);
}
static inline void v_tiles_end(void) {
  _tile_release();
}

#endif
