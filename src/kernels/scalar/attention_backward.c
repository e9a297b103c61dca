/* The scalar kernel of attention's gradients, row by row: the reference for the faster ones. With p the
 * weights before dropout and f the factors of dropout:
 *   dv = (p f)ᵀ dout,  dp = (dout vᵀ) f,  δ = Σ dout out,  ds = p (dp - δ),
 *   dr = ds · (derivative of the cap) · scale,  dq = dr k,  dk = drᵀ q */
#include "scalar.h"

/* The current row, and buffers for one widened_row key and value. */
typedef struct gradient_row {
  const heed__attention_backward_task *g;
  const heed__attention_task *t;
  int64_t i;
  float lse, delta;
  float *key, *value; /* [d], [dv] */
} gradient_row;

static const float *widened_row(const void *x, heed_dtype dtype, ptrdiff_t row, ptrdiff_t *column,
                                const float *scale, ptrdiff_t scale_row, int64_t j, int64_t n,
                                float *buffer) {
  const char *from = (const char *)x + j * row * (ptrdiff_t)heed__element_bytes(dtype);
  return heed__scalar_widen(from, dtype, scale ? scale[j * scale_row] : 1.0f, column, n, buffer);
}

/* What key j contributes. */
static void add_key(const gradient_row *r, int64_t j) {
  const heed__attention_backward_task *g = r->g;
  const heed__attention_task *t = r->t;
  const int64_t i = r->i;
  ptrdiff_t k_column = t->k_column, v_column = t->v_column;
  const float *key =
      widened_row(t->k, t->k_dtype, t->k_row, &k_column, t->k_scale, t->k_scale_row, j, t->head_size, r->key);
  const float *value = widened_row(t->v, t->v_dtype, t->v_row, &v_column, t->v_scale, t->v_scale_row, j,
                                   t->value_size, r->value);
  const float *q = t->q + i * t->q_row, *dout = g->dout + i * g->dout_row;
  float x = heed__scalar_dot(q, t->q_column, key, k_column, (size_t)t->head_size) * t->scale, bend = 1.0f;
  if (t->softcap > 0.0f) {
    x = heed__attention_cap(x, t->softcap);
    bend = 1.0f - x / t->softcap * (x / t->softcap);
  }
  if (t->bias) x += t->bias[i * t->bias_row + j * t->bias_column];
  if (t->slope != 0.0f) x -= heed__attention_distance(t->slope, i + t->offset, j);
  const float p = heed__exp_of(x - r->lse);
  const bool kept = !g->kept || (g->kept[i * g->kept_row + j / 16] >> j % 16 & 1);
  const float factor = !kept ? 0.0f : g->kept ? g->kept_scale : 1.0f;
  const float dp = heed__scalar_dot(dout, g->dout_column, value, v_column, (size_t)t->value_size);
  const float ds = p * ((kept ? dp * factor : 0.0f) - r->delta), dr = ds * bend * t->scale;
  for (int64_t c = 0; g->dv && kept && c < t->value_size; c++)
    g->dv[j * g->dv_row + c] += p * factor * dout[c * g->dout_column];
  for (int64_t c = 0; g->dk && c < t->head_size; c++) g->dk[j * g->dk_row + c] += dr * q[c * t->q_column];
  for (int64_t c = 0; g->dq && c < t->head_size; c++) g->dq[i * g->dq_row + c] += dr * key[c * k_column];
  if (g->dbias) g->dbias[i * g->dbias_row + j * g->dbias_column] += ds;
  if (g->dslope) *g->dslope -= (double)ds * (double)heed__attention_distance(1.0f, i + t->offset, j);
}

/* A step is a row; the scratch holds nothing between steps. */
bool heed__scalar_attention_backward(const heed__attention_backward_task *g, const heed__pace *pace,
                                     int64_t *position) {
  const heed__attention_task *t = &g->forward;
  gradient_row r = {.g = g, .t = t, .key = g->scratch};
  r.value = r.key + t->head_size;
  for (r.i = position ? *position : 0; r.i < t->query_length; r.i++) {
    int64_t first, last;
    heed__attention_bounds(t, r.i, &first, &last);
    if (first < g->first) first = g->first;
    if (last > g->last) last = g->last;
    r.lse = t->lse[r.i];
    if (r.lse != -INFINITY && first < last) {
      r.delta = g->delta[r.i];
      for (int64_t j = first; j < last; j++)
        if (!heed__attention_hides(t, r.i, j)) add_key(&r, j);
    }
    if (r.i + 1 < t->query_length && heed__should_yield(pace)) {
      *position = r.i + 1;
      return false;
    }
  }
  return true;
}

size_t heed__scalar_attention_backward_scratch(const heed__attention_backward_task *g) {
  return (size_t)(g->forward.head_size + g->forward.value_size) * sizeof(float);
}
