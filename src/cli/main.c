/* The command `heed`: a Lua interpreter with the library built in. */
#define _XOPEN_SOURCE 700 /* POSIX 2008, and realpath on every system */

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../heed.h"
#include "cli.h"

static const char usage[] =
    "usage: heed [options] [script [arguments]]\n"
    "  -e CODE  run CODE before the script\n"
    "  -i       give a prompt afterwards\n"
    "  -v       print the version\n"
    "  -h       print this help\n"
    "  -        read the script from standard input\n"
    "  --       end of the options\n"
    "Without a script, -e or -v: a prompt on a terminal, else standard input is run.\n";

/* ---- Signals ---- */

/* If the reader of the output has closed it, as in `heed … | head -1`, that is not an error. A write to
 * another pipe, such as one of io.popen, fails. */
static void on_broken_pipe(int number) {
  (void)number;
  struct pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  if (poll(&output, 1, 0) == 1 && (output.revents & POLLERR)) _exit(EXIT_SUCCESS);
}

/* At exit: a broken pipe must not change the exit code any more. */
static void ignore_broken_pipe(void) {
  cli_handle(SIGPIPE, SIG_IGN, 0, NULL);
}

/* ---- The library ---- */

/* A searcher of `require`: opens the library at the first name that belongs to it, so that a script that does
 * not use it starts as quickly as in lua. */
static int search_heed(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  if (strncmp(name, "heed", 4) != 0 || (name[4] != '\0' && name[4] != '.')) return 0;
  if (lheed_push_preload(L) != LUA_TTABLE) return 0;
  lua_pushcfunction(L, luaopen_heed); /* adds its modules to package.preload */
  lua_call(L, 0, 0);
  cli_heed_opened(L);
  if (lua_getfield(L, -1, name) != LUA_TFUNCTION) return 0;
  lua_pushliteral(L, ":heed:");
  return 2;
}

static int open_core(lua_State *L) {
  const int results = luaopen_heed_core(L);
  cli_heed_opened(L);
  return results;
}

/* The path of the running program, with symbolic links resolved, to be freed; NULL if it is not found. */
static char *find_executable(const char *name) {
  char *path = realpath("/proc/self/exe", NULL);
  if (path) return path;
  if (strchr(name, '/')) return realpath(name, NULL);
  const char *folders = getenv("PATH");
  while (folders && *folders) {
    size_t length = strcspn(folders, ":");
    char *candidate = malloc(length + strlen(name) + 2);
    if (!candidate) return NULL;
    memcpy(candidate, folders, length);
    candidate[length] = '/';
    strcpy(candidate + length + 1, name);
    if (access(candidate, X_OK) == 0) path = realpath(candidate, NULL);
    free(candidate);
    if (path) return path;
    folders += length + (folders[length] == ':');
  }
  return NULL;
}

/* Adds ../lua, relative to the directory of the executable, to package.path, and the directory itself, where
 * heed_mpi.so is built, to package.cpath. */
static void add_own_folder(lua_State *L, const char *name) {
  char *executable = find_executable(name);
  if (!executable) return;
  *strrchr(executable, '/') = '\0'; /* an absolute path */
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "path");
  lua_pushfstring(L, "%s;%s/../lua/?.lua;%s/../lua/?/init.lua", lua_tostring(L, -1), executable, executable);
  lua_setfield(L, -3, "path");
  lua_pop(L, 1);
  lua_getfield(L, -1, "cpath");
  lua_pushfstring(L, "%s;%s/?.so", lua_tostring(L, -1), executable);
  free(executable);
  lua_setfield(L, -3, "cpath");
  lua_pop(L, 2);
}

static void open_libraries(lua_State *L, const char *name) {
  luaL_openlibs(L);
  cli_open_interrupts(L);
  lheed_push_preload(L);
  lua_pushcfunction(L, open_core);
  lua_setfield(L, -2, "heed.core");
  lua_getglobal(L, "package");
  lua_getfield(L, -1, LHEED_SEARCHERS);
  for (int i = (int)lua_rawlen(L, -1); i >= 2; i--) { /* after the searcher of package.preload */
    lua_rawgeti(L, -1, i);
    lua_rawseti(L, -2, i + 1);
  }
  lua_pushcfunction(L, search_heed);
  lua_rawseti(L, -2, 2);
  lua_pop(L, 3);
  add_own_folder(L, name);
}

/* ---- The command line ---- */

typedef struct command {
  int script; /* its index in argv; argc if there is none */
  bool code, prompt, version, help;
} command;

/* Returns the invalid option, or NULL. */
static const char *read_options(int argc, char **argv, command *out) {
  command c = {0};
  int i = 1;
  for (; i < argc && argv[i][0] == '-' && argv[i][1] != '\0'; i++) {
    const char *option = argv[i];
    if (strcmp(option, "--") == 0) {
      i++;
      break;
    }
    if (strcmp(option, "--help") == 0) {
      c.help = true;
      continue;
    }
    if (option[1] == 'e') {
      c.code = true;
      if (option[2] == '\0' && ++i >= argc) return option;
      continue;
    }
    if (option[2] != '\0') return option;
    switch (option[1]) {
    case 'i': c.prompt = true; break;
    case 'v': c.version = true; break;
    case 'h': c.help = true; break;
    default: return option;
    }
  }
  c.script = i;
  *out = c;
  return NULL;
}

/* The global `arg`: the script at 0, its arguments from 1 on, the options before it at negative indices. */
static void set_arg(lua_State *L, int argc, char **argv, int script) {
  if (script == argc) script = 0;
  lua_createtable(L, argc, 1);
  for (int i = 0; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i - script);
  }
  lua_setglobal(L, "arg");
}

/* Runs the chunk that was loaded, or reports the error of loading it. */
static cli_result run_loaded(lua_State *L, int status, int arguments) {
  if (status != LUA_OK) {
    cli_report_invalid(L);
    return CLI_FAILED;
  }
  lua_insert(L, -1 - arguments);
  return cli_call(L, arguments, 0);
}

/* The code of -e has heed and nn as globals, and the prompt; a script does not. */
static const char add_globals[] = "heed = heed or require 'heed'; nn = nn or heed.nn";
static const char remove_globals[] =
    "local h = require 'heed'; if heed == h then heed = nil end; if nn == h.nn then nn = nil end";

static cli_result run_text(lua_State *L, const char *code, const char *name) {
  return run_loaded(L, luaL_loadbuffer(L, code, strlen(code), name), 0);
}

/* Runs the code of each -e, in order. */
static cli_result run_codes(lua_State *L, char **argv, int end) {
  cli_result result = CLI_DONE;
  for (int i = 1; i < end && strcmp(argv[i], "--") != 0 && result == CLI_DONE; i++) {
    if (argv[i][1] != 'e') continue;
    const char *code = argv[i][2] ? argv[i] + 2 : argv[++i];
    result = run_text(L, code, "=(command line)");
  }
  return result;
}

/* Runs the script with the arguments in `arg`, which code of -e may have changed; "-" or NULL: standard
 * input. */
static cli_result run_script(lua_State *L, const char *name) {
  int count = 0;
  if (lua_getglobal(L, "arg") == LUA_TTABLE) {
    count = (int)lua_rawlen(L, -1);
    luaL_checkstack(L, count + 3, "too many arguments to the script");
    for (int i = 1; i <= count; i++) lua_rawgeti(L, -i, i);
  }
  lua_remove(L, -1 - count);
  bool standard_input = !name || strcmp(name, "-") == 0;
  return run_loaded(L, luaL_loadfile(L, standard_input ? NULL : name), count);
}

static void print_version(void) {
  puts("heed " HEED_VERSION "  " LHEED_LUA_NAME);
}

/* The exit code after Ctrl-C, as in shells: 128 + SIGINT. */
#define EXIT_INTERRUPTED 130

static int exit_code_of(cli_result result) {
  switch (result) {
  case CLI_DONE: return EXIT_SUCCESS;
  case CLI_INTERRUPTED: return EXIT_INTERRUPTED;
  default: return EXIT_FAILURE;
  }
}

/* Runs what the options say; returns the exit code. */
static int run_command(lua_State *L, int argc, char **argv) {
  command c;
  const char *wrong = read_options(argc, argv, &c);
  if (wrong) {
    bool known = strcmp(wrong, "-e") == 0;
    fprintf(stderr, known ? "heed: '%s' needs code\n%s" : "heed: unrecognized option '%s'\n%s", wrong, usage);
    return EXIT_FAILURE;
  }
  if (c.help) {
    fputs(usage, stdout);
    return EXIT_SUCCESS;
  }
  bool script = c.script < argc, terminal = isatty(STDIN_FILENO) != 0;
  bool only_version = c.version && !script && !c.code && !c.prompt;
  bool prompt = c.prompt || (!script && !c.code && !c.version && terminal);
  if (c.version || (prompt && terminal)) print_version();
  if (only_version) return EXIT_SUCCESS;
  open_libraries(L, argv[0]);
  set_arg(L, argc, argv, c.script);
  if (c.code) run_text(L, add_globals, "=heed");
  cli_result result = run_codes(L, argv, c.script);
  if (result == CLI_DONE && (script || (!c.code && !prompt))) {
    if (c.code) run_text(L, remove_globals, "=heed");
    result = run_script(L, script ? argv[c.script] : NULL);
  }
  if (!prompt) return exit_code_of(result);
  run_text(L, add_globals, "=heed");
  cli_prompt(L); /* after an error, too, to inspect the state */
  return EXIT_SUCCESS;
}

/* All of main that may raise: argc and argv are on the stack, the exit code is the result. The registry tells
 * it to finalizers, too: heed_mpi ends all ranks of a job if the script of one has failed. */
static int run(lua_State *L) {
  lua_pushinteger(L, run_command(L, (int)lua_tointeger(L, 1), lua_touserdata(L, 2)));
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, "heed.exit_code");
  return 1;
}

int main(int argc, char **argv) {
  lua_State *L = luaL_newstate();
  if (!L || argc < 1) {
    fputs("heed: not enough memory to start\n", stderr);
    return EXIT_FAILURE;
  }
  cli_handle(SIGPIPE, on_broken_pipe, SA_RESTART, NULL);
  atexit(ignore_broken_pipe);
  lua_pushcfunction(L, run);
  lua_pushinteger(L, argc);
  lua_pushlightuserdata(L, argv);
  int status = lua_pcall(L, 2, 1, 0);
  int code = status == LUA_OK ? (int)lua_tointeger(L, -1) : EXIT_FAILURE;
  if (status != LUA_OK) cli_report(L);
  lua_close(L);
  return code;
}
