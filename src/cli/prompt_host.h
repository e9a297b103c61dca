/* The prompt apart from its lines: for the command, and for the playground (scripts/playground/host.c). */
#ifndef PROMPT_HOST_H
#define PROMPT_HOST_H

#include "../binding/lheed.h"

/** A function for Lua that returns heed.prompt and its module heed.prompt.host, whose field chunk_name is the
 * name of the chunks that are compiled: "=stdin". */
int cli_open_prompt(lua_State *L);
/** A function for Lua that prints its arguments, one on each line, as its first one, `text` of heed.prompt,
 * says. */
int cli_print_values(lua_State *L);

#endif
