/* Every public function that allocates, with its 1st, 2nd, … allocation failing until it succeeds: nothing
 * leaks, and inputs, results and the random stream are unchanged. Each is called for a new result, into an
 * existing one with other strides, and into its own input. */
#include "failing_calls.h"

/* An operation of ops.def without a call_<name> does not compile. */
static const scenario operations[] = {
#define OP(name, inputs, lua) {#name, call_##name},
#include "../../src/ops/ops.def"
};

static bool is_in(const scenario *list, size_t count, call *run) {
  for (size_t i = 0; i < count; i++)
    if (list[i].run == run) return true;
  return false;
}

static void every_operation_is_tested(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
    call *const run = operations[i].run;
    if (!is_in(calls, CALLS_COUNT, run) && !is_in(others, OTHERS_COUNT, run))
      fail_msg("%s is in neither list of calls", operations[i].name);
  }
}

/* ---- Failing in turn ---- */

/* Runs the call with later and later failures until it succeeds. `given`, or NULL, is an existing tensor for
 * the first result. `out` receives the results. */
static void run_failing(const scenario *s, fixture *f, const snapshot *before, heed_tensor *given,
                        heed_tensor **out) {
  const test_memory start = f->memory;
  char *content = given ? malloc(given->storage->bytes) : NULL;
  if (content) memcpy(content, given->storage->data, given->storage->bytes);
  heed_status status = HEED_MEMORY;
  for (int64_t n = 1; status != HEED_OK; n++) {
    for (int i = 0; i < RESULTS; i++) out[i] = NULL;
    out[0] = given;
    f->memory.calls = 0;
    f->memory.fail_at = n;
    status = s->run(f, out);
    f->memory.fail_at = 0;
    if (status == HEED_OK) break;
    if (status != HEED_MEMORY) fail_msg("%s: %s", s->name, heed_message(f->ctx));
    assert_string_not_equal(heed_message(f->ctx), "");
    assert_ptr_equal(out[0], given);
    for (int i = 1; i < RESULTS; i++) assert_null(out[i]);
    if (f->memory.blocks != start.blocks || f->memory.bytes != start.bytes) fail_msg("%s leaks", s->name);
    assert_same(before, f);
    if (given && memcmp(given->storage->data, content, given->storage->bytes) != 0)
      fail_msg("%s: the given result was written at failure %lld", s->name, (long long)n);
  }
  free(content);
}

static void free_results(heed_tensor **out, const heed_tensor *but) {
  for (int i = 0; i < RESULTS; i++) {
    if (out[i] != but) heed_tensor_free(out[i]);
  }
}

/* A tensor of x's shape and dtype whose last dimension is the outermost one in memory. */
static heed_tensor *reversed_like(fixture *f, const heed_tensor *x) {
  heed_tensor *made = NULL, *result = NULL;
  int64_t shape[HEED_MAX_DIMS];
  int dims[HEED_MAX_DIMS];
  for (int i = 0; i < x->ndim; i++) {
    shape[i] = x->shape[x->ndim - 1 - i];
    dims[i] = x->ndim - i;
  }
  assert_ok(heed_full(f->ctx, x->dtype, x->ndim, shape, heed_integer(1), &made));
  assert_ok(heed_permute(f->ctx, made, x->ndim, dims, &result));
  heed_tensor_free(made);
  return result;
}

static void assert_equal(fixture *f, const scenario *s, const heed_tensor *a, const heed_tensor *b) {
  bool same = false;
  assert_ok(heed_equal(f->ctx, a, b, &same));
  if (!same) fail_msg("%s: the result differs in an existing tensor", s->name);
}

/* Random draws fill a tensor in the order of its memory, so their positions depend on its layout. */
static bool depends_on_layout(const scenario *s) {
  return strcmp(s->name, "uniform") == 0 || strcmp(s->name, "normal") == 0 ||
         strcmp(s->name, "bernoulli") == 0;
}

/* The expected result of the call in a tensor with the layout of reversed_like; the caller frees it. */
static heed_tensor *wanted_reversed(fixture *f, const scenario *s, const heed_tensor *fresh,
                                    const snapshot *before) {
  heed_tensor *out[RESULTS] = {reversed_like(f, fresh)};
  if (depends_on_layout(s))
    assert_ok(s->run(f, out));
  else
    assert_ok(heed_copy(f->ctx, out[0], fresh));
  restore(before, f);
  return out[0];
}

static void calls_survive_every_failing_allocation(void **state) {
  (void)state;
  fixture f;
  snapshot before;
  open_fixture(&f);
  take(&before, &f);
  for (size_t i = 0; i < CALLS_COUNT; i++) {
    const scenario *s = &calls[i];
    const test_memory start = f.memory;
    heed_tensor *fresh[RESULTS], *again[RESULTS];
    run_failing(s, &f, &before, NULL, fresh);
    restore(&before, &f);

    heed_tensor *other = reversed_like(&f, fresh[0]), *wanted = wanted_reversed(&f, s, fresh[0], &before);
    run_failing(s, &f, &before, other, again);
    assert_equal(&f, s, wanted, other);
    heed_tensor_free(wanted);
    free_results(again, NULL);
    restore(&before, &f);

    if (fresh[0]->dtype == HEED_FLOAT32 &&
        heed__same_shape(fresh[0]->ndim, fresh[0]->shape, 2, f.square->shape)) {
      run_failing(s, &f, &before, f.square, again);
      assert_equal(&f, s, fresh[0], f.square);
      free_results(again, f.square);
      restore(&before, &f);
    }
    free_results(fresh, NULL);
    if (f.memory.blocks != start.blocks || f.memory.bytes != start.bytes) fail_msg("%s leaks", s->name);
  }
  drop(&before);
  close_fixture(&f);
}

static void views_and_writes_survive_every_failing_allocation(void **state) {
  (void)state;
  fixture f;
  snapshot before;
  open_fixture(&f);
  take(&before, &f);
  for (size_t i = 0; i < OTHERS_COUNT; i++) {
    const test_memory start = f.memory;
    heed_tensor *out[RESULTS];
    run_failing(&others[i], &f, &before, NULL, out);
    free_results(out, NULL);
    restore(&before, &f);
    /* a parameter that was set keeps the elements of another tensor */
    if (strcmp(others[i].name, "set_parameter") == 0) continue;
    if (f.memory.blocks != start.blocks) fail_msg("%s leaks", others[i].name);
  }
  drop(&before);
  close_fixture(&f);
}

/* Runs the call with later and later cancellations until it succeeds: at each of the first checks, then at
 * some, since scalar kernels check after every row. */
static void run_cancelled(const scenario *s, fixture *f) {
  const test_memory start = f->memory;
  heed_tensor *out[RESULTS];
  check_counter counter;
  heed_status status = HEED_CANCELLED;
  for (int64_t n = 1; status != HEED_OK; n += 1 + n / 32) {
    for (int i = 0; i < RESULTS; i++) out[i] = NULL;
    begin_failing(f, &counter, CANCELLED, n);
    status = s->run(f, out);
    end_failing(f);
    if (status == HEED_OK) break;
    if (status != HEED_CANCELLED) fail_msg("%s: %s", s->name, heed_message(f->ctx));
    for (int i = 0; i < RESULTS; i++) assert_null(out[i]);
    if (f->memory.blocks != start.blocks || f->memory.bytes != start.bytes) fail_msg("%s leaks", s->name);
  }
  free_results(out, NULL);
}

static void calls_survive_being_cancelled_at_every_check(void **state) {
  (void)state;
  fixture f;
  snapshot before;
  open_fixture(&f);
  take(&before, &f);
  for (size_t i = 0; i < CALLS_COUNT + OTHERS_COUNT; i++) {
    run_cancelled(i < CALLS_COUNT ? &calls[i] : &others[i - CALLS_COUNT], &f);
    restore(&before, &f);
  }
  drop(&before);
  close_fixture(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_operation_is_tested),
      cmocka_unit_test(calls_survive_being_cancelled_at_every_check),
      cmocka_unit_test(calls_survive_every_failing_allocation),
      cmocka_unit_test(views_and_writes_survive_every_failing_allocation),
  };
  return cmocka_run_group_tests_name("ops without memory", tests, NULL, NULL);
}
