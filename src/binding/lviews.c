/* Operations on the shape of tensors: views, joining, splitting. (Those that take indices: lindices.c.) */
#include <string.h>

#include "../ops/ops.h"
#include "lheed.h"

/* ---- Views ---- */

/* view(x, sizes…) or view(x, {sizes…}) */
static int sized(lua_State *L, const char *function,
                 heed_status (*call)(heed_context *, const heed_tensor *, int, const int64_t *,
                                     heed_tensor **)) {
  if (lua_gettop(L) == 0) lua_settop(L, 1);
  int last = lua_gettop(L);
  heed_tensor **out = lheed_push_tensor(L);
  int64_t shape[HEED_MAX_DIMS];
  int ndim = lheed_shape(L, 2, last, function, shape);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  LHEED_TRY(L, call(lheed_get(L)->context, x, ndim, shape, out));
  return lheed_return(L, 1);
}

#define OP_SIZED(name)                                                                                       \
  static int op_##name(lua_State *L) {                                                                       \
    return sized(L, #name, heed_##name);                                                                     \
  }
#include "../ops/ops.def"

/* The dimensions in the arguments (x, dims…), (x, {dims…}) or (x, {dims = {…}}). */
static int read_dims(lua_State *L, const char *function, int dims[HEED_MAX_DIMS]) {
  static const char *const names[] = {"dims", NULL};
  if (lua_gettop(L) == 0) lua_settop(L, 1);
  const int last = lheed_trailing_options(L, function, 2, names), named = lua_gettop(L);
  if (!lua_isnil(L, named)) {
    if (last > 1) lheed_error(L, "%s: dims is given twice, by position and by name", function);
    return lheed_opt_dims(L, named, function, dims);
  }
  if (last > 1 && lua_type(L, 2) == LUA_TTABLE) {
    if (last > 2) lheed_too_many(L, function, last, 2);
    return lheed_opt_dims(L, 2, function, dims);
  }
  if (last - 1 > HEED_MAX_DIMS)
    lheed_error(L, "%s: a tensor has at most %d dimensions", function, HEED_MAX_DIMS);
  for (int i = 2; i <= last; i++) dims[i - 2] = lheed_dim(L, i, function, "dim");
  return last > 1 ? last - 1 : 0;
}

/* flip(x, dims…) */
static int op_flip(lua_State *L) {
  int dims[HEED_MAX_DIMS];
  const bool given = lua_gettop(L) > 1;
  const int ndims = read_dims(L, "flip", dims);
  if (!given) lheed_error(L, "flip: dims is missing; it must be the dimensions to reverse");
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "flip", "x");
  LHEED_TRY(L, heed_flip(lheed_get(L)->context, x, ndims, dims, out));
  return lheed_return(L, 1);
}

/* permute(x, dims…) */
static int op_permute(lua_State *L) {
  int dims[HEED_MAX_DIMS];
  const int ndim = read_dims(L, "permute", dims);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "permute", "x");
  LHEED_TRY(L, heed_permute(lheed_get(L)->context, x, ndim, dims, out));
  return lheed_return(L, 1);
}

/* transpose(x, dim1, dim2) */
static int op_transpose(lua_State *L) {
  lheed_arguments(L, "transpose", 3);
  heed_tensor **out = lheed_push_tensor(L);
  int dim1 = lheed_dim(L, 2, "transpose", "dim1"), dim2 = lheed_dim(L, 3, "transpose", "dim2");
  const heed_tensor *x = lheed_tensor(L, 1, "transpose", "x");
  LHEED_TRY(L, heed_transpose(lheed_get(L)->context, x, dim1, dim2, out));
  return lheed_return(L, 1);
}

/* t(x): transposes a matrix; tensors of fewer dimensions are unchanged. */
static int op_t(lua_State *L) {
  lheed_arguments(L, "t", 1);
  heed_tensor **out = lheed_push_tensor(L);
  heed_context *ctx = lheed_get(L)->context;
  const heed_tensor *x = lheed_tensor(L, 1, "t", "x");
  char shape[HEED__SHAPE_TEXT];
  if (x->ndim > 2)
    lheed_error(L, "t: x is %s; it must have at most 2 dimensions (transpose takes more)",
                heed__shape_text(shape, x->ndim, x->shape));
  LHEED_TRY(L, heed__t(ctx, "t", x, out));
  return lheed_return(L, 1);
}

/* narrow(x, dim, start, length) */
static int op_narrow(lua_State *L) {
  lheed_arguments(L, "narrow", 4);
  heed_tensor **out = lheed_push_tensor(L);
  int dim = lheed_dim(L, 2, "narrow", "dim");
  int64_t start = lheed_integer(L, 3, "narrow", "start"), length = lheed_integer(L, 4, "narrow", "length");
  const heed_tensor *x = lheed_tensor(L, 1, "narrow", "x");
  LHEED_TRY(L, heed_narrow(lheed_get(L)->context, x, dim, start, length, out));
  return lheed_return(L, 1);
}

/* select(x, dim, index) */
static int op_select(lua_State *L) {
  lheed_arguments(L, "select", 3);
  heed_tensor **out = lheed_push_tensor(L);
  int dim = lheed_dim(L, 2, "select", "dim");
  int64_t index = lheed_integer(L, 3, "select", "index");
  const heed_tensor *x = lheed_tensor(L, 1, "select", "x");
  LHEED_TRY(L, heed_select(lheed_get(L)->context, x, dim, index, out));
  return lheed_return(L, 1);
}

/* unsqueeze(x, dim) */
static int op_unsqueeze(lua_State *L) {
  lheed_arguments(L, "unsqueeze", 2);
  heed_tensor **out = lheed_push_tensor(L);
  int dim = lheed_dim(L, 2, "unsqueeze", "dim");
  const heed_tensor *x = lheed_tensor(L, 1, "unsqueeze", "x");
  LHEED_TRY(L, heed_unsqueeze(lheed_get(L)->context, x, dim, out));
  return lheed_return(L, 1);
}

/* squeeze(x, dim): a dimension or a table of them; without dim it removes all dimensions of size 1 */
static int op_squeeze(lua_State *L) {
  static const char *const names[] = {"dim", NULL};
  lheed_options(L, "squeeze", 2, names);
  heed_tensor **out = lheed_push_tensor(L);
  int dims[HEED_MAX_DIMS];
  const int ndims = lheed_opt_dims(L, 2, "squeeze", dims);
  const heed_tensor *x = lheed_tensor(L, 1, "squeeze", "x");
  LHEED_TRY(L, heed_squeeze(lheed_get(L)->context, x, ndims, dims, out));
  return lheed_return(L, 1);
}

/* diagonal(x, offset = 0, dim1 = 1, dim2 = 2) */
static int op_diagonal(lua_State *L) {
  static const char *const names[] = {"offset", "dim1", "dim2", NULL};
  lheed_options(L, "diagonal", 2, names);
  heed_tensor **out = lheed_push_tensor(L);
  const int64_t offset = lheed_opt_integer(L, 2, "diagonal", "offset", 0);
  const int dim1 = lua_isnil(L, 3) ? 1 : lheed_dim(L, 3, "diagonal", "dim1");
  const int dim2 = lua_isnil(L, 4) ? 2 : lheed_dim(L, 4, "diagonal", "dim2");
  const heed_tensor *x = lheed_tensor(L, 1, "diagonal", "x");
  LHEED_TRY(L, heed_diagonal(lheed_get(L)->context, x, offset, dim1, dim2, out));
  return lheed_return(L, 1);
}

/* unfold(x, dim, size, step) */
static int op_unfold(lua_State *L) {
  lheed_arguments(L, "unfold", 4);
  heed_tensor **out = lheed_push_tensor(L);
  const int dim = lheed_dim(L, 2, "unfold", "dim");
  const int64_t size = lheed_integer(L, 3, "unfold", "size"), step = lheed_integer(L, 4, "unfold", "step");
  const heed_tensor *x = lheed_tensor(L, 1, "unfold", "x");
  LHEED_TRY(L, heed_unfold(lheed_get(L)->context, x, dim, size, step, out));
  return lheed_return(L, 1);
}

/* flatten(x, start_dim = 1, end_dim = -1) */
static int op_flatten(lua_State *L) {
  static const char *const names[] = {"start_dim", "end_dim", NULL};
  lheed_options(L, "flatten", 2, names);
  heed_tensor **out = lheed_push_tensor(L);
  int first = lua_isnil(L, 2) ? 1 : lheed_dim(L, 2, "flatten", "start_dim");
  int last = lua_isnil(L, 3) ? -1 : lheed_dim(L, 3, "flatten", "end_dim");
  const heed_tensor *x = lheed_tensor(L, 1, "flatten", "x");
  LHEED_TRY(L, heed_flatten(lheed_get(L)->context, x, first, last, out));
  return lheed_return(L, 1);
}

/* ---- Joining ---- */

static int opt_first_dim(lua_State *L, int idx, const char *function) {
  int dim = lheed_opt_dim(L, idx, function);
  return dim ? dim : 1;
}

/* The list of tensors at 1 must have no other keys (but for the n of table.pack) and no holes. */
static void check_tensor_keys(lua_State *L, heed_context *ctx, const char *function) {
  const lua_Unsigned count = lua_rawlen(L, 1);
  int64_t seen = 0;
  lua_pushnil(L);
  while (lua_next(L, 1)) {
    if ((++seen & 0xfff) == 0) lheed_check_cancel_of(L, ctx, function);
    const bool is_index = lua_isinteger(L, -2) && lua_tointeger(L, -2) > 0;
    const bool is_n = lua_type(L, -2) == LUA_TSTRING && strcmp(lua_tostring(L, -2), "n") == 0 &&
                      lua_isinteger(L, -1) && lua_tointeger(L, -1) >= 0;
    const lua_Integer reach = is_index ? lua_tointeger(L, -2) : is_n ? lua_tointeger(L, -1) : -1;
    lua_pop(L, 1);
    if (reach >= 0 && (lua_Unsigned)reach <= count) continue;
    if (reach >= 0)
      lheed_error(L, "%s: tensors[%I] is nil; it must be a tensor: a list must have no holes", function,
                  (LUAI_UACINT)count + 1);
    lheed_error(L, "%s: the table of tensors has the key %s; options must be in a table of their own",
                function, lheed_push_key(L, lua_gettop(L)));
  }
}

/* The list {x:max(1)} has the values and their indices, which is hardly ever meant. */
static void check_last_pair(lua_State *L, const char *function, lua_Unsigned count) {
  if (count < 2) return;
  lheed_own_element(L, 1, count - 2);
  lheed_own_element(L, 1, count - 1);
  if (lheed_are_pair(L))
    lheed_error(
        L,
        "%s: tensors[%I] is the second result of the call that gave tensors[%I], the indices of these "
        "values; for the values alone, put the call in parentheses: {(x:max(1))}",
        function, (LUAI_UACINT)count, (LUAI_UACINT)count - 1);
  lua_pop(L, 2);
}

/* cat({tensors…}, dim = 1) */
static int call_join(lua_State *L, const char *function,
                     heed_status (*call)(heed_context *, int, const heed_tensor *const *, int,
                                         heed_tensor **)) {
  static const char *const names[] = {"dim", NULL};
  heed_context *ctx = lheed_get(L)->context;
  if (lua_type(L, 1) != LUA_TTABLE)
    lheed_bad_argument(L, 1, function, "tensors", "a table of tensors, as in {a, b}");
  lheed_options(L, function, 2, names);
  int dim = opt_first_dim(L, 2, function);
  check_tensor_keys(L, ctx, function);
  const lua_Unsigned count = lheed_own_list(L, 1, function);
  if (count > INT32_MAX) lheed_error(L, "%s: there are too many tensors", function);
  check_last_pair(L, function, count);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor **tensors = lua_newuserdatauv(L, heed__array_bytes(count, sizeof *tensors), 0);
  for (lua_Unsigned i = 0; i < count; i++) {
    lheed_own_element(L, 1, i);
    const lheed_box *box = lheed_test(L, lua_gettop(L), &lheed_tensor_type);
    if (!box || !box->object) {
      const char *what = lheed_push_what(L, lua_gettop(L));
      lheed_error(L, "%s: tensors[%I] is %s; it must be a tensor", function, (LUAI_UACINT)i + 1, what);
    }
    tensors[i] = box->object;
    lua_pop(L, 1);
    if ((i & 0xfff) == 0xfff) lheed_check_cancel_of(L, ctx, function);
  }
  LHEED_TRY(L, call(ctx, (int)count, tensors, dim, out));
  lua_pop(L, 1);
  return lheed_return(L, 1);
}

static int op_cat(lua_State *L) {
  return call_join(L, "cat", heed_cat);
}
static int op_stack(lua_State *L) {
  return call_join(L, "stack", heed_stack);
}

/* ---- Splitting: a table of views ---- */

/* Reads the tensor at 1 and the dimension at 3 (*axis, from 0); returns its size. */
static int64_t read_axis(lua_State *L, heed_context *ctx, const char *function, int *axis) {
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  if (x->ndim == 0) lheed_error(L, "%s: x has no dimensions; it must have at least 1", function);
  LHEED_TRY(L, heed__check_dim(ctx, function, x->ndim, opt_first_dim(L, 3, function), axis));
  return x->shape[*axis];
}

/* Stores a view of `length` elements, after the first `start`, in the table on top of the stack, at `index`.
 * name: as lheed_set_name. */
static void add_piece(lua_State *L, heed_context *ctx, const char *function, int axis, int64_t start,
                      int64_t length, lua_Integer index, const char *name) {
  if ((index & 0x3ff) == 0) lheed_check_cancel_of(L, ctx, function);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x"); /* read again: a finalizer may have released it */
  LHEED_TRY(L, heed__narrow(ctx, function, x, axis + 1, start + 1, length, out));
  lheed_set_name(*out, name);
  lua_rawseti(L, -2, index);
}

/* A view takes some 400 bytes: more of them are a mistake, and would exhaust memory. */
#define MAX_PIECES ((int64_t)1 << 20)

/* `count` pieces of `length`, the last one shorter if necessary. */
static int cut_evenly(lua_State *L, heed_context *ctx, const char *function, int axis, int64_t size,
                      int64_t length, int64_t count) {
  if (count > MAX_PIECES)
    lheed_error(L, "%s: the result would be %I pieces; it must be at most %I", function, (LUAI_UACINT)count,
                (LUAI_UACINT)MAX_PIECES);
  lua_newtable(L);
  int64_t start = 0;
  for (lua_Integer index = 1; index <= count; index++) {
    int64_t piece = size - start < length ? size - start : length;
    add_piece(L, ctx, function, axis, start, piece, index, "SplitBackward0");
    start += piece;
  }
  return lheed_return(L, 1);
}

static int64_t divide_up(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

/* split(x, size, dim = 1) or split(x, {sizes…}, dim = 1) */
static int op_split(lua_State *L) {
  static const char *const names[] = {"size", "dim", NULL};
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "split", 2, names);
  int axis = 0;
  int64_t size = read_axis(L, ctx, "split", &axis);
  if (lua_type(L, 2) != LUA_TTABLE) {
    int64_t length = lheed_integer(L, 2, "split", "size");
    if (length < 1 && !(length == 0 && size == 0))
      lheed_error(L, "split: size is %I; it must be at least 1", (LUAI_UACINT)length);
    return cut_evenly(L, ctx, "split", axis, size, length, size == 0 ? 1 : divide_up(size, length));
  }
  lua_Unsigned count = lua_rawlen(L, 2);
  lua_newtable(L);
  int64_t start = 0;
  for (lua_Unsigned i = 0; i < count; i++) {
    lua_rawgeti(L, 2, (lua_Integer)i + 1);
    int64_t length = lheed_integer(L, lua_gettop(L), "split", "a size");
    lua_pop(L, 1);
    if (length < 0 || length > size - start)
      lheed_error(L, "split: size[%I] is %I; it must be from 0 to %I, the rest of dimension %d",
                  (LUAI_UACINT)i + 1, (LUAI_UACINT)length, (LUAI_UACINT)(size - start), axis + 1);
    add_piece(L, ctx, "split", axis, start, length, (lua_Integer)i + 1, "SplitWithSizesBackward0");
    start += length;
  }
  if (start != size)
    lheed_error(L, "split: the sizes add up to %I; dimension %d has %I element%s", (LUAI_UACINT)start,
                axis + 1, (LUAI_UACINT)size, HEED__S(size));
  return lheed_return(L, 1);
}

/* chunk(x, chunks, dim = 1): fewer pieces if equal ones end before. */
static int op_chunk(lua_State *L) {
  static const char *const names[] = {"chunks", "dim", NULL};
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "chunk", 2, names);
  int axis = 0;
  int64_t size = read_axis(L, ctx, "chunk", &axis), chunks = lheed_integer(L, 2, "chunk", "chunks");
  if (chunks < 1) lheed_error(L, "chunk: chunks is %I; it must be at least 1", (LUAI_UACINT)chunks);
  int64_t length = divide_up(size, chunks);
  return cut_evenly(L, ctx, "chunk", axis, size, length, size == 0 ? chunks : divide_up(size, length));
}

/* ---- Selection ---- */

/* masked_select(x, mask) */
static int op_masked_select(lua_State *L) {
  lheed_arguments(L, "masked_select", 2);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "masked_select", "x");
  const heed_tensor *mask = lheed_tensor(L, 2, "masked_select", "mask");
  LHEED_TRY(L, heed_masked_select(lheed_get(L)->context, x, mask, out));
  return lheed_return(L, 1);
}

/* pack(x, lengths), unpack(x, lengths, n) */
static int op_pack(lua_State *L) {
  lheed_arguments(L, "pack", 2);
  lheed_indices(L, 2, "pack", "lengths", false);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "pack", "x");
  LHEED_TRY(L, heed_pack(lheed_get(L)->context, x, lheed_tensor(L, 2, "pack", "lengths"), out));
  return lheed_return(L, 1);
}

static int op_unpack(lua_State *L) {
  static const char *const names[] = {"lengths", "n", NULL};
  lheed_options(L, "unpack", 2, names);
  lheed_indices(L, 2, "unpack", "lengths", false);
  const int64_t n = lheed_opt_integer(L, 3, "unpack", "n", 0);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "unpack", "x");
  if (n == 0 && !lua_isnoneornil(L, 3) && heed_tensor_numel(x) > 0) /* in C, 0 is the default */
    lheed_error(L, "unpack: n is 0; it must be at least 1, or nil for the largest length");
  LHEED_TRY(L, heed_unpack(lheed_get(L)->context, x, lheed_tensor(L, 2, "unpack", "lengths"), n, out));
  return lheed_return(L, 1);
}

/* repeat_interleave(x, repeats, dim): without dim x is flattened first. repeats: a number, or one for each
 * slice in a table or a tensor. */
static int op_repeat_interleave(lua_State *L) {
  static const char *const names[] = {"repeats", "dim", NULL};
  lheed_options(L, "repeat_interleave", 2, names);
  heed_tensor **out = lheed_push_tensor(L);
  int dim = lheed_opt_dim(L, 3, "repeat_interleave");
  if (lua_type(L, 2) == LUA_TTABLE || lheed_test(L, 2, &lheed_tensor_type)) {
    lheed_indices(L, 2, "repeat_interleave", "repeats", false);
    const heed_tensor *each = lheed_tensor(L, 2, "repeat_interleave", "repeats");
    const heed_tensor *x = lheed_tensor(L, 1, "repeat_interleave", "x");
    LHEED_TRY(L, heed_repeat_interleave_each(lheed_get(L)->context, x, each, dim, out));
    return lheed_return(L, 1);
  }
  int64_t repeats = lheed_integer(L, 2, "repeat_interleave", "repeats");
  const heed_tensor *x = lheed_tensor(L, 1, "repeat_interleave", "x");
  LHEED_TRY(L, heed_repeat_interleave(lheed_get(L)->context, x, repeats, dim, out));
  return lheed_return(L, 1);
}

void lheed_open_views(lua_State *L) {
  static const luaL_Reg functions[] = {
#define OP_SIZED(name) {#name, op_##name},
#include "../ops/ops.def"
      {"flip", op_flip},
      {"permute", op_permute},
      {"transpose", op_transpose},
      {"swapaxes", op_transpose},
      {"swapdims", op_transpose},
      {"broadcast_to", op_expand},
      {"t", op_t},
      {"narrow", op_narrow},
      {"select", op_select},
      {"unsqueeze", op_unsqueeze},
      {"squeeze", op_squeeze},
      {"diagonal", op_diagonal},
      {"unfold", op_unfold},
      {"flatten", op_flatten},
      {"cat", op_cat},
      {"concat", op_cat},
      {"concatenate", op_cat},
      {"stack", op_stack},
      {"split", op_split},
      {"chunk", op_chunk},
      {"masked_select", op_masked_select},
      {"repeat_interleave", op_repeat_interleave},
      {"pack", op_pack},
      {"unpack", op_unpack},
      {NULL, NULL},
  };
  lheed_add_methods(L, functions, false);
}
