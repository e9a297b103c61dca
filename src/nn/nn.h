/* The door of nn: modules as C objects, one struct a class, all beginning with heed_module. */
#ifndef HEED_NN_H
#define HEED_NN_H

#include "../ops/ops.h"

#define HEED__MAX_ENTRIES 8

/* A setting that scripts and hosts may read (m.num_heads): its place in the module's struct. */
typedef struct heed__setting {
  const char *name;
  enum {
    HEED__SETTING_INTEGER,
    HEED__SETTING_NUMBER,
    HEED__SETTING_BOOLEAN
  } kind; /* int64_t, double, bool */
  size_t offset;
} heed__setting;

typedef struct heed__class {
  const char *name;
  const heed__setting *settings; /* may be NULL; ends with a NULL name; integers are sizes */
  bool attends;                  /* takes masks, gives internals */
  /* options is given; internals come zeroed, or NULL; after a failure the caller frees what is in them. */
  heed_status (*forward)(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                         heed_tensor **out, heed_attention_internals *internals);
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

/** A zeroed module of `bytes` (the class's struct) with room for `capacity` slots. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__module_new(heed_context *ctx, const heed__class *class, size_t bytes, int64_t capacity,
                             heed_module **out);
/** Appends a slot; takes the parameter over (marking it as one), or the reference. */
void heed__module_add_parameter(heed_module *m, const char *name, heed_tensor *parameter);
void heed__module_add_module(heed_module *m, const char *name, heed_module *module);
/** The slot of that name, or NULL; the module in it, or NULL. */
heed__slot *heed__module_slot(const heed_module *m, const char *name);
heed_module *heed__module_part(const heed_module *m, const char *name);

/** The end of a constructor that draws: hands m over, or drops it and puts the generator back to what it was
 * before. Returns status. */
HEED_MUST_USE
heed_status heed__module_finish(heed_status status, heed_module *m, heed_generator *g,
                                const heed_generator *before, heed_module **out);

/** A Linear from tensors that it takes over, also on failure; bias may be NULL. Errors: MEMORY. */
HEED_MUST_USE
heed_status heed__linear_from(heed_context *ctx, heed_tensor *weight, heed_tensor *bias, heed_module **out);
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

/* Entries: W_query, W_key, W_value, then out_proj and dropout where the class has them; of the wrapper:
 * heads. */
typedef struct heed__attention_module {
  heed_module base;
  int64_t d_in, d_out, context_length, num_heads, num_kv_heads, head_dim, softmax_dim;
  double scale; /* the one in use */
  bool causal;
  bool one_head; /* masks and internals have no head dimension */
} heed__attention_module;

/** Sizes from 1 up (context_length only if `bounded`) and a dropout from 0 to 1. Errors: ARGUMENT. */
HEED_MUST_USE
heed_status heed__attention_check(heed_context *ctx, const heed__class *class, bool bounded,
                                  const heed_attention_config *config);
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

/** Whether x is float32 [n, d_in] or [b, n, d_in] with its tokens within context_length. Errors: DTYPE,
 * SHAPE. */
HEED_MUST_USE
heed_status heed__attention_check_input(const heed_module *m, const heed_tensor *x);
/** x through W_query, W_key and W_value, in `place` where they fit (NULL: they are to stay). The caller frees
 * what is there, also on failure. */
HEED_MUST_USE
heed_status heed__project(const heed_module *m, const heed_tensor *x, heed__temporary place[3],
                          heed_tensor *projected[3]);
/** The forward of attention modules that softmax over the keys. */
heed_status heed__attention_forward(heed_module *m, const heed_tensor *x, const heed_forward_options *options,
                                    heed_tensor **out, heed_attention_internals *internals);

/* ---- For heed_module_split ---- */

/** A CausalAttention without its projections, to be added before the Dropout. (causal_attention.c) */
HEED_MUST_USE
heed_status heed__causal_attention_empty(heed_context *ctx, const heed_attention_config *config,
                                         heed_module **out);
/** A wrapper whose heads are to be added to its entry "heads". (multi_head_attention_wrapper.c) */
HEED_MUST_USE
heed_status heed__wrapper_empty(heed_context *ctx, const heed_attention_config *config, heed_module **out);

#endif
