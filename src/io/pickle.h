/* Pickles: reading Python's serialized values as data, without running anything. */
#ifndef HEED_PICKLE_H
#define HEED_PICKLE_H

#include "files.h"

typedef enum heed__pickle_kind {
  HEED__PICKLE_NONE,
  HEED__PICKLE_BOOLEAN, /* integer */
  HEED__PICKLE_INTEGER, /* integer; one that int64 cannot represent is OTHER */
  HEED__PICKLE_FLOAT,   /* number */
  HEED__PICKLE_TEXT,    /* text, length: UTF-8, as it stands in the pickle */
  HEED__PICKLE_OTHER,   /* bytes, large integers */
  HEED__PICKLE_LIST,    /* items; tuples, too */
  HEED__PICKLE_DICT,    /* items: keys and values in turn */
  HEED__PICKLE_GLOBAL,  /* text, length: "module name" */
  HEED__PICKLE_CALL,    /* of the value `first` with the list `last` as arguments */
  HEED__PICKLE_OUTSIDE, /* an object outside of the pickle, described by the value `first` */
  HEED__PICKLE_MARK
} heed__pickle_kind;

typedef uint32_t heed__pickle_id; /* of a value, or of an item; 0: none */

typedef struct heed__pickle_value {
  heed__pickle_kind kind;
  heed__pickle_id first, last; /* items of a list or dict */
  union {
    int64_t integer; /* of a list or dict: the number of items */
    double number;
    const char *text;
  };
  size_t length;
} heed__pickle_value;

typedef struct heed__pickle_item {
  heed__pickle_id value, next;
} heed__pickle_item;

/* An array that grows. */
typedef struct heed__pickle_array {
  void *data;
  size_t count, capacity;
} heed__pickle_array;

typedef struct heed__pickle {
  heed_context *ctx;
  heed__pickle_array values, items, stack, memo;
  heed__pickle_id root;
  size_t bytes; /* of the pickle, up to its end */
} heed__pickle;

/** Reads the pickle at the start of `text`, which must stay where it is. Operations that torch.save does not
 * write are refused. Errors: FILE, MEMORY, LIMIT, CANCELLED. The result is freed after an error, too. */
HEED_MUST_USE
heed_status heed__pickle_read(const heed__where *where, const char *text, size_t size, heed__pickle *out);
void heed__pickle_free(heed__pickle *pickle);

static inline const heed__pickle_value *heed__pickle_at(const heed__pickle *p, heed__pickle_id id) {
  return &((const heed__pickle_value *)p->values.data)[id];
}
/** The value of an item, which is not 0; *item becomes the next one. */
static inline heed__pickle_id heed__pickle_next(const heed__pickle *p, heed__pickle_id *item) {
  const heed__pickle_item *each = &((const heed__pickle_item *)p->items.data)[*item];
  *item = each->next;
  return each->value;
}
/** Item i, from 0, of a list; NULL if there is none. */
const heed__pickle_value *heed__pickle_item_at(const heed__pickle *p, const heed__pickle_value *list, int i);
/** Whether a value is a text, or a global, with these characters. */
bool heed__pickle_is(const heed__pickle_value *value, heed__pickle_kind kind, const char *text);

#endif
