/* What lua/heed/nn/state_dict.lua builds on: comparing parameters and values, and storing values in modules.
 */
#include <string.h>

#include "lmodule.h"

static const char *check_key(lua_State *L, int idx, const char *function) {
  if (lua_type(L, idx) != LUA_TSTRING) lheed_bad_argument(L, idx, function, "name", "a string");
  return lua_tostring(L, idx);
}

/* identity(t): its storage, and a string that is equal for tensors with the same elements in the same order
 */
static int identity(lua_State *L) {
  lua_settop(L, 1);
  const heed_tensor *t = lheed_tensor(L, 1, "module", "a parameter or buffer");
  char key[sizeof t->data + 2 * sizeof t->shape];
  size_t used = sizeof t->data, sizes = (size_t)t->ndim * sizeof *t->shape;
  memcpy(key, &t->data, used);
  memcpy(key + used, t->shape, sizes);
  memcpy(key + used + sizes, t->stride, sizes);
  lua_pushlightuserdata(L, t->storage);
  lua_pushlstring(L, key, used + 2 * sizes);
  return 2;
}

/* plain(t): a tensor on the same elements that is not marked as a parameter */
static int plain(lua_State *L) {
  lua_settop(L, 1);
  heed_tensor **box = lheed_push_tensor(L);
  LHEED_TRY(L, heed__tensor_from_view(lheed_get(L)->context, "state_dict",
                                      lheed_tensor(L, 1, "state_dict", "t"), box));
  heed_tensor_set_parameter(*box, false);
  return lheed_return(L, 1);
}

/* Whether one can be converted to the other: both are floating-point. */
static bool both_real(heed_dtype a, heed_dtype b) {
#define IS_REAL(dtype)                                                                                       \
  ((dtype) == HEED_FLOAT32 || (dtype) == HEED_BFLOAT16 || (dtype) == HEED_FLOAT16 || heed__is_blocked(dtype))
  return IS_REAL(a) && IS_REAL(b);
#undef IS_REAL
}

/* misfit(target, value, assign): why value cannot be copied into target, or with `assign` replace it; nil if
 * it can */
static int misfit(lua_State *L) {
  char have[HEED__SHAPE_TEXT], need[HEED__SHAPE_TEXT];
  lua_settop(L, 3);
  lheed_box *box = lheed_test(L, 2, &lheed_tensor_type);
  const heed_tensor *target = lheed_tensor(L, 1, "load_state_dict", "target"),
                    *value = box ? box->object : NULL;
  if (!value) {
    lua_pushfstring(L, "is %s; it must be a tensor", lheed_push_what(L, 2));
  } else if (value->ndim != target->ndim ||
             memcmp(value->shape, target->shape, (size_t)value->ndim * sizeof *value->shape) != 0) {
    lua_pushfstring(L, "is %s; it must be %s", heed__shape_text(have, value->ndim, value->shape),
                    heed__shape_text(need, target->ndim, target->shape));
  } else if (value->dtype != target->dtype && !both_real(value->dtype, target->dtype)) {
    lua_pushfstring(L, "is %s; it must be %s", heed_dtype_name(value->dtype), heed_dtype_name(target->dtype));
  } else if (!lua_toboolean(L, 3) && heed__is_blocked(target->dtype)) {
    lua_pushfstring(L, "cannot be written in the module, where it is %s; load it with {assign = true}",
                    heed_dtype_name(target->dtype));
  } else if (!lua_toboolean(L, 3) && !heed__is_placeholder(target) && heed__overlaps_itself(target)) {
    lua_pushliteral(L, "cannot be written in the module, where it is an expanded view");
  } else {
    lua_pushnil(L);
  }
  return 1;
}

/* placeholder(t): whether t is the placeholder of a parameter (heed_skip_init) */
static int placeholder(lua_State *L) {
  lua_settop(L, 1);
  lua_pushboolean(L, heed__is_placeholder(lheed_tensor(L, 1, "placeholder", "t")));
  return 1;
}

/* takes(m, name, t): whether t can become the parameter `name` of a built-in module without conversion */
static int takes(lua_State *L) {
  lua_settop(L, 3);
  const heed_module *m = lheed_check_module(L, 1, "takes");
  const char *name = check_key(L, 2, "takes");
  const heed_tensor *t = lheed_tensor(L, 3, "takes", "t");
  lua_pushboolean(L, heed__module_check_parameter(m, name, t) == HEED_OK);
  return 1;
}

/* put(m, name, t): moves t, which is released, into the parameter `name` of a built-in module. Allocates
 * nothing, so that a series of these cannot fail halfway. */
static int put_tensor(lua_State *L) {
  lua_settop(L, 3);
  heed_module *m = lheed_check_module(L, 1, "put");
  const char *name = check_key(L, 2, "put");
  if (lheed_get(L)->collecting)
    return lheed_error(L,
                       "load_state_dict: a tensor may be in use: a finalizer is running during an operation");
  lheed_tensor(L, 3, "put", "t");
  lheed_box *box = lua_touserdata(L, 3);
  heed_tensor *t = box->object;
  heed_status status = heed__module_check_parameter(m, name, t);
  if (status != HEED_OK) lheed_raise(L, status);
  heed__module_swap_parameter(m, name, &t);
  box->object = NULL;
  heed_tensor_free(t);
  return 0;
}

/* store(modules, dtype): converts the weights of a list of built-in modules to dtype, all of them or none */
static int store(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lua_settop(L, 2);
  if (!lua_istable(L, 1)) return lheed_bad_argument(L, 1, "to", "modules", "a list of built-in modules");
  const heed_dtype dtype = lheed_dtype(L, 2, "to", heed__module_dtypes());
  const lua_Unsigned count = lheed_own_list(L, 1, "to");
  heed_module **modules = lua_newuserdatauv(L, heed__array_bytes(count, sizeof *modules), 0);
  for (lua_Unsigned i = 0; i < count; i++) { /* the list keeps them alive */
    lheed_own_element(L, 1, i);
    modules[i] = lheed_check_module(L, lua_gettop(L), "to");
    lua_pop(L, 1);
  }
  LHEED_TRY(L, heed__modules_to(ctx, "to", (int64_t)count, modules, dtype));
  return lheed_return(L, 0);
}

/* dtype_of_rows(dtype, n): the dtype of weights with rows of n elements where that one is wanted; nil: none
 * fits */
static int dtype_of_rows(lua_State *L) {
  const heed_dtype wanted = lheed_dtype(L, 1, "to", heed__module_dtypes());
  const heed_dtype dtype = heed__dtype_of_rows(wanted, lheed_integer(L, 2, "to", "n"), HEED_BOOL);
  lua_pushstring(L, dtype != HEED_BOOL ? heed_dtype_name(dtype) : NULL);
  return 1;
}

/* Stores the first `count` tensors of a list (from lheed_own_list, which keeps them alive) in out. */
static void read_tensors(lua_State *L, int list, lua_Unsigned count, heed_tensor **out) {
  for (lua_Unsigned i = 0; i < count; i++) {
    lheed_own_element(L, list, i);
    out[i] = lheed_tensor(L, lua_gettop(L), "load_state_dict", "state");
    lua_pop(L, 1);
  }
}

/* copy_all(targets, values): copies each value into its target, two lists, unrecorded; once begun it is not
 * cancelled, so that the work of all copies is charged before the first one */
static int copy_all(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_status status = HEED_OK;
  lua_settop(L, 2);
  for (int i = 1; i <= 2; i++) {
    if (!lua_istable(L, i)) return lheed_bad_argument(L, i, "load_state_dict", "state", "a list of tensors");
  }
  const lua_Unsigned count = lheed_own_list(L, 1, "load_state_dict");
  lheed_own_list(L, 2, "load_state_dict");
  heed_tensor **targets = lua_newuserdatauv(L, heed__array_bytes(count, 2 * sizeof *targets) + 1, 0);
  read_tensors(L, 1, count, targets);
  read_tensors(L, 2, count, targets + count);
  LHEED_TRY(L, heed__stopped(ctx, "load_state_dict"));
  double units = 0;
  for (lua_Unsigned i = 0; i < count; i++) units += 2 * (double)targets[i]->numel + 1;
  LHEED_TRY(L, heed__charge(ctx, "load_state_dict", units));
  const bool recording = heed_set_recording(ctx, false);
  ctx->paid = ctx->pace.held = true;
  for (lua_Unsigned i = 0; i < count && status == HEED_OK; i++)
    status = heed__copy(ctx, "load_state_dict", targets[i], targets[count + i]);
  ctx->paid = ctx->pace.held = false;
  heed_set_recording(ctx, recording);
  if (status != HEED_OK) lheed_raise(L, status);
  return 0;
}

/* skip_init(f, …): f(…), where the parameters of new modules are placeholders. f cannot yield, so that this
 * mode always ends with the call. */
static int skip_init(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  const int count = lua_gettop(L);
  if (lua_type(L, 1) != LUA_TFUNCTION && !luaL_getmetafield(L, 1, "__call"))
    lheed_bad_argument(L, 1, "skip_init", "class", "a class of modules or a constructor");
  lua_settop(L, count);
  const bool before = heed_skip_init(ctx, true);
  const int status = lua_pcall(L, count - 1, LUA_MULTRET, 0);
  heed_skip_init(ctx, before);
  return status == LUA_OK ? lua_gettop(L) : lua_error(L);
}

void lheed_open_state_dict(lua_State *L) {
  static const luaL_Reg primitives[] = {
      {"identity", identity},           {"misfit", misfit}, {"placeholder", placeholder},
      {"copy_all", copy_all},           {"plain", plain},   {"put", put_tensor},
      {"skip_init", skip_init},         {"store", store},   {"takes", takes},
      {"dtype_of_rows", dtype_of_rows}, {NULL, NULL}};
  lheed_add(L, "modules", primitives);
  lheed_add_transparent(L, skip_init);
}
