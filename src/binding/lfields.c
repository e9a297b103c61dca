/* The fields of built-in modules: entries, settings, methods, and a list's modules by number. */
#include <string.h>

#include "lmodule.h"

/* Key, in the table of methods, of whether those in Lua have been added. */
#define INSTALLED 1

static bool is_list(const heed_module *m) {
  return strcmp(heed_module_class(m), "ModuleList") == 0;
}

/* Pushes "weight, bias, training": the fields that can be set, and with `all` those that can only be read,
 * too. */
static const char *push_fields(lua_State *L, const heed_module *m, bool all) {
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  heed_entry entry;
  for (int i = 1; heed_module_entry(m, i, &entry); i++) {
    luaL_addstring(&b, entry.name);
    luaL_addstring(&b, ", ");
  }
  for (const heed__setting *s = m->class->settings; s && s->name; s++) {
    if (!all && !s->check) continue;
    luaL_addstring(&b, s->name);
    luaL_addstring(&b, ", ");
  }
  if (m->class->takes_keys) luaL_addstring(&b, LHEED_TABLE_SETTINGS ", ");
  luaL_addstring(&b, "training");
  luaL_pushresult(&b);
  return lua_tostring(L, -1);
}

/* The entry of a list for the integer key at idx; count + 1 is allowed, so that ipairs ends. */
static int list_index(lua_State *L, int idx, const heed_module *m) {
  int count = heed_module_entry_count(m);
  lua_Integer i = lua_tointeger(L, idx);
  if (i < 0 && i >= -count) i += count + 1;
  if (i < 1 || i > count + 1)
    lheed_error(L, "ModuleList: index %I is out of range; there %s %d module%s, counted from 1",
                (LUAI_UACINT)lua_tointeger(L, idx), HEED__ARE(count), count, HEED__S(count));
  return (int)i;
}

/* Pushes the shared method with the name at idx; false if there is none. Methods written in Lua are added
 * when a name is not found for the first time. */
static bool push_method(lua_State *L, int idx) {
  lheed_push_module_methods(L);
  for (int i = 0; i < 2; i++) {
    lua_pushvalue(L, idx);
    if (lua_rawget(L, -2) != LUA_TNIL) return true;
    lua_pop(L, 1);
    if (i > 0 || lua_rawgeti(L, -1, INSTALLED) != LUA_TNIL) break;
    lheed_require(L, "heed.nn.module"); /* it calls install */
    lua_pop(L, 2);
  }
  return false;
}

static int module_tostring(lua_State *L) {
  lheed_self(L, "tostring");
  lua_settop(L, 1);
  lua_pushliteral(L, "__tostring");
  if (!push_method(L, 2)) return lheed_error(L, "tostring: heed's own Lua files are missing");
  lua_pushvalue(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

static int module_index(lua_State *L) {
  lheed_begin(L);
  heed_module *m = lheed_self(L, "__index");
  if (lua_type(L, 2) == LUA_TSTRING) {
    const char *name = lua_tostring(L, 2);
    heed_scalar setting;
    const heed__sizes *sizes;
    if (lheed_push_entry(L, m, name)) return 1;
    if (lheed_push_table_setting(L, m, name)) return 1;
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
    m = lheed_self(L, "__index"); /* read again: finalizers may have run */
    if (lheed_is_optional_entry(heed_module_class(m), name)) return 0;
  } else if (is_list(m) && lua_isinteger(L, 2)) {
    lheed_entry_name name;
    return lheed_read_entry_name(m, list_index(L, 2, m), name) && lheed_push_entry(L, m, name);
  }
  const char *fields = push_fields(L, m, true), *class = heed_module_class(m);
  const int list = lua_gettop(L);
  lheed_push_module_methods(L);
  const char *hint = lheed_push_hint(L, "module", 2, list, list + 1), *key = lheed_push_key(L, 2);
  return lheed_error(L, "%s has no field %s; it has %s%s", class, key, fields, hint);
}

/* m.name = the value at 3, a part; W_query and others may be modules in Lua. Those are left to
 * lua/heed/nn/own.lua, which also checks that they do not contain m. */
static void assign_part(lua_State *L, heed_module *m, const char *name, const char *needed) {
  heed_module *value = lheed_test_module(L, 3);
  const bool any = heed__takes_own(m, name);
  if ((!value && any) || (value && heed__holds_own(value))) {
    lheed_require(L, "heed.nn.own");
    lua_getfield(L, -1, "set");
    lua_pushvalue(L, 1);
    lua_pushstring(L, name);
    lua_pushvalue(L, 3);
    lua_call(L, 3, 0);
    return;
  }
  if (!value)
    lheed_error(L, "%s: %s is %s; it must be a built-in module (%s)", heed_module_class(m), name,
                lheed_push_what(L, 3), needed);
  lheed_set_part(L, 1, name, value, 3);
}

static int module_newindex(lua_State *L) {
  lheed_begin(L);
  heed_module *m = lheed_self(L, "__newindex");
  const char *class = heed_module_class(m);
  lua_settop(L, 3);
  lheed_entry_name name;
  int i = lua_type(L, 2) == LUA_TSTRING       ? lheed_entry_index(m, lua_tostring(L, 2))
          : is_list(m) && lua_isinteger(L, 2) ? list_index(L, 2, m)
                                              : 0;
  if (lheed_read_entry_name(m, i, name)) {
    const heed_module *part = heed__module_part(m, name);
    if (!part) {
      LHEED_TRY(L, heed_module_set_parameter(m, name, lheed_tensor(L, 3, class, name)));
      return 0;
    }
    assign_part(L, m, name, heed_module_class(part));
    return 0;
  }
  if (lua_type(L, 2) == LUA_TSTRING && lheed_set_setting(L, m, lua_tostring(L, 2), 3)) return 0;
  if (lua_type(L, 2) == LUA_TSTRING && strcmp(lua_tostring(L, 2), "training") == 0) {
    if (!lua_isboolean(L, 3))
      return lheed_error(L, "%s: training is %s; it must be a boolean", class, lheed_push_what(L, 3));
    if (heed__holds_own(m)) { /* modules in Lua have a mode of their own */
      lheed_require(L, "heed.nn.own");
      lua_getfield(L, -1, "train");
      lua_pushvalue(L, 1);
      lua_pushvalue(L, 3);
      lua_call(L, 2, 0);
    } else {
      heed_module_train(m, lua_toboolean(L, 3));
    }
    return 0;
  }
  const char *fields = push_fields(L, m, false);
  const int list = lua_gettop(L);
  const char *hint = lheed_push_hint(L, "module", 2, list, 0), *key = lheed_push_key(L, 2);
  return lheed_error(L, "%s: %s cannot be set; the fields that can be set are %s%s", class, key, fields,
                     hint);
}

static int module_len(lua_State *L) {
  heed_module *m = lheed_self(L, "__len");
  if (!is_list(m)) return lheed_error(L, "len: %s has no length", heed_module_class(m));
  lua_pushinteger(L, heed_module_entry_count(m));
  return 1;
}

/* install(methods): adds methods written in Lua for all built-in modules; `__tostring` among them */
static int install(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lheed_push_module_methods(L);
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

void lheed_open_fields(lua_State *L) {
  static const luaL_Reg metamethods[] = {{"__index", module_index},
                                         {"__newindex", module_newindex},
                                         {"__len", module_len},
                                         {"__tostring", module_tostring},
                                         {NULL, NULL}};
  static const luaL_Reg primitives[] = {{"install", install}, {NULL, NULL}};
  lheed_add_metamethods(L, &lheed_module_type, metamethods);
  lheed_add(L, "modules", primitives);
  lheed_add_transparent(L,
                        module_newindex); /* errors of lua/heed/nn/own.lua have the line of the assignment */
}
