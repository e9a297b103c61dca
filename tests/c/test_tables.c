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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_inheriting_table_overrides_what_it_names),
      cmocka_unit_test(an_inheriting_table_has_all_other_kernels_of_its_base),
      cmocka_unit_test(every_table_has_all_kernels_and_the_name_of_its_instruction_set),
      cmocka_unit_test(the_scalar_table_runs_on_every_processor),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
