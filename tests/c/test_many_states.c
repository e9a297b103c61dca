/* Eight Lua states on eight threads, all of which do everything at once: operations, attention, gradients,
 * caches, tokenizers, files. make tsan runs this under the thread sanitizer. */
#include "support.h"

#include <pthread.h>
#include <stdio.h>

#include "../../src/binding/compat.h"

enum { THREADS = 8 };

/* Runs each fourth of the calls of tests/work_loads.lua (all in make nightly), the first of them number
 * `first`, with two threads of its own each, and lists the units of work of all: they depend on nothing else.
 */
static const char lesson[] = "local first, step = ...\n"
                             "package.path = './?.lua;' .. package.path\n"
                             "local loads = require 'tests.work_loads'\n"
                             "heed.set_num_threads(2)\n"
                             "local found = {}\n"
                             "for i = first, #loads, step do\n"
                             "  local units, message = loads.units(loads[i].make())\n"
                             "  found[#found + 1] = ('%s %.0f'):format(loads[i].name, units)\n"
                             "  if message then error(message, 0) end\n"
                             "end\n"
                             "return table.concat(found, '\\n')\n";

static int open_everything(lua_State *L) {
  luaL_openlibs(L);
  luaL_requiref(L, "heed", luaopen_heed, 1);
  return 0;
}

/* Returns the list; NULL, with a message, after an error. */
static void *learn(void *argument) {
  const int number = *(const int *)argument, step = nightly(1, 4);
  lua_State *L = luaL_newstate();
  char *text = NULL;
  if (L == NULL) return NULL;
  lua_pushcfunction(L, open_everything);
  if (lua_pcall(L, 0, 0, 0) == LUA_OK && luaL_loadstring(L, lesson) == LUA_OK) {
    lua_pushinteger(L, 1 + number % step);
    lua_pushinteger(L, step);
    const bool fine = lua_pcall(L, 2, 1, 0) == LUA_OK;
    size_t length;
    const char *result = lua_tolstring(L, -1, &length);
    if (fine) text = malloc(length + 1);
    if (text != NULL) memcpy(text, result, length + 1);
    if (!fine) print_message("%s\n", result);
  }
  lua_close(L);
  return text;
}

static void eight_states_on_eight_threads_do_everything_at_once(void **state) {
  (void)state;
  pthread_t thread[THREADS];
  int number[THREADS];
  char *alone[THREADS];
  const int kinds = nightly(1, 4);
  for (int i = 0; i < THREADS; i++) number[i] = i;
  for (int i = 0; i < kinds; i++) {
    alone[i] = learn(&number[i]);
    assert_non_null(alone[i]);
  }
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, learn, &number[i]), 0);
  for (int i = 0; i < THREADS; i++) {
    void *text = NULL;
    assert_int_equal(pthread_join(thread[i], &text), 0);
    assert_non_null(text);
    assert_string_equal(text, alone[i % kinds]);
    free(text);
  }
  for (int i = 0; i < kinds; i++) free(alone[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(eight_states_on_eight_threads_do_everything_at_once)};
  return cmocka_run_group_tests_name("many states", tests, NULL, NULL);
}
