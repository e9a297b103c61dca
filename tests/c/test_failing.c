/* Typical uses of the C interface by a host, with the 1st, 2nd, … allocation failing until they succeed:
 * nothing crashes, leaks, or is changed partially. Single functions are in test_ops_failing and in their own
 * tests. */
#define _DEFAULT_SOURCE /* mkdtemp */

#include "support.h"

#include <stdio.h>
#include <unistd.h>

#define TRY(call)                                                                                            \
  if ((status = (call)) != HEED_OK) goto done

static const char *const names[] = {"x", "y"};
static char folder[] = "/tmp/heed_failing_XXXXXX", path[64];

/* Tensors in host memory, random draws, operations. */
static heed_status with_tensors(heed_context *ctx) {
  float numbers[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  heed_tensor *x = NULL, *drawn = NULL, *y = NULL, *sorted = NULL, *indices = NULL;
  heed_generator *g = NULL;
  heed_status status;
  TRY(heed_tensor_from_memory(ctx, HEED_FLOAT32, 2, SHAPE(3, 4), numbers, NULL, NULL, &x));
  TRY(heed_generator_new(ctx, 1, &g));
  TRY(heed_normal(ctx, g, 0, 1, 2, SHAPE(4, 3), &drawn));
  TRY(heed_matmul(ctx, x, drawn, &y));
  TRY(heed_softmax(ctx, y, -1, &y));
  TRY(heed_sort(ctx, y, 1, true, &sorted, &indices));
done:
  assert_true(numbers[0] == 1 && numbers[11] == 12);
  heed_tensor_free(indices);
  heed_tensor_free(sorted);
  heed_tensor_free(y);
  heed_tensor_free(drawn);
  heed_tensor_free(x);
  heed_generator_free(g);
  return status;
}

/* A module with all options, saving and loading weights, forward with all taps, decoding with a cache. */
static heed_status with_modules(heed_context *ctx) {
  heed_rope_config rope;
  heed_attention_config config;
  heed_kv_cache_config cached;
  heed_module *m = NULL, *wrapper = NULL;
  heed_kv_cache *cache = NULL, *copy = NULL;
  heed_archive *archive = NULL;
  heed_tensor *x = NULL, *y = NULL, *loaded = NULL;
  heed_attention_taps taps = {.size = sizeof taps};
  heed_status status;
  heed_rope_config_init(&rope, sizeof rope);
  heed_attention_config_init(&config, sizeof config);
  heed_kv_cache_config_init(&cached, sizeof cached);
  config.d_in = config.d_out = 8;
  config.context_length = 16;
  config.num_heads = 2;
  config.dropout = 0.5;
  TRY(heed_multi_head_attention_wrapper_new(ctx, NULL, &config, &wrapper));
  config.rope = &rope;
  config.alibi = config.sinks = config.qk_norm = config.qkv_bias = true;
  TRY(heed_multi_head_attention_new(ctx, NULL, &config, &m));
  TRY(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(3, 8), &x));
  TRY(heed_module_forward(wrapper, x, NULL, &y, &taps));
  heed_attention_taps_free(&taps);
  cached.dtype = HEED_INT8;
  TRY(heed_kv_cache_new(m, &cached, &cache));
  heed_module_train(m, false);
  heed_tensor_free(y);
  y = NULL;
  const heed_forward_options options = {.size = sizeof options, .cache = cache};
  for (int i = 1; i <= 2; i++) {
    const int64_t before = heed_kv_cache_length(cache);
    status = heed_module_forward(m, x, &options, &y, &taps);
    assert_int_equal(heed_kv_cache_length(cache), status == HEED_OK ? before + 3 : before);
    heed_attention_taps_free(&taps);
    if (status != HEED_OK) goto done;
  }
  TRY(heed_kv_cache_clone(cache, &copy));
  TRY(heed_module_to(m, HEED_BFLOAT16));
  const heed_tensor *const both[] = {x, y};
  TRY(heed_save_archive(ctx, path, 2, names, both, 0, NULL));
  TRY(heed_load_archive(ctx, path, &archive));
  TRY(heed_archive_tensor(archive, 1, &loaded));
  bool same = false;
  TRY(heed_equal(ctx, loaded, x, &same));
  assert_true(same);
done:
  heed_attention_taps_free(&taps);
  heed_tensor_free(loaded);
  heed_archive_free(archive);
  heed_kv_cache_free(copy);
  heed_kv_cache_free(cache);
  heed_tensor_free(y);
  heed_tensor_free(x);
  heed_module_release(m);
  heed_module_release(wrapper);
  return status;
}

static void tensors_survive_every_failing_allocation(void **state) {
  (void)state;
  survives_every_failing_allocation(with_tensors);
}

static void modules_files_and_caches_survive_every_failing_allocation(void **state) {
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/two.safetensors", folder);
  survives_every_failing_allocation(with_modules);
  assert_int_equal(remove(path), 0);
  assert_int_equal(rmdir(folder), 0); /* no partial file is left */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensors_survive_every_failing_allocation),
      cmocka_unit_test(modules_files_and_caches_survive_every_failing_allocation),
  };
  return cmocka_run_group_tests_name("a host without memory", tests, NULL, NULL);
}
