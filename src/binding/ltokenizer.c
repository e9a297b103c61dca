/* Tokenizers in C, for lua/heed/tokenizers/init.lua. Ids count from 1 here. */
#include <string.h>

#include "../core/core.h"
#include "../text/text.h"
#include "lheed.h"

static void release_tokenizer(void *object) {
  heed_tokenizer_free(object);
}

/* No script gets a box of this type. */
static const lheed_type tokenizer_type = {"TokenizerFile", "tokenizer", release_tokenizer, NULL};

static heed_tokenizer *tokenizer_argument(lua_State *L, const char *function) {
  const lheed_box *box = lheed_test(L, 1, &tokenizer_type);
  if (!box || !box->object) lheed_bad_argument(L, 1, function, "self", "a tokenizer");
  return box->object;
}

/* tokenizer(path): a box; or nil, message */
static int load_tokenizer(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_status status;
  const char *path = lheed_path(L, 1, "load");
  heed_tokenizer *tok = NULL;
  void **box = lheed_push_box(L, &tokenizer_type);
  LHEED_TRY_FILE(L, &status, heed_tokenizer_load(ctx, path, &tok));
  if (status != HEED_OK) return lheed_file_failed(L, status);
  *box = tok;
  return lheed_return(L, 1);
}

/* Copies the result of the last call to a userdata, which is pushed; NULL: it is gone, because a finalizer
 * that ran meanwhile has used the tokenizer. */
static void *copy_result(lua_State *L, const heed_tokenizer *tok, const void *result, size_t bytes) {
  const uint64_t calls = tok->calls;
  void *own = lua_newuserdatauv(L, bytes + 1, 0);
  if (tok->calls != calls) return NULL;
  if (bytes > 0) memcpy(own, result, bytes);
  return own;
}

static int push_ids(lua_State *L, heed_context *ctx, const int64_t *ids, int64_t count) {
  lua_createtable(L, count < 1 << 20 ? (int)count : 1 << 20, 0);
  for (int64_t i = 0; i < count; i++) {
    if ((i & 0xffff) == 0xffff) lheed_check_cancel_of(L, ctx, "encode");
    lua_pushinteger(L, (lua_Integer)ids[i] + 1);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

/* encode(tokenizer, text, add_special_tokens, allowed_special): a list of ids */
static int encode_with(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  size_t size;
  const int64_t *ids = NULL;
  int64_t count = 0;
  heed_tokenizer *tok = tokenizer_argument(L, "encode");
  if (lua_type(L, 2) != LUA_TSTRING) return lheed_bad_argument(L, 2, "encode", "text", "a string");
  const char *text = lua_tolstring(L, 2, &size);
  const unsigned flags =
      (lua_toboolean(L, 3) ? HEED_ADD_SPECIAL_TOKENS : 0u) | (lua_toboolean(L, 4) ? HEED_ALLOW_SPECIAL : 0u);
  const int64_t *own;
  do {
    lua_settop(L, 4);
    LHEED_TRY(L, heed_tokenizer_encode(tok, text, size, flags, &ids, &count));
    own = copy_result(L, tok, ids, heed__array_bytes((uint64_t)count, sizeof *ids));
  } while (!own);
  return push_ids(L, ctx, own, count);
}

/* decode(tokenizer, ids, skip_special_tokens): the text of a list of integers */
static int decode_with(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  const char *text = NULL;
  size_t size = 0;
  heed_tokenizer *tok = tokenizer_argument(L, "decode");
  if (!lua_istable(L, 2)) return lheed_bad_argument(L, 2, "decode", "ids", "a list of ids");
  const lua_Unsigned count = lheed_own_list(L, 2, "decode");
  int64_t *ids = lua_newuserdatauv(L, heed__array_bytes(count, sizeof *ids) + 1, 0);
  const int top = lua_gettop(L);
  const int64_t most = heed_tokenizer_size(tok);
  for (lua_Unsigned i = 0; i < count; i++) {
    if ((i & 0xfff) == 0xfff) lheed_check_cancel_of(L, ctx, "decode");
    lheed_own_element(L, 2, i);
    int exact;
    const lua_Integer id = lua_tointegerx(L, -1, &exact);
    if (!exact || lua_type(L, -1) != LUA_TNUMBER || id < 1 || id > most ||
        heed_tokenizer_token(tok, (int64_t)id - 1, &size) == NULL)
      return lheed_error(L, "decode: element %I of ids is %s; it must be the id of a token, from 1 to %I",
                         (LUAI_UACINT)(lua_Integer)i + 1, lheed_push_what(L, lua_gettop(L)),
                         (LUAI_UACINT)(lua_Integer)most);
    ids[i] = (int64_t)id - 1;
    lua_pop(L, 1);
  }
  const unsigned flags = lua_toboolean(L, 3) ? HEED_SKIP_SPECIAL_TOKENS : 0u;
  const char *own;
  do {
    lua_settop(L, top);
    LHEED_TRY(L, heed_tokenizer_decode(tok, ids, (int64_t)count, flags, &text, &size));
    own = copy_result(L, tok, text, size);
  } while (!own);
  lua_pushlstring(L, own, size);
  return 1;
}

/* token(tokenizer, id): a string, or nil */
static int token_of(lua_State *L) {
  size_t size;
  int exact;
  lheed_check_cancel(L, "token");
  const heed_tokenizer *tok = tokenizer_argument(L, "token");
  const lua_Integer id = lua_tointegerx(L, 2, &exact);
  const char *text = exact && id > 0 ? heed_tokenizer_token(tok, (int64_t)id - 1, &size) : NULL;
  if (!text) return 0;
  lua_pushlstring(L, text, size);
  return 1;
}

/* id(tokenizer, token): an integer, or nil */
static int id_of(lua_State *L) {
  size_t size;
  lheed_check_cancel(L, "id");
  const heed_tokenizer *tok = tokenizer_argument(L, "id");
  if (lua_type(L, 2) != LUA_TSTRING) return lheed_bad_argument(L, 2, "id", "token", "a string");
  const char *text = lua_tolstring(L, 2, &size);
  const int64_t id = heed_tokenizer_id(tok, text, size);
  if (id < 0) return 0;
  lua_pushinteger(L, (lua_Integer)id + 1);
  return 1;
}

/* size(tokenizer): the number of ids */
static int size_of_tokenizer(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)heed_tokenizer_size(tokenizer_argument(L, "size")));
  return 1;
}

/* special(tokenizer): the texts of the special tokens that allowed_special recognises, a list */
static int special_of(lua_State *L) {
  const heed_tokenizer *tok = tokenizer_argument(L, "special");
  lua_createtable(L, tok->added_count, 0);
  lua_Integer count = 0;
  for (int32_t i = 0; i < tok->added_count; i++) {
    if ((i & 0xfff) == 0xfff) lheed_check_cancel(L, "special");
    size_t size;
    const char *text = heed_tokenizer_token(tok, tok->added[i].id, &size);
    if (!tok->added[i].special || !text) continue;
    lua_pushlstring(L, text, size);
    lua_rawseti(L, -2, ++count);
  }
  return 1;
}

/* about(tokenizer): what the file itself says: a table with bos, eos, unk and pad (ids) and chat_template */
static int about_tokenizer(lua_State *L) {
  const heed_tokenizer *tok = tokenizer_argument(L, "about");
  const struct {
    const char *name;
    int32_t id;
  } ids[] = {{"bos", tok->bos}, {"eos", tok->eos}, {"unk", tok->unknown}, {"pad", tok->pad}};
  lua_createtable(L, 0, 5);
  for (int i = 0; i < 4; i++) {
    if (ids[i].id < 0) continue;
    lua_pushinteger(L, (lua_Integer)ids[i].id + 1);
    lua_setfield(L, -2, ids[i].name);
  }
  if (tok->chat_template) {
    lua_pushstring(L, tok->chat_template);
    lua_setfield(L, -2, "chat_template");
  }
  return 1;
}

/* Adds `tokenizer`, the functions, to the library table. */
void lheed_open_tokenizer(lua_State *L) {
  static const luaL_Reg functions[] = {{"load", load_tokenizer},
                                       {"encode", encode_with},
                                       {"decode", decode_with},
                                       {"token", token_of},
                                       {"id", id_of},
                                       {"size", size_of_tokenizer},
                                       {"special", special_of},
                                       {"about", about_tokenizer},
                                       {NULL, NULL}};
  lheed_new_type(L, &tokenizer_type, NULL);
  lheed_add(L, "tokenizer", functions);
}
