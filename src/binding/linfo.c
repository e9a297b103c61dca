/* Threads, the clock, heed.info. */
#include <stdio.h>
#include <string.h>

#include "../core/core.h"
#include "lheed.h"

static const char info_key = 0; /* registry key of the metatable */

/* ---- Threads and time ---- */

static int set_num_threads(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lheed_arguments(L, "set_num_threads", 1);
  LHEED_TRY(L, heed_set_num_threads(ctx, lheed_integer(L, 1, "set_num_threads", "n")));
  return 0;
}

static int get_num_threads(lua_State *L) {
  lheed_arguments(L, "get_num_threads", 0);
  lua_pushinteger(L, heed_num_threads(lheed_get(L)->context));
  return 1;
}

static const char *const precisions[] = {
#define X(name, text) text,
    HEED_MATMUL_PRECISION_LIST(X)
#undef X
};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

static int set_matmul_precision(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  const char *name = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
  int i = 0;
  lheed_arguments(L, "set_matmul_precision", 1);
  while (i < PRECISIONS && strcmp(name, precisions[i]) != 0) i++;
  if (i == PRECISIONS)
    return lheed_bad_argument(L, 1, "set_matmul_precision", "precision", "'highest', 'high' or 'medium'");
  LHEED_TRY(L, heed_set_matmul_precision(ctx, (heed_matmul_precision)i));
  return 0;
}

static int get_matmul_precision(lua_State *L) {
  lheed_arguments(L, "get_matmul_precision", 0);
  lua_pushstring(L, precisions[heed_get_matmul_precision(lheed_get(L)->context)]);
  return 1;
}

static int seconds(lua_State *L) {
  lheed_arguments(L, "clock", 0);
  lua_pushnumber(L, heed_clock());
  return 1;
}

/* ---- heed.info ---- */

static int info(lua_State *L) {
  heed_information i = {.size = sizeof i};
  lheed_arguments(L, "info", 0);
  LHEED_TRY(L, heed_info(lheed_get(L)->context, &i));
  lua_createtable(L, 0, 9);
  lheed_set_string(L, "version", i.version);
  lheed_set_string(L, "processor", i.processor);
  lheed_set_string(L, "kernels", i.kernels);
  lheed_set_string(L, "blas", i.blas);
  lheed_set_string(L, "blas_core", i.blas_core);
  lheed_set_integer(L, "threads", i.threads);
  lheed_set_integer(L, "memory_in_use", (int64_t)i.memory_in_use);
  lheed_set_integer(L, "memory_peak", (int64_t)i.memory_peak);
  lheed_set_integer(L, "memory_kept", (int64_t)i.memory_kept);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &info_key);
  lua_setmetatable(L, -2);
  return 1;
}

/* One line for each field. Scripts can set the fields to anything. */
static int info_tostring(lua_State *L) {
  static const char *const fields[] = {"version", "processor",     "kernels",     "blas",       "blas_core",
                                       "threads", "memory_in_use", "memory_peak", "memory_kept"};
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    char text[64];
    snprintf(text, sizeof text, "%s%-14s ", i > 0 ? "\n" : "", fields[i]);
    luaL_addstring(&b, text);
    lua_getfield(L, 1, fields[i]);
    if (strncmp(fields[i], "memory", 6) == 0 && lua_isnumber(L, -1)) {
      heed__write_number(text, sizeof text, 'f', 1, (double)lua_tonumber(L, -1) / (1 << 20));
      lua_pop(L, 1);
      luaL_addstring(&b, text);
      luaL_addstring(&b, " MiB");
    } else {
      luaL_tolstring(L, -1, NULL);
      lua_remove(L, -2);
      luaL_addvalue(&b);
    }
  }
  luaL_pushresult(&b);
  return 1;
}

void lheed_open_info(lua_State *L) {
  static const luaL_Reg functions[] = {{"set_num_threads", set_num_threads},
                                       {"get_num_threads", get_num_threads},
                                       {"set_matmul_precision", set_matmul_precision},
                                       {"get_matmul_precision", get_matmul_precision},
                                       {"clock", seconds},
                                       {"info", info},
                                       {NULL, NULL}};
  static const luaL_Reg metamethods[] = {{"__tostring", info_tostring}, {NULL, NULL}};
  lua_createtable(L, 0, 2);
  lheed_setfuncs(L, metamethods);
  lua_pushliteral(L, "heed.Info");
  lua_setfield(L, -2, "__name");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &info_key);
  lheed_add(L, NULL, functions);
}
