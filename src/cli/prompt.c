/* The prompt of `heed -i`. lua/heed/prompt has what does not need C: it compiles chunks, shows values,
 * completes names and explains them. Its files and the annotations are compiled into the command. */
#define _XOPEN_SOURCE 700

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "prompt_sources.h" /* prompt_sources: lua/heed/prompt and lua/heed/meta as bytes, made by the Makefile */
#include "reader.h"

bool cli_at_prompt;

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

/* load(text, environment or nil): a function, or nil and a message */
static int load_chunk(lua_State *L) {
  size_t size;
  const char *text = luaL_checklstring(L, 1, &size);
  lua_settop(L, 2);
  if (luaL_loadbuffer(L, text, size, "=stdin") != LUA_OK) {
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

/* Pushes heed.prompt. Its files see copies of the standard functions that they use, so that the prompt works
 * after a chunk has changed the originals. */
static int open_prompt(lua_State *L) {
  static const char *const copied[] = {"error",  "getmetatable", "ipairs",   "math",     "next",
                                       "os",     "package",      "pairs",    "pcall",    "rawequal",
                                       "rawget", "rawset",       "require",  "select",   "setmetatable",
                                       "string", "table",        "tonumber", "tostring", "type"};
  static const luaL_Reg functions[] = {{"annotations", push_annotations},
                                       {"environment", new_environment},
                                       {"load", load_chunk},
                                       {"write", write_text},
                                       {NULL, NULL}};
  lua_settop(L, 0);
  lua_newtable(L); /* 1: loaded */
  lua_newtable(L); /* 2: environment */
  lua_newtable(L); /* 3: host */
  luaL_setfuncs(L, functions, 0);
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
  return 1;
}

/* ---- Chunks ---- */

typedef enum compiled { COMPILED, INCOMPLETE, INVALID } compiled;

/* Compiles the text on top of the stack; pushes the function, or an error message. Pushes nothing if more
 * lines are needed. `complete`: there are none. */
static compiled compile(lua_State *L, int library, bool complete) {
  lua_getfield(L, library, "compile");
  lua_pushvalue(L, -2);
  lua_pushboolean(L, complete);
  if (lua_pcall(L, 2, 2, 0) != LUA_OK) return INVALID;
  if (lua_isfunction(L, -2)) {
    lua_pop(L, 1);
    return COMPILED;
  }
  lua_remove(L, -2);
  if (!lua_isnil(L, -1)) return INVALID;
  lua_pop(L, 1);
  return INCOMPLETE;
}

/* Pushes the text of the next chunk and what compile makes of it. */
static cli_line read_chunk(lua_State *L, cli_reader *r, int library, compiled *result) {
  cli_line read = cli_read_line(r, "> ", NULL);
  if (read != CLI_LINE) return read;
  while ((*result = compile(L, library, read == CLI_END)) == INCOMPLETE) {
    read = cli_read_line(r, ">> ", lua_tostring(L, -1));
    if (read == CLI_CANCELLED) return read;
    if (read == CLI_END) continue;
    lua_pushliteral(L, "\n");
    lua_insert(L, -2);
    lua_concat(L, 3);
  }
  cli_remember(r, lua_tostring(L, -2));
  return CLI_LINE;
}

/* Prints the values above the function `text` (index 1) of heed.prompt, one on each line. */
static int print_values(lua_State *L) {
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

/* Runs the function on top of the stack, and prints its values. Returns whether the prompt goes on: its only
 * value is not `exit`. */
static bool run_chunk(lua_State *L, int library) {
  const int base = lua_gettop(L);
  const cli_result result = cli_call(L, 0, LUA_MULTRET);
  const int count = result == CLI_DONE ? lua_gettop(L) - base + 1 : 0;
  if (!lua_checkstack(L, 8)) return true;
  lua_getfield(L, library, "finish");
  if (lua_pcall(L, 0, 0, 0) != LUA_OK) cli_report(L);
  if (count == 0) return true;
  lua_getfield(L, library, "exit");
  const bool ends = count == 1 && lua_rawequal(L, -1, -2);
  lua_pop(L, 1);
  if (ends) return false;
  lua_getfield(L, library, "text");
  lua_insert(L, base);
  lua_pushcfunction(L, print_values);
  lua_insert(L, base);
  cli_call(L, count + 1, 0);
  return true;
}

void cli_prompt(lua_State *L) {
  cli_at_prompt = true;
  lheed_interpret_only(L); /* Ctrl-C stops no compiled loop */
  lua_pushcfunction(L, open_prompt);
  if (cli_call(L, 0, 1) != CLI_DONE) return;
  const int library = lua_gettop(L);
  cli_reader *r = cli_reader_new(L, library);
  if (!r) return;
  if (cli_reader_edits(r))
    puts("heed and nn are globals. Tab completes, help() explains, Ctrl-C interrupts, Ctrl-D ends.");
  compiled result = INVALID;
  bool more = true;
  for (cli_line read; more && (read = read_chunk(L, r, library, &result)) != CLI_END;
       lua_settop(L, library)) {
    if (read == CLI_CANCELLED) continue;
    if (result == COMPILED)
      more = run_chunk(L, library);
    else
      cli_report_invalid(L);
    fflush(stdout);
  }
  lua_settop(L, library - 1);
  cli_reader_free(r);
}
