/* Objects written in Lua, and heed.pairs and heed.ipairs, for every Lua. Where tables have no __len and no
 * __pairs (5.1, LuaJIT) an object is a userdata that holds its table, since userdata have lengths everywhere.
 */
#include "lheed.h"

/* object(table, metatable): a userdata with that metatable that holds the table */
static int new_object(lua_State *L) {
  lua_settop(L, 2);
  for (int i = 1; i <= 2; i++)
    if (!lua_istable(L, i))
      return lheed_bad_argument(L, i, "object", i == 1 ? "fields" : "metatable", "a table");
  lheed_push_object(L);
  lua_pushvalue(L, 2);
  lua_setmetatable(L, -2);
  return 1;
}

/* held(value): the table of an object; nil for any other value */
static int held_of(lua_State *L) {
  if (!lheed_is_object(L, 1)) return 0;
  lheed_push_held(L, 1);
  return 1;
}

static int next_pair(lua_State *L) {
  lua_settop(L, 2);
  if (!lua_istable(L, 1)) return lheed_bad_argument(L, 1, "pairs", "t", "a table");
  return lua_next(L, 1) ? 2 : 0;
}

/* heed.pairs(t): what pairs returns in a Lua with __pairs */
static int pairs_of(lua_State *L) {
  lua_settop(L, 1);
  if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
    lua_pushvalue(L, 1);
    lua_call(L, 1, 3);
    return 3;
  }
  if (!lua_istable(L, 1)) return lheed_bad_argument(L, 1, "pairs", "t", "a table or something with pairs");
  lua_pushcfunction(L, next_pair);
  lua_pushvalue(L, 1);
  lua_pushnil(L);
  return 3;
}

static int next_element(lua_State *L) {
  const uint64_t last = (uint64_t)lheed_integer(L, 2, "ipairs", "the last index");
  lua_settop(L, 1);
  lua_pushinteger(L, (lua_Integer)(last + 1)); /* wraps around, as in Lua's own */
  lua_pushvalue(L, -1);
  lua_gettable(L, 1);
  return lua_isnil(L, -1) ? 0 : 2;
}

/* heed.ipairs(t): what ipairs returns in a Lua whose ipairs uses __index */
int lheed_ipairs(lua_State *L) {
  lua_settop(L, 1);
  if (!lua_istable(L, 1) && luaL_getmetafield(L, 1, "__index") == LUA_TNIL)
    return lheed_bad_argument(L, 1, "ipairs", "t", "a table or something with elements");
  lua_pushcfunction(L, next_element);
  lua_pushvalue(L, 1);
  lua_pushinteger(L, 0);
  return 3;
}

void lheed_open_object(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"ipairs", lheed_ipairs}, {"object", new_object}, {"held", held_of}, {"pairs", pairs_of}, {NULL, NULL}};
  lheed_add(L, NULL, functions);
}
