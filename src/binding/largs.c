/* Reading the arguments of functions, by position and by name. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "../core/core.h"
#include "lheed.h"

/* ---- Options ---- */

static bool is_options(lua_State *L, int idx) {
  if (lua_type(L, idx) != LUA_TTABLE || lua_rawlen(L, idx) != 0) return false;
  if (!lua_getmetatable(L, idx)) return true;
  lua_pop(L, 1);
  return false;
}

/* Whether the field `name` of the table at idx is a tensor. */
static bool has_tensor(lua_State *L, int idx, const char *name) {
  lua_pushstring(L, name);
  lua_rawget(L, idx);
  const bool found = lheed_test(L, lua_gettop(L), &lheed_tensor_type) != NULL;
  lua_pop(L, 1);
  return found;
}

/* Whether idx holds the second result of a forward with need_weights, of an attention module or of a model.
 */
static bool is_second_result(lua_State *L, int idx) {
  if (lua_type(L, idx) != LUA_TTABLE) return false;
  if (has_tensor(L, idx, "weights")) return has_tensor(L, idx, "scores") || has_tensor(L, idx, "logits");
  const int top = lua_gettop(L);
  lua_pushliteral(L, "layers");
  lua_rawget(L, idx);
  bool found = lua_istable(L, -1);
  if (found) {
    lua_rawgeti(L, -1, 1);
    found = lua_istable(L, -1) && has_tensor(L, lua_gettop(L), "weights");
  }
  lua_settop(L, top);
  return found;
}

void lheed_refuse_second_result(lua_State *L, const char *function, int idx) {
  luaL_checkstack(L, 4, function);
  if (is_second_result(L, idx))
    lheed_error(
        L,
        "%s: the last argument is the second result of a call with need_weights; put parentheses around that "
        "call, which then has one result: (m(x, {need_weights = true}))",
        function);
}

static int unknown_option(lua_State *L, const char *function, const char *const *names) {
  const int key = lua_gettop(L);
  const char *what = lheed_push_key(L, key);
  if (!names[0]) return lheed_error(L, "%s: there is no option %s; it has none", function, what);
  luaL_Buffer known;
  luaL_buffinit(L, &known);
  for (int i = 0; names[i]; i++) {
    if (i) luaL_addstring(&known, ", ");
    luaL_addstring(&known, names[i]);
  }
  luaL_pushresult(&known);
  const int list = lua_gettop(L);
  const char *hint = lheed_push_hint(L, "option", key, list, 0);
  return lheed_error(L, "%s: there is no option %s; the options are %s%s", function, what,
                     lua_tostring(L, list), hint);
}

/* Every key of the table at idx must be one of the names. */
static void check_names(lua_State *L, int idx, const char *function, const char *const *names) {
  lua_pushnil(L);
  while (lua_next(L, idx)) {
    lua_pop(L, 1);
    bool known = false;
    if (lua_type(L, -1) == LUA_TSTRING) {
      const char *key = lua_tostring(L, -1);
      for (int i = 0; names[i] && !known; i++) known = strcmp(key, names[i]) == 0;
    }
    if (known) continue;
    lheed_refuse_second_result(L, function, idx);
    unknown_option(L, function, names);
  }
}

int lheed_too_many(lua_State *L, const char *function, int given, int most) {
  lheed_refuse_second_result(L, function, lua_gettop(L));
  return lheed_error(L, "%s: %d argument%s given; it takes at most %d", function, given,
                     given == 1 ? " was" : "s were", most);
}

void lheed_arguments(lua_State *L, const char *function, int count) {
  int given = lua_gettop(L);
  if (given > count) lheed_too_many(L, function, given, count);
  lua_settop(L, count);
}

void lheed_options(lua_State *L, const char *function, int first, const char *const *names) {
  int count = 0, top = lua_gettop(L);
  while (names[count]) count++;
  bool named = top >= first && is_options(L, top);
  int given = named ? top - 1 : top; /* the last positional argument */
  luaL_checkstack(L, count + LUA_MINSTACK, function);
  if (given >= first + count) lheed_too_many(L, function, given, first + count - 1);
  if (!named) {
    lua_settop(L, first + count - 1);
    return;
  }
  check_names(L, top, function, names);
  for (int i = 0; i < count; i++) {
    lua_pushstring(L, names[i]);
    lua_rawget(L, top);
    if (first + i > given || lua_isnil(L, first + i)) continue;
    if (!lua_isnil(L, -1))
      lheed_error(L, "%s: %s is given twice, by position and by name", function, names[i]);
    lua_pop(L, 1);
    lua_pushvalue(L, first + i);
  }
  for (int i = first; i <= top; i++)
    lua_remove(L, first); /* the arguments; the values move down to their slots */
}

int lheed_trailing_options(lua_State *L, const char *function, int first, const char *const *names) {
  int top = lua_gettop(L), count = 0;
  while (names[count]) count++;
  luaL_checkstack(L, count + 8, function);
  if (top < first || !is_options(L, top)) {
    for (int i = 0; i < count; i++) lua_pushnil(L);
    return top;
  }
  check_names(L, top, function, names);
  for (int i = 0; i < count; i++) {
    lua_pushstring(L, names[i]);
    lua_rawget(L, top);
  }
  lua_remove(L, top);
  return top - 1;
}

#define MAX_OPTIONS    16
#define LONGEST_OPTION 48

/* Copies the string at idx to `text`, which is valid when the stack changes. */
static const char *copy_option(lua_State *L, int idx, char text[LONGEST_OPTION]) {
  size_t length = 0;
  const char *s = lua_type(L, idx) == LUA_TSTRING ? lua_tolstring(L, idx, &length) : "";
  if (length == 0 || length >= LONGEST_OPTION)
    lheed_error(L, "options: a name must have 1 to %d letters", LONGEST_OPTION - 1);
  memcpy(text, s, length + 1);
  return text;
}

/* options(function, names, first, …): the values of the optional arguments */
int lheed_options_of(lua_State *L) {
  char function[LONGEST_OPTION], text[MAX_OPTIONS][LONGEST_OPTION];
  const char *names[MAX_OPTIONS + 1] = {NULL};
  copy_option(L, 1, function);
  lua_Unsigned count = lua_type(L, 2) == LUA_TTABLE ? lua_rawlen(L, 2) : MAX_OPTIONS + 1;
  lua_Integer first = lheed_integer(L, 3, "options", "first");
  if (count > MAX_OPTIONS || first < 1 || first > MAX_OPTIONS)
    return lheed_error(L, "options: names must be a list of at most %d, first from 1 to %d", MAX_OPTIONS,
                       MAX_OPTIONS);
  for (lua_Unsigned i = 0; i < count; i++) {
    lua_rawgeti(L, 2, (lua_Integer)i + 1);
    names[i] = copy_option(L, lua_gettop(L), text[i]);
    lua_pop(L, 1);
  }
  for (int i = 0; i < 3; i++) lua_remove(L, 1);
  lheed_options(L, function, (int)first, names);
  return (int)count;
}

/* ---- Lists ---- */

/* The copy is a list of tables with this many elements each. Creating or growing one table for all of them
 * would be a single call of Lua, without cancellation checks. */
#define OWN_PIECE ((lua_Unsigned)1 << 16)

lua_Unsigned lheed_own_list(lua_State *L, int idx, const char *function) {
  heed_context *ctx = lheed_find(L)->context;
  const lua_Unsigned count = lua_rawlen(L, idx);
  luaL_checkstack(L, 8, function);
  lua_createtable(L, (int)(count / OWN_PIECE) + 1, 0);
  for (lua_Unsigned first = 0; first < count; first += OWN_PIECE) {
    const lua_Unsigned length = count - first < OWN_PIECE ? count - first : OWN_PIECE;
    lua_createtable(L, (int)length, 0);
    for (lua_Unsigned i = 1; i <= length; i++) {
      lua_rawgeti(L, idx, (lua_Integer)(first + i));
      lua_rawseti(L, -2, (lua_Integer)i);
    }
    lua_rawseti(L, -2, (lua_Integer)(first / OWN_PIECE) + 1);
    lheed_check_cancel_of(L, ctx, function);
  }
  lua_replace(L, idx);
  return count;
}

int lheed_own_element(lua_State *L, int idx, lua_Unsigned i) {
  if (lua_rawgeti(L, idx, (lua_Integer)(i / OWN_PIECE) + 1) == LUA_TNIL) return LUA_TNIL;
  const int type = lua_rawgeti(L, -1, (lua_Integer)(i % OWN_PIECE) + 1);
  lua_remove(L, -2);
  return type;
}

/* ---- Values ---- */

heed_tensor *lheed_tensor(lua_State *L, int idx, const char *function, const char *name) {
  lheed_box *box = lheed_test(L, idx, &lheed_tensor_type);
  if (!box || !box->object) lheed_bad_argument(L, idx, function, name, "a tensor");
  return box->object;
}

heed_tensor *lheed_opt_tensor(lua_State *L, int idx, const char *function, const char *name) {
  return lua_isnoneornil(L, idx) ? NULL : lheed_tensor(L, idx, function, name);
}

const heed_tensor *lheed_operand(lua_State *L, int idx, const char *function, const char *name,
                                 heed__number *number) {
  lheed_box *box = lheed_test(L, idx, &lheed_tensor_type);
  if (box && box->object) return box->object;
  int type = lua_type(L, idx);
  if (type != LUA_TNUMBER && type != LUA_TBOOLEAN)
    lheed_bad_argument(L, idx, function, name, "a tensor or a number");
  return heed__number_tensor(number, lheed_scalar(L, idx, function, name));
}

heed_scalar lheed_scalar(lua_State *L, int idx, const char *function, const char *name) {
  if (lua_type(L, idx) == LUA_TBOOLEAN) return heed_boolean(lua_toboolean(L, idx));
  if (lua_type(L, idx) != LUA_TNUMBER) lheed_bad_argument(L, idx, function, name, "a number");
  return lua_isinteger(L, idx) ? heed_integer(lua_tointeger(L, idx)) : heed_number(lua_tonumber(L, idx));
}

bool lheed_approximate(lua_State *L, int idx, const char *function, const char *name) {
  const char *form = lua_type(L, idx) == LUA_TSTRING ? lua_tostring(L, idx) : "";
  const bool tanh_form = strcmp(form, "tanh") == 0;
  if (!tanh_form && strcmp(form, "none") != 0) lheed_bad_argument(L, idx, function, name, "'none' or 'tanh'");
  return tanh_form;
}

int64_t lheed_integer(lua_State *L, int idx, const char *function, const char *name) {
  int exact = 0;
  lua_Integer value = lua_type(L, idx) == LUA_TNUMBER ? lua_tointegerx(L, idx, &exact) : 0;
  if (!exact) lheed_bad_argument(L, idx, function, name, "an integer");
  return value;
}

int64_t lheed_opt_integer(lua_State *L, int idx, const char *function, const char *name, int64_t otherwise) {
  return lua_isnoneornil(L, idx) ? otherwise : lheed_integer(L, idx, function, name);
}

double lheed_number(lua_State *L, int idx, const char *function, const char *name) {
  if (lua_type(L, idx) != LUA_TNUMBER) lheed_bad_argument(L, idx, function, name, "a number");
  return lua_tonumber(L, idx);
}

double lheed_opt_number(lua_State *L, int idx, const char *function, const char *name, double otherwise) {
  return lua_isnoneornil(L, idx) ? otherwise : lheed_number(L, idx, function, name);
}

bool lheed_opt_boolean(lua_State *L, int idx, const char *function, const char *name, bool otherwise) {
  if (lua_isnoneornil(L, idx)) return otherwise;
  if (!lua_isboolean(L, idx)) lheed_bad_argument(L, idx, function, name, "a boolean");
  return lua_toboolean(L, idx);
}

void lheed_check_elements(lua_State *L, const char *function, const char *name, const heed_tensor *x) {
  if (!heed__is_blocked(x->dtype)) return;
  LHEED_TRY(L, heed__refuse_tensor(lheed_get(L)->context, function, name, x));
}

static bool find_dtype(lua_State *L, int idx, heed_dtype *out) {
  const lheed_state *S = lheed_find(L);
  for (int i = 0; S && lua_iscfunction(L, idx) && i < LHEED_CONVERTERS; i++)
    if (lua_tocfunction(L, idx) == S->converters[i]) {
      *out = S->converter_dtype[i];
      return true;
    }
  const char *text = lua_type(L, idx) == LUA_TSTRING ? lua_tostring(L, idx) : "";
  for (int i = 0; heed__is_any_dtype((heed_dtype)i); i++)
    if (strcmp(text, heed_dtype_name((heed_dtype)i)) == 0) {
      *out = (heed_dtype)i;
      return true;
    }
  return false;
}

static heed_dtype refuse_dtype(lua_State *L, int idx, const char *function, const char *known) {
  const char *what = lheed_push_what(L, idx), *hint = lheed_push_hint(L, "dtype", idx, 0, 0);
  lheed_error(L, "%s: dtype is %s; it must be %s%s", function, what, known, hint);
  return HEED_FLOAT32;
}

heed_dtype lheed_opt_dtype(lua_State *L, int idx, const char *function, heed_dtype otherwise) {
  heed_dtype found;
  if (lua_isnoneornil(L, idx)) return otherwise;
  return find_dtype(L, idx, &found) ? found : refuse_dtype(L, idx, function, LHEED_DTYPES);
}

heed_dtype lheed_dtype(lua_State *L, int idx, const char *function, unsigned known) {
  char text[HEED__DTYPES_TEXT];
  heed_dtype found;
  if (find_dtype(L, idx, &found)) return found;
  return refuse_dtype(L, idx, function, heed__dtypes_text(text, known, "'"));
}

int lheed_dim(lua_State *L, int idx, const char *function, const char *name) {
  int64_t dim = lheed_integer(L, idx, function, name);
  /* clamped: still out of range, and the heed call reports which dimensions there are */
  return dim > HEED_MAX_DIMS + 1    ? HEED_MAX_DIMS + 2
         : dim < -HEED_MAX_DIMS - 1 ? -HEED_MAX_DIMS - 2
                                    : (int)dim;
}

int lheed_opt_dim(lua_State *L, int idx, const char *function) {
  if (lua_isnoneornil(L, idx)) return 0;
  int dim = lheed_dim(L, idx, function, "dim");
  if (dim == 0) lheed_error(L, "%s: dim is 0; it must be at least 1, or at most -1 (the last)", function);
  return dim;
}

/* Raises if the table at idx has keys besides those of its list of `count` elements. */
static void check_list(lua_State *L, int idx, lua_Unsigned count, const char *function, const char *what) {
  lua_pushnil(L);
  while (lua_next(L, idx)) {
    lua_pop(L, 1);
    if (lua_isinteger(L, -1) && (lua_Unsigned)lua_tointeger(L, -1) - 1 < count) continue;
    lheed_error(L, "%s: the table of %s has the key %s; options must be in a table of their own", function,
                what, lheed_push_key(L, lua_gettop(L)));
  }
}

int lheed_opt_dims(lua_State *L, int idx, const char *function, int dims[HEED_MAX_DIMS]) {
  if (lua_isnoneornil(L, idx)) return 0;
  if (lua_type(L, idx) != LUA_TTABLE) {
    dims[0] = lheed_opt_dim(L, idx, function);
    return 1;
  }
  lua_Unsigned count = lua_rawlen(L, idx);
  if (count > HEED_MAX_DIMS)
    lheed_error(L, "%s: dim has %I dimensions; it must have at most %d", function, (LUAI_UACINT)count,
                HEED_MAX_DIMS);
  for (lua_Unsigned i = 0; i < count; i++) {
    lua_rawgeti(L, idx, (lua_Integer)i + 1);
    if (lua_isnil(L, -1))
      lheed_bad_argument(L, lua_gettop(L), function, "dim", "a dimension or a table of them");
    dims[i] = lheed_opt_dim(L, lua_gettop(L), function);
    lua_pop(L, 1);
  }
  check_list(L, idx, count, function, "dimensions");
  return (int)count;
}

static int too_many_sizes(lua_State *L, const char *function) {
  return lheed_error(L, "%s: a tensor has at most %d dimensions", function, HEED_MAX_DIMS);
}

/* Raises what to write instead of zeros(x), zeros(2, "int64") and zeros(2, heed.int64); else returns. */
static void explain_size(lua_State *L, int idx, const char *function) {
  if (lheed_test(L, idx, &lheed_tensor_type)) {
    const char *what = lheed_push_what(L, idx);
    lheed_error(L, "%s: a size is %s; it must be an integer; x.shape is the shape of a tensor", function,
                what);
  }
  if (lua_type(L, idx) != LUA_TSTRING) return;
  const char *text = lua_tostring(L, idx);
#define X(name, dtype_text, type)                                                                            \
  if (strcmp(text, dtype_text) == 0)                                                                         \
    lheed_error(L, "%s: a size is a string ('%s'); it must be an integer; name the dtype: {dtype = '%s'}",   \
                function, text, text);
  HEED_DTYPE_LIST(X)
#undef X
}

int lheed_shape(lua_State *L, int first, int last, const char *function, int64_t shape[HEED_MAX_DIMS]) {
  if (last >= first) explain_size(L, last, function);
  if (last < first || lua_type(L, first) != LUA_TTABLE) {
    int count = last < first ? 0 : last - first + 1;
    if (count > HEED_MAX_DIMS) too_many_sizes(L, function);
    for (int i = 0; i < count; i++) shape[i] = lheed_integer(L, first + i, function, "a size");
    return count;
  }
  if (last > first) lheed_bad_argument(L, first + 1, function, "a size", "in the same table as the others");
  lua_Unsigned count = lua_rawlen(L, first);
  if (count > HEED_MAX_DIMS) too_many_sizes(L, function);
  for (lua_Unsigned i = 0; i < count; i++) {
    lua_rawgeti(L, first, (lua_Integer)i + 1);
    shape[i] = lheed_integer(L, lua_gettop(L), function, "a size");
    lua_pop(L, 1);
  }
  check_list(L, first, count, function, "sizes");
  return (int)count;
}

void lheed_push_scalar(lua_State *L, heed_scalar value) {
  switch (value.dtype) {
  case HEED_BOOL: lua_pushboolean(L, value.as.integer != 0); break;
  case HEED_INT64: lua_pushinteger(L, (lua_Integer)value.as.integer); break;
  default: lua_pushnumber(L, value.as.number);
  }
}
