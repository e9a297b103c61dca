/* The steps of tokenizer.json: normalizer, pre_tokenizer, decoder. What is not supported is refused by name.
 */
#include "text.h"

#include <string.h>

typedef struct step_reader {
  heed_tokenizer *tok;
  const char *where, *part; /* "normalizer" */
  const heed__json_file *f;
  heed__step_list *list;
} step_reader;

heed__step *heed__step_add(heed__step_list *list, heed__step_kind kind) {
  if (list->count == HEED__STEPS) return NULL;
  list->step[list->count] = (heed__step){.kind = kind};
  return &list->step[list->count++];
}

void heed__steps_free(heed_context *ctx, heed__step_list *list) {
  for (int i = 0; i < list->count; i++) {
    heed__regex_free(list->step[i].regex);
    heed__spm_free(list->step[i].charsmap);
    heed__release(ctx, list->step[i].text);
  }
  list->count = 0;
}

heed_status heed__text_copy(heed_context *ctx, const char *text, size_t size, char **out) {
  char *copy = heed__allocate(ctx, size + 1);
  if (copy == NULL) return heed__fail_memory(ctx, "load", size + 1);
  if (size > 0) memcpy(copy, text, size);
  copy[size] = '\0';
  *out = copy;
  return HEED_OK;
}

static heed_status refuse_step(const step_reader *r, const heed__json_node *node, const char *what) {
  const int shown =
      node != NULL && node->kind == HEED__JSON_STRING ? (int)(node->size < 80 ? node->size : 80) : 0;
  return heed__fail(r->tok->ctx, HEED_FILE, "%s: the %s %s%s%.*s%s is not supported", r->where, r->part, what,
                    shown > 0 ? " '" : "", shown, shown > 0 ? node->u.text : "", shown > 0 ? "'" : "");
}

static heed_status add_step(const step_reader *r, heed__step_kind kind, heed__step **out) {
  *out = heed__step_add(r->list, kind);
  return *out != NULL ? HEED_OK
                      : heed__fail(r->tok->ctx, HEED_FILE, "%s: the %s has more than %d steps", r->where,
                                   r->part, HEED__STEPS);
}

/* The text of a key, which must be a string. */
static heed_status read_step_text(const step_reader *r, const heed__json_node *node, const char *key,
                                  heed__step *step) {
  const heed__json_node *text = heed__json_kind_get(r->f, node, key, HEED__JSON_STRING);
  if (text == NULL)
    return heed__fail(r->tok->ctx, HEED_FILE, "%s: a step of the %s lacks the string '%s'", r->where, r->part,
                      key);
  step->size = text->size;
  return heed__text_copy(r->tok->ctx, text->u.text, text->size, &step->text);
}

/* The same of a text that is searched for, which must not be empty. */
static heed_status read_step_symbol(const step_reader *r, const heed__json_node *node, const char *key,
                                    heed__step *step) {
  const heed_status status = read_step_text(r, node, key, step);
  if (status != HEED_OK || step->size > 0) return status;
  return heed__fail(r->tok->ctx, HEED_FILE, "%s: '%s' of a step of the %s is an empty string", r->where, key,
                    r->part);
}

/* {"String": …} or {"Regex": …} */
static heed_status read_pattern(const step_reader *r, const heed__json_node *node, heed__step *step) {
  const heed__json_node *pattern = heed__json_get(r->f, node, "pattern"),
                        *text = heed__json_kind_get(r->f, pattern, "String", HEED__JSON_STRING),
                        *regex = heed__json_kind_get(r->f, pattern, "Regex", HEED__JSON_STRING);
  if (text != NULL && text->size > 0)
    return heed__regex_literal(r->tok->ctx, r->where, text->u.text, text->size, &step->regex);
  if (regex != NULL)
    return heed__regex_compile(r->tok->ctx, r->where, regex->u.text, regex->size, &step->regex);
  return heed__fail(r->tok->ctx, HEED_FILE, "%s: a step of the %s lacks its pattern", r->where, r->part);
}

static heed_status read_behavior(const step_reader *r, const heed__json_node *node, heed__step *step) {
  static const char *const names[][2] = {{"Isolated", "isolated"},
                                         {"Removed", "removed"},
                                         {"MergedWithPrevious", "merged_with_previous"},
                                         {"MergedWithNext", "merged_with_next"},
                                         {"Contiguous", "contiguous"}};
  const heed__json_node *behavior = heed__json_get(r->f, node, "behavior");
  if (behavior == NULL) return HEED_OK;
  for (int i = 0; i < 5; i++)
    if (heed__json_is(behavior, names[i][0]) || heed__json_is(behavior, names[i][1])) {
      step->behavior = (heed__behavior)i;
      return HEED_OK;
    }
  return refuse_step(r, behavior, "behavior");
}

typedef heed_status read_step_function(const step_reader *r, const heed__json_node *node);

/* A Sequence reads its parts by `read`, under `key`. */
static heed_status read_step_parts(const step_reader *r, const heed__json_node *node, const char *key,
                                   read_step_function *read) {
  const heed__json_node *parts = heed__json_kind_get(r->f, node, key, HEED__JSON_LIST);
  heed_status status = HEED_OK;
  if (parts == NULL)
    return heed__fail(r->tok->ctx, HEED_FILE, "%s: a Sequence of the %s lacks the list '%s'", r->where,
                      r->part, key);
  for (const heed__json_node *part = heed__json_child(r->f, parts); part != NULL && status == HEED_OK;
       part = heed__json_at(r->f, part->next))
    status = heed__json_is(heed__json_get(r->f, part, "type"), "Sequence")
                 ? refuse_step(r, NULL, "Sequence within a Sequence")
                 : read(r, part);
  return status;
}

static heed_status read_step_list(const step_reader *r, const heed__json_node *node, const char *key,
                                  read_step_function *read) {
  if (node == NULL || node->kind == HEED__JSON_NULL) return HEED_OK;
  return heed__json_is(heed__json_get(r->f, node, "type"), "Sequence") ? read_step_parts(r, node, key, read)
                                                                       : read(r, node);
}

/* ---- Normalizers ---- */

static heed_status read_bert_normalizer(const step_reader *r, const heed__json_node *node) {
  const bool lower = heed__json_flag(r->f, node, "lowercase", true);
  heed__step *step;
  heed_status status = HEED_OK;
  if (heed__json_flag(r->f, node, "clean_text", true)) status = add_step(r, HEED__CLEAN, &step);
  if (status == HEED_OK && heed__json_flag(r->f, node, "handle_chinese_chars", true))
    status = add_step(r, HEED__CHINESE, &step);
  if (status == HEED_OK && heed__json_flag(r->f, node, "strip_accents", lower)) {
    status = add_step(r, HEED__NFD, &step);
    if (status == HEED_OK) status = add_step(r, HEED__STRIP_ACCENTS, &step);
  }
  if (status == HEED_OK && lower) status = add_step(r, HEED__LOWERCASE, &step);
  return status;
}

static heed_status read_normalizer_step(const step_reader *r, const heed__json_node *node) {
  static const struct {
    const char *name;
    heed__step_kind kind;
  } plain[] = {{"NFC", HEED__NFC},
               {"NFD", HEED__NFD},
               {"NFKC", HEED__NFKC},
               {"NFKD", HEED__NFKD},
               {"Lowercase", HEED__LOWERCASE},
               {"StripAccents", HEED__STRIP_ACCENTS},
               {"Strip", HEED__STRIP},
               {"Prepend", HEED__PREPEND},
               {"Replace", HEED__REPLACE},
               {"Precompiled", HEED__PRECOMPILED}};
  const heed__json_node *type = heed__json_get(r->f, node, "type");
  if (heed__json_is(type, "BertNormalizer")) return read_bert_normalizer(r, node);
  for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++) {
    heed__step *step;
    if (!heed__json_is(type, plain[i].name)) continue;
    heed_status status = add_step(r, plain[i].kind, &step);
    if (status != HEED_OK) return status;
    step->left = plain[i].kind != HEED__STRIP || heed__json_flag(r->f, node, "strip_left", true);
    step->right = heed__json_flag(r->f, node, "strip_right", true);
    if (plain[i].kind == HEED__PREPEND) status = read_step_text(r, node, "prepend", step);
    if (plain[i].kind == HEED__PRECOMPILED) {
      const heed__json_node *map = heed__json_kind_get(r->f, node, "precompiled_charsmap", HEED__JSON_STRING);
      if (map == NULL) return refuse_step(r, type, "step without its charsmap");
      return heed__read_precompiled(r->tok->ctx, r->where, map->u.text, map->size, step);
    }
    if (plain[i].kind == HEED__REPLACE) {
      status = read_pattern(r, node, step);
      if (status == HEED_OK) status = read_step_text(r, node, "content", step);
    }
    return status;
  }
  return refuse_step(r, type, "step");
}

heed_status heed__read_normalizer(heed_tokenizer *tok, const char *where, const heed__json_file *f,
                                  const heed__json_node *node) {
  const step_reader r = {tok, where, "normalizer", f, &tok->normalizers};
  return read_step_list(&r, node, "normalizers", read_normalizer_step);
}

/* ---- Splits ---- */

/* "always", "first" or "never"; older files have add_prefix_space instead. */
static heed_status read_scheme(const step_reader *r, const heed__json_node *node, int *out) {
  const heed__json_node *scheme = heed__json_get(r->f, node, "prepend_scheme");
  *out = heed__json_flag(r->f, node, "add_prefix_space", true) ? 2 : 0;
  if (scheme == NULL) return HEED_OK;
  if (heed__json_is(scheme, "always"))
    *out = 2;
  else if (heed__json_is(scheme, "first"))
    *out = 1;
  else if (heed__json_is(scheme, "never"))
    *out = 0;
  else
    return refuse_step(r, scheme, "prepend_scheme");
  return HEED_OK;
}

static heed_status read_metaspace(const step_reader *r, const heed__json_node *node) {
  heed__step *step;
  heed_status status = add_step(r, HEED__SPLIT_METASPACE, &step);
  if (status == HEED_OK) status = read_step_symbol(r, node, "replacement", step);
  if (status == HEED_OK) status = read_scheme(r, node, &step->first);
  if (status != HEED_OK) return status;
  step->left = heed__json_flag(r->f, node, "split", true);
  step->behavior = HEED__MERGED_WITH_NEXT;
  return step->left ? heed__regex_literal(r->tok->ctx, r->where, step->text, step->size, &step->regex)
                    : HEED_OK;
}

static heed_status read_byte_level(const step_reader *r, const heed__json_node *node) {
  heed__step *step;
  const heed_status status = add_step(r, HEED__SPLIT_BYTES, &step);
  if (status != HEED_OK) return status;
  r->tok->byte_level = true;
  step->left = heed__json_flag(r->f, node, "add_prefix_space", true);
  if (!heed__json_flag(r->f, node, "use_regex", true)) return HEED_OK;
  return heed__regex_compile(r->tok->ctx, r->where, heed__gpt2_pattern, strlen(heed__gpt2_pattern),
                             &step->regex);
}

static heed_status read_split_step(const step_reader *r, const heed__json_node *node) {
  static const char words[] = "\\w+|[^\\w\\s]+";
  const heed__json_node *type = heed__json_get(r->f, node, "type");
  heed__step *step;
  heed_status status;
  if (r->tok->byte_level) return refuse_step(r, type, "step after ByteLevel,");
  if (heed__json_is(type, "ByteLevel")) return read_byte_level(r, node);
  if (heed__json_is(type, "Metaspace")) return read_metaspace(r, node);
  if (heed__json_is(type, "Split")) {
    status = add_step(r, HEED__SPLIT, &step);
    if (status == HEED_OK) status = read_pattern(r, node, step);
    if (status == HEED_OK) status = read_behavior(r, node, step);
    if (status == HEED_OK) step->invert = heed__json_flag(r->f, node, "invert", false);
  } else if (heed__json_is(type, "Digits")) {
    status = add_step(r, HEED__SPLIT_DIGITS, &step);
    if (status == HEED_OK && !heed__json_flag(r->f, node, "individual_digits", false))
      step->behavior = HEED__CONTIGUOUS;
  } else if (heed__json_is(type, "Punctuation")) {
    status = add_step(r, HEED__SPLIT_PUNCTUATION, &step);
    if (status == HEED_OK) status = read_behavior(r, node, step);
  } else if (heed__json_is(type, "WhitespaceSplit") || heed__json_is(type, "BertPreTokenizer")) {
    status = add_step(r, HEED__SPLIT_SPACE, &step);
    if (status == HEED_OK) step->behavior = HEED__REMOVED;
    if (status == HEED_OK && heed__json_is(type, "BertPreTokenizer"))
      status = add_step(r, HEED__SPLIT_PUNCTUATION, &step);
  } else if (heed__json_is(type, "Whitespace")) {
    status = add_step(r, HEED__SPLIT, &step);
    if (status != HEED_OK) return status;
    step->behavior = HEED__REMOVED;
    step->invert = true;
    status = heed__regex_compile(r->tok->ctx, r->where, words, sizeof(words) - 1, &step->regex);
  } else {
    return refuse_step(r, type, "step");
  }
  return status;
}

heed_status heed__read_splits(heed_tokenizer *tok, const char *where, const heed__json_file *f,
                              const heed__json_node *node) {
  const step_reader r = {tok, where, "pre_tokenizer", f, &tok->splits};
  return read_step_list(&r, node, "pretokenizers", read_split_step);
}

/* ---- Decoders ---- */

static heed_status read_decoder_step(const step_reader *r, const heed__json_node *node) {
  const heed__json_node *type = heed__json_get(r->f, node, "type");
  heed__step *step;
  heed_status status;
  if (heed__json_is(type, "ByteLevel")) return add_step(r, HEED__DECODE_BYTES, &step);
  if (heed__json_is(type, "ByteFallback")) return add_step(r, HEED__DECODE_FALLBACK, &step);
  if (heed__json_is(type, "Fuse")) return add_step(r, HEED__DECODE_FUSE, &step);
  if (heed__json_is(type, "WordPiece")) {
    status = add_step(r, HEED__DECODE_WORDPIECE, &step);
    if (status == HEED_OK) status = read_step_text(r, node, "prefix", step);
    if (status == HEED_OK) step->left = heed__json_flag(r->f, node, "cleanup", true);
  } else if (heed__json_is(type, "Metaspace")) {
    status = add_step(r, HEED__DECODE_METASPACE, &step);
    if (status == HEED_OK) status = read_step_symbol(r, node, "replacement", step);
    if (status == HEED_OK) status = read_scheme(r, node, &step->first);
  } else if (heed__json_is(type, "Replace")) {
    status = add_step(r, HEED__REPLACE, &step);
    if (status == HEED_OK) status = read_pattern(r, node, step);
    if (status == HEED_OK) status = read_step_text(r, node, "content", step);
  } else if (heed__json_is(type, "Strip")) {
    const heed__json_node *start = heed__json_kind_get(r->f, node, "start", HEED__JSON_NUMBER),
                          *stop = heed__json_kind_get(r->f, node, "stop", HEED__JSON_NUMBER);
    status = add_step(r, HEED__DECODE_STRIP, &step);
    if (status == HEED_OK) status = read_step_symbol(r, node, "content", step);
    if (status == HEED_OK && start != NULL && start->u.number >= 0 && start->u.number < 1000)
      step->first = (int)start->u.number;
    if (status == HEED_OK && stop != NULL && stop->u.number >= 0 && stop->u.number < 1000)
      step->last = (int)stop->u.number;
  } else if (heed__json_is(type, "BPEDecoder")) {
    status = add_step(r, HEED__DECODE_SUFFIX, &step);
    if (status == HEED_OK) status = read_step_text(r, node, "suffix", step);
  } else {
    return refuse_step(r, type, "step");
  }
  return status;
}

heed_status heed__read_decoder(heed_tokenizer *tok, const char *where, const heed__json_file *f,
                               const heed__json_node *node) {
  const step_reader r = {tok, where, "decoder", f, &tok->decoders};
  return read_step_list(&r, node, "decoders", read_decoder_step);
}
