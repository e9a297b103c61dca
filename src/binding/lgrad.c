/* Gradients: recording, and what tensors know of gradients. Backward passes are in lbackward.c, what is
 * written in Lua on top of both in lua/heed/autograd. */
#include <string.h>

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

/* What a call of with_modes changes, and restores at its end. */
typedef struct modes {
  bool recording, anomaly;
} modes;

static modes set_modes(lua_State *L, modes to) {
  lheed_state *S = lheed_get(L);
  const modes before = {heed_set_recording(S->context, to.recording), S->detects_anomaly};
  S->detects_anomaly = to.anomaly;
  return before;
}

/* The modes at idx, two booleans; nil leaves one as it is. */
static modes read_modes(lua_State *L, int idx) {
  const lheed_state *S = lheed_get(L);
  return (modes){lua_isnil(L, idx) ? heed_is_recording(S->context) : lua_toboolean(L, idx),
                 lua_isnil(L, idx + 1) ? S->detects_anomaly : lua_toboolean(L, idx + 1)};
}

/* modes(recording, anomaly) → what they were */
static int change_modes(lua_State *L) {
  lua_settop(L, 2);
  const modes before = set_modes(L, read_modes(L, 1));
  lua_pushboolean(L, before.recording);
  lua_pushboolean(L, before.anomaly);
  return 2;
}

/* Registry key of the metatable of what restores the modes. */
static const char restorer_key = 0;

static int restore_modes(lua_State *L) {
  const modes *before = lua_touserdata(L, 1);
  if (before && lua_rawlen(L, 1) == sizeof *before) set_modes(L, *before);
  return 0;
}

/* Calls the function at idx with what is above it, and restores the modes. Where Lua closes variables, an
 * error keeps its traceback. The function cannot yield. */
static int call_with_modes(lua_State *L, int idx, modes during) {
  const int count = lua_gettop(L) - idx;
  modes *before = lua_newuserdatauv(L, sizeof *before, 0);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &restorer_key);
  lua_setmetatable(L, -2);
  lua_insert(L, 1);
  *before = set_modes(L, during);
  if (LHEED_CLOSES) {
    lua_toclose(L, 1);
    lua_call(L, count, LUA_MULTRET);
    return lua_gettop(L) - idx;
  }
  const int status = lua_pcall(L, count, LUA_MULTRET, 0);
  set_modes(L, *before);
  return status == LUA_OK ? lua_gettop(L) - idx : lua_error(L);
}

/* with_modes(recording, anomaly, f, …): f(…) with these modes */
static int with_modes(lua_State *L) {
  if (lua_gettop(L) < 3) lua_settop(L, 3);
  if (lua_type(L, 3) != LUA_TFUNCTION) return lheed_bad_argument(L, 3, "with_modes", "f", "a function");
  return call_with_modes(L, 3, read_modes(L, 1));
}

/* unrecorded(f, …): f(…) while nothing is recorded */
static int unrecorded(lua_State *L) {
  if (lua_type(L, 1) != LUA_TFUNCTION) return lheed_bad_argument(L, 1, "unrecorded", "f", "a function");
  return call_with_modes(L, 1, (modes){false, lheed_get(L)->detects_anomaly});
}

/* ---- Names ---- */

/* What PyTorch computes by one operation, and heed by several. */
static const char *const composed[] = {
    "AddmmBackward0",
    "AddmvBackward0",
    "BaddbmmBackward0",
    "BinaryCrossEntropyBackward0",
    "BinaryCrossEntropyWithLogitsBackward0",
    "BlockDiagBackward0",
    "BmmBackward0",
    "ConstantPadNdBackward0",
    "CopySlices",
    "DiagEmbedBackward0",
    "DiagonalBackward0_copy",
    "EluBackward0",
    "EluBackward1",
    "GluBackward0",
    "HuberLossBackward0",
    "LeakyReluBackward0",
    "LeakyReluBackward1",
    "LinalgCrossBackward0",
    "LogSigmoidBackward0",
    "LogsumexpBackward0",
    "MedianBackward0",
    "MedianBackward1",
    "MseLossBackward0",
    "NativeBatchNormBackward0",
    "NllLoss2DBackward0",
    "NllLossBackward0",
    "ReflectionPad1DBackward0",
    "ReflectionPad2DBackward0",
    "ReflectionPad3DBackward0",
    "RepeatBackward0",
    "ReplicationPad1DBackward0",
    "ReplicationPad2DBackward0",
    "ReplicationPad3DBackward0",
    "RollBackward0",
    "SmoothL1LossBackward0",
    "SoftplusBackward0",
    "SqueezeBackward4",
    "TraceBackward0",
    "UnbindBackward0",
    "ViewBackward0",
};

void lheed_set_name(heed_tensor *y, const char *name) {
  if (y != NULL && y->node != NULL) y->node->name = name;
}

static heed_tensor *tensor_at(lua_State *L, int idx) {
  const lheed_box *box = lheed_test(L, idx, &lheed_tensor_type);
  return box ? box->object : NULL;
}

/* noted(name, x, y, …) → y, …: y, or each tensor of the list y, prints as computed by that operation of the
 * list above; unless x, its input, was computed by the same node: then nothing was recorded. */
static int note_names(lua_State *L) {
  if (lua_type(L, 1) != LUA_TSTRING) return lheed_bad_argument(L, 1, "noted", "name", "a string");
  if (lua_gettop(L) < 3) lua_settop(L, 3);
  const char *wanted = lua_tostring(L, 1), *name = NULL;
  const heed_tensor *x = tensor_at(L, 2);
  heed_tensor *y = tensor_at(L, 3);
  const bool is_list = y == NULL && lua_type(L, 3) == LUA_TTABLE;
  if ((is_list || (y != NULL && y->node != NULL)) && heed_is_recording(lheed_get(L)->context)) {
    for (size_t i = 0; i < sizeof composed / sizeof *composed && name == NULL; i++)
      if (strcmp(composed[i], wanted) == 0) name = composed[i];
    if (name == NULL)
      return lheed_error(L, "noted: name is '%s'; it must be one of the list in lgrad.c", wanted);
  }
  if (name != NULL && is_list) {
    const lua_Integer count = (lua_Integer)lua_rawlen(L, 3);
    for (lua_Integer i = 1; i <= count; i++) {
      lua_rawgeti(L, 3, i);
      lheed_set_name(tensor_at(L, -1), name);
      lua_pop(L, 1);
    }
  } else if (name != NULL && (x == NULL || x == y || x->node != y->node)) {
    lheed_set_name(y, name);
  }
  return lua_gettop(L) - 2;
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

/* detach_(x): x itself wants no gradient any more */
static int detach_(lua_State *L) {
  lheed_arguments(L, "detach_", 1);
  heed_tensor *x = lheed_tensor(L, 1, "detach_", "x");
  heed__set_node(x, NULL, 0);
  LHEED_TRY(L, heed_tensor_require_grad(x, false));
  x->detached = true;
  lheed_forget_dropped(L, lheed_get(L));
  return 1;
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

void lheed_set_requires_grad(lua_State *L) {
  const bool on = lheed_opt_boolean(L, 3, "requires_grad", "the value", false);
  LHEED_TRY(L, heed_tensor_require_grad(lheed_tensor(L, 1, "requires_grad", "x"), on));
}

bool lheed_opt_leaf(lua_State *L, int idx, const char *function, heed_dtype dtype) {
  const bool leaf = lheed_opt_boolean(L, idx, function, "requires_grad", false);
  if (leaf && dtype != HEED_FLOAT32)
    lheed_error(L, "%s: requires_grad is true and dtype is %s; only float32 tensors have gradients", function,
                heed_dtype_name(dtype));
  return leaf;
}

int lheed_return_leaf(lua_State *L, bool leaf) {
  if (leaf)
    LHEED_TRY(L, heed_tensor_require_grad(lheed_tensor(L, lua_gettop(L), "requires_grad", "x"), true));
  return lheed_return(L, 1);
}

void lheed_open_grad(lua_State *L) {
  static const luaL_Reg library[] = {
      {"set_grad_enabled", set_grad_enabled}, {"is_grad_enabled", is_grad_enabled}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"requires_grad_", requires_grad_},
                                     {"detach", detach},
                                     {"detach_", detach_},
                                     {"retain_grad", retain_grad},
                                     {NULL, NULL}};
  static const luaL_Reg primitives[] = {{"unrecorded", unrecorded},
                                        {"with_modes", with_modes},
                                        {"modes", change_modes},
                                        {"noted", note_names},
                                        {NULL, NULL}};
  lua_createtable(L, 0, 1);
  lheed_push_state(L);
  lua_pushcclosure(L, restore_modes, 1);
  lua_setfield(L, -2, "__close");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &restorer_key);
  lheed_add(L, NULL, library);
  lheed_add(L, "modules", primitives);
  lheed_add_transparent(L, unrecorded);
  lheed_add_transparent(L, with_modes);
  lheed_add_methods(L, methods, false);
}
