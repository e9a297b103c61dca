/* The door of the binding: how C objects live in a Lua state, and how arguments are read and errors raised.
 *
 * Rules for a function that Lua calls:
 * 1. Results first: push the empty boxes of the results (lheed_push_tensor…), then read the arguments, then
 * call heed. A box is freed by the collector whatever happens afterwards.
 * 2. Any allocation by Lua may run finalizers, which may do whatever a script can: release a tensor, give a
 * module other parts or another dtype, change a table, set limits. So between reading anything that they can
 * change (a tensor's pointer, a module's entry or their count, the elements of a list) and its last use
 * nothing is pushed that allocates; afterwards it is read again. What must last longer is copied (a name), or
 * held by a copy of the list (lheed_own_list). Raising an error is the end of all use; but what a message
 * names is read before its strings are made.
 * 3. No allocation of ours is held across a call that can raise, except in a box.
 * 4. Every function is a closure whose first upvalue is the lheed_state (lheed_setfuncs does that). */
#ifndef LHEED_H
#define LHEED_H

#include "../heed.h"
#include "compat.h"

/* ---- The state: one for each Lua state, in its registry ---- */

typedef struct lheed_state {
  const void *mark;
  heed_context *context; /* NULL: the Lua state is closing */
  lua_Alloc allocate;    /* the Lua state's */
  void *allocate_user;
  size_t stepped_at;    /* bytes in use when the collector was last stepped for tensors */
  uint64_t hash_key[2]; /* of this state's tables of foreign strings */
  bool collecting;      /* a collection runs in the middle of an operation: finalizers must not release its
                           arguments */
  char
      own_files[256]; /* the folder of heed's own Lua files as chunk names show it; "" if they are embedded */
} lheed_state;

/** Of the running function (upvalue 1); once in each, at its start: the time of a call of a script's counts
 * from there. */
lheed_state *lheed_get(lua_State *L);
/** The same for functions that need no state. What does neither would be stopped by the time of a call that
 * is over. */
void lheed_begin(lua_State *L);
/** Raises where work is due: in loops of functions that scripts call. (llimit.c) */
void lheed_stop(lua_State *L, heed_context *ctx, const char *function);
/** The same for short functions that heed's own Lua files call again and again, which do not begin with
 * lheed_get: where no call is under them on the stack, the time that is up is that of an earlier one. */
void lheed_look(lua_State *L, const char *function);
/** Of any running C code of ours, without the upvalue; NULL if heed was not opened here. */
lheed_state *lheed_find(lua_State *L);

/** The running function, or frame, is one that a limit of seconds is for: its time counts from now, unless it
 * is called in the course of another one's. (llimit.c) */
void lheed_start_call(lua_State *L, lheed_state *S);
/** Whether the function at idx is one that core.frame made. */
bool lheed_is_frame(lua_State *L, int idx);

/** Pushes the state, for an upvalue 1. */
void lheed_push_state(lua_State *L);
/** luaL_setfuncs with the state as upvalue 1, into the table on top of the stack. */
void lheed_setfuncs(lua_State *L, const luaL_Reg *functions);

/* ---- Boxes: userdata around C objects ---- */

/* What a box holds. The address of the type is its mark: a box of another library, another version of heed or
 * with a metatable that it should not have is never taken for one. */
typedef struct lheed_type {
  const char *name; /* "Tensor", for messages */
  void (*release)(void *object);
} lheed_type;

typedef struct lheed_box {
  const lheed_type *type;
  void *object;             /* NULL: not yet filled, or released */
  const lheed_state *state; /* with which the object goes */
} lheed_box;

extern const lheed_type lheed_tensor_type, lheed_module_type, lheed_generator_type, lheed_cache_type,
    lheed_steps_type;
extern const lheed_type lheed_archive_type, lheed_json_type; /* lio.c; no script gets such a box */

/** Pushes an empty box with its metatable; the address of its object, to be filled by a heed call. The
 * address stays valid while the box is on the stack. */
void **lheed_push_box(lua_State *L, const lheed_type *type);
heed_tensor **lheed_push_tensor(lua_State *L);
/** The box at idx if it is one of that type, else NULL; its object may be NULL (released). Never raises. */
lheed_box *lheed_test(lua_State *L, int idx, const lheed_type *type);
/** Pushes the metatable of all boxes of that type (with __name and __gc), for a part to add to. */
void lheed_push_metatable(lua_State *L, const lheed_type *type);
/** Makes a copy of it what getmetatable gives: a script that changes the copy does no harm. Once more after
 * additions. */
void lheed_publish_metatable(lua_State *L, const lheed_type *type);

/** Tells the collector of memory taken since the last call; may run finalizers, so: last thing before `return
 * n`. */
int lheed_return(lua_State *L, int n);

/* ---- What is in Lua (llate.c) ---- */

/** Pushes what the file of that name, "heed.nn.module", gives. May raise, and allocates. */
void lheed_require(lua_State *L, const char *name);
/** Puts in the place of the library, on top of the stack, what heed's own files see as heed.core. */
void lheed_open_late(lua_State *L);
/** The function of C that stands for one in Lua until it is called. */
int lheed_late_call(lua_State *L);

/* ---- Errors ---- */

/** Raises "file:line: message" with the place of the caller outside of heed's own Lua files. */
int lheed_error(lua_State *L, const char *format, ...);
/** Pushes the context's message for a status that is not OK; raises it. */
void lheed_push_message(lua_State *L, heed_status status);
void lheed_raise(lua_State *L, heed_status status);

/** A full collection, during which `release` is refused. */
void lheed_collect(lua_State *L);

/* Runs a heed call; once more after a full collection if there was no memory; raises if it failed. */
#define LHEED_TRY(L, call)                                                                                   \
  do {                                                                                                       \
    heed_status status_ = (call);                                                                            \
    if (status_ == HEED_MEMORY) {                                                                            \
      lheed_collect(L);                                                                                      \
      status_ = (call);                                                                                      \
    }                                                                                                        \
    if (status_ != HEED_OK) lheed_raise((L), status_);                                                       \
  } while (0)

/* ---- Arguments ---- */
/* `function` and `name` are for messages: "sum: dim must be an integer, got a string". idx is always
 * positive. */

/** Raises that `given` arguments are more than the `most` that a function takes. */
int lheed_too_many(lua_State *L, const char *function, int given, int most);
/** For functions without optional arguments: raises for more than `count`, and fills up with nil. */
void lheed_arguments(lua_State *L, const char *function, int count);
/** Sorts the optional arguments, which come by position or in one table at the end by name, into the stack
 * slots first…first + k - 1 (nil where absent; k names, closed by NULL), and leaves nothing above them. An
 * options table is the last argument, at `first` or behind, a table with no metatable and no array part.
 * Raises for unknown names (listing the known ones), for names given twice, and for too many arguments. */
void lheed_options(lua_State *L, const char *function, int first, const char *const *names);
/** The same for functions whose positional arguments are not fixed (zeros(2, 3, {dtype = …})): if the last
 * argument at `first` or behind is an options table its values are put on top of the stack in the order of
 * names (nil where absent), else nils; returns how many positional arguments there are before. */
int lheed_trailing_options(lua_State *L, const char *function, int first, const char *const *names);

/** options(function, names, first, …), for heed's own Lua files: the values of the optional arguments among
 * …, which begin at number `first` and come by position or by name. */
int lheed_options_of(lua_State *L);
/** Replaces the list at idx by a copy and returns its number of elements. No finalizer changes the copy, so
 * its elements live as long as it is on the stack; some may be nil. */
lua_Unsigned lheed_own_list(lua_State *L, int idx, const char *function);
/** Pushes element i, from 0, of such a copy, nil behind its end, and returns its type. Allocates nothing. */
int lheed_own_element(lua_State *L, int idx, lua_Unsigned i);

/** The tensor at idx; raises if it is something else or was released. */
heed_tensor *lheed_tensor(lua_State *L, int idx, const char *function, const char *name);
/** The same, NULL for nil. */
heed_tensor *lheed_opt_tensor(lua_State *L, int idx, const char *function, const char *name);
/** A tensor, or a number or boolean as a tensor of no dimensions over *number. */
struct heed__number;
const heed_tensor *lheed_operand(lua_State *L, int idx, const char *function, const char *name,
                                 struct heed__number *number);
heed_generator *lheed_opt_generator(lua_State *L, int idx, const char *function);

/** A number or boolean: integers give INT64, others FLOAT32. */
heed_scalar lheed_scalar(lua_State *L, int idx, const char *function, const char *name);
/** An integer, or a float with the value of one. */
int64_t lheed_integer(lua_State *L, int idx, const char *function, const char *name);
int64_t lheed_opt_integer(lua_State *L, int idx, const char *function, const char *name, int64_t otherwise);
double lheed_number(lua_State *L, int idx, const char *function, const char *name);
double lheed_opt_number(lua_State *L, int idx, const char *function, const char *name, double otherwise);
bool lheed_opt_boolean(lua_State *L, int idx, const char *function, const char *name, bool otherwise);
#define LHEED_DTYPES "'float32', 'int64', 'bool', 'bfloat16', 'float16' or 'int8'"
heed_dtype lheed_opt_dtype(lua_State *L, int idx, const char *function, heed_dtype otherwise);
/** A dimension (int range), 0 for nil. */
int lheed_opt_dim(lua_State *L, int idx, const char *function);
int lheed_dim(lua_State *L, int idx, const char *function, const char *name);
/** One dimension, a table of them, or nil (none): how many. */
int lheed_opt_dims(lua_State *L, int idx, const char *function, int dims[HEED_MAX_DIMS]);
/** Sizes as the numbers first…last of the stack, or as one table (or heed.Size) at first: how many. */
int lheed_shape(lua_State *L, int first, int last, const char *function, int64_t shape[HEED_MAX_DIMS]);

/** A window {left =, right =} of attention, or nil; read it before tensors (rule 2). (llayers.c) */
heed_window lheed_opt_window(lua_State *L, int idx, const char *function);

/** Raises "sum: dim must be an integer, got a string ('2')" for the argument at idx. */
int lheed_bad_argument(lua_State *L, int idx, const char *function, const char *name, const char *needed);
/** Pushes "nil", "a number (1.5)", "a string ('abc')", "a tensor of shape [2, 3]", "a released tensor", "a
 * table"…: what came, for messages. */
const char *lheed_push_what(lua_State *L, int idx);
/** Pushes a float as Lua writes it, but with a point whatever the locale. */
const char *lheed_push_float(lua_State *L, double value);
/** The same for the key of a table: "'name'", "the number 1.5"…. */
const char *lheed_push_key(lua_State *L, int idx);

/** Pushes a scalar as a Lua number or boolean. */
void lheed_push_scalar(lua_State *L, heed_scalar value);
/** Pushes a shape as a heed.Size: a table with a metatable that prints and compares. */
void lheed_push_shape(lua_State *L, const heed_tensor *x);
void lheed_push_sizes(lua_State *L, int ndim, const int64_t *sizes);

/** The cache at idx; NULL for nil. (lcache.c) */
heed_kv_cache *lheed_opt_cache(lua_State *L, int idx, const char *function, const char *name);
/** mha:new_cache{…}, and the metatable of what it gives. (lcache.c) */
int lheed_new_cache(lua_State *L);
void lheed_open_cache(lua_State *L);
/** Primitives of lua/heed/models. (lcache.c, lrandom.c) */
int lheed_reset_cache(lua_State *L);
int lheed_copy_generator(lua_State *L);
/** mha:steps(x, {…}), and the metatable of what it gives. (lsteps.c) */
int lheed_new_steps(lua_State *L);
void lheed_open_steps(lua_State *L);
/** The argument qk_norm of a MultiHeadAttention: a boolean, or {eps =}, which means true. (lattention.c) */
void lheed_read_qk_norm(lua_State *L, int idx, const char *function, heed_attention_config *config);
/** Pushes the setting of that name that a MultiHeadAttention was given as a table, or that may be nil; false
 * if m has none such. (lattention.c) */
bool lheed_push_variant(lua_State *L, const heed_module *m, const char *name);
#define LHEED_VARIANTS "window, rope"
/** The table at idx, {base =, style =, dims =, scaling =}, as heed.rope takes these; `name` is what the
 * argument is called. Raises for anything else. Allocates. (lrope.c) */
void lheed_rope_config(lua_State *L, int idx, const char *function, const char *name,
                       heed_rope_config *config);

/* ---- Modules (lnn.c, lconstruct.c) ---- */

/* The options of a forward, by name; need_weights is for the caller to read. */
#define LHEED_FORWARD_NAMES                                                                                  \
  "attn_mask", "key_padding_mask", "need_weights", "generator", "kv_lengths", "key", "value", "cache"
enum { LHEED_NEED_WEIGHTS = 2, LHEED_FORWARD_OPTIONS = 8 };
/** Those in the slots from `first` on. Allocates nothing: rule 2 begins here. */
heed_forward_options lheed_forward_options(lua_State *L, int first, const char *function);

/* The taps of an attention (ltaps.c). */
#define X(name) +1
enum { LHEED_TAPS = 0 HEED_ATTENTION_TAPS_LIST(X) };
#undef X
typedef struct lheed_tap_boxes {
  heed_tensor **box[LHEED_TAPS];
  int first; /* stack slot */
} lheed_tap_boxes;
/** Pushes an empty box for each tap. */
void lheed_push_tap_boxes(lua_State *L, lheed_tap_boxes *taps);
/** Moves what was found into the boxes, and pushes a table of it by name. */
void lheed_push_taps(lua_State *L, const lheed_tap_boxes *taps, const heed_attention_taps *found);

/** Pushes an empty box for a module, to be filled by a heed call. */
heed_module **lheed_push_module(lua_State *L);
/** Makes the box on top of the stack, once filled, the one that its module has, so that m.W_query ==
 * m.W_query. */
void lheed_remember_module(lua_State *L);
/** Adds to the table on top of the stack what lua/heed/nn/state_dict.lua builds on. (lstate.c) */
void lheed_add_state_primitives(lua_State *L);
/** One of them, which calls what it is given. */
int lheed_skip_init(lua_State *L);
/** Adds the constructors of the built-in modules to the table on top of the stack. */
void lheed_add_constructors(lua_State *L);
/** Whether modules of that class may be without the entry `name`, which then reads as nil: Linear's bias. */
bool lheed_is_optional_entry(const char *class, const char *name);

/* ---- The parts: each adds its functions to the library table, and its methods to the Tensor metatable's
 * __index ---------- */
/* Stack on entry: library table, method table; left as found. */

void lheed_open_size(lua_State *L);   /* lsize.c: heed.Size */
void lheed_open_tensor(lua_State *L); /* ltensor.c: making, asking, life, bytes */
void lheed_open_nested(lua_State *L); /* lnested.c: nested tables to tensors and back */
void lheed_open_index(lua_State *L);  /* lindex.c: __index, __newindex, iter */
void lheed_open_ops(lua_State *L);    /* lops.c: the operations */
void lheed_open_views(lua_State *L);  /* lviews.c: operations on shapes */
void lheed_open_layers(lua_State *L); /* llayers.c: linear maps, normalisation, attention */
void lheed_open_rope(lua_State *L);   /* lrope.c: rotary positions, slopes of biases */
void lheed_open_print(lua_State *L);  /* lprint.c: tostring, concatenation */
void lheed_open_random(lua_State *L); /* lrandom.c: seeds, Generator, draws */
void lheed_open_info(lua_State *L);   /* linfo.c: threads, the clock, heed.info */
void lheed_open_limit(lua_State *L);  /* llimit.c: heed.limit */
void lheed_open_io(lua_State *L);     /* lio.c: files, for heed's own Lua files */
void lheed_open_text(lua_State *L);   /* ltext.c: Unicode, for heed's own Lua files */
void lheed_open_nn(lua_State *L);     /* lnn.c: built-in modules, under `nn` */

/** Adds what objects written in Lua need to the table on top of the stack. (lobject.c) */
void lheed_open_object(lua_State *L);
/** heed.ipairs; and the metamethod __ipairs, without which 5.2's ipairs takes no userdata. Others need none.
 */
int lheed_ipairs(lua_State *L);
/** Whether the value at idx is such an object, where these are no tables. */
bool lheed_is_object(lua_State *L, int idx);
/** Pushes a table that does not keep its values alive. */
void lheed_new_weak(lua_State *L);

/** Adds `vocabulary` to the table on top of the stack. (lvocabulary.c) */
void lheed_open_vocabulary(lua_State *L);
/** Adds functions to both tables; with in_place as name_, and with true as their upvalue 2. (lops.c) */
void lheed_add_functions(lua_State *L, const luaL_Reg *functions, bool in_place);

#endif
