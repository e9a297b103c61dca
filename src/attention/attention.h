/* The door of attention: softmax(scale · q kᵀ + bias) v, rotary positions, linear biases and key/value
 * caches.
 *
 * Every call takes the same path. heed__attention_operands name its inputs. heed__attention_plan_begin checks
 * them (check.c, masks.c), computes the strides of every head (strides.c) and divides the work into tasks
 * (plan.c, decode.c). heed__attention_plan_run executes the tasks, at once or slice by slice, and
 * heed__attention_plan_end stores the results. q, k and v keep these names from the operands to the kernels.
 * Shapes use the legend of heed.h; s includes past keys. */
#ifndef HEED_ATTENTION_H
#define HEED_ATTENTION_H

#include "mask.h"

/* ---- Operands ---- */

/* The taps, used as bits: 1u << HEED__TAP_weights. The first HEED__TAP_MAPS are maps [..., hq, l, s]. */
typedef enum heed__tap {
#define X(name) HEED__TAP_##name,
  HEED_ATTENTION_TAPS_LIST(X)
#undef X
      HEED__TAPS
} heed__tap;
enum { HEED__TAP_MAPS = HEED__TAP_biased_logits + 1 };

/* The rows of a batch item or packed sequence. A unit is a head of an item with at most plan.rows of its
 * rows; units are numbered by item, then by head. */
typedef struct heed__attention_item {
  int64_t first_query, query_length; /* of q and the output; from 0 */
  int64_t first_key, key_length;     /* of k, v and their scales */
  int64_t skipped;                   /* columns of masks before that of its first key */
  int64_t unit;                      /* its first one; set by the plan */
} heed__attention_item;

/* The inputs of a call, whether from heed_scaled_dot_product_attention or from a module. */
typedef struct heed__attention_operands {
  const char *function;         /* for messages */
  const heed_tensor *q, *k, *v; /* k and v may also be bfloat16, float16, or int8 with k_scale and v_scale */
  heed_attention_options options;
  bool no_heads; /* the leading dimensions are all batch: q, k, v [..., n, d], masks and taps alike */
  const heed_tensor *key_padding_mask; /* bool, broadcasts to [batch..., s]; or NULL */
  int64_t offset;                      /* of query positions, added to that of past keys or lengths */
  bool
      same_tokens; /* queries and keys are of the same tokens, so that lengths do not shift query positions */
  int64_t skipped_keys;                 /* before k, whom options.mask counts, too */
  const heed_tensor *k_scale, *v_scale; /* float32 [..., hkv, s]: the scale of each int8 row */
  /* Batch items of different lengths: q [hq, total, d], k [hkv, rows, d], v [hkv, rows, dv], the scales [hkv,
   * rows] and the output [hq, total, dv] have the rows of all items; masks and taps are those of [item_count,
   * hq, longest l, longest s]. The plan has its own copy of the list. NULL: the batch is a dimension. */
  const heed__attention_item *items;
  int64_t item_count;
  /* Packed sequences: int64 [b], whose sums are the rows of q and of k; key_lengths NULL: as lengths. Then
   * there is no batch, rows of attn_mask and maps are those of q, and their keys count within the sequence.
   */
  const heed_tensor *lengths, *key_lengths;
  unsigned taps;                  /* bits of the taps to compute: maps, present_key, present_value */
  bool maps_only;                 /* the output is not written, and no numbers are drawn */
  const heed_taps_wanted *wanted; /* heads and queries of the maps; NULL: all. Read at the beginning */
  heed_attention_taps *found;     /* receives these on success; its other fields do not change */
  heed_tensor **stats; /* receives row_max and row_sum of each query, float32 [..., hq, l, 2]; or NULL */
  heed_tensor **kept;  /* receives which weights dropout kept, as heed__attention_saved has them; or NULL */
} heed__attention_operands;

/* ---- The plan ---- */

/* Operands with strides over heads. Every call has those before the mask. */
typedef enum heed__attention_operand {
  HEED__ATTENTION_Q,
  HEED__ATTENTION_K,
  HEED__ATTENTION_V,
  HEED__ATTENTION_OUT,
  HEED__ATTENTION_MASK,
  HEED__ATTENTION_PADDING,
  HEED__ATTENTION_ROWS, /* of intervals */
  HEED__ATTENTION_LENGTHS,
  HEED__ATTENTION_K_SCALE,
  HEED__ATTENTION_V_SCALE,
  HEED__ATTENTION_STRIDED
} heed__attention_operand;

/* How a call with few queries and many keys is divided (decode.c). A key head has the rows of the query heads
 * of its group, l each. Key heads that are interleaved in memory may form a bundle. A bundle's rows are
 * divided into units of at most HEED__DECODE_ROWS, its keys into ranges; a task is one unit on one range. */
typedef struct heed__decode_division {
  int64_t heads, bundles; /* key heads of a bundle, number of bundles */
  int64_t rows, units;    /* of a bundle */
  int64_t range, ranges;  /* keys of a range; ranges of a head, from the first key that it sees */
  int64_t tasks;
  /* Partial results of each task, or of each slot if there is one range, `area` floats each: outputs [rows,
   * dv], row_max [rows], row_sum [rows]. */
  float *parts;
  int64_t area, area_rows;
  float *scores; /* score_area floats for each slot */
  int64_t score_area;
  int64_t block; /* keys that the kernel processes between two yield points */
} heed__decode_division;

/* A call from its checked operands to its tasks. A head is one query head of one batch item, numbered from 0
 * in the order of [batch..., hq]. Each `group` consecutive heads share a key head. Items or packed sequences
 * are the batch items of heads; s is then the largest number of keys, and l that of queries, or if packed
 * their sum. */
typedef struct heed__attention_plan {
  heed_context *context;
  const heed__attention_operands *operands;

  /* Sizes (check.c) */
  int ndim;      /* of the result [batch..., hq, l, dv]; without heads [batch..., l, dv] */
  int head_dims; /* 1, or 0 if the leading dimensions are all batch */
  int batch_ndim;
  int64_t query_heads, key_heads, query_length, key_length, head_size, value_size;
  int64_t most_queries;              /* of a head: l, or of the longest packed sequence */
  int64_t group, heads;              /* hq / hkv, batch · hq */
  int64_t past;                      /* past keys among s */
  int64_t offset;                    /* of query positions, without lengths */
  int64_t window_left, window_right; /* with causality; INT64_MAX: no bound */
  const heed_tensor *k, *v;          /* the operands', or `joined`: past keys and values followed by them */
  heed_tensor *joined[2];
  heed_tensor *widened_mask; /* attn_mask with s keys; NULL if it had them */
  int32_t *intervals;        /* as in heed__attention_task, of all rows; NULL: none (intervals.c) */
  int64_t interval_count;
  heed__attention_item *items; /* item_count of them and an end (varlen.c); NULL: the batch is a dimension */
  int64_t item_count;
  bool packed; /* masks and taps have the rows of q: no batch, l is the sum of the items' */

  /* Strides (strides.c) */
  const int64_t *lengths;      /* of head 0; or NULL */
  const float *slopes, *sinks; /* of head 0; or NULL */
  ptrdiff_t slope_stride, sink_stride;
  bool plain;                /* only q, k, v and out differ between heads */
  int outer_ndim;            /* of `outer` */
  int64_t span;              /* upper bound of the keys that a head can see; depends only on sizes and
                                options */
  heed__attention_task task; /* of head 0; other heads differ in pointers, lengths, slope and sink. With
                                items it has no rows of its own: query 0 and key 0 are those of all items */

  /* Results and tasks (plan.c, taps.c) */
  heed__result result, stats_result; /* the second if operands->stats */
  heed_attention_taps taps;          /* moved to operands->found at the end */
  float *map[HEED__TAP_MAPS];        /* elements of the requested maps, else NULL */
  int64_t *map_heads, *map_queries;  /* those of the maps, from 0; NULL: all */
  int64_t map_head_count, map_query_count;
  float *lse;   /* elements of the tap [heads, l], else NULL */
  float *stats; /* [heads, l, 2]; or NULL */
  const heed__kernels *kernels;
  bool empty;           /* nothing to compute */
  bool tapped;          /* maps are requested; a separate pass writes them */
  bool reduced;         /* the kernel of attention in fewer bits computes the output */
  bool decoded;         /* `decode` computes the output */
  bool decodes_weights; /* and the only map, that of the weights */
  bool fuses_weights;   /* the attention kernel writes the only map, that of the weights */
  bool scans;           /* `scan_work` has begun: intervals are found in attn_mask */
  int64_t scan_tasks;
  uint8_t *found;       /* [scan_tasks] */
  bool drops, in_order; /* in_order: head by head, in the order of MT19937's draws; fastest for small heads */
  bool divided;         /* `work` has begun */
  int64_t rows, blocks; /* of a task, or of a unit; tasks of a head */
  int64_t units, units_of_task; /* with items */
  float
      *scratch; /* slot_area floats for each slot: `area` for the kernels, then the dropout_mask of a task */
  size_t area, slot_area;
  float *allocated[2]; /* `scratch` and decode.parts, unless the caller's buffer holds them */
  int64_t current, current_item, position; /* in_order: the task or unit, its item, the position in it */
  bool drawing;                            /* `dropout` has begun */
  heed_tensor *kept;                       /* moved to operands->kept at the end */

  /* From here on not zeroed at the beginning */
  heed__dropout dropout;
  heed__decode_division decode;
  heed__work work, decode_work, join_work, scan_work;
  int64_t shape[HEED_MAX_DIMS];     /* [batch..., hq, l, dv]; with items longest l */
  int64_t outer[HEED_MAX_DIMS + 1]; /* [batch..., hkv, group] without sizes of 1 */
  ptrdiff_t step[HEED__ATTENTION_STRIDED][HEED_MAX_DIMS + 1]; /* strides over `outer`, in elements */
  heed_tensor mask;            /* attn_mask, or a view of widened_mask, with s keys */
  heed_tensor interval_header; /* the sizes of `intervals`, [..., l or 1, 2 · interval_count] */
} heed__attention_plan;

/* A scratch buffer on the caller's stack for small calls. */
enum { HEED__ATTENTION_SCRATCH = 4096 };
typedef struct heed__attention_scratch {
  _Alignas(HEED__ALIGNMENT) float floats[HEED__ATTENTION_SCRATCH];
} heed__attention_scratch;

/** Checks operands as the next function does. The data of q, k and v is not read. */
HEED_MUST_USE
heed_status heed__attention_check_operands(heed_context *ctx, const heed__attention_operands *operands);
/** Begins out = softmax(scale · q kᵀ + mask) v. Unless this fails, heed__attention_plan_end must be called;
 * until then the plan, the operands and their tensors must not move. scratch NULL: all memory is allocated.
 * Dropout draws when the plan runs. Errors: SHAPE, DTYPE, ARGUMENT, INDEX, MEMORY. (plan.c) */
HEED_MUST_USE
heed_status heed__attention_plan_begin(heed_context *ctx, heed__attention_plan *p,
                                       const heed__attention_operands *operands,
                                       heed__attention_scratch *scratch, heed_tensor **out);
/** True when all is done; false if it stopped at a yield point, from where another run continues. */
HEED_MUST_USE
bool heed__attention_plan_run(heed__attention_plan *p);
/** Stores the results if status is OK, otherwise discards them. Returns status, or the error of storing. */
HEED_MUST_USE
heed_status heed__attention_plan_end(heed__attention_plan *p, heed_status status);
/** Progress from 0 to 1. */
double heed__attention_plan_progress(const heed__attention_plan *p);

/* ---- The choice of taps (wanted.c) ---- */

/** Reads the host's choice, of any version, to *own; *wanted is then own, or stays NULL. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__wanted_read(heed_context *ctx, const char *function, const heed_taps_wanted **wanted,
                              heed_taps_wanted *own);
/** The bits of the taps that are wanted, of those in `all`; NULL: all but lse. */
unsigned heed__wanted_bits(const heed_taps_wanted *wanted, unsigned all);
/** The choice of heads among `heads`, and of queries among l, from 0: new arrays, or NULL for all. Errors:
 * INDEX, ARGUMENT, MEMORY. */
HEED_MUST_USE
heed_status heed__wanted_heads(heed_context *ctx, const char *function, const heed_taps_wanted *wanted,
                               int64_t heads, int64_t **out, int64_t *count);
HEED_MUST_USE
heed_status heed__wanted_queries(heed_context *ctx, const char *function, const heed_taps_wanted *wanted,
                                 int64_t l, int64_t **out, int64_t *count);
/** Reduces complete taps to the choice; one_head: the maps have no dimension of heads. */
HEED_MUST_USE
heed_status heed__wanted_select(heed_context *ctx, const char *function, const heed_taps_wanted *wanted,
                                bool one_head, heed_attention_taps *taps);
/** A copy that owns its arrays, which heed__release frees; NULL stays NULL. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__wanted_copy(heed_context *ctx, const char *function, const heed_taps_wanted *wanted,
                              heed_taps_wanted **out);

/** Begins, runs and ends a plan, and records it if that is wanted. (forward.c) */
HEED_MUST_USE
heed_status heed__attention(heed_context *ctx, const heed__attention_operands *operands, heed_tensor **out);

/* ---- Gradients (backward.c) ---- */

/* What the gradients need of the forward pass, beside its operands. */
typedef struct heed__attention_saved {
  const heed_tensor *out, *lse;
  const heed_tensor *dlse; /* the gradient of lse, row-major; or NULL */
  /* With dropout, a bit for each weight, 1 if it was kept: heed__attention_kept_words words of 16 bits for
   * each row, in the order of [batch..., hq, l], as bytes; else NULL. */
  const heed_tensor *kept;
} heed__attention_saved;
static inline int64_t heed__attention_kept_words(int64_t key_length) {
  return key_length / 16 + (key_length % 16 != 0);
}

/* The inputs that can have gradients, in the order in which they are recorded. */
#define HEED__ATTENTION_INPUTS(X)                                                                            \
  X(q) X(k) X(v) X(attn_mask) X(sinks) X(alibi_slopes) X(past_key) X(past_value)
typedef enum heed__attention_input {
#define X(name) HEED__ATTENTION_##name,
  HEED__ATTENTION_INPUTS(X)
#undef X
      HEED__ATTENTION_GRADIENTS
} heed__attention_input;

/** The gradients of the inputs whose bit is set in `wanted`, from that of the output: new tensors in dx, NULL
 * elsewhere and on errors. Inputs that are not float32 have none. The bits do not depend on the number of
 * threads. Errors: MEMORY, and where a check stops it. */
HEED_MUST_USE
heed_status heed__attention_backward(heed_context *ctx, const heed__attention_operands *operands,
                                     const heed__attention_saved *saved, const heed_tensor *dout,
                                     unsigned wanted, heed_tensor *dx[HEED__ATTENTION_GRADIENTS]);

/* ---- Parts (partial.c) ---- */

/** What the keys of a part contribute to the gradients of attention over all keys, whose output and log-sums
 * are in `saved`; the operands are those of heed_attention_partial for the part. Dropout is drawn again: the
 * generator must be where it was. The tensors in saved and dout are row-major. Errors: as above, SHAPE. */
HEED_MUST_USE
heed_status heed__attention_part_backward(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                          const heed_tensor *v, const heed_attention_options *options,
                                          int64_t offset, const heed__attention_saved *saved,
                                          const heed_tensor *dout, unsigned wanted,
                                          heed_tensor *dx[HEED__ATTENTION_GRADIENTS]);

enum { HEED__MERGED = 15 }; /* parts of one node: their outputs and statistics are inputs that it keeps */

/* Parts over disjoint keys, and their merged result. All tensors are row-major: out [rows, dv], stats [rows,
 * 2]. */
typedef struct heed__merge {
  const heed__kernels *kernels;
  int count;
  int64_t rows, value_size;
  const float *out[HEED__MERGED], *stats[HEED__MERGED];
  float *merged_out, *merged_stats;
  /* Backward: the gradients of the result, and those of the parts, each NULL if not wanted or 0. */
  const float *dmerged_out, *dmerged_stats;
  float *dout[HEED__MERGED], *dstats[HEED__MERGED];
} heed__merge;
/** Merges, or computes the gradients. False if stopped at a cancellation check. */
HEED_MUST_USE
bool heed__attention_merge(heed_context *ctx, heed__merge *merge, bool backward);

/* What is recorded of a call beside its inputs. Its recorded inputs are those above, then kv_lengths,
 * key_padding_mask, the log-sums and the kept weights; then k_scale and v_scale; then the code of the mask
 * and the lengths of packed sequences. */
typedef struct heed__attention_values {
  heed_attention_options options; /* without tensors */
  int64_t offset;
  bool no_heads, same_tokens;
} heed__attention_values;
enum {
  HEED__ATTENTION_RECORDED_LENGTHS = HEED__ATTENTION_GRADIENTS,
  HEED__ATTENTION_RECORDED_PADDING,
  HEED__ATTENTION_RECORDED_LSE,
  HEED__ATTENTION_RECORDED_KEPT,
  HEED__ATTENTION_RECORDED_K_SCALE,
  HEED__ATTENTION_RECORDED_V_SCALE,
  HEED__ATTENTION_RECORDED_MASK,
  HEED__ATTENTION_RECORDED_ITEM_LENGTHS,
  HEED__ATTENTION_RECORDED_ITEM_KEY_LENGTHS,
  HEED__ATTENTION_RECORDED
};

/* What linear attention reads, in the order in which it is recorded. */
enum {
  HEED__LINEAR_Q,
  HEED__LINEAR_K,
  HEED__LINEAR_V,
  HEED__LINEAR_DECAY,
  HEED__LINEAR_BETA,
  HEED__LINEAR_PAST,
  HEED__LINEAR_INPUTS
};
/** The gradients of the inputs x whose bit is set in `wanted`, from those of the results of
 * heed_linear_attention (NULL: zeros): new tensors in dx, NULL elsewhere and on errors; that of beta [b, hkv,
 * n]. The bits do not depend on the number of threads. Errors: MEMORY, and where a check stops it.
 * (linear_attention.c) */
HEED_MUST_USE
heed_status heed__linear_attention_gradient(heed_context *ctx, const char *function,
                                            const heed_tensor *const x[HEED__LINEAR_INPUTS], double scale,
                                            const heed_tensor *dout, const heed_tensor *dstate,
                                            unsigned wanted, heed_tensor *dx[HEED__LINEAR_INPUTS]);

/** Copies a mask [..., fewer than s keys], bool or float32, to one with s keys, hiding the added ones.
 * Errors: SHAPE, MEMORY. (masks.c) */
HEED_MUST_USE
heed_status heed__widen_mask(heed_context *ctx, const char *function, const heed_tensor *mask, int64_t s,
                             heed_tensor **out);

/** Errors: ARGUMENT, for a negative bound. (check.c) */
HEED_MUST_USE
heed_status heed__check_window(heed_context *ctx, const char *function, const heed_window *w);
/** Errors: ARGUMENT, unless softcap is finite and at least 0. (check.c) */
HEED_MUST_USE
heed_status heed__check_softcap(heed_context *ctx, const char *function, double softcap);

/* ---- Rotary positions (rope.c), linear biases (alibi.c) ---- */

/** Checks the config for heads of size d. Messages begin "<function>: rope's base is …". Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_rope(heed_context *ctx, const char *function, const heed_rope_config *config,
                             int64_t d);
/** Copies the host's config, of any version (NULL: the defaults), to *out. Errors: ARGUMENT. */
HEED_MUST_USE
/* How many factors a config has. */
int64_t heed__rope_factors(const heed_rope_config *config);

heed_status heed__rope_config_read(heed_context *ctx, const char *function, const char *argument,
                                   const heed_rope_config *theirs, heed_rope_config *out);
/** heed_rope of x [..., n, d] at the positions offset + 1, offset + 2, …; *out may be x. */
HEED_MUST_USE
heed_status heed__rope(heed_context *ctx, const char *function, const heed_tensor *x, int64_t offset,
                       const heed_rope_config *config, heed_tensor **out);
/** heed_rope of x [..., n, d] at positions int64, which broadcast to [..., n]; *out may be x. */
HEED_MUST_USE
heed_status heed__rope_at(heed_context *ctx, const char *function, const heed_tensor *x,
                          const heed_tensor *positions, const heed_rope_config *config, heed_tensor **out);
/** The gradient of either: dy turned back. positions: those of heed_rope, or NULL for offset + 1, …. */
HEED_MUST_USE
heed_status heed__rope_gradient(heed_context *ctx, const char *function, const heed_tensor *dy,
                                const heed_tensor *positions, int64_t offset, const heed_rope_config *config,
                                heed_tensor **dx);
/** Fills slopes [num_heads] as heed_alibi_slopes; false if stopped at a cancellation check. */
HEED_MUST_USE
bool heed__alibi_slopes(const heed__pace *pace, int64_t num_heads, float *slopes);

/* ---- Key/value caches (kv_cache.c, kv_span.c) ---- */

typedef enum heed__kv_part {
  HEED__KV_KEYS, /* [batch, num_kv_heads, rows, head_dim] */
  HEED__KV_VALUES,
  HEED__KV_KEY_SCALES, /* float32 [batch, num_kv_heads, rows], of int8 keys; else NULL */
  HEED__KV_VALUE_SCALES,
  HEED__KV_PARTS
} heed__kv_part;

/* Some elements of a parameter, by which files recognise it: its dtype as a number, then the elements. */
enum { HEED__SAMPLE = 1 + 16 };

/* What keys and values depend on beside the tokens: a cache that a file holds must be of the same. */
enum { HEED__KV_SAMPLES = 6 };
typedef struct heed__kv_origin {
  char positions[320]; /* the settings of rotary positions, as text */
  int samples;         /* of the parameters of W_key, W_value and k_norm that are no parts in Lua */
  float sample[HEED__KV_SAMPLES][HEED__SAMPLE];
} heed__kv_origin;

/* Of each batch item, row 0 holds token dropped + 1, and each row the next token. Without a window nothing is
 * dropped. */
struct heed_kv_cache {
  heed_context *context;
  int references;  /* of the owner and of heed_steps */
  int64_t changes; /* number of changes so far */
  int64_t batch, num_kv_heads, head_dim;
  int64_t capacity;    /* tokens; 0: no limit */
  int64_t window_left; /* keys before its own that a query sees; -1: all */
  int64_t rows;        /* of all parts, unless the cache was loaded: then those of the file, until it grows */
  int64_t length;      /* tokens seen, of the longest item */
  int64_t *lengths;    /* tokens seen, [batch] */
  int64_t *dropped;    /* the first of these, which are no longer stored, [batch] */
  heed__attention_item *items; /* of the span that began last, [batch] */
  heed_dtype dtype;
  bool int4; /* dtype is INT8, and rows of keys and values have two elements in a byte (kv_int4.c) */
  heed_tensor *part[HEED__KV_PARTS];
  heed__kv_origin origin; /* set when the first tokens come */
  /* The first `prefix` tokens of all items, [1, hkv, prefix…], not among `part`, which begin with the next
   * one: `dropped` is then `prefix` for all. */
  int64_t prefix;
  heed_tensor *prefix_part[HEED__KV_PARTS];
  int64_t shared_rows; /* the first rows of item 1 that other caches have as their prefix */
};

/* The keys and values of one forward pass: the visible ones of the cache, followed by the new ones. An even
 * span has the same numbers for all batch items. */
typedef struct heed__kv_span {
  heed_kv_cache *cache;
  int64_t change; /* of the cache when this began; a later change makes the span invalid */
  bool even;
  bool moves;          /* the cache has too few free rows at its end: with a window, tokens are dropped */
  int64_t skipped;     /* tokens before the first visible one; if not even, the least of all */
  int64_t past, added; /* tokens seen before, and new ones; if not even, the most of all */
  int64_t length;      /* visible and new ones, the most of all */
  heed_tensor part[HEED__KV_PARTS];  /* views of the rows; if not even, [hkv, rows…] of all items */
  heed_tensor *made[HEED__KV_PARTS]; /* copies of the rows, if they move, follow a prefix that is joined, or
                                        are unpacked; else NULL */
} heed__kv_span;

/** An empty cache. config is complete: batch from 1 up; capacity 0 only with a window. Messages begin with
 * `function`. Errors: SHAPE, MEMORY. */
HEED_MUST_USE
heed_status heed__kv_cache_new(heed_context *ctx, const char *function, const heed_kv_cache_config *config,
                               int64_t num_kv_heads, int64_t head_dim, int64_t window_left,
                               heed_kv_cache **out);
/** The same with the parts and lengths of a file, which it takes over if this succeeds. */
HEED_MUST_USE
heed_status heed__kv_cache_new_loaded(heed_context *ctx, const char *function,
                                      const heed_kv_cache_config *config, int64_t num_kv_heads,
                                      int64_t head_dim, int64_t window_left,
                                      heed_tensor *part[HEED__KV_PARTS], const int64_t *lengths,
                                      const int64_t *dropped, heed_kv_cache **out);
/** Begins an empty cache, which only the caller has so far, with the tokens of another one of batch 1, the
 * same sizes, window and dtype, which are at most the capacity. Errors: MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__kv_cache_set_prefix(heed_kv_cache *c, const char *function, heed_kv_cache *other);
/** A copy of a cache without a window, whose prefix is part of each item. Errors: as above. */
HEED_MUST_USE
heed_status heed__kv_cache_flatten(const heed_kv_cache *cache, const char *function, heed_kv_cache **out);
/** Sets the rows of shorter items that a file stores with those of the longest to zeros. */
void heed__kv_cache_clear_tails(heed_kv_cache *cache);
/** Adds a reference, which heed_kv_cache_free releases. */
heed_kv_cache *heed__kv_cache_retain(heed_kv_cache *cache);

/** Checks a list int64 [batch]. Errors: SHAPE, DTYPE. */
HEED_MUST_USE
heed_status heed__kv_check_items(const heed_kv_cache *cache, const char *function, const char *argument,
                                 const heed_tensor *list);
/** Whether the cache can be truncated to n tokens, or to `lengths` of its items unless that is NULL. Errors:
 * ARGUMENT, SHAPE, DTYPE. */
HEED_MUST_USE
heed_status heed__kv_cache_check_cut(const heed_kv_cache *cache, int64_t n, const heed_tensor *lengths);
/** Whether all batch items have as many tokens, stored alike. */
bool heed__kv_cache_is_even(const heed_kv_cache *cache);
/** The tokens that can be appended to a batch item before rows move or the capacity is reached. */
int64_t heed__kv_cache_headroom_of(const heed_kv_cache *cache, int64_t item);
/** Begins a span for `added` new tokens of each item, or for added_each[i] of item i unless that is NULL,
 * which the caller has checked to fit. The cache does not change before heed__kv_span_commit; its `items` are
 * those of the span. apart: the span has no rows of the prefix, and is not even; otherwise a prefix becomes
 * part of each item. Errors: MEMORY. (kv_span.c) */
HEED_MUST_USE
heed_status heed__kv_span_begin(heed_kv_cache *cache, const char *function, int64_t added,
                                const int64_t *added_each, bool apart, heed__kv_span *span);
/** Stores keys or values of new tokens, float32 [b, hkv, n, d] or without b: x's first item is item_first of
 * the batch, its first token is `first` of the added ones, both from 0. If the span is not even, x is of one
 * item. False if stopped at a cancellation check, as heed__kv_span_read. */
HEED_MUST_USE
bool heed__kv_span_write(const heed__kv_span *span, heed__kv_part part, const heed_tensor *x,
                         int64_t item_first, int64_t first);
/** x [d] times the Hadamard matrix by which rows in int4 were multiplied; twice: x. (kv_int4.c) */
void heed__kv_turn(float *x, int64_t d);
/** Reads all keys or values of the span into dst, float32 [b, hkv, length, d] or without b; zeros beyond an
 * item's. */
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
