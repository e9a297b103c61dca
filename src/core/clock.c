/* The time, for measuring it. */
#define _POSIX_C_SOURCE 200809L

#include "core.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <time.h>
#endif

double heed_clock(void) {
#if defined(_WIN32)
  LARGE_INTEGER ticks, in_a_second;
  QueryPerformanceCounter(&ticks);
  QueryPerformanceFrequency(&in_a_second);
  return (double)ticks.QuadPart / (double)in_a_second.QuadPart;
#else
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#endif
}
