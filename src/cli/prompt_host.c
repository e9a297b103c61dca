/* What the prompt needs beside reading lines. lua/heed/prompt compiles chunks, shows values, completes names
 * and explains them; its files and the annotations are compiled into the command. */
#define _XOPEN_SOURCE 700

#include <stdio.h>
#include <string.h>

#include "prompt_host.h"
#include "prompt_sources.h" /* prompt_sources: lua/heed/prompt and lua/heed/meta as bytes, made by the Makefile */

/* ---- Functions for heed.prompt: the module heed.prompt.host ---- */

/* The variables of a chunk. Upvalue 1: the locals of earlier chunks, name → {get, set}; all others are
 * globals. */
static int read_variable(lua_State *L) {
  lua_settop(L, 2);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) == LUA_TTABLE) {
    lua_rawgeti(L, -1, 1);
    lua_call(L, 0, 1);
    return 1;
  }
  lua_pushglobaltable(L);
  lua_pushvalue(L, 2);
  lua_gettable(L, -2);
  return 1;
}

static int assign_variable(lua_State *L) {
  lua_settop(L, 3);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) == LUA_TTABLE) {
    lua_rawgeti(L, -1, 2);
    if (!lua_toboolean(L, -1))
      return luaL_error(L, "attempt to assign to const variable '%s'", lua_tostring(L, 2));
    lua_pushvalue(L, 3);
    lua_call(L, 1, 0);
    return 0;
  }
  lua_pushglobaltable(L);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_settable(L, -3);
  return 0;
}

/* environment(locals) */
static int new_environment(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"__index", read_variable}, {"__newindex", assign_variable}, {NULL, NULL}};
  lua_settop(L, 1);
  lua_newtable(L);
  lua_newtable(L);
  lua_pushvalue(L, 1);
  luaL_setfuncs(L, functions, 1);
  lua_setmetatable(L, -2);
  return 1;
}

/* load(text, environment or nil): a function, or nil and a message. Upvalue 1: the host, whose chunk_name the
 * chunk gets. */
static int load_chunk(lua_State *L) {
  size_t size;
  const char *text = luaL_checklstring(L, 1, &size);
  lua_settop(L, 2);
  lua_getfield(L, lua_upvalueindex(1), "chunk_name");
  const int status = luaL_loadbuffer(L, text, size, luaL_checkstring(L, 3));
  lua_remove(L, 3);
  if (status != LUA_OK) {
    lua_pushnil(L);
    lua_insert(L, -2);
    return 2;
  }
  if (!lua_isnil(L, 2)) {
    lua_pushvalue(L, 2);
    lheed_set_environment(L);
  }
  return 1;
}

static int write_text(lua_State *L) {
  size_t size;
  const char *text = luaL_checklstring(L, 1, &size);
  fwrite(text, 1, size, stdout);
  return 0;
}

/* annotations(): the texts of the files of lua/heed/meta */
static int push_annotations(lua_State *L) {
  lua_newtable(L);
  int count = 0;
  for (size_t i = 0; prompt_sources[i].name; i++) {
    if (strncmp(prompt_sources[i].name, "heed.meta.", 10) != 0) continue;
    lua_pushlstring(L, (const char *)prompt_sources[i].code, prompt_sources[i].size);
    lua_rawseti(L, -2, ++count);
  }
  return 1;
}

/* ---- The files of heed.prompt ---- */

/* Their `require`. Upvalue 1: the loaded ones by name, and their environment as "_ENV". */
static int require_prompt(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  lua_settop(L, 1);
  if (lua_getfield(L, lua_upvalueindex(1), name) != LUA_TNIL) return 1;
  for (size_t i = 0; prompt_sources[i].name; i++) {
    if (strcmp(prompt_sources[i].name, name) != 0) continue;
    lua_pushfstring(L, "=%s", name);
    if (luaL_loadbuffer(L, (const char *)prompt_sources[i].code, prompt_sources[i].size, lua_tostring(L, -1)))
      return lua_error(L);
    lua_getfield(L, lua_upvalueindex(1), "_ENV");
    lheed_set_environment(L);
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, lua_upvalueindex(1), name);
    return 1;
  }
  lua_getfield(L, lua_upvalueindex(1), "require");
  lua_pushvalue(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

/* Its files see copies of the standard functions that they use, so that the prompt works after a chunk has
 * changed the originals. */
int cli_open_prompt(lua_State *L) {
  static const char *const copied[] = {"error",  "getmetatable", "ipairs",   "math",     "next",
                                       "os",     "package",      "pairs",    "pcall",    "rawequal",
                                       "rawget", "rawset",       "require",  "select",   "setmetatable",
                                       "string", "table",        "tonumber", "tostring", "type"};
  static const luaL_Reg functions[] = {{"annotations", push_annotations},
                                       {"environment", new_environment},
                                       {"write", write_text},
                                       {NULL, NULL}};
  lua_settop(L, 0);
  lua_newtable(L); /* 1: loaded */
  lua_newtable(L); /* 2: environment */
  lua_newtable(L); /* 3: host */
  luaL_setfuncs(L, functions, 0);
  lua_pushvalue(L, 3);
  lua_pushcclosure(L, load_chunk, 1);
  lua_setfield(L, 3, "load");
  lua_pushliteral(L, "=stdin");
  lua_setfield(L, 3, "chunk_name");
  lua_pushglobaltable(L);
  lua_setfield(L, 3, "globals");
  lua_getglobal(L, "os");
  lua_getfield(L, -1, "exit");
  lua_setfield(L, 3, "exit");
  for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
    lua_getglobal(L, copied[i]);
    lua_setfield(L, 2, copied[i]);
  }
  lua_getglobal(L, "require");
  lua_setfield(L, 1, "require");
  lua_pushvalue(L, 1);
  lua_pushcclosure(L, require_prompt, 1);
  lua_pushvalue(L, -1);
  lua_setfield(L, 2, "require");
  lua_pushvalue(L, 2);
  lua_setfield(L, 1, "_ENV");
  lua_pushvalue(L, 3);
  lua_setfield(L, 1, "heed.prompt.host");
  lua_pushliteral(L, "heed.prompt");
  lua_call(L, 1, 1);
  lua_pushvalue(L, 3);
  return 2;
}

/* ---- Values ---- */

int cli_print_values(lua_State *L) {
  const int count = lua_gettop(L);
  for (int i = 2; i <= count; i++) {
    lua_pushvalue(L, 1);
    lua_pushvalue(L, i);
    lua_call(L, 1, 1);
    size_t size;
    const char *text = luaL_checklstring(L, -1, &size);
    fwrite(text, 1, size, stdout);
    putchar('\n');
    lua_pop(L, 1);
  }
  return 0;
}
