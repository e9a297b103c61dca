/* Built-in modules in Lua: their boxes, their entries, and what lua/heed/nn builds on to treat them like
 * modules written in Lua. (Made in lconstruct.c, called in lforward.c, their fields in lfields.c.) */
#include "lmodule.h"

#include <stddef.h>
#include <string.h>

/* Registry keys. boxes: module pointer → box, with weak values, so that a module has one box at a time and
 * m.W_query == m.W_query. methods: those that all modules share. */
static const char boxes_key = 0, module_methods_key = 0;

/* ---- Boxes of modules ---- */

static void release_module(void *object) {
  heed_module_release(object);
}

static void describe_module(lua_State *L, const void *object) {
  lua_pushfstring(L, "a module (%s)", heed_module_class(object));
}

const lheed_type lheed_module_type = {"Module", "module", release_module, describe_module};

heed_module *lheed_test_module(lua_State *L, int idx) {
  lheed_box *box = lheed_test(L, idx, &lheed_module_type);
  return box ? box->object : NULL;
}

heed_module *lheed_check_module(lua_State *L, int idx, const char *function) {
  heed_module *m = lheed_test_module(L, idx);
  if (!m) lheed_bad_argument(L, idx, function, "module", "a built-in module");
  return m;
}

heed_module *lheed_self(lua_State *L, const char *function) {
  heed_module *m = lheed_test_module(L, 1);
  if (!m) {
    const char *what = lheed_push_what(L, 1);
    lheed_error(L, "%s: self is %s; it must be a built-in module (methods are called with a colon)", function,
                what);
  }
  return m;
}

heed_module **lheed_push_module(lua_State *L) {
  return (heed_module **)lheed_push_box(L, &lheed_module_type);
}

void lheed_remember_module(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &boxes_key);
  lua_pushvalue(L, -2);
  lua_rawsetp(L, -2, lheed_test_module(L, lua_gettop(L)));
  lua_pop(L, 1);
}

/* Pushes the box of m if there is one; allocates nothing. */
static bool push_known_box(lua_State *L, const heed_module *m) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &boxes_key);
  bool known = lua_rawgetp(L, -1, m) != LUA_TNIL;
  lua_remove(L, -2);
  if (!known) lua_pop(L, 1);
  return known;
}

/* A tensor that shares the elements of a parameter; OK and *out NULL if m has no such parameter. */
static heed_status alias_parameter(const heed_module *m, const char *name, heed_tensor **out) {
  const heed__slot *slot = heed__module_slot(m, name);
  return slot ? heed__tensor_from_view(heed_module_context(m), heed_module_class(m), slot->parameter, out)
              : HEED_OK;
}

static bool push_parameter(lua_State *L, const heed_module *m, const char *name) {
  heed_tensor **box = lheed_push_tensor(L);
  LHEED_TRY(L, alias_parameter(m, name, box));
  if (*box) {
    heed_tensor_set_parameter(*box, true);
    return true;
  }
  lua_pop(L, 1);
  return false;
}

/* Pushes the box of m, or the module in Lua that it stands for; allocates nothing. */
static bool push_known(lua_State *L, const heed_module *m) {
  return lheed_is_own(L, m) ? lheed_push_own(L, m) : push_known_box(L, m);
}

/* Keeps the box on top of the stack, of a part, alive with that of m, so that hooks on the part remain. */
static void anchor_part(lua_State *L, const heed_module *m, const char *name) {
  const heed_module *part = lheed_test_module(L, lua_gettop(L));
  const int value = lua_gettop(L);
  if (!part || !push_known_box(L, m)) return;
  lheed_anchor(L, value + 1, name, value);
  lua_settop(L, value);
}

/* There always is a module: heed_module_set_module replaces, and nothing removes. */
static void push_part(lua_State *L, const heed_module *m, const char *name) {
  if (push_known(L, heed__module_part(m, name))) return;
  heed_module **box = lheed_push_module(L);
  heed_module *part = heed__module_part(m, name);
  if (push_known(L, part)) { /* a finalizer pushed it, or replaced the module */
    lua_remove(L, -2);
    return;
  }
  *box = heed_module_retain(part);
  lheed_remember_module(L);
  anchor_part(L, m, name);
}

void lheed_push_part(lua_State *L, heed_module *part) {
  if (push_known(L, part)) return;
  heed_module **box = lheed_push_module(L);
  if (push_known(L, part)) {
    lua_remove(L, -2);
    return;
  }
  *box = heed_module_retain(part);
  lheed_remember_module(L);
}

bool lheed_push_entry(lua_State *L, const heed_module *m, const char *name) {
  const heed__slot *slot = heed__module_slot(m, name);
  if (!slot) return false;
  if (slot->kind == HEED_ENTRY_PARAMETER) return push_parameter(L, m, name);
  push_part(L, m, name);
  return true;
}

int lheed_entry_index(const heed_module *m, const char *name) {
  heed__slot *slot = heed__module_slot(m, name);
  return slot ? (int)(slot - m->slots) + 1 : 0;
}

bool lheed_read_entry_name(const heed_module *m, int i, lheed_entry_name name) {
  heed_entry entry;
  if (!heed_module_entry(m, i, &entry)) return false;
  memcpy(name, entry.name, strlen(entry.name) + 1);
  return true;
}

/* nn.Parameter(data, requires_grad = true): a leaf on the same elements, which modules list among their
 * parameters. */
static int new_parameter(lua_State *L) {
  static const char *const names[] = {"requires_grad", NULL};
  lheed_options(L, "Parameter", 2, names);
  const bool wants = lheed_opt_boolean(L, 2, "Parameter", "requires_grad", true);
  heed_tensor **box = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "Parameter", "data");
  if (heed_tensor_dtype(x) != HEED_FLOAT32)
    return lheed_error(L, "Parameter: data is %s; it must be float32", heed_dtype_name(heed_tensor_dtype(x)));
  heed_tensor view;
  heed__alias_on_stack(&view, x);
  view.detached = true;
  LHEED_TRY(L, heed__tensor_from_view(lheed_get(L)->context, "Parameter", &view, box));
  heed_tensor_set_parameter(*box, true);
  if (heed_tensor_requires_grad(*box) != wants) LHEED_TRY(L, heed_tensor_require_grad(*box, wants));
  return lheed_return(L, 1);
}

/* mha:head(i) → {W_query =, W_key =, W_value =}, views of the weights. */
static int head(lua_State *L) {
  lheed_begin(L);
  lua_settop(L, 2);
  heed_tensor **query = lheed_push_tensor(L), **key = lheed_push_tensor(L), **value = lheed_push_tensor(L);
  heed_module *m = lheed_self(L, "head");
  int64_t i = lheed_integer(L, 2, "head", "i");
  LHEED_TRY(L, heed_module_head(m, i, query, key, value));
  lua_createtable(L, 0, 3);
  lua_insert(L, 3);
  lua_setfield(L, 3, "W_value");
  lua_setfield(L, 3, "W_key");
  lua_setfield(L, 3, "W_query");
  return lheed_return(L, 1);
}

/* mha:split() → a MultiHeadAttentionWrapper that shares the weights. */
static int split(lua_State *L) {
  lheed_begin(L);
  lua_settop(L, 1);
  heed_module **box = lheed_push_module(L);
  heed_module *m = lheed_self(L, "split");
  LHEED_TRY(L, heed_module_split(m, box));
  lheed_remember_module(L);
  return lheed_return(L, 1);
}

/* ---- What lua/heed/nn builds on ---- */

/* class_name(m) */
static int class_name(lua_State *L) {
  lua_pushstring(L, heed_module_class(lheed_self(L, "class_name")));
  return 1;
}

/* describe(m): what repr shows between the parentheses */
static int describe(lua_State *L) {
  char text[512];
  heed_module_describe(lheed_self(L, "extra_repr"), text, sizeof text);
  lua_pushstring(L, text);
  return 1;
}

/* The number of the entry after `name`, which was number i before entries may have been added or removed. */
static int next_entry(const heed_module *m, const char *name, int i) {
  heed_entry entry;
  if (heed_module_entry(m, i, &entry) && strcmp(entry.name, name) == 0) return i + 1;
  const int now = lheed_entry_index(m, name);
  return now ? now + 1 : i;
}

/* entries(m): {{name =, value =, kind = "parameter" or "module"}, …} in order. Finalizers may change the
 * module meanwhile: entries that it never had are not listed, and none is listed twice. */
static int entries(lua_State *L) {
  const heed_module *m = lheed_self(L, "entries");
  lheed_entry_name name;
  lua_Integer count = 0;
  lua_createtable(L, heed_module_entry_count(m), 0);
  for (int i = 1; lheed_read_entry_name(m, i, name); i = next_entry(m, name, i)) {
    const bool is_part = heed__module_part(m, name) != NULL;
    if ((i & 0x3ff) == 0) lheed_check_cancel(L, heed_module_class(m));
    lua_createtable(L, 0, 3);
    if (!lheed_push_entry(L, m, name)) {
      lua_pop(L, 1);
      continue;
    }
    lua_setfield(L, -2, "value");
    lua_pushstring(L, name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, is_part ? "module" : "parameter");
    lua_setfield(L, -2, "kind");
    lua_rawseti(L, -2, ++count);
  }
  return lheed_return(L, 1);
}

/* kind(v): "parameter", "tensor" or "module"; nil for other values and for released ones */
static int kind_of(lua_State *L) {
  lua_settop(L, 1);
  lheed_box *box = lheed_test(L, 1, &lheed_tensor_type);
  if (box && box->object) {
    lua_pushstring(L, heed_tensor_is_parameter(box->object) ? "parameter" : "tensor");
  } else if (lheed_test_module(L, 1)) {
    lua_pushliteral(L, "module");
  } else {
    lua_pushnil(L);
  }
  return 1;
}

/* refuse_second_result(function, v): raises if v is the table that a forward with need_weights returns second
 */
static int refuse_second_result(lua_State *L) {
  lua_settop(L, 2);
  if (lua_type(L, 1) != LUA_TSTRING)
    return lheed_bad_argument(L, 1, "refuse_second_result", "function", "a string");
  lheed_refuse_second_result(L, lua_tostring(L, 1), 2);
  return 0;
}

/* train(m, mode) */
static int train(lua_State *L) {
  heed_module_train(lheed_self(L, "train"), lua_toboolean(L, 2));
  return 0;
}

/* attached(m, create): the table that lua/heed/nn/attached.lua keeps with a built-in module; nil, if there is
 * none and `create` is false */
static int attached(lua_State *L) {
  lua_settop(L, 2);
  lheed_self(L, "attached");
  const bool create = lua_toboolean(L, 2);
  if (!lheed_push_attached(L, 1, create)) return 0;
  if (lua_rawgeti(L, 3, 1) != LUA_TNIL || !create) return 1;
  lua_createtable(L, 0, 2);
  lua_pushvalue(L, -1);
  lua_rawseti(L, 3, 1);
  return 1;
}

/* watch(m, delta): adds to the number of listeners, for which the forward pass of m, and of modules that hold
 * it, goes through lua/heed/nn/own.lua */
static int watch(lua_State *L) {
  heed_module *m = lheed_self(L, "watch");
  heed__module_watch(m, (int)lheed_integer(L, 2, "watch", "delta"));
  return 0;
}

/* watched(m): the number of listeners of m; holds_watched(m): whether m or a part of it has some */
static int watched(lua_State *L) {
  lua_pushinteger(L, lheed_self(L, "watched")->watched);
  return 1;
}

static int holds_watched(lua_State *L) {
  lua_pushboolean(L, heed__holds_watched(lheed_self(L, "holds_watched")));
  return 1;
}

/* shallow_copy(m): a module of the same class and settings that shares the entries of m; m itself, if the
 * host implements it */
static int shallow_copy(lua_State *L) {
  lua_settop(L, 1);
  if (lheed_self(L, "clone")->class->release) return 1;
  heed_module **box = lheed_push_module(L);
  LHEED_TRY(L, heed__module_shallow_copy(lheed_self(L, "clone"), "clone", box));
  lheed_remember_module(L);
  return lheed_return(L, 1);
}

/* python_number(x): its text in Python, "1e-05" or "10.0" */
static int python_number(lua_State *L) {
  char text[HEED__NUMBER_TEXT];
  lua_pushstring(L, heed__python_number(text, lheed_number(L, 1, "python_number", "x")));
  return 1;
}

/* ---- Opening ---- */

void lheed_push_module_methods(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &module_methods_key);
}

void lheed_add_module_methods(lua_State *L, const luaL_Reg *methods) {
  lheed_push_module_methods(L);
  lheed_setfuncs(L, methods);
  lua_pop(L, 1);
}

/* Adds nn.Parameter, and `modules`, what lua/heed/nn builds on, to the library table. */
void lheed_open_modules(lua_State *L) {
  static const luaL_Reg metamethods[] = {{"__ipairs", lheed_ipairs}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"head", head}, {"split", split}, {NULL, NULL}};
  static const luaL_Reg primitives[] = {{"class_name", class_name},
                                        {"describe", describe},
                                        {"entries", entries},
                                        {"kind", kind_of},
                                        {"train", train},
                                        {"options", lheed_options_of},
                                        {"refuse_second_result", refuse_second_result},
                                        {"attached", attached},
                                        {"shallow_copy", shallow_copy},
                                        {"watch", watch},
                                        {"watched", watched},
                                        {"holds_watched", holds_watched},
                                        {"python_number", python_number},
                                        {NULL, NULL}};
  static const luaL_Reg functions[] = {{"Parameter", new_parameter}, {NULL, NULL}};
  lheed_new_type(L, &lheed_module_type, metamethods);
  lheed_new_weak(L, "v");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &boxes_key);
  lua_createtable(L, 0, 8);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &module_methods_key);
  lheed_add_module_methods(L, methods);
  lheed_add(L, "nn", functions);
  lheed_add(L, "modules", primitives);
}
