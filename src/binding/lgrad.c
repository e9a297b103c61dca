/* Gradients: recording, backward passes, and what tensors know of them. What is written in Lua on top of
 * these is in lua/heed/autograd. */
#include "../core/core.h"
#include "lheed.h"

/* ---- Recording ---- */

/* set_grad_enabled(mode) -> what it was */
static int set_grad_enabled(lua_State *L) {
  lheed_arguments(L, "set_grad_enabled", 1);
  if (!lua_isboolean(L, 1)) return lheed_bad_argument(L, 1, "set_grad_enabled", "mode", "a boolean");
  lua_pushboolean(L, heed_set_recording(lheed_get(L)->context, lua_toboolean(L, 1)));
  return 1;
}

static int is_grad_enabled(lua_State *L) {
  lua_pushboolean(L, heed_is_recording(lheed_get(L)->context));
  return 1;
}

/* unrecorded(f, …): f(…) while nothing is recorded. f cannot yield, so that this always ends with the call. */
static int unrecorded(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  const int count = lua_gettop(L);
  if (lua_type(L, 1) != LUA_TFUNCTION) return lheed_bad_argument(L, 1, "unrecorded", "f", "a function");
  const bool before = heed_set_recording(ctx, false);
  const int status = lua_pcall(L, count - 1, LUA_MULTRET, 0);
  heed_set_recording(ctx, before);
  return status == LUA_OK ? lua_gettop(L) : lua_error(L);
}

/* ---- Tensors ---- */

/* requires_grad_(x, requires_grad = true) */
static int requires_grad_(lua_State *L) {
  static const char *const names[] = {"requires_grad", NULL};
  lheed_options(L, "requires_grad_", 2, names);
  const bool on = lheed_opt_boolean(L, 2, "requires_grad_", "requires_grad", true);
  LHEED_TRY(L, heed_tensor_require_grad(lheed_tensor(L, 1, "requires_grad_", "x"), on));
  lua_settop(L, 1);
  return 1;
}

static int detach(lua_State *L) {
  lheed_arguments(L, "detach", 1);
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed_tensor_detach(lheed_get(L)->context, lheed_tensor(L, 1, "detach", "x"), out));
  return lheed_return(L, 1);
}

static int retain_grad(lua_State *L) {
  lheed_arguments(L, "retain_grad", 1);
  LHEED_TRY(L, heed_tensor_retain_grad(lheed_tensor(L, 1, "retain_grad", "x")));
  return 0;
}

/* backward(y, gradient, {retain_graph =}) */
static int backward(lua_State *L) {
  static const char *const names[] = {"gradient", "retain_graph", NULL};
  lheed_options(L, "backward", 2, names);
  heed_backward_options options = {.size = sizeof options};
  options.retain_graph = lheed_opt_boolean(L, 3, "backward", "retain_graph", false);
  const heed_tensor *dy = lua_isnil(L, 2) ? NULL : lheed_tensor(L, 2, "backward", "gradient");
  const heed_tensor *y = lheed_tensor(L, 1, "backward", "x");
  LHEED_TRY(L, heed_backward(lheed_get(L)->context, 1, &y, &dy, &options));
  return lheed_return(L, 0);
}

void lheed_push_grad(lua_State *L) {
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "grad", "x"), *grad = heed_tensor_grad(x);
  if (grad == NULL) {
    lua_pushnil(L);
    return;
  }
  LHEED_TRY(L, heed_tensor_alias(x->storage->context, grad, out));
}

void lheed_set_grad(lua_State *L) {
  const heed_tensor *grad = lua_isnil(L, 3) ? NULL : lheed_tensor(L, 3, "grad", "the value");
  LHEED_TRY(L, heed_tensor_set_grad(lheed_tensor(L, 1, "grad", "x"), grad));
}

void lheed_open_grad(lua_State *L) {
  static const luaL_Reg library[] = {
      {"set_grad_enabled", set_grad_enabled}, {"is_grad_enabled", is_grad_enabled}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"requires_grad_", requires_grad_},
                                     {"detach", detach},
                                     {"retain_grad", retain_grad},
                                     {"backward", backward},
                                     {NULL, NULL}};
  static const luaL_Reg primitives[] = {{"unrecorded", unrecorded}, {NULL, NULL}};
  lheed_add(L, NULL, library);
  lheed_add(L, "modules", primitives);
  lheed_add_transparent(L, unrecorded);
  lheed_add_methods(L, methods, false);
}
