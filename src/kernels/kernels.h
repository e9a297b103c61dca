/* The door of kernels: the inner loops, one table for each instruction set, chosen at run time (dispatch.c).
 *
 * A kernel takes raw pointers and sizes, allocates nothing, cannot fail, and reads no element that it was not
 * given. The files of scalar/ are the readable specification of all of them and the oracle of their tests.
 * Strides are in elements. Unless said otherwise out may be the same place as an input, or share none with
 * it.
 *
 * Kernels with a pace look at it every 20 to 100 µs. Where work is due they leave off and return false;
 * *position then says where. Called again with the same arguments, position and scratch they go on from
 * there, to the same bits. They do one piece at the least, and *position grows with each. It is 0 for the
 * beginning, and of no meaning after the end. With pace NULL they never leave, and position may be NULL, too.
 * What they write to is neither old nor new until they are done. */
#ifndef HEED_KERNELS_H
#define HEED_KERNELS_H

#include "../core/core.h"

/* out[i] = f(x[i]), rows without gaps */
#define HEED__UNARY_KERNELS(X)                                                                               \
  X(exp)                                                                                                     \
  X(log) X(sqrt) X(rsqrt) X(abs) X(neg) X(sin) X(cos) X(tanh) X(sigmoid) X(relu) X(gelu) X(gelu_tanh) X(silu)

/* out[i] = f(a[i · sa], b[i · sb]), out without gaps; sa, sb are 0 (one value for the row), 1 or any other
 * stride */
#define HEED__BINARY_KERNELS(X)  X(add) X(sub) X(mul) X(div) X(remainder) X(pow) X(maximum) X(minimum)
#define HEED__COMPARE_KERNELS(X) X(eq) X(ne) X(lt) X(le) X(gt) X(ge)

static inline bool heed__leaves(const heed__pace *pace) {
  return pace && heed__is_due(pace);
}

typedef void heed__unary_kernel(float *out, const float *x, size_t n);
typedef void heed__binary_kernel(float *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb,
                                 size_t n);
typedef void heed__compare_kernel(uint8_t *out, const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb,
                                  size_t n);

/* One head of one batch item: out = softmax(biased scores) v for rows first…last-1 of l, counted from 0.
 * q [l, d], k [s, d], v [s, dv], out [l, dv], each with the stride of its rows and of its columns. A score is
 * scale · q·k, capped, plus the bias, minus the slope's part; where it is hidden, -inf. */
typedef struct heed__attention_task {
  const float *q;
  const void *k, *v;              /* elements of k_dtype and v_dtype: float32, bfloat16, float16 or int8 */
  const float *k_scale, *v_scale; /* int8: what the elements of a row are multiplied by, [s]; else NULL */
  float *out;
  heed_dtype k_dtype, v_dtype;
  ptrdiff_t q_row, q_column, k_row, k_column, v_row, v_column, out_row, out_column;
  ptrdiff_t k_scale_row, v_scale_row;
  int64_t query_length, key_length, head_size, value_size; /* l, s, d, dv */
  int64_t first, last;                                     /* the rows to do */
  float scale;
  float softcap; /* c: scores become c · tanh(score / c); 0: none */
  /* By its position row i sees keys i + window_begin … i + window_end - 1 of the first valid_keys ones; both
   * bounds are from -l to s, -l and s where there is none. */
  int64_t window_begin, window_end, valid_keys;
  float slope; /* slope · |i + offset - j| is taken off of the scores; 0: none */
  int64_t offset;
  bool has_sink; /* the sink takes part in the maximum and in the sum, and gives no value */
  float sink;
  const uint8_t *visible; /* 1: takes part; [l, s] with these strides; NULL: all do */
  ptrdiff_t visible_row, visible_column;
  const uint8_t *padding; /* 1: nobody sees this key; [s]; NULL: none */
  ptrdiff_t padding_stride;
  const float *bias; /* added to the capped scores, -inf hides; [l, s] with these strides; NULL: none */
  ptrdiff_t bias_row, bias_column;
  const float *dropout_mask; /* factors of the weights of rows first…last-1, row-major [last - first, s];
                                NULL: none */
  void *scratch; /* attention_scratch bytes aligned to HEED__ALIGNMENT, no contents but while it is left */
  /* Row-major [l, s], written where not NULL: q·k with hidden places -inf, after softmax, after dropout; and
   * the scores of all places scaled, capped, and biased with hidden places -inf */
  float *scores, *weights, *dropped_weights, *logits, *capped_logits, *biased_logits;
} heed__attention_task;

/** The keys *first … *last - 1 that row i sees by its place; *first is at most *last. */
static inline void heed__attention_window(const heed__attention_task *t, int64_t i, int64_t *first,
                                          int64_t *last) {
  const int64_t from = i + t->window_begin, to = i + t->window_end;
  *last = to > t->valid_keys ? t->valid_keys : to > 0 ? to : 0;
  *first = from < 0 ? 0 : from < *last ? from : *last;
}

/* Tasks with so few queries and keys, and so small heads, take no scratch from the vector kernels
 * (vector/small.h). */
enum { HEED__SMALL_QUERIES = 16, HEED__SMALL_KEYS = 32, HEED__SMALL_HEAD = 64 };
static inline bool heed__attention_is_small(const heed__attention_task *t) {
  return t->query_length <= HEED__SMALL_QUERIES && t->key_length <= HEED__SMALL_KEYS &&
         t->head_size <= HEED__SMALL_HEAD && t->value_size <= HEED__SMALL_HEAD;
}

/* A few query rows on keys first…last-1 of one batch item (none if first is not below last): softmax(biased
 * scores) v in parts, which are put together from the ranges of keys. The columns of q, k and v lie without
 * gaps; elements, scores and masks as above. Rows of the same key head follow each other; of several heads
 * each has as many rows. */
#define HEED__DECODE_ROWS  16
#define HEED__DECODE_BLOCK 1024 /* keys, at the most */
#define HEED__DECODE_SPARE 32   /* keys that the last block may have more, and what fills registers up */
typedef struct heed__decode_row {
  const float *q;                 /* [d] */
  ptrdiff_t k, v;                 /* how far its head's keys and values are from those of the task */
  const float *k_scale, *v_scale; /* of its head, key 0 */
  int64_t first, last;            /* sees keys first…last-1 of s */
  const uint8_t *visible;         /* [s]; NULL: all */
  const float *bias;              /* [s]; NULL: none */
  float slope;                    /* slope · |position - j| is taken off of the scores; 0: none */
  int64_t position;
} heed__decode_row;
typedef struct heed__decode_task {
  const void *k, *v; /* of key 0 */
  heed_dtype k_dtype, v_dtype;
  ptrdiff_t k_row, v_row, k_scale_row, v_scale_row, visible_column, bias_column, padding_stride;
  const uint8_t *padding;
  int64_t head_size, value_size, first, last; /* d, dv */
  float scale, softcap;
  int rows;      /* 1…HEED__DECODE_ROWS */
  int block;     /* keys that are gone through at once, 1…HEED__DECODE_BLOCK */
  float *scores; /* room for rows · (block + HEED__DECODE_SPARE) of them */
  heed__decode_row row[HEED__DECODE_ROWS];
  /* Of each row: the largest score that it sees (-FLT_MAX if it sees none or only less), the sum of
   * e^(score - largest), and that of e^(score - largest) · value, [dv]. */
  float *row_max, *row_sum, *out;
} heed__decode_task;

/* c [m, n] = x [m, k] · wᵀ (+ bias [n] on each row, or NULL), w [n, k] of a dtype that only stores. Rows are
 * w_row, x_row and c_row elements apart, the elements of a row without gaps. INT8: element p of row j counts
 * scale[j · scale_row + p / HEED_INT8_BLOCK]. c shares no place with the others. */
typedef struct heed__narrow_task {
  size_t m, n, k;
  const float *x;
  const void *w;
  const float *scale;
  heed_dtype dtype; /* of w: BFLOAT16, FLOAT16, INT8 */
  ptrdiff_t x_row, w_row, scale_row;
  const float *bias;
  float *c;
  ptrdiff_t c_row;
  bool far; /* whether w, of which this may be a part, is more than the second cache may well have */
} heed__narrow_task;

/* The forward pass of a small attention module over one batch item: x [n, d_in] through W_query, W_key and
 * W_value (row-major [heads · d or kv_heads · d, d_in]), each head's attention, and out_proj ([d_out, heads ·
 * d]), all without gaps. To the bit what the kernels gemm and attention give one after another. */
typedef struct heed__small_pass {
  const float *x;
  const float *weight[4], *bias[4]; /* query, key, value, out; a bias may be NULL, as may be weight[3]: then
                                       d_out is heads · d */
  int64_t n, d_in, heads, kv_heads, head_size, d_out;
  float scale;
  bool causal;
  float *out; /* [n, d_out]; shares no place with the others */
} heed__small_pass;

/* Its bounds: up to so many multiply-adds (rows of the whole batch · columns · depth) gemm rounds each
 * product before it is added, in order, so that it does not matter what lies across the lanes. */
enum { HEED__TINY_WORK = 512, HEED__TINY_DEPTH = 15 };
/** rows: of the whole batch; more than 1. */
static inline bool heed__is_small_pass(const heed__small_pass *p, int64_t rows) {
  const int64_t wide = p->heads * p->head_size;
  return p->n <= HEED__SMALL_QUERIES && rows > 1 && rows <= HEED__TINY_WORK && p->d_in <= HEED__TINY_DEPTH &&
         wide <= HEED__TINY_DEPTH && p->d_out <= HEED__TINY_WORK &&
         rows * wide * p->d_in <= HEED__TINY_WORK &&
         (!p->weight[3] || rows * p->d_out * wide <= HEED__TINY_WORK);
}

/** What the attention of all its heads has in common; their places and strides are for the kernel to add. */
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

/* name, result, parameters */
#define HEED__OTHER_KERNELS(X)                                                                               \
  /* Σ x[i] in the order in which PyTorch adds (scalar/rows.c); Σ (x[i] - mean)² */                       \
  X(sum, float, (const float *x, size_t n))                                                                  \
  X(sum_of_squares, double, (const float *x, double mean, size_t n))                                         \
  /* sum[i] += the sum over a group of `rows` rows, in order, from 0; `groups` times. The rows lie step      \
     elements apart, the groups one behind the other; sum shares no place with x */                          \
  X(sum_across, void, (float *sum, const float *x, ptrdiff_t step, size_t rows, size_t groups, size_t n))    \
  /* the largest of n ≥ 1; nan if there is one */                                                          \
  X(max, float, (const float *x, size_t n))                                                                  \
  X(softmax, void, (float *out, const float *x, size_t n))                                                   \
  X(log_softmax, void, (float *out, const float *x, size_t n))                                               \
  /* weight and bias may be NULL */                                                                          \
  X(layer_norm, void,                                                                                        \
    (float *out, const float *x, const float *weight, const float *bias, float epsilon, size_t n))           \
  X(rms_norm, void, (float *out, const float *x, const float *weight, float epsilon, size_t n))              \
  X(dot, float, (const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb, size_t n))                      \
  /* c [m, n] = a [m, k] · b [k, n] (+ bias [n] on each row, or NULL), of any strides, but that c's columns \
     lie without gaps; c shares no place with the others. room: NULL, or gemm_room floats aligned to         \
     HEED__ALIGNMENT, with which an element depends on its row of a and column of b alone, not               \
     on m and n; gemm_room is 0 where that is not faster */                                                  \
  X(gemm, bool,                                                                                              \
    (size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row, ptrdiff_t a_column, const float *b,      \
     ptrdiff_t b_row, ptrdiff_t b_column, const float *bias, float *c, ptrdiff_t c_row, float *room,         \
     const heed__pace *pace, int64_t *position))                                                             \
  X(gemm_room, size_t, (size_t m, size_t n, size_t k))                                                       \
  /* sums in float32; up to some rows of x, those of a row do not depend on how many there are */            \
  X(narrow, bool, (const heed__narrow_task *task, const heed__pace *pace, int64_t *position))                \
  /* out[i] = x[i] as another dtype, both without gaps and apart; float32, bfloat16, float16 and int8 */     \
  X(convert, void, (heed_dtype to, void *out, heed_dtype from, const void *x, size_t n))                     \
  /* a heed__normal_transform, the same bits in every table */                                               \
  X(normal, void, (float *x, size_t n, float std, float mean))                                               \
  /* out [columns, rows] = x [rows, columns] transposed, the columns of both without gaps; elements of 4     \
     bytes; out shares no place with x */                                                                    \
  X(transpose, void,                                                                                         \
    (float *out, ptrdiff_t out_row, const float *x, ptrdiff_t x_row, size_t rows, size_t columns))           \
  /* A row's result does not depend on which rows are done with it. Only the scalar kernel writes scores,    \
     weights… and does without out (NULL). attention_scratch: bytes for rows first…last-1. */            \
  X(attention, bool, (const heed__attention_task *task, const heed__pace *pace, int64_t *position))          \
  X(decode, bool, (const heed__decode_task *task, const heed__pace *pace, int64_t *position))                \
  X(attention_scratch, size_t, (const heed__attention_task *task))                                           \
  X(small_pass, void, (const heed__small_pass *pass))

typedef struct heed__kernels {
  const char *name; /* "scalar" */
#define X(name) heed__unary_kernel *name;
  HEED__UNARY_KERNELS(X)
#undef X
#define X(name) heed__binary_kernel *name;
  HEED__BINARY_KERNELS(X)
#undef X
#define X(name) heed__compare_kernel *name;
  HEED__COMPARE_KERNELS(X)
#undef X
#define X(name, result, parameters) result(*name) parameters;
  HEED__OTHER_KERNELS(X)
#undef X
} heed__kernels;

extern const heed__kernels heed__kernels_scalar, heed__kernels_avx2, heed__kernels_avx512, heed__kernels_neon;

/** The best table for this processor, kept on the context. */
const heed__kernels *heed__kernels_of(heed_context *ctx);

#endif
