/* The intervals of keys that the rows of a call see: those of a mask value, or those found in a boolean mask,
 * which is read once for all heads that share it. */
#include "plan.h"

#include <string.h>

/* What a task found: intervals that contain hidden keys; rows with many keys outside of them. */
enum { SCAN_MERGED = 1, SCAN_GAINS = 2 };

enum {
  FOUND = 4,            /* most intervals of a row of a boolean mask */
  MERGES = 8,           /* merges after which a row has one interval */
  LEAST_GAIN = 64,      /* keys of a row outside of its intervals that are worth having these */
  SCANNED = 1 << 16,    /* bytes of a mask that a task reads */
  SCAN_ALONE = 1 << 20, /* bytes that one thread reads before another wakes up */
};

/* ---- Of a mask value ---- */

/* The queries of an item, or of all if the batch is a dimension, and the keys before the first one that the
 * mask counts, too. */
static heed__mask_call call_of(const heed__attention_plan *p, const heed__attention_item *item,
                               int64_t *skipped) {
  *skipped = p->operands->skipped_keys + (item ? item->skipped : 0);
  if (!item)
    return (heed__mask_call){
        .l = p->query_length, .s = p->key_length + *skipped, .offset = p->offset + *skipped};
  const int64_t before = p->packed ? item->first_query : 0;
  return (heed__mask_call){.l = item->query_length,
                           .s = item->key_length + *skipped,
                           .offset = heed__attention_offset_of(p, item) + *skipped,
                           .before = before,
                           .behind = p->query_length - before - item->query_length,
                           .spare = p->key_length - item->key_length};
}

/* Whether kv_lengths shift the positions of queries. */
static bool shifts(const heed__attention_plan *p) {
  return p->operands->options.kv_lengths && !p->operands->same_tokens;
}

static heed_status check_mask_value(const heed__attention_plan *p, const heed_mask *mask) {
  heed_status status = HEED_OK;
  int64_t skipped;
  for (int64_t i = 0; i < (p->items ? p->item_count : 1) && !status; i++) {
    const heed__mask_call call = call_of(p, p->items ? &p->items[i] : NULL, &skipped);
    status = heed__mask_check(p->context, p->operands->function, mask, &call, !shifts(p));
  }
  return status;
}

/* The sizes before l of the intervals, which broadcast to [batch..., hq]. */
static heed_status leading_sizes(const heed__attention_plan *p, const heed_mask *mask, int *ndim,
                                 int64_t *shape) {
  const heed_tensor *lengths = p->operands->options.kv_lengths;
  const int most = p->ndim - 2;
  *ndim = 0;
  bool fits = heed__mask_broadcast(mask, ndim, shape);
  if (fits && p->items && !p->packed)
    fits = heed__broadcast(ndim, shape, 2, (const int64_t[]){p->item_count, 1});
  if (fits && shifts(p) && p->batch_ndim > 0) {
    int64_t own[HEED_MAX_DIMS];
    const int dims = lengths->ndim + p->head_dims;
    for (int d = 0; d < dims; d++) own[d] = d < lengths->ndim ? lengths->shape[d] : 1;
    fits = heed__broadcast(ndim, shape, dims, own);
  }
  int64_t all[HEED_MAX_DIMS];
  int all_ndim = most;
  for (int d = 0; d < most; d++) all[d] = p->shape[d];
  if (fits && *ndim <= most) {
    fits = heed__broadcast(&all_ndim, all, *ndim, shape);
    for (int d = 0; fits && d < most; d++) fits = all[d] == p->shape[d];
    if (fits) return HEED_OK;
  }
  char have[HEED__SHAPE_TEXT], need[HEED__SHAPE_TEXT];
  return heed__fail(
      p->context, HEED_SHAPE, "%s: the leading sizes of mask.intervals are %s; they must broadcast to %s",
      p->operands->function, heed__shape_text(have, *ndim, shape), heed__shape_text(need, most, p->shape));
}

/* By how much kv_lengths shift the queries of the item of `lead`. */
static int64_t shift_of(const heed__attention_plan *p, int ndim, const int64_t *lead) {
  if (!shifts(p)) return 0;
  const heed_tensor *lengths = p->operands->options.kv_lengths;
  const int batch = ndim - p->head_dims;
  const int64_t *x = (const int64_t *)(const void *)lengths->data;
  for (int d = 0; d < lengths->ndim && batch > 0; d++)
    if (lengths->shape[d] > 1) x += lead[batch - lengths->ndim + d] * lengths->stride[d];
  return *x - p->query_length;
}

/* Stores a row without the keys before `skipped`. */
static void store_row(int32_t *to, int64_t most, const int32_t *x, int64_t n, int64_t skipped) {
  int64_t k = 0;
  int32_t end = 0;
  for (int64_t i = 0; i < n; i++) {
    const int64_t first = heed__max(x[2 * i] - skipped, 0), last = x[2 * i + 1] - skipped;
    if (last <= first) continue;
    to[2 * k] = (int32_t)first;
    to[2 * k++ + 1] = end = (int32_t)last;
  }
  for (; k < most; k++) to[2 * k] = to[2 * k + 1] = end;
}

/* Allocates intervals for rows of the sizes [lead..., rows], and `more` further words, in *behind. */
static heed_status new_intervals(heed__attention_plan *p, int ndim, const int64_t *lead, int64_t rows,
                                 int64_t most, size_t more, int32_t **behind) {
  double words = (double)rows * (double)most * 2;
  for (int d = 0; d < ndim; d++) words *= (double)lead[d];
  const bool fits = words + (double)more < (double)(PTRDIFF_MAX / sizeof(int32_t));
  const size_t own = fits ? (size_t)words : 0,
               bytes = fits ? heed__array_bytes(own + more, sizeof(int32_t)) : PTRDIFF_MAX;
  p->intervals = heed__allocate(p->context, bytes);
  if (!p->intervals) return heed__fail_memory(p->context, p->operands->function, bytes);
  *behind = p->intervals + own;
  heed_tensor *x = &p->interval_header;
  memset(x, 0, sizeof *x);
  x->ndim = ndim + 2;
  for (int d = 0; d < ndim; d++) x->shape[d] = lead[d];
  x->shape[ndim] = rows;
  x->shape[ndim + 1] = 2 * most;
  int64_t stride = 1;
  for (int d = ndim + 1; d >= 0; d--) {
    x->stride[d] = stride;
    stride *= x->shape[d];
  }
  p->interval_count = most;
  return HEED_OK;
}

/* Intervals that are being stored. */
typedef struct mask_writer {
  const heed_mask *mask;
  heed__mask_buffers buffers;
  int ndim;
  int64_t lead[HEED_MAX_DIMS], most;
  int32_t *to;
  int64_t rows; /* so far */
} mask_writer;

/* Stores the rows of an item, or of all if the batch is a dimension. False if stopped at a cancellation
 * check.
 */
static bool store_rows(const heed__attention_plan *p, mask_writer *w, const heed__attention_item *item) {
  int64_t skipped;
  heed__mask_call call = call_of(p, item, &skipped);
  call.offset += shift_of(p, w->ndim, w->lead);
  for (int64_t i = 0; i < call.l; i++, w->to += 2 * w->most) {
    const int32_t *x;
    const int64_t n = heed__mask_row(w->mask, &call, w->ndim, w->lead, i, &w->buffers, &x);
    store_row(w->to, w->most, x, n, skipped);
    if ((++w->rows % 1024 == 0 || w->most > 64) && heed__is_due(&p->context->pace)) return false;
  }
  return true;
}

/* The rows of [..., l] for one index of the leading sizes. */
static bool store_lead(const heed__attention_plan *p, mask_writer *w) {
  if (p->packed) {
    for (int64_t i = 0; i < p->item_count; i++)
      if (!store_rows(p, w, &p->items[i])) return false;
    return true;
  }
  const heed__attention_item *item = p->items ? &p->items[w->lead[w->ndim - 2]] : NULL;
  if (!store_rows(p, w, item)) return false;
  const int64_t spare = item ? p->query_length - item->query_length : 0;
  memset(w->to, 0, (size_t)(spare * 2 * w->most) * sizeof *w->to);
  w->to += spare * 2 * w->most;
  return true;
}

heed_status heed__attention_add_mask(heed__attention_plan *p) {
  const heed_mask *mask = p->operands->options.mask;
  const char *function = p->operands->function;
  mask_writer w = {.mask = mask, .most = heed__mask_most(mask)};
  int64_t shape[HEED_MAX_DIMS + 2], leads = 1;
  heed_status status = check_mask_value(p, mask);
  if (status || w.most == 0) return status;
  if ((status = leading_sizes(p, mask, &w.ndim, shape))) return status;
  status = new_intervals(p, w.ndim, shape, p->query_length, w.most, heed__mask_buffer_words(w.most), &w.to);
  if (status) return status;
  heed__mask_set_buffers(&w.buffers, w.to, w.most);
  w.to = p->intervals;
  for (int d = 0; d < w.ndim; d++) leads *= shape[d];
  for (int64_t i = 0; i < leads; i++) {
    int64_t rest = i;
    for (int d = w.ndim - 1; d >= 0; d--) {
      w.lead[d] = rest % shape[d];
      rest /= shape[d];
    }
    if (!store_lead(p, &w)) return heed__stopped(p->context, function);
  }
  return HEED_OK;
}

/* ---- Of a boolean mask ---- */

static bool has_zero(uint64_t x) {
  return ((x - 0x0101010101010101u) & ~x & 0x8080808080808080u) != 0;
}

/* The first j from `from` on whose byte is set, or is 0; n if there is none. */
static int64_t find_byte(const uint8_t *x, int64_t from, int64_t n, bool set) {
  int64_t j = from;
  for (; j + 32 <= n; j += 32) {
    uint64_t word[4];
    memcpy(word, x + j, sizeof word);
    if (set ? (word[0] | word[1] | word[2] | word[3]) != 0
            : has_zero(word[0]) || has_zero(word[1]) || has_zero(word[2]) || has_zero(word[3]))
      break;
  }
  while (j < n && (x[j] != 0) != set) j++;
  return j;
}

/* Joins the two of `count` intervals that have the fewest keys between them. */
static void join_nearest(int32_t *x, int64_t count) {
  int64_t at = 0;
  for (int64_t k = 1; k + 1 < count; k++)
    if (x[2 * k + 2] - x[2 * k + 1] < x[2 * at + 2] - x[2 * at + 1]) at = k;
  x[2 * at + 1] = x[2 * at + 3];
  memmove(x + 2 * at + 2, x + 2 * at + 4, (size_t)(2 * (count - at - 2)) * sizeof *x);
}

/* The intervals of bytes first…last-1 of a row, at most FOUND; false if they contain bytes that are 0. */
static bool scan_row(int32_t *to, const uint8_t *x, int64_t first, int64_t last) {
  int32_t found[2 * (FOUND + 1)] = {0};
  int64_t n = 0, merges = 0;
  for (int64_t j = find_byte(x, first, last, true); j < last; j = find_byte(x, j, last, true)) {
    found[2 * n] = (int32_t)j;
    found[2 * n++ + 1] = (int32_t)(j = find_byte(x, j, last, false));
    if (n <= FOUND) continue;
    join_nearest(found, n--);
    if (++merges < MERGES) continue;
    while (last > j && x[last - 1] == 0) last--;
    found[1] = (int32_t)last;
    n = 1;
    break;
  }
  store_row(to, FOUND, found, n, 0);
  return merges == 0;
}

/* Whether many of the keys first…last-1 are outside of the intervals. */
static bool gains(const int32_t *intervals, int64_t first, int64_t last) {
  int64_t left = last - first;
  for (int k = 0; k < FOUND; k++) left -= intervals[2 * k + 1] - intervals[2 * k];
  return left >= LEAST_GAIN;
}

/* The rows of a task. */
static int64_t scan_rows(const heed__attention_plan *p) {
  return heed__max(SCANNED / heed__max(p->key_length, 1), 1);
}

static bool run_scan(void *plan, int64_t task, int slot, int64_t *position) {
  heed__attention_plan *p = plan;
  const heed_tensor *x = &p->interval_header;
  const int ndim = x->ndim - 2, rows_dim = ndim;
  const int64_t rows = scan_rows(p), all = x->numel, l = x->shape[rows_dim];
  const bool window = l == p->query_length && !p->lengths && !p->items;
  uint8_t found = 0;
  (void)slot, (void)position;
  for (int64_t row = task * rows; row < heed__min((task + 1) * rows, all); row++) {
    const uint8_t *from = (const uint8_t *)p->mask.data;
    int64_t rest = row, first = 0, last = p->key_length;
    for (int d = rows_dim; d >= 0; d--) {
      const int64_t next = heed__quotient(rest, x->shape[d]);
      from += (rest - next * x->shape[d]) * (x->shape[d] > 1 ? p->mask.stride[d] : 0);
      rest = next;
    }
    if (window) heed__attention_window(&p->task, row % l, &first, &last);
    int32_t *to = p->intervals + row * 2 * FOUND;
    if (!scan_row(to, from, first, last)) found |= SCAN_MERGED;
    if (gains(to, first, last)) found |= SCAN_GAINS;
  }
  p->found[task] = found;
  return true;
}

heed_status heed__attention_scan_begin(heed__attention_plan *p, int workers) {
  const heed_tensor *mask = &p->mask;
  const int ndim = mask->ndim - 2;
  int64_t lead[HEED_MAX_DIMS], rows = 1;
  if (!p->task.visible || p->intervals || p->task.visible_column != 1 || p->key_length > INT32_MAX)
    return HEED_OK;
  for (int64_t i = 0; i < p->item_count; i++)
    if (p->items[i].skipped > 0) return HEED_OK; /* its columns are not those of the mask */
  for (int d = 0; d <= ndim; d++) {
    lead[d] = mask->stride[d] == 0 ? 1 : mask->shape[d];
    rows *= lead[d];
  }
  const int64_t tasks = heed__quotient(rows + scan_rows(p) - 1, scan_rows(p));
  int32_t *behind = NULL;
  const heed_status status = new_intervals(p, ndim, lead, lead[ndim], FOUND, (size_t)tasks / 4 + 1, &behind);
  if (status) return status;
  p->interval_header.numel = rows;
  p->found = (uint8_t *)behind;
  heed__attention_set_intervals(p);
  if (rows * p->key_length < SCAN_ALONE) workers = 1;
  heed__work_begin(p->context, &p->scan_work, workers, tasks, run_scan, p);
  p->scan_tasks = tasks;
  p->scans = true;
  return HEED_OK;
}

bool heed__attention_scan_run(heed__attention_plan *p) {
  if (!p->scans) return true;
  if (!heed__work_run(p->context, &p->scan_work)) return false;
  uint8_t found = 0;
  for (int64_t i = 0; i < p->scan_tasks; i++) found |= p->found[i];
  if (!(found & SCAN_MERGED)) p->task.visible = NULL; /* the intervals say all */
  if (found == SCAN_MERGED) {
    p->task.intervals = NULL;
    p->task.interval_count = 0;
  }
  heed__attention_scan_end(p);
  return true;
}

void heed__attention_scan_end(heed__attention_plan *p) {
  if (p->scans) heed__work_end(p->context, &p->scan_work);
  p->scans = false;
}
