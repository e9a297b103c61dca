/* The lines of the prompt: libedit with history and completion on a terminal, otherwise standard input. */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <histedit.h>

#include "reader.h"

#define HISTORY_ENTRIES 1000

struct cli_reader {
  EditLine *editor; /* NULL: standard input is not a terminal */
  History *history;
  char *history_file; /* NULL: the history is not kept */
  const char *prompt;
  const char *before; /* the earlier lines of the chunk */
  lua_State *L;
  int library; /* stack index of heed.prompt */
  char *line;  /* of getline */
  size_t capacity;
};

static char *show_prompt(EditLine *editor) {
  cli_reader *r = NULL;
  el_get(editor, EL_CLIENTDATA, &r);
  return (char *)r->prompt; /* libedit only reads it */
}

/* A handler that only interrupts the reading of a line. */
static void cancel_line(int number) {
  (void)number;
}

/* ---- History ---- */

static char *join(const char *folder, const char *name) {
  const size_t size = strlen(folder) + strlen(name) + 1;
  char *path = malloc(size);
  if (path) snprintf(path, size, "%s%s", folder, name);
  return path;
}

static const char *environment_folder(const char *name) {
  const char *folder = getenv(name);
  return folder && folder[0] == '/' ? folder : NULL; /* relative paths are invalid */
}

/* Makes the folders of a path, where they are missing; errors show when the file is written. */
static void make_folders(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(path, 0700);
    *slash = '/';
  }
}

/* $XDG_STATE_HOME/heed/history or ~/.local/state/heed/history, to be freed; NULL if neither folder is known.
 * The file of earlier versions is moved there. */
static char *open_history_file(History *h) {
  const char *state = environment_folder("XDG_STATE_HOME"), *home = environment_folder("HOME");
  if (!state && !home) return NULL;
  char *path = state ? join(state, "/heed/history") : join(home, "/.local/state/heed/history");
  char *old = state ? join(state, "/heed_history") : join(home, "/.heed_history");
  HistEvent event;
  if (path && old) {
    make_folders(path);
    if (access(path, F_OK) != 0 && rename(old, path) != 0) history(h, &event, H_LOAD, old);
    history(h, &event, H_LOAD, path);
  }
  free(old);
  return path;
}

void cli_remember(cli_reader *r, const char *chunk) {
  if (!r->history || chunk[strspn(chunk, " \t\r\n")] == '\0') return;
  HistEvent event;
  history(r->history, &event, H_ENTER, chunk);
  if (r->history_file) history(r->history, &event, H_SAVE, r->history_file);
}

/* ---- Completion ---- */

static int terminal_width(void) {
  struct winsize size;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* Pushes what heed.prompt says about the text before the cursor: what to insert, what to show. */
static bool push_completion(const cli_reader *r, const LineInfo *line) {
  lua_State *L = r->L;
  if (!lua_checkstack(L, 8)) return false;
  lua_getfield(L, r->library, "complete");
  lua_pushstring(L, r->before ? r->before : "");
  lua_pushliteral(L, "\n");
  lua_pushlstring(L, line->buffer, (size_t)(line->cursor - line->buffer));
  lua_concat(L, 3);
  lua_pushinteger(L, terminal_width());
  return lua_pcall(L, 2, 2, 0) == LUA_OK;
}

static unsigned char complete_line(EditLine *editor, int key) {
  (void)key;
  cli_reader *r = NULL;
  el_get(editor, EL_CLIENTDATA, &r);
  const LineInfo *line = el_line(editor);
  const char *text = line->buffer;
  while (text < line->cursor && (*text == ' ' || *text == '\t')) text++;
  if (text == line->cursor) return el_insertstr(editor, "  ") == 0 ? CC_REFRESH : CC_ERROR;
  const int base = lua_gettop(r->L);
  unsigned char result = CC_ERROR;
  if (push_completion(r, line)) {
    const char *inserted = lua_tostring(r->L, base + 1), *shown = lua_tostring(r->L, base + 2);
    if (inserted && *inserted && el_insertstr(editor, inserted) == 0) result = CC_REFRESH;
    if (shown) {
      printf("\n%s\n", shown);
      result = CC_REDISPLAY;
    }
  }
  lua_settop(r->L, base);
  return result;
}

/* ---- Reading ---- */

cli_reader *cli_reader_new(lua_State *L, int library) {
  cli_reader *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  r->L = L;
  r->library = library;
  cli_handle(SIGINT, cancel_line, 0, NULL);
  if (!isatty(STDIN_FILENO)) return r;
  setlocale(LC_CTYPE, ""); /* for letters beyond ASCII; the decimal point stays */
  r->editor = el_init("heed", stdin, stdout, stderr);
  if (!r->editor) return r;
  el_set(r->editor, EL_CLIENTDATA, r);
  el_set(r->editor, EL_PROMPT, show_prompt);
  el_set(r->editor, EL_SIGNAL, 1); /* restores the terminal's modes and size after signals */
  el_set(r->editor, EL_EDITOR, "emacs");
  el_set(r->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
  el_set(r->editor, EL_ADDFN, "heed-complete", "Completes names", complete_line);
  el_set(r->editor, EL_BIND, "^I", "heed-complete", NULL);
  r->history = history_init();
  if (r->history) {
    HistEvent event;
    history(r->history, &event, H_SETSIZE, HISTORY_ENTRIES);
    history(r->history, &event, H_SETUNIQUE, 1);
    r->history_file = open_history_file(r->history);
    el_set(r->editor, EL_HIST, history, r->history);
  }
  el_source(r->editor, NULL); /* ~/.editrc takes precedence */
  return r;
}

void cli_reader_free(cli_reader *r) {
  if (!r) return;
  if (r->editor) el_end(r->editor);
  cli_handle(SIGINT, SIG_DFL, 0, NULL);
  if (r->history) history_end(r->history);
  free(r->history_file);
  free(r->line);
  free(r);
}

bool cli_reader_edits(const cli_reader *r) {
  return r->editor != NULL;
}

cli_line cli_read_line(cli_reader *r, const char *prompt, const char *before) {
  const char *line;
  int length = 0;
  r->prompt = prompt;
  r->before = before;
  errno = 0;
  if (r->editor) {
    line = el_gets(r->editor, &length);
    if (length <= 0) line = NULL;
  } else {
    line = getline(&r->line, &r->capacity, stdin) >= 0 ? r->line : NULL;
  }
  r->before = NULL;
  if (!line) {
    if (r->editor) putchar('\n');
    if (errno != EINTR) return CLI_END;
    clearerr(stdin);
    return CLI_CANCELLED;
  }
  size_t size = strlen(line); /* an entry of the history may have several lines */
  while (size > 0 && (line[size - 1] == '\n' || line[size - 1] == '\r')) size--;
  lua_pushlstring(r->L, line, size);
  return CLI_LINE;
}
