/* heed: an attention runtime. This header is the whole interface for hosts in C, and its manual; no Lua is
 * needed.
 *
 * Everything hangs on a context, which one thread uses at a time; two contexts never meet. A function that
 * can fail returns a heed_status, which must be looked at; heed_message(ctx) then says which argument was
 * wrong and what was needed. Nothing here prints, exits or aborts, and no thread is started before
 * heed_set_num_threads asks for it; numbers in texts have a point whatever the locale. A host that unloads
 * the library frees its contexts first: their threads would go on in code that is gone. A call takes up to 80
 * KiB of the caller's stack (the forward of a module on few queries and many keys: 65 KiB), beside what
 * OpenBLAS and the host's thread-local data take; wasm-ld gives 64 unless told: -Wl,-z,stack-size=1048576.
 *
 * Threads. A context, with all tensors, modules, generators, caches and archives on it, is in one thread's
 * hands at a time; which one may change between calls. Builds with DEBUG=1 look, and give BUSY to the second
 * thread; functions without a status are not looked at. Any thread at any time may call what has no context
 * (heed_clock, names and versions, _init functions, numbers), and heed_cancel. The pool's threads are inside.
 *
 * Refusals. NULL is refused with ARGUMENT wherever it is not said to be allowed, and so are objects of
 * another context and dtypes that are none; the message names the argument, unless the context itself is
 * NULL. Functions without a status give 0, NULL, "" or false for NULL, and do nothing to it. What a comment
 * does not repeat: whatever takes memory may fail with MEMORY, whatever takes time with CANCELLED or LIMIT,
 * and arguments that do not fit each other with SHAPE, DTYPE or INDEX.
 *
 * Lifetimes. What a call returns in *out is the caller's, to be given back by the _free or _release of its
 * type; names, texts, shapes and data that are returned live as long as what they were asked of, and a
 * message until the next failure. Inputs need not outlive the call: views, modules and caches keep what they
 * share.
 *
 * Counting. As in the Lua interface, dimensions, elements, heads and tokens count from 1, and a negative
 * dimension counts from the last; so one message serves both.
 *
 * Results come last, as `heed_tensor **out`. If *out is NULL, a new tensor is stored there, which the caller
 * frees. If not, the result is written into that tensor: it must have the result's shape, a dtype that can
 * hold it, and no two elements in one place; it may be an input, or overlap one (the result is as if the
 * inputs had been copied first). After a failure *out is what it was. Two results of one call need two
 * places. Modules, caches, generators and archives are always new: what *out held before is not looked at,
 * but for archives, where it must be NULL.
 *
 * Dtypes. Operations on several tensors work in the widest of their dtypes (bool, then int64, then float32);
 * true division and the transcendental functions work in float32. Shapes broadcast as in PyTorch.
 *
 * Structs. Those that may get more fields in later versions begin with `size`, which the caller sets to the
 * sizeof of the type, as the _init functions do where there is one: heed_forward_options options = {.size =
 * sizeof options, .cache = cache}. So a program and a library of different versions understand each other:
 * what an older header has not is as if it were not set, and what a newer one has and the library does not
 * know is refused, unless it is zeros. A size of 0 is an error. All other structs (heed_allocator,
 * heed_scalar, heed_window, heed_entry) and the numbers of the enums stay as they are.
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

/* Of this header. */
#define HEED_VERSION_MAJOR  0
#define HEED_VERSION_MINOR  1
#define HEED_VERSION_PATCH  0
#define HEED_VERSION        "0.1.0"
#define HEED_VERSION_NUMBER (HEED_VERSION_MAJOR * 10000 + HEED_VERSION_MINOR * 100 + HEED_VERSION_PATCH)

/* HEED_API may be defined before: for a library of the host's own that shows no heed, as
 * __attribute__((visibility("hidden"))). */
#if !defined(HEED_API) && defined(__GNUC__) && !defined(_WIN32)
#define HEED_API __attribute__((visibility("default")))
#elif !defined(HEED_API)
#define HEED_API
#endif
#if defined(__GNUC__)
#define HEED_MUST_USE __attribute__((warn_unused_result))
#else
#define HEED_MUST_USE
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
  X(MEMORY, "memory could not be had")                                                                       \
  X(FILE, "a file is missing, broken or cannot be written")                                                  \
  X(CANCELLED, "heed_cancel stopped the call")                                                               \
  X(LIMIT, "a limit of the context does not allow it")                                                       \
  X(BUSY, "another thread is inside of the context")                                                         \
  X(MISMATCH, "header and library are of versions that do not go together")

typedef enum heed_status {
#define X(name, text) HEED_##name,
  HEED_STATUS_LIST(X)
#undef X
} heed_status;

/** The name of a status, "OK", "SHAPE"…; "?" for a number that is none. */
HEED_API const char *heed_status_name(heed_status status);
/** What it means, as the list above has it: for where there is no context to ask for a message. */
HEED_API const char *heed_status_text(heed_status status);

/* ---- Version ---- */

/** Of the library: "0.1.0", and as HEED_VERSION_NUMBER counts it. */
HEED_API const char *heed_version(void);
HEED_API int heed_version_number(void);
/** Whether a program that was compiled with the header of that HEED_VERSION_NUMBER can use this library: they
 * have the same major version, below 1.0 the same minor one, too. heed_context_new asks on its own;
 * heed_check_version(HEED_VERSION_NUMBER) is for those who want to know before. */
HEED_API bool heed_check_version(int header);

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
 * instruction set, for tests. Errors, with no context to ask for a message (heed_status_text): MEMORY;
 * ARGUMENT (HEED_CPU names none that runs here, or NULL); MISMATCH (heed_check_version says no). In C and C++
 * it is a macro that says which header the program was compiled with; the function of that name is for those
 * who have no header (ctypes, LuaJIT's FFI), and asks nothing. */
HEED_CALL heed_context_new_for(int header, const heed_allocator *allocator, heed_context **out);
HEED_CALL heed_context_new(const heed_allocator *allocator, heed_context **out);
#define heed_context_new(...) heed_context_new_for(HEED_VERSION_NUMBER, __VA_ARGS__)

/** Gives the context back. Tensors, generators and modules that are still held stay valid, and the context's
 * memory goes with the last of them. NULL is allowed. */
HEED_API void heed_context_free(heed_context *ctx);

/** What went wrong in the last call that failed on this context; "" if none did. Valid until the next
 * failure. */
HEED_API const char *heed_message(const heed_context *ctx);

/* What a context tells of by itself. FAILURE: each message as heed_message gives it, when it comes, also
 * those of calls that Lua then makes once more; WARNING: something goes another way than was asked, which may
 * be slower; INFO: what was set outside of the context. */
#define HEED_LOG_LEVEL_LIST(X) X(FAILURE) X(WARNING) X(INFO)
typedef enum heed_log_level {
#define X(name) HEED_LOG_##name,
  HEED_LOG_LEVEL_LIST(X)
#undef X
} heed_log_level;
/** message: without a line end, valid during the call. Called by the thread that uses ctx, in the middle of a
 * call: it must return, and call nothing of heed's with that context. */
typedef void heed_log_function(void *user, heed_log_level level, const char *message);
/** From now on `log` (NULL: nobody, as at first) is told. Errors: ARGUMENT. */
HEED_CALL heed_set_log(heed_context *ctx, heed_log_function *log, void *user);

/** Bytes that the context holds at present, and the most that it has held since the last heed_reset_peak. */
HEED_API size_t heed_memory_in_use(const heed_context *ctx);
HEED_API size_t heed_memory_peak(const heed_context *ctx);
HEED_API void heed_reset_peak(heed_context *ctx);

#define HEED_MAX_THREADS 1024

/** Large operations of this context may use n threads, the caller included; 1 at first. The n - 1 others are
 * started when there is work for them, sleep without, take no signals, and end with heed_context_free or the
 * next change of n; where the system refuses to start some, the others do their work. Results do not depend
 * on n. The child of a fork has one thread until it asks for more. Errors: ARGUMENT (n below 1 or above
 * HEED_MAX_THREADS), LIMIT (above the limit of threads). */
HEED_CALL heed_set_num_threads(heed_context *ctx, int64_t n);
/** The n that was asked for; less once the system has refused to start some, until n is set anew, and 1 where
 * it has no threads (WebAssembly without -pthread). */
HEED_API int heed_num_threads(const heed_context *ctx);

/** OpenBLAS multiplies matrices where heed has only scalar kernels for the processor, and if it is the
 * flavour on POSIX threads. libheed.so and heed.so load it at the first such product, for it starts threads
 * when it is loaded, and do without where it cannot be loaded; programs with libheed.a are linked with it.
 * That product tells it, for the whole process, to work with one thread, since heed divides the work itself.
 * With `keep` this context does not touch that setting, which is the host's, and uses OpenBLAS only while it
 * has one thread; heed's own kernel does the rest. */
HEED_API void heed_keep_blas_threads(heed_context *ctx, bool keep);

/** Whether blocks of 4 MiB and more ask the system for huge pages (Linux: madvise, for memory of the block
 * alone; elsewhere nothing happens), which makes the first use of large results two to three times as fast
 * and giving them back ten times. At first true with malloc and in a Lua state, false with a host's
 * allocator. */
HEED_API void heed_set_huge_pages(heed_context *ctx, bool wished);

/** What a context works with, and on; a table in Lua. */
typedef struct heed_information {
  size_t size; /* sizeof(heed_information) */
  const char *version;
  char processor[64];  /* as its maker names it: "AMD EPYC 9R14"; else the architecture */
  const char *kernels; /* the table in use: "scalar", "avx2", "avx512", "neon" */
  /* The library that multiplies matrices for the scalar kernels: "OpenBLAS"; "not loaded" before the first
   * product that needs it; "none" where the kernels do it themselves. */
  const char *blas;
  const char *blas_core; /* the processor that its kernels were written for: "SkylakeX"; "" if not known */
  int threads;
  size_t memory_in_use, memory_peak; /* as heed_memory_in_use and heed_memory_peak say */
} heed_information;
/** Fills *out, whose size is set. Errors: ARGUMENT. */
HEED_CALL heed_info(heed_context *ctx, heed_information *out);

/** Seconds on a clock that never goes back, from a moment that is the same for all calls in a process. */
HEED_API double heed_clock(void);

/* ---- Limits (core/limits.c) ---- */

/** What a context may take. A new context has no limits; 0 and false stand for none. */
typedef struct heed_limits {
  size_t size; /* sizeof(heed_limits) */
  /* Bytes that the context holds, as heed_memory_in_use counts them: MEMORY where one more block would pass
   * that. It may be less than what is held: then nothing is had until it fits. */
  size_t memory;
  double seconds; /* that one call of a script's may take, from the outermost module or function that the
                     script calls: LIMIT afterwards. Hosts in C have heed_set_deadline */
  int threads;    /* the most that heed_set_num_threads takes; with less than there are, there are so many */
  bool no_files;  /* no function opens a file: LIMIT */
  bool final;     /* heed.limit can make these tighter only: for hosts that run other people's scripts */
} heed_limits;

/** Errors: ARGUMENT (negative or not finite seconds, threads below 0 or above HEED_MAX_THREADS). */
HEED_CALL heed_set_limits(heed_context *ctx, const heed_limits *limits);
/** The limits as they are; out->size is set before. Errors: ARGUMENT. */
HEED_CALL heed_get_limits(heed_context *ctx, heed_limits *out);

/* ---- Stopping (core/stop.c) ---- */

/* Work that takes time looks every 100 µs or so whether it is to go on; a call that is stopped returns
 * CANCELLED or LIMIT, within 2 ms but for what the allocator takes to give large results back (1 ms for
 * 100 MB on huge pages, 3 on others), and can be made again. A single row of a softmax or a norm, or of
 * attention's values, is done as a whole: beyond a million elements it takes longer (20 ms, where they lie
 * apart). A save is not stopped while the system writes its last bytes to the disk. A stopped call leaves
 * nothing behind. What it was to write holds nothing to rely on, where it is a tensor of the caller's (*out,
 * or one that is changed in place): some elements are new, others old. Modules, caches, generators and files
 * are what they were before the call. */

/** From any thread, or a signal handler: the call that runs on ctx, or else the next one that computes
 * something, draws, loads or saves, returns CANCELLED, once. ctx must not be freed meanwhile; NULL is
 * allowed. */
HEED_API void heed_cancel(heed_context *ctx);
/** Takes back a cancel that no call has met yet. Not while a call runs on ctx. */
HEED_API void heed_clear_cancel(heed_context *ctx);

/** From now on ctx may work for so many seconds: a call that takes time returns LIMIT when they are over, and
 * so do all after it, until the deadline is set anew. 0: there is no deadline. Errors: ARGUMENT (negative, or
 * not finite). */
HEED_CALL heed_set_deadline(heed_context *ctx, double seconds);

/* ---- Tensors ---- */

#define HEED_MAX_DIMS 16

/* name, text, C type of an element. The first three are for arithmetic, in the order of promotion; the others
 * store weights, caches and files: they are converted (heed_to), copied, viewed, picked from and joined,
 * saved, and read by heed_linear, heed_embedding and attention, which widen them to float32 in registers;
 * every other operation refuses them. */
#define HEED_DTYPE_LIST(X)                                                                                   \
  X(BOOL, "bool", uint8_t)                                                                                   \
  X(INT64, "int64", int64_t)                                                                                 \
  X(FLOAT32, "float32", float)                                                                               \
  X(BFLOAT16, "bfloat16", uint16_t)                                                                          \
  X(FLOAT16, "float16", uint16_t)                                                                            \
  X(INT8, "int8", int8_t)

typedef enum heed_dtype {
#define X(name, text, type) HEED_##name,
  HEED_DTYPE_LIST(X)
#undef X
} heed_dtype;

/** "float32", "int64", "bool", "bfloat16"… */
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
 * with it: when the last tensor that shares it is freed, in the thread that frees it; release calls nothing
 * of this context. The elements are written to only where the tensor, or a view of it, is *out or is changed
 * in place (heed_copy, heed_fill, the _assign functions), so that memory that may only be read, a mapped file
 * or a constant, will do for inputs and weights. They may change between calls. Errors: SHAPE, ARGUMENT
 * (NULL, or data that does not lie at a multiple of an element's size), MEMORY; after an error release is not
 * called. */
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

/* In all of these, g NULL stands for the context's default generator. A tensor given as *out is filled in the
 * order in which its elements lie in memory, as PyTorch fills views. */

/** Uniform in [from, to), float32. Errors: ARGUMENT (not finite, from above to, or further apart than float32
 * reaches). */
HEED_CALL heed_uniform(heed_context *ctx, heed_generator *g, double from, double to, int ndim,
                       const int64_t *shape, heed_tensor **out);
/** Normal with the given mean and standard deviation, float32. As in PyTorch, the numbers are others where
 * *out is given and not row-major, or has fewer than 16 elements. Errors: ARGUMENT (negative std). */
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
 *  NATIVE draws in the order in which x lies in memory, MKL in row-major order; a new result is laid out like
 * x. Errors: ARGUMENT (p outside of [0, 1]), DTYPE (not float32). */
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
/** x in another dtype: an alias if it has it already, else a copy. To int64 and int8 the fraction is dropped,
 * numbers beyond the range give the nearest end, nan gives 0; to bool all but 0 is true; to bfloat16 and
 * float16 numbers are rounded to the nearest one, ties to even, by way of float32. */
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
 * equal). Of several dtypes the result has the one that holds all of them, as in PyTorch: bool, int8, int64,
 * then bfloat16 or float16 (both: float32), then float32. */
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
/** x [..., d_in] · weightᵀ [d_in, d_out] + bias [d_out]; weight is [d_out, d_in], bias may be NULL. weight is
 * float32, bfloat16 or float16, widened in registers; sums are float32. Of a weight drawn from a normal
 * distribution and made small the result differs by that part of its size (root mean square): 0.0017 with
 * bfloat16, 0.0002 with float16, 0.006 with int8 (heed_linear_int8). */
HEED_CALL heed_linear(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                      const heed_tensor *bias, heed_tensor **out);

/* Weights in int8: each row is cut into blocks of HEED_INT8_BLOCK columns (the last may be shorter); an
 * element is weight[i][j] · scale[i][(j - 1) / HEED_INT8_BLOCK + 1]. weight int8 [d_out, d_in], scale float32
 * [d_out, blocks]. */
#define HEED_INT8_BLOCK 64
/** x float32 [rows, columns] to such a pair; the scale of a block is its largest magnitude / 127, so an
 * element is off by at most half a scale. Errors: DTYPE, SHAPE, ARGUMENT (nan or inf), MEMORY. */
HEED_CALL heed_quantize_int8(heed_context *ctx, const heed_tensor *x, heed_tensor **weight,
                             heed_tensor **scale);
/** And back, to float32. */
HEED_CALL heed_dequantize_int8(heed_context *ctx, const heed_tensor *weight, const heed_tensor *scale,
                               heed_tensor **out);
/** heed_linear with such a weight. */
HEED_CALL heed_linear_int8(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                           const heed_tensor *scale, const heed_tensor *bias, heed_tensor **out);
/** Rows of weight [size, d] (float32, bfloat16, float16), widened: out [ids' shape..., d] float32; ids int64
 * from 1. Errors: INDEX (names the first id out of range), DTYPE, SHAPE, MEMORY. */
HEED_CALL heed_embedding(heed_context *ctx, const heed_tensor *ids, const heed_tensor *weight,
                         heed_tensor **out);

/* ---- Attention (ops/attention.c) ---- */

/* Which keys around its own place a query sees: key j is seen by query i if i + offset - left ≤ j ≤
 * i + offset + right; a side without a bound sees all. Zeros stand for no window. */
typedef struct heed_window {
  bool has_left, has_right;
  int64_t left, right; /* at least 0 */
} heed_window;

/* Zeros stand for nothing. A place is seen only if the mask, causality, the window and the lengths all say
 * so. offset: the past length p with past keys, kv_lengths[b] - l with lengths (it may be negative), else 0.
 */
typedef struct heed_attention_options {
  size_t size;                  /* sizeof(heed_attention_options) */
  const heed_tensor *attn_mask; /* bool, true takes part; or float32, added to the scores; broadcasts to
                                   [..., hq, l, p + s], fewer keys hide the rest; NULL: none */
  bool is_causal;               /* query i sees keys 1…i + offset */
  heed_window window;
  double scale;              /* of the scores; 0: 1 / √d */
  double softcap;            /* c > 0: scores become c · tanh(score / c), before masks and biases; 0: none */
  double dropout_p;          /* of the weights; 0: none is drawn */
  heed_generator *generator; /* of the dropout; NULL: the context's */
  const heed_tensor *kv_lengths;   /* int64, broadcasts to [batch...], from 0 to s each: keys beyond are
                                      padding; not together with past keys */
  const heed_tensor *past_key;     /* [..., hkv, p, d], put before k; both or none */
  const heed_tensor *past_value;   /* [..., hkv, p, dv], put before v */
  const heed_tensor *alibi_slopes; /* float32 [hq]: -slope · |i + offset - j| is added. arXiv:2108.12409 */
  const heed_tensor *sinks; /* float32 [hq]: a logit that takes weight and gives no value. arXiv:2309.17453 */
} heed_attention_options;

/* What attention computes on the way, for callers that ask for it; asking never changes a bit of the result.
 * What a call does not compute stays NULL.
 *   scores           q·k, -inf where hidden (modules)
 *   weights          after softmax, without the sink's share
 *   dropped_weights  after dropout (modules, in training with p > 0)
 *   logits           scale · q·k, also of hidden positions (heed_scaled_dot_product_attention)
 *   capped_logits    after softcap (heed_scaled_dot_product_attention)
 *   biased_logits    after masks, biases and windows, -inf where hidden (heed_scaled_dot_product_attention)
 *   queries, keys, values        as attention gets them, after norms and rotation (modules): [b, h, n, d],
 *                                [b, hkv, s, d] twice
 *   present_key, present_value   past and new ones together (heed_scaled_dot_product_attention):
 *                                [..., hkv, p + s, d]
 * The first six are maps [..., hq, l, p + s]. In a module with a cache, s counts its tokens and x's; with a
 * window to the left as well, at most the last left + n of them. Modules of one head have no h; without a
 * batch there is no b. */
#define HEED_ATTENTION_TAPS_LIST(X)                                                                          \
  X(scores)                                                                                                  \
  X(weights) X(dropped_weights) X(logits) X(capped_logits) X(biased_logits) X(queries) X(keys) X(values)     \
      X(present_key) X(present_value)
typedef struct heed_attention_taps {
  size_t size; /* sizeof(heed_attention_taps) */
#define X(name) heed_tensor *name;
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
} heed_attention_taps;
/** Frees what is in it, and leaves NULLs. NULL is allowed. */
HEED_API void heed_attention_taps_free(heed_attention_taps *taps);

/** softmax(scale · q kᵀ + mask) v, row by row. q [..., hq, l, d], k [..., hkv, s, d], v [..., hkv, s, dv],
 * float32 of any strides (k and v also bfloat16 or float16); hkv divides hq, query head i uses key head
 * ceil(i · hkv / hq); leading sizes broadcast; without heads two dimensions will do. options NULL: none. taps
 * NULL: not wanted; otherwise, its size set, filled with new tensors on success, as a whole. A query that
 * sees no key gives zeros, for weights too; what a masked place holds, nan included, does not reach the
 * output. Result [..., hq, l, dv]. Errors: SHAPE, DTYPE, ARGUMENT, INDEX (a length out of range), MEMORY.
 * Source: arXiv:1706.03762, section 3.2.1; the rules are those of the ONNX operator Attention, version 25. */
HEED_CALL heed_scaled_dot_product_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                            const heed_tensor *v, const heed_attention_options *options,
                                            heed_tensor **out, heed_attention_taps *taps);

/* ---- Rotary positions (attention/rope.c, attention/alibi.c) ---- */

typedef enum heed_rope_scaling {
  HEED_ROPE_UNSCALED,
  HEED_ROPE_LINEAR, /* positions divided by factor. arXiv:2306.15595 */
  HEED_ROPE_NTK,    /* base · factor^(d / (d - 2)) */
  HEED_ROPE_YARN,   /* arXiv:2309.00071; beta_fast, beta_slow, attention_factor */
  HEED_ROPE_LLAMA3  /* low_freq_factor, high_freq_factor */
} heed_rope_scaling;

/* Fill it with heed_rope_config_init first. */
typedef struct heed_rope_config {
  size_t size;      /* sizeof(heed_rope_config) */
  double base;      /* 10000 */
  bool interleaved; /* pairs (1, 2), (3, 4)…; else "half": (1, d/2 + 1), (2, d/2 + 2)… */
  int64_t dims;     /* of each head, the first ones, even; the others stay. 0: all */
  heed_rope_scaling scaling;
  double factor;                                 /* 1 */
  int64_t original_context_length;               /* YaRN, Llama 3: what the model was trained on */
  double beta_fast, beta_slow, attention_factor; /* YaRN: 32, 1, and 0 for 0.1 · ln(factor) + 1 */
  double low_freq_factor, high_freq_factor;      /* Llama 3: 1, 4 */
} heed_rope_config;
/** The values above; size is sizeof *config. */
HEED_API void heed_rope_config_init(heed_rope_config *config, size_t size);

/** x [..., n, d] turned by its positions: pair i by the angle (position - 1) · base^(-2 (i - 1) / d).
 * positions int64 from 1 up, broadcasts to [..., n] (with heads: [b, 1, n] for [b, h, n, d]); NULL: 1…n.
 * config NULL: that of heed_rope_config_init. Errors: SHAPE, DTYPE, ARGUMENT, MEMORY. Source:
 * arXiv:2104.09864. */
HEED_CALL heed_rope(heed_context *ctx, const heed_tensor *x, const heed_tensor *positions,
                    const heed_rope_config *config, heed_tensor **out);

/** The slopes of linear biases for that many heads, float32 [num_heads]: 2^(-8 i / h) for head i where h,
 * their number, is a power of two; else those of the power below, then the odd ones of the power above.
 * Errors: ARGUMENT, MEMORY. Source: arXiv:2108.12409. */
HEED_CALL heed_alibi_slopes(heed_context *ctx, int64_t num_heads, heed_tensor **out);

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
/** weight [size, d] drawn normal (0, 1); ids [...] int64 from 1 to [..., d]. Row padding_index (0: none;
 * negative: from the last) starts as zeros. */
HEED_CALL heed_embedding_new(heed_context *ctx, heed_generator *g, int64_t size, int64_t d,
                             int64_t padding_index, heed_module **out);
/** Over the last ndim dimensions, of the sizes `shape`: weight ones and bias zeros if `affine` (bias: only
 * with `bias`). PyTorch's epsilon is 1e-5. */
HEED_CALL heed_layer_norm_new(heed_context *ctx, int ndim, const int64_t *shape, double epsilon, bool affine,
                              bool bias, heed_module **out);
/** epsilon below 0: PyTorch's default, the float32 epsilon. */
HEED_CALL heed_rms_norm_new(heed_context *ctx, int ndim, const int64_t *shape, double epsilon, bool affine,
                            heed_module **out);
/** GELU: `approximate` for the tanh form. */
HEED_CALL heed_gelu_new(heed_context *ctx, bool approximate, heed_module **out);
HEED_CALL heed_silu_new(heed_context *ctx, heed_module **out);
HEED_CALL heed_relu_new(heed_context *ctx, heed_module **out);

/** While it is on, new modules draw nothing and their parameters are zeros that take no memory (views of one
 * element, not to be written to), until others are put in their place: for weights that come from a file.
 * Returns what it was. */
HEED_API bool heed_skip_init(heed_context *ctx, bool skip);

/** What the four attention modules are made from; fill it with heed_attention_config_init first. */
typedef struct heed_attention_config {
  size_t size; /* sizeof(heed_attention_config) */
  int64_t d_in, d_out;
  int64_t context_length; /* the most tokens of one call, and, but for a module with a smaller window to the
                             left, of a cache; 0: no bound (SelfAttention) */
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
  /* All of the following: MultiHeadAttention alone; zeros stand for nothing. */
  int64_t kdim, vdim; /* sizes of the tokens that keys and values are made from; 0: d_in */
  heed_window window;
  double softcap;     /* as in heed_attention_options */
  bool alibi;         /* with heed_alibi_slopes */
  bool sinks;         /* a parameter `sinks` [num_heads], zeros at first */
  bool qk_norm;       /* RMSNorm(head_dim) on each head's queries and keys: modules q_norm, k_norm */
  double qk_norm_eps; /* 0: 1e-6 */
  const heed_rope_config *rope; /* by which queries and keys are turned, copied; NULL: they are not */
} heed_attention_config;
/** The values above where one is named, else zeros; size is sizeof *config. */
HEED_API void heed_attention_config_init(heed_attention_config *config, size_t size);

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

/* The keys and values that a MultiHeadAttention has seen: [batch, hkv, length, head_dim] each. */
typedef struct heed_kv_cache heed_kv_cache;

typedef struct heed_kv_cache_config {
  size_t size;      /* sizeof(heed_kv_cache_config) */
  int64_t batch;    /* 0: 1 */
  int64_t capacity; /* tokens; more are an error that changes nothing. 0: the module's context_length; no
                       bound with a window to the left that is smaller, for then only what can still be seen
                       is kept, and a few tokens (64, or an eighth of the window) more */
  heed_dtype dtype; /* FLOAT32 (set by heed_kv_cache_config_init), BFLOAT16, FLOAT16, or INT8 with a float32
                       scale for each token and head, its largest magnitude / 127, so that an element is off
                       by half a scale at most; nan and inf make the whole of it nan */
} heed_kv_cache_config;
/** Zeros, and FLOAT32; size is sizeof *config. */
HEED_API void heed_kv_cache_config_init(heed_kv_cache_config *config, size_t size);

/** Empty, for that module (another one of the same num_kv_heads, head_dim and window may use it too); config
 * NULL: as heed_kv_cache_config_init has it. All of its memory is taken here. Errors: ARGUMENT (not a
 * MultiHeadAttention), SHAPE, DTYPE, MEMORY. */
HEED_CALL heed_kv_cache_new(heed_module *m, const heed_kv_cache_config *config, heed_kv_cache **out);
HEED_API void heed_kv_cache_free(heed_kv_cache *cache); /* NULL is allowed */
HEED_API heed_context *heed_kv_cache_context(const heed_kv_cache *cache);
HEED_API int64_t heed_kv_cache_length(const heed_kv_cache *cache);   /* tokens seen so far */
HEED_API int64_t heed_kv_cache_capacity(const heed_kv_cache *cache); /* 0: no bound */
HEED_API int64_t heed_kv_cache_batch(const heed_kv_cache *cache);
HEED_API heed_dtype heed_kv_cache_dtype(const heed_kv_cache *cache);
/** Tokens that can come before the first ones are dropped (a window) or more are refused (the capacity; that
 * a module without a window refuses more than its context_length is not counted). When no more than that have
 * come, truncate can go back to the length of now. */
HEED_API int64_t heed_kv_cache_headroom(const heed_kv_cache *cache);
/** Forgets all tokens but the first n. Errors: ARGUMENT (n below 0 or above the length, or so small that keys
 * which the window would see then are no longer there). */
HEED_CALL heed_kv_cache_truncate(heed_kv_cache *cache, int64_t n);
/** Item i becomes what item indices[i] was (int64 [batch], from 1; one may come several times), for beam
 * search. Errors: INDEX, SHAPE, DTYPE, MEMORY; then nothing has changed. */
HEED_CALL heed_kv_cache_reorder(heed_kv_cache *cache, const heed_tensor *indices);
/** A cache of its own with the same tokens. Errors: MEMORY. */
HEED_CALL heed_kv_cache_clone(const heed_kv_cache *cache, heed_kv_cache **out);

/* What a forward pass may be given; zeros stand for nothing. key, value and cache are for MultiHeadAttention.
 *
 * With key, x attends to it in the place of itself; a causal module then compares positions that count from 1
 * in both, and rope counts them so, too.
 *
 * With a cache, x's tokens are those after the cache's: their keys and values are put there, and they attend
 * to all of it. Masks are for all keys, the cache's and then x's. Passing tokens one at a time, in chunks or
 * at once gives the same numbers, but for rounding (in a causal module: others would see what is yet to
 * come). After a failure the cache is what it was. */
typedef struct heed_forward_options {
  size_t size;                         /* sizeof(heed_forward_options) */
  const heed_tensor *attn_mask;        /* as in heed_attention_options, [b, h, n, s] */
  const heed_tensor *key_padding_mask; /* bool [b, s] (or [s]), true is padding, which no query sees */
  heed_generator *generator;           /* of the dropout; NULL: the default */
  const heed_tensor *kv_lengths;       /* int64 [b]; as in heed_attention_options, so that with causality the
                                          last query stands at the last key; not together with a cache */
  const heed_tensor *key, *value;      /* cross attention: [b, s, kdim] and [b, s, vdim] (x without b: these,
                                          too); value NULL: key */
  heed_kv_cache *cache;                /* of as many items as x has (1 without b) */
} heed_forward_options;

/** The module applied to x. options NULL: none. taps NULL: not wanted; otherwise, its size set, filled with
 * new tensors on success: scores, weights, dropped_weights, queries, keys and values. Errors: SHAPE (more
 * tokens than context_length too), DTYPE, ARGUMENT (options that this module has not), MEMORY. */
HEED_CALL heed_module_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                              heed_tensor **out, heed_attention_taps *taps);

/* ---- A forward in slices of time (nn/attention/steps.c) ---- */

/* A plan of a forward pass, for hosts that must not wait for it: it is advanced until a budget of time is
 * used up, and again later, to the bits of heed_module_forward. With several threads a slice uses all of
 * them, and leaves none at work. Several plans may be open, on one module, too, one of them being advanced at
 * a time.
 *
 * A plan holds references on the module and its parts, on x and on what the options name, and on the
 * projections' weights: another part of m, another tensor for such a weight, or m's other dtype, does not
 * reach it. It reads their elements while it goes on, so that what is written into them in place between two
 * slices reaches some of the result. All of its memory is taken by heed_steps_new, but for tables of rope.
 *
 * A cache gets the new tokens with the last slice. If anything else has used it since heed_steps_new, the
 * next slice is an ARGUMENT error, and the plan has failed for good. Dropout draws from a copy of the
 * generator as heed_steps_new finds it. The generator itself is set with the last slice, as a forward leaves
 * it, unless something else has drawn from it meanwhile, which then had numbers that the plan uses, too; it
 * must live until then. A plan that is freed before its end has changed nothing. */
typedef struct heed_steps heed_steps;

/** m is a MultiHeadAttention, a SelfAttention, or a CausalAttention with its softmax over the keys; x and
 * options as for heed_module_forward, need_weights: with taps. Errors: those of heed_module_forward. */
HEED_CALL heed_steps_new(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                         bool need_weights, heed_steps **out);
/** Goes on until all is *done, or for so many seconds and some 0.1 ms more: by the smallest piece at the
 * least, even for 0; INFINITY: to the end. Once it is done it has nothing to do. After CANCELLED, LIMIT and
 * MEMORY the plan is where it was, and may go on. Errors: ARGUMENT (seconds negative or nan; the cache was
 * used), CANCELLED, LIMIT, MEMORY. */
HEED_CALL heed_steps_advance(heed_steps *steps, double seconds, bool *done);
/** How far it is, in multiply-adds, about: *done grows with each slice, and is *total when all is done, not
 * before. */
HEED_API void heed_steps_progress(const heed_steps *steps, int64_t *done, int64_t *total);
/** The result, and, where taps is not NULL (its size set), what need_weights asked for: new tensors on
 * the plan's elements. Errors: ARGUMENT (it is not done; there are no taps), MEMORY. */
HEED_CALL heed_steps_result(heed_steps *steps, heed_tensor **out, heed_attention_taps *taps);
HEED_API void heed_steps_free(heed_steps *steps); /* NULL is allowed */

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

/** Puts another tensor (of the same shape, float32; the weights of Linear and Embedding may also be bfloat16
 * or float16; its elements are shared) or module (of the same class and sizes; it is retained) in the place
 * of an entry. Errors: ARGUMENT (no such entry), SHAPE, DTYPE. */
HEED_CALL heed_module_set_parameter(heed_module *m, const char *name, const heed_tensor *value);
HEED_CALL heed_module_set_module(heed_module *m, const char *name, heed_module *value);

/** Stores the weights of all Linear and Embedding modules in m and its parts in another dtype: FLOAT32,
 * BFLOAT16, FLOAT16, or INT8, which a Linear takes as heed_quantize_int8 makes it, with a parameter
 * weight_scale behind the weight, and which leaves embeddings as they are. All other parameters stay float32,
 * as do inputs, results and sums. Weights that were one tensor stay one. All of them change or none. Errors:
 * DTYPE, ARGUMENT (nan or inf, for INT8), MEMORY. */
HEED_CALL heed_module_to(heed_module *m, heed_dtype dtype);

/** A setting of the module by name ("in_features", "p", "num_heads"…); false if it has none of that name. */
HEED_API bool heed_module_setting(const heed_module *m, const char *name, heed_scalar *out);

/** What PyTorch's repr prints between the parentheses: "in_features=3, out_features=2, bias=False". Writes at
 * most size bytes with the closing zero. */
HEED_API void heed_module_describe(const heed_module *m, char *text, size_t size);

/** Views of head i's columns (from 1; from -1 backwards) of a MultiHeadAttention's weights, [d_in, head_dim]
 * each: queries of the head are x · query. The key and value are those of the head's group. *query, *key and
 * *value must be NULL. Errors: ARGUMENT (another module), INDEX, MEMORY. */
HEED_CALL heed_module_head(heed_module *m, int64_t i, heed_tensor **query, heed_tensor **key,
                           heed_tensor **value);
/** A MultiHeadAttentionWrapper on the same memory, without the output projection. Errors: ARGUMENT (another
 * module, or one that a wrapper cannot express: not causal, or with a scale of its own), MEMORY. */
HEED_CALL heed_module_split(heed_module *m, heed_module **out);

/* ---- Files (io/) ---- */

/* Tensors by name, as a file has them. */
typedef struct heed_archive heed_archive;
HEED_API void
heed_archive_free(heed_archive *archive); /* NULL is allowed; tensors taken from it stay valid */
HEED_API int64_t heed_archive_count(const heed_archive *archive);
HEED_API const char *heed_archive_name(const heed_archive *archive,
                                       int64_t i); /* from 1; NULL: no such entry */
/** A new tensor on the elements of entry i, which the caller frees. Errors: INDEX, ARGUMENT, MEMORY. */
HEED_CALL heed_archive_tensor(const heed_archive *archive, int64_t i, heed_tensor **out);
/** Text that the file carries besides (safetensors' __metadata__): pair i from 1; false: no such pair. */
HEED_API bool heed_archive_metadata(const heed_archive *archive, int64_t i, const char **key,
                                    const char **value);

/** A .safetensors file (mapped: read when used, and copied where written to), a sharded one by its
 * .safetensors.index.json, or an .npz; another name is known by its first bytes. float32, float16, bfloat16,
 * int64, int8, bool as they are; int32 becomes int64, float64 (npz) float32; others are refused. The bytes of
 * a mapped file are not the context's memory, and it must not be cut short while tensors of it are in use;
 * bool, int32 and what is misaligned in it is copied. Errors: FILE (missing, or broken: what is wrong and
 * where), ARGUMENT, MEMORY. */
HEED_CALL heed_load_archive(heed_context *ctx, const char *path, heed_archive **out);
/** A .npy file, as a tensor of its own, row-major. Errors: FILE, ARGUMENT, MEMORY. */
HEED_CALL heed_load_npy(heed_context *ctx, const char *path, heed_tensor **out);

/** The tensors under these names (distinct, UTF-8) as .safetensors or .npz (stored), by the end of path;
 * metadata: `pairs` keys and values in turn, for safetensors only, NULL if 0. Written beside path, into a
 * file .heed-….tmp, and renamed: whole or not at all. A killed process leaves that file behind; the next save
 * of the path removes it. What path links to is replaced, and keeps its mode.
 * Errors: FILE, ARGUMENT, DTYPE (bfloat16, which .npz and .npy have not), MEMORY. */
HEED_CALL heed_save_archive(heed_context *ctx, const char *path, int64_t count, const char *const *names,
                            const heed_tensor *const *tensors, int64_t pairs, const char *const *metadata);
HEED_CALL heed_save_npy(heed_context *ctx, const char *path, const heed_tensor *x);

/* ---- Lua (binding/) ---- */

struct lua_State;

/** Opens the library in a Lua state and leaves its table on top of the stack: luaL_requiref(L, "heed",
 * luaopen_heed, 0). Sets no global and reads no file. The state gets a context of its own. In libheed.a and
 * in the loadable module. Tensors take their memory from the Lua state's allocator. */
HEED_API int luaopen_heed(struct lua_State *L);
/** The context of a Lua state, with which its host sets limits and cancels; it goes with the state. NULL if
 * the library is not open there. Called as Lua's functions are, by the thread that uses L. Whoever calls
 * other functions with it, under a limit of seconds, begins with heed_set_deadline: the time of the script's
 * last call may be over. */
HEED_API heed_context *heed_lua_context(struct lua_State *L);
/** The part of it that is written in C, on which lua/heed/init.lua builds. */
HEED_API int luaopen_heed_core(struct lua_State *L);

#ifdef __cplusplus
}
#endif
#endif
