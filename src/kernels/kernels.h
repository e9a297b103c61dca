/* The kernels: the inner loops, in one table for each instruction set; a table is chosen at run time
 * (dispatch.c). The files of scalar/ are their readable specification and the reference of their tests.
 *
 * A kernel takes raw pointers and sizes, allocates nothing, cannot fail, and reads only the elements that it
 * is given. Strides are in elements. Unless stated otherwise, out may equal an input but not overlap one in
 * part.
 *
 * Yield points. Kernels with a pace check it every 20 to 100 µs. When work is due they return false and set
 * *position; called again with the same arguments, position and scratch they continue from there, and the
 * results are bit-identical. *position is 0 for the first call and grows with each one, as a call completes
 * at least one step; after completion it is unspecified. Until completion the output is unspecified. With
 * pace NULL a kernel runs to completion, and position may be NULL as well.
 *
 * Shape legend: b batch, h heads, n tokens, l queries, s keys, d size of a head, dv size of a head's values;
 * for products m rows, n columns, k depth. */
#ifndef HEED_KERNELS_H
#define HEED_KERNELS_H

#include <math.h>

#include "attention_tasks.h"

/** Whether a kernel must return before it is done. */
static inline bool heed__should_yield(const heed__pace *pace) {
  return pace && heed__is_due(pace);
}

/* ---- Elementwise ---- */

/* out[i] = f(x[i]), contiguous: the name, and what the scalar kernel computes from a float x
 * (scalar/scalar.c); relu keeps nan */
#define HEED__UNARY_KERNELS(X)                                                                               \
  X(exp, heed__exp_of(x))                                                                                    \
  X(log, logf(x))                                                                                            \
  X(sqrt, sqrtf(x))                                                                                          \
  X(rsqrt, 1.0f / sqrtf(x))                                                                                  \
  X(abs, fabsf(x))                                                                                           \
  X(neg, -x)                                                                                                 \
  X(sin, sinf(x))                                                                                            \
  X(cos, cosf(x))                                                                                            \
  X(tanh, heed__tanh_of(x))                                                                                  \
  X(sigmoid, 1.0f / (1.0f + heed__exp_of(-x)))                                                               \
  X(relu, x < 0.0f ? 0.0f : x)                                                                               \
  X(gelu, gelu_of(x))                                                                                        \
  X(gelu_tanh, gelu_tanh_of(x))                                                                              \
  X(silu, x / (1.0f + heed__exp_of(-x)))                                                                     \
  X(floor, floorf(x))                                                                                        \
  X(ceil, ceilf(x))                                                                                          \
  X(round, rintf(x))                                                                                         \
  X(trunc, truncf(x))                                                                                        \
  X(sign, (float)((x > 0.0f) - (x < 0.0f)))                                                                  \
  X(square, x *x)                                                                                            \
  X(reciprocal, 1.0f / x)                                                                                    \
  X(exp2, exp2f(x))                                                                                          \
  X(expm1, expm1f(x))                                                                                        \
  X(log2, log2f(x))                                                                                          \
  X(log10, log10f(x))                                                                                        \
  X(log1p, log1pf(x))                                                                                        \
  X(erf, erff(x))

/* out[i] = f(a[i · sa], b[i · sb]), out contiguous; sa and sb are 0 (one value for the whole row), 1 or any
 * other stride */
#define HEED__BINARY_KERNELS(X)                                                                              \
  X(add) X(sub) X(mul) X(div) X(remainder) X(pow) X(maximum) X(minimum) X(floor_divide) X(fmod)
#define HEED__COMPARE_KERNELS(X) X(eq) X(ne) X(lt) X(le) X(gt) X(ge)

/* The gradient of a unary kernel: dx[i] from x[i], its input, and d, the gradient of its output; for sigmoid
 * and tanh x is their output (scalar/backward.c) */
#if HEED_MINIMAL
#define HEED__UNARY_BACKWARD_KERNELS(X)
#else
#define HEED__UNARY_BACKWARD_KERNELS(X)                                                                      \
  X(gelu_backward, d *gelu_slope(x))                                                                         \
  X(gelu_tanh_backward, d *gelu_tanh_slope(x))                                                               \
  X(silu_backward, d *silu_slope(x))                                                                         \
  X(sigmoid_backward, d *(x * (1.0f - x)))                                                                   \
  X(tanh_backward, d *(1.0f - x * x))
#endif

typedef void heed__unary_kernel(float *out, const float *x, size_t n);
typedef void heed__backward_kernel(float *dx, const float *x, const float *dy, size_t n);
typedef void heed__binary_kernel(float *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb,
                                 size_t n);
typedef void heed__compare_kernel(uint8_t *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb,
                                  size_t n);

/* ---- Low-precision products ---- */

/* c [m, n] = x [m, k] · wᵀ (+ bias [n] on each row, or NULL), w [n, k] of a low-precision dtype. The rows of
 * w, x and c have strides, their elements are contiguous. INT8: element p of row j is multiplied by
 * scale[j · scale_row + p / HEED_INT8_BLOCK]. c overlaps no input. */
typedef struct heed__lowp_task {
  size_t m, n, k;
  const float *x;
  const void *w;
  const float *scale;
  heed_dtype dtype; /* of w: BFLOAT16, FLOAT16, INT8, or blocked; then k and w_row are whole blocks */
  ptrdiff_t x_row, w_row, scale_row;
  ptrdiff_t w_column; /* in fewer bits, FLOAT32: 0, or the distance of a row's elements, and w_row is 1 */
  const float *bias;
  float *c;
  ptrdiff_t c_row;
  bool far; /* the whole weight, of which w may be a part, probably does not fit in the second-level cache */
} heed__lowp_task;

/* ---- Products in fewer bits ---- */

/* Rows row…row + rows - 1 and columns column…column + columns - 1 of such a product, whose weight may be
 * float32, too, with x rounded once (reduced_pack) and multiplied by the processor's narrow instructions:
 *   float32, bfloat16, float16   elements of x and w are rounded to bfloat16 (subnormal ones to 0), their
 *                                products are exact, sums are float32
 *   int8                         x is rounded to integers q in blocks of HEED_INT8_BLOCK elements of a row:
 *                                q = round(x · (127 / a)), a = max |x|; 0 where a < 2^-100. The sum of a
 *                                block's products is an exact int32, which is multiplied by a / 127 and then,
 *                                fused with the addition, by the scale of w, block after block
 *   blocked                      as one or the other, which a table decides: widened and rounded to bfloat16,
 *                                or as int8 with a sum for each group of elements that share a scale, after
 *                                which -minimum · (a / 127 · Σ q) is added, fused
 * A row of x with nan or inf in a block gives nan with integers; otherwise they count as in float32. */
typedef struct heed__reduced_task {
  heed__lowp_task whole;
  void *packed;  /* reduced_bytes bytes, aligned to HEED__ALIGNMENT: x as the table's kernels read it */
  void *scratch; /* *scratch_bytes bytes; contents as in heed__attention_task */
  size_t row, rows, column, columns; /* row is a multiple of HEED__REDUCED_ROWS */
  bool integers;                     /* blocked: as int8; the scalar kernel alone reads it */
} heed__reduced_task;
enum { HEED__REDUCED_ROWS = 64 };

/* ---- Small modules ---- */

/* The forward pass of a small attention module on one batch item: x [n, d_in] through W_query, W_key and
 * W_value (row-major [heads · d or kv_heads · d, d_in]), each head's attention, and out_proj ([d_out, heads ·
 * d]), all contiguous. Bit-identical to the kernels gemm and attention one after another. */
typedef struct heed__small_pass {
  const float *x;
  const float *weight[4], *bias[4]; /* query, key, value, out; a bias may be NULL, and weight[3] as well: then
                                       d_out is heads · d */
  int64_t n, d_in, heads, kv_heads, head_size, d_out;
  float scale;
  bool causal;
  float *out; /* [n, d_out]; overlaps no input */
} heed__small_pass;

/* Its limits: for up to TINY_WORK multiply-adds (rows of the whole batch · columns · depth) gemm rounds each
 * product before adding it, in order, so the assignment of elements to lanes changes no bit. */
enum { HEED__TINY_WORK = 512, HEED__TINY_DEPTH = 15 };
/** rows: of the whole batch, more than 1. */
static inline bool heed__is_small_pass(const heed__small_pass *p, int64_t rows) {
  const int64_t wide = p->heads * p->head_size;
  return p->n <= HEED__SMALL_QUERIES && rows > 1 && rows <= HEED__TINY_WORK && p->d_in <= HEED__TINY_DEPTH &&
         wide <= HEED__TINY_DEPTH && p->d_out <= HEED__TINY_WORK &&
         rows * wide * p->d_in <= HEED__TINY_WORK &&
         (!p->weight[3] || rows * p->d_out * wide <= HEED__TINY_WORK);
}

/** What the attention tasks of all its heads share; the kernel adds pointers and strides. */
static inline heed__attention_task heed__small_pass_task(const heed__small_pass *p) {
  return (heed__attention_task){.k_dtype = HEED_FLOAT32,
                                .v_dtype = HEED_FLOAT32,
                                .query_length = p->n,
                                .key_length = p->n,
                                .head_size = p->head_size,
                                .value_size = p->head_size,
                                .last = p->n,
                                .scale = p->scale,
                                .window_begin = -p->n,
                                .window_end = p->causal ? 1 : p->n,
                                .valid_keys = p->n};
}

/* ---- Gradients of the norms ---- */

/* For contiguous rows [rows, n] of x and dy: with g = dy · weight, y = (x - mean) · s and s = 1 / σ, dx =
 * s · (g - mean(g) - y · mean(g · y)), where both means but the last are 0 unless `centred` (layer norm; RMS
 * norm otherwise). Adds dy · y to dweight and dy to dbias, in float32, row after row: sums over many rows are
 * the caller's. dx may be dy or x. */
typedef struct heed__norm_backward_task {
  const float *x, *dy, *weight; /* weight [n], or NULL */
  float *dx;                    /* [rows, n], or NULL */
  float *dweight, *dbias;       /* [n], or NULL */
  size_t rows, n;
  float epsilon;
  bool centred;
} heed__norm_backward_task;

/* ---- Optimisers ---- */

/* A step of an optimiser on n elements of a parameter x with the gradient g, in place. Products, sums,
 * quotients and roots are rounded one by one, in PyTorch's order: bit-identical in every table. `decay` · x
 * is added to the gradient unless it is 0; `maximize` negates the gradient first. The states are written
 * before they are used; of those that an option needs, the pointer is not read without it. */
typedef struct heed__sgd_rule {
  float rate; /* added to x: rate · the update; -lr */
  float decay, momentum;
  float damped; /* 1 - dampening: the gradient's part in the momentum */
  bool maximize, nesterov;
  bool first; /* the momentum becomes the gradient */
} heed__sgd_rule;
typedef struct heed__adam_rule {
  float rate; /* -lr / (1 - beta1^t), t from 1 */
  float decay;
  float shrink;                     /* x · shrink comes first (AdamW: 1 - lr · weight_decay); 1: nothing */
  float beta1, rest1, beta2, rest2; /* rest: 1 - beta */
  float root;                       /* √(1 - beta2^t) */
  float eps;
  bool maximize, amsgrad;
} heed__adam_rule;
typedef struct heed__rmsprop_rule {
  float rate;                              /* -lr */
  float decay, momentum, alpha, rest, eps; /* rest: 1 - alpha */
  bool maximize, centered;
} heed__rmsprop_rule;

/* ---- The other kernels: name, result, parameters ---- */

#define HEED__OTHER_KERNELS(X)                                                                               \
  /* Σ x[i] in PyTorch's order (scalar/rows.c); Σ (x[i] - mean)² */                                       \
  X(sum, float, (const float *x, size_t n))                                                                  \
  X(sum_of_squares, double, (const float *x, double mean, size_t n))                                         \
  /* sum[i] += the sum of a group of `rows` rows, added in order from 0; for each of `groups` groups. Rows   \
     are `step` elements apart, groups follow each other; sum does not overlap x */                          \
  X(sum_across, void, (float *sum, const float *x, ptrdiff_t step, size_t rows, size_t groups, size_t n))    \
  /* the largest of n ≥ 1 elements; nan if one is nan */                                                   \
  X(max, float, (const float *x, size_t n))                                                                  \
  X(softmax, void, (float *out, const float *x, size_t n))                                                   \
  X(log_softmax, void, (float *out, const float *x, size_t n))                                               \
  /* log Σ e^(x - *most), where *most is the largest element: log_softmax is x - *most - the result */      \
  X(log_sum_exp, float, (const float *x, size_t n, float *most))                                             \
  /* weight and bias may be NULL */                                                                          \
  X(layer_norm, void,                                                                                        \
    (float *out, const float *x, const float *weight, const float *bias, float epsilon, size_t n))           \
  X(rms_norm, void, (float *out, const float *x, const float *weight, float epsilon, size_t n))              \
  X(dot, float, (const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n))                      \
  /* c [m, n] = a [m, k] · b [k, n] (+ bias [n] on each row, or NULL); any strides, but the columns of c    \
     are contiguous; c overlaps no input. With scratch (gemm_scratch floats, aligned to HEED__ALIGNMENT) an  \
     element depends on its row of a and column of b alone, not on m and n; scratch may be NULL, and         \
     gemm_scratch is 0 for sizes at which it is not faster */                                                \
  X(gemm, bool,                                                                                              \
    (size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, ptrdiff_t a_column, const float *b,      \
     ptrdiff_t b_row, ptrdiff_t b_column, const float *bias, float *c, ptrdiff_t c_row, float *scratch,      \
     const heed__pace *pace, int64_t *position))                                                             \
  X(gemm_scratch, size_t, (size_t m, size_t n, size_t k))                                                    \
  /* sums in float32; for few rows of x, a row's result does not depend on the number of rows */             \
  X(lowp, bool, (const heed__lowp_task *task, const heed__pace *pace, int64_t *position))                    \
  /* reduced_bytes is 0 if the table has no instructions for the product, or if they are not faster;         \
     reduced_pack rounds the task's rows of x, whatever its columns; rows are a multiple of 16 unless they   \
     are the last */                                                                                         \
  X(reduced_bytes, size_t, (const heed__lowp_task *whole, size_t *scratch_bytes))                            \
  X(reduced_pack, void, (const heed__reduced_task *task))                                                    \
  X(reduced, bool, (const heed__reduced_task *task, const heed__pace *pace, int64_t *position))              \
  /* out[i] = x[i] as another dtype, contiguous, apart: float32, bfloat16, float16, int8; blocked in x */    \
  X(convert, void, (heed_dtype to, void *out, heed_dtype from, const void *x, size_t n))                     \
  /* a heed__normal_transform, bit-identical in every table */                                               \
  X(normal, void, (float *x, size_t n, float std, float mean))                                               \
  /* out[i] = mean + std · √(-2 ln u[i]) sin v[i], u in (0, 1], v in [0, 2π], bit-identical in every     \
     table; out may be u */                                                                                  \
  X(normal_sine, void, (float *out, const float *u, const float *v, size_t n, float std, float mean))        \
  /* a heed__philox_kernel */                                                                                \
  X(philox, void, (uint32_t * out, const uint32_t *key, uint64_t block, uint64_t thread, size_t n))          \
  /* out [columns, rows] = x [rows, columns] transposed, the columns of both contiguous; elements of 4       \
     bytes; out does not overlap x */                                                                        \
  X(transpose, void,                                                                                         \
    (float *out, ptrdiff_t out_row, const float *x, ptrdiff_t x_row, size_t rows, size_t columns))           \
  /* A row's result does not depend on the other rows of the task. Only the scalar kernel writes all maps    \
     and accepts out NULL; the others write weights. attention_scratch: bytes for rows first…last-1 */     \
  X(attention, bool, (const heed__attention_task *task, const heed__pace *pace, int64_t *position))          \
  X(decode, bool, (const heed__decode_task *task, const heed__pace *pace, int64_t *position))                \
  X(attention_scratch, size_t, (const heed__attention_task *task))                                           \
  /* attention with q, k, v and the weights rounded to bfloat16 and scores, sums and softmax in float32;     \
     int8 elements are not rounded, and their factors are applied to scores and weights. A row's result does \
     not depend on the other rows. Scratch in bytes; 0: the table has no instructions for the task, or it    \
     has masks other than the window, results other than out, or strided columns */                          \
  X(reduced_attention, bool, (const heed__attention_task *task, const heed__pace *pace, int64_t *position))  \
  X(reduced_attention_scratch, size_t, (const heed__attention_task *task))                                   \
  X(linear_attention, bool,                                                                                  \
    (const heed__linear_attention_task *task, const heed__pace *pace, int64_t *position))                    \
  X(linear_attention_scratch, size_t, (const heed__linear_attention_task *task))                             \
  X(causal_conv, void, (const heed__causal_conv_task *task))                                                 \
  X(small_pass, void, (const heed__small_pass *pass))

#if HEED_MINIMAL
#define HEED__TRAINING_KERNELS(X)
#else
#define HEED__TRAINING_KERNELS(X)                                                                            \
  /* out = scale · e^(x - most - log_total) */                                                              \
  X(softmax_scaled, void, (float *out, const float *x, float most, float log_total, float scale, size_t n))  \
  /* dx = y (dy - Σ y dy), and dy - e^y Σ dy, y being the results of softmax and log_softmax */            \
  X(softmax_backward, void, (float *dx, const float *y, const float *dy, size_t n))                          \
  X(log_softmax_backward, void, (float *dx, const float *y, const float *dy, size_t n))                      \
  X(norm_backward, void, (const heed__norm_backward_task *task))                                             \
  X(attention_backward, bool,                                                                                \
    (const heed__attention_backward_task *task, const heed__pace *pace, int64_t *position))                  \
  X(attention_backward_scratch, size_t, (const heed__attention_backward_task *task))                         \
  X(linear_attention_backward, bool,                                                                         \
    (const heed__linear_attention_backward_task *task, const heed__pace *pace, int64_t *position))           \
  X(linear_attention_backward_scratch, size_t, (const heed__linear_attention_backward_task *task))           \
  /* momentum: with rule->momentum; m, v: the averages of the gradient and its square, highest: with         \
     rule->amsgrad; square: the average of the square, mean: with rule->centered. None overlaps another */   \
  X(sgd_step, void, (float *x, const float *g, float *momentum, size_t n, const heed__sgd_rule *rule))       \
  X(adam_step, void,                                                                                         \
    (float *x, const float *g, float *m, float *v, float *highest, size_t n, const heed__adam_rule *rule))   \
  X(rmsprop_step, void,                                                                                      \
    (float *x, const float *g, float *square, float *mean, float *momentum, size_t n,                        \
     const heed__rmsprop_rule *rule))
#endif

/* ---- Tables ---- */

typedef struct heed__kernels {
  const char *name; /* "scalar" */
#define X(name, value) heed__unary_kernel *name;
  HEED__UNARY_KERNELS(X)
#undef X
#define X(name, value) heed__backward_kernel *name;
  HEED__UNARY_BACKWARD_KERNELS(X)
#undef X
#define X(name) heed__binary_kernel *name;
  HEED__BINARY_KERNELS(X)
#undef X
#define X(name) heed__compare_kernel *name;
  HEED__COMPARE_KERNELS(X)
#undef X
#define X(name, result, parameters) result(*name) parameters;
  HEED__OTHER_KERNELS(X)
  HEED__TRAINING_KERNELS(X)
#undef X
} heed__kernels;

#define X(name) extern const heed__kernels heed__kernels_##name;
HEED__CPU_LIST(X)
#undef X

/** The table of an instruction set. */
const heed__kernels *heed__kernels_for(heed__cpu cpu);

/* A table's functions are called KERNEL(name), which a file defines before it uses these macros:
 * HEED__DECLARE_KERNELS declares them, HEED__TABLE_KERNELS initialises the fields of a heed__kernels with
 * them. */
#define HEED__DECLARE_UNARY(name, value)              heed__unary_kernel KERNEL(name);
#define HEED__DECLARE_BACKWARD(name, value)           heed__backward_kernel KERNEL(name);
#define HEED__DECLARE_BINARY(name)                    heed__binary_kernel KERNEL(name);
#define HEED__DECLARE_COMPARE(name)                   heed__compare_kernel KERNEL(name);
#define HEED__DECLARE_OTHER(name, result, parameters) result KERNEL(name) parameters;
#define HEED__DECLARE_KERNELS                                                                                \
  HEED__UNARY_KERNELS(HEED__DECLARE_UNARY)                                                                   \
  HEED__UNARY_BACKWARD_KERNELS(HEED__DECLARE_BACKWARD)                                                       \
  HEED__BINARY_KERNELS(HEED__DECLARE_BINARY)                                                                 \
  HEED__COMPARE_KERNELS(HEED__DECLARE_COMPARE)                                                               \
  HEED__OTHER_KERNELS(HEED__DECLARE_OTHER) HEED__TRAINING_KERNELS(HEED__DECLARE_OTHER)

#define HEED__TABLE_FIELD(name, ...)                .name = KERNEL(name),
#define HEED__TABLE_OTHER(name, result, parameters) .name = KERNEL(name),
#define HEED__TABLE_KERNELS                                                                                  \
  HEED__UNARY_KERNELS(HEED__TABLE_FIELD)                                                                     \
  HEED__UNARY_BACKWARD_KERNELS(HEED__TABLE_FIELD)                                                            \
  HEED__BINARY_KERNELS(HEED__TABLE_FIELD)                                                                    \
  HEED__COMPARE_KERNELS(HEED__TABLE_FIELD)                                                                   \
  HEED__OTHER_KERNELS(HEED__TABLE_OTHER) HEED__TRAINING_KERNELS(HEED__TABLE_OTHER)

/* A table that inherits the kernels of a base table, which KERNEL names, and overrides some. For example,
 * with a function lowp_bf16: HEED__DECLARE_BASE HEED__INHERITING_TABLE(heed__kernels_avx512_bf16,
 * "avx512_bf16", .lowp = lowp_bf16) In heed.c the base's kernels stand above, and gcc refuses to declare them
 * again for other instructions. */
#if defined(HEED__ONE_FILE)
#define HEED__DECLARE_BASE
#else
#define HEED__DECLARE_BASE HEED__DECLARE_KERNELS
#endif
#define HEED__INHERITING_TABLE(table, text, ...)                                                             \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Woverride-init\"")                       \
      const heed__kernels table = {.name = (text), HEED__TABLE_KERNELS __VA_ARGS__};                         \
  _Pragma("GCC diagnostic pop")

#endif
