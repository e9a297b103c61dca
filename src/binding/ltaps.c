/* Taps, what attention computed on the way, as a table: {weights = a tensor, …}; and the choice of them. */
#include <math.h>
#include <string.h>

#include "lheed.h"

const char *const lheed_module_taps[] = {"scores", "weights", "dropped_weights", "queries", "keys",
                                         "values", NULL};

/* The field of that name. */
static bool *wanted_field(heed_taps_wanted *wanted, const char *name) {
#define X(tap)                                                                                               \
  if (strcmp(name, #tap) == 0) return &wanted->tap;
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
  return NULL;
}

static void refuse_tap(lua_State *L, int idx, const char *function, const char *const *names) {
  const char *what = lheed_push_what(L, idx);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (int i = 0; names[i]; i++) {
    luaL_addstring(&b, names[i]);
    luaL_addstring(&b, ", ");
  }
  luaL_addstring(&b, "lse");
  luaL_pushresult(&b);
  lheed_error(L, "%s: need_weights contains %s; its names must be among %s", function, what,
              lua_tostring(L, -1));
}

/* Sets the field of the name at idx; lse is allowed besides the function's. */
static void want_name(lua_State *L, int idx, const char *function, const char *const *names,
                      heed_taps_wanted *wanted) {
  const char *name = lua_type(L, idx) == LUA_TSTRING ? lua_tostring(L, idx) : "";
  bool known = strcmp(name, "lse") == 0;
  for (int i = 0; names[i] && !known; i++) known = strcmp(name, names[i]) == 0;
  if (!known) refuse_tap(L, idx, function, names);
  *wanted_field(wanted, name) = true;
}

/* The integers of the list at idx in new memory, which it leaves on the stack in place of the list. */
static const int64_t *list_of_integers(lua_State *L, int idx, const char *function, const char *name,
                                       int64_t *count) {
  if (lua_type(L, idx) != LUA_TTABLE) lheed_bad_argument(L, idx, function, name, "a list of integers");
  const size_t n = lua_rawlen(L, idx);
  int64_t *list = lua_newuserdatauv(L, (n + 1) * sizeof *list, 0);
  for (size_t i = 0; i < n; i++) {
    lua_rawgeti(L, idx, (lua_Integer)i + 1);
    list[i] = lheed_integer(L, lua_gettop(L), function, name);
    lua_pop(L, 1);
  }
  lua_replace(L, idx);
  *count = (int64_t)n;
  return list;
}

/* Pushes t.heads and t.queries, or memory for their integers, of the table t at idx. */
static void want_rows(lua_State *L, int idx, const char *function, heed_taps_wanted *wanted) {
  lua_pushliteral(L, "heads");
  lua_rawget(L, idx);
  if (!lua_isnil(L, -1))
    wanted->head_list =
        list_of_integers(L, lua_gettop(L), function, "need_weights.heads", &wanted->head_count);
  lua_pushliteral(L, "queries");
  lua_rawget(L, idx);
  if (!lua_isnil(L, -1))
    wanted->query_list =
        list_of_integers(L, lua_gettop(L), function, "need_weights.queries", &wanted->query_count);
  wanted->query_range = wanted->query_count == 2;
}

/* Reads the table at idx. Pushes two values. */
static void want_table(lua_State *L, int idx, const char *function, const char *const *names,
                       heed_taps_wanted *wanted) {
  const size_t n = lua_rawlen(L, idx);
  for (size_t i = 1; i <= n; i++) {
    lua_rawgeti(L, idx, (lua_Integer)i);
    want_name(L, lua_gettop(L), function, names, wanted);
    lua_pop(L, 1);
  }
  for (int i = 0; n == 0 && names[i]; i++) *wanted_field(wanted, names[i]) = true;
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
    const int key = lua_gettop(L) - 1;
    if (lua_type(L, key) == LUA_TNUMBER) {
      const lua_Number i = lua_tonumber(L, key);
      if (i >= 1 && i <= (lua_Number)n && i == floor(i)) continue;
      lheed_error(L, "%s: need_weights is a list with gaps; its names must be at 1, 2, …", function);
    }
    const char *text = lua_type(L, key) == LUA_TSTRING ? lua_tostring(L, key) : "";
    if (strcmp(text, "heads") == 0 || strcmp(text, "queries") == 0) continue;
    lheed_error(L, "%s: need_weights has the field %s; its fields are heads and queries", function,
                lheed_push_key(L, key));
  }
  want_rows(L, idx, function, wanted);
}

bool lheed_read_wanted(lua_State *L, int need_weights, int need_lse, const char *function,
                       const char *const *names, heed_taps_wanted *wanted, const heed_taps_wanted **chosen) {
  const bool lse = lheed_opt_boolean(L, need_lse, function, "need_lse", false);
  *wanted = (heed_taps_wanted){.size = sizeof *wanted, .lse = lse};
  *chosen = NULL;
  luaL_checkstack(L, 8, function);
  if (lua_type(L, need_weights) == LUA_TTABLE) {
    want_table(L, need_weights, function, names, wanted);
    *chosen = wanted;
    return true;
  }
  if (!lua_isnil(L, need_weights) && !lua_isboolean(L, need_weights))
    lheed_bad_argument(L, need_weights, function, "need_weights", "a boolean or a table of names");
  const bool all = lua_toboolean(L, need_weights);
  for (int i = 0; lse && all && names[i]; i++) *wanted_field(wanted, names[i]) = true;
  if (lse) *chosen = wanted;
  return lse || all;
}

void lheed_push_tap_boxes(lua_State *L, lheed_tap_boxes *taps) {
  luaL_checkstack(L, LHEED_TAPS + 4, "need_weights");
  taps->first = lua_gettop(L) + 1;
  for (int i = 0; i < LHEED_TAPS; i++) taps->box[i] = lheed_push_tensor(L);
}

void lheed_push_taps(lua_State *L, const lheed_tap_boxes *taps, const heed_attention_taps *found) {
#define X(name) #name,
  static const char *const names[] = {HEED_ATTENTION_TAPS_LIST(X)};
#undef X
  int next = 0;
#define X(name) *taps->box[next++] = found->name;
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
  lua_createtable(L, 0, LHEED_TAPS);
  for (int i = 0; i < LHEED_TAPS; i++) {
    if (!*taps->box[i]) continue;
    lua_pushvalue(L, taps->first + i);
    lua_setfield(L, -2, names[i]);
  }
}
