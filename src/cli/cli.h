/* What the files of the command share. Included after _XOPEN_SOURCE is set. */
#ifndef CLI_H
#define CLI_H

#include <signal.h>
#include <stdbool.h>

#include "../binding/lheed.h"

/** Calls the function below `arguments` values with a traceback on errors and Ctrl-C raising "interrupted!".
 * Leaves the results and returns true, or prints the error on stderr and returns false. */
bool cli_call(lua_State *L, int arguments, int results);
/** Prints the error on top of the stack on stderr, and pops it. */
void cli_report(lua_State *L);

/** Installs a signal's handler; what was there before goes to *before, if given. */
void cli_handle(int number, void (*handler)(int), int flags, struct sigaction *before);

/** Reads and runs chunks until the input ends. */
void cli_prompt(lua_State *L);

#endif
