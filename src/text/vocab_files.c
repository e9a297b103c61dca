/* Vocabularies in older files: vocab.json with merges.txt (GPT-2), vocab.txt (BERT). */
#include "text.h"

#include <string.h>

/* Marks a token that the vocabulary has as special. Errors: MEMORY. */
static heed_status mark_special(heed_tokenizer *tok, const char *const *names, int count) {
  const size_t bytes = (size_t)count * sizeof(*tok->added);
  tok->added = heed__allocate(tok->ctx, bytes);
  if (tok->added == NULL) return heed__fail_memory(tok->ctx, "load", bytes);
  for (int i = 0; i < count; i++) {
    const int32_t id = heed__vocabulary_find(&tok->vocabulary, names[i], strlen(names[i]));
    if (id >= 0) tok->added[tok->added_count++] = (heed__added){.id = id, .special = true};
  }
  return HEED_OK;
}

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

heed_status heed__tokenizer_read_pairs(heed_tokenizer *tok, const char *where, const char *vocab,
                                       const char *merges) {
  static const char *const special[] = {"<|endoftext|>"};
  heed_context *ctx = tok->ctx;
  heed__json_file f;
  heed_tensor *lines = NULL;
  heed_status status = heed__json_file_load(ctx, where, vocab, &f);
  if (status != HEED_OK) return status;
  const heed__json_node *root = heed__json_at(&f, 1);
  size_t bytes = 0;
  uint32_t i = 0;
  if (root->kind != HEED__JSON_OBJECT)
    status = heed__fail(ctx, HEED_FILE, "%s: vocab.json is no object", where);
  for (i = root->u.first; i > 0 && status == HEED_OK; i = f.nodes[i].next) bytes += f.nodes[i].key_size;
  if (status == HEED_OK)
    status = heed__vocabulary_begin(&tok->vocabulary, ctx, (int32_t)(root->size & 0xffffff), bytes);
  for (i = root->u.first; i > 0 && status == HEED_OK; i = f.nodes[i].next) {
    const heed__json_node *node = &f.nodes[i];
    const int32_t id = node->kind == HEED__JSON_NUMBER && node->u.number >= 0 && node->u.number < 0x1000000
                           ? (int32_t)node->u.number
                           : -1;
    if (!heed__vocabulary_add(&tok->vocabulary, id, node->key, node->key_size))
      status = heed__fail(
          ctx, HEED_FILE, "%s: the ids of vocab.json must be 0 to %lu, each once; token '%.*s' differs",
          where, (unsigned long)root->size - 1, (int)(node->key_size < 80 ? node->key_size : 80), node->key);
  }
  tok->byte_level = true;
  heed__step_add(&tok->decoders, HEED__DECODE_BYTES);
  if (status == HEED_OK) status = heed__add_pattern(tok, where, HEED__SPLIT_BYTES, heed__gpt2_pattern);
  if (status == HEED_OK) status = heed__map_bytes(ctx, merges, &lines);
  if (status == HEED_OK) status = check_vocabulary_text(ctx, where, lines->data, (size_t)lines->numel);
  if (status == HEED_OK) status = read_merge_lines(tok, where, lines->data, (size_t)lines->numel);
  if (status == HEED_OK) status = heed__bpe_prepare(tok);
  if (status == HEED_OK) status = mark_special(tok, special, 1);
  heed_tensor_free(lines);
  heed__json_file_free(&f);
  return status;
}

heed_status heed__tokenizer_set_bert(heed_tokenizer *tok, const char *where) {
  static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  static const heed__step_kind normal[] = {HEED__CLEAN, HEED__CHINESE, HEED__NFD, HEED__STRIP_ACCENTS,
                                           HEED__LOWERCASE};
  heed_context *ctx = tok->ctx;
  for (int i = 0; i < 5; i++) heed__step_add(&tok->normalizers, normal[i]);
  heed__step_add(&tok->splits, HEED__SPLIT_SPACE)->behavior = HEED__REMOVED;
  heed__step_add(&tok->splits, HEED__SPLIT_PUNCTUATION);
  heed__step *step = heed__step_add(&tok->decoders, HEED__DECODE_WORDPIECE);
  step->left = true;
  step->size = 2;
  heed_status status = heed__text_copy(ctx, "##", 2, &step->text);
  if (status == HEED_OK) status = heed__text_copy(ctx, "##", 2, &tok->prefix);
  tok->model = HEED__WORDPIECE;
  tok->longest_word = 100;
  if (status == HEED_OK) status = mark_special(tok, special, 5);
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
  if (status == HEED_OK) status = heed__tokenizer_set_bert(tok, where);
  heed_tensor_free(file);
  return status;
}
