/* Shared by the files of the command. Include after defining _XOPEN_SOURCE. */
#ifndef CLI_H
#define CLI_H

#include <signal.h>
#include <stdbool.h>

#include "report.h"

/* ---- interrupt.c ---- */

/** Prepares a new state for Ctrl-C. */
void cli_open_interrupts(lua_State *L);
/** To be called when heed was opened in the state: Ctrl-C cancels its calls. */
void cli_heed_opened(lua_State *L);

typedef enum cli_result { CLI_DONE, CLI_FAILED, CLI_INTERRUPTED } cli_result;

/** Calls the function below `arguments` values on the stack. Leaves the results; or prints the error with a
 * traceback, or that Ctrl-C interrupted it, on stderr. */
cli_result cli_call(lua_State *L, int arguments, int results);

/** Installs a signal handler; stores the previous one in *before, if given. */
void cli_handle(int number, void (*handler)(int), int flags, struct sigaction *before);

/* ---- prompt.c ---- */

/** Whether the prompt runs. */
extern bool cli_at_prompt;
/** Reads and runs chunks until the input ends. */
void cli_prompt(lua_State *L);

#endif
