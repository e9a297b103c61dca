/* The causal convolution: lanes run along the tokens, or along the channels if these are contiguous. */
#ifndef HEED_VECTOR_CAUSAL_CONV_H
#define HEED_VECTOR_CAUSAL_CONV_H

#include "rows.h"

enum { CONV_TAPS = 32 }; /* most taps of channels side by side; other tasks are left to the scalar kernel */

static inline vfloat conv_activation(const bool silu, vfloat x) {
  return silu ? v_div(x, logistic_divisor(x)) : x;
}

/* Element `at` of a channel of x, from 0, or of the past before it. */
static inline float conv_input(const heed__causal_conv_task *a, int64_t channel, int64_t at) {
  if (at >= 0) return a->x[channel * a->x_channel + at * a->x_step];
  return a->past ? a->past[channel * a->past_channel + (at + a->taps - 1) * a->past_step] : 0.0f;
}

static void conv_along_tokens(const heed__causal_conv_task *a, int64_t channel) {
  const float *weight = a->weight + channel * a->taps, *x = a->x + channel * a->x_channel - (a->taps - 1);
  const vfloat bias = v_set(a->bias ? a->bias[channel] : 0.0f);
  float *out = a->out + channel * a->out_channel;
  const int64_t inside = heed__min(heed__max(a->first, a->taps - 1), a->last);
  for (int64_t t = a->first; t < inside; t++) {
    float sum = a->bias ? a->bias[channel] : 0.0f;
    for (int64_t j = 0; j < a->taps; j++) sum += weight[j] * conv_input(a, channel, t + j - (a->taps - 1));
    out[t] = a->silu ? sum / (1.0f + heed__exp_of(-sum)) : sum;
  }
  for (int64_t t = inside; t < a->last; t += V_LANES) {
    const bool whole = t + V_LANES <= a->last;
    const vmask edge = v_first((size_t)heed__min(a->last - t, V_LANES));
    vfloat sum = bias;
    for (int64_t j = 0; j < a->taps; j++)
      sum = v_fma(v_set(weight[j]), whole ? v_load(x + t + j) : v_load_masked(x + t + j, edge), sum);
    sum = conv_activation(a->silu, sum);
    if (whole)
      v_store(out + t, sum);
    else
      v_store_masked(out + t, sum, edge);
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
  else if (a->x_step == 1 && a->out_step == 1)
    for (int64_t c = 0; c < a->channels; c++) conv_along_tokens(a, c);
  else
    heed__scalar_causal_conv(a);
}

#endif
