/* Work that is left when the context's work is due (core.h, heed__pace) and taken up again later: the large
 * products and attention. A work is begun (checks, memory), run, again and again until it says that it is
 * done, and ended. An operation runs it in one go; a plan (nn/steps.c) slice by slice, to the same bits.
 * ops.h includes this. */
#ifndef HEED_OPS_WORKS_H
#define HEED_OPS_WORKS_H

/* ---- Tasks (work.c) ---- */

/* What a slot is at: a task that was left, or -1. */
typedef struct heed__work_slot {
  int64_t task, position;
} heed__work_slot;

typedef struct heed__work {
  int64_t count; /* of tasks; they are begun in order */
  /* Whether the task is done; else it has left, having done something, at *position, which is 0 for the
   * beginning. Must neither allocate nor fail. What it keeps in areas of its slot stays there while it is
   * left. */
  bool (*run)(void *argument, int64_t task, int slot, int64_t *position);
  void *argument;
  const heed__pace *pace;
  _Atomic(int64_t) next, pieces; /* the first task that was not begun, and how many times run was called */
  int slots;
  heed__work_slot *slot;
  heed__work_slot one; /* the slots, if there is but one */
} heed__work;

/** With a slot for each of `workers` (heed__workers(ctx) at the most), or with one if there is no memory for
 * more. */
void heed__work_begin(heed_context *ctx, heed__work *work, int workers, int64_t count,
                      bool (*run)(void *argument, int64_t task, int slot, int64_t *position), void *argument);
/** Whether all is done. If not, work is due; a piece of it was done even if it was due before. */
HEED_MUST_USE
bool heed__work_run(heed_context *ctx, heed__work *work);
void heed__work_end(heed_context *ctx, heed__work *work);
/** How much of it is done, from 0 to 1; grows with each run. */
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
  bool divided;           /* else it is done at once, and what follows is not set */
  const heed__blas *blas; /* NULL: the kernel multiplies */
  float *room;            /* of each slot, `room_each` floats; NULL: none */
  size_t room_each;
  int64_t rows, columns; /* of a slice */
  int64_t across;        /* slices side by side */
  heed__work work;
} heed__gemm_work;

/** Chooses the kernels and loads BLAS, if products like p go there, before several threads make such
 * products.
 */
void heed__gemm_prepare(heed_context *ctx, const heed__product *p);
/** As heed__gemm takes it. g must stay where it is until the end. */
void heed__gemm_begin(heed_context *ctx, heed__gemm_work *g, const heed__product *p);
HEED_MUST_USE
bool heed__gemm_run(heed_context *ctx, heed__gemm_work *g);
void heed__gemm_end(heed_context *ctx, heed__gemm_work *g);

/* ---- Linear maps (linear.c) ---- */

typedef struct heed__lowp_work {
  const heed__kernels *kernels;
  heed__lowp_task whole;
  int64_t rows, columns, across;
  heed__work work;
} heed__lowp_work;

typedef struct heed__linear_work {
  heed__result result; /* result.tensor is there from the beginning on */
  const char *function;
  bool empty, lowp;
  heed_tensor *made[4];
  union {
    heed__gemm_work gemm;
    heed__lowp_work lowp;
  } as;
} heed__linear_work;

/** As heed_linear, or heed_linear_int8 if there are scales. l must stay where it is until heed__linear_end,
 * which is due unless this fails; x, weight, scale and bias until then, too. */
HEED_MUST_USE
heed_status heed__linear_begin(heed_context *ctx, heed__linear_work *l, const char *function,
                               const heed_tensor *x, const heed_tensor *weight, const heed_tensor *scale,
                               const heed_tensor *bias, heed_tensor **out);
HEED_MUST_USE
bool heed__linear_run(heed_context *ctx, heed__linear_work *l);
/** Hands the result over if status is OK, and else drops it; returns the status of both. */
HEED_MUST_USE
heed_status heed__linear_end(heed_context *ctx, heed__linear_work *l, heed_status status);
double heed__linear_progress(const heed__linear_work *l);

#endif
