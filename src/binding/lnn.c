/* Built-in modules in Lua: their boxes, fields and calls (lconstruct.c makes them), and the primitives on
 * which lua/heed/nn builds what is the same for them and for modules written in Lua (parameters, state,
 * printing). */
#include <stddef.h>
#include <string.h>

#include "../nn/nn.h"
#include "lheed.h"

/* Keys in the registry. boxes: module pointer → box, with weak values, so that a module has one box at a time
 * and m.W_query == m.W_query. methods: what lua/heed/nn installs for all modules. */
static const char boxes_key = 0, module_methods_key = 0;

/* Where in the methods it stands that those in Lua are there. */
#define INSTALLED 1

/* A copy of the name of a module's entry. */
typedef char entry_name[sizeof((heed__slot *)0)->name];

/* ---- Boxes of modules ---- */

static heed_module *test_module(lua_State *L, int idx) {
  lheed_box *box = lheed_test(L, idx, &lheed_module_type);
  return box ? box->object : NULL;
}

static heed_module *check_self(lua_State *L, const char *function) {
  heed_module *m = test_module(L, 1);
  if (!m) {
    const char *what = lheed_push_what(L, 1);
    lheed_error(L, "%s: self must be a built-in module, got %s (methods are called with a colon)", function,
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
  lua_rawsetp(L, -2, test_module(L, lua_gettop(L)));
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

/* Another tensor on the elements of a parameter; none, and OK, where m has no such parameter. */
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

/* Modules come and go by heed_module_set_module alone, so there is always one. */
static void push_part(lua_State *L, const heed_module *m, const char *name) {
  if (push_known_box(L, heed__module_part(m, name))) return;
  heed_module **box = lheed_push_module(L);
  heed_module *part = heed__module_part(m, name);
  if (push_known_box(L, part)) { /* a finalizer asked for it, or put another one there */
    lua_remove(L, -2);
    return;
  }
  *box = heed_module_retain(part);
  lheed_remember_module(L);
}

/* Pushes the entry `name` of m, which the stack holds: a module's box, or a tensor that shares the
 * parameter's elements. Making a box may run finalizers, which may change the module; so an entry is known by
 * its name, which must not lie in the module, and looked up afterwards. False, and nothing is pushed, if
 * there is none, or none any more. */
static bool push_entry(lua_State *L, const heed_module *m, const char *name) {
  const heed__slot *slot = heed__module_slot(m, name);
  if (!slot) return false;
  if (slot->kind == HEED_ENTRY_PARAMETER) return push_parameter(L, m, name);
  push_part(L, m, name);
  return true;
}

/* The name of entry i (from 1) in `name`; false if there are not so many. */
static bool read_entry_name(const heed_module *m, int i, entry_name name) {
  heed_entry entry;
  if (!heed_module_entry(m, i, &entry)) return false;
  memcpy(name, entry.name, strlen(entry.name) + 1);
  return true;
}

/* nn.Parameter(t): a tensor on the same elements that modules list among their parameters. */
static int new_parameter(lua_State *L) {
  lua_settop(L, 1);
  heed_tensor **box = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "Parameter", "data");
  if (heed_tensor_dtype(x) != HEED_FLOAT32)
    return lheed_error(L, "Parameter: data must be float32, is %s", heed_dtype_name(heed_tensor_dtype(x)));
  LHEED_TRY(L, heed__tensor_from_view(lheed_get(L)->context, "Parameter", x, box));
  heed_tensor_set_parameter(*box, true);
  return lheed_return(L, 1);
}

/* ---- Forward ---- */

heed_forward_options lheed_forward_options(lua_State *L, int first, const char *function) {
  enum { ATTN_MASK, PADDING_MASK, NEED_WEIGHTS, FROM, KV_LENGTHS, KEY, VALUE, CACHE };
  return (heed_forward_options){
      .size = sizeof(heed_forward_options),
      .attn_mask = lheed_opt_tensor(L, first + ATTN_MASK, function, "attn_mask"),
      .key_padding_mask = lheed_opt_tensor(L, first + PADDING_MASK, function, "key_padding_mask"),
      .generator = lheed_opt_generator(L, first + FROM, function),
      .kv_lengths = lheed_opt_tensor(L, first + KV_LENGTHS, function, "kv_lengths"),
      .key = lheed_opt_tensor(L, first + KEY, function, "key"),
      .value = lheed_opt_tensor(L, first + VALUE, function, "value"),
      .cache = lheed_opt_cache(L, first + CACHE, function, "cache"),
  };
}

/* m(x, options) and m:forward(x, options) → y, or y and a table of taps. */
static int forward(lua_State *L) {
  enum { SELF = 1, INPUT, OPTIONS, OUTPUT = OPTIONS + LHEED_FORWARD_OPTIONS };
  static const char *const names[] = {LHEED_FORWARD_NAMES, NULL};
  lheed_begin(L);
  const char *class = heed_module_class(check_self(L, "forward"));
  const bool plain = lua_gettop(L) <= INPUT; /* no options to look for */
  if (plain)
    lua_settop(L, INPUT);
  else
    lheed_options(L, class, OPTIONS, names);
  bool wanted = !plain && lheed_opt_boolean(L, OPTIONS + LHEED_NEED_WEIGHTS, class, "need_weights", false);

  heed_tensor **out = lheed_push_tensor(L);
  lheed_tap_boxes boxes;
  if (wanted) lheed_push_tap_boxes(L, &boxes);
  heed_module *m = check_self(L, "forward");
  const heed_tensor *x = lheed_tensor(L, INPUT, class, "x");
  heed_forward_options options = {.size = sizeof options};
  if (!plain) options = lheed_forward_options(L, OPTIONS, class);
  heed_attention_taps taps = {.size = sizeof taps};
  LHEED_TRY(L, heed_module_forward(m, x, &options, out, wanted ? &taps : NULL));
  if (!wanted) return lheed_return(L, 1);
  lua_pushvalue(L, OUTPUT);
  lheed_push_taps(L, &boxes, &taps);
  return lheed_return(L, 2);
}

/* mha:head(i) → {W_query =, W_key =, W_value =}, views of the weights. */
static int head(lua_State *L) {
  lheed_begin(L);
  lua_settop(L, 2);
  heed_tensor **query = lheed_push_tensor(L), **key = lheed_push_tensor(L), **value = lheed_push_tensor(L);
  heed_module *m = check_self(L, "head");
  int64_t i = lheed_integer(L, 2, "head", "i");
  LHEED_TRY(L, heed_module_head(m, i, query, key, value));
  lua_createtable(L, 0, 3);
  lua_insert(L, 3);
  lua_setfield(L, 3, "W_value");
  lua_setfield(L, 3, "W_key");
  lua_setfield(L, 3, "W_query");
  return lheed_return(L, 1);
}

/* mha:split() → a MultiHeadAttentionWrapper on the same memory. */
static int split(lua_State *L) {
  lheed_begin(L);
  lua_settop(L, 1);
  heed_module **box = lheed_push_module(L);
  heed_module *m = check_self(L, "split");
  LHEED_TRY(L, heed_module_split(m, box));
  lheed_remember_module(L);
  return lheed_return(L, 1);
}

/* ---- Fields ---- */

static bool is_list(const heed_module *m) {
  return strcmp(heed_module_class(m), "ModuleList") == 0;
}

static int entry_index(const heed_module *m, const char *name) {
  heed__slot *slot = heed__module_slot(m, name);
  return slot ? (int)(slot - m->slots) + 1 : 0;
}

/* Pushes "weight, bias, training": what can be set, and with `all` what can be read. */
static const char *push_fields(lua_State *L, const heed_module *m, bool all) {
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  heed_entry entry;
  for (int i = 1; heed_module_entry(m, i, &entry); i++) {
    luaL_addstring(&b, entry.name);
    luaL_addstring(&b, ", ");
  }
  for (const heed__setting *s = m->class->settings; all && s && s->name; s++) {
    luaL_addstring(&b, s->name);
    luaL_addstring(&b, ", ");
  }
  if (all && m->class->takes_keys) luaL_addstring(&b, LHEED_VARIANTS ", ");
  luaL_addstring(&b, "training");
  luaL_pushresult(&b);
  return lua_tostring(L, -1);
}

/* The entry that the integer key at idx means in a list; count + 1 is allowed, so that ipairs ends. */
static int list_index(lua_State *L, int idx, const heed_module *m) {
  int count = heed_module_entry_count(m);
  lua_Integer i = lua_tointeger(L, idx);
  if (i < 0 && i >= -count) i += count + 1;
  if (i < 1 || i > count + 1)
    lheed_error(L, "ModuleList: index %I is out of range; there %s %d module%s, counted from 1",
                (LUAI_UACINT)lua_tointeger(L, idx), HEED__ARE(count), count, HEED__S(count));
  return (int)i;
}

/* Pushes the method of all modules with the name at idx, unless there is none. Those in Lua are there once
 * the first of them was asked for. */
static bool push_method(lua_State *L, int idx) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &module_methods_key);
  for (int i = 0; i < 2; i++) {
    lua_pushvalue(L, idx);
    if (lua_rawget(L, -2) != LUA_TNIL) return true;
    lua_pop(L, 1);
    if (i > 0 || lua_rawgeti(L, -1, INSTALLED) != LUA_TNIL) break;
    lheed_require(L, "heed.nn.module"); /* which calls install */
    lua_pop(L, 2);
  }
  return false;
}

static int module_tostring(lua_State *L) {
  check_self(L, "tostring");
  lua_settop(L, 1);
  lua_pushliteral(L, "__tostring");
  if (!push_method(L, 2)) return lheed_error(L, "tostring: heed's own files are not here");
  lua_pushvalue(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

static int module_index(lua_State *L) {
  lheed_begin(L);
  heed_module *m = check_self(L, "__index");
  if (lua_type(L, 2) == LUA_TSTRING) {
    const char *name = lua_tostring(L, 2);
    heed_scalar setting;
    const heed__sizes *sizes;
    if (push_entry(L, m, name)) return 1;
    if (lheed_push_variant(L, m, name)) return 1;
    if (heed_module_setting(m, name, &setting)) {
      lheed_push_scalar(L, setting);
      return 1;
    }
    if ((sizes = heed__module_sizes(m, name))) {
      lheed_push_sizes(L, sizes->count, sizes->size);
      return 1;
    }
    if (strcmp(name, "training") == 0) {
      lua_pushboolean(L, heed_module_training(m));
      return 1;
    }
    if (push_method(L, 2)) return 1;
    m = check_self(L, "__index"); /* once more: finalizers may have run */
    if (lheed_is_optional_entry(heed_module_class(m), name)) return 0;
  } else if (is_list(m) && lua_isinteger(L, 2)) {
    entry_name name;
    return read_entry_name(m, list_index(L, 2, m), name) && push_entry(L, m, name);
  }
  const char *key = lheed_push_key(L, 2), *fields = push_fields(L, m, true);
  return lheed_error(L, "%s has no field %s; it has %s", heed_module_class(m), key, fields);
}

static int module_newindex(lua_State *L) {
  lheed_begin(L);
  heed_module *m = check_self(L, "__newindex");
  const char *class = heed_module_class(m);
  lua_settop(L, 3);
  entry_name name;
  int i = lua_type(L, 2) == LUA_TSTRING       ? entry_index(m, lua_tostring(L, 2))
          : is_list(m) && lua_isinteger(L, 2) ? list_index(L, 2, m)
                                              : 0;
  if (read_entry_name(m, i, name)) {
    const heed_module *part = heed__module_part(m, name);
    if (!part) {
      LHEED_TRY(L, heed_module_set_parameter(m, name, lheed_tensor(L, 3, class, name)));
      return 0;
    }
    const char *needed = heed_module_class(part); /* before a string is made: a finalizer may drop the part */
    heed_module *value = test_module(L, 3);
    if (!value)
      return lheed_error(L, "%s: %s must be a built-in module (%s), got %s", class, name, needed,
                         lheed_push_what(L, 3));
    LHEED_TRY(L, heed_module_set_module(m, name, value));
    return 0;
  }
  if (lua_type(L, 2) == LUA_TSTRING && strcmp(lua_tostring(L, 2), "training") == 0) {
    if (!lua_isboolean(L, 3))
      return lheed_error(L, "%s: training must be a boolean, got %s", class, lheed_push_what(L, 3));
    heed_module_train(m, lua_toboolean(L, 3));
    return 0;
  }
  const char *key = lheed_push_key(L, 2), *fields = push_fields(L, m, false);
  return lheed_error(L, "%s: %s cannot be set; what can be is %s", class, key, fields);
}

static int module_len(lua_State *L) {
  heed_module *m = check_self(L, "__len");
  if (!is_list(m)) return lheed_error(L, "%s has no length", heed_module_class(m));
  lua_pushinteger(L, heed_module_entry_count(m));
  return 1;
}

/* ---- Primitives for lua/heed/nn ---- */

/* class_name(m) */
static int class_name(lua_State *L) {
  lua_pushstring(L, heed_module_class(check_self(L, "class_name")));
  return 1;
}

/* describe(m): what repr shows between the parentheses */
static int describe(lua_State *L) {
  char text[512];
  heed_module_describe(check_self(L, "extra_repr"), text, sizeof text);
  lua_pushstring(L, text);
  return 1;
}

/* The number of the entry behind the one called `name`, which was number i: some may have come or gone. */
static int next_entry(const heed_module *m, const char *name, int i) {
  heed_entry entry;
  if (heed_module_entry(m, i, &entry) && strcmp(entry.name, name) == 0) return i + 1;
  const int now = entry_index(m, name);
  return now ? now + 1 : i;
}

/* entries(m): {{name =, value =, kind = "parameter" or "module"}, …} in order. Finalizers may change the
 * module meanwhile: every entry is one that it had, and none is listed twice. */
static int entries(lua_State *L) {
  const heed_module *m = check_self(L, "entries");
  entry_name name;
  lua_Integer count = 0;
  lua_createtable(L, heed_module_entry_count(m), 0);
  for (int i = 1; read_entry_name(m, i, name); i = next_entry(m, name, i)) {
    const bool is_part = heed__module_part(m, name) != NULL;
    if ((i & 0x3ff) == 0) lheed_look(L, heed_module_class(m));
    lua_createtable(L, 0, 3);
    if (!push_entry(L, m, name)) {
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

/* kind(v): "parameter", "tensor" or "module", nil for anything else and for what was released */
static int kind_of(lua_State *L) {
  lua_settop(L, 1);
  lheed_box *box = lheed_test(L, 1, &lheed_tensor_type);
  if (box && box->object) {
    lua_pushstring(L, heed_tensor_is_parameter(box->object) ? "parameter" : "tensor");
  } else if (test_module(L, 1)) {
    lua_pushliteral(L, "module");
  } else {
    lua_pushnil(L);
  }
  return 1;
}

/* what(v): "a string ('abc')", for messages */
static int what(lua_State *L) {
  lua_settop(L, 1);
  lheed_push_what(L, 1);
  return 1;
}

/* train(m, mode) */
static int train(lua_State *L) {
  heed_module_train(check_self(L, "train"), lua_toboolean(L, 2));
  return 0;
}

/* install(methods): functions for all built-in modules, beside those of C; `__tostring` among them */
static int install(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &module_methods_key);
  lua_pushnil(L);
  while (lua_next(L, 1)) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, 2);
  }
  lua_pushboolean(L, true);
  lua_rawseti(L, 2, INSTALLED);
  return 0;
}

/* ---- Opening ---- */

static void open_metatable(lua_State *L) {
  static const luaL_Reg meta[] = {{"__index", module_index},
                                  {"__newindex", module_newindex},
                                  {"__ipairs", lheed_ipairs},
                                  {"__len", module_len},
                                  {"__call", forward},
                                  {"__tostring", module_tostring},
                                  {NULL, NULL}};
  static const luaL_Reg methods[] = {{"forward", forward},       {"head", head},
                                     {"split", split},           {"new_cache", lheed_new_cache},
                                     {"steps", lheed_new_steps}, {NULL, NULL}};
  lheed_push_metatable(L, &lheed_module_type);
  lheed_setfuncs(L, meta);
  lua_pop(L, 1);

  lheed_new_weak(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &boxes_key);
  lua_createtable(L, 0, 8); /* lua/heed/nn installs more */
  lheed_setfuncs(L, methods);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &module_methods_key);
}

/* Adds `nn`, the constructors, and `modules`, the primitives, to the library table. */
void lheed_open_nn(lua_State *L) {
  static const luaL_Reg primitives[] = {{"class_name", class_name},
                                        {"copy_generator", lheed_copy_generator},
                                        {"describe", describe},
                                        {"entries", entries},
                                        {"install", install},
                                        {"kind", kind_of},
                                        {"options", lheed_options_of},
                                        {"reset_cache", lheed_reset_cache},
                                        {"train", train},
                                        {"what", what},
                                        {NULL, NULL}};
  static const luaL_Reg functions[] = {{"Parameter", new_parameter}, {NULL, NULL}};
  const int library = lua_gettop(L) - 1;
  open_metatable(L);
  lheed_open_cache(L);
  lheed_open_steps(L);

  lua_createtable(L, 0, 16);
  lheed_setfuncs(L, functions);
  lheed_add_constructors(L);
  lua_setfield(L, library, "nn");

  lua_createtable(L, 0, 16);
  lheed_setfuncs(L, primitives);
  lheed_add_state_primitives(L);
  lua_setfield(L, library, "modules");
}
