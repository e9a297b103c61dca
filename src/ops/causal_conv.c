/* The causal convolution of each channel with its own taps, with a state, and its gradients. */
#include "ops.h"

#include <string.h>

enum {
  CONV_RUN = 1 << 10,   /* most channels of a task, if they are contiguous */
  CONV_PIECE = 1 << 16, /* multiply-adds of a task */
};

static const char *const conv_names[HEED__CONV_INPUTS] = {"x", "weight", "bias", "past_state"};

typedef struct conv_job {
  const heed__kernels *kernels;
  const heed_tensor *x, *past, *out; /* past may be NULL */
  heed__causal_conv_task task;       /* of all channels and tokens of the first item */
  int64_t channels, tokens;          /* of a task */
  int64_t across, along;             /* tasks of an item */
} conv_job;

static heed_status check_conv(heed_context *ctx, const char *function, const heed_tensor *const *input) {
  const heed_tensor *x = input[HEED__CONV_X], *weight = input[HEED__CONV_WEIGHT];
  char text[HEED__SHAPE_TEXT], other[HEED__SHAPE_TEXT];
  heed_status status = HEED_OK;
  for (int i = 0; i < HEED__CONV_INPUTS && !status; i++)
    if (input[i]) status = heed__check_dtype(ctx, function, conv_names[i], input[i], HEED_FLOAT32);
  if (status) return status;
  if (x->ndim != 3)
    return heed__fail(ctx, HEED_SHAPE, "%s: x is %s; it must be [b, channels, n]", function,
                      heed__shape_text(text, x->ndim, x->shape));
  const bool is_flat = weight->ndim == 2 || (weight->ndim == 3 && weight->shape[1] == 1);
  if (!is_flat || weight->shape[0] != x->shape[1])
    return heed__fail_pair(ctx, function, "weight", weight, "x", x,
                           "weight must be [channels, k] or [channels, 1, k]");
  const int64_t taps = weight->shape[weight->ndim - 1];
  if (taps < 1)
    return heed__fail(ctx, HEED_SHAPE, "%s: weight is %s; its last size must be at least 1", function,
                      heed__shape_text(text, weight->ndim, weight->shape));
  if (input[HEED__CONV_BIAS] &&
      (input[HEED__CONV_BIAS]->ndim != 1 || input[HEED__CONV_BIAS]->shape[0] != x->shape[1]))
    return heed__fail_pair(ctx, function, "bias", input[HEED__CONV_BIAS], "x", x, "bias must be [channels]");
  const int64_t past[] = {x->shape[0], x->shape[1], taps - 1};
  if (input[HEED__CONV_PAST] &&
      !heed__same_shape(input[HEED__CONV_PAST]->ndim, input[HEED__CONV_PAST]->shape, 3, past))
    return heed__fail(ctx, HEED_SHAPE, "%s: past_state is %s; it must be [b, channels, k - 1], here %s",
                      function,
                      heed__shape_text(text, input[HEED__CONV_PAST]->ndim, input[HEED__CONV_PAST]->shape),
                      heed__shape_text(other, 3, past));
  return HEED_OK;
}

static const float *item_of(const heed_tensor *x, int64_t item, int64_t channel) {
  return (const float *)(const void *)x->data + item * x->stride[0] + channel * x->stride[1];
}

static void conv_part(void *argument, int64_t i, int worker) {
  const conv_job *j = argument;
  heed__causal_conv_task task = j->task;
  const int64_t across = i % j->across, along = i / j->across % j->along, item = i / j->along / j->across;
  const int64_t channel = across * j->channels;
  (void)worker;
  task.x = item_of(j->x, item, channel);
  task.out = (float *)(uintptr_t)item_of(j->out, item, channel);
  task.past = j->past ? item_of(j->past, item, channel) : NULL;
  task.weight += channel * task.taps;
  task.bias = task.bias ? task.bias + channel : NULL;
  task.channels = heed__min(j->channels, j->x->shape[1] - channel);
  task.first = along * j->tokens;
  task.last = heed__min(task.first + j->tokens, j->x->shape[2]);
  j->kernels->causal_conv(&task);
}

/* out [b, channels, n]; weight and bias are contiguous. */
static heed_status convolve(heed_context *ctx, const char *function, const heed_tensor *x,
                            const heed_tensor *weight, const heed_tensor *bias, const heed_tensor *past,
                            bool silu, const heed_tensor *out) {
  const int64_t n = x->shape[2], channels = x->shape[1];
  if (x->numel == 0) return HEED_OK;
  conv_job job = {.kernels = heed__kernels_of(ctx), .x = x, .past = past, .out = out};
  job.task = (heed__causal_conv_task){.weight = (const float *)(const void *)weight->data,
                                      .bias = bias ? (const float *)(const void *)bias->data : NULL,
                                      .x_channel = (ptrdiff_t)(channels > 1 ? x->stride[1] : 1),
                                      .x_step = (ptrdiff_t)(n > 1 ? x->stride[2] : 1),
                                      .out_channel = (ptrdiff_t)(channels > 1 ? out->stride[1] : 1),
                                      .out_step = (ptrdiff_t)(n > 1 ? out->stride[2] : 1),
                                      .past_channel = past ? (ptrdiff_t)past->stride[1] : 0,
                                      .past_step = past ? (ptrdiff_t)past->stride[2] : 0,
                                      .taps = weight->shape[weight->ndim - 1],
                                      .silu = silu};
  const heed_status charged = heed__charge(ctx, function, (double)x->numel * (double)job.task.taps);
  if (charged) return charged;
  const int64_t most = heed__max(1, CONV_PIECE / job.task.taps);
  const bool is_across = channels > 1 && job.task.x_channel == 1; /* long runs of what is contiguous */
  job.channels = is_across ? heed__min(channels, heed__min(CONV_RUN, most)) : 1;
  job.tokens = heed__min(n, is_across ? heed__max(1, most / job.channels) : most);
  if (!is_across) job.channels = heed__min(channels, heed__max(1, most / job.tokens));
  job.along = heed__parts(n, job.tokens);
  job.across = heed__parts(channels, job.channels);
  return heed__parallel(ctx, x->shape[0] * job.across * job.along, conv_part, &job)
             ? HEED_OK
             : heed__stopped(ctx, function);
}

/* The last k - 1 tokens of past (zeros) and x. */
static heed_status copy_state(heed_context *ctx, const char *function, const heed_tensor *x,
                              const heed_tensor *past, const heed_tensor *state) {
  const int64_t n = x->shape[2], kept = state->shape[2], old = heed__max(kept - n, 0);
  float zero = 0.0f;
  heed_tensor from, to = *state;
  bool done = true;
  if (state->numel == 0) return HEED_OK;
  if (old > 0) {
    to.shape[2] = old;
    to.numel = to.shape[0] * to.shape[1] * old;
    if (past) {
      from = *past;
      from.shape[2] = old;
      from.numel = to.numel;
      from.data += (kept - old) * past->stride[2] * (int64_t)sizeof(float);
    } else {
      heed__header_on_stack(&from, HEED_FLOAT32, &zero, 1, (const int64_t[]){1});
    }
    done = heed__copy_elements(&to, &from);
  }
  if (old < kept) {
    to = *state;
    from = *x;
    to.data += old * state->stride[2] * (int64_t)sizeof(float);
    to.shape[2] = from.shape[2] = kept - old;
    to.numel = from.numel = to.shape[0] * to.shape[1] * (kept - old);
    from.data += (n - (kept - old)) * x->stride[2] * (int64_t)sizeof(float);
    done = done && heed__copy_elements(&to, &from);
  }
  return done ? HEED_OK : heed__stopped(ctx, function);
}

heed_status heed_causal_conv(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                             const heed_causal_conv_options *options, heed_tensor **out,
                             heed_tensor **state) {
  static const char function[] = "causal_conv";
  HEED__ENTER(ctx, function, x, weight, out);
  HEED__MAY_ENTER(ctx, function, state);
  heed_causal_conv_options own = {.size = sizeof own};
  heed_status status = HEED_OK;
  if (options)
    status =
        heed__struct_read(ctx, function, "options", "heed_causal_conv_options", options, &own, sizeof own);
  if (status) return status;
  HEED__MAY_ENTER(ctx, function, own.bias, own.past_state);
  const heed_tensor *const input[] = {x, weight, own.bias, own.past_state};
  const heed_tensor *filter = NULL, *bias = NULL;
  heed_tensor *made[2] = {NULL}, *unwanted = NULL;
  heed__result y = {0}, last = {0};
  heed_tensor **last_out = state ? state : &unwanted;
  status = heed__check_state(ctx, function, out, state);
  if (!status) status = check_conv(ctx, function, input);
  if (status) return status;
  const int64_t kept[] = {x->shape[0], x->shape[1], weight->shape[weight->ndim - 1] - 1};
  status = heed__as_contiguous(ctx, function, weight, HEED_FLOAT32, &filter, &made[0]);
  if (!status && own.bias)
    status = heed__as_contiguous(ctx, function, own.bias, HEED_FLOAT32, &bias, &made[1]);
  if (!status)
    status = heed__result_begin(ctx, function, &y, out, HEED_FLOAT32, 3, x->shape, false, HEED__CONV_INPUTS,
                                input);
  if (!status)
    status = heed__result_begin(ctx, function, &last, last_out, HEED_FLOAT32, 3, kept, false,
                                HEED__CONV_INPUTS, input);
  if (!status) {
    if (y.tensor != *out) heed__strides_like(x, y.tensor->stride); /* tokens or channels innermost, as in x */
    status = convolve(ctx, function, x, filter, bias, own.past_state, own.silu, y.tensor);
  }
  if (!status) status = copy_state(ctx, function, x, own.past_state, last.tensor);
  heed_tensor_free(made[0]);
  heed_tensor_free(made[1]);
  status = heed__state_result_end(ctx, status, &y, &last);
  heed_tensor_free(unwanted);
  return heed__record_state(ctx, status, HEED__OP_causal_conv, HEED__CONV_INPUTS, input, &own.silu,
                            sizeof own.silu, out, state);
}
