/* The pieces of a tokenizer's vocabulary, for heed's own Lua files (core.text.vocabulary): one block of
 * memory in the place of tens of thousands of Lua strings, which the collector would go through again and
 * again. */
#include <stdint.h>
#include <string.h>

#include "lheed.h"

#define LONGEST_MATCH 512 /* bytes; longer pieces are never found in a word */
#define MAX_TEXT      ((size_t)1 << 26)

static const char vocabulary_key = 0; /* of the metatable, in the registry; marks our blocks */

/* A userdata that holds it all, in this order: this header, offset[count + 1], slot[slots], the text. Line i
 * from 0 begins at offset[i] and ends before the line feed at offset[i + 1] - 1. */
typedef struct vocabulary {
  const void *mark;
  uint32_t count;   /* of lines */
  uint32_t slots;   /* a power of two, at least twice count */
  uint32_t longest; /* of the lines, in bytes, at most LONGEST_MATCH */
} vocabulary;

static uint32_t *offsets_of(const vocabulary *v) {
  return (uint32_t *)(v + 1);
}
static uint32_t *slots_of(const vocabulary *v) { /* a line + 1, or 0 */
  return offsets_of(v) + v->count + 1;
}
static char *text_of(const vocabulary *v) {
  return (char *)(slots_of(v) + v->slots);
}

static const char *line_of(const vocabulary *v, uint32_t i, size_t *size) {
  const uint32_t *offset = offsets_of(v) + i;
  *size = offset[1] - offset[0] - 1;
  return text_of(v) + offset[0];
}

/* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv */
#define HASH_START UINT32_C(2166136261)
static uint32_t hash_on(uint32_t hash, const char *text, size_t size) {
  for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)text[i]) * UINT32_C(16777619);
  return hash;
}

/* The place of a piece (head and tail one after the other) with that hash: its slot, or the free one that it
 * would get. */
static uint32_t *find_word(const vocabulary *v, uint32_t hash, const char *head, size_t head_size,
                           const char *tail, size_t tail_size) {
  for (uint32_t i = hash;; i++) {
    uint32_t *slot = slots_of(v) + (i & (v->slots - 1));
    if (*slot == 0) return slot;
    size_t size;
    const char *line = line_of(v, *slot - 1, &size);
    if (size == head_size + tail_size && memcmp(line, head, head_size) == 0 &&
        memcmp(line + head_size, tail, tail_size) == 0)
      return slot;
  }
}

/* vocabulary(text): of the lines of a text, which end with a line feed each; or nil and the numbers of two
 * lines that are the same. Ids are the numbers of the lines, from 1. */
static int new_vocabulary(lua_State *L) {
  size_t size;
  uint32_t count = 0, slots = 2;
  const char *text = luaL_checklstring(L, 1, &size);
  if (size == 0 || size > MAX_TEXT || text[size - 1] != '\n')
    return lheed_error(L, "vocabulary: text must end with a line feed, and have at most %d bytes",
                       (int)MAX_TEXT);
  for (size_t i = 0; i < size; i++) count += text[i] == '\n';
  while (slots < 2 * count) slots *= 2;

  const size_t tables = ((size_t)count + 1 + slots) * sizeof(uint32_t);
  vocabulary *v = lua_newuserdatauv(L, sizeof *v + tables + size, 0);
  *v = (vocabulary){.mark = &vocabulary_key, .count = count, .slots = slots};
  memset(slots_of(v), 0, slots * sizeof(uint32_t));
  memcpy(text_of(v), text, size);
  uint32_t *offset = offsets_of(v), line = 0;
  offset[0] = 0;
  for (size_t i = 0; i < size; i++)
    if (text[i] == '\n') offset[++line] = (uint32_t)i + 1;
  for (uint32_t i = 0; i < count; i++) {
    const char *piece = line_of(v, i, &size);
    uint32_t *slot = find_word(v, hash_on(HASH_START, piece, size), piece, size, "", 0);
    if (*slot) {
      lua_pushnil(L);
      lua_pushinteger(L, *slot);
      lua_pushinteger(L, (lua_Integer)i + 1);
      return 3;
    }
    *slot = i + 1;
    if (size > v->longest) v->longest = size < LONGEST_MATCH ? (uint32_t)size : LONGEST_MATCH;
  }
  lua_rawgetp(L, LUA_REGISTRYINDEX, &vocabulary_key);
  lua_setmetatable(L, -2);
  return 1;
}

static const vocabulary *check_vocabulary(lua_State *L) {
  const vocabulary *v = lua_rawlen(L, 1) > sizeof *v ? lua_touserdata(L, 1) : NULL;
  if (!v || v->mark != &vocabulary_key) lheed_bad_argument(L, 1, "vocabulary", "self", "a vocabulary");
  return v;
}

/* v:id(piece): its number, or nil */
static int id(lua_State *L) {
  size_t size;
  const vocabulary *v = check_vocabulary(L);
  const char *piece = luaL_checklstring(L, 2, &size);
  const uint32_t *slot = find_word(v, hash_on(HASH_START, piece, size), piece, size, "", 0);
  if (!*slot) return 0;
  lua_pushinteger(L, *slot);
  return 1;
}

/* v:piece(id): the piece, or nil */
static int piece(lua_State *L) {
  size_t size;
  int exact;
  lheed_look(L, "decode");
  const vocabulary *v = check_vocabulary(L);
  const lua_Integer i = lua_tointegerx(L, 2, &exact);
  if (!exact || i < 1 || i > v->count) return 0;
  const char *line = line_of(v, (uint32_t)i - 1, &size);
  lua_pushlstring(L, line, size);
  return 1;
}

/* v:longest(word, from, prefix): of the pieces that are `prefix` and what begins at byte `from` of word, the
 * longest: its id, and the byte behind it in word; nil if there is none. */
static int longest(lua_State *L) {
  size_t size, prefix_size;
  uint32_t hash[LONGEST_MATCH + 1];
  lheed_look(L, "encode");
  const vocabulary *v = check_vocabulary(L);
  const char *word = luaL_checklstring(L, 2, &size), *prefix = luaL_checklstring(L, 4, &prefix_size);
  const lua_Integer from = luaL_checkinteger(L, 3);
  if (from < 1 || (lua_Unsigned)from > size) return 0;
  word += from - 1;
  size -= (size_t)from - 1;
  if (size > v->longest) size = v->longest;
  hash[0] = hash_on(HASH_START, prefix, prefix_size);
  for (size_t i = 0; i < size; i++) hash[i + 1] = hash_on(hash[i], word + i, 1);
  for (; size > 0; size--) {
    const uint32_t *slot = find_word(v, hash[size], prefix, prefix_size, word, size);
    if (!*slot) continue;
    lua_pushinteger(L, *slot);
    lua_pushinteger(L, from + (lua_Integer)size);
    return 2;
  }
  return 0;
}

static int count(lua_State *L) {
  lua_pushinteger(L, check_vocabulary(L)->count);
  return 1;
}

/* Adds `vocabulary` to the table on top of the stack. */
void lheed_open_vocabulary(lua_State *L) {
  static const luaL_Reg constructor[] = {{"vocabulary", new_vocabulary}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"id", id}, {"piece", piece}, {"longest", longest}, {NULL, NULL}};
  static const luaL_Reg metamethods[] = {{"__ipairs", lheed_ipairs}, {"__len", count}, {NULL, NULL}};
  lheed_setfuncs(L, constructor);
  lua_createtable(L, 0, 4);
  lheed_setfuncs(L, metamethods);
  lua_createtable(L, 0, 3);
  lheed_setfuncs(L, methods);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "heed.Vocabulary");
  lua_setfield(L, -2, "__name");
  lua_pushboolean(L, false);
  lua_setfield(L, -2, "__metatable");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &vocabulary_key);
}
