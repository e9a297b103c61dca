/* Caches in files, from C: several layers, failing allocations, damaged bytes. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "support.h"

#include <stdio.h>
#include <unistd.h>

#include "../../src/nn/nn.h"

static char folder[] = "/tmp/heed_cache_XXXXXX", path[sizeof folder + 32];

static heed_status new_layers(heed_context *ctx, heed_module *m[2], heed_kv_cache *cache[2]) {
  heed_attention_config c;
  heed_status status = HEED_OK;
  heed_tensor *x = NULL, *y = NULL;
  heed_attention_config_init(&c, sizeof c);
  c.d_in = 6;
  c.d_out = 8;
  c.num_heads = 4;
  c.head_dim = 4;
  c.context_length = 40;
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 2, SHAPE(5, 6), &x);
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    c.num_kv_heads = i == 0 ? 4 : 2;
    const heed_kv_cache_config config = {.size = sizeof config, .dtype = i == 0 ? HEED_INT8 : HEED_FLOAT16};
    status = heed_multi_head_attention_new(ctx, NULL, &c, &m[i]);
    if (status == HEED_OK) status = heed_kv_cache_new(m[i], &config, &cache[i]);
    const heed_forward_options options = {.size = sizeof options, .cache = cache[i]};
    if (status == HEED_OK) status = heed_module_forward(m[i], x, &options, &y, NULL);
    heed_tensor_free(y);
    y = NULL;
  }
  heed_tensor_free(x);
  return status;
}

static void free_layers(heed_module *m[2], heed_kv_cache *cache[2]) {
  for (int i = 0; i < 2; i++) {
    heed_kv_cache_free(cache[i]);
    heed_module_release(m[i]);
  }
}

static void several_layers_are_one_file(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_module *m[2] = {NULL, NULL};
  heed_kv_cache *cache[2] = {NULL, NULL}, *loaded[2] = {NULL, NULL}, *none[2] = {NULL, NULL};
  assert_ok(new_layers(ctx, m, cache));
  assert_ok(heed_kv_caches_save(ctx, path, 2, cache));
  assert_ok(heed_kv_caches_load(ctx, path, 2, m, loaded));
  heed_tensor *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(3, 6), &x));
  for (int i = 0; i < 2; i++) {
    heed_tensor *y = NULL, *z = NULL;
    assert_int_equal(heed_kv_cache_length(loaded[i]), 5);
    assert_int_equal(heed_kv_cache_dtype(loaded[i]), heed_kv_cache_dtype(cache[i]));
    heed_forward_options options = {.size = sizeof options, .cache = cache[i]};
    assert_ok(heed_module_forward(m[i], x, &options, &y, NULL));
    options.cache = loaded[i];
    assert_ok(heed_module_forward(m[i], x, &options, &z, NULL));
    assert_memory_equal(y->data, z->data, (size_t)y->numel * sizeof(float));
    heed_tensor_free(y);
    heed_tensor_free(z);
  }
  heed_module *const swapped[] = {m[1], m[0]}, *const gap[] = {m[0], NULL};
  assert_int_equal(heed_kv_caches_load(ctx, path, 2, swapped, none), HEED_FILE);
  assert_int_equal(heed_kv_caches_load(ctx, path, 1, m, none), HEED_FILE);
  assert_fails(ctx, heed_kv_caches_load(ctx, path, 2, gap, none), HEED_ARGUMENT,
               "load_cache: module 2 is missing (NULL)");
  assert_int_equal(heed_kv_caches_load(ctx, path, 0, m, none), HEED_ARGUMENT);
  assert_int_equal(heed_kv_caches_load(ctx, NULL, 2, m, none), HEED_ARGUMENT);
  assert_int_equal(heed_kv_caches_load(NULL, path, 2, m, none), HEED_ARGUMENT);
  assert_fails(ctx, heed_kv_caches_save(ctx, path, 2, none), HEED_ARGUMENT,
               "save: cache 1 is missing (NULL)");
  assert_null(none[0]);
  assert_null(none[1]);
  heed_tensor_free(x);
  free_layers(m, cache);
  for (int i = 0; i < 2; i++) heed_kv_cache_free(loaded[i]);
  remove(path);
}

static heed_status save_and_load(heed_context *ctx) {
  heed_module *m[2] = {NULL, NULL};
  heed_kv_cache *cache[2] = {NULL, NULL}, *loaded[2] = {NULL, NULL};
  heed_tensor *x = NULL, *y = NULL;
  heed_status status = new_layers(ctx, m, cache);
  if (status == HEED_OK) status = heed_kv_caches_save(ctx, path, 2, cache);
  if (status == HEED_OK) status = heed_kv_caches_load(ctx, path, 2, m, loaded);
  if (status != HEED_OK) assert_null(loaded[0]);
  if (status == HEED_OK) status = heed_normal(ctx, NULL, 0, 1, 2, SHAPE(3, 6), &x);
  const heed_forward_options options = {.size = sizeof options, .cache = loaded[0]};
  if (status == HEED_OK) {
    status = heed_module_forward(m[0], x, &options, &y, NULL);
    assert_int_equal(heed_kv_cache_length(loaded[0]), status == HEED_OK ? 8 : 5);
  }
  heed_tensor_free(x);
  heed_tensor_free(y);
  free_layers(m, cache);
  for (int i = 0; i < 2; i++) heed_kv_cache_free(loaded[i]);
  return status;
}

static void files_survive_failing_allocations(void **state) {
  (void)state;
  survives_every_failing_allocation(save_and_load);
  remove(path);
}

/* Every byte of the header and the small tensors changed in turn: an error, or a cache that works. */
static void damaged_bytes_are_no_crash(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static unsigned char bytes[1 << 16];
  heed_module *m[2] = {NULL, NULL};
  heed_kv_cache *cache[2] = {NULL, NULL};
  heed_tensor *x = NULL;
  assert_ok(new_layers(ctx, m, cache));
  assert_ok(heed_kv_cache_save(cache[0], path));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(3, 6), &x));
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  const size_t size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  assert_true(size < sizeof bytes);
  for (size_t at = 0; at < size; at++) {
    const unsigned char before = bytes[at];
    bytes[at] = (unsigned char)(before ^ (at % 3 == 0 ? 0x80 : at % 3 == 1 ? 0x01 : 0x10));
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
    bytes[at] = before;
    heed_kv_cache *loaded = NULL;
    heed_tensor *y = NULL;
    if (heed_kv_cache_load(m[0], path, &loaded) == HEED_OK) {
      const heed_forward_options options = {.size = sizeof options, .cache = loaded};
      (void)!heed_module_forward(m[0], x, &options, &y, NULL);
    } else {
      assert_string_not_equal(heed_message(ctx), "");
      assert_null(loaded);
    }
    heed_tensor_free(y);
    heed_kv_cache_free(loaded);
  }
  heed_tensor_free(x);
  free_layers(m, cache);
  remove(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(several_layers_are_one_file),
      cmocka_unit_test(files_survive_failing_allocations),
      TEST(damaged_bytes_are_no_crash),
  };
  if (mkdtemp(folder) == NULL) return 1;
  snprintf(path, sizeof path, "%s/cache.safetensors", folder);
  const int failed = cmocka_run_group_tests(tests, NULL, NULL);
  rmdir(folder);
  return failed;
}
