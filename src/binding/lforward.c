/* Calling built-in modules: m(x, options). */
#include <string.h>

#include "lmodule.h"

heed_forward_options lheed_forward_options(lua_State *L, int first, const char *function) {
  const heed_mask *mask;
  enum {
    ATTN_MASK,
    PADDING_MASK,
    NEED_WEIGHTS,
    GENERATOR_SLOT,
    KV_LENGTHS,
    KEY,
    VALUE,
    CACHE,
    NEED_LSE,
    LENGTHS,
    KEY_LENGTHS
  };
  heed_forward_options options = {
      .size = sizeof(heed_forward_options),
      .attn_mask = lheed_opt_attn_mask(L, first + ATTN_MASK, function, &mask),
      .key_padding_mask = lheed_opt_tensor(L, first + PADDING_MASK, function, "key_padding_mask"),
      .generator = lheed_opt_generator(L, first + GENERATOR_SLOT, function),
      .kv_lengths = lheed_opt_tensor(L, first + KV_LENGTHS, function, "kv_lengths"),
      .key = lheed_opt_tensor(L, first + KEY, function, "key"),
      .value = lheed_opt_tensor(L, first + VALUE, function, "value"),
      .cache = lheed_opt_cache(L, first + CACHE, function, "cache"),
      .lengths = lheed_opt_tensor(L, first + LENGTHS, function, "lengths"),
      .key_lengths = lheed_opt_tensor(L, first + KEY_LENGTHS, function, "key_lengths"),
  };
  options.mask = mask;
  return options;
}

void lheed_forward_arguments(lua_State *L, int first, const char *function, const char *const *names) {
  const heed_module *m = lheed_test_module(L, 1);
  const lheed_box *second = lua_gettop(L) < first ? NULL : lheed_test(L, first, &lheed_tensor_type);
  if (m && second) {
    const char *what = lheed_push_what(L, first);
    if (m->class->takes_keys)
      lheed_error(L,
                  "%s: the second argument is %s; it must be a table of options: {key = y} to attend to "
                  "other tokens, "
                  "{attn_mask = y} for a mask",
                  function, what);
    if (m->class->attends)
      lheed_error(L, "%s: the second argument is %s; it must be a table of options, such as {attn_mask = y}",
                  function, what);
    lheed_error(L, "%s: the second argument is %s; there must be only one tensor, the input x", function,
                what);
  }
  lheed_options(L, function, first, names);
  static const char *const of_indices[] = {"kv_lengths", "lengths", "key_lengths"};
  for (int i = 0; i < 3; i++) {
    int at = first;
    while (strcmp(names[at - first], of_indices[i]) != 0) at++;
    lheed_opt_indices(L, at, function, of_indices[i]);
  }
}

/* Whether the forward of m calls modules of other classes, perhaps in Lua. */
static bool calls_own(const heed_module *m) {
  return m->class->attends && heed__holds_own(m);
}

/* Replaces the tensors in the slots from first to last by others on the same elements: modules in Lua may
 * release those that the script has. */
static void keep_tensors(lua_State *L, int first, int last, const char *class) {
  for (int i = first; i <= last; i++) {
    if (!lheed_test(L, i, &lheed_tensor_type)) continue;
    heed_tensor **box = lheed_push_tensor(L);
    LHEED_TRY(L, heed__tensor_from_view(lheed_get(L)->context, class, lheed_tensor(L, i, class, "x"), box));
    lua_replace(L, i);
  }
}

enum { FORWARD_INPUT = 2, FORWARD_OPTIONS };

/* With options. Not inline: plain calls would pay for the space on the stack. */
static __attribute__((noinline)) int forward_with_options(lua_State *L, const char *class) {
  static const char *const names[] = {LHEED_FORWARD_NAMES, NULL};
  lheed_forward_arguments(L, FORWARD_OPTIONS, class, names);
  heed_taps_wanted choice;
  const heed_taps_wanted *chosen = NULL;
  const bool wanted =
      lheed_read_wanted(L, FORWARD_OPTIONS + LHEED_NEED_WEIGHTS, FORWARD_OPTIONS + LHEED_NEED_LSE, class,
                        lheed_module_taps, &choice, &chosen);
  if (strcmp(class, "Embedding") == 0) lheed_indices(L, FORWARD_INPUT, class, "ids", false);
  if (calls_own(lheed_self(L, "forward")))
    keep_tensors(L, FORWARD_INPUT, FORWARD_OPTIONS + LHEED_FORWARD_OPTIONS - 1, class);
  heed_tensor **out = lheed_push_tensor(L);
  const int output = lua_gettop(L);
  lheed_tap_boxes boxes;
  if (wanted) lheed_push_tap_boxes(L, &boxes);
  heed_module *m = lheed_self(L, "forward");
  const heed_tensor *x = lheed_tensor(L, FORWARD_INPUT, class, "x");
  heed_forward_options options = lheed_forward_options(L, FORWARD_OPTIONS, class);
  options.wanted = chosen;
  heed_attention_taps taps = {.size = sizeof taps};
  lheed_call_forward(L, m, x, &options, out, wanted ? &taps : NULL);
  if (!wanted) return lheed_return(L, 1);
  lua_pushvalue(L, output);
  lheed_push_taps(L, &boxes, &taps);
  return lheed_return(L, 2);
}

static int forward_in_c(lua_State *L) {
  lheed_begin(L);
  const char *class = heed_module_class(lheed_self(L, "forward"));
  if (lua_gettop(L) > FORWARD_INPUT) return forward_with_options(L, class);
  lua_settop(L, FORWARD_INPUT);
  if (strcmp(class, "Embedding") == 0) lheed_indices(L, FORWARD_INPUT, class, "ids", false);
  if (calls_own(lheed_self(L, "forward"))) keep_tensors(L, FORWARD_INPUT, FORWARD_INPUT, class);
  heed_tensor **out = lheed_push_tensor(L);
  heed_module *m = lheed_self(L, "forward");
  const heed_tensor *x = lheed_tensor(L, FORWARD_INPUT, class, "x");
  const heed_forward_options options = {.size = sizeof options};
  lheed_call_forward(L, m, x, &options, out, NULL);
  return lheed_return(L, 1);
}

/* read_forward(wrapper, x, options…) → x and the options by position, checked, on the same elements as the
 * given tensors, which listeners may release */
static int read_forward(lua_State *L) {
  static const char *const names[] = {LHEED_FORWARD_NAMES, NULL};
  lheed_begin(L);
  const char *class = heed_module_class(lheed_self(L, "forward"));
  lheed_forward_arguments(L, FORWARD_OPTIONS, class, names);
  lua_settop(L, FORWARD_OPTIONS + LHEED_FORWARD_OPTIONS - 1);
  heed_taps_wanted choice;
  const heed_taps_wanted *chosen = NULL;
  lua_pushvalue(L, FORWARD_OPTIONS + LHEED_NEED_WEIGHTS); /* its lists are replaced */
  lua_pushvalue(L, FORWARD_OPTIONS + LHEED_NEED_LSE);
  const int wanted = lua_gettop(L) - 1;
  const bool taps = lheed_read_wanted(L, wanted, wanted + 1, class, lheed_module_taps, &choice, &chosen);
  keep_tensors(L, FORWARD_INPUT, FORWARD_OPTIONS + LHEED_FORWARD_OPTIONS - 1, class);
  const heed_module *m = lheed_self(L, "forward");
  if (!m->class->attends) lheed_bad_argument(L, 1, "forward", "self", "an attention module");
  const heed__attention_module *a = (const heed__attention_module *)m;
  heed_forward_options given = lheed_forward_options(L, FORWARD_OPTIONS, class), own;
  const heed_forward_options *options = &given;
  LHEED_TRY(L, heed__module_read_options(m, &options, &own, taps));
  const heed_tensor *x = lheed_tensor(L, FORWARD_INPUT, class, "x");
  LHEED_TRY(L, options->cache ? heed__attention_check_input(m, x, options)
                              : heed__attention_check_forward((heed_module *)m, x, options));
  heed_context *ctx = lheed_get(L)->context;
  int64_t *heads = NULL, count;
  LHEED_TRY(L, heed__wanted_heads(ctx, class, chosen, a->num_heads, &heads, &count));
  heed__release(ctx, heads);
  lua_settop(L, FORWARD_OPTIONS + LHEED_FORWARD_OPTIONS - 1);
  return lheed_return(L, LHEED_FORWARD_OPTIONS + 1);
}

/* Runs the forward pass in C, or by heed.nn.own[name] if hooks, modules in Lua or a function that computes
 * attention take part. */
static int forward_by(lua_State *L, const char *name) {
  const heed_module *m = lheed_test_module(L, 1);
  const bool redirected = m && m->class->attends && lheed_redirects(L);
  if (!m || (!redirected && !heed__holds_watched(m) && !calls_own(m))) return forward_in_c(L);
  lheed_require(L, "heed.nn.own");
  lua_getfield(L, -1, name);
  lua_remove(L, -2);
  lua_insert(L, 1);
  return lheed_call_all(L);
}

/* m:forward(x, options) → y, or y and a table of taps. */
static int forward(lua_State *L) {
  return forward_by(L, "forward");
}

/* The same for m(x, options), which calls the hooks of m. */
static int call_module(lua_State *L) {
  return forward_by(L, "call");
}

void lheed_open_forward(lua_State *L) {
  static const luaL_Reg primitives[] = {
      {"forward", forward_in_c}, {"read_forward", read_forward}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"forward", forward}, {NULL, NULL}};
  static const luaL_Reg metamethods[] = {{"__call", call_module}, {NULL, NULL}};
  lheed_add_module_methods(L, methods);
  lheed_add_metamethods(L, &lheed_module_type, metamethods);
  lheed_add(L, "modules", primitives);
  lheed_add_transparent(L, forward);
  lheed_add_transparent(L, call_module);
}
