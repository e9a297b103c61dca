/* Byte-pair encoding: merges by rank. Short words are merged in place, long ones with a heap; frequent words
 * are looked up in a cache. Source: arXiv:1508.07909. */
#include "text.h"

#include <stdio.h>
#include <string.h>

#define SHORT_WORD   64
#define CACHED_WORDS 8192 /* a power of two; 8192 × 60 bytes */

typedef struct heed__pair_merge merge_entry;

/* ---- The table of merges ---- */

heed_status heed__merges_begin(heed_tokenizer *tok, size_t count) {
  uint64_t slots = 16;
  while (slots < 2 * (uint64_t)count) slots *= 2;
  const size_t bytes = heed__array_bytes(slots, sizeof(*tok->merges));
  uint64_t key[2];
  tok->merges = heed__allocate(tok->ctx, bytes);
  if (tok->merges == NULL) return heed__fail_memory(tok->ctx, "load", bytes);
  tok->merges_mask = (uint32_t)(slots - 1);
  for (uint64_t i = 0; i < slots; i++) tok->merges[i].rank = UINT32_MAX;
  heed__quick_key(tok->merges, key);
  tok->merges_key = key[0] | 1;
  return HEED_OK;
}

static merge_entry *slot_of_pair(const heed_tokenizer *tok, uint64_t pair) {
  uint64_t hash = (pair ^ tok->merges_key) * UINT64_C(0x9e3779b97f4a7c15);
  hash ^= hash >> 32;
  hash *= UINT64_C(0xbf58476d1ce4e5b9);
  uint32_t at = (uint32_t)(hash >> 32) & tok->merges_mask;
  while (tok->merges[at].rank != UINT32_MAX && tok->merges[at].pair != pair) at = (at + 1) & tok->merges_mask;
  return &tok->merges[at];
}

static uint64_t pair_of(int32_t left, int32_t right) {
  return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* NULL: the two are not merged. */
static const merge_entry *find_merge(const heed_tokenizer *tok, int32_t left, int32_t right) {
  if (left < 0 || right < 0) return NULL;
  const merge_entry *m = slot_of_pair(tok, pair_of(left, right));
  return m->rank == UINT32_MAX ? NULL : m;
}

bool heed__merges_add(heed_tokenizer *tok, uint32_t rank, const char *left, size_t left_size,
                      const char *right, size_t right_size) {
  char joined[4096];
  const size_t prefix = tok->prefix != NULL ? strlen(tok->prefix) : 0;
  const int32_t a = heed__vocabulary_find(&tok->vocabulary, left, left_size),
                b = heed__vocabulary_find(&tok->vocabulary, right, right_size);
  if (a < 0 || b < 0 || right_size < prefix || left_size + right_size - prefix > sizeof(joined)) return false;
  memcpy(joined, left, left_size);
  memcpy(joined + left_size, right + prefix, right_size - prefix);
  /* Training gives merged tokens their ids in this order. */
  const int32_t id = heed__vocabulary_find_near(&tok->vocabulary, tok->last_merged + 1, joined,
                                                left_size + right_size - prefix);
  if (id < 0) return false;
  tok->last_merged = id;
  merge_entry *m = slot_of_pair(tok, pair_of(a, b));
  *m = (merge_entry){pair_of(a, b), rank, id}; /* the last of two equal ones counts, as in tokenizers */
  return true;
}

heed_status heed__bpe_prepare(heed_tokenizer *tok) {
  heed__bytes text = {0};
  heed_status status = HEED_OK;
  for (int byte = 0; byte < 256 && status == HEED_OK; byte++) {
    const char c = (char)byte;
    char name[8];
    text.size = 0;
    if (tok->byte_level) {
      status = heed__alphabet_write(tok->ctx, "load", &c, 1, &text);
      tok->initial[byte] =
          status == HEED_OK ? heed__vocabulary_find(&tok->vocabulary, text.data, text.size) : -1;
    } else {
      snprintf(name, sizeof(name), "<0x%02X>", (unsigned)byte);
      tok->initial[byte] = heed__vocabulary_find(&tok->vocabulary, name, 6);
    }
  }
  heed__release(tok->ctx, text.data);
  const size_t bytes = CACHED_WORDS * sizeof(*tok->cache);
  tok->cache = heed__allocate(tok->ctx, bytes);
  if (status == HEED_OK && tok->cache == NULL) status = heed__fail_memory(tok->ctx, "load", bytes);
  if (status == HEED_OK) memset(tok->cache, 0, bytes);
  return status;
}

/* ---- Merging ---- */

/* A word's symbols: ids, -1 where there is none (not merged, and dropped). */

static int64_t merge_short(const heed_tokenizer *tok, int32_t *ids, int64_t count) {
  const merge_entry *merges[SHORT_WORD];
  for (int64_t i = 0; i + 1 < count; i++) merges[i] = find_merge(tok, ids[i], ids[i + 1]);
  while (count > 1) {
    int64_t best = -1;
    uint32_t rank = UINT32_MAX;
    for (int64_t i = 0; i + 1 < count; i++)
      if (merges[i] != NULL && merges[i]->rank < rank) {
        rank = merges[i]->rank;
        best = i;
      }
    if (best < 0) break;
    ids[best] = merges[best]->id;
    count--;
    memmove(ids + best + 1, ids + best + 2, (size_t)(count - best - 1) * sizeof(*ids));
    if (best + 1 < count)
      memmove(merges + best + 1, merges + best + 2, (size_t)(count - best - 2) * sizeof(*merges));
    if (best > 0) merges[best - 1] = find_merge(tok, ids[best - 1], ids[best]);
    if (best + 1 < count) merges[best] = find_merge(tok, ids[best], ids[best + 1]);
  }
  return count;
}

/* A possible merge of the symbol at `at` with its right neighbour. */
typedef struct merge_candidate {
  uint32_t rank;
  int32_t id;
  int64_t at;
} merge_candidate;

static bool is_before(const merge_candidate *a, const merge_candidate *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void sift_merge_down(merge_candidate *heap, int64_t count, int64_t at) {
  const merge_candidate moved = heap[at];
  for (int64_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && is_before(&heap[child + 1], &heap[child])) child++;
    if (!is_before(&heap[child], &moved)) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

static void sift_merge_up(merge_candidate *heap, int64_t at) {
  const merge_candidate moved = heap[at];
  for (; at > 0 && is_before(&moved, &heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
  heap[at] = moved;
}

typedef struct long_word {
  int32_t *ids; /* merged symbols are INT32_MIN */
  int64_t *previous, *next;
  merge_candidate *heap; /* at most one for each pair at the beginning, and two for each merge */
  int64_t heap_count;
} long_word;

static void push_candidate(const heed_tokenizer *tok, long_word *w, int64_t left, int64_t count) {
  if (left < 0 || w->next[left] >= count) return;
  const merge_entry *m = find_merge(tok, w->ids[left], w->ids[w->next[left]]);
  if (m == NULL) return;
  w->heap[w->heap_count] = (merge_candidate){m->rank, m->id, left};
  sift_merge_up(w->heap, w->heap_count++);
}

static heed_status merge_long(heed_tokenizer *tok, const char *function, int32_t *ids, int64_t *count) {
  const int64_t n = *count;
  const size_t bytes = heed__array_bytes((uint64_t)n, 2 * sizeof(int64_t) + 3 * sizeof(merge_candidate));
  char *memory = heed__allocate(tok->ctx, bytes);
  if (memory == NULL) return heed__fail_memory(tok->ctx, function, bytes);
  long_word w = {.ids = ids, .heap = (merge_candidate *)(void *)memory};
  w.previous = (int64_t *)(void *)(w.heap + 3 * n);
  w.next = w.previous + n;
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < n; i++) {
    w.previous[i] = i - 1;
    w.next[i] = i + 1;
  }
  for (int64_t i = 0; i + 1 < n; i++) push_candidate(tok, &w, i, n);
  for (int64_t step = 0; w.heap_count > 0 && status == HEED_OK; step++) {
    const merge_candidate top = w.heap[0];
    w.heap[0] = w.heap[--w.heap_count];
    sift_merge_down(w.heap, w.heap_count, 0);
    if (heed__is_due_at(&tok->ctx->pace, step)) status = heed__stopped(tok->ctx, function);
    const int64_t right = w.next[top.at];
    if (ids[top.at] == INT32_MIN || right >= n) continue;
    const merge_entry *m = find_merge(tok, ids[top.at], ids[right]);
    if (m == NULL || m->id != top.id || m->rank != top.rank) continue; /* a symbol has changed since */
    ids[top.at] = top.id;
    ids[right] = INT32_MIN;
    w.next[top.at] = w.next[right];
    if (w.next[right] < n) w.previous[w.next[right]] = top.at;
    push_candidate(tok, &w, w.previous[top.at], n);
    push_candidate(tok, &w, top.at, n);
  }
  int64_t used = 0;
  for (int64_t i = 0; i < n; i = w.next[i]) ids[used++] = ids[i];
  *count = used;
  heed__release(tok->ctx, memory);
  return status;
}

/* ---- Words ---- */

static heed_status add_symbol(heed_tokenizer *tok, const char *function, int32_t id) {
  return heed__bytes_put(tok->ctx, function, &tok->work, &id, sizeof(id));
}

/* The symbols of a word of characters, in tok->work. */
static heed_status add_characters(heed_tokenizer *tok, const char *function, const char *text, size_t size) {
  char piece[256];
  const size_t prefix = tok->prefix != NULL ? strlen(tok->prefix) : 0,
               suffix = tok->suffix != NULL ? strlen(tok->suffix) : 0;
  bool after_unknown = false;
  heed_status status = HEED_OK;
  int64_t steps = 0;
  for (size_t at = 0, length; at < size && status == HEED_OK; at += length) {
    size_t used = 0;
    length = heed__utf8_length(text[at]);
    if (at > 0 && prefix > 0) memcpy(piece, tok->prefix, used = prefix);
    memcpy(piece + used, text + at, length);
    used += length;
    if (at + length == size && suffix > 0) {
      memcpy(piece + used, tok->suffix, suffix);
      used += suffix;
    }
    const int32_t id = heed__vocabulary_find(&tok->vocabulary, piece, used);
    bool bytes = id < 0 && tok->byte_fallback;
    for (size_t i = 0; i < used && bytes; i++) bytes = tok->initial[(unsigned char)piece[i]] >= 0;
    if (bytes) {
      for (size_t i = 0; i < used && status == HEED_OK; i++)
        status = add_symbol(tok, function, tok->initial[(unsigned char)piece[i]]);
    } else if (id >= 0) {
      status = add_symbol(tok, function, id);
    } else if (tok->unknown >= 0 && !(tok->fuse_unk && after_unknown)) {
      status = add_symbol(tok, function, tok->unknown);
    }
    after_unknown = id < 0 && !bytes;
    if (status == HEED_OK && heed__is_due_at(&tok->ctx->pace, steps++))
      status = heed__stopped(tok->ctx, function);
  }
  return status;
}

static heed_status add_bytes(heed_tokenizer *tok, const char *function, const char *text, size_t size) {
  heed_status status =
      heed__bytes_reserve(tok->ctx, function, &tok->work, heed__array_bytes(size, sizeof(int32_t)));
  int32_t *ids = (int32_t *)(void *)tok->work.data, count = 0;
  for (size_t i = 0; i < size && status == HEED_OK; i++) {
    const int32_t id = tok->initial[(unsigned char)text[i]];
    if (id >= 0 || tok->unknown >= 0) ids[count++] = id >= 0 ? id : tok->unknown;
  }
  tok->work.size = (size_t)count * sizeof(int32_t);
  return status;
}

static heed_status put_ids(heed_tokenizer *tok, const char *function, const int32_t *ids, int64_t count,
                           heed__bytes *out) {
  heed_status status =
      heed__bytes_reserve(tok->ctx, function, out, heed__array_bytes((uint64_t)count, sizeof(int64_t)));
  if (status != HEED_OK) return status;
  int64_t *to = (int64_t *)(void *)(out->data + out->size);
  for (int64_t i = 0; i < count; i++) to[i] = ids[i];
  out->size += (size_t)count * sizeof(*to);
  return HEED_OK;
}

/* The id of the word itself, for ignore_merges; -1 if it is no token. */
static heed_status whole_word(heed_tokenizer *tok, const char *function, const char *text, size_t size,
                              int32_t *id) {
  heed_status status = HEED_OK;
  *id = -1;
  if (!tok->byte_level) {
    *id = heed__vocabulary_find(&tok->vocabulary, text, size);
    return status;
  }
  tok->work.size = 0;
  status = heed__alphabet_write(tok->ctx, function, text, size, &tok->work);
  if (status == HEED_OK) *id = heed__vocabulary_find(&tok->vocabulary, tok->work.data, tok->work.size);
  return status;
}

heed_status heed__bpe_word(heed_tokenizer *tok, const char *function, const char *text, size_t size,
                           heed__bytes *ids) {
  heed__cached *cached = NULL;
  if (size <= HEED__CACHED_BYTES) {
    cached = &tok->cache[heed__quick_hash(tok->vocabulary.key, text, size) >> 51 & (CACHED_WORDS - 1)];
    if (cached->size == size && memcmp(cached->text, text, size) == 0)
      return put_ids(tok, function, cached->ids, cached->count, ids);
  }
  int32_t whole = -1;
  heed_status status = tok->ignore_merges ? whole_word(tok, function, text, size, &whole) : HEED_OK;
  tok->work.size = 0;
  if (status == HEED_OK)
    status = whole >= 0        ? add_symbol(tok, function, whole)
             : tok->byte_level ? add_bytes(tok, function, text, size)
                               : add_characters(tok, function, text, size);
  if (status != HEED_OK) return status;
  int32_t *symbols = (int32_t *)(void *)tok->work.data;
  int64_t count = (int64_t)(tok->work.size / sizeof(*symbols));
  if (count > SHORT_WORD)
    status = merge_long(tok, function, symbols, &count);
  else
    count = merge_short(tok, symbols, count);
  if (status != HEED_OK) return status;
  if (cached != NULL && count <= HEED__CACHED_IDS) {
    cached->size = (uint8_t)size;
    cached->count = (uint8_t)count;
    memcpy(cached->text, text, size);
    if (count > 0) memcpy(cached->ids, symbols, (size_t)count * sizeof(*symbols));
  }
  return put_ids(tok, function, symbols, count, ids);
}
