/* The door of core: contexts, statuses, memory, threads, cancellation, tensors, random streams; no
 * arithmetic. */
#ifndef HEED_CORE_H
#define HEED_CORE_H

#include "../heed.h"
#include "types.h"

#define HEED__MESSAGE 640 /* bytes of the longest message */

/* ---- Errors ---- */

/* Argument n is a printf format, followed by its arguments. On Windows the format is standard C's (with %zu),
 * not that of the system's old printf. */
#if defined(__MINGW32__) && !defined(__clang__)
#define HEED__PRINTF(n) __attribute__((format(gnu_printf, n, n + 1)))
#elif defined(__GNUC__)
#define HEED__PRINTF(n) __attribute__((format(printf, n, n + 1)))
#else
#define HEED__PRINTF(n)
#endif

/** Stores the message in the context and returns status: `return heed__fail(…)`. */
heed_status heed__fail(heed_context *ctx, heed_status status, const char *format, ...) HEED__PRINTF(3);
/** "exp: out of memory (4.0 GiB requested)", or that the memory limit is exceeded. Returns MEMORY. */
heed_status heed__fail_memory(heed_context *ctx, const char *function, size_t bytes);

/* ---- Structs that begin with their size (sized_struct.c) ---- */

/* `theirs` is the host's struct, `ours` this library's version of it, of `known` bytes; both begin with a
 * size_t size. `argument` and `type` are for messages. */

/** Checks that theirs->size is plausible. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__struct_check(heed_context *ctx, const char *function, const char *argument,
                               const char *type, const void *theirs);
/** Copies the fields that both have to ours, which keeps its defaults for fields that an older header lacks.
 * Errors: ARGUMENT (an implausible size, or a field that this library does not know is not 0). */
HEED_MUST_USE
heed_status heed__struct_read(heed_context *ctx, const char *function, const char *argument, const char *type,
                              const void *theirs, void *ours, size_t known);
/** Sets theirs, of `size` bytes, to the defaults in ours. An implausible size is left for heed__struct_read
 * to refuse. */
void heed__struct_init(void *theirs, size_t size, const void *ours, size_t known);
/** Copies the fields that both have, except the size, to theirs and zeroes the rest of it. */
void heed__struct_fill(void *theirs, const void *ours, size_t known);
/** The same, and zeroes the copied fields in ours: what remains there is unknown to theirs. */
void heed__struct_move(void *theirs, void *ours, size_t known);

/* ---- Numbers as text ---- */

/* Independent of the locale. In messages, "%s" and HEED__G(value) replace %g. */

#define HEED__NUMBER_TEXT 40 /* bytes of the longest number; 'f' can need more */
/** Writes the value as %.*e, %.*f or %.*g (`form` is 'e', 'f' or 'g'), cut to `size` bytes; returns its
 * length. */
int heed__write_number(char *text, size_t size, char form, int precision, double value);
/** Writes the value as %g; returns text. */
const char *heed__number_text(char text[HEED__NUMBER_TEXT], double value);
/** Singular and plural in messages: "1 head", "2 heads"; "there is 1", "there are 2". */
#define HEED__S(n)     ((n) == 1 ? "" : "s")
#define HEED__ARE(n)   ((n) == 1 ? "is" : "are")
#define HEED__G(value) heed__number_text((char[HEED__NUMBER_TEXT]){0}, (value))
/** The smallest number of significant digits, 1 to 17, that represents the (finite) value exactly when read
 * back. */
int heed__shortest_digits(double value);

/** Calls the host's log function, if there is one. Not for use in tasks. (log.c) */
void heed__log(heed_context *ctx, heed_log_level level, const char *format, ...) HEED__PRINTF(3);

/* ---- Division ---- */

/** a / b for a >= 0 and b > 0, by a 32-bit division where possible: before Ice Lake, Intel's 64-bit division
 * is several times slower. Twenty of them took 5 % of a call of 2 µs. */
static inline int64_t heed__quotient(int64_t a, int64_t b) {
  return (a | b) > UINT32_MAX ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

/* ---- Memory ---- */

/* What a context with malloc keeps at most; nothing under the address sanitizer, which would miss uses of
 * released blocks. */
#if defined(__SANITIZE_ADDRESS__)
#define HEED__KEPT_MEMORY ((size_t)0)
#else
#define HEED__KEPT_MEMORY ((size_t)256 << 20)
#endif

/** Allocates `bytes` bytes, aligned to HEED__ALIGNMENT and counted on the context; NULL, without a message,
 * if out of memory. */
void *heed__allocate(heed_context *ctx, size_t bytes);
/** The bytes of `count` elements; on overflow PTRDIFF_MAX, for which every allocation fails. The sum of two
 * such sizes does not overflow. */
static inline size_t heed__array_bytes(uint64_t count, size_t element) {
  return element > 0 && count > PTRDIFF_MAX / element ? PTRDIFF_MAX : (size_t)count * element;
}
/** Releases a block of heed__allocate; NULL is allowed. */
void heed__release(heed_context *ctx, void *block);
/** Returns kept blocks to the allocator until `bytes` remain. */
void heed__shrink_kept(heed_context *ctx, size_t bytes);

/* ---- External resources ---- */

/* A resource that is not the context's memory, such as a mapped file; also released when a context is
 * destroyed whose objects are still held. The first field of a struct in one of the context's blocks. */
typedef struct heed__external {
  struct heed__external *next, *previous; /* the context's list */
  void (*release)(struct heed__external *resource);
} heed__external;
void heed__external_add(heed_context *ctx, heed__external *resource,
                        void (*release)(heed__external *resource));
/** Removes the resource from the context's list and releases it. */
void heed__external_remove(heed_context *ctx, heed__external *resource);

/* ---- Cancellation (cancel.c) ---- */

/** The status of work that is due: CANCELLED (and clears the cancellation) or LIMIT, with a message; OK if
 * only a time slice has ended. */
HEED_MUST_USE
heed_status heed__stopped(heed_context *ctx, const char *function);
/** The same for what costs no work: OK also if the budget of work is exceeded. */
HEED_MUST_USE
heed_status heed__out_of_time(heed_context *ctx, const char *function);

/** Begins a time slice: work is due at `end` (heed_clock()), if that is before the deadline; INFINITY: no
 * slice. For resumable tasks alone: other operations would take an incomplete result for complete. */
void heed__set_slice(heed_context *ctx, double end);

/** Starts the time limit (limits.call_seconds) of a script's call. */
void heed__start_call(heed_context *ctx);
/** Ends it, for calls from C that follow. */
void heed__end_call(heed_context *ctx);

/** heed__charge under a limit of work. */
HEED_MUST_USE
heed_status heed__charge_limited(heed_context *ctx, const char *function, double units);

/* What heed_set_poll set. Only the thread of the running call reads and writes `next` and `runs`. */
typedef struct heed__poll {
  heed_context *context;
  void (*function)(void *user);
  void *user;
  double seconds, next; /* in seconds of heed_clock(): between two calls, and of the next call */
  bool runs;            /* the function is running */
} heed__poll_state;

/* ---- Limits (limits.c) ---- */

/** Checks that the limits allow access to files; `where` begins the message: "load: 'a.npy'". Errors: LIMIT.
 */
HEED_MUST_USE
heed_status heed__check_files(heed_context *ctx, const char *where);
/** Whether files are mapped; else they are copied. */
bool heed__maps_files(const heed_limits *limits);

/* ---- Context ---- */

struct heed__pool; /* parallel.c */

/** Whether this processor can run that kernel table. */
bool heed__cpu_runs(heed__cpu cpu);
/** The fastest kernel table that runs here, or the one that the environment variable HEED_CPU names; false if
 * there is no such table or it does not run here. */
bool heed__cpu_choose(heed__cpu *out);
/** The table for products in fewer bits, given the chosen one: AMX where the system permits it, which is a
 * property of the whole process, and unless HEED_CPU is set. */
heed__cpu heed__cpu_for_narrow(heed__cpu cpu);

#if defined(__x86_64__)
/* What CPUID says, by register and leaf, and the registers that the system saves (XGETBV; 0 without OSXSAVE).
 */
typedef struct heed__x86 {
  unsigned ecx1, ebx7, ecx7, edx7, eax71;
  uint64_t saved;
} heed__x86;
/** One bit for each table that such a processor runs: 1 << HEED__CPU_x. (cpu.c) */
unsigned heed__x86_tables(const heed__x86 *x);
#endif

#define HEED__CPU_NAME 64
/** The processor's brand name, or the architecture's name. */
void heed__cpu_name(char text[HEED__CPU_NAME]);

#define HEED__MT_WORDS 624

/* A generator of either kind. */
struct heed_generator {
  heed_context *context;
  bool owned_by_context;
  heed_generator_kind kind;
  /* MT19937 */
  bool has_spare; /* `spare` is an unused second normal value (randn of fewer than 16 elements) */
  double spare;
  uint32_t position; /* of the next word; HEED__MT_WORDS: all words are used */
  /* PHILOX */
  uint64_t seed, offset; /* offset: in words of 32 bits, of each subsequence */
  int part_ndim; /* draws are parts of a tensor with these dimensions, from `first` (from 0); 0: whole */
  int64_t whole[HEED_MAX_DIMS], first[HEED_MAX_DIMS];
  uint32_t word[HEED__MT_WORDS]; /* MT19937 */
};

/* Functions of BLAS, which ops/gemm.c finds at first use. */
#define HEED__BLAS_FUNCTIONS 5
typedef void (*heed__function)(void);
typedef struct heed__blas {
  bool is_known, is_usable;
  heed__function function[HEED__BLAS_FUNCTIONS]; /* numbered by gemm.c; NULL: missing */
} heed__blas;

/* Blocks of spare memory: for a node, and for a leaf and its node. */
#define HEED__SPARES 3

struct heed_context {
  heed_allocator allocator;
  size_t in_use, peak;         /* bytes requested from the allocator for blocks, without the context itself */
  int64_t references;          /* the owner's, and one for each block */
  struct heed__prefix *blocks; /* a list (alloc.c) */
  heed__external *externals;   /* a list */
  heed__cpu cpu;
  int threads;             /* the number that may work, including the caller's */
  long process;            /* that set it, if it is not 1: after fork, a child has no other threads */
  struct heed__pool *pool; /* started at first use */
  heed__blas blas;
  bool keep_blas_threads;
  bool huge_pages;
  size_t kept, kept_limit; /* bytes of the blocks in kept_newest, and at most */
  struct heed__prefix *kept_newest, *kept_oldest;
  bool skip_init;                        /* heed_skip_init */
  int64_t watched;                       /* modules whose flag `watched` is set */
  const struct heed__recorder *recorder; /* NULL: operations are not recorded */
  void *spare[HEED__SPARES];             /* memory for recording when nothing may fail; or NULL (node.c) */
  struct heed__node *unreferenced;       /* nodes that are being freed (node.c) */
  bool frees_nodes;
  uint64_t recorded;           /* the number of the last recorded node */
  int64_t hooks;               /* the number of the last hook on a tensor */
  struct heed__pass *backward; /* the backward pass that runs; NULL: none (grad) */
  heed_dropout_stream dropout_stream;
  heed_matmul_precision precision;
  heed_generator generator;
  heed__pace pace;
  heed__poll_state poll;
  double deadline, deadline_seconds; /* in heed_clock()'s seconds, and as set; 0: none */
#if defined(HEED_DEBUG)
  _Atomic(uintptr_t) inside; /* the thread that is in a call (enter.c); 0: none */
  int depth;                 /* of its nested calls */
#endif
  double call_end; /* time limit of the current or last script's call (limits.call_seconds); 0: none */
  heed_limits limits;
  bool paid;      /* what runs now has been charged as a whole: nothing is taken off limits.work */
  bool overspent; /* limits.work is exceeded: by a call that needed work_needed when work_left were left */
  double work_needed, work_left;
  bool refused;           /* the last allocation that failed exceeded the memory limit */
  size_t refused_at;      /* bytes in use at that time */
  heed_log_function *log; /* NULL: none */
  void *log_user;
  char message[HEED__MESSAGE];
};

/** Takes units of work (heed_limits.work) off the budget. If fewer are left it returns LIMIT, and so do all
 * cancellation checks from then on. For the beginning of an operation, where its size is known and nothing
 * depends on the kernels or on the number of threads yet, and for loops on the caller's thread. Not for
 * tasks.
 */
HEED_MUST_USE
static inline heed_status heed__charge(heed_context *ctx, const char *function, double units) {
  return ctx->limits.work != 0 && !ctx->paid ? heed__charge_limited(ctx, function, units) : HEED_OK;
}

/** Frees the context with all of its blocks, even those still held. (alloc.c) */
void heed__context_destroy(heed_context *ctx);
/** Releases a reference; the last one frees the context. */
void heed__context_drop(heed_context *ctx);

/* ---- Threads ---- */

/** The most workers that heed__parallel uses now, including the caller: the number of scratch buffers needed.
 * 1 inside a task. Results must not depend on it. */
int heed__workers(const heed_context *ctx);

/** Runs task(argument, i, worker) once for each i from 0 to count - 1, started in that order, on the caller's
 * thread and the pool's; returns when all started tasks are done. worker is less than count and
 * heed__workers, and differs between tasks that run at the same time. Tasks run in the caller's
 * floating-point environment. A task must neither allocate nor fail; a nested heed__parallel runs on the
 * task's own thread alone.
 *
 * False if the context's work is due: not all tasks were started, and those with cancellation checks of their
 * own may have returned early. The caller then releases its resources and returns heed__stopped(…). A task
 * should take at most 100 µs, or check for cancellation. */
typedef void heed__task(void *argument, int64_t i, int worker);
HEED_MUST_USE
bool heed__parallel(heed_context *ctx, int64_t count, heed__task *task, void *argument);

/** Ends the pool's threads; they start again when needed. */
void heed__stop_threads(heed_context *ctx);

/* ---- The operating system ---- */

#include "system.h"

/* ---- Shapes ---- */

#define HEED__SHAPE_TEXT (HEED_MAX_DIMS * 22 + 8)
/** Writes a shape as "[2, 6, 3]"; returns text. */
const char *heed__shape_text(char text[HEED__SHAPE_TEXT], int ndim, const int64_t *shape);

/** The number of elements of a shape without negative sizes; -1 if the product of its nonzero sizes, times
 * `element` bytes, exceeds the address space. */
int64_t heed__numel(int ndim, const int64_t *shape, size_t element);

/** Checks the shape of a tensor of that dtype and counts its elements, if numel is not NULL. `function` is
 * the public name, for messages. Errors: SHAPE, ARGUMENT (an invalid dtype). */
HEED_MUST_USE
heed_status heed__check_shape(heed_context *ctx, const char *function, int ndim, const int64_t *shape,
                              heed_dtype dtype, int64_t *numel);

bool heed__same_shape(int ndim, const int64_t *shape, int with_ndim, const int64_t *with_shape);

/** Row-major strides, in elements. */
void heed__row_major(int ndim, const int64_t *shape, int64_t *stride);

/** The dimensions of x (from 0) in the order of their strides, the outermost first. */
void heed__memory_order(const heed_tensor *x, int *order);
/** The strides of PyTorch's empty_like(x): those of x if its elements are dense in memory, else dense ones
 * with the same order of dimensions. */
void heed__strides_like(const heed_tensor *x, int64_t *stride);

/** Whether x can be viewed with another `shape` of as many elements without a copy; sets `stride` as
 * PyTorch's view does. */
bool heed__view_strides(const heed_tensor *x, int ndim, const int64_t *shape, int64_t *stride);

/** Adds one broadcast operand to (ndim, shape): false, with nothing changed, if a size is neither equal
 * nor 1. Start with ndim = 0 and a shape of capacity HEED_MAX_DIMS. */
bool heed__broadcast(int *ndim, int64_t *shape, int with_ndim, const int64_t *with_shape);

/* ---- Tensors ---- */

/* Reference-counted memory that tensors share. A new tensor, its storage and its elements are one block. */
typedef struct heed__storage {
  heed_context *context;
  int64_t references;
  char *data;
  size_t bytes;
  void (*release)(void *user, void *data); /* for a host's memory, else NULL */
  void *user;
  bool placeholder;          /* one element in place of a parameter that is loaded later (heed_skip_init) */
  uint32_t version;          /* the number of writes in place (heed__written) */
  const char *written_by;    /* the operation of the last one */
  uint64_t recorded;         /* the order of the node that the last recorded write in place made; 0: none */
  struct heed__leaf *leaves; /* parameters on this storage that can get gradients: a list (node.c) */
} heed__storage;

/* A header on a storage. All layers may read its fields. Headers on the stack (heed__alias_on_stack) hold no
 * reference. */
struct heed_tensor {
  heed__storage *storage;
  char *data; /* the first element */
  heed_dtype dtype;
  int ndim;
  int64_t numel;
  bool parameter;
  bool in_storage;         /* the header lies in the storage's block */
  bool detached;           /* a detached view, or a view of one */
  uint32_t output;         /* which result of `node` it is, from 0 */
  struct heed__node *node; /* what computed it, counted; NULL: it was not recorded (node.h) */
  struct heed__leaf *leaf; /* of it and its aliases, counted; NULL: none, or that of a parameter */
  int64_t shape[HEED_MAX_DIMS];
  int64_t stride[HEED_MAX_DIMS]; /* in elements, none negative */
};

/** Whether tensors of a dtype can lead to a gradient, which is float32: real numbers of any precision. */
static inline bool heed__is_differentiable(heed_dtype dtype) {
  return dtype == HEED_FLOAT32 || dtype == HEED_BFLOAT16 || dtype == HEED_FLOAT16;
}
/** Whether a dtype is for storage only, not for arithmetic (heed.h). */
static inline bool heed__only_stores(heed_dtype dtype) {
  return dtype > HEED_FLOAT32;
}

/** Whether weights and caches can have the dtype: float32, bfloat16, float16, int8. */
static inline bool heed__can_store(heed_dtype dtype) {
  return dtype == HEED_FLOAT32 || (heed__only_stores(dtype) && !heed__is_blocked(dtype));
}

/** The bit of a dtype in a set of them, and "float32, int8 or q8_0" for a set, each dtype between two
 * `quote`. */
#define HEED__DTYPE_BIT(dtype) (1u << (dtype))
#define HEED__DTYPES_TEXT      200
const char *heed__dtypes_text(char out[HEED__DTYPES_TEXT], unsigned set, const char *quote);

/** The dtype that two are promoted to, as by PyTorch; float16 and bfloat16 give float32. */
heed_dtype heed__common_dtype(heed_dtype a, heed_dtype b);

/** Makes `view`, on the stack, a header on x's elements that holds no reference and is never freed. Copies
 * only the dimensions in use, and not `parameter`. */
void heed__alias_on_stack(heed_tensor *view, const heed_tensor *x);
/** The same with permuted dimensions: dimension i of the view is dimension order[i] of x (from 0). */
void heed__permute_on_stack(heed_tensor *view, const heed_tensor *x, const int *order);
/** Reduces dimension d (from 0) of such a header to the `count` elements from `start` (from 0) on. */
void heed__narrow_on_stack(heed_tensor *view, int d, int64_t start, int64_t count);
/** A row-major header on memory without a storage, which must outlive it; heed_tensor_free ignores it. */
void heed__header_on_stack(heed_tensor *x, heed_dtype dtype, const void *data, int ndim,
                           const int64_t *shape);

/** heed_tensor_new with the caller's name in messages. */
HEED_MUST_USE
heed_status heed__tensor_new(heed_context *ctx, const char *function, heed_dtype dtype, int ndim,
                             const int64_t *shape, heed_tensor **out);

/** A new tensor from a header on the stack: same shape, strides and data. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__tensor_from_view(heed_context *ctx, const char *function, const heed_tensor *view,
                                   heed_tensor **out);

/* A float32 tensor for the duration of one call: on the caller's stack if it is small. */
#define HEED__TEMPORARY_FLOATS 512
typedef struct heed__temporary {
  heed_tensor tensor;
  float floats[HEED__TEMPORARY_FLOATS];
} heed__temporary;
/** A row-major tensor with uninitialised elements, in *temporary if it fits, else new. Either way it is freed
 * with heed_tensor_free; no view of it may outlive the call. Errors: SHAPE, MEMORY. */
HEED_MUST_USE
heed_status heed__temporary_new(heed_context *ctx, const char *function, heed__temporary *temporary, int ndim,
                                const int64_t *shape, heed_tensor **out);

/* A tensor without dimensions whose element is on the stack. */
typedef struct heed__number {
  heed_tensor tensor;
  union {
    float f;
    int64_t i;
    uint8_t b;
    uint16_t half;
  } value;
} heed__number;
const heed_tensor *heed__number_tensor(heed__number *number, heed_scalar value);

/** Reads the element at `p`; writes it, converted as by heed_to. */
heed_scalar heed__load(heed_dtype dtype, const void *p);
void heed__store(heed_dtype dtype, void *p, heed_scalar value);

/** Whether two elements of x share an address, as in an expanded tensor. */
bool heed__overlaps_itself(const heed_tensor *x);
/** Whether x and y may share memory: true for all that do, and for some that do not. */
bool heed__may_overlap(const heed_tensor *x, const heed_tensor *y);
/** Whether x and y are views of the same elements in the same order. */
bool heed__same_view(const heed_tensor *x, const heed_tensor *y);

/* ---- What is recorded for gradients ---- */

#include "node.h"

/* ---- Checks at the entry of public functions ---- */

#include "enter.h"

/* ---- Random streams ---- */

#include "random.h"

#endif
