/* SentencePiece's byte-pair encoding: of all adjacent symbols whose joined text is a piece, the pair with the
 * highest score is merged first, the leftmost of equals. */
#include <string.h>

#include "sentencepiece.h"

typedef struct merge_symbol {
  int64_t previous, next; /* -1: none */
  const char *text;
  size_t size; /* 0: merged into the symbol before it */
  bool frozen; /* user-defined: never merged */
} merge_symbol;

typedef struct symbol_pair {
  double score;
  int64_t left, right;
  size_t size; /* of both; differs from the symbols' if they were merged since */
} symbol_pair;

typedef struct merger {
  const heed__spm *spm;
  const char *function;
  merge_symbol *symbols;
  heed__bytes heap;  /* of symbol_pair, the best first */
  uint32_t *divided; /* unused pieces by id: bytes of the left one of the pair they came from; or NULL */
} merger;

static bool is_better_pair(const symbol_pair *a, const symbol_pair *b) {
  return a->score > b->score || (a->score == b->score && a->left < b->left);
}

static heed_status push_pair(merger *m, symbol_pair pair) {
  heed_status status = heed__bytes_reserve(m->spm->ctx, m->function, &m->heap, sizeof(pair));
  if (status != HEED_OK) return status;
  symbol_pair *heap = (symbol_pair *)(void *)m->heap.data;
  size_t at = m->heap.size / sizeof(pair);
  for (size_t parent; at > 0 && is_better_pair(&pair, &heap[parent = (at - 1) / 2]); at = parent)
    heap[at] = heap[parent];
  heap[at] = pair;
  m->heap.size += sizeof(pair);
  return HEED_OK;
}

static symbol_pair pop_pair(merger *m) {
  symbol_pair *heap = (symbol_pair *)(void *)m->heap.data;
  const symbol_pair best = heap[0];
  const size_t count = m->heap.size / sizeof(best) - 1;
  const symbol_pair moved = heap[count];
  size_t at = 0;
  for (size_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && is_better_pair(&heap[child + 1], &heap[child])) child++;
    if (!is_better_pair(&heap[child], &moved)) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
  m->heap.size = count * sizeof(best);
  return best;
}

static heed_status add_pair(merger *m, int64_t left, int64_t right) {
  if (left < 0 || right < 0 || m->symbols[left].frozen || m->symbols[right].frozen) return HEED_OK;
  const size_t size = m->symbols[left].size + m->symbols[right].size;
  const int32_t id = heed__spm_find(m->spm, m->symbols[left].text, size);
  if (id < 0) return HEED_OK;
  if (m->divided != NULL && m->spm->pieces[id].type == HEED__PIECE_UNUSED)
    m->divided[id] = (uint32_t)m->symbols[left].size;
  return push_pair(m, (symbol_pair){m->spm->pieces[id].score, left, right, size});
}

/* Emits a symbol. An unused piece is divided again as it was merged; the texts still to be emitted lie one
 * after the other, so the rest of the symbol and the ends of its parts suffice. */
static heed_status emit_symbol(merger *m, const char *text, size_t size, bool *after_unknown,
                               heed__bytes *ids) {
  heed_context *ctx = m->spm->ctx;
  heed__bytes ends = {0}; /* of size_t: bytes of the parts that wait, the next one last */
  heed_status status = HEED_OK;
  for (bool more = true; more && status == HEED_OK;) {
    const int32_t id = heed__spm_id(m->spm, text, size);
    uint32_t left = 0;
    if (m->divided != NULL && id >= 0 && m->spm->pieces[id].type == HEED__PIECE_UNUSED) left = m->divided[id];
    if (left > 0) {
      const size_t right = size - left;
      status = heed__bytes_reserve(ctx, m->function, &ends, sizeof(right));
      if (status != HEED_OK) break;
      memcpy(ends.data + ends.size, &right, sizeof(right));
      ends.size += sizeof(right);
      size = left;
      continue;
    }
    status = heed__spm_emit(m->spm, m->function, id, text, size, after_unknown, ids);
    more = ends.size > 0;
    if (!more) break;
    text += size;
    ends.size -= sizeof(size);
    memcpy(&size, ends.data + ends.size, sizeof(size));
  }
  heed__release(ctx, ends.data);
  return status;
}

static int64_t split_characters(merger *m, const char *text, size_t size) {
  int64_t count = 0;
  for (size_t at = 0, length; at < size; at += length, count++) {
    int32_t ignored;
    length = heed__trie_longest(&m->spm->symbols, text + at, size - at, &ignored);
    const bool frozen = length > 0;
    if (!frozen) length = heed__utf8_length(text[at]);
    if (length > size - at) length = size - at;
    m->symbols[count] =
        (merge_symbol){count - 1, at + length < size ? count + 1 : -1, text + at, length, frozen};
  }
  return count;
}

heed_status heed__merges_segment(const heed__spm *spm, const char *function, const char *text, size_t size,
                                 heed__bytes *ids) {
  heed_context *ctx = spm->ctx;
  merger m = {.spm = spm, .function = function};
  heed_status status = HEED_OK;
  bool after_unknown = false;
  int64_t steps = 0;
  size_t bytes = heed__array_bytes(size, sizeof(merge_symbol));
  if (size == 0) return HEED_OK;
  m.symbols = heed__allocate(ctx, bytes);
  if (m.symbols == NULL) return heed__fail_memory(ctx, function, bytes);
  if (spm->any_unused) {
    bytes = heed__array_bytes((uint64_t)spm->count, sizeof(uint32_t));
    m.divided = heed__allocate(ctx, bytes);
    if (m.divided == NULL) {
      status = heed__fail_memory(ctx, function, bytes);
      goto done;
    }
    memset(m.divided, 0, bytes);
  }
  const int64_t count = split_characters(&m, text, size);
  for (int64_t i = 1; i < count && status == HEED_OK; i++) {
    status = add_pair(&m, i - 1, i);
    if (status == HEED_OK && heed__is_due_at(&ctx->pace, steps++)) status = heed__stopped(ctx, function);
  }
  while (m.heap.size > 0 && status == HEED_OK) {
    const symbol_pair best = pop_pair(&m);
    merge_symbol *left = &m.symbols[best.left], *right = &m.symbols[best.right];
    if (heed__is_due_at(&ctx->pace, steps++)) status = heed__stopped(ctx, function);
    if (left->size == 0 || right->size == 0 || left->size + right->size != best.size) continue;
    left->size = best.size;
    right->size = 0;
    left->next = right->next;
    if (left->next >= 0) m.symbols[left->next].previous = best.left;
    if (status == HEED_OK) status = add_pair(&m, left->previous, best.left);
    if (status == HEED_OK) status = add_pair(&m, best.left, left->next);
  }
  for (int64_t i = 0; i >= 0 && status == HEED_OK; i = m.symbols[i].next) {
    status = emit_symbol(&m, m.symbols[i].text, m.symbols[i].size, &after_unknown, ids);
    if (status == HEED_OK && heed__is_due_at(&ctx->pace, steps++)) status = heed__stopped(ctx, function);
  }
done:
  heed__release(ctx, m.heap.data);
  heed__release(ctx, m.divided);
  heed__release(ctx, m.symbols);
  return status;
}
