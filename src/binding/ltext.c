/* Searches and Unicode for heed's own Lua files (core.text), on whole strings. */
#include <stdint.h>
#include <string.h>

#include "../io/io.h"
#include "lheed.h"

/* All of these check for cancellation; in messages they are the tokenizer's function. */
static const char text_function[] = "encode";

/* invalid(text): the first byte that is not valid UTF-8, nil if there is none */
static int invalid(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  size_t size, wrong;
  if (lua_type(L, 1) != LUA_TSTRING) return lheed_bad_argument(L, 1, "invalid", "text", "a string");
  const char *text = lua_tolstring(L, 1, &size);
  LHEED_TRY(L, heed__text_check_in_steps(ctx, text_function, text, size, &wrong));
  if (!wrong) return 0;
  lua_pushinteger(L, (lua_Integer)wrong);
  return 1;
}

/* The table of Knuth, Morris and Pratt for `part`: fall[i] is the size of the longest proper prefix of its
 * first i bytes that also ends them, so that a search goes on there where byte i differs. It is left on the
 * stack.
 */
static size_t *push_falls(lua_State *L, heed_context *ctx, const char *part, size_t size) {
  if (size > PTRDIFF_MAX / sizeof(size_t) - 1) lheed_error(L, "positions: part is too long");
  size_t *fall = lua_newuserdatauv(L, (size + 1) * sizeof *fall, 0);
  fall[0] = 0;
  if (size > 0) fall[1] = 0;
  for (size_t i = 1, matched = 0; i < size; i++) {
    if ((i & 0xfff) == 0) lheed_check_cancel_of(L, ctx, text_function);
    while (matched > 0 && part[i] != part[matched]) matched = fall[matched];
    if (part[i] == part[matched]) matched++;
    fall[i + 1] = matched;
  }
  return fall;
}

/* positions(text, part, most, overlapping): a list of the bytes where `part` begins in `text`, the first
 * `most` of them (nil: all), overlapping ones too if asked for; an empty part begins at 1 only. Linear in
 * both sizes.
 */
static int positions(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  size_t size, part_size, found = 0;
  lua_settop(L, 4);
  if (lua_type(L, 1) != LUA_TSTRING) return lheed_bad_argument(L, 1, "positions", "text", "a string");
  if (lua_type(L, 2) != LUA_TSTRING) return lheed_bad_argument(L, 2, "positions", "part", "a string");
  const char *text = lua_tolstring(L, 1, &size), *part = lua_tolstring(L, 2, &part_size);
  const lua_Number most = lua_isnil(L, 3) ? (lua_Number)SIZE_MAX : luaL_checknumber(L, 3);
  const bool overlapping = lua_toboolean(L, 4);
  const size_t *fall = push_falls(L, ctx, part, part_size);
  lua_newtable(L);
  if (part_size == 0 && most >= 1) {
    lua_pushinteger(L, 1);
    lua_rawseti(L, -2, 1);
  }
  if (part_size == 0 || part_size > size) return 1;
  for (size_t i = 0, matched = 0; i < size && (lua_Number)found < most; i++) {
    if ((i & 0xfff) == 0xfff) lheed_check_cancel_of(L, ctx, text_function);
    while (matched > 0 && text[i] != part[matched]) matched = fall[matched];
    if (text[i] == part[matched]) matched++;
    if (matched < part_size) continue;
    lua_pushinteger(L, (lua_Integer)(i + 2 - part_size));
    lua_rawseti(L, -2, (lua_Integer)++found);
    matched = overlapping ? fall[matched] : 0;
  }
  return 1;
}

#if HEED_UTF8PROC

/* The string at idx, which must be valid UTF-8. `growth` times its size must not overflow. */
static const char *text_argument(lua_State *L, heed_context *ctx, int idx, const char *function,
                                 size_t growth, size_t *size) {
  size_t wrong;
  if (lua_type(L, idx) != LUA_TSTRING) lheed_bad_argument(L, idx, function, "text", "a string");
  const char *text = lua_tolstring(L, idx, size);
  LHEED_TRY(L, heed__text_check_in_steps(ctx, text_function, text, *size, &wrong));
  if (wrong)
    lheed_error(L, "%s: text is not valid UTF-8 at byte %I", function, (LUAI_UACINT)(lua_Integer)wrong);
  if (*size > PTRDIFF_MAX / growth) lheed_error(L, "%s: text is too long", function);
  return text;
}

/* lower(text) */
static int lower(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  size_t size;
  luaL_Buffer b;
  const char *text = text_argument(L, ctx, 1, "lower", 2, &size);
  char *out = luaL_buffinitsize(L, &b, 2 * size);
  size_t used = 0;
  for (size_t at = 0, step; at < size; at += step) {
    step = heed__text_step(text + at, size - at);
    used += heed__text_lower(text + at, step, out + used);
    lheed_check_cancel_of(L, ctx, text_function);
  }
  luaL_pushresultsize(&b, used);
  return 1;
}

/* nfd(text): the canonical decomposition */
static int nfd(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  size_t size, used;
  luaL_Buffer b;
  const char *text = text_argument(L, ctx, 1, "nfd", 2 * sizeof(int32_t), &size);
  int32_t *marks = lua_newuserdatauv(L, 2 * size * sizeof *marks, 0);
  char *out = luaL_buffinitsize(L, &b, 3 * size);
  LHEED_TRY(L, heed__text_nfd(ctx, text_function, text, size, marks, out, &used));
  luaL_pushresultsize(&b, used);
  return 1;
}

/* What replaces a character of a category: `before`, the character itself if it is kept, `after`. */
typedef struct rule {
  const char *before, *after;
  size_t before_size, after_size;
  bool kept;
} rule;

/* Reads the replacement on top of the stack, whose text it points to. */
static rule read_rule(lua_State *L) {
  size_t size;
  if (lua_type(L, -1) != LUA_TSTRING) lheed_error(L, "replace: a replacement must be a string");
  const char *text = lua_tolstring(L, -1, &size), *mark = strstr(text, "%0");
  if (!mark) return (rule){.before = text, .before_size = size};
  size_t before = (size_t)(mark - text);
  return (rule){text, mark + 2, before, size - before - 2, true};
}

/* replace(text, rules): replaces each character whose category has a rule; %0 in a replacement is the
 * character. Rules are for a category, {Mn = ""}, or for all whose names begin with a letter, {P = " %0 "}.
 */
static int replace(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  size_t size;
  rule rules[HEED__CATEGORIES];
  lua_settop(L, 2);
  const char *text = text_argument(L, ctx, 1, "replace", 1, &size);
  luaL_checktype(L, 2, LUA_TTABLE);
  luaL_checkstack(L, HEED__CATEGORIES + LUA_MINSTACK, "replace");
  for (int i = 0; i < HEED__CATEGORIES; i++) {
    const char *name = heed__category_name(i);
    if (lua_getfield(L, 2, name) == LUA_TNIL) {
      lua_pop(L, 1);
      lua_pushlstring(L, name, 1);
      lua_rawget(L, 2);
    }
    rules[i] = lua_isnil(L, -1) ? (rule){.kept = true} : read_rule(L);
  }

  luaL_Buffer b;
  luaL_buffinit(L, &b);
  size_t copied = 0; /* bytes of text that are in the buffer */
  unsigned seen = 0; /* characters */
  for (size_t at = 0, length; at < size; at += length) {
    heed__category category;
    length = heed__text_category(text + at, size - at, &category);
    const rule *r = &rules[category];
    if ((++seen & 0xfff) == 0) lheed_check_cancel_of(L, ctx, text_function);
    if (r->kept && r->before_size + r->after_size == 0) continue;
    luaL_addlstring(&b, text + copied, at - copied);
    luaL_addlstring(&b, r->before, r->before_size);
    if (r->kept) luaL_addlstring(&b, text + at, length);
    luaL_addlstring(&b, r->after, r->after_size);
    copied = at + length;
  }
  luaL_addlstring(&b, text + copied, size - copied);
  luaL_pushresult(&b);
  return 1;
}

#else

static int fail_without_tables(lua_State *L, const char *function) {
  return lheed_error(L,
                     "%s: this build of heed has no Unicode tables; compile with -DHEED_UTF8PROC=1 and link "
                     "utf8proc",
                     function);
}
static int lower(lua_State *L) {
  return fail_without_tables(L, "lower");
}
static int nfd(lua_State *L) {
  return fail_without_tables(L, "nfd");
}
static int replace(lua_State *L) {
  return fail_without_tables(L, "replace");
}

#endif

/* Adds `text`, the functions, to the library table. */
void lheed_open_text(lua_State *L) {
  static const luaL_Reg functions[] = {{"invalid", invalid}, {"positions", positions}, {"lower", lower},
                                       {"nfd", nfd},         {"replace", replace},     {NULL, NULL}};
  lheed_add(L, "text", functions);
}
