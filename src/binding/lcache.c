/* heed.Cache, which mha:new_cache returns: the keys and values of the tokens so far. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "../io/io.h"
#include "lmodule.h"

static const char methods_key = 0; /* in the registry: the methods by name */

static void release_cache(void *object) {
  heed_kv_cache_free(object);
}

const lheed_type lheed_cache_type = {"Cache", "cache", release_cache, NULL};

static heed_kv_cache *cache_argument(lua_State *L, const char *function) {
  heed_kv_cache *cache = lheed_opt_cache(L, 1, function, "self");
  if (!cache) lheed_error(L, "%s: the cache is missing; call it as cache:%s(…)", function, function);
  return cache;
}

heed_kv_cache *lheed_opt_cache(lua_State *L, int idx, const char *function, const char *name) {
  if (lua_isnoneornil(L, idx)) return NULL;
  lheed_box *box = lheed_test(L, idx, &lheed_cache_type);
  if (!box || !box->object) lheed_bad_argument(L, idx, function, name, "a heed.Cache");
  return box->object;
}

static bool is_cache_dtype(lua_State *L, int idx) {
  static const char *const names[] = {"float32", "bfloat16", "float16", "int8", "int4"};
  if (lua_type(L, idx) != LUA_TSTRING)
    return lua_isnil(L, idx) || lua_iscfunction(L, idx); /* or heed.float */
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(lua_tostring(L, idx), names[i]) == 0) return true;
  return false;
}

/* mha:new_cache{batch = 1, capacity =, dtype = "float32", prefix = cache} */
static int new_cache(lua_State *L) {
  static const char function[] = "new_cache";
  static const char *const names[] = {"batch", "capacity", "dtype", "prefix", NULL};
  enum { SELF = 1, BATCH, CAPACITY, DTYPE, PREFIX };
  lheed_begin(L);
  lheed_options(L, function, BATCH, names);
  heed_kv_cache_config config;
  heed_kv_cache_config_init(&config, sizeof config);
  config.batch = lheed_opt_integer(L, BATCH, function, "batch", 1);
  if (config.batch < 1)
    lheed_error(L, "%s: batch is %I; it must be at least 1", function, (LUAI_UACINT)config.batch);
  config.capacity = lheed_opt_integer(L, CAPACITY, function, "capacity", 0);
  if (!lua_isnil(L, CAPACITY) && config.capacity < 1)
    lheed_error(L, "%s: capacity is %I; it must be at least 1", function, (LUAI_UACINT)config.capacity);
  const heed_kv_cache *like = lheed_opt_cache(L, PREFIX, function, "prefix");
  if (!is_cache_dtype(L, DTYPE)) {
    const char *what = lheed_push_what(L, DTYPE), *hint = lheed_push_hint(L, "dtype", DTYPE, 0, 0);
    return lheed_error(L, "%s: dtype is %s; it must be 'float32', 'bfloat16', 'float16', 'int8' or 'int4'%s",
                       function, what, hint);
  }
  if (lua_type(L, DTYPE) == LUA_TSTRING && strcmp(lua_tostring(L, DTYPE), "int4") == 0) {
    config.dtype = HEED_INT8;
    config.bits = 4;
  } else {
    config.dtype = lheed_opt_dtype(L, DTYPE, function, like ? heed_kv_cache_dtype(like) : HEED_FLOAT32);
    if (lua_isnil(L, DTYPE) && like && heed_kv_cache_bits(like) == 4) config.bits = 4;
  }
  void **box = lheed_push_box(L, &lheed_cache_type);
  heed_module *self = lheed_test_module(L, SELF);
  if (!self) lheed_bad_argument(L, SELF, function, "self", "a MultiHeadAttention");
  config.prefix = lheed_opt_cache(L, PREFIX, function, "prefix");
  heed_kv_cache *cache = NULL;
  LHEED_TRY(L, heed_kv_cache_new(self, &config, &cache));
  *box = cache;
  return lheed_return(L, 1);
}

/* ---- Methods ---- */

/* The number of tokens at slot 2, or, with *lengths, a list with one for each item, as in lheed_indices. */
static heed_kv_cache *read_cut(lua_State *L, int64_t *n, const heed_tensor **lengths) {
  lheed_begin(L);
  lheed_arguments(L, "truncate", 2);
  const bool each = lua_type(L, 2) == LUA_TTABLE || lheed_test(L, 2, &lheed_tensor_type);
  if (each) lheed_indices(L, 2, "truncate", "lengths", false);
  heed_kv_cache *cache = cache_argument(L, "truncate");
  *lengths = each ? lheed_tensor(L, 2, "truncate", "lengths") : NULL;
  *n = each ? 0 : lheed_integer(L, 2, "truncate", "n");
  return cache;
}

/* cache:truncate(n or lengths) → cache */
static int truncate_to(lua_State *L) {
  int64_t n;
  const heed_tensor *lengths;
  heed_kv_cache *self = read_cut(L, &n, &lengths);
  LHEED_TRY(L, lengths ? heed_kv_cache_truncate_items(self, lengths) : heed_kv_cache_truncate(self, n));
  lua_settop(L, 1);
  return lheed_return(L, 1);
}

/* check_truncate(cache, n or lengths): raises what truncate would raise. For lua/heed/models. */
static int check_truncate(lua_State *L) {
  int64_t n;
  const heed_tensor *lengths;
  const heed_kv_cache *cache = read_cut(L, &n, &lengths);
  LHEED_TRY(L, heed__kv_cache_check_cut(cache, n, lengths));
  return lheed_return(L, 0);
}

/* cache:reorder(indices) → cache; indices as in lheed_indices */
static int reorder(lua_State *L) {
  lheed_begin(L);
  lheed_arguments(L, "reorder", 2);
  lheed_indices(L, 2, "reorder", "indices", false);
  heed_kv_cache *cache = cache_argument(L, "reorder");
  LHEED_TRY(L, heed_kv_cache_reorder(cache, lheed_tensor(L, 2, "reorder", "indices")));
  lua_settop(L, 1);
  return lheed_return(L, 1);
}

static int clone_cache(lua_State *L) {
  lheed_begin(L);
  lheed_arguments(L, "clone", 1);
  void **box = lheed_push_box(L, &lheed_cache_type);
  heed_kv_cache *cache = cache_argument(L, "clone"), *made = NULL;
  LHEED_TRY(L, heed_kv_cache_clone(cache, &made));
  *box = made;
  return lheed_return(L, 1);
}

/* cache:save(path) → true; or nil, message */
static int save_cache(lua_State *L) {
  heed_status status;
  lheed_begin(L);
  lheed_arguments(L, "save", 2);
  heed_kv_cache *cache = cache_argument(L, "save");
  const char *path = lheed_path(L, 2, "save");
  LHEED_TRY_FILE(L, &status, heed_kv_cache_save(cache, path));
  if (status != HEED_OK) return lheed_file_failed(L, status);
  lua_pushboolean(L, true);
  return lheed_return(L, 1);
}

/* mha:load_cache(path) → cache; or nil, message */
static int load_cache(lua_State *L) {
  heed_status status;
  lheed_begin(L);
  lheed_arguments(L, "load_cache", 2);
  const char *path = lheed_path(L, 2, "load_cache");
  void **box = lheed_push_box(L, &lheed_cache_type);
  heed_module *self = lheed_test_module(L, 1);
  if (!self) lheed_bad_argument(L, 1, "load_cache", "self", "a MultiHeadAttention");
  heed_kv_cache *cache = NULL;
  LHEED_TRY_FILE(L, &status, heed_kv_cache_load(self, path, &cache));
  if (status != HEED_OK) return lheed_file_failed(L, status);
  *box = cache;
  return lheed_return(L, 1);
}

/* ---- For lua/heed/models ---- */

/* sample(x, scale or nil): some elements of a parameter as a float32 tensor */
static int sample_parameter(lua_State *L) {
  const int64_t size = HEED__SAMPLE;
  lheed_begin(L);
  lheed_arguments(L, "sample", 2);
  heed_tensor **y = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "sample", "x"),
                    *scale = lheed_opt_tensor(L, 2, "sample", "scale");
  if (scale) LHEED_TRY(L, heed__check_int8_weight(lheed_get(L)->context, "sample", x, scale));
  LHEED_TRY(L, heed_tensor_new(lheed_get(L)->context, HEED_FLOAT32, 1, &size, y));
  heed__sample_parameter(x, scale, (float *)heed_tensor_data(*y));
  return lheed_return(L, 1);
}

/* The samples at slot 3 as a matrix, or NULL. */
static const heed_tensor *samples_argument(lua_State *L, const char *function) {
  const heed_tensor *x = lheed_opt_tensor(L, 3, function, "samples");
  if (x && (x->dtype != HEED_FLOAT32 || x->ndim != 2 || x->shape[1] != HEED__SAMPLE ||
            !heed_tensor_is_contiguous(x)))
    lheed_bad_argument(L, 3, function, "samples", "a list of what sample gave, joined by stack");
  return x;
}

/* save_caches(path, caches, samples): those of the layers of a model → true; or nil, message */
static int save_caches(lua_State *L) {
  heed_status status;
  lheed_begin(L);
  lheed_arguments(L, "save", 3);
  const char *path = lheed_path(L, 1, "save");
  if (lua_type(L, 2) != LUA_TTABLE) lheed_bad_argument(L, 2, "save", "caches", "a list of caches");
  const lua_Unsigned count = lheed_own_list(L, 2, "save");
  heed_kv_cache **caches = lua_newuserdatauv(L, heed__array_bytes(count, sizeof *caches) + 1, 0);
  for (lua_Unsigned i = 0; i < count; i++) {
    lheed_own_element(L, 2, i);
    caches[i] = lheed_opt_cache(L, lua_gettop(L), "save", "cache");
    if (!caches[i]) lheed_bad_argument(L, lua_gettop(L), "save", "cache", "a heed.Cache");
    lua_pop(L, 1);
  }
  const heed_tensor *samples = samples_argument(L, "save");
  LHEED_TRY_FILE(L, &status,
                 heed__kv_caches_save(lheed_get(L)->context, path, (int64_t)count, caches, samples));
  if (status != HEED_OK) return lheed_file_failed(L, status);
  lua_pushboolean(L, true);
  return lheed_return(L, 1);
}

/* load_caches(path, modules, samples) → a list of caches; or nil, message */
static int load_caches(lua_State *L) {
  heed_status status;
  lheed_begin(L);
  lheed_arguments(L, "load_cache", 3);
  const char *path = lheed_path(L, 1, "load_cache");
  if (lua_type(L, 2) != LUA_TTABLE) lheed_bad_argument(L, 2, "load_cache", "modules", "a list of modules");
  const lua_Unsigned count = lheed_own_list(L, 2, "load_cache");
  const size_t bytes = heed__array_bytes(count, sizeof(void *)) + 1;
  heed_module **modules = lua_newuserdatauv(L, bytes, 0);
  heed_kv_cache **caches = lua_newuserdatauv(L, bytes, 0);
  lua_createtable(L, (int)count, 0);
  const int list = lua_gettop(L);
  for (lua_Unsigned i = 0; i < count; i++) {
    lheed_push_box(L, &lheed_cache_type);
    lua_rawseti(L, list, (lua_Integer)i + 1);
  }
  for (lua_Unsigned i = 0; i < count; i++) { /* from here on nothing allocates */
    lheed_own_element(L, 2, i);
    modules[i] = lheed_test_module(L, lua_gettop(L));
    if (!modules[i])
      return lheed_bad_argument(L, lua_gettop(L), "load_cache", "module", "a MultiHeadAttention");
    lua_pop(L, 1);
  }
  const heed_tensor *samples = samples_argument(L, "load_cache");
  LHEED_TRY_FILE(L, &status,
                 heed__kv_caches_load(lheed_get(L)->context, path, (int64_t)count, modules, samples, caches));
  if (status != HEED_OK) return lheed_file_failed(L, status);
  for (lua_Unsigned i = 0; i < count; i++) {
    lua_rawgeti(L, list, (lua_Integer)i + 1);
    ((lheed_box *)lheed_test(L, lua_gettop(L), &lheed_cache_type))->object = caches[i];
    lua_pop(L, 1);
  }
  lua_settop(L, list);
  return lheed_return(L, 1);
}

/* Frees the memory at once; does nothing the second time. `local c <close>` calls it, too. */
static int cache_release(lua_State *L) {
  lheed_box *box = lheed_test(L, 1, &lheed_cache_type);
  if (!box) return lheed_bad_argument(L, 1, "release", "self", "a heed.Cache");
  if (lheed_get(L)->collecting)
    return lheed_error(L, "release: the cache may be in use: a finalizer is running during an operation");
  heed_kv_cache_free(box->object);
  box->object = NULL;
  return 0;
}

/* reset_cache(cache, length, n): truncates the cache to `length` tokens; true if it could be truncated again
 * after n more tokens. For lua/heed/models. */
static int reset_cache(lua_State *L) {
  heed_kv_cache *cache = cache_argument(L, "reset_cache");
  const int64_t length = lheed_integer(L, 2, "reset_cache", "length");
  const int64_t n = lheed_integer(L, 3, "reset_cache", "n");
  if (length < heed_kv_cache_length(cache)) LHEED_TRY(L, heed_kv_cache_truncate(cache, length));
  lua_pushboolean(L, length == 0 || cache->window_left < 0 || n <= heed_kv_cache_headroom(cache));
  return 1;
}

/* ---- Fields ---- */

static const char *dtype_of(const heed_kv_cache *cache) {
  return heed_kv_cache_bits(cache) == 4 ? "int4" : heed_dtype_name(heed_kv_cache_dtype(cache));
}

/* Without a bound: math.huge. */
static void push_capacity(lua_State *L, const heed_kv_cache *cache) {
  const int64_t capacity = heed_kv_cache_capacity(cache);
  if (capacity > 0) {
    lua_pushinteger(L, (lua_Integer)capacity);
  } else {
    lua_pushnumber(L, (lua_Number)HUGE_VAL);
  }
}

static void push_lengths(lua_State *L, const heed_kv_cache *cache) {
  const int64_t batch = heed_kv_cache_batch(cache);
  lua_createtable(L, batch < INT_MAX ? (int)batch : 0, 0);
  for (int64_t i = 0; i < batch; i++) {
    const int64_t *lengths =
        heed_kv_cache_lengths(cache_argument(L, "__index")); /* finalizers may release it */
    lua_pushinteger(L, (lua_Integer)lengths[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

static int cache_index(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &methods_key);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, -2) != LUA_TNIL) return 1;
  const heed_kv_cache *cache = cache_argument(L, "__index");
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
  if (strcmp(name, "length") == 0) {
    lua_pushinteger(L, (lua_Integer)heed_kv_cache_length(cache));
  } else if (strcmp(name, "lengths") == 0) {
    push_lengths(L, cache);
  } else if (strcmp(name, "capacity") == 0) {
    push_capacity(L, cache);
  } else if (strcmp(name, "batch") == 0) {
    lua_pushinteger(L, (lua_Integer)heed_kv_cache_batch(cache));
  } else if (strcmp(name, "dtype") == 0) {
    lua_pushstring(L, dtype_of(cache));
  } else {
    return lheed_error(
        L,
        "a heed.Cache has no field %s; it has length, lengths, capacity, batch, dtype, truncate, "
        "reorder, clone, save and release",
        lheed_push_key(L, 2));
  }
  return 1;
}

static int cache_newindex(lua_State *L) {
  cache_argument(L, "__newindex");
  return lheed_error(L, "a heed.Cache has no field that can be set, such as %s", lheed_push_key(L, 2));
}

static int cache_tostring(lua_State *L) {
  lheed_box *box = lheed_test(L, 1, &lheed_cache_type);
  if (!box) return lheed_bad_argument(L, 1, "tostring", "self", "a heed.Cache");
  if (!box->object) {
    lua_pushliteral(L, "heed.Cache(released)");
    return 1;
  }
  const heed_kv_cache *cache = box->object;
  const lua_Integer length = (lua_Integer)heed_kv_cache_length(cache),
                    batch = (lua_Integer)heed_kv_cache_batch(cache);
  const char *dtype = dtype_of(cache);
  push_capacity(L, cache);
  lua_pushfstring(L, "heed.Cache(length=%I, capacity=%s, batch=%I, dtype=%s)", (LUAI_UACINT)length,
                  lua_tostring(L, -1), (LUAI_UACINT)batch, dtype);
  return 1;
}

static const luaL_Reg cache_methods[] = {{"truncate", truncate_to},  {"reorder", reorder},
                                         {"clone", clone_cache},     {"save", save_cache},
                                         {"release", cache_release}, {NULL, NULL}};

void lheed_open_cache(lua_State *L) {
  static const luaL_Reg metamethods[] = {{"__index", cache_index},
                                         {"__newindex", cache_newindex},
                                         {"__tostring", cache_tostring},
                                         {"__close", cache_release},
                                         {NULL, NULL}};
  static const luaL_Reg module_methods[] = {
      {"new_cache", new_cache}, {"load_cache", load_cache}, {NULL, NULL}};
  static const luaL_Reg primitives[] = {{"reset_cache", reset_cache}, {"check_truncate", check_truncate},
                                        {"save_caches", save_caches}, {"load_caches", load_caches},
                                        {"sample", sample_parameter}, {NULL, NULL}};
  lheed_new_type(L, &lheed_cache_type, metamethods);
  lheed_add_module_methods(L, module_methods);
  lheed_add(L, "modules", primitives);
  lua_createtable(L, 0, 4);
  lheed_setfuncs(L, cache_methods);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &methods_key);
}
