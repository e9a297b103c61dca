/* Resumable work: large products and attention, which stop at a cancellation check (heed__pace) and can
 * continue later. A work is begun (checks, memory), run until it is done, and ended. An operation runs it in
 * one call; heed_steps (nn/attention/steps.c) runs it in slices, and the results are bit-identical. Included
 * by ops.h. */
#ifndef HEED_OPS_WORKS_H
#define HEED_OPS_WORKS_H

/* ---- Tasks (work.c) ---- */

/* An unfinished task and its position; task -1: none. */
typedef struct heed__work_slot {
  int64_t task, position;
} heed__work_slot;

typedef struct heed__work {
  int64_t count; /* number of tasks, which begin in order */
  /* Continues a task at *position, which is 0 at the beginning. True when it is done; false at a yield point,
   * with the new *position, after some progress. Must neither allocate nor fail. Scratch of the slot keeps
   * its contents until the task is done. */
  bool (*run)(void *argument, int64_t task, int slot, int64_t *position);
  void *argument;
  const heed__pace *pace;
  _Atomic(int64_t) next, pieces; /* the first task that has not begun; the number of calls of run */
  int slots;
  heed__work_slot *slot;
  heed__work_slot one; /* the slots, if there is only one */
} heed__work;

/** With a slot for each of `workers` (at most heed__workers(ctx)), or with one if out of memory. */
void heed__work_begin(heed_context *ctx, heed__work *work, int workers, int64_t count,
                      bool (*run)(void *argument, int64_t task, int slot, int64_t *position), void *argument);
/** Runs until all is done (true) or a cancellation check stops it (false). Makes some progress in any case.
 */
HEED_MUST_USE
bool heed__work_run(heed_context *ctx, heed__work *work);
void heed__work_end(heed_context *ctx, heed__work *work);
/** The part that is done, from 0 to 1; grows with each run. */
double heed__work_progress(const heed__work *work);

/* ---- Products of matrices (gemm.c) ---- */

typedef struct heed__product {
  int64_t m, n, k;
  const float *a, *b, *bias;
  float *c;
  ptrdiff_t a_row, a_column, b_row, b_column, c_row;
} heed__product;

typedef struct heed__gemm_work {
  const heed__kernels *kernels;
  heed__product whole;
  bool divided;           /* else it is done in one piece, and the following fields are not set */
  const heed__blas *blas; /* NULL: the kernel multiplies */
  float *scratch;         /* scratch_each floats for each slot; NULL: not blocked */
  size_t scratch_each;
  int64_t rows, columns; /* of a slice */
  int64_t across;        /* number of slices side by side */
  heed__work work;
} heed__gemm_work;

/** Chooses the kernels, and loads BLAS if products like p use it, before several threads compute such
 * products. */
void heed__gemm_prepare(heed_context *ctx, const heed__product *p);
/** The product of heed__gemm. g must not move until the end. */
void heed__gemm_begin(heed_context *ctx, heed__gemm_work *g, const heed__product *p);
HEED_MUST_USE
bool heed__gemm_run(heed_context *ctx, heed__gemm_work *g);
void heed__gemm_end(heed_context *ctx, heed__gemm_work *g);

/** Whether the context's precision and kernels multiply float32 matrices of that size in bfloat16. (linear.c)
 */
bool heed__goes_reduced(const heed_context *ctx, int64_t m, int64_t n, int64_t k);
/** The product in bfloat16, which it goes to, and whose a_column and b_row or b_column are 1. Errors: MEMORY,
 * or of a cancellation check. (linear.c) */
HEED_MUST_USE
heed_status heed__reduced_product(heed_context *ctx, const char *function, const heed__product *p);

/* ---- Linear maps (linear.c) ---- */

typedef struct heed__lowp_work {
  const heed__kernels *kernels;
  heed__lowp_task whole;
  int64_t rows, columns, across;
  heed__work work;
  /* In fewer bits: x is packed first, then multiplied. */
  void *packed, *scratch; /* scratch_each bytes for each slot; NULL: x is not packed */
  size_t scratch_each;
  heed__work packing;
} heed__lowp_work;

typedef struct heed__linear_work {
  heed__result result; /* result.tensor is set from the beginning on */
  const char *function;
  bool empty, lowp;
  heed_tensor *made[4];
  union {
    heed__gemm_work gemm;
    heed__lowp_work lowp;
  } as;
} heed__linear_work;

/** heed_linear, or heed_linear_int8 if scale is not NULL. Unless this fails, heed__linear_end must follow;
 * until then l must not move, and x, weight, scale and bias must exist. */
HEED_MUST_USE
heed_status heed__linear_begin(heed_context *ctx, heed__linear_work *l, const char *function,
                               const heed_tensor *x, const heed_tensor *weight, const heed_tensor *scale,
                               const heed_tensor *bias, heed_tensor **out);
HEED_MUST_USE
bool heed__linear_run(heed_context *ctx, heed__linear_work *l);
/** Like heed__result_end. */
HEED_MUST_USE
heed_status heed__linear_end(heed_context *ctx, heed__linear_work *l, heed_status status);
double heed__linear_progress(const heed__linear_work *l);

#endif
