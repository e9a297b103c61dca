/* The causal convolution: lanes run along the channels if these are contiguous, else along the tokens. An
 * element has the same bits either way. */
#ifndef HEED_VECTOR_CAUSAL_CONV_H
#define HEED_VECTOR_CAUSAL_CONV_H

#include "rows.h"

enum {
  CONV_TAPS = 32, /* most taps that fit in buffers on the stack */
  CONV_AT_ONCE = 4,
  CONV_PACKED = 1 << 12, /* floats of packed weights */
};

static inline vfloat conv_activation(const bool silu, vfloat x) {
  return silu ? v_div(x, logistic_divisor(x)) : x;
}

/* Element `at` of a channel of x, from 0, or of the past before it. */
static inline float conv_input(const heed__causal_conv_task *a, int64_t channel, int64_t at) {
  if (at >= 0) return a->x[channel * a->x_channel + at * a->x_step];
  return a->past ? a->past[channel * a->past_channel + (at + a->taps - 1) * a->past_step] : 0.0f;
}

/* CONV_AT_ONCE vectors of tokens, whose sums do not wait for each other. */
static void conv_several(bool silu, const float *weight, int64_t taps, const float *x, vfloat bias,
                         float *out) {
  vfloat sum[CONV_AT_ONCE];
  V_UNROLL
  for (int i = 0; i < CONV_AT_ONCE; i++) sum[i] = bias;
  for (int64_t j = 0; j < taps; j++) {
    V_UNROLL
    for (int i = 0; i < CONV_AT_ONCE; i++)
      sum[i] = v_fma(v_set(weight[j]), v_load(x + j + i * V_LANES), sum[i]);
  }
  V_UNROLL
  for (int i = 0; i < CONV_AT_ONCE; i++) v_store(out + i * V_LANES, conv_activation(silu, sum[i]));
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
    if (inside && a->out_step == 1 && a->last - t >= CONV_AT_ONCE * V_LANES) {
      conv_several(a->silu, weight, a->taps, x + t - last, bias, out + t);
      t += (CONV_AT_ONCE - 1) * V_LANES;
      continue;
    } else if (inside) {
      for (int64_t j = 0; j < a->taps; j++)
        sum = v_fma(v_set(weight[j]), v_load_masked(x + t + j - last, edge), sum);
    } else if (a->taps <= CONV_TAPS) {
      float near[CONV_TAPS + V_LANES];
      for (int64_t i = 0; i < count + last; i++) near[i] = conv_input(a, channel, t + i - last);
      for (int64_t j = 0; j < a->taps; j++) sum = v_fma(v_set(weight[j]), v_load_masked(near + j, edge), sum);
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

/* Some channels; packed: room for their weights and their past, transposed [taps, channels]. */
static void conv_along_channels(const heed__causal_conv_task *a, int64_t channel, size_t channels,
                                float *packed) {
  const int64_t taps = a->taps, last = taps - 1;
  const ptrdiff_t wide = (ptrdiff_t)channels;
  float *past = packed + taps * wide;
  const float *row[CONV_TAPS];
  KERNEL(transpose)(packed, wide, a->weight + channel * taps, taps, channels, (size_t)taps);
  for (int64_t j = 0; j < last && a->first < last; j++)
    for (int64_t c = 0; c < wide; c++) past[j * wide + c] = conv_input(a, channel + c, j - last);
  for (int64_t t = a->first; t < a->last; t++) {
    float *out = a->out + channel + t * a->out_step;
    for (int64_t j = 0; j < taps; j++) {
      const int64_t at = t + j - last;
      row[j] = at >= 0 ? a->x + channel + at * a->x_step : past + (at + last) * wide;
    }
    for (size_t c = 0; c < channels; c += V_LANES) {
      const bool whole = c + V_LANES <= channels;
      const vmask edge = v_first(heed__min_size(channels - c, V_LANES));
      vfloat sum = !a->bias ? v_zero() : v_load_masked(a->bias + channel + c, edge);
      if (whole) {
        __builtin_prefetch(row[last] + a->x_step +
                           c); /* a row of it ends before the processor sees an order */
        for (int64_t j = 0; j < taps; j++)
          sum = v_fma(v_load(packed + j * wide + c), v_load(row[j] + c), sum);
        v_store(out + c, conv_activation(a->silu, sum));
        continue;
      }
      for (int64_t j = 0; j < taps; j++)
        sum = v_fma(v_load_masked(packed + j * wide + c, edge), v_load_masked(row[j] + c, edge), sum);
      v_store_masked(out + c, conv_activation(a->silu, sum), edge);
    }
  }
}

static void conv_all_channels(const heed__causal_conv_task *a) {
  float packed[2 * CONV_PACKED];
  const int64_t most = CONV_PACKED / a->taps / V_LANES * V_LANES;
  for (int64_t c = 0; c < a->channels; c += most)
    conv_along_channels(a, c, (size_t)heed__min(a->channels - c, most), packed);
}

void KERNEL(causal_conv)(const heed__causal_conv_task *a) {
  if (a->taps <= CONV_TAPS && a->channels > 1 && a->x_channel == 1 && a->out_channel == 1)
    conv_all_channels(a);
  else
    for (int64_t c = 0; c < a->channels; c++) conv_along_tokens(a, c);
}

#endif
