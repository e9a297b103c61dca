/* The door of attention. */
#ifndef HEED_ATTENTION_H
#define HEED_ATTENTION_H

#include "../ops/ops.h"

/* Rotary positions and linear biases for the modules. (rope.c) */
/** Whether heads of size d can be turned so. Messages say "<function>: rope's base is …". Errors: ARGUMENT.
 */
HEED_MUST_USE
heed_status heed__check_rope(heed_context *ctx, const char *function, const heed_rope_config *config,
                             int64_t d);
/** The host's config (NULL: that of heed_rope_config_init) as this library has it. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__rope_config_read(heed_context *ctx, const char *function, const char *argument,
                                   const heed_rope_config *theirs, heed_rope_config *out);
/** heed_rope of x [..., n, d] at the positions offset + 1, offset + 2, …; *out may be x. */
HEED_MUST_USE
heed_status heed__rope(heed_context *ctx, const char *function, const heed_tensor *x, int64_t offset,
                       const heed_rope_config *config, heed_tensor **out);
/** The slopes of that many heads, for heed_attention_options. */
void heed__alibi_slopes(int64_t num_heads, float *slopes);

/* Attention with what modules need besides heed_attention_options (attention.c). */
typedef struct heed__attention_call {
  const char *function;         /* for messages */
  const heed_tensor *q, *k, *v; /* k and v may also be bfloat16, float16, or int8 with k_scale and v_scale */
  heed_attention_options options;
  bool no_heads; /* the leading dimensions are all batch: q, k, v [..., n, d], masks and internals alike */
  const heed_tensor *key_padding_mask; /* bool, broadcasts to [..., s] without the head dimension; NULL */
  int64_t
      offset; /* of the queries, beside what past keys and lengths add: the keys of a cache before x's own */
  const heed_tensor *k_scale,
      *v_scale; /* float32 [..., hkv, s]: what the int8 elements of a row are multiplied by */
  heed_tensor *scores, *weights,
      *dropped_weights;      /* q·k before scaling with hidden places -inf; NULL: not wanted */
  heed_attention_taps *taps; /* NULL: not wanted; filled on success; not together with `weights` */
} heed__attention_call;
/** A mask [..., fewer than s keys], bool or float32, in full width: the keys beyond it are hidden. Errors:
 * SHAPE, MEMORY. (attention_mask.c) */
HEED_MUST_USE
heed_status heed__widen_mask(heed_context *ctx, const char *function, const heed_tensor *mask, int64_t s,
                             heed_tensor **out);
HEED_MUST_USE
heed_status heed__attention(heed_context *ctx, const heed__attention_call *call, heed_tensor **out);

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
