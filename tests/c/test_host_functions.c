/* What functions and hooks of a host may give to a backward pass, through heed.h: wrong gradients, gradients
 * that heed owns, errors without a message. */
#include "support.h"

#include <string.h>

enum { SIZE = 3 };

/* What the callbacks give. */
typedef enum giving {
  NEW,     /* dy · dy */
  NONE,    /* no gradient */
  LENT,    /* dy itself, for both inputs */
  TWICE,   /* one new tensor for both inputs */
  LONG,    /* of another shape */
  INTEGER, /* of another dtype */
  FOREIGN, /* of another context */
  STOPPED, /* CANCELLED, without a message */
  LATE,    /* an error after giving dy */
  STRANGE, /* a status that does not exist */
} giving;

typedef struct host {
  heed_context *ctx;
  const heed_tensor *foreign;
  giving what;
  int released;
} host;

static heed_status give(const host *h, const heed_tensor *dy, heed_tensor **dx) {
  switch (h->what) {
  case NEW:
  case TWICE: return heed_mul(h->ctx, dy, dy, dx);
  case LENT: *dx = (heed_tensor *)(uintptr_t)dy; return HEED_OK;
  case LONG: return heed_full(h->ctx, HEED_FLOAT32, 1, SHAPE(SIZE + 1), heed_number(1), dx);
  case INTEGER: return heed_full(h->ctx, HEED_INT64, 1, SHAPE(SIZE), heed_integer(1), dx);
  case FOREIGN: return heed_tensor_alias(heed_tensor_context(h->foreign), h->foreign, dx);
  case STOPPED: return HEED_CANCELLED;
  case LATE: *dx = (heed_tensor *)(uintptr_t)dy; return HEED_SHAPE;
  case STRANGE: return (heed_status)77;
  default: return HEED_OK;
  }
}

static heed_status host_backward(void *user, int outputs, const heed_tensor *const *dy, int inputs,
                                 heed_tensor **dx) {
  const host *h = user;
  assert_int_equal(outputs, 1);
  assert_int_equal(inputs, 2);
  const heed_status status = give(h, dy[0], &dx[0]);
  if (h->what == LENT || h->what == TWICE) dx[1] = dx[0];
  return status;
}

static heed_status host_gradient_hook(void *user, const heed_tensor *gradient, heed_tensor **out) {
  return give(user, gradient, out);
}

static void release_host(void *user) {
  ((host *)user)->released++;
}

static heed_tensor *host_leaf(heed_context *ctx) {
  heed_tensor *x = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 1, SHAPE(SIZE), heed_number(2), &x));
  assert_ok(heed_tensor_require_grad(x, true));
  return x;
}

/* A pass through a function of the host (or, with `hooked`, through its hook) of a and b. */
static heed_status pass_through_host(host *h, bool hooked, const heed_tensor *a, const heed_tensor *b) {
  heed_context *ctx = h->ctx;
  heed_tensor *y = NULL, *loss = NULL;
  bool recorded = false;
  int64_t id;
  const heed_function f = {
      .size = sizeof f, .name = "Mine", .backward = host_backward, .release = release_host, .user = h};
  h->released = 0;
  if (hooked) {
    assert_ok(heed_add(ctx, a, b, &y));
    assert_ok(heed_tensor_add_hook(y, host_gradient_hook, release_host, h, &id));
  } else {
    const heed_tensor *x[] = {a, b};
    assert_ok(heed_full(ctx, HEED_FLOAT32, 1, SHAPE(SIZE), heed_number(1), &y));
    assert_ok(heed_record(ctx, &f, 2, x, 1, (heed_tensor *const[]){y}, &recorded));
    assert_true(recorded);
  }
  assert_ok(heed_sum(ctx, y, 0, NULL, false, &loss));
  const heed_tensor *from = loss;
  const heed_status status = heed_backward(ctx, 1, &from, NULL, NULL);
  heed_tensor_free(loss);
  heed_tensor_free(y);
  assert_int_equal(h->released, 1);
  return status;
}

static const char *const messages[] = {
    [LONG] = "is float32 [4]; it must be float32 [3], as ",
    [INTEGER] = "is int64 [3]; it must be float32 [3], as ",
    [FOREIGN] = "is of another context; all must be of one",
    [STOPPED] = "the host gave an error without a message: cancelled by heed_cancel",
    [LATE] = "the host gave an error without a message: sizes do not match",
    [STRANGE] = "the host gave the status 77; it must be a heed_status",
};

static void check_givings(heed_context *ctx, bool hooked) {
  heed_context *other = NULL;
  assert_ok(heed_context_new(NULL, &other));
  heed_tensor *foreign = host_leaf(other), *a = host_leaf(ctx), *b = host_leaf(ctx);
  const bool before = heed_set_recording(ctx, true);
  for (int what = NEW; what <= STRANGE; what++) {
    host h = {ctx, foreign, (giving)what, 0};
    heed_tensor *unset = NULL; /* leaves an old message */
    assert_int_equal(heed_full(ctx, HEED_FLOAT32, -1, NULL, heed_number(1), &unset), HEED_SHAPE);
    const heed_status status = pass_through_host(&h, hooked, a, b);
    const bool is_error = what >= LONG;
    assert_true(is_error == (status != HEED_OK));
    if (what == STOPPED) assert_int_equal(status, HEED_CANCELLED);
    if (is_error) assert_non_null(strstr(heed_message(ctx), messages[what]));
    if (is_error) assert_non_null(strstr(heed_message(ctx), hooked ? "register_hook: " : "Mine: "));
    const bool has_a = !is_error && (hooked || what != NONE);
    const bool has_b = !is_error && (hooked || what == LENT || what == TWICE);
    assert_true(has_a == (heed_tensor_grad(a) != NULL));
    assert_true(has_b == (heed_tensor_grad(b) != NULL));
    assert_ok(heed_tensor_set_grad(a, NULL));
    assert_ok(heed_tensor_set_grad(b, NULL));
  }
  heed_set_recording(ctx, before);
  heed_tensor_free(a);
  heed_tensor_free(b);
  heed_tensor_free(foreign);
  heed_context_free(other);
}

static void functions_may_give_anything(void **state) {
  check_givings(((test_context *)*state)->ctx, false);
}

static void hooks_may_give_anything(void **state) {
  check_givings(((test_context *)*state)->ctx, true);
}

static void mistakes_in_counts_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = host_leaf(ctx), *y = NULL;
  const heed_tensor *from = x;
  heed_backward_steps *steps = NULL;
  host h = {ctx, NULL, NEW, 0};
  bool recorded = false;
  const bool before = heed_set_recording(ctx, true);
  for (int count = -1; count <= 0; count++)
    assert_int_equal(heed_backward_steps_new(ctx, count, &from, NULL, NULL, &steps), HEED_ARGUMENT);
  assert_ok(heed_full(ctx, HEED_FLOAT32, 1, SHAPE(SIZE), heed_number(1), &y));
  const heed_function f = {.size = sizeof f, .name = "Mine", .backward = host_backward, .user = &h};
  assert_int_equal(heed_record(ctx, &f, -1, &from, 1, &y, &recorded), HEED_ARGUMENT);
  assert_int_equal(heed_record(ctx, &f, 1, &from, 2, (heed_tensor *const[]){y, y}, &recorded), HEED_ARGUMENT);
  assert_null(heed_tensor_grad_fn(y));
  heed_set_recording(ctx, before);
  heed_tensor_free(x);
  heed_tensor_free(y);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(functions_may_give_anything),
      TEST(hooks_may_give_anything),
      TEST(mistakes_in_counts_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
