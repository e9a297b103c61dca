/* Random numbers: seeds, heed.Generator, random tensors, dropout. */
#include <string.h>

#include "../ops/ops.h"
#include "lheed.h"

/* ---- Generators ---- */

static void release_generator(void *object) {
  heed_generator_free(object);
}

const lheed_type lheed_generator_type = {"Generator", "generator", release_generator, NULL};

heed_generator *lheed_opt_generator(lua_State *L, int idx, const char *function) {
  if (lua_isnoneornil(L, idx)) return NULL;
  lheed_box *box = lheed_test(L, idx, &lheed_generator_type);
  if (!box || !box->object) lheed_bad_argument(L, idx, function, "generator", "a heed.Generator");
  return box->object;
}

static uint64_t seed_argument(lua_State *L, int idx) {
  return (uint64_t)lheed_integer(L, idx, "manual_seed", "seed");
}

static const char *const kind_names[] = {[HEED_MT19937] = "mt19937", [HEED_PHILOX] = "philox"};

/* nil: `otherwise` */
static heed_generator_kind opt_kind(lua_State *L, int idx, const char *function,
                                    heed_generator_kind otherwise) {
  if (lua_isnoneornil(L, idx)) return otherwise;
  const char *name = lua_type(L, idx) == LUA_TSTRING ? lua_tostring(L, idx) : "";
  for (int kind = HEED_MT19937; kind <= HEED_PHILOX; kind++)
    if (strcmp(name, kind_names[kind]) == 0) return (heed_generator_kind)kind;
  lheed_bad_argument(L, idx, function, "kind", "'mt19937' or 'philox'");
  return otherwise;
}

/* manual_seed(seed, {kind}): the default generator keeps its kind without one. */
static int manual_seed(lua_State *L) {
  static const char *const names[] = {"kind", NULL};
  heed_generator *g = heed_default_generator(lheed_get(L)->context);
  lheed_options(L, "manual_seed", 2, names);
  const uint64_t seed = seed_argument(L, 1);
  const heed_generator_kind kind = opt_kind(L, 2, "manual_seed", heed_generator_kind_of(g));
  if (kind == heed_generator_kind_of(g))
    heed_generator_seed(g, seed);
  else
    heed_generator_reset(g, kind, seed);
  return 0;
}

/* Generator(seed, {kind}), Generator{seed, kind} */
static int new_generator(lua_State *L) {
  static const char *const names[] = {"seed", "kind", NULL};
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "Generator", 1, names);
  const uint64_t seed = (uint64_t)lheed_opt_integer(L, 1, "Generator", "seed", HEED_DEFAULT_SEED);
  const heed_generator_kind kind = opt_kind(L, 2, "Generator", HEED_MT19937);
  void **box = lheed_push_box(L, &lheed_generator_type);
  heed_generator *g = NULL;
  LHEED_TRY(L, heed_generator_new(ctx, seed, &g));
  if (kind != HEED_MT19937) heed_generator_reset(g, kind, seed);
  *box = g;
  return 1;
}

static heed_generator *check_generator(lua_State *L, const char *function) {
  heed_generator *g = lheed_opt_generator(L, 1, function);
  if (!g) lheed_error(L, "%s: the generator is missing; call it as g:%s(…)", function, function);
  return g;
}

static int generator_seed(lua_State *L) {
  heed_generator_seed(check_generator(L, "manual_seed"), seed_argument(L, 2));
  lua_settop(L, 1);
  return 1;
}

static int generator_get_state(lua_State *L) {
  unsigned char bytes[HEED_GENERATOR_STATE_BYTES];
  heed_generator_get_state(check_generator(L, "get_state"), bytes);
  lua_pushlstring(L, (const char *)bytes, sizeof bytes);
  return 1;
}

static int generator_set_state(lua_State *L) {
  size_t count = 0;
  lheed_begin(L);
  heed_generator *g = check_generator(L, "set_state");
  if (lua_type(L, 2) != LUA_TSTRING)
    return lheed_bad_argument(L, 2, "set_state", "state", "a string that get_state gave");
  const char *bytes = lua_tolstring(L, 2, &count);
  LHEED_TRY(L, heed_generator_set_state(g, (const unsigned char *)bytes, count));
  lua_settop(L, 1);
  return 1;
}

/* Pushes a copy of the generator at 1. */
static heed_generator *push_clone(lua_State *L, const char *function) {
  void **box = lheed_push_box(L, &lheed_generator_type);
  heed_generator *made = NULL;
  LHEED_TRY(L, heed_generator_clone(check_generator(L, function), &made));
  *box = made;
  return made;
}

static int generator_kind(lua_State *L) {
  lua_pushstring(L, kind_names[heed_generator_kind_of(check_generator(L, "kind"))]);
  return 1;
}

static int generator_clone(lua_State *L) {
  lheed_begin(L);
  push_clone(L, "clone");
  return 1;
}

/* g:part{whole, first}: a copy that draws a part of a tensor */
static int generator_part(lua_State *L) {
  static const char *const names[] = {"whole", "first", NULL};
  int64_t whole[HEED_MAX_DIMS], first[HEED_MAX_DIMS];
  lheed_begin(L);
  lheed_options(L, "part", 2, names);
  for (int i = 2; i <= 3; i++)
    if (lua_type(L, i) != LUA_TTABLE)
      return lheed_bad_argument(L, i, "part", names[i - 2], "a table with a number for each dimension");
  const int ndim = lheed_shape(L, 2, 2, "part", whole), count = lheed_shape(L, 3, 3, "part", first);
  if (count != ndim)
    return lheed_error(L, "part: whole has %d dimension%s and first has %d; they must have as many", ndim,
                       HEED__S(ndim), count);
  LHEED_TRY(L, heed_generator_set_part(push_clone(L, "part"), ndim, whole, first));
  return 1;
}

static int generator_get_offset(lua_State *L) {
  lheed_begin(L);
  const heed_generator *g = check_generator(L, "get_offset");
  if (heed_generator_kind_of(g) != HEED_PHILOX)
    return lheed_error(L, "get_offset: the generator is mt19937; it must be philox");
  lua_pushinteger(L, (lua_Integer)heed_generator_offset(g));
  return 1;
}

static int generator_set_offset(lua_State *L) {
  lheed_begin(L);
  const int64_t offset = lheed_integer(L, 2, "set_offset", "offset");
  LHEED_TRY(L, heed_generator_set_offset(check_generator(L, "set_offset"), (uint64_t)offset));
  lua_settop(L, 1);
  return 1;
}

/* copy_generator(from, to): `to` gets the state of `from`; nil is the default generator. generate draws from
 * a copy, so that a call that was stopped leaves the generator unchanged, and copies the state back here,
 * where no limit applies. */
static int copy_generator(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  const heed_generator *from = heed__generator(ctx, lheed_opt_generator(L, 1, "generate"));
  heed_generator *to = heed__generator(ctx, lheed_opt_generator(L, 2, "generate"));
  const bool owned = to->owned_by_context;
  *to = *from;
  to->owned_by_context = owned;
  return 0;
}

static int generator_tostring(lua_State *L) {
  const heed_generator *g = check_generator(L, "tostring");
  if (heed_generator_kind_of(g) == HEED_PHILOX)
    lua_pushliteral(L, "heed.Generator(kind='philox')");
  else
    lua_pushliteral(L, "heed.Generator");
  return 1;
}

static int set_dropout_stream(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  const char *name = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : "";
  if (strcmp(name, "native") == 0)
    heed_set_dropout_stream(ctx, HEED_DROPOUT_NATIVE);
  else if (strcmp(name, "mkl") == 0)
    heed_set_dropout_stream(ctx, HEED_DROPOUT_MKL);
  else
    return lheed_bad_argument(L, 1, "set_dropout_stream", "stream", "'native' or 'mkl'");
  return 0;
}

/* ---- Random tensors ---- */

static const char *const draw_options[] = {"generator", "dtype", NULL};
static const char *const float_options[] = {"generator", "dtype", "requires_grad", NULL};

/* rand and randn support only float32. */
static void check_float32(lua_State *L, const char *function, heed_dtype dtype) {
  if (dtype != HEED_FLOAT32)
    lheed_error(L, "%s: dtype is '%s'; it must be 'float32'", function, heed_dtype_name(dtype));
}

/* Draws normal or uniform numbers into *out, the box on top of the stack. */
static int draw_floats(lua_State *L, const char *function, bool normal, heed_generator *g, int ndim,
                       const int64_t *shape, bool leaf, heed_tensor **out) {
  heed_context *ctx = lheed_get(L)->context;
  LHEED_TRY(L, normal ? heed__normal(ctx, function, g, 0, 1, ndim, shape, out)
                      : heed__uniform(ctx, function, g, 0, 1, ndim, shape, out));
  return lheed_return_leaf(L, leaf);
}

static int call_draw(lua_State *L, const char *function, bool normal) {
  int64_t shape[HEED_MAX_DIMS];
  int last = lheed_trailing_options(L, function, 1, float_options), top = lua_gettop(L);
  heed_generator *g = lheed_opt_generator(L, top - 2, function);
  check_float32(L, function, lheed_opt_dtype(L, top - 1, function, HEED_FLOAT32));
  const bool leaf = lheed_opt_leaf(L, top, function, HEED_FLOAT32);
  int ndim = lheed_shape(L, 1, last, function, shape);
  return draw_floats(L, function, normal, g, ndim, shape, leaf, lheed_push_tensor(L));
}

static int draw_like(lua_State *L, const char *function, bool normal) {
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, function, 2, float_options);
  const bool leaf = lheed_opt_leaf(L, 4, function, HEED_FLOAT32);
  heed_tensor **out = lheed_push_tensor(L);
  heed_generator *g = lheed_opt_generator(L, 2, function);
  const heed_tensor *x = lheed_tensor(L, 1, function, "x");
  check_float32(L, function, lheed_opt_dtype(L, 3, function, x->dtype));
  LHEED_TRY(L, heed__new_like(ctx, function, x, HEED_FLOAT32, out));
  return draw_floats(L, function, normal, g, x->ndim, x->shape, leaf, out);
}

static int rand_(lua_State *L) {
  return call_draw(L, "rand", false);
}
static int randn(lua_State *L) {
  return call_draw(L, "randn", true);
}
static int rand_like(lua_State *L) {
  return draw_like(L, "rand_like", false);
}
static int randn_like(lua_State *L) {
  return draw_like(L, "randn_like", true);
}

/* Draws integers into `drawn` and converts them to *out, both boxes on the stack, *out on top. */
static int draw_integers(lua_State *L, const char *function, heed_generator *g, int64_t low, int64_t high,
                         int ndim, const int64_t *shape, heed_dtype dtype, heed_tensor **drawn,
                         heed_tensor **out) {
  heed_context *ctx = lheed_get(L)->context;
  LHEED_TRY(L, heed__randint(ctx, function, g, low, high, ndim, shape, drawn));
  LHEED_TRY(L, heed__to(ctx, function, *drawn, dtype, out));
  return lheed_return(L, 1);
}

/* randint(low, high, shape), with the shape as numbers or a table; randint(high, shape) with low = 1 and the
 * shape as a table. */
static int randint(lua_State *L) {
  int64_t shape[HEED_MAX_DIMS];
  /* An empty table at the end looks like empty options; it is the shape of a 0-dimensional tensor. */
  bool ends_in_table = lua_gettop(L) > 0 && lua_type(L, lua_gettop(L)) == LUA_TTABLE;
  int last = lheed_trailing_options(L, "randint", 2, draw_options), top = lua_gettop(L);
  heed_generator *g = lheed_opt_generator(L, top - 1, "randint");
  heed_dtype dtype = lheed_opt_dtype(L, top, "randint", HEED_INT64);
  bool has_low = last >= 2 && lua_type(L, 2) != LUA_TTABLE;
  int sizes = has_low ? 3 : 2;
  if (last < sizes && !ends_in_table)
    return lheed_error(
        L, "randint: the shape is missing; it must be the last argument, as a table if low is left out");
  int64_t low = has_low ? lheed_integer(L, 1, "randint", "low") : 1;
  int64_t high = lheed_integer(L, sizes - 1, "randint", "high");
  int ndim = lheed_shape(L, sizes, last, "randint", shape);
  heed_tensor **drawn = lheed_push_tensor(L), **out = lheed_push_tensor(L);
  return draw_integers(L, "randint", g, low, high, ndim, shape, dtype, drawn, out);
}

/* randint_like(x, low, high) or randint_like(x, high) */
static int randint_like(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  int last = lheed_trailing_options(L, "randint_like", 2, draw_options), top = lua_gettop(L);
  heed_generator *g = lheed_opt_generator(L, top - 1, "randint_like");
  if (last > 3) return lheed_too_many(L, "randint_like", last, 3);
  int64_t low = last == 3 ? lheed_integer(L, 2, "randint_like", "low") : 1;
  int64_t high = lheed_integer(L, last == 3 ? 3 : 2, "randint_like", "high");
  heed_tensor **drawn = lheed_push_tensor(L), **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "randint_like", "x");
  heed_dtype dtype = lheed_opt_dtype(L, top, "randint_like", x->dtype);
  LHEED_TRY(L, heed__new_like(ctx, "randint_like", x, HEED_INT64, drawn));
  if (dtype != HEED_INT64) LHEED_TRY(L, heed__new_like(ctx, "randint_like", x, dtype, out));
  return draw_integers(L, "randint_like", g, low, high, x->ndim, x->shape, dtype, drawn, out);
}

static const char *const generator_option[] = {"generator", NULL};

static int randperm(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "randperm", 2, generator_option);
  int64_t n = lheed_integer(L, 1, "randperm", "n");
  heed_generator *g = lheed_opt_generator(L, 2, "randperm");
  heed_tensor **out = lheed_push_tensor(L);
  LHEED_TRY(L, heed_randperm(ctx, g, n, out));
  return lheed_return(L, 1);
}

static int bernoulli(lua_State *L) {
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "bernoulli", 2, generator_option);
  heed_tensor **out = lheed_push_tensor(L);
  heed_generator *g = lheed_opt_generator(L, 2, "bernoulli");
  LHEED_TRY(L, heed_bernoulli(ctx, g, lheed_tensor(L, 1, "bernoulli", "p"), out));
  return lheed_return(L, 1);
}

/* multinomial(weights, num_samples, replacement = false, {generator}) */
static int multinomial(lua_State *L) {
  static const char *const names[] = {"num_samples", "replacement", "generator", NULL};
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "multinomial", 2, names);
  int64_t samples = lheed_integer(L, 2, "multinomial", "num_samples");
  bool replacement = lheed_opt_boolean(L, 3, "multinomial", "replacement", false);
  heed_generator *g = lheed_opt_generator(L, 4, "multinomial");
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *weights = lheed_tensor(L, 1, "multinomial", "weights");
  LHEED_TRY(L, heed_multinomial(ctx, g, weights, samples, replacement, out));
  return lheed_return(L, 1);
}

/* ---- In place ---- */

static int uniform_(lua_State *L) {
  static const char *const names[] = {"from", "to", "generator", NULL};
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "uniform_", 2, names);
  heed_tensor *x = lheed_tensor(L, 1, "uniform_", "x");
  double from = lheed_opt_number(L, 2, "uniform_", "from", 0),
         to = lheed_opt_number(L, 3, "uniform_", "to", 1);
  heed_generator *g = lheed_opt_generator(L, 4, "uniform_");
  LHEED_TRY(L, heed__uniform(ctx, "uniform_", g, from, to, x->ndim, x->shape, &x));
  lua_settop(L, 1);
  return 1;
}

static int normal_(lua_State *L) {
  static const char *const names[] = {"mean", "std", "generator", NULL};
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "normal_", 2, names);
  heed_tensor *x = lheed_tensor(L, 1, "normal_", "x");
  double mean = lheed_opt_number(L, 2, "normal_", "mean", 0),
         std = lheed_opt_number(L, 3, "normal_", "std", 1);
  heed_generator *g = lheed_opt_generator(L, 4, "normal_");
  LHEED_TRY(L, heed__normal(ctx, "normal_", g, mean, std, x->ndim, x->shape, &x));
  lua_settop(L, 1);
  return 1;
}

/* ---- Dropout ---- */

/* dropout(x, p = 0.5, training = true, {generator}), as in torch.nn.functional */
static int call_dropout(lua_State *L) {
  static const char *const names[] = {"p", "training", "generator", NULL};
  heed_context *ctx = lheed_get(L)->context;
  lheed_options(L, "dropout", 2, names);
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "dropout", "x");
  double p = lheed_opt_number(L, 2, "dropout", "p", 0.5);
  bool training = lheed_opt_boolean(L, 3, "dropout", "training", true);
  heed_generator *g = lheed_opt_generator(L, 4, "dropout");
  LHEED_TRY(L, heed__check_probability(ctx, "dropout", "p", p));
  LHEED_TRY(L, training ? heed_dropout(ctx, g, p, x, out) : heed__tensor_from_view(ctx, "dropout", x, out));
  return lheed_return(L, 1);
}

/* ---- Opening ---- */

void lheed_open_random(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"manual_seed", manual_seed},
      {"Generator", new_generator},
      {"set_dropout_stream", set_dropout_stream},
      {"rand", rand_},
      {"randn", randn},
      {"randint", randint},
      {"randperm", randperm},
      {NULL, NULL},
  };
  static const luaL_Reg methods[] = {
      {"rand_like", rand_like}, {"randn_like", randn_like},   {"randint_like", randint_like},
      {"bernoulli", bernoulli}, {"multinomial", multinomial}, {"uniform_", uniform_},
      {"normal_", normal_},     {"dropout", call_dropout},    {NULL, NULL},
  };
  static const luaL_Reg generator_methods[] = {
      {"manual_seed", generator_seed},
      {"get_state", generator_get_state},
      {"set_state", generator_set_state},
      {"kind", generator_kind},
      {"clone", generator_clone},
      {"part", generator_part},
      {"get_offset", generator_get_offset},
      {"set_offset", generator_set_offset},
      {NULL, NULL},
  };
  static const luaL_Reg generator_metamethods[] = {{"__tostring", generator_tostring}, {NULL, NULL}};
  static const luaL_Reg primitives[] = {{"copy_generator", copy_generator}, {NULL, NULL}};
  lheed_add(L, NULL, functions);
  lheed_add_methods(L, methods, false);
  lheed_add(L, "modules", primitives);
  lheed_new_type(L, &lheed_generator_type, generator_metamethods);
  lheed_push_metatable(L, &lheed_generator_type);
  lua_createtable(L, 0, 4);
  lheed_setfuncs(L, generator_methods);
  lheed_guard(L, "heed.Generator");
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  *lheed_push_box(L, &lheed_generator_type) = heed_default_generator(lheed_find(L)->context);
  lua_setfield(L, -3, "default_generator");
}
