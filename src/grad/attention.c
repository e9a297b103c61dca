/* The gradients of scaled_dot_product_attention, which attention modules record, too, of its parts over some
 * of the keys, of merging these, and of linear attention. */
#include "grad.h"

#include <math.h>

/* What was recorded as input i, in its header; NULL if it was not given. */
static const heed_tensor *recorded_input(const heed__backward *b, int i, heed_tensor *header) {
  const heed__saved *saved = &b->node->saved[i];
  return i < b->node->inputs && saved->storage != NULL ? heed__backward_input(b, i, header) : NULL;
}

/* Its fused attention, or the last of the operations that PyTorch makes it of. */
const char *heed__scaled_dot_product_attention_name(const heed__node *node) {
  const heed__attention_values *values = node->values;
  const heed__saved *q = &node->saved[HEED__ATTENTION_q], *v = &node->saved[HEED__ATTENTION_v];
  if (q->ndim == 2) return "MmBackward0";
  if (q->ndim != 4 || values->options.dropout_p > 0 || node->input[HEED__ATTENTION_attn_mask] != NULL ||
      q->dims[q->ndim - 1] != v->dims[v->ndim - 1])
    return "UnsafeViewBackward0";
  return "ScaledDotProductFlashAttentionForCpuBackward0";
}

static heed_status attention_backward(heed__backward *b, const heed_tensor *dout,
                                      heed__attention_saved *saved) {
  const heed__attention_values *values = b->values;
  heed_tensor header[HEED__ATTENTION_RECORDED];
  const heed_tensor *x[HEED__ATTENTION_RECORDED];
  unsigned wanted = 0;
  for (int i = 0; i < HEED__ATTENTION_RECORDED; i++) x[i] = recorded_input(b, i, &header[i]);
  for (int i = 0; i < HEED__ATTENTION_GRADIENTS; i++) wanted |= heed__backward_wants(b, i) ? 1u << i : 0;
  heed__attention_operands operands = {.function = b->function,
                                       .q = x[HEED__ATTENTION_q],
                                       .k = x[HEED__ATTENTION_k],
                                       .v = x[HEED__ATTENTION_v],
                                       .options = values->options,
                                       .no_heads = values->no_heads,
                                       .key_padding_mask = x[HEED__ATTENTION_RECORDED_PADDING],
                                       .offset = values->offset,
                                       .same_tokens = values->same_tokens,
                                       .k_scale = x[HEED__ATTENTION_RECORDED_K_SCALE],
                                       .v_scale = x[HEED__ATTENTION_RECORDED_V_SCALE],
                                       .lengths = x[HEED__ATTENTION_RECORDED_ITEM_LENGTHS],
                                       .key_lengths = x[HEED__ATTENTION_RECORDED_ITEM_KEY_LENGTHS]};
  heed_mask mask = {.context = b->ctx, .references = 1};
  mask.code = (heed_tensor *)(uintptr_t)x[HEED__ATTENTION_RECORDED_MASK];
  if (mask.code) operands.options.mask = &mask;
  operands.options.attn_mask = x[HEED__ATTENTION_attn_mask];
  operands.options.sinks = x[HEED__ATTENTION_sinks];
  operands.options.alibi_slopes = x[HEED__ATTENTION_alibi_slopes];
  operands.options.past_key = x[HEED__ATTENTION_past_key];
  operands.options.past_value = x[HEED__ATTENTION_past_value];
  operands.options.kv_lengths = x[HEED__ATTENTION_RECORDED_LENGTHS];
  saved->kept = x[HEED__ATTENTION_RECORDED_KEPT];
  if (!saved->lse) saved->lse = x[HEED__ATTENTION_RECORDED_LSE];
  return heed__attention_backward(b->ctx, &operands, saved, dout, wanted, b->dx);
}

heed_status heed__scaled_dot_product_attention_backward(heed__backward *b) {
  heed_tensor out;
  heed__attention_saved saved = {.out = heed__backward_output(b, 0, &out)};
  return attention_backward(b, b->dy[0], &saved);
}

/* ---- Parts ---- */

/* Only functions of row_max + log(row_sum) have gradients: if g is that of the logarithm, those of row_max
 * and row_sum are g and g / row_sum. Others would need the one key with the largest score. */
enum { STATS_ROWS = 1 << 12 }; /* between two cancellation checks */
#define STATS_TOLERANCE 1e-3f
#define STATS_NOISE     1e-4f /* of the largest gradient: others may be what remains of a sum */

static heed_status read_sums(const heed__backward *b, int64_t n, const float *stats, const float *d,
                             float *lse, float *dlse) {
  float largest = 0.0f;
  for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(d[2 * i]));
  for (int64_t i = 0; i < n; i++) {
    const float row_sum = stats[2 * i + 1], of_max = d[2 * i], of_sum = row_sum * d[2 * i + 1];
    lse[i] = stats[2 * i] + logf(row_sum);
    dlse[i] = row_sum != 0.0f ? of_sum : 0.0f;
    if (i % STATS_ROWS == STATS_ROWS - 1 && heed__is_due(&b->ctx->pace))
      return heed__stopped(b->ctx, b->function);
    const float most = fmaxf(fabsf(of_max), fabsf(of_sum));
    if (row_sum == 0.0f || !(fabsf(of_max - of_sum) > STATS_TOLERANCE * most + STATS_NOISE * largest))
      continue;
    return heed__fail(
        b->ctx, HEED_ARGUMENT,
        "%s: the gradients of the row_max and row_sum of a query are %s and %s, with row_sum %s; "
        "only functions of row_max + log(row_sum), such as attention_merge, have gradients",
        b->function, HEED__G(of_max), HEED__G(d[2 * i + 1]), HEED__G(row_sum));
  }
  return HEED_OK;
}

/* The log-sums of the queries and their gradients, from those of the statistics. */
static heed_status new_sums_of(const heed__backward *b, heed_tensor **lse, heed_tensor **dlse) {
  heed_tensor header, *made[2] = {NULL, NULL}, *zeros = NULL;
  const heed_tensor *saved = heed__backward_output(b, 1, &header), *stats, *d = b->dy[1];
  const int64_t n = saved->numel / 2;
  heed_status status = heed__as_contiguous(b->ctx, b->function, saved, HEED_FLOAT32, &stats, &made[0]);
  if (!status && !d) {
    status = heed__full(b->ctx, b->function, HEED_FLOAT32, saved->ndim, saved->shape, heed_number(0), &zeros);
    d = zeros;
  }
  if (!status) status = heed__as_contiguous(b->ctx, b->function, d, HEED_FLOAT32, &d, &made[1]);
  if (!status) status = heed__tensor_new(b->ctx, b->function, HEED_FLOAT32, 1, &n, lse);
  if (!status) status = heed__tensor_new(b->ctx, b->function, HEED_FLOAT32, 1, &n, dlse);
  if (!status)
    status = read_sums(b, n, (const float *)(const void *)stats->data, (const float *)(const void *)d->data,
                       (float *)(void *)(*lse)->data, (float *)(void *)(*dlse)->data);
  heed_tensor_free(made[0]);
  heed_tensor_free(made[1]);
  heed_tensor_free(zeros);
  return status;
}

heed_status heed__attention_partial_backward(heed__backward *b) {
  heed_tensor header, *zeros = NULL, *lse = NULL, *dlse = NULL;
  const heed_tensor *out = heed__backward_output(b, 0, &header), *dout = b->dy[0];
  heed_status status = new_sums_of(b, &lse, &dlse);
  if (!status && !dout) {
    status = heed__full(b->ctx, b->function, HEED_FLOAT32, out->ndim, out->shape, heed_number(0), &zeros);
    dout = zeros;
  }
  if (!status) {
    heed__attention_saved saved = {.out = out, .lse = lse, .dlse = dlse};
    status = attention_backward(b, dout, &saved);
  }
  heed_tensor_free(zeros);
  heed_tensor_free(lse);
  heed_tensor_free(dlse);
  return status;
}

/* ---- Merging ---- */

/* Makes x row-major and stores its elements in *data; the copy, if it is one, is freed as *made. */
static heed_status read_merged(const heed__backward *b, const heed_tensor *x, const float **data,
                               heed_tensor **made) {
  const heed_tensor *view = NULL;
  *data = NULL;
  if (!x) return HEED_OK;
  const heed_status status = heed__as_contiguous(b->ctx, b->function, x, HEED_FLOAT32, &view, made);
  if (status == HEED_OK) *data = (const float *)(const void *)view->data;
  return status;
}

static heed_status new_merged(heed__backward *b, int i, float **data) {
  if (!heed__backward_wants(b, i)) return HEED_OK;
  const heed__saved *x = &b->node->saved[i];
  const heed_status status = heed__tensor_new(b->ctx, b->function, HEED_FLOAT32, x->ndim, x->dims, &b->dx[i]);
  if (status == HEED_OK) *data = (float *)(void *)b->dx[i]->data;
  return status;
}

heed_status heed__attention_merge_backward(heed__backward *b) {
  const int count = b->node->inputs / 2;
  heed_tensor header[2 * HEED__MERGED + 1], *made[2 * HEED__MERGED + 3] = {NULL};
  const heed_tensor *out = heed__backward_output(b, 0, &header[2 * HEED__MERGED]);
  const float *merged;
  heed__merge merge = {.count = count, .value_size = out->shape[out->ndim - 1]};
  heed_status status = read_merged(b, out, &merged, &made[2 * count]);
  if (!status) status = read_merged(b, b->dy[0], &merge.dmerged_out, &made[2 * count + 1]);
  if (!status) status = read_merged(b, b->dy[1], &merge.dmerged_stats, &made[2 * count + 2]);
  for (int i = 0; i < 2 * count && !status; i++) {
    const heed_tensor *x = heed__backward_input(b, i, &header[i]);
    const int n = i % count;
    status = read_merged(b, x, i < count ? &merge.out[n] : &merge.stats[n], &made[i]);
    if (!status) status = new_merged(b, i, i < count ? &merge.dout[n] : &merge.dstats[n]);
    if (i >= count) merge.rows = x->numel / 2;
  }
  if (!status) {
    merge.merged_out = (float *)(uintptr_t)merged; /* only read */
    if (!heed__attention_merge(b->ctx, &merge, true)) status = heed__stopped(b->ctx, b->function);
  }
  for (int i = 0; i < 2 * count + 3; i++) heed_tensor_free(made[i]);
  return status;
}

heed_status heed__linear_attention_backward(heed__backward *b) {
  heed_tensor header[HEED__LINEAR_INPUTS];
  const heed_tensor *x[HEED__LINEAR_INPUTS];
  const double *scale = b->values;
  unsigned wanted = 0;
  for (int i = 0; i < HEED__LINEAR_INPUTS; i++) {
    x[i] = recorded_input(b, i, &header[i]);
    wanted |= heed__backward_wants(b, i) ? 1u << i : 0;
  }
  return heed__linear_attention_gradient(b->ctx, b->function, x, *scale, b->dy[0],
                                         b->node->outputs > 1 ? b->dy[1] : NULL, wanted, b->dx);
}
