/* The door of ops: what the public functions of heed.h share, for ops and the layers above. */
#ifndef HEED_OPS_H
#define HEED_OPS_H

#include "../core/core.h"
#include "../kernels/kernels.h"

/** The kernels that the context uses. */
static inline const heed__kernels *heed__kernels_of(const heed_context *ctx) {
  return heed__kernels_for(ctx->cpu);
}

/* ---- Checks: every message that several ops can give (check.c) ---- */
/* `function` is the public name ("softmax"), `argument` the parameter's ("dim"). */

/** A dimension from 1 (or -1 from the last) as an index from 0; a tensor of no dimensions has dimension 1, as
 * in PyTorch. Errors: INDEX. */
HEED_MUST_USE
heed_status heed__check_dim(heed_context *ctx, const char *function, int ndim, int dim, int *out);
/** A place for a new dimension, from 1 to ndim + 1 (or -1 behind the last), as an index from 0. Errors:
 * INDEX. */
HEED_MUST_USE
heed_status heed__check_new_dim(heed_context *ctx, const char *function, int ndim, int dim, int *out);
/** An index from 1 (or -1 from the last) of the `size` elements of dimension `dim` (from 0) as one from 0.
 * Errors: INDEX. */
HEED_MUST_USE
heed_status heed__check_index(heed_context *ctx, const char *function, int64_t index, int dim, int64_t size,
                              int64_t *out);
/** The slice first, first + step, … up to last (from 1, or -1 from the last) of the `size` elements of
 * dimension `dim` (from 0), as heed_slice takes it, as a start from 0 and a count. Errors: INDEX, ARGUMENT
 * (step below 1). (view.c) */
HEED_MUST_USE
heed_status heed__check_slice(heed_context *ctx, const char *function, int64_t first, int64_t last,
                              int64_t step, int dim, int64_t size, int64_t *start, int64_t *count);
/** Errors: DTYPE. */
HEED_MUST_USE
heed_status heed__check_dtype(heed_context *ctx, const char *function, const char *argument,
                              const heed_tensor *x, heed_dtype wanted);
/** x must be of a dtype for arithmetic, not one that only stores. Errors: DTYPE. */
HEED_MUST_USE
heed_status heed__check_arithmetic(heed_context *ctx, const char *function, const char *argument,
                                   const heed_tensor *x);
/** What weights and caches may be stored in: float32, bfloat16, float16, int8. Errors: DTYPE. */
HEED_MUST_USE
heed_status heed__check_stored(heed_context *ctx, const char *function, heed_dtype dtype);
/** x's shape must broadcast to (ndim, shape) as it stands. Errors: SHAPE. */
HEED_MUST_USE
heed_status heed__check_expands(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *x, int ndim, const int64_t *shape);
/** x must have no two elements in one place (an expanded tensor has), since it is written to. Errors:
 * ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_writable(heed_context *ctx, const char *function, const heed_tensor *x);
/** A probability: from 0 to 1, and no nan. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_probability(heed_context *ctx, const char *function, const char *argument, double p);
/* heed__check_shape and heed__fail_memory are core's (core.h). */

/* ---- Results: the rule of heed.h on *out (result.c) ---- */

/* Where an op writes. `tensor` is row-major if *out was NULL or could not be written to directly (other
 * dtype, overlap with an input), else *out itself, whose strides may be anything. */
typedef struct heed__result {
  heed_tensor *tensor;
  heed_tensor **out;
  const char *function;
} heed__result;

/** The place where every operation looks whether it is to stop before it starts. inputs (some may be NULL)
 * are what the op reads while it writes. An input that is the very same view as *out is fine if
 * `elementwise`. Errors: SHAPE, DTYPE, ARGUMENT, MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__result_begin(heed_context *ctx, const char *function, heed__result *result,
                               heed_tensor **out, heed_dtype dtype, int ndim, const int64_t *shape,
                               bool elementwise, int ninputs, const heed_tensor *const *inputs);
/** The same, but `tensor` is always row-major. */
HEED_MUST_USE
heed_status heed__result_begin_row_major(heed_context *ctx, const char *function, heed__result *result,
                                         heed_tensor **out, heed_dtype dtype, int ndim, const int64_t *shape,
                                         int ninputs, const heed_tensor *const *inputs);
/** Hands the result over if status is OK, else drops it; returns the status of both. */
HEED_MUST_USE
heed_status heed__result_end(heed_context *ctx, heed__result *result, heed_status status);
/** A new tensor of the shape of x and the strides of heed__strides_like, its elements not set. */
HEED_MUST_USE
heed_status heed__new_like(heed_context *ctx, const char *function, const heed_tensor *x, heed_dtype dtype,
                           heed_tensor **out);

/* ---- Walking several tensors of one broadcast shape (walk.c) ---- */

#define HEED__WALK_MAX 6 /* attention: q, k, v, the mask, the padding, the result */

/* for (bool more = heed__walk_begin(&w, …); more; more = heed__walk_next(&w)) use w.data[i], w.stride[i],
 * w.count; one turn is one row: `count` elements of each operand, `stride[i]` apart (0 where it is
 * broadcast), in row-major order. Dimensions are merged where all operands allow, so a row is as long as can
 * be. */
typedef struct heed__walk {
  int operands;
  int dims; /* dimension 0 is the row, and the others go outwards */
  int64_t count;
  char *data[HEED__WALK_MAX];
  ptrdiff_t stride[HEED__WALK_MAX]; /* in elements; 1 if count is 1 */
  int64_t at[HEED_MAX_DIMS + 1];
  int64_t size[HEED_MAX_DIMS + 1];
  ptrdiff_t step[HEED__WALK_MAX][HEED_MAX_DIMS + 1]; /* in bytes */
} heed__walk;

/** Operands must broadcast to (ndim, shape); false if there is no element. */
bool heed__walk_begin(heed__walk *w, int ndim, const int64_t *shape, int operands,
                      const heed_tensor *const *tensors);
/** The next row; false after the last, and the walk then stands at the first again. */
bool heed__walk_next(heed__walk *w);
/** The same from group to group, for who goes himself from row to row of a group: the size[1] rows (or the
 * one if dims is 1) that lie step[i][1] bytes apart. */
bool heed__walk_next_group(heed__walk *w);

/** The same tensors, every row a lane along dimension `dim` (from 0): stride[i] is the stride of that
 * dimension. */
bool heed__walk_lanes_begin(heed__walk *w, int ndim, const int64_t *shape, int dim, int operands,
                            const heed_tensor *const *tensors);

/* Elements: shorter rows cost more than going through longer ones in steps. */
#define HEED__SHORT_ROW 16

/** For work whose order does not matter: makes the dimension the row along which operand 0, the result, lies
 * without gaps, if it does not along the row but does along another, as a transposed view. Not if that is
 * short, nor where an input lies along the row that tiles do not transpose. */
void heed__walk_turn(heed__walk *w, const heed_tensor *const *tensors);

/** Whether operand i, of float32, lies without gaps along dimension d (0: no) instead of along the rows, as a
 * transposed one does; and the dimension along which it does, 0 if there is none. */
static inline bool heed__walk_lies_across(const heed__walk *w, int i, int d) {
  return d > 0 && w->stride[i] > 1 && w->step[i][d] == (ptrdiff_t)sizeof(float);
}
int heed__walk_across(const heed__walk *w, int i);

/** Leaves `length` steps of dimension dim (0 is the row), from `first` on; the walk stands at its first row,
 * before and after. */
void heed__walk_narrow(heed__walk *w, int dim, int64_t first, int64_t length);

/** Has `part` do all that there is of a walk that stands at its first row: at once, or, where it is large,
 * divided into walks over pieces of it, on the context's threads, worker by worker as heed__parallel counts
 * them. Rows are cut at multiples of `grain` elements only, 0 leaves them whole;
 * `weight` is how many elements of work stand behind one of the walk. Parts write to places of their own, and
 * the result must be the same, bit for bit, whatever the pieces are. False as heed__parallel has it: the work
 * is due, and not all of it may be done. (divide.c) */
#define HEED__DIVIDED_FROM ((int64_t)1 << 18) /* elements of work */
typedef void heed__walk_part(void *user, heed__walk *w, int worker);
HEED_MUST_USE
bool heed__walk_divided(heed_context *ctx, heed__walk *w, int64_t grain, int64_t weight,
                        heed__walk_part *part, void *user);
/** The same where dimension `across` (0: none) is done in tiles of HEED__TILE steps: it is cut at multiples
 * of them only, if each thread has one. */
#define HEED__TILE 16
HEED_MUST_USE
bool heed__walk_divided_across(heed_context *ctx, heed__walk *w, int64_t grain, int across, int64_t weight,
                               heed__walk_part *part, void *user);

/** How many parts of a size there are in a whole, the last one maybe smaller; and the size of equal parts of
 * some `wanted` or more, a multiple of `unit`. (divide.c) */
int64_t heed__parts(int64_t whole, int64_t part);
int64_t heed__part_of(int64_t size, int64_t wanted, int64_t unit);

/* ---- Shared by several ops ---- */

/** n elements converted from one row into another, which share no place; strides in elements. Cannot fail.
 * (row.c) */
void heed__copy_row(heed_dtype to, void *dst, ptrdiff_t dst_stride, heed_dtype from, const void *src,
                    ptrdiff_t src_stride, int64_t n);
/** The same, by kernels where there are some. */
void heed__convert_row(const heed__kernels *kernels, heed_dtype to, void *dst, ptrdiff_t dst_stride,
                       heed_dtype from, const void *src, ptrdiff_t src_stride, int64_t n);

/** src converted and broadcast into dst, which shares no place with it and has none twice. False if the work
 * is due: then some elements may be missing. (copy.c) */
HEED_MUST_USE
bool heed__copy_elements(const heed_tensor *dst, const heed_tensor *src);

/** x itself (in *view, no reference) if it is float32 (or dtype) and row-major, else a copy in *made. Free
 * *made. */
HEED_MUST_USE
heed_status heed__as_contiguous(heed_context *ctx, const char *function, const heed_tensor *x,
                                heed_dtype dtype, const heed_tensor **view, heed_tensor **made);

/** A header on the elements of x under a shape to which it broadcasts; holds no reference. (copy.c) */
void heed__expand_on_stack(heed_tensor *view, const heed_tensor *x, int ndim, const int64_t *shape);
/** Makes *input a copy, to be freed as *made, if writing to `written` could change it. (copy.c) */
HEED_MUST_USE
heed_status heed__copy_if_overlapping(heed_context *ctx, const char *function, const heed_tensor *written,
                                      const heed_tensor **input, heed_tensor **made);

/** c [m, n] = a [m, k] · b [k, n] + bias: strided, through BLAS where that pays. c's columns lie without
 * gaps. False if the work is due before all is done. (gemm.c) */
HEED_MUST_USE
bool heed__gemm(heed_context *ctx, int64_t m, int64_t n, int64_t k, const float *a, ptrdiff_t a_row,
                ptrdiff_t a_column, const float *b, ptrdiff_t b_row, ptrdiff_t b_column, const float *bias,
                float *c, ptrdiff_t c_row);

/** Which BLAS that is, as heed_information says, and the processor that its kernels were written for, "" if
 * not known. (gemm.c) */
const char *heed__blas_name(heed_context *ctx);
const char *heed__blas_core(heed_context *ctx);

/* Those of heed.h under another name in messages: x[…] calls itself "index". (index.c, mask.c) */
HEED_MUST_USE
heed_status heed__index_select(heed_context *ctx, const char *function, const heed_tensor *x, int dim,
                               const heed_tensor *index, heed_tensor **out);
HEED_MUST_USE
heed_status heed__index_assign(heed_context *ctx, const char *function, heed_tensor *x,
                               const heed_tensor *index, const heed_tensor *value);
HEED_MUST_USE
heed_status heed__masked_select(heed_context *ctx, const char *function, const heed_tensor *x,
                                const heed_tensor *mask, heed_tensor **out);
HEED_MUST_USE
heed_status heed__masked_assign(heed_context *ctx, const char *function, heed_tensor *x,
                                const heed_tensor *mask, const heed_tensor *value);
/** heed_layer_norm and heed_rms_norm over the last ndims dimensions (weight and bias of these sizes) under
 * another name in messages. (rows.c) */
HEED_MUST_USE
heed_status heed__layer_norm(heed_context *ctx, const char *function, const heed_tensor *x, int ndims,
                             const heed_tensor *weight, const heed_tensor *bias, double epsilon,
                             heed_tensor **out);
HEED_MUST_USE
heed_status heed__rms_norm(heed_context *ctx, const char *function, const heed_tensor *x, int ndims,
                           const heed_tensor *weight, double epsilon, heed_tensor **out);
/** heed_clone, heed_copy, heed_reshape, heed_transpose, heed_narrow, heed_dequantize_int8 and heed_dropout
 * under another name in messages. (copy.c, view.c, quantize.c, draw.c) */
HEED_MUST_USE
heed_status heed__clone(heed_context *ctx, const char *function, const heed_tensor *x, heed_tensor **out);
HEED_MUST_USE
heed_status heed__copy(heed_context *ctx, const char *function, heed_tensor *dst, const heed_tensor *src);
HEED_MUST_USE
heed_status heed__reshape(heed_context *ctx, const char *function, const heed_tensor *x, int ndim,
                          const int64_t *shape, heed_tensor **out);
HEED_MUST_USE
heed_status heed__transpose(heed_context *ctx, const char *function, const heed_tensor *x, int dim1, int dim2,
                            heed_tensor **out);
HEED_MUST_USE
heed_status heed__narrow(heed_context *ctx, const char *function, const heed_tensor *x, int dim,
                         int64_t start, int64_t length, heed_tensor **out);
HEED_MUST_USE
heed_status heed__dequantize_int8(heed_context *ctx, const char *function, const heed_tensor *weight,
                                  const heed_tensor *scale, heed_tensor **out);
HEED_MUST_USE
heed_status heed__drop(heed_context *ctx, const char *function, heed_generator *g, double p,
                       const heed_tensor *x, heed_tensor **out);
/** heed_full, heed_fill, heed_to, heed_uniform, heed_normal, heed_randint and heed_linear under another name
 * in messages. (create.c, copy.c, draw.c, linear.c) */
HEED_MUST_USE
heed_status heed__fill(heed_context *ctx, const char *function, heed_tensor *dst, heed_scalar value);
HEED_MUST_USE
heed_status heed__to(heed_context *ctx, const char *function, const heed_tensor *x, heed_dtype dtype,
                     heed_tensor **out);
HEED_MUST_USE
heed_status heed__randint(heed_context *ctx, const char *function, heed_generator *g, int64_t low,
                          int64_t high, int ndim, const int64_t *shape, heed_tensor **out);
HEED_MUST_USE
heed_status heed__full(heed_context *ctx, const char *function, heed_dtype dtype, int ndim,
                       const int64_t *shape, heed_scalar value, heed_tensor **out);
HEED_MUST_USE
heed_status heed__uniform(heed_context *ctx, const char *function, heed_generator *g, double from, double to,
                          int ndim, const int64_t *shape, heed_tensor **out);
HEED_MUST_USE
heed_status heed__normal(heed_context *ctx, const char *function, heed_generator *g, double mean, double std,
                         int ndim, const int64_t *shape, heed_tensor **out);
HEED_MUST_USE
heed_status heed__linear(heed_context *ctx, const char *function, const heed_tensor *x,
                         const heed_tensor *weight, const heed_tensor *bias, heed_tensor **out);
/** heed_linear_int8 and heed_embedding likewise. (linear.c, embedding.c) */
HEED_MUST_USE
heed_status heed__linear_int8(heed_context *ctx, const char *function, const heed_tensor *x,
                              const heed_tensor *weight, const heed_tensor *scale, const heed_tensor *bias,
                              heed_tensor **out);
HEED_MUST_USE
heed_status heed__embedding(heed_context *ctx, const char *function, const heed_tensor *ids,
                            const heed_tensor *weight, heed_tensor **out);
/** heed_quantize_int8, of an argument of that name. (quantize.c) */
HEED_MUST_USE
heed_status heed__quantize_int8(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *x, heed_tensor **weight, heed_tensor **scale);
/** weight int8 [d_out, d_in] and scale float32 [d_out, blocks] must fit each other. Errors: DTYPE, SHAPE.
 * (quantize.c) */
HEED_MUST_USE
heed_status heed__check_int8_weight(heed_context *ctx, const char *function, const heed_tensor *weight,
                                    const heed_tensor *scale);
/** Blocks of a row of `columns` elements. */
static inline int64_t heed__int8_blocks(int64_t columns) {
  return columns / HEED_INT8_BLOCK + (columns % HEED_INT8_BLOCK != 0);
}

#include "works.h"

#endif
