/* Values of a script that C objects hold: functions that a graph of gradients calls. The registry keeps them,
 * under the address of a small block that C has. */
#include "lheed.h"

/* Registry key of a table: address of the block → {the block, the value}. */
static const char kept_key = 0;

typedef struct kept_value {
  lheed_state *state;
  struct kept_value *next; /* of those that were dropped */
} kept_value;

void *lheed_keep(lua_State *L, int idx) {
  kept_value *kept = lua_newuserdatauv(L, sizeof *kept, 0);
  *kept = (kept_value){.state = lheed_get(L)};
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kept_key);
  lua_createtable(L, 2, 0);
  lua_pushvalue(L, -3);
  lua_rawseti(L, -2, 1);
  lua_pushvalue(L, idx);
  lua_rawseti(L, -2, 2);
  lua_rawsetp(L, -2, kept);
  lua_pop(L, 2);
  return kept;
}

void lheed_push_kept(lua_State *L, const void *kept) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kept_key);
  if (lua_rawgetp(L, -1, kept) == LUA_TTABLE) {
    lua_rawgeti(L, -1, 2);
    lua_replace(L, -2);
  }
  lua_remove(L, -2);
}

lheed_state *lheed_state_of_kept(const void *kept) {
  const kept_value *k = kept;
  return k->state;
}

void lheed_drop_kept(void *kept) {
  kept_value *k = kept;
  k->next = k->state->dropped;
  k->state->dropped = k;
}

void lheed_forget_dropped(lua_State *L, lheed_state *S) {
  kept_value *next = S->dropped;
  if (next == NULL || !lua_checkstack(L, 4)) return;
  S->dropped = NULL;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kept_key);
  for (kept_value *k = next; k != NULL; k = next) {
    next = k->next;
    lua_pushnil(L);
    lua_rawsetp(L, -2, k);
  }
  lua_pop(L, 1);
}

void lheed_open_kept(lua_State *L) {
  lua_createtable(L, 0, 4);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &kept_key);
}
