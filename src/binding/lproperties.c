/* x.name: the fields of tensors, and their methods. */
#include <string.h>

#include "../ops/ops.h"
#include "lheed.h"

static void push_shape(lua_State *L) {
  lheed_push_shape(L, lheed_tensor(L, 1, "shape", "x"));
}

static void push_dtype(lua_State *L) {
  lua_pushstring(L, heed_dtype_name(lheed_tensor(L, 1, "dtype", "x")->dtype));
}

static void push_ndim(lua_State *L) {
  lua_pushinteger(L, lheed_tensor(L, 1, "ndim", "x")->ndim);
}

static void push_is_parameter(lua_State *L) {
  lua_pushboolean(L, lheed_tensor(L, 1, "is_parameter", "x")->parameter);
}

/* x.T: all dimensions in reverse */
static void push_reversed(lua_State *L) {
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "T", "x");
  int dims[HEED_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) dims[d] = x->ndim - d;
  LHEED_TRY(L, heed__permute(x->storage->context, "T", x, x->ndim, dims, out));
}

/* x.mT: the last two dimensions exchanged */
static void push_matrix_transposed(lua_State *L) {
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "mT", "x");
  if (x->ndim < 2)
    lheed_error(L, "mT: x has %d dimension%s; it must have at least 2", x->ndim, HEED__S(x->ndim));
  LHEED_TRY(L, heed__transpose(x->storage->context, "mT", x, -2, -1, out));
}

static void push_requires_grad(lua_State *L) {
  lua_pushboolean(L, heed_tensor_requires_grad(lheed_tensor(L, 1, "requires_grad", "x")));
}

static void push_is_leaf(lua_State *L) {
  lua_pushboolean(L, heed_tensor_is_leaf(lheed_tensor(L, 1, "is_leaf", "x")));
}

static void push_grad_fn(lua_State *L) {
  const char *name = heed_tensor_grad_fn(lheed_tensor(L, 1, "grad_fn", "x"));
  if (name != NULL)
    lua_pushfstring(L, "<%s>", name);
  else
    lua_pushnil(L);
}

static const struct {
  const char *name;
  void (*push)(lua_State *L);
} fields[] = {
    {"shape", push_shape},     {"dtype", push_dtype},          {"ndim", push_ndim},
    {"T", push_reversed},      {"mT", push_matrix_transposed}, {"is_parameter", push_is_parameter},
    {"grad", lheed_push_grad}, {"grad_fn", push_grad_fn},      {"requires_grad", push_requires_grad},
    {"is_leaf", push_is_leaf},
};
#define FIELDS (sizeof fields / sizeof *fields)

static int unknown_field(lua_State *L) {
  luaL_Buffer names;
  if (strpbrk(lua_tostring(L, 2), ":,"))
    return lheed_error(L,
                       "Tensor has no field or method %s; slices are tables that include both ends: x[{ "
                       "{first, last}, {} }]",
                       lheed_push_key(L, 2));
  luaL_buffinit(L, &names);
  for (size_t i = 0; i < FIELDS; i++) {
    luaL_addstring(&names, fields[i].name);
    luaL_addchar(&names, ' ');
  }
  luaL_pushresult(&names);
  const int own = lua_gettop(L);
  lua_pushvalue(L, lua_upvalueindex(2));
  const char *hint = lheed_push_hint(L, "Tensor", 2, own, own + 1), *key = lheed_push_key(L, 2);
  return lheed_error(L, "Tensor has no field or method %s%s", key, hint);
}

int lheed_read_property(lua_State *L) {
  if (!lheed_test(L, 1, &lheed_tensor_type)) lheed_tensor(L, 1, "index", "x");
  luaL_checktype(L, lua_upvalueindex(2), LUA_TTABLE); /* the debug library can change an upvalue */
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(2)) != LUA_TNIL) return 1;
  const char *name = lua_tostring(L, 2);
  for (size_t i = 0; i < FIELDS; i++) {
    if (strcmp(name, fields[i].name) == 0) {
      fields[i].push(L);
      return 1;
    }
  }
  return unknown_field(L);
}
