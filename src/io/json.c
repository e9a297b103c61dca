/* JSON: one pass checks a text under limits and builds the tree; cJSON parses each checked string and number.
 * cJSON alone accepts more than JSON (the character 0, invalid UTF-8, 007), has no limit of memory and cannot
 * be cancelled. Text that passes the checks fails in cJSON only when out of memory. */
#include "files.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#if HEED_CJSON
#include <cJSON.h>

#define MAX_DEPTH  64                   /* of lists and objects */
#define MAX_NUMBER 60                   /* characters of a number: cJSON 1.7.15 reads at most 63 */
#define JSON_CHUNK ((ptrdiff_t)1 << 16) /* bytes between two cancellation checks */

/* ---- Checking ---- */

typedef struct checker {
  const heed__where *where;
  const heed__json_limits *limits;
  const char *start, *p, *end;
  const char *next_check; /* position of the next cancellation check */
  int64_t values;
  int depth;
  cJSON *open[MAX_DEPTH]; /* the lists and objects around p, the innermost last; part of root */
  cJSON *root;
  cJSON *name; /* owned: a string, the name of the member whose value comes next */
} checker;

static heed_status invalid_json(const checker *c, const char *what) {
  return heed__fail_file(c->where, "not valid JSON at byte %lld: %s", (long long)(c->p - c->start) + 1, what);
}

/* Called for each token and each character of a string. Errors: CANCELLED, LIMIT. */
static inline heed_status check_cancelled(checker *c) {
  if (c->p < c->next_check) return HEED_OK;
  c->next_check = c->end - c->p < JSON_CHUNK ? c->end : c->p + JSON_CHUNK;
  return heed__is_due(&c->where->ctx->pace) ? heed__stopped(c->where->ctx, "load") : HEED_OK;
}

static heed_status skip_spaces(checker *c) {
  heed_status status = check_cancelled(c);
  while (status == HEED_OK && c->p < c->end &&
         (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r')) {
    c->p++;
    status = check_cancelled(c);
  }
  return status;
}

static bool next_is(const checker *c, char character) {
  return c->p < c->end && *c->p == character;
}

static bool skip(checker *c, char character) {
  if (!next_is(c, character)) return false;
  c->p++;
  return true;
}

/* At most as many as a number may have. */
static bool skip_digits(checker *c) {
  const char *start = c->p;
  while (c->p < c->end && *c->p >= '0' && *c->p <= '9' && c->p - start <= MAX_NUMBER) c->p++;
  return c->p > start;
}

static heed_status check_number(checker *c) {
  const char *start = c->p;
  bool integer = true;
  skip(c, '-');
  if (!skip(c, '0') && !skip_digits(c)) return invalid_json(c, "a digit is expected");
  if (next_is(c, '.')) {
    integer = false;
    c->p++;
    if (!skip_digits(c)) return invalid_json(c, "a digit is expected");
  }
  if (next_is(c, 'e') || next_is(c, 'E')) {
    integer = false;
    c->p++;
    if (!skip(c, '+')) skip(c, '-');
    if (!skip_digits(c)) return invalid_json(c, "a digit is expected");
  }
  if (c->p - start <= MAX_NUMBER && (integer || !c->limits->integers)) return HEED_OK;
  const bool too_long = c->p - start > MAX_NUMBER;
  c->p = start;
  return invalid_json(c,
                      too_long ? "the number is too long" : "the number must be an integer, in digits alone");
}

/* The value of the four digits after \u; -1 if they are not hexadecimal. */
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

/* c->p is after the backslash. */
static heed_status check_escape(checker *c) {
  static const char plain[] = "\"\\/bfnrt";
  if (c->p < c->end && *c->p != '\0' && strchr(plain, *c->p) != NULL) {
    c->p++;
    return HEED_OK;
  }
  const int first = next_is(c, 'u') ? hexadecimal(c->p + 1, c->end) : -1;
  if (first < 0) return invalid_json(c, "an unknown escape in a string");
  if (first == 0) return invalid_json(c, "a string contains the character 0");
  if (first >= 0xdc00 && first <= 0xdfff) return invalid_json(c, "an unpaired surrogate");
  if (first >= 0xd800 && first <= 0xdbff) {
    const bool escaped = c->end - c->p >= 7 && c->p[5] == '\\' && c->p[6] == 'u';
    const int second = escaped ? hexadecimal(c->p + 7, c->end) : -1;
    if (second < 0xdc00 || second > 0xdfff) return invalid_json(c, "an unpaired surrogate");
    c->p += 6;
  }
  c->p += 5;
  return HEED_OK;
}

/* Parses a checked string or number that ends at p; NULL if out of memory. */
static cJSON *scalar_from(const checker *c, const char *start) {
  const char *end; /* required by cJSON, for the position of errors */
  return cJSON_ParseWithLengthOpts(start, (size_t)(c->p - start), &end, false);
}

static heed_status check_string(checker *c) {
  const char *const start = c->p;
  if (!skip(c, '"')) return invalid_json(c, "a string in quotes is expected");
  while (c->p < c->end) {
    heed_status status = check_cancelled(c);
    const unsigned char byte = (unsigned char)*c->p;
    if (status != HEED_OK) return status;
    if (byte < ' ') return invalid_json(c, "a string contains a control character");
    c->p++;
    if (byte == '"') {
      if ((size_t)(c->p - start) <= HEED__LONGEST_STRING) return HEED_OK;
      c->p = start;
      return invalid_json(c, "the string is too long");
    }
    if (byte == '\\') status = check_escape(c);
    if (status != HEED_OK) return status;
  }
  return invalid_json(c, "the text ends within a string");
}

static bool skip_word(checker *c, const char *word) {
  const size_t length = strlen(word);
  if ((size_t)(c->end - c->p) < length || memcmp(c->p, word, length) != 0) return false;
  c->p += length;
  return true;
}

static heed_status fail_memory(const checker *c) {
  return heed__fail_memory(c->where->ctx, "load", sizeof(cJSON));
}

/* At the name of a member: takes it and the colon. */
static heed_status take_name(checker *c) {
  heed_status status = skip_spaces(c);
  const char *const name = c->p;
  if (status == HEED_OK) status = check_string(c);
  if (status != HEED_OK) return status;
  c->name = scalar_from(c, name);
  if (c->name == NULL) return fail_memory(c);
  status = skip_spaces(c);
  if (status != HEED_OK || skip(c, ':')) return status;
  return invalid_json(c, "a colon is expected after the name");
}

/* Adds the value to the innermost list or object; NULL: out of memory. */
static heed_status put_value(checker *c, cJSON *value) {
  if (value == NULL) return fail_memory(c);
  if (c->name != NULL) {
    value->string = c->name->valuestring;
    c->name->valuestring = NULL;
    cJSON_Delete(c->name);
    c->name = NULL;
  }
  if (c->depth == 0)
    c->root = value;
  else
    cJSON_AddItemToArray(c->open[c->depth - 1], value); /* to cJSON an object is a list, too */
  return HEED_OK;
}

/* At a value: takes it, or the beginning of a list or object; *opened if the first value in that comes next.
 */
static heed_status take_value(checker *c, bool *opened) {
  *opened = false;
  heed_status status = skip_spaces(c);
  if (status != HEED_OK) return status;
  if (++c->values > c->limits->values) return invalid_json(c, "too many values");
  if (c->p == c->end) return invalid_json(c, "the text ends where a value is expected");
  const char *const start = c->p;
  if (*start == '{' || *start == '[') {
    const bool object = *start == '{';
    if (c->depth == c->limits->depth) return invalid_json(c, "lists and objects are nested too deeply");
    cJSON *const value = object ? cJSON_CreateObject() : cJSON_CreateArray();
    status = put_value(c, value);
    c->p++;
    if (status == HEED_OK) status = skip_spaces(c);
    if (status != HEED_OK || skip(c, object ? '}' : ']')) return status;
    c->open[c->depth++] = value;
    *opened = true;
    return object ? take_name(c) : HEED_OK;
  }
  if (skip_word(c, "null")) return put_value(c, cJSON_CreateNull());
  if (skip_word(c, "true")) return put_value(c, cJSON_CreateTrue());
  if (skip_word(c, "false")) return put_value(c, cJSON_CreateFalse());
  if (*start == '"')
    status = check_string(c);
  else if (*start == '-' || (*start >= '0' && *start <= '9'))
    status = check_number(c);
  else
    status = invalid_json(c, "a value is expected");
  return status == HEED_OK ? put_value(c, scalar_from(c, start)) : status;
}

/* After a value: closes the lists and objects that end here; *more if another value follows. */
static heed_status end_value(checker *c, bool *more) {
  *more = false;
  while (c->depth > 0) {
    const bool object = cJSON_IsObject(c->open[c->depth - 1]);
    const heed_status status = skip_spaces(c);
    if (status != HEED_OK) return status;
    if (skip(c, ',')) {
      *more = true;
      return object ? take_name(c) : HEED_OK;
    }
    if (!skip(c, object ? '}' : ']'))
      return invalid_json(c, object ? "a comma or } is expected" : "a comma or ] is expected");
    c->depth--;
  }
  return HEED_OK;
}

static heed_status take_all_values(checker *c) {
  heed_status status = HEED_OK;
  for (bool more = true; more && status == HEED_OK;) {
    status = take_value(c, &more);
    if (status == HEED_OK && !more) status = end_value(c, &more);
  }
  if (status == HEED_OK) status = skip_spaces(c);
  return status != HEED_OK || c->p == c->end ? status : invalid_json(c, "unexpected text after the value");
}

/* ---- The tree ---- */

struct heed__json_tree {
  heed__external external;
  heed_context *ctx;
  cJSON *root;
};

static void release_tree(heed__external *external) {
  cJSON_Delete(((heed__json_tree *)external)->root);
}

heed_status heed__json_parse(const heed__where *where, const char *text, size_t length,
                             const heed__json_limits *limits, heed__json_tree **out) {
  heed_context *ctx = where->ctx;
  if (length > limits->bytes)
    return heed__fail_file(where, "has %zu bytes; it must have at most %zu", length, limits->bytes);
  checker c = {
      .where = where, .limits = limits, .start = text, .p = text, .end = text + length, .next_check = text};
  heed__json_tree *tree = NULL;
  size_t invalid;
  heed_status status = heed__text_check_in_steps(ctx, "load", text, length, &invalid);
  if (status == HEED_OK && invalid > 0) {
    c.p = text + invalid - 1;
    status = invalid_json(&c, "not UTF-8");
  }
  if (status == HEED_OK) status = take_all_values(&c);
  if (status != HEED_OK) goto done;
  tree = heed__allocate(ctx, sizeof(*tree));
  if (tree == NULL) {
    status = heed__fail_memory(ctx, "load", sizeof(*tree));
    goto done;
  }
  tree->ctx = ctx;
  tree->root = c.root;
  c.root = NULL;
  heed__external_add(ctx, &tree->external, release_tree);
  *out = tree;
done:
  cJSON_Delete(c.root);
  cJSON_Delete(c.name);
  return status;
}

static const heed__json_limits usual_limits = {
    .bytes = (size_t)16 << 20, .values = 1 << 20, .depth = MAX_DEPTH};

heed_status heed__json_read(heed_context *ctx, const char *path, const char *text, size_t length,
                            heed__json_tree **out) {
  heed__where where;
  heed__where_init(&where, ctx, "load", path);
  return heed__json_parse(&where, text, length, &usual_limits, out);
}

heed_status heed__json_load(heed_context *ctx, const char *path, heed__json_tree **out) {
  heed__where where;
  heed__file_map *map = NULL;
  heed__where_init(&where, ctx, "load", path);
  heed_status status = heed__file_map_open(&where, path, &map);
  if (status != HEED_OK) return status;
  const size_t mark =
      map->size >= 3 && memcmp(map->data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* byte order mark */
  status = heed__json_parse(&where, map->data + mark, map->size - mark, &usual_limits, out);
  heed__file_map_release(map);
  return status;
}

void heed__json_free(heed__json_tree *tree) {
  if (tree == NULL) return;
  heed__external_remove(tree->ctx, &tree->external);
  heed__release(tree->ctx, tree);
}

/* ---- Values ---- */

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

/* Without cJSON no tree is ever made; the functions below are never called. */
heed_status heed__json_parse(const heed__where *where, const char *text, size_t length,
                             const heed__json_limits *limits, heed__json_tree **out) {
  (void)text, (void)length, (void)limits, (void)out;
  return heed__fail_file(where, "this build of heed has no JSON; compile with -DHEED_CJSON=1 and link cJSON");
}

heed_status heed__json_read(heed_context *ctx, const char *path, const char *text, size_t length,
                            heed__json_tree **out) {
  heed__where where;
  heed__where_init(&where, ctx, "load", path);
  return heed__json_parse(&where, text, length, NULL, out);
}

heed_status heed__json_load(heed_context *ctx, const char *path, heed__json_tree **out) {
  return heed__json_read(ctx, path, NULL, 0, out);
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
