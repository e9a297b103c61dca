/* tokenizer.json of Hugging Face: the vocabulary, the model, added tokens, the template. */
#include "text.h"

#include <string.h>

#define MOST_TOKENS ((int32_t)1 << 24)

typedef struct json_reader {
  heed_tokenizer *tok;
  heed_context *ctx;
  const char *where;
  const heed__json_file *f;
} json_reader;

static heed_status fail_json(const json_reader *r, const char *what, const char *text, size_t size) {
  return heed__fail(r->ctx, HEED_FILE, "%s: %s '%.*s'", r->where, what, (int)(size < 80 ? size : 80), text);
}

/* An id in a node; false if it is none. */
static bool read_id(const heed__json_node *node, int32_t *id) {
  if (node == NULL || node->kind != HEED__JSON_NUMBER ||
      !(node->u.number >= 0 && node->u.number < MOST_TOKENS))
    return false;
  *id = (int32_t)node->u.number;
  return *id == node->u.number;
}

static const heed__json_node *next_node(const json_reader *r, const heed__json_node *node) {
  return heed__json_at(r->f, node->next);
}
static const heed__json_node *first_node(const json_reader *r, const heed__json_node *node) {
  return heed__json_child(r->f, node);
}

/* ---- The vocabulary ---- */

/* The number of ids and the bytes of all tokens. */
static heed_status measure_tokens(const json_reader *r, const heed__json_node *vocab,
                                  const heed__json_node *added, int32_t *count, size_t *bytes) {
  int32_t id;
  *count = 0;
  *bytes = 0;
  for (const heed__json_node *node = first_node(r, vocab); node != NULL; node = next_node(r, node)) {
    if (vocab->kind == HEED__JSON_LIST) { /* of Unigram: pieces in order of their ids */
      const heed__json_node *text = node->kind == HEED__JSON_LIST ? first_node(r, node) : NULL;
      *bytes += text != NULL ? text->size : 0;
      if (++*count == MOST_TOKENS) return fail_json(r, "too many pieces in", "vocab", 5);
      continue;
    }
    if (!read_id(node, &id))
      return fail_json(r, "the id is not an integer from 0 to 16777215: that of the token", node->key,
                       node->key_size);
    if (id >= *count) *count = id + 1;
    *bytes += node->key_size;
  }
  for (const heed__json_node *node = first_node(r, added); node != NULL; node = next_node(r, node)) {
    const heed__json_node *text = heed__json_kind_get(r->f, node, "content", HEED__JSON_STRING);
    if (text == NULL || text->size == 0 || !read_id(heed__json_get(r->f, node, "id"), &id))
      return heed__fail(r->ctx, HEED_FILE, "%s: an entry of added_tokens lacks its content or a valid id",
                        r->where);
    if (id >= *count) *count = id + 1;
    *bytes += text->size;
  }
  if (*count > 0 &&
      (uint64_t)*count > 64 + 8 * ((uint64_t)(vocab ? vocab->size : 0) + (added ? added->size : 0)))
    return heed__fail(r->ctx, HEED_FILE, "%s: the ids go up to %ld, for %lu tokens", r->where,
                      (long)*count - 1, (unsigned long)(vocab ? vocab->size : 0));
  return HEED_OK;
}

static heed_status read_added(const json_reader *r, const heed__json_node *added) {
  heed_tokenizer *tok = r->tok;
  heed__vocabulary *v = &tok->vocabulary;
  const size_t bytes = heed__array_bytes(added->size, sizeof(*tok->added));
  tok->added = heed__allocate(r->ctx, bytes);
  tok->is_added = heed__allocate(r->ctx, (size_t)v->count + 1);
  if (tok->added == NULL || tok->is_added == NULL) return heed__fail_memory(r->ctx, "load", bytes);
  memset(tok->is_added, 0, (size_t)v->count + 1);
  for (const heed__json_node *node = first_node(r, added); node != NULL; node = next_node(r, node)) {
    const heed__json_node *text = heed__json_get(r->f, node, "content");
    int32_t id = 0;
    read_id(heed__json_get(r->f, node, "id"), &id);
    if (heed__vocabulary_find(v, text->u.text, text->size) != id &&
        !heed__vocabulary_add(v, id, text->u.text, text->size))
      return fail_json(r, "the id or the text of an added token is there twice:", text->u.text, text->size);
    if (tok->is_added[id]) return fail_json(r, "duplicate added token", text->u.text, text->size);
    tok->is_added[id] = 1;
    heed__added *a = &tok->added[tok->added_count++];
    *a = (heed__added){.id = id,
                       .special = heed__json_flag(r->f, node, "special", false),
                       .single_word = heed__json_flag(r->f, node, "single_word", false),
                       .lstrip = heed__json_flag(r->f, node, "lstrip", false),
                       .rstrip = heed__json_flag(r->f, node, "rstrip", false),
                       .normalized = heed__json_flag(r->f, node, "normalized", true)};
  }
  return HEED_OK;
}

static heed_status read_vocabulary(const json_reader *r, const heed__json_node *model,
                                   const heed__json_node *vocab, const heed__json_node *added) {
  int32_t count, id = 0;
  size_t bytes;
  heed_status status = measure_tokens(r, vocab, added, &count, &bytes);
  if (status == HEED_OK) status = heed__vocabulary_begin(&r->tok->vocabulary, r->ctx, count, bytes);
  if (status == HEED_OK && vocab->kind == HEED__JSON_LIST)
    status = heed__read_unigram(r->tok, r->where, r->f, model);
  if (status != HEED_OK) return status;
  int64_t step = 0;
  for (const heed__json_node *node = vocab->kind == HEED__JSON_OBJECT ? first_node(r, vocab) : NULL;
       node != NULL; node = next_node(r, node)) {
    read_id(node, &id);
    if (!heed__vocabulary_add(&r->tok->vocabulary, id, node->key, node->key_size))
      return fail_json(r, "duplicate token, or another token has the same id:", node->key, node->key_size);
    if (heed__is_due_at(&r->ctx->pace, step++)) return heed__stopped(r->ctx, "load");
  }
  return added == NULL ? HEED_OK : read_added(r, added);
}

/* ---- The model ---- */

/* A string of the model to an owned text, which stays NULL for null and for "". */
static heed_status read_affix(const json_reader *r, const heed__json_node *model, const char *key,
                              char **out) {
  const heed__json_node *text = heed__json_kind_get(r->f, model, key, HEED__JSON_STRING);
  if (text == NULL || text->size == 0) return HEED_OK;
  if (text->size > 64) return fail_json(r, "too long an affix of pieces:", text->u.text, text->size);
  return heed__text_copy(r->ctx, text->u.text, text->size, out);
}

static heed_status read_unknown(const json_reader *r, const heed__json_node *model) {
  const heed__json_node *text = heed__json_kind_get(r->f, model, "unk_token", HEED__JSON_STRING);
  if (text == NULL) return HEED_OK;
  r->tok->unknown = heed__vocabulary_find(&r->tok->vocabulary, text->u.text, text->size);
  if (r->tok->unknown >= 0) return HEED_OK;
  return fail_json(r, "the vocabulary lacks unk_token,", text->u.text, text->size);
}

static heed_status read_merges(const json_reader *r, const heed__json_node *merges) {
  uint32_t rank = 0;
  if (merges == NULL) return heed__fail(r->ctx, HEED_FILE, "%s: the model lacks the list 'merges'", r->where);
  heed_status status = heed__merges_begin(r->tok, merges->size);
  if (status != HEED_OK) return status;
  for (const heed__json_node *node = first_node(r, merges); node != NULL; node = next_node(r, node), rank++) {
    const heed__json_node *left = first_node(r, node), *right = left == NULL ? NULL : next_node(r, left);
    const char *space = node->kind == HEED__JSON_STRING ? memchr(node->u.text, ' ', node->size) : NULL;
    bool added = false;
    if (space != NULL)
      added = heed__merges_add(r->tok, rank, node->u.text, (size_t)(space - node->u.text), space + 1,
                               node->size - (size_t)(space - node->u.text) - 1);
    else if (right != NULL && left->kind == HEED__JSON_STRING && right->kind == HEED__JSON_STRING)
      added = heed__merges_add(r->tok, rank, left->u.text, left->size, right->u.text, right->size);
    if (!added)
      return heed__fail(r->ctx, HEED_FILE,
                        "%s: merge %lu is not two tokens of the vocabulary whose union is a token, too",
                        r->where, (unsigned long)rank + 1);
    if (heed__is_due_at(&r->ctx->pace, rank)) return heed__stopped(r->ctx, "load");
  }
  return HEED_OK;
}

static heed_status read_bpe(const json_reader *r, const heed__json_node *model) {
  const heed__json_node *dropout = heed__json_get(r->f, model, "dropout");
  heed_tokenizer *tok = r->tok;
  if (dropout != NULL && dropout->kind == HEED__JSON_NUMBER && dropout->u.number != 0)
    return heed__fail(r->ctx, HEED_FILE, "%s: the model has a dropout, which is not supported", r->where);
  tok->model = HEED__BPE;
  tok->fuse_unk = heed__json_flag(r->f, model, "fuse_unk", false);
  tok->byte_fallback = heed__json_flag(r->f, model, "byte_fallback", false);
  tok->ignore_merges = heed__json_flag(r->f, model, "ignore_merges", false);
  heed_status status = read_affix(r, model, "continuing_subword_prefix", &tok->prefix);
  if (status == HEED_OK) status = read_affix(r, model, "end_of_word_suffix", &tok->suffix);
  if (status == HEED_OK && tok->byte_level && (tok->prefix != NULL || tok->suffix != NULL))
    return heed__fail(r->ctx, HEED_FILE, "%s: a prefix or suffix of pieces with ByteLevel is not supported",
                      r->where);
  if (status == HEED_OK) status = read_merges(r, heed__json_kind_get(r->f, model, "merges", HEED__JSON_LIST));
  if (status == HEED_OK) status = heed__bpe_prepare(tok);
  return status;
}

static heed_status read_wordpiece(const json_reader *r, const heed__json_node *model) {
  heed_tokenizer *tok = r->tok;
  const heed__json_node *longest =
      heed__json_kind_get(r->f, model, "max_input_chars_per_word", HEED__JSON_NUMBER);
  tok->model = HEED__WORDPIECE;
  tok->longest_word = longest != NULL && longest->u.number >= 1 && longest->u.number <= 200
                          ? (int64_t)longest->u.number
                          : 100;
  heed_status status = read_affix(r, model, "continuing_subword_prefix", &tok->prefix);
  if (status == HEED_OK && tok->byte_level)
    return heed__fail(r->ctx, HEED_FILE, "%s: WordPiece with ByteLevel is not supported", r->where);
  return status;
}

static heed_status read_json_model(const json_reader *r, const heed__json_node *model) {
  const heed__json_node *type = heed__json_get(r->f, model, "type"),
                        *merges = heed__json_get(r->f, model, "merges");
  if (heed__json_is(type, "BPE") || (type == NULL && merges != NULL)) return read_bpe(r, model);
  if (heed__json_is(type, "WordPiece")) return read_wordpiece(r, model);
  if (heed__json_is(type, "Unigram") || r->tok->unigram != NULL) {
    if (r->tok->unigram != NULL && !r->tok->byte_level) return HEED_OK;
    return heed__fail(r->ctx, HEED_FILE, "%s: Unigram %s", r->where,
                      r->tok->byte_level ? "with ByteLevel is not supported" : "lacks its list 'vocab'");
  }
  if (heed__json_is(type, "WordLevel")) {
    r->tok->model = HEED__WORDLEVEL;
    if (!r->tok->byte_level) return HEED_OK;
    return heed__fail(r->ctx, HEED_FILE, "%s: WordLevel with ByteLevel is not supported", r->where);
  }
  if (type != NULL && type->kind == HEED__JSON_STRING)
    return heed__fail(
        r->ctx, HEED_FILE,
        "%s: the model '%.*s' is not supported; it must be BPE, WordPiece, Unigram or WordLevel", r->where,
        (int)(type->size < 40 ? type->size : 40), type->u.text);
  return heed__fail(r->ctx, HEED_FILE, "%s: the model lacks its type", r->where);
}

/* ---- The template ---- */

static heed_status put_template(const json_reader *r, bool after, const heed__json_node *text,
                                const heed__json_node *number) {
  heed_tokenizer *tok = r->tok;
  int32_t id = -1;
  if (!read_id(number, &id) && text != NULL && text->kind == HEED__JSON_STRING)
    id = heed__vocabulary_find(&tok->vocabulary, text->u.text, text->size);
  size_t size;
  int *count = after ? &tok->after_count : &tok->before_count;
  if (heed__vocabulary_text(&tok->vocabulary, id, &size) == NULL || *count == 8)
    return heed__fail(r->ctx, HEED_FILE,
                      "%s: the post_processor has more than 8 tokens, or one that the vocabulary lacks",
                      r->where);
  (after ? tok->after : tok->before)[(*count)++] = id;
  return HEED_OK;
}

static heed_status read_template(const json_reader *r, const heed__json_node *node) {
  const heed__json_node *tokens = heed__json_get(r->f, node, "special_tokens");
  bool after = false;
  for (const heed__json_node *part = first_node(r, heed__json_get(r->f, node, "single")); part != NULL;
       part = next_node(r, part)) {
    const heed__json_node *special = heed__json_get(r->f, part, "SpecialToken"),
                          *name = heed__json_get(r->f, special, "id");
    if (special == NULL) {
      if (after)
        return heed__fail(r->ctx, HEED_FILE, "%s: the post_processor has the sequence twice", r->where);
      after = true;
      continue;
    }
    const heed__json_node *entry = NULL;
    for (const heed__json_node *each = first_node(r, tokens); each != NULL && name != NULL;
         each = next_node(r, each))
      if (name->kind == HEED__JSON_STRING && each->key_size == name->size &&
          memcmp(each->key, name->u.text, name->size) == 0)
        entry = each;
    const heed__json_node *ids = heed__json_get(r->f, entry, "ids"), *id = first_node(r, ids);
    if (id == NULL) {
      const heed_status status = put_template(r, after, name, NULL);
      if (status != HEED_OK) return status;
    }
    for (; id != NULL; id = next_node(r, id)) {
      const heed_status status = put_template(r, after, NULL, id);
      if (status != HEED_OK) return status;
    }
  }
  return HEED_OK;
}

/* ["[SEP]", 102] */
static heed_status read_pair(const json_reader *r, const heed__json_node *node, const char *key, bool after) {
  const heed__json_node *text = first_node(r, heed__json_get(r->f, node, key));
  return put_template(r, after, text, text == NULL ? NULL : next_node(r, text));
}

static heed_status read_processor(const json_reader *r, const heed__json_node *node, bool inner) {
  const heed__json_node *type = heed__json_get(r->f, node, "type");
  heed_status status = HEED_OK;
  if (node == NULL || node->kind == HEED__JSON_NULL || heed__json_is(type, "ByteLevel")) return HEED_OK;
  if (heed__json_is(type, "TemplateProcessing")) return read_template(r, node);
  if (heed__json_is(type, "BertProcessing") || heed__json_is(type, "RobertaProcessing")) {
    status = read_pair(r, node, "cls", false);
    return status == HEED_OK ? read_pair(r, node, "sep", true) : status;
  }
  if (heed__json_is(type, "Sequence") && !inner) {
    for (const heed__json_node *part = first_node(r, heed__json_get(r->f, node, "processors"));
         part != NULL && status == HEED_OK; part = next_node(r, part))
      status = read_processor(r, part, true);
    return status;
  }
  return heed__fail(r->ctx, HEED_FILE, "%s: the post_processor '%.*s' is not supported", r->where,
                    type != NULL && type->kind == HEED__JSON_STRING ? (int)(type->size < 40 ? type->size : 40)
                                                                    : 0,
                    type != NULL && type->kind == HEED__JSON_STRING ? type->u.text : "");
}

/* ---- The whole ---- */

heed_status heed__tokenizer_read_json(heed_tokenizer *tok, const char *where, const char *path) {
  heed__json_file f;
  heed_status status = heed__json_file_load(tok->ctx, where, path, &f);
  if (status != HEED_OK) return status;
  const json_reader r = {tok, tok->ctx, where, &f};
  const heed__json_node *root = heed__json_at(&f, 1), *model = heed__json_get(&f, root, "model"),
                        *vocab = heed__json_get(&f, model, "vocab");
  if (model == NULL || model->kind != HEED__JSON_OBJECT) {
    status = heed__fail(tok->ctx, HEED_FILE, "%s: it is not a tokenizer.json: 'model' is missing", where);
  } else if (vocab == NULL || (vocab->kind != HEED__JSON_OBJECT && vocab->kind != HEED__JSON_LIST)) {
    status = heed__fail(tok->ctx, HEED_FILE, "%s: the model lacks 'vocab', an object or a list", where);
  }
  if (status == HEED_OK)
    status =
        read_vocabulary(&r, model, vocab, heed__json_kind_get(&f, root, "added_tokens", HEED__JSON_LIST));
  if (status == HEED_OK)
    status = heed__read_normalizer(tok, where, &f, heed__json_get(&f, root, "normalizer"));
  if (status == HEED_OK)
    status = heed__read_splits(tok, where, &f, heed__json_get(&f, root, "pre_tokenizer"));
  if (status == HEED_OK) status = read_json_model(&r, model);
  if (status == HEED_OK) status = read_unknown(&r, model);
  if (status == HEED_OK) status = read_processor(&r, heed__json_get(&f, root, "post_processor"), false);
  if (status == HEED_OK) status = heed__read_decoder(tok, where, &f, heed__json_get(&f, root, "decoder"));
  heed__json_file_free(&f);
  return status;
}
