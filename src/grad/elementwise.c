/* Gradients of elementwise operations on several tensors. Where inputs broadcast, the tape sums. */
#include "grad.h"

#include <math.h>

heed_status heed__backward_same(heed__backward *b, int i) {
  if (!heed__backward_wants(b, i)) return HEED_OK;
  return heed_tensor_alias(b->ctx, b->dy[0], &b->dx[i]);
}

/* ---- Steps on tensors that are freed at the end ---- */

typedef struct steps {
  heed_context *ctx;
  heed_status status;
  heed_tensor *made[8];
  int count;
} steps;

typedef heed_status two(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, heed_tensor **out);
typedef heed_status one(heed_context *ctx, const heed_tensor *x, heed_tensor **out);

static const heed_tensor *apply_two(steps *s, two *call, const heed_tensor *a, const heed_tensor *b) {
  if (s->status != HEED_OK) return NULL;
  heed_tensor **out = &s->made[s->count++];
  s->status = call(s->ctx, a, b, out);
  return *out;
}

static const heed_tensor *apply_one(steps *s, one *call, const heed_tensor *x) {
  if (s->status != HEED_OK) return NULL;
  heed_tensor **out = &s->made[s->count++];
  s->status = call(s->ctx, x, out);
  return *out;
}

/* value where mask is true. */
static const heed_tensor *fill_where(steps *s, const heed_tensor *x, const heed_tensor *mask, double value) {
  if (s->status != HEED_OK) return NULL;
  heed_tensor **out = &s->made[s->count++];
  s->status = heed_masked_fill(s->ctx, x, mask, heed_number(value), out);
  return *out;
}

/* *out = the last step's result; the others go. */
static heed_status end_steps_with(steps *s, heed_tensor **out) {
  if (s->status == HEED_OK) {
    *out = s->made[s->count - 1];
    s->made[s->count - 1] = NULL;
  }
  for (int i = 0; i < s->count; i++) heed_tensor_free(s->made[i]);
  return s->status;
}

/* ---- Arithmetic ---- */

heed_status heed__add_backward(heed__backward *b) {
  const heed_status status = heed__backward_same(b, 0);
  return status ? status : heed__backward_same(b, 1);
}

heed_status heed__sub_backward(heed__backward *b) {
  const heed_status status = heed__backward_same(b, 0);
  if (status || !heed__backward_wants(b, 1)) return status;
  return heed_neg(b->ctx, b->dy[0], &b->dx[1]);
}

heed_status heed__mul_backward(heed__backward *b) {
  heed_tensor x;
  heed_status status = HEED_OK;
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    if (heed__backward_wants(b, i))
      status = heed_mul(b->ctx, b->dy[0], heed__backward_input(b, 1 - i, &x), &b->dx[i]);
  }
  return status;
}

heed_status heed__dropout_backward(heed__backward *b) {
  return heed__mul_backward(b);
}

heed_status heed__div_backward(heed__backward *b) {
  heed_tensor left, right;
  heed_status status = HEED_OK;
  const heed_tensor *divisor = heed__backward_input(b, 1, &right);
  if (heed__backward_wants(b, 0)) status = heed_div(b->ctx, b->dy[0], divisor, &b->dx[0]);
  if (status || !heed__backward_wants(b, 1)) return status;
  steps s = {.ctx = b->ctx};
  const heed_tensor *ratio = apply_two(&s, heed_div, heed__backward_input(b, 0, &left), divisor);
  const heed_tensor *part = apply_two(&s, heed_div, ratio, divisor);
  apply_one(&s, heed_neg, apply_two(&s, heed_mul, b->dy[0], part));
  return end_steps_with(&s, &b->dx[1]);
}

/* To the base: dy · b · a^(b - 1), 0 where b is 0. To the exponent: dy · a^b · log a, 0 where a is 0 and b is
 * not negative. */
heed_status heed__pow_backward(heed__backward *b) {
  heed_tensor left, right, result;
  heed__number number;
  const heed_tensor *base = heed__backward_input(b, 0, &left), *power = heed__backward_input(b, 1, &right);
  heed_status status = HEED_OK;
  if (heed__backward_wants(b, 0)) {
    steps s = {.ctx = b->ctx};
    const heed_tensor *less = apply_two(&s, heed_sub, power, heed__number_tensor(&number, heed_number(1)));
    const heed_tensor *slope = apply_two(&s, heed_mul, power, apply_two(&s, heed_pow, base, less));
    const heed_tensor *is_zero = apply_two(&s, heed_eq, power, heed__number_tensor(&number, heed_number(0)));
    fill_where(&s, apply_two(&s, heed_mul, b->dy[0], slope), is_zero, 0);
    status = end_steps_with(&s, &b->dx[0]);
  }
  if (status || !heed__backward_wants(b, 1)) return status;
  steps s = {.ctx = b->ctx};
  const heed_tensor *zero = heed__number_tensor(&number, heed_number(0));
  const heed_tensor *logs = apply_one(&s, heed_log, base);
  const heed_tensor *slope = apply_two(&s, heed_mul, heed__backward_output(b, 0, &result), logs);
  const heed_tensor *none = apply_two(&s, heed_eq, base, zero);
  const heed_tensor *grows = apply_two(&s, heed_ge, power, zero);
  fill_where(&s, apply_two(&s, heed_mul, b->dy[0], slope), apply_two(&s, heed_logical_and, none, grows), 0);
  return end_steps_with(&s, &b->dx[1]);
}

/* The one that is taken gets dy, equal ones half of it each. */
static heed_status extreme_of_two(heed__backward *b, two *is_passed_over) {
  heed_tensor left, right;
  heed__number number;
  const heed_tensor *x[] = {heed__backward_input(b, 0, &left), heed__backward_input(b, 1, &right)};
  heed_status status = HEED_OK;
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    if (!heed__backward_wants(b, i)) continue;
    steps s = {.ctx = b->ctx};
    const heed_tensor *half = apply_two(&s, heed_div, b->dy[0], heed__number_tensor(&number, heed_number(2)));
    const heed_tensor *equal = apply_two(&s, heed_eq, x[0], x[1]);
    if (s.status == HEED_OK) s.status = heed_where(b->ctx, equal, half, b->dy[0], &s.made[s.count++]);
    const heed_tensor *shared = s.made[s.count - 1];
    fill_where(&s, shared, apply_two(&s, is_passed_over, x[i], x[1 - i]), 0);
    status = end_steps_with(&s, &b->dx[i]);
  }
  return status;
}

heed_status heed__maximum_backward(heed__backward *b) {
  return extreme_of_two(b, heed_lt);
}
heed_status heed__minimum_backward(heed__backward *b) {
  return extreme_of_two(b, heed_gt);
}

/* a - b · ⌊a / b⌋, and the same rounded towards 0. */
static heed_status remainder_of(heed__backward *b, one *rounded) {
  heed_tensor left, right;
  heed_status status = heed__backward_same(b, 0);
  if (status || !heed__backward_wants(b, 1)) return status;
  steps s = {.ctx = b->ctx};
  const heed_tensor *ratio =
      apply_two(&s, heed_div, heed__backward_input(b, 0, &left), heed__backward_input(b, 1, &right));
  const heed_tensor *whole = apply_one(&s, rounded, ratio);
  apply_one(&s, heed_neg, apply_two(&s, heed_mul, b->dy[0], whole));
  return end_steps_with(&s, &b->dx[1]);
}

heed_status heed__remainder_backward(heed__backward *b) {
  return remainder_of(b, heed_floor);
}
heed_status heed__fmod_backward(heed__backward *b) {
  return remainder_of(b, heed_trunc);
}

/* ---- With a factor ---- */

static double number_of(const heed_scalar *value) {
  return value->dtype == HEED_FLOAT32 ? value->as.number : (double)value->as.integer;
}

heed_status heed__add_scaled_backward(heed__backward *b) {
  heed__number number;
  const heed_status status = heed__backward_same(b, 0);
  if (status || !heed__backward_wants(b, 1)) return status;
  return heed_mul(b->ctx, b->dy[0], heed__number_tensor(&number, heed_number(number_of(b->values))),
                  &b->dx[1]);
}

heed_status heed__addcmul_backward(heed__backward *b) {
  heed_tensor other;
  heed__number number;
  heed_status status = heed__backward_same(b, 0);
  for (int i = 1; i < 3 && status == HEED_OK; i++) {
    if (!heed__backward_wants(b, i)) continue;
    steps s = {.ctx = b->ctx};
    const heed_tensor *scaled =
        apply_two(&s, heed_mul, b->dy[0], heed__number_tensor(&number, heed_number(number_of(b->values))));
    apply_two(&s, heed_mul, scaled, heed__backward_input(b, 3 - i, &other));
    status = end_steps_with(&s, &b->dx[i]);
  }
  return status;
}

heed_status heed__addcdiv_backward(heed__backward *b) {
  heed_tensor left, right;
  heed__number number;
  heed_status status = heed__backward_same(b, 0);
  for (int i = 1; i < 3 && status == HEED_OK; i++) {
    if (!heed__backward_wants(b, i)) continue;
    const heed_tensor *divisor = heed__backward_input(b, 2, &right);
    steps s = {.ctx = b->ctx};
    const heed_tensor *scaled =
        apply_two(&s, heed_mul, b->dy[0], heed__number_tensor(&number, heed_number(number_of(b->values))));
    const heed_tensor *part = apply_two(&s, heed_div, scaled, divisor);
    if (i == 2) {
      const heed_tensor *ratio = apply_two(&s, heed_div, heed__backward_input(b, 1, &left), divisor);
      apply_one(&s, heed_neg, apply_two(&s, heed_mul, part, ratio));
    }
    status = end_steps_with(&s, &b->dx[i]);
  }
  return status;
}

/* a + weight · (b - a) */
heed_status heed__lerp_backward(heed__backward *b) {
  heed_tensor x[3];
  heed__number one_;
  heed_status status = HEED_OK;
  for (int i = 0; i < 3 && status == HEED_OK; i++) {
    if (!heed__backward_wants(b, i)) continue;
    steps s = {.ctx = b->ctx};
    if (i == 2) {
      const heed_tensor *difference =
          apply_two(&s, heed_sub, heed__backward_input(b, 1, &x[1]), heed__backward_input(b, 0, &x[0]));
      apply_two(&s, heed_mul, b->dy[0], difference);
    } else {
      const heed_tensor *share = heed__backward_input(b, 2, &x[2]);
      if (i == 0) share = apply_two(&s, heed_sub, heed__number_tensor(&one_, heed_number(1)), share);
      apply_two(&s, heed_mul, b->dy[0], share);
    }
    status = end_steps_with(&s, &b->dx[i]);
  }
  return status;
}

/* ---- Choosing ---- */

heed_status heed__where_backward(heed__backward *b) {
  heed_tensor condition;
  heed__number number;
  const heed_tensor *chosen = heed__backward_input(b, 0, &condition);
  const heed_tensor *zero = heed__number_tensor(&number, heed_number(0));
  heed_status status = HEED_OK;
  if (heed__backward_wants(b, 1)) status = heed_where(b->ctx, chosen, b->dy[0], zero, &b->dx[1]);
  if (status == HEED_OK && heed__backward_wants(b, 2))
    status = heed_where(b->ctx, chosen, zero, b->dy[0], &b->dx[2]);
  return status;
}

heed_status heed__masked_fill_backward(heed__backward *b) {
  heed_tensor mask;
  return heed_masked_fill(b->ctx, b->dy[0], heed__backward_input(b, 1, &mask), heed_number(0), &b->dx[0]);
}

/* x within the bounds gets dy; a bound gets it where x is beyond it. */
heed_status heed__clamp_backward(heed__backward *b) {
  heed_tensor header, bounds[2];
  const heed_tensor *x = heed__backward_input(b, 0, &header);
  const heed_tensor *bound[2];
  heed_status status = HEED_OK;
  for (int i = 0; i < 2; i++)
    bound[i] = heed__backward_has(b, i + 1) ? heed__backward_input(b, i + 1, &bounds[i]) : NULL;
  if (heed__backward_wants(b, 0)) {
    steps s = {.ctx = b->ctx};
    const heed_tensor *dx = b->dy[0];
    if (bound[0] != NULL) dx = fill_where(&s, dx, apply_two(&s, heed_lt, x, bound[0]), 0);
    if (bound[1] != NULL) fill_where(&s, dx, apply_two(&s, heed_gt, x, bound[1]), 0);
    status = end_steps_with(&s, &b->dx[0]);
  }
  for (int i = 0; i < 2 && status == HEED_OK; i++) {
    if (!heed__backward_wants(b, i + 1)) continue;
    steps s = {.ctx = b->ctx};
    const heed_tensor *inside = apply_two(&s, i == 0 ? heed_ge : heed_le, x, bound[i]);
    const heed_tensor *dx = fill_where(&s, b->dy[0], inside, 0);
    /* of bounds in the wrong order, high is taken */
    if (i == 0 && bound[1] != NULL) fill_where(&s, dx, apply_two(&s, heed_ge, bound[0], bound[1]), 0);
    status = end_steps_with(&s, &b->dx[i + 1]);
  }
  return status;
}

heed_status heed__nan_to_num_backward(heed__backward *b) {
  heed_tensor header;
  const heed_tensor *x = heed__backward_input(b, 0, &header);
  steps s = {.ctx = b->ctx};
  const heed_tensor *replaced =
      apply_two(&s, heed_logical_or, apply_one(&s, heed_isnan, x), apply_one(&s, heed_isinf, x));
  fill_where(&s, b->dy[0], replaced, 0);
  return end_steps_with(&s, &b->dx[0]);
}

heed_status heed__tril_backward(heed__backward *b) {
  return heed_tril(b->ctx, b->dy[0], *(const int64_t *)b->values, &b->dx[0]);
}
heed_status heed__triu_backward(heed__backward *b) {
  return heed_triu(b->ctx, b->dy[0], *(const int64_t *)b->values, &b->dx[0]);
}
