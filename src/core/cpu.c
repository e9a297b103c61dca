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

unsigned heed__x86_tables(const heed__x86 *x) {
  enum { XMM_YMM = 0x6, ZMM = 0xe0, TILES = 0x60000 };       /* saved registers */
  enum { VNNI = 1 << 11, AVX_VNNI = 1 << 4, BF16 = 1 << 5 }; /* leaf 7: ecx; leaf 7.1: eax, eax */
  const unsigned avx512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL,
                 amx = 1u << 22 | 1u << 24 | 1u << 25, /* leaf 7: edx: BF16, TILE, INT8 */
      basic = bit_OSXSAVE | bit_FMA | bit_F16C;
  unsigned tables = 1u << HEED__CPU_scalar;
  if ((x->ecx1 & basic) != basic || (x->saved & XMM_YMM) != XMM_YMM || !(x->ebx7 & bit_AVX2)) return tables;
  tables |= 1u << HEED__CPU_avx2;
#if HEED__HAS_NARROW
  if (x->eax71 & AVX_VNNI) tables |= 1u << HEED__CPU_avx2_vnni;
#endif
#if !HEED_MINIMAL
  if ((x->ebx7 & avx512) != avx512 || (x->saved & ZMM) != ZMM) return tables;
  tables |= 1u << HEED__CPU_avx512;
#endif
#if HEED__HAS_NARROW
  if (!(x->ecx7 & VNNI)) return tables;
  tables |= 1u << HEED__CPU_avx512_vnni;
  if (!(x->eax71 & BF16)) return tables;
  tables |= 1u << HEED__CPU_avx512_bf16;
#if HEED__HAS_AMX
  if ((x->edx7 & amx) == amx && (x->saved & TILES) == TILES) tables |= 1u << HEED__CPU_amx;
#endif
#endif
  (void)amx, (void)avx512;
  return tables;
}

/* A leaf that the processor lacks stays 0. AMX only if `tiles`: whether it runs depends on the system's
 * permission, which is then requested. */
static unsigned detect(bool tiles) {
  heed__x86 x = {0};
  unsigned unused;
  __get_cpuid(1, &unused, &unused, &x.ecx1, &unused);
  if (x.ecx1 & bit_OSXSAVE) x.saved = saved_registers();
  __get_cpuid_count(7, 0, &unused, &x.ebx7, &x.ecx7, &x.edx7);
  __get_cpuid_count(7, 1, &x.eax71, &unused, &unused, &unused);
  unsigned tables = heed__x86_tables(&x);
#if HEED__HAS_NARROW && HEED__HAS_AMX
  const unsigned amx = 1u << HEED__CPU_amx;
  if (tables & amx && !(tiles && heed__system_allow_tiles())) tables &= ~amx;
#endif
  (void)tiles;
  return tables;
}

void heed__cpu_name(char text[HEED__CPU_NAME]) {
  unsigned brand[12] = {0}; /* 48 bytes, padded with leading or trailing spaces, or with zeros */
  _Static_assert(sizeof brand < HEED__CPU_NAME, "the closing zero must fit");
  strcpy(text, "x86-64");
  for (unsigned i = 0; i < 3; i++) {
    unsigned *part = brand + 4 * i;
    __get_cpuid(0x80000002u + i, &part[0], &part[1], &part[2], &part[3]); /* 0 if there is no such leaf */
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

static unsigned detect(bool tiles) {
  unsigned tables = 1u << HEED__CPU_scalar;
  (void)tiles;
#if defined(__aarch64__)
  tables |= 1u << HEED__CPU_neon;
#endif
#if defined(__wasm_simd128__)
  tables |= 1u << HEED__CPU_wasm; /* else the module would not have been accepted */
#endif
#if HEED__HAS_NARROW_NEON
  const unsigned features = heed__system_arm_features();
  if (features & HEED__ARM_DOTPROD) tables |= 1u << HEED__CPU_neon_dotprod;
  if (features & HEED__ARM_DOTPROD && features & HEED__ARM_I8MM && features & HEED__ARM_BF16)
    tables |= 1u << HEED__CPU_neon_bf16;
#endif
  return tables;
}

void heed__cpu_name(char text[HEED__CPU_NAME]) {
#if defined(__aarch64__)
  strcpy(text, "arm64");
#elif defined(__wasm32__)
  strcpy(text, "WebAssembly");
#else
  strcpy(text, "unknown");
#endif
}

#endif

#if HEED__HAS_NARROW
enum { LAST_UNASKED = HEED__CPU_avx512_bf16 };
#else
enum { LAST_UNASKED = HEED__CPU_COUNT - 1 };
#endif

bool heed__cpu_runs(heed__cpu cpu) {
  return detect((int)cpu > LAST_UNASKED) >> cpu & 1;
}

static const char *forced_name(void) {
  const char *forced = getenv("HEED_CPU");
  return forced && *forced ? forced : NULL;
}

/* Intel's processors add bfloat16 pairs more slowly than float32 (0.6 times, Sapphire Rapids). */
static bool is_slow(int cpu) {
#if HEED__HAS_NARROW
  unsigned a, b, c, d;
  return cpu == HEED__CPU_avx512_bf16 && __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx;
#else
  return (void)cpu, false;
#endif
}

bool heed__cpu_choose(heed__cpu *out) {
  static const char *const names[] = {
#define X(name) #name,
      HEED__CPU_LIST(X)
#undef X
  };
  const char *forced = forced_name();
  for (int i = forced ? HEED__CPU_COUNT - 1 : LAST_UNASKED; i >= 0; i--) {
    if (!forced && is_slow(i)) continue;
    if ((forced && strcmp(forced, names[i]) != 0) || !heed__cpu_runs((heed__cpu)i)) continue;
    *out = (heed__cpu)i;
    return true;
  }
  return false;
}

heed__cpu heed__cpu_for_narrow(heed__cpu cpu) {
  for (int i = HEED__CPU_COUNT - 1; !forced_name() && i > LAST_UNASKED; i--)
    if (heed__cpu_runs((heed__cpu)i)) return (heed__cpu)i;
  return cpu;
}
