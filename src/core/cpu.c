/* Detects the processor's vector instructions. On x86 the operating system must support their registers, too,
 * which XGETBV reports. */
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

static heed__cpu detect(void) {
  enum { XMM_YMM = 0x6, ZMM = 0xe0 }; /* bits of the result of XGETBV */
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return HEED__CPU_scalar;
  if (!(c & bit_OSXSAVE) || !(c & bit_FMA) || !(c & bit_F16C)) return HEED__CPU_scalar;
  const uint64_t saved = saved_registers();
  if ((saved & XMM_YMM) != XMM_YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return HEED__CPU_scalar;
  if (!(b & bit_AVX2)) return HEED__CPU_scalar;
  const unsigned avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
  return (b & avx512) == avx512 && (saved & ZMM) == ZMM ? HEED__CPU_avx512 : HEED__CPU_avx2;
}

static bool includes(heed__cpu cpu, heed__cpu part) {
  return part != HEED__CPU_neon && part <= cpu;
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

static heed__cpu detect(void) {
#if defined(__aarch64__)
  return HEED__CPU_neon;
#else
  return HEED__CPU_scalar;
#endif
}

static bool includes(heed__cpu cpu, heed__cpu part) {
  return part == cpu || part == HEED__CPU_scalar;
}

void heed__cpu_name(char text[HEED__CPU_NAME]) {
#if defined(__aarch64__)
  strcpy(text, "arm64");
#else
  strcpy(text, "unknown");
#endif
}

#endif

bool heed__cpu_choose(heed__cpu *out) {
  static const char *const names[] = {
#define X(name) #name,
      HEED__CPU_LIST(X)
#undef X
  };
  const heed__cpu here = detect();
  const char *forced = getenv("HEED_CPU");
  if (!forced || !*forced) {
    *out = here;
    return true;
  }
  for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
    if (strcmp(forced, names[i]) == 0 && includes(here, (heed__cpu)i)) {
      *out = (heed__cpu)i;
      return true;
    }
  }
  return false;
}
