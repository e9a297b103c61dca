/* Attention that a function in Lua computes in place of C: heed.distributed's, over the ranks of a job. */
#include "lheed.h"

static const char redirect_key = 0; /* in the registry: the function, or nil */

bool lheed_redirect(lua_State *L, const char *what) {
  const lheed_state *S = lheed_running(L);
  if (!S || !S->redirects) return false;
  luaL_checkstack(L, 4, what);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &redirect_key);
  lua_insert(L, 1);
  lua_pushstring(L, what);
  lua_insert(L, 2);
  return true;
}

bool lheed_redirects(lua_State *L) {
  const lheed_state *S = lheed_running(L);
  return S && S->redirects;
}

/* redirect(f): from now on attention calls f(what, …) with its arguments; nil: no longer. Returns the
 * function that it called before. For heed's own Lua files. */
static int redirect(lua_State *L) {
  lheed_state *S = lheed_get(L);
  lua_settop(L, 1);
  if (!lua_isnil(L, 1) && !lua_isfunction(L, 1))
    lheed_bad_argument(L, 1, "redirect", "f", "a function or nil");
  if (!lua_isnil(L, 1) && !lua_isfunction(L, 1))
    return lheed_bad_argument(L, 1, "redirect", "f", "a function or nil");
  lua_rawgetp(L, LUA_REGISTRYINDEX, &redirect_key);
  lua_pushvalue(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &redirect_key);
  S->redirects = !lua_isnil(L, 1);
  return 1;
}

/* redirected() → that function, or nil */
static int redirected(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &redirect_key);
  return 1;
}

void lheed_open_redirect(lua_State *L) {
  static const luaL_Reg primitives[] = {{"redirect", redirect}, {"redirected", redirected}, {NULL, NULL}};
  lheed_add(L, "modules", primitives);
}
