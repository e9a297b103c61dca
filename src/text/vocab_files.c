/* Vocabularies in older files: vocab.json with merges.txt (GPT-2), vocab.txt (BERT). */
#include "text.h"

#include <stdio.h>
#include <string.h>

#define MOST_SPECIAL 5

/* Marks tokens that the vocabulary has as special; NULL ends the list. Errors: MEMORY. */
static heed_status mark_special(heed_tokenizer *tok, const char *const names[MOST_SPECIAL]) {
  const size_t bytes = MOST_SPECIAL * sizeof(*tok->added);
  tok->added = heed__allocate(tok->ctx, bytes);
  if (tok->added == NULL) return heed__fail_memory(tok->ctx, "load", bytes);
  for (int i = 0; i < MOST_SPECIAL && names[i] != NULL; i++) {
    const int32_t id = heed__vocabulary_find(&tok->vocabulary, names[i], strlen(names[i]));
    const bool is_mask = strcmp(names[i], "<mask>") == 0; /* takes the spaces before it, as in RoBERTa */
    if (id >= 0) tok->added[tok->added_count++] = (heed__added){.id = id, .special = true, .lstrip = is_mask};
  }
  return HEED_OK;
}

/* ---- tokenizer_config.json beside the vocabulary ---- */

/* Without the file, `out` has no root. Errors: FILE, MEMORY, CANCELLED, LIMIT. */
static heed_status read_config(heed_context *ctx, const char *where, const char *vocab,
                               heed__json_file *out) {
  static const char name[] = "tokenizer_config.json";
  char path[HEED__PATH + sizeof(name)], part[600];
  const size_t folder = heed__folder_length(vocab);
  memcpy(path, vocab, folder);
  memcpy(path + folder, name, sizeof(name));
  *out = (heed__json_file){.ctx = ctx};
  if (heed__path_kind_of(path) == HEED__NOTHING) return HEED_OK;
  snprintf(part, sizeof(part), "%s: %s", where, name);
  heed_status status = heed__json_file_load(ctx, part, path, out);
  if (status == HEED_OK && heed__json_at(out, 1)->kind != HEED__JSON_OBJECT) {
    heed__json_file_free(out);
    status = heed__fail(ctx, HEED_FILE, "%s: it must be an object", part);
  }
  return status;
}

static const heed__json_node *root_of(const heed__json_file *config) {
  return config->nodes == NULL ? NULL : heed__json_at(config, 1);
}

/* A boolean of the config; null and nothing mean `otherwise`. */
static heed_status read_flag(const heed__json_file *config, const char *where, const char *key,
                             bool otherwise, bool *out) {
  const heed__json_node *node = heed__json_get(config, root_of(config), key);
  *out = heed__json_flag(config, root_of(config), key, otherwise);
  if (node == NULL || node->kind == HEED__JSON_BOOLEAN || node->kind == HEED__JSON_NULL) return HEED_OK;
  return heed__fail(config->ctx, HEED_FILE, "%s: tokenizer_config.json: %s must be true or false", where,
                    key);
}

/* Refuses tokens that the config adds to the vocabulary. */
static heed_status check_added(const heed_tokenizer *tok, const char *where, const heed__json_file *config) {
  const heed__json_node *list = heed__json_get(config, root_of(config), "added_tokens_decoder"),
                        *node = heed__json_child(config, list);
  for (; node != NULL; node = heed__json_at(config, node->next)) {
    const heed__json_node *token = heed__json_kind_get(config, node, "content", HEED__JSON_STRING);
    if (token == NULL || heed__vocabulary_find(&tok->vocabulary, token->u.text, token->size) >= 0) continue;
    return heed__fail(tok->ctx, HEED_FILE,
                      "%s: tokenizer_config.json adds the token '%.*s', which the vocabulary lacks; save the "
                      "tokenizer as tokenizer.json",
                      where, (int)(token->size < 80 ? token->size : 80), token->u.text);
  }
  return HEED_OK;
}

/* ---- Lines ---- */

/* A line, without its end, from *at on; false after the last. */
static bool next_line(const char *data, size_t size, size_t *at, heed__text_span *line) {
  if (*at >= size) return false;
  const char *end = memchr(data + *at, '\n', size - *at);
  *line = (heed__text_span){*at, end != NULL ? (size_t)(end - data) : size};
  *at = line->end + 1;
  if (line->end > line->begin && data[line->end - 1] == '\r') line->end--;
  return true;
}

static heed_status check_vocabulary_text(heed_context *ctx, const char *where, const char *data,
                                         size_t size) {
  size_t wrong;
  const heed_status status = heed__text_check_in_steps(ctx, "load", data, size, &wrong);
  if (status != HEED_OK || wrong == 0) return status;
  return heed__fail(ctx, HEED_FILE, "%s: not UTF-8 at byte %llu", where, (unsigned long long)wrong);
}

static heed_status read_merge_lines(heed_tokenizer *tok, const char *where, const char *data, size_t size) {
  size_t at = 0, lines = 0;
  uint32_t rank = 0;
  heed__text_span line;
  while (next_line(data, size, &at, &line)) lines++;
  heed_status status = heed__merges_begin(tok, lines);
  for (at = 0, lines = 1; status == HEED_OK && next_line(data, size, &at, &line); lines++) {
    const char *text = data + line.begin, *space = memchr(text, ' ', line.end - line.begin);
    const size_t length = line.end - line.begin;
    if (length == 0 || (lines == 1 && length >= 8 && memcmp(text, "#version", 8) == 0)) continue;
    if (space == NULL || !heed__merges_add(tok, rank++, text, (size_t)(space - text), space + 1,
                                           length - (size_t)(space - text) - 1))
      return heed__fail(
          tok->ctx, HEED_FILE,
          "%s: line %llu of merges.txt is not two tokens of the vocabulary whose union is a token, too",
          where, (unsigned long long)lines);
    if (heed__is_due_at(&tok->ctx->pace, rank)) status = heed__stopped(tok->ctx, "load");
  }
  return status;
}

/* The classes of transformers that read vocab.json with merges.txt and split by GPT-2's pattern. */
static const struct pair_class {
  const char *name;
  const char *special[MOST_SPECIAL];
  const char *first, *last; /* of the template; NULL: none */
} pair_classes[] = {
    {"GPT2Tokenizer", {"<|endoftext|>"}, NULL, NULL},
    {"RobertaTokenizer", {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}, "<s>", "</s>"},
};

/* The class that the config names, GPT-2's without one; with or without "Fast" at the end. */
static heed_status find_pair_class(const heed__json_file *config, const char *where,
                                   const struct pair_class **out) {
  const heed__json_node *node =
      heed__json_kind_get(config, root_of(config), "tokenizer_class", HEED__JSON_STRING);
  *out = &pair_classes[0];
  if (node == NULL) return HEED_OK;
  for (size_t i = 0; i < sizeof(pair_classes) / sizeof(*pair_classes); i++) {
    const size_t size = strlen(pair_classes[i].name);
    *out = &pair_classes[i];
    if (node->size < size || memcmp(node->u.text, pair_classes[i].name, size) != 0) continue;
    if (node->size == size || (node->size == size + 4 && memcmp(node->u.text + size, "Fast", 4) == 0))
      return HEED_OK;
  }
  return heed__fail(
      config->ctx, HEED_FILE,
      "%s: tokenizer_class is %.*s; vocab.json with merges.txt must be that of GPT2Tokenizer or "
      "RobertaTokenizer; save the tokenizer as tokenizer.json",
      where, (int)(node->size < 80 ? node->size : 80), node->u.text);
}

/* Adds the special tokens and the template of a class. */
static heed_status apply_pair_class(heed_tokenizer *tok, const char *where, const struct pair_class *class) {
  heed_status status = mark_special(tok, class->special);
  if (status != HEED_OK || class->first == NULL) return status;
  tok->bos = heed__vocabulary_find(&tok->vocabulary, class->first, strlen(class->first));
  tok->eos = heed__vocabulary_find(&tok->vocabulary, class->last, strlen(class->last));
  if (tok->bos < 0 || tok->eos < 0)
    return heed__fail(tok->ctx, HEED_FILE, "%s: the vocabulary lacks %s or %s", where, class->first,
                      class->last);
  tok->before[tok->before_count++] = tok->bos;
  tok->after[tok->after_count++] = tok->eos;
  return HEED_OK;
}

heed_status heed__tokenizer_read_pairs(heed_tokenizer *tok, const char *where, const char *vocab,
                                       const char *merges) {
  heed_context *ctx = tok->ctx;
  heed__json_file f = {.ctx = ctx}, config;
  heed_tensor *lines = NULL;
  const struct pair_class *class = NULL;
  bool spaced = false;
  heed_status status = read_config(ctx, where, vocab, &config);
  if (status == HEED_OK) status = find_pair_class(&config, where, &class);
  if (status == HEED_OK) status = read_flag(&config, where, "add_prefix_space", false, &spaced);
  if (status == HEED_OK) status = heed__json_file_load(ctx, where, vocab, &f);
  if (status != HEED_OK) {
    heed__json_file_free(&config);
    return status;
  }
  const heed__json_node *root = heed__json_at(&f, 1);
  size_t bytes = 0;
  uint32_t i = 0;
  if (root->kind != HEED__JSON_OBJECT)
    status = heed__fail(ctx, HEED_FILE,
                        "%s: vocab.json is not an object; it must be one of tokens and their ids", where);
  for (i = root->u.first; i > 0 && status == HEED_OK; i = f.nodes[i].next) bytes += f.nodes[i].key_size;
  if (status == HEED_OK)
    status = heed__vocabulary_begin(&tok->vocabulary, ctx, (int32_t)(root->size & 0xffffff), bytes);
  for (i = root->u.first; i > 0 && status == HEED_OK; i = f.nodes[i].next) {
    const heed__json_node *node = &f.nodes[i];
    const bool small = node->kind == HEED__JSON_NUMBER && node->u.number >= 0 && node->u.number < 0x1000000;
    const int32_t id = small ? (int32_t)node->u.number : -1;
    if (id != node->u.number || !heed__vocabulary_add(&tok->vocabulary, id, node->key, node->key_size))
      status = heed__fail(
          ctx, HEED_FILE, "%s: the ids of vocab.json must be 0 to %lu, each once; token '%.*s' differs",
          where, (unsigned long)root->size - 1, (int)(node->key_size < 80 ? node->key_size : 80), node->key);
  }
  tok->byte_level = true;
  heed__step_add(&tok->decoders, HEED__DECODE_BYTES);
  if (status == HEED_OK) status = heed__add_pattern(tok, where, HEED__SPLIT_BYTES, heed__gpt2_pattern);
  if (status == HEED_OK) tok->splits.step[0].left = spaced;
  if (status == HEED_OK) status = heed__map_bytes(ctx, merges, &lines);
  if (status == HEED_OK) status = check_vocabulary_text(ctx, where, lines->data, (size_t)lines->numel);
  if (status == HEED_OK) status = read_merge_lines(tok, where, lines->data, (size_t)lines->numel);
  if (status == HEED_OK) status = heed__bpe_prepare(tok);
  if (status == HEED_OK) status = apply_pair_class(tok, where, class);
  if (status == HEED_OK) status = check_added(tok, where, &config);
  heed_tensor_free(lines);
  heed__json_file_free(&config);
  heed__json_file_free(&f);
  return status;
}

heed_status heed__tokenizer_set_bert(heed_tokenizer *tok, const char *where, heed__bert_rules rules) {
  static const char *const special[MOST_SPECIAL] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  heed_context *ctx = tok->ctx;
  heed__step_add(&tok->normalizers, HEED__CLEAN);
  if (rules.chinese) heed__step_add(&tok->normalizers, HEED__CHINESE);
  if (rules.strip_accents) heed__step_add(&tok->normalizers, HEED__NFD);
  if (rules.strip_accents) heed__step_add(&tok->normalizers, HEED__STRIP_ACCENTS);
  if (rules.lower) heed__step_add(&tok->normalizers, HEED__LOWERCASE);
  heed__step_add(&tok->splits, HEED__SPLIT_SPACE)->behavior = HEED__REMOVED;
  heed__step_add(&tok->splits, HEED__SPLIT_PUNCTUATION);
  heed__step *step = heed__step_add(&tok->decoders, HEED__DECODE_WORDPIECE);
  step->left = true;
  step->size = 2;
  heed_status status = heed__text_copy(ctx, "##", 2, &step->text);
  if (status == HEED_OK) status = heed__text_copy(ctx, "##", 2, &tok->prefix);
  tok->model = HEED__WORDPIECE;
  tok->longest_word = 100;
  if (status == HEED_OK) status = mark_special(tok, special);
  tok->unknown = heed__vocabulary_find(&tok->vocabulary, "[UNK]", 5);
  tok->before[0] = heed__vocabulary_find(&tok->vocabulary, "[CLS]", 5);
  tok->after[0] = heed__vocabulary_find(&tok->vocabulary, "[SEP]", 5);
  tok->before_count = tok->after_count = 1;
  if (status == HEED_OK && (tok->unknown < 0 || tok->before[0] < 0 || tok->after[0] < 0))
    status = heed__fail(ctx, HEED_FILE, "%s: the vocabulary lacks [UNK], [CLS] or [SEP]", where);
  return status;
}

heed_status heed__tokenizer_read_lines(heed_tokenizer *tok, const char *where, const char *path) {
  heed_context *ctx = tok->ctx;
  heed_tensor *file = NULL;
  heed__json_file config = {.ctx = ctx};
  heed__bert_rules rules;
  heed__text_span line;
  size_t at = 0;
  int32_t count = 0;
  heed_status status = heed__map_bytes(ctx, path, &file);
  if (status != HEED_OK) return status;
  const char *data = file->data;
  const size_t size = (size_t)file->numel;
  status = check_vocabulary_text(ctx, where, data, size);
  while (count < 0x1000000 && next_line(data, size, &at, &line)) count++;
  if (status == HEED_OK) status = heed__vocabulary_begin(&tok->vocabulary, ctx, count, size);
  at = 0;
  for (int32_t id = 0; status == HEED_OK && next_line(data, size, &at, &line); id++) {
    if (line.begin == line.end ||
        !heed__vocabulary_add(&tok->vocabulary, id, data + line.begin, line.end - line.begin))
      status =
          heed__fail(ctx, HEED_FILE, "%s: line %ld is empty, or the same as one before", where, (long)id + 1);
    else if (heed__is_due_at(&ctx->pace, id))
      status = heed__stopped(ctx, "load");
  }
  if (status == HEED_OK) status = read_config(ctx, where, path, &config);
  if (status == HEED_OK) status = read_flag(&config, where, "do_lower_case", true, &rules.lower);
  if (status == HEED_OK)
    status = read_flag(&config, where, "strip_accents", rules.lower, &rules.strip_accents);
  if (status == HEED_OK) status = read_flag(&config, where, "tokenize_chinese_chars", true, &rules.chinese);
  if (status == HEED_OK) status = heed__tokenizer_set_bert(tok, where, rules);
  if (status == HEED_OK) status = check_added(tok, where, &config);
  heed__json_file_free(&config);
  heed_tensor_free(file);
  return status;
}
