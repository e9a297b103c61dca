/* heed.limit: memory, time, work, threads and files that a script may use. */
#include <math.h>

#include "../core/core.h"
#include "lheed.h"

enum { AT_MEMORY = 1, AT_SECONDS, AT_WORK, AT_THREADS, AT_FILES, AT_MAP, AT_FINAL };
static const char *const names[] = {"memory", "seconds", "work", "threads", "files", "map", "final", NULL};

static int bad_limit(lua_State *L, int idx, const char *needed) {
  return lheed_bad_argument(L, idx, "limit", names[idx - 1], needed);
}

/* A number above 0; 0 (no limit) for math.huge. */
static double number_at(lua_State *L, int idx, const char *needed) {
  const double value = lua_type(L, idx) == LUA_TNUMBER ? (double)lua_tonumber(L, idx) : 0;
  if (!(value > 0)) bad_limit(L, idx, needed);
  return value == INFINITY ? 0 : value;
}

static double whole_at(lua_State *L, int idx, double most, const char *needed) {
  const double value = number_at(L, idx, needed);
  if (value != floor(value) || value > most) bad_limit(L, idx, needed);
  return value;
}

static bool boolean_at(lua_State *L, int idx) {
  if (lua_type(L, idx) != LUA_TBOOLEAN) bad_limit(L, idx, "true or false");
  return lua_toboolean(L, idx);
}

/* Raises if the limits are final and `value` exceeds `now`; 0 is no limit. */
static void check_final(lua_State *L, const heed_limits *set, int idx, double now, double value) {
  if (!set->final || now == 0 || (value > 0 && value <= now)) return;
  char text[HEED__NUMBER_TEXT];
  heed__write_number(text, sizeof text, 'g', idx == AT_MEMORY || idx == AT_WORK ? 19 : 14, now);
  lheed_error(L, "limit: %s is %s; the limits are final, so it must be at most %s", names[idx - 1],
              lheed_push_what(L, idx), text);
}

static void push_limit(lua_State *L, const char *name, double value, bool integer) {
  if (value > 0 && integer)
    lua_pushinteger(L, (lua_Integer)value);
  else
    lua_pushnumber(L, value > 0 ? (lua_Number)value : (lua_Number)INFINITY);
  lua_setfield(L, -2, name);
}

static int push_limits(lua_State *L, const heed_limits *l) {
  lua_createtable(L, 0, 7);
  push_limit(L, "memory", (double)l->memory, true);
  push_limit(L, "seconds", l->call_seconds, false);
  push_limit(L, "work", (double)l->work, true);
  if (l->work == HEED_NO_WORK) {
    lua_pushinteger(L, 0);
    lua_setfield(L, -2, "work");
  }
  push_limit(L, "threads", l->threads, true);
  lua_pushboolean(L, !l->no_files);
  lua_setfield(L, -2, "files");
  lua_pushboolean(L, heed__maps_files(l));
  lua_setfield(L, -2, "map");
  lua_pushboolean(L, l->final);
  lua_setfield(L, -2, "final");
  return 1;
}

/* limit{memory =, seconds =, work =, threads =, files =, map =, final =} sets those that are named; limit()
 * returns all. final = true also ends mapping, unless map = true is beside it. */
static int limit(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  const bool query = lua_gettop(L) == 0;
  heed_limits l = {.size = sizeof l};
  if (!query) lheed_options(L, "limit", 1, names); /* may run finalizers, which may set limits */
  LHEED_TRY(L, heed_get_limits(ctx, &l));
  if (query) return push_limits(L, &l);
  const heed_limits now = l;
  if (!lua_isnil(L, AT_MEMORY)) {
    const double bytes = whole_at(L, AT_MEMORY, 0x1p62, "a number of bytes above 0, or math.huge");
    check_final(L, &now, AT_MEMORY, (double)now.memory, bytes);
    l.memory = bytes < (double)SIZE_MAX ? (size_t)bytes : SIZE_MAX;
  }
  if (!lua_isnil(L, AT_SECONDS)) {
    l.call_seconds = number_at(L, AT_SECONDS, "a number above 0, or math.huge");
    check_final(L, &now, AT_SECONDS, now.call_seconds, l.call_seconds);
  }
  if (!lua_isnil(L, AT_WORK)) {
    const double units = whole_at(L, AT_WORK, 0x1p53, "a number of units from 1 to 2^53, or math.huge");
    if (now.final && now.work == HEED_NO_WORK)
      return lheed_error(L, "limit: work is %s; the limits are final and nothing is left of it",
                         lheed_push_what(L, AT_WORK));
    check_final(L, &now, AT_WORK, (double)now.work, units);
    l.work = (int64_t)units;
  }
  if (!lua_isnil(L, AT_THREADS)) {
    l.threads = (int)whole_at(L, AT_THREADS, HEED_MAX_THREADS, "a whole number from 1 to 1024, or math.huge");
    check_final(L, &now, AT_THREADS, now.threads, l.threads);
  }
  if (!lua_isnil(L, AT_FILES)) {
    l.no_files = !boolean_at(L, AT_FILES);
    if (now.final && now.no_files && !l.no_files)
      return lheed_error(L, "limit: files is true; the limits are final, so it must be false");
  }
  if (!lua_isnil(L, AT_MAP)) {
    const bool maps = boolean_at(L, AT_MAP), ends = lua_toboolean(L, AT_FINAL) && !now.final;
    l.map = !maps ? HEED_MAP_NEVER : ends ? HEED_MAP_ALWAYS : now.final ? now.map : HEED_MAP_UNLESS_FINAL;
    if (maps && now.final && !heed__maps_files(&now))
      return lheed_error(L, "limit: map is true; the limits are final, so it must be false");
  }
  if (!lua_isnil(L, AT_FINAL)) {
    l.final = boolean_at(L, AT_FINAL);
    if (now.final && !l.final)
      return lheed_error(L, "limit: final is false; the limits are final already, so it must be true");
  }
  LHEED_TRY(L, heed_set_limits(ctx, &l));
  /* If a call of heed is running, the new limit applies to it from now on. */
  const bool sooner = ctx->call_end == 0 || heed_clock() + l.call_seconds < ctx->call_end;
  if (!lua_isnil(L, AT_SECONDS) && l.call_seconds > 0 && sooner) heed__start_call(ctx);
  return 0;
}

void lheed_open_limit(lua_State *L) {
  static const luaL_Reg functions[] = {{"limit", limit}, {NULL, NULL}};
  lheed_add(L, NULL, functions);
}
