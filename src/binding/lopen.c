/* Implements `require "heed"`: the library is opened part by part, then heed's own Lua files are made
 * available. Above all other files of the binding: nothing here is called from below. */
#include <string.h>

#include "lheed.h"
#include "lua_sources.h" /* lheed_sources: lua/heed/ as bytes, made by the Makefile */

/* Registry keys. core: what luaopen_heed_core returns. loaded: the embedded files that were run, by name. */
static const char core_key = 0, loaded_key = 0;

static void open_core(lua_State *L) {
  lheed_new_state(L);
  lua_createtable(L, 0, 160); /* the library */
  lua_createtable(L, 0, 160); /* the methods of tensors */
#define X(name) lheed_open_##name(L);
  LHEED_PARTS(X)
#undef X
  lua_pop(L, 1);
  lheed_publish_metatables(L);
  lua_pushliteral(L, HEED_VERSION);
  lua_setfield(L, -2, "version");
  lheed_open_late(L);
}

int luaopen_heed_core(lua_State *L) {
  lheed_check_lua(L, "heed");
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &core_key) == LUA_TNIL) {
    lua_pop(L, 1);
    open_core(L);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &core_key);
  }
  return 1;
}

/* `require` for the embedded files, which works without the package library. */
static int own_require(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  lua_settop(L, 1);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &loaded_key);
  if (lua_getfield(L, 2, name) != LUA_TNIL) return 1;
  for (size_t i = 0; lheed_sources[i].name; i++) {
    if (strcmp(lheed_sources[i].name, name) != 0) continue;
    if (lheed_sources[i].code == NULL)
      return luaL_error(L, "%s: this build of heed is without it; it must be compiled without HEED_MINIMAL",
                        name);
    lua_pushfstring(L, "=%s", name);
    if (luaL_loadbufferx(L, (const char *)lheed_sources[i].code, lheed_sources[i].size, lua_tostring(L, -1),
                         "t"))
      return lua_error(L);
    lua_getfield(L, 2, "_ENV");
    lheed_set_environment(L);
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, 2, name);
    return 1;
  }
  return luaL_error(L, "module '%s' is not part of heed", name);
}

/* Creates the table of what is loaded, with "heed.core" and, as "_ENV", the environment of the embedded
 * files: the globals, but with own_require, and with copies of the standard functions that the files use, so
 * that these work after a script or a sandbox has removed the originals. */
static void prepare_own_require(lua_State *L) {
  static const char *const globals[] = {"assert",   "error",    "getmetatable", "ipairs",   "math",
                                        "next",     "pairs",    "pcall",        "rawequal", "rawget",
                                        "rawset",   "select",   "setmetatable", "string",   "table",
                                        "tonumber", "tostring", "type",         "unpack"};
  lua_newtable(L);
  luaopen_heed_core(L);
  lua_setfield(L, -2, "heed.core");
  lua_createtable(L, 0, 24);
  lua_pushcfunction(L, own_require);
  lua_setfield(L, -2, "require");
  lua_createtable(L, 0, 1);
  lua_pushglobaltable(L);
  for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
    lua_getfield(L, -1, globals[i]);
    lua_setfield(L, -4, globals[i]);
  }
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  lua_setfield(L, -2, "_ENV");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &loaded_key);
}

/* The Lua files are embedded. Where the state has the package library, `require "heed.…"` finds them, too. */
int luaopen_heed(lua_State *L) {
  lheed_check_lua(L, "heed");
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &loaded_key) == LUA_TNIL) prepare_own_require(L);
  if (lheed_push_preload(L) == LUA_TTABLE) {
    for (size_t i = 0; lheed_sources[i].name; i++) {
      if (lua_getfield(L, -1, lheed_sources[i].name) == LUA_TNIL) {
        lua_pushcfunction(L, own_require);
        lua_setfield(L, -3, lheed_sources[i].name);
      }
      lua_pop(L, 1);
    }
  }
  lua_pushcfunction(L, own_require);
  lua_pushliteral(L, "heed");
  lua_call(L, 1, 1);
  return 1;
}
