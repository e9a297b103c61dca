/* A keyed hash of text: SipHash-1-3. Texts that share a hash cannot be made without the key, so no file can
 * turn a table of its strings into a list. Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF",
 * https://eprint.iacr.org/2012/351. */
#include "io.h"

typedef struct hasher {
  uint64_t v0, v1, v2, v3;
  uint64_t word; /* the last bytes, fewer than 8, lowest first */
  size_t size;   /* of all bytes */
} hasher;

static inline uint64_t rotated(uint64_t x, int bits) {
  return x << bits | x >> (64 - bits);
}

static inline void sip_round(hasher *h) {
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

static inline void sip_word(hasher *h, uint64_t word) {
  h->v3 ^= word;
  sip_round(h);
  h->v0 ^= word;
}

static inline void sip_bytes(hasher *h, const char *text, size_t size) {
  for (size_t i = 0; i < size; i++) {
    h->word |= (uint64_t)(unsigned char)text[i] << (8 * (h->size & 7));
    if ((++h->size & 7) != 0) continue;
    sip_word(h, h->word);
    h->word = 0;
  }
}

uint64_t heed__hash(const uint64_t key[2], const char *head, size_t head_size, const char *tail,
                    size_t tail_size) {
  hasher h = {.v0 = key[0] ^ UINT64_C(0x736f6d6570736575),
              .v1 = key[1] ^ UINT64_C(0x646f72616e646f6d),
              .v2 = key[0] ^ UINT64_C(0x6c7967656e657261),
              .v3 = key[1] ^ UINT64_C(0x7465646279746573)};
  sip_bytes(&h, head, head_size);
  sip_bytes(&h, tail, tail_size);
  sip_word(&h, h.word | (uint64_t)h.size << 56);
  h.v2 ^= 0xff;
  for (int i = 0; i < 3; i++) sip_round(&h);
  return h.v0 ^ h.v1 ^ h.v2 ^ h.v3;
}

void heed__hash_make_key(const void *material, size_t size, uint64_t key[2]) {
  for (uint64_t i = 0; i < 2; i++) key[i] = heed__hash((uint64_t[2]){i, 0}, material, size, "", 0);
}
