/* The gradients of linear attention. The states before all chunks are computed first; then the chunks go
 * backward, from the last, each from what linear_write_chunk computes again. With the names of
 * linear_attention.h, dS the gradient of the state after the chunk, and rows of the tokens i:
 *   du = Pᵀ dout + (k_j e^Σ_j) dS;  with beta, from the last token to the first:
 *   w_i = du_i - Σ_j M_ji beta_j w_j,   dbeta_i = w_i · (u_i before beta),   dv_i = beta_i w_i
 *   dP = dout uᵀ,   dM = -dv uᵀ
 *   dS before = e^Σ dS + (scale q_i e^Σ_i)ᵀ dout - (k_i e^Σ_i)ᵀ dv
 * A decay up to token i contributes to what token i reads, and inversely to what later tokens read of it: its
 * gradient is q_i · dq_i + k_i · (dk_i as a reader - dk_i as what is read), summed over i from the token on.
 */
#ifndef HEED_VECTOR_LINEAR_ATTENTION_BACKWARD_H
#define HEED_VECTOR_LINEAR_ATTENTION_BACKWARD_H

#include "linear_attention.h"

typedef struct linear_gradient {
  const heed__linear_attention_backward_task *g;
  linear_chunk c;
  float *states;               /* before each chunk [chunks, d, dv] */
  float *turned, *ut;          /* a matrix [d, dv], and u, transposed: [dv, d], [dv, C] */
  float *error, *du;           /* [C, dv] */
  float *t;                    /* [C, C] */
  float *q, *dq;               /* of one head, with the scale [C, d] */
  float *reader, *read, *more; /* dk as a reader and as what is read, and something to add [C, d] */
  float *sums, *end;           /* of decays, up to each token [C, w], and of the whole chunk [w] */
} linear_gradient;

static size_t linear_gradient_layout(linear_gradient *b, const heed__linear_attention_backward_task *g,
                                     float *scratch) {
  const size_t chunk = linear_layout(&b->c, &g->forward, scratch), side = LINEAR_CHUNK;
  const size_t d = b->c.d, dv = b->c.dv, width = b->c.width;
  const size_t chunks = ((size_t)g->forward.tokens + LINEAR_CHUNK - 1) / LINEAR_CHUNK;
  float **const field[] = {&b->states, &b->turned, &b->ut,   &b->error, &b->du,   &b->t,  &b->q,
                           &b->dq,     &b->reader, &b->read, &b->more,  &b->sums, &b->end};
  const size_t floats[] = {chunks * d * dv, d * dv,       side * dv, side * dv, side * dv,
                           side * side,     side * d,     side * d,  side * d,  side * d,
                           side * d,        side * width, width};
  size_t at = chunk;
  b->g = g;
  for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
    *field[i] = scratch ? scratch + at : NULL;
    at += (floats[i] + V_LANES - 1) / V_LANES * V_LANES;
  }
  b->c.error = b->error;
  return at;
}

/* ---- Pairs of tokens ---- */

/* One part with itself, as linear_pair_part: adds Σ_j t_ij k_jc e^Σ_ijc to dx_ic and Σ_i t_ij x_ic e^Σ_ijc to
 * dk_jc. */
static void linear_pair_part_backward(const linear_chunk *c, const float *t, const float *x, ptrdiff_t x_row,
                                      size_t first, size_t last, float *dx, float *dk) {
  const float *decay = c->a->decay + c->first * c->a->decay_row;
  const size_t d = c->d;
  for (size_t column = 0; column < d; column += V_LANES) {
    const vmask m = v_first(heed__min_size(d - column, V_LANES));
    for (size_t j = first; j < last; j++) {
      const vfloat key = v_load_masked(c->k + (ptrdiff_t)j * c->a->k_row + column, m);
      vfloat total = v_zero(), factor = v_set(1.0f), sum = v_load_masked(dk + j * d + column, m);
      for (size_t i = j; i < last; i++) {
        if (i > j) {
          total = v_add(total, v_max(v_set(LINEAR_LOWEST), /* nan passes */
                                     v_load_masked(decay + (ptrdiff_t)i * c->a->decay_row + column, m)));
          factor = v_exp(total);
        }
        const vfloat pair = v_mul(v_set(t[i * LINEAR_CHUNK + j]), factor);
        float *to = dx + i * d + column;
        v_store_masked(to, v_fma(pair, key, v_load_masked(to, m)), m);
        sum = v_fma(pair, v_load_masked(x + (ptrdiff_t)i * x_row + column, m), sum);
      }
      v_store_masked(dk + j * d + column, sum, m);
    }
  }
}

/* The gradients of linear_pairs(c, x, …) from t [n, n], that of its result, masked by linear_mask: they are
 * added to dx and dk [n, d]. */
static void linear_pairs_backward(linear_gradient *b, const float *x, ptrdiff_t x_row, float *dx, float *dk) {
  const linear_chunk *c = &b->c;
  const size_t n = c->n, d = c->d;
  const ptrdiff_t row = c->row;
  if (c->width <= 1) {
    linear_product(LINEAR_LOWER, n, d, n, b->t, LINEAR_CHUNK, 1, c->k, c->a->k_row, dx, row, dx);
    linear_product(LINEAR_UPPER, n, d, n, b->t, 1, LINEAR_CHUNK, x, x_row, dk, row, dk);
    return;
  }
  for (size_t first = 0; first < n; first += LINEAR_PART) {
    const size_t rows = heed__min_size(n - first, LINEAR_PART), part = first / LINEAR_PART;
    const float *t = b->t + first * LINEAR_CHUNK, *fore = c->part_fore + first * d;
    linear_pair_part_backward(c, b->t, x, x_row, first, first + rows, dx, dk);
    if (first == 0) continue;
    const float *keys = c->part_keys + linear_earlier(part) * d,
                *factor = c->part_factor + linear_earlier(part) * d;
    linear_product(LINEAR_FULL, rows, d, first, t, LINEAR_CHUNK, 1, keys, row, b->more, row, NULL);
    for (size_t i = 0; i < rows * d; i++) dx[first * d + i] += fore[i] * b->more[i];
    linear_scale(c->rows, x + (ptrdiff_t)first * x_row, x_row, fore, d, 1.0f, rows, d);
    linear_product(LINEAR_FULL, first, d, rows, t, 1, LINEAR_CHUNK, c->rows, row, b->more, row, NULL);
    for (size_t i = 0; i < first * d; i++) dk[i] += factor[i] * b->more[i];
  }
}

/* Adds x[i] · y[i], over the columns if there is one decay for all, to sums [n, w]. */
static void linear_add_decays(linear_gradient *b, const float *x, ptrdiff_t x_row, const float *y,
                              float sign) {
  const size_t d = b->c.d, width = b->c.width;
  for (size_t i = 0; width && i < b->c.n; i++, x += x_row, y += d) {
    if (width == 1)
      b->sums[i] += sign * KERNEL(dot)(x, 1, y, 1, d);
    else
      for (size_t j = 0; j < d; j++) b->sums[i * d + j] += sign * x[j] * y[j];
  }
}

/* ---- A chunk ---- */

/* From the gradient of the state after the chunk, which becomes e^Σ times it. */
static void linear_state_backward(linear_gradient *b) {
  linear_chunk *c = &b->c;
  const size_t n = c->n, d = c->d, dv = c->dv, width = c->width;
  const ptrdiff_t row = c->row;
  float *ds = b->g->dstate;
  linear_write_chunk(c);
  KERNEL(transpose)(b->turned, row, ds, c->value_row, d, dv);
  linear_product(LINEAR_FULL, n, d, dv, c->u, c->value_row, 1, b->turned, row, b->read, row, NULL);
  linear_scale(b->read, b->read, row, c->rest, width, 1.0f, n, d);
  linear_scale(c->rows, c->k, c->a->k_row, c->rest, width, 1.0f, n, d);
  linear_product(LINEAR_FULL, n, dv, d, c->rows, row, 1, ds, c->value_row, b->du, c->value_row, NULL);
  memset(b->reader, 0, n * d * sizeof *b->reader);
  memset(b->sums, 0, n * width * sizeof *b->sums);
  memset(b->end, 0, width * sizeof *b->end);
  for (size_t i = 0; width && i < d; i++) {
    float sum = KERNEL(dot)(c->state + i * dv, 1, ds + i * dv, 1, dv) * c->whole[width > 1 ? i : 0];
    for (size_t j = 0; j < n; j++)
      sum += c->k[(ptrdiff_t)j * c->a->k_row + (ptrdiff_t)i] * b->read[j * d + i];
    b->end[width > 1 ? i : 0] += sum;
  }
  if (width > 0)
    linear_scale(ds, ds, c->value_row, c->whole, width > 1, width == 1 ? c->whole[0] : 1.0f, d, dv);
  KERNEL(transpose)(b->turned, row, c->state, c->value_row, d, dv);
  KERNEL(transpose)(b->ut, LINEAR_CHUNK, c->u, c->value_row, n, dv);
}

static void linear_read_backward(linear_gradient *b, int64_t head) {
  linear_chunk *c = &b->c;
  const heed__linear_attention_task *a = c->a;
  const size_t n = c->n, d = c->d, dv = c->dv;
  const ptrdiff_t row = c->row;
  const float *dout = a->out + head * a->out_head + c->first * a->out_row;
  linear_scale(b->q, a->q + head * a->q_head + c->first * a->q_row, a->q_row, NULL, 0, a->scale, n, d);
  linear_pairs(c, b->q, row, false, 1.0f, c->p);
  linear_product(LINEAR_UPPER, n, dv, n, c->p, 1, LINEAR_CHUNK, dout, a->out_row, b->du, c->value_row, b->du);
  linear_product(LINEAR_FULL, n, n, dv, dout, a->out_row, 1, b->ut, LINEAR_CHUNK, b->t, LINEAR_CHUNK, NULL);
  linear_mask(c, b->t, false, 1.0f);
  linear_product(LINEAR_FULL, n, d, dv, dout, a->out_row, 1, b->turned, row, b->dq, row, NULL);
  linear_scale(b->dq, b->dq, row, c->fore, c->width, 1.0f, n, d);
  linear_pairs_backward(b, b->q, row, b->dq, b->read);
  linear_scale(c->rows, b->q, row, c->fore, c->width, 1.0f, n, d);
  linear_product(LINEAR_FULL, d, dv, n, c->rows, 1, row, dout, a->out_row, b->g->dstate, c->value_row,
                 b->g->dstate);
  linear_add_decays(b, b->q, row, b->dq, 1.0f);
  if (b->g->dq)
    linear_scale(b->g->dq + (head * a->tokens + c->first) * row, b->dq, row, NULL, 0, a->scale, n, d);
}

/* du becomes dv. */
static void linear_solve_backward(linear_gradient *b) {
  const linear_chunk *c = &b->c;
  const size_t strip = gemm_part(c->n, GEMM_ROWS), dv = c->dv;
  for (size_t first = (c->n - 1) / strip * strip + strip; first > 0;) {
    first -= strip;
    const size_t last = heed__min_size(first + strip, c->n);
    float *du = b->du + first * dv;
    if (last < c->n)
      linear_product(LINEAR_FULL, last - first, dv, c->n - last, c->minus_m + last * LINEAR_CHUNK + first, 1,
                     LINEAR_CHUNK, b->du + last * dv, c->value_row, du, c->value_row, du);
    for (size_t i = last; i-- > first;) {
      const int64_t token = c->first + (int64_t)i;
      const float beta = c->a->beta[token * c->a->beta_row];
      float *w = b->du + i * dv;
      for (size_t j = i + 1; j < last; j++)
        linear_add(w, c->minus_m[j * LINEAR_CHUNK + i], b->du + j * dv, dv);
      if (b->g->dbeta) b->g->dbeta[token] = KERNEL(dot)(w, 1, b->error + i * dv, 1, dv);
      for (size_t x = 0; x < dv; x++) w[x] *= beta;
    }
  }
}

static void linear_write_backward(linear_gradient *b) {
  linear_chunk *c = &b->c;
  const heed__linear_attention_backward_task *g = b->g;
  const size_t n = c->n, d = c->d, dv = c->dv, width = c->width;
  const ptrdiff_t row = c->row;
  if (c->a->beta) {
    linear_solve_backward(b);
    linear_product(LINEAR_FULL, n, n, dv, b->du, c->value_row, 1, b->ut, LINEAR_CHUNK, b->t, LINEAR_CHUNK,
                   NULL);
    linear_mask(c, b->t, true, -1.0f);
    linear_product(LINEAR_FULL, n, d, dv, b->du, c->value_row, 1, b->turned, row, b->reader, row, NULL);
    linear_scale(b->reader, b->reader, row, c->fore, width, -1.0f, n, d);
    linear_pairs_backward(b, c->k, c->a->k_row, b->reader, b->read);
    linear_product(LINEAR_FULL, d, dv, n, c->minus_keys, 1, row, b->du, c->value_row, g->dstate, c->value_row,
                   g->dstate);
  }
  if (g->dv) memcpy(g->dv + c->first * (int64_t)dv, b->du, n * dv * sizeof *g->dv);
  if (g->dk) linear_sum(g->dk + c->first * row, b->reader, b->read, n * d);
  linear_add_decays(b, c->k, c->a->k_row, b->reader, 1.0f);
  linear_add_decays(b, c->k, c->a->k_row, b->read, -1.0f);
  for (size_t j = 0; g->ddecay && j < width; j++) {
    double sum = (double)b->end[j];
    for (size_t i = n; i-- > 0;) {
      sum += (double)b->sums[i * width + j];
      g->ddecay[((size_t)c->first + i) * width + j] = (float)sum;
    }
  }
}

/* A step is a chunk forward; or the end of a chunk, one query head of it, or its beginning. */
bool KERNEL(linear_attention_backward)(const heed__linear_attention_backward_task *g, const heed__pace *pace,
                                       int64_t *position) {
  const heed__linear_attention_task *a = &g->forward;
  const int64_t chunks = (a->tokens + LINEAR_CHUNK - 1) / LINEAR_CHUNK, phases = a->group + 2;
  const int64_t forward = chunks > 1 ? chunks - 1 : 0, end = forward + chunks * phases;
  linear_gradient b;
  linear_gradient_layout(&b, g, g->scratch);
  const size_t size = b.c.d * b.c.dv;
  for (int64_t step = position ? *position : 0; step < end; step++) {
    if (step == 0) memcpy(b.states, a->state, size * sizeof *b.states);
    if (step < forward) {
      linear_set_chunk(&b.c, step);
      b.c.state = b.states + (size_t)(step + 1) * size;
      memcpy(b.c.state, b.c.state - size, size * sizeof *b.states);
      linear_write_chunk(&b.c);
      linear_end_chunk(&b.c);
    } else {
      const int64_t chunk = chunks - 1 - (step - forward) / phases, phase = (step - forward) % phases;
      linear_set_chunk(&b.c, chunk);
      b.c.state = b.states + (size_t)chunk * size;
      if (phase == 0)
        linear_state_backward(&b);
      else if (phase <= a->group)
        linear_read_backward(&b, phase - 1);
      else
        linear_write_backward(&b);
    }
    if (step + 1 < end && heed__should_yield(pace)) {
      *position = step + 1;
      return false;
    }
  }
  return true;
}

size_t KERNEL(linear_attention_backward_scratch)(const heed__linear_attention_backward_task *g) {
  linear_gradient b;
  return linear_gradient_layout(&b, g, NULL) * sizeof(float);
}

#endif
