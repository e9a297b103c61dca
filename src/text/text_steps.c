/* Normalisation of tokenizers: the steps that change a text before it is divided. */
#include "text.h"

#include <string.h>

static void swap_bytes(heed__bytes *a, heed__bytes *b) {
  const heed__bytes other = *a;
  *a = *b;
  *b = other;
}

/* Normalises a run of characters that begins with at most one of ASCII. */
static heed_status normalize_run(heed_context *ctx, const char *function, const heed__step *step,
                                 const char *text, size_t size, heed__bytes *scratch, heed__bytes *out) {
  const bool compatible = step->kind == HEED__NFKD || step->kind == HEED__NFKC;
  const size_t growth = compatible ? 11 : 3;
  size_t written = 0;
  heed_status status = heed__bytes_reserve(ctx, function, out, heed__array_bytes(size, growth));
  if (status == HEED_OK)
    status = heed__bytes_reserve(ctx, function, scratch, heed__array_bytes(size, 4 * (growth + 1)));
  if (status != HEED_OK) return status;
  char *const at = out->data + out->size;
  status = heed__text_decompose(ctx, function, text, size, compatible, (int32_t *)(void *)scratch->data, at,
                                &written);
  if (status == HEED_OK && (step->kind == HEED__NFC || step->kind == HEED__NFKC))
    written = heed__text_compose(at, written, (int32_t *)(void *)scratch->data);
  out->size += written;
  return status;
}

/* The end of the characters beyond ASCII from `at` on, before the first that is not normalised: *length is
 * its length, 0 if there is none. */
static size_t end_of_run(const heed__bytes *text, size_t at, size_t *length) {
  int32_t c;
  for (*length = 0; at < text->size && (text->data[at] & 0x80); at += *length) {
    *length = heed__text_character(text->data + at, text->size - at, &c);
    if (!heed__is_normalised(c)) return at;
  }
  *length = 0;
  return at;
}

static heed_status normalize_unicode(heed_tokenizer *tok, const char *function, const heed__step *step,
                                     const heed__bytes *text, heed__bytes *out) {
  heed_status status = HEED_OK;
  for (size_t at = 0; at < text->size && status == HEED_OK;) {
    size_t plain = at, kept;
    while (plain < text->size && !(text->data[plain] & 0x80)) plain++;
    const size_t stop = end_of_run(text, plain, &kept);
    if (plain > at && stop > plain) plain--; /* marks may follow the last one */
    status = heed__bytes_put(tok->ctx, function, out, text->data + at, plain - at);
    if (status == HEED_OK && stop > plain)
      status = normalize_run(tok->ctx, function, step, text->data + plain, stop - plain, &tok->work, out);
    if (status == HEED_OK) status = heed__bytes_put(tok->ctx, function, out, text->data + stop, kept);
    if (status == HEED_OK && heed__is_due(&tok->ctx->pace)) status = heed__stopped(tok->ctx, function);
    at = stop + kept;
  }
  return status;
}

static bool is_chinese(int32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* What a step that works on single characters makes of one: its bytes, or those of `to`. */
static size_t change_character(const heed__step *step, int32_t c, const char *text, size_t length,
                               char to[8]) {
  const uint32_t category = UINT32_C(1) << heed__older_category(c);
  memcpy(to, text, length);
  switch (step->kind) {
  case HEED__LOWERCASE: return heed__text_lower(text, length, to);
  case HEED__STRIP_ACCENTS: return category & (step->left ? 0x1c0u : 0x40u) ? 0 : length;
  case HEED__CLEAN:
    if (c == '\t' || c == '\n' || c == '\r' || (category & 0x3800000u)) {
      *to = ' ';
      return 1;
    }
    return c == 0 || c == 0xfffd || (category & 0x2c000000u) ? 0 : length; /* Cc, Cf, Co */
  case HEED__CHINESE:
    if (!is_chinese(c)) return length;
    to[0] = to[length + 1] = ' ';
    memcpy(to + 1, text, length);
    return length + 2;
  default: return length;
  }
}

static heed_status change_characters(heed_tokenizer *tok, const char *function, const heed__step *step,
                                     const heed__bytes *text, heed__bytes *out) {
  heed_status status = HEED_OK;
  int64_t steps = 0;
  for (size_t at = 0, length; at < text->size && status == HEED_OK; at += length) {
    char to[8];
    int32_t c;
    length = heed__text_character(text->data + at, text->size - at, &c);
    status =
        heed__bytes_put(tok->ctx, function, out, to, change_character(step, c, text->data + at, length, to));
    if (status == HEED_OK && heed__is_due_at(&tok->ctx->pace, steps++))
      status = heed__stopped(tok->ctx, function);
  }
  return status;
}

static bool is_space_at(const char *text, size_t size, size_t *length) {
  int32_t c;
  *length = heed__text_character(text, size, &c);
  return heed__is_white(c);
}

static void strip_spaces(const heed__step *step, const heed__bytes *text, size_t *begin, size_t *end) {
  size_t length;
  while (step->left && *begin < *end && is_space_at(text->data + *begin, *end - *begin, &length))
    *begin += length;
  while (step->right && *begin < *end) {
    size_t last = *end - 1;
    while (((unsigned char)text->data[last] & 0xc0) == 0x80) last--;
    if (!is_space_at(text->data + last, *end - last, &length)) break;
    *end = last;
  }
}

static heed_status replace_matches(heed_tokenizer *tok, const char *function, const heed__step *step,
                                   const heed__bytes *text, heed__bytes *out) {
  size_t at = 0;
  for (;;) {
    bool found;
    heed__text_span match;
    heed_status status = heed__regex_find(step->regex, function, text->data, text->size, at, &found, &match);
    if (status != HEED_OK) return status;
    if (!found) break;
    status = heed__bytes_put(tok->ctx, function, out, text->data + at, match.begin - at);
    if (status == HEED_OK) status = heed__bytes_put(tok->ctx, function, out, step->text, step->size);
    if (status != HEED_OK) return status;
    at = match.end;
  }
  return heed__bytes_put(tok->ctx, function, out, text->data + at, text->size - at);
}

heed_status heed__normalize(heed_tokenizer *tok, const char *function, heed__bytes *text) {
  heed__bytes *out = &tok->other;
  heed_status status = HEED_OK;
  for (int i = 0; i < tok->normalizers.count && status == HEED_OK; i++) {
    const heed__step *step = &tok->normalizers.step[i];
    size_t begin = 0, end = text->size;
    out->size = 0;
    switch (step->kind) {
    case HEED__NFD:
    case HEED__NFC:
    case HEED__NFKD:
    case HEED__NFKC: status = normalize_unicode(tok, function, step, text, out); break;
    case HEED__STRIP:
      strip_spaces(step, text, &begin, &end);
      status = heed__bytes_put(tok->ctx, function, out, text->data + begin, end - begin);
      break;
    case HEED__PREPEND:
      if (text->size > 0) status = heed__bytes_put(tok->ctx, function, out, step->text, step->size);
      if (status == HEED_OK) status = heed__bytes_put(tok->ctx, function, out, text->data, text->size);
      break;
    case HEED__PRECOMPILED: status = heed__rewrite_precompiled(tok, function, step, text, out); break;
    case HEED__REPLACE: status = replace_matches(tok, function, step, text, out); break;
    default: status = change_characters(tok, function, step, text, out); break;
    }
    swap_bytes(text, out);
  }
  return status;
}
