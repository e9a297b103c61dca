/* The door of core, for every layer above: tensors, memory, messages, random streams; no arithmetic. */
#ifndef HEED_CORE_H
#define HEED_CORE_H

#include <float.h>
#include <stdatomic.h>

#include "../heed.h"
#include "convert.h"

/* The x87 registers of 32-bit x86 keep more digits than a float has; exp, which rounds by adding a large
 * number, then gives powers of 2. */
#if FLT_EVAL_METHOD == 1 || FLT_EVAL_METHOD == 2 || (FLT_EVAL_METHOD < 0 && defined(__i386__))
#error "heed needs floats that are computed as floats: on 32-bit x86, compile with -msse2 -mfpmath=sse"
#endif

#define HEED__MESSAGE   640 /* bytes of the longest message */
#define HEED__ALIGNMENT 64  /* of the elements of a new tensor: a cache line, an AVX-512 register */

/* ---- Errors ---- */

/* Argument n is a format of printf's, what it formats follows. On Windows as C has it, %zu too, not as the
 * system's old printf. */
#if defined(__MINGW32__) && !defined(__clang__)
#define HEED__PRINTF(n) __attribute__((format(gnu_printf, n, n + 1)))
#elif defined(__GNUC__)
#define HEED__PRINTF(n) __attribute__((format(printf, n, n + 1)))
#else
#define HEED__PRINTF(n)
#endif

/** Keeps the message on the context and returns status, so that `return heed__fail(…)` is one line. */
heed_status heed__fail(heed_context *ctx, heed_status status, const char *format, ...) HEED__PRINTF(3);
/** "exp: 4.0 GiB of memory could not be had", or that the limit of memory does not allow them. Returns
 * MEMORY. */
heed_status heed__fail_memory(heed_context *ctx, const char *function, size_t bytes);

/* ---- Structs that begin with their size (struct.c) ---- */

/* `theirs` is the host's, of the size that it says, and `ours` as this library has it, of `known` bytes; both
 * begin with a size_t size. `argument` and `type` are for messages. */

/** Whether theirs->size can be one. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__struct_check(heed_context *ctx, const char *function, const char *argument,
                               const char *type, const void *theirs);
/** Copies what both have into ours, which holds the defaults of what an older header lacks. Errors: ARGUMENT
 * (a size that is none, or something set behind what is known here). */
HEED_MUST_USE
heed_status heed__struct_read(heed_context *ctx, const char *function, const char *argument, const char *type,
                              const void *theirs, void *ours, size_t known);
/** Makes theirs, of `size` bytes, the defaults that ours holds. A size that is none is left to those who
 * read. */
void heed__struct_init(void *theirs, size_t size, const void *ours, size_t known);
/** Copies what both have into theirs, but for the size, and makes the rest of it zeros. */
void heed__struct_fill(void *theirs, const void *ours, size_t known);
/** The same, and makes zeros of it in ours: what is left there, an older header does not know. */
void heed__struct_move(void *theirs, void *ours, size_t known);

/* ---- Numbers as text ---- */

/* These have a point whatever the locale. Messages take "%s" and HEED__G(value) where printf would have %g.
 */

#define HEED__NUMBER_TEXT 40 /* bytes of the longest number but with 'f', for which values may be long */
/** The value as printf's %.*e, %.*f or %.*g (`form` is 'e', 'f' or 'g') write it, cut to `size`; returns its
 * length. */
int heed__write_number(char *text, size_t size, char form, int precision, double value);
/** The value as %g has it, in text, which it returns. */
const char *heed__number_text(char text[HEED__NUMBER_TEXT], double value);
/** For counts in messages: "1 head" and "2 heads", "there is 1" and "there are 2". */
#define HEED__S(n)     ((n) == 1 ? "" : "s")
#define HEED__ARE(n)   ((n) == 1 ? "is" : "are")
#define HEED__G(value) heed__number_text((char[HEED__NUMBER_TEXT]){0}, (value))
/** The fewest significant digits, 1 to 17, that give the (finite) value back. */
int heed__shortest_digits(double value);

/** Tells the host's log, if there is one. Never from a task. (log.c) */
void heed__log(heed_context *ctx, heed_log_level level, const char *format, ...) HEED__PRINTF(3);

/* ---- Division ---- */

/** a / b for a >= 0 and b > 0. Intel's processors before Ice Lake divide 64 bits several times slower than
 * 32: of a call of 2 µs a score of such divisions was a twentieth. */
static inline int64_t heed__quotient(int64_t a, int64_t b) {
  return (a | b) > UINT32_MAX ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

/* ---- Memory ---- */

/** `bytes` bytes aligned to HEED__ALIGNMENT, counted on the context; NULL if there are none, without a
 * message. */
void *heed__allocate(heed_context *ctx, size_t bytes);
/** The bytes of `count` elements; PTRDIFF_MAX, which no allocation is given, where their number is larger. Of
 * such numbers two can be added. */
static inline size_t heed__array_bytes(uint64_t count, size_t element) {
  return element > 0 && count > PTRDIFF_MAX / element ? PTRDIFF_MAX : (size_t)count * element;
}
/** Gives back what heed__allocate gave; NULL is allowed. */
void heed__release(heed_context *ctx, void *block);

/* ---- What is outside of the context's memory ---- */

/* A mapped file, for example: given back by give_back(…) also where a context is destroyed with blocks that
 * somebody still holds. The first field of what it stands for, which lies in a block of the context's. */
typedef struct heed__external {
  struct heed__external *next, *previous; /* all of the context's */
  void (*give_back)(struct heed__external *thing);
} heed__external;
void heed__external_add(heed_context *ctx, heed__external *thing, void (*give_back)(heed__external *thing));
/** Takes it off the context's list and gives it back. */
void heed__external_remove(heed_context *ctx, heed__external *thing);

/* ---- Stopping (stop.c) ---- */

/* What long work looks at to know whether it is to go on; one in each context. The pool's threads read it,
 * too: all but `cancelled` changes only while no work runs. What was due once in a call stays due to its end.
 */
typedef struct heed__pace {
  atomic_int cancelled; /* by heed_cancel, from any thread or a signal handler */
  bool timed;
  bool held;    /* what runs must not be left in the middle: nothing is due until that is over */
  double until; /* heed_clock() then: the deadline, or the end of a slice of time before it */
} heed__pace;

/** Whether work is to leave off. Takes a nanosecond, with a deadline 30: to be asked every 20 to 100 µs. */
static inline bool heed__is_due(const heed__pace *pace) {
  return (atomic_load_explicit(&pace->cancelled, memory_order_relaxed) ||
          (pace->timed && heed_clock() >= pace->until)) &&
         !pace->held;
}

/** The same in a loop over elements, i counting them: asked for one in 2^14, which take 10 to 50 µs. */
static inline bool heed__is_due_at(const heed__pace *pace, int64_t i) {
  return (i & 0x3fff) == 0x3fff && heed__is_due(pace);
}

/** Where work is due: CANCELLED (which takes the cancel) or LIMIT, with a message; OK if no more than a slice
 * of time is over. */
HEED_MUST_USE
heed_status heed__stopped(heed_context *ctx, const char *function);

/** Work is due at `end` (heed_clock()) as well, where that is before the deadline; INFINITY ends that. For
 * work that is taken up again: an operation that ran to such an end would take what it has for its result. */
void heed__set_slice(heed_context *ctx, double end);

/** A call of a script's begins: limits.seconds counts from now. */
void heed__start_call(heed_context *ctx);

/* ---- Limits (limits.c) ---- */

/** Whether the context may look at files; `where` begins the message: "load: 'a.npy'". Errors: LIMIT. */
HEED_MUST_USE
heed_status heed__check_files(heed_context *ctx, const char *where);

/* ---- Context ---- */

struct heed__kernels; /* kernels/kernels.h */
struct heed__pool;    /* parallel.c */

/* The instruction sets that there are kernels for; on x86 each one includes those before it. */
#define HEED__CPU_LIST(X) X(scalar) X(avx2) X(avx512) X(neon)
typedef enum heed__cpu {
#define X(name) HEED__CPU_##name,
  HEED__CPU_LIST(X)
#undef X
} heed__cpu;

/** The best of them here, or what the environment's HEED_CPU names; false if that is unknown or not to be
 * had. */
bool heed__cpu_choose(heed__cpu *out);

#define HEED__CPU_NAME 64
/** The processor's name as its maker writes it, or that of its architecture. */
void heed__cpu_name(char text[HEED__CPU_NAME]);

#define HEED__MT_WORDS 624

struct heed_generator {
  heed_context *context;
  bool owned_by_context;
  bool has_spare; /* a second normal value waits (randn of fewer than 16 elements) */
  double spare;
  uint32_t position; /* of the next word; HEED__MT_WORDS: the words are used up */
  uint32_t word[HEED__MT_WORDS];
};

/* What a context uses of BLAS, which ops/gemm.c finds at first need. */
#define HEED__BLAS_FUNCTIONS 5
typedef void (*heed__function)(void);
typedef struct heed__blas {
  bool is_known, is_usable;
  heed__function function[HEED__BLAS_FUNCTIONS]; /* of its kinds, which gemm.c numbers; NULL: it has none */
} heed__blas;

struct heed_context {
  heed_allocator allocator;
  size_t in_use, peak; /* bytes asked of the allocator for blocks; the context itself is not counted */
  int64_t references;  /* the owner's, and one of every block that was allocated and not yet released */
  struct heed__prefix *blocks; /* all of these, a list (alloc.c) */
  heed__external *outside;     /* what must be given back besides */
  heed__cpu cpu;
  const struct heed__kernels *kernels; /* chosen at first need */
  int threads;             /* how many may work, the caller included, in the process that said so */
  long process;            /* which that was, where threads is not 1: a child has none of them */
  struct heed__pool *pool; /* started at first need */
  heed__blas blas;
  bool keep_blas_threads;
  bool huge_pages; /* wished for */
  bool skip_init;  /* heed_skip_init */
  heed_dropout_stream dropout_stream;
  heed_generator generator;
  heed__pace pace;
  double deadline, deadline_seconds; /* heed_clock() then, and what heed_set_deadline was given; 0: none */
#if defined(HEED_DEBUG)
  _Atomic(uintptr_t) inside; /* which thread (enter.c); 0: none */
  int depth;                 /* of its calls */
#endif
  double call_end; /* of the script's call that runs, or was the last (limits.seconds); 0: none */
  heed_limits limits;
  bool refused;           /* the limit of memory, the last allocation; */
  size_t refused_at;      /* with so many bytes in use */
  heed_log_function *log; /* NULL: none */
  void *log_user;
  char message[HEED__MESSAGE];
};

/** Frees the context with all of its blocks, whoever holds them. (alloc.c) */
void heed__context_destroy(heed_context *ctx);
/** Gives a reference back; the context goes with the last one. */
void heed__context_drop(heed_context *ctx);

/* ---- Threads ---- */

/** How many workers heed__parallel uses now at the most, the caller included: the number of scratch areas. 1
 * inside of a task. Results must not depend on it. */
int heed__workers(const heed_context *ctx);

/** Runs task(argument, i, worker) once for each i from 0 to count - 1, begun in that order, on the caller and
 * the pool's threads; returns when all that were begun are done. worker, from 0 to below both count and
 * heed__workers, tells apart what runs at the same time in this call. Tasks run in the caller's
 * floating-point environment. A task must neither allocate nor fail; if it calls heed__parallel itself that
 * runs on its own thread alone.
 *
 * False if the context's work is due: no task is begun any more then, and those that look at the pace
 * themselves may have left off. The caller then gives back what it holds and returns heed__stopped(…). A task
 * should take 100 µs at the most, or look. */
typedef void heed__task(void *argument, int64_t i, int worker);
HEED_MUST_USE
bool heed__parallel(heed_context *ctx, int64_t count, heed__task *task, void *argument);

/** Ends the pool's threads; they start again at the next need. */
void heed__stop_threads(heed_context *ctx);

/* ---- The operating system ---- */

#include "system.h"

/* ---- Shapes ---- */

#define HEED__SHAPE_TEXT (HEED_MAX_DIMS * 22 + 8)
/** A shape as "[2, 6, 3]" into text, which it returns. */
const char *heed__shape_text(char text[HEED__SHAPE_TEXT], int ndim, const int64_t *shape);

/** Elements of a shape (no size negative), or -1 if the product of the sizes that are not 0 overflows what
 * memory can address with `element` bytes each. */
int64_t heed__numel(int ndim, const int64_t *shape, size_t element);

/** A shape that a tensor of that dtype can have: the number of its elements, where numel is not NULL.
 * `function` is the public name, for the message. Errors: SHAPE, ARGUMENT (no such dtype). */
HEED_MUST_USE
heed_status heed__check_shape(heed_context *ctx, const char *function, int ndim, const int64_t *shape,
                              heed_dtype dtype, int64_t *numel);

bool heed__same_shape(int ndim, const int64_t *shape, int with_ndim, const int64_t *with_shape);

/** Row-major strides, in elements. */
void heed__row_major(int ndim, const int64_t *shape, int64_t *stride);

/** The dimensions (from 0) of x as they lie in memory, the outermost first. */
void heed__memory_order(const heed_tensor *x, int *order);
/** The strides that PyTorch's empty_like(x) has: those of x if its elements lie side by side, else such as
 * keep the order of its dimensions in memory. */
void heed__strides_like(const heed_tensor *x, int64_t *stride);

/** Whether the elements of x, in row-major order, can be read with another `shape` (of as many elements)
 * without a copy; `stride` is then filled, as PyTorch's view has it. */
bool heed__view_strides(const heed_tensor *x, int ndim, const int64_t *shape, int64_t *stride);

/** Adds one broadcast operand to (ndim, shape): false, with nothing changed, if a size is neither equal
 * nor 1. Start with ndim = 0; shape has room for HEED_MAX_DIMS. */
bool heed__broadcast(int *ndim, int64_t *shape, int with_ndim, const int64_t *with_shape);

/* ---- Tensors ---- */

/* Counted memory; the tensors on it share it. A new tensor, its storage and its elements are one block. */
typedef struct heed__storage {
  heed_context *context;
  int64_t references;
  char *data;
  size_t bytes;
  void (*release)(void *user, void *data); /* of a host's memory, else NULL */
  void *user;
  bool placeholder; /* one element that stands for a whole parameter (heed_skip_init) */
} heed__storage;

/* A header on a storage. Its fields may be read anywhere; headers on the stack (heed__alias_on_stack) do not
 * count. */
struct heed_tensor {
  heed__storage *storage;
  char *data; /* the first element */
  heed_dtype dtype;
  int ndim;
  int64_t numel;
  bool parameter;
  bool in_storage; /* the header lies in the storage's block */
  int64_t shape[HEED_MAX_DIMS];
  int64_t stride[HEED_MAX_DIMS]; /* in elements, none negative */
};

static inline size_t heed__element_bytes(heed_dtype dtype) {
  static const uint8_t bytes[] = {
#define X(name, text, type) sizeof(type),
      HEED_DTYPE_LIST(X)
#undef X
  };
  return bytes[dtype];
}

/** Whether tensors of that dtype are for keeping numbers, not for working with them (heed.h). */
static inline bool heed__only_stores(heed_dtype dtype) {
  return dtype > HEED_FLOAT32;
}

/** What weights and caches may be stored in: float32, bfloat16, float16, int8. */
static inline bool heed__can_store(heed_dtype dtype) {
  return dtype == HEED_FLOAT32 || heed__only_stores(dtype);
}

/** What tensors of two dtypes have in common when they are put together: the one that holds the numbers of
 * both, as PyTorch promotes; float16 and bfloat16 make float32. */
heed_dtype heed__common_dtype(heed_dtype a, heed_dtype b);

/** A header on x's elements that holds no reference: for views inside a function, to be dropped without a
 * call. Copies only the dimensions in use, and not the mark of a parameter. */
void heed__alias_on_stack(heed_tensor *view, const heed_tensor *x);
/** The same with the dimensions of x in another order: dimension i is order[i] (from 0) of x. */
void heed__permute_on_stack(heed_tensor *view, const heed_tensor *x, const int *order);

/** heed_tensor_new under another name in messages. */
HEED_MUST_USE
heed_status heed__tensor_new(heed_context *ctx, const char *function, heed_dtype dtype, int ndim,
                             const int64_t *shape, heed_tensor **out);

/** Makes a counted tensor from such a header (its shape, strides, data). Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__tensor_from_view(heed_context *ctx, const char *function, const heed_tensor *view,
                                   heed_tensor **out);

/* Room for a float32 tensor that lives for one call: on the caller's stack if it is small. */
#define HEED__TEMPORARY_FLOATS 512
typedef struct heed__temporary {
  heed_tensor tensor;
  float floats[HEED__TEMPORARY_FLOATS];
} heed__temporary;
/** A row-major tensor, its elements unset: in *place if it fits, else a new one. heed_tensor_free is right
 * for both; no view of it may be kept. Errors: SHAPE, MEMORY. */
HEED_MUST_USE
heed_status heed__temporary_new(heed_context *ctx, const char *function, heed__temporary *place, int ndim,
                                const int64_t *shape, heed_tensor **out);

/** A tensor of no dimensions over one element on the stack. */
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

/** The element at `p` as a scalar, and back (converted as heed_to says). */
heed_scalar heed__load(heed_dtype dtype, const void *p);
void heed__store(heed_dtype dtype, void *p, heed_scalar value);

/** Whether two elements of x share a place (an expanded tensor). */
bool heed__overlaps_itself(const heed_tensor *x);
/** Whether x and y may share a place; false negatives never happen. */
bool heed__may_overlap(const heed_tensor *x, const heed_tensor *y);
/** Whether x and y are the same elements in the same order. */
bool heed__same_view(const heed_tensor *x, const heed_tensor *y);

/* ---- The threshold of public functions ---- */

#include "enter.h"

/* ---- Random streams ---- */

/** The generator to draw from: g, or the context's if g is NULL. */
heed_generator *heed__generator(heed_context *ctx, heed_generator *g);

uint32_t heed__draw32(heed_generator *g);
uint64_t heed__draw64(heed_generator *g);
/** Uniform in [0, 1) with 24 bits, and with 53 bits. */
float heed__draw_float(heed_generator *g);
/** n of them at once, quicker. This, heed__draw_normal and heed__dropout_apply give false where the work is
 * due before all is drawn; whoever asked then puts the generator back. Up to HEED__DRAWN_WHOLE always are: of
 * the slowest kind, normal ones by the scalar kernel, in 100 µs. */
#define HEED__DRAWN_WHOLE 2048
HEED_MUST_USE
bool heed__draw_floats(heed_generator *g, float *out, int64_t n);
double heed__draw_double(heed_generator *g);
/** Makes normal numbers of n that are uniform in [0, 1): of each block x[j] and x[j + half a block]. n is a
 * multiple of the block. */
#define HEED__NORMAL_BLOCK 16
typedef void heed__normal_transform(float *x, size_t n, float std, float mean);
/** n values of the normal distribution with that mean and standard deviation: by the kernel `transform` as
 * PyTorch's randn gives them for n elements, or, where that is NULL or n is less than a block, one by one in
 * double, as PyTorch fills tensors that are not contiguous. */
HEED_MUST_USE
bool heed__draw_normal(heed_generator *g, heed__normal_transform *transform, double mean, double std,
                       float *out, int64_t n);

/* Which elements dropout keeps, one after another. */
typedef struct heed__dropout {
  heed_generator *generator;
  heed_dropout_stream stream;
  uint64_t least; /* drawn integer that drops an element, those below keep it; 0: p is 1 */
  float scale;    /* 1 / (1 - p), of what is kept */
  uint64_t state; /* of the mkl stream */
} heed__dropout;
/** Starts a tensor's worth of dropout; draws the seed of the mkl stream. p in (0, 1]. */
void heed__dropout_begin(heed__dropout *d, heed_context *ctx, heed_generator *g, double p);
/** out = x · 0 or x · scale, as the next n elements of the stream have it; may be in place. The product keeps
 * PyTorch's -0 and nan. p = 1 draws nothing. */
HEED_MUST_USE
bool heed__dropout_apply(heed__dropout *d, float *out, const float *x, int64_t n);

#endif
