/* Attention over parts of the keys, and merging the parts. Each part has its output and, for each query,
 * row_max and row_sum: the largest score and the sum of e^(score - row_max). Source: arXiv:2112.05682. */
#include "plan.h"

#include <string.h>

enum {
  MERGE_PIECE = 1 << 15, /* floats of one part that a task merges */
  MERGE_ALONE = 1 << 18, /* up to this number of floats of all parts one thread does it alone */
};
static const int64_t farthest = (int64_t)1 << 53;

/* ---- Parts ---- */

/* Results that were new are freed after an error. */
static heed_status only_whole(heed_status status, bool is_new, heed_tensor **out) {
  if (status == HEED_OK || !is_new) return status;
  heed_tensor_free(*out);
  *out = NULL;
  return status;
}

static heed_status check_offset(heed_context *ctx, const char *function, int64_t offset) {
  if (offset >= -farthest && offset <= farthest) return HEED_OK;
  return heed__fail(ctx, HEED_ARGUMENT, "%s: offset is %lld; it must be from -2^53 to 2^53", function,
                    (long long)offset);
}

heed_status heed_attention_partial(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                   const heed_tensor *v, const heed_attention_options *options,
                                   int64_t offset, heed_tensor **out, heed_tensor **stats) {
  static const char function[] = "attention_partial";
  HEED__ENTER(ctx, function, q, k, v, out, stats);
  heed__attention_operands operands = {
      .function = function, .q = q, .k = k, .v = v, .offset = offset, .same_tokens = true, .stats = stats};
  const bool new_out = *out == NULL, new_stats = *stats == NULL;
  heed_status status = heed__attention_read_options(ctx, function, options, &operands);
  if (!status) status = check_offset(ctx, function, offset);
  if (!status) status = heed__check_apart(ctx, function, out, stats);
  if (status) return status;
  status = heed__attention_drawing(ctx, &operands, heed__attention, out);
  status = only_whole(status, new_out, out);
  return only_whole(status, new_stats, stats);
}

#if !HEED_MINIMAL

/* Raises unless the output and the log-sums of the whole, and the gradient of the output, are those of such a
 * call. */
static heed_status check_of_whole(heed_context *ctx, const heed__attention_operands *operands,
                                  const heed__attention_saved *saved, const heed_tensor *dout) {
  heed__attention_plan plan;
  memset(&plan, 0, sizeof plan);
  plan.context = ctx;
  plan.operands = operands;
  heed_status status = heed__attention_check(&plan);
  const heed_tensor *const given[] = {saved->out, dout, saved->lse};
  static const char *const names[] = {"out", "dout", "lse"};
  for (int i = 0; i < 3 && !status; i++) {
    const int ndim = i < 2 ? plan.ndim : plan.ndim - 1;
    char have[HEED__SHAPE_TEXT], need[HEED__SHAPE_TEXT];
    if (given[i]->dtype != HEED_FLOAT32 ||
        !heed__same_shape(given[i]->ndim, given[i]->shape, ndim, plan.shape) ||
        !heed_tensor_is_contiguous(given[i]))
      status = heed__fail(ctx, HEED_SHAPE, "%s: %s is %s %s; it must be float32 %s, contiguous",
                          operands->function, names[i], heed_dtype_name(given[i]->dtype),
                          heed__shape_text(have, given[i]->ndim, given[i]->shape),
                          heed__shape_text(need, ndim, plan.shape));
  }
  heed__attention_free_operands(&plan);
  return status;
}

heed_status heed__attention_part_backward(heed_context *ctx, const heed_tensor *q, const heed_tensor *k,
                                          const heed_tensor *v, const heed_attention_options *options,
                                          int64_t offset, const heed__attention_saved *saved,
                                          const heed_tensor *dout, unsigned wanted,
                                          heed_tensor *dx[HEED__ATTENTION_GRADIENTS]) {
  static const char function[] = "attention_partial";
  heed__attention_operands operands = {
      .function = function, .q = q, .k = k, .v = v, .offset = offset, .same_tokens = true};
  heed__attention_saved own = *saved;
  heed_tensor *out = NULL, *kept = NULL;
  heed_status status = heed__attention_read_options(ctx, function, options, &operands);
  if (!status) status = check_offset(ctx, function, offset);
  if (!status) status = check_of_whole(ctx, &operands, saved, dout);
  if (!status && options->dropout_p > 0) { /* draws again */
    operands.kept = &kept;
    status = heed__attention_drawing(ctx, &operands, heed__attention, &out);
    operands.kept = NULL;
    own.kept = kept;
  }
  if (!status) status = heed__attention_backward(ctx, &operands, &own, dout, wanted, dx);
  heed_tensor_free(out);
  heed_tensor_free(kept);
  return status;
}

#endif

/* ---- Merging rows ---- */

/* The weights of the parts in row i, relative to the largest row_max, *most; returns their sum. */
static float weigh_parts(const heed__merge *m, int64_t i, float *weight, float *most) {
  float total = 0.0f;
  *most = -INFINITY;
  for (int n = 0; n < m->count; n++)
    if (m->stats[n][2 * i] > *most) *most = m->stats[n][2 * i];
  for (int n = 0; n < m->count; n++) {
    const float row_max = m->stats[n][2 * i], row_sum = m->stats[n][2 * i + 1];
    weight[n] = row_sum == 0.0f ? 0.0f : row_sum * expf(row_max - *most);
    total += weight[n];
  }
  return total;
}

static void merge_row(const heed__merge *m, int64_t i) {
  const int64_t dv = m->value_size;
  float *restrict out = m->merged_out + i * dv, weight[HEED__MERGED], most;
  const float total = weigh_parts(m, i, weight, &most);
  m->merged_stats[2 * i] = most;
  m->merged_stats[2 * i + 1] = total;
  for (int64_t c = 0; c < dv; c++) out[c] = 0.0f;
  for (int n = 0; n < m->count; n++) {
    const float *restrict x = m->out[n] + i * dv, share = weight[n] / total;
    if (weight[n] == 0.0f) continue;
    for (int64_t c = 0; c < dv; c++) out[c] += share * x[c];
  }
}

/* With a = weight / total, which sum to 1: dout_n = a_n · dout, and the gradient of the logarithm of a part's
 * sum is a_n · dout · (out_n - out) + weight_n · dtotal. The largest row_max has the rest of the gradient of
 * `most`, which is 0 if only most + log total matters. */
static void merge_row_backward(const heed__merge *m, int64_t i) {
  const int64_t dv = m->value_size;
  const float *dout = m->dmerged_out ? m->dmerged_out + i * dv : NULL;
  const float dmost = m->dmerged_stats ? m->dmerged_stats[2 * i] : 0.0f,
              dtotal = m->dmerged_stats ? m->dmerged_stats[2 * i + 1] : 0.0f;
  float weight[HEED__MERGED], most;
  const float total = weigh_parts(m, i, weight, &most);
  const size_t size = (size_t)dv;
  const float of_out = dout ? m->kernels->dot(dout, 1, m->merged_out + i * dv, 1, size) : 0.0f;
  bool rest = true; /* of `most` is not given to a part yet */
  for (int n = 0; n < m->count; n++) {
    const bool sees = weight[n] != 0.0f;
    const float share = sees ? weight[n] / total : 0.0f;
    for (int64_t c = 0; m->dout[n] && c < dv; c++)
      m->dout[n][i * dv + c] = dout && sees ? share * dout[c] : 0.0f;
    if (!m->dstats[n]) continue;
    float *d = m->dstats[n] + 2 * i;
    d[0] = d[1] = 0.0f;
    if (!sees) continue;
    float dlog = dtotal * weight[n];
    if (dout) dlog += share * (m->kernels->dot(dout, 1, m->out[n] + i * dv, 1, size) - of_out);
    d[0] = dlog;
    d[1] = dlog / m->stats[n][2 * i + 1];
    if (rest && m->stats[n][2 * i] == most) {
      d[0] += dmost - total * dtotal;
      rest = false;
    }
  }
}

typedef struct merging {
  const heed__merge *merge;
  int64_t rows; /* of a task */
  void (*row)(const heed__merge *m, int64_t i);
} merging;

static bool merge_rows(void *argument, int64_t task, int slot, int64_t *position) {
  const merging *m = argument;
  const int64_t first = task * m->rows, last = heed__min(first + m->rows, m->merge->rows);
  (void)slot, (void)position;
  for (int64_t i = first; i < last; i++) m->row(m->merge, i);
  return true;
}

bool heed__attention_merge(heed_context *ctx, heed__merge *merge, bool backward) {
  const int64_t floats = merge->value_size + 2;
  const merging m = {.merge = merge,
                     .rows = heed__max(MERGE_PIECE / heed__min(floats, MERGE_PIECE), 1),
                     .row = backward ? merge_row_backward : merge_row};
  const double all = (double)merge->rows * (double)floats * (double)merge->count;
  heed__work work;
  merge->kernels = heed__kernels_of(ctx);
  heed__work_begin(ctx, &work, all <= MERGE_ALONE ? 1 : heed__workers(ctx), heed__parts(merge->rows, m.rows),
                   merge_rows, (void *)(uintptr_t)&m);
  const bool done = heed__work_run(ctx, &work);
  heed__work_end(ctx, &work);
  return done;
}

/* ---- Merging tensors ---- */

static heed_status check_part(heed_context *ctx, const char *function, int i, const heed_tensor *out,
                              const heed_tensor *stats, const heed_tensor *like) {
  char first[HEED__SHAPE_TEXT], text[HEED__SHAPE_TEXT];
  const int last = like->ndim - 1;
  if (out->dtype != HEED_FLOAT32 || stats->dtype != HEED_FLOAT32)
    return heed__fail(ctx, HEED_DTYPE, "%s: %s[%d] is %s; it must be float32", function,
                      out->dtype != HEED_FLOAT32 ? "outs" : "stats", i + 1,
                      heed_dtype_name(out->dtype != HEED_FLOAT32 ? out->dtype : stats->dtype));
  if (like->ndim < 2)
    return heed__fail(ctx, HEED_SHAPE, "%s: outs[%d] is %s; it must have at least 2 dimensions, [..., l, dv]",
                      function, i + 1, heed__shape_text(text, out->ndim, out->shape));
  if (!heed__same_shape(out->ndim, out->shape, like->ndim, like->shape))
    return heed__fail(ctx, HEED_SHAPE, "%s: outs[%d] is %s and outs[1] is %s; the shapes must be equal",
                      function, i + 1, heed__shape_text(text, out->ndim, out->shape),
                      heed__shape_text(first, like->ndim, like->shape));
  if (stats->ndim != like->ndim || !heed__same_shape(last, stats->shape, last, like->shape) ||
      stats->shape[last] != 2)
    return heed__fail(
        ctx, HEED_SHAPE,
        "%s: stats[%d] is %s and outs[%d] is %s; the sizes must be equal, but the last of stats "
        "must be 2",
        function, i + 1, heed__shape_text(text, stats->ndim, stats->shape), i + 1,
        heed__shape_text(first, out->ndim, out->shape));
  return HEED_OK;
}

/* Merges at most HEED__MERGED parts, which were checked. */
static heed_status merge_some(heed_context *ctx, const char *function, int count,
                              const heed_tensor *const *outs, const heed_tensor *const *stats,
                              heed_tensor **merged, heed_tensor **merged_stats) {
  const heed_tensor *input[2 * HEED__MERGED], *view;
  heed_tensor *made[2 * HEED__MERGED] = {NULL};
  heed__result out = {0}, sums = {0};
  const bool new_out = *merged == NULL, new_stats = *merged_stats == NULL;
  const int last = outs[0]->ndim - 1;
  heed__merge merge = {.count = count, .value_size = outs[0]->shape[last]};
  merge.rows = stats[0]->numel / 2;
  for (int i = 0; i < count; i++) {
    input[i] = outs[i];
    input[count + i] = stats[i];
  }
  heed_status status = heed__result_begin_row_major(ctx, function, &out, merged, HEED_FLOAT32, last + 1,
                                                    outs[0]->shape, 2 * count, input);
  if (status) return status;
  const heed_tensor *read[2 * HEED__MERGED + 1];
  for (int i = 0; i < 2 * count; i++) read[i] = input[i];
  read[2 * count] = out.tensor;
  status = heed__result_begin_row_major(ctx, function, &sums, merged_stats, HEED_FLOAT32, last + 1,
                                        stats[0]->shape, 2 * count + 1, read);
  for (int i = 0; i < 2 * count && !status; i++) {
    status = heed__as_contiguous(ctx, function, input[i], HEED_FLOAT32, &view, &made[i]);
    if (!status)
      *(i < count ? &merge.out[i] : &merge.stats[i - count]) = (const float *)(const void *)view->data;
  }
  if (!status) {
    merge.merged_out = (float *)(void *)out.tensor->data;
    merge.merged_stats = (float *)(void *)sums.tensor->data;
    if (!heed__attention_merge(ctx, &merge, false)) status = heed__stopped(ctx, function);
  }
  for (int i = 0; i < 2 * count; i++) heed_tensor_free(made[i]);
  status = heed__result_end(ctx, &sums, status);
  status = heed__result_end(ctx, &out, status);
  if (ctx->recorder && !status)
    status = heed__record_results(ctx, status, HEED__OP_attention_merge, 2 * count, input, NULL, 0, 2,
                                  (heed_tensor * *const[]){merged, merged_stats});
  status = only_whole(status, new_out, merged);
  return only_whole(status, new_stats, merged_stats);
}

heed_status heed_attention_merge(heed_context *ctx, int count, const heed_tensor *const *outs,
                                 const heed_tensor *const *stats, heed_tensor **merged,
                                 heed_tensor **merged_stats) {
  static const char function[] = "attention_merge";
  HEED__ENTER(ctx, function, merged, merged_stats);
  if (count < 1)
    return heed__fail(ctx, HEED_ARGUMENT, "%s: count is %d; it must be at least 1", function, count);
  heed_status status = heed__check_tensors(ctx, function, "outs", count, outs);
  if (!status) status = heed__check_tensors(ctx, function, "stats", count, stats);
  for (int i = 0; i < count && !status; i++)
    status = check_part(ctx, function, i, outs[i], stats[i], outs[0]);
  if (!status) status = heed__check_apart(ctx, function, merged, merged_stats);
  if (status) return status;
  heed_tensor *so_far = NULL, *sums = NULL;
  for (int done = 0; done < count && !status;) {
    const heed_tensor *out_part[HEED__MERGED], *stats_part[HEED__MERGED];
    heed_tensor *next = NULL, *next_sums = NULL;
    int n = 0;
    if (so_far) out_part[n] = so_far, stats_part[n++] = sums;
    for (; n < HEED__MERGED && done < count; n++, done++)
      out_part[n] = outs[done], stats_part[n] = stats[done];
    const bool last = done == count;
    status = merge_some(ctx, function, n, out_part, stats_part, last ? merged : &next,
                        last ? merged_stats : &next_sums);
    heed_tensor_free(so_far);
    heed_tensor_free(sums);
    so_far = next;
    sums = next_sums;
  }
  return status;
}
