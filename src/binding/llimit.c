/* heed.limit, and the moment at which a call of a script's begins. */
#include <math.h>

#include "../core/core.h"
#include "lheed.h"

/* ---- The calls of a script ---- */

/* A call is deep if another one of heed's that is written in Lua is under it, whose time goes on. Further
 * down than here nobody looks: each call there counts for itself. */
enum { DEEPEST = 200 };

typedef enum call_depth { OUTERMOST, DEEP, TOO_DEEP } call_depth;

static call_depth call_depth_of(lua_State *L) {
  lua_Debug ar;
  for (int level = 1; level < DEEPEST; level++) {
    if (!lua_getstack(L, level, &ar)) return OUTERMOST;
    lua_getinfo(L, "f", &ar);
    const bool deep = lheed_is_frame(L, -1);
    lua_pop(L, 1);
    if (deep) return DEEP;
  }
  return TOO_DEEP;
}

void lheed_start_call(lua_State *L, lheed_state *S) {
  if (call_depth_of(L) != DEEP) heed__start_call(S->context);
}

/* Whether a call of heed's own Lua files runs, which then is the one whose time is up. Further down than is
 * looked there is one, where all of their functions are in frames. */
static bool is_in_call(lua_State *L) {
  const call_depth d = call_depth_of(L);
  return d == DEEP || (d == TOO_DEEP && LHEED_YIELDS_THROUGH_C);
}

void lheed_stop(lua_State *L, heed_context *ctx, const char *function) {
  if (heed__is_due(&ctx->pace)) LHEED_TRY(L, heed__stopped(ctx, function));
}

void lheed_look(lua_State *L, const char *function) {
  const lheed_state *S = lheed_find(L);
  if (!S) luaL_error(L, "this Lua state has closed heed");
  heed_context *ctx = S->context;
  if (!heed__is_due(&ctx->pace)) return;
  if (ctx->call_end > 0 && !is_in_call(L)) heed__start_call(ctx);
  lheed_stop(L, ctx, function);
}

/* core.look(function): raises if the call is to stop; for loops in heed's own Lua files. */
static int look(lua_State *L) {
  if (lua_type(L, 1) != LUA_TSTRING) {
    lua_settop(L, 1);
    return lheed_bad_argument(L, 1, "look", "function", "a string");
  }
  lheed_look(L, lua_tostring(L, 1));
  return 0;
}

/* ---- heed.limit ---- */

enum { AT_MEMORY = 1, AT_SECONDS, AT_THREADS, AT_FILES, AT_FINAL };
static const char *const names[] = {"memory", "seconds", "threads", "files", "final", NULL};

static int bad_limit(lua_State *L, int idx, const char *needed) {
  return lheed_bad_argument(L, idx, "limit", names[idx - 1], needed);
}

/* A number above 0; 0 for math.huge, which takes the limit away. */
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

/* 0 stands for no limit, in all of these. */
static void check_final(lua_State *L, const heed_limits *set, int idx, double now, double value) {
  if (!set->final || now == 0 || (value > 0 && value <= now)) return;
  char text[HEED__NUMBER_TEXT];
  heed__write_number(text, sizeof text, 'g', idx == AT_MEMORY ? 19 : 14, now);
  lheed_error(L, "limit: %s is %s and the limits are final; it can be %s at the most", names[idx - 1],
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
  lua_createtable(L, 0, 5);
  push_limit(L, "memory", (double)l->memory, true);
  push_limit(L, "seconds", l->seconds, false);
  push_limit(L, "threads", l->threads, true);
  lua_pushboolean(L, !l->no_files);
  lua_setfield(L, -2, "files");
  lua_pushboolean(L, l->final);
  lua_setfield(L, -2, "final");
  return 1;
}

/* limit{memory =, seconds =, threads =, files =, final =} sets those that are named; limit() gives them all.
 */
static int limit(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  const bool asks = lua_gettop(L) == 0;
  heed_limits l = {.size = sizeof l};
  if (!asks) lheed_options(L, "limit", 1, names); /* may run finalizers, which may set limits */
  LHEED_TRY(L, heed_get_limits(ctx, &l));
  if (asks) return push_limits(L, &l);
  const heed_limits now = l;
  if (!lua_isnil(L, AT_MEMORY)) {
    const double bytes = whole_at(L, AT_MEMORY, 0x1p62, "a number of bytes above 0, or math.huge");
    check_final(L, &now, AT_MEMORY, (double)now.memory, bytes);
    l.memory = bytes < (double)SIZE_MAX ? (size_t)bytes : SIZE_MAX;
  }
  if (!lua_isnil(L, AT_SECONDS)) {
    l.seconds = number_at(L, AT_SECONDS, "a number above 0, or math.huge");
    check_final(L, &now, AT_SECONDS, now.seconds, l.seconds);
  }
  if (!lua_isnil(L, AT_THREADS)) {
    l.threads = (int)whole_at(L, AT_THREADS, HEED_MAX_THREADS, "a whole number from 1 to 1024, or math.huge");
    check_final(L, &now, AT_THREADS, now.threads, l.threads);
  }
  if (!lua_isnil(L, AT_FILES)) {
    l.no_files = !boolean_at(L, AT_FILES);
    if (now.final && now.no_files && !l.no_files)
      return lheed_error(L, "limit: files is true and the limits are final; it can only be false");
  }
  if (!lua_isnil(L, AT_FINAL)) {
    l.final = boolean_at(L, AT_FINAL);
    if (now.final && !l.final)
      return lheed_error(L, "limit: final is false and the limits are final already");
  }
  LHEED_TRY(L, heed_set_limits(ctx, &l));
  /* The call that runs, should this be in one, has no more than that from now on. */
  const bool sooner = ctx->call_end == 0 || heed_clock() + l.seconds < ctx->call_end;
  if (!lua_isnil(L, AT_SECONDS) && l.seconds > 0 && sooner) heed__start_call(ctx);
  return 0;
}

void lheed_open_limit(lua_State *L) {
  static const luaL_Reg functions[] = {{"limit", limit}, {"look", look}, {NULL, NULL}};
  lua_pushvalue(L, -2);
  lheed_setfuncs(L, functions);
  lua_pop(L, 1);
}

heed_context *heed_lua_context(lua_State *L) {
  lheed_state *S = L != NULL ? lheed_find(L) : NULL;
  return S != NULL ? S->context : NULL;
}
