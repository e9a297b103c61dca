/* Settings of a MultiHeadAttention that are tables, or may be nil, in Lua: reading and pushing them. */
#include <float.h>
#include <string.h>

#include "../nn/nn.h"
#include "lheed.h"

void lheed_read_qk_norm(lua_State *L, int idx, const char *function, heed_attention_config *config) {
  static const char *const names[] = {"eps", NULL};
  const int top = lua_gettop(L);
  if (lua_isboolean(L, idx)) {
    config->qk_norm = lua_toboolean(L, idx);
    return;
  }
  if (lua_type(L, idx) != LUA_TTABLE) lheed_bad_argument(L, idx, function, "qk_norm", "a boolean or {eps =}");
  lua_pushvalue(L, idx);
  if (lheed_trailing_options(L, function, top + 1, names) > top)
    lheed_error(L, "%s: qk_norm is a list; it must be a boolean or {eps =}", function);
  config->qk_norm = true;
  config->qk_norm_eps = lheed_opt_number(L, top + 1, function, "qk_norm's eps", 0);
  /* In C, 0 is the default. */
  if (!lua_isnil(L, top + 1) && config->qk_norm_eps == 0) config->qk_norm_eps = DBL_MIN;
  lua_settop(L, top);
}

/* ---- Pushing ---- */

static void set_number(lua_State *L, const char *name, double value) {
  lua_pushnumber(L, value);
  lua_setfield(L, -2, name);
}

static void set_integer(lua_State *L, const char *name, int64_t value) {
  lua_pushinteger(L, (lua_Integer)value);
  lua_setfield(L, -2, name);
}

static void set_string(lua_State *L, const char *name, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, name);
}

static void push_scaling(lua_State *L, const heed_rope_config *c) {
  static const char *const types[] = {[HEED_ROPE_LINEAR] = "linear",
                                      [HEED_ROPE_NTK] = "ntk",
                                      [HEED_ROPE_YARN] = "yarn",
                                      [HEED_ROPE_LLAMA3] = "llama3"};
  lua_createtable(L, 0, 6);
  set_string(L, "type", types[c->scaling]);
  set_number(L, "factor", c->factor);
  if (c->original_context_length > 0) set_integer(L, "original_context_length", c->original_context_length);
  if (c->scaling == HEED_ROPE_YARN) {
    set_number(L, "beta_fast", c->beta_fast);
    set_number(L, "beta_slow", c->beta_slow);
    if (c->attention_factor != 0) set_number(L, "attention_factor", c->attention_factor);
  } else if (c->scaling == HEED_ROPE_LLAMA3) {
    set_number(L, "low_freq_factor", c->low_freq_factor);
    set_number(L, "high_freq_factor", c->high_freq_factor);
  }
}

static void push_rope(lua_State *L, const heed_rope_config *c) {
  lua_createtable(L, 0, 4);
  set_number(L, "base", c->base);
  set_string(L, "style", c->interleaved ? "interleaved" : "half");
  if (c->dims > 0) set_integer(L, "dims", c->dims);
  if (c->scaling == HEED_ROPE_UNSCALED) return;
  push_scaling(L, c);
  lua_setfield(L, -2, "scaling");
}

static void push_window(lua_State *L, const heed_window *w) {
  lua_createtable(L, 0, 2);
  if (w->has_left) set_integer(L, "left", w->left);
  if (w->has_right) set_integer(L, "right", w->right);
}

/* Creating a table may run finalizers, which may change m: its settings are copied before. */
bool lheed_push_variant(lua_State *L, const heed_module *m, const char *name) {
  if (!m->class->takes_keys) return false;
  const heed__attention_module *a = (const heed__attention_module *)m;
  const heed_window window = a->window;
  if (strcmp(name, "window") == 0) {
    lua_pushnil(L);
    if (window.has_left || window.has_right) push_window(L, &window);
  } else if (strcmp(name, "softcap") == 0) {
    lua_pushnil(L);
    if (a->softcap > 0) lua_pushnumber(L, a->softcap);
  } else if (strcmp(name, "rope") == 0) {
    const heed_rope_config rope = a->rope;
    lua_pushnil(L);
    if (a->rotary) push_rope(L, &rope);
  } else {
    return false;
  }
  return true;
}
