/* The door of ops: what the operations of heed.h share, for ops and the layers above. The list of the
 * operations is ops.def. */
#ifndef HEED_OPS_H
#define HEED_OPS_H

#include "../core/core.h"
#include "../kernels/kernels.h"

/** The kernels that the context uses. */
static inline const heed__kernels *heed__kernels_of(const heed_context *ctx) {
  return heed__kernels_for(ctx->cpu);
}

#include "record.h"

/* ---- Checks, with messages that several operations share (check.c) ---- */
/* In messages `function` is the public name ("softmax"), `argument` that of the parameter ("dim"). */

/** Converts a dimension (from 1, or -1 from the last) to one from 0; like in PyTorch, a tensor without
 * dimensions has dimension 1. Errors: INDEX. */
HEED_MUST_USE
heed_status heed__check_dim(heed_context *ctx, const char *function, int ndim, int dim, int *out);
/** Converts a list of dimensions to bits. Errors: INDEX, ARGUMENT (one is named twice), as heed__check_list.
 */
HEED_MUST_USE
heed_status heed__check_dims(heed_context *ctx, const char *function, int ndim, int ndims, const int *dims,
                             uint32_t *bits);
/** Converts the position of a new dimension, 1…ndim + 1 (or -1 behind the last), to one from 0. Errors:
 * INDEX, SHAPE (too many dimensions). */
HEED_MUST_USE
heed_status heed__check_new_dim(heed_context *ctx, const char *function, int ndim, int dim, int *out);
/** Converts an index (from 1, or -1 from the last) of dimension `dim` (from 0), which has `size` elements, to
 * one from 0. Errors: INDEX. */
HEED_MUST_USE
heed_status heed__check_index(heed_context *ctx, const char *function, int64_t index, int dim, int64_t size,
                              int64_t *out);
/** All elements of index (int64), the argument of that name, must be such indices. Errors: INDEX. (index.c)
 */
HEED_MUST_USE
heed_status heed__check_indices(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *index, int dim, int64_t size);
/** Indices as int64: x itself, or float32 with whole values. Errors: DTYPE. (index.c) */
HEED_MUST_USE
heed_status heed__as_indices(heed_context *ctx, const char *function, const char *argument,
                             const heed_tensor *x, heed_tensor **out);
/** Writes the position of element `number` (from 0, in row-major order) of x, from 1: "[2, 3]". */
const char *heed__element_text(char text[HEED__SHAPE_TEXT], const heed_tensor *x, int64_t number);
/** Converts a slice as in heed_slice (first and last from 1, or -1 from the last) of dimension `dim` (from
 * 0), which has `size` elements, to a start from 0 and a count. Errors: INDEX, ARGUMENT (step below 1).
 * (view.c) */
HEED_MUST_USE
heed_status heed__check_slice(heed_context *ctx, const char *function, int64_t first, int64_t last,
                              int64_t step, int dim, int64_t size, int64_t *start, int64_t *count);
/** Errors: DTYPE. */
HEED_MUST_USE
heed_status heed__check_dtype(heed_context *ctx, const char *function, const char *argument,
                              const heed_tensor *x, heed_dtype wanted);
/** x must have a dtype for arithmetic: float32, int64 or bool. Errors: DTYPE. */
HEED_MUST_USE
heed_status heed__check_arithmetic(heed_context *ctx, const char *function, const char *argument,
                                   const heed_tensor *x);
/** dtype must be one for weights and caches: float32, bfloat16, float16 or int8. Errors: DTYPE. */
HEED_MUST_USE
heed_status heed__check_stored(heed_context *ctx, const char *function, heed_dtype dtype);
/** The shape of x must broadcast to (ndim, shape), which does not change. Errors: SHAPE. */
HEED_MUST_USE
heed_status heed__check_expands(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *x, int ndim, const int64_t *shape);
/** The elements of x must not share memory (those of an expanded tensor do), since it will be written; while
 * operations are recorded, it must not be a leaf that wants a gradient, or a view. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_target(heed_context *ctx, const char *function, const heed_tensor *x);
/** The same right before x is written, which is counted for saved tensors. */
HEED_MUST_USE
heed_status heed__check_writable(heed_context *ctx, const char *function, const heed_tensor *x);
/** p must be a probability, from 0 to 1 and not nan. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_probability(heed_context *ctx, const char *function, const char *argument, double p);
/* heed__check_shape and heed__fail_memory are in core.h. */
/** Fails with SHAPE: "<function>: <a_name> is [2, 3] and <b_name> is [4]; <needed>". */
heed_status heed__fail_pair(heed_context *ctx, const char *function, const char *a_name, const heed_tensor *a,
                            const char *b_name, const heed_tensor *b, const char *needed);

/* ---- Results, as heed.h says of *out (result.c) ---- */

/* What an operation writes to. `tensor` is *out itself, with any strides, or a new row-major tensor if *out
 * is NULL or cannot be written directly (other dtype, overlap with an input). */
typedef struct heed__result {
  heed_tensor *tensor;
  heed_tensor **out;
  const char *function;
} heed__result;

/** Begins a result; makes the cancellation check with which every operation starts. inputs (may contain
 * NULL): the tensors that the operation reads while it writes. elementwise: an input may be the same view as
 * *out. Errors: SHAPE, DTYPE, ARGUMENT, MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__result_begin(heed_context *ctx, const char *function, heed__result *result,
                               heed_tensor **out, heed_dtype dtype, int ndim, const int64_t *shape,
                               bool elementwise, int ninputs, const heed_tensor *const *inputs);
/** The same, but `tensor` is always row-major. */
HEED_MUST_USE
heed_status heed__result_begin_row_major(heed_context *ctx, const char *function, heed__result *result,
                                         heed_tensor **out, heed_dtype dtype, int ndim, const int64_t *shape,
                                         int ninputs, const heed_tensor *const *inputs);
/** Ends a result: stores it in *out if status is OK, else frees it. Returns status, or the error of storing
 * it. */
HEED_MUST_USE
heed_status heed__result_end(heed_context *ctx, heed__result *result, heed_status status);
/** Ends both results of an operation that leaves a state, as heed__result_end. */
HEED_MUST_USE
heed_status heed__state_result_end(heed_context *ctx, heed_status status, heed__result *out,
                                   heed__result *state);
/* The two results of max, min, sort and topk, values and indices. */
typedef struct heed__indexed_result {
  heed__result values, indices;
  heed_tensor *unwanted; /* the indices, if the caller passed NULL for them */
} heed__indexed_result;
/** heed__result_begin for both, of the same shape: values with the dtype of x, indices (may be NULL) int64.
 * heed__indexed_result_end must follow, also after an error. */
HEED_MUST_USE
heed_status heed__indexed_result_begin(heed_context *ctx, const char *function, heed__indexed_result *result,
                                       heed_tensor **values, heed_tensor **indices, int ndim,
                                       const int64_t *shape, const heed_tensor *x);
HEED_MUST_USE
heed_status heed__indexed_result_end(heed_context *ctx, heed__indexed_result *result, heed_status status);
/** A new tensor with the shape of x and the strides of heed__strides_like; its elements are not set. */
HEED_MUST_USE
heed_status heed__new_like(heed_context *ctx, const char *function, const heed_tensor *x, heed_dtype dtype,
                           heed_tensor **out);

/* ---- Walking several tensors of one broadcast shape (walk.c) ---- */

#define HEED__WALK_MAX 6 /* attention: q, k, v, the mask, the padding, the result */

/* for (bool more = heed__walk_begin(&w, …); more; more = heed__walk_next(&w)) use w.data[i], w.stride[i],
 * w.count. Each iteration is a row, in row-major order: `count` elements of each operand, `stride[i]` apart
 * (0 where it is broadcast). Dimensions are merged where all operands allow, so that rows are long. */
typedef struct heed__walk {
  int operands;
  int dims; /* dimension 0 is the row, the last one the outermost */
  int64_t count;
  char *data[HEED__WALK_MAX];
  ptrdiff_t stride[HEED__WALK_MAX]; /* in elements; 1 if count is 1 */
  int64_t at[HEED_MAX_DIMS + 1];
  int64_t size[HEED_MAX_DIMS + 1];
  ptrdiff_t step[HEED__WALK_MAX][HEED_MAX_DIMS + 1]; /* in bytes */
} heed__walk;

/** The operands must broadcast to (ndim, shape). False if that has no elements. */
bool heed__walk_begin(heed__walk *w, int ndim, const int64_t *shape, int operands,
                      const heed_tensor *const *tensors);
/** Moves to the next row; after the last it returns false and is back at the first. */
bool heed__walk_next(heed__walk *w);
/** Moves to the next group, for callers that iterate over the rows of a group themselves: size[1] rows (1 if
 * dims is 1), step[i][1] bytes apart. */
bool heed__walk_next_group(heed__walk *w);

/** heed__walk_begin with rows along dimension `dim` (from 0), called lanes: stride[i] is the stride of that
 * dimension. */
bool heed__walk_lanes_begin(heed__walk *w, int ndim, const int64_t *shape, int dim, int operands,
                            const heed_tensor *const *tensors);

/* Elements: walking along shorter rows costs more than reading longer ones with a stride. */
#define HEED__SHORT_ROW 16

/** For work in any order: if operand 0, the result, is contiguous along another dimension than the row (a
 * transposed view), makes that dimension the row. Not if it is short, nor if an input other than float32,
 * which tiles cannot transpose, is contiguous along the row. */
void heed__walk_turn(heed__walk *w, const heed_tensor *const *tensors);

/** Whether operand i, of float32, is contiguous along dimension d (0: no) instead of along the rows, like a
 * transposed one; and the dimension along which it is, 0 if none. */
static inline bool heed__walk_lies_across(const heed__walk *w, int i, int d) {
  return d > 0 && w->stride[i] > 1 && w->step[i][d] == (ptrdiff_t)sizeof(float);
}
int heed__walk_across(const heed__walk *w, int i);

/** Reduces dimension dim (0: the row) to `length` steps from `first` on. The walk must be at its first row.
 */
void heed__walk_narrow(heed__walk *w, int dim, int64_t first, int64_t length);

/** Calls `part` with a walk that is at its first row, or, if that is large, with walks over pieces of it, on
 * the context's threads (worker as in heed__parallel). Rows are cut at multiples of `grain` elements, 0:
 * never. weight: elements of work for each element of the walk. Parts must write to separate memory, and
 * their results must not depend on the pieces, bit for bit. False, like heed__parallel, if a cancellation
 * check stops it. (divide.c) */
#define HEED__DIVIDED_FROM ((int64_t)1 << 18) /* elements of work */
typedef void heed__walk_part(void *user, heed__walk *w, int worker);
HEED_MUST_USE
bool heed__walk_divided(heed_context *ctx, heed__walk *w, int64_t grain, int64_t weight,
                        heed__walk_part *part, void *user);
/** The same for parts that process dimension `across` (0: none) in tiles of HEED__TILE steps: it is cut at
 * multiples of these, if every thread gets one. */
#define HEED__TILE 16
HEED_MUST_USE
bool heed__walk_divided_across(heed_context *ctx, heed__walk *w, int64_t grain, int across, int64_t weight,
                               heed__walk_part *part, void *user);

/** The number of parts of size `part` in `whole`, the last one possibly smaller; and the size, a multiple of
 * `unit`, of about equal parts of at least `wanted`. (divide.c) */
int64_t heed__parts(int64_t whole, int64_t part);
int64_t heed__part_of(int64_t size, int64_t wanted, int64_t unit);

/* ---- Lengths of packed sequences (pack.c) ---- */

typedef struct heed__lengths {
  int64_t count, total, longest; /* total: INT64_MAX if it is larger */
} heed__lengths;
/** Checks lengths int64 [b], each from 0 to `most`. Errors: DTYPE, SHAPE, INDEX, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__read_lengths(heed_context *ctx, const char *function, const char *argument,
                               const heed_tensor *lengths, int64_t most, heed__lengths *out);
/** Checks that they add up to the size of a dimension, from 0, of x. Errors: SHAPE. */
HEED_MUST_USE
heed_status heed__check_total(heed_context *ctx, const char *function, const char *argument,
                              const heed__lengths *lengths, const char *name, const heed_tensor *x, int dim);
/** Element i, from 0, of a list int64 [n]. */
static inline int64_t heed__int64_at(const heed_tensor *list, int64_t i) {
  return ((const int64_t *)(const void *)list->data)[i * list->stride[0]];
}

/* ---- Shared by several operations ---- */

/** Converts n elements of a row into another row, which must not overlap it; strides in elements. Cannot
 * fail. (row.c) */
void heed__copy_row(heed_dtype to, void *dst, ptrdiff_t dst_stride, heed_dtype from, const void *src,
                    ptrdiff_t src_stride, int64_t n);
/** The same, with kernels where they exist. */
void heed__convert_row(const heed__kernels *kernels, heed_dtype to, void *dst, ptrdiff_t dst_stride,
                       heed_dtype from, const void *src, ptrdiff_t src_stride, int64_t n);

/** Converts and broadcasts src into dst; dst must not overlap src or itself. False if a cancellation check
 * stops it: some elements are then missing. (copy.c) */
HEED_MUST_USE
bool heed__copy_elements(const heed_tensor *dst, const heed_tensor *src);

/** *view: x itself (without a reference) if it is row-major and of that dtype, else a copy, which the caller
 * frees as *made. (copy.c) */
HEED_MUST_USE
heed_status heed__as_contiguous(heed_context *ctx, const char *function, const heed_tensor *x,
                                heed_dtype dtype, const heed_tensor **view, heed_tensor **made);

/** A header on x broadcast to a shape; holds no reference. (copy.c) */
void heed__expand_on_stack(heed_tensor *view, const heed_tensor *x, int ndim, const int64_t *shape);
/** Replaces *input by a copy, which the caller frees as *made, if writing to `written` could change it.
 * (copy.c) */
HEED_MUST_USE
heed_status heed__copy_if_overlapping(heed_context *ctx, const char *function, const heed_tensor *written,
                                      const heed_tensor **input, heed_tensor **made);

/** c [m, n] = a [m, k] · b [k, n] + bias [n] (or NULL), of any strides, with BLAS where that is faster; the
 * rows of c are contiguous. False if a cancellation check stops it. (gemm.c) */
HEED_MUST_USE
bool heed__gemm(heed_context *ctx, int64_t m, int64_t n, int64_t k, const float *a, ptrdiff_t a_row,
                ptrdiff_t a_column, const float *b, ptrdiff_t b_row, ptrdiff_t b_column, const float *bias,
                float *c, ptrdiff_t c_row);

/** The fields blas and blas_core of heed_information. (gemm.c) */
const char *heed__blas_name(heed_context *ctx);
const char *heed__blas_core(heed_context *ctx);

/* ---- Elements at indices (index.c, scatter.c) ---- */

/** A checked index as one from 0. */
static inline int64_t heed__from_zero(int64_t index, int64_t size) {
  return index > 0 ? index - 1 : index + size;
}

/* The dimension that indices select from. */
typedef struct heed__lane {
  int64_t size;
  ptrdiff_t step; /* bytes between its elements */
} heed__lane;

/** Headers, on the stack, for the following functions: heads are the elements of x at index 0 of dimension
 * dim. index has the shape (ndim, shape), or at most one dimension and is then the same for all others. */
void heed__lane_heads(const heed_tensor *x, int dim, int ndim, const int64_t *shape, const heed_tensor *index,
                      heed_tensor *heads, heed_tensor *indices, heed__lane *lane);
/** out = the elements at the indices (checked) from heads on; both broadcast to out, which has the dtype of
 * heads. False if a cancellation check stops it. (index.c) */
HEED_MUST_USE
bool heed__pick(const heed_tensor *out, const heed_tensor *indices, const heed_tensor *heads,
                heed__lane lane);
/** The reverse, in row-major order: writes `from`, of the same dtype, to these elements, adds it to them, or
 * multiplies them by it. All broadcast to (ndim, shape). (scatter.c) */
HEED_MUST_USE
bool heed__place(int ndim, const int64_t *shape, const heed_tensor *indices, const heed_tensor *heads,
                 heed__lane lane, const heed_tensor *from, heed_scatter_reduce reduce);
/** *value: `value` in a form that can be written to x with `reduce`: of x's dtype, and not overlapping it.
 * The caller frees *made, if that was necessary. any: the dtype is converted as by heed_copy; otherwise x
 * must be able to hold it. Errors: DTYPE. (scatter.c) */
HEED_MUST_USE
heed_status heed__prepare_placing(heed_context *ctx, const char *function, const char *argument,
                                  const heed_tensor *x, heed_scatter_reduce reduce, bool any,
                                  const heed_tensor **value, heed_tensor **made);

/* The following are functions of heed.h under another name in messages: `function`. */

/* index.c, mask.c */
HEED_MUST_USE
heed_status heed__index_select(heed_context *ctx, const char *function, const heed_tensor *x, int dim,
                               const heed_tensor *index, heed_tensor **out);
/* What messages call the indices: element item[i] of the list that a script gave, and dimension dim[i] (from
 * 0) of the tensor that it indexes. */
typedef struct heed__index_names {
  int item[HEED_MAX_DIMS], dim[HEED_MAX_DIMS];
} heed__index_names;
/** names: NULL for those of x and of the list itself. (indices.c) */
HEED_MUST_USE
heed_status heed__index(heed_context *ctx, const char *function, const heed_tensor *x, int count,
                        const heed_tensor *const *indices, const heed__index_names *names, heed_tensor **out);
/** any: value may have any dtype, and is converted as by heed_copy. (indices.c) */
HEED_MUST_USE
heed_status heed__index_put(heed_context *ctx, const char *function, heed_tensor *x, int count,
                            const heed_tensor *const *indices, const heed__index_names *names,
                            const heed_tensor *value, bool accumulate, bool any);
HEED_MUST_USE
heed_status heed__scatter(heed_context *ctx, const char *function, heed_tensor *x, int dim,
                          const heed_tensor *index, const heed_tensor *src, heed_scatter_reduce reduce);
HEED_MUST_USE
heed_status heed__index_add(heed_context *ctx, const char *function, heed_tensor *x, int dim,
                            const heed_tensor *index, const heed_tensor *source, heed_scalar alpha);
HEED_MUST_USE
heed_status heed__index_copy(heed_context *ctx, const char *function, heed_tensor *x, int dim,
                             const heed_tensor *index, const heed_tensor *source);
/** source: the tensor of no dimensions that value was read from, which may want a gradient; NULL: a number.
 */
HEED_MUST_USE
heed_status heed__index_fill(heed_context *ctx, const char *function, heed_tensor *x, int dim,
                             const heed_tensor *index, heed_scalar value, const heed_tensor *source);
/** source: as for heed__index_fill. (where.c) */
HEED_MUST_USE
heed_status heed__masked_fill(heed_context *ctx, const heed_tensor *x, const heed_tensor *mask,
                              heed_scalar value, const heed_tensor *source, heed_tensor **out);
HEED_MUST_USE
heed_status heed__searchsorted(heed_context *ctx, const char *function, const heed_tensor *sorted,
                               const heed_tensor *values, bool right, heed_tensor **out);
HEED_MUST_USE
heed_status heed__nonzero(heed_context *ctx, const char *function, const heed_tensor *x, heed_tensor **out);
HEED_MUST_USE
heed_status heed__masked_select(heed_context *ctx, const char *function, const heed_tensor *x,
                                const heed_tensor *mask, heed_tensor **out);
HEED_MUST_USE
heed_status heed__masked_assign(heed_context *ctx, const char *function, heed_tensor *x,
                                const heed_tensor *mask, const heed_tensor *value);
/* What layer_norm and rms_norm tell their gradient. */
typedef struct heed__norm_values {
  int ndims;
  double epsilon;
} heed__norm_values;
/** rows.c; over the last ndims dimensions, whose sizes weight and bias have. */
HEED_MUST_USE
heed_status heed__layer_norm(heed_context *ctx, const char *function, const heed_tensor *x, int ndims,
                             const heed_tensor *weight, const heed_tensor *bias, double epsilon,
                             heed_tensor **out);
HEED_MUST_USE
heed_status heed__rms_norm(heed_context *ctx, const char *function, const heed_tensor *x, int ndims,
                           const heed_tensor *weight, double epsilon, heed_tensor **out);
/* copy.c, view.c, quantize.c, draw.c */
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
/** x itself, or a matrix transposed. */
HEED_MUST_USE
heed_status heed__t(heed_context *ctx, const char *function, const heed_tensor *x, heed_tensor **out);
HEED_MUST_USE
heed_status heed__permute(heed_context *ctx, const char *function, const heed_tensor *x, int ndim,
                          const int *dims, heed_tensor **out);
HEED_MUST_USE
heed_status heed__narrow(heed_context *ctx, const char *function, const heed_tensor *x, int dim,
                         int64_t start, int64_t length, heed_tensor **out);
HEED_MUST_USE
heed_status heed__dequantize_int8(heed_context *ctx, const char *function, const heed_tensor *weight,
                                  const heed_tensor *scale, heed_tensor **out);
HEED_MUST_USE
heed_status heed__drop(heed_context *ctx, const char *function, heed_generator *g, double p,
                       const heed_tensor *x, heed_tensor **out);
/** dx = row(dy, a, b), elementwise, of any strides and dtypes; they broadcast, and b may be NULL. The row
 * reads float32. (gradients.c) */
typedef void heed__gradient_row(float *dx, const float *dy, const void *a, const void *b,
                                const double *numbers, size_t n);
HEED_MUST_USE
heed_status heed__map_gradient(heed_context *ctx, const char *function, heed__gradient_row *row,
                               const double *numbers, const heed_tensor *dy, const heed_tensor *a,
                               const heed_tensor *b, heed_tensor **dx);
/** The same for dx = row(dy, mask, NULL), whose row reads the mask as bool, bytes of 0 or 1. */
HEED_MUST_USE
heed_status heed__mask_gradient(heed_context *ctx, const char *function, heed__gradient_row *row,
                                const double *numbers, const heed_tensor *dy, const heed_tensor *mask,
                                heed_tensor **dx);
/** dx from x and dy, of one shape, by a kernel of HEED__UNARY_BACKWARD_KERNELS. (elementwise.c) */
HEED_MUST_USE
heed_status heed__unary_gradient(heed_context *ctx, const char *function, heed__backward_kernel *kernel,
                                 const heed_tensor *x, const heed_tensor *dy, heed_tensor **dx);
/** elementwise.c, sort.c */
HEED_MUST_USE
heed_status heed__mul(heed_context *ctx, const char *function, const char *a_name, const heed_tensor *a,
                      const char *b_name, const heed_tensor *b, heed_tensor **out);
HEED_MUST_USE
heed_status heed__topk(heed_context *ctx, const char *function, const heed_tensor *x, int64_t k, int dim,
                       bool largest, heed_tensor **values, heed_tensor **indices);
/* create.c, copy.c, draw.c, linear.c, embedding.c */
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
HEED_MUST_USE
heed_status heed__linear_int8(heed_context *ctx, const char *function, const heed_tensor *x,
                              const heed_tensor *weight, const heed_tensor *scale, const heed_tensor *bias,
                              heed_tensor **out);
/** padding_idx (from 1; 0: none): the row that gets no gradient. */
HEED_MUST_USE
heed_status heed__embedding(heed_context *ctx, const char *function, const heed_tensor *ids,
                            const heed_tensor *weight, int64_t padding_idx, heed_tensor **out);
/** Also names x `argument`. (quantize.c) */
HEED_MUST_USE
heed_status heed__quantize_int8(heed_context *ctx, const char *function, const char *argument,
                                const heed_tensor *x, heed_tensor **weight, heed_tensor **scale);

/** weight must be int8 [d_out, d_in], and scale float32 [d_out, blocks]. Errors: DTYPE, SHAPE. (quantize.c)
 */
HEED_MUST_USE
heed_status heed__check_int8_weight(heed_context *ctx, const char *function, const heed_tensor *weight,
                                    const heed_tensor *scale);
/** The number of blocks in a row of `columns` elements. */
static inline int64_t heed__int8_blocks(int64_t columns) {
  return columns / HEED_INT8_BLOCK + (columns % HEED_INT8_BLOCK != 0);
}

#include "class_losses.h"
#include "works.h"

#endif
