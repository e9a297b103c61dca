/* Layers: rotary positions against a naive reference in double precision, norms over several dimensions, the
 * small modules, placeholders, and failing allocations. */
#include "support.h"

#include <math.h>
#include <stdio.h>

#include "../../src/nn/nn.h"

/* ---- Helpers ---- */

static heed_tensor *normal(heed_context *ctx, int ndim, const int64_t *shape) {
  heed_tensor *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, ndim, shape, &x));
  return x;
}

static float *floats(const heed_tensor *x) {
  return (float *)(void *)x->data;
}

static heed_tensor *copy_of(heed_context *ctx, const heed_tensor *x) {
  heed_tensor *y = NULL;
  assert_ok(heed_clone(ctx, x, &y));
  return y;
}

static void assert_same(heed_context *ctx, const heed_tensor *a, const heed_tensor *b) {
  bool equal = false;
  assert_ok(heed_equal(ctx, a, b, &equal));
  assert_true(equal);
}

/* ---- Rotary positions ---- */

/* Rotates x [rows, d] at the positions offset + 1…, in double. */
static void naive_rope(const float *x, int64_t rows, int64_t d, int64_t offset, const heed_rope_config *c,
                       double *out) {
  const int64_t dims = c->dims == 0 ? d : c->dims;
  for (int64_t r = 0; r < rows; r++, x += d, out += d) {
    for (int64_t i = 0; i < d; i++) out[i] = (double)x[i];
    for (int64_t i = 0; i < dims / 2; i++) {
      const double angle = (double)(offset + r) * pow(c->base, -2 * (double)i / (double)dims);
      const int64_t a = c->interleaved ? 2 * i : i, b = c->interleaved ? 2 * i + 1 : i + dims / 2;
      out[a] = (double)x[a] * cos(angle) - (double)x[b] * sin(angle);
      out[b] = (double)x[b] * cos(angle) + (double)x[a] * sin(angle);
    }
  }
}

static void assert_turned(const heed_tensor *y, const double *wanted) {
  for (int64_t i = 0; i < y->numel; i++) {
    const double off = fabs((double)floats(y)[i] - wanted[i]);
    if (!(off <= 1e-6)) fail_msg("element %lld is off by %g", (long long)i, off);
  }
}

static void rope_agrees_with_the_reference(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const int64_t rows[] = {1, 3, 127, 128, 200}, sizes[] = {2, 4, 6, 14, 16, 18, 34, 64, 70, 130};
  static const int64_t offsets[] = {0, 1, 63, 100000};
  double *wanted = calloc(200 * 130, sizeof *wanted);
  assert_non_null(wanted);
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      for (int style = 0; style < 4; style++) {
        const int64_t n = rows[r], d = sizes[s], offset = offsets[(r + s) % 4];
        heed_rope_config c;
        heed_rope_config_init(&c, sizeof c);
        c.interleaved = style % 2 == 1;
        c.dims = style < 2 || d < 4 ? 0 : d / 4 * 2;
        heed_tensor *x = normal(ctx, 2, SHAPE(n, d)), *y = NULL, *back = NULL;
        naive_rope(floats(x), n, d, offset, &c, wanted);
        assert_ok(heed__rope(ctx, "rope", x, offset, &c, &y));
        assert_turned(y, wanted);
        /* into and from strided tensors */
        heed_tensor *wide = normal(ctx, 2, SHAPE(d, n)), *columns = NULL;
        assert_ok(heed_transpose(ctx, wide, 1, 2, &columns));
        assert_ok(heed__rope(ctx, "rope", x, offset, &c, &columns));
        assert_same(ctx, columns, y);
        assert_ok(heed_copy(ctx, columns, x));
        assert_ok(heed__rope(ctx, "rope", columns, offset, &c, &back));
        assert_same(ctx, back, y);
        assert_ok(heed__rope(ctx, "rope", columns, offset, &c, &columns));
        assert_same(ctx, columns, y);
        /* in place */
        assert_ok(heed__rope(ctx, "rope", x, offset, &c, &x));
        assert_same(ctx, x, y);
        heed_tensor_free(x), heed_tensor_free(y), heed_tensor_free(back);
        heed_tensor_free(wide), heed_tensor_free(columns);
      }
    }
  }
  free(wanted);
}

/* The heads of a projection [b, n, h · d], as modules rotate them. */
static void rope_rotates_heads_in_place(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = normal(ctx, 3, SHAPE(2, 5, 24)), *split = NULL, *heads = NULL, *plain = NULL, *y = NULL;
  heed_rope_config c;
  heed_rope_config_init(&c, sizeof c);
  assert_ok(heed_view(ctx, x, 4, SHAPE(2, 5, 3, 8), &split));
  assert_ok(heed_transpose(ctx, split, 2, 3, &heads));
  plain = copy_of(ctx, heads);
  assert_ok(heed__rope(ctx, "rope", plain, 7, &c, &y));
  assert_ok(heed__rope(ctx, "rope", heads, 7, &c, &heads));
  assert_same(ctx, heads, y);
  assert_memory_equal(x->data, floats(split), 8);
  heed_tensor_free(x), heed_tensor_free(split), heed_tensor_free(heads);
  heed_tensor_free(plain), heed_tensor_free(y);
}

static void rope_reads_strided_positions(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = normal(ctx, 4, SHAPE(2, 3, 4, 6)), *drawn = NULL, *view = NULL, *one = NULL, *wide = NULL;
  heed_tensor *a = NULL, *b = NULL;
  assert_ok(heed_randint(ctx, NULL, 1, 1000, 3, SHAPE(4, 1, 2), &drawn));
  assert_ok(heed_transpose(ctx, drawn, 1, 3, &view)); /* [2, 1, 4] */
  assert_ok(heed_clone(ctx, view, &one));
  assert_ok(heed_expand(ctx, view, 3, SHAPE(2, 3, 4), &wide));
  assert_ok(heed_rope(ctx, x, view, NULL, &a));
  assert_ok(heed_rope(ctx, x, wide, NULL, &b));
  assert_same(ctx, a, b);
  assert_ok(heed_rope(ctx, x, one, NULL, &b));
  assert_same(ctx, a, b);
  heed_tensor_free(x), heed_tensor_free(drawn), heed_tensor_free(view), heed_tensor_free(one);
  heed_tensor_free(wide), heed_tensor_free(a), heed_tensor_free(b);
}

static void rope_refuses_invalid_arguments(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_rope_config c;
  heed_rope_config_init(&c, sizeof c);
  assert_fails(ctx, heed__check_rope(ctx, "MultiHeadAttention", &c, 5), HEED_ARGUMENT,
               "MultiHeadAttention: a head has 5 elements; rope rotates pairs: give an even rope's dims");
  c.base = NAN;
  assert_fails(ctx, heed__check_rope(ctx, "MultiHeadAttention", &c, 4), HEED_ARGUMENT,
               "MultiHeadAttention: rope's base is nan; it must be positive and finite");
  heed_rope_config_init(&c, sizeof c);
  c.scaling = (heed_rope_scaling)9;
  assert_fails(ctx, heed__check_rope(ctx, "rope", &c, 4), HEED_ARGUMENT,
               "rope: scaling is 9; it must be one of heed_rope_scaling");
  c.scaling = HEED_ROPE_LLAMA3;
  c.original_context_length = 8;
  c.high_freq_factor = INFINITY;
  assert_int_equal(heed__check_rope(ctx, "rope", &c, 4), HEED_ARGUMENT);
  c.scaling = HEED_ROPE_YARN;
  c.beta_fast = NAN;
  assert_int_equal(heed__check_rope(ctx, "rope", &c, 4), HEED_ARGUMENT);
  c.scaling = HEED_ROPE_FACTORS;
  c.factors[0] = 1;
  assert_fails(ctx, heed__check_rope(ctx, "rope", &c, 4), HEED_ARGUMENT,
               "rope: factors has 1 element before a 0; it must have 2, one for each pair, and at most 256");
  c.factors[1] = 2;
  assert_int_equal(heed__check_rope(ctx, "rope", &c, 4), HEED_OK);
}

/* ---- Norms ---- */

static void norms_over_several_dimensions_agree_with_flattened_ones(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_module *several = NULL, *one = NULL;
  heed_tensor *x = normal(ctx, 4, SHAPE(3, 2, 4, 5)), *flat = NULL, *y = NULL, *z = NULL, *into = NULL,
              *turned = NULL;
  heed_tensor *weight = normal(ctx, 2, SHAPE(4, 5)), *flat_weight = NULL;
  assert_ok(heed_view(ctx, x, 3, SHAPE(3, 2, 20), &flat));
  assert_ok(heed_view(ctx, weight, 1, SHAPE(20), &flat_weight));
  for (int kind = 0; kind < 2; kind++) {
    if (kind == 0) {
      assert_ok(heed_layer_norm_new(ctx, 2, SHAPE(4, 5), 1e-5, true, true, &several));
      assert_ok(heed_layer_norm_new(ctx, 1, SHAPE(20), 1e-5, true, true, &one));
    } else {
      assert_ok(heed_rms_norm_new(ctx, 2, SHAPE(4, 5), -1, true, &several));
      assert_ok(heed_rms_norm_new(ctx, 1, SHAPE(20), -1, true, &one));
    }
    assert_ok(heed_module_set_parameter(several, "weight", weight));
    assert_ok(heed_module_set_parameter(one, "weight", flat_weight));
    assert_ok(heed_module_forward(one, flat, NULL, &y, NULL));
    assert_ok(heed_module_forward(several, x, NULL, &z, NULL));
    assert_memory_equal(y->data, z->data, (size_t)z->numel * sizeof(float));
    /* from and into strided tensors, and in place */
    heed_tensor *base = normal(ctx, 4, SHAPE(5, 4, 2, 3));
    assert_ok(heed_permute(ctx, base, 4, (const int[]){4, 3, 2, 1}, &into));
    assert_ok(heed_module_forward(several, x, NULL, &into, NULL));
    assert_same(ctx, into, z);
    assert_ok(heed_copy(ctx, into, x));
    assert_ok(heed_module_forward(several, into, NULL, &turned, NULL));
    assert_same(ctx, turned, z);
    assert_ok(heed_module_forward(several, into, NULL, &into, NULL));
    assert_same(ctx, into, z);
    heed_module_release(several), heed_module_release(one);
    heed_tensor_free(base), heed_tensor_free(into), heed_tensor_free(turned);
    heed_tensor_free(y), heed_tensor_free(z);
    several = one = NULL;
    into = turned = y = z = NULL;
  }
  heed_tensor_free(x), heed_tensor_free(flat), heed_tensor_free(weight), heed_tensor_free(flat_weight);
}

static void constructors_refuse_invalid_arguments(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_module *m = NULL;
  assert_fails(ctx, heed_layer_norm_new(ctx, 0, SHAPE(1), 1e-5, true, true, &m), HEED_ARGUMENT,
               "LayerNorm: normalized_shape has 0 sizes; it must have 1 to 16");
  assert_fails(ctx, heed_layer_norm_new(ctx, 1, NULL, 1e-5, true, true, &m), HEED_ARGUMENT,
               "LayerNorm: normalized_shape is missing (NULL)");
  assert_fails(ctx, heed_rms_norm_new(ctx, 2, SHAPE(3, 0), 1e-5, true, &m), HEED_ARGUMENT,
               "RMSNorm: normalized_shape is [3, 0]; its sizes must be at least 1");
  assert_fails(ctx, heed_layer_norm_new(ctx, 1, SHAPE(3), -1, true, true, &m), HEED_ARGUMENT,
               "LayerNorm: eps is -1; it must be 0 or more");
  assert_int_equal(heed_rms_norm_new(ctx, 1, SHAPE(3), NAN, true, &m), HEED_ARGUMENT);
  assert_int_equal(heed_rms_norm_new(ctx, 2, SHAPE(INT64_MAX, 8), 0, true, &m), HEED_SHAPE);
  assert_int_equal(heed_embedding_new(ctx, NULL, INT64_MAX, 8, 0, &m), HEED_SHAPE);
  assert_int_equal(heed_embedding_new(ctx, NULL, 3, 8, 4, &m), HEED_ARGUMENT);
  assert_null(m);
}

static void settings_without_a_value_are_not_reported(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_module *m = NULL;
  heed_scalar value;
  assert_ok(heed_embedding_new(ctx, NULL, 4, 3, 0, &m));
  assert_true(heed_module_setting(m, "num_embeddings", &value) && value.as.integer == 4);
  assert_false(heed_module_setting(m, "padding_idx", &value));
  heed_module_release(m);
  m = NULL;
  assert_ok(heed_embedding_new(ctx, NULL, 4, 3, -1, &m));
  assert_true(heed_module_setting(m, "padding_idx", &value) && value.as.integer == 4);
  heed_module_release(m);
  m = NULL;
  assert_ok(heed_rms_norm_new(ctx, 1, SHAPE(3), -1, true, &m));
  assert_false(heed_module_setting(m, "eps", &value));
  assert_false(heed_module_setting(m, "normalized_shape", &value));
  heed_module_release(m);
}

static void numbers_are_printed_as_in_python(void **state) {
  (void)state;
  static const struct {
    double value;
    const char *text;
  } tried[] = {{0, "0.0"},
               {-0.5, "-0.5"},
               {1e-5, "1e-05"},
               {1e-4, "0.0001"},
               {1.5e-7, "1.5e-07"},
               {10, "10.0"},
               {123456.789, "123456.789"},
               {1e15, "1000000000000000.0"},
               {1e16, "1e+16"},
               {0.1 + 0.2, "0.30000000000000004"},
               {1.7976931348623157e308, "1.7976931348623157e+308"},
               {5e-324, "5e-324"},
               {INFINITY, "inf"}};
  for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
    char text[HEED__NUMBER_TEXT];
    assert_string_equal(heed__python_number(text, tried[i].value), tried[i].text);
  }
}

/* ---- Placeholders and low precision ---- */

static heed_status make_all(heed_context *ctx, heed_module *made[]) {
  heed_attention_config c;
  heed_attention_config_init(&c, sizeof c);
  c.d_in = c.d_out = c.context_length = 8;
  c.num_heads = 2;
  c.qkv_bias = true;
  heed_status status = heed_linear_new(ctx, NULL, 8, 6, true, &made[0]);
  if (status == HEED_OK) status = heed_embedding_new(ctx, NULL, 9, 8, 2, &made[1]);
  if (status == HEED_OK) status = heed_layer_norm_new(ctx, 2, SHAPE(2, 4), 1e-5, true, true, &made[2]);
  if (status == HEED_OK) status = heed_rms_norm_new(ctx, 1, SHAPE(8), -1, true, &made[3]);
  if (status == HEED_OK) status = heed_gelu_new(ctx, true, &made[4]);
  if (status == HEED_OK) status = heed_silu_new(ctx, &made[5]);
  if (status == HEED_OK) status = heed_relu_new(ctx, &made[6]);
  if (status == HEED_OK) status = heed_multi_head_attention_new(ctx, NULL, &c, &made[7]);
  return status;
}
#define MADE 8

static void release_all(heed_module *made[]) {
  for (int i = 0; i < MADE; i++) heed_module_release(made[i]);
}

static void assert_unset(const heed_module *m) {
  heed_entry entry;
  for (int i = 1; heed_module_entry(m, i, &entry); i++) {
    if (entry.kind == HEED_ENTRY_MODULE) {
      assert_unset(entry.module);
    } else {
      assert_true(heed__is_placeholder(entry.parameter));
      assert_true(heed_tensor_is_parameter(entry.parameter));
      assert_int_equal(entry.parameter->storage->bytes, sizeof(float));
      assert_true(floats(entry.parameter)[0] == 0);
    }
  }
}

static void skip_init_draws_nothing(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  unsigned char before[HEED_GENERATOR_STATE_BYTES], after[HEED_GENERATOR_STATE_BYTES];
  heed_module *made[MADE] = {NULL};
  heed_generator_get_state(heed_default_generator(ctx), before);
  assert_false(heed_skip_init(ctx, true));
  assert_true(heed_skip_init(ctx, true));
  assert_ok(make_all(ctx, made));
  assert_true(heed_skip_init(ctx, false));
  heed_generator_get_state(heed_default_generator(ctx), after);
  assert_memory_equal(before, after, sizeof before);
  for (int i = 0; i < MADE; i++) assert_unset(made[i]);

  heed_tensor *weight = normal(ctx, 2, SHAPE(6, 8)), *x = normal(ctx, 2, SHAPE(3, 8)), *y = NULL;
  assert_int_equal(heed_copy(ctx, made[0]->slots[0].parameter, weight), HEED_ARGUMENT);
  assert_ok(heed_module_forward(made[0], x, NULL, &y, NULL));
  for (int64_t i = 0; i < y->numel; i++) assert_true(floats(y)[i] == 0);
  assert_ok(heed_module_set_parameter(made[0], "weight", weight));
  assert_false(heed__is_placeholder(made[0]->slots[0].parameter));
  assert_ptr_equal(made[0]->slots[0].parameter->data, weight->data);
  assert_false(heed_tensor_is_parameter(weight));
  heed_tensor_free(weight), heed_tensor_free(x), heed_tensor_free(y);
  release_all(made);
}

static void weights_may_have_lower_precision(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_module *m = NULL;
  heed_tensor *weight = normal(ctx, 2, SHAPE(6, 8)), *small = NULL, *bias = NULL, *whole = NULL;
  assert_ok(heed_to(ctx, weight, HEED_BFLOAT16, &small));
  assert_ok(heed_full(ctx, HEED_BFLOAT16, 1, SHAPE(6), heed_number(1), &bias));
  assert_ok(heed_to(ctx, weight, HEED_INT64, &whole));
  assert_ok(heed_linear_new(ctx, NULL, 8, 6, true, &m));
  assert_ok(heed_module_set_parameter(m, "weight", small));
  assert_int_equal(m->slots[0].parameter->dtype, HEED_BFLOAT16);
  assert_int_equal(heed_module_set_parameter(m, "bias", bias), HEED_DTYPE);
  assert_fails(ctx, heed_module_set_parameter(m, "weight", whole), HEED_DTYPE,
               "Linear: weight is int64; it must be float32, bfloat16 or float16");
  assert_fails(ctx, heed_module_set_parameter(m, "weights", small), HEED_ARGUMENT,
               "Linear: name is 'weights'; it must be the name of a parameter of the module");
  assert_int_equal(m->slots[0].parameter->dtype, HEED_BFLOAT16);
  heed_module_release(m);
  heed_tensor_free(weight), heed_tensor_free(small), heed_tensor_free(bias), heed_tensor_free(whole);
}

/* ---- Failing allocations ---- */

static heed_status make_some(heed_context *ctx, bool skip) {
  unsigned char before[HEED_GENERATOR_STATE_BYTES], after[HEED_GENERATOR_STATE_BYTES];
  heed_module *made[MADE] = {NULL};
  heed_generator_get_state(heed_default_generator(ctx), before);
  heed_skip_init(ctx, skip);
  const heed_status status = make_all(ctx, made);
  release_all(made);
  heed_generator_get_state(heed_default_generator(ctx), after);
  if (skip) assert_memory_equal(before, after, sizeof before);
  return status;
}

static heed_status make_full(heed_context *ctx) {
  return make_some(ctx, false);
}
static heed_status make_empty(heed_context *ctx) {
  return make_some(ctx, true);
}

static heed_status apply_some(heed_context *ctx) {
  heed_tensor *x = NULL, *y = NULL, *view = NULL, *positions = NULL, *slopes = NULL, *ids = NULL;
  heed_module *made[MADE] = {NULL};
  heed_status status = make_all(ctx, made);
  if (status == HEED_OK) status = heed_full(ctx, HEED_FLOAT32, 3, SHAPE(4, 2, 3), heed_number(2), &x);
  if (status == HEED_OK) status = heed_transpose(ctx, x, 1, 3, &view); /* [3, 2, 4] */
  if (status == HEED_OK) status = heed_module_forward(made[2], view, NULL, &y, NULL);
  if (status == HEED_OK) status = heed_module_forward(made[2], view, NULL, &view, NULL);
  if (status == HEED_OK)
    status = heed_range(ctx, HEED_INT64, heed_integer(1), heed_integer(2), heed_integer(1), &positions);
  if (status == HEED_OK) status = heed_rope(ctx, view, positions, NULL, &y);
  if (status == HEED_OK) status = heed_rope(ctx, view, NULL, NULL, &view);
  if (status == HEED_OK) status = heed_alibi_slopes(ctx, 12, &slopes);
  if (status == HEED_OK) status = heed_module_forward(made[1], positions, NULL, &ids, NULL);
  release_all(made);
  heed_tensor_free(x), heed_tensor_free(y), heed_tensor_free(view);
  heed_tensor_free(positions), heed_tensor_free(slopes), heed_tensor_free(ids);
  return status;
}

static void modules_survive_every_failing_allocation(void **state) {
  (void)state;
  survives_every_failing_allocation(make_full);
  survives_every_failing_allocation(make_empty);
  survives_every_failing_allocation(apply_some);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(rope_agrees_with_the_reference),
      TEST(rope_rotates_heads_in_place),
      TEST(rope_reads_strided_positions),
      TEST(rope_refuses_invalid_arguments),
      TEST(norms_over_several_dimensions_agree_with_flattened_ones),
      TEST(constructors_refuse_invalid_arguments),
      TEST(settings_without_a_value_are_not_reported),
      cmocka_unit_test(numbers_are_printed_as_in_python),
      TEST(skip_init_draws_nothing),
      TEST(weights_may_have_lower_precision),
      cmocka_unit_test(modules_survive_every_failing_allocation),
  };
  return cmocka_run_group_tests_name("layers", tests, NULL, NULL);
}
