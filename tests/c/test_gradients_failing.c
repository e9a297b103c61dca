/* The gradients of every public function that has one: with each allocation failing in turn, cancelled at
 * each check, and with one input after the other that requires a gradient alone. Nothing leaks, and inputs,
 * results and the random stream are unchanged. */
#include "failing_calls.h"

#define LEAVES 10
static heed_tensor *leaf_of(const fixture *f, int i) {
  heed_tensor *const all[LEAVES] = {f->square, f->flipped, f->row,   f->tall,  f->batch,
                                    f->thin,   f->queries, f->heads, f->rates, f->rows};
  return all[i];
}

/* Which of the outputs have a gradient dy. */
typedef enum output_choice { EVERY_OUTPUT, FIRST_OUTPUT, LAST_OUTPUT, OUTPUTS } output_choice;

/* The gradients of an operation with respect to `count` leaves. *differentiable: whether a result requires
 * one. */
static heed_status forward_and_backward(const scenario *s, fixture *f, output_choice which, int count,
                                        const heed_tensor *const *leaves, heed_tensor **dx,
                                        bool *differentiable) {
  heed_tensor *out[RESULTS] = {NULL}, *dy[RESULTS] = {NULL};
  const heed_tensor *y[RESULTS];
  int outputs = 0;
  heed_set_recording(F, true);
  heed_status status = s->run(f, out);
  heed_set_recording(F, false);
  for (int i = 0; i < RESULTS && status == HEED_OK; i++)
    if (out[i] != NULL && heed_tensor_requires_grad(out[i])) y[outputs++] = out[i];
  *differentiable = outputs > 0;
  const int first = which == LAST_OUTPUT && outputs > 0 ? outputs - 1 : 0;
  if (which == FIRST_OUTPUT && outputs > 0) outputs = 1;
  for (int i = first; i < outputs && status == HEED_OK; i++)
    status = heed_full(F, HEED_FLOAT32, y[i]->ndim, y[i]->shape, heed_number(1), &dy[i]);
  const heed_tensor *const *given = (const heed_tensor *const *)dy + first;
  if (status == HEED_OK && outputs > 0 && which == LAST_OUTPUT) { /* adds to the gradients of the leaves */
    status = heed_backward(F, outputs - first, y + first, given, NULL);
    for (int i = 0; i < LEAVES * count; i++) {
      heed_tensor *leaf = leaf_of(f, i % LEAVES);
      if (leaf != leaves[i / LEAVES]) continue;
      if (status != HEED_OK) assert_null(heed_tensor_grad(leaf));
      assert_ok(heed_tensor_set_grad(leaf, NULL));
    }
  } else if (status == HEED_OK && outputs > 0) {
    status = heed_grad(F, outputs - first, y + first, given, count, leaves, dx, NULL);
  }
  for (int i = 0; i < RESULTS; i++) {
    heed_tensor_free(out[i]);
    heed_tensor_free(dy[i]);
  }
  return status;
}

/* Runs it until it succeeds, with later and later failures. Returns whether it is differentiable. */
static bool run_failing(const scenario *s, fixture *f, const snapshot *before, failure how,
                        output_choice which, int count, const heed_tensor *const *leaves) {
  test_memory start = f->memory;
  bool differentiable = false;
  heed_status status = HEED_MEMORY;
  for (int64_t n = -1; status != HEED_OK; n++) { /* -1, 0: nothing fails */
    heed_tensor *dx[LEAVES] = {NULL};
    check_counter counter;
    begin_failing(f, &counter, how, n);
    status = forward_and_backward(s, f, which, count, leaves, dx, &differentiable);
    end_failing(f);
    if (status == HEED_ARGUMENT) return false; /* it would write to a leaf */
    if (status == HEED_OK) {
      for (int i = 0; i < count; i++) heed_tensor_free(dx[i]);
      restore(before, f);
      if (n < 1 && differentiable) status = HEED_MEMORY; /* next with failures */
      if (n < 0) start = f->memory; /* parameters keep what the first pass made for them */
    } else {
      if (status != status_of(how)) fail_msg("%s: %s", s->name, heed_message(f->ctx));
      for (int i = 0; i < count; i++) assert_null(dx[i]);
      assert_ok(heed_generator_set_state(heed_default_generator(F), f->state,
                                         sizeof f->state)); /* the forward pass drew */
      assert_same(before, f);
    }
    if (f->memory.blocks != start.blocks || f->memory.bytes != start.bytes)
      fail_msg("%s leaks at %lld", s->name, (long long)n);
  }
  return differentiable;
}

/* These take seconds with thousands of keys. */
static bool is_slow(const scenario *s) {
  return strstr(s->name, "many_keys") != NULL;
}

static int each_differentiable_call(fixture *f, const snapshot *before, int count,
                                    const heed_tensor *const *leaves) {
  int found = 0;
  for (size_t i = 0; i < CALLS_COUNT + OTHERS_COUNT; i++) {
    const scenario *s = i < CALLS_COUNT ? &calls[i] : &others[i - CALLS_COUNT];
    bool differentiable = !is_slow(s) && strcmp(s->name, "set_parameter") != 0;
    for (int how = 0; how < FAILURES; how++)
      for (int which = 0; which < OUTPUTS && differentiable; which++)
        differentiable = run_failing(s, f, before, (failure)how, (output_choice)which, count, leaves);
    found += differentiable;
  }
  return found;
}

static void gradients_survive_every_failure(void **state) {
  (void)state;
  fixture f;
  snapshot before;
  const heed_tensor *leaves[LEAVES];
  open_fixture(&f);
  take(&before, &f);
  for (int i = 0; i < LEAVES; i++) {
    leaves[i] = leaf_of(&f, i);
    assert_ok(heed_tensor_require_grad(leaf_of(&f, i), true));
  }
  assert_true(each_differentiable_call(&f, &before, LEAVES, leaves) > 100);
  for (int i = 0; i < LEAVES; i++) assert_ok(heed_tensor_require_grad(leaf_of(&f, i), false));
  drop(&before);
  close_fixture(&f);
}

static void gradients_of_one_input_survive_every_failure(void **state) {
  (void)state;
  fixture f;
  snapshot before;
  int found = 0;
  open_fixture(&f);
  take(&before, &f);
  for (int i = 0; i < LEAVES; i++) {
    const heed_tensor *leaf = leaf_of(&f, i);
    assert_ok(heed_tensor_require_grad(leaf_of(&f, i), true));
    found += each_differentiable_call(&f, &before, 1, &leaf);
    assert_ok(heed_tensor_require_grad(leaf_of(&f, i), false));
  }
  assert_true(found > 150);
  drop(&before);
  close_fixture(&f);
}

/* ---- Long rows, in which loops get as far as their checks ---- */

#define LONGER 40000

typedef heed_status long_call(heed_context *ctx, const heed_tensor *x, const heed_tensor *ids,
                              heed_tensor **out);

static heed_status long_cumsum(heed_context *ctx, const heed_tensor *x, const heed_tensor *ids,
                               heed_tensor **out) {
  (void)ids;
  return heed_cumsum(ctx, x, 1, out);
}
static heed_status long_cumprod(heed_context *ctx, const heed_tensor *x, const heed_tensor *ids,
                                heed_tensor **out) {
  (void)ids;
  return heed_cumprod(ctx, x, 1, out);
}
static heed_status long_softmax(heed_context *ctx, const heed_tensor *x, const heed_tensor *ids,
                                heed_tensor **out) {
  (void)ids;
  return heed_softmax(ctx, x, 1, out);
}
static heed_status long_sort(heed_context *ctx, const heed_tensor *x, const heed_tensor *ids,
                             heed_tensor **out) {
  (void)ids;
  return heed_sort(ctx, x, 1, false, out, NULL);
}
static heed_status long_select(heed_context *ctx, const heed_tensor *x, const heed_tensor *ids,
                               heed_tensor **out) {
  return heed_index_select(ctx, x, 1, ids, out);
}
static heed_status long_embedding(heed_context *ctx, const heed_tensor *x, const heed_tensor *ids,
                                  heed_tensor **out) {
  heed_tensor *table = NULL;
  heed_status status = heed_view(ctx, x, 2, SHAPE(LONGER, 1), &table);
  if (status == HEED_OK) status = heed_embedding(ctx, ids, table, out);
  heed_tensor_free(table);
  return status;
}

static void gradients_of_long_rows_can_be_cancelled_at_every_check(void **state) {
  static long_call *const long_calls[] = {long_cumsum, long_cumprod, long_softmax,
                                          long_sort,   long_select,  long_embedding};
  test_context *t = *state;
  heed_context *ctx = t->ctx;
  heed_tensor *x = NULL, *ids = NULL;
  assert_ok(heed_uniform(ctx, NULL, 0.9, 1.1, 1, SHAPE(LONGER), &x));
  assert_ok(heed_randint(ctx, NULL, 1, LONGER, 1, SHAPE(LONGER), &ids));
  assert_ok(heed_tensor_require_grad(x, true));
  for (size_t i = 0; i < sizeof long_calls / sizeof *long_calls; i++) {
    const test_memory start = t->memory;
    heed_status status = HEED_CANCELLED;
    for (int64_t n = 1; status != HEED_OK; n++) {
      check_counter counter = {.ctx = ctx, .cancel_at = n};
      heed_tensor *out = NULL, *dy = NULL, *dx = NULL;
      assert_ok(heed_set_poll(ctx, 0, count_check, &counter));
      heed_set_recording(ctx, true);
      status = long_calls[i](ctx, x, ids, &out);
      heed_set_recording(ctx, false);
      if (status == HEED_OK)
        status = heed_full(ctx, HEED_FLOAT32, out->ndim, out->shape, heed_number(1), &dy);
      if (status == HEED_OK)
        status = heed_grad(ctx, 1, (const heed_tensor *const[]){out}, (const heed_tensor *const[]){dy}, 1,
                           (const heed_tensor *const[]){x}, &dx, NULL);
      assert_ok(heed_set_poll(ctx, 0, NULL, NULL));
      heed_clear_cancel(ctx);
      if (status != HEED_OK) assert_int_equal(status, HEED_CANCELLED);
      heed_tensor_free(dx);
      heed_tensor_free(dy);
      heed_tensor_free(out);
      assert_int_equal(t->memory.blocks, start.blocks);
    }
  }
  heed_tensor_free(ids);
  heed_tensor_free(x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_survive_every_failure),
      cmocka_unit_test(gradients_of_one_input_survive_every_failure),
      TEST(gradients_of_long_rows_can_be_cancelled_at_every_check),
  };
  return cmocka_run_group_tests_name("gradients without memory", tests, NULL, NULL);
}
