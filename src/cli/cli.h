/* Shared by the files of the command. Include after defining _XOPEN_SOURCE. */
#ifndef CLI_H
#define CLI_H

#include <signal.h>
#include <stdbool.h>

#include "../binding/lheed.h"

/** Calls the function below `arguments` values on the stack. Ctrl-C raises "interrupted!". Leaves the results
 * and returns true, or prints the error with a traceback on stderr and returns false. */
bool cli_call(lua_State *L, int arguments, int results);
/** Pops the error on top of the stack and prints it on stderr. */
void cli_report(lua_State *L);

/** Installs a signal handler; stores the previous one in *before, if given. */
void cli_handle(int number, void (*handler)(int), int flags, struct sigaction *before);

/** Reads and runs chunks until the input ends. */
void cli_prompt(lua_State *L);

#endif
