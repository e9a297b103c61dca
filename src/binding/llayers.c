/* The functions that layers are made of: linear maps, normalisation, attention. (Modules: lnn.c.) */
#include <float.h>

#include "../ops/ops.h"
#include "lheed.h"

/* linear(x, weight, bias) */
static int op_linear(lua_State *L) {
  static const char *const names[] = {"bias", NULL};
  lheed_options(L, "linear", 3, names);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "linear", "x");
  const heed_tensor *weight = lheed_tensor(L, 2, "linear", "weight");
  const heed_tensor *bias = lheed_opt_tensor(L, 3, "linear", "bias");
  LHEED_TRY(L, heed_linear(lheed_get(L)->context, x, weight, bias, out));
  return lheed_return(L, 1);
}

/* layer_norm(x, weight, bias, eps = 1e-5), over the last dimension */
static int op_layer_norm(lua_State *L) {
  static const char *const names[] = {"weight", "bias", "eps", NULL};
  lheed_options(L, "layer_norm", 2, names);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "layer_norm", "x");
  const heed_tensor *weight = lheed_opt_tensor(L, 2, "layer_norm", "weight");
  const heed_tensor *bias = lheed_opt_tensor(L, 3, "layer_norm", "bias");
  double epsilon = lheed_opt_number(L, 4, "layer_norm", "eps", 1e-5);
  LHEED_TRY(L, heed_layer_norm(lheed_get(L)->context, x, weight, bias, epsilon, out));
  return lheed_return(L, 1);
}

/* rms_norm(x, weight, eps = 2^-23), over the last dimension; PyTorch's default, too */
static int op_rms_norm(lua_State *L) {
  static const char *const names[] = {"weight", "eps", NULL};
  lheed_options(L, "rms_norm", 2, names);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "rms_norm", "x");
  const heed_tensor *weight = lheed_opt_tensor(L, 2, "rms_norm", "weight");
  double epsilon = lheed_opt_number(L, 3, "rms_norm", "eps", FLT_EPSILON);
  LHEED_TRY(L, heed_rms_norm(lheed_get(L)->context, x, weight, epsilon, out));
  return lheed_return(L, 1);
}

static int64_t head_count(const heed_tensor *x) {
  return x->ndim < 3 ? 1 : x->shape[x->ndim - 3];
}

/* scaled_dot_product_attention(q, k, v, attn_mask, dropout_p = 0, is_causal = false, scale, enable_gqa,
 * generator). Groups of heads need no switch; enable_gqa = false forbids them. */
static int op_attention(lua_State *L) {
  static const char function[] = "scaled_dot_product_attention";
  static const char *const names[] = {"attn_mask",  "dropout_p", "is_causal", "scale",
                                      "enable_gqa", "generator", NULL};
  lheed_options(L, function, 4, names);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *q = lheed_tensor(L, 1, function, "q");
  const heed_tensor *k = lheed_tensor(L, 2, function, "k");
  const heed_tensor *v = lheed_tensor(L, 3, function, "v");
  heed_attention_options options = {
      .attn_mask = lheed_opt_tensor(L, 4, function, "attn_mask"),
      .dropout_p = lheed_opt_number(L, 5, function, "dropout_p", 0),
      .is_causal = lheed_opt_boolean(L, 6, function, "is_causal", false),
      .scale = lheed_opt_number(L, 7, function, "scale", 0),
      .generator = lheed_opt_generator(L, 9, function),
  };
  /* In C, 0 stands for the default; a scale that makes all scores 0 is what was asked for. */
  if (!lua_isnil(L, 7) && options.scale == 0) options.scale = DBL_MIN;
  if (!lheed_opt_boolean(L, 8, function, "enable_gqa", true)) {
    int64_t hq = head_count(q), hk = head_count(k), hv = head_count(v);
    if ((hk != 1 && hk != hq) || (hv != 1 && hv != hq))
      lheed_error(L,
                  "%s: q has %I heads, k has %I and v has %I; with enable_gqa = false they must be as many",
                  function, (LUAI_UACINT)hq, (LUAI_UACINT)hk, (LUAI_UACINT)hv);
  }
  LHEED_TRY(L, heed_scaled_dot_product_attention(lheed_get(L)->context, q, k, v, &options, out));
  return lheed_return(L, 1);
}

void lheed_open_layers(lua_State *L) {
  static const luaL_Reg functions[] = {{"linear", op_linear},
                                       {"layer_norm", op_layer_norm},
                                       {"rms_norm", op_rms_norm},
                                       {"scaled_dot_product_attention", op_attention},
                                       {NULL, NULL}};
  lheed_add_functions(L, functions, false);
}
