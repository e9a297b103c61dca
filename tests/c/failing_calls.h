/* Calls of every public function that allocates, on the arguments of failing_fixture.h: for tests in which
 * they fail one allocation, or one check for cancellation, after the other. */
#ifndef HEED_TEST_FAILING_CALLS_H
#define HEED_TEST_FAILING_CALLS_H

#include "failing_fixture.h"

/* ---- The calls ---- */

/* A call stores its results in out[0], out[1]…; the others stay NULL. */
#define RESULTS 13
#define OUT     &out[0]
#define PAIR    ((const heed_tensor *const[]){f->indices, f->indices})
#define MASK    ((const heed_tensor *const[]){f->mask})
#define STACK   ((const heed_tensor *const[]){f->square, f->flipped})
#define TALL    ((const heed_tensor *const[]){f->tall, f->tall})

/* These accept an existing tensor in *out. */
#define BINARY(X) HEED_BINARY_LIST(X) HEED_COMPARE_LIST(X) HEED_LOGICAL_LIST(X)
#define CALLS(X)                                                                                             \
  X(full, heed_full(F, HEED_FLOAT32, 2, SHAPE(SIDE, SIDE), heed_number(2), OUT))                             \
  X(eye, heed_eye(F, HEED_FLOAT32, SIDE, SIDE, OUT))                                                         \
  X(range, heed_range(F, HEED_INT64, heed_integer(1), heed_integer(9), heed_integer(2), OUT))                \
  X(arange, heed_arange(F, HEED_INT64, heed_integer(1), heed_integer(9), heed_integer(2), OUT))              \
  X(linspace, heed_linspace(F, HEED_FLOAT32, 0, 1, 9, OUT))                                                  \
  X(uniform, heed_uniform(F, NULL, -1, 2, 2, SHAPE(SIDE, SIDE), OUT))                                        \
  X(normal, heed_normal(F, NULL, 1, 2, 2, SHAPE(SIDE, SIDE), OUT))                                           \
  X(randint, heed_randint(F, NULL, 1, 6, 1, SHAPE(9), OUT))                                                  \
  X(randperm, heed_randperm(F, NULL, 9, OUT))                                                                \
  X(bernoulli, heed_bernoulli(F, NULL, f->flipped, OUT))                                                     \
  X(dropout, heed_dropout(F, NULL, 0.5, f->flipped, OUT))                                                    \
  X(clone, heed_clone(F, f->flipped, OUT))                                                                   \
  X(contiguous, heed_contiguous(F, f->flipped, OUT))                                                         \
  X(flip, heed_flip(F, f->flipped, 1, (const int[]){2}, OUT))                                                \
  X(to, heed_to(F, f->whole, HEED_FLOAT32, OUT))                                                             \
  X(to_bool, heed_to(F, f->flipped, HEED_BOOL, OUT))                                                         \
  X(cross_entropy, heed_cross_entropy(F, f->flipped, f->indices, NULL, OUT))                                 \
  X(linear_cross_entropy,                                                                                    \
    heed_linear_cross_entropy(F, f->flipped, f->square, f->row, f->indices, NULL, OUT))                      \
  X(gelu, heed_gelu(F, f->flipped, OUT))                                                                     \
  X(gelu_tanh, heed_gelu_tanh(F, f->flipped, OUT))                                                           \
  X(logical_not, heed_logical_not(F, f->flipped, OUT))                                                       \
  X(exp_of_whole, heed_exp(F, f->whole, OUT))                                                                \
  X(add_mixed, heed_add(F, f->whole, f->flipped, OUT))                                                       \
  X(trunc_divide, heed_trunc_divide(F, f->flipped, f->thin, OUT))                                            \
  X(trunc_divide_whole, heed_trunc_divide(F, f->whole, f->flipped, OUT))                                     \
  X(add_scaled, heed_add_scaled(F, f->flipped, f->thin, heed_number(2), OUT))                                \
  X(addcmul, heed_addcmul(F, f->flipped, f->thin, f->row, heed_number(2), OUT))                              \
  X(addcdiv, heed_addcdiv(F, f->flipped, f->thin, f->row, 2, OUT))                                           \
  X(lerp, heed_lerp(F, f->flipped, f->thin, f->row, OUT))                                                    \
  X(nan_to_num, heed_nan_to_num(F, f->flipped, 0, 1, -1, OUT))                                               \
  X(isclose, heed_isclose(F, f->flipped, f->thin, 1e-5, 1e-8, false, OUT))                                   \
  X(clamp, heed_clamp(F, f->flipped, f->row, f->row, OUT))                                                   \
  X(where, heed_where(F, f->mask, f->flipped, f->whole, OUT))                                                \
  X(masked_fill, heed_masked_fill(F, f->flipped, f->mask, heed_number(2), OUT))                              \
  X(tril, heed_tril(F, f->flipped, 0, OUT))                                                                  \
  X(triu, heed_triu(F, f->flipped, 1, OUT))                                                                  \
  X(sum, heed_sum(F, f->flipped, 1, (const int[]){1}, true, OUT))                                            \
  X(mean, heed_mean(F, f->flipped, 0, NULL, false, OUT))                                                     \
  X(var, heed_var(F, f->flipped, 1, (const int[]){2}, 1, false, OUT))                                        \
  X(std, heed_std(F, f->flipped, 1, (const int[]){2}, 1, false, OUT))                                        \
  X(any, heed_any(F, f->mask, 1, (const int[]){2}, false, OUT))                                              \
  X(all, heed_all(F, f->whole, 1, (const int[]){2}, false, OUT))                                             \
  X(prod, heed_prod(F, f->flipped, 1, (const int[]){1}, true, OUT))                                          \
  X(prod_whole, heed_prod(F, f->whole, 0, NULL, false, OUT))                                                 \
  X(norm, heed_norm(F, f->flipped, 3, 1, (const int[]){2}, false, OUT))                                      \
  X(amax, heed_amax(F, f->flipped, 1, (const int[]){2}, false, OUT))                                         \
  X(amin, heed_amin(F, f->flipped, 0, NULL, false, OUT))                                                     \
  X(max, heed_max(F, f->flipped, 1, false, OUT, &out[1]))                                                    \
  X(max_alone, heed_max(F, f->flipped, 1, false, OUT, NULL))                                                 \
  X(min, heed_min(F, f->flipped, 0, false, OUT, &out[1]))                                                    \
  X(softmax, heed_softmax(F, f->flipped, 1, OUT))                                                            \
  X(softmax_of_long_rows, heed_softmax(F, f->tall, 1, OUT))                                                  \
  X(log_softmax, heed_log_softmax(F, f->flipped, -1, OUT))                                                   \
  X(cumprod, heed_cumprod(F, f->flipped, 1, OUT))                                                            \
  X(cumsum, heed_cumsum(F, f->flipped, 1, OUT))                                                              \
  X(layer_norm, heed_layer_norm(F, f->flipped, f->row, f->row, 1e-5, OUT))                                   \
  X(rms_norm, heed_rms_norm(F, f->flipped, f->row, 1e-5, OUT))                                               \
  X(sort, heed_sort(F, f->flipped, 1, true, OUT, &out[1]))                                                   \
  X(sort_of_long_rows, heed_sort(F, f->tall, 1, false, OUT, &out[1]))                                        \
  X(sort_alone, heed_sort(F, f->flipped, 1, false, OUT, NULL))                                               \
  X(topk, heed_topk(F, f->flipped, 3, 1, true, OUT, &out[1]))                                                \
  X(index_select, heed_index_select(F, f->flipped, 1, f->indices, OUT))                                      \
  X(gather, heed_gather(F, f->flipped, 1, f->whole, OUT))                                                    \
  X(masked_select, heed_masked_select(F, f->flipped, f->mask, OUT))                                          \
  X(nonzero, heed_nonzero(F, f->flipped, OUT))                                                               \
  X(index, heed_index(F, f->flipped, 2, PAIR, OUT))                                                          \
  X(searchsorted, heed_searchsorted(F, f->row, f->flipped, true, OUT))                                       \
  X(index_by_mask, heed_index(F, f->flipped, 1, MASK, OUT))                                                  \
  X(multinomial, heed_multinomial(F, NULL, f->scale, 1, false, OUT))                                         \
  X(multinomial_repeated, heed_multinomial(F, NULL, f->scale, 3, true, OUT))                                 \
  X(repeat_interleave, heed_repeat_interleave(F, f->flipped, 2, 0, OUT))                                     \
  X(repeat_interleave_each, heed_repeat_interleave_each(F, f->flipped, f->indices, 1, OUT))                  \
  X(cat, heed_cat(F, 2, STACK, 1, OUT))                                                                      \
  X(stack, heed_stack(F, 2, STACK, 2, OUT))                                                                  \
  X(matmul, heed_matmul(F, f->flipped, f->square, OUT))                                                      \
  X(matmul_mixed, heed_matmul(F, f->whole, f->thin, OUT))                                                    \
  X(matmul_of_batches, heed_matmul(F, f->batch, f->flipped, OUT))                                            \
  X(dot, heed_dot(F, f->row, f->row, OUT))                                                                   \
  X(linear_int8, heed_linear_int8(F, f->flipped, f->weight, f->scale, f->row, OUT))                          \
  X(dequantize_int8, heed_dequantize_int8(F, f->weight, f->scale, OUT))                                      \
  X(embedding, heed_embedding(F, f->indices, f->flipped, OUT))                                               \
  X(rope, heed_rope(F, f->flipped, NULL, NULL, OUT))                                                         \
  X(alibi_slopes, heed_alibi_slopes(F, 6, OUT))                                                              \
  X(linear, heed_linear(F, f->thin, f->flipped, f->row, OUT))                                                \
  X(linear_in_bfloat16, linear_in_bfloat16(f, OUT))                                                          \
  X(scaled_dot_product_attention,                                                                            \
    heed_scaled_dot_product_attention(                                                                       \
        F, f->flipped, f->square, f->square,                                                                 \
        &(const heed_attention_options){                                                                     \
            .size = sizeof(heed_attention_options), .attn_mask = f->mask, .dropout_p = 0.5},                 \
        OUT, NULL))                                                                                          \
  X(linear_attention,                                                                                        \
    heed_linear_attention(F, f->heads, f->heads, f->heads,                                                   \
                          &(const heed_linear_attention_options){                                            \
                              .size = sizeof(heed_linear_attention_options), .decay = f->rates},             \
                          OUT, &out[1]))                                                                     \
  X(linear_attention_alone, heed_linear_attention(F, f->heads, f->heads, f->heads, NULL, OUT, NULL))         \
  X(causal_conv, heed_causal_conv(F, f->batch, f->square, NULL, OUT, &out[1]))                               \
  X(causal_conv_alone, heed_causal_conv(F, f->batch, f->flipped, NULL, OUT, NULL))                           \
  X(attention_of_many_keys,                                                                                  \
    heed_scaled_dot_product_attention(                                                                       \
        F, f->queries, f->queries, f->queries,                                                               \
        &(const heed_attention_options){.size = sizeof(heed_attention_options), .attn_mask = f->bools}, OUT, \
        NULL))                                                                                               \
  X(attention_partial,                                                                                       \
    heed_attention_partial(F, f->flipped, f->square, f->square,                                              \
                           &(const heed_attention_options){.size = sizeof(heed_attention_options),           \
                                                           .attn_mask = f->mask,                             \
                                                           .dropout_p = 0.5},                                \
                           -2, OUT, &out[1]))                                                                \
  X(partial_of_many_keys,                                                                                    \
    heed_attention_partial(F, f->queries, f->queries, f->queries, NULL, 0, OUT, &out[1]))                    \
  X(attention_merge, heed_attention_merge(F, 2, TALL, TALL, OUT, &out[1]))                                   \
  X(varlen_attention,                                                                                        \
    heed_varlen_attention(F, f->rows, f->rows, f->rows, f->lengths, NULL, NULL, OUT, NULL))                  \
  X(pack, heed_pack(F, f->batch, f->lengths, OUT))                                                           \
  X(unpack, heed_unpack(F, f->flipped, f->lengths, 6, OUT))                                                  \
  X(packed_forward, heed_module_forward(f->multi, f->flipped,                                                \
                                        &(const heed_forward_options){.size = sizeof(heed_forward_options),  \
                                                                      .lengths = f->lengths},                \
                                        OUT, NULL))                                                          \
  X(linear_forward, heed_module_forward(f->linear, f->flipped, NULL, OUT, NULL))                             \
  X(dropout_forward, heed_module_forward(f->dropout, f->flipped, NULL, OUT, NULL))                           \
  X(self_forward, heed_module_forward(f->self, f->flipped, NULL, OUT, NULL))                                 \
  X(causal_forward, heed_module_forward(f->causal, f->flipped, NULL, OUT, NULL))                             \
  X(columns_forward, heed_module_forward(f->columns, f->flipped, NULL, OUT, NULL))                           \
  X(wrapper_forward, heed_module_forward(f->wrapper, f->batch, NULL, OUT, NULL))                             \
  X(multi_forward, heed_module_forward(f->multi, f->batch, NULL, OUT, NULL))                                 \
  X(self_taps, forward(f->self, f->flipped, out))                                                            \
  X(causal_taps, forward(f->causal, f->batch, out))                                                          \
  X(columns_taps, forward(f->columns, f->batch, out))                                                        \
  X(wrapper_taps, forward(f->wrapper, f->batch, out))                                                        \
  X(multi_taps, forward(f->multi, f->flipped, out))

/* These require *out to be NULL. */
#define VIEWS(X)                                                                                             \
  X(tensor_new, heed_tensor_new(F, HEED_BOOL, 2, SHAPE(3, 4), OUT))                                          \
  X(quantize_int8, heed_quantize_int8(F, f->square, OUT, &out[1]))                                           \
  X(from_memory, heed_tensor_from_memory(F, HEED_FLOAT32, 1, SHAPE(2), host_memory, NULL, NULL, OUT))        \
  X(alias, heed_tensor_alias(F, f->square, OUT))                                                             \
  X(view, heed_view(F, f->square, 1, SHAPE(-1), OUT))                                                        \
  X(reshape, heed_reshape(F, f->flipped, 1, SHAPE(-1), OUT))                                                 \
  X(flatten, heed_flatten(F, f->flipped, 1, -1, OUT))                                                        \
  X(transpose, heed_transpose(F, f->square, 1, 2, OUT))                                                      \
  X(permute, heed_permute(F, f->batch, 3, (const int[]){3, 1, 2}, OUT))                                      \
  X(unsqueeze, heed_unsqueeze(F, f->square, 1, OUT))                                                         \
  X(squeeze, heed_squeeze(F, f->queries, 0, NULL, OUT))                                                      \
  X(expand, heed_expand(F, f->row, 2, SHAPE(3, SIDE), OUT))                                                  \
  X(select, heed_select(F, f->square, 1, 2, OUT))                                                            \
  X(narrow, heed_narrow(F, f->square, 1, 2, 3, OUT))                                                         \
  X(slice, heed_slice(F, f->square, 1, 2, 6, 2, OUT))                                                        \
  X(diagonal, heed_diagonal(F, f->square, 1, 1, 2, OUT))                                                     \
  X(unfold, heed_unfold(F, f->square, 1, 3, 2, OUT))                                                         \
  X(head, heed_module_head(f->multi, 2, OUT, &out[1], &out[2]))

static float host_memory[2];

/* A forward pass; the results after the first are its taps. */
static heed_status forward(heed_module *m, const heed_tensor *x, heed_tensor **out) {
  heed_attention_taps found = {.size = sizeof found};
  heed_status status = heed_module_forward(m, x, NULL, out, &found);
  int next = 1;
#define X(name) out[next++] = found.name;
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
  return status;
}

/* A product that packs its operands, where the processor has the instructions. */
static heed_status linear_in_bfloat16(fixture *f, heed_tensor **out) {
  heed_tensor *x = NULL;
  heed_status status = heed_view(F, f->tall, 2, SHAPE(22, 100), &x);
  if (status) return status;
  assert_ok(heed_set_matmul_precision(F, HEED_PRECISION_MEDIUM));
  status = heed_linear(F, x, x, NULL, out);
  assert_ok(heed_set_matmul_precision(F, HEED_PRECISION_HIGHEST));
  heed_tensor_free(x);
  return status;
}

typedef heed_status call(fixture *f, heed_tensor **out);

#define X(name, expression)                                                                                  \
  static heed_status call_##name(fixture *f, heed_tensor **out) {                                            \
    return expression;                                                                                       \
  }
CALLS(X)
VIEWS(X)
#undef X
#define X(name)                                                                                              \
  static heed_status call_##name(fixture *f, heed_tensor **out) {                                            \
    return heed_##name(F, f->flipped, OUT);                                                                  \
  }
HEED_UNARY_LIST(X)
HEED_TEST_LIST(X)
#undef X
#define X(name)                                                                                              \
  static heed_status call_##name(fixture *f, heed_tensor **out) {                                            \
    return heed_##name(F, f->flipped, f->thin, OUT);                                                         \
  }
BINARY(X)
#undef X

static heed_status call_copy(fixture *f, heed_tensor **out) {
  (void)out;
  return heed_copy(F, f->square, f->flipped);
}
static heed_status call_fill(fixture *f, heed_tensor **out) {
  (void)out;
  return heed_fill(F, f->square, heed_number(1));
}
static heed_status call_equal(fixture *f, heed_tensor **out) {
  bool same;
  (void)out;
  return heed_equal(F, f->square, f->whole, &same);
}
static heed_status call_allclose(fixture *f, heed_tensor **out) {
  bool close;
  (void)out;
  return heed_allclose(F, f->square, f->thin, 1e-5, 1e-8, false, &close);
}
static heed_status call_masked_assign(fixture *f, heed_tensor **out) {
  heed__number no;
  (void)out;
  return heed_masked_assign(F, f->mask, f->mask, heed__number_tensor(&no, heed_boolean(false)));
}
static heed_status call_index_put(fixture *f, heed_tensor **out) {
  (void)out;
  return heed_index_put(F, f->square, 2, PAIR, f->row, true);
}
static heed_status call_scatter(fixture *f, heed_tensor **out) {
  (void)out;
  return heed_scatter(F, f->square, 1, f->whole, f->flipped, HEED_SCATTER_ADD);
}
static heed_status call_index_add(fixture *f, heed_tensor **out) {
  (void)out;
  return heed_index_add(F, f->square, 1, f->indices, f->flipped, heed_number(2));
}
static heed_status call_index_copy(fixture *f, heed_tensor **out) {
  (void)out;
  return heed_index_copy(F, f->square, 1, f->indices, f->square);
}
static heed_status call_index_fill(fixture *f, heed_tensor **out) {
  (void)out;
  return heed_index_fill(F, f->square, 1, f->indices, heed_number(2));
}
static heed_status call_set_parameter(fixture *f, heed_tensor **out) {
  (void)out;
  return heed_module_set_parameter(f->linear, "weight", f->square);
}

typedef struct scenario {
  const char *name;
  call *run;
} scenario;

#define X(name, ...) {#name, call_##name},
static const scenario calls[] = {CALLS(X) HEED_UNARY_LIST(X) HEED_TEST_LIST(X) BINARY(X)};
static const scenario others[] = {VIEWS(X) X(copy) X(fill) X(equal) X(allclose) X(masked_assign) X(index_put)
                                      X(scatter) X(index_add) X(index_copy) X(index_fill) X(set_parameter)};
#undef X
#define CALLS_COUNT  (sizeof calls / sizeof *calls)
#define OTHERS_COUNT (sizeof others / sizeof *others)

/* ---- Cancelling in turn ---- */

/* Cancels a context at its check for cancellation number `cancel_at`, counted from 1. */
typedef struct check_counter {
  heed_context *ctx;
  int64_t checks, cancel_at;
} check_counter;

static inline void count_check(void *user) {
  check_counter *counter = user;
  if (++counter->checks == counter->cancel_at) heed_cancel(counter->ctx);
}

/* A way in which a call fails at the n-th opportunity. */
typedef enum failure { NO_MEMORY, CANCELLED, FAILURES } failure;

static inline void begin_failing(fixture *f, check_counter *counter, failure how, int64_t n) {
  *counter = (check_counter){.ctx = f->ctx, .cancel_at = n};
  f->memory.calls = 0;
  if (how == NO_MEMORY) f->memory.fail_at = n;
  if (how == CANCELLED) assert_ok(heed_set_poll(f->ctx, 0, count_check, counter));
}

static inline void end_failing(fixture *f) {
  f->memory.fail_at = 0;
  assert_ok(heed_set_poll(f->ctx, 0, NULL, NULL));
  heed_clear_cancel(f->ctx);
}

static inline heed_status status_of(failure how) {
  return how == NO_MEMORY ? HEED_MEMORY : HEED_CANCELLED;
}

#endif
