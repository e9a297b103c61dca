/* Tensors: creating them, their properties, conversion, copies, bytes as strings, release. (Nested tables:
 * lnested.c.) */
#include <string.h>

#include "../ops/ops.h"
#include "lheed.h"

/* ---- Creating ---- */

static const char *const dtype_option[] = {"dtype", NULL};
static const char *const maker_options[] = {"dtype", "requires_grad", NULL};

/* f(2, 3, {dtype = …}) or f({2, 3}, …): a tensor of that shape, all of one value. f(x, 2, 3, …), where first
 * is 2: by default with the dtype of x. */
static int filled(lua_State *L, const char *function, int first, int64_t value) {
  heed_context *ctx = lheed_get(L)->context;
  int64_t shape[HEED_MAX_DIMS];
  int last = lheed_trailing_options(L, function, first, maker_options), top = lua_gettop(L);
  heed_dtype usual = first == 1 ? HEED_FLOAT32 : lheed_tensor(L, 1, function, "x")->dtype;
  heed_dtype dtype = lheed_opt_dtype(L, top - 1, function, usual);
  const bool leaf = lheed_opt_leaf(L, top, function, dtype);
  int ndim = lheed_shape(L, first, last, function, shape);
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed__full(ctx, function, dtype, ndim, shape, heed_integer(value), out));
  return lheed_return_leaf(L, leaf);
}

static int zeros(lua_State *L) {
  return filled(L, "zeros", 1, 0);
}
static int new_zeros(lua_State *L) {
  return filled(L, "new_zeros", 2, 0);
}
static int ones(lua_State *L) {
  return filled(L, "ones", 1, 1);
}
static int new_ones(lua_State *L) {
  return filled(L, "new_ones", 2, 1);
}
/* The elements of an empty tensor are unspecified; zeros show nothing of what was in the memory before. */
static int empty(lua_State *L) {
  return filled(L, "empty", 1, 0);
}
static int new_empty(lua_State *L) {
  return filled(L, "new_empty", 2, 0);
}

static heed_dtype dtype_of_value(heed_scalar value) {
  return value.dtype == HEED_BOOL ? HEED_BOOL : HEED_FLOAT32;
}

static int full(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  int64_t shape[HEED_MAX_DIMS];
  lheed_options(L, "full", 3, maker_options);
  if (lua_isnil(L, 1)) return lheed_bad_argument(L, 1, "full", "the shape", "a number or a table of numbers");
  int ndim = lheed_shape(L, 1, 1, "full", shape);
  heed_scalar value = lheed_scalar(L, 2, "full", "value");
  heed_dtype dtype = lheed_opt_dtype(L, 3, "full", dtype_of_value(value));
  const bool leaf = lheed_opt_leaf(L, 4, "full", dtype);
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed_full(ctx, dtype, ndim, shape, value, out));
  return lheed_return_leaf(L, leaf);
}

/* new_full(x, size, fill_value, {dtype = …}) */
static int new_full(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  int64_t shape[HEED_MAX_DIMS];
  lheed_options(L, "new_full", 4, maker_options);
  heed_dtype dtype = lheed_opt_dtype(L, 4, "new_full", lheed_tensor(L, 1, "new_full", "x")->dtype);
  const bool leaf = lheed_opt_leaf(L, 5, "new_full", dtype);
  if (lua_isnil(L, 2)) return lheed_bad_argument(L, 2, "new_full", "size", "a number or a table of numbers");
  int ndim = lheed_shape(L, 2, 2, "new_full", shape);
  heed_scalar value = lheed_scalar(L, 3, "new_full", "fill_value");
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed__full(ctx, "new_full", dtype, ndim, shape, value, out));
  return lheed_return_leaf(L, leaf);
}

/* f(x, {dtype = …}): a tensor with the shape and, by default, the dtype of x, all of one value. */
static int filled_like(lua_State *L, const char *function, heed_scalar value, int dtype_slot) {
  heed_context *ctx = lheed_get(L)->context;
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  heed_dtype dtype = lheed_opt_dtype(L, dtype_slot, function, x->dtype);
  const bool leaf = lheed_opt_leaf(L, dtype_slot + 1, function, dtype);
  LHEED_TRY(L, heed__new_like(ctx, function, x, dtype, out));
  LHEED_TRY(L, heed__full(ctx, function, dtype, x->ndim, x->shape, value, out));
  return lheed_return_leaf(L, leaf);
}

static int zeros_like(lua_State *L) {
  lheed_options(L, "zeros_like", 2, maker_options);
  return filled_like(L, "zeros_like", heed_integer(0), 2);
}

static int ones_like(lua_State *L) {
  lheed_options(L, "ones_like", 2, maker_options);
  return filled_like(L, "ones_like", heed_integer(1), 2);
}

static int empty_like(lua_State *L) {
  lheed_options(L, "empty_like", 2, maker_options);
  return filled_like(L, "empty_like", heed_integer(0), 2);
}

static int full_like(lua_State *L) {
  lheed_options(L, "full_like", 3, maker_options);
  return filled_like(L, "full_like", lheed_scalar(L, 2, "full_like", "value"), 3);
}

static int eye(lua_State *L) {
  static const char *const names[] = {"m", "dtype", "requires_grad", NULL};
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "eye", 2, names);
  int64_t rows = lheed_integer(L, 1, "eye", "n");
  int64_t columns = lheed_opt_integer(L, 2, "eye", "m", rows);
  heed_dtype dtype = lheed_opt_dtype(L, 3, "eye", HEED_FLOAT32);
  const bool leaf = lheed_opt_leaf(L, 4, "eye", dtype);
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed_eye(ctx, dtype, rows, columns, out));
  return lheed_return_leaf(L, leaf);
}

static heed_scalar range_end(lua_State *L, int idx, const char *function, const char *name) {
  double number = lheed_number(L, idx, function, name);
  return lua_isinteger(L, idx) ? heed_integer(lua_tointeger(L, idx)) : heed_number(number);
}

static int range(lua_State *L) {
  static const char *const names[] = {"step", "dtype", "requires_grad", NULL};
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "range", 3, names);
  heed_scalar first = range_end(L, 1, "range", "first"), last = range_end(L, 2, "range", "last");
  heed_scalar step = lua_isnil(L, 3) ? heed_integer(1) : range_end(L, 3, "range", "step");
  heed_dtype dtype = lheed_opt_dtype(L, 4, "range", HEED_FLOAT32);
  const bool leaf = lheed_opt_leaf(L, 5, "range", dtype);
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed_range(ctx, dtype, first, last, step, out));
  return lheed_return_leaf(L, leaf);
}

/* arange(last), arange(start, last, step = 1): int64 if all of them are integers */
static int arange(lua_State *L) {
  static const char *const names[] = {"start", "end", "step", "dtype", "requires_grad", NULL};
  heed_context *ctx = lheed_get(L)->context;
  const int count = lheed_trailing_options(L, "arange", 1, names);
  const int option = lua_gettop(L) - 4; /* the slots of the values by name begin here */
  if (count > 3) return lheed_too_many(L, "arange", count, 3);
  for (int i = 0; i < count; i++) {
    const int to = option + (count == 1 ? 1 : i);
    if (!lua_isnil(L, to))
      return lheed_error(L, "arange: %s is given twice, by position and by name", names[to - option]);
    lua_pushvalue(L, i + 1);
    lua_replace(L, to);
  }
  const heed_scalar end = range_end(L, option + 1, "arange", "end");
  const heed_scalar start =
      count < 2 && lua_isnil(L, option) ? heed_integer(0) : range_end(L, option, "arange", "start");
  const heed_scalar step =
      lua_isnil(L, option + 2) ? heed_integer(1) : range_end(L, option + 2, "arange", "step");
  const bool whole = start.dtype == HEED_INT64 && end.dtype == HEED_INT64 && step.dtype == HEED_INT64;
  const heed_dtype dtype = lheed_opt_dtype(L, option + 3, "arange", whole ? HEED_INT64 : HEED_FLOAT32);
  const bool leaf = lheed_opt_leaf(L, option + 4, "arange", dtype);
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed_arange(ctx, dtype, start, end, step, out));
  return lheed_return_leaf(L, leaf);
}

static int linspace(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "linspace", 4, maker_options);
  double first = lheed_number(L, 1, "linspace", "first"), last = lheed_number(L, 2, "linspace", "last");
  int64_t count = lheed_integer(L, 3, "linspace", "count");
  heed_dtype dtype = lheed_opt_dtype(L, 4, "linspace", HEED_FLOAT32);
  const bool leaf = lheed_opt_leaf(L, 5, "linspace", dtype);
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed_linspace(ctx, dtype, first, last, count, out));
  return lheed_return_leaf(L, leaf);
}

/* ---- Properties ---- */

static int is_tensor(lua_State *L) {
  lua_pushboolean(L, lheed_test(L, 1, &lheed_tensor_type) != NULL);
  return 1;
}

/* The dimension at stack slot 2, from 0. */
static int dim_argument(lua_State *L, const char *function, const heed_tensor *x) {
  int dim = lheed_dim(L, 2, function, "dim"), index = 0;
  if (x->ndim == 0) lheed_error(L, "%s: dim is %d and the tensor has no dimensions", function, dim);
  LHEED_TRY(L, heed__check_dim(lheed_get(L)->context, function, x->ndim, dim, &index));
  return index;
}

static int size(lua_State *L) {
  const heed_tensor *x = lheed_tensor(L, 1, "size", "x");
  if (lua_isnoneornil(L, 2))
    lheed_push_shape(L, x);
  else
    lua_pushinteger(L, (lua_Integer)x->shape[dim_argument(L, "size", x)]);
  return 1;
}

static int stride(lua_State *L) {
  const heed_tensor *x = lheed_tensor(L, 1, "stride", "x");
  if (!lua_isnoneornil(L, 2)) {
    lua_pushinteger(L, (lua_Integer)x->stride[dim_argument(L, "stride", x)]);
    return 1;
  }
  heed_tensor copy; /* creating the table may run finalizers, which may release x */
  heed__alias_on_stack(&copy, x);
  lua_createtable(L, copy.ndim, 0);
  for (int i = 0; i < copy.ndim; i++) {
    lua_pushinteger(L, (lua_Integer)copy.stride[i]);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

static int numel(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)lheed_tensor(L, 1, "numel", "x")->numel);
  return 1;
}

static int element_size(lua_State *L) {
  const heed_tensor *x = lheed_tensor(L, 1, "element_size", "x");
  lheed_check_elements(L, "element_size", "x", x);
  lua_pushinteger(L, (lua_Integer)heed__element_bytes(x->dtype));
  return 1;
}

static int dim(lua_State *L) {
  lua_pushinteger(L, lheed_tensor(L, 1, "dim", "x")->ndim);
  return 1;
}

static int is_contiguous(lua_State *L) {
  lua_pushboolean(L, heed_tensor_is_contiguous(lheed_tensor(L, 1, "is_contiguous", "x")));
  return 1;
}

static int tensor_item(lua_State *L) {
  const heed_tensor *x = lheed_tensor(L, 1, "item", "x");
  if (x->numel != 1) {
    char text[HEED__SHAPE_TEXT];
    return lheed_error(L, "item: x has %I elements (shape %s); it must have exactly one",
                       (LUAI_UACINT)x->numel, heed__shape_text(text, x->ndim, x->shape));
  }
  lheed_check_elements(L, "item", "x", x);
  lheed_push_scalar(L, heed__load(x->dtype, x->data));
  return 1;
}

static int length(lua_State *L) {
  const heed_tensor *x = lheed_tensor(L, 1, "length", "x");
  if (x->ndim == 0) return lheed_error(L, "length: x has no dimensions; it must have at least 1");
  lua_pushinteger(L, (lua_Integer)x->shape[0]);
  return 1;
}

/* __eq: whether both are views of the same elements. heed.equal compares values. */
static int same(lua_State *L) {
  lheed_box *a = lheed_test(L, 1, &lheed_tensor_type), *b = lheed_test(L, 2, &lheed_tensor_type);
  lua_pushboolean(L, a && b && a->object && b->object && heed__same_view(a->object, b->object));
  return 1;
}

/* ---- Converting and copying ---- */

static int to_dtype(lua_State *L, const char *function, heed_dtype dtype) {
  heed_context *ctx = lheed_get(L)->context;
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed_to(ctx, lheed_tensor(L, 1, function, "x"), dtype, out));
  return lheed_return(L, 1);
}

/* to(x, dtype), or to(x, other): the dtype of another tensor. */
static int to(lua_State *L) {
  lheed_options(L, "to", 2, dtype_option);
  if (lheed_test(L, 2, &lheed_tensor_type))
    return to_dtype(L, "to", lheed_tensor(L, 2, "to", "other")->dtype);
  return to_dtype(L, "to", lheed_dtype(L, 2, "to", HEED__DTYPE_BIT(HEED__LAST_DTYPE + 1) - 1));
}

static int to_float(lua_State *L) {
  lheed_arguments(L, "float", 1);
  return to_dtype(L, "float", HEED_FLOAT32);
}
static int to_long(lua_State *L) {
  lheed_arguments(L, "long", 1);
  return to_dtype(L, "long", HEED_INT64);
}
static int to_bool(lua_State *L) {
  lheed_arguments(L, "bool", 1);
  return to_dtype(L, "bool", HEED_BOOL);
}

static int type_as(lua_State *L) {
  lheed_arguments(L, "type_as", 2);
  return to_dtype(L, "type_as", lheed_tensor(L, 2, "type_as", "other")->dtype);
}

static int clone_tensor(lua_State *L) {
  lheed_arguments(L, "clone", 1);
  heed_context *ctx = lheed_get(L)->context;
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed_clone(ctx, lheed_tensor(L, 1, "clone", "x"), out));
  return lheed_return(L, 1);
}

static int contiguous(lua_State *L) {
  lheed_arguments(L, "contiguous", 1);
  heed_context *ctx = lheed_get(L)->context;
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed_contiguous(ctx, lheed_tensor(L, 1, "contiguous", "x"), out));
  return lheed_return(L, 1);
}

static int copy_(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed__number number;
  heed_tensor *x = lheed_tensor(L, 1, "copy_", "x");
  const heed_tensor *src = lheed_operand(L, 2, "copy_", "src", &number);
  LHEED_TRY(L, heed_copy(ctx, x, src));
  lua_settop(L, 1);
  return 1;
}

static int fill_(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_tensor *x = lheed_tensor(L, 1, "fill_", "x");
  LHEED_TRY(L, heed_fill(ctx, x, lheed_scalar(L, 2, "fill_", "value")));
  lua_settop(L, 1);
  return 1;
}

static int zero_(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  heed_tensor *x = lheed_tensor(L, 1, "zero_", "x");
  LHEED_TRY(L, heed__check_writable(ctx, "zero_", x));
  LHEED_TRY(L, heed__recorded_constant(ctx, heed__fill(ctx, "zero_", x, heed_integer(0)), HEED__OP_fill, &x));
  lua_settop(L, 1);
  return 1;
}

/* ---- Bytes: little-endian, row-major ---- */

static bool is_little_endian(void) {
  const uint16_t one = 1;
  unsigned char first;
  memcpy(&first, &one, 1);
  return first == 1;
}

static void reverse_each(char *data, int64_t count, size_t width) {
  for (char *p = data; count > 0; count--, p += width) {
    for (size_t i = 0; i < width / 2; i++) {
      char byte = p[i];
      p[i] = p[width - 1 - i];
      p[width - 1 - i] = byte;
    }
  }
}

#define READ_AT_ONCE ((size_t)1 << 20) /* bytes */

static int to_string(lua_State *L) {
  lheed_arguments(L, "to_string", 1);
  heed_context *ctx = lheed_get(L)->context;
  heed_tensor **row_major = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "to_string", "x");
  if (is_little_endian() && heed_tensor_is_contiguous(x)) {
    LHEED_TRY(L, heed__tensor_from_view(ctx, "to_string", x, row_major));
  } else {
    LHEED_TRY(L, heed__clone(ctx, "to_string", x, row_major));
  }
  const heed_dtype dtype = (*row_major)->dtype;
  const size_t width = heed__element_bytes(dtype); /* blocks are little-endian everywhere */
  if (!is_little_endian() && !heed__is_blocked(dtype))
    reverse_each((*row_major)->data, (*row_major)->numel, width);
  LHEED_TRY(L, heed__charge(ctx, "to_string", (double)heed__row_bytes(dtype, (*row_major)->numel)));
  lheed_check_cancel_of(L, ctx, "to_string");
  lua_pushlstring(L, (*row_major)->data, (size_t)heed__row_bytes(dtype, (*row_major)->numel));
  return 1;
}

static int from_string(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  int64_t shape[HEED_MAX_DIMS], count = 0;
  int last = lua_gettop(L);
  if (lua_type(L, 1) != LUA_TSTRING) return lheed_bad_argument(L, 1, "from_string", "bytes", "a string");
  if (last < 3) return lheed_error(L, "from_string: an argument is missing; it takes bytes, dtype and shape");
  heed_dtype dtype = lheed_opt_dtype(L, 2, "from_string", HEED_FLOAT32);
  int ndim = lheed_shape(L, 3, last, "from_string", shape);
  LHEED_TRY(L, heed__check_shape(ctx, "from_string", ndim, shape, dtype, &count));
  size_t bytes, needed = (size_t)heed__row_bytes(dtype, count);
  const char *data = lua_tolstring(L, 1, &bytes);
  if (bytes != needed) {
    char text[HEED__SHAPE_TEXT];
    return lheed_error(L, "from_string: bytes has %I byte%s; it must have %I for shape %s of %s",
                       (LUAI_UACINT)bytes, HEED__S(bytes), (LUAI_UACINT)needed,
                       heed__shape_text(text, ndim, shape), heed_dtype_name(dtype));
  }
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed__charge(ctx, "from_string", (double)bytes));
  LHEED_TRY(L, heed__tensor_new(ctx, "from_string", dtype, ndim, shape, out));
  for (size_t i = 0; i < bytes; i += READ_AT_ONCE) {
    memcpy((*out)->data + i, data + i, bytes - i < READ_AT_ONCE ? bytes - i : READ_AT_ONCE);
    lheed_check_cancel_of(L, ctx, "from_string");
  }
  if (!is_little_endian() && !heed__is_blocked(dtype))
    reverse_each((*out)->data, count, heed__element_bytes(dtype));
  if (dtype == HEED_BOOL) {
    uint8_t *flag = (uint8_t *)(*out)->data;
    for (int64_t i = 0; i < count; i++) flag[i] = flag[i] != 0;
  }
  return lheed_return(L, 1);
}

/* ---- Release ---- */

static int tensor_release(lua_State *L) {
  lheed_box *box = lheed_test(L, 1, &lheed_tensor_type);
  if (!box) return lheed_bad_argument(L, 1, "release", "x", "a tensor");
  if (lheed_get(L)->collecting && box->object)
    return lheed_error(L, "release: x may be in use: a finalizer is running during an operation");
  heed_tensor *x = box->object;
  box->object = NULL;
  heed_tensor_free(x);
  return 0;
}

static int is_released(lua_State *L) {
  lheed_box *box = lheed_test(L, 1, &lheed_tensor_type);
  if (!box) return lheed_bad_argument(L, 1, "is_released", "x", "a tensor");
  lua_pushboolean(L, box->object == NULL);
  return 1;
}

/* ---- Opening ---- */

static const luaL_Reg functions[] = {
    {"zeros", zeros},         {"ones", ones},         {"empty", empty},
    {"full", full},           {"eye", eye},           {"range", range},
    {"arange", arange},       {"linspace", linspace}, {"from_string", from_string},
    {"is_tensor", is_tensor}, {NULL, NULL},
};

static const luaL_Reg tensor_methods[] = {
    {"new_zeros", new_zeros},
    {"new_ones", new_ones},
    {"new_empty", new_empty},
    {"new_full", new_full},
    {"zeros_like", zeros_like},
    {"ones_like", ones_like},
    {"empty_like", empty_like},
    {"full_like", full_like},
    {"size", size},
    {"stride", stride},
    {"numel", numel},
    {"nelement", numel},
    {"element_size", element_size},
    {"dim", dim},
    {"item", tensor_item},
    {"is_contiguous", is_contiguous},
    {"to", to},
    {"type_as", type_as},
    {"float", to_float},
    {"long", to_long},
    {"bool", to_bool},
    {"clone", clone_tensor},
    {"contiguous", contiguous},
    {"copy_", copy_},
    {"fill_", fill_},
    {"zero_", zero_},
    {"to_string", to_string},
    {"release", tensor_release},
    {"is_released", is_released},
    {NULL, NULL},
};

static const luaL_Reg metamethods[] = {
    {"__ipairs", lheed_ipairs}, {"__len", length}, {"__eq", same}, {"__close", tensor_release}, {NULL, NULL}};

/* What may be given instead of the name of a dtype. */
static void set_converters(lheed_state *S) {
  static const struct {
    lua_CFunction function;
    heed_dtype dtype;
  } converters[LHEED_CONVERTERS] = {{to_float, HEED_FLOAT32}, {to_long, HEED_INT64}, {to_bool, HEED_BOOL}};
  for (int i = 0; i < LHEED_CONVERTERS; i++) {
    S->converters[i] = converters[i].function;
    S->converter_dtype[i] = converters[i].dtype;
  }
}

void lheed_open_tensor(lua_State *L) {
  set_converters(lheed_find(L));
  lheed_add_methods(L, tensor_methods, false);
  lheed_add(L, NULL, functions);
  lheed_add_metamethods(L, &lheed_tensor_type, metamethods);
}
