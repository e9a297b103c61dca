/* Random streams compared with PyTorch 2.13, the state as bytes, and dropout. */
#include "tables.h"

#include <math.h>

static heed_generator *seeded(void **state, uint64_t seed) {
  test_context *t = *state;
  heed_generator *g = heed_default_generator(t->ctx);
  heed_generator_seed(g, seed);
  return g;
}

static void assert_same(const float *got, const float *want, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (got[i] != want[i]) fail_msg("value %zu is %.9g, not %.9g", i + 1, (double)got[i], (double)want[i]);
  }
}

static bool draw_normal(heed_generator *g, float *out, int64_t n) {
  return heed__draw_normal(g, heed__kernels_for(g->context->cpu)->normal, 0, 1, out, n);
}

/* ---- Random words and uniform numbers ---- */

static void the_words_are_those_of_mt19937(void **state) {
  heed_generator *g = seeded(state, 5489);
  assert_int_equal(heed__draw32(g), 3499211612u);
  uint32_t word = 0;
  for (int i = 2; i <= 10000; i++) word = heed__draw32(g);
  assert_int_equal(word, 4123659995u); /* as the C++ standard specifies for std::mt19937 */
}

static void a_new_context_has_the_default_seed(void **state) {
  test_context *t = *state;
  const uint32_t first = heed__draw32(heed__generator(t->ctx, NULL));
  assert_int_equal(first, heed__draw32(seeded(state, HEED_DEFAULT_SEED)));
}

static void floats_are_pytorchs(void **state) {
  static const float want[] = {0.296111941f, 0.516562283f,  0.251670718f,
                               0.68855679f,  0.0739724636f, 0.866521955f};
  heed_generator *g = seeded(state, 123);
  for (size_t i = 0; i < 6; i++) assert_true(heed__draw_float(g) == want[i]);
}

static void the_high_half_of_a_seed_is_ignored(void **state) {
  heed_generator *g = seeded(state, ((uint64_t)1 << 40) + 123);
  assert_true(heed__draw_float(g) == 0.296111941f);
}

static void many_floats_equal_floats_drawn_one_by_one(void **state) {
  static const float last[] = {0.493044853f, 0.974385142f};
  float many[2000];
  heed_generator *g = seeded(state, 123);
  assert_true(heed__draw_floats(g, many, 1));
  assert_true(heed__draw_floats(g, many + 1, 0));
  assert_true(heed__draw_floats(g, many + 1, 1999));
  assert_same(many + 1998, last, 2);
  g = seeded(state, 123);
  for (int i = 0; i < 2000; i++) assert_true(heed__draw_float(g) == many[i]);
}

static void wide_draws_are_pytorchs(void **state) {
  heed_generator *g = seeded(state, 123);
  assert_int_equal(heed__draw64(g) & 0x3fffffffffffffff, 3624216819017203053);
  assert_int_equal(heed__draw64(g) & 0x3fffffffffffffff, 666653134624408898);
  assert_true(heed__draw_double(g) == 0x1.2efdcb0ddd462p-1);
}

/* ---- Normal values ---- */

static void fewer_than_16_normal_values_are_drawn_in_pairs(void **state) {
  static const float five[] = {-0.111467116f, 0.120362945f, -0.369634509f, -0.240417972f, -1.19692433f},
                     two[] = {0.20926936f, -0.972355008f};
  heed_generator *g = seeded(state, 123);
  float got[5];
  assert_true(draw_normal(g, got, 5));
  assert_same(got, five, 5);
  assert_true(draw_normal(g, got, 2));
  assert_same(got, two, 2);
  assert_true(heed__draw_float(g) == 0.118568301f);
  assert_true(g->has_spare);
  heed_generator_seed(g, 123);
  assert_true(draw_normal(g, got, 1));
  assert_same(got, five, 1);
}

static void one_block(heed_context *ctx) {
  static const float want[] = {0.337370187f, -0.177777216f, -0.303527594f, -0.588011861f,
                               0.348605186f, 0.660340965f,  -0.219637617f, -0.379169822f,
                               0.767107069f, -1.19250202f,  0.69835192f,   -1.40972292f,
                               0.179379612f, 1.89514804f,   0.495446384f,  0.269198567f};
  heed_generator *g = heed_default_generator(ctx);
  float got[16];
  heed_generator_seed(g, 123);
  assert_true(draw_normal(g, got, 16));
  assert_same(got, want, 16);
}

static void sixteen_normal_values_are_one_block(void **state) {
  (void)state;
  with_every_table(one_block);
}

static void an_uneven_number(heed_context *ctx) {
  static const float want[] = {0.337370187f, -0.177777216f, -0.303527594f, -0.588011861f, 1.58096957f,
                               1.30103993f,  1.27530122f,   -0.200953096f, -0.160563782f, -0.401488006f,
                               0.69572413f,  -1.80605268f,  -1.15886784f,  0.325471014f,  -0.63150537f,
                               -2.83999395f, -0.784853339f, -1.40957248f,  -0.407626867f, 0.795326114f};
  heed_generator *g = heed_default_generator(ctx);
  float got[20];
  heed_generator_seed(g, 123);
  assert_true(draw_normal(g, got, 20));
  assert_same(got, want, 20);
  assert_true(heed__draw_float(g) == 0.0771507621f);
}

static void the_last_16_of_an_uneven_number_are_drawn_anew(void **state) {
  (void)state;
  with_every_table(an_uneven_number);
}

/* All pairs of some uniform numbers: near 0 and 1, near the eighths of the circle, where the logarithm
 * switches formulas, and random ones. */
enum { SOME = 96, PAIRS = SOME * SOME };
static void every_pair(float *x) {
  static float some[SOME];
  static const int words[] = {0,        0x1000000, 0x800000, 0x400000, 0xc00000,
                              0x200000, 0x600000,  0xa00000, 0xe00000, 0x4afb0d};
  uint32_t seed = 1;
  for (int i = 0; i < SOME; i++) {
    seed = seed * 1664525 + 1013904223;
    int word = (int)(seed >> 8);
    if (i < 70) word = words[i / 7] + i % 7 - 3;
    word = word < 0 ? -word : word > 0xffffff ? 0xffffff - word % 7 : word;
    some[i] = (float)word * 0x1p-24f;
  }
  for (int i = 0; i < PAIRS; i++) {
    float *block = x + i / 8 * HEED__NORMAL_BLOCK + i % 8;
    block[0] = some[i / SOME];
    block[HEED__NORMAL_BLOCK / 2] = some[i % SOME];
  }
}

static void normal_values_are_bit_identical_with_every_table(void **state) {
  static const float std_mean[][2] = {{1, 0},        {0.7f, 0.3f},   {123.456f, -1e-3f},
                                      {0, 5},        {1e-38f, 0},    {3e38f, -3e38f},
                                      {INFINITY, 0}, {0, -INFINITY}, {1, INFINITY}};
  enum { CASES = sizeof std_mean / sizeof *std_mean };
  static float uniform[2 * PAIRS], want[2 * PAIRS], got[2 * PAIRS];
  (void)state;
  every_pair(uniform);
  for (int c = 0; c < CASES; c++) {
    memcpy(want, uniform, sizeof want);
    heed__kernels_scalar.normal(want, 2 * PAIRS, std_mean[c][0], std_mean[c][1]);
    const heed__kernels *table;
    for (int i = 0; (table = table_at(i)) != NULL; i++) {
      memcpy(got, uniform, sizeof got);
      table->normal(got, 2 * PAIRS, std_mean[c][0], std_mean[c][1]);
      assert_memory_equal(got, want, sizeof got);
    }
  }
}

static void normal_values_are_box_and_mullers(void **state) {
  static float uniform[2 * PAIRS], got[2 * PAIRS];
  (void)state;
  every_pair(uniform);
  memcpy(got, uniform, sizeof got);
  heed__kernels_scalar.normal(got, 2 * PAIRS, 1, 0);
  for (int i = 0; i < PAIRS; i++) {
    const int at = i / 8 * HEED__NORMAL_BLOCK + i % 8, other = at + HEED__NORMAL_BLOCK / 2;
    const double radius = sqrt(-2 * log(1 - (double)uniform[at]));
    const double angle = (double)(6.28318530717958647692f * uniform[other]);
    const double tolerance = 5e-7 * radius + 1e-30;
    assert_true(fabs((double)got[at] - radius * cos(angle)) <= tolerance);
    assert_true(fabs((double)got[other] - radius * sin(angle)) <= tolerance);
  }
}

/* ---- Generators and their state ---- */

static void generators_are_independent(void **state) {
  test_context *t = *state;
  heed_generator *a = NULL, *b = NULL;
  assert_ok(heed_generator_new(t->ctx, 123, &a));
  assert_ok(heed_generator_new(t->ctx, 123, &b));
  heed__draw32(a);
  heed__draw32(heed_default_generator(t->ctx));
  assert_true(heed__draw_float(b) == 0.296111941f);
  heed_generator_free(a);
  heed_generator_free(b);
  heed_generator_free(heed_default_generator(t->ctx)); /* freeing the context's own has no effect */
  heed_generator_free(NULL);
}

static void a_restored_state_continues_the_stream(void **state) {
  heed_generator *g = seeded(state, 9);
  unsigned char bytes[HEED_GENERATOR_STATE_BYTES], again[HEED_GENERATOR_STATE_BYTES];
  float first[40], second[40];
  assert_true(draw_normal(g, first, 3)); /* leaves a spare value */
  heed_generator_get_state(g, bytes);
  assert_true(draw_normal(g, first, 4));
  assert_true(draw_normal(g, first + 4, 36));
  heed_generator_seed(g, 1);
  assert_ok(heed_generator_set_state(g, bytes, sizeof(bytes)));
  heed_generator_get_state(g, again);
  assert_memory_equal(bytes, again, sizeof(bytes));
  assert_true(draw_normal(g, second, 4));
  assert_true(draw_normal(g, second + 4, 36));
  assert_same(second, first, 40);
}

static void a_state_is_little_endian(void **state) {
  heed_generator *g = seeded(state, 0x04030201);
  unsigned char bytes[HEED_GENERATOR_STATE_BYTES];
  heed_generator_get_state(g, bytes);
  assert_memory_equal(bytes, "heedmt1\0\x70\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x02\x03\x04",
                      36);
}

static void an_invalid_state_changes_nothing(void **state) {
  test_context *t = *state;
  heed_generator *g = seeded(state, 9);
  unsigned char good[HEED_GENERATOR_STATE_BYTES], bad[HEED_GENERATOR_STATE_BYTES],
      after[HEED_GENERATOR_STATE_BYTES];
  static const struct {
    size_t at;
    unsigned char value;
  } changes[] = {{0, 'H'}, {7, 1}, {8, 0x71}, {11, 1}, {12, 2}, {16, 1}, {24, 1}, {31, 1}};
  heed_generator_get_state(g, good);
  for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
    memcpy(bad, good, sizeof(bad));
    bad[changes[i].at] = changes[i].value;
    assert_fails(t->ctx, heed_generator_set_state(g, bad, sizeof(bad)), HEED_ARGUMENT,
                 "set_state: the bytes are not a generator's state; they must be those of get_state");
  }
  memcpy(bad, good, sizeof(bad));
  bad[12] = 1;
  memset(bad + 16, 0xff, 8); /* a spare value that is nan */
  assert_int_equal(heed_generator_set_state(g, bad, sizeof(bad)), HEED_ARGUMENT);
  assert_fails(t->ctx, heed_generator_set_state(g, good, 5), HEED_ARGUMENT,
               "set_state: the state has 5 bytes; it must have 2528, like those of get_state");
  assert_int_equal(heed_generator_set_state(g, NULL, 0), HEED_ARGUMENT);
  assert_int_equal(heed_generator_set_state(NULL, good, sizeof(good)), HEED_ARGUMENT);
  heed_generator_get_state(g, after);
  assert_memory_equal(good, after, sizeof(good));
}

static heed_status with_a_generator(heed_context *ctx) {
  heed_generator *g = NULL;
  heed_status status = heed_generator_new(ctx, 1, &g);
  heed_generator_free(g);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  survives_every_failing_allocation(with_a_generator);
}

/* ---- Dropout ---- */

/* Applies dropout to ones, `piece` elements at a time, and compares the result with "x" (kept) or "."
 * (dropped). */
static void assert_drops(heed_context *ctx, uint64_t seed, double p, const char *kept, int64_t piece) {
  const int64_t n = (int64_t)strlen(kept);
  float x[64];
  heed__dropout d;
  for (int64_t i = 0; i < n; i++) x[i] = 1;
  heed_generator_seed(heed_default_generator(ctx), seed);
  heed__dropout_begin(&d, ctx, NULL, p, 0, NULL);
  for (int64_t i = 0; i < n; i += piece)
    assert_true(heed__dropout_apply(&d, x + i, x + i, n - i < piece ? n - i : piece));
  for (int64_t i = 0; i < n; i++) {
    const float want = kept[i] == 'x' ? 1 / (1 - (float)p) : 0;
    if (fabsf(x[i] - want) > 1e-6f * want) fail_msg("element %d is %.9g", (int)i + 1, (double)x[i]);
  }
}

static void native_dropout_is_pytorchs(void **state) {
  test_context *t = *state;
  assert_drops(t->ctx, 123, 0.25, "xxxxxxxx.x.x", 12);
  assert_drops(t->ctx, 123, 0.25, "xxxxxxxx.x.x", 5);
}

static void mkl_dropout_is_pytorchs_on_intel(void **state) {
  test_context *t = *state;
  heed_set_dropout_stream(t->ctx, HEED_DROPOUT_MKL);
  assert_drops(t->ctx, 1474644684, 0.5, "xx...xxxx......x.xx.xxx..x.xx.xxx.x...xxxxx.", 44);
  assert_drops(t->ctx, 1474644684, 0.5, "xx...xxxx......x.xx.xxx..x.xx.xxx.x...xxxxx.", 7);
  assert_drops(t->ctx, 1807831941, 0.9, "....................................x......x", 44);
  assert_drops(t->ctx, 1660250124, 0.1, "..xxxxxx.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 44);
}

static void the_mkl_stream_consumes_one_word_per_tensor(void **state) {
  test_context *t = *state;
  heed_set_dropout_stream(t->ctx, HEED_DROPOUT_MKL);
  assert_drops(t->ctx, 1474644684, 0.5, "xx...xxxx......x", 16);
  const uint32_t second = heed__draw32(heed_default_generator(t->ctx));
  heed_generator *g = seeded(state, 1474644684);
  heed__draw32(g);
  assert_int_equal(second, heed__draw32(g));
}

/* The next uniform number of a stream; `mkl` is the state of the mkl stream. */
static double uniform(heed_context *ctx, heed_dropout_stream stream, uint64_t *mkl) {
  if (stream == HEED_DROPOUT_NATIVE) return heed__draw_double(heed_default_generator(ctx));
  const double u = (double)*mkl / 2147483647;
  *mkl = *mkl * 1132489760 % 2147483647;
  return u;
}

/* An element is kept if its random number is below 1 - p; for some p, a number equals 1 - p. */
static void dropout_keeps_what_is_below_1_minus_p(void **state) {
  enum { N = 1500 };
  test_context *t = *state;
  heed_generator *g = heed_default_generator(t->ctx);
  static float x[N];
  static double u[N];
  for (uint32_t number = 0; number < 400; number++) {
    const heed_dropout_stream stream = number % 2 ? HEED_DROPOUT_MKL : HEED_DROPOUT_NATIVE;
    const uint32_t words = number % 5, piece = 1 + number * 7 % 600;
    heed_set_dropout_stream(t->ctx, stream);
    heed_generator_seed(g, number);
    for (uint32_t i = 0; i < words; i++) heed__draw32(g);
    uint64_t mkl = stream == HEED_DROPOUT_MKL ? heed__draw32(g) % 2147483647 : 0;
    for (int i = 0; i < N; i++) u[i] = uniform(t->ctx, stream, &mkl);

    const double p = number < 300 ? 1 - u[number % 37] : (number - 299) / 102.0;
    heed__dropout d;
    heed_generator_seed(g, number);
    for (uint32_t i = 0; i < words; i++) heed__draw32(g);
    for (int i = 0; i < N; i++) x[i] = 1;
    heed__dropout_begin(&d, t->ctx, NULL, p, 0, NULL);
    for (uint32_t i = 0; i < N; i += piece)
      assert_true(heed__dropout_apply(&d, x + i, x + i, N - i < piece ? N - i : piece));
    for (int i = 0; i < N; i++) assert_true((x[i] != 0) == (u[i] < 1 - p));
  }
}

static void what_is_dropped_is_multiplied_by_0(void **state) {
  test_context *t = *state;
  const float x[] = {-1, INFINITY};
  float out[2];
  heed__dropout d;
  unsigned char before[HEED_GENERATOR_STATE_BYTES], after[HEED_GENERATOR_STATE_BYTES];
  heed_generator_get_state(heed_default_generator(t->ctx), before);
  for (int stream = HEED_DROPOUT_NATIVE; stream <= HEED_DROPOUT_MKL; stream++) {
    heed_set_dropout_stream(t->ctx, (heed_dropout_stream)stream);
    heed__dropout_begin(&d, t->ctx, NULL, 1, 0, NULL);
    assert_true(heed__dropout_apply(&d, out, x, 2));
    assert_true(out[0] == 0 && signbit(out[0]));
    assert_true(isnan(out[1]));
  }
  heed_generator_get_state(heed_default_generator(t->ctx), after);
  assert_memory_equal(before, after, sizeof(before)); /* p = 1 draws no random numbers, as in PyTorch */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_words_are_those_of_mt19937),
      TEST(a_new_context_has_the_default_seed),
      TEST(floats_are_pytorchs),
      TEST(the_high_half_of_a_seed_is_ignored),
      TEST(many_floats_equal_floats_drawn_one_by_one),
      TEST(wide_draws_are_pytorchs),
      TEST(fewer_than_16_normal_values_are_drawn_in_pairs),
      TEST(sixteen_normal_values_are_one_block),
      TEST(the_last_16_of_an_uneven_number_are_drawn_anew),
      TEST(normal_values_are_bit_identical_with_every_table),
      TEST(normal_values_are_box_and_mullers),
      TEST(generators_are_independent),
      TEST(a_restored_state_continues_the_stream),
      TEST(a_state_is_little_endian),
      TEST(an_invalid_state_changes_nothing),
      cmocka_unit_test(every_allocation_may_fail),
      TEST(native_dropout_is_pytorchs),
      TEST(mkl_dropout_is_pytorchs_on_intel),
      TEST(dropout_keeps_what_is_below_1_minus_p),
      TEST(the_mkl_stream_consumes_one_word_per_tensor),
      TEST(what_is_dropped_is_multiplied_by_0),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
