/* The gradients of the causal convolution, a channel after the other. With p the past followed by x, z the
 * sums before silu and dz their gradient: dp[s] = Σ_j weight[j] dz[s - j], which is a convolution as well,
 * dweight[j] = Σ_t dz[t] p[t + j] and dbias = Σ_t dz[t]. */
#include "grad.h"

#include <string.h>

enum { CONV_CALL = 1 << 14 }; /* tokens between two cancellation checks */

typedef struct conv_gradient {
  const heed__kernels *kernels;
  const heed__pace *pace;
  /* row-major: x and dy [b, channels, n], weight [channels, k], past and dstate [b, channels, k - 1] */
  const float *x, *weight, *bias, *past, *dy, *dstate;
  float *dx, *dweight, *dbias, *dpast; /* NULL: not wanted */
  int64_t batch, channels, n, taps;
  bool silu;
  float *scratch; /* `area` floats for each worker: p, dz with k - 1 zeros, dp, and two times the taps */
  int64_t area;
} conv_gradient;

/* dz of a row, between zeros, from p; false if a check stops it. */
static bool row_gradient(const conv_gradient *g, int64_t channel, const float *p, const float *dy,
                         float *dz) {
  const int64_t last = g->taps - 1;
  for (int64_t first = 0; first < g->n; first += CONV_CALL) {
    const int64_t count = heed__min(CONV_CALL, g->n - first);
    float *to = dz + first;
    if (heed__is_due(g->pace)) return false;
    if (!g->silu) {
      memcpy(to, dy + first, (size_t)count * sizeof *to);
      continue;
    }
    const heed__causal_conv_task task = {.x = p + last + first,
                                         .past = p + first,
                                         .weight = g->weight + channel * g->taps,
                                         .bias = g->bias ? g->bias + channel : NULL,
                                         .out = to,
                                         .x_channel = g->n,
                                         .x_step = 1,
                                         .past_channel = last,
                                         .past_step = 1,
                                         .out_channel = g->n,
                                         .out_step = 1,
                                         .channels = 1,
                                         .taps = g->taps,
                                         .last = count};
    g->kernels->causal_conv(&task);
    g->kernels->silu_backward(to, to, dy + first, (size_t)count);
  }
  for (int64_t i = 0; i < last; i++) dz[g->n + i] = 0.0f;
  return true;
}

/* dp [k - 1 + n] from dz; flipped: the taps in reverse order. */
static bool input_gradient(const conv_gradient *g, const float *flipped, const float *dz, float *dp) {
  heed__causal_conv_task task = {.x = dz,
                                 .weight = flipped,
                                 .out = dp,
                                 .x_channel = g->n,
                                 .x_step = 1,
                                 .out_channel = g->n,
                                 .out_step = 1,
                                 .channels = 1,
                                 .taps = g->taps};
  for (const int64_t end = g->n + g->taps - 1; task.first < end; task.first = task.last) {
    task.last = heed__min(task.first + CONV_CALL, end);
    if (heed__is_due(g->pace)) return false;
    g->kernels->causal_conv(&task);
  }
  return true;
}

static void conv_channel(void *argument, int64_t channel, int worker) {
  const conv_gradient *g = argument;
  const int64_t n = g->n, last = g->taps - 1;
  float *p = g->scratch + worker * g->area, *dz = p + last + n, *dp = dz + n + last, *flipped = dp + n + last;
  float *dweight = flipped + g->taps, dbias = 0.0f;
  for (int64_t j = 0; j < g->taps; j++) {
    flipped[j] = g->weight[channel * g->taps + last - j];
    dweight[j] = 0.0f;
  }
  for (int64_t item = 0; item < g->batch; item++) {
    const int64_t row = item * g->channels + channel;
    for (int64_t i = 0; i < last; i++) p[i] = g->past ? g->past[row * last + i] : 0.0f;
    memcpy(p + last, g->x + row * n, (size_t)n * sizeof *p);
    if (!row_gradient(g, channel, p, g->dy + row * n, dz)) return;
    for (int64_t j = 0; g->dweight && j < g->taps; j++) {
      if (heed__is_due(g->pace)) return;
      dweight[j] += g->kernels->dot(dz, 1, p + j, 1, (size_t)n);
    }
    dbias += g->kernels->sum(dz, (size_t)n);
    if (!g->dx && !g->dpast) continue;
    if (!input_gradient(g, flipped, dz, dp)) return;
    for (int64_t i = 0; g->dstate && i < last; i++) dp[n + i] += g->dstate[row * last + i];
    if (g->dpast) memcpy(g->dpast + row * last, dp, (size_t)last * sizeof *dp);
    if (g->dx) memcpy(g->dx + row * n, dp + last, (size_t)n * sizeof *dp);
  }
  if (g->dweight) memcpy(g->dweight + channel * g->taps, dweight, (size_t)g->taps * sizeof *dweight);
  if (g->dbias) g->dbias[channel] = dbias;
}

static heed_status run_conv_gradient(heed_context *ctx, const char *function, conv_gradient *g) {
  const int workers = heed__workers(ctx);
  g->area = 3 * (g->n + g->taps) + 2 * g->taps; /* n and taps are sizes of tensors with elements */
  if (g->channels == 0) return HEED_OK;
  const size_t bytes =
      heed__array_bytes((uint64_t)workers, heed__array_bytes((uint64_t)g->area, sizeof(float)));
  g->scratch = heed__allocate(ctx, bytes);
  if (!g->scratch) return heed__fail_memory(ctx, function, bytes);
  const bool done = heed__parallel(ctx, g->channels, conv_channel, g);
  heed__release(ctx, g->scratch);
  return done ? HEED_OK : heed__stopped(ctx, function);
}

heed_status heed__causal_conv_backward(heed__backward *b) {
  enum { CONV_DY = HEED__CONV_INPUTS, CONV_DSTATE, CONV_ALL };
  heed_context *ctx = b->ctx;
  heed_tensor header[HEED__CONV_INPUTS], *made[CONV_ALL] = {NULL}, *zeros = NULL;
  const heed_tensor *given[CONV_ALL] = {NULL}, *packed[CONV_ALL] = {NULL};
  float *dx[HEED__CONV_INPUTS] = {NULL};
  const float *data[CONV_ALL] = {NULL};
  heed_status status = HEED_OK;
  for (int i = 0; i < HEED__CONV_INPUTS; i++)
    if (heed__backward_has(b, i)) given[i] = heed__backward_input(b, i, &header[i]);
  const heed_tensor *x = given[HEED__CONV_X], *weight = given[HEED__CONV_WEIGHT];
  given[CONV_DY] = b->dy[0];
  given[CONV_DSTATE] = b->node->outputs > 1 ? b->dy[1] : NULL;
  if (!given[CONV_DY]) {
    status = heed__full(ctx, b->function, HEED_FLOAT32, 3, x->shape, heed_number(0), &zeros);
    given[CONV_DY] = zeros;
  }
  for (int i = 0; i < CONV_ALL && !status; i++) {
    if (!given[i]) continue;
    status = heed__as_contiguous(ctx, b->function, given[i], HEED_FLOAT32, &packed[i], &made[i]);
    if (!status) data[i] = (const float *)(const void *)packed[i]->data;
  }
  for (int i = 0; i < HEED__CONV_INPUTS && !status; i++) {
    if (!heed__backward_wants(b, i)) continue;
    status = heed__tensor_new(ctx, b->function, HEED_FLOAT32, given[i]->ndim, given[i]->shape, &b->dx[i]);
    if (!status) dx[i] = (float *)(void *)b->dx[i]->data;
  }
  if (!status) {
    conv_gradient g = {.kernels = heed__kernels_of(ctx),
                       .pace = &ctx->pace,
                       .x = data[HEED__CONV_X],
                       .weight = data[HEED__CONV_WEIGHT],
                       .bias = data[HEED__CONV_BIAS],
                       .past = data[HEED__CONV_PAST],
                       .dy = data[CONV_DY],
                       .dstate = data[CONV_DSTATE],
                       .dx = dx[HEED__CONV_X],
                       .dweight = dx[HEED__CONV_WEIGHT],
                       .dbias = dx[HEED__CONV_BIAS],
                       .dpast = dx[HEED__CONV_PAST],
                       .batch = x->shape[0],
                       .channels = x->shape[1],
                       .n = x->shape[2],
                       .taps = weight->shape[weight->ndim - 1],
                       .silu = *(const bool *)b->values};
    status = run_conv_gradient(ctx, b->function, &g);
  }
  heed_tensor_free(zeros);
  for (int i = 0; i < CONV_ALL; i++) heed_tensor_free(made[i]);
  return status;
}
