/* Splitting of tokenizers: a text is divided into words, step by step. */
#include "text.h"

#include <string.h>

typedef struct splitter {
  heed_tokenizer *tok;
  const char *function;
  const heed__step *step;
  const char *text; /* the text that the spans are in */
  heed__bytes *out; /* heed__text_span */
  int64_t count;
} splitter;

static heed_status add_span(splitter *s, size_t begin, size_t end) {
  const heed__text_span span = {begin, end};
  if (begin == end) return HEED_OK;
  if (heed__is_due_at(&s->tok->ctx->pace, s->count++)) return heed__stopped(s->tok->ctx, s->function);
  return heed__bytes_put(s->tok->ctx, s->function, s->out, &span, sizeof(span));
}

/* The next part of [*at, end), which is a match or the text up to one. Errors: as heed__regex_find. */
static heed_status next_matched_part(splitter *s, size_t *at, size_t end, heed__text_span *match,
                                     bool *is_match, heed__text_span *part) {
  bool found;
  heed_status status = HEED_OK;
  if (match->begin < *at || match->end <= *at) { /* the last match is used up */
    status = heed__regex_find(s->step->regex, s->function, s->text, end, *at, &found, match);
    if (status == HEED_OK && !found) *match = (heed__text_span){end, end + 1};
  }
  *is_match = match->begin == *at;
  *part = *is_match ? *match : (heed__text_span){*at, match->begin};
  *at = part->end;
  return status;
}

static bool is_punctuation(int32_t c) {
  const heed__category category = heed__older_category(c);
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~') || (category >= 12 && category <= 18);
}

/* The same for steps that test single characters: each is a match, or, in MERGED and CONTIGUOUS runs, part of
 * one. */
static bool next_character(const splitter *s, size_t *at, size_t end, heed__text_span *part) {
  int32_t c;
  const size_t start = *at;
  bool first = false;
  while (*at < end) {
    const size_t length = heed__text_character(s->text + *at, end - *at, &c);
    const heed__category category = heed__category_of(c);
    const bool is = s->step->kind == HEED__SPLIT_DIGITS        ? category >= 9 && category <= 11
                    : s->step->kind == HEED__SPLIT_PUNCTUATION ? is_punctuation(c)
                                                               : heed__is_white(c);
    if (*at == start) {
      first = is;
      *at += length;
      if (is && s->step->behavior != HEED__CONTIGUOUS) break;
      continue;
    }
    if (is != first) break;
    *at += length;
  }
  *part = (heed__text_span){start, *at};
  return first;
}

/* Divides one span as the step's behavior has it. */
static heed_status split_span(splitter *s, heed__text_span span) {
  const heed__step *step = s->step;
  heed__text_span match = {0, 0}, part, last = {span.begin, span.begin};
  bool is_match, last_is = false, any = false;
  for (size_t at = span.begin; at < span.end;) {
    heed_status status = HEED_OK;
    if (step->regex != NULL)
      status = next_matched_part(s, &at, span.end, &match, &is_match, &part);
    else
      is_match = next_character(s, &at, span.end, &part);
    is_match = is_match != step->invert;
    if (status != HEED_OK) return status;
    bool joins = false;
    switch (step->behavior) {
    case HEED__ISOLATED: break;
    case HEED__REMOVED:
      if (is_match) continue;
      break;
    case HEED__MERGED_WITH_PREVIOUS: joins = any && is_match && !last_is; break;
    case HEED__MERGED_WITH_NEXT: joins = any && !is_match && last_is; break;
    case HEED__CONTIGUOUS: joins = any && is_match == last_is; break;
    }
    if (joins) {
      last.end = part.end;
    } else {
      status = add_span(s, last.begin, last.end);
      if (status != HEED_OK) return status;
      last = part;
    }
    last_is = is_match;
    any = true;
  }
  return add_span(s, last.begin, last.end);
}

/* Rewrites the text with `insert` at the beginning of the words that need it, and, for METASPACE, with the
 * replacement for spaces. */
static heed_status rewrite_words(splitter *s, heed__bytes *text, heed__bytes *words, bool at_start) {
  heed_tokenizer *tok = s->tok;
  const heed__step *step = s->step;
  const bool meta = step->kind == HEED__SPLIT_METASPACE;
  const size_t count = words->size / sizeof(heed__text_span);
  heed__bytes *out = &tok->other;
  heed_status status = HEED_OK;
  out->size = 0;
  for (size_t i = 0; i < count && status == HEED_OK; i++) {
    heed__text_span *span = (heed__text_span *)(void *)words->data + i;
    const char *p = text->data + span->begin, *const end = text->data + span->end;
    const size_t begin = out->size, room = (size_t)(end - p);
    const bool spaced = *p == ' ' || (meta && room >= step->size && memcmp(p, step->text, step->size) == 0);
    const bool wanted = meta ? step->first == 2 || (step->first == 1 && at_start && i == 0) : step->left;
    if (wanted && !spaced)
      status = heed__bytes_put(tok->ctx, s->function, out, meta ? step->text : " ", meta ? step->size : 1);
    while (p < end && status == HEED_OK) {
      const char *space = meta ? memchr(p, ' ', (size_t)(end - p)) : NULL;
      status = heed__bytes_put(tok->ctx, s->function, out, p, (size_t)((space ? space : end) - p));
      if (space && status == HEED_OK)
        status = heed__bytes_put(tok->ctx, s->function, out, step->text, step->size);
      p = space ? space + 1 : end;
    }
    *span = (heed__text_span){begin, out->size};
    if (heed__is_due_at(&tok->ctx->pace, (int64_t)i)) status = heed__stopped(tok->ctx, s->function);
  }
  const heed__bytes other = *text;
  *text = *out;
  *out = other;
  return status;
}

heed_status heed__split_words(heed_tokenizer *tok, const char *function, heed__bytes *text, bool at_start) {
  splitter s = {.tok = tok, .function = function};
  heed__bytes *words = &tok->words, *next = &tok->words_other;
  const heed__text_span whole = {0, text->size};
  words->size = 0;
  heed_status status =
      text->size > 0 ? heed__bytes_put(tok->ctx, function, words, &whole, sizeof(whole)) : HEED_OK;
  for (int i = 0; i < tok->splits.count && status == HEED_OK; i++) {
    s.step = &tok->splits.step[i];
    if ((s.step->kind == HEED__SPLIT_BYTES && s.step->left) || s.step->kind == HEED__SPLIT_METASPACE)
      status = rewrite_words(&s, text, words, at_start);
    if (s.step->kind == HEED__SPLIT_BYTES || (s.step->kind == HEED__SPLIT_METASPACE && !s.step->left)) {
      if (s.step->regex == NULL) continue;
    }
    s.text = text->data;
    s.out = next;
    next->size = 0;
    for (size_t w = 0; w < words->size / sizeof(heed__text_span) && status == HEED_OK; w++)
      status = split_span(&s, ((const heed__text_span *)(const void *)words->data)[w]);
    const heed__bytes other = *words;
    *words = *next;
    *next = other;
  }
  return status;
}
