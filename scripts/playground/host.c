/* The host of heed in WebAssembly: one Lua state, which runs scripts. runtime.js calls these functions, and
 * reads what they print on stdout and stderr. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/cli/prompt_host.h"
#include "../../src/cli/report.h"

#define EXPORTED(name) __attribute__((export_name(#name))) name

static lua_State *state;
enum { RESERVE = 1 << 20 };
static void *reserve; /* bytes for the script after one that used up all memory; NULL: it has them */
static bool stopped;  /* the page wants no more output: what prints raises an error */

/* ---- Output ---- */

/* print and io.write. Upvalue 1: the original. */
static int write_more(lua_State *L) {
  if (stopped) return luaL_error(L, "stopped: this script prints more than is shown");
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

enum { TRACEBACK = 1, PROMPT, PROMPT_HOST, BASE = PROMPT_HOST }; /* what stays on the stack */

static const char explain[] = "function help() print 'The reference of heed explains every function.' end";

static int open_all(lua_State *L) {
  luaL_openlibs(L);
  lheed_push_preload(L);
  lua_pushcfunction(L, luaopen_heed_core);
  lua_setfield(L, -2, "heed.core");
  lua_pushcfunction(L, luaopen_heed);
  lua_call(L, 0, 1);
  lua_pushvalue(L, -1);
  lua_setglobal(L, "heed");
  lua_getfield(L, -1, "nn");
  lua_setglobal(L, "nn");
  lua_pushglobaltable(L);
  guard(L, "print");
  lua_getglobal(L, "io");
  guard(L, "write");
  if (luaL_dostring(L, explain) != LUA_OK)
    return lua_error(L); /* the annotations, which help reads, are not here */
  lua_settop(L, 0);
  lua_pushcfunction(L, cli_open_prompt);
  lua_call(L, 0, 2);
  return 2;
}

/* Opens the state; returns whether that succeeded. */
bool EXPORTED(playground_open)(void) {
  setvbuf(stdout, NULL, _IOLBF, 4096);
  setvbuf(stderr, NULL, _IOLBF, 4096);
  reserve = malloc(RESERVE);
  state = luaL_newstate();
  if (!state) return false;
  lua_pushcfunction(state, cli_add_traceback);
  lua_pushcfunction(state, open_all);
  const bool opened = lua_pcall(state, 0, 2, TRACEBACK) == LUA_OK;
  if (!opened) cli_report(state);
  return opened;
}

/* ---- Scripts ---- */

typedef enum outcome { FAILED, DONE, INCOMPLETE } outcome;

static outcome end(lua_State *L, outcome result) {
  if (result == FAILED) cli_report(L);
  fflush(stdout);
  fflush(stderr);
  lua_settop(L, BASE);
  if (!reserve) reserve = malloc(RESERVE);
  if (!reserve) {
    lua_gc(L, LUA_GCCOLLECT);
    reserve = malloc(RESERVE);
  }
  return result;
}

/* Reports why a chunk does not compile, with what to write instead where that is known. */
static int explain_message(lua_State *L) {
  lheed_explain(L, 1);
  return 1;
}
static outcome invalid(lua_State *L) {
  lua_pushcfunction(L, explain_message);
  lua_insert(L, -2);
  lua_pcall(L, 1, 1, 0);
  return end(L, FAILED);
}

/* Runs a script as the command does; prints its error. */
outcome EXPORTED(playground_run)(const char *code, size_t size, const char *name) {
  lua_State *L = state;
  stopped = false;
  if (luaL_loadbufferx(L, code, size, name, "t") != LUA_OK) return invalid(L);
  return end(L, lua_pcall(L, 0, 0, TRACEBACK) == LUA_OK ? DONE : FAILED);
}

/* Runs a chunk as the prompt does: keeps its locals, and prints its values. A script is complete, and its
 * values are not printed. */
outcome EXPORTED(playground_call)(const char *code, size_t size, const char *name, bool is_script) {
  lua_State *L = state;
  stopped = false;
  lua_pushstring(L, name);
  lua_setfield(L, PROMPT_HOST, "chunk_name");
  lua_getfield(L, PROMPT, "compile");
  lua_pushlstring(L, code, size);
  lua_pushboolean(L, is_script);
  if (lua_pcall(L, 2, 2, TRACEBACK) != LUA_OK) return end(L, FAILED);
  if (lua_isnil(L, -2)) return lua_isnil(L, -1) ? end(L, INCOMPLETE) : invalid(L);
  lua_pop(L, 1);
  if (lua_pcall(L, 0, LUA_MULTRET, TRACEBACK) != LUA_OK) return end(L, FAILED);
  const int count = lua_gettop(L) - BASE;
  if (!lua_checkstack(L, 8)) return end(L, DONE);
  lua_getfield(L, PROMPT, "finish");
  if (lua_pcall(L, 0, 0, TRACEBACK) != LUA_OK) return end(L, FAILED);
  if (is_script) return end(L, DONE);
  lua_getfield(L, PROMPT, "text");
  lua_insert(L, BASE + 1);
  lua_pushcfunction(L, cli_print_values);
  lua_insert(L, BASE + 1);
  return end(L, lua_pcall(L, count + 1, 0, TRACEBACK) == LUA_OK ? DONE : FAILED);
}

/* Memory for what JavaScript passes: the first call before a script runs. If a script has used up all memory,
 * the next one gets the reserve, in which it can let go of something. */
void *EXPORTED(playground_allocate)(size_t size) {
  void *block = malloc(size + RESERVE / 2);
  if (!block) {
    lua_gc(state, LUA_GCCOLLECT);
    block = malloc(size + RESERVE / 2);
  }
  if (!block) {
    free(reserve);
    reserve = NULL;
  }
  free(block);
  return malloc(size);
}
void EXPORTED(playground_free)(void *block) {
  free(block);
}
