/* The door of attention: softmax(scale · q kᵀ + bias) v, rotary positions and linear biases.
 *
 * A call has one way: heed__attention_operands name its inputs; heed__attention_plan_begin checks them
 * (check.c, masks.c), finds the strides of every head (strides.c) and divides the work into tasks (plan.c,
 * decode.c); heed__attention_plan_run executes these, at once or slice by slice; heed__attention_plan_end
 * hands over the results. Sizes are named as in heed.h; s includes past keys. */
#ifndef HEED_ATTENTION_H
#define HEED_ATTENTION_H

#include "../ops/ops.h"

/* ---- Operands ---- */

/* Names of the taps as bits: 1u << HEED__TAP_weights. The first HEED__TAP_MAPS of the list are maps
 * [..., hq, l, s]. */
typedef enum heed__tap {
#define X(name) HEED__TAP_##name,
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
      HEED__TAPS
} heed__tap;
enum { HEED__TAP_MAPS = HEED__TAP_biased_logits + 1 };

/* What heed_scaled_dot_product_attention and the modules have in common. */
typedef struct heed__attention_operands {
  const char *function;         /* for messages */
  const heed_tensor *q, *k, *v; /* k and v may also be bfloat16, float16, or int8 with k_scale and v_scale */
  heed_attention_options options;
  bool no_heads; /* the leading dimensions are all batch: q, k, v [..., n, d], masks and taps alike */
  const heed_tensor *key_padding_mask;  /* bool, broadcasts to [..., s] without the head dimension; or NULL */
  int64_t offset;                       /* of the queries, added to that of past keys and lengths */
  const heed_tensor *k_scale, *v_scale; /* float32 [..., hkv, s]: the scale of each int8 row */
  unsigned taps;                        /* those to compute, as bits: maps, present_key and present_value */
  heed_attention_taps *found;           /* receives them on success; the other fields stay */
} heed__attention_operands;

/* ---- The plan ---- */

/* Every call has those before the mask. */
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
  HEED__ATTENTION_STRIDED
} heed__attention_operand;

/* The division of a call with few queries and many keys (decode.c). The rows of a key head are those of its
 * group's query heads, l each; heads that lie side by side in memory may be computed together. A unit is
 * HEED__DECODE_ROWS rows or fewer; a task is a unit on a range of keys. */
typedef struct heed__decode_division {
  int64_t heads, bundles; /* key heads that are computed together, and the number of such bundles */
  int64_t rows, units;    /* of a bundle */
  int64_t range, ranges;  /* keys of a range, ranges of a head; they begin at the first key that it sees */
  int64_t tasks;
  /* Of each task, or of each slot if there is one range, `area` floats: outputs [rows, dv], row_max [rows],
   * row_sum [rows]. */
  float *parts;
  int64_t area, area_rows;
  float *scores; /* score_area floats for each slot */
  int64_t score_area;
  int64_t block; /* keys of a step of the kernel */
} heed__decode_division;

/* A call from its checked operands to its tasks. A head is one query head of one batch item, counted from 0
 * in the order of [batch..., hq]; `group` of them in a row, from a multiple of group on, share a key head. */
typedef struct heed__attention_plan {
  heed_context *context;
  const heed__attention_operands *operands;

  /* Sizes (check.c) */
  int ndim;      /* of the result [batch..., hq, l, dv]; 2 without heads */
  int head_dims; /* 1, or 0 if the leading dimensions are all batch */
  int batch_ndim;
  int64_t query_heads, key_heads, query_length, key_length, head_size, value_size;
  int64_t group, heads;        /* hq / hkv, batch · hq */
  int64_t past;                /* past keys among s */
  int64_t offset, left, right; /* of the queries, without lengths; of window and causality: INT64_MAX: no
                                  bound */
  const heed_tensor *k, *v;    /* the operands', or `joined`: past keys and values, then these */
  heed_tensor *joined[2];
  heed_tensor *widened_mask; /* NULL unless attn_mask had fewer than s keys */

  /* Strides (strides.c) */
  const int64_t *lengths;      /* of head 0; or NULL */
  const float *slopes, *sinks; /* of head 0; or NULL */
  ptrdiff_t slope_stride, sink_stride;
  bool plain;                /* no operand from the mask on, and nothing that differs between heads */
  int outer_ndim;            /* of `outer` */
  int64_t span;              /* the most keys between the first and the last that a head can see; depends on
                                sizes and options alone */
  heed__attention_task task; /* of head 0; other heads differ in pointers, lengths, slope and sink */

  /* Results and tasks (plan.c, taps.c) */
  heed__result result;
  heed_attention_taps taps;   /* until the end, which moves them to operands->found */
  float *map[HEED__TAP_MAPS]; /* elements of the maps to write; or NULL */
  const heed__kernels *kernels;
  bool empty;   /* there is nothing to compute */
  bool tapped;  /* maps are written by a pass of their own, so that they change no bit of the output */
  bool decoded; /* the outputs come from `decode` */
  bool drops, in_order; /* in_order: head by head, as dropout draws and as small heads are fastest */
  bool divided;         /* `work` is begun */
  int64_t rows, blocks; /* of a task; tasks of a head */
  float *scratch;       /* `area` floats for each slot, then the dropout mask of a task */
  size_t area;
  float *allocated[2]; /* scratch and decode's parts, unless they are in the caller's scratch buffer */
  /* in_order: the next task or the one that was left, the kernel's position in it, dropout factors drawn. */
  int64_t at, left_at, drawn;
  bool drawing; /* dropout has begun */

  /* Not zeroed at the beginning */
  heed__dropout dropout;
  heed__decode_division decode;
  heed__work work, decode_work, join_work;
  int64_t shape[HEED_MAX_DIMS]; /* [batch..., hq, l, dv] */
  int64_t
      outer[HEED_MAX_DIMS + 1]; /* [batch..., hkv, group] without sizes of 1, and over these the strides */
  ptrdiff_t step[HEED__ATTENTION_STRIDED][HEED_MAX_DIMS + 1]; /* of the operands, in elements */
  heed_tensor mask;                                           /* attn_mask with its s keys */
} heed__attention_plan;

/* A scratch buffer on the caller's stack for small calls. */
enum { HEED__ATTENTION_SCRATCH = 4096 };
typedef struct heed__attention_scratch {
  _Alignas(HEED__ALIGNMENT) float floats[HEED__ATTENTION_SCRATCH];
} heed__attention_scratch;

/** out = softmax(scale · q kᵀ + mask) v. The plan, the operands and the tensors that they name must stay
 * where they are until heed__attention_plan_end, which is due unless this fails. scratch NULL: all is
 * allocated. The runs draw from the generator. Errors: SHAPE, DTYPE, ARGUMENT, INDEX, MEMORY. (plan.c) */
HEED_MUST_USE
heed_status heed__attention_plan_begin(heed_context *ctx, heed__attention_plan *p,
                                       const heed__attention_operands *operands,
                                       heed__attention_scratch *scratch, heed_tensor **out);
/** Whether all is done; otherwise work is due, and another run goes on from there. */
HEED_MUST_USE
bool heed__attention_plan_run(heed__attention_plan *p);
/** Hands the results over if status is OK, and else drops them; returns the status of both. */
HEED_MUST_USE
heed_status heed__attention_plan_end(heed__attention_plan *p, heed_status status);
/** From 0 to 1. */
double heed__attention_plan_progress(const heed__attention_plan *p);

/** A plan begun, run and ended. (forward.c) */
HEED_MUST_USE
heed_status heed__attention(heed_context *ctx, const heed__attention_operands *operands, heed_tensor **out);

/** A mask [..., fewer than s keys], bool or float32, with all s keys; those beyond it are hidden. Errors:
 * SHAPE, MEMORY. (masks.c) */
HEED_MUST_USE
heed_status heed__widen_mask(heed_context *ctx, const char *function, const heed_tensor *mask, int64_t s,
                             heed_tensor **out);

/* ---- Rotary positions (rope.c), linear biases (alibi.c) ---- */

/** Whether the config suits heads of size d. Messages begin "<function>: rope's base is …". Errors: ARGUMENT.
 */
HEED_MUST_USE
heed_status heed__check_rope(heed_context *ctx, const char *function, const heed_rope_config *config,
                             int64_t d);
/** The host's config (NULL: the defaults of heed_rope_config_init) as this library has it. Errors: ARGUMENT.
 */
HEED_MUST_USE
heed_status heed__rope_config_read(heed_context *ctx, const char *function, const char *argument,
                                   const heed_rope_config *theirs, heed_rope_config *out);
/** heed_rope of x [..., n, d] at the positions offset + 1, offset + 2, …; *out may be x. */
HEED_MUST_USE
heed_status heed__rope(heed_context *ctx, const char *function, const heed_tensor *x, int64_t offset,
                       const heed_rope_config *config, heed_tensor **out);
/** slopes [num_heads], as heed_alibi_slopes gives them; false if work is due before the last. */
HEED_MUST_USE
bool heed__alibi_slopes(const heed__pace *pace, int64_t num_heads, float *slopes);

/* ---- Key/value caches (kv_cache.c) ---- */

typedef enum heed__kv_part {
  HEED__KV_KEYS, /* [batch, num_kv_heads, rows, head_dim] */
  HEED__KV_VALUES,
  HEED__KV_KEY_SCALES, /* float32 [batch, num_kv_heads, rows], of int8 keys; else NULL */
  HEED__KV_VALUE_SCALES,
  HEED__KV_PARTS
} heed__kv_part;

/* Row 0 holds token dropped + 1, and each row the next token. Without a window nothing is dropped. */
struct heed_kv_cache {
  heed_context *context;
  int references;  /* of the owner and of heed_steps */
  int64_t changes; /* number of changes so far */
  int64_t batch, num_kv_heads, head_dim;
  int64_t capacity;    /* tokens; 0: no limit */
  int64_t window_left; /* keys before its own that a query sees; -1: all */
  int64_t rows;        /* allocated */
  int64_t length;      /* tokens seen */
  int64_t dropped;     /* the first of these, which are no longer stored */
  heed_dtype dtype;
  heed_tensor *part[HEED__KV_PARTS];
};

/* The keys and values of one forward pass: the visible ones of the cache, followed by the new ones. */
typedef struct heed__kv_span {
  heed_kv_cache *cache;
  int64_t change;                    /* of the cache when this began; a later change makes the span invalid */
  int64_t skipped;                   /* tokens before the first visible one */
  int64_t past, added;               /* tokens seen before, and new ones */
  heed_tensor part[HEED__KV_PARTS];  /* views of past - skipped + added rows */
  heed_tensor *made[HEED__KV_PARTS]; /* the rows, if the cache has too few free ones at its end; else NULL */
} heed__kv_span;

/** An empty cache. config is complete: batch from 1 up; capacity 0 only with a window. Messages begin with
 * `function`. Errors: SHAPE, MEMORY. */
HEED_MUST_USE
heed_status heed__kv_cache_new(heed_context *ctx, const char *function, const heed_kv_cache_config *config,
                               int64_t num_kv_heads, int64_t head_dim, int64_t window_left,
                               heed_kv_cache **out);
/** Adds a reference, which heed_kv_cache_free releases. */
heed_kv_cache *heed__kv_cache_retain(heed_kv_cache *cache);

/** Begins a span for `added` new tokens, which the caller has checked to fit. The cache does not change
 * before heed__kv_span_commit. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__kv_span_begin(heed_kv_cache *cache, const char *function, int64_t added,
                                heed__kv_span *span);
/** Stores keys or values of new tokens, float32 [b, hkv, n, d] or without b: x's first item is item_first of
 * the batch, its first token is `first` of the added ones, both from 0. False if stopped at a cancellation
 * check, as heed__kv_span_read. */
HEED_MUST_USE
bool heed__kv_span_write(const heed__kv_span *span, heed__kv_part part, const heed_tensor *x,
                         int64_t item_first, int64_t first);
/** Reads all keys or values of the span into dst, float32 [b, hkv, past - skipped + added, d] or without b.
 */
HEED_MUST_USE
bool heed__kv_span_read(const heed__kv_span *span, heed__kv_part part, const heed_tensor *dst);
/** A part of the span in *view, which is returned; without the batch dimension unless `batched`. */
const heed_tensor *heed__kv_span_view(const heed__kv_span *span, heed__kv_part part, bool batched,
                                      heed_tensor *view);
/** Makes the new tokens part of the cache. */
void heed__kv_span_commit(heed__kv_span *span);
/** Frees the memory of a span that was begun. */
void heed__kv_span_end(heed__kv_span *span);

#endif
