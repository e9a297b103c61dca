/* The most probable segmentation of a text by a unigram model: for each end of a piece, the best way there.
 */
#include <string.h>

#include "sentencepiece.h"

#define UNKNOWN_PENALTY 10.0

typedef struct best_path { /* the best segmentation of the text before a position */
  int32_t id;              /* of its last piece */
  double score;
  int64_t start; /* of its last piece; -1: no piece ends here */
} best_path;

static inline void improve_path(best_path *path, int32_t id, double score, int64_t start) {
  if (path->start >= 0 && !(score > path->score)) return;
  *path = (best_path){id, score, start};
}

/* The sum of two scores: in single precision for models of SentencePiece, so that ties fall as there. */
static inline double add_scores(const heed__spm *spm, double a, double b) {
  return spm->plain ? a + b : (double)((float)a + (float)b);
}

static void try_pieces(const heed__spm *spm, best_path *paths, const char *text, size_t at, size_t size,
                       size_t character) {
  const double before = paths[at].score;
  bool has_character = false;
  size_t node = 0;
  for (size_t end = at; end < size && heed__trie_step(&spm->trie, &node, (unsigned char)text[end]);) {
    const int32_t id = heed__trie_value(&spm->trie, node);
    end++;
    if (id < 0 || spm->pieces[id].type == HEED__PIECE_UNUSED) continue;
    /* User-defined symbols win against all divisions of their text. SentencePiece 0.2.3 gives them this
     * score, nearly 0 with its max_score; 0.2.1 subtracted 0.1. */
    const double own = spm->pieces[id].type == HEED__PIECE_USER
                           ? (double)((float)(end - at) * (float)spm->max_score)
                           : spm->pieces[id].score;
    const double score = add_scores(spm, own, before);
    improve_path(&paths[end], id, score, (int64_t)at);
    if (end - at == character) has_character = true;
  }
  const double unknown = add_scores(spm, spm->min_score, -UNKNOWN_PENALTY);
  if (!has_character)
    improve_path(&paths[at + character], spm->unknown, add_scores(spm, unknown, before), (int64_t)at);
}

heed_status heed__unigram_segment(const heed__spm *spm, const char *function, const char *text, size_t size,
                                  heed__bytes *ids) {
  heed_context *ctx = spm->ctx;
  const size_t bytes = heed__array_bytes((uint64_t)size + 1, sizeof(best_path));
  best_path *paths = heed__allocate(ctx, bytes);
  heed_status status = HEED_OK;
  if (paths == NULL) return heed__fail_memory(ctx, function, bytes);
  for (size_t i = 0; i <= size; i++) paths[i] = (best_path){-1, 0, -1};
  int64_t steps = 0;
  for (size_t at = 0, length; at < size && status == HEED_OK; at += length) {
    length = heed__utf8_length(text[at]);
    if (length > size - at) length = size - at;
    try_pieces(spm, paths, text, at, size, length);
    if (heed__is_due_at(&ctx->pace, steps++)) status = heed__stopped(ctx, function);
  }
  /* Turns the chain around: from then on, `start` is the end of the next piece. */
  int64_t next = (int64_t)size;
  for (int64_t end = (int64_t)size, start; end > 0 && status == HEED_OK; end = start) {
    start = paths[end].start;
    paths[end].start = next;
    next = end;
    if (heed__is_due_at(&ctx->pace, steps++)) status = heed__stopped(ctx, function);
  }
  bool after_unknown = false;
  for (int64_t start = 0, end = next; start < (int64_t)size && status == HEED_OK;) {
    status = heed__spm_emit(spm, function, paths[end].id, text + start, (size_t)(end - start), &after_unknown,
                            ids);
    start = end;
    end = paths[end].start;
    if (heed__is_due_at(&ctx->pace, steps++) && status == HEED_OK) status = heed__stopped(ctx, function);
  }
  heed__release(ctx, paths);
  return status;
}
