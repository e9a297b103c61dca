/* Modules: their results against compositions of operations, entries and settings, refused arguments, and
 * that a failure neither leaks memory nor draws numbers. */
#include "support.h"

#include <math.h>

#include "../../src/nn/nn.h"

/* ---- Helpers ---- */

static heed_attention_config config_of(int64_t d_in, int64_t d_out, int64_t num_heads) {
  heed_attention_config c;
  heed_attention_config_init(&c, sizeof c);
  c.d_in = d_in;
  c.d_out = d_out;
  c.num_heads = num_heads;
  c.context_length = 6;
  return c;
}

static heed_tensor *normal(heed_context *ctx, int ndim, const int64_t *shape) {
  heed_tensor *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, ndim, shape, &x));
  return x;
}

static heed_module *multi_head(heed_context *ctx, const heed_attention_config *config) {
  heed_module *m = NULL;
  assert_ok(heed_multi_head_attention_new(ctx, NULL, config, &m));
  return m;
}

static heed_tensor *apply(heed_module *m, const heed_tensor *x) {
  heed_tensor *y = NULL;
  assert_ok(heed_module_forward(m, x, NULL, &y, NULL));
  return y;
}

static void assert_close(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, double tolerance) {
  bool close = false;
  assert_int_equal(a->ndim, b->ndim);
  assert_memory_equal(a->shape, b->shape, (size_t)a->ndim * sizeof(int64_t));
  assert_ok(heed_allclose(ctx, a, b, tolerance, tolerance, false, &close));
  assert_true(close);
}

static void assert_shape(const heed_tensor *x, int ndim, const int64_t *shape) {
  assert_non_null(x);
  assert_int_equal(x->ndim, ndim);
  assert_memory_equal(x->shape, shape, (size_t)ndim * sizeof(int64_t));
}

static void free_all(size_t count, heed_tensor *const *tensors) {
  for (size_t i = 0; i < count; i++) heed_tensor_free(tensors[i]);
}
#define FREE(...)                                                                                            \
  free_all(sizeof((heed_tensor *[]){__VA_ARGS__}) / sizeof(heed_tensor *), (heed_tensor *[]){__VA_ARGS__})

static double setting(const heed_module *m, const char *name) {
  heed_scalar value;
  assert_true(heed_module_setting(m, name, &value));
  return value.dtype == HEED_FLOAT32 ? value.as.number : (double)value.as.integer;
}

static void assert_described(const heed_module *m, const char *wanted) {
  char text[128];
  heed_module_describe(m, text, sizeof text);
  assert_string_equal(text, wanted);
}

/* ---- Linear and Dropout ---- */

static void linear_draws_the_same_weights_as_pytorch(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  /* torch.manual_seed(123); nn.Linear(3, 2) */
  static const float weight[] = {-0.23542964458465576f, 0.019124476239085197f, -0.28674593567848206f,
                                 0.21772661805152893f,  -0.491934210062027f,   0.423223078250885f};
  heed_module *m = NULL;
  heed_entry entry;
  heed_generator_seed(heed_default_generator(ctx), 123);
  assert_ok(heed_linear_new(ctx, NULL, 3, 2, true, &m));
  assert_int_equal(heed_module_entry_count(m), 2);
  assert_true(heed_module_entry(m, 1, &entry));
  assert_string_equal(entry.name, "weight");
  assert_int_equal(entry.kind, HEED_ENTRY_PARAMETER);
  assert_true(heed_tensor_is_parameter(entry.parameter));
  assert_memory_equal(entry.parameter->data, weight, sizeof weight);
  assert_true(heed_module_entry(m, 2, &entry));
  assert_string_equal(entry.name, "bias");
  assert_false(heed_module_entry(m, 0, &entry));
  assert_false(heed_module_entry(m, 3, &entry));
  assert_described(m, "in_features=3, out_features=2, bias=True");
  assert_true(setting(m, "in_features") == 3 && setting(m, "out_features") == 2);
  heed_scalar unused;
  assert_false(heed_module_setting(m, "p", &unused));
  char little[8];
  heed_module_describe(m, little, sizeof little);
  assert_string_equal(little, "in_feat");
  heed_module_release(m);
}

static void dropout_is_active_in_training_mode_only(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const struct {
    double p;
    const char *text;
  } tried[] = {{0.5, "p=0.5, inplace=False"},      {0, "p=0.0, inplace=False"},
               {1, "p=1.0, inplace=False"},        {1e-5, "p=1e-05, inplace=False"},
               {0.1, "p=0.1, inplace=False"},      {1 / 3.0, "p=0.3333333333333333, inplace=False"},
               {0.0001, "p=0.0001, inplace=False"}};
  for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
    heed_module *m = NULL;
    assert_ok(heed_dropout_new(ctx, tried[i].p, &m));
    assert_described(m, tried[i].text);
    assert_true(setting(m, "p") == tried[i].p);
    heed_module_release(m);
  }
  heed_module *m = NULL;
  heed_tensor *x = normal(ctx, 1, SHAPE(100));
  assert_ok(heed_dropout_new(ctx, 0.5, &m));
  heed_module_train(m, false);
  heed_generator before = ctx->generator;
  heed_tensor *same = apply(m, x);
  assert_memory_equal(same->data, x->data, 400);
  assert_memory_equal(&ctx->generator, &before, sizeof before);
  heed_module_train(m, true);
  heed_tensor *dropped = apply(m, x);
  assert_memory_not_equal(dropped->data, x->data, 400);
  FREE(x, same, dropped);
  heed_module_release(m);
}

/* ---- Attention ---- */

static void multi_head_attention_equals_its_composition_of_operations(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int way = 0; way < 8; way++) {
    heed_attention_config c = config_of(5, 8, 4);
    c.num_kv_heads = way & 1 ? 2 : 0;
    c.out_proj = (way & 2) != 0;
    c.qkv_bias = (way & 4) != 0;
    c.head_dim = 3;
    heed_module *m = multi_head(ctx, &c);
    const int64_t kv = (int64_t)setting(m, "num_kv_heads");
    heed_tensor *base = normal(ctx, 3, SHAPE(2, 5, 6)), *x = NULL;
    assert_ok(heed_transpose(ctx, base, 2, 3, &x)); /* [2, 6, 5], strided */
    heed_tensor *y = apply(m, x), *part[3] = {NULL}, *heads[3] = {NULL}, *views[3] = {NULL};
    for (int i = 0; i < 3; i++) {
      part[i] = apply(m->slots[i].module, x);
      assert_ok(heed_view(ctx, part[i], 4, SHAPE(2, 6, i == 0 ? 4 : kv, 3), &views[i]));
      assert_ok(heed_transpose(ctx, views[i], 2, 3, &heads[i]));
    }
    heed_tensor *attended = NULL, *swapped = NULL, *wanted = NULL;
    const heed_attention_options options = {.size = sizeof options, .is_causal = true};
    assert_ok(
        heed_scaled_dot_product_attention(ctx, heads[0], heads[1], heads[2], &options, &attended, NULL));
    assert_ok(heed_transpose(ctx, attended, 2, 3, &swapped));
    assert_ok(heed_reshape(ctx, swapped, 3, SHAPE(2, 6, 12), &wanted));
    if (c.out_proj) {
      heed_tensor *projected = apply(heed__module_part(m, "out_proj"), wanted);
      heed_tensor_free(wanted);
      wanted = projected;
    }
    assert_close(ctx, y, wanted, 1e-6);
    free_all(3, part);
    free_all(3, heads);
    free_all(3, views);
    FREE(base, x, y, attended, swapped, wanted);
    heed_module_release(m);
  }
}

static void a_split_module_gives_the_same_results_and_shares_the_weights(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_attention_config c = config_of(3, 8, 4);
  c.out_proj = false;
  c.num_kv_heads = 2;
  c.qkv_bias = true;
  heed_module *m = multi_head(ctx, &c), *split = NULL;
  heed_tensor *x = normal(ctx, 3, SHAPE(2, 6, 3)), *query = NULL, *key = NULL, *value = NULL;
  assert_ok(heed_module_split(m, &split));
  assert_string_equal(heed_module_class(split), "MultiHeadAttentionWrapper");
  heed_tensor *y = apply(m, x), *z = apply(split, x);
  assert_close(ctx, y, z, 1e-6);

  assert_ok(heed_module_head(m, 4, &query, &key, &value));
  assert_shape(query, 2, SHAPE(3, 2));
  const heed_module *last = heed__module_part(heed__module_part(split, "heads"), "3");
  assert_ptr_equal(query->data, last->slots[0].module->slots[0].parameter->data);
  assert_ptr_equal(key->data, last->slots[1].module->slots[0].parameter->data);
  *(float *)(void *)value->data += 1; /* seen by both */
  FREE(y, z, query, key, value);
  y = apply(m, x), z = apply(split, x);
  assert_close(ctx, y, z, 1e-6);
  FREE(x, y, z);
  heed_module_release(m); /* the split stays */
  x = normal(ctx, 2, SHAPE(6, 3));
  y = apply(split, x);
  FREE(x, y);
  heed_module_release(split);
}

typedef heed_status constructor(heed_context *, heed_generator *, const heed_attention_config *,
                                heed_module **);
static constructor *const constructors[] = {heed_self_attention_new, heed_causal_attention_new,
                                            heed_multi_head_attention_wrapper_new,
                                            heed_multi_head_attention_new};

static void requesting_taps_changes_no_bit(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int i = 0; i < 5; i++) {
    heed_attention_config c = config_of(3, 4, 2);
    c.dropout = 0.5;
    if (i == 4) c.softmax_dim = 1;
    heed_module *m = NULL;
    assert_ok(constructors[i == 4 ? 1 : i](ctx, NULL, &c, &m));
    for (int batched = 0; batched < 2; batched++) {
      const bool heads = i == 2 || i == 3, drops = i != 0;
      const int64_t d = i == 3 ? 2 : 4;
      heed_tensor *x = batched ? normal(ctx, 3, SHAPE(2, 5, 3)) : normal(ctx, 2, SHAPE(5, 3)), *y = NULL,
                  *z = NULL;
      heed_attention_taps found = {.size = sizeof found};
      heed_generator_seed(heed_default_generator(ctx), 1);
      assert_ok(heed_module_forward(m, x, NULL, &y, NULL));
      heed_generator_seed(heed_default_generator(ctx), 1);
      assert_ok(heed_module_forward(m, x, NULL, &z, &found));
      assert_int_equal(z->numel, y->numel);
      assert_memory_equal(z->data, y->data, (size_t)y->numel * sizeof(float));
      int64_t shape[4] = {2, 2, 5, 5};
      const int skip = batched ? 0 : 1;
      if (!heads) shape[1] = shape[0];
      const int64_t *from = heads ? shape + skip : shape + 1 + skip;
      const int ndim = 2 + batched + heads;
      assert_shape(found.scores, ndim, from);
      assert_shape(found.weights, ndim, from);
      if (drops)
        assert_shape(found.dropped_weights, ndim, from);
      else
        assert_null(found.dropped_weights);
      shape[3] = d;
      assert_shape(found.queries, ndim, from);
      assert_shape(found.keys, ndim, from);
      assert_shape(found.values, ndim, from);
      heed_attention_taps_free(&found);
      assert_null(found.scores);
      FREE(x, y, z);
    }
    heed_module_release(m);
  }
}

static void softmax_over_the_queries_sums_columns_to_one(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_attention_config c = config_of(3, 4, 1);
  c.softmax_dim = -2;
  heed_module *m = NULL;
  assert_ok(heed_causal_attention_new(ctx, NULL, &c, &m));
  heed_tensor *x = normal(ctx, 3, SHAPE(2, 6, 3)), *y = NULL, *sums = NULL, *ones = NULL, *wanted = NULL;
  heed_attention_taps found = {.size = sizeof found};
  assert_ok(heed_module_forward(m, x, NULL, &y, &found));
  assert_ok(heed_sum(ctx, found.weights, 1, (const int[]){2}, false, &sums));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(2, 6), heed_number(1), &ones));
  assert_close(ctx, sums, ones, 1e-6);
  assert_ok(heed_matmul(ctx, found.weights, found.values, &wanted));
  assert_close(ctx, y, wanted, 1e-6);
  FREE(y, sums, ones, wanted);

  /* the first item's last token is hidden, sees no key and is nan, which must not affect the rest */
  heed_tensor *padding = NULL, *mask = NULL, *clean = NULL, *poisoned = NULL;
  assert_ok(heed_full(ctx, HEED_BOOL, 2, SHAPE(2, 6), heed_boolean(false), &padding));
  assert_ok(heed_full(ctx, HEED_BOOL, 2, SHAPE(6, 1), heed_boolean(true), &mask));
  padding->data[5] = 1;
  mask->data[5] = 0;
  heed_forward_options options = {.size = sizeof options, .attn_mask = mask, .key_padding_mask = padding};
  assert_ok(heed_module_forward(m, x, &options, &clean, NULL));
  ((float *)(void *)x->data)[5 * 3] = NAN;
  assert_ok(heed_module_forward(m, x, &options, &poisoned, NULL));
  assert_memory_equal(poisoned->data, clean->data, (size_t)clean->numel * sizeof(float));
  heed_attention_taps_free(&found);
  FREE(x, padding, mask, clean, poisoned);
  heed_module_release(m);
}

static void all_attention_modules_take_masks(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = normal(ctx, 3, SHAPE(2, 4, 3)), *some = NULL, *padding = NULL;
  assert_ok(heed_full(ctx, HEED_BOOL, 3, SHAPE(2, 4, 4), heed_boolean(true), &some));
  assert_ok(heed_full(ctx, HEED_BOOL, 2, SHAPE(2, 4), heed_boolean(false), &padding));
  some->data[16] = 0;   /* second item: the first query does not see the first key */
  padding->data[3] = 1; /* first item: the last key is padding */
  for (int i = 0; i < 4; i++) {
    const heed_attention_config c = config_of(3, 4, 2);
    heed_module *m = NULL;
    heed_tensor *mask = NULL, *y = NULL;
    heed_attention_taps found = {.size = sizeof found};
    assert_ok(constructors[i](ctx, NULL, &c, &m));
    assert_ok(i >= 2 ? heed_unsqueeze(ctx, some, 2, &mask) : heed_tensor_alias(ctx, some, &mask));
    const heed_forward_options options = {
        .size = sizeof options, .attn_mask = mask, .key_padding_mask = padding};
    assert_ok(heed_module_forward(m, x, &options, &y, &found));
    const float *w = (const float *)(const void *)found.weights->data;
    const int64_t item = found.weights->numel / 2;
    assert_true(w[15] == 0 && w[14] > 0); /* padded key of the last query, and the one before */
    assert_true(w[item] == 0 && (i == 0) == (w[item + 1] > 0)); /* hidden; causal modules then see nothing */
    heed_attention_taps_free(&found);
    FREE(mask, y);
    heed_module_release(m);
  }
  FREE(x, some, padding);
}

/* ---- Entries ---- */

static void entries_are_in_the_notebooks_order(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const char *const wanted[] = {"W_query", "W_key", "W_value", "out_proj", "dropout"};
  const heed_attention_config c = config_of(3, 4, 2);
  heed_module *m = multi_head(ctx, &c), *wrapper = NULL;
  heed_entry entry;
  for (int i = 0; i < 5; i++) {
    assert_true(heed_module_entry(m, i + 1, &entry));
    assert_string_equal(entry.name, wanted[i]);
    assert_int_equal(entry.kind, HEED_ENTRY_MODULE);
  }
  assert_int_equal(heed_module_entry_count(m), 5);
  assert_true(setting(m, "head_dim") == 2 && setting(m, "num_kv_heads") == 2 && setting(m, "causal") == 1);
  assert_true(setting(m, "scale") == 1 / sqrt(2.0) && setting(m, "context_length") == 6);
  assert_ok(heed_multi_head_attention_wrapper_new(ctx, NULL, &c, &wrapper));
  assert_int_equal(heed_module_entry_count(wrapper), 1);
  assert_true(heed_module_entry(wrapper, 1, &entry));
  assert_string_equal(entry.name, "heads");
  assert_string_equal(heed_module_class(entry.module), "ModuleList");
  assert_true(heed_module_entry(entry.module, 2, &entry));
  assert_string_equal(entry.name, "1");
  assert_string_equal(heed_module_class(entry.module), "CausalAttention");
  heed_module_train(wrapper, false);
  assert_false(heed_module_training(entry.module));
  heed_module_release(m);
  heed_module_release(wrapper);
}

static void entries_can_be_replaced_by_matching_ones(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const heed_attention_config c = config_of(3, 4, 2);
  heed_module *m = multi_head(ctx, &c), *other = multi_head(ctx, &c), *linear = NULL;
  heed_module *query = heed__module_part(m, "W_query"), *foreign = heed__module_part(other, "W_query");
  heed_tensor *x = normal(ctx, 3, SHAPE(2, 6, 3)), *w = normal(ctx, 2, SHAPE(4, 3)),
              *wide = normal(ctx, 2, SHAPE(4, 4));
  heed_tensor *whole = NULL, *before = apply(m, x);
  assert_ok(heed_module_set_module(m, "W_query", foreign));
  assert_ok(heed_module_set_module(m, "W_query", foreign)); /* itself */
  heed_tensor *after = apply(m, x);
  assert_memory_not_equal(before->data, after->data, (size_t)after->numel * sizeof(float));
  assert_ok(heed_module_set_parameter(foreign, "weight", w)); /* shared: both modules see it */
  *(float *)(void *)w->data = 9;
  assert_true(*(float *)(void *)heed__module_part(m, "W_query")->slots[0].parameter->data == 9);
  query = heed__module_part(m, "W_key");

  assert_ok(heed_linear_new(ctx, NULL, 4, 4, false, &linear));
  assert_ok(heed_to(ctx, w, HEED_INT64, &whole));
  assert_fails(ctx, heed_module_set_parameter(query, "weight", wide), HEED_SHAPE,
               "Linear: weight is [4, 4]; it must be [4, 3], since the module is a part of a built-in one");
  assert_int_equal(heed_module_set_parameter(query, "weight", whole), HEED_DTYPE);
  assert_fails(ctx, heed_module_set_parameter(query, "bias", w), HEED_ARGUMENT,
               "Linear: name is 'bias'; it must be the name of a parameter of the module");
  assert_fails(ctx, heed_module_set_module(m, "W_key", linear), HEED_ARGUMENT,
               "MultiHeadAttention: W_key has in_features = 4; it must be 3");
  assert_fails(ctx, heed_module_set_module(m, "dropout", linear), HEED_ARGUMENT,
               "MultiHeadAttention: dropout is a module of class Linear; it must be a Dropout");
  assert_fails(ctx, heed_module_set_module(m, "heads", linear), HEED_ARGUMENT,
               "MultiHeadAttention: name is 'heads'; it must be the name of a module of the module");

  heed_attention_config more = c;
  more.num_heads = 3;
  heed_module *two = NULL, *three = NULL;
  assert_ok(heed_multi_head_attention_wrapper_new(ctx, NULL, &c, &two));
  assert_ok(heed_multi_head_attention_wrapper_new(ctx, NULL, &more, &three));
  assert_fails(ctx, heed_module_set_module(two, "heads", heed__module_part(three, "heads")), HEED_ARGUMENT,
               "MultiHeadAttentionWrapper: heads has 3 entries; it must have 2");
  assert_fails(ctx, heed_module_set_module(three, "heads", heed__module_part(two, "heads")), HEED_ARGUMENT,
               "MultiHeadAttentionWrapper: heads has 2 entries; it must have 3");
  FREE(x, w, wide, whole, before, after);
  heed_module *const all[] = {m, other, linear, two, three};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_module_release(all[i]);
}

/* ---- Invalid arguments ---- */

static void constructors_refuse_invalid_arguments_before_drawing(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const heed_generator before = ctx->generator;
  heed_module *m = NULL;
  heed_attention_config c;
#define REFUSES(new, change, text)                                                                           \
  c = config_of(3, 4, 2);                                                                                    \
  change;                                                                                                    \
  assert_fails(ctx, new (ctx, NULL, &c, &m), HEED_ARGUMENT, text)
  REFUSES(heed_self_attention_new, c.d_in = 0, "SelfAttention: d_in is 0; it must be at least 1");
  REFUSES(heed_causal_attention_new, c.d_out = -1, "CausalAttention: d_out is -1; it must be at least 1");
  REFUSES(heed_causal_attention_new, c.context_length = 0,
          "CausalAttention: context_length is 0; it must be at least 1");
  REFUSES(heed_causal_attention_new, c.dropout = NAN,
          "CausalAttention: dropout is nan; it must be from 0 to 1");
  REFUSES(heed_multi_head_attention_wrapper_new, c.num_heads = 0,
          "MultiHeadAttentionWrapper: num_heads is 0; it must be at least 1");
  REFUSES(heed_multi_head_attention_new, c.num_heads = 3,
          "MultiHeadAttention: d_out is 4 and num_heads is 3; num_heads must divide d_out");
  REFUSES(heed_multi_head_attention_new, (c.num_heads = 4, c.num_kv_heads = 3),
          "MultiHeadAttention: num_heads is 4 and num_kv_heads is 3; num_kv_heads must divide num_heads");
  REFUSES(heed_multi_head_attention_new, c.head_dim = -2,
          "MultiHeadAttention: head_dim is -2; it must be at least 1");
  REFUSES(heed_multi_head_attention_new, c.scale = INFINITY,
          "MultiHeadAttention: scale is inf; it must be finite");
  REFUSES(heed_multi_head_attention_new, c.dropout = 2,
          "MultiHeadAttention: dropout is 2; it must be from 0 to 1");
#undef REFUSES
  c = config_of(3, 4, 2);
  c.softmax_dim = 4;
  assert_fails(ctx, heed_causal_attention_new(ctx, NULL, &c, &m), HEED_INDEX,
               "CausalAttention: softmax_dim is 4; it must be from 1 to 3, or from -3 to -1");
  c = config_of(3, 4, INT64_MAX);
  assert_int_equal(heed_multi_head_attention_wrapper_new(ctx, NULL, &c, &m), HEED_ARGUMENT);
  c = config_of(3, 4, INT64_MAX / 2);
  c.head_dim = 4;
  assert_int_equal(heed_multi_head_attention_new(ctx, NULL, &c, &m), HEED_SHAPE);
  c = config_of(INT64_MAX, INT64_MAX, 1);
  assert_int_equal(heed_self_attention_new(ctx, NULL, &c, &m), HEED_SHAPE);
  assert_fails(ctx, heed_linear_new(ctx, NULL, 0, 2, true, &m), HEED_ARGUMENT,
               "Linear: d_in is 0; it must be at least 1");
  assert_fails(ctx, heed_dropout_new(ctx, -0.1, &m), HEED_ARGUMENT,
               "Dropout: p is -0.1; it must be from 0 to 1");
  assert_null(m);
  assert_memory_equal(&ctx->generator, &before, sizeof before);
}

static void forward_refuses_invalid_inputs(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_attention_config c = config_of(3, 4, 2);
  heed_module *causal = NULL, *linear = NULL, *m = multi_head(ctx, &c), *plain = NULL;
  heed_tensor *seven = normal(ctx, 3, SHAPE(1, 7, 3)), *four = normal(ctx, 2, SHAPE(2, 4)),
              *flat = normal(ctx, 1, SHAPE(3));
  heed_tensor *three = normal(ctx, 2, SHAPE(2, 3)), *out = NULL;
  c.softmax_dim = 3;
  assert_ok(heed_causal_attention_new(ctx, NULL, &c, &causal));
  assert_ok(heed_linear_new(ctx, NULL, 3, 2, false, &linear));
  c.causal = false;
  plain = multi_head(ctx, &c);
  assert_fails(ctx, heed_module_forward(causal, seven, NULL, &out, NULL), HEED_SHAPE,
               "CausalAttention: x has 7 tokens; it must have at most 6, the context_length");
  assert_fails(ctx, heed_module_forward(causal, three, NULL, &out, NULL), HEED_INDEX,
               "CausalAttention: softmax_dim is 3; it must be from 1 to 2, or from -2 to -1");
  assert_fails(ctx, heed_module_forward(m, four, NULL, &out, NULL), HEED_SHAPE,
               "MultiHeadAttention: x is [2, 4]; it must be [n, 3] or [b, n, 3], since d_in is 3");
  assert_int_equal(heed_module_forward(m, flat, NULL, &out, NULL), HEED_SHAPE);
  assert_fails(ctx, heed_module_forward(m, NULL, NULL, &out, NULL), HEED_ARGUMENT,
               "MultiHeadAttention: x is missing (NULL)");
  heed_forward_options options = {.size = sizeof options, .attn_mask = four};
  assert_fails(ctx, heed_module_forward(m, three, &options, &out, NULL), HEED_SHAPE,
               "MultiHeadAttention: attn_mask is [2, 4] and must broadcast to [2, 2, 2]; its size 4 of "
               "dimension 2 must "
               "be 1 or 2");
  assert_fails(ctx, heed_module_forward(linear, three, &options, &out, NULL), HEED_ARGUMENT,
               "Linear: attn_mask is given; only attention modules take it");
  heed_attention_taps taps = {.size = sizeof taps};
  assert_fails(ctx, heed_module_forward(linear, three, NULL, &out, &taps), HEED_ARGUMENT,
               "Linear: need_weights is given; only attention modules take it");
  heed_module *split = NULL;
  heed_tensor *query = NULL, *key = NULL, *value = NULL;
  assert_fails(ctx, heed_module_split(linear, &split), HEED_ARGUMENT,
               "split: the module is a Linear; it must be a MultiHeadAttention");
  assert_fails(
      ctx, heed_module_split(plain, &split), HEED_ARGUMENT,
      "split: the module is not causal; it must be causal, with scale 1/√head_dim and no other option");
  assert_fails(ctx, heed_module_head(m, 3, &query, &key, &value), HEED_INDEX,
               "head: i is 3; it must be from 1 to 2, or from -2 to -1");
  assert_true(out == NULL && split == NULL && query == NULL);
  FREE(seven, four, flat, three);
  heed_module *const all[] = {causal, linear, m, plain};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_module_release(all[i]);
}

/* ---- Memory ---- */

/* Makes a module and runs it with all options; a failure leaves the generator unchanged. */
static heed_status build_and_run(heed_context *ctx, constructor *construct, int softmax_dim) {
  heed_attention_config c = config_of(3, 4, 2);
  c.qkv_bias = true;
  c.dropout = 0.5;
  c.softmax_dim = softmax_dim;
  heed_module *m = NULL, *split = NULL;
  heed_tensor *x = NULL, *mask = NULL, *y = NULL, *z = NULL;
  heed_attention_taps found = {.size = sizeof found};
  heed_generator before = ctx->generator;
  heed_status status = construct(ctx, NULL, &c, &m);
  if (status != HEED_OK) {
    assert_memory_equal(&ctx->generator, &before, sizeof before);
    return status;
  }
  status = heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 6, 3), &x);
  if (status == HEED_OK) status = heed_full(ctx, HEED_FLOAT32, 2, SHAPE(6, 5), heed_number(1), &mask);
  before = ctx->generator;
  const heed_forward_options options = {.size = sizeof options, .attn_mask = mask};
  if (status == HEED_OK) {
    status = heed_module_forward(m, x, &options, &y, &found);
    if (status != HEED_OK) {
      assert_memory_equal(&ctx->generator, &before, sizeof before);
      assert_true(y == NULL && found.scores == NULL);
    }
  }
  if (status == HEED_OK && construct == heed_multi_head_attention_new) status = heed_module_split(m, &split);
  if (split != NULL && status == HEED_OK) status = heed_module_forward(split, x, &options, &z, NULL);
  FREE(x, mask, y, z);
  heed_attention_taps_free(&found);
  heed_module_release(m);
  heed_module_release(split);
  return status;
}

static heed_status self_scenario(heed_context *ctx) {
  return build_and_run(ctx, heed_self_attention_new, -1);
}
static heed_status causal_scenario(heed_context *ctx) {
  return build_and_run(ctx, heed_causal_attention_new, -1);
}
static heed_status along_scenario(heed_context *ctx) {
  return build_and_run(ctx, heed_causal_attention_new, 2);
}
static heed_status multi_scenario(heed_context *ctx) {
  return build_and_run(ctx, heed_multi_head_attention_new, -1);
}
static heed_status wrapper_scenario(heed_context *ctx) {
  return build_and_run(ctx, heed_multi_head_attention_wrapper_new, -1);
}

static void nothing_leaks_when_memory_runs_out(void **state) {
  (void)state;
  survives_every_failing_allocation(self_scenario);
  survives_every_failing_allocation(causal_scenario);
  survives_every_failing_allocation(along_scenario);
  survives_every_failing_allocation(multi_scenario);
  survives_every_failing_allocation(wrapper_scenario);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(linear_draws_the_same_weights_as_pytorch),
      TEST(dropout_is_active_in_training_mode_only),
      TEST(multi_head_attention_equals_its_composition_of_operations),
      TEST(a_split_module_gives_the_same_results_and_shares_the_weights),
      TEST(requesting_taps_changes_no_bit),
      TEST(softmax_over_the_queries_sums_columns_to_one),
      TEST(all_attention_modules_take_masks),
      TEST(entries_are_in_the_notebooks_order),
      TEST(entries_can_be_replaced_by_matching_ones),
      TEST(constructors_refuse_invalid_arguments_before_drawing),
      TEST(forward_refuses_invalid_inputs),
      cmocka_unit_test(nothing_leaks_when_memory_runs_out),
  };
  return cmocka_run_group_tests_name("modules", tests, NULL, NULL);
}
