/* The keys of a block that a strip of rows sees, in the fused attention kernel (attention.h). All masks
 * become one bit per row and key, so for each strip a block is skipped, fully visible, or partly visible. */
#ifndef HEED_VECTOR_ATTENTION_MASKS_H
#define HEED_VECTOR_ATTENTION_MASKS_H

#include "attention_blocks.h"

static unsigned first_bits(int64_t n) {
  return (1u << heed__min(heed__max(n, 0), ATTEND_WORD)) -
         1u; /* branch-free, as a branch would be mispredicted */
}

/* One bit for each of the first n bytes, at most ATTEND_WORD, set where the byte is not 0. */
static unsigned bits_of_bytes(const uint8_t *x, ptrdiff_t stride, int64_t n) {
  unsigned bits = 0;
  for (int64_t i = 0; i < n && i < ATTEND_WORD; i++) bits |= (unsigned)(x[i * stride] != 0) << i;
  return bits;
}

static unsigned bits_above_minus_infinity(const float *x) {
  unsigned bits = 0;
  for (int i = 0; i < ATTEND_WORD; i += V_LANES)
    bits |= v_mask_bits(v_not_mask(v_eq(v_load(x + i), v_set(-INFINITY)))) << i;
  return bits;
}

/* Copies values low…high-1 of a row of the bias and pads them with zeros to a multiple of ATTEND_WORD; low is
 * one. Returns whether any is -inf. */
static bool copy_bias(float *out, const float *x, ptrdiff_t stride, int64_t low, int64_t high) {
  vfloat least = v_zero();
  int64_t j = low;
  if (stride == 1) {
    for (; j + V_LANES <= high; j += V_LANES) {
      const vfloat y = v_load(x + j);
      v_store(out + j, y);
      least = v_min(y, least); /* ignores nan */
    }
  }
  float lowest = -v_highest(v_neg(least));
  for (; j < high; j++) {
    out[j] = x[j * stride];
    lowest = out[j] < lowest ? out[j] : lowest;
  }
  for (; j % ATTEND_WORD != 0; j++) out[j] = 0.0f;
  return lowest == -INFINITY;
}

/* A word with bits start…end-1 set. */
static unsigned bits_between(int64_t start, int64_t end) {
  return first_bits(end) & ~first_bits(start);
}

/* Clears the bits of n words where the byte is 0, or, with `flip` of all bits, where it is not. x has `end`
 * bytes. */
static void clear_bits(uint16_t *words, int64_t n, const uint8_t *x, ptrdiff_t stride, int64_t end,
                       unsigned flip) {
  for (int64_t w = 0; w < n; w++) {
    const int64_t at = w * ATTEND_WORD, there = end - at;
    const uint8_t *byte = x + at * stride;
    const unsigned bits =
        stride == 1 && there >= ATTEND_WORD ? v_bits_of_bytes(byte) : bits_of_bytes(byte, stride, there);
    words[w] &= (uint16_t)(bits ^ flip);
  }
}

/* Clears the bits of n words from key `first` on that are between intervals. */
static void clear_outside(uint16_t *words, int64_t n, const int32_t *intervals, int64_t count,
                          int64_t first) {
  const int64_t last = first + n * ATTEND_WORD;
  for (int64_t k = 0; k + 1 < count; k++) {
    const int64_t from = heed__max(intervals[2 * k + 1], first) - first,
                  to = heed__min(intervals[2 * k + 2], last) - first;
    for (int64_t w = from / ATTEND_WORD; w * ATTEND_WORD < to; w++)
      words[w] &= (uint16_t)~bits_between(from - w * ATTEND_WORD, to - w * ATTEND_WORD);
    if (intervals[2 * k + 2] >= last) break;
  }
}

/* The keys that each row of a strip sees by position, from the beginning of its intervals to their end, and
 * in the block. */
typedef struct strip_bounds {
  int64_t start[ATTEND_STRIP], end[ATTEND_STRIP];
} strip_bounds;

/* Sets the words of keys from…to-1 for query i, row r of the strip. */
V_INLINE void see_row(const attend_work *a, seen *e, const strip_bounds *b, int64_t i, int r, int64_t from,
                      int64_t to, const bool masked) {
  const heed__attention_task *t = a->t;
  const int64_t n = (to - from + ATTEND_WORD - 1) / ATTEND_WORD, first = e->first + from;
  const int64_t start = b->start[r] - first, end = b->end[r] - first;
  uint16_t *words = e->bit[r] + from / ATTEND_WORD;
  words[0] = (uint16_t)bits_between(start, end);
  if (n > 1) words[1] = (uint16_t)bits_between(start - ATTEND_WORD, end - ATTEND_WORD);
  for (int64_t w = 2; w < n; w++)
    words[w] = (uint16_t)bits_between(start - w * ATTEND_WORD, end - w * ATTEND_WORD);
  if (t->interval_count > 1)
    clear_outside(words, n, heed__attention_intervals(t, i), t->interval_count, first);
  if (!masked) return;
  if (t->visible)
    clear_bits(words, n, t->visible + i * t->visible_row + first * t->visible_column, t->visible_column, end,
               0);
  if (t->padding)
    clear_bits(words, n, t->padding + first * t->padding_stride, t->padding_stride, end, 0xffffu);
  for (int64_t w = 0; t->bias && w < n; w++)
    words[w] &= (uint16_t)bits_above_minus_infinity(a->bias + r * ATTEND_STRIDE + from + w * ATTEND_WORD);
}

/* The same for all rows of the strip from query i0 on. */
V_INLINE void see_rows(const attend_work *a, seen *e, const strip_bounds *b, int64_t i0, int64_t from,
                       int64_t to, const bool masked) {
  for (int r = 0; from < to && r < ATTEND_STRIP; r++)
    see_row(a, e, b, heed__min(i0 + r, a->t->last - 1), r, from, to, masked);
}
static void see_window(const attend_work *a, seen *e, const strip_bounds *b, int64_t i0, int64_t from,
                       int64_t to) {
  see_rows(a, e, b, i0, from, to, false);
}
static void see_masked(const attend_work *a, seen *e, const strip_bounds *b, int64_t i0, int64_t from,
                       int64_t to) {
  see_rows(a, e, b, i0, from, to, true);
}

/* Tightens the bounds by the bits: low and high exclude the leading and trailing words that no row sees, and
 * the words after low that all rows see become sure. */
static void trim(seen *e) {
  const int64_t first = e->low / ATTEND_WORD, last = (e->high + ATTEND_WORD - 1) / ATTEND_WORD;
  int64_t low = last, high = first, sure = first;
  uint16_t any[ATTEND_WORDS], all[ATTEND_WORDS];
  _Static_assert(ATTEND_STRIP == 6, "six rows");
  for (int64_t w = first; w < last; w++) {
    any[w] = e->bit[0][w] | e->bit[1][w] | e->bit[2][w] | e->bit[3][w] | e->bit[4][w] | e->bit[5][w];
    all[w] = e->bit[0][w] & e->bit[1][w] & e->bit[2][w] & e->bit[3][w] & e->bit[4][w] & e->bit[5][w];
  }
  for (int64_t w = first; w < last; w++) {
    if (any[w] == 0) continue;
    if (low > w) low = sure = w;
    high = w + 1;
    if (all[w] == 0xffffu && sure == w) sure = high;
  }
  e->low = e->sure_first = low * ATTEND_WORD;
  e->weighed = heed__max(e->weighed, e->low);
  e->sure_last = sure * ATTEND_WORD;
  e->high = heed__min(e->high, high * ATTEND_WORD);
}

/* Rows that pad the last strip see the keys that the last row sees. */
static int64_t row_of(const heed__attention_task *t, int64_t i) {
  return i < t->last ? i : t->last - 1;
}

/* The keys *from … *to - 1 among begin…end-1 between which are all that row i sees by position and intervals.
 * Returns whether it sees them all. */
static bool part_of_row(const heed__attention_task *t, int64_t i, int64_t begin, int64_t end, int64_t *from,
                        int64_t *to) {
  heed__attention_bounds(t, i, from, to);
  *from = heed__max(*from, begin);
  *to = heed__min(*to, end);
  if (t->interval_count == 1) return true;
  const int32_t *x = heed__attention_intervals(t, i), *behind = x + 2 * t->interval_count;
  while (x < behind && x[1] <= *from) x += 2;
  if (x == behind || x[0] >= *to) {
    *to = *from;
    return true;
  }
  *from = heed__max(*from, x[0]);
  int64_t last = x[1];
  bool whole = true;
  for (x += 2; x < behind && x[0] < *to && x[0] < x[1]; x += 2) {
    last = x[1];
    whole = false;
  }
  *to = heed__min(*to, last);
  return whole;
}

/* Narrows the block to the keys between those that the task's rows see by position and intervals; begin stays
 * a multiple of ATTEND_WORD. Returns the first key from the block's on that a row sees, perhaps behind it; or
 * the number of keys. */
static int64_t narrow_block(seen *e, const heed__attention_task *t) {
  const int64_t begin = e->first + e->begin, end = e->first + e->count;
  int64_t next = t->key_length, high = begin;
  for (int64_t i = t->first; i < t->last && (next > begin || high < end); i++) {
    int64_t from, to;
    (void)part_of_row(t, i, begin, t->key_length, &from, &to);
    if (from >= to) continue;
    next = heed__min(next, from);
    if (from >= end) continue;
    if (to > end) (void)part_of_row(t, i, begin, end, &from, &to);
    high = heed__max(high, to);
  }
  e->begin = heed__max(e->begin, round_down(heed__min(next, end) - e->first, ATTEND_WORD));
  e->count = high - e->first;
  return next;
}

/* The same for block *block of `blocks` of `size` keys from `start` on. If it is empty, and neither the first
 * nor the last, *block becomes the last of those that are, before the next that is not. */
static bool skips_block(seen *e, const heed__attention_task *t, int64_t start, int64_t size, int64_t blocks,
                        int64_t *block) {
  const int64_t next = (narrow_block(e, t) - start) / size;
  if (e->begin < e->count || *block == 0 || *block == blocks - 1) return false;
  *block = heed__max(*block, heed__min(next, blocks - 1) - 1);
  return true;
}

/* Sets the bounds of the rows of the strip from query i0 on. */
static void set_bounds(strip_bounds *b, const heed__attention_task *t, const seen *e, int64_t i0) {
  const int64_t begin = e->first + e->begin, end = e->first + e->count;
  for (int r = 0; r < ATTEND_STRIP; r++) {
    heed__attention_bounds(t, row_of(t, i0 + r), &b->start[r], &b->end[r]);
    b->start[r] = heed__max(b->start[r], begin);
    b->end[r] = heed__min(b->end[r], end);
  }
}

/* Tightens the bounds of rows with several intervals. Returns whether any of these is partly hidden. */
static bool see_intervals(strip_bounds *b, const heed__attention_task *t, const seen *e, int64_t i0) {
  const int64_t begin = e->first + e->begin, end = e->first + e->count;
  bool several = false;
  for (int r = 0; r < ATTEND_STRIP; r++)
    several |= !part_of_row(t, row_of(t, i0 + r), begin, end, &b->start[r], &b->end[r]);
  return several;
}

/* Sets the keys of block e that the strip from row i0 on (of l) sees; none if high <= low. */
static void see(const attend_work *a, seen *e, int64_t i0) {
  const heed__attention_task *t = a->t;
  int64_t from = e->first + e->count, sure_to = from, to = e->first + e->begin, sure_from = to;
  bool masked = t->visible || t->padding;
  strip_bounds b;
  set_bounds(&b, t, e, i0);
  if (t->interval_count > 1) masked |= see_intervals(&b, t, e, i0);
  for (int r = 0; r < ATTEND_STRIP; r++) {
    const bool sees = b.start[r] < b.end[r];
    sure_from = heed__max(sure_from, b.start[r]);
    sure_to = heed__min(sure_to, b.end[r]);
    from = sees ? heed__min(from, b.start[r]) : from;
    to = sees ? heed__max(to, b.end[r]) : to;
  }
  e->low = round_down(heed__max(from - e->first, e->begin), ATTEND_WORD);
  e->high = heed__min(to - e->first, e->count);
  if (e->high <= e->low) return;
  e->weighed = heed__max(from - e->first, e->low);
  e->sure_first = round_up(heed__max(sure_from - e->first, e->begin), ATTEND_WORD);
  e->sure_last = round_down(heed__min(sure_to - e->first, e->count), ATTEND_WORD);
  for (int r = 0; t->bias && r < ATTEND_STRIP; r++)
    masked |= copy_bias(a->bias + r * ATTEND_STRIDE,
                        t->bias + row_of(t, i0 + r) * t->bias_row + e->first * t->bias_column, t->bias_column,
                        e->low, e->high);
  if (masked || e->sure_first >= e->sure_last) e->sure_first = e->sure_last = e->low;
  if (e->sure_first <= e->low && e->sure_last >= e->high) return;
  const bool shown = !t->visible && !t->padding && !t->bias;
  (shown ? see_window : see_masked)(a, e, &b, i0, e->low, e->sure_first);
  (shown ? see_window : see_masked)(a, e, &b, i0, e->sure_last, e->high);
  if (masked) trim(e);
}

#endif
