/* The functions behind modules: linear maps, normalization, attention. */
#include <float.h>
#include <string.h>

#include "../attention/attention.h"
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

/* linear_int8(x, weight, scale, bias) */
static int op_linear_int8(lua_State *L) {
  static const char *const names[] = {"bias", NULL};
  lheed_options(L, "linear_int8", 4, names);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "linear_int8", "x");
  const heed_tensor *weight = lheed_tensor(L, 2, "linear_int8", "weight");
  const heed_tensor *scale = lheed_tensor(L, 3, "linear_int8", "scale");
  const heed_tensor *bias = lheed_opt_tensor(L, 4, "linear_int8", "bias");
  LHEED_TRY(L, heed_linear_int8(lheed_get(L)->context, x, weight, scale, bias, out));
  return lheed_return(L, 1);
}

/* quantize_int8(x): weight, scale */
static int op_quantize_int8(lua_State *L) {
  lheed_arguments(L, "quantize_int8", 1);
  heed_tensor **weight = lheed_push_tensor(L), **scale = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "quantize_int8", "x");
  LHEED_TRY(L, heed_quantize_int8(lheed_get(L)->context, x, weight, scale));
  return lheed_return(L, 2);
}

/* A function of two tensors. */
static int of_two(lua_State *L, const char *function, const char *a_name, const char *b_name,
                  heed_status (*call)(heed_context *, const heed_tensor *, const heed_tensor *,
                                      heed_tensor **)) {
  lheed_arguments(L, function, 2);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *a = lheed_tensor(L, 1, function, a_name), *b = lheed_tensor(L, 2, function, b_name);
  LHEED_TRY(L, call(lheed_get(L)->context, a, b, out));
  return lheed_return(L, 1);
}

/* dequantize_int8(weight, scale) */
static int op_dequantize_int8(lua_State *L) {
  return of_two(L, "dequantize_int8", "weight", "scale", heed_dequantize_int8);
}

/* embedding(ids, weight) */
static int op_embedding(lua_State *L) {
  lheed_arguments(L, "embedding", 2);
  lheed_indices(L, 1, "embedding", "ids", false);
  return of_two(L, "embedding", "ids", "weight", heed_embedding);
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

/* rms_norm(x, weight, eps = 2^-23), over the last dimension; PyTorch's default */
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

/* For heed's own Lua files, which check the sizes: normalize(x, ndims, weight, bias, eps, function), over the
 * last ndims dimensions; function: "layer_norm" or "rms_norm" */
static int normalize(lua_State *L) {
  lheed_begin(L);
  lua_settop(L, 6);
  heed_tensor **out = lheed_push_tensor(L);
  const char *function = lua_tostring(L, 6);
  const bool centred = function != NULL && strcmp(function, "layer_norm") == 0;
  if (!centred) function = "rms_norm";
  const int ndims = (int)lheed_integer(L, 2, function, "normalized_shape");
  const double epsilon = lheed_number(L, 5, function, "eps");
  heed_context *ctx = lheed_get(L)->context;
  const heed_tensor *x = lheed_tensor(L, 1, function, "input");
  const heed_tensor *weight = lheed_opt_tensor(L, 3, function, "weight");
  const heed_tensor *bias = lheed_opt_tensor(L, 4, function, "bias");
  LHEED_TRY(L, centred ? heed__layer_norm(ctx, function, x, ndims, weight, bias, epsilon, out)
                       : heed__rms_norm(ctx, function, x, ndims, weight, epsilon, out));
  return lheed_return(L, 1);
}

static int64_t head_count(const heed_tensor *x, bool packed) {
  return x->ndim < 3 ? 1 : x->shape[x->ndim - (packed ? 2 : 3)];
}

heed_window lheed_opt_window(lua_State *L, int idx, const char *function) {
  heed_window window = {0};
  if (lua_isnoneornil(L, idx)) return window;
  if (!lua_istable(L, idx)) lheed_bad_argument(L, idx, function, "window", "a table {left =, right =}");
  luaL_checkstack(L, 4, function);
  lua_pushnil(L);
  while (lua_next(L, idx)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    const bool left = strcmp(key, "left") == 0;
    if (!left && strcmp(key, "right") != 0)
      lheed_error(L, "%s: window has the key %s; its keys must be left and right", function,
                  lheed_push_key(L, lua_gettop(L) - 1));
    const int64_t size =
        lheed_integer(L, lua_gettop(L), function, left ? "the window's left" : "the window's right");
    *(left ? &window.left : &window.right) = size;
    *(left ? &window.has_left : &window.has_right) = true;
    lua_pop(L, 1);
  }
  return window;
}

/* The options that attention has in all its forms, in the slots from `first` on. */
#define ATTENTION_OPTIONS                                                                                    \
  "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa", "generator", "window", "softcap",            \
      "kv_lengths", "past_key", "past_value", "alibi_slopes", "sinks"
enum { WINDOW_SLOT = 6, KV_LENGTHS_SLOT = 8, ATTENTION_FURTHER = 13 /* the slot after them */ };

/* Of these options, those that take more than reading: before the results are pushed. */
static heed_window read_attention_lists(lua_State *L, const char *function, int first) {
  luaL_checkstack(L, 16, function);
  const heed_window window = lheed_opt_window(L, first + WINDOW_SLOT, function);
  lheed_opt_indices(L, first + KV_LENGTHS_SLOT, function, "kv_lengths");
  return window;
}

static heed_attention_options attention_options(lua_State *L, int first, const char *function,
                                                heed_window window) {
  const heed_mask *mask;
  heed_attention_options options = {
      .size = sizeof options,
      .attn_mask = lheed_opt_attn_mask(L, first, function, &mask),
      .dropout_p = lheed_opt_number(L, first + 1, function, "dropout_p", 0),
      .is_causal = lheed_opt_boolean(L, first + 2, function, "is_causal", false),
      .scale = lheed_opt_number(L, first + 3, function, "scale", 0),
      .generator = lheed_opt_generator(L, first + 5, function),
      .window = window,
      .softcap = lheed_opt_number(L, first + 7, function, "softcap", 0),
      .kv_lengths = lheed_opt_tensor(L, first + KV_LENGTHS_SLOT, function, "kv_lengths"),
      .past_key = lheed_opt_tensor(L, first + 9, function, "past_key"),
      .past_value = lheed_opt_tensor(L, first + 10, function, "past_value"),
      .alibi_slopes = lheed_opt_tensor(L, first + 11, function, "alibi_slopes"),
      .sinks = lheed_opt_tensor(L, first + 12, function, "sinks"),
  };
  options.mask = mask;
  /* In C, 0 is the default; in Lua a scale of 0 makes all scores 0. */
  if (!lua_isnil(L, first + 3) && options.scale == 0) options.scale = DBL_MIN;
  return options;
}

/* The arguments q, k and v, which agree with enable_gqa: grouped heads work without it; enable_gqa = false
 * forbids them. */
static void read_heads(lua_State *L, const char *function, int first, bool packed, const heed_tensor *x[3]) {
  static const char *const names[] = {"q", "k", "v"};
  int64_t heads[3];
  for (int i = 0; i < 3; i++) {
    x[i] = lheed_tensor(L, i + 1, function, names[i]);
    heads[i] = head_count(x[i], packed);
  }
  if (lheed_opt_boolean(L, first + 4, function, "enable_gqa", true)) return;
  if ((heads[1] != 1 && heads[1] != heads[0]) || (heads[2] != 1 && heads[2] != heads[0]))
    lheed_error(
        L, "%s: q has %I head%s, k has %I and v has %I; with enable_gqa = false these numbers must be equal",
        function, (LUAI_UACINT)heads[0], HEED__S(heads[0]), (LUAI_UACINT)heads[1], (LUAI_UACINT)heads[2]);
}

/* Calls attention on the arguments q, k and v, with the options from `first` on and, if packed, lengths and
 * key_lengths before them: the result and, with need_weights, a table of taps. */
static int call_attention_of(lua_State *L, const char *function, int first, bool packed) {
  static const char *const tap_names[] = {
      "logits", "capped_logits", "biased_logits", "weights", "present_key", "present_value", NULL};
  const heed_window window = read_attention_lists(L, function, first);
  if (packed) {
    lheed_indices(L, 4, function, "lengths", false);
    lheed_opt_indices(L, 5, function, "key_lengths");
  }
  heed_taps_wanted choice;
  const heed_taps_wanted *chosen;
  const bool tapped = lheed_read_wanted(L, first + ATTENTION_FURTHER, first + ATTENTION_FURTHER + 1, function,
                                        tap_names, &choice, &chosen);
  heed_tensor **out = lheed_push_tensor(L);
  const int output = lua_gettop(L);
  heed_attention_taps taps = {.size = sizeof taps};
  lheed_tap_boxes boxes;
  if (tapped) lheed_push_tap_boxes(L, &boxes);
  const heed_tensor *x[3];
  heed_attention_options options = attention_options(L, first, function, window);
  options.wanted = chosen;
  read_heads(L, function, first, packed, x);
  heed_context *ctx = lheed_get(L)->context;
  if (packed)
    LHEED_TRY(L, heed_varlen_attention(ctx, x[0], x[1], x[2], lheed_tensor(L, 4, function, "lengths"),
                                       lheed_opt_tensor(L, 5, function, "key_lengths"), &options, out,
                                       tapped ? &taps : NULL));
  else
    LHEED_TRY(L,
              heed_scaled_dot_product_attention(ctx, x[0], x[1], x[2], &options, out, tapped ? &taps : NULL));
  if (!tapped) return lheed_return(L, 1);
  lua_pushvalue(L, output);
  lheed_push_taps(L, &boxes, &taps);
  return lheed_return(L, 2);
}

/* scaled_dot_product_attention(q, k, v, attn_mask, dropout_p = 0, is_causal = false, scale, enable_gqa,
 * generator, …) */
static int op_attention(lua_State *L) {
  static const char function[] = "scaled_dot_product_attention";
  static const char *const names[] = {ATTENTION_OPTIONS, "need_weights", "need_lse", NULL};
  if (lheed_redirect(L, function)) return lheed_call_all(L);
  lheed_options(L, function, 4, names);
  return call_attention_of(L, function, 4, false);
}

/* varlen_attention(q, k, v, lengths, key_lengths, …) */
static int op_varlen_attention(lua_State *L) {
  static const char function[] = "varlen_attention";
  static const char *const names[] = {"lengths",      "key_lengths", ATTENTION_OPTIONS,
                                      "need_weights", "need_lse",    NULL};
  if (lheed_redirect(L, function)) return lheed_call_all(L);
  lheed_options(L, function, 4, names);
  return call_attention_of(L, function, 6, true);
}

/* attention_partial(q, k, v, the same options, offset = 0): out, stats */
static int op_attention_partial(lua_State *L) {
  static const char function[] = "attention_partial";
  static const char *const names[] = {ATTENTION_OPTIONS, "offset", NULL};
  lheed_options(L, function, 4, names);
  const heed_window window = read_attention_lists(L, function, 4);
  const int64_t offset = lheed_opt_integer(L, 4 + ATTENTION_FURTHER, function, "offset", 0);
  heed_tensor **out = lheed_push_tensor(L), **stats = lheed_push_tensor(L);
  const heed_tensor *x[3];
  const heed_attention_options options = attention_options(L, 4, function, window);
  read_heads(L, function, 4, false, x);
  LHEED_TRY(L, heed_attention_partial(lheed_get(L)->context, x[0], x[1], x[2], &options, offset, out, stats));
  return lheed_return(L, 2);
}

#if !HEED_MINIMAL
/* attention_part_backward(q, k, v, the same options, offset, out, lse, dout, of_slopes) → the gradients of q,
 * k, v, attn_mask and, if of_slopes, alibi_slopes: what these keys contribute to those of attention over all
 * keys, which gave out and lse. lse and dout are contiguous. For heed's own Lua files. */
static int attention_part_backward(lua_State *L) {
  static const char function[] = "attention_partial";
  static const char *const names[] = {ATTENTION_OPTIONS, "offset", "out", "lse", "dout", "of_slopes", NULL};
  static const heed__attention_input inputs[] = {HEED__ATTENTION_q, HEED__ATTENTION_k, HEED__ATTENTION_v,
                                                 HEED__ATTENTION_attn_mask, HEED__ATTENTION_alibi_slopes};
  enum { OFFSET = 4 + ATTENTION_FURTHER, OUTPUT, LSE, DOUT, OF_SLOPES, GRADIENTS = 5 };
  lheed_begin(L);
  lheed_options(L, function, 4, names);
  const heed_window window = read_attention_lists(L, function, 4);
  const int64_t offset = lheed_opt_integer(L, OFFSET, function, "offset", 0);
  heed_tensor **box[GRADIENTS], *dx[HEED__ATTENTION_GRADIENTS];
  for (int i = 0; i < GRADIENTS; i++) box[i] = lheed_push_tensor(L);
  const heed_tensor *x[3];
  const heed_attention_options options = attention_options(L, 4, function, window);
  const heed__attention_saved saved = {.out = lheed_tensor(L, OUTPUT, function, "out"),
                                       .lse = lheed_tensor(L, LSE, function, "lse")};
  read_heads(L, function, 4, false, x);
  unsigned wanted = 1u << HEED__ATTENTION_q | 1u << HEED__ATTENTION_k | 1u << HEED__ATTENTION_v;
  if (options.attn_mask) wanted |= 1u << HEED__ATTENTION_attn_mask;
  if (lua_toboolean(L, OF_SLOPES)) wanted |= 1u << HEED__ATTENTION_alibi_slopes;
  LHEED_TRY(L, heed__attention_part_backward(lheed_get(L)->context, x[0], x[1], x[2], &options, offset,
                                             &saved, lheed_tensor(L, DOUT, function, "dout"), wanted, dx));
  for (int i = 0; i < GRADIENTS; i++) *box[i] = dx[inputs[i]];
  for (int i = 0; i < GRADIENTS; i++) {
    if (*box[i]) continue;
    lua_pushnil(L);
    lua_replace(L, i - GRADIENTS - 1);
  }
  return lheed_return(L, GRADIENTS);
}
#endif

/* Stores the tensors of the list at idx, a copy, in the array. */
static void read_parts(lua_State *L, int idx, const char *function, const char *argument, lua_Unsigned count,
                       const heed_tensor **parts) {
  for (lua_Unsigned i = 0; i < count; i++) {
    lheed_own_element(L, idx, i);
    const lheed_box *box = lheed_test(L, lua_gettop(L), &lheed_tensor_type);
    if (!box || !box->object) {
      const char *what = lheed_push_what(L, lua_gettop(L));
      lheed_error(L, "%s: %s[%I] is %s; it must be a tensor", function, argument, (LUAI_UACINT)i + 1, what);
    }
    parts[i] = box->object;
    lua_pop(L, 1);
  }
}

/* attention_merge({outs…}, {stats…}): out, stats */
static int op_attention_merge(lua_State *L) {
  static const char function[] = "attention_merge";
  static const char *const names[] = {"outs", "stats"};
  lheed_arguments(L, function, 2);
  lua_Unsigned count[2];
  for (int i = 0; i < 2; i++) {
    if (lua_type(L, i + 1) != LUA_TTABLE)
      lheed_bad_argument(L, i + 1, function, names[i], "a table of tensors, as in {a, b}");
    count[i] = lheed_own_list(L, i + 1, function);
  }
  if (count[0] != count[1] || count[0] == 0 || count[0] > INT32_MAX)
    lheed_error(L, "%s: outs has %I tensor%s and stats has %I; the numbers must be equal and at least 1",
                function, (LUAI_UACINT)count[0], HEED__S(count[0]), (LUAI_UACINT)count[1]);
  heed_tensor **out = lheed_push_tensor(L), **stats = lheed_push_tensor(L);
  const heed_tensor **parts = lua_newuserdatauv(L, heed__array_bytes(2 * count[0], sizeof *parts), 0);
  for (int i = 0; i < 2; i++)
    read_parts(L, i + 1, function, names[i], count[0], parts + (size_t)i * (size_t)count[0]);
  LHEED_TRY(L,
            heed_attention_merge(lheed_get(L)->context, (int)count[0], parts, parts + count[0], out, stats));
  lua_pop(L, 1);
  return lheed_return(L, 2);
}

void lheed_open_layers(lua_State *L) {
  static const luaL_Reg functions[] = {{"linear", op_linear},
                                       {"linear_int8", op_linear_int8},
                                       {"quantize_int8", op_quantize_int8},
                                       {"dequantize_int8", op_dequantize_int8},
                                       {"embedding", op_embedding},
                                       {"layer_norm", op_layer_norm},
                                       {"rms_norm", op_rms_norm},
                                       {"scaled_dot_product_attention", op_attention},
                                       {"attention_partial", op_attention_partial},
                                       {"attention_merge", op_attention_merge},
                                       {"varlen_attention", op_varlen_attention},
                                       {NULL, NULL}};
  static const luaL_Reg primitives[] = {
    {"normalize", normalize},
#if !HEED_MINIMAL
    {"attention_part_backward", attention_part_backward},
#endif
    {NULL, NULL}
  };
  lheed_add_methods(L, functions, false);
  lheed_add(L, "modules", primitives);
  lheed_add_transparent(L, op_attention);
  lheed_add_transparent(L, op_varlen_attention);
}
