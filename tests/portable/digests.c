/* Prints a digest of what heed computes with its scalar kernels, a line for each part: builds for other
 * systems must print the same lines (scripts/dev/run_amalgamation_tests.sh compares them). Parts named "libm
 * …" use functions of the C library, which round differently on other systems; they are not compared.
 *   HEED_CPU=scalar digests FOLDER     FOLDER: for the files that it writes */
#include "heed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE(...)                                                                                           \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {                             \
    __VA_ARGS__                                                                                              \
  }

static heed_context *ctx;

static void must(heed_status status, int line) {
  if (status == HEED_OK) return;
  printf("digests.c:%d: %s: %s\n", line, heed_status_name(status), heed_message(ctx));
  exit(1);
}
#define MUST(call) must(call, __LINE__)

/* ---- Digests: FNV-1a of bytes, numbers little-endian ---- */

static uint64_t digest;

static void begin(void) {
  digest = 0xcbf29ce484222325u;
}
static void add_bytes(const void *data, size_t bytes) {
  const unsigned char *p = data;
  for (size_t i = 0; i < bytes; i++) digest = (digest ^ p[i]) * 0x100000001b3u;
}
static void add_number(uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    const unsigned char byte = (unsigned char)(number >> 8 * i);
    add_bytes(&byte, 1);
  }
}
static void end(const char *part) {
  printf("%-24s %016llx\n", part, (unsigned long long)digest);
}

static size_t width_of(heed_dtype dtype) {
  switch (dtype) {
#define X(name, text, type)                                                                                  \
  case HEED_##name: return sizeof(type);
    HEED_DTYPE_LIST(X)
#undef X
  default: printf("digests.c: no width for %s\n", heed_dtype_name(dtype)), exit(1);
  }
}

/* The elements of x, which it frees. Every float32 that is not a number counts as the same: x86 computes it
 * with the sign bit, others without. */
static void add(heed_tensor *x) {
  heed_tensor *row_major = NULL;
  MUST(heed_contiguous(ctx, x, &row_major));
  const unsigned char *p = heed_tensor_data(row_major);
  const size_t width = width_of(heed_tensor_dtype(x));
  for (int64_t i = 0; i < heed_tensor_numel(x); i++, p += width) {
    uint64_t wide = 0;
    uint32_t word;
    uint16_t half;
    if (width == 8) memcpy(&wide, p, 8);
    if (width == 4) memcpy(&word, p, 4), wide = (word & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : word;
    if (width == 2) memcpy(&half, p, 2), wide = half;
    if (width == 1) wide = *p;
    add_number(wide, width);
  }
  heed_tensor_free(row_major);
  heed_tensor_free(x);
}

static heed_tensor *normal(int ndim, const int64_t *shape) {
  heed_tensor *x = NULL;
  MUST(heed_normal(ctx, NULL, 0, 1, ndim, shape, &x));
  return x;
}

/* ---- Parts ---- */

static void draw(heed_generator_kind kind, const char *part) {
  heed_tensor *x = NULL;
  heed_generator_reset(heed_default_generator(ctx), kind, 7);
  begin();
  MUST(heed_uniform(ctx, NULL, -2, 3, SHAPE(1000), &x)), add(x), x = NULL;
  MUST(heed_normal(ctx, NULL, 0, 1, SHAPE(1000), &x)), add(x), x = NULL;
  MUST(heed_randint(ctx, NULL, -5, 1000, SHAPE(100), &x)), add(x), x = NULL;
  MUST(heed_randint(ctx, NULL, 0, INT64_MAX - 1, SHAPE(100), &x)), add(x), x = NULL;
  if (kind == HEED_MT19937) MUST(heed_randperm(ctx, NULL, 1000, &x)), add(x), x = NULL;
  heed_tensor *weights = NULL;
  MUST(heed_uniform(ctx, NULL, 0, 1, SHAPE(50), &weights));
  MUST(heed_dropout(ctx, NULL, 0.3, weights, &x)), add(x), x = NULL;
  MUST(heed_multinomial(ctx, NULL, weights, 20, true, &x)), add(x);
  heed_tensor_free(weights);
  unsigned char state[HEED_GENERATOR_STATE_BYTES];
  heed_generator_get_state(heed_default_generator(ctx), state);
  add_bytes(state, sizeof state);
  end(part);
  heed_generator_reset(heed_default_generator(ctx), HEED_MT19937, 7);
}

typedef heed_status unary(heed_context *, const heed_tensor *, heed_tensor **);

static void elementwise(const char *part, int count, unary *const *functions) {
  heed_tensor *x = NULL, *wide = NULL;
  MUST(heed_linspace(ctx, HEED_FLOAT32, -90, 90, 7001, &x));
  MUST(heed_normal(ctx, NULL, 0, 1, SHAPE(1001), &wide));
  begin();
  for (int i = 0; i < count; i++) {
    heed_tensor *y = NULL;
    MUST(functions[i](ctx, x, &y)), add(y), y = NULL;
    MUST(functions[i](ctx, wide, &y)), add(y);
  }
  end(part);
  heed_tensor_free(x);
  heed_tensor_free(wide);
}

static void products(void) {
  static const int64_t sizes[][3] = {{1, 1, 1},    {3, 5, 7},     {17, 33, 65},
                                     {64, 64, 64}, {1, 300, 129}, {150, 260, 270}};
  begin();
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
    heed_tensor *a = normal(SHAPE(m, k)), *b = normal(SHAPE(k, n)), *w = normal(SHAPE(n, k)), *y = NULL;
    MUST(heed_matmul(ctx, a, b, &y)), add(y), y = NULL;
    MUST(heed_linear(ctx, a, w, NULL, &y)), add(y);
    heed_tensor_free(a), heed_tensor_free(b), heed_tensor_free(w);
  }
  end("products");
}

static void rows(void) {
  heed_tensor *x = normal(SHAPE(9, 301)), *weight = normal(SHAPE(301)), *y = NULL;
  begin();
  MUST(heed_softmax(ctx, x, -1, &y)), add(y), y = NULL;
  MUST(heed_softmax(ctx, x, 1, &y)), add(y), y = NULL;
  MUST(heed_layer_norm(ctx, x, weight, weight, 1e-5, &y)), add(y), y = NULL;
  MUST(heed_rms_norm(ctx, x, weight, 1e-6, &y)), add(y), y = NULL;
  MUST(heed_sum(ctx, x, 0, NULL, false, &y)), add(y), y = NULL;
  MUST(heed_mean(ctx, x, 1, (const int[]){1}, false, &y)), add(y), y = NULL;
  MUST(heed_std(ctx, x, 1, (const int[]){2}, 1, false, &y)), add(y), y = NULL;
  MUST(heed_cumsum(ctx, x, 2, &y)), add(y), y = NULL;
  heed_tensor *places = NULL;
  MUST(heed_sort(ctx, x, 2, true, &y, &places)), add(y), add(places);
  end("rows");
  heed_tensor_free(x), heed_tensor_free(weight);
}

static void attention(void) {
  heed_tensor *q = normal(SHAPE(2, 4, 37, 24)), *k = normal(SHAPE(2, 2, 70, 24)),
              *v = normal(SHAPE(2, 2, 70, 16));
  heed_tensor *slopes = NULL, *sinks = normal(SHAPE(4)), *one = NULL, *y = NULL;
  const heed_attention_options options[] = {
      {.size = sizeof *options},
      {.size = sizeof *options, .is_causal = true},
      {.size = sizeof *options, .is_causal = true, .window = {.has_left = true, .left = 9}},
      {.size = sizeof *options, .softcap = 5, .scale = 0.3},
      {.size = sizeof *options, .is_causal = true, .sinks = sinks},
  };
  begin();
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    MUST(heed_scaled_dot_product_attention(ctx, q, k, v, &options[i], &y, NULL)), add(y), y = NULL;
  end("attention");
  begin();
  MUST(heed_narrow(ctx, q, 3, 1, 1, &one));
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    MUST(heed_scaled_dot_product_attention(ctx, one, k, v, &options[i], &y, NULL)), add(y), y = NULL;
  heed_tensor *query = normal(SHAPE(2, 1, 64)),
              *keys = normal(SHAPE(1, 3000, 64)); /* in ranges that are joined */
  MUST(heed_scaled_dot_product_attention(ctx, query, keys, keys, NULL, &y, NULL)), add(y), y = NULL;
  heed_tensor_free(query), heed_tensor_free(keys);
  end("attention of one query");
  begin();
  MUST(heed_alibi_slopes(ctx, 4, &slopes));
  const heed_taps_wanted wanted = {.size = sizeof wanted, .weights = true, .lse = true};
  const heed_attention_options biased = {
      .size = sizeof biased, .is_causal = true, .alibi_slopes = slopes, .wanted = &wanted};
  heed_attention_taps taps = {.size = sizeof taps};
  MUST(heed_scaled_dot_product_attention(ctx, q, k, v, &biased, &y, &taps)), add(y), y = NULL;
  add(taps.weights), taps.weights = NULL;
  end("maps of attention");
  begin();
  add(taps.lse), taps.lse = NULL;
  end("libm lse");
  heed_attention_taps_free(&taps);
  begin();
  MUST(heed_linear_attention(ctx, k, k, v, NULL, &y, NULL)), add(y), y = NULL;
  end("linear attention");
  begin();
  MUST(heed_rope(ctx, q, NULL, NULL, &y)), add(y);
  end("libm rotary positions");
  heed_tensor_free(q), heed_tensor_free(k), heed_tensor_free(v), heed_tensor_free(sinks),
      heed_tensor_free(slopes);
  heed_tensor_free(one);
}

static void gradients(void) {
  heed_tensor *q = normal(SHAPE(2, 4, 21, 8)), *k = normal(SHAPE(2, 2, 21, 8)),
              *v = normal(SHAPE(2, 2, 21, 8));
  heed_tensor *y = NULL, *dy = normal(SHAPE(2, 4, 21, 8)), *dx[3] = {NULL};
  heed_tensor *const x[] = {q, k, v};
  const heed_attention_options options = {.size = sizeof options, .is_causal = true};
  for (int i = 0; i < 3; i++) MUST(heed_tensor_require_grad(x[i], true));
  heed_set_recording(ctx, true);
  MUST(heed_scaled_dot_product_attention(ctx, q, k, v, &options, &y, NULL));
  MUST(heed_grad(ctx, 1, (const heed_tensor *const *)&y, (const heed_tensor *const *)&dy, 3,
                 (const heed_tensor *const *)x, dx, NULL));
  begin();
  for (int i = 0; i < 3; i++) add(dx[i]);
  end("gradients of attention");
  heed_set_recording(ctx, false);
  heed_tensor_free(y), heed_tensor_free(dy);
  for (int i = 0; i < 3; i++) heed_tensor_free(x[i]);
}

/* Conversions of all bit patterns, and to blocks and back; products with each kind of weight. */
static void dtypes(void) {
  heed_tensor *x = normal(SHAPE(40, 256)), *few = normal(SHAPE(3, 256)), *stored = NULL, *y = NULL;
  heed_tensor *large = NULL;
  const heed_scalar factor = heed_number(1e4);
  MUST(heed_full(ctx, HEED_FLOAT32, SHAPE(1), factor, &large));
  MUST(heed_mul(ctx, x, large, &stored));
  begin();
  for (int dtype = HEED_BFLOAT16; dtype <= HEED_INT8; dtype++) {
    heed_tensor *converted = NULL;
    MUST(heed_to(ctx, stored, (heed_dtype)dtype, &converted));
    MUST(heed_to(ctx, converted, HEED_FLOAT32, &y)), add(y), y = NULL;
    if (dtype != HEED_INT8) MUST(heed_linear(ctx, few, converted, NULL, &y)), add(y), y = NULL;
    add(converted);
  }
  heed_tensor_free(stored), stored = NULL;
  end("conversions");
  begin();
  heed_tensor *weight = NULL, *scale = NULL;
  MUST(heed_quantize_int8(ctx, x, &weight, &scale));
  MUST(heed_linear_int8(ctx, few, weight, scale, NULL, &y)), add(y), y = NULL;
  add(weight), add(scale);
  end("int8");
#define X(name, text, elements, bytes)                                                                       \
  begin();                                                                                                   \
  MUST(heed_to(ctx, x, HEED_##name, &stored));                                                               \
  add_bytes(heed_tensor_data(stored), (size_t)(40 * 256 / elements * bytes));                                \
  MUST(heed_to(ctx, stored, HEED_FLOAT32, &y)), add(y), y = NULL;                                            \
  MUST(heed_linear(ctx, few, stored, NULL, &y)), add(y), y = NULL;                                           \
  heed_tensor_free(stored), stored = NULL;                                                                   \
  end(text);
  HEED_BLOCK_DTYPE_LIST(X)
#undef X
  heed_tensor_free(x), heed_tensor_free(few), heed_tensor_free(large);
}

/* A module with a cache, token by token; the cache in a file. */
static void module(const char *folder) {
  heed_attention_config config;
  heed_module *m = NULL;
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = 32;
  config.num_heads = 4;
  config.context_length = 64;
  MUST(heed_multi_head_attention_new(ctx, NULL, &config, &m));
  heed_module_train(m, false);
  for (int dtype = HEED_FLOAT32; dtype <= HEED_INT8; dtype++) {
    heed_kv_cache_config cache_config;
    heed_kv_cache *cache = NULL;
    heed_kv_cache_config_init(&cache_config, sizeof cache_config);
    cache_config.dtype = (heed_dtype)dtype;
    MUST(heed_kv_cache_new(m, &cache_config, &cache));
    const heed_forward_options options = {.size = sizeof options, .cache = cache};
    begin();
    for (int64_t n = 12; n > 0; n = n == 12 ? 3 : n - 1) {
      heed_tensor *x = normal(SHAPE(1, n, 32)), *y = NULL;
      MUST(heed_module_forward(m, x, &options, &y, NULL)), add(y);
      heed_tensor_free(x);
    }
    char part[64], path[1024];
    snprintf(part, sizeof part, "cache in %s", heed_dtype_name((heed_dtype)dtype));
    end(part);
    snprintf(path, sizeof path, "%s/cache-%s.safetensors", folder, heed_dtype_name((heed_dtype)dtype));
    MUST(heed_kv_cache_save(cache, path));
    heed_kv_cache_free(cache);
  }
  heed_module_release(m);
}

static void add_file(const char *path) {
  char buffer[4096];
  FILE *file = fopen(path, "rb");
  if (!file) printf("digests.c: %s cannot be opened\n", path), exit(1);
  begin();
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) add_bytes(buffer, n);
  fclose(file);
  end(strrchr(path, '/') + 1);
}

/* Files of every format that this build can write, byte for byte. */
static void files(const char *folder) {
  static const heed_dtype kept[] = {HEED_BOOL,     HEED_INT64,   HEED_FLOAT32,
                                    HEED_BFLOAT16, HEED_FLOAT16, HEED_INT8};
  enum { KEPT = sizeof kept / sizeof *kept };
  static const char *const names[KEPT] = {"a", "b", "c", "d", "e", "f"};
  const heed_tensor *tensors[KEPT];
  heed_tensor *made[KEPT] = {NULL}, *x = normal(SHAPE(5, 7)), *turned = NULL, *y = NULL;
  char path[1024];
  MUST(heed_transpose(ctx, x, 1, 2, &turned));
  for (int i = 0; i < KEPT; i++) {
    MUST(heed_to(ctx, i % 2 ? turned : x, kept[i], &made[i]));
    tensors[i] = made[i];
    if (kept[i] == HEED_BFLOAT16) continue;
    snprintf(path, sizeof path, "%s/%s.npy", folder, heed_dtype_name(kept[i]));
    MUST(heed_save_npy(ctx, path, made[i]));
    add_file(path);
    MUST(heed_load_npy(ctx, path, &y));
    const size_t bytes = (size_t)heed_tensor_numel(y) * width_of(kept[i]);
    heed_tensor *row_major = NULL;
    MUST(heed_contiguous(ctx, made[i], &row_major));
    if (memcmp(heed_tensor_data(y), heed_tensor_data(row_major), bytes) != 0)
      printf("digests.c: %s comes back different\n", path), exit(1);
    heed_tensor_free(row_major);
    heed_tensor_free(y), y = NULL;
  }
  snprintf(path, sizeof path, "%s/all.safetensors", folder);
  MUST(heed_save_archive(ctx, path, KEPT, names, tensors, 0, NULL));
  add_file(path);
  snprintf(path, sizeof path, "%s/all.gguf", folder);
  MUST(heed_save_gguf(ctx, path, KEPT - 1, names + 1, tensors + 1, 0, NULL, NULL));
  add_file(path);
  snprintf(path, sizeof path, "%s/all.npz", folder);
  if (heed_save_archive(ctx, path, 3, names, tensors, 0, NULL) == HEED_OK) add_file(path);
  for (int dtype = HEED_FLOAT32; dtype <= HEED_INT8; dtype++) {
    snprintf(path, sizeof path, "%s/cache-%s.safetensors", folder, heed_dtype_name((heed_dtype)dtype));
    add_file(path);
  }
  for (int i = 0; i < KEPT; i++) heed_tensor_free(made[i]);
  heed_tensor_free(x), heed_tensor_free(turned);
}

/* Builds without JSON and utf8proc have no tokenizers. */
static void tokenizer(const char *name) {
  static const char text[] =
      "Attention: naïve Ünicode — 東京, 12345.67 tokens\tand 🙂 emoji, don't!\n\n  x";
  heed_tokenizer *tok = NULL;
  char path[256];
  const int64_t *ids;
  int64_t count;
  const char *back;
  size_t bytes;
  snprintf(path, sizeof path, "tests/golden/tokenizers/%s", name);
  if (heed_tokenizer_load(ctx, path, &tok) != HEED_OK) return;
  begin();
  MUST(heed_tokenizer_encode(tok, text, sizeof text - 1, HEED_ADD_SPECIAL_TOKENS, &ids, &count));
  int64_t *kept = malloc((size_t)count * sizeof *kept);
  if (!kept) exit(1);
  memcpy(kept, ids, (size_t)count * sizeof *kept);
  for (int64_t i = 0; i < count; i++) add_number((uint64_t)kept[i], 8);
  MUST(heed_tokenizer_decode(tok, kept, count, 0, &back, &bytes));
  add_bytes(back, bytes);
  end(name);
  free(kept);
  heed_tokenizer_free(tok);
}

int main(int count, char **arguments) {
  const char *folder = count > 1 ? arguments[1] : ".";
  heed_information info = {.size = sizeof info};
  if (heed_context_new(NULL, &ctx)) return 1;
  MUST(heed_info(ctx, &info));
  if (strcmp(info.kernels, "scalar") != 0) return printf("digests.c: set HEED_CPU=scalar\n"), 1;
  draw(HEED_MT19937, "MT19937");
  draw(HEED_PHILOX, "Philox");
  elementwise("own functions", 14,
              (unary *const[]){heed_exp, heed_sqrt, heed_rsqrt, heed_tanh, heed_sigmoid, heed_silu,
                               heed_gelu_tanh, heed_relu, heed_floor, heed_ceil, heed_round, heed_trunc,
                               heed_sign, heed_reciprocal});
  elementwise("libm sin cos", 2, (unary *const[]){heed_sin, heed_cos});
  elementwise("libm erf gelu", 2, (unary *const[]){heed_erf, heed_gelu});
  elementwise("libm exp2 expm1", 2, (unary *const[]){heed_exp2, heed_expm1});
  elementwise("libm log log2 log10", 3, (unary *const[]){heed_log, heed_log2, heed_log10});
  elementwise("libm log1p", 1, (unary *const[]){heed_log1p});
  products();
  rows();
  attention();
  gradients();
  dtypes();
  module(folder);
  files(folder);
  static const char *const tokenizers[] = {"bert.json",  "fallback.json", "gpt2.json", "llama3.json",
                                           "qwen2.json", "bpe.model",     "bpe.gguf",  "smollm.gguf"};
  for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++) tokenizer(tokenizers[i]);
  heed_context_free(ctx);
  return 0;
}
