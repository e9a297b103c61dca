#define _XOPEN_SOURCE 700

#include "report.h"

#include <stdio.h>

int cli_add_traceback(lua_State *L) {
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

void cli_report(lua_State *L) {
  const char *message = lua_tostring(L, -1);
  fflush(stdout); /* so that output from before the error appears before it */
  fprintf(stderr, "heed: %s\n", message ? message : "(error without a message)");
  fflush(stderr);
  lua_pop(L, 1);
}

void cli_report_invalid(lua_State *L) {
  const int message = lua_gettop(L);
  if (lua_type(L, message) == LUA_TSTRING) {
    lua_getglobal(L, "require");
    lua_pushliteral(L, "heed");
    if (lua_pcall(L, 1, 1, 0) == LUA_OK) lheed_explain(L, message);
  }
  cli_report(L);
  lua_settop(L, message - 1);
}
