/* A reader of pickles: the operations that torch.save writes, of protocols 2 and 3. It builds a tree of
 * values; calls stay descriptions of calls. Source: CPython's pickletools.py. */
#include "pickle.h"

#include <string.h>

/* ---- Arrays ---- */

static void *grow_pickle_array(heed_context *ctx, heed__pickle_array *a, size_t size) {
  if (a->count == a->capacity) {
    const size_t capacity = a->capacity == 0 ? 64 : 2 * a->capacity;
    void *data = capacity > UINT32_MAX ? NULL : heed__allocate(ctx, heed__array_bytes(capacity, size));
    if (data == NULL) return NULL;
    if (a->count > 0) memcpy(data, a->data, a->count * size);
    heed__release(ctx, a->data);
    a->data = data;
    a->capacity = capacity;
  }
  return (char *)a->data + a->count++ * size;
}

void heed__pickle_free(heed__pickle *p) {
  heed__pickle_array *const arrays[] = {&p->values, &p->items, &p->stack, &p->memo};
  for (int i = 0; i < 4; i++) {
    if (arrays[i]->data != NULL) heed__release(p->ctx, arrays[i]->data);
    *arrays[i] = (heed__pickle_array){0};
  }
}

/* ---- The machine ---- */

typedef struct unpickler {
  heed__pickle *p;
  const heed__where *where;
  const char *start, *at, *end;
  bool ended;
} unpickler;

static heed_status invalid_pickle(const unpickler *u, const char *what) {
  return heed__fail_file(u->where, "the pickle is not valid at byte %lld: %s", (long long)(u->at - u->start),
                         what);
}

static heed_status out_of_memory(const unpickler *u) {
  return heed__fail_memory(u->where->ctx, "load", 2 * u->p->values.capacity * sizeof(heed__pickle_value));
}

static heed__pickle_value *pickle_value_at(const unpickler *u, heed__pickle_id id) {
  return &((heed__pickle_value *)u->p->values.data)[id];
}
static heed__pickle_id *pickle_stack_at(const unpickler *u, size_t from_top) {
  return &((heed__pickle_id *)u->p->stack.data)[u->p->stack.count - from_top];
}

static heed_status push_pickle_id(const unpickler *u, heed__pickle_id id) {
  heed__pickle_id *slot = grow_pickle_array(u->p->ctx, &u->p->stack, sizeof(*slot));
  if (slot == NULL) return out_of_memory(u);
  *slot = id;
  return HEED_OK;
}

static heed_status push_pickle_value(const unpickler *u, heed__pickle_value value) {
  heed__pickle_value *slot = grow_pickle_array(u->p->ctx, &u->p->values, sizeof(*slot));
  if (slot == NULL) return out_of_memory(u);
  *slot = value;
  return push_pickle_id(u, (heed__pickle_id)(u->p->values.count - 1));
}

static heed_status push_pickle_kind(const unpickler *u, heed__pickle_kind kind, int64_t integer) {
  return push_pickle_value(u, (heed__pickle_value){.kind = kind, .integer = integer});
}

/* Pops a value; marks are none. */
static heed_status pop_value(const unpickler *u, heed__pickle_id *out) {
  if (u->p->stack.count == 0 || pickle_value_at(u, *pickle_stack_at(u, 1))->kind == HEED__PICKLE_MARK)
    return invalid_pickle(u, "the stack has too few values");
  *out = *pickle_stack_at(u, 1);
  u->p->stack.count--;
  return HEED_OK;
}

/* The number of values above the last mark. */
static heed_status count_above_mark(const unpickler *u, size_t *count) {
  const size_t depth = u->p->stack.count;
  for (*count = 0; *count < depth; ++*count) {
    if (pickle_value_at(u, *pickle_stack_at(u, *count + 1))->kind == HEED__PICKLE_MARK) return HEED_OK;
  }
  return invalid_pickle(u, "there is no mark");
}

static heed_status append_pickle_item(const unpickler *u, heed__pickle_id list, heed__pickle_id value) {
  heed__pickle_item *slot = grow_pickle_array(u->p->ctx, &u->p->items, sizeof(*slot));
  if (slot == NULL) return out_of_memory(u);
  *slot = (heed__pickle_item){.value = value};
  const heed__pickle_id id = (heed__pickle_id)(u->p->items.count - 1);
  heed__pickle_value *v = pickle_value_at(u, list);
  if (v->first == 0)
    v->first = id;
  else
    ((heed__pickle_item *)u->p->items.data)[v->last].next = id;
  v->last = id;
  v->integer++;
  return HEED_OK;
}

/* Moves the `count` values on top of the stack into a list or dict. */
static heed_status move_items(const unpickler *u, size_t count, heed__pickle_id list) {
  heed_status status = HEED_OK;
  for (size_t i = 0; i < count && status == HEED_OK; i++) {
    if (pickle_value_at(u, *pickle_stack_at(u, count - i))->kind == HEED__PICKLE_MARK)
      return invalid_pickle(u, "the stack has too few values");
    status = append_pickle_item(u, list, *pickle_stack_at(u, count - i));
  }
  u->p->stack.count -= count;
  return status;
}

/* A tuple of the `count` values on top of the stack, below which lie `marks` marks. */
static heed_status push_pickled_tuple(const unpickler *u, size_t count, size_t marks) {
  if (u->p->stack.count < count) return invalid_pickle(u, "the stack has too few values");
  heed_status status = push_pickle_kind(u, HEED__PICKLE_LIST, 0);
  if (status != HEED_OK) return status;
  const heed__pickle_id list = *pickle_stack_at(u, 1);
  u->p->stack.count--;
  status = move_items(u, count, list);
  u->p->stack.count -= marks;
  return status == HEED_OK ? push_pickle_id(u, list) : status;
}

/* Appends `count` values to the list or dict below them, and below `marks` marks. */
static heed_status extend_pickled(const unpickler *u, heed__pickle_kind kind, size_t count, size_t marks) {
  if (u->p->stack.count < count + marks + 1) return invalid_pickle(u, "the stack has too few values");
  const heed__pickle_id list = *pickle_stack_at(u, count + marks + 1);
  if (pickle_value_at(u, list)->kind != kind || (kind == HEED__PICKLE_DICT && count % 2 != 0))
    return invalid_pickle(u, kind == HEED__PICKLE_DICT ? "a dict is expected" : "a list is expected");
  const heed_status status = move_items(u, count, list);
  u->p->stack.count -= marks;
  return status;
}

/* ---- Arguments of operations ---- */

/* An unsigned little-endian number; false at the end of the text. */
static bool take_pickled_number(unpickler *u, int bytes, uint64_t *out) {
  if (u->end - u->at < bytes) return false;
  *out = 0;
  for (int i = bytes - 1; i >= 0; i--) *out = *out << 8 | (unsigned char)u->at[i];
  u->at += bytes;
  return true;
}

static bool take_pickled_text(unpickler *u, uint64_t length, const char **out) {
  if ((uint64_t)(u->end - u->at) < length) return false;
  *out = u->at;
  u->at += length;
  return true;
}

static heed_status pickle_cut_short(const unpickler *u) {
  return invalid_pickle(u, "it is cut short");
}

/* A text or bytes, after its length. */
static heed_status push_pickled_text(unpickler *u, int bytes, heed__pickle_kind kind) {
  uint64_t length;
  const char *text;
  if (!take_pickled_number(u, bytes, &length) || !take_pickled_text(u, length, &text))
    return pickle_cut_short(u);
  return push_pickle_value(u, (heed__pickle_value){.kind = kind, .text = text, .length = (size_t)length});
}

static heed_status push_pickled_integer(unpickler *u, int bytes, bool is_signed) {
  uint64_t number;
  if (!take_pickled_number(u, bytes, &number)) return pickle_cut_short(u);
  int64_t value = (int64_t)number;
  if (is_signed && bytes == 4 && number > INT32_MAX) value -= (int64_t)1 << 32;
  return push_pickle_kind(u, HEED__PICKLE_INTEGER, value);
}

/* LONG1: a length, and a number in two's complement. */
static heed_status push_pickled_long(unpickler *u) {
  uint64_t length, value = 0;
  const char *text;
  if (!take_pickled_number(u, 1, &length) || !take_pickled_text(u, length, &text)) return pickle_cut_short(u);
  if (length > 8) return push_pickle_kind(u, HEED__PICKLE_OTHER, 0);
  if (length > 0 && (unsigned char)text[length - 1] >= 0x80) value = UINT64_MAX;
  for (int i = (int)length - 1; i >= 0; i--) value = value << 8 | (unsigned char)text[i];
  int64_t integer;
  memcpy(&integer, &value, sizeof(integer));
  return push_pickle_kind(u, HEED__PICKLE_INTEGER, integer);
}

/* BINFLOAT: a double, the highest byte first. */
static heed_status push_pickled_float(unpickler *u) {
  uint64_t bits = 0;
  const char *text;
  heed__pickle_value value = {.kind = HEED__PICKLE_FLOAT};
  if (!take_pickled_text(u, 8, &text)) return pickle_cut_short(u);
  for (int i = 0; i < 8; i++) bits = bits << 8 | (unsigned char)text[i];
  memcpy(&value.number, &bits, sizeof(bits));
  return push_pickle_value(u, value);
}

/* GLOBAL: "module\nname\n". */
static heed_status push_pickled_global(unpickler *u) {
  const char *start = u->at;
  int lines = 0;
  while (u->at < u->end && lines < 2) lines += *u->at++ == '\n';
  if (lines < 2) return pickle_cut_short(u);
  return push_pickle_value(u, (heed__pickle_value){.kind = HEED__PICKLE_GLOBAL,
                                                   .text = start,
                                                   .length = (size_t)(u->at - start) - 1});
}

/* ---- Operations ---- */

static heed_status put_in_memo(const unpickler *u, uint64_t index) {
  if (u->p->stack.count == 0) return invalid_pickle(u, "the stack has too few values");
  /* numbers are consecutive, and each takes bytes: so the memo stays smaller than what was read */
  if (index > (uint64_t)(u->at - u->start)) return invalid_pickle(u, "the number of the memo is too large");
  while (u->p->memo.count <= index) {
    heed__pickle_id *slot = grow_pickle_array(u->p->ctx, &u->p->memo, sizeof(*slot));
    if (slot == NULL) return out_of_memory(u);
    *slot = 0;
  }
  ((heed__pickle_id *)u->p->memo.data)[index] = *pickle_stack_at(u, 1);
  return HEED_OK;
}

static heed_status get_from_memo(const unpickler *u, uint64_t index) {
  const heed__pickle_id id = index < u->p->memo.count ? ((heed__pickle_id *)u->p->memo.data)[index] : 0;
  return id != 0 ? push_pickle_id(u, id) : invalid_pickle(u, "the memo has no value of that number");
}

static heed_status use_memo(unpickler *u, int bytes, bool put) {
  uint64_t index;
  if (!take_pickled_number(u, bytes, &index)) return pickle_cut_short(u);
  return put ? put_in_memo(u, index) : get_from_memo(u, index);
}

/* Adds the pairs of a list to a dict. In total, no more items are copied than the pickle has bytes: its lists
 * can be named many times. */
static heed_status add_pickled_pairs(const unpickler *u, heed__pickle_id list, heed__pickle_id dict) {
  const heed__pickle *p = u->p;
  heed_status status = HEED_OK;
  if (heed__pickle_at(p, list)->kind != HEED__PICKLE_LIST) return invalid_pickle(u, "a list is expected");
  for (heed__pickle_id item = heed__pickle_at(p, list)->first; item != 0 && status == HEED_OK;) {
    const heed__pickle_value *pair = heed__pickle_at(p, heed__pickle_next(p, &item));
    if (pair->kind != HEED__PICKLE_LIST || pair->integer != 2) return invalid_pickle(u, "a pair is expected");
    if (p->items.count > 2 * (size_t)(u->end - u->start)) return invalid_pickle(u, "a list occurs too often");
    heed__pickle_id each = pair->first;
    status = append_pickle_item(u, dict, heed__pickle_next(p, &each));
    if (status == HEED_OK) status = append_pickle_item(u, dict, heed__pickle_next(p, &each));
  }
  return status;
}

/* An OrderedDict: Python 2 gives it a list of its pairs, Python 3 adds them later. */
static heed_status push_ordered_dict(const unpickler *u, heed__pickle_id arguments) {
  heed__pickle_id item = heed__pickle_at(u->p, arguments)->first;
  const heed_status status = push_pickle_kind(u, HEED__PICKLE_DICT, 0);
  if (status != HEED_OK || item == 0) return status;
  return add_pickled_pairs(u, heed__pickle_next(u->p, &item), *pickle_stack_at(u, 1));
}

/* REDUCE and NEWOBJ: a call; a new dict if its class is one. Classes of modules can be described outside. */
static heed_status push_pickled_call(const unpickler *u) {
  heed__pickle_id arguments = 0, called = 0;
  heed_status status = pop_value(u, &arguments);
  if (status == HEED_OK) status = pop_value(u, &called);
  if (status != HEED_OK) return status;
  const heed__pickle_value *class = pickle_value_at(u, called);
  if ((class->kind != HEED__PICKLE_GLOBAL && class->kind != HEED__PICKLE_OUTSIDE) ||
      pickle_value_at(u, arguments)->kind != HEED__PICKLE_LIST)
    return invalid_pickle(u, "a call of something that is not a name");
  if (heed__pickle_is(class, HEED__PICKLE_GLOBAL, "collections\nOrderedDict"))
    return push_ordered_dict(u, arguments);
  if (heed__pickle_is(class, HEED__PICKLE_GLOBAL, "collections\ndefaultdict"))
    return push_pickle_kind(u, HEED__PICKLE_DICT, 0);
  return push_pickle_value(
      u, (heed__pickle_value){.kind = HEED__PICKLE_CALL, .first = called, .last = arguments});
}

static heed_status push_outside(const unpickler *u) {
  heed__pickle_id description = 0;
  const heed_status status = pop_value(u, &description);
  if (status != HEED_OK) return status;
  return push_pickle_value(u, (heed__pickle_value){.kind = HEED__PICKLE_OUTSIDE, .first = description});
}

/* BUILD sets the attributes of an object, such as a dict's _metadata; no tensor that is read has any. */
static heed_status drop_state(const unpickler *u) {
  heed__pickle_id state;
  return pop_value(u, &state);
}

static heed_status end_pickle(unpickler *u) {
  u->ended = true;
  return pop_value(u, &u->p->root);
}

static heed_status run_operation(unpickler *u, unsigned char operation) {
  uint64_t number;
  size_t count;
  heed_status status;
  switch (operation) {
  case 0x80: return take_pickled_number(u, 1, &number) ? HEED_OK : pickle_cut_short(u); /* PROTO */
  case 'N': return push_pickle_kind(u, HEED__PICKLE_NONE, 0);
  case 0x88: return push_pickle_kind(u, HEED__PICKLE_BOOLEAN, 1);
  case 0x89: return push_pickle_kind(u, HEED__PICKLE_BOOLEAN, 0);
  case 'K': return push_pickled_integer(u, 1, false);
  case 'M': return push_pickled_integer(u, 2, false);
  case 'J': return push_pickled_integer(u, 4, true);
  case 0x8a: return push_pickled_long(u);
  case 'G': return push_pickled_float(u);
  case 'X': return push_pickled_text(u, 4, HEED__PICKLE_TEXT);
  case 'U': return push_pickled_text(u, 1, HEED__PICKLE_TEXT); /* a str of Python 2 */
  case 'T': return push_pickled_text(u, 4, HEED__PICKLE_TEXT);
  case 'C': return push_pickled_text(u, 1, HEED__PICKLE_OTHER);
  case 'B': return push_pickled_text(u, 4, HEED__PICKLE_OTHER);
  case 'c': return push_pickled_global(u);
  case ']': return push_pickle_kind(u, HEED__PICKLE_LIST, 0);
  case ')': return push_pickle_kind(u, HEED__PICKLE_LIST, 0);
  case '}': return push_pickle_kind(u, HEED__PICKLE_DICT, 0);
  case '(': return push_pickle_kind(u, HEED__PICKLE_MARK, 0);
  case 0x85: return push_pickled_tuple(u, 1, 0);
  case 0x86: return push_pickled_tuple(u, 2, 0);
  case 0x87: return push_pickled_tuple(u, 3, 0);
  case 'a': return extend_pickled(u, HEED__PICKLE_LIST, 1, 0);
  case 's': return extend_pickled(u, HEED__PICKLE_DICT, 2, 0);
  case 't':
  case 'e':
  case 'u':
    status = count_above_mark(u, &count);
    if (status != HEED_OK) return status;
    if (operation == 't') return push_pickled_tuple(u, count, 1);
    return extend_pickled(u, operation == 'u' ? HEED__PICKLE_DICT : HEED__PICKLE_LIST, count, 1);
  case 'q': return use_memo(u, 1, true);
  case 'r': return use_memo(u, 4, true);
  case 'h': return use_memo(u, 1, false);
  case 'j': return use_memo(u, 4, false);
  case 'R':
  case 0x81: return push_pickled_call(u);
  case 'Q': return push_outside(u);
  case 'b': return drop_state(u);
  case '.': return end_pickle(u);
  default:
    return heed__fail_file(
        u->where, "the pickle has the operation 0x%02x at byte %lld, which torch.save does not write",
        operation, (long long)(u->at - u->start));
  }
}

heed_status heed__pickle_read(const heed__where *where, const char *text, size_t size, heed__pickle *out) {
  heed_context *ctx = where->ctx;
  *out = (heed__pickle){.ctx = ctx};
  unpickler u = {.p = out, .where = where, .start = text, .at = text, .end = text + size};
  /* number 0 means none */
  if (grow_pickle_array(ctx, &out->values, sizeof(heed__pickle_value)) == NULL ||
      grow_pickle_array(ctx, &out->items, sizeof(heed__pickle_item)) == NULL)
    return out_of_memory(&u);
  memset(out->values.data, 0, sizeof(heed__pickle_value));
  memset(out->items.data, 0, sizeof(heed__pickle_item));
  heed_status status = HEED_OK;
  for (int64_t i = 0; !u.ended && status == HEED_OK; i++) {
    if (u.at == u.end) return pickle_cut_short(&u);
    const unsigned char operation = (unsigned char)*u.at++;
    status = run_operation(&u, operation);
    if (status == HEED_OK && heed__is_due_at(&ctx->pace, i)) status = heed__stopped(ctx, "load");
  }
  out->bytes = (size_t)(u.at - text);
  return status;
}

/* ---- Values ---- */

const heed__pickle_value *heed__pickle_item_at(const heed__pickle *p, const heed__pickle_value *list, int i) {
  if (list->kind != HEED__PICKLE_LIST || i >= list->integer) return NULL;
  heed__pickle_id item = list->first;
  while (i-- > 0) heed__pickle_next(p, &item);
  return heed__pickle_at(p, heed__pickle_next(p, &item));
}

bool heed__pickle_is(const heed__pickle_value *value, heed__pickle_kind kind, const char *text) {
  return value->kind == kind && value->length == strlen(text) &&
         memcmp(value->text, text, value->length) == 0;
}
