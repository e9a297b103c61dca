/* What lua/heed/optim and nn.utils build on: steps of optimisers, norms and limits of gradients. */
#include <math.h>

#include "../grad/grad.h"
#include "lheed.h"

/* ---- Steps ---- */

/* Option i, from 0, of the list at stack slot 2, of a group whose first one is `first`. */
static double number_of_list(lua_State *L, lua_Unsigned first, int i) {
  lua_rawgeti(L, 2, (lua_Integer)(first + (lua_Unsigned)i) + 1);
  const double value = lua_isboolean(L, -1) ? lua_toboolean(L, -1) : luaL_checknumber(L, -1);
  lua_pop(L, 1);
  return value;
}

enum { SGD_VALUES = 6, ADAM_VALUES = 8, RMSPROP_VALUES = 7 };

/* Reads the options of a group; returns how many there are. */
static lua_Unsigned read_optimizer(lua_State *L, heed__optimizer *o, lua_Unsigned first) {
#define NUMBER(i) number_of_list(L, first, i)
#define FLAG(i)   (number_of_list(L, first, i) != 0)
  switch (o->kind) {
  case HEED__SGD:
    o->sgd = (heed_sgd_options){.size = sizeof o->sgd,
                                .lr = NUMBER(0),
                                .momentum = NUMBER(1),
                                .dampening = NUMBER(2),
                                .weight_decay = NUMBER(3),
                                .nesterov = FLAG(4),
                                .maximize = FLAG(5)};
    return SGD_VALUES;
  case HEED__ADAM:
    o->adam = (heed_adam_options){.size = sizeof o->adam,
                                  .lr = NUMBER(0),
                                  .beta1 = NUMBER(1),
                                  .beta2 = NUMBER(2),
                                  .eps = NUMBER(3),
                                  .weight_decay = NUMBER(4),
                                  .amsgrad = FLAG(5),
                                  .maximize = FLAG(6),
                                  .decoupled = FLAG(7)};
    return ADAM_VALUES;
  default:
    o->rmsprop = (heed_rmsprop_options){.size = sizeof o->rmsprop,
                                        .lr = NUMBER(0),
                                        .alpha = NUMBER(1),
                                        .eps = NUMBER(2),
                                        .weight_decay = NUMBER(3),
                                        .momentum = NUMBER(4),
                                        .centered = FLAG(5),
                                        .maximize = FLAG(6)};
    return RMSPROP_VALUES;
  }
#undef NUMBER
#undef FLAG
}

/* Stack slots of optimizer_step: the lists of tensors, steps and states, copied, and steps itself. */
enum { SLOT_SIZES = 3, SLOT_TENSORS = 4, SLOT_STEPS = 5, SLOT_STATES = 6, SLOT_COUNTED = 9 };

/* Reads parameter i, from 0: 0 if it has no gradient, -1 if a state of its is missing, else 1. Allocates
 * nothing. */
static int read_update(lua_State *L, lua_Unsigned i, const heed__optimizer *o, heed__update *u) {
  const unsigned states = heed__optimizer_states(o);
  int result = 1;
  lheed_own_element(L, SLOT_TENSORS, i);
  *u = (heed__update){
      .x = lheed_tensor(L, lua_gettop(L), "step", "a parameter"), .optimizer = o, .number = (int64_t)i + 1};
  lua_pop(L, 1);
  u->gradient = heed_tensor_grad(u->x);
  if (u->gradient == NULL) return 0;
  lheed_own_element(L, SLOT_STEPS, i);
  u->steps = (int64_t)lua_tointeger(L, -1);
  lua_pop(L, 1);
  for (int s = 0; s < HEED__UPDATE_STATES; s++) {
    if (!(states >> s & 1)) continue;
    lheed_own_element(L, SLOT_STATES + s, i);
    if (lua_toboolean(L, -1))
      u->state[s] = lheed_tensor(L, lua_gettop(L), "step", "a state");
    else
      result = -1;
    lua_pop(L, 1);
  }
  return result;
}

typedef struct step_reading {
  lua_Unsigned groups, count; /* groups; parameters of all of them */
  heed__optimizer *optimizers;
  heed__update *updates;
  int64_t used;    /* parameters with gradients */
  int64_t missing; /* those of them that lack a state */
} step_reading;

/* Reads all parameters that have a gradient. */
static void read_updates(lua_State *L, step_reading *r) {
  lua_Unsigned i = 0;
  r->used = r->missing = 0;
  for (lua_Unsigned group = 0; group < r->groups; group++) {
    lua_rawgeti(L, SLOT_SIZES, (lua_Integer)group + 1);
    const lua_Unsigned end = i + (lua_Unsigned)lua_tointeger(L, -1);
    lua_pop(L, 1);
    for (; i < end && i < r->count; i++) {
      const int found = read_update(L, i, &r->optimizers[group], &r->updates[r->used]);
      if (found != 0) r->used++;
      if (found < 0) r->missing++;
    }
  }
}

/* Pushes the list of the parameters, by number, that lack a state. */
static int push_missing(lua_State *L, const step_reading *r) {
  lua_newtable(L);
  lua_Integer count = 0;
  for (int64_t i = 0; i < r->used; i++) {
    const heed__update *u = &r->updates[i];
    for (int s = 0; s < HEED__UPDATE_STATES; s++) {
      if (!(heed__optimizer_states(u->optimizer) >> s & 1) || u->state[s] != NULL) continue;
      lua_pushinteger(L, u->number);
      lua_rawseti(L, -2, ++count);
      break;
    }
  }
  return 1;
}

/* optimizer_step(kind, options, sizes, tensors, steps, states 1, 2, 3): one step of all parameters that have
 * a gradient. options: those of all groups, one after the other; sizes: the number of parameters of each
 * group; the other lists have an entry for each parameter, `false` for a state that it does not have yet.
 * Counts in steps, and returns nothing; or, with nothing changed, the list of the parameters that lack a
 * state. */
static int optimizer_step(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lua_settop(L, SLOT_STATES + HEED__UPDATE_STATES - 1);
  const int kind = (int)lheed_integer(L, 1, "step", "kind");
  for (int slot = 2; slot <= lua_gettop(L); slot++) luaL_checktype(L, slot, LUA_TTABLE);
  lua_pushvalue(L, SLOT_STEPS);
  step_reading r = {.groups = lua_rawlen(L, SLOT_SIZES)};
  for (int slot = SLOT_TENSORS; slot < SLOT_COUNTED; slot++) {
    const lua_Unsigned count = lheed_own_list(L, slot, "step");
    if (slot == SLOT_TENSORS) r.count = count;
  }
  r.optimizers = lua_newuserdatauv(L, heed__array_bytes(r.groups + 1, sizeof *r.optimizers), 0);
  r.updates = lua_newuserdatauv(L, heed__array_bytes(r.count + 1, sizeof *r.updates), 0);
  for (lua_Unsigned group = 0, at = 0; group < r.groups; group++) {
    r.optimizers[group].kind = (heed__optimizer_kind)kind;
    at += read_optimizer(L, &r.optimizers[group], at);
    const heed_status status = heed__optimizer_check(ctx, "step", &r.optimizers[group]);
    if (status != HEED_OK) lheed_raise(L, status);
  }
  read_updates(L, &r);
  if (r.missing > 0) return push_missing(L, &r);
  heed_status status = heed__updates_run(ctx, "step", r.used, r.updates);
  if (status == HEED_MEMORY) {
    lheed_collect(L); /* finalizers may have changed gradients */
    read_updates(L, &r);
    if (r.missing > 0) return push_missing(L, &r);
    status = heed__updates_run(ctx, "step", r.used, r.updates);
  }
  if (status != HEED_OK) lheed_raise(L, status);
  for (int64_t i = 0; i < r.used; i++) {
    lua_pushinteger(L, (lua_Integer)r.updates[i].steps);
    lua_rawseti(L, SLOT_COUNTED, (lua_Integer)r.updates[i].number);
  }
  return 0;
}

/* ---- Lists of tensors ---- */

/* Reads the list at stack slot 1, which is replaced by a copy that keeps the tensors alive. */
static heed_tensor **read_tensor_list(lua_State *L, const char *function, int64_t *count) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const lua_Unsigned length = lheed_own_list(L, 1, function);
  heed_tensor **x = lua_newuserdatauv(L, heed__array_bytes(length + 1, sizeof *x), 0);
  for (lua_Unsigned i = 0; i < length; i++) {
    lheed_own_element(L, 1, i);
    x[i] = lheed_tensor(L, lua_gettop(L), function, "a parameter");
    lua_pop(L, 1);
  }
  *count = (int64_t)length;
  return x;
}

#define READ_ONLY(x) ((const heed_tensor *const *)(x))

/* find_twice(tensors, function): the numbers of two that are the same parameter; nothing if there are none */
static int find_twice_of(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lua_settop(L, 2);
  const char *function = luaL_checkstring(L, 2);
  int64_t count, first, second;
  heed_tensor **x = read_tensor_list(L, function, &count);
  LHEED_TRY(L, heed__find_twice(ctx, function, count, READ_ONLY(x), &first, &second));
  if (first == 0) return 0;
  lua_pushinteger(L, (lua_Integer)first);
  lua_pushinteger(L, (lua_Integer)second);
  return 2;
}

/* forget_grads(tensors): their gradients become nil */
static int forget_grads(lua_State *L) {
  lheed_begin(L);
  lua_settop(L, 1);
  int64_t count;
  heed_tensor **x = read_tensor_list(L, "zero_grad", &count);
  for (int64_t i = 0; i < count; i++) {
    if (heed_tensor_grad(x[i]) != NULL) LHEED_TRY(L, heed_tensor_set_grad(x[i], NULL));
  }
  return lheed_return(L, 0);
}

/* total_norm(tensors, p): a number */
static int total_norm_of(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lua_settop(L, 2);
  const double p = luaL_checknumber(L, 2);
  int64_t count;
  heed_tensor **x = read_tensor_list(L, "get_total_norm", &count);
  double norm;
  LHEED_TRY(L, heed__total_norm(ctx, "get_total_norm", count, READ_ONLY(x), p, &norm));
  lua_pushnumber(L, norm);
  return 1;
}

/* clip_norm(parameters, max_norm, p, finite): the norm of the gradients before; with `finite` nothing is
 * changed if that is not finite */
static int clip_norm(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lua_settop(L, 4);
  const double max_norm = luaL_checknumber(L, 2), p = luaL_checknumber(L, 3);
  int64_t count;
  heed_tensor **x = read_tensor_list(L, "clip_grad_norm_", &count);
  double norm;
  if (lua_toboolean(L, 4)) {
    LHEED_TRY(L, heed__clip_grad_norm(ctx, "clip_grad_norm_", count, x, INFINITY, p, &norm));
    if (!isfinite(norm)) {
      lua_pushnumber(L, norm);
      return 1;
    }
  }
  LHEED_TRY(L, heed__clip_grad_norm(ctx, "clip_grad_norm_", count, x, max_norm, p, &norm));
  lua_pushnumber(L, norm);
  return lheed_return(L, 1);
}

/* clip_value(parameters, value) */
static int clip_value(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lua_settop(L, 2);
  const double value = luaL_checknumber(L, 2);
  int64_t count;
  heed_tensor **x = read_tensor_list(L, "clip_grad_value_", &count);
  LHEED_TRY(L, heed__clip_grad_value(ctx, "clip_grad_value_", count, x, value));
  return lheed_return(L, 0);
}

void lheed_open_optim(lua_State *L) {
  static const luaL_Reg primitives[] = {{"optimizer_step", optimizer_step},
                                        {"find_twice", find_twice_of},
                                        {"forget_grads", forget_grads},
                                        {"total_norm", total_norm_of},
                                        {"clip_norm", clip_norm},
                                        {"clip_value", clip_value},
                                        {NULL, NULL}};
  lheed_add(L, "modules", primitives);
}
