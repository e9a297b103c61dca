/* Whether the Lua that loaded this code is the one that it was compiled for. Another Lua lacks functions that
 * it calls: the dynamic linker would refuse it with the name of one of them, or later Luas would run it and
 * crash. Where the system has weak symbols (ELF), these functions are weak, so that the code is loaded, and
 * its first function can say what is wrong. */
#ifndef LHEED_RIGHT_LUA_H
#define LHEED_RIGHT_LUA_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#if defined(__ELF__)

/* All functions of Lua that heed calls and that not every Lua has. The others come from the same files of
 * Lua, so a static Lua is linked as before. tests/spec/wrong_builds_spec.lua fails if one is missing. */
#if LUA_VERSION_NUM == 501
#pragma weak luaL_loadbuffer
#pragma weak luaL_prepbuffer
#pragma weak lua_call
#pragma weak lua_getfenv
#pragma weak lua_objlen
#pragma weak lua_pcall
#pragma weak lua_setfenv
#pragma weak lua_tointeger
#pragma weak lua_tonumber
#else
#pragma weak luaL_buffinitsize
#pragma weak luaL_checkversion_
#pragma weak luaL_loadbufferx
#pragma weak luaL_prepbuffsize
#pragma weak luaL_pushresultsize
#pragma weak luaL_setfuncs
#pragma weak luaL_tolstring
#pragma weak lua_callk
#pragma weak lua_copy
#pragma weak lua_getglobal
#pragma weak lua_pcallk
#pragma weak lua_rawgetp
#pragma weak lua_rawlen
#pragma weak lua_rawsetp
#pragma weak lua_setglobal
#pragma weak lua_tointegerx
#pragma weak lua_tonumberx
#endif
#if LUA_VERSION_NUM <= 502
#pragma weak lua_insert
#pragma weak lua_remove
#pragma weak lua_replace
#else
#pragma weak lua_isinteger
#pragma weak lua_rotate
#endif
#if LUA_VERSION_NUM <= 503
#pragma weak lua_newuserdata
#else
#pragma weak lua_getiuservalue
#pragma weak lua_newuserdatauv
#pragma weak lua_setiuservalue
#pragma weak lua_toclose
#endif
#if LUA_VERSION_NUM == 502 || LUA_VERSION_NUM == 503
#pragma weak lua_getuservalue
#pragma weak lua_setuservalue
#endif

/* Functions that tell the versions apart. */
#define LHEED_PROBE(name) extern const char lheed_has_##name __asm__(#name) __attribute__((weak))
LHEED_PROBE(luaJIT_setmode);
LHEED_PROBE(lua_numbertocstring);
LHEED_PROBE(lua_newuserdatauv);
LHEED_PROBE(lua_rotate);
LHEED_PROBE(lua_getctx);
LHEED_PROBE(lua_setfenv);
#undef LHEED_PROBE

static inline const char *right_lua_running(void) {
  return &lheed_has_luaJIT_setmode        ? "LuaJIT"
         : &lheed_has_lua_numbertocstring ? "Lua 5.5"
         : &lheed_has_lua_newuserdatauv   ? "Lua 5.4"
         : &lheed_has_lua_rotate          ? "Lua 5.3"
         : &lheed_has_lua_getctx          ? "Lua 5.2"
                                          : "Lua 5.1";
}

/* LuaJIT runs what was compiled for 5.1, but not the reverse. */
static inline bool right_lua_is_running(void) {
#if defined(LUA_JITLIBNAME)
  return &lheed_has_luaJIT_setmode;
#elif LUA_VERSION_NUM == 501
  return &lheed_has_lua_setfenv;
#elif LUA_VERSION_NUM == 502
  return &lheed_has_lua_getctx;
#elif LUA_VERSION_NUM == 503
  return &lheed_has_lua_rotate && !&lheed_has_lua_newuserdatauv;
#elif LUA_VERSION_NUM == 504
  return &lheed_has_lua_newuserdatauv && !&lheed_has_lua_numbertocstring;
#else
  return &lheed_has_lua_numbertocstring;
#endif
}

#if defined(LUA_JITLIBNAME)
#define RIGHT_LUA_NAME "LuaJIT"
#else
#define RIGHT_LUA_NAME LUA_VERSION
#endif

#endif

/** Raises an error unless this Lua is the one that `module` was built for. Calls only functions that all Luas
 * have. */
static inline void lheed_check_lua(lua_State *L, const char *module) {
#if defined(__ELF__)
  const char *running = right_lua_running();
  if (!right_lua_is_running())
    luaL_error(L, "%s was built for %s, and this is %s; build it with make LUA=%s", module, RIGHT_LUA_NAME,
               running, &lheed_has_luaJIT_setmode ? "luajit" : running + sizeof "Lua");
#endif
#if LUA_VERSION_NUM >= 502
  luaL_checkversion(L); /* the sizes of its numbers */
#endif
  (void)module;
}

#endif
