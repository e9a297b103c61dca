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

typedef struct heed__narrow_work {
  const heed__kernels *kernels;
  heed__narrow_task whole;
  int64_t rows, columns, across;
  heed__work work;
} heed__narrow_work;

typedef struct heed__linear_work {
  heed__result result; /* result.tensor is there from the beginning on */
  const char *function;
  bool empty, narrow;
  heed_tensor *made[4];
  union {
    heed__gemm_work gemm;
    heed__narrow_work narrow;
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

/* ---- Attention (attention.c) ---- */

/* Those before the mask every call has. */
typedef enum heed__attention_operand {
  HEED__ATTENTION_Q,
  HEED__ATTENTION_K,
  HEED__ATTENTION_V,
  HEED__ATTENTION_OUT,
  HEED__ATTENTION_MASK,
  HEED__ATTENTION_PADDING,
  HEED__ATTENTION_LENGTHS,
  HEED__ATTENTION_K_SCALE,
  HEED__ATTENTION_V_SCALE,
  HEED__ATTENTION_OPERANDS
} heed__attention_operand;

/* A call once it has been checked. A product is one head of queries of one batch item, counted from 0 in the
 * order of [batch..., hq]; `group` of them in a row, from a multiple of group on, share keys and values. */
typedef struct heed__attention_problem {
  int ndim;      /* of the result [batch..., hq, l, dv]; 2 without heads */
  int head_dims; /* 1, or 0 if the leading dimensions are all batch */
  int batch_ndim;
  int64_t hq, hkv, l, s, d, dv;
  int64_t products, group; /* batch · hq, hq / hkv */
  int64_t past;            /* keys of them; 0: none */
  int64_t span;   /* the most keys that the rows of a product can see by their places, from the first to the
                     last; given by sizes and options alone */
  int64_t offset; /* of the queries, but for what lengths add */
  int64_t left, right;         /* of the window and causality; INT64_MAX: no bound */
  const int64_t *lengths;      /* of product 0; NULL: none */
  const float *slopes, *sinks; /* of product 0; NULL: none */
  ptrdiff_t slope_stride, sink_stride;
  const heed_tensor *k, *v; /* the call's, or past ones and these together, which are `joined` */
  heed_tensor *joined[2];
  heed_tensor *made;         /* the mask in full width, if it had to be made */
  heed__attention_task task; /* of product 0; all but pointers, and what depends on lengths and heads, is
                                every product's */

  /* [batch..., hkv, group] without sizes of 1, and the strides of the operands over it, in elements. */
  int outer_ndim;
  bool plain; /* there are no operands from the mask on, and nothing that differs from head to head */

  int64_t shape[HEED_MAX_DIMS]; /* [batch..., hq, l, dv] */
  int64_t outer[HEED_MAX_DIMS + 1];
  ptrdiff_t step[HEED__ATTENTION_OPERANDS][HEED_MAX_DIMS + 1];
  heed_tensor mask; /* attn_mask in full width */
} heed__attention_problem;

/* The division of a call with few queries and many keys (decode.c). The rows of a head of keys are those of
 * its group's heads, l each; where heads lie side by side in memory, some of them are done together. A unit
 * of rows is HEED__DECODE_ROWS or fewer; a task is a unit on a range of keys. */
typedef struct heed__decode_division {
  const heed__attention_problem *problem;
  const heed__kernels *kernels;
  int64_t heads;         /* that are done together, */
  int64_t count;         /* how many times, */
  int64_t rows, units;   /* and of each: rows and units */
  int64_t range, ranges; /* of the span, and how many; a product's begin with the first key that it sees */
  int64_t tasks;
  float *parts; /* of each task, or with one range of each slot, `area` floats: outputs [rows, dv], largest
                   scores [rows], sums [rows] */
  int64_t area, area_rows;
  float *scores; /* of each slot `score_room` floats */
  int64_t score_room;
  int64_t block; /* keys that are gone through at once */
  const heed__pace *pace;
} heed__decode_division;

/* Written row by row: those of modules, and those of heed_attention_taps. */
enum {
  HEED__TAP_SCORES,
  HEED__TAP_WEIGHTS,
  HEED__TAP_DROPPED_WEIGHTS,
  HEED__TAP_LOGITS,
  HEED__TAP_CAPPED_LOGITS,
  HEED__TAP_BIASED_LOGITS,
  HEED__TAPS
};

typedef struct heed__attention_work {
  heed_context *context;
  const heed__attention_call *call;
  heed__attention_problem problem;
  heed__result result;
  heed_attention_taps made; /* the call's taps until the end */
  const heed__kernels *kernels;
  bool empty;              /* there is nothing to be done */
  bool tapped;             /* by a pass of its own, so that taps change no bit of the output */
  bool decoded;            /* the outputs are `decode`'s */
  bool drops, in_order;    /* in_order: product by product, as dropout draws and as small ones are fastest */
  float *taps[HEED__TAPS]; /* NULL where not wanted */
  int64_t rows, blocks;    /* of a task, and how many tasks a product has */
  float *scratch;          /* `area` floats for each slot; then, with dropout, what it keeps of a task */
  size_t area;
  float *allocated[2]; /* the scratch and decode's parts, where they are not on the caller's stack */
  /* in_order: the task that is next, or was left at a position of the kernel's, with so much drawn for it. */
  int64_t at, left_at, drawn;
  bool drawing; /* dropout has begun */
  heed__dropout dropout;
  heed__decode_division decode;
  bool begun; /* there is `work` */
  heed__work work, decode_work, join_work;
} heed__attention_work;

/* Room for small scratch on the caller's stack. */
enum { HEED__ATTENTION_ROOM = 4096 };
typedef struct heed__attention_room {
  _Alignas(HEED__ALIGNMENT) float floats[HEED__ATTENTION_ROOM];
} heed__attention_room;

/** As heed__attention. w, the call and what it names must stay where they are until heed__attention_work_end,
 * which is due unless this fails. room NULL: all is allocated. From the generator is drawn by the runs. */
HEED_MUST_USE
heed_status heed__attention_work_begin(heed_context *ctx, heed__attention_work *w,
                                       const heed__attention_call *call, heed__attention_room *room,
                                       heed_tensor **out);
HEED_MUST_USE
bool heed__attention_work_run(heed_context *ctx, heed__attention_work *w);
/** Hands the results over if status is OK, and else drops them; returns the status of both. */
HEED_MUST_USE
heed_status heed__attention_work_end(heed_context *ctx, heed__attention_work *w, heed_status status);
double heed__attention_work_progress(const heed__attention_work *w);

#endif
