/* SentencePiece models: tables, encoding and decoding. */
#include "text.h"

#include <float.h>
#include <string.h>

#define FUNCTION_LOAD "load"

heed_status heed__bytes_reserve(heed_context *ctx, const char *function, heed__bytes *b, size_t more) {
  if (more <= b->capacity - b->size) return HEED_OK;
  const size_t least = heed__array_bytes((uint64_t)b->size + more, 1);
  const size_t capacity = least < PTRDIFF_MAX / 2 ? least + least / 2 + 64 : least;
  char *data = heed__allocate(ctx, capacity);
  if (data == NULL) return heed__fail_memory(ctx, function, capacity);
  if (b->size > 0) memcpy(data, b->data, b->size);
  heed__release(ctx, b->data);
  b->data = data;
  b->capacity = capacity;
  return HEED_OK;
}

/* ---- Tables ---- */

static uint32_t hash_of_piece(const heed__spm *spm, const char *text, size_t size) {
  return (uint32_t)(heed__quick_hash(spm->key, text, size) >> 32);
}

static bool is_text_piece(const heed__piece *piece) {
  return piece->type == HEED__PIECE_NORMAL || piece->type == HEED__PIECE_USER ||
         piece->type == HEED__PIECE_UNUSED;
}

static int32_t find_in_table(const heed__spm *spm, const uint32_t *table, uint32_t mask, const char *text,
                             size_t size) {
  const uint32_t hash = hash_of_piece(spm, text, size);
  for (uint32_t at = hash & mask; table[at] > 0; at = (at + 1) & mask) {
    const uint32_t id = table[at] - 1;
    if (spm->hashes[id] == hash && spm->pieces[id].size == size &&
        memcmp(spm->pieces[id].text, text, size) == 0)
      return (int32_t)id;
  }
  return -1;
}

int32_t heed__spm_find(const heed__spm *spm, const char *text, size_t size) {
  return find_in_table(spm, spm->table, spm->mask, text, size);
}

int32_t heed__spm_id(const heed__spm *spm, const char *text, size_t size) {
  int32_t id = find_in_table(spm, spm->reserved, spm->reserved_mask, text, size);
  if (id < 0) id = heed__spm_find(spm, text, size);
  return id >= 0 ? id : spm->unknown;
}

static heed_status make_table(heed__spm *spm, uint64_t count, uint32_t **table, uint32_t *mask) {
  uint64_t capacity = 8;
  while (capacity < 2 * count) capacity *= 2;
  const size_t bytes = heed__array_bytes(capacity, sizeof(uint32_t));
  *table = heed__allocate(spm->ctx, bytes);
  if (*table == NULL) return heed__fail_memory(spm->ctx, FUNCTION_LOAD, bytes);
  memset(*table, 0, bytes);
  *mask = (uint32_t)(capacity - 1);
  return HEED_OK;
}

static heed_status fill_tables(heed__spm *spm, const char *where) {
  heed_status status = HEED_OK;
  for (int32_t id = 0; id < spm->count && status == HEED_OK; id++) {
    const heed__piece *piece = &spm->pieces[id];
    uint32_t *table = is_text_piece(piece) ? spm->table : spm->reserved;
    const uint32_t mask = is_text_piece(piece) ? spm->mask : spm->reserved_mask;
    const int32_t twin = find_in_table(spm, table, mask, piece->text, piece->size);
    if (twin >= 0)
      return heed__fail(spm->ctx, HEED_FILE, "%s: pieces %ld and %ld (from 0) are the same", where,
                        (long)twin, (long)id);
    spm->hashes[id] = hash_of_piece(spm, piece->text, piece->size);
    uint32_t at = spm->hashes[id] & mask;
    while (table[at] > 0) at = (at + 1) & mask;
    table[at] = (uint32_t)id + 1;
    if (heed__is_due_at(&spm->ctx->pace, id)) status = heed__stopped(spm->ctx, FUNCTION_LOAD);
  }
  return status;
}

/* The value of "<0x41>"; -1 if it is no such piece. */
static int byte_of_piece(const heed__piece *piece) {
  static const char digits[] = "0123456789ABCDEF";
  if (piece->size != 6 || memcmp(piece->text, "<0x", 3) != 0 || piece->text[5] != '>') return -1;
  const char *high = memchr(digits, piece->text[3], 16), *low = memchr(digits, piece->text[4], 16);
  return high == NULL || low == NULL ? -1 : (int)(high - digits) * 16 + (int)(low - digits);
}

/* Reads types and scores. */
static heed_status scan_pieces(heed__spm *spm, const char *where, uint64_t *texts, uint64_t *symbols) {
  heed_context *ctx = spm->ctx;
  *texts = *symbols = 0;
  if (!spm->plain) spm->unknown = -1;
  spm->min_score = FLT_MAX;
  spm->max_score = FLT_MIN; /* as SentencePiece has it: the smallest positive number */
  for (int i = 0; i < 256; i++) spm->bytes[i] = -1;
  for (int32_t id = 0; id < spm->count; id++) {
    const heed__piece *piece = &spm->pieces[id];
    if (heed__is_due_at(&ctx->pace, id)) return heed__stopped(ctx, FUNCTION_LOAD);
    if (spm->plain && byte_of_piece(piece) >= 0) spm->bytes[byte_of_piece(piece)] = id;
    if (piece->size == 0)
      return heed__fail(ctx, HEED_FILE, "%s: piece %ld (from 0) is empty", where, (long)id);
    if (memchr(piece->text, 0, piece->size) != NULL)
      return heed__fail(ctx, HEED_FILE, "%s: piece %ld (from 0) contains the byte 0", where, (long)id);
    if (!(piece->score >= -FLT_MAX && piece->score <= FLT_MAX))
      return heed__fail(ctx, HEED_FILE, "%s: the score of piece %ld (from 0) is not finite", where, (long)id);
    if (is_text_piece(piece)) *texts += 1;
    if (piece->type == HEED__PIECE_USER) *symbols += 1;
    if (piece->type == HEED__PIECE_UNUSED) spm->any_unused = true;
    if (piece->type == HEED__PIECE_UNKNOWN) {
      if (spm->unknown >= 0)
        return heed__fail(ctx, HEED_FILE, "%s: pieces %ld and %ld (from 0) are both the unknown piece", where,
                          (long)spm->unknown, (long)id);
      spm->unknown = id;
    } else if (piece->type == HEED__PIECE_BYTE) {
      const int byte = byte_of_piece(piece);
      if (byte < 0)
        return heed__fail(ctx, HEED_FILE, "%s: byte piece %ld (from 0) must be written as <0x0A>", where,
                          (long)id);
      spm->bytes[byte] = id;
    } else if (piece->type == HEED__PIECE_NORMAL) {
      if (piece->score < spm->min_score) spm->min_score = piece->score;
      if (piece->score > spm->max_score) spm->max_score = piece->score;
    }
  }
  if (spm->unknown < 0) return heed__fail(ctx, HEED_FILE, "%s: there is no unknown piece", where);
  for (int i = 0; i < 256 && spm->byte_fallback && spm->plain; i++)
    if (spm->bytes[i] < 0) spm->byte_fallback = false; /* as in tokenizers */
  for (int i = 0; i < 256 && spm->byte_fallback; i++)
    if (spm->bytes[i] < 0)
      return heed__fail(ctx, HEED_FILE, "%s: it falls back on bytes, but has no piece <0x%02X>", where,
                        (unsigned)i);
  return HEED_OK;
}

static heed_status build_trie(heed__spm *spm, uint64_t count, bool symbols_only, heed__trie *out) {
  const size_t bytes = heed__array_bytes(count, sizeof(heed__trie_key));
  if (count == 0) return HEED_OK;
  heed__trie_key *keys = heed__allocate(spm->ctx, bytes);
  if (keys == NULL) return heed__fail_memory(spm->ctx, FUNCTION_LOAD, bytes);
  size_t used = 0;
  for (int32_t id = 0; id < spm->count; id++) {
    const heed__piece *piece = &spm->pieces[id];
    if (symbols_only ? piece->type == HEED__PIECE_USER : is_text_piece(piece))
      keys[used++] = (heed__trie_key){piece->text, piece->size, id};
  }
  const heed_status status = heed__trie_build(spm->ctx, FUNCTION_LOAD, keys, used, out);
  heed__release(spm->ctx, keys);
  return status;
}

heed_status heed__spm_prepare(heed__spm *spm, const char *where) {
  uint64_t texts, symbols;
  heed_status status = scan_pieces(spm, where, &texts, &symbols);
  if (status != HEED_OK) return status;
  heed__quick_key(spm, spm->key);
  const size_t bytes = heed__array_bytes((uint64_t)spm->count, sizeof(uint32_t));
  spm->hashes = heed__allocate(spm->ctx, bytes);
  if (spm->hashes == NULL) return heed__fail_memory(spm->ctx, FUNCTION_LOAD, bytes);
  status = make_table(spm, texts, &spm->table, &spm->mask);
  if (status == HEED_OK)
    status = make_table(spm, (uint64_t)spm->count - texts, &spm->reserved, &spm->reserved_mask);
  if (status == HEED_OK) status = fill_tables(spm, where);
  if (status == HEED_OK) status = build_trie(spm, symbols, true, &spm->symbols);
  if (status == HEED_OK && spm->kind == HEED__SPM_UNIGRAM)
    status = texts > 0 ? build_trie(spm, texts, false, &spm->trie)
                       : heed__fail(spm->ctx, HEED_FILE, "%s: there are no pieces of text", where);
  return status;
}

void heed__spm_free(heed__spm *spm) {
  if (spm == NULL) return;
  heed_context *ctx = spm->ctx;
  heed__release(ctx, spm->pieces);
  heed__release(ctx, spm->table);
  heed__release(ctx, spm->reserved);
  heed__release(ctx, spm->hashes);
  heed__release(ctx, (void *)(uintptr_t)spm->charsmap.units);
  heed__release(ctx, (void *)(uintptr_t)spm->symbols.units);
  heed__release(ctx, (void *)(uintptr_t)spm->trie.units);
  heed_tensor_free(spm->file);
  heed__release(ctx, spm);
}

/* ---- Encoding ---- */

heed_status heed__spm_emit(const heed__spm *spm, const char *function, int32_t id, const char *text,
                           size_t size, bool *after_unknown, heed__bytes *ids) {
  const bool unknown = id == spm->unknown;
  heed_status status = HEED_OK;
  if (unknown && spm->byte_fallback) {
    for (size_t i = 0; i < size && status == HEED_OK; i++)
      status = heed__bytes_put(spm->ctx, function, ids, &spm->bytes[(unsigned char)text[i]], sizeof(id));
  } else if (!unknown || !*after_unknown) {
    status = heed__bytes_put(spm->ctx, function, ids, &id, sizeof(id));
  }
  *after_unknown = unknown;
  return status;
}

heed_status heed__spm_encode(const heed__spm *spm, const char *function, const char *text, size_t size,
                             heed__bytes *ids) {
  heed__bytes normal = {0};
  heed_status status = heed__spm_normalize(spm, function, text, size, &normal);
  if (status == HEED_OK && normal.size > 0)
    status = spm->kind == HEED__SPM_BPE ? heed__merges_segment(spm, function, normal.data, normal.size, ids)
                                        : heed__unigram_segment(spm, function, normal.data, normal.size, ids);
  heed__release(spm->ctx, normal.data);
  return status;
}

/* ---- Decoding ---- */

/* Appends bytes of byte pieces; what is no UTF-8 becomes U+FFFD, byte for byte. */
static heed_status flush_bytes(const heed__spm *spm, const char *function, heed__bytes *bytes,
                               heed__bytes *out) {
  heed_status status = HEED_OK;
  for (size_t at = 0, length; at < bytes->size && status == HEED_OK; at += length) {
    length = heed__utf8_length(bytes->data[at]);
    const bool valid = length <= bytes->size - at && heed__text_check(bytes->data + at, length) == 0;
    if (!valid) length = 1;
    status = heed__bytes_put(spm->ctx, function, out, valid ? bytes->data + at : "\xef\xbf\xbd",
                             valid ? length : 3);
  }
  bytes->size = 0;
  return status;
}

/* Appends a piece of text with spaces for U+2581. */
static heed_status append_piece(const heed__spm *spm, const char *function, heed__bytes *out,
                                const char *text, size_t size) {
  heed_status status = heed__bytes_reserve(spm->ctx, function, out, size);
  for (size_t i = 0; i < size && status == HEED_OK;) {
    if (size - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0) {
      out->data[out->size++] = ' ';
      i += 3;
    } else {
      out->data[out->size++] = text[i++];
    }
  }
  return status;
}

heed_status heed__spm_decode(const heed__spm *spm, const char *function, const int64_t *ids, int64_t count,
                             heed__bytes *out) {
  const size_t start = out->size;
  heed__bytes bytes = {0};
  heed_status status = HEED_OK;
  bool at_start = true, seen_space = false;
  for (int64_t i = 0; i < count && status == HEED_OK; i++) {
    if (heed__is_due_at(&spm->ctx->pace, i)) status = heed__stopped(spm->ctx, function);
    if (ids[i] < 0 || ids[i] >= spm->count) {
      status = heed__fail(spm->ctx, HEED_INDEX, "%s: id %lld is not in the vocabulary of %ld pieces",
                          function, (long long)ids[i], (long)spm->count);
    }
    if (status != HEED_OK) break;
    const heed__piece *piece = &spm->pieces[ids[i]];
    const char *text = piece->text;
    size_t size = piece->size;
    if (piece->type == HEED__PIECE_BYTE) {
      const char byte = (char)byte_of_piece(piece);
      status = heed__bytes_put(spm->ctx, function, &bytes, &byte, 1);
      continue;
    }
    status = flush_bytes(spm, function, &bytes, out);
    if (seen_space || out->size > start) at_start = false;
    seen_space = false;
    if (status != HEED_OK || piece->type == HEED__PIECE_CONTROL) continue;
    if (piece->type == HEED__PIECE_UNKNOWN) {
      status = heed__bytes_put(spm->ctx, function, out, spm->unknown_surface, spm->unknown_surface_size);
      continue;
    }
    if (at_start && (spm->add_dummy_prefix || spm->remove_extra_whitespaces) && size >= 3 &&
        memcmp(text, "\xe2\x96\x81", 3) == 0) {
      text += 3;
      size -= 3;
      seen_space = !spm->remove_extra_whitespaces;
    }
    status = append_piece(spm, function, out, text, size);
  }
  if (status == HEED_OK) status = flush_bytes(spm, function, &bytes, out);
  heed__release(spm->ctx, bytes.data);
  return status;
}
