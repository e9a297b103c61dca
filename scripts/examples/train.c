/* Training in a C program, without Lua: an attention layer learns to look one token back. `make examples`
 * builds it as build/examples/train; by hand, with the libraries that heed was built with: cc -Isrc
 * scripts/examples/train.c build/libheed.a -lopenblas -lcjson -lz -lutf8proc -lm -pthread
 *   train [STEPS]                                                                                          */
#include <stdio.h>
#include <stdlib.h>

#include "heed.h"

enum { BATCH = 16, TOKENS = 24, SIZE = 16, HEADS = 2, MOST = 32 };

/* Errors: calls return a status, the context has the message. */
#define TRY(call)                                                                                            \
  if ((status = (call)) != HEED_OK) goto done

/* The parameters of a module and of its parts, and the state of the optimiser beside each. */
typedef struct training {
  int count;
  heed_tensor *x[MOST], *m[MOST], *v[MOST];
  int64_t steps[MOST];
  heed_adam_options options;
} training;

static heed_status collect(heed_context *ctx, const heed_module *module, training *t) {
  heed_entry entry;
  heed_status status = HEED_OK;
  for (int i = 1; heed_module_entry(module, i, &entry); i++) {
    if (entry.kind == HEED_ENTRY_MODULE) {
      TRY(collect(ctx, entry.module, t));
    } else if (entry.kind == HEED_ENTRY_PARAMETER && t->count < MOST) {
      const int k = t->count++; /* whatever fails, training_free frees the rest */
      TRY(heed_tensor_alias(ctx, entry.parameter, &t->x[k]));
      TRY(heed_full(ctx, HEED_FLOAT32, heed_tensor_ndim(t->x[k]), heed_tensor_shape(t->x[k]), heed_number(0),
                    &t->m[k]));
      TRY(heed_full(ctx, HEED_FLOAT32, heed_tensor_ndim(t->x[k]), heed_tensor_shape(t->x[k]), heed_number(0),
                    &t->v[k]));
    }
  }
done:
  return status;
}

static void training_free(training *t) {
  for (int k = 0; k < t->count; k++) {
    heed_tensor_free(t->v[k]);
    heed_tensor_free(t->m[k]);
    heed_tensor_free(t->x[k]);
  }
}

/* One step on random tokens: the layer's answer at token i should be token i - 1. */
static heed_status train(heed_context *ctx, heed_module *layer, training *t, float *loss_out) {
  heed_tensor *x = NULL, *y = NULL, *guess = NULL, *wanted = NULL, *error = NULL, *square = NULL,
              *loss = NULL;
  const int64_t shape[] = {BATCH, TOKENS, SIZE};
  heed_status status;
  TRY(heed_normal(ctx, NULL, 0, 1, 3, shape, &x));
  heed_set_recording(ctx, true);
  TRY(heed_module_forward(layer, x, NULL, &y, NULL));
  TRY(heed_narrow(ctx, y, 2, 2, TOKENS - 1, &guess)); /* from token 2 on: the first has none before it */
  TRY(heed_narrow(ctx, x, 2, 1, TOKENS - 1, &wanted));
  TRY(heed_sub(ctx, guess, wanted, &error));
  TRY(heed_mul(ctx, error, error, &square));
  TRY(heed_mean(ctx, square, 0, NULL, false, &loss));
  for (int k = 0; k < t->count; k++) TRY(heed_tensor_set_grad(t->x[k], NULL));
  TRY(heed_backward(ctx, 1, (const heed_tensor *[]){loss}, NULL, NULL));
  heed_set_recording(ctx, false);
  TRY(heed_adam_step(ctx, t->count, t->x, NULL, t->m, t->v, NULL, t->steps, &t->options));
  *loss_out = *(const float *)heed_tensor_data(loss);
done:
  heed_set_recording(ctx, false);
  heed_tensor_free(loss);
  heed_tensor_free(square);
  heed_tensor_free(error);
  heed_tensor_free(wanted);
  heed_tensor_free(guess);
  heed_tensor_free(y);
  heed_tensor_free(x);
  return status;
}

static heed_status run(heed_context *ctx, int steps) {
  heed_module *layer = NULL;
  training t = {0};
  heed_rope_config rope;
  heed_attention_config config;
  float loss = 0;
  heed_status status;
  heed_rope_config_init(&rope, sizeof rope);
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = SIZE;
  config.context_length = TOKENS;
  config.num_heads = HEADS;
  config.qkv_bias = true; /* with rotary positions, biases alone can say "one token back" */
  config.rope = &rope;
  heed_adam_options_init(&t.options, sizeof t.options);
  t.options.lr = 1e-2;
  t.options.decoupled = true; /* AdamW */
  heed_generator_seed(heed_default_generator(ctx), 1);
  TRY(heed_multi_head_attention_new(ctx, NULL, &config, &layer));
  TRY(collect(ctx, layer, &t));
  for (int step = 1; step <= steps; step++) {
    TRY(train(ctx, layer, &t, &loss));
    if (step == 1 || step % 100 == 0 || step == steps) printf("step %4d: loss %.4f\n", step, (double)loss);
  }
done:
  training_free(&t);
  heed_module_release(layer);
  return status;
}

int main(int argc, char **argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : 500;
  heed_context *ctx = NULL;
  if (argc > 2 || steps < 1) {
    fprintf(stderr, "usage: train [STEPS]\n");
    return EXIT_FAILURE;
  }
  heed_status status = heed_context_new(NULL, &ctx);
  if (status == HEED_OK) status = run(ctx, steps);
  if (status != HEED_OK) fprintf(stderr, "%s: %s\n", heed_status_name(status), heed_message(ctx));
  const size_t left = heed_memory_in_use(ctx);
  heed_context_free(ctx);
  printf("memory left behind: %zu bytes\n", left);
  return status == HEED_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
