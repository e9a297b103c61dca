/* Detects which kernel tables this processor can run. On x86 the operating system must support their
 * registers, too, which XGETBV reports. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t saved_registers(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

/* One bit for each table that runs here: 1 << HEED__CPU_x. */
static unsigned detect(void) {
  enum { XMM_YMM = 0x6, ZMM = 0xe0 }; /* bits of the register that XGETBV reads */
  const unsigned avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
  unsigned tables = 1u << HEED__CPU_scalar, a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return tables;
  if (!(c & bit_OSXSAVE) || !(c & bit_FMA) || !(c & bit_F16C)) return tables;
  const uint64_t saved = saved_registers();
  if ((saved & XMM_YMM) != XMM_YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return tables;
  if (!(b & bit_AVX2)) return tables;
  tables |= 1u << HEED__CPU_avx2;
  if ((b & avx512) == avx512 && (saved & ZMM) == ZMM) tables |= 1u << HEED__CPU_avx512;
  return tables;
}

void heed__cpu_name(char text[HEED__CPU_NAME]) {
  unsigned brand[12] = {0}; /* 48 bytes, padded with leading or trailing spaces, or with zeros */
  _Static_assert(sizeof brand < HEED__CPU_NAME, "the closing zero must fit");
  strcpy(text, "x86-64");
  for (unsigned i = 0; i < 3; i++) {
    unsigned *part = brand + 4 * i;
    if (!__get_cpuid(0x80000002u + i, &part[0], &part[1], &part[2], &part[3])) return;
  }
  char name[HEED__CPU_NAME] = {0};
  memcpy(name, brand, sizeof brand);
  const char *start = name + strspn(name, " ");
  size_t length = strlen(start);
  while (length > 0 && start[length - 1] == ' ') length--;
  if (length == 0) return;
  memcpy(text, start, length);
  text[length] = '\0';
}

#else

static unsigned detect(void) {
#if defined(__aarch64__)
  return 1u << HEED__CPU_scalar | 1u << HEED__CPU_neon;
#else
  return 1u << HEED__CPU_scalar;
#endif
}

void heed__cpu_name(char text[HEED__CPU_NAME]) {
#if defined(__aarch64__)
  strcpy(text, "arm64");
#else
  strcpy(text, "unknown");
#endif
}

#endif

bool heed__cpu_runs(heed__cpu cpu) {
  return detect() >> cpu & 1;
}

bool heed__cpu_choose(heed__cpu *out) {
  static const char *const names[] = {
#define X(name) #name,
      HEED__CPU_LIST(X)
#undef X
  };
  const char *forced = getenv("HEED_CPU");
  for (int i = (int)(sizeof names / sizeof *names) - 1; i >= 0; i--) {
    if (!heed__cpu_runs((heed__cpu)i) || (forced && *forced && strcmp(forced, names[i]) != 0)) continue;
    *out = (heed__cpu)i;
    return true;
  }
  return false;
}
