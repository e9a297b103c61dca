/* SentencePiece's .model files: a protocol buffer (ModelProto of sentencepiece_model.proto), of which the
 * fields that change a result are read. Encoding: protobuf.dev/programming-guides/encoding. */
#include <float.h>
#include <string.h>

#include "sentencepiece.h"

typedef struct proto { /* a message: the bytes that remain */
  const unsigned char *at, *end;
} proto;

typedef struct proto_field {
  uint32_t number;
  uint32_t wire;         /* 0: number; 1: 8 bytes; 2: bytes; 5: 4 bytes */
  uint64_t number_value; /* of wire 0, 1 and 5 */
  const unsigned char *data;
  size_t size; /* of wire 2 */
} proto_field;

static bool read_varint(proto *p, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64 && p->at < p->end; shift += 7) {
    const unsigned char byte = *p->at++;
    *out |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

/* Reads the next field; 1: there is one, 0: the end, -1: broken. */
static int next_proto_field(proto *p, proto_field *f) {
  uint64_t tag;
  if (p->at == p->end) return 0;
  if (!read_varint(p, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX >> 3) return -1;
  f->number = (uint32_t)(tag >> 3);
  f->wire = (uint32_t)(tag & 7);
  f->number_value = 0;
  f->data = NULL;
  f->size = 0;
  if (f->wire == 0) return read_varint(p, &f->number_value) ? 1 : -1;
  if (f->wire == 1 || f->wire == 5) {
    const int width = f->wire == 1 ? 8 : 4;
    if (p->end - p->at < width) return -1;
    for (int i = 0; i < width; i++) f->number_value |= (uint64_t)p->at[i] << 8 * i;
    p->at += width;
    return 1;
  }
  if (f->wire != 2 || !read_varint(p, &f->number_value)) return -1;
  if (f->number_value > (uint64_t)(p->end - p->at)) return -1;
  f->data = p->at;
  f->size = (size_t)f->number_value;
  p->at += f->size;
  return 1;
}

static heed_status broken(const heed__spm *spm, const char *where, const char *what) {
  return heed__fail(spm->ctx, HEED_FILE, "%s: not a SentencePiece model: %s", where, what);
}

static heed_status read_piece(const heed__spm *spm, const char *where, proto p, heed__piece *piece) {
  proto_field f;
  int more;
  *piece = (heed__piece){.text = "", .type = HEED__PIECE_NORMAL};
  while ((more = next_proto_field(&p, &f)) > 0) {
    if (f.number == 1 && f.wire == 2) {
      if (f.size > UINT32_MAX / 4) return broken(spm, where, "a piece is too long");
      piece->text = (const char *)f.data;
      piece->size = (uint32_t)f.size;
    } else if (f.number == 2 && f.wire == 5) {
      const uint32_t bits = (uint32_t)f.number_value;
      float score;
      memcpy(&score, &bits, sizeof(bits));
      piece->score = score;
    } else if (f.number == 3 && f.wire == 0) {
      if (f.number_value < 1 || f.number_value > 6)
        return broken(spm, where, "the type of a piece is unknown");
      piece->type = (uint8_t)f.number_value;
    }
  }
  return more < 0 ? broken(spm, where, "a piece is damaged") : HEED_OK;
}

typedef struct special_names { /* of the trainer_spec */
  const char *text[3];
  size_t size[3];
} special_names;

static heed_status read_trainer(heed__spm *spm, const char *where, proto p, special_names *names) {
  proto_field f;
  int more;
  while ((more = next_proto_field(&p, &f)) > 0) {
    if (f.number == 3 && f.wire == 0) {
      if (f.number_value == 3 || f.number_value == 4)
        return heed__fail(spm->ctx, HEED_FILE, "%s: its model type is %s; it must be unigram or bpe", where,
                          f.number_value == 3 ? "word" : "char");
      if (f.number_value != HEED__SPM_UNIGRAM && f.number_value != HEED__SPM_BPE)
        return broken(spm, where, "the model type is unknown");
      spm->kind = (heed__spm_kind)f.number_value;
    } else if (f.number == 24 && f.wire == 0) {
      spm->whitespace_as_suffix = f.number_value != 0;
    } else if (f.number == 35 && f.wire == 0) {
      spm->byte_fallback = f.number_value != 0;
    } else if (f.number == 44 && f.wire == 2) {
      spm->unknown_surface = (const char *)f.data;
      spm->unknown_surface_size = f.size;
    } else if (f.number >= 46 && f.number <= 48 && f.wire == 2) {
      names->text[f.number - 46] = (const char *)f.data;
      names->size[f.number - 46] = f.size;
    }
  }
  return more < 0 ? broken(spm, where, "the trainer_spec is damaged") : HEED_OK;
}

static heed_status read_normalizer(heed__spm *spm, const char *where, proto p) {
  proto_field f;
  int more;
  while ((more = next_proto_field(&p, &f)) > 0) {
    const bool flag = f.number_value != 0;
    if (f.number == 2 && f.wire == 2 && f.size > 0) {
      const heed_status status = heed__spm_charsmap(spm, where, (const char *)f.data, f.size);
      if (status != HEED_OK) return status;
    } else if (f.wire == 0) {
      if (f.number == 3) spm->add_dummy_prefix = flag;
      if (f.number == 4) spm->remove_extra_whitespaces = flag;
      if (f.number == 5) spm->escape_whitespaces = flag;
    }
  }
  return more < 0 ? broken(spm, where, "the normalizer_spec is damaged") : HEED_OK;
}

static heed_status read_model(heed__spm *spm, const char *where, proto whole, special_names *names) {
  proto p = whole;
  proto_field f;
  int more;
  int64_t count = 0;
  heed_status status = HEED_OK;
  for (int64_t i = 0; (more = next_proto_field(&p, &f)) > 0; i++) {
    count += f.number == 1 && f.wire == 2;
    if (f.number == 5)
      return heed__fail(spm->ctx, HEED_FILE, "%s: it has a denormalizer, which heed lacks", where);
    if (heed__is_due_at(&spm->ctx->pace, i) && (status = heed__stopped(spm->ctx, "load")) != HEED_OK)
      return status;
  }
  if (more < 0) return broken(spm, where, "a field is damaged or cut off");
  if (count == 0 || count > INT32_MAX / 4) return broken(spm, where, "it has no pieces, or too many");
  const size_t bytes = heed__array_bytes((uint64_t)count, sizeof(heed__piece));
  spm->pieces = heed__allocate(spm->ctx, bytes);
  if (spm->pieces == NULL) return heed__fail_memory(spm->ctx, "load", bytes);
  for (p = whole; status == HEED_OK && next_proto_field(&p, &f) > 0;) {
    if (f.wire != 2) continue;
    const proto inner = {f.data, f.data + f.size};
    if (f.number == 1) status = read_piece(spm, where, inner, &spm->pieces[spm->count++]);
    if (f.number == 2) status = read_trainer(spm, where, inner, names);
    if (f.number == 3) status = read_normalizer(spm, where, inner);
    if (status == HEED_OK && heed__is_due_at(&spm->ctx->pace, spm->count))
      status = heed__stopped(spm->ctx, "load");
  }
  return status;
}

/* The id of a control piece with this name; -1 if there is none. */
static int32_t control_id(const heed__spm *spm, const char *text, size_t size) {
  const int32_t id = heed__spm_id(spm, text, size);
  return id >= 0 && spm->pieces[id].type == HEED__PIECE_CONTROL ? id : -1;
}

heed_status heed__spm_load(heed_context *ctx, const char *path, heed__spm **out) {
  special_names names = {{"<s>", "</s>", "<pad>"}, {3, 4, 5}};
  char where[HEED__MESSAGE / 2] = "load: '";
  heed__spm *spm = heed__allocate(ctx, sizeof(*spm));
  if (spm == NULL) return heed__fail_memory(ctx, "load", sizeof(*spm));
  *spm = (heed__spm){.ctx = ctx,
                     .kind = HEED__SPM_UNIGRAM,
                     .add_dummy_prefix = true,
                     .remove_extra_whitespaces = true,
                     .escape_whitespaces = true,
                     .unknown_surface = " \xe2\x81\x87 ",
                     .unknown_surface_size = 5};
  const size_t length = strlen(path), most = sizeof(where) - 16;
  memcpy(where + 7, path + (length > most ? length - most : 0), length > most ? most : length);
  strcat(where, "'");
  heed_status status = heed__map_bytes(ctx, path, &spm->file);
  if (status == HEED_OK) {
    const unsigned char *data = heed_tensor_data(spm->file);
    status = read_model(spm, where, (proto){data, data + heed_tensor_numel(spm->file)}, &names);
  }
  if (status == HEED_OK) status = heed__spm_prepare(spm, where);
  if (status != HEED_OK) {
    heed__spm_free(spm);
    return status;
  }
  spm->bos = control_id(spm, names.text[0], names.size[0]);
  spm->eos = control_id(spm, names.text[1], names.size[1]);
  spm->pad = control_id(spm, names.text[2], names.size[2]);
  *out = spm;
  return HEED_OK;
}
