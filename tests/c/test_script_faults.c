/* Whole scripts with a failing allocator: each of tests/work_loads.lua with every allocation failing, of
 * Lua's and of heed's, which have one allocator here. After each failure the error is of memory, nothing is
 * leaked and the state works. */
#include "support.h"

#include <stdio.h>

#include "../../src/binding/compat.h"

typedef struct lua_memory {
  int64_t blocks, calls;
  int64_t fail_from, fail_to; /* the calls that fail, counted from 1; 0: none */
} lua_memory;

static void *count_and_allocate(void *user, void *block, size_t old_bytes, size_t bytes) {
  lua_memory *memory = user;
  if (block == NULL) old_bytes = 0; /* Lua then passes the kind of object instead */
  if (bytes == 0) {
    memory->blocks -= block != NULL;
    free(block);
    return NULL;
  }
  if (bytes > old_bytes && ++memory->calls >= memory->fail_from && memory->calls <= memory->fail_to)
    return NULL;
  void *moved = realloc(block, bytes);
  memory->blocks += block == NULL && moved != NULL;
  return moved;
}

/* Lua may lack the memory to call a finalizer; what the object held then stays until the state closes. 5.4
 * and later report it as a warning. */
static int64_t lost_finalizers;
#if LUA_VERSION_NUM >= 504
static void on_warning(void *user, const char *message, int continues) {
  (void)user;
  (void)continues;
  lost_finalizers += strcmp(message, "__gc") == 0;
}
#endif

static void run(lua_State *L, const char *code) {
  if (luaL_dostring(L, code) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
}

static int open_everything(lua_State *L) {
  luaL_openlibs(L);
  luaL_requiref(L, "heed", luaopen_heed, 1);
#if LUA_VERSION_NUM >= 504
  lua_setwarnf(L, on_warning, NULL);
#endif
  return 0;
}

/* Bytes of tensors and other objects of heed that are reachable. */
static size_t memory_in_use(lua_State *L) {
  lua_settop(L, 0);
  run(L, "for _ = 1, 3 do collectgarbage() end"); /* finalizers run in the cycle after */
  return heed_memory_in_use(heed_lua_context(L));
}

/* Makes the call of a row, undisturbed, and calls it while the allocations from `from` to `to` fail. Returns
 * whether it succeeded. */
static bool survives(lua_State *L, lua_memory *memory, int row, int64_t from, int64_t to) {
  char code[100];
  snprintf(code, sizeof code, "return require('tests.work_loads')[%d].make()", row);
  run(L, code);
  memory->calls = 0;
  memory->fail_from = from;
  memory->fail_to = to;
  const int status = lua_pcall(L, 0, 0, 0);
  memory->fail_from = memory->fail_to = 0;
  const char *message = status == LUA_OK ? NULL : lua_tostring(L, -1);
  if (status != LUA_OK && (message == NULL || strstr(message, "memory") == NULL))
    fail_msg("allocation %lld of row %d: %s", (long long)from, row, message);
  return status == LUA_OK;
}

enum { REPORTS_LOSSES = LUA_VERSION_NUM >= 504 };

/* The numbers of allocations grow faster than this, so that each script has about as many. */
static int64_t next_allocation(int64_t n) {
  return n + 1 + nightly(0, (int)(n / 8));
}

static void every_allocation_of_every_script_may_fail(void **state) {
  (void)state;
  lua_memory memory = {.blocks = 0};
  lua_State *L = lua_newstate(count_and_allocate, &memory);
  assert_non_null(L);
  lua_pushcfunction(L, open_everything);
  assert_int_equal(lua_pcall(L, 0, 0, 0), LUA_OK);
  run(L, "if jit then jit.off() end"); /* leaving compiled code without memory crashes LuaJIT 2.1 itself */
  run(L, "package.path = './?.lua;' .. package.path return #require('tests.work_loads')");
  const int rows = (int)lua_tointeger(L, -1);
  int64_t failures = 0, attempts = 0;
  for (int row = 1; row <= rows; row++) {
    for (int i = 0; i < 2; i++) assert_true(survives(L, &memory, row, 0, 0)); /* loads what it needs */
    size_t before = memory_in_use(L);
    for (int single = 0; single < 2; single++) {
      int64_t n = 1, tried, made;
      do {
        const int64_t lost = lost_finalizers;
        const bool fine = survives(L, &memory, row, n, single ? n : INT64_MAX);
        made = memory.calls;
        attempts += made >= n;
        failures += !fine;
        const size_t after = memory_in_use(L);
        if (REPORTS_LOSSES && lost_finalizers == lost && after > before)
          fail_msg("allocation %lld of row %d: %lld bytes are lost", (long long)n, row,
                   (long long)(after - before));
        before = after;
        tried = n;
        n = next_allocation(n);
      } while (made >= tried);
    }
    assert_true(survives(L, &memory, row, 0, 0));
  }
  lua_close(L);
  assert_int_equal(memory.blocks, 0);
  print_message("%lld failing allocations in %d scripts, %lld of which Lua or heed made up for\n",
                (long long)attempts, rows, (long long)(attempts - failures));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_of_every_script_may_fail)};
  return cmocka_run_group_tests_name("script faults", tests, NULL, NULL);
}
