/* Losses of classes, for heed's own Lua files (lua/heed/nn/loss_functions.lua), which check and name the
 * arguments. */
#include <string.h>

#include "../ops/ops.h"
#include "lheed.h"

/* weight, ignore_index, reduction, label_smoothing from index `first` on */
static heed_cross_entropy_options loss_options(lua_State *L, int first, const char *function) {
  static const char *const reductions[] = {"mean", "sum", "none"};
  heed_cross_entropy_options options;
  heed_cross_entropy_options_init(&options, sizeof options);
  options.weight = lheed_opt_tensor(L, first, function, "weight");
  options.ignore_index = lheed_integer(L, first + 1, function, "ignore_index");
  const char *reduction = lua_tostring(L, first + 2);
  for (int i = 0; reduction && i < 3; i++) {
    if (strcmp(reduction, reductions[i]) == 0) options.reduction = (heed_reduction)i;
  }
  options.label_smoothing = lheed_number(L, first + 3, function, "label_smoothing");
  return options;
}

/* cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing) */
static int call_cross_entropy(lua_State *L) {
  static const char function[] = "cross_entropy";
  lheed_begin(L);
  lua_settop(L, 6);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_cross_entropy_options options = loss_options(L, 3, function);
  const heed_tensor *input = lheed_tensor(L, 1, function, "input");
  const heed_tensor *target = lheed_tensor(L, 2, function, "target");
  LHEED_TRY(L, heed_cross_entropy(lheed_get(L)->context, input, target, &options, out));
  return lheed_return(L, 1);
}

/* linear_cross_entropy(x, linear_weight, bias, target, weight, ignore_index, reduction, label_smoothing) */
static int call_linear_cross_entropy(lua_State *L) {
  static const char function[] = "linear_cross_entropy";
  lheed_begin(L);
  lua_settop(L, 8);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_cross_entropy_options options = loss_options(L, 5, function);
  const heed_tensor *x = lheed_tensor(L, 1, function, "input");
  const heed_tensor *weight = lheed_tensor(L, 2, function, "linear_weight");
  const heed_tensor *bias = lheed_opt_tensor(L, 3, function, "linear_bias");
  const heed_tensor *target = lheed_tensor(L, 4, function, "target");
  LHEED_TRY(L, heed_linear_cross_entropy(lheed_get(L)->context, x, weight, bias, target, &options, out));
  return lheed_return(L, 1);
}

/* embedding(ids, weight, padding_idx): the row padding_idx (from 1) gets no gradient */
static int padded_embedding(lua_State *L) {
  static const char function[] = "embedding";
  lheed_begin(L);
  lua_settop(L, 3);
  heed_tensor **out = lheed_push_tensor(L);
  const int64_t padding = lheed_integer(L, 3, function, "padding_idx");
  const heed_tensor *ids = lheed_tensor(L, 1, function, "input");
  const heed_tensor *weight = lheed_tensor(L, 2, function, "weight");
  LHEED_TRY(L, heed__embedding(lheed_get(L)->context, function, ids, weight, padding, out));
  return lheed_return(L, 1);
}

void lheed_open_losses(lua_State *L) {
  static const luaL_Reg primitives[] = {{"cross_entropy", call_cross_entropy},
                                        {"linear_cross_entropy", call_linear_cross_entropy},
                                        {"embedding", padded_embedding},
                                        {NULL, NULL}};
  lheed_add(L, "modules", primitives);
}
