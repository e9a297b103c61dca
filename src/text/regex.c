/* Regular expressions of tokenizers: compiling. */
#include "regex.h"

#include <string.h>

#define MOST_CODE  20000      /* instructions */
#define MOST_DEPTH 16         /* of groups */
#define MOST_COUNT 1000       /* of a quantifier */
#define MOST_AGAIN (1u << 20) /* bytes that are read again to repeat groups */

typedef struct regex_parser {
  heed__regex *r;
  const char *where, *start, *p, *end;
  int depth;
  bool fold;    /* upper and lower case are the same */
  bool nothing; /* what was read last also matches the empty text */
  size_t again; /* bytes that were read again */
  heed_status status;
} regex_parser;

static void refuse_pattern(regex_parser *s, const char *what) {
  if (s->status != HEED_OK) return;
  const int shown = (int)(s->end - s->start < 160 ? s->end - s->start : 160);
  s->status =
      heed__fail(s->r->ctx, HEED_FILE, "%s: the pattern '%.*s' has %s at byte %lld, which is not supported",
                 s->where, shown, s->start, what, (long long)(s->p - s->start) + 1);
}

/* ---- Classes ---- */

static void add_class_range(regex_parser *s, heed__char_class *class, int32_t first, int32_t last) {
  for (int32_t c = first; c <= last && c < 128; c++) class->ascii[c >> 5] |= UINT32_C(1) << (c & 31);
  if (last < 128 || s->status != HEED_OK) return;
  const heed__class_range range = {first < 128 ? 128 : first, last};
  s->status = heed__bytes_put(s->r->ctx, "load", &s->r->ranges, &range, sizeof(range));
  class->ranges++;
}

/* A character; with `fold`, its other cases, too. */
static void add_character(regex_parser *s, heed__char_class *class, int32_t c) {
  add_class_range(s, class, c, c);
  if (!s->fold) return;
  const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
  if (upper || lower) add_class_range(s, class, c ^ 32, c ^ 32);
  if ((c | 32) == 's') add_class_range(s, class, 0x17f, 0x17f);   /* ſ */
  if ((c | 32) == 'k') add_class_range(s, class, 0x212a, 0x212a); /* the sign of Kelvin */
  if (c >= 128) refuse_pattern(s, "(?i) with letters beyond ASCII");
}

static uint32_t categories_named(const char *name, size_t size) {
  uint32_t mask = 0;
  for (int i = 0; i < HEED__CATEGORIES; i++)
    if (size >= 1 && size <= 2 && memcmp(heed__category_name(i), name, size) == 0) mask |= UINT32_C(1) << i;
  if (size == 2 && memcmp(name, "LC", 2) == 0) mask = 1u << 1 | 1u << 2 | 1u << 3;
  return mask;
}

static void add_categories(heed__char_class *class, uint32_t mask) {
  class->categories |= mask;
  for (int c = 0; c < 128; c++)
    if (mask >> heed__category_of(c) & 1) class->ascii[c >> 5] |= UINT32_C(1) << (c & 31);
}

#define ALL_CATEGORIES ((UINT32_C(1) << HEED__CATEGORIES) - 1)

/* After \p or \P. */
static void read_property(regex_parser *s, heed__char_class *class, bool negated) {
  const char *name = s->p, *stop = s->p < s->end ? s->p + 1 : s->p;
  if (s->p < s->end && *s->p == '{') {
    name = s->p + 1;
    stop = memchr(name, '}', (size_t)(s->end - name));
    if (stop != NULL && name < stop && *name == '^') {
      name++;
      negated = !negated;
    }
  }
  const uint32_t mask = stop == NULL ? 0 : categories_named(name, (size_t)(stop - name));
  if (mask == 0) {
    refuse_pattern(s, "a property other than a general category");
    return;
  }
  add_categories(class, negated ? ALL_CATEGORIES & ~mask : mask);
  s->p = *stop == '}' && s->p[0] == '{' ? stop + 1 : stop;
}

static bool is_ascii_space(int c) {
  return (c >= 9 && c <= 13) || c == ' ';
}
static bool is_ascii_word(int c) {
  return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
}

/* \s, \w and their complements. */
static void add_named(heed__char_class *class, char name) {
  class->space |= name == 's';
  class->not_space |= name == 'S';
  class->word |= name == 'w';
  class->not_word |= name == 'W';
  for (int c = 0; c < 128; c++) {
    const bool in = (name | 32) == 's' ? is_ascii_space(c) : is_ascii_word(c);
    if (in == (name >= 'a')) class->ascii[c >> 5] |= UINT32_C(1) << (c & 31);
  }
}

static int32_t read_code(regex_parser *s, int digits, char close) {
  int32_t value = 0;
  int count = 0;
  for (; s->p < s->end && count < digits; s->p++, count++) {
    const char c = *s->p;
    const int digit = c >= '0' && c <= '9'                 ? c - '0'
                      : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                           : -1;
    if (digit < 0) break;
    value = value * 16 + digit;
  }
  if (count == 0 || (close && (s->p == s->end || *s->p++ != close)) || value > 0x10ffff)
    refuse_pattern(s, "an invalid character code");
  return value;
}

/* After a backslash: adds a set and returns -1, or returns the character that it stands for. */
static int32_t read_class_escape(regex_parser *s, heed__char_class *class) {
  static const char names[] = "nrtfvae0", values[] = "\n\r\t\f\v\a\033";
  const char c = s->p < s->end ? *s->p++ : 0;
  if (c == 's' || c == 'S' || c == 'w' || c == 'W') {
    add_named(class, c);
  } else if (c == 'd' || c == 'D') {
    add_categories(class, c == 'd' ? UINT32_C(1) << 9 : ALL_CATEGORIES & ~(UINT32_C(1) << 9));
  } else if (c == 'p' || c == 'P') {
    read_property(s, class, c == 'P');
  } else if (c == 'x') {
    const bool braced = s->p < s->end && *s->p == '{';
    if (braced) s->p++;
    return read_code(s, braced ? 6 : 2, braced ? '}' : 0);
  } else if (c == 'u') {
    return read_code(s, 4, 0);
  } else if (c != 0 && strchr(names, c) != NULL) {
    return (unsigned char)values[strchr(names, c) - names];
  } else if ((unsigned char)c < 0x80 && c != 0 && !is_ascii_word((unsigned char)c)) {
    return c;
  } else {
    s->p -= s->p > s->start;
    refuse_pattern(s, "an escape");
  }
  return -1;
}

static int32_t read_literal(regex_parser *s) {
  int32_t c;
  s->p += heed__text_character(s->p, (size_t)(s->end - s->p), &c);
  return c;
}

/* After [ */
static void read_class(regex_parser *s, heed__char_class *class) {
  bool first = true;
  if (s->p < s->end && *s->p == '^') {
    class->negated = true;
    s->p++;
  }
  for (; s->status == HEED_OK; first = false) {
    if (s->p == s->end) {
      refuse_pattern(s, "a class without an end");
      return;
    }
    if (*s->p == ']' && !first) break;
    if (*s->p == '[' || (*s->p == '&' && s->end - s->p > 1 && s->p[1] == '&')) {
      refuse_pattern(s, "a class within a class");
      return;
    }
    int32_t c = -1, last;
    if (*s->p == '\\') {
      s->p++;
      c = read_class_escape(s, class);
      if (c < 0) continue;
    } else {
      c = read_literal(s);
    }
    if (s->end - s->p > 1 && s->p[0] == '-' && s->p[1] != ']') {
      s->p++;
      if (*s->p == '\\') {
        s->p++;
        last = read_class_escape(s, class);
      } else {
        last = read_literal(s);
      }
      if (last < c)
        refuse_pattern(s, "a range that ends before it begins");
      else if (!s->fold)
        add_class_range(s, class, c, last);
      else if (last >= 128)
        refuse_pattern(s, "(?i) with letters beyond ASCII");
      else
        for (; c <= last; c++) add_character(s, class, c);
    } else {
      add_character(s, class, c);
    }
  }
  s->p++;
}

/* ---- Instructions ---- */

static uint32_t code_count(const heed__regex *r) {
  return (uint32_t)(r->code.size / sizeof(heed__instruction));
}
static heed__instruction *code_at(const heed__regex *r, uint32_t i) {
  return (heed__instruction *)(void *)r->code.data + i;
}

static uint32_t emit_code(regex_parser *s, heed__instruction instruction) {
  const uint32_t at = code_count(s->r);
  if (at >= MOST_CODE) refuse_pattern(s, "more than 20000 instructions");
  if (s->status == HEED_OK)
    s->status = heed__bytes_put(s->r->ctx, "load", &s->r->code, &instruction, sizeof(instruction));
  return s->status == HEED_OK ? at : 0;
}

/* Completes a class and adds it. */
static uint32_t keep_class(regex_parser *s, heed__char_class class) {
  const uint32_t index = (uint32_t)(s->r->classes.size / sizeof(class));
  class.range = (uint32_t)(s->r->ranges.size / sizeof(heed__class_range)) - class.ranges;
  for (int i = 0; i < 4 && class.negated; i++) class.ascii[i] = ~class.ascii[i];
  if (s->status == HEED_OK)
    s->status = heed__bytes_put(s->r->ctx, "load", &s->r->classes, &class, sizeof(class));
  return index;
}

static uint32_t read_count(regex_parser *s) {
  uint32_t value = 0;
  for (; s->p < s->end && *s->p >= '0' && *s->p <= '9' && value <= MOST_COUNT; s->p++)
    value = value * 10 + (uint32_t)(*s->p - '0');
  if (value > MOST_COUNT) refuse_pattern(s, "a count above 1000");
  return value;
}

/* Reads a quantifier; false if there is none. */
static bool read_quantifier(regex_parser *s, uint32_t *min, uint32_t *max, heed__greed *greed) {
  const char *const start = s->p;
  const char c = s->p < s->end ? *s->p : 0;
  *min = *max = 1;
  *greed = HEED__GREEDY;
  if (c == '?' || c == '*' || c == '+') {
    *min = c == '+';
    *max = c == '?' ? 1 : HEED__REGEX_UNLIMITED;
    s->p++;
  } else if (c == '{' && s->end - s->p > 1 && s->p[1] >= '0' && s->p[1] <= '9') {
    s->p++;
    *min = *max = read_count(s);
    if (s->p < s->end && *s->p == ',') {
      s->p++;
      *max = s->p < s->end && *s->p != '}' ? read_count(s) : HEED__REGEX_UNLIMITED;
    }
    if (s->p == s->end || *s->p++ != '}' || *max < *min) {
      s->p = start;
      refuse_pattern(s, "a count");
    }
  } else {
    return false;
  }
  if (s->p < s->end && *s->p == '?') {
    *greed = HEED__LAZY;
    s->p++;
  } else if (s->p < s->end && *s->p == '+' && c != '{') {
    *greed = HEED__POSSESSIVE;
    s->p++;
  }
  return true;
}

static void read_alternatives(regex_parser *s, bool whole);

/* After ( : reads the group and its parenthesis. */
static void read_group(regex_parser *s) {
  const bool fold = s->fold;
  bool look = false, negated = false;
  if (++s->depth > MOST_DEPTH) refuse_pattern(s, "groups nested too deeply");
  const size_t left = (size_t)(s->end - s->p);
  if (left >= 4 && memcmp(s->p, "?i:", 3) == 0) {
    s->fold = true;
    s->p += 3;
  } else if (left >= 2 && memcmp(s->p, "?:", 2) == 0) {
    s->p += 2;
  } else if (left >= 2 && (memcmp(s->p, "?!", 2) == 0 || memcmp(s->p, "?=", 2) == 0)) {
    look = true;
    negated = s->p[1] == '!';
    s->p += 2;
  } else if (left >= 1 && *s->p == '?') {
    refuse_pattern(s, "a kind of group");
  }
  if (s->status != HEED_OK) return;
  const uint32_t at = look ? emit_code(s, (heed__instruction){.op = HEED__OP_LOOK, .negated = negated}) : 0;
  read_alternatives(s, false);
  if (look) {
    emit_code(s, (heed__instruction){.op = HEED__OP_END});
    if (s->status == HEED_OK) code_at(s->r, at)->to = code_count(s->r);
    s->nothing = true;
  }
  if (s->status == HEED_OK && (s->p == s->end || *s->p != ')')) refuse_pattern(s, "a group without an end");
  s->p++;
  s->fold = fold;
  s->depth--;
}

/* A group and its quantifier: the group is compiled as often as it is repeated. */
static void read_repeated_group(regex_parser *s) {
  const char *const body = s->p;
  const size_t code = s->r->code.size, classes = s->r->classes.size, ranges = s->r->ranges.size;
  uint32_t min, max;
  heed__greed greed;
  read_group(s);
  const char *const stop = s->p;
  if (s->status != HEED_OK || !read_quantifier(s, &min, &max, &greed)) return;
  if (greed == HEED__POSSESSIVE) {
    s->p = stop;
    refuse_pattern(s, "a possessive group");
    return;
  }
  if (max == HEED__REGEX_UNLIMITED && s->nothing) { /* it would repeat nothing for ever */
    s->p = stop;
    refuse_pattern(s, "an endless repetition of a group that can be empty");
    return;
  }
  const char *const after = s->p;
  s->r->code.size = code;
  s->r->classes.size = classes;
  s->r->ranges.size = ranges;
  const uint32_t copies = max == HEED__REGEX_UNLIMITED ? min + 1 : max;
  uint32_t split = 0;
  for (uint32_t i = 0; i < copies && s->status == HEED_OK; i++) {
    const bool optional = i >= min;
    if (optional) split = emit_code(s, (heed__instruction){.op = HEED__OP_SPLIT, .to = split});
    s->p = body;
    s->again += (size_t)(stop - body);
    if (s->again > MOST_AGAIN) refuse_pattern(s, "repeated groups of more than 1 MiB in all");
    read_group(s);
    if (!optional || s->status != HEED_OK) continue;
    if (max == HEED__REGEX_UNLIMITED) emit_code(s, (heed__instruction){.op = HEED__OP_JUMP, .to = split});
  }
  /* The optional copies all lead to the end. They were chained by `to`. */
  uint32_t optional = copies - min;
  for (uint32_t i = split; optional > 0 && s->status == HEED_OK; optional--) {
    heed__instruction *const instruction = code_at(s->r, i);
    const uint32_t previous = instruction->to, body_at = i + 1, end = code_count(s->r);
    instruction->to = greed == HEED__LAZY ? end : body_at;
    instruction->other = greed == HEED__LAZY ? body_at : end;
    i = previous;
  }
  s->nothing |= min == 0;
  s->p = after;
}

/* An element of a sequence: a class, a character or a group, with its quantifier. */
static void read_element(regex_parser *s) {
  heed__char_class class = {0};
  const char c = *s->p;
  if (c == '(') {
    s->p++;
    read_repeated_group(s);
    return;
  }
  if (c == '[') {
    s->p++;
    read_class(s, &class);
  } else if (c == '.') {
    s->p++;
    add_class_range(s, &class, '\n', '\n');
    class.negated = true;
  } else if (c == '^' || c == '$' || c == '*' || c == '+' || c == '?') {
    refuse_pattern(s, "an anchor or a quantifier");
  } else if (c == '\\' && s->end - s->p > 1 && (s->p[1] == 'A' || s->p[1] == 'z')) {
    emit_code(s, (heed__instruction){.op = s->p[1] == 'A' ? HEED__OP_START : HEED__OP_FINISH});
    s->p += 2;
    s->nothing = true;
    return;
  } else {
    int32_t character;
    s->p += c == '\\';
    character = c == '\\' ? read_class_escape(s, &class) : read_literal(s);
    if (character >= 0) add_character(s, &class, character);
  }
  heed__instruction set = {.op = HEED__OP_SET};
  set.class = keep_class(s, class);
  read_quantifier(s, &set.min, &set.max, &set.greed);
  s->nothing = set.min == 0;
  emit_code(s, set);
}

static void read_sequence(regex_parser *s) {
  bool nothing = true;
  while (s->status == HEED_OK && s->p < s->end && *s->p != '|' && *s->p != ')') {
    read_element(s);
    nothing &= s->nothing;
  }
  s->nothing = nothing;
}

/* Alternatives up to ) or the end: SPLIT, the first, JUMP to the end, SPLIT, the second, … Of the whole
 * pattern each ends with END. */
static void read_alternatives(regex_parser *s, bool whole) {
  uint32_t jump = 0; /* the last JUMP, chained by `to` to those before */
  bool more, nothing = false;
  do {
    uint32_t split = 0;
    if (whole && s->r->alternatives == HEED__ALTERNATIVES) refuse_pattern(s, "more than 32 alternatives");
    if (s->status != HEED_OK) return;
    if (whole)
      s->r->starts[s->r->alternatives++] = code_count(s->r);
    else
      split = emit_code(s, (heed__instruction){.op = HEED__OP_SPLIT});
    read_sequence(s);
    nothing |= s->nothing;
    more = s->status == HEED_OK && s->p < s->end && *s->p == '|';
    if (more) s->p++;
    if (whole) {
      emit_code(s, (heed__instruction){.op = HEED__OP_END});
    } else {
      jump = emit_code(s, (heed__instruction){.op = HEED__OP_JUMP, .to = jump});
      if (s->status != HEED_OK) return;
      heed__instruction *const instruction = code_at(s->r, split);
      instruction->to = split + 1;
      instruction->other = more ? code_count(s->r) : UINT32_MAX; /* the last one: no other */
    }
  } while (more && s->status == HEED_OK);
  s->nothing = nothing;
  if (whole && s->status == HEED_OK && s->p < s->end) refuse_pattern(s, "a parenthesis too many");
  if (whole || s->status != HEED_OK) return;
  for (uint32_t end = code_count(s->r), i = jump; i > 0;) {
    const uint32_t previous = code_at(s->r, i)->to;
    code_at(s->r, i)->to = end;
    i = previous;
  }
}

/* ---- The whole ---- */

/* Which characters each alternative can begin with: known if it begins with a class. */
static void find_first(heed__regex *r) {
  for (uint32_t i = 0; i < r->alternatives; i++) {
    const uint32_t bit = UINT32_C(1) << i;
    bool open = true; /* what comes so far may be empty */
    r->first_other |= bit;
    for (uint32_t at = r->starts[i]; open; at++) {
      const heed__instruction *const instruction = code_at(r, at);
      if (instruction->op != HEED__OP_SET) {
        for (int c = 0; c < 128; c++) r->first[c] |= bit;
        break;
      }
      const heed__char_class *class =
          (const heed__char_class *)(const void *)r->classes.data + instruction->class;
      for (int c = 0; c < 128; c++)
        if (class->ascii[c >> 5] >> (c & 31) & 1) r->first[c] |= bit;
      open = instruction->min == 0;
    }
  }
}

static heed_status new_regex(heed_context *ctx, heed__regex **out) {
  heed__regex *r = heed__allocate(ctx, sizeof(*r));
  if (r == NULL) return heed__fail_memory(ctx, "load", sizeof(*r));
  *r = (heed__regex){.ctx = ctx};
  *out = r;
  return HEED_OK;
}

heed_status heed__regex_compile(heed_context *ctx, const char *where, const char *pattern, size_t size,
                                heed__regex **out) {
  heed__regex *r = NULL;
  const heed_status status = new_regex(ctx, &r);
  if (status != HEED_OK) return status;
  regex_parser s = {.r = r, .where = where, .start = pattern, .p = pattern, .end = pattern + size};
  read_alternatives(&s, true);
  if (s.status == HEED_OK) {
    find_first(r);
    *out = r;
  } else {
    heed__regex_free(r);
  }
  return s.status;
}

heed_status heed__regex_literal(heed_context *ctx, const char *where, const char *text, size_t size,
                                heed__regex **out) {
  heed__regex *r = NULL;
  const heed_status status = new_regex(ctx, &r);
  if (status != HEED_OK) return status;
  regex_parser s = {.r = r, .where = where, .start = text, .p = text, .end = text + size};
  r->starts[r->alternatives++] = 0;
  while (s.p < s.end && s.status == HEED_OK) {
    heed__char_class class = {0};
    add_character(&s, &class, read_literal(&s));
    emit_code(&s,
              (heed__instruction){.op = HEED__OP_SET, .class = keep_class(&s, class), .min = 1, .max = 1});
  }
  emit_code(&s, (heed__instruction){.op = HEED__OP_END});
  if (s.status == HEED_OK) {
    find_first(r);
    *out = r;
  } else {
    heed__regex_free(r);
  }
  return s.status;
}

void heed__regex_free(heed__regex *r) {
  if (r == NULL) return;
  heed__release(r->ctx, r->code.data);
  heed__release(r->ctx, r->classes.data);
  heed__release(r->ctx, r->ranges.data);
  heed__release(r->ctx, r->stack.data);
  heed__release(r->ctx, r);
}
