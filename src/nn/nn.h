/* The door of nn: modules as C objects. Each class has a struct of its own that begins with heed_module. */
#ifndef HEED_NN_H
#define HEED_NN_H

#include "../attention/attention.h"

/* ---- Classes and modules ---- */

typedef struct heed__sizes {
  int count;
  int64_t size[HEED_MAX_DIMS];
} heed__sizes;

/* A setting that scripts and hosts may read (m.num_heads), stored at `offset` of the module's struct. */
typedef struct heed__setting {
  const char *name;
  enum {
    HEED__SETTING_INTEGER,  /* int64_t; a size, which must be equal for one module to replace another */
    HEED__SETTING_NUMBER,   /* double */
    HEED__SETTING_SCALE,    /* double, of attention modules; setting 0 selects the default */
    HEED__SETTING_BOOLEAN,  /* bool */
    HEED__SETTING_INDEX,    /* int64_t, from 1; 0: none */
    HEED__SETTING_POSITIVE, /* double; below 0: none */
    HEED__SETTING_SIZES     /* heed__sizes; equal, too */
  } kind;
  size_t offset;
  /* Checks a new value, of the right kind; NULL: the setting cannot be changed. */
  heed_status (*check)(const heed_module *m, const char *name, heed_scalar value);
} heed__setting;

typedef struct heed__class {
  const char *name;
  const heed__setting *settings; /* ends with a NULL name; NULL: none */
  const char *storable;          /* the parameter that may also be bfloat16 or float16; NULL: none */
  bool quantizes;                /* or int8, then followed by a parameter weight_scale */
  bool attends;                  /* takes masks and gives taps */
  bool takes_keys;               /* takes key, value and a cache as well */
  bool staged; /* runs in the stages of attention/stages.h, except for another softmax_dim */
  /* options is never NULL. taps: zeroed, or NULL; on failure the caller frees its contents. */
  heed_status (*forward)(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                         heed_tensor **out, heed_attention_taps *taps);
  /* As heed_module_describe; NULL: nothing to print. */
  void (*describe)(const heed_module *m, char *text, size_t size);
  /* Adapts the module's sizes to a weight [rows, columns] of another shape; NULL: it must keep its shape.
   * Errors: SHAPE; then nothing has changed. */
  heed_status (*resize)(heed_module *m, const heed_tensor *weight);
  /* Called before the module is freed; NULL: nothing to release. */
  void (*release)(heed_module *m);
} heed__class;

typedef struct heed__slot {
  char name[24];
  heed_entry_kind kind;
  heed_tensor *parameter; /* owned */
  heed_module *module;    /* a reference */
} heed__slot;

#define HEED__MAX_ENTRIES 8

struct heed_module {
  heed_context *context;
  size_t bytes; /* of the class's struct */
  const heed__class *class;
  int64_t references;
  bool training;
  bool is_part;        /* of a module in C, which relies on its sizes */
  int watched;         /* listeners of the binding, such as hooks in Lua (watch.c) */
  int count, capacity; /* of slots */
  heed__slot *slots;   /* `inside`, or allocated for a ModuleList of more than HEED__MAX_ENTRIES */
  heed__slot inside[HEED__MAX_ENTRIES];
};

/** A zeroed module of `bytes` (the class's struct) with capacity for that many slots, HEED__MAX_ENTRIES at
 * least. Errors: MEMORY; CANCELLED and LIMIT for a large struct. */
HEED_MUST_USE
heed_status heed__module_new(heed_context *ctx, const heed__class *class, size_t bytes, int64_t capacity,
                             heed_module **out);

/** A module of the same class and settings, whose entries are those of m: the same parts, and tensors that
 * share the elements of its parameters. Errors: ARGUMENT (the host's); MEMORY; CANCELLED and LIMIT for a
 * large struct. (clone.c) */
HEED_MUST_USE
heed_status heed__module_shallow_copy(const heed_module *m, const char *function, heed_module **out);

static inline int64_t heed__setting_integer(const heed_module *m, const heed__setting *setting) {
  return *(const int64_t *)(const void *)((const char *)m + setting->offset);
}
static inline const heed__sizes *heed__setting_sizes(const heed_module *m, const heed__setting *setting) {
  return (const heed__sizes *)(const void *)((const char *)m + setting->offset);
}
/** A setting of kind SIZES by name; NULL if there is none. (settings.c) */
const heed__sizes *heed__module_sizes(const heed_module *m, const char *name);
/** Checks for settings: any value; a number that is 0 or more and finite. (settings.c) */
HEED_MUST_USE
heed_status heed__setting_any(const heed_module *m, const char *name, heed_scalar value);
HEED_MUST_USE
heed_status heed__setting_not_negative(const heed_module *m, const char *name, heed_scalar value);

/** Completes and checks the options of a forward pass: *options, NULL or of another version's size, is
 * replaced by *own or a constant where needed. Errors: ARGUMENT (an option that m does not take). */
HEED_MUST_USE
heed_status heed__module_read_options(const heed_module *m, const heed_forward_options **options,
                                      heed_forward_options *own, bool wants_taps);

/** A number (1e-05, 0.5, 10.0) and a shape ((3,), (3, 4)) as Python prints them; both return text.
 * (describe.c) */
const char *heed__python_number(char text[HEED__NUMBER_TEXT], double value);
const char *heed__python_sizes(char text[HEED__SHAPE_TEXT], const heed__sizes *sizes);

/* ---- Entries of new modules (init.c) ---- */

typedef enum heed__init {
  HEED__INIT_FILLED,   /* a parameter, all elements `number` */
  HEED__INIT_UNIFORM,  /* a parameter drawn uniformly from ±number */
  HEED__INIT_NORMAL,   /* a parameter drawn from a normal distribution (0, 1) */
  HEED__INIT_LINEAR,   /* a Linear of weight `shape`, with a bias if number is not 0; parts from here on */
  HEED__INIT_RMS_NORM, /* an RMSNorm over `shape` with epsilon `number` */
  HEED__INIT_DROPOUT   /* a Dropout with p = number; without shape */
} heed__init;

typedef struct heed__new_entry {
  const char *name; /* NULL: left out */
  heed__init init;
  double number;
  int ndim;
  const int64_t *shape;
} heed__new_entry;

/** The end of a constructor: adds these entries in order, drawing from g (NULL: the default generator), and
 * stores m in *out. On failure m is released and g has drawn nothing. While heed_skip_init is on, nothing is
 * drawn and parameters are placeholders. Errors: SHAPE, MEMORY. */
HEED_MUST_USE
heed_status heed__module_finish(heed_module *m, heed_generator *g, int count, const heed__new_entry *entries,
                                heed_module **out);
/** A placeholder: a tensor of zeros whose strides are 0, so that it takes the memory of one element. */
HEED_MUST_USE
heed_status heed__placeholder(heed_context *ctx, const char *function, heed_dtype dtype, int ndim,
                              const int64_t *shape, heed_tensor **out);
/** Whether x is a placeholder or a view of one. */
bool heed__is_placeholder(const heed_tensor *x);

/* ---- Entries (entries.c) ---- */

/** Appends an entry; the module takes over the parameter, which it marks as one, or the reference. */
void heed__module_add_parameter(heed_module *m, const char *name, heed_tensor *parameter);
void heed__module_add_module(heed_module *m, const char *name, heed_module *module);
/** The slot of that name, or NULL; the module in it, or NULL. */
heed__slot *heed__module_slot(const heed_module *m, const char *name);
heed_module *heed__module_part(const heed_module *m, const char *name);

/** Whether `value` can replace the parameter `name`: same shape, and a dtype that the module works with.
 * Errors: ARGUMENT (no such parameter), SHAPE, DTYPE. */
HEED_MUST_USE
heed_status heed__module_check_parameter(const heed_module *m, const char *name, const heed_tensor *value);
/** Exchanges the parameter `name` and *value, which was checked for it. Cannot fail. */
void heed__module_swap_parameter(heed_module *m, const char *name, heed_tensor **value);
/** Inserts a parameter after the entry `after` and takes it over; a slot must be free. Cannot fail. */
void heed__module_insert_parameter(heed_module *m, const char *after, const char *name,
                                   heed_tensor *parameter);
/** Removes the parameter `name` and moves it to *value, which was NULL. Cannot fail. */
void heed__module_take_parameter(heed_module *m, const char *name, heed_tensor **value);

#define HEED__WEIGHT "weight"
#define HEED__SCALE  "weight_scale" /* follows an int8 weight */
/** The dtypes of heed_module_to, as a set (heed__dtypes_text). (convert.c) */
unsigned heed__module_dtypes(void);
/** The dtype of weights with rows of n elements where `dtype` is wanted: of blocked dtypes, the one of blocks
 * of 32 that takes the place of blocks of 256 where these do not fit; `otherwise` if 32 does not divide n
 * either. (convert.c) */
heed_dtype heed__dtype_of_rows(heed_dtype dtype, int64_t n, heed_dtype otherwise);
/** heed_module_to for several modules: all weights change or none. (convert.c) */
HEED_MUST_USE
heed_status heed__modules_to(heed_context *ctx, const char *function, int64_t count,
                             heed_module *const *modules, heed_dtype dtype);

/* ---- Modules that others use ---- */

/** A Linear of given tensors, which it takes over, also on failure; scale (of an int8 weight) and bias may be
 * NULL. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__linear_from(heed_context *ctx, heed_tensor *weight, heed_tensor *scale, heed_tensor *bias,
                              heed_module **out);
/** y = x weightᵀ + bias of a Linear; messages begin with `function`. */
HEED_MUST_USE
heed_status heed__linear_apply(const heed_module *linear, const char *function, const heed_tensor *x,
                               heed_tensor **out);
bool heed__is_linear(const heed_module *m);
bool heed__is_dropout(const heed_module *m);
/** p of a Dropout module in training mode, else 0. */
double heed__dropout_active(const heed_module *dropout);

/** A list of modules, entries "0", "1", …; it has no forward. (module_list.c) */
HEED_MUST_USE
heed_status heed__module_list_new(heed_context *ctx, int64_t capacity, heed_module **out);
void heed__module_list_add(heed_module *list, heed_module *module);

/** Errors: ARGUMENT, where value is below 1. */
HEED_MUST_USE
heed_status heed__check_positive(heed_context *ctx, const char *function, const char *argument,
                                 int64_t value);

/* ---- Attention modules (attention/module.c) ---- */

/* What a host has asked to be called at (heed_attention_set_hook). */
typedef struct heed__attention_hook {
  heed_hook_function *callback; /* NULL: nothing */
  void *user;
  unsigned points; /* bits of heed_attention_point */
} heed__attention_hook;

/* Entries: W_query, W_key, W_value, then out_proj, dropout, q_norm, k_norm and sinks where the class and its
 * config have them; of the wrapper: heads. The fields are those of the completed config. */
typedef struct heed__attention_module {
  heed_module base;
  int64_t d_in, d_out, context_length, num_heads, num_kv_heads, head_dim, softmax_dim;
  double scale;
  bool causal;
  bool one_head; /* masks and taps have no head dimension */
  int own_parts; /* parts that heed__is_own */
  heed__attention_hook hook;
  int64_t kdim, vdim;
  heed_window window;
  double softcap;
  bool alibi, sinks, qk_norm, rotary;
  heed_rope_config rope;
  float slopes[]; /* num_heads, with alibi */
} heed__attention_module;

typedef struct heed__attention_class {
  heed__class base;
  bool one_head;   /* as in heed__attention_module */
  bool any_length; /* context_length may be 0, for no limit */
  bool drops;      /* has a dropout on the weights */
  /* Checks what the class reads of the config, and fills in what it leaves open. */
  heed_status (*complete)(heed_context *ctx, heed_attention_config *config);
  /* As heed__module_finish, for entries of its own; NULL: those of the list above. */
  heed_status (*add_entries)(heed_module *m, heed_generator *g, const heed_attention_config *config,
                             heed_module **out);
} heed__attention_class;

extern const heed__attention_class heed__causal_class, heed__wrapper_class, heed__heads_class;

/** A constructor as in heed.h: reads, checks and completes the host's config, then makes the module. */
HEED_MUST_USE
heed_status heed__attention_new(heed_context *ctx, heed_generator *g, const heed__attention_class *class,
                                const heed_attention_config *config, heed_module **out);
/** Its second half, for a config that is complete. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__attention_make(heed_context *ctx, heed_generator *g, const heed__attention_class *class,
                                 const heed_attention_config *config, heed_module **out);
/** Completes the config for a class of one head, without the options of MultiHeadAttention. */
void heed__one_head(heed_attention_config *config, bool causal);
/** Errors: INDEX, where dim is not one of the two or three dimensions of the weights. */
HEED_MUST_USE
heed_status heed__check_softmax_dim(heed_context *ctx, const char *function, int dim);
/** Texts of modules, as heed_module_describe: of MultiHeadAttention; of modules with one head.
 * (attention/text.c) */
void heed__describe_heads(const heed_module *m, char *text, size_t size);
void heed__describe_one_head(const heed_module *m, char *text, size_t size);
/** 1 / √head_dim. */
double heed__default_scale(int64_t head_dim);
/** Errors: ARGUMENT, unless scale is finite. */
HEED_MUST_USE
heed_status heed__check_finite_scale(heed_context *ctx, const char *function, double scale);
/** Checks of settings: scale, and context_length. */
HEED_MUST_USE
heed_status heed__check_scale(const heed_module *m, const char *name, heed_scalar value);
HEED_MUST_USE
heed_status heed__check_context_length(const heed_module *m, const char *name, heed_scalar value);

/** Errors: DTYPE, SHAPE, where x is not float32 [n, d_in] or [b, n, d_in] with at most context_length tokens,
 * or any number of them if it is packed. (attention/inputs.c) */
HEED_MUST_USE
heed_status heed__attention_check_input(const heed_module *m, const heed_tensor *x,
                                        const heed_forward_options *options);
/** Checks x and all options of a forward pass without a cache as that pass does. (stages.c) */
HEED_MUST_USE
heed_status heed__attention_check_forward(heed_module *m, const heed_tensor *x,
                                          const heed_forward_options *options);
/** Whether m can use the cache for `batch` items of `added` new tokens each, or added_each[i] of item i
 * unless that is NULL. Errors: ARGUMENT, SHAPE. (attention/cache.c) */
HEED_MUST_USE
heed_status heed__module_check_cache(const heed_module *m, const heed_kv_cache *cache, int64_t batch,
                                     int64_t added, const int64_t *added_each);
/** What the keys and values of a cache depend on. (attention/cache.c) */
void heed__module_cache_origin(const heed_module *m, heed__kv_origin *origin);
/** The keys before its own that a query sees, -1 for all, as caches store it. (attention/cache.c) */
int64_t heed__module_cache_window(const heed_module *m);
/** The forward pass of modules with a softmax over the keys. (attention/stages.c) */
heed_status heed__attention_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                    heed_tensor **out, heed_attention_taps *taps);

/* ---- Samples of parameters (samples.c) ---- */

/** Samples a tensor; `scale` is the weight_scale of int8, else NULL. */
void heed__sample_parameter(const heed_tensor *x, const heed_tensor *scale, float sample[HEED__SAMPLE]);
/** How many of `count` samples differ: those of one dtype in any bit, others beyond its rounding. */
int64_t heed__differing_samples(const float *a, const float *b, int64_t count);

/* ---- Watched modules, whose forward pass the binding accompanies (watch.c) ---- */

/** Adds delta to the number of listeners of m, which does not fall below 0. */
void heed__module_watch(heed_module *m, int delta);
bool heed__search_watched(const heed_module *m);
/** Whether m or a part of it has listeners. */
static inline bool heed__holds_watched(const heed_module *m) {
  return m->context->watched > 0 && heed__search_watched(m);
}

/* ---- Parts of one's own: neither the Linear nor the Dropout of the constructor (own.c) ---- */

/** Whether the part `name` of m may be any module. */
bool heed__takes_own(const heed_module *m, const char *name);
/** Whether a part is one's own: of another class than Dropout, or Linear. */
bool heed__is_own(const heed_module *part, bool dropout);
/** Updates own_parts of an attention module that heed__takes_own. */
void heed__count_own(heed_module *m);
/** The first part of m that is one's own; NULL: none. */
const heed__slot *heed__own_slot(const heed_module *m);
/** Whether m or a part of it has such parts. */
bool heed__holds_own(const heed_module *m);
/** Errors: ARGUMENT, if m has such a part, for functions that cannot call it. */
HEED_MUST_USE
heed_status heed__refuse_own(const heed_module *m, const char *function);
/** `user` of a module made by heed_own_module_new, else NULL. */
void *heed__own_user(const heed_module *m);
/** Whether a Linear has the sizes that the part `name` of m needs; any module of another class does. Errors:
 * ARGUMENT. (attention/module.c) */
HEED_MUST_USE
heed_status heed__attention_check_part(const heed_module *m, const char *name, const heed_module *value);

/* A forward pass that stops where such a part has to be applied, where a part is watched, and at the points
 * that listeners ask for. (attention/own_pass.c) */
typedef struct heed__own_pass heed__own_pass;

/* Bits of points: where the pass stops, and of those where a listener may change the tensor. */
typedef struct heed__listened {
  unsigned read, edited;
} heed__listened;

/* Where a pass has stopped, all borrowed: at a part to be applied to x, or at a point (part NULL) whose
 * tensor is x [b, n, heads, d] or [b, heads, n, s]. */
typedef struct heed__own_stop {
  const char *name; /* of the part or point; NULL: it has not stopped */
  heed_module *part;
  const heed_tensor *x;
  bool paused; /* its slice of time is over */
} heed__own_stop;

/** Whether the forward pass of m stops: a staged module with parts of one's own, watched parts or a hook. */
bool heed__stops(const heed_module *m);
/** Checks the call of a staged attention module. x and the tensors in options are held. points NULL: none.
 * Errors: those of heed_module_forward. */
HEED_MUST_USE
heed_status heed__own_pass_new(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                               bool wants_taps, const heed__listened *points, heed__own_pass **out);
/** Continues until the next stop, or until all is done. After a failure the pass cannot continue. Errors:
 * ARGUMENT (the cache was used meanwhile), CANCELLED, LIMIT, MEMORY. */
HEED_MUST_USE
heed_status heed__own_pass_run(heed__own_pass *pass, heed__own_stop *stop);
/** Continues for so many seconds, or to the next stop. At least one small piece of work is done, such as
 * heed__own_pass_put before. Dropout draws from a copy of the generator until the weights are done. Errors:
 * the same. (attention/own_slices.c) */
HEED_MUST_USE
heed_status heed__own_pass_slice(heed__own_pass *pass, double seconds, heed__own_stop *stop);
/** The progress, roughly in multiply-adds, until all is done; 0 and 0 from then on. */
void heed__own_pass_progress(const heed__own_pass *pass, double *done, double *total);
/** The bytes that the whole pass takes at most, roughly. */
double heed__own_pass_memory(const heed__own_pass *pass);
/** The tokens in the cache before. */
int64_t heed__own_pass_past(const heed__own_pass *pass);
/** Whether it waits for the result of a part, which cannot be missing. */
bool heed__own_pass_waits_for_part(const heed__own_pass *pass);
/** Writes "the result of W_query (Lora)" for messages; returns the class of the attention module. */
const char *heed__own_pass_names(const heed__own_pass *pass, char *result, size_t size);
/** Gives it the result of that part, or the changed tensor of that point (NULL: unchanged), which is copied
 * or shared. Errors: SHAPE, DTYPE, MEMORY, CANCELLED, LIMIT. */
HEED_MUST_USE
heed_status heed__own_pass_put(heed__own_pass *pass, const heed_tensor *y);
/** Moves the results of a pass that is done; taps NULL: not requested. Errors: those of storing in *out. */
HEED_MUST_USE
heed_status heed__own_pass_result(heed__own_pass *pass, heed_tensor **out, heed_attention_taps *taps);
/** Gives the generator the state that it had before the dropout, unless others have drawn since. */
void heed__own_pass_undo(heed__own_pass *pass);
void heed__own_pass_free(heed__own_pass *pass); /* NULL is allowed */
/** All of it, with the forward of each part. */
HEED_MUST_USE
heed_status heed__own_pass_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                   heed_tensor **out, heed_attention_taps *taps);

/** Whether one kernel can do the whole pass, as for a few tokens without options; fills *pass but for x and
 * out. (attention/small.c) */
bool heed__small_pass_takes(const heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                            heed__small_pass *pass);
/** Runs it. Errors: SHAPE, DTYPE, ARGUMENT (of *out), MEMORY. */
HEED_MUST_USE
heed_status heed__small_pass_run(const heed_module *m, const heed_tensor *x, heed__small_pass *pass,
                                 heed_tensor **out);

#endif
