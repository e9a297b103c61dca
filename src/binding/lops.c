/* Operations on tensors: arithmetic, comparison, reduction, products. (On shapes: lviews.c; those behind
 * modules: llayers.c.)
 *
 * One function reads the arguments of all operations of a kind (ops/ops.def). */
#include <string.h>

#include "../ops/ops.h"
#include "lheed.h"

heed_tensor **lheed_push_result(lua_State *L, const char *function, const char *name) {
  if (!lua_toboolean(L, lua_upvalueindex(2))) return lheed_push_tensor(L);
  lheed_tensor(L, 1, function, name);
  lua_pushvalue(L, 1);
  return (heed_tensor **)&((lheed_box *)lua_touserdata(L, 1))->object;
}

/* ---- Elementwise: one tensor ---- */

typedef heed_status unary_call(heed_context *ctx, const heed_tensor *x, heed_tensor **out);

static int call_unary(lua_State *L, const char *function, unary_call *call) {
  lheed_arguments(L, function, 1);
  heed_tensor **out = lheed_push_result(L, function, "x");
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  LHEED_TRY(L, call(lheed_get(L)->context, x, out));
  return lheed_return(L, 1);
}

#define OP_UNARY(name)                                                                                       \
  static int op_##name(lua_State *L) {                                                                       \
    return call_unary(L, #name, heed_##name);                                                                \
  }
#define OP_TEST OP_UNARY
#include "../ops/ops.def"

static int op_logical_not(lua_State *L) {
  return call_unary(L, "logical_not", heed_logical_not);
}

/* gelu(x, approximate = "none") */
static int op_gelu(lua_State *L) {
  static const char *const names[] = {"approximate", NULL};
  lheed_options(L, "gelu", 2, names);
  heed_tensor **out = lheed_push_result(L, "gelu", "x");
  const bool tanh_form = !lua_isnil(L, 2) && lheed_approximate(L, 2, "gelu", "approximate");
  const heed_tensor *x = lheed_tensor(L, 1, "gelu", "x");
  LHEED_TRY(L, (tanh_form ? heed_gelu_tanh : heed_gelu)(lheed_get(L)->context, x, out));
  return lheed_return(L, 1);
}

/* ---- Elementwise: two tensors, or a tensor and a number ---- */

int lheed_call_binary(lua_State *L, const char *function, lheed_binary *call) {
  lheed_arguments(L, function, 2);
  heed_tensor **out = lheed_push_result(L, function, "a");
  heed__number number_a, number_b;
  const heed_tensor *a = lheed_operand(L, 1, function, "a", &number_a);
  const heed_tensor *b = lheed_operand(L, 2, function, "b", &number_b);
  if (a == &number_a.tensor && b == &number_b.tensor)
    lheed_error(L, "%s: a and b are both numbers; one of them must be a tensor", function);
  LHEED_TRY(L, call(lheed_get(L)->context, a, b, out));
  return lheed_return(L, 1);
}

#define OP_BINARY(name)                                                                                      \
  static int op_##name(lua_State *L) {                                                                       \
    return lheed_call_binary(L, #name, heed_##name);                                                         \
  }
#include "../ops/ops.def"

/* ---- Elementwise: others ---- */

/* clamp(x, min, max): numbers or tensors, one of them may be nil. */
static int op_clamp(lua_State *L) {
  static const char *const names[] = {"min", "max", NULL};
  lheed_options(L, "clamp", 2, names);
  heed_tensor **out = lheed_push_result(L, "clamp", "x");
  heed__number number_low, number_high;
  const heed_tensor *low = lua_isnil(L, 2) ? NULL : lheed_operand(L, 2, "clamp", "min", &number_low);
  const heed_tensor *high = lua_isnil(L, 3) ? NULL : lheed_operand(L, 3, "clamp", "max", &number_high);
  if (!low && !high) lheed_error(L, "clamp: min and max are both nil; one of them must be given");
  const heed_tensor *x = lheed_tensor(L, 1, "clamp", "x");
  LHEED_TRY(L, heed_clamp(lheed_get(L)->context, x, low, high, out));
  return lheed_return(L, 1);
}

/* where(condition, a, b) */
static int op_where(lua_State *L) {
  lheed_arguments(L, "where", 3);
  heed_tensor **out = lheed_push_tensor(L);
  heed__number number_a, number_b;
  const heed_tensor *condition = lheed_tensor(L, 1, "where", "condition");
  const heed_tensor *a = lheed_operand(L, 2, "where", "a", &number_a);
  const heed_tensor *b = lheed_operand(L, 3, "where", "b", &number_b);
  LHEED_TRY(L, heed_where(lheed_get(L)->context, condition, a, b, out));
  return lheed_return(L, 1);
}

/* masked_fill(x, mask, value): value a number, or a tensor of no dimensions. */
static int op_masked_fill(lua_State *L) {
  lheed_arguments(L, "masked_fill", 3);
  heed_tensor **out = lheed_push_result(L, "masked_fill", "x");
  const heed_tensor *x = lheed_tensor(L, 1, "masked_fill", "x");
  const heed_tensor *mask = lheed_tensor(L, 2, "masked_fill", "mask");
  heed__number number;
  const heed_tensor *value = lheed_operand(L, 3, "masked_fill", "value", &number);
  if (value->ndim > 0)
    lheed_bad_argument(L, 3, "masked_fill", "value", "a number or a tensor of no dimensions");
  /* not through a float32 tensor, which would round a number that int64 takes exactly */
  heed_scalar scalar = value == &number.tensor ? lheed_scalar(L, 3, "masked_fill", "value")
                                               : heed__load(value->dtype, value->data);
  LHEED_TRY(L, heed__masked_fill(lheed_get(L)->context, x, mask, scalar,
                                 value == &number.tensor ? NULL : value, out));
  return lheed_return(L, 1);
}

/* tril(x, diagonal = 0) */
static int call_triangle(lua_State *L, const char *function,
                         heed_status (*call)(heed_context *, const heed_tensor *, int64_t, heed_tensor **)) {
  static const char *const names[] = {"diagonal", NULL};
  lheed_options(L, function, 2, names);
  heed_tensor **out = lheed_push_result(L, function, "x");
  int64_t diagonal = lheed_opt_integer(L, 2, function, "diagonal", 0);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  LHEED_TRY(L, call(lheed_get(L)->context, x, diagonal, out));
  return lheed_return(L, 1);
}

static int op_tril(lua_State *L) {
  return call_triangle(L, "tril", heed_tril);
}
static int op_triu(lua_State *L) {
  return call_triangle(L, "triu", heed_triu);
}

/* ---- Whole tensors compared: a boolean ---- */

static int op_equal(lua_State *L) {
  lheed_arguments(L, "equal", 2);
  const heed_tensor *a = lheed_tensor(L, 1, "equal", "a");
  const heed_tensor *b = lheed_tensor(L, 2, "equal", "b");
  bool result = false;
  LHEED_TRY(L, heed_equal(lheed_get(L)->context, a, b, &result));
  lua_pushboolean(L, result);
  return 1;
}

/* allclose(a, b, rtol = 1e-5, atol = 1e-8, equal_nan = false) */
static int op_allclose(lua_State *L) {
  static const char *const names[] = {"rtol", "atol", "equal_nan", NULL};
  lheed_options(L, "allclose", 3, names);
  double relative = lheed_opt_number(L, 3, "allclose", "rtol", 1e-5);
  double absolute = lheed_opt_number(L, 4, "allclose", "atol", 1e-8);
  bool equal_nan = lheed_opt_boolean(L, 5, "allclose", "equal_nan", false);
  const heed_tensor *a = lheed_tensor(L, 1, "allclose", "a");
  const heed_tensor *b = lheed_tensor(L, 2, "allclose", "b");
  bool result = false;
  LHEED_TRY(L, heed_allclose(lheed_get(L)->context, a, b, relative, absolute, equal_nan, &result));
  lua_pushboolean(L, result);
  return 1;
}

/* ---- Reductions ---- */

typedef heed_status reduce_call(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims,
                                bool keepdim, heed_tensor **out);

/* sum(x, dim, keepdim = false): dim a dimension, a table of them, or nil for all. */
static int call_reduce(lua_State *L, const char *function, reduce_call *call) {
  static const char *const names[] = {"dim", "keepdim", NULL};
  lheed_options(L, function, 2, names);
  heed_tensor **out = lheed_push_tensor(L);
  int dims[HEED_MAX_DIMS], ndims = lheed_opt_dims(L, 2, function, dims);
  bool keepdim = lheed_opt_boolean(L, 3, function, "keepdim", false);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  LHEED_TRY(L, call(lheed_get(L)->context, x, ndims, dims, keepdim, out));
  return lheed_return(L, 1);
}

#define OP_REDUCTION(name)                                                                                   \
  static int op_##name(lua_State *L) {                                                                       \
    return call_reduce(L, #name, heed_##name);                                                               \
  }
#include "../ops/ops.def"

/* var(x, dim, keepdim = false, correction = 1); unbiased = false is correction = 0. */
static int call_spread(lua_State *L, const char *function,
                       heed_status (*call)(heed_context *, const heed_tensor *, int, const int *, double,
                                           bool, heed_tensor **)) {
  static const char *const names[] = {"dim", "keepdim", "correction", "unbiased", NULL};
  lheed_options(L, function, 2, names);
  heed_tensor **out = lheed_push_tensor(L);
  int dims[HEED_MAX_DIMS], ndims = lheed_opt_dims(L, 2, function, dims);
  bool keepdim = lheed_opt_boolean(L, 3, function, "keepdim", false);
  bool unbiased = lheed_opt_boolean(L, 5, function, "unbiased", true);
  if (!lua_isnil(L, 4) && !lua_isnil(L, 5))
    lheed_error(L, "%s: correction and unbiased are both given; give one of them", function);
  double correction = lheed_opt_number(L, 4, function, "correction", unbiased ? 1 : 0);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  LHEED_TRY(L, call(lheed_get(L)->context, x, ndims, dims, correction, keepdim, out));
  return lheed_return(L, 1);
}

static int op_var(lua_State *L) {
  return call_spread(L, "var", heed_var);
}
static int op_std(lua_State *L) {
  return call_spread(L, "std", heed_std);
}

/* The largest or smallest elements, and their indices. */
typedef heed_status extremes_call(heed_context *ctx, const heed_tensor *x, int dim, bool keepdim,
                                  heed_tensor **values, heed_tensor **indices);

/* max(x): of all elements; max(x, dim, keepdim = false): values, indices; max(x, tensor): elementwise. */
static int extremes(lua_State *L, const char *function, extremes_call *call, lua_CFunction elementwise) {
  static const char *const names[] = {"dim", "keepdim", NULL};
  if (lheed_test(L, 2, &lheed_tensor_type)) return elementwise(L);
  lheed_options(L, function, 2, names);
  heed_tensor **values = lheed_push_tensor(L);
  int dim = lheed_opt_dim(L, 2, function);
  heed_tensor **indices = dim ? lheed_push_tensor(L) : NULL;
  bool keepdim = lheed_opt_boolean(L, 3, function, "keepdim", false);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  LHEED_TRY(L, call(lheed_get(L)->context, x, dim, keepdim, values, indices));
  return indices ? lheed_return_pair(L) : lheed_return(L, 1);
}

static int op_max(lua_State *L) {
  return extremes(L, "max", heed_max, op_maximum);
}
static int op_min(lua_State *L) {
  return extremes(L, "min", heed_min, op_minimum);
}

/* argmax(x, dim, keepdim = false): without dim the index in the flattened tensor. */
static int indices_of_extremes(lua_State *L, const char *function, extremes_call *call) {
  static const char *const names[] = {"dim", "keepdim", NULL};
  lheed_options(L, function, 2, names);
  heed_tensor **values = lheed_push_tensor(L), **indices = lheed_push_tensor(L);
  int dim = lheed_opt_dim(L, 2, function);
  bool keepdim = lheed_opt_boolean(L, 3, function, "keepdim", false);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  LHEED_TRY(L, call(lheed_get(L)->context, x, dim, keepdim, values, indices));
  return lheed_return(L, 1);
}

static int op_argmax(lua_State *L) {
  return indices_of_extremes(L, "argmax", heed_max);
}
static int op_argmin(lua_State *L) {
  return indices_of_extremes(L, "argmin", heed_min);
}

/* ---- Along a dimension ---- */

/* softmax(x, dim) */
static int along(lua_State *L, const char *function,
                 heed_status (*call)(heed_context *, const heed_tensor *, int, heed_tensor **)) {
  static const char *const names[] = {"dim", NULL};
  lheed_options(L, function, 2, names);
  heed_tensor **out = lheed_push_tensor(L);
  int dim = lheed_dim(L, 2, function, "dim");
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  LHEED_TRY(L, call(lheed_get(L)->context, x, dim, out));
  return lheed_return(L, 1);
}

#define OP_ALONG(name)                                                                                       \
  static int op_##name(lua_State *L) {                                                                       \
    return along(L, #name, heed_##name);                                                                     \
  }
#include "../ops/ops.def"

static int opt_last_dim(lua_State *L, int idx, const char *function) {
  int dim = lheed_opt_dim(L, idx, function);
  return dim ? dim : -1;
}

/* topk(x, k, dim = -1, largest = true, sorted = true): values, indices; sorted in any case. */
static int op_topk(lua_State *L) {
  static const char *const names[] = {"k", "dim", "largest", "sorted", NULL};
  lheed_options(L, "topk", 2, names);
  heed_tensor **values = lheed_push_tensor(L), **indices = lheed_push_tensor(L);
  int64_t k = lheed_integer(L, 2, "topk", "k");
  int dim = opt_last_dim(L, 3, "topk");
  bool largest = lheed_opt_boolean(L, 4, "topk", "largest", true);
  lheed_opt_boolean(L, 5, "topk", "sorted", true);
  const heed_tensor *x = lheed_tensor(L, 1, "topk", "x");
  LHEED_TRY(L, heed_topk(lheed_get(L)->context, x, k, dim, largest, values, indices));
  return lheed_return_pair(L);
}

/* sort(x, dim = -1, descending = false, stable = true) leaves values and indices on the stack; stable in any
 * case. */
static void sort(lua_State *L, const char *function) {
  static const char *const names[] = {"dim", "descending", "stable", NULL};
  lheed_options(L, function, 2, names);
  heed_tensor **values = lheed_push_tensor(L), **indices = lheed_push_tensor(L);
  int dim = opt_last_dim(L, 2, function);
  bool descending = lheed_opt_boolean(L, 3, function, "descending", false);
  lheed_opt_boolean(L, 4, function, "stable", true);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  LHEED_TRY(L, heed_sort(lheed_get(L)->context, x, dim, descending, values, indices));
}

static int op_sort(lua_State *L) {
  sort(L, "sort");
  return lheed_return_pair(L);
}
static int op_argsort(lua_State *L) {
  sort(L, "argsort");
  return lheed_return(L, 1);
}

/* ---- Products ---- */

static int call_product(lua_State *L, const char *function, lheed_binary *call) {
  lheed_arguments(L, function, 2);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *a = lheed_tensor(L, 1, function, "a");
  const heed_tensor *b = lheed_tensor(L, 2, function, "b");
  LHEED_TRY(L, call(lheed_get(L)->context, a, b, out));
  return lheed_return(L, 1);
}

static int op_matmul(lua_State *L) {
  return call_product(L, "matmul", heed_matmul);
}
static int op_dot(lua_State *L) {
  return call_product(L, "dot", heed_dot);
}

/* ---- Operators ---- */

/* Lua passes the operand of a unary operator twice. */
static int operator_neg(lua_State *L) {
  lua_settop(L, 1);
  return op_neg(L);
}

/* & | ~ are the logical operations, for bool only: for other dtypes PyTorch's are bitwise. */
static int bool_operator(lua_State *L, const char *symbol, int operands, lua_CFunction call) {
  lua_settop(L, operands);
  for (int i = 1; i <= operands; i++) {
    const lheed_box *box = lheed_test(L, i, &lheed_tensor_type);
    const heed_tensor *x = box ? box->object : NULL;
    if (x ? x->dtype != HEED_BOOL : !box && !lua_isboolean(L, i)) {
      const char *what = lheed_push_what(L, i);
      lheed_error(L, "%s: an operand is %s; it must be a bool tensor", symbol, what);
    }
  }
  return call(L);
}

static int operator_and(lua_State *L) {
  return bool_operator(L, "&", 2, op_logical_and);
}
static int operator_or(lua_State *L) {
  return bool_operator(L, "|", 2, op_logical_or);
}
static int operator_xor(lua_State *L) {
  return bool_operator(L, "~", 2, op_logical_xor);
}
static int operator_not(lua_State *L) {
  return bool_operator(L, "~", 1, op_logical_not);
}

/* core.pair(values, indices): both, marked as the results of one call. */
static int core_pair(lua_State *L) {
  lua_settop(L, 2);
  return lheed_return_pair(L);
}

/* ---- The lists ---- */

void lheed_open_ops(lua_State *L) {
  /* Each also in place, with a trailing underscore. */
  static const luaL_Reg elementwise[] = {
#define OP_UNARY(name)  {#name, op_##name},
#define OP_BINARY(name) {#name, op_##name},
#include "../ops/ops.def"
      {"gelu", op_gelu},   {"logical_not", op_logical_not},
      {"clamp", op_clamp}, {"masked_fill", op_masked_fill},
      {"clip", op_clamp},  {"tril", op_tril},
      {"triu", op_triu},   {NULL, NULL},
  };
  static const luaL_Reg others[] = {
#define OP_TEST(name)      {#name, op_##name},
#define OP_REDUCTION(name) {#name, op_##name},
#define OP_ALONG(name)     {#name, op_##name},
#include "../ops/ops.def"
      {"where", op_where},   {"equal", op_equal}, {"allclose", op_allclose}, {"var", op_var},
      {"std", op_std},       {"max", op_max},     {"min", op_min},           {"argmax", op_argmax},
      {"argmin", op_argmin}, {"topk", op_topk},   {"sort", op_sort},         {"argsort", op_argsort},
      {"matmul", op_matmul}, {"mm", op_matmul},   {"dot", op_dot},           {NULL, NULL},
  };
  static const luaL_Reg operators[] = {{"__add", op_add},
                                       {"__sub", op_sub},
                                       {"__mul", op_mul},
                                       {"__div", op_div},
                                       {"__mod", op_remainder},
                                       {"__pow", op_pow},
                                       {"__unm", operator_neg},
                                       {"__band", operator_and},
                                       {"__bor", operator_or},
                                       {"__bxor", operator_xor},
                                       {"__bnot", operator_not},
                                       {"__idiv", op_floor_divide},
                                       {NULL, NULL}};
  lheed_add_methods(L, elementwise, false);
  lheed_add_methods(L, elementwise, true);
  lheed_add_methods(L, others, false);
  static const luaL_Reg for_own_files[] = {{"pair", core_pair}, {NULL, NULL}};
  lheed_add(L, NULL, for_own_files);
  lheed_add_metamethods(L, &lheed_tensor_type, operators);
}
