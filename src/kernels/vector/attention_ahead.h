/* What the fused attention kernel (attention.h) prefetches: the queries and outputs of the next strip, and
 * the keys and values of the next block, which may be that of the next task. Some of it is prefetched before
 * each product: more at once than there are line fill buffers, 10 to 16, would stall the processor. */
#ifndef HEED_VECTOR_ATTENTION_AHEAD_H
#define HEED_VECTOR_ATTENTION_AHEAD_H

#include "attention_blocks.h"

enum { ATTEND_BURST = 16 }; /* cache lines; a row is prefetched whole */

/* `left` rows of `bytes` each, the first at a multiple of HEED__ALIGNMENT. */
typedef struct ahead_rows {
  const char *row;
  ptrdiff_t stride;
  int64_t bytes, left;
} ahead_rows;

enum { AHEAD_QUERIES, AHEAD_OUTPUTS, AHEAD_KEYS, AHEAD_VALUES, AHEAD_OPERANDS };

typedef struct attend_ahead {
  ahead_rows rows[AHEAD_OPERANDS];
} attend_ahead;

/* Rows from…to-1 of x, of n elements each; none if their columns are not contiguous. */
static void set_ahead(ahead_rows *rows, const void *x, heed_dtype dtype, ptrdiff_t row, ptrdiff_t column,
                      int64_t n, int64_t from, int64_t to) {
  const char *first = from < to ? element_at(x, dtype, from * row) : x;
  const ptrdiff_t bytes = (ptrdiff_t)heed__element_bytes(dtype),
                  skew = (ptrdiff_t)((uintptr_t)first % HEED__ALIGNMENT);
  *rows =
      (ahead_rows){first - skew, row * bytes, skew + n * bytes, column == 1 ? heed__max(to - from, 0) : 0};
}

static __attribute__((noinline)) void prefetch_burst(attend_ahead *ahead) {
  int64_t left = ATTEND_BURST * HEED__ALIGNMENT;
  for (ahead_rows *x = ahead->rows; x < ahead->rows + AHEAD_OPERANDS; x++)
    for (; left > 0 && x->left > 0; x->left--, x->row += x->stride, left -= x->bytes)
      for (int64_t at = 0; at < x->bytes; at += HEED__ALIGNMENT) __builtin_prefetch(x->row + at);
}

/* Prefetches up to ATTEND_BURST lines. */
static inline void prefetch_some(attend_ahead *ahead) {
  if (ahead->rows[AHEAD_OUTPUTS].left + ahead->rows[AHEAD_VALUES].left > 0) prefetch_burst(ahead);
}

/* Before the strips of a block: the block from key `next` on, of the keys below `end`; if there is none, the
 * first of the next task. */
static void look_ahead_of_block(const attend_work *a, int64_t next, int64_t end) {
  const heed__attention_task *t = a->t;
  ahead_rows *rows = a->ahead->rows;
  if (next >= end && t->soon) {
    t = t->soon;
    heed__attention_hull(t, t->first, t->last, &next, &end);
  }
  end = heed__min(end, round_down(next, a->block) + a->block);
  set_ahead(&rows[AHEAD_KEYS], t->k, t->k_dtype, t->k_row, t->k_column, t->head_size, next, end);
  set_ahead(&rows[AHEAD_VALUES], t->v, t->v_dtype, t->v_row, t->v_column, t->value_size, next, end);
}

/* Before strip s: the strip after it, which may be that of the next task. */
static void look_ahead_of_strip(const attend_work *a, const attend_strip *s) {
  const heed__attention_task *t = a->t;
  ahead_rows *rows = a->ahead->rows;
  int64_t next = t->first + s->row + ATTEND_STRIP;
  while (rows[AHEAD_OUTPUTS].left > 0) prefetch_burst(a->ahead);
  if (next >= t->last && t->soon) {
    t = t->soon;
    next = t->first;
  }
  const int64_t last = heed__min(next + ATTEND_STRIP, t->last);
  set_ahead(&rows[AHEAD_QUERIES], t->q, HEED_FLOAT32, t->q_row, t->q_column, t->head_size, next, last);
  set_ahead(&rows[AHEAD_OUTPUTS], t->out, HEED_FLOAT32, t->out_row, t->out_column, t->value_size, next, last);
}

#endif
