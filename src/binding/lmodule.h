/* Boxes of built-in modules, for the files of the binding that work with modules. (lmodule.c) */
#ifndef LHEED_MODULE_H
#define LHEED_MODULE_H

#include "../nn/nn.h"
#include "lheed.h"

/** The module at idx; NULL for anything else and for one that was released. */
heed_module *lheed_test_module(lua_State *L, int idx);
/** The module at idx; raises for anything else. */
heed_module *lheed_check_module(lua_State *L, int idx, const char *function);
/** The module at index 1, the self of a method; raises for anything else. */
heed_module *lheed_self(lua_State *L, const char *function);

/** Adds methods that all built-in modules share. Those in Lua are added when the first of them is used. */
void lheed_add_module_methods(lua_State *L, const luaL_Reg *methods);
/** Pushes the table of these methods. */
void lheed_push_module_methods(lua_State *L);

/* A copy of the name of a module's entry: finalizers may change the module. */
typedef char lheed_entry_name[sizeof((heed__slot *)0)->name];
/** Copies the name of entry i, from 1; false if i is out of range. */
bool lheed_read_entry_name(const heed_module *m, int i, lheed_entry_name name);
/** The number of the entry, from 1; 0 if there is none of that name. */
int lheed_entry_index(const heed_module *m, const char *name);
/** Pushes the entry `name` of m, which the stack holds: the box of a module, or a tensor that shares the
 * elements of a parameter. Creating a box may run finalizers, which may change the module: so `name` must not
 * point into it, and is looked up again afterwards. If there is no such entry, or no longer, it pushes
 * nothing and returns false. */
bool lheed_push_entry(lua_State *L, const heed_module *m, const char *name);
/** Pushes a part that the caller keeps alive: its box, or the module in Lua that it stands for. */
void lheed_push_part(lua_State *L, heed_module *part);

/* Modules written in Lua as parts of modules in C (lown.c) */

/** Whether a part stands for a module in Lua. */
bool lheed_is_own(lua_State *L, const heed_module *part);
/** Pushes the module in Lua that such a part stands for; false, and nothing, if it no longer exists. */
bool lheed_push_own(lua_State *L, const heed_module *part);
/** Keeps the value at an index alive as long as the box at another, in place of what had that name; nil:
 * nothing. */
void lheed_anchor(lua_State *L, int box, const char *name, int value);
/** m[name] = part, for the module m in the box at an index, which then keeps the value at another index
 * alive. Raises, with nothing changed. */
void lheed_set_part(lua_State *L, int box, const char *name, heed_module *part, int value);
/** heed_module_forward, where parts may be modules in Lua. Raises their errors, and its own. */
void lheed_call_forward(lua_State *L, heed_module *m, const heed_tensor *x,
                        const heed_forward_options *options, heed_tensor **out, heed_attention_taps *taps);

/* The options of a forward, by name; need_weights is left to the caller. (lforward.c) */
#define LHEED_FORWARD_NAMES                                                                                  \
  "attn_mask", "key_padding_mask", "need_weights", "generator", "kv_lengths", "key", "value", "cache",       \
      "need_lse", "lengths", "key_lengths"
enum { LHEED_NEED_WEIGHTS = 2, LHEED_NEED_LSE = 8, LHEED_FORWARD_OPTIONS = 11 };
/** lheed_options for them; lengths become tensors. Raises for a second tensor by position. Allocates. */
void lheed_forward_arguments(lua_State *L, int first, const char *function, const char *const *names);
/** Those in the slots from `first` on. Allocates nothing: rule 2 begins here. */
heed_forward_options lheed_forward_options(lua_State *L, int first, const char *function);

#endif
