#include "wasi.h"

#include <errno.h>

/* A name in /tmp, which the file system of runtime.js has; numbered, as there is one program. */
char *tmpnam(char *name) {
  static unsigned count;
  static char own[L_tmpnam];
  if (name == NULL) name = own;
  snprintf(name, L_tmpnam, "/tmp/lua_%u", ++count);
  return name;
}

FILE *tmpfile(void) {
  return fopen(tmpnam(NULL), "w+");
}

int system(const char *command) {
  if (command == NULL) return 0; /* there is no shell */
  errno = ENOSYS;
  return -1;
}
