/* Regular expressions of tokenizers: matching by backtracking, on a stack of its own. */
#include "regex.h"

#define MOST_FRAMES ((size_t)1 << 20)

/* Where to go on after a failure: at `code` with the text at `at`; or, for a repeated class, with fewer
 * (`low` < `at`) or more repetitions (lazy: `left` of them). */
typedef struct match_frame {
  uint32_t code;
  uint32_t left; /* lazy: further repetitions; UINT32_MAX - 1: a boundary of a lookahead */
  size_t at, low;
} match_frame;

#define PLAIN 0

/* White_Space beyond ASCII */
static bool is_other_space(int32_t c) {
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool heed__is_white(int32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || (c >= 0x80 && is_other_space(c));
}

/* L, M, Nd, Nl, Pc, and the letters among symbols */
bool heed__is_word_character(int32_t c) {
  const uint32_t words = 0x3eu | 0x1c0u | 1u << 9 | 1u << 10 | 1u << 12;
  return (words >> heed__category_of(c) & 1) || (c >= 0x24b6 && c <= 0x24e9) ||
         (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189) ||
         c == 0x200c || c == 0x200d;
}

bool heed__class_has(const heed__regex *r, const heed__char_class *class, int32_t c) {
  if (c < 128) return class->ascii[c >> 5] >> (c & 31) & 1;
  bool in = class->categories != 0 && (class->categories >> heed__category_of(c) & 1);
  if (!in && (class->space || class->not_space)) in = is_other_space(c) ? class->space : class->not_space;
  if (!in && (class->word || class->not_word))
    in = heed__is_word_character(c) ? class->word : class->not_word;
  const heed__class_range *range = (const heed__class_range *)(const void *)r->ranges.data + class->range;
  for (uint32_t i = 0; i < class->ranges && !in; i++) in = c >= range[i].first && c <= range[i].last;
  return in != class->negated;
}

/* The bytes of the character at `at` if it is in the class, else 0. */
static inline size_t class_step(const heed__regex *r, const heed__char_class *class, const char *text,
                                size_t size, size_t at) {
  if (at >= size) return 0;
  const unsigned char first = (unsigned char)text[at];
  if (first < 128) return class->ascii[first >> 5] >> (first & 31) & 1;
  int32_t c;
  const size_t length = heed__text_character(text + at, size - at, &c);
  return heed__class_has(r, class, c) ? length : 0;
}

static size_t previous_character(const char *text, size_t at) {
  do at--;
  while (((unsigned char)text[at] & 0xc0) == 0x80);
  return at;
}

static heed_status push_frame(heed__regex *r, const char *function, match_frame frame) {
  if (r->stack.size / sizeof(frame) >= MOST_FRAMES)
    return heed__fail(r->ctx, HEED_LIMIT, "%s: a pattern of the tokenizer needs too many steps for this text",
                      function);
  return heed__bytes_put(r->ctx, function, &r->stack, &frame, sizeof(frame));
}

/* Charges the steps that have not been charged yet; every 2^16 steps and at the end of a search. */
static heed_status check_regex_steps(heed__regex *r, const char *function) {
  const heed_status status = heed__charge(r->ctx, function, (double)(r->steps - r->charged));
  r->charged = r->steps;
  return status == HEED_OK && heed__is_due(&r->ctx->pace) ? heed__stopped(r->ctx, function) : status;
}

/* Takes the repetitions of a class from *at on, and pushes the choice that remains. False if it fails. */
static bool take_set(heed__regex *r, const char *function, const heed__instruction *i, uint32_t code,
                     const char *text, size_t size, size_t *at, heed_status *status) {
  const heed__char_class *class = (const heed__char_class *)(const void *)r->classes.data + i->class;
  size_t p = *at, low = p;
  uint32_t count = 0;
  const uint32_t most = i->greed == HEED__LAZY ? i->min : i->max;
  for (size_t length; count < most && (length = class_step(r, class, text, size, p)) > 0; p += length) {
    if (count++ < i->min) low = p + length;
    if ((++r->steps & 0xffff) == 0 && (*status = check_regex_steps(r, function)) != HEED_OK) return false;
  }
  if (count < i->min) return false;
  *at = p;
  if (i->greed == HEED__GREEDY && p > low)
    *status = push_frame(r, function, (match_frame){code, PLAIN, p, low});
  else if (i->greed == HEED__LAZY && i->max > i->min)
    *status = push_frame(r, function, (match_frame){code, i->max - i->min, p, p});
  return *status == HEED_OK;
}

/* Pops a choice; false if none is left above `bottom`. */
static bool take_back(heed__regex *r, size_t bottom, const char *text, size_t size, uint32_t *code,
                      size_t *at) {
  while (r->stack.size > bottom) {
    match_frame *top = (match_frame *)(void *)(r->stack.data + r->stack.size) - 1;
    const heed__instruction *i = (const heed__instruction *)(const void *)r->code.data + top->code;
    r->steps++;
    if (i->op != HEED__OP_SET) { /* the other way of a SPLIT */
      *code = i->other;
      *at = top->at;
      r->stack.size -= sizeof(*top);
      return true;
    }
    *code = top->code + 1;
    if (i->greed == HEED__LAZY) {
      const heed__char_class *class = (const heed__char_class *)(const void *)r->classes.data + i->class;
      const size_t length = top->left > 0 ? class_step(r, class, text, size, top->at) : 0;
      if (length == 0) {
        r->stack.size -= sizeof(*top);
        continue;
      }
      top->at += length;
      if (i->max != HEED__REGEX_UNLIMITED) top->left--;
      *at = top->at;
      return true;
    }
    top->at = previous_character(text, top->at);
    *at = top->at;
    if (top->at <= top->low) r->stack.size -= sizeof(*top);
    return true;
  }
  return false;
}

/* Runs the code from `code` on at `at`: *matched, and *end of the match. Lookaheads nest as deeply as groups.
 */
static heed_status run_code(heed__regex *r, const char *function, uint32_t code, const char *text,
                            size_t size, size_t at, bool *matched, size_t *end) {
  const size_t bottom = r->stack.size;
  heed_status status = HEED_OK;
  for (;;) {
    const heed__instruction *const i = (const heed__instruction *)(const void *)r->code.data + code;
    bool fails = false;
    if ((++r->steps & 0xffff) == 0) status = check_regex_steps(r, function);
    if (status != HEED_OK) break;
    switch (i->op) {
    case HEED__OP_SET:
      fails = !take_set(r, function, i, code, text, size, &at, &status);
      code++;
      break;
    case HEED__OP_SPLIT:
      if (i->other != UINT32_MAX) status = push_frame(r, function, (match_frame){code, PLAIN, at, at});
      code = i->to;
      break;
    case HEED__OP_JUMP: code = i->to; break;
    case HEED__OP_LOOK: {
      bool found = false;
      size_t ignored;
      status = run_code(r, function, code + 1, text, size, at, &found, &ignored);
      fails = found == i->negated;
      code = i->to;
      break;
    }
    case HEED__OP_START:
      fails = at > 0;
      code++;
      break;
    case HEED__OP_FINISH:
      fails = at < size;
      code++;
      break;
    case HEED__OP_END:
      *matched = true;
      *end = at;
      r->stack.size = bottom;
      return HEED_OK;
    }
    if (status != HEED_OK) break;
    if (fails && !take_back(r, bottom, text, size, &code, &at)) {
      *matched = false;
      return HEED_OK;
    }
  }
  r->stack.size = bottom;
  return status;
}

static heed_status find(heed__regex *r, const char *function, const char *text, size_t size, size_t from,
                        bool *found, heed__text_span *match) {
  *found = false;
  for (size_t at = from; at < size;) {
    const unsigned char first = (unsigned char)text[at];
    uint32_t candidates = first < 128 ? r->first[first] : r->first_other;
    for (uint32_t i = 0; candidates != 0; i++, candidates >>= 1) {
      size_t end;
      if (!(candidates & 1)) continue;
      const heed_status status = run_code(r, function, r->starts[i], text, size, at, found, &end);
      if (status != HEED_OK) return status;
      if (*found && end > at) {
        *match = (heed__text_span){at, end};
        return HEED_OK;
      }
      if (*found) break; /* an empty match: none begins here */
    }
    *found = false;
    if ((++r->steps & 0xffff) == 0) {
      const heed_status status = check_regex_steps(r, function);
      if (status != HEED_OK) return status;
    }
    at += first < 128 ? 1 : heed__utf8_length((char)first);
  }
  return HEED_OK;
}

heed_status heed__regex_find(heed__regex *r, const char *function, const char *text, size_t size, size_t from,
                             bool *found, heed__text_span *match) {
  const heed_status status = find(r, function, text, size, from, found, match);
  return status == HEED_OK && r->ctx->limits.work != 0 ? check_regex_steps(r, function) : status;
}
