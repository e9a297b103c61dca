/* JSON of tokenizers: files of many megabytes with a million strings, which json.c would take too long for.
 * One pass, without recursion, makes an array of nodes; strings without escapes stay where they are in the
 * file. */
#include "text.h"

#include <math.h>
#include <string.h>

#define DEEPEST_JSON  64
#define MOST_EXPONENT 100000
#define LONGEST_TEXT  ((ptrdiff_t)16 << 20) /* bytes of a string in the file */

typedef struct tree_reader {
  const char *where, *start, *p, *end;
  heed__json_file *out;
  size_t text_used;
  heed_status status;
} tree_reader;

static heed_status fail_tree(const tree_reader *r, const char *what) {
  return heed__fail(r->out->ctx, HEED_FILE, "%s: not valid JSON at byte %lld: %s", r->where,
                    (long long)(r->p - r->start) + 1, what);
}

static void skip_blanks(tree_reader *r) {
  while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t')) r->p++;
}

/* A new node, 0 and r->status if there is none. */
static uint32_t add_json_node(tree_reader *r) {
  heed__json_file *f = r->out;
  if (heed__is_due_at(&f->ctx->pace, f->count)) r->status = heed__stopped(f->ctx, "load");
  if (r->status != HEED_OK) return 0;
  if (f->count == f->capacity) {
    const size_t capacity = f->capacity * 2 < UINT32_MAX ? f->capacity * 2 : UINT32_MAX,
                 bytes = heed__array_bytes(capacity, sizeof(*f->nodes));
    heed__json_node *nodes = f->count < capacity ? heed__allocate(f->ctx, bytes) : NULL;
    if (nodes == NULL) {
      r->status = heed__fail_memory(f->ctx, "load", bytes);
      return 0;
    }
    memcpy(nodes, f->nodes, f->count * sizeof(*nodes));
    heed__release(f->ctx, f->nodes);
    f->nodes = nodes;
    f->capacity = capacity;
  }
  f->nodes[f->count] = (heed__json_node){0};
  return f->count++;
}

static int hex_digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/* The four digits after \u; -1 if they are not hexadecimal. */
static int read_hex(const tree_reader *r, const char *p) {
  int value = 0;
  for (int i = 0; i < 4; i++) {
    const int digit = r->end - p > i ? hex_digit(p[i]) : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

static char *put_character(char *out, int c) {
  if (c < 0x80) {
    *out++ = (char)c;
  } else if (c < 0x800) {
    *out++ = (char)(0xc0 | c >> 6);
    *out++ = (char)(0x80 | (c & 0x3f));
  } else {
    if (c >= 0x10000) {
      *out++ = (char)(0xf0 | c >> 18);
      *out++ = (char)(0x80 | (c >> 12 & 0x3f));
    } else {
      *out++ = (char)(0xe0 | c >> 12);
    }
    *out++ = (char)(0x80 | (c >> 6 & 0x3f));
    *out++ = (char)(0x80 | (c & 0x3f));
  }
  return out;
}

/* At a backslash: appends what it stands for. Lone surrogates become U+FFFD. */
static char *read_escape(tree_reader *r, char *out) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  const char *name = r->end - r->p > 1 && r->p[1] != 0 ? strchr(names, r->p[1]) : NULL;
  if (name != NULL) {
    r->p += 2;
    *out = values[name - names];
    return out + 1;
  }
  int c = r->end - r->p > 1 && r->p[1] == 'u' ? read_hex(r, r->p + 2) : -1;
  if (c < 0) {
    r->status = fail_tree(r, "an unknown escape in a string");
    return out;
  }
  r->p += 6;
  if (c >= 0xd800 && c < 0xe000) {
    const int low =
        c < 0xdc00 && r->end - r->p > 5 && r->p[0] == '\\' && r->p[1] == 'u' ? read_hex(r, r->p + 2) : -1;
    if (low >= 0xdc00 && low < 0xe000) {
      c = 0x10000 + ((c & 0x3ff) << 10 | (low & 0x3ff));
      r->p += 6;
    } else {
      c = 0xfffd;
    }
  }
  return put_character(out, c);
}

static void check_json_stop(tree_reader *r, int64_t step) {
  if (r->status == HEED_OK && heed__is_due_at(&r->out->ctx->pace, step))
    r->status = heed__stopped(r->out->ctx, "load");
}

/* At a quote: the string and its size. */
static const char *read_json_string(tree_reader *r, uint32_t *size) {
  const char *start = ++r->p, *const stop = r->end - start > LONGEST_TEXT ? start + LONGEST_TEXT : r->end;
  while (r->p < stop && *r->p != '"' && *r->p != '\\' && (unsigned char)*r->p >= ' ') r->p++;
  if (r->p < stop && *r->p == '"') {
    *size = (uint32_t)(r->p++ - start);
    return start;
  }
  char *const text = r->out->text + r->text_used, *out = text;
  memcpy(out, start, (size_t)(r->p - start));
  out += r->p - start;
  for (int64_t step = 1; r->status == HEED_OK; step++) {
    if (r->p >= stop) { /* an escape may cross it */
      r->status =
          fail_tree(r, r->p >= r->end ? "the text ends within a string" : "a string has more than 16 MiB");
    } else if ((unsigned char)*r->p < ' ') {
      r->status = fail_tree(r, "a string contains a control character");
    } else if (*r->p == '"') {
      r->p++;
      break;
    } else if (*r->p == '\\') {
      out = read_escape(r, out);
    } else {
      *out++ = *r->p++;
    }
    check_json_stop(r, step);
  }
  *size = (uint32_t)(out - text);
  r->text_used += (size_t)(out - text);
  return text;
}

/* The digits of a number, without the point: those that fit, and the exponent of the last one. */
typedef struct decimal {
  uint64_t digits;
  int exponent;
  bool full;
} decimal;

static bool take_digits(tree_reader *r, decimal *d, bool fraction) {
  const char *start = r->p;
  for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) {
    const unsigned digit = (unsigned)(*r->p - '0');
    d->full = d->full || d->digits > (UINT64_MAX - digit) / 10;
    if (!d->full) d->digits = d->digits * 10 + digit;
    if (fraction != d->full && d->exponent > -MOST_EXPONENT && d->exponent < MOST_EXPONENT)
      d->exponent += fraction ? -1 : 1;
  }
  return r->p > start;
}

/* The double is rounded as by serde_json, which tokenizers uses: the digits, divided by a power of ten. Exact
 * for integers below 2^53. */
static void read_json_number(tree_reader *r, heed__json_node *node) {
  decimal d = {0}, power = {0};
  const bool negative = r->p < r->end && *r->p == '-';
  if (negative) r->p++;
  bool valid = take_digits(r, &d, false);
  if (valid && r->p < r->end && *r->p == '.') {
    r->p++;
    valid = take_digits(r, &d, true);
  }
  if (valid && r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
    r->p++;
    const bool down = r->p < r->end && *r->p == '-';
    if (r->p < r->end && (*r->p == '-' || *r->p == '+')) r->p++;
    valid = take_digits(r, &power, false);
    const int shift = power.full || power.digits > MOST_EXPONENT ? MOST_EXPONENT : (int)power.digits;
    d.exponent += down ? -shift : shift;
  }
  if (!valid) r->status = fail_tree(r, "a digit is expected");
  double value = (double)d.digits;
  for (; d.exponent < -308 && value != 0; d.exponent += 308) value /= 1e308;
  const double scale = pow(10, d.exponent < -308 ? 0 : d.exponent < 0 ? -d.exponent : d.exponent);
  node->u.number = (d.exponent < 0 ? value / scale : value * scale) * (negative ? -1 : 1);
}

static bool take_json_word(tree_reader *r, const char *name) {
  const size_t size = strlen(name);
  if ((size_t)(r->end - r->p) < size || memcmp(r->p, name, size) != 0) return false;
  r->p += size;
  return true;
}

/* At a value: makes its node. */
static uint32_t read_json_value(tree_reader *r) {
  const uint32_t index = add_json_node(r);
  if (index == 0) return 0;
  heed__json_node *node = &r->out->nodes[index];
  const char c = r->p < r->end ? *r->p : 0;
  if (c == '"') {
    node->kind = HEED__JSON_STRING;
    const char *const text = read_json_string(r, &node->size);
    node->u.text = text;
  } else if (c == '{' || c == '[') {
    node->kind = c == '{' ? HEED__JSON_OBJECT : HEED__JSON_LIST;
    r->p++;
  } else if (c == '-' || (c >= '0' && c <= '9')) {
    node->kind = HEED__JSON_NUMBER;
    read_json_number(r, node);
  } else if (take_json_word(r, "true")) {
    node->kind = HEED__JSON_BOOLEAN;
    node->u.number = 1;
  } else if (take_json_word(r, "false")) {
    node->kind = HEED__JSON_BOOLEAN;
  } else if (!take_json_word(r, "null")) {
    r->status = fail_tree(r, "a value is expected");
  }
  return index;
}

static heed_status read_tree(tree_reader *r) {
  uint32_t open[DEEPEST_JSON], last[DEEPEST_JSON]; /* the lists and objects around p, and their last values */
  int depth = 0;
  skip_blanks(r);
  uint32_t index = read_json_value(r);
  for (;;) {
    if (r->status != HEED_OK) return r->status;
    heed__json_node *nodes = r->out->nodes;
    const bool opened = nodes[index].kind >= HEED__JSON_LIST;
    if (opened) {
      if (depth == DEEPEST_JSON) return fail_tree(r, "lists and objects are nested too deeply");
      open[depth] = index;
      last[depth++] = 0;
    }
    bool empty = opened;
    for (;; empty = false) { /* closes what ends here */
      skip_blanks(r);
      if (depth == 0) return r->p == r->end ? HEED_OK : fail_tree(r, "unexpected text after the value");
      const char close = nodes[open[depth - 1]].kind == HEED__JSON_LIST ? ']' : '}';
      if (r->p == r->end || *r->p != close) break;
      r->p++;
      depth--;
    }
    if (!empty) {
      if (r->p == r->end || *r->p != ',') return fail_tree(r, "a comma or the end is expected");
      r->p++;
      skip_blanks(r);
    }
    const char *key = NULL;
    uint32_t key_size = 0;
    if (nodes[open[depth - 1]].kind == HEED__JSON_OBJECT) {
      if (r->p == r->end || *r->p != '"') return fail_tree(r, "a name in quotes is expected");
      key = read_json_string(r, &key_size);
      if (r->status != HEED_OK) return r->status;
      skip_blanks(r);
      if (r->p == r->end || *r->p != ':') return fail_tree(r, "a colon is expected after the name");
      r->p++;
      skip_blanks(r);
    }
    index = read_json_value(r);
    if (r->status != HEED_OK) return r->status;
    nodes = r->out->nodes;
    nodes[index].key = key;
    nodes[index].key_size = key_size;
    if (last[depth - 1] == 0)
      nodes[open[depth - 1]].u.first = index;
    else
      nodes[last[depth - 1]].next = index;
    last[depth - 1] = index;
    nodes[open[depth - 1]].size++;
  }
}

heed_status heed__json_file_load(heed_context *ctx, const char *where, const char *path,
                                 heed__json_file *out) {
  *out = (heed__json_file){.ctx = ctx};
  size_t invalid;
  heed_status status = heed__map_bytes(ctx, path, &out->file);
  if (status != HEED_OK) return status;
  const char *data = out->file->data;
  const size_t size = (size_t)out->file->numel,
               mark = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  tree_reader r = {where, data, data + mark, data + size, out, 0, HEED_OK};
  if (size > (size_t)1 << 30) {
    status = heed__fail(ctx, HEED_FILE, "%s: has more than 1 GiB", where);
    goto done;
  }
  status = heed__text_check_in_steps(ctx, "load", data, size, &invalid);
  if (status == HEED_OK && invalid > 0) {
    r.p = data + invalid - 1;
    status = fail_tree(&r, "not UTF-8");
  }
  if (status != HEED_OK) goto done;
  out->capacity = size / 16 + 64;
  const size_t bytes = heed__array_bytes(out->capacity, sizeof(*out->nodes));
  out->nodes = heed__allocate(ctx, bytes);
  out->text = heed__allocate(ctx, size + 1);
  if (out->nodes == NULL || out->text == NULL) {
    status = heed__fail_memory(ctx, "load", bytes + size);
    goto done;
  }
  out->nodes[out->count++] = (heed__json_node){0};
  status = read_tree(&r);
done:
  if (status != HEED_OK) heed__json_file_free(out);
  return status;
}

void heed__json_file_free(heed__json_file *f) {
  heed_tensor_free(f->file);
  heed__release(f->ctx, f->nodes);
  heed__release(f->ctx, f->text);
  *f = (heed__json_file){.ctx = f->ctx};
}

/* ---- Reading ---- */

const heed__json_node *heed__json_child(const heed__json_file *f, const heed__json_node *node) {
  return node == NULL || node->kind < HEED__JSON_LIST ? NULL : heed__json_at(f, node->u.first);
}

bool heed__json_is(const heed__json_node *node, const char *text) {
  return node != NULL && node->kind == HEED__JSON_STRING && node->size == strlen(text) &&
         memcmp(node->u.text, text, node->size) == 0;
}

const heed__json_node *heed__json_get(const heed__json_file *f, const heed__json_node *object,
                                      const char *key) {
  const size_t size = strlen(key);
  if (object == NULL || object->kind != HEED__JSON_OBJECT) return NULL;
  for (uint32_t i = object->u.first; i > 0; i = f->nodes[i].next)
    if (f->nodes[i].key_size == size && memcmp(f->nodes[i].key, key, size) == 0) return &f->nodes[i];
  return NULL;
}

const heed__json_node *heed__json_kind_get(const heed__json_file *f, const heed__json_node *object,
                                           const char *key, heed__json_kind kind) {
  const heed__json_node *node = heed__json_get(f, object, key);
  return node != NULL && node->kind == kind ? node : NULL;
}

bool heed__json_flag(const heed__json_file *f, const heed__json_node *object, const char *key,
                     bool otherwise) {
  const heed__json_node *node = heed__json_kind_get(f, object, key, HEED__JSON_BOOLEAN);
  return node == NULL ? otherwise : node->u.number != 0;
}
