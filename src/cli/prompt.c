/* The prompt of `heed -i`: reads chunks and runs them. lua/heed/prompt has what does not need C. */
#define _XOPEN_SOURCE 700

#include <stdbool.h>
#include <stdio.h>

#include "prompt_host.h"
#include "reader.h"

bool cli_at_prompt;

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
  lua_pushcfunction(L, cli_print_values);
  lua_insert(L, base);
  cli_call(L, count + 1, 0);
  return true;
}

void cli_prompt(lua_State *L) {
  cli_at_prompt = true;
  lheed_interpret_only(L); /* Ctrl-C stops no compiled loop */
  lua_pushcfunction(L, cli_open_prompt);
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
