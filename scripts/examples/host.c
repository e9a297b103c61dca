/* heed in a C program, without Lua: an allocator, a limit and a log, a model from a file, attention,
 * decoding token by token. `make examples` builds it as build/examples/host; by hand, with the libraries that
 * heed was built with: cc -Isrc scripts/examples/host.c build/libheed.a -lopenblas -lcjson -lz -lutf8proc
 * -lm -pthread */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heed.h"

#define WEIGHTS "host_weights.safetensors"

/* ---- Memory: a host may have an allocator of its own, with a limit ---- */

typedef struct budget {
  size_t used, most;
} budget;

static void *take(void *user, size_t bytes) {
  budget *b = user;
  if (bytes > b->most - b->used) return NULL; /* the call returns HEED_MEMORY */
  void *block = malloc(bytes);
  if (block != NULL) b->used += bytes;
  return block;
}

static void give_back(void *user, void *block, size_t bytes) {
  ((budget *)user)->used -= bytes;
  free(block);
}

/* ---- A log: receives the context's messages about failures and fallbacks ---- */

static void tell(void *user, heed_log_level level, const char *message) {
  if (level != HEED_LOG_INFO) fprintf(user, "heed: %s\n", message);
}

/* ---- Errors: calls return a status, the context has the message ---- */

#define TRY(call)                                                                                            \
  if ((status = (call)) != HEED_OK) goto done

/* softmax(x @ x.T) @ x of the host's own numbers: attention by hand. */
static heed_status by_hand(heed_context *ctx, float *numbers) {
  heed_tensor *x = NULL, *transposed = NULL, *scores = NULL, *y = NULL;
  const int64_t shape[] = {4, 2}; /* row-major; the host keeps the memory */
  heed_status status;
  TRY(heed_tensor_from_memory(ctx, HEED_FLOAT32, 2, shape, numbers, NULL, NULL, &x));
  TRY(heed_transpose(ctx, x, 1, 2, &transposed)); /* dimensions count from 1 */
  TRY(heed_matmul(ctx, x, transposed, &scores));
  TRY(heed_softmax(ctx, scores, -1, &scores)); /* in place: the result exists already */
  TRY(heed_matmul(ctx, scores, x, &y));
  const float *first = heed_tensor_data(y);
  printf("by hand: %.4f %.4f\n", (double)first[0], (double)first[1]);
done:
  heed_tensor_free(y);
  heed_tensor_free(scores);
  heed_tensor_free(transposed);
  heed_tensor_free(x);
  return status;
}

/* The attention of a small model. */
static heed_status new_module(heed_context *ctx, heed_module **out) {
  heed_rope_config rope;
  heed_attention_config config;
  heed_rope_config_init(&rope, sizeof rope);
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = 64;
  config.context_length = 128;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.rope = &rope;
  return heed_multi_head_attention_new(ctx, NULL, &config, out);
}

/* Saves the parameters of m's modules as "W_query.weight" and so on. */
static heed_status save(heed_context *ctx, const heed_module *m) {
  char names[16][64];
  const char *name[16];
  const heed_tensor *tensor[16];
  heed_entry part, entry;
  int count = 0;
  for (int i = 1; heed_module_entry(m, i, &part); i++) {
    for (int j = 1; part.kind == HEED_ENTRY_MODULE && heed_module_entry(part.module, j, &entry); j++) {
      snprintf(names[count], sizeof names[count], "%s.%s", part.name, entry.name);
      name[count] = names[count];
      tensor[count++] = entry.parameter;
    }
  }
  return heed_save_archive(ctx, WEIGHTS, count, name, tensor, 0, NULL);
}

/* Sets the parameters from the file's tensors of the same names, without copies. */
static heed_status load(heed_context *ctx, const heed_module *m) {
  heed_archive *archive = NULL;
  heed_tensor *tensor = NULL;
  heed_entry part, entry;
  char name[64];
  heed_status status;
  TRY(heed_load_archive(ctx, WEIGHTS, &archive));
  for (int64_t k = 1; k <= heed_archive_count(archive); k++) {
    TRY(heed_archive_tensor(archive, k, &tensor));
    for (int i = 1; heed_module_entry(m, i, &part); i++) {
      for (int j = 1; part.kind == HEED_ENTRY_MODULE && heed_module_entry(part.module, j, &entry); j++) {
        snprintf(name, sizeof name, "%s.%s", part.name, entry.name);
        if (strcmp(name, heed_archive_name(archive, k)) == 0)
          TRY(heed_module_set_parameter(part.module, entry.name, tensor));
      }
    }
    heed_tensor_free(tensor);
    tensor = NULL;
  }
done:
  heed_tensor_free(tensor);
  heed_archive_free(archive); /* its tensors stay valid */
  return status;
}

/* Tokens one by one, each attending to all tokens before it: the same numbers as in one call. */
static heed_status decode(heed_context *ctx, heed_module *m) {
  heed_tensor *x = NULL, *token = NULL, *y = NULL;
  heed_kv_cache *cache = NULL;
  heed_kv_cache_config config;
  const int64_t shape[] = {8, 64};
  heed_status status;
  heed_kv_cache_config_init(&config, sizeof config);
  config.dtype = HEED_BFLOAT16; /* half the memory */
  TRY(heed_kv_cache_new(m, &config, &cache));
  TRY(heed_normal(ctx, NULL, 0, 1, 2, shape, &x));
  const heed_forward_options options = {.size = sizeof options, .cache = cache};
  for (int64_t i = 1; i <= shape[0]; i++) {
    TRY(heed_narrow(ctx, x, 1, i, 1, &token));              /* a view: nothing is copied */
    TRY(heed_module_forward(m, token, &options, &y, NULL)); /* y is created once, then written in place */
    heed_tensor_free(token);
    token = NULL;
  }
  printf("decoded: %lld tokens, the last begins with %.4f\n", (long long)heed_kv_cache_length(cache),
         (double)*(const float *)heed_tensor_data(y));
done:
  heed_tensor_free(y);
  heed_tensor_free(token);
  heed_tensor_free(x);
  heed_kv_cache_free(cache);
  return status;
}

int main(void) {
  budget memory = {.most = (size_t)64 << 20};
  const heed_allocator allocator = {take, give_back, &memory};
  float numbers[] = {0.43f, 0.15f, 0.55f, 0.87f, 0.57f, 0.85f, 0.22f, 0.58f};
  heed_context *ctx = NULL;
  heed_module *m = NULL, *copy = NULL;
  heed_status status = heed_context_new(&allocator, &ctx);
  if (status != HEED_OK) {
    fprintf(stderr, "heed %s: %s\n", heed_version(), heed_status_text(status));
    return EXIT_FAILURE;
  }
  TRY(heed_set_log(ctx, tell, stderr));
  TRY(heed_set_limits(ctx, &(heed_limits){.size = sizeof(heed_limits), .memory = (size_t)32 << 20}));
  TRY(heed_set_num_threads(ctx, 2));
  TRY(by_hand(ctx, numbers));
  heed_generator_seed(heed_default_generator(ctx), 123);
  TRY(new_module(ctx, &m));
  TRY(save(ctx, m));
  heed_skip_init(ctx, true); /* the weights come from the file */
  TRY(new_module(ctx, &copy));
  heed_skip_init(ctx, false);
  TRY(load(ctx, copy));
  TRY(decode(ctx, copy));
done:
  if (status != HEED_OK) fprintf(stderr, "%s\n", heed_status_name(status)); /* the log shows the reason */
  heed_module_release(copy);
  heed_module_release(m);
  heed_context_free(ctx);
  remove(WEIGHTS);
  printf("memory left behind: %zu bytes\n", memory.used);
  return status == HEED_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
