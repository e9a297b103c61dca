/* The model Unigram of tokenizer.json: pieces with scores. */
#include "text.h"

#include <string.h>

typedef struct unigram_reader {
  heed_tokenizer *tok;
  const char *where;
  const heed__json_file *f;
  const heed__json_node *vocab;
} unigram_reader;

/* ["piece", -3.5] */
static bool read_piece_and_score(const unigram_reader *r, const heed__json_node *node,
                                 const heed__json_node **text, double *score) {
  const heed__json_node *number;
  *text = heed__json_child(r->f, node);
  number = *text == NULL ? NULL : heed__json_at(r->f, (*text)->next);
  if (number == NULL || (*text)->kind != HEED__JSON_STRING || number->kind != HEED__JSON_NUMBER) return false;
  *score = number->u.number;
  return true;
}

static heed_status fail_piece(const unigram_reader *r, int32_t id) {
  return heed__fail(
      r->tok->ctx, HEED_FILE,
      "%s: entry %ld (from 0) of 'vocab' is not a pair of a new piece and its score; it must be", r->where,
      (long)id);
}

/* The vocabulary, with room for the added tokens, and the pieces, whose texts are in it. */
static heed_status read_unigram_pieces(const unigram_reader *r, heed__spm *spm) {
  heed_context *ctx = r->tok->ctx;
  heed__vocabulary *v = &r->tok->vocabulary;
  const size_t bytes = heed__array_bytes(r->vocab->size, sizeof(*spm->pieces));
  spm->pieces = heed__allocate(ctx, bytes);
  if (spm->pieces == NULL) return heed__fail_memory(ctx, "load", bytes);
  for (const heed__json_node *node = heed__json_child(r->f, r->vocab), *text; node != NULL;
       node = heed__json_at(r->f, node->next)) {
    double score;
    size_t size;
    const int32_t id = spm->count;
    if (!read_piece_and_score(r, node, &text, &score) || text->size > UINT32_MAX / 4 ||
        !heed__vocabulary_add(v, id, text->u.text, text->size))
      return fail_piece(r, id);
    const char *own = heed__vocabulary_text(v, id, &size);
    spm->pieces[spm->count++] =
        (heed__piece){.text = own, .size = text->size, .score = score, .type = HEED__PIECE_NORMAL};
    if (heed__is_due_at(&ctx->pace, id)) return heed__stopped(ctx, "load");
  }
  return HEED_OK;
}

heed_status heed__read_unigram(heed_tokenizer *tok, const char *where, const heed__json_file *f,
                               const heed__json_node *model) {
  const heed__json_node *vocab = heed__json_kind_get(f, model, "vocab", HEED__JSON_LIST),
                        *unknown = heed__json_kind_get(f, model, "unk_id", HEED__JSON_NUMBER);
  const unigram_reader r = {tok, where, f, vocab};
  heed__spm *spm = heed__allocate(tok->ctx, sizeof(*spm));
  if (spm == NULL) return heed__fail_memory(tok->ctx, "load", sizeof(*spm));
  *spm = (heed__spm){.ctx = tok->ctx, .kind = HEED__SPM_UNIGRAM, .plain = true, .unknown = -1};
  tok->model = HEED__UNIGRAM;
  tok->unigram = spm;
  if (unknown == NULL || !(unknown->u.number >= 0 && unknown->u.number < vocab->size))
    return heed__fail(tok->ctx, HEED_FILE, "%s: the model Unigram needs an unk_id in the vocabulary", where);
  spm->unknown = tok->unknown = (int32_t)unknown->u.number;
  spm->byte_fallback = heed__json_flag(f, model, "byte_fallback", false);
  const heed_status status = read_unigram_pieces(&r, spm);
  return status == HEED_OK ? heed__spm_prepare(spm, where) : status;
}
