/* x[…]: reading and writing elements, rows, slices and rows by a tensor of indices or a mask; x:iter().
 * Fields and methods by name are in lproperties.c. */
#include <string.h>

#include "../ops/ops.h"
#include "lheed.h"

/* ---- From keys to views ---- */

/* Where a part is noted for recording: NULL while nothing is recorded. */
static heed__part *to_record(const heed_context *ctx, heed__part *part) {
  return ctx->recorder != NULL ? part : NULL;
}

/* x[{…}] for a list of integers and slices at stack slot 2: stores the view in *view, and in *part if it is
 * not NULL, without allocating. False if something else is in it: see lheed_read_list. */
static bool view_table(lua_State *L, const heed_tensor *x, heed_tensor *view, heed__part *part) {
  heed_context *ctx = x->storage->context;
  lua_Unsigned given = lua_rawlen(L, 2);
  if (given > (lua_Unsigned)x->ndim) return false;
  if (given == 0) {
    lua_pushnil(L);
    if (lua_next(L, 2))
      lheed_error(
          L, "index: the table has keys; it must be a list of integers and slices, one for each dimension");
  }
  heed__alias_on_stack(view, x);
  view->ndim = 0;
  view->numel = 1;
  heed__part_begin(part);
  for (int d = 0; d < x->ndim; d++) {
    int64_t start = 0, count = x->shape[d], step = 1, i;
    bool dropped = false;
    if ((lua_Unsigned)d < given) {
      if (d == x->ndim - 1) lheed_check_elements(L, "index", "x", x);
      lua_rawgeti(L, 2, d + 1);
      int top = lua_gettop(L);
      dropped = lheed_is_index(L, top, &i);
      if (dropped) {
        LHEED_TRY(L, heed__check_index(ctx, "index", i, d, x->shape[d], &start));
        count = 1;
      } else {
        if (lua_type(L, top) != LUA_TTABLE) return false;
        if (lua_rawgeti(L, top, 1) == LUA_TTABLE) return false;
        lua_pop(L, 1);
        int64_t slice[3];
        if (lheed_read_slice(L, "dimension", d + 1, slice) > 0) {
          step = slice[2];
          if (part != NULL) part->name = "SliceBackward0";
          LHEED_TRY(
              L, heed__check_slice(ctx, "index", slice[0], slice[1], step, d, x->shape[d], &start, &count));
        }
      }
      lua_pop(L, 1);
      if (count > 0)
        view->data += heed__row_bytes(
            x->dtype, start * x->stride[d]); /* of an empty view there is no element to point at */
    }
    heed__part_add(part, dropped ? HEED__PART_DROPPED : HEED__PART_KEPT, start, step, count);
    if (dropped) continue;
    view->shape[view->ndim] = count;
    view->stride[view->ndim++] =
        count > 1 ? x->stride[d] * step : x->stride[d]; /* the step of one element may overflow */
    view->numel *= count;
  }
  return true;
}

/* The element of x at the indices in the table at stack slot 2; NULL unless it has one valid index for each
 * dimension. view_table takes twice as long. */
static char *find_element(lua_State *L, const heed_tensor *x) {
  int64_t offset = 0, at;
  if (lua_rawlen(L, 2) != (lua_Unsigned)x->ndim || heed__is_blocked(x->dtype)) return NULL;
  for (int d = 0; d < x->ndim; d++) {
    int exact = 0;
    bool is_number = lua_rawgeti(L, 2, d + 1) == LUA_TNUMBER;
    int64_t i = is_number ? lua_tointegerx(L, -1, &exact) : 0;
    lua_pop(L, 1);
    if (!exact || heed__check_index(x->storage->context, "index", i, d, x->shape[d], &at) != HEED_OK)
      return NULL;
    offset += at * x->stride[d];
  }
  return x->data + offset * (ptrdiff_t)heed__element_bytes(x->dtype);
}

/* The same for row `at` (from 0) of x. */
static void note_row(heed__part *part, const heed_tensor *x, int64_t at) {
  if (part == NULL) return;
  heed__part_begin(part);
  heed__part_add(part, HEED__PART_DROPPED, at, 1, 1);
  for (int d = 1; d < x->ndim; d++) heed__part_add(part, HEED__PART_KEPT, 0, 1, x->shape[d]);
}

/* Row `at` (from 0) of the view. */
static void select_row(heed_tensor *view, int64_t at) {
  view->data += heed__row_bytes(view->dtype, at * view->stride[0]);
  view->numel /= view->shape[0];
  view->ndim--;
  for (int d = 0; d < view->ndim; d++) {
    view->shape[d] = view->shape[d + 1];
    view->stride[d] = view->stride[d + 1];
  }
}

static void check_has_rows(lua_State *L, const heed_tensor *x) {
  if (x->ndim == 0) lheed_error(L, "index: x has no dimensions; x:item() reads its element");
}

static int64_t check_row(lua_State *L, const heed_tensor *x, int64_t i) {
  int64_t at = 0;
  check_has_rows(L, x);
  LHEED_TRY(L, heed__check_index(x->storage->context, "index", i, 0, x->shape[0], &at));
  return at;
}

/* The tensors and names of a list. */
static void get_indices(lua_State *L, const lheed_list *list, const heed_tensor **indices,
                        heed__index_names *names) {
  for (int i = 0; i < list->count; i++) {
    indices[i] = list->slot[i] ? lheed_tensor(L, list->slot[i], "index", "the index") : NULL;
    names->item[i] = list->item[i];
  }
  memcpy(names->dim, list->dim, sizeof names->dim);
}

/* Of x[t]: the tensor is no item of a list. */
static const heed__index_names whole_index = {{0}, {0}};

static int bad_key(lua_State *L) {
  return lheed_bad_argument(L, 2, "index", "the index", "an integer, a table or a tensor");
}

/* ---- Reading ---- */

/* Pushes row i of the tensor at slot 1: a number if the tensor has one dimension, else a view. */
static int push_row(lua_State *L, int64_t i) {
  const heed_tensor *x = lheed_tensor(L, 1, "index", "x");
  int64_t at = check_row(L, x, i);
  if (x->ndim == 1) {
    lheed_check_elements(L, "index", "x", x);
    lheed_push_scalar(
        L, heed__load(x->dtype, x->data + at * x->stride[0] * (ptrdiff_t)heed__element_bytes(x->dtype)));
    return 1;
  }
  heed_tensor view, **out = lheed_push_tensor(L);
  x = lheed_tensor(L, 1, "index", "x"); /* read again: pushing the box may have run finalizers */
  heed__alias_on_stack(&view, x);
  select_row(&view, at);
  heed__part noted, *part = to_record(x->storage->context, &noted);
  note_row(part, x, at);
  LHEED_TRY(L, heed__give_part(x->storage->context, "index", x, &view, part, out));
  return lheed_return(L, 1);
}

/* x[i] for a number; nil for the index after the last row, so that ipairs ends. */
static int read_row(lua_State *L) {
  int64_t i;
  const heed_tensor *x = lheed_tensor(L, 1, "index", "x");
  check_has_rows(L, x);
  if (lheed_is_index(L, 2, &i) && i > 0 && i - 1 == x->shape[0]) return 0;
  return push_row(L, i);
}

/* x[{…}] for lists that view_table leaves; *out is the box at slot 3. */
static int read_list(lua_State *L, heed_tensor **out) {
  heed_tensor view;
  const heed_tensor *indices[HEED_MAX_DIMS], *x = &view;
  heed__index_names names;
  heed__part noted;
  lheed_list list = {.part = to_record(lheed_get(L)->context, &noted)};
  heed_tensor **selected = list.part != NULL ? lheed_push_tensor(L) : NULL;
  lheed_read_list(L, &list, &view);
  heed_context *ctx = view.storage->context;
  if (list.count == 0 && view.ndim == 0) {
    lheed_push_scalar(L, heed__load(view.dtype, view.data));
    return 1;
  }
  if (list.count > 0 && selected != NULL) { /* both steps are recorded */
    LHEED_TRY(L, heed__give_part(ctx, "index", lheed_tensor(L, 1, "index", "x"), &view, list.part, selected));
    x = *selected;
  }
  if (list.count > 0) {
    get_indices(L, &list, indices, &names);
    LHEED_TRY(L, heed__index(ctx, "index", x, list.count, indices, &names, out));
  } else {
    LHEED_TRY(L, heed__give_part(ctx, "index", lheed_tensor(L, 1, "index", "x"), &view, list.part, out));
  }
  lua_settop(L, 3);
  return lheed_return(L, 1);
}

static int read_table(lua_State *L) {
  const heed_tensor *x = lheed_tensor(L, 1, "index", "x");
  const char *element = find_element(L, x);
  if (element) {
    lheed_push_scalar(L, heed__load(x->dtype, element));
    return 1;
  }
  heed_tensor view, **out = lheed_push_tensor(L);
  x = lheed_tensor(L, 1, "index", "x"); /* read again: pushing the box may have run finalizers */
  heed__part noted, *part = to_record(x->storage->context, &noted);
  if (!view_table(L, x, &view, part)) {
    lua_settop(L, 3);
    return read_list(L, out);
  }
  if (view.ndim == 0) {
    lheed_push_scalar(L, heed__load(view.dtype, view.data));
    return 1;
  }
  LHEED_TRY(L, heed__give_part(x->storage->context, "index", x, &view, part, out));
  return lheed_return(L, 1);
}

/* x[t] for a tensor of indices, or a mask */
static int read_picks(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lheed_indices(L, 2, "index", "the index", true);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "index", "x"), *key = lheed_tensor(L, 2, "index", "the index");
  lheed_check_elements(L, "index", "x", x);
  if (key->dtype == HEED_BOOL) {
    LHEED_TRY(L, heed__masked_select(ctx, "index", x, key, out));
  } else {
    check_has_rows(L, x);
    LHEED_TRY(L, heed__index(ctx, "index", x, 1, &key, &whole_index, out));
  }
  return lheed_return(L, 1);
}

/* ---- Keys of all kinds ---- */

/* __index; upvalue 2: the methods */
static int read_index(lua_State *L) {
  lheed_begin(L);
  int64_t i;
  switch (lua_type(L, 2)) {
  case LUA_TSTRING: return lheed_read_property(L);
  case LUA_TNUMBER: return read_row(L);
  case LUA_TTABLE: return read_table(L);
  case LUA_TUSERDATA:
    if (!lheed_test(L, 2, &lheed_tensor_type)) break;
    lua_settop(L, 2);
    return lheed_is_index(L, 2, &i) ? push_row(L, i) : read_picks(L);
  default: break;
  }
  return bad_key(L);
}

/* ---- Writing ---- */

/* A write to a part of the tensor at slot 1, which is recorded if *part is not NULL. The write itself is to a
 * header on the stack, of which nothing is recorded. */
typedef struct written {
  heed__part noted, *part;
  heed_tensor view;
} written;

/* After the write, whose status is given. */
static void end_write(lua_State *L, const written *w, const heed__recorder *recorder, heed_status status,
                      const heed_tensor *value, int count, const heed_tensor *const *indices) {
  heed_context *ctx = lheed_get(L)->context;
  heed__resume_recording(ctx, recorder);
  LHEED_TRY(L, status);
  if (w->part == NULL) return;
  LHEED_TRY(L, heed__record_assign(ctx, lheed_tensor(L, 1, "index", "x"), w->part, value, count, indices));
}

/* Writes the value at slot 3, broadcast and converted, into the view. */
static void assign(lua_State *L, written *w) {
  heed_tensor *view = &w->view;
  heed_context *ctx = view->storage->context;
  heed__number number;
  if (view->ndim == 0 && lua_type(L, 3) == LUA_TNUMBER && w->part == NULL) {
    LHEED_TRY(L, heed__written(ctx, "index", view));
    heed__store(view->dtype, view->data, lheed_scalar(L, 3, "index", "the value"));
    return;
  }
  heed_tensor value;
  const heed_tensor *given = lheed_operand(L, 3, "index", "the value", &number);
  lheed_check_elements(L, "index", "the value", given);
  heed__alias_on_stack(&value, given);
  /* Leading sizes of 1 are dropped: as in PyTorch, [1] can be assigned to an element. */
  while (value.ndim > view->ndim && value.shape[0] == 1) select_row(&value, 0);
  LHEED_TRY(L, heed__check_expands(ctx, "index", "the value", &value, view->ndim, view->shape));
  const heed__recorder *recorder = heed__pause_recording(ctx);
  end_write(L, w, recorder, heed__copy(ctx, "index", view, &value), given, 0, NULL);
}

/* The value at slot 3; *value: without leading sizes of 1, which do not matter where it broadcasts. */
static const heed_tensor *read_written(lua_State *L, heed__number *number, heed_tensor *value) {
  const heed_tensor *given = lheed_operand(L, 3, "index", "the value", number);
  lheed_check_elements(L, "index", "the value", given);
  heed__alias_on_stack(value, given);
  while (value->ndim > 0 && value->shape[0] == 1) select_row(value, 0);
  return given;
}

static void assign_picks(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed__number number;
  heed_tensor value;
  written w = {.part = to_record(ctx, &w.noted)};
  lheed_indices(L, 2, "index", "the index", true);
  heed_tensor *x = lheed_tensor(L, 1, "index", "x");
  const heed_tensor *key = lheed_tensor(L, 2, "index", "the index");
  if (key->dtype == HEED_BOOL) {
    LHEED_TRY(L,
              heed__masked_assign(ctx, "index", x, key, lheed_operand(L, 3, "index", "the value", &number)));
    return;
  }
  check_has_rows(L, x);
  const heed_tensor *given = read_written(L, &number, &value);
  if (w.part != NULL) {
    heed__part_begin(w.part);
    for (int d = 0; d < x->ndim; d++) heed__part_add(w.part, HEED__PART_KEPT, 0, 1, x->shape[d]);
    w.part->name = "IndexPutBackward0";
  }
  const heed__recorder *recorder = heed__pause_recording(ctx);
  end_write(L, &w, recorder, heed__index_put(ctx, "index", x, 1, &key, &whole_index, &value, false, true),
            given, 1, &key);
}

/* x[{…}] = v for lists that view_table leaves */
static void assign_list(lua_State *L) {
  heed_tensor value;
  const heed_tensor *indices[HEED_MAX_DIMS];
  heed__index_names names;
  heed__number number;
  written w = {.part = to_record(lheed_get(L)->context, &w.noted)};
  lheed_list list = {.part = w.part};
  lheed_read_list(L, &list, &w.view);
  heed_context *ctx = w.view.storage->context;
  if (list.count == 0) {
    if (w.part != NULL) w.part->name = "CopySlices";
    assign(L, &w);
    return;
  }
  get_indices(L, &list, indices, &names);
  const heed_tensor *given = read_written(L, &number, &value);
  if (w.part != NULL && strcmp(w.part->name, "AliasBackward0") != 0)
    w.part->name = "CopySlices"; /* indices of a part of x */
  else if (w.part != NULL)
    w.part->name = "IndexPutBackward0";
  const heed__recorder *recorder = heed__pause_recording(ctx);
  end_write(L, &w, recorder,
            heed__index_put(ctx, "index", &w.view, list.count, indices, &names, &value, false, true), given,
            list.count, indices);
}

/* x[…] = v for an integer or a list of integers and slices; false: something else is in the list. */
static bool write_part(lua_State *L, heed_tensor *x, int type, int64_t i) {
  written w = {.part = to_record(x->storage->context, &w.noted)};
  if (type == LUA_TTABLE) {
    if (!view_table(L, x, &w.view, w.part)) return false;
  } else {
    const int64_t at = check_row(L, x, i);
    heed__alias_on_stack(&w.view, x);
    select_row(&w.view, at);
    note_row(w.part, x, at);
  }
  if (w.part != NULL) w.part->name = "CopySlices";
  assign(L, &w);
  return true;
}

/* __newindex */
static int write_index(lua_State *L) {
  lheed_begin(L);
  int64_t i = 0;
  heed_tensor *x = lheed_tensor(L, 1, "index", "x");
  int type = lua_type(L, 2);
  if (type == LUA_TSTRING && strcmp(lua_tostring(L, 2), "grad") == 0) {
    lheed_set_grad(L);
    return 0;
  }
  lheed_check_elements(L, "index", "x", x);
  if (type == LUA_TSTRING && strcmp(lua_tostring(L, 2), "requires_grad") == 0) {
    lheed_set_requires_grad(L);
    return 0;
  }
  if (type == LUA_TSTRING) {
    const char *key = lheed_push_key(L, 2), *hint = lheed_push_hint(L, "Tensor", 2, 0, 0);
    return lheed_error(L, "index: fields of a tensor cannot be set (%s)%s", key, hint);
  }
  heed_context *ctx = x->storage->context;
  LHEED_TRY(L, heed__check_target(ctx, "index", x));
  if (type == LUA_TTABLE) {
    const bool is_plain = lua_type(L, 3) == LUA_TNUMBER && ctx->recorder == NULL;
    char *element = is_plain ? find_element(L, x) : NULL;
    if (element) {
      LHEED_TRY(L, heed__written(ctx, "index", x));
      heed__store(x->dtype, element, lheed_scalar(L, 3, "index", "the value"));
    } else if (!write_part(L, x, type, i)) {
      lua_settop(L, 3);
      assign_list(L);
    }
  } else if ((type == LUA_TNUMBER || type == LUA_TUSERDATA) && lheed_is_index(L, 2, &i)) {
    (void)write_part(L, x, type, i);
  } else if (lheed_test(L, 2, &lheed_tensor_type)) {
    assign_picks(L);
  } else {
    return bad_key(L);
  }
  return 0;
}

/* ---- What tensors cannot do ---- */

/* x(1), and `for i, row in x do`, which calls x(nil, nil) */
static int call_tensor(lua_State *L) {
  if (lua_gettop(L) == 3 && lua_isnil(L, 2) && lua_isnil(L, 3))
    return lheed_error(L, "Tensor: %s is not an iterator; write for i, row in x:iter() do, or ipairs(x)",
                       lheed_push_what(L, 1));
  return lheed_error(
      L, "Tensor: %s is called; write x[i] for an element or row, and fields (x.T, x.shape) without ()",
      lheed_push_what(L, 1));
}

/* Lua turns the results of < and <= into one boolean, and calls a > b as b < a. */
static int refuse_order(lua_State *L, const char *operators, const char *less, const char *greater) {
  lua_settop(L, 2);
  const bool turned = !lheed_test(L, 1, &lheed_tensor_type);
  const int other = turned ? 1 : 2;
  const char *value = "y";
  if (lua_type(L, other) == LUA_TNUMBER)
    value = lua_isinteger(L, other) ? lua_pushfstring(L, "%I", (LUAI_UACINT)lua_tointeger(L, other))
                                    : lheed_push_float(L, lua_tonumber(L, other));
  const char *what = lheed_push_what(L, turned ? 2 : 1);
  return lheed_error(
      L, "compare: x is %s; %s give one boolean in Lua, so write x:%s(%s) for a tensor of booleans", what,
      operators, turned ? greater : less, value);
}

static int refuse_less(lua_State *L) {
  return refuse_order(L, "< and >", "lt", "gt");
}
static int refuse_less_equal(lua_State *L) {
  return refuse_order(L, "<= and >=", "le", "ge");
}

/* ---- for i, row in x:iter() ---- */

static int iter_next(lua_State *L) {
  lheed_begin(L);
  const heed_tensor *x = lheed_tensor(L, 1, "iter", "x");
  int64_t i = lheed_integer(L, 2, "iter", "the last index");
  if (x->ndim == 0 || i < 0 || i >= x->shape[0]) return 0;
  lua_pushinteger(L, (lua_Integer)i + 1);
  push_row(L, i + 1);
  return 2;
}

static int iter(lua_State *L) {
  if (lheed_tensor(L, 1, "iter", "x")->ndim == 0)
    return lheed_error(L, "iter: x has no dimensions; it must have at least 1");
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushcclosure(L, iter_next, 1);
  lua_pushvalue(L, 1);
  lua_pushinteger(L, 0);
  return 3;
}

/* ---- Opening ---- */

void lheed_open_index(lua_State *L) {
  static const luaL_Reg methods[] = {{"iter", iter}, {NULL, NULL}};
  static const luaL_Reg metamethods[] = {{"__newindex", write_index},
                                         {"__call", call_tensor},
                                         {"__lt", refuse_less},
                                         {"__le", refuse_less_equal},
                                         {NULL, NULL}};
  lheed_add_methods(L, methods, false);
  lua_pushliteral(L, LHEED_NEWAXIS);
  lua_setfield(L, -3, "newaxis");
  lheed_push_metatable(L, &lheed_tensor_type);
  lheed_setfuncs(L, metamethods);
  lheed_push_state(L);
  lua_pushvalue(L, -3);
  lua_pushcclosure(L, read_index, 2);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
}
