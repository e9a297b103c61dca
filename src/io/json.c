/* JSON: a text is checked in one pass, under limits; what has been checked is given to cJSON, which makes the
 * tree: each member of the outermost object as soon as it ends, since cJSON itself can't be stopped. cJSON
 * alone accepts more than JSON (a character 0, invalid UTF-8, 007), and takes memory without a bound. Text
 * that passes here fails in cJSON only when out of memory. */
#include "files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#if HEED_CJSON
#include <cJSON.h>

#define MAX_DEPTH  64 /* of lists and objects: bits of a word */
#define MAX_NUMBER 60 /* characters of a number: cJSON 1.7.15 reads no more than 63 */

/* ---- Checking ---- */

typedef struct checker {
  const heed__place *place;
  const heed__json_limits *limits;
  const char *start, *p, *end;
  int64_t values;
  int depth;
  uint64_t objects; /* a bit for each list or object that is open, the innermost lowest: 1 for an object */
  /* The name, its end and the value of the outermost object's member that is being checked, and the tree of
   * those before it: NULL if there are none. */
  const char *name, *name_end, *value;
  cJSON *root;
} checker;

static heed_status wrong(const checker *c, const char *what) {
  return heed__broken(c->place, "not valid JSON at byte %lld: %s", (long long)(c->p - c->start) + 1, what);
}

static void skip_spaces(checker *c) {
  while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r')) c->p++;
}

static bool next_is(const checker *c, char character) {
  return c->p < c->end && *c->p == character;
}

static bool skip(checker *c, char character) {
  if (!next_is(c, character)) return false;
  c->p++;
  return true;
}

static bool skip_digits(checker *c) {
  const char *start = c->p;
  while (c->p < c->end && *c->p >= '0' && *c->p <= '9') c->p++;
  return c->p > start;
}

static heed_status check_number(checker *c) {
  const char *start = c->p;
  bool integer = true;
  skip(c, '-');
  if (!skip(c, '0') && !skip_digits(c)) return wrong(c, "a digit is needed");
  if (next_is(c, '.')) {
    integer = false;
    c->p++;
    if (!skip_digits(c)) return wrong(c, "a digit is needed");
  }
  if (next_is(c, 'e') || next_is(c, 'E')) {
    integer = false;
    c->p++;
    if (!skip(c, '+')) skip(c, '-');
    if (!skip_digits(c)) return wrong(c, "a digit is needed");
  }
  if (c->p - start <= MAX_NUMBER && (integer || !c->limits->integers)) return HEED_OK;
  const bool too_long = c->p - start > MAX_NUMBER;
  c->p = start;
  return wrong(c, too_long ? "the number is too long" : "the number must be a whole one, in digits alone");
}

/* The four digits behind \u; -1 if they are none. */
static int hexadecimal(const char *p, const char *end) {
  int value = 0;
  if (end - p < 4) return -1;
  for (int i = 0; i < 4; i++) {
    const char digit = p[i];
    const int d = digit >= '0' && digit <= '9'   ? digit - '0'
                  : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                  : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                                 : -1;
    if (d < 0) return -1;
    value = value * 16 + d;
  }
  return value;
}

/* At the character behind a backslash. */
static heed_status check_escape(checker *c) {
  static const char plain[] = "\"\\/bfnrt";
  if (c->p < c->end && *c->p != '\0' && strchr(plain, *c->p) != NULL) {
    c->p++;
    return HEED_OK;
  }
  const int first = next_is(c, 'u') ? hexadecimal(c->p + 1, c->end) : -1;
  if (first < 0) return wrong(c, "there is no such escape in a string");
  if (first == 0) return wrong(c, "a string holds the character 0");
  if (first >= 0xdc00 && first <= 0xdfff) return wrong(c, "half of a pair of surrogates stands alone");
  if (first >= 0xd800 && first <= 0xdbff) {
    const bool escaped = c->end - c->p >= 7 && c->p[5] == '\\' && c->p[6] == 'u';
    const int second = escaped ? hexadecimal(c->p + 7, c->end) : -1;
    if (second < 0xdc00 || second > 0xdfff) return wrong(c, "half of a pair of surrogates stands alone");
    c->p += 6;
  }
  c->p += 5;
  return HEED_OK;
}

static heed_status check_string(checker *c) {
  if (!skip(c, '"')) return wrong(c, "a string in quotes is needed");
  while (c->p < c->end) {
    const unsigned char byte = (unsigned char)*c->p;
    if (byte == '"') {
      c->p++;
      return HEED_OK;
    }
    if (byte < ' ') return wrong(c, "a string holds a control character");
    if (byte == '\\') {
      c->p++;
      const heed_status status = check_escape(c);
      if (status != HEED_OK) return status;
      continue;
    }
    c->p++;
  }
  return wrong(c, "the text ends within a string");
}

static bool skip_word(checker *c, const char *word) {
  const size_t length = strlen(word);
  if ((size_t)(c->end - c->p) < length || memcmp(c->p, word, length) != 0) return false;
  c->p += length;
  return true;
}

/* At a name of an object: up to its value. */
static heed_status check_name(checker *c) {
  skip_spaces(c);
  const char *const name = c->p;
  const heed_status status = check_string(c);
  if (status != HEED_OK) return status;
  if (c->depth == 1) c->name = name, c->name_end = c->p;
  skip_spaces(c);
  return skip(c, ':') ? HEED_OK : wrong(c, "a colon is needed behind the name");
}

/* Behind a value: adds it to the tree if it is a member of the outermost object. */
static heed_status take_member(checker *c) {
  if (c->depth != 1 || (c->objects & 1) == 0) return HEED_OK;
  const char *end; /* asked for, cJSON keeps the place of an error here, and not in a global of its own */
  cJSON *name = cJSON_ParseWithLengthOpts(c->name, (size_t)(c->name_end - c->name), &end, false);
  cJSON *value = cJSON_ParseWithLengthOpts(c->value, (size_t)(c->p - c->value), &end, false);
  if (c->root == NULL) c->root = cJSON_CreateObject();
  const bool fine = name != NULL && value != NULL && c->root != NULL;
  if (fine) {
    value->string = name->valuestring;
    name->valuestring = NULL;
    cJSON_AddItemToArray(c->root, value); /* at the end of its list, which an object is, too */
  } else {
    cJSON_Delete(value);
  }
  cJSON_Delete(name);
  return fine ? HEED_OK : heed__fail_memory(c->place->ctx, "load", sizeof(cJSON));
}

/* At a value. *opened: it is a list or an object, of which more is to come. */
static heed_status check_value(checker *c, bool *opened) {
  *opened = false;
  skip_spaces(c);
  if (c->depth == 1) c->value = c->p;
  if (++c->values > c->limits->values) return wrong(c, "there are too many values");
  if (c->p == c->end) return wrong(c, "the text ends where a value is needed");
  const char first = *c->p;
  if (first == '{' || first == '[') {
    if (c->depth == c->limits->depth) return wrong(c, "lists and objects lie too deep in each other");
    c->p++;
    skip_spaces(c);
    if (skip(c, first == '{' ? '}' : ']')) return HEED_OK;
    c->depth++;
    c->objects = c->objects << 1 | (first == '{');
    *opened = true;
    return first == '{' ? check_name(c) : HEED_OK;
  }
  if (first == '"') return check_string(c);
  if (first == '-' || (first >= '0' && first <= '9')) return check_number(c);
  if (skip_word(c, "true") || skip_word(c, "false") || skip_word(c, "null")) return HEED_OK;
  return wrong(c, "a value is needed");
}

/* Behind a value: closes what ends there. *more: another value comes. */
static heed_status check_end_of_value(checker *c, bool *more) {
  heed_status status = take_member(c);
  *more = false;
  while (c->depth > 0 && status == HEED_OK) {
    const bool object = c->objects & 1;
    skip_spaces(c);
    if (skip(c, ',')) {
      *more = true;
      return object ? check_name(c) : HEED_OK;
    }
    if (!skip(c, object ? '}' : ']'))
      return wrong(c, object ? "a comma or } is needed" : "a comma or ] is needed");
    c->depth--;
    c->objects >>= 1;
    status = take_member(c);
  }
  return status;
}

static heed_status check(checker *c) {
  bool more = true;
  while (more) {
    heed_status status = check_value(c, &more);
    if (status == HEED_OK && !more) status = check_end_of_value(c, &more);
    if (status == HEED_OK && heed__is_due_at(&c->place->ctx->pace, c->values))
      status = heed__stopped(c->place->ctx, "load");
    if (status != HEED_OK) return status;
  }
  skip_spaces(c);
  return c->p == c->end ? HEED_OK : wrong(c, "the text goes on behind its end");
}

/* ---- The tree ---- */

struct heed__json_tree {
  heed__outside outside;
  heed_context *ctx;
  cJSON *root;
};

static void give_back(heed__outside *thing) {
  cJSON_Delete(((heed__json_tree *)thing)->root);
}

heed_status heed__json_parse(const heed__place *place, const char *text, size_t length,
                             const heed__json_limits *limits, heed__json_tree **out) {
  heed_context *ctx = place->ctx;
  if (length > limits->bytes)
    return heed__broken(place, "has %zu bytes; at most %zu are read", length, limits->bytes);
  checker c = {.place = place, .limits = limits, .start = text, .p = text, .end = text + length};
  const size_t invalid = heed__text_check(text, length);
  if (invalid > 0) {
    c.p = text + invalid - 1;
    return wrong(&c, "no character of UTF-8");
  }
  heed__json_tree *tree = NULL;
  const char *end;
  heed_status status = check(&c);
  if (status != HEED_OK) goto failed;
  if (c.root == NULL) c.root = cJSON_ParseWithLengthOpts(text, length, &end, false);
  if (c.root == NULL) {
    status = heed__fail_memory(ctx, "load", (size_t)c.values * sizeof(cJSON));
    goto failed;
  }
  tree = heed__allocate(ctx, sizeof(*tree));
  if (tree == NULL) {
    status = heed__fail_memory(ctx, "load", sizeof(*tree));
    goto failed;
  }
  tree->ctx = ctx;
  tree->root = c.root;
  heed__outside_add(ctx, &tree->outside, give_back);
  *out = tree;
  return HEED_OK;
failed:
  cJSON_Delete(c.root);
  return status;
}

heed_status heed__json_load(heed_context *ctx, const char *path, heed__json_tree **out) {
  static const heed__json_limits limits = {.bytes = (size_t)16 << 20, .values = 1 << 20, .depth = MAX_DEPTH};
  heed__place place;
  heed__file_map *map = NULL;
  heed__place_init(&place, ctx, "load", path);
  heed_status status = heed__file_map_open(&place, path, &map);
  if (status != HEED_OK) return status;
  const size_t mark = map->size >= 3 && memcmp(map->data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* of UTF-8 */
  status = heed__json_parse(&place, map->data + mark, map->size - mark, &limits, out);
  heed__file_map_release(map);
  return status;
}

void heed__json_free(heed__json_tree *tree) {
  if (tree == NULL) return;
  heed__outside_remove(tree->ctx, &tree->outside);
  heed__release(tree->ctx, tree);
}

/* ---- Looking at it ---- */

static const cJSON *of(const heed__json *value) {
  return (const cJSON *)(const void *)value;
}

const heed__json *heed__json_root(const heed__json_tree *tree) {
  return (const heed__json *)(const void *)tree->root;
}

heed__json_kind heed__json_kind_of(const heed__json *value) {
  const cJSON *v = of(value);
  return cJSON_IsObject(v)   ? HEED__JSON_OBJECT
         : cJSON_IsArray(v)  ? HEED__JSON_LIST
         : cJSON_IsString(v) ? HEED__JSON_STRING
         : cJSON_IsNumber(v) ? HEED__JSON_NUMBER
         : cJSON_IsBool(v)   ? HEED__JSON_BOOLEAN
                             : HEED__JSON_NULL;
}

const heed__json *heed__json_first(const heed__json *value) {
  return (const heed__json *)(const void *)of(value)->child;
}

const heed__json *heed__json_next(const heed__json *value) {
  return (const heed__json *)(const void *)of(value)->next;
}

const char *heed__json_key(const heed__json *value) {
  return of(value)->string;
}

const char *heed__json_text(const heed__json *value) {
  return of(value)->valuestring;
}

bool heed__json_boolean(const heed__json *value) {
  return cJSON_IsTrue(of(value));
}

double heed__json_number(const heed__json *value) {
  return of(value)->valuedouble;
}

bool heed__json_integer(const heed__json *value, int64_t *out) {
  const double number = of(value)->valuedouble;
  if (!cJSON_IsNumber(of(value)) || !(fabs(number) < 0x1p53) || number != floor(number)) return false;
  *out = (int64_t)number;
  return true;
}

#else

/* Without cJSON there are no trees, and so nothing to look at. */
heed_status heed__json_parse(const heed__place *place, const char *text, size_t length,
                             const heed__json_limits *limits, heed__json_tree **out) {
  (void)text, (void)length, (void)limits, (void)out;
  return heed__broken(place, "this build of heed has no JSON; compile with -DHEED_CJSON=1 and link cJSON");
}

heed_status heed__json_load(heed_context *ctx, const char *path, heed__json_tree **out) {
  heed__place place;
  heed__place_init(&place, ctx, "load", path);
  return heed__json_parse(&place, NULL, 0, NULL, out);
}

void heed__json_free(heed__json_tree *tree) {
  (void)tree;
}
const heed__json *heed__json_root(const heed__json_tree *tree) {
  return (const heed__json *)(const void *)tree;
}
heed__json_kind heed__json_kind_of(const heed__json *value) {
  (void)value;
  return HEED__JSON_NULL;
}
const heed__json *heed__json_first(const heed__json *value) {
  (void)value;
  return NULL;
}
const heed__json *heed__json_next(const heed__json *value) {
  (void)value;
  return NULL;
}
const char *heed__json_key(const heed__json *value) {
  (void)value;
  return "";
}
const char *heed__json_text(const heed__json *value) {
  (void)value;
  return "";
}
bool heed__json_boolean(const heed__json *value) {
  (void)value;
  return false;
}
double heed__json_number(const heed__json *value) {
  (void)value;
  return 0;
}
bool heed__json_integer(const heed__json *value, int64_t *out) {
  (void)value, (void)out;
  return false;
}

#endif
