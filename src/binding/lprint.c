/* Tensors as text, character for character what PyTorch prints, and the operator `..`.
 *
 * One notation and one width for all elements, chosen from those that are shown; rows wrapped at 80 columns;
 * of more than 1000 elements only the first and last three along each dimension. heed.set_printoptions
 * changes this. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../ops/ops.h"
#include "lheed.h"

static const lheed_print_options default_options = {
    .precision = 4, .threshold = 1000, .edgeitems = 3, .linewidth = 80, .sci_mode = -1};

static const char heading[] = "tensor(";
#define HEADING ((int)sizeof heading - 1)

typedef struct printer {
  lua_State *L;
  heed_context *ctx;
  lheed_print_options options; /* a copy: finalizers may change them */
  const heed_tensor *x;
  int64_t seen; /* elements visited, in all passes */
  bool summary; /* dimensions of more than 2 · edgeitems elements are shortened */
  double smallest,
      largest;     /* magnitudes of the finite elements other than 0; smallest is inf if there are none */
  bool gradient;   /* noted */
  bool real;       /* float32, bfloat16 or float16 */
  bool whole;      /* real: all of these are integers */
  bool scientific; /* real */
  int width;
  const char *block; /* of a blocked dtype: the block in `widened`; NULL: none yet */
  float widened[HEED__LARGEST_BLOCK];
  luaL_Buffer text;
} printer;

/* The element at an address that `slice` returned. */
static heed_scalar element_at_slice(const printer *p, const char *at) {
  return heed__load(heed__is_blocked(p->x->dtype) ? HEED_FLOAT32 : p->x->dtype, at);
}

/* ---- One element ---- */

/* The longest text of an element: 39 digits before the point, where scientific notation is switched off. */
#define MOST_DIGITS 50
#define ELEMENT     (MOST_DIGITS + 46)

static int float_text(const printer *p, double value, char text[ELEMENT]) {
  if (isnan(value)) return snprintf(text, ELEMENT, "nan");
  if (isinf(value)) return snprintf(text, ELEMENT, value < 0 ? "-inf" : "inf");
  if (!p->whole || p->scientific)
    return heed__write_number(text, ELEMENT, p->scientific ? 'e' : 'f', p->options.precision, value);
  int length = heed__write_number(text, ELEMENT - 1, 'f', 0, value);
  memcpy(text + length, ".", 2);
  return length + 1;
}

/* Returns the length. */
static int element_text(const printer *p, const char *at, char text[ELEMENT]) {
  heed_scalar value = element_at_slice(p, at);
  switch (value.dtype) {
  case HEED_BOOL: return snprintf(text, ELEMENT, value.as.integer ? "True" : "False");
  case HEED_INT64: return snprintf(text, ELEMENT, "%" PRId64, value.as.integer);
  default: return float_text(p, value.as.number, text);
  }
}

/* ---- The elements that are shown ---- */

/* Whether dimension d (from 0) is shown without its middle. */
static bool is_cut(const printer *p, int d) {
  return p->summary && p->x->shape[d] > 2 * p->options.edgeitems;
}

static int64_t shown(const printer *p, int d) {
  return is_cut(p, d) ? 2 * p->options.edgeitems : p->x->shape[d];
}

/* The i-th slice that is shown of dimension d, in the slice at `at`. */
static const char *slice(printer *p, int d, const char *at, int64_t i) {
  const int64_t edge = p->options.edgeitems;
  const int64_t index = is_cut(p, d) && i >= edge ? p->x->shape[d] - 2 * edge + i : i;
  const heed_dtype dtype = p->x->dtype;
  const int64_t n = heed__block_elements(dtype);
  if (n == 1 || d < p->x->ndim - 1) return at + heed__row_bytes(dtype, index * p->x->stride[d]);
  const char *start = at + heed__row_bytes(dtype, index);
  if (p->block != start) heed__kernels_of(p->ctx)->convert(HEED_FLOAT32, p->widened, dtype, start, (size_t)n);
  p->block = start;
  return (const char *)&p->widened[index % n];
}

typedef void visitor(printer *p, const char *at);

/* For each element: even a summary may have 6^64. */
static void count_element(printer *p) {
  if ((++p->seen & 0x3ff) == 0 && heed__is_due(&p->ctx->pace))
    LHEED_TRY(p->L, heed__stopped(p->ctx, "tostring"));
}

enum { ELEMENT_UNITS = 64 }; /* of work: an element is measured and written as text */

static void charge_printed(printer *p) {
  double elements = 1;
  for (int d = 0; d < p->x->ndim; d++) elements *= (double)shown(p, d);
  LHEED_TRY(p->L, heed__charge(p->ctx, "tostring", ELEMENT_UNITS * elements + 1));
}

/* At most HEED_MAX_DIMS deep. */
static void visit(printer *p, int d, const char *at, visitor *use) {
  if (d == p->x->ndim) {
    count_element(p);
    use(p, at);
    return;
  }
  for (int64_t i = 0; i < shown(p, d); i++) visit(p, d + 1, slice(p, d, at, i), use);
}

/* ---- Notation and width ---- */

static void measure_magnitude(printer *p, const char *at) {
  double value = element_at_slice(p, at).as.number;
  if (!isfinite(value) || value == 0) return;
  p->smallest = fmin(p->smallest, fabs(value));
  p->largest = fmax(p->largest, fabs(value));
  if (value != ceil(value)) p->whole = false;
}

static void measure_width(printer *p, const char *at) {
  char text[ELEMENT];
  if (p->real) { /* the width of zeros, nan and inf does not count */
    double value = element_at_slice(p, at).as.number;
    if (!isfinite(value) || value == 0) return;
  }
  int length = element_text(p, at, text);
  if (length > p->width) p->width = length;
}

static void choose_format(printer *p) {
  p->width = 1;
  p->whole = true;
  p->smallest = INFINITY;
  if (p->real) {
    visit(p, 0, p->x->data, measure_magnitude);
    if (isfinite(p->smallest))
      p->scientific = p->options.sci_mode >= 0
                          ? p->options.sci_mode == 1
                          : p->largest / p->smallest > 1000.0 || p->largest > 1e8 || p->smallest < 1e-4;
  }
  visit(p, 0, p->x->data, measure_width);
}

/* ---- Writing ---- */

static void add_spaces(printer *p, int count) {
  while (count-- > 0) luaL_addchar(&p->text, ' ');
}

static void add_element(printer *p, const char *at) {
  char text[ELEMENT];
  count_element(p);
  int length = element_text(p, at, text);
  add_spaces(p, p->width - length);
  luaL_addlstring(&p->text, text, (size_t)length);
}

/* A comma, line feeds, and the indentation inside d + 1 brackets. */
static void break_line(printer *p, int d, int lines) {
  luaL_addchar(&p->text, ',');
  while (lines-- > 0) luaL_addchar(&p->text, '\n');
  add_spaces(p, HEADING + d + 1);
}

/* The last dimension: elements side by side, wrapped. The ellipsis counts as an element. */
static void add_row(printer *p, const char *at) {
  int d = p->x->ndim - 1, per_line = (p->options.linewidth - HEADING - d) / (p->width + 2);
  if (per_line < 1) per_line = 1;
  luaL_addchar(&p->text, '[');
  int column = 0;
  for (int64_t i = 0; i < shown(p, d); i++) {
    for (int gap = is_cut(p, d) && i == p->options.edgeitems; gap >= 0; gap--) {
      if (column == per_line) {
        break_line(p, d, 1);
        column = 0;
      } else if (i > 0) {
        luaL_addstring(&p->text, ", ");
      }
      column++;
      if (gap) {
        luaL_addstring(&p->text, " ...");
      } else {
        add_element(p, slice(p, d, at, i));
      }
    }
  }
  luaL_addchar(&p->text, ']');
}

/* Dimension d and those after it; at most HEED_MAX_DIMS deep. */
static void add_block(printer *p, int d, const char *at) {
  int below = p->x->ndim - 1 - d;
  if (below < 0) {
    add_element(p, at);
  } else if (below == 0) {
    add_row(p, at);
  } else {
    luaL_addchar(&p->text, '[');
    for (int64_t i = 0; i < shown(p, d); i++) {
      if (i > 0) break_line(p, d, below);
      if (i == p->options.edgeitems && is_cut(p, d)) {
        luaL_addstring(&p->text, "...");
        break_line(p, d, below);
      }
      add_block(p, d + 1, slice(p, d, at, i));
    }
    luaL_addchar(&p->text, ']');
  }
}

/* A note after the elements, on a new line if the line would become too long; `length` is what PyTorch counts
 * for it, `line` what it counts for the line so far. */
static void add_note(printer *p, const char *note, int length, int *line) {
  if (*line + length + 2 > p->options.linewidth) {
    luaL_addstring(&p->text, ",\n");
    add_spaces(p, HEADING);
    *line = HEADING + length;
  } else {
    luaL_addstring(&p->text, ", ");
    *line += length + 2;
  }
  luaL_addstring(&p->text, note);
}

static void add_dtype(printer *p, int *line) {
  char note[32];
  int length = snprintf(note, sizeof note, "dtype=heed.%s", heed_dtype_name(p->x->dtype));
  add_note(p, note, length + 1, line); /* "torch." is one longer than "heed." */
}

/* What computed the tensor, or that it wants a gradient: while operations are recorded. */
static void add_gradient(printer *p, int *line) {
  char note[96];
  const char *name = heed_tensor_grad_fn(p->x);
  const int length = name ? snprintf(note, sizeof note, "grad_fn=<%.80s>", name)
                          : snprintf(note, sizeof note, "requires_grad=True");
  add_note(p, note, length, line);
}

/* The length of the last line in the buffer, as PyTorch counts it: two more. The text stays in the buffer. */
static int last_line(printer *p) {
  lua_State *L = p->text.L;
  size_t length;
  luaL_pushresult(&p->text);
  const int at = lua_gettop(L);
  const char *text = lua_tolstring(L, at, &length), *line = text + length;
  while (line > text && line[-1] != '\n') line--;
  const int count = (int)(text + length - line) + 2;
  luaL_buffinit(L, &p->text);
  lua_pushvalue(L, at);
  luaL_addvalue(&p->text);
  return count;
}

/* A tensor without elements: its sizes and dtype. */
static void add_empty(printer *p) {
  luaL_addstring(&p->text, "[]");
  int line = HEADING + 4; /* PyTorch counts 4, not 2 */
  if (p->x->ndim != 1) {
    char note[HEED__SHAPE_TEXT + 8], sizes[HEED__SHAPE_TEXT];
    heed__shape_text(sizes, p->x->ndim, p->x->shape);
    sizes[strlen(sizes) - 1] = '\0';
    int length = snprintf(note, sizeof note, "size=(%s)", sizes + 1);
    add_note(p, note, length, &line);
  }
  if (p->x->dtype != HEED_FLOAT32) add_dtype(p, &line);
  if (p->gradient) add_gradient(p, &line);
}

static int tensor_tostring(lua_State *L) {
  lua_settop(L, 1);
  lheed_box *box = lheed_test(L, 1, &lheed_tensor_type);
  if (box && !box->object) {
    lua_pushliteral(L, "tensor(released)");
    return 1;
  }
  /* an alias: finalizers may run while the text is built, and release x */
  heed_tensor **alias = lheed_push_tensor(L);
  heed_context *ctx = lheed_get(L)->context;
  const heed_tensor *x = lheed_tensor(L, 1, "tostring", "x");
  LHEED_TRY(L, heed__tensor_from_view(ctx, "tostring", x, alias));
  printer p = {.L = L, .ctx = ctx, .x = *alias, .options = lheed_get(L)->print};
  p.summary = (*alias)->numel > p.options.threshold;
  p.real = (*alias)->dtype == HEED_FLOAT32 || (*alias)->dtype == HEED_BFLOAT16 ||
           (*alias)->dtype == HEED_FLOAT16 || heed__is_blocked((*alias)->dtype);
  bool parameter = heed_tensor_is_parameter(x);
  p.gradient = heed_is_recording(ctx) && heed_tensor_requires_grad(*alias);
  charge_printed(&p);
  luaL_buffinit(L, &p.text);
  if (parameter) luaL_addstring(&p.text, "Parameter containing:\n");
  luaL_addstring(&p.text, heading);
  if (p.x->numel == 0) {
    add_empty(&p);
  } else {
    choose_format(&p);
    add_block(&p, 0, p.x->data);
    if (heed__only_stores(p.x->dtype) || p.gradient) {
      int line = last_line(&p);
      if (heed__only_stores(p.x->dtype)) add_dtype(&p, &line); /* where PyTorch's literals do not imply it */
      if (p.gradient) add_gradient(&p, &line);
    }
  }
  luaL_addchar(&p.text, ')');
  luaL_pushresult(&p.text);
  return 1;
}

/* ---- Options ---- */

/* The integer at idx, from `least` on, or what is there now if it is nil. */
static int64_t option_of(lua_State *L, int idx, const char *name, int64_t least, int64_t most, int64_t now) {
  if (lua_isnil(L, idx)) return now;
  const int64_t value = lheed_integer(L, idx, "set_printoptions", name);
  if (value < least || value > most)
    lheed_error(L, "set_printoptions: %s is %I; it must be from %I to %I", name, (LUAI_UACINT)value,
                (LUAI_UACINT)least, (LUAI_UACINT)most);
  return value;
}

/* Returns false for an unknown profile. */
static bool apply_profile(lheed_print_options *o, const char *profile) {
  const lheed_print_options d = default_options;
  const bool is_short = strcmp(profile, "short") == 0, is_full = strcmp(profile, "full") == 0;
  if (!is_short && !is_full && strcmp(profile, "default") != 0) return false;
  *o = (lheed_print_options){.precision = is_short ? 2 : d.precision,
                             .threshold = is_full ? INT64_MAX : d.threshold,
                             .edgeitems = is_short ? 2 : d.edgeitems,
                             .linewidth = d.linewidth};
  return true;
}

/* set_printoptions(precision, threshold, edgeitems, linewidth, profile, sci_mode): those that are nil stay as
 * they are, but sci_mode becomes automatic, as in PyTorch. */
static int set_printoptions(lua_State *L) {
  static const char *const names[] = {"precision", "threshold", "edgeitems", "linewidth",
                                      "profile",   "sci_mode",  NULL};
  enum { PRECISION = 1, THRESHOLD, EDGEITEMS, LINEWIDTH, PROFILE, SCI_MODE };
  lheed_options(L, "set_printoptions", 1, names);
  lheed_state *S = lheed_get(L);
  lheed_print_options o = S->print;
  if (!lua_isnil(L, PROFILE)) {
    const char *profile = lua_type(L, PROFILE) == LUA_TSTRING ? lua_tostring(L, PROFILE) : "";
    if (!apply_profile(&o, profile))
      return lheed_bad_argument(L, PROFILE, "set_printoptions", "profile", "'default', 'short' or 'full'");
  }
  o.precision = (int)option_of(L, PRECISION, "precision", 0, MOST_DIGITS, o.precision);
  if (lua_type(L, THRESHOLD) == LUA_TNUMBER && isinf(lua_tonumber(L, THRESHOLD)) &&
      lua_tonumber(L, THRESHOLD) > 0)
    o.threshold = INT64_MAX;
  else
    o.threshold = option_of(L, THRESHOLD, "threshold", 0, INT64_MAX, o.threshold);
  o.edgeitems = option_of(L, EDGEITEMS, "edgeitems", 1, INT32_MAX, o.edgeitems);
  o.linewidth = (int)option_of(L, LINEWIDTH, "linewidth", 1, INT32_MAX, o.linewidth);
  o.sci_mode =
      lua_isnil(L, SCI_MODE) ? -1 : lheed_opt_boolean(L, SCI_MODE, "set_printoptions", "sci_mode", false);
  S->print = o;
  return 0;
}

/* ---- Joining texts ---- */

/* Pushes the text of an operand of `..`. */
static void push_text(lua_State *L, int idx) {
  if (lua_type(L, idx) != LUA_TSTRING && lua_type(L, idx) != LUA_TNUMBER) {
    if (luaL_getmetafield(L, idx, "__tostring") == LUA_TNIL)
      lheed_error(L,
                  "concat: a tensor cannot be joined with %s; it must be a string, a number or a value with "
                  "__tostring",
                  lheed_push_what(L, idx));
    lua_pop(L, 1);
  }
  luaL_tolstring(L, idx, NULL);
}

static int tensor_concat(lua_State *L) {
  lua_settop(L, 2);
  push_text(L, 1);
  push_text(L, 2);
  lua_concat(L, 2);
  return 1;
}

void lheed_open_print(lua_State *L) {
  static const luaL_Reg metamethods[] = {
      {"__tostring", tensor_tostring}, {"__concat", tensor_concat}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"set_printoptions", set_printoptions}, {NULL, NULL}};
  lheed_add_metamethods(L, &lheed_tensor_type, metamethods);
  lheed_add(L, NULL, functions);
  lheed_find(L)->print = default_options;
}
