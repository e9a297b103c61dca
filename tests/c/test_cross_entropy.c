/* Cross entropy and its gradients against plain code in double precision: classes and probabilities, all
 * options, all layouts, every table; and of a linear map, in chunks, against cross entropy of the map's
 * result. */
#include "tables.h"

#include <math.h>

#include "../../src/grad/grad.h"

static uint32_t seed;

static float uniform(float low, float high) {
  next_random(&seed);
  return low + (high - low) * ((float)(seed >> 8) * 0x1p-24f);
}

static heed_tensor *floats(heed_context *ctx, int ndim, const int64_t *shape, float low, float high) {
  heed_tensor *x = NULL;
  if (heed_tensor_new(ctx, HEED_FLOAT32, ndim, shape, &x) != HEED_OK) return NULL;
  float *data = heed_tensor_data(x);
  for (int64_t i = 0; i < x->numel; i++) data[i] = uniform(low, high);
  return x;
}

static heed_tensor *classes_of(heed_context *ctx, int ndim, const int64_t *shape, int64_t classes,
                               int64_t ignored) {
  heed_tensor *x = NULL;
  if (heed_tensor_new(ctx, HEED_INT64, ndim, shape, &x) != HEED_OK) return NULL;
  int64_t *data = heed_tensor_data(x);
  for (int64_t i = 0; i < x->numel; i++) {
    data[i] = 1 + (int64_t)((next_random(&seed) >> 8) % (uint32_t)classes);
    if (ignored && i % 5 == 2) data[i] = ignored;
  }
  return x;
}

static void free_all(int count, heed_tensor *const *x) {
  for (int i = 0; i < count; i++) heed_tensor_free(x[i]);
}

/* ---- The twin: logits [n, c, rest] ---- */

typedef struct twin {
  double loss, *each, *dlogits, *dtarget;
} twin;

static twin twin_of(const heed_tensor *logits, const heed_tensor *target, int64_t n, int64_t c, int64_t rest,
                    const heed_cross_entropy_options *o) {
  const float *x = (const float *)(const void *)logits->data;
  const float *share = (const float *)(const void *)target->data;
  const int64_t *class = (const int64_t *)(const void *)target->data;
  const float *weight = o->weight ? (const float *)(const void *)o->weight->data : NULL;
  const bool shares = target->dtype == HEED_FLOAT32;
  twin w = {0, calloc((size_t)(n * rest), 8), calloc((size_t)(n * c * rest), 8),
            calloc((size_t)(n * c * rest), 8)};
  double weights = 0;
  for (int64_t i = 0; i < n * rest; i++) {
    const int64_t first = i / rest * c * rest + i % rest;
    double sum = 0, own = 0, t[64];
    for (int64_t j = 0; j < c; j++) sum += exp((double)x[first + j * rest]);
    if (!shares && class[i] == o->ignore_index) continue;
    weights += shares ? 1 : weight ? (double)weight[class[i] - 1] : 1;
    for (int64_t j = 0; j < c; j++) {
      const double target_share = shares ? (double)share[first + j * rest] : class[i] == j + 1;
      /* a class's smoothing is spread by all classes' weights, its own part weighs as it does */
      t[j] = (weight ? (double)weight[j] : 1) *
             (target_share * (1 - o->label_smoothing) + o->label_smoothing / (double)c);
      own += t[j];
    }
    for (int64_t j = 0; j < c; j++) {
      const int64_t at = first + j * rest;
      const double logp = (double)x[at] - log(sum);
      w.each[i] -= t[j] * logp;
      w.dlogits[at] = own * exp(logp) - t[j];
      w.dtarget[at] = -(weight ? (double)weight[j] : 1) * (1 - o->label_smoothing) * logp;
    }
  }
  for (int64_t i = 0; i < n * rest; i++) w.loss += w.each[i];
  if (o->reduction != HEED_REDUCTION_MEAN) weights = 1;
  w.loss /= weights;
  for (int64_t i = 0; i < n * c * rest; i++) w.dlogits[i] /= weights, w.dtarget[i] /= weights;
  return w;
}

static void assert_near(const heed_tensor *got, const double *wanted) {
  heed_tensor *packed = NULL;
  double largest = 0, off = 0;
  assert_ok(heed_contiguous(got->storage->context, got, &packed));
  const float *data = heed_tensor_data(packed);
  for (int64_t i = 0; i < got->numel; i++) {
    largest = fmax(largest, fabs(wanted[i]));
    off = fmax(off, fabs((double)data[i] - wanted[i]));
  }
  heed_tensor_free(packed);
  if (!(off <= 2e-6 * largest)) fail_msg("off by %g of %g", off, largest);
}

enum { SHARES = 1, WEIGHTS = 2, SMOOTH = 4, DEEP = 8, IGNORED = 16, WAYS = 32 };

static void check(heed_context *ctx, int way, heed_reduction reduction) {
  enum { N = 9, C = 37, REST = 3 };
  const int64_t rest = way & DEEP ? REST : 1, shape[] = {N, C, REST}, target_shape[] = {N, REST};
  const int ndim = way & DEEP ? 3 : 2;
  heed_tensor *logits = floats(ctx, ndim, shape, -5, 5), *weight = floats(ctx, 1, SHAPE(C), 0.5f, 2);
  heed_tensor *target = way & SHARES ? floats(ctx, ndim, shape, 0, 2.0f / C)
                                     : classes_of(ctx, ndim - 1, target_shape, C, way & IGNORED ? -7 : 0);
  heed_tensor *loss = NULL, *ones = NULL;
  heed_cross_entropy_options o;
  heed_cross_entropy_options_init(&o, sizeof o);
  o.ignore_index = -7;
  o.reduction = reduction;
  if (way & WEIGHTS) o.weight = weight;
  if (way & SMOOTH) o.label_smoothing = 0.2;
  const twin w = twin_of(logits, target, N, C, rest, &o);
  heed_set_recording(ctx, true);
  assert_ok(heed_tensor_require_grad(logits, true));
  if (way & SHARES) assert_ok(heed_tensor_require_grad(target, true));
  assert_ok(heed_cross_entropy(ctx, logits, target, &o, &loss));
  heed_set_recording(ctx, false);
  assert_near(loss, reduction == HEED_REDUCTION_NONE ? w.each : &w.loss);
  assert_ok(heed_full(ctx, HEED_FLOAT32, loss->ndim, loss->shape, heed_number(1), &ones));
  assert_ok(
      heed_backward(ctx, 1, (const heed_tensor *const[]){loss}, (const heed_tensor *const[]){ones}, NULL));
  assert_near(heed_tensor_grad(logits), w.dlogits);
  if (way & SHARES) assert_near(heed_tensor_grad(target), w.dtarget);
  free_all(5, (heed_tensor *[]){logits, weight, target, loss, ones});
  free(w.each), free(w.dlogits), free(w.dtarget);
}

static void check_all(heed_context *ctx) {
  seed = 3;
  for (int way = 0; way < WAYS; way++) {
    if ((way & SHARES) && (way & IGNORED)) continue;
    for (int r = HEED_REDUCTION_MEAN; r <= HEED_REDUCTION_NONE; r++) check(ctx, way, (heed_reduction)r);
  }
}

static void losses_and_gradients_are_near_double(void **state) {
  (void)state;
  with_every_table(check_all);
}

/* ---- Linear ---- */

typedef struct linear_case {
  heed_tensor *x, *weight, *bias, *target;
} linear_case;

static linear_case linear_new(heed_context *ctx, int64_t rows, int64_t classes, int64_t d) {
  seed = 11;
  linear_case s = {.x = floats(ctx, 2, SHAPE(rows, d), -1, 1),
                   .weight = floats(ctx, 2, SHAPE(classes, d), -1, 1),
                   .bias = floats(ctx, 1, SHAPE(classes), -1, 1),
                   .target = classes_of(ctx, 1, SHAPE(rows), classes, -100)};
  return s;
}

static void linear_free(linear_case *s) {
  free_all(4, (heed_tensor *[]){s->x, s->weight, s->bias, s->target});
}

static heed_status want(linear_case *s) {
  heed_status status = heed_tensor_require_grad(s->x, true);
  if (status == HEED_OK) status = heed_tensor_require_grad(s->weight, true);
  return status == HEED_OK ? heed_tensor_require_grad(s->bias, true) : status;
}

static heed_status backward(heed_context *ctx, const heed_tensor *loss, double dy) {
  heed_tensor *g = NULL;
  heed_status status = heed_full(ctx, HEED_FLOAT32, loss->ndim, loss->shape, heed_number(dy), &g);
  if (status == HEED_OK)
    status = heed_backward(ctx, 1, (const heed_tensor *const[]){loss}, (const heed_tensor *const[]){g}, NULL);
  heed_tensor_free(g);
  return status;
}

/* The gradients by cross_entropy of logits whose gradient is then multiplied. */
static void compare_with_logits(heed_context *ctx, int64_t rows, int64_t classes, int64_t d,
                                heed_reduction reduction, double dy) {
  linear_case s = linear_new(ctx, rows, classes, d);
  heed_tensor *logits = NULL, *loss = NULL, *wanted = NULL, *turned = NULL, *dx = NULL, *dw = NULL,
              *db = NULL;
  heed_cross_entropy_options o;
  heed_cross_entropy_options_init(&o, sizeof o);
  o.reduction = reduction;
  o.label_smoothing = 0.1;
  assert_ok(heed_linear(ctx, s.x, s.weight, s.bias, &logits));
  assert_ok(heed_tensor_require_grad(logits, true));
  assert_ok(want(&s));
  heed_set_recording(ctx, true);
  assert_ok(heed_cross_entropy(ctx, logits, s.target, &o, &wanted));
  assert_ok(heed_linear_cross_entropy(ctx, s.x, s.weight, s.bias, s.target, &o, &loss));
  heed_set_recording(ctx, false);
  bool close = false;
  assert_ok(heed_allclose(ctx, loss, wanted, 1e-5, 1e-5, false, &close));
  assert_true(close);
  assert_ok(backward(ctx, wanted, dy));
  assert_ok(backward(ctx, loss, dy));
  const heed_tensor *dlogits = heed_tensor_grad(logits);
  assert_ok(heed_matmul(ctx, dlogits, s.weight, &dx));
  assert_ok(heed_transpose(ctx, dlogits, 1, 2, &turned));
  assert_ok(heed_matmul(ctx, turned, s.x, &dw));
  assert_ok(heed_sum(ctx, dlogits, 1, (const int[]){1}, false, &db));
  const heed_tensor *mine[] = {heed_tensor_grad(s.x), heed_tensor_grad(s.weight), heed_tensor_grad(s.bias)};
  heed_tensor *theirs[] = {dx, dw, db};
  for (int i = 0; i < 3; i++) {
    double *values = calloc((size_t)theirs[i]->numel, sizeof *values);
    const float *data = heed_tensor_data(theirs[i]);
    for (int64_t j = 0; j < theirs[i]->numel; j++) values[j] = (double)data[j];
    assert_near(mine[i], values);
    free(values);
  }
  free_all(7, (heed_tensor *[]){logits, loss, wanted, turned, dx, dw, db});
  linear_free(&s);
}

static void linear_cross_entropy_is_that_of_the_logits(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int r = HEED_REDUCTION_MEAN; r <= HEED_REDUCTION_NONE; r++) {
    compare_with_logits(ctx, 7, 5, 3, (heed_reduction)r, 1);
    compare_with_logits(ctx, 7, 5, 3, (heed_reduction)r, 0.25);
    compare_with_logits(ctx, 50, 60, 70, (heed_reduction)r, 2);
  }
}

/* 2^23 logits are a chunk: here 41 rows. */
static void linear_cross_entropy_goes_in_chunks(void **state) {
  test_context *t = *state;
  compare_with_logits(t->ctx, 100, 200003, 4, HEED_REDUCTION_MEAN, 1);
  linear_case s = linear_new(t->ctx, 100, 200003, 4);
  heed_tensor *loss = NULL;
  const size_t before = t->memory.bytes;
  heed_set_recording(t->ctx, true);
  assert_ok(want(&s));
  heed_limits limits = {.size = sizeof limits, .memory = before + (48 << 20)}; /* the logits are 76 MiB */
  assert_ok(heed_set_limits(t->ctx, &limits));
  assert_ok(heed_linear_cross_entropy(t->ctx, s.x, s.weight, NULL, s.target, NULL, &loss));
  assert_ok(backward(t->ctx, loss, 1));
  heed_tensor_free(loss);
  linear_free(&s);
}

static void threads_change_no_bit(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  linear_case s[2];
  heed_tensor *loss[2] = {NULL};
  for (int i = 0; i < 2; i++) {
    assert_ok(heed_set_num_threads(ctx, 1 + 2 * i));
    s[i] = linear_new(ctx, 300, 40000, 16);
    assert_ok(want(&s[i]));
    heed_set_recording(ctx, true);
    assert_ok(heed_linear_cross_entropy(ctx, s[i].x, s[i].weight, s[i].bias, s[i].target, NULL, &loss[i]));
    heed_set_recording(ctx, false);
    assert_ok(backward(ctx, loss[i], 1));
  }
  bool same = false;
  assert_ok(heed_equal(ctx, loss[0], loss[1], &same));
  assert_true(same);
  assert_ok(heed_equal(ctx, heed_tensor_grad(s[0].weight), heed_tensor_grad(s[1].weight), &same));
  assert_true(same);
  assert_ok(heed_equal(ctx, heed_tensor_grad(s[0].bias), heed_tensor_grad(s[1].bias), &same));
  assert_true(same);
  free_all(2, loss);
  linear_free(&s[0]);
  linear_free(&s[1]);
}

/* ---- Failing ---- */

static heed_status both(heed_context *ctx) {
  linear_case s = linear_new(ctx, 6, 5, 4);
  heed_tensor *logits = floats(ctx, 3, SHAPE(6, 5, 1), -1, 1),
              *target = classes_of(ctx, 2, SHAPE(6, 1), 5, 0);
  heed_tensor *loss[2] = {NULL};
  heed_status status = s.x && s.weight && s.bias && s.target && logits && target ? HEED_OK : HEED_MEMORY;
  heed_set_recording(ctx, true);
  if (status == HEED_OK) status = want(&s);
  if (status == HEED_OK) status = heed_tensor_require_grad(logits, true);
  if (status == HEED_OK)
    status = heed_linear_cross_entropy(ctx, s.x, s.weight, s.bias, s.target, NULL, &loss[0]);
  if (status == HEED_OK) status = heed_cross_entropy(ctx, logits, target, NULL, &loss[1]);
  if (status != HEED_OK) assert_null(loss[1]);
  for (int i = 0; i < 2 && status == HEED_OK; i++) status = backward(ctx, loss[i], 0.5);
  free_all(2, loss);
  free_all(2, (heed_tensor *[]){logits, target});
  linear_free(&s);
  return status;
}

static void every_allocation_may_fail(void **state) {
  (void)state;
  survives_every_failing_allocation(both);
}

static void wrong_arguments_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  linear_case s = linear_new(ctx, 3, 5, 4);
  heed_tensor *logits = floats(ctx, 2, SHAPE(3, 5), -1, 1), *none = floats(ctx, 0, NULL, 0, 1), *out = NULL;
  heed_cross_entropy_options o;
  heed_cross_entropy_options_init(&o, sizeof o);
  assert_fails(ctx, heed_cross_entropy(ctx, none, s.target, NULL, &out), HEED_SHAPE,
               "cross_entropy: input has no dimensions; it must be [c], [n, c] or [n, c, …], with c classes");
  assert_fails(ctx, heed_cross_entropy(ctx, s.x, s.x, &(heed_cross_entropy_options){.size = 0}, &out),
               HEED_ARGUMENT,
               "cross_entropy: options.size is 0; it must be sizeof(heed_cross_entropy_options)");
  o.label_smoothing = 2;
  assert_fails(ctx, heed_cross_entropy(ctx, logits, s.target, &o, &out), HEED_ARGUMENT,
               "cross_entropy: label_smoothing is 2; it must be from 0 to 1");
  o.label_smoothing = 0;
  o.reduction = (heed_reduction)9;
  assert_fails(ctx, heed_cross_entropy(ctx, logits, s.target, &o, &out), HEED_ARGUMENT,
               "cross_entropy: reduction is 9; it must be one of heed_reduction");
  o.reduction = HEED_REDUCTION_SUM;
  o.weight = s.x;
  assert_fails(ctx, heed_cross_entropy(ctx, logits, s.target, &o, &out), HEED_SHAPE,
               "cross_entropy: weight is [3, 4]; it must be [5], one for each class");
  ((int64_t *)heed_tensor_data(s.target))[1] = 6;
  assert_fails(
      ctx, heed_cross_entropy(ctx, logits, s.target, NULL, &out), HEED_INDEX,
      "cross_entropy: target has the class 6; classes must be from 1 to 5, the size of input's class "
      "dimension");
  assert_fails(ctx, heed_linear_cross_entropy(ctx, logits, s.weight, NULL, s.target, NULL, &out), HEED_SHAPE,
               "linear_cross_entropy: x is [3, 5] and weight is [5, 4]; the last sizes must be equal");
  assert_fails(
      ctx, heed_linear_cross_entropy(ctx, s.x, s.weight, s.x, s.target, NULL, &out), HEED_SHAPE,
      "linear_cross_entropy: bias is [3, 4] and weight is [5, 4]; bias must be the first size of weight");
  o.weight = s.bias;
  assert_ok(want(&s));
  heed_set_recording(ctx, true);
  assert_fails(ctx, heed_cross_entropy(ctx, logits, s.target, &o, &out), HEED_ARGUMENT,
               "cross_entropy: weight requires a gradient, and has none; use weight:detach()");
  assert_null(out);
  free_all(2, (heed_tensor *[]){logits, none});
  linear_free(&s);
}

static void a_mean_of_nothing_is_nan(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *logits = floats(ctx, 2, SHAPE(0, 4), 0, 1), *target = classes_of(ctx, 1, SHAPE(0), 4, 0);
  heed_tensor *loss = NULL, *weight = floats(ctx, 2, SHAPE(3, 4), 0, 1);
  assert_ok(heed_cross_entropy(ctx, logits, target, NULL, &loss));
  assert_true(isnan(*(const float *)heed_tensor_data(loss)));
  heed_tensor_free(loss);
  loss = NULL;
  heed_set_recording(ctx, true);
  assert_ok(heed_tensor_require_grad(weight, true));
  assert_ok(heed_linear_cross_entropy(ctx, logits, weight, NULL, target, NULL, &loss));
  assert_ok(backward(ctx, loss, 1));
  const float *dweight = heed_tensor_data((heed_tensor *)heed_tensor_grad(weight));
  for (int i = 0; i < 12; i++) assert_true(dweight[i] == 0);
  free_all(4, (heed_tensor *[]){logits, target, loss, weight});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(losses_and_gradients_are_near_double),
      TEST(linear_cross_entropy_is_that_of_the_logits),
      TEST(linear_cross_entropy_goes_in_chunks),
      TEST(threads_change_no_bit),
      cmocka_unit_test(every_allocation_may_fail),
      TEST(wrong_arguments_are_refused),
      TEST(a_mean_of_nothing_is_nan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
