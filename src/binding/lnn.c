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

/* Another tensor on the elements of parameter i. */
static heed_status alias_parameter(const heed_module *m, int i, heed_tensor **out) {
  heed_entry entry;
  heed_module_entry(m, i, &entry);
  return heed__tensor_from_view(heed_module_context(m), entry.name, entry.parameter, out);
}

/* Pushes entry i (from 1) of the module at stack index 1: a module's box, or a tensor that shares the
 * parameter's elements. Making a box may run a finalizer, so what is put into it is looked up afterwards. */
static void push_entry(lua_State *L, int i) {
  heed_entry entry;
  heed_module_entry(check_self(L, "__index"), i, &entry);
  if (entry.kind == HEED_ENTRY_PARAMETER) {
    heed_tensor **box = lheed_push_tensor(L);
    LHEED_TRY(L, alias_parameter(check_self(L, "__index"), i, box));
    heed_tensor_set_parameter(*box, true);
  } else if (!push_known_box(L, entry.module)) {
    heed_module **box = lheed_push_module(L);
    heed_module_entry(check_self(L, "__index"), i, &entry);
    *box = heed_module_retain(entry.module);
    lheed_remember_module(L);
  }
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

#define X(name) #name,
static const char *const internal_names[] = {HEED_INTERNALS_LIST(X)};
#undef X
#define INTERNALS ((int)(sizeof internal_names / sizeof *internal_names))

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

/* m(x, options) and m:forward(x, options) → y, or y and a table of internals. */
static int forward(lua_State *L) {
  enum { SELF = 1, INPUT, OPTIONS, OUTPUT = OPTIONS + LHEED_FORWARD_OPTIONS, INTERNAL };
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
  heed_tensor **box[INTERNALS];
  for (int i = 0; wanted && i < INTERNALS; i++) box[i] = lheed_push_tensor(L);
  heed_module *m = check_self(L, "forward");
  const heed_tensor *x = lheed_tensor(L, INPUT, class, "x");
  heed_forward_options options = {.size = sizeof options};
  if (!plain) options = lheed_forward_options(L, OPTIONS, class);
  heed_attention_internals internals = {.size = sizeof internals};
  LHEED_TRY(L, heed_module_forward(m, x, &options, out, wanted ? &internals : NULL));
  if (!wanted) return lheed_return(L, 1);

  int next = 0;
#define X(name) *box[next++] = internals.name;
  HEED_INTERNALS_LIST(X)
#undef X
  lua_createtable(L, 0, INTERNALS);
  for (int i = 0; i < INTERNALS; i++) {
    if (!*box[i]) continue;
    lua_pushvalue(L, INTERNAL + i);
    lua_setfield(L, -2, internal_names[i]);
  }
  lua_pushvalue(L, OUTPUT);
  lua_insert(L, -2);
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
    int i = entry_index(m, name);
    if (i) {
      push_entry(L, i);
      return 1;
    }
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
    int i = list_index(L, 2, m);
    if (i > heed_module_entry_count(m)) return 0;
    push_entry(L, i);
    return 1;
  }
  const char *key = lheed_push_key(L, 2), *fields = push_fields(L, m, true);
  return lheed_error(L, "%s has no field %s; it has %s", heed_module_class(m), key, fields);
}

static int module_newindex(lua_State *L) {
  lheed_begin(L);
  heed_module *m = check_self(L, "__newindex");
  const char *class = heed_module_class(m);
  lua_settop(L, 3);
  heed_entry entry;
  int i = lua_type(L, 2) == LUA_TSTRING       ? entry_index(m, lua_tostring(L, 2))
          : is_list(m) && lua_isinteger(L, 2) ? list_index(L, 2, m)
                                              : 0;
  if (i && heed_module_entry(m, i, &entry)) {
    if (entry.kind == HEED_ENTRY_PARAMETER) {
      LHEED_TRY(L, heed_module_set_parameter(m, entry.name, lheed_tensor(L, 3, class, entry.name)));
    } else {
      heed_module *value = test_module(L, 3);
      if (!value)
        return lheed_error(L, "%s: %s must be a built-in module (%s), got %s", class, entry.name,
                           heed_module_class(entry.module), lheed_push_what(L, 3));
      LHEED_TRY(L, heed_module_set_module(m, entry.name, value));
    }
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

/* entries(m): {{name =, value =, kind = "parameter" or "module"}, …} in order */
static int entries(lua_State *L) {
  heed_module *m = check_self(L, "entries");
  int count = heed_module_entry_count(m);
  lua_createtable(L, count, 0);
  for (int i = 1; i <= count; i++) {
    heed_entry entry;
    heed_module_entry(m, i, &entry);
    lua_createtable(L, 0, 3);
    lua_pushstring(L, entry.name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, entry.kind == HEED_ENTRY_PARAMETER ? "parameter" : "module");
    lua_setfield(L, -2, "kind");
    push_entry(L, i);
    lua_setfield(L, -2, "value");
    lua_rawseti(L, -2, i);
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

#define MAX_OPTIONS     12
#define MAX_OPTION_NAME 32

/* The string at idx in `text`, where it stays when the stack changes. */
static const char *copy_name(lua_State *L, int idx, char text[MAX_OPTION_NAME]) {
  size_t length = 0;
  const char *s = lua_type(L, idx) == LUA_TSTRING ? lua_tolstring(L, idx, &length) : "";
  if (length == 0 || length >= MAX_OPTION_NAME)
    lheed_error(L, "options: a name must have 1 to %d letters", MAX_OPTION_NAME - 1);
  memcpy(text, s, length + 1);
  return text;
}

/* options(function, names, first, …): the values of the optional arguments among …, which begin at number
 * `first` and come by position or by name. */
static int options(lua_State *L) {
  char function[MAX_OPTION_NAME], text[MAX_OPTIONS][MAX_OPTION_NAME];
  const char *names[MAX_OPTIONS + 1] = {NULL};
  copy_name(L, 1, function);
  lua_Unsigned count = lua_type(L, 2) == LUA_TTABLE ? lua_rawlen(L, 2) : MAX_OPTIONS + 1;
  lua_Integer first = lheed_integer(L, 3, "options", "first");
  if (count > MAX_OPTIONS || first < 1 || first > MAX_OPTIONS)
    return lheed_error(L, "options: names must be a list of at most %d, first from 1 to %d", MAX_OPTIONS,
                       MAX_OPTIONS);
  for (lua_Unsigned i = 0; i < count; i++) {
    lua_rawgeti(L, 2, (lua_Integer)i + 1);
    names[i] = copy_name(L, lua_gettop(L), text[i]);
    lua_pop(L, 1);
  }
  for (int i = 0; i < 3; i++) lua_remove(L, 1);
  lheed_options(L, function, (int)first, names);
  return (int)count;
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
                                        {"options", options},
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
