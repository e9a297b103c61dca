/* Linear attention. A few tokens go one by one, with two passes over the state. More of them go in chunks of
 * HEED__LINEAR_CHUNK, by products of matrices. With the decays of tokens j+1…i summed in Σ_ij (of the chunk's
 * tokens before j + 1 and after i where an index is missing), and S the state before the chunk:
 *   M_ij = Σ_c k_ic k_jc e^Σ_ijc  (j < i),   P_ij = scale Σ_c q_ic k_jc e^Σ_ijc  (j <= i)
 *   u_i  = beta_i (v_i - (k_i e^Σ_i) S - Σ_j M_ij u_j)       from the first token to the last
 *   out  = (scale q_i e^Σ_i) S + P u,     S = e^Σ S + (k_j e^Σ_j)ᵀ u
 * All exponents are sums of decays, never their negatives, so decays of any size cannot overflow. Source:
 * arXiv:2406.06484, section 3, with the triangular system solved instead of inverted. */
#ifndef HEED_VECTOR_LINEAR_ATTENTION_H
#define HEED_VECTOR_LINEAR_ATTENTION_H

#include "gemm.h"

enum {
  LINEAR_CHUNK = HEED__LINEAR_CHUNK,
  LINEAR_STEPS = 4, /* up to this many tokens go one by one */
  /* Decays of each row of the state: tokens of a part are paired one by one, those of two parts by a product
   * through the beginning of the later part. */
  LINEAR_PART = 16,
  LINEAR_PARTS = LINEAR_CHUNK / LINEAR_PART,
  LINEAR_EARLIER = LINEAR_PART * LINEAR_PARTS * (LINEAR_PARTS - 1) / 2, /* rows before all parts */
};
#define LINEAR_LOWEST (-120.0f) /* e^this is 0; lower decays are raised to it, so that sums stay exact */

/* A chunk in work: where it is in the operands, and its parts of the scratch. C is LINEAR_CHUNK, w the number
 * of different decays of a token: 0 (none), 1 or d. */
typedef struct linear_chunk {
  const heed__linear_attention_task *a;
  size_t n, d, dv, width;   /* tokens of the chunk; d, dv and w */
  ptrdiff_t row, value_row; /* d and dv, as strides */
  int64_t first;
  const float *k;
  float *state;               /* before the chunk */
  float *kt;                  /* keys transposed [d, C] */
  float *fore, *rest, *whole; /* e^Σ_i [C, w], e^Σ_j [C, w], e^Σ [w] */
  float *ratio;               /* e^Σ_ij [C, C] if w is 1 */
  /* If w is d: from the beginning of a token's part to it [C, d]; from earlier tokens to the beginning of
   * each part, these factors, the keys times them, and both of these transposed [d, rows] for each part */
  float *part_fore, *part_factor, *part_keys, *part_kt;
  float *minus_keys;  /* -k_i e^Σ_i [C, d] */
  float *rows;        /* any scaled rows [C, d] */
  float *minus_m, *p; /* [C, C], 0 where j is too large */
  float *u;           /* [C, dv] */
  float *error;       /* NULL, or receives u before beta [C, dv] */
} linear_chunk;

/* Divides the scratch; returns the number of its floats. scratch NULL: only that. */
static size_t linear_layout(linear_chunk *c, const heed__linear_attention_task *a, float *scratch) {
  const size_t d = (size_t)a->head_size, dv = (size_t)a->value_size, side = LINEAR_CHUNK;
  const size_t width = !a->decay ? 0 : a->decays_each ? d : 1, each = width > 1 ? d : 0;
  float **const field[] = {&c->kt,        &c->fore,        &c->rest,      &c->whole,   &c->ratio,
                           &c->part_fore, &c->part_factor, &c->part_keys, &c->part_kt, &c->minus_keys,
                           &c->rows,      &c->minus_m,     &c->p,         &c->u};
  const size_t floats[] = {side * d,
                           side * width,
                           side * width,
                           width,
                           width == 1 ? side * side : 0,
                           side * each,
                           LINEAR_EARLIER * each,
                           LINEAR_EARLIER * each,
                           LINEAR_EARLIER * each,
                           side * d,
                           side * d,
                           side * side,
                           side * side,
                           side * dv};
  size_t at = 0;
  c->a = a;
  c->d = d;
  c->dv = dv;
  c->row = (ptrdiff_t)d;
  c->value_row = (ptrdiff_t)dv;
  c->width = width;
  c->error = NULL;
  for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
    *field[i] = scratch ? scratch + at : NULL;
    at += (floats[i] + V_LANES - 1) / V_LANES * V_LANES;
  }
  return at;
}

/* ---- Products ---- */

/* Which part of a [m, k] there is: all, or that below and on the diagonal, or that on and above it; the other
 * elements are 0 near the diagonal, and not read further away. */
typedef enum linear_shape { LINEAR_FULL, LINEAR_LOWER, LINEAR_UPPER } linear_shape;

/* c [m, n] = a [m, k] · b [k, n] + add (NULL: nothing; c itself is allowed); columns of b, c and add are
 * contiguous. */
static void linear_product(linear_shape shape, size_t m, size_t n, size_t k, const float *a, ptrdiff_t a_row,
                           ptrdiff_t a_column, const float *b, ptrdiff_t b_row, float *c, ptrdiff_t c_row,
                           const float *add) {
  const size_t strip = gemm_part(m, GEMM_ROWS);
  gemm_step s = {.a_row = a_row, .a_column = a_column, .b_row = b_row, .c_row = c_row, .add_row = c_row};
  for (size_t j = 0; j < n; j += GEMM_COLUMNS) {
    const size_t columns = heed__min_size(n - j, GEMM_COLUMNS), used = (columns + V_LANES - 1) / V_LANES;
    const vmask edge = v_first(columns - (used - 1) * V_LANES);
    for (size_t i = 0; i < m; i += strip) {
      const size_t rows = heed__min_size(m - i, strip),
                   end = shape == LINEAR_LOWER ? heed__min_size(k, i + rows) : k;
      const ptrdiff_t at = (ptrdiff_t)i * c_row + (ptrdiff_t)j;
      size_t from = shape == LINEAR_UPPER ? i : 0;
      const float *sum = add ? add + at : NULL;
      do {
        s.depth = heed__min_size(end - from, GEMM_DEPTH);
        gemm_tiles[rows - 1][columns == GEMM_COLUMNS ? GEMM_VECTORS : used - 1](
            &s, a + (ptrdiff_t)i * a_row + (ptrdiff_t)from * a_column, b + (ptrdiff_t)from * b_row + j,
            c + at, sum, edge);
        sum = c + at;
        from += s.depth;
      } while (from < end);
    }
  }
}

/* out[i] = scale · factor[i] · x[i], rows of d elements; factor [rows, width]. out may be x. */
static void linear_scale(float *out, const float *x, ptrdiff_t x_row, const float *factor, size_t width,
                         float scale, size_t rows, size_t d) {
  for (size_t i = 0; i < rows; i++, out += d, x += x_row) {
    const float *f = width ? factor + i * width : NULL;
    const float one = width == 1 ? scale * f[0] : scale;
    if (width <= 1)
      for (size_t j = 0; j < d; j++) out[j] = one * x[j];
    else
      for (size_t j = 0; j < d; j++) out[j] = scale * f[j] * x[j];
  }
}

/* sum += factor · x */
static void linear_add(float *sum, float factor, const float *x, size_t n) {
  for (size_t j = 0; j < n; j++) sum[j] += factor * x[j];
}

/* ---- Decays ---- */

static inline float linear_decay(const linear_chunk *c, size_t i, size_t column) {
  const float g = c->a->decay[(c->first + (int64_t)i) * c->a->decay_row + (ptrdiff_t)column];
  return g < LINEAR_LOWEST ? LINEAR_LOWEST : g;
}

static void linear_one_decay(linear_chunk *c) {
  double sum[LINEAR_CHUNK], total = 0;
  for (size_t i = 0; i < c->n; i++) sum[i] = total += (double)linear_decay(c, i, 0);
  for (size_t i = 0; i < c->n; i++) {
    float *row = c->ratio + i * LINEAR_CHUNK;
    for (size_t j = 0; j <= i; j++) row[j] = (float)(sum[i] - sum[j]);
    KERNEL(exp)(row, row, i + 1);
    c->fore[i] = (float)sum[i];
    c->rest[i] = (float)(total - sum[i]);
  }
  c->whole[0] = (float)total;
}

/* The first row of what belongs to the tokens before a part. */
static inline size_t linear_earlier(size_t part) {
  return LINEAR_PART * part * (part - 1) / 2;
}

/* out = x + y of d elements; x may be NULL */
static void linear_sum(float *out, const float *x, const float *y, size_t d) {
  for (size_t i = 0; i < d; i++) out[i] = x ? x[i] + y[i] : y[i];
}

/* Sums in the order of the tokens: differences of cumulated sums would lose what is behind a large decay. */
static void linear_each_decay(linear_chunk *c) {
  const size_t n = c->n, d = c->d, parts = (n + LINEAR_PART - 1) / LINEAR_PART;
  float *g = c->rows; /* the decays */
  for (size_t i = 0; i < n; i++)
    for (size_t x = 0; x < d; x++) g[i * d + x] = linear_decay(c, i, x);
  for (size_t i = 0; i < n; i++) {
    const size_t inside = i % LINEAR_PART;
    const float *earlier = i > inside ? c->fore + (i - inside - 1) * d : NULL;
    linear_sum(c->part_fore + i * d, inside ? c->part_fore + (i - 1) * d : NULL, g + i * d, d);
    linear_sum(c->fore + i * d, earlier, c->part_fore + i * d, d);
  }
  for (size_t i = n; i-- > 0;) {
    if (i + 1 < n && i % LINEAR_PART < LINEAR_PART - 1)
      linear_sum(c->rest + i * d, c->rest + (i + 1) * d, g + (i + 1) * d, d);
    else
      memset(c->rest + i * d, 0, d * sizeof *c->rest);
  }
  for (size_t part = 1; part < parts; part++) {
    const size_t first = part * LINEAR_PART, end = heed__min_size(first + LINEAR_PART, n);
    for (size_t i = 0; i < first; i++) { /* rest is that to the end of part - 1 */
      memcpy(c->part_factor + (linear_earlier(part) + i) * d, c->rest + i * d, d * sizeof *c->rest);
      linear_sum(c->rest + i * d, c->rest + i * d, c->part_fore + (end - 1) * d, d);
    }
  }
  memcpy(c->whole, c->fore + (n - 1) * d, d * sizeof *c->whole);
  KERNEL(exp)(c->part_fore, c->part_fore, n * d);
  for (size_t part = 1; part < parts; part++) {
    const size_t earlier = part * LINEAR_PART, at = linear_earlier(part) * d;
    KERNEL(exp)(c->part_factor + at, c->part_factor + at, earlier * d);
    linear_scale(c->part_keys + at, c->k, c->a->k_row, c->part_factor + at, d, 1.0f, earlier, d);
    KERNEL(transpose)(c->part_kt + at, (ptrdiff_t)earlier, c->part_keys + at, (ptrdiff_t)d, earlier, d);
  }
}

/* ---- Pairs of tokens ---- */

/* Multiplies the elements of t [n, n] below the diagonal, and on it unless `strict`, by `sign` and the decays
 * between their tokens (if w is 1), and sets the others to 0. */
static void linear_mask(const linear_chunk *c, float *t, bool strict, float sign) {
  for (size_t i = 0; i < c->n; i++, t += LINEAR_CHUNK) {
    const float *ratio = c->width == 1 ? c->ratio + i * LINEAR_CHUNK : NULL;
    const size_t covered = strict ? i : i + 1;
    if (ratio)
      for (size_t j = 0; j < covered; j++) t[j] *= sign * ratio[j];
    else
      for (size_t j = 0; j < covered; j++) t[j] *= sign;
    for (size_t j = covered; j < c->n; j++) t[j] = 0.0f;
  }
}

/* One part with itself: out_ij = Σ_c x_ic k_jc e^Σ_ijc for j <= i. */
static void linear_pair_part(const linear_chunk *c, const float *x, ptrdiff_t x_row, size_t first,
                             size_t last, float *out) {
  vfloat sum[LINEAR_PART][LINEAR_PART];
  const float *decay = c->a->decay + c->first * c->a->decay_row;
  for (size_t i = 0; i < LINEAR_PART; i++)
    for (size_t j = 0; j <= i; j++) sum[i][j] = v_zero();
  for (size_t column = 0; column < c->d; column += V_LANES) {
    const vmask m = v_first(heed__min_size(c->d - column, V_LANES));
    for (size_t j = first; j < last; j++) {
      const vfloat key = v_load_masked(c->k + (ptrdiff_t)j * c->a->k_row + column, m);
      vfloat total = v_zero(), covered = key;
      for (size_t i = j; i < last; i++) {
        if (i > j) {
          total = v_add(total, v_max(v_set(LINEAR_LOWEST), /* nan passes */
                                     v_load_masked(decay + (ptrdiff_t)i * c->a->decay_row + column, m)));
          covered = v_mul(key, v_exp(total));
        }
        sum[i - first][j - first] =
            v_fma(v_load_masked(x + (ptrdiff_t)i * x_row + column, m), covered, sum[i - first][j - first]);
      }
    }
  }
  for (size_t i = first; i < last; i++)
    for (size_t j = first; j <= i; j++) out[i * LINEAR_CHUNK + j] = v_sum(sum[i - first][j - first]);
}

/* out [n, n] = sign · x_i · k_j with the decays between the tokens; as linear_mask leaves it. x [n, d]. */
static void linear_pairs(const linear_chunk *c, const float *x, ptrdiff_t x_row, bool strict, float sign,
                         float *out) {
  const size_t n = c->n, d = c->d;
  if (c->width <= 1) {
    linear_product(LINEAR_FULL, n, n, d, x, x_row, 1, c->kt, LINEAR_CHUNK, out, LINEAR_CHUNK, NULL);
  } else {
    for (size_t first = 0; first < n; first += LINEAR_PART) {
      const size_t rows = heed__min_size(n - first, LINEAR_PART);
      linear_pair_part(c, x, x_row, first, first + rows, out);
      if (first == 0) continue;
      linear_scale(c->rows, x + (ptrdiff_t)first * x_row, x_row, c->part_fore + first * d, d, 1.0f, rows, d);
      linear_product(LINEAR_FULL, rows, first, d, c->rows, c->row, 1,
                     c->part_kt + linear_earlier(first / LINEAR_PART) * d, (ptrdiff_t)first,
                     out + first * LINEAR_CHUNK, LINEAR_CHUNK, NULL);
    }
  }
  linear_mask(c, out, strict, sign);
}

/* ---- The chunk ---- */

/* u, which holds what beta multiplies without the part of the chunk's own tokens, becomes u. */
static void linear_solve(const linear_chunk *c) {
  const size_t strip = gemm_part(c->n, GEMM_ROWS), dv = c->dv;
  for (size_t first = 0; first < c->n; first += strip) {
    const size_t last = heed__min_size(first + strip, c->n);
    const float *m = c->minus_m + first * LINEAR_CHUNK;
    float *u = c->u + first * dv;
    if (first > 0)
      linear_product(LINEAR_FULL, last - first, dv, first, m, LINEAR_CHUNK, 1, c->u, c->value_row, u,
                     c->value_row, u);
    for (size_t i = first; i < last; i++, m += LINEAR_CHUNK, u += dv) {
      const float beta = c->a->beta[(c->first + (int64_t)i) * c->a->beta_row];
      for (size_t j = first; j < i; j++) linear_add(u, m[j], c->u + j * dv, dv);
      if (c->error) memcpy(c->error + i * dv, u, dv * sizeof *u);
      for (size_t x = 0; x < dv; x++) u[x] *= beta;
    }
  }
}

/* Chunk number i, from 0. */
static void linear_set_chunk(linear_chunk *c, int64_t i) {
  c->first = i * LINEAR_CHUNK;
  c->n = heed__min_size((size_t)(c->a->tokens - c->first), LINEAR_CHUNK);
  c->k = c->a->k + c->first * c->a->k_row;
}

/* Sets all fields but p and rows, from the state before the chunk. */
static void linear_write_chunk(linear_chunk *c) {
  const heed__linear_attention_task *a = c->a;
  const size_t n = c->n, d = c->d, dv = c->dv;
  KERNEL(transpose)(c->kt, LINEAR_CHUNK, c->k, a->k_row, n, d);
  if (c->width == 1) linear_one_decay(c);
  if (c->width > 1) linear_each_decay(c);
  if (c->width > 0) {
    KERNEL(exp)(c->fore, c->fore, n * c->width);
    KERNEL(exp)(c->rest, c->rest, n * c->width);
    KERNEL(exp)(c->whole, c->whole, c->width);
  }
  for (size_t t = 0; t < n; t++)
    memcpy(c->u + t * dv, a->v + (c->first + (int64_t)t) * a->v_row, dv * sizeof *c->u);
  if (!a->beta) return;
  linear_scale(c->minus_keys, c->k, a->k_row, c->fore, c->width, -1.0f, n, d);
  linear_product(LINEAR_FULL, n, dv, d, c->minus_keys, c->row, 1, c->state, c->value_row, c->u, c->value_row,
                 c->u);
  linear_pairs(c, c->k, a->k_row, true, -1.0f, c->minus_m);
  linear_solve(c);
}

static void linear_read_chunk(linear_chunk *c, int64_t head) {
  const heed__linear_attention_task *a = c->a;
  const float *q = a->q + head * a->q_head + c->first * a->q_row;
  float *out = a->out + head * a->out_head + c->first * a->out_row;
  linear_pairs(c, q, a->q_row, false, a->scale, c->p);
  linear_scale(c->rows, q, a->q_row, c->fore, c->width, a->scale, c->n, c->d);
  linear_product(LINEAR_FULL, c->n, c->dv, c->d, c->rows, c->row, 1, c->state, c->value_row, out, a->out_row,
                 NULL);
  linear_product(LINEAR_LOWER, c->n, c->dv, c->n, c->p, LINEAR_CHUNK, 1, c->u, c->value_row, out, a->out_row,
                 out);
}

/* The state after the chunk, in place. */
static void linear_end_chunk(linear_chunk *c) {
  if (c->width > 0)
    linear_scale(c->state, c->state, c->value_row, c->whole, c->width > 1, c->width == 1 ? c->whole[0] : 1.0f,
                 c->d, c->dv);
  linear_scale(c->rows, c->k, c->a->k_row, c->rest, c->width, 1.0f, c->n, c->d);
  linear_product(LINEAR_FULL, c->d, c->dv, c->n, c->rows, 1, c->row, c->u, c->value_row, c->state,
                 c->value_row, c->state);
}

/* ---- Token by token ---- */

/* What a token does with `vectors` vectors of columns of the state; factor: of its rows, factor_step apart.
 */
V_INLINE void linear_token_columns(const int vectors, const bool whole, const heed__linear_attention_task *a,
                                   int64_t t, const float *factor, size_t factor_step, size_t column,
                                   vmask edge) {
  const size_t d = (size_t)a->head_size, dv = (size_t)a->value_size;
  const float *k = a->k + t * a->k_row, *v = a->v + t * a->v_row + column;
  float *state = a->state + column;
  vfloat u[4], sum[4];
#define LINEAR_LOAD(p) (whole ? v_load(p) : v_load_masked(p, edge))
  V_UNROLL
  for (int x = 0; x < vectors; x++) sum[x] = v_zero();
  for (size_t c = 0; a->beta && c < d; c++) {
    const vfloat key = v_mul(v_set(k[c]), v_set(factor[c * factor_step]));
    V_UNROLL
    for (int x = 0; x < vectors; x++) sum[x] = v_fma(key, LINEAR_LOAD(state + c * dv + x * V_LANES), sum[x]);
  }
  V_UNROLL
  for (int x = 0; x < vectors; x++) {
    u[x] = v_sub(LINEAR_LOAD(v + x * V_LANES), sum[x]);
    if (a->beta) u[x] = v_mul(v_set(a->beta[t * a->beta_row]), u[x]);
  }
  for (int64_t head = 0; head < a->group; head++) {
    const float *q = a->q + head * a->q_head + t * a->q_row;
    float *out = a->out + head * a->out_head + t * a->out_row + column;
    V_UNROLL
    for (int x = 0; x < vectors; x++) sum[x] = v_zero();
    for (size_t c = 0; c < d; c++) {
      float *row = state + c * dv;
      const vfloat query = v_set(q[c]), key = v_set(k[c]), f = v_set(factor[c * factor_step]);
      V_UNROLL
      for (int x = 0; x < vectors; x++) {
        vfloat s = LINEAR_LOAD(row + x * V_LANES);
        if (head == 0) {
          s = v_fma(key, u[x], v_mul(f, s));
          if (whole)
            v_store(row + x * V_LANES, s);
          else
            v_store_masked(row + x * V_LANES, s, edge);
        }
        sum[x] = v_fma(query, s, sum[x]);
      }
    }
    V_UNROLL
    for (int x = 0; x < vectors; x++) {
      const vfloat y = v_mul(v_set(a->scale), sum[x]);
      if (whole)
        v_store(out + x * V_LANES, y);
      else
        v_store_masked(out + x * V_LANES, y, edge);
    }
  }
#undef LINEAR_LOAD
}

static void linear_token(const heed__linear_attention_task *a, int64_t t, float *factor) {
  const size_t dv = (size_t)a->value_size, each = a->decay && a->decays_each;
  size_t column = 0;
  factor[0] = 1.0f;
  if (a->decay) KERNEL(exp)(factor, a->decay + t * a->decay_row, each ? (size_t)a->head_size : 1);
  for (; column + 4 * V_LANES <= dv; column += 4 * V_LANES)
    linear_token_columns(4, true, a, t, factor, each, column, v_first(0));
  for (; column < dv; column += V_LANES)
    linear_token_columns(1, false, a, t, factor, each, column, v_first(heed__min_size(dv - column, V_LANES)));
}

/* ---- The kernel ---- */

/* A step is a token; or the keys of a chunk, one query head of it, or its end. */
bool KERNEL(linear_attention)(const heed__linear_attention_task *a, const heed__pace *pace,
                              int64_t *position) {
  const int64_t phases = a->group + 2;
  const bool chunked = a->tokens > LINEAR_STEPS;
  const int64_t end = chunked ? (a->tokens + LINEAR_CHUNK - 1) / LINEAR_CHUNK * phases : a->tokens;
  linear_chunk c = {0};
  if (chunked) linear_layout(&c, a, a->scratch);
  c.state = a->state;
  for (int64_t step = position ? *position : 0; step < end; step++) {
    const int64_t phase = step % phases;
    if (!chunked) {
      linear_token(a, step, a->scratch);
    } else {
      linear_set_chunk(&c, step / phases);
      if (phase == 0)
        linear_write_chunk(&c);
      else if (phase <= a->group)
        linear_read_chunk(&c, phase - 1);
      else
        linear_end_chunk(&c);
    }
    if (step + 1 < end && heed__should_yield(pace)) {
      *position = step + 1;
      return false;
    }
  }
  return true;
}

size_t KERNEL(linear_attention_scratch)(const heed__linear_attention_task *a) {
  linear_chunk c;
  const size_t token = (size_t)a->head_size + 1;
  return (a->tokens > LINEAR_STEPS ? linear_layout(&c, a, NULL) : token) * sizeof(float);
}

#endif
