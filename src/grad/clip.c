/* Norms of many tensors together, and limits on gradients. */
#include "grad.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

/* ---- Norms ---- */

typedef struct norm_run {
  const heed__kernels *kernels;
  const heed_tensor *const *x;
  double p;
  double *part; /* of each block: the sum of the powers, or the largest magnitude */
} norm_run;

static double norm_of_elements(const norm_run *run, const float *x, int64_t n) {
  double result = 0;
  if (run->p == 2) return run->kernels->sum_of_squares(x, 0, (size_t)n);
  for (int64_t i = 0; i < n; i++) {
    const double magnitude = fabs((double)x[i]);
    if (isinf(run->p))
      result = magnitude > result || isnan(magnitude) ? magnitude : result;
    else
      result += run->p == 1 ? magnitude : pow(magnitude, run->p);
  }
  return result;
}

static double add_norms(const norm_run *run, double a, double b) {
  if (!isinf(run->p)) return a + b;
  return b > a || isnan(b) ? b : a;
}

static void norm_of_block(void *user, int64_t block, int64_t i, int64_t first, int64_t count) {
  const norm_run *run = user;
  float moved[HEED__MOVED_ELEMENTS];
  const int64_t most = heed_tensor_is_contiguous(run->x[i]) ? count : HEED__MOVED_ELEMENTS;
  double result = 0;
  for (int64_t from = first, end = first + count; from < end; from += most) {
    const int64_t n = heed__min(most, end - from);
    result = add_norms(run, result, norm_of_elements(run, heed__elements(run->x[i], from, n, moved), n));
  }
  run->part[block] = result;
}

/* The tensors are checked. */
static heed_status total_norm(heed_context *ctx, const char *function, int64_t count,
                              const heed_tensor *const *x, double p, double *norm) {
  *norm = 0;
  if (count == 0) return HEED_OK;
  const size_t bytes = heed__array_bytes((uint64_t)count + 1, sizeof(int64_t));
  int64_t *first = heed__allocate(ctx, bytes);
  if (first == NULL) return heed__fail_memory(ctx, function, bytes);
  heed__blocks blocks;
  heed__blocks_divide(&blocks, count, x, first);
  const size_t parts = heed__array_bytes((uint64_t)first[count], sizeof(double));
  double *part = heed__allocate(ctx, parts > 0 ? parts : 1);
  if (part == NULL) {
    heed__release(ctx, first);
    return heed__fail_memory(ctx, function, parts);
  }
  norm_run run = {.kernels = heed__kernels_of(ctx), .x = x, .p = p, .part = part};
  heed__block_task task = {.blocks = &blocks, .x = x, .work = norm_of_block, .user = &run};
  double elements = 1;
  for (int64_t i = 0; i < count; i++) elements += (double)x[i]->numel;
  heed_status status = heed__charge(ctx, function, elements);
  if (status == HEED_OK && !heed__blocks_run(ctx, &task, false)) status = heed__stopped(ctx, function);
  if (status == HEED_OK) {
    double sum = 0;
    for (int64_t i = 0; i < first[count]; i++) sum = isnan(sum) ? sum : add_norms(&run, sum, part[i]);
    *norm = isinf(p) || p == 1 ? sum : p == 2 ? sqrt(sum) : pow(sum, 1 / p);
  }
  heed__release(ctx, part);
  heed__release(ctx, first);
  return status;
}

static heed_status check_order(heed_context *ctx, const char *function, double p) {
  if (p > 0) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: the order of the norm is %s; it must be above 0", function,
                    HEED__G(p));
}

static heed_status check_floats(heed_context *ctx, const char *function, int64_t number,
                                const heed_tensor *x) {
  if (!heed__is_tensor_of(ctx, x))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: tensor %" PRId64 " is of another context; all must be of one",
                      function, number);
  if (x->dtype == HEED_FLOAT32) return HEED_OK;
  return heed__fail(ctx, HEED_DTYPE, "%s: tensor %" PRId64 " is %s; it must be float32", function, number,
                    heed_dtype_name(x->dtype));
}

/* ---- Lists ---- */

/* A new list of the tensors, or their gradients, without those that are NULL. */
static heed_status list_tensors(heed_context *ctx, const char *function, int64_t count,
                                const heed_tensor *const *x, bool gradients, const heed_tensor ***list,
                                int64_t *used) {
  *list = NULL;
  *used = 0;
  if (count < 0)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: count is %" PRId64 "; it must be at least 0", function, count);
  if (count > 0 && x == NULL) return heed__refuse_pointer(ctx, function, "x", NULL);
  const size_t bytes = heed__array_bytes((uint64_t)count, sizeof **list);
  *list = heed__allocate(ctx, bytes > 0 ? bytes : 1);
  if (*list == NULL) return heed__fail_memory(ctx, function, bytes);
  heed_status status = HEED_OK;
  for (int64_t i = 0; i < count && status == HEED_OK; i++) {
    if (x[i] == NULL) continue;
    if (!heed__is_tensor_of(ctx, x[i])) status = check_floats(ctx, function, i + 1, x[i]);
    const heed_tensor *each = gradients && status == HEED_OK ? heed_tensor_grad(x[i]) : x[i];
    if (each == NULL) continue;
    if (status == HEED_OK) status = check_floats(ctx, function, i + 1, each);
    (*list)[(*used)++] = each;
  }
  if (status == HEED_OK) return HEED_OK;
  heed__release(ctx, *list);
  *list = NULL;
  return status;
}

heed_status heed__total_norm(heed_context *ctx, const char *function, int64_t count,
                             const heed_tensor *const *x, double p, double *norm) {
  const heed_tensor **list;
  int64_t used;
  heed_status status = check_order(ctx, function, p);
  if (status == HEED_OK) status = list_tensors(ctx, function, count, x, false, &list, &used);
  if (status != HEED_OK) return status;
  double result;
  status = total_norm(ctx, function, used, list, p, &result);
  heed__release(ctx, list);
  if (status == HEED_OK) *norm = result;
  return status;
}

heed_status heed_total_norm(heed_context *ctx, int64_t count, const heed_tensor *const *x, double p,
                            double *norm) {
  HEED__ENTER(ctx, "total_norm", norm);
  return heed__total_norm(ctx, "total_norm", count, x, p, norm);
}

/* ---- Limits on gradients ---- */

typedef struct clip_run {
  const heed__kernels *kernels;
  const heed_tensor *const *x;
  bool scale; /* by `factor`; otherwise limit to -value…value */
  float factor, low, high;
} clip_run;

static void clip_block(void *user, int64_t block, int64_t i, int64_t first, int64_t count) {
  const clip_run *run = user;
  float moved[HEED__MOVED_ELEMENTS];
  const int64_t most = heed_tensor_is_contiguous(run->x[i]) ? count : HEED__MOVED_ELEMENTS;
  (void)block;
  for (int64_t from = first, end = first + count; from < end; from += most) {
    const int64_t n = heed__min(most, end - from);
    float *x = heed__elements(run->x[i], from, n, moved);
    if (run->scale) {
      run->kernels->mul(x, x, 1, &run->factor, 0, (size_t)n);
    } else {
      run->kernels->maximum(x, x, 1, &run->low, 0, (size_t)n);
      run->kernels->minimum(x, x, 1, &run->high, 0, (size_t)n);
    }
    if (x == moved) heed__move_elements(run->x[i], from, n, x, true);
  }
}

/* Gradients whose elements share memory become clones of their own, since they are written. */
static heed_status own_gradients(heed_context *ctx, const char *function, int64_t count,
                                 heed_tensor *const *x, const heed_tensor **list) {
  int64_t used = 0;
  for (int64_t i = 0; i < count; i++) {
    if (x[i] == NULL || heed_tensor_grad(x[i]) == NULL) continue;
    if (heed__overlaps_itself(list[used])) {
      heed_tensor *clone = NULL;
      heed_status status = heed__clone(ctx, function, list[used], &clone);
      if (status == HEED_OK) status = heed_tensor_set_grad(x[i], clone);
      heed_tensor_free(clone);
      if (status != HEED_OK) return status;
      list[used] = heed_tensor_grad(x[i]);
    }
    used++;
  }
  return HEED_OK;
}

/* Changes all gradients of the list, once begun without a stop. */
static heed_status clip(heed_context *ctx, const char *function, int64_t count, heed_tensor *const *x,
                        int64_t used, const heed_tensor **list, clip_run *run) {
  if (used == 0) return HEED_OK;
  heed_status status = own_gradients(ctx, function, count, x, list);
  if (status != HEED_OK) return status;
  const size_t bytes = heed__array_bytes((uint64_t)used + 1, sizeof(int64_t));
  int64_t *first = heed__allocate(ctx, bytes);
  if (first == NULL) return heed__fail_memory(ctx, function, bytes);
  double elements = 1;
  for (int64_t i = 0; i < used; i++) elements += (double)list[i]->numel;
  status = heed__charge(ctx, function, elements);
  if (status == HEED_OK && heed__is_due(&ctx->pace)) status = heed__stopped(ctx, function);
  if (status == HEED_OK) {
    for (int64_t i = 0; i < used; i++) {
      heed__storage *storage = list[i]->storage;
      if (storage == NULL) continue;
      storage->version++;
      storage->written_by = function;
    }
    heed__blocks blocks;
    heed__blocks_divide(&blocks, used, list, first);
    run->kernels = heed__kernels_of(ctx);
    run->x = list;
    heed__block_task task = {.blocks = &blocks, .x = list, .work = clip_block, .user = run};
    const bool held = ctx->pace.held;
    ctx->pace.held = true;
    const bool is_done = heed__blocks_run(ctx, &task, true);
    assert(is_done);
    (void)is_done;
    ctx->pace.held = held;
  }
  heed__release(ctx, first);
  return status;
}

heed_status heed__clip_grad_norm(heed_context *ctx, const char *function, int64_t count,
                                 heed_tensor *const *x, double max_norm, double p, double *norm) {
  const heed_tensor **list;
  int64_t used;
  double total;
  heed_status status = check_order(ctx, function, p);
  if (status == HEED_OK && !(max_norm >= 0))
    status = heed__fail(ctx, HEED_ARGUMENT, "%s: max_norm is %s; it must be at least 0", function,
                        HEED__G(max_norm));
  if (status == HEED_OK)
    status = list_tensors(ctx, function, count, (const heed_tensor *const *)x, true, &list, &used);
  if (status != HEED_OK) return status;
  status = total_norm(ctx, function, used, list, p, &total);
  if (status == HEED_OK) {
    const double factor = max_norm / (total + 1e-6);
    clip_run run = {.scale = true, .factor = (float)factor};
    if (!(factor >= 1) && max_norm < INFINITY) status = clip(ctx, function, count, x, used, list, &run);
  }
  heed__release(ctx, list);
  if (status == HEED_OK && norm != NULL) *norm = total;
  return status;
}

heed_status heed__clip_grad_value(heed_context *ctx, const char *function, int64_t count,
                                  heed_tensor *const *x, double value) {
  const heed_tensor **list;
  int64_t used;
  if (!(value >= 0))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: clip_value is %s; it must be at least 0", function,
                      HEED__G(value));
  heed_status status = list_tensors(ctx, function, count, (const heed_tensor *const *)x, true, &list, &used);
  if (status != HEED_OK) return status;
  clip_run run = {.low = (float)-value, .high = (float)value};
  status = clip(ctx, function, count, x, used, list, &run);
  heed__release(ctx, list);
  return status;
}

heed_status heed_clip_grad_norm(heed_context *ctx, int64_t count, heed_tensor *const *x, double max_norm,
                                double p, double *norm) {
  HEED__ENTER(ctx, "clip_grad_norm", ctx);
  return heed__clip_grad_norm(ctx, "clip_grad_norm", count, x, max_norm, p, norm);
}

heed_status heed_clip_grad_value(heed_context *ctx, int64_t count, heed_tensor *const *x, double value) {
  HEED__ENTER(ctx, "clip_grad_value", ctx);
  return heed__clip_grad_value(ctx, "clip_grad_value", count, x, value);
}
