/* A C module beside heed's own: it reaches tensors by heed_lua_tensor, and returns new ones by
 * heed_lua_push_tensor. It uses heed.h and lua.h alone. */
#include "support.h"

#include "../../src/binding/compat.h"

/* ---- The module ---- */

static int check(lua_State *L, heed_context *ctx, heed_status status) {
  return status == HEED_OK ? 0 : luaL_error(L, "%s", heed_message(ctx));
}

static int negate(lua_State *L) {
  heed_context *ctx = heed_lua_context(L);
  heed_tensor **y = heed_lua_push_tensor(L);
  const heed_tensor *x = heed_lua_tensor(L, 1);
  if (x == NULL) return luaL_error(L, "negate: x is not a tensor");
  check(L, ctx, heed_neg(ctx, x, y));
  return 1;
}

static int is_tensor(lua_State *L) {
  const heed_tensor *x = heed_lua_tensor(L, 1);
  assert_ptr_equal(heed_lua_tensor(L, -lua_gettop(L)), x);
  lua_pushboolean(L, x != NULL);
  return 1;
}

/* Adds 1 to the float32 elements of a contiguous tensor, as a collective writes its result. */
static int increment(lua_State *L) {
  heed_tensor *x = heed_lua_tensor(L, 1);
  float *data = heed_tensor_data(x);
  for (int64_t i = 0; i < heed_tensor_numel(x); i++) data[i] += 1;
  lua_settop(L, 1);
  return 1;
}

static int empty(lua_State *L) {
  heed_lua_push_tensor(L);
  return 1;
}

static int open_module(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"negate", negate}, {"is_tensor", is_tensor}, {"increment", increment}, {"empty", empty}};
  lua_newtable(L);
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    lua_pushcfunction(L, functions[i].func);
    lua_setfield(L, -2, functions[i].name);
  }
  lua_setglobal(L, "beside");
  return 0;
}

/* ---- Tests ---- */

static int open_heed(lua_State *L) {
  luaL_requiref(L, "heed", luaopen_heed, 1);
  return 0;
}

static void call(lua_State *L, lua_CFunction function) {
  lua_pushcfunction(L, function);
  if (lua_pcall(L, 0, 0, 0) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
}

static lua_State *open_state(void) {
  lua_State *L = luaL_newstate();
  assert_non_null(L);
  luaL_openlibs(L);
  call(L, open_heed);
  call(L, open_module);
  return L;
}

static void run(lua_State *L, const char *code) {
  if (luaL_dostring(L, code) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
  lua_settop(L, 0);
}

static void a_module_reads_and_returns_tensors(void **state) {
  (void)state;
  lua_State *L = open_state();
  run(L, "local y = beside.negate(heed.tensor {1, -2, 3})\n"
         "assert(y:tolist()[2] == 2 and y:sum():item() == -2)\n"
         "assert(beside.increment(y) == y and y:sum():item() == 1)\n"
         "local p = heed.nn.Parameter(heed.ones {2})\n"
         "assert(beside.negate(p):sum():item() == -2)");
  lua_close(L);
}

static void other_values_are_no_tensors(void **state) {
  (void)state;
  lua_State *L = open_state();
  run(L, "local x = heed.ones {2}\n"
         "assert(beside.is_tensor(x))\n"
         "for _, value in ipairs {1, 'text', {}, print, io.stdout, true, heed.nn.Linear(2, 2),\n"
         "                        heed.Generator(1), coroutine.create(function() end)} do\n"
         "  assert(not beside.is_tensor(value))\n"
         "end\n"
         "assert(not beside.is_tensor(nil, x))\n"
         "x:release()\n"
         "assert(not beside.is_tensor(x))\n"
         "local ok, message = pcall(beside.negate, x)\n"
         "assert(not ok and message:find 'negate: x is not a tensor')\n"
         "assert(not beside.is_tensor(beside.empty()))");
  assert_null(heed_lua_tensor(NULL, 1));
  lua_close(L);
}

static void a_failed_call_leaves_an_empty_result(void **state) {
  (void)state;
  lua_State *L = open_state();
  run(L, "local ok, message = pcall(beside.negate, heed.tensor {true})\n"
         "assert(not ok and message:find '^neg: ', message)\n"
         "local ok, message = pcall(heed.neg, beside.empty())\n"
         "assert(not ok and message:find 'released', message)\n"
         "collectgarbage()");
  lua_close(L);
}

static void the_collector_keeps_up_with_dropped_results(void **state) {
  (void)state;
  lua_State *L = open_state();
  run(L, "local x = heed.zeros {262144}\n"
         "for i = 1, 400 do beside.negate(x) end\n"
         "assert(heed.info().memory_peak < 100 * 2 ^ 20, heed.info().memory_peak)");
  lua_close(L);
}

static void without_the_library_there_is_an_error(void **state) {
  (void)state;
  lua_State *L = luaL_newstate();
  assert_non_null(L);
  lua_pushcfunction(L, empty);
  assert_int_not_equal(lua_pcall(L, 0, 0, 0), LUA_OK);
  assert_string_equal(lua_tostring(L, -1), "heed_lua_push_tensor: heed is not open in this Lua state");
  lua_pushinteger(L, 1);
  assert_null(heed_lua_tensor(L, -1));
  lua_close(L);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_module_reads_and_returns_tensors),
      cmocka_unit_test(other_values_are_no_tensors),
      cmocka_unit_test(a_failed_call_leaves_an_empty_result),
      cmocka_unit_test(the_collector_keeps_up_with_dropped_results),
      cmocka_unit_test(without_the_library_there_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
