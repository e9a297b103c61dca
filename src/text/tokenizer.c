/* Tokenizers: which file holds one, and the engine that encodes and decodes. */
#include "text.h"

#include <stdio.h>
#include <string.h>

heed_status heed__tokenizer_new(heed_context *ctx, heed_tokenizer **out) {
  heed_tokenizer *tok = heed__allocate(ctx, sizeof(*tok));
  if (tok == NULL) return heed__fail_memory(ctx, "load", sizeof(*tok));
  memset(tok, 0, sizeof(*tok));
  tok->ctx = tok->vocabulary.ctx = ctx;
  tok->unknown = tok->bos = tok->eos = tok->pad = -1;
  *out = tok;
  return HEED_OK;
}

void heed_tokenizer_free(heed_tokenizer *tok) {
  if (tok == NULL) return;
  heed_context *ctx = tok->ctx;
  heed__spm_free(tok->spm);
  heed__spm_free(tok->unigram);
  heed_archive_free(tok->archive);
  heed__release(ctx, tok->chat_template);
  heed__vocabulary_free(&tok->vocabulary);
  heed__steps_free(ctx, &tok->normalizers);
  heed__steps_free(ctx, &tok->splits);
  heed__steps_free(ctx, &tok->decoders);
  heed__release(ctx, tok->added);
  heed__release(ctx, tok->added_text);
  heed__release(ctx, tok->is_added);
  heed__release(ctx, (void *)(uintptr_t)tok->raw.units);
  heed__release(ctx, (void *)(uintptr_t)tok->normal.units);
  heed__release(ctx, tok->prefix);
  heed__release(ctx, tok->suffix);
  heed__release(ctx, tok->merges);
  heed__release(ctx, tok->cache);
  heed__release(ctx, tok->ids.data);
  heed__release(ctx, tok->text.data);
  heed__release(ctx, tok->other.data);
  heed__release(ctx, tok->work.data);
  heed__release(ctx, tok->words.data);
  heed__release(ctx, tok->words_other.data);
  heed__release(ctx, tok);
}

/* ---- Loading ---- */

static bool path_ends_with(const char *path, const char *end) {
  const size_t size = strlen(path), end_size = strlen(end);
  return size >= end_size && strcmp(path + size - end_size, end) == 0;
}

/* The files of a folder that hold tokenizers; the first one there counts. */
static const char *const tokenizer_files[] = {"tokenizer.json",          "vocab.json",
                                              "tokenizer.model",         "spiece.model",
                                              "sentencepiece.bpe.model", "vocab.txt"};

static heed_status find_tokenizer(heed_context *ctx, const char *where, const char *path,
                                  char out[HEED__PATH]) {
  const heed__path_kind kind = heed__path_kind_of(path);
  const size_t size = strlen(path);
  if (size + 40 > HEED__PATH) return heed__fail(ctx, HEED_FILE, "%s: the path is too long", where);
  memcpy(out, path, size + 1);
  if (kind != HEED__DIRECTORY) return HEED_OK;
  const bool separated = heed__folder_length(path) == size;
  for (size_t i = 0; i < sizeof(tokenizer_files) / sizeof(*tokenizer_files); i++) {
    snprintf(out + size, HEED__PATH - size, "%s%s", separated ? "" : "/", tokenizer_files[i]);
    if (heed__path_kind_of(out) == HEED__REGULAR) return HEED_OK;
  }
  return heed__fail(ctx, HEED_FILE,
                    "%s: the folder has no tokenizer.json, vocab.json, tokenizer.model, spiece.model, "
                    "sentencepiece.bpe.model or vocab.txt",
                    where);
}

static heed_status read_tokenizer(heed_tokenizer *tok, const char *where, char path[HEED__PATH]) {
  const size_t folder = heed__folder_length(path);
  if (path_ends_with(path, "vocab.json")) {
    char merges[HEED__PATH + 16];
    memcpy(merges, path, folder);
    memcpy(merges + folder, "merges.txt", 11);
    return heed__tokenizer_read_pairs(tok, where, path, merges);
  }
  if (path_ends_with(path, ".json")) return heed__tokenizer_read_json(tok, where, path);
  if (path_ends_with(path, ".model")) return heed__spm_load(tok->ctx, path, &tok->spm);
  if (path_ends_with(path, ".txt")) return heed__tokenizer_read_lines(tok, where, path);
  const char *format = heed__path_format(tok->ctx, path);
  if (format != NULL && strcmp(format, ".gguf") == 0) return heed__tokenizer_read_gguf(tok, where, path);
  return heed__fail(tok->ctx, HEED_FILE,
                    "%s: it must be a folder, tokenizer.json, vocab.json, a .model, a .gguf or vocab.txt",
                    where);
}

/* The template of a .model file: that of the models that use them. */
static void describe_spm(heed_tokenizer *tok) {
  const heed__spm *spm = tok->spm;
  tok->bos = spm->bos;
  tok->eos = spm->eos;
  tok->pad = spm->pad;
  tok->unknown = spm->unknown;
  if (spm->bos >= 0 && spm->kind == HEED__SPM_BPE) tok->before[tok->before_count++] = spm->bos;
  if (spm->eos >= 0 && spm->kind == HEED__SPM_UNIGRAM) tok->after[tok->after_count++] = spm->eos;
}

/* The control and unknown pieces are special tokens. */
static heed_status add_control_pieces(heed_tokenizer *tok) {
  const heed__spm *spm = tok->spm;
  size_t count = 0;
  for (int32_t id = 0; id < spm->count; id++)
    count += spm->pieces[id].type == HEED__PIECE_CONTROL || id == spm->unknown;
  const size_t bytes = heed__array_bytes(count, sizeof(*tok->added));
  tok->added = heed__allocate(tok->ctx, bytes);
  if (tok->added == NULL) return heed__fail_memory(tok->ctx, "load", bytes);
  for (int32_t id = 0; id < spm->count; id++)
    if (spm->pieces[id].type == HEED__PIECE_CONTROL || id == spm->unknown)
      tok->added[tok->added_count++] = (heed__added){.id = id, .special = true};
  return HEED_OK;
}

heed_status heed_tokenizer_load(heed_context *ctx, const char *path, heed_tokenizer **out) {
  HEED__ENTER(ctx, "load", path, out);
  char where[512], found[HEED__PATH];
  const size_t size = strlen(path);
  heed_tokenizer *tok = NULL;
  snprintf(where, sizeof(where), "load: '%s%.200s'", size > 200 ? "..." : "",
           size > 200 ? path + size - 200 : path);
  if (*out != NULL)
    return heed__fail(ctx, HEED_ARGUMENT, "load: *out already holds a result; it must be NULL");
#if !HEED_UTF8PROC
  return heed__fail(
      ctx, HEED_FILE,
      "%s: this build of heed has no Unicode tables; compile with -DHEED_UTF8PROC=1 and link utf8proc",
      where);
#endif
  heed_status status = heed__check_files(ctx, where);
  if (status == HEED_OK && heed__path_kind_of(path) == HEED__NOTHING)
    status = heed__fail(ctx, HEED_FILE, "%s: no such file or folder", where);
  if (status == HEED_OK) status = find_tokenizer(ctx, where, path, found);
  if (status == HEED_OK) status = heed__tokenizer_new(ctx, &tok);
  if (status == HEED_OK) status = read_tokenizer(tok, where, found);
  if (status == HEED_OK && tok->spm != NULL && tok->archive == NULL) describe_spm(tok);
  if (status == HEED_OK && tok->spm != NULL) status = add_control_pieces(tok);
  if (status == HEED_OK) status = heed__added_prepare(tok);
  if (status == HEED_OK)
    *out = tok;
  else
    heed_tokenizer_free(tok);
  return status;
}

/* ---- Encoding ---- */

static const char encode_name[] = "encode";

static heed_status put_added(heed_tokenizer *tok, int64_t id) {
  return heed__bytes_put(tok->ctx, encode_name, &tok->ids, &id, sizeof(id));
}

static heed_status encode_word(heed_tokenizer *tok, const char *text, size_t size) {
  heed_status status = HEED_OK;
  switch (tok->model) {
  case HEED__BPE: return heed__bpe_word(tok, encode_name, text, size, &tok->ids);
  case HEED__WORDPIECE: return heed__wordpiece_word(tok, encode_name, text, size, &tok->ids);
  case HEED__WORDLEVEL: {
    const int32_t id = heed__vocabulary_find(&tok->vocabulary, text, size);
    return id < 0 && tok->unknown < 0 ? HEED_OK : put_added(tok, id < 0 ? tok->unknown : id);
  }
  case HEED__UNIGRAM:
    tok->work.size = 0;
    status = heed__unigram_segment(tok->unigram, encode_name, text, size, &tok->work);
    for (size_t i = 0; i < tok->work.size / sizeof(int32_t) && status == HEED_OK; i++)
      status = put_added(tok, ((const int32_t *)(const void *)tok->work.data)[i]);
  }
  return status;
}

/* Encodes tok->text, which is normalised and without added tokens. */
static heed_status encode_words(heed_tokenizer *tok, heed__bytes *text, bool at_start) {
  heed_status status = heed__split_words(tok, encode_name, text, at_start);
  const size_t count = tok->words.size / sizeof(heed__text_span);
  for (size_t i = 0; i < count && status == HEED_OK; i++) {
    const heed__text_span word = ((const heed__text_span *)(const void *)tok->words.data)[i];
    const char *p = text->data + word.begin;
    if ((i & 0x3ff) == 0x3ff && heed__is_due(&tok->ctx->pace)) return heed__stopped(tok->ctx, encode_name);
    status = encode_word(tok, p, word.end - word.begin);
  }
  return status;
}

/* Encodes a text by a SentencePiece model. */
static heed_status encode_pieces(heed_tokenizer *tok, const char *text, size_t size) {
  tok->work.size = 0;
  heed_status status = heed__spm_encode(tok->spm, encode_name, text, size, &tok->work);
  for (size_t i = 0; i < tok->work.size / sizeof(int32_t) && status == HEED_OK; i++)
    status = put_added(tok, ((const int32_t *)(const void *)tok->work.data)[i]);
  return status;
}

/* Normalises a part without raw added tokens, and searches it for the normalised ones. */
static heed_status encode_part(heed_tokenizer *tok, const char *part, size_t size, bool at_start,
                               bool special) {
  heed__bytes *text = &tok->text;
  heed_status status;
  if (size == 0) return HEED_OK;
  if (tok->spm != NULL) return encode_pieces(tok, part, size);
  text->size = 0;
  status = heed__bytes_put(tok->ctx, encode_name, text, part, size);
  if (status == HEED_OK) status = heed__normalize(tok, encode_name, text);
  if (status != HEED_OK) return status;
  if (tok->normal.count == 0) return encode_words(tok, text, at_start);
  heed__bytes whole = *text; /* encode_words may change its text */
  *text = (heed__bytes){0};
  size_t at = 0, from = 0;
  while (at < whole.size && status == HEED_OK) {
    int32_t found;
    heed__text_span span;
    status = heed__added_find(tok, true, special, whole.data, whole.size, &from, at, &found, &span);
    if (status != HEED_OK) break;
    if (found < 0) span = (heed__text_span){whole.size, whole.size};
    text->size = 0;
    status = heed__bytes_put(tok->ctx, encode_name, text, whole.data + at, span.begin - at);
    if (status == HEED_OK && text->size > 0) status = encode_words(tok, text, at_start && at == 0);
    if (status == HEED_OK && found >= 0) status = put_added(tok, tok->added[found].id);
    at = span.end;
    if (from < at) from = at;
  }
  heed__release(tok->ctx, text->data);
  *text = whole;
  return status;
}

static heed_status encode_text(heed_tokenizer *tok, const char *text, size_t size, bool special) {
  size_t at = 0, from = 0;
  heed_status status = HEED_OK;
  while (at < size && status == HEED_OK) {
    int32_t found;
    heed__text_span span;
    status = heed__added_find(tok, false, special, text, size, &from, at, &found, &span);
    if (status != HEED_OK) return status;
    if (found < 0) span = (heed__text_span){size, size};
    status = encode_part(tok, text + at, span.begin - at, at == 0, special);
    if (status == HEED_OK && found >= 0) status = put_added(tok, tok->added[found].id);
    at = span.end;
    if (from < at) from = at;
  }
  return status;
}

heed_status heed_tokenizer_encode(heed_tokenizer *tok, const char *text, size_t bytes, unsigned flags,
                                  const int64_t **ids, int64_t *count) {
  heed_context *ctx = tok != NULL ? tok->ctx : NULL;
  HEED__ENTER(ctx, encode_name, text, ids, count);
  size_t wrong;
  heed_status status = heed__text_check_in_steps(ctx, encode_name, text, bytes, &wrong);
  if (status == HEED_OK && wrong > 0)
    status = heed__fail(ctx, HEED_ARGUMENT, "encode: text is not valid UTF-8 at byte %llu",
                        (unsigned long long)wrong);
  tok->calls++;
  tok->ids.size = 0;
  for (int i = 0; i < tok->before_count && (flags & HEED_ADD_SPECIAL_TOKENS) && status == HEED_OK; i++)
    status = put_added(tok, tok->before[i]);
  if (status == HEED_OK) status = encode_text(tok, text, bytes, (flags & HEED_ALLOW_SPECIAL) != 0);
  for (int i = 0; i < tok->after_count && (flags & HEED_ADD_SPECIAL_TOKENS) && status == HEED_OK; i++)
    status = put_added(tok, tok->after[i]);
  if (status != HEED_OK) return status;
  *ids = (const int64_t *)(const void *)tok->ids.data;
  *count = (int64_t)(tok->ids.size / sizeof(int64_t));
  return HEED_OK;
}

/* ---- Decoding ---- */

/* Decodes by a SentencePiece model, for which control pieces have no text. Without `skip` they are written as
 * they are, and what follows one is decoded like a text of its own. */
static heed_status decode_pieces(heed_tokenizer *tok, const int64_t *ids, int64_t count, bool skip,
                                 heed__bytes *out) {
  const heed__spm *spm = tok->spm;
  heed_status status = HEED_OK;
  if (skip) return heed__spm_decode(spm, "decode", ids, count, out);
  for (int64_t i = 0, first = 0; i <= count && status == HEED_OK; i++) {
    const bool inside = i < count && ids[i] >= 0 && ids[i] < spm->count;
    const heed__piece *piece = inside ? &spm->pieces[ids[i]] : NULL;
    if (i < count && (piece == NULL || piece->type != HEED__PIECE_CONTROL)) continue;
    status = heed__spm_decode(spm, "decode", ids + first, i - first, out);
    if (status == HEED_OK && piece != NULL)
      status = heed__bytes_put(tok->ctx, "decode", out, piece->text, piece->size);
    first = i + 1;
  }
  return status;
}

heed_status heed_tokenizer_decode(heed_tokenizer *tok, const int64_t *ids, int64_t count, unsigned flags,
                                  const char **text, size_t *bytes) {
  heed_context *ctx = tok != NULL ? tok->ctx : NULL;
  HEED__ENTER(ctx, "decode", text, bytes);
  if (count < 0 || (count > 0 && ids == NULL))
    return heed__fail(ctx, HEED_ARGUMENT, "decode: ids must be a list of %lld ids", (long long)count);
  const heed_status charged = heed__charge(ctx, "decode", (double)count);
  if (charged != HEED_OK) return charged;
  heed__bytes *out = &tok->text;
  tok->calls++;
  out->size = 0;
  const bool skip = (flags & HEED_SKIP_SPECIAL_TOKENS) != 0;
  heed_status status = tok->spm != NULL ? decode_pieces(tok, ids, count, skip, out)
                                        : heed__decode(tok, "decode", ids, count, skip, out);
  if (status == HEED_OK) status = heed__bytes_put(ctx, "decode", out, "", 1);
  if (status != HEED_OK) return status;
  *text = out->data;
  *bytes = out->size - 1;
  return HEED_OK;
}

/* ---- The vocabulary ---- */

int64_t heed_tokenizer_size(const heed_tokenizer *tok) {
  return tok == NULL ? 0 : tok->spm != NULL ? tok->spm->count : tok->vocabulary.count;
}

const char *heed_tokenizer_token(const heed_tokenizer *tok, int64_t id, size_t *bytes) {
  if (tok == NULL || bytes == NULL || id < 0 || id >= heed_tokenizer_size(tok)) return NULL;
  if (tok->spm == NULL) return heed__vocabulary_text(&tok->vocabulary, id, bytes);
  *bytes = tok->spm->pieces[id].size;
  return tok->spm->pieces[id].text;
}

int64_t heed_tokenizer_id(const heed_tokenizer *tok, const char *token, size_t bytes) {
  if (tok == NULL || token == NULL) return -1;
  if (tok->spm == NULL) return heed__vocabulary_find(&tok->vocabulary, token, bytes);
  const int32_t id = heed__spm_id(tok->spm, token, bytes);
  if (id >= 0 && tok->spm->pieces[id].size == bytes && memcmp(tok->spm->pieces[id].text, token, bytes) == 0)
    return id;
  return -1;
}
