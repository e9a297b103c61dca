/* The causal convolution: lanes run along the channels if these are contiguous, else along the tokens. An
 * element has the same bits either way. */
#ifndef HEED_VECTOR_CAUSAL_CONV_H
#define HEED_VECTOR_CAUSAL_CONV_H

#include "rows.h"

enum { CONV_TAPS = 32 }; /* most taps for lanes along the channels */

static inline vfloat conv_activation(const bool silu, vfloat x) {
  return silu ? v_div(x, logistic_divisor(x)) : x;
}

/* Element `at` of a channel of x, from 0, or of the past before it. */
static inline float conv_input(const heed__causal_conv_task *a, int64_t channel, int64_t at) {
  if (at >= 0) return a->x[channel * a->x_channel + at * a->x_step];
  return a->past ? a->past[channel * a->past_channel + (at + a->taps - 1) * a->past_step] : 0.0f;
}

/* The tokens of one channel, whatever the strides; the arithmetic is that of conv_along_channels. */
static void conv_along_tokens(const heed__causal_conv_task *a, int64_t channel) {
  const float *weight = a->weight + channel * a->taps, *x = a->x + channel * a->x_channel;
  const vfloat bias = v_set(a->bias ? a->bias[channel] : 0.0f);
  float *out = a->out + channel * a->out_channel, gathered[V_LANES] = {0.0f};
  const int64_t last = a->taps - 1;
  for (int64_t t = a->first; t < a->last; t += V_LANES) {
    const int64_t count = heed__min(a->last - t, V_LANES);
    const bool inside = t >= last && a->x_step == 1;
    const vmask edge = v_first((size_t)count);
    vfloat sum = bias;
    if (inside && count == V_LANES) {
      for (int64_t j = 0; j < a->taps; j++) sum = v_fma(v_set(weight[j]), v_load(x + t + j - last), sum);
    } else if (inside) {
      for (int64_t j = 0; j < a->taps; j++)
        sum = v_fma(v_set(weight[j]), v_load_masked(x + t + j - last, edge), sum);
    } else {
      for (int64_t j = 0; j < a->taps; j++) {
        for (int64_t i = 0; i < count; i++) gathered[i] = conv_input(a, channel, t + i + j - last);
        sum = v_fma(v_set(weight[j]), v_load(gathered), sum);
      }
    }
    sum = conv_activation(a->silu, sum);
    if (a->out_step == 1) {
      v_store_masked(out + t, sum, edge);
      continue;
    }
    v_store(gathered, sum);
    for (int64_t i = 0; i < count; i++) out[(t + i) * a->out_step] = gathered[i];
  }
}

/* V_LANES channels, or fewer. */
static void conv_along_channels(const heed__causal_conv_task *a, int64_t channel) {
  vfloat weight[CONV_TAPS];
  float gathered[V_LANES] = {0.0f};
  const int64_t channels = heed__min(a->channels - channel, V_LANES);
  const vmask edge = v_first((size_t)channels);
  const vfloat bias = a->bias ? v_load_masked(a->bias + channel, edge) : v_zero();
  for (int64_t j = 0; j < a->taps; j++) {
    for (int64_t c = 0; c < channels; c++) gathered[c] = a->weight[(channel + c) * a->taps + j];
    weight[j] = v_load(gathered);
  }
  for (int64_t t = a->first; t < a->last; t++) {
    vfloat sum = bias;
    for (int64_t j = 0; j < a->taps; j++) {
      const int64_t at = t + j - (a->taps - 1);
      if (at >= 0) {
        sum = v_fma(weight[j], v_load_masked(a->x + channel + at * a->x_step, edge), sum);
        continue;
      }
      for (int64_t c = 0; c < channels; c++) gathered[c] = conv_input(a, channel + c, at);
      sum = v_fma(weight[j], v_load(gathered), sum);
    }
    v_store_masked(a->out + channel + t * a->out_step, conv_activation(a->silu, sum), edge);
  }
}

void KERNEL(causal_conv)(const heed__causal_conv_task *a) {
  if (a->taps <= CONV_TAPS && a->channels > 1 && a->x_channel == 1 && a->out_channel == 1)
    for (int64_t c = 0; c < a->channels; c += V_LANES) conv_along_channels(a, c);
  else
    for (int64_t c = 0; c < a->channels; c++) conv_along_tokens(a, c);
}

#endif
