/* Indices as arguments, and the operations that take them. */
#include <string.h>

#include "../ops/ops.h"
#include "lheed.h"

void lheed_indices(lua_State *L, int idx, const char *function, const char *name, bool masks) {
  const lheed_box *box = lheed_test(L, idx, &lheed_tensor_type);
  const heed_tensor *x = box ? box->object : NULL;
  if (x && (x->dtype == HEED_INT64 || (masks && x->dtype == HEED_BOOL))) return;
  if (x) {
    heed_tensor **out = lheed_push_tensor(L);
    x = lheed_tensor(L, idx, function, name); /* read again: pushing the box may have run finalizers */
    LHEED_TRY(L, heed__as_indices(x->storage->context, function, name, x, out));
  } else if (lua_type(L, idx) == LUA_TTABLE) {
    lheed_nested_indices(L, idx, function, name, masks);
  } else {
    lheed_bad_argument(L, idx, function, name, "a tensor or a table of integers");
  }
  lua_replace(L, idx);
}

void lheed_opt_indices(lua_State *L, int idx, const char *function, const char *name) {
  if (!lua_isnoneornil(L, idx)) lheed_indices(L, idx, function, name, false);
}

/* ---- Reading ---- */

/* gather(x, dim, index) */
static int pick(lua_State *L, const char *function,
                heed_status (*call)(heed_context *, const heed_tensor *, int, const heed_tensor *,
                                    heed_tensor **)) {
  lheed_arguments(L, function, 3);
  int dim = lheed_dim(L, 2, function, "dim");
  lheed_indices(L, 3, function, "index", false);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  const heed_tensor *index = lheed_tensor(L, 3, function, "index");
  LHEED_TRY(L, call(lheed_get(L)->context, x, dim, index, out));
  return lheed_return(L, 1);
}

static int op_gather(lua_State *L) {
  return pick(L, "gather", heed_gather);
}
static int op_index_select(lua_State *L) {
  return pick(L, "index_select", heed_index_select);
}

/* nonzero(x, as_tuple = false): [count, dimensions]; as_tuple: a table of its columns */
static int op_nonzero(lua_State *L) {
  static const char *const names[] = {"as_tuple", NULL};
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "nonzero", 2, names);
  const bool as_tuple = lheed_opt_boolean(L, 2, "nonzero", "as_tuple", false);
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed__nonzero(ctx, "nonzero", lheed_tensor(L, 1, "nonzero", "x"), out));
  if (!as_tuple) return lheed_return(L, 1);
  const int columns = (int)(*out)->shape[1];
  lua_createtable(L, columns, 0);
  for (int i = 0; i < columns; i++) {
    heed_tensor **column = lheed_push_tensor(L);
    LHEED_TRY(L, heed_select(ctx, *out, 2, i + 1, column));
    lua_rawseti(L, -2, i + 1);
  }
  return lheed_return(L, 1);
}

/* searchsorted(sorted, values, right = false, side): side "left" or "right" */
static int op_searchsorted(lua_State *L) {
  static const char *const names[] = {"right", "side", NULL};
  lheed_options(L, "searchsorted", 3, names);
  bool right = lheed_opt_boolean(L, 3, "searchsorted", "right", false);
  if (!lua_isnil(L, 4)) {
    const char *side = lua_type(L, 4) == LUA_TSTRING ? lua_tostring(L, 4) : "";
    const bool to_right = strcmp(side, "right") == 0;
    if (!to_right && strcmp(side, "left") != 0)
      lheed_bad_argument(L, 4, "searchsorted", "side", "'left' or 'right'");
    if (right && !to_right)
      lheed_error(L, "searchsorted: right is true and side is 'left'; give one of them");
    right = to_right;
  }
  heed_tensor **out = lheed_push_tensor(L);
  heed__number number;
  const heed_tensor *sorted = lheed_tensor(L, 1, "searchsorted", "sorted");
  const heed_tensor *values = lheed_operand(L, 2, "searchsorted", "values", &number);
  LHEED_TRY(L, heed_searchsorted(lheed_get(L)->context, sorted, values, right, out));
  return lheed_return(L, 1);
}

/* bucketize(values, boundaries, right = false) */
static int op_bucketize(lua_State *L) {
  static const char *const names[] = {"right", NULL};
  lheed_options(L, "bucketize", 3, names);
  const bool right = lheed_opt_boolean(L, 3, "bucketize", "right", false);
  heed_tensor **out = lheed_push_tensor(L);
  heed__number number;
  const heed_tensor *values = lheed_operand(L, 1, "bucketize", "values", &number);
  const heed_tensor *boundaries = lheed_tensor(L, 2, "bucketize", "boundaries");
  if (boundaries->ndim != 1) lheed_bad_argument(L, 2, "bucketize", "boundaries", "a tensor of 1 dimension");
  LHEED_TRY(L, heed__searchsorted(lheed_get(L)->context, "bucketize", boundaries, values, right, out));
  return lheed_return(L, 1);
}

/* ---- Writing: each of these in place, with a trailing underscore (upvalue 2 is true), or to a copy of x
 * ---- */

/* Pushes x or its copy, which is written, and reads it again. The copy is recorded, so that gradients reach
 * x. */
static heed_tensor *push_target(lua_State *L, const char *function) {
  if (lua_toboolean(L, lua_upvalueindex(2))) {
    heed_tensor *x = lheed_tensor(L, 1, function, "x");
    lua_pushvalue(L, 1);
    return x;
  }
  heed_context *ctx = lheed_get(L)->context;
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  LHEED_TRY(L, heed__recorded1(ctx, heed__clone(ctx, function, x, out), HEED__OP_clone, x, NULL, 0, out));
  return *out;
}

/* The name of a function with its underscore, for messages. */
static const char *named(lua_State *L, const char *in_place, const char *copying) {
  return lua_toboolean(L, lua_upvalueindex(2)) ? in_place : copying;
}
#define NAMED(name) named(L, name "_", name)

/* scatter(x, dim, index, src, reduce); src: a tensor or a number */
static int op_scatter(lua_State *L) {
  static const char *const names[] = {"dim", "index", "src", "reduce", "value", NULL};
  const char *function = NAMED("scatter");
  lheed_options(L, function, 2, names);
  if (lua_isnil(L, 4) && !lua_isnil(L, 6)) {
    lua_pushvalue(L, 6);
    lua_replace(L, 4);
  } else if (!lua_isnil(L, 6)) {
    return lheed_error(L, "%s: src and value are both given; give one of them", function);
  }
  const char *text = lua_type(L, 5) == LUA_TSTRING ? lua_tostring(L, 5) : "";
  heed_scatter_reduce reduce = HEED_SCATTER_REPLACE;
  if (strcmp(text, "add") == 0) {
    reduce = HEED_SCATTER_ADD;
  } else if (strcmp(text, "multiply") == 0) {
    reduce = HEED_SCATTER_MULTIPLY;
  } else if (!lua_isnil(L, 5)) {
    return lheed_bad_argument(L, 5, function, "reduce", "'add', 'multiply' or nil");
  }
  int dim = lheed_dim(L, 2, function, "dim");
  lheed_indices(L, 3, function, "index", false);
  heed_tensor *x = push_target(L, function);
  heed__number number;
  const heed_tensor *index = lheed_tensor(L, 3, function, "index");
  const heed_tensor *src = lheed_operand(L, 4, function, "src", &number);
  LHEED_TRY(L, heed__scatter(lheed_get(L)->context, function, x, dim, index, src, reduce));
  return lheed_return(L, 1);
}

/* scatter_add(x, dim, index, src): what is written must be a tensor */
static int write_tensor(lua_State *L, const char *function, const char *source,
                        heed_status (*call)(heed_context *, const char *, heed_tensor *, int,
                                            const heed_tensor *, const heed_tensor *)) {
  const char *const names[] = {"dim", "index", source, NULL};
  lheed_options(L, function, 2, names);
  int dim = lheed_dim(L, 2, function, "dim");
  lheed_indices(L, 3, function, "index", false);
  heed_tensor *x = push_target(L, function);
  const heed_tensor *index = lheed_tensor(L, 3, function, "index");
  const heed_tensor *from = lheed_tensor(L, 4, function, source);
  LHEED_TRY(L, call(lheed_get(L)->context, function, x, dim, index, from));
  return lheed_return(L, 1);
}

static heed_status add_elements(heed_context *ctx, const char *function, heed_tensor *x, int dim,
                                const heed_tensor *index, const heed_tensor *src) {
  return heed__scatter(ctx, function, x, dim, index, src, HEED_SCATTER_ADD);
}

static int op_scatter_add(lua_State *L) {
  return write_tensor(L, NAMED("scatter_add"), "src", add_elements);
}

/* index_copy(x, dim, index, source) */
static int op_index_copy(lua_State *L) {
  return write_tensor(L, NAMED("index_copy"), "source", heed__index_copy);
}

/* index_add(x, dim, index, source, alpha = 1) */
static int op_index_add(lua_State *L) {
  static const char *const names[] = {"dim", "index", "source", "alpha", NULL};
  const char *function = NAMED("index_add");
  lheed_options(L, function, 2, names);
  int dim = lheed_dim(L, 2, function, "dim");
  heed_scalar alpha = lua_isnil(L, 5) ? heed_integer(1) : lheed_scalar(L, 5, function, "alpha");
  lheed_indices(L, 3, function, "index", false);
  heed_tensor *x = push_target(L, function);
  const heed_tensor *index = lheed_tensor(L, 3, function, "index");
  const heed_tensor *source = lheed_tensor(L, 4, function, "source");
  LHEED_TRY(L, heed__index_add(lheed_get(L)->context, function, x, dim, index, source, alpha));
  return lheed_return(L, 1);
}

/* index_fill(x, dim, index, value); value: a number, or a tensor of no dimensions */
static int op_index_fill(lua_State *L) {
  static const char *const names[] = {"dim", "index", "value", NULL};
  const char *function = NAMED("index_fill");
  lheed_options(L, function, 2, names);
  int dim = lheed_dim(L, 2, function, "dim");
  lheed_indices(L, 3, function, "index", false);
  heed_tensor *x = push_target(L, function);
  heed__number number;
  const heed_tensor *index = lheed_tensor(L, 3, function, "index");
  const heed_tensor *value = lheed_operand(L, 4, function, "value", &number);
  if (value->ndim > 0) lheed_bad_argument(L, 4, function, "value", "a number or a tensor of no dimensions");
  LHEED_TRY(L,
            heed__index_fill(lheed_get(L)->context, function, x, dim, index,
                             heed__load(value->dtype, value->data), value == &number.tensor ? NULL : value));
  return lheed_return(L, 1);
}

/* index_put(x, {indices…}, values, accumulate = false) */
static int op_index_put(lua_State *L) {
  static const char *const names[] = {"indices", "values", "accumulate", NULL};
  const char *function = NAMED("index_put");
  lheed_options(L, function, 2, names);
  const bool accumulate = lheed_opt_boolean(L, 4, function, "accumulate", false);
  if (lua_type(L, 2) != LUA_TTABLE)
    lheed_bad_argument(L, 2, function, "indices", "a table of tensors, or of tables of integers");
  const int count = (int)lua_rawlen(L, 2);
  if (count < 1 || count > HEED_MAX_DIMS)
    lheed_error(L, "%s: indices has %d items; it must have 1 to %d, one for each dimension", function, count,
                HEED_MAX_DIMS);
  luaL_checkstack(L, HEED_MAX_DIMS + LUA_MINSTACK, function);
  lua_settop(L, 4);
  for (int i = 1; i <= count; i++) lua_rawgeti(L, 2, i);
  for (int i = 1; i <= count; i++) {
    const char *name = lua_pushfstring(L, "indices[%d]", i);
    lheed_indices(L, 4 + i, function, name, true);
    lua_pop(L, 1);
  }
  heed_tensor *x = push_target(L, function);
  heed__number number;
  const heed_tensor *indices[HEED_MAX_DIMS];
  for (int i = 0; i < count; i++) indices[i] = lheed_tensor(L, 5 + i, function, "indices");
  const heed_tensor *values = lheed_operand(L, 3, function, "values", &number);
  LHEED_TRY(L, heed__index_put(lheed_get(L)->context, function, x, count, indices, NULL, values, accumulate,
                               values->ndim == 0));
  return lheed_return(L, 1);
}

/* ---- For heed's own Lua files ---- */

/* indices(value, function, argument): an int64 tensor */
static int indices_of(lua_State *L) {
  lheed_begin(L);
  lheed_arguments(L, "indices", 3);
  if (lua_type(L, 2) != LUA_TSTRING || lua_type(L, 3) != LUA_TSTRING)
    return lheed_error(L, "indices: function and argument must be strings");
  lheed_indices(L, 1, lua_tostring(L, 2), lua_tostring(L, 3), false);
  lua_settop(L, 1);
  return 1;
}

void lheed_open_indices(lua_State *L) {
  static const luaL_Reg reading[] = {{"gather", op_gather},       {"index_select", op_index_select},
                                     {"nonzero", op_nonzero},     {"searchsorted", op_searchsorted},
                                     {"bucketize", op_bucketize}, {NULL, NULL}};
  static const luaL_Reg writing[] = {{"scatter", op_scatter},
                                     {"scatter_add", op_scatter_add},
                                     {"index_add", op_index_add},
                                     {"index_copy", op_index_copy},
                                     {"index_fill", op_index_fill},
                                     {"index_put", op_index_put},
                                     {NULL, NULL}};
  static const luaL_Reg primitives[] = {{"indices", indices_of}, {NULL, NULL}};
  lheed_add_methods(L, reading, false);
  lheed_add_methods(L, writing, false);
  lheed_add_methods(L, writing, true);
  lheed_add(L, "modules", primitives);
}
