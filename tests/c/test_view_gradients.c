/* Gradients of views, indexing, joining, writes and products: every allocation failing in turn, cancellation,
 * the same bits for any number of threads and, of low-precision weights, the numbers. The numbers of the
 * others are checked in tests/spec/view_gradients_spec.lua. */
#include "tables.h"

#include <math.h>

/* ---- Graphs: y from x and w, both [side, side] ---- */

enum { STEPS = 12 };

typedef struct graph {
  heed_context *ctx;
  heed_tensor *x, *w, *index, *mask; /* index: int64 [side] */
  heed_tensor *t[STEPS], *joined;    /* joined: y, or NULL: the last t */
} graph;

typedef heed_status build(graph *g);

#define STEP(call)                                                                                           \
  if (!status) status = call
#define OUT(i) &g->t[i]

static heed_status views(graph *g) {
  heed_status status = HEED_OK;
  const int64_t n = g->x->shape[0];
  STEP(heed_transpose(g->ctx, g->x, 1, 2, OUT(0)));
  STEP(heed_reshape(g->ctx, g->t[0], 3, SHAPE(n / 2, 2, n), OUT(1)));
  STEP(heed_permute(g->ctx, g->t[1], 3, (const int[]){3, 1, 2}, OUT(2)));
  STEP(heed_unfold(g->ctx, g->t[2], 1, 3, 1, OUT(3)));
  STEP(heed_slice(g->ctx, g->t[3], 1, 1, -1, 2, OUT(4)));
  STEP(heed_narrow(g->ctx, g->t[4], 2, 2, n / 2 - 1, OUT(5)));
  STEP(heed_select(g->ctx, g->t[5], 3, -1, OUT(6)));
  STEP(heed_diagonal(g->ctx, g->t[6], 0, 1, 2, OUT(7)));
  STEP(heed_unsqueeze(g->ctx, g->t[7], 1, OUT(8)));
  STEP(heed_expand(g->ctx, g->t[8], 3, SHAPE(2, 3, g->t[7]->shape[1]), OUT(9)));
  STEP(heed_squeeze(g->ctx, g->t[9], 0, NULL, OUT(10)));
  STEP(heed_flatten(g->ctx, g->t[10], 1, -1, OUT(11)));
  return status;
}

static heed_status selections(graph *g) {
  heed_status status = HEED_OK;
  STEP(heed_index_select(g->ctx, g->x, 2, g->index, OUT(0)));
  STEP(heed_expand(g->ctx, g->index, 2, g->x->shape, OUT(1)));
  STEP(heed_gather(g->ctx, g->t[0], 1, g->t[1], OUT(2)));
  STEP(heed_index(g->ctx, g->t[2], 2, (const heed_tensor *const[]){g->index, g->index}, OUT(3)));
  STEP(heed_masked_select(g->ctx, g->x, g->mask, OUT(4)));
  STEP(heed_cat(g->ctx, 2, (const heed_tensor *const[]){g->t[3], g->t[4]}, 1, OUT(5)));
  STEP(heed_stack(g->ctx, 2, (const heed_tensor *const[]){g->t[5], g->t[5]}, 2, OUT(6)));
  STEP(heed_repeat_interleave(g->ctx, g->t[6], 2, 1, OUT(7)));
  STEP(heed_flip(g->ctx, g->t[7], 1, (const int[]){2}, OUT(8)));
  STEP(heed_flatten(g->ctx, g->t[8], 1, -1, OUT(9)));
  STEP(heed_repeat_interleave_each(g->ctx, g->w, g->index, 1, OUT(10)));
  STEP(heed_select(g->ctx, g->t[10], 1, 1, OUT(11)));
  STEP(heed_cat(g->ctx, 2, (const heed_tensor *const[]){g->t[9], g->t[11]}, 1, &g->joined));
  return status;
}

static heed_status writes(graph *g) {
  heed_status status = HEED_OK;
  const heed_tensor *const at[] = {g->index};
  STEP(heed_clone(g->ctx, g->x, OUT(0)));
  STEP(heed_select(g->ctx, g->w, 1, 1, OUT(1)));
  STEP(heed_index_put(g->ctx, g->t[0], 1, at, g->t[1], true));
  STEP(heed_index_put(g->ctx, g->t[0], 1, at, g->t[1], false));
  STEP(heed_index_add(g->ctx, g->t[0], 2, g->index, g->w, heed_number(3)));
  STEP(heed_narrow(g->ctx, g->index, 1, 1, 2, OUT(2)));
  STEP(heed_narrow(g->ctx, g->w, 1, 1, 2, OUT(3)));
  STEP(heed_index_copy(g->ctx, g->t[0], 1, g->t[2], g->t[3]));
  STEP(heed_index_fill(g->ctx, g->t[0], 1, g->t[2], heed_number(2)));
  STEP(heed_unsqueeze(g->ctx, g->t[2], 1, OUT(4)));
  STEP(heed_scatter(g->ctx, g->t[0], 2, g->t[4], g->w, HEED_SCATTER_REPLACE));
  STEP(heed_scatter(g->ctx, g->t[0], 2, g->t[4], g->w, HEED_SCATTER_ADD));
  STEP(heed_select(g->ctx, g->w, 1, 1, OUT(5)));
  STEP(heed_select(g->ctx, g->t[5], 1, 1, OUT(6)));
  STEP(heed_masked_assign(g->ctx, g->t[0], g->mask, g->t[6]));
  STEP(heed_full(g->ctx, HEED_FLOAT32, 2, g->x->shape, heed_number(0), OUT(7)));
  STEP(heed_copy(g->ctx, g->t[7], g->t[0]));
  STEP(heed_contiguous(g->ctx, g->t[7], OUT(11)));
  return status;
}

static heed_status products(graph *g) {
  heed_status status = HEED_OK;
  const int64_t n = g->x->shape[0];
  STEP(heed_reshape(g->ctx, g->x, 3, SHAPE(2, n / 2, n), OUT(0)));
  STEP(heed_select(g->ctx, g->w, 1, 2, OUT(1)));
  STEP(heed_linear(g->ctx, g->t[0], g->w, g->t[1], OUT(2)));
  STEP(heed_matmul(g->ctx, g->t[2], g->w, OUT(3)));
  STEP(heed_transpose(g->ctx, g->t[3], 2, 3, OUT(4)));
  STEP(heed_matmul(g->ctx, g->t[0], g->t[4], OUT(5)));
  STEP(heed_matmul(g->ctx, g->t[3], g->t[1], OUT(6)));
  STEP(heed_flatten(g->ctx, g->t[6], 1, -1, OUT(7)));
  STEP(heed_dot(g->ctx, g->t[7], g->t[1], OUT(8)));
  STEP(heed_mul(g->ctx, g->t[5], g->t[8], OUT(11)));
  return status;
}

static build *const graphs[] = {views, selections, writes, products};
#define GRAPHS (sizeof graphs / sizeof *graphs)

/* ---- Running them ---- */

static heed_status open_graph(heed_context *ctx, int64_t side, graph *g) {
  *g = (graph){.ctx = ctx};
  heed_status status = heed_normal(ctx, NULL, 0, 1, 2, SHAPE(side, side), &g->x);
  if (!status) status = heed_normal(ctx, NULL, 0, 1, 2, SHAPE(side, side), &g->w);
  if (!status) status = heed_randperm(ctx, NULL, side, &g->index);
  if (!status) status = heed_gt(ctx, g->x, g->w, &g->mask);
  if (!status) status = heed_tensor_require_grad(g->x, true);
  if (!status) status = heed_tensor_require_grad(g->w, true);
  return status;
}

static void close_graph(graph *g) {
  for (int i = 0; i < STEPS; i++) heed_tensor_free(g->t[i]);
  heed_tensor_free(g->joined);
  heed_tensor_free(g->x);
  heed_tensor_free(g->w);
  heed_tensor_free(g->index);
  heed_tensor_free(g->mask);
}

static heed_status build_graph(graph *g, build *make, heed_tensor **y) {
  *y = NULL;
  heed_set_recording(g->ctx, true);
  heed_status status = make(g);
  if (!status) status = heed_sum(g->ctx, g->joined ? g->joined : g->t[STEPS - 1], 0, NULL, false, y);
  heed_set_recording(g->ctx, false);
  return status;
}

static heed_status go_back(graph *g, const heed_tensor *y) {
  return heed_backward(g->ctx, 1, &y, NULL, NULL);
}

static build *failing; /* the graph of the scenario */

static heed_status fails_in_turn(heed_context *ctx) {
  graph g;
  heed_tensor *y = NULL;
  heed_status status = open_graph(ctx, 6, &g);
  if (!status) status = build_graph(&g, failing, &y);
  if (!status) {
    status = go_back(&g, y);
    assert_true(status == HEED_OK || (!heed_tensor_grad(g.x) && !heed_tensor_grad(g.w)));
    assert_true(status != HEED_OK || heed_tensor_grad(g.x) || heed_tensor_grad(g.w));
  }
  heed_tensor_free(y);
  close_graph(&g);
  return status;
}

static void a_failing_allocation_changes_no_gradient(void **state) {
  (void)state;
  for (size_t i = 0; i < GRAPHS; i++) {
    failing = graphs[i];
    survives_every_failing_allocation(fails_in_turn);
  }
}

static void a_cancelled_pass_can_be_repeated(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (size_t i = 0; i < GRAPHS; i++) {
    graph g;
    heed_tensor *y = NULL;
    assert_ok(open_graph(ctx, 8, &g));
    assert_ok(build_graph(&g, graphs[i], &y));
    heed_cancel(ctx);
    assert_int_equal(go_back(&g, y), HEED_CANCELLED);
    assert_null(heed_tensor_grad(g.x));
    assert_null(heed_tensor_grad(g.w));
    assert_ok(go_back(&g, y));
    assert_non_null(heed_tensor_grad(g.x));
    heed_tensor_free(y);
    close_graph(&g);
  }
}

static void check_thread_bits(heed_context *ctx) {
  for (size_t i = 0; i < GRAPHS; i++) {
    graph one, more;
    heed_tensor *y = NULL;
    for (int threads = 1; threads < 5; threads++) {
      graph *g = threads == 1 ? &one : &more;
      assert_ok(heed_set_num_threads(ctx, threads));
      heed_generator_seed(heed_default_generator(ctx), 3);
      assert_ok(open_graph(ctx, 192, g));
      assert_ok(build_graph(g, graphs[i], &y));
      assert_ok(go_back(g, y));
      heed_tensor_free(y);
      if (threads == 1) continue;
      const heed_tensor *a[] = {heed_tensor_grad(one.x), heed_tensor_grad(one.w)};
      const heed_tensor *b[] = {heed_tensor_grad(more.x), heed_tensor_grad(more.w)};
      for (int k = 0; k < 2; k++) {
        assert_true((a[k] == NULL) == (b[k] == NULL));
        if (a[k] != NULL) assert_memory_equal(a[k]->data, b[k]->data, (size_t)a[k]->numel * sizeof(float));
      }
      close_graph(&more);
    }
    close_graph(&one);
  }
  assert_ok(heed_set_num_threads(ctx, 1));
}

static void the_bits_are_those_of_one_thread(void **state) {
  (void)state;
  with_every_table(check_thread_bits);
}

/* ---- Low-precision weights ---- */

static float at(const heed_tensor *x, int64_t i) {
  return ((const float *)(const void *)x->data)[i];
}

/* dx = dy · weight with the weight as it is stored, and dbias the sum of dy, in double precision. */
static void check_lowp(heed_context *ctx) {
  static const heed_dtype dtypes[] = {HEED_BFLOAT16, HEED_FLOAT16, HEED_INT8};
  enum { M = 5, N = 70, K = 130 };
  for (int d = 0; d < 3; d++) {
    heed_tensor *x = NULL, *whole = NULL, *weight = NULL, *scale = NULL, *wide = NULL, *bias = NULL,
                *y = NULL;
    heed_tensor *dy = NULL;
    assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(M, K), &x));
    assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(N, K), &whole));
    assert_ok(heed_normal(ctx, NULL, 0, 1, 1, SHAPE(N), &bias));
    assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(M, N), &dy));
    assert_ok(heed_tensor_require_grad(x, true));
    assert_ok(heed_tensor_require_grad(bias, true));
    if (dtypes[d] == HEED_INT8) {
      assert_ok(heed_quantize_int8(ctx, whole, &weight, &scale));
      assert_ok(heed_dequantize_int8(ctx, weight, scale, &wide));
    } else {
      assert_ok(heed_to(ctx, whole, dtypes[d], &weight));
      assert_ok(heed_to(ctx, weight, HEED_FLOAT32, &wide));
    }
    heed_set_recording(ctx, true);
    assert_ok(scale != NULL ? heed_linear_int8(ctx, x, weight, scale, bias, &y)
                            : heed_linear(ctx, x, weight, bias, &y));
    heed_set_recording(ctx, false);
    const heed_tensor *ys = y, *dys = dy;
    assert_ok(heed_backward(ctx, 1, &ys, &dys, NULL));
    for (int64_t i = 0; i < M; i++) {
      for (int64_t k = 0; k < K; k++) {
        double sum = 0;
        for (int64_t j = 0; j < N; j++) sum += (double)at(dy, i * N + j) * (double)at(wide, j * K + k);
        assert_true(fabs(sum - (double)at(heed_tensor_grad(x), i * K + k)) <= 1e-4);
      }
    }
    for (int64_t j = 0; j < N; j++) {
      double sum = 0;
      for (int64_t i = 0; i < M; i++) sum += (double)at(dy, i * N + j);
      assert_true(fabs(sum - (double)at(heed_tensor_grad(bias), j)) <= 1e-5);
    }
    heed_tensor *const all[] = {x, whole, weight, scale, wide, bias, y, dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
  }
}

static void low_precision_weights_pass_gradients_on(void **state) {
  (void)state;
  with_every_table(check_lowp);
}

/* ---- Writes that must not be ---- */

static void writes_that_would_lose_gradients_are_errors_and_change_nothing(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  graph g;
  heed_tensor *row = NULL, *base = NULL, *alias = NULL;
  assert_ok(open_graph(ctx, 4, &g));
  heed_set_recording(ctx, true);
  const float before = at(g.x, 0);
  assert_int_equal(heed_fill(ctx, g.x, heed_number(9)), HEED_ARGUMENT); /* a leaf */
  assert_true(at(g.x, 0) == before);
  assert_ok(heed_mul(ctx, g.x, g.w, &base));
  assert_ok(heed_select(ctx, base, 1, 1, &row));
  const float first = at(base, 0);
  assert_int_equal(heed_fill(ctx, row, heed_number(9)), HEED_ARGUMENT); /* a view */
  assert_true(at(base, 0) == first);
  assert_ok(heed_tensor_alias(ctx, base, &alias));
  assert_ok(heed_add(ctx, base, g.w, &base)); /* in place: the others are older now */
  const float second = at(base, 0);
  assert_int_equal(heed_add(ctx, alias, g.w, &alias), HEED_ARGUMENT);
  assert_true(at(base, 0) == second);
  heed_tensor *sum = NULL;
  assert_int_equal(heed_sum(ctx, row, 0, NULL, false, &sum), HEED_ARGUMENT);
  assert_null(sum);
  assert_ok(heed_fill(ctx, base, heed_number(0))); /* as new, and the others are still older */
  assert_int_equal(heed_sum(ctx, alias, 0, NULL, false, &sum), HEED_ARGUMENT);
  assert_ok(heed_sum(ctx, base, 0, NULL, false, &sum));
  heed_tensor_free(sum);
  assert_int_equal(heed_scatter(ctx, base, 1, NULL, g.w, HEED_SCATTER_MULTIPLY), HEED_ARGUMENT);
  heed_set_recording(ctx, false);
  heed_tensor_free(row);
  heed_tensor_free(base);
  heed_tensor_free(alias);
  close_graph(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_failing_allocation_changes_no_gradient),
      TEST(a_cancelled_pass_can_be_repeated),
      TEST(the_bits_are_those_of_one_thread),
      TEST(low_precision_weights_pass_gradients_on),
      TEST(writes_that_would_lose_gradients_are_errors_and_change_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
