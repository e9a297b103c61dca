/* The parts of heed that are written in Lua are compiled when they are first used: otherwise that would be
 * nine tenths of the time to open and close a Lua state with heed, and most scripts need few of them. */
#include <string.h>

#include "lheed.h"

/* Registry key: whether core.open has added everything. */
static const char opened_key = 'o';

/* ---- Functions ---- */

/* Stands for a function that is written in Lua. Upvalues 2 and 3: its file and name there. */
static int late_call(lua_State *L) {
  lheed_require(L, luaL_checkstring(L, lua_upvalueindex(2)));
  lua_getfield(L, -1, luaL_checkstring(L, lua_upvalueindex(3)));
  lua_replace(L, -2);
  lua_insert(L, 1);
  return lheed_call_all(L);
}

static void push_function(lua_State *L, const char *file, const char *name) {
  lheed_push_state(L);
  lua_pushstring(L, file);
  lua_pushstring(L, name);
  lua_pushcclosure(L, late_call, 3);
}

/* Adds such a function to the table on top of the stack. */
static void add_function(lua_State *L, const char *file, const char *name) {
  push_function(L, file, name);
  lua_setfield(L, -2, name);
}

/* Adds the operations that are written in Lua to the library and, unless they are free functions, as methods
 * of tensors. */
void lheed_open_composed(lua_State *L) {
  static const struct {
    const char *name, *file;
    bool is_method;
  } composed[] = {
#define OP_LUA(name, file)      {#name, "heed.ops." #file, true},
#define OP_LUA_FREE(name, file) {#name, "heed.ops." #file, false},
#include "../ops/ops.def"
#if !HEED_MINIMAL
    {"backward", "heed.autograd.passes", true},
    {"backward_steps", "heed.autograd.passes", true},
    {"register_hook", "heed.autograd.passes", true},
#endif
  };
  for (size_t i = 0; i < sizeof composed / sizeof *composed; i++) {
    push_function(L, composed[i].file, composed[i].name);
    lua_pushvalue(L, -1);
    lua_setfield(L, -4, composed[i].name);
    if (composed[i].is_method)
      lua_setfield(L, -2, composed[i].name);
    else
      lua_pop(L, 1);
  }
}

/* ---- Fields of heed and of heed.nn ---- */

/* A field and its file, which returns the value itself, or a table of several by name. */
typedef struct late_field {
  const char *name, *file;
} late_field;

/* heed.utils and other tables. */
static const late_field tables[] = {
#if !HEED_MINIMAL
    {"optim", "heed.optim"},
    {"utils", "heed.utils"},
    {"models", "heed.models"},
    {"tokenizers", "heed.tokenizers"},
    {"autograd", "heed.autograd"},
#endif
    {"no_grad", "heed.autograd.mode"},
    {"enable_grad", "heed.autograd.mode"},
    {"inference_mode", "heed.autograd.mode"}};
#define TABLES (sizeof tables / sizeof *tables)

/* The classes of heed.nn. */
static const late_field classes[] = {{"Module", "heed.nn.module"},
                                     {"Sequential", "heed.nn.sequential"},
                                     {"ModuleList", "heed.nn.module_list"},
                                     {"ModuleDict", "heed.nn.module_dict"},
                                     {"ParameterList", "heed.nn.parameters"},
                                     {"ParameterDict", "heed.nn.parameters"},
                                     {"Residual", "heed.nn.residual"},
                                     {"Identity", "heed.nn.shapes"},
                                     {"Flatten", "heed.nn.shapes"},
                                     {"Unflatten", "heed.nn.shapes"},
                                     {"Tanh", "heed.nn.activations"},
                                     {"Sigmoid", "heed.nn.activations"},
                                     {"LogSigmoid", "heed.nn.activations"},
                                     {"Softmax", "heed.nn.activations"},
                                     {"LogSoftmax", "heed.nn.activations"},
                                     {"Softplus", "heed.nn.activations"},
                                     {"LeakyReLU", "heed.nn.activations"},
                                     {"ELU", "heed.nn.activations"},
                                     {"GLU", "heed.nn.activations"},
                                     {"SwiGLU", "heed.nn.swiglu"},
                                     {"BatchNorm1d", "heed.nn.batch_norm"},
                                     {"GatedDeltaNet", "heed.nn.gated_delta_net"},
                                     {"MultiheadAttention", "heed.nn.multihead"},
                                     {"Transformer", "heed.nn.transformer"},
                                     {"TransformerEncoder", "heed.nn.encoder"},
                                     {"TransformerEncoderLayer", "heed.nn.encoder"},
                                     {"TransformerDecoder", "heed.nn.decoder"},
                                     {"TransformerDecoderLayer", "heed.nn.decoder"},
#if !HEED_MINIMAL
                                     {"CrossEntropyLoss", "heed.nn.losses"},
                                     {"NLLLoss", "heed.nn.losses"},
                                     {"MSELoss", "heed.nn.losses"},
                                     {"L1Loss", "heed.nn.losses"},
                                     {"SmoothL1Loss", "heed.nn.losses"},
                                     {"HuberLoss", "heed.nn.losses"},
                                     {"BCELoss", "heed.nn.losses"},
                                     {"BCEWithLogitsLoss", "heed.nn.losses"},
                                     {"KLDivLoss", "heed.nn.losses"},
#endif
                                     {"functional", "heed.nn.functional"},
                                     {"init", "heed.nn.initializers"}};
#define CLASSES (sizeof classes / sizeof *classes)

/* Upvalue 2 of the metamethods: the names that were neither read nor set yet → their files. Upvalue 3: the
 * table's name. */

/* Removes the name at idx from that table, and pushes its file, or nil. */
static int take_file(lua_State *L, int idx) {
  luaL_checktype(L, lua_upvalueindex(2), LUA_TTABLE); /* the debug library can change an upvalue */
  lua_pushvalue(L, idx);
  const int type = lua_rawget(L, lua_upvalueindex(2));
  if (type != LUA_TSTRING) return type;
  lua_pushvalue(L, idx);
  lua_pushnil(L);
  lua_rawset(L, lua_upvalueindex(2));
  return type;
}

/* nn.Module, read for the first time. */
static int late_index(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 2);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(2)) != LUA_TSTRING)
    return lheed_unknown_name(L, luaL_checkstring(L, lua_upvalueindex(3)));
  /* This call and the next may raise; the name is removed last, so that it can be read again. */
  lheed_require(L, lua_tostring(L, 3));
  if (lua_type(L, 4) == LUA_TTABLE) { /* of several? */
    lua_pushvalue(L, 2);
    if (lua_rawget(L, 4) != LUA_TNIL) lua_replace(L, 4);
    lua_settop(L, 4);
  }
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 4);
  lua_rawset(L, 1);
  take_file(L, 2);
  lua_pushvalue(L, 4);
  return 1;
}

/* nn.Module = …: a value that a script sets, or nil, is not replaced later. */
static int late_newindex(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 3);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_rawset(L, 1); /* may fail: the name is removed last */
  take_file(L, 2);
  return 0;
}

static int next_field(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 2);
  if (lua_next(L, 1)) return 2;
  lua_pushnil(L);
  return 1;
}

/* Reads all fields that are left from the table on top of the stack. `left` is the index of upvalue 2. */
static void read_all(lua_State *L, int left) {
  const int table = lua_gettop(L);
  luaL_checktype(L, left, LUA_TTABLE);
  lua_pushnil(L);
  while (lua_next(L, left)) { /* reading a field removes it there, which lua_next allows */
    lua_pop(L, 1);
    lua_pushvalue(L, -1);
    lua_gettable(L, table);
    lua_pop(L, 1);
  }
}

/* pairs(heed) and pairs(nn): these fields, too. */
static int late_pairs(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  read_all(L, lua_upvalueindex(2));
  lua_pushcfunction(L, next_field);
  lua_pushvalue(L, 1);
  lua_pushnil(L);
  return 3;
}

/* Adds the fields to the table on top of the stack, whose name is `owner`; other names are errors. */
static void add_fields(lua_State *L, const char *owner, const late_field *fields, size_t count) {
  static const luaL_Reg meta[] = {
      {"__index", late_index}, {"__newindex", late_newindex}, {"__pairs", late_pairs}, {NULL, NULL}};
  lua_createtable(L, 0, 3);
  lua_createtable(L, 0, (int)count);
  for (size_t i = 0; i < count; i++) {
    lua_pushstring(L, fields[i].file);
    lua_setfield(L, -2, fields[i].name);
  }
  for (const luaL_Reg *m = meta; m->name; m++) {
    lheed_push_state(L);
    lua_pushvalue(L, -2);
    lua_pushstring(L, owner);
    lua_pushcclosure(L, m->func, 3);
    lua_setfield(L, -3, m->name);
  }
  lua_pushvalue(L, -2);
  lua_setmetatable(L, -4);
  if (!LHEED_HAS_PAIRS) { /* for pairs */
    lua_pushvalue(L, -3);
    read_all(L, lua_gettop(L) - 1);
    lua_pop(L, 1);
  }
  lua_pop(L, 2);
}

/* ---- Opening ---- */

/* core.open(require, version): the library, with the parts that are written in Lua, which are of that
 * version. If memory runs out, the next call starts again. */
static int open_late(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  const char *version = luaL_optstring(L, 2, "unknown");
  if (strcmp(version, HEED_VERSION) != 0)
    return luaL_error(L,
                      "heed's Lua files are of version %s, and its module is of version %s; package.path and "
                      "package.cpath must lead to the same version",
                      version, HEED_VERSION);
  luaL_checktype(L, lua_upvalueindex(2), LUA_TTABLE); /* the debug library can change an upvalue */
  lua_settop(L, 1);
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &opened_key) != LUA_TNIL) {
    lua_pushvalue(L, lua_upvalueindex(2));
    return 1;
  }
  lua_pushvalue(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &lheed_require_key);
  lua_pushvalue(L, lua_upvalueindex(2));
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &lheed_library_key);
  add_function(L, "heed.files", "load");
  add_function(L, "heed.files", "save");
  lua_getfield(L, -1, "nn");
  add_function(L, "heed.nn.entries", "is_module");
  lua_createtable(L, 0, 3);
  add_function(L, "heed.nn.utils", "skip_init");
  add_function(L, "heed.nn.utils", "parameters_to_vector");
  add_function(L, "heed.nn.utils", "vector_to_parameters");
#if !HEED_MINIMAL
  add_function(L, "heed.nn.clip_grad", "clip_grad_norm_");
  add_function(L, "heed.nn.clip_grad", "clip_grad_value_");
  add_function(L, "heed.nn.clip_grad", "get_total_norm");
#endif
  lheed_guard(L, "heed.nn.utils");
  lua_setfield(L, -2, "utils");
  add_fields(L, "heed.nn", classes, CLASSES);
  lua_pop(L, 1);
  add_fields(L, "heed", tables, TABLES);
  lua_pushboolean(L, true);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &opened_key);
  return 1;
}

/* heed.core, which heed's own files use: functions that the library does not show, and copies of some that it
 * does, so that a script that replaces these in the library does not affect heed's own files. */
static const char *const own[] = {"check_cancel", "files", "frame", "held", "modules",
                                  "object",       "pair",  "raise", "text", "tokenizer"};
static const char *const used[] = {"Generator",
                                   "alibi_slopes",
                                   "arange",
                                   "attention_merge",
                                   "cat",
                                   "clock",
                                   "default_generator",
                                   "empty",
                                   "eye",
                                   "from_string",
                                   "full",
                                   "ipairs",
                                   "is_grad_enabled",
                                   "set_grad_enabled",
                                   "limit",
                                   "linspace",
                                   "ones",
                                   "pairs",
                                   "rand",
                                   "randint",
                                   "randperm",
                                   "range",
                                   "rope",
                                   "stack",
                                   "tensor",
                                   "zeros"};
static const char *const built_in[] = {"Dropout", "LayerNorm", "Linear", "Parameter", "RMSNorm"}; /* of nn */

void lheed_open_late(lua_State *L) {
  lheed_add_transparent(L, late_call);
  lua_createtable(L, 0, 32);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    lua_getfield(L, -2, own[i]);
    lua_setfield(L, -2, own[i]);
    lua_pushnil(L);
    lua_setfield(L, -3, own[i]);
  }
  for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
    lua_getfield(L, -2, used[i]);
    lua_setfield(L, -2, used[i]);
  }
  lua_createtable(L, 0, 5); /* core.nn */
  lua_getfield(L, -3, "nn");
  for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++) {
    lua_getfield(L, -1, built_in[i]);
    lua_setfield(L, -3, built_in[i]);
  }
  lua_pop(L, 1);
  lua_setfield(L, -2, "nn");
  lheed_push_state(L);
  lua_pushvalue(L, -3);
  lua_pushcclosure(L, open_late, 2);
  lua_setfield(L, -2, "open");
  lua_replace(L, -2);
}
