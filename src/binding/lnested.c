/* Nested tables to tensors (heed.tensor, indices) and back (x:tolist). */
#include "../ops/ops.h"
#include "lheed.h"

/* ---- From tables ---- */

/* The first element of each table gives the shape; then one pass checks all tables against that shape and
 * fills the tensor. A leaf is a number, a boolean, or a tensor, whose dimensions follow those of the tables.
 */
typedef struct nested_reader {
  lua_State *L;
  heed_context *ctx;
  const char *function, *argument; /* for messages */
  int value;                       /* the stack slot of the tables */
  bool whole;                      /* leaves must be integers */
  int64_t read, charged;           /* leaves and tables so far, and those in charged work */
  int tables;                      /* dimensions that are tables; the others are those of the leaves */
  int ndim;
  int64_t shape[HEED_MAX_DIMS];
  heed_tensor *out;          /* row-major */
  heed_dtype common;         /* of the leaves so far; numbers count as float32, the default */
  int depth;                 /* tables around the current element */
  int64_t at[HEED_MAX_DIMS]; /* its position in each of them, from 1 */
} nested_reader;

/* Pushes "data[3][1]", the position in the first `depth` tables. */
static const char *push_position_in(nested_reader *r, int depth) {
  luaL_Buffer b;
  luaL_buffinit(r->L, &b);
  luaL_addstring(&b, r->argument);
  for (int i = 0; i < depth; i++) {
    lua_pushfstring(r->L, "[%I]", (LUAI_UACINT)r->at[i]);
    luaL_addvalue(&b);
  }
  luaL_pushresult(&b);
  return lua_tostring(r->L, -1);
}

/* Pushes "2 elements" or "1 element". */
static const char *push_elements(lua_State *L, int64_t count) {
  return lua_pushfstring(L, "%I element%s", (LUAI_UACINT)count, count == 1 ? "" : "s");
}

static void fail_length(nested_reader *r, int64_t count) {
  const char *where = push_position_in(r, r->depth), *has = push_elements(r->L, count);
  lheed_error(r->L, "%s: %s has %s; it must have %I, like the others", r->function, where, has,
              (LUAI_UACINT)r->shape[r->depth]);
}

/* The value at idx is of another kind than the elements before. */
static void fail_kind(nested_reader *r, int idx) {
  const char *what = lheed_push_what(r->L, idx), *where = push_position_in(r, r->depth);
  if (r->depth < r->tables) {
    const char *needed = push_elements(r->L, r->shape[r->depth]);
    lheed_error(r->L, "%s: %s is %s; it must be a table of %s, like the others", r->function, where, what,
                needed);
  } else if (r->ndim > r->tables) {
    char text[HEED__SHAPE_TEXT];
    heed__shape_text(text, r->ndim - r->tables, r->shape + r->tables);
    lheed_error(r->L, "%s: %s is %s; it must be a tensor of shape %s, like the others", r->function, where,
                what, text);
  } else {
    lheed_error(r->L, "%s: %s is %s; it must be a number, like the others", r->function, where, what);
  }
}

static void fail_leaf(nested_reader *r, int idx) {
  const char *what = lheed_push_what(r->L, idx), *where = push_position_in(r, r->depth);
  lheed_error(r->L, "%s: %s is %s; it must be %s", r->function, where, what,
              r->whole ? "an integer" : "a number, a boolean or a tensor");
}

/* The table at idx lacks an element before its largest key. */
static void fail_hole(nested_reader *r, int idx) {
  r->at[r->depth] = 1;
  while (lua_rawgeti(r->L, idx, (lua_Integer)r->at[r->depth]) != LUA_TNIL) {
    lua_pop(r->L, 1);
    r->at[r->depth]++;
  }
  lheed_error(r->L, "%s: %s is missing; a table must have no holes", r->function,
              push_position_in(r, r->depth + 1));
}

/* The table at idx has the key on top of the stack, which is not the index of an element. */
static void fail_key(nested_reader *r, int idx) {
  lua_State *L = r->L;
  if (lua_isinteger(L, -1) && lua_tointeger(L, -1) > 0) fail_hole(r, idx);
  const char *what = lheed_push_key(L, lua_gettop(L));
  lheed_error(L, "%s: %s has the key %s; options must be in a table of their own", r->function,
              push_position_in(r, r->depth), what);
}

/* The table at idx, of leaves, is {x:max(1)}: see lheed_return_pair. */
static void check_pair(nested_reader *r, int idx, int64_t count) {
  if (count < 2) return;
  lua_rawgeti(r->L, idx, (lua_Integer)count - 1);
  lua_rawgeti(r->L, idx, (lua_Integer)count);
  if (lheed_are_pair(r->L)) {
    r->at[r->depth] = count;
    lheed_error(
        r->L,
        "%s: %s is the second result of the call that gave the tensor before it, the indices of these "
        "values; for the values alone, put the call in parentheses: {(x:max(1))}",
        r->function, push_position_in(r, r->depth + 1));
  }
  lua_pop(r->L, 2);
}

/* Whether the value at idx is a leaf; its dtype, and its tensor if it is one. */
static bool is_leaf(lua_State *L, int idx, heed_dtype *dtype, const heed_tensor **tensor) {
  *tensor = NULL;
  *dtype = lua_isboolean(L, idx) ? HEED_BOOL : HEED_FLOAT32;
  if (lua_isboolean(L, idx) || lua_type(L, idx) == LUA_TNUMBER) return true;
  lheed_box *box = lheed_test(L, idx, &lheed_tensor_type);
  if (!box || !box->object) return false;
  *tensor = box->object;
  *dtype = (*tensor)->dtype;
  return true;
}

/* Finds the shape from the first elements of the value. */
static void find_shape(nested_reader *r) {
  lua_State *L = r->L;
  const heed_tensor *tensor = NULL;
  lua_pushvalue(L, r->value);
  while (lua_type(L, -1) == LUA_TTABLE) {
    if (r->ndim == HEED_MAX_DIMS)
      lheed_error(L, "%s: %s has more than %d levels of tables, or contains itself; it must have at most %d",
                  r->function, r->argument, HEED_MAX_DIMS, HEED_MAX_DIMS);
    int64_t count = (int64_t)lua_rawlen(L, -1);
    r->at[r->ndim] = 1;
    r->shape[r->ndim++] = count;
    r->tables = r->ndim;
    if (count == 0) {
      r->common = HEED_FLOAT32;
      lua_pop(L, 1);
      return;
    }
    if (lua_rawgeti(L, -1, 1) == LUA_TNIL) {
      r->depth = r->ndim - 1;
      fail_hole(r, lua_gettop(L) - 1);
    }
    lua_remove(L, -2);
  }
  if (!is_leaf(L, lua_gettop(L), &r->common, &tensor)) {
    r->depth = r->tables;
    fail_leaf(r, lua_gettop(L));
  }
  if (tensor && r->ndim + tensor->ndim > HEED_MAX_DIMS)
    lheed_error(L, "%s: %s has %d dimensions with those of its tensors; it must have at most %d", r->function,
                r->argument, r->ndim + tensor->ndim, HEED_MAX_DIMS);
  for (int i = 0; tensor && i < tensor->ndim; i++) r->shape[r->ndim++] = tensor->shape[i];
  lua_pop(L, 1);
}

/* Charges the values from the last ones charged up to `count`, and makes a cancellation check. */
static void check_values(lua_State *L, heed_context *ctx, const char *function, int64_t count,
                         int64_t *charged) {
  LHEED_TRY(L, heed__charge(ctx, function, (double)(count - *charged)));
  *charged = count;
  if (heed__is_due(&ctx->pace)) LHEED_TRY(L, heed__stopped(ctx, function));
}

/* Counts a value, with a check once in 2^14. */
static inline void count_value(lua_State *L, heed_context *ctx, const char *function, int64_t *count,
                               int64_t *charged) {
  if ((++*count & 0x3fff) == 0) check_values(L, ctx, function, *count, charged);
}

/* Raises unless a leaf of indices is an integer, an int64 tensor, or, in a mask, true, false or a bool
 * tensor.
 */
static void check_whole(nested_reader *r, int idx, heed_dtype dtype, const heed_tensor *tensor) {
  int exact = 0;
  if (r->out->dtype == HEED_BOOL ? dtype == HEED_BOOL : tensor && dtype == HEED_INT64) return;
  if (r->out->dtype == HEED_INT64 && lua_type(r->L, idx) == LUA_TNUMBER) lua_tointegerx(r->L, idx, &exact);
  if (exact) return;
  const char *what = lheed_push_what(r->L, idx), *where = push_position_in(r, r->depth);
  lheed_error(r->L, "%s: %s is %s; it must be %s", r->function, where, what,
              r->out->dtype == HEED_BOOL ? "a boolean, like the others" : "an integer");
}

/* Writes the leaf at idx to the elements from `offset` on. */
static void read_leaf(nested_reader *r, int idx, int64_t offset) {
  const heed_tensor *tensor;
  heed_dtype dtype;
  if (!is_leaf(r->L, idx, &dtype, &tensor)) {
    if (lua_type(r->L, idx) == LUA_TTABLE) fail_kind(r, idx);
    fail_leaf(r, idx);
  }
  if (tensor) lheed_check_elements(r->L, r->function, "a tensor in the table", tensor);
  if (r->whole) check_whole(r, idx, dtype, tensor);
  r->common = heed__common_dtype(r->common, dtype);
  char *element = r->out->data + (size_t)offset * heed__element_bytes(r->out->dtype);
  int ndim = r->ndim - r->tables;
  if (!tensor) {
    if (ndim != 0) fail_kind(r, idx);
    heed__store(r->out->dtype, element, lheed_scalar(r->L, idx, r->function, "an element"));
    return;
  }
  bool same = tensor->ndim == ndim;
  for (int i = 0; same && i < ndim; i++) same = tensor->shape[i] == r->shape[r->tables + i];
  if (!same) fail_kind(r, idx);
  heed_tensor view;
  heed__alias_on_stack(&view, r->out);
  view.data = element;
  view.ndim = ndim;
  view.numel = tensor->numel;
  for (int i = 0; i < ndim; i++) {
    view.shape[i] = r->shape[r->tables + i];
    view.stride[i] = r->out->stride[r->tables + i];
  }
  LHEED_TRY(r->L, heed__charge(r->ctx, r->function, (double)tensor->numel));
  if (!heed__copy_elements(&view, tensor)) LHEED_TRY(r->L, heed__stopped(r->ctx, r->function));
}

/* Reads the value at idx into the elements from `offset` on. At most HEED_MAX_DIMS deep. */
static void read_nested(nested_reader *r, int idx, int64_t offset) {
  lua_State *L = r->L;
  count_value(L, r->ctx, r->function, &r->read, &r->charged);
  if (r->depth == r->tables) {
    read_leaf(r, idx, offset);
    return;
  }
  if (lua_type(L, idx) != LUA_TTABLE) {
    const heed_tensor *tensor;
    heed_dtype dtype;
    if (is_leaf(L, idx, &dtype, &tensor)) fail_kind(r, idx);
    fail_leaf(r, idx);
  }
  int d = r->depth;
  int64_t count = (int64_t)lua_rawlen(L, idx), seen = 0;
  if (count != r->shape[d]) fail_length(r, count);
  if (d + 1 == r->tables) check_pair(r, idx, count);
  lua_pushnil(L);
  int key = lua_gettop(L);
  while (lua_next(L, idx)) {
    int exact = 0;
    int64_t i = lua_type(L, key) == LUA_TNUMBER ? lua_tointegerx(L, key, &exact) : 0;
    if (i < 1 || i > count) {
      lua_settop(L, key);
      fail_key(r, idx);
    }
    r->at[d] = i;
    r->depth = d + 1;
    read_nested(r, key + 1, offset + (i - 1) * r->out->stride[d]);
    r->depth = d;
    seen++;
    lua_settop(L, key);
  }
  if (seen != count) fail_hole(r, idx);
}

/* tensor(data, {dtype, requires_grad}). Lua allocates nothing while the tables are read, so that no finalizer
 * can change them meanwhile. */
static int tensor(lua_State *L) {
  static const char *const names[] = {"dtype", "requires_grad", NULL};
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "tensor", 2, names);
  luaL_checkstack(L, 2 * HEED_MAX_DIMS + 16, "tensor");
  bool chosen = !lua_isnil(L, 2);
  heed_dtype dtype = lheed_opt_dtype(L, 2, "tensor", HEED_FLOAT32);
  if (heed__is_blocked(dtype)) LHEED_TRY(L, heed__refuse_dtype(ctx, "tensor", "dtype", dtype));
  if (lua_isnil(L, 1))
    return lheed_bad_argument(L, 1, "tensor", "data", "a table, a number, a boolean or a tensor");
  nested_reader r = {.L = L, .ctx = ctx, .function = "tensor", .argument = "data", .value = 1};
  find_shape(&r);
  for (;;) { /* again if a leaf has a wider dtype than those before: at most five times */
    if (!chosen) dtype = r.common;
    heed_tensor **out = lheed_push_tensor(L);
    LHEED_TRY(L, heed__tensor_new(ctx, "tensor", dtype, r.ndim, r.shape, out));
    r.out = *out;
    r.depth = 0;
    read_nested(&r, 1, 0);
    check_values(L, ctx, "tensor", r.read, &r.charged);
    if (chosen || r.common == dtype) return lheed_return_leaf(L, lheed_opt_leaf(L, 3, "tensor", dtype));
    lua_pop(L, 1);
  }
}

heed_dtype lheed_nested_indices(lua_State *L, int idx, const char *function, const char *name, bool masks) {
  heed_context *ctx = lheed_find(L)->context;
  luaL_checkstack(L, 2 * HEED_MAX_DIMS + 16, function);
  nested_reader r = {.L = L, .ctx = ctx, .function = function, .argument = name, .value = idx, .whole = true};
  find_shape(&r);
  const heed_dtype dtype = masks && r.common == HEED_BOOL ? HEED_BOOL : HEED_INT64;
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed__tensor_new(ctx, function, dtype, r.ndim, r.shape, out));
  r.out = *out;
  r.depth = 0;
  read_nested(&r, idx, 0);
  check_values(L, ctx, function, r.read, &r.charged);
  return dtype;
}

/* ---- To tables ---- */

/* The most elements that a new table reserves memory for: clearing the memory for all elements of a large one
 * takes longer than a call may take to stop (50 million: 0.7 s). This makes a list of 3 million take 100 ms
 * instead of 88; so does 2^21. */
#define MOST_PREPARED ((int64_t)1 << 19)

typedef struct pushed_values {
  int64_t count, charged;
} pushed_values;

static void push_list(lua_State *L, const heed_tensor *x, int d, const char *data, pushed_values *pushed) {
  count_value(L, x->storage->context, "tolist", &pushed->count, &pushed->charged);
  if (d == x->ndim) {
    lheed_push_scalar(L, heed__load(x->dtype, data));
    return;
  }
  int64_t count = x->shape[d];
  ptrdiff_t step = x->stride[d] * (ptrdiff_t)heed__element_bytes(x->dtype);
  lua_createtable(L, count < MOST_PREPARED ? (int)count : (int)MOST_PREPARED, 0);
  for (int64_t i = 0; i < count; i++) {
    push_list(L, x, d + 1, data + i * step, pushed);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

static int tolist(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lheed_arguments(L, "tolist", 1);
  luaL_checkstack(L, HEED_MAX_DIMS + 8, "tolist");
  heed_tensor **held = lheed_push_tensor(L); /* creating tables may run finalizers, which may release x */
  lheed_check_elements(L, "tolist", "x", lheed_tensor(L, 1, "tolist", "x"));
  LHEED_TRY(L, heed__tensor_from_view(ctx, "tolist", lheed_tensor(L, 1, "tolist", "x"), held));
  pushed_values pushed = {0, 0};
  push_list(L, *held, 0, (*held)->data, &pushed);
  check_values(L, ctx, "tolist", pushed.count, &pushed.charged);
  return 1;
}

/* ---- Opening ---- */

void lheed_open_nested(lua_State *L) {
  static const luaL_Reg methods[] = {{"tolist", tolist}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"tensor", tensor}, {NULL, NULL}};
  lheed_add_methods(L, methods, false);
  lheed_add(L, NULL, functions);
}
