/* The door of the binding: how C objects live in a Lua state, how arguments are read and errors raised.
 *
 * Rules for a function that Lua calls:
 * 1. Results first: push the empty boxes of the results (lheed_push_tensor…), then read the arguments, then
 * call heed. Whatever happens afterwards, the collector frees a box.
 * 2. Any allocation by Lua may run finalizers, which may do whatever a script can: release a tensor, change
 * the entries or the dtype of a module, change a table, set limits. So between reading anything that they can
 * change (the pointer of a tensor, the entries of a module, the elements of a list) and its last use, push
 * nothing that allocates, or read it again afterwards. What must last longer is copied (a name), or kept
 * alive by a copy of the list (lheed_own_list). Raising an error ends all use; but read what a message names
 * before its strings are made.
 * 3. Across a call that can raise, memory of ours is held only in a box.
 * 4. Every function is a closure whose first upvalue is the lheed_state (lheed_setfuncs sets it).
 *
 * Files depend on each other in one direction: lheed.c, lbox.c, lerror.c and largs.c are below, the files of
 * the objects and operations above them, and lopen.c above all. scripts/dev/check_objects.lua checks this. */
#ifndef LHEED_H
#define LHEED_H

#include "../heed.h"
#include "compat.h"

/* ---- The state: one for each Lua state, in its registry (lheed.c) ---- */

enum { LHEED_CONVERTERS = 3 };

/* How tensors are printed (heed.set_printoptions, lprint.c). */
typedef struct lheed_print_options {
  int precision;     /* digits behind the point */
  int64_t threshold; /* of more elements only the edges are shown */
  int64_t edgeitems; /* elements shown at each end of a dimension */
  int linewidth;
  int sci_mode; /* 1: scientific notation, 0: not, -1: depending on the elements */
} lheed_print_options;

typedef struct lheed_state {
  const void *mark;
  heed_context *context; /* NULL: the Lua state is closing */
  lua_Alloc allocate;    /* the Lua state's */
  void *allocate_user;
  size_t stepped_at;          /* bytes in use when the collector last made a step for tensors */
  bool sliced;                /* a slice of time runs: the collector makes small steps */
  uint64_t hash_key[2];       /* of this state's tables of foreign strings */
  uint64_t pairs;             /* see lheed_box */
  lua_State *running;         /* calls heed_module_forward; NULL: none does (lown.c) */
  bool raised;                /* a module in Lua raised an error there, which is on top of the stack */
  bool detects_anomaly;       /* see heed_backward_options */
  bool redirects;             /* attention is computed by a function in Lua (lredirect.c) */
  struct kept_value *dropped; /* see lheed_drop_kept */
  bool collecting; /* lheed_collect runs during an operation: finalizers must not release its arguments */
  size_t transparent_count;
  lua_CFunction transparent[16]; /* see lheed_add_transparent */
  lheed_print_options print;
  lua_CFunction converters[LHEED_CONVERTERS]; /* heed.float, heed.long, heed.bool, … */
  heed_dtype converter_dtype[LHEED_CONVERTERS];
  char own_files[256]; /* the directory of heed's own Lua files in chunk names; "" if they are embedded */
} lheed_state;

/** Creates the state. */
void lheed_new_state(lua_State *L);
/** The state of the running function (upvalue 1). Each function that a script calls needs this once, at its
 * start: the time limit of the call counts from there. Raises if the state was closed. */
lheed_state *lheed_get(lua_State *L);
/** The same for functions that need no state. A function with neither could be stopped by the time limit of
 * an earlier call. */
void lheed_begin(lua_State *L);
extern const char lheed_state_key; /* registry key of the state, and its mark */

/** The state at idx, closed or not; NULL for any other value: the debug library can change an upvalue. */
static inline lheed_state *lheed_state_at(lua_State *L, int idx) {
  lheed_state *S = lua_rawlen(L, idx) == sizeof *S ? lua_touserdata(L, idx) : NULL;
  return S && S->mark == &lheed_state_key ? S : NULL;
}

/** The state of the running function; NULL if it is closed, or upvalue 1 is something else. */
static inline lheed_state *lheed_running(lua_State *L) {
  lheed_state *S = lheed_state_at(L, lua_upvalueindex(1));
  return S && S->context ? S : NULL;
}
/** The state, for any C function; NULL if heed was not opened in this Lua state. Slower. */
lheed_state *lheed_find(lua_State *L);
/** Pushes the state, for upvalue 1 of a closure. */
void lheed_push_state(lua_State *L);

/** Pushes what the file of that name, "heed.nn.module", returns. May raise, and allocates. */
void lheed_require(lua_State *L, const char *name);
extern const char lheed_require_key; /* registry key of the `require` that finds heed's own files */
extern const char lheed_library_key; /* registry key of the library's table; nil until it is open */

/** Pushes an empty table with weak keys ("k") or values ("v"). */
void lheed_new_weak(lua_State *L, const char *mode);

/* ---- Adding functions (lheed.c) ---- */

/** luaL_setfuncs with the state as upvalue 1, into the table on top of the stack. */
void lheed_setfuncs(lua_State *L, const luaL_Reg *functions);

/* A part of the binding is opened with the library table and the methods of tensors on top of the stack, and
 * leaves them there. */

/** Adds functions to a table of the library, which is created if necessary; NULL: to the library itself. */
void lheed_add(lua_State *L, const char *table, const luaL_Reg *functions);
/** Adds functions to the library and as methods of tensors. in_place: under names that end in _. Upvalue 2 of
 * each is in_place, upvalue 3 the name, with which its error messages begin. */
void lheed_add_methods(lua_State *L, const luaL_Reg *functions, bool in_place);

/* Set a field of the table on top of the stack. */
void lheed_set_string(lua_State *L, const char *name, const char *value);
void lheed_set_integer(lua_State *L, const char *name, int64_t value);
void lheed_set_number(lua_State *L, const char *name, double value);

/* ---- Calls of a script (lheed.c) ---- */

/** Marks a C function that calls what a script gave it as transparent: errors show the position behind it on
 * the stack. Its own file calls this when it is opened. */
void lheed_add_transparent(lua_State *L, lua_CFunction function);
/** Whether a function on the stack, from `source` (lua_Debug), is transparent or of heed's own Lua files. */
bool lheed_is_transparent(lua_State *L, const char *source, lua_CFunction function);
/** Starts the time limit of a call, unless the running function is called by another function of heed. */
void lheed_start_call(lua_State *L, lheed_state *S);
/** Whether a call of heed's own Lua files is running. */
bool lheed_is_in_call(lua_State *L);

/* ---- Boxes: userdata around C objects (lbox.c) ---- */

/* What a box holds: a constant in the file of its kind of object. */
typedef struct lheed_type {
  const char *name; /* "Tensor", in the metatable */
  const char *noun; /* "tensor", in messages */
  void (*release)(void *object);
  void (*describe)(lua_State *L, const void *object); /* pushes "a tensor of shape …"; NULL: "a <noun>" */
} lheed_type;

/* The address of the type identifies a box, whatever metatable it has: userdata of other libraries or other
 * copies of heed never have it. */
typedef struct lheed_box {
  const lheed_type *type;
  void *object;             /* NULL: not yet set, or released */
  const lheed_state *state; /* when it closes, it frees the object */
  uint64_t pair;            /* of values and their indices: the same number in both; else 0 */
} lheed_box;

extern const lheed_type lheed_tensor_type;    /* lbox.c */
extern const lheed_type lheed_module_type;    /* lmodule.c */
extern const lheed_type lheed_generator_type; /* lrandom.c */
extern const lheed_type lheed_cache_type;     /* lcache.c */
extern const lheed_type lheed_steps_type;     /* lsteps.c */
extern const lheed_type lheed_mask_type;      /* lmask.c */

/** Creates the metatable of a type, with __name, __gc and these metamethods (NULL: none). */
void lheed_new_type(lua_State *L, const lheed_type *type, const luaL_Reg *metamethods);
/** Adds more of them. */
void lheed_add_metamethods(lua_State *L, const lheed_type *type, const luaL_Reg *metamethods);
/** Pushes the metatable. */
void lheed_push_metatable(lua_State *L, const lheed_type *type);
/** At the end of opening: getmetatable returns copies, so that a script cannot change the metatables. */
void lheed_publish_metatables(lua_State *L);

/** Pushes an empty box; returns the address of its object, for a heed call to set. The address is valid while
 * the box is on the stack. */
void **lheed_push_box(lua_State *L, const lheed_type *type);
heed_tensor **lheed_push_tensor(lua_State *L);
heed_module **lheed_push_module(lua_State *L); /* lmodule.c */
/** Pushes the table that is attached to the box at idx, not of a tensor: it lives as long as the box, also
 * where its values refer to the box, as weak keys of 5.1 do not allow. Without `create`, false and nothing if
 * there is none yet. */
bool lheed_push_attached(lua_State *L, int idx, bool create);
/** Ends a function whose two results, on top of the stack, are values and their indices: marks them as a
 * pair, so that a list which takes both by mistake, {x:max(1)}, can be refused. */
int lheed_return_pair(lua_State *L);
/** Whether the two values on top of the stack are one. */
bool lheed_are_pair(lua_State *L);
/** The box at idx; NULL for anything else. The object may be NULL (released). Never raises. */
lheed_box *lheed_box_at(lua_State *L, int idx);
/** The same for boxes of one type. */
lheed_box *lheed_test(lua_State *L, int idx, const lheed_type *type);

/** Pushes an object written in Lua: a userdata that holds the table at index 1. (lobject.c adds its
 * metatable)
 */
void lheed_push_object(lua_State *L);
/** Whether the value at idx is one. */
bool lheed_is_object(lua_State *L, int idx);

/** Keeps the value at idx until lheed_drop_kept, which needs no Lua state; raises if memory runs out. The
 * result identifies it. (lkept.c) */
void *lheed_keep(lua_State *L, int idx);
void lheed_push_kept(lua_State *L, const void *kept);
lheed_state *lheed_state_of_kept(const void *kept);
void lheed_drop_kept(void *kept);
/** Lets the collector have what was dropped since the last call. Does not allocate. */
void lheed_forget_dropped(lua_State *L, lheed_state *S);

/** Ends a function with n results: the collector makes a step for the memory taken since the last one. May
 * run finalizers. */
int lheed_return(lua_State *L, int n);
/** Runs a full collection, during which `release` is refused. */
void lheed_collect(lua_State *L);

/* ---- Errors (lerror.c) ---- */

/** Raises "file:line: message", with the position of the caller outside of heed's own Lua files. "add: …" in
 * the message becomes "add_: …" if that is how the running function was called, as it does in lheed_raise. */
int lheed_error(lua_State *L, const char *format, ...);
/** Pushes the context's message for a status other than OK; raises it. */
void lheed_push_message(lua_State *L, heed_status status);
void lheed_raise(lua_State *L, heed_status status);

/** After a heed call failed: collects all garbage if memory ran out and nothing was collected for the call
 * yet, so that it can be repeated. *collected begins as false. False if repeating it is of no use. */
bool lheed_can_repeat(lua_State *L, heed_status status, bool *collected);
/** The same, but raises the error if repeating the call is of no use. */
void lheed_repeat_or_raise(lua_State *L, heed_status status, bool *collected);

/* Runs a heed call, a second time after a full collection if memory ran out; raises if it failed. */
#define LHEED_TRY(L, call)                                                                                   \
  do {                                                                                                       \
    heed_status status_;                                                                                     \
    bool collected_ = false;                                                                                 \
    while ((status_ = (call)) != HEED_OK) lheed_repeat_or_raise((L), status_, &collected_);                  \
  } while (0)

/** Raises that the argument at idx is something else than needed: "sum: dim is a string ('2'); it must be an
 * integer". */
int lheed_bad_argument(lua_State *L, int idx, const char *function, const char *name, const char *needed);
/** Pushes what the value at idx is, for messages: "nil", "the number 1.5", "a string ('abc')", "a released
 * tensor", "a table". */
const char *lheed_push_what(lua_State *L, int idx);
/** The same for the key of a table: "'name'", "the number 1.5". */
const char *lheed_push_key(lua_State *L, int idx);
/** Pushes what a message says after an unknown name, the value at `key`: "" or "; did you mean 'dim'?". owner
 * selects the advice of heed.suggest; the known names are the keys of the tables, or the words of the texts,
 * at the stack indices `names` and `more` (0: nothing). Allocates. */
const char *lheed_push_hint(lua_State *L, const char *owner, int key, int names, int more);
/** Pushes the string at idx, a message of Lua itself, with what to write instead where that is known. */
void lheed_explain(lua_State *L, int idx);
/** Makes reading an unknown name of the table on top of the stack, which messages call `owner`, an error.
 * Other keys, and names with a leading underscore, which libraries look for in any table, stay nil. */
void lheed_guard(lua_State *L, const char *owner);
/** Raises for the name at index 2, or returns nil (0 results) for such keys; the table is at index 1. */
int lheed_unknown_name(lua_State *L, const char *owner);
/** Pushes a float as Lua writes it, but with a point in every locale. */
const char *lheed_push_float(lua_State *L, double value);

/** A cancellation check: raises if the call was cancelled or exceeded its time. In every loop over something
 * that a script can make large. */
void lheed_check_cancel_of(lua_State *L, heed_context *ctx, const char *function);
/** The same for short functions that heed's own Lua files call repeatedly, which do not begin with lheed_get:
 * where no call of these files is on the stack, the time limit starts again. */
void lheed_check_cancel(lua_State *L, const char *function);

/* ---- Arguments (largs.c) ---- */
/* `function` and `name` are for messages. idx is always positive. */

/** Raises that `given` arguments are more than the `most` that a function takes. */
int lheed_too_many(lua_State *L, const char *function, int given, int most);
/** Raises if idx holds the table that a forward with need_weights returns second: in f(m(x, {need_weights =
 * true})) f receives both results. */
void lheed_refuse_second_result(lua_State *L, const char *function, int idx);
/** For functions without optional arguments: raises for more than `count`; missing ones become nil. */
void lheed_arguments(lua_State *L, const char *function, int count);
/** Moves optional arguments, which come by position or by name in one table at the end, to the stack slots
 * first…first + k - 1 (nil if absent; k names, ended by NULL), and leaves nothing above them. An options
 * table is the last argument, at `first` or later, a table without metatable and without array part. Raises
 * for unknown names (listing the known ones), for names given twice, and for too many arguments. */
void lheed_options(lua_State *L, const char *function, int first, const char *const *names);
/** The same for functions with any number of positional arguments (zeros(2, 3, {dtype = …})): pushes the
 * values of the options in the order of names (nil if absent), and returns the number of positional
 * arguments. */
int lheed_trailing_options(lua_State *L, const char *function, int first, const char *const *names);
/** options(function, names, first, …), for heed's own Lua files: the values of the optional arguments among
 * …, the first of which is number `first`, by position or by name. */
int lheed_options_of(lua_State *L);

/** Replaces the list at idx by a copy and returns the number of its elements, some of which may be nil. No
 * finalizer can change the copy, so the elements live as long as it is on the stack. */
lua_Unsigned lheed_own_list(lua_State *L, int idx, const char *function);
/** Pushes element i, from 0, of such a copy, nil after the last, and returns its type. Does not allocate. */
int lheed_own_element(lua_State *L, int idx, lua_Unsigned i);

/** The tensor at idx; raises for anything else and for a released tensor. */
heed_tensor *lheed_tensor(lua_State *L, int idx, const char *function, const char *name);
/** Raises unless the elements of x can be read one by one: unless its dtype is blocked. */
void lheed_check_elements(lua_State *L, const char *function, const char *name, const heed_tensor *x);
/** The same, NULL for nil. */
heed_tensor *lheed_opt_tensor(lua_State *L, int idx, const char *function, const char *name);
/** A tensor, or a number or boolean as a 0-dimensional tensor in *number. */
struct heed__number;
const heed_tensor *lheed_operand(lua_State *L, int idx, const char *function, const char *name,
                                 struct heed__number *number);

/** A number or boolean: integers give INT64, others FLOAT32. */
heed_scalar lheed_scalar(lua_State *L, int idx, const char *function, const char *name);
/** Whether gelu's form "tanh" is given, not "none". */
bool lheed_approximate(lua_State *L, int idx, const char *function, const char *name);
/** An integer, or a float with an integral value. */
int64_t lheed_integer(lua_State *L, int idx, const char *function, const char *name);
int64_t lheed_opt_integer(lua_State *L, int idx, const char *function, const char *name, int64_t otherwise);
double lheed_number(lua_State *L, int idx, const char *function, const char *name);
double lheed_opt_number(lua_State *L, int idx, const char *function, const char *name, double otherwise);
bool lheed_opt_boolean(lua_State *L, int idx, const char *function, const char *name, bool otherwise);
/** A dtype: its name, or a function that converts to it (heed.float, heed.long, heed.bool). */
#define LHEED_DTYPES "'float32', 'int64', 'bool', 'bfloat16', 'float16' or 'int8'"
/** The same; messages list a set of dtypes (heed__dtypes_text). A missing dtype is an error. */
heed_dtype lheed_dtype(lua_State *L, int idx, const char *function, unsigned known);
heed_dtype lheed_opt_dtype(lua_State *L, int idx, const char *function, heed_dtype otherwise);
/** A dimension (int range), 0 for nil. */
int lheed_opt_dim(lua_State *L, int idx, const char *function);
int lheed_dim(lua_State *L, int idx, const char *function, const char *name);
/** The number of dimensions at idx: a dimension, a table of them, or nil (0). */
int lheed_opt_dims(lua_State *L, int idx, const char *function, int dims[HEED_MAX_DIMS]);
/** The number of sizes, which are the numbers first…last of the stack or one table (or heed.Size) at first.
 */
int lheed_shape(lua_State *L, int first, int last, const char *function, int64_t shape[HEED_MAX_DIMS]);

/** Replaces the indices at idx, a tensor of int64 or of float32 with whole values, or (nested) tables of
 * integers, by an int64 tensor. masks: bool is left as it is, and tables of booleans become bool tensors.
 * Raises for anything else. Allocates. (lindices.c) */
void lheed_indices(lua_State *L, int idx, const char *function, const char *name, bool masks);
/** The same, but nil is left. */
void lheed_opt_indices(lua_State *L, int idx, const char *function, const char *name);
/** Pushes the tensor of such tables at idx; its dtype, int64 or bool. (lnested.c) */
heed_dtype lheed_nested_indices(lua_State *L, int idx, const char *function, const char *name, bool masks);

/** Pushes a scalar as a Lua number or boolean. */
void lheed_push_scalar(lua_State *L, heed_scalar value);

/* ---- Attention in Lua (lredirect.c) ---- */

/** If a function in Lua computes attention, pushes it and the string `what` below the arguments, for
 * lheed_call_all. */
bool lheed_redirect(lua_State *L, const char *what);
/** Whether there is such a function. */
bool lheed_redirects(lua_State *L);

/* ---- Elementwise operations (lops.c) ---- */

/** Pushes the result of an elementwise operation: a new tensor or, in the form with a trailing underscore,
 * argument 1 again, which messages call `name`. */
heed_tensor **lheed_push_result(lua_State *L, const char *function, const char *name);
/** Calls an operation on two arguments, tensors or numbers, with its result as above. */
typedef heed_status lheed_binary(heed_context *ctx, const heed_tensor *a, const heed_tensor *b,
                                 heed_tensor **out);
int lheed_call_binary(lua_State *L, const char *function, lheed_binary *call);

/* ---- Values with a file of their own ---- */

/** Pushes a shape as a heed.Size: a table with a metatable that prints and compares. (lsize.c) */
void lheed_push_shape(lua_State *L, const heed_tensor *x);
void lheed_push_sizes(lua_State *L, int ndim, const int64_t *sizes);

/** The path at idx, as a C string. (lio.c) */
const char *lheed_path(lua_State *L, int idx, const char *function);
/** The type of loaded archives, which scripts get none of. (lio.c) */
extern const lheed_type lheed_archive_type;
/** Splits a list (from lheed_own_list) of keys and bytes of GGUF values, which live as long as it. (lgguf.c)
 */
void lheed_read_gguf_pairs(lua_State *L, heed_context *ctx, int list, lua_Unsigned pairs, const char **keys,
                           heed_gguf_value *values);
/** For a status other than OK: returns nil and the message about a file; raises other errors. (lio.c) */
int lheed_file_failed(lua_State *L, heed_status status);
/* Sets *status to that of a heed call, which is repeated after a full collection if memory ran out. */
#define LHEED_TRY_FILE(L, status, call)                                                                      \
  do {                                                                                                       \
    bool collected_ = false;                                                                                 \
    do *(status) = (call);                                                                                   \
    while (lheed_can_repeat((L), *(status), &collected_));                                                   \
  } while (0)
/** The generator, or the cache, at idx; NULL for nil. (lrandom.c, lcache.c) */
heed_generator *lheed_opt_generator(lua_State *L, int idx, const char *function);
heed_kv_cache *lheed_opt_cache(lua_State *L, int idx, const char *function, const char *name);
/** The option attn_mask at idx: a tensor, or NULL for nil and for a heed.Mask, which *mask receives.
 * (lmask.c) */
const heed_tensor *lheed_opt_attn_mask(lua_State *L, int idx, const char *function, const heed_mask **mask);

/** A window {left =, right =} of attention, or nil. Allocates. (llayers.c) */
heed_window lheed_opt_window(lua_State *L, int idx, const char *function);
/** The table at idx, {base =, style =, dims =, scaling =}, which are options of heed.rope; `name` is the
 * argument's. Raises for anything else. Allocates. (lrope.c) */
void lheed_rope_config(lua_State *L, int idx, const char *function, const char *name,
                       heed_rope_config *config);
/** Pushes such a table; c is a copy that no finalizer can change. (lrope.c) */
void lheed_push_rope(lua_State *L, const heed_rope_config *c);
/** The argument qk_norm of a MultiHeadAttention: a boolean, or {eps =}, which means true. (lattention.c) */
void lheed_read_qk_norm(lua_State *L, int idx, const char *function, heed_attention_config *config);
/** Pushes a setting of an attention module that is a table in Lua, or may be nil; false if m has none of that
 * name. (lattention.c) */
bool lheed_push_table_setting(lua_State *L, const heed_module *m, const char *name);
#define LHEED_TABLE_SETTINGS "window, rope"
/** m.name = the value at idx, for settings that can be changed; nil selects the default. False if m has none
 * of that name. Raises, with nothing changed, for values that the constructor would refuse. (lattention.c) */
bool lheed_set_setting(lua_State *L, heed_module *m, const char *name, int idx);

/* The taps of an attention: what it computed on the way. (ltaps.c) */
#define X(name) +1
enum { LHEED_TAPS = 0 HEED_ATTENTION_TAPS_LIST(X) };
#undef X
typedef struct lheed_tap_boxes {
  heed_tensor **box[LHEED_TAPS];
  int first; /* stack slot */
} lheed_tap_boxes;
/** Reads the options need_weights (a boolean, or a table {"weights", heads = {3}, queries = {-1, -1}}) and
 * need_lse. Returns whether taps are requested; *chosen is then `wanted`, or NULL for all but lse. `names`:
 * those that the function computes besides lse, ended by NULL. May push memory for *wanted, which must stay
 * on the stack. (ltaps.c) */
bool lheed_read_wanted(lua_State *L, int need_weights, int need_lse, const char *function,
                       const char *const *names, heed_taps_wanted *wanted, const heed_taps_wanted **chosen);
extern const char *const lheed_module_taps[]; /* what modules compute */
/** Pushes an empty box for each tap. */
void lheed_push_tap_boxes(lua_State *L, lheed_tap_boxes *taps);
/** Moves the taps in *found into the boxes, and pushes a table of them by name. */
void lheed_push_taps(lua_State *L, const lheed_tap_boxes *taps, const heed_attention_taps *found);

/** The option requires_grad of functions that make tensors; raises if it is true and they are not float32.
 * (lgrad.c) */
bool lheed_opt_leaf(lua_State *L, int idx, const char *function, heed_dtype dtype);
/** Ends a function whose result, the tensor on top of the stack, is new: with `leaf`, it wants a gradient. */
int lheed_return_leaf(lua_State *L, bool leaf);
/** Pushes the gradient of the tensor at 1, or nil; sets it to the value at 3. (lgrad.c) */
void lheed_push_grad(lua_State *L);
/** If y was recorded, its grad_fn gets that name, a string constant: y is the result of several operations
 * that are one in PyTorch. */
void lheed_set_name(heed_tensor *y, const char *name);
void lheed_set_grad(lua_State *L);
/** x.requires_grad = the value at 3, of the tensor at 1. */
void lheed_set_requires_grad(lua_State *L);
/** Pushes the field or method of the tensor at 1 that the string at 2 names, or raises. Upvalue 2 of the
 * running function: the methods. (lproperties.c) */
int lheed_read_property(lua_State *L);

/** heed.ipairs; also the metamethod __ipairs, which 5.2 alone needs for userdata. (lobject.c) */
int lheed_ipairs(lua_State *L);

/* ---- x[{…}] with more than integers and slices (llist.c) ---- */

/** Whether the value at idx is an index: an integer, or a 0-dimensional int64 tensor. Raises for other
 * numbers. */
bool lheed_is_index(lua_State *L, int idx, int64_t *i);
/** Reads the slice in the table on top of the stack to part (first, last, step) and returns the number of its
 * elements: 0, 2 or 3. Messages call it "the slice of <noun> <number>". */
int lheed_read_slice(lua_State *L, const char *noun, int number, int64_t part[3]);

/* The elements of a list that stand for a new dimension, and for all dimensions that it does not mention. */
#define LHEED_NEWAXIS  "newaxis"
#define LHEED_ELLIPSIS "..."

/* What the list selects: a view of x, and tensors of indices for some of its dimensions. */
typedef struct lheed_list {
  struct heed_tensor *view;
  int count;
  int slot[HEED_MAX_DIMS];                     /* the stack slots of the tensors; 0: all of the dimension */
  int item[HEED_MAX_DIMS], dim[HEED_MAX_DIMS]; /* as in heed__index_names */
  struct heed__part *part;                     /* set by the caller: where the view is noted, or NULL */
} lheed_list;
/** Reads the list at stack slot 2 for the tensor at slot 1, of which it makes *view, on the caller's stack.
 * Pushes the elements of the list, and allocates. */
void lheed_read_list(lua_State *L, lheed_list *list, struct heed_tensor *view);

/* ---- Modules ---- */

/** Makes the box on top of the stack, once it is set, the only one of its module, so that m.W_query ==
 * m.W_query. (lmodule.c) */
void lheed_remember_module(lua_State *L);
/** Whether modules of that class may lack the entry or setting `name`, which then reads as nil: the bias of a
 * Linear. (lconstruct.c) */
bool lheed_is_optional_entry(const char *class, const char *name);

/* ---- What is written in Lua (llate.c) ---- */

/** Replaces the library, on top of the stack, by what heed's own files see as heed.core. */
void lheed_open_late(lua_State *L);

/* ---- The parts ---- */

/* In the order in which lopen.c opens them; the first ones are what the others build on. A new part is a line
 * here. */
#define LHEED_PARTS(X)                                                                                       \
  X(boxes)        /* lbox.c: userdata around C objects; the type of tensors */                               \
  X(frames)       /* lheed.c: core.frame */                                                                  \
  X(errors)       /* lerror.c: core.raise, core.check_cancel */                                              \
  X(object)       /* lobject.c: objects written in Lua, heed.pairs, heed.ipairs */                           \
  X(size)         /* lsize.c: heed.Size */                                                                   \
  X(tensor)       /* ltensor.c: creating tensors, their properties, conversion, bytes */                     \
  X(nested)       /* lnested.c: nested tables to tensors and back */                                         \
  X(ops)          /* lops.c: arithmetic, comparison, reduction, products */                                  \
  X(arithmetic)   /* larithmetic.c: those with further options */                                            \
  X(constants)    /* lconstants.c: heed.pi, heed.float32, … */                                             \
  X(views)        /* lviews.c: operations on shapes */                                                       \
  X(indices)      /* lindices.c: operations that take indices */                                             \
  X(mask)         /* lmask.c: masks as values */                                                             \
  X(redirect)     /* lredirect.c: attention in Lua */                                                        \
  X(layers)       /* llayers.c: linear maps, normalization, attention */                                     \
  X(stateful)     /* lstateful.c: linear attention, causal convolution */                                    \
  X(composed)     /* llate.c: operations that are written in Lua */                                          \
  X(rope)         /* lrope.c: rotary positions, ALiBi slopes */                                              \
  X(kept)         /* lkept.c: values that C objects hold */                                                  \
  X(grad)         /* lgrad.c: recording, and gradients of tensors */                                         \
  X(print)        /* lprint.c: tostring, concatenation */                                                    \
  X(random)       /* lrandom.c: seeds, Generator, random tensors */                                          \
  X(info)         /* linfo.c: threads, the clock, heed.info */                                               \
  X(limit)        /* llimit.c: heed.limit */                                                                 \
  X(io)           /* lio.c: files, for heed's own Lua files */                                               \
  X(modules)      /* lmodule.c: boxes of built-in modules, and what heed.nn builds on */                     \
  X(constructors) /* lconstruct.c: nn.Linear and the other classes */                                        \
  X(fields)       /* lfields.c: fields of modules */                                                         \
  X(own)          /* lown.c: modules in Lua as parts of those in C */                                        \
  X(forward)      /* lforward.c: calling modules */                                                          \
  X(cache)        /* lcache.c: heed.Cache */                                                                 \
  X(steps)        /* lsteps.c: heed.Steps */                                                                 \
  X(state_dict)   /* lstatedict.c: what state_dict builds on */                                              \
  X(index)        /* lindex.c: x[…], x:iter() */                                                           \
  LHEED_MORE_PARTS(X)
#if HEED_MINIMAL
#define LHEED_MORE_PARTS(X)
#else
#define LHEED_MORE_PARTS(X)                                                                                  \
  X(losses)     /* llosses.c: cross entropy */                                                               \
  X(backward)   /* lbackward.c: backward passes, hooks, functions with a gradient */                         \
  X(optim)      /* loptim.c: steps of optimisers, norms of gradients */                                      \
  X(gguf)       /* lgguf.c: metadata of GGUF files */                                                        \
  X(text)       /* ltext.c: Unicode, for heed's own Lua files */                                             \
  X(vocabulary) /* lvocabulary.c: the pieces of a tokenizer */                                               \
  X(tokenizer)  /* ltokenizer.c: tokenizers in C */
#endif

#define X(name) void lheed_open_##name(lua_State *L);
LHEED_PARTS(X)
#undef X

#endif
