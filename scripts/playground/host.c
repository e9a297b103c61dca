/* The host of heed in WebAssembly: one Lua state, which runs scripts. runtime.js calls these functions, and reads what
 * they print on stdout and stderr. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/binding/lheed.h"

#define EXPORTED(name) __attribute__((export_name(#name))) name

static lua_State *state;
static bool stopped; /* the page wants no more output: what prints raises an error */

/* ---- Output ---- */

/* print and io.write. Upvalue 1: the original. */
static int write_more(lua_State *L) {
  if (stopped) return luaL_error(L, "stopped: this script prints more than the page shows");
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

static void guard(lua_State *L, const char *name) {
  lua_getfield(L, -1, name);
  lua_pushcclosure(L, write_more, 1);
  lua_setfield(L, -2, name);
}

/* From now on print and io.write raise an error, until the running script ends. */
void EXPORTED(playground_stop)(void) {
  stopped = true;
}

/* ---- The state ---- */

static int open_all(lua_State *L) {
  luaL_openlibs(L);
  lheed_push_preload(L);
  lua_pushcfunction(L, luaopen_heed_core);
  lua_setfield(L, -2, "heed.core");
  lua_pushcfunction(L, luaopen_heed);
  lua_call(L, 0, 1);
  lua_setglobal(L, "heed");
  lua_getglobal(L, "heed");
  lua_getfield(L, -1, "nn");
  lua_setglobal(L, "nn");
  lua_pushglobaltable(L);
  guard(L, "print");
  lua_getglobal(L, "io");
  guard(L, "write");
  return 0;
}

/* As the command reports it (src/cli/interrupt.c). */
static int add_traceback(lua_State *L) {
  const char *message = lua_tostring(L, 1);
  if (!message) {
    if (luaL_callmeta(L, 1, "__tostring") && lua_type(L, -1) == LUA_TSTRING) return 1;
    message = lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
  } else if (lua_type(L, 1) == LUA_TSTRING) {
    lheed_explain(L, 1);
    message = lua_tostring(L, -1);
  }
  luaL_traceback(L, L, message, 1);
  return 1;
}

static bool report(lua_State *L, int status) {
  fflush(stdout);
  if (status == LUA_OK) return true;
  const char *message = lua_tostring(L, -1);
  fprintf(stderr, "heed: %s\n", message ? message : "(error without a message)");
  lua_settop(L, 0);
  return false;
}

/* Opens the state; returns whether that succeeded. */
bool EXPORTED(playground_open)(void) {
  setvbuf(stdout, NULL, _IOLBF, 4096);
  state = luaL_newstate();
  if (!state) return false;
  lua_pushcfunction(state, open_all);
  return report(state, lua_pcall(state, 0, 0, 0));
}

/* Runs a chunk; prints its error. */
bool EXPORTED(playground_run)(const char *code, size_t size, const char *name) {
  lua_State *L = state;
  stopped = false;
  lua_settop(L, 0);
  lua_pushcfunction(L, add_traceback);
  int status = luaL_loadbuffer(L, code, size, name);
  if (status != LUA_OK) {
    lheed_explain(L, -1);
    return report(L, status);
  }
  return report(L, lua_pcall(L, 0, 0, 1));
}

/* Memory for what JavaScript passes. */
void *EXPORTED(playground_allocate)(size_t size) {
  return malloc(size);
}
void EXPORTED(playground_free)(void *block) {
  free(block);
}
