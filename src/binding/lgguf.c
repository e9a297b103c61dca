/* Metadata of GGUF files: values of Lua from them, and bytes for them. Which type a value is saved as is
 * decided in lua/heed/gguf.lua. */
#include <string.h>

#include "../io/io.h"
#include "lheed.h"

static const char *const gguf_types[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                         "bool",  "string", "array",  "uint64", "int64",  "float64"};
enum { GGUF_TYPES = sizeof gguf_types / sizeof *gguf_types };

/* ---- Loading ---- */

/* Pushes a value of GGUF metadata: numbers as integers where they are; arrays as lists, at most four deep. */
static void push_value(lua_State *L, heed_context *ctx, const heed_gguf_value *value, unsigned *pushed) {
  int64_t integer;
  double number = 0;
  bool flag = false;
  if ((++*pushed & 0xfff) == 0) lheed_check_cancel_of(L, ctx, "load");
  if (value->type == HEED_GGUF_STRING) {
    lua_pushlstring(L, value->data, (size_t)value->count);
  } else if (heed_gguf_boolean(value, &flag)) {
    lua_pushboolean(L, flag);
  } else if (value->type != HEED_GGUF_ARRAY) {
    const bool is_float = value->type == HEED_GGUF_FLOAT32 || value->type == HEED_GGUF_FLOAT64;
    if (!is_float && heed_gguf_integer(value, &integer))
      lua_pushinteger(L, (lua_Integer)integer);
    else if (heed_gguf_number(value, &number))
      lua_pushnumber(L, (lua_Number)number);
  } else {
    heed_gguf_value rest = *value, item;
    luaL_checkstack(L, 4, "metadata");
    lua_newtable(L);
    for (lua_Integer i = 1; heed_gguf_next(&rest, &item); i++) {
      push_value(L, ctx, &item, pushed);
      lua_rawseti(L, -2, i);
    }
  }
}

/* metadata(archive, longest = all): a table of the values by key, and one of the types that numbers have,
 * those of a list for its elements; lists with more elements than `longest` are left out */
static int metadata_of_archive(lua_State *L) {
  unsigned pushed = 0;
  const char *key;
  heed_gguf_value value;
  heed_context *ctx = lheed_get(L)->context;
  lheed_begin(L);
  lheed_arguments(L, "load", 2);
  const lheed_box *box = lheed_test(L, 1, &lheed_archive_type);
  if (!box || !box->object) return lheed_bad_argument(L, 1, "load", "archive", "an archive");
  const int64_t longest = lheed_opt_integer(L, 2, "load", "longest", INT64_MAX);
  lua_newtable(L);
  lua_newtable(L);
  for (int64_t i = 1; heed_gguf_pair(box->object, i, &key, &value); i++) {
    if (value.type == HEED_GGUF_ARRAY && value.count > longest) continue;
    lua_pushstring(L, key);
    push_value(L, ctx, &value, &pushed);
    lua_rawset(L, -4);
    lua_pushstring(L, key);
    lua_pushstring(L, gguf_types[value.type == HEED_GGUF_ARRAY ? value.item : value.type]);
    lua_rawset(L, -3);
  }
  return lheed_return(L, 2);
}

/* ---- Saving ---- */

/* The number at the top of the stack as one of that type, in its 8 bytes or fewer. */
static uint64_t bits_of(lua_State *L, heed_gguf_type type) {
  const double number = (double)lua_tonumber(L, -1);
  const float single = (float)number;
  uint64_t bits = 0;
  uint32_t low;
  int is_integer = 0;
  switch (type) {
  case HEED_GGUF_BOOL: return (uint64_t)lua_toboolean(L, -1);
  case HEED_GGUF_FLOAT64: memcpy(&bits, &number, sizeof bits); return bits;
  case HEED_GGUF_FLOAT32: memcpy(&low, &single, sizeof low); return low;
  default: break;
  }
  bits = (uint64_t)lua_tointegerx(L, -1, &is_integer);
  if (!is_integer && type == HEED_GGUF_UINT64 && number >= 0x1p63 && number < 0x1p64) return (uint64_t)number;
  if (!is_integer) lheed_error(L, "save: a value of the metadata is not an integer");
  return bits;
}

/* encode(type, list): the bytes of the list's elements as values of that type, which is no array */
static int encode(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  const char *name = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
  int type = 0;
  while (type < GGUF_TYPES && strcmp(gguf_types[type], name) != 0) type++;
  if (type == GGUF_TYPES || type == HEED_GGUF_ARRAY)
    return lheed_bad_argument(L, 1, "save", "type", "a type of GGUF's values");
  if (!lua_istable(L, 2)) return lheed_bad_argument(L, 2, "save", "list", "a list");
  lua_settop(L, 2);
  const bool strings = type == HEED_GGUF_STRING;
  const size_t width = strings ? 8 : heed__gguf_width((heed_gguf_type)type);
  const lua_Unsigned count = lheed_own_list(L, 2, "save");
  size_t bytes = heed__array_bytes(count, width);
  for (lua_Unsigned i = 0; strings && i < count; i++) {
    if ((i & 0xfff) == 0xfff) lheed_check_cancel_of(L, ctx, "save");
    if (lheed_own_element(L, 2, i) != LUA_TSTRING)
      return lheed_error(L, "save: a value of the metadata is not a string");
    bytes += lua_rawlen(L, -1);
    lua_pop(L, 1);
  }
  char *out = lua_newuserdatauv(L, bytes + 1, 0), *at = out;
  for (lua_Unsigned i = 0; i < count; i++) {
    if ((i & 0xfff) == 0xfff) lheed_check_cancel_of(L, ctx, "save");
    lheed_own_element(L, 2, i);
    const size_t length = strings ? lua_rawlen(L, -1) : 0;
    const uint64_t bits = strings ? length : bits_of(L, (heed_gguf_type)type);
    for (size_t k = 0; k < width; k++) *at++ = (char)(unsigned char)(bits >> 8 * k & 0xff);
    if (length > 0) memcpy(at, lua_tostring(L, -1), length);
    at += length;
    lua_pop(L, 1);
  }
  lua_pushlstring(L, out, bytes);
  return 1;
}

void lheed_read_gguf_pairs(lua_State *L, heed_context *ctx, int list, lua_Unsigned pairs, const char **keys,
                           heed_gguf_value *values) {
  for (lua_Unsigned i = 0; i < pairs; i++) {
    size_t length, bytes;
    if ((i & 0xfff) == 0xfff) lheed_check_cancel_of(L, ctx, "save");
    if (lheed_own_element(L, list, 2 * i) != LUA_TSTRING ||
        lheed_own_element(L, list, 2 * i + 1) != LUA_TSTRING)
      lheed_error(L, "save: keys and values of metadata must be strings");
    keys[i] = lua_tolstring(L, -2, &length);
    const char *value = lua_tolstring(L, -1, &bytes);
    if (strlen(keys[i]) != length)
      lheed_error(L, "save: a key of metadata has a zero byte; it must have none");
    LHEED_TRY(L, heed__gguf_read_value(ctx, value, bytes, &values[i]));
    lua_pop(L, 2);
  }
}

/* Adds functions to `files`. */
void lheed_open_gguf(lua_State *L) {
  static const luaL_Reg functions[] = {{"metadata", metadata_of_archive}, {"encode", encode}, {NULL, NULL}};
  lheed_add(L, "files", functions);
}
