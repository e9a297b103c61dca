/* heed.Steps, which mha:steps returns: a forward pass in time slices. Each call of it, for example by a
 * `for`, runs one slice. */
#include <math.h>
#include <string.h>

#include "lmodule.h"

/* Registry keys. methods: by name. kept: box → {ms, generator}, with weak keys. */
static const char steps_methods_key = 0, steps_kept_key = 0;

static const char steps_function[] = "steps";

static void free_steps(void *object) {
  heed_steps_free(object);
}

const lheed_type lheed_steps_type = {"Steps", "heed.Steps", free_steps, NULL};

static heed_steps *check_steps(lua_State *L, const char *function) {
  lheed_box *box = lheed_test(L, 1, &lheed_steps_type);
  if (!box || !box->object) lheed_bad_argument(L, 1, function, "self", "a heed.Steps");
  return box->object;
}

/* Milliseconds at idx as seconds. */
static double seconds_at(lua_State *L, int idx, const char *function, double otherwise) {
  const double ms = lheed_opt_number(L, idx, function, "ms", otherwise);
  if (!(ms >= 0)) lheed_error(L, "%s: ms is %s; it must be 0 or more", function, HEED__G(ms));
  return ms / 1000;
}

/* Stores the time slice of the box on top of the stack, and keeps the value at idx alive with it. */
static void keep_with(lua_State *L, double ms, int idx) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &steps_kept_key);
  lua_pushvalue(L, -2);
  lua_createtable(L, 2, 0);
  lua_pushnumber(L, (lua_Number)ms);
  lua_rawseti(L, -2, 1);
  lua_pushvalue(L, idx);
  lua_rawseti(L, -2, 2);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

enum { STEPS_SELF = 1, STEPS_INPUT, STEPS_MS, STEPS_OPTIONS, STEPS_GENERATOR = STEPS_OPTIONS + 3 };
static const char *const steps_options[] = {"ms", LHEED_FORWARD_NAMES, NULL};

/* Whether the pass of a module calls Lua or a hook, which heed_steps does not. */
static bool stops(const heed_module *m) {
  return m && m->class->staged && (heed__holds_watched(m) || heed__holds_own(m) || heed__stops(m));
}

/* read_steps(m, x, ms, options…) → seconds, and the options of the forward by position */
static int read_steps(lua_State *L) {
  lheed_begin(L);
  lheed_forward_arguments(L, STEPS_MS, steps_function, steps_options);
  lua_settop(L, STEPS_OPTIONS + LHEED_FORWARD_OPTIONS - 1);
  lua_pushnumber(L, (lua_Number)seconds_at(L, STEPS_MS, steps_function, 2));
  lua_replace(L, STEPS_MS);
  lheed_tensor(L, STEPS_INPUT, steps_function, "x");
  return STEPS_OPTIONS + LHEED_FORWARD_OPTIONS - STEPS_MS;
}

/* mha:steps(x, {ms = 2, …}); the other options are those of a forward. Where parts or hooks in Lua are
 * called, the result is one of lua/heed/nn/steps.lua. */
static int new_steps(lua_State *L) {
  if (lheed_redirect(L, steps_function)) return lheed_call_all(L);
  if (stops(lheed_test_module(L, STEPS_SELF))) {
    lheed_require(L, "heed.nn.steps");
    lua_insert(L, 1);
    return lheed_call_all(L);
  }
  lheed_begin(L);
  lheed_forward_arguments(L, STEPS_MS, steps_function, steps_options);
  const double seconds = seconds_at(L, STEPS_MS, steps_function, 2);
  heed_taps_wanted choice;
  const heed_taps_wanted *chosen;
  const bool wanted = lheed_read_wanted(L, STEPS_OPTIONS + LHEED_NEED_WEIGHTS, STEPS_OPTIONS + LHEED_NEED_LSE,
                                        steps_function, lheed_module_taps, &choice, &chosen);
  void **out = lheed_push_box(L, &lheed_steps_type);
  keep_with(L, seconds * 1000, STEPS_GENERATOR);
  heed_module *self = lheed_test_module(L, STEPS_SELF);
  if (!self) lheed_bad_argument(L, STEPS_SELF, steps_function, "self", "a built-in module");
  const heed_tensor *x = lheed_tensor(L, STEPS_INPUT, steps_function, "x");
  heed_forward_options options = lheed_forward_options(L, STEPS_OPTIONS, steps_function);
  options.wanted = chosen;
  heed_steps *steps = NULL;
  LHEED_TRY(L, heed_steps_new(self, x, &options, wanted, &steps));
  *out = steps;
  return lheed_return(L, 1);
}

/* ---- Running slices ---- */

static int push_progress(lua_State *L, heed_steps *steps) {
  int64_t done = 0, total = 0;
  heed_steps_progress(steps, &done, &total);
  lua_pushinteger(L, (lua_Integer)done);
  lua_pushinteger(L, (lua_Integer)total);
  return 2;
}

static bool is_finished(heed_steps *steps) {
  int64_t done = 0, total = 0;
  heed_steps_progress(steps, &done, &total);
  return done == total;
}

static int run_steps(lua_State *L, heed_steps *steps, double seconds) {
  bool done;
  LHEED_TRY(L, heed_steps_advance(steps, seconds, &done));
  return push_progress(L, steps);
}

static double budget_of(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &steps_kept_key);
  lua_pushvalue(L, 1);
  lua_rawget(L, -2);
  lua_rawgeti(L, -1, 1);
  const double ms = (double)lua_tonumber(L, -1);
  lua_pop(L, 3);
  return ms;
}

/* steps() → done, total after one more slice; nil after the last one, so that a `for` ends */
static int call_steps(lua_State *L) {
  lheed_begin(L);
  heed_steps *steps = check_steps(L, steps_function);
  if (is_finished(steps)) {
    lua_pushnil(L);
    return 1;
  }
  return run_steps(L, steps, budget_of(L) / 1000);
}

/* steps:advance(ms) → done, total */
static int advance_steps(lua_State *L) {
  lheed_begin(L);
  lheed_arguments(L, "advance", 2);
  heed_steps *steps = check_steps(L, "advance");
  return run_steps(L, steps, seconds_at(L, 2, "advance", budget_of(L)));
}

/* Frees the memory at once; does nothing the second time. `local s <close>` calls it, too. */
static int release_steps(lua_State *L) {
  lheed_box *box = lheed_test(L, 1, &lheed_steps_type);
  if (!box) return lheed_bad_argument(L, 1, "release", "self", "a heed.Steps");
  if (lheed_get(L)->collecting)
    return lheed_error(L, "release: the steps may be in use: a finalizer is running during an operation");
  heed_steps_free(box->object);
  box->object = NULL;
  return 0;
}

/* ---- Fields ---- */

static int push_steps_result(lua_State *L) {
  heed_tensor **out = lheed_push_tensor(L);
  heed_steps *steps = check_steps(L, "result");
  LHEED_TRY(L, heed_steps_result(steps, out, NULL));
  return 1;
}

/* Pushes the table of taps, the second result of a forward. */
static int push_steps_taps(lua_State *L) {
  heed_tensor **out = lheed_push_tensor(L);
  lheed_tap_boxes boxes;
  lheed_push_tap_boxes(L, &boxes);
  heed_steps *steps = check_steps(L, "info");
  heed_attention_taps taps = {.size = sizeof taps};
  LHEED_TRY(L, heed_steps_result(steps, out, &taps));
  lheed_push_taps(L, &boxes, &taps);
  return 1;
}

static int steps_index(lua_State *L) {
  lheed_begin(L);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &steps_methods_key);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, -2) != LUA_TNIL) return 1;
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
  heed_steps *steps = check_steps(L, *name ? name : "index");
  if (strcmp(name, "result") == 0) return is_finished(steps) ? push_steps_result(L) : 0;
  if (strcmp(name, "info") == 0) return is_finished(steps) ? push_steps_taps(L) : 0;
  if (strcmp(name, "done") == 0 || strcmp(name, "total") == 0) {
    push_progress(L, steps);
    if (name[0] == 'd') lua_pop(L, 1);
    return 1;
  }
  return lheed_error(L,
                     "heed.Steps have no field %s; they have result, info, done, total, advance and release",
                     lheed_push_key(L, 2));
}

static int steps_newindex(lua_State *L) {
  check_steps(L, "index");
  return lheed_error(L, "heed.Steps have no field that can be set, such as %s", lheed_push_key(L, 2));
}

static int steps_tostring(lua_State *L) {
  lheed_box *box = lheed_test(L, 1, &lheed_steps_type);
  if (!box) return lheed_bad_argument(L, 1, "tostring", "self", "heed.Steps");
  if (!box->object) {
    lua_pushliteral(L, "heed.Steps(released)");
    return 1;
  }
  int64_t done = 0, total = 0;
  heed_steps_progress(box->object, &done, &total);
  lua_pushfstring(L, "heed.Steps(done=%I, total=%I)", (LUAI_UACINT)done, (LUAI_UACINT)total);
  return 1;
}

static const luaL_Reg steps_methods[] = {
    {"advance", advance_steps}, {"release", release_steps}, {NULL, NULL}};

void lheed_open_steps(lua_State *L) {
  static const luaL_Reg metamethods[] = {{"__index", steps_index},       {"__newindex", steps_newindex},
                                         {"__tostring", steps_tostring}, {"__call", call_steps},
                                         {"__close", release_steps},     {NULL, NULL}};
  static const luaL_Reg module_methods[] = {{"steps", new_steps}, {NULL, NULL}};
  static const luaL_Reg primitives[] = {{"read_steps", read_steps}, {NULL, NULL}};
  lheed_new_type(L, &lheed_steps_type, metamethods);
  lheed_add_module_methods(L, module_methods);
  lheed_add(L, "modules", primitives);
  lheed_add_transparent(L, new_steps);
  lua_createtable(L, 0, 2);
  lheed_setfuncs(L, steps_methods);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &steps_methods_key);
  lheed_new_weak(L, "k");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &steps_kept_key);
}
