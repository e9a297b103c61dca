/* A game in C with sixty frames a second, and a forward pass of 1024 tokens × 768 going on in the time that
 * its frames leave; no Lua. host_game [frames [threads]]   (300, 1) make examples builds it: cc host_game.c
 * -Isrc build/libheed.a … (docs/embedding.md). */
#include <heed.h>

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 1024, WIDTH = 768, HEADS = 12 };

#define FRAME (1.0 / 60) /* seconds: a frame, */
#define GAME  0.006      /* the game's own work in it, */
#define SPARE 0.002      /* and spare time */

/* Represents the game's own work, and the wait for the next frame, in which a game would sleep. */
static void work_until(double moment) {
  while (heed_clock() < moment) continue;
}

typedef struct game {
  heed_context *ctx;
  heed_module *brain;
  heed_tensor *view;
  heed_steps *thought;
} game;

static heed_status open_game(game *g, int threads) {
  heed_attention_config config;
  heed_status status = heed_context_new(NULL, &g->ctx);
  if (status == HEED_OK) status = heed_set_num_threads(g->ctx, threads);
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = WIDTH;
  config.context_length = TOKENS;
  config.num_heads = HEADS;
  if (status == HEED_OK) status = heed_multi_head_attention_new(g->ctx, NULL, &config, &g->brain);
  if (status == HEED_OK)
    status = heed_normal(g->ctx, NULL, 0, 1, 2, (const int64_t[]){TOKENS, WIDTH}, &g->view);
  return status;
}

static void close_game(game *g) {
  heed_steps_free(g->thought);
  heed_tensor_free(g->view);
  heed_module_release(g->brain);
  heed_context_free(g->ctx);
}

/* Continues the forward pass for the given time; starts one if there is none. */
static heed_status think(game *g, double seconds, bool *done) {
  heed_status status = HEED_OK;
  if (g->thought == NULL) status = heed_steps_new(g->brain, g->view, NULL, false, &g->thought);
  if (status == HEED_OK) status = heed_steps_advance(g->thought, seconds, done);
  if (status != HEED_OK || !*done) return status;
  heed_tensor *result = NULL;
  status = heed_steps_result(g->thought, &result, NULL); /* for the game to use */
  heed_tensor_free(result);
  heed_steps_free(g->thought);
  g->thought = NULL;
  return status;
}

int main(int argc, char **argv) {
  const int frames = argc > 1 ? atoi(argv[1]) : 300, threads = argc > 2 ? atoi(argv[2]) : 1;
  game g = {0};
  double worst = 0;
  int late = 0, thoughts = 0, began = 0, waited = 0;
  if (frames < 1 || threads < 1) {
    fprintf(stderr, "host_game: frames and threads must be numbers from 1 up\n");
    return EXIT_FAILURE;
  }
  heed_status status = open_game(&g, threads);
  const double start = heed_clock();
  for (int frame = 0; frame < frames && status == HEED_OK; frame++) {
    const double frame_start = heed_clock(), next = start + (frame + 1) * FRAME;
    work_until(frame_start + GAME);
    const double left = next - SPARE - heed_clock();
    bool done = false;
    if (left > 0) status = think(&g, left, &done);
    if (done) {
      thoughts++;
      waited += frame - began + 1;
      began = frame + 1;
    }
    const double taken = heed_clock() - frame_start;
    if (taken > worst) worst = taken;
    if (taken > FRAME) late++;
    work_until(next);
  }
  if (status != HEED_OK) {
    fprintf(stderr, "host_game: %s: %s\n", heed_status_name(status), heed_message(g.ctx));
    close_game(&g);
    return EXIT_FAILURE;
  }
  printf("%d frames in %.2f s; the game and its slice took %.2f ms in the worst one, of %.2f; %d were late\n",
         frames, heed_clock() - start, worst * 1e3, FRAME * 1e3, late);
  if (thoughts > 0)
    printf("%d forwards of %d × %d, each in %.1f frames\n", thoughts, TOKENS, WIDTH,
           (double)waited / thoughts);
  else
    printf("no forward of %d × %d came to its end\n", TOKENS, WIDTH);
  close_game(&g);
  return EXIT_SUCCESS;
}
