/* The library in a Lua state: its context, boxes around C objects, errors, and what `require` gives. */
#include "lheed.h"

#include <string.h>

#include "../io/io.h"
#include "lua_sources.h" /* lheed_sources: lua/heed/ as bytes, made by the Makefile */

/* ---- The state ---- */

/* Keys of the registry are addresses of this copy of the library, so that two copies in one Lua state never
 * meet. */
static const char state_key = 0, core_key = 0, loaded_key = 0, alive_key = 0, collect_key = 0;

/* NULL for anything else: the debug library can put any value into an upvalue. */
static lheed_state *state_at(lua_State *L, int idx) {
  lheed_state *S = lua_rawlen(L, idx) == sizeof *S ? lua_touserdata(L, idx) : NULL;
  return S && S->mark == &state_key && S->context ? S : NULL;
}

lheed_state *lheed_get(lua_State *L) {
  lheed_state *S = state_at(L, lua_upvalueindex(1));
  if (!S) luaL_error(L, "this Lua state has closed heed");
  if (S->context->limits.seconds > 0) lheed_start_call(L, S);
  return S;
}

void lheed_begin(lua_State *L) {
  (void)lheed_get(L);
}

lheed_state *lheed_find(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &state_key);
  lheed_state *S = state_at(L, -1);
  lua_pop(L, 1);
  return S;
}

static int state_gc(lua_State *L) {
  lheed_state *S = state_at(L, lua_upvalueindex(1));
  if (!S) return 0;
  /* Boxes that finalizers made while the Lua state is closing are never finalized, so what is in them would
   * stay. */
  heed__context_destroy(S->context);
  S->context = NULL;
  return 0;
}

/* The directory of heed/init.lua as chunk names show it, if that is what opens us: "@lua/heed/". */
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

/* Tensors come from where the Lua state takes its memory, so that a host which bounds that bounds them, too.
 */
static void *allocate(void *user, size_t bytes) {
  const lheed_state *S = user;
  return S->allocate(S->allocate_user, NULL, 0, bytes);
}

static void release_state(void *user, void *block, size_t bytes) {
  const lheed_state *S = user;
  S->allocate(S->allocate_user, block, bytes, 0);
}

/* From addresses, which most systems choose at random, and a clock of nanoseconds: asking the system for
 * random bytes could block or fail. */
static void make_hash_key(lua_State *L, lheed_state *S) {
  struct {
    const void *addresses[4];
    double now;
  } material;
  memset(&material, 0, sizeof material); /* the padding, too */
  material.addresses[0] = L;
  material.addresses[1] = S;
  material.addresses[2] = &material;
  material.addresses[3] = &state_key;
  material.now = heed_clock();
  heed__hash_make_key(&material, sizeof material, S->hash_key);
}

static void new_state(lua_State *L) {
  lheed_state *S = lua_newuserdatauv(L, sizeof *S, 0);
  memset(S, 0, sizeof *S);
  S->mark = &state_key;
  make_hash_key(L, S);
  lua_createtable(L, 0, 1);
  lua_pushvalue(L, -2);
  lua_pushcclosure(L, state_gc, 1);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  S->allocate = lua_getallocf(L, &S->allocate_user);
  const heed_allocator of_lua = {allocate, release_state, S};
  heed_status status = heed_context_new(lheed_has_room(L) ? &of_lua : NULL, &S->context);
  if (status == HEED_ARGUMENT)
    luaL_error(
        L, "heed: the environment's HEED_CPU names no kernels that run on this processor; known are scalar, "
           "avx2, avx512 and neon");
  if (status) luaL_error(L, "heed: no memory for a context");
  heed_set_huge_pages(S->context, true);
  find_own_files(L, S);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &state_key);
}

void lheed_push_state(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &state_key);
}

void lheed_setfuncs(lua_State *L, const luaL_Reg *functions) {
  lheed_push_state(L);
  luaL_setfuncs(L, functions, 1);
}

/* ---- Boxes ---- */

static void release_tensor(void *object) {
  heed_tensor_free(object);
}
static void release_module(void *object) {
  heed_module_release(object);
}
static void release_generator(void *object) {
  heed_generator_free(object);
}
static void release_cache(void *object) {
  heed_kv_cache_free(object);
}
static void release_plan(void *object) {
  heed_steps_free(object);
}

const lheed_type lheed_tensor_type = {"Tensor", release_tensor};
const lheed_type lheed_module_type = {"Module", release_module};
const lheed_type lheed_generator_type = {"Generator", release_generator};
const lheed_type lheed_cache_type = {"Cache", release_cache};
const lheed_type lheed_steps_type = {"Steps", release_plan};

static const lheed_type *const box_types[] = {&lheed_tensor_type, &lheed_module_type, &lheed_generator_type,
                                              &lheed_cache_type,  &lheed_steps_type,  &lheed_archive_type,
                                              &lheed_json_type};

/* Lists the box on top of the stack in a table with weak values. The collector takes it out before it calls
 * its finalizer; what is still there is in use. */
static void list_as_alive(lua_State *L, const lheed_box *box) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &alive_key);
  lua_pushvalue(L, -2);
  lua_rawsetp(L, -2, box);
  lua_pop(L, 1);
}

void **lheed_push_box(lua_State *L, const lheed_type *type) {
  lheed_box *box = lua_newuserdatauv(L, sizeof *box, 0);
  const lheed_state *S =
      state_at(L, lua_upvalueindex(1)); /* most functions have it; to find it takes longer */
  box->type = type;
  box->object = NULL;
  box->state = S ? S : lheed_find(L);
  lheed_push_metatable(L, type);
  lua_setmetatable(L, -2);
  if (!LHEED_NAMES_FINALIZERS) list_as_alive(L, box);
  return &box->object;
}

heed_tensor **lheed_push_tensor(lua_State *L) {
  return (heed_tensor **)lheed_push_box(L, &lheed_tensor_type);
}

lheed_box *lheed_test(lua_State *L, int idx, const lheed_type *type) {
  lheed_box *box = lua_touserdata(L, idx); /* a light one has no length */
  if (!box || lua_rawlen(L, idx) != sizeof *box || box->type != type) return NULL;
  if (!box->state || !box->state->context) box->object = NULL; /* went with the state */
  return box;
}

void lheed_push_metatable(lua_State *L, const lheed_type *type) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, type);
}

/* The debug library can take __gc from a metatable. Called from a finalizer of a script's own, that would
 * free what a function is working on. What the collector calls while a debug hook is being started looks like
 * a hook; hooks that are called as such get no boxes. Where a Lua closes, and nothing is in use any more,
 * boxes may be listed as alive still: what is in them is freed with the state. */
static bool called_by_collector(lua_State *L, const lheed_box *box) {
  lua_Debug ar;
  if (!LHEED_NAMES_FINALIZERS) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &alive_key);
    const bool alive = lua_rawgetp(L, -1, box) != LUA_TNIL;
    lua_pop(L, 2);
    return !alive;
  }
  if (!lua_getstack(L, 0, &ar) || !lua_getinfo(L, "n", &ar) || !ar.name) return false;
  return strcmp(ar.namewhat, "hook") == 0 ||
         (strcmp(ar.name, "__gc") == 0 && strcmp(ar.namewhat, "metamethod") == 0);
}

/* Tensors can be released by scripts anyway, but for the middle of an operation. For them only that is asked:
 * the other question costs 90 ns, a quarter of a small operation. */
static bool may_free(lua_State *L, const lheed_box *box) {
  if (box->type == &lheed_tensor_type) {
    if (!box->state || !box->state->collecting) return true;
  }
  return called_by_collector(L, box);
}

/* For all boxes; takes no other value for one, whoever calls it. */
static int box_gc(lua_State *L) {
  for (size_t i = 0; i < sizeof box_types / sizeof *box_types; i++) {
    lheed_box *box = lheed_test(L, 1, box_types[i]);
    if (!box) continue;
    if (!may_free(L, box)) break;
    void *object = box->object;
    box->object = NULL;
    if (object) box->type->release(object);
    break;
  }
  return 0;
}

void lheed_publish_metatable(lua_State *L, const lheed_type *type) {
  lheed_push_metatable(L, type);
  int metatable = lua_gettop(L);
  lua_createtable(L, 0, 8);
  lua_pushnil(L);
  while (lua_next(L, metatable)) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, metatable + 1);
  }
  for (size_t i = 0; i < 2; i++) { /* nobody needs to call __gc, and a copy of an older copy is useless */
    lua_pushnil(L);
    lua_setfield(L, metatable + 1, i == 0 ? "__gc" : "__metatable");
  }
  lua_setfield(L, metatable, "__metatable");
  lua_pop(L, 1);
}

static void new_metatable(lua_State *L, const lheed_type *type) {
  lua_createtable(L, 0, 8);
  lua_pushfstring(L, "heed.%s", type->name);
  lua_setfield(L, -2, "__name");
  lua_pushcfunction(L, box_gc);
  lua_setfield(L, -2, "__gc");
  lua_rawsetp(L, LUA_REGISTRYINDEX, type);
}

/* ---- The collector ---- */

/* Lua sees only the boxes. So after this much new tensor memory (or a quarter of what there is) the collector
 * is moved on by the bytes taken. Smaller amounts would spend more time in the collector than in the tensors:
 * a cycle over a small script's objects takes some 0.3 ms, filling 4 MiB twice that. */
#define STEP_BYTES ((size_t)4 << 20)

int lheed_return(lua_State *L, int n) {
  lheed_state *S = state_at(L, lua_upvalueindex(1));
  if (!S) return n;
  size_t now = heed_memory_in_use(S->context);
  size_t step = S->stepped_at / 4 > STEP_BYTES ? S->stepped_at / 4 : STEP_BYTES;
  if (now < S->stepped_at) {
    S->stepped_at = now;
  } else if (now - S->stepped_at >= step) {
    size_t kib = (now - S->stepped_at) >> 10;
    if (lheed_collector_step(L, kib < ((size_t)1 << 20) ? (int)kib : 1 << 20))
      S->stepped_at = heed_memory_in_use(S->context);
  }
  return n;
}

/* Before 5.4 errors in finalizers come through here: some script's, or for want of memory. */
static int collect(lua_State *L) {
  lua_gc(L, LUA_GCCOLLECT, 0);
  return 0;
}

void lheed_collect(lua_State *L) {
  lheed_state *S = lheed_find(L);
  if (!S || S->collecting) return;
  S->collecting = true;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &collect_key);
  if (lua_pcall(L, 0, 0, 0) != LUA_OK) lua_pop(L, 1);
  S->collecting = false;
}

/* ---- Errors ---- */

static bool is_own_file(const lheed_state *S, const char *source) {
  if (strncmp(source, "=heed", 5) == 0 && (source[5] == '\0' || source[5] == '.')) return true;
  return S && S->own_files[0] && strncmp(source, S->own_files, strlen(S->own_files)) == 0;
}

/* Calls upvalue 1; upvalue 2 is the state. */
static int call_through(lua_State *L) {
  lheed_state *S = state_at(L, lua_upvalueindex(2));
  if (S && S->context->limits.seconds > 0) lheed_start_call(L, S);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  return lheed_call_all(L);
}

bool lheed_is_frame(lua_State *L, int idx) {
  return lua_tocfunction(L, idx) == call_through;
}

/* core.frame(f, yields): f as a function of C, for heed's own Lua files. A function of Lua that is the last
 * call of another, `return m(x)`, takes that one's place, and an error could not point there; a function of C
 * does not; and all that f calls is one call for limits.seconds. Where coroutines cannot yield through one
 * (5.1, LuaJIT), and a script may want to because f calls code of its own (`yields`), it is f itself. */
static int frame(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 2);
  const bool itself = !LHEED_YIELDS_THROUGH_C && lua_toboolean(L, 2);
  lua_settop(L, 1);
  if (itself) return 1;
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushcclosure(L, call_through, 2);
  return 1;
}

/* Whether the function was called by Lua itself: ipairs' by a `for`, the metamethods of strings by "1" + x.
 */
static bool is_implicit(const lua_Debug *ar) {
  return strcmp(ar->namewhat, "metamethod") == 0 || strcmp(ar->namewhat, "for iterator") == 0 ||
         (ar->name && strcmp(ar->name, "(for generator)") == 0); /* in 5.1 */
}

/* Pushes "file:line: " of the function that called us, heed's own Lua files left out; "" if that is not a Lua
 * function. */
static void push_position(lua_State *L) {
  const lheed_state *S = lheed_find(L);
  lua_Debug ar;
  bool through_c = false;
  for (int level = 1; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Slnf", &ar);
    const lua_CFunction function = lua_tocfunction(L, -1);
    bool own = function == call_through || function == lheed_skip_init || function == lheed_late_call ||
               is_own_file(S, ar.source);
    lua_pop(L, 1);
    if (own) {
      through_c = false;
    } else if (strcmp(ar.what, "tail") == 0) { /* 5.1: stands for functions that were left by a last call */
      continue;
    } else if (ar.currentline < 0) {
      through_c = through_c || !is_implicit(&ar);
    } else {
      if (through_c) break;
      lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
      return;
    }
  }
  lua_pushliteral(L, "");
}

/* Raises the string on top of the stack with the place in front. */
static int raise_top(lua_State *L) {
  push_position(L);
  lua_insert(L, -2);
  lua_concat(L, 2);
  return lua_error(L);
}

int lheed_error(lua_State *L, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  lua_pushvfstring(L, format, arguments);
  va_end(arguments);
  return raise_top(L);
}

void lheed_push_message(lua_State *L, heed_status status) {
  const lheed_state *S = lheed_find(L);
  char text[HEED__MESSAGE]; /* before 5.3 finalizers run before a string is made, and may fail as well */
  snprintf(text, sizeof text, "%s", S ? heed_message(S->context) : "");
  lua_pushstring(L, *text ? text : heed_status_name(status));
}

void lheed_raise(lua_State *L, heed_status status) {
  lheed_push_message(L, status);
  raise_top(L);
}

/* core.raise(message): what heed's own Lua files use in the place of error(message, level). */
static int raise_here(lua_State *L) {
  luaL_checkstring(L, 1);
  lua_settop(L, 1);
  return raise_top(L);
}

/* ---- Opening ---- */

void lheed_new_weak(lua_State *L) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
}

static void open_core(lua_State *L) {
  new_state(L);
  for (size_t i = 0; i < sizeof box_types / sizeof *box_types; i++) new_metatable(L, box_types[i]);
  lheed_new_weak(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &alive_key);
  lua_pushcfunction(L, collect); /* made now, for in 5.1 that takes memory */
  lua_rawsetp(L, LUA_REGISTRYINDEX, &collect_key);
  lua_createtable(L, 0, 160); /* the library */
  lua_createtable(L, 0, 160); /* the methods of tensors */
  lheed_open_size(L);
  lheed_open_tensor(L);
  lheed_open_nested(L);
  lheed_open_ops(L);
  lheed_open_views(L);
  lheed_open_layers(L);
  lheed_open_rope(L);
  lheed_open_print(L);
  lheed_open_random(L);
  lheed_open_info(L);
  lheed_open_limit(L);
  lheed_open_io(L);
  lheed_open_text(L);
  lheed_open_nn(L);
  lheed_open_index(L);
  lua_pop(L, 1);
  lheed_open_object(L);
  for (size_t i = 0; i < sizeof box_types / sizeof *box_types; i++) lheed_publish_metatable(L, box_types[i]);
  static const luaL_Reg own[] = {{"frame", frame}, {"raise", raise_here}, {NULL, NULL}};
  lheed_setfuncs(L, own);
  lua_pushliteral(L, HEED_VERSION);
  lua_setfield(L, -2, "version");
  lheed_open_late(L);
}

int luaopen_heed_core(lua_State *L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &core_key) == LUA_TNIL) {
    lua_pop(L, 1);
    open_core(L);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &core_key);
  }
  return 1;
}

/* The embedded files' own `require`: needs no package library. Upvalue 1 (here and in what it loads): what
 * was loaded. */
static int own_require(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  lua_settop(L, 1);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &loaded_key);
  if (lua_getfield(L, 2, name) != LUA_TNIL) return 1;
  for (size_t i = 0; lheed_sources[i].name; i++) {
    if (strcmp(lheed_sources[i].name, name) != 0) continue;
    lua_pushfstring(L, "=%s", name);
    if (luaL_loadbufferx(L, (const char *)lheed_sources[i].code, lheed_sources[i].size, lua_tostring(L, -1),
                         "t"))
      return lua_error(L);
    lua_getfield(L, 2, "_ENV");
    lheed_set_environment(L);
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, 2, name);
    return 1;
  }
  return luaL_error(L, "module '%s' is not part of heed", name);
}

/* Makes the table of what is loaded, with "heed.core" in it and, as "_ENV", the environment of the embedded
 * files: the globals, but with our `require`, and with those of Lua's own functions that they use, so that
 * they do not miss what a script or a sandbox takes away after opening. */
static void prepare_own_require(lua_State *L) {
  static const char *const globals[] = {"assert",   "error",    "getmetatable", "ipairs",   "math",
                                        "next",     "pairs",    "pcall",        "rawequal", "rawget",
                                        "rawset",   "select",   "setmetatable", "string",   "table",
                                        "tonumber", "tostring", "type",         "unpack"};
  lua_newtable(L);
  luaopen_heed_core(L);
  lua_setfield(L, -2, "heed.core");
  lua_createtable(L, 0, 24);
  lua_pushcfunction(L, own_require);
  lua_setfield(L, -2, "require");
  lua_createtable(L, 0, 1);
  lua_pushglobaltable(L);
  for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
    lua_getfield(L, -1, globals[i]);
    lua_setfield(L, -4, globals[i]);
  }
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  lua_setfield(L, -2, "_ENV");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &loaded_key);
}

/* The parts in Lua are inside. Where the state has the package library, `require "heed.…"` finds them too. */
int luaopen_heed(lua_State *L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &loaded_key) == LUA_TNIL) prepare_own_require(L);
  if (lheed_push_preload(L) == LUA_TTABLE) {
    for (size_t i = 0; lheed_sources[i].name; i++) {
      if (lua_getfield(L, -1, lheed_sources[i].name) == LUA_TNIL) {
        lua_pushcfunction(L, own_require);
        lua_setfield(L, -3, lheed_sources[i].name);
      }
      lua_pop(L, 1);
    }
  }
  lua_pushcfunction(L, own_require);
  lua_pushliteral(L, "heed");
  lua_call(L, 1, 1);
  return 1;
}
