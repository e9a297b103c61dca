/* require "heed_mpi": the primitives on which lua/heed/distributed.lua builds. They check what would crash;
 * the Lua file checks the rest. Ranks count from 1 here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../binding/compat.h"
#include "distributed.h"

/* Registry keys. state: the state; flights: address of a request → the request, while it is in flight; raise:
 * core.raise, which adds the position of the script to a message. */
static const char state_key = 0, flights_key = 0, raise_key = 0, group_key = 0, request_key = 0;

typedef struct state {
  dist d;
  dist_group *world; /* NULL before init */
} state;

/* For exit without closing the Lua state (os.exit). */
static state *at_exit;

/* ---- Errors and arguments ---- */

static int raise(lua_State *L, const char *message) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &raise_key);
  lua_pushstring(L, message);
  lua_call(L, 1, 0);
  return 0;
}

static void check_status(lua_State *L, const dist *d, heed_status status) {
  if (status) raise(L, d->message);
}

/* Runs a call in the group g, a second time after a full collection if memory ran out before the other ranks
 * knew of it; raises if it failed. `call` reads its tensors from the stack each time: finalizers may release
 * them. */
#define TRY(L, g, call)                                                                                      \
  do {                                                                                                       \
    const int64_t calls_ = (g)->calls;                                                                       \
    heed_status status_ = (call);                                                                            \
    if (status_ == HEED_MEMORY && (g)->calls == calls_) {                                                    \
      lua_gc((L), LUA_GCCOLLECT, 0);                                                                         \
      status_ = (call);                                                                                      \
    }                                                                                                        \
    check_status((L), (g)->d, status_);                                                                      \
  } while (0)

static state *get_state(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &state_key);
  state *s = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return s;
}

static void *check_userdata(lua_State *L, int idx, const void *key, const char *what) {
  void *u = lua_touserdata(L, idx);
  bool ok = false;
  if (u && lua_getmetatable(L, idx)) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, key);
    ok = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
  }
  if (!ok) luaL_argerror(L, idx, what);
  return u;
}

/* The group at idx; the world if there is none. */
static dist_group *check_group(lua_State *L, int idx) {
  state *s = get_state(L);
  if (!lua_isnoneornil(L, idx)) return check_userdata(L, idx, &group_key, "a group expected");
  if (!s->world) raise(L, "the process group is not there; call init_process_group first");
  return s->world;
}

static dist_request *check_request(lua_State *L, int idx) {
  return check_userdata(L, idx, &request_key, "a request expected");
}

static heed_tensor *check_tensor(lua_State *L, int idx) {
  heed_tensor *x = heed_lua_tensor(L, idx);
  if (!x) luaL_argerror(L, idx, "a tensor expected");
  return x;
}

static int check_int(lua_State *L, int idx, int least, int most) {
  const lua_Integer value = lua_tointeger(L, idx);
  luaL_argcheck(L, lua_type(L, idx) == LUA_TNUMBER && value >= least && value <= most, idx, "out of range");
  return (int)value;
}

static dist_op check_op(lua_State *L, int idx) {
  const char *name = luaL_optstring(L, idx, "sum");
  for (int i = 0; dist_op_names[i]; i++)
    if (strcmp(name, dist_op_names[i]) == 0) return (dist_op)i;
  luaL_argerror(L, idx, "sum, prod, min, max or avg expected");
  return DIST_SUM;
}

/* ---- The job ---- */

static dist_group *push_group(lua_State *L) {
  dist_group *g = lua_newuserdatauv(L, sizeof *g, 0);
  memset(g, 0, sizeof *g);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &group_key);
  lua_setmetatable(L, -2);
  luaL_checkstack(L, 2, "group");
  lua_pushvalue(L, -1); /* groups live until MPI ends: to free one, all its ranks would have to meet */
  lua_rawsetp(L, LUA_REGISTRYINDEX, g);
  return g;
}

static double number_field(lua_State *L, const char *name, double otherwise) {
  lua_getfield(L, 1, name);
  const double value = lua_type(L, -1) == LUA_TNUMBER ? (double)lua_tonumber(L, -1) : otherwise;
  lua_pop(L, 1);
  return value;
}

/* init{timeout = seconds, check = boolean, piece = bytes that MPI gets at once (for tests)} */
static int init(lua_State *L) {
  state *s = get_state(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  if (s->d.open) return raise(L, "init_process_group: it was called before; one call is enough");
  s->d.timeout = number_field(L, "timeout", 60);
  s->d.transport.piece = (int64_t)number_field(L, "piece", 1 << 30);
  lua_getfield(L, 1, "check");
  s->d.check = lua_isnil(L, -1) || lua_toboolean(L, -1);
  dist_group *world = push_group(L);
  world->d = &s->d;
  const heed_status status = dist_init(&s->d, world);
  if (s->d.open) {
    s->world = world;
    at_exit = s;
    if (heed_set_poll(s->d.context, 0.0002, dist_poll, &s->d)) return raise(L, heed_message(s->d.context));
  }
  check_status(L, &s->d, status);
  return 0;
}

static int rank(lua_State *L) {
  const dist_group *g = check_group(L, 1);
  if (g->comm.size == 0) return 0;
  lua_pushinteger(L, g->comm.rank + 1);
  return 1;
}

static int size(lua_State *L) {
  lua_pushinteger(L, check_group(L, 1)->comm.size);
  return 1;
}

/* split(group, color, key): nil for ranks whose colour is 0 */
static int split(lua_State *L) {
  dist_group *g = check_group(L, 1);
  const int color = check_int(L, 2, 0, 1 << 30), key = check_int(L, 3, 0, 1 << 30);
  dist_group *out = push_group(L);
  check_status(L, g->d, dist_split(g, color - 1, key, out));
  return out->comm.size > 0;
}

static int counted(lua_State *L) {
  const state *s = get_state(L);
  lua_createtable(L, 0, DIST_KINDS);
  for (int i = 0; i < DIST_KINDS; i++) {
    if (s->d.counts[i].calls == 0) continue;
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, (lua_Integer)s->d.counts[i].calls);
    lua_setfield(L, -2, "calls");
    lua_pushnumber(L, s->d.counts[i].waited);
    lua_setfield(L, -2, "waited");
    lua_pushinteger(L, (lua_Integer)s->d.counts[i].bytes);
    lua_setfield(L, -2, "bytes");
    lua_setfield(L, -2, dist_names[i]);
  }
  return 1;
}

/* ---- The end ---- */

/* Seconds that a rank waits for the others when it is not known whether its script has failed. */
#define GRACE 2.0

static _Noreturn void end_job(const state *s, const char *why, int code) {
  char text[1200];
  snprintf(text, sizeof text, "heed: rank %d of %d %s", s->world->comm.rank + 1, s->world->comm.size, why);
  transport_abort(text, code > 0 ? code : EXIT_FAILURE);
}

/* The script has ended without finalize, or failed. */
static void end_after(state *s, double seconds) {
  if (!s->d.open || !transport_is_here(&s->d.transport)) return;
  if (dist_end(s->world, seconds)) {
    char why[1100];
    snprintf(why, sizeof why, "ended before the others (%s)", s->d.message);
    end_job(s, why, EXIT_FAILURE);
  }
  s->d.open = false;
}

static void on_exit_without_close(void) {
  if (at_exit) end_after(at_exit, GRACE);
  at_exit = NULL;
}

/* When the Lua state closes. The command heed has noted the exit code, and the error of a failed script. */
static int state_gc(lua_State *L) {
  state *s = lua_touserdata(L, 1);
  if (!s || s != at_exit) return 0;
  if (!s->d.open || !transport_is_here(&s->d.transport)) {
    at_exit = NULL;
    return 0;
  }
  if (lua_getfield(L, LUA_REGISTRYINDEX, "heed.exit_code") != LUA_TNUMBER) {
    end_after(s, GRACE);
  } else if (lua_tointeger(L, -1) == 0) {
    end_after(s, (double)INFINITY);
  } else {
    char why[1000];
    const int code = (int)lua_tointeger(L, -1);
    lua_getfield(L, LUA_REGISTRYINDEX, "heed.exit_message");
    const char *message = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "an error";
    const int line = (int)strcspn(message, "\n"); /* a traceback follows */
    snprintf(why, sizeof why, "failed: %.*s", line < 900 ? line : 900, message);
    end_job(s, why, code);
  }
  at_exit = NULL;
  return 0;
}

/* finalize() → the description of a lost message, or nil */
static int finalize(lua_State *L) {
  state *s = get_state(L);
  dist_group *world = check_group(L, 1);
  check_status(L, &s->d, dist_end(world, s->d.timeout));
  heed_status status = heed_set_poll(s->d.context, 0, NULL, NULL);
  (void)status;
  s->world = NULL;
  at_exit = NULL;
  if (!s->d.message[0]) return 0;
  lua_pushstring(L, s->d.message);
  return 1;
}

static int abort_job(lua_State *L) {
  const state *s = get_state(L);
  const char *message = luaL_checkstring(L, 1);
  if (!s->d.open) return raise(L, message);
  end_job(s, message, EXIT_FAILURE);
}

/* ---- Collectives ---- */

static int barrier(lua_State *L) {
  dist_group *g = check_group(L, 1);
  check_status(L, g->d, dist_barrier(g));
  return 0;
}

/* all_reduce(x, op, ordered, group): always in the order of the ranks */
static int all_reduce(lua_State *L) {
  dist_group *g = check_group(L, 4);
  TRY(L, g, dist_all_reduce(g, check_tensor(L, 1), check_op(L, 2)));
  lua_settop(L, 1);
  return 1;
}

static int all_gather(lua_State *L) {
  lua_settop(L, 2);
  dist_group *g = check_group(L, 2);
  heed_tensor **out = heed_lua_push_tensor(L);
  TRY(L, g, dist_all_gather(g, check_tensor(L, 1), out));
  return 1;
}

static int reduce_scatter(lua_State *L) {
  lua_settop(L, 3);
  dist_group *g = check_group(L, 3);
  heed_tensor **out = heed_lua_push_tensor(L);
  TRY(L, g, dist_reduce_scatter(g, check_tensor(L, 1), check_op(L, 2), out));
  return 1;
}

static int broadcast(lua_State *L) {
  dist_group *g = check_group(L, 3);
  TRY(L, g, dist_broadcast(g, check_tensor(L, 1), check_int(L, 2, 1, g->comm.size) - 1));
  lua_settop(L, 1);
  return 1;
}

/* ---- Messages ---- */

enum { MOST_TAG = 32767 };

static void forget_flight(lua_State *L, const dist_request *r) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &flights_key);
  lua_pushnil(L);
  lua_rawsetp(L, -2, r);
  lua_pop(L, 1);
}

/* Ends the requests that have ended, also those that no script waits for, and leaves them to the collector.
 */
static void end_flights(lua_State *L, state *s) {
  for (dist_request *r = s->d.requests, *next; r; r = next) {
    bool done;
    next = r->next;
    const heed_status status = dist_test(r, &done); /* an error is returned again to the caller that waits */
    (void)status;
    if (done) forget_flight(L, r);
  }
}

static heed_status begin_message(lua_State *L, dist_group *g, bool sends, int peer, int tag,
                                 dist_request *r) {
  heed_tensor *x = check_tensor(L, 1);
  return sends ? dist_isend(g, x, peer, tag, r) : dist_irecv(g, x, peer, tag, r);
}

static int start(lua_State *L, bool sends) {
  lua_settop(L, 4);
  dist_group *g = check_group(L, 4);
  state *s = get_state(L);
  if (s->d.open) end_flights(L, s);
  const int peer = check_int(L, 2, 1, g->comm.size) - 1;
  const int tag = lua_isnil(L, 3) ? 0 : check_int(L, 3, 0, MOST_TAG);
  dist_request *r = lua_newuserdatauv(L, sizeof *r, 0);
  memset(r, 0, sizeof *r);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &request_key);
  lua_setmetatable(L, -2);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &flights_key);
  lua_pushvalue(L, -2);
  lua_rawsetp(L, -2, r);
  lua_pop(L, 1);
  heed_status status = begin_message(L, g, sends, peer, tag, r);
  if (status == HEED_MEMORY) {
    lua_gc(L, LUA_GCCOLLECT, 0);
    status = begin_message(L, g, sends, peer, tag, r);
  }
  if (status) {
    r->stage = DIST_DONE;
    forget_flight(L, r);
  }
  check_status(L, g->d, status);
  return 1;
}

static int isend(lua_State *L) {
  return start(L, true);
}

static int irecv(lua_State *L) {
  return start(L, false);
}

static int wait(lua_State *L) {
  dist_request *r = check_request(L, 1);
  const heed_status status = dist_await(r);
  if (r->stage == DIST_DONE) forget_flight(L, r);
  check_status(L, r->group->d, status);
  return 0;
}

static int test(lua_State *L) {
  dist_request *r = check_request(L, 1);
  bool done;
  const heed_status status = dist_test(r, &done);
  if (done) forget_flight(L, r);
  check_status(L, r->group->d, status);
  lua_pushboolean(L, done);
  return 1;
}

/* ---- Opening ---- */

static void new_metatable(lua_State *L, const void *key, const char *name) {
  lua_createtable(L, 0, 2);
  lua_pushstring(L, name);
  lua_setfield(L, -2, "__name");
  lua_pushboolean(L, false);
  lua_setfield(L, -2, "__metatable");
  lua_rawsetp(L, LUA_REGISTRYINDEX, key);
}

static void open_state(lua_State *L, heed_context *context) {
  new_metatable(L, &group_key, "heed.Group");
  new_metatable(L, &request_key, "heed.Request");
  lua_newtable(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &flights_key);
  luaopen_heed_core(L);
  lua_getfield(L, -1, "raise");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &raise_key);
  lua_pop(L, 1);
  state *s = lua_newuserdatauv(L, sizeof *s, 0);
  memset(s, 0, sizeof *s);
  s->d.context = context;
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, state_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &state_key);
}

/* The version of the heed that this state has loaded, which need not be the one whose functions this module
 * calls. */
static const char *version_of_heed(lua_State *L) {
  const char *version = NULL;
  const int top = lua_gettop(L);
  if (lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED") == LUA_TTABLE &&
      lua_getfield(L, -1, "heed") == LUA_TTABLE && lua_getfield(L, -1, "version") == LUA_TSTRING)
    version = lua_tostring(L, -1); /* stays referenced by that table */
  lua_settop(L, top);
  return version ? version : heed_version();
}

__attribute__((visibility("default"))) int luaopen_heed_mpi(lua_State *L);

int luaopen_heed_mpi(lua_State *L) {
  static const luaL_Reg functions[] = {{"init", init},
                                       {"rank", rank},
                                       {"size", size},
                                       {"finalize", finalize},
                                       {"barrier", barrier},
                                       {"all_reduce", all_reduce},
                                       {"all_gather", all_gather},
                                       {"reduce_scatter", reduce_scatter},
                                       {"broadcast", broadcast},
                                       {"isend", isend},
                                       {"irecv", irecv},
                                       {"wait", wait},
                                       {"test", test},
                                       {"split", split},
                                       {"counted", counted},
                                       {"abort", abort_job},
                                       {NULL, NULL}};
  lheed_check_lua(L, "heed_mpi");
  const char *version = version_of_heed(L);
  if (!heed_check_version(HEED_VERSION_NUMBER) || strcmp(version, HEED_VERSION) != 0)
    return luaL_error(L,
                      "heed_mpi was built for heed %s, and this is heed %s; build both of the same version",
                      HEED_VERSION, version);
  heed_context *context = heed_lua_context(L);
  if (!context) return luaL_error(L, "heed_mpi needs heed; call require \"heed\" first");
  heed_limits limits = {.size = sizeof limits};
  if (heed_get_limits(context, &limits) || limits.no_files)
    return luaL_error(L,
                      "heed_mpi: the limits of this Lua state allow no files, and no other machines either");
  if (!get_state(L)) {
    open_state(L, context);
    atexit(on_exit_without_close);
  }
  lua_createtable(L, 0, 16);
  luaL_setfuncs(L, functions, 0);
  return 1;
}
