/* Measures the cost of heed in a host that loads but does not use it. Prints, separated by tabs: the seconds
 * to open and close a Lua state with its libraries, without heed and with it; the KiB that loading the
 * library and opening it in a state add to the process, as private pages and as all resident pages (including
 * shared ones).
 *   guest HEED.SO     the clock comes from libheed.a, everything else from HEED.SO */
#include <dlfcn.h>
#include <stdio.h>

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "heed.h"

static double open_and_close(lua_CFunction open_heed) {
  const double start = heed_clock();
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (open_heed) luaL_requiref(L, "heed", open_heed, 0);
  lua_close(L);
  return heed_clock() - start;
}

static void read_memory(long *own, long *resident) {
  char line[256];
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  *own = *resident = 0;
  while (file && fgets(line, sizeof line, file)) {
    if (sscanf(line, "Private_Dirty: %ld", own) != 1) (void)sscanf(line, "Rss: %ld", resident);
  }
  if (file) fclose(file);
}

int main(int count, char **arguments) {
  long own[2], resident[2];
  double without = 1, with = 1;
  read_memory(&own[0], &resident[0]); /* allocates its own buffers */
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  read_memory(&own[0], &resident[0]);
  void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL;
  void *symbol = library ? dlsym(library, "luaopen_heed") : NULL;
  if (!symbol) return fprintf(stderr, "guest: %s\n", count > 1 ? dlerror() : "usage: guest HEED.SO"), 1;
  const lua_CFunction open_heed = (lua_CFunction)symbol;
  luaL_requiref(L, "heed", open_heed, 0);
  read_memory(&own[1], &resident[1]);
  for (int i = 0; i < 1000; i++) {
    const double a = open_and_close(NULL), b = open_and_close(open_heed);
    if (a < without) without = a;
    if (b < with) with = b;
  }
  printf("%.9f\t%.9f\t%ld\t%ld\n", without, with, own[1] - own[0], resident[1] - resident[0]);
  lua_close(L);
  return 0;
}
