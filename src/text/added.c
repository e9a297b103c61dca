/* Added tokens: found in the text before it is divided into words. */
#include "text.h"

#include <string.h>

/* The trie of those that are searched in raw, or in normalised, text. */
static heed_status build_added_trie(heed_tokenizer *tok, bool normalized, heed__trie *out) {
  const size_t bytes = heed__array_bytes((uint64_t)tok->added_count, sizeof(heed__trie_key));
  size_t used = 0;
  heed__trie_key *keys = heed__allocate(tok->ctx, bytes);
  if (keys == NULL) return heed__fail_memory(tok->ctx, "load", bytes);
  for (int32_t i = 0; i < tok->added_count; i++) {
    const heed__added *a = &tok->added[i];
    bool twin = a->size == 0 || memchr(a->text, 0, a->size) != NULL || a->normalized != normalized;
    for (size_t k = 0; k < used && !twin; k++)
      twin = keys[k].size == a->size && memcmp(keys[k].text, a->text, a->size) == 0;
    if (!twin) keys[used++] = (heed__trie_key){a->text, (uint32_t)a->size, i};
  }
  const heed_status status = used > 0 ? heed__trie_build(tok->ctx, "load", keys, used, out) : HEED_OK;
  heed__release(tok->ctx, keys);
  return status;
}

heed_status heed__added_prepare(heed_tokenizer *tok) {
  heed__bytes normal = {0}, one = {0};
  heed_status status = HEED_OK;
  for (int32_t i = 0; i < tok->added_count && status == HEED_OK; i++) {
    heed__added *a = &tok->added[i];
    a->text = heed__vocabulary_text(&tok->vocabulary, a->id, &a->size);
    if (!a->normalized || tok->normalizers.count == 0) continue;
    one.size = 0;
    status = heed__bytes_put(tok->ctx, "load", &one, a->text, a->size);
    if (status == HEED_OK) status = heed__normalize(tok, "load", &one);
    a->size = one.size;
    if (status == HEED_OK) status = heed__bytes_put(tok->ctx, "load", &normal, one.data, one.size);
  }
  size_t at = 0;
  for (int32_t i = 0; i < tok->added_count && status == HEED_OK; i++) {
    if (!tok->added[i].normalized || tok->normalizers.count == 0) continue;
    tok->added[i].text = normal.data + at;
    at += tok->added[i].size;
  }
  heed__release(tok->ctx, one.data);
  tok->added_text = normal.data;
  if (status == HEED_OK && tok->added_count > 0) status = build_added_trie(tok, false, &tok->raw);
  if (status == HEED_OK && tok->added_count > 0) status = build_added_trie(tok, true, &tok->normal);
  return status;
}

static bool is_word_character(int32_t c) {
  const uint32_t words = 0x3eu | 0x1c0u | 1u << 9 | 1u << 10 | 1u << 12;
  return words >> heed__category_of(c) & 1;
}

static bool is_white_character(int32_t c) {
  const heed__category category = heed__category_of(c);
  return (c >= 9 && c <= 13) || c == 0x85 || (category >= 23 && category <= 25);
}

/* The character that ends before, or begins at, `at`; 0 if there is none. */
static int32_t character_beside(const char *text, size_t size, size_t at, bool before, size_t *length) {
  int32_t c = 0;
  size_t begin = at;
  *length = 0;
  if (before ? at == 0 : at == size) return 0;
  if (before) do
      begin--;
    while (begin > 0 && ((unsigned char)text[begin] & 0xc0) == 0x80);
  *length = heed__text_character(text + begin, size - begin, &c);
  return c;
}

static bool stands_alone(const char *text, size_t size, size_t begin, size_t end) {
  size_t length;
  const int32_t before = character_beside(text, size, begin, true, &length),
                after = character_beside(text, size, end, false, &length);
  return (begin == 0 || !is_word_character(before)) && (end == size || !is_word_character(after));
}

void heed__added_find(const heed_tokenizer *tok, bool normalized, bool special, const char *text, size_t size,
                      size_t *from, size_t least, int32_t *found, heed__text_span *span) {
  const heed__trie *trie = normalized ? &tok->normal : &tok->raw;
  *found = -1;
  for (size_t at = *from; at < size && trie->count > 0;) {
    int32_t index;
    size_t length = heed__trie_longest(trie, text + at, size - at, &index);
    if (length == 0) {
      at++;
      continue;
    }
    const heed__added *a = &tok->added[index];
    size_t begin = at, end = at + length;
    at = end;
    if ((a->special && !special) || (a->single_word && !stands_alone(text, size, begin, end))) continue;
    *from = end;
    while (a->lstrip && begin > least &&
           is_white_character(character_beside(text, size, begin, true, &length)))
      begin -= length;
    while (a->rstrip && end < size && is_white_character(character_beside(text, size, end, false, &length)))
      end += length;
    *found = index;
    *span = (heed__text_span){begin < least ? least : begin, end};
    return;
  }
  *from = size;
}
