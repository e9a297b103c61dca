/* The steps of optimisers. Source: torch.optim of PyTorch, whose order of operations decides the bits. */
#include "scalar.h"

/* a + weight · (b - a), by the formula that is more accurate for that weight, as torch.lerp; rest is
 * 1 - weight. */
static inline float step_between(float a, float b, float weight, float rest) {
  return weight < 0.5f ? a + weight * (b - a) : b - (b - a) * rest;
}

void heed__scalar_sgd_step(float *x, const float *g, float *momentum, size_t n, const heed__sgd_rule *rule) {
  for (size_t i = 0; i < n; i++) {
    float d = rule->maximize ? -g[i] : g[i];
    if (rule->decay != 0.0f) d = d + rule->decay * x[i];
    if (rule->momentum != 0.0f) {
      momentum[i] = rule->first ? d : momentum[i] * rule->momentum + rule->damped * d;
      d = rule->nesterov ? d + rule->momentum * momentum[i] : momentum[i];
    }
    x[i] = x[i] + rule->rate * d;
  }
}

void heed__scalar_adam_step(float *x, const float *g, float *m, float *v, float *highest, size_t n,
                            const heed__adam_rule *rule) {
  for (size_t i = 0; i < n; i++) {
    float d = rule->maximize ? -g[i] : g[i];
    const float from = x[i] * rule->shrink;
    if (rule->decay != 0.0f) d = d + rule->decay * from;
    m[i] = step_between(m[i], d, rule->rest1, rule->beta1);
    v[i] = v[i] * rule->beta2 + rule->rest2 * d * d;
    float square = v[i];
    if (rule->amsgrad)
      square = highest[i] = highest[i] > square || highest[i] != highest[i] ? highest[i] : square;
    x[i] = from + rule->rate * m[i] / (sqrtf(square) / rule->root + rule->eps);
  }
}

void heed__scalar_rmsprop_step(float *x, const float *g, float *square, float *mean, float *momentum,
                               size_t n, const heed__rmsprop_rule *rule) {
  for (size_t i = 0; i < n; i++) {
    float d = rule->maximize ? -g[i] : g[i];
    if (rule->decay != 0.0f) d = d + rule->decay * x[i];
    square[i] = square[i] * rule->alpha + rule->rest * d * d;
    float average = square[i];
    if (rule->centered) {
      mean[i] = step_between(mean[i], d, rule->rest, rule->alpha);
      average = average - mean[i] * mean[i];
    }
    const float divisor = sqrtf(average) + rule->eps;
    if (rule->momentum != 0.0f) {
      momentum[i] = momentum[i] * rule->momentum + d / divisor;
      x[i] = x[i] + rule->rate * momentum[i];
    } else {
      x[i] = x[i] + rule->rate * d / divisor;
    }
  }
}
