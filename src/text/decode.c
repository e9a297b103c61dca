/* Decoding of tokenizers: tokens become text, step by step. */
#include "text.h"

#include <string.h>

typedef struct decoding {
  heed_tokenizer *tok;
  const char *function;
  heed__bytes text, spans, text_out, spans_out; /* tokens: heed__text_span in text */
} decoding;

static heed_status end_token(decoding *d, size_t begin) {
  const heed__text_span span = {begin, d->text_out.size};
  return heed__bytes_put(d->tok->ctx, d->function, &d->spans_out, &span, sizeof(span));
}

static heed_status put_text(decoding *d, const void *text, size_t size) {
  return heed__bytes_put(d->tok->ctx, d->function, &d->text_out, text, size);
}

/* Appends bytes as UTF-8; each longest part that could begin a character, but does not, becomes U+FFFD, as in
 * Rust's from_utf8_lossy. Source: Unicode 15, section 3.9, "U+FFFD Substitution of Maximal Subparts". */
static heed_status put_lossy(heed_context *ctx, const char *function, const char *text, size_t size,
                             heed__bytes *out) {
  heed_status status = HEED_OK;
  for (size_t at = 0; at < size && status == HEED_OK;) {
    const size_t step = heed__text_step(text + at, size - at), wrong = heed__text_check(text + at, step);
    const size_t valid = wrong > 0 ? wrong - 1 : step;
    status = heed__bytes_put(ctx, function, out, text + at, valid);
    at += valid;
    if (status == HEED_OK && heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
    if (wrong == 0 || status != HEED_OK) continue;
    const unsigned char first = (unsigned char)text[at],
                        second = at + 1 < size ? (unsigned char)text[at + 1] : 0;
    const size_t length = first >= 0xc2 && first <= 0xf4 ? heed__utf8_length((char)first) : 1;
    const int low = first == 0xe0   ? 0xa0
                    : first == 0xf0 ? 0x90
                                    : 0x80,
              high = first == 0xed   ? 0x9f
                     : first == 0xf4 ? 0x8f
                                     : 0xbf;
    size_t part = 1;
    if (length > 1 && second >= low && second <= high)
      for (part = 2; part < length && at + part < size && ((unsigned char)text[at + part] & 0xc0) == 0x80;)
        part++;
    at += part;
    status = heed__bytes_put(ctx, function, out, "\xef\xbf\xbd", 3);
  }
  return status;
}

static bool starts_with(const char *text, size_t size, const char *start, size_t start_size) {
  return size >= start_size && memcmp(text, start, start_size) == 0;
}

/* ---- The steps ---- */

static heed_status decode_bytes(decoding *d) {
  heed__bytes bytes = {0};
  heed_status status = HEED_OK;
  const heed__text_span *span = (const heed__text_span *)(const void *)d->spans.data;
  for (size_t i = 0; i < d->spans.size / sizeof(*span) && status == HEED_OK; i++) {
    status = heed__alphabet_read(d->tok->ctx, d->function, d->text.data + span[i].begin,
                                 span[i].end - span[i].begin, &bytes);
    if (heed__is_due_at(&d->tok->ctx->pace, (int64_t)i)) status = heed__stopped(d->tok->ctx, d->function);
  }
  if (status == HEED_OK) status = put_lossy(d->tok->ctx, d->function, bytes.data, bytes.size, &d->text_out);
  heed__release(d->tok->ctx, bytes.data);
  return status == HEED_OK ? end_token(d, 0) : status;
}

/* BERT's replacements at the borders of tokens. */
static heed_status put_cleaned(decoding *d, const char *text, size_t size) {
  static const char *const seams[][2] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  const size_t start = d->text_out.size;
  heed_status status = put_text(d, text, size);
  for (size_t s = 0; s < sizeof(seams) / sizeof(*seams) && status == HEED_OK; s++) {
    const size_t from = strlen(seams[s][0]), to = strlen(seams[s][1]);
    char *p = d->text_out.data + start;
    size_t left = d->text_out.size - start;
    for (size_t i = 0; i + from <= left;) {
      if (memcmp(p + i, seams[s][0], from) != 0) {
        i++;
        continue;
      }
      memcpy(p + i, seams[s][1], to);
      memmove(p + i + to, p + i + from, left - i - from);
      left -= from - to;
      i += to;
    }
    d->text_out.size = start + left;
  }
  return status;
}

static heed_status decode_token(decoding *d, const heed__step *step, size_t i, const char *text, size_t size,
                                bool last) {
  heed_status status = HEED_OK;
  size_t begin = 0;
  heed__bytes joined = {0};
  switch (step->kind) {
  case HEED__DECODE_WORDPIECE:
    if (i > 0 && starts_with(text, size, step->text, step->size))
      status = heed__bytes_put(d->tok->ctx, d->function, &joined, text + step->size, size - step->size);
    else {
      if (i > 0) status = heed__bytes_put(d->tok->ctx, d->function, &joined, " ", 1);
      if (status == HEED_OK) status = heed__bytes_put(d->tok->ctx, d->function, &joined, text, size);
    }
    if (status == HEED_OK)
      status = step->left ? put_cleaned(d, joined.data, joined.size) : put_text(d, joined.data, joined.size);
    heed__release(d->tok->ctx, joined.data);
    return status;
  case HEED__DECODE_METASPACE:
    for (; begin < size && status == HEED_OK;) {
      if (!starts_with(text + begin, size - begin, step->text, step->size)) {
        status = put_text(d, text + begin++, 1);
        continue;
      }
      if (!(i == 0 && step->first != 0 && begin == 0)) status = put_text(d, " ", 1);
      begin += step->size;
    }
    return status;
  case HEED__DECODE_STRIP: {
    size_t end = size;
    for (int n = 0; n < step->first && starts_with(text + begin, end - begin, step->text, step->size); n++)
      begin += step->size;
    for (int n = 0; n < step->last && end - begin >= step->size &&
                    memcmp(text + end - step->size, step->text, step->size) == 0;
         n++)
      end -= step->size;
    return put_text(d, text + begin, end - begin);
  }
  case HEED__DECODE_SUFFIX:
    if (size < step->size || memcmp(text + size - step->size, step->text, step->size) != 0)
      return put_text(d, text, size);
    status = put_text(d, text, size - step->size);
    return status == HEED_OK && !last ? put_text(d, " ", 1) : status;
  case HEED__REPLACE:
    while (status == HEED_OK) {
      bool found;
      heed__text_span match;
      status = heed__regex_find(step->regex, d->function, text, size, begin, &found, &match);
      if (status != HEED_OK || !found) break;
      status = put_text(d, text + begin, match.begin - begin);
      if (status == HEED_OK) status = put_text(d, step->text, step->size);
      begin = match.end;
    }
    return status == HEED_OK ? put_text(d, text + begin, size - begin) : status;
  default: return put_text(d, text, size);
  }
}

static int byte_of_token(const char *text, size_t size) {
  static const char digits[] = "0123456789ABCDEF";
  if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
  const char *high = memchr(digits, text[3] & ~32 ? text[3] >= 'a' ? text[3] - 32 : text[3] : 0, 16),
             *low = memchr(digits, text[4] >= 'a' ? text[4] - 32 : text[4], 16);
  return high == NULL || low == NULL ? -1 : (int)(high - digits) * 16 + (int)(low - digits);
}

/* Runs of byte tokens become text; if a run is no UTF-8, U+FFFD for each byte. */
static heed_status decode_fallback(decoding *d) {
  const size_t count = d->spans.size / sizeof(heed__text_span);
  const heed__text_span *span = (const heed__text_span *)(const void *)d->spans.data;
  heed__bytes run = {0};
  heed_status status = HEED_OK;
  for (size_t i = 0; i <= count && status == HEED_OK; i++) {
    const char *text = i < count ? d->text.data + span[i].begin : "";
    const size_t size = i < count ? span[i].end - span[i].begin : 0, begin = d->text_out.size;
    const int byte = i < count ? byte_of_token(text, size) : -1;
    if (heed__is_due_at(&d->tok->ctx->pace, (int64_t)i)) status = heed__stopped(d->tok->ctx, d->function);
    if (status == HEED_OK && byte >= 0) {
      const char c = (char)byte;
      status = heed__bytes_put(d->tok->ctx, d->function, &run, &c, 1);
      continue;
    }
    if (status == HEED_OK && run.size > 0) {
      const bool valid = heed__text_check(run.data, run.size) == 0;
      if (valid) status = put_text(d, run.data, run.size);
      for (size_t k = 0; k < run.size && !valid && status == HEED_OK; k++)
        status = put_text(d, "\xef\xbf\xbd", 3);
      run.size = 0;
      if (status == HEED_OK) status = end_token(d, begin);
    }
    if (status != HEED_OK || i == count) continue;
    const size_t at = d->text_out.size;
    status = put_text(d, text, size);
    if (status == HEED_OK) status = end_token(d, at);
  }
  heed__release(d->tok->ctx, run.data);
  return status;
}

static heed_status run_decoder(decoding *d, const heed__step *step) {
  const size_t count = d->spans.size / sizeof(heed__text_span);
  heed_status status = HEED_OK;
  d->text_out.size = d->spans_out.size = 0;
  if (step->kind == HEED__DECODE_BYTES) {
    status = decode_bytes(d);
  } else if (step->kind == HEED__DECODE_FALLBACK) {
    status = decode_fallback(d);
  } else if (step->kind == HEED__DECODE_FUSE) {
    status = put_text(d, d->text.data, d->text.size);
    if (status == HEED_OK) status = end_token(d, 0);
  } else {
    for (size_t i = 0; i < count && status == HEED_OK; i++) {
      const heed__text_span span = ((const heed__text_span *)(const void *)d->spans.data)[i];
      const size_t begin = d->text_out.size;
      status = decode_token(d, step, i, d->text.data + span.begin, span.end - span.begin, i + 1 == count);
      if (status == HEED_OK) status = end_token(d, begin);
      if (heed__is_due_at(&d->tok->ctx->pace, (int64_t)i)) status = heed__stopped(d->tok->ctx, d->function);
    }
  }
  const heed__bytes text = d->text, spans = d->spans;
  d->text = d->text_out;
  d->spans = d->spans_out;
  d->text_out = text;
  d->spans_out = spans;
  return status;
}

heed_status heed__decode(heed_tokenizer *tok, const char *function, const int64_t *ids, int64_t count,
                         bool skip_special, heed__bytes *out) {
  decoding d = {.tok = tok, .function = function};
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < count && status == HEED_OK; i++) {
    size_t size;
    const char *text = heed__vocabulary_text(&tok->vocabulary, ids[i], &size);
    if (text == NULL) {
      status = heed__fail(tok->ctx, HEED_INDEX, "%s: id %lld is not in the vocabulary of %ld tokens",
                          function, (long long)ids[i], (long)tok->vocabulary.count);
      break;
    }
    if (heed__is_due_at(&tok->ctx->pace, i)) status = heed__stopped(tok->ctx, function);
    if (status != HEED_OK || (skip_special && tok->is_added != NULL && tok->is_added[ids[i]] == 2)) continue;
    const size_t begin = d.text_out.size;
    status = put_text(&d, text, size);
    if (status == HEED_OK) status = end_token(&d, begin);
  }
  d.text = d.text_out;
  d.spans = d.spans_out;
  d.text_out = d.spans_out = (heed__bytes){0};
  for (int i = 0; i < tok->decoders.count && status == HEED_OK; i++)
    status = run_decoder(&d, &tok->decoders.step[i]);
  const size_t tokens = d.spans.size / sizeof(heed__text_span);
  for (size_t i = 0; i < tokens && status == HEED_OK; i++) {
    const heed__text_span span = ((const heed__text_span *)(const void *)d.spans.data)[i];
    if (i > 0 && tok->decoders.count == 0) status = heed__bytes_put(tok->ctx, function, out, " ", 1);
    if (status == HEED_OK)
      status = heed__bytes_put(tok->ctx, function, out, d.text.data + span.begin, span.end - span.begin);
  }
  heed__release(tok->ctx, d.text.data);
  heed__release(tok->ctx, d.spans.data);
  heed__release(tok->ctx, d.text_out.data);
  heed__release(tok->ctx, d.spans_out.data);
  return status;
}
