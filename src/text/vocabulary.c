/* Vocabularies of tokenizers: tokens by id, ids by token. */
#include "text.h"

#include <string.h>

uint64_t heed__quick_hash(const uint64_t key[2], const char *text, size_t size) {
  uint64_t hash = key[0] ^ size, word;
  for (; size >= 8; text += 8, size -= 8) {
    memcpy(&word, text, 8);
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
  }
  word = 0;
  memcpy(&word, text, size);
  hash = (hash ^ word ^ key[1]) * UINT64_C(0xbf58476d1ce4e5b9);
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

/* The slot of a text, or the free one for it. */
static uint32_t *slot_of_token(const heed__vocabulary *v, const char *text, size_t size) {
  uint32_t at = (uint32_t)(heed__quick_hash(v->key, text, size) >> 32) & v->mask;
  for (; v->slots[at] > 0; at = (at + 1) & v->mask) {
    const heed__text_span *token = &v->tokens[v->slots[at] - 1];
    if (token->end - token->begin == size && memcmp(v->text + token->begin, text, size) == 0) break;
  }
  return &v->slots[at];
}

bool heed__vocabulary_add(heed__vocabulary *v, int32_t id, const char *text, size_t size) {
  if (id < 0 || id >= v->count || size > v->text_capacity - v->text_used) return false;
  uint32_t *slot = slot_of_token(v, text, size);
  if (*slot > 0 || v->tokens[id].begin <= v->tokens[id].end) return false;
  memcpy(v->text + v->text_used, text, size);
  v->tokens[id] = (heed__text_span){v->text_used, v->text_used + size};
  v->text_used += size;
  v->used++;
  *slot = (uint32_t)id + 1;
  return true;
}

int32_t heed__vocabulary_find(const heed__vocabulary *v, const char *text, size_t size) {
  return v->count == 0 ? -1 : (int32_t)*slot_of_token(v, text, size) - 1;
}

const char *heed__vocabulary_text(const heed__vocabulary *v, int64_t id, size_t *size) {
  if (id < 0 || id >= v->count || v->tokens[id].begin > v->tokens[id].end) return NULL;
  *size = v->tokens[id].end - v->tokens[id].begin;
  return v->text + v->tokens[id].begin;
}
