/* Errors: the position that they show, what came where something else was needed, and cancellation checks. */
#include <limits.h>
#include <string.h>

#include "../core/core.h"
#include "lheed.h"

/* ---- Raising ---- */

/* Whether Lua itself called the function: ipairs for a `for`, the metamethods of strings for "1" + x. */
static bool is_implicit(const lua_Debug *ar) {
  return strcmp(ar->namewhat, "metamethod") == 0 || strcmp(ar->namewhat, "for iterator") == 0 ||
         (ar->name && strcmp(ar->name, "(for generator)") == 0); /* in 5.1 */
}

/* Pushes "file:line: " of the function that called heed; "" if that is not a Lua function. */
static void push_position(lua_State *L) {
  lua_Debug ar;
  bool through_c = false, loading = false; /* loading: require calls one of heed's Lua files */
  for (int level = 1; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Slnf", &ar);
    const bool own = lheed_is_transparent(L, ar.source, lua_tocfunction(L, -1));
    lua_pop(L, 1);
    if (own) {
      through_c = false;
      loading = strcmp(ar.what, "main") == 0;
    } else if (strcmp(ar.what, "tail") == 0) { /* 5.1: functions that a tail call replaced */
      continue;
    } else if (ar.currentline < 0) {
      through_c = through_c || !(loading || is_implicit(&ar));
    } else {
      if (through_c) break;
      lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
      return;
    }
  }
  lua_pushliteral(L, "");
}

/* The name of the library's table at idx in a script, "heed" or "nn"; NULL for any other value. */
static const char *library_name(lua_State *L, int idx) {
  if (lua_type(L, idx) != LUA_TTABLE) return NULL;
  const int top = lua_gettop(L);
  const char *name = NULL;
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &lheed_library_key) == LUA_TTABLE) {
    if (lua_rawequal(L, idx, -1)) name = "heed";
    lua_pushliteral(L, "nn");
    lua_rawget(L, -2);
    if (lua_rawequal(L, idx, -1)) name = "nn";
    if (!name && lua_istable(L, -1)) {
      lua_pushliteral(L, "functional");
      lua_rawget(L, -2);
      if (lua_rawequal(L, idx, -1)) name = "nn.functional";
    }
  }
  lua_settop(L, top);
  return name;
}

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"

/* Replaces the message on top of the stack, "zeros: ...", if it is due to a call heed:zeros(2, 3). */
static void explain_colon(lua_State *L) {
  const char *library = lua_gettop(L) > 1 ? library_name(L, 1) : NULL, *text = lua_tostring(L, -1);
  const char *end = library && text ? text + strspn(text, LETTERS) : NULL;
  if (!end || *end != ':') return;
  lua_pushlstring(L, text, (size_t)(end - text));
  const char *function = lua_tostring(L, -1);
  lua_pushfstring(L, "%s: argument 1 is the table %s; write %s.%s(...), with a dot instead of a colon",
                  function, library, library, function);
  lua_replace(L, -3);
  lua_pop(L, 1);
}

/* Raises the string on top of the stack, after the position. */
static int raise_top(lua_State *L) {
  explain_colon(L);
  push_position(L);
  lua_insert(L, -2);
  lua_concat(L, 2);
  return lua_error(L);
}

/* Replaces the function's name at the start of the message on top of the stack by the name of the running
 * function (see lheed_add_methods): in-place forms and aliases share their code with others. */
static void use_called_name(lua_State *L) {
  const int called = lua_upvalueindex(3);
  if (lua_type(L, lua_upvalueindex(2)) != LUA_TBOOLEAN || lua_type(L, called) != LUA_TSTRING) return;
  const char *message = lua_tostring(L, -1);
  const size_t length = strspn(message, "abcdefghijklmnopqrstuvwxyz0123456789_");
  if (length == 0 || strncmp(message + length, ": ", 2) != 0) return;
  lua_pushvalue(L, called);
  lua_pushstring(L, message + length);
  lua_concat(L, 2);
  lua_replace(L, -2);
}

int lheed_error(lua_State *L, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  lua_pushvfstring(L, format, arguments);
  va_end(arguments);
  use_called_name(L);
  return raise_top(L);
}

void lheed_push_message(lua_State *L, heed_status status) {
  const lheed_state *S = lheed_find(L);
  char text[HEED__MESSAGE]; /* a copy: before 5.3 finalizers run before a string is made, and may set another
                               message */
  snprintf(text, sizeof text, "%s", S ? heed_message(S->context) : "");
  lua_pushstring(L, *text ? text : heed_status_name(status));
}

void lheed_raise(lua_State *L, heed_status status) {
  lheed_push_message(L, status);
  use_called_name(L);
  raise_top(L);
}

bool lheed_can_repeat(lua_State *L, heed_status status, bool *collected) {
  if (status != HEED_MEMORY || *collected) return false;
  *collected = true;
  lheed_collect(L);
  return true;
}

void lheed_repeat_or_raise(lua_State *L, heed_status status, bool *collected) {
  if (!lheed_can_repeat(L, status, collected)) lheed_raise(L, status);
}

/* core.raise(message): for heed's own Lua files, instead of error(message, level). */
static int raise_message(lua_State *L) {
  luaL_checkstring(L, 1);
  lua_settop(L, 1);
  return raise_top(L);
}

/* ---- What came ---- */

/* Pushes the string at idx in quotes, between `before` and `after`; only its length if it is long or has
 * control characters. */
static const char *push_quoted(lua_State *L, int idx, const char *before, const char *after) {
  size_t length;
  const char *s = lua_tolstring(L, idx, &length);
  bool shown = length <= 40;
  for (size_t i = 0; i < length && shown; i++) shown = (unsigned char)s[i] >= ' ' && s[i] != 127;
  if (!shown) return lua_pushfstring(L, "a string of %d bytes", length > INT_MAX ? INT_MAX : (int)length);
  return lua_pushfstring(L, "%s'%s'%s", before, s, after);
}

const char *lheed_push_float(lua_State *L, double value) {
  char text[HEED__NUMBER_TEXT];
  heed__write_number(text, sizeof text, 'g', 14, value);
  return lua_pushfstring(L, strspn(text, "-0123456789") == strlen(text) ? "%s.0" : "%s", text);
}

/* For a box of another copy of the library: pushes "a tensor of another copy of heed" and returns it. NULL
 * for anything else. For messages only: scripts can set such a __name, too. */
static const char *push_foreign(lua_State *L, int idx) {
  if (lua_type(L, idx) != LUA_TUSERDATA || !lua_getmetatable(L, idx)) return NULL;
  lua_pushliteral(L, "__name");
  lua_rawget(L, -2);
  lua_remove(L, -2);
  const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  if (strncmp(name, "heed.", 5) != 0 || name[5] < 'A' || name[5] > 'Z') {
    lua_pop(L, 1);
    return NULL;
  }
  const char *text = lua_pushfstring(L, "a %c%s of another copy of heed", name[5] - 'A' + 'a', name + 6);
  lua_remove(L, -2); /* the name, kept until here: a finalizer could remove it from the metatable */
  return text;
}

static const char *push_box_text(lua_State *L, const lheed_box *box) {
  const lheed_type *type = box->type;
  if (!box->object) return lua_pushfstring(L, "a released %s", type->noun);
  if (!type->describe) return lua_pushfstring(L, "a %s", type->noun);
  type->describe(L, box->object);
  return lua_tostring(L, -1);
}

const char *lheed_push_what(lua_State *L, int idx) {
  const char *text;
  switch (lua_type(L, idx)) {
  case LUA_TNONE:
  case LUA_TNIL: return lua_pushliteral(L, "nil");
  case LUA_TBOOLEAN: return lua_pushfstring(L, "a boolean (%s)", lua_toboolean(L, idx) ? "true" : "false");
  case LUA_TNUMBER:
    if (lua_isinteger(L, idx)) return lua_pushfstring(L, "the number %I", (LUAI_UACINT)lua_tointeger(L, idx));
    return lua_pushfstring(L, "the number %s", lheed_push_float(L, lua_tonumber(L, idx)));
  case LUA_TSTRING: return push_quoted(L, idx, "a string (", ")");
  default: break;
  }
  const lheed_box *box = lheed_box_at(L, idx);
  if (box) return push_box_text(L, box);
  if ((text = push_foreign(L, idx))) return text;
  if ((text = library_name(L, idx))) return lua_pushfstring(L, "the table %s", text);
  return lua_pushfstring(L, "a %s", lheed_is_object(L, idx) ? "table" : luaL_typename(L, idx));
}

const char *lheed_push_key(lua_State *L, int idx) {
  return lua_type(L, idx) == LUA_TSTRING ? push_quoted(L, idx, "", "") : lheed_push_what(L, idx);
}

const char *lheed_push_hint(lua_State *L, const char *owner, int key, int names, int more) {
  const bool open = lua_rawgetp(L, LUA_REGISTRYINDEX, &lheed_library_key) != LUA_TNIL;
  lua_pop(L, 1);
  if (!open || lua_type(L, key) != LUA_TSTRING) return lua_pushliteral(L, "");
  static const char left_out[] = "; this build of heed, with HEED_MINIMAL, is without training, models and "
                                 "tokenizers";
  if (HEED_MINIMAL && strcmp(owner, "heed") == 0 && strcmp(lua_tostring(L, key), "utils") == 0)
    return lua_pushstring(L, left_out); /* not heed.nn.utils */
  lheed_require(L, "heed.suggest");
  lua_getfield(L, -1, "hint");
  lua_remove(L, -2);
  lua_pushstring(L, owner);
  lua_pushvalue(L, key);
  if (names) lua_pushvalue(L, names);
  if (more) lua_pushvalue(L, more);
  lua_call(L, 2 + (names != 0) + (more != 0), 1);
  const char *hint = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  if (*hint != '\0') return hint;
  lua_pop(L, 1);
  if (HEED_MINIMAL && (owner[0] == 'h' || owner[0] == 'T')) /* heed, heed.nn.functional, Tensor */
    return lua_pushstring(L, left_out);
  return lua_pushliteral(L, "");
}

void lheed_explain(lua_State *L, int idx) {
  lua_pushvalue(L, idx);
  const char *message = lua_tostring(L, idx);
  if (!strstr(message, "attempt to ") && !strstr(message, " near ") &&
      !strstr(message, "number expected, got "))
    return;
  const bool open = lua_rawgetp(L, LUA_REGISTRYINDEX, &lheed_library_key) != LUA_TNIL;
  lua_pop(L, 1);
  if (!open) { /* a script that forgot to require heed */
    lua_getglobal(L, "require");
    lua_pushliteral(L, "heed");
    const int status = lua_pcall(L, 1, 1, 0);
    lua_pop(L, 1);
    if (status != LUA_OK) return;
  }
  lheed_require(L, "heed.suggest");
  lua_getfield(L, -1, "after");
  lua_remove(L, -2);
  lua_pushvalue(L, idx);
  if (lua_pcall(L, 1, 1, 0) == LUA_OK && lua_type(L, -1) == LUA_TSTRING)
    lua_concat(L, 2);
  else
    lua_pop(L, 1);
}

int lheed_unknown_name(lua_State *L, const char *owner) {
  lua_settop(L, 2);
  if (lua_type(L, 2) != LUA_TSTRING || lua_tostring(L, 2)[0] == '_') return 0;
  const char *key = lheed_push_key(L, 2), *hint = lheed_push_hint(L, owner, 2, 1, 0);
  return lheed_error(L, "%s has no function or field %s%s", owner, key, hint);
}

/* __index of a guarded table; upvalue 2: its name */
static int guarded_index(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  return lheed_unknown_name(L, luaL_checkstring(L, lua_upvalueindex(2)));
}

void lheed_guard(lua_State *L, const char *owner) {
  lua_createtable(L, 0, 1);
  lheed_push_state(L);
  lua_pushstring(L, owner);
  lua_pushcclosure(L, guarded_index, 2);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
}

/* guard(names, owner): lheed_guard, for heed's own Lua files; returns the table */
static int guard_table(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const char *owner = luaL_checkstring(L, 2);
  lua_pushvalue(L, 1);
  lheed_guard(L, owner);
  return 1;
}

/* Whether tensors have the method `name`. */
static bool is_method(lua_State *L, const char *name) {
  const int top = lua_gettop(L);
  lheed_push_metatable(L, &lheed_tensor_type);
  bool found = false;
  if (lua_istable(L, -1)) {
    lua_pushliteral(L, "__index");
    if (lua_rawget(L, -2) == LUA_TFUNCTION && lua_getupvalue(L, -1, 2) && lua_istable(L, -1)) {
      lua_pushstring(L, name);
      found = lua_rawget(L, -2) != LUA_TNIL;
    }
  }
  lua_settop(L, top);
  return found;
}

/* Whether a script wrote x.sum(1) instead of x:sum(1): then argument 1 is no tensor, but that of a method. */
static bool lacks_colon(lua_State *L, const char *function) {
  const int type = lua_type(L, 1);
  lua_Debug ar;
  if (type == LUA_TUSERDATA || (type == LUA_TTABLE && lua_rawlen(L, 1) > 0) || !lua_getstack(L, 0, &ar))
    return false;
  lua_getinfo(L, "n", &ar);
  return ar.name && strcmp(ar.name, function) == 0 && strcmp(ar.namewhat, "metamethod") != 0 &&
         is_method(L, function);
}

/* Pushes what to write instead, where that is known, else "". */
static const char *push_fix(lua_State *L, int idx, const char *function, const char *needed) {
  if (strncmp(needed, "a table", 7) != 0 && lacks_colon(L, function))
    return lua_pushfstring(L, "; call it as x:%s(...), with a colon, or as heed.%s(x, ...)", function,
                           function);
  if (strncmp(needed, "a tensor", 8) == 0 && lua_type(L, idx) == LUA_TTABLE && lua_rawlen(L, idx) > 0)
    return lua_pushliteral(L, "; heed.tensor makes one from a table");
  return "";
}

int lheed_bad_argument(lua_State *L, int idx, const char *function, const char *name, const char *needed) {
  const char *what = lheed_push_what(L, idx), *fix = push_fix(L, idx, function, needed);
  return lheed_error(L, "%s: %s is %s; it must be %s%s", function, name, what, needed, fix);
}

/* ---- Cancellation checks ---- */

/* Units of work (heed_limits.work) of what a loop of the binding or of heed's Lua files does between two
 * checks. */
enum { CHECK_UNITS = 64 };

static void check_units(lua_State *L, heed_context *ctx, const char *function, double units) {
  if (ctx->limits.work != 0) LHEED_TRY(L, heed__charge(ctx, function, units));
  if (heed__is_due(&ctx->pace)) LHEED_TRY(L, heed__stopped(ctx, function));
}

void lheed_check_cancel_of(lua_State *L, heed_context *ctx, const char *function) {
  check_units(L, ctx, function, CHECK_UNITS);
}

static void check_call(lua_State *L, const char *function, double units) {
  const lheed_state *S = lheed_find(L);
  if (!S) luaL_error(L, "this Lua state has closed heed");
  heed_context *ctx = S->context;
  if (ctx->limits.work == 0 && !heed__is_due(&ctx->pace)) return;
  if (ctx->call_end > 0 && heed__is_due(&ctx->pace) && !lheed_is_in_call(L)) heed__start_call(ctx);
  check_units(L, ctx, function, units);
}

void lheed_check_cancel(lua_State *L, const char *function) {
  check_call(L, function, CHECK_UNITS);
}

/* core.check_cancel(function, units): raises if the call was cancelled or is out of time or work; for loops
 * in heed's own Lua files. `units` (64) are the work since the last check. */
static int check_cancel(lua_State *L) {
  if (lua_type(L, 1) != LUA_TSTRING) {
    lua_settop(L, 1);
    return lheed_bad_argument(L, 1, "check_cancel", "function", "a string");
  }
  const lua_Number units = luaL_optnumber(L, 2, CHECK_UNITS);
  if (!(units >= 0)) return lheed_bad_argument(L, 2, "check_cancel", "units", "0 or more");
  check_call(L, lua_tostring(L, 1), units);
  return 0;
}

/* check_time(function): the same without work: what loops over names for a message is free */
static int check_time(lua_State *L) {
  if (lua_type(L, 1) != LUA_TSTRING) {
    lua_settop(L, 1);
    return lheed_bad_argument(L, 1, "check_time", "function", "a string");
  }
  const char *function = lua_tostring(L, 1);
  heed_context *ctx = lheed_get(L)->context;
  if (!heed__is_due(&ctx->pace)) return 0;
  if (ctx->call_end > 0 && !lheed_is_in_call(L)) heed__start_call(ctx);
  LHEED_TRY(L, heed__out_of_time(ctx, function));
  return 0;
}

/* what(v): "a string ('abc')", for messages of heed's own Lua files */
static int what_of(lua_State *L) {
  lua_settop(L, 1);
  lheed_push_what(L, 1);
  return 1;
}

void lheed_open_errors(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"raise", raise_message}, {"check_cancel", check_cancel}, {NULL, NULL}};
  static const luaL_Reg primitives[] = {
      {"check_time", check_time}, {"what", what_of}, {"guard", guard_table}, {NULL, NULL}};
  lheed_add(L, NULL, functions);
  lheed_add(L, "modules", primitives);
}
