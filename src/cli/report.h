/* Errors as the command prints them; the playground (scripts/playground/host.c) prints them so, too. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "../binding/lheed.h"

/** A message handler for lua_pcall: converts an error to text, with what to write instead where that is
 * known, and a traceback unless it is an object with __tostring. */
int cli_add_traceback(lua_State *L);
/** Pops the error on top of the stack and prints it on stderr. */
void cli_report(lua_State *L);
/** The same for the message of a chunk that does not compile, with what to write instead where that is known.
 */
void cli_report_invalid(lua_State *L);

#endif
