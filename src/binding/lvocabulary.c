/* The pieces of a tokenizer's vocabulary, for heed's own Lua files (core.text.vocabulary): one block of
 * memory instead of tens of thousands of Lua strings, which the collector would traverse in every cycle. */
#include <stdint.h>
#include <string.h>

#include "../io/io.h"
#include "lheed.h"

#define LONGEST_MATCH 512 /* bytes; longest does not find longer pieces */
#define MAX_TEXT      ((size_t)1 << 26)

static const char vocabulary_key = 0; /* registry key of the metatable; marks our blocks */

/* A userdata: this header, offset[count + 1], slot[slots], the text. Line i, from 0, begins at offset[i] and
 * ends before the line feed at offset[i + 1] - 1. */
typedef struct vocabulary {
  const void *mark;
  uint32_t count;   /* of lines */
  uint32_t slots;   /* a power of two, at least twice count */
  uint32_t longest; /* of the lines, in bytes */
  uint64_t key[2];  /* of the hash; secret, so that a file cannot be made to collide */
  uint64_t probes;  /* slots read while the lines were added */
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

/* The slot of a piece (head followed by tail) with that hash, or the free slot for it. *probes: the number of
 * slots read. */
static uint32_t *find_word(const vocabulary *v, uint32_t hash, const char *head, size_t head_size,
                           const char *tail, size_t tail_size, uint64_t *probes) {
  for (uint32_t i = 0;; i++) {
    uint32_t *slot = slots_of(v) + ((hash + i) & (v->slots - 1));
    *probes = (uint64_t)i + 1;
    if (*slot == 0) return slot;
    size_t size;
    const char *line = line_of(v, *slot - 1, &size);
    if (size == head_size + tail_size && memcmp(line, head, head_size) == 0 &&
        memcmp(line + head_size, tail, tail_size) == 0)
      return slot;
  }
}

#define LINES_AT_ONCE ((size_t)1 << 20) /* bytes, between two checks for cancellation */

static uint32_t hash_piece(lua_State *L, heed_context *ctx, const char *function, const vocabulary *v,
                           const char *text, size_t size) {
  heed__hasher h = heed__hash_begin(v->key);
  for (size_t i = 0; i < size; i += LINES_AT_ONCE) {
    if (i > 0) lheed_check_cancel_of(L, ctx, function);
    heed__hash_feed(&h, text + i, size - i < LINES_AT_ONCE ? size - i : LINES_AT_ONCE);
  }
  return (uint32_t)heed__hash_value(&h);
}

/* ---- Loading ---- */

/* The number of lines of a text; *empty becomes the number of the first empty line, if there is one. */
static uint32_t count_lines(lua_State *L, heed_context *ctx, const char *text, size_t size, uint32_t *empty) {
  uint32_t count = 0;
  for (size_t i = 0; i < size; i++) {
    if ((i & 0xffff) == 0xffff) lheed_check_cancel_of(L, ctx, "load");
    if (text[i] != '\n') continue;
    count++;
    if (*empty == 0 && (i == 0 || text[i - 1] == '\n')) *empty = count;
  }
  return count;
}

/* Fills in the text and the offsets of its lines, and clears the slots. */
static void lay_out_lines(lua_State *L, heed_context *ctx, vocabulary *v, const char *text, size_t size) {
  uint32_t *offset = offsets_of(v), line = 0;
  char *slots = (char *)slots_of(v), *copy = text_of(v);
  const size_t bytes = v->slots * sizeof(uint32_t);
  for (size_t i = 0; i < bytes; i += LINES_AT_ONCE) {
    memset(slots + i, 0, bytes - i < LINES_AT_ONCE ? bytes - i : LINES_AT_ONCE);
    lheed_check_cancel_of(L, ctx, "load");
  }
  offset[0] = 0;
  for (size_t i = 0; i < size; i++) {
    if ((i & 0xffff) == 0xffff) lheed_check_cancel_of(L, ctx, "load");
    copy[i] = text[i];
    if (text[i] == '\n') offset[++line] = (uint32_t)i + 1;
  }
}

/* vocabulary(text): the vocabulary of the lines of a text, each of which ends with a line feed; or nil and
 * the number of an empty line, or the numbers of two equal lines. The id of a piece is the number of its
 * line, from 1. */
static int new_vocabulary(lua_State *L) {
  const lheed_state *S = lheed_get(L);
  heed_context *ctx = S->context;
  size_t size;
  uint32_t slots = 2, empty = 0;
  const char *text = luaL_checklstring(L, 1, &size);
  if (size == 0 || size > MAX_TEXT || text[size - 1] != '\n')
    return lheed_error(L, "vocabulary: text must end with a line feed, and have at most %d bytes",
                       (int)MAX_TEXT);
  const uint32_t count = count_lines(L, ctx, text, size, &empty);
  if (empty > 0) {
    lua_pushnil(L);
    lua_pushinteger(L, empty);
    return 2;
  }
  while (slots < 2 * count) slots *= 2;

  const size_t tables = ((size_t)count + 1 + slots) * sizeof(uint32_t);
  vocabulary *v = lua_newuserdatauv(L, sizeof *v + tables + size, 0);
  *v = (vocabulary){
      .mark = &vocabulary_key, .count = count, .slots = slots, .key = {S->hash_key[0], S->hash_key[1]}};
  lay_out_lines(L, ctx, v, text, size);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t probes;
    const char *piece = line_of(v, i, &size);
    uint32_t *slot = find_word(v, hash_piece(L, ctx, "load", v, piece, size), piece, size, "", 0, &probes);
    v->probes += probes;
    if ((i & 0xfff) == 0xfff) lheed_check_cancel_of(L, ctx, "load");
    if (*slot) {
      lua_pushnil(L);
      lua_pushinteger(L, *slot);
      lua_pushinteger(L, (lua_Integer)i + 1);
      return 3;
    }
    *slot = i + 1;
    if (size > v->longest) v->longest = (uint32_t)size;
  }
  lua_rawgetp(L, LUA_REGISTRYINDEX, &vocabulary_key);
  lua_setmetatable(L, -2);
  return 1;
}

/* ---- Lookups ---- */

static const vocabulary *check_vocabulary(lua_State *L) {
  const vocabulary *v = lua_rawlen(L, 1) > sizeof *v ? lua_touserdata(L, 1) : NULL;
  if (!v || v->mark != &vocabulary_key) lheed_bad_argument(L, 1, "vocabulary", "self", "a vocabulary");
  return v;
}

/* v:id(piece): its number, or nil */
static int id(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  size_t size;
  uint64_t probes;
  const vocabulary *v = check_vocabulary(L);
  const char *piece = luaL_checklstring(L, 2, &size);
  if (size > v->longest) return 0;
  const uint32_t *slot =
      find_word(v, hash_piece(L, ctx, "encode", v, piece, size), piece, size, "", 0, &probes);
  if (!*slot) return 0;
  lua_pushinteger(L, *slot);
  return 1;
}

/* v:piece(id): the piece, or nil */
static int piece(lua_State *L) {
  size_t size;
  int exact;
  lheed_check_cancel(L, "decode");
  const vocabulary *v = check_vocabulary(L);
  const lua_Integer i = lua_tointegerx(L, 2, &exact);
  if (!exact || i < 1 || i > v->count) return 0;
  const char *line = line_of(v, (uint32_t)i - 1, &size);
  lua_pushlstring(L, line, size);
  return 1;
}

/* v:longest(word, from, prefix): the longest piece that is `prefix` followed by bytes of word from byte
 * `from` on: its id, and the position in word after it; nil if there is none. */
static int longest(lua_State *L) {
  size_t size, prefix_size;
  uint64_t probes;
  uint32_t hash[LONGEST_MATCH + 1]; /* by the number of bytes of word in the piece */
  lheed_check_cancel(L, "encode");
  const vocabulary *v = check_vocabulary(L);
  const char *word = luaL_checklstring(L, 2, &size), *prefix = luaL_checklstring(L, 4, &prefix_size);
  const lua_Integer from = luaL_checkinteger(L, 3);
  if (from < 1 || (lua_Unsigned)from > size || prefix_size > v->longest) return 0;
  word += from - 1;
  size -= (size_t)from - 1;
  if (size > v->longest - prefix_size) size = v->longest - prefix_size;
  if (size > LONGEST_MATCH) size = LONGEST_MATCH;
  heed__hasher h = heed__hash_begin(v->key);
  heed__hash_feed(&h, prefix, prefix_size);
  for (size_t i = 1; i <= size; i++) {
    heed__hash_feed(&h, word + i - 1, 1);
    hash[i] = (uint32_t)heed__hash_value(&h);
  }
  for (; size > 0; size--) {
    const uint32_t *slot = find_word(v, hash[size], prefix, prefix_size, word, size, &probes);
    if (!*slot) continue;
    lua_pushinteger(L, *slot);
    lua_pushinteger(L, from + (lua_Integer)size);
    return 2;
  }
  return 0;
}

/* v:probes(): the number of slots read while the lines were added; about two for each line */
static int probes_of(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)check_vocabulary(L)->probes);
  return 1;
}

static int count(lua_State *L) {
  lua_pushinteger(L, check_vocabulary(L)->count);
  return 1;
}

/* Adds `vocabulary` to `text`. */
void lheed_open_vocabulary(lua_State *L) {
  static const luaL_Reg constructor[] = {{"vocabulary", new_vocabulary}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"id", id}, {"piece", piece}, {"longest", longest}, {"probes", probes_of}, {NULL, NULL}};
  static const luaL_Reg metamethods[] = {{"__ipairs", lheed_ipairs}, {"__len", count}, {NULL, NULL}};
  lheed_add(L, "text", constructor);
  lua_createtable(L, 0, 4);
  lheed_setfuncs(L, metamethods);
  lua_createtable(L, 0, 4);
  lheed_setfuncs(L, methods);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "heed.Vocabulary");
  lua_setfield(L, -2, "__name");
  lua_pushboolean(L, false);
  lua_setfield(L, -2, "__metatable");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &vocabulary_key);
}
