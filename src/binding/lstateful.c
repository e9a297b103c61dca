/* Operations that leave a state for the next tokens: linear attention and the causal convolution. */
#include <float.h>
#include <string.h>

#include "lheed.h"

/* ---- Names of a choice ---- */

/* Which of the names is at idx; raises for anything else: `needed` lists them. */
static int read_choice(lua_State *L, int idx, const char *function, const char *name,
                       const char *const *names, const char *needed) {
  const char *given = lua_type(L, idx) == LUA_TSTRING ? lua_tostring(L, idx) : "";
  for (int i = 0; names[i]; i++)
    if (strcmp(given, names[i]) == 0) return i;
  luaL_checkstack(L, 8, function);
  lua_newtable(L);
  for (int i = 0; names[i]; i++) {
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, names[i]);
  }
  const int list = lua_gettop(L);
  const char *what = lheed_push_what(L, idx), *hint = lheed_push_hint(L, name, idx, list, 0);
  return lheed_error(L, "%s: %s is %s; it must be %s%s", function, name, what, needed, hint);
}

/* ---- linear_attention(q, k, v, rule, decay, beta, past_state, scale) ---- */

typedef enum linear_rule { LINEAR_RULE, GATED_RULE, DELTA_RULE, GATED_DELTA_RULE } linear_rule;
static const char *const rule_names[] = {"linear", "gated", "delta", "gated_delta", NULL};

/* Raises unless the argument at idx is given exactly if the rule takes it. */
static void check_rule(lua_State *L, const char *function, linear_rule rule, int idx, const char *name,
                       bool takes, linear_rule other) {
  if (lua_isnil(L, idx) != takes) return;
  const char *what = lheed_push_what(L, idx);
  if (takes)
    lheed_error(L, "%s: %s is nil; it must be a tensor with rule = '%s'", function, name, rule_names[rule]);
  lheed_error(L, "%s: %s is %s; it must be nil with rule = '%s'; use rule = '%s'", function, name, what,
              rule_names[rule], rule_names[other]);
}

static int op_linear_attention(lua_State *L) {
  static const char function[] = "linear_attention";
  static const char *const names[] = {"rule", "decay", "beta", "past_state", "scale", NULL};
  lheed_options(L, function, 4, names);
  luaL_checkstack(L, 16, function);
  if (!lua_isnil(L, 4)) {
    const linear_rule rule = (linear_rule)read_choice(L, 4, function, "rule", rule_names,
                                                      "'linear', 'gated', 'delta' or 'gated_delta'");
    const bool gated = rule == GATED_RULE || rule == GATED_DELTA_RULE, delta = rule >= DELTA_RULE;
    check_rule(L, function, rule, 5, "decay", gated, delta ? GATED_DELTA_RULE : GATED_RULE);
    check_rule(L, function, rule, 6, "beta", delta, gated ? GATED_DELTA_RULE : DELTA_RULE);
  }
  heed_tensor **out = lheed_push_tensor(L), **state = lheed_push_tensor(L);
  const heed_tensor *q = lheed_tensor(L, 1, function, "q");
  const heed_tensor *k = lheed_tensor(L, 2, function, "k");
  const heed_tensor *v = lheed_tensor(L, 3, function, "v");
  heed_linear_attention_options options = {
      .size = sizeof options,
      .decay = lheed_opt_tensor(L, 5, function, "decay"),
      .beta = lheed_opt_tensor(L, 6, function, "beta"),
      .past_state = lheed_opt_tensor(L, 7, function, "past_state"),
      .scale = lheed_opt_number(L, 8, function, "scale", 0),
  };
  /* In C, 0 is the default. */
  if (!lua_isnil(L, 8) && options.scale == 0) options.scale = DBL_MIN;
  LHEED_TRY(L, heed_linear_attention(lheed_get(L)->context, q, k, v, &options, out, state));
  return lheed_return(L, 2);
}

/* ---- causal_conv(x, weight, bias, past_state, activation) ---- */

static int op_causal_conv(lua_State *L) {
  static const char function[] = "causal_conv";
  static const char *const names[] = {"bias", "past_state", "activation", NULL};
  static const char *const activations[] = {"none", "silu", "swish", NULL};
  lheed_options(L, function, 3, names);
  const bool silu =
      !lua_isnil(L, 5) && read_choice(L, 5, function, "activation", activations, "'silu', 'swish' or 'none'");
  heed_tensor **out = lheed_push_tensor(L), **state = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  const heed_tensor *weight = lheed_tensor(L, 2, function, "weight");
  const heed_causal_conv_options options = {
      .size = sizeof options,
      .bias = lheed_opt_tensor(L, 3, function, "bias"),
      .past_state = lheed_opt_tensor(L, 4, function, "past_state"),
      .silu = silu,
  };
  LHEED_TRY(L, heed_causal_conv(lheed_get(L)->context, x, weight, &options, out, state));
  return lheed_return(L, 2);
}

void lheed_open_stateful(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"linear_attention", op_linear_attention}, {"causal_conv", op_causal_conv}, {NULL, NULL}};
  lheed_add_methods(L, functions, false);
}
