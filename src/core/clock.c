/* The time, for measuring it. */
#define _POSIX_C_SOURCE 200809L

#include "core.h"

#include <time.h>

double heed_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
