/* The door of nn: modules as C objects, one struct a class, all beginning with heed_module. */
#ifndef HEED_NN_H
#define HEED_NN_H

#include "../attention/attention.h"

#define HEED__MAX_ENTRIES 8

/* A shape among the settings. */
typedef struct heed__sizes {
  int count;
  int64_t size[HEED_MAX_DIMS];
} heed__sizes;

/* A setting that scripts and hosts may read (m.num_heads): its place in the module's struct. */
typedef struct heed__setting {
  const char *name;
  enum {
    HEED__SETTING_INTEGER,
    HEED__SETTING_NUMBER,
    HEED__SETTING_BOOLEAN,
    HEED__SETTING_INDEX,    /* from 1; 0: none */
    HEED__SETTING_POSITIVE, /* a number; below 0: none */
    HEED__SETTING_SIZES
  } kind; /* int64_t, double, bool, int64_t, double, heed__sizes */
  size_t offset;
} heed__setting;

typedef struct heed__class {
  const char *name;
  const heed__setting *settings; /* may be NULL; ends with a NULL name; integers are sizes */
  const char *storable;          /* the parameter that may also be bfloat16 or float16; may be NULL */
  bool quantizes;                /* or int8, with a parameter weight_scale behind it */
  bool attends;                  /* takes masks, gives taps */
  bool takes_keys;               /* takes key, value and a cache as well */
  bool staged; /* its forward is that of attention/stages.h, except for another softmax_dim */
  /* options is given; taps come zeroed, or NULL; after a failure the caller frees what is in them. */
  heed_status (*forward)(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                         heed_tensor **out, heed_attention_taps *taps);
  /* May be NULL: nothing to print. */
  void (*describe)(const heed_module *m, char *text, size_t size);
} heed__class;

typedef struct heed__slot {
  char name[24];
  heed_entry_kind kind;
  heed_tensor *parameter; /* owned */
  heed_module *module;    /* a reference */
} heed__slot;

struct heed_module {
  heed_context *context;
  const heed__class *class;
  int64_t references;
  bool training;
  int count, capacity;
  heed__slot *slots; /* `inside`, or for a ModuleList with more a block of its own */
  heed__slot inside[HEED__MAX_ENTRIES];
};

/** A zeroed module of `bytes` (the class's struct) with room for `capacity` slots. Errors: MEMORY; where it
 * is large LIMIT and CANCELLED, too. */
HEED_MUST_USE
heed_status heed__module_new(heed_context *ctx, const heed__class *class, size_t bytes, int64_t capacity,
                             heed_module **out);
/** Appends a slot; takes the parameter over (marking it as one), or the reference. */
void heed__module_add_parameter(heed_module *m, const char *name, heed_tensor *parameter);
void heed__module_add_module(heed_module *m, const char *name, heed_module *module);
/** The slot of that name, or NULL; the module in it, or NULL. */
heed__slot *heed__module_slot(const heed_module *m, const char *name);
heed_module *heed__module_part(const heed_module *m, const char *name);

/** The options of a forward in full, *options being NULL or of any size: in *own, unless they are already.
 * Errors: ARGUMENT (those that m has not). (module.c) */
HEED_MUST_USE
heed_status heed__module_read_options(const heed_module *m, const heed_forward_options **options,
                                      heed_forward_options *own, bool wants_taps);

/** A setting that is a shape, NULL if there is none of that name. (module.c) */
const heed__sizes *heed__module_sizes(const heed_module *m, const char *name);

/** A number (1e-05, 0.5, 10.0) and a shape ((3,), (3, 4)) as Python prints them; both return text.
 * (describe.c) */
const char *heed__python_number(char text[HEED__NUMBER_TEXT], double value);
const char *heed__python_sizes(char text[HEED__SHAPE_TEXT], const heed__sizes *sizes);

/* ---- Parameters (parameter.c) ---- */

/* New ones, all `value`, uniform in ±bound, or normal (0, 1). While heed_skip_init is on they draw nothing
 * and are placeholders: zeros, all of them one element. Messages begin with `function`. Errors: SHAPE,
 * MEMORY. */
HEED_MUST_USE
heed_status heed__filled_parameter(heed_context *ctx, const char *function, double value, int ndim,
                                   const int64_t *shape, heed_tensor **out);
HEED_MUST_USE
heed_status heed__uniform_parameter(heed_context *ctx, const char *function, heed_generator *g, double bound,
                                    int ndim, const int64_t *shape, heed_tensor **out);
HEED_MUST_USE
heed_status heed__normal_parameter(heed_context *ctx, const char *function, heed_generator *g, int ndim,
                                   const int64_t *shape, heed_tensor **out);
/** Such a placeholder: a tensor of that shape whose places are all one element, 0. */
HEED_MUST_USE
heed_status heed__placeholder(heed_context *ctx, const char *function, heed_dtype dtype, int ndim,
                              const int64_t *shape, heed_tensor **out);
/** Whether x is, or is a view of, such a placeholder: loading a state puts a tensor in its place. */
bool heed__is_placeholder(const heed_tensor *x);

/** Whether `value` can be the module's parameter `name` as it is: its shape, and a dtype that the module
 * works with. Errors: ARGUMENT (no such parameter), SHAPE, DTYPE. (module.c) */
HEED_MUST_USE
heed_status heed__module_check_parameter(const heed_module *m, const char *name, const heed_tensor *value);
/** Puts *value into the place of the parameter `name`, for which it was checked, and the old one into *value.
 * Cannot fail. (module.c) */
void heed__module_swap_parameter(heed_module *m, const char *name, heed_tensor **value);
/** A new parameter behind the one called `after`; takes it over. There must be room. Cannot fail. (module.c)
 */
void heed__module_insert_parameter(heed_module *m, const char *after, const char *name,
                                   heed_tensor *parameter);
/** Takes the parameter `name` out, into *value, which was NULL. Cannot fail. (module.c) */
void heed__module_take_parameter(heed_module *m, const char *name, heed_tensor **value);

/** Weights of Linear and Embedding in these modules and in their parts become dtype, as heed_module_to says;
 * all of them or none. (convert.c) */
#define HEED__WEIGHT "weight"
#define HEED__SCALE  "weight_scale" /* what a Linear has besides when its weight is int8 */
HEED_MUST_USE
heed_status heed__modules_to(heed_context *ctx, const char *function, int64_t count,
                             heed_module *const *modules, heed_dtype dtype);

/** The end of a constructor that draws: hands m over, or drops it and puts the generator back to what it was
 * before. Returns status. */
HEED_MUST_USE
heed_status heed__module_finish(heed_status status, heed_module *m, heed_generator *g,
                                const heed_generator *before, heed_module **out);

/** A Linear from tensors that it takes over, also on failure; scale (of an int8 weight) and bias may be NULL.
 * Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__linear_from(heed_context *ctx, heed_tensor *weight, heed_tensor *scale, heed_tensor *bias,
                              heed_module **out);
/** y = x weightᵀ + bias through a Linear; messages begin with `function`. */
HEED_MUST_USE
heed_status heed__linear_apply(const heed_module *linear, const char *function, const heed_tensor *x,
                               heed_tensor **out);
/** p of a Dropout module that is in training mode, else 0. */
double heed__dropout_active(const heed_module *dropout);

/** A list of modules, entries "0", "1", …; it has no forward. (module_list.c) */
HEED_MUST_USE
heed_status heed__module_list_new(heed_context *ctx, int64_t capacity, heed_module **out);
void heed__module_list_add(heed_module *list, heed_module *module);

/* ---- What the attention modules share (attention_module.c) ---- */

/* Entries: W_query, W_key, W_value, then out_proj, dropout, q_norm, k_norm and sinks where the class and its
 * config have them; of the wrapper: heads. The fields are those of the config, completed. */
typedef struct heed__attention_module {
  heed_module base;
  int64_t d_in, d_out, context_length, num_heads, num_kv_heads, head_dim, softmax_dim;
  double scale; /* the one in use */
  bool causal;
  bool one_head; /* masks and taps have no head dimension */
  int64_t kdim, vdim;
  heed_window window;
  double softcap;
  bool alibi, sinks, qk_norm, rotary;
  heed_rope_config rope;
  float slopes[]; /* num_heads, with alibi */
} heed__attention_module;

/* A host's config as this library has it, with its own copy of what it points to. */
typedef struct heed__attention_config {
  heed_attention_config config;
  heed_rope_config rope;
} heed__attention_config;
/** The host's config in *own, with sizes from 1 up (context_length only if `bounded`) and a dropout from 0 to
 * 1. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__attention_config_read(heed_context *ctx, const heed__class *class, bool bounded,
                                        const heed_attention_config *theirs, heed__attention_config *own);
/** At least 1, for messages named like that. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__check_positive(heed_context *ctx, const char *function, const char *argument,
                                 int64_t value);
/** The config with its heads, head_dim and scale as those of a module of one head. */
heed_attention_config heed__one_head(const heed_attention_config *config);

/** An attention module with these settings, its entries yet to be added. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__attention_module_new(heed_context *ctx, const heed__class *class, bool one_head,
                                       const heed_attention_config *config, heed_module **out);
/** Appends W_query, W_key and W_value, drawn from g; one Linear; a Dropout. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__add_projections(heed_module *m, heed_generator *g, bool bias);
HEED_MUST_USE
heed_status heed__add_linear(heed_module *m, heed_generator *g, const char *name, int64_t d_in, int64_t d_out,
                             bool bias);
HEED_MUST_USE
heed_status heed__add_dropout(heed_module *m, double p);

/** Whether x is float32 [n, d_in] or [b, n, d_in] with at most context_length tokens. Errors: DTYPE, SHAPE.
 * (inputs.c) */
HEED_MUST_USE
heed_status heed__attention_check_input(const heed_module *m, const heed_tensor *x);
/** from[0], from[1] and from[2] through W_query, W_key and W_value, in `place` where they fit (NULL: they are
 * to stay). The caller frees what is there, also on failure. */
HEED_MUST_USE
heed_status heed__project(const heed_module *m, const heed_tensor *const from[3], heed__temporary place[3],
                          heed_tensor *projected[3]);
/** The forward of attention modules that softmax over the keys. (attention_forward.c) */
heed_status heed__attention_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                    heed_tensor **out, heed_attention_taps *taps);

/** Whether the pass without taps can take the short way; fills *pass but for x and out. Then that way.
 * Errors: SHAPE, DTYPE, ARGUMENT (of *out), MEMORY. (small_pass.c) */
bool heed__small_pass_takes(const heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                            heed__small_pass *pass);
HEED_MUST_USE
heed_status heed__small_pass_run(const heed_module *m, const heed_tensor *x, heed__small_pass *pass,
                                 heed_tensor **out);

/* ---- Caches (kv_cache.c) ---- */

/* Tokens lie in rows of `keys` and `values`, one after another: row 0 is token dropped + 1. Without a window
 * to the left all are kept, and `dropped` is 0. */
struct heed_kv_cache {
  heed_context *context;
  int references;  /* the owner's, and those of plans */
  int64_t changes; /* counts what is done to it */
  int64_t batch, num_kv_heads, head_dim;
  int64_t capacity; /* 0: no bound */
  int64_t left;     /* keys that a query sees before its own; -1: all */
  int64_t room;     /* rows */
  int64_t length;   /* tokens seen */
  int64_t dropped;  /* of these, the first ones, which are no longer here */
  heed_dtype dtype;
  heed_tensor *part[4]; /* keys, values [batch, num_kv_heads, room, head_dim]; int8: then their scales [batch,
                           num_kv_heads, room], else NULL */
};

/* The keys and values of one forward pass: those of the cache that it can see, and behind them its own. */
typedef struct heed__kv_span {
  heed_kv_cache *cache;
  int64_t change;       /* that it was; if the cache counts more, the span is not good any more */
  int64_t skipped;      /* tokens before the first that is seen */
  int64_t past, added;  /* tokens seen before, and those of this pass */
  heed_tensor part[4];  /* views, as the cache's, of past - skipped + added rows */
  heed_tensor *made[4]; /* where the rows lie if the cache has not so many in a row; else NULL */
} heed__kv_span;

/** Another holder, for heed_kv_cache_free to let go. */
heed_kv_cache *heed__kv_cache_retain(heed_kv_cache *cache);
/** Whether m can use the cache for `batch` items of `added` tokens more. Errors: ARGUMENT, SHAPE. */
HEED_MUST_USE
heed_status heed__kv_cache_check(const heed_module *m, const heed_kv_cache *cache, int64_t batch,
                                 int64_t added);
/** The span for `added` tokens more; the cache is what it was until heed__kv_span_commit. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__kv_span_begin(heed_kv_cache *cache, const char *function, int64_t added,
                                heed__kv_span *span);
/** Takes keys (which = 0) or values (1) of new tokens, float32 [b, hkv, n, d], or without b: from the item
 * item_first and the token `first` (from 0) of the added ones on. False, as the next one, if the work is due
 * before all is done. */
HEED_MUST_USE
bool heed__kv_span_write(const heed__kv_span *span, int which, const heed_tensor *x, int64_t item_first,
                         int64_t first);
/** All of the span's keys or values, into dst, float32 [b, hkv, past - skipped + added, d], or without b. */
HEED_MUST_USE
bool heed__kv_span_read(const heed__kv_span *span, int which, const heed_tensor *dst);
/** The keys (0), the values (1) or their scales (2 and 3, int8 only) for attention; batched: with b. */
const heed_tensor *heed__kv_span_view(const heed__kv_span *span, int which, bool batched, heed_tensor *view);
/** Makes the new tokens part of the cache. */
void heed__kv_span_commit(heed__kv_span *span);
/** Frees what a span that was begun has made; always. */
void heed__kv_span_end(heed__kv_span *span);

/* ---- For heed_module_split ---- */

/** A CausalAttention without its projections, to be added before the Dropout. (causal_attention.c) */
HEED_MUST_USE
heed_status heed__causal_attention_empty(heed_context *ctx, const heed_attention_config *config,
                                         heed_module **out);
/** A wrapper whose heads are to be added to its entry "heads". (multi_head_attention_wrapper.c) */
HEED_MUST_USE
heed_status heed__wrapper_empty(heed_context *ctx, const heed_attention_config *config, heed_module **out);

#endif
