/* The steps of optimisers, operation by operation as in scalar/steps.c. No multiply-add is fused. */
#ifndef HEED_VECTOR_STEPS_H
#define HEED_VECTOR_STEPS_H

#include "rows.h"

/* a + weight · (b - a), or from 0.5 on b - rest · (b - a) */
V_INLINE vfloat step_between(vfloat a, vfloat b, float weight, float rest) {
  const vfloat apart = v_sub(b, a);
  return weight < 0.5f ? v_add(a, v_mul(v_set(weight), apart)) : v_sub(b, v_mul(apart, v_set(rest)));
}

/* The gradient, perhaps negated, with the decay of x. */
V_INLINE vfloat step_gradient(vfloat g, vfloat x, bool maximize, float decay) {
  if (maximize) g = v_neg(g);
  return decay != 0.0f ? v_add(g, v_mul(v_set(decay), x)) : g;
}

void KERNEL(sgd_step)(float *x, const float *g, float *momentum, size_t n, const heed__sgd_rule *rule) {
  const heed__sgd_rule r = *rule;
  EACH(
      n, const vfloat from = LOAD(x); vfloat d = step_gradient(LOAD(g), from, r.maximize, r.decay);
      if (r.momentum != 0.0f) {
        vfloat kept = d;
        if (!r.first) kept = v_add(v_mul(LOAD(momentum), v_set(r.momentum)), v_mul(v_set(r.damped), d));
        STORE(momentum, kept);
        d = r.nesterov ? v_add(d, v_mul(v_set(r.momentum), kept)) : kept;
      } STORE(x, v_add(from, v_mul(v_set(r.rate), d))););
}

void KERNEL(adam_step)(float *x, const float *g, float *m, float *v, float *highest, size_t n,
                       const heed__adam_rule *rule) {
  const heed__adam_rule r = *rule;
  EACH(
      n, const vfloat from = v_mul(LOAD(x), v_set(r.shrink));
      const vfloat d = step_gradient(LOAD(g), from, r.maximize, r.decay);
      const vfloat mean = step_between(LOAD(m), d, r.rest1, r.beta1); STORE(m, mean);
      vfloat square = v_add(v_mul(LOAD(v), v_set(r.beta2)), v_mul(v_mul(v_set(r.rest2), d), d));
      STORE(v, square); if (r.amsgrad) {
        square = maximum_of(LOAD(highest), square);
        STORE(highest, square);
      } const vfloat divisor = v_add(v_div(v_sqrt(square), v_set(r.root)), v_set(r.eps));
      STORE(x, v_add(from, v_div(v_mul(v_set(r.rate), mean), divisor))););
}

void KERNEL(rmsprop_step)(float *x, const float *g, float *square, float *mean, float *momentum, size_t n,
                          const heed__rmsprop_rule *rule) {
  const heed__rmsprop_rule r = *rule;
  EACH(
      n, const vfloat from = LOAD(x); const vfloat d = step_gradient(LOAD(g), from, r.maximize, r.decay);
      vfloat average = v_add(v_mul(LOAD(square), v_set(r.alpha)), v_mul(v_mul(v_set(r.rest), d), d));
      STORE(square, average); if (r.centered) {
        const vfloat center = step_between(LOAD(mean), d, r.rest, r.alpha);
        STORE(mean, center);
        average = v_sub(average, v_mul(center, center));
      } const vfloat divisor = v_add(v_sqrt(average), v_set(r.eps));
      if (r.momentum != 0.0f) {
        const vfloat kept = v_add(v_mul(LOAD(momentum), v_set(r.momentum)), v_div(d, divisor));
        STORE(momentum, kept);
        STORE(x, v_add(from, v_mul(v_set(r.rate), kept)));
      } else { STORE(x, v_add(from, v_div(v_mul(v_set(r.rate), d), divisor))); });
}

#endif
