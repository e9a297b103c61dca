/* Vocabularies of tokenizers: tokens by id, ids by token. */
#include "text.h"

#include <string.h>

/* Up to 7 bytes; the size is hashed as well, so that different texts do not meet. */
static inline uint64_t read_tail(const char *text, size_t size) {
  uint32_t low, high;
  if (size >= sizeof(low)) {
    memcpy(&low, text, sizeof(low));
    memcpy(&high, text + size - sizeof(high), sizeof(high));
    return (uint64_t)high << 32 | low;
  }
  if (size == 0) return 0;
  const unsigned char first = (unsigned char)text[0], middle = (unsigned char)text[size / 2],
                      last = (unsigned char)text[size - 1];
  return (uint64_t)last << 16 | (uint64_t)middle << 8 | first;
}

uint64_t heed__quick_hash(const uint64_t key[2], const char *text, size_t size) {
  uint64_t hash = key[0] ^ size, word;
  for (; size >= 8; text += 8, size -= 8) {
    memcpy(&word, text, 8);
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
  }
  hash = (hash ^ read_tail(text, size) ^ key[1]) * UINT64_C(0xbf58476d1ce4e5b9);
  hash ^= hash >> 32;
  return hash * UINT64_C(0x94d049bb133111eb);
}

void heed__quick_key(const void *object, uint64_t key[2]) {
  const struct {
    const void *object;
    double clock;
  } material = {object, heed_clock()};
  heed__hash_make_key(&material, sizeof(material), key);
}

heed_status heed__vocabulary_begin(heed__vocabulary *v, heed_context *ctx, int32_t count, size_t bytes) {
  uint64_t slots = 8;
  while (slots < 2 * (uint64_t)count) slots *= 2;
  const size_t tokens = heed__array_bytes((uint64_t)count, sizeof(*v->tokens)),
               table = heed__array_bytes(slots, sizeof(*v->slots));
  *v = (heed__vocabulary){.ctx = ctx, .count = count, .mask = (uint32_t)(slots - 1), .text_capacity = bytes};
  v->tokens = heed__allocate(ctx, tokens);
  v->slots = heed__allocate(ctx, table);
  v->text = heed__allocate(ctx, bytes + 1);
  if (v->tokens == NULL || v->slots == NULL || v->text == NULL) {
    heed__vocabulary_free(v);
    return heed__fail_memory(ctx, "load", tokens + table + bytes);
  }
  for (int32_t i = 0; i < count; i++) v->tokens[i] = (heed__text_span){1, 0};
  memset(v->slots, 0, table);
  heed__quick_key(v->tokens, v->key);
  return HEED_OK;
}

void heed__vocabulary_free(heed__vocabulary *v) {
  heed__release(v->ctx, v->tokens);
  heed__release(v->ctx, v->slots);
  heed__release(v->ctx, v->text);
  *v = (heed__vocabulary){.ctx = v->ctx};
}

static bool is_token(const heed__vocabulary *v, uint32_t id, const char *text, size_t size) {
  const heed__text_span *token = &v->tokens[id];
  return token->end - token->begin == size && token->begin <= token->end &&
         memcmp(v->text + token->begin, text, size) == 0;
}

/* The slot of a text, or the free one for it. */
static heed__token_slot *slot_of_token(const heed__vocabulary *v, uint64_t hash, const char *text,
                                       size_t size) {
  const uint32_t tag = (uint32_t)hash;
  uint32_t at = (uint32_t)(hash >> 32) & v->mask;
  while (v->slots[at].entry > 0 &&
         (v->slots[at].tag != tag || !is_token(v, v->slots[at].entry - 1, text, size)))
    at = (at + 1) & v->mask;
  return &v->slots[at];
}

bool heed__vocabulary_add(heed__vocabulary *v, int32_t id, const char *text, size_t size) {
  if (id < 0 || id >= v->count || size > v->text_capacity - v->text_used) return false;
  const uint64_t hash = heed__quick_hash(v->key, text, size);
  heed__token_slot *slot = slot_of_token(v, hash, text, size);
  if (slot->entry > 0 || v->tokens[id].begin <= v->tokens[id].end) return false;
  memcpy(v->text + v->text_used, text, size);
  v->tokens[id] = (heed__text_span){v->text_used, v->text_used + size};
  v->text_used += size;
  v->used++;
  *slot = (heed__token_slot){(uint32_t)hash, (uint32_t)id + 1};
  return true;
}

int32_t heed__vocabulary_find(const heed__vocabulary *v, const char *text, size_t size) {
  if (v->count == 0) return -1;
  return (int32_t)slot_of_token(v, heed__quick_hash(v->key, text, size), text, size)->entry - 1;
}

int32_t heed__vocabulary_find_near(const heed__vocabulary *v, int32_t guess, const char *text, size_t size) {
  return guess >= 0 && guess < v->count && is_token(v, (uint32_t)guess, text, size)
             ? guess
             : heed__vocabulary_find(v, text, size);
}

const char *heed__vocabulary_text(const heed__vocabulary *v, int64_t id, size_t *size) {
  if (id < 0 || id >= v->count || v->tokens[id].begin > v->tokens[id].end) return NULL;
  *size = v->tokens[id].end - v->tokens[id].begin;
  return v->text + v->tokens[id].begin;
}
