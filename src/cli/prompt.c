/* The prompt of `heed -i`: line editing by libedit, chunks of several lines, values printed as in a notebook.
 */
#define _XOPEN_SOURCE 700

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <histedit.h>

#include "cli.h"

#define HISTORY_LINES 1000

bool cli_at_prompt;

/* ---- Lines ---- */

/* The source of lines: the editor, or standard input if that is not a terminal (editor is NULL). */
typedef struct reader {
  EditLine *editor;
  History *history;
  char *history_file; /* NULL: the history is not kept */
  const char *prompt;
  char *line; /* of getline */
  size_t capacity;
} reader;

typedef enum outcome { LINE, CANCELLED, END } outcome;

static char *show_prompt(EditLine *editor) {
  reader *r = NULL;
  el_get(editor, EL_CLIENTDATA, &r);
  return (char *)r->prompt; /* libedit only reads it */
}

/* A handler that only interrupts the reading of a line. */
static void cancel_line(int number) {
  (void)number;
}

/* $XDG_STATE_HOME/heed_history or ~/.heed_history, to be freed; NULL if neither folder is known. */
static char *find_history_file(void) {
  const char *folder = getenv("XDG_STATE_HOME"), *name = "/heed_history";
  if (!folder || !*folder) {
    folder = getenv("HOME");
    name = "/.heed_history";
  }
  if (!folder || !*folder) return NULL;
  size_t size = strlen(folder) + strlen(name) + 1;
  char *path = malloc(size);
  if (path) snprintf(path, size, "%s%s", folder, name);
  return path;
}

static void open_reader(reader *r) {
  if (!isatty(STDIN_FILENO)) return;
  setlocale(LC_CTYPE, ""); /* for letters beyond ASCII; the decimal point stays */
  r->editor = el_init("heed", stdin, stdout, stderr);
  if (!r->editor) return;
  el_set(r->editor, EL_CLIENTDATA, r);
  el_set(r->editor, EL_PROMPT, show_prompt);
  el_set(r->editor, EL_SIGNAL, 1); /* restores the terminal's modes and size after signals */
  el_set(r->editor, EL_EDITOR, "emacs");
  el_set(r->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
  r->history = history_init();
  if (r->history) {
    HistEvent event;
    history(r->history, &event, H_SETSIZE, HISTORY_LINES);
    history(r->history, &event, H_SETUNIQUE, 1);
    r->history_file = find_history_file();
    if (r->history_file) history(r->history, &event, H_LOAD, r->history_file);
    el_set(r->editor, EL_HIST, history, r->history);
  }
  el_source(r->editor, NULL); /* ~/.editrc takes precedence */
  cli_handle(SIGINT, cancel_line, 0, NULL);
}

static void close_reader(reader *r) {
  if (r->editor) {
    el_end(r->editor);
    cli_handle(SIGINT, SIG_DFL, 0, NULL);
  }
  if (r->history) history_end(r->history);
  free(r->history_file);
  free(r->line);
}

/* Adds the line to the history, and writes it to disk, since os.exit may end the process at any time. Errors
 * of writing are ignored. */
static void remember(reader *r, const char *line) {
  if (!r->history || line[strspn(line, " \t\r\n")] == '\0') return;
  HistEvent event;
  history(r->history, &event, H_ENTER, line);
  if (r->history_file) history(r->history, &event, H_SAVE, r->history_file);
}

/* Pushes the next line, without its line ending. */
static outcome read_line(lua_State *L, reader *r, const char *prompt) {
  const char *line;
  r->prompt = prompt;
  errno = 0;
  if (r->editor) {
    int length = 0;
    line = el_gets(r->editor, &length);
    if (line && length > 0)
      remember(r, line);
    else
      line = NULL;
  } else {
    line = getline(&r->line, &r->capacity, stdin) >= 0 ? r->line : NULL;
  }
  if (!line) {
    if (r->editor) putchar('\n');
    if (errno != EINTR) return END;
    clearerr(stdin);
    return CANCELLED;
  }
  lua_pushlstring(L, line, strcspn(line, "\r\n"));
  return LINE;
}

/* ---- Chunks ---- */

/* Replaces the text on top of the stack by the compiled function, or by an error message. Returns false, and
 * leaves the text, if more lines are needed, unless there are none (`complete`). An expression is compiled
 * with "return" in front, so that it has values. */
static bool compile(lua_State *L, bool complete, int *status) {
  static const char *const forms[] = {"return %s", "%s"};
  static const char mark[] =
      "<eof>"; /* the parser's messages about incomplete text end with it (5.1: in quotes) */
  bool incomplete = false;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    const char *text = lua_pushfstring(L, forms[i], lua_tostring(L, -1));
    *status = luaL_loadbuffer(L, text, strlen(text), "=stdin");
    lua_remove(L, -2);
    if (*status == LUA_OK) break;
    const char *message = lua_tostring(L, -1), *found = strstr(message, mark);
    if (found && strspn(found + sizeof mark - 1, "'") == strlen(found + sizeof mark - 1)) incomplete = true;
    if (i == 0 || (incomplete && !complete)) lua_pop(L, 1);
    if (incomplete && !complete)
      return false; /* LuaJIT skips a first line that begins with #, such as "#{" */
  }
  lua_remove(L, -2);
  return true;
}

/* Pushes the function of the next chunk, or an error message (see *status). */
static outcome read_chunk(lua_State *L, reader *r, int *status) {
  outcome read = read_line(L, r, "> ");
  if (read != LINE) return read;
  const char *line = lua_tostring(L, -1);
  if (line[0] == '=') { /* as in older Luas */
    lua_pushfstring(L, "return %s", line + 1);
    lua_remove(L, -2);
  }
  while (!compile(L, read == END, status)) {
    read = read_line(L, r, ">> ");
    if (read == CANCELLED) return CANCELLED;
    if (read == END) continue;
    lua_pushliteral(L, "\n");
    lua_insert(L, -2);
    lua_concat(L, 3);
  }
  return LINE;
}

/* ---- Values ---- */

/* Prints a string as a Lua literal, in one line, with letters beyond ASCII unchanged. */
static void print_quoted(const char *text, size_t length) {
  putchar('"');
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c == '"' || c == '\\')
      printf("\\%c", c);
    else if (c == '\n')
      fputs("\\n", stdout);
    else if (c == '\t')
      fputs("\\t", stdout);
    else if (iscntrl(c) && c < 128)
      printf("\\%03d", c);
    else
      putchar(c);
  }
  putchar('"');
}

/* Prints the values of an expression, one on each line; a single nil is not printed, since calls made for
 * their effect return it. */
static int print_values(lua_State *L) {
  int count = lua_gettop(L);
  if (count == 1 && lua_isnil(L, 1)) return 0;
  for (int i = 1; i <= count; i++) {
    size_t length;
    const char *text = luaL_tolstring(L, i, &length);
    if (lua_type(L, i) == LUA_TSTRING)
      print_quoted(text, length);
    else
      fwrite(text, 1, length, stdout);
    putchar('\n');
    lua_pop(L, 1);
  }
  return 0;
}

static void run_chunk(lua_State *L) {
  int base = lua_gettop(L);
  if (cli_call(L, 0, LUA_MULTRET) != CLI_DONE) return;
  int count = lua_gettop(L) - base + 1;
  if (count > 0 && lua_checkstack(L, 3)) {
    lua_pushcfunction(L, print_values);
    lua_insert(L, base);
    cli_call(L, count, 0);
  }
}

void cli_prompt(lua_State *L) {
  cli_at_prompt = true;
  reader r = {0};
  open_reader(&r);
  if (r.editor) puts("heed and nn are here as globals; Ctrl-C cancels, Ctrl-D ends.");
  int base = lua_gettop(L), status = LUA_OK;
  for (outcome read; (read = read_chunk(L, &r, &status)) != END; lua_settop(L, base)) {
    if (read == CANCELLED) continue;
    if (status == LUA_OK)
      run_chunk(L);
    else
      cli_report(L);
    fflush(stdout);
  }
  lua_settop(L, base);
  close_reader(&r);
}
