/* Modules that the host implements as parts of attention modules, and settings that are changed. */
#include "support.h"

#include <math.h>
#include <string.h>

typedef struct host_part {
  heed_module *inner; /* applied; NULL: the input is copied */
  heed_status fails;
  int calls, released;
  bool training;
} host_part;

static heed_status forward_part(void *user, heed_module *m, const heed_tensor *x, heed_tensor **out) {
  host_part *part = user;
  part->calls++;
  part->training = heed_module_training(m);
  if (part->fails != HEED_OK) return part->fails;
  return part->inner != NULL ? heed_module_forward(part->inner, x, NULL, out, NULL)
                             : heed_to(heed_module_context(m), x, HEED_FLOAT32, out);
}

static void release_part(void *user) {
  host_part *part = user;
  part->released++;
  heed_module_release(part->inner);
}

static heed_status new_heads(heed_context *ctx, heed_module **out) {
  heed_attention_config config;
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = 8;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.context_length = 6;
  return heed_multi_head_attention_new(ctx, NULL, &config, out);
}

/* Wraps the part `name` of m. */
static heed_status wrap(heed_module *m, const char *name, host_part *part) {
  const heed_own_config config = {
      .size = sizeof config, .name = "Host", .user = part, .forward = forward_part, .release = release_part};
  heed_module *own = NULL;
  heed_entry entry;
  *part = (host_part){.fails = HEED_OK};
  for (int i = 1; heed_module_entry(m, i, &entry); i++) {
    if (strcmp(entry.name, name) == 0) part->inner = heed_module_retain(entry.module);
  }
  heed_status status = heed_own_module_new(heed_module_context(m), &config, &own);
  if (status != HEED_OK) {
    heed_module_release(part->inner);
    return status;
  }
  status = heed_module_set_module(m, name, own);
  heed_module_release(own);
  return status;
}

static void assert_same(heed_context *ctx, const heed_tensor *a, const heed_tensor *b) {
  bool close = false;
  assert_ok(heed_allclose(ctx, a, b, 1e-6, 1e-6, false, &close));
  assert_true(close);
}

static void parts_of_the_host_are_called(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const char *const names[] = {"W_query", "W_key", "W_value", "out_proj", "dropout"};
  heed_module *m = NULL;
  heed_tensor *x = NULL, *y = NULL, *z = NULL;
  host_part parts[5];
  assert_ok(new_heads(ctx, &m));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 5, 8), &x));
  assert_ok(heed_module_forward(m, x, NULL, &y, NULL));
  for (int i = 0; i < 5; i++) {
    assert_ok(wrap(m, names[i], &parts[i]));
    assert_ok(heed_module_forward(m, x, NULL, &z, NULL)); /* from the second time on into *out */
    assert_same(ctx, y, z);
  }
  heed_module_train(m, false);
  assert_ok(heed_module_forward(m, x, NULL, &z, NULL));
  for (int i = 0; i < 5; i++) {
    assert_int_equal(parts[i].calls, 6 - i);
    assert_false(parts[i].training);
  }
  heed_steps *steps = NULL;
  assert_int_equal(heed_steps_new(m, x, NULL, false, &steps), HEED_ARGUMENT);
  assert_string_equal(heed_message(ctx),
                      "steps: W_query is a module of class Host; it must be a Linear, since steps "
                      "does not call modules of other classes");
  heed_module_release(m);
  for (int i = 0; i < 5; i++) assert_int_equal(parts[i].released, 1);
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_tensor_free(z);
}

static void failures_leave_everything_as_it_was(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_module *m = NULL;
  heed_kv_cache *cache = NULL;
  heed_tensor *x = NULL, *y = NULL, *wrong = NULL;
  host_part part;
  assert_ok(new_heads(ctx, &m));
  assert_ok(heed_kv_cache_new(m, NULL, &cache));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(3, 8), &x));
  assert_ok(wrap(m, "out_proj", &part));
  const heed_forward_options options = {.size = sizeof options, .cache = cache};
  part.fails = HEED_FILE;
  assert_int_equal(heed_module_forward(m, x, &options, &y, NULL), HEED_FILE);
  assert_int_equal(heed_kv_cache_length(cache), 0);
  assert_null(y);
  part.fails = HEED_OK;
  assert_ok(heed_module_forward(m, x, &options, &y, NULL));
  assert_int_equal(heed_kv_cache_length(cache), 3);

  heed_module *linear = NULL, *heads = NULL, *gelu = NULL;
  assert_ok(heed_linear_new(ctx, NULL, 7, 8, true, &linear));
  assert_int_equal(heed_module_set_module(m, "W_key", linear), HEED_ARGUMENT);
  assert_string_equal(heed_message(ctx), "MultiHeadAttention: W_key has in_features = 7; it must be 8");
  assert_int_equal(heed_module_set_module(m, "W_key", m), HEED_ARGUMENT);
  assert_ok(new_heads(ctx, &heads));
  assert_int_equal(heed_module_set_module(m, "W_key", heads), HEED_ARGUMENT);
  assert_ok(heed_gelu_new(ctx, false, &gelu)); /* its result is [3, 8], and not [3, 4] */
  assert_ok(heed_module_set_module(m, "W_key", gelu));
  assert_int_equal(heed_module_forward(m, x, NULL, &wrong, NULL), HEED_SHAPE);
  assert_string_equal(heed_message(ctx),
                      "MultiHeadAttention: the result of W_key (GELU) is [3, 8]; it must be [3, 4]");
  heed_module_release(gelu);
  heed_module_release(heads);
  heed_module_release(linear);
  heed_module_release(m);
  heed_kv_cache_free(cache);
  heed_tensor_free(x);
  heed_tensor_free(y);
}

static heed_status own_scenario(heed_context *ctx) {
  heed_module *m = NULL;
  heed_tensor *x = NULL, *y = NULL;
  heed_attention_taps taps = {.size = sizeof taps};
  host_part query, dropout;
  heed_status status = new_heads(ctx, &m);
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 5, 8), &x);
  if (status == HEED_OK) status = wrap(m, "W_query", &query);
  if (status == HEED_OK) status = wrap(m, "dropout", &dropout);
  if (status == HEED_OK) status = heed_module_forward(m, x, NULL, &y, &taps);
  heed_attention_taps_free(&taps);
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_module_release(m);
  return status;
}

static void nothing_leaks_when_memory_runs_out(void **state) {
  (void)state;
  survives_every_failing_allocation(own_scenario);
}

static double setting_of(const heed_module *m, const char *name) {
  heed_scalar value;
  assert_true(heed_module_setting(m, name, &value));
  return value.dtype == HEED_FLOAT32 ? value.as.number : (double)value.as.integer;
}

static void settings_are_changed_or_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_module *m = NULL, *dropout = NULL;
  assert_ok(new_heads(ctx, &m));
  assert_ok(heed_dropout_new(ctx, 0.5, &dropout));
  assert_ok(heed_module_set_setting(dropout, "p", heed_number(0.25)));
  assert_true(setting_of(dropout, "p") == 0.25);
  assert_int_equal(heed_module_set_setting(dropout, "p", heed_number(1.5)), HEED_ARGUMENT);
  assert_true(setting_of(dropout, "p") == 0.25);
  assert_ok(heed_module_set_setting(m, "scale", heed_integer(2)));
  assert_true(setting_of(m, "scale") == 2);
  assert_ok(heed_module_set_setting(m, "scale", heed_number(0)));
  assert_true(fabs(setting_of(m, "scale") - 0.7071067811865475) < 1e-15);
  assert_ok(heed_module_set_setting(m, "causal", heed_boolean(false)));
  assert_true(setting_of(m, "causal") == 0);
  assert_int_equal(heed_module_set_setting(m, "causal", heed_integer(1)), HEED_ARGUMENT);
  assert_string_equal(heed_message(ctx), "MultiHeadAttention: causal is an integer; it must be a boolean");
  assert_int_equal(heed_module_set_setting(m, "context_length", heed_number(2.5)), HEED_ARGUMENT);
  assert_int_equal(heed_module_set_setting(m, "num_heads", heed_integer(2)), HEED_ARGUMENT);
  assert_string_equal(
      heed_message(ctx),
      "MultiHeadAttention: name is 'num_heads'; it must be the name of a setting that can be changed");
  const heed_window window = {.has_left = true, .left = -1};
  assert_int_equal(heed_module_set_window(m, &window), HEED_ARGUMENT);
  assert_ok(heed_module_set_window(m, NULL));
  assert_int_equal(heed_module_set_window(dropout, NULL), HEED_ARGUMENT);
  assert_ok(heed_module_set_rope(m, NULL));
  heed_module_release(m);
  heed_module_release(dropout);
}

/* ---- Hooks ---- */

typedef struct host_hook {
  unsigned seen;
  double factor; /* of the weights; 0: they stay as they are */
  heed_status fails;
} host_hook;

static heed_status on_point(void *user, heed_module *m, heed_attention_point point, const heed_tensor *x,
                            heed_tensor **out) {
  host_hook *hook = user;
  hook->seen |= (unsigned)point;
  if (hook->fails != HEED_OK || hook->factor == 0 || point != HEED_POINT_PATTERN) return hook->fails;
  heed_context *ctx = heed_module_context(m);
  heed_tensor *factor = NULL;
  heed_status status = heed_full(ctx, HEED_FLOAT32, 0, NULL, heed_number(hook->factor), &factor);
  if (status == HEED_OK) status = heed_mul(ctx, x, factor, out);
  heed_tensor_free(factor);
  return status;
}

static void hooks_look_and_change(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  host_hook hook = {.fails = HEED_OK};
  heed_module *m = NULL;
  heed_tensor *x = NULL, *plain = NULL, *y = NULL;
  assert_ok(new_heads(ctx, &m));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 5, 8), &x));
  assert_ok(heed_module_forward(m, x, NULL, &plain, NULL));
  assert_ok(heed_attention_set_hook(m, HEED_POINT_RESULT - 1, on_point, &hook));
  assert_ok(heed_module_forward(m, x, NULL, &y, NULL));
  assert_int_equal(hook.seen, HEED_POINT_RESULT - 1);
  assert_memory_equal(heed_tensor_data(plain), heed_tensor_data(y), 2 * 5 * 8 * sizeof(float));
  hook.factor = 1;
  assert_ok(heed_module_forward(m, x, NULL, &y, NULL));
  assert_same(ctx, plain, y);
  hook.fails = HEED_LIMIT;
  assert_int_equal(heed_module_forward(m, x, NULL, &y, NULL), HEED_LIMIT);
  assert_int_equal(heed_attention_set_hook(m, HEED_POINT_RESULT, on_point, &hook), HEED_ARGUMENT);
  assert_ok(heed_attention_set_hook(m, 0, NULL, NULL));
  assert_ok(heed_module_forward(m, x, NULL, &y, NULL));
  assert_memory_equal(heed_tensor_data(plain), heed_tensor_data(y), 2 * 5 * 8 * sizeof(float));
  heed_tensor_free(x);
  heed_tensor_free(y);
  heed_tensor_free(plain);
  heed_module_release(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(parts_of_the_host_are_called),
      TEST(failures_leave_everything_as_it_was),
      TEST(settings_are_changed_or_refused),
      TEST(hooks_look_and_change),
      cmocka_unit_test(nothing_leaks_when_memory_runs_out),
  };
  return cmocka_run_group_tests_name("own parts", tests, NULL, NULL);
}
