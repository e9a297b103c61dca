/* heed: an attention runtime. This header is the whole interface for hosts in C, and its manual; no Lua is
 * needed.
 *
 * Everything hangs on a context, which one thread uses at a time; two contexts never meet. A function that
 * can fail returns a heed_status, which must be looked at; heed_message(ctx) then says which argument was
 * wrong and what was needed. Nothing here prints, exits or aborts, and no thread is started before
 * heed_set_num_threads asks for it. A call takes up to 64 KiB of the caller's stack (few queries on many
 * keys: 50 KiB), beside what OpenBLAS and the host's thread-local data take.
 *
 * Counting. As in the Lua interface, dimensions, elements, heads and tokens count from 1, and a negative
 * dimension counts from the last; so one message serves both.
 *
 * Results come last, as `heed_tensor **out`. If *out is NULL, a new tensor is stored there, which the caller
 * frees. If not, the result is written into that tensor: it must have the result's shape, a dtype that can
 * hold it, and no two elements in one place; it may be an input, or overlap one (the result is as if the
 * inputs had been copied first). After a failure *out is what it was.
 *
 * Dtypes. Operations on several tensors work in the widest of their dtypes (bool, then int64, then float32);
 * true division and the transcendental functions work in float32. Shapes broadcast as in PyTorch.
 *
 * Shape legend: b batch, h heads, hq heads of queries, hkv heads of keys and values, n tokens, l queries, s
 * keys, d size of a head, dv size of a head's values. */
#ifndef HEED_H
#define HEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEED_VERSION_MAJOR 0
#define HEED_VERSION_MINOR 1
#define HEED_VERSION_PATCH 0
#define HEED_VERSION       "0.1.0"

#if defined(__GNUC__)
#define HEED_API       __attribute__((visibility("default")))
#define HEED_MUST_USE  __attribute__((warn_unused_result))
#define HEED_PRINTF(n) __attribute__((format(printf, n, n + 1)))
#else
#define HEED_API
#define HEED_MUST_USE
#define HEED_PRINTF(n)
#endif
#define HEED_CALL                                                                                            \
  HEED_API HEED_MUST_USE                                                                                     \
  heed_status

/* ---- Status ---- */

#define HEED_STATUS_LIST(X)                                                                                  \
  X(OK, "success")                                                                                           \
  X(ARGUMENT, "an argument is missing, unknown, released or outside of its domain")                          \
  X(SHAPE, "sizes do not fit each other")                                                                    \
  X(DTYPE, "the operation is not defined for this dtype")                                                    \
  X(INDEX, "a dimension or an index is out of range")                                                        \
  X(MEMORY, "memory could not be had")

typedef enum heed_status {
#define X(name, text) HEED_##name,
  HEED_STATUS_LIST(X)
#undef X
} heed_status;

/** The name of a status, "OK", "SHAPE"…; "?" for a number that is none. */
HEED_API const char *heed_status_name(heed_status status);

/* ---- Context ---- */

typedef struct heed_context heed_context;
typedef struct heed_tensor heed_tensor;
typedef struct heed_generator heed_generator;
typedef struct heed_module heed_module;

/** Where a context takes its memory. allocate returns NULL when there is none; release gets the size that was
 * asked for. Blocks need the alignment of malloc only. */
typedef struct heed_allocator {
  void *(*allocate)(void *user, size_t bytes);
  void (*release)(void *user, void *block, size_t bytes);
  void *user;
} heed_allocator;

/* Of every generator that is given no seed: PyTorch's, so that torch.Generator() gives the same numbers. */
#define HEED_DEFAULT_SEED 67280421310721

/** A new context on `allocator` (copied; NULL stands for malloc and free), its default generator seeded with
 * HEED_DEFAULT_SEED. The environment's HEED_CPU (scalar, avx2, avx512, neon) forces the kernels of an
 * instruction set, for tests. Errors, with no context to ask for a message: MEMORY; ARGUMENT (HEED_CPU names
 * none that runs here). */
HEED_CALL heed_context_new(const heed_allocator *allocator, heed_context **out);

/** Gives the context back. Tensors, generators and modules that are still held stay valid, and the context's
 * memory goes with the last of them. NULL is allowed. */
HEED_API void heed_context_free(heed_context *ctx);

/** What went wrong in the last call that failed on this context; "" if none did. Valid until the next
 * failure. */
HEED_API const char *heed_message(const heed_context *ctx);

/** Bytes that the context holds at present, and the most that it has held since the last heed_reset_peak. */
HEED_API size_t heed_memory_in_use(const heed_context *ctx);
HEED_API size_t heed_memory_peak(const heed_context *ctx);
HEED_API void heed_reset_peak(heed_context *ctx);

#define HEED_MAX_THREADS 1024

/** Large operations of this context may use n threads, the caller included; 1 at first. The n - 1 others are
 * started when there is work for them, sleep without, take no signals, and end with heed_context_free or the
 * next change of n; where the system refuses to start some, the others do their work. Results do not depend
 * on n. The child of a fork has one thread until it asks for more. Errors: ARGUMENT (n below 1 or above
 * HEED_MAX_THREADS). */
HEED_CALL heed_set_num_threads(heed_context *ctx, int64_t n);
HEED_API int heed_num_threads(const heed_context *ctx);

/** OpenBLAS multiplies the largest matrices, if it is the flavour on POSIX threads and heed's own kernels are
 * not those for AVX-512, which are as fast; the first such product tells it, for the whole process, to work
 * with one thread, since heed divides the work itself. With `keep` this context does not touch that setting,
 * which is the host's, and uses OpenBLAS only while it has one thread; heed's own kernel does the rest. */
HEED_API void heed_keep_blas_threads(heed_context *ctx, bool keep);

/** What a context works with, and on; a table in Lua. */
typedef struct heed_information {
  const char *version;
  char processor[64];    /* as its maker names it: "AMD EPYC 9R14"; else the architecture */
  const char *kernels;   /* the table in use: "scalar", "avx2", "avx512", "neon" */
  const char *blas;      /* "OpenBLAS"; "none" */
  const char *blas_core; /* the processor that its kernels were written for: "SkylakeX"; "" if not known */
  int threads;
  size_t memory_in_use, memory_peak; /* as heed_memory_in_use and heed_memory_peak say */
} heed_information;
HEED_API void heed_info(heed_context *ctx, heed_information *out);

/** Seconds on a clock that never goes back, from a moment that is the same for all calls in a process. */
HEED_API double heed_clock(void);

/* ---- Tensors ---- */

#define HEED_MAX_DIMS 16

/* name, C type, bytes of an element; in the order of promotion */
#define HEED_DTYPE_LIST(X)                                                                                   \
  X(BOOL, "bool", uint8_t)                                                                                   \
  X(INT64, "int64", int64_t)                                                                                 \
  X(FLOAT32, "float32", float)

typedef enum heed_dtype {
#define X(name, text, type) HEED_##name,
  HEED_DTYPE_LIST(X)
#undef X
} heed_dtype;

/** "float32", "int64", "bool". */
HEED_API const char *heed_dtype_name(heed_dtype dtype);

/** A number with its dtype, for functions that fill or compare. */
typedef struct heed_scalar {
  heed_dtype dtype;
  union {
    double number;   /* FLOAT32 */
    int64_t integer; /* INT64, and 0 or 1 for BOOL */
  } as;
} heed_scalar;

HEED_API heed_scalar heed_number(double value);
HEED_API heed_scalar heed_integer(int64_t value);
HEED_API heed_scalar heed_boolean(bool value);

/* Of these three *out must be NULL. */

/** A tensor of the given sizes, its elements unset. Errors: SHAPE (negative sizes, more than HEED_MAX_DIMS, a
 * product that overflows), MEMORY. */
HEED_CALL heed_tensor_new(heed_context *ctx, heed_dtype dtype, int ndim, const int64_t *shape,
                          heed_tensor **out);

/** A tensor over memory of the host's, row-major, which must stay until `release` (may be NULL) is called
 * with it: when the last tensor that shares it is freed. Errors: SHAPE, ARGUMENT (NULL or misaligned data),
 * MEMORY; after an error release is not called. */
HEED_CALL heed_tensor_from_memory(heed_context *ctx, heed_dtype dtype, int ndim, const int64_t *shape,
                                  void *data, void (*release)(void *user, void *data), void *user,
                                  heed_tensor **out);

/** Another tensor on the same elements, a parameter if x is one. Errors: MEMORY. */
HEED_CALL heed_tensor_alias(heed_context *ctx, const heed_tensor *x, heed_tensor **out);

/** Frees the tensor; the elements go with the last tensor that shares them. NULL is allowed. */
HEED_API void heed_tensor_free(heed_tensor *x);

HEED_API heed_context *heed_tensor_context(const heed_tensor *x);
HEED_API heed_dtype heed_tensor_dtype(const heed_tensor *x);
HEED_API int heed_tensor_ndim(const heed_tensor *x);
HEED_API int64_t heed_tensor_numel(const heed_tensor *x);
HEED_API const int64_t *heed_tensor_shape(const heed_tensor *x); /* ndim sizes */
HEED_API const int64_t *
heed_tensor_stride(const heed_tensor *x);                      /* ndim strides, in elements, none negative */
HEED_API void *heed_tensor_data(const heed_tensor *x);         /* the first element */
HEED_API bool heed_tensor_is_contiguous(const heed_tensor *x); /* row-major without gaps */

/** Whether the tensor was marked as a parameter (nn.Parameter): it prints so, and modules list it. */
HEED_API bool heed_tensor_is_parameter(const heed_tensor *x);
HEED_API void heed_tensor_set_parameter(heed_tensor *x, bool parameter);

/* ---- Making tensors (ops/create.c) ---- */

/** All elements `value`. Errors: SHAPE, MEMORY. */
HEED_CALL heed_full(heed_context *ctx, heed_dtype dtype, int ndim, const int64_t *shape, heed_scalar value,
                    heed_tensor **out);
/** [rows, columns], ones on the diagonal. */
HEED_CALL heed_eye(heed_context *ctx, heed_dtype dtype, int64_t rows, int64_t columns, heed_tensor **out);
/** first, first + step, … up to and including last, as a Lua `for` counts. Errors: ARGUMENT (step 0, not
 * finite). */
HEED_CALL heed_range(heed_context *ctx, heed_dtype dtype, heed_scalar first, heed_scalar last,
                     heed_scalar step, heed_tensor **out);
/** `count` values from first to last, both included. */
HEED_CALL heed_linspace(heed_context *ctx, heed_dtype dtype, double first, double last, int64_t count,
                        heed_tensor **out);

/* ---- Random numbers (core/random.c, ops/draw.c) ---- */

/** MT19937, seeded as PyTorch does (the low 32 bits of the seed). Errors: MEMORY. */
HEED_CALL heed_generator_new(heed_context *ctx, uint64_t seed, heed_generator **out);
HEED_API void heed_generator_free(heed_generator *g);
/** The context's own generator; it lives as long as the context. */
HEED_API heed_generator *heed_default_generator(heed_context *ctx);
HEED_API void heed_generator_seed(heed_generator *g, uint64_t seed);

/** The whole state as bytes, to be restored on any machine. Errors: ARGUMENT (not such a state). */
#define HEED_GENERATOR_STATE_BYTES 2528
HEED_API void heed_generator_get_state(const heed_generator *g, unsigned char *bytes);
HEED_CALL heed_generator_set_state(heed_generator *g, const unsigned char *bytes, size_t count);

/* In all of these, g NULL stands for the context's default generator; out of *out, if given, decides the
 * place. */

/** Uniform in [from, to), float32. */
HEED_CALL heed_uniform(heed_context *ctx, heed_generator *g, double from, double to, int ndim,
                       const int64_t *shape, heed_tensor **out);
/** Normal with the given mean and standard deviation, float32. Errors: ARGUMENT (negative std). */
HEED_CALL heed_normal(heed_context *ctx, heed_generator *g, double mean, double std, int ndim,
                      const int64_t *shape, heed_tensor **out);
/** Whole numbers from low to high, both included, int64. Errors: ARGUMENT (high < low, or a range beyond
 * 2^63). */
HEED_CALL heed_randint(heed_context *ctx, heed_generator *g, int64_t low, int64_t high, int ndim,
                       const int64_t *shape, heed_tensor **out);
/** 1…n in random order, int64 [n]. */
HEED_CALL heed_randperm(heed_context *ctx, heed_generator *g, int64_t n, heed_tensor **out);
/** 1 with probability p (float32, elementwise), else 0; float32. Errors: ARGUMENT (p outside of [0, 1]). */
HEED_CALL heed_bernoulli(heed_context *ctx, heed_generator *g, const heed_tensor *p, heed_tensor **out);

/** PyTorch draws dropout from one of two streams, depending on the processor's maker. NATIVE is the default.
 */
typedef enum heed_dropout_stream { HEED_DROPOUT_NATIVE, HEED_DROPOUT_MKL } heed_dropout_stream;
HEED_API void heed_set_dropout_stream(heed_context *ctx, heed_dropout_stream stream);

/** x with each element zeroed with probability p, the rest times 1 / (1 - p). p = 0 draws nothing.
 *  Errors: ARGUMENT (p outside of [0, 1]), DTYPE (not float32). */
HEED_CALL heed_dropout(heed_context *ctx, heed_generator *g, double p, const heed_tensor *x,
                       heed_tensor **out);

/* ---- Views: no elements are copied (ops/view.c) ---- */

/* Each returns a new tensor on the elements of x, which the caller frees; *out must be NULL. One size of
 * `view` and `reshape` may be -1: it is worked out from the others. reshape copies where a view cannot be
 * had. */
HEED_CALL heed_view(heed_context *ctx, const heed_tensor *x, int ndim, const int64_t *shape,
                    heed_tensor **out);
HEED_CALL heed_reshape(heed_context *ctx, const heed_tensor *x, int ndim, const int64_t *shape,
                       heed_tensor **out);
HEED_CALL heed_flatten(heed_context *ctx, const heed_tensor *x, int first, int last, heed_tensor **out);
HEED_CALL heed_transpose(heed_context *ctx, const heed_tensor *x, int dim1, int dim2, heed_tensor **out);
HEED_CALL heed_permute(heed_context *ctx, const heed_tensor *x, int ndim, const int *dims, heed_tensor **out);
HEED_CALL heed_unsqueeze(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out);
/** Drops dimensions of size 1: `dim` alone (kept as it is if larger), or all of them if dim is 0. */
HEED_CALL heed_squeeze(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out);
/** Sizes of 1 stretched to `shape`, which may have more dimensions in front; -1 keeps a size. */
HEED_CALL heed_expand(heed_context *ctx, const heed_tensor *x, int ndim, const int64_t *shape,
                      heed_tensor **out);
/** Element `index` of dimension `dim`, which goes. A negative index counts from the last. */
HEED_CALL heed_select(heed_context *ctx, const heed_tensor *x, int dim, int64_t index, heed_tensor **out);
/** `length` elements of dimension `dim`, from `start` on. */
HEED_CALL heed_narrow(heed_context *ctx, const heed_tensor *x, int dim, int64_t start, int64_t length,
                      heed_tensor **out);
/** Elements first, first + step, … up to and including last, of dimension `dim`; last = first - 1 gives none.
 */
HEED_CALL heed_slice(heed_context *ctx, const heed_tensor *x, int dim, int64_t first, int64_t last,
                     int64_t step, heed_tensor **out);

/* ---- Copies (ops/copy.c) ---- */

/** A row-major copy. */
HEED_CALL heed_clone(heed_context *ctx, const heed_tensor *x, heed_tensor **out);
/** x itself (as an alias) if it is row-major, else a copy. */
HEED_CALL heed_contiguous(heed_context *ctx, const heed_tensor *x, heed_tensor **out);
/** x in another dtype: an alias if it has it already, else a copy. To int64 the fraction is dropped, numbers
 * beyond the range give the nearest end, nan gives 0; to bool all but 0 is true. */
HEED_CALL heed_to(heed_context *ctx, const heed_tensor *x, heed_dtype dtype, heed_tensor **out);
/** Writes src, broadcast and converted, into the elements of dst; overlap is as if src had been copied first.
 */
HEED_CALL heed_copy(heed_context *ctx, heed_tensor *dst, const heed_tensor *src);
/** Writes one value into all elements of dst. */
HEED_CALL heed_fill(heed_context *ctx, heed_tensor *dst, heed_scalar value);

/* ---- Elementwise (ops/elementwise.c, ops/compare.c, ops/where.c) ---- */

/* Of one tensor, to float32. neg, abs and relu keep int64 and refuse bool, which the others take as 0 and 1.
 * gelu: x Φ(x); gelu_tanh: its approximation; silu: x / (1 + e^-x). */
#define HEED_UNARY_LIST(X)                                                                                   \
  X(exp)                                                                                                     \
  X(log) X(sqrt) X(rsqrt) X(abs) X(neg) X(sin) X(cos) X(tanh) X(sigmoid) X(relu) X(gelu) X(gelu_tanh) X(silu)

/* Of two tensors that broadcast. div is true division (float32); remainder takes the sign of the divisor, as
 * Lua's %. Errors: SHAPE, ARGUMENT (int64: remainder by 0, a negative power). maximum and minimum pass nan
 * on. */
#define HEED_BINARY_LIST(X) X(add) X(sub) X(mul) X(div) X(remainder) X(pow) X(maximum) X(minimum)

/* Of two tensors that broadcast, to bool. */
#define HEED_COMPARE_LIST(X) X(eq) X(ne) X(lt) X(le) X(gt) X(ge)

/* Of two tensors that broadcast, read as true or false, to bool. */
#define HEED_LOGICAL_LIST(X) X(logical_and) X(logical_or) X(logical_xor)

/* Of one tensor, to bool. */
#define HEED_TEST_LIST(X) X(logical_not) X(isnan) X(isinf)

#define X(name) HEED_CALL heed_##name(heed_context *ctx, const heed_tensor *x, heed_tensor **out);
HEED_UNARY_LIST(X)
HEED_TEST_LIST(X)
#undef X
#define X(name)                                                                                              \
  HEED_CALL heed_##name(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, heed_tensor **out);
HEED_BINARY_LIST(X)
HEED_COMPARE_LIST(X)
HEED_LOGICAL_LIST(X)
#undef X

/** x limited to [low, high]; either may be NULL, and they broadcast. nan stays. */
HEED_CALL heed_clamp(heed_context *ctx, const heed_tensor *x, const heed_tensor *low, const heed_tensor *high,
                     heed_tensor **out);
/** a where condition (bool) is true, else b; all three broadcast. */
HEED_CALL heed_where(heed_context *ctx, const heed_tensor *condition, const heed_tensor *a,
                     const heed_tensor *b, heed_tensor **out);
/** x, with value where mask (bool; both broadcast) is true; of x's dtype. Errors: SHAPE, DTYPE (mask not
 * bool; a fraction for int64). */
HEED_CALL heed_masked_fill(heed_context *ctx, const heed_tensor *x, const heed_tensor *mask,
                           heed_scalar value, heed_tensor **out);
/** The lower (upper) triangle of the last two dimensions, from `diagonal` (0 the main one, above it positive)
 * down (up); the rest is 0. */
HEED_CALL heed_tril(heed_context *ctx, const heed_tensor *x, int64_t diagonal, heed_tensor **out);
HEED_CALL heed_triu(heed_context *ctx, const heed_tensor *x, int64_t diagonal, heed_tensor **out);
/** Whether both have the same shape and the same elements. */
HEED_CALL heed_equal(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, bool *out);
/** Whether |a - b| <= absolute + relative · |b| everywhere, broadcast. */
HEED_CALL heed_allclose(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, double relative,
                        double absolute, bool equal_nan, bool *out);

/* ---- Reductions (ops/sums.c, ops/extremes.c) ---- */

/* `dims` names the ndims dimensions that are reduced (ndims 0: all of them); keepdim leaves them with size 1.
 * sum of bool and int64 is int64; mean, var and std want float32. */
HEED_CALL heed_sum(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                   heed_tensor **out);
HEED_CALL heed_mean(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                    heed_tensor **out);
/** Variance with divisor count - correction (PyTorch's default is 1). */
HEED_CALL heed_var(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, double correction,
                   bool keepdim, heed_tensor **out);
HEED_CALL heed_std(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, double correction,
                   bool keepdim, heed_tensor **out);
/** Whether any (all) elements are not 0, bool. */
HEED_CALL heed_any(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                   heed_tensor **out);
HEED_CALL heed_all(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                   heed_tensor **out);
/** The largest (smallest) along dim, with its place (int64, from 1, the first of equals; indices may be
 * NULL); dim 0: of the whole tensor, read as one row. nan counts as the largest (smallest). Errors: SHAPE (no
 * elements). */
HEED_CALL heed_max(heed_context *ctx, const heed_tensor *x, int dim, bool keepdim, heed_tensor **values,
                   heed_tensor **indices);
HEED_CALL heed_min(heed_context *ctx, const heed_tensor *x, int dim, bool keepdim, heed_tensor **values,
                   heed_tensor **indices);

/* ---- Along a dimension (ops/rows.c, ops/sort.c) ---- */

/** e^x / Σ e^x along dim, float32; a row that is all -inf gives nan. */
HEED_CALL heed_softmax(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out);
HEED_CALL heed_log_softmax(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out);
HEED_CALL heed_cumsum(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out);
/** Over the last dimension: (x - mean) / √(var + epsilon) · weight + bias; weight and bias [d] may be NULL.
 *  Source: arXiv:1607.06450. */
HEED_CALL heed_layer_norm(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                          const heed_tensor *bias, double epsilon, heed_tensor **out);
/** Over the last dimension: x / √(mean(x²) + epsilon) · weight; weight [d] may be NULL. Source:
 * arXiv:1910.07467. */
HEED_CALL heed_rms_norm(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight, double epsilon,
                        heed_tensor **out);
/** x sorted along dim, and the places (int64) that the elements came from; equal ones keep their order. */
HEED_CALL heed_sort(heed_context *ctx, const heed_tensor *x, int dim, bool descending, heed_tensor **values,
                    heed_tensor **indices);
/** The k largest (or smallest) along dim, in order, and their places. Errors: INDEX (k beyond the size). */
HEED_CALL heed_topk(heed_context *ctx, const heed_tensor *x, int64_t k, int dim, bool largest,
                    heed_tensor **values, heed_tensor **indices);

/* ---- Picking and joining (ops/index.c, ops/mask.c, ops/join.c) ---- */

/** Slices of dimension dim, in the order of `index` (int64 [k], from 1; negative from the last). */
HEED_CALL heed_index_select(heed_context *ctx, const heed_tensor *x, int dim, const heed_tensor *index,
                            heed_tensor **out);
/** out[…, i, …] = x[…, index[…, i, …], …] with i in dimension dim; index int64 with as many dimensions as x.
 */
HEED_CALL heed_gather(heed_context *ctx, const heed_tensor *x, int dim, const heed_tensor *index,
                      heed_tensor **out);
/** The elements where mask (bool, x's leading sizes) is true: [count, the rest of x's sizes]. */
HEED_CALL heed_masked_select(heed_context *ctx, const heed_tensor *x, const heed_tensor *mask,
                             heed_tensor **out);
/** Writes value (broadcast to what masked_select gives) into x where mask is true. */
HEED_CALL heed_masked_assign(heed_context *ctx, heed_tensor *x, const heed_tensor *mask,
                             const heed_tensor *value);
/** Writes value (broadcast to index's shape, then x's without the first) into x[index[…]], one after another;
 * index int64 of any shape, places of dimension 1 from 1 (negative from the last). */
HEED_CALL heed_index_assign(heed_context *ctx, heed_tensor *x, const heed_tensor *index,
                            const heed_tensor *value);
/** Every element (slice of dim) `repeats` times in place; dim 0: of x flattened. */
HEED_CALL heed_repeat_interleave(heed_context *ctx, const heed_tensor *x, int64_t repeats, int dim,
                                 heed_tensor **out);
/** The tensors one after another along dim (all other sizes equal); stack: along a new dimension dim (all
 * equal). */
HEED_CALL heed_cat(heed_context *ctx, int count, const heed_tensor *const *tensors, int dim,
                   heed_tensor **out);
HEED_CALL heed_stack(heed_context *ctx, int count, const heed_tensor *const *tensors, int dim,
                     heed_tensor **out);

/* ---- Products (ops/gemm.c, ops/matmul.c) ---- */

/** Matrix product as PyTorch's: [n]·[n], [m, k]·[k], [k]·[k, n], and […, m, k]·[…, k, n] with leading
 * dimensions that broadcast. float32 or int64. Errors: SHAPE, DTYPE (bool, no dimensions). */
HEED_CALL heed_matmul(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, heed_tensor **out);
/** Σ a · b of two tensors [n]. */
HEED_CALL heed_dot(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, heed_tensor **out);
/** x [..., d_in] · weightᵀ [d_in, d_out] + bias [d_out]; weight is [d_out, d_in], bias may be NULL. */
HEED_CALL heed_linear(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                      const heed_tensor *bias, heed_tensor **out);

/* ---- Attention (ops/attention.c) ---- */

typedef struct heed_attention_options {
  const heed_tensor
      *attn_mask;            /* bool, true takes part; or float32, added to the scaled scores; broadcasts to
                                [..., hq, l, s], fewer keys hide the rest; NULL: none */
  bool is_causal;            /* query i sees keys 1…i */
  double scale;              /* of the scores; 0: 1 / √d */
  double dropout_p;          /* of the weights; 0: none is drawn */
  heed_generator *generator; /* of the dropout; NULL: the context's */
} heed_attention_options;

/** softmax(scale · q kᵀ + mask) v, row by row. q [..., hq, l, d], k [..., hkv, s, d], v [..., hkv, s, dv],
 * float32 of any strides; hkv divides hq, query head i uses key head ceil(i · hkv / hq); leading sizes
 * broadcast; without heads two dimensions will do. options NULL: none. A query that sees no key gives zeros;
 * what a masked place holds, nan included, does not reach the output. Result [..., hq, l, dv]. Errors: SHAPE,
 * DTYPE, ARGUMENT, MEMORY. Source: arXiv:1706.03762, section 3.2.1. */
HEED_CALL heed_scaled_dot_product_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                            const heed_tensor *v, const heed_attention_options *options,
                                            heed_tensor **out);

/* ---- Modules (nn/) ---- */

/* A module is counted: it goes when the last holder releases it. It starts in training mode. Weights are
 * drawn as PyTorch's nn.Linear draws them, in the order in which the parts are listed, from generator g
 * (NULL: the default). */
HEED_API heed_module *heed_module_retain(heed_module *m);
HEED_API void heed_module_release(heed_module *m); /* NULL is allowed */
HEED_API heed_context *heed_module_context(const heed_module *m);
HEED_API const char *heed_module_class(const heed_module *m); /* "Linear", "MultiHeadAttention"… */
HEED_API bool heed_module_training(const heed_module *m);
/** Of this module and all of its parts. Dropout works in training mode only. */
HEED_API void heed_module_train(heed_module *m, bool training);

/** y = x weightᵀ + bias, weight [d_out, d_in] and bias [d_out] uniform in ±1/√d_in. x [..., d_in]. */
HEED_CALL heed_linear_new(heed_context *ctx, heed_generator *g, int64_t d_in, int64_t d_out, bool bias,
                          heed_module **out);
HEED_CALL heed_dropout_new(heed_context *ctx, double p, heed_module **out);

/** What the four attention modules are made from; fill it with heed_attention_config_init first. */
typedef struct heed_attention_config {
  int64_t d_in, d_out;
  int64_t context_length; /* the most tokens; 0: no bound (SelfAttention) */
  double dropout;         /* of the attention weights */
  int64_t num_heads;
  bool qkv_bias;
  int softmax_dim;      /* CausalAttention: the dimension of the weights that sums to 1; -1 */
  bool causal;          /* MultiHeadAttention: true */
  int64_t num_kv_heads; /* MultiHeadAttention: heads of keys and values; 0: num_heads */
  int64_t head_dim;     /* MultiHeadAttention: 0: d_out / num_heads */
  bool out_proj;        /* MultiHeadAttention: with an output projection; true */
  bool out_bias;        /* and with a bias on it; true */
  double scale;         /* MultiHeadAttention: of the scores; 0: 1 / √head_dim */
} heed_attention_config;
HEED_API void heed_attention_config_init(heed_attention_config *config);

/** x [n, d_in] or [b, n, d_in] to […, n, d_out]. */
HEED_CALL heed_self_attention_new(heed_context *ctx, heed_generator *g, const heed_attention_config *config,
                                  heed_module **out);
/** The same, each token seeing itself and those before, with dropout on the weights. */
HEED_CALL heed_causal_attention_new(heed_context *ctx, heed_generator *g, const heed_attention_config *config,
                                    heed_module **out);
/** num_heads CausalAttention heads, their outputs side by side: […, n, d_out · num_heads]. */
HEED_CALL heed_multi_head_attention_wrapper_new(heed_context *ctx, heed_generator *g,
                                                const heed_attention_config *config, heed_module **out);
/** One projection each for queries, keys and values, split into heads; then an output projection: […, n,
 * d_out]. */
HEED_CALL heed_multi_head_attention_new(heed_context *ctx, heed_generator *g,
                                        const heed_attention_config *config, heed_module **out);

/** What a forward pass may be given; zeros stand for nothing. */
typedef struct heed_forward_options {
  const heed_tensor *attn_mask;        /* as in heed_attention_options */
  const heed_tensor *key_padding_mask; /* bool [b, n] (or [n]), true is padding, which no query sees */
  heed_generator *generator;           /* of the dropout; NULL: the default */
} heed_forward_options;

/* What an attention module found on the way: scores q·k before scaling with masked places -inf, weights after
 * softmax, dropped_weights after dropout (in training with p > 0, else NULL): [b, h, n, n]; queries, keys,
 * values [b, h, n, d]. Modules of one head leave h out; without a batch b is left out. */
#define HEED_INTERNALS_LIST(X) X(scores) X(weights) X(dropped_weights) X(queries) X(keys) X(values)
typedef struct heed_attention_internals {
#define X(name) heed_tensor *name;
  HEED_INTERNALS_LIST(X)
#undef X
} heed_attention_internals;
HEED_API void heed_attention_internals_free(heed_attention_internals *internals);

/** The module applied to x. options NULL: none. internals NULL: not wanted; asking never changes a bit of
 * out. Errors: SHAPE (more tokens than context_length too), DTYPE, ARGUMENT (options that this module has
 * not), MEMORY. */
HEED_CALL heed_module_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                              heed_tensor **out, heed_attention_internals *internals);

/* The direct entries of a module, in the order in which they were made. */
typedef enum heed_entry_kind { HEED_ENTRY_PARAMETER, HEED_ENTRY_MODULE } heed_entry_kind;
typedef struct heed_entry {
  const char *name; /* "weight", "W_query", "0" */
  heed_entry_kind kind;
  heed_tensor *parameter; /* borrowed, as is module */
  heed_module *module;
} heed_entry;
HEED_API int heed_module_entry_count(const heed_module *m);
HEED_API bool heed_module_entry(const heed_module *m, int i,
                                heed_entry *out); /* i from 1; false: no such entry */

/** Puts another tensor (float32, same shape; its elements are shared) or module (of the same class and sizes;
 * it is retained) in the place of an entry. Errors: ARGUMENT (no such entry), SHAPE, DTYPE. */
HEED_CALL heed_module_set_parameter(heed_module *m, const char *name, const heed_tensor *value);
HEED_CALL heed_module_set_module(heed_module *m, const char *name, heed_module *value);

/** A setting of the module by name ("in_features", "p", "num_heads"…); false if it has none of that name. */
HEED_API bool heed_module_setting(const heed_module *m, const char *name, heed_scalar *out);

/** What PyTorch's repr prints between the parentheses: "in_features=3, out_features=2, bias=False". Writes at
 * most size bytes with the closing zero. */
HEED_API void heed_module_describe(const heed_module *m, char *text, size_t size);

/** Views of head i's columns of a MultiHeadAttention's weights, [d_in, head_dim] each: queries of the head
 * are x · query. The key and value are those of the head's group. Errors: ARGUMENT (another module), INDEX,
 * MEMORY. */
HEED_CALL heed_module_head(heed_module *m, int64_t i, heed_tensor **query, heed_tensor **key,
                           heed_tensor **value);
/** A MultiHeadAttentionWrapper on the same memory, without the output projection. Errors: ARGUMENT (another
 * module, or one that a wrapper cannot express: not causal, or with a scale of its own), MEMORY. */
HEED_CALL heed_module_split(heed_module *m, heed_module **out);

/* ---- Lua (binding/) ---- */

struct lua_State;

/** Opens the library in a Lua state and leaves its table on top of the stack: luaL_requiref(L, "heed",
 * luaopen_heed, 0). Sets no global and reads no file. The state gets a context of its own. In libheed.a and
 * in the loadable module. Tensors take their memory from the Lua state's allocator. */
HEED_API int luaopen_heed(struct lua_State *L);
/** The part of it that is written in C, on which lua/heed/init.lua builds. */
HEED_API int luaopen_heed_core(struct lua_State *L);

#ifdef __cplusplus
}
#endif
#endif
