/* The factors of dropout on the weights. MT19937 draws them head by head, in order; PHILOX those of any task,
 * on any thread. */
#include "plan.h"

#include <string.h>

/* One bit for each weight, if dropout draws any. */
heed_status heed__attention_new_kept(heed__attention_plan *p) {
  const int64_t words = heed__attention_kept_words(p->key_length);
  if (!p->operands->kept || p->operands->options.dropout_p <= 0) return HEED_OK;
  const int64_t heads = p->packed ? p->query_heads : p->heads;
  const size_t bytes = heed__array_bytes((uint64_t)heads, sizeof(uint16_t));
  int64_t shape[] = {(int64_t)bytes, p->query_length, words};
  return heed__tensor_new(p->context, p->operands->function, HEED_BOOL, 3, shape, &p->kept);
}

/* Sets the shape of the weights that dropout draws, [..., hq, l, s]; packed sequences draw what they would as
 * padded items of a batch. Returns its dimensions. */
static int shape_of_weights(const heed__attention_plan *p, int64_t shape[HEED_MAX_DIMS]) {
  if (p->packed) {
    const int64_t packed[] = {p->item_count, p->query_heads, p->most_queries, p->key_length};
    memcpy(shape, packed, sizeof packed);
    return 4;
  }
  for (int d = 0; d < p->ndim; d++) shape[d] = p->shape[d];
  shape[p->ndim - 1] = p->key_length;
  return p->ndim;
}

heed_status heed__attention_check_dropout(const heed__attention_plan *p) {
  const heed_attention_options *o = &p->operands->options;
  int64_t shape[HEED_MAX_DIMS];
  if (o->dropout_p <= 0) return HEED_OK;
  return heed__check_part(p->context, p->operands->function, "the tensor of weights",
                          heed__generator(p->context, o->generator), shape_of_weights(p, shape), shape);
}

void heed__attention_begin_dropout(heed__attention_plan *p) {
  const heed_attention_options *o = &p->operands->options;
  int64_t shape[HEED_MAX_DIMS];
  const int ndim = shape_of_weights(p, shape);
  heed__dropout_begin(&p->dropout, p->context, o->generator, o->dropout_p, ndim, shape);
  if (p->dropout.counted) p->dropout.words.kernel = heed__kernels_of(p->context)->philox;
  p->drawing = true;
}

/* Keeps which weights of the rows of a task remain, for the gradients. */
static void keep_drawn(const heed__attention_plan *p, const heed__attention_task *t, int64_t head,
                       const float *dropout_mask) {
  const int64_t words = heed__attention_kept_words(p->key_length);
  uint16_t *row = (uint16_t *)(void *)p->kept->data + (heed__attention_first_row(p, head) + t->first) * words;
  for (int64_t i = t->first; i < t->last; i++, row += words) {
    for (int64_t j = 0; j < t->key_length; j += 16) {
      const int64_t n = heed__min(t->key_length - j, 16);
      unsigned bits = 0;
      for (int64_t b = 0; b < n; b++) bits |= (unsigned)(*dropout_mask++ != 0.0f) << b;
      row[j / 16] = (uint16_t)bits;
    }
  }
}

static void set_factors(float *x, int64_t n, float value) {
  for (int64_t i = 0; i < n; i++) x[i] = value;
}

/* The factors of the next keys of row i, at most n; returns their number. Those of keys before and behind the
 * ones that the row sees are not drawn, but 0. */
static int64_t draw_keys(const heed__attention_plan *p, const heed__attention_task *t, int64_t head,
                         int64_t i, int64_t key, int64_t n, float *out) {
  int64_t first, last;
  heed__attention_bounds(t, i, &first, &last);
  const bool seen = key >= first && key < last;
  n = heed__min(n, (key < first ? first : seen ? last : t->key_length) - key);
  set_factors(out, n, seen ? 1.0f : 0.0f);
  if (!seen) return n;
  const uint64_t row = heed__counted_row(&p->dropout.words, head * p->most_queries + i);
  heed__dropout_at(&p->dropout, out, out, row + (uint64_t)key, n);
  return n;
}

/* Draws the factors of a task from element *drawn on; false if it stopped at a yield point. */
static bool draw_mask(heed__attention_plan *p, const heed__attention_task *t, int64_t head,
                      float *dropout_mask, const heed__pace *pace, int64_t *drawn) {
  const int64_t keys = t->key_length, count = (t->last - t->first) * keys;
  for (int64_t unchecked = 0, n; *drawn < count; *drawn += n) {
    float *const next = dropout_mask + *drawn;
    if (unchecked >= HEED__DRAWN_WHOLE) {
      if (heed__should_yield(pace)) return false;
      unchecked = 0;
    }
    n = heed__min(count - *drawn, HEED__DRAWN_WHOLE);
    if (p->dropout.counted) {
      const int64_t row = heed__quotient(*drawn, keys);
      n = draw_keys(p, t, head, t->first + row, *drawn - row * keys, n, next);
    } else {
      set_factors(next, n, 1.0f);
      (void)!heed__dropout_apply(&p->dropout, next, next, n); /* never stops within HEED__DRAWN_WHOLE */
    }
    unchecked += n;
  }
  return true;
}

bool heed__attention_draw(heed__attention_plan *p, const heed__attention_task *t, int64_t head,
                          float *dropout_mask, const heed__pace *pace, int64_t *position) {
  if (*position > 0 && *position < HEED__DRAWING) return true;
  int64_t drawn = *position > 0 ? *position - HEED__DRAWING : 0;
  if (!draw_mask(p, t, head, dropout_mask, pace, &drawn)) {
    *position = HEED__DRAWING + drawn;
    return false;
  }
  if (p->kept) keep_drawn(p, t, head, dropout_mask);
  *position = 0;
  return true;
}
