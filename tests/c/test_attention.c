/* Scaled dot-product attention against a naive reference in double precision: masks, groups of heads, views,
 * the contents of hidden elements, and sizes of zero. */
#define _DEFAULT_SOURCE /* mmap */

#include "guarded.h"

#include <math.h>

#include "../../src/attention/attention.h"

/* ---- Helpers ---- */

static heed_tensor *normal(heed_context *ctx, int ndim, const int64_t *shape) {
  heed_tensor *x = NULL;
  assert_ok(heed_normal(ctx, NULL, 0, 1, ndim, shape, &x));
  return x;
}

/* [b, h, n, d] as a view of [b, n, h, d]. */
static heed_tensor *normal_heads(heed_context *ctx, int64_t b, int64_t h, int64_t n, int64_t d) {
  heed_tensor *x = normal(ctx, 4, SHAPE(b, n, h, d)), *view = NULL;
  assert_ok(heed_transpose(ctx, x, 2, 3, &view));
  heed_tensor_free(x);
  return view;
}

/* true with probability p. */
static heed_tensor *coins(heed_context *ctx, double p, int ndim, const int64_t *shape) {
  heed_tensor *x = NULL, *mask = NULL;
  heed__number limit;
  assert_ok(heed_uniform(ctx, NULL, 0, 1, ndim, shape, &x));
  assert_ok(heed_lt(ctx, x, heed__number_tensor(&limit, heed_number(p)), &mask));
  heed_tensor_free(x);
  return mask;
}

/* The element of x at (i, j, k, l), x broadcast to four dimensions. */
static void *element(const heed_tensor *x, int64_t i, int64_t j, int64_t k, int64_t l) {
  const int64_t at[4] = {i, j, k, l};
  int64_t offset = 0;
  for (int d = 1; d <= x->ndim; d++) {
    if (x->shape[x->ndim - d] != 1) offset += at[4 - d] * x->stride[x->ndim - d];
  }
  return x->data + offset * (int64_t)heed__element_bytes(x->dtype);
}

static double number(const heed_tensor *x, int64_t i, int64_t j, int64_t k, int64_t l) {
  return (double)*(float *)element(x, i, j, k, l);
}

static void set(const heed_tensor *x, int64_t i, int64_t j, int64_t k, int64_t l, float value) {
  *(float *)element(x, i, j, k, l) = value;
}

/* The inputs of a call, all with four dimensions. */
typedef struct question {
  heed_tensor *q, *k, *v, *mask, *padding; /* padding [b, s] */
  bool causal;
  double scale;
} question;

static void free_question(question *a) {
  heed_tensor_free(a->q);
  heed_tensor_free(a->k);
  heed_tensor_free(a->v);
  heed_tensor_free(a->mask);
  heed_tensor_free(a->padding);
}

static bool sees(const question *a, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (a->causal && j > i) return false;
  if (a->padding && *(uint8_t *)element(a->padding, 0, 0, b, j)) return false;
  if (!a->mask) return true;
  if (a->mask->dtype == HEED_BOOL) return *(uint8_t *)element(a->mask, b, h, i, j) != 0;
  return number(a->mask, b, h, i, j) != -INFINITY;
}

/* The reference's weights of one query. */
static void weigh(const question *a, int64_t b, int64_t h, int64_t i, double *weights) {
  const int64_t s = a->k->shape[2], d = a->q->shape[3];
  const int64_t kv = h / (a->q->shape[1] / a->k->shape[1]);
  double most = -INFINITY, sum = 0;
  for (int64_t j = 0; j < s; j++) {
    double score = 0;
    weights[j] = -INFINITY;
    if (!sees(a, b, h, i, j)) continue;
    for (int64_t c = 0; c < d; c++) score += number(a->q, b, h, i, c) * number(a->k, b, kv, j, c);
    weights[j] = score * (a->scale != 0 ? a->scale : 1 / sqrt((double)d));
    if (a->mask && a->mask->dtype == HEED_FLOAT32) weights[j] += number(a->mask, b, h, i, j);
    if (weights[j] > most) most = weights[j];
  }
  for (int64_t j = 0; j < s; j++) {
    weights[j] = most == -INFINITY ? 0 : exp(weights[j] - most);
    sum += weights[j];
  }
  for (int64_t j = 0; j < s; j++) weights[j] = sum > 0 ? weights[j] / sum : 0;
}

static heed_status answer(heed_context *ctx, const question *a, heed_tensor **weights, heed_tensor **out) {
  heed_attention_taps taps = {.size = sizeof taps};
  heed__attention_operands call = {.function = "attention", .q = a->q, .k = a->k, .v = a->v, .found = &taps};
  call.options.attn_mask = a->mask;
  call.options.is_causal = a->causal;
  call.options.scale = a->scale;
  call.key_padding_mask = a->padding;
  if (weights) call.taps = 1u << HEED__TAP_weights;
  const heed_status status = heed__attention(ctx, &call, out);
  if (weights) *weights = taps.weights;
  return status;
}

static void compare_with_reference(heed_context *ctx, const question *a) {
  const int64_t b = a->q->shape[0], hq = a->q->shape[1], l = a->q->shape[2], s = a->k->shape[2];
  const int64_t dv = a->v->shape[3], group = hq / a->k->shape[1];
  heed_tensor *out = NULL, *again = NULL, *weights = NULL;
  double *row = calloc((size_t)s + 1, sizeof *row);
  assert_non_null(row);
  assert_ok(answer(ctx, a, &weights, &out));
  assert_memory_equal(weights->shape, SHAPE(b, hq, l, s), 4 * sizeof(int64_t));
  assert_ok(answer(ctx, a, NULL, &again));
  assert_memory_equal(out->data, again->data, (size_t)out->numel * sizeof(float));
  assert_memory_equal(out->shape, SHAPE(b, hq, l, dv), 4 * sizeof(int64_t));
  for (int64_t p = 0; p < b * hq * l; p++) {
    const int64_t i = p % l, h = p / l % hq, item = p / l / hq;
    weigh(a, item, h, i, row);
    for (int64_t j = 0; j < s; j++) assert_true(fabs(number(weights, item, h, i, j) - row[j]) < 2e-6);
    for (int64_t c = 0; c < dv; c++) {
      double sum = 0;
      for (int64_t j = 0; j < s; j++) sum += row[j] * number(a->v, item, h / group, j, c);
      assert_true(fabs(number(out, item, h, i, c) - sum) < 4e-6);
    }
  }
  free(row);
  heed_tensor_free(out);
  heed_tensor_free(again);
  heed_tensor_free(weights);
}

/* ---- Numbers ---- */

typedef struct sizes {
  int64_t b, hq, hkv, l, s, d, dv;
} sizes;

static const sizes tried[] = {
    {1, 1, 1, 1, 1, 1, 1},   {2, 2, 2, 6, 6, 2, 2},    {1, 6, 2, 5, 9, 3, 4},    {3, 4, 1, 7, 5, 8, 8},
    {1, 2, 1, 1, 33, 16, 5}, {2, 3, 3, 17, 16, 7, 31}, {1, 1, 1, 3, 2100, 4, 4}, {1, 4, 2, 65, 64, 32, 32},
};

static question ask(heed_context *ctx, const sizes *z) {
  return (question){.q = normal_heads(ctx, z->b, z->hq, z->l, z->d),
                    .k = normal(ctx, 4, SHAPE(z->b, z->hkv, z->s, z->d)),
                    .v = normal_heads(ctx, z->b, z->hkv, z->s, z->dv)};
}

static void every_query_sees_all_keys_without_masks(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
    question a = ask(ctx, &tried[i]);
    compare_with_reference(ctx, &a);
    a.scale = 0.3;
    compare_with_reference(ctx, &a);
    free_question(&a);
  }
}

static void masks_hide_keys_alone_and_combined(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
    const sizes *z = &tried[i];
    const int64_t shapes[][4] = {
        {z->b, z->hq, z->l, z->s}, {1, 1, z->l, z->s}, {z->b, 1, 1, z->s}, {1, z->hq, z->l, 1}, {1, 1, 1, 1}};
    for (size_t m = 0; m < sizeof shapes / sizeof *shapes; m++) {
      for (int way = 0; way < 8; way++) {
        question a = ask(ctx, z);
        a.mask = (way & 1) ? coins(ctx, 0.6, 4, shapes[m]) : normal(ctx, 4, shapes[m]);
        if (way & 2) a.causal = true;
        if (way & 4) a.padding = coins(ctx, 0.3, 2, SHAPE(z->b, z->s));
        if (!(way & 1)) set(a.mask, 0, 0, 0, 0, -INFINITY);
        compare_with_reference(ctx, &a);
        free_question(&a);
      }
    }
  }
}

static void hidden_elements_never_affect_the_output(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const float poison[] = {NAN, INFINITY, -INFINITY, 3e38f};
  const sizes z = {2, 4, 2, 5, 7, 3, 4};
  for (size_t i = 0; i < sizeof poison / sizeof *poison; i++) {
    question a = ask(ctx, &z);
    a.padding = coins(ctx, 0, 2, SHAPE(z.b, z.s));
    *(uint8_t *)element(a.padding, 0, 0, 1, 2) = 1; /* key 3 of the second item */
    a.mask = coins(ctx, 1, 2, SHAPE(z.l, z.s));
    for (int64_t row = 0; row < z.l; row++)
      *(uint8_t *)element(a.mask, 0, 0, row, 5) = 0; /* key 6 everywhere */
    a.causal = true;                                 /* and key 7 */
    heed_tensor *clean = NULL, *out = NULL;
    assert_ok(answer(ctx, &a, NULL, &clean));
    for (int64_t h = 0; h < z.hkv; h++) {
      for (int64_t c = 0; c < 3; c++) {
        set(a.k, 1, h, 2, c, poison[i]), set(a.v, 1, h, 2, c, poison[i]);
        set(a.k, 0, h, 5, c, poison[i]), set(a.v, 0, h, 5, c, poison[i]);
        set(a.k, 0, h, 6, c, poison[i]), set(a.v, 0, h, 6, c, poison[i]);
      }
    }
    assert_ok(answer(ctx, &a, NULL, &out));
    assert_memory_equal(out->data, clean->data, (size_t)out->numel * sizeof(float));
    heed_tensor_free(clean);
    heed_tensor_free(out);
    free_question(&a);
  }
}

static void a_query_that_sees_no_key_gives_zeros(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const sizes z = {1, 2, 2, 4, 4, 3, 3};
  question a = ask(ctx, &z);
  heed_tensor *out = NULL, *weights = NULL;
  a.mask = coins(ctx, 1, 2, SHAPE(z.l, z.s));
  for (int64_t j = 0; j < z.s; j++) *(uint8_t *)element(a.mask, 0, 0, 2, j) = 0;
  assert_ok(answer(ctx, &a, &weights, &out));
  for (int64_t c = 0; c < 3; c++) assert_true(number(out, 0, 1, 2, c) == 0 && number(out, 0, 1, 1, c) != 0);
  for (int64_t j = 0; j < 4; j++) assert_true(number(weights, 0, 1, 2, j) == 0);
  heed_tensor_free(out);
  heed_tensor_free(weights);
  free_question(&a);
}

static void sizes_of_zero_give_zeros_or_empty_results(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const sizes none[] = {{1, 2, 1, 3, 0, 4, 5},    {1, 2, 1, 0, 3, 4, 5},   {0, 2, 1, 3, 3, 4, 5},
                               {1, 0, 0, 3, 3, 4, 5},    {1, 2, 1, 3, 3, 4, 0},   {1, 2, 1, 3, 3, 0, 5},
                               {1, 2, 1, 17, 0, 65, 65}, {1, 2, 1, 300, 0, 4, 4}, {1, 2, 1, 1, 40, 64, 0}};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    const sizes *z = &none[i];
    for (int causal = 0; causal < 2; causal++) {
      question a = ask(ctx, z);
      heed_tensor *out = NULL;
      a.causal = causal;
      assert_ok(answer(ctx, &a, NULL, &out));
      assert_int_equal(out->numel, z->b * z->hq * z->l * z->dv);
      for (int64_t p = 0; z->s == 0 && p < out->numel; p++) assert_true(((float *)(void *)out->data)[p] == 0);
      for (int64_t p = 0; p < out->numel; p++) assert_true(isfinite(((float *)(void *)out->data)[p]));
      heed_tensor_free(out);
      free_question(&a);
    }
  }
}

/* No output is needed, however many queries there are: 2^58 here, or 2^26 of 32 bits, which take no memory
 * either. */
static void values_without_columns_take_no_time(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *one = NULL, *q = NULL, *k = NULL, *v = NULL, *out = NULL;
  assert_ok(heed_full(ctx, HEED_FLOAT32, 3, SHAPE(1, 1, 1), heed_number(1), &one));
  assert_ok(heed_expand(ctx, one, 4, SHAPE(PTRDIFF_MAX / 32 + 1, 1, 1, 1), &q));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 3, SHAPE(1, 40, 1), heed_number(1), &k));
  assert_ok(heed_full(ctx, HEED_FLOAT32, 3, SHAPE(1, 40, 0), heed_number(1), &v));
  assert_ok(heed_scaled_dot_product_attention(ctx, q, k, v, NULL, &out, NULL));
  assert_int_equal(out->numel, 0);
  heed_tensor *const all[] = {one, q, k, v, out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
}

static void a_mask_with_fewer_keys_hides_the_others(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const sizes z = {2, 2, 1, 4, 6, 3, 3};
  for (int additive = 0; additive < 2; additive++) {
    question a = ask(ctx, &z);
    heed_tensor *mask = additive ? normal(ctx, 2, SHAPE(4, 4)) : coins(ctx, 0.7, 2, SHAPE(4, 4));
    heed_tensor *k = NULL, *v = NULL, *out = NULL, *wanted = NULL;
    const heed_attention_options options = {.size = sizeof options, .attn_mask = mask};
    assert_ok(heed_narrow(ctx, a.k, 3, 1, 4, &k));
    assert_ok(heed_narrow(ctx, a.v, 3, 1, 4, &v));
    assert_ok(heed_scaled_dot_product_attention(ctx, a.q, k, v, &options, &wanted, NULL));
    assert_ok(heed_scaled_dot_product_attention(ctx, a.q, a.k, a.v, &options, &out, NULL));
    assert_memory_equal(out->data, wanted->data, (size_t)out->numel * sizeof(float));
    heed_tensor_free(mask);
    heed_tensor_free(k);
    heed_tensor_free(v);
    heed_tensor_free(out);
    heed_tensor_free(wanted);
    free_question(&a);
  }
}

static void dropout_draws_for_all_weights_in_order(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  const sizes z = {2, 4, 2, 3, 5, 2, 3};
  for (int stream = 0; stream < 2; stream++) {
    question a = ask(ctx, &z);
    heed_tensor *wanted = NULL, *out = NULL;
    heed_attention_taps taps = {.size = sizeof taps};
    heed_set_dropout_stream(ctx, stream ? HEED_DROPOUT_MKL : HEED_DROPOUT_NATIVE);
    heed__attention_operands call = {.function = "attention", .q = a.q, .k = a.k, .v = a.v};
    call.options.dropout_p = 0.4;
    call.options.is_causal = true;
    call.taps = 1u << HEED__TAP_weights | 1u << HEED__TAP_dropped_weights;
    call.found = &taps;
    heed_generator_seed(heed_default_generator(ctx), 7);
    assert_ok(heed__attention(ctx, &call, &out));
    heed_generator_seed(heed_default_generator(ctx), 7);
    assert_ok(heed_dropout(ctx, NULL, 0.4, taps.weights, &wanted));
    assert_memory_equal(taps.dropped_weights->data, wanted->data, (size_t)wanted->numel * sizeof(float));
    heed_attention_taps_free(&taps);
    heed_tensor_free(wanted);
    heed_tensor_free(out);
    free_question(&a);
  }
}

/* ---- Shapes ---- */

static void ranks_and_batches_broadcast(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *q = normal(ctx, 2, SHAPE(3, 4)), *k = normal(ctx, 2, SHAPE(5, 4)),
              *v = normal(ctx, 2, SHAPE(5, 6));
  heed_tensor *many = normal(ctx, 5, SHAPE(2, 1, 4, 3, 4)), *keys = normal(ctx, 4, SHAPE(3, 2, 5, 4));
  heed_tensor *out = NULL;
  assert_ok(heed_scaled_dot_product_attention(ctx, q, k, v, NULL, &out, NULL));
  assert_int_equal(out->ndim, 2);
  assert_memory_equal(out->shape, SHAPE(3, 6), 2 * sizeof(int64_t));
  heed_tensor_free(out);
  out = NULL;
  assert_ok(heed_scaled_dot_product_attention(ctx, many, keys, keys, NULL, &out, NULL));
  assert_int_equal(out->ndim, 5);
  assert_memory_equal(out->shape, SHAPE(2, 3, 4, 3, 4), 5 * sizeof(int64_t));

  /* its last part alone */
  heed_tensor *one = NULL, *one_key = NULL, *alone = NULL, *part = NULL, *inner = NULL;
  assert_ok(heed_select(ctx, many, 1, 2, &one));
  assert_ok(heed_select(ctx, keys, 1, 3, &one_key));
  assert_ok(heed_scaled_dot_product_attention(ctx, one, one_key, one_key, NULL, &alone, NULL));
  assert_ok(heed_select(ctx, out, 1, 2, &part));
  assert_ok(heed_select(ctx, part, 1, 3, &inner));
  assert_memory_equal(inner->data, alone->data, (size_t)inner->numel * sizeof(float));
  heed_tensor *const all[] = {q, k, v, many, keys, out, one, one_key, alone, part, inner};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
}

static void a_result_may_be_strided_or_overlap_an_input(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const sizes each[] = {{2, 3, 3, 4, 4, 5, 5}, {2, 3, 3, 4, 40, 5, 5}, {2, 3, 3, 20, 20, 5, 5}};
  for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
    const sizes *z = &each[i];
    question a = ask(ctx, z);
    heed_tensor *wanted = NULL, *out_on_q = a.q, *strided = normal_heads(ctx, 2, 3, z->l, 5);
    assert_ok(answer(ctx, &a, NULL, &wanted));
    assert_ok(answer(ctx, &a, NULL, &strided));
    assert_ok(answer(ctx, &a, NULL, &out_on_q));
    bool equal = false;
    assert_ok(heed_equal(ctx, wanted, strided, &equal));
    assert_true(equal);
    assert_ok(heed_equal(ctx, wanted, a.q, &equal));
    assert_true(equal);
    heed_tensor_free(wanted);
    heed_tensor_free(strided);
    free_question(&a);
  }
}

static void invalid_arguments_are_refused_with_a_message(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  heed_tensor *q = normal(ctx, 4, SHAPE(2, 3, 6, 4)), *k2 = normal(ctx, 4, SHAPE(2, 2, 6, 4));
  heed_tensor *k5 = normal(ctx, 3, SHAPE(3, 6, 5)), *row = normal(ctx, 1, SHAPE(4)),
              *wide = normal(ctx, 2, SHAPE(6, 7));
  heed_tensor *whole = NULL, *out = NULL;
  heed_attention_options o = {.size = sizeof o};
  assert_ok(heed_full(ctx, HEED_INT64, 2, SHAPE(6, 6), heed_integer(1), &whole));
#define FAILS(q, k, v, status, text)                                                                         \
  assert_fails(ctx, heed_scaled_dot_product_attention(ctx, q, k, v, &o, &out, NULL), status,                 \
               "scaled_dot_product_attention: " text)
  FAILS(q, k2, k2, HEED_SHAPE,
        "q is [2, 3, 6, 4] and k is [2, 2, 6, 4]; the heads of q (third to last size) must be a multiple of "
        "the "
        "heads of k");
  FAILS(q, k5, k5, HEED_SHAPE, "q is [2, 3, 6, 4] and k is [3, 6, 5]; their last sizes must be equal");
  FAILS(row, q, q, HEED_SHAPE, "q is [4]; it must have at least 2 dimensions");
  FAILS(whole, q, q, HEED_DTYPE, "q is int64; it must be float32: convert with q:float()");
  o.attn_mask = whole;
  FAILS(q, q, q, HEED_DTYPE, "attn_mask is int64; it must be bool (true is visible) or float32 (added)");
  o.attn_mask = wide;
  FAILS(q, q, q, HEED_SHAPE,
        "attn_mask is [6, 7] and must broadcast to [2, 3, 6, 6]; its size 7 of dimension 2 must be 1 or 6");
  o.attn_mask = NULL;
  o.dropout_p = 1.5;
  FAILS(q, q, q, HEED_ARGUMENT, "dropout_p is 1.5; it must be from 0 to 1");
  o.dropout_p = 0;
  o.scale = INFINITY;
  FAILS(q, q, q, HEED_ARGUMENT, "scale is inf; it must be finite");
#undef FAILS
  assert_null(out);
  heed_tensor *const all[] = {q, k2, k5, row, wide, whole};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) heed_tensor_free(all[i]);
}

/* ---- Hidden keys are not read ---- */

/* x [1, 1, n, d] of which only rows first…last-1 exist, surrounded by inaccessible pages. */
static void only_rows(heed_context *ctx, int64_t n, int64_t d, int64_t first, int64_t last, bool at_end,
                      guarded *area, heed_tensor *x) {
  heed_tensor *some = normal(ctx, 4, SHAPE(1, 1, last - first, d));
  *area = guard_bytes((size_t)some->numel * sizeof(float), at_end);
  memcpy(area->data, some->data, (size_t)some->numel * sizeof(float));
  heed__alias_on_stack(x, some);
  x->shape[2] = n;
  x->numel = n * d;
  x->data = (char *)area->data - first * d * (int64_t)sizeof(float);
  heed_tensor_free(some);
}

static void keys_hidden_from_all_queries_are_not_read(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  static const int64_t queries[] = {1, 1, 3, 4, 20, 21, 200, 201};
  for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
    const int64_t l = queries[i], s = 5000, length = 4100, left = 64, first = length - l - left;
    heed_tensor *q = normal(ctx, 4, SHAPE(1, 2, l, 16)), *wanted = NULL, *lengths = NULL, k, v;
    guarded k_area, v_area;
    only_rows(ctx, s, 16, first, length, i % 2, &k_area, &k);
    only_rows(ctx, s, 16, first, length, i % 2, &v_area, &v);
    k.storage = v.storage = q->storage; /* for the check of the context */
    assert_ok(heed_full(ctx, HEED_INT64, 1, SHAPE(1), heed_integer(length), &lengths));
    const heed_attention_options options = {.size = sizeof options,
                                            .is_causal = true,
                                            .kv_lengths = lengths,
                                            .window = {.has_left = true, .left = left}};
    for (int threads = 1; threads <= 3; threads++) {
      heed_tensor *out = NULL;
      assert_ok(heed_set_num_threads(ctx, threads));
      assert_ok(heed_scaled_dot_product_attention(ctx, q, &k, &v, &options, &out, NULL));
      if (wanted) assert_memory_equal(out->data, wanted->data, (size_t)out->numel * sizeof(float));
      if (wanted) heed_tensor_free(out);
      if (!wanted) wanted = out;
    }
    heed_tensor *const all[] = {q, lengths, wanted};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) heed_tensor_free(all[j]);
    unguard(k_area);
    unguard(v_area);
  }
}

static void lengths_of_other_items_change_no_bit(void **state) {
  heed_context *ctx = ((test_context *)*state)->ctx;
  for (int64_t l = 1; l <= 40; l += 13) {
    heed_tensor *q = normal(ctx, 4, SHAPE(2, 3, l, 24)), *k = normal(ctx, 4, SHAPE(2, 1, 3000, 24));
    heed_tensor *lengths = NULL, *wanted = NULL;
    assert_ok(heed_full(ctx, HEED_INT64, 1, SHAPE(2), heed_integer(2900), &lengths));
    const heed_attention_options options = {.size = sizeof options, .is_causal = true, .kv_lengths = lengths};
    for (int64_t other = 2900; other >= 0; other -= 1450) {
      heed_tensor *out = NULL;
      ((int64_t *)(void *)lengths->data)[1] = other;
      assert_ok(heed_scaled_dot_product_attention(ctx, q, k, k, &options, &out, NULL));
      if (wanted) assert_memory_equal(out->data, wanted->data, (size_t)out->numel / 2 * sizeof(float));
      if (wanted) heed_tensor_free(out);
      if (!wanted) wanted = out;
    }
    heed_tensor *const all[] = {q, k, lengths, wanted};
    for (size_t j = 0; j < sizeof all / sizeof *all; j++) heed_tensor_free(all[j]);
  }
}

/* ---- Memory ---- */

static heed_status attend(heed_context *ctx) {
  heed_tensor *x = NULL, *mask = NULL, *out = NULL;
  heed_status status =
      heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 2500, 1), &x); /* more keys than fit the stack */
  if (status == HEED_OK) status = heed_full(ctx, HEED_BOOL, 2, SHAPE(1, 2000), heed_boolean(true), &mask);
  const heed_attention_options options = {.size = sizeof options, .attn_mask = mask, .dropout_p = 0.5};
  heed_tensor q = {0};
  if (status == HEED_OK) {
    heed__alias_on_stack(&q, x);
    q.shape[1] = 2;
    q.numel = 4;
    status = heed_scaled_dot_product_attention(ctx, &q, x, x, &options, &out, NULL);
  }
  heed_tensor_free(x);
  heed_tensor_free(mask);
  heed_tensor_free(out);
  return status;
}

static heed_status attend_with_past(heed_context *ctx) {
  heed_tensor *x = NULL, *out = NULL;
  heed_attention_taps taps = {.size = sizeof taps};
  heed_status status = heed_normal(ctx, NULL, 0, 1, 3, SHAPE(2, 40, 4), &x);
  const heed_attention_options options = {
      .size = sizeof options, .is_causal = true, .past_key = x, .past_value = x, .softcap = 3};
  if (status == HEED_OK) status = heed_scaled_dot_product_attention(ctx, x, x, x, &options, &out, &taps);
  if (status == HEED_OK) {
    assert_memory_equal(taps.weights->shape, SHAPE(2, 40, 80), 3 * sizeof(int64_t));
    assert_memory_equal(taps.present_key->shape, SHAPE(2, 80, 4), 3 * sizeof(int64_t));
  } else {
    assert_null(out);
#define X(name) assert_null(taps.name);
    HEED_ATTENTION_TAPS_LIST(X)
#undef X
  }
  heed_attention_taps_free(&taps);
  heed_tensor_free(x);
  heed_tensor_free(out);
  return status;
}

static void nothing_leaks_when_memory_runs_out(void **state) {
  (void)state;
  survives_every_failing_allocation(attend);
  survives_every_failing_allocation(attend_with_past);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(every_query_sees_all_keys_without_masks),
      TEST(masks_hide_keys_alone_and_combined),
      TEST(hidden_elements_never_affect_the_output),
      TEST(a_query_that_sees_no_key_gives_zeros),
      TEST(sizes_of_zero_give_zeros_or_empty_results),
      TEST(values_without_columns_take_no_time),
      TEST(a_mask_with_fewer_keys_hides_the_others),
      TEST(dropout_draws_for_all_weights_in_order),
      TEST(ranks_and_batches_broadcast),
      TEST(a_result_may_be_strided_or_overlap_an_input),
      TEST(invalid_arguments_are_refused_with_a_message),
      TEST(keys_hidden_from_all_queries_are_not_read),
      TEST(lengths_of_other_items_change_no_bit),
      cmocka_unit_test(nothing_leaks_when_memory_runs_out),
  };
  return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
