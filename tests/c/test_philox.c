/* PHILOX generators: published vectors, any division of the words, states, parts. tests/spec/philox_spec.lua
 * compares with torch.cuda. */
#include "tables.h"

#include <math.h>

/* ---- Blocks ---- */

/* The vectors of Random123 1.14 (tests/kat_vectors, philox4x32 10). */
static void blocks_are_those_of_random123(void **state) {
  static const struct {
    uint32_t counter[4], key[2], block[4];
  } vectors[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  (void)state;
  for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
    uint32_t out[4];
    heed__philox_block(vectors[i].counter, vectors[i].key, out);
    assert_memory_equal(out, vectors[i].block, sizeof out);
  }
}

/* Around the widths of vectors, also where the number of the thread carries into its upper half. */
static void every_table_computes_the_same_blocks(void **state) {
  enum { MOST = 100 };
  static const uint64_t threads[] = {0, 3, ((uint64_t)1 << 32) - 40, UINT64_MAX - 20};
  const uint32_t key[] = {0x9abcdef0, 0x12345678};
  const heed__kernels *kernels;
  (void)state;
  for (int table = 0; (kernels = table_at(table)); table++) {
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
      for (size_t n = 0; n <= MOST; n++) {
        uint32_t out[4 * MOST + 1], wanted[4];
        out[4 * n] = 77;
        kernels->philox(out, key, ((uint64_t)5 << 32) + 2, threads[t], n);
        assert_int_equal(out[4 * n], 77);
        for (size_t i = 0; i < n; i++) {
          const uint64_t thread = threads[t] + i;
          heed__philox_block((const uint32_t[]){2, 5, (uint32_t)thread, (uint32_t)(thread >> 32)}, key,
                             wanted);
          assert_memory_equal(out + 4 * i, wanted, sizeof wanted);
        }
      }
    }
  }
}

/* Against double precision, and the same in every table. */
static void normal_numbers_are_those_of_box_and_muller(void **state) {
  enum { MOST = 70 };
  float u[MOST], v[MOST], first[MOST], out[MOST + 1];
  const heed__kernels *kernels;
  uint32_t seed = 4;
  (void)state;
  for (size_t i = 0; i < MOST; i++) {
    u[i] = i == 0 ? 1.0f : i == 1 ? 0x1p-33f : heed__counted_float(next_random(&seed) >> (i % 24));
    v[i] = 6.2831855f * heed__counted_float(next_random(&seed));
  }
  heed__kernels_scalar.normal_sine(first, u, v, MOST, 1.5f, 0.25f);
  for (size_t i = 0; i < MOST; i++) {
    const double wanted = 0.25 + 1.5 * sqrt(-2 * log((double)u[i])) * sin((double)v[i]);
    if (fabs((double)first[i] - wanted) > 2e-6)
      fail_msg("number %d is %.9g; it must be %.9g", (int)i + 1, (double)first[i], wanted);
  }
  for (int table = 0; (kernels = table_at(table)); table++) {
    for (size_t n = 0; n <= MOST; n++) {
      out[n] = 77;
      kernels->normal_sine(out, u, v, n, 1.5f, 0.25f);
      assert_memory_equal(out, first, n * sizeof *out);
      assert_true(out[n] == 77);
    }
  }
}

static heed_generator *new_philox(heed_context *ctx, uint64_t seed) {
  heed_generator *g = NULL;
  assert_ok(heed_generator_new(ctx, 1, &g));
  heed_generator_reset(g, HEED_PHILOX, seed);
  return g;
}

/* Words begin anywhere, also beyond 2^32 threads, in pieces of any length. */
static void words_do_not_depend_on_how_they_are_divided(void **state) {
  enum { WORDS = 300 };
  test_context *t = *state;
  heed_generator *g = new_philox(t->ctx, 0x123456789abcdef0);
  static const uint64_t firsts[] = {0, 1, 7, ((uint64_t)1 << 34) - 100};
  for (int lanes = 1; lanes <= 4; lanes *= 2) {
    for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
      heed__counted c;
      uint32_t words[WORDS], piece[WORDS], block[4];
      assert_ok(heed_generator_set_offset(g, ((uint64_t)5 << 34) + 8));
      heed__counted_begin(&c, g, lanes, 1, SHAPE(WORDS));
      assert_true(heed_generator_offset(g) == ((uint64_t)5 << 34) + 12);
      heed__counted_words(&c, firsts[f], WORDS, words);
      for (uint64_t i = 0; i < WORDS; i++) {
        const uint64_t thread = (firsts[f] + i) / (uint64_t)lanes;
        heed__philox_block((const uint32_t[]){2, 5, (uint32_t)thread, (uint32_t)(thread >> 32)},
                           (const uint32_t[]){0x9abcdef0, 0x12345678}, block);
        assert_int_equal(words[i], block[(firsts[f] + i) % (uint64_t)lanes]);
      }
      for (int64_t from = 0, n = 1; from < WORDS; from += n, n = n * 3 % 50 + 1) {
        if (n > WORDS - from) n = WORDS - from;
        heed__counted_words(&c, firsts[f] + (uint64_t)from, n, piece);
        assert_memory_equal(piece, words + from, (size_t)n * sizeof(uint32_t));
      }
    }
  }
  heed_generator_free(g);
}

static void single_draws_are_the_words_of_subsequence_0(void **state) {
  test_context *t = *state;
  heed_generator *g = new_philox(t->ctx, 0);
  static const uint32_t first[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int i = 0; i < 4; i++) assert_int_equal(heed__draw32(g), first[i]);
  assert_int_equal(heed_generator_offset(g), 4);
  heed__draw32(g);
  heed_tensor *x = NULL;
  assert_ok(heed_uniform(t->ctx, g, 0, 1, 1, SHAPE(3), &x)); /* begins at a multiple of 4 */
  assert_int_equal(heed_generator_offset(g), 12);
  heed_tensor_free(x);
  heed_generator_free(g);
}

static void dropout_uses_as_many_lanes_as_divide_the_elements(void **state) {
  test_context *t = *state;
  static const struct {
    int64_t shape[3];
    int lanes;
  } cases[] = {{{1, 3, 5}, 1}, {{3, 2, 5}, 2}, {{2, 3, 2}, 4}, {{3, 7, 8}, 4}, {{6, 5, 10}, 4}};
  heed_generator *g = new_philox(t->ctx, 1);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    heed__counted c;
    heed__counted_begin(&c, g, 0, 3, cases[i].shape);
    assert_int_equal(c.lanes, cases[i].lanes);
  }
  heed_generator_free(g);
}

/* ---- States ---- */

static void a_state_is_restored_with_its_part(void **state) {
  test_context *t = *state;
  unsigned char before[HEED_GENERATOR_STATE_BYTES], after[HEED_GENERATOR_STATE_BYTES];
  heed_generator *g = new_philox(t->ctx, 77), *other = new_philox(t->ctx, 1), *twister = NULL, *copy = NULL;
  heed__draw32(g);
  assert_ok(heed_generator_set_part(g, 2, SHAPE(8, 6), SHAPE(3, 1)));
  heed_generator_get_state(g, before);
  assert_ok(heed_generator_set_state(other, before, sizeof before));
  heed_generator_get_state(other, after);
  assert_memory_equal(before, after, sizeof before);
  assert_ok(heed_generator_clone(g, &copy));
  assert_int_equal(heed_generator_kind_of(copy), HEED_PHILOX);
  heed_generator_get_state(copy, after);
  assert_memory_equal(before, after, sizeof before);
  /* damaged ones, and those of the other kind, change nothing */
  for (int at = 0; at < HEED_GENERATOR_STATE_BYTES; at++) {
    const bool any = at >= 8 && at < 24;                                /* seed and offset */
    const bool some = (at >= 32 && at < 48) || (at >= 160 && at < 176); /* the part's two dimensions */
    if (any || some) continue;
    unsigned char damaged[HEED_GENERATOR_STATE_BYTES];
    memcpy(damaged, before, sizeof damaged);
    damaged[at] ^= 0x80;
    assert_int_equal(heed_generator_set_state(copy, damaged, sizeof damaged), HEED_ARGUMENT);
  }
  heed_generator_get_state(copy, after);
  assert_memory_equal(before, after, sizeof before);
  assert_ok(heed_generator_new(t->ctx, 1, &twister));
  assert_fails(
      t->ctx, heed_generator_set_state(twister, before, sizeof before), HEED_ARGUMENT,
      "set_state: the state is of a philox generator and this one is mt19937; both must be of one kind");
  heed_generator_get_state(twister, before);
  assert_fails(
      t->ctx, heed_generator_set_state(g, before, sizeof before), HEED_ARGUMENT,
      "set_state: the state is of a mt19937 generator and this one is philox; both must be of one kind");
  heed_generator_free(g);
  heed_generator_free(other);
  heed_generator_free(copy);
  heed_generator_free(twister);
}

static void invalid_parts_and_offsets_are_refused(void **state) {
  test_context *t = *state;
  heed_generator *g = new_philox(t->ctx, 1), *twister = heed_default_generator(t->ctx);
  heed_tensor *x = NULL;
  assert_fails(t->ctx, heed_generator_set_part(twister, 1, SHAPE(4), SHAPE(1)), HEED_ARGUMENT,
               "part: the generator is mt19937, whose numbers have an order; it must be philox");
  assert_fails(t->ctx, heed_generator_set_offset(twister, 4), HEED_ARGUMENT,
               "set_offset: the generator is mt19937; it must be philox");
  assert_fails(t->ctx, heed_generator_set_offset(g, 6), HEED_ARGUMENT,
               "set_offset: offset is 6; it must be a multiple of 4");
  assert_int_equal(heed_generator_set_part(g, 2, SHAPE(4, 4), SHAPE(1, 5)), HEED_SHAPE);
  assert_int_equal(heed_generator_set_part(g, 2, SHAPE(4, 4), SHAPE(0, 1)), HEED_SHAPE);
  assert_int_equal(heed_generator_set_part(g, 2, SHAPE(4, 0), SHAPE(1, 1)), HEED_SHAPE);
  assert_int_equal(heed_generator_set_part(g, 2, SHAPE(INT64_MAX, 4), SHAPE(1, 1)), HEED_SHAPE);
  assert_int_equal(heed_generator_set_part(g, 17, SHAPE(4), SHAPE(1)), HEED_SHAPE);
  assert_ok(heed_generator_set_part(g, 2, SHAPE(4, 6), SHAPE(3, 2)));
  assert_fails(
      t->ctx, heed_uniform(t->ctx, g, 0, 1, 2, SHAPE(3, 5), &x), HEED_SHAPE,
      "uniform: the result is [3, 5] and the generator draws from [3, 2] on in a whole of [4, 6]; the part "
      "must have as many dimensions and lie inside the whole");
  assert_int_equal(heed_uniform(t->ctx, g, 0, 1, 1, SHAPE(2), &x), HEED_SHAPE);
  assert_fails(
      t->ctx, heed_randperm(t->ctx, g, 4, &x), HEED_ARGUMENT,
      "randperm: the generator draws a part of a whole of [4, 6], and this draw has no parts; it must be a "
      "generator without a part");
  assert_int_equal(heed_generator_offset(g), 0);
  assert_ok(heed_generator_set_part(g, 0, NULL, NULL));
  assert_ok(heed_randperm(t->ctx, g, 4, &x));
  heed_tensor_free(x);
  heed_generator_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_are_those_of_random123),
      cmocka_unit_test(every_table_computes_the_same_blocks),
      cmocka_unit_test(normal_numbers_are_those_of_box_and_muller),
      TEST(words_do_not_depend_on_how_they_are_divided),
      TEST(single_draws_are_the_words_of_subsequence_0),
      TEST(dropout_uses_as_many_lanes_as_divide_the_elements),
      TEST(a_state_is_restored_with_its_part),
      TEST(invalid_parts_and_offsets_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
