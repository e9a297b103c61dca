/* Included before Lua's files: what they use of the C library and wasi-libc lacks. (wasi.c) */
#ifndef PLAYGROUND_WASI_H
#define PLAYGROUND_WASI_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

FILE *tmpfile(void);
char *tmpnam(char *name);
int system(const char *command);

#ifdef __cplusplus
}
#endif

#define L_tmpnam 32

#endif
