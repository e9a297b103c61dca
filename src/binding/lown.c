/* Modules written in Lua as parts of built-in attention modules (W_query, out_proj, dropout, …), and forward
 * passes that call them. A module in C holds such a part as a module of heed_own_module_new. */
#include "lmodule.h"

#include <string.h>

/* Registry key of a table: pointer of that module → the module in Lua, with weak values. The table that is
 * attached to the box of a module has by name what it must keep alive: modules in Lua, and boxes of parts
 * that may hold such modules. */
static const char values_key = 0, call_key = 0;

/* ---- Values ---- */

bool lheed_push_own(lua_State *L, const heed_module *part) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &values_key);
  const bool found = lua_rawgetp(L, -1, part) != LUA_TNIL;
  lua_remove(L, -2);
  if (!found) lua_pop(L, 1);
  return found;
}

bool lheed_is_own(lua_State *L, const heed_module *part) {
  const void *user = heed__own_user(part);
  return user && user == lheed_find(L);
}

/* Pushes what the box at an index keeps alive, and the name, which has a value there: setting another one
 * allocates nothing. */
static void push_anchors(lua_State *L, int box, const char *name) {
  luaL_checkstack(L, 8, "modules");
  lheed_push_attached(L, box, true);
  lua_pushstring(L, name);
  lua_pushvalue(L, -1);
  if (lua_rawget(L, -3) == LUA_TNIL) {
    lua_pushvalue(L, -2);
    lua_pushboolean(L, false);
    lua_rawset(L, -5);
  }
  lua_pop(L, 1);
}

void lheed_anchor(lua_State *L, int box, const char *name, int value) {
  push_anchors(L, box, name);
  lua_pushvalue(L, value);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void lheed_set_part(lua_State *L, int box, const char *name, heed_module *part, int value) {
  push_anchors(L, box, name);
  LHEED_TRY(L, heed_module_set_module(lheed_test_module(L, box), name, part));
  lua_pushvalue(L, value);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/* ---- Called from C: a head of a wrapper ---- */

typedef struct own_call {
  const heed_module *m;
  const heed_tensor *x;
  heed_tensor **out;
} own_call;

/* Runs in a protected call, with an own_call as light userdata. */
static int call_value(lua_State *L) {
  const own_call *call = lua_touserdata(L, 1);
  const char *class = heed_module_class(call->m);
  heed_context *ctx = lheed_get(L)->context;
  if (!lheed_push_own(L, call->m)) return lheed_error(L, "%s: the module no longer exists", class);
  heed_tensor **box = lheed_push_tensor(L);
  LHEED_TRY(L, heed__tensor_from_view(ctx, class, call->x, box));
  lua_call(L, 1, 1);
  const heed_tensor *y = lheed_tensor(L, lua_gettop(L), class, "the result");
  LHEED_TRY(L, heed__tensor_from_view(ctx, class, y, call->out));
  return 0;
}

/* The error of a failure stays on the stack for lheed_call_forward. */
static heed_status forward_in_lua(void *user, heed_module *m, const heed_tensor *x, heed_tensor **out) {
  lheed_state *S = user;
  lua_State *L = S->running;
  own_call call = {m, x, out};
  if (!L || !lua_checkstack(L, 4))
    return heed__fail(heed_module_context(m), HEED_ARGUMENT,
                      "%s: the module is written in Lua; only Lua can call it", heed_module_class(m));
  lua_rawgetp(L, LUA_REGISTRYINDEX, &call_key);
  lua_pushlightuserdata(L, &call);
  if (lua_pcall(L, 1, 0, 0) == LUA_OK) return HEED_OK;
  S->raised = true;
  return heed__fail(heed_module_context(m), HEED_ARGUMENT, "%s: forward raised an error",
                    heed_module_class(m));
}

void lheed_call_forward(lua_State *L, heed_module *m, const heed_tensor *x,
                        const heed_forward_options *options, heed_tensor **out, heed_attention_taps *taps) {
  lheed_state *S = lheed_running(L);
  lua_State *before = S ? S->running : NULL;
  if (S) S->running = L;
  const heed_status status = heed_module_forward(m, x, options, out, taps);
  if (S) S->running = before;
  if (status != HEED_OK && S && S->raised) {
    S->raised = false;
    lua_error(L);
  }
  LHEED_TRY(L, status);
}

/* ---- Called from Lua: a pass that stops at each of these parts (lua/heed/nn/own.lua) ---- */

static void free_pass(void *object) {
  heed__own_pass_free(object);
}

static const lheed_type pass_type = {"Pass", "forward pass", free_pass, NULL};

static lheed_box *check_pass(lua_State *L) {
  lheed_box *box = lheed_test(L, 1, &pass_type);
  if (!box || !box->object) lheed_bad_argument(L, 1, "forward", "pass", "a forward pass that is not done");
  return box;
}

/* The bits of the points with the names in the space-separated string at idx. */
static unsigned point_bits(lua_State *L, int idx) {
  static const struct {
    const char *name;
    unsigned point;
  } points[] = {{"q", HEED_POINT_Q},
                {"k", HEED_POINT_K},
                {"v", HEED_POINT_V},
                {"rot_q", HEED_POINT_ROT_Q},
                {"rot_k", HEED_POINT_ROT_K},
                {"attn_scores", HEED_POINT_ATTN_SCORES},
                {"pattern", HEED_POINT_PATTERN},
                {"z", HEED_POINT_Z},
                {"result", HEED_POINT_RESULT}};
  const char *names = lua_type(L, idx) == LUA_TSTRING ? lua_tostring(L, idx) : "";
  unsigned bits = 0;
  for (size_t length; *names; names += length + (names[length] == ' ')) {
    length = strcspn(names, " ");
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
      if (strlen(points[i].name) == length && strncmp(points[i].name, names, length) == 0)
        bits |= points[i].point;
  }
  return bits;
}

/* A pass cannot continue after it has run out of memory, as with LHEED_TRY. So garbage is collected before,
 * if the limit is near. */
static void make_room(lua_State *L, const heed__own_pass *pass) {
  heed_context *ctx = lheed_get(L)->context;
  const double limit = (double)ctx->limits.memory;
  if (limit > 0 && (double)heed_memory_in_use(ctx) + heed__own_pass_memory(pass) > limit) lheed_collect(L);
}

/* own_pass(read, edited, m, x, options…) → the pass, whether it computes taps, the number of past tokens;
 * nil, if the pass has no reason to stop and read is nil. read, edited: names of points, separated by spaces.
 */
static int new_pass(lua_State *L) {
  enum { SELF = 1, INPUT, OPTIONS, GENERATOR_SLOT = OPTIONS + 3 };
  static const char *const names[] = {LHEED_FORWARD_NAMES, NULL};
  if (lua_gettop(L) < 3) lua_settop(L, 3);
  const heed__listened points = {point_bits(L, 1), point_bits(L, 2)};
  const bool always = !lua_isnil(L, 1);
  lua_remove(L, 1);
  lua_remove(L, 1);
  lheed_begin(L);
  if (!lheed_self(L, "forward")->class->staged) {
    if (!always) return 0;
    lheed_bad_argument(L, SELF, "forward", "self", "an attention module");
  }
  if (!always && !heed__stops(lheed_self(L, "forward"))) return 0;
  const char *class = heed_module_class(lheed_self(L, "forward"));
  lheed_forward_arguments(L, OPTIONS, class, names);
  heed_taps_wanted choice;
  const heed_taps_wanted *chosen;
  const bool wanted = lheed_read_wanted(L, OPTIONS + LHEED_NEED_WEIGHTS, OPTIONS + LHEED_NEED_LSE, class,
                                        lheed_module_taps, &choice, &chosen);
  void **box = lheed_push_box(L, &pass_type);
  lheed_anchor(L, lua_gettop(L), "generator", GENERATOR_SLOT);
  heed_module *m = lheed_self(L, "forward");
  const heed_tensor *x = lheed_tensor(L, INPUT, class, "x");
  heed_forward_options given = lheed_forward_options(L, OPTIONS, class), own;
  given.wanted = chosen;
  const heed_forward_options *options = &given;
  heed__own_pass *pass = NULL;
  LHEED_TRY(L, heed__module_read_options(m, &options, &own, wanted));
  LHEED_TRY(L, heed__own_pass_new(m, x, options, wanted, &points, &pass));
  *box = pass;
  make_room(L, pass);
  lua_pushboolean(L, wanted);
  lua_pushinteger(L, (lua_Integer)heed__own_pass_past(pass));
  return lheed_return(L, 3);
}

/* own_next(pass, result for the stop where it waits; nil: a point's tensor is unchanged, seconds of a slice)
 * → a part and its input, or the name of a point and its tensor; false when the slice is over; nothing when
 * all is done */
static int next_part(lua_State *L) {
  lheed_begin(L);
  const bool sliced = lua_type(L, 3) == LUA_TNUMBER;
  const double seconds = (double)lua_tonumber(L, 3);
  lua_settop(L, 2);
  heed__own_pass *pass = check_pass(L)->object;
  const heed_tensor *y = NULL;
  heed__own_stop stop;
  char result[128];
  const char *class = heed__own_pass_names(pass, result, sizeof result);
  if (!lua_isnil(L, 2) || heed__own_pass_waits_for_part(pass)) y = lheed_tensor(L, 2, class, result);
  LHEED_TRY(L, heed__own_pass_put(pass, y));
  if (!sliced || !lua_isnil(L, 2)) make_room(L, pass);
  const heed_status status =
      sliced ? heed__own_pass_slice(pass, seconds, &stop) : heed__own_pass_run(pass, &stop);
  if (status != HEED_OK) lheed_raise(L, status);
  if (stop.paused) lua_pushboolean(L, false);
  if (!stop.name) return stop.paused;
  if (stop.part)
    lheed_push_part(L, stop.part); /* the pass keeps it alive */
  else
    lua_pushstring(L, stop.name);
  heed_tensor **box = lheed_push_tensor(L);
  LHEED_TRY(L, heed__tensor_from_view(lheed_get(L)->context, "forward", stop.x, box));
  return lheed_return(L, 2);
}

/* own_result(pass) → y, and with need_weights the table of taps */
static int pass_result(lua_State *L) {
  lheed_begin(L);
  lua_settop(L, 2);
  const bool wanted = lua_toboolean(L, 2);
  heed_tensor **out = lheed_push_tensor(L);
  lheed_tap_boxes boxes;
  if (wanted) lheed_push_tap_boxes(L, &boxes);
  lheed_box *box = check_pass(L);
  heed_attention_taps taps = {.size = sizeof taps};
  LHEED_TRY(L, heed__own_pass_result(box->object, out, wanted ? &taps : NULL));
  heed__own_pass_free(box->object);
  box->object = NULL;
  if (!wanted) return lheed_return(L, 1);
  lua_pushvalue(L, 3);
  lheed_push_taps(L, &boxes, &taps);
  return lheed_return(L, 2);
}

/* own_progress(pass) → multiply-adds done, and in all; 0, 0 when all is done */
static int pass_progress(lua_State *L) {
  double done, total;
  heed__own_pass_progress(check_pass(L)->object, &done, &total);
  lua_pushnumber(L, (lua_Number)done);
  lua_pushnumber(L, (lua_Number)total);
  return 2;
}

/* own_undo(pass): ends a pass that has failed */
static int undo_pass(lua_State *L) {
  lheed_box *box = lheed_test(L, 1, &pass_type);
  if (!box || !box->object) return 0;
  heed__own_pass_undo(box->object);
  heed__own_pass_free(box->object);
  box->object = NULL;
  return 0;
}

/* ---- Assigning ---- */

static const char *check_own_string(lua_State *L, int idx, const char *function, const char *name) {
  if (lua_type(L, idx) != LUA_TSTRING) lheed_bad_argument(L, idx, function, name, "a string");
  return lua_tostring(L, idx);
}

/* set_own(m, name, value, class name of the value): the module `value`, written in Lua, becomes a part of m
 */
static int set_own(lua_State *L) {
  lheed_begin(L);
  lua_settop(L, 4);
  lheed_state *S = lheed_get(L);
  lheed_self(L, "set_own");
  heed_module **box = lheed_push_module(L); /* frees the new module if something below raises */
  const heed_own_config config = {.size = sizeof config,
                                  .name = check_own_string(L, 4, "set_own", "class"),
                                  .user = S,
                                  .forward = forward_in_lua};
  const char *name = check_own_string(L, 2, "set_own", "name");
  LHEED_TRY(L, heed_own_module_new(S->context, &config, box));
  lua_rawgetp(L, LUA_REGISTRYINDEX, &values_key);
  lua_pushvalue(L, 3);
  lua_rawsetp(L, -2, *box);
  lheed_set_part(L, 1, name, *box, 3);
  return 0;
}

/* set_part(m, name, part): the same for a built-in module that may hold modules in Lua */
static int set_holder(lua_State *L) {
  lheed_begin(L);
  lua_settop(L, 3);
  lheed_self(L, "set_part");
  lheed_set_part(L, 1, check_own_string(L, 2, "set_part", "name"), lheed_check_module(L, 3, "set_part"), 3);
  return 0;
}

/* holds_own(m): whether a built-in module holds modules of other classes, perhaps written in Lua */
static int holds_own(lua_State *L) {
  lua_pushboolean(L, heed__holds_own(lheed_self(L, "holds_own")));
  return 1;
}

void lheed_open_own(lua_State *L) {
  static const luaL_Reg primitives[] = {
      {"own_pass", new_pass},   {"own_next", next_part},         {"own_result", pass_result},
      {"own_undo", undo_pass},  {"own_progress", pass_progress}, {"set_own", set_own},
      {"set_part", set_holder}, {"holds_own", holds_own},        {NULL, NULL}};
  lheed_new_type(L, &pass_type, NULL);
  lheed_new_weak(L, "v");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &values_key);
  lheed_push_state(L);
  lua_pushcclosure(L, call_value, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &call_key);
  lheed_add(L, "modules", primitives);
}
