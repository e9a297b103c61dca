/* Optimisers: their options, and what these and the number of the step mean for the kernels. */
#include "grad.h"

#include <math.h>

/* ---- Options ---- */

static const heed_sgd_options sgd_defaults = {.size = sizeof(heed_sgd_options), .lr = 1e-3};
static const heed_adam_options adam_defaults = {
    .size = sizeof(heed_adam_options), .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
static const heed_rmsprop_options rmsprop_defaults = {
    .size = sizeof(heed_rmsprop_options), .lr = 1e-2, .alpha = 0.99, .eps = 1e-8};

void heed_sgd_options_init(heed_sgd_options *options, size_t size) {
  heed__struct_init(options, size, &sgd_defaults, sizeof sgd_defaults);
}

void heed_adam_options_init(heed_adam_options *options, size_t size) {
  heed__struct_init(options, size, &adam_defaults, sizeof adam_defaults);
}

void heed_rmsprop_options_init(heed_rmsprop_options *options, size_t size) {
  heed__struct_init(options, size, &rmsprop_defaults, sizeof rmsprop_defaults);
}

static heed_status check_not_negative(heed_context *ctx, const char *function, const char *name,
                                      double value) {
  if (value >= 0 && isfinite(value)) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is %s; it must be a finite number, at least 0", function,
                    name, HEED__G(value));
}

static heed_status check_beta(heed_context *ctx, const char *function, const char *name, double value) {
  if (value >= 0 && value < 1) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: %s is %s; it must be from 0 to less than 1", function, name,
                    HEED__G(value));
}

typedef struct named_option {
  const char *name;
  double value;
} named_option;

static heed_status check_all(heed_context *ctx, const char *function, int count,
                             const named_option *options) {
  heed_status status = HEED_OK;
  for (int i = 0; i < count && status == HEED_OK; i++)
    status = check_not_negative(ctx, function, options[i].name, options[i].value);
  return status;
}

static heed_status check_sgd(heed_context *ctx, const char *function, const heed_sgd_options *o) {
  const named_option options[] = {
      {"lr", o->lr}, {"momentum", o->momentum}, {"weight_decay", o->weight_decay}};
  const heed_status status = check_all(ctx, function, 3, options);
  if (status != HEED_OK) return status;
  if (!isfinite(o->dampening))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: dampening is %s; it must be finite", function,
                      HEED__G(o->dampening));
  if (o->nesterov && (o->momentum == 0 || o->dampening != 0))
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: nesterov is set with momentum %s and dampening %s; it needs a momentum above 0 "
                      "and no dampening",
                      function, HEED__G(o->momentum), HEED__G(o->dampening));
  return HEED_OK;
}

static heed_status check_adam(heed_context *ctx, const char *function, const heed_adam_options *o) {
  const named_option options[] = {{"lr", o->lr}, {"eps", o->eps}, {"weight_decay", o->weight_decay}};
  heed_status status = check_all(ctx, function, 3, options);
  if (status == HEED_OK) status = check_beta(ctx, function, "beta1", o->beta1);
  if (status == HEED_OK) status = check_beta(ctx, function, "beta2", o->beta2);
  return status;
}

static heed_status check_rmsprop(heed_context *ctx, const char *function, const heed_rmsprop_options *o) {
  const named_option options[] = {{"lr", o->lr},
                                  {"alpha", o->alpha},
                                  {"eps", o->eps},
                                  {"weight_decay", o->weight_decay},
                                  {"momentum", o->momentum}};
  return check_all(ctx, function, 5, options);
}

heed_status heed__optimizer_check(heed_context *ctx, const char *function, const heed__optimizer *o) {
  switch (o->kind) {
  case HEED__SGD: return check_sgd(ctx, function, &o->sgd);
  case HEED__ADAM: return check_adam(ctx, function, &o->adam);
  default: return check_rmsprop(ctx, function, &o->rmsprop);
  }
}

unsigned heed__optimizer_states(const heed__optimizer *o) {
  switch (o->kind) {
  case HEED__SGD: return o->sgd.momentum != 0 ? 1 : 0;
  case HEED__ADAM: return o->adam.amsgrad ? 7 : 3;
  default: return 1u | (o->rmsprop.centered ? 2u : 0) | (o->rmsprop.momentum != 0 ? 4u : 0);
  }
}

/* ---- Rules ---- */

/* Computed in double, as in PyTorch, and rounded once. `steps` were made before. */

static heed__sgd_rule sgd_rule(const heed_sgd_options *o, int64_t steps) {
  return (heed__sgd_rule){.rate = (float)-o->lr,
                          .decay = (float)o->weight_decay,
                          .momentum = (float)o->momentum,
                          .damped = (float)(1 - o->dampening),
                          .maximize = o->maximize,
                          .nesterov = o->nesterov,
                          .first = steps == 0};
}

static heed__adam_rule adam_rule(const heed_adam_options *o, int64_t steps) {
  const double t = (double)steps + 1;
  return (heed__adam_rule){.rate = (float)-(o->lr / (1 - pow(o->beta1, t))),
                           .decay = o->decoupled ? 0.0f : (float)o->weight_decay,
                           .shrink = o->decoupled ? (float)(1 - o->lr * o->weight_decay) : 1.0f,
                           .beta1 = (float)o->beta1,
                           .rest1 = (float)(1 - o->beta1),
                           .beta2 = (float)o->beta2,
                           .rest2 = (float)(1 - o->beta2),
                           .root = (float)sqrt(1 - pow(o->beta2, t)),
                           .eps = (float)o->eps,
                           .maximize = o->maximize,
                           .amsgrad = o->amsgrad};
}

static heed__rmsprop_rule rmsprop_rule(const heed_rmsprop_options *o) {
  return (heed__rmsprop_rule){.rate = (float)-o->lr,
                              .decay = (float)o->weight_decay,
                              .momentum = (float)o->momentum,
                              .alpha = (float)o->alpha,
                              .rest = (float)(1 - o->alpha),
                              .eps = (float)o->eps,
                              .maximize = o->maximize,
                              .centered = o->centered};
}

void heed__update_set_rule(heed__update *u, const heed__update *previous) {
  if (previous != NULL && previous->optimizer == u->optimizer && previous->steps == u->steps) {
    u->rule = previous->rule;
    return;
  }
  switch (u->optimizer->kind) {
  case HEED__SGD: u->rule.sgd = sgd_rule(&u->optimizer->sgd, u->steps); break;
  case HEED__ADAM: u->rule.adam = adam_rule(&u->optimizer->adam, u->steps); break;
  case HEED__RMSPROP: u->rule.rmsprop = rmsprop_rule(&u->optimizer->rmsprop); break;
  }
}

/* ---- Steps ---- */

static heed_status step(heed_context *ctx, const char *function, const heed__optimizer *o, int64_t count,
                        heed_tensor *const *x, const heed_tensor *const *dx,
                        heed_tensor *const *const states[HEED__UPDATE_STATES], int64_t *steps) {
  static const char *const names[][HEED__UPDATE_STATES] = {
      {"momentum", "", ""}, {"m", "v", "highest"}, {"square", "mean", "momentum"}};
  const unsigned used = heed__optimizer_states(o);
  heed_status status = heed__optimizer_check(ctx, function, o);
  if (status != HEED_OK) return status;
  if (count < 0)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: count is %lld; it must be at least 0", function,
                      (long long)count);
  if (count == 0) return HEED_OK;
  if (x == NULL) return heed__refuse_pointer(ctx, function, "x", NULL);
  if (steps == NULL) return heed__refuse_pointer(ctx, function, "steps", NULL);
  for (int s = 0; s < HEED__UPDATE_STATES; s++) {
    if (used >> s & 1 && states[s] == NULL)
      return heed__refuse_pointer(ctx, function, names[o->kind][s], NULL);
  }
  const size_t bytes = heed__array_bytes((uint64_t)count, sizeof(heed__update));
  heed__update *updates = heed__allocate(ctx, bytes);
  if (updates == NULL) return heed__fail_memory(ctx, function, bytes);
  int64_t wanted = 0;
  for (int64_t i = 0; i < count; i++) {
    heed__update u = {.x = x[i], .optimizer = o, .steps = steps[i], .number = i + 1};
    u.gradient = dx != NULL ? dx[i] : heed_tensor_grad(x[i]);
    if (u.gradient == NULL) continue;
    for (int s = 0; s < HEED__UPDATE_STATES; s++) {
      if (!(used >> s & 1)) continue;
      u.state[s] = states[s][i];
      if (u.state[s] != NULL) continue;
      status = heed__fail(ctx, HEED_ARGUMENT, "%s: number %lld of %s is missing (NULL)", function,
                          (long long)i + 1, names[o->kind][s]);
      goto done;
    }
    updates[wanted++] = u;
  }
  status = heed__updates_run(ctx, function, wanted, updates);
  if (status != HEED_OK) goto done;
  for (int64_t i = 0; i < wanted; i++) steps[updates[i].number - 1] = updates[i].steps;
done:
  heed__release(ctx, updates);
  return status;
}

heed_status heed_sgd_step(heed_context *ctx, int64_t count, heed_tensor *const *x,
                          const heed_tensor *const *dx, heed_tensor *const *momentum, int64_t *steps,
                          const heed_sgd_options *options) {
  HEED__ENTER(ctx, "sgd_step", ctx);
  heed__optimizer o = {.kind = HEED__SGD, .sgd = sgd_defaults};
  heed_tensor *const *const states[] = {momentum, NULL, NULL};
  if (options != NULL) {
    const heed_status status =
        heed__struct_read(ctx, "sgd_step", "options", "heed_sgd_options", options, &o.sgd, sizeof o.sgd);
    if (status != HEED_OK) return status;
  }
  return step(ctx, "sgd_step", &o, count, x, dx, states, steps);
}

heed_status heed_adam_step(heed_context *ctx, int64_t count, heed_tensor *const *x,
                           const heed_tensor *const *dx, heed_tensor *const *m, heed_tensor *const *v,
                           heed_tensor *const *highest, int64_t *steps, const heed_adam_options *options) {
  HEED__ENTER(ctx, "adam_step", ctx);
  heed__optimizer o = {.kind = HEED__ADAM, .adam = adam_defaults};
  heed_tensor *const *const states[] = {m, v, highest};
  if (options != NULL) {
    const heed_status status =
        heed__struct_read(ctx, "adam_step", "options", "heed_adam_options", options, &o.adam, sizeof o.adam);
    if (status != HEED_OK) return status;
  }
  return step(ctx, "adam_step", &o, count, x, dx, states, steps);
}

heed_status heed_rmsprop_step(heed_context *ctx, int64_t count, heed_tensor *const *x,
                              const heed_tensor *const *dx, heed_tensor *const *square,
                              heed_tensor *const *mean, heed_tensor *const *momentum, int64_t *steps,
                              const heed_rmsprop_options *options) {
  HEED__ENTER(ctx, "rmsprop_step", ctx);
  heed__optimizer o = {.kind = HEED__RMSPROP, .rmsprop = rmsprop_defaults};
  heed_tensor *const *const states[] = {square, mean, momentum};
  if (options != NULL) {
    const heed_status status = heed__struct_read(ctx, "rmsprop_step", "options", "heed_rmsprop_options",
                                                 options, &o.rmsprop, sizeof o.rmsprop);
    if (status != HEED_OK) return status;
  }
  return step(ctx, "rmsprop_step", &o, count, x, dx, states, steps);
}
