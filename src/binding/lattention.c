/* Settings of modules in Lua: those of a MultiHeadAttention that are tables, or may be nil, and changing
 * settings. */
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

static void push_window(lua_State *L, const heed_window *w) {
  lua_createtable(L, 0, 2);
  if (w->has_left) lheed_set_integer(L, "left", w->left);
  if (w->has_right) lheed_set_integer(L, "right", w->right);
}

/* Creating a table may run finalizers, which may change m: its settings are copied before. */
bool lheed_push_table_setting(lua_State *L, const heed_module *m, const char *name) {
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
    if (a->rotary) lheed_push_rope(L, &rope);
  } else {
    return false;
  }
  return true;
}

/* ---- Changing ---- */

static void set_table_setting(lua_State *L, heed_module *m, const char *name, int idx) {
  const char *class = heed_module_class(m);
  if (strcmp(name, "window") == 0) {
    const heed_window window = lheed_opt_window(L, idx, class);
    LHEED_TRY(L, heed_module_set_window(m, &window));
    return;
  }
  heed_rope_config rope;
  const bool rotary = !lua_isnil(L, idx);
  if (rotary) lheed_rope_config(L, idx, class, name, &rope);
  LHEED_TRY(L, heed_module_set_rope(m, rotary ? &rope : NULL));
}

bool lheed_set_setting(lua_State *L, heed_module *m, const char *name, int idx) {
  if (m->class->takes_keys && (strcmp(name, "window") == 0 || strcmp(name, "rope") == 0)) {
    set_table_setting(L, m, name, idx);
    return true;
  }
  const heed__setting *s = m->class->settings;
  while (s && s->name && strcmp(s->name, name) != 0) s++;
  if (!s || !s->name || !s->check) return false;
  const char *class = heed_module_class(m);
  const bool is_scale = s->kind == HEED__SETTING_SCALE, is_cap = strcmp(s->name, "softcap") == 0;
  heed_scalar value = heed_number(0);
  if (s->kind == HEED__SETTING_BOOLEAN) {
    if (!lua_isboolean(L, idx)) lheed_bad_argument(L, idx, class, name, "a boolean");
    value = heed_boolean(lua_toboolean(L, idx));
  } else if (s->kind == HEED__SETTING_INTEGER) {
    value = heed_integer(lheed_integer(L, idx, class, name));
  } else if (!lua_isnil(L, idx) || !(is_scale || is_cap)) {
    value = heed_number(lheed_number(L, idx, class, name));
    if (is_scale && value.as.number == 0) value = heed_number(DBL_MIN); /* in C, 0 is the default */
  }
  LHEED_TRY(L, heed_module_set_setting(m, s->name, value));
  return true;
}
