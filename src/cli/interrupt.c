/* Ctrl-C. The handler of SIGINT cancels the running call of heed and sets a hook for Lua code. Whether a
 * chunk was interrupted is one flag, which cli_call clears at its end; a cancellation or a hook that is left
 * over has no effect. */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../core/core.h"
#include "cli.h"

/* What the handler reads: signal handlers receive no argument. */
static volatile sig_atomic_t interrupted;
static lua_State *volatile running;    /* the coroutine that runs; NULL: none */
static heed_context *volatile context; /* NULL: heed is not open */
static pthread_t lua_thread;

/* While a script holds interrupts, the first Ctrl-C is only noted (heed.interrupt). */
static volatile sig_atomic_t held, noted;

/* After the first error that a hook raises, the chunk may clean up: it has some instructions and some time,
 * in which calls of heed that compute are cancelled. Then every instruction raises, until no pcall is left.
 */
enum { GRACE_INSTRUCTIONS = 10000 };
static const double grace_seconds = 0.05, patience_seconds = 1;

static double first_at;  /* time of the first Ctrl-C */
static double raised_at; /* time of the first error; 0: none yet */
static int instructions; /* since then */

static void on_instruction(lua_State *L, lua_Debug *ar) {
  (void)ar;
  if (!interrupted) { /* left over in a coroutine */
    lua_sethook(L, NULL, 0, 0);
    return;
  }
  const double now = heed_clock();
  if (raised_at == 0 && context && !atomic_load(&context->pace.cancelled))
    raised_at = now; /* the cancelled call of heed has raised an error */
  else if (raised_at > 0)
    instructions++;
  if (raised_at > 0 && instructions < GRACE_INSTRUCTIONS && now < raised_at + grace_seconds) {
    heed_cancel(context);
    return;
  }
  if (raised_at == 0) raised_at = now;
  luaL_error(L, "interrupted");
}

/* lua_sethook is the one function of Lua that a signal handler may call, in the thread of the Lua state. */
static void set_hook(lua_State *L) {
  lua_sethook(L, on_instruction, LUA_MASKCOUNT, 1);
}

static void on_interrupt(int number) {
  const int before = errno;
  if (!pthread_equal(pthread_self(), lua_thread)) { /* a thread of another library */
    pthread_kill(lua_thread, number);
  } else if (held && !noted) {
    noted = true;
  } else if (interrupted && !cli_at_prompt && heed_clock() > first_at + patience_seconds) {
    /* a script that does not react, in a long call of Lua's string library, for example */
    cli_handle(number, SIG_DFL, 0, NULL);
    raise(number);
  } else {
    if (!interrupted) first_at = heed_clock();
    interrupted = true;
    heed_cancel(context);
    if (running) set_hook(running);
  }
  errno = before;
}

void cli_handle(int number, void (*handler)(int), int flags, struct sigaction *before) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, before);
}

/* ---- The end of the state ---- */

static int close_guard(lua_State *L) {
  (void)L;
  cli_handle(SIGINT, SIG_DFL, 0, NULL);
  running = NULL;
  context = NULL;
  return 0;
}

/* os.exit may close the state while a chunk runs; from then on Ctrl-C ends the process. Finalizers run in
 * reverse order: the guard that was made last is the first to go. */
static void add_guard(lua_State *L) {
  lua_newuserdatauv(L, 1, 0);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, close_guard);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  luaL_ref(L, LUA_REGISTRYINDEX);
}

void cli_heed_opened(lua_State *L) {
  if (context) return;
  add_guard(L);
  context = heed_lua_context(L);
}

/* ---- Coroutines ---- */

/* Calls the function at the bottom of the stack with the other values; `co` runs meanwhile. */
static int call_in(lua_State *L, lua_State *co, bool add_position) {
  running = co;
  const int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  running = L;
  if (interrupted) set_hook(L);
  if (status == LUA_OK) return lua_gettop(L);
  if (add_position && lua_type(L, -1) == LUA_TSTRING) { /* as coroutine.wrap does */
    luaL_where(L, 1);
    lua_insert(L, -2);
    lua_concat(L, 2);
  }
  return lua_error(L);
}

/* coroutine.resume and coroutine.close. Upvalue 1: the original; 2: whether it needs an argument. */
static int resume(lua_State *L) {
  lua_State *co = lua_tothread(L, 1);
  if (!co && lua_toboolean(L, lua_upvalueindex(2))) return luaL_argerror(L, 1, "coroutine expected");
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  return call_in(L, co ? co : L, false);
}

/* A function that coroutine.wrap returned. Upvalues 1 and 2: the original, its coroutine. */
static int call_wrapped(lua_State *L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  return call_in(L, lua_tothread(L, lua_upvalueindex(2)), true);
}

static int wrap(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  if (!lua_getupvalue(L, -1, 1)) return 1;
  if (!lua_tothread(L, -1)) {
    lua_pop(L, 1);
    return 1;
  }
  lua_pushcclosure(L, call_wrapped, 2);
  return 1;
}

/* Hooks belong to a coroutine, so the handler must know which one runs. */
static void track_coroutines(lua_State *L) {
  static const luaL_Reg functions[] = {{"resume", resume}, {"close", resume}, {"wrap", wrap}};
  lua_getglobal(L, "coroutine");
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (lua_getfield(L, -1, functions[i].name) != LUA_TFUNCTION) {
      lua_pop(L, 1);
      continue;
    }
    lua_pushboolean(L, functions[i].func == resume && strcmp(functions[i].name, "close") != 0);
    lua_pushcclosure(L, functions[i].func, 2);
    lua_setfield(L, -2, functions[i].name);
  }
  lua_pop(L, 1);
}

/* ---- Held interrupts: the module heed.command, for lua/heed/interrupt.lua ---- */

/* hold(): whether interrupts were held before, and Ctrl-C pressed meanwhile, which is forgotten. */
static int hold(lua_State *L) {
  const bool before = held != 0, earlier = before && noted;
  if (noted) noted = false;
  held = true;
  lua_pushboolean(L, before);
  lua_pushboolean(L, earlier);
  return 2;
}

/* resume(before, earlier): what hold returned. */
static int resume_interrupts(lua_State *L) {
  if (lua_toboolean(L, 2)) noted = true;
  held = lua_toboolean(L, 1);
  return 0;
}

/* Whether Ctrl-C was pressed since interrupts are held. */
static int pressed(lua_State *L) {
  lua_pushboolean(L, noted);
  return 1;
}

static int open_command(lua_State *L) {
  lua_createtable(L, 0, 3);
  lua_pushcfunction(L, hold);
  lua_setfield(L, -2, "hold");
  lua_pushcfunction(L, resume_interrupts);
  lua_setfield(L, -2, "resume");
  lua_pushcfunction(L, pressed);
  lua_setfield(L, -2, "pressed");
  return 1;
}

void cli_open_interrupts(lua_State *L) {
  lua_thread = pthread_self();
  add_guard(L);
  lheed_push_preload(L);
  lua_pushcfunction(L, open_command);
  lua_setfield(L, -2, "heed.command");
  lua_pop(L, 1);
  if (!LHEED_HOOKS_ARE_GLOBAL) track_coroutines(L);
}

/* ---- Calls and errors ---- */

static char position[256]; /* of the code that was interrupted: "file:line: " */

static void find_position(lua_State *L) {
  lua_Debug ar;
  for (int level = 1; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline <= 0 || lheed_is_transparent(L, ar.source, NULL)) continue;
    snprintf(position, sizeof position, "%s:%d: ", ar.short_src, ar.currentline);
    return;
  }
}

static int explain_error(lua_State *L) {
  if (!interrupted) return cli_add_traceback(L);
  find_position(L);
  return 1;
}

static void report_interrupt(void) {
  fflush(stdout);
  if (cli_at_prompt)
    fputs(isatty(STDERR_FILENO) ? "\ninterrupted\n" : "interrupted\n", stderr); /* below the terminal's ^C */
  else
    fprintf(stderr, "heed: %sinterrupted\n", position);
  fflush(stderr);
}

cli_result cli_call(lua_State *L, int arguments, int results) {
  const int base = lua_gettop(L) - arguments;
  lua_pushcfunction(L, explain_error);
  lua_insert(L, base);
  struct sigaction before;
  raised_at = 0;
  instructions = 0;
  held = noted = false;
  position[0] = '\0';
  running = L;
  cli_handle(SIGINT, on_interrupt, 0, &before); /* without SA_RESTART: io.read returns */
  const int status = lua_pcall(L, arguments, results, base);
  sigaction(SIGINT, &before, NULL);
  running = NULL;
  const bool stopped = interrupted;
  interrupted = false;
  heed_clear_cancel(context);
  if (lua_gethook(L) == on_instruction) lua_sethook(L, NULL, 0, 0);
  lua_remove(L, base);
  if (stopped) {
    lua_settop(L, base - 1);
    lua_pushfstring(L, "%sinterrupted", position);
    lua_setfield(L, LUA_REGISTRYINDEX, "heed.exit_message");
    report_interrupt();
    return CLI_INTERRUPTED;
  }
  if (status == LUA_OK) return CLI_DONE;
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, "heed.exit_message"); /* see run in main.c */
  cli_report(L);
  return CLI_FAILED;
}
