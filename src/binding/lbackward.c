/* Backward passes, and the functions of a script that they call: hooks, and gradients of functions that are
 * written in Lua. These are the primitives of lua/heed/autograd. */
#include "../grad/grad.h"
#include "lheed.h"

/* Registry keys of the functions that call those of the script. */
static const char hook_key = 0, function_key = 0;

/* ---- Called from C ---- */

/* Calls the function with that key, which gets `call` as a light userdata. The error of a failure stays on
 * the stack for run_pass. */
static heed_status call_lua(const void *kept, const void *key, void *call) {
  lheed_state *S = lheed_state_of_kept(kept);
  lua_State *L = S->running;
  if (!L || !lua_checkstack(L, 8))
    return heed__fail(
        S->context, HEED_ARGUMENT,
        "backward: a hook or a function is written in Lua; only Lua can go backward through it");
  lua_rawgetp(L, LUA_REGISTRYINDEX, key);
  lua_pushlightuserdata(L, call);
  if (lua_pcall(L, 1, 0, 0) == LUA_OK) return HEED_OK;
  const char *message = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  if (strstr(message, "attempt to yield")) {
    lua_pop(L, 1);
    return heed__fail(S->context, HEED_ARGUMENT,
                      "backward: a hook or a function has yielded; in a backward pass it must return");
  }
  S->raised = true;
  return heed__fail(S->context, HEED_ARGUMENT, "backward: a function in Lua raised an error");
}

/* Pushes another tensor on the same elements; nil for NULL. */
static void push_gradient(lua_State *L, heed_context *ctx, const heed_tensor *x) {
  if (x == NULL) {
    lua_pushnil(L);
    return;
  }
  heed_tensor **box = lheed_push_tensor(L);
  LHEED_TRY(L, heed_tensor_detach(ctx, x, box));
}

typedef struct hook_call {
  const void *kept;
  const heed_tensor *gradient;
  heed_tensor **out;
} hook_call;

static int call_hook(lua_State *L) {
  const hook_call *call = lua_touserdata(L, 1);
  heed_context *ctx = lheed_get(L)->context;
  lheed_push_kept(L, call->kept);
  push_gradient(L, ctx, call->gradient);
  lua_call(L, 1, 1);
  if (lua_isnil(L, -1)) return 0;
  const heed_tensor *y = lheed_tensor(L, lua_gettop(L), "register_hook", "the result of the hook");
  LHEED_TRY(L, heed_tensor_detach(ctx, y, call->out));
  return 0;
}

static heed_status hook_in_lua(void *user, const heed_tensor *gradient, heed_tensor **out) {
  hook_call call = {user, gradient, out};
  return call_lua(user, &hook_key, &call);
}

typedef struct function_call {
  const void *kept;
  int outputs, inputs;
  const heed_tensor *const *dy;
  heed_tensor **dx;
} function_call;

/* The function gets a list of gradients, false where there is none, and gives one. */
static int call_function(lua_State *L) {
  const function_call *call = lua_touserdata(L, 1);
  heed_context *ctx = lheed_get(L)->context;
  lheed_push_kept(L, call->kept);
  lua_createtable(L, call->outputs, 0);
  for (int i = 0; i < call->outputs; i++) {
    if (call->dy[i] != NULL)
      push_gradient(L, ctx, call->dy[i]);
    else
      lua_pushboolean(L, false);
    lua_rawseti(L, -2, i + 1);
  }
  lua_call(L, 1, 1);
  const int list = lua_gettop(L);
  for (int i = 0; i < call->inputs && lua_istable(L, list); i++) {
    lua_rawgeti(L, list, i + 1);
    if (lua_toboolean(L, -1))
      LHEED_TRY(L,
                heed_tensor_detach(ctx, lheed_tensor(L, list + 1, "backward", "a gradient"), &call->dx[i]));
    lua_settop(L, list);
  }
  return 0;
}

static heed_status function_in_lua(void *user, int outputs, const heed_tensor *const *dy, int inputs,
                                   heed_tensor **dx) {
  function_call call = {user, outputs, inputs, dy, dx};
  return call_lua(user, &function_key, &call);
}

/* ---- Passes ---- */

/* Runs it where hooks and functions find their Lua state; raises what one of them has raised. */
static heed_status run_pass(lua_State *L, heed_status (*pass)(void *call), void *call) {
  lheed_state *S = lheed_get(L);
  lua_State *before = S->running;
  S->running = L;
  const heed_status status = pass(call);
  S->running = before;
  lheed_forget_dropped(L, S);
  if (status != HEED_OK && S->raised) {
    S->raised = false;
    lua_error(L);
  }
  return status;
}

typedef struct pass_call {
  heed_context *ctx;
  uint64_t after;
  int ny, nx;
  const heed_tensor **y, **dy, **x;
  heed_tensor **dx;
  heed_backward_options options;
  heed_backward_steps *steps;
} pass_call;

static heed_status pass_backward(void *call) {
  const pass_call *c = call;
  return heed_backward(c->ctx, c->ny, c->y, c->dy, &c->options);
}

static heed_status pass_grad(void *call) {
  const pass_call *c = call;
  return heed_grad(c->ctx, c->ny, c->y, c->dy, c->nx, c->x, c->dx, &c->options);
}

static heed_status pass_within(void *call) {
  const pass_call *c = call;
  return heed__backward_within(c->ctx, "checkpoint", c->after, c->ny, c->y, c->dy, c->nx,
                               (heed_tensor *const *)(void *)c->x, c->dx);
}

static int list_length(lua_State *L, int idx, const char *function, const char *name) {
  if (lua_type(L, idx) != LUA_TTABLE) return lheed_bad_argument(L, idx, function, name, "a table of tensors");
  const size_t count = lua_rawlen(L, idx);
  if (count > INT32_MAX / 8) return lheed_error(L, "%s: %s has too many elements", function, name);
  return (int)count;
}

/* Reads tensors from the list at idx, NULL for false. Allocates nothing. */
static void read_gradients(lua_State *L, int idx, int count, const char *function, const char *name,
                           const heed_tensor **out) {
  const int top = lua_gettop(L);
  for (int i = 0; i < count; i++) {
    lua_rawgeti(L, idx, i + 1);
    out[i] = lua_toboolean(L, -1) ? lheed_tensor(L, top + 1, function, name) : NULL;
    lua_settop(L, top);
  }
}

enum { PASS_Y = 1, PASS_DY, PASS_X };

/* Reads {y…}, {dy…} and, with `has_x`, {x…}; pushes the memory of the lists and empty boxes for dx. Returns
 * the index of the first box. */
static int read_pass(lua_State *L, const char *function, bool has_x, pass_call *c) {
  c->ctx = lheed_get(L)->context;
  c->options.size = sizeof c->options;
  if (lua_gettop(L) < PASS_X) lua_settop(L, PASS_X);
  c->ny = list_length(L, PASS_Y, function, "tensors");
  c->nx = has_x ? list_length(L, PASS_X, function, "inputs") : 0;
  (void)list_length(L, PASS_DY, function, "gradients");
  luaL_checkstack(L, c->nx + 8, function);
  const size_t count = (size_t)(2 * c->ny + 2 * c->nx);
  const heed_tensor **lists = lua_newuserdatauv(L, (count + 1) * sizeof *lists, 0);
  memset(lists, 0, (count + 1) * sizeof *lists);
  c->y = lists;
  c->dy = lists + c->ny;
  c->x = lists + 2 * c->ny;
  c->dx = (heed_tensor **)(void *)(lists + 2 * c->ny + c->nx);
  const int first = lua_gettop(L) + 1;
  for (int i = 0; i < c->nx; i++) lheed_push_tensor(L);
  read_gradients(L, PASS_Y, c->ny, function, "a tensor", c->y);
  for (int i = 0; i < c->ny; i++)
    if (c->y[i] == NULL) lheed_error(L, "%s: a tensor is missing", function);
  read_gradients(L, PASS_DY, c->ny, function, "a gradient", c->dy);
  if (has_x) read_gradients(L, PASS_X, c->nx, function, "an input", c->x);
  return first;
}

/* backward({y…}, {dy or false…}, retain_graph) */
static int call_backward(lua_State *L) {
  pass_call c = {0};
  const bool retain = lua_toboolean(L, 3);
  read_pass(L, "backward", false, &c);
  c.options.retain_graph = retain;
  c.options.detect_anomaly = lheed_get(L)->detects_anomaly;
  LHEED_TRY(L, run_pass(L, pass_backward, &c));
  return lheed_return(L, 0);
}

/* Ends with a list of dx, false where there is none; their boxes begin at `first`. */
static int return_gradients(lua_State *L, const pass_call *c, int first) {
  for (int i = 0; i < c->nx; i++) lheed_test(L, first + i, &lheed_tensor_type)->object = c->dx[i];
  lua_createtable(L, c->nx, 0);
  for (int i = 0; i < c->nx; i++) {
    if (c->dx[i] != NULL)
      lua_pushvalue(L, first + i);
    else
      lua_pushboolean(L, false);
    lua_rawseti(L, -2, i + 1);
  }
  return lheed_return(L, 1);
}

/* grad({y…}, {dy or false…}, {x…}, retain_graph) → {dx or false…} */
static int call_grad(lua_State *L) {
  pass_call c = {0};
  const bool retain = lua_toboolean(L, 4);
  const int first = read_pass(L, "grad", true, &c);
  c.options.retain_graph = retain;
  c.options.detect_anomaly = lheed_get(L)->detects_anomaly;
  LHEED_TRY(L, run_pass(L, pass_grad, &c));
  return return_gradients(L, &c, first);
}

/* backward_within({y…}, {dy or false…}, {leaves…}, after) → {dx or false…} */
static int backward_within(lua_State *L) {
  pass_call c = {.after = (uint64_t)lua_tonumber(L, 4)};
  const int first = read_pass(L, "checkpoint", true, &c);
  const heed_status status = run_pass(L, pass_within, &c); /* cannot be repeated */
  if (status) lheed_raise(L, status);
  return return_gradients(L, &c, first);
}

/* recorded_count() → the number of the last recorded operation, for backward_within */
static int recorded_count(lua_State *L) {
  lua_pushnumber(L, (lua_Number)lheed_get(L)->context->recorded);
  return 1;
}

/* ---- Recording functions, and hooks ---- */

/* record(name, f, {x…}, {y…}) → whether f, which call_function calls, was recorded */
static int record_function(lua_State *L) {
  pass_call c = {0};
  lua_settop(L, 4);
  if (lua_type(L, 1) != LUA_TSTRING) return lheed_bad_argument(L, 1, "record", "name", "a string");
  if (!lua_isfunction(L, 2)) return lheed_bad_argument(L, 2, "record", "f", "a function");
  heed_function function = {.size = sizeof function, .name = lua_tostring(L, 1)};
  function.backward = function_in_lua;
  function.release = lheed_drop_kept;
  c.ctx = lheed_get(L)->context;
  c.nx = list_length(L, 3, "record", "inputs");
  c.ny = list_length(L, 4, "record", "results");
  const heed_tensor **lists = lua_newuserdatauv(L, (size_t)(c.nx + c.ny + 1) * sizeof *lists, 0);
  function.user = lheed_keep(L, 2);
  read_gradients(L, 3, c.nx, function.name, "an input", lists);
  read_gradients(L, 4, c.ny, function.name, "a result", lists + c.nx);
  bool recorded = false;
  heed_tensor *const *y = (heed_tensor *const *)(void *)(lists + c.nx);
  const heed_status status = heed_record(c.ctx, &function, c.nx, lists, c.ny, y, &recorded);
  if (!recorded) {
    lheed_drop_kept(function.user);
    lheed_forget_dropped(L, lheed_get(L));
  }
  if (status) lheed_raise(L, status);
  lua_pushboolean(L, recorded);
  return lheed_return(L, 1);
}

/* add_hook(x, f) → its number */
static int add_hook(lua_State *L) {
  int64_t id = 0;
  lua_settop(L, 2);
  if (!lua_isfunction(L, 2)) return lheed_bad_argument(L, 2, "register_hook", "f", "a function");
  (void)lheed_tensor(L, 1, "register_hook", "x"); /* may raise, before anything is kept */
  void *kept = lheed_keep(L, 2);
  const heed_status status =
      heed_tensor_add_hook(lheed_tensor(L, 1, "register_hook", "x"), hook_in_lua, lheed_drop_kept, kept, &id);
  if (status) {
    lheed_drop_kept(kept);
    lheed_forget_dropped(L, lheed_get(L));
    lheed_raise(L, status);
  }
  lua_pushinteger(L, (lua_Integer)id);
  return 1;
}

/* remove_hook(x, number): does nothing the second time */
static int remove_hook(lua_State *L) {
  const lheed_box *box = lheed_test(L, 1, &lheed_tensor_type);
  lheed_state *S = lheed_running(L);
  if (!box || !box->object || !S) return 0;
  heed_tensor_remove_hook(box->object, (int64_t)lua_tonumber(L, 2));
  lheed_forget_dropped(L, S);
  return 0;
}

/* version(x) → a number that changes with each write to the elements of x in place, and what wrote last */
static int version_of(lua_State *L) {
  const heed_tensor *x = lheed_tensor(L, 1, "version", "x");
  const char *function = x->storage->written_by;
  lua_pushnumber(L, (lua_Number)x->storage->version);
  lua_pushstring(L, function != NULL ? function : "");
  return 2;
}

/* ---- Slices ---- */

static void free_backward_steps(void *object) {
  heed_backward_steps_free(object);
}

static const lheed_type backward_steps_type = {"BackwardSteps", "backward pass in slices",
                                               free_backward_steps, NULL};

/* backward_steps({y…}, {dy or false…}, retain_graph) → a pass */
static int new_backward_steps(lua_State *L) {
  pass_call c = {0};
  lua_settop(L, 3);
  const bool retain = lua_toboolean(L, 3);
  void **box = lheed_push_box(L, &backward_steps_type);
  const int at = lua_gettop(L);
  read_pass(L, "backward_steps", false, &c);
  c.options.retain_graph = retain;
  c.options.detect_anomaly = lheed_get(L)->detects_anomaly;
  heed_backward_steps *steps = NULL;
  LHEED_TRY(L, heed_backward_steps_new(c.ctx, c.ny, c.y, c.dy, &c.options, &steps));
  *box = steps;
  lua_pushvalue(L, at);
  return lheed_return(L, 1);
}

static heed_backward_steps *check_backward_steps(lua_State *L) {
  lheed_box *box = lheed_test(L, 1, &backward_steps_type);
  if (!box || !box->object)
    lheed_error(L, "backward_steps: the pass was released; begin a new one with x:backward_steps()");
  return box->object;
}

typedef struct slice_call {
  heed_backward_steps *steps;
  double seconds;
} slice_call;

static heed_status pass_slice(void *call) {
  const slice_call *c = call;
  bool done;
  return heed_backward_steps_advance(c->steps, c->seconds, &done);
}

/* backward_progress(pass) → done, total */
static int backward_progress(lua_State *L) {
  int64_t done = 0, total = 0;
  heed_backward_steps_progress(check_backward_steps(L), &done, &total);
  lua_pushinteger(L, (lua_Integer)done);
  lua_pushinteger(L, (lua_Integer)total);
  return 2;
}

/* backward_advance(pass, seconds) → done, total */
static int backward_advance(lua_State *L) {
  slice_call c = {.steps = check_backward_steps(L), .seconds = (double)lua_tonumber(L, 2)};
  const heed_status status = run_pass(L, pass_slice, &c); /* cannot be repeated */
  if (status) lheed_raise(L, status);
  lua_settop(L, 1);
  (void)lheed_return(L, 0);
  return backward_progress(L);
}

/* backward_release(pass) */
static int backward_release(lua_State *L) {
  lheed_box *box = lheed_test(L, 1, &backward_steps_type);
  if (!box || !box->object) return 0;
  if (lheed_get(L)->collecting || lheed_get(L)->context->backward != NULL)
    return lheed_error(L, "release: the pass is running");
  heed_backward_steps_free(box->object);
  box->object = NULL;
  lheed_forget_dropped(L, lheed_get(L));
  return 0;
}

static void set_caller(lua_State *L, const void *key, lua_CFunction function) {
  lheed_push_state(L);
  lua_pushcclosure(L, function, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, key);
}

void lheed_open_backward(lua_State *L) {
  static const luaL_Reg primitives[] = {{"backward", call_backward},
                                        {"grad", call_grad},
                                        {"backward_within", backward_within},
                                        {"recorded_count", recorded_count},
                                        {"record", record_function},
                                        {"add_hook", add_hook},
                                        {"remove_hook", remove_hook},
                                        {"version", version_of},
                                        {"backward_steps", new_backward_steps},
                                        {"backward_advance", backward_advance},
                                        {"backward_progress", backward_progress},
                                        {"backward_release", backward_release},
                                        {NULL, NULL}};
  lheed_new_type(L, &backward_steps_type, NULL);
  set_caller(L, &hook_key, call_hook);
  set_caller(L, &function_key, call_function);
  lheed_add(L, "modules", primitives);
}
