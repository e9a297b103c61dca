/* The types that kernels share with the layers above. Includes nothing but the C library, so that an edit of
 * heed.h recompiles no kernel.
 *
 * heed.h is installed alone and therefore declares the dtypes too. core.h includes both, heed.h first; where
 * they differ, the compiler reports that HEED_DTYPE_LIST or HEED_INT8_BLOCK is redefined (in make lint an
 * error). */
#ifndef HEED_TYPES_H
#define HEED_TYPES_H

#include <float.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convert.h"

/* The x87 registers of 32-bit x86 keep more digits than a float has, and with -std=c11 gcc computes floats in
 * double on s390x; exp, which rounds by adding a large number, would then return powers of 2. */
#if FLT_EVAL_METHOD == 1 || FLT_EVAL_METHOD == 2 || (FLT_EVAL_METHOD < 0 && defined(__i386__))
#if defined(__s390__)
#error "heed needs floats that are computed as floats: on s390x, compile with -fexcess-precision=fast"
#else
#error "heed needs floats that are computed as floats: on 32-bit x86, compile with -msse2 -mfpmath=sse"
#endif
#endif

#define HEED__ALIGNMENT 64 /* of the elements of a new tensor: a cache line, an AVX-512 register */

static inline int64_t heed__min(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static inline int64_t heed__max(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static inline size_t heed__min_size(size_t a, size_t b) {
  return a < b ? a : b;
}

/* 1: a build without training, models' files, tokenizers, ggml's blocks and products in fewer bits, and with
 * the scalar table and one of vectors (make/build.mk). */
#ifndef HEED_MINIMAL
#define HEED_MINIMAL 0
#endif

/* ---- Dtypes ---- */

/* name, text, C type of an element (heed.h) */
#define HEED_DTYPE_LIST(X)                                                                                   \
  X(BOOL, "bool", uint8_t)                                                                                   \
  X(INT64, "int64", int64_t)                                                                                 \
  X(FLOAT32, "float32", float)                                                                               \
  X(BFLOAT16, "bfloat16", uint16_t)                                                                          \
  X(FLOAT16, "float16", uint16_t)                                                                            \
  X(INT8, "int8", int8_t)
/* name, text, elements and bytes of a block (heed.h) */
#define HEED_BLOCK_DTYPE_LIST(X)                                                                             \
  X(Q4_0, "q4_0", 32, 18)                                                                                    \
  X(Q4_1, "q4_1", 32, 20)                                                                                    \
  X(Q5_0, "q5_0", 32, 22)                                                                                    \
  X(Q5_1, "q5_1", 32, 24)                                                                                    \
  X(Q8_0, "q8_0", 32, 34)                                                                                    \
  X(Q4_K, "q4_k", 256, 144)                                                                                  \
  X(Q5_K, "q5_k", 256, 176)                                                                                  \
  X(Q6_K, "q6_k", 256, 210)
#define HEED_INT8_BLOCK 64

#ifndef HEED_H
typedef enum heed_dtype {
#define X(name, text, type) HEED_##name,
  HEED_DTYPE_LIST(X)
#undef X
#define X(name, text, elements, bytes) HEED_##name,
      HEED_BLOCK_DTYPE_LIST(X)
#undef X
} heed_dtype;

double heed_clock(void);
#endif

enum { HEED__LARGEST_BLOCK = 256 }; /* elements */
/* Those that kernels read */
#if HEED_MINIMAL
#define HEED__BLOCK_KERNELS(X)
#else
#define HEED__BLOCK_KERNELS(X) HEED_BLOCK_DTYPE_LIST(X)
#endif

/** Whether the elements of a dtype lie in blocks, which only conversions and products with weights read. */
static inline bool heed__is_blocked(heed_dtype dtype) {
  return !HEED_MINIMAL && dtype > HEED_INT8;
}
enum { HEED__LAST_DTYPE = HEED_MINIMAL ? HEED_INT8 : HEED_Q6_K };
static inline bool heed__is_any_dtype(heed_dtype dtype) {
  return (unsigned)dtype <= HEED__LAST_DTYPE;
}
/** Elements of a block; 1 for other dtypes. */
static inline int64_t heed__block_elements(heed_dtype dtype) {
#define X(name, text, elements, bytes) elements,
  static const int16_t of[] = {HEED_BLOCK_DTYPE_LIST(X)};
#undef X
  return heed__is_blocked(dtype) ? of[dtype - HEED_Q4_0] : 1;
}
/** Bytes of an element; 0 if the dtype is blocked. */
static inline size_t heed__element_bytes(heed_dtype dtype) {
  static const uint8_t bytes[] = {
#define X(name, text, type) sizeof(type),
      HEED_DTYPE_LIST(X)
#undef X
  };
  return heed__is_blocked(dtype) ? 0 : bytes[dtype];
}
/** Bytes of a block, or of an element of another dtype. */
static inline size_t heed__block_bytes(heed_dtype dtype) {
#define X(name, text, elements, bytes) bytes,
  static const uint8_t of[] = {HEED_BLOCK_DTYPE_LIST(X)};
#undef X
  return heed__is_blocked(dtype) ? of[dtype - HEED_Q4_0] : heed__element_bytes(dtype);
}
/** Bytes of n consecutive elements, whole blocks. */
static inline int64_t heed__row_bytes(heed_dtype dtype, int64_t n) {
  return n / heed__block_elements(dtype) * (int64_t)heed__block_bytes(dtype);
}
/** The multiple of which addresses must be. */
static inline size_t heed__dtype_alignment(heed_dtype dtype) {
  return heed__is_blocked(dtype) ? 1 : heed__element_bytes(dtype);
}

/* ---- Cancellation checks ---- */

struct heed__poll;

/* The state that cancellation checks read; one in each context. The pool's threads read it too,
 * so everything but `cancelled` changes only while no work runs. Work that has become due stays due until the
 * call ends. */
typedef struct heed__pace {
  atomic_int cancelled; /* set by heed_cancel, from any thread or a signal handler */
  bool timed;
  bool held;    /* the running work must not be interrupted: nothing is due until it ends */
  double until; /* in seconds of heed_clock(): the deadline, or the end of an earlier slice of time */
  struct heed__poll *poll; /* the host's function that runs meanwhile; NULL: none */
} heed__pace;

/** Calls the function of heed_set_poll if its time has come and this is the caller's thread. (parallel.c) */
void heed__poll(struct heed__poll *poll);

/** Whether work must stop. Takes a nanosecond, with a deadline 30, with a poll function 60: to be called
 * every 20 to 100 µs. */
static inline bool heed__is_due(const heed__pace *pace) {
  if (pace->poll != NULL) heed__poll(pace->poll);
  return (atomic_load_explicit(&pace->cancelled, memory_order_relaxed) ||
          (pace->timed && heed_clock() >= pace->until)) &&
         !pace->held;
}

/** The same in a loop over elements with index i: checks once in 2^14 elements, which take 10 to 50 µs. */
static inline bool heed__is_due_at(const heed__pace *pace, int64_t i) {
  return (i & 0x3fff) == 0x3fff && heed__is_due(pace);
}

/* ---- Instruction sets ---- */

/* The kernel tables that are compiled for this architecture, from the slowest to the fastest. cpu.c detects
 * which of them run on the processor. */
#if HEED_MINIMAL
#define HEED__HAS_NARROW 0
#elif defined(__x86_64__) && defined(__clang__)
#define HEED__HAS_NARROW (__clang_major__ >= 12) /* the compiler knows AVX-VNNI, AVX-512 BF16 and AMX */
#elif defined(__x86_64__)
#define HEED__HAS_NARROW (__GNUC__ >= 11)
#else
#define HEED__HAS_NARROW 0
#endif
/* The same of ARM's dot products, I8MM and BF16 */
#if HEED_MINIMAL
#define HEED__HAS_NARROW_NEON 0
#elif defined(__AARCH64EL__) && defined(__clang__)
#define HEED__HAS_NARROW_NEON (__clang_major__ >= 19)
#elif defined(__AARCH64EL__)
#define HEED__HAS_NARROW_NEON (__GNUC__ >= 10)
#else
#define HEED__HAS_NARROW_NEON 0
#endif
/* The intrinsics of AMX in gcc pass strides as a long, which must have 64 bits. */
#if HEED__HAS_NARROW && defined(__LP64__)
#define HEED__HAS_AMX     1
#define HEED__CPU_LIST(X) X(scalar) X(avx2) X(avx2_vnni) X(avx512) X(avx512_vnni) X(avx512_bf16) X(amx)
#elif HEED__HAS_NARROW
#define HEED__HAS_AMX     0
#define HEED__CPU_LIST(X) X(scalar) X(avx2) X(avx2_vnni) X(avx512) X(avx512_vnni) X(avx512_bf16)
#elif defined(__x86_64__) && HEED_MINIMAL
#define HEED__CPU_LIST(X) X(scalar) X(avx2)
#elif defined(__x86_64__)
#define HEED__HAS_AMX     0
#define HEED__CPU_LIST(X) X(scalar) X(avx2) X(avx512)
#elif HEED__HAS_NARROW_NEON
#define HEED__CPU_LIST(X) X(scalar) X(neon) X(neon_dotprod) X(neon_bf16)
#elif defined(__aarch64__)
#define HEED__CPU_LIST(X) X(scalar) X(neon)
#elif defined(__wasm_simd128__)
#define HEED__CPU_LIST(X) X(scalar) X(wasm)
#else
#define HEED__CPU_LIST(X) X(scalar)
#endif
typedef enum heed__cpu {
#define X(name) HEED__CPU_##name,
  HEED__CPU_LIST(X)
#undef X
      HEED__CPU_COUNT
} heed__cpu;

/* ---- Philox4x32-10 ---- */

#define HEED__PHILOX_MULTIPLIER_0 0xd2511f53u
#define HEED__PHILOX_MULTIPLIER_2 0xcd9e8d57u
#define HEED__PHILOX_STEP_0       0x9e3779b9u /* of the key, after each round */
#define HEED__PHILOX_STEP_1       0xbb67ae85u
enum { HEED__PHILOX_ROUNDS = 10 };

/* The blocks of four words with the counters (block, thread), (block, thread + 1) …, n of them; key has two
 * words. */
typedef void heed__philox_kernel(uint32_t *out, const uint32_t *key, uint64_t block, uint64_t thread,
                                 size_t n);
/** The one of core, 1.8 ns a word; the vector kernels take a third of that. (philox.c) */
void heed__philox_blocks(uint32_t *out, const uint32_t *key, uint64_t block, uint64_t thread, size_t n);

/* ---- Normal numbers ---- */

/* Turns n uniform numbers in [0, 1) into normal ones, in blocks: x[j] and x[j + half a block] give two. n is
 * a multiple of the block. */
#define HEED__NORMAL_BLOCK 16
typedef void heed__normal_transform(float *x, size_t n, float std, float mean);

#endif
