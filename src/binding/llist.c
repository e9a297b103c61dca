/* Reading the list of x[{…}]: integers, slices, tensors of indices, masks, "..." and new axes. */
#include <stdio.h>
#include <string.h>

#include "../ops/ops.h"
#include "lheed.h"

bool lheed_is_index(lua_State *L, int idx, int64_t *i) {
  if (lua_type(L, idx) == LUA_TNUMBER) {
    int exact;
    *i = lua_tointegerx(L, idx, &exact);
    if (!exact) lheed_bad_argument(L, idx, "index", "an index", "an integer");
    return true;
  }
  const lheed_box *box = lheed_test(L, idx, &lheed_tensor_type);
  const heed_tensor *x = box ? box->object : NULL;
  if (!x || x->ndim != 0 || x->dtype != HEED_INT64) return false;
  *i = heed__load(x->dtype, x->data).as.integer;
  return true;
}

int lheed_read_slice(lua_State *L, const char *noun, int number, int64_t part[3]) {
  int table = lua_gettop(L);
  lua_Unsigned n = lua_rawlen(L, table);
  part[2] = 1;
  lua_pushnil(L);
  if (n == 1 || n > 3 || (n == 0 && lua_next(L, table)))
    lheed_error(
        L,
        "index: the slice of %s %d must be {first, last}, {first, last, step} or {} for all; a list of "
        "indices is written {{1, 2, …}}",
        noun, number);
  for (lua_Unsigned i = 0; i < n; i++) {
    lua_rawgeti(L, table, (lua_Integer)i + 1);
    if (!lheed_is_index(L, lua_gettop(L), &part[i]))
      lheed_error(L, "index: the slice of %s %d has %s; it must have integers", noun, number,
                  lheed_push_what(L, lua_gettop(L)));
  }
  lua_settop(L, table);
  return (int)n;
}

/* An element of the list. */
typedef struct list_item {
  enum { ITEM_INTEGER, ITEM_SLICE, ITEM_ALL, ITEM_NEW_AXIS, ITEM_ELLIPSIS, ITEM_INDICES } kind;
  int dims;        /* of x that it takes; 0 for a new axis and "..." */
  int64_t part[3]; /* the integer; the slice */
  int slot;        /* of the tensor */
} list_item;

/* More cannot be right: a dimension and a new axis for each that a tensor may have, and "...". */
#define LIST_ITEMS (2 * HEED_MAX_DIMS + 1)

static int bad_item(lua_State *L, int idx, int number) {
  return lheed_error(
      L,
      "index: item %d of the list is %s; it must be an integer, a slice {first, last}, indices, a "
      "mask, \"...\" or heed.newaxis",
      number, lheed_push_what(L, idx));
}

/* Reads the string at idx. */
static void read_list_word(lua_State *L, int idx, int number, list_item *item) {
  const char *word = lua_tostring(L, idx);
  if (strcmp(word, LHEED_NEWAXIS) != 0 && strcmp(word, LHEED_ELLIPSIS) != 0) bad_item(L, idx, number);
  item->kind = strcmp(word, LHEED_NEWAXIS) == 0 ? ITEM_NEW_AXIS : ITEM_ELLIPSIS;
  item->dims = 0;
}

/* Reads the table at idx, a slice or, one level deeper, indices; these replace it. */
static void read_item_table(lua_State *L, int idx, int number, list_item *item) {
  if (lua_rawgeti(L, idx, 1) == LUA_TTABLE) {
    if (lua_rawlen(L, idx) != 1)
      lheed_error(L,
                  "index: item %d of the list is a table of %I tables; it must be one table of indices in a "
                  "table: {{1, 2, …}}",
                  number, (LUAI_UACINT)lua_rawlen(L, idx));
    lua_replace(L, idx);
    item->kind = ITEM_INDICES;
    return;
  }
  lua_settop(L, -2);
  lua_pushvalue(L, idx);
  item->kind = lheed_read_slice(L, "item", number, item->part) > 0 ? ITEM_SLICE : ITEM_ALL;
  lua_pop(L, 1);
}

/* Reads the element at stack slot idx; indices are replaced by a tensor. */
static void read_list_item(lua_State *L, int idx, int number, list_item *item) {
  item->slot = idx;
  item->dims = 1;
  item->kind = ITEM_INTEGER;
  if (lheed_is_index(L, idx, item->part)) return;
  if (lua_type(L, idx) == LUA_TSTRING) {
    read_list_word(L, idx, number, item);
    return;
  }
  if (lua_type(L, idx) == LUA_TTABLE)
    read_item_table(L, idx, number, item);
  else if (lheed_test(L, idx, &lheed_tensor_type))
    item->kind = ITEM_INDICES;
  else
    bad_item(L, idx, number);
  if (item->kind != ITEM_INDICES) return;
  char name[32];
  snprintf(name, sizeof name, "indices[%d]", number);
  lheed_indices(L, idx, "index", name, true);
  if (lheed_is_index(L, idx, item->part)) {
    item->kind = ITEM_INTEGER;
    return;
  }
  const heed_tensor *x = lheed_tensor(L, idx, "index", name);
  if (x->dtype != HEED_BOOL) return;
  if (x->ndim == 0) lheed_error(L, "index: %s is a mask of no dimensions; it must have at least 1", name);
  item->dims = x->ndim;
}

/* Appends a dimension, which is dimension d of x, to the view. */
static void add_list_dim(lua_State *L, lheed_list *list, int d, int64_t size, int64_t stride) {
  heed_tensor *view = list->view;
  if (view->ndim == HEED_MAX_DIMS)
    lheed_error(L, "index: the result has more than %d dimensions", HEED_MAX_DIMS);
  list->dim[view->ndim] = d;
  view->shape[view->ndim] = size;
  view->stride[view->ndim++] = stride;
  view->numel *= size;
}

/* The same for all of dimension d of x, or a part of it. */
static void add_kept_dim(lua_State *L, lheed_list *list, int d, int64_t first, int64_t step, int64_t count,
                         int64_t stride) {
  add_list_dim(L, list, d, count, count > 1 ? stride * step : stride);
  heed__part_add(list->part, HEED__PART_KEPT, first, step, count);
}

/* Appends an entry for such dimensions, of which there is at least one; slot 0: all of one. */
static void add_list_entry(lheed_list *list, int slot, int number) {
  list->slot[list->count] = slot;
  list->item[list->count++] = number;
}

static void add_list_dims(lua_State *L, lheed_list *list, const heed_tensor *x, int d) {
  add_kept_dim(L, list, d, 0, 1, x->shape[d], x->stride[d]);
  add_list_entry(list, 0, 0);
}

/* Adds what an item, whose dimensions of x begin at d, selects. `left`: what "..." stands for. */
static void add_item(lua_State *L, lheed_list *list, const heed_tensor *x, const list_item *item, int number,
                     int d, int left) {
  heed_context *ctx = x->storage->context;
  const ptrdiff_t width = (ptrdiff_t)heed__element_bytes(x->dtype);
  int64_t start = 0, count = 0;
  switch (item->kind) {
  case ITEM_INTEGER:
    LHEED_TRY(L, heed__check_index(ctx, "index", item->part[0], d, x->shape[d], &start));
    list->view->data += start * x->stride[d] * width;
    heed__part_add(list->part, HEED__PART_DROPPED, start, 1, 1);
    break;
  case ITEM_SLICE:
    LHEED_TRY(L, heed__check_slice(ctx, "index", item->part[0], item->part[1], item->part[2], d, x->shape[d],
                                   &start, &count));
    if (count > 0) list->view->data += start * x->stride[d] * width;
    add_kept_dim(L, list, d, start, item->part[2], count, x->stride[d]);
    if (list->part != NULL) list->part->name = "SliceBackward0";
    add_list_entry(list, 0, 0);
    break;
  case ITEM_NEW_AXIS:
    add_list_dim(L, list, d, 1, d < x->ndim ? x->shape[d] * x->stride[d] : 1);
    heed__part_add(list->part, HEED__PART_NEW, 0, 1, 1);
    add_list_entry(list, 0, 0);
    break;
  case ITEM_ALL: add_list_dims(L, list, x, d); break;
  case ITEM_INDICES:
    for (int i = 0; i < item->dims; i++)
      add_kept_dim(L, list, d + i, 0, 1, x->shape[d + i], x->stride[d + i]);
    add_list_entry(list, item->slot, number);
    break;
  default:
    for (int i = 0; i < left; i++) add_list_dims(L, list, x, d + i);
  }
}

void lheed_read_list(lua_State *L, lheed_list *list, heed_tensor *view) {
  list_item items[LIST_ITEMS];
  int dims = 0, integers = 0, ellipsis = 0, d = 0;
  bool any = false;
  const lua_Unsigned given = lua_rawlen(L, 2);
  const int top = lua_gettop(L);
  luaL_checkstack(L, LIST_ITEMS + LUA_MINSTACK, "index");
  if (given > LIST_ITEMS)
    lheed_error(L, "index: the list has %I items; it must have at most %d", (LUAI_UACINT)given, LIST_ITEMS);
  for (lua_Unsigned i = 1; i <= given; i++) lua_rawgeti(L, 2, (lua_Integer)i);
  for (int i = 0; i < (int)given; i++) {
    read_list_item(L, top + 1 + i, i + 1, &items[i]);
    if (items[i].kind == ITEM_ELLIPSIS) {
      if (ellipsis)
        lheed_error(L, "index: items %d and %d are both \"...\"; there can be only one", ellipsis, i + 1);
      ellipsis = i + 1;
    }
    integers += items[i].kind == ITEM_INTEGER;
    any = any || items[i].kind == ITEM_INDICES;
    dims += items[i].dims;
  }
  const heed_tensor *x = lheed_tensor(L, 1, "index", "x");
  if (dims > x->ndim)
    lheed_error(L, "index: %d %s given; x has %d dimension%s%s", dims, dims == 1 ? "index is" : "indices are",
                x->ndim, HEED__S(x->ndim),
                x->ndim > 0 && integers == (int)given
                    ? "; a list of indices for one is written x[{ {{1, 2, …}} }]"
                    : "");
  lheed_check_elements(L, "index", "x", x);
  heed__alias_on_stack(view, x);
  view->ndim = list->count = 0;
  view->numel = 1;
  list->view = view;
  heed__part_begin(list->part);
  for (int i = 0; i < (int)given; i++) {
    const int taken = items[i].kind == ITEM_ELLIPSIS ? x->ndim - dims : items[i].dims;
    add_item(L, list, x, &items[i], i + 1, d, taken);
    d += taken;
  }
  while (d < x->ndim) add_list_dims(L, list, x, d++);
  if (!any) list->count = 0;
}
