/* Positions in attention: rotary embeddings, and the slopes of ALiBi. */
#include <string.h>

#include "../attention/attention.h"
#include "lheed.h"

static const char *const option_names[] = {"base", "style", "dims", "scaling", NULL};
static const char *const scaling_names[] = {"type",
                                            "factor",
                                            "original_context_length",
                                            "beta_fast",
                                            "beta_slow",
                                            "attention_factor",
                                            "low_freq_factor",
                                            "high_freq_factor",
                                            "factors",
                                            NULL};

static const char *const scaling_types[] = {[HEED_ROPE_LINEAR] = "linear",
                                            [HEED_ROPE_NTK] = "ntk",
                                            [HEED_ROPE_YARN] = "yarn",
                                            [HEED_ROPE_LLAMA3] = "llama3",
                                            [HEED_ROPE_FACTORS] = "factors"};

/* ---- Reading ---- */

/* Replaces the table on top of the stack by the values of its names; raises if it has others. */
static void spread_values(lua_State *L, const char *function, const char *name, const char *const *names) {
  const int table = lua_gettop(L);
  /* a table with an array part is not taken for options */
  if (lheed_trailing_options(L, function, table, names) == table)
    lheed_error(L, "%s: %s is a list; it must be a table of options", function, name);
}

static bool read_style(lua_State *L, int idx, const char *function) {
  const char *style = lua_type(L, idx) == LUA_TSTRING ? lua_tostring(L, idx)
                      : lua_isnil(L, idx)             ? "half"
                                                      : "";
  const bool interleaved = strcmp(style, "interleaved") == 0;
  if (!interleaved && strcmp(style, "half") != 0)
    lheed_bad_argument(L, idx, function, "style", "'half' or 'interleaved'");
  return interleaved;
}

static heed_rope_scaling read_type(lua_State *L, int idx, const char *function) {
  const char *type = lua_type(L, idx) == LUA_TSTRING ? lua_tostring(L, idx) : "";
  for (int i = HEED_ROPE_LINEAR; i <= HEED_ROPE_FACTORS; i++)
    if (strcmp(type, scaling_types[i]) == 0) return (heed_rope_scaling)i;
  lheed_bad_argument(L, idx, function, "type of scaling", "'linear', 'ntk', 'yarn', 'llama3' or 'factors'");
  return HEED_ROPE_UNSCALED;
}

static void read_factors(lua_State *L, int idx, const char *function, heed_rope_config *c) {
  if (lua_type(L, idx) != LUA_TTABLE)
    lheed_bad_argument(L, idx, function, "factors of scaling", "a list of numbers, one for each pair");
  const size_t count = lua_rawlen(L, idx);
  if (count > HEED_ROPE_PAIRS)
    lheed_error(L, "%s: factors has %d elements; it must have one for each pair, and at most %d", function,
                (int)count, HEED_ROPE_PAIRS);
  for (size_t i = 0; i < count; i++) {
    lua_rawgeti(L, idx, (lua_Integer)i + 1);
    c->factors[i] = (float)lheed_number(L, -1, function, "an element of factors");
    lua_pop(L, 1);
  }
}

static void read_scaling(lua_State *L, int idx, const char *function, heed_rope_config *c) {
  if (lua_isnil(L, idx)) return;
  if (lua_type(L, idx) != LUA_TTABLE) lheed_bad_argument(L, idx, function, "scaling", "a table");
  luaL_checkstack(L, 16, function);
  lua_pushvalue(L, idx);
  const int first = lua_gettop(L);
  spread_values(L, function, "scaling", scaling_names);
  c->scaling = read_type(L, first, function);
  c->factor = c->scaling == HEED_ROPE_FACTORS
                  ? lheed_opt_number(L, first + 1, function, "factor of scaling", c->factor)
                  : lheed_number(L, first + 1, function, "factor of scaling");
  c->original_context_length = lheed_opt_integer(L, first + 2, function, scaling_names[2], 0);
  double *const numbers[] = {&c->beta_fast, &c->beta_slow, &c->attention_factor, &c->low_freq_factor,
                             &c->high_freq_factor};
  for (int i = 0; i < 5; i++)
    *numbers[i] = lheed_opt_number(L, first + 3 + i, function, scaling_names[3 + i], *numbers[i]);
  if (c->scaling == HEED_ROPE_FACTORS) read_factors(L, first + 8, function, c);
  lua_settop(L, first - 1);
}

/* Reads the options in the slots first, first + 1…. */
static void read_options(lua_State *L, int first, const char *function, heed_rope_config *c) {
  heed_rope_config_init(c, sizeof *c);
  c->base = lheed_opt_number(L, first, function, "base", c->base);
  c->interleaved = read_style(L, first + 1, function);
  c->dims = lheed_opt_integer(L, first + 2, function, "dims", 0);
  if (c->dims == 0 && !lua_isnil(L, first + 2))
    lheed_error(L, "%s: dims is 0; it must be even, from 2 to the size of a head", function);
  read_scaling(L, first + 3, function, c);
}

void lheed_rope_config(lua_State *L, int idx, const char *function, const char *name, heed_rope_config *c) {
  if (lua_type(L, idx) != LUA_TTABLE) lheed_bad_argument(L, idx, function, name, "a table of options");
  luaL_checkstack(L, 16, function);
  lua_pushvalue(L, idx);
  const int first = lua_gettop(L);
  spread_values(L, function, name, option_names);
  read_options(L, first, function, c);
  lua_settop(L, first - 1);
}

/* ---- Pushing ---- */

static void push_scaling(lua_State *L, const heed_rope_config *c) {
  lua_createtable(L, 0, 6);
  lheed_set_string(L, "type", scaling_types[c->scaling]);
  lheed_set_number(L, "factor", c->factor);
  if (c->original_context_length > 0)
    lheed_set_integer(L, "original_context_length", c->original_context_length);
  if (c->scaling == HEED_ROPE_YARN) {
    lheed_set_number(L, "beta_fast", c->beta_fast);
    lheed_set_number(L, "beta_slow", c->beta_slow);
    if (c->attention_factor != 0) lheed_set_number(L, "attention_factor", c->attention_factor);
  } else if (c->scaling == HEED_ROPE_FACTORS) {
    if (c->attention_factor != 0) lheed_set_number(L, "attention_factor", c->attention_factor);
    const int count = (int)heed__rope_factors(c);
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
      lua_pushnumber(L, (lua_Number)c->factors[i]);
      lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "factors");
  } else if (c->scaling == HEED_ROPE_LLAMA3) {
    lheed_set_number(L, "low_freq_factor", c->low_freq_factor);
    lheed_set_number(L, "high_freq_factor", c->high_freq_factor);
  }
}

void lheed_push_rope(lua_State *L, const heed_rope_config *c) {
  lua_createtable(L, 0, 4);
  lheed_set_number(L, "base", c->base);
  lheed_set_string(L, "style", c->interleaved ? "interleaved" : "half");
  if (c->dims > 0) lheed_set_integer(L, "dims", c->dims);
  if (c->scaling == HEED_ROPE_UNSCALED) return;
  push_scaling(L, c);
  lua_setfield(L, -2, "scaling");
}

/* ---- Functions ---- */

/* rope(x, positions, base = 10000, style = "half", dims, scaling) */
static int op_rope(lua_State *L) {
  static const char *const names[] = {"positions", "base", "style", "dims", "scaling", NULL};
  heed_rope_config config;
  lheed_options(L, "rope", 2, names);
  read_options(L, 3, "rope", &config);
  lheed_opt_indices(L, 2, "rope", "positions");
  heed_tensor **out = lheed_push_tensor(L);
  const heed_tensor *x = lheed_tensor(L, 1, "rope", "x");
  const heed_tensor *positions = lheed_opt_tensor(L, 2, "rope", "positions");
  LHEED_TRY(L, heed_rope(lheed_get(L)->context, x, positions, &config, out));
  return lheed_return(L, 1);
}

/* alibi_slopes(num_heads) */
static int op_alibi_slopes(lua_State *L) {
  lheed_arguments(L, "alibi_slopes", 1);
  heed_tensor **out = lheed_push_tensor(L);
  const int64_t num_heads = lheed_integer(L, 1, "alibi_slopes", "num_heads");
  LHEED_TRY(L, heed_alibi_slopes(lheed_get(L)->context, num_heads, out));
  return lheed_return(L, 1);
}

void lheed_open_rope(lua_State *L) {
  static const luaL_Reg methods[] = {{"rope", op_rope}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"alibi_slopes", op_alibi_slopes}, {NULL, NULL}};
  lheed_add_methods(L, methods, false);
  lheed_add(L, NULL, functions);
}
