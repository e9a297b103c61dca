/* heed.Size: a shape in Lua. A table that can be read like any list, and that prints, compares and takes
 * negative indices as PyTorch's torch.Size does. */
#include "../core/core.h"
#include "lheed.h"

static const char size_key = 0; /* registry key of the metatable */

static void set_size_metatable(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &size_key);
  lua_setmetatable(L, -2);
}

void lheed_push_shape(lua_State *L, const heed_tensor *x) {
  lheed_push_sizes(L, x->ndim, x->shape);
}

void lheed_push_sizes(lua_State *L, int ndim, const int64_t *sizes) {
  int64_t
      shape[HEED_MAX_DIMS]; /* a copy: creating the table may run finalizers, which may release the tensor */
  for (int i = 0; i < ndim; i++) shape[i] = sizes[i];
  lua_createtable(L, ndim, 0);
  for (int i = 0; i < ndim; i++) {
    lua_pushinteger(L, (lua_Integer)shape[i]);
    lua_rawseti(L, -2, i + 1);
  }
  set_size_metatable(L);
}

/* heed.Size{2, 3} and heed.Size(2, 3) */
static int new_size(lua_State *L) {
  int64_t shape[HEED_MAX_DIMS];
  int ndim = lheed_shape(L, 1, lua_gettop(L), "Size", shape);
  lua_createtable(L, ndim, 0);
  for (int i = 0; i < ndim; i++) {
    lua_pushinteger(L, (lua_Integer)shape[i]);
    lua_rawseti(L, -2, i + 1);
  }
  set_size_metatable(L);
  return 1;
}

/* A script can call a metamethod with any value. */
static void check_size(lua_State *L, int idx) {
  if (lua_type(L, idx) != LUA_TTABLE) lheed_bad_argument(L, idx, "Size", "self", "a heed.Size");
}

static int size_tostring(lua_State *L) {
  check_size(L, 1);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  luaL_addstring(&b, "heed.Size([");
  lua_Unsigned n = lua_rawlen(L, 1);
  for (lua_Unsigned i = 1; i <= n; i++) {
    if (i > 1) luaL_addstring(&b, ", ");
    lua_rawgeti(L, 1, (lua_Integer)i);
    luaL_tolstring(L, -1, NULL);
    lua_remove(L, -2);
    luaL_addvalue(&b);
  }
  luaL_addstring(&b, "])");
  luaL_pushresult(&b);
  return 1;
}

static int size_concat(lua_State *L) {
  luaL_tolstring(L, 1, NULL);
  luaL_tolstring(L, 2, NULL);
  lua_concat(L, 2);
  return 1;
}

static int size_eq(lua_State *L) {
  check_size(L, 1);
  check_size(L, 2);
  lua_Unsigned n = lua_rawlen(L, 1);
  bool equal = n == lua_rawlen(L, 2);
  for (lua_Unsigned i = 1; equal && i <= n; i++) {
    lua_rawgeti(L, 1, (lua_Integer)i);
    lua_rawgeti(L, 2, (lua_Integer)i);
    equal = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
  }
  lua_pushboolean(L, equal);
  return 1;
}

/* shape[-1] is the last size; shape:numel() the product. Sizes that a shape does not have are nil, so that
 * ipairs ends, but shape[0] is a mistake. */
static int size_index(lua_State *L) {
  check_size(L, 1);
  if (lua_isinteger(L, 2) && lua_tointeger(L, 2) <= 0) {
    lua_Integer n = (lua_Integer)lua_rawlen(L, 1), i = lua_tointeger(L, 2);
    if (i < -n || i == 0)
      return lheed_error(
          L, "shape: index %I is out of range for %I size%s; they count from 1, or from -1 for the last",
          (LUAI_UACINT)i, (LUAI_UACINT)n, HEED__S(n));
    lua_rawgeti(L, 1, n + 1 + i);
    return 1;
  }
  lua_settop(L, 2);
  luaL_checktype(L, lua_upvalueindex(2), LUA_TTABLE); /* the debug library can change an upvalue */
  lua_rawget(L, lua_upvalueindex(2));
  return 1;
}

static int size_numel(lua_State *L) {
  check_size(L, 1);
  int64_t shape[HEED_MAX_DIMS], count = 0;
  int ndim = lheed_shape(L, 1, 1, "numel", shape);
  LHEED_TRY(L, heed__check_shape(lheed_get(L)->context, "numel", ndim, shape, HEED_BOOL, &count));
  lua_pushinteger(L, (lua_Integer)count);
  return 1;
}

/* x.shape() */
static int size_call(lua_State *L) {
  return lheed_error(L, "shape: a heed.Size is called; shape is a field: write x.shape, or x:size(dim)");
}

void lheed_open_size(lua_State *L) {
  static const luaL_Reg meta[] = {{"__tostring", size_tostring},
                                  {"__concat", size_concat},
                                  {"__eq", size_eq},
                                  {"__call", size_call},
                                  {NULL, NULL}};
  static const luaL_Reg methods[] = {{"numel", size_numel}, {NULL, NULL}};
  lua_createtable(L, 0, 4);
  lheed_setfuncs(L, meta);
  lua_pushliteral(L, "heed.Size");
  lua_setfield(L, -2, "__name");
  lua_pushnil(L); /* upvalue 1, the state elsewhere, is not needed here */
  lua_createtable(L, 0, 1);
  lheed_setfuncs(L, methods);
  lua_pushcclosure(L, size_index, 2);
  lua_setfield(L, -2, "__index");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &size_key);

  static const luaL_Reg functions[] = {{"Size", new_size}, {NULL, NULL}};
  lheed_add(L, NULL, functions);
}
