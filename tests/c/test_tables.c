/* Kernel tables: their names, and one that inherits from another. */
#include "tables.h"

#define KERNEL(name) heed__scalar_##name
HEED__DECLARE_BASE

static float seven(const float *x, size_t n) {
  (void)x, (void)n;
  return 7.0f;
}

HEED__INHERITING_TABLE(inheriting, "inheriting", .max = seven)

static void an_inheriting_table_overrides_what_it_names(void **state) {
  (void)state;
  assert_string_equal(inheriting.name, "inheriting");
  assert_true(inheriting.max == seven);
  assert_true(inheriting.max((const float[]){1.0f}, 1) == 7.0f);
}

static void an_inheriting_table_has_all_other_kernels_of_its_base(void **state) {
  (void)state;
  const heed__kernels *base = &heed__kernels_scalar;
  int same = 0, all = 0;
#define X(name, ...) same += inheriting.name == base->name, all++;
  HEED__UNARY_KERNELS(X)
  HEED__UNARY_BACKWARD_KERNELS(X)
  HEED__BINARY_KERNELS(X)
  HEED__COMPARE_KERNELS(X)
  HEED__OTHER_KERNELS(X)
  HEED__TRAINING_KERNELS(X)
#undef X
  assert_int_equal(same, all - 1);
  assert_int_equal(all, (sizeof *base - sizeof base->name) / sizeof base->max);
}

static void every_table_has_all_kernels_and_the_name_of_its_instruction_set(void **state) {
  (void)state;
#define X(cpu) assert_string_equal(heed__kernels_for(HEED__CPU_##cpu)->name, #cpu);
  HEED__CPU_LIST(X)
#undef X
  for (int cpu = 0; cpu < TABLES; cpu++) {
    const heed__kernels *k = heed__kernels_for((heed__cpu)cpu);
#define X(name, ...) assert_true(k->name != NULL);
    HEED__UNARY_KERNELS(X)
    HEED__UNARY_BACKWARD_KERNELS(X)
    HEED__BINARY_KERNELS(X) HEED__COMPARE_KERNELS(X) HEED__OTHER_KERNELS(X) HEED__TRAINING_KERNELS(X)
#undef X
  }
}

static void the_scalar_table_runs_on_every_processor(void **state) {
  (void)state;
  heed__cpu best;
  assert_true(heed__cpu_runs(HEED__CPU_scalar));
  assert_true(heed__cpu_choose(&best));
  assert_true(heed__cpu_runs(best));
}

#if defined(__x86_64__) && HEED__HAS_NARROW && HEED__HAS_AMX
/* The bits are those of Intel's manual. A processor that lacks one of them, or whose system does not save the
 * registers, runs the tables before. */
static void a_processor_runs_the_tables_whose_instructions_it_has(void **state) {
  enum { FMA = 1 << 12, OSXSAVE = 1 << 27, F16C = 1 << 29, AVX2 = 1 << 5 };
  const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, amx = 1u << 22 | 1u << 24 | 1u << 25;
  const heed__x86 all = {FMA | OSXSAVE | F16C, AVX2 | avx512, 1 << 11, amx, 1 << 4 | 1 << 5, 0x600e6};
  enum {
    SCALAR = 1 << HEED__CPU_scalar,
    AVX = SCALAR | 1 << HEED__CPU_avx2,
    SHORT = AVX | 1 << HEED__CPU_avx2_vnni,
    LONG = SHORT | 1 << HEED__CPU_avx512,
    VNNI = LONG | 1 << HEED__CPU_avx512_vnni,
    BF16 = VNNI | 1 << HEED__CPU_avx512_bf16,
    AMX = BF16 | 1 << HEED__CPU_amx
  };
  (void)state;
#define RUNS(field, missing, tables)                                                                         \
  do {                                                                                                       \
    heed__x86 x = all;                                                                                       \
    x.field &= ~(missing);                                                                                   \
    assert_int_equal(heed__x86_tables(&x), tables);                                                          \
  } while (0)
  RUNS(ecx1, 0u, AMX);
  RUNS(ecx1, (unsigned)FMA, SCALAR);
  RUNS(ecx1, (unsigned)F16C, SCALAR);
  RUNS(ecx1, (unsigned)OSXSAVE, SCALAR);
  RUNS(saved, UINT64_C(4), SCALAR);
  RUNS(ebx7, (unsigned)AVX2, SCALAR);
  RUNS(saved, UINT64_C(0x80), SHORT);
  RUNS(ebx7, 1u << 31, SHORT);
  RUNS(ecx7, 1u << 11, LONG);
  RUNS(eax71, 1u << 5, VNNI);
  RUNS(edx7, 1u << 25, BF16);
  RUNS(saved, UINT64_C(0x40000), BF16);
  RUNS(eax71, 1u << 4, AMX & ~(1 << HEED__CPU_avx2_vnni));
#undef RUNS
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_inheriting_table_overrides_what_it_names),
    cmocka_unit_test(an_inheriting_table_has_all_other_kernels_of_its_base),
    cmocka_unit_test(every_table_has_all_kernels_and_the_name_of_its_instruction_set),
    cmocka_unit_test(the_scalar_table_runs_on_every_processor),
#if defined(__x86_64__) && HEED__HAS_NARROW && HEED__HAS_AMX
    cmocka_unit_test(a_processor_runs_the_tables_whose_instructions_it_has),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
