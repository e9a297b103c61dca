/* What heed has in Lua, compiled when it is first asked for: of the time that a Lua state with heed takes to
 * open and close that would be nine tenths, and most scripts need little of it. */
#include <string.h>

#include "lheed.h"

/* In the registry: the `require` that heed's own files are found by; and that all is there. Told apart by
 * their places. */
static const char require_key = 'r', opened_key = 'o';

void lheed_require(lua_State *L, const char *name) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &require_key);
  lua_pushstring(L, name);
  lua_call(L, 1, 1);
}

/* ---- Functions ---- */

/* Upvalues 2 and 3: a file and the name of its function, which is called. */
int lheed_late_call(lua_State *L) {
  lheed_require(L, luaL_checkstring(L, lua_upvalueindex(2)));
  lua_getfield(L, -1, luaL_checkstring(L, lua_upvalueindex(3)));
  lua_replace(L, -2);
  lua_insert(L, 1);
  return lheed_call_all(L);
}

/* Sets name in the table on top of the stack. */
static void add_function(lua_State *L, const char *file, const char *name) {
  lheed_push_state(L);
  lua_pushstring(L, file);
  lua_pushstring(L, name);
  lua_pushcclosure(L, lheed_late_call, 3);
  lua_setfield(L, -2, name);
}

/* ---- Classes: fields of heed.nn ---- */

static const struct {
  const char *name, *file;
} classes[] = {{"Module", "heed.nn.module"},
               {"Sequential", "heed.nn.sequential"},
               {"ModuleList", "heed.nn.module_list"},
               {"Residual", "heed.nn.residual"}};
#define CLASSES (sizeof classes / sizeof *classes)

/* Upvalue 2 of these: the names that were neither asked for nor set yet → their files. */

/* Takes the name at idx from that table, and leaves its file, or nil, on the stack. */
static int take_file(lua_State *L, int idx) {
  luaL_checktype(L, lua_upvalueindex(2), LUA_TTABLE); /* the debug library can change an upvalue */
  lua_pushvalue(L, idx);
  const int type = lua_rawget(L, lua_upvalueindex(2));
  if (type != LUA_TSTRING) return type;
  lua_pushvalue(L, idx);
  lua_pushnil(L);
  lua_rawset(L, lua_upvalueindex(2));
  return type;
}

/* nn.Module, for the first time. */
static int late_index(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 2);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(2)) != LUA_TSTRING) return 0;
  lheed_require(L, lua_tostring(L, 3)); /* may fail, as may the next, and be asked for once more */
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 4);
  lua_rawset(L, 1);
  take_file(L, 2);
  lua_pushvalue(L, 4);
  return 1;
}

/* nn.Module = …: what a script sets, nil too, is not made after that. */
static int late_newindex(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 3);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_rawset(L, 1); /* may fail: then the file is still known */
  take_file(L, 2);
  return 0;
}

static int next_field(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 2);
  if (lua_next(L, 1)) return 2;
  lua_pushnil(L);
  return 1;
}

/* Asks for all of them in the table at the top of the stack. */
static void make_classes(lua_State *L) {
  for (size_t i = 0; i < CLASSES; i++) {
    lua_getfield(L, -1, classes[i].name);
    lua_pop(L, 1);
  }
}

/* pairs(nn): all of it. */
static int late_pairs(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  make_classes(L);
  lua_pushcfunction(L, next_field);
  lua_pushvalue(L, 1);
  lua_pushnil(L);
  return 3;
}

/* For the table on top of the stack. */
static void add_classes(lua_State *L) {
  static const luaL_Reg meta[] = {
      {"__index", late_index}, {"__newindex", late_newindex}, {"__pairs", late_pairs}, {NULL, NULL}};
  lua_createtable(L, 0, 3);
  lua_createtable(L, 0, CLASSES);
  for (size_t i = 0; i < CLASSES; i++) {
    lua_pushstring(L, classes[i].file);
    lua_setfield(L, -2, classes[i].name);
  }
  for (const luaL_Reg *m = meta; m->name; m++) {
    lheed_push_state(L);
    lua_pushvalue(L, -2);
    lua_pushcclosure(L, m->func, 2);
    lua_setfield(L, -3, m->name);
  }
  lua_pop(L, 1);
  lua_setmetatable(L, -2);
}

/* ---- Opening ---- */

/* core.open(require): the library, with what is in Lua. Where memory ends in the middle, the next call does
 * all of it. */
static int open_late(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  luaL_checktype(L, lua_upvalueindex(2), LUA_TTABLE); /* the debug library can change an upvalue */
  lua_settop(L, 1);
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &opened_key) != LUA_TNIL) {
    lua_pushvalue(L, lua_upvalueindex(2));
    return 1;
  }
  lua_pushvalue(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &require_key);
  lua_pushvalue(L, lua_upvalueindex(2));
  add_function(L, "heed.files", "load");
  add_function(L, "heed.files", "save");
  lua_getfield(L, -1, "nn");
  add_function(L, "heed.nn.entries", "is_module");
  lua_createtable(L, 0, 1);
  add_function(L, "heed.nn.utils", "skip_init");
  lua_setfield(L, -2, "utils");
  add_classes(L);
  if (!LHEED_HEEDS_PAIRS) make_classes(L); /* pairs(nn) must find them */
  lua_pop(L, 1);
  lua_pushboolean(L, true);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &opened_key);
  return 1;
}

/* What heed's own files have beside the library's functions, and which of these they use: theirs stay what
 * they are when a script puts something else in their place. */
static const char *const own[] = {"files", "frame", "held", "look", "modules", "object", "raise", "text"};
static const char *const used[] = {"Generator", "cat",  "empty", "ipairs", "ones",
                                   "pairs",     "rand", "range", "tensor", "zeros"};

void lheed_open_late(lua_State *L) {
  lua_createtable(L, 0, 20);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    lua_getfield(L, -2, own[i]);
    lua_setfield(L, -2, own[i]);
    lua_pushnil(L);
    lua_setfield(L, -3, own[i]);
  }
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
    lua_getfield(L, -2, used[i]);
    lua_setfield(L, -2, used[i]);
  }
  lua_createtable(L, 0, 1); /* core.nn */
  lua_getfield(L, -3, "nn");
  lua_getfield(L, -1, "Parameter");
  lua_setfield(L, -3, "Parameter");
  lua_pop(L, 1);
  lua_setfield(L, -2, "nn");
  lheed_push_state(L);
  lua_pushvalue(L, -3);
  lua_pushcclosure(L, open_late, 2);
  lua_setfield(L, -2, "open");
  lua_replace(L, -2);
}
