/* heed: an embedded attention runtime. This header is the complete C interface and its manual. It needs no
 * Lua.
 *
 * Every object belongs to a context. Most functions return a heed_status, which must be checked; after a
 * failure heed_message(ctx) names the invalid argument, what it was and what it must be. The
 * library never prints, exits or aborts, and starts no thread before heed_set_num_threads. Numbers in texts
 * use a decimal point in every locale. Before it unloads the library, a host must free all contexts, whose
 * threads run the library's code. A call needs up to 80 KiB of stack, plus that of OpenBLAS; wasm-ld provides
 * 64 KiB unless it is linked with -Wl,-z,stack-size=1048576.
 *
 * Threads. A context, with all its tensors, modules, generators, caches and archives, is used by one thread
 * at a time; which one may change between calls. Builds with DEBUG=1 check this and return BUSY to the second
 * thread (functions without a status are not checked). Two contexts are independent of each other. Functions
 * without a context (heed_clock, names and versions, _init functions, scalars) and heed_cancel may be called
 * by any thread at any time. The threads that heed starts itself are not visible to the host.
 *
 * Invalid arguments. NULL returns ARGUMENT unless a comment allows it, and so do objects of another context
 * and invalid dtypes; the message names the argument, unless the context itself is NULL. Functions without a
 * status return 0, NULL, "" or false for NULL, and ignore it. Comments do not repeat that any function that
 * allocates may return MEMORY, that any function that takes time may return CANCELLED or LIMIT, and that
 * arguments that do not match each other return SHAPE, DTYPE or INDEX.
 *
 * Lifetimes. The caller owns what a call stores in *out and frees it with the _free or _release function of
 * its type. Returned names, texts, shapes and data are valid as long as the object that they come from; a
 * message is valid until the next failure. Inputs may be freed after the call: views, modules and caches hold
 * references to what they use.
 *
 * Counting. Dimensions, elements, heads and tokens count from 1, as in the Lua interface, so that messages
 * are right for both. Negative dimensions count from the last one.
 *
 * Results are stored in the last arguments, `heed_tensor **out`. If *out is NULL, a new tensor is stored
 * there, which the caller frees. Otherwise the result is written into *out, which must have the shape of the
 * result, a dtype that can hold it, and no two elements at the same address. *out may be an input or overlap
 * one; the result is as if the inputs had been copied first. On failure *out does not change, except as
 * described under Cancellation. Two results of a call need two different tensors. Modules, caches and
 * generators are always new, and the previous value of *out is ignored; for archives it must be NULL.
 *
 * Dtypes. Operations on several tensors use the widest of their dtypes (bool, then int64, then float32); true
 * division and transcendental functions use float32. Shapes broadcast as in PyTorch.
 *
 * Structs. A struct that may get new fields in later versions begins with `size`, which the caller sets to
 * the sizeof of the type, by hand or with the struct's _init function: heed_forward_options options = {.size
 * = sizeof options, .cache = cache}. This keeps programs and libraries of different versions compatible:
 * fields that an older header does not have count as unset, and fields that an older library does not know
 * must be zero. A size of 0 is an error. The other structs (heed_allocator, heed_scalar, heed_window,
 * heed_entry, heed_gguf_value) and the values of enums never change.
 *
 * Shape legend: b batch, h heads, hq query heads, hkv key and value heads, n tokens, l queries, s keys, d
 * size of a head, dv size of a value. */
#ifndef HEED_H
#define HEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEED_VERSION_MAJOR  0
#define HEED_VERSION_MINOR  1
#define HEED_VERSION_PATCH  0
#define HEED_VERSION        "0.1.0"
#define HEED_VERSION_NUMBER (HEED_VERSION_MAJOR * 10000 + HEED_VERSION_MINOR * 100 + HEED_VERSION_PATCH)

/* Define HEED_API before including this header to change the visibility of the functions, for instance to
 * __attribute__((visibility("hidden"))) in a library that must not export heed. Define HEED_DLL as 1 on
 * Windows to build heed.c as a DLL, and in programs that use one, where it saves a jump for each call. */
#if !defined(HEED_API) && defined(_WIN32) && defined(HEED_DLL)
#if defined(HEED__ONE_FILE)
#define HEED_API __declspec(dllexport)
#else
#define HEED_API __declspec(dllimport)
#endif
#elif !defined(HEED_API) && defined(__GNUC__) && !defined(_WIN32)
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
  X(ARGUMENT, "an argument is missing, unknown, released or out of range")                                   \
  X(SHAPE, "sizes do not match")                                                                             \
  X(DTYPE, "the operation is not defined for this dtype")                                                    \
  X(INDEX, "a dimension or an index is out of range")                                                        \
  X(MEMORY, "out of memory")                                                                                 \
  X(FILE, "a file is missing, damaged or cannot be written")                                                 \
  X(CANCELLED, "cancelled by heed_cancel")                                                                   \
  X(LIMIT, "a limit of the context was exceeded")                                                            \
  X(BUSY, "another thread is using the context")                                                             \
  X(MISMATCH, "the versions of header and library are incompatible")

typedef enum heed_status {
#define X(name, text) HEED_##name,
  HEED_STATUS_LIST(X)
#undef X
} heed_status;

/** The name of a status: "OK", "SHAPE"…; "?" for an invalid one. */
HEED_API const char *heed_status_name(heed_status status);
/** The description in the list above, for when there is no context to ask for a message. */
HEED_API const char *heed_status_text(heed_status status);

/* ---- Version ---- */

/** The version of the library: as text ("0.1.0") and as a number like HEED_VERSION_NUMBER. */
HEED_API const char *heed_version(void);
HEED_API int heed_version_number(void);
/** Whether a program compiled with the header of that HEED_VERSION_NUMBER can use this library: the major
 * versions must be equal, and below 1.0 the minor versions, too. heed_context_new checks this itself. */
HEED_API bool heed_check_version(int header);

/* ---- Context ---- */

typedef struct heed_context heed_context;
typedef struct heed_tensor heed_tensor;
typedef struct heed_generator heed_generator;
typedef struct heed_module heed_module;

/** A memory allocator. allocate returns NULL when it is out of memory; blocks need the alignment of malloc.
 * release receives the size that was requested. */
typedef struct heed_allocator {
  void *(*allocate)(void *user, size_t bytes);
  void (*release)(void *user, void *block, size_t bytes);
  void *user;
} heed_allocator;

/* The seed of generators that are given none. It is PyTorch's, so that torch.Generator() draws the same
 * numbers. */
#define HEED_DEFAULT_SEED 67280421310721

/** A new context that uses `allocator` (copied; NULL: malloc and free). Its default generator has the seed
 * HEED_DEFAULT_SEED. The environment variable HEED_CPU selects the kernels of an instruction set
 * (heed_information.kernels names it), for tests. Errors, described by heed_status_text: MEMORY; ARGUMENT
 * (NULL, or HEED_CPU is invalid or not supported by the processor); MISMATCH (see heed_check_version). In C
 * and C++ heed_context_new is a macro that passes the version of the header; the function of that name checks
 * no version, for callers without a header (ctypes, LuaJIT's FFI). */
HEED_CALL heed_context_new_for(int header, const heed_allocator *allocator, heed_context **out);
HEED_CALL heed_context_new(const heed_allocator *allocator, heed_context **out);
#define heed_context_new(...) heed_context_new_for(HEED_VERSION_NUMBER, __VA_ARGS__)

/** Frees the context. Tensors, generators and modules that are still referenced remain valid; the context's
 * memory is freed with the last of them. NULL is allowed. */
HEED_API void heed_context_free(heed_context *ctx);

/** The message of the last call that failed on this context; "" if none did. Valid until the next failure. */
HEED_API const char *heed_message(const heed_context *ctx);

/* What a context logs. FAILURE: each message of heed_message, including those of calls that Lua retries;
 * WARNING: a request was met in another, possibly slower way; INFO: settings that come from outside of the
 * context. */
#define HEED_LOG_LEVEL_LIST(X) X(FAILURE) X(WARNING) X(INFO)
typedef enum heed_log_level {
#define X(name) HEED_LOG_##name,
  HEED_LOG_LEVEL_LIST(X)
#undef X
} heed_log_level;
/** message: without a newline, valid during the call. Called by the thread that uses ctx, in the middle of a
 * call; it must return, and must not call functions with that context. */
typedef void heed_log_function(void *user, heed_log_level level, const char *message);
/** Sets the log function; NULL, the initial value, turns logging off. Errors: ARGUMENT. */
HEED_CALL heed_set_log(heed_context *ctx, heed_log_function *log, void *user);

/** Bytes that the context has allocated, now and at most since the last heed_reset_peak. */
HEED_API size_t heed_memory_in_use(const heed_context *ctx);
HEED_API size_t heed_memory_peak(const heed_context *ctx);
HEED_API void heed_reset_peak(heed_context *ctx);

#define HEED_MAX_THREADS 1024

/** Large operations of this context may use n threads, including the caller; the initial value is 1. The
 * other n - 1 threads are started when they are first needed, sleep while there is no work, block all
 * signals, and end with heed_context_free or the next change of n. If the system cannot start some of them,
 * the others do their work. Results do not depend on n. The child of a fork uses one thread until it sets n
 * again. Errors: ARGUMENT (n below 1 or above HEED_MAX_THREADS), LIMIT (n above the limit of threads). */
HEED_CALL heed_set_num_threads(heed_context *ctx, int64_t n);
/** The n that was set; less if the system could not start all threads, until n is set again; 1 on systems
 * without threads (WebAssembly without -pthread). */
HEED_API int heed_num_threads(const heed_context *ctx);

/** heed uses OpenBLAS (its build for POSIX threads) for large matrix products on processors for which it has
 * only scalar kernels. libheed.so and heed.so load it at the first such product, since it starts threads when
 * it is loaded, and work without it if it cannot be loaded; programs that use libheed.a are linked with it.
 * At that product heed sets OpenBLAS to one thread, for the whole process, because heed divides the work
 * itself. With `keep` this context leaves the setting to the host, and uses OpenBLAS only while it is set to
 * one thread, otherwise heed's own kernel. */
HEED_API void heed_keep_blas_threads(heed_context *ctx, bool keep);

/* How linear, matmul and attention multiply, as in PyTorch's set_float32_matmul_precision. HIGHEST, the
 * initial value: in float32, to which low-precision weights are widened. HIGH: weights in bfloat16, int8 and
 * blocked dtypes are multiplied by the processor's instructions for narrow numbers, for which x is rounded,
 * too: to bfloat16, or for int8 to 8 bits in blocks of HEED_INT8_BLOCK elements; for blocked dtypes to
 * either. MEDIUM: float32 and float16 weights as well, and both operands of large float32 matmul products,
 * also those of gradients, rounded to bfloat16. Attention without other masks than causality, windows and
 * lengths is computed in bfloat16, with HIGH where keys and values are bfloat16 or int8; what training and
 * taps need, in float32. */
#define HEED_MATMUL_PRECISION_LIST(X) X(HIGHEST, "highest") X(HIGH, "high") X(MEDIUM, "medium")
typedef enum heed_matmul_precision {
#define X(name, text) HEED_PRECISION_##name,
  HEED_MATMUL_PRECISION_LIST(X)
#undef X
} heed_matmul_precision;
/** A processor without the instructions computes as with HIGHEST. Fewer than 8 rows: int8 and blocked weights
 * are multiplied as integers, x rounded to 8 bits, others as with HIGHEST. Results do not depend on the
 * number of threads. Except with MEDIUM, gradients are computed in float32. On Linux the process is permitted
 * to use AMX where the processor has it. Errors: ARGUMENT. */
HEED_CALL heed_set_matmul_precision(heed_context *ctx, heed_matmul_precision precision);
HEED_API heed_matmul_precision heed_get_matmul_precision(const heed_context *ctx);

/** Whether heed requests huge pages for blocks of 4 MiB and more (Linux: madvise on the block alone; no
 * effect elsewhere). They make the first use of large results two to three times as fast, and freeing them
 * ten times. The initial value is true with malloc and in Lua states, false with a host's allocator. */
HEED_API void heed_set_huge_pages(heed_context *ctx, bool wished);

/** Released blocks of 64 KiB and more, up to `bytes` in all, stay with the context for results of the same
 * size; 0 returns them to the allocator. Together with the memory in use they never exceed its peak, nor the
 * memory limit; heed_reset_peak and heed_set_limits return them. The initial value is 256 MiB with malloc and
 * in Lua states with Lua's own allocator, 0 with a host's. */
HEED_API void heed_set_kept_memory(heed_context *ctx, size_t bytes);

/** What a context uses and runs on; a table in Lua. */
typedef struct heed_information {
  size_t size; /* sizeof(heed_information) */
  const char *version;
  char processor[64];  /* its name: "AMD EPYC 9R14"; if unknown, the architecture */
  const char *kernels; /* the kernels in use, by instruction set: "scalar", "avx2" … */
  /* The library for matrix products: "OpenBLAS"; "not loaded" before the first product that needs it; "none"
   * if heed's own kernels compute all products. */
  const char *blas;
  const char *blas_core; /* the processor that its kernels were written for: "SkylakeX"; "" if unknown */
  int threads;
  size_t memory_in_use, memory_peak; /* bytes, as heed_memory_in_use and heed_memory_peak */
  size_t memory_kept;                /* bytes of released blocks (heed_set_kept_memory) */
} heed_information;
/** Fills *out, whose size must be set. Errors: ARGUMENT. */
HEED_CALL heed_info(heed_context *ctx, heed_information *out);

/** Seconds on a monotonic clock, from a start that is the same for the whole process. */
HEED_API double heed_clock(void);

/* ---- Limits (core/limits.c) ---- */

/** Limits of a context. Initially there are none; 0 and false mean no limit. */
typedef struct heed_limits {
  size_t size;    /* sizeof(heed_limits) */
  size_t memory;  /* bytes, as heed_memory_in_use counts them. An allocation that would exceed it returns
                     MEMORY.  It may be set below what is in use. */
  double seconds; /* for one call of a Lua script, measured from the outermost module or function that the
                     script calls; then LIMIT. C hosts use heed_set_deadline instead. */
  int threads;    /* the maximum of heed_set_num_threads; a larger number in use is reduced to it */
  bool no_files;  /* functions that open files return LIMIT */
  bool final;     /* heed.limit can only lower the limits, for hosts that run untrusted scripts */
} heed_limits;

/** Errors: ARGUMENT (seconds negative or not finite, threads below 0 or above HEED_MAX_THREADS). */
HEED_CALL heed_set_limits(heed_context *ctx, const heed_limits *limits);
/** The current limits; out->size must be set. Errors: ARGUMENT. */
HEED_CALL heed_get_limits(heed_context *ctx, heed_limits *out);

/* ---- Stopping (core/cancel.c) ---- */

/* Long calls check for cancellation every 100 µs or so. A call that is stopped returns CANCELLED or LIMIT
 * within 2 ms, plus the time that the allocator needs to free large results (100 MB: 1 ms with huge pages, 3
 * ms without). A single row of a softmax, a norm or attention's values is computed as a whole, which takes
 * longer than that beyond a million elements (20 ms if they are strided). A save is not stopped while the
 * system writes its last bytes to the disk.
 *
 * A stopped call can be repeated: modules, caches, generators and files are as before the call. The exception
 * is a tensor of the caller's that it was writing (*out, or one changed in place), which holds a mixture of
 * old and new elements. */

/** Stops the call that is running on ctx, or the next one that computes, draws, loads or saves: it returns
 * CANCELLED, once. Any thread and signal handlers may call this, while ctx must not be freed. NULL is
 * allowed.
 */
HEED_API void heed_cancel(heed_context *ctx);
/** Withdraws a cancellation that has not stopped any call yet. Must not be called while a call runs on ctx.
 */
HEED_API void heed_clear_cancel(heed_context *ctx);

/** Starts a time budget for ctx: after that many seconds, long calls return LIMIT until the deadline is set
 * anew. 0 removes the deadline. Errors: ARGUMENT (negative or not finite). */
HEED_CALL heed_set_deadline(heed_context *ctx, double seconds);

/** For host functions that wait: CANCELLED or LIMIT if a call on ctx must stop now, with a message that
 * begins with the name `function`. A cancellation is thereby consumed. */
HEED_CALL heed_check_stop(heed_context *ctx, const char *function);

/** Has poll(user) called during long calls on ctx: by the caller's thread, at the first cancellation check
 * that comes `seconds` or more after the last one. 0.001 suits messages between machines that make no
 * progress by themselves. Results keep their bits. The function must return, should take a few microseconds,
 * and must not use ctx or its objects, except by heed_cancel. NULL for poll: none. Errors: ARGUMENT (seconds
 * negative or not finite). */
HEED_CALL heed_set_poll(heed_context *ctx, double seconds, void (*poll)(void *user), void *user);

/* ---- Tensors ---- */

#define HEED_MAX_DIMS 16

/* name, text, C type of an element. Arithmetic is defined for the first three, in the order of promotion. The
 * others store weights, caches and files: they can be converted (heed_to), copied, viewed, indexed, joined
 * and saved, and heed_linear, heed_embedding and attention read them, widened to float32 in registers. All
 * other operations return DTYPE for them. */
#define HEED_DTYPE_LIST(X)                                                                                   \
  X(BOOL, "bool", uint8_t)                                                                                   \
  X(INT64, "int64", int64_t)                                                                                 \
  X(FLOAT32, "float32", float)                                                                               \
  X(BFLOAT16, "bfloat16", uint16_t)                                                                          \
  X(FLOAT16, "float16", uint16_t)                                                                            \
  X(INT8, "int8", int8_t)

/* name, text, elements and bytes of a block: quantized weights, byte for byte as in GGUF files. The last size
 * of a tensor is a multiple of the elements, and its last dimension is contiguous; shapes and strides count
 * elements, and data has no alignment. heed_to widens them to float32, bfloat16 or float16; heed_linear and
 * heed_embedding read them as weights, heed_select and heed_narrow (not of the last dimension), heed_clone
 * and heed_contiguous keep them. All other operations return DTYPE for them. */
#define HEED_BLOCK_DTYPE_LIST(X)                                                                             \
  X(Q4_0, "q4_0", 32, 18)                                                                                    \
  X(Q4_1, "q4_1", 32, 20)                                                                                    \
  X(Q5_0, "q5_0", 32, 22)                                                                                    \
  X(Q5_1, "q5_1", 32, 24)                                                                                    \
  X(Q8_0, "q8_0", 32, 34)                                                                                    \
  X(Q4_K, "q4_k", 256, 144)                                                                                  \
  X(Q5_K, "q5_k", 256, 176)                                                                                  \
  X(Q6_K, "q6_k", 256, 210)

typedef enum heed_dtype {
#define X(name, text, type) HEED_##name,
  HEED_DTYPE_LIST(X)
#undef X
#define X(name, text, elements, bytes) HEED_##name,
      HEED_BLOCK_DTYPE_LIST(X)
#undef X
} heed_dtype;

/** "float32", "int64", "bool", "bfloat16"… */
HEED_API const char *heed_dtype_name(heed_dtype dtype);

/** A number with its dtype. */
typedef struct heed_scalar {
  heed_dtype dtype;
  union {
    double number;   /* FLOAT32 */
    int64_t integer; /* INT64; BOOL: 0 or 1 */
  } as;
} heed_scalar;

HEED_API heed_scalar heed_number(double value);
HEED_API heed_scalar heed_integer(int64_t value);
HEED_API heed_scalar heed_boolean(bool value);

/* *out must be NULL in these three functions. */

/** A tensor of the given sizes, its elements uninitialised. Errors: SHAPE (negative sizes, more than
 * HEED_MAX_DIMS, an overflow of their product), MEMORY. */
HEED_CALL heed_tensor_new(heed_context *ctx, heed_dtype dtype, int ndim, const int64_t *shape,
                          heed_tensor **out);

/** A row-major tensor on the host's memory. `release` (may be NULL) is called when the last tensor that
 * shares the memory is freed, by the thread that frees it; until then the memory must stay valid. release
 * must not call functions with this context. heed writes to the memory only through tensors that are *out or
 * are changed in place (heed_copy, heed_fill, the _assign functions), so read-only memory (mapped files,
 * constants) can serve for inputs and weights. The host may change the elements between calls. Errors: SHAPE,
 * ARGUMENT (NULL, or data not aligned to the size of an element), MEMORY; after an error release is not
 * called. */
HEED_CALL heed_tensor_from_memory(heed_context *ctx, heed_dtype dtype, int ndim, const int64_t *shape,
                                  void *data, void (*release)(void *user, void *data), void *user,
                                  heed_tensor **out);

/** Another tensor that shares the elements of x; a parameter if x is one. Errors: MEMORY. */
HEED_CALL heed_tensor_alias(heed_context *ctx, const heed_tensor *x, heed_tensor **out);

/** Frees the tensor, and its elements with the last tensor that shares them. NULL is allowed. */
HEED_API void heed_tensor_free(heed_tensor *x);

HEED_API heed_context *heed_tensor_context(const heed_tensor *x);
HEED_API heed_dtype heed_tensor_dtype(const heed_tensor *x);
HEED_API int heed_tensor_ndim(const heed_tensor *x);
HEED_API int64_t heed_tensor_numel(const heed_tensor *x);
HEED_API const int64_t *heed_tensor_shape(const heed_tensor *x); /* ndim sizes */
HEED_API const int64_t *
heed_tensor_stride(const heed_tensor *x);                      /* ndim strides in elements, none negative */
HEED_API void *heed_tensor_data(const heed_tensor *x);         /* the first element */
HEED_API bool heed_tensor_is_contiguous(const heed_tensor *x); /* row-major without gaps */

/** Whether the tensor is marked as a parameter (nn.Parameter), as modules mark theirs. */
HEED_API bool heed_tensor_is_parameter(const heed_tensor *x);
HEED_API void heed_tensor_set_parameter(heed_tensor *x, bool parameter);

/* ---- Gradients (grad/) ---- */

/* While a context records, operations whose inputs want a gradient remember, in nodes that hang on their
 * results, what a backward pass needs. A node is freed with the last tensor that it leads to. A leaf is a
 * tensor that was not computed by a recorded operation; parameters are leaves that want a gradient from the
 * beginning. Recording is off until it is turned on, and then costs nothing where no input wants a gradient.
 *
 * Gradients are float32 tensors of the shape of their tensor, also where that is bfloat16 or float16. They
 * are not recorded themselves: there are no second derivatives. Writing in place to a tensor that a node has
 * saved makes the backward pass fail with a message that names both operations; to a leaf that wants a
 * gradient it is an error while operations are recorded. The host's own writes (heed_tensor_data) are not
 * noticed. */

/** Turns recording on or off; returns what it was. */
HEED_API bool heed_set_recording(heed_context *ctx, bool on);
HEED_API bool heed_is_recording(const heed_context *ctx);

/** Whether a gradient of x is wanted: x is a leaf for which it was asked, or was computed from such. */
HEED_API bool heed_tensor_requires_grad(const heed_tensor *x);
/** Asks for a gradient of the leaf x and of the aliases that are made of it afterwards, or no more; of a
 * parameter, of all its aliases. A detached tensor gets one of its own. Errors: DTYPE (not float32), ARGUMENT
 * (on is false, and x was computed: use heed_tensor_detach), MEMORY. */
HEED_CALL heed_tensor_require_grad(heed_tensor *x, bool on);
/** Whether no recorded operation computed x. */
HEED_API bool heed_tensor_is_leaf(const heed_tensor *x);
/** What computed x, as PyTorch names it ("MulBackward0"); NULL for a leaf. */
HEED_API const char *heed_tensor_grad_fn(const heed_tensor *x);
/** The gradient of a leaf, or of a tensor that keeps its own; NULL: none yet. Borrowed, until the next call
 * that changes it. */
HEED_API const heed_tensor *heed_tensor_grad(const heed_tensor *x);
/** Replaces the gradient of a leaf, whose elements are shared; NULL removes it. Errors: SHAPE, DTYPE,
 * ARGUMENT (x was computed), MEMORY. */
HEED_CALL heed_tensor_set_grad(heed_tensor *x, const heed_tensor *grad);
/** Makes a tensor that was computed keep its gradient, too. Errors: ARGUMENT (x does not require one). */
HEED_CALL heed_tensor_retain_grad(heed_tensor *x);
/** Another tensor that shares the elements of x and does not require a gradient. */
HEED_CALL heed_tensor_detach(heed_context *ctx, const heed_tensor *x, heed_tensor **out);

/* Called in a backward pass with the gradient of a tensor, borrowed, before it is used. May store another
 * one, new, float32 and of the same shape, in *out, which heed takes over. May call functions of heed. */
typedef heed_status heed_gradient_hook(void *user, const heed_tensor *gradient, heed_tensor **out);
/** Adds a hook to x, which must want a gradient; *id is for removing it, and is not used again. release (may
 * be NULL) is called when the hook is removed or the graph freed. Errors: ARGUMENT, MEMORY; then release is
 * not called. */
HEED_CALL heed_tensor_add_hook(heed_tensor *x, heed_gradient_hook *hook, void (*release)(void *user),
                               void *user, int64_t *id);
HEED_API void heed_tensor_remove_hook(heed_tensor *x, int64_t id);

typedef struct heed_backward_options {
  size_t size;         /* sizeof(heed_backward_options) */
  bool retain_graph;   /* what nodes saved stays, so that the pass can be repeated */
  bool detect_anomaly; /* a gradient with nan is an error that names the operation that made it */
} heed_backward_options;

/** Adds the gradients of the sum over i of y[i] · dy[i] to those of the leaves. dy[i] (float32, of the shape
 * of y[i]) may be NULL, and so may dy, for a y[i] of one element: 1. options NULL: none. After an error,
 * MEMORY, LIMIT and CANCELLED included, every gradient is as before, and the pass can be repeated. Errors:
 * ARGUMENT (y[i] does not require a gradient; saved tensors were freed or changed; a backward pass is
 * running), SHAPE, DTYPE. */
HEED_CALL heed_backward(heed_context *ctx, int count, const heed_tensor *const *y,
                        const heed_tensor *const *dy, const heed_backward_options *options);
/** The gradients with respect to x[0…nx - 1] as new tensors, in dx; the gradients of leaves do not change.
 * dx[i] is NULL if y does not depend on x[i]. Errors: as heed_backward; ARGUMENT (x[i] does not require a
 * gradient). */
HEED_CALL heed_grad(heed_context *ctx, int ny, const heed_tensor *const *y, const heed_tensor *const *dy,
                    int nx, const heed_tensor *const *x, heed_tensor **dx,
                    const heed_backward_options *options);

/* A backward pass in slices of time, for programs that must not stand still. Its result is that of
 * heed_backward, bit for bit; the gradients of leaves change at its end, all of them or, after an error,
 * none. Between two slices everything may be used, the graph by other passes, too. */
typedef struct heed_backward_steps heed_backward_steps;
/** Begins a pass; the arguments and errors are those of heed_backward. */
HEED_CALL heed_backward_steps_new(heed_context *ctx, int count, const heed_tensor *const *y,
                                  const heed_tensor *const *dy, const heed_backward_options *options,
                                  heed_backward_steps **out);
/** Goes on for that many seconds, at least through one operation, which is not divided. Errors: as
 * heed_backward; after one the pass cannot go on, and another one can begin. */
HEED_CALL heed_backward_steps_advance(heed_backward_steps *steps, double seconds, bool *done);
/** The operations that are done, of all. Either may be NULL. */
HEED_API void heed_backward_steps_progress(const heed_backward_steps *steps, int64_t *done, int64_t *total);
HEED_API void heed_backward_steps_free(heed_backward_steps *steps); /* NULL is allowed; nothing changes */

/* An operation of the host's with a gradient. */
typedef struct heed_function {
  size_t size;      /* sizeof(heed_function) */
  const char *name; /* "Clip"; copied */
  /* dy: the gradients of the results, NULL where there is none. Stores new gradients of the inputs, float32
   * of the shapes of the inputs, in dx, which heed takes over, or leaves NULL for none. May call functions of
   * heed. */
  heed_status (*backward)(void *user, int outputs, const heed_tensor *const *dy, int inputs,
                          heed_tensor **dx);
  void (*release)(void *user); /* called when the node is freed; NULL: nothing to release */
  void *user;
} heed_function;
/** Records that f computed y[0…outputs - 1] from x[0…inputs - 1]; y, new tensors of real numbers, then lead
 * to x. Has no effect, and returns OK with *recorded false, if nothing is recorded or no x wants a gradient:
 * f's release is then not called. Errors: ARGUMENT, DTYPE, MEMORY. */
HEED_CALL heed_record(heed_context *ctx, const heed_function *f, int inputs, const heed_tensor *const *x,
                      int outputs, heed_tensor *const *y, bool *recorded);

/* ---- Optimisers (grad/optimizers.c, grad/clip.c) ---- */

/* One step of an optimiser over all of a model's parameters, in one pass over memory, with PyTorch's numbers
 * and defaults. Of `count` parameters x[i], float32 of any strides, each is changed by its gradient dx[i], of
 * its shape; x[i] is left as it is where dx[i] is NULL, or where dx is NULL and heed_tensor_grad(x[i]) is.
 * The states are tensors of the shape of their parameter, zeros at first, one for each parameter with a
 * gradient, which the step changes as well; steps[i], 0 at first, counts the steps of x[i].
 *
 * All or nothing: after an error nothing has changed, and what has begun is not stopped by a limit or by
 * heed_cancel; those are checked before. Nothing is recorded. The bits of the result depend neither on the
 * number of threads nor on the processor.
 *
 * Errors: ARGUMENT (an option out of range; x[i] was computed, has elements that share memory, or is there
 * twice), DTYPE, SHAPE, MEMORY, LIMIT, CANCELLED. Initialise the options with their init function; the
 * comments give the defaults. options NULL: the defaults. */

typedef struct heed_sgd_options {
  size_t size; /* sizeof(heed_sgd_options) */
  double lr;   /* 1e-3 */
  double momentum, dampening, weight_decay;
  bool nesterov; /* needs a momentum, and no dampening */
  bool maximize; /* the step goes up instead of down */
} heed_sgd_options;
HEED_API void heed_sgd_options_init(heed_sgd_options *options, size_t size);
/** momentum may be NULL if options->momentum is 0. */
HEED_CALL heed_sgd_step(heed_context *ctx, int64_t count, heed_tensor *const *x, const heed_tensor *const *dx,
                        heed_tensor *const *momentum, int64_t *steps, const heed_sgd_options *options);

typedef struct heed_adam_options {
  size_t size;         /* sizeof(heed_adam_options) */
  double lr;           /* 1e-3 */
  double beta1, beta2; /* 0.9, 0.999 */
  double eps;          /* 1e-8 */
  double weight_decay; /* 0; PyTorch's default of AdamW is 0.01 */
  bool decoupled;      /* AdamW: x shrinks by lr · weight_decay; otherwise the decay joins the gradient */
  bool amsgrad, maximize;
} heed_adam_options;
HEED_API void heed_adam_options_init(heed_adam_options *options, size_t size);
/** m, v: the averages of the gradients and of their squares. highest, the largest v so far, may be NULL
 * without amsgrad. Sources: arXiv:1412.6980, arXiv:1711.05101 (AdamW), arXiv:1904.09237 (AMSGrad). */
HEED_CALL heed_adam_step(heed_context *ctx, int64_t count, heed_tensor *const *x,
                         const heed_tensor *const *dx, heed_tensor *const *m, heed_tensor *const *v,
                         heed_tensor *const *highest, int64_t *steps, const heed_adam_options *options);

typedef struct heed_rmsprop_options {
  size_t size;  /* sizeof(heed_rmsprop_options) */
  double lr;    /* 1e-2 */
  double alpha; /* 0.99 */
  double eps;   /* 1e-8 */
  double weight_decay, momentum;
  bool centered, maximize;
} heed_rmsprop_options;
HEED_API void heed_rmsprop_options_init(heed_rmsprop_options *options, size_t size);
/** square: the average of the gradients' squares. mean, of the gradients, may be NULL unless centered;
 * momentum if options->momentum is 0. */
HEED_CALL heed_rmsprop_step(heed_context *ctx, int64_t count, heed_tensor *const *x,
                            const heed_tensor *const *dx, heed_tensor *const *square,
                            heed_tensor *const *mean, heed_tensor *const *momentum, int64_t *steps,
                            const heed_rmsprop_options *options);

/** The norm of all elements of `count` float32 tensors together: of order p, above 0, or INFINITY for the
 * largest magnitude. Summed in double. Those that are NULL are left out. Errors: ARGUMENT, DTYPE, MEMORY. */
HEED_CALL heed_total_norm(heed_context *ctx, int64_t count, const heed_tensor *const *x, double p,
                          double *norm);
/** Multiplies the gradients of the parameters, in place, by max_norm / (norm + 1e-6), if that is less than 1.
 * Parameters without a gradient are left out. *norm (may be NULL) is the norm before. */
HEED_CALL heed_clip_grad_norm(heed_context *ctx, int64_t count, heed_tensor *const *x, double max_norm,
                              double p, double *norm);
/** Limits the elements of the gradients of the parameters to -value…value, in place. */
HEED_CALL heed_clip_grad_value(heed_context *ctx, int64_t count, heed_tensor *const *x, double value);

/* ---- Making tensors (ops/create.c) ---- */

/** All elements are `value`. Errors: SHAPE, MEMORY. */
HEED_CALL heed_full(heed_context *ctx, heed_dtype dtype, int ndim, const int64_t *shape, heed_scalar value,
                    heed_tensor **out);
/** [rows, columns] with ones on the diagonal, else 0. */
HEED_CALL heed_eye(heed_context *ctx, heed_dtype dtype, int64_t rows, int64_t columns, heed_tensor **out);
/** first, first + step, … up to and including last, like a Lua `for`. Errors: ARGUMENT (step 0, not finite).
 */
HEED_CALL heed_range(heed_context *ctx, heed_dtype dtype, heed_scalar first, heed_scalar last,
                     heed_scalar step, heed_tensor **out);
/** start, start + step, … up to but excluding end. Errors: ARGUMENT (step 0, end on the wrong side of start,
 * not finite). */
HEED_CALL heed_arange(heed_context *ctx, heed_dtype dtype, heed_scalar start, heed_scalar end,
                      heed_scalar step, heed_tensor **out);
/** `count` evenly spaced values from first to last, both included. */
HEED_CALL heed_linspace(heed_context *ctx, heed_dtype dtype, double first, double last, int64_t count,
                        heed_tensor **out);

/* ---- Random numbers (core/random.c, ops/draw.c) ---- */

/* MT19937, the Mersenne Twister of PyTorch's generators on the CPU, seeded with the low 32 bits of the seed,
 * draws one number after another. PHILOX, the Philox4x32-10 of PyTorch's generators on GPUs, computes each
 * number from the seed, the offset of the draw, and the number of the element: parts of a tensor can be drawn
 * apart, and dropout of attention runs on all threads. heed_uniform, heed_normal, heed_randint,
 * heed_bernoulli and heed_dropout draw what torch.cuda draws on a GPU that has a thread for each element
 * (docs/random.md). */
typedef enum heed_generator_kind { HEED_MT19937, HEED_PHILOX } heed_generator_kind;

/** An MT19937 generator. */
HEED_CALL heed_generator_new(heed_context *ctx, uint64_t seed, heed_generator **out);
HEED_API void heed_generator_free(heed_generator *g);
/** The default generator, which lives as long as the context. */
HEED_API heed_generator *heed_default_generator(heed_context *ctx);
/** Begins the stream of a seed; the kind stays the same. */
HEED_API void heed_generator_seed(heed_generator *g, uint64_t seed);
/** Makes g, which may be the default generator, one of that kind with the seed, and without a part. */
HEED_API void heed_generator_reset(heed_generator *g, heed_generator_kind kind, uint64_t seed);
HEED_API heed_generator_kind heed_generator_kind_of(const heed_generator *g);
/** A new generator with the same kind and state. */
HEED_CALL heed_generator_clone(const heed_generator *g, heed_generator **out);

/** PHILOX: the offset, in words of 32 bits, at which the next draw begins; 0 for MT19937. A draw of a tensor
 * begins at the next multiple of 4 and takes 4. */
HEED_API uint64_t heed_generator_offset(const heed_generator *g);
/** Errors: ARGUMENT (MT19937, not a multiple of 4). */
HEED_CALL heed_generator_set_offset(heed_generator *g, uint64_t offset);
/** PHILOX: tensors drawn from now on are the part, from index `first` on (from 1), of a tensor with the
 * dimensions `whole`: they get the numbers that it would. Dropout of attention draws [..., hq, l, s]. All
 * parts of a tensor are drawn at one offset, by clones or with heed_generator_set_offset. ndim 0: whole
 * tensors. Draws then return SHAPE for tensors that do not lie inside; heed_randperm and heed_multinomial
 * return ARGUMENT. Errors: ARGUMENT (MT19937), SHAPE. */
HEED_CALL heed_generator_set_part(heed_generator *g, int ndim, const int64_t *whole, const int64_t *first);

/** The complete state as bytes, which can be restored on any machine, in a generator of the same kind.
 * Errors: ARGUMENT (an invalid state, or one of the other kind). */
#define HEED_GENERATOR_STATE_BYTES 2528
HEED_API void heed_generator_get_state(const heed_generator *g, unsigned char *bytes);
HEED_CALL heed_generator_set_state(heed_generator *g, const unsigned char *bytes, size_t count);

/* In the following functions g NULL stands for the context's default generator. If *out is given, it is
 * filled in the order of its elements in memory, as PyTorch fills views. */

/** Uniform in [from, to), float32. Errors: ARGUMENT (bounds not finite, from above to, or a difference beyond
 * the range of float32). */
HEED_CALL heed_uniform(heed_context *ctx, heed_generator *g, double from, double to, int ndim,
                       const int64_t *shape, heed_tensor **out);
/** Normally distributed with the given mean and standard deviation, float32. As in PyTorch, other numbers are
 * drawn if *out is given and not row-major, or has fewer than 16 elements. Errors: ARGUMENT (negative std).
 */
HEED_CALL heed_normal(heed_context *ctx, heed_generator *g, double mean, double std, int ndim,
                      const int64_t *shape, heed_tensor **out);
/** Integers from low to high, both included, int64. Errors: ARGUMENT (high < low, or a range beyond 2^63). */
HEED_CALL heed_randint(heed_context *ctx, heed_generator *g, int64_t low, int64_t high, int ndim,
                       const int64_t *shape, heed_tensor **out);
/** 1…n in random order, int64 [n]. */
HEED_CALL heed_randperm(heed_context *ctx, heed_generator *g, int64_t n, heed_tensor **out);
/** 1 with probability p (float32, elementwise), otherwise 0; float32. Errors: ARGUMENT (p outside [0, 1]). */
HEED_CALL heed_bernoulli(heed_context *ctx, heed_generator *g, const heed_tensor *p, heed_tensor **out);
/** Indices, from 1, drawn with probabilities in proportion to weights (float32 [n] or [rows, n]): int64
 * [num_samples] or [rows, num_samples]. Without replacement a row's samples differ. Errors: ARGUMENT
 * (negative or infinite weights; too few positive ones), SHAPE, DTYPE. (ops/sample.c) */
HEED_CALL heed_multinomial(heed_context *ctx, heed_generator *g, const heed_tensor *weights,
                           int64_t num_samples, bool replacement, heed_tensor **out);

/** PyTorch draws dropout from one of two streams, depending on the processor's vendor. The default is NATIVE.
 */
typedef enum heed_dropout_stream { HEED_DROPOUT_NATIVE, HEED_DROPOUT_MKL } heed_dropout_stream;
HEED_API void heed_set_dropout_stream(heed_context *ctx, heed_dropout_stream stream);

/** x with each element set to 0 with probability p, the others multiplied by 1 / (1 - p). p = 0 draws no
 * numbers. NATIVE draws in the order of x's elements in memory, MKL in row-major order; a new result is laid
 * out like x. Errors: ARGUMENT (p outside [0, 1]), DTYPE (not float32). */
HEED_CALL heed_dropout(heed_context *ctx, heed_generator *g, double p, const heed_tensor *x,
                       heed_tensor **out);

/* ---- Views: no elements are copied (ops/view.c) ---- */

/* Each returns a new tensor on the elements of x, which the caller frees; *out must be NULL. One size of
 * `view` and `reshape` may be -1 and is inferred from the others. reshape copies where a view is not
 * possible. */
HEED_CALL heed_view(heed_context *ctx, const heed_tensor *x, int ndim, const int64_t *shape,
                    heed_tensor **out);
HEED_CALL heed_reshape(heed_context *ctx, const heed_tensor *x, int ndim, const int64_t *shape,
                       heed_tensor **out);
HEED_CALL heed_flatten(heed_context *ctx, const heed_tensor *x, int first, int last, heed_tensor **out);
HEED_CALL heed_transpose(heed_context *ctx, const heed_tensor *x, int dim1, int dim2, heed_tensor **out);
HEED_CALL heed_permute(heed_context *ctx, const heed_tensor *x, int ndim, const int *dims, heed_tensor **out);
HEED_CALL heed_unsqueeze(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out);
/** Removes dimensions of size 1: only those in dims (larger ones stay), or all of them if ndims is 0. */
HEED_CALL heed_squeeze(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims,
                       heed_tensor **out);
/** Repeats sizes of 1 to `shape`, which may have more dimensions in front; -1 keeps a size. */
HEED_CALL heed_expand(heed_context *ctx, const heed_tensor *x, int ndim, const int64_t *shape,
                      heed_tensor **out);
/** Element `index` of dimension `dim`, which is removed. A negative index counts from the last. */
HEED_CALL heed_select(heed_context *ctx, const heed_tensor *x, int dim, int64_t index, heed_tensor **out);
/** `length` elements of dimension `dim` from `start` on. */
HEED_CALL heed_narrow(heed_context *ctx, const heed_tensor *x, int dim, int64_t start, int64_t length,
                      heed_tensor **out);
/** Elements first, first + step, … up to and including last of dimension `dim`; none if last = first - 1. */
HEED_CALL heed_slice(heed_context *ctx, const heed_tensor *x, int dim, int64_t first, int64_t last,
                     int64_t step, heed_tensor **out);
/** The elements x[…, i, …, i + offset, …] of dimensions dim1 and dim2, which are removed; a dimension for i
 * is appended. offset > 0: above the main diagonal, < 0: below it. Errors: ARGUMENT (dim1 and dim2 equal). */
HEED_CALL heed_diagonal(heed_context *ctx, const heed_tensor *x, int64_t offset, int dim1, int dim2,
                        heed_tensor **out);
/** All windows of `size` elements of dimension `dim` that begin `step` apart: [..., windows, ..., size].
 * Errors: ARGUMENT (size not from 0 to the size of the dimension, step below 1), SHAPE. */
HEED_CALL heed_unfold(heed_context *ctx, const heed_tensor *x, int dim, int64_t size, int64_t step,
                      heed_tensor **out);

/* ---- Copies (ops/copy.c) ---- */

/** A row-major copy. */
HEED_CALL heed_clone(heed_context *ctx, const heed_tensor *x, heed_tensor **out);
/** An alias of x if it is row-major, else a row-major copy. */
HEED_CALL heed_contiguous(heed_context *ctx, const heed_tensor *x, heed_tensor **out);
/** A copy with the order of the elements reversed along each of dims. Errors: ARGUMENT (a dimension twice).
 */
HEED_CALL heed_flip(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, heed_tensor **out);
/** x in another dtype: an alias if x has that dtype, else a copy. To int64 and int8, the fraction is dropped,
 * numbers out of range become the nearest end of it, and nan becomes 0; to bool, everything but 0 is true; to
 * bfloat16 and float16, numbers are converted to float32 and rounded to nearest, ties to even. To
 * blocked dtypes, numbers up to 65504 in magnitude are quantized: in blocks of 32 as by ggml bit for bit, in
 * those of 256 after a search like ggml's. */
HEED_CALL heed_to(heed_context *ctx, const heed_tensor *x, heed_dtype dtype, heed_tensor **out);
/** Writes src, broadcast and converted, to the elements of dst; if they overlap, as if src had been copied
 * first. */
HEED_CALL heed_copy(heed_context *ctx, heed_tensor *dst, const heed_tensor *src);
/** Sets all elements of dst to a value. */
HEED_CALL heed_fill(heed_context *ctx, heed_tensor *dst, heed_scalar value);

/* ---- Elementwise (ops/elementwise.c, ops/combine.c, ops/compare.c, ops/where.c) ---- */

/* One tensor to float32. neg, abs, relu, floor, ceil, round, trunc, sign and square also take int64 and keep
 * it; of these, only sign (bool) and square (int64) take bool. All others read bool and int64 as float32.
 * silu: x / (1 + e^-x). round: to the nearest integer, ties to even. sign: -1, 0 or 1; 0 for nan. */
/* clang-format off */
#define HEED_UNARY_LIST(X)                                                                                   \
  X(exp) X(log) X(sqrt) X(rsqrt) X(abs) X(neg) X(sin) X(cos) X(tanh) X(sigmoid) X(relu) X(silu)              \
  X(floor) X(ceil) X(round) X(trunc) X(sign) X(square) X(reciprocal)                                         \
  X(exp2) X(expm1) X(log2) X(log10) X(log1p) X(erf)
/* clang-format on */

/* Two tensors that broadcast. div is true division (float32); floor_divide rounds down; remainder has the
 * sign of the divisor, like Lua's %, and fmod that of a. maximum and minimum propagate nan. Errors: SHAPE,
 * ARGUMENT (int64: floor_divide, remainder and fmod by 0, a negative power). */
#define HEED_BINARY_LIST(X)                                                                                  \
  X(add) X(sub) X(mul) X(div) X(remainder) X(pow) X(maximum) X(minimum) X(floor_divide) X(fmod)

/* Two tensors that broadcast, to bool. */
#define HEED_COMPARE_LIST(X) X(eq) X(ne) X(lt) X(le) X(gt) X(ge)

/* Two tensors that broadcast, to bool; every number but 0 is true. */
#define HEED_LOGICAL_LIST(X) X(logical_and) X(logical_or) X(logical_xor)

/* One tensor to bool. */
#define HEED_TEST_LIST(X) X(isnan) X(isinf)

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

/** x Φ(x), Φ the distribution function of the normal distribution; and its approximation with tanh. Like the
 * unary functions above. Source: arXiv:1606.08415. */
HEED_CALL heed_gelu(heed_context *ctx, const heed_tensor *x, heed_tensor **out);
HEED_CALL heed_gelu_tanh(heed_context *ctx, const heed_tensor *x, heed_tensor **out);
/** true where x is 0. */
HEED_CALL heed_logical_not(heed_context *ctx, const heed_tensor *x, heed_tensor **out);
/** a / b rounded towards 0, in the wider dtype of a and b; broadcast. Errors: SHAPE, DTYPE (both bool),
 * ARGUMENT (int64: b contains 0). */
HEED_CALL heed_trunc_divide(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, heed_tensor **out);
/** a + alpha · b, broadcast; the product and the sum of float32 are rounded once. The dtype is the wider one
 * of a and b; alpha must be an integer unless that is float32. Errors: SHAPE, DTYPE. */
HEED_CALL heed_add_scaled(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, heed_scalar alpha,
                          heed_tensor **out);
/** x + value · a · b, broadcast, where the last product and the sum of float32 are rounded once. The dtype is
 * the widest one; value must be an integer unless that is float32. Errors: SHAPE, DTYPE (all three bool). */
HEED_CALL heed_addcmul(heed_context *ctx, const heed_tensor *x, const heed_tensor *a, const heed_tensor *b,
                       heed_scalar value, heed_tensor **out);
/** x + value · a / b as float32, broadcast. Errors: SHAPE. */
HEED_CALL heed_addcdiv(heed_context *ctx, const heed_tensor *x, const heed_tensor *a, const heed_tensor *b,
                       double value, heed_tensor **out);
/** a + weight · (b - a), broadcast; a and b float32. Errors: SHAPE, DTYPE. */
HEED_CALL heed_lerp(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, const heed_tensor *weight,
                    heed_tensor **out);
/** x with nan, inf and -inf replaced by these numbers; in the dtype of x. */
HEED_CALL heed_nan_to_num(heed_context *ctx, const heed_tensor *x, double nan, double posinf, double neginf,
                          heed_tensor **out);
/** x limited to [low, high], of which one may be NULL; all three broadcast. nan stays nan. */
HEED_CALL heed_clamp(heed_context *ctx, const heed_tensor *x, const heed_tensor *low, const heed_tensor *high,
                     heed_tensor **out);
/** a where condition (bool) is true, else b; all three broadcast. */
HEED_CALL heed_where(heed_context *ctx, const heed_tensor *condition, const heed_tensor *a,
                     const heed_tensor *b, heed_tensor **out);
/** value where mask (bool) is true, else x; x and mask broadcast. The result has the dtype of x. Errors:
 * SHAPE, DTYPE (mask not bool; value not an integer for int64). */
HEED_CALL heed_masked_fill(heed_context *ctx, const heed_tensor *x, const heed_tensor *mask,
                           heed_scalar value, heed_tensor **out);
/** The lower (upper) triangle of the last two dimensions, on and below (above) `diagonal` (0: the main one,
 * positive above it); the rest is 0. */
HEED_CALL heed_tril(heed_context *ctx, const heed_tensor *x, int64_t diagonal, heed_tensor **out);
HEED_CALL heed_triu(heed_context *ctx, const heed_tensor *x, int64_t diagonal, heed_tensor **out);
/** Whether both have the same shape and the same elements. */
HEED_CALL heed_equal(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, bool *out);
/** Whether |a - b| <= absolute + relative · |b|, elementwise and broadcast, to bool; equal elements are
 * close, and nan only with equal_nan. Errors: SHAPE, ARGUMENT (a tolerance is negative or nan). */
HEED_CALL heed_isclose(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, double relative,
                       double absolute, bool equal_nan, heed_tensor **out);
/** Whether heed_isclose is true everywhere. */
HEED_CALL heed_allclose(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, double relative,
                        double absolute, bool equal_nan, bool *out);

/* ---- Reductions (ops/sums.c, ops/norms.c, ops/extremes.c) ---- */

/* dims: the ndims dimensions to reduce (ndims 0: all); keepdim keeps them with size 1. sum of bool and int64
 * is int64; mean, var and std require float32. */
HEED_CALL heed_sum(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                   heed_tensor **out);
HEED_CALL heed_mean(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                    heed_tensor **out);
/** Variance with divisor count - correction (PyTorch's default is 1). */
HEED_CALL heed_var(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, double correction,
                   bool keepdim, heed_tensor **out);
HEED_CALL heed_std(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, double correction,
                   bool keepdim, heed_tensor **out);
/** The product; of bool and int64 as int64, which wraps, of float32 computed in double. */
HEED_CALL heed_prod(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                    heed_tensor **out);
/** The norm (Σ |x|^p)^(1/p) of float32, computed in double; p INFINITY: the largest |x|, -INFINITY: the
 * smallest, 0: the number of elements that are not 0. nan gives nan. Errors: DTYPE, ARGUMENT (p is nan),
 * SHAPE (no elements, for p INFINITY or below 0). */
HEED_CALL heed_norm(heed_context *ctx, const heed_tensor *x, double p, int ndims, const int *dims,
                    bool keepdim, heed_tensor **out);
/** The largest (smallest) element; nan if one is nan. Errors: SHAPE (no elements). */
HEED_CALL heed_amax(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                    heed_tensor **out);
HEED_CALL heed_amin(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                    heed_tensor **out);
/** Whether any (all) elements are not 0, as bool. */
HEED_CALL heed_any(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                   heed_tensor **out);
HEED_CALL heed_all(heed_context *ctx, const heed_tensor *x, int ndims, const int *dims, bool keepdim,
                   heed_tensor **out);
/** The largest (smallest) element along dim and its index (int64, from 1; the first of equal ones; indices
 * may be NULL). dim 0: of the flattened tensor. nan counts as the largest (smallest). Errors: SHAPE (no
 * elements). */
HEED_CALL heed_max(heed_context *ctx, const heed_tensor *x, int dim, bool keepdim, heed_tensor **values,
                   heed_tensor **indices);
HEED_CALL heed_min(heed_context *ctx, const heed_tensor *x, int dim, bool keepdim, heed_tensor **values,
                   heed_tensor **indices);

/* ---- Along a dimension (ops/rows.c, ops/sort.c) ---- */

/** e^x / Σ e^x along dim, float32; a row of only -inf gives nan. */
HEED_CALL heed_softmax(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out);
HEED_CALL heed_log_softmax(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out);
/** The sums (products) of the elements up to each; of bool and int64 as int64, which wraps. */
HEED_CALL heed_cumsum(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out);
HEED_CALL heed_cumprod(heed_context *ctx, const heed_tensor *x, int dim, heed_tensor **out);
/** Over the last dimension: (x - mean) / √(var + epsilon) · weight + bias; weight and bias [d] may be NULL.
 *  Source: arXiv:1607.06450. */
HEED_CALL heed_layer_norm(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                          const heed_tensor *bias, double epsilon, heed_tensor **out);
/** Over the last dimension: x / √(mean(x²) + epsilon) · weight; weight [d] may be NULL. Source:
 * arXiv:1910.07467. */
HEED_CALL heed_rms_norm(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight, double epsilon,
                        heed_tensor **out);
/** x sorted along dim, and the indices (int64) of the elements in x (may be NULL); equal ones keep their
 * order. */
HEED_CALL heed_sort(heed_context *ctx, const heed_tensor *x, int dim, bool descending, heed_tensor **values,
                    heed_tensor **indices);
/** The k largest (or smallest) along dim, in order, and their indices (may be NULL). Errors: INDEX (k beyond
 * the size). */
HEED_CALL heed_topk(heed_context *ctx, const heed_tensor *x, int64_t k, int dim, bool largest,
                    heed_tensor **values, heed_tensor **indices);

/* ---- Selecting and joining (ops/index.c, ops/mask.c, ops/join.c) ---- */

/** Slices of dimension dim, in the order of `index` (int64 [k], from 1; negative from the last). */
HEED_CALL heed_index_select(heed_context *ctx, const heed_tensor *x, int dim, const heed_tensor *index,
                            heed_tensor **out);
/** out[…, i, …] = x[…, index[…, i, …], …] with i in dimension dim; index int64 with as many dimensions as x.
 */
HEED_CALL heed_gather(heed_context *ctx, const heed_tensor *x, int dim, const heed_tensor *index,
                      heed_tensor **out);
/** The elements where mask (bool, with the leading sizes of x) is true: [count, the other sizes of x]. */
HEED_CALL heed_masked_select(heed_context *ctx, const heed_tensor *x, const heed_tensor *mask,
                             heed_tensor **out);
/** Writes value, broadcast to the shape of masked_select's result, to x where mask is true. */
HEED_CALL heed_masked_assign(heed_context *ctx, heed_tensor *x, const heed_tensor *mask,
                             const heed_tensor *value);
/** x at several indices, as x[i, j] in PyTorch. indices: for each of the first `count` dimensions of x an
 * int64 tensor (from 1; negative from the last), a mask (bool, for as many dimensions as it has), or NULL for
 * all of the dimension. They broadcast together; their dimensions replace those that they select from if
 * these are adjacent, and otherwise come first. Errors: INDEX, SHAPE, DTYPE. (ops/indices.c) */
HEED_CALL heed_index(heed_context *ctx, const heed_tensor *x, int count, const heed_tensor *const *indices,
                     heed_tensor **out);
/** Writes value, broadcast to the shape of heed_index's result, to x at these indices, one element after
 * another in row-major order; accumulate adds it instead. value must have x's dtype or one that promotes to
 * it. Errors: as heed_index; ARGUMENT (elements of x share memory). */
HEED_CALL heed_index_put(heed_context *ctx, heed_tensor *x, int count, const heed_tensor *const *indices,
                         const heed_tensor *value, bool accumulate);
/** For each value the index, from 1 to n + 1, at which it would be inserted in sorted [n] (or [..., n], with
 * values [..., m]): before equal elements; right: behind them. int64, in the shape of values. nan is the
 * largest. Errors: SHAPE, DTYPE. (ops/search.c) */
HEED_CALL heed_searchsorted(heed_context *ctx, const heed_tensor *sorted, const heed_tensor *values,
                            bool right, heed_tensor **out);
/** The indices, from 1, of the elements that are not 0, in row-major order: int64 [count, dimensions of x].
 */
HEED_CALL heed_nonzero(heed_context *ctx, const heed_tensor *x, heed_tensor **out);

/* The following write to x (ops/scatter.c), element after element in row-major order. The tensors that are
 * written must have x's dtype or one that promotes to it. Errors: INDEX, SHAPE, DTYPE, ARGUMENT (elements of
 * x share memory); nothing is then written. */

/** What happens to an element that is written. */
typedef enum heed_scatter_reduce {
  HEED_SCATTER_REPLACE,
  HEED_SCATTER_ADD,
  HEED_SCATTER_MULTIPLY,
} heed_scatter_reduce;

/** x[…, index[…, i, …], …] = src[…, i, …] with i in dimension dim. index: int64 with as many dimensions as x,
 * and except for dim no larger than it. src: of no dimensions, or at least as large as index. */
HEED_CALL heed_scatter(heed_context *ctx, heed_tensor *x, int dim, const heed_tensor *index,
                       const heed_tensor *src, heed_scatter_reduce reduce);
/** Adds the slices of source, times alpha, to those of x that index (int64 [k]) selects in dimension dim.
 * source: the shape of x, with size k in dim. */
HEED_CALL heed_index_add(heed_context *ctx, heed_tensor *x, int dim, const heed_tensor *index,
                         const heed_tensor *source, heed_scalar alpha);
/** Replaces them by the slices of source; fills them with a value. */
HEED_CALL heed_index_copy(heed_context *ctx, heed_tensor *x, int dim, const heed_tensor *index,
                          const heed_tensor *source);
HEED_CALL heed_index_fill(heed_context *ctx, heed_tensor *x, int dim, const heed_tensor *index,
                          heed_scalar value);
/** Repeats every slice of dim `repeats` times, one after the other; dim 0: every element of x flattened. */
HEED_CALL heed_repeat_interleave(heed_context *ctx, const heed_tensor *x, int64_t repeats, int dim,
                                 heed_tensor **out);
/** The same with a number of repeats for each slice, or one for all: repeats is int64 [n] or has no
 * dimensions. */
HEED_CALL heed_repeat_interleave_each(heed_context *ctx, const heed_tensor *x, const heed_tensor *repeats,
                                      int dim, heed_tensor **out);
/** Joins tensors along dim (all other sizes must be equal); stack: along a new dimension dim (all sizes
 * equal). The dtype of the result is the first, as in PyTorch, that can hold all others: bool, int8, int64,
 * bfloat16 or float16 (both: float32), float32. */
HEED_CALL heed_cat(heed_context *ctx, int count, const heed_tensor *const *tensors, int dim,
                   heed_tensor **out);
HEED_CALL heed_stack(heed_context *ctx, int count, const heed_tensor *const *tensors, int dim,
                     heed_tensor **out);

/* ---- Products (ops/gemm.c, ops/matmul.c) ---- */

/** Matrix product like PyTorch's: [n]·[n], [m, k]·[k], [k]·[k, n], and […, m, k]·[…, k, n] with leading
 * dimensions that broadcast. float32 or int64. Errors: SHAPE (also: no dimensions), DTYPE (bool). */
HEED_CALL heed_matmul(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, heed_tensor **out);
/** Σ a · b of two tensors [n]. */
HEED_CALL heed_dot(heed_context *ctx, const heed_tensor *a, const heed_tensor *b, heed_tensor **out);
/** x [..., d_in] · weightᵀ [d_in, d_out] + bias [d_out]; weight is [d_out, d_in], bias may be NULL. weight is
 * float32, bfloat16 or float16, converted to float32 in registers; sums are float32. For a normally
 * distributed weight, rounding it changes the result by this part of its root mean square: bfloat16 0.0017,
 * float16 0.0002, int8 0.006 (heed_linear_int8). */
HEED_CALL heed_linear(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                      const heed_tensor *bias, heed_tensor **out);

/* Weights in int8: each row is cut into blocks of HEED_INT8_BLOCK columns (the last may be shorter); an
 * element is weight[i][j] · scale[i][(j - 1) / HEED_INT8_BLOCK + 1]. weight int8 [d_out, d_in], scale float32
 * [d_out, blocks]. */
#define HEED_INT8_BLOCK 64
/** Converts x float32 [rows, columns] to such a pair. The scale of a block is its largest magnitude / 127, so
 * that the error of an element is at most half a scale. Errors: DTYPE, SHAPE, ARGUMENT (nan or inf), MEMORY.
 */
HEED_CALL heed_quantize_int8(heed_context *ctx, const heed_tensor *x, heed_tensor **weight,
                             heed_tensor **scale);
/** Converts such a pair to float32. */
HEED_CALL heed_dequantize_int8(heed_context *ctx, const heed_tensor *weight, const heed_tensor *scale,
                               heed_tensor **out);
/** heed_linear with such a weight. */
HEED_CALL heed_linear_int8(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                           const heed_tensor *scale, const heed_tensor *bias, heed_tensor **out);
/** Rows of weight [size, d] (float32, bfloat16, float16), converted to float32: out [shape of ids..., d]. ids
 * int64, from 1. Errors: INDEX (names the first id out of range), DTYPE, SHAPE, MEMORY. */
HEED_CALL heed_embedding(heed_context *ctx, const heed_tensor *ids, const heed_tensor *weight,
                         heed_tensor **out);

/* ---- Losses of classes (ops/cross_entropy.c) ---- */

typedef enum heed_reduction {
  HEED_REDUCTION_MEAN, /* the sum, divided by the sum of the targets' weights */
  HEED_REDUCTION_SUM,
  HEED_REDUCTION_NONE /* a loss for each target */
} heed_reduction;

/* Initialise it with heed_cross_entropy_options_init. The comments give the defaults. */
typedef struct heed_cross_entropy_options {
  size_t size;               /* sizeof(heed_cross_entropy_options) */
  const heed_tensor *weight; /* NULL. A factor for each class, float32 [c], without a gradient */
  int64_t ignore_index;      /* -100. Targets of this class have no loss and no weight */
  heed_reduction reduction;  /* HEED_REDUCTION_MEAN */
  double label_smoothing;    /* 0. From 0 to 1: the part of each target that is spread over all classes */
} heed_cross_entropy_options;
/** Sets the defaults; size is sizeof *options. */
HEED_API void heed_cross_entropy_options_init(heed_cross_entropy_options *options, size_t size);

/** The cross entropy of logits [c], [n, c] or [n, c, …] and targets: classes, int64 from 1, in the shape of
 * logits without the c, or probabilities, float32, in that of logits. out has no dimensions or, without a
 * reduction, the shape of logits without the c. options NULL: the defaults. Without targets a mean is nan.
 * Errors: SHAPE, DTYPE, INDEX (names the first class out of range), ARGUMENT, MEMORY. */
HEED_CALL heed_cross_entropy(heed_context *ctx, const heed_tensor *logits, const heed_tensor *target,
                             const heed_cross_entropy_options *options, heed_tensor **out);
/** The same of the logits x [..., d] · weightᵀ [d, c] + bias [c] (or NULL), which are computed in chunks of
 * rows and not kept: memory for them is at most 32 MiB, or that of one row. targets have the shape of x
 * without the d, or probabilities [..., c]. While gradients are recorded the forward pass computes them, too,
 * unless there is no reduction. All tensors float32. */
HEED_CALL heed_linear_cross_entropy(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                                    const heed_tensor *bias, const heed_tensor *target,
                                    const heed_cross_entropy_options *options, heed_tensor **out);

/* ---- Attention (attention/) ---- */

/* The keys around its own position that a query sees: query i sees key j if i + offset - left ≤ j ≤ i +
 * offset + right. A side without a bound sees all keys. Zeros mean no window. */
typedef struct heed_window {
  bool has_left, has_right;
  int64_t left, right; /* at least 0 */
} heed_window;

/* Masks as values: which keys a query sees, in memory proportional to the queries; attention does work for
 * the visible keys alone. Masks do not change and are reference-counted; heed_mask_release frees one. Every
 * function makes a new mask, in *out, which must be NULL before. A query's position is its number plus the
 * call's offset (below). Errors: ARGUMENT, MEMORY, and those named. */
typedef struct heed_mask heed_mask;
/** A query sees the keys up to its own position. */
HEED_CALL heed_mask_causal(heed_context *ctx, heed_mask **out);
HEED_CALL heed_mask_window(heed_context *ctx, const heed_window *window, heed_mask **out);
/** The keys are documents of these lengths (int64 [b], which add up to the number of keys), one after
 * another; a query sees the keys of the document of its position. Errors: DTYPE, SHAPE, INDEX. */
HEED_CALL heed_mask_documents(heed_context *ctx, const heed_tensor *lengths, heed_mask **out);
/** A query sees the first n keys and those up to its own position. */
HEED_CALL heed_mask_prefix(heed_context *ctx, int64_t n, heed_mask **out);
/** The queries are the nodes of a tree: parents (int64 [l]) has the number of each one's parent, from 1 and
 * earlier than its own, or 0 for a root. A query sees the keys of itself and its ancestors; the key of a node
 * is the one at its position. Keys before the first node, of a cache, are visible to all. Errors: DTYPE,
 * SHAPE, INDEX. */
HEED_CALL heed_mask_tree(heed_context *ctx, const heed_tensor *parents, heed_mask **out);
/** t, int64 [..., l, r, 2], has r intervals of visible keys for each query, in order and without overlap:
 * their first and last keys, from 1; {1, 0} is empty. Its leading sizes broadcast to [..., hq]; l may be 1. t
 * is copied. Errors: DTYPE, SHAPE, INDEX. */
HEED_CALL heed_mask_intervals(heed_context *ctx, const heed_tensor *t, heed_mask **out);
/** A query sees the keys that both masks show. Errors: SHAPE. */
HEED_CALL heed_mask_both(const heed_mask *a, const heed_mask *b, heed_mask **out);
HEED_API heed_mask *heed_mask_retain(heed_mask *m);
HEED_API void heed_mask_release(heed_mask *m); /* NULL is allowed */
HEED_API heed_context *heed_mask_context(const heed_mask *m);
/** The mask for l queries, from position offset + 1 on, and s keys: bool [..., l, s], true where visible.
 * Errors: SHAPE, INDEX (a mask for other sizes). */
HEED_CALL heed_mask_dense(const heed_mask *m, int64_t l, int64_t s, int64_t offset, heed_tensor **out);
/** How many of the pairs of a query and a key are visible, in blocks of that many queries and keys: int64
 * [..., l / block, s / block], both rounded up. Errors: as above. */
HEED_CALL heed_mask_blocks(const heed_mask *m, int64_t l, int64_t s, int64_t offset, int64_t block,
                           heed_tensor **out);
/** The numbers of queries and keys that the mask is made for; -1: any. Either pointer may be NULL. */
HEED_API void heed_mask_sizes(const heed_mask *m, int64_t *l, int64_t *s);
/** The mask in one line, "causal() & documents(3)", cut to size - 1 bytes. */
HEED_API void heed_mask_describe(const heed_mask *m, char *text, size_t size);

/* Zeros mean that an option is not used. A key is visible only if the masks, causality, the window and the
 * lengths all allow it. offset is the past length p with past keys, kv_lengths[b] - l with lengths (possibly
 * negative), otherwise 0. */
typedef struct heed_attention_options {
  size_t size;                  /* sizeof(heed_attention_options) */
  const heed_tensor *attn_mask; /* bool, true is visible, or float32, added to the scores; broadcasts to [...,
                                   hq, l, p + s]; keys beyond its last size are hidden */
  bool is_causal;               /* query i sees keys 1…i + offset */
  heed_window window;
  double scale;                  /* of the scores; 0: 1 / √d */
  double softcap;                /* c > 0: scores become c · tanh(score / c), before masks and biases */
  double dropout_p;              /* dropout on the weights */
  heed_generator *generator;     /* for dropout; NULL: the default */
  const heed_tensor *kv_lengths; /* int64, broadcasts to [batch...], each from 0 to s: later keys are padding;
                                    not together with past keys */
  const heed_tensor *past_key;   /* [..., hkv, p, d], put before k; both or none */
  const heed_tensor *past_value; /* [..., hkv, p, dv], put before v */
  const heed_tensor *alibi_slopes; /* float32 [hq]: adds -slope · |i + offset - j|. arXiv:2108.12409 */
  const heed_tensor *sinks;        /* float32 [hq]: a logit that takes part of the weight but has no value.
                                      arXiv:2309.17453 */
  const struct heed_taps_wanted *wanted; /* which taps, if they are requested; NULL: all but lse */
  const heed_mask *mask;                 /* which keys are visible; or NULL */
} heed_attention_options;

/* Intermediate results of attention, on request; this changes no bit of the result. Results that a call does
 * not compute stay NULL. `sdpa` stands for heed_scaled_dot_product_attention. The first six are maps
 * [..., hq, l, p + s]; the inputs are [b, h, n, d] and, twice, [b, hkv, s, d]. In a module with a cache, s
 * counts the tokens of the cache and of x; with a window to the left, at most the last left + n of them.
 * Modules of one head have no dimension h; without a batch there is no b. */
/* clang-format off */
#define HEED_ATTENTION_TAPS_LIST(X)                                                                          \
  X(scores)          /* q·k, -inf where hidden (modules) */                                                  \
  X(weights)         /* after softmax, without the sink's part */                                            \
  X(dropped_weights) /* after dropout (modules, in training with p > 0) */                                   \
  X(logits)          /* scale · q·k, also at hidden positions (sdpa) */                                      \
  X(capped_logits)   /* after softcap (sdpa) */                                                              \
  X(biased_logits)   /* after masks, biases and windows, -inf where hidden (sdpa) */                         \
  X(queries)         /* the inputs of attention, after norms and rotation (modules) */                       \
  X(keys)                                                                                                    \
  X(values)                                                                                                  \
  X(present_key)     /* the past and the new ones joined, [..., hkv, p + s, d]; without past keys a view of  \
                        k (sdpa) */                                                                          \
  X(present_value)                                                                                           \
  X(lse)             /* log Σ e^score, with the sink, [..., hq, l]; -inf where no key is visible */
/* clang-format on */
typedef struct heed_attention_taps {
  size_t size; /* sizeof(heed_attention_taps) */
#define X(name) heed_tensor *name;
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
} heed_attention_taps;
/* A choice of taps: those whose field is true, and of the maps only some heads and queries, in the order
 * given. Heads and queries count from 1; negative ones count from the last. A name that the call does not
 * compute is ignored. Errors of calls with it: INDEX, ARGUMENT (a head twice). */
typedef struct heed_taps_wanted {
  size_t size; /* sizeof(heed_taps_wanted) */
#define X(name) bool name;
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
  const int64_t *head_list; /* head_count of them; NULL: all */
  int64_t head_count;
  const int64_t *query_list; /* query_count of them; NULL: all */
  int64_t query_count;
  bool query_range; /* query_list holds the first and the last of a range */
} heed_taps_wanted;
/** Frees the tensors and sets them to NULL. NULL is allowed. */
HEED_API void heed_attention_taps_free(heed_attention_taps *taps);

/** softmax(scale · q kᵀ + mask) v over rows, as [..., hq, l, dv]. q [..., hq, l, d], k [..., hkv, s, d] and
 * v [..., hkv, s, dv] are float32 of any strides (k and v also bfloat16 or float16); two dimensions are
 * enough without heads. hkv divides hq, and query head i uses key head ceil(i · hkv / hq). Leading sizes
 * broadcast. A query that sees no key gives zeros, as do its weights. Hidden elements, even nan, do not
 * affect the output. options NULL: none. taps NULL: not requested; otherwise its size must be set, and it
 * receives new tensors on success. Errors: SHAPE, DTYPE, ARGUMENT, INDEX (a length out of range), MEMORY.
 * Source: arXiv:1706.03762, section 3.2.1; the rules are those of the ONNX operator Attention, version 25. */
HEED_CALL heed_scaled_dot_product_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                            const heed_tensor *v, const heed_attention_options *options,
                                            heed_tensor **out, heed_attention_taps *taps);

/** The same for packed sequences of different lengths, one after another, without padding: q [total, hq, d],
 * k [total_keys, hkv, d], v [total_keys, hkv, dv], out [total, hq, dv]. lengths, int64 [b], are those of the
 * sequences in q, and their sum is `total`; key_lengths likewise for k and v, NULL: as lengths. A query sees
 * the keys of its own sequence alone, by positions that count within it: offset is its key length - its
 * length. attn_mask broadcasts to [hq, total, s] with s the largest key length, as do the maps of taps, whose
 * elements behind the keys of a sequence are 0 (logits, weights) or -inf (biased_logits); lse is [hq, total].
 * Dropout draws for one sequence after another. Not with past keys and kv_lengths. Errors: as above, INDEX.
 */
HEED_CALL heed_varlen_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                const heed_tensor *v, const heed_tensor *lengths,
                                const heed_tensor *key_lengths, const heed_attention_options *options,
                                heed_tensor **out, heed_attention_taps *taps);
/** Packs sequences x [b, n, ...] of these lengths, int64 [b], each from 0 to n: [total, ...]. unpack does the
 * opposite, with zeros behind each sequence: n 0: the largest length. Errors: SHAPE, DTYPE, INDEX, MEMORY. */
HEED_CALL heed_pack(heed_context *ctx, const heed_tensor *x, const heed_tensor *lengths, heed_tensor **out);
HEED_CALL heed_unpack(heed_context *ctx, const heed_tensor *x, const heed_tensor *lengths, int64_t n,
                      heed_tensor **out);
/** Attention over a part of the keys: *out as above, and *stats [..., hq, l, 2], for each query the largest
 * score that it sees (a sink counts as one) and the sum of e^(score - largest): what merging it with other
 * parts needs. The logarithm of the sum of e^score is stats[1] + log stats[2]. A query that sees neither a
 * key nor a sink has -inf and 0. `offset` is the position of the first query less that of the first key (p
 * is added to it), for is_causal, window and alibi_slopes, negative for queries before the keys; lengths hide
 * keys of the part and do not move it. Give `sinks` with one part only. The gradient of stats is that of
 * functions of stats[1] + log stats[2], such as merging; a backward pass refuses others. Errors: those above.
 */
HEED_CALL heed_attention_partial(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                 const heed_tensor *v, const heed_attention_options *options, int64_t offset,
                                 heed_tensor **out, heed_tensor **stats);
/** Merges `count` such results over disjoint keys to that over all of them: outs [..., l, dv] of one shape,
 * stats [..., l, 2]; *merged and *merged_stats have these shapes. Errors: SHAPE, DTYPE (not float32),
 * ARGUMENT (no parts), MEMORY. */
HEED_CALL heed_attention_merge(heed_context *ctx, int count, const heed_tensor *const *outs,
                               const heed_tensor *const *stats, heed_tensor **merged,
                               heed_tensor **merged_stats);

/* ---- Linear attention (attention/linear_attention.c, ops/causal_conv.c) ---- */

/* Zeros mean that an option is not used. Which of decay and beta are given selects the rule: none is linear
 * attention, decay the gated one, beta the delta rule, both the gated delta rule. */
typedef struct heed_linear_attention_options {
  size_t size;                   /* sizeof(heed_linear_attention_options) */
  const heed_tensor *decay;      /* [b, hkv, n], or [b, hkv, n, d] with one for each row of the state: its
                                    logarithm, usually at most 0; -inf forgets what was before */
  const heed_tensor *beta;       /* [b, hkv, n] or [b, 1, n]: how much of the difference is written */
  const heed_tensor *past_state; /* [b, hkv, d, dv]; NULL: zeros */
  double scale;                  /* of the results; 0: 1 / √d */
} heed_linear_attention_options;

/** Attention whose keys and values are summed in a state S [d, dv], in time proportional to n. For q [b, hq,
 * n, d], k [b, hkv, n, d] and v [b, hkv, n, dv], all float32, it does for each token t, in order:
 *   S = e^decay[t] · S,   u = beta[t] · (v[t] - Sᵀ k[t]) (v[t] without beta),   S = S + k[t] uᵀ
 *   out[t] = scale · Sᵀ q[t]
 * hkv divides hq, and query head i reads the state of head ceil(i · hkv / hq). out is [b, hq, n, dv]; *state
 * (may be NULL) is [b, hkv, d, dv] after the last token: the past_state of the next call. Many tokens are
 * computed in chunks, few one by one, with the same results within rounding. While gradients are recorded
 * *state must be NULL. Errors: SHAPE, DTYPE, ARGUMENT, MEMORY. Sources: the ONNX operator LinearAttention,
 * version 27; arXiv:2006.16236, arXiv:2406.06484, arXiv:2412.06464. */
HEED_CALL heed_linear_attention(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                const heed_tensor *v, const heed_linear_attention_options *options,
                                heed_tensor **out, heed_tensor **state);

typedef struct heed_causal_conv_options {
  size_t size;                   /* sizeof(heed_causal_conv_options) */
  const heed_tensor *bias;       /* [channels]; NULL: none */
  const heed_tensor *past_state; /* [b, channels, k - 1]: the tokens before x; NULL: zeros */
  bool silu;                     /* the results go through silu */
} heed_causal_conv_options;

/** Each channel of x [b, channels, n] filtered with its own k taps, weight [channels, k] or [channels, 1, k],
 * the last of which is for the token itself: out[c, t] = bias[c] + Σ_j weight[c, j] · x[c, t - k + j], t from
 * 1 and j to k. out has the shape of x, and if it is new, its order in memory; *state (may be NULL) is the
 * last k - 1 tokens [b, channels, k - 1]: the past_state of the next call. While gradients are recorded
 * *state must be NULL. Errors: SHAPE, DTYPE, ARGUMENT, MEMORY. Source: the ONNX operator CausalConvWithState,
 * version 27. */
HEED_CALL heed_causal_conv(heed_context *ctx, const heed_tensor *x, const heed_tensor *weight,
                           const heed_causal_conv_options *options, heed_tensor **out, heed_tensor **state);

/* ---- Rotary positions (attention/rope.c, attention/alibi.c) ---- */

typedef enum heed_rope_scaling {
  HEED_ROPE_UNSCALED,
  HEED_ROPE_LINEAR, /* positions divided by factor. arXiv:2306.15595 */
  HEED_ROPE_NTK,    /* base · factor^(d / (d - 2)) */
  HEED_ROPE_YARN,   /* arXiv:2309.00071; beta_fast, beta_slow, attention_factor */
  HEED_ROPE_LLAMA3, /* low_freq_factor, high_freq_factor */
  HEED_ROPE_FACTORS /* factors, attention_factor: Phi-3's longrope, for example. arXiv:2402.13753 */
} heed_rope_scaling;
#define HEED_ROPE_PAIRS 256 /* the most pairs of HEED_ROPE_FACTORS */

/* Initialise it with heed_rope_config_init. The comments give the defaults. */
typedef struct heed_rope_config {
  size_t size;      /* sizeof(heed_rope_config) */
  double base;      /* 10000 */
  bool interleaved; /* false. Pairs (1, 2), (3, 4)…; otherwise (1, d/2 + 1), (2, d/2 + 2)… */
  int64_t dims;     /* 0. The number of rotated elements at the beginning of each head, even; 0: all */
  heed_rope_scaling scaling;
  double factor;                   /* 1 */
  int64_t original_context_length; /* YaRN, Llama 3: the context length of the training */
  double beta_fast, beta_slow;     /* YaRN: 32, 1 */
  double attention_factor;         /* of the results. YaRN: 0 for 0.1 · ln(factor) + 1; factors: 0 for 1 */
  double low_freq_factor, high_freq_factor; /* Llama 3: 1, 4 */
  float factors[HEED_ROPE_PAIRS]; /* one for each pair, by which its angles are divided; the others are 0 */
} heed_rope_config;
/** Sets the defaults; size is sizeof *config. */
HEED_API void heed_rope_config_init(heed_rope_config *config, size_t size);

/** x [..., n, d] rotated by its positions: pair i by the angle (position - 1) · base^(-2 (i - 1) / d).
 * positions: int64 from 1, broadcasts to [..., n] (with heads: [b, 1, n] for [b, h, n, d]); NULL: 1…n. config
 * NULL: the defaults. Errors: SHAPE, DTYPE, ARGUMENT, MEMORY. Source: arXiv:2104.09864. */
HEED_CALL heed_rope(heed_context *ctx, const heed_tensor *x, const heed_tensor *positions,
                    const heed_rope_config *config, heed_tensor **out);

/** The slopes of ALiBi, float32 [num_heads]. Head i has 2^(-8 i / h) if their number h is a power of two;
 * otherwise the heads have the slopes of the next lower power, followed by the odd ones of the next higher
 * one. Errors: ARGUMENT, MEMORY. Source: arXiv:2108.12409. */
HEED_CALL heed_alibi_slopes(heed_context *ctx, int64_t num_heads, heed_tensor **out);

/* ---- Modules (nn/) ---- */

/* Modules are reference-counted, and start in training mode. Their weights are drawn as those of PyTorch's
 * nn.Linear, in the order of the entries, from the generator g (NULL: the default). */
HEED_API heed_module *heed_module_retain(heed_module *m);
HEED_API void heed_module_release(heed_module *m); /* NULL is allowed */
HEED_API heed_context *heed_module_context(const heed_module *m);
HEED_API const char *heed_module_class(const heed_module *m); /* "Linear", "MultiHeadAttention"… */
HEED_API bool heed_module_training(const heed_module *m);
/** Sets the mode of this module and all its parts. Dropout is active in training mode only. */
HEED_API void heed_module_train(heed_module *m, bool training);

/** y = x weightᵀ + bias for x [..., d_in]; weight [d_out, d_in] and bias [d_out] are drawn uniformly from
 * ±1/√d_in. */
HEED_CALL heed_linear_new(heed_context *ctx, heed_generator *g, int64_t d_in, int64_t d_out, bool bias,
                          heed_module **out);
HEED_CALL heed_dropout_new(heed_context *ctx, double p, heed_module **out);
/** Rows of weight [size, d], drawn from a normal distribution (0, 1): ids int64 [...], from 1, to [..., d].
 * Row padding_index (0: none; negative: from the last) starts as zeros. */
HEED_CALL heed_embedding_new(heed_context *ctx, heed_generator *g, int64_t size, int64_t d,
                             int64_t padding_index, heed_module **out);
/** Normalises over the last ndim dimensions, of the sizes `shape`. With `affine` it has a weight of ones and,
 * with `bias`, a bias of zeros. PyTorch's default epsilon is 1e-5. */
HEED_CALL heed_layer_norm_new(heed_context *ctx, int ndim, const int64_t *shape, double epsilon, bool affine,
                              bool bias, heed_module **out);
/** epsilon below 0: PyTorch's default, the machine epsilon of float32. */
HEED_CALL heed_rms_norm_new(heed_context *ctx, int ndim, const int64_t *shape, double epsilon, bool affine,
                            heed_module **out);
/** approximate: the tanh form. */
HEED_CALL heed_gelu_new(heed_context *ctx, bool approximate, heed_module **out);
HEED_CALL heed_silu_new(heed_context *ctx, heed_module **out);
HEED_CALL heed_relu_new(heed_context *ctx, heed_module **out);

/** While this is on, new modules draw no numbers, and their parameters are placeholders: zeros that take no
 * memory (views of one element, which must not be written to). Use it when the weights are loaded from a file
 * afterwards. Returns the previous value. */
HEED_API bool heed_skip_init(heed_context *ctx, bool skip);

/** The configuration of the four attention modules. Initialise it with heed_attention_config_init; the
 * comments give the defaults, which are zero unless named. */
typedef struct heed_attention_config {
  size_t size; /* sizeof(heed_attention_config) */
  int64_t d_in, d_out;
  int64_t context_length; /* the maximum number of tokens of a call, and of a cache unless the module has a
                             smaller window to the left; 0: no limit (SelfAttention only) */
  double dropout;         /* on the attention weights */
  int64_t num_heads;      /* 1 */
  bool qkv_bias;
  int softmax_dim;      /* CausalAttention: the dimension of the weights that sums to 1; -1 */
  bool causal;          /* MultiHeadAttention: true */
  int64_t num_kv_heads; /* MultiHeadAttention: heads of keys and values; 0: num_heads */
  int64_t head_dim;     /* MultiHeadAttention: 0: d_out / num_heads */
  bool out_proj;        /* MultiHeadAttention: with an output projection; true */
  bool out_bias;        /* the output projection has a bias; true */
  double scale;         /* MultiHeadAttention: of the scores; 0: 1 / √head_dim */
  /* The following are for MultiHeadAttention only; zeros mean that an option is not used. */
  int64_t kdim, vdim; /* sizes of the tokens for keys and values; 0: d_in */
  heed_window window;
  double softcap;     /* as in heed_attention_options */
  bool alibi;         /* with the slopes of heed_alibi_slopes */
  bool sinks;         /* a parameter `sinks` [num_heads], initially zeros */
  bool qk_norm;       /* RMSNorm(head_dim) on the queries and keys of each head: modules q_norm, k_norm */
  double qk_norm_eps; /* 0: 1e-6 */
  const heed_rope_config *rope; /* rotary positions of queries and keys, copied; NULL: none */
} heed_attention_config;
/** Sets the defaults; size is sizeof *config. */
HEED_API void heed_attention_config_init(heed_attention_config *config, size_t size);

/** x [n, d_in] or [b, n, d_in] to […, n, d_out]. */
HEED_CALL heed_self_attention_new(heed_context *ctx, heed_generator *g, const heed_attention_config *config,
                                  heed_module **out);
/** The same, but each token sees only itself and earlier tokens, and with dropout on the weights. */
HEED_CALL heed_causal_attention_new(heed_context *ctx, heed_generator *g, const heed_attention_config *config,
                                    heed_module **out);
/** num_heads CausalAttention modules, their outputs concatenated: […, n, d_out · num_heads]. */
HEED_CALL heed_multi_head_attention_wrapper_new(heed_context *ctx, heed_generator *g,
                                                const heed_attention_config *config, heed_module **out);
/** One projection each for queries, keys and values, split into heads; then an output projection: […, n,
 * d_out]. */
HEED_CALL heed_multi_head_attention_new(heed_context *ctx, heed_generator *g,
                                        const heed_attention_config *config, heed_module **out);

/* A cache of keys and values, [batch, hkv, length, head_dim] each, of the tokens that a MultiHeadAttention
 * has seen. */
typedef struct heed_kv_cache heed_kv_cache;

typedef struct heed_kv_cache_config {
  size_t size;   /* sizeof(heed_kv_cache_config) */
  int64_t batch; /* 0: 1 */
  int64_t
      capacity; /* maximum number of tokens; a call that exceeds it fails and changes nothing. 0: the module's
                   context_length; no limit if the module has a smaller window to the left, since the cache
                   then keeps only the visible tokens and a few more (64, or an eighth of the window) */
  heed_dtype dtype; /* FLOAT32 (set by heed_kv_cache_config_init), BFLOAT16, FLOAT16, or INT8. INT8 has a
                       float32 scale for each token and head, the largest magnitude / 127, so the error of an
                       element is at most half a scale; a row with nan or inf becomes nan */
  int64_t bits;     /* 0: those of dtype; 4, with INT8: int4. Each row is multiplied by a Hadamard matrix of
                       the largest power of two that divides head_dim, and rounded to 15 steps of a float32
                       scale, the largest magnitude / 7. The memory is half of INT8's; a step takes
                       longer, since it unpacks the rows */
  heed_kv_cache *prefix; /* a cache of batch 1 whose tokens all items begin with; NULL: none. They are shared,
                            not copied (except with a window, where each item has a copy), and read once for
                            the whole batch. What happens to that cache later changes nothing here */
} heed_kv_cache_config;
/** Sets the defaults; size is sizeof *config. */
HEED_API void heed_kv_cache_config_init(heed_kv_cache_config *config, size_t size);

/** A cache for that module, empty or with the tokens of config.prefix; other modules of the same
 * num_kv_heads, head_dim and window can use it, too. config NULL: the defaults. All memory is allocated here.
 * Errors: ARGUMENT (not a MultiHeadAttention), SHAPE, DTYPE, MEMORY. */
HEED_CALL heed_kv_cache_new(heed_module *m, const heed_kv_cache_config *config, heed_kv_cache **out);
HEED_API void heed_kv_cache_free(heed_kv_cache *cache); /* NULL is allowed */
HEED_API heed_context *heed_kv_cache_context(const heed_kv_cache *cache);
/** The tokens seen so far: of the longest batch item, and of each, [batch], which is valid until the cache is
 * used again. */
HEED_API int64_t heed_kv_cache_length(const heed_kv_cache *cache);
HEED_API const int64_t *heed_kv_cache_lengths(const heed_kv_cache *cache);
HEED_API int64_t heed_kv_cache_capacity(const heed_kv_cache *cache); /* 0: no limit */
HEED_API int64_t heed_kv_cache_batch(const heed_kv_cache *cache);
HEED_API heed_dtype heed_kv_cache_dtype(const heed_kv_cache *cache);
HEED_API int heed_kv_cache_bits(const heed_kv_cache *cache); /* of an element: 4 with INT8 for int4 */
/** The number of tokens that can be appended to every item before the cache drops its first tokens (with a
 * window) or refuses new ones (at its capacity; a module's own context_length may be reached earlier). After
 * appending at most that many, heed_kv_cache_truncate can restore the present length. */
HEED_API int64_t heed_kv_cache_headroom(const heed_kv_cache *cache);
/** Removes all tokens but the first n of each batch item; shorter items stay as they are. Errors: ARGUMENT (n
 * below 0 or above the length, within a shared prefix, or so small that the window would see keys that were
 * dropped). */
HEED_CALL heed_kv_cache_truncate(heed_kv_cache *cache, int64_t n);
/** The same with a number for each item, int64 [batch], at most its length. Errors: ARGUMENT, SHAPE, DTYPE;
 * then no item has changed. */
HEED_CALL heed_kv_cache_truncate_items(heed_kv_cache *cache, const heed_tensor *lengths);
/** Item i becomes a copy of item indices[i] (int64 [batch], from 1, repeats allowed), as beam search needs.
 * Errors: INDEX, SHAPE, DTYPE, MEMORY; then nothing has changed. */
HEED_CALL heed_kv_cache_reorder(heed_kv_cache *cache, const heed_tensor *indices);
/** An independent copy of the cache. Errors: MEMORY. */
HEED_CALL heed_kv_cache_clone(const heed_kv_cache *cache, heed_kv_cache **out);

/** Saves a cache as .safetensors, whole or not at all, as heed_save_archive does. Errors: FILE, ARGUMENT,
 * MEMORY. (io/) */
HEED_CALL heed_kv_cache_save(heed_kv_cache *cache, const char *path);
/** The saved cache, for a module with the weights of the one that filled it (also in other dtypes). The file
 * is mapped: rows are read when they are first used, and copied when tokens are appended; until then it must
 * not be truncated. Errors: FILE (missing, damaged, of another version, of a module with other sizes, window,
 * positions or weights), ARGUMENT, MEMORY. */
HEED_CALL heed_kv_cache_load(heed_module *m, const char *path, heed_kv_cache **out);
/** The same for `count` layers of a model in one file: caches [count], modules [count], out [count]. The file
 * recognises the key and value projections of each layer, not what computes the layer's input. */
HEED_CALL heed_kv_caches_save(heed_context *ctx, const char *path, int64_t count,
                              heed_kv_cache *const *caches);
HEED_CALL heed_kv_caches_load(heed_context *ctx, const char *path, int64_t count, heed_module *const *modules,
                              heed_kv_cache **out);

/* Options of a forward pass; zeros mean that an option is not used. key, value and cache are for
 * MultiHeadAttention.
 *
 * With key, x attends to key instead of to itself; causality and rotary positions then count the tokens of
 * both from 1.
 *
 * With a cache, the tokens of x follow those of the cache: their keys and values are appended, and they
 * attend to all of it. Masks cover all keys, first the cache's, then those of x. A causal module gives the
 * same numbers, except for rounding, whether tokens are passed one at a time, in chunks or at once. After a
 * failure the cache is unchanged.
 *
 * The batch items of a cache may have different lengths: with lengths, x [total, d_in] has the new tokens of
 * all items one after the other, lengths[i] of item i, and the result is [total, d_out]. Each item has
 * positions, windows and keys of its own, and masks count the keys of each from 1. */
typedef struct heed_forward_options {
  size_t size;                         /* sizeof(heed_forward_options) */
  const heed_tensor *attn_mask;        /* as in heed_attention_options, [b, h, n, s] */
  const heed_tensor *key_padding_mask; /* bool [b, s] or [s]; true is padding, which no query sees */
  heed_generator *generator;           /* for dropout; NULL: the default */
  const heed_tensor *kv_lengths;  /* int64 [b]: keys beyond are padding. Without key, token i of x sees the
                                     tokens up to i, as if the padding were hidden by key_padding_mask; with
                                     key and causality the last query is at the position of the last key, as
                                     in heed_attention_options. Not together with a cache */
  const heed_tensor *key, *value; /* cross attention: [b, s, kdim] and [b, s, vdim], without b if x has
                                     none; value NULL: key */
  heed_kv_cache *cache;           /* its batch is that of x, or 1 if x has none */
  const heed_taps_wanted *wanted; /* which taps, if they are requested; NULL: all but lse */
  const heed_mask *mask;          /* over all keys, first the cache's, then those of x; or NULL */
  const heed_tensor *lengths; /* int64 [b]: x is [total, d_in], packed sequences of these lengths, whose sum
                                 is total, as for heed_varlen_attention. Rotary positions begin anew in
                                 each; context_length is for each. attn_mask is [h, total, s]. Not together
                                 with padding and kv_lengths. With a cache these are the new tokens of each
                                 of its items, without attn_mask and taps */
  const heed_tensor *key_lengths; /* the same for key [total_keys, kdim], with lengths */
} heed_forward_options;

/** Applies the module to x. options NULL: none. taps NULL: not requested; otherwise its size must be set, and
 * it receives new tensors on success: scores, weights, dropped_weights, queries, keys and values. Errors:
 * SHAPE (also for more tokens than context_length), DTYPE, ARGUMENT (options that this module does not take),
 * MEMORY. */
HEED_CALL heed_module_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                              heed_tensor **out, heed_attention_taps *taps);

/* ---- Resumable forward passes (nn/attention/steps.c) ---- */

/* A forward pass in slices of time, for hosts that must not block: it runs until a time budget is used up and
 * continues in the next call. The results are bit-identical to those of heed_module_forward. A slice uses all
 * threads of the context, and no thread keeps running between slices. Several passes may be open, even of one
 * module; only one may be advancing at a time.
 *
 * A pass holds references to the module, its parts and weights, x and the tensors in options. Replacing a
 * part or a weight of the module, or converting the module to another dtype, does not affect it; changing
 * elements in place between two slices affects part of the result. heed_steps_new allocates all memory except
 * tables of rotary positions.
 *
 * The last slice appends the new tokens to the cache. If the cache was used otherwise since heed_steps_new,
 * the next slice returns ARGUMENT and the pass has failed. Dropout draws from a copy of the generator; the
 * last slice stores the new state in the generator, as a forward pass would, unless other calls have drawn
 * from it in the meantime. The generator must live until then. Freeing an unfinished pass has no effect on
 * the cache or the generator. A pass in slices is not recorded, and is refused where a forward pass would be.
 */
typedef struct heed_steps heed_steps;

/** m is a MultiHeadAttention, a SelfAttention, a CausalAttention with its softmax over the keys, or a Linear
 * (with a weight of any dtype). x and options as for heed_module_forward; need_weights: with taps. Errors:
 * those of heed_module_forward. */
HEED_CALL heed_steps_new(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                         bool need_weights, heed_steps **out);
/** Continues for that many seconds and about 0.1 ms more, or until all is *done; at least one small piece of
 * work is done, even for 0; INFINITY: to the end. Has no effect on a pass that is done. After CANCELLED,
 * LIMIT and MEMORY the pass can be continued. Errors: ARGUMENT (seconds negative or nan; the cache was used),
 * CANCELLED, LIMIT, MEMORY. */
HEED_CALL heed_steps_advance(heed_steps *steps, double seconds, bool *done);
/** The progress, in multiply-adds (approximately): *done grows with each slice, and reaches *total only when
 * all is done. */
HEED_API void heed_steps_progress(const heed_steps *steps, int64_t *done, int64_t *total);
/** The result and, if taps is not NULL (its size set), the taps: new tensors that share the elements of the
 * pass. Errors: ARGUMENT (not done, or without need_weights), MEMORY. */
HEED_CALL heed_steps_result(heed_steps *steps, heed_tensor **out, heed_attention_taps *taps);
HEED_API void heed_steps_free(heed_steps *steps); /* NULL is allowed */

/* ---- Parts and settings of modules (nn/) ---- */

/* The entries of a module, its parameters and parts, in the order of their creation. */
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

/** Replaces an entry: a parameter by a tensor of the same shape, float32 (weights of Linear and Embedding
 * also bfloat16 or float16, and of another shape, from which the module takes its sizes, unless it has a bias
 * of another size or is a part of a module in C), whose elements are shared; a part by a module of the same
 * class and sizes, which is retained. W_query, W_key, W_value, out_proj and dropout of SelfAttention,
 * CausalAttention and MultiHeadAttention may also be modules of other classes without parts, which the
 * forward pass calls: projections with the tokens [..., n, d], out_proj with the heads' outputs [..., n,
 * num_heads · head_dim], dropout with the weights [..., h, n, s]. The result must have the shape that the
 * original's would have. heed_steps, heed_module_head, heed_module_split and another softmax_dim refuse
 * modules with such parts. Errors: ARGUMENT (no such entry), SHAPE, DTYPE. */
HEED_CALL heed_module_set_parameter(heed_module *m, const char *name, const heed_tensor *value);
HEED_CALL heed_module_set_module(heed_module *m, const char *name, heed_module *value);

/* A module that the host implements, for such a part. */
typedef struct heed_own_config {
  size_t size;      /* sizeof(heed_own_config) */
  const char *name; /* of the class, for messages; copied */
  void *user;       /* for the functions below */
  /* The forward pass: stores a new tensor, which heed takes over, in *out. It may call functions of heed,
   * also with the module that it is a part of. After an error everything is as before the attention's forward
   * pass, except that dropout may have drawn. heed_module_training(m) is the mode. */
  heed_status (*forward)(void *user, heed_module *m, const heed_tensor *x, heed_tensor **out);
  void (*release)(void *user); /* called when the module is freed; NULL: nothing to release */
} heed_own_config;
/** Errors: ARGUMENT (no name, no forward), MEMORY. */
HEED_CALL heed_own_module_new(heed_context *ctx, const heed_own_config *config, heed_module **out);

/* Points of the forward pass of an attention module, under TransformerLens' names. Every tensor is float32
 * and has four dimensions (b is 1 for x without a batch): [b, n, heads, head_dim], where k and v have the key
 * heads, and attn_scores and pattern [b, heads, n, s]. */
typedef enum heed_attention_point {
  HEED_POINT_Q = 1 << 0, /* after the projection */
  HEED_POINT_K = 1 << 1,
  HEED_POINT_V = 1 << 2,
  HEED_POINT_ROT_Q = 1 << 3, /* after the norm and rotation */
  HEED_POINT_ROT_K = 1 << 4,
  HEED_POINT_ATTN_SCORES = 1 << 5, /* before softmax, hidden keys -inf */
  HEED_POINT_PATTERN = 1 << 6,     /* after softmax, before dropout */
  HEED_POINT_Z = 1 << 7,           /* the heads' outputs, before out_proj */
  HEED_POINT_RESULT = 1 << 8       /* Lua's alone */
} heed_attention_point;

/* Called at a point with its tensor x, which is borrowed. May store a new tensor of the same shape in *out,
 * which heed takes over: the pass goes on with it. May call functions of heed, also with m. After an error
 * everything is as before the forward pass, except that dropout may have drawn. */
typedef heed_status heed_hook_function(void *user, heed_module *m, heed_attention_point point,
                                       const heed_tensor *x, heed_tensor **out);
/** Calls `hook` at these points (bits) of every forward pass of m, in place of an earlier hook; NULL or 0
 * removes it. The other passes of m pay nothing, and a pass whose hook changes nothing has the same bits. m
 * is a SelfAttention, CausalAttention or MultiHeadAttention. While m has a hook, heed_steps and another
 * softmax_dim refuse it. Errors: ARGUMENT. */
HEED_CALL heed_attention_set_hook(heed_module *m, unsigned points, heed_hook_function *hook, void *user);

/** Converts the weights of all Linear and Embedding modules in m and its parts to FLOAT32, BFLOAT16, FLOAT16,
 * INT8 or a blocked dtype. INT8 converts Linear weights as heed_quantize_int8 does, adds a parameter
 * weight_scale after each, and leaves embeddings unchanged. Rows that are not whole blocks of 256 become Q5_0
 * instead of Q4_K, Q5_1 instead of Q5_K and Q8_0 instead of Q6_K, and are unchanged where 32 does not divide
 * them. All other parameters, inputs, results and sums remain float32. Weights that share one tensor still do
 * afterwards. All weights change or, after an error, none. Errors: DTYPE, SHAPE (no weight has whole blocks),
 * ARGUMENT (nan or inf, for INT8; beyond float16, for blocks), MEMORY. */
HEED_CALL heed_module_to(heed_module *m, heed_dtype dtype);

/** A setting by name ("in_features", "p", "num_heads"…); false if the module has none of that name. */
HEED_API bool heed_module_setting(const heed_module *m, const char *name, heed_scalar *out);

/** Changes a setting that the constructor also takes, with its checks: p of Dropout; eps of LayerNorm and
 * RMSNorm; scale (0: 1 / √head_dim) of attention modules of one head and of MultiHeadAttention; softmax_dim
 * of CausalAttention; context_length of both; causal and softcap (0: none) of MultiHeadAttention. Passes of
 * heed_steps that have begun keep their settings. Errors: ARGUMENT, INDEX; then nothing has changed. */
HEED_CALL heed_module_set_setting(heed_module *m, const char *name, heed_scalar value);
/** The same for the window of a MultiHeadAttention (NULL: none) and its rotary positions (NULL: off). Caches
 * that were made for another window are refused, and keys in a cache keep the rotation that they have. */
HEED_CALL heed_module_set_window(heed_module *m, const heed_window *window);
HEED_CALL heed_module_set_rope(heed_module *m, const heed_rope_config *rope);

/** The text that PyTorch's repr prints between the parentheses: "in_features=3, out_features=2, bias=False".
 * Writes at most size bytes, including the terminating zero. */
HEED_API void heed_module_describe(const heed_module *m, char *text, size_t size);

/** Views of the columns of head i (from 1; negative: from the last) in the weights of a MultiHeadAttention,
 * [d_in, head_dim] each: the head's queries are x · query. Key and value are those of the head's group.
 * *query, *key and *value must be NULL. Errors: ARGUMENT (another module), INDEX, MEMORY. */
HEED_CALL heed_module_head(heed_module *m, int64_t i, heed_tensor **query, heed_tensor **key,
                           heed_tensor **value);
/** A MultiHeadAttentionWrapper that shares the weights of a MultiHeadAttention, without its output
 * projection. Errors: ARGUMENT (another module, or one with options that a wrapper does not have), MEMORY. */
HEED_CALL heed_module_split(heed_module *m, heed_module **out);

/* ---- Files (io/) ---- */

/* Named tensors, as a file stores them. */
typedef struct heed_archive heed_archive;
HEED_API void
heed_archive_free(heed_archive *archive); /* NULL is allowed; tensors taken from it remain valid */
HEED_API int64_t heed_archive_count(const heed_archive *archive);
HEED_API const char *heed_archive_name(const heed_archive *archive,
                                       int64_t i); /* from 1; NULL: no such entry */
/** A new tensor on the elements of entry i, which the caller frees. Errors: INDEX, ARGUMENT, MEMORY; DTYPE
 * (heed has no dtype for it), FILE (a number of it is larger than INT64_MAX). */
HEED_CALL heed_archive_tensor(const heed_archive *archive, int64_t i, heed_tensor **out);
/** Texts that the file contains (safetensors' __metadata__): pair i from 1; false: no such pair. */
HEED_API bool heed_archive_metadata(const heed_archive *archive, int64_t i, const char **key,
                                    const char **value);

/* Types of the metadata of GGUF files, numbered as there. */
typedef enum heed_gguf_type {
  HEED_GGUF_UINT8,
  HEED_GGUF_INT8,
  HEED_GGUF_UINT16,
  HEED_GGUF_INT16,
  HEED_GGUF_UINT32,
  HEED_GGUF_INT32,
  HEED_GGUF_FLOAT32,
  HEED_GGUF_BOOL,
  HEED_GGUF_STRING,
  HEED_GGUF_ARRAY,
  HEED_GGUF_UINT64,
  HEED_GGUF_INT64,
  HEED_GGUF_FLOAT64
} heed_gguf_type;

/* A value of the metadata: of a loaded archive, in whose memory its bytes are, or to save. */
typedef struct heed_gguf_value {
  heed_gguf_type type;
  heed_gguf_type item; /* ARRAY: the type of its elements */
  int64_t count;       /* ARRAY: elements; STRING: bytes; 1 for others */
  const void *data; /* as in files: numbers little-endian and unaligned, a bool in a byte, a string without a
                       closing zero. In an array, a string comes after its length in 8 bytes, an array after
                       its type in 4 and its count in 8 bytes. */
} heed_gguf_value;

/** The value of a key of a GGUF file; false: the archive has no such key. */
HEED_API bool heed_gguf_find(const heed_archive *archive, const char *key, heed_gguf_value *out);
/** Pair i of a GGUF file's metadata, from 1, in the file's order; false: no such pair. */
HEED_API bool heed_gguf_pair(const heed_archive *archive, int64_t i, const char **key, heed_gguf_value *out);
/** Moves the first element of an array to *item, and the array to those that follow; false: it is empty, or
 * no array. */
HEED_API bool heed_gguf_next(heed_gguf_value *array, heed_gguf_value *item);
/** An integer of any width, or a float with a whole value below 2^53; false: another value, or one above
 * 2^63 - 1. */
HEED_API bool heed_gguf_integer(const heed_gguf_value *value, int64_t *out);
/** A number of any type; false: another value. */
HEED_API bool heed_gguf_number(const heed_gguf_value *value, double *out);
/** false: another value than a bool. */
HEED_API bool heed_gguf_boolean(const heed_gguf_value *value, bool *out);

/** Loads a .safetensors file (mapped: read on first use, copied on write), a sharded one by its
 * .safetensors.index.json, a .gguf file (mapped as well, with blocked dtypes), or an .npz file; files with
 * other names are identified by their first bytes. float32, float16, bfloat16, int64, int8 and bool keep
 * their dtype; float64 becomes float32, all other integers int64; tensors of other dtypes are errors when
 * they are taken. The bytes of a mapped file do not count as the context's memory, and the file must not be
 * truncated while its tensors are in use; its bool, converted and misaligned tensors are copied when they are
 * taken. Errors: FILE (missing, or damaged: the message says what and where), ARGUMENT, MEMORY. */
HEED_CALL heed_load_archive(heed_context *ctx, const char *path, heed_archive **out);
/** Loads a .npy file as a row-major tensor. Errors: FILE, ARGUMENT, MEMORY. */
HEED_CALL heed_load_npy(heed_context *ctx, const char *path, heed_tensor **out);

/** Saves the tensors under these names (distinct, UTF-8) as .safetensors, .npz (uncompressed) or .gguf (see
 * heed_save_gguf), depending on the ending of path. metadata: `pairs` keys and texts in turn, not for .npz;
 * NULL if pairs is 0. The file is written under a temporary name, .heed-….tmp in the same directory, and
 * renamed, so it is complete or unchanged. A killed process leaves the temporary file; the next save of that
 * path removes it. A symbolic link is followed: the file that it points to is replaced, and keeps its mode.
 * Errors: FILE, ARGUMENT, DTYPE (bfloat16 in .npz and .npy), MEMORY. */
HEED_CALL heed_save_archive(heed_context *ctx, const char *path, int64_t count, const char *const *names,
                            const heed_tensor *const *tensors, int64_t pairs, const char *const *metadata);
HEED_CALL heed_save_npy(heed_context *ctx, const char *path, const heed_tensor *x);
/** Saves tensors and metadata as a GGUF file of version 3, as heed_save_archive saves. Names take at most 63
 * bytes and tensors have at most 4 dimensions, which ggml requires; dtypes are float32, float16, bfloat16,
 * int64, int8 and the blocked ones. The elements are aligned to general.alignment, a power of two, or 32.
 * Errors: FILE, ARGUMENT, SHAPE, DTYPE (bool), MEMORY. */
HEED_CALL heed_save_gguf(heed_context *ctx, const char *path, int64_t count, const char *const *names,
                         const heed_tensor *const *tensors, int64_t pairs, const char *const *keys,
                         const heed_gguf_value *values);

/* ---- Tokenizers (text/) ---- */

/* Text to ids and back. Ids count from 0, as in the files. */
typedef struct heed_tokenizer heed_tokenizer;

/** Loads tokenizer.json, vocab.json with merges.txt beside it, a SentencePiece .model, vocab.txt of BERT, the
 * tokenizer in a .gguf, or a folder with one of the others. What it does not support is refused by name.
 * Errors: FILE, ARGUMENT, MEMORY, CANCELLED, LIMIT. */
HEED_CALL heed_tokenizer_load(heed_context *ctx, const char *path, heed_tokenizer **out);
HEED_API void heed_tokenizer_free(heed_tokenizer *tok); /* NULL is allowed */

enum {
  HEED_ADD_SPECIAL_TOKENS = 1,  /* encode: as the tokenizer's template says, such as [CLS] and [SEP] */
  HEED_ALLOW_SPECIAL = 2,       /* encode: special tokens in the text become their ids, not text */
  HEED_SKIP_SPECIAL_TOKENS = 4, /* decode: leaves them out */
};
/** The ids of a text of `bytes` bytes, in memory of the tokenizer that is valid until its next call. Errors:
 * ARGUMENT (the text is not UTF-8), MEMORY, CANCELLED, LIMIT. */
HEED_CALL heed_tokenizer_encode(heed_tokenizer *tok, const char *text, size_t bytes, unsigned flags,
                                const int64_t **ids, int64_t *count);
/** The text of ids, UTF-8 (with U+FFFD for bytes that are none) with a closing 0, in memory as above. Errors:
 * INDEX (an id that the vocabulary lacks), MEMORY, CANCELLED, LIMIT. */
HEED_CALL heed_tokenizer_decode(heed_tokenizer *tok, const int64_t *ids, int64_t count, unsigned flags,
                                const char **text, size_t *bytes);
/** The largest id + 1; 0 for NULL. */
HEED_API int64_t heed_tokenizer_size(const heed_tokenizer *tok);
/** The token of an id as the vocabulary writes it, without a closing 0; NULL if there is none. */
HEED_API const char *heed_tokenizer_token(const heed_tokenizer *tok, int64_t id, size_t *bytes);
/** The id of a token; -1 if there is none. */
HEED_API int64_t heed_tokenizer_id(const heed_tokenizer *tok, const char *token, size_t bytes);

/* ---- Lua (binding/) ---- */

struct lua_State;

/** Opens the library in a Lua state and leaves its table on the stack: luaL_requiref(L, "heed", luaopen_heed,
 * 0). Sets no global and reads no file. The state gets its own context, which allocates tensors with the Lua
 * state's allocator. Available in libheed.a and in the loadable module. */
HEED_API int luaopen_heed(struct lua_State *L);
/** The context of a Lua state, for setting limits and cancelling; it is freed with the state. NULL if the
 * library is not open there. Must be called by the thread that uses L. Before calling other functions with
 * this context under a limit of seconds, call heed_set_deadline: the time of the script's last call may be
 * over. */
HEED_API heed_context *heed_lua_context(struct lua_State *L);
/** The tensor at an index of the stack; NULL: another value, or a tensor that was released. For the functions
 * of C modules beside heed's own. Raises nothing and allocates nothing. It is valid while it is on the stack
 * and Lua runs no code, since scripts can release tensors; a view (heed_detach) is valid until it is freed.
 */
HEED_API heed_tensor *heed_lua_tensor(struct lua_State *L, int index);
/** Pushes an empty tensor for a result: heed_neg(ctx, x, heed_lua_push_tensor(L)) sets it. It belongs to the
 * collector from the beginning. The address is valid while the value is on the stack. As this may run
 * finalizers, push all results first, then take the arguments. Raises an error if memory runs out, or if the
 * library is not open in L. */
HEED_API heed_tensor **heed_lua_push_tensor(struct lua_State *L);
/** The part of the library that is written in C, on which lua/heed/init.lua builds. */
HEED_API int luaopen_heed_core(struct lua_State *L);

#ifdef __cplusplus
}
#endif
#endif
