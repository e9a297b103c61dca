/* Caches in int4: rows are multiplied by a Hadamard matrix, which spreads large elements over all (QuaRot,
 * arXiv:2404.00456), and rounded to integers from -7 to 7 with one scale, two of them in a byte. A pass
 * unpacks the rows that it reads to int8; it turns its queries, too, and its output back. */
#include <math.h>

#include "kv_cache.h"

/* ---- Turning ---- */

/* The size of the blocks that are turned: the largest power of two that divides d. */
static int64_t turned_block(int64_t d) {
  return d & -d;
}

/* x [n] times the Hadamard matrix of n, a power of two, / √n. */
static void turn_block(float *x, int64_t n) {
  for (int64_t half = 1; half < n; half *= 2) {
    for (int64_t i = 0; i < n; i += 2 * half) {
      float *restrict low = x + i, *restrict high = x + i + half;
      for (int64_t j = 0; j < half; j++) {
        const float a = low[j], b = high[j];
        low[j] = a + b;
        high[j] = a - b;
      }
    }
  }
  const float share = 1.0f / sqrtf((float)n);
  for (int64_t i = 0; i < n; i++) x[i] *= share;
}

void heed__kv_turn(float *x, int64_t d) {
  const int64_t n = d > 0 ? turned_block(d) : 1;
  for (int64_t i = 0; n > 1 && i < d; i += n) turn_block(x + i, n);
}

/* ---- Packing ---- */

/* Byte i holds element i in its low half and element i + bytes in its high half, both + 8. */
static void pack_row(const int8_t *restrict from, uint8_t *restrict to, int64_t d) {
  const int64_t bytes = heed__kv_int4_bytes(d);
  for (int64_t i = 0; i < bytes; i++) {
    const unsigned high = i + bytes < d ? (unsigned)(from[i + bytes] + 8) : 0;
    to[i] = (uint8_t)((unsigned)(from[i] + 8) | high << 4);
  }
}

static void unpack_row(const uint8_t *restrict from, int8_t *restrict to, int64_t d) {
  const int64_t bytes = heed__kv_int4_bytes(d), others = d - bytes;
  for (int64_t i = 0; i < bytes; i++) to[i] = (int8_t)((from[i] & 15) - 8);
  for (int64_t i = 0; i < others; i++) to[bytes + i] = (int8_t)((from[i] >> 4) - 8);
}

enum { UNPACKED = 64 }; /* rows between cancellation checks */

bool heed__kv_recode_rows(const heed__pace *pace, bool packs, heed_tensor *const to[HEED__KV_PARTS],
                          int64_t to_first, int64_t to_item, heed_tensor *const from[HEED__KV_PARTS],
                          int64_t first, int64_t from_item, int64_t count) {
  const int64_t heads = to[HEED__KV_KEYS]->shape[1];
  const int64_t d = (packs ? from : to)[HEED__KV_KEYS]->shape[3];
  for (int i = 0; i < HEED__KV_PARTS; i++) {
    for (int64_t head = 0; head < heads; head++) {
      for (int64_t row = 0; row < count; row++) {
        if (row % UNPACKED == 0 && pace != NULL && heed__is_due(pace)) return false;
        char *const target = heed__kv_row_at(to[i], to_item, head, to_first + row);
        const char *const source = heed__kv_row_at(from[i], from_item, head, first + row);
        if (i >= HEED__KV_KEY_SCALES)
          *(float *)(void *)target = *(const float *)(const void *)source;
        else if (packs)
          pack_row((const int8_t *)source, (uint8_t *)target, d);
        else
          unpack_row((const uint8_t *)source, (int8_t *)target, d);
      }
    }
  }
  return true;
}
