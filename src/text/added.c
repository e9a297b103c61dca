/* Added tokens: found in the text before it is divided into words. */
#include "text.h"

#include <string.h>

static int compare_added(const void *a, const void *b) {
  const heed__trie_key *x = a, *y = b;
  const int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
  if (order != 0 || x->size != y->size) return order != 0 ? order : x->size < y->size ? -1 : 1;
  return x->value < y->value ? -1 : x->value > y->value;
}

/* The trie of those that are searched in raw, or in normalised, text; the first of equal ones counts. */
static heed_status build_added_trie(heed_tokenizer *tok, bool normalized, heed__trie *out) {
  const size_t bytes = heed__array_bytes((uint64_t)tok->added_count, sizeof(heed__trie_key));
  size_t used = 0, unique = 0;
  heed__trie_key *keys = heed__allocate(tok->ctx, bytes);
  if (keys == NULL) return heed__fail_memory(tok->ctx, "load", bytes);
  for (int32_t i = 0; i < tok->added_count; i++) {
    const heed__added *a = &tok->added[i];
    if (a->size > 0 && a->normalized == normalized && memchr(a->text, 0, a->size) == NULL)
      keys[used++] = (heed__trie_key){a->text, (uint32_t)a->size, i};
  }
  heed_status status =
      heed__sort_records(tok->ctx, "load", keys, (int64_t)used, sizeof(*keys), compare_added);
  for (size_t i = 0; i < used && status == HEED_OK; i++)
    if (unique == 0 || keys[unique - 1].size != keys[i].size ||
        memcmp(keys[unique - 1].text, keys[i].text, keys[i].size) != 0)
      keys[unique++] = keys[i];
  if (status == HEED_OK && unique > 0) status = heed__trie_build(tok->ctx, "load", keys, unique, out);
  heed__release(tok->ctx, keys);
  return status;
}

/* Marks the added tokens by id. */
static heed_status mark_added(heed_tokenizer *tok) {
  const size_t bytes = (size_t)heed_tokenizer_size(tok) + 1;
  if (tok->is_added == NULL) tok->is_added = heed__allocate(tok->ctx, bytes);
  if (tok->is_added == NULL) return heed__fail_memory(tok->ctx, "load", bytes);
  memset(tok->is_added, 0, bytes);
  for (int32_t i = 0; i < tok->added_count; i++)
    tok->is_added[tok->added[i].id] = tok->added[i].special ? 2 : 1;
  return HEED_OK;
}

heed_status heed__added_prepare(heed_tokenizer *tok) {
  heed__bytes normal = {0}, one = {0};
  heed_status status = mark_added(tok);
  for (int32_t i = 0; i < tok->added_count && status == HEED_OK; i++) {
    heed__added *a = &tok->added[i];
    a->text = heed_tokenizer_token(tok, a->id, &a->size);
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
  for (int32_t i = 0; i < tok->added_count && status == HEED_OK; i++)
    if (tok->added[i].size > tok->added_longest) tok->added_longest = tok->added[i].size;
  heed__release(tok->ctx, one.data);
  tok->added_text = normal.data;
  if (status == HEED_OK && tok->added_count > 0) status = build_added_trie(tok, false, &tok->raw);
  if (status == HEED_OK && tok->added_count > 0) status = build_added_trie(tok, true, &tok->normal);
  return status;
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
  return (begin == 0 || !heed__is_word_character(before)) && (end == size || !heed__is_word_character(after));
}

/* Whether to stop, after more work in bytes: checked once in 2^14 of them. */
static bool is_search_due(const heed_tokenizer *tok, size_t *work, size_t more) {
  *work += more;
  if (*work < 1 << 14) return false;
  *work = 0;
  return heed__is_due(&tok->ctx->pace);
}

/* Extends a token over the spaces beside it. Returns false if it stopped at a cancellation check. */
static bool take_spaces(const heed_tokenizer *tok, const heed__added *a, const char *text, size_t size,
                        size_t least, heed__text_span *span) {
  size_t length, work = 0;
  while (a->lstrip && span->begin > least &&
         heed__is_white(character_beside(text, size, span->begin, true, &length))) {
    span->begin -= length;
    if (is_search_due(tok, &work, length)) return false;
  }
  while (a->rstrip && span->end < size &&
         heed__is_white(character_beside(text, size, span->end, false, &length))) {
    span->end += length;
    if (is_search_due(tok, &work, length)) return false;
  }
  if (span->begin < least) span->begin = least;
  return true;
}

heed_status heed__added_find(const heed_tokenizer *tok, bool normalized, bool special, const char *text,
                             size_t size, size_t *from, size_t least, int32_t *found, heed__text_span *span) {
  const heed__trie *trie = normalized ? &tok->normal : &tok->raw;
  size_t work = 0;
  *found = -1;
  for (size_t at = *from; at < size && trie->count > 0;) {
    int32_t index;
    size_t length = heed__trie_longest(trie, text + at, size - at, &index);
    if (is_search_due(tok, &work, tok->added_longest)) return heed__stopped(tok->ctx, "encode");
    if (length == 0) {
      at++;
      continue;
    }
    const heed__added *a = &tok->added[index];
    *span = (heed__text_span){at, at + length};
    at = span->end;
    if ((a->special && !special) || (a->single_word && !stands_alone(text, size, span->begin, span->end)))
      continue;
    *from = span->end;
    if (!take_spaces(tok, a, text, size, least, span)) return heed__stopped(tok->ctx, "encode");
    *found = index;
    return HEED_OK;
  }
  *from = size;
  return HEED_OK;
}
