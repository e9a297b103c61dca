/* Elementwise operations with options, and the norm. add, sub, div and round replace the functions of the
 * same name that lops.c made from the list of operations; operators use those. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "../ops/ops.h"
#include "lheed.h"

/* ---- Sums with a factor, rounded quotients ---- */

/* A fraction stays as it is if the operands are integers: it is refused then. */
static heed_scalar negated(heed_scalar x, bool is_real) {
  if (x.dtype == HEED_FLOAT32 && !is_real && x.as.number != floor(x.as.number)) return x;
  return x.dtype == HEED_FLOAT32 ? heed_number(-x.as.number)
                                 : heed_integer((int64_t)(0 - (uint64_t)x.as.integer));
}

/* add(a, b, alpha = 1): a + alpha · b. */
static int call_scaled(lua_State *L, const char *function, lheed_binary *plain, bool subtract) {
  static const char *const names[] = {"alpha", NULL};
  lheed_options(L, function, 3, names);
  if (lua_isnil(L, 3)) {
    lua_settop(L, 2);
    return lheed_call_binary(L, function, plain);
  }
  heed_tensor **out = lheed_push_result(L, function, "a");
  const heed_scalar alpha = lheed_scalar(L, 3, function, "alpha");
  heed__number number_b;
  const heed_tensor *a = lheed_tensor(L, 1, function, "a");
  const heed_tensor *b = lheed_operand(L, 2, function, "b", &number_b);
  heed_context *ctx = lheed_get(L)->context;
  if (subtract && (a->dtype == HEED_BOOL || b->dtype == HEED_BOOL)) LHEED_TRY(L, plain(ctx, a, b, out));
  const bool is_real = a->dtype == HEED_FLOAT32 || b->dtype == HEED_FLOAT32;
  LHEED_TRY(L, heed_add_scaled(ctx, a, b, subtract ? negated(alpha, is_real) : alpha, out));
  if (subtract) lheed_set_name(*out, "SubBackward0");
  return lheed_return(L, 1);
}

static int add_scaled(lua_State *L) {
  return call_scaled(L, "add", heed_add, false);
}
static int sub_scaled(lua_State *L) {
  return call_scaled(L, "sub", heed_sub, true);
}

/* div(a, b, rounding_mode): nil, "floor" or "trunc". */
static int div_rounded(lua_State *L) {
  static const char *const names[] = {"rounding_mode", NULL};
  lheed_binary *call = heed_div;
  lheed_options(L, "div", 3, names);
  if (!lua_isnil(L, 3)) {
    const char *mode = lua_type(L, 3) == LUA_TSTRING ? lua_tostring(L, 3) : "";
    call = strcmp(mode, "floor") == 0 ? heed_floor_divide : heed_trunc_divide;
    if (call == heed_trunc_divide && strcmp(mode, "trunc") != 0)
      return lheed_bad_argument(L, 3, "div", "rounding_mode", "'floor', 'trunc' or nil");
  }
  lua_settop(L, 2);
  return lheed_call_binary(L, "div", call);
}

/* addcmul(x, a, b, value = 1): x + value · a · b. */
static int op_addcmul(lua_State *L) {
  static const char *const names[] = {"value", NULL};
  lheed_options(L, "addcmul", 4, names);
  heed_tensor **out = lheed_push_result(L, "addcmul", "x");
  heed__number number_a, number_b;
  const heed_scalar value = lua_isnil(L, 4) ? heed_integer(1) : lheed_scalar(L, 4, "addcmul", "value");
  const heed_tensor *x = lheed_tensor(L, 1, "addcmul", "x");
  const heed_tensor *a = lheed_operand(L, 2, "addcmul", "a", &number_a);
  const heed_tensor *b = lheed_operand(L, 3, "addcmul", "b", &number_b);
  LHEED_TRY(L, heed_addcmul(lheed_get(L)->context, x, a, b, value, out));
  return lheed_return(L, 1);
}

/* addcdiv(x, a, b, value = 1): x + value · a / b. */
static int op_addcdiv(lua_State *L) {
  static const char *const names[] = {"value", NULL};
  lheed_options(L, "addcdiv", 4, names);
  heed_tensor **out = lheed_push_result(L, "addcdiv", "x");
  heed__number number_a, number_b;
  const double value = lheed_opt_number(L, 4, "addcdiv", "value", 1);
  const heed_tensor *x = lheed_tensor(L, 1, "addcdiv", "x");
  const heed_tensor *a = lheed_operand(L, 2, "addcdiv", "a", &number_a);
  const heed_tensor *b = lheed_operand(L, 3, "addcdiv", "b", &number_b);
  LHEED_TRY(L, heed_addcdiv(lheed_get(L)->context, x, a, b, value, out));
  return lheed_return(L, 1);
}

/* lerp(a, b, weight): a + weight · (b - a); weight a number or a tensor. */
static int op_lerp(lua_State *L) {
  lheed_arguments(L, "lerp", 3);
  heed_tensor **out = lheed_push_result(L, "lerp", "a");
  heed__number number;
  const heed_tensor *a = lheed_tensor(L, 1, "lerp", "a"), *b = lheed_tensor(L, 2, "lerp", "b");
  const heed_tensor *weight = lheed_operand(L, 3, "lerp", "weight", &number);
  LHEED_TRY(L, heed_lerp(lheed_get(L)->context, a, b, weight, out));
  return lheed_return(L, 1);
}

/* ---- Rounding ---- */

#define MOST_DECIMALS 38 /* 10^38 is a float32 */

/* round(x, decimals = 0) */
static int round_decimals(lua_State *L) {
  static const char *const names[] = {"decimals", NULL};
  lheed_options(L, "round", 2, names);
  heed_context *ctx = lheed_get(L)->context;
  heed_tensor **out = lheed_push_result(L, "round", "x");
  const int64_t decimals = lheed_opt_integer(L, 2, "round", "decimals", 0);
  if (decimals == 0) {
    LHEED_TRY(L, heed_round(ctx, lheed_tensor(L, 1, "round", "x"), out));
    return lheed_return(L, 1);
  }
  if (decimals < -MOST_DECIMALS || decimals > MOST_DECIMALS)
    return lheed_error(L, "round: decimals is %I; it must be from %d to %d", (LUAI_UACINT)decimals,
                       -MOST_DECIMALS, MOST_DECIMALS);
  heed_tensor **scaled = lheed_push_tensor(L);
  heed__number number;
  const heed_tensor *power = heed__number_tensor(&number, heed_number(pow(10, fabs((double)decimals))));
  const heed_tensor *x = lheed_tensor(L, 1, "round", "x");
  LHEED_TRY(L, heed__check_dtype(ctx, "round", "x", x, HEED_FLOAT32));
  LHEED_TRY(L, decimals > 0 ? heed_mul(ctx, x, power, scaled) : heed_div(ctx, x, power, scaled));
  LHEED_TRY(L, heed_round(ctx, *scaled, scaled));
  LHEED_TRY(L, decimals > 0 ? heed_div(ctx, *scaled, power, out) : heed_mul(ctx, *scaled, power, out));
  lheed_set_name(*out, "RoundBackward1");
  lua_settop(L, 3); /* the result */
  return lheed_return(L, 1);
}

/* nan_to_num(x, nan = 0, posinf, neginf): by default the largest and the smallest float32 */
static int op_nan_to_num(lua_State *L) {
  static const char *const names[] = {"nan", "posinf", "neginf", NULL};
  lheed_options(L, "nan_to_num", 2, names);
  heed_tensor **out = lheed_push_result(L, "nan_to_num", "x");
  const double nan_value = lheed_opt_number(L, 2, "nan_to_num", "nan", 0);
  const double high = lheed_opt_number(L, 3, "nan_to_num", "posinf", FLT_MAX);
  const double low = lheed_opt_number(L, 4, "nan_to_num", "neginf", -FLT_MAX);
  const heed_tensor *x = lheed_tensor(L, 1, "nan_to_num", "x");
  LHEED_TRY(L, heed_nan_to_num(lheed_get(L)->context, x, nan_value, high, low, out));
  return lheed_return(L, 1);
}

/* ---- Not in place ---- */

/* isclose(a, b, rtol = 1e-5, atol = 1e-8, equal_nan = false) */
static int op_isclose(lua_State *L) {
  static const char *const names[] = {"rtol", "atol", "equal_nan", NULL};
  lheed_options(L, "isclose", 3, names);
  heed_tensor **out = lheed_push_tensor(L);
  const double relative = lheed_opt_number(L, 3, "isclose", "rtol", 1e-5);
  const double absolute = lheed_opt_number(L, 4, "isclose", "atol", 1e-8);
  const bool equal_nan = lheed_opt_boolean(L, 5, "isclose", "equal_nan", false);
  heed__number number;
  const heed_tensor *a = lheed_tensor(L, 1, "isclose", "a");
  const heed_tensor *b = lheed_operand(L, 2, "isclose", "b", &number);
  LHEED_TRY(L, heed_isclose(lheed_get(L)->context, a, b, relative, absolute, equal_nan, out));
  return lheed_return(L, 1);
}

/* norm(x, p = "fro", dim, keepdim = false): "fro" is 2. */
static int op_norm(lua_State *L) {
  static const char *const names[] = {"p", "dim", "keepdim", NULL};
  lheed_options(L, "norm", 2, names);
  heed_tensor **out = lheed_push_tensor(L);
  double p = 2;
  if (lua_type(L, 2) == LUA_TNUMBER)
    p = lua_tonumber(L, 2);
  else if (!lua_isnil(L, 2) && !(lua_type(L, 2) == LUA_TSTRING && strcmp(lua_tostring(L, 2), "fro") == 0))
    return lheed_bad_argument(L, 2, "norm", "p", "a number, heed.inf, -heed.inf or 'fro'");
  int dims[HEED_MAX_DIMS];
  const int ndims = lheed_opt_dims(L, 3, "norm", dims);
  const bool keepdim = lheed_opt_boolean(L, 4, "norm", "keepdim", false);
  const heed_tensor *x = lheed_tensor(L, 1, "norm", "x");
  LHEED_TRY(L, heed_norm(lheed_get(L)->context, x, p, ndims, dims, keepdim, out));
  return lheed_return(L, 1);
}

void lheed_open_arithmetic(lua_State *L) {
  /* Each also in place, with a trailing underscore. */
  static const luaL_Reg elementwise[] = {
      {"add", add_scaled},       {"sub", sub_scaled},           {"div", div_rounded},
      {"addcmul", op_addcmul},   {"addcdiv", op_addcdiv},       {"lerp", op_lerp},
      {"round", round_decimals}, {"nan_to_num", op_nan_to_num}, {NULL, NULL},
  };
  static const luaL_Reg others[] = {{"isclose", op_isclose}, {"norm", op_norm}, {NULL, NULL}};
  lheed_add_methods(L, elementwise, false);
  lheed_add_methods(L, elementwise, true);
  lheed_add_methods(L, others, false);
}
