/* The scalar kernels of linear attention: the recurrence, token by token. Source: the ONNX operator
 * LinearAttention, version 27; the delta rules are those of arXiv:2406.06484 and arXiv:2412.06464. */
#include "scalar.h"

typedef heed__linear_attention_task linear_task;

/* e^decay of row c of the state at token t. */
static float decay_factor(const linear_task *a, int64_t t, int64_t c) {
  if (!a->decay) return 1.0f;
  return heed__exp_of(a->decay[t * a->decay_row + (a->decays_each ? c : 0)]);
}

/* before [d, dv] is the state before token t; sets u [dv], what the token writes, and error [dv], the
 * difference that beta scales. */
static void written_value(const linear_task *a, int64_t t, const float *before, float *u, float *error) {
  const int64_t d = a->head_size, dv = a->value_size;
  const float *k = a->k + t * a->k_row, *v = a->v + t * a->v_row;
  for (int64_t m = 0; m < dv; m++) u[m] = 0.0f;
  for (int64_t c = 0; a->beta && c < d; c++) {
    const float factor = decay_factor(a, t, c);
    for (int64_t m = 0; m < dv; m++) u[m] += factor * before[c * dv + m] * k[c];
  }
  for (int64_t m = 0; m < dv; m++) {
    error[m] = v[m] - u[m];
    u[m] = a->beta ? a->beta[t * a->beta_row] * error[m] : v[m];
  }
}

/* after = the state after token t, from that before it; they may be the same. */
static void next_state(const linear_task *a, int64_t t, const float *before, const float *u, float *after) {
  const int64_t d = a->head_size, dv = a->value_size;
  const float *k = a->k + t * a->k_row;
  for (int64_t c = 0; c < d; c++) {
    const float factor = decay_factor(a, t, c);
    for (int64_t m = 0; m < dv; m++) after[c * dv + m] = factor * before[c * dv + m] + k[c] * u[m];
  }
}

/* A step is a token. */
bool heed__scalar_linear_attention(const linear_task *a, const heed__pace *pace, int64_t *position) {
  const int64_t d = a->head_size, dv = a->value_size;
  float *u = a->scratch, *error = u + dv;
  for (int64_t t = position ? *position : 0; t < a->tokens; t++) {
    written_value(a, t, a->state, u, error);
    next_state(a, t, a->state, u, a->state);
    for (int64_t g = 0; g < a->group; g++) {
      const float *q = a->q + g * a->q_head + t * a->q_row;
      float *out = a->out + g * a->out_head + t * a->out_row;
      for (int64_t m = 0; m < dv; m++) out[m] = 0.0f;
      for (int64_t c = 0; c < d; c++)
        for (int64_t m = 0; m < dv; m++) out[m] += a->scale * q[c] * a->state[c * dv + m];
    }
    if (t + 1 < a->tokens && heed__should_yield(pace)) {
      *position = t + 1;
      return false;
    }
  }
  return true;
}

size_t heed__scalar_linear_attention_scratch(const linear_task *a) {
  return 2 * (size_t)a->value_size * sizeof(float);
}

#if !HEED_MINIMAL

/* ---- Gradients ---- */

/* Goes back over token t, from the state before it; dstate [d, dv], the gradient of the state after the
 * token, becomes that of the state before it. du, error and u are [dv]. */
static void token_backward(const heed__linear_attention_backward_task *g, int64_t t, const float *before,
                           float *u, float *error, float *du) {
  const linear_task *a = &g->forward;
  const int64_t d = a->head_size, dv = a->value_size, width = a->decays_each ? d : 1;
  const float *k = a->k + t * a->k_row, beta = a->beta ? a->beta[t * a->beta_row] : 1.0f;
  float *ds = g->dstate, dbeta = 0.0f;
  written_value(a, t, before, u, error);
  for (int64_t m = 0; m < dv; m++) du[m] = 0.0f;
  for (int64_t i = 0; g->ddecay && i < width; i++) g->ddecay[t * width + i] = 0.0f;
  for (int64_t c = 0; c < d; c++) {
    const float factor = decay_factor(a, t, c);
    float dk = 0.0f;
    for (int64_t h = 0; h < a->group; h++) {
      const float *dout = a->out + h * a->out_head + t * a->out_row;
      float dq = 0.0f;
      for (int64_t m = 0; m < dv; m++) {
        dq += a->scale * dout[m] * (factor * before[c * dv + m] + k[c] * u[m]);
        ds[c * dv + m] += a->scale * dout[m] * a->q[h * a->q_head + t * a->q_row + c];
      }
      if (g->dq) g->dq[(h * a->tokens + t) * d + c] = dq;
    }
    for (int64_t m = 0; m < dv; m++) {
      du[m] += ds[c * dv + m] * k[c];
      dk += ds[c * dv + m] * u[m];
    }
    if (g->dk) g->dk[t * d + c] = dk;
  }
  for (int64_t m = 0; m < dv; m++) {
    dbeta += du[m] * error[m];
    du[m] *= beta; /* now the gradient of v */
    if (g->dv) g->dv[t * dv + m] = du[m];
  }
  if (g->dbeta) g->dbeta[t] = dbeta;
  for (int64_t c = 0; c < d; c++) {
    const float factor = decay_factor(a, t, c);
    float dk = 0.0f, ddecay = 0.0f;
    for (int64_t m = 0; m < dv; m++) {
      const float decayed = factor * before[c * dv + m];
      if (a->beta) {
        dk -= decayed * du[m];
        ds[c * dv + m] -= k[c] * du[m];
      }
      ddecay += decayed * ds[c * dv + m];
      ds[c * dv + m] *= factor;
    }
    if (g->dk) g->dk[t * d + c] += dk;
    if (g->ddecay) g->ddecay[t * width + (a->decays_each ? c : 0)] += ddecay;
  }
}

/* The states before the first tokens of blocks are kept while going forward, then those before all tokens of
 * one block after the other, from the last. Steps: n tokens forward; for each block 2 · LINEAR_BLOCK tokens,
 * forward and back, of which those that do not exist are skipped. */
enum { LINEAR_BLOCK = HEED__LINEAR_CHUNK };

bool heed__scalar_linear_attention_backward(const heed__linear_attention_backward_task *g,
                                            const heed__pace *pace, int64_t *position) {
  const linear_task *a = &g->forward;
  const int64_t n = a->tokens, blocks = (n + LINEAR_BLOCK - 1) / LINEAR_BLOCK;
  const int64_t size = a->head_size * a->value_size, end = n + blocks * 2 * LINEAR_BLOCK;
  float *kept = g->scratch, *states = kept + blocks * size, *u = states + (LINEAR_BLOCK + 1) * size;
  float *error = u + a->value_size, *du = error + a->value_size;
  for (int64_t step = position ? *position : 0; step < end; step++) {
    const int64_t back = step - n,
                  block = back < 0 ? step / LINEAR_BLOCK : blocks - 1 - back / (2 * LINEAR_BLOCK);
    const int64_t turn = back < 0 ? 0 : back % (2 * LINEAR_BLOCK), first = block * LINEAR_BLOCK;
    const int64_t at = back < 0 ? step - first : turn < LINEAR_BLOCK ? turn : 2 * LINEAR_BLOCK - 1 - turn;
    const int64_t t = first + at;
    if (t >= n) continue;
    if (turn >= LINEAR_BLOCK) {
      token_backward(g, t, states + at * size, u, error, du);
    } else {
      float *before = states + (back < 0 ? 0 : at * size), *after = back < 0 ? states : before + size;
      if (back < 0 && at == 0 && step == 0) memcpy(before, a->state, (size_t)size * sizeof *before);
      if (back < 0 && at == 0) memcpy(kept + block * size, before, (size_t)size * sizeof *before);
      if (back >= 0 && at == 0) memcpy(before, kept + block * size, (size_t)size * sizeof *before);
      written_value(a, t, before, u, error);
      next_state(a, t, before, u, after);
    }
    if (step + 1 < end && heed__should_yield(pace)) {
      *position = step + 1;
      return false;
    }
  }
  return true;
}

size_t heed__scalar_linear_attention_backward_scratch(const heed__linear_attention_backward_task *g) {
  const linear_task *a = &g->forward;
  const size_t blocks = ((size_t)a->tokens + LINEAR_BLOCK - 1) / LINEAR_BLOCK;
  const size_t size = (size_t)a->head_size * (size_t)a->value_size;
  return ((blocks + LINEAR_BLOCK + 1) * size + 3 * (size_t)a->value_size) * sizeof(float);
}

#endif

/* ---- Causal convolution ---- */

void heed__scalar_causal_conv(const heed__causal_conv_task *a) {
  for (int64_t c = 0; c < a->channels; c++)
    for (int64_t t = a->first; t < a->last; t++) {
      float sum = a->bias ? a->bias[c] : 0.0f;
      for (int64_t j = 0; j < a->taps; j++) {
        const int64_t at = t + j - (a->taps - 1); /* in x, or before it */
        const float x = at >= 0   ? a->x[c * a->x_channel + at * a->x_step]
                        : a->past ? a->past[c * a->past_channel + (at + a->taps - 1) * a->past_step]
                                  : 0.0f;
        sum += a->weight[c * a->taps + j] * x;
      }
      a->out[c * a->out_channel + t * a->out_step] = a->silu ? sum / (1.0f + heed__exp_of(-sum)) : sum;
    }
}
