/* Rotary positions, and the ways of scaling them to longer contexts. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "attention.h"

#define TWO_PI 6.283185307179586476925286766559

/* ---- Configs ---- */

void heed_rope_config_init(heed_rope_config *config, size_t size) {
  static const heed_rope_config plain = {.base = 10000,
                                         .factor = 1,
                                         .beta_fast = 32,
                                         .beta_slow = 1,
                                         .low_freq_factor = 1,
                                         .high_freq_factor = 4};
  heed__struct_init(config, size, &plain, sizeof plain);
}

heed_status heed__rope_config_read(heed_context *ctx, const char *function, const char *argument,
                                   const heed_rope_config *theirs, heed_rope_config *out) {
  heed_rope_config_init(out, sizeof *out);
  if (theirs == NULL) return HEED_OK;
  return heed__struct_read(ctx, function, argument, "heed_rope_config", theirs, out, sizeof *out);
}

static int64_t rotated_dims(const heed_rope_config *c, int64_t d) {
  return c->dims == 0 ? d : c->dims;
}

static bool is_positive(double value) {
  return isfinite(value) && value > 0;
}

static heed_status check_attention_factor(heed_context *ctx, const char *function, const char *of,
                                          const heed_rope_config *c) {
  if (c->attention_factor == 0 || is_positive(c->attention_factor)) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: %sattention_factor is %s; it must be positive and finite",
                    function, of, HEED__G(c->attention_factor));
}

int64_t heed__rope_factors(const heed_rope_config *c) {
  int64_t count = 0;
  while (count < HEED_ROPE_PAIRS && c->factors[count] != 0) count++;
  return count;
}

static heed_status check_factors(heed_context *ctx, const char *function, const char *of,
                                 const heed_rope_config *c, int64_t pairs) {
  const int64_t count = heed__rope_factors(c);
  if (count != pairs)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: %sfactors has %" PRId64 " element%s before a 0; it must have %" PRId64
                      ", one for each pair, and at most %d",
                      function, of, count, HEED__S(count), pairs, HEED_ROPE_PAIRS);
  for (int64_t i = 0; i < count; i++) {
    if (is_positive((double)c->factors[i])) continue;
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: element %" PRId64 " of %sfactors is %s; it must be positive and finite", function,
                      i + 1, of, HEED__G((double)c->factors[i]));
  }
  return check_attention_factor(ctx, function, of, c);
}

static heed_status check_scaling(heed_context *ctx, const char *function, const char *of,
                                 const heed_rope_config *c, int64_t dims) {
  const char *needed = "it must be positive and finite";
  if (c->scaling == HEED_ROPE_UNSCALED) return HEED_OK;
  if (!is_positive(c->factor))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %sfactor is %s; %s", function, of, HEED__G(c->factor), needed);
  if (c->scaling == HEED_ROPE_NTK && dims < 4)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %sdims is 2; with ntk scaling it must be at least 4", function,
                      of);
  if (c->scaling == HEED_ROPE_FACTORS) return check_factors(ctx, function, of, c, dims / 2);
  if (c->scaling != HEED_ROPE_YARN && c->scaling != HEED_ROPE_LLAMA3) return HEED_OK;
  if (c->original_context_length < 1)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: %soriginal_context_length is %" PRId64
                      "; with this scaling it must be the context length of the training",
                      function, of, c->original_context_length);
  if (c->scaling == HEED_ROPE_LLAMA3) {
    if (is_positive(c->low_freq_factor) && isfinite(c->high_freq_factor) &&
        c->high_freq_factor > c->low_freq_factor)
      return HEED_OK;
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: %slow_freq_factor is %s and high_freq_factor is %s; they must be positive, "
                      "and the second larger",
                      function, of, HEED__G(c->low_freq_factor), HEED__G(c->high_freq_factor));
  }
  if (c->base <= 1)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %sbase is %s; with yarn scaling it must be above 1", function,
                      of, HEED__G(c->base));
  if (!is_positive(c->beta_slow) || !isfinite(c->beta_fast) || c->beta_fast < c->beta_slow)
    return heed__fail(
        ctx, HEED_ARGUMENT,
        "%s: %sbeta_fast is %s and beta_slow is %s; they must be positive, and the first not smaller",
        function, of, HEED__G(c->beta_fast), HEED__G(c->beta_slow));
  return check_attention_factor(ctx, function, of, c);
}

heed_status heed__check_rope(heed_context *ctx, const char *function, const heed_rope_config *c, int64_t d) {
  const char *of = strcmp(function, "rope") == 0 ? "" : "rope's ";
  const int64_t dims = rotated_dims(c, d);
  if (!is_positive(c->base))
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %sbase is %s; it must be positive and finite", function, of,
                      HEED__G(c->base));
  if (c->dims == 0 && (d < 2 || d % 2 != 0))
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: a head has %" PRId64 " element%s; rope rotates pairs: give an even %sdims",
                      function, d, HEED__S(d), of);
  if (dims < 2 || dims > d || dims % 2 != 0)
    return heed__fail(ctx, HEED_ARGUMENT,
                      "%s: %sdims is %" PRId64 "; it must be even, from 2 to %" PRId64 ", the size of a head",
                      function, of, dims, d);
  if ((unsigned)c->scaling > HEED_ROPE_FACTORS)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: %sscaling is %d; it must be one of heed_rope_scaling",
                      function, of, (int)c->scaling);
  return check_scaling(ctx, function, of, c, dims);
}

/* ---- Frequencies ---- */

/* The pair (from 0, fractional) that makes `turns` full turns over the original context. */
static double pair_of_turns(const heed_rope_config *c, int64_t dims, double turns) {
  return (double)dims * log((double)c->original_context_length / (turns * TWO_PI)) / (2 * log(c->base));
}

/* Fast pairs do not change, slow ones are scaled by factor, with a linear ramp between them.
 * arXiv:2309.00071, section 3.2; its bounds are rounded outwards, as in the authors' code. */
static void yarn(const heed_rope_config *c, int64_t dims, double *frequency) {
  const double first = fmax(floor(pair_of_turns(c, dims, c->beta_fast)), 0);
  const double last = fmin(ceil(pair_of_turns(c, dims, c->beta_slow)), (double)(dims - 1));
  const double span = last == first ? 0.001 : last - first;
  for (int64_t i = 0; i < dims / 2; i++) {
    const double stretched = fmin(fmax(((double)i - first) / span, 0), 1);
    frequency[i] *= stretched / c->factor + (1 - stretched);
  }
}

/* The same with a ramp over the turns in the original context, as in Llama 3.1. */
static void llama3(const heed_rope_config *c, int64_t dims, double *frequency) {
  const double low = c->low_freq_factor, high = c->high_freq_factor;
  for (int64_t i = 0; i < dims / 2; i++) {
    const double turns = (double)c->original_context_length * frequency[i] / TWO_PI;
    const double kept = fmin(fmax((turns - low) / (high - low), 0), 1);
    frequency[i] *= (1 - kept) / c->factor + kept;
  }
}

/* The angle per position of each pair, in radians. This and the next functions return false if they stopped
 * at a cancellation check. */
static bool frequencies(const heed__pace *pace, const heed_rope_config *c, int64_t dims, double *frequency) {
  const double d = (double)dims;
  const double base = c->scaling == HEED_ROPE_NTK ? c->base * pow(c->factor, d / (d - 2)) : c->base;
  const double step = -2 * log(base) / d;
  for (int64_t i = 0; i < dims / 2; i++) {
    if ((i & 0xfff) == 0xfff && heed__is_due(pace)) return false;
    frequency[i] = exp((double)i * step);
  }
  switch (c->scaling) {
  case HEED_ROPE_LINEAR:
    for (int64_t i = 0; i < dims / 2; i++) frequency[i] /= c->factor;
    break;
  case HEED_ROPE_YARN: yarn(c, dims, frequency); break;
  case HEED_ROPE_LLAMA3: llama3(c, dims, frequency); break;
  case HEED_ROPE_FACTORS:
    for (int64_t i = 0; i < dims / 2; i++) frequency[i] /= (double)c->factors[i];
    break;
  case HEED_ROPE_UNSCALED:
  case HEED_ROPE_NTK: break;
  }
  return true;
}

/* The factor by which scaling multiplies queries and keys. */
static double magnitude(const heed_rope_config *c) {
  if (c->scaling != HEED_ROPE_YARN && c->scaling != HEED_ROPE_FACTORS) return 1;
  if (c->attention_factor != 0) return c->attention_factor;
  return c->scaling == HEED_ROPE_YARN && c->factor > 1 ? 0.1 * log(c->factor) + 1 : 1;
}

/* ---- The table: cosines and sines for each position ---- */

/* Angles are computed in double: in float32, as in many libraries, position 10,000 would be off by 5e-4. With
 * many positions, each angle is the sum of one for the high bits of the position, computed once for LOW
 * positions, and one for its low bits, from a table. */
#define LOW_BITS 6
#define LOW      (1 << LOW_BITS)
#define MANY     (2 * LOW)

/* Fills row with the cosines [pairs], then the sines [pairs], of a position. */
static bool angles_of(const heed__pace *pace, double *row, const double *frequency, double position,
                      double magnitude, int64_t pairs) {
  for (int64_t i = 0; i < pairs; i++) {
    if ((i & 0x3ff) == 0x3ff && heed__is_due(pace)) return false;
    const double angle = position * frequency[i];
    row[i] = cos(angle) * magnitude;
    row[pairs + i] = sin(angle) * magnitude;
  }
  return true;
}

/* The cosines and sines of the sum of two angles. */
static void add_angles(float *row, const double *a, const double *b, int64_t pairs) {
  for (int64_t i = 0; i < pairs; i++) {
    row[i] = (float)(a[i] * b[i] - a[pairs + i] * b[pairs + i]);
    row[pairs + i] = (float)(a[pairs + i] * b[i] + a[i] * b[pairs + i]);
  }
}

typedef struct table {
  float *rows; /* [count, 2 · pairs] */
  int64_t count, pairs;
  const heed_tensor *positions; /* row-major; NULL: offset + 1, offset + 2, … */
  int64_t offset;
  bool back; /* angles are negative */
} table;

/* Counted from 0. */
static int64_t position_at(const table *t, int64_t i) {
  return t->positions != NULL ? ((const int64_t *)(const void *)t->positions->data)[i] - 1 : t->offset + i;
}

/* scratch: pairs doubles, then rows of 2 · pairs: one, or LOW + 1 if there are at least MANY positions. */
static bool fill_table(const heed__pace *pace, const table *t, const heed_rope_config *c, double *scratch) {
  double *frequency = scratch, *high = scratch + t->pairs, *low = high + 2 * t->pairs;
  const double scale = magnitude(c);
  const bool many = t->count >= MANY;
  int64_t block = -1;
  bool more = frequencies(pace, c, 2 * t->pairs, frequency);
  for (int64_t i = 0; many && i < LOW && more; i++)
    more = angles_of(pace, low + i * 2 * t->pairs, frequency, (double)i, 1, t->pairs);
  for (int64_t i = 0; i < t->count && more; i++) {
    const int64_t position = position_at(t, i);
    float *row = t->rows + i * 2 * t->pairs;
    if (!many) {
      more = angles_of(pace, high, frequency, (double)position, scale, t->pairs);
      for (int64_t j = 0; j < 2 * t->pairs; j++) row[j] = (float)high[j];
      continue;
    }
    if (block != position >> LOW_BITS) {
      block = position >> LOW_BITS;
      more = angles_of(pace, high, frequency, (double)(block << LOW_BITS), scale, t->pairs);
    }
    add_angles(row, high, low + (position & (LOW - 1)) * 2 * t->pairs, t->pairs);
    more = more && !((i & (LOW - 1)) == LOW - 1 && heed__is_due(pace));
  }
  for (int64_t i = 0; t->back && i < t->count && more; i++) {
    float *sine = t->rows + (2 * i + 1) * t->pairs;
    for (int64_t j = 0; j < t->pairs; j++) sine[j] = -sine[j];
    more = !heed__is_due_at(pace, i);
  }
  return more;
}

/* ---- Rotation ---- */

typedef struct rotation {
  int64_t pairs;
  bool interleaved;
} rotation;

/* Each pair (a, b) becomes (a cos - b sin, b cos + a sin). Separate loops for in place and not, so that
 * compilers can vectorise both. */

static void rotate_halves_in_place(float *x, const float *restrict c, const float *restrict s,
                                   int64_t pairs) {
  float *behind = x + pairs;
  for (int64_t i = 0; i < pairs; i++) {
    const float a = x[i], b = behind[i];
    x[i] = a * c[i] - b * s[i];
    behind[i] = b * c[i] + a * s[i];
  }
}

static void rotate_halves(float *restrict out, const float *restrict x, const float *restrict c,
                          const float *restrict s, int64_t pairs) {
  for (int64_t i = 0; i < pairs; i++) out[i] = x[i] * c[i] - x[pairs + i] * s[i];
  for (int64_t i = 0; i < pairs; i++) out[pairs + i] = x[pairs + i] * c[i] + x[i] * s[i];
}

static void rotate_neighbours_in_place(float *x, const float *restrict c, const float *restrict s,
                                       int64_t pairs) {
  for (int64_t i = 0; i < pairs; i++) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * c[i] - b * s[i];
    x[2 * i + 1] = b * c[i] + a * s[i];
  }
}

static void rotate_neighbours(float *restrict out, const float *restrict x, const float *restrict c,
                              const float *restrict s, int64_t pairs) {
  for (int64_t i = 0; i < pairs; i++) {
    out[2 * i] = x[2 * i] * c[i] - x[2 * i + 1] * s[i];
    out[2 * i + 1] = x[2 * i + 1] * c[i] + x[2 * i] * s[i];
  }
}

/* The same for strided elements. */
static void rotate_strided(float *out, ptrdiff_t out_stride, const float *x, ptrdiff_t x_stride,
                           const float *cosine, const float *sine, const rotation *j) {
  const ptrdiff_t step = j->interleaved ? 2 : 1, apart = j->interleaved ? 1 : (ptrdiff_t)j->pairs;
  for (ptrdiff_t i = 0; i < (ptrdiff_t)j->pairs; i++) {
    const ptrdiff_t first = i * step, second = first + apart;
    const float a = x[first * x_stride], b = x[second * x_stride];
    out[first * out_stride] = a * cosine[i] - b * sine[i];
    out[second * out_stride] = b * cosine[i] + a * sine[i];
  }
}

/* Operands of the walk: result, x, table. */
static void rotate_part(void *user, heed__walk *w, int worker) {
  const rotation *j = user;
  (void)worker;
  do {
    float *out = (float *)(void *)w->data[0];
    const float *x = (const float *)(void *)w->data[1], *cosine = (const float *)(void *)w->data[2];
    const float *sine = cosine + j->pairs;
    const int64_t rest = w->count - 2 * j->pairs;
    if (w->stride[0] != 1 || w->stride[1] != 1) {
      rotate_strided(out, w->stride[0], x, w->stride[1], cosine, sine, j);
    } else if (j->interleaved) {
      if (out == x) {
        rotate_neighbours_in_place(out, cosine, sine, j->pairs);
      } else {
        rotate_neighbours(out, x, cosine, sine, j->pairs);
      }
    } else if (out == x) {
      rotate_halves_in_place(out, cosine, sine, j->pairs);
    } else {
      rotate_halves(out, x, cosine, sine, j->pairs);
    }
    if (rest > 0 && out != x) {
      const ptrdiff_t behind = 2 * (ptrdiff_t)j->pairs;
      heed__copy_row(HEED_FLOAT32, out + behind * w->stride[0], w->stride[0], HEED_FLOAT32,
                     x + behind * w->stride[1], w->stride[1], rest);
    }
  } while (heed__walk_next(w));
}

/* A view of the table that broadcasts to x [..., d]: each row of x finds its row of cosines and sines. */
static void table_header(heed_tensor *view, const table *t, const heed_tensor *x) {
  const int ndim = t->positions != NULL ? t->positions->ndim : 1;
  heed__header_on_stack(view, HEED_FLOAT32, t->rows, ndim,
                        t->positions != NULL ? t->positions->shape : &t->count);
  for (int i = 0; i < ndim; i++) view->stride[i] *= 2 * t->pairs;
  view->ndim++;
  view->shape[ndim] = x->shape[x->ndim - 1];
  view->stride[ndim] = 1;
}

static heed_status rotate(heed_context *ctx, const char *function, const heed_tensor *x, table *t,
                          const heed_rope_config *c, heed_tensor **out) {
  const size_t rows = t->count < MANY ? 1 : LOW + 1;
  heed__result result = {0};
  double *scratch = NULL;
  heed_tensor view;
  heed__walk w;
  heed_status status = HEED_OK;
  if (x->numel > 0) { /* or else there may be more positions than memory could hold rows for */
    status = heed__charge(ctx, function, (double)t->count * 2 * (double)t->pairs);
    if (status != HEED_OK) return status;
    const size_t table_bytes = heed__array_bytes((uint64_t)(t->count * 2 * t->pairs), sizeof(float));
    const size_t bytes = heed__array_bytes((uint64_t)t->pairs, (1 + 2 * rows) * sizeof(double)) + table_bytes;
    scratch = heed__allocate(ctx, bytes);
    if (scratch == NULL) return heed__fail_memory(ctx, function, bytes);
    t->rows = (float *)(void *)(scratch + (size_t)t->pairs * (1 + 2 * rows));
    if (!fill_table(&ctx->pace, t, c, scratch)) status = heed__stopped(ctx, function);
  }
  if (status == HEED_OK)
    status = heed__result_begin(ctx, function, &result, out, HEED_FLOAT32, x->ndim, x->shape, true, 1, &x);
  if (status == HEED_OK && x->numel > 0) {
    table_header(&view, t, x);
    const heed_tensor *operands[] = {result.tensor, x, &view};
    heed__walk_lanes_begin(&w, x->ndim, x->shape, x->ndim - 1, 3, operands);
    rotation job = {t->pairs, c->interleaved};
    if (!heed__walk_divided(ctx, &w, 0, 1, rotate_part, &job)) status = heed__stopped(ctx, function);
  }
  heed__release(ctx, scratch);
  return heed__result_end(ctx, &result, status);
}

static heed_status check_rotated(heed_context *ctx, const char *function, const heed_tensor *x,
                                 const heed_rope_config *c) {
  heed_status status = heed__check_dtype(ctx, function, "x", x, HEED_FLOAT32);
  if (status != HEED_OK) return status;
  if (x->ndim < 2) {
    char text[HEED__SHAPE_TEXT];
    return heed__fail(ctx, HEED_SHAPE, "%s: x is %s; it must be [..., n, d]", function,
                      heed__shape_text(text, x->ndim, x->shape));
  }
  return heed__check_rope(ctx, function, c, x->shape[x->ndim - 1]);
}

heed_status heed__rope(heed_context *ctx, const char *function, const heed_tensor *x, int64_t offset,
                       const heed_rope_config *config, heed_tensor **out) {
  heed_status status = check_rotated(ctx, function, x, config);
  if (status != HEED_OK) return status;
  table t = {.count = x->shape[x->ndim - 2],
             .pairs = rotated_dims(config, x->shape[x->ndim - 1]) / 2,
             .offset = offset};
  return rotate(ctx, function, x, &t, config, out);
}

static heed_status rotate_at(heed_context *ctx, const char *function, const heed_tensor *x,
                             const heed_tensor *positions, const heed_rope_config *c, bool back,
                             heed_tensor **out) {
  heed_tensor *made = NULL;
  heed_status status = check_rotated(ctx, function, x, c);
  if (status == HEED_OK) status = heed__check_dtype(ctx, function, "positions", positions, HEED_INT64);
  if (status == HEED_OK)
    status = heed__check_expands(ctx, function, "positions", positions, x->ndim - 1, x->shape);
  if (status == HEED_OK)
    status = heed__as_contiguous(ctx, function, positions, HEED_INT64, &positions, &made);
  if (status != HEED_OK) return status;
  const int64_t *position = (const int64_t *)(const void *)positions->data;
  for (int64_t i = 0; i < positions->numel; i++) {
    if (position[i] >= 1) continue;
    status = heed__fail(ctx, HEED_ARGUMENT,
                        "%s: element %" PRId64 " of positions is %" PRId64
                        "; it must be at least 1: positions count from 1",
                        function, i + 1, position[i]);
    goto done;
  }
  table t = {.count = positions->numel,
             .pairs = rotated_dims(c, x->shape[x->ndim - 1]) / 2,
             .positions = positions,
             .back = back};
  status = rotate(ctx, function, x, &t, c, out);
done:
  heed_tensor_free(made);
  return status;
}

heed_status heed__rope_at(heed_context *ctx, const char *function, const heed_tensor *x,
                          const heed_tensor *positions, const heed_rope_config *config, heed_tensor **out) {
  return rotate_at(ctx, function, x, positions, config, false, out);
}

heed_status heed_rope(heed_context *ctx, const heed_tensor *x, const heed_tensor *positions,
                      const heed_rope_config *config, heed_tensor **out) {
  HEED__ENTER(ctx, "rope", x, out);
  HEED__MAY_ENTER(ctx, "rope", positions);
  heed_rope_config own;
  heed_status status = heed__rope_config_read(ctx, "rope", "config", config, &own);
  if (status != HEED_OK) return status;
  status = positions == NULL ? heed__rope(ctx, "rope", x, 0, &own, out)
                             : rotate_at(ctx, "rope", x, positions, &own, false, out);
  return heed__recorded(ctx, status, HEED__OP_rope, 2, (const heed_tensor *const[]){x, positions}, &own,
                        sizeof own, out);
}

/* The transpose of a rotation is the rotation back; a magnitude stays. */
heed_status heed__rope_gradient(heed_context *ctx, const char *function, const heed_tensor *dy,
                                const heed_tensor *positions, int64_t offset, const heed_rope_config *config,
                                heed_tensor **dx) {
  if (positions != NULL) return rotate_at(ctx, function, dy, positions, config, true, dx);
  heed_status status = check_rotated(ctx, function, dy, config);
  if (status != HEED_OK) return status;
  table t = {.count = dy->shape[dy->ndim - 2],
             .pairs = rotated_dims(config, dy->shape[dy->ndim - 1]) / 2,
             .offset = offset,
             .back = true};
  return rotate(ctx, function, dy, &t, config, dx);
}
