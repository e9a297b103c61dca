/* A keyed hash of text: SipHash-1-3. Without the key nobody can construct texts that collide, so no file can
 * make a hash table of its strings degenerate. Source: Aumasson and Bernstein, "SipHash: a fast short-input
 * PRF", https://eprint.iacr.org/2012/351. */
#include "io.h"

static inline uint64_t rotated(uint64_t x, int bits) {
  return x << bits | x >> (64 - bits);
}

static inline void sip_round(heed__hasher *h) {
  h->v0 += h->v1;
  h->v2 += h->v3;
  h->v1 = rotated(h->v1, 13) ^ h->v0;
  h->v3 = rotated(h->v3, 16) ^ h->v2;
  h->v0 = rotated(h->v0, 32);
  h->v2 += h->v1;
  h->v0 += h->v3;
  h->v1 = rotated(h->v1, 17) ^ h->v2;
  h->v3 = rotated(h->v3, 21) ^ h->v0;
  h->v2 = rotated(h->v2, 32);
}

static inline void sip_word(heed__hasher *h, uint64_t word) {
  h->v3 ^= word;
  sip_round(h);
  h->v0 ^= word;
}

heed__hasher heed__hash_begin(const uint64_t key[2]) {
  return (heed__hasher){.v0 = key[0] ^ UINT64_C(0x736f6d6570736575),
                        .v1 = key[1] ^ UINT64_C(0x646f72616e646f6d),
                        .v2 = key[0] ^ UINT64_C(0x6c7967656e657261),
                        .v3 = key[1] ^ UINT64_C(0x7465646279746573)};
}

void heed__hash_feed(heed__hasher *h, const char *text, size_t size) {
  for (size_t i = 0; i < size; i++) {
    h->word |= (uint64_t)(unsigned char)text[i] << (8 * (h->size & 7));
    if ((++h->size & 7) != 0) continue;
    sip_word(h, h->word);
    h->word = 0;
  }
}

uint64_t heed__hash_value(const heed__hasher *h) {
  heed__hasher end = *h;
  sip_word(&end, end.word | (uint64_t)end.size << 56);
  end.v2 ^= 0xff;
  for (int i = 0; i < 3; i++) sip_round(&end);
  return end.v0 ^ end.v1 ^ end.v2 ^ end.v3;
}

void heed__hash_make_key(const void *material, size_t size, uint64_t key[2]) {
  for (uint64_t i = 0; i < 2; i++) {
    heed__hasher h = heed__hash_begin((uint64_t[2]){i, 0});
    heed__hash_feed(&h, material, size);
    key[i] = heed__hash_value(&h);
  }
}
