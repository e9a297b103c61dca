/* Attention over parts of the keys: its statistics against double precision, and merging the parts, for
 * random options; gradients; what is refused. */
#include "random_attention.h"

/* ---- Statistics ---- */

static void statistics_are_those_of_the_scores(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  uint32_t random = 4;
  for (int i = 0; i < CALLS; i++) {
    random_call c;
    make_call(ctx, &c, &random);
    heed_attention_taps none = {.size = sizeof none}, scores = none;
    heed_tensor *stats = NULL;
    heed_tensor *plain = run_call(ctx, &c, ctx->cpu, 0, NULL, &none, NULL);
    heed_tensor *scalar =
        run_call(ctx, &c, HEED__CPU_scalar, 1u << HEED__TAP_biased_logits, NULL, &scores, NULL);
    heed_tensor *out = run_call(ctx, &c, ctx->cpu, 0, NULL, &none, &stats);
    assert_same_bits(plain, out);
    for (int64_t row = 0; 2 * row < stats->numel; row++) {
      double most;
      const int64_t h = row / c.l % c.hq;
      double lse = lse_of(scores.biased_logits, row, c.s, c.sinks, h, &most);
      if (lse == -INFINITY && c.sinks) lse = most = (double)at(c.sinks, h); /* counts without keys, too */
      const float sum = lse == -INFINITY ? 0.0f : (float)exp(lse - most);
      if (!close_to(at(stats, 2 * row), (float)most, 2e-5f) || !close_to(at(stats, 2 * row + 1), sum, 5e-5f))
        fail_msg("call %d: row %lld has %.9g and %.9g; they must be %.9g and %.9g", i, (long long)row,
                 (double)at(stats, 2 * row), (double)at(stats, 2 * row + 1), most, (double)sum);
    }
    heed_tensor *const all[] = {plain, scalar, out, stats};
    for (int n = 0; n < 4; n++) heed_tensor_free(all[n]);
    heed_attention_taps_free(&scores);
    free_call(&c);
  }
}

/* ---- Merging ---- */

enum { PARTS = 40 };

static heed_tensor *keys_of(heed_context *ctx, const heed_tensor *x, int dim, int64_t first, int64_t n) {
  heed_tensor *view = NULL;
  if (x) assert_ok(heed_narrow(ctx, x, dim, first + 1, n, &view));
  return view;
}

/* The call on keys first…first+n-1 alone. */
static void run_part(heed_context *ctx, const random_call *c, int64_t first, int64_t n, heed_tensor **out,
                     heed_tensor **stats) {
  heed__attention_operands operands = {.function = "part",
                                       .q = c->q,
                                       .options = c->options,
                                       .offset = -first,
                                       .same_tokens = true,
                                       .stats = stats};
  heed_tensor *lengths = NULL;
  heed_tensor *const own[] = {keys_of(ctx, c->k, 3, first, n),       keys_of(ctx, c->v, 3, first, n),
                              keys_of(ctx, c->mask, 4, first, n),    keys_of(ctx, c->padding, 2, first, n),
                              keys_of(ctx, c->k_scale, 3, first, n), keys_of(ctx, c->v_scale, 3, first, n)};
  if (c->lengths) {
    assert_ok(heed_clone(ctx, c->lengths, &lengths));
    int64_t *length = (int64_t *)(void *)lengths->data;
    for (int64_t i = 0; i < lengths->numel; i++) length[i] = heed__max(heed__min(length[i] - first, n), 0);
  }
  operands.k = own[0];
  operands.v = own[1];
  operands.options.attn_mask = own[2];
  operands.options.kv_lengths = lengths;
  operands.key_padding_mask = own[3];
  operands.k_scale = own[4];
  operands.v_scale = own[5];
  if (first > 0) operands.options.sinks = NULL;
  assert_ok(heed__attention(ctx, &operands, out));
  for (int i = 0; i < 6; i++) heed_tensor_free(own[i]);
  heed_tensor_free(lengths);
}

/* Cut anywhere, also into more parts than one node merges, and with parts that some queries do not see. */
static void parts_merge_to_the_whole(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  uint32_t random = 5;
  for (int i = 0; i < CALLS; i++) {
    random_call c;
    heed_tensor *whole[2] = {NULL, NULL}, *merged[2] = {NULL, NULL}, *part[2][PARTS] = {{NULL}, {NULL}};
    make_call(ctx, &c, &random);
    c.options.dropout_p = 0; /* each part would draw */
    const int64_t most = one_in(&random, 4) ? PARTS : 3, longest = c.s / most + 1;
    int n = 0;
    for (int64_t first = 0; first < c.s; n++) {
      const int64_t keys =
          n == PARTS - 1 ? c.s - first : pick(&random, 1, heed__min(2 * longest, c.s - first));
      run_part(ctx, &c, first, keys, &part[0][n], &part[1][n]);
      first += keys;
    }
    run_part(ctx, &c, 0, c.s, &whole[0], &whole[1]);
    const heed_tensor *const *outs = (const heed_tensor *const *)part[0];
    assert_ok(
        heed_attention_merge(ctx, n, outs, (const heed_tensor *const *)part[1], &merged[0], &merged[1]));
    assert_close(merged[0], whole[0], 2e-5f);
    assert_close(merged[1], whole[1], 5e-5f);
    for (int k = 0; k < 2; k++) {
      for (int p = 0; p < n; p++) heed_tensor_free(part[k][p]);
      heed_tensor_free(whole[k]);
      heed_tensor_free(merged[k]);
    }
    free_call(&c);
  }
}

/* e^score itself would overflow, and the sum of one part vanishes beside the other's. */
static void parts_with_scores_of_hundreds_merge(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  uint32_t random = 6;
  for (int i = 0; i < 20; i++) {
    random_call c = {.hq = 2, .l = pick(&random, 1, 60), .s = 300, .d = 16};
    heed_tensor *whole[2] = {NULL, NULL}, *part[2][2] = {{NULL, NULL}, {NULL, NULL}},
                *merged[2] = {NULL, NULL};
    assert_ok(heed_normal(ctx, NULL, 0, 100, 4, SHAPE(1, 2, c.l, 16), &c.q));
    assert_ok(heed_normal(ctx, NULL, 0, 4, 4, SHAPE(1, 2, 300, 16), &c.k));
    assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(1, 2, 300, 8), &c.v));
    c.options.size = sizeof c.options;
    run_part(ctx, &c, 0, 100, &part[0][0], &part[1][0]);
    run_part(ctx, &c, 100, 200, &part[0][1], &part[1][1]);
    run_part(ctx, &c, 0, 300, &whole[0], &whole[1]);
    assert_true(fabsf(at(whole[1], 0)) > 100);
    assert_ok(heed_attention_merge(ctx, 2, (const heed_tensor *const *)part[0],
                                   (const heed_tensor *const *)part[1], &merged[0], &merged[1]));
    assert_close(merged[0], whole[0], 2e-4f); /* scores of 1000 have an error of 6e-5 */
    for (int k = 0; k < 2; k++) {
      heed_tensor *const all[] = {whole[k], part[k][0], part[k][1], merged[k]};
      for (int n = 0; n < 4; n++) heed_tensor_free(all[n]);
    }
    free_call(&c);
  }
}

static void results_may_be_given_and_may_be_inputs(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = NULL, *out = NULL, *stats = NULL, *given = NULL, *view = NULL, *merged[2] = {NULL, NULL};
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 7, 4), &x));
  assert_ok(heed_attention_partial(ctx, x, x, x, NULL, 0, &out, &stats));
  /* a column apart: not row-major */
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 7, 3), &given));
  assert_ok(heed_narrow(ctx, given, 3, 2, 2, &view));
  heed_tensor *again = NULL;
  assert_ok(heed_clone(ctx, x, &again));
  assert_ok(heed_attention_partial(ctx, again, x, x, NULL, 0, &again, &view)); /* out is q */
  assert_same_bits(out, again);
  for (int64_t i = 0; i < 14; i++) {
    assert_true(at(given, 3 * i + 1) == at(stats, 2 * i));
    assert_true(at(given, 3 * i + 2) == at(stats, 2 * i + 1));
  }
  const heed_tensor *const outs[] = {out, again}, *const sums[] = {stats, view};
  assert_ok(heed_attention_merge(ctx, 2, outs, sums, &merged[0], &merged[1]));
  assert_ok(heed_attention_merge(ctx, 2, outs, sums, &again, &view)); /* written over a part */
  assert_same_bits(merged[0], again);
  for (int64_t i = 0; i < 14; i++) assert_true(at(given, 3 * i + 2) == at(merged[1], 2 * i + 1));
  heed_tensor *const all[] = {x, out, stats, given, view, again, merged[0], merged[1]};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
}

/* ---- Gradients ---- */

/* Two parts of a call with a sink, merged; their gradients from those of the output and of the statistics. */
typedef struct graph {
  heed_tensor *x[4]; /* q, k, v, sinks */
  heed_tensor *out, *stats;
} graph;

static void free_graph(graph *g) {
  heed_tensor *const all[] = {g->x[0], g->x[1], g->x[2], g->x[3], g->out, g->stats};
  for (int i = 0; i < 6; i++) heed_tensor_free(all[i]);
}

static void make_inputs(heed_context *ctx, graph *g) {
  *g = (graph){.out = NULL};
  assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(1, 2, 5, 4), &g->x[0]));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(1, 1, 7, 4), &g->x[1]));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 4, SHAPE(1, 1, 7, 3), &g->x[2]));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 1, SHAPE(2), &g->x[3]));
  for (int i = 0; i < 4; i++) assert_ok(heed_tensor_require_grad(g->x[i], true));
}

static heed_status merge_graph(heed_context *ctx, graph *g) {
  heed_tensor *k = NULL, *v = NULL, *out[2] = {NULL, NULL}, *stats[2] = {NULL, NULL};
  heed_status status = HEED_OK;
  for (int i = 0; i < 2 && !status; i++) {
    const heed_attention_options options = {
        .size = sizeof options, .is_causal = true, .sinks = i == 0 ? g->x[3] : NULL};
    status = heed_narrow(ctx, g->x[1], 3, 3 * i + 1, 3 + i, &k);
    if (!status) status = heed_narrow(ctx, g->x[2], 3, 3 * i + 1, 3 + i, &v);
    if (!status) status = heed_attention_partial(ctx, g->x[0], k, v, &options, 1 - 3 * i, &out[i], &stats[i]);
    heed_tensor_free(k);
    heed_tensor_free(v);
    k = v = NULL;
  }
  if (!status)
    status = heed_attention_merge(ctx, 2, (const heed_tensor *const *)out, (const heed_tensor *const *)stats,
                                  &g->out, &g->stats);
  for (int i = 0; i < 2; i++) {
    heed_tensor_free(out[i]);
    heed_tensor_free(stats[i]);
  }
  return status;
}

static heed_status whole_graph(heed_context *ctx, graph *g) {
  const heed_attention_options options = {.size = sizeof options, .is_causal = true, .sinks = g->x[3]};
  return heed_attention_partial(ctx, g->x[0], g->x[1], g->x[2], &options, 1, &g->out, &g->stats);
}

/* dstats as that of a function of the log-sum alone. */
static heed_tensor *gradient_of_sums(heed_context *ctx, const heed_tensor *stats) {
  heed_tensor *d = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, stats->ndim, stats->shape, &d));
  float *x = (float *)(void *)d->data;
  for (int64_t i = 0; i < stats->numel; i += 2) x[i + 1] = x[i] / at(stats, i + 1);
  return d;
}

static void gradients_of_merged_parts_are_those_of_the_whole(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  (void)heed_set_recording(ctx, true);
  for (int given = 1; given < 4; given++) { /* bits: the output's gradient, that of the statistics */
    graph g;
    heed_tensor *dx[2][4] = {{NULL}, {NULL}};
    make_inputs(ctx, &g);
    heed_tensor *dout = NULL, *dstats = NULL;
    for (int whole = 0; whole < 2; whole++) {
      assert_ok((whole ? whole_graph : merge_graph)(ctx, &g));
      if (!dout) assert_ok(heed_normal(ctx, NULL, 0, 1, 4, g.out->shape, &dout));
      if (!dstats) dstats = gradient_of_sums(ctx, g.stats);
      const heed_tensor *const y[] = {given & 1 ? g.out : g.stats, g.stats}, *const dy[] = {
                                                                                 given & 1 ? dout : dstats,
                                                                                 dstats};
      assert_ok(
          heed_grad(ctx, given == 3 ? 2 : 1, y, dy, 4, (const heed_tensor *const *)g.x, dx[whole], NULL));
      heed_tensor_free(g.out);
      heed_tensor_free(g.stats);
      g.out = g.stats = NULL;
    }
    for (int i = 0; i < 4; i++) {
      assert_true(dx[0][i] != NULL || (given == 2 && i == 2));
      if (dx[0][i]) assert_close(dx[0][i], dx[1][i], 1e-5f);
      for (int whole = 0; whole < 2; whole++) heed_tensor_free(dx[whole][i]);
    }
    heed_tensor_free(dout);
    heed_tensor_free(dstats);
    free_graph(&g);
  }
  (void)heed_set_recording(ctx, false);
}

static void gradients_of_the_largest_score_alone_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  graph g;
  heed_tensor *largest = NULL, *sum = NULL;
  (void)heed_set_recording(ctx, true);
  make_inputs(ctx, &g);
  assert_ok(whole_graph(ctx, &g));
  assert_ok(heed_select(ctx, g.stats, 4, 1, &largest));
  assert_ok(heed_sum(ctx, largest, 0, NULL, false, &sum));
  assert_int_equal(heed_backward(ctx, 1, (const heed_tensor *const[]){sum}, NULL, NULL), HEED_ARGUMENT);
  assert_non_null(strstr(heed_message(ctx), "only functions of row_max + log(row_sum)"));
  (void)heed_set_recording(ctx, false);
  heed_tensor_free(largest);
  heed_tensor_free(sum);
  free_graph(&g);
}

static heed_status merge_and_go_back(heed_context *ctx) {
  graph g = {.out = NULL};
  heed_tensor *dx[4] = {NULL}, *dstats = NULL;
  (void)heed_set_recording(ctx, true);
  heed_status status = heed_normal(ctx, NULL, 0, 1, 4, SHAPE(1, 2, 5, 4), &g.x[0]);
  if (!status) status = heed_normal(ctx, NULL, 0, 1, 4, SHAPE(1, 1, 7, 4), &g.x[1]);
  if (!status) status = heed_normal(ctx, NULL, 0, 1, 4, SHAPE(1, 1, 7, 3), &g.x[2]);
  if (!status) status = heed_normal(ctx, NULL, 0, 1, 1, SHAPE(2), &g.x[3]);
  for (int i = 0; i < 4 && !status; i++) status = heed_tensor_require_grad(g.x[i], true);
  if (!status) {
    status = merge_graph(ctx, &g);
    assert_true((g.out != NULL) == (status == HEED_OK) && (g.stats != NULL) == (status == HEED_OK));
  }
  if (!status) status = heed_full(ctx, HEED_FLOAT32, 4, g.out->shape, heed_number(1), &dstats);
  if (!status) {
    status = heed_grad(ctx, 1, (const heed_tensor *const[]){g.out}, (const heed_tensor *const[]){dstats}, 4,
                       (const heed_tensor *const *)g.x, dx, NULL);
    for (int i = 0; i < 4; i++) assert_true((dx[i] != NULL) == (status == HEED_OK));
  }
  for (int i = 0; i < 4; i++) heed_tensor_free(dx[i]);
  heed_tensor_free(dstats);
  free_graph(&g);
  return status;
}

static void memory_may_run_out_anywhere(void **state) {
  (void)state;
  survives_every_failing_allocation(merge_and_go_back);
}

/* ---- What is refused ---- */

static void parts_that_do_not_fit_are_refused(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *out = NULL, *other = NULL, *stats = NULL, *three = NULL, *whole = NULL, *row = NULL, *y = NULL,
              *z = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 5, 4), &out));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 6, 4), &other));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 5, 2), &stats));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 5, 3), &three));
  assert_ok(heed_full(ctx, HEED_INT64, 3, SHAPE(2, 5, 2), heed_integer(1), &whole));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 1, SHAPE(5), &row));
#define MERGE_FAILS(status, n, a, b, c, d, text)                                                             \
  assert_fails(ctx,                                                                                          \
               heed_attention_merge(ctx, n, (const heed_tensor *const[]){a, b},                              \
                                    (const heed_tensor *const[]){c, d}, &y, &z),                             \
               status, "attention_merge: " text);                                                            \
  assert_null(y);                                                                                            \
  assert_null(z);
  MERGE_FAILS(HEED_ARGUMENT, 0, out, out, stats, stats, "count is 0; it must be at least 1")
  MERGE_FAILS(HEED_SHAPE, 2, out, other, stats, stats,
              "outs[2] is [2, 6, 4] and outs[1] is [2, 5, 4]; the shapes must be equal")
  MERGE_FAILS(
      HEED_SHAPE, 2, out, out, stats, three,
      "stats[2] is [2, 5, 3] and outs[2] is [2, 5, 4]; the sizes must be equal, but the last of stats "
      "must be 2")
  MERGE_FAILS(HEED_DTYPE, 2, out, out, whole, stats, "stats[1] is int64; it must be float32")
  MERGE_FAILS(HEED_DTYPE, 2, out, whole, stats, stats, "outs[2] is int64; it must be float32")
  MERGE_FAILS(HEED_SHAPE, 2, row, row, stats, stats,
              "outs[1] is [5]; it must have at least 2 dimensions, [..., l, dv]")
  for (int sign = -1; sign < 2; sign += 2)
    assert_int_equal(
        heed_attention_partial(ctx, out, out, out, NULL, sign * (((int64_t)1 << 53) + 1), &y, &z),
        HEED_ARGUMENT);
  assert_null(y);
  heed_tensor *const all[] = {out, other, stats, three, whole, row};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
}

static void queries_far_from_the_keys_see_none_or_all(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *x = NULL, *out = NULL, *stats = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(40, 4), &x));
  for (int before = 0; before < 2; before++) {
    for (int windowed = 0; windowed < 2; windowed++) {
      const heed_attention_options o = {
          .size = sizeof o, .is_causal = true, .window = {.has_left = windowed, .left = 3}};
      const int64_t far = (int64_t)1 << 53;
      assert_ok(heed_attention_partial(ctx, x, x, x, &o, before ? -far : far, &out, &stats));
      const bool sees = !before && !windowed;
      for (int64_t i = 0; i < 40; i++) {
        assert_true((at(stats, 2 * i + 1) > 0) == sees);
        assert_true(sees || at(stats, 2 * i) == -INFINITY);
        assert_true((at(out, 4 * i) != 0) == sees);
      }
    }
  }
  heed_tensor_free(x);
  heed_tensor_free(out);
  heed_tensor_free(stats);
}

static void empty_parts_are_nothing(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *q = NULL, *k = NULL, *v = NULL, *sinks = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 3, 4), &q));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 0, 4), &k));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 3, 0), &v));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 1, SHAPE(2), &sinks));
  for (int i = 0; i < 3; i++) {
    heed_tensor *out = NULL, *stats = NULL, *merged[2] = {NULL, NULL};
    const heed_attention_options o = {.size = sizeof o, .sinks = i == 1 ? sinks : NULL};
    assert_ok(heed_attention_partial(ctx, q, i < 2 ? k : q, i < 2 ? k : v, &o, 0, &out, &stats));
    for (int64_t row = 0; row < 6; row++) {
      assert_true(i == 2 ? at(stats, 2 * row + 1) >= 1 : at(stats, 2 * row + 1) == (i == 1));
      if (i < 2) assert_true(at(stats, 2 * row) == (i == 1 ? at(sinks, row / 3) : -INFINITY));
    }
    const heed_tensor *const outs[] = {out, out}, *const sums[] = {stats, stats};
    assert_ok(heed_attention_merge(ctx, 2, outs, sums, &merged[0], &merged[1]));
    for (int64_t n = 0; n < merged[0]->numel; n++) assert_true(at(merged[0], n) == 0);
    assert_true(at(merged[1], 1) == 2 * at(stats, 1));
    heed_tensor *const all[] = {out, stats, merged[0], merged[1]};
    for (int n = 0; n < 4; n++) heed_tensor_free(all[n]);
  }
  heed_tensor *const all[] = {q, k, v, sinks};
  for (int n = 0; n < 4; n++) heed_tensor_free(all[n]);
}

static void a_cancelled_merge_writes_nothing(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *out = NULL, *stats = NULL, *y = NULL, *z = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(3000, 64), &out));
  assert_ok(heed_normal(ctx, NULL, 0, 1, 2, SHAPE(3000, 2), &stats));
  const heed_tensor *const outs[] = {out, out}, *const sums[] = {stats, stats};
  heed_cancel(ctx);
  assert_int_equal(heed_attention_merge(ctx, 2, outs, sums, &y, &z), HEED_CANCELLED);
  assert_null(y);
  assert_null(z);
  assert_ok(heed_attention_merge(ctx, 2, outs, sums, &y, &z));
  heed_tensor *const all[] = {out, stats, y, z};
  for (int n = 0; n < 4; n++) heed_tensor_free(all[n]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(statistics_are_those_of_the_scores),
      TEST(parts_merge_to_the_whole),
      TEST(parts_with_scores_of_hundreds_merge),
      TEST(results_may_be_given_and_may_be_inputs),
      TEST(gradients_of_merged_parts_are_those_of_the_whole),
      TEST(gradients_of_the_largest_score_alone_are_refused),
      cmocka_unit_test(memory_may_run_out_anywhere),
      TEST(parts_that_do_not_fit_are_refused),
      TEST(queries_far_from_the_keys_see_none_or_all),
      TEST(empty_parts_are_nothing),
      TEST(a_cancelled_merge_writes_nothing),
  };
  return cmocka_run_group_tests_name("partial", tests, NULL, NULL);
}
