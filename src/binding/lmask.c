/* heed.mask: masks as values, which attn_mask takes. */
#include <stdio.h>
#include <string.h>

#include "../attention/attention.h"
#include "lheed.h"

static const char mask_methods_key = 0; /* in the registry: the methods by name */

static void release_mask(void *object) {
  heed_mask_release(object);
}

const lheed_type lheed_mask_type = {"Mask", "mask", release_mask, NULL};

static heed_mask *mask_argument(lua_State *L, int idx, const char *function, const char *name) {
  lheed_box *box = lheed_test(L, idx, &lheed_mask_type);
  if (!box || !box->object) lheed_bad_argument(L, idx, function, name, "a heed.Mask");
  return box->object;
}

const heed_tensor *lheed_opt_attn_mask(lua_State *L, int idx, const char *function, const heed_mask **mask) {
  const lheed_box *box = lheed_test(L, idx, &lheed_mask_type);
  *mask = box ? box->object : NULL;
  if (*mask) return NULL;
  if (!lua_isnoneornil(L, idx) && !lheed_test(L, idx, &lheed_tensor_type))
    lheed_bad_argument(L, idx, function, "attn_mask", "a tensor or a heed.Mask");
  return lheed_opt_tensor(L, idx, function, "attn_mask");
}

/* ---- Making ---- */

/* The arguments from 1 to `count`; without any, `missing` is what messages say. Pushes the box of the result.
 */
static void **begin_mask(lua_State *L, const char *function, int count) {
  lheed_begin(L);
  lheed_arguments(L, function, count);
  return lheed_push_box(L, &lheed_mask_type);
}

static int mask_causal(lua_State *L) {
  void **box = begin_mask(L, "mask.causal", 0);
  heed_mask *m = NULL;
  LHEED_TRY(L, heed_mask_causal(lheed_get(L)->context, &m));
  *box = m;
  return lheed_return(L, 1);
}

/* mask.window(left, right), either of which may be nil, or mask.window{left =, right =} */
static int mask_window(lua_State *L) {
  static const char function[] = "mask.window";
  heed_window window = {0};
  lheed_begin(L);
  if (lua_istable(L, 1)) {
    lheed_arguments(L, function, 1);
    window = lheed_opt_window(L, 1, function);
  } else {
    lheed_arguments(L, function, 2);
    window.has_left = !lua_isnil(L, 1);
    window.has_right = !lua_isnil(L, 2);
    if (window.has_left) window.left = lheed_integer(L, 1, function, "left");
    if (window.has_right) window.right = lheed_integer(L, 2, function, "right");
  }
  if (!window.has_left && !window.has_right)
    return lheed_error(L, "%s: left and right are missing; give at least one of them, as in window(128, 0)",
                       function);
  void **box = lheed_push_box(L, &lheed_mask_type);
  heed_mask *m = NULL;
  LHEED_TRY(L, heed_mask_window(lheed_get(L)->context, &window, &m));
  *box = m;
  return lheed_return(L, 1);
}

static int mask_prefix(lua_State *L) {
  static const char function[] = "mask.prefix";
  void **box = begin_mask(L, function, 1);
  const int64_t n = lheed_integer(L, 1, function, "n");
  heed_mask *m = NULL;
  LHEED_TRY(L, heed_mask_prefix(lheed_get(L)->context, n, &m));
  *box = m;
  return lheed_return(L, 1);
}

typedef heed_status mask_of_integers(heed_context *ctx, const heed_tensor *x, heed_mask **out);

/* A mask of one tensor of integers, or of a table of them. */
static int mask_from(lua_State *L, const char *function, const char *name, mask_of_integers *make) {
  lheed_begin(L);
  lheed_arguments(L, function, 1);
  lheed_indices(L, 1, function, name, false);
  void **box = lheed_push_box(L, &lheed_mask_type);
  heed_mask *m = NULL;
  LHEED_TRY(L, make(lheed_get(L)->context, lheed_tensor(L, 1, function, name), &m));
  *box = m;
  return lheed_return(L, 1);
}

static int mask_documents(lua_State *L) {
  return mask_from(L, "mask.documents", "lengths", heed_mask_documents);
}
static int mask_tree(lua_State *L) {
  return mask_from(L, "mask.tree", "parents", heed_mask_tree);
}
static int mask_intervals(lua_State *L) {
  return mask_from(L, "mask.intervals", "t", heed_mask_intervals);
}

/* ---- Methods ---- */

static int combine(lua_State *L, const char *function, const char *const names[2]) {
  void **box = lheed_push_box(L, &lheed_mask_type);
  heed_mask *a = mask_argument(L, 1, function, names[0]), *b = mask_argument(L, 2, function, names[1]),
            *m = NULL;
  LHEED_TRY(L, heed_mask_both(a, b, &m));
  *box = m;
  return lheed_return(L, 1);
}

static int mask_both(lua_State *L) {
  static const char *const names[] = {"self", "other"};
  lheed_begin(L);
  lheed_arguments(L, "mask.both", 2);
  return combine(L, "mask.both", names);
}

static int mask_band(lua_State *L) {
  static const char *const names[] = {"the left operand", "the right operand"};
  lheed_begin(L);
  lua_settop(L, 2);
  return combine(L, "&", names);
}

/* The numbers of queries and keys in the slots 2 and 3; by default those that the mask is made for. */
static void read_mask_sizes(lua_State *L, const char *function, const heed_mask *m, int64_t *l, int64_t *s) {
  heed_mask_sizes(m, l, s);
  if (lua_isnil(L, 2) && *l < 0)
    lheed_error(L, "%s: L is missing; give the number of queries, as this mask is for any", function);
  if (!lua_isnil(L, 2)) *l = lheed_integer(L, 2, function, "L");
  if (!lua_isnil(L, 3))
    *s = lheed_integer(L, 3, function, "S");
  else if (*s < 0)
    *s = *l;
}

/* m:dense(L, S, offset = 0) */
static int mask_dense(lua_State *L) {
  static const char function[] = "mask.dense";
  int64_t l, s;
  lheed_begin(L);
  lheed_arguments(L, function, 4);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_mask *m = mask_argument(L, 1, function, "self");
  read_mask_sizes(L, function, m, &l, &s);
  const int64_t offset = lheed_opt_integer(L, 4, function, "offset", 0);
  LHEED_TRY(L, heed_mask_dense(m, l, s, offset, out));
  return lheed_return(L, 1);
}

/* m:blocks(L, S, block = 128, offset = 0) */
static int mask_count_blocks(lua_State *L) {
  static const char function[] = "mask.blocks";
  int64_t l, s;
  lheed_begin(L);
  lheed_arguments(L, function, 5);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_mask *m = mask_argument(L, 1, function, "self");
  read_mask_sizes(L, function, m, &l, &s);
  const int64_t block = lheed_opt_integer(L, 4, function, "block", 128);
  const int64_t offset = lheed_opt_integer(L, 5, function, "offset", 0);
  LHEED_TRY(L, heed_mask_blocks(m, l, s, offset, block, out));
  return lheed_return(L, 1);
}

/* ---- Text ---- */

enum { CELLS = 16 }; /* most rows and columns of a picture */

static int64_t cell_of(int64_t row, int64_t size, int64_t block) {
  return (row + 1) * block < size ? block : size - row * block;
}

/* The picture of the first [l, s] that was counted: two characters for each block. */
static void add_picture(luaL_Buffer *b, const heed_tensor *counts, int64_t l, int64_t s, int64_t block) {
  const int64_t *count = (const int64_t *)heed_tensor_data((heed_tensor *)(uintptr_t)counts);
  const int64_t rows = (l + block - 1) / block, columns = (s + block - 1) / block;
  for (int64_t i = 0; i < rows; i++) {
    luaL_addchar(b, '\n');
    for (int64_t j = 0; j < columns; j++) {
      const int64_t n = count[i * columns + j], all = cell_of(i, l, block) * cell_of(j, s, block);
      /* ██, ░░, ·· */
      luaL_addstring(b, n == all ? "\xe2\x96\x88\xe2\x96\x88"
                        : n > 0  ? "\xe2\x96\x91\xe2\x96\x91"
                                 : "\xc2\xb7\xc2\xb7");
    }
  }
}

/* The mask in a line, and a picture of it: of the sizes that it is for, or of sizes that show what it is. */
static int mask_tostring(lua_State *L) {
  char text[256];
  heed__mask_call call;
  lheed_begin(L);
  lua_settop(L, 1);
  heed_tensor **counts = lheed_push_tensor(L);
  const heed_mask *m = mask_argument(L, 1, "tostring", "self");
  heed_mask_describe(m, text, sizeof text);
  if (!heed__mask_picture_call(m, &call)) {
    lua_pushfstring(L, "heed.mask.%s, which are for different sizes", text);
    return lheed_return(L, 1);
  }
  const int64_t l = call.l, s = call.s, longest = l > s ? l : s, block = (longest + CELLS - 1) / CELLS;
  LHEED_TRY(L, heed_mask_blocks(m, l, s, call.offset, block > 0 ? block : 1, counts));
  double visible = 0;
  const int64_t *count = (const int64_t *)heed_tensor_data(*counts), n = heed_tensor_numel(*counts);
  for (int64_t i = 0; i < n; i++) visible += (double)count[i];
  const int ndim = heed_tensor_ndim(*counts);
  double pairs = (double)l * (double)s;
  for (int d = 1; d < ndim - 1; d++) pairs *= (double)heed_tensor_shape(*counts)[d - 1];
  char share[32];
  const int hidden = pairs > 0 ? (int)(1e4 * (1 - visible / pairs) + 0.5) : 0; /* hundredths of a percent */
  snprintf(share, sizeof share, "%d.%02d", hidden / 100, hidden % 100);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  lua_pushfstring(L, "heed.mask.%s, %I x %I, %s%% hidden", text, (LUAI_UACINT)l, (LUAI_UACINT)s, share);
  luaL_addvalue(&b);
  if (block > 1) {
    lua_pushfstring(L, ", in blocks of %I", (LUAI_UACINT)block);
    luaL_addvalue(&b);
  }
  if (n > 0) add_picture(&b, *counts, l, s, block);
  luaL_pushresult(&b);
  return lheed_return(L, 1);
}

static int mask_index(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &mask_methods_key);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, -2) != LUA_TNIL) return 1;
  mask_argument(L, 1, "__index", "self");
  return lheed_error(L, "a heed.Mask has no field %s; it has both, dense and blocks", lheed_push_key(L, 2));
}

static int mask_newindex(lua_State *L) {
  mask_argument(L, 1, "__newindex", "self");
  return lheed_error(L, "a heed.Mask has no field that can be set, such as %s", lheed_push_key(L, 2));
}

/* is_mask(value), for heed's own Lua files */
static int is_mask(lua_State *L) {
  const lheed_box *box = lheed_test(L, 1, &lheed_mask_type);
  lua_pushboolean(L, box && box->object);
  return 1;
}

/* mask_of_head(mask, i, heads) → the mask of head i of a MultiHeadAttentionWrapper, for heed's own Lua files
 */
static int mask_of_head(lua_State *L) {
  static const char function[] = "MultiHeadAttentionWrapper";
  lheed_begin(L);
  lheed_arguments(L, function, 3);
  const int64_t i = lheed_integer(L, 2, function, "i"), heads = lheed_integer(L, 3, function, "heads");
  if (i < 1 || i > heads)
    return lheed_error(L, "%s: i is %I; it must be from 1 to the number of heads, %I", function,
                       (LUAI_UACINT)i, (LUAI_UACINT)heads);
  void **box = lheed_push_box(L, &lheed_mask_type);
  heed_mask *own = NULL;
  LHEED_TRY(L, heed__mask_of_head(mask_argument(L, 1, function, "attn_mask"), function, i - 1, heads, &own));
  *box = own;
  return lheed_return(L, 1);
}

/* mask_part(mask, L, S, offset, first query, queries, first key, keys, item) → the mask for a part of a call,
 * the mask itself if it follows offsets; numbers count from 1. For heed's own Lua files. */
static int mask_part(lua_State *L) {
  static const char function[] = "scaled_dot_product_attention";
  static const char *const names[] = {"L",   "S", "offset", "the first query", "queries", "the first key",
                                      "keys"};
  int64_t x[7];
  lheed_begin(L);
  lheed_arguments(L, function, 9);
  for (int i = 0; i < 7; i++) x[i] = lheed_integer(L, i + 2, function, names[i]);
  const heed__mask_call call = {.l = x[0], .s = x[1], .offset = x[2]};
  const heed__mask_part part = {x[3] - 1, x[4], x[5] - 1, x[6],
                                lheed_opt_integer(L, 9, function, "item", 0) - 1};
  void **box = lheed_push_box(L, &lheed_mask_type);
  heed_mask *own = NULL;
  LHEED_TRY(L, heed__mask_cut(mask_argument(L, 1, function, "attn_mask"), function, &call, &part,
                              lua_isnil(L, 9), &own));
  *box = own;
  return lheed_return(L, 1);
}

void lheed_open_mask(lua_State *L) {
  static const luaL_Reg makers[] = {{"causal", mask_causal},
                                    {"window", mask_window},
                                    {"prefix", mask_prefix},
                                    {"documents", mask_documents},
                                    {"tree", mask_tree},
                                    {"intervals", mask_intervals},
                                    {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"both", mask_both}, {"dense", mask_dense}, {"blocks", mask_count_blocks}, {NULL, NULL}};
  static const luaL_Reg metamethods[] = {{"__index", mask_index},
                                         {"__newindex", mask_newindex},
                                         {"__tostring", mask_tostring},
                                         {"__band", mask_band},
                                         {NULL, NULL}};
  static const luaL_Reg primitives[] = {
      {"is_mask", is_mask}, {"mask_of_head", mask_of_head}, {"mask_part", mask_part}, {NULL, NULL}};
  lheed_new_type(L, &lheed_mask_type, metamethods);
  lheed_add(L, "mask", makers);
  lheed_add(L, "modules", primitives);
  lua_createtable(L, 0, 3);
  lheed_setfuncs(L, methods);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &mask_methods_key);
}
