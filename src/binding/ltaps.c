/* Taps, what attention computed on the way, as a table: {weights = a tensor, …}. */
#include "lheed.h"

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
