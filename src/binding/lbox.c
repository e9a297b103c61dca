/* Boxes, the userdata around C objects: their metatables, their finalizer, and collector steps for the
 * memory that they hold. */
#include <string.h>

#include "../core/core.h"
#include "lheed.h"

/* Registry keys. alive: the boxes in use, a weak table. types: type of boxes → metatable. */
static const char alive_key = 0, types_key = 0, collect_key = 0;

/* ---- Making boxes ---- */

/* Lists the box on top of the stack in a table with weak values. The collector removes it before it calls its
 * finalizer; boxes that are still listed are in use. */
static void list_as_alive(lua_State *L, const lheed_box *box) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &alive_key);
  lua_pushvalue(L, -2);
  lua_rawsetp(L, -2, box);
  lua_pop(L, 1);
}

void **lheed_push_box(lua_State *L, const lheed_type *type) {
  lheed_box *box = lua_newuserdatauv(L, sizeof *box, type != &lheed_tensor_type);
  const lheed_state *S = lheed_running(L); /* faster than lheed_find, and most functions have it */
  box->type = type;
  box->object = NULL;
  box->state = S ? S : lheed_find(L);
  box->pair = 0;
  lheed_push_metatable(L, type);
  lua_setmetatable(L, -2);
  if (!LHEED_NAMES_FINALIZERS) list_as_alive(L, box);
  return &box->object;
}

static bool is_type(lua_State *L, const lheed_type *type) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &types_key);
  const bool found = lua_rawgetp(L, -1, type) != LUA_TNIL;
  lua_pop(L, 2);
  return found;
}

lheed_box *lheed_test(lua_State *L, int idx, const lheed_type *type) {
  lheed_box *box = lua_touserdata(L, idx); /* a light userdata has length 0 */
  if (!box || lua_rawlen(L, idx) != sizeof *box || box->type != type) return NULL;
  if (!box->state || !box->state->context) box->object = NULL; /* freed with the context */
  return box;
}

lheed_box *lheed_box_at(lua_State *L, int idx) {
  const lheed_box *box = lua_touserdata(L, idx);
  if (!box || lua_rawlen(L, idx) != sizeof *box || !is_type(L, box->type)) return NULL;
  return lheed_test(L, idx, box->type);
}

/* ---- What is attached to a box ---- */

/* A key in the table that a box stores: in 5.1 others store the globals. */
static const char attached_key = 0;

bool lheed_push_attached(lua_State *L, int idx, bool create) {
  luaL_checkstack(L, 4, "attached");
  lheed_push_held(L, idx);
  if (lua_istable(L, -1)) {
    const bool found = lua_rawgetp(L, -1, &attached_key) != LUA_TNIL;
    lua_pop(L, 1);
    if (found) return true;
  }
  lua_pop(L, 1);
  if (!create) return false;
  lua_createtable(L, 0, 2);
  lua_pushboolean(L, true);
  lua_rawsetp(L, -2, &attached_key);
  lua_pushvalue(L, idx);
  lua_pushvalue(L, -2);
  lheed_set_held(L);
  lua_pop(L, 1);
  return true;
}

/* ---- Objects written in Lua ---- */

static const char object_key = 0;

typedef struct lua_object {
  const void *mark; /* &object_key */
} lua_object;

_Static_assert(sizeof(lua_object) != sizeof(lheed_box), "an object must not be taken for a box");

void lheed_push_object(lua_State *L) {
  lua_object *o = lua_newuserdatauv(L, sizeof *o, 1);
  o->mark = &object_key;
  lua_pushvalue(L, 1);
  lheed_set_held(L);
}

bool lheed_is_object(lua_State *L, int idx) {
  const lua_object *o =
      lua_type(L, idx) == LUA_TUSERDATA && lua_rawlen(L, idx) == sizeof *o ? lua_touserdata(L, idx) : NULL;
  return o && o->mark == &object_key;
}

/* ---- Tensors ---- */

static void release_tensor(void *object) {
  heed_tensor_free(object);
}

static void describe_tensor(lua_State *L, const void *object) {
  const heed_tensor *x = object;
  char shape[HEED__SHAPE_TEXT];
  lua_pushfstring(L, "a tensor of shape %s and dtype %s", heed__shape_text(shape, x->ndim, x->shape),
                  heed_dtype_name(x->dtype));
}

const lheed_type lheed_tensor_type = {"Tensor", "tensor", release_tensor, describe_tensor};

heed_tensor **lheed_push_tensor(lua_State *L) {
  return (heed_tensor **)lheed_push_box(L, &lheed_tensor_type);
}

/* ---- Pairs ---- */

int lheed_return_pair(lua_State *L) {
  lheed_box *values = lheed_test(L, lua_gettop(L) - 1, &lheed_tensor_type);
  lheed_box *indices = lheed_test(L, lua_gettop(L), &lheed_tensor_type);
  if (values && indices) values->pair = indices->pair = ++lheed_get(L)->pairs;
  return lheed_return(L, 2);
}

bool lheed_are_pair(lua_State *L) {
  const lheed_box *values = lheed_test(L, lua_gettop(L) - 1, &lheed_tensor_type);
  const lheed_box *indices = lheed_test(L, lua_gettop(L), &lheed_tensor_type);
  return values && indices && values != indices && values->pair != 0 && values->pair == indices->pair;
}

/* ---- Finalizers ---- */

/* The debug library can take __gc from a metatable; called by a script, it would free what a function is
 * using. A finalizer that the collector calls while a debug hook starts looks like a hook; real hooks receive
 * no boxes. When a Lua state closes, boxes may still be listed as alive: what they hold is freed with the
 * context. */
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

/* Scripts may release tensors anyway, except during lheed_collect, which is all that is checked for tensors:
 * called_by_collector costs 90 ns, a quarter of a small operation. */
static bool may_free(lua_State *L, const lheed_box *box) {
  if (box->type == &lheed_tensor_type) {
    if (!box->state || !box->state->collecting) return true;
  }
  return called_by_collector(L, box);
}

/* The finalizer of all boxes. Scripts may call it with any value. */
static int box_gc(lua_State *L) {
  lheed_box *box = lheed_test(L, 1, &lheed_tensor_type); /* most boxes are tensors */
  if (!box) box = lheed_box_at(L, 1);
  if (!box || !may_free(L, box)) return 0;
  void *object = box->object;
  box->object = NULL;
  if (object) box->type->release(object);
  if (box->state && box->state->dropped) lheed_forget_dropped(L, lheed_find(L));
  return 0;
}

/* ---- Metatables ---- */

void lheed_push_metatable(lua_State *L, const lheed_type *type) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, type);
}

void lheed_new_type(lua_State *L, const lheed_type *type, const luaL_Reg *metamethods) {
  lua_createtable(L, 0, 8);
  lua_pushfstring(L, "heed.%s", type->name);
  lua_setfield(L, -2, "__name");
  lua_pushcfunction(L, box_gc);
  lua_setfield(L, -2, "__gc");
  if (metamethods) lheed_setfuncs(L, metamethods);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &types_key);
  lua_pushvalue(L, -2);
  lua_rawsetp(L, -2, type);
  lua_pop(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, type);
}

void lheed_add_metamethods(lua_State *L, const lheed_type *type, const luaL_Reg *metamethods) {
  lheed_push_metatable(L, type);
  lheed_setfuncs(L, metamethods);
  lua_pop(L, 1);
}

/* Sets __metatable of the table on top of the stack to a copy of it, without __gc, which no script needs. */
static void publish(lua_State *L) {
  const int metatable = lua_gettop(L);
  lua_createtable(L, 0, 8);
  lua_pushnil(L);
  while (lua_next(L, metatable)) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, metatable + 1);
  }
  lua_pushnil(L);
  lua_setfield(L, metatable + 1, "__gc");
  lua_setfield(L, metatable, "__metatable");
}

void lheed_publish_metatables(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &types_key);
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    publish(L);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

/* ---- The collector ---- */

/* Lua sees only the boxes. After this much new tensor memory, or a quarter of what is in use, the collector
 * makes a step for the bytes taken. With smaller amounts the collector would take longer than the tensors: a
 * cycle over the objects of a small script takes some 0.3 ms, filling 4 MiB twice that. */
#define STEP_BYTES ((size_t)8 << 20)

/* In a slice of time, steps are early and small: freeing 8 MiB of small tensors takes 1 to 2 ms. */
#define SLICED_STEP_BYTES ((size_t)1 << 20)
#define SLICED_STEP_KIB   16

static size_t step_of(const lheed_state *S) {
  if (S->sliced) return SLICED_STEP_BYTES;
  return S->stepped_at / 4 > STEP_BYTES ? S->stepped_at / 4 : STEP_BYTES;
}

static void step_collector(lua_State *L, lheed_state *S) {
  const size_t now = heed_memory_in_use(S->context), most = S->sliced ? SLICED_STEP_KIB : (size_t)1 << 20;
  if (now < S->stepped_at) {
    S->stepped_at = now;
  } else if (now - S->stepped_at >= step_of(S)) {
    const size_t kib = (now - S->stepped_at) >> 10;
    if (lheed_collector_step(L, (int)(kib < most ? kib : most)))
      S->stepped_at = heed_memory_in_use(S->context);
  }
}

/* sliced(whether): a slice of time begins or ends. */
static int set_sliced(lua_State *L) {
  lheed_get(L)->sliced = lua_toboolean(L, 1);
  return 0;
}

int lheed_return(lua_State *L, int n) {
  lheed_state *S = lheed_running(L);
  if (S) step_collector(L, S);
  return n;
}

/* Before 5.4 errors in a script's finalizers, and running out of memory there, are raised by the collection.
 */
static int collect_all(lua_State *L) {
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

/* ---- For C modules beside heed's own ---- */

heed_tensor *heed_lua_tensor(lua_State *L, int index) {
  const lheed_box *box = L ? lheed_test(L, index, &lheed_tensor_type) : NULL;
  return box ? box->object : NULL;
}

/* Steps the collector for what earlier calls took, as functions of other modules do not end with
 * lheed_return. */
heed_tensor **heed_lua_push_tensor(lua_State *L) {
  luaL_checkstack(L, 4, "heed_lua_push_tensor");
  lheed_state *S = lheed_find(L);
  if (!S || !S->context) luaL_error(L, "heed_lua_push_tensor: heed is not open in this Lua state");
  heed_tensor **x = lheed_push_tensor(L);
  step_collector(L, S);
  return x;
}

void lheed_open_boxes(lua_State *L) {
  static const luaL_Reg primitives[] = {{"sliced", set_sliced}, {NULL, NULL}};
  lheed_add(L, "modules", primitives);
  lua_newtable(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &types_key);
  lheed_new_weak(L, "v");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &alive_key);
  lua_pushcfunction(L, collect_all); /* now: in 5.1 pushing a C function takes memory */
  lua_rawsetp(L, LUA_REGISTRYINDEX, &collect_key);
  lheed_new_type(L, &lheed_tensor_type, NULL);
}
