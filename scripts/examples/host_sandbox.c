/* A host that runs untrusted scripts with limits of memory and time, without files, and with functions only
 * that stay within the Lua state. It prints the result or the error of each script, then runs the next one.
 *
 *   host_sandbox [-m MIB] [-s SECONDS] SCRIPT...        by default 64 MiB and 2 seconds
 *
 * The exit code is 0 if all scripts succeeded. The memory of a state, including its tensors, comes from one
 * allocator that counts. A hook checks the time while Lua code runs, and heed checks its deadline while it
 * computes. Lua's own library functions check nothing, and a script can keep them busy (a pattern with many
 * stars, table.insert with an enormous __len): each script therefore has a process of its own, which the
 * system ends a second later. For Lua 5.4. */
#define _XOPEN_SOURCE 700

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "heed.h"

typedef struct sandbox {
  size_t used, most; /* bytes */
  double seconds;
  double until; /* on heed_clock */
} sandbox;

/* ---- Memory ---- */

static void *allocate(void *user, void *block, size_t old_bytes, size_t bytes) {
  sandbox *s = user;
  if (block == NULL) old_bytes = 0; /* it is the kind of the new object */
  if (bytes == 0) {
    s->used -= old_bytes;
    free(block);
    return NULL;
  }
  if (bytes > old_bytes && bytes - old_bytes > s->most - s->used) return NULL;
  void *moved = realloc(block, bytes);
  if (moved == NULL) return NULL;
  s->used = s->used - old_bytes + bytes;
  return moved;
}

/* ---- Time ---- */

static sandbox *sandbox_of(lua_State *L) {
  void *user;
  lua_getallocf(L, &user);
  return user;
}

/* Called every thousand Lua instructions. After the time limit, each further line and call raises this error,
 * so that a script that catches it cannot continue. */
static void look_at_the_clock(lua_State *L, lua_Debug *at) {
  (void)at;
  if (heed_clock() > sandbox_of(L)->until) {
    lua_sethook(L, look_at_the_clock, LUA_MASKCOUNT | LUA_MASKLINE | LUA_MASKCALL, 1);
    luaL_error(L, "time limit exceeded");
  }
}

/* Replaces coroutine.create: its coroutines have the hook too. */
static int create_coroutine(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_State *new = lua_newthread(L);
  lua_sethook(new, look_at_the_clock, LUA_MASKCOUNT, 1000);
  lua_pushvalue(L, 1);
  lua_xmove(L, new, 1);
  return 1;
}

/* ---- The functions that scripts have ---- */

static void set_limits(lua_State *L) {
  const sandbox *s = sandbox_of(L);
  lua_getglobal(L, "heed");
  lua_pushnil(L);
  lua_setfield(L, -2, "load");
  lua_pushnil(L);
  lua_setfield(L, -2, "save");
  if (lua_getfield(L, -1, "limit") == LUA_TFUNCTION) {
    lua_createtable(L, 0, 4);
    lua_pushinteger(L, (lua_Integer)s->most);
    lua_setfield(L, -2, "memory");
    lua_pushinteger(L, 1);
    lua_setfield(L, -2, "threads");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "files");
    lua_pushboolean(L, true);
    lua_setfield(L, -2, "final");
    lua_call(L, 1, 0);
  }
  lua_settop(L, 0);
}

/* Without io, os, debug and package; without functions that read files, load binary chunks (which can crash
 * Lua), or create coroutines without the hook. */
static void open_libraries(lua_State *L) {
  static const luaL_Reg libraries[] = {{"_G", luaopen_base},
                                       {LUA_TABLIBNAME, luaopen_table},
                                       {LUA_STRLIBNAME, luaopen_string},
                                       {LUA_MATHLIBNAME, luaopen_math},
                                       {LUA_UTF8LIBNAME, luaopen_utf8},
                                       {LUA_COLIBNAME, luaopen_coroutine},
                                       {"heed", luaopen_heed}};
  static const char *const removed[] = {"dofile", "loadfile", "load", "collectgarbage", "print", "warn"};
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
    luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
    lua_pop(L, 1);
  }
  for (size_t i = 0; i < sizeof removed / sizeof *removed; i++) {
    lua_pushnil(L);
    lua_setglobal(L, removed[i]);
  }
  lua_getglobal(L, "string");
  lua_pushnil(L);
  lua_setfield(L, -2, "dump");
  set_limits(L);
  lua_getglobal(L, "coroutine");
  lua_pushcfunction(L, create_coroutine);
  lua_setfield(L, -2, "create");
  lua_pushnil(L);
  lua_setfield(L, -2, "wrap"); /* its coroutines have no hook */
}

/* ---- Running ---- */

/* Everything runs in a protected call: Lua may run out of memory anywhere. */
static int run_protected(lua_State *L) {
  const char *path = lua_touserdata(L, 1);
  lua_settop(L, 0);
  open_libraries(L);
  lua_settop(L, 0);
  if (luaL_loadfilex(L, path, "t") != LUA_OK) return lua_error(L);
  heed_context *ctx = heed_lua_context(L);
  sandbox_of(L)->until = heed_clock() + sandbox_of(L)->seconds;
  if (heed_set_deadline(ctx, sandbox_of(L)->seconds) != HEED_OK)
    return luaL_error(L, "%s", heed_message(ctx));
  lua_sethook(L, look_at_the_clock, LUA_MASKCOUNT, 1000);
  lua_call(L, 0, 1);
  luaL_tolstring(L, 1, NULL); /* may call the script's __tostring */
  return 1;
}

static int run_script(const char *path, size_t bytes, double seconds) {
  sandbox s = {.most = bytes, .seconds = seconds};
  lua_State *L = lua_newstate(allocate, &s);
  if (L == NULL) {
    printf("%s: the memory limit is too small for Lua itself\n", path);
    return 1;
  }
  int status = LUA_ERRMEM;
  if (lua_checkstack(L, 2)) {
    lua_pushcfunction(L, run_protected);
    lua_pushlightuserdata(L, (void *)path);
    status = lua_pcall(L, 1, 1, 0);
  }
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "(an error without a message)";
  printf("%s: %s%.2000s\n", path, status == LUA_OK ? "" : "failed: ", text);
  fflush(stdout); /* before finalizers of the script run, with the same limits */
  lua_close(L);
  return status != LUA_OK;
}

/* Runs the script in a process of its own; returns whether it succeeded. */
static int run_apart(const char *path, size_t bytes, double seconds) {
  int status = 0;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const rlim_t most = (rlim_t)seconds + 1; /* whole seconds of processor time */
    setrlimit(RLIMIT_CPU, &(struct rlimit){most, most});
    _exit(run_script(path, bytes, seconds));
  }
  if (child < 0 || waitpid(child, &status, 0) != child) {
    printf("%s: failed: no process available\n", path);
    return 0;
  }
  if (WIFSIGNALED(status)) printf("%s: ended by the system, signal %d\n", path, WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int count, char **arguments) {
  double mib = 64, seconds = 2;
  int option;
  while ((option = getopt(count, arguments, "m:s:")) != -1) {
    if (option == 'm') mib = atof(optarg);
    if (option == 's') seconds = atof(optarg);
    if (option == '?' || !(mib >= 1 && mib < 1 << 20) || !(seconds > 0 && seconds < 1e6)) optind = count;
  }
  if (optind >= count) {
    fputs("host_sandbox [-m MIB] [-s SECONDS] SCRIPT...\n", stderr);
    return 2;
  }
  int failed = 0;
  for (int i = optind; i < count; i++) failed += !run_apart(arguments[i], (size_t)(mib * (1 << 20)), seconds);
  return failed > 0;
}
