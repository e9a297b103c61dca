/* Measures how soon a call returns after heed_cancel, with one thread and with two: the maximum and the 99th
 * percentile of many cancels, in elapsed time and in processor time of the calling thread, which other
 * programs do not affect. Part of it is the time to return large results to the system.
 *   build/bench/stop [cancels] */
#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "heed.h"

typedef struct inputs {
  heed_context *ctx;
  heed_tensor *tokens, *heads, *square, *many, *list;
  heed_module *attention;
} inputs;

static heed_status forward(inputs *in, heed_tensor **out) {
  return heed_module_forward(in->attention, in->tokens, NULL, out, NULL);
}
static heed_status attend(inputs *in, heed_tensor **out) {
  return heed_scaled_dot_product_attention(in->ctx, in->heads, in->heads, in->heads, NULL, out, NULL);
}
static heed_status multiply(inputs *in, heed_tensor **out) {
  return heed_matmul(in->ctx, in->square, in->square, out);
}
static heed_status exponential(inputs *in, heed_tensor **out) {
  return heed_exp(in->ctx, in->many, out);
}
static heed_status sum(inputs *in, heed_tensor **out) {
  return heed_sum(in->ctx, in->many, 0, NULL, false, out);
}
static heed_status sort(inputs *in, heed_tensor **out) {
  return heed_sort(in->ctx, in->list, 1, false, out, NULL);
}
static heed_status draw(inputs *in, heed_tensor **out) {
  return heed_normal(in->ctx, NULL, 0, 1, 1, (const int64_t[]){100000000}, out);
}

static const struct {
  const char *name;
  heed_status (*run)(inputs *in, heed_tensor **out);
} rows[] = {{"MultiHeadAttention 1024 x 768", forward},
            {"attention 8 x 8192 x 64", attend},
            {"matmul 4096 x 4096 x 4096", multiply},
            {"exp of 10^8", exponential},
            {"sum of 10^8", sum},
            {"sort of 10^7", sort},
            {"randn of 10^8", draw}};

static void need(heed_context *ctx, heed_status status) {
  if (status == HEED_OK) return;
  fprintf(stderr, "%s: %s\n", heed_status_name(status), heed_message(ctx));
  exit(1);
}

/* ---- The thread that cancels ---- */

typedef struct canceller {
  heed_context *ctx;
  clockid_t own;     /* the clock of the calling thread's processor time */
  double after;      /* seconds */
  double at, own_at; /* the time of the cancel on both clocks; read after joining the thread */
} canceller;

static double own_time(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *cancel_later(void *argument) {
  canceller *c = argument;
  const struct timespec pause = {(time_t)c->after, (long)(1e9 * (c->after - (double)(time_t)c->after))};
  nanosleep(&pause, NULL);
  c->own_at = own_time(c->own);
  c->at = heed_clock();
  heed_cancel(c->ctx);
  return NULL;
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Cancels within the first 50 ms of the call, or within all of it if it is shorter. */
static void measure(inputs *in, int row, int cancels) {
  double *late = malloc((size_t)cancels * 2 * sizeof *late), *own_late = late + cancels;
  heed_tensor *out = NULL;
  int met = 0;
  double begin = heed_clock();
  if (late == NULL) exit(1);
  heed_status status = rows[row].run(in, &out);
  need(in->ctx, status);
  const double whole = heed_clock() - begin, span = whole < 0.05 ? whole : 0.05;
  heed_tensor_free(out);
  for (int i = 0; i < cancels; i++) {
    canceller c = {.ctx = in->ctx, .after = span * (i + 0.5) / cancels};
    pthread_t thread;
    out = NULL;
    if (pthread_getcpuclockid(pthread_self(), &c.own) != 0) exit(1);
    if (pthread_create(&thread, NULL, cancel_later, &c) != 0) exit(1);
    status = rows[row].run(in, &out);
    const double end = heed_clock(), own_end = own_time(c.own);
    pthread_join(thread, NULL);
    heed_tensor_free(out);
    heed_clear_cancel(in->ctx);
    if (status == HEED_CANCELLED) {
      own_late[met] = own_end - c.own_at;
      late[met++] = end - c.at;
    } else {
      need(in->ctx, status);
    }
  }
  qsort(late, (size_t)met, sizeof *late, by_size);
  qsort(own_late, (size_t)met, sizeof *late, by_size);
  if (met > 0)
    printf("%-30s %d threads, %d cancels: 99 %% within %.3f ms, max %.3f ms; processor time %.3f and %.3f\n",
           rows[row].name, heed_num_threads(in->ctx), met, 1e3 * late[met * 99 / 100], 1e3 * late[met - 1],
           1e3 * own_late[met * 99 / 100], 1e3 * own_late[met - 1]);
  free(late);
}

int main(int count, char **arguments) {
  const int cancels = count > 1 ? atoi(arguments[1]) : 200;
  inputs in = {0};
  heed_attention_config config;
  if (heed_context_new(NULL, &in.ctx) != HEED_OK || cancels < 1) return 1;
  need(in.ctx, heed_normal(in.ctx, NULL, 0, 1, 2, (const int64_t[]){1024, 768}, &in.tokens));
  need(in.ctx, heed_normal(in.ctx, NULL, 0, 1, 3, (const int64_t[]){8, 8192, 64}, &in.heads));
  need(in.ctx, heed_normal(in.ctx, NULL, 0, 1, 2, (const int64_t[]){4096, 4096}, &in.square));
  need(in.ctx, heed_normal(in.ctx, NULL, 0, 1, 1, (const int64_t[]){100000000}, &in.many));
  need(in.ctx, heed_normal(in.ctx, NULL, 0, 1, 1, (const int64_t[]){10000000}, &in.list));
  heed_attention_config_init(&config, sizeof config);
  config.d_in = config.d_out = 768;
  config.num_heads = 12;
  config.context_length = 1024;
  need(in.ctx, heed_multi_head_attention_new(in.ctx, NULL, &config, &in.attention));
  for (int threads = 1; threads <= 2; threads++) {
    need(in.ctx, heed_set_num_threads(in.ctx, threads));
    for (int row = 0; row < (int)(sizeof rows / sizeof *rows); row++) measure(&in, row, cancels);
  }
  heed_module_release(in.attention);
  heed_tensor_free(in.tokens);
  heed_tensor_free(in.heads);
  heed_tensor_free(in.square);
  heed_tensor_free(in.many);
  heed_tensor_free(in.list);
  heed_context_free(in.ctx);
  return 0;
}
