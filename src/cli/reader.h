/* reader.c: the lines of the prompt. */
#ifndef CLI_READER_H
#define CLI_READER_H

#include "cli.h"

typedef struct cli_reader cli_reader;

/** Opens the editor if standard input is a terminal. `library` is the stack index of heed.prompt, for
 * completion. NULL: out of memory. */
cli_reader *cli_reader_new(lua_State *L, int library);
void cli_reader_free(cli_reader *r);
/** Whether lines are edited. */
bool cli_reader_edits(const cli_reader *r);

typedef enum cli_line { CLI_LINE, CLI_CANCELLED, CLI_END } cli_line;

/** Pushes the next line, without its line ending. `before` has the earlier lines of the chunk, or is NULL. */
cli_line cli_read_line(cli_reader *r, const char *prompt, const char *before);
/** Adds a chunk to the history, and writes that to disk, since os.exit may end the process at any time.
 * Errors of writing are ignored. */
void cli_remember(cli_reader *r, const char *chunk);

#endif
