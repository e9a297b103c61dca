/* Invalid arguments of what has lists and structs of its own: optimisers, heed_record, gradients that are
 * set. */
#include "support.h"

#include <math.h>
#include <stdio.h>

typedef struct world {
  test_context own, other;
  heed_tensor *x, *row, *whole, *spread, *computed, *foreign; /* [2, 3]; [3]; int64; x's row, expanded */
} world;

static int open_world(void **state) {
  world *w = calloc(1, sizeof *w);
  test_context *const both[] = {&w->own, &w->other};
  assert_non_null(w);
  for (int i = 0; i < 2; i++) {
    heed_allocator allocator = test_allocator(&both[i]->memory);
    assert_ok(heed_context_new(&allocator, &both[i]->ctx));
  }
  heed_context *ctx = w->own.ctx;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(2, 3), heed_number(1), &w->x));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 1, SHAPE(3), heed_number(1), &w->row));
  assert_ok(heed_full(ctx, HEED_INT64, 2, SHAPE(2, 3), heed_integer(1), &w->whole));
  assert_ok(heed_expand(ctx, w->row, 2, SHAPE(2, 3), &w->spread));
  assert_ok(heed_full(w->other.ctx, HEED_FLOAT32, 2, SHAPE(2, 3), heed_number(1), &w->foreign));
  assert_ok(heed_tensor_require_grad(w->x, true));
  heed_set_recording(ctx, true);
  assert_ok(heed_mul(ctx, w->x, w->x, &w->computed));
  heed_set_recording(ctx, false);
  *state = w;
  return 0;
}

static int close_world(void **state) {
  world *w = *state;
  heed_tensor *const all[] = {w->computed, w->foreign, w->spread, w->whole, w->row, w->x};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
  heed_context_free(w->own.ctx);
  heed_context_free(w->other.ctx);
  const int64_t blocks = w->own.memory.blocks + w->other.memory.blocks;
  free(w);
  assert_int_equal(blocks, 0);
  return 0;
}

#define WORLD_TEST(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

/* ---- Optimisers ---- */

typedef heed_status stepping(world *w, heed_tensor *x, const heed_tensor *dx, heed_tensor *first,
                             int64_t *steps);

static heed_status sgd(world *w, heed_tensor *x, const heed_tensor *dx, heed_tensor *first, int64_t *steps) {
  heed_sgd_options o;
  heed_sgd_options_init(&o, sizeof o);
  o.momentum = 0.9;
  return heed_sgd_step(w->own.ctx, 1, &x, &dx, &first, steps, &o);
}
static heed_status adam(world *w, heed_tensor *x, const heed_tensor *dx, heed_tensor *first, int64_t *steps) {
  heed_tensor *second = NULL;
  assert_ok(heed_full(w->own.ctx, HEED_FLOAT32, 2, SHAPE(2, 3), heed_number(0), &second));
  const heed_status status = heed_adam_step(w->own.ctx, 1, &x, &dx, &first, &second, NULL, steps, NULL);
  heed_tensor_free(second);
  return status;
}
static heed_status rmsprop(world *w, heed_tensor *x, const heed_tensor *dx, heed_tensor *first,
                           int64_t *steps) {
  return heed_rmsprop_step(w->own.ctx, 1, &x, &dx, &first, NULL, NULL, steps, NULL);
}

static const struct {
  const char *name;
  stepping *step;
} optimizers[] = {{"sgd_step", sgd}, {"adam_step", adam}, {"rmsprop_step", rmsprop}};

static void optimizers_name_the_tensor_that_is_wrong(void **state) {
  world *w = *state;
  heed_context *ctx = w->own.ctx;
  heed_tensor *momentum = NULL, *narrow = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(2, 3), heed_number(0), &momentum));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 2, SHAPE(3, 2), heed_number(0), &narrow));
  const struct {
    heed_tensor *x, *dx, *state;
    heed_status status;
    const char *what;
  } cases[] = {
      {NULL, w->x, momentum, HEED_ARGUMENT, "parameter 1 is missing (NULL)"},
      {w->foreign, w->x, momentum, HEED_ARGUMENT, "parameter 1 is of another context; all must be of one"},
      {w->whole, w->x, momentum, HEED_DTYPE, "parameter 1 is int64; it must be float32"},
      {w->computed, w->x, momentum, HEED_ARGUMENT,
       "parameter 1 was computed; it must be a leaf, such as a detached clone"},
      {w->spread, w->x, momentum, HEED_ARGUMENT,
       "parameter 1 has elements that share memory; clone it first"},
      {w->x, w->foreign, momentum, HEED_ARGUMENT,
       "the gradient of parameter 1 is of another context; all must be of one"},
      {w->x, w->whole, momentum, HEED_DTYPE, "the gradient of parameter 1 is int64; it must be float32"},
      {w->x, narrow, momentum, HEED_SHAPE,
       "the gradient of parameter 1 is [3, 2]; it must be [2, 3], the parameter's shape"},
      {w->x, w->spread, w->spread, HEED_ARGUMENT,
       "the state of parameter 1 has elements that share memory; clone it first"},
      {w->x, w->spread, w->foreign, HEED_ARGUMENT,
       "the state of parameter 1 is of another context; all must be of one"},
      {w->x, w->spread, momentum, HEED_OK, ""},
  };
  for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      char wanted[256];
      int64_t steps = 0;
      snprintf(wanted, sizeof wanted, "%s: %s", optimizers[o].name, cases[i].what);
      assert_int_equal(optimizers[o].step(w, cases[i].x, cases[i].dx, cases[i].state, &steps),
                       cases[i].status);
      if (cases[i].status != HEED_OK) assert_string_equal(heed_message(ctx), wanted);
      assert_int_equal(steps, cases[i].status == HEED_OK);
    }
  }
  heed_tensor_free(narrow);
  heed_tensor_free(momentum);
}

static void optimizers_refuse_invalid_options(void **state) {
  world *w = *state;
  heed_context *ctx = w->own.ctx;
  int64_t steps = 0;
  heed_sgd_options s;
  heed_adam_options a;
  heed_rmsprop_options r;
#define SGD(field, value, text)                                                                              \
  heed_sgd_options_init(&s, sizeof s);                                                                       \
  s.field = value;                                                                                           \
  assert_fails(ctx, heed_sgd_step(ctx, 0, NULL, NULL, NULL, &steps, &s), HEED_ARGUMENT, "sgd_step: " text)
#define ADAM(field, value, text)                                                                             \
  heed_adam_options_init(&a, sizeof a);                                                                      \
  a.field = value;                                                                                           \
  assert_fails(ctx, heed_adam_step(ctx, 0, NULL, NULL, NULL, NULL, NULL, &steps, &a), HEED_ARGUMENT,         \
               "adam_step: " text)
  SGD(lr, -1, "lr is -1; it must be a finite number, at least 0");
  SGD(momentum, (double)INFINITY, "momentum is inf; it must be a finite number, at least 0");
  SGD(weight_decay, (double)NAN, "weight_decay is nan; it must be a finite number, at least 0");
  SGD(dampening, (double)INFINITY, "dampening is inf; it must be finite");
  SGD(nesterov, true,
      "nesterov is set with momentum 0 and dampening 0; it needs a momentum above 0 and no dampening");
  ADAM(eps, -1, "eps is -1; it must be a finite number, at least 0");
  ADAM(beta1, 1, "beta1 is 1; it must be from 0 to less than 1");
  ADAM(beta2, -0.5, "beta2 is -0.5; it must be from 0 to less than 1");
  heed_rmsprop_options_init(&r, sizeof r);
  r.alpha = (double)NAN;
  assert_int_equal(heed_rmsprop_step(ctx, 0, NULL, NULL, NULL, NULL, NULL, &steps, &r), HEED_ARGUMENT);
  r.size = 1;
  s.size = 1;
  a.size = 1;
  assert_int_equal(heed_rmsprop_step(ctx, 0, NULL, NULL, NULL, NULL, NULL, &steps, &r), HEED_ARGUMENT);
  assert_int_equal(heed_sgd_step(ctx, 0, NULL, NULL, NULL, &steps, &s), HEED_ARGUMENT);
  assert_int_equal(heed_adam_step(ctx, 0, NULL, NULL, NULL, NULL, NULL, &steps, &a), HEED_ARGUMENT);
  assert_int_equal(heed_sgd_step(NULL, 0, NULL, NULL, NULL, &steps, NULL), HEED_ARGUMENT);
  assert_int_equal(heed_adam_step(NULL, 0, NULL, NULL, NULL, NULL, NULL, &steps, NULL), HEED_ARGUMENT);
  assert_int_equal(heed_rmsprop_step(NULL, 0, NULL, NULL, NULL, NULL, NULL, &steps, NULL), HEED_ARGUMENT);
  assert_int_equal(steps, 0);
}

/* ---- Gradients that are set, functions that are recorded ---- */

static void a_gradient_that_is_set_must_fit(void **state) {
  world *w = *state;
  heed_context *ctx = w->own.ctx;
  assert_fails(ctx, heed_tensor_set_grad(w->computed, w->x), HEED_ARGUMENT,
               "grad: x was computed; only the gradient of a leaf can be set");
  assert_fails(ctx, heed_tensor_set_grad(w->x, w->whole), HEED_DTYPE,
               "grad: the gradient is int64; it must be float32");
  assert_fails(ctx, heed_tensor_set_grad(w->whole, w->x), HEED_DTYPE,
               "grad: x is int64; only float32 tensors have gradients");
  assert_fails(ctx, heed_tensor_set_grad(w->x, w->row), HEED_SHAPE,
               "grad: x is [2, 3] and the gradient is [3]; the shapes must be equal");
  assert_ok(heed_tensor_set_grad(w->x, w->x)); /* a copy, of what would otherwise be a cycle */
  assert_ptr_not_equal(heed_tensor_data(heed_tensor_grad(w->x)), heed_tensor_data(w->x));
  assert_ok(heed_tensor_set_grad(w->x, NULL));
  assert_null(heed_tensor_grad(w->x));
}

static heed_status nothing(void *user, int outputs, const heed_tensor *const *dy, int inputs,
                           heed_tensor **dx) {
  (void)user, (void)outputs, (void)dy, (void)inputs, (void)dx;
  return HEED_OK;
}

static void a_recorded_function_must_be_complete(void **state) {
  world *w = *state;
  heed_context *ctx = w->own.ctx;
  heed_function f = {.size = sizeof f, .name = "F"};
  const heed_tensor *const x[] = {w->x};
  heed_tensor *y[2] = {NULL, NULL};
  bool recorded = true;
  assert_ok(heed_clone(ctx, w->row, &y[0]));
#define RECORD(inputs, outputs) heed_record(ctx, &f, inputs, x, outputs, y, &recorded)
  heed_set_recording(ctx, true);
  assert_fails(ctx, RECORD(1, 1), HEED_ARGUMENT, "record: f has no backward");
  f.backward = nothing;
  f.name = NULL;
  assert_fails(ctx, RECORD(1, 1), HEED_ARGUMENT, "record: f has no name");
  f.name = "F";
  assert_fails(ctx, RECORD(1, 0), HEED_ARGUMENT, "record: outputs is 0; it must be 1 or more");
  y[1] = w->whole;
  assert_fails(ctx, RECORD(1, 2), HEED_DTYPE,
               "record: y[1] is int64; it must be float32, bfloat16 or float16");
  y[1] = w->computed;
  assert_fails(ctx, RECORD(1, 2), HEED_ARGUMENT, "record: y[1] already has a gradient; give a new tensor");
  y[1] = w->x;
  assert_fails(ctx, RECORD(1, 2), HEED_ARGUMENT, "record: y[1] already has a gradient; give a new tensor");
  y[1] = y[0];
  assert_fails(ctx, RECORD(1, 2), HEED_ARGUMENT, "record: y[0] and y[1] are the same tensor; give an alias");
  f.size = 1;
  assert_int_equal(RECORD(1, 1), HEED_ARGUMENT);
  f.size = sizeof f;
  heed_set_recording(ctx, false);
  assert_ok(RECORD(1, 1));
  assert_false(recorded);
  heed_set_recording(ctx, true);
  heed_status status = HEED_MEMORY;
  for (int64_t n = 1; status != HEED_OK; n++) {
    w->own.memory.calls = 0;
    w->own.memory.fail_at = n;
    status = RECORD(1, 1);
    w->own.memory.fail_at = 0;
    assert_int_equal(recorded, status == HEED_OK);
    if (status != HEED_OK) assert_int_equal(status, HEED_MEMORY);
  }
  heed_set_recording(ctx, false);
  heed_tensor_free(y[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      WORLD_TEST(optimizers_name_the_tensor_that_is_wrong),
      WORLD_TEST(optimizers_refuse_invalid_options),
      WORLD_TEST(a_gradient_that_is_set_must_fit),
      WORLD_TEST(a_recorded_function_must_be_complete),
  };
  return cmocka_run_group_tests_name("arguments of gradients", tests, NULL, NULL);
}
