/* UTF-8, and by Unicode's tables (utf8proc) categories, canonical decomposition and lower case. */
#include <string.h>

#include "io.h"

#define FIRST_MULTIBYTE 0x80 /* code points below take one byte */

/* Decodes the first character; returns its length in bytes, 0 if it is not valid. Source: RFC 3629,
 * section 4. */
static size_t read_character(const char *text, size_t size, int32_t *character) {
  static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: smaller ones are overlong */
  const unsigned char first = (unsigned char)*text;
  *character = 0;
  if (first < FIRST_MULTIBYTE) {
    *character = first;
    return 1;
  }
  const size_t length = first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  if (length == 0 || length > size) return 0;
  int32_t value = first & (0x7f >> length);
  for (size_t i = 1; i < length; i++) {
    const unsigned char byte = (unsigned char)text[i];
    if (byte >> 6 != 2) return 0;
    value = value << 6 | (byte & 0x3f);
  }
  if (value < least[length] || value > 0x10ffff || value >> 11 == 0xd800 >> 11) return 0;
  *character = value;
  return length;
}

static bool is_continuation(char byte) {
  return (byte & 0xc0) == 0x80;
}

size_t heed__text_check(const char *text, size_t size) {
  int32_t character;
  uint64_t word;
  size_t at = 0;
  while (at < size) {
    const unsigned char first = (unsigned char)text[at];
    size_t length;
    if (first < FIRST_MULTIBYTE) {
      at++;
      for (; size - at >= sizeof(word); at += sizeof(word)) { /* eight characters of ASCII at once */
        memcpy(&word, text + at, sizeof(word));
        if (word & UINT64_C(0x8080808080808080)) break;
      }
    } else if (first >= 0xc2 && first < 0xe0 && size - at > 1 && is_continuation(text[at + 1])) {
      at += 2;
    } else if ((length = read_character(text + at, size - at, &character)) > 0) {
      at += length;
    } else {
      return at + 1;
    }
  }
  return 0;
}

size_t heed__text_character(const char *text, size_t size, int32_t *character) {
  return read_character(text, size, character);
}

#define MOST_IN_STEP ((size_t)1 << 16) /* bytes */

size_t heed__text_step(const char *text, size_t size) {
  if (size <= MOST_IN_STEP) return size;
  for (size_t end = MOST_IN_STEP; end > MOST_IN_STEP - 4; end--)
    if (!is_continuation(text[end])) return end;
  return MOST_IN_STEP; /* no character has 4 continuation bytes: the text is not valid */
}

heed_status heed__text_check_in_steps(heed_context *ctx, const char *function, const char *text, size_t size,
                                      size_t *invalid) {
  *invalid = 0;
  const heed_status charged = heed__charge(ctx, function, (double)size);
  if (charged != HEED_OK) return charged;
  for (size_t at = 0, step; at < size; at += step) {
    step = heed__text_step(text + at, size - at);
    const size_t found = heed__text_check(text + at, step);
    if (found > 0) {
      *invalid = at + found;
      return HEED_OK;
    }
    const heed_status status = heed__is_due(&ctx->pace) ? heed__stopped(ctx, function) : HEED_OK;
    if (status != HEED_OK) return status;
  }
  return HEED_OK;
}

#if HEED_UTF8PROC
#include <utf8proc.h>

static size_t write_character(int32_t character, char *out) {
  if (character < FIRST_MULTIBYTE) {
    *out = (char)character;
    return 1;
  }
  return (size_t)utf8proc_encode_char(character, (utf8proc_uint8_t *)out);
}

size_t heed__text_category(const char *text, size_t size, heed__category *category) {
  int32_t character;
  size_t length = read_character(text, size, &character);
  *category = (heed__category)utf8proc_category(character);
  return length;
}

heed__category heed__category_of(int32_t character) {
  return (heed__category)utf8proc_category(character);
}

size_t heed__text_grapheme(const char *text, size_t size) {
  int32_t before, after, state = 0;
  size_t at = size > 0 ? read_character(text, size, &before) : 0;
  for (size_t length; at < size; at += length) {
    length = read_character(text + at, size - at, &after);
    if (length == 0 || utf8proc_grapheme_break_stateful(before, after, &state)) break;
    before = after;
  }
  return at;
}

const char *heed__category_name(heed__category category) {
  static const char names[][3] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                  "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                  "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
  return names[category];
}

size_t heed__text_lower(const char *text, size_t size, char *out) {
  const char *start = out;
  int32_t character;
  for (size_t at = 0, length; at < size; at += length) {
    length = read_character(text + at, size - at, &character);
    if (character == 0x130) { /* İ, the only one that becomes two: i and a dot above */
      memcpy(out, "i\xCC\x87", 3);
      out += 3;
    } else {
      out += write_character(utf8proc_tolower(character), out);
    }
  }
  return (size_t)(out - start);
}

static int combining_class(int32_t character) {
  return character < FIRST_MULTIBYTE ? 0 : utf8proc_get_property(character)->combining_class;
}

#define MOST_PARTS 18 /* of U+FDFA in its compatibility decomposition */

static int decompose(int32_t character, bool compatible, int32_t parts[MOST_PARTS]) {
  utf8proc_ssize_t count = 0;
  if (character >= FIRST_MULTIBYTE)
    count = utf8proc_decompose_char(character, parts, MOST_PARTS,
                                    UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0), NULL);
  if (count >= 1 && count <= MOST_PARTS) return (int)count;
  parts[0] = character;
  return 1;
}

typedef struct decomposer {
  heed_context *ctx;
  const char *function;
  int64_t steps;  /* characters read, sorted and written */
  int32_t *marks; /* combining marks not yet written, and scratch of the same size to sort them */
  size_t waiting; /* their number */
  char *out;
} decomposer;

/* Counts a step and checks for cancellation. Errors: CANCELLED, LIMIT. */
static heed_status count_step(decomposer *d) {
  return heed__is_due_at(&d->ctx->pace, d->steps++) ? heed__stopped(d->ctx, d->function) : HEED_OK;
}

/* Writes the marks by ascending combining class, in a stable order. A counting sort, so that a long run of
 * marks takes linear time. */
static heed_status write_marks(decomposer *d) {
  const int32_t *marks = d->marks;
  int32_t *sorted = d->marks + d->waiting;
  size_t first[257] = {0};
  heed_status status = HEED_OK;
  if (d->waiting < 2) { /* by far the most frequent case */
    if (d->waiting == 1) d->out += write_character(*marks, d->out);
    d->waiting = 0;
    return HEED_OK;
  }
  for (size_t i = 0; i < d->waiting && status == HEED_OK; i++) {
    first[combining_class(marks[i]) + 1]++;
    status = count_step(d);
  }
  for (int class = 1; class <= 256; class ++) first[class] += first[class - 1];
  for (size_t i = 0; i < d->waiting && status == HEED_OK; i++) {
    sorted[first[combining_class(marks[i])]++] = marks[i];
    status = count_step(d);
  }
  for (size_t i = 0; i < d->waiting && status == HEED_OK; i++) {
    d->out += write_character(sorted[i], d->out);
    status = count_step(d);
  }
  d->waiting = 0;
  return status;
}

heed_status heed__text_nfd(heed_context *ctx, const char *function, const char *text, size_t size,
                           int32_t *marks, char *out, size_t *written) {
  return heed__text_decompose(ctx, function, text, size, false, marks, out, written);
}

size_t heed__text_compose(char *text, size_t size, int32_t *scratch) {
  utf8proc_ssize_t count = 0;
  size_t used = 0;
  for (size_t at = 0; at < size; count++) at += read_character(text + at, size - at, &scratch[count]);
  count = utf8proc_normalize_utf32(scratch, count, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  for (utf8proc_ssize_t i = 0; i < count; i++) used += write_character(scratch[i], text + used);
  return used;
}

heed_status heed__text_decompose(heed_context *ctx, const char *function, const char *text, size_t size,
                                 bool compatible, int32_t *marks, char *out, size_t *written) {
  decomposer d = {.ctx = ctx, .function = function, .marks = marks, .out = out};
  heed_status status = HEED_OK;
  for (size_t at = 0, length; at < size && status == HEED_OK; at += length) {
    int32_t character, parts[MOST_PARTS];
    length = read_character(text + at, size - at, &character);
    const int count = decompose(character, compatible, parts);
    for (int i = 0; i < count && status == HEED_OK; i++) {
      if (combining_class(parts[i])) {
        marks[d.waiting++] = parts[i];
      } else {
        status = write_marks(&d);
        d.out += write_character(parts[i], d.out);
      }
    }
    if (status == HEED_OK) status = count_step(&d);
  }
  if (status == HEED_OK) status = write_marks(&d);
  *written = (size_t)(d.out - out);
  return status;
}

#else

/* Tokenizers are refused in such builds; these are never called with a character. */
heed__category heed__category_of(int32_t character) {
  (void)character;
  return 0;
}
size_t heed__text_grapheme(const char *text, size_t size) {
  (void)text;
  return size;
}
const char *heed__category_name(heed__category category) {
  (void)category;
  return "Cn";
}
size_t heed__text_lower(const char *text, size_t size, char *out) {
  memcpy(out, text, size);
  return size;
}
heed_status heed__text_decompose(heed_context *ctx, const char *function, const char *text, size_t size,
                                 bool compatible, int32_t *marks, char *out, size_t *written) {
  (void)ctx, (void)function, (void)compatible, (void)marks;
  memcpy(out, text, size);
  *written = size;
  return HEED_OK;
}
size_t heed__text_compose(char *text, size_t size, int32_t *scratch) {
  (void)text, (void)scratch;
  return size;
}

#endif
