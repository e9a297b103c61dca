/* Constructors of the built-in modules: each class is a row of one table, which is all that it needs in the
 * binding. Arguments are in the order of PyTorch or of the notebooks, or by name in one table. */
#include <float.h>
#include <stddef.h>
#include <string.h>

#include "lheed.h"

typedef struct sizes {
  int count;
  int64_t size[HEED_MAX_DIMS];
} sizes;

typedef struct arguments {
  heed_attention_config config;
  heed_rope_config rope; /* config points to it if it is set */
  bool bias, affine, approximate;
  double p, eps;
  int64_t count, padding_index;
  sizes shape;
  heed_generator *generator;
} arguments;

typedef enum argument_kind {
  INTEGER,
  NUMBER,
  FLAG,
  SCALE,
  DIMENSION,
  GENERATOR,
  SYNONYM,
  INDEX,       /* from 1, or negative */
  EPSILON,     /* a number, 0 or more */
  SIZES,       /* an integer, or a table of them */
  APPROXIMATE, /* "none" or "tanh" */
  WINDOW,
  ROPE,
  QK_NORM /* a boolean, or {eps =} */
} argument_kind;

typedef struct constructor_parameter {
  const char *name;
  argument_kind kind;
  bool required;
  size_t offset; /* in arguments; of a SYNONYM the index of the other parameter */
} constructor_parameter;

#define MAX_PARAMETERS 24

typedef struct constructor {
  const char *name;
  heed_status (*make)(heed_context *, const arguments *, heed_module **);
  const char *optional[5]; /* entries and settings that may be missing: they read as nil */
  constructor_parameter parameters[MAX_PARAMETERS + 1]; /* in the order of positions, ended by a NULL name */
} constructor;

static heed_status make_linear(heed_context *ctx, const arguments *a, heed_module **out) {
  return heed_linear_new(ctx, a->generator, a->config.d_in, a->config.d_out, a->bias, out);
}

static heed_status make_dropout(heed_context *ctx, const arguments *a, heed_module **out) {
  return heed_dropout_new(ctx, a->p, out);
}

static heed_status make_embedding(heed_context *ctx, const arguments *a, heed_module **out) {
  return heed_embedding_new(ctx, a->generator, a->count, a->config.d_out, a->padding_index, out);
}

static heed_status make_layer_norm(heed_context *ctx, const arguments *a, heed_module **out) {
  const double eps = a->eps < 0 ? 1e-5 : a->eps;
  return heed_layer_norm_new(ctx, a->shape.count, a->shape.size, eps, a->affine, a->bias, out);
}

static heed_status make_rms_norm(heed_context *ctx, const arguments *a, heed_module **out) {
  return heed_rms_norm_new(ctx, a->shape.count, a->shape.size, a->eps, a->affine, out);
}

static heed_status make_gelu(heed_context *ctx, const arguments *a, heed_module **out) {
  return heed_gelu_new(ctx, a->approximate, out);
}

static heed_status make_silu(heed_context *ctx, const arguments *a, heed_module **out) {
  (void)a;
  return heed_silu_new(ctx, out);
}

static heed_status make_relu(heed_context *ctx, const arguments *a, heed_module **out) {
  (void)a;
  return heed_relu_new(ctx, out);
}

#define ATTENTION(name)                                                                                      \
  static heed_status make_##name(heed_context *ctx, const arguments *a, heed_module **out) {                 \
    return heed_##name##_new(ctx, a->generator, &a->config, out);                                            \
  }
ATTENTION(self_attention)
ATTENTION(causal_attention)
ATTENTION(multi_head_attention_wrapper)
ATTENTION(multi_head_attention)
#undef ATTENTION

/* clang-format off */
#define AT(field)         offsetof(arguments, field)
#define D_IN              {"d_in", INTEGER, true, AT(config.d_in)}
#define D_OUT             {"d_out", INTEGER, true, AT(config.d_out)}
#define CONTEXT_LENGTH    {"context_length", INTEGER, true, AT(config.context_length)}
#define ATTENTION_DROPOUT {"dropout", NUMBER, true, AT(config.dropout)}
#define NUM_HEADS         {"num_heads", INTEGER, true, AT(config.num_heads)}
#define QKV_BIAS          {"qkv_bias", FLAG, false, AT(config.qkv_bias)}
#define SOFTMAX_DIM       {"softmax_dim", DIMENSION, false, AT(config.softmax_dim)}
#define DRAWN_FROM        {"generator", GENERATOR, false, AT(generator)}
#define NORMALIZED_SHAPE  {"normalized_shape", SIZES, true, AT(shape)}
#define EPS               {"eps", EPSILON, false, AT(eps)}
#define AFFINE            {"elementwise_affine", FLAG, false, AT(affine)}

static const constructor constructors[] = {
    {"Linear", make_linear, {"bias", "weight_scale"},
     {D_IN, D_OUT, {"bias", FLAG, false, AT(bias)}, DRAWN_FROM,
      {"in_features", SYNONYM, false, 0}, {"out_features", SYNONYM, false, 1}}},
    {"Dropout", make_dropout, {NULL}, {{"p", NUMBER, false, AT(p)}}},
    {"Embedding", make_embedding, {"padding_idx"},
     {{"num_embeddings", INTEGER, true, AT(count)}, {"embedding_dim", INTEGER, true, AT(config.d_out)},
      {"padding_idx", INDEX, false, AT(padding_index)}, DRAWN_FROM}},
    {"LayerNorm", make_layer_norm, {"weight", "bias"},
     {NORMALIZED_SHAPE, EPS, AFFINE, {"bias", FLAG, false, AT(bias)}}},
    {"RMSNorm", make_rms_norm, {"weight", "eps"}, {NORMALIZED_SHAPE, EPS, AFFINE}},
    {"GELU", make_gelu, {NULL}, {{"approximate", APPROXIMATE, false, AT(approximate)}}},
    {"SiLU", make_silu, {NULL}, {{0}}},
    {"ReLU", make_relu, {NULL}, {{0}}},
    {"SelfAttention", make_self_attention, {NULL}, {D_IN, D_OUT, QKV_BIAS, DRAWN_FROM}},
    {"CausalAttention", make_causal_attention, {NULL},
     {D_IN, D_OUT, CONTEXT_LENGTH, ATTENTION_DROPOUT, QKV_BIAS, SOFTMAX_DIM, DRAWN_FROM}},
    {"MultiHeadAttentionWrapper", make_multi_head_attention_wrapper, {NULL},
     {D_IN, D_OUT, CONTEXT_LENGTH, ATTENTION_DROPOUT, NUM_HEADS, QKV_BIAS, DRAWN_FROM}},
    {"MultiHeadAttention", make_multi_head_attention, {"out_proj", "sinks", "q_norm", "k_norm"},
     {D_IN, D_OUT, CONTEXT_LENGTH, ATTENTION_DROPOUT, NUM_HEADS, QKV_BIAS,
      {"causal", FLAG, false, AT(config.causal)},
      {"num_kv_heads", INTEGER, false, AT(config.num_kv_heads)},
      {"head_dim", INTEGER, false, AT(config.head_dim)},
      {"out_proj", FLAG, false, AT(config.out_proj)},
      {"out_bias", FLAG, false, AT(config.out_bias)},
      {"scale", SCALE, false, AT(config.scale)}, DRAWN_FROM,
      {"kdim", INTEGER, false, AT(config.kdim)},
      {"vdim", INTEGER, false, AT(config.vdim)},
      {"window", WINDOW, false, AT(config.window)},
      {"softcap", NUMBER, false, AT(config.softcap)},
      {"rope", ROPE, false, 0},
      {"alibi", FLAG, false, AT(config.alibi)},
      {"sinks", FLAG, false, AT(config.sinks)},
      {"qk_norm", QK_NORM, false, 0}}},
};
/* clang-format on */
#define CONSTRUCTORS (sizeof constructors / sizeof *constructors)

/* Moves the values of synonyms among the slots 1… to the slots of the parameters that they name. */
static void resolve_synonyms(lua_State *L, const constructor *c) {
  for (int i = 0; c->parameters[i].name; i++) {
    if (c->parameters[i].kind != SYNONYM || lua_isnil(L, i + 1)) continue;
    int other = (int)c->parameters[i].offset;
    if (!lua_isnil(L, other + 1))
      lheed_error(L, "%s: %s and %s are the same argument; give one of them", c->name, c->parameters[i].name,
                  c->parameters[other].name);
    lua_copy(L, i + 1, other + 1);
  }
}

/* In C, 0 is the default of optional sizes; in Lua it is nil. */
static int64_t read_one_size(lua_State *L, int idx, const char *function, const constructor_parameter *p) {
  int64_t value = lheed_integer(L, idx, function, p->name);
  if (!p->required && value < 1)
    lheed_error(L, "%s: %s is %I; it must be at least 1", function, p->name, (LUAI_UACINT)value);
  return value;
}

/* In C, 0 is the default; in Lua a scale of 0 makes all scores 0. */
static double read_scale(lua_State *L, int idx, const char *function, const constructor_parameter *p) {
  double value = lheed_number(L, idx, function, p->name);
  return value == 0 ? DBL_MIN : value;
}

/* In C, 0 means no row. */
static int64_t read_row_index(lua_State *L, int idx, const char *function, const constructor_parameter *p) {
  int64_t value = lheed_integer(L, idx, function, p->name);
  if (value == 0)
    lheed_error(L, "%s: %s is 0; it must be at least 1, or at most -1 (the last)", function, p->name);
  return value;
}

/* In C, a negative number is the default. */
static double read_epsilon(lua_State *L, int idx, const char *function, const constructor_parameter *p) {
  double value = lheed_number(L, idx, function, p->name);
  if (!(value >= 0))
    lheed_error(L, "%s: %s is %s; it must be 0 or more", function, p->name, lheed_push_float(L, value));
  return value;
}

static sizes read_sizes(lua_State *L, int idx, const char *function, const constructor_parameter *p) {
  sizes all = {.count = 1};
  if (lua_type(L, idx) == LUA_TTABLE) {
    all.count = lheed_shape(L, idx, idx, function, all.size);
  } else if (lua_type(L, idx) == LUA_TNUMBER) {
    all.size[0] = lheed_integer(L, idx, function, p->name);
  } else {
    lheed_bad_argument(L, idx, function, p->name, "an integer or a table of sizes");
  }
  return all;
}

static void read_rope(lua_State *L, int idx, const char *function, arguments *a) {
  lheed_rope_config(L, idx, function, "rope", &a->rope);
  a->config.rope = &a->rope;
}

/* Stores the value at idx in *a; nil leaves the default, unless the parameter is required. */
static void read_parameter(lua_State *L, int idx, const char *function, const constructor_parameter *p,
                           arguments *a) {
  void *field = (char *)a + p->offset;
  if (!p->required && lua_isnoneornil(L, idx)) return;
  switch (p->kind) {
  case INTEGER: *(int64_t *)field = read_one_size(L, idx, function, p); break;
  case NUMBER: *(double *)field = lheed_number(L, idx, function, p->name); break;
  case SCALE: *(double *)field = read_scale(L, idx, function, p); break;
  case FLAG: *(bool *)field = lheed_opt_boolean(L, idx, function, p->name, false); break;
  case DIMENSION: *(int *)field = lheed_dim(L, idx, function, p->name); break;
  case GENERATOR: *(heed_generator **)field = lheed_opt_generator(L, idx, function); break;
  case INDEX: *(int64_t *)field = read_row_index(L, idx, function, p); break;
  case EPSILON: *(double *)field = read_epsilon(L, idx, function, p); break;
  case SIZES: *(sizes *)field = read_sizes(L, idx, function, p); break;
  case APPROXIMATE: *(bool *)field = lheed_approximate(L, idx, function, p->name); break;
  case WINDOW: *(heed_window *)field = lheed_opt_window(L, idx, function); break;
  case ROPE: read_rope(L, idx, function, a); break;
  case QK_NORM: lheed_read_qk_norm(L, idx, function, &a->config); break;
  case SYNONYM: break;
  }
}

/* nn.Linear(…) and the others; upvalue 2 is the number of the row in the table above. */
static int construct(lua_State *L) {
  lua_Integer row = lua_tointeger(L, lua_upvalueindex(2));
  if (row < 0 || (size_t)row >= CONSTRUCTORS) row = 0; /* the debug library can change an upvalue */
  const constructor *c = &constructors[row];
  const char *names[MAX_PARAMETERS + 1] = {NULL};
  for (int i = 0; c->parameters[i].name; i++) names[i] = c->parameters[i].name;
  if (c->parameters[0].kind == INTEGER && lua_type(L, 1) == LUA_TTABLE && lua_rawlen(L, 1) > 0)
    return lheed_error(
        L,
        "%s: %s is a table; it must be an integer; write nn.%s(...) with round brackets, or names in "
        "the table: nn.%s{%s = ...}",
        c->name, names[0], c->name, c->name, names[0]);
  lheed_options(L, c->name, 1, names);
  resolve_synonyms(L, c);

  heed_context *ctx = lheed_get(L)->context;
  heed_module **box = lheed_push_module(L);
  arguments a = {.bias = true, .affine = true, .p = 0.5, .eps = -1};
  heed_attention_config_init(&a.config, sizeof a.config);
  for (int i = 0; names[i]; i++) read_parameter(L, i + 1, c->name, &c->parameters[i], &a);
  LHEED_TRY(L, c->make(ctx, &a, box));
  lheed_remember_module(L);
  return lheed_return(L, 1);
}

void lheed_open_constructors(lua_State *L) {
  lua_getfield(L, -2, "nn");
  for (size_t i = 0; i < CONSTRUCTORS; i++) {
    lheed_push_state(L);
    lua_pushinteger(L, (lua_Integer)i);
    lua_pushcclosure(L, construct, 2);
    lua_setfield(L, -2, constructors[i].name);
  }
  lua_pop(L, 1);
}

bool lheed_is_optional_entry(const char *class, const char *name) {
  for (size_t i = 0; i < CONSTRUCTORS; i++) {
    if (strcmp(constructors[i].name, class) != 0) continue;
    for (const char *const *optional = constructors[i].optional; *optional; optional++)
      if (strcmp(*optional, name) == 0) return true;
  }
  return false;
}
