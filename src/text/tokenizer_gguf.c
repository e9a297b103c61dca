/* Tokenizers in the metadata of GGUF files. Source: docs/gguf.md of ggml, "Tokenizer". */
#include "text.h"

#include <string.h>

typedef struct gguf_tokens {
  heed_tokenizer *tok;
  heed_context *ctx;
  const char *where;
  const heed_archive *archive;
  heed_gguf_value tokens, types, scores; /* arrays; types and scores may be missing: count 0 */
} gguf_tokens;

#define KEY(name) "tokenizer.ggml." name

static bool is_text(const gguf_tokens *g, const char *key, const char *text) {
  heed_gguf_value value;
  return heed_gguf_find(g->archive, key, &value) && value.type == HEED_GGUF_STRING &&
         value.count == (int64_t)strlen(text) && memcmp(value.data, text, strlen(text)) == 0;
}

static bool flag_of(const gguf_tokens *g, const char *key, bool otherwise) {
  heed_gguf_value value;
  bool flag;
  return heed_gguf_find(g->archive, key, &value) && heed_gguf_boolean(&value, &flag) ? flag : otherwise;
}

/* An id that is in the vocabulary, -1 if there is none. */
static int32_t id_of_key(const gguf_tokens *g, const char *key) {
  heed_gguf_value value;
  int64_t id;
  const bool found = heed_gguf_find(g->archive, key, &value) && heed_gguf_integer(&value, &id);
  return found && id >= 0 && id < g->tokens.count ? (int32_t)id : -1;
}

/* An array; missing ones have no elements. Errors: FILE (another length than that of the tokens). */
static heed_status take_gguf_array(const gguf_tokens *g, const char *key, heed_gguf_type item,
                                   heed_gguf_value *out) {
  heed_gguf_value value;
  *out = (heed_gguf_value){0};
  if (!heed_gguf_find(g->archive, key, &value)) return HEED_OK;
  if (value.type != HEED_GGUF_ARRAY || value.item != item || value.count != g->tokens.count)
    return heed__fail(g->ctx, HEED_FILE,
                      "%s: %s does not fit %s; it must be an array of %lld elements of the right type",
                      g->where, key, KEY("tokens"), (long long)g->tokens.count);
  *out = value;
  return HEED_OK;
}

/* The type of the next token: normal where the file has none. */
static int64_t next_type(heed_gguf_value *types) {
  heed_gguf_value item;
  int64_t type = HEED__PIECE_NORMAL;
  if (heed_gguf_next(types, &item)) heed_gguf_integer(&item, &type);
  return type >= HEED__PIECE_NORMAL && type <= HEED__PIECE_BYTE ? type : HEED__PIECE_NORMAL;
}

static heed_status check_token(const gguf_tokens *g, int32_t id, const char *text, size_t size) {
  if (size <= UINT32_MAX / 4 && heed__text_check(text, size) == 0) return HEED_OK;
  return heed__fail(g->ctx, HEED_FILE, "%s: token %ld (from 0) is not UTF-8, or too long", g->where,
                    (long)id);
}

/* ---- Byte-level BPE and WordPiece ---- */

/* Adds the tokens; WordPiece's are written anew: those within words have no U+2581 in GGUF. */
static heed_status add_tokens(const gguf_tokens *g, bool wordpiece) {
  heed__vocabulary *v = &g->tok->vocabulary;
  heed_gguf_value rest = g->tokens, types = g->types, item;
  heed__bytes piece = {0};
  size_t bytes = 0;
  while (heed_gguf_next(&rest, &item)) bytes += (size_t)item.count + 2;
  heed_status status = heed__vocabulary_begin(v, g->ctx, (int32_t)g->tokens.count, bytes);
  rest = g->tokens;
  for (int32_t id = 0; status == HEED_OK && heed_gguf_next(&rest, &item); id++) {
    const char *text = item.data;
    size_t size = (size_t)item.count;
    status = check_token(g, id, text, size);
    if (status != HEED_OK) break;
    const bool plain = !wordpiece || next_type(&types) != HEED__PIECE_NORMAL;
    if (!plain && size >= 3 && memcmp(text, "\xe2\x96\x81", 3) == 0) {
      text += 3;
      size -= 3;
    } else if (!plain) {
      piece.size = 0;
      status = heed__bytes_put(g->ctx, "load", &piece, "##", 2);
      if (status == HEED_OK) status = heed__bytes_put(g->ctx, "load", &piece, text, size);
      text = piece.data;
      size = piece.size;
    }
    if (status == HEED_OK && !heed__vocabulary_add(v, id, text, size))
      status = heed__fail(g->ctx, HEED_FILE, "%s: token %ld (from 0) is the same as one before it: '%.*s'",
                          g->where, (long)id, (int)(size < 80 ? size : 80), text);
    if (status == HEED_OK && heed__is_due_at(&g->ctx->pace, id)) status = heed__stopped(g->ctx, "load");
  }
  heed__release(g->ctx, piece.data);
  return status;
}

/* Control and unknown tokens are special; user-defined ones are found in the text as well. */
static heed_status add_added(const gguf_tokens *g, bool user_defined) {
  heed_tokenizer *tok = g->tok;
  heed_gguf_value types = g->types;
  size_t count = 0;
  for (int64_t i = 0; i < g->types.count; i++) count += next_type(&types) != HEED__PIECE_NORMAL;
  const size_t bytes = heed__array_bytes(count, sizeof(*tok->added));
  if (count == 0) return HEED_OK;
  tok->added = heed__allocate(g->ctx, bytes);
  if (tok->added == NULL) return heed__fail_memory(g->ctx, "load", bytes);
  types = g->types;
  for (int64_t i = 0; i < g->types.count; i++) {
    const int64_t type = next_type(&types);
    const bool special = type == HEED__PIECE_CONTROL || type == HEED__PIECE_UNKNOWN;
    if (special || (user_defined && type == HEED__PIECE_USER))
      tok->added[tok->added_count++] = (heed__added){.id = (int32_t)i, .special = special};
  }
  return HEED_OK;
}

static heed_status read_gguf_merges(const gguf_tokens *g) {
  heed_gguf_value merges, item;
  if (!heed_gguf_find(g->archive, KEY("merges"), &merges) || merges.type != HEED_GGUF_ARRAY ||
      merges.item != HEED_GGUF_STRING)
    return heed__fail(g->ctx, HEED_FILE, "%s: %s is missing, or no array of strings", g->where,
                      KEY("merges"));
  heed_status status = heed__merges_begin(g->tok, (size_t)merges.count);
  for (uint32_t rank = 0; status == HEED_OK && heed_gguf_next(&merges, &item); rank++) {
    const size_t size = (size_t)item.count;
    const char *text = item.data, *space = size > 1 ? memchr(text + 1, ' ', size - 1) : NULL;
    const size_t left = space != NULL ? (size_t)(space - text) : 0;
    if (space == NULL || !heed__merges_add(g->tok, rank, text, left, space + 1, size - left - 1))
      status = heed__fail(g->ctx, HEED_FILE,
                          "%s: merge %lu is not two tokens of the vocabulary whose union is a token, too",
                          g->where, (unsigned long)rank + 1);
    else if (heed__is_due_at(&g->ctx->pace, rank))
      status = heed__stopped(g->ctx, "load");
  }
  return status;
}

static heed_status read_gguf_bytes(const gguf_tokens *g) {
  heed_tokenizer *tok = g->tok;
  heed_gguf_value pre;
  const bool named = heed_gguf_find(g->archive, KEY("pre"), &pre) && pre.type == HEED_GGUF_STRING;
  const char *name = named ? pre.data : "default";
  const size_t size = named ? (size_t)pre.count : 7;
  bool known;
  tok->byte_level = true;
  tok->unknown = -1; /* bytes that are no tokens are left out, as in tokenizers and llama.cpp */
  heed_status status = heed__add_named_splits(tok, g->where, name, size, &known);
  if (status == HEED_OK && !known)
    status = heed__fail(g->ctx, HEED_FILE, "%s: the splitting rule '%.*s' (%s) is not supported", g->where,
                        (int)(size < 80 ? size : 80), name, KEY("pre"));
  heed__step *step = heed__step_add(&tok->splits, HEED__SPLIT_BYTES);
  step->left = flag_of(g, KEY("add_space_prefix"), false);
  heed__step_add(&tok->decoders, HEED__DECODE_BYTES);
  if (status == HEED_OK) status = add_tokens(g, false);
  if (status == HEED_OK) status = add_added(g, true);
  if (status == HEED_OK) status = read_gguf_merges(g);
  return status == HEED_OK ? heed__bpe_prepare(tok) : status;
}

static heed_status read_gguf_bert(const gguf_tokens *g) {
  const heed__bert_rules uncased = {.lower = true, .strip_accents = true, .chinese = true};
  const heed_status status = add_tokens(g, true);
  return status == HEED_OK ? heed__tokenizer_set_bert(g->tok, g->where, uncased) : status;
}

/* ---- SentencePiece ---- */

static heed_status read_pieces(const gguf_tokens *g, heed__spm *spm) {
  const size_t bytes = heed__array_bytes((uint64_t)g->tokens.count, sizeof(heed__piece));
  heed_gguf_value rest = g->tokens, types = g->types, scores = g->scores, item;
  heed_status status = HEED_OK;
  spm->pieces = heed__allocate(g->ctx, bytes);
  if (spm->pieces == NULL) return heed__fail_memory(g->ctx, "load", bytes);
  while (status == HEED_OK && heed_gguf_next(&rest, &item)) {
    heed__piece *piece = &spm->pieces[spm->count];
    heed_gguf_value score;
    double number = 0;
    status = check_token(g, spm->count, item.data, (size_t)item.count);
    *piece =
        (heed__piece){.text = item.data, .size = (uint32_t)item.count, .type = (uint8_t)next_type(&types)};
    if (heed_gguf_next(&scores, &score)) heed_gguf_number(&score, &number);
    piece->score = (float)number;
    if (spm->count == g->tok->unknown) piece->type = HEED__PIECE_UNKNOWN;
    if (spm->count++ != g->tok->unknown && piece->type == HEED__PIECE_UNKNOWN)
      piece->type = HEED__PIECE_CONTROL;
    if (status == HEED_OK && heed__is_due_at(&g->ctx->pace, spm->count))
      status = heed__stopped(g->ctx, "load");
  }
  return status;
}

/* The charsmap, an array of bytes. */
static heed_status read_gguf_charsmap(const gguf_tokens *g, heed__spm *spm) {
  heed_gguf_value map;
  if (!heed_gguf_find(g->archive, KEY("precompiled_charsmap"), &map) || map.count == 0) return HEED_OK;
  if (map.type != HEED_GGUF_ARRAY || (map.item != HEED_GGUF_UINT8 && map.item != HEED_GGUF_INT8))
    return heed__fail(g->ctx, HEED_FILE, "%s: %s is not an array of bytes; it must be one", g->where,
                      KEY("precompiled_charsmap"));
  return heed__spm_charsmap(spm, g->where, map.data, (size_t)map.count);
}

static heed_status read_gguf_spm(const gguf_tokens *g, heed__spm_kind kind) {
  heed_tokenizer *tok = g->tok;
  heed__spm *spm = heed__allocate(g->ctx, sizeof(*spm));
  if (spm == NULL) return heed__fail_memory(g->ctx, "load", sizeof(*spm));
  *spm = (heed__spm){.ctx = g->ctx,
                     .kind = kind,
                     .byte_fallback = kind == HEED__SPM_BPE,
                     .add_dummy_prefix = flag_of(g, KEY("add_space_prefix"), true),
                     .remove_extra_whitespaces = flag_of(g, KEY("remove_extra_whitespaces"), false),
                     .escape_whitespaces = true,
                     .unknown_surface = " \xe2\x81\x87 ",
                     .unknown_surface_size = 5};
  tok->spm = spm;
  if (tok->unknown < 0) tok->unknown = kind == HEED__SPM_BPE ? 0 : 2; /* llama.cpp's */
  heed_status status = read_pieces(g, spm);
  if (status == HEED_OK) status = read_gguf_charsmap(g, spm);
  if (status == HEED_OK) status = heed__spm_prepare(spm, g->where);
  spm->bos = tok->bos;
  spm->eos = tok->eos;
  spm->pad = tok->pad;
  return status;
}

/* ---- The whole ---- */

static heed_status read_model_named(const gguf_tokens *g) {
  heed_gguf_value model;
  if (is_text(g, KEY("model"), "gpt2")) return read_gguf_bytes(g);
  if (is_text(g, KEY("model"), "llama")) return read_gguf_spm(g, HEED__SPM_BPE);
  if (is_text(g, KEY("model"), "t5")) return read_gguf_spm(g, HEED__SPM_UNIGRAM);
  if (is_text(g, KEY("model"), "bert")) return read_gguf_bert(g);
  const bool named = heed_gguf_find(g->archive, KEY("model"), &model) && model.type == HEED_GGUF_STRING;
  const char *name = named ? model.data : "";
  const int shown = named ? (int)(model.count < 80 ? model.count : 80) : 0;
  return heed__fail(g->ctx, HEED_FILE,
                    "%s: the tokenizer '%.*s' (%s) is not supported; it must be gpt2, llama, t5 or bert",
                    g->where, shown, name, KEY("model"));
}

/* One side of the template: the token `id` where the flag, or its default, asks for it. Errors: FILE (an id
 * that is missing or outside of the vocabulary). */
static heed_status set_side(const gguf_tokens *g, const char *flag, bool otherwise, const char *key,
                            int32_t id, int64_t *side, int *count) {
  heed_gguf_value value;
  int64_t number = -1;
  const bool said = heed_gguf_find(g->archive, flag, &value);
  if (said) *count = 0; /* against the default of its splitting rule */
  if (!flag_of(g, flag, otherwise || *count > 0)) return HEED_OK;
  const bool there = heed_gguf_find(g->archive, key, &value);
  if (id < 0 && there && heed_gguf_integer(&value, &number))
    return heed__fail(g->ctx, HEED_FILE, "%s: %s is %lld; it must be from 0 to %lld, the last token",
                      g->where, key, (long long)number, (long long)g->tokens.count - 1);
  if (id < 0 && (said || there))
    return heed__fail(g->ctx, HEED_FILE, "%s: %s is %s; it must be the id of a token, as %s is true",
                      g->where, key, there ? "no integer" : "missing", flag);
  *count = id >= 0;
  *side = id;
  return HEED_OK;
}

/* A template of one or no token before and after the text, where the file or the model asks for it. */
static heed_status set_template(const gguf_tokens *g) {
  heed_tokenizer *tok = g->tok;
  const bool llama = is_text(g, KEY("model"), "llama"), t5 = is_text(g, KEY("model"), "t5");
  const heed_status status = set_side(g, KEY("add_bos_token"), llama, KEY("bos_token_id"), tok->bos,
                                      tok->before, &tok->before_count);
  if (status != HEED_OK) return status;
  return set_side(g, KEY("add_eos_token"), t5, KEY("eos_token_id"), tok->eos, tok->after, &tok->after_count);
}

heed_status heed__tokenizer_read_gguf(heed_tokenizer *tok, const char *where, const char *path) {
  gguf_tokens g = {.tok = tok, .ctx = tok->ctx, .where = where};
  heed_status status = heed_load_archive(tok->ctx, path, &tok->archive);
  if (status != HEED_OK) return status;
  g.archive = tok->archive;
  heed_gguf_value chat;
  if (!heed_gguf_find(g.archive, KEY("tokens"), &g.tokens) || g.tokens.type != HEED_GGUF_ARRAY ||
      g.tokens.item != HEED_GGUF_STRING || g.tokens.count == 0 || g.tokens.count >= 1 << 24)
    return heed__fail(tok->ctx, HEED_FILE, "%s: it has no tokenizer: %s is missing, or no array of strings",
                      where, KEY("tokens"));
  status = take_gguf_array(&g, KEY("token_type"), HEED_GGUF_INT32, &g.types);
  if (status == HEED_OK) status = take_gguf_array(&g, KEY("scores"), HEED_GGUF_FLOAT32, &g.scores);
  tok->bos = id_of_key(&g, KEY("bos_token_id"));
  tok->eos = id_of_key(&g, KEY("eos_token_id"));
  tok->pad = id_of_key(&g, KEY("padding_token_id"));
  tok->unknown = id_of_key(&g, KEY("unknown_token_id"));
  if (status == HEED_OK) status = read_model_named(&g);
  if (status == HEED_OK && tok->model == HEED__BPE) status = set_template(&g);
  if (status == HEED_OK && heed_gguf_find(g.archive, "tokenizer.chat_template", &chat) &&
      chat.type == HEED_GGUF_STRING)
    status = heed__text_copy(tok->ctx, chat.data, (size_t)chat.count, &tok->chat_template);
  if (tok->spm == NULL) { /* nothing points into the file */
    heed_archive_free(tok->archive);
    tok->archive = NULL;
  }
  return status;
}
