/* heed in a Lua state: the state and its context, adding functions, and the functions of heed that an error
 * position and a time limit pass through. Every other file of the binding builds on this one; lopen.c is the
 * one above them all. */
#include "lheed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../io/io.h"

/* ---- The state ---- */

/* Registry keys are addresses in this copy of the library, so that two copies in one Lua state never meet. */
const char lheed_state_key = 0, lheed_require_key = 'r', lheed_library_key = 'l';

void lheed_require(lua_State *L, const char *name) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &lheed_require_key);
  lua_pushstring(L, name);
  lua_call(L, 1, 1);
}

lheed_state *lheed_get(lua_State *L) {
  lheed_state *S = lheed_running(L);
  if (!S) luaL_error(L, "this Lua state has closed heed");
  if (S->context->limits.call_seconds > 0) lheed_start_call(L, S);
  return S;
}

void lheed_begin(lua_State *L) {
  (void)lheed_get(L);
}

lheed_state *lheed_find(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &lheed_state_key);
  lheed_state *S = lheed_state_at(L, -1);
  lua_pop(L, 1);
  return S && S->context ? S : NULL;
}

heed_context *heed_lua_context(lua_State *L) {
  lheed_state *S = L != NULL ? lheed_find(L) : NULL;
  lua_Debug unused;
  if (S == NULL || S->context == NULL) return NULL;
  if (!lua_getstack(L, 0, &unused)) heed__end_call(S->context);
  return S->context;
}

static int state_gc(lua_State *L) {
  lheed_state *S = lheed_running(L);
  if (!S) return 0;
  /* Boxes that finalizers create while the Lua state closes are never finalized: what they hold is freed with
   * the context. */
  heed__context_destroy(S->context);
  S->context = NULL;
  return 0;
}

/* If heed/init.lua is what opens heed: stores its directory as chunk names show it, "@lua/". */
static void find_own_files(lua_State *L, lheed_state *S) {
  static const char name[] = "heed/init.lua";
  lua_Debug ar;
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "S", &ar);
    size_t length = strlen(ar.source), prefix = length - (sizeof name - 1);
    if (length >= sizeof name && strcmp(ar.source + prefix, name) == 0) {
      prefix += strlen("heed/");
      if (prefix >= sizeof S->own_files) return;
      memcpy(S->own_files, ar.source, prefix);
      S->own_files[prefix] = '\0';
      return;
    }
  }
}

/* Tensors use the allocator of the Lua state, so that a host that limits its memory limits theirs as well. */
static void *allocate_by_lua(void *user, size_t bytes) {
  const lheed_state *S = user;
  return S->allocate(S->allocate_user, NULL, 0, bytes);
}

static void release_by_lua(void *user, void *block, size_t bytes) {
  const lheed_state *S = user;
  S->allocate(S->allocate_user, block, bytes, 0);
}

/* Whether L allocates as a state of luaL_newstate does: from the process, without a limit or an owner of its
 * own. */
static bool uses_own_allocator(lua_State *L) {
  void *user;
  lua_State *plain = luaL_newstate();
  if (!plain) return false;
  const lua_Alloc usual = lua_getallocf(plain, &user);
  lua_close(plain);
  return lua_getallocf(L, &user) == usual;
}

/* From addresses, which most systems randomize, and a nanosecond clock: asking the system for random bytes
 * could block or fail. */
static void make_hash_key(lua_State *L, lheed_state *S) {
  struct {
    const void *addresses[4];
    double now;
  } material;
  memset(&material, 0, sizeof material); /* the padding is hashed, too */
  material.addresses[0] = L;
  material.addresses[1] = S;
  material.addresses[2] = &material;
  material.addresses[3] = &lheed_state_key;
  material.now = heed_clock();
  heed__hash_make_key(&material, sizeof material, S->hash_key);
}

void lheed_new_state(lua_State *L) {
  lheed_state *S = lua_newuserdatauv(L, sizeof *S, 0);
  memset(S, 0, sizeof *S);
  S->mark = &lheed_state_key;
  make_hash_key(L, S);
  lua_createtable(L, 0, 1);
  lua_pushvalue(L, -2);
  lua_pushcclosure(L, state_gc, 1);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  S->allocate = lua_getallocf(L, &S->allocate_user);
  const heed_allocator of_lua = {allocate_by_lua, release_by_lua, S};
  heed_status status = heed_context_new(lheed_allocates_by_lua(L) ? &of_lua : NULL, &S->context);
  if (status == HEED_ARGUMENT)
#define X(name) " " #name
    luaL_error(L,
               "heed: HEED_CPU is '%s'; it must be kernels that run on this processor, of:" HEED__CPU_LIST(X),
               getenv("HEED_CPU"));
#undef X
  if (status) luaL_error(L, "heed: out of memory for a context");
  heed_set_huge_pages(S->context, true);
  heed_set_kept_memory(S->context, uses_own_allocator(L) ? HEED__KEPT_MEMORY : 0);
  find_own_files(L, S);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &lheed_state_key);
}

void lheed_push_state(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &lheed_state_key);
}

void lheed_new_weak(lua_State *L, const char *mode) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushstring(L, mode);
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
}

/* ---- Adding functions ---- */

void lheed_setfuncs(lua_State *L, const luaL_Reg *functions) {
  lheed_push_state(L);
  luaL_setfuncs(L, functions, 1);
}

void lheed_add(lua_State *L, const char *table, const luaL_Reg *functions) {
  const int library = lua_gettop(L) - 1;
  if (!table) {
    lua_pushvalue(L, library);
  } else if (lua_getfield(L, library, table) != LUA_TTABLE) {
    lua_pop(L, 1);
    lua_createtable(L, 0, 16);
    lua_pushvalue(L, -1);
    lua_setfield(L, library, table);
  }
  lheed_setfuncs(L, functions);
  lua_pop(L, 1);
}

void lheed_add_methods(lua_State *L, const luaL_Reg *functions, bool in_place) {
  char name[32];
  lheed_push_state(L);
  for (; functions->name; functions++) {
    const size_t length = strlen(functions->name);
    assert(length < sizeof name);
    memcpy(name, functions->name, length);
    name[length] = '_';
    lua_pushlstring(L, name, length + in_place); /* lua_pushfstring took a quarter of the time of opening */
    lua_pushvalue(L, -2);
    lua_pushboolean(L, in_place);
    lua_pushvalue(L, -3);
    lua_pushcclosure(L, functions->func, 3);
    for (int table = -5; table <= -4; table++) { /* the library, the methods */
      lua_pushvalue(L, -2);
      lua_pushvalue(L, -2);
      lua_rawset(L, table - 2);
    }
    lua_pop(L, 2);
  }
  lua_pop(L, 1);
}

/* ---- Setting fields ---- */

void lheed_set_string(lua_State *L, const char *name, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, name);
}

void lheed_set_integer(lua_State *L, const char *name, int64_t value) {
  lua_pushinteger(L, (lua_Integer)value);
  lua_setfield(L, -2, name);
}

void lheed_set_number(lua_State *L, const char *name, double value) {
  lua_pushnumber(L, (lua_Number)value);
  lua_setfield(L, -2, name);
}

/* ---- Functions that belong to heed ---- */

void lheed_add_transparent(lua_State *L, lua_CFunction function) {
  lheed_state *S = lheed_find(L);
  const size_t capacity = sizeof S->transparent / sizeof *S->transparent;
  if (!S) return;
  assert(S->transparent_count < capacity);
  if (S->transparent_count < capacity) S->transparent[S->transparent_count++] = function;
}

bool lheed_is_transparent(lua_State *L, const char *source, lua_CFunction function) {
  if (strncmp(source, "=heed", 5) == 0 && (source[5] == '\0' || source[5] == '.')) return true;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &lheed_state_key);
  const lheed_state *S = lheed_state_at(L, -1);
  lua_pop(L, 1);
  if (!S) return false;
  for (size_t i = 0; i < S->transparent_count; i++)
    if (S->transparent[i] == function) return true;
  return S->own_files[0] && strncmp(source, S->own_files, strlen(S->own_files)) == 0;
}

/* ---- Frames: the calls of a script ---- */

/* Calls upvalue 1; upvalue 2 is the state. */
static int call_frame(lua_State *L) {
  lheed_state *S = lheed_state_at(L, lua_upvalueindex(2));
  if (S && S->context && S->context->limits.call_seconds > 0) lheed_start_call(L, S);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  return lheed_call_all(L);
}

/* core.frame(f, yields): f as a C function, for heed's own Lua files. A Lua function that is called last in
 * another, `return m(x)`, replaces that one on the stack, so that an error could not show its line; a C
 * function does not. All that f calls counts as one call for limits.call_seconds. Where coroutines cannot
 * yield through a C function (5.1, LuaJIT) and f calls a script's code, which may yield (`yields`), the
 * result is f itself. */
static int new_frame(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 2);
  const bool unchanged = !LHEED_YIELDS_THROUGH_C && lua_toboolean(L, 2);
  lua_settop(L, 1);
  if (unchanged) return 1;
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushcclosure(L, call_frame, 2);
  return 1;
}

/* A call is nested if a frame is below it on the stack. The search ends at DEEPEST levels. */
enum { DEEPEST = 200 };

typedef enum call_depth { OUTERMOST, NESTED, TOO_DEEP } call_depth;

static call_depth call_depth_of(lua_State *L) {
  lua_Debug ar;
  for (int level = 1; level < DEEPEST; level++) {
    if (!lua_getstack(L, level, &ar)) return OUTERMOST;
    lua_getinfo(L, "f", &ar);
    const bool nested = lua_tocfunction(L, -1) == call_frame;
    lua_pop(L, 1);
    if (nested) return NESTED;
  }
  return TOO_DEEP;
}

void lheed_start_call(lua_State *L, lheed_state *S) {
  if (call_depth_of(L) != NESTED) heed__start_call(S->context);
}

bool lheed_is_in_call(lua_State *L) {
  const call_depth depth = call_depth_of(L);
  /* where all functions of heed's Lua files are frames, one of them is somewhere below DEEPEST levels */
  return depth == NESTED || (depth == TOO_DEEP && LHEED_YIELDS_THROUGH_C);
}

/* count_calls(f): the running calls of f in this coroutine, among the innermost 1000 of all functions */
static int count_calls(lua_State *L) {
  enum { COUNTED_LEVELS = 1000 };
  lua_Debug ar;
  int count = 0;
  lua_settop(L, 1);
  for (int level = 1; level <= COUNTED_LEVELS && lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "f", &ar);
    count += lua_rawequal(L, 1, -1);
    lua_pop(L, 1);
  }
  lua_pushinteger(L, count);
  return 1;
}

void lheed_open_frames(lua_State *L) {
  static const luaL_Reg functions[] = {{"frame", new_frame}, {NULL, NULL}};
  static const luaL_Reg primitives[] = {{"count_calls", count_calls}, {NULL, NULL}};
  lheed_add(L, NULL, functions);
  lheed_add(L, "modules", primitives);
  lheed_add_transparent(L, call_frame);
}
