/* One interface to all supported Luas: 5.1, LuaJIT, 5.2, 5.3, 5.4 and 5.5. The rest of the binding and the
 * command are written for 5.4; this file adds what an older version lacks or does differently, and no other
 * file depends on the version. Names with lua_ or luaL_ mean the same as in the manual of 5.4; names with
 * LHEED_ or lheed_ are what that manual has no name for. */
#ifndef LHEED_COMPAT_H
#define LHEED_COMPAT_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "right_lua.h"

#ifdef LUA_JITLIBNAME /* LuaJIT calls itself 5.1 */
#include <luajit.h>
#define LHEED_JIT      1
#define LHEED_LUA_NAME LUAJIT_VERSION
#else
#define LHEED_JIT      0
#define LHEED_LUA_NAME LUA_RELEASE
#endif

/* ---- Before 5.4 ---- */

#if LUA_VERSION_NUM < 504

#ifndef LUA_GNAME
#define LUA_GNAME "_G"
#endif

#define lua_newuserdatauv(L, size, values) lua_newuserdata(L, size)

#endif

/* ---- Before 5.3: no integers; C functions that return void and not a type ---- */

#if LUA_VERSION_NUM < 503

/* All numbers are doubles. Integers have 64 bits even where the Lua's lua_Integer has 32. */
#define lua_Integer  int64_t
#define lua_Unsigned size_t
#define LUAI_UACINT  long long
#ifndef LUAI_UACNUMBER
#define LUAI_UACNUMBER double
#endif

/** The integer that a number at idx equals; *exact is false if it is not integral, or not a number. */
static inline int64_t compat_tointegerx(lua_State *L, int idx, int *exact) {
  const double number = lua_type(L, idx) == LUA_TNUMBER ? lua_tonumber(L, idx) : NAN;
  const bool whole = number >= -0x1p63 && number < 0x1p63 && floor(number) == number;
  if (exact) *exact = whole;
  return whole ? (int64_t)number : 0;
}

/** A number with an integral value counts as an integer, except -0.0, which would lose its sign. */
static inline bool compat_isinteger(lua_State *L, int idx) {
  int exact;
  return (compat_tointegerx(L, idx, &exact) != 0 || !signbit(lua_tonumber(L, idx))) && exact;
}

#undef lua_tointeger
#define lua_tointegerx(L, idx, exact) compat_tointegerx(L, idx, exact)
#define lua_tointeger(L, idx)         compat_tointegerx(L, idx, NULL)
#define lua_isinteger(L, idx)         compat_isinteger(L, idx)
/* Above 2^53 the nearest double. */
#define lua_pushinteger(L, value)     lua_pushnumber(L, (lua_Number)(value))

static inline size_t compat_rawlen(lua_State *L, int idx) {
#if LUA_VERSION_NUM < 502
  return lua_type(L, idx) == LUA_TNUMBER ? 0 : lua_objlen(L, idx); /* it would convert a number to a string */
#else
  return lua_rawlen(L, idx);
#endif
}
#define lua_rawlen(L, idx) compat_rawlen(L, idx)

#if LUA_VERSION_NUM < 502
static inline void compat_rawgetp(lua_State *L, int idx, const void *key) {
  lua_pushlightuserdata(L, (void *)key);
  lua_rawget(L, idx < 0 && idx > LUA_REGISTRYINDEX ? idx - 1 : idx);
}
static inline void compat_rawsetp(lua_State *L, int idx, const void *key) {
  lua_pushlightuserdata(L, (void *)key);
  lua_insert(L, -2);
  lua_rawset(L, idx < 0 && idx > LUA_REGISTRYINDEX ? idx - 1 : idx);
}
#define lua_rawsetp(L, idx, key) compat_rawsetp(L, idx, key)
#else
static inline void compat_rawgetp(lua_State *L, int idx, const void *key) {
  lua_rawgetp(L, idx, key);
}
#endif

#define lua_rawgetp(L, idx, key)   (compat_rawgetp(L, idx, key), lua_type(L, -1))
#define lua_rawgeti(L, idx, i)     (lua_rawgeti(L, idx, (int)(i)), lua_type(L, -1))
#define lua_rawseti(L, idx, i)     lua_rawseti(L, idx, (int)(i))
#define lua_rawget(L, idx)         (lua_rawget(L, idx), lua_type(L, -1))
#define lua_getfield(L, idx, name) (lua_getfield(L, idx, name), lua_type(L, -1))

/* As in 5.4 for the formats that heed uses: %s %d %c %f %I (a LUAI_UACINT) %%. */
static inline const char *compat_pushvfstring(lua_State *L, const char *format, va_list arguments) {
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (const char *mark; (mark = strchr(format, '%')) != NULL; format = mark + 2) {
    char text[64];
    luaL_addlstring(&b, format, (size_t)(mark - format));
    switch (mark[1]) {
    case 's': {
      const char *string = va_arg(arguments, const char *);
      luaL_addstring(&b, string ? string : "(null)");
      continue;
    }
    case 'd': snprintf(text, sizeof text, "%d", va_arg(arguments, int)); break;
    case 'c': snprintf(text, sizeof text, "%c", va_arg(arguments, int)); break;
    case 'f':
      lua_pushnumber(L, va_arg(arguments, double));
      luaL_addvalue(&b);
      continue;
    case 'I': snprintf(text, sizeof text, "%lld", va_arg(arguments, long long)); break;
    default: snprintf(text, sizeof text, "%%"); break;
    }
    luaL_addstring(&b, text);
  }
  luaL_addstring(&b, format);
  luaL_pushresult(&b);
  return lua_tostring(L, -1);
}

static inline const char *compat_pushfstring(lua_State *L, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const char *text = compat_pushvfstring(L, format, arguments);
  va_end(arguments);
  return text;
}
#define lua_pushvfstring compat_pushvfstring
#define lua_pushfstring  compat_pushfstring

#ifndef LUA_PRELOAD_TABLE
#define LUA_PRELOAD_TABLE "_PRELOAD"
#endif

#endif /* < 503 */

/* ---- 5.2 alone ---- */

#if LUA_VERSION_NUM == 502
#define lua_getglobal(L, name) (lua_getglobal(L, name), lua_type(L, -1))
#endif

/* ---- 5.1 and LuaJIT ---- */

#if LUA_VERSION_NUM < 502

#ifndef LUA_OK
#define LUA_OK 0
#endif

#define lua_pushstring(L, text)                          (lua_pushstring(L, text), lua_tostring(L, -1))
#define lua_pushlstring(L, text, size)                   (lua_pushlstring(L, text, size), lua_tostring(L, -1))
#define lua_pushglobaltable(L)                           lua_pushvalue(L, LUA_GLOBALSINDEX)
#define luaL_loadbufferx(L, text, size, chunkname, mode) luaL_loadbuffer(L, text, size, chunkname)

static inline void compat_setfuncs(lua_State *L, const luaL_Reg *functions, int upvalues) {
  luaL_checkstack(L, upvalues + 1, "functions");
  for (; functions->name; functions++) {
    for (int i = 0; i < upvalues; i++) lua_pushvalue(L, -upvalues);
    lua_pushcclosure(L, functions->func, upvalues);
    lua_setfield(L, -2 - upvalues, functions->name);
  }
  lua_pop(L, upvalues);
}
#define luaL_setfuncs compat_setfuncs

static inline void compat_copy(lua_State *L, int from, int to) {
  lua_pushvalue(L, from);
  lua_replace(L, to < 0 && to > LUA_REGISTRYINDEX ? to - 1 : to);
}
#define lua_copy compat_copy

static inline const char *compat_tolstring(lua_State *L, int idx, size_t *size) {
  if (luaL_callmeta(L, idx, "__tostring")) {
    if (lua_type(L, -1) != LUA_TSTRING) luaL_error(L, "'__tostring' must return a string");
    return lua_tolstring(L, -1, size);
  }
  switch (lua_type(L, idx)) {
  case LUA_TNIL: lua_pushliteral(L, "nil"); break;
  case LUA_TBOOLEAN: lua_pushstring(L, lua_toboolean(L, idx) ? "true" : "false"); break;
  case LUA_TNUMBER: /* a copy: lua_tolstring converts a number on the stack to a string */
  case LUA_TSTRING:
    lua_pushvalue(L, idx);
    lua_tostring(L, -1);
    break;
  default: {
    char address[32];
    snprintf(address, sizeof address, "%p", lua_topointer(L, idx));
    lua_pushfstring(L, "%s: %s", luaL_typename(L, idx), address);
  }
  }
  return lua_tolstring(L, -1, size);
}
#define luaL_tolstring compat_tolstring

/* For a buffer that is filled directly: `size` bytes, of which the first `length` become the result. */
static inline char *compat_buffinitsize(lua_State *L, luaL_Buffer *b, size_t size) {
  luaL_buffinit(L, b);
  return b->p = lua_newuserdata(L, size);
}
#define luaL_buffinitsize              compat_buffinitsize
#define luaL_pushresultsize(b, length) lua_pushlstring((b)->L, (b)->p, length)

static inline void compat_requiref(lua_State *L, const char *name, lua_CFunction open, int global) {
  lua_pushcfunction(L, open);
  lua_pushstring(L, name);
  lua_call(L, 1, 1);
  if (lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED") == LUA_TTABLE) {
    lua_pushvalue(L, -2);
    lua_setfield(L, -2, name);
  }
  lua_pop(L, 1);
  if (global) {
    lua_pushvalue(L, -1);
    lua_setglobal(L, name);
  }
}
#define luaL_requiref compat_requiref

/* Opened by the basic library already. */
static inline int compat_coroutine(lua_State *L) {
  lua_getglobal(L, LUA_COLIBNAME);
  return 1;
}
#define luaopen_coroutine compat_coroutine

#if !LHEED_JIT
/** In the format of 5.4. */
static inline void compat_traceback(lua_State *L, lua_State *of, const char *message, int level) {
  lua_Debug ar;
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  if (message) {
    luaL_addstring(&b, message);
    luaL_addchar(&b, '\n');
  }
  luaL_addstring(&b, "stack traceback:");
  for (; lua_getstack(of, level, &ar); level++) {
    char line[32] = "";
    lua_getinfo(of, "Snl", &ar);
    if (ar.currentline > 0) snprintf(line, sizeof line, "%d:", ar.currentline);
    luaL_addstring(&b, "\n\t");
    luaL_addstring(&b, ar.short_src);
    luaL_addstring(&b, ":");
    luaL_addstring(&b, line);
    luaL_addstring(&b, " in ");
    if (*ar.namewhat) {
      luaL_addstring(&b, "function '");
      luaL_addstring(&b, ar.name);
      luaL_addstring(&b, "'");
    } else {
      luaL_addstring(&b, *ar.what == 'm' ? "main chunk" : *ar.what == 't' ? "a tail call" : "a function");
    }
  }
  luaL_pushresult(&b);
}
#define luaL_traceback compat_traceback
#endif

#endif /* < 502 */

/* ---- After 5.4 ---- */

#if LUA_VERSION_NUM >= 505
#define lua_newstate(allocate, user) lua_newstate(allocate, user, luaL_makeseed(NULL))
#endif

/* ---- What the manual of 5.4 has no name for ---- */

/** Pushes package.preload, or a value that is not a table if there is none; returns its type. */
static inline int lheed_push_preload(lua_State *L) {
#if LUA_VERSION_NUM < 502
  lua_pushnil(L);
  if (lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED") != LUA_TTABLE) return LUA_TNIL;
  if (lua_getfield(L, -1, LUA_LOADLIBNAME) == LUA_TTABLE) {
    lua_getfield(L, -1, "preload");
    lua_replace(L, -4);
  }
  lua_pop(L, 2);
  return lua_type(L, -1);
#else
  return lua_getfield(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
#endif
}

/** The field of `package` that lists the searchers of require. */
#define LHEED_SEARCHERS (LUA_VERSION_NUM < 502 ? "loaders" : "searchers")

/** Makes the table on top of the stack the environment of the function below it. */
static inline void lheed_set_environment(lua_State *L) {
#if LUA_VERSION_NUM < 502
  lua_setfenv(L, -2);
#else
  lua_setupvalue(L, -2, 1);
#endif
}

/* Whether pairs uses __pairs. */
#define LHEED_HAS_PAIRS (LUA_VERSION_NUM >= 502)

/* Whether a coroutine can yield through a C function. */
#define LHEED_YIELDS_THROUGH_C (LUA_VERSION_NUM >= 502)

/* Whether a hook applies to all coroutines, instead of one. */
#define LHEED_HOOKS_ARE_GLOBAL LHEED_JIT

/** Switches LuaJIT's compiler off: compiled loops ignore hooks. */
static inline void lheed_interpret_only(lua_State *L) {
#if LHEED_JIT
  luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
#else
  (void)L;
#endif
}

#if LUA_VERSION_NUM >= 503
static inline int compat_return_all(lua_State *L, int status, lua_KContext context) {
  (void)status, (void)context;
  return lua_gettop(L);
}
#else
static inline int compat_return_all(lua_State *L) {
  return lua_gettop(L);
}
#endif

/** Calls the function at the bottom of the stack with all values above it as arguments, such that it can
 * yield; returns the number of its results, which are all that is on the stack. */
static inline int lheed_call_all(lua_State *L) {
#if LUA_VERSION_NUM >= 502
  lua_callk(L, lua_gettop(L) - 1, LUA_MULTRET, 0, compat_return_all);
#else
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
#endif
  return lua_gettop(L);
}

/* Whether a C function's values can be closed when it ends. */
#define LHEED_CLOSES (LUA_VERSION_NUM >= 504)
#if !LHEED_CLOSES
#define lua_toclose(L, idx) ((void)(L))
#endif

/* Whether a finalizer can tell that the collector called it: its call is named "__gc". */
#define LHEED_NAMES_FINALIZERS (LUA_VERSION_NUM >= 504)

/** Makes a collector step as for `kib` KiB of new memory; false if the collector is stopped, which 5.1 cannot
 * tell. */
static inline bool lheed_collector_step(lua_State *L, int kib) {
#ifdef LUA_GCISRUNNING
  if (!lua_gc(L, LUA_GCISRUNNING, 0)) return false;
#endif
#if LUA_VERSION_NUM >= 505 /* a call makes one small step, whatever size it is given */
  while (kib > 0 && !lua_gc(L, LUA_GCSTEP, (size_t)16 << 10)) kib -= 16;
#else
  lua_gc(L, LUA_GCSTEP, kib);
#endif
  return true;
}

/** Whether tensors may use the allocator of the Lua state. A LuaJIT that stores 32-bit pointers has only the
 * lowest 2 GiB, and does not use an allocator of the host. */
static inline bool lheed_allocates_by_lua(lua_State *L) {
  return !LHEED_JIT || sizeof(void *) == 4 || (uintptr_t)L > UINT32_MAX;
}

/** Pops the table on top of the stack and stores it in the userdata below. */
static inline void lheed_set_held(lua_State *L) {
#if LUA_VERSION_NUM < 502
  lua_setfenv(L, -2);
#elif LUA_VERSION_NUM < 504
  lua_setuservalue(L, -2);
#else
  lua_setiuservalue(L, -2, 1);
#endif
}

/** Pushes the table that the userdata at idx stores. */
static inline void lheed_push_held(lua_State *L, int idx) {
#if LUA_VERSION_NUM < 502
  lua_getfenv(L, idx);
#elif LUA_VERSION_NUM < 504
  lua_getuservalue(L, idx);
#else
  lua_getiuservalue(L, idx, 1);
#endif
}

#endif
